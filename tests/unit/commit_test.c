/* The commit-word transaction, half-made operations built by hand: whatever was done of an operation when its process
 * died, the next one finishes exactly the rest. */
/* ctest: labels=valgrind */
#include "core/reap.h"
#include "core/slot.h"
#include "shm/clock.h"
#include "shm/commit.h"
#include "tests/support/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* How much of an operation its dead process had done. */
enum done {
    DONE_WORD,
    DONE_FIRST_BUCKET,
    DONE_BUCKETS,
    DONE_STATE,
    DONE_CNT
};

/* Moves W for an operation of this kind on the slot and does only part of what follows, as a process that was killed.
 * The slot's fields are ready. */
static struct hf_op die_within(struct hf_segment *seg, uint32_t slot_idx, enum hf_kind kind, enum done done)
{
    struct hf_shm_slot *slot = &seg->slots[slot_idx];
    struct hf_shm_tenant *tenant = &seg->tenants[slot->slot_tenant];
    struct hf_u128 word;
    struct hf_op op;
    assert_int_equal(hf_commit_ready(seg, slot->slot_tenant, &word), HF_OK);
    assert_true(hf_commit_describe(seg, slot_idx, kind, hf_word_seq(word) + 1, HF_TEST_NOW_MS, &op, NULL));
    struct hf_u128 next = hf_word_make(op.seq, kind, slot_idx, HF_TEST_NOW_MS);
    assert_true(hf_cas_acqrel_u128(&tenant->ten_word, word, next));
    uint32_t cnt = done == DONE_WORD ? 0 : done == DONE_FIRST_BUCKET ? op.buckets_cnt != 0 : op.buckets_cnt;
    for (uint32_t n = 0; n < cnt; n++) {
        struct hf_u128 *bucket = op.buckets[n].word;
        struct hf_u128 before = *bucket;
        struct hf_u128 after;
        if (hf_commit_bucket_after(&op, n, before, &after)) {
            assert_true(hf_cas_acqrel_u128(bucket, before, after));
        }
    }
    if (done == DONE_STATE) {
        assert_true(hf_cas_acqrel_u128(&slot->slot_st, op.st_before, op.st_after));
    }
    return op;
}

static void make_actual(struct hf_shm_slot *slot, uint64_t tokens, uint64_t cost)
{
    slot->slot_actual_tokens = tokens;
    slot->slot_actual_cost = cost;
    slot->slot_close = HF_CLOSE_USAGE | HF_CLOSE_SOURCE_PROVIDER;
}

/* After help: state, buckets and A are as if the operation had never been interrupted. */
static void check_helped(struct hf_test_quota *quota, uint32_t slot_idx, const struct hf_op *op,
                         enum hf_state state)
{
    struct hf_u128 word;
    uint32_t tenant = quota->seg->slots[slot_idx].slot_tenant;
    assert_int_equal(hf_commit_ready(quota->seg, tenant, &word), HF_OK);
    assert_int_equal(hf_word_seq(word), op->seq);
    assert_true(quota->seg->tenants[tenant].ten_applied == op->seq);
    assert_int_equal(hf_st_state(quota->seg->slots[slot_idx].slot_st), state);
    assert_true(hf_st_seq(quota->seg->slots[slot_idx].slot_st) == op->seq);
    assert_int_equal(hf_test_mismatches(quota), 0);
    /* And once more: nothing is applied twice. */
    quota->seg->tenants[tenant].ten_applied = 0;
    assert_int_equal(hf_commit_ready(quota->seg, tenant, &word), HF_OK);
    assert_int_equal(hf_test_mismatches(quota), 0);
}

static void one_kind(enum hf_kind kind, enum hf_state state, const char *team)
{
    for (int done = DONE_WORD; done < DONE_CNT; done++) {
        struct hf_test_quota quota;
        struct holdfast_answer answer;
        hf_test_quota_make(&quota, hf_test_policy(), 64);
        assert_int_equal(hf_test_reserve(quota.handles[0], "other", "u", NULL, 10, 20, &answer), HOLDFAST_OK);
        assert_int_equal(hf_test_reserve(quota.handles[0], "a", team, NULL, 100, 400, &answer), HOLDFAST_OK);
        uint32_t slot_idx = hf_test_slot(&quota, "a");
        struct hf_shm_slot *slot = &quota.seg->slots[slot_idx];
        make_actual(slot, 70, 300);
        slot->slot_holds[1] = slot->slot_holds[0];
        slot->slot_holds[1].hold_tokens = 150;
        slot->slot_holds[1].hold_cost = 450;
        struct hf_op op = die_within(quota.seg, slot_idx, kind, (enum done)done);
        check_helped(&quota, slot_idx, &op, state);
        hf_test_quota_free(&quota);
    }
}

