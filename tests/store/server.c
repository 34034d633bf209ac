/* What a PostgreSQL server does to the daemon: killed and started again, too many connections, another password for a while, a
 * disk that is full, a session that hangs, a missing table. Each: what waits is kept, nothing is put aside, and afterwards rows and
 * sums equal what the segment admitted. The server is the test's own (HOLDFAST_TEST_PG_BIN). */
#include "tests/support/server.h"
#include "tests/store/rig.h"
#include "tests/support/proxy.h"

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

#include <libpq-fe.h>
#include <cmocka.h>

#define KILLS_CI   4U
#define KILLS_LONG 40U

static struct {
    struct hf_server server;
    struct rig rig;
    struct hf_proxy *proxy;
    char proxy_folder[64];
    char url[256];
    uint64_t faults;
    uint64_t rows;
} t;

static const struct hf_store_options quick = {
    .connect_timeout_ms = 2000, .statement_timeout_ms = 700, .lock_wait_ms = 5000};

static int make_server(void **state)
{
    (void)state;
    if (!hf_server_make(&t.server, "superuser_reserved_connections = 3\nmax_connections = 8")) {
        print_message("no PostgreSQL here (HOLDFAST_TEST_PG_BIN): left out\n");
        exit(77);
    }
    hf_server_start(&t.server);
    (void)hf_server_sql(&t.server, "postgres", "CREATE ROLE holdfast_runtime NOLOGIN");
    (void)hf_server_sql(&t.server, "postgres", "CREATE ROLE holdfast_reader NOLOGIN");
    (void)hf_server_sql(&t.server, "postgres",
                        "CREATE ROLE gate LOGIN PASSWORD 'open sesame' IN ROLE holdfast_runtime");
    (void)snprintf(t.proxy_folder, sizeof(t.proxy_folder), "/tmp/hf-px.XXXXXX");
    assert_non_null(mkdtemp(t.proxy_folder));
    return 0;
}

static int remove_server(void **state)
{
    (void)state;
    print_message("totals: %" PRIu64 " faults of a server, %" PRIu64 " receipts, each once\n", t.faults,
                  t.rows);
    hf_server_remove(&t.server);
    return rmdir(t.proxy_folder);
}

/* A new database with the schema, the daemon as user `gate` by way of the proxy, some rows committed. */
static int open_rig(void **state)
{
    static unsigned made;
    static char gate[256];
    char sql[64];
    char name[32];
    char path[128];

    (void)state;
    (void)snprintf(name, sizeof(name), "db%u", made++);
    (void)snprintf(sql, sizeof(sql), "CREATE DATABASE %s", name);
    assert_string_equal(hf_server_sql(&t.server, "postgres", sql), "");
    hf_server_url(&t.server, "postgres", name, t.url, sizeof(t.url));
    (void)snprintf(path, sizeof(path), "%s/.s.PGSQL.5432", t.server.folder);
    t.proxy = hf_proxy_open(t.proxy_folder, path);
    assert_non_null(t.proxy);
    (void)snprintf(gate, sizeof(gate), "postgresql://gate:open%%20sesame@/%s?host=%s", name, t.proxy_folder);
    rig_prepare(&t.rig, t.url, &quick);
    t.rig.daemon.options.store_url = gate;
    rig_open(&t.rig);
    rig_step(&t.rig);
    (void)rig_drain(&t.rig, 10);
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    (void)rig_drain(&t.rig, 200);
    rig_check(&t.rig);
    t.rows += rig_rows(&t.rig);
    rig_close(&t.rig);
    hf_proxy_close(t.proxy);
    return 0;
}

/* The store is away: some cycles, in which work goes on, wait. */
static void stay_away(uint32_t cycles)
{
    for (uint32_t i = 0; i < cycles; i++) {
        rig_step(&t.rig);
        enum hf_drain_result result = rig_cycle(&t.rig);

        if (result != HF_DRAIN_WAITING) {
            fail_msg("the drain answers %d, not that it waits:\n%s", (int)result, t.rig.daemon.log);
        }
    }
    t.faults++;
}

