/* What one process does, with another one working between any two of its accesses to shared memory: the answers and what
 * stands afterwards are those of some order of the two. */
#include "core/reap.h"
#include "persist/snapshot.h"
#include "shm/index.h"
#include "tests/fault/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What act answered. */
static struct holdfast_answer answer;
static struct holdfast_closing closing;
static int rc;

static void ready_all(struct world *world)
{
    struct hf_u128 word;

    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(hf_commit_ready(world->quota.seg, i, &word), HF_OK);
    }
}

/* No amount is lost, none counts twice, and nothing was taken for damage. */
static void check_sums(struct world *world)
{
    ready_all(world);
    if (hf_test_mismatches(&world->quota) != 0) {
        print_message("at access %u: a bucket differs from its slots\n", world_place());
    }
    assert_int_equal(hf_test_mismatches(&world->quota), 0);
    assert_int_equal(world->quota.seg->header->hdr_alarms[HF_ALARM_CORRUPT], 0);
}

static struct hf_shm_slot *slot_of(struct world *world)
{
    return &world->quota.seg->slots[world->slot_idx];
}

static enum hf_state state_of(struct world *world)
{
    return hf_st_state(hf_commit_read_st(slot_of(world)));
}

static void other_releases(struct world *world)
{
    struct holdfast_closing ignored;

    assert_int_equal(holdfast_release(world->other, "a", 0, &ignored), HOLDFAST_OK);
}

/* `a` is over and gone, and its slot holds `b` of another tenant; unless somebody claims it. */
static void other_starts_the_next_life(struct world *world)
{
    struct holdfast_closing ignored;

    ready_all(world);
    if (holdfast_release(world->other, "a", 0, &ignored) == HOLDFAST_OK &&
        world_forget(world, world->slot_idx)) {
        world_refill(world, world->slot_idx, "b", "z");
    }
}

/* ---- helping ------------------------------------------------------------------------------------------------------ */

static void die_in_release(struct world *world)
{
    (void)world_die_after_word(world, world->slot_idx, HF_KIND_RELEASE);
}

static void die_in_dispatch(struct world *world)
{
    (void)world_die_after_word(world, world->slot_idx, HF_KIND_DISPATCH);
}

static void help(struct world *world)
{
    struct hf_u128 word;

    rc = hf_commit_ready(world->quota.seg, 0, &word);
    assert_int_equal(rc, HF_OK);
}

static void check_next_life(struct world *world)
{
    struct hf_u128 st = hf_commit_read_st(slot_of(world));

    check_sums(world);
    if (hf_test_slot(&world->quota, "b") == world->slot_idx) {
        assert_int_equal(hf_st_state(st), HF_STATE_HELD);
        assert_true(hf_st_seq(st) < 1000000); /* of tenant z */
    }
}

static void forget_and_refill(struct world *world)
{
    ready_all(world);
    assert_true(world_forget(world, world->slot_idx));
    world_refill(world, world->slot_idx, "b", "z");
}

/* The same after others have worked on the tenant, and the daemon knows it: it frees the slot without a look at W. */
static void forget_unseen_and_refill(struct world *world)
{
    const struct hf_shm_tenant *tenant = &world->quota.seg->tenants[0];
    struct holdfast_answer ignored;
    struct holdfast_closing gone;

    ready_all(world);
    assert_int_equal(hf_test_reserve(world->other, "d", "u", NULL, 1, 1, &ignored), HOLDFAST_OK);
    assert_int_equal(holdfast_release(world->other, "d", 0, &gone), HOLDFAST_OK);
    assert_true(world_forget(world, (uint32_t)(ignored.hold >> 20) - 1U));
    assert_true(hf_st_seq(slot_of(world)->slot_st) < world->word_seqs[0]);
    struct hf_u128 word = tenant->ten_word;
    assert_true(world_forget(world, world->slot_idx));
    assert_true(hf_word_seq(tenant->ten_word) == hf_word_seq(word));
    world_refill(world, world->slot_idx, "b", "z");
}

/* The operation that is helped is finished by another one, its slot freed and filled again on another tenant. */
static void a_helper_meets_the_next_life(void **state)
{
    const struct between unseen = {die_in_release, help, forget_unseen_and_refill, check_next_life};
    const struct between release = {die_in_release, help, forget_and_refill, check_next_life};
    const struct between dispatch = {die_in_dispatch, help, ready_all, check_sums};

    (void)state;
    (void)world_between(&release);
    (void)world_between(&unseen);
    (void)world_between(&dispatch);
}

