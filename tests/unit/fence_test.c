/* ctest: labels=postgres timeout=120 */
/* The fence in PostgreSQL: an id gets into a partition but once, by its index; what the index cannot see is asked for beforehand. How
 * often a commit came to its rows tells whether it was optimistic: twice when it ran into an id. */
#include "persist/digest.h"
#include "persist/store_impl.h"
#include "tests/support/verify_lab.h"

#include <inttypes.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CAREFUL 16 /* batches after one that was optimistic in vain */

static struct {
    struct lab lab;
    unsigned rows_cnt; /* attempts of the last commit that came to its rows */
    /* Cut the connection at that point, when it has been passed so often. */
    const char *cut_point;
    unsigned cut_after;
    unsigned passed;
} t;

static void at_point(void *ctx, const char *point, int fd)
{
    (void)ctx;
    t.rows_cnt += strcmp(point, "rows") == 0;
    if (t.cut_point != NULL && strcmp(point, t.cut_point) == 0 && t.passed++ == t.cut_after) {
        t.cut_point = NULL;
        (void)shutdown(fd, SHUT_RDWR);
    }
}

/* The lab's store: 13 receipts, a to f reserved; opened again with our points. */
static void open_again(void)
{
    const struct hf_store_options options = {.fault = at_point};
    struct hf_store_head head;

    if (t.lab.store != NULL) {
        hf_store_close(t.lab.store);
    }
    t.lab.store = cases_open(t.lab.url, "gateway", &options);
    t.lab.chain.store = t.lab.store;
    assert_int_equal(hf_store_head(t.lab.store, "gateway", &head, NULL), HF_STORE_OK);
    assert_memory_equal(head.last.digest, t.lab.chain.batch.digest, HF_DIGEST_BYTES);
}

static int set_up(void **state)
{
    (void)state;
    memset(&t, 0, sizeof(t));
    lab_new(&t.lab, true);
    open_again();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lab_drop(&t.lab);
    return 0;
}

static int64_t number(const char *sql)
{
    return strtoll(lab_sql(&t.lab, "%s", sql), NULL, 10);
}

/* Commits and says how many attempts came to their rows. */
static unsigned commit(struct hf_receipt *rows, size_t cnt)
{
    t.rows_cnt = 0;
    if (cases_chain_commit(&t.lab.chain, rows, cnt) != HF_STORE_OK) {
        fail_msg("%s", t.lab.chain.error.text);
    }
    return t.rows_cnt;
}

/* Reserves one id; true: it is a conflict. */
static bool reserve(const char *id, unsigned attempts)
{
    struct hf_receipt row;

    cases_reservation(&row, id);
    assert_int_equal(commit(&row, 1), attempts);
    assert_int_equal(row.conflict, t.lab.chain.report.conflicts_cnt);
    assert_int_equal(row.fate, row.conflict ? HF_FATE_CONFLICT : HF_FATE_STORED);
    return row.conflict;
}

static void assert_sound(void)
{
    lab_look(&t.lab, NULL, 0);
    if (t.lab.findings_cnt != 0) {
        fail_msg("%s", lab_told(&t.lab));
    }
}

/* Partitions of 8: receipts 1 to 8 with a to d, 9 to 13 with e and f. */
static void small_partitions(void)
{
    (void)lab_sql(
        &t.lab,
        "CREATE OR REPLACE FUNCTION holdfast.partition_rows() RETURNS bigint LANGUAGE sql IMMUTABLE SET "
        "search_path = pg_catalog, pg_temp AS 'SELECT 8::bigint'; CREATE TABLE public.all_rows AS SELECT * "
        "FROM receipt; DROP TABLE receipt_p1; SELECT ensure_partition(1); SELECT ensure_partition(9); "
        "INSERT INTO receipt SELECT * FROM public.all_rows; DROP TABLE public.all_rows");
    open_again();
}

/* ---- in the partition ----------------------------------------------------------------------------------------------- */

