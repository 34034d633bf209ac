/* reserve: semantics.md, section 3; the protocol of shm/commit.h.
 *
 * A round reads the path under one W, checks, and either refuses (W unchanged: true at one instant) or fills a slot,
 * links its id, and moves W. Progress: lock-free; a round is repeated only because another operation of the tenant
 * happened. LIN: the W CAS of hf_commit_run (admitted), hf_commit_unchanged (refused). */
#include "core/check.h"
#include "core/client.h"
#include "core/meter.h"
#include "core/reap.h"
#include "core/replay.h"
#include "core/slot.h"
#include "core/turn.h"
#include "core/want.h"
#include "shm/clock.h"
#include "shm/index.h"

#include <string.h>

#define HF_ADMIT_ROUNDS 100000U

/* One reserve on its way. */
struct hf_admit {
    struct holdfast *handle;
    const struct holdfast_request *request;
    const struct hf_path *path;
    struct hf_want want;
    uint32_t slot_idx; /* HF_SHM_NONE until one is taken */
    bool linked;       /* the slot is in the index */
    bool reaped;       /* the dead holds were looked at already */
    struct hf_view view;
};

/* Nothing held. Whoever answers fills the whole answer: it is not cleared first. */
static void hf_admit_clear(struct holdfast_answer *answer)
{
    answer->kind = HOLDFAST_REJECT;
    answer->reason = HOLDFAST_REASON_NONE;
    answer->replayed = answer->has_remaining = answer->reserved0 = 0;
    answer->reserved.invocations = answer->reserved.tokens = answer->reserved.cost_micros = 0;
    answer->expires_at_ms = answer->hold = 0;
    answer->layer = answer->window = answer->dimension = -1;
    answer->retry_after_ms = HOLDFAST_UNKNOWN;
}

static int hf_admit_refuse(struct holdfast_answer *answer, int reason)
{
    hf_admit_clear(answer);
    answer->reason = reason;
    return HOLDFAST_REFUSED;
}

/* remaining of now, after a replay or a refusal that is not about buckets. */
static void hf_admit_remaining(struct hf_admit *admit, const struct hf_path *path, bool refused,
                               const struct hf_amounts *held, struct holdfast_answer *answer)
{
    if (admit->request->want_remaining != 0 &&
        hf_segment_tenant(admit->handle->seg, path->tenant_idx) != NULL &&
        hf_view_read(admit->handle->seg, path, &admit->handle->windows, &admit->view) == HF_OK) {
        hf_check_remaining(path, &admit->view, NULL, refused, held, answer);
    }
}

/* A slot that was taken is given back, or marked as never happened. */
static void hf_admit_drop_slot(struct hf_admit *admit)
{
    struct hf_segment *seg = admit->handle->seg;
    if (admit->slot_idx == HF_SHM_NONE) {
        return;
    }
    if (admit->linked) {
        hf_slot_abandon(seg, admit->slot_idx);
    } else {
        hf_slot_undo(&seg->slots[admit->slot_idx]);
        hf_chunk_untake(seg, &admit->handle->chunks, admit->slot_idx);
    }
    admit->slot_idx = HF_SHM_NONE;
    admit->linked = false;
}

static int hf_admit_busy(struct hf_admit *admit, struct holdfast_answer *answer)
{
    hf_admit_drop_slot(admit);
    hf_alarm(admit->handle->seg, HF_ALARM_BUSY, 1);
    hf_admit_refuse(answer, HOLDFAST_REASON_BUSY);
    hf_admit_remaining(admit, admit->path, true, NULL, answer);
    return HOLDFAST_REFUSED;
}

/* The answer by a known id; HF_ADMIT_GO_ON when the id is not known. */
#define HF_ADMIT_GO_ON (-100)
static int hf_admit_replay(struct hf_admit *admit, enum hf_replay replay, struct holdfast_answer *answer)
{
    if (replay == HF_REPLAY_ABSENT) {
        return HF_ADMIT_GO_ON;
    }
    if (replay == HF_REPLAY_BUSY) {
        return hf_admit_busy(admit, answer);
    }
    hf_admit_drop_slot(admit);
    if (replay == HF_REPLAY_CONFLICT) {
        hf_admit_refuse(answer, HOLDFAST_REASON_ID_CONFLICT);
        hf_admit_remaining(admit, admit->path, true, NULL, answer);
        return HOLDFAST_REFUSED;
    }
    struct hf_amounts held = {{1, answer->reserved.tokens, answer->reserved.cost_micros}};
    hf_admit_remaining(admit, admit->path, false, &held, answer);
    return HOLDFAST_OK;
}

