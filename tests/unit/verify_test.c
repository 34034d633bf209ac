/* ctest: labels=postgres timeout=600 */
/* Every way to change a store behind its back, tried on SQLite and, with HOLDFAST_TEST_PG, on PostgreSQL: each is found, and named. */
#include "persist/store_impl.h"
#include "tests/support/verify_lab.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool postgres; /* the kind of store of this round */
static unsigned attacks_cnt;
static unsigned told_cnt;
static unsigned columns_cnt;

#define GATEWAY "segment_id = (SELECT segment_id FROM segment WHERE name = 'gateway')"
#define OTHER   "segment_id = (SELECT segment_id FROM segment WHERE name = 'other')"

static void assert_holds(struct lab *lab)
{
    lab_look(lab, NULL, 0);
    if (lab->findings_cnt != 0) {
        fail_msg("it should hold:%s", lab_told(lab));
    }
    assert_true(lab->held);
}

static const struct lab_finding *assert_found(struct lab *lab, enum hf_verify_what what, uint64_t batch,
                                              uint64_t seq, const char *column)
{
    const struct lab_finding *finding = lab_found(lab, what, batch, seq);

    attacks_cnt++;
    if (finding == NULL) {
        fail_msg("no finding '%s' at batch %" PRIu64 ", receipt %" PRIu64 ", but:%s",
                 hf_verify_what_name(what), batch, seq, lab_told(lab));
        return NULL; /* not reached; for the analyzer */
    }
    if (what != HF_VERIFY_SCHEMA) {
        assert_string_equal(finding->segment, "gateway");
    }
    if (column != NULL && strcmp(finding->column, column) != 0) {
        fail_msg("column %s is named, not %s: %s", finding->column, column, finding->text);
    }
    return finding;
}

/* ---- what holds ----------------------------------------------------------------------------------------------------- */

static void what_the_library_wrote_holds(void **state)
{
    struct lab lab;

    (void)state;
    lab_new(&lab, postgres);
    assert_holds(&lab);
    assert_int_equal(lab.report.segments_cnt, 2);
    assert_int_equal(lab.report.batches_cnt, 6);
    assert_int_equal(lab.report.receipts_cnt, 14);
    assert_int_equal(lab.report.open_cnt, 3);
    assert_int_equal(lab.head.number, 5);
    assert_memory_equal(lab.head.digest, lab.chain.batch.digest, HF_DIGEST_BYTES);
    lab_drop(&lab);
}

static void an_empty_store_holds(void **state)
{
    struct lab lab;

    (void)state;
    lab_new(&lab, postgres);
    (void)lab_sql(&lab, "DELETE FROM receipt; DELETE FROM batch; DELETE FROM segment");
    lab_look(&lab, NULL, 0);
    assert_int_equal(lab.findings_cnt, 0);
    assert_int_equal(lab.report.segments_cnt, 0);
    lab_drop(&lab);
}

static void conflicts_and_rows_put_aside_hold(void **state)
{
    struct lab lab;
    struct hf_receipt rows[2];

    (void)state;
    lab_new(&lab, postgres);
    /* A foreign receipt stands where the next one comes. */
    (void)lab_sql(&lab,
                  "CREATE TEMP TABLE foreign_row AS SELECT * FROM receipt WHERE " GATEWAY " AND seq = 13;"
                  "UPDATE foreign_row SET seq = 15; INSERT INTO receipt SELECT * FROM foreign_row");
    cases_reservation(&rows[0], "e");
    cases_reservation(&rows[1], "g");
    assert_int_equal(cases_chain_commit(&lab.chain, rows, 2), HF_STORE_OK);
    assert_int_equal(lab.chain.report.aside_cnt, 1);
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_ADDED, 6, 15, NULL);
    (void)lab_sql(&lab, "DELETE FROM receipt WHERE " GATEWAY " AND seq = 15");
    assert_holds(&lab);
    assert_int_equal(lab.report.aside_cnt, 1);
    assert_int_equal(lab.report.conflicts_cnt, 1);

    (void)lab_sql(&lab, "UPDATE conflict SET held_tokens = 0");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_CHANGED, 6, 15, "held_tokens");
    (void)lab_sql(&lab, "UPDATE conflict SET held_tokens = 900, batch_number = 5");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_CHANGED, 6, 15, "batch_number");
    (void)lab_sql(&lab, "DELETE FROM conflict");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_REMOVED, 6, 15, NULL);
    lab_drop(&lab);
}

static void a_closing_of_what_never_came_is_counted(void **state)
{
    struct lab lab;
    struct hf_receipt row;

    (void)state;
    lab_new(&lab, postgres);
    cases_settlement(&row, "lost");
    assert_int_equal(cases_chain_commit(&lab.chain, &row, 1), HF_STORE_OK);
    assert_holds(&lab);
    assert_int_equal(lab.report.unknown_cnt, 1);
    lab_drop(&lab);
}

