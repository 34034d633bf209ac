/* credit, clock, and the operations that are laid out but not made yet. */
#include "tools/holdfast/run_answer.h"

#include "core/terms.h"
#include "core/window.h"
#include "shm/clock.h"

/* ---- credit ----------------------------------------------------------------------------------------------------- */

enum {
    C_TENANT,
    C_TEAM,
    C_WINDOW,
    C_MICROS,
    C_REASON,
    C_BY,
    C_CNT
};

static const char *const windows[HF_WINDOW_CNT + 1] = {
    [HF_WINDOW_MINUTE] = "minute", [HF_WINDOW_HOUR] = "hour",         [HF_WINDOW_DAY] = "day",
    [HF_WINDOW_MONTH] = "month",   [HF_WINDOW_LIFETIME] = "lifetime", [HF_WINDOW_CNT] = NULL,
};

static const struct hf_json_field credit_fields[C_CNT] = {
    [C_TENANT] = {.name = "tenant", .kind = HF_JSON_NAME, .required = true},
    [C_TEAM] = {.name = "team", .kind = HF_JSON_NAME, .required = true},
    [C_WINDOW] = {.name = "window", .kind = HF_JSON_WORD, .required = true, .words = windows},
    [C_MICROS] = {.name = "micros", .kind = HF_JSON_SIGNED, .required = true},
    [C_REASON] = {.name = "reason", .kind = HF_JSON_TEXT, .required = true, .max = 255},
    [C_BY] = {.name = "by", .kind = HF_JSON_NAME},
};

const struct hf_json_schema hf_run_credit_schema = {credit_fields, C_CNT, NULL};

void hf_run_credit(struct hf_run *run, const struct hf_run_op *op, const struct hf_json_value *values)
{
    uint64_t total = 0;
    int reason = HOLDFAST_REASON_NONE;
    int result = holdfast_credit(run->handle, values[C_TENANT].text, values[C_TEAM].text,
                                 values[C_WINDOW].word, values[C_MICROS].number, values[C_REASON].text,
                                 values[C_BY].given ? values[C_BY].text : run->by, &total, &reason);

    if (result < 0) {
        hf_answer_fault(&run->out, op->name, NULL, result);
    } else if (result != HOLDFAST_OK) {
        hf_answer_refuse(&run->out, op->name, NULL, reason,
                         reason == HOLDFAST_REASON_INVALID_REQUEST
                             ? "the team has no cost_micros limit of this window to give credit on"
                             : NULL);
    } else {
        hf_answer_begin(&run->out, op->name, true);
        hf_json_out_amount(&run->out, "credit", total);
    }
}

/* ---- clock ------------------------------------------------------------------------------------------------------ */

enum {
    T_SET,
    T_ADVANCE,
    T_CNT
};

static const struct hf_json_field clock_fields[T_CNT] = {
    [T_SET] = {.name = "set_ms", .kind = HF_JSON_AMOUNT, .max = HF_CLOCK_MS_MAX},
    [T_ADVANCE] = {.name = "advance_ms", .kind = HF_JSON_AMOUNT, .max = HF_CLOCK_MS_MAX},
};

static int clock_together(const struct hf_json_value *values, struct hf_json_fault *fault)
{
    if (values[T_SET].given == values[T_ADVANCE].given) {
        return hf_json_in_refuse(fault, "invalid-request",
                                 "state exactly one of \"set_ms\" and \"advance_ms\"");
    }
    return 0;
}

const struct hf_json_schema hf_run_clock_schema = {clock_fields, T_CNT, clock_together};

void hf_run_clock(struct hf_run *run, const struct hf_run_op *op, const struct hf_json_value *values)
{
    uint64_t now_ms = holdfast_now_ms(run->handle);
    uint64_t to_ms = values[T_SET].given ? values[T_SET].amount : now_ms + values[T_ADVANCE].amount;

    if (!run->segment->injected) {
        hf_answer_refuse(
            &run->out, op->name, NULL, HOLDFAST_REASON_INVALID_REQUEST,
            "this segment follows the clock of its store; only an injected clock (--clock-ms) can be set");
        return;
    }
    if (to_ms > HF_CLOCK_MS_MAX) {
        hf_answer_refuse(&run->out, op->name, NULL, HOLDFAST_REASON_INVALID_AMOUNT,
                         "the clock ends with the year 2400");
        return;
    }
    now_ms = hf_clock_inject(run->segment, to_ms);
    hf_answer_begin(&run->out, op->name, true);
    hf_json_out_amount(&run->out, "now_ms", now_ms);
}

/* ---- not made yet ----------------------------------------------------------------------------------------------- */

static const struct hf_json_field poll_fields[] = {
    {.name = "ticket", .kind = HF_JSON_NAME, .required = true}};
const struct hf_json_schema hf_run_poll_schema = {poll_fields, 1, NULL};

static const struct hf_json_field apply_fields[] = {
    {.name = "policy", .kind = HF_JSON_TEXT, .required = true, .max = 4095},
    {.name = "now", .kind = HF_JSON_FLAG},
    {.name = "reason", .kind = HF_JSON_TEXT, .required = true, .max = 255},
    {.name = "by", .kind = HF_JSON_NAME},
};
const struct hf_json_schema hf_run_apply_schema = {apply_fields, 4, NULL};

static const char *const states[] = {"held", "dispatched", "expired", "retained", "disputed", NULL};
static const struct hf_json_field holds_fields[] = {
    {.name = "tenant", .kind = HF_JSON_NAME},
    {.name = "state", .kind = HF_JSON_WORD, .words = states},
    {.name = "limit", .kind = HF_JSON_COUNT, .min = 1},
    {.name = "after", .kind = HF_JSON_NAME},
};
const struct hf_json_schema hf_run_holds_schema = {holds_fields, 4, NULL};

void hf_run_not_built(struct hf_run *run, const struct hf_run_op *op, const struct hf_json_value *values)
{
    (void)values;
    hf_answer_refuse(&run->out, op->name, NULL, HOLDFAST_REASON_NOT_BUILT, NULL);
}
