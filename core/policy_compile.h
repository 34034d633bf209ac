/* A parsed policy into a segment: names, prices, tenants, rows and the read-only tables of one generation. */
#ifndef HF_CORE_POLICY_COMPILE_H
#define HF_CORE_POLICY_COMPILE_H

#include "core/policy.h"
#include "shm/segment.h"

/* Sizes that a segment for this policy needs: fills tenants, rows, names, prices, meters and policy_bytes of
 * plan, with room for later growth (a quarter more and at least 64 of each); leaves the other fields. */
int hf_policy_plan(const struct hf_policy *policy, struct hf_segment_plan *plan, struct hf_error *err);

/* Fills a new segment (nobody else sees it): interned names, prices, tenants with their words at sequence 0,
 * rows, and generation gen (>= 1) of the compiled policy with the digest of its file; sets hdr_policy_gen and
 * every ten_policy. HF_OK, HF_EFULL (plan too small), HF_EARG. */
int hf_policy_compile(const struct hf_policy *policy, const uint8_t digest[32], uint32_t gen,
                      struct hf_segment *seg, struct hf_error *err);

/* Number of an interned name, adding it when add is true (creator or daemon only); HF_SHM_NONE when it is not
 * there or there is no room. Linear in nothing: uses a hash table private to the call site when given one. */
uint32_t hf_policy_intern(struct hf_segment *seg, const char *text, uint32_t bytes, bool add);

/* Row of (tenant[, team[, key]]) by names, for recovery; HF_SHM_NONE when the policy does not have it. */
uint32_t hf_policy_row(const struct hf_segment *seg, uint32_t gen, const char *tenant, const char *team,
                       const char *key);

#endif
