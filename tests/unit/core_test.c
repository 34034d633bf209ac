/* The operations through the public interface, where one process and one line at a time cannot show it: claims, twins,
 * dead owners, used-up slots, refusals that leave no trace. What every operation means is shown by the conformance
 * files; this is about who may be beside it. */
/* ctest: labels=valgrind */
#include "core/slot.h"
#include "shm/clock.h"
#include "tests/support/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int make(void **state)
{
    static struct hf_test_quota quota;
    hf_test_quota_make(&quota, hf_test_policy(), 256);
    *state = &quota;
    return 0;
}

static int drop(void **state)
{
    hf_test_quota_free(*state);
    return 0;
}

/* Invariant 2 of the field: a refused reserve leaves every byte of every bucket, tenant and slot as it was. */
static void a_refusal_changes_nothing(void **state)
{
    struct hf_test_quota *quota = *state;
    struct holdfast_answer answer;
    static struct hf_shm_row rows[8];
    struct hf_shm_tenant tenant;
    assert_int_equal(hf_test_reserve(quota->handles[0], "a", "u", "k", 900, 9000, &answer), HOLDFAST_OK);
    memcpy(rows, quota->seg->rows, sizeof rows);
    tenant = quota->seg->tenants[0];
    assert_int_equal(hf_test_reserve(quota->handles[0], "b", "u", "k", 101, 1, &answer), HOLDFAST_REFUSED);
    assert_int_equal(answer.reason, HOLDFAST_REASON_TEAM_SHARE);
    assert_int_equal(answer.dimension, HOLDFAST_TOKENS);
    assert_int_equal(hf_test_reserve(quota->handles[1], "b", "v", NULL, 1, 601, &answer), HOLDFAST_REFUSED);
    assert_int_equal(answer.reason, HOLDFAST_REASON_DEGRADE_NOT_CHEAPER);
    assert_memory_equal(rows, quota->seg->rows, sizeof rows);
    assert_memory_equal(&tenant, &quota->seg->tenants[0], sizeof tenant);
    struct hf_found found;
    assert_int_equal(hf_slot_find(quota->handles[0], "b", 1, 0, &found), HF_INDEX_ABSENT);
}

