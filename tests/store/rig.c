#include "tests/store/rig.h"

#include "persist/reconcile.h"
#include "shm/clock.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char policy_text[] =
    "version: 1\n"
    "currency: EUR\n"
    "prices: {revision: '1', models: []}\n"
    "defaults: {ttl_ms: 3600000}\n"
    "tenants:\n"
    "  - id: t\n"
    "    limits: [{window: month, cost_micros: 90000000000, invocations: 900000000}]\n"
    "    teams:\n"
    "      - {id: u, limits: [{window: month, cost_micros: 80000000000}, {window: lifetime, tokens: 90000000000}],\n"
    "         capabilities: [{id: c, cap_micros: 100000, cap_tokens: 100000}]}\n";

void rig_prepare(struct rig *rig, const char *url, const struct hf_store_options *store)
{
    struct hf_store_error error = {""};

    memset(rig, 0, sizeof(*rig));
    hf_test_daemon_prepare(&rig->daemon, policy_text, true);
    if (store != NULL) {
        rig->daemon.options.store = *store;
    }
    if (url != NULL) {
        if (hf_store_init(url, NULL, &error) != HF_STORE_OK) {
            fail_msg("store init: %s", error.text);
        }
        rig->daemon.options.store_url = url;
    }
    rig->random = rig_seed() * 2 + 1;
    rig->sums.kinds_cnt[HF_RECEIPT_EPOCH] = 1;
    rig->sums.kinds_cnt[HF_RECEIPT_POLICY] = 1;
}

void rig_open(struct rig *rig)
{
    hf_test_daemon_open(&rig->daemon);
    rig->mono_ms = hf_clock_mono_fine_ms();
}

void rig_close(struct rig *rig)
{
    hf_test_daemon_close(&rig->daemon);
    hf_test_daemon_clean(&rig->daemon);
}

/* ---- what happens ------------------------------------------------------------------------------------------------ */

static uint64_t draw(struct rig *rig, uint64_t below)
{
    rig->random ^= rig->random << 13;
    rig->random ^= rig->random >> 7;
    rig->random ^= rig->random << 17;
    return (rig->random >> 20) % below;
}

static const char *id_of(uint64_t n)
{
    static char id[32];

    (void)snprintf(id, sizeof(id), "r%" PRIu64, n);
    return id;
}

static void add(struct rig *rig, const struct rig_hold *hold, int64_t by)
{
    rig->sums.held[0] += by;
    rig->sums.held[1] += by * (int64_t)hold->tokens;
    rig->sums.held[2] += by * (int64_t)hold->cost;
}

static void reserve(struct rig *rig, struct rig_hold *hold)
{
    struct holdfast_request request;
    struct holdfast_answer answer;

    *hold = (struct rig_hold){rig->n++, draw(rig, 500), 1 + draw(rig, 500)};
    holdfast_request_init(&request);
    request.id = id_of(hold->n);
    request.tenant = "t";
    request.team = "u";
    request.capability = "c";
    request.tokens = hold->tokens;
    request.cost_micros = hold->cost;
    assert_int_equal(holdfast_reserve(rig->daemon.handle, &request, &answer), HOLDFAST_OK);
    rig->sums.kinds_cnt[HF_RECEIPT_RESERVATION]++;
    add(rig, hold, 1);
}

static void settle(struct rig *rig, const struct rig_hold *hold)
{
    struct holdfast_usage usage;
    struct holdfast_closing closing;
    uint64_t input = draw(rig, 100);
    uint64_t output = draw(rig, 100);

    holdfast_usage_init(&usage, input, output);
    usage.cost_micros = draw(rig, 600);
    assert_int_equal(
        holdfast_settle(rig->daemon.handle, id_of(hold->n), 0, &usage, HOLDFAST_SUCCESS, NULL, &closing),
        HOLDFAST_OK);
    rig->sums.kinds_cnt[HF_RECEIPT_SETTLEMENT]++;
    add(rig, hold, -1);
    rig->sums.charged[0]++;
    rig->sums.charged[1] += (int64_t)(input + output);
    rig->sums.charged[2] += (int64_t)usage.cost_micros;
}

static void extend(struct rig *rig, struct rig_hold *hold)
{
    struct holdfast_extension extension;
    struct holdfast_answer answer;

    holdfast_extension_init(&extension);
    extension.id = id_of(hold->n);
    extension.cost_micros = hold->cost + 1 + draw(rig, 100);
    assert_int_equal(holdfast_extend(rig->daemon.handle, &extension, &answer), HOLDFAST_OK);
    rig->sums.kinds_cnt[HF_RECEIPT_EXTENSION]++;
    add(rig, hold, -1);
    hold->cost = extension.cost_micros;
    add(rig, hold, 1);
}

void rig_step(struct rig *rig)
{
    struct holdfast_closing closing;

    if (rig->has_extended) {
        settle(rig, &rig->left[3]);
        rig->has_extended = false;
    }
    if (rig->has_left) {
        extend(rig, &rig->left[0]);
        rig->left[3] = rig->left[0];
        rig->has_extended = true;
        settle(rig, &rig->left[1]);
        assert_int_equal(holdfast_release(rig->daemon.handle, id_of(rig->left[2].n), 0, &closing),
                         HOLDFAST_OK);
        rig->sums.kinds_cnt[HF_RECEIPT_RELEASE]++;
        add(rig, &rig->left[2], -1);
    }
    for (int i = 0; i < 3; i++) {
        reserve(rig, &rig->left[i]);
    }
    rig->has_left = true;
}

