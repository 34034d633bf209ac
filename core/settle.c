/* settle: semantics.md, section 4. Writes what the closing is into the slot before W, so it needs the slot's claim; any process
 * may settle. LIN: the W CAS of hf_commit_run; 'already' answers by a final state, which never changes back. */
#include "core/amount.h"
#include "core/close.h"
#include "core/lookup.h"
#include "core/meter.h"
#include "core/price.h"
#include "core/turn.h"
#include "core/window.h"

#include <string.h>

/* ---- what was told ------------------------------------------------------------------------------------------ */

/* Usage as told, in numbers that go into the slot; 0 where not told. */
struct hf_told {
    uint64_t input, output, cached, cache_write, cost;
    uint64_t tokens;      /* input and output; may be above the range */
    uint32_t close_flags; /* HF_CLOSE_USAGE, _HAS_x, _FAILURE, _REF; the source is added with the actuals */
    bool has_cost;
    const char *ref;
    uint32_t ref_bytes;
};

static bool hf_settle_amount(uint64_t told, uint64_t *kept, uint32_t flag, uint32_t *flags)
{
    *kept = told == HOLDFAST_UNKNOWN ? 0 : told;
    *flags |= told == HOLDFAST_UNKNOWN ? 0 : flag;
    return *kept <= HF_AMOUNT_MAX;
}

static int hf_settle_told(const struct holdfast_usage *usage, int outcome, const char *ref,
                          struct hf_told *told)
{
    told->input = told->output = told->cached = told->cache_write = told->cost = told->tokens = 0;
    told->has_cost = false;
    told->ref = NULL;
    told->ref_bytes = 0;
    if ((outcome != HOLDFAST_SUCCESS && outcome != HOLDFAST_FAILURE) ||
        (ref != NULL && hf_client_name(ref) == 0)) {
        return HOLDFAST_REASON_INVALID_REQUEST;
    }
    told->close_flags = outcome == HOLDFAST_FAILURE ? HF_CLOSE_FAILURE : 0;
    if (ref != NULL) {
        told->ref = ref;
        told->ref_bytes = hf_client_name(ref);
        told->close_flags |= HF_CLOSE_REF;
    }
    if (usage == NULL) {
        return HOLDFAST_REASON_NONE;
    }
    told->close_flags |= HF_CLOSE_USAGE;
    told->input = usage->input_tokens;
    told->output = usage->output_tokens;
    told->tokens = told->input + told->output; /* both are within the range, or refused below */
    told->has_cost = usage->cost_micros != HOLDFAST_UNKNOWN;
    uint32_t ignored = 0;
    bool right = told->input <= HF_AMOUNT_MAX && told->output <= HF_AMOUNT_MAX &&
                 hf_settle_amount(usage->cached_input_tokens, &told->cached, HF_CLOSE_HAS_CACHED,
                                  &told->close_flags) &&
                 hf_settle_amount(usage->cache_write_input_tokens, &told->cache_write,
                                  HF_CLOSE_HAS_CACHE_WRITE, &told->close_flags) &&
                 hf_settle_amount(usage->cost_micros, &told->cost, 0, &ignored) &&
                 told->cached + told->cache_write <= told->input;
    return right ? HOLDFAST_REASON_NONE : HOLDFAST_REASON_INVALID_AMOUNT;
}

/* The cost by the prices fixed at reserve. False: above the range. */
static bool hf_settle_derived(const struct hf_segment *seg, const struct hf_shm_slot *slot,
                              const struct hf_told *told, uint64_t *tokens, uint64_t *cost, uint32_t *source)
{
    bool degraded = (hf_load_rlx_u32(&slot->slot_flags) & HF_SLOT_DEGRADED) != 0; /* relaxed: E13 */
    uint32_t price_idx =
        hf_load_rlx_u32(degraded ? &slot->slot_economy : &slot->slot_model); /* relaxed: E13 */
    struct hf_price price;
    if (!hf_lookup_price(seg, price_idx, &price, NULL)) {
        return true; /* explicit amounts: no price, the cost is unknown */
    }
    *source = HF_CLOSE_SOURCE_DERIVED;
    return hf_price_actual(&price, told->input, told->cached, told->cache_write, told->output, tokens, cost);
}