/* ---- values --------------------------------------------------------------------------------------------------------- */

/* An expression for another value of the same type. */
static void other_value(enum hf_field_type type, const char *name, char *sql, size_t sql_bytes)
{
    switch (type) {
    case HF_FIELD_NUMBER:
    case HF_FIELD_SIGNED:
        (void)snprintf(sql, sql_bytes, "coalesce(%s + 1000003, 1000003)", name);
        break;
    case HF_FIELD_FLAG:
    case HF_FIELD_TRI:
        (void)snprintf(sql, sql_bytes, postgres ? "NOT coalesce(%s, true)" : "1 - coalesce(%s, 1)", name);
        break;
    case HF_FIELD_DIGEST:
        (void)snprintf(sql, sql_bytes, "(SELECT digest FROM batch WHERE number = 2)");
        break;
    default:
        (void)snprintf(sql, sql_bytes, "coalesce(%s || 'x', 'x')", name);
        break;
    }
}

/* Changes one column of one receipt, looks, and puts the old value back. */
static void change_column(struct lab *lab, uint64_t batch, uint64_t seq, const struct hf_field *field,
                          const char *value)
{
    bool moves = strcmp(field->name, "seq") == 0;
    const struct lab_finding *finding;
    char old[2048];

    (void)snprintf(old, sizeof(old), "%s",
                   lab_sql(lab, "SELECT %s(%s) FROM receipt WHERE " GATEWAY " AND seq = %" PRIu64,
                           postgres ? "quote_nullable" : "quote", field->name, seq));
    (void)lab_sql(lab, "UPDATE receipt SET %s = %s WHERE " GATEWAY " AND seq = %" PRIu64, field->name, value,
                  seq);
    lab_look(lab, NULL, 0);
    if (moves) {
        assert_found(lab, HF_VERIFY_REMOVED, batch, seq, NULL);
        assert_found(lab, HF_VERIFY_ADDED, 0, seq + 1000003, NULL);
        seq += 1000003;
    } else {
        finding = assert_found(lab, HF_VERIFY_CHANGED, batch, seq, NULL);
        columns_cnt++;
        told_cnt += finding->column[0] != '\0';
        /* What cannot be told is not guessed. */
        if (finding->column[0] != '\0' && strcmp(finding->column, field->name) != 0) {
            fail_msg("column %s was changed, %s is named", field->name, finding->column);
        }
    }
    (void)lab_sql(lab, "UPDATE receipt SET %s = %s WHERE " GATEWAY " AND seq = %" PRIu64, field->name, old,
                  seq);
}

static void a_change_of_any_column_is_found(void **state)
{
    static const uint64_t rows[][2] = {{1, 4}, {2, 5}, {1, 2}, {3, 9}}; /* batch and receipt */
    size_t rows_cnt = postgres ? 2 : 4; /* a server takes its time for each connection */
    struct lab lab;

    (void)state;
    lab_new(&lab, postgres);
    for (size_t r = 0; r < rows_cnt; r++) {
        for (size_t i = 0; i < hf_receipt_fields(); i++) {
            const struct hf_field *field = hf_receipt_field(i);
            char value[256];

            other_value(field->type, field->name, value, sizeof(value));
            change_column(&lab, rows[r][0], rows[r][1], field, value);
        }
    }
    assert_holds(&lab); /* all is back */
    lab_drop(&lab);
}

/* What a column was is told where it can be: words, flags, nulls, zeros, and what other columns add up to. */
static void a_change_that_can_be_told_is_told(void **state)
{
    static const struct {
        const char *column, *value, *was;
        uint64_t batch, seq;
    } cases[] = {
        {"charged_cost_micros", "1", "4100", 2, 5},
        {"actual_cost_micros", "NULL", "4100", 2, 5},
        {"actual_tokens", "801", "800", 2, 5},
        {"released_tokens", "99", "100", 2, 5},
        {"held_cost_micros", "0", "-6200", 2, 5},
        {"overage_tokens", "NULL", "0", 2, 5},
        {"outcome", "'failure'", "'success'", 2, 5},
        {"cost_source", "'derived'", "'provider'", 2, 5},
        {"late", "NULL", "false", 2, 5},
        {"quota_exceeded", "NULL", "false", 2, 5},
        {"ref", "'x'", "null", 2, 5},
        {"kind", "'release'", "'settlement'", 2, 5},
        {"hold_tokens", "901", "900", 1, 4},
        {"admission", "'degrade'", "'allow'", 1, 4},
        {"key", "'k'", "null", 1, 4},
        {"policy_revision", "2", "1", 1, 4},
        {"version", "2", "1", 1, 4},
        {"credit_window", "'lifetime'", "'month'", 3, 9},
    };
    struct lab lab;

    (void)state;
    lab_new(&lab, postgres);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct lab_finding *finding;
        char old[256];

        (void)snprintf(old, sizeof(old), "%s",
                       lab_sql(&lab, "SELECT %s(%s) FROM receipt WHERE " GATEWAY " AND seq = %" PRIu64,
                               postgres ? "quote_nullable" : "quote", cases[i].column, cases[i].seq));
        (void)lab_sql(&lab, "UPDATE receipt SET %s = %s WHERE " GATEWAY " AND seq = %" PRIu64,
                      cases[i].column, cases[i].value, cases[i].seq);
        lab_look(&lab, NULL, 0);
        finding = assert_found(&lab, HF_VERIFY_CHANGED, cases[i].batch, cases[i].seq, cases[i].column);
        if (strstr(finding->text, cases[i].was) == NULL) {
            fail_msg("%s was %s: %s", cases[i].column, cases[i].was, finding->text);
        }
        (void)lab_sql(&lab, "UPDATE receipt SET %s = %s WHERE " GATEWAY " AND seq = %" PRIu64,
                      cases[i].column, old, cases[i].seq);
    }
    assert_holds(&lab);
    lab_drop(&lab);
}

