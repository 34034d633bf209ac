/* The connection cut at any byte, both ways, by a proxy, over one whole drain cycle with its connecting: afterwards rows and sums
 * equal what the segment admitted, none twice, none missing.
 *
 * By default every so many bytes, from a seeded offset; with HOLDFAST_LONG=1 every single one. */
#include "tests/store/rig.h"
#include "tests/support/proxy.h"
#include "tests/support/store_cases.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define STRIDE 97U /* a prime, so that runs differ in what they hit */

static struct {
    struct rig rig;
    struct hf_proxy *proxy;
    char folder[64];
    char url[512];
    char proxied[512];
    uint64_t points;
    uint64_t unknown; /* cuts after which COMMIT had been sent */
} t;

static int set_up(void **state)
{
    char path[256];

    (void)state;
    rig_database(t.url, sizeof(t.url));
    (void)snprintf(t.folder, sizeof(t.folder), "/tmp/hf-cut.XXXXXX");
    assert_non_null(mkdtemp(t.folder));
    rig_proxied(t.url, t.folder, t.proxied, sizeof(t.proxied), path, sizeof(path));
    t.proxy = hf_proxy_open(t.folder, path);
    assert_non_null(t.proxy);
    rig_prepare(&t.rig, t.url, NULL);
    t.rig.daemon.options.store_url = t.proxied;
    rig_open(&t.rig);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_check(&t.rig);
    print_message("totals: %" PRIu64 " cuts, %" PRIu64 " lost answers to COMMIT, %" PRIu64
                  " receipts, each once\n",
                  t.points, t.unknown, rig_rows(&t.rig));
    rig_close(&t.rig);
    hf_proxy_close(t.proxy);
    return rmdir(t.folder);
}

/* One cycle over a new connection with the fault at that byte. False: the cycle passes fewer. */
static bool one_point(enum hf_proxy_fault fault, enum hf_proxy_way way, uint64_t bytes)
{
    struct hf_store *store = hf_serve_store(t.rig.daemon.serve);
    struct hf_proxy_seen seen;
    struct hf_store_head head;
    struct hf_store_error error = {""};

    t.rig.daemon.log[0] = '\0';
    hf_store_disconnect(store);
    hf_proxy_arm(t.proxy, fault, way, bytes);
    rig_step(&t.rig);
    (void)rig_drain(&t.rig, 20);
    hf_proxy_look(t.proxy, &seen);
    hf_proxy_arm(t.proxy, HF_PROXY_NONE, way, 0);
    /* The cut may have come after the last answer, and is noticed by the next who asks. */
    if (hf_store_head(store, "test", &head, &error) != HF_STORE_OK) {
        assert_int_equal(hf_store_head(store, "test", &head, &error), HF_STORE_OK);
    }
    if (head.next_seq - 1 != rig_rows(&t.rig)) {
        fail_msg("cut %s after %" PRIu64 " bytes: %" PRIu64 " receipts in the store, %" PRIu64 " were made",
                 way == HF_PROXY_UP ? "up" : "down", bytes, head.next_seq - 1, rig_rows(&t.rig));
    }
    t.points += seen.faults_cnt;
    t.unknown += strstr(t.rig.daemon.log, "the answer to a commit was lost") != NULL;
    return seen.faults_cnt > 0;
}

static void cut_all(enum hf_proxy_way way)
{
    uint64_t stride = rig_long() ? 1 : STRIDE;
    uint64_t bytes = rig_seed() % stride;
    uint64_t hits = 0;

    while (one_point(HF_PROXY_CUT, way, bytes)) {
        bytes += stride;
        if (++hits % 100 == 0) {
            rig_check(&t.rig);
        }
    }
    assert_true(hits > 20); /* a cycle has some thousands of bytes each way */
    rig_check(&t.rig);
}

static void cut_on_the_way_to_the_server(void **state)
{
    (void)state;
    cut_all(HF_PROXY_UP);
}

static void cut_on_the_way_back(void **state)
{
    (void)state;
    cut_all(HF_PROXY_DOWN);
}

/* The last bytes of the way back are the answer to COMMIT: each of them. */
static void cut_in_the_answer_to_commit(void **state)
{
    struct hf_proxy_seen seen;
    uint64_t before = t.unknown;

    (void)state;
    for (uint64_t back = 0; back < 24; back++) {
        /* How much passes is learnt from a cycle that is let through; the next one is as long, but for a few digits. */
        hf_store_disconnect(hf_serve_store(t.rig.daemon.serve));
        hf_proxy_arm(t.proxy, HF_PROXY_DELAY, HF_PROXY_DOWN, UINT64_MAX);
        rig_step(&t.rig);
        (void)rig_drain(&t.rig, 5);
        hf_proxy_look(t.proxy, &seen);
        assert_true(seen.passed_bytes[HF_PROXY_DOWN] > 24);
        (void)one_point(HF_PROXY_CUT, HF_PROXY_DOWN, seen.passed_bytes[HF_PROXY_DOWN] - back);
    }
    assert_true(t.unknown > before);
    rig_check(&t.rig);
}

