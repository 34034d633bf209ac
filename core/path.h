/* A path: what one (tenant, team, key, capability) of one policy generation means for a reservation. */
#ifndef HF_CORE_PATH_H
#define HF_CORE_PATH_H

#include "core/terms.h"
#include "core/window.h"
#include "shm/layout.h"
#include "shm/segment.h"

#include <string.h>

/* A limited bucket on the path, in the order of the checks. */
struct hf_path_bucket {
    uint64_t limit;
    uint32_t word_idx; /* of its word, in words from the first row: hf_path_word() */
    uint8_t layer;     /* 0 key, 1 team, 2 tenant */
    uint8_t window;
    uint8_t dimension;
    uint8_t has_credit; /* 1: its window has one, hf_path_credit() */
};
_Static_assert(sizeof(struct hf_path_bucket) == 16, "four in a line");

/* First what each admission reads, one line; with two buckets it is two. A process may keep one for each of many tenants, most
 * of them in no cache: so what is kept has room for its own buckets alone (hf_path_bytes). Copied by hf_path_copy(). */
struct hf_path {
    uint32_t policy_gen;
    uint32_t tenant_idx;
    uint32_t rows[HF_SHM_LAYERS];
    uint32_t cap_name;
    uint64_t cap_micros; /* HF_SHM_UNKNOWN: none */
    uint64_t cap_tokens;
    uint64_t ttl_ms;
    uint64_t mask;       /* of its buckets: bit layer * 15 + window * 3 + dimension */
    uint16_t slot_flags; /* HF_SLOT_x: what a slot keeps of on_expiry, on_overage and the capability */
    uint8_t cap_basis;   /* enum hf_basis */
    uint8_t on_limit[HF_SHM_LAYERS];
    uint8_t dims_limited; /* bit per dimension that some bucket limits */
    uint8_t buckets_cnt;
    uint64_t overdraft[HF_SHM_LAYERS];
    uint64_t retry_after_ms;
    struct hf_path_bucket buckets[HF_SHM_PATH_BUCKETS];
};
_Static_assert(offsetof(struct hf_path, overdraft) == 64 && offsetof(struct hf_path, buckets) == 96,
               "two lines with two buckets");

/* How many bytes of a path mean something: what a copy needs. */
static inline size_t hf_path_bytes(const struct hf_path *path)
{
    return offsetof(struct hf_path, buckets) + path->buckets_cnt * sizeof(struct hf_path_bucket);
}
static inline void hf_path_copy(struct hf_path *to, const struct hf_path *from)
{
    memcpy(to, from, hf_path_bytes(from));
}

static inline struct hf_u128 *hf_path_word(const struct hf_segment *seg, const struct hf_path_bucket *bucket)
{
    return (struct hf_u128 *)(void *)seg->rows + bucket->word_idx;
}
/* Of a bucket with has_credit. */
static inline struct hf_u128 *hf_path_credit(const struct hf_segment *seg,
                                             const struct hf_path_bucket *bucket)
{
    return hf_path_word(seg, bucket) + (HF_SHM_CREDIT - bucket->dimension);
}

/* Asks for the lines of path itself, of up to two buckets. NULL: for nothing. */
static inline void hf_path_prefetch(const struct hf_path *path)
{
    if (path != NULL) {
        __builtin_prefetch(path);
        __builtin_prefetch((const uint8_t *)path + 64);
    }
}

/* Asks for all that an admission reads behind path, and for the limits that its settle reads: of a tenant in no cache, all of
 * them on their way at once. For reading, since a refusal writes none of them. policy: one looked up before, likely the one in
 * force, or NULL. */
static inline void hf_path_prefetch_behind(const struct hf_segment *seg, const struct hf_shm_policy *policy,
                                           const struct hf_path *path)
{
    const uint8_t *limits = NULL;

    if (policy != NULL) {
        limits = (const uint8_t *)policy + hf_load_rlx_u64(&policy->pol_rows_off); /* relaxed: a hint */
    }
    __builtin_prefetch(&seg->tenants[path->tenant_idx]);
    for (uint32_t i = 0; i < path->buckets_cnt; i++) {
        __builtin_prefetch(hf_path_word(seg, &path->buckets[i]));
        if (limits != NULL) {
            /* Within the limit of that word: a row's limits are 192 bytes for its 32 words, a window's are 24 for 4. */
            __builtin_prefetch(limits + 4 + path->buckets[i].word_idx * 6UL);
        }
    }
}
_Static_assert(sizeof(struct hf_shm_row_policy) == 6 * (sizeof(struct hf_shm_row) / sizeof(struct hf_u128)),
               "see above");

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
