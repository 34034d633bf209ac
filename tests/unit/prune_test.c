/* ctest: labels=postgres timeout=300 */
/* Retention: what may go goes, what may not stays and is told why; nothing else that a store says changes; verify holds across the cut. */
#include "persist/prune.h"
#include "persist/rollup.h"
#include "tests/support/verify_lab.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define DAY_MS   UINT64_C(86400000)
#define DUMP_MAX (256U * 1024U)
#define GATEWAY  "segment_id = (SELECT segment_id FROM segment WHERE name = 'gateway')"

static bool postgres;

static uint64_t now_ms(void)
{
    return (uint64_t)time(NULL) * 1000;
}

/* ---- what a store says -------------------------------------------------------------------------------------------- */

struct dump {
    char text[DUMP_MAX];
    size_t len;
};

static void say(struct dump *dump, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct dump *dump, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    dump->len += (size_t)vsnprintf(dump->text + dump->len, sizeof(dump->text) - dump->len, format, args);
    va_end(args);
    assert_true(dump->len < sizeof(dump->text));
}

static int say_sum(void *ctx, const struct hf_store_sum *sum)
{
    say(ctx, "sum %d %s/%s %" PRIx64 " n=%" PRIu64 " %lld %lld\n", sum->window, sum->tenant.bytes,
        sum->team.bytes, sum->bucket_mask, sum->rows_cnt, (long long)sum->held[HF_DIM_COST],
        (long long)sum->charged[HF_DIM_COST]);
    return 0;
}

static int say_meter(void *ctx, const struct hf_store_meter *meter)
{
    say(ctx, "meter %s %s %" PRId64 " %" PRId64 "\n", meter->tenant.bytes, meter->model.bytes,
        meter->requests, meter->settled_micros);
    return 0;
}

static int say_reservation(void *ctx, const struct hf_receipt *rows, size_t rows_cnt)
{
    say(ctx, "reservation %s %zu\n", rows[0].id.bytes, rows_cnt);
    return 0;
}

static int say_row(void *ctx, const struct hf_receipt *row)
{
    say(ctx, "row %" PRIu64 " %s\n", row->seq, hf_receipt_kind_name(row->kind));
    return 0;
}

