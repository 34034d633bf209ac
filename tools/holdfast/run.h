/* holdfast run: one operation a line.
 *
 * A run has a handle on a segment, either a private one with a daemon of its own in this process (run_start.c) or a live
 * one. A line is read (run_line.c), its operation found in one table (run_op.c), its fields read by the operation's
 * schema, and its handler writes the answer. A handler never fails: whatever happens, there is one answer. */
#ifndef HF_TOOLS_HOLDFAST_RUN_H
#define HF_TOOLS_HOLDFAST_RUN_H

#include "core/include/holdfast.h"
#include "shm/segment.h"
#include "tools/holdfast/json_in.h"
#include "tools/holdfast/json_out.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How long an answer may wait until the daemon has drained everything before it. */
#define HF_RUN_FLUSH_MS 30000U

struct hf_serve;
struct hf_store;

struct hf_run {
    struct holdfast *handle;
    struct hf_segment *segment;           /* of the handle: header and clock */
    struct holdfast_segment *opened;      /* a live segment, to be closed; NULL for a private one */
    struct hf_serve *serve;               /* the daemon of a private segment; NULL for a live one */
    struct hf_store *store;               /* for receipts; opened when first asked for */
    const char *store_url;                /* as told by --store; NULL: the one that the segment names */
    char by[HOLDFAST_NAME_BYTES_MAX + 1]; /* who gives credit, when the line does not say */
    bool extended;          /* an extension may wait to be drained, and another would be merged with it */
    bool behind;            /* the daemon of a private segment could not commit what was done */
    struct hf_json_out out; /* the answer */
};

/* One operation of the protocol. */
struct hf_run_op {
    const char *name;
    const struct hf_json_schema *schema; /* NULL: no fields */
    /* Writes the whole answer into run->out. */
    void (*handle)(struct hf_run *run, const struct hf_run_op *op, const struct hf_json_value *values);
};

/* Most fields that a schema has. */
#define HF_RUN_FIELDS_MAX 16

/* The operation of that name, or NULL. */
const struct hf_run_op *hf_run_op_find(const char *name);

/* Reads one line (without its newline) and leaves its answer in run->out, to be ended by hf_json_out_line().
 * 0 or -ENOMEM. */
int hf_run_line(struct hf_run *run, const char *text, size_t text_bytes);

/* The answer to a line beyond the longest that is read. */
void hf_run_line_too_long(struct hf_run *run);

/* Everything done before is committed and published. Of a private segment that always holds. False when the daemon
 * has not come to it in time. */
bool hf_run_flush(struct hf_run *run);

/* Handlers, and the schemas that say which fields they may count on. */
extern const struct hf_json_schema hf_run_reserve_schema, hf_run_extend_schema, hf_run_id_schema,
    hf_run_settle_schema, hf_run_resolve_schema, hf_run_poll_schema, hf_run_usage_schema, hf_run_holds_schema,
    hf_run_meters_schema, hf_run_credit_schema, hf_run_apply_schema, hf_run_clock_schema;

typedef void hf_run_handler(struct hf_run *run, const struct hf_run_op *op,
                            const struct hf_json_value *values);
hf_run_handler hf_run_reserve, hf_run_extend, hf_run_dispatch, hf_run_settle, hf_run_release, hf_run_reap,
    hf_run_usage, hf_run_meters, hf_run_credit, hf_run_receipts, hf_run_clock, hf_run_not_built;

#endif