static void what_reads_the_same_is_not_the_same(void **state)
{
    struct lab lab;

    (void)state;
    lab_new(&lab, postgres);
    /* As a list of buckets it means the same; its bytes are others. */
    (void)lab_sql(&lab,
                  "UPDATE receipt SET buckets = replace(buckets, '=40000000', '=040000000') WHERE seq = 4");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_CHANGED, 1, 4, NULL);
    (void)lab_sql(&lab,
                  "UPDATE receipt SET buckets = replace(buckets, '=040000000', '=40000000') WHERE seq = 4");
    /* The amounts in it are nowhere else in the row that recovery reads. */
    (void)lab_sql(&lab, "UPDATE receipt SET buckets = replace(buckets, ':6200', ':6201') WHERE seq = 4");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_CHANGED, 1, 4, NULL);
    (void)lab_sql(&lab, "UPDATE receipt SET buckets = replace(buckets, ':6201', ':6200') WHERE seq = 4");
    assert_holds(&lab);
    (void)lab_sql(&lab, "UPDATE receipt SET ref = '' WHERE " GATEWAY " AND seq = 5");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_CHANGED, 2, 5, "ref");
    (void)lab_sql(&lab, "UPDATE receipt SET ref = NULL WHERE " GATEWAY " AND seq = 5");
    (void)lab_sql(&lab, "UPDATE receipt SET policy_revision = -1 WHERE " GATEWAY " AND seq = 5");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_CHANGED, 2, 5, "policy_revision");
    lab_drop(&lab);
}

/* ---- batches -------------------------------------------------------------------------------------------------------- */

static void a_change_of_any_column_of_a_batch_is_found(void **state)
{
    static const struct {
        const char *column, *value;
        bool told;
    } cases[] = {
        {"epoch", "7", true},
        {"first_seq", "first_seq + 1", true},
        {"first_seq", "1", true},
        {"rows_cnt", "rows_cnt + 1", true},
        {"rows_cnt", "rows_cnt - 1", true},
        {"rows_cnt", "0", true},
        {"rows_cnt", "1000000", true},
        {"committed_ms", "committed_ms + 1", false},
        {"before", "(SELECT digest FROM batch b WHERE b.number = 4)", true},
        {"digest", "(SELECT digest FROM batch b WHERE b.number = 4)", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct lab lab;

        lab_new(&lab, postgres);
        (void)lab_sql(&lab, "UPDATE batch SET %s = %s WHERE number = 2", cases[i].column, cases[i].value);
        lab_look(&lab, NULL, 0);
        assert_found(&lab, HF_VERIFY_BATCH, 2, 0, cases[i].told ? cases[i].column : NULL);
        if (lab.findings_cnt != 1) {
            fail_msg("%s = %s: more than one finding:%s", cases[i].column, cases[i].value, lab_told(&lab));
        }
        lab_drop(&lab);
    }
}

static void the_last_batch_is_no_exception(void **state)
{
    static const char *const changes[] = {
        "UPDATE batch SET rows_cnt = 2 WHERE number = 5",
        "UPDATE batch SET digest = before WHERE number = 5",
        "UPDATE batch SET committed_ms = 0 WHERE number = 5",
        "UPDATE batch SET first_seq = 12 WHERE number = 5",
        "UPDATE batch SET first_seq = 9000000000000000000 WHERE number = 5",
        "UPDATE batch SET rows_cnt = -9223372036854775807 WHERE number = 5",
        "UPDATE batch SET epoch = -1 WHERE number = 5",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct lab lab;

        lab_new(&lab, postgres);
        (void)lab_sql(&lab, "%s", changes[i]);
        lab_look(&lab, NULL, 0);
        assert_found(&lab, HF_VERIFY_BATCH, 5, 0, NULL);
        lab_drop(&lab);
    }
}

static void a_batch_that_was_removed_is_missed(void **state)
{
    struct lab lab;

    (void)state;
    lab_new(&lab, postgres);
    (void)lab_sql(&lab, "DELETE FROM batch WHERE number = 2");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_REMOVED, 2, 0, NULL);
    assert_found(&lab, HF_VERIFY_ADDED, 0, 5, NULL); /* its receipts belong to nothing now */
    assert_found(&lab, HF_VERIFY_ADDED, 0, 7, NULL);
    assert_int_equal(lab.findings_cnt, 2);
    (void)lab_sql(&lab, "DELETE FROM receipt WHERE seq BETWEEN 5 AND 7");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_REMOVED, 2, 0, NULL);
    assert_found(&lab, HF_VERIFY_ORPHANED, 0, 8, "reservation_seq"); /* the closings of c and d */
    assert_found(&lab, HF_VERIFY_ORPHANED, 0, 12, "reservation_seq");
    (void)lab_sql(&lab, "DELETE FROM batch WHERE number IN (1, 3)");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_REMOVED, 1, 0, NULL);
    lab_drop(&lab);
}

