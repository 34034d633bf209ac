#include "core/want.h"

#include "core/amount.h"
#include "core/client.h"
#include "core/lookup.h"
#include "core/price.h"

static bool hf_want_has_path(const struct holdfast_request *request)
{
    return request->path != NULL;
}

static bool hf_want_read_names(const struct holdfast_request *request, struct hf_want *want)
{
    want->id = request->id;
    want->id_bytes = hf_client_name(request->id);
    if (want->id_bytes == 0) {
        return false;
    }
    if (hf_want_has_path(request)) {
        return true;
    }
    want->names = (struct hf_names){
        .tenant = request->tenant, .team = request->team, .key = request->key, .cap = request->capability};
    want->names.tenant_bytes = hf_client_name(request->tenant);
    want->names.team_bytes = hf_client_name(request->team);
    want->names.cap_bytes = hf_client_name(request->capability);
    want->names.key_bytes = hf_client_name(request->key);
    return want->names.tenant_bytes != 0 && want->names.team_bytes != 0 && want->names.cap_bytes != 0 &&
           (request->key == NULL || want->names.key_bytes != 0);
}

static bool hf_want_form_valid(const struct holdfast_request *request)
{
    bool explicit_form = request->tokens != HOLDFAST_UNKNOWN || request->cost_micros != HOLDFAST_UNKNOWN;
    bool explicit_economy =
        request->economy_cost_micros != HOLDFAST_UNKNOWN || request->economy_tokens != HOLDFAST_UNKNOWN;
    if (request->model != NULL) {
        return !explicit_form && !explicit_economy && request->input_tokens != HOLDFAST_UNKNOWN &&
               hf_client_name(request->model) != 0 &&
               (request->economy_model == NULL || hf_client_name(request->economy_model) != 0);
    }
    if (request->economy_tokens != HOLDFAST_UNKNOWN && request->economy_cost_micros == HOLDFAST_UNKNOWN) {
        return false;
    }
    return explicit_form && request->economy_model == NULL && request->input_tokens == HOLDFAST_UNKNOWN &&
           request->max_output_tokens == HOLDFAST_UNKNOWN;
}

/* Range of a number that may be absent. */
static bool hf_want_in_range(uint64_t value, uint64_t least)
{
    return value == HOLDFAST_UNKNOWN || (value >= least && value <= HF_AMOUNT_MAX);
}

static void hf_want_keep(uint64_t given, uint64_t *kept, uint32_t flag, uint32_t *flags)
{
    *kept = given == HOLDFAST_UNKNOWN ? 0 : given;
    *flags |= given == HOLDFAST_UNKNOWN ? 0 : flag;
}

int hf_want_read(const struct holdfast_request *request, struct hf_want *want)
{
    if (!hf_want_read_names(request, want) || !hf_want_form_valid(request)) {
        return HOLDFAST_REASON_INVALID_REQUEST;
    }
    if (!hf_want_in_range(request->input_tokens, 0) || !hf_want_in_range(request->max_output_tokens, 1) ||
        !hf_want_in_range(request->tokens, 0) || !hf_want_in_range(request->cost_micros, 0) ||
        !hf_want_in_range(request->economy_tokens, 0) || !hf_want_in_range(request->economy_cost_micros, 0) ||
        !hf_want_in_range(request->ttl_ms, 1)) {
        return HOLDFAST_REASON_INVALID_AMOUNT;
    }
    want->model = want->economy = HF_SHM_NONE;
    return HOLDFAST_REASON_NONE;
}

void hf_want_given(const struct holdfast_request *request, struct hf_want *want)
{
    bool model_form = request->model != NULL;
    want->flags = model_form ? HF_SLOT_FORM_MODEL : 0;
    hf_want_keep(model_form ? request->input_tokens : request->tokens, &want->in1, HF_SLOT_HAS_IN1,
                 &want->flags);
    hf_want_keep(model_form ? request->max_output_tokens : request->cost_micros, &want->in2, HF_SLOT_HAS_IN2,
                 &want->flags);
    hf_want_keep(request->economy_tokens, &want->eco1, HF_SLOT_HAS_ECO1, &want->flags);
    hf_want_keep(request->economy_cost_micros, &want->eco2, HF_SLOT_HAS_ECO2, &want->flags);
    hf_want_keep(request->ttl_ms, &want->ttl_ms, HF_SLOT_HAS_TTL, &want->flags);
}

