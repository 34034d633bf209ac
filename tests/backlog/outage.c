/* The store is away for long while requests come at a steady rate: real daemon, real time, lag limit and slots set for it.
 *
 *   backlog_outage --daemon HOLDFASTD --command HOLDFAST --store sqlite|postgres [--seconds N] [--rate N]
 *
 * Nothing is refused, everything can be settled, `holdfast status` shows what waits, and when the store is back all of it is
 * committed, once: rows and sums are those that were admitted. Prints the memory that it took and how long the recovery was;
 * decides nothing by time. SQLite is taken away by another writer that holds the file, PostgreSQL by stopping the server. */
#include "core/client.h"
#include "persist/store.h"
#include "shm/clock.h"
#include "tests/support/server.h"

#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include <cmocka.h>

#define CALL_S      1U /* a call takes so long */
#define HORIZON_S   60U
#define MARGIN_S    40U /* of the lag limit, beside half of the outage for catching up */
#define PATIENCE_MS 300000U

struct options {
    const char *daemon;
    const char *command;
    bool postgres;
    uint64_t seconds;
    uint64_t rate;
};

static struct options options = {.rate = 2000};

/* What was admitted and closed, as the caller knows it. */
struct told {
    uint64_t reserved_cnt;
    uint64_t settled_cnt;
    int64_t held_micros;
    int64_t charged_micros;
    int64_t charged_tokens;
};

struct test {
    char folder[64]; /* policy, log, SQLite file */
    char segment[96];
    char policy[96];
    char log[96];
    char url[256];
    struct hf_server server;
    sqlite3 *other;
    pid_t daemon;
    struct holdfast_segment *shared;
    struct holdfast *handle;
    struct told told;
    uint64_t begun_ms;
    uint64_t made; /* requests since begun_ms */
    uint64_t settled_n;
};

static struct test t;

static const char policy_text[] =
    "version: 1\n"
    "currency: EUR\n"
    "prices: {revision: '1', models: []}\n"
    "defaults: {ttl_ms: 3600000}\n"
    "tenants:\n"
    "  - id: t\n"
    "    limits: [{window: month, cost_micros: 900000000000, invocations: 900000000}]\n"
    "    teams:\n"
    "      - {id: u, limits: [{window: month, cost_micros: 900000000000}],\n"
    "         capabilities: [{id: c, cap_micros: 100000, cap_tokens: 100000}]}\n";

/* The lag limit: it counts from the oldest change that is not committed, so it also has the time of catching up. */
static uint64_t limit_s(void)
{
    return options.seconds + options.seconds / 2U + MARGIN_S;
}

static uint64_t slots(void)
{
    /* The rule of the README, for an outage of that length. */
    return options.rate * (limit_s() + CALL_S + HORIZON_S) * 4 / 3;
}

/* ---- the daemon and its store ------------------------------------------------------------------------------------ */

static void prepare_store(void)
{
    struct hf_store_error error = {""};

    if (options.postgres) {
        if (!hf_server_make(&t.server, "")) {
            print_message("no PostgreSQL here (HOLDFAST_TEST_PG_BIN): left out\n");
            exit(77);
        }
        hf_server_start(&t.server);
        hf_server_url(&t.server, "postgres", "postgres", t.url, sizeof(t.url));
    } else {
        (void)snprintf(t.url, sizeof(t.url), "sqlite:%s/store.db", t.folder);
    }
    if (hf_store_init(t.url, NULL, &error) != HF_STORE_OK) {
        fail_msg("store init: %s", error.text);
    }
}