static void a_batch_that_was_added_is_found(void **state)
{
    struct lab lab;

    (void)state;
    lab_new(&lab, postgres);
    (void)lab_sql(
        &lab, "INSERT INTO batch SELECT segment_id, 6, epoch, 14, 1, committed_ms, digest, digest FROM batch "
              "WHERE number = 5");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_REMOVED, 6, 14, NULL);
    (void)lab_sql(&lab, "UPDATE batch SET rows_cnt = 0 WHERE number = 6");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_BATCH, 6, 0, "rows_cnt");
    (void)lab_sql(&lab, "UPDATE batch SET number = 0, rows_cnt = 1, first_seq = 1 WHERE number = 6");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_ADDED, 0, 0, "number");
    (void)lab_sql(&lab, "UPDATE batch SET number = 1000 WHERE number = 0");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_REMOVED, 6, 0, NULL);
    lab_drop(&lab);
}

static void two_batches_that_were_swapped_are_found(void **state)
{
    struct lab lab;

    (void)state;
    lab_new(&lab, postgres);
    (void)lab_sql(
        &lab, "UPDATE batch SET number = 99 WHERE number = 2; UPDATE batch SET number = 2 WHERE number = 3; "
              "UPDATE batch SET number = 3 WHERE number = 99");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_BATCH, 2, 0, NULL);
    assert_found(&lab, HF_VERIFY_BATCH, 3, 0, NULL);
    lab_drop(&lab);
}

/* ---- receipts ------------------------------------------------------------------------------------------------------- */

static void a_receipt_that_was_removed_is_missed(void **state)
{
    struct lab lab;

    (void)state;
    for (uint64_t seq = 1; seq <= 13; seq++) {
        uint64_t batch = seq <= 4 ? 1 : seq <= 7 ? 2 : seq <= 9 ? 3 : seq <= 12 ? 4 : 5;

        lab_new(&lab, postgres);
        (void)lab_sql(&lab, "DELETE FROM receipt WHERE " GATEWAY " AND seq = %" PRIu64, seq);
        lab_look(&lab, NULL, 0);
        assert_found(&lab, HF_VERIFY_REMOVED, batch, seq, NULL);
        lab_drop(&lab);
    }
    lab_new(&lab, postgres);
    (void)lab_sql(&lab, "DELETE FROM receipt WHERE " GATEWAY " AND seq IN (3, 4)");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_REMOVED, 1, 3, NULL);
    assert_found(&lab, HF_VERIFY_REMOVED, 1, 4, NULL);
    assert_found(&lab, HF_VERIFY_ORPHANED, 0, 5, "reservation_seq"); /* the settlement of a */
    assert_found(&lab, HF_VERIFY_ORPHANED, 0, 13, "reservation_seq");
    lab_drop(&lab);
}

