/* What each guard of the protocol is for, one state made by hand after the other: the half-made, the outdated and the dead, and what
 * whoever comes next makes of it. */
#include "core/reap.h"
#include "persist/batch.h"
#include "persist/closed.h"
#include "persist/retire.h"
#include "persist/snapshot.h"
#include "shm/fault.h"
#include "shm/index.h"
#include "tests/fault/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct world world;

static int make(void **state)
{
    *state = &world;
    world_make(&world);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    world_free(&world);
    return 0;
}

static struct hf_shm_slot *slot_a(void)
{
    return &world.quota.seg->slots[world.slot_idx];
}

static enum hf_state state_a(void)
{
    return hf_st_state(slot_a()->slot_st);
}

static void release_a(void)
{
    struct holdfast_closing closing;

    assert_int_equal(holdfast_release(world.other, "a", 0, &closing), HOLDFAST_OK);
}

static void ready(void)
{
    struct hf_u128 word;

    assert_int_equal(hf_commit_ready(world.quota.seg, 0, &word), HF_OK);
}

/* `d`, PENDING in the index, of a process that is dead: W names it (it happened), or not. */
static struct hf_found pending_of_the_dead(bool happened)
{
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    struct hf_found found;

    assert_int_equal(hf_test_reserve(world.other, "d", "u", NULL, 5, 50, &answer), HOLDFAST_OK);
    found.slot_idx = hf_test_slot(&world.quota, "d");
    assert_int_equal(holdfast_release(world.other, "d", 0, &closing), HOLDFAST_OK);
    found.slot = &world.quota.seg->slots[found.slot_idx];
    found.slot->slot_owner = world.gone_ref;
    found.slot->slot_st = hf_st_make(0, 0, HF_STATE_PENDING, 0, hf_st_gen(found.slot->slot_st));
    if (happened) {
        (void)world_die_after_word(&world, found.slot_idx, HF_KIND_RESERVE);
    }
    found.st = found.slot->slot_st;
    return found;
}

/* ---- rule 1: nothing twice ---------------------------------------------------------------------------------------- */

static void a_credit_is_given_once(void **state)
{
    uint64_t total;
    int refused;

    (void)state;
    assert_int_equal(
        holdfast_credit(world.other, "t", "u", HOLDFAST_WINDOW_MONTH, 700, "more", "me", &total, &refused),
        HOLDFAST_OK);
    struct hf_segment *seg = world.quota.seg;
    struct hf_u128 word = seg->tenants[0].ten_word;
    struct hf_shm_slot *slot = &seg->slots[hf_word_slot(word)];
    /* As if it had been stopped before its state and A. */
    slot->slot_st = hf_st_make(0, 0, HF_STATE_PENDING, 0, hf_st_gen(slot->slot_st));
    seg->tenants[0].ten_applied = hf_word_seq(word) - 1;
    ready();
    assert_int_equal(hf_st_state(slot->slot_st), HF_STATE_CREDIT);
    assert_int_equal(
        holdfast_credit(world.other, "t", "u", HOLDFAST_WINDOW_MONTH, 0, "look", "me", &total, &refused),
        HOLDFAST_OK);
    assert_int_equal(total, 700);
}

static void a_kind_that_does_not_fit_is_damage(void **state)
{
    struct hf_segment *seg = world.quota.seg;
    struct hf_shm_tenant *tenant = &seg->tenants[0];
    struct hf_u128 word;

    (void)state;
    release_a();
    tenant->ten_word =
        hf_word_make(hf_word_seq(tenant->ten_word) + 1, HF_KIND_SETTLE, world.slot_idx, HF_TEST_NOW_MS);
    assert_int_equal(hf_commit_ready(seg, 0, &word), HF_ECORRUPT);
    assert_int_equal(state_a(), HF_STATE_RELEASED);
    assert_int_equal(hf_test_mismatches(&world.quota), 0);
}

/* ---- rules 3, 4, 11: freeing ----------------------------------------------------------------------------------------- */