/* Two operations further: what a slow helper does must not undo them. */
static void other_settles(struct world *world)
{
    struct holdfast_closing ignored;

    assert_int_equal(hf_test_settle(world->other, "a", 3, 4, 50, &ignored), HOLDFAST_OK);
}

static void check_settled(struct world *world)
{
    check_sums(world);
    assert_int_equal(state_of(world), HF_STATE_SETTLED);
}

static void a_slow_helper_undoes_nothing(void **state)
{
    const struct between between = {die_in_dispatch, help, other_settles, check_settled};

    (void)state;
    (void)world_between(&between);
}

/* W looks damaged only because it is replaced at the moment. */
static void plant_an_impossible_word(struct world *world)
{
    struct hf_shm_tenant *tenant = &world->quota.seg->tenants[0];

    tenant->ten_word =
        hf_word_make(hf_word_seq(tenant->ten_word) + 1, HF_KIND_RELEASE, 0xffffff, HF_TEST_NOW_MS);
}

static void mend_the_word(struct world *world)
{
    struct hf_shm_tenant *tenant = &world->quota.seg->tenants[0];

    tenant->ten_word = hf_word_make(hf_word_seq(tenant->ten_word) + 1, HF_KIND_NONE, 0, HF_TEST_NOW_MS);
}

static void help_whatever_it_is(struct world *world)
{
    struct hf_u128 word;

    rc = hf_commit_ready(world->quota.seg, 0, &word);
    /* Mended before it was looked at for the last time: no damage any more. */
    if (rc == HF_OK) {
        assert_int_equal(hf_word_kind(word), HF_KIND_NONE);
    }
}

static uint32_t corrupt_cnt;

static void count_corrupt(struct world *world)
{
    (void)world;
    corrupt_cnt += rc != HF_OK;
}

static void a_word_that_changes_is_no_damage(void **state)
{
    const struct between between = {plant_an_impossible_word, help_whatever_it_is, mend_the_word,
                                    count_corrupt};

    (void)state;
    corrupt_cnt = 0;
    (void)world_between(&between);
    assert_int_equal(corrupt_cnt, 0);
}

/* ---- closings ----------------------------------------------------------------------------------------------------- */

static void release_a(struct world *world)
{
    rc = holdfast_release(world->me, "a", 0, &closing);
}

static void settle_a(struct world *world)
{
    rc = hf_test_settle(world->me, "a", 1, 2, 40, &closing);
}

static void reap_a(struct world *world)
{
    rc = hf_reap_slot(world->quota.seg, world->slot_idx);
}

static void check_one_closed(struct world *world)
{
    check_sums(world);
    /* Whoever closed it: `b`, which came after it, is as it was made. */
    if (hf_st_gen(hf_commit_read_st(slot_of(world))) != 1) {
        assert_int_equal(hf_test_slot(&world->quota, "b"), world->slot_idx);
        assert_int_equal(state_of(world), HF_STATE_HELD);
        assert_int_equal(slot_of(world)->slot_holds[hf_st_ordinal(slot_of(world)->slot_st) & 1U].hold_cost,
                         77);
    }
}

static void a_closing_meets_the_next_life(void **state)
{
    const struct between release = {NULL, release_a, other_starts_the_next_life, check_one_closed};
    const struct between settle = {NULL, settle_a, other_starts_the_next_life, check_one_closed};

    (void)state;
    (void)world_between(&release);
    (void)world_between(&settle);
}

/* One of two closings takes effect; a settle that loses leaves the slot as the other has closed it. */
static int other_closed;

static void other_may_release(struct world *world)
{
    struct holdfast_closing ignored;

    other_closed = holdfast_release(world->other, "a", 0, &ignored);
}

static void other_may_settle(struct world *world)
{
    struct holdfast_closing ignored;

    other_closed = hf_test_settle(world->other, "a", 3, 4, 50, &ignored);
}