static void an_id_that_is_there_is_run_into(void **state)
{
    struct hf_receipt rows[4];

    (void)state;
    assert_false(reserve("new", 1));
    cases_reservation(&rows[0], "newer");
    cases_reservation(&rows[1], "a");
    cases_settlement(&rows[2], "a"); /* of the second one: told by its id alone */
    cases_settlement(&rows[3], "newer");
    assert_int_equal(commit(rows, 4), 2);
    assert_int_equal(t.lab.chain.report.conflicts_cnt, 1);
    assert_int_equal(t.lab.chain.report.aside_cnt, 0);
    assert_int_equal(rows[0].fate, HF_FATE_STORED);
    assert_int_equal(rows[1].fate, HF_FATE_CONFLICT);
    assert_true(rows[1].conflict);
    assert_true(rows[2].conflict);
    assert_int_equal(rows[2].reservation_seq, rows[1].seq);
    assert_memory_equal(rows[2].reservation_digest, rows[1].digest, HF_DIGEST_BYTES);
    assert_false(rows[3].conflict);
    assert_sound(); /* digests are those of the rows as they became */
    assert_int_equal(number("SELECT count(*) FROM receipt WHERE id = 'a' AND kind = 'reservation'"), 2);
    assert_int_equal(number("SELECT count(*) FROM receipt WHERE id = 'a' AND conflict"), 2);
}

static void an_id_twice_in_a_batch_is_seen_at_once(void **state)
{
    struct hf_receipt rows[3];

    (void)state;
    cases_reservation(&rows[0], "twice");
    cases_reservation(&rows[1], "twice");
    cases_settlement(&rows[2], "twice");
    assert_int_equal(commit(rows, 3), 1);
    assert_false(rows[0].conflict);
    assert_true(rows[1].conflict);
    assert_int_equal(rows[2].reservation_seq, rows[1].seq);
    assert_true(reserve("twice", 2)); /* the first is in the partition: the index sees the third */
    assert_sound();
}

/* What is put aside runs into no index, so its id is asked for. */
static void an_id_again_in_a_row_put_aside(void **state)
{
    struct hf_receipt row;

    (void)state;
    cases_reservation(&row, "a");
    row.ref.len = 2;
    memcpy(row.ref.bytes, "r\001", 2);
    assert_int_equal(commit(&row, 1), 1);
    assert_int_equal(row.fate, HF_FATE_ASIDE);
    assert_true(row.conflict);
    assert_sound();
}

/* An id of another segment is another one, for the index and when it is asked for. */
static void segments_have_ids_of_their_own(void **state)
{
    (void)state;
    assert_int_equal(number("SELECT count(*) FROM receipt WHERE id = 'elsewhere' AND kind = 'reservation'"),
                     1);
    assert_false(reserve("elsewhere", 1));
    assert_true(reserve("elsewhere", 2));
    (void)lab_sql(&t.lab, "UPDATE receipt SET id = 'hidden' WHERE id = 'elsewhere' AND segment_id = "
                          "(SELECT segment_id FROM segment WHERE name = 'gateway')");
    assert_false(reserve("elsewhere", 1)); /* asked for: still careful */
}

/* What the attempt that was in vain had counted counts once. */
static void the_second_attempt_counts_anew(void **state)
{
    struct hf_receipt rows[4];

    (void)state;
    cases_reservation(&rows[0], "twice");
    cases_reservation(&rows[1], "twice");
    cases_settlement(&rows[2], "nobody");
    cases_reservation(&rows[3], "a");
    assert_int_equal(commit(rows, 4), 2);
    assert_int_equal(t.lab.chain.report.conflicts_cnt, 2);
    assert_int_equal(t.lab.chain.report.orphans_cnt, 1);
    assert_false(rows[0].conflict);
    assert_true(rows[1].conflict);
    assert_true(rows[3].conflict);
    assert_sound();
}

/* Ids that come again rarely come alone: the next batches ask for all of theirs beforehand, then none does. */
static void after_one_in_vain_the_next_are_careful(void **state)
{
    (void)state;
    assert_true(reserve("a", 2));
    for (unsigned i = 0; i < CAREFUL; i++) {
        assert_true(reserve(i % 2 == 0 ? "b" : "a", 1));
    }
    assert_true(reserve("c", 2));
    assert_sound();
}