static void detach_finishes_first(void **state)
{
    struct hf_segment *seg = world.quota.seg;

    (void)state;
    (void)world_die_after_word(&world, world.slot_idx, HF_KIND_RELEASE);
    uint64_t seq = hf_word_seq(seg->tenants[0].ten_word);
    uint64_t seen = 0;
    assert_int_equal(hf_commit_detach(seg, 0, world.slot_idx, slot_a()->slot_st, &seen), HF_OK);
    assert_int_equal(state_a(), HF_STATE_RELEASED);
    assert_int_equal(hf_test_mismatches(&world.quota), 0);
    assert_true(hf_word_seq(seg->tenants[0].ten_word) > seq);
}

static void a_free_slot_is_named_by_nobody(void **state)
{
    struct hf_segment *seg = world.quota.seg;
    struct hf_found found;

    (void)state;
    uint32_t gen = hf_st_gen(slot_a()->slot_st);
    release_a();
    assert_true(world_forget(&world, world.slot_idx));
    assert_int_equal(state_a(), HF_STATE_FREE);
    assert_int_equal(hf_word_kind(seg->tenants[0].ten_word), HF_KIND_NONE);
    assert_int_equal(hf_st_gen(slot_a()->slot_st), gen);
    for (uint32_t i = 0; i <= seg->heads_mask; i++) {
        assert_int_not_equal(hf_link_slot(seg->heads[i]), world.slot_idx + 1U);
    }
    assert_int_equal(hf_slot_find(world.me, "a", 1, 0, &found), HF_INDEX_ABSENT);
    world_refill(&world, world.slot_idx, "b", "z");
    assert_int_equal(hf_st_gen(slot_a()->slot_st), gen + 1U);
    assert_int_equal(hf_test_slot(&world.quota, "b"), world.slot_idx);
}

/* `d` comes and goes on the tenant of `a`. Its slot, closed. */
static uint32_t d_comes_and_goes(void)
{
    struct holdfast_answer answer;
    struct holdfast_closing closing;

    assert_int_equal(hf_test_reserve(world.other, "d", "u", NULL, 5, 50, &answer), HOLDFAST_OK);
    assert_int_equal(holdfast_release(world.other, "d", 0, &closing), HOLDFAST_OK);
    return (uint32_t)(answer.hold >> 20) - 1U;
}

/* Freeing `a`, the daemon sees W at the very operation that closed `d`: that W names `d` still. */
static void what_the_word_was_seen_at_is_not_past(void **state)
{
    struct hf_segment *seg = world.quota.seg;

    (void)state;
    release_a();
    uint32_t slot_d = d_comes_and_goes();
    assert_true(world_forget(&world, world.slot_idx));
    assert_true(world.word_seqs[0] == hf_st_seq(seg->slots[slot_d].slot_st));
    assert_int_equal(hf_word_slot(seg->tenants[0].ten_word), slot_d);
    assert_true(world_forget(&world, slot_d));
    assert_int_equal(hf_word_kind(seg->tenants[0].ten_word), HF_KIND_NONE);
}

/* W was seen beyond the expiry. Whoever settles late afterwards is killed behind W: freed, the slot would owe it for ever. */
static void what_can_be_settled_late_is_never_past(void **state)
{
    struct hf_segment *seg = world.quota.seg;

    (void)state;
    (void)hf_clock_inject(seg, HF_TEST_NOW_MS + 2000);
    assert_int_equal(hf_reap_slot(seg, world.slot_idx), HOLDFAST_CLOSED_EXPIRED);
    assert_true(world_forget(&world, d_comes_and_goes()));
    assert_true(hf_st_seq(slot_a()->slot_st) < world.word_seqs[0]);
    slot_a()->slot_claim = world.gone_ref;
    slot_a()->slot_actual_tokens = 3;
    slot_a()->slot_actual_cost = 40;
    (void)world_die_after_word(&world, world.slot_idx, HF_KIND_LATE);
    assert_false(world_forget(&world, world.slot_idx));
    assert_int_equal(state_a(), HF_STATE_LATE);
    assert_int_equal(hf_test_mismatches(&world.quota), 0);
}

