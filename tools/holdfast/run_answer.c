#include "tools/holdfast/run_answer.h"

#include "core/amount.h"
#include "core/terms.h"

#include <inttypes.h>
#include <stdio.h>

/* The public numbers are those of core/terms.h, so that its words serve both. */
_Static_assert((int)HOLDFAST_WINDOW_LIFETIME == (int)HF_WINDOW_LIFETIME, "windows have one numbering");
_Static_assert((int)HOLDFAST_COST_MICROS == (int)HF_DIM_COST, "dimensions have one numbering");
_Static_assert((int)HOLDFAST_LAYER_TENANT == (int)HF_LAYER_TENANT, "layers have one numbering");
_Static_assert(HOLDFAST_UNKNOWN == HF_UNKNOWN, "unknown is one number");

static const char *const sentences[HOLDFAST_REASON_CNT] = {
    [HOLDFAST_REASON_INVALID_REQUEST] =
        "the fields do not fit together; the protocol says which go with which",
    [HOLDFAST_REASON_INVALID_AMOUNT] = "a sum or cost is above the range of amounts, 0 to 72057594037927935",
    [HOLDFAST_REASON_UNKNOWN_TENANT] = "the policy has no such tenant: check the spelling, every byte counts",
    [HOLDFAST_REASON_UNKNOWN_TEAM] = "the tenant has no such team: check the spelling, every byte counts",
    [HOLDFAST_REASON_UNKNOWN_KEY] = "the team has no such key: check the spelling, every byte counts",
    [HOLDFAST_REASON_UNKNOWN_CAPABILITY] = "the team does not list this capability and may not call it",
    [HOLDFAST_REASON_UNKNOWN_MODEL] = "the price catalog has no such model",
    [HOLDFAST_REASON_MODEL_LIMIT] = "max_output_tokens is above the model's longest output",
    [HOLDFAST_REASON_REQUEST_CAP] = "more than the capability's cap for one call; waiting cannot help",
    [HOLDFAST_REASON_AMOUNT_UNKNOWN] =
        "a cap or limit needs this amount and the request does not determine it",
    [HOLDFAST_REASON_DEGRADE_NOT_CHEAPER] =
        "over the limit, and the request has no economy alternative that costs less",
    [HOLDFAST_REASON_QUEUE_FULL] = "over the limit, and the queue is full",
    [HOLDFAST_REASON_QUEUE_EXPIRED] = "the ticket waited past its deadline",
    [HOLDFAST_REASON_UNKNOWN_TICKET] = "no such ticket was given",
    [HOLDFAST_REASON_ID_CONFLICT] = "another request was made under this id; take a new id for a new request",
    [HOLDFAST_REASON_BUSY] =
        "no free place, the store too far behind, or another process at work on this id; nothing "
        "was changed, come again",
    [HOLDFAST_REASON_NOT_READY] = "the segment is being built or was replaced; come again",
    [HOLDFAST_REASON_WINDOW_OVER] = "a window that limits this hold has ended; settle it and reserve anew",
    [HOLDFAST_REASON_UNKNOWN_RESERVATION] = "the segment does not know this id (any more)",
    [HOLDFAST_REASON_ALREADY_CLOSED] = "closed before, in another way",
    [HOLDFAST_REASON_ALREADY_DISPATCHED] = "the call is on its way to the provider; settle it",
    [HOLDFAST_REASON_OVERAGE] =
        "the usage is above the hold and the policy says on_overage: fail; the reservation is "
        "disputed, its hold stays charged",
    [HOLDFAST_REASON_STILL_OPEN] = "still open; settle or release it",
    [HOLDFAST_REASON_INVALID_POLICY] = "the policy is refused; nothing was changed",
    [HOLDFAST_REASON_NOT_BUILT] = "this build of holdfast cannot do this yet",
};

const char *hf_answer_sentence(int reason)
{
    return reason > 0 && reason < HOLDFAST_REASON_CNT ? sentences[reason] : NULL;
}

