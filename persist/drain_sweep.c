/* Looking at slots that have no mark: a share of all in each cycle, everything at the start and when a process died. */
#include "persist/drain_impl.h"

#include "core/slot.h"
#include "persist/retire.h"
#include "persist/snapshot.h"
#include "shm/chunk.h"
#include "shm/commit.h"

#define SWEEP_MS 800U /* every slot is looked at once in this time */
#define LOOK_SLOTS \
    65536U /* of a look at all of them, in a cycle: what is found is committed before the next ones */
#define SWEEP_AHEAD   8U /* slots whose lines are asked for before they are looked at */
#define SWEEPS_RETURN 8U /* a held chunk's owner is asked for once in so many sweeps */

/* An open slot whose deadline is not known yet. */
static void find_deadline(struct hf_drain *drain, uint32_t slot_idx, struct hf_u128 st)
{
    const struct hf_shm_slot *slot = &drain->seg->slots[slot_idx];
    struct hf_shm_hold hold;

    if (drain->options.deadlines->place[slot_idx] != 0) {
        return;
    }
    hf_slot_hold(slot, st, &hold);
    hf_fence_acq(); /* E16 acquire fence -> hf_slot_begin, as in hf_snapshot_take() */
    if (hf_st_gen(hf_commit_read_st(slot)) == hf_st_gen(st)) { /* E13 */
        hf_deadlines_set(drain->options.deadlines, slot_idx, hf_st_gen(st), hold.hold_deadline);
    }
}

/* True when the slot is to be looked at closely. */
static bool sweep_slot(struct hf_drain *drain, uint32_t slot_idx, struct hf_u128 st, bool filling_before)
{
    const struct hf_shm_slot *slot = &drain->seg->slots[slot_idx];

    switch (hf_st_state(st)) {
    case HF_STATE_FREE:
        return drain->options.deadlines->place[slot_idx] != 0;
    case HF_STATE_FILLING:
    case HF_STATE_PENDING:
        return (filling_before || drain->look_at_all > 0) && hf_retire_bury(drain->seg, slot_idx, st);
    case HF_STATE_ABANDONED:
        return true;
    case HF_STATE_HELD:
    case HF_STATE_DISPATCHED:
        /* Not left to the look: while the store takes no batch nothing is looked at, and deadlines pass all the same. */
        find_deadline(drain, slot_idx, st);
        break;
    default:
        break;
    }
    /* relaxed: the daemon is its writer. */
    if (!hf_snapshot_written(st, hf_load_rlx_u64(&slot->slot_persisted))) {
        return true;
    }
    if (hf_snapshot_final(hf_st_state(st))) {
        hf_closed_push(&drain->closed, slot_idx, st);
    }
    return hf_st_state(st) == HF_STATE_CREDIT;
}

/* False: there was nothing to look at. */
static bool sweep_chunk(struct hf_drain *drain, uint32_t chunk_idx)
{
    struct hf_segment *seg = drain->seg;
    const struct hf_shm_chunk *chunk = &seg->chunks[chunk_idx];
    uint64_t all = hf_chunk_all(seg);
    uint64_t owner = hf_load_rlx_u64(&chunk->chunk_owner); /* relaxed: a hint of what to skip */
    uint64_t filling = 0;
    uint8_t used = 0;

    /* relaxed: with every free bit there nobody has taken a slot since they were all seen free, or made. */
    if ((drain->look_at_all == 0 || (drain->fresh && owner == 0)) && drain->used[chunk_idx] == 0 &&
        hf_load_rlx_u64(&chunk->chunk_free) == all) {
        return false;
    }
    for (uint32_t i = 0; i < seg->chunk_slots; i++) {
        uint32_t slot_idx = (chunk_idx << seg->chunk_shift) + i;
        struct hf_u128 st = hf_commit_read_st(&seg->slots[slot_idx]); /* E13 */
        enum hf_state state = hf_st_state(st);

        if (slot_idx + SWEEP_AHEAD < seg->slots_cnt) {
            __builtin_prefetch(&seg->slots[slot_idx + SWEEP_AHEAD].slot_st); /* and slot_persisted */
        }
        hf_closed_seen(&drain->closed, slot_idx, st);
        used = (uint8_t)(used + (state != HF_STATE_FREE));
        filling |= (uint64_t)(state == HF_STATE_FILLING || state == HF_STATE_PENDING) << i;
        if (sweep_slot(drain, slot_idx, st, (drain->filling[chunk_idx] >> i & 1U) != 0)) {
            hf_drain_mark_pending(drain, slot_idx);
        }
    }
    drain->used[chunk_idx] = used;
    drain->filling[chunk_idx] = filling;
    /* A daemon that was killed between FREE and the free bit left a slot that nobody can take. relaxed: a hint, as above. */
    bool lost =
        owner == 0 &&
        used + (uint32_t)__builtin_popcountll(hf_load_rlx_u64(&chunk->chunk_free) & all) < seg->chunk_slots;

    if (drain->look_at_all > 0 ||
        ((owner != 0 || lost) && (drain->sweeps + chunk_idx) % SWEEPS_RETURN == 0)) {
        (void)hf_chunk_return(seg, chunk_idx);
    }
    return true;
}

/* Everything, in as many cycles as it takes. */
static void look_on(struct hf_drain *drain)
{
    uint32_t chunks = drain->seg->chunks_cnt;

    for (uint32_t left = LOOK_SLOTS >> drain->seg->chunk_shift; left > 0 && drain->look_at < chunks;) {
        left -= sweep_chunk(drain, drain->look_at++);
    }
    if (drain->look_at < chunks) {
        return;
    }
    hf_closed_sort(&drain->closed);
    drain->look_at = 0;
    drain->look_at_all--;
    drain->seen_all = true;
}

void hf_drain_sweep(struct hf_drain *drain, uint64_t mono_ms)
{
    uint32_t chunks = drain->seg->chunks_cnt;
    uint64_t share = drain->swept_ms == 0 ? chunks : (mono_ms - drain->swept_ms) * chunks / SWEEP_MS;

    if (drain->look_at_all > 0) {
        look_on(drain);
        drain->swept_ms = mono_ms;
        return;
    }
    if (share == 0) {
        return;
    }
    for (uint64_t left = share < chunks ? share : chunks; left > 0; left--) {
        (void)sweep_chunk(drain, drain->sweep_at);
        if (++drain->sweep_at >= chunks) {
            drain->sweep_at = 0;
            drain->sweeps++;
        }
    }
    drain->swept_ms = mono_ms;
}