/* The same by a look at the index, as of the view; before there is one, as of now. */
static int hf_admit_look(struct hf_admit *admit, struct holdfast_answer *answer)
{
    struct holdfast *handle = admit->handle;
    uint64_t now_ms = admit->view.now_ms != 0 ? admit->view.now_ms : hf_clock_now_ms(handle->seg);
    return hf_admit_replay(admit, hf_replay_look(handle, admit->request, &admit->want, now_ms, answer),
                           answer);
}

/* A refusal before any bucket is looked at; a known id comes first. held NULL: `request` is null in remaining. */
static int hf_admit_refuse_early(struct hf_admit *admit, int reason, int dimension,
                                 const struct hf_amounts *held, struct holdfast_answer *answer)
{
    int rc = hf_admit_look(admit, answer);
    if (rc != HF_ADMIT_GO_ON) {
        return rc;
    }
    hf_admit_refuse(answer, reason);
    if (dimension >= 0) {
        answer->layer = HOLDFAST_LAYER_REQUEST;
        answer->dimension = dimension;
    }
    hf_admit_remaining(admit, admit->path, true, held, answer);
    return HOLDFAST_REFUSED;
}

/* ---- a refusal by a bucket ---------------------------------------------------------------------------------- */

static int hf_admit_layer_reason(uint32_t layer)
{
    const int reasons[HF_SHM_LAYERS] = {HOLDFAST_REASON_KEY_BUDGET, HOLDFAST_REASON_TEAM_SHARE,
                                        HOLDFAST_REASON_TENANT_TOTAL};
    return reasons[layer];
}

/* What a round has decided. */
struct hf_decision {
    bool admitted;
    bool degraded;
    struct hf_amounts held; /* of the attempt that decided */
    int failing;            /* bucket that refused */
    int reason;
    struct hf_widen widen;
};

/* The second attempt at the economy amounts, after bucket first refused. */
static void hf_admit_degrade(const struct hf_admit *admit, int first, struct hf_decision *decision)
{
    const struct hf_path *path = admit->path;
    const struct hf_path_bucket *bucket = &path->buckets[first];
    uint64_t own = admit->want.own.by[HF_DIM_COST];
    uint64_t economy = admit->want.own_economy.by[HF_DIM_COST];
    if (own == HF_SHM_UNKNOWN || economy == HF_SHM_UNKNOWN || economy >= own) {
        decision->reason = HOLDFAST_REASON_DEGRADE_NOT_CHEAPER;
        return;
    }
    struct hf_amounts held = hf_want_held(path, &admit->want.own_economy);
    int dimension = -1;
    int reason = hf_want_request_layer(path, &held, &dimension);
    decision->widen = (struct hf_widen){bucket->layer, bucket->window, path->overdraft[bucket->layer]};
    decision->held = held;
    if (reason != HOLDFAST_REASON_NONE) {
        decision->reason = reason;
        decision->failing = -1 - dimension;
        return;
    }
    decision->failing = hf_check(path, &admit->view, &held, &decision->widen);
    decision->admitted = decision->degraded = decision->failing < 0;
    if (!decision->admitted) {
        decision->reason = hf_admit_layer_reason(path->buckets[decision->failing].layer);
    }
}

static void hf_admit_decide(const struct hf_admit *admit, struct hf_decision *decision)
{
    const struct hf_path *path = admit->path;
    decision->held = hf_want_held(path, &admit->want.own);
    decision->degraded = false;
    decision->reason = HOLDFAST_REASON_NONE;
    decision->widen = HF_WIDEN_NONE;
    decision->failing = hf_check(path, &admit->view, &decision->held, &decision->widen);
    decision->admitted = decision->failing < 0;
    if (decision->admitted) {
        return;
    }
    const struct hf_path_bucket *bucket = &path->buckets[decision->failing];
    decision->reason = hf_admit_layer_reason(bucket->layer);
    if (path->on_limit[bucket->layer] == HF_ON_LIMIT_DEGRADE) {
        hf_admit_degrade(admit, decision->failing, decision);
    } else if (path->on_limit[bucket->layer] == HF_ON_LIMIT_QUEUE &&
               hf_check_retry_ms(path, &admit->view, &decision->held, &decision->widen) != HF_SHM_UNKNOWN) {
        decision->reason = HOLDFAST_REASON_NOT_BUILT;
    }
}

