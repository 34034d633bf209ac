#include "shm/commit.h"

#include "shm/chunk.h"

#include <string.h>

bool hf_commit_unchanged(const struct hf_shm_tenant *tenant, struct hf_u128 word)
{
    /* E11 acquire fence: every load before it is older than this look at W; the bucket CAS of a later
     * operation comes after that operation's W CAS, so an unchanged W means that none was seen. */
    hf_fence_acq();
    return hf_load_rlx_u64(&tenant->ten_word.lo) == word.lo; /* relaxed: E11 */
}

/* Division by constants, done once for each of the 45 bits. */
#define HF_BIT(n)                                                                            \
    {                                                                                        \
        (n) / HF_SHM_ROW_BUCKETS, (n) % HF_SHM_ROW_BUCKETS / HF_SHM_DIMS, (n) % HF_SHM_DIMS, \
            HF_SHM_ROW_WORD((n) % HF_SHM_ROW_BUCKETS / HF_SHM_DIMS, (n) % HF_SHM_DIMS)       \
    }
#define HF_BITS5(n) HF_BIT(n), HF_BIT((n) + 1), HF_BIT((n) + 2), HF_BIT((n) + 3), HF_BIT((n) + 4)

static const struct hf_commit_bit hf_commit_bits[HF_SHM_PATH_BUCKETS] = {
    HF_BITS5(0),  HF_BITS5(5),  HF_BITS5(10), HF_BITS5(15), HF_BITS5(20),
    HF_BITS5(25), HF_BITS5(30), HF_BITS5(35), HF_BITS5(40)};

struct hf_commit_bit hf_commit_bit(uint32_t bit)
{
    return hf_commit_bits[bit < HF_SHM_PATH_BUCKETS ? bit : 0];
}

static bool hf_commit_credit_after(const struct hf_op *op, struct hf_u128 before, struct hf_u128 *after)
{
    uint32_t window = op->windows[op->credit_window];
    if (hf_bucket_tag(before) >= op->seq || hf_bucket_window(before) > window) {
        return false;
    }
    uint64_t value = hf_bucket_window(before) == window ? hf_bucket_value(before) : 0;
    *after = hf_bucket_make(hf_commit_add(value, op->credit_micros), window, op->seq);
    return true;
}

static void hf_commit_apply_credit(const struct hf_segment *seg, const struct hf_op *op)
{
    struct hf_shm_row *row = hf_segment_row(seg, op->credit_row);
    struct hf_u128 after;
    if (row == NULL) {
        return;
    }
    struct hf_u128 *credit = &row->row_buckets[op->credit_window][HF_SHM_CREDIT];
    struct hf_u128 before = hf_commit_read_bucket(credit); /* E12 */
    if (hf_commit_credit_after(op, before, &after)) {
        /* E12 acqrel. Failure: somebody has applied op. CRASH before: W names op, the next one helps. */
        hf_cas_acqrel_u128(credit, before, after);
    }
}

static __attribute__((noinline)) void hf_commit_apply_read(const struct hf_segment *seg,
                                                           const struct hf_op *op)
{
    for (uint32_t n = 0; n < op->buckets_cnt; n++) {
        struct hf_u128 *bucket = op->buckets[n].word;
        struct hf_u128 after;
        struct hf_u128 before = hf_commit_read_bucket(bucket); /* E12 */
        if (hf_commit_bucket_after(op, n, before, &after)) {
            /* E12 acqrel. One try is enough: until A says so, op alone may change this bucket, so a failure
             * means that it has been applied. CRASH before or after: the tag tells the next helper. */
            hf_cas_acqrel_u128(bucket, before, after);
        }
    }
    if (op->kind == HF_KIND_CREDIT) {
        hf_commit_apply_credit(seg, op);
    }
}

/* Changes the buckets. In line, as what follows: this is most of an operation. */
static inline __attribute__((always_inline)) void hf_commit_apply(const struct hf_segment *seg,
                                                                  const struct hf_op *op)
{
    if (__builtin_expect(!op->foretold, 0)) {
        hf_commit_apply_read(seg, op);
        return;
    }
    const struct hf_op_bucket *end = &op->buckets[op->buckets_cnt];
    for (const struct hf_op_bucket *bucket = op->buckets; bucket < end; bucket++) {
        if (bucket->after.hi != bucket->before.hi) {                         /* its tag changes with it */
            hf_cas_acqrel_u128(bucket->word, bucket->before, bucket->after); /* E12 acqrel, as above */
        }
    }
}

/* A goes up to seq. It may fall back by a slow helper's store, never ahead: it is a hint. */
static void hf_commit_store_applied(struct hf_shm_tenant *tenant, uint64_t seq)
{
    if (hf_load_rlx_u64(&tenant->ten_applied) < seq) { /* relaxed: only saves a store */
        /* E14 release -> hf_commit_ready: all buckets and st of seq are stored before A says so.
         * CRASH before: the next one helps once more and finds nothing to do. */
        hf_store_rel_u64(&tenant->ten_applied, seq);
    }
}