static void expect_said(const char *words)
{
    if (strstr(t.rig.daemon.log, words) == NULL) {
        fail_msg("'%s' is not in: %s", words, t.rig.daemon.log);
    }
}

/* Nothing was put aside, and everything that waited is there. */
static void expect_back(void)
{
    (void)rig_drain(&t.rig, 200);
    rig_check(&t.rig);
    assert_int_equal(rig_alarm(&t.rig, HF_ALARM_STORE_CONFLICT), 0);
    assert_int_equal(rig_alarm(&t.rig, HF_ALARM_CONFLICT), 0);
    assert_true(rig_alarm(&t.rig, HF_ALARM_STORE_RETRY) > 0);
}

/* ---- the cases ----------------------------------------------------------------------------------------------------- */

/* Under load: steps and cycles go on while another process kills and starts it. */
static void killed_and_started_again(void **state)
{
    uint32_t kills = rig_long() ? KILLS_LONG : KILLS_CI;

    (void)state;
    for (uint32_t i = 0; i < kills; i++) {
        /* At some place of a cycle: the drain is in the middle of it when a connection that the proxy delays is killed. */
        hf_store_disconnect(hf_serve_store(t.rig.daemon.serve));
        hf_proxy_arm(t.proxy, HF_PROXY_HANG, i % 2 == 0 ? HF_PROXY_UP : HF_PROXY_DOWN,
                     (rig_seed() + 997U * i) % 4000U);
        rig_step(&t.rig);
        (void)rig_cycle(&t.rig);
        hf_server_kill(&t.server);
        stay_away(2);
        hf_proxy_arm(t.proxy, HF_PROXY_NONE, HF_PROXY_UP, 0);
        hf_server_start(&t.server);
        rig_step(&t.rig);
        expect_back();
    }
}

static void too_many_connections(void **state)
{
    PGconn *others[8];
    char url[256];

    (void)state;
    hf_server_url(&t.server, "gate", "postgres", url, sizeof(url));
    hf_store_disconnect(hf_serve_store(t.rig.daemon.serve));
    for (int i = 0; i < 8; i++) {
        others[i] = PQconnectdb(url);
    }
    assert_int_not_equal(PQstatus(others[7]), CONNECTION_OK);
    stay_away(3);
    expect_said("connection slots are reserved");
    for (int i = 0; i < 8; i++) {
        PQfinish(others[i]);
    }
    expect_back();
}

/* A password that is wrong for a while: the daemon is refused and keeps everything. */
static void another_password(void **state)
{
    (void)state;
    hf_server_write(&t.server, "pg_hba.conf", "local all gate scram-sha-256\nlocal all all trust\n", false);
    hf_server_reload(&t.server);
    hf_store_disconnect(hf_serve_store(t.rig.daemon.serve));
    rig_step(&t.rig);
    assert_int_equal(rig_cycle(&t.rig), HF_DRAIN_WORKED); /* with the right one */
    (void)hf_server_sql(&t.server, "postgres", "ALTER ROLE gate PASSWORD 'other'");
    hf_store_disconnect(hf_serve_store(t.rig.daemon.serve));
    stay_away(4);
    expect_said("Look at user and password");
    assert_null(strstr(t.rig.daemon.log, "sesame"));
    (void)hf_server_sql(&t.server, "postgres", "ALTER ROLE gate PASSWORD 'open sesame'");
    expect_back();
    hf_server_write(&t.server, "pg_hba.conf", "local all all trust\nlocal replication all trust\n", false);
    hf_server_reload(&t.server);
}

static void no_rights_for_a_while(void **state)
{
    (void)state;
    const char *database = strstr(t.url, "@/") + 2;
    char name[32];

    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(database, "?"), database);
    assert_string_equal(
        hf_server_sql(&t.server, name, "REVOKE INSERT ON holdfast.receipt FROM holdfast_runtime"), "");
    stay_away(3);
    expect_said("Grant the role");
    (void)hf_server_sql(&t.server, name, "GRANT INSERT ON holdfast.receipt TO holdfast_runtime");
    expect_back();
    assert_string_equal(hf_server_sql(&t.server, name, "ALTER TABLE holdfast.receipt RENAME TO gone"), "");
    stay_away(3);
    expect_said("holdfast store init");
    (void)hf_server_sql(&t.server, name, "ALTER TABLE holdfast.gone RENAME TO receipt");
    expect_back();
}

