/* dispatch and release, and what closings share: semantics.md, section 4.
 *
 * A closing finds its slot, makes the tenant ready, and moves W from the state it has seen; whatever raced with it has
 * moved W first, so exactly one closing wins. Neither of these two writes into the slot before W, so neither needs its
 * claim. LIN: the W CAS of hf_commit_run; 'already' answers by a final state, which never changes back. */
#include "core/close.h"

#include "core/name.h"
#include "core/turn.h"

#include <string.h>

/* ---- shared ------------------------------------------------------------------------------------------------- */

int hf_close_start(struct hf_close *close, struct holdfast *handle, const char *id, uint64_t token,
                   int *reason)
{
    int rc = hf_client_enter(handle);
    if (rc != HOLDFAST_OK) {
        return rc;
    }
    close->handle = handle;
    close->id = id;
    close->id_bytes = id == NULL ? 0 : (uint32_t)strnlen(id, HF_NAME_BYTES_MAX + 1);
    close->token = token;
    if (close->id_bytes == 0 || close->id_bytes > HF_NAME_BYTES_MAX) {
        *reason = HOLDFAST_REASON_INVALID_REQUEST;
        return HOLDFAST_REFUSED;
    }
    return HOLDFAST_OK;
}

int hf_close_find(struct hf_close *close)
{
    enum hf_index_result rc =
        hf_slot_find(close->handle, close->id, close->id_bytes, close->token, &close->found);
    if (rc == HF_INDEX_BUSY) {
        return HOLDFAST_REASON_BUSY;
    }
    if (rc != HF_INDEX_FOUND || hf_st_state(close->found.st) == HF_STATE_PENDING) {
        if (hf_client_silent(close->handle, hf_clock_mono_ms()) != HF_OK) {
            return HOLDFAST_REASON_NOT_READY; /* the segment is gone, and what it knew with it */
        }
        /* Only names were ever reserved, so the form of an id that is found needs no check. */
        return hf_name_valid(close->id, close->id_bytes) ? HOLDFAST_REASON_UNKNOWN_RESERVATION
                                                         : HOLDFAST_REASON_INVALID_REQUEST;
    }
    close->tenant_idx = hf_load_rlx_u32(&close->found.slot->slot_tenant); /* relaxed: E13 */
    return HOLDFAST_REASON_NONE;
}

int hf_close_ready(struct hf_close *close, struct hf_u128 *word, struct hf_clock_now *now)
{
    struct hf_segment *seg = close->handle->seg;
    int rc = hf_commit_ready(seg, close->tenant_idx, word);
    if (rc != HF_OK) {
        return rc;
    }
    hf_clock_read(seg, now);
    rc = hf_client_silent(close->handle, now->mono_ms);
    if (rc != HF_OK) {
        return rc;
    }
    struct hf_u128 st = hf_commit_read_st(close->found.slot); /* E13 */
    if (hf_st_gen(st) != hf_st_gen(close->found.st)) {
        return HF_CLOSE_AGAIN;
    }
    close->found.st = st;
    return HF_OK;
}

int hf_close_describe(const struct hf_close *close, enum hf_kind kind, struct hf_u128 word, uint64_t now_ms,
                      struct hf_op *op)
{
    return hf_commit_describe_from(close->handle->seg, close->found.slot_idx, close->found.st, kind,
                                   hf_word_seq(word) + 1U, now_ms, op)
               ? HF_OK
               : HF_CLOSE_AGAIN;
}

int hf_close_run(const struct hf_close *close, struct hf_u128 word, const struct hf_op *op, uint64_t now_ms)
{
    if (hf_commit_run(close->handle->seg, close->tenant_idx, word, op, now_ms)) {
        return HF_OK;
    }
    return hf_commit_exhausted(word) ? HF_CLOSE_SPENT : HF_CLOSE_AGAIN;
}

void hf_close_clear(struct holdfast_closing *closing)
{
    const struct holdfast_amounts unknown = {.tokens = HOLDFAST_UNKNOWN, .cost_micros = HOLDFAST_UNKNOWN};
    /* Field by field: compilers clear the whole by a string instruction, which takes as long as 60 ordinary ones. */
    closing->kind = 0;
    closing->reason = HOLDFAST_REASON_NONE;
    closing->actual = closing->released = closing->overage = unknown;
    closing->source = closing->quota_exceeded = closing->late = closing->replayed = 0;
}