/* The slot's state, its dirty mark and A, after the buckets. */
static inline __attribute__((always_inline)) void
hf_commit_finish(struct hf_segment *seg, struct hf_shm_tenant *tenant, const struct hf_op *op)
{
    if (op->kind != HF_KIND_NONE) {
        struct hf_shm_slot *slot = &seg->slots[op->slot_idx];
        /* E13 acqrel -> readers of st: the buckets have it. Failure: a helper was here before.
         * CRASH before: W still names op; after: the mark below is missing, the daemon's sweep finds st. */
        hf_cas_acqrel_u128(&slot->slot_st, op->st_before, op->st_after);
        hf_chunk_mark_dirty(seg, op->slot_idx); /* E9 */
    }
    hf_commit_store_applied(tenant, op->seq);
}

/* ---- describing an operation from its slot ---------------------------------------------------------- */

static bool hf_commit_is_open(enum hf_state state)
{
    return state == HF_STATE_HELD || state == HF_STATE_DISPATCHED;
}

/* The change of buckets by kind; false when the state before does not allow the kind. */
static bool hf_commit_changes(const struct hf_shm_slot *slot, enum hf_state state, uint32_t ordinal,
                              struct hf_op *op)
{
    const struct hf_shm_hold *hold = &slot->slot_holds[ordinal & 1U];
    const struct hf_shm_hold *next = &slot->slot_holds[(ordinal + 1U) & 1U];
    bool expired = state == HF_STATE_EXPIRED;
    uint64_t held_tokens = hf_load_rlx_u64(&hold->hold_tokens); /* relaxed: E11 re-checks W */
    uint64_t held_cost = hf_load_rlx_u64(&hold->hold_cost);     /* relaxed: E11 */
    int64_t tokens = hf_commit_amount(held_tokens);
    int64_t cost = hf_commit_amount(held_cost);
    op->change[0] = op->change[1] = op->change[2] = 0;
    switch (op->kind) {
    case HF_KIND_RESERVE:
        op->change[0] = 1;
        op->change[1] = tokens;
        op->change[2] = cost;
        return state == HF_STATE_PENDING;
    case HF_KIND_EXTEND:
        op->change[1] = hf_commit_amount(hf_load_rlx_u64(&next->hold_tokens)) - tokens; /* relaxed: E11 */
        op->change[2] = hf_commit_amount(hf_load_rlx_u64(&next->hold_cost)) - cost;     /* relaxed: E11 */
        return hf_commit_is_open(state);
    case HF_KIND_SETTLE:
    case HF_KIND_LATE:
    case HF_KIND_DISPUTE:
        op->change[1] = hf_commit_settled(op->kind, expired, held_tokens,
                                          hf_load_rlx_u64(&slot->slot_actual_tokens)); /* relaxed: E11 */
        op->change[2] = hf_commit_settled(op->kind, expired, held_cost,
                                          hf_load_rlx_u64(&slot->slot_actual_cost)); /* relaxed: E11 */
        return (op->kind != HF_KIND_LATE && hf_commit_is_open(state)) ||
               (op->kind != HF_KIND_SETTLE && (expired || state == HF_STATE_RETAINED));
    case HF_KIND_RELEASE:
        op->change[0] = -1;
        op->change[1] = -tokens;
        op->change[2] = -cost;
        return state == HF_STATE_HELD;
    case HF_KIND_EXPIRE:
        op->change[1] = -tokens;
        op->change[2] = -cost;
        return hf_commit_is_open(state);
    case HF_KIND_DISPATCH:
    case HF_KIND_RETAIN:
        return hf_commit_is_open(state);
    case HF_KIND_CREDIT:
        return state == HF_STATE_PENDING;
    default:
        return false;
    }
}

enum hf_state hf_commit_state_after(enum hf_kind kind, enum hf_state before)
{
    switch (kind) {
    case HF_KIND_RESERVE:
        return HF_STATE_HELD;
    case HF_KIND_DISPATCH:
        return HF_STATE_DISPATCHED;
    case HF_KIND_SETTLE:
        return HF_STATE_SETTLED;
    case HF_KIND_RELEASE:
        return HF_STATE_RELEASED;
    case HF_KIND_EXPIRE:
        return HF_STATE_EXPIRED;
    case HF_KIND_RETAIN:
        return HF_STATE_RETAINED;
    case HF_KIND_DISPUTE:
        return HF_STATE_DISPUTED;
    case HF_KIND_LATE:
        return HF_STATE_LATE;
    case HF_KIND_CREDIT:
        return HF_STATE_CREDIT;
    default:
        return before;
    }
}