/* What was seen of the W of one tenant says nothing of another's, which is far behind. */
static void what_was_seen_is_of_one_tenant(void **state)
{
    struct hf_segment *seg = world.quota.seg;
    struct holdfast_request request;
    struct holdfast_answer answer;
    struct holdfast_closing closing;

    (void)state;
    assert_true(world_forget(&world, d_comes_and_goes()));
    holdfast_request_init(&request);
    request.id = "b";
    request.tenant = "z";
    request.team = "u";
    request.capability = "c";
    request.tokens = 20;
    request.cost_micros = 77;
    assert_int_equal(holdfast_reserve(world.other, &request, &answer), HOLDFAST_OK);
    assert_int_equal(holdfast_release(world.other, "b", 0, &closing), HOLDFAST_OK);
    uint32_t slot_b = (uint32_t)(answer.hold >> 20) - 1U;
    assert_int_equal(seg->slots[slot_b].slot_tenant, 1);
    assert_true(hf_st_seq(seg->slots[slot_b].slot_st) < world.word_seqs[0]);
    assert_int_equal(hf_word_slot(seg->tenants[1].ten_word), slot_b);
    assert_true(world_forget(&world, slot_b));
    assert_int_equal(hf_word_kind(seg->tenants[1].ten_word), HF_KIND_NONE);
}

/* Damage has taken the sequence of a state that W names still: nothing says then that W has gone on. */
static void what_has_no_sequence_is_never_past(void **state)
{
    struct hf_segment *seg = world.quota.seg;

    (void)state;
    assert_true(world_forget(&world, d_comes_and_goes()));
    assert_true(world.word_seqs[0] > 0);
    release_a();
    struct hf_u128 st = slot_a()->slot_st;
    slot_a()->slot_st = hf_st_make(0, hf_st_ordinal(st), hf_st_state(st), hf_st_time_ms(st), hf_st_gen(st));
    assert_int_equal(hf_word_slot(seg->tenants[0].ten_word), world.slot_idx);
    assert_true(world_forget(&world, world.slot_idx));
    assert_int_equal(hf_word_kind(seg->tenants[0].ten_word), HF_KIND_NONE);
}

static void what_changed_since_is_not_freed(void **state)
{
    struct holdfast_closing closing;
    struct hf_found found;

    (void)state;
    (void)hf_clock_inject(world.quota.seg, HF_TEST_NOW_MS + 2000);
    assert_int_equal(hf_reap_slot(world.quota.seg, world.slot_idx), HOLDFAST_CLOSED_EXPIRED);
    struct hf_u128 seen = slot_a()->slot_st;
    assert_int_equal(hf_test_settle(world.me, "a", 1, 2, 40, &closing), HOLDFAST_OK);
    assert_int_equal(hf_retire_slot(world.quota.seg, world.daemon_ref, world.slot_idx, seen, world.word_seqs),
                     HF_EBUSY);
    assert_int_equal(state_a(), HF_STATE_LATE);
    assert_int_equal(hf_slot_find(world.me, "a", 1, 0, &found), HF_INDEX_FOUND);
    assert_int_equal(slot_a()->slot_claim, 0);
}

/* Expired, it waits for the late horizon; settled meanwhile, for that of replays. */
static void who_waits_in_a_queue_waits_as_it_is(void **state)
{
    struct hf_segment *seg = world.quota.seg;
    struct hf_log log = {0};
    struct hf_closed closed;
    struct holdfast_closing closing;

    (void)state;
    (void)hf_clock_inject(seg, HF_TEST_NOW_MS + 2000);
    assert_int_equal(hf_reap_slot(seg, world.slot_idx), HOLDFAST_CLOSED_EXPIRED);
    assert_true(hf_closed_open(&closed, seg, world.daemon_ref, &log));
    hf_closed_push(&closed, world.slot_idx, slot_a()->slot_st);
    uint64_t late_ms = HF_TEST_NOW_MS + 2000 + seg->late_horizon_ms;
    (void)hf_clock_inject(seg, late_ms - 1000);
    assert_int_equal(hf_test_settle(world.me, "a", 1, 2, 40, &closing), HOLDFAST_OK);
    (void)hf_clock_inject(seg, late_ms);
    assert_int_equal(hf_closed_free_due(&closed, late_ms), 0);
    assert_int_equal(state_a(), HF_STATE_LATE);
    hf_closed_close(&closed);
}

