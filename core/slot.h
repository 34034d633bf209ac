/* Filling a slot, finding one by id or token, claiming it. What stands in a slot is read and written here and in
 * shm/commit.c; see shm/layout.h for who may write which field when. */
#ifndef HF_CORE_SLOT_H
#define HF_CORE_SLOT_H

#include "core/client.h"
#include "core/want.h"
#include "shm/commit.h"
#include "shm/index.h"

/* A slot as found. */
struct hf_found {
    uint32_t slot_idx;
    struct hf_shm_slot *slot;
    struct hf_u128 st;
};

/* FREE -> FILLING under the next generation; afterwards the fields may be written, then hf_slot_pending(). now_ms stands in st from
 * now on: a generation has 20 bits, so a helper that was stopped for 2^20 lives of a slot may meet its number again, but not
 * its millisecond. */
void hf_slot_begin(struct hf_shm_slot *slot, uint64_t owner_ref, uint64_t now_ms);
/* FILLING -> PENDING: complete. */
void hf_slot_pending(struct hf_shm_slot *slot);
/* PENDING or FILLING, never in the index and never named by W -> FREE. */
void hf_slot_undo(struct hf_shm_slot *slot);
/* PENDING, in the index: it did not happen; the daemon frees it. False: it is not PENDING any more. */
bool hf_slot_abandon(struct hf_segment *seg, uint32_t slot_idx);

/* What does not change from round to round of a reserve. */
void hf_slot_fill_request(struct hf_shm_slot *slot, const struct hf_want *want, const struct hf_path *path);
/* What a round decides: windows, amounts, deadline, credits. */
struct hf_slot_round {
    const struct hf_path *path;
    const struct hf_view *view;
    const struct hf_amounts *held;
    uint64_t ttl_ms;
    uint64_t deadline; /* elapsed scale */
    uint32_t flags;    /* of want, and HF_SLOT_DEGRADED */
};
void hf_slot_fill_round(struct hf_shm_slot *slot, const struct hf_slot_round *round);

/* The reservation of an id (or token, checked against the id) that is known now. HF_INDEX_FOUND, _ABSENT, _BUSY. A PENDING slot
 * that is found has been made ready: still PENDING means that it has not happened (yet). */
enum hf_index_result hf_slot_find(struct holdfast *handle, const char *id, uint32_t id_bytes, uint64_t token,
                                  struct hf_found *found);

/* The same by the id alone, for who has its hash and the time already. */
enum hf_index_result hf_slot_find_hashed(struct hf_segment *seg, uint32_t hash, const char *id,
                                         uint32_t id_bytes, uint64_t now_ms, struct hf_found *found);

/* found is PENDING: makes its tenant ready and reads st again. False: it is gone, look again. */
bool hf_slot_look_again(struct hf_segment *seg, struct hf_found *found);

/* Rule 7: found is PENDING. True when its owner is dead and it was abandoned (or is not PENDING any more): look again. */
bool hf_slot_bury(struct holdfast *handle, const struct hf_found *found);

/* Rule 8: takes the claim of a slot; takes over a dead one's. False: a live process has it. A handle that dies keeps
 * it until somebody takes over. */
bool hf_slot_claim(struct holdfast *handle, struct hf_shm_slot *slot);
void hf_slot_unclaim(struct hf_shm_slot *slot);

/* The path of a found reservation by the policy in force. */
int hf_slot_path(const struct hf_segment *seg, const struct hf_shm_slot *slot, struct hf_path *path);

/* The current hold of a slot with this st. */
static inline void hf_slot_hold(const struct hf_shm_slot *slot, struct hf_u128 st, struct hf_shm_hold *hold)
{
    const struct hf_shm_hold *set = &slot->slot_holds[hf_st_ordinal(st) & 1U];
    hold->hold_tokens = hf_load_rlx_u64(&set->hold_tokens);     /* relaxed: st's acquire (E13) orders it */
    hold->hold_cost = hf_load_rlx_u64(&set->hold_cost);         /* relaxed: E13 */
    hold->hold_deadline = hf_load_rlx_u64(&set->hold_deadline); /* relaxed: E13 */
    hold->hold_time_ms = hf_load_rlx_u64(&set->hold_time_ms);   /* relaxed: E13 */
}

static inline bool hf_slot_open(struct hf_u128 st)
{
    return hf_st_state(st) == HF_STATE_HELD || hf_st_state(st) == HF_STATE_DISPATCHED;
}

/* Copies up to 63 bytes into a 64-byte text field word by word (atomic, relaxed), and at least one NUL; words
 * behind that keep what they had. */
void hf_slot_store_text(char field[64], const char *text, uint32_t bytes);
/* Whether a field of field_bytes holds exactly this text. */
bool hf_slot_text_is(const char field[64], uint32_t field_bytes, const char *text, uint32_t bytes);
/* And back; text is NUL-terminated. Returns bytes. */
uint32_t hf_slot_load_text(const char field[64], uint32_t bytes, char text[64]);

#endif