static void check_one_won(struct world *world)
{
    check_sums(world);
    assert_true((rc == HOLDFAST_OK) != (other_closed == HOLDFAST_OK));
    assert_int_equal(slot_of(world)->slot_claim, 0);
    if (state_of(world) == HF_STATE_SETTLED) {
        assert_int_equal(slot_of(world)->slot_actual_cost, rc == HOLDFAST_OK ? 40 : 50);
        assert_int_equal(slot_of(world)->slot_usage_input, rc == HOLDFAST_OK ? 1 : 3);
    }
}

static void one_closing_wins(void **state)
{
    const struct between release = {NULL, settle_a, other_may_release, check_one_won};
    const struct between settle = {NULL, settle_a, other_may_settle, check_one_won};

    (void)state;
    (void)world_between(&release);
    (void)world_between(&settle);
}

/* ---- what is past its deadline ------------------------------------------------------------------------------------- */

static int extended;

static void overdue(struct world *world)
{
    (void)hf_clock_inject(world->quota.seg, HF_TEST_NOW_MS + 2000);
    extended = -1;
}

static int extend_by(struct holdfast *handle, uint64_t cost, uint64_t ttl_ms)
{
    struct holdfast_extension extension;
    struct holdfast_answer ignored;

    holdfast_extension_init(&extension);
    extension.id = "a";
    extension.cost_micros = cost;
    extension.ttl_ms = ttl_ms;
    return holdfast_extend(handle, &extension, &ignored);
}

static void other_extends(struct world *world)
{
    extended = extend_by(world->other, 200, 5000);
}

static void check_extended_lives(struct world *world)
{
    check_sums(world);
    if (extended == HOLDFAST_OK) {
        assert_int_equal(state_of(world), HF_STATE_HELD);
    } else {
        assert_int_equal(state_of(world), HF_STATE_EXPIRED);
    }
}

static void an_extension_in_time_saves_it(void **state)
{
    const struct between between = {overdue, reap_a, other_extends, check_extended_lives};

    (void)state;
    (void)world_between(&between);
}

/* ---- extensions ----------------------------------------------------------------------------------------------------- */

static void extend_a(struct world *world)
{
    extended = extend_by(world->me, 300, HOLDFAST_UNKNOWN);
}

static void other_dispatches(struct world *world)
{
    int reason;

    assert_int_equal(holdfast_dispatch(world->other, "a", 0, &reason), HOLDFAST_OK);
}

static void check_extension(struct world *world)
{
    check_sums(world);
    struct hf_shm_slot *slot = slot_of(world);

    if (hf_slot_open(slot->slot_st)) {
        uint64_t held = slot->slot_holds[hf_st_ordinal(slot->slot_st) & 1U].hold_cost;

        assert_int_equal(held, extended == HOLDFAST_OK ? 300 : 100);
    }
    assert_int_equal(slot->slot_claim, 0);
}

static void an_extension_meets_others(void **state)
{
    const struct between release = {NULL, extend_a, other_releases, check_extension};
    const struct between dispatch = {NULL, extend_a, other_dispatches, check_extension};
    const struct between life = {NULL, extend_a, other_starts_the_next_life, check_one_closed};

    (void)state;
    (void)world_between(&release);
    (void)world_between(&dispatch);
    (void)world_between(&life);
}

/* ---- reserves -------------------------------------------------------------------------------------------------------- */

static void reserve_big(struct world *world)
{
    rc = hf_test_reserve(world->me, "big", "u", NULL, 10, 59900, &answer);
}

/* Room for one of the two. */
static int other_took;

static void other_takes_the_room(struct world *world)
{
    struct holdfast_answer ignored;

    other_took = hf_test_reserve(world->other, "o", "u", NULL, 1, 100, &ignored);
}

static void check_room(struct world *world)
{
    struct hf_found found;

    check_sums(world);
    assert_true((rc == HOLDFAST_OK) != (other_took == HOLDFAST_OK));
    /* Refused after all: its id is as if it had never come, for everybody. */
    if (rc != HOLDFAST_OK) {
        struct holdfast_answer again;

        assert_int_equal(hf_slot_find(world->other, "big", 3, 0, &found), HF_INDEX_ABSENT);
        assert_int_equal(hf_test_reserve(world->other, "big", "u", NULL, 1, 1, &again), HOLDFAST_OK);
    }
}

static void one_gets_the_room(void **state)
{
    const struct between between = {NULL, reserve_big, other_takes_the_room, check_room};

    (void)state;
    (void)world_between(&between);
}