/* A tenant whose sequence is used up answers at once: busy, in everything that goes through W. */
static uint32_t accesses;

static void count_accesses(void)
{
    accesses++;
}

static void a_used_up_sequence_is_found_at_once(void **state)
{
    struct hf_shm_tenant *tenant = &world.quota.seg->tenants[0];
    struct holdfast_extension extension;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    uint64_t total;
    int reason;

    (void)state;
    tenant->ten_word = hf_word_make(HF_SHM_SEQ_MAX, HF_KIND_NONE, 0, HF_TEST_NOW_MS);
    tenant->ten_applied = HF_SHM_SEQ_MAX;
    accesses = 0;
    hf_fault_hook = count_accesses;
    int reserved = hf_test_reserve(world.me, "r", "u", NULL, 1, 1, &answer);
    assert_int_equal(answer.reason, HOLDFAST_REASON_BUSY);
    holdfast_extension_init(&extension);
    extension.id = "a";
    extension.cost_micros = 200;
    int raised = holdfast_extend(world.me, &extension, &answer);
    int settled = hf_test_settle(world.me, "a", 1, 2, 40, &closing);
    int released = holdfast_release(world.me, "a", 0, &closing);
    int dispatched = holdfast_dispatch(world.me, "a", 0, &reason);
    int credited =
        holdfast_credit(world.me, "t", "u", HOLDFAST_WINDOW_MONTH, 1, "more", "me", &total, &reason);
    hf_fault_hook = NULL;
    assert_true(reserved == HOLDFAST_REFUSED && raised == HOLDFAST_REFUSED && settled == HOLDFAST_REFUSED);
    assert_true(released == HOLDFAST_REFUSED && dispatched == HOLDFAST_REFUSED &&
                credited == HOLDFAST_REFUSED);
    assert_in_range(accesses, 100, 10000);
    assert_int_equal(hf_test_mismatches(&world.quota), 0);
}

/* ---- rule 5: generations ------------------------------------------------------------------------------------------------ */

static void another_life_is_not_looked_at_again(void **state)
{
    struct hf_found found = pending_of_the_dead(true);

    (void)state;
    found.st = hf_st_make(0, 0, HF_STATE_PENDING, 0, hf_st_gen(found.st) - 1U);
    assert_false(hf_slot_look_again(world.quota.seg, &found));
}

static void another_life_is_not_buried(void **state)
{
    struct hf_found found = pending_of_the_dead(false);

    (void)state;
    found.st = hf_st_make(0, 0, HF_STATE_PENDING, 0, hf_st_gen(found.st) - 1U);
    (void)hf_slot_bury(world.me, &found);
    assert_int_equal(hf_st_state(found.slot->slot_st), HF_STATE_PENDING);
}

static void another_life_is_not_marked(void **state)
{
    struct hf_shm_batch_entry entry = {
        .bat_slot = world.slot_idx,
        .bat_persisted = hf_persisted_make(hf_st_gen(slot_a()->slot_st) - 1U, 0, HF_PERSISTED_RESERVATION)};

    (void)state;
    uint64_t before = slot_a()->slot_persisted;
    hf_batch_mark(world.quota.seg, &entry, 0);
    assert_true(slot_a()->slot_persisted == before);
    /* And marks of the life before say nothing about this one. */
    struct hf_snapshot snap;
    slot_a()->slot_persisted =
        hf_persisted_make(hf_st_gen(slot_a()->slot_st) - 1U, 0, HF_PERSISTED_RESERVATION);
    assert_int_equal(hf_snapshot_take(world.quota.seg, world.slot_idx, &snap), HF_OK);
    assert_int_equal(hf_snapshot_owes(&snap), HF_OWES_RESERVATION);
    assert_false(hf_snapshot_written(snap.st, snap.persisted));
}

/* ---- rule 7: the dead ------------------------------------------------------------------------------------------------------ */

static void what_happened_is_not_buried(void **state)
{
    struct hf_found found = pending_of_the_dead(true);

    (void)state;
    (void)hf_slot_bury(world.me, &found);
    assert_int_equal(hf_st_state(found.slot->slot_st), HF_STATE_HELD);
    assert_int_equal(hf_test_mismatches(&world.quota), 0);
}

