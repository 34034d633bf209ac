/* ctest: labels=postgres timeout=120 */
/* A drain whose store fails under it: locked, cut off before COMMIT, cut off before its answer. Everything is written once. The
 * cases of PostgreSQL need HOLDFAST_TEST_PG and are left out without it. */
#include "persist/drain.h"
#include "persist/reaper.h"
#include "persist/rollup_impl.h"
#include "persist/verify.h"
#include "shm/clock.h"
#include "tests/support/quota.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sqlite3.h>
#include <cmocka.h>

static struct {
    struct hf_test_quota quota;
    struct hf_store *store;
    struct hf_publish *publish;
    struct hf_deadlines deadlines;
    struct hf_drain *drain;
    struct hf_tally tally;
    struct hf_owner owner;
    uint64_t mono_ms;
    const char *fail_at; /* point of the commit at which the connection is cut */
    int fails_left;
    void (*before_cut)(int fd); /* what happens there first; NULL: nothing */
    char folder[64];
    char url[512];
} t;

static void cut(void *ctx, const char *point, int fd)
{
    (void)ctx;
    if (t.fail_at != NULL && strcmp(point, t.fail_at) == 0 && t.fails_left > 0 && fd >= 0) {
        t.fails_left--;
        if (t.before_cut != NULL) {
            t.before_cut(fd);
        }
        (void)shutdown(fd, SHUT_RDWR);
    }
}

static void open_parts(void)
{
    struct hf_store_error error = {""};
    const struct hf_store_options options = {.busy_timeout_ms = 20, .fault = cut};
    const struct hf_log silent = {0};

    t.fail_at = NULL;
    t.before_cut = NULL;
    t.mono_ms = hf_clock_mono_fine_ms() + 1;
    hf_test_quota_make(&t.quota, hf_test_policy(), 1024);
    assert_int_equal(hf_owner_join(t.quota.seg, HF_ROLE_DAEMON, &t.owner, NULL), HF_OK);
    assert_int_equal(hf_store_init(t.url, NULL, &error), HF_STORE_OK);
    assert_int_equal(hf_store_open(t.url, &options, &t.store, &error), HF_STORE_OK);
    assert_int_equal(hf_store_lock(t.store, "faults", &error), HF_STORE_OK);
    t.quota.seg->header->hdr_next_seq = 1; /* plain: nobody else is here */
    t.publish = hf_publish_open(t.quota.seg, &silent);
    assert_non_null(t.publish);
    assert_true(hf_deadlines_open(&t.deadlines, t.quota.seg->slots_cnt));
    const struct hf_drain_options drain = {.seg = t.quota.seg,
                                           .store = t.store,
                                           .store_name = "faults",
                                           .daemon_ref = t.owner.ref,
                                           .policy_revision = 1,
                                           .publish = t.publish,
                                           .deadlines = &t.deadlines,
                                           .tally = &t.tally};
    const struct hf_rollup none = {.next_seq = 1};

    t.drain = hf_drain_open(&drain);
    assert_non_null(t.drain);
    hf_tally_start(&t.tally, &none);
}

static void close_parts(void)
{
    hf_drain_close(t.drain);
    hf_tally_drop(&t.tally);
    hf_deadlines_close(&t.deadlines);
    hf_publish_close(t.publish);
    hf_store_close(t.store);
    hf_owner_leave(t.quota.seg, &t.owner);
    hf_test_quota_free(&t.quota);
}

static int open_sqlite(void **state)
{
    (void)state;
    (void)snprintf(t.folder, sizeof(t.folder), "/tmp/holdfast-faults-XXXXXX");
    assert_non_null(mkdtemp(t.folder));
    (void)snprintf(t.url, sizeof(t.url), "sqlite:%s/store.db", t.folder);
    open_parts();
    return 0;
}

static int close_sqlite(void **state)
{
    char command[128];

    (void)state;
    close_parts();
    (void)snprintf(command, sizeof(command), "rm -rf %s", t.folder);
    return system(command); /* NOLINT: the test's own folder */
}

static int open_postgres(void **state)
{
    static unsigned made;
    const char *server = getenv("HOLDFAST_TEST_PG");
    char command[1024];

    (void)state;
    if (server == NULL || server[0] == '\0') {
        return 0;
    }
    (void)snprintf(command, sizeof(command), "psql -q -d '%s' -c 'create database faults_%d_%u'", server,
                   (int)getpid(), made);
    assert_int_equal(system(command), 0); /* NOLINT: names of the test's own */
    const char *slash = strstr(server, "://");
    const char *query = strchr(server, '?');

    assert_non_null(slash);
    slash = strchr(slash + 3, '/');
    assert_non_null(slash);
    (void)snprintf(t.url, sizeof(t.url), "%.*s/faults_%d_%u%s", (int)(slash - server), server, (int)getpid(),
                   made++, query == NULL ? "" : query);
    open_parts();
    return 0;
}