static void take_store_away(void)
{
    if (options.postgres) {
        hf_server_stop(&t.server, SIGINT);
        return;
    }
    assert_int_equal(sqlite3_open(t.url + strlen("sqlite:"), &t.other), SQLITE_OK);
    (void)sqlite3_busy_timeout(t.other, 60000);
    assert_int_equal(sqlite3_exec(t.other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
}

static void bring_store_back(void)
{
    if (options.postgres) {
        hf_server_start(&t.server);
        return;
    }
    assert_int_equal(sqlite3_exec(t.other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(t.other), SQLITE_OK);
}

static void start_daemon(void)
{
    char slots_text[24];
    char lag_text[24];

    (void)snprintf(slots_text, sizeof(slots_text), "%" PRIu64, slots());
    (void)snprintf(lag_text, sizeof(lag_text), "%" PRIu64, limit_s() * 1000);
    t.daemon = fork();
    assert_true(t.daemon >= 0);
    if (t.daemon == 0) {
        int out = open(t.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

        (void)dup2(out, STDERR_FILENO);
        (void)execl(options.daemon, "holdfastd", "--segment", t.segment, "--policy", t.policy, "--store",
                    t.url, "--store-name", "backlog", "--slots", slots_text, "--max-lag-ms", lag_text,
                    (char *)NULL);
        _exit(127);
    }
    for (uint32_t waited_ms = 0; waited_ms < PATIENCE_MS; waited_ms += 20) {
        if (t.shared == NULL && holdfast_open(t.segment, &t.shared, NULL, 0) == HOLDFAST_OK) {
            assert_int_equal(holdfast_join(t.shared, &t.handle), HOLDFAST_OK);
        }
        if (t.shared != NULL && hf_segment_state(t.handle->seg) == HF_SEGMENT_READY) {
            return;
        }
        (void)usleep(20000);
    }
    fail_msg("the daemon did not come up: look at %s", t.log);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static uint64_t micros_of(uint64_t n)
{
    return 1 + n % 500;
}

static void reserve(uint64_t n)
{
    struct holdfast_request request;
    struct holdfast_answer answer;
    char id[32];

    (void)snprintf(id, sizeof(id), "r%" PRIu64, n);
    holdfast_request_init(&request);
    request.id = id;
    request.tenant = "t";
    request.team = "u";
    request.capability = "c";
    request.cost_micros = micros_of(n);
    request.tokens = 10;
    int rc = holdfast_reserve(t.handle, &request, &answer);

    if (rc != HOLDFAST_OK) {
        fail_msg("r%" PRIu64 " was not admitted: result %d, reason %d", n, rc, answer.reason);
    }
    t.told.reserved_cnt++;
    t.told.held_micros += (int64_t)micros_of(n);
}

static void settle(uint64_t n)
{
    struct holdfast_usage usage;
    struct holdfast_closing closing;
    char id[32];

    (void)snprintf(id, sizeof(id), "r%" PRIu64, n);
    holdfast_usage_init(&usage, n % 7, n % 5);
    usage.cost_micros = micros_of(n) / 2;
    assert_int_equal(holdfast_settle(t.handle, id, 0, &usage, HOLDFAST_SUCCESS, NULL, &closing), HOLDFAST_OK);
    t.told.settled_cnt++;
    t.told.held_micros -= (int64_t)micros_of(n);
    t.told.charged_micros += (int64_t)usage.cost_micros;
    t.told.charged_tokens += (int64_t)(n % 7 + n % 5);
}

/* What is due by now at the rate; each call is settled CALL_S later. */
static void work(void)
{
    uint64_t due = (hf_clock_mono_fine_ms() - t.begun_ms) * options.rate / 1000U;

    while (t.made < due) {
        reserve(t.made++);
        if (t.made > options.rate * CALL_S) {
            settle(t.settled_n++);
        }
    }
    (void)usleep(1000);
}

static void work_for(uint64_t ms)
{
    uint64_t until = hf_clock_mono_fine_ms() + ms;

    while (hf_clock_mono_fine_ms() < until) {
        work();
    }
}

static uint64_t lag_ms(void)
{
    uint64_t durable = hf_load_rlx_u64(&t.handle->seg->header->hdr_durable_ms); /* relaxed: a gauge */
    uint64_t now = hf_clock_mono_fine_ms();

    return now > durable ? now - durable : 0;
}

/* ---- what can be seen -------------------------------------------------------------------------------------------- */

/* A line of /proc/PID/status in KiB. */
static uint64_t memory_kib(const char *line)
{
    char path[64];
    char text[128];
    uint64_t kib = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)t.daemon);
    FILE *in = fopen(path, "re");

    assert_non_null(in);
    while (fgets(text, sizeof(text), in) != NULL) {
        if (strncmp(text, line, strlen(line)) == 0) {
            kib = strtoull(text + strlen(line) + 1, NULL, 10);
        }
    }
    assert_int_equal(fclose(in), 0);
    return kib;
}

static void say_memory(const char *when)
{
    print_message("%-20s daemon: own memory %" PRIu64 " KiB, of the segment %" PRIu64 " KiB\n", when,
                  memory_kib("RssAnon"), memory_kib("RssShmem"));
}

/* What `holdfast status` prints. */
static void read_status(char *text, size_t text_bytes)
{
    char command[512];

    (void)snprintf(command, sizeof(command), "%s status --segment %s", options.command, t.segment);
    FILE *in = popen(command, "re"); /* NOLINT: paths of the test's own */

    assert_non_null(in);
    text[fread(text, 1, text_bytes - 1, in)] = '\0';
    assert_int_equal(pclose(in), 0); /* open for work, and its daemon lives */
}

/* The number after `before` in a line that begins with `line`. */
static uint64_t number_of(const char *text, const char *line, const char *before)
{
    const char *at = strstr(text, line);

    at = at == NULL ? NULL : strstr(at, before);
    if (at == NULL) {
        fail_msg("holdfast status says nothing of '%s ... %s':\n%s", line, before, text);
    }
    return strtoull(at + strlen(before), NULL, 10);
}

/* At the end of the outage: at least what was admitted during it waits, and since about then. */
static void check_status(uint64_t admitted, uint64_t away_ms)
{
    char text[4096];

    read_status(text, sizeof(text));
    uint64_t lag = number_of(text, "\nlag", "lag");
    uint64_t waiting = number_of(text, "\nunwritten", "unwritten");
    uint64_t oldest = number_of(text, "\nunwritten", "the oldest change");

    assert_true(lag >= away_ms);
    assert_int_equal(number_of(text, "\nlag", " of "), limit_s() * 1000);
    assert_true(waiting >= admitted);
    /* A slot that is settled changed last when it was settled. */
    assert_true(oldest >= away_ms - CALL_S * 1000U);
    print_message("status: lag %" PRIu64 " ms, %" PRIu64 " slots unwritten, the oldest change %" PRIu64
                  " ms ago\n",
                  lag, waiting, oldest);
}

static void check_store(void)
{
    struct hf_store_options reader = {.role = HF_STORE_READER};
    struct hf_store_totals totals;
    struct hf_store *store = NULL;
    struct hf_store_error error = {""};

    if (hf_store_open(t.url, &reader, &store, &error) != HF_STORE_OK ||
        hf_store_totals(store, "backlog", &totals, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
    hf_store_close(store);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_RESERVATION], t.told.reserved_cnt);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_SETTLEMENT], t.told.settled_cnt);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_EXPIRY] + totals.kinds_cnt[HF_RECEIPT_LATE], 0);
    assert_int_equal(totals.conflicts_cnt + totals.aside_cnt, 0);
    assert_int_equal(totals.receipts_cnt, totals.batch_rows_cnt);
    assert_int_equal((int64_t)totals.held[0], (int64_t)(t.told.reserved_cnt - t.told.settled_cnt));
    assert_int_equal((int64_t)totals.held[2], t.told.held_micros);
    assert_int_equal((int64_t)totals.charged[0], (int64_t)t.told.settled_cnt);
    assert_int_equal((int64_t)totals.charged[1], t.told.charged_tokens);
    assert_int_equal((int64_t)totals.charged[2], t.told.charged_micros);
    print_message("totals: %" PRIu64 " s away at %" PRIu64 " requests a second; %" PRIu64
                  " reservations and %" PRIu64 " settlements, each once, in %" PRIu64 " batches\n",
                  options.seconds, options.rate, t.told.reserved_cnt, t.told.settled_cnt, totals.batches_cnt);
}

