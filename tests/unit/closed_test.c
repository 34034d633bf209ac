/* ctest: labels=valgrind timeout=120 */
/* Closed slots that wait for their horizon: freed with all receipts committed, or not at all. */
#include "core/slot.h"
#include "persist/closed.h"
#include "shm/clock.h"
#include "shm/commit.h"
#include "tests/support/daemon.h"
#include "tests/support/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Retained, committed, queued; then disputed late in the very same millisecond, before the next look of the daemon. The queue
 * must not free what owes the dispute's receipt. */
static void a_dispute_in_the_millisecond_of_its_retention_is_not_lost(void **state)
{
    struct hf_test_daemon daemon;
    struct hf_closed closed;
    struct hf_receipt rows[4];
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    const struct hf_log log = {NULL, NULL};

    (void)state;
    hf_test_daemon_prepare(&daemon, hf_test_policy(), false);
    hf_test_daemon_open(&daemon);
    assert_int_equal(hf_test_reserve(daemon.handle, "r", "v", NULL, 100, 100, &answer), HOLDFAST_OK);
    (void)hf_clock_inject(daemon.seg, hf_clock_now_ms(daemon.seg) + 2000);
    assert_int_equal(holdfast_reap(daemon.handle, 0, NULL, NULL), 1);
    hf_test_daemon_drain(&daemon);
    assert_int_equal(hf_test_daemon_receipts(&daemon, "r", rows, 4), 2);

    uint32_t slot_idx = (uint32_t)(answer.hold >> 20) - 1;
    struct hf_u128 retained = hf_commit_read_st(&daemon.seg->slots[slot_idx]); /* E13 */

    assert_int_equal(hf_st_state(retained), HF_STATE_RETAINED);
    assert_true(hf_closed_open(&closed, daemon.seg, daemon.handle->owner.ref, &log));
    hf_closed_push(&closed, slot_idx, retained);
    assert_int_equal(hf_test_settle(daemon.handle, "r", 30, 20, 200, &closing), HOLDFAST_REFUSED);
    assert_int_equal(closing.reason, HOLDFAST_REASON_OVERAGE);
    struct hf_u128 disputed = hf_commit_read_st(&daemon.seg->slots[slot_idx]); /* E13 */

    assert_int_equal(hf_st_time_ms(disputed), hf_st_time_ms(retained));
    assert_int_equal(hf_closed_free_due(&closed, hf_clock_now_ms(daemon.seg) + HF_SERVE_LATE_HORIZON_MS), 0);
    hf_closed_close(&closed);
    hf_test_daemon_drain(&daemon);
    assert_int_equal(hf_test_daemon_receipts(&daemon, "r", rows, 4), 3);
    assert_int_equal(rows[2].kind, HF_RECEIPT_DISPUTE);
    hf_test_daemon_close(&daemon);
    hf_test_daemon_clean(&daemon);
}

/* Freeing the first reads the commit word; the second was closed before that, and is freed with a word that nobody could read. */
static void the_word_is_read_once_for_what_was_closed_before(void **state)
{
    struct hf_test_daemon daemon;
    struct hf_closed closed;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    const struct hf_log log = {NULL, NULL};
    const char *ids[] = {"first", "second", "open"};
    uint32_t slot_idx[3];

    (void)state;
    hf_test_daemon_prepare(&daemon, hf_test_policy(), false);
    hf_test_daemon_open(&daemon);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hf_test_reserve(daemon.handle, ids[i], "u", NULL, 1, 1, &answer), HOLDFAST_OK);
        slot_idx[i] = (uint32_t)(answer.hold >> 20) - 1;
        if (i < 2) {
            assert_int_equal(hf_test_settle(daemon.handle, ids[i], 1, 0, 1, &closing), HOLDFAST_OK);
        }
    }
    hf_test_daemon_drain(&daemon);
    assert_true(hf_closed_open(&closed, daemon.seg, daemon.handle->owner.ref, &log));
    struct hf_shm_slot *slots = daemon.seg->slots;
    struct hf_shm_tenant *tenant = &daemon.seg->tenants[slots[slot_idx[0]].slot_tenant];

    assert_true(hf_closed_free(&closed, slot_idx[0], hf_commit_read_st(&slots[slot_idx[0]])));
    struct hf_u128 word = tenant->ten_word;

    tenant->ten_word = hf_word_make(hf_word_seq(word) + 1, HF_KIND_SETTLE, HF_SHM_SLOTS_MAX - 1, 1);
    bool freed = hf_closed_free(&closed, slot_idx[1], hf_commit_read_st(&slots[slot_idx[1]]));

    tenant->ten_word = word;
    assert_true(freed);
    assert_int_equal(hf_st_state(hf_commit_read_st(&slots[slot_idx[1]])), HF_STATE_FREE);
    assert_int_equal(hf_st_state(hf_commit_read_st(&slots[slot_idx[2]])), HF_STATE_HELD);
    hf_closed_close(&closed);
    hf_test_daemon_close(&daemon);
    hf_test_daemon_clean(&daemon);
}

/* Settled, committed, queued; then the store turns out to have lost the closing, and takes nothing while the horizon passes. */
static void what_the_store_lost_is_not_freed(void **state)
{
    struct hf_test_daemon daemon;
    struct hf_closed closed;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    const struct hf_log log = {NULL, NULL};

    (void)state;
    hf_test_daemon_prepare(&daemon, hf_test_policy(), false);
    hf_test_daemon_open(&daemon);
    assert_int_equal(hf_test_reserve(daemon.handle, "a", "v", NULL, 100, 100, &answer), HOLDFAST_OK);
    assert_int_equal(hf_test_settle(daemon.handle, "a", 30, 20, 50, &closing), HOLDFAST_OK);
    hf_test_daemon_drain(&daemon);

    uint32_t slot_idx = (uint32_t)(answer.hold >> 20) - 1;
    struct hf_shm_slot *slot = &daemon.seg->slots[slot_idx];
    struct hf_u128 settled = hf_commit_read_st(slot); /* E13 */
    uint64_t written = slot->slot_persisted;
    uint64_t late_ms = hf_clock_now_ms(daemon.seg) + HF_SERVE_LATE_HORIZON_MS;

    assert_int_equal(hf_st_state(settled), HF_STATE_SETTLED);
    assert_true(hf_closed_open(&closed, daemon.seg, daemon.handle->owner.ref, &log));
    hf_closed_push(&closed, slot_idx, settled);
    slot->slot_persisted =
        hf_persisted_make(hf_st_gen(settled), hf_st_ordinal(settled), HF_PERSISTED_RESERVATION);
    assert_int_equal(hf_closed_free_due(&closed, late_ms), 0);
    assert_int_equal(hf_st_state(hf_commit_read_st(slot)), HF_STATE_SETTLED); /* E13 */

    slot->slot_persisted = written; /* the next batch has it again, and pushes it */
    hf_closed_push(&closed, slot_idx, settled);
    assert_int_equal(hf_closed_free_due(&closed, late_ms), 1);
    hf_closed_close(&closed);
    hf_test_daemon_close(&daemon);
    hf_test_daemon_clean(&daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dispute_in_the_millisecond_of_its_retention_is_not_lost),
        cmocka_unit_test(the_word_is_read_once_for_what_was_closed_before),
        cmocka_unit_test(what_the_store_lost_is_not_freed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
