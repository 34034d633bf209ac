/* usage, meters, receipts: looking, at what every operation before has left. */
#include "tools/holdfast/run_answer.h"

#include "core/terms.h"
#include "persist/store.h"
#include "tools/holdfast/run_receipt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOT_DRAINED \
    "the daemon has not committed the operations before this one in time; see `holdfast status`, and come again"

/* ---- usage ------------------------------------------------------------------------------------------------------ */

enum {
    U_TENANT,
    U_TEAM,
    U_KEY,
    U_CNT
};

static const struct hf_json_field usage_fields[U_CNT] = {
    [U_TENANT] = {.name = "tenant", .kind = HF_JSON_NAME, .required = true},
    [U_TEAM] = {.name = "team", .kind = HF_JSON_NAME},
    [U_KEY] = {.name = "key", .kind = HF_JSON_NAME},
};

static int usage_together(const struct hf_json_value *values, struct hf_json_fault *fault)
{
    if (values[U_KEY].given && !values[U_TEAM].given) {
        return hf_json_in_refuse(fault, "invalid-request", "\"key\" needs \"team\"");
    }
    return 0;
}

const struct hf_json_schema hf_run_usage_schema = {usage_fields, U_CNT, usage_together};

static void put_limit(struct hf_json_out *out, const struct holdfast_limit *limit)
{
    hf_json_out_object(out, NULL);
    hf_json_out_text(out, "window", hf_window_name((enum hf_window)limit->window));
    hf_json_out_amount(out, "window_start_ms", limit->window_start_ms);
    hf_json_out_amount(out, "window_end_ms", limit->window_end_ms);
    hf_json_out_text(out, "dimension", hf_dimension_name((enum hf_dimension)limit->dimension));
    hf_json_out_amount(out, "limit", limit->limit);
    hf_json_out_amount(out, "credit", limit->credit);
    hf_json_out_amount(out, "held", limit->held);
    hf_json_out_amount(out, "settled", limit->settled);
    hf_json_out_number(out, "available", limit->available);
    hf_json_out_object_end(out);
}

void hf_run_usage(struct hf_run *run, const struct hf_run_op *op, const struct hf_json_value *values)
{
    struct holdfast_limit limits[HF_WINDOW_CNT * HF_DIM_CNT];
    int reason = HOLDFAST_REASON_NONE;

    if (!hf_run_flush(run)) {
        hf_answer_refuse(&run->out, op->name, NULL, HOLDFAST_REASON_NOT_READY, NOT_DRAINED);
        return;
    }

    int cnt = holdfast_limits(run->handle, values[U_TENANT].text, values[U_TEAM].text, values[U_KEY].text,
                              limits, (int)(sizeof(limits) / sizeof(limits[0])), &reason);

    if (cnt < 0 && reason != HOLDFAST_REASON_NONE) {
        hf_answer_refuse(&run->out, op->name, NULL, reason, NULL);
        return;
    }
    if (cnt < 0) {
        hf_answer_fault(&run->out, op->name, NULL, cnt);
        return;
    }
    hf_answer_begin(&run->out, op->name, true);
    hf_json_out_list(&run->out, "limits");
    for (int i = 0; i < cnt; i++) {
        put_limit(&run->out, &limits[i]);
    }
    hf_json_out_list_end(&run->out);
}

/* ---- meters ----------------------------------------------------------------------------------------------------- */

static const struct hf_json_field meters_fields[] = {{.name = "tenant", .kind = HF_JSON_NAME}};

const struct hf_json_schema hf_run_meters_schema = {meters_fields, 1, NULL};

struct meter_list {
    struct holdfast_meter *entries;
    size_t cnt, room;
    bool no_memory;
};

static void note_meter(void *arg, const struct holdfast_meter *meter)
{
    struct meter_list *list = arg;

    if (list->cnt == list->room) {
        size_t room = list->room == 0 ? 16 : list->room * 2;
        struct holdfast_meter *grown = realloc(list->entries, room * sizeof(*grown));

        if (grown == NULL) {
            list->no_memory = true;
            return;
        }
        list->entries = grown;
        list->room = room;
    }
    list->entries[list->cnt++] = *meter;
}