/* ---- the test ---------------------------------------------------------------------------------------------------- */

static void recover(void)
{
    uint64_t back_ms = hf_clock_mono_fine_ms();
    uint64_t waited_ms = 0;

    while (lag_ms() > 1000 && waited_ms < PATIENCE_MS) {
        work();
        waited_ms = hf_clock_mono_fine_ms() - back_ms;
    }
    assert_true(waited_ms < PATIENCE_MS);
    print_message("recovered            %" PRIu64 " ms after the store was back, under the same load\n",
                  waited_ms);
}

static void nothing_is_dropped(void **state)
{
    int status = 0;

    (void)state;
    prepare_store();
    start_daemon();
    print_message("segment              %" PRIu64 " slots, %" PRIu64 " KiB\n", slots(),
                  t.handle->seg->size_bytes / 1024U);
    t.begun_ms = hf_clock_mono_fine_ms();
    work_for(3000);
    say_memory("before");
    take_store_away();
    uint64_t away_ms = hf_clock_mono_fine_ms();
    uint64_t before = t.told.reserved_cnt;

    work_for(options.seconds * 1000);
    away_ms = hf_clock_mono_fine_ms() - away_ms;
    check_status(t.told.reserved_cnt - before, away_ms);
    say_memory("at its end");
    bring_store_back();
    recover();
    say_memory("after");
    assert_int_equal(t.handle->seg->header->hdr_alarms[HF_ALARM_BUSY], 0);
    assert_int_equal(t.handle->seg->header->hdr_alarms[HF_ALARM_FORGOTTEN], 0);
    assert_int_equal(holdfast_flush(t.handle, PATIENCE_MS), HOLDFAST_OK);
    holdfast_leave(t.handle);
    holdfast_close(t.shared);
    assert_int_equal(kill(t.daemon, SIGTERM), 0);
    assert_int_equal(waitpid(t.daemon, &status, 0), t.daemon);
    t.daemon = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    check_store();
}

