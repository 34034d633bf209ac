/* extend: semantics.md, section 4. Raises an open hold, all or nothing, and moves its deadline, by the spare set of the
 * slot: W flips which of the two counts. Writing the spare set needs the claim. LIN: the W CAS, or W unchanged. */
#include "core/amount.h"
#include "core/check.h"
#include "core/client.h"
#include "core/lookup.h"
#include "core/meter.h"
#include "core/price.h"
#include "core/slot.h"
#include "core/turn.h"
#include "shm/clock.h"

#include <string.h>

#define HF_EXTEND_ROUNDS 100000U
#define HF_EXTEND_AGAIN  (-100)
#define HF_EXTEND_UNWRITTEN_MAX \
    1000U /* extensions without a receipt yet: more is `busy` (the ordinal has 11 bits) */

struct hf_extend {
    struct holdfast *handle;
    const struct holdfast_extension *extension;
    uint32_t id_bytes;
    struct hf_found found;
    struct hf_path path;
    struct hf_view view;
    struct hf_shm_hold old;
    struct hf_amounts total; /* new totals; HF_SHM_UNKNOWN: not held */
    struct hf_amounts added; /* what rises; HF_SHM_UNKNOWN: this dimension does not */
    uint64_t deadline;
};

static void hf_extend_clear(struct holdfast_answer *answer)
{
    memset(answer, 0, sizeof *answer);
    answer->layer = answer->window = answer->dimension = -1;
    answer->retry_after_ms = HOLDFAST_UNKNOWN;
}

static int hf_extend_refuse(struct holdfast_answer *answer, int reason)
{
    answer->kind = HOLDFAST_REJECT;
    answer->reason = reason;
    return HOLDFAST_REFUSED;
}

static bool hf_extend_range(uint64_t value, uint64_t least)
{
    return value == HOLDFAST_UNKNOWN || (value >= least && value <= HF_AMOUNT_MAX);
}

static int hf_extend_form(const struct holdfast_extension *extension)
{
    bool model_part = extension->max_output_tokens != HOLDFAST_UNKNOWN;
    bool explicit_part = extension->tokens != HOLDFAST_UNKNOWN || extension->cost_micros != HOLDFAST_UNKNOWN;
    if (hf_client_name(extension->id) == 0 || (model_part && explicit_part)) {
        return HOLDFAST_REASON_INVALID_REQUEST;
    }
    bool right = hf_extend_range(extension->max_output_tokens, 1) && hf_extend_range(extension->tokens, 0) &&
                 hf_extend_range(extension->cost_micros, 0) && hf_extend_range(extension->ttl_ms, 1);
    return right ? HOLDFAST_REASON_NONE : HOLDFAST_REASON_INVALID_AMOUNT;
}

/* New totals as asked, before 'a part that is not higher stays'. */
static int hf_extend_asked(struct hf_extend *extend, uint64_t *tokens, uint64_t *cost)
{
    const struct holdfast_extension *asked = extend->extension;
    const struct hf_shm_slot *slot = extend->found.slot;
    uint32_t flags = hf_load_rlx_u32(&slot->slot_flags); /* relaxed: E13 */
    *tokens = asked->tokens;
    *cost = asked->cost_micros;
    if (asked->max_output_tokens == HOLDFAST_UNKNOWN) {
        bool explicit_part = *tokens != HOLDFAST_UNKNOWN || *cost != HOLDFAST_UNKNOWN;
        return explicit_part && (flags & HF_SLOT_FORM_MODEL) != 0 ? HOLDFAST_REASON_INVALID_REQUEST
                                                                  : HOLDFAST_REASON_NONE;
    }
    if ((flags & HF_SLOT_FORM_MODEL) == 0) {
        return HOLDFAST_REASON_INVALID_REQUEST;
    }
    struct hf_price price;
    bool degraded = (flags & HF_SLOT_DEGRADED) != 0;
    uint32_t price_idx =
        hf_load_rlx_u32(degraded ? &slot->slot_economy : &slot->slot_model); /* relaxed: E13 */
    if (!hf_lookup_price(extend->handle->seg, price_idx, &price, NULL)) {
        return HOLDFAST_REASON_UNKNOWN_MODEL;
    }
    if (price.max_output_tokens != HF_UNKNOWN && asked->max_output_tokens > price.max_output_tokens) {
        return HOLDFAST_REASON_MODEL_LIMIT;
    }
    uint64_t input = hf_load_rlx_u64(&slot->slot_in1); /* relaxed: E13 */
    return hf_price_worst(&price, input, asked->max_output_tokens, tokens, cost)
               ? HOLDFAST_REASON_NONE
               : HOLDFAST_REASON_INVALID_AMOUNT;
}

