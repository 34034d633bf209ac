/* reserve and extend: what holds. */
#include "tools/holdfast/run_answer.h"

enum {
    R_ID,
    R_TENANT,
    R_TEAM,
    R_KEY,
    R_CAPABILITY,
    R_MODEL,
    R_INPUT,
    R_MAX_OUTPUT,
    R_ECONOMY_MODEL,
    R_TOKENS,
    R_COST,
    R_ECONOMY_COST,
    R_ECONOMY_TOKENS,
    R_TTL,
    R_CNT
};
_Static_assert(R_CNT <= HF_RUN_FIELDS_MAX, "fields of reserve");

static const struct hf_json_field reserve_fields[R_CNT] = {
    [R_ID] = {.name = "id", .kind = HF_JSON_NAME, .required = true},
    [R_TENANT] = {.name = "tenant", .kind = HF_JSON_NAME, .required = true},
    [R_TEAM] = {.name = "team", .kind = HF_JSON_NAME, .required = true},
    [R_KEY] = {.name = "key", .kind = HF_JSON_NAME},
    [R_CAPABILITY] = {.name = "capability", .kind = HF_JSON_NAME, .required = true},
    [R_MODEL] = {.name = "model", .kind = HF_JSON_NAME},
    [R_INPUT] = {.name = "input_tokens", .kind = HF_JSON_AMOUNT},
    [R_MAX_OUTPUT] = {.name = "max_output_tokens", .kind = HF_JSON_AMOUNT, .min = 1},
    [R_ECONOMY_MODEL] = {.name = "economy_model", .kind = HF_JSON_NAME},
    [R_TOKENS] = {.name = "tokens", .kind = HF_JSON_AMOUNT},
    [R_COST] = {.name = "cost_micros", .kind = HF_JSON_AMOUNT},
    [R_ECONOMY_COST] = {.name = "economy_cost_micros", .kind = HF_JSON_AMOUNT},
    [R_ECONOMY_TOKENS] = {.name = "economy_tokens", .kind = HF_JSON_AMOUNT},
    [R_TTL] = {.name = "ttl_ms", .kind = HF_JSON_AMOUNT, .min = 1},
};

/* The first of the fields from..to that was given, or -1. */
static int first_given(const struct hf_json_value *values, int from, int to)
{
    for (int i = from; i <= to; i++) {
        if (values[i].given) {
            return i;
        }
    }
    return -1;
}

static int reserve_together(const struct hf_json_value *values, struct hf_json_fault *fault)
{
    int of_model = first_given(values, R_MODEL, R_ECONOMY_MODEL);
    int of_amounts = first_given(values, R_TOKENS, R_ECONOMY_TOKENS);

    if (of_model >= 0 && of_amounts >= 0) {
        return hf_json_in_refuse(
            fault, "invalid-request",
            "\"%s\" and \"%s\" do not go together: state a model with input_tokens, or amounts",
            reserve_fields[of_model].name, reserve_fields[of_amounts].name);
    }
    if (of_model >= 0 && !values[R_MODEL].given) {
        return hf_json_in_refuse(fault, "invalid-request", "\"%s\" needs \"model\"",
                                 reserve_fields[of_model].name);
    }
    if (of_model >= 0 && !values[R_INPUT].given) {
        return hf_json_in_refuse(fault, "invalid-request", "\"model\" needs \"input_tokens\"");
    }
    if (of_model < 0 && !values[R_TOKENS].given && !values[R_COST].given) {
        return hf_json_in_refuse(
            fault, "invalid-request",
            "state a \"model\" with \"input_tokens\", or \"tokens\" and/or \"cost_micros\"");
    }
    if (values[R_ECONOMY_TOKENS].given && !values[R_ECONOMY_COST].given) {
        return hf_json_in_refuse(fault, "invalid-request",
                                 "\"economy_tokens\" needs \"economy_cost_micros\"");
    }
    return 0;
}

