/* ctest: labels=postgres timeout=300 */
/* Retention: what may go goes, what may not stays and is told why; nothing else that a store says changes. */
#include "shm/clock.h"
#include "tests/support/daemon.h"
#include "tests/support/prune_lab.h"
#include "tests/support/quota.h"

#include "persist/rollup.h"
#include "persist/store_impl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GATEWAY "segment_id = (SELECT segment_id FROM segment WHERE name = 'gateway')"

static bool postgres;

static void what_may_go_goes_and_nothing_else_changes(void **state)
{
    static struct prune_dump before;
    static struct prune_dump after;
    const struct prune_past past = {.summed = true};
    struct lab lab;
    struct told dry;
    struct told told;

    (void)state;
    prune_lab_new(&lab, postgres, &past);
    prune_lab_dump(&lab, &before);
    prune_lab_ok(&lab, PRUNE_BEFORE, true, &dry);
    assert_in_range(dry.gone_cnt, 3, 10);
    assert_int_equal(atoi(lab_sql(&lab, "SELECT count(*) FROM prune")), 0);
    assert_int_equal(atoi(lab_sql(&lab, "SELECT count(*) FROM kept")), 0);
    assert_int_equal(atoi(lab_sql(&lab, "SELECT min(seq) FROM receipt WHERE " GATEWAY)), 1);
    prune_lab_holds(&lab);
    prune_lab_ok(&lab, PRUNE_BEFORE, false, &told);
    assert_int_equal(told.gone_cnt, dry.gone_cnt);
    assert_int_equal(told.rows_cnt, dry.rows_cnt);
    assert_int_equal(told.kept_cnt, dry.kept_cnt);
    assert_string_equal(told.text, dry.text);
    assert_in_range(told.rows_cnt, 18, 31);
    assert_in_range(atoi(lab_sql(&lab, "SELECT min(seq) FROM receipt WHERE " GATEWAY)), 24, 32);
    assert_int_equal(
        atoi(lab_sql(&lab, "SELECT count(*) FROM kept WHERE kind IN ('epoch', 'policy', 'credit')")), 3);
    prune_lab_dump(&lab, &after);
    assert_string_equal(before.text, after.text);
    prune_lab_holds(&lab);
    assert_int_equal(lab.report.pruned_cnt, told.rows_cnt);
    prune_lab_ok(&lab, PRUNE_BEFORE, false, &told);
    assert_int_equal(told.gone_cnt, 0);
    assert_string_equal(told.text, dry.text);
    /* And the store goes on. */
    prune_lab_open(&lab);
    prune_lab_traffic(&lab, "more", 20, PRUNE_NOW_MS);
    prune_lab_roll_up(&lab);
    prune_lab_holds(&lab);
    lab_drop(&lab);
}

static void totals_miss_nothing(void **state)
{
    const struct prune_past past = {.summed = true};
    struct hf_store_totals totals;
    struct hf_store_error error = {""};
    struct lab lab;
    struct told told;

    (void)state;
    prune_lab_new(&lab, postgres, &past);
    prune_lab_ok(&lab, PRUNE_BEFORE, false, &told);
    prune_lab_open(&lab);
    assert_int_equal(hf_store_totals(lab.store, "gateway", &totals, &error), HF_STORE_OK);
    assert_int_equal(totals.batch_rows_cnt, 47);
    assert_int_equal(totals.receipts_cnt + totals.pruned_cnt, 47);
    assert_in_range(totals.pruned_cnt, 18, 31);
    lab_drop(&lab);
}

/* The statement of persist/README.md finds no batch after a prune, and one whose predecessor was changed. */
static void the_chain_in_sql_holds_across_the_cut(void **state)
{
    static char text[65536];
    const struct prune_past past = {.summed = true};
    FILE *readme;
    char *sql;
    struct lab lab;
    struct told told;

    (void)state;
    if (!postgres) {
        return; /* it is written for psql */
    }
    readme = fopen(HF_TEST_SOURCE "/persist/README.md", "re");
    assert_non_null(readme);
    text[fread(text, 1, sizeof(text) - 1, readme)] = '\0';
    (void)fclose(readme);
    sql = strstr(text, "<!-- sql: batches -->");
    assert_non_null(sql);
    sql = strstr(sql, "```sql\n") + strlen("```sql\n");
    *strstr(sql, "```") = '\0';
    prune_lab_new(&lab, postgres, &past);
    prune_lab_ok(&lab, PRUNE_BEFORE, false, &told);
    assert_true(told.gone_cnt > 0);
    assert_string_equal(lab_sql(&lab, "%s", sql), "");
    (void)lab_sql(&lab, "UPDATE batch SET before = digest WHERE number = 3");
    assert_string_not_equal(lab_sql(&lab, "%s", sql), "");
    lab_drop(&lab);
}

