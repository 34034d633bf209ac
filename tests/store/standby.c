/* Real streaming replication on one machine. A primary that is lost and its synchronous standby promoted: nothing is lost. An
 * asynchronous one that had not got the last commits: found by the chain's end, with an alarm and the receipt of a coverage gap, and
 * what the segment still holds is written again. The store's URL names both, target_session_attrs=read-write. */
#include "tests/store/rig.h"
#include "tests/support/server.h"

#include "shm/clock.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_MS 60000

static struct {
    struct hf_server primary;
    struct hf_server standby;
    struct rig rig;
    char both[512];
    uint64_t failovers;
    uint64_t rows;
    uint64_t gaps;
} t;

/* Times are the daemon's own where a primary that is fenced must be given up soon. */
static const struct hf_store_options quick = {
    .connect_timeout_ms = 2000, .statement_timeout_ms = 3000, .lock_wait_ms = 5000};

static void await(const struct hf_server *server, const char *database, const char *sql, const char *value)
{
    for (int waited_ms = 0; waited_ms < PATIENCE_MS; waited_ms += 50) {
        if (strcmp(hf_server_sql(server, database, sql), value) == 0) {
            return;
        }
        (void)usleep(50000);
    }
    fail_msg("'%s' did not become '%s'", sql, value);
}

/* settings: of the primary. */
static void open_pair(const char *settings)
{
    char url[256];

    if (!hf_server_make(&t.primary, settings)) {
        print_message("no PostgreSQL here (HOLDFAST_TEST_PG_BIN): left out\n");
        exit(77);
    }
    hf_server_start(&t.primary);
    hf_server_follow(&t.standby, &t.primary, "standby", "synchronous_standby_names = ''");
    hf_server_start(&t.standby);
    await(&t.primary, "postgres", "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", "1");
    assert_string_equal(hf_server_sql(&t.primary, "postgres", "CREATE DATABASE quota"), "");
    hf_server_url(&t.primary, "postgres", "quota", url, sizeof(url));
    (void)snprintf(t.both, sizeof(t.both),
                   "host=%s,%s user=postgres dbname=quota target_session_attrs=read-write", t.primary.folder,
                   t.standby.folder);
    rig_prepare(&t.rig, url, &quick);
    t.rig.daemon.options.store_url = t.both;
    rig_open(&t.rig);
    for (int i = 0; i < 5; i++) {
        rig_step(&t.rig);
        (void)rig_drain(&t.rig, 10);
    }
}

static void close_pair(void)
{
    t.rows += rig_rows(&t.rig);
    rig_close(&t.rig);
    hf_server_remove(&t.standby);
    hf_server_remove(&t.primary);
}

static int remove_servers(void **state)
{
    (void)state;
    hf_server_remove(&t.standby);
    hf_server_remove(&t.primary);
    print_message("totals: %" PRIu64 " failovers, %" PRIu64 " receipts, %" PRIu64
                  " coverage gaps, each told\n",
                  t.failovers, t.rows, t.gaps);
    return 0;
}

/* The old one never comes back: killed, and its folder would have to be opened by hand. */
static void fail_over(void)
{
    hf_server_kill(&t.primary);
    rig_step(&t.rig);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rig_cycle(&t.rig), HF_DRAIN_WAITING);
    }
    assert_string_equal(hf_server_sql(&t.standby, "postgres", "SELECT pg_promote(true, 60)"), "t");
    t.failovers++;
}

/* Cycles as the daemon makes them, those included that go back with the store. */
static void settle_down(void)
{
    assert_true(hf_serve_flush(t.rig.daemon.serve, PATIENCE_MS));
    t.rig.mono_ms = hf_clock_mono_fine_ms();
}

/* ---- synchronous ---------------------------------------------------------------------------------------------------- */

static void a_synchronous_standby_has_everything(void **state)
{
    struct hf_store *store = NULL;
    struct hf_store_error error = {""};
    char url[256];

    (void)state;
    open_pair("synchronous_commit = remote_apply\nsynchronous_standby_names = 'standby'");
    /* Alone, a standby is no store to write to: told apart, and tried again. */
    hf_server_url(&t.standby, "postgres", "quota", url, sizeof(url));
    assert_int_equal(hf_store_open(url, &quick, &store, &error), HF_STORE_OK);
    assert_int_equal(hf_store_lock(store, "another", &error), HF_STORE_RETRY);
    assert_non_null(strstr(error.text, "The server only reads"));
    hf_store_close(store);
    for (int i = 0; i < 10; i++) {
        rig_step(&t.rig);
        (void)rig_drain(&t.rig, 10);
    }
    fail_over();
    (void)rig_drain(&t.rig, 200);
    rig_check(&t.rig);
    assert_int_equal(rig_alarm(&t.rig, HF_ALARM_COVERAGE_GAP), 0);
    close_pair();
}

/* The standby stops answering, COMMIT waits, its session is given up and ended: then everybody sees a transaction that the standby may
 * not have. It is not taken for committed before the standby has it; and if the primary is lost meanwhile, nothing was promised. */
