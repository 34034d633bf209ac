/* Closing what is past its deadline: semantics.md, section 4, reap. */
#include "core/reap.h"

#include "core/slot.h"
#include "core/terms.h"
#include "shm/chunk.h"
#include "shm/clock.h"

#define HF_REAP_ROUNDS    1000U
#define HF_REAP_SILENT_MS 1000U /* heartbeat older than this: the daemon is gone or stopped */
#define HF_REAP_SHARE     64U   /* slots a refused worker looks at */
#define HF_REAP_CHUNKS    1024U /* chunks it passes over for them */

static bool hf_reap_due(const struct hf_segment *seg, const struct hf_shm_slot *slot, struct hf_u128 st)
{
    struct hf_shm_hold hold;
    if (!hf_slot_open(st)) {
        return false;
    }
    hf_slot_hold(slot, st, &hold);
    return hf_clock_elapsed_ms(seg) >= hold.hold_deadline;
}

/* By the mode fixed at reserve and by whether the call was dispatched. */
static enum hf_kind hf_reap_kind(const struct hf_shm_slot *slot, struct hf_u128 st)
{
    uint32_t mode = hf_load_rlx_u32(&slot->slot_flags) & HF_SLOT_EXPIRY_MASK; /* relaxed: E13 */
    bool retain = mode == HF_ON_EXPIRY_RETAIN ||
                  (mode == HF_ON_EXPIRY_RETAIN_DISPATCHED && hf_st_state(st) == HF_STATE_DISPATCHED);
    return retain ? HF_KIND_RETAIN : HF_KIND_EXPIRE;
}

int hf_reap_slot(struct hf_segment *seg, uint32_t slot_idx)
{
    struct hf_shm_slot *slot = hf_segment_slot(seg, slot_idx);
    if (slot == NULL) {
        return HF_EARG;
    }
    for (uint32_t round = 0; round < HF_REAP_ROUNDS; round++) {
        struct hf_u128 seen = hf_commit_read_st(slot); /* E13 */
        if (!hf_reap_due(seg, slot, seen)) {
            return 0;
        }
        struct hf_u128 word;
        uint32_t tenant = hf_load_rlx_u32(&slot->slot_tenant); /* relaxed: E13 */
        int rc = hf_commit_ready(seg, tenant, &word);
        if (rc == HF_EBUSY) {
            continue;
        }
        if (rc != HF_OK) {
            return rc;
        }
        uint64_t now_ms = hf_clock_now_ms(seg);
        struct hf_op op;
        enum hf_kind kind = hf_reap_kind(slot, seen);
        /* The state, its generation and its hold must be those that were found due: an extension in between has
         * another ordinal. */
        if (!hf_commit_describe(seg, slot_idx, kind, hf_word_seq(word) + 1U, now_ms, &op, NULL) ||
            op.st_before.lo != seen.lo || op.st_before.hi != seen.hi) {
            continue;
        }
        if (hf_commit_run(seg, tenant, word, &op, now_ms)) {
            return kind == HF_KIND_RETAIN ? HOLDFAST_CLOSED_RETAINED : HOLDFAST_CLOSED_EXPIRED;
        }
        if (hf_commit_exhausted(word)) {
            break;
        }
    }
    return HF_EBUSY;
}

/* How many slots from this one on end a chunk in which every slot is free; 0 when one may be in use. */
static uint32_t hf_reap_unused(const struct hf_segment *seg, uint32_t slot_idx)
{
    /* relaxed: a hint; what is taken meanwhile is not past its deadline yet. */
    bool unused = hf_load_rlx_u64(&seg->chunks[slot_idx >> seg->chunk_shift].chunk_free) == hf_chunk_all(seg);
    return unused ? seg->chunk_slots - (slot_idx & (seg->chunk_slots - 1U)) : 0;
}

uint32_t hf_reap_when_silent(struct holdfast *handle, uint32_t tenant_idx, uint64_t mono_ms)
{
    struct hf_segment *seg = handle->seg;
    if (seg->injected) {
        return 0;
    }
    uint64_t heartbeat_ms = hf_load_rlx_u64(&seg->header->hdr_heartbeat_ms); /* relaxed: a gauge */
    if (mono_ms < heartbeat_ms || mono_ms - heartbeat_ms < HF_REAP_SILENT_MS) {
        return 0;
    }
    uint32_t closed = 0;
    uint32_t passed = 0;
    /* Unused chunks cost nothing of the share: in a segment with few holds the first refusal finds the dead one. */
    for (uint32_t i = 0; i < HF_REAP_SHARE;) {
        uint32_t slot_idx = handle->reap_cursor % seg->slots_cnt;
        uint32_t unused = hf_reap_unused(seg, slot_idx);
        if (unused > 0) {
            handle->reap_cursor = slot_idx + unused;
            if (++passed >= HF_REAP_CHUNKS || passed >= seg->chunks_cnt) {
                break;
            }
            continue;
        }
        handle->reap_cursor = slot_idx + 1U;
        /* relaxed: a guess at whose it is; hf_reap_slot looks properly. */
        bool own = hf_load_rlx_u32(&seg->slots[slot_idx].slot_tenant) == tenant_idx;
        if ((own || i >= HF_REAP_SHARE / 2U) && hf_reap_slot(seg, slot_idx) > 0) {
            closed++;
        }
        i++;
    }
    return closed;
}

int holdfast_reap(struct holdfast *handle, uint32_t slots_max,
                  void (*cb)(void *arg, const char *id, int kind), void *arg)
{
    int rc = hf_client_enter(handle);
    if (rc != HOLDFAST_OK) {
        return rc;
    }
    struct hf_segment *seg = handle->seg;
    uint32_t slots = slots_max == 0 || slots_max > seg->slots_cnt ? seg->slots_cnt : slots_max;
    int closed = 0;
    for (uint32_t i = 0; i < slots; i++) {
        uint32_t slot_idx = handle->reap_cursor++ % seg->slots_cnt;
        int kind = hf_reap_slot(seg, slot_idx);
        if (kind < 0 && kind != HF_EBUSY) {
            return hf_client_fault(handle, kind);
        }
        if (kind > 0) {
            char id[64];
            closed++;
            hf_slot_load_text(seg->slots[slot_idx].slot_id, seg->slots[slot_idx].slot_id_bytes, id);
            if (cb != NULL) {
                cb(arg, id, kind);
            }
        }
    }
    return closed;
}