/* A credit that comes and goes with what it is used for: at each instant there is room for 500. */
static void fill_with_credit(struct world *world)
{
    uint64_t total;
    int refused;

    assert_int_equal(
        holdfast_credit(world->other, "t", "u", HOLDFAST_WINDOW_MONTH, 10000, "more", "me", &total, &refused),
        HOLDFAST_OK);
    assert_int_equal(hf_test_reserve(world->other, "c", "u", NULL, 1, 69000, &answer), HOLDFAST_OK);
}

static void other_gives_both_back(struct world *world)
{
    struct holdfast_closing ignored;
    uint64_t total;
    int refused;

    assert_int_equal(holdfast_release(world->other, "c", 0, &ignored), HOLDFAST_OK);
    assert_int_equal(holdfast_credit(world->other, "t", "u", HOLDFAST_WINDOW_MONTH, -10000, "enough", "me",
                                     &total, &refused),
                     HOLDFAST_OK);
}

static void reserve_500(struct world *world)
{
    rc = hf_test_reserve(world->me, "r", "u", NULL, 1, 500, &answer);
}

static void extend_to_600(struct world *world)
{
    rc = extend_by(world->me, 600, HOLDFAST_UNKNOWN);
}

static void check_admitted(struct world *world)
{
    check_sums(world);
    if (rc != HOLDFAST_OK) {
        print_message("at access %u: refused, and at no instant was there too little\n", world_place());
    }
    assert_int_equal(rc, HOLDFAST_OK);
}

static void a_refusal_is_of_one_instant(void **state)
{
    const struct between reserve = {fill_with_credit, reserve_500, other_gives_both_back, check_admitted};
    const struct between extend = {fill_with_credit, extend_to_600, other_gives_both_back, check_admitted};

    (void)state;
    (void)world_between(&reserve);
    (void)world_between(&extend);
}

/* The order of W is the order of time. */
static uint64_t other_seq, other_ms;

static void next_minute(struct world *world)
{
    struct holdfast_answer ignored;

    (void)hf_clock_inject(world->quota.seg, HF_TEST_NOW_MS + 61000);
    assert_int_equal(hf_test_reserve(world->other, "o", "w", NULL, 1, 1, &ignored), HOLDFAST_OK);
    struct hf_u128 st = world->quota.seg->slots[hf_test_slot(&world->quota, "o")].slot_st;
    other_seq = hf_st_seq(st);
    other_ms = hf_st_time_ms(st);
}

static void check_order_of_time(struct world *world)
{
    struct hf_u128 st = world->quota.seg->slots[hf_test_slot(&world->quota, "r")].slot_st;

    assert_int_equal(rc, HOLDFAST_OK);
    assert_true(hf_st_seq(st) < other_seq || hf_st_time_ms(st) >= other_ms);
    check_sums(world);
}

static void time_runs_with_the_sequence(void **state)
{
    const struct between between = {NULL, reserve_500, next_minute, check_order_of_time};

    (void)state;
    (void)world_between(&between);
}

/* ---- replays --------------------------------------------------------------------------------------------------------- */

static void reserve_a_again(struct world *world)
{
    memset(&answer, 0, sizeof(answer));
    rc = hf_test_reserve(world->me, "a", "u", NULL, 10, 100, &answer);
}

static void check_replay(struct world *world)
{
    check_sums(world);
    assert_int_equal(rc, HOLDFAST_OK);
    assert_int_equal(answer.reserved.cost_micros, 100);
    assert_int_equal(answer.reserved.tokens, 10);
}

static void a_replay_is_of_one_life(void **state)
{
    const struct between between = {NULL, reserve_a_again, other_starts_the_next_life, check_replay};

    (void)state;
    (void)world_between(&between);
}

static void settled_before(struct world *world)
{
    struct holdfast_closing ignored;

    assert_int_equal(hf_test_settle(world->other, "a", 1, 2, 40, &ignored), HOLDFAST_OK);
}

static void other_forgets_and_refills(struct world *world)
{
    assert_true(world_forget(world, world->slot_idx));
    world_refill(world, world->slot_idx, "b", "z");
}