static void what_happened_is_found(void **state)
{
    struct hf_found found = pending_of_the_dead(true);

    (void)state;
    assert_true(hf_slot_look_again(world.quota.seg, &found));
    assert_int_equal(hf_st_state(found.st), HF_STATE_HELD);
}

static void the_daemon_buries_only_what_never_happened(void **state)
{
    struct hf_segment *seg = world.quota.seg;
    struct hf_found found = pending_of_the_dead(true);
    struct hf_shm_chunk *chunk = &seg->chunks[found.slot_idx >> seg->chunk_shift];

    (void)state;
    chunk->chunk_owner = world.gone_ref;
    assert_false(hf_retire_bury(seg, found.slot_idx, found.st));
    assert_int_equal(hf_st_state(found.slot->slot_st), HF_STATE_HELD);
    assert_int_equal(hf_test_mismatches(&world.quota), 0);
}

static void the_daemon_leaves_the_living_alone(void **state)
{
    struct hf_segment *seg = world.quota.seg;
    struct hf_found found = pending_of_the_dead(false);
    struct hf_shm_chunk *chunk = &seg->chunks[found.slot_idx >> seg->chunk_shift];

    (void)state;
    /* FILLING of a live process; its owner field is still that of the life before, which is dead. */
    found.slot->slot_st.lo = hf_st_make(0, 0, HF_STATE_FILLING, 0, 0).lo;
    chunk->chunk_owner = world.other->owner.ref;
    assert_false(hf_retire_bury(seg, found.slot_idx, found.slot->slot_st));
    chunk->chunk_owner = 0;
    assert_false(hf_retire_bury(seg, found.slot_idx, found.slot->slot_st));
    assert_int_equal(hf_st_state(found.slot->slot_st), HF_STATE_FILLING);
    chunk->chunk_owner = world.gone_ref;
    assert_true(hf_retire_bury(seg, found.slot_idx, found.slot->slot_st));
    chunk->chunk_owner = world.other->owner.ref;
}

/* ---- rule 8: claims, extensions ---------------------------------------------------------------------------------------------- */

static void a_claim_is_dropped(void **state)
{
    struct holdfast_closing closing;

    (void)state;
    assert_int_equal(hf_test_settle(world.me, "a", 1, 2, 40, &closing), HOLDFAST_OK);
    assert_int_equal(slot_a()->slot_claim, 0);
}

static void extensions_wait_for_receipts(void **state)
{
    struct holdfast_extension extension;
    struct holdfast_answer answer;
    uint32_t done = 0;

    (void)state;
    holdfast_extension_init(&extension);
    extension.id = "a";
    for (int rc = HOLDFAST_OK; rc == HOLDFAST_OK && done < 5000; done++) {
        extension.cost_micros = 101 + done;
        rc = holdfast_extend(world.me, &extension, &answer);
    }
    assert_int_equal(done, 1001);
    assert_int_equal(answer.reason, HOLDFAST_REASON_BUSY);
    slot_a()->slot_persisted = hf_persisted_make(hf_st_gen(slot_a()->slot_st),
                                                 hf_st_ordinal(slot_a()->slot_st), HF_PERSISTED_RESERVATION);
    assert_int_equal(holdfast_extend(world.me, &extension, &answer), HOLDFAST_OK);
}

/* A caller that repeats itself gets what it was given, also when that has used everything up. */
static void a_twin_comes_before_a_refusal(void **state)
{
    struct holdfast_answer answer;

    (void)state;
    assert_int_equal(hf_test_reserve(world.other, "all", "u", NULL, 5, 59900, &answer), HOLDFAST_OK);
    assert_int_equal(hf_test_reserve(world.me, "all", "u", NULL, 5, 59900, &answer), HOLDFAST_OK);
    assert_int_equal(answer.replayed, 1);
    assert_int_equal(hf_test_mismatches(&world.quota), 0);
}

/* ---- rule 12: chunks ------------------------------------------------------------------------------------------------------------ */