static void answers(const char *statement, const char *sqlstate, const char *text, const char *said)
{
    struct hf_proxy_seen seen;

    t.rig.daemon.log[0] = '\0';
    hf_proxy_answer(t.proxy, statement, sqlstate, text, 3);
    if (statement == NULL) {
        hf_store_disconnect(hf_serve_store(t.rig.daemon.serve));
    }
    stay_away(3);
    hf_proxy_look(t.proxy, &seen);
    if (seen.answers_cnt != 3) {
        fail_msg("%s: %u answers\n%s", sqlstate, seen.answers_cnt, t.rig.daemon.log);
    }
    expect_said(said);
    expect_back();
}

static void a_full_disk(void **state)
{
    (void)state;
    answers("COPY receipt", "53100", "could not extend file: No space left on device",
            "Make room on the server");
    answers("COMMIT", "53100", "could not write to file: No space left on device", "Make room on the server");
}

static void a_server_that_refuses_for_a_while(void **state)
{
    (void)state;
    answers(NULL, "53300", "sorry, too many clients already", "too many clients");
    answers(NULL, "57P03", "the database system is starting up", "starting up");
    answers("COPY receipt", "53300", "too many connections", "Raise max_connections");
    answers("BEGIN", "25006", "cannot set transaction read-write mode during recovery",
            "The server only reads");
    answers("COPY receipt", "25006", "cannot execute COPY FROM in a read-only transaction",
            "The server only reads");
    answers("COPY receipt", "40P01", "deadlock detected", "tried again");
    answers("COMMIT", "40001", "could not serialize access", "tried again");
    answers("COPY receipt", "53200", "out of memory", "lacks resources");
    answers("COPY receipt", "58030", "could not read block", "disk and log");
}

/* The server's process of the daemon's connection is stopped in the middle: taken for lost after the statement timeout, its lock
 * taken back. */
static void a_session_that_hangs(void **state)
{
    uint64_t begun_ms = hf_clock_mono_fine_ms();

    (void)state;
    pid_t backend =
        (pid_t)strtol(hf_server_sql(&t.server, "postgres",
                                    "SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast'"),
                      NULL, 10);

    assert_true(backend > 1);
    assert_int_equal(kill(backend, SIGSTOP), 0);
    stay_away(1);
    expect_said("no answer in time");
    assert_int_equal(kill(backend, SIGCONT), 0);
    expect_back();
    print_message("a session that hung was given up, and all was there after %" PRIu64 " ms\n",
                  hf_clock_mono_fine_ms() - begun_ms);
}

/* A connection that goes silent anywhere in a cycle. */
static void a_connection_that_hangs(void **state)
{
    uint64_t step = rig_long() ? 97 : 1499;

    (void)state;
    for (int way = HF_PROXY_UP; way <= HF_PROXY_DOWN; way++) {
        for (uint64_t bytes = rig_seed() % step; bytes < (way == HF_PROXY_UP ? 7000 : 1500); bytes += step) {
            hf_store_disconnect(hf_serve_store(t.rig.daemon.serve));
            hf_proxy_arm(t.proxy, HF_PROXY_HANG, (enum hf_proxy_way)way, bytes);
            stay_away(1);
            hf_proxy_arm(t.proxy, HF_PROXY_NONE, HF_PROXY_UP, 0);
            expect_back();
        }
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    const char *only = getenv("HOLDFAST_CASE");
    const struct CMUnitTest tests[] = {
        CASE(killed_and_started_again),
        CASE(too_many_connections),
        CASE(another_password),
        CASE(no_rights_for_a_while),
        CASE(a_full_disk),
        CASE(a_server_that_refuses_for_a_while),
        CASE(a_session_that_hangs),
        CASE(a_connection_that_hangs),
    };
#undef CASE
    cmocka_set_test_filter(only);
    return cmocka_run_group_tests(tests, make_server, remove_server);
}