/* ---- what stands in the way --------------------------------------------------------------------------------------- */

static void refused(struct lab *lab, uint64_t before_ms, const char *words)
{
    struct told told;

    prune_lab_ok(lab, before_ms, false, &told);
    assert_int_equal(told.gone_cnt, 0);
    if (strstr(told.text, words) == NULL) {
        fail_msg("not told of '%s': %s", words, told.text);
    }
    assert_int_equal(atoi(lab_sql(lab, "SELECT count(*) FROM prune")), 0);
}

static void what_stands_in_the_way_is_told(void **state)
{
    const struct prune_past unsummed = {.summed = false};
    const struct prune_past summed = {.summed = true};
    const struct prune_past open = {.summed = true, .open = true};
    struct lab lab;
    struct told told;
    struct hf_store_error error = {""};

    (void)state;
    prune_lab_new(&lab, postgres, &unsummed);
    refused(&lab, PRUNE_BEFORE, "no rollup covers");
    lab_drop(&lab);
    prune_lab_new(&lab, postgres, &summed);
    refused(&lab, CASES_NOW_MS - 1000, "--before");
    assert_int_equal(prune_lab(&lab, PRUNE_NOW_MS + 1, false, NULL, &told, &error), HF_STORE_INVALID);
    lab_drop(&lab);
    prune_lab_new(&lab, postgres, &open);
    prune_lab_ok(&lab, PRUNE_BEFORE, false, &told);
    assert_non_null(strstr(told.text, "is open"));
    assert_int_equal(atoi(lab_sql(&lab, "SELECT min(seq) FROM receipt WHERE " GATEWAY " AND id = 'e'")), 10);
    prune_lab_holds(&lab);
    lab_drop(&lab);
}

static void an_instant_whose_receipts_are_gone_is_refused(void **state)
{
    static struct prune_dump dump;
    const struct prune_past past = {.summed = true};
    struct hf_store_error error = {""};
    struct lab lab;
    struct told told;

    (void)state;
    prune_lab_new(&lab, postgres, &past);
    prune_lab_ok(&lab, PRUNE_BEFORE, false, &told);
    prune_lab_open(&lab);
    assert_int_equal(hf_store_sums(lab.store, "gateway", CASES_NOW_MS + 5000, 1U, NULL, &dump, &error),
                     HF_STORE_REFUSED);
    assert_non_null(strstr(error.text, "pruned"));
    lab_drop(&lab);
}

/* ---- rights ------------------------------------------------------------------------------------------------------- */

static void the_runtime_cannot_prune(void **state)
{
    static const char *const tries[] = {"DROP TABLE receipt_p1", "INSERT INTO prune SELECT * FROM prune",
                                        "INSERT INTO kept SELECT * FROM kept", "DELETE FROM receipt_p1",
                                        "ALTER TABLE receipt DETACH PARTITION receipt_p1"};
    const struct hf_prune_options options = {.before_ms = 1, .made_by = "test"};
    struct lab lab;
    struct hf_store_error error = {""};
    struct hf_store *store;
    char sql[256];
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
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        (void)snprintf(sql, sizeof(sql), "SET ROLE holdfast_runtime; %s", tries[i]);
        assert_false(lab_try(&lab, sql, why, sizeof(why)));
    }
    lab_drop(&lab);
}

/* ---- a daemon, and the next segment -------------------------------------------------------------------------------- */

static void serve_and_prune(struct hf_test_daemon *daemon, struct told *told)
{
    struct lab lab = {.postgres = false};
    struct hf_store_error error = {""};
    struct hf_rollup made;

    (void)snprintf(lab.url, sizeof(lab.url), "%s", daemon->store_url);
    hf_test_daemon_drain(daemon);
    assert_int_equal(hf_rollup_make(hf_serve_store(daemon->serve), HF_ROLLUP_ROWS_MAX, &made, &error),
                     HF_STORE_OK);
    prune_lab_ok(&lab, PRUNE_BEFORE, false, told);
    prune_lab_holds(&lab);
}