/* Actual tokens and cost. False: above the range. */
static inline bool hf_settle_actual(const struct hf_segment *seg, const struct hf_shm_slot *slot,
                                    const struct hf_told *told, uint64_t *tokens, uint64_t *cost,
                                    uint32_t *source)
{
    *tokens = *cost = HF_UNKNOWN;
    *source = 0;
    if ((told->close_flags & HF_CLOSE_USAGE) == 0) {
        return true;
    }
    *tokens = told->tokens;
    if (told->tokens > HF_AMOUNT_MAX) {
        return false;
    }
    if (told->has_cost) {
        *cost = told->cost;
        *source = HF_CLOSE_SOURCE_PROVIDER;
        return true;
    }
    return hf_settle_derived(seg, slot, told, tokens, cost, source);
}

/* Answer of a settle from hold and actuals. */
static void hf_settle_part(uint64_t held, uint64_t actual, uint64_t *released, uint64_t *overage)
{
    if (held == HF_UNKNOWN) {
        *released = *overage = HOLDFAST_UNKNOWN;
        return;
    }
    *released = actual != HF_UNKNOWN && actual < held ? held - actual : 0;
    *overage = actual != HF_UNKNOWN && actual > held ? actual - held : 0;
}

static inline void hf_settle_answer(const struct hf_shm_hold *hold, uint64_t tokens, uint64_t cost,
                                    uint32_t close_flags, struct holdfast_closing *closing)
{
    closing->kind = HOLDFAST_CLOSED_SETTLED;
    closing->actual.tokens = tokens;
    closing->actual.cost_micros = cost;
    hf_settle_part(hold->hold_tokens, tokens, &closing->released.tokens, &closing->overage.tokens);
    hf_settle_part(hold->hold_cost, cost, &closing->released.cost_micros, &closing->overage.cost_micros);
    closing->source =
        (close_flags & HF_CLOSE_SOURCE_MASK) == HF_CLOSE_SOURCE_PROVIDER  ? HOLDFAST_SOURCE_PROVIDER
        : (close_flags & HF_CLOSE_SOURCE_MASK) == HF_CLOSE_SOURCE_DERIVED ? HOLDFAST_SOURCE_DERIVED
                                                                          : HOLDFAST_SOURCE_UNKNOWN;
    closing->quota_exceeded = (close_flags & HF_CLOSE_QUOTA_EXCEEDED) != 0;
    closing->late = (close_flags & (HF_CLOSE_WAS_EXPIRED | HF_CLOSE_WAS_RETAINED)) != 0;
}

/* ---- a settle of what is closed already --------------------------------------------------------------------- */

#define HF_SETTLE_TOLD_FLAGS \
    (HF_CLOSE_FAILURE | HF_CLOSE_USAGE | HF_CLOSE_HAS_CACHED | HF_CLOSE_HAS_CACHE_WRITE | HF_CLOSE_REF)

static bool hf_settle_same(const struct hf_segment *seg, const struct hf_shm_slot *slot,
                           const struct hf_told *told, uint32_t close_flags, uint64_t tokens, uint64_t cost)
{
    char ref[64];
    uint32_t ref_bytes =
        hf_slot_load_text(slot->slot_ref, hf_load_rlx_u8(&slot->slot_ref_bytes), ref); /* relaxed: E13 */
    uint64_t told_tokens;
    uint64_t told_cost;
    uint32_t source;
    if (!hf_settle_actual(seg, slot, told, &told_tokens, &told_cost, &source)) {
        return false;
    }
    if ((close_flags & HF_CLOSE_REF) != 0 &&
        (told->ref == NULL || ref_bytes != told->ref_bytes || memcmp(ref, told->ref, ref_bytes) != 0)) {
        return false;
    }
    return tokens == told_tokens && cost == told_cost && source == (close_flags & HF_CLOSE_SOURCE_MASK) &&
           hf_load_rlx_u64(&slot->slot_usage_input) == told->input &&           /* relaxed: E13 */
           hf_load_rlx_u64(&slot->slot_usage_cached) == told->cached &&         /* relaxed: E13 */
           hf_load_rlx_u64(&slot->slot_usage_cache_write) == told->cache_write; /* relaxed: E13 */
}