static void hf_extend_part(uint64_t old, uint64_t asked, bool stays, uint64_t *total, uint64_t *added)
{
    uint64_t before = old == HF_SHM_UNKNOWN ? 0 : old; /* unknown at reserve: nothing is held */
    bool rises = asked != HOLDFAST_UNKNOWN && !stays && (old == HF_SHM_UNKNOWN || asked > old);
    *total = rises ? asked : old;
    *added = rises ? asked - before : HF_SHM_UNKNOWN;
}

static int hf_extend_totals(struct hf_extend *extend)
{
    uint64_t tokens;
    uint64_t cost;
    int reason = hf_extend_asked(extend, &tokens, &cost);
    if (reason != HOLDFAST_REASON_NONE) {
        return reason;
    }
    uint32_t flags = hf_load_rlx_u32(&extend->found.slot->slot_flags); /* relaxed: E13 */
    hf_slot_hold(extend->found.slot, extend->found.st, &extend->old);
    extend->total.by[HF_DIM_INVOCATIONS] = 1;
    extend->added.by[HF_DIM_INVOCATIONS] = HF_SHM_UNKNOWN;
    hf_extend_part(extend->old.hold_tokens, tokens, (flags & HF_SLOT_CAP_TOKENS) != 0,
                   &extend->total.by[HF_DIM_TOKENS], &extend->added.by[HF_DIM_TOKENS]);
    hf_extend_part(extend->old.hold_cost, cost, (flags & HF_SLOT_CAP_COST) != 0,
                   &extend->total.by[HF_DIM_COST], &extend->added.by[HF_DIM_COST]);
    extend->deadline = extend->old.hold_deadline;
    if (extend->extension->ttl_ms != HOLDFAST_UNKNOWN) {
        uint64_t deadline = hf_clock_elapsed_ms(extend->handle->seg) + extend->extension->ttl_ms;
        extend->deadline = deadline > extend->deadline ? deadline : extend->deadline;
    }
    return HOLDFAST_REASON_NONE;
}

static bool hf_extend_rises(const struct hf_extend *extend, uint32_t dimension)
{
    return extend->added.by[dimension] != HF_SHM_UNKNOWN;
}

/* window-over: an amount would rise in a bucket that counts it and whose window has ended. */
static bool hf_extend_window_over(const struct hf_extend *extend)
{
    const struct hf_shm_slot *slot = extend->found.slot;
    uint64_t mask = hf_load_rlx_u64(&slot->slot_mask); /* relaxed: E13 */
    for (uint32_t bit = 0; bit < HF_SHM_PATH_BUCKETS; bit++) {
        uint32_t window = bit % HF_SHM_ROW_BUCKETS / HF_SHM_DIMS;
        if ((mask >> bit & 1U) == 0 || !hf_extend_rises(extend, bit % HF_SHM_DIMS) || window >= 4) {
            continue;
        }
        if (hf_load_rlx_u32(&slot->slot_windows[window]) != extend->view.windows[window]) { /* relaxed: E13 */
            return true;
        }
    }
    return false;
}

/* The caps in force, for what rises. */
static int hf_extend_cap(const struct hf_extend *extend)
{
    const uint64_t caps[HF_SHM_DIMS] = {HF_SHM_UNKNOWN, extend->path.cap_tokens, extend->path.cap_micros};
    for (int dim = HF_DIM_TOKENS; dim <= HF_DIM_COST; dim++) {
        if (hf_extend_rises(extend, (uint32_t)dim) && extend->total.by[dim] > caps[dim]) {
            return dim;
        }
    }
    return -1;
}

static bool hf_extend_changes(const struct hf_extend *extend)
{
    return hf_extend_rises(extend, HF_DIM_TOKENS) || hf_extend_rises(extend, HF_DIM_COST) ||
           extend->deadline != extend->old.hold_deadline;
}

static void hf_extend_remaining(struct hf_extend *extend, const struct hf_amounts *added, bool refused,
                                struct holdfast_answer *answer)
{
    if (extend->extension->want_remaining != 0) {
        hf_check_remaining(&extend->path, &extend->view, added, refused, &extend->total, answer);
    }
}

