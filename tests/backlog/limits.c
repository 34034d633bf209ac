/* The limits of a backlog: what is answered when the lag limit or the slots are used up while the store is away, and that all of
 * it is committed when it is back; and each answer of holdfast_wait_durable. The daemon is in this process, on a SQLite file that
 * another writer holds. */
#include "persist/reconcile.h"
#include "shm/clock.h"
#include "tests/support/daemon.h"
#include "tests/support/quota.h"

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

#include <cmocka.h>

#define SLOTS       128U
#define LAG_MS      1500U
#define PATIENCE_MS 90000U /* for a busy machine; nothing is decided by time */

static const char policy_text[] =
    "version: 1\n"
    "currency: EUR\n"
    "prices: {revision: '1', models: []}\n"
    "defaults: {ttl_ms: 3600000}\n"
    "tenants:\n"
    "  - id: t\n"
    "    limits: [{window: month, cost_micros: 90000000000}]\n"
    "    teams:\n"
    "      - {id: u, limits: [{window: month, cost_micros: 80000000000}],\n"
    "         capabilities: [{id: c, cap_micros: 100000, cap_tokens: 100000}]}\n";

static struct {
    struct hf_test_daemon daemon;
    sqlite3 *other;
    uint64_t n;        /* ids that were tried */
    uint64_t admitted; /* open or closed */
    uint64_t settled;
    uint64_t released;
    uint64_t held_micros;
    uint64_t charged_micros;
    uint32_t stop; /* of the thread that is the daemon */
} t;

static int prepare(uint32_t slots, uint64_t lag_ms)
{
    memset(&t, 0, sizeof(t));
    hf_test_daemon_prepare(&t.daemon, policy_text, true);
    t.daemon.options.injected = false;
    t.daemon.options.slots = slots;
    t.daemon.options.max_lag_ms = lag_ms;
    t.daemon.options.replay_horizon_ms = 1;
    t.daemon.options.store.busy_timeout_ms = 20;
    hf_test_daemon_open(&t.daemon);
    return 0;
}

static int small_lag(void **state)
{
    (void)state;
    return prepare(65536, LAG_MS);
}

static int few_slots(void **state)
{
    (void)state;
    return prepare(SLOTS, 3600000);
}

static int finish(void **state)
{
    (void)state;
    hf_test_daemon_close(&t.daemon);
    hf_test_daemon_clean(&t.daemon);
    return 0;
}