static int hf_settle_closed(struct hf_close *close, const struct hf_told *told,
                            struct holdfast_closing *closing)
{
    const struct hf_shm_slot *slot = close->found.slot;
    enum hf_state state = hf_st_state(close->found.st);
    if (state != HF_STATE_SETTLED && state != HF_STATE_LATE && state != HF_STATE_DISPUTED) {
        return hf_close_refuse(closing, HOLDFAST_REASON_ALREADY_CLOSED);
    }
    uint32_t close_flags = hf_load_rlx_u32(&slot->slot_close);    /* relaxed: E13 */
    uint64_t tokens = hf_load_rlx_u64(&slot->slot_actual_tokens); /* relaxed: E13 */
    uint64_t cost = hf_load_rlx_u64(&slot->slot_actual_cost);     /* relaxed: E13 */
    struct hf_shm_hold hold;
    hf_slot_hold(slot, close->found.st, &hold);
    bool same = (close_flags & HF_SETTLE_TOLD_FLAGS) == (told->close_flags & HF_SETTLE_TOLD_FLAGS) &&
                hf_settle_same(close->handle->seg, slot, told, close_flags, tokens, cost);
    hf_fence_acq(); /* E16: the generation is read after the fields */
    if (hf_st_gen(hf_commit_read_st(slot)) != hf_st_gen(close->found.st)) { /* E13, E16: freed meanwhile */
        return HF_CLOSE_AGAIN;
    }
    if (!same) {
        return hf_close_refuse(closing, HOLDFAST_REASON_ALREADY_CLOSED);
    }
    closing->replayed = 1;
    if (state == HF_STATE_DISPUTED) {
        closing->kind = HOLDFAST_CLOSED_DISPUTED;
        return hf_close_refuse(closing, HOLDFAST_REASON_OVERAGE);
    }
    hf_settle_answer(&hold, tokens, cost, close_flags, closing);
    return HOLDFAST_OK;
}

/* ---- a settle that closes ----------------------------------------------------------------------------------- */

/* What a round of a settle has found and decided, before W. */
struct hf_settle {
    uint64_t tokens; /* actual; HF_UNKNOWN: unknown */
    uint64_t cost;
    uint32_t close_flags;
    enum hf_kind kind;
    struct hf_shm_hold hold;
};

/* Writes what the closing is, before W. Holds the claim. */
static void hf_settle_write(struct hf_shm_slot *slot, const struct hf_told *told,
                            const struct hf_settle *settle, uint64_t expired_ms)
{
    hf_store_rlx_u64(&slot->slot_actual_tokens, settle->tokens);        /* relaxed: E10 */
    hf_store_rlx_u64(&slot->slot_actual_cost, settle->cost);            /* relaxed: E10 */
    hf_store_rlx_u64(&slot->slot_usage_input, told->input);             /* relaxed: E10 */
    hf_store_rlx_u64(&slot->slot_usage_cached, told->cached);           /* relaxed: E10 */
    hf_store_rlx_u64(&slot->slot_usage_cache_write, told->cache_write); /* relaxed: E10 */
    hf_store_rlx_u64(&slot->slot_expired_ms, expired_ms);               /* relaxed: E10 */
    hf_store_rlx_u32(&slot->slot_close, settle->close_flags);           /* relaxed: E10 */
    hf_store_rlx_u8(&slot->slot_ref_bytes, (uint8_t)told->ref_bytes);   /* relaxed: E10 */
    if (told->ref_bytes != 0) {
        hf_slot_store_text(slot->slot_ref, told->ref, told->ref_bytes);
    }
}