static void after_a_reconnect_too(void **state)
{
    (void)state;
    assert_false(reserve("new", 1));
    hf_store_disconnect(t.lab.store);
    assert_true(reserve("new", 2));
    open_again();
    assert_true(reserve("new", 2)); /* conflicts whose first is there do not make it careful */
    open_again();
    assert_false(reserve("newer", 1));
    assert_sound();
}

static void a_closing_by_id_alone_is_looked_up(void **state)
{
    struct hf_receipt rows[3];

    (void)state;
    cases_settlement(&rows[0], "e");
    cases_settlement(&rows[1], "nobody");
    cases_reservation(&rows[2], "e"); /* its id is looked up for the closing's sake */
    assert_int_equal(commit(rows, 3), 1);
    assert_int_equal(rows[0].reservation_seq, 10);
    assert_true(rows[1].reservation_seq == HF_UNKNOWN);
    assert_int_equal(t.lab.chain.report.orphans_cnt, 1);
    assert_true(rows[2].conflict);
    assert_int_equal(number("SELECT count(*) FROM receipt r JOIN receipt c ON c.reservation_seq = r.seq "
                            "AND c.reservation_digest = r.digest WHERE c.seq = 14 AND r.id = 'e'"),
                     1);
}

/* Without the index, or when it is not unique, all ids are asked for. */
static void without_the_index_all_ids_are_asked_for(void **state)
{
    (void)state;
    (void)lab_sql(&t.lab, "DROP INDEX receipt_p1_once");
    open_again();
    assert_true(reserve("a", 1));
    assert_false(reserve("new", 1));
    (void)lab_sql(&t.lab, "CREATE INDEX receipt_p1_once ON receipt_p1 (segment_id, id, seq)");
    open_again();
    assert_true(reserve("new", 1));
}

/* ---- elsewhere ------------------------------------------------------------------------------------------------------ */

static void an_id_in_an_older_partition_is_asked_for(void **state)
{
    (void)state;
    small_partitions();
    assert_false(reserve("new", 1));
    assert_true(reserve("a", 1)); /* receipt 3 */
    assert_true(reserve("e", 1)); /* 10, but a stray conflict makes it careful */
    assert_sound();
    for (unsigned i = 0; i < 4; i++) {
        char id[16];

        (void)snprintf(id, sizeof(id), "more-%u", i);
        assert_false(reserve(id, 1)); /* 17 and on, in the next partition */
    }
    assert_true(reserve("new", 1)); /* 14 */
    assert_int_equal(number("SELECT count(*) FROM receipt_p17 WHERE conflict"), 1);
    assert_sound();
}

/* One batch in two partitions: ids of both, and of what is in the first already. */
static void a_batch_in_two_partitions(void **state)
{
    struct hf_receipt rows[8];

    (void)state;
    small_partitions();
    for (unsigned i = 0; i < 8; i++) { /* 14 to 21 */
        static const char *const ids[] = {"n1", "n2", "n3", "n4", "f", "n1", "b", "n5"};

        cases_reservation(&rows[i], ids[i]);
    }
    assert_int_equal(commit(rows, 8), 1);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(rows[i].conflict, i == 4 || i == 5 || i == 6);
    }
    assert_int_equal(number("SELECT count(*) FROM receipt_p17"), 5);
    assert_sound();
}

/* A conflict stays when the partition of the first one is dropped: it is the store's reservation under that id. */
static void a_conflict_whose_first_is_gone(bool reconnected)
{
    small_partitions();
    assert_false(reserve("new", 1));
    assert_true(reserve("a", 1));
    assert_false(number("SELECT count(*) FROM receipt_p9 WHERE id = 'a' AND NOT conflict") > 0);
    (void)lab_sql(&t.lab, "DROP TABLE receipt_p1");
    if (reconnected) {
        open_again();
    }
    assert_true(reserve("a", 1));
    assert_false(reserve("b", 1)); /* gone with the partition: a new one */
}

