/* The commit-word transaction: one operation on a slot changes all its buckets at one instant.
 *
 * A tenant's word W = {sequence, kind, slot, time}. An operation is made ready (amounts in its slot), then
 * W is moved from s to s+1 by one compare-and-swap: that is the instant it happens. What follows (buckets, slot
 * state, dirty mark, A) can be done by anybody from W and the slot: a bucket's tag says whether s+1 was applied
 * to it, so doing it twice is doing it once. Progress: lock-free; a lost W means that another operation happened.
 * A process stopped or killed anywhere delays nobody by more than one help.
 *
 * This file knows buckets, windows and dimensions by number; it knows no money and no policy.
 */
#ifndef HF_SHM_COMMIT_H
#define HF_SHM_COMMIT_H

#include "shm/segment.h"

#define HF_COMMIT_READY_TRIES 4096U /* rounds of hf_commit_ready() before it answers HF_EBUSY */
#define HF_COMMIT_PAUSES      20U   /* pauses for a live committer before helping it */

/* One bucket of an operation: where it is, and what the operation does to it. */
struct hf_op_bucket {
    struct hf_u128 *word;
    /* Foretold operations alone: as read under the W before, and what it becomes; the same where it is left alone. */
    struct hf_u128 before;
    struct hf_u128 after;
    /* All others. */
    uint8_t window; /* kind */
    uint8_t dimension;
};

/* An operation, copied from its slot before W is moved: whoever applies it reads no slot any more. */
struct hf_op {
    enum hf_kind kind;
    uint32_t slot_idx;
    uint64_t seq;             /* of this operation: s + 1 */
    struct hf_u128 st_before; /* slot state it starts from */
    struct hf_u128 st_after;
    uint32_t buckets_cnt;
    bool foretold; /* its owner has read the buckets under the W before it: before and after stand in each */
    /* What follows, up to the buckets, is not set in foretold operations. */
    bool opens; /* reserve: the first of a newer window starts it */
    uint32_t windows[HF_SHM_WINDOWS];
    int64_t change[HF_SHM_DIMS];
    uint32_t credit_row;                              /* credit alone: the team's row */
    uint32_t credit_window;                           /* credit alone: kind, window id is windows[kind] */
    int64_t credit_micros;                            /* credit alone */
    struct hf_op_bucket buckets[HF_SHM_PATH_BUCKETS]; /* in the order of the mask's bits */
};

/* Reads W as low, high, low: a whole word, or false when it changed meanwhile. */
static inline bool hf_commit_read_word(const struct hf_shm_tenant *tenant, struct hf_u128 *word)
{
    /* E10 acquire -> W CAS: the slot of the operation it names is complete. */
    word->lo = hf_load_acq_u64(&tenant->ten_word.lo);
    word->hi = hf_load_acq_u64(&tenant->ten_word.hi);         /* E10 */
    return hf_load_rlx_u64(&tenant->ten_word.lo) == word->lo; /* relaxed: after the acquire of hi */
}

/* The operation that word names is applied, and all before it. */
static inline bool hf_commit_applied(const struct hf_shm_tenant *tenant, struct hf_u128 word)
{
    /* E14 acquire: buckets and st of everything up to A are visible. Read after W: A of an older W is only lower. */
    return hf_load_acq_u64(&tenant->ten_applied) >= hf_word_seq(word);
}

/* Reads a bucket, the half with the tag first: when it is torn, the tag is older than the value, and a
 * compare-and-swap with it fails. */
static inline struct hf_u128 hf_commit_read_bucket(const struct hf_u128 *bucket)
{
    struct hf_u128 b;
    b.hi = hf_load_acq_u64(&bucket->hi); /* E12 acquire -> bucket CAS: the low half is at least as new */
    b.lo = hf_load_rlx_u64(&bucket->lo); /* relaxed: after the high half by its acquire */
    return b;
}

