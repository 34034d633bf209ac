#include "core/slot.h"

#include "core/lookup.h"
#include "shm/clock.h"
#include "shm/index.h"

#include <string.h>

void hf_slot_begin(struct hf_shm_slot *slot, uint64_t owner_ref, uint64_t now_ms)
{
    /* relaxed: the slot is this owner's alone. */
    uint32_t gen = hf_st_gen((struct hf_u128){0, hf_load_rlx_u64(&slot->slot_st.hi)}) + 1U;
    struct hf_u128 st = hf_st_make(0, 0, HF_STATE_FILLING, now_ms, gen);
    hf_store_rlx_u64(&slot->slot_st.lo, st.lo); /* relaxed: E16's fence follows */
    hf_store_rlx_u64(&slot->slot_st.hi, st.hi); /* relaxed: E16 */
    /* E16 release fence -> readers of the old life (index, snapshot, helpers): who sees a field below sees
     * the new generation too. CRASH after: FILLING of a dead owner, the daemon frees it. */
    hf_fence_rel();
    hf_store_rlx_u64(&slot->slot_owner, owner_ref); /* relaxed: E16 */
    hf_store_rlx_u64(&slot->slot_next, 0);          /* relaxed: E16 */
    /* slot_claim stays: who claimed the old life and stalls finds the generation changed and lets go. */
}

void hf_slot_pending(struct hf_shm_slot *slot)
{
    struct hf_u128 st = hf_st_make(0, 0, HF_STATE_PENDING, 0, 0);
    /* E13 release -> readers of st: the fields are complete. CRASH after: PENDING of a dead owner; never
     * named by W it did not happen (rule 7). */
    hf_store_rel_u64(&slot->slot_st.lo, st.lo);
}

void hf_slot_undo(struct hf_shm_slot *slot)
{
    /* E13 release: FREE keeps the generation, so that nobody takes the next life for this one. */
    hf_store_rel_u64(&slot->slot_st.lo, hf_st_make(0, 0, HF_STATE_FREE, 0, 0).lo);
}

bool hf_slot_abandon(struct hf_segment *seg, uint32_t slot_idx)
{
    struct hf_shm_slot *slot = &seg->slots[slot_idx];
    struct hf_u128 st = hf_commit_read_st(slot); /* E13 */
    if (hf_st_state(st) != HF_STATE_PENDING) {
        return false;
    }
    struct hf_u128 abandoned = hf_st_make(0, 0, HF_STATE_ABANDONED, 0, hf_st_gen(st));
    /* E13 acqrel. CRASH before: PENDING of a dead owner; after: the mark is missing, the sweep finds it. */
    bool done = hf_cas_acqrel_u128(&slot->slot_st, st, abandoned);
    hf_chunk_mark_dirty(seg, slot_idx); /* E9 */
    return done;
}

static uint64_t hf_slot_rest(const char *text, uint32_t bytes, uint32_t rest)
{
    uint64_t word = 0;
    if (rest == 0) {
        return 0;
    }
    if (bytes >= 8) {
        memcpy(&word, text + bytes - 8, 8);
        return word >> (64U - 8U * rest);
    }
    for (uint32_t i = 0; i < rest; i++) {
        word |= (uint64_t)(uint8_t)text[i] << (8U * i);
    }
    return word;
}

void hf_slot_store_text(char field[64], const char *text, uint32_t bytes)
{
    uint64_t *words = (uint64_t *)(void *)field;
    uint32_t i = 0;
    bytes = bytes < 64 ? bytes : 63;
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, text + i, 8);
        hf_store_rlx_u64(&words[i / 8], word); /* relaxed: published by st or W */
    }
    uint64_t word = hf_slot_rest(text, bytes, bytes - i);
    hf_store_rlx_u64(&words[i / 8], word); /* relaxed: published by st or W */
}