static void take_store_away(void)
{
    assert_int_equal(sqlite3_open(t.daemon.store_url + strlen("sqlite:"), &t.other), SQLITE_OK);
    assert_int_equal(sqlite3_busy_timeout(t.other, (int)PATIENCE_MS), SQLITE_OK);
    assert_int_equal(sqlite3_exec(t.other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
}

static void bring_store_back(void)
{
    assert_int_equal(sqlite3_exec(t.other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(t.other), SQLITE_OK);
}

static const char *id_of(uint64_t n)
{
    static char id[32];

    (void)snprintf(id, sizeof(id), "r%" PRIu64, n);
    return id;
}

/* What holdfast_reserve answers; counted when it admits. */
static int reserve(struct holdfast_answer *answer)
{
    uint64_t n = t.n++;
    int rc = hf_test_reserve(t.daemon.handle, id_of(n), "u", NULL, 10, 1 + n % 100, answer);

    if (rc == HOLDFAST_OK) {
        assert_int_equal(n, t.admitted); /* the first refusal is the last call */
        t.admitted++;
        t.held_micros += 1 + n % 100;
    }
    return rc;
}

static void close_one(uint64_t n)
{
    struct holdfast_closing closing;

    if (n % 2 == 0) {
        assert_int_equal(hf_test_settle(t.daemon.handle, id_of(n), 3, 4, n % 50, &closing), HOLDFAST_OK);
        t.settled++;
        t.charged_micros += n % 50;
    } else {
        assert_int_equal(holdfast_release(t.daemon.handle, id_of(n), 0, &closing), HOLDFAST_OK);
        t.released++;
    }
    t.held_micros -= 1 + n % 100;
}

static void step(void)
{
    uint32_t wait_ms = 0;

    (void)hf_serve_step(t.daemon.serve, &wait_ms);
}

static void expect_busy(const struct holdfast_answer *answer)
{
    assert_int_equal(answer->reason, HOLDFAST_REASON_BUSY);
    assert_true(t.daemon.seg->header->hdr_alarms[HF_ALARM_BUSY] >= 1);
}

/* What `holdfast status` (HOLDFAST_COMMAND) says of the segment, or not. */
static void expect_status(const char *words, bool said)
{
    const char *program = getenv("HOLDFAST_COMMAND");
    char command[512];
    char text[4096];

    if (program == NULL) {
        print_message("HOLDFAST_COMMAND is not set: what status says is not looked at\n");
        return;
    }
    (void)snprintf(command, sizeof(command), "%s status --segment %s", program, t.daemon.segment);
    FILE *in = popen(command, "re"); /* NOLINT: paths of the test's own */

    assert_non_null(in);
    text[fread(text, 1, sizeof(text) - 1, in)] = '\0';
    assert_int_equal(pclose(in), 0);
    if ((strstr(text, words) != NULL) != said) {
        fail_msg("holdfast status should %s '%s':\n%s", said ? "say" : "not say", words, text);
    }
}

/* Rows and sums of the store are those that were told here; every bucket of the segment agrees. */
static void check_all(void)
{
    struct hf_reconcile_report report;
    struct hf_store_error error = {""};

    hf_test_daemon_drain(&t.daemon);
    struct hf_store_totals totals = hf_test_daemon_totals(&t.daemon);

    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_RESERVATION], t.admitted);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_SETTLEMENT], t.settled);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_RELEASE], t.released);
    assert_int_equal(totals.conflicts_cnt + totals.aside_cnt, 0);
    assert_int_equal(totals.receipts_cnt, totals.batch_rows_cnt);
    assert_int_equal((uint64_t)totals.held[0], t.admitted - t.settled - t.released);
    assert_int_equal((uint64_t)totals.held[2], t.held_micros);
    assert_int_equal((uint64_t)totals.charged[2], t.charged_micros);
    assert_int_equal(hf_reconcile(t.daemon.seg, hf_serve_store(t.daemon.serve), "test", &report, &error),
                     HF_RECONCILE_DONE);
    assert_int_equal(report.mismatches_cnt, 0);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void the_lag_limit_makes_reserves_busy(void **state)
{
    struct hf_shm_header *header = t.daemon.seg->header;
    struct holdfast_answer answer;
    int rc = HOLDFAST_OK;

    (void)state;
    assert_int_equal(reserve(&answer), HOLDFAST_OK);
    hf_test_daemon_drain(&t.daemon);
    take_store_away();
    uint64_t until = hf_clock_mono_fine_ms() + PATIENCE_MS;

    while (rc == HOLDFAST_OK && hf_clock_mono_fine_ms() < until) {
        rc = reserve(&answer);
        step();
        (void)usleep(1000);
    }
    assert_int_equal(rc, HOLDFAST_REFUSED);
    expect_busy(&answer);
    assert_true(hf_clock_mono_fine_ms() - header->hdr_durable_ms > LAG_MS);
    assert_true(t.admitted > 1);
    print_message("lag limit: busy after %" PRIu64 " reservations\n", t.admitted);
    expect_status("reserves are busy", true);
    expect_status("unwritten  nothing", false);
    expect_status("alarms\n  busy", true);
    /* A repetition gets its first answer. Every open hold is closed, the last one committed before and the ones that were not. */
    assert_int_equal(hf_test_reserve(t.daemon.handle, id_of(0), "u", NULL, 10, 1, &answer), HOLDFAST_OK);
    assert_int_equal(answer.replayed, 1);
    for (uint64_t n = 0; n < t.admitted; n++) {
        close_one(n);
    }
    bring_store_back();
    check_all();
    t.n = t.admitted;
    assert_int_equal(reserve(&answer), HOLDFAST_OK);
    check_all();
    expect_status("reserves are busy", false);
    expect_status("unwritten  nothing", true);
}

static void used_up_slots_make_reserves_busy(void **state)
{
    struct holdfast_answer answer;
    int rc = HOLDFAST_OK;

    (void)state;
    take_store_away();
    for (uint32_t i = 0; i <= SLOTS && rc == HOLDFAST_OK; i++) {
        rc = reserve(&answer);
        step();
    }
    assert_int_equal(rc, HOLDFAST_REFUSED);
    expect_busy(&answer);
    assert_int_equal(t.admitted, SLOTS);
    for (uint64_t n = 0; n < t.admitted; n++) {
        close_one(n);
    }
    /* Closed, and not committed: their slots hold what the store has still to get, and nothing takes their places. */
    for (int i = 0; i < 10; i++) {
        step();
    }
    t.n = t.admitted;
    assert_int_equal(reserve(&answer), HOLDFAST_REFUSED);
    expect_busy(&answer);
    assert_int_equal(t.daemon.seg->header->hdr_alarms[HF_ALARM_FORGOTTEN], 0);
    bring_store_back();
    check_all();
    rc = HOLDFAST_REFUSED;
    for (uint64_t until = hf_clock_mono_fine_ms() + PATIENCE_MS;
         rc != HOLDFAST_OK && hf_clock_mono_fine_ms() < until;) {
        step(); /* they are freed when their horizon is over */
        t.n = t.admitted;
        rc = reserve(&answer);
    }
    assert_int_equal(rc, HOLDFAST_OK);
    check_all();
}

