/* Names of a compiled policy to numbers. Read-only; everything read from the segment is checked. */
#ifndef HF_CORE_LOOKUP_H
#define HF_CORE_LOOKUP_H

#include "shm/segment.h"

/* In the lookup table beside the kinds of shm/layout.h: each name that the policy uses; parent 0, value = the
 * interned name. For who interns a name later; a reserve never asks for it. */
#define HF_LOOKUP_NAME 6U

/* The compiled policy of a generation (its region is gen & 1), or NULL when its header cannot be believed
 * (offsets and counts out of the region, generation replaced). */
const struct hf_shm_policy *hf_lookup_policy(const struct hf_segment *seg, uint32_t gen);
/* Arrays of it; NULL when the index is out of range. policy is from hf_lookup_policy(); its header is checked again, as it may have
 * been damaged since. */
const struct hf_shm_row_policy *hf_lookup_row(const struct hf_segment *seg,
                                              const struct hf_shm_policy *policy, uint32_t row);
const struct hf_shm_cap *hf_lookup_cap(const struct hf_segment *seg, const struct hf_shm_policy *policy,
                                       uint32_t cap_idx);

/* lku_value of (kind, parent, name), or HF_SHM_NONE. kind: HF_LOOKUP_x. Bounded probes, no system call. */
uint32_t hf_lookup_find(const struct hf_segment *seg, const struct hf_shm_policy *policy, uint32_t kind,
                        uint32_t parent, const char *text, uint32_t bytes);

/* Hash under which (kind, parent, name) stands in the lookup table: the compiler of policies uses the same. */
uint64_t hf_lookup_hash(const struct hf_segment *seg, uint32_t kind, uint32_t parent, const char *text,
                        uint32_t bytes);

/* Text of an interned name ("" when there is none), at most 63 bytes, copied NUL-terminated; returns bytes. */
uint32_t hf_lookup_name(const struct hf_segment *seg, uint32_t name, char text[64]);

/* Prices as struct hf_price (core/price.h); false when the index cannot be. */
struct hf_price;
bool hf_lookup_price(const struct hf_segment *seg, uint32_t price_idx, struct hf_price *price,
                     uint32_t *model_name);

#endif