static void a_conflict_whose_first_is_gone_is_known(void **state)
{
    (void)state;
    a_conflict_whose_first_is_gone(false);
}

static void a_conflict_whose_first_is_gone_is_known_again(void **state)
{
    (void)state;
    a_conflict_whose_first_is_gone(true);
}

static void an_id_that_was_put_aside_is_asked_for(void **state)
{
    struct hf_receipt row;

    (void)state;
    (void)lab_sql(&t.lab, "ALTER TABLE receipt ADD CONSTRAINT refuse CHECK (id <> 'refused')");
    cases_reservation(&row, "refused");
    assert_int_equal(commit(&row, 1), 2);
    assert_int_equal(row.fate, HF_FATE_ASIDE);
    (void)lab_sql(&t.lab, "ALTER TABLE receipt DROP CONSTRAINT refuse");
    open_again();
    assert_true(reserve("refused", 1));
    assert_sound();
}

/* ---- two faults at once --------------------------------------------------------------------------------------------- */

/* A refused row and an id that is there, in either order: the one aside, the other a conflict. */
static void a_refused_row_and_a_conflict(size_t refused, size_t again)
{
    struct hf_receipt rows[9];

    (void)lab_sql(&t.lab, "ALTER TABLE receipt ADD CONSTRAINT refuse CHECK (id <> 'refused')");
    for (size_t i = 0; i < 9; i++) {
        char id[16];

        (void)snprintf(id, sizeof(id), "new-%zu", i);
        cases_reservation(&rows[i], i == refused ? "refused" : i == again ? "a" : id);
    }
    assert_int_equal(commit(rows, 9), 2);
    assert_int_equal(t.lab.chain.report.conflicts_cnt, 1);
    assert_int_equal(t.lab.chain.report.aside_cnt, 1);
    for (size_t i = 0; i < 9; i++) {
        assert_int_equal(rows[i].fate, i == refused ? HF_FATE_ASIDE
                                       : i == again ? HF_FATE_CONFLICT
                                                    : HF_FATE_STORED);
    }
    assert_int_equal(number("SELECT count(*) FROM receipt"), 1 + 13 + 8);
    assert_int_equal(number("SELECT count(*) FROM conflict"), 1);
    (void)lab_sql(&t.lab, "ALTER TABLE receipt DROP CONSTRAINT refuse");
    assert_sound();
}

static void a_refused_row_before_a_conflict(void **state)
{
    (void)state;
    a_refused_row_and_a_conflict(2, 7);
}

static void a_refused_row_after_a_conflict(void **state)
{
    (void)state;
    a_refused_row_and_a_conflict(7, 2);
}

/* The connection breaks in the first attempt, between the two, in the second, or with its answer. */
static void a_connection_lost_in_either_attempt(void **state)
{
    static const struct {
        const char *point;
        unsigned after;
    } cuts[] = {{"rows", 0}, {"begin", 1}, {"rows", 1}, {"before-commit", 0}, {"commit-sent", 0}};
    int64_t conflicts = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        struct hf_receipt rows[2];
        char id[16];
        enum hf_store_status status;

        open_again(); /* optimistic again */
        (void)snprintf(id, sizeof(id), "cut-%zu", i);
        cases_reservation(&rows[0], id);
        cases_reservation(&rows[1], "a");
        t.cut_point = cuts[i].point;
        t.cut_after = cuts[i].after;
        t.passed = t.rows_cnt = 0;
        status = cases_chain_commit(&t.lab.chain, rows, 2);
        if (cuts[i].after == 0 && i < 3) {
            assert_int_equal(t.rows_cnt, 1);
        } else {
            assert_int_equal(t.rows_cnt, i == 1 ? 1 : 2);
        }
        if (status != HF_STORE_OK) { /* the one before "begin" may be noticed when connecting, and mended */
            assert_true(status == HF_STORE_RETRY || status == HF_STORE_UNKNOWN);
            if (status == HF_STORE_RETRY) {
                assert_false(rows[1].conflict); /* as it was given */
                assert_int_equal(rows[1].fate, HF_FATE_NONE);
            }
            assert_int_equal(cases_chain_commit(&t.lab.chain, rows, 2), HF_STORE_OK);
        }
        assert_null(t.cut_point);
        assert_int_equal(rows[0].fate, HF_FATE_STORED);
        assert_int_equal(rows[1].fate, HF_FATE_CONFLICT);
        assert_int_equal(
            number("SELECT count(*) FROM receipt WHERE id = 'a' AND kind = 'reservation' AND conflict"),
            ++conflicts);
        assert_sound();
    }
}

