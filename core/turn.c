#include "core/turn.h"

#define HF_TURN_LEAST 8U /* pauses at most after the first loss; twice and four times as many later */

void hf_turn_pause(struct hf_shm_tenant *tenant, uint64_t wish)
{
    /* relaxed: a hint. One who gives way for each wish is enough. */
    if (!hf_cas_acqrel_u64(&tenant->ten_wish, wish, 0)) {
        return;
    }
    for (uint32_t i = 0; i < HF_TURN_PAUSES; i++) {
        hf_pause();
    }
}

static uint64_t hf_turn_random(struct holdfast *handle)
{
    uint64_t x = handle->random; /* xorshift64: only spreads the pauses */
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    handle->random = x;
    return x;
}

void hf_turn_lost(struct holdfast *handle, uint32_t tenant_idx, uint32_t round)
{
    struct hf_shm_tenant *tenant = hf_segment_tenant(handle->seg, tenant_idx);
    if (tenant != NULL) {
        hf_store_rlx_u64(&tenant->ten_wish, handle->owner.ref); /* relaxed: a hint */
    }
    uint32_t most = HF_TURN_LEAST << (round < 2 ? round : 2);
    for (uint64_t pauses = hf_turn_random(handle) % most + 1U; pauses > 0; pauses--) {
        hf_pause();
    }
}

void hf_turn_done(const struct holdfast *handle, uint32_t tenant_idx, uint32_t rounds_lost)
{
    if (__builtin_expect(rounds_lost == 0, 1)) {
        return;
    }
    struct hf_shm_tenant *tenant = hf_segment_tenant(handle->seg, tenant_idx);
    /* relaxed: a hint. */
    if (tenant != NULL && hf_load_rlx_u64(&tenant->ten_wish) == handle->owner.ref) {
        (void)hf_cas_acqrel_u64(&tenant->ten_wish, handle->owner.ref, 0); /* relaxed: a hint */
    }
}
