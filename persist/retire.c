#include "persist/retire.h"

#include "shm/chunk.h"
#include "shm/commit.h"
#include "shm/index.h"
#include "shm/owner.h"

static bool same(struct hf_u128 a, struct hf_u128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

/* Takes the claim unless a live process has it. */
static bool claim(const struct hf_segment *seg, struct hf_shm_slot *slot, uint64_t daemon_ref)
{
    uint64_t other = hf_load_acq_u64(&slot->slot_claim); /* E17 acquire -> hf_slot_unclaim */

    if (other == daemon_ref) {
        return true;
    }
    if (other != 0 && hf_owner_alive(seg, other)) {
        return false;
    }
    /* E17 acqrel. CRASH after: a dead claimant's, taken over by whoever comes. */
    return hf_cas_acqrel_u64(&slot->slot_claim, other, daemon_ref);
}

static void unclaim(struct hf_shm_slot *slot)
{
    hf_store_rel_u64(&slot->slot_claim, 0); /* E17 release -> claim, hf_slot_claim */
}

static void unlink_slot(struct hf_segment *seg, const struct hf_shm_slot *slot, uint32_t slot_idx)
{
    /* Once more after it said so: "not in it" and "the head was lost to others too often" look alike. */
    for (int try = 0; try < 2; try++) {
        if (hf_index_remove(seg, hf_load_rlx_u32(&slot->slot_id_hash), slot_idx)) { /* relaxed: E13 */
            return;
        }
    }
}

int hf_retire_slot(struct hf_segment *seg, uint64_t daemon_ref, uint32_t slot_idx, struct hf_u128 st,
                   uint64_t *word_seqs)
{
    struct hf_shm_slot *slot = hf_segment_slot(seg, slot_idx);
    struct hf_u128 gone = hf_st_make(0, 0, HF_STATE_ABANDONED, 0, hf_st_gen(st));
    struct hf_u128 unused = hf_st_make(0, 0, HF_STATE_FREE, 0, hf_st_gen(st));

    if (slot == NULL || !claim(seg, slot, daemon_ref)) { /* E17 */
        return HF_EBUSY;
    }
    uint32_t tenant = hf_load_rlx_u32(&slot->slot_tenant); /* relaxed: E13 */

    /* Abandoned while it was being filled, its tenant may be anything: no W ever named it in this life. */
    if (tenant < seg->tenants_cnt) {
        int rc = hf_commit_detach(seg, tenant, slot_idx, st, &word_seqs[tenant]);

        if (rc != HF_OK) {
            unclaim(slot); /* E17 */
            return rc;
        }
    }
    if (!same(hf_commit_read_st(slot), st)) { /* E13 */
        unclaim(slot);                        /* E17 */
        return HF_EBUSY;
    }
    unlink_slot(seg, slot, slot_idx);
    /* E13 acqrel -> readers of st. CRASH before: final and in no chain, freed by the next daemon's sweep. */
    if (!same(st, gone) && !hf_cas_acqrel_u128(&slot->slot_st, st, gone)) {
        unclaim(slot); /* E17 */
        return HF_EBUSY;
    }
    unclaim(slot); /* E17 */
    /* E6 acqrel -> hf_chunk_take, E13: free for its chunk's owner. CRASH before: abandoned, swept again. */
    if (!hf_cas_acqrel_u128(&slot->slot_st, gone, unused)) {
        return HF_EBUSY;
    }
    hf_chunk_freed(seg, slot_idx);
    return HF_OK;
}

/* Who fills the slot is dead. FILLING: its own owner field may not be written yet, so its chunk's owner tells. */
static bool filler_dead(const struct hf_segment *seg, const struct hf_shm_slot *slot, uint32_t slot_idx,
                        enum hf_state state)
{
    uint64_t holder =
        hf_load_acq_u64(&seg->chunks[slot_idx >> seg->chunk_shift].chunk_owner); /* E5 acquire -> claim */

    if (holder != 0) {
        return !hf_owner_alive(seg, holder);
    }
    uint64_t owner = hf_load_rlx_u64(&slot->slot_owner); /* relaxed: E13 */

    return state == HF_STATE_PENDING && !hf_owner_alive(seg, owner);
}

bool hf_retire_bury(struct hf_segment *seg, uint32_t slot_idx, struct hf_u128 st)
{
    struct hf_shm_slot *slot = hf_segment_slot(seg, slot_idx);
    enum hf_state state = hf_st_state(st);
    struct hf_u128 word;

    if (slot == NULL || (state != HF_STATE_FILLING && state != HF_STATE_PENDING) ||
        !filler_dead(seg, slot, slot_idx, state)) {
        return false;
    }
    if (state == HF_STATE_PENDING) {
        uint32_t tenant = hf_load_rlx_u32(&slot->slot_tenant); /* relaxed: E13 */

        /* It is dead: no W of its can come any more. What came is applied now, and then the slot is PENDING no more. */
        if (tenant >= seg->tenants_cnt || hf_commit_ready(seg, tenant, &word) != HF_OK) {
            return false;
        }
    }
    /* E13 acqrel. CRASH before: FILLING or PENDING of a dead owner still. */
    if (!hf_cas_acqrel_u128(&slot->slot_st, st, hf_st_make(0, 0, HF_STATE_ABANDONED, 0, hf_st_gen(st)))) {
        return false;
    }
    hf_alarm(seg, HF_ALARM_ABANDONED, 1);
    return true;
}