bool hf_slot_text_is(const char field[64], uint32_t field_bytes, const char *text, uint32_t bytes)
{
    const uint64_t *words = (const uint64_t *)(const void *)field;
    uint32_t i = 0;
    if (field_bytes != bytes || bytes > 63) {
        return false;
    }
    for (; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, text + i, 8);
        if (hf_load_rlx_u64(&words[i / 8]) != word) { /* relaxed: E13 */
            return false;
        }
    }
    if (i == bytes) {
        return true;
    }
    uint64_t word = hf_load_rlx_u64(&words[i / 8]); /* relaxed: E13 */
    return ((word ^ hf_slot_rest(text, bytes, bytes - i)) << (64U - 8U * (bytes - i))) == 0;
}

uint32_t hf_slot_load_text(const char field[64], uint32_t bytes, char text[64])
{
    uint64_t words[8];
    for (uint32_t i = 0; i < 8; i++) {
        words[i] = hf_load_rlx_u64((const uint64_t *)(const void *)field + i); /* relaxed: E13 */
    }
    bytes = bytes < 64 ? bytes : 63;
    memcpy(text, words, 64);
    memset(text + bytes, 0, 64 - bytes); /* what stood there in an earlier life */
    return bytes;
}

void hf_slot_fill_request(struct hf_shm_slot *slot, const struct hf_want *want, const struct hf_path *path)
{
    /* relaxed, all of this function: published by hf_slot_pending (E13). */
    hf_store_rlx_u32(&slot->slot_rows[0], path->rows[0]);           /* relaxed: E13 */
    hf_store_rlx_u32(&slot->slot_rows[1], path->rows[1]);           /* relaxed: E13 */
    hf_store_rlx_u32(&slot->slot_rows[2], path->rows[2]);           /* relaxed: E13 */
    hf_store_rlx_u32(&slot->slot_tenant, path->tenant_idx);         /* relaxed: E13 */
    hf_store_rlx_u32(&slot->slot_policy_gen, path->policy_gen);     /* relaxed: E13 */
    hf_store_rlx_u64(&slot->slot_in1, want->in1);                   /* relaxed: E13 */
    hf_store_rlx_u64(&slot->slot_in2, want->in2);                   /* relaxed: E13 */
    hf_store_rlx_u64(&slot->slot_eco1, want->eco1);                 /* relaxed: E13 */
    hf_store_rlx_u64(&slot->slot_eco2, want->eco2);                 /* relaxed: E13 */
    hf_store_rlx_u64(&slot->slot_ttl_ms, want->ttl_ms);             /* relaxed: E13 */
    hf_store_rlx_u32(&slot->slot_cap, path->cap_name);              /* relaxed: E13 */
    hf_store_rlx_u32(&slot->slot_model, want->model);               /* relaxed: E13 */
    hf_store_rlx_u32(&slot->slot_economy, want->economy);           /* relaxed: E13 */
    hf_store_rlx_u32(&slot->slot_id_hash, want->id_hash);           /* relaxed: E13 */
    hf_store_rlx_u32(&slot->slot_close, 0);                         /* relaxed: E13 */
    hf_store_rlx_u64(&slot->slot_expired_ms, 0);                    /* relaxed: E13 */
    hf_store_rlx_u8(&slot->slot_id_bytes, (uint8_t)want->id_bytes); /* relaxed: E13 */
    hf_slot_store_text(slot->slot_id, want->id, want->id_bytes);
}

static void hf_slot_fill_credits(struct hf_shm_slot *slot, const struct hf_slot_round *round)
{
    uint64_t credits[HF_SHM_WINDOWS] = {0};
    for (uint32_t i = 0; i < round->path->buckets_cnt; i++) {
        const struct hf_path_bucket *bucket = &round->path->buckets[i];
        if (bucket->has_credit != 0) {
            credits[bucket->window] = round->view->credits[bucket->window];
        }
    }
    for (uint32_t i = 0; i < HF_SHM_WINDOWS; i++) {
        hf_store_rlx_u64(&slot->slot_credits[i], credits[i]); /* relaxed: E10, E13 */
    }
}

