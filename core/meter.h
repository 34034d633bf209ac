/* Meters as the daemon has published them: behind by what is not drained yet. */
#ifndef HF_CORE_METER_H
#define HF_CORE_METER_H

#include "shm/segment.h"

/* Copies meter i as it stood at one instant; mtr_seq is not set. False when there is none, or when it kept changing. */
bool hf_meter_read(const struct hf_segment *seg, uint32_t i, struct hf_shm_meter *copy);

/* Whose meter. */
struct hf_meter_key {
    uint32_t tenant_idx;
    uint32_t cap_name;
    uint32_t price_idx; /* of the model in use, HF_SHM_NONE: explicit amounts */
};

/* True when even the largest of all meters leaves room for so much more: one load, and nobody needs to look closer. */
static inline bool hf_meter_room_for_all(const struct hf_segment *seg, uint64_t reserved_micros,
                                         uint64_t settled_micros)
{
    uint64_t max =
        hf_load_rlx_u64(&seg->header->hdr_meters_max); /* relaxed: a gauge, the highest of all meters */
    return max <= HF_SHM_AMOUNT_MAX / 2U &&
           (reserved_micros == HF_SHM_UNKNOWN || reserved_micros <= HF_SHM_AMOUNT_MAX / 2U) &&
           (settled_micros == HF_SHM_UNKNOWN || settled_micros <= HF_SHM_AMOUNT_MAX / 2U);
}

/* True when the meter stays within the range of amounts with that much more reserved and settled (HF_SHM_UNKNOWN: nothing).
 * One load, unless some meter is near the end: then a walk over all of them. */
bool hf_meter_room(const struct hf_segment *seg, const struct hf_meter_key *key, uint64_t reserved_micros,
                   uint64_t settled_micros);

/* The same for the reservation in a slot, whose key it knows. */
bool hf_meter_slot_room(const struct hf_segment *seg, const struct hf_shm_slot *slot,
                        uint64_t reserved_micros, uint64_t settled_micros);

#endif
