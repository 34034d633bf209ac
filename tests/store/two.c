/* Two daemons on one segment, two segments under one name, a host that comes back after another took over: on each store. The second
 * is refused with a sentence that says what is the matter; a segment that was overtaken spends nothing. */
#include "tests/store/rig.h"
#include "tests/support/quota.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct {
    struct rig rig;
    struct hf_test_daemon other; /* on another host: its own segment, the same store and name */
    char url[512];
    char other_store[512];
    bool postgres;
    uint64_t refusals;
} t;

static int open_sqlite(void **state)
{
    const struct hf_store_options quick = {.lock_wait_ms = 100};

    (void)state;
    t.postgres = false;
    rig_prepare(&t.rig, NULL, &quick);
    (void)snprintf(t.other_store, sizeof(t.other_store), "sqlite:%s/other.db", t.rig.daemon.folder);
    rig_open(&t.rig);
    return 0;
}

static int open_postgres(void **state)
{
    const char *server = getenv("HOLDFAST_TEST_PG");
    const struct hf_store_options quick = {.lock_wait_ms = 100};

    (void)state;
    t.postgres = server != NULL && server[0] != '\0';
    if (!t.postgres) {
        return 0;
    }
    rig_database(t.url, sizeof(t.url));
    rig_database(t.other_store, sizeof(t.other_store));
    rig_prepare(&t.rig, t.url, &quick);
    rig_open(&t.rig);
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    if (t.rig.daemon.handle != NULL) {
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

static void expect_refused(const struct hf_serve_options *options, enum hf_serve_status wanted,
                           const char *words)
{
    struct hf_policy_report report = {0};
    struct hf_error err = {.text = ""};
    struct hf_serve *serve = NULL;
    enum hf_serve_status status = hf_serve_open(options, &serve, &report, &err);

    hf_policy_report_free(&report);
    assert_null(serve);
    assert_int_equal(status, wanted);
    if (strstr(err.text, words) == NULL) {
        fail_msg("'%s' is not in: %s", words, err.text);
    }
    t.refusals++;
}

static bool admits(struct hf_test_daemon *daemon, const char *id)
{
    struct holdfast_answer answer;

    return hf_test_reserve(daemon->handle, id, "u", NULL, 1, 1, &answer) == HOLDFAST_OK;
}

/* A daemon that runs has segment and name to itself, and is not disturbed by those who try. */
static void a_second_daemon(bool postgres)
{
    struct hf_serve_options options;
    struct hf_store_error error = {""};
    char segment[256];

    need(postgres);
    rig_step(&t.rig);
    /* The same of all. */
    expect_refused(&t.rig.daemon.options, HF_SERVE_LOCKED, "another daemon uses the store");
    /* The same store and name, another segment: another host. */
    options = t.rig.daemon.options;
    (void)snprintf(segment, sizeof(segment), "%s/second", t.rig.daemon.folder);
    options.segment = segment;
    expect_refused(&options, HF_SERVE_LOCKED, "under the name 'test'");
    assert_int_equal(access(segment, F_OK), -1);
    /* The same segment, another store: the name is free there, the segment is not. */
    options = t.rig.daemon.options;
    options.store_url = t.other_store;
    assert_int_equal(hf_store_init(t.other_store, NULL, &error), HF_STORE_OK);
    expect_refused(&options, HF_SERVE_REFUSED, "daemon");
    (void)rig_drain(&t.rig, 10);
    rig_check(&t.rig);
    assert_true(admits(&t.rig.daemon, "still"));
}

static void a_second_daemon_on_sqlite(void **state)
{
    (void)state;
    a_second_daemon(false);
}

static void a_second_daemon_on_postgres(void **state)
{
    (void)state;
    a_second_daemon(true);
}

/* Host A is away (its daemon gone, its workers alive), host B takes over the name, A comes back: refused, and its workers are
 * answered nothing but refusals. While B runs, and after B has gone. */
static void a_host_that_comes_back(bool postgres)
{
    need(postgres);
    rig_step(&t.rig);
    (void)rig_drain(&t.rig, 10);
    assert_true(admits(&t.rig.daemon, "before"));
    hf_test_daemon_drop(&t.rig.daemon);
    t.other = t.rig.daemon;
    (void)snprintf(t.other.segment, sizeof(t.other.segment), "%.100s/host-b", t.rig.daemon.folder);
    t.other.options.segment = t.other.segment;
    t.other.options.log_ctx = &t.other;
    t.other.handle = NULL;
    t.other.shared = NULL;
    hf_test_daemon_open(&t.other);
    assert_non_null(hf_serve_recovered(t.other.serve));
    assert_true(admits(&t.other, "after"));
    hf_test_daemon_drain(&t.other);
    expect_refused(&t.rig.daemon.options, HF_SERVE_LOCKED, "another daemon");
    hf_test_daemon_close(&t.other);
    expect_refused(&t.rig.daemon.options, HF_SERVE_REFUSED, "superseded");
    for (int i = 0; i < 10; i++) {
        char id[16];

        (void)snprintf(id, sizeof(id), "late-%d", i);
        assert_false(admits(&t.rig.daemon, id));
    }
    /* Its workers gone, a new segment is made of the store, in which B's reservation is. */
    holdfast_leave(t.rig.daemon.handle);
    holdfast_close(t.rig.daemon.shared);
    t.rig.daemon.handle = NULL;
    t.rig.daemon.shared = NULL;
    rig_open(&t.rig);
    struct hf_receipt rows[2];

    assert_int_equal(hf_test_daemon_receipts(&t.rig.daemon, "after", rows, 2), 1);
    assert_int_equal(hf_test_daemon_receipts(&t.rig.daemon, "before", rows, 2),
                     0); /* never committed: a gap */
    assert_int_equal(t.rig.daemon.seg->header->hdr_epoch, 3);
}

static void a_host_on_sqlite(void **state)
{
    (void)state;
    a_host_that_comes_back(false);
}

static void a_host_on_postgres(void **state)
{
    (void)state;
    a_host_that_comes_back(true);
}

/* Host A runs on while its connection is cut off for long, and B takes over: found by A's next batch. */
static void overtaken_while_it_runs(void **state)
{
    (void)state;
    need(true);
    rig_step(&t.rig);
    (void)rig_drain(&t.rig, 10);
    hf_store_disconnect(
        hf_serve_store(t.rig.daemon.serve)); /* the server sees its session end, and frees the name */
    t.other = t.rig.daemon;
    (void)snprintf(t.other.segment, sizeof(t.other.segment), "%.100s/host-b", t.rig.daemon.folder);
    t.other.options.segment = t.other.segment;
    t.other.options.log_ctx = &t.other;
    t.other.handle = NULL;
    t.other.shared = NULL;
    t.other.serve = NULL;
    hf_test_daemon_open(&t.other);
    assert_true(admits(&t.rig.daemon, "meanwhile"));
    assert_int_equal(rig_cycle(&t.rig), HF_DRAIN_WAITING); /* B has the name */
    assert_true(admits(&t.other, "of-b"));
    hf_test_daemon_drain(&t.other);
    hf_test_daemon_close(&t.other);
    assert_int_equal(rig_cycle(&t.rig), HF_DRAIN_SUPERSEDED);
    assert_false(admits(&t.rig.daemon, "never"));
    t.refusals++;
}

static int tell(void **state)
{
    (void)state;
    print_message("totals: %" PRIu64 " daemons and hosts refused\n", t.refusals);
    return 0;
}

int main(void)
{
#define LITE(name) cmocka_unit_test_setup_teardown(name, open_sqlite, close_rig)
#define PG(name)   cmocka_unit_test_setup_teardown(name, open_postgres, close_rig)
    const struct CMUnitTest tests[] = {
        LITE(a_second_daemon_on_sqlite), PG(a_second_daemon_on_postgres), LITE(a_host_on_sqlite),
        PG(a_host_on_postgres),          PG(overtaken_while_it_runs),
    };
#undef LITE
#undef PG
    cmocka_set_test_filter(getenv("HOLDFAST_CASE"));
    return cmocka_run_group_tests(tests, NULL, tell);
}