const struct hf_json_schema hf_run_reserve_schema = {reserve_fields, R_CNT, reserve_together};

void hf_run_reserve(struct hf_run *run, const struct hf_run_op *op, const struct hf_json_value *values)
{
    struct holdfast_request request;
    struct holdfast_answer answer;

    holdfast_request_init(&request);
    request.id = values[R_ID].text;
    request.tenant = values[R_TENANT].text;
    request.team = values[R_TEAM].text;
    request.key = values[R_KEY].text;
    request.capability = values[R_CAPABILITY].text;
    request.model = values[R_MODEL].text;
    request.economy_model = values[R_ECONOMY_MODEL].text;
    request.input_tokens = values[R_INPUT].amount;
    request.max_output_tokens = values[R_MAX_OUTPUT].amount;
    request.tokens = values[R_TOKENS].amount;
    request.cost_micros = values[R_COST].amount;
    request.economy_tokens = values[R_ECONOMY_TOKENS].amount;
    request.economy_cost_micros = values[R_ECONOMY_COST].amount;
    request.ttl_ms = values[R_TTL].amount;
    request.want_remaining = 1;

    int result = holdfast_reserve(run->handle, &request, &answer);

    if (result < 0) {
        hf_answer_fault(&run->out, op->name, request.id, result);
        return;
    }
    hf_answer_admission(&run->out, op->name, request.id, false, result, &answer);
}

/* ---- extend ---------------------------------------------------------------------------------------------------- */

enum {
    E_ID,
    E_MAX_OUTPUT,
    E_TOKENS,
    E_COST,
    E_TTL,
    E_CNT
};

static const struct hf_json_field extend_fields[E_CNT] = {
    [E_ID] = {.name = "id", .kind = HF_JSON_NAME, .required = true},
    [E_MAX_OUTPUT] = {.name = "max_output_tokens", .kind = HF_JSON_AMOUNT, .min = 1},
    [E_TOKENS] = {.name = "tokens", .kind = HF_JSON_AMOUNT},
    [E_COST] = {.name = "cost_micros", .kind = HF_JSON_AMOUNT},
    [E_TTL] = {.name = "ttl_ms", .kind = HF_JSON_AMOUNT, .min = 1},
};

static int extend_together(const struct hf_json_value *values, struct hf_json_fault *fault)
{
    if (values[E_MAX_OUTPUT].given && (values[E_TOKENS].given || values[E_COST].given)) {
        return hf_json_in_refuse(fault, "invalid-request",
                                 "\"max_output_tokens\" goes with a hold made of a model, \"tokens\" and "
                                 "\"cost_micros\" with one made of amounts; not both");
    }
    return 0;
}

const struct hf_json_schema hf_run_extend_schema = {extend_fields, E_CNT, extend_together};

void hf_run_extend(struct hf_run *run, const struct hf_run_op *op, const struct hf_json_value *values)
{
    struct holdfast_extension extension;
    struct holdfast_answer answer;

    holdfast_extension_init(&extension);
    extension.id = values[E_ID].text;
    extension.max_output_tokens = values[E_MAX_OUTPUT].amount;
    extension.tokens = values[E_TOKENS].amount;
    extension.cost_micros = values[E_COST].amount;
    extension.ttl_ms = values[E_TTL].amount;
    extension.want_remaining = 1;

    /* Two extensions that the daemon finds at once become one receipt; here each shall have its own. A daemon that
     * does not come is no reason to refuse. */
    if (run->extended) {
        (void)hf_run_flush(run);
    }

    int result = holdfast_extend(run->handle, &extension, &answer);

    if (result < 0) {
        hf_answer_fault(&run->out, op->name, extension.id, result);
        return;
    }
    run->extended = run->extended || result == HOLDFAST_OK;
    hf_answer_admission(&run->out, op->name, extension.id, true, result, &answer);
}