static void hf_admit_refusal(struct hf_admit *admit, const struct hf_decision *decision,
                             struct holdfast_answer *answer)
{
    hf_admit_refuse(answer, decision->reason);
    if (admit->request->want_remaining != 0) { /* `request` shows the first attempt */
        struct hf_amounts first = hf_want_held(admit->path, &admit->want.own);
        hf_check_remaining(admit->path, &admit->view, NULL, true, &first, answer);
    }
    if (decision->failing < 0) { /* the request layer refused the economy amounts */
        answer->layer = HOLDFAST_LAYER_REQUEST;
        answer->dimension = -1 - decision->failing;
        return;
    }
    const struct hf_path_bucket *bucket = &admit->path->buckets[decision->failing];
    answer->layer = bucket->layer + 1;
    answer->window = bucket->window;
    answer->dimension = bucket->dimension;
    if (decision->reason != HOLDFAST_REASON_NOT_BUILT) {
        answer->retry_after_ms =
            hf_check_retry_ms(admit->path, &admit->view, &decision->held, &decision->widen);
    }
}

/* Refused in this round: a twin's admission first, then only if W is unchanged. */
static int hf_admit_refuse_round(struct hf_admit *admit, const struct hf_decision *decision,
                                 struct holdfast_answer *answer)
{
    struct holdfast *handle = admit->handle;
    if (!admit->linked) {
        int rc = hf_admit_look(admit, answer);
        if (rc != HF_ADMIT_GO_ON) {
            return rc;
        }
    }
    /* LIN of a refusal (E11): nothing has happened on this tenant since the buckets were read. */
    if (!hf_commit_unchanged(&handle->seg->tenants[admit->path->tenant_idx], admit->view.word)) {
        return HF_ADMIT_GO_ON;
    }
    if (!admit->reaped && hf_reap_when_silent(handle, admit->path->tenant_idx, admit->view.mono_ms) > 0) {
        admit->reaped = true;
        return HF_ADMIT_GO_ON;
    }
    admit->reaped = true;
    hf_admit_drop_slot(admit);
    hf_admit_refusal(admit, decision, answer);
    return HOLDFAST_REFUSED;
}

/* ---- an admission ------------------------------------------------------------------------------------------- */

/* Takes and fills the slot in its first round. HF_ADMIT_GO_ON when it is PENDING. */
static int hf_admit_take_slot(struct hf_admit *admit, struct holdfast_answer *answer)
{
    struct holdfast *handle = admit->handle;
    struct hf_segment *seg = handle->seg;
    admit->slot_idx = hf_chunk_take(seg, &handle->chunks, handle->owner.ref);
    if (admit->slot_idx == HF_SHM_NONE) {
        int rc = hf_admit_look(admit, answer);
        return rc != HF_ADMIT_GO_ON ? rc : hf_admit_busy(admit, answer);
    }
    struct hf_shm_slot *slot = &seg->slots[admit->slot_idx];
    hf_slot_begin(slot, handle->owner.ref, admit->view.now_ms);
    hf_want_given(admit->request, &admit->want);
    hf_slot_fill_request(slot, &admit->want, admit->path);
    hf_index_prefetch_chain(seg, admit->want.id_hash);
    return HF_ADMIT_GO_ON;
}

/* Links the id. HF_ADMIT_GO_ON when it is in the index. */
static int hf_admit_link(struct hf_admit *admit, struct holdfast_answer *answer)
{
    struct holdfast *handle = admit->handle;
    struct hf_segment *seg = handle->seg;
    for (uint32_t round = 0; round < 8; round++) {
        struct hf_found found;
        enum hf_index_result rc =
            hf_index_insert(seg, admit->want.id_hash, admit->want.id, admit->want.id_bytes,
                            admit->view.now_ms, admit->slot_idx, &found.slot_idx, &found.st);
        if (rc == HF_INDEX_INSERTED) {
            admit->linked = true;
            return HF_ADMIT_GO_ON;
        }
        if (rc != HF_INDEX_FOUND) {
            break;
        }
        found.slot = &seg->slots[found.slot_idx];
        if (hf_st_state(found.st) == HF_STATE_PENDING && !hf_slot_look_again(seg, &found)) {
            continue;
        }
        int done = hf_admit_replay(
            admit, hf_replay_found(handle, admit->request, &admit->want, &found, answer), answer);
        if (done != HF_ADMIT_GO_ON) {
            return done;
        }
    }
    return hf_admit_busy(admit, answer);
}