static void help_finishes_settle(void **state)
{
    (void)state;
    one_kind(HF_KIND_SETTLE, HF_STATE_SETTLED, "u");
}
static void help_finishes_release(void **state)
{
    (void)state;
    one_kind(HF_KIND_RELEASE, HF_STATE_RELEASED, "u");
}
static void help_finishes_extend(void **state)
{
    (void)state;
    one_kind(HF_KIND_EXTEND, HF_STATE_HELD, "u");
}
static void help_finishes_dispatch(void **state)
{
    (void)state;
    one_kind(HF_KIND_DISPATCH, HF_STATE_DISPATCHED, "u");
}
static void help_finishes_expire(void **state)
{
    (void)state;
    one_kind(HF_KIND_EXPIRE, HF_STATE_EXPIRED, "u");
}
static void help_finishes_retain(void **state)
{
    (void)state;
    one_kind(HF_KIND_RETAIN, HF_STATE_RETAINED, "v");
}
static void help_finishes_dispute(void **state)
{
    (void)state;
    one_kind(HF_KIND_DISPUTE, HF_STATE_DISPUTED, "v");
}

/* A late settlement and a late dispute start from what the expiry left. */
static void late_kind(enum hf_kind kind, enum hf_state after)
{
    for (int done = DONE_WORD; done < DONE_CNT; done++) {
        struct hf_test_quota quota;
        struct holdfast_answer answer;
        hf_test_quota_make(&quota, hf_test_policy(), 64);
        assert_int_equal(hf_test_reserve(quota.handles[0], "a", "u", NULL, 100, 400, &answer), HOLDFAST_OK);
        hf_clock_inject(quota.seg, HF_TEST_NOW_MS + 1000);
        assert_int_equal(holdfast_reap(quota.handles[1], 0, NULL, NULL), 1);
        uint32_t slot_idx = hf_test_slot(&quota, "a");
        make_actual(&quota.seg->slots[slot_idx], 70, 300);
        struct hf_op op = die_within(quota.seg, slot_idx, kind, (enum done)done);
        check_helped(&quota, slot_idx, &op, after);
        hf_test_quota_free(&quota);
    }
}
static void help_finishes_late_settlement(void **state)
{
    (void)state;
    late_kind(HF_KIND_LATE, HF_STATE_LATE);
}
static void help_finishes_late_dispute(void **state)
{
    (void)state;
    late_kind(HF_KIND_DISPUTE, HF_STATE_DISPUTED);
}

/* A reserve whose process died after W: it happened. Before W: it never did, and its id is free again. */
static void help_finishes_reserve(void **state)
{
    (void)state;
    for (int done = DONE_WORD; done < DONE_CNT; done++) {
        struct hf_test_quota quota;
        struct holdfast_answer answer;
        hf_test_quota_make(&quota, hf_test_policy(), 64);
        assert_int_equal(hf_test_reserve(quota.handles[0], "a", "u", "k", 100, 400, &answer), HOLDFAST_OK);
        struct hf_shm_slot *slot = &quota.seg->slots[hf_test_slot(&quota, "a")];
        /* Turn the clock back by hand: the slot PENDING again under the next generation, as before its W. */
        uint32_t slot_idx = hf_test_slot(&quota, "a");
        struct holdfast_closing closing;
        assert_int_equal(holdfast_release(quota.handles[0], "a", 0, &closing), HOLDFAST_OK);
        slot->slot_st = hf_st_make(0, 0, HF_STATE_PENDING, 0, hf_st_gen(slot->slot_st));
        struct hf_op op = die_within(quota.seg, slot_idx, HF_KIND_RESERVE, (enum done)done);
        check_helped(&quota, slot_idx, &op, HF_STATE_HELD);
        assert_int_equal(hf_test_value(&quota, "u", NULL, 3, 2), 400);
        assert_int_equal(hf_test_value(&quota, "u", "k", 2, 0), 1);
        hf_test_quota_free(&quota);
    }
}