static int close_postgres(void **state)
{
    (void)state;
    if (getenv("HOLDFAST_TEST_PG") != NULL) {
        close_parts();
    }
    return 0;
}

static void work(int from, int until)
{
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    char id[16];

    for (int i = from; i < until; i++) {
        (void)snprintf(id, sizeof(id), "i%d", i);
        assert_int_equal(hf_test_reserve(t.quota.handles[0], id, "u", NULL, 10, 100, &answer), HOLDFAST_OK);
        if (i % 2 == 0) {
            assert_int_equal(hf_test_settle(t.quota.handles[0], id, 1, 1, 10, &closing), HOLDFAST_OK);
        }
    }
}

static enum hf_drain_result cycle(uint64_t later_ms)
{
    t.mono_ms += later_ms;
    return hf_drain_cycle(t.drain, t.mono_ms);
}

/* A rollup of what the drain added up, and what it left out read from the store, is what the store has. */
static void expect_right_rollup(void)
{
    const struct hf_verify_options options = {.rollups = true};
    struct hf_verify_report report;
    struct hf_rollup made;
    struct hf_store_error error = {""};

    while (t.tally.next_seq < t.quota.seg->header->hdr_next_seq) {
        assert_int_equal(hf_tally_read(&t.tally, t.store, 1, &error), HF_STORE_OK);
    }
    if (hf_rollup_write(t.store, &t.tally, &made, &error) != HF_STORE_OK ||
        hf_verify(t.store, &options, &report, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(report.rollups_cnt, 1);
    assert_int_equal(report.findings_cnt, 0);
}

static void expect_written(uint64_t reservations, uint64_t settlements)
{
    struct hf_store_totals totals;
    struct hf_store_error error;

    assert_int_equal(hf_store_totals(t.store, "faults", &totals, &error), HF_STORE_OK);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_RESERVATION], reservations);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_SETTLEMENT], settlements);
    assert_int_equal(totals.receipts_cnt, totals.batch_rows_cnt);
    assert_int_equal(totals.conflicts_cnt, 0);
    expect_right_rollup();
}

/* Cycles until nothing is left; later ones come when the back-off allows it. */
static void drain_all(void)
{
    enum hf_drain_result result;

    for (int i = 0; i < 50; i++) {
        result = cycle(6000);
        if (result == HF_DRAIN_IDLE) {
            return;
        }
        assert_true(result == HF_DRAIN_WORKED || result == HF_DRAIN_WAITING);
    }
    fail_msg("it does not come to an end");
}

