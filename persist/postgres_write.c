/* The store in PostgreSQL: rows by binary COPY. */
#include "persist/escape.h"
#include "persist/postgres_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SQL_BYTES 8192

/* ---- COPY ----------------------------------------------------------------------------------------------------------- */

static void put_field(struct hf_postgres *pg, const struct hf_receipt *row, size_t i,
                      char scratch[HF_RECEIPT_BUCKETS_BYTES])
{
    struct hf_field_value value;

    hf_receipt_get(row, i, &value, scratch);
    if (value.null) {
        hf_pg_put_be32(pg, UINT32_MAX);
        return;
    }
    switch (hf_receipt_field(i)->type) {
    case HF_FIELD_NUMBER:
        hf_pg_put_integer(pg, (int64_t)value.number);
        break;
    case HF_FIELD_SIGNED:
        hf_pg_put_integer(pg, value.integer);
        break;
    case HF_FIELD_FLAG:
    case HF_FIELD_TRI:
        hf_pg_put_be32(pg, 1);
        pg->buffer[pg->buffer_len++] = value.flag ? 1 : 0;
        break;
    default:
        hf_pg_put_bytes(pg, value.bytes, value.len);
        break;
    }
}

static size_t text_bytes(const struct hf_receipt *row)
{
    return (row->reason == NULL ? 0 : strlen(row->reason)) +
           (row->details == NULL ? 0 : strlen(row->details));
}

/* One tuple. refusal: for the table of conflicts. */
static bool put_row(struct hf_store *store, const struct hf_receipt *row, uint64_t batch_number,
                    const char *refusal)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    size_t fields = hf_receipt_fields();
    char scratch[HF_RECEIPT_BUCKETS_BYTES];
    uint16_t columns = (uint16_t)(1 + fields + (refusal == NULL ? 0 : 2));

    if (!hf_pg_room(pg,
                    fields * (8 + HF_NAME_BYTES_MAX) + HF_RECEIPT_BUCKETS_BYTES + 1024 + text_bytes(row))) {
        return false;
    }
    pg->buffer[pg->buffer_len++] = (char)(columns >> 8);
    pg->buffer[pg->buffer_len++] = (char)(columns & 0xff);
    hf_pg_put_integer(pg, store->segment_id);
    for (size_t i = 0; i < fields; i++) {
        put_field(pg, row, i, scratch);
    }
    if (refusal != NULL) {
        hf_pg_put_integer(pg, (int64_t)batch_number);
        hf_pg_put_bytes(pg, refusal, strlen(refusal));
    }
    return true;
}

static void copy_statement(char sql[SQL_BYTES], bool aside)
{
    size_t len = (size_t)snprintf(sql, SQL_BYTES, "COPY %s (segment_id", aside ? "conflict" : "receipt");

    for (size_t i = 0; i < hf_receipt_fields(); i++) {
        len += (size_t)snprintf(sql + len, SQL_BYTES - len, ", %s", hf_receipt_field(i)->name);
    }
    snprintf(sql + len, SQL_BYTES - len, "%s) FROM STDIN (FORMAT binary)",
             aside ? ", batch_number, refusal" : "");
}

struct insertion {
    struct hf_store *store;
    uint64_t batch_number;
    struct hf_store_rows *rows;
    struct hf_store_report *report;
    struct hf_store_error *error;
};

/* A run of rows of an insertion. */
struct run {
    const struct insertion *in;
    size_t from;
    size_t cnt;
    const char *refusal; /* not NULL: into the table of conflicts */
};

static enum hf_pg_sent put_rows(void *ctx)
{
    const struct run *run = ctx;
    const struct insertion *in = run->in;

    for (size_t i = run->from; i < run->from + run->cnt; i++) {
        struct hf_receipt *row = &in->rows->list[i];

        if (!hf_store_complete(in->rows, i + 1) || !put_row(in->store, row, in->batch_number, run->refusal)) {
            return HF_PG_NOMEM;
        }
        row->fate = row->fate == HF_FATE_NONE ? HF_FATE_STORED : row->fate;
        if (!hf_pg_copy_row(in->store)) {
            return HF_PG_LOST;
        }
    }
    return HF_PG_SENT;
}

