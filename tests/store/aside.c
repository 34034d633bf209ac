/* Rows that a store does not take as they are, in both stores: nothing of them holds up their batch. They go to the table of
 * conflicts with the reason, their amounts count, an alarm rises, the rest commits. And a second reservation under an id that the
 * store has, beyond the segment's memory. */
#include "tests/store/rig.h"
#include "tests/support/quota.h"
#include "tests/support/store_cases.h"

#include "shm/clock.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>
#include <cmocka.h>

#define ROWS 1000U

static struct {
    struct rig rig;
    char url[512];
    bool postgres;
    uint64_t aside;
    uint64_t conflicts;
} t;

static int open_sqlite(void **state)
{
    (void)state;
    t.postgres = false;
    rig_prepare(&t.rig, NULL, NULL);
    rig_open(&t.rig);
    return 0;
}

static int open_postgres(void **state)
{
    const char *server = getenv("HOLDFAST_TEST_PG");

    (void)state;
    t.postgres = server != NULL && server[0] != '\0';
    if (t.postgres) {
        rig_database(t.url, sizeof(t.url));
        rig_prepare(&t.rig, t.url, NULL);
        rig_open(&t.rig);
    }
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    if (t.rig.daemon.serve != NULL) {
        rig_close(&t.rig);
    }
    return 0;
}

static void need(bool postgres)
{
    if (postgres && !t.postgres) {
        skip();
    }
}