static void a_locked_store_gets_everything_later(void **state)
{
    sqlite3 *other = NULL;

    (void)state;
    work(0, 4);
    assert_int_equal(sqlite3_open(t.url + strlen("sqlite:"), &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "begin immediate", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(cycle(0), HF_DRAIN_WAITING);
    uint64_t done = t.quota.seg->header->cyc_done;
    const struct hf_log silent = {0};

    assert_true(hf_drain_next_try_ms(t.drain) > t.mono_ms);
    /* Nobody is told that a receipt is durable before the store has said so: generation and ordinal, no receipt. */
    assert_int_equal(t.quota.seg->slots[hf_test_slot(&t.quota, "i0")].slot_persisted & ((1ULL << 33) - 1U),
                     0);
    work(4, 8);
    assert_int_equal(cycle(0), HF_DRAIN_WAITING); /* not yet: it does not even ask */
    assert_int_equal(cycle(6000), HF_DRAIN_WAITING);
    assert_int_equal(t.quota.seg->header->cyc_done, done);
    assert_true(t.quota.seg->header->hdr_durable_ms < t.mono_ms);
    assert_int_equal(t.quota.seg->header->hdr_alarms[HF_ALARM_STORE_RETRY], 2);
    /* Deadlines pass meanwhile, of those too that the store has not heard of. */
    (void)hf_clock_inject(t.quota.seg, hf_clock_now_ms(t.quota.seg) + 1000);
    assert_int_equal(hf_reaper_pass(t.quota.seg, &t.deadlines, &silent), 4);
    assert_int_equal(sqlite3_exec(other, "rollback", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    drain_all();
    expect_written(8, 4);
    assert_int_equal(t.quota.seg->header->hdr_durable_ms, t.mono_ms);
    assert_int_equal(t.quota.seg->header->cyc_done, t.quota.seg->header->cyc_begun);
}

/* More than a batch holds: rows beyond it come in the next one. */
static void more_than_one_batch(void **state)
{
    struct hf_drain_counts counts;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    char id[16];

    (void)state;
    for (int i = 0; i < 700; i++) {
        (void)snprintf(id, sizeof(id), "m%d", i);
        assert_int_equal(hf_test_reserve(t.quota.handles[0], id, "w", NULL, 1, 1, &answer), HOLDFAST_OK);
        assert_int_equal(hf_test_settle(t.quota.handles[0], id, 1, 0, 1, &closing), HOLDFAST_OK);
    }
    drain_all();
    assert_int_equal(t.tally.next_seq, 1401); /* nothing is left to be read */
    expect_written(700, 700);
    hf_drain_count(t.drain, &counts);
    assert_int_equal(counts.rows_committed, 1400);
    assert_int_equal(counts.rows_in_flight, 0);
}

static void fail_once_at(const char *point, int times)
{
    if (getenv("HOLDFAST_TEST_PG") == NULL) {
        skip();
    }
    work(0, 4);
    drain_all();
    t.fail_at = point;
    t.fails_left = times;
    work(4, 10);
    enum hf_drain_result result = cycle(0);
    /* Of a lost answer the same cycle may hear already, when the server was quick to commit. */
    assert_true(result == HF_DRAIN_WAITING ||
                (result == HF_DRAIN_WORKED && strcmp(point, "commit-sent") == 0));
    work(10, 12);
    drain_all();
    assert_int_equal(t.fails_left, 0);
    expect_written(12, 6);
}

static void cut_off_at_the_beginning(void **state)
{
    (void)state;
    fail_once_at("begin", 1);
}

static void cut_off_among_the_rows(void **state)
{
    (void)state;
    fail_once_at("rows", 2);
}

static void cut_off_before_commit(void **state)
{
    (void)state;
    fail_once_at("before-commit", 3);
}

/* The commit happened, or not: nobody has told the daemon. */
static void the_answer_is_lost(void **state)
{
    (void)state;
    fail_once_at("commit-sent", 1);
}

/* Waits for the server's answer to COMMIT, then puts another batch in the place of ours. */
static void answer_and_replace(int fd)
{
    char command[1024];
    char answer[256];
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    assert_int_equal(poll(&wait, 1, 60000), 1);
    assert_true(recv(fd, answer, sizeof(answer), 0) > 0);
    (void)snprintf(command, sizeof(command),
                   "psql -q -d '%s' -c \"SET holdfast.retention = 'on'; UPDATE holdfast.batch SET digest = "
                   "decode(repeat('00', 32), 'hex') WHERE number = 2\"",
                   t.url);
    assert_int_equal(system(command), 0); /* NOLINT: names of the test's own */
}

/* The answer is lost, and what is there under the number is another's: it does not pass for ours. */
static void another_batch_is_there(void **state)
{
    enum hf_drain_result result = HF_DRAIN_WAITING;

    (void)state;
    if (getenv("HOLDFAST_TEST_PG") == NULL) {
        skip();
    }
    work(0, 4);
    drain_all();
    t.fail_at = "commit-sent";
    t.fails_left = 1;
    t.before_cut = answer_and_replace;
    work(4, 10);
    for (int i = 0; i < 5 && result == HF_DRAIN_WAITING; i++) {
        result = cycle(6000);
    }
    assert_int_equal(t.fails_left, 0);
    assert_int_equal(result, HF_DRAIN_SUPERSEDED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_locked_store_gets_everything_later, open_sqlite, close_sqlite),
        cmocka_unit_test_setup_teardown(more_than_one_batch, open_sqlite, close_sqlite),
        cmocka_unit_test_setup_teardown(cut_off_at_the_beginning, open_postgres, close_postgres),
        cmocka_unit_test_setup_teardown(cut_off_among_the_rows, open_postgres, close_postgres),
        cmocka_unit_test_setup_teardown(cut_off_before_commit, open_postgres, close_postgres),
        cmocka_unit_test_setup_teardown(the_answer_is_lost, open_postgres, close_postgres),
        cmocka_unit_test_setup_teardown(another_batch_is_there, open_postgres, close_postgres),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