/* Rule 2: what a helper copied counts only if W still names the operation. */
static void a_lost_word_changes_nothing(void **state)
{
    (void)state;
    struct hf_test_quota quota;
    struct holdfast_answer answer;
    struct hf_u128 word;
    struct hf_op op;
    hf_test_quota_make(&quota, hf_test_policy(), 64);
    assert_int_equal(hf_test_reserve(quota.handles[0], "a", "u", NULL, 100, 400, &answer), HOLDFAST_OK);
    uint32_t slot_idx = hf_test_slot(&quota, "a");
    assert_int_equal(hf_commit_ready(quota.seg, 0, &word), HF_OK);
    assert_true(hf_commit_describe(quota.seg, slot_idx, HF_KIND_RELEASE, hf_word_seq(word) + 1,
                                   HF_TEST_NOW_MS, &op, NULL));
    assert_int_equal(hf_test_reserve(quota.handles[1], "b", "u", NULL, 1, 1, &answer), HOLDFAST_OK);
    assert_false(hf_commit_unchanged(&quota.seg->tenants[0], word));
    assert_false(hf_commit_run(quota.seg, 0, word, &op, HF_TEST_NOW_MS));
    assert_int_equal(hf_test_value(&quota, "u", NULL, 3, 2), 401);
    assert_int_equal(hf_test_mismatches(&quota), 0);
    hf_test_quota_free(&quota);
}

/* ---- the owner's operation is its helper's ------------------------------------------------------------------- */

struct before {
    struct hf_shm_row *rows;
    struct hf_u128 st;
    struct hf_u128 word;
};

static size_t rows_bytes(const struct hf_test_quota *quota)
{
    return quota->seg->rows_cnt * sizeof(*quota->seg->rows);
}

static struct before look_before(const struct hf_test_quota *quota)
{
    struct before before = {.rows = malloc(rows_bytes(quota)), .word = quota->seg->tenants[0].ten_word};
    assert_non_null(before.rows);
    memcpy(before.rows, quota->seg->rows, rows_bytes(quota));
    return before;
}

/* The owner of W's operation has done it from what it knew. Now buckets, state and A are set back to before it: a helper, who knows W
 * and the slot, makes the very same of them. */
static void same_by_a_helper(struct hf_test_quota *quota, uint32_t slot_idx, const struct before *before)
{
    struct hf_shm_tenant *tenant = &quota->seg->tenants[0];
    struct hf_shm_slot *slot = &quota->seg->slots[slot_idx];
    struct hf_u128 st = slot->slot_st;
    struct hf_u128 word;
    struct hf_shm_row *after = malloc(rows_bytes(quota));
    assert_non_null(after);
    memcpy(after, quota->seg->rows, rows_bytes(quota));
    assert_true(hf_word_seq(tenant->ten_word) == hf_word_seq(before->word) + 1U);
    assert_int_equal(hf_word_slot(tenant->ten_word), slot_idx);

    memcpy(quota->seg->rows, before->rows, rows_bytes(quota));
    slot->slot_st = before->st;
    tenant->ten_applied = hf_word_seq(before->word);
    assert_int_equal(hf_commit_ready(quota->seg, 0, &word), HF_OK);
    assert_memory_equal(quota->seg->rows, after, rows_bytes(quota));
    assert_true(slot->slot_st.lo == st.lo && slot->slot_st.hi == st.hi);
    assert_true(tenant->ten_applied == hf_word_seq(word));
    assert_int_equal(hf_test_mismatches(quota), 0);
    free(after);
    free(before->rows);
}

enum course {
    COURSE_HELD,
    COURSE_DISPATCHED,
    COURSE_EXPIRED, /* or retained, as the team's policy says */
    COURSE_CNT
};