static void a_lost_segment_comes_back_after_a_prune(void **state)
{
    struct hf_test_daemon daemon;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    struct holdfast_limit limit;
    struct told told;
    char id[16];

    (void)state;
    if (postgres) {
        return; /* this daemon has SQLite */
    }
    hf_test_daemon_prepare(&daemon, hf_test_policy(), false);
    hf_test_daemon_open(&daemon);
    for (unsigned i = 0; i < 20; i++) {
        (void)snprintf(id, sizeof(id), "id-%u", i);
        assert_int_equal(hf_test_reserve(daemon.handle, id, "u", NULL, 10, 100, &answer), HOLDFAST_OK);
        assert_int_equal(hf_test_settle(daemon.handle, id, 5, 5, 40, &closing), HOLDFAST_OK);
        hf_test_daemon_drain(&daemon);
    }
    assert_int_equal(hf_test_reserve(daemon.handle, "open", "u", NULL, 10, 500, &answer), HOLDFAST_OK);
    serve_and_prune(&daemon, &told); /* the daemon is there, and has the store open */
    assert_in_range(told.rows_cnt, 40, 50);
    assert_non_null(strstr(told.text, "is open"));
    assert_int_equal(hf_test_reserve(daemon.handle, "later", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    hf_test_daemon_drain(&daemon);

    hf_test_daemon_close(&daemon); /* a private segment: it is gone */
    hf_test_daemon_open(&daemon);
    assert_int_equal(hf_serve_recovered(daemon.serve)->found.open_cnt, 2);
    limit = hf_test_daemon_limit(&daemon, "t", "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS);
    assert_int_equal(limit.held, 600);
    assert_int_equal(limit.settled, 800);
    assert_int_equal(hf_test_settle(daemon.handle, "open", 5, 5, 40, &closing), HOLDFAST_OK);
    assert_int_equal(hf_test_settle(daemon.handle, "later", 5, 5, 40, &closing), HOLDFAST_OK);
    /* Its receipts are gone, and it closed longer ago than any horizon: as one that was never there. */
    (void)hf_clock_inject(daemon.seg, hf_clock_now_ms(daemon.seg) + 7200000);
    assert_int_equal(hf_test_settle(daemon.handle, "id-0", 5, 5, 40, &closing), HOLDFAST_REFUSED);
    assert_int_equal(closing.reason, HOLDFAST_REASON_UNKNOWN_RESERVATION);
    serve_and_prune(&daemon, &told);
    hf_test_daemon_close(&daemon);
    hf_test_daemon_clean(&daemon);
}

static void a_long_late_horizon_is_kept(void **state)
{
    struct hf_test_daemon daemon;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    struct told told;

    (void)state;
    if (postgres) {
        return;
    }
    hf_test_daemon_prepare(&daemon, hf_test_policy(), false);
    daemon.options.late_horizon_ms = 100 * PRUNE_DAY_MS;
    hf_test_daemon_open(&daemon);
    assert_int_equal(hf_test_reserve(daemon.handle, "a", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    assert_int_equal(hf_test_settle(daemon.handle, "a", 5, 5, 40, &closing), HOLDFAST_OK);
    serve_and_prune(&daemon, &told);
    assert_int_equal(told.gone_cnt, 0);
    assert_non_null(strstr(told.text, "late horizon"));
    hf_test_daemon_close(&daemon);
    hf_test_daemon_clean(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_may_go_goes_and_nothing_else_changes),
        cmocka_unit_test(totals_miss_nothing),
        cmocka_unit_test(the_chain_in_sql_holds_across_the_cut),
        cmocka_unit_test(what_stands_in_the_way_is_told),
        cmocka_unit_test(an_instant_whose_receipts_are_gone_is_refused),
        cmocka_unit_test(the_runtime_cannot_prune),
        cmocka_unit_test(a_lost_segment_comes_back_after_a_prune),
        cmocka_unit_test(a_long_late_horizon_is_kept),
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
    lab_clean();
    return failed;
}