/* ---- stores of before ----------------------------------------------------------------------------------------------- */

/* Makes the schema of version 3 anew around the rows that there are. */
static void back_to_version_3(void)
{
    struct hf_digest *digest = hf_digest_new();
    char why[512];

    hf_store_close(t.lab.store);
    t.lab.store = NULL;
    if (!lab_try(
            &t.lab,
            "CREATE TABLE public.r AS SELECT * FROM holdfast.receipt; "
            "CREATE TABLE public.b AS SELECT * FROM holdfast.batch; "
            "CREATE TABLE public.s AS SELECT * FROM holdfast.segment; SET client_min_messages = warning; DROP SCHEMA holdfast CASCADE",
            why, sizeof(why))) {
        fail_msg("%s", why);
    }
    for (const struct hf_schema_file *file = hf_schema_files; file->name != NULL; file++) {
        uint8_t sum[HF_DIGEST_BYTES];
        char hex[2 * HF_DIGEST_BYTES + 1];
        char sql[512];

        if (strstr(file->name, ".postgres.sql") == NULL || strtol(file->name, NULL, 10) > 3) {
            continue;
        }
        assert_true(hf_digest_bytes(digest, file->text, file->len, sum));
        hf_digest_hex(sum, hex);
        (void)snprintf(sql, sizeof(sql), "INSERT INTO holdfast.migration VALUES (%ld, '%s', '%s', 0)",
                       strtol(file->name, NULL, 10), file->name, hex);
        if (!lab_try(&t.lab, file->text, why, sizeof(why)) || !lab_try(&t.lab, sql, why, sizeof(why))) {
            fail_msg("%s: %s", file->name, why);
        }
    }
    if (!lab_try(
            &t.lab,
            "INSERT INTO holdfast.segment OVERRIDING SYSTEM VALUE SELECT * FROM public.s; "
            "INSERT INTO holdfast.batch SELECT * FROM public.b; "
            "INSERT INTO holdfast.receipt SELECT * FROM public.r; DROP TABLE public.r, public.b, public.s",
            why, sizeof(why))) {
        fail_msg("%s", why);
    }
    hf_digest_free(digest);
}