void hf_slot_fill_round(struct hf_shm_slot *slot, const struct hf_slot_round *round)
{
    const struct hf_path *path = round->path;
    const struct hf_view *view = round->view;
    uint32_t flags = round->flags | path->slot_flags;
    if (__builtin_expect(view->credits_any != 0, 0)) {
        flags |= HF_SLOT_CREDITS;
        hf_slot_fill_credits(slot, round);
    }
    uint64_t now_ms = view->now_ms;
    uint64_t tokens = round->held->by[HF_DIM_TOKENS];
    uint64_t cost = round->held->by[HF_DIM_COST];
    struct hf_shm_hold *hold = &slot->slot_holds[0];
    hf_store_rlx_u64(&slot->slot_mask, path->mask);                         /* relaxed: E10 */
    hf_store_rlx_u64(&slot->slot_reserved_ms, now_ms);                      /* relaxed: E10 */
    hf_store_rlx_u32(&slot->slot_windows[0], view->windows[0]);             /* relaxed: E10 */
    hf_store_rlx_u32(&slot->slot_windows[1], view->windows[1]);             /* relaxed: E10 */
    hf_store_rlx_u32(&slot->slot_windows[2], view->windows[2]);             /* relaxed: E10 */
    hf_store_rlx_u32(&slot->slot_windows[3], view->windows[3]);             /* relaxed: E10 */
    hf_store_rlx_u64(&slot->slot_first_tokens, tokens);                     /* relaxed: E10 */
    hf_store_rlx_u64(&slot->slot_first_cost, cost);                         /* relaxed: E10 */
    hf_store_rlx_u64(&slot->slot_first_expires_ms, now_ms + round->ttl_ms); /* relaxed: E10 */
    hf_store_rlx_u64(&hold->hold_tokens, tokens);                           /* relaxed: E10 */
    hf_store_rlx_u64(&hold->hold_cost, cost);                               /* relaxed: E10 */
    hf_store_rlx_u64(&hold->hold_deadline, round->deadline);                /* relaxed: E10 */
    hf_store_rlx_u64(&hold->hold_time_ms, now_ms);                          /* relaxed: E10 */
    hf_store_rlx_u32(&slot->slot_flags, flags);                             /* relaxed: E10 */
}

/* ---- finding ------------------------------------------------------------------------------------------------ */

static bool hf_slot_by_token(const struct hf_segment *seg, const char *id, uint32_t id_bytes, uint64_t token,
                             struct hf_found *found)
{
    uint64_t slot_plus_1 = token >> 20;
    if (slot_plus_1 == 0 || slot_plus_1 > seg->slots_cnt) {
        return false;
    }
    found->slot_idx = (uint32_t)slot_plus_1 - 1U;
    found->slot = &seg->slots[found->slot_idx];
    found->st = hf_commit_read_st(found->slot); /* E13 */
    if (hf_st_gen(found->st) != (token & 0xfffffU) ||
        !(hf_slot_open(found->st) || hf_index_known(seg, found->st, hf_clock_now_ms(seg)))) {
        return false;
    }
    uint32_t bytes = hf_load_rlx_u8(&found->slot->slot_id_bytes); /* relaxed: E13 */
    return hf_slot_text_is(found->slot->slot_id, bytes, id, id_bytes);
}

bool hf_slot_look_again(struct hf_segment *seg, struct hf_found *found)
{
    struct hf_u128 word;
    uint32_t gen = hf_st_gen(found->st);
    /* Of the slot's own tenant: a twin may have asked for another one. */
    hf_commit_ready(seg, hf_load_rlx_u32(&found->slot->slot_tenant), &word); /* relaxed: E13 */
    found->st = hf_commit_read_st(found->slot);                              /* E13 */
    enum hf_state state = hf_st_state(found->st);
    return hf_st_gen(found->st) == gen && state >= HF_STATE_PENDING && state != HF_STATE_ABANDONED;
}

