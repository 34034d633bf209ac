/* A segment made by hand: each region a heap block of exactly its size, so that a memory checker sees an access
 * that leaves it by one byte. It has no file, no clock and no owners. */
#ifndef HF_TESTS_HAND_SEGMENT_H
#define HF_TESTS_HAND_SEGMENT_H

#include "core/policy.h"
#include "shm/segment.h"

/* Counts as in plan, all exact; fails the test when memory runs out. */
void hf_hand_segment_make(const struct hf_segment_plan *plan, struct hf_segment *seg);
void hf_hand_segment_free(struct hf_segment *seg);

/* Two tenants of different shape, three teams, a key, four models; static, not to be freed. */
const struct hf_policy *hf_hand_policy(void);

#endif
