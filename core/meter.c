#include "core/meter.h"

#define HF_METER_ROUNDS 1000U

bool hf_meter_read(const struct hf_segment *seg, uint32_t i, struct hf_shm_meter *copy)
{
    const struct hf_shm_meter *meter = &seg->meters[i];
    for (uint32_t round = 0; round < HF_METER_ROUNDS; round++) {
        uint64_t seq = hf_load_acq_u64(&meter->mtr_seq); /* E19 acquire -> the daemon's publication */
        if (seq == 0) {
            return false;
        }
        copy->mtr_tenant =
            hf_load_rlx_u32(&meter->mtr_tenant);              /* relaxed: between the two looks at mtr_seq */
        copy->mtr_cap = hf_load_rlx_u32(&meter->mtr_cap);     /* relaxed: likewise, and below */
        copy->mtr_model = hf_load_rlx_u32(&meter->mtr_model); /* relaxed: likewise */
        copy->mtr_requests =
            (int64_t)hf_load_rlx_u64((const uint64_t *)&meter->mtr_requests); /* relaxed: likewise */
        copy->mtr_failures =
            (int64_t)hf_load_rlx_u64((const uint64_t *)&meter->mtr_failures); /* relaxed: likewise */
        copy->mtr_degraded =
            (int64_t)hf_load_rlx_u64((const uint64_t *)&meter->mtr_degraded); /* relaxed: likewise */
        copy->mtr_reserved_micros =
            (int64_t)hf_load_rlx_u64((const uint64_t *)&meter->mtr_reserved_micros); /* relaxed: likewise */
        copy->mtr_settled_micros =
            (int64_t)hf_load_rlx_u64((const uint64_t *)&meter->mtr_settled_micros); /* relaxed: likewise */
        hf_fence_acq();                                                             /* E19 */
        if ((seq & 1U) == 0 && hf_load_rlx_u64(&meter->mtr_seq) == seq) {           /* relaxed: E19's fence */
            return true;
        }
        hf_pause();
    }
    return false;
}

static bool hf_meter_fits(int64_t value, uint64_t more)
{
    return value <= 0 || (uint64_t)value + more <= HF_SHM_AMOUNT_MAX;
}

bool hf_meter_room(const struct hf_segment *seg, const struct hf_meter_key *key, uint64_t reserved_micros,
                   uint64_t settled_micros)
{
    uint64_t reserved = reserved_micros == HF_SHM_UNKNOWN ? 0 : reserved_micros;
    uint64_t settled = settled_micros == HF_SHM_UNKNOWN ? 0 : settled_micros;
    uint64_t max =
        hf_load_rlx_u64(&seg->header->hdr_meters_max); /* relaxed: a gauge, the highest of all meters */
    if (max + (reserved > settled ? reserved : settled) <= HF_SHM_AMOUNT_MAX) {
        return true;
    }
    uint32_t tenant =
        key->tenant_idx < seg->tenants_cnt ? seg->tenants[key->tenant_idx].ten_name : HF_SHM_NONE;
    uint32_t model = key->price_idx < seg->prices_max ? seg->prices[key->price_idx].prc_model : HF_SHM_NONE;
    for (uint32_t i = 0; i < seg->meters_cnt; i++) {
        struct hf_shm_meter meter;
        if (hf_meter_read(seg, i, &meter) && meter.mtr_tenant == tenant && meter.mtr_cap == key->cap_name &&
            meter.mtr_model == model) {
            return hf_meter_fits(meter.mtr_reserved_micros, reserved) &&
                   hf_meter_fits(meter.mtr_settled_micros, settled);
        }
    }
    return true;
}

bool hf_meter_slot_room(const struct hf_segment *seg, const struct hf_shm_slot *slot,
                        uint64_t reserved_micros, uint64_t settled_micros)
{
    bool degraded = (hf_load_rlx_u32(&slot->slot_flags) & HF_SLOT_DEGRADED) != 0; /* relaxed: E13 */
    struct hf_meter_key key = {
        .tenant_idx = hf_load_rlx_u32(&slot->slot_tenant),                                /* relaxed: E13 */
        .cap_name = hf_load_rlx_u32(&slot->slot_cap),                                     /* relaxed: E13 */
        .price_idx = hf_load_rlx_u32(degraded ? &slot->slot_economy : &slot->slot_model), /* relaxed: E13 */
    };
    return hf_meter_room(seg, &key, reserved_micros, settled_micros);
}