/* As a person with a shell would, past the library. */
static void run_sql(const char *sql)
{
    char text[1024];
    char *why = NULL;
    sqlite3 *db = NULL;

    if (t.postgres) {
        (void)snprintf(text, sizeof(text), "SET search_path = holdfast, public; %s", sql);
        assert_true(rig_psql(t.url, text));
        return;
    }
    assert_int_equal(sqlite3_open(t.rig.daemon.store_url + strlen("sqlite:"), &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK) {
        fail_msg("%s: %s", sql, why);
    }
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* ---- labels (field report G1) --------------------------------------------------------------------------------------- */

static int count_aside(void *ctx, const struct hf_receipt *row)
{
    *(uint64_t *)ctx += row->fate == HF_FATE_ASIDE;
    return hf_name_valid(row->id.bytes, row->id.len) ? 0 : 1;
}

/* 1,000 rows; one id with a NUL, one that is no UTF-8, one that is longer than its column. */
static void labels_that_no_store_takes(bool postgres)
{
    struct hf_receipt *rows = calloc(ROWS, sizeof(*rows));
    struct hf_store_error error = {""};
    struct hf_store *store = NULL;
    struct hf_store_totals totals;
    struct hf_store_batch batch = {.number = 1, .epoch = 1, .first_seq = 1, .committed_ms = CASES_NOW_MS};
    struct hf_store_report report;
    uint64_t aside = 0;

    need(postgres);
    assert_non_null(rows);
    for (uint32_t i = 0; i < ROWS; i++) {
        char id[16];

        (void)snprintf(id, sizeof(id), "i%u", i);
        cases_reservation(&rows[i], id);
        rows[i].epoch = 1;
        rows[i].seq = i + 1;
    }
    rows[500].id = (struct hf_name){3, "a\0b"};
    rows[501].id = (struct hf_name){2, "\xc3\x28"};
    memset(rows[502].id.bytes, 'x', sizeof(rows[502].id.bytes));
    rows[502].id.len = sizeof(rows[502].id.bytes);
    assert_int_equal(hf_store_open(t.postgres ? t.url : t.rig.daemon.store_url, NULL, &store, &error),
                     HF_STORE_OK);
    assert_int_equal(hf_store_lock(store, "labels", &error), HF_STORE_OK);
    if (hf_store_commit(store, &batch, rows, ROWS, &report, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(report.aside_cnt, 3);
    assert_int_equal(hf_store_totals(store, "labels", &totals, &error), HF_STORE_OK);
    assert_int_equal(totals.receipts_cnt, ROWS);
    assert_int_equal(totals.aside_cnt, 3);
    assert_int_equal(totals.conflicts_cnt, 0);
    assert_true(totals.held[HF_DIM_COST] == (__int128)ROWS * 6200);
    assert_int_equal(hf_store_rows(store, "labels", 1, ROWS, count_aside, &aside, &error), HF_STORE_OK);
    assert_int_equal(aside, 3);
    assert_string_equal(rows[500].id.bytes, "a\\x00b");
    assert_string_equal(rows[501].id.bytes, "\\xc3(");
    assert_non_null(strstr(rows[502].id.bytes, "xxx..."));
    /* Sent again, as after a lost answer, it is the same batch. */
    assert_int_equal(hf_store_commit(store, &batch, rows, ROWS, &report, &error), HF_STORE_OK);
    assert_true(report.already);
    t.aside += 3;
    hf_store_close(store);
    free(rows);
}

static void labels_in_sqlite(void **state)
{
    (void)state;
    labels_that_no_store_takes(false);
}

static void labels_in_postgres(void **state)
{
    (void)state;
    labels_that_no_store_takes(true);
}

/* ---- rows that are refused, and rows that differ -------------------------------------------------------------------- */

/* Somebody's row stands under the number of one of ours, with another amount: both are kept, ours aside. */
static void a_row_that_differs(bool postgres)
{
    char sql[512];

    need(postgres);
    rig_step(&t.rig);
    (void)rig_drain(&t.rig, 10);
    uint64_t taken = rig_rows(&t.rig) + 2;

    (void)snprintf(sql, sizeof(sql),
                   "CREATE TEMP TABLE x AS SELECT * FROM receipt WHERE kind = 'epoch' AND seq = 1; "
                   "UPDATE x SET seq = %" PRIu64 "; INSERT INTO receipt SELECT * FROM x",
                   taken);
    run_sql(sql);
    rig_step(&t.rig);
    (void)rig_drain(&t.rig, 10);
    struct hf_store_totals totals = hf_test_daemon_totals(&t.rig.daemon);

    assert_int_equal(totals.aside_cnt, 1);
    assert_int_equal(totals.batch_rows_cnt, rig_rows(&t.rig));
    assert_int_equal(totals.receipts_cnt, rig_rows(&t.rig) + 1); /* and that foreign one */
    assert_true(totals.held[HF_DIM_COST] == t.rig.sums.held[2]);
    assert_true(totals.charged[HF_DIM_COST] == t.rig.sums.charged[2]);
    assert_int_equal(rig_alarm(&t.rig, HF_ALARM_STORE_CONFLICT), 1);
    assert_non_null(strstr(t.rig.daemon.log, "the store refused receipt"));
    t.aside++;
    /* What follows is committed as ever. */
    rig_step(&t.rig);
    assert_int_equal(rig_drain(&t.rig, 10), 0);
    assert_int_equal(hf_test_daemon_totals(&t.rig.daemon).aside_cnt, 1);
}

static void a_row_that_differs_in_sqlite(void **state)
{
    (void)state;
    a_row_that_differs(false);
}

static void a_row_that_differs_in_postgres(void **state)
{
    (void)state;
    a_row_that_differs(true);
}

/* A batch of nothing but rows that are refused finishes too, and closings find their reservations there. */
static void nothing_but_refused_rows(bool postgres)
{
    need(postgres);
    run_sql(postgres ? "ALTER TABLE receipt ADD CONSTRAINT none CHECK (id NOT LIKE 'r%')"
                     : "CREATE TRIGGER none BEFORE INSERT ON receipt WHEN NEW.id LIKE 'r%' "
                       "BEGIN SELECT RAISE(ABORT, 'not here'); END");
    if (!postgres) {
        hf_store_disconnect(hf_serve_store(t.rig.daemon.serve));
    }
    for (int i = 0; i < 4; i++) {
        rig_step(&t.rig);
        assert_int_equal(rig_drain(&t.rig, 10), 0);
    }
    rig_check(&t.rig);
    assert_int_equal(hf_test_daemon_totals(&t.rig.daemon).aside_cnt, rig_rows(&t.rig) - 2);
    assert_int_equal(rig_alarm(&t.rig, HF_ALARM_STORE_CONFLICT), rig_rows(&t.rig) - 2);
    assert_int_equal(rig_alarm(&t.rig, HF_ALARM_STORE_RETRY), 0);
    t.aside += rig_rows(&t.rig) - 2;
}

static void refused_rows_in_postgres(void **state)
{
    (void)state;
    nothing_but_refused_rows(true);
}

/* ---- a second reservation under an id ------------------------------------------------------------------------------- */

static void a_second_one_under_an_id(bool postgres)
{
    struct holdfast_request request;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    struct holdfast_meter meter;
    struct hf_receipt rows[8];

    need(postgres);
    holdfast_request_init(&request);
    request.id = "again";
    request.tenant = "t";
    request.team = "u";
    request.capability = "c";
    request.tokens = 10;
    request.cost_micros = 100;
    assert_int_equal(holdfast_reserve(t.rig.daemon.handle, &request, &answer), HOLDFAST_OK);
    assert_int_equal(hf_test_settle(t.rig.daemon.handle, "again", 1, 1, 60, &closing), HOLDFAST_OK);
    (void)rig_drain(&t.rig, 10);
    (void)hf_clock_inject(t.rig.daemon.seg, hf_clock_now_ms(t.rig.daemon.seg) + 61000);
    (void)rig_drain(&t.rig, 10);
    /* Other amounts: were it still known, this would be id-conflict. */
    request.cost_micros = 40;
    assert_int_equal(holdfast_reserve(t.rig.daemon.handle, &request, &answer), HOLDFAST_OK);
    assert_int_equal(answer.replayed, 0);
    (void)rig_drain(&t.rig, 10);
    assert_int_equal(rig_alarm(&t.rig, HF_ALARM_CONFLICT), 1);
    assert_int_equal(hf_test_settle(t.rig.daemon.handle, "again", 1, 1, 30, &closing), HOLDFAST_OK);
    (void)rig_drain(&t.rig, 10);
    assert_int_equal(hf_test_daemon_receipts(&t.rig.daemon, "again", rows, 8), 4);
    assert_int_equal(rows[0].hold_cost_micros, 100); /* the first is what it was */
    assert_false(rows[0].conflict);
    assert_false(rows[1].conflict);
    assert_true(rows[2].conflict);
    assert_true(rows[3].conflict);
    assert_int_equal(rows[3].reservation_seq, rows[2].seq);
    struct holdfast_limit limit =
        hf_test_daemon_limit(&t.rig.daemon, "t", "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS);

    assert_int_equal(limit.settled, 90); /* its hold and charge count */
    assert_true(hf_test_daemon_meter(&t.rig.daemon, "t", "c", "", &meter));
    assert_int_equal(meter.requests, 1); /* in no meter */
    assert_int_equal(meter.settled_micros, 60);
    t.conflicts++;
}

static void a_second_one_in_sqlite(void **state)
{
    (void)state;
    a_second_one_under_an_id(false);
}

static void a_second_one_in_postgres(void **state)
{
    (void)state;
    a_second_one_under_an_id(true);
}

static int tell(void **state)
{
    (void)state;
    print_message("totals: %" PRIu64 " rows put aside, %" PRIu64 " second reservations, no batch held up\n",
                  t.aside, t.conflicts);
    return 0;
}

int main(void)
{
#define LITE(name) cmocka_unit_test_setup_teardown(name, open_sqlite, close_rig)
#define PG(name)   cmocka_unit_test_setup_teardown(name, open_postgres, close_rig)
    const struct CMUnitTest tests[] = {
        LITE(labels_in_sqlite),
        PG(labels_in_postgres),
        LITE(a_row_that_differs_in_sqlite),
        PG(a_row_that_differs_in_postgres),
        PG(refused_rows_in_postgres),
        LITE(a_second_one_in_sqlite),
        PG(a_second_one_in_postgres),
    };
#undef LITE
#undef PG
    cmocka_set_test_filter(getenv("HOLDFAST_CASE"));
    return cmocka_run_group_tests(tests, NULL, tell);
}
