/* dispatch, settle, release, reap: what becomes of a hold. */
#include "tools/holdfast/run_answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    I_ID,
    I_CNT
};

static const struct hf_json_field id_fields[I_CNT] = {
    [I_ID] = {.name = "id", .kind = HF_JSON_NAME, .required = true},
};

const struct hf_json_schema hf_run_id_schema = {id_fields, I_CNT, NULL};

void hf_run_dispatch(struct hf_run *run, const struct hf_run_op *op, const struct hf_json_value *values)
{
    const char *id = values[I_ID].text;
    int reason = HOLDFAST_REASON_NONE, result = holdfast_dispatch(run->handle, id, 0, &reason);

    if (result < 0) {
        hf_answer_fault(&run->out, op->name, id, result);
    } else if (result != HOLDFAST_OK) {
        hf_answer_refuse(&run->out, op->name, id, reason, NULL);
    } else {
        hf_answer_begin(&run->out, op->name, true);
        hf_json_out_text(&run->out, "id", id);
    }
}

void hf_run_release(struct hf_run *run, const struct hf_run_op *op, const struct hf_json_value *values)
{
    const char *id = values[I_ID].text;
    struct holdfast_closing closing;
    int result = holdfast_release(run->handle, id, 0, &closing);

    if (result < 0) {
        hf_answer_fault(&run->out, op->name, id, result);
    } else {
        hf_answer_closing(&run->out, op->name, id, result, &closing);
    }
}

/* ---- settle, and the form of resolve ---------------------------------------------------------------------------- */

enum {
    S_ID,
    S_USAGE,
    S_INPUT,
    S_OUTPUT,
    S_CACHED,
    S_CACHE_WRITE,
    S_COST,
    S_REF,
    S_OUTCOME, /* of a resolution: its reason */
    S_CNT,
    S_BY = S_CNT,
    S_RESOLVE_CNT
};

static const char *const outcomes[] = {
    [HOLDFAST_SUCCESS] = "success",
    [HOLDFAST_FAILURE] = "failure",
    NULL,
};

#define CLOSING_FIELDS                                                                                   \
    [S_ID] = {.name = "id", .kind = HF_JSON_NAME, .required = true},                                     \
    [S_USAGE] = {.name = "usage", .kind = HF_JSON_OBJECT, .required = true, .nullable = true},           \
    [S_INPUT] = {.name = "input_tokens", .kind = HF_JSON_AMOUNT, .required = true, .within = "usage"},   \
    [S_OUTPUT] = {.name = "output_tokens", .kind = HF_JSON_AMOUNT, .required = true, .within = "usage"}, \
    [S_CACHED] = {.name = "cached_input_tokens", .kind = HF_JSON_AMOUNT, .within = "usage"},             \
    [S_CACHE_WRITE] = {.name = "cache_write_input_tokens", .kind = HF_JSON_AMOUNT, .within = "usage"},   \
    [S_COST] = {.name = "cost_micros", .kind = HF_JSON_AMOUNT, .within = "usage"},                       \
    [S_REF] = {.name = "ref", .kind = HF_JSON_NAME}

static const struct hf_json_field settle_fields[S_CNT] = {
    CLOSING_FIELDS,
    [S_OUTCOME] = {.name = "outcome", .kind = HF_JSON_WORD, .required = true, .words = outcomes},
};
static const struct hf_json_field resolve_fields[S_RESOLVE_CNT] = {
    CLOSING_FIELDS,
    [S_OUTCOME] = {.name = "reason", .kind = HF_JSON_TEXT, .required = true, .max = 255},
    [S_BY] = {.name = "by", .kind = HF_JSON_NAME},
};

const struct hf_json_schema hf_run_settle_schema = {settle_fields, S_CNT, NULL};
const struct hf_json_schema hf_run_resolve_schema = {resolve_fields, S_RESOLVE_CNT, NULL};

/* ", input_tokens 12", or nothing for what was not told. */
static void log_number(const struct hf_json_field *field, const struct hf_json_value *value)
{
    if (value->given) {
        (void)fprintf(stderr, ", %s %" PRIu64, field->name, value->amount);
    }
}

/* What came for an id that nobody knows is charged to no budget: it must not get lost besides. */
static void log_unknown(const struct hf_json_value *values)
{
    (void)fprintf(stderr,
                  "holdfast run: settle of the unknown reservation \"%s\", charged nowhere: outcome %s%s%s%s",
                  values[S_ID].text, values[S_OUTCOME].text, values[S_REF].given ? ", ref " : "",
                  values[S_REF].given ? values[S_REF].text : "", values[S_USAGE].null ? ", usage null" : "");
    for (int i = S_INPUT; i <= S_COST; i++) {
        log_number(&settle_fields[i], &values[i]);
    }
    (void)fputc('\n', stderr);
}

