/* Everything stands still for some seconds, as in a virtual machine that is paused: the daemon and a worker are stopped at the same
 * time (SIGSTOP), then the daemon alone, then it is killed. The clock goes on and never back, holds expire by elapsed time whoever
 * is there to reap them, and what was settled in time stays settled.
 *
 *   backlog_pause --daemon HOLDFASTD */
#include "core/client.h"
#include "persist/store.h"
#include "shm/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TTL_MS      1000U
#define PAUSE_MS    2500U
#define PATIENCE_MS 90000U /* for a busy machine; nothing is decided by time */

/* What the worker saw, read here. */
struct seen {
    uint32_t ready;
    uint32_t stop;
    uint64_t reads;
    uint64_t backwards;
    uint64_t now_ms;
};

static struct {
    char folder[64];
    char segment[96];
    char policy[96];
    char log[96];
    char url[128];
    const char *daemon_path;
    pid_t daemon;
    pid_t worker;
    struct seen *seen;
    struct holdfast_segment *shared;
    struct holdfast *handle;
} t;

static const char policy_text[] = "version: 1\n"
                                  "currency: EUR\n"
                                  "prices: {revision: '1', models: []}\n"
                                  "tenants:\n"
                                  "  - id: t\n"
                                  "    limits: [{window: lifetime, cost_micros: 100}]\n"
                                  "    teams:\n"
                                  "      - {id: u, capabilities: [{id: c, cap_micros: 100}]}\n";

static void pause_ms(uint64_t ms)
{
    (void)usleep((useconds_t)(ms * 1000U));
}

