/* ctest: timeout=120 */
/* The look at all slots of a segment that had another daemon: a share in each cycle, and nobody is told that everything is committed
 * before its end. */
#include "persist/drain.h"
#include "shm/clock.h"
#include "tests/support/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SLOTS (3U * 65536U) /* three cycles */

static struct {
    struct hf_test_quota quota;
    struct hf_store *store;
    struct hf_publish *publish;
    struct hf_deadlines deadlines;
    struct hf_drain *drain;
    struct hf_owner owner;
    uint64_t mono_ms;
    char folder[64];
} t;

static int open_parts(void **state)
{
    const struct hf_store_options options = {.durability = HF_STORE_OFF};
    const struct hf_log silent = {0};
    struct hf_store_error error = {""};
    char url[96];

    (void)state;
    memset(&t, 0, sizeof(t));
    (void)snprintf(t.folder, sizeof(t.folder), "/tmp/holdfast-look-XXXXXX");
    assert_non_null(mkdtemp(t.folder));
    (void)snprintf(url, sizeof(url), "sqlite:%s/store.db", t.folder);
    assert_int_equal(hf_store_init(url, &options, &error), HF_STORE_OK);
    assert_int_equal(hf_store_open(url, &options, &t.store, &error), HF_STORE_OK);
    assert_int_equal(hf_store_lock(t.store, "look", &error), HF_STORE_OK);
    hf_test_quota_make(&t.quota, hf_test_policy(), SLOTS);
    assert_int_equal(t.quota.seg->slots_cnt, SLOTS);
    assert_int_equal(hf_owner_join(t.quota.seg, HF_ROLE_DAEMON, &t.owner, NULL), HF_OK);
    t.quota.seg->header->hdr_next_seq = 1; /* plain: nobody else is here */
    t.publish = hf_publish_open(t.quota.seg, &silent);
    assert_non_null(t.publish);
    assert_true(hf_deadlines_open(&t.deadlines, SLOTS));
    t.mono_ms = hf_clock_mono_fine_ms() + 1;
    return 0;
}

static int close_parts(void **state)
{
    char command[128];

    (void)state;
    hf_drain_close(t.drain);
    hf_deadlines_close(&t.deadlines);
    hf_publish_close(t.publish);
    hf_store_close(t.store);
    hf_owner_leave(t.quota.seg, &t.owner);
    hf_test_quota_free(&t.quota);
    (void)snprintf(command, sizeof(command), "rm -rf %s", t.folder);
    return system(command); /* NOLINT: the test's own folder */
}

static void open_drain(bool fresh)
{
    const struct hf_drain_options options = {.seg = t.quota.seg,
                                             .store = t.store,
                                             .store_name = "look",
                                             .daemon_ref = t.owner.ref,
                                             .fresh = fresh,
                                             .policy_revision = 1,
                                             .publish = t.publish,
                                             .deadlines = &t.deadlines};

    t.drain = hf_drain_open(&options);
    assert_non_null(t.drain);
}

static void reserve(const char *id)
{
    struct holdfast_answer answer;

    assert_int_equal(hf_test_reserve(t.quota.handles[0], id, "u", NULL, 10, 100, &answer), HOLDFAST_OK);
}

static enum hf_drain_result cycle(void)
{
    return hf_drain_cycle(t.drain, ++t.mono_ms);
}

static uint64_t reservations(void)
{
    struct hf_store_totals totals;
    struct hf_store_error error;

    assert_int_equal(hf_store_totals(t.store, "look", &totals, &error), HF_STORE_OK);
    return totals.kinds_cnt[HF_RECEIPT_RESERVATION];
}

/* The daemon before took the marks and died with them: what it leaves behind is found in one of the shares. Meanwhile what
 * is marked is committed. */
static void marks_that_died_with_a_daemon(void **state)
{
    struct hf_shm_header *header = t.quota.seg->header;
    uint64_t durable_ms = header->hdr_durable_ms;
    uint64_t done = header->cyc_done;

    (void)state;
    reserve("a");
    for (uint32_t i = 0; i < t.quota.seg->chunks_cnt; i++) {
        memset(t.quota.seg->chunks[i].chunk_dirty, 0, sizeof(t.quota.seg->chunks[i].chunk_dirty));
    }
    open_drain(false);
    for (unsigned i = 0; i < 2; i++) {
        char id[8];

        (void)snprintf(id, sizeof(id), "b%u", i);
        reserve(id);
        assert_int_equal(cycle(), HF_DRAIN_WORKED); /* it does not sleep before it has seen all */
        assert_true(reservations() > i);
        assert_int_equal(header->hdr_durable_ms, durable_ms);
        assert_int_equal(header->cyc_done, done);
    }
    (void)cycle();
    assert_int_equal(reservations(), 3);
    assert_int_equal(header->hdr_durable_ms, t.mono_ms);
    assert_int_equal(header->cyc_done, header->cyc_begun);
}

/* In the middle of one another is asked for, again and again, as when processes die one after the other: each comes to its end. */
static void asked_for_again_in_between(void **state)
{
    unsigned idle = 0;

    (void)state;
    open_drain(false);
    for (unsigned i = 0; i < 12; i++) {
        (void)cycle();
        hf_drain_look_at_all(t.drain);
        idle += t.quota.seg->header->hdr_durable_ms == t.mono_ms;
    }
    assert_true(idle >= 10); /* durable from the end of the first one on */
    for (unsigned i = 0; i < 9; i++) {
        (void)cycle();
    }
    assert_int_equal(cycle(), HF_DRAIN_IDLE);
}

static void a_segment_of_its_own_has_nothing_to_be_found(void **state)
{
    struct hf_shm_header *header = t.quota.seg->header;

    (void)state;
    open_drain(true);
    reserve("a");
    assert_int_equal(cycle(), HF_DRAIN_WORKED);
    assert_int_equal(reservations(), 1);
    assert_int_equal(header->hdr_durable_ms, t.mono_ms);
    assert_int_equal(cycle(), HF_DRAIN_IDLE);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_parts, close_parts)
    const struct CMUnitTest tests[] = {
        CASE(marks_that_died_with_a_daemon),
        CASE(asked_for_again_in_between),
        CASE(a_segment_of_its_own_has_nothing_to_be_found),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