static void a_receipt_without_a_batch_is_found(void **state)
{
    struct lab lab;
    struct hf_receipt row;
    const struct lab_finding *finding;

    (void)state;
    lab_new(&lab, postgres);
    cases_reservation(&row, "added");
    assert_int_equal(cases_chain_commit(&lab.chain, &row, 1), HF_STORE_OK);
    (void)lab_sql(&lab, "DELETE FROM batch WHERE number = 6");
    lab_look(&lab, NULL, 0);
    finding = assert_found(&lab, HF_VERIFY_ADDED, 0, 14, NULL);
    assert_null(strstr(finding->text, "wrong")); /* its digest is right */
    assert_int_equal(lab.findings_cnt, 1);
    if (postgres) { /* no partition takes what is below or far above; within one it goes unnoticed by the server */
        (void)lab_sql(&lab, "UPDATE receipt SET seq = 16777216 WHERE seq = 14");
        lab_look(&lab, NULL, 0);
        assert_non_null(lab_found(&lab, HF_VERIFY_ADDED, 0, 16777216));
        lab_drop(&lab);
        return;
    }
    (void)lab_sql(&lab, "UPDATE receipt SET seq = 0 WHERE seq = 14");
    lab_look(&lab, NULL, 0);
    assert_non_null(lab_found(&lab, HF_VERIFY_ADDED, 0, 0));
    assert_int_equal(lab.findings_cnt, 2); /* it names a reservation that is not itself */
    (void)lab_sql(&lab, "UPDATE receipt SET seq = -9223372036854775807 WHERE seq = 0");
    lab_look(&lab, NULL, 0);
    assert_non_null(lab_found(&lab, HF_VERIFY_ADDED, 0, 0));
    (void)lab_sql(&lab, "UPDATE receipt SET seq = 9223372036854775807 WHERE seq < 0");
    lab_look(&lab, NULL, 0);
    assert_non_null(lab_found(&lab, HF_VERIFY_ADDED, 0, INT64_MAX));
    lab_drop(&lab);
}

static void receipts_in_another_order_are_found(void **state)
{
    struct lab lab;

    (void)state;
    lab_new(&lab, postgres);
    (void)lab_sql(&lab,
                  "UPDATE receipt SET seq = 99 WHERE seq = 6; UPDATE receipt SET seq = 6 WHERE seq = 7; "
                  "UPDATE receipt SET seq = 7 WHERE seq = 99");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_CHANGED, 2, 6, "seq");
    assert_found(&lab, HF_VERIFY_CHANGED, 2, 7, "seq");
    lab_drop(&lab);
    lab_new(&lab, postgres);
    (void)lab_sql(
        &lab,
        "UPDATE receipt SET seq = 90 + seq WHERE seq BETWEEN 10 AND 12; UPDATE receipt SET seq = 10 WHERE seq = "
        "102; UPDATE receipt SET seq = seq - 89 WHERE seq > 90");
    lab_look(&lab, NULL, 0);
    for (uint64_t seq = 10; seq <= 12; seq++) {
        assert_found(&lab, HF_VERIFY_CHANGED, 4, seq, "seq");
    }
    lab_drop(&lab);
    /* Across batches, and with digests that are right again: then the batches do not hold. */
    lab_new(&lab, postgres);
    (void)lab_sql(&lab,
                  "UPDATE receipt SET seq = 99 WHERE seq = 4; UPDATE receipt SET seq = 4 WHERE seq = 10; "
                  "UPDATE receipt SET seq = 10 WHERE seq = 99");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_CHANGED, 1, 4, NULL);
    assert_found(&lab, HF_VERIFY_CHANGED, 4, 10, NULL);
    lab_drop(&lab);
}

static void a_digest_that_was_changed_is_named(void **state)
{
    struct lab lab;

    (void)state;
    lab_new(&lab, postgres);
    (void)lab_sql(&lab, "UPDATE receipt SET digest = (SELECT digest FROM batch WHERE number = 1 AND " GATEWAY
                        ") WHERE " GATEWAY " AND seq = 12");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_CHANGED, 4, 12, "digest");
    assert_int_equal(lab.findings_cnt, 1);
    (void)lab_sql(&lab, "UPDATE receipt SET digest = %s WHERE " GATEWAY " AND seq = 12",
                  postgres ? "''" : "x''");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_CHANGED, 4, 12, "digest");
    lab_drop(&lab);
}

static void a_closing_that_was_linked_anew_is_found(void **state)
{
    struct lab lab;

    (void)state;
    lab_new(&lab, postgres);
    (void)lab_sql(
        &lab,
        "UPDATE receipt SET reservation_seq = 11, reservation_digest = (SELECT r.digest FROM receipt r WHERE "
        "r.seq = 11) WHERE seq = 12");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_CHANGED, 4, 12, NULL);
    assert_found(&lab, HF_VERIFY_ORPHANED, 4, 12, "reservation_seq");
    /* With its digest and that of its batch made right, the references still tell. */
    lab_forge(&lab, 12, 5);
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_ORPHANED, 4, 12, "reservation_seq");
    assert_int_equal(lab.findings_cnt, 1);
    (void)lab_sql(&lab, "UPDATE receipt SET reservation_seq = 7 WHERE seq = 12");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_ORPHANED, 4, 12, "reservation_digest");
    (void)lab_sql(&lab, "UPDATE receipt SET reservation_seq = 4711 WHERE seq = 12");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_ORPHANED, 0, 12, "reservation_seq");
    (void)lab_sql(&lab, "UPDATE receipt SET reservation_seq = 9 WHERE seq = 12"); /* a credit */
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_ORPHANED, 0, 12, "reservation_seq");
    lab_drop(&lab);
}