/* COPY of some rows. On a fault of the data outcome.row_fault, and the transaction waits for ROLLBACK TO. */
static struct hf_pg_outcome copy_rows(struct run *run, struct hf_store_error *error)
{
    char sql[SQL_BYTES];

    copy_statement(sql, run->refusal != NULL);
    return hf_pg_copy(run->in->store, sql, "inserting receipts", put_rows, run, error);
}

/* ---- refused rows --------------------------------------------------------------------------------------------------- */

static enum hf_store_status put_aside(const struct insertion *in, size_t i, const char *refusal)
{
    struct run run = {.in = in, .from = i, .cnt = 1, .refusal = refusal};
    struct hf_pg_outcome outcome = copy_rows(&run, in->error);

    if (outcome.status != HF_STORE_OK) {
        return outcome.status;
    }
    in->store->has_aside = true;
    in->rows->list[i].fate = HF_FATE_ASIDE;
    if (in->report->aside_cnt++ == 0) {
        snprintf(in->report->aside_reason, sizeof(in->report->aside_reason), "%s", refusal);
    }
    return HF_STORE_OK;
}

/* Inserts rows; those that are refused are found by halving. Depth: the logarithm of cnt. */
/* NOLINTNEXTLINE(misc-no-recursion): bounded as said */
static enum hf_store_status insert_some(const struct insertion *in, size_t from, size_t cnt)
{
    struct run run = {.in = in, .from = from, .cnt = cnt};
    struct hf_store_error refusal = {""};
    enum hf_store_status status = hf_pg_command(in->store, "SAVEPOINT rows", "a savepoint", in->error);
    struct hf_pg_outcome outcome;

    if (status != HF_STORE_OK) {
        return status;
    }
    outcome = copy_rows(&run, &refusal);
    if (outcome.status == HF_STORE_OK) {
        return hf_pg_command(in->store, "RELEASE SAVEPOINT rows", "a savepoint", in->error);
    }
    if (!outcome.row_fault || in->store->ops->connected(in->store) == false) {
        return hf_store_fail(in->error, outcome.status, "%s", refusal.text);
    }
    status = hf_pg_command(in->store, "ROLLBACK TO SAVEPOINT rows; RELEASE SAVEPOINT rows", "a savepoint",
                           in->error);
    if (status != HF_STORE_OK) {
        return status;
    }
    if (cnt == 1) {
        return put_aside(in, from, refusal.text);
    }
    status = insert_some(in, from, cnt / 2);
    return status == HF_STORE_OK ? insert_some(in, from + cnt / 2, cnt - cnt / 2) : status;
}

/* ---- a batch ------------------------------------------------------------------------------------------------------- */

/* Inserts rows all or none. That the data was refused is said in rows->refused: the transaction is of no use then. */
static enum hf_store_status insert_all(const struct insertion *in, size_t from, size_t cnt)
{
    struct run run = {.in = in, .from = from, .cnt = cnt};
    struct hf_pg_outcome outcome = copy_rows(&run, in->error);

    in->rows->refused = outcome.row_fault && in->store->ops->connected(in->store);
    return outcome.status;
}

enum hf_store_status hf_postgres_insert(struct hf_store *store, const struct hf_store_batch *batch,
                                        struct hf_store_rows *rows, struct hf_store_report *report,
                                        struct hf_store_error *error)
{
    const struct insertion in = {
        .store = store, .batch_number = batch->number, .rows = rows, .report = report, .error = error};
    enum hf_store_status status = HF_STORE_OK;

    for (size_t from = 0; from < rows->cnt && status == HF_STORE_OK;) {
        size_t until = from;

        while (until < rows->cnt && !rows->list[until].escaped) {
            until++;
        }
        if (until == from) {
            status = put_aside(&in, until++, hf_escape_reason);
        } else if (rows->optimistic) {
            status = insert_all(&in, from, until - from);
        } else {
            status = insert_some(&in, from, until - from);
        }
        from = until;
    }
    return status;
}