void hf_answer_begin(struct hf_json_out *out, const char *op, bool ok)
{
    hf_json_out_begin(out);
    hf_json_out_text(out, "op", op);
    hf_json_out_flag(out, "ok", ok);
}

static void put_message(struct hf_json_out *out, const char *message)
{
    if (message != NULL) {
        hf_json_out_text(out, "message", message);
    }
}

void hf_answer_refuse(struct hf_json_out *out, const char *op, const char *id, int reason,
                      const char *message)
{
    hf_answer_begin(out, op, false);
    if (id != NULL) {
        hf_json_out_text(out, "id", id);
    }
    hf_json_out_text(out, "reason", holdfast_reason_name(reason));
    put_message(out, message == NULL ? hf_answer_sentence(reason) : message);
}

void hf_answer_fault(struct hf_json_out *out, const char *op, const char *id, int result)
{
    if (result == HOLDFAST_NOT_READY) {
        hf_answer_refuse(out, op, id, HOLDFAST_REASON_NOT_READY, NULL);
        return;
    }
    hf_answer_begin(out, op, false);
    if (id != NULL) {
        hf_json_out_text(out, "id", id);
    }
    hf_json_out_text(out, "reason", "fault");
    put_message(out, holdfast_strerror(result));
}

/* ---- reserve, extend ------------------------------------------------------------------------------------------ */

static void put_amounts(struct hf_json_out *out, const char *key, const struct holdfast_amounts *amounts,
                        bool invocations)
{
    hf_json_out_object(out, key);
    if (invocations) {
        hf_json_out_amount(out, "invocations", amounts->invocations);
    }
    hf_json_out_amount(out, "tokens", amounts->tokens);
    hf_json_out_amount(out, "cost_micros", amounts->cost_micros);
    hf_json_out_object_end(out);
}

static void put_remaining(struct hf_json_out *out, const struct holdfast_answer *answer)
{
    if (answer->has_remaining == 0) {
        return;
    }
    hf_json_out_object(out, "remaining");
    for (int dim = HOLDFAST_INVOCATIONS; dim <= HOLDFAST_COST_MICROS; dim++) {
        hf_json_out_object(out, hf_dimension_name((enum hf_dimension)dim));
        for (int layer = HOLDFAST_LAYER_REQUEST; layer <= HOLDFAST_LAYER_TENANT; layer++) {
            const char *name = hf_layer_name((enum hf_layer)layer);
            int64_t left = answer->remaining[dim][layer];

            if (left == HOLDFAST_NONE) {
                hf_json_out_null(out, name);
            } else {
                hf_json_out_number(out, name, left);
            }
        }
        hf_json_out_object_end(out);
    }
    hf_json_out_object_end(out);
}

static void put_admitted(struct hf_json_out *out, const char *op, const char *id, bool extends,
                         const struct holdfast_answer *answer)
{
    hf_answer_begin(out, op, true);
    hf_json_out_text(out, "id", id);
    if (!extends) {
        hf_json_out_text(out, "kind", answer->kind == HOLDFAST_DEGRADE ? "degrade" : "allow");
    }
    put_amounts(out, "reserved", &answer->reserved, true);
    hf_json_out_amount(out, "expires_at_ms", answer->expires_at_ms);
    if (!extends) {
        hf_json_out_flag(out, "replayed", answer->replayed != 0);
    }
    put_remaining(out, answer);
}

/* What a limit in the way means for who asked: a sentence in text, or the reason's own. */
static const char *limit_sentence(const struct holdfast_answer *answer, char *text, size_t text_bytes)
{
    char when[64] = "waiting cannot help: it is more than the limit ever has";

    if (answer->reason == HOLDFAST_REASON_NOT_BUILT) {
        return "over the limit, and the policy says on_limit: queue, which this build of holdfast cannot do yet";
    }
    if (answer->window < 0 || answer->dimension < 0 ||
        (answer->reason != HOLDFAST_REASON_KEY_BUDGET && answer->reason != HOLDFAST_REASON_TEAM_SHARE &&
         answer->reason != HOLDFAST_REASON_TENANT_TOTAL)) {
        return hf_answer_sentence(answer->reason);
    }
    if (answer->retry_after_ms != HOLDFAST_UNKNOWN) {
        (void)snprintf(when, sizeof(when), "come again in %" PRIu64 " ms", answer->retry_after_ms);
    }
    (void)snprintf(text, text_bytes, "the %s has not enough %s left in its %s window; %s",
                   hf_layer_name((enum hf_layer)answer->layer),
                   hf_dimension_name((enum hf_dimension)answer->dimension),
                   hf_window_name((enum hf_window)answer->window), when);
    return text;
}