/* Whether this value of a bucket is over its limit, in a window that still runs. */
static bool hf_settle_below_zero(const struct hf_close *close, uint32_t row_idx, struct hf_commit_bit bit,
                                 uint32_t window, uint64_t value, uint64_t now_ms)
{
    const struct hf_shm_row_policy *limits = hf_client_row(close->handle, row_idx);
    if (limits == NULL) {
        return false;
    }
    uint64_t limit = limits->rpl_limits[bit.window][bit.dimension]; /* plain: read-only once published */
    if (__builtin_expect(value <= limit, 1) || /* unknown, which is none, is the highest */
        hf_window_id((enum hf_window)bit.window, now_ms) != window) {
        return false;
    }
    if (bit.dimension == HF_DIM_COST) { /* only teams have credit: elsewhere the word is 0 */
        struct hf_u128 credit = hf_commit_read_bucket(
            &close->handle->seg->rows[row_idx].row_buckets[bit.window][HF_SHM_CREDIT]); /* E12 */
        limit += hf_bucket_window(credit) == window ? hf_bucket_value(credit) : 0;
    }
    return value > limit;
}

/* The operation with its buckets, which it reads and foretells: what hf_commit_describe() makes of the slot for helpers, from what is
 * known here. HOLDFAST_REASON_NONE or _INVALID_AMOUNT (above the range); *exceeded: some bucket is over its limit then. */
static int hf_settle_op(const struct hf_close *close, const struct hf_settle *settle, struct hf_u128 word,
                        uint64_t now_ms, struct hf_op *op, bool *exceeded)
{
    const struct hf_segment *seg = close->handle->seg;
    const struct hf_shm_slot *slot = close->found.slot;
    struct hf_u128 st = close->found.st;
    bool expired = hf_st_state(st) == HF_STATE_EXPIRED;
    bool limited = hf_client_policy(close->handle, hf_path_generation(seg, close->tenant_idx)) != NULL;
    const int64_t change[HF_SHM_DIMS] = {
        0, hf_commit_settled(settle->kind, expired, settle->hold.hold_tokens, settle->tokens),
        hf_commit_settled(settle->kind, expired, settle->hold.hold_cost, settle->cost)};
    uint64_t seq = hf_word_seq(word) + 1U;
    op->kind = settle->kind;
    op->slot_idx = close->found.slot_idx;
    op->seq = seq;
    op->st_before = st;
    op->st_after = hf_st_make(seq, hf_st_ordinal(st), hf_commit_state_after(settle->kind, hf_st_state(st)),
                              now_ms, hf_st_gen(st));
    op->foretold = true;
    *exceeded = false;
    uint32_t n = 0;
    uint64_t mask =
        hf_load_rlx_u64(&slot->slot_mask) & ((1ULL << HF_SHM_PATH_BUCKETS) - 1); /* relaxed: E13 */
    for (; mask != 0; mask &= mask - 1) {
        struct hf_commit_bit bit = hf_commit_bit((uint32_t)__builtin_ctzll(mask));
        uint32_t row_idx;
        struct hf_u128 *at = hf_commit_word(seg, slot, bit, &row_idx);
        if (at == NULL) {
            continue;
        }
        uint32_t window =
            bit.window < 4 ? hf_load_rlx_u32(&slot->slot_windows[bit.window]) : 0; /* relaxed: E13 */
        struct hf_op_bucket *bucket = &op->buckets[n++];
        struct hf_u128 before = hf_commit_read_bucket(at); /* E12 */
        struct hf_u128 after = before;
        bool acts = hf_commit_after(before, seq, window, change[bit.dimension], false, &after);
        bucket->word = at;
        bucket->before = before;
        bucket->after = after;
        if (acts && change[bit.dimension] > 0 &&
            hf_bucket_value(before) + (uint64_t)change[bit.dimension] > HF_AMOUNT_MAX) {
            return HOLDFAST_REASON_INVALID_AMOUNT;
        }
        *exceeded |= acts && limited &&
                     hf_settle_below_zero(close, row_idx, bit, window, hf_bucket_value(after), now_ms);
    }
    op->buckets_cnt = n;
    return HOLDFAST_REASON_NONE;
}