/* A reservation, what happens to it, and its settlement at this cost (HOLDFAST_UNKNOWN: without usage); each step by both. */
static void each_step_by_both(const char *team, enum course course, uint64_t cost, enum hf_state state)
{
    struct hf_test_quota quota;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    struct holdfast_usage usage;
    hf_test_quota_make(&quota, hf_test_policy(), 64);
    assert_int_equal(hf_test_reserve(quota.handles[0], "other", team, NULL, 10, 20, &answer), HOLDFAST_OK);
    struct before before = look_before(&quota);
    assert_int_equal(hf_test_reserve(quota.handles[0], "a", team, NULL, 100, 400, &answer), HOLDFAST_OK);
    uint32_t slot_idx = hf_test_slot(&quota, "a");
    struct hf_shm_slot *slot = &quota.seg->slots[slot_idx];
    before.st = (struct hf_u128){hf_st_make(0, 0, HF_STATE_PENDING, 0, 0).lo, slot->slot_st.hi};
    same_by_a_helper(&quota, slot_idx, &before);

    if (course != COURSE_HELD) {
        if (course == COURSE_EXPIRED) {
            (void)hf_clock_inject(quota.seg, answer.expires_at_ms + 1U);
        }
        before = look_before(&quota);
        before.st = slot->slot_st;
        int rc = course == COURSE_EXPIRED ? hf_reap_slot(quota.seg, slot_idx)
                                          : holdfast_dispatch(quota.handles[1], "a", answer.hold, NULL);
        assert_true(course == COURSE_EXPIRED ? rc > 0 : rc == HOLDFAST_OK);
        same_by_a_helper(&quota, slot_idx, &before);
    }
    before = look_before(&quota);
    before.st = slot->slot_st;
    holdfast_usage_init(&usage, 40, 30);
    usage.cost_micros = cost;
    int rc = holdfast_settle(quota.handles[1], "a", answer.hold, cost == HOLDFAST_UNKNOWN ? NULL : &usage,
                             HOLDFAST_SUCCESS, NULL, &closing);
    assert_int_equal(rc, state == HF_STATE_DISPUTED ? HOLDFAST_REFUSED : HOLDFAST_OK);
    assert_int_equal(hf_st_state(slot->slot_st), state);
    same_by_a_helper(&quota, slot_idx, &before);
    hf_test_quota_free(&quota);
}

static void owner_and_helper_do_the_same(void **state)
{
    (void)state;
    for (int course = COURSE_HELD; course < COURSE_CNT; course++) {
        enum hf_state closed = course == COURSE_EXPIRED ? HF_STATE_LATE : HF_STATE_SETTLED;
        each_step_by_both("u", (enum course)course, 300, closed);
        each_step_by_both("u", (enum course)course, 450, closed);
        each_step_by_both("u", (enum course)course, HOLDFAST_UNKNOWN, closed);
        each_step_by_both("v", (enum course)course, 300, closed);
        each_step_by_both("v", (enum course)course, 450, HF_STATE_DISPUTED);
        each_step_by_both("v", (enum course)course, HOLDFAST_UNKNOWN, closed);
    }
}

/* A bucket of an older window admits a reserve of the newer one and ignores every other operation of the older. */
static void windows_never_go_back(void **state)
{
    (void)state;
    struct hf_op op = {.seq = 9,
                       .windows = {7, 0, 0, 0, 0},
                       .change = {0, -5, 0},
                       .buckets_cnt = 1,
                       .buckets = {{.window = 0, .dimension = 1}}};
    struct hf_u128 after;
    assert_false(hf_commit_bucket_after(&op, 0, hf_bucket_make(50, 8, 3), &after));
    assert_false(hf_commit_bucket_after(&op, 0, hf_bucket_make(50, 6, 3), &after));
    assert_true(hf_commit_bucket_after(&op, 0, hf_bucket_make(50, 7, 3), &after));
    assert_int_equal(hf_bucket_value(after), 45);
    assert_int_equal(hf_bucket_tag(after), 9);
    assert_false(hf_commit_bucket_after(&op, 0, hf_bucket_make(50, 7, 9), &after));
    op.opens = true;
    op.change[1] = 5;
    assert_true(hf_commit_bucket_after(&op, 0, hf_bucket_make(50, 6, 3), &after));
    assert_int_equal(hf_bucket_value(after), 5);
    assert_int_equal(hf_bucket_window(after), 7);
    assert_false(hf_commit_bucket_after(&op, 0, hf_bucket_make(50, 8, 3), &after));
}

static void words_pack_and_unpack(void **state)
{
    (void)state;
    struct hf_u128 w = hf_word_make(HF_SHM_SEQ_MAX, HF_KIND_CREDIT, HF_SHM_SLOTS_MAX - 1, 13601087999999ULL);
    assert_true(hf_word_seq(w) == HF_SHM_SEQ_MAX);
    assert_int_equal(hf_word_kind(w), HF_KIND_CREDIT);
    assert_int_equal(hf_word_slot(w), HF_SHM_SLOTS_MAX - 1);
    assert_true(hf_word_time_ms(w) == 13601087999999ULL);
    struct hf_u128 st =
        hf_st_make(HF_SHM_SEQ_MAX - 1, 0x7ff, HF_STATE_TICKET_OUT, 13601087999999ULL, 0xfffff);
    assert_true(hf_st_seq(st) == HF_SHM_SEQ_MAX - 1);
    assert_int_equal(hf_st_ordinal(st), 0x7ff);
    assert_int_equal(hf_st_state(st), HF_STATE_TICKET_OUT);
    assert_true(hf_st_time_ms(st) == 13601087999999ULL);
    assert_int_equal(hf_st_gen(st), 0xfffff);
    struct hf_u128 b = hf_bucket_make(HF_SHM_AMOUNT_MAX, (1U << 28) - 1, HF_SHM_SEQ_MAX);
    assert_true(hf_bucket_value(b) == HF_SHM_AMOUNT_MAX);
    assert_int_equal(hf_bucket_window(b), (1U << 28) - 1);
    assert_true(hf_bucket_tag(b) == HF_SHM_SEQ_MAX);
}