static void init_again(void)
{
    struct hf_store *store = NULL;
    struct hf_store_error error = {""};

    assert_int_equal(hf_store_open(t.lab.url, NULL, &store, &error), HF_STORE_SCHEMA);
    assert_non_null(strstr(error.text, "004_ids_once.postgres.sql"));
    if (hf_store_init(t.lab.url, NULL, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
    open_again();
}

#define INDEXES \
    "SELECT string_agg(indexdef, E'\\n' ORDER BY indexname) FROM pg_indexes WHERE schemaname = 'holdfast'"

/* Init brings an older store to what a new one is, and it goes on. */
static void a_store_of_the_version_before(void **state)
{
    struct hf_receipt rows[2];
    char *fresh = strdup(lab_sql(&t.lab, INDEXES));

    (void)state;
    cases_reservation(&rows[0], "g");
    cases_reservation(&rows[1], "g");
    assert_int_equal(commit(rows, 2), 1); /* with a conflict among its rows */
    back_to_version_3();
    assert_string_not_equal(lab_sql(&t.lab, INDEXES), fresh);
    init_again();
    assert_string_equal(lab_sql(&t.lab, INDEXES), fresh);
    assert_sound();
    assert_false(reserve("new", 1));
    assert_true(reserve("g", 2));
    assert_true(reserve("a", 1)); /* careful now */
    assert_sound();
    free(fresh);
}

/* Init beside a daemon of before, which has looked ids up and goes on to its rows: one waits for the other, and neither fails. */
static void init_beside_a_batch_of_before(void **state)
{
    struct hf_store_error error = {""};
    char why[512];
    int status = 0;

    (void)state;
    back_to_version_3();
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        /* One transaction, which goes on when init waits for it. */
        _exit(lab_try(&t.lab,
                      "SELECT count(*) FROM receipt; DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_locks "
                      "WHERE NOT granted) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$; "
                      "INSERT INTO receipt SELECT * FROM receipt WHERE false",
                      why, sizeof(why))
                  ? 0
                  : 1);
    }
    while (
        number("SELECT count(*) FROM pg_locks WHERE relation = 'holdfast.receipt'::regclass AND granted") ==
        0) {
        (void)poll(NULL, 0, 10);
    }
    assert_int_equal(hf_store_init(t.lab.url, NULL, &error), HF_STORE_OK);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    open_again();
    assert_true(reserve("a", 2));
}

/* Ids that came twice in a store of before, unmarked, are no reason to refuse it: it is asked as before. */
static void a_store_of_before_that_has_an_id_twice(void **state)
{
    (void)state;
    back_to_version_3();
    (void)lab_sql(&t.lab, "UPDATE receipt SET id = 'e' WHERE id = 'f'");
    init_again();
    assert_int_equal(number("SELECT count(*) FROM pg_class WHERE relname = 'receipt_p1_once'"), 0);
    assert_int_equal(number("SELECT count(*) FROM pg_class WHERE relname = 'receipt_p1_ids'"), 1);
    assert_true(reserve("e", 1));
    assert_true(reserve("a", 1));
    assert_false(reserve("new", 1));
}

/* The daemon's role makes the next partition, index and all, and may not call what makes the index. */
static void the_next_partition_has_its_index(void **state)
{
    char why[512];

    (void)state;
    small_partitions();
    for (unsigned i = 0; i < 6; i++) {
        char id[16];

        (void)snprintf(id, sizeof(id), "more-%u", i);
        assert_false(reserve(id, 1));
    }
    assert_int_equal(number("SELECT count(*) FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid "
                            "WHERE i.relname = 'receipt_p17_once' AND x.indisunique"),
                     1);
    assert_true(reserve("more-5", 2)); /* receipt 19 */
    assert_false(lab_try(&t.lab, "SET ROLE holdfast_runtime; SELECT holdfast.index_ids('receipt_p9')", why,
                         sizeof(why)));
    assert_non_null(strstr(why, "permission denied"));
    assert_sound();
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(an_id_that_is_there_is_run_into),
        CASE(an_id_twice_in_a_batch_is_seen_at_once),
        CASE(an_id_again_in_a_row_put_aside),
        CASE(segments_have_ids_of_their_own),
        CASE(the_second_attempt_counts_anew),
        CASE(after_one_in_vain_the_next_are_careful),
        CASE(after_a_reconnect_too),
        CASE(a_closing_by_id_alone_is_looked_up),
        CASE(without_the_index_all_ids_are_asked_for),
        CASE(an_id_in_an_older_partition_is_asked_for),
        CASE(a_batch_in_two_partitions),
        CASE(a_conflict_whose_first_is_gone_is_known),
        CASE(a_conflict_whose_first_is_gone_is_known_again),
        CASE(an_id_that_was_put_aside_is_asked_for),
        CASE(a_refused_row_before_a_conflict),
        CASE(a_refused_row_after_a_conflict),
        CASE(a_connection_lost_in_either_attempt),
        CASE(a_store_of_the_version_before),
        CASE(init_beside_a_batch_of_before),
        CASE(a_store_of_before_that_has_an_id_twice),
        CASE(the_next_partition_has_its_index),
    };
#undef CASE

    if (!lab_available(true)) {
        puts("skipped: HOLDFAST_TEST_PG is not set; run it below tests/support/postgres.sh");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