static void start_daemon(void)
{
    t.daemon = fork();
    assert_true(t.daemon >= 0);
    if (t.daemon == 0) {
        int out = open(t.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

        (void)dup2(out, STDERR_FILENO);
        (void)execl(t.daemon_path, "holdfastd", "--segment", t.segment, "--policy", t.policy, "--store",
                    t.url, "--store-name", "pause", "--slots", "1024", (char *)NULL);
        _exit(127);
    }
}

static void open_segment(void)
{
    for (uint32_t waited_ms = 0; waited_ms < PATIENCE_MS; waited_ms += 20) {
        if (t.shared == NULL && holdfast_open(t.segment, &t.shared, NULL, 0) == HOLDFAST_OK) {
            assert_int_equal(holdfast_join(t.shared, &t.handle), HOLDFAST_OK);
        }
        if (t.shared != NULL && hf_segment_state(t.handle->seg) == HF_SEGMENT_READY) {
            return;
        }
        pause_ms(20);
    }
    fail_msg("the daemon did not come up: look at %s", t.log);
}

/* Reads the clock over and over. */
static void watch(void)
{
    struct holdfast_segment *segment = NULL;
    struct holdfast *handle = NULL;

    if (holdfast_open(t.segment, &segment, NULL, 0) != HOLDFAST_OK ||
        holdfast_join(segment, &handle) != HOLDFAST_OK) {
        _exit(1);
    }
    while (hf_load_acq_u32(&t.seen->stop) == 0) { /* plain: a flag */
        uint64_t now = holdfast_now_ms(handle);

        t.seen->backwards += now < t.seen->now_ms;
        t.seen->now_ms = now;
        t.seen->reads++;
        hf_store_rel_u32(&t.seen->ready, 1);
        if (t.seen->reads % 1000 == 0) {
            pause_ms(1);
        }
    }
    holdfast_leave(handle);
    holdfast_close(segment);
    _exit(0);
}

static int reserve(const char *id)
{
    struct holdfast_request request;
    struct holdfast_answer answer;

    holdfast_request_init(&request);
    request.id = id;
    request.tenant = "t";
    request.team = "u";
    request.capability = "c";
    request.cost_micros = 60; /* one fits into the limit, two do not */
    request.ttl_ms = TTL_MS;
    return holdfast_reserve(t.handle, &request, &answer);
}

/* The hold of another is past its deadline, so there is room again: whoever has to, reaps it. */
static void expect_room(const char *id)
{
    int rc = HOLDFAST_REFUSED;

    for (uint64_t until = hf_clock_mono_fine_ms() + PATIENCE_MS;
         rc == HOLDFAST_REFUSED && hf_clock_mono_fine_ms() < until;) {
        rc = reserve(id);
        pause_ms(5);
    }
    assert_int_equal(rc, HOLDFAST_OK);
}

static void release(const char *id)
{
    struct holdfast_closing closing;

    assert_int_equal(holdfast_release(t.handle, id, 0, &closing), HOLDFAST_OK);
}

/* Elapsed time and the clock went on by at least as much; the bound above is that of somebody who looked at both sides. */
static void expect_clock(uint64_t clock_ms, uint64_t mono_ms)
{
    uint64_t least = hf_clock_mono_ms() - mono_ms; /* the coarse clock is late */
    uint64_t clock = holdfast_now_ms(t.handle) - clock_ms;
    uint64_t most = hf_clock_mono_fine_ms() - mono_ms;

    assert_true(least >= PAUSE_MS - 10U);
    assert_in_range(clock, least - 500U, most + 500U); /* steps of up to half a second are taken at once */
}

static void stop_and_go_on(bool all)
{
    uint64_t mono_ms = hf_clock_mono_fine_ms();
    uint64_t clock_ms = holdfast_now_ms(t.handle);

    assert_int_equal(kill(t.daemon, SIGSTOP), 0);
    if (all) {
        assert_int_equal(kill(t.worker, SIGSTOP), 0);
    }
    pause_ms(PAUSE_MS);
    expect_clock(clock_ms, mono_ms);
    if (all) {
        assert_int_equal(kill(t.worker, SIGCONT), 0);
        assert_int_equal(kill(t.daemon, SIGCONT), 0);
        pause_ms(1500); /* the daemon asks the store again */
        expect_clock(clock_ms, mono_ms);
    }
}

static void it_goes_on_where_time_is(void **state)
{
    struct holdfast_closing closing;
    struct holdfast_usage usage;
    int status = 0;

    (void)state;
    assert_int_equal(reserve("a"), HOLDFAST_OK);
    stop_and_go_on(true);
    expect_room("b");
    release("b");
    /* The daemon alone: a worker that is refused closes the dead one's hold itself. */
    assert_int_equal(reserve("c"), HOLDFAST_OK);
    stop_and_go_on(false);
    expect_room("d");
    release("d");
    /* And gone for good. */
    assert_int_equal(kill(t.daemon, SIGKILL), 0);
    assert_int_equal(waitpid(t.daemon, NULL, 0), t.daemon);
    t.daemon = 0;
    assert_int_equal(reserve("e"), HOLDFAST_OK);
    uint64_t mono_ms = hf_clock_mono_fine_ms();
    uint64_t clock_ms = holdfast_now_ms(t.handle);

    pause_ms(PAUSE_MS);
    expect_clock(clock_ms, mono_ms);
    expect_room("f");
    release("f");
    start_daemon();
    assert_int_equal(holdfast_wait_durable(t.handle, "f", 0, PATIENCE_MS), HOLDFAST_OK);
    assert_int_equal(holdfast_flush(t.handle, PATIENCE_MS), HOLDFAST_OK);
    holdfast_usage_init(&usage, 1, 1);
    usage.cost_micros = 1;
    assert_int_equal(holdfast_settle(t.handle, "a", 0, &usage, HOLDFAST_SUCCESS, NULL, &closing),
                     HOLDFAST_OK);
    assert_int_equal(closing.late, 1);
    const uint64_t *alarms = t.handle->seg->header->hdr_alarms;

    assert_int_equal(alarms[HF_ALARM_EXPIRED], 3);
    assert_int_equal(alarms[HF_ALARM_CLOCK_JUMP], 0);
    hf_store_rel_u32(&t.seen->stop, 1);
    assert_int_equal(waitpid(t.worker, &status, 0), t.worker);
    t.worker = 0;
    assert_int_equal(status, 0);
    assert_int_equal(t.seen->backwards, 0);
    assert_true(t.seen->reads > 1000);
    print_message("totals: stopped together, the daemon alone, the daemon gone; %" PRIu64
                  " looks at the clock, none behind the one before it\n",
                  t.seen->reads);
}

static int begin(void **state)
{
    struct hf_store_error error = {""};

    (void)state;
    (void)snprintf(t.folder, sizeof(t.folder), "/tmp/holdfast-pause-XXXXXX");
    assert_non_null(mkdtemp(t.folder));
    (void)snprintf(t.policy, sizeof(t.policy), "%s/policy.yaml", t.folder);
    (void)snprintf(t.log, sizeof(t.log), "%s/daemon.log", t.folder);
    (void)snprintf(t.segment, sizeof(t.segment), "%s/segment", t.folder);
    (void)snprintf(t.url, sizeof(t.url), "sqlite:%s/store.db", t.folder);
    FILE *out = fopen(t.policy, "we");

    assert_non_null(out);
    assert_true(fputs(policy_text, out) >= 0);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(hf_store_init(t.url, NULL, &error), HF_STORE_OK);
    t.seen = mmap(NULL, sizeof(*t.seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(t.seen != MAP_FAILED);
    start_daemon();
    open_segment();
    t.worker = fork();
    assert_true(t.worker >= 0);
    if (t.worker == 0) {
        watch();
    }
    while (hf_load_acq_u32(&t.seen->ready) == 0 &&
           waitpid(t.worker, NULL, WNOHANG) == 0) { /* plain: a flag */
        pause_ms(5);
    }
    return 0;
}

static int end(void **state)
{
    const pid_t left[] = {t.daemon, t.worker};
    char command[128];

    (void)state;
    holdfast_leave(t.handle);
    holdfast_close(t.shared);
    for (int i = 0; i < 2; i++) {
        if (left[i] != 0) {
            (void)kill(left[i], SIGKILL);
            (void)waitpid(left[i], NULL, 0);
        }
    }
    (void)snprintf(command, sizeof(command), "rm -rf %s", t.folder);
    return system(command); /* NOLINT: the folder is the test's own */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_goes_on_where_time_is, begin, end),
    };

    if (argc != 3 || strcmp(argv[1], "--daemon") != 0) {
        (void)fprintf(stderr, "usage: backlog_pause --daemon HOLDFASTD\n");
        return 2;
    }
    t.daemon_path = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