/* Refused by a cap or a bucket, if W is unchanged. */
static int hf_extend_refuse_bucket(struct hf_extend *extend, int cap, int failing,
                                   struct holdfast_answer *answer)
{
    struct hf_segment *seg = extend->handle->seg;
    if (!hf_commit_unchanged(&seg->tenants[extend->path.tenant_idx], extend->view.word)) {
        return HF_EXTEND_AGAIN;
    }
    if (cap >= 0) {
        hf_extend_refuse(answer, HOLDFAST_REASON_REQUEST_CAP);
        answer->layer = HOLDFAST_LAYER_REQUEST;
        answer->dimension = cap;
    } else if (failing >= 0) {
        const struct hf_path_bucket *bucket = &extend->path.buckets[failing];
        const int reasons[HF_SHM_LAYERS] = {HOLDFAST_REASON_KEY_BUDGET, HOLDFAST_REASON_TEAM_SHARE,
                                            HOLDFAST_REASON_TENANT_TOTAL};
        hf_extend_refuse(answer, reasons[bucket->layer]);
        answer->layer = bucket->layer + 1;
        answer->window = bucket->window;
        answer->dimension = bucket->dimension;
        answer->retry_after_ms =
            hf_check_retry_ms(&extend->path, &extend->view, &extend->added, &HF_WIDEN_NONE);
    } else {
        hf_extend_refuse(answer, HOLDFAST_REASON_WINDOW_OVER);
    }
    hf_extend_remaining(extend, NULL, true, answer);
    return HOLDFAST_REFUSED;
}

/* The first bucket that refuses what is added, among the dimensions that rise. */
static int hf_extend_failing(const struct hf_extend *extend)
{
    for (uint32_t i = 0; i < extend->path.buckets_cnt; i++) {
        const struct hf_path_bucket *bucket = &extend->path.buckets[i];
        uint64_t room = bucket->limit + (bucket->has_credit != 0 ? extend->view.credits[bucket->window] : 0);
        if (hf_extend_rises(extend, bucket->dimension) &&
            extend->view.values[i] + extend->added.by[bucket->dimension] > room) {
            return (int)i;
        }
    }
    return -1;
}

static int hf_extend_admitted(struct hf_extend *extend, const struct hf_amounts *added,
                              struct holdfast_answer *answer)
{
    answer->kind = HOLDFAST_ALLOW;
    answer->reserved.invocations = 1;
    answer->reserved.tokens = extend->total.by[HF_DIM_TOKENS];
    answer->reserved.cost_micros = extend->total.by[HF_DIM_COST];
    answer->expires_at_ms = hf_clock_forecast_ms(extend->handle->seg, extend->deadline);
    answer->hold = hf_token_make(extend->found.slot_idx, hf_st_gen(extend->found.st));
    hf_extend_remaining(extend, added, false, answer);
    return HOLDFAST_OK;
}

static void hf_extend_write(struct hf_extend *extend)
{
    struct hf_shm_hold *spare = &extend->found.slot->slot_holds[(hf_st_ordinal(extend->found.st) + 1U) & 1U];
    hf_store_rlx_u64(&spare->hold_tokens, extend->total.by[HF_DIM_TOKENS]); /* relaxed: E10 */
    hf_store_rlx_u64(&spare->hold_cost, extend->total.by[HF_DIM_COST]);     /* relaxed: E10 */
    hf_store_rlx_u64(&spare->hold_deadline, extend->deadline);              /* relaxed: E10 */
    hf_store_rlx_u64(&spare->hold_time_ms, extend->view.now_ms);            /* relaxed: E10 */
}

static bool hf_extend_unwritten(const struct hf_extend *extend)
{
    uint64_t persisted =
        hf_load_acq_u64(&extend->found.slot->slot_persisted); /* E18 acquire -> the daemon's mark */
    uint32_t written =
        hf_persisted_gen(persisted) == hf_st_gen(extend->found.st) ? hf_persisted_ordinal(persisted) : 0;
    return ((hf_st_ordinal(extend->found.st) - written) & 0x7ffU) >= HF_EXTEND_UNWRITTEN_MAX;
}