/* A word that cannot be is corruption, not a crash and not an endless loop. */
static void an_impossible_word_is_corrupt(void **state)
{
    (void)state;
    struct hf_test_quota quota;
    struct holdfast_answer answer;
    hf_test_quota_make(&quota, hf_test_policy(), 64);
    quota.seg->tenants[0].ten_word = hf_word_make(5, HF_KIND_SETTLE, 60000, 1);
    assert_int_equal(hf_test_reserve(quota.handles[0], "a", "u", NULL, 1, 1, &answer), HOLDFAST_CORRUPT);
    assert_int_equal(hf_test_reserve(quota.handles[0], "a", "u", NULL, 1, 1, &answer), HOLDFAST_CORRUPT);
    assert_int_equal(quota.seg->header->hdr_alarms[HF_ALARM_CORRUPT], 1);
    hf_test_quota_free(&quota);
}

/* Rule 3: after a detach W names no slot, and the sequence has gone on. */
static void detach_raises_the_sequence(void **state)
{
    (void)state;
    struct hf_test_quota quota;
    struct holdfast_answer answer;
    struct hf_u128 before;
    struct hf_u128 after;
    hf_test_quota_make(&quota, hf_test_policy(), 64);
    assert_int_equal(hf_test_reserve(quota.handles[0], "a", "u", NULL, 1, 1, &answer), HOLDFAST_OK);
    uint32_t slot_idx = hf_test_slot(&quota, "a");
    struct hf_u128 st = quota.seg->slots[slot_idx].slot_st;
    uint64_t seen = 0;
    assert_int_equal(hf_commit_ready(quota.seg, 0, &before), HF_OK);
    assert_int_equal(hf_commit_detach(quota.seg, 0, slot_idx, st, &seen), HF_OK);
    assert_int_equal(hf_commit_ready(quota.seg, 0, &after), HF_OK);
    assert_int_equal(hf_word_kind(after), HF_KIND_NONE);
    assert_true(hf_word_seq(after) == hf_word_seq(before) + 1);
    assert_int_equal(hf_commit_detach(quota.seg, 0, slot_idx, st, &seen), HF_OK);
    assert_int_equal(hf_commit_ready(quota.seg, 0, &before), HF_OK);
    assert_true(hf_word_seq(after) == hf_word_seq(before));
    hf_test_quota_free(&quota);
}

/* Terminal is a state that some kind leads to and none starts from; a kind that starts from one takes it out. */
static void terminal_is_where_no_kind_starts(void **state)
{
    (void)state;
    struct hf_test_quota quota;
    struct hf_op op;
    bool left[HF_STATE_CNT] = {false};
    bool reached[HF_STATE_CNT] = {false};
    hf_test_quota_make(&quota, hf_test_policy(), 64);
    for (int kind = HF_KIND_NONE; kind < HF_KIND_CNT; kind++) {
        for (uint32_t before = HF_STATE_FREE; before < HF_STATE_CNT; before++) {
            if (hf_commit_describe_from(quota.seg, 0, hf_st_make(1, 0, before, HF_TEST_NOW_MS, 1),
                                        (enum hf_kind)kind, 2, HF_TEST_NOW_MS, &op)) {
                left[before] = true;
                reached[hf_st_state(op.st_after)] = true;
            }
        }
    }
    for (int at = HF_STATE_FREE; at < HF_STATE_CNT; at++) {
        assert_int_equal(hf_commit_is_terminal((enum hf_state)at), reached[at] && !left[at]);
    }
    hf_test_quota_free(&quota);
}