static void check_same_settle(struct world *world)
{
    (void)world;
    if (rc == HOLDFAST_OK) {
        assert_int_equal(closing.replayed, 1);
        assert_int_equal(closing.actual.cost_micros, 40);
        assert_int_equal(closing.released.cost_micros, 60);
    } else {
        assert_int_equal(closing.reason, HOLDFAST_REASON_UNKNOWN_RESERVATION);
    }
}

static void a_repeated_settle_is_of_one_life(void **state)
{
    const struct between between = {settled_before, settle_a, other_forgets_and_refills, check_same_settle};

    (void)state;
    (void)world_between(&between);
}

/* ---- the index ------------------------------------------------------------------------------------------------------- */

static enum hf_index_result found_rc;
static struct hf_found found_a;

static void find_a(struct world *world)
{
    found_rc = hf_slot_find(world->me, "a", 1, 0, &found_a);
}

/* `x` stands before `a` in one chain. */
static uint32_t x_idx;

static void before_a_in_its_chain(struct world *world)
{
    struct hf_segment *seg = world->quota.seg;
    struct holdfast_answer ignored;
    uint32_t head = hf_index_hash(seg, "a", 1) & seg->heads_mask;
    char id[16] = "";

    for (uint32_t i = 0; i < 100000; i++) {
        (void)snprintf(id, sizeof(id), "x%u", i);
        if ((hf_index_hash(seg, id, (uint32_t)strlen(id)) & seg->heads_mask) == head) {
            break;
        }
    }
    assert_int_equal(hf_test_reserve(world->other, id, "u", NULL, 1, 1, &ignored), HOLDFAST_OK);
    x_idx = hf_test_slot(&world->quota, id);
    struct holdfast_closing done;
    assert_int_equal(holdfast_release(world->other, id, 0, &done), HOLDFAST_OK);
}

static void other_moves_x(struct world *world)
{
    assert_true(world_forget(world, x_idx));
    world_refill(world, x_idx, "elsewhere", "z");
}

static void check_found(struct world *world)
{
    if (found_rc != HF_INDEX_FOUND) {
        print_message("at access %u: a was not found\n", world_place());
    }
    assert_int_equal(found_rc, HF_INDEX_FOUND);
    assert_int_equal(found_a.slot_idx, world->slot_idx);
}

static void a_walk_keeps_to_its_chain(void **state)
{
    const struct between between = {before_a_in_its_chain, find_a, other_moves_x, check_found};

    (void)state;
    (void)world_between(&between);
}

static void remove_a(struct world *world)
{
    struct hf_segment *seg = world->quota.seg;

    assert_true(hf_index_remove(seg, hf_index_hash(seg, "a", 1), world->slot_idx));
}

/* The head of the chain of `a` names x; it says that nothing follows only where that is so, and of the right hash. */
static bool head_says_last(struct world *world)
{
    struct hf_segment *seg = world->quota.seg;
    uint64_t head = seg->heads[hf_index_hash(seg, "a", 1) & seg->heads_mask];
    const struct hf_shm_slot *x = &seg->slots[x_idx];

    assert_int_equal(hf_link_slot(head), x_idx + 1U);
    if ((head & HF_LINK_LAST) == 0) {
        return false;
    }
    if (hf_link_slot(x->slot_next) != 0) {
        print_message("at access %u: the head hides what follows x\n", world_place());
    }
    assert_int_equal(hf_link_slot(x->slot_next), 0);
    assert_false(hf_link_excludes(head, x->slot_id_hash));
    return true;
}

static void other_looks_at_the_head(struct world *world)
{
    (void)head_says_last(world);
}

static void check_last(struct world *world)
{
    assert_true(head_says_last(world));
}

/* Nor does one whose process ends in the middle: the chain stays as it is at that place. */
static void a_removal_hides_nothing(void **state)
{
    const struct between between = {before_a_in_its_chain, remove_a, other_looks_at_the_head, check_last};

    (void)state;
    (void)world_between(&between);
}

/* Held for longer than the replay horizon, settled at this moment: known before, and known after. */
static void held_for_long(struct world *world)
{
    (void)hf_clock_inject(world->quota.seg, HF_TEST_NOW_MS + 120000);
}

static void a_state_is_of_one_instant(void **state)
{
    const struct between between = {held_for_long, find_a, other_settles, check_found};

    (void)state;
    (void)world_between(&between);
}

/* ---- the daemon ------------------------------------------------------------------------------------------------------- */