static bool hf_settle_may(enum hf_state state)
{
    return state == HF_STATE_HELD || state == HF_STATE_DISPATCHED || state == HF_STATE_EXPIRED ||
           state == HF_STATE_RETAINED;
}

static bool hf_settle_over(const struct holdfast_closing *closing)
{
    return (closing->overage.tokens != HOLDFAST_UNKNOWN && closing->overage.tokens != 0) ||
           (closing->overage.cost_micros != HOLDFAST_UNKNOWN && closing->overage.cost_micros != 0);
}

/* Actuals, kind and answer from the state found, and writes them into the slot. False: above the range. */
static bool hf_settle_decide(const struct hf_close *close, const struct hf_told *told,
                             struct hf_settle *settle, struct holdfast_closing *closing)
{
    struct hf_shm_slot *slot = close->found.slot;
    enum hf_state state = hf_st_state(close->found.st);
    bool late = state == HF_STATE_EXPIRED || state == HF_STATE_RETAINED;
    uint32_t source;
    if (!hf_settle_actual(close->handle->seg, slot, told, &settle->tokens, &settle->cost, &source)) {
        return false;
    }
    hf_slot_hold(slot, close->found.st, &settle->hold);
    settle->close_flags = told->close_flags | source |
                          (state == HF_STATE_EXPIRED ? HF_CLOSE_WAS_EXPIRED : 0) |
                          (state == HF_STATE_RETAINED ? HF_CLOSE_WAS_RETAINED : 0);
    hf_settle_answer(&settle->hold, settle->tokens, settle->cost, settle->close_flags, closing);
    bool dispute = hf_settle_over(closing) &&
                   (hf_load_rlx_u32(&slot->slot_flags) & HF_SLOT_OVERAGE_FAIL) != 0; /* relaxed: E13 */
    settle->kind = dispute ? HF_KIND_DISPUTE : late ? HF_KIND_LATE : HF_KIND_SETTLE;
    hf_settle_write(slot, told, settle, late ? hf_st_time_ms(close->found.st) : 0);
    return true;
}

/* One round with the claim held. HF_CLOSE_AGAIN: look again. */
static int hf_settle_round(struct hf_close *close, const struct hf_told *told,
                           struct holdfast_closing *closing)
{
    struct hf_segment *seg = close->handle->seg;
    struct hf_shm_slot *slot = close->found.slot;
    struct hf_u128 word;
    struct hf_clock_now now;
    struct hf_settle settle;
    struct hf_op op;
    bool exceeded;
    int code = hf_close_ready(close, &word, &now);
    if (code != HF_OK) {
        return code;
    }
    /* State first: nothing is written into a slot that is closed for good. */
    if (!hf_settle_may(hf_st_state(close->found.st))) {
        return HF_CLOSE_AGAIN;
    }
    if (!hf_settle_decide(close, told, &settle, closing)) {
        return hf_close_refuse(closing, HOLDFAST_REASON_INVALID_AMOUNT);
    }
    int reason = hf_settle_op(close, &settle, word, now.now_ms, &op, &exceeded);
    uint64_t charged = settle.cost == HF_UNKNOWN ? settle.hold.hold_cost : settle.cost;
    if (settle.kind != HF_KIND_DISPUTE && !hf_meter_room_for_all(seg, 0, charged) &&
        !hf_meter_slot_room(seg, slot, 0, charged)) {
        reason = HOLDFAST_REASON_INVALID_AMOUNT;
    }
    if (reason != HOLDFAST_REASON_NONE) {
        return hf_commit_unchanged(&seg->tenants[close->tenant_idx], word) ? hf_close_refuse(closing, reason)
                                                                           : HF_CLOSE_AGAIN;
    }
    if (exceeded) {
        closing->quota_exceeded = 1;
        hf_store_rlx_u32(&slot->slot_close, settle.close_flags | HF_CLOSE_QUOTA_EXCEEDED); /* relaxed: E10 */
    }
    code = hf_close_run(close, word, &op, now.now_ms);
    if (code == HF_OK && settle.kind == HF_KIND_DISPUTE) {
        hf_close_clear(closing);
        closing->kind = HOLDFAST_CLOSED_DISPUTED;
        return hf_close_refuse(closing, HOLDFAST_REASON_OVERAGE);
    }
    return code;
}