static void put_refused(struct hf_json_out *out, const char *op, const char *id,
                        const struct holdfast_answer *answer)
{
    char text[192];

    hf_answer_begin(out, op, false);
    hf_json_out_text(out, "id", id);
    hf_json_out_text(out, "kind", "reject");
    if (answer->layer >= 0) {
        hf_json_out_text(out, "layer", hf_layer_name((enum hf_layer)answer->layer));
    }
    hf_json_out_text(out, "reason", holdfast_reason_name(answer->reason));
    if (answer->window >= 0) {
        hf_json_out_text(out, "window", hf_window_name((enum hf_window)answer->window));
    }
    if (answer->dimension >= 0) {
        hf_json_out_text(out, "dimension", hf_dimension_name((enum hf_dimension)answer->dimension));
    }
    if (answer->layer >= 0 && answer->reason != HOLDFAST_REASON_NOT_BUILT) {
        hf_json_out_amount(out, "retry_after_ms", answer->retry_after_ms);
    }
    put_message(out, limit_sentence(answer, text, sizeof(text)));
    put_remaining(out, answer);
}

/* Refusals that are no verdict on the amounts: in the form of a bad line, or of a refused closing. */
static bool is_plain(int reason)
{
    return reason == HOLDFAST_REASON_INVALID_REQUEST || reason == HOLDFAST_REASON_INVALID_AMOUNT ||
           reason == HOLDFAST_REASON_UNKNOWN_RESERVATION || reason == HOLDFAST_REASON_ALREADY_CLOSED;
}

void hf_answer_admission(struct hf_json_out *out, const char *op, const char *id, bool extends, int result,
                         const struct holdfast_answer *answer)
{
    if (result == HOLDFAST_OK) {
        put_admitted(out, op, id, extends, answer);
    } else if (is_plain(answer->reason)) {
        hf_answer_refuse(out, op, id, answer->reason, NULL);
    } else {
        put_refused(out, op, id, answer);
    }
}

/* ---- settle, release ------------------------------------------------------------------------------------------ */

static const char *source_name(int source)
{
    switch (source) {
    case HOLDFAST_SOURCE_DERIVED:
        return "derived";
    case HOLDFAST_SOURCE_PROVIDER:
        return "provider";
    default:
        return "unknown";
    }
}

void hf_answer_closing(struct hf_json_out *out, const char *op, const char *id, int result,
                       const struct holdfast_closing *closing)
{
    if (result != HOLDFAST_OK) {
        hf_answer_refuse(out, op, id, closing->reason, NULL);
        if (closing->reason == HOLDFAST_REASON_OVERAGE && closing->replayed != 0) {
            hf_json_out_flag(out, "replayed", true);
        }
        return;
    }
    hf_answer_begin(out, op, true);
    hf_json_out_text(out, "id", id);
    if (closing->kind == HOLDFAST_CLOSED_RELEASED) {
        hf_json_out_text(out, "kind", "released");
    } else {
        hf_json_out_text(out, "kind", "settled");
        put_amounts(out, "actual", &closing->actual, false);
        put_amounts(out, "released", &closing->released, false);
        put_amounts(out, "overage", &closing->overage, false);
        hf_json_out_text(out, "cost_source", source_name(closing->source));
        hf_json_out_flag(out, "quota_exceeded", closing->quota_exceeded != 0);
        hf_json_out_flag(out, "late", closing->late != 0);
    }
    hf_json_out_flag(out, "replayed", closing->replayed != 0);
}