static int many_slots(void **state)
{
    (void)state;
    return prepare(65536, 3600000);
}

/* A step does not commit all of a long backlog: reaping, the clock and signals have their turn. Nothing counts as durable before all
 * of it is. */
static void a_backlog_is_committed_in_turns(void **state)
{
    struct hf_shm_header *header = t.daemon.seg->header;
    struct holdfast_answer answer;
    struct hf_drain_counts counts;
    uint32_t wait_ms = 0;

    (void)state;
    hf_test_daemon_drain(&t.daemon);
    uint64_t durable_ms = header->hdr_durable_ms;

    for (int i = 0; i < 40000; i++) {
        assert_int_equal(reserve(&answer), HOLDFAST_OK);
    }
    hf_drain_count(hf_serve_drain(t.daemon.serve), &counts);
    uint64_t before = counts.rows_committed;

    assert_int_equal(hf_serve_step(t.daemon.serve, &wait_ms), HF_DRAIN_WORKED);
    assert_int_equal(wait_ms, 0);
    assert_int_equal(header->hdr_durable_ms, durable_ms);
    hf_drain_count(hf_serve_drain(t.daemon.serve), &counts);
    assert_in_range(counts.rows_committed - before, 1, 39999);
    /* New marks do not keep back what waits. */
    for (uint64_t n = 0; n < 100; n++) {
        close_one(n);
    }
    check_all();
    assert_true(header->hdr_durable_ms > durable_ms);
}

/* ---- holdfast_wait_durable --------------------------------------------------------------------------------------- */

/* The daemon, until t.stop. */
static void *serve(void *arg)
{
    (void)arg;
    while (hf_load_acq_u32(&t.stop) == 0) { /* plain: a flag */
        uint32_t wait_ms = 0;

        (void)hf_serve_step(t.daemon.serve, &wait_ms);
        hf_serve_wait(t.daemon.serve, wait_ms);
    }
    return NULL;
}

static void wait_durable_waits_for_the_commit(void **state)
{
    struct holdfast_answer answer;
    struct hf_receipt rows[2];
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(reserve(&answer), HOLDFAST_OK);
        assert_int_equal(
            holdfast_wait_durable(t.daemon.handle, id_of(t.admitted - 1), answer.hold, PATIENCE_MS),
            HOLDFAST_OK);
    }
    hf_store_rel_u32(&t.stop, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (uint64_t n = 0; n < t.admitted; n++) {
        assert_int_equal(hf_test_daemon_receipts(&t.daemon, id_of(n), rows, 2), 1);
        assert_int_equal(holdfast_wait_durable(t.daemon.handle, id_of(n), 0, 0), HOLDFAST_OK);
    }
}

