/* The operations of `holdfast run`, and what becomes of one line. */
#include "tools/holdfast/run.h"

#include "tools/holdfast/run_answer.h"
#include "tools/holdfast/run_lines.h"

#include <errno.h>
#include <string.h>

static const struct hf_run_op ops[] = {
    {"reserve", &hf_run_reserve_schema, hf_run_reserve},
    {"extend", &hf_run_extend_schema, hf_run_extend},
    {"dispatch", &hf_run_id_schema, hf_run_dispatch},
    {"settle", &hf_run_settle_schema, hf_run_settle},
    {"release", &hf_run_id_schema, hf_run_release},
    {"reap", NULL, hf_run_reap},
    {"usage", &hf_run_usage_schema, hf_run_usage},
    {"meters", &hf_run_meters_schema, hf_run_meters},
    {"credit", &hf_run_credit_schema, hf_run_credit},
    {"receipts", &hf_run_id_schema, hf_run_receipts},
    {"clock", &hf_run_clock_schema, hf_run_clock},
    {"poll", &hf_run_poll_schema, hf_run_not_built},
    {"apply", &hf_run_apply_schema, hf_run_not_built},
    {"resolve", &hf_run_resolve_schema, hf_run_not_built},
    {"holds", &hf_run_holds_schema, hf_run_not_built},
};

const struct hf_run_op *hf_run_op_find(const char *name)
{
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        if (strcmp(ops[i].name, name) == 0) {
            return &ops[i];
        }
    }
    return NULL;
}

static int handle(struct hf_run *run, const struct hf_json_line *line, struct hf_json_fault *fault)
{
    struct hf_json_value values[HF_RUN_FIELDS_MAX];
    const struct hf_run_op *op = hf_run_op_find(line->op);

    if (op == NULL) {
        (void)hf_json_in_refuse(fault, "invalid-request", "there is no operation \"%.40s\"", line->op);
        hf_json_out_fault(&run->out, NULL, fault);
        return 0;
    }
    if (op->schema != NULL && hf_json_in_read(line, op->schema, values, fault) != 0) {
        hf_json_out_fault(&run->out, op->name, fault);
        return 0;
    }
    op->handle(run, op, values);
    return 0;
}

int hf_run_line(struct hf_run *run, const char *text, size_t text_bytes)
{
    struct hf_json_line line;
    struct hf_json_fault fault;
    int rc = hf_json_in_open(&line, text, text_bytes, &fault);

    if (rc > 0) {
        hf_json_out_fault(&run->out, NULL, &fault);
        rc = 0;
    } else if (rc == 0) {
        rc = handle(run, &line, &fault);
    }
    hf_json_in_close(&line);
    return rc;
}

void hf_run_line_too_long(struct hf_run *run)
{
    struct hf_json_fault fault;

    (void)hf_json_in_refuse(&fault, "invalid-request",
                            "the line is longer than %d bytes, the most that is read", HF_LINES_BYTES_MAX);
    hf_json_out_fault(&run->out, NULL, &fault);
}
