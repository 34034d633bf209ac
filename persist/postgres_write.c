/* The store in PostgreSQL: the fence for a whole batch in one question, and rows by binary COPY. */
#include "persist/escape.h"
#include "persist/postgres_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SQL_BYTES   8192
#define CHUNK_BYTES 65536

static bool room(struct hf_postgres *pg, size_t bytes)
{
    size_t cap = pg->buffer_cap == 0 ? 2 * CHUNK_BYTES : pg->buffer_cap;
    char *buffer;

    while (cap - pg->buffer_len < bytes) {
        cap *= 2;
    }
    if (cap == pg->buffer_cap) {
        return true;
    }
    buffer = realloc(pg->buffer, cap);
    if (buffer == NULL) {
        return false;
    }
    pg->buffer = buffer;
    pg->buffer_cap = cap;
    return true;
}

static void put_be32(struct hf_postgres *pg, uint32_t value)
{
    hf_put_be32(pg->buffer + pg->buffer_len, value);
    pg->buffer_len += 4;
}

static void put_bytes(struct hf_postgres *pg, const char *bytes, size_t len)
{
    put_be32(pg, (uint32_t)len);
    memcpy(pg->buffer + pg->buffer_len, bytes, len);
    pg->buffer_len += len;
}

static void put_integer(struct hf_postgres *pg, int64_t value)
{
    put_be32(pg, 8);
    hf_put_be64(pg->buffer + pg->buffer_len, (uint64_t)value);
    pg->buffer_len += 8;
}

static enum hf_store_status no_memory(struct hf_store_error *error)
{
    return hf_store_fail(error, HF_STORE_NOMEM, "no memory for a batch");
}

/* ---- the fence ------------------------------------------------------------------------------------------------------ */

struct fence {
    struct hf_lookup *lookups;
    size_t cnt;
};

static enum hf_store_status read_lookup(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct fence *fence = ctx;
    uint64_t i = (uint64_t)columns[0].integer - 1;
    uint64_t seq = (uint64_t)columns[1].integer;
    struct hf_lookup *lookup;

    (void)cnt;
    if (i >= fence->cnt || columns[2].len != HF_DIGEST_BYTES) {
        return HF_STORE_REFUSED;
    }
    lookup = &fence->lookups[i];
    if (!lookup->found || seq > lookup->seq) {
        lookup->found = true;
        lookup->seq = seq;
        memcpy(lookup->digest, columns[2].bytes, HF_DIGEST_BYTES);
        lookup->conflict = columns[3].integer != 0;
    }
    return HF_STORE_OK;
}

/* A text[] in binary: dimensions, has nulls, element type; length and lower bound; then the elements. */
static bool encode_ids(struct hf_postgres *pg, const struct hf_lookup *lookups, size_t cnt)
{
    pg->buffer_len = 0;
    if (!room(pg, 20 + cnt * (4 + HF_NAME_BYTES_MAX))) {
        return false;
    }
    put_be32(pg, 1);
    put_be32(pg, 0);
    put_be32(pg, HF_OID_TEXT);
    put_be32(pg, (uint32_t)cnt);
    put_be32(pg, 1);
    for (size_t i = 0; i < cnt; i++) {
        put_bytes(pg, lookups[i].id->bytes, lookups[i].id->len);
    }
    return true;
}

/* LATERAL with LIMIT, so that each id goes by the index, whatever the planner believes about the table's size. */
#define LOOKUP(table)                                                                        \
    "SELECT i.n, r.seq, r.digest, r.conflict FROM unnest($2) WITH ORDINALITY AS i (id, n), " \
    "LATERAL (SELECT seq, digest, conflict FROM " table                                      \
    " t WHERE t.segment_id = $1 AND t.kind = 'reservation' "                                 \
    "AND t.id = i.id ORDER BY t.seq DESC LIMIT 1) AS r"

static enum hf_store_status look_up(struct hf_store *store, const char *sql, struct fence *fence,
                                    struct hf_store_error *error)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    const Oid types[2] = {HF_OID_INT8, HF_OID_TEXTS};
    char segment_id[8];
    const char *values[2] = {segment_id, pg->buffer};
    int lengths[2] = {8, (int)pg->buffer_len};
    const int formats[2] = {1, 1};

    hf_put_be64(segment_id, (uint64_t)store->segment_id);
    if (PQsendQueryParams(pg->conn, sql, 2, types, values, lengths, formats, 1) == 0 ||
        PQsetSingleRowMode(pg->conn) == 0 || !hf_pg_flush(store)) {
        return hf_pg_judge(store, NULL, "looking up ids", error).status;
    }
    return hf_pg_rows(store, read_lookup, fence, error);
}