static void bits_of_no_slot_give_none(void **state)
{
    struct hf_segment *seg = world.quota.seg;
    struct hf_chunks *chunks = &world.other->chunks;

    (void)state;
    assert_true(seg->chunk_slots < 64);
    uint32_t chunk = chunks->current;
    chunks->free_bits = 0;
    seg->chunks[chunk].chunk_free = ~0ULL << seg->chunk_slots;
    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        uint32_t idx = hf_chunk_take(seg, chunks, world.other->owner.ref);

        assert_true(idx == HF_SHM_NONE || chunks->current == idx >> seg->chunk_shift);
        assert_true(idx == HF_SHM_NONE || idx < seg->slots_cnt);
    }
}

/* ---- index --------------------------------------------------------------------------------------------------------------------------- */

static void each_change_of_a_head_counts(void **state)
{
    struct hf_segment *seg = world.quota.seg;
    struct holdfast_answer answer;
    struct holdfast_closing closing;

    (void)state;
    uint64_t *head = &seg->heads[hf_index_hash(seg, "n", 1) & seg->heads_mask];
    uint64_t seen = *head;
    assert_int_equal(hf_test_reserve(world.other, "n", "u", NULL, 1, 1, &answer), HOLDFAST_OK);
    assert_int_equal(hf_link_count(*head), hf_link_count(seen) + 1U);
    assert_int_equal(holdfast_release(world.other, "n", 0, &closing), HOLDFAST_OK);
    assert_true(world_forget(&world, (uint32_t)(answer.hold >> 20) - 1U));
    assert_int_equal(hf_link_slot(*head), hf_link_slot(seen));
    assert_int_equal(hf_link_count(*head), hf_link_count(seen) + 2U);
}

/* ---- batches ------------------------------------------------------------------------------------------------------------------------- */

static void a_descriptor_that_is_filled_has_no_number(void **state)
{
    struct hf_segment *seg = world.quota.seg;
    struct hf_store_batch batch;

    (void)state;
    struct hf_shm_batch *first = hf_batch_begin(seg);
    hf_batch_announce(seg, first, 1, 1, HF_TEST_NOW_MS, &batch);
    assert_ptr_equal(hf_batch_pending(seg, batch.number), first);
    /* Its answer is lost: the next begins beside it, and leaves it as it is. */
    seg->header->hdr_batch_number++;
    struct hf_shm_batch *second = hf_batch_begin(seg);
    assert_ptr_not_equal(first, second);
    assert_ptr_equal(hf_batch_pending(seg, batch.number), first);
    seg->header->hdr_batch_number++;
    assert_ptr_equal(hf_batch_begin(seg), first);
    assert_null(hf_batch_pending(seg, batch.number));
}

int main(void)
{
#define GUARD(name) cmocka_unit_test_setup_teardown(name, make, drop)
    const struct CMUnitTest tests[] = {
        GUARD(a_credit_is_given_once),
        GUARD(a_kind_that_does_not_fit_is_damage),
        GUARD(detach_finishes_first),
        GUARD(a_free_slot_is_named_by_nobody),
        GUARD(what_the_word_was_seen_at_is_not_past),
        GUARD(what_can_be_settled_late_is_never_past),
        GUARD(what_was_seen_is_of_one_tenant),
        GUARD(what_has_no_sequence_is_never_past),
        GUARD(what_changed_since_is_not_freed),
        GUARD(who_waits_in_a_queue_waits_as_it_is),
        GUARD(a_used_up_sequence_is_found_at_once),
        GUARD(another_life_is_not_looked_at_again),
        GUARD(another_life_is_not_buried),
        GUARD(another_life_is_not_marked),
        GUARD(what_happened_is_not_buried),
        GUARD(what_happened_is_found),
        GUARD(the_daemon_buries_only_what_never_happened),
        GUARD(the_daemon_leaves_the_living_alone),
        GUARD(a_claim_is_dropped),
        GUARD(extensions_wait_for_receipts),
        GUARD(a_twin_comes_before_a_refusal),
        GUARD(bits_of_no_slot_give_none),
        GUARD(each_change_of_a_head_counts),
        GUARD(a_descriptor_that_is_filled_has_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