static void hf_admit_answer(struct hf_admit *admit, const struct hf_decision *decision, uint64_t ttl_ms,
                            struct holdfast_answer *answer)
{
    const struct hf_shm_slot *slot = &admit->handle->seg->slots[admit->slot_idx];
    answer->kind = decision->degraded ? HOLDFAST_DEGRADE : HOLDFAST_ALLOW;
    answer->reason = HOLDFAST_REASON_NONE;
    answer->layer = answer->window = answer->dimension = -1;
    answer->replayed = 0;
    answer->retry_after_ms = HOLDFAST_UNKNOWN;
    answer->reserved.invocations = 1;
    answer->reserved.tokens = decision->held.by[HF_DIM_TOKENS];
    answer->reserved.cost_micros = decision->held.by[HF_DIM_COST];
    answer->expires_at_ms = admit->view.now_ms + ttl_ms;
    /* relaxed: the generation was this owner's to set. */
    answer->hold =
        hf_token_make(admit->slot_idx, hf_st_gen((struct hf_u128){0, hf_load_rlx_u64(&slot->slot_st.hi)}));
    answer->has_remaining = answer->reserved0 = 0;
    if (admit->request->want_remaining != 0) {
        hf_check_remaining(admit->path, &admit->view, &decision->held, false, &decision->held, answer);
    }
}

/* The operation of this round, from what was just read and filled: nothing is read back. */
static void hf_admit_op(const struct hf_admit *admit, const struct hf_decision *decision, struct hf_op *op)
{
    const struct hf_shm_slot *slot = &admit->handle->seg->slots[admit->slot_idx];
    const struct hf_path *path = admit->path;
    const struct hf_view *view = &admit->view;
    /* relaxed: the generation was this owner's to set. */
    struct hf_u128 st = {hf_st_make(0, 0, HF_STATE_PENDING, 0, 0).lo, hf_load_rlx_u64(&slot->slot_st.hi)};
    uint64_t seq = hf_word_seq(view->word) + 1U;
    op->kind = HF_KIND_RESERVE;
    op->slot_idx = admit->slot_idx;
    op->seq = seq;
    op->st_before = st;
    op->st_after = hf_st_make(seq, 0, HF_STATE_HELD, view->now_ms, hf_st_gen(st));
    op->foretold = true;
    op->buckets_cnt = path->buckets_cnt;
    const struct hf_path_bucket *bucket = path->buckets;
    const struct hf_u128 *before = view->words;
    for (struct hf_op_bucket *to = op->buckets; to < &op->buckets[path->buckets_cnt];
         to++, bucket++, before++) {
        uint64_t amount = decision->held.by[bucket->dimension];
        struct hf_u128 after = *before;
        (void)hf_commit_after(*before, seq, view->windows[bucket->window],
                              amount == HF_SHM_UNKNOWN ? 0 : (int64_t)amount, true, &after);
        to->word = hf_path_word(admit->handle->seg, bucket);
        to->before = *before;
        to->after = after;
    }
}

/* Within the range of amounts, in every bucket and in the meter. */
static bool hf_admit_in_range(const struct hf_admit *admit, const struct hf_decision *decision)
{
    const struct hf_segment *seg = admit->handle->seg;
    uint64_t cost = decision->held.by[HF_DIM_COST];
    if (hf_meter_room_for_all(seg, cost, 0) && decision->widen.layer == HF_SHM_NONE) {
        return true; /* limit + credit is within the range, and so is what fits it */
    }
    struct hf_meter_key key = {.tenant_idx = admit->path->tenant_idx,
                               .cap_name = admit->path->cap_name,
                               .price_idx = decision->degraded ? admit->want.economy : admit->want.model};
    return hf_check_range(admit->path, &admit->view, &decision->held) && hf_meter_room(seg, &key, cost, 0);
}