/* Rule 8: one process at a time writes what a closing is. */
static void a_live_claim_is_busy(void **state)
{
    struct hf_test_quota *quota = *state;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    struct holdfast_extension extension;
    assert_int_equal(hf_test_reserve(quota->handles[0], "a", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    struct hf_shm_slot *slot = &quota->seg->slots[hf_test_slot(quota, "a")];
    slot->slot_claim = quota->handles[1]->owner.ref;
    assert_int_equal(hf_test_settle(quota->handles[0], "a", 1, 1, 1, &closing), HOLDFAST_REFUSED);
    assert_int_equal(closing.reason, HOLDFAST_REASON_BUSY);
    holdfast_extension_init(&extension);
    extension.id = "a";
    extension.cost_micros = 200;
    assert_int_equal(holdfast_extend(quota->handles[0], &extension, &answer), HOLDFAST_REFUSED);
    assert_int_equal(answer.reason, HOLDFAST_REASON_BUSY);
    assert_int_equal(hf_test_value(quota, "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS), 100);
    /* A release writes nothing before W and needs no claim. */
    assert_int_equal(holdfast_release(quota->handles[0], "a", 0, &closing), HOLDFAST_OK);
    assert_int_equal(slot->slot_claim, quota->handles[1]->owner.ref);
    slot->slot_claim = 0;
    assert_int_equal(quota->seg->header->hdr_alarms[HF_ALARM_BUSY], 2);
}

/* The claim of somebody who is gone is taken over. */
static void a_dead_claim_is_taken_over(void **state)
{
    struct hf_test_quota *quota = *state;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    assert_int_equal(hf_test_reserve(quota->handles[0], "a", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    struct hf_shm_slot *slot = &quota->seg->slots[hf_test_slot(quota, "a")];
    uint64_t gone = quota->handles[1]->owner.ref;
    slot->slot_claim = gone;
    holdfast_leave(quota->handles[1]);
    quota->handles[1] = NULL;
    assert_int_equal(hf_test_settle(quota->handles[0], "a", 1, 1, 40, &closing), HOLDFAST_OK);
    assert_int_equal(slot->slot_claim, 0);
    assert_int_equal(hf_test_mismatches(quota), 0);
}

/* A twin that is PENDING: busy while its owner lives, never happened when it is dead. */
static void a_pending_twin(void **state)
{
    struct hf_test_quota *quota = *state;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    int reason;
    assert_int_equal(hf_test_reserve(quota->handles[1], "a", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    uint32_t slot_idx = hf_test_slot(quota, "a");
    struct hf_shm_slot *slot = &quota->seg->slots[slot_idx];
    assert_int_equal(holdfast_release(quota->handles[1], "a", 0, &closing), HOLDFAST_OK);
    slot->slot_st = hf_st_make(0, 0, HF_STATE_PENDING, 0, hf_st_gen(slot->slot_st)); /* as before its W */
    assert_int_equal(hf_test_reserve(quota->handles[0], "a", "u", NULL, 10, 100, &answer), HOLDFAST_REFUSED);
    assert_int_equal(answer.reason, HOLDFAST_REASON_BUSY);
    assert_int_equal(holdfast_dispatch(quota->handles[0], "a", 0, &reason), HOLDFAST_REFUSED);
    assert_int_equal(reason, HOLDFAST_REASON_UNKNOWN_RESERVATION);
    holdfast_leave(quota->handles[1]);
    quota->handles[1] = NULL;
    assert_int_equal(hf_test_reserve(quota->handles[0], "a", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    assert_int_equal(answer.replayed, 0);
    assert_int_equal(hf_st_state(slot->slot_st), HF_STATE_ABANDONED);
    assert_int_not_equal(hf_test_slot(quota, "a"), slot_idx);
    assert_int_equal(hf_test_mismatches(quota), 0);
}

/* A7 of the field: a used-up segment fails closed, counts it, and still closes what is open. */
static void without_a_free_slot_it_fails_closed(void **state)
{
    struct hf_test_quota quota;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    char id[16];
    int admitted = 0;
    (void)state;
    hf_test_quota_make(&quota, hf_test_policy(), 64);
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "i%d", i);
        int rc = hf_test_reserve(quota.handles[0], id, "w", NULL, 1, 1, &answer);
        admitted += rc == HOLDFAST_OK;
        assert_true(rc == HOLDFAST_OK || answer.reason == HOLDFAST_REASON_BUSY);
    }
    assert_true(admitted >= 32 && admitted <= 64);
    assert_int_equal(quota.seg->header->hdr_alarms[HF_ALARM_BUSY], 100 - admitted);
    assert_int_equal(hf_test_reserve(quota.handles[0], "i0", "w", NULL, 1, 1, &answer), HOLDFAST_OK);
    assert_int_equal(answer.replayed, 1);
    assert_int_equal(hf_test_settle(quota.handles[1], "i0", 1, 0, 1, &closing), HOLDFAST_OK);
    assert_int_equal(hf_test_mismatches(&quota), 0);
    hf_test_quota_free(&quota);
}

/* The token saves the lookup, and never closes another's reservation. */
static void a_token_is_checked_against_the_id(void **state)
{
    struct hf_test_quota *quota = *state;
    struct holdfast_answer a;
    struct holdfast_answer b;
    struct holdfast_closing closing;
    assert_int_equal(hf_test_reserve(quota->handles[0], "a", "u", NULL, 10, 100, &a), HOLDFAST_OK);
    assert_int_equal(hf_test_reserve(quota->handles[0], "b", "u", NULL, 10, 200, &b), HOLDFAST_OK);
    assert_int_equal(holdfast_release(quota->handles[1], "b", a.hold, &closing), HOLDFAST_OK);
    assert_int_equal(hf_test_value(quota, "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS), 100);
    assert_int_equal(holdfast_release(quota->handles[1], "c", a.hold, &closing), HOLDFAST_REFUSED);
    assert_int_equal(closing.reason, HOLDFAST_REASON_UNKNOWN_RESERVATION);
    assert_int_equal(holdfast_release(quota->handles[1], "a", ~0ULL, &closing), HOLDFAST_OK);
    assert_int_equal(hf_test_mismatches(quota), 0);
}

/* A handle of the parent refuses in the child, and a child that joins for itself works. */
static void a_forked_child_joins_for_itself(void **state)
{
    struct hf_test_quota *quota = *state;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    assert_int_equal(hf_test_reserve(quota->handles[0], "a", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    pid_t pid = fork();
    if (pid == 0) {
        struct holdfast *own;
        bool right = hf_test_reserve(quota->handles[0], "b", "u", NULL, 1, 1, &answer) == HOLDFAST_FORKED &&
                     holdfast_join(quota->segment, &own) == HOLDFAST_OK &&
                     hf_test_reserve(own, "b", "u", NULL, 1, 1, &answer) == HOLDFAST_OK &&
                     hf_test_settle(own, "a", 1, 1, 70, &closing) == HOLDFAST_OK;
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(hf_test_value(quota, "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS), 71);
}

/* The store too far behind: nothing new, but everything open can be closed. */
static void a_store_far_behind_is_busy(void **state)
{
    struct hf_test_quota *quota = *state;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    assert_int_equal(hf_test_reserve(quota->handles[0], "a", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    quota->seg->injected = false;
    quota->seg->header->hdr_durable_ms = hf_clock_mono_fine_ms() - quota->seg->max_lag_ms - 1000;
    hf_clock_publish(quota->seg, HF_TEST_NOW_MS, hf_clock_mono_fine_ms(), 1);
    assert_int_equal(hf_test_reserve(quota->handles[0], "b", "u", NULL, 10, 100, &answer), HOLDFAST_REFUSED);
    assert_int_equal(answer.reason, HOLDFAST_REASON_BUSY);
    assert_int_equal(hf_test_reserve(quota->handles[0], "a", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    assert_int_equal(answer.replayed, 1);
    assert_int_equal(hf_test_settle(quota->handles[0], "a", 1, 1, 1, &closing), HOLDFAST_OK);
    quota->seg->injected = true;
}

/* A worker that is refused reaps when the daemon is silent: B2 of the field. */
static void a_refused_worker_reaps_for_a_silent_daemon(void **state)
{
    struct hf_test_quota *quota = *state;
    struct holdfast_answer answer;
    quota->seg->injected = false;
    quota->seg->header->hdr_durable_ms = hf_clock_mono_fine_ms();
    hf_clock_publish(quota->seg, HF_TEST_NOW_MS, hf_clock_mono_fine_ms(), 1);
    assert_int_equal(hf_test_reserve(quota->handles[0], "a", "u", NULL, 800, 100, &answer), HOLDFAST_OK);
    struct hf_shm_slot *slot = &quota->seg->slots[hf_test_slot(quota, "a")];
    slot->slot_holds[0].hold_deadline = 0; /* long past */
    quota->handles[0]->reap_cursor = hf_test_slot(quota, "a");
    quota->seg->header->hdr_heartbeat_ms = hf_clock_mono_fine_ms();
    assert_int_equal(hf_test_reserve(quota->handles[0], "b", "u", NULL, 900, 100, &answer), HOLDFAST_REFUSED);
    quota->seg->header->hdr_heartbeat_ms = hf_clock_mono_fine_ms() - 5000;
    assert_int_equal(hf_test_reserve(quota->handles[0], "b", "u", NULL, 900, 100, &answer), HOLDFAST_OK);
    assert_int_equal(hf_st_state(slot->slot_st), HF_STATE_EXPIRED);
    assert_int_equal(hf_test_mismatches(quota), 0);
    quota->seg->injected = true;
}

/* In a large and nearly empty segment too, wherever the worker begins to look: unused chunks are passed over. */
static void a_refused_worker_finds_the_dead_hold_in_a_large_segment(void **state)
{
    struct hf_test_quota quota;
    struct holdfast_answer answer;
    (void)state;
    hf_test_quota_make(&quota, hf_test_policy(), 16384);
    quota.seg->injected = false;
    quota.seg->header->hdr_durable_ms = hf_clock_mono_fine_ms();
    hf_clock_publish(quota.seg, HF_TEST_NOW_MS, hf_clock_mono_fine_ms(), 1);
    assert_int_equal(hf_test_reserve(quota.handles[0], "a", "u", NULL, 800, 100, &answer), HOLDFAST_OK);
    uint32_t slot_idx = hf_test_slot(&quota, "a");
    quota.seg->slots[slot_idx].slot_holds[0].hold_deadline = 0; /* long past */
    quota.handles[0]->reap_cursor = slot_idx + quota.seg->chunk_slots;
    quota.seg->header->hdr_heartbeat_ms = hf_clock_mono_fine_ms() - 5000;
    assert_int_equal(hf_test_reserve(quota.handles[0], "b", "u", NULL, 900, 100, &answer), HOLDFAST_OK);
    assert_int_equal(hf_st_state(quota.seg->slots[slot_idx].slot_st), HF_STATE_EXPIRED);
    assert_int_equal(hf_test_mismatches(&quota), 0);
    quota.seg->injected = true;
    hf_test_quota_free(&quota);
}

/* Rule 9: a worker whose clock is behind a bucket's window takes the bucket's. */
static void a_window_never_opens_again(void **state)
{
    struct hf_test_quota *quota = *state;
    struct holdfast_answer answer;
    struct hf_shm_row *row = NULL;
    assert_int_equal(hf_test_reserve(quota->handles[0], "a", "u", NULL, 900, 1, &answer), HOLDFAST_OK);
    for (uint32_t i = 0; i < quota->seg->rows_cnt && row == NULL; i++) {
        row = hf_bucket_value(quota->seg->rows[i].row_buckets[0][1]) == 900 ? &quota->seg->rows[i] : NULL;
    }
    assert_non_null(row);
    /* Another process, whose clock was a minute ahead, has opened the next minute. */
    struct hf_u128 word = row->row_buckets[0][1];
    uint32_t next = hf_bucket_window(word) + 1;
    row->row_buckets[0][1] = hf_bucket_make(950, next, hf_bucket_tag(word));
    assert_int_equal(hf_test_reserve(quota->handles[0], "b", "u", NULL, 60, 1, &answer), HOLDFAST_REFUSED);
    assert_int_equal(answer.window, HOLDFAST_WINDOW_MINUTE);
    assert_int_equal(hf_test_reserve(quota->handles[0], "b", "u", NULL, 50, 1, &answer), HOLDFAST_OK);
    assert_int_equal(hf_bucket_value(row->row_buckets[0][1]), 1000);
    assert_int_equal(hf_bucket_window(row->row_buckets[0][1]), next);
    assert_true(answer.expires_at_ms == (uint64_t)next * 60000 + 1000);
}

/* Two handles settle the same id with different usage: one wins, the other hears that it is closed. */
static void one_closing_wins(void **state)
{
    struct hf_test_quota *quota = *state;
    struct holdfast_answer answer;
    struct holdfast_closing first;
    struct holdfast_closing second;
    assert_int_equal(hf_test_reserve(quota->handles[0], "a", "u", NULL, 100, 220, &answer), HOLDFAST_OK);
    assert_int_equal(hf_test_settle(quota->handles[0], "a", 10, 5, 55, &first), HOLDFAST_OK);
    assert_int_equal(hf_test_settle(quota->handles[1], "a", 10, 5, 55, &second), HOLDFAST_OK);
    assert_int_equal(second.replayed, 1);
    assert_int_equal(second.released.cost_micros, 165);
    assert_int_equal(hf_test_settle(quota->handles[1], "a", 10, 5, 60, &second), HOLDFAST_REFUSED);
    assert_int_equal(second.reason, HOLDFAST_REASON_ALREADY_CLOSED);
    assert_int_equal(holdfast_release(quota->handles[1], "a", 0, &second), HOLDFAST_REFUSED);
    assert_int_equal(hf_test_value(quota, "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS), 55);
}

/* Rule 4, the end of it: the last sequence is given out, then everything that would take another one answers busy at once,
 * and what only looks goes on. */
static void a_used_up_sequence_is_busy(void **state)
{
    struct hf_test_quota *quota = *state;
    struct holdfast *handle = quota->handles[0];
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    struct holdfast_extension extension;
    uint64_t total;
    int reason;
    assert_int_equal(hf_test_reserve(handle, "a", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    struct hf_shm_tenant *tenant = &quota->seg->tenants[0];
    struct hf_u128 word;
    assert_int_equal(hf_commit_ready(quota->seg, 0, &word), HF_OK);
    tenant->ten_word = hf_word_make(HF_SHM_SEQ_MAX - 1, HF_KIND_NONE, 0, 0);
    tenant->ten_applied = HF_SHM_SEQ_MAX - 1;
    assert_int_equal(hf_test_reserve(handle, "b", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    assert_true(hf_word_seq(tenant->ten_word) == HF_SHM_SEQ_MAX);
    assert_int_equal(hf_test_reserve(handle, "c", "u", NULL, 10, 100, &answer), HOLDFAST_REFUSED);
    assert_int_equal(answer.reason, HOLDFAST_REASON_BUSY);
    assert_int_equal(hf_test_reserve(handle, "d", "u", NULL, 10, 10001, &answer), HOLDFAST_REFUSED);
    assert_int_equal(answer.reason, HOLDFAST_REASON_REQUEST_CAP);
    assert_int_equal(hf_test_reserve(handle, "b", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    assert_int_equal(answer.replayed, 1);
    assert_int_equal(hf_test_settle(handle, "a", 1, 1, 1, &closing), HOLDFAST_REFUSED);
    assert_int_equal(closing.reason, HOLDFAST_REASON_BUSY);
    assert_int_equal(quota->seg->slots[hf_test_slot(quota, "a")].slot_claim, 0);
    assert_int_equal(holdfast_release(handle, "a", 0, &closing), HOLDFAST_REFUSED);
    assert_int_equal(closing.reason, HOLDFAST_REASON_BUSY);
    assert_int_equal(holdfast_dispatch(handle, "a", 0, &reason), HOLDFAST_REFUSED);
    assert_int_equal(reason, HOLDFAST_REASON_BUSY);
    holdfast_extension_init(&extension);
    extension.id = "a";
    extension.cost_micros = 200;
    assert_int_equal(holdfast_extend(handle, &extension, &answer), HOLDFAST_REFUSED);
    assert_int_equal(answer.reason, HOLDFAST_REASON_BUSY);
    assert_int_equal(
        holdfast_credit(handle, "t", "u", HOLDFAST_WINDOW_MONTH, 5, "why", "who", &total, &reason),
        HOLDFAST_REFUSED);
    assert_int_equal(reason, HOLDFAST_REASON_BUSY);
    uint32_t slot_b = hf_test_slot(quota, "b");
    uint64_t seen = 0;
    assert_int_equal(hf_commit_detach(quota->seg, 0, slot_b, quota->seg->slots[slot_b].slot_st, &seen),
                     HF_EBUSY);
    assert_int_equal(hf_test_value(quota, "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS), 200);
    assert_int_equal(hf_test_mismatches(quota), 0);
}

/* A PENDING reservation is nothing to wait for: freed, it would look as if it had been committed. */
static void a_pending_reservation_is_not_waited_for(void **state)
{
    struct hf_test_quota *quota = *state;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    assert_int_equal(hf_test_reserve(quota->handles[1], "a", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    struct hf_shm_slot *slot = &quota->seg->slots[hf_test_slot(quota, "a")];
    assert_int_equal(holdfast_release(quota->handles[1], "a", 0, &closing), HOLDFAST_OK);
    slot->slot_st = hf_st_make(0, 0, HF_STATE_PENDING, 0, hf_st_gen(slot->slot_st)); /* as before its W */
    assert_int_equal(holdfast_wait_durable(quota->handles[0], "a", 0, 0), HOLDFAST_REFUSED);
}

/* What was charged in the last minute does not count in this one. (What is held could hide it: it is past its time by then.) */
static void a_new_window_begins_empty(void **state)
{
    struct hf_test_quota *quota = *state;
    struct holdfast_answer answer;
    struct holdfast_closing closing;

    assert_int_equal(hf_test_reserve(quota->handles[0], "first", "u", NULL, 1000, 10, &answer), HOLDFAST_OK);
    assert_int_equal(hf_test_settle(quota->handles[0], "first", 600, 400, 10, &closing), HOLDFAST_OK);
    assert_int_equal(hf_test_reserve(quota->handles[0], "same", "u", NULL, 1, 10, &answer), HOLDFAST_REFUSED);
    (void)hf_clock_inject(quota->seg, HF_TEST_NOW_MS + 60000);
    assert_int_equal(hf_test_reserve(quota->handles[0], "next", "u", NULL, 1000, 10, &answer), HOLDFAST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_refusal_changes_nothing, make, drop),
        cmocka_unit_test_setup_teardown(a_live_claim_is_busy, make, drop),
        cmocka_unit_test_setup_teardown(a_dead_claim_is_taken_over, make, drop),
        cmocka_unit_test_setup_teardown(a_pending_twin, make, drop),
        cmocka_unit_test(without_a_free_slot_it_fails_closed),
        cmocka_unit_test_setup_teardown(a_token_is_checked_against_the_id, make, drop),
        cmocka_unit_test_setup_teardown(a_forked_child_joins_for_itself, make, drop),
        cmocka_unit_test_setup_teardown(a_store_far_behind_is_busy, make, drop),
        cmocka_unit_test_setup_teardown(a_refused_worker_reaps_for_a_silent_daemon, make, drop),
        cmocka_unit_test(a_refused_worker_finds_the_dead_hold_in_a_large_segment),
        cmocka_unit_test_setup_teardown(a_window_never_opens_again, make, drop),
        cmocka_unit_test_setup_teardown(a_new_window_begins_empty, make, drop),
        cmocka_unit_test_setup_teardown(one_closing_wins, make, drop),
        cmocka_unit_test_setup_teardown(a_used_up_sequence_is_busy, make, drop),
        cmocka_unit_test_setup_teardown(a_pending_reservation_is_not_waited_for, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