enum hf_index_result hf_slot_find_hashed(struct hf_segment *seg, uint32_t hash, const char *id,
                                         uint32_t id_bytes, uint64_t now_ms, struct hf_found *found)
{
    enum hf_index_result rc = hf_index_find(seg, hash, id, id_bytes, now_ms, &found->slot_idx, &found->st);
    if (rc != HF_INDEX_FOUND) {
        return rc;
    }
    found->slot = &seg->slots[found->slot_idx];
    if (hf_st_state(found->st) == HF_STATE_PENDING && !hf_slot_look_again(seg, found)) {
        return HF_INDEX_ABSENT;
    }
    return HF_INDEX_FOUND;
}

enum hf_index_result hf_slot_find(struct holdfast *handle, const char *id, uint32_t id_bytes, uint64_t token,
                                  struct hf_found *found)
{
    struct hf_segment *seg = handle->seg;
    if (token == 0 || !hf_slot_by_token(seg, id, id_bytes, token, found)) {
        return hf_slot_find_hashed(seg, hf_index_hash(seg, id, id_bytes), id, id_bytes, hf_clock_now_ms(seg),
                                   found);
    }
    if (__builtin_expect(hf_st_state(found->st) == HF_STATE_PENDING, 0) && !hf_slot_look_again(seg, found)) {
        return HF_INDEX_ABSENT;
    }
    return HF_INDEX_FOUND;
}

bool hf_slot_bury(struct holdfast *handle, const struct hf_found *found)
{
    struct hf_segment *seg = handle->seg;
    if (hf_owner_alive(seg, hf_load_rlx_u64(&found->slot->slot_owner))) { /* relaxed: E13 */
        return false;
    }
    struct hf_u128 word;
    /* Dead now: no W of its can come any more. What came is made ready, what is PENDING still never happened. */
    if (hf_commit_ready(seg, hf_load_rlx_u32(&found->slot->slot_tenant), &word) != HF_OK) { /* relaxed: E13 */
        return false;
    }
    struct hf_u128 st = hf_commit_read_st(found->slot); /* E13 */
    if (hf_st_state(st) == HF_STATE_PENDING && hf_st_gen(st) == hf_st_gen(found->st) &&
        hf_slot_abandon(seg, found->slot_idx)) {
        hf_alarm(seg, HF_ALARM_ABANDONED, 1);
    }
    return true;
}

bool hf_slot_claim(struct holdfast *handle, struct hf_shm_slot *slot)
{
    uint64_t me = handle->owner.ref;
    /* E17 acqrel -> hf_slot_unclaim: what the claimant before wrote is complete. CRASH after: a dead
     * claimant's; the next who wants it proves the death and takes over. */
    if (hf_cas_acqrel_u64(&slot->slot_claim, 0, me)) {
        return true;
    }
    uint64_t other = hf_load_acq_u64(&slot->slot_claim); /* E17 */
    if (other == 0 || hf_owner_alive(handle->seg, other)) {
        return other == 0 && hf_cas_acqrel_u64(&slot->slot_claim, 0, me); /* E17 */
    }
    return hf_cas_acqrel_u64(&slot->slot_claim, other, me); /* E17 */
}

void hf_slot_unclaim(struct hf_shm_slot *slot)
{
    hf_store_rel_u64(&slot->slot_claim, 0); /* E17 release -> hf_slot_claim */
}

int hf_slot_path(const struct hf_segment *seg, const struct hf_shm_slot *slot, struct hf_path *path)
{
    for (uint32_t i = 0; i < HF_SHM_LAYERS; i++) {
        path->rows[i] = hf_load_rlx_u32(&slot->slot_rows[i]); /* relaxed: E13 */
    }
    path->tenant_idx = hf_load_rlx_u32(&slot->slot_tenant); /* relaxed: E13 */
    path->cap_name = hf_load_rlx_u32(&slot->slot_cap);      /* relaxed: E13 */
    return hf_path_fill(seg, path, true);
}