static void a_reservation_that_was_closed_twice_is_found(void **state)
{
    struct lab lab;
    struct hf_receipt row;

    (void)state;
    lab_new(&lab, postgres);
    cases_settlement(&row, "a");
    assert_int_equal(cases_chain_commit(&lab.chain, &row, 1), HF_STORE_OK);
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_UNEVEN, 6, 14, NULL);
    assert_int_equal(lab.findings_cnt, 1);
    lab_drop(&lab);
    lab_new(&lab, postgres);
    cases_settlement(&row, "e");
    row.held_cost_micros = -6199;
    assert_int_equal(cases_chain_commit(&lab.chain, &row, 1), HF_STORE_OK);
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_UNEVEN, 6, 14, NULL);
    lab_drop(&lab);
}

/* ---- segments ------------------------------------------------------------------------------------------------------- */

static void a_segment_that_was_renamed_is_found(void **state)
{
    struct lab lab;

    (void)state;
    lab_new(&lab, postgres);
    (void)lab_sql(&lab, "UPDATE segment SET name = 'third' WHERE name = 'other'");
    (void)lab_sql(&lab, "UPDATE segment SET name = 'other' WHERE name = 'gateway'");
    (void)lab_sql(&lab, "UPDATE segment SET name = 'gateway' WHERE name = 'third'");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_RENAMED, 0, 0, "name");
    assert_found(&lab, HF_VERIFY_CHANGED, 1, 1, "segment_id");
    lab_drop(&lab);
    lab_new(&lab, postgres);
    (void)lab_sql(&lab, "DELETE FROM segment WHERE name = 'other'");
    lab_look(&lab, NULL, 0);
    assert_non_null(lab_found(&lab, HF_VERIFY_ADDED, 0, 0)); /* rows of a number without a name */
    assert_string_equal(lab.findings[0].column, "segment_id");
    lab_drop(&lab);
}

static void receipts_of_another_segment_are_found(void **state)
{
    struct lab lab;

    (void)state;
    lab_new(&lab, postgres);
    /* Beyond the end, and then in the place of one of ours. */
    (void)lab_sql(&lab,
                  "CREATE TEMP TABLE copied AS SELECT * FROM receipt WHERE " OTHER ";"
                  "UPDATE copied SET seq = 14, segment_id = (SELECT segment_id FROM segment WHERE name = "
                  "'gateway'); INSERT INTO receipt SELECT * FROM copied");
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_ADDED, 0, 14, NULL);
    (void)lab_sql(
        &lab,
        "DELETE FROM receipt WHERE seq IN (1, 14) AND " GATEWAY ";"
        "UPDATE receipt SET segment_id = (SELECT segment_id FROM segment WHERE name = 'gateway') WHERE " OTHER);
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_CHANGED, 1, 1, "segment_id");
    lab_drop(&lab);
}

/* ---- one who knows how ---------------------------------------------------------------------------------------------- */

static void a_change_with_right_digests_needs_the_head(void **state)
{
    struct lab lab;
    struct hf_verify_head head = {.number = 5};

    (void)state;
    lab_new(&lab, postgres);
    assert_true(hf_name_set(&head.segment, "gateway", 7));
    memcpy(head.digest, lab.chain.batch.digest, HF_DIGEST_BYTES);
    (void)lab_sql(&lab, "UPDATE receipt SET charged_cost_micros = 1 WHERE seq = 8");
    lab_forge(&lab, 8, 0); /* the receipt alone */
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_BATCH, 3, 0, NULL);
    lab_forge(&lab, 8, 3); /* and its batch */
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_BATCH, 4, 0, NULL);
    lab_forge(&lab, 8, 4); /* and the next */
    lab_look(&lab, NULL, 0);
    assert_found(&lab, HF_VERIFY_BATCH, 5, 0, NULL);
    lab_forge(&lab, 8, 5); /* and all to the end: nothing in the store can tell */
    assert_holds(&lab);
    lab_look(&lab, &head, 1);
    assert_found(&lab, HF_VERIFY_TRUNCATED, 5, 0, "digest");
    head.segment.len = 0;
    head.number = 0; /* the digest alone */
    lab_look(&lab, &head, 1);
    assert_non_null(lab_found(&lab, HF_VERIFY_TRUNCATED, 0, 0));
    lab_drop(&lab);
}