/* ---- around it --------------------------------------------------------------------------------------------------- */

static int make_folders(void **state)
{
    (void)state;
    (void)snprintf(t.folder, sizeof(t.folder), "/tmp/holdfast-backlog-XXXXXX");
    if (mkdtemp(t.folder) == NULL) {
        return -1;
    }
    (void)snprintf(t.policy, sizeof(t.policy), "%s/policy.yaml", t.folder);
    (void)snprintf(t.log, sizeof(t.log), "%s/daemon.log", t.folder);
    (void)snprintf(t.segment, sizeof(t.segment), "/dev/shm/holdfast-backlog-%d", (int)getpid());
    FILE *out = fopen(t.policy, "we");

    return out != NULL && fputs(policy_text, out) >= 0 && fclose(out) == 0 ? 0 : -1;
}

static int remove_folders(void **state)
{
    char command[512];

    (void)state;
    if (t.daemon != 0) {
        (void)kill(t.daemon, SIGKILL);
        (void)waitpid(t.daemon, NULL, 0);
    }
    if (t.server.folder[0] != '\0') {
        hf_server_remove(&t.server);
    }
    (void)snprintf(command, sizeof(command), "rm -rf %s %s %s.lock", t.folder, t.segment, t.segment);
    return system(command); /* NOLINT: paths of the test's own */
}

static bool read_options(int argc, char **argv)
{
    static const struct option list[] = {
        {"daemon", required_argument, NULL, 'd'}, {"command", required_argument, NULL, 'c'},
        {"store", required_argument, NULL, 's'},  {"seconds", required_argument, NULL, 'n'},
        {"rate", required_argument, NULL, 'r'},   {NULL, 0, NULL, 0},
    };
    const char *is_long = getenv("HOLDFAST_LONG");
    int letter;

    while ((letter = getopt_long(argc, argv, "", list, NULL)) != -1) {
        switch (letter) {
        case 'd':
            options.daemon = optarg;
            break;
        case 'c':
            options.command = optarg;
            break;
        case 's':
            options.postgres = strcmp(optarg, "postgres") == 0;
            break;
        case 'n':
            options.seconds = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            options.rate = strtoull(optarg, NULL, 10);
            break;
        default:
            return false;
        }
    }
    if (is_long != NULL && strcmp(is_long, "1") == 0) {
        options.seconds = 600;
    }
    return options.daemon != NULL && options.command != NULL && options.seconds != 0 && options.rate != 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_dropped, make_folders, remove_folders),
    };

    if (!read_options(argc, argv)) {
        (void)fprintf(stderr, "usage: backlog_outage --daemon HOLDFASTD --command HOLDFAST --store "
                              "sqlite|postgres --seconds N [--rate N]\n");
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