/* A slot closed for good before the operation that W was seen at is detached without a look at W: one that cannot be shows it. */
static void detach_leaves_the_word_of_what_is_past(void **state)
{
    (void)state;
    const enum hf_state read[] = {HF_STATE_ABANDONED, HF_STATE_HELD, HF_STATE_DISPATCHED, HF_STATE_EXPIRED,
                                  HF_STATE_RETAINED};
    const enum hf_state left_alone[] = {HF_STATE_SETTLED, HF_STATE_RELEASED, HF_STATE_LATE, HF_STATE_DISPUTED,
                                        HF_STATE_CREDIT};
    struct hf_test_quota quota;
    uint64_t seen = 5;
    hf_test_quota_make(&quota, hf_test_policy(), 64);
    quota.seg->tenants[0].ten_word = hf_word_make(9, HF_KIND_SETTLE, 60000, 1);
    for (size_t i = 0; i < sizeof(left_alone) / sizeof(left_alone[0]); i++) {
        assert_int_equal(hf_commit_detach(quota.seg, 0, 3, hf_st_make(4, 0, left_alone[i], 1, 1), &seen),
                         HF_OK);
        /* What W was seen at is not past; nor what has no sequence. */
        assert_int_equal(hf_commit_detach(quota.seg, 0, 3, hf_st_make(5, 0, left_alone[i], 1, 1), &seen),
                         HF_ECORRUPT);
        assert_int_equal(hf_commit_detach(quota.seg, 0, 3, hf_st_make(0, 0, left_alone[i], 1, 1), &seen),
                         HF_ECORRUPT);
    }
    for (size_t i = 0; i < sizeof(read) / sizeof(read[0]); i++) {
        assert_int_equal(hf_commit_detach(quota.seg, 0, 3, hf_st_make(4, 0, read[i], 1, 1), &seen),
                         HF_ECORRUPT);
    }
    assert_true(seen == 5);
    hf_test_quota_free(&quota);
}

/* What a look at W for one slot says, is known for all that were closed before. */
static void one_look_at_the_word_does_for_many(void **state)
{
    (void)state;
    struct hf_test_quota quota;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    const char *ids[] = {"a", "b", "c"};
    uint32_t slot_idx[3];
    uint64_t seen = 0;
    hf_test_quota_make(&quota, hf_test_policy(), 64);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hf_test_reserve(quota.handles[0], ids[i], "u", NULL, 1, 1, &answer), HOLDFAST_OK);
        slot_idx[i] = hf_test_slot(&quota, ids[i]);
        assert_int_equal(hf_test_settle(quota.handles[0], ids[i], 1, 0, 1, &closing), HOLDFAST_OK);
    }
    struct hf_shm_slot *slots = quota.seg->slots;
    struct hf_u128 word = quota.seg->tenants[0].ten_word;
    assert_int_equal(hf_commit_detach(quota.seg, 0, slot_idx[0], slots[slot_idx[0]].slot_st, &seen), HF_OK);
    assert_true(seen == hf_word_seq(word));
    /* The one that W names, at the very sequence that was seen. */
    assert_true(hf_st_seq(slots[slot_idx[2]].slot_st) == seen);
    assert_int_equal(hf_commit_detach(quota.seg, 0, slot_idx[2], slots[slot_idx[2]].slot_st, &seen), HF_OK);
    assert_int_equal(hf_word_kind(quota.seg->tenants[0].ten_word), HF_KIND_NONE);
    quota.seg->tenants[0].ten_word = hf_word_make(seen + 9, HF_KIND_SETTLE, 60000, 1);
    assert_int_equal(hf_commit_detach(quota.seg, 0, slot_idx[1], slots[slot_idx[1]].slot_st, &seen), HF_OK);
    hf_test_quota_free(&quota);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_finishes_settle),
        cmocka_unit_test(help_finishes_release),
        cmocka_unit_test(help_finishes_extend),
        cmocka_unit_test(help_finishes_dispatch),
        cmocka_unit_test(help_finishes_expire),
        cmocka_unit_test(help_finishes_retain),
        cmocka_unit_test(help_finishes_dispute),
        cmocka_unit_test(help_finishes_late_settlement),
        cmocka_unit_test(help_finishes_late_dispute),
        cmocka_unit_test(help_finishes_reserve),
        cmocka_unit_test(a_lost_word_changes_nothing),
        cmocka_unit_test(windows_never_go_back),
        cmocka_unit_test(words_pack_and_unpack),
        cmocka_unit_test(an_impossible_word_is_corrupt),
        cmocka_unit_test(detach_raises_the_sequence),
        cmocka_unit_test(owner_and_helper_do_the_same),
        cmocka_unit_test(terminal_is_where_no_kind_starts),
        cmocka_unit_test(detach_leaves_the_word_of_what_is_past),
        cmocka_unit_test(one_look_at_the_word_does_for_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