enum hf_store_status hf_postgres_lookup(struct hf_store *store, struct hf_lookup *lookups, size_t cnt,
                                        struct hf_store_error *error)
{
    struct fence fence = {.lookups = lookups, .cnt = cnt};
    enum hf_store_status status;

    if (!encode_ids(hf_postgres_of(store), lookups, cnt)) {
        return no_memory(error);
    }
    status = look_up(store, LOOKUP("receipt"), &fence, error);
    if (status == HF_STORE_OK && store->has_aside) {
        status = look_up(store, LOOKUP("conflict"), &fence, error);
    }
    return status;
}

/* ---- COPY ----------------------------------------------------------------------------------------------------------- */

static void put_field(struct hf_postgres *pg, const struct hf_receipt *row, size_t i,
                      char scratch[HF_RECEIPT_BUCKETS_BYTES])
{
    struct hf_field_value value;

    hf_receipt_get(row, i, &value, scratch);
    if (value.null) {
        put_be32(pg, UINT32_MAX);
        return;
    }
    switch (hf_receipt_field(i)->type) {
    case HF_FIELD_NUMBER:
        put_integer(pg, (int64_t)value.number);
        break;
    case HF_FIELD_SIGNED:
        put_integer(pg, value.integer);
        break;
    case HF_FIELD_FLAG:
    case HF_FIELD_TRI:
        put_be32(pg, 1);
        pg->buffer[pg->buffer_len++] = value.flag ? 1 : 0;
        break;
    default:
        put_bytes(pg, value.bytes, value.len);
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

    if (!room(pg, fields * (8 + HF_NAME_BYTES_MAX) + HF_RECEIPT_BUCKETS_BYTES + 1024 + text_bytes(row))) {
        return false;
    }
    pg->buffer[pg->buffer_len++] = (char)(columns >> 8);
    pg->buffer[pg->buffer_len++] = (char)(columns & 0xff);
    put_integer(pg, store->segment_id);
    for (size_t i = 0; i < fields; i++) {
        put_field(pg, row, i, scratch);
    }
    if (refusal != NULL) {
        put_integer(pg, (int64_t)batch_number);
        put_bytes(pg, refusal, strlen(refusal));
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

/* Sends the buffer. False: the connection is lost. */
static bool send_buffer(struct hf_store *store)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    int sent;

    while ((sent = PQputCopyData(pg->conn, pg->buffer, (int)pg->buffer_len)) == 0) {
        if (!hf_pg_flush(store)) {
            return false;
        }
    }
    pg->buffer_len = 0;
    return sent == 1;
}

struct insertion {
    struct hf_store *store;
    uint64_t batch_number;
    struct hf_store_rows *rows;
    struct hf_store_report *report;
    struct hf_store_error *error;
};

enum sent {
    SENT,
    SENT_LOST,
    SENT_NOMEM
};

/* A run of rows of an insertion. */
struct run {
    size_t from;
    size_t cnt;
    const char *refusal; /* not NULL: into the table of conflicts */
};

static enum sent send_rows(const struct insertion *in, const struct run *run)
{
    static const char header[] =
        "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0"; /* with the last \0 of the literal: 19 bytes */
    struct hf_postgres *pg = hf_postgres_of(in->store);

    pg->buffer_len = 0;
    if (!room(pg, CHUNK_BYTES)) {
        return SENT_NOMEM;
    }
    memcpy(pg->buffer, header, 19);
    pg->buffer_len = 19;
    for (size_t i = run->from; i < run->from + run->cnt; i++) {
        if (!hf_store_complete(in->rows, i + 1) ||
            !put_row(in->store, &in->rows->list[i], in->batch_number, run->refusal)) {
            return SENT_NOMEM;
        }
        if (pg->buffer_len >= CHUNK_BYTES && !send_buffer(in->store)) {
            return SENT_LOST;
        }
    }
    if (!room(pg, 2)) {
        return SENT_NOMEM;
    }
    pg->buffer[pg->buffer_len++] = (char)0xff;
    pg->buffer[pg->buffer_len++] = (char)0xff;
    return send_buffer(in->store) ? SENT : SENT_LOST;
}

/* COPY of some rows. On a fault of the data outcome.row_fault, and the transaction waits for ROLLBACK TO. */
static struct hf_pg_outcome copy_rows(const struct insertion *in, const struct run *run,
                                      struct hf_store_error *error)
{
    struct hf_store *store = in->store;
    struct hf_postgres *pg = hf_postgres_of(store);
    char sql[SQL_BYTES];
    struct hf_pg_outcome outcome;
    enum sent sent;
    PGresult *result;

    copy_statement(sql, run->refusal != NULL);
    if (PQsendQuery(pg->conn, sql) == 0 || !hf_pg_flush(store)) {
        return hf_pg_judge(store, NULL, "inserting receipts", error);
    }
    result = hf_pg_result(store);
    outcome = hf_pg_judge(store, result, "inserting receipts", error);
    PQclear(result);
    if (outcome.status != HF_STORE_OK) {
        hf_pg_drain(store);
        return outcome;
    }
    sent = send_rows(in, run);
    while (sent != SENT_LOST) {
        int ended = PQputCopyEnd(pg->conn, sent == SENT_NOMEM ? "no memory" : NULL);

        if (ended == 1 && hf_pg_flush(store)) {
            break;
        }
        if (ended != 0 || !hf_pg_flush(store)) {
            sent = SENT_LOST;
        }
    }
    result = sent == SENT_LOST ? NULL : hf_pg_result(store);
    outcome = hf_pg_judge(store, result, "inserting receipts", error);
    PQclear(result);
    hf_pg_drain(store);
    if (sent == SENT_NOMEM) {
        outcome = (struct hf_pg_outcome){.status = no_memory(error)};
    }
    return outcome;
}

/* ---- refused rows --------------------------------------------------------------------------------------------------- */

static enum hf_store_status put_aside(const struct insertion *in, size_t i, const char *refusal)
{
    const struct run run = {.from = i, .cnt = 1, .refusal = refusal};
    struct hf_pg_outcome outcome = copy_rows(in, &run, in->error);

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
    const struct run run = {.from = from, .cnt = cnt};
    struct hf_store_error refusal = {""};
    enum hf_store_status status = hf_pg_command(in->store, "SAVEPOINT rows", "a savepoint", in->error);
    struct hf_pg_outcome outcome;

    if (status != HF_STORE_OK) {
        return status;
    }
    outcome = copy_rows(in, &run, &refusal);
    if (outcome.status == HF_STORE_OK) {
        for (size_t i = from; i < from + cnt; i++) {
            struct hf_receipt *row = &in->rows->list[i];

            row->fate = row->fate == HF_FATE_NONE ? HF_FATE_STORED : row->fate;
        }
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

/* ---- partitions ----------------------------------------------------------------------------------------------------- */

static enum hf_store_status read_partition(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct hf_postgres *pg = ctx;
    int64_t first = columns[0].integer;
    int64_t next = columns[1].integer;

    (void)cnt;
    /* Neighbours are one range: a batch may reach into the next one. */
    if (first != pg->partition_next) {
        pg->partition_first = first;
    }
    pg->partition_next = next;
    return HF_STORE_OK;
}

/* Sees to it that there are partitions for these numbers. Asks once in millions of receipts, and once after each connect. */
static enum hf_store_status ensure_partitions(struct hf_store *store, int64_t seq, int64_t next_seq,
                                              struct hf_store_error *error)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    enum hf_store_status status = HF_STORE_OK;

    if (seq >= pg->partition_first && seq < pg->partition_next) {
        seq = pg->partition_next;
    }
    while (seq < next_seq && status == HF_STORE_OK) {
        struct hf_param param = hf_param_integer(seq);

        status = hf_pg_query(store, "SELECT first, next FROM ensure_partition($1)", &param, 1, read_partition,
                             pg, error);
        if (status == HF_STORE_OK && pg->partition_next <= seq) {
            return hf_store_fail(
                error, HF_STORE_REFUSED,
                "there is no partition for receipt %lld in %s. Was the schema changed by hand?",
                (long long)seq, store->display);
        }
        seq = pg->partition_next;
    }
    return status;
}

enum hf_store_status hf_postgres_insert(struct hf_store *store, const struct hf_store_batch *batch,
                                        struct hf_store_rows *rows, struct hf_store_report *report,
                                        struct hf_store_error *error)
{
    struct insertion in = {
        .store = store, .batch_number = batch->number, .rows = rows, .report = report, .error = error};
    enum hf_store_status status =
        ensure_partitions(store, (int64_t)batch->first_seq, (int64_t)(batch->first_seq + rows->cnt), error);

    for (size_t from = 0; from < rows->cnt && status == HF_STORE_OK;) {
        size_t until = from;

        while (until < rows->cnt && !rows->list[until].escaped) {
            until++;
        }
        if (until > from) {
            status = insert_some(&in, from, until - from);
        } else {
            status = put_aside(&in, until++, hf_escape_reason);
        }
        from = until;
    }
    return status;
}