static void wait_durable_times_out_while_the_store_is_away(void **state)
{
    struct holdfast_answer answer;
    pthread_t thread;

    (void)state;
    take_store_away();
    assert_int_equal(pthread_create(&thread, NULL, serve, NULL), 0);
    assert_int_equal(reserve(&answer), HOLDFAST_OK);
    assert_int_equal(holdfast_wait_durable(t.daemon.handle, id_of(0), answer.hold, 0), HOLDFAST_TIMEOUT);
    assert_int_equal(holdfast_wait_durable(t.daemon.handle, id_of(0), 0, 300), HOLDFAST_TIMEOUT);
    /* Not lost by that: the same call goes on waiting. */
    bring_store_back();
    assert_int_equal(holdfast_wait_durable(t.daemon.handle, id_of(0), 0, PATIENCE_MS), HOLDFAST_OK);
    hf_store_rel_u32(&t.stop, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check_all();
}

static void wait_durable_tells_a_conflict(void **state)
{
    struct holdfast_answer answer;
    struct holdfast_closing closing;

    (void)state;
    assert_int_equal(reserve(&answer), HOLDFAST_OK);
    assert_int_equal(hf_test_settle(t.daemon.handle, id_of(0), 1, 1, 0, &closing), HOLDFAST_OK);
    hf_test_daemon_drain(&t.daemon);
    (void)usleep(10000); /* more than the replay horizon */
    hf_test_daemon_drain(&t.daemon);
    assert_int_equal(hf_test_reserve(t.daemon.handle, id_of(0), "u", NULL, 20, 2, &answer), HOLDFAST_OK);
    assert_int_equal(answer.replayed, 0);
    assert_int_equal(holdfast_wait_durable(t.daemon.handle, id_of(0), 0, 0), HOLDFAST_TIMEOUT);
    hf_test_daemon_drain(&t.daemon);
    assert_int_equal(holdfast_wait_durable(t.daemon.handle, id_of(0), 0, 0), HOLDFAST_CONFLICT);
    assert_int_equal(holdfast_wait_durable(t.daemon.handle, "nobody's", 0, 0), HOLDFAST_REFUSED);
}

/* The segment ends while somebody waits. */
static void *supersede(void *arg)
{
    (void)usleep(100000);
    hf_segment_set_state(arg, HF_SEGMENT_SUPERSEDED);
    return NULL;
}

static void wait_durable_ends_with_its_segment(void **state)
{
    struct holdfast_answer answer;
    pthread_t thread;

    (void)state;
    assert_int_equal(reserve(&answer), HOLDFAST_OK);
    assert_int_equal(pthread_create(&thread, NULL, supersede, t.daemon.seg), 0);
    assert_int_equal(holdfast_wait_durable(t.daemon.handle, id_of(0), answer.hold, PATIENCE_MS),
                     HOLDFAST_NOT_READY);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(holdfast_wait_durable(t.daemon.handle, id_of(0), answer.hold, 0), HOLDFAST_NOT_READY);
}

/* ---- idle -------------------------------------------------------------------------------------------------------- */

/* How long the daemon would sleep after each of a number of steps with nothing to do, in a time of its own. */
static void a_short_lag_limit_is_kept_while_idle(void **state)
{
    uint32_t wait_ms = 0;

    (void)state;
    for (int i = 0; i < 20; i++) {
        (void)hf_serve_step(t.daemon.serve, &wait_ms);
    }
    assert_in_range(wait_ms, 1, LAG_MS / 4);
    hf_test_daemon_close(&t.daemon);
    assert_int_equal(unlink(t.daemon.segment), 0);
    t.daemon.options.max_lag_ms = 40;
    hf_test_daemon_open(&t.daemon);
    for (int i = 0; i < 20; i++) {
        (void)hf_serve_step(t.daemon.serve, &wait_ms);
    }
    assert_in_range(wait_ms, 1, 10);
}

static void it_does_not_sleep_past_a_deadline(void **state)
{
    struct holdfast_request request;
    struct holdfast_answer answer;
    uint32_t wait_ms = 0;

    (void)state;
    holdfast_request_init(&request);
    request.id = "short";
    request.tenant = "t";
    request.team = "u";
    request.capability = "c";
    request.cost_micros = 1;
    request.tokens = 1;
    request.ttl_ms = 60;
    assert_int_equal(holdfast_reserve(t.daemon.handle, &request, &answer), HOLDFAST_OK);
    for (int i = 0; i < 20; i++) {
        (void)hf_serve_step(t.daemon.serve, &wait_ms);
        assert_true(wait_ms <= 100);
    }
    for (uint64_t until = hf_clock_mono_fine_ms() + PATIENCE_MS;
         t.daemon.seg->header->hdr_alarms[HF_ALARM_EXPIRED] == 0 && hf_clock_mono_fine_ms() < until;) {
        hf_serve_wait(t.daemon.serve, wait_ms);
        (void)hf_serve_step(t.daemon.serve, &wait_ms);
    }
    assert_int_equal(t.daemon.seg->header->hdr_alarms[HF_ALARM_EXPIRED], 1);
}

int main(void)
{
#define LAG(name)  cmocka_unit_test_setup_teardown(name, small_lag, finish)
#define MANY(name) cmocka_unit_test_setup_teardown(name, many_slots, finish)
#define FEW(name)  cmocka_unit_test_setup_teardown(name, few_slots, finish)
    const struct CMUnitTest tests[] = {
        LAG(the_lag_limit_makes_reserves_busy),
        FEW(used_up_slots_make_reserves_busy),
        MANY(a_backlog_is_committed_in_turns),
        FEW(wait_durable_waits_for_the_commit),
        FEW(wait_durable_times_out_while_the_store_is_away),
        FEW(wait_durable_tells_a_conflict),
        FEW(wait_durable_ends_with_its_segment),
        LAG(a_short_lag_limit_is_kept_while_idle),
        FEW(it_does_not_sleep_past_a_deadline),
    };
#undef LAG
#undef MANY
#undef FEW
    return cmocka_run_group_tests(tests, NULL, NULL);
}