static struct hf_snapshot snap;
static int snap_rc;

static void take_snapshot(struct world *world)
{
    snap_rc = hf_snapshot_take(world->quota.seg, world->slot_idx, &snap);
}

static void check_snapshot(struct world *world)
{
    (void)world;
    assert_int_equal(snap_rc, HF_OK);
    assert_true(snap.st.lo == snap.slot.slot_st.lo && snap.st.hi == snap.slot.slot_st.hi);
    if (hf_st_state(snap.st) == HF_STATE_SETTLED) {
        assert_int_equal(snap.slot.slot_actual_cost, 50);
    }
    if (hf_st_gen(snap.st) == 1) {
        assert_int_equal(snap.slot.slot_first_cost, 100);
    } else {
        assert_int_equal(snap.slot.slot_first_cost, 77);
    }
}

static void a_snapshot_is_of_one_instant(void **state)
{
    const struct between settle = {NULL, take_snapshot, other_settles, check_snapshot};
    const struct between life = {NULL, take_snapshot, other_starts_the_next_life, check_snapshot};

    (void)state;
    (void)world_between(&settle);
    (void)world_between(&life);
}

/* The daemon takes the marks and looks: what it did not see yet is marked afterwards. */
static enum hf_state seen_by_daemon;
static uint64_t mark_of_a;

static void daemon_takes_the_marks(struct world *world)
{
    struct hf_segment *seg = world->quota.seg;

    mark_of_a = 1ULL << (world->slot_idx & (seg->chunk_slots - 1U));
    (void)hf_chunk_take_marks(seg, world->slot_idx >> seg->chunk_shift);
    seen_by_daemon = state_of(world);
}

static void check_marked(struct world *world)
{
    struct hf_segment *seg = world->quota.seg;
    uint64_t marks = hf_chunk_marks(seg, world->slot_idx >> seg->chunk_shift);

    if (seen_by_daemon != state_of(world) && (marks & mark_of_a) == 0) {
        print_message("at access %u: the mark was taken before the state, and is gone\n", world_place());
    }
    assert_true(seen_by_daemon == state_of(world) || (marks & mark_of_a) != 0);
}

static void the_mark_comes_after_the_state(void **state)
{
    const struct between between = {NULL, settle_a, daemon_takes_the_marks, check_marked};

    (void)state;
    (void)world_between(&between);
}

/* The daemon frees a slot while the owner of its chunk looks for one: its bit is not lost. */
static void released_before(struct world *world)
{
    other_releases(world);
}

static void forget_a(struct world *world)
{
    rc = world_forget(world, world->slot_idx);
}

static uint32_t taken_idx;

static void owner_takes_one(struct world *world)
{
    world->other->chunks.free_bits = 0; /* all others are in use */
    taken_idx = hf_chunk_take(world->quota.seg, &world->other->chunks, world->other->owner.ref);
}

static void check_bit_is_somewhere(struct world *world)
{
    struct hf_segment *seg = world->quota.seg;
    uint64_t bit = 1ULL << (world->slot_idx & (seg->chunk_slots - 1U));
    uint64_t bits = seg->chunks[world->slot_idx >> seg->chunk_shift].chunk_free;

    if (world->other->chunks.current == world->slot_idx >> seg->chunk_shift) {
        bits |= world->other->chunks.free_bits;
    }
    assert_true(rc);
    assert_true((bits & bit) != 0 || taken_idx == world->slot_idx);
}

static void a_freed_slot_is_not_lost(void **state)
{
    const struct between between = {released_before, forget_a, owner_takes_one, check_bit_is_somewhere};

    (void)state;
    (void)world_between(&between);
}

/* Two look for a chunk at once, and one is left: who has it is its owner, and nobody else is. */
static void one_chunk_is_left(struct world *world)
{
    struct hf_segment *seg = world->quota.seg;

    hf_chunk_leave(seg, &world->me->chunks, world->me->owner.ref);
    hf_chunk_leave(seg, &world->other->chunks, world->other->owner.ref);
    for (uint32_t i = 0; i + 1 < seg->chunks_cnt; i++) {
        seg->chunks[i].chunk_free = 0;
    }
}

static uint32_t mine_idx;

static void i_take_one(struct world *world)
{
    mine_idx = hf_chunk_take(world->quota.seg, &world->me->chunks, world->me->owner.ref);
}