/* One round under the claim. */
static int hf_extend_round(struct hf_extend *extend, struct holdfast_answer *answer)
{
    struct hf_segment *seg = extend->handle->seg;
    uint32_t gen = hf_st_gen(extend->found.st);
    hf_extend_clear(answer);
    int rc = hf_slot_path(seg, extend->found.slot, &extend->path);
    rc = rc == HF_OK ? hf_view_read(seg, &extend->path, &extend->handle->windows, &extend->view) : rc;
    if (rc != HF_OK) {
        return rc;
    }
    extend->found.st = hf_commit_read_st(extend->found.slot); /* E13 */
    if (hf_st_gen(extend->found.st) != gen || !hf_slot_open(extend->found.st)) {
        return hf_extend_refuse(answer, HOLDFAST_REASON_ALREADY_CLOSED);
    }
    int reason = hf_extend_totals(extend);
    if (reason == HOLDFAST_REASON_NONE && hf_extend_unwritten(extend)) {
        reason = HOLDFAST_REASON_BUSY;
    }
    if (reason != HOLDFAST_REASON_NONE) {
        return hf_extend_refuse(answer, reason);
    }
    if (!hf_extend_changes(extend)) {
        return hf_extend_admitted(extend, NULL, answer);
    }
    bool over = hf_extend_window_over(extend);
    int cap = over ? -1 : hf_extend_cap(extend);
    int failing = over || cap >= 0 ? -1 : hf_extend_failing(extend);
    if (over || cap >= 0 || failing >= 0) {
        return hf_extend_refuse_bucket(extend, cap, failing, answer);
    }
    if (!hf_check_range(&extend->path, &extend->view, &extend->added) ||
        !hf_meter_slot_room(seg, extend->found.slot, extend->added.by[HF_DIM_COST], 0)) {
        return hf_extend_refuse(answer, HOLDFAST_REASON_INVALID_AMOUNT);
    }
    hf_extend_write(extend);
    struct hf_op op;
    if (!hf_commit_describe(seg, extend->found.slot_idx, HF_KIND_EXTEND, hf_word_seq(extend->view.word) + 1U,
                            extend->view.now_ms, &op, NULL) ||
        op.st_before.lo != extend->found.st.lo || op.st_before.hi != extend->found.st.hi) {
        return HF_EXTEND_AGAIN;
    }
    if (!hf_commit_run(seg, extend->path.tenant_idx, extend->view.word, &op, extend->view.now_ms)) {
        return hf_commit_exhausted(extend->view.word) ? hf_extend_refuse(answer, HOLDFAST_REASON_BUSY)
                                                      : HF_EXTEND_AGAIN;
    }
    return hf_extend_admitted(extend, &extend->added, answer);
}

static int hf_extend_rounds(struct hf_extend *extend, struct holdfast_answer *answer)
{
    for (uint32_t round = 0; round < HF_EXTEND_ROUNDS; round++) {
        int rc = hf_extend_round(extend, answer);
        if (rc >= 0) {
            hf_turn_done(extend->handle, extend->path.tenant_idx, round);
            return rc;
        }
        if (rc != HF_EXTEND_AGAIN && rc != HF_EBUSY) {
            return hf_client_fault(extend->handle, rc);
        }
        hf_turn_lost(extend->handle, extend->path.tenant_idx, round);
    }
    return hf_extend_refuse(answer, HOLDFAST_REASON_BUSY);
}

int holdfast_extend(struct holdfast *handle, const struct holdfast_extension *extension,
                    struct holdfast_answer *answer)
{
    if (extension == NULL || answer == NULL) {
        return HOLDFAST_INVALID;
    }
    hf_extend_clear(answer);
    int rc = hf_client_enter(handle);
    if (rc != HOLDFAST_OK) {
        return rc;
    }
    int reason = hf_extend_form(extension);
    if (reason != HOLDFAST_REASON_NONE) {
        return hf_extend_refuse(answer, reason);
    }
    struct hf_extend extend = {
        .handle = handle, .extension = extension, .id_bytes = hf_client_name(extension->id)};
    enum hf_index_result found =
        hf_slot_find(handle, extension->id, extend.id_bytes, extension->hold, &extend.found);
    if (found != HF_INDEX_FOUND || hf_st_state(extend.found.st) == HF_STATE_PENDING) {
        return hf_extend_refuse(answer, found == HF_INDEX_BUSY ? HOLDFAST_REASON_BUSY
                                                               : HOLDFAST_REASON_UNKNOWN_RESERVATION);
    }
    if (!hf_slot_open(extend.found.st)) {
        return hf_extend_refuse(answer, HOLDFAST_REASON_ALREADY_CLOSED);
    }
    if (!hf_slot_claim(handle, extend.found.slot)) {
        hf_alarm(handle->seg, HF_ALARM_BUSY, 1);
        return hf_extend_refuse(answer, HOLDFAST_REASON_BUSY);
    }
    rc = hf_extend_rounds(&extend, answer);
    hf_slot_unclaim(extend.found.slot);
    return rc;
}