/* One round; HF_ADMIT_GO_ON: again. */
static int hf_admit_round(struct hf_admit *admit, struct holdfast_answer *answer)
{
    struct holdfast *handle = admit->handle;
    struct hf_segment *seg = handle->seg;
    struct hf_decision decision;
    hf_admit_decide(admit, &decision);
    if (!decision.admitted) {
        return hf_admit_refuse_round(admit, &decision, answer);
    }
    if (!hf_admit_in_range(admit, &decision)) {
        hf_admit_drop_slot(admit);
        return hf_admit_refuse_early(admit, HOLDFAST_REASON_INVALID_AMOUNT, -1, NULL, answer);
    }
    int rc = admit->slot_idx == HF_SHM_NONE ? hf_admit_take_slot(admit, answer) : HF_ADMIT_GO_ON;
    if (rc != HF_ADMIT_GO_ON) {
        return rc;
    }
    struct hf_shm_slot *slot = &seg->slots[admit->slot_idx];
    uint64_t ttl_ms =
        admit->request->ttl_ms != HOLDFAST_UNKNOWN ? admit->request->ttl_ms : admit->path->ttl_ms;
    struct hf_slot_round round = {.path = admit->path,
                                  .view = &admit->view,
                                  .held = &decision.held,
                                  .ttl_ms = ttl_ms,
                                  .deadline = admit->view.elapsed_ms + ttl_ms,
                                  .flags = admit->want.flags | (decision.degraded ? HF_SLOT_DEGRADED : 0)};
    hf_slot_fill_round(slot, &round);
    if (!admit->linked) {
        hf_slot_pending(slot);
        rc = hf_admit_link(admit, answer);
        if (rc != HF_ADMIT_GO_ON) {
            return rc;
        }
    }
    struct hf_op op;
    hf_admit_op(admit, &decision, &op);
    if (!hf_commit_run(seg, admit->path->tenant_idx, admit->view.word, &op, admit->view.now_ms)) {
        return hf_commit_exhausted(admit->view.word) ? hf_admit_busy(admit, answer) : HF_ADMIT_GO_ON;
    }
    hf_admit_answer(admit, &decision, ttl_ms, answer);
    return HOLDFAST_OK;
}

/* The store further behind than max_lag_ms: fail closed. The segment gone: not ready. By the clock of the first view. */
static int hf_admit_gate(struct hf_admit *admit, struct holdfast_answer *answer)
{
    const struct hf_segment *seg = admit->handle->seg;
    uint64_t mono_ms = admit->view.mono_ms;
    int rc = hf_client_silent(admit->handle, mono_ms);
    if (rc != HF_OK) {
        return hf_client_fault(admit->handle, rc);
    }
    uint64_t durable_ms = hf_load_rlx_u64(&seg->header->hdr_durable_ms); /* relaxed: a gauge */
    if (seg->injected || mono_ms <= durable_ms || mono_ms - durable_ms <= seg->max_lag_ms) {
        return HF_ADMIT_GO_ON;
    }
    rc = hf_admit_look(admit, answer);
    return rc != HF_ADMIT_GO_ON ? rc : hf_admit_busy(admit, answer);
}

static int hf_admit_rounds(struct hf_admit *admit, struct holdfast_answer *answer)
{
    struct holdfast *handle = admit->handle;
    hf_turn_give(handle, admit->path->tenant_idx);
    bool gated = false; /* by the first view, which need not be that of the first round */
    for (uint32_t round = 0; round < HF_ADMIT_ROUNDS; round++) {
        int rc = hf_view_read(handle->seg, admit->path, &admit->handle->windows, &admit->view);
        if (rc == HF_EBUSY) {
            continue;
        }
        if (rc != HF_OK) {
            hf_admit_drop_slot(admit);
            return hf_client_fault(handle, rc);
        }
        rc = gated ? HF_ADMIT_GO_ON : hf_admit_gate(admit, answer);
        gated = true;
        if (rc == HF_ADMIT_GO_ON) {
            rc = hf_admit_round(admit, answer);
        }
        if (rc != HF_ADMIT_GO_ON) {
            hf_turn_done(handle, admit->path->tenant_idx, round);
            return rc;
        }
        hf_turn_lost(handle, admit->path->tenant_idx, round);
    }
    return hf_admit_busy(admit, answer);
}