/* More of the input was cached than there was: the one fault of a settlement whose sentence can say more than its reason. */
static const char *settle_message(const struct holdfast_closing *closing, const struct holdfast_usage *usage)
{
    uint64_t cached = usage->cached_input_tokens == HOLDFAST_UNKNOWN ? 0 : usage->cached_input_tokens;
    uint64_t written =
        usage->cache_write_input_tokens == HOLDFAST_UNKNOWN ? 0 : usage->cache_write_input_tokens;

    if (closing->reason == HOLDFAST_REASON_INVALID_AMOUNT && usage->input_tokens != HOLDFAST_UNKNOWN &&
        cached + written > usage->input_tokens) {
        return "cached_input_tokens and cache_write_input_tokens are parts of input_tokens, and together above it";
    }
    return NULL;
}

void hf_run_settle(struct hf_run *run, const struct hf_run_op *op, const struct hf_json_value *values)
{
    const char *id = values[S_ID].text;
    struct holdfast_usage usage;
    struct holdfast_closing closing;

    holdfast_usage_init(&usage, values[S_INPUT].amount, values[S_OUTPUT].amount);
    usage.cached_input_tokens = values[S_CACHED].amount;
    usage.cache_write_input_tokens = values[S_CACHE_WRITE].amount;
    usage.cost_micros = values[S_COST].amount;

    int result = holdfast_settle(run->handle, id, 0, values[S_USAGE].null ? NULL : &usage,
                                 values[S_OUTCOME].word, values[S_REF].text, &closing);

    if (result == HOLDFAST_REFUSED && closing.reason == HOLDFAST_REASON_UNKNOWN_RESERVATION) {
        log_unknown(values);
    }
    if (result < 0) {
        hf_answer_fault(&run->out, op->name, id, result);
    } else if (result == HOLDFAST_REFUSED && settle_message(&closing, &usage) != NULL) {
        hf_answer_refuse(&run->out, op->name, id, closing.reason, settle_message(&closing, &usage));
    } else {
        hf_answer_closing(&run->out, op->name, id, result, &closing);
    }
}

/* ---- reap ------------------------------------------------------------------------------------------------------- */

struct reaped {
    int kind; /* enum holdfast_closed */
    char id[HOLDFAST_NAME_BYTES_MAX + 1];
};

struct reaped_list {
    struct reaped *entries;
    size_t cnt, room;
    bool no_memory;
};

static void note_reaped(void *arg, const char *id, int kind)
{
    struct reaped_list *list = arg;

    if (list->cnt == list->room) {
        size_t room = list->room == 0 ? 64 : list->room * 2;
        struct reaped *grown = realloc(list->entries, room * sizeof(*grown));

        if (grown == NULL) {
            list->no_memory = true;
            return;
        }
        list->entries = grown;
        list->room = room;
    }

    struct reaped *entry = &list->entries[list->cnt++];

    entry->kind = kind;
    (void)snprintf(entry->id, sizeof(entry->id), "%s", id);
}

static int by_id(const void *a, const void *b)
{
    return strcmp(((const struct reaped *)a)->id, ((const struct reaped *)b)->id);
}

void hf_run_reap(struct hf_run *run, const struct hf_run_op *op, const struct hf_json_value *values)
{
    struct reaped_list list = {0};
    int closed = holdfast_reap(run->handle, 0, note_reaped, &list);

    (void)values;
    if (closed < 0 || list.no_memory) {
        hf_answer_fault(&run->out, op->name, NULL, closed < 0 ? closed : HOLDFAST_NO_MEMORY);
        free(list.entries);
        return;
    }
    if (list.cnt > 0) {
        qsort(list.entries, list.cnt, sizeof(*list.entries), by_id);
    }
    hf_answer_begin(&run->out, op->name, true);
    hf_json_out_list(&run->out, "closed");
    for (size_t i = 0; i < list.cnt; i++) {
        hf_json_out_object(&run->out, NULL);
        hf_json_out_text(&run->out, "id", list.entries[i].id);
        hf_json_out_text(&run->out, "kind",
                         list.entries[i].kind == HOLDFAST_CLOSED_RETAINED ? "retained" : "expired");
        hf_json_out_object_end(&run->out);
    }
    hf_json_out_list_end(&run->out);
    free(list.entries);
}
