/* Closing what is past its deadline. */
#ifndef HF_CORE_REAP_H
#define HF_CORE_REAP_H

#include "core/client.h"

/* Closes the reservation in this slot when it is open and its deadline has passed on the elapsed scale. Takes no claim: a closing
 * that races with it wins or loses by W. Returns HOLDFAST_CLOSED_EXPIRED, HOLDFAST_CLOSED_RETAINED, 0 (nothing to do),
 * or a negative enum hf_code. Lock-free, any process. */
int hf_reap_slot(struct hf_segment *seg, uint32_t slot_idx);

/* A refused worker's share: when the daemon's heartbeat is old, looks at a bounded number of slots, those of the tenant only in a
 * first round, and passes over chunks that nobody uses. mono_ms: hf_clock_mono_ms() of a moment ago. Returns how many it closed. No
 * system call. */
uint32_t hf_reap_when_silent(struct holdfast *handle, uint32_t tenant_idx, uint64_t mono_ms);

#endif
