/* What a slot counts in the buckets of its path, and how much of that is published.
 *
 * A bucket holds what every reservation of its window counts: open holds, and what the closed ones left charged. What is
 * published of it is the charge of all committed receipts. So for each bucket, at one instant,
 *
 *     value = published + sum over the slots of (what it counts - what its committed receipts have charged)
 *
 * and a slot that has been freed is missing on both sides alike: all of it was committed. */
#include "core/fsck_impl.h"

#include <string.h>

static int64_t amount(uint64_t value)
{
    return value > HF_SHM_AMOUNT_MAX ? 0 : (int64_t)value; /* unknown counts nothing; so does damage */
}

static void set(int64_t out[HF_SHM_DIMS], int64_t invocations, int64_t tokens, int64_t cost)
{
    out[HF_DIM_INVOCATIONS] = invocations;
    out[HF_DIM_TOKENS] = tokens;
    out[HF_DIM_COST] = cost;
}

static void counted(const struct hf_shm_slot *slot, struct hf_u128 st, int64_t out[HF_SHM_DIMS])
{
    const struct hf_shm_hold *hold = &slot->slot_holds[hf_st_ordinal(st) & 1U];
    uint64_t tokens =
        slot->slot_actual_tokens == HF_SHM_UNKNOWN ? hold->hold_tokens : slot->slot_actual_tokens;
    uint64_t cost = slot->slot_actual_cost == HF_SHM_UNKNOWN ? hold->hold_cost : slot->slot_actual_cost;

    switch (hf_st_state(st)) {
    case HF_STATE_HELD:
    case HF_STATE_DISPATCHED:
    case HF_STATE_RETAINED:
    case HF_STATE_DISPUTED:
        set(out, 1, amount(hold->hold_tokens), amount(hold->hold_cost));
        break;
    case HF_STATE_SETTLED:
    case HF_STATE_LATE:
    case HF_STATE_RESOLVED:
        set(out, 1, amount(tokens), amount(cost));
        break;
    case HF_STATE_EXPIRED:
        set(out, 1, 0, 0);
        break;
    default:
        set(out, 0, 0, 0);
        break;
    }
}

/* Receipts committed of this life. */
static uint32_t marks(const struct hf_shm_slot *slot, struct hf_u128 st)
{
    return hf_persisted_gen(slot->slot_persisted) == hf_st_gen(st)
               ? hf_persisted_receipts(slot->slot_persisted)
               : 0;
}

/* Reservations and extensions charge nothing; an expiry the invocation; a retention the hold; a closing makes it whole. */
static void charged(const struct hf_shm_slot *slot, struct hf_u128 st, int64_t out[HF_SHM_DIMS])
{
    const struct hf_shm_hold *hold = &slot->slot_holds[hf_st_ordinal(st) & 1U];
    enum hf_state state = hf_st_state(st);
    uint32_t there = marks(slot, st);
    /* slot_close is the claimant's before W: only a state that came after tells by it. */
    bool retained = state == HF_STATE_RETAINED ||
                    (state != HF_STATE_EXPIRED && (slot->slot_close & HF_CLOSE_WAS_RETAINED) != 0);

    if ((there & HF_PERSISTED_CLOSING) != 0) {
        counted(slot, st, out);
    } else if ((there & HF_PERSISTED_EXPIRY) == 0) {
        set(out, 0, 0, 0);
    } else if (retained) {
        set(out, 1, amount(hold->hold_tokens), amount(hold->hold_cost));
    } else {
        set(out, 1, 0, 0);
    }
}

void hf_fsck_part_of(const struct hf_shm_slot *copy, uint32_t slot_idx, struct hf_u128 st,
                     struct hf_fsck_part *part)
{
    int64_t all[HF_SHM_DIMS];
    int64_t published[HF_SHM_DIMS];

    counted(copy, st, all);
    charged(copy, st, published);
    part->slot_idx = slot_idx;
    part->mask = copy->slot_mask & ((1ULL << HF_SHM_PATH_BUCKETS) - 1);
    memcpy(part->rows, copy->slot_rows, sizeof(part->rows));
    memcpy(part->windows, copy->slot_windows, sizeof(copy->slot_windows));
    part->windows[HF_WINDOW_LIFETIME] = 0;
    for (uint32_t d = 0; d < HF_SHM_DIMS; d++) {
        part->change[d] = all[d] - published[d];
    }
}

bool hf_fsck_is_written(const struct hf_shm_slot *copy, struct hf_u128 st)
{
    uint32_t there = marks(copy, st);

    switch (hf_st_state(st)) {
    case HF_STATE_EXPIRED:
    case HF_STATE_RETAINED:
        return (there & HF_PERSISTED_EXPIRY) != 0;
    case HF_STATE_SETTLED:
    case HF_STATE_RELEASED:
    case HF_STATE_DISPUTED:
    case HF_STATE_LATE:
    case HF_STATE_RESOLVED:
    case HF_STATE_CREDIT:
        return (there & HF_PERSISTED_CLOSING) != 0;
    default:
        return false;
    }
}