static void a_chain_that_was_cut_off_needs_the_head(void **state)
{
    struct lab lab;
    struct hf_verify_head head = {.number = 5};
    struct hf_receipt row;

    (void)state;
    lab_new(&lab, postgres);
    assert_true(hf_name_set(&head.segment, "gateway", 7));
    memcpy(head.digest, lab.chain.batch.digest, HF_DIGEST_BYTES);
    cases_reservation(&row, "later");
    assert_int_equal(cases_chain_commit(&lab.chain, &row, 1), HF_STORE_OK);
    lab_look(&lab, &head, 1); /* it went on since: as it should */
    assert_int_equal(lab.findings_cnt, 0);
    (void)lab_sql(&lab, "DELETE FROM batch WHERE number >= 5; DELETE FROM receipt WHERE seq >= 13");
    assert_holds(&lab);
    lab_look(&lab, &head, 1);
    assert_found(&lab, HF_VERIFY_TRUNCATED, 5, 0, NULL);
    assert_int_equal(lab.findings_cnt, 1);
    head.segment.len = 0;
    head.number = 0;
    lab_look(&lab, &head, 1);
    assert_non_null(lab_found(&lab, HF_VERIFY_TRUNCATED, 0, 0));
    /* All of the segment. */
    assert_true(hf_name_set(&head.segment, "gateway", 7));
    head.number = 5;
    (void)lab_sql(&lab, "DELETE FROM batch WHERE " GATEWAY "; DELETE FROM receipt WHERE " GATEWAY);
    lab_look(&lab, &head, 1);
    assert_found(&lab, HF_VERIFY_TRUNCATED, 5, 0, NULL);
    (void)lab_sql(&lab, "DELETE FROM segment WHERE name = 'gateway'");
    lab_look(&lab, &head, 1);
    assert_non_null(lab_found(&lab, HF_VERIFY_TRUNCATED, 5, 0));
    lab_drop(&lab);
}

/* ---- the schema ----------------------------------------------------------------------------------------------------- */