/* One try of a closing that writes nothing before W; the first of a call gives way. HF_OK, HF_CLOSE_AGAIN, HF_CLOSE_SPENT, or a
 * negative enum hf_code. */
static int hf_close_once(struct hf_close *close, enum hf_kind kind, uint32_t round)
{
    struct hf_u128 word;
    struct hf_clock_now now;
    struct hf_op op;
    if (round == 0) {
        hf_turn_give(close->handle, close->tenant_idx);
    }
    int code = hf_close_ready(close, &word, &now);
    if (code == HF_OK) {
        code = hf_close_describe(close, kind, word, now.now_ms, &op);
    }
    return code == HF_OK ? hf_close_run(close, word, &op, now.now_ms) : code;
}

/* ---- dispatch and release ----------------------------------------------------------------------------------- */

static int hf_close_dispatch_reason(enum hf_state state)
{
    if (state == HF_STATE_HELD || state == HF_STATE_DISPATCHED) {
        return HOLDFAST_REASON_NONE;
    }
    return HOLDFAST_REASON_ALREADY_CLOSED;
}

int holdfast_dispatch(struct holdfast *handle, const char *id, uint64_t hold, int *reason)
{
    struct hf_close close;
    int ignored;
    reason = reason == NULL ? &ignored : reason;
    *reason = HOLDFAST_REASON_NONE;
    int rc = hf_close_start(&close, handle, id, hold, reason);
    for (uint32_t round = 0; rc == HOLDFAST_OK && round < HF_CLOSE_ROUNDS; round++) {
        *reason = hf_close_find(&close);
        if (*reason == HOLDFAST_REASON_NONE) {
            *reason = hf_close_dispatch_reason(hf_st_state(close.found.st));
        }
        if (*reason != HOLDFAST_REASON_NONE) {
            return HOLDFAST_REFUSED;
        }
        if (hf_st_state(close.found.st) == HF_STATE_DISPATCHED) {
            return HOLDFAST_OK;
        }
        int code = hf_close_once(&close, HF_KIND_DISPATCH, round);
        if (code == HF_OK) {
            hf_turn_done(handle, close.tenant_idx, round);
            return HOLDFAST_OK;
        }
        if (code == HF_CLOSE_SPENT) {
            break;
        }
        if (code != HF_CLOSE_AGAIN && code != HF_EBUSY) {
            return hf_client_fault(handle, code);
        }
        hf_turn_lost(handle, close.tenant_idx, round);
    }
    if (rc == HOLDFAST_OK) {
        *reason = HOLDFAST_REASON_BUSY;
        rc = HOLDFAST_REFUSED;
    }
    return rc;
}

int holdfast_release(struct holdfast *handle, const char *id, uint64_t hold, struct holdfast_closing *closing)
{
    struct hf_close close;
    if (closing == NULL) {
        return HOLDFAST_INVALID;
    }
    hf_close_clear(closing);
    int rc = hf_close_start(&close, handle, id, hold, &closing->reason);
    for (uint32_t round = 0; rc == HOLDFAST_OK && round < HF_CLOSE_ROUNDS; round++) {
        int reason = hf_close_find(&close);
        if (reason != HOLDFAST_REASON_NONE) {
            return hf_close_refuse(closing, reason);
        }
        enum hf_state state = hf_st_state(close.found.st);
        if (state == HF_STATE_RELEASED) {
            closing->kind = HOLDFAST_CLOSED_RELEASED;
            closing->replayed = 1;
            return HOLDFAST_OK;
        }
        if (state != HF_STATE_HELD) {
            return hf_close_refuse(closing, state == HF_STATE_DISPATCHED ? HOLDFAST_REASON_ALREADY_DISPATCHED
                                                                         : HOLDFAST_REASON_ALREADY_CLOSED);
        }
        int code = hf_close_once(&close, HF_KIND_RELEASE, round);
        if (code == HF_OK) {
            hf_turn_done(handle, close.tenant_idx, round);
            closing->kind = HOLDFAST_CLOSED_RELEASED;
            return HOLDFAST_OK;
        }
        if (code == HF_CLOSE_SPENT) {
            break;
        }
        if (code != HF_CLOSE_AGAIN && code != HF_EBUSY) {
            return hf_client_fault(handle, code);
        }
        hf_turn_lost(handle, close.tenant_idx, round);
    }
    return rc != HOLDFAST_OK ? rc : hf_close_refuse(closing, HOLDFAST_REASON_BUSY);
}