static inline struct hf_u128 hf_commit_read_st(const struct hf_shm_slot *slot)
{
    struct hf_u128 st;
    do {
        st.lo = hf_load_acq_u64(&slot->slot_st.lo); /* E13 acquire -> st CAS / PENDING store */
        st.hi = hf_load_acq_u64(&slot->slot_st.hi); /* E13 */
        /* Two changes within these loads are needed for another round: bounded in practice by the
         * speed of others, and each round is somebody's progress. */
    } while (hf_load_rlx_u64(&slot->slot_st.lo) != st.lo); /* relaxed: E13's acquire loads order it */
    return st;
}

/* hf_commit_ready() where W names an operation that is not applied. */
int hf_commit_wait(struct hf_segment *seg, struct hf_shm_tenant *tenant, struct hf_u128 *word);

/* Waits for, or helps to its end, the operation that W names. On HF_OK *word is W, all of it applied.
 * HF_EBUSY: bounded tries used up while others made progress. HF_ECORRUPT: W or the slot it names cannot be. */
static inline int hf_commit_ready(struct hf_segment *seg, uint32_t tenant_idx, struct hf_u128 *word)
{
    struct hf_shm_tenant *tenant = hf_segment_tenant(seg, tenant_idx);
    if (__builtin_expect(tenant == NULL, 0)) {
        return HF_ECORRUPT;
    }
    if (__builtin_expect(hf_commit_read_word(tenant, word) && hf_commit_applied(tenant, *word), 1)) {
        return HF_OK;
    }
    return hf_commit_wait(seg, tenant, word);
}

/* No operation follows the one that W names: the tenant's sequence is used up, and hf_commit_run() is lost for ever. The daemon
 * raises HF_ALARM_SEQUENCE long before. */
static inline bool hf_commit_exhausted(struct hf_u128 word)
{
    return hf_word_seq(word) >= HF_SHM_SEQ_MAX;
}

/* Fills op from the slot as it stands, as operation number seq of this kind at time_ms. False when the slot's
 * state does not allow the kind (then op->st_before is the state seen). *applied (may be NULL): its state says
 * that operation seq is done already. */
bool hf_commit_describe(const struct hf_segment *seg, uint32_t slot_idx, enum hf_kind kind, uint64_t seq,
                        uint64_t time_ms, struct hf_op *op, bool *applied);

/* The same for who has seen st under the W that op follows: what W's compare-and-swap then says of st, nobody reads again. */
bool hf_commit_describe_from(const struct hf_segment *seg, uint32_t slot_idx, struct hf_u128 st,
                             enum hf_kind kind, uint64_t seq, uint64_t time_ms, struct hf_op *op);

/* W.seq still that of word: what was read since hf_commit_ready() was true at one instant. */
bool hf_commit_unchanged(const struct hf_shm_tenant *tenant, struct hf_u128 word);

/* Moves W from word to op (op->seq = seq of word + 1) at time_ms and applies op. False: lost to another operation, nothing
 * happened: start again from hf_commit_ready(). */
bool hf_commit_run(struct hf_segment *seg, uint32_t tenant_idx, struct hf_u128 word, const struct hf_op *op,
                   uint64_t time_ms);

/* Closed for good: no kind of operation starts from this state, so none after the one that led to it names this life of the slot.
 * (What is expired or retained can still be settled late.) */
static inline bool hf_commit_is_terminal(enum hf_state state)
{
    return state == HF_STATE_SETTLED || state == HF_STATE_RELEASED || state == HF_STATE_LATE ||
           state == HF_STATE_DISPUTED || state == HF_STATE_CREDIT;
}

/* Daemon: makes W of the tenant name this slot, whose state is st, no more. Where it is known not to, W is not read: its line stays
 * with those who work on the tenant. *seen: the sequence of this tenant's W as the caller read it last, 0 at first; of one thread alone,
 * and of one segment as long as it is attached (while a segment stands, the sequence of a W never falls, and who makes or repairs it
 * is alone in it). A state with a lower sequence than that of its closing is damaged, and W may be left naming its slot: freeing
 * does not find that, fsck does (HF_FSCK_WORD). HF_OK, HF_EBUSY, HF_ECORRUPT. */