/* Finds, claims, rounds. HF_CLOSE_AGAIN: everything again. HF_CLOSE_SPENT: never. */
static int hf_settle_once(struct hf_close *close, const struct hf_told *told,
                          struct holdfast_closing *closing)
{
    struct holdfast *handle = close->handle;
    int reason = hf_close_find(close);
    if (reason == HOLDFAST_REASON_UNKNOWN_RESERVATION) {
        hf_alarm(handle->seg, HF_ALARM_UNKNOWN_SETTLE, 1);
    }
    if (reason != HOLDFAST_REASON_NONE) {
        return hf_close_refuse(closing, reason);
    }
    if (!hf_settle_may(hf_st_state(close->found.st))) {
        return hf_settle_closed(close, told, closing);
    }
    struct hf_shm_slot *slot = close->found.slot;
    if (!hf_slot_claim(handle, slot)) {
        /* A live process is settling this very reservation: it may be done already. */
        struct hf_u128 st = hf_commit_read_st(slot); /* E13 */
        if (st.lo != close->found.st.lo || st.hi != close->found.st.hi) {
            return HF_CLOSE_AGAIN;
        }
        hf_alarm(handle->seg, HF_ALARM_BUSY, 1);
        return hf_close_refuse(closing, HOLDFAST_REASON_BUSY);
    }
    int rc = HF_CLOSE_AGAIN;
    uint32_t lost = 0;
    hf_turn_give(handle, close->tenant_idx);
    for (uint32_t round = 0; rc == HF_CLOSE_AGAIN && round < HF_CLOSE_ROUNDS; round++) {
        uint32_t gen = hf_st_gen(close->found.st);
        rc = hf_settle_round(close, told, closing);
        if (rc == HF_EBUSY) {
            rc = HF_CLOSE_AGAIN;
        }
        if (rc == HF_CLOSE_AGAIN) {
            struct hf_u128 st = hf_commit_read_st(slot); /* E13 */
            if (hf_st_gen(st) != gen || !hf_settle_may(hf_st_state(st))) {
                break; /* closed by another in between, or not this reservation any more */
            }
            close->found.st = st;
            hf_turn_lost(handle, close->tenant_idx, lost++);
        }
    }
    hf_turn_done(handle, close->tenant_idx, lost);
    hf_slot_unclaim(slot);
    return rc;
}

int holdfast_settle(struct holdfast *handle, const char *id, uint64_t hold,
                    const struct holdfast_usage *usage, int outcome, const char *ref,
                    struct holdfast_closing *closing)
{
    struct hf_close close;
    struct hf_told told;
    if (closing == NULL) {
        return HOLDFAST_INVALID;
    }
    hf_close_clear(closing);
    int rc = hf_close_start(&close, handle, id, hold, &closing->reason);
    if (rc != HOLDFAST_OK) {
        return rc;
    }
    int reason = hf_settle_told(usage, outcome, ref, &told);
    if (reason != HOLDFAST_REASON_NONE) {
        return hf_close_refuse(closing, reason);
    }
    for (uint32_t round = 0; round < HF_CLOSE_ROUNDS; round++) {
        rc = hf_settle_once(&close, &told, closing);
        if (rc >= 0) {
            return rc;
        }
        if (rc == HF_CLOSE_SPENT) {
            break;
        }
        if (rc != HF_CLOSE_AGAIN) {
            return hf_client_fault(handle, rc);
        }
        hf_close_clear(closing);
    }
    hf_close_clear(closing);
    return hf_close_refuse(closing, HOLDFAST_REASON_BUSY);
}