static void another_takes_one(struct world *world)
{
    taken_idx = hf_chunk_take(world->quota.seg, &world->other->chunks, world->other->owner.ref);
}

static void check_owner(const struct world *world, const struct holdfast *handle)
{
    if (handle->chunks.current != HF_SHM_NONE) {
        assert_int_equal(world->quota.seg->chunks[handle->chunks.current].chunk_owner, handle->owner.ref);
    }
}

static void check_one_owner(struct world *world)
{
    check_owner(world, world->me);
    check_owner(world, world->other);
    assert_true(mine_idx == HF_SHM_NONE || mine_idx != taken_idx);
    assert_true(world->me->chunks.current != HF_SHM_NONE || world->other->chunks.current != HF_SHM_NONE);
}

static void a_chunk_has_one_owner(void **state)
{
    const struct between between = {one_chunk_is_left, i_take_one, another_takes_one, check_one_owner};

    (void)state;
    (void)world_between(&between);
}

/* Two publications while the clock is read, so that the copy that was in force is filled anew. Each shows CLOCK_BASE_MS at start_ms
 * by itself; a time of one with the instant of another is off by an eighth of the time since the machine started. */
#define CLOCK_BASE_MS (HF_TEST_NOW_MS + UINT64_C(86400000))

static uint64_t start_ms;
static uint64_t shown_ms;

static void publish_shifted(struct world *world, uint64_t eighths)
{
    uint64_t shift = start_ms / 8U * eighths;

    hf_clock_publish(world->quota.seg, CLOCK_BASE_MS - shift, start_ms - shift, 0);
}

static void a_clock_of_its_own(struct world *world)
{
    world->quota.seg->injected = false;
    start_ms = hf_clock_mono_fine_ms();
    publish_shifted(world, 1);
}

/* A publication that its daemon did not end: who reads the clock raises the hold, which never comes down. */
static void a_clock_half_published(struct world *world)
{
    a_clock_of_its_own(world);
    world->quota.seg->header->clk_seq |= 1U;
}

static void i_read_the_clock(struct world *world)
{
    shown_ms = hf_clock_now_ms(world->quota.seg);
}

static void two_publications(struct world *world)
{
    publish_shifted(world, 4);
    publish_shifted(world, 7);
}

static void check_shown(struct world *world)
{
    (void)world;
    assert_true(shown_ms + 100U >= CLOCK_BASE_MS); /* the coarse clock is some milliseconds behind */
    assert_true(shown_ms <= CLOCK_BASE_MS + (hf_clock_mono_fine_ms() - start_ms) + 1U);
}

static void check_held(struct world *world)
{
    check_shown(world);
    i_read_the_clock(world);
    check_shown(world);
}

static void a_time_is_of_one_publication(void **state)
{
    const struct between between = {a_clock_of_its_own, i_read_the_clock, two_publications, check_shown};
    const struct between half = {a_clock_half_published, i_read_the_clock, two_publications, check_held};

    (void)state;
    (void)world_between(&between);
    (void)world_between(&half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_helper_meets_the_next_life),
        cmocka_unit_test(a_slow_helper_undoes_nothing),
        cmocka_unit_test(a_word_that_changes_is_no_damage),
        cmocka_unit_test(a_closing_meets_the_next_life),
        cmocka_unit_test(one_closing_wins),
        cmocka_unit_test(an_extension_in_time_saves_it),
        cmocka_unit_test(an_extension_meets_others),
        cmocka_unit_test(one_gets_the_room),
        cmocka_unit_test(a_refusal_is_of_one_instant),
        cmocka_unit_test(time_runs_with_the_sequence),
        cmocka_unit_test(a_replay_is_of_one_life),
        cmocka_unit_test(a_repeated_settle_is_of_one_life),
        cmocka_unit_test(a_walk_keeps_to_its_chain),
        cmocka_unit_test(a_removal_hides_nothing),
        cmocka_unit_test(a_state_is_of_one_instant),
        cmocka_unit_test(a_snapshot_is_of_one_instant),
        cmocka_unit_test(the_mark_comes_after_the_state),
        cmocka_unit_test(a_freed_slot_is_not_lost),
        cmocka_unit_test(a_chunk_has_one_owner),
        cmocka_unit_test(a_time_is_of_one_publication),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
