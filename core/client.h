/* Inside of the public handles, for core, persist, tools and tests. Not installed. */
#ifndef HF_CORE_CLIENT_H
#define HF_CORE_CLIENT_H

#include "core/include/holdfast.h"
#include "core/lookup.h"
#include "core/name_cache.h"
#include "shm/chunk.h"
#include "shm/owner.h"
#include "shm/segment.h"

#define HF_CLIENT_SILENT_MS 1000U /* daemon silent for longer: look whether the file is still in place */

struct holdfast_segment {
    struct hf_segment map;
    struct hf_name_cache *names; /* resolved paths of this process */
};

struct holdfast {
    struct holdfast_segment *shared;
    struct hf_segment *seg;
    struct hf_owner owner;
    struct hf_chunks chunks;
    uint64_t random;                    /* of the pauses in core/turn.h */
    int fatal;                          /* HOLDFAST_OK, or the fault that this handle answers for ever */
    uint32_t reap_cursor;               /* slot where its next reap begins */
    const struct hf_shm_policy *policy; /* looked up last, of generation policy_gen */
    uint32_t policy_gen;
    uint32_t policy_rows_cnt; /* and its rows, 0: none */
    const struct hf_shm_row_policy *policy_rows;
    struct hf_window_memo windows; /* of the minute looked at last */
    uint64_t looked_ms;            /* when it last looked whether the file is in place (silent daemon only) */
};

/* Wraps a mapping made by this process (private segments, the daemon, tests): the handle's holdfast_close() unmaps it.
 * HOLDFAST_OK or HOLDFAST_NO_MEMORY (then the mapping stays the caller's). */
int hf_client_wrap(const struct hf_segment *map, struct holdfast_segment **segment);

/* As holdfast_join(), in a role (enum hf_role). */
int hf_client_join(struct holdfast_segment *segment, enum hf_role role, struct holdfast **handle);

/* What every operation asks first: HOLDFAST_OK, or why this handle cannot work. No system call. */
int hf_client_enter(struct holdfast *handle);

/* hf_client_silent() where the heartbeat is old. */
int hf_client_look(struct holdfast *handle, uint64_t mono_ms);

/* The daemon's heartbeat against the clock that the operation has read anyway. When it is old, at most once a second one stat()
 * tells whether the segment was removed or replaced: HF_ENOTREADY for ever then, else HF_OK. */
static inline int hf_client_silent(struct holdfast *handle, uint64_t mono_ms)
{
    uint64_t heartbeat_ms = hf_load_rlx_u64(&handle->seg->header->hdr_heartbeat_ms); /* relaxed: a gauge */
    return __builtin_expect(mono_ms <= heartbeat_ms + HF_CLIENT_SILENT_MS, 1)
               ? HF_OK
               : hf_client_look(handle, mono_ms);
}

/* Looks the generation up and keeps it in the handle; NULL when it cannot be believed. */
const struct hf_shm_policy *hf_client_policy_of(struct holdfast *handle, uint32_t gen);

/* hf_lookup_policy(), checked whole once per generation. NULL when it cannot be believed. */
static inline const struct hf_shm_policy *hf_client_policy(struct holdfast *handle, uint32_t gen)
{
    /* relaxed: a generation that is replaced has another pol_gen. */
    if (__builtin_expect(handle->policy_gen == gen && handle->policy != NULL &&
                             hf_load_rlx_u32(&handle->policy->pol_gen) == gen,
                         1)) {
        return handle->policy;
    }
    return hf_client_policy_of(handle, gen);
}

/* What the policy that hf_client_policy() returned last says of a row; NULL: nothing. */
static inline const struct hf_shm_row_policy *hf_client_row(const struct holdfast *handle, uint32_t row_idx)
{
    return row_idx < handle->policy_rows_cnt ? &handle->policy_rows[row_idx] : NULL;
}

/* Maps a code of shm to a public result; corruption makes the handle fatal and is counted. */
int hf_client_fault(struct holdfast *handle, int code);

/* Length of a name given as C string; 0 when it is NULL, empty, too long or no valid name. */
uint32_t hf_client_name(const char *text);

/* A reservation token: slot + 1 and generation. */
static inline uint64_t hf_token_make(uint32_t slot_idx, uint32_t gen)
{
    return (uint64_t)(slot_idx + 1U) << 20 | gen;
}

#endif