/* Tenant, capability, model, bytewise; explicit amounts ("") before every model. */
static int by_path(const void *a, const void *b)
{
    const struct holdfast_meter *left = a, *right = b;
    int order = strcmp(left->tenant, right->tenant);

    if (order == 0) {
        order = strcmp(left->capability, right->capability);
    }
    return order == 0 ? strcmp(left->model, right->model) : order;
}

static void put_meter(struct hf_json_out *out, const struct holdfast_meter *meter)
{
    hf_json_out_object(out, NULL);
    hf_json_out_text(out, "tenant", meter->tenant);
    hf_json_out_text(out, "capability", meter->capability);
    hf_json_out_text(out, "model", meter->model[0] == '\0' ? NULL : meter->model);
    hf_json_out_number(out, "requests", meter->requests);
    hf_json_out_number(out, "failures", meter->failures);
    hf_json_out_number(out, "degraded", meter->degraded);
    hf_json_out_number(out, "reserved_micros", meter->reserved_micros);
    hf_json_out_number(out, "settled_micros", meter->settled_micros);
    hf_json_out_object_end(out);
}

void hf_run_meters(struct hf_run *run, const struct hf_run_op *op, const struct hf_json_value *values)
{
    struct meter_list list = {0};
    int reason = HOLDFAST_REASON_NONE;

    if (!hf_run_flush(run)) {
        hf_answer_refuse(&run->out, op->name, NULL, HOLDFAST_REASON_NOT_READY, NOT_DRAINED);
        return;
    }

    int result = holdfast_meters(run->handle, values[0].text, note_meter, &list, &reason);

    if (result == HOLDFAST_OK && list.no_memory) {
        result = HOLDFAST_NO_MEMORY;
    }
    if (result == HOLDFAST_REFUSED) {
        hf_answer_refuse(&run->out, op->name, NULL, reason, NULL);
    } else if (result != HOLDFAST_OK) {
        hf_answer_fault(&run->out, op->name, NULL, result);
    } else {
        if (list.cnt > 0) {
            qsort(list.entries, list.cnt, sizeof(*list.entries), by_path);
        }
        hf_answer_begin(&run->out, op->name, true);
        hf_json_out_list(&run->out, "meters");
        for (size_t i = 0; i < list.cnt; i++) {
            put_meter(&run->out, &list.entries[i]);
        }
        hf_json_out_list_end(&run->out);
    }
    free(list.entries);
}

/* ---- receipts --------------------------------------------------------------------------------------------------- */

static int put_receipt(void *ctx, const struct hf_receipt *receipt)
{
    hf_receipt_put_json(ctx, receipt);
    return 0;
}

/* The store that the segment's receipts go to, opened for reading; NULL, with *error filled. */
static struct hf_store *store_of(struct hf_run *run, struct hf_store_error *error)
{
    struct hf_store_options options = {.role = HF_STORE_READER};
    const char *url = run->store_url != NULL ? run->store_url : run->segment->header->hdr_store_url;

    if (run->store == NULL) {
        (void)hf_store_open(url, &options, &run->store, error);
    }
    return run->store;
}

void hf_run_receipts(struct hf_run *run, const struct hf_run_op *op, const struct hf_json_value *values)
{
    struct hf_store_error error = {.text = ""};
    char segment[sizeof(run->segment->header->hdr_store_name) + 1];

    if (!hf_run_flush(run)) {
        hf_answer_refuse(&run->out, op->name, NULL, HOLDFAST_REASON_NOT_READY, NOT_DRAINED);
        return;
    }

    struct hf_store *store = store_of(run, &error);
    enum hf_store_status status = HF_STORE_REFUSED;

    if (store != NULL) {
        (void)snprintf(segment, sizeof(segment), "%.*s", (int)sizeof(run->segment->header->hdr_store_name),
                       run->segment->header->hdr_store_name);
        hf_answer_begin(&run->out, op->name, true);
        hf_json_out_list(&run->out, "receipts");
        status = hf_store_receipts(store, segment, values[0].text, put_receipt, &run->out, &error);
        hf_json_out_list_end(&run->out);
    }
    if (status != HF_STORE_OK) {
        hf_answer_begin(&run->out, op->name, false);
        hf_json_out_text(&run->out, "reason", "not-ready");
        hf_json_out_text(&run->out, "message", error.text);
    }
}