/* Price of a model by name and the worst case under it. */
static int hf_want_model(const struct hf_segment *seg, const struct hf_shm_policy *policy, const char *name,
                         const struct holdfast_request *request, uint32_t *price_idx, struct hf_price *price)
{
    *price_idx = hf_lookup_find(seg, policy, HF_LOOKUP_MODEL, 0, name, hf_client_name(name));
    if (!hf_lookup_price(seg, *price_idx, price, NULL)) {
        *price_idx = HF_SHM_NONE;
        return HOLDFAST_REASON_UNKNOWN_MODEL;
    }
    if (request->max_output_tokens != HOLDFAST_UNKNOWN && price->max_output_tokens != HF_UNKNOWN &&
        request->max_output_tokens > price->max_output_tokens) {
        return HOLDFAST_REASON_MODEL_LIMIT;
    }
    return HOLDFAST_REASON_NONE;
}

static void hf_want_explicit(const struct holdfast_request *request, struct hf_want *want)
{
    want->own.by[HF_DIM_INVOCATIONS] = want->own_economy.by[HF_DIM_INVOCATIONS] = 1;
    want->own.by[HF_DIM_TOKENS] = request->tokens;
    want->own.by[HF_DIM_COST] = request->cost_micros;
    want->own_economy.by[HF_DIM_TOKENS] =
        request->economy_tokens != HOLDFAST_UNKNOWN ? request->economy_tokens : request->tokens;
    want->own_economy.by[HF_DIM_COST] = request->economy_cost_micros;
}

int hf_want_price(const struct hf_segment *seg, uint32_t policy_gen, const struct holdfast_request *request,
                  struct hf_want *want)
{
    if (request->model == NULL) {
        hf_want_explicit(request, want);
        return HOLDFAST_REASON_NONE;
    }
    want->own.by[HF_DIM_INVOCATIONS] = want->own_economy.by[HF_DIM_INVOCATIONS] = 1;
    want->own_economy.by[HF_DIM_TOKENS] = want->own_economy.by[HF_DIM_COST] = HF_UNKNOWN;
    const struct hf_shm_policy *policy = hf_lookup_policy(seg, policy_gen);
    struct hf_price price;
    struct hf_price economy;
    if (policy == NULL) {
        return HOLDFAST_REASON_UNKNOWN_MODEL;
    }
    int reason = hf_want_model(seg, policy, request->model, request, &want->model, &price);
    if (reason == HOLDFAST_REASON_NONE && request->economy_model != NULL) {
        reason = hf_want_model(seg, policy, request->economy_model, request, &want->economy, &economy);
    }
    if (reason != HOLDFAST_REASON_NONE) {
        return reason;
    }
    if (!hf_price_worst(&price, request->input_tokens, request->max_output_tokens,
                        &want->own.by[HF_DIM_TOKENS], &want->own.by[HF_DIM_COST])) {
        return HOLDFAST_REASON_INVALID_AMOUNT;
    }
    if (request->economy_model != NULL &&
        !hf_price_worst(&economy, request->input_tokens, request->max_output_tokens,
                        &want->own_economy.by[HF_DIM_TOKENS], &want->own_economy.by[HF_DIM_COST])) {
        return HOLDFAST_REASON_INVALID_AMOUNT;
    }
    return HOLDFAST_REASON_NONE;
}

int hf_want_request_layer(const struct hf_path *path, const struct hf_amounts *held, int *dimension)
{
    const uint64_t caps[HF_SHM_DIMS] = {HF_SHM_UNKNOWN, path->cap_tokens, path->cap_micros};
    for (int dim = HF_DIM_TOKENS; dim <= HF_DIM_COST; dim++) {
        if (held->by[dim] != HF_SHM_UNKNOWN && caps[dim] != HF_SHM_UNKNOWN && held->by[dim] > caps[dim]) {
            *dimension = dim;
            return HOLDFAST_REASON_REQUEST_CAP;
        }
    }
    for (int dim = HF_DIM_TOKENS; dim <= HF_DIM_COST; dim++) {
        bool needed = caps[dim] != HF_SHM_UNKNOWN || (path->dims_limited & (1U << dim)) != 0;
        if (held->by[dim] == HF_SHM_UNKNOWN && needed) {
            *dimension = dim;
            return HOLDFAST_REASON_AMOUNT_UNKNOWN;
        }
    }
    return HOLDFAST_REASON_NONE;
}