int hf_commit_detach(struct hf_segment *seg, uint32_t tenant_idx, uint32_t slot_idx, struct hf_u128 st,
                     uint64_t *seen);

/* v + change, kept in the range of amounts. Callers have checked the range before W was moved, so the
 * clamps act only on a damaged segment: they keep damage from spreading into the other fields. */
static inline uint64_t hf_commit_add(uint64_t v, int64_t change)
{
    uint64_t sum = v + (uint64_t)change; /* below zero: far above the range */
    if (__builtin_expect(sum <= HF_SHM_AMOUNT_MAX, 1)) {
        return sum;
    }
    return change < 0 ? 0 : HF_SHM_AMOUNT_MAX;
}

/* What operation seq makes of a bucket of this window; false when it leaves it alone (newer window, or applied). */
static inline bool hf_commit_after(struct hf_u128 before, uint64_t seq, uint32_t window, int64_t change,
                                   bool opens, struct hf_u128 *after)
{
    if (hf_bucket_tag(before) >= seq) {
        return false;
    }
    uint64_t value = hf_bucket_value(before);
    uint32_t seen = hf_bucket_window(before);
    if (__builtin_expect(seen != window, 0)) {
        if (!opens || seen > window) {
            return false; /* its window is over: the receipt carries it, the live window does not */
        }
        value = 0;
    }
    *after = hf_bucket_make(hf_commit_add(value, change), window, seq);
    return true;
}

/* The same of bucket n of op, which is not foretold. */
static inline bool hf_commit_bucket_after(const struct hf_op *op, uint32_t n, struct hf_u128 before,
                                          struct hf_u128 *after)
{
    const struct hf_op_bucket *bucket = &op->buckets[n];
    return hf_commit_after(before, op->seq, op->windows[bucket->window], op->change[bucket->dimension],
                           op->opens, after);
}

/* An amount as a change; unknown changes nothing. */
static inline int64_t hf_commit_amount(uint64_t amount)
{
    return amount == HF_SHM_UNKNOWN ? 0 : (int64_t)(amount & HF_SHM_AMOUNT_MAX);
}

/* What settle, late and dispute change in a dimension: of a hold that an expiry has freed nothing is left to give back, and of a
 * disputed one everything stays. Where the actual is unknown, the hold is charged. For its owner and for helpers. */
static inline int64_t hf_commit_settled(enum hf_kind kind, bool expired, uint64_t held, uint64_t actual)
{
    uint64_t charged = kind == HF_KIND_DISPUTE || actual == HF_SHM_UNKNOWN ? held : actual;
    return hf_commit_amount(charged) - (expired ? 0 : hf_commit_amount(held));
}

/* The state that kind leads to; before: what it is now. */
enum hf_state hf_commit_state_after(enum hf_kind kind, enum hf_state before);

/* Layer, window and dimension that a bit of a path's mask stands for. */
struct hf_commit_bit {
    uint8_t layer;
    uint8_t window;
    uint8_t dimension;
    uint8_t word_idx; /* the word of it, from the first of its row */
};
struct hf_commit_bit hf_commit_bit(uint32_t bit);

/* The word of a bit of slot's mask, and its row; NULL: that row cannot be. */
static inline struct hf_u128 *hf_commit_word(const struct hf_segment *seg, const struct hf_shm_slot *slot,
                                             struct hf_commit_bit bit, uint32_t *row_idx)
{
    *row_idx = hf_load_rlx_u32(&slot->slot_rows[bit.layer]); /* relaxed: E11, E13 */
    struct hf_shm_row *row = hf_segment_row(seg, *row_idx);
    return row == NULL ? NULL : &row->row_buckets[0][0] + bit.word_idx;
}

#endif