/* ---- the call ----------------------------------------------------------------------------------------------- */

/* The path: the caller's, the cached one, or resolved into room. HOLDFAST_REASON_NONE, or why a name is unknown. */
static int hf_admit_path(struct hf_admit *admit, struct hf_path *room, int *fault)
{
    struct holdfast *handle = admit->handle;
    const struct hf_path *given = (const struct hf_path *)(const void *)admit->request->path;
    *fault = HF_OK;
    if (given != NULL) {
        if (hf_segment_tenant(handle->seg, given->tenant_idx) == NULL) {
            *fault = HF_EARG;
            return HOLDFAST_REASON_NONE;
        }
        admit->path = given;
        if (hf_path_generation(handle->seg, given->tenant_idx) != given->policy_gen) {
            hf_path_copy(room, given);
            *fault = hf_path_fill(handle->seg, room, false);
            admit->path = room;
        }
        return HOLDFAST_REASON_NONE;
    }
    uint32_t newest = hf_load_rlx_u32(&handle->seg->header->hdr_policy_gen); /* relaxed: checked below */
    const struct hf_path *cached = hf_name_cache_find(handle->shared->names, &admit->want.names, newest);
    if (cached != NULL && hf_path_generation(handle->seg, cached->tenant_idx) == newest) {
        admit->path = cached;
        return HOLDFAST_REASON_NONE;
    }
    int reason = HOLDFAST_REASON_NONE;
    int rc = hf_path_resolve(handle->seg, &admit->want.names, room, &reason);
    admit->path = room;
    if (rc == HF_OK) {
        hf_name_cache_add(handle->shared->names, &admit->want.names, room);
        return HOLDFAST_REASON_NONE;
    }
    *fault = rc == HF_ENOTREADY ? HF_OK : rc;
    return reason;
}

static int hf_admit_call(struct holdfast *handle, const struct holdfast_request *request,
                         struct holdfast_answer *answer)
{
    int rc = hf_client_enter(handle);
    if (rc != HOLDFAST_OK) {
        return rc;
    }
    if (request->path != NULL) {
        hf_path_prefetch_behind(handle->seg, handle->policy,
                                (const struct hf_path *)(const void *)request->path);
    }
    struct hf_admit admit; /* large: not zeroed */
    admit.handle = handle;
    admit.request = request;
    admit.path = NULL;
    admit.view.now_ms = 0; /* none yet */
    admit.slot_idx = HF_SHM_NONE;
    admit.linked = admit.reaped = false;
    int reason = hf_want_read(request, &admit.want);
    if (reason != HOLDFAST_REASON_NONE) {
        return hf_admit_refuse(answer, reason);
    }
    admit.want.id_hash = hf_index_hash(handle->seg, admit.want.id, admit.want.id_bytes);
    hf_index_prefetch_head(handle->seg, admit.want.id_hash);
    struct hf_path room;
    int fault;
    reason = hf_admit_path(&admit, &room, &fault);
    if (fault != HF_OK) {
        return hf_client_fault(handle, fault);
    }
    if (reason != HOLDFAST_REASON_NONE) {
        return hf_admit_refuse_early(&admit, reason, -1, NULL, answer);
    }
    reason = hf_want_price(handle->seg, admit.path->policy_gen, request, &admit.want);
    if (reason != HOLDFAST_REASON_NONE) {
        return hf_admit_refuse_early(&admit, reason, -1, NULL, answer);
    }
    struct hf_amounts held = hf_want_held(admit.path, &admit.want.own);
    int dimension = -1;
    reason = hf_want_request_layer(admit.path, &held, &dimension);
    if (reason != HOLDFAST_REASON_NONE) {
        return hf_admit_refuse_early(&admit, reason, dimension, &held, answer);
    }
    return hf_admit_rounds(&admit, answer);
}

int holdfast_reserve(struct holdfast *handle, const struct holdfast_request *request,
                     struct holdfast_answer *answer)
{
    if (request == NULL || answer == NULL) {
        return HOLDFAST_INVALID;
    }
    hf_path_prefetch((const struct hf_path *)(const void *)request->path);
    int rc = hf_admit_call(handle, request, answer);
    if (__builtin_expect(rc != HOLDFAST_OK && rc != HOLDFAST_REFUSED, 0)) {
        hf_admit_clear(answer);
    }
    return rc;
}