static void say_all(struct lab *lab, struct dump *dump)
{
    const struct hf_store_filter filter = {
        .open = true, .closed_since_ms = now_ms() - DAY_MS, .late_since_ms = now_ms() - DAY_MS};
    struct hf_store_error error = {""};
    struct hf_store *store = cases_open(lab->url, NULL, NULL);

    dump->len = 0;
    if (hf_store_sums(store, "gateway", now_ms(), (1U << HF_WINDOW_CNT) - 1, say_sum, dump, &error) !=
            HF_STORE_OK ||
        hf_store_meters(store, "gateway", NULL, say_meter, dump, &error) != HF_STORE_OK ||
        hf_store_reservations(store, "gateway", &filter, say_reservation, dump, &error) != HF_STORE_OK ||
        hf_store_last(store, "gateway", HF_RECEIPT_EPOCH, say_row, dump, &error) != HF_STORE_OK ||
        hf_store_last(store, "gateway", HF_RECEIPT_POLICY, say_row, dump, &error) != HF_STORE_OK ||
        hf_store_last(store, "gateway", HF_RECEIPT_CREDIT, say_row, dump, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
    hf_store_close(store);
    assert_true(dump->len > 0);
}

/* ---- a store with a past ------------------------------------------------------------------------------------------ */

static void commit_at(struct lab *lab, struct hf_receipt *rows, size_t cnt, uint64_t at_ms)
{
    struct hf_store_batch batch;

    for (size_t i = 0; i < cnt; i++) {
        rows[i].made_ms = at_ms;
        if (rows[i].window_ms != HF_UNKNOWN) {
            rows[i].window_ms = at_ms;
        }
    }
    cases_chain_prepare(&lab->chain, &batch, rows, cnt);
    batch.committed_ms = at_ms;
    if (hf_store_commit(lab->store, &batch, rows, cnt, &lab->chain.report, &lab->chain.error) !=
        HF_STORE_OK) {
        fail_msg("%s", lab->chain.error.text);
    }
    lab->chain.batch = batch;
    lab->chain.next_seq += cnt;
}

/* Reservations `name`-1 to -n and their settlements, four receipts a batch. */
static void traffic(struct lab *lab, const char *name, unsigned cnt, uint64_t at_ms)
{
    for (unsigned i = 0; i < cnt; i += 2) {
        struct hf_receipt rows[4];
        char id[2][32];

        for (unsigned k = 0; k < 2; k++) {
            (void)snprintf(id[k], sizeof(id[k]), "%s-%u", name, i + k);
            cases_reservation(&rows[k], id[k]);
            cases_settlement(&rows[2 + k], id[k]);
        }
        commit_at(lab, rows, 4, at_ms);
    }
}

static void roll_up(struct lab *lab)
{
    struct hf_rollup made;
    struct hf_store_error error = {""};

    if (hf_rollup_make(lab->store, HF_ROLLUP_ROWS_MAX, &made, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
}

/* The lab's 13 receipts with e and f open, in partitions of 8; then what settles them, all of it long ago, and 16 of the present. The
 * other segment of the lab has one receipt and is gone from the store's traffic. */
static void old_store(struct lab *lab, bool settled, bool rolled_up)
{
    struct hf_receipt rows[2];

    lab_new(lab, postgres);
    if (settled) {
        cases_settlement(&rows[0], "e");
        cases_settlement(&rows[1], "f");
        commit_at(lab, rows, 2, CASES_NOW_MS + 1000); /* 14, 15 */
    }
    if (postgres) {
        /* Partitions of 8 from the next one on cannot be: the first one has 16 million. Made anew while they are few. */
        (void)lab_sql(
            lab,
            "CREATE OR REPLACE FUNCTION holdfast.partition_rows() RETURNS bigint LANGUAGE sql IMMUTABLE SET "
            "search_path = pg_catalog, pg_temp AS 'SELECT 8::bigint'; CREATE TABLE public.all_rows AS SELECT * "
            "FROM receipt; DROP TABLE receipt_p1; SELECT ensure_partition(1); SELECT ensure_partition(9); "
            "INSERT INTO receipt SELECT * FROM public.all_rows; DROP TABLE public.all_rows");
        hf_store_disconnect(lab->store);
    }
    traffic(lab, "old", 8, CASES_NOW_MS + 2000);
    if (rolled_up) {
        struct hf_store_error error = {""};
        struct hf_rollup made;
        struct hf_store *other = cases_open(lab->url, "other", NULL);
        struct cases_chain chain;
        struct hf_store_head head;
        struct hf_receipt row;

        cases_chain_start(&chain, other);
        assert_int_equal(hf_store_head(other, "other", &head, &error), HF_STORE_OK);
        chain.batch = head.last;
        chain.next_seq = head.next_seq;
        cases_settlement(&row, "elsewhere");
        assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
        if (hf_rollup_make(other, HF_ROLLUP_ROWS_MAX, &made, &error) != HF_STORE_OK) {
            fail_msg("%s", error.text);
        }
        hf_store_close(other);
    }
    traffic(lab, "new", 8, now_ms());
    if (rolled_up) {
        roll_up(lab);
    }
    /* A rollup of the other segment ends in its own time: its month is over only by a later one. */
    hf_store_close(lab->store);
    lab->store = NULL;
}

/* ---- pruning ------------------------------------------------------------------------------------------------------ */

struct told {
    unsigned steps_cnt;
    unsigned gone_cnt;
    uint64_t rows_cnt;
    uint64_t next_seq;
    char text[4096];
};

static void take_step(void *ctx, const struct hf_prune_step *step)
{
    struct told *told = ctx;
    size_t len = strlen(told->text);

    told->steps_cnt++;
    if (step->goes) {
        told->gone_cnt++;
        told->rows_cnt += step->rows_cnt;
        told->next_seq = step->next_seq;
        assert_null(step->text);
    } else {
        (void)snprintf(told->text + len, sizeof(told->text) - len, "%s\n", step->text);
    }
}

static enum hf_store_status prune(struct lab *lab, uint64_t before_ms, bool dry_run, struct told *told,
                                  struct hf_store_error *error)
{
    const struct hf_store_options owner = {.role = HF_STORE_OWNER};
    const struct hf_prune_options options = {
        .before_ms = before_ms, .made_by = "test", .dry_run = dry_run, .step = take_step, .ctx = told};
    struct hf_store *store = cases_open(lab->url, NULL, &owner);
    enum hf_store_status status;

    memset(told, 0, sizeof(*told));
    status = hf_prune(store, &options, error);
    hf_store_close(store);
    return status;
}

static void prune_ok(struct lab *lab, uint64_t before_ms, bool dry_run, struct told *told)
{
    struct hf_store_error error = {""};

    if (prune(lab, before_ms, dry_run, told, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
}

static void assert_holds(struct lab *lab)
{
    lab_look(lab, NULL, 0);
    if (lab->findings_cnt > 0) {
        fail_msg("does not hold:%s", lab_told(lab));
    }
}

static void what_may_go_goes_and_nothing_else_changes(void **state)
{
    static struct dump before;
    static struct dump after;
    struct lab lab;
    struct told told;

    (void)state;
    old_store(&lab, true, true);
    say_all(&lab, &before);
    prune_ok(&lab, now_ms() - 3 * DAY_MS, true, &told);
    print_message("%s", told.text);
    assert_in_range(told.gone_cnt, 1, 10);
    assert_int_equal(atoi(lab_sql(&lab, "SELECT count(*) FROM prune")), 0);
    assert_int_equal(atoi(lab_sql(&lab, "SELECT count(*) FROM kept")), 0);
    assert_int_equal(atoi(lab_sql(&lab, "SELECT min(seq) FROM receipt WHERE " GATEWAY)), 1);
    assert_holds(&lab);
    prune_ok(&lab, now_ms() - 3 * DAY_MS, false, &told);
    assert_in_range(told.gone_cnt, 1, 10);
    assert_true(told.rows_cnt >= 10);
    assert_true(atoi(lab_sql(&lab, "SELECT min(seq) FROM receipt WHERE " GATEWAY)) > 8);
    assert_int_equal(atoi(lab_sql(&lab, "SELECT count(*) FROM kept WHERE kind = 'epoch'")), 1);
    assert_int_equal(atoi(lab_sql(&lab, "SELECT count(*) FROM kept WHERE kind = 'policy'")), 1);
    say_all(&lab, &after);
    assert_string_equal(before.text, after.text);
    assert_holds(&lab);
    assert_int_equal(lab.report.pruned_cnt, told.rows_cnt);
    prune_ok(&lab, now_ms() - 3 * DAY_MS, false, &told);
    assert_int_equal(told.gone_cnt, 0);
    assert_true(told.text[0] != '\0');
    assert_holds(&lab);
    /* And the store goes on. */
    lab.store = cases_open(lab.url, "gateway", NULL);
    lab.chain.store = lab.store;
    traffic(&lab, "more", 20, now_ms());
    roll_up(&lab);
    assert_holds(&lab);
    lab_drop(&lab);
}

static void refused(struct lab *lab, uint64_t before_ms, const char *words)
{
    struct told told;

    prune_ok(lab, before_ms, false, &told);
    assert_int_equal(told.gone_cnt, 0);
    if (strstr(told.text, words) == NULL) {
        fail_msg("not told of '%s': %s", words, told.text);
    }
    assert_int_equal(atoi(lab_sql(lab, "SELECT count(*) FROM prune")), 0);
}

static void what_stands_in_the_way_is_told(void **state)
{
    struct lab lab;
    struct told told;
    struct hf_store_error error = {""};

    (void)state;
    old_store(&lab, true, false);
    refused(&lab, now_ms() - 3 * DAY_MS, "no rollup covers");
    lab_drop(&lab);
    old_store(&lab, true, true);
    refused(&lab, CASES_NOW_MS - 1000, "--before");
    assert_int_equal(prune(&lab, now_ms() + DAY_MS, false, &told, &error), HF_STORE_INVALID);
    lab_drop(&lab);
    old_store(&lab, false, true);
    prune_ok(&lab, now_ms() - 3 * DAY_MS, false, &told);
    assert_non_null(strstr(told.text, "is open"));
    assert_true(atoi(lab_sql(&lab, "SELECT min(seq) FROM receipt WHERE " GATEWAY " AND id = 'e'")) == 10);
    assert_holds(&lab);
    lab_drop(&lab);
}

/* ---- attacks ------------------------------------------------------------------------------------------------------ */

static void found_after(const char *sql)
{
    struct lab lab;
    struct told told;

    old_store(&lab, true, true);
    prune_ok(&lab, now_ms() - 3 * DAY_MS, false, &told);
    assert_in_range(told.gone_cnt, 1, 10);
    (void)lab_sql(&lab, "%s", sql);
    lab_look(&lab, NULL, 0);
    if (lab.findings_cnt == 0) {
        fail_msg("not found: %s", sql);
    }
    lab_drop(&lab);
}

static void attacks_are_found_on_both_sides_of_the_cut(void **state)
{
    static const char *const attacks[] = {
        "DELETE FROM prune WHERE " GATEWAY,
        "UPDATE prune SET next_seq = next_seq + 4 WHERE " GATEWAY,
        "UPDATE prune SET made_ms = made_ms + 1 WHERE " GATEWAY,
        "UPDATE prune SET rollup_number = 7 WHERE " GATEWAY,
        "DELETE FROM kept WHERE kind = 'policy'",
        "UPDATE kept SET made_ms = made_ms + 1 WHERE kind = 'epoch'",
        "DELETE FROM receipt WHERE " GATEWAY " AND seq = (SELECT max(seq) FROM receipt)",
        "UPDATE receipt SET charged_cost_micros = 0 WHERE " GATEWAY
        " AND seq = (SELECT max(seq) FROM receipt)",
        "DELETE FROM batch WHERE number = 2",
        "UPDATE batch SET digest = before WHERE number = 2",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
        found_after(attacks[i]);
    }
}

static void receipts_that_go_without_a_record_are_missed(void **state)
{
    struct lab lab;
    struct told told;
    struct hf_store_error error = {""};

    (void)state;
    old_store(&lab, true, true);
    (void)lab_sql(&lab, "DELETE FROM receipt WHERE " GATEWAY " AND seq = 6");
    assert_int_equal(prune(&lab, now_ms() - 3 * DAY_MS, false, &told, &error), HF_STORE_REFUSED);
    assert_non_null(strstr(error.text, "missing"));
    lab_drop(&lab);
}

static void the_runtime_cannot_prune(void **state)
{
    const struct hf_prune_options options = {.before_ms = 1, .made_by = "test", .step = take_step};
    struct lab lab;
    struct hf_store_error error = {""};
    struct hf_store *store;
    char why[512];

    (void)state;
    if (!postgres) {
        return; /* who may write the file owns it */
    }
    lab_new(&lab, true);
    store = cases_open(lab.url, NULL, NULL);
    assert_int_equal(hf_prune(store, &options, &error), HF_STORE_REFUSED);
    assert_non_null(strstr(error.text, "only the owner"));
    hf_store_close(store);
    assert_false(lab_try(&lab, "SET ROLE holdfast_runtime; DROP TABLE receipt_p1", why, sizeof(why)));
    assert_false(
        lab_try(&lab, "SET ROLE holdfast_runtime; INSERT INTO prune SELECT * FROM prune", why, sizeof(why)));
    assert_false(
        lab_try(&lab, "SET ROLE holdfast_runtime; INSERT INTO kept SELECT * FROM kept", why, sizeof(why)));
    assert_false(lab_try(&lab, "SET ROLE holdfast_runtime; DELETE FROM receipt_p1", why, sizeof(why)));
    lab_drop(&lab);
}

static int end(void **state)
{
    (void)state;
    lab_clean();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_may_go_goes_and_nothing_else_changes),
        cmocka_unit_test(what_stands_in_the_way_is_told),
        cmocka_unit_test(receipts_that_go_without_a_record_are_missed),
        cmocka_unit_test(attacks_are_found_on_both_sides_of_the_cut),
        cmocka_unit_test(the_runtime_cannot_prune),
    };
    int failed = 0;

    for (int i = 0; i < 2; i++) {
        postgres = i == 1;
        if (!lab_available(postgres)) {
            print_message("HOLDFAST_TEST_PG is not set: not tried on PostgreSQL\n");
            continue;
        }
        print_message("on %s\n", postgres ? "PostgreSQL" : "SQLite");
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    (void)end(NULL);
    return failed;
}