static void hf_commit_describe_credit(const struct hf_shm_slot *slot, struct hf_op *op)
{
    const struct hf_shm_credit_note *note =
        (const struct hf_shm_credit_note *)(const void *)((const uint8_t *)slot + HF_SHM_CREDIT_OFF);
    op->buckets_cnt = 0;
    op->credit_row = hf_load_rlx_u32(&slot->slot_rows[1]);                             /* relaxed: E11 */
    op->credit_window = hf_load_rlx_u32(&note->crd_window) % HF_SHM_WINDOWS;           /* relaxed: E11 */
    op->credit_micros = (int64_t)hf_load_rlx_u64((const uint64_t *)&note->crd_micros); /* relaxed: E11 */
    op->windows[op->credit_window] = hf_load_rlx_u32(&note->crd_window_id);            /* relaxed: E11 */
}

/* The buckets of the slot's path; rows that cannot be are left out. */
static void hf_commit_describe_buckets(const struct hf_segment *seg, const struct hf_shm_slot *slot,
                                       struct hf_op *op)
{
    uint64_t mask =
        hf_load_rlx_u64(&slot->slot_mask) & ((1ULL << HF_SHM_PATH_BUCKETS) - 1); /* relaxed: E11 */
    uint32_t n = 0;
    for (; mask != 0; mask &= mask - 1) {
        struct hf_commit_bit bit = hf_commit_bits[__builtin_ctzll(mask)];
        uint32_t row_idx;
        struct hf_u128 *at = hf_commit_word(seg, slot, bit, &row_idx);
        if (at != NULL) {
            op->buckets[n].word = at;
            op->buckets[n].window = bit.window;
            op->buckets[n].dimension = bit.dimension;
            n++;
        }
    }
    op->buckets_cnt = n;
}

bool hf_commit_describe_from(const struct hf_segment *seg, uint32_t slot_idx, struct hf_u128 st,
                             enum hf_kind kind, uint64_t seq, uint64_t time_ms, struct hf_op *op)
{
    const struct hf_shm_slot *slot = &seg->slots[slot_idx];
    enum hf_state state = hf_st_state(st);
    uint32_t ordinal = hf_st_ordinal(st);
    op->kind = kind;
    op->slot_idx = slot_idx;
    op->seq = seq;
    op->st_before = st;
    op->opens = kind == HF_KIND_RESERVE;
    op->foretold = false;
    op->buckets_cnt = 0;
    op->windows[0] = hf_load_rlx_u32(&slot->slot_windows[0]); /* relaxed: E11 */
    op->windows[1] = hf_load_rlx_u32(&slot->slot_windows[1]); /* relaxed: E11 */
    op->windows[2] = hf_load_rlx_u32(&slot->slot_windows[2]); /* relaxed: E11 */
    op->windows[3] = hf_load_rlx_u32(&slot->slot_windows[3]); /* relaxed: E11 */
    op->windows[4] = 0;
    if (kind == HF_KIND_CREDIT) {
        hf_commit_describe_credit(slot, op);
    } else if (kind != HF_KIND_DISPATCH && kind != HF_KIND_RETAIN) { /* these change no amount */
        hf_commit_describe_buckets(seg, slot, op);
    }
    bool right = hf_commit_changes(slot, state, ordinal, op);
    op->st_after = hf_st_make(seq, kind == HF_KIND_EXTEND ? ordinal + 1U : ordinal,
                              hf_commit_state_after(kind, state), time_ms, hf_st_gen(st));
    return right;
}

bool hf_commit_describe(const struct hf_segment *seg, uint32_t slot_idx, enum hf_kind kind, uint64_t seq,
                        uint64_t time_ms, struct hf_op *op, bool *applied)
{
    struct hf_u128 st = hf_commit_read_st(&seg->slots[slot_idx]); /* E13 */
    if (applied != NULL) {
        *applied = hf_st_seq(st) == seq;
        if (*applied) {
            op->kind = kind;
            op->slot_idx = slot_idx;
            op->seq = seq;
            op->st_before = op->st_after = st;
            op->buckets_cnt = 0;
            return true;
        }
    }
    return hf_commit_describe_from(seg, slot_idx, st, kind, seq, time_ms, op);
}

/* ---- ready, help, run -------------------------------------------------------------------------------- */

