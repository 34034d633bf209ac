#include "core/replay.h"

#include "core/lookup.h"
#include "core/price.h"
#include "shm/index.h"

#include <string.h>

static bool hf_replay_name_is(const struct hf_segment *seg, uint32_t name, const char *given)
{
    char text[64];
    if (given == NULL) {
        return name == HF_SHM_NONE;
    }
    return hf_lookup_name(seg, name, text) != 0 && strcmp(text, given) == 0;
}

static bool hf_replay_row_is(const struct hf_segment *seg, uint32_t row_idx, const char *given)
{
    const struct hf_shm_row *row = hf_segment_row(seg, row_idx);
    if (row == NULL) {
        return given == NULL;
    }
    return given != NULL &&
           hf_replay_name_is(seg, row->row_name, given); /* plain: read-only once published */
}

static bool hf_replay_model_is(const struct hf_segment *seg, uint32_t price_idx, const char *given)
{
    uint32_t name = HF_SHM_NONE;
    struct hf_price price;
    if (!hf_lookup_price(seg, price_idx, &price, &name)) {
        return given == NULL;
    }
    return given != NULL && hf_replay_name_is(seg, name, given);
}

static bool hf_replay_path_is(const struct hf_segment *seg, const struct hf_shm_slot *slot,
                              const struct holdfast_request *request)
{
    uint32_t key = hf_load_rlx_u32(&slot->slot_rows[0]);  /* relaxed: E13 */
    uint32_t team = hf_load_rlx_u32(&slot->slot_rows[1]); /* relaxed: E13 */
    uint32_t ten = hf_load_rlx_u32(&slot->slot_rows[2]);  /* relaxed: E13 */
    uint32_t cap = hf_load_rlx_u32(&slot->slot_cap);      /* relaxed: E13 */
    if (request->path != NULL) {
        const struct hf_path *path = (const struct hf_path *)(const void *)request->path;
        return path->rows[0] == key && path->rows[1] == team && path->rows[2] == ten && path->cap_name == cap;
    }
    return hf_replay_row_is(seg, ten, request->tenant) && hf_replay_row_is(seg, team, request->team) &&
           hf_replay_row_is(seg, key, request->key) && hf_replay_name_is(seg, cap, request->capability);
}

#define HF_REPLAY_FLAGS                                                                             \
    (HF_SLOT_FORM_MODEL | HF_SLOT_HAS_IN1 | HF_SLOT_HAS_IN2 | HF_SLOT_HAS_ECO1 | HF_SLOT_HAS_ECO2 | \
     HF_SLOT_HAS_TTL)

static bool hf_replay_same(const struct hf_segment *seg, const struct hf_shm_slot *slot,
                           const struct holdfast_request *request, const struct hf_want *want)
{
    uint32_t flags = hf_load_rlx_u32(&slot->slot_flags) & HF_REPLAY_FLAGS;                /* relaxed: E13 */
    return flags == want->flags && hf_load_rlx_u64(&slot->slot_in1) == want->in1 &&       /* relaxed: E13 */
           hf_load_rlx_u64(&slot->slot_in2) == want->in2 &&                               /* relaxed: E13 */
           hf_load_rlx_u64(&slot->slot_eco1) == want->eco1 &&                             /* relaxed: E13 */
           hf_load_rlx_u64(&slot->slot_eco2) == want->eco2 &&                             /* relaxed: E13 */
           hf_load_rlx_u64(&slot->slot_ttl_ms) == want->ttl_ms &&                         /* relaxed: E13 */
           hf_replay_model_is(seg, hf_load_rlx_u32(&slot->slot_model), request->model) && /* relaxed: E13 */
           hf_replay_model_is(seg, hf_load_rlx_u32(&slot->slot_economy),
                              request->economy_model) && /* relaxed: E13 */
           hf_replay_path_is(seg, slot, request);
}

static void hf_replay_answer(const struct hf_found *found, struct holdfast_answer *answer)
{
    const struct hf_shm_slot *slot = found->slot;
    uint32_t flags = hf_load_rlx_u32(&slot->slot_flags); /* relaxed: E13 */
    answer->kind = (flags & HF_SLOT_DEGRADED) != 0 ? HOLDFAST_DEGRADE : HOLDFAST_ALLOW;
    answer->reason = HOLDFAST_REASON_NONE;
    answer->layer = answer->window = answer->dimension = -1;
    answer->replayed = 1;
    answer->has_remaining = answer->reserved0 = 0;
    answer->retry_after_ms = HOLDFAST_UNKNOWN;
    answer->reserved.invocations = 1;
    answer->reserved.tokens = hf_load_rlx_u64(&slot->slot_first_tokens);    /* relaxed: E13 */
    answer->reserved.cost_micros = hf_load_rlx_u64(&slot->slot_first_cost); /* relaxed: E13 */
    answer->expires_at_ms = hf_load_rlx_u64(&slot->slot_first_expires_ms);  /* relaxed: E13 */
    answer->hold = hf_token_make(found->slot_idx, hf_st_gen(found->st));
}

enum hf_replay hf_replay_found(struct holdfast *handle, const struct holdfast_request *request,
                               struct hf_want *want, const struct hf_found *found,
                               struct holdfast_answer *answer)
{
    if (hf_st_state(found->st) == HF_STATE_PENDING) {
        return hf_slot_bury(handle, found) ? HF_REPLAY_ABSENT : HF_REPLAY_BUSY;
    }
    hf_want_given(request, want);
    bool same = hf_replay_same(handle->seg, found->slot, request, want);
    hf_replay_answer(found, answer);
    /* E16 acquire: the slot may have been freed and filled again meanwhile: then what was read belongs to nobody. */
    hf_fence_acq();
    struct hf_u128 st = hf_commit_read_st(found->slot); /* E13, E16 */
    if (hf_st_gen(st) != hf_st_gen(found->st) || hf_st_state(st) < HF_STATE_HELD) {
        return HF_REPLAY_ABSENT;
    }
    return same ? HF_REPLAY_SAME : HF_REPLAY_CONFLICT;
}

enum hf_replay hf_replay_look(struct holdfast *handle, const struct holdfast_request *request,
                              struct hf_want *want, uint64_t now_ms, struct holdfast_answer *answer)
{
    struct hf_found found;
    enum hf_index_result rc =
        hf_slot_find_hashed(handle->seg, want->id_hash, want->id, want->id_bytes, now_ms, &found);
    if (rc != HF_INDEX_FOUND) {
        return rc == HF_INDEX_BUSY ? HF_REPLAY_BUSY : HF_REPLAY_ABSENT;
    }
    return hf_replay_found(handle, request, want, &found, answer);
}