/* ---- a commit that is sent twice ------------------------------------------------------------------------------------- */

#define AGAIN_ROWS 40U

/* A handle that has not run into an id yet, so that its first commit trusts the index. */
static struct hf_store *open_again(struct hf_store_error *error)
{
    struct hf_store *store = NULL;

    if (hf_store_open(t.proxied, NULL, &store, error) == HF_STORE_OK &&
        hf_store_lock(store, "again", error) != HF_STORE_OK) {
        hf_store_close(store);
        store = NULL;
    }
    return store;
}

/* A batch with one id that is there and others that are new, with the connection cut at that byte. False: fewer pass. */
static bool cut_again(struct cases_chain *chain, enum hf_proxy_way way, uint64_t bytes)
{
    static struct hf_receipt rows[AGAIN_ROWS];
    enum hf_store_status status = HF_STORE_RETRY;
    struct hf_proxy_seen seen;
    bool cut = false;

    for (uint32_t i = 0; i < AGAIN_ROWS; i++) {
        char id[32];

        (void)snprintf(id, sizeof(id), "%" PRIu64 "-%u", chain->next_seq, i);
        cases_reservation(&rows[i], i == AGAIN_ROWS / 2 ? "again" : id);
    }
    hf_proxy_arm(t.proxy, HF_PROXY_CUT, way, bytes);
    for (unsigned tries = 0; status != HF_STORE_OK; tries++) {
        assert_in_range(tries, 0, 3);
        chain->store = open_again(&chain->error);
        if (chain->store != NULL) {
            status = cases_chain_commit(chain, rows, AGAIN_ROWS);
            hf_store_close(chain->store);
        }
        if (tries == 0) {
            hf_proxy_look(t.proxy, &seen);
            cut = seen.faults_cnt > 0;
            hf_proxy_arm(t.proxy, HF_PROXY_NONE, way, 0);
        }
    }
    for (uint32_t i = 0; i < AGAIN_ROWS; i++) {
        assert_int_equal(rows[i].conflict, i == AGAIN_ROWS / 2);
    }
    return cut;
}

/* The first attempt runs into the index and is rolled back, the second asks for all ids: cut anywhere in either, the batch is there
 * once and the conflict with it. */
static void cut_while_an_id_comes_again(void **state)
{
    uint64_t stride = rig_long() ? 1 : 4 * STRIDE;
    struct cases_chain chain;
    struct hf_store_totals totals;
    struct hf_receipt row;
    uint64_t batches = 0;

    (void)state;
    cases_chain_start(&chain, open_again(NULL));
    assert_non_null(chain.store);
    cases_reservation(&row, "again");
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    hf_store_close(chain.store);
    for (enum hf_proxy_way way = HF_PROXY_UP; way <= HF_PROXY_DOWN; way++) {
        uint64_t bytes = rig_seed() % stride;

        for (batches++; cut_again(&chain, way, bytes); batches++) {
            bytes += stride;
            t.points++;
        }
    }
    assert_true(batches > 40);
    chain.store = open_again(&chain.error);
    assert_non_null(chain.store);
    assert_int_equal(hf_store_totals(chain.store, "again", &totals, &chain.error), HF_STORE_OK);
    assert_int_equal(totals.receipts_cnt, 1 + batches * AGAIN_ROWS);
    assert_int_equal(totals.conflicts_cnt, batches);
    assert_int_equal(totals.aside_cnt, 0);
    hf_store_close(chain.store);
}

/* Slow is not lost. */
static void a_slow_connection_is_waited_for(void **state)
{
    (void)state;
    for (uint64_t bytes = 100; bytes < 4000; bytes += 1000) {
        assert_true(one_point(HF_PROXY_DELAY, HF_PROXY_UP, bytes));
        assert_null(strstr(t.rig.daemon.log, "lost"));
    }
    rig_check(&t.rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_on_the_way_to_the_server),    cmocka_unit_test(cut_on_the_way_back),
        cmocka_unit_test(cut_in_the_answer_to_commit),     cmocka_unit_test(cut_while_an_id_comes_again),
        cmocka_unit_test(a_slow_connection_is_waited_for),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