/* Helps the operation that word names. HF_OK: it is applied. HF_EBUSY: W has moved on. HF_ECORRUPT. */
static __attribute__((noinline)) int hf_commit_help(struct hf_segment *seg, struct hf_shm_tenant *tenant,
                                                    struct hf_u128 word)
{
    struct hf_op op; /* large: not zeroed */
    op.kind = HF_KIND_NONE;
    op.seq = hf_word_seq(word);
    op.buckets_cnt = 0;
    bool applied = false;
    if (hf_word_kind(word) != HF_KIND_NONE) {
        uint32_t slot_idx = hf_word_slot(word);
        if (slot_idx >= seg->slots_cnt || hf_word_kind(word) >= HF_KIND_CNT) {
            return hf_commit_unchanged(tenant, word) ? HF_ECORRUPT : HF_EBUSY;
        }
        bool right = hf_commit_describe(seg, slot_idx, (enum hf_kind)hf_word_kind(word), hf_word_seq(word),
                                        hf_word_time_ms(word), &op, &applied);
        /* E11: what was copied belongs to this operation only if W still names it. */
        if (!hf_commit_unchanged(tenant, word)) {
            return HF_EBUSY;
        }
        if (!right) {
            return HF_ECORRUPT;
        }
        if (!applied) {
            hf_commit_apply(seg, &op);
        }
    }
    hf_commit_finish(seg, tenant, &op);
    return HF_OK;
}

int hf_commit_wait(struct hf_segment *seg, struct hf_shm_tenant *tenant, struct hf_u128 *word)
{
    for (uint32_t round = 0; round < HF_COMMIT_READY_TRIES; round++) {
        if (!hf_commit_read_word(tenant, word)) {
            continue;
        }
        if (hf_commit_applied(tenant, *word)) {
            return HF_OK;
        }
        for (uint32_t i = 0; i < HF_COMMIT_PAUSES; i++) {
            hf_pause();
            if (hf_commit_applied(tenant, *word) ||
                hf_load_rlx_u64(&tenant->ten_word.lo) != word->lo) { /* relaxed: read again above */
                break;
            }
        }
        if (hf_commit_applied(tenant, *word)) {
            if (hf_load_rlx_u64(&tenant->ten_word.lo) == word->lo) { /* relaxed: only whether to go round */
                return HF_OK;
            }
            continue;
        }
        int rc = hf_commit_help(seg, tenant, *word);
        if (rc != HF_EBUSY) {
            return rc;
        }
    }
    return HF_EBUSY;
}

bool hf_commit_run(struct hf_segment *seg, uint32_t tenant_idx, struct hf_u128 word, const struct hf_op *op,
                   uint64_t time_ms)
{
    struct hf_shm_tenant *tenant = &seg->tenants[tenant_idx];
    struct hf_u128 next = hf_word_make(op->seq, op->kind, op->slot_idx, time_ms);
    /* LIN of every operation. E10 acqrel -> readers of W: the slot's fields are complete.
     * CRASH before: nothing happened; after: it happened, anybody finishes it. */
    if (op->seq > HF_SHM_SEQ_MAX || !hf_cas_acqrel_u128(&tenant->ten_word, word, next)) {
        return false;
    }
    hf_commit_apply(seg, op);
    hf_commit_finish(seg, tenant, op);
    return true;
}

/* W was seen at an operation after the one that closed the slot for good: it names this life of it no more. That closing was applied
 * before W went on, none after it starts from there, and W never goes back, so a look of some time ago does as well as one now.
 * E10 acquire (hf_commit_ready, when seen was read): what the caller does next comes after W's going on. Whoever then finds the slot
 * FREE (E6) begins its next life (E16); a helper of the old one that has copied a field of the next finds at E11 a W as new as seen.
 * Sequence 0 says nothing. No W names a slot that was rebuilt (W is 0 then) or whose sequence a repair forgot (it mends words before
 * slots, and lets no W name what its state does not allow); but damage may have taken the sequence of one that W does name. */
static bool hf_commit_is_past(struct hf_u128 st, uint64_t seen)
{
    return hf_commit_is_terminal(hf_st_state(st)) && hf_st_seq(st) != 0 && hf_st_seq(st) < seen;
}

int hf_commit_detach(struct hf_segment *seg, uint32_t tenant_idx, uint32_t slot_idx, struct hf_u128 st,
                     uint64_t *seen)
{
    if (hf_commit_is_past(st, *seen)) {
        return HF_OK;
    }
    for (uint32_t round = 0; round < HF_COMMIT_READY_TRIES; round++) {
        struct hf_u128 word;
        int rc = hf_commit_ready(seg, tenant_idx, &word);
        if (rc != HF_OK) {
            return rc;
        }
        *seen = hf_word_seq(word);
        if (hf_word_kind(word) == HF_KIND_NONE || hf_word_slot(word) != slot_idx) {
            return HF_OK;
        }
        struct hf_op none;
        none.kind = HF_KIND_NONE;
        none.slot_idx = 0;
        none.seq = hf_word_seq(word) + 1;
        none.buckets_cnt = 0;
        none.foretold = true;
        if (hf_commit_run(seg, tenant_idx, word, &none, hf_word_time_ms(word))) {
            return HF_OK;
        }
        if (hf_commit_exhausted(word)) {
            return HF_EBUSY;
        }
    }
    return HF_EBUSY;
}
