/* A path: what one (tenant, team, key, capability) of one policy generation means for a reservation. */
#ifndef HF_CORE_PATH_H
#define HF_CORE_PATH_H

#include "core/terms.h"
#include "core/window.h"
#include "shm/layout.h"
#include "shm/segment.h"

/* A limited bucket on the path, in the order of the checks. */
struct hf_path_bucket {
    struct hf_u128 *word;
    struct hf_u128 *credit; /* NULL: this limit has none */
    uint64_t limit;
    uint8_t bit;
    uint8_t layer; /* 0 key, 1 team, 2 tenant */
    uint8_t window;
    uint8_t dimension;
};

struct hf_path {
    uint32_t policy_gen;
    uint32_t tenant_idx;
    uint32_t rows[HF_SHM_LAYERS];
    uint32_t cap_name;
    uint64_t cap_micros; /* HF_SHM_UNKNOWN: none */
    uint64_t cap_tokens;
    uint32_t cap_basis; /* enum hf_basis */
    uint32_t on_expiry;
    uint32_t on_overage;
    uint32_t on_limit[HF_SHM_LAYERS];
    uint64_t overdraft[HF_SHM_LAYERS];
    uint64_t ttl_ms;
    uint64_t retry_after_ms;
    uint32_t slot_flags;   /* HF_SLOT_x: what a slot keeps of on_expiry, on_overage and the capability */
    uint32_t dims_limited; /* bit per dimension that some bucket limits */
    uint64_t mask;         /* of all buckets' bits */
    uint32_t buckets_cnt;
    struct hf_path_bucket buckets[HF_SHM_PATH_BUCKETS];
};

struct hf_names;

/* Fills path from names by the policy in force for the tenant. HF_OK; HF_ENOTREADY with *reason a HOLDFAST_REASON_UNKNOWN_x;
 * HF_ECORRUPT. Where a name is unknown, path holds what is known: rows of the layers found so far (others
 * HF_SHM_NONE), so that `remaining` can be told. */
int hf_path_resolve(const struct hf_segment *seg, const struct hf_names *names, struct hf_path *path,
                    int *reason);

/* Fills the rows and limits of path from its rows[] and cap_name (both set, tenant_idx too) by the generation in
 * force. A capability that is not there any more has no caps. A layer that is not there any more: no limits where
 * removed_too (an open reservation outlives its team), else HF_ECORRUPT. HF_OK or HF_ECORRUPT. */
int hf_path_fill(const struct hf_segment *seg, struct hf_path *path, bool removed_too);

/* Generation in force for a tenant. */
uint32_t hf_path_generation(const struct hf_segment *seg, uint32_t tenant_idx);

/* ---- reading a path at one instant -------------------------------------------------------------------------- */

/* Buckets of a path as they stood under one W. */
struct hf_view {
    struct hf_u128 word; /* W: everything up to it is in the words below */
    uint64_t now_ms;     /* not before any window that a bucket shows */
    uint64_t elapsed_ms; /* of the same look at the clock */
    uint64_t mono_ms;
    uint32_t windows[HF_SHM_WINDOWS];
    struct hf_u128 words[HF_SHM_PATH_BUCKETS]; /* as path->buckets */
    uint64_t values[HF_SHM_PATH_BUCKETS];      /* in the window of now; 0 when that is new */
    uint64_t credits[HF_SHM_WINDOWS];          /* of the team, in force now; set where the path has one */
    uint64_t credits_any;                      /* 0: every one of them is 0 */
};

/* Makes the tenant ready and reads. The clock is read after W; where a bucket's window is ahead of it, the start of that
 * window is now. memo is the caller's, of one thread. HF_OK, HF_EBUSY, HF_ECORRUPT. What it read is true at one instant only while W is unchanged. */
int hf_view_read(struct hf_segment *seg, const struct hf_path *path, struct hf_window_memo *memo,
                 struct hf_view *view);

#endif