/* ---- draining ---------------------------------------------------------------------------------------------------- */

enum hf_drain_result rig_cycle(struct rig *rig)
{
    rig->mono_ms += 5001;
    return hf_drain_cycle(hf_serve_drain(rig->daemon.serve), rig->mono_ms);
}

uint32_t rig_drain(struct rig *rig, uint32_t cycles)
{
    uint32_t waits = 0;

    for (uint32_t i = 0; i < cycles; i++) {
        enum hf_drain_result result = rig_cycle(rig);

        if (result == HF_DRAIN_IDLE) {
            return waits;
        }
        if (result != HF_DRAIN_WORKED && result != HF_DRAIN_WAITING) {
            fail_msg("the drain answers %d after:\n%s", (int)result, rig->daemon.log);
        }
        waits += result == HF_DRAIN_WAITING;
    }
    fail_msg("it does not come to an end:\n%s", rig->daemon.log);
    return waits;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

uint64_t rig_rows(const struct rig *rig)
{
    uint64_t rows = 0;

    for (unsigned k = 0; k < HF_RECEIPT_KIND_CNT; k++) {
        rows += rig->sums.kinds_cnt[k];
    }
    return rows;
}

void rig_check(struct rig *rig)
{
    struct hf_store_totals totals = hf_test_daemon_totals(&rig->daemon);
    struct hf_reconcile_report report;
    struct hf_store_head head;
    struct hf_store_error error = {""};
    struct hf_store *store = hf_serve_store(rig->daemon.serve);

    for (unsigned k = 0; k < HF_RECEIPT_KIND_CNT; k++) {
        if (totals.kinds_cnt[k] != rig->sums.kinds_cnt[k]) {
            fail_msg("%s: %" PRIu64 " in the store, %" PRIu64 " were made\n%s",
                     hf_receipt_kind_name((enum hf_receipt_kind)k), totals.kinds_cnt[k],
                     rig->sums.kinds_cnt[k], rig->daemon.log);
        }
    }
    for (int d = 0; d < 3; d++) {
        assert_int_equal((int64_t)totals.held[d], rig->sums.held[d]);
        assert_int_equal((int64_t)totals.charged[d], rig->sums.charged[d]);
    }
    assert_int_equal(totals.receipts_cnt, totals.batch_rows_cnt);
    assert_int_equal(hf_store_head(store, "test", &head, &error), HF_STORE_OK);
    assert_int_equal(head.next_seq - 1, totals.receipts_cnt);
    assert_int_equal(head.last.number, totals.batches_cnt);
    assert_int_equal(hf_reconcile(rig->daemon.seg, store, "test", &report, &error), HF_RECONCILE_DONE);
    if (report.mismatches_cnt != 0) {
        fail_msg("%s", report.texts[0]);
    }
    assert_int_equal(report.open_cnt, rig->sums.held[0]);
}

uint64_t rig_alarm(const struct rig *rig, uint32_t alarm)
{
    return rig->daemon.seg->header->hdr_alarms[alarm];
}

/* ---- for all tests ----------------------------------------------------------------------------------------------- */

bool rig_long(void)
{
    const char *value = getenv("HOLDFAST_LONG");

    return value != NULL && strcmp(value, "1") == 0;
}

uint64_t rig_seed(void)
{
    static uint64_t seed;
    static bool told;
    const char *value = getenv("HOLDFAST_SEED");

    if (!told) {
        told = true;
        seed = (uint64_t)getpid();
        if (value != NULL) {
            seed = strtoull(value, NULL, 10);
        }
        print_message("seed %" PRIu64 ": run again with HOLDFAST_SEED=%" PRIu64 "\n", seed, seed);
    }
    return seed;
}

bool rig_psql(const char *url, const char *sql)
{
    pid_t child = fork();
    int status = 1;

    if (child == 0) {
        (void)execlp("psql", "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql, (char *)NULL);
        _exit(127);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

void rig_database(char *url, size_t url_bytes)
{
    static unsigned made;
    const char *server = getenv("HOLDFAST_TEST_PG");
    const char *slash = server == NULL ? NULL : strstr(server, "://");
    const char *query = server == NULL ? NULL : strchr(server, '?');
    char sql[128];

    slash = slash == NULL ? NULL : strchr(slash + 3, '/');
    if (slash == NULL) {
        print_message("no PostgreSQL here (HOLDFAST_TEST_PG): left out\n");
        exit(77);
    }
    (void)snprintf(sql, sizeof(sql), "CREATE DATABASE rig_%d_%u", (int)getpid(), made);
    assert_true(rig_psql(server, sql));
    (void)snprintf(url, url_bytes, "%.*s/rig_%d_%u%s", (int)(slash - server), server, (int)getpid(), made++,
                   query == NULL ? "" : query);
}

void rig_proxied(const char *url, const char *folder, char *proxied, size_t proxied_bytes, char *socket_path,
                 size_t socket_bytes)
{
    const char *host = strstr(url, "?host=");

    assert_non_null(host);
    (void)snprintf(proxied, proxied_bytes, "%.*s?host=%s", (int)(host - url), url, folder);
    (void)snprintf(socket_path, socket_bytes, "%s/.s.PGSQL.5432", host + strlen("?host="));
}