static void a_schema_that_refuses_no_longer_is_found(void **state)
{
    static const char *const of_sqlite[] = {
        "DROP TRIGGER receipt_no_update",
        "DROP TRIGGER batch_no_replace",
        "DROP TRIGGER receipt_no_delete; CREATE TRIGGER receipt_no_delete BEFORE DELETE ON receipt BEGIN SELECT 1; END",
        "CREATE TRIGGER more AFTER INSERT ON receipt BEGIN SELECT 1; END",
        "DROP INDEX receipt_id",
        "DROP VIEW meter",
        "CREATE TABLE more (a)",
    };
    static const char *const of_postgres[] = {
        "ALTER TABLE receipt DISABLE TRIGGER append_only",
        "ALTER TABLE batch ENABLE TRIGGER append_only",
        "ALTER TABLE conflict ENABLE REPLICA TRIGGER append_only",
        "DROP TRIGGER append_only ON segment",
        ("DROP TRIGGER append_only ON migration; CREATE TRIGGER append_only BEFORE UPDATE ON migration FOR EACH STATEMENT "
         "EXECUTE FUNCTION holdfast.refuse_change(); ALTER TABLE migration ENABLE ALWAYS TRIGGER append_only"),
        "CREATE OR REPLACE FUNCTION holdfast.refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER more AFTER INSERT ON receipt FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change()",
        "CREATE RULE more AS ON INSERT TO conflict DO INSTEAD NOTHING",
        "ALTER TABLE receipt ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE conflict DROP CONSTRAINT conflict_pkey",
        "ALTER TABLE conflict SET UNLOGGED",
        "CREATE TABLE public.child () INHERITS (holdfast.batch)",
        "CREATE TABLE holdfast.child () INHERITS (holdfast.batch)",
        "CREATE TABLE public.child PARTITION OF holdfast.receipt FOR VALUES FROM (20000000) TO (30000000)",
        "CREATE TABLE holdfast.child PARTITION OF holdfast.receipt FOR VALUES FROM (20000000) TO (30000000)",
        "ALTER TABLE receipt_p1 DISABLE TRIGGER append_only",
        "GRANT DELETE ON receipt_p1 TO holdfast_runtime",
        "DROP INDEX receipt_p1_once",
        ("CREATE OR REPLACE FUNCTION holdfast.ensure_partition(seq bigint, OUT first bigint, OUT next bigint) LANGUAGE plpgsql "
         "SECURITY DEFINER AS 'BEGIN DELETE FROM holdfast.receipt; END'"),
        "CREATE TABLE holdfast.more (a int)",
        "GRANT UPDATE ON receipt TO holdfast_runtime",
        "GRANT DELETE ON batch TO holdfast_reader",
        "GRANT TRUNCATE ON receipt TO pg_monitor",
        "GRANT SELECT ON receipt TO PUBLIC",
        "GRANT UPDATE (seq) ON receipt TO holdfast_runtime",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET holdfast.retention = ''on''', current_database()); END $$",
        "CREATE OR REPLACE VIEW every_receipt AS SELECT *, false AS aside FROM receipt WHERE false",
    };
    const char *const *attacks = postgres ? of_postgres : of_sqlite;
    size_t cnt =
        postgres ? sizeof(of_postgres) / sizeof(of_postgres[0]) : sizeof(of_sqlite) / sizeof(of_sqlite[0]);

    (void)state;
    for (size_t i = 0; i < cnt; i++) {
        struct lab lab;
        char why[512];

        lab_new(&lab, postgres);
        if (!lab_try(&lab, attacks[i], why, sizeof(why))) {
            /* The last one is refused by PostgreSQL where the columns are in another order: as good. */
            assert_non_null(strstr(why, "cannot change"));
            lab_drop(&lab);
            continue;
        }
        lab_look(&lab, NULL, 0);
        if (lab_found(&lab, HF_VERIFY_SCHEMA, 0, 0) == NULL) {
            fail_msg("not found: %s%s", attacks[i], lab_told(&lab));
        }
        attacks_cnt++;
        lab_drop(&lab);
    }
}

/* What goes past triggers altogether is found by digests. */
static void a_table_that_was_written_anew_is_found(void **state)
{
    struct lab lab;
    char why[512];

    (void)state;
    lab_new(&lab, postgres);
    if (postgres) {
        assert_true(
            lab_try(&lab,
                    "ALTER TABLE receipt DISABLE TRIGGER append_only; UPDATE receipt SET extend_calls = 1; "
                    "ALTER TABLE receipt ENABLE ALWAYS TRIGGER append_only",
                    why, sizeof(why)));
    } else {
        /* The triggers of DELETE do not see this one; with those of INSERT gone for a moment it works. */
        (void)lab_sql(
            &lab,
            "CREATE TEMP TABLE copied AS SELECT * FROM receipt WHERE " GATEWAY
            "; UPDATE copied SET extend_calls = 1; INSERT OR REPLACE INTO receipt SELECT * FROM copied");
    }
    lab_look(&lab, NULL, 0);
    assert_null(lab_found(&lab, HF_VERIFY_SCHEMA, 0, 0));
    for (uint64_t seq = 1; seq <= 13; seq++) {
        assert_found(&lab, HF_VERIFY_CHANGED, 0, seq, "extend_calls");
    }
    lab_drop(&lab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_library_wrote_holds),
        cmocka_unit_test(an_empty_store_holds),
        cmocka_unit_test(conflicts_and_rows_put_aside_hold),
        cmocka_unit_test(a_closing_of_what_never_came_is_counted),
        cmocka_unit_test(a_change_of_any_column_is_found),
        cmocka_unit_test(a_change_that_can_be_told_is_told),
        cmocka_unit_test(what_reads_the_same_is_not_the_same),
        cmocka_unit_test(a_change_of_any_column_of_a_batch_is_found),
        cmocka_unit_test(the_last_batch_is_no_exception),
        cmocka_unit_test(a_batch_that_was_removed_is_missed),
        cmocka_unit_test(a_batch_that_was_added_is_found),
        cmocka_unit_test(two_batches_that_were_swapped_are_found),
        cmocka_unit_test(a_receipt_that_was_removed_is_missed),
        cmocka_unit_test(a_receipt_without_a_batch_is_found),
        cmocka_unit_test(receipts_in_another_order_are_found),
        cmocka_unit_test(a_digest_that_was_changed_is_named),
        cmocka_unit_test(a_closing_that_was_linked_anew_is_found),
        cmocka_unit_test(a_reservation_that_was_closed_twice_is_found),
        cmocka_unit_test(a_segment_that_was_renamed_is_found),
        cmocka_unit_test(receipts_of_another_segment_are_found),
        cmocka_unit_test(a_change_with_right_digests_needs_the_head),
        cmocka_unit_test(a_chain_that_was_cut_off_needs_the_head),
        cmocka_unit_test(a_schema_that_refuses_no_longer_is_found),
        cmocka_unit_test(a_table_that_was_written_anew_is_found),
    };
    int failed = 0;

    for (int round = 0; round < 2; round++) {
        postgres = round == 1;
        if (!lab_available(postgres)) {
            puts("SQLite alone: HOLDFAST_TEST_PG is not set; run it below tests/support/postgres.sh");
            continue;
        }
        failed +=
            cmocka_run_group_tests_name(postgres ? "verify_postgres" : "verify_sqlite", tests, NULL, NULL);
    }
    lab_clean();
    (void)printf("totals: %u attacks found, %u of %u changed columns told\n", attacks_cnt, told_cnt,
                 columns_cnt);
    return failed == 0 ? 0 : 1;
}