static void wait_for_the_standby(bool killed)
{
    open_pair("synchronous_commit = remote_apply\nsynchronous_standby_names = 'standby'");
    uint64_t number = t.rig.daemon.seg->header->hdr_batch_number;

    if (killed) {
        hf_server_kill(&t.standby);
    } else {
        assert_string_equal(hf_server_sql(&t.standby, "postgres", "SELECT pg_wal_replay_pause()"), "");
    }
    for (int i = 0; i < 3; i++) {
        rig_step(&t.rig);
        assert_int_equal(rig_cycle(&t.rig), HF_DRAIN_WAITING);
    }
    assert_non_null(strstr(t.rig.daemon.log, "the answer to a commit was lost"));
    assert_string_equal(hf_server_sql(&t.primary, "quota", "SELECT count(*) > 0 FROM holdfast.batch"), "t");
    assert_int_equal(t.rig.daemon.seg->header->hdr_batch_number, number);
    if (killed) {
        hf_server_kill(&t.primary);
        hf_server_start(&t.standby);
    } else {
        assert_string_equal(hf_server_sql(&t.standby, "postgres", "SELECT pg_wal_replay_resume()"), "");
        hf_server_kill(&t.primary);
    }
    assert_string_equal(hf_server_sql(&t.standby, "postgres", "SELECT pg_promote(true, 60)"), "t");
    t.failovers++;
    (void)rig_drain(&t.rig, 200);
    rig_check(&t.rig);
    assert_int_equal(rig_alarm(&t.rig, HF_ALARM_COVERAGE_GAP), 0);
    close_pair();
}

static void a_standby_that_does_not_apply(void **state)
{
    (void)state;
    wait_for_the_standby(false);
}

static void a_standby_that_is_gone(void **state)
{
    (void)state;
    wait_for_the_standby(true);
}

/* ---- asynchronous --------------------------------------------------------------------------------------------------- */

static int find_gap(void *ctx, const struct hf_receipt *row)
{
    *(bool *)ctx = row->gap_from_ms != HF_UNKNOWN && row->gap_until_ms >= row->gap_from_ms &&
                   row->reason != NULL && strcmp(row->reason, "the store lost commits") == 0;
    return 0;
}

/* lost: how many batches the standby has not got. All slots are still in the segment, so all their receipts come again. */
static void lose_commits(int lost, bool restart)
{
    struct hf_store_error error = {""};
    bool gap = false;

    open_pair("");
    /* The standby hears no more. */
    await(&t.primary, "postgres",
          "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()", "1");
    hf_server_kill(&t.standby);
    for (int i = 0; i < lost; i++) {
        rig_step(&t.rig);
        (void)rig_drain(&t.rig, 10);
    }
    rig_check(&t.rig);
    if (restart) {
        hf_test_daemon_drop(&t.rig.daemon);
    }
    hf_server_kill(&t.primary);
    hf_server_start(&t.standby);
    assert_string_equal(hf_server_sql(&t.standby, "postgres", "SELECT pg_promote(true, 60)"), "t");
    t.failovers++;
    if (restart) {
        rig_open(&t.rig);
    }
    rig_step(&t.rig);
    settle_down();
    assert_true(rig_alarm(&t.rig, HF_ALARM_COVERAGE_GAP) >= 1);
    assert_non_null(strstr(t.rig.daemon.log, "the store lost commits"));
    assert_int_equal(
        hf_store_last(hf_serve_store(t.rig.daemon.serve), "test", HF_RECEIPT_EPOCH, find_gap, &gap, &error),
        HF_STORE_OK);
    assert_true(gap);
    t.gaps++;
    t.rig.sums.kinds_cnt[HF_RECEIPT_EPOCH]++;
    /* Every reservation and closing is there again, once; a hold that was raised has its total, by an extension or without. */
    t.rig.sums.kinds_cnt[HF_RECEIPT_EXTENSION] =
        hf_test_daemon_totals(&t.rig.daemon).kinds_cnt[HF_RECEIPT_EXTENSION];
    rig_check(&t.rig);
    close_pair();
}

static void an_asynchronous_one_lost_one_batch(void **state)
{
    (void)state;
    lose_commits(1, false);
}

static void an_asynchronous_one_lost_many(void **state)
{
    (void)state;
    lose_commits(6, false);
}

static void lost_while_the_daemon_was_away(void **state)
{
    (void)state;
    lose_commits(1, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_synchronous_standby_has_everything),
        cmocka_unit_test(a_standby_that_does_not_apply),
        cmocka_unit_test(a_standby_that_is_gone),
        cmocka_unit_test(an_asynchronous_one_lost_one_batch),
        cmocka_unit_test(an_asynchronous_one_lost_many),
        cmocka_unit_test(lost_while_the_daemon_was_away),
    };

    cmocka_set_test_filter(getenv("HOLDFAST_CASE"));
    return cmocka_run_group_tests(tests, NULL, remove_servers);
}
