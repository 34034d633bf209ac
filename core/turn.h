/* Turns: what workers do that move the same tenant's W at the same time.
 *
 * Each operation takes the lines of W and of the buckets from the processor that had them, and the one that has them wins the next
 * W too. Without turns two workers on one tenant spend most of their time carrying lines to and fro, and one of them gets
 * most of the operations. So who loses W leaves a wish, and whoever finds another's wish before an operation of his own takes it
 * away and stays off the tenant for some microseconds, in which the other one runs at nearly the speed of one worker.
 *
 * A wish is a hint: nothing is right or wrong by it. One that was left by the dead costs one operation one such pause, a lost one
 * nothing. No process waits for another: a pause has a fixed length.
 */
#ifndef HF_CORE_TURN_H
#define HF_CORE_TURN_H

#include "core/client.h"

#define HF_TURN_PAUSES 256U /* what giving way takes, in hf_pause(): 3 to 12 microseconds */

/* For hf_turn_give(): takes the wish away and pauses. */
void hf_turn_pause(struct hf_shm_tenant *tenant, uint64_t wish);

/* Before the first round of an operation. All three: a tenant that cannot be is left alone. */
static inline void hf_turn_give(const struct holdfast *handle, uint32_t tenant_idx)
{
    struct hf_shm_tenant *tenant = hf_segment_tenant(handle->seg, tenant_idx);
    /* relaxed: a hint; the line is that of W, read next. */
    uint64_t wish = tenant != NULL ? hf_load_rlx_u64(&tenant->ten_wish) : 0;
    if (__builtin_expect(wish != 0, 0) && wish != handle->owner.ref) {
        hf_turn_pause(tenant, wish);
    }
}

/* After W was lost in this round (from 0 on): leaves a wish, and pauses a little, at random. */
void hf_turn_lost(struct holdfast *handle, uint32_t tenant_idx, uint32_t round);

/* After the last round: takes back a wish that nobody has granted. */
void hf_turn_done(const struct holdfast *handle, uint32_t tenant_idx, uint32_t rounds_lost);

#endif
