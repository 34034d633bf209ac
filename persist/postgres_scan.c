/* The store in PostgreSQL: many rows at once, by binary COPY. */
#include "persist/postgres_impl.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

#define COLUMNS_MAX 128
#define SQL_BYTES   16384

static const char signature[] = "PGCOPY\n\377\r\n"; /* with the NUL of the literal: 11 bytes */

struct scan {
    struct hf_store *store;
    const char *types;
    unsigned cnt; /* columns */
    hf_columns_fn *fn;
    void *ctx;
    struct hf_store_error *error;
    bool begun; /* the header has been seen */
    bool ended; /* the trailer has been seen */
    struct hf_column columns[COLUMNS_MAX];
};

static enum hf_store_status unreadable(struct scan *scan)
{
    return hf_store_fail(scan->error, HF_STORE_REFUSED,
                         "a COPY from %s is not as binary COPY is. Look at the version of the server",
                         scan->store->display);
}

static uint32_t be32(const char *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return be32toh(value);
}

/* The header may come with the first row, so it is taken off. NULL: it is none. */
static const char *skip_header(const char *at, const char *end)
{
    size_t left = (size_t)(end - at);
    size_t extension;

    if (left < 19 || memcmp(at, signature, sizeof(signature)) != 0) {
        return NULL;
    }
    extension = be32(at + 15);
    return left - 19 < extension ? NULL : at + 19 + extension;
}

/* One column's value; the byte after it, or NULL. */
static const char *take_column(const char *at, const char *end, char type, struct hf_column *column)
{
    uint32_t len;

    if (end - at < 4) {
        return NULL;
    }
    len = be32(at);
    at += 4;
    column->null = len == UINT32_MAX;
    if (column->null) {
        column->integer = 0;
        column->bytes = NULL;
        column->len = 0;
        return at;
    }
    if ((size_t)(end - at) < len) {
        return NULL;
    }
    column->bytes = at;
    column->len = len;
    if (type == 'i' && len == 8) {
        uint64_t value;

        memcpy(&value, at, sizeof(value));
        column->integer = (int64_t)be64toh(value);
    } else {
        column->integer = type == 't' ? 0 : hf_pg_integer(at, len);
    }
    return at + len;
}

/* One message of the server: a row, the header with a row, or the trailer. */
static enum hf_store_status take_message(struct scan *scan, const char *at, size_t len)
{
    const char *end = at + len;
    unsigned cnt;

    if (!scan->begun) {
        at = skip_header(at, end);
        scan->begun = true;
        if (at == end) {
            return HF_STORE_OK;
        }
    }
    if (at == NULL || end - at < 2) {
        return unreadable(scan);
    }
    cnt = (unsigned)(unsigned char)at[0] << 8 | (unsigned char)at[1];
    at += 2;
    if (cnt == UINT16_MAX && at == end) {
        scan->ended = true;
        return HF_STORE_OK;
    }
    if (cnt != scan->cnt) {
        return unreadable(scan);
    }
    for (unsigned c = 0; c < cnt; c++) {
        at = take_column(at, end, scan->types[c], &scan->columns[c]);
        if (at == NULL) {
            return unreadable(scan);
        }
    }
    return at == end ? scan->fn(scan->ctx, scan->columns, cnt) : unreadable(scan);
}

static enum hf_store_status take_messages(struct scan *scan)
{
    struct hf_postgres *pg = hf_postgres_of(scan->store);
    enum hf_store_status status = HF_STORE_OK;
    char *message = NULL;
    int len;

    while ((len = PQgetCopyData(pg->conn, &message, 1)) >= 0) {
        if (len == 0) {
            if (!hf_pg_wait(scan->store)) {
                return hf_pg_judge(scan->store, NULL, "reading receipts", scan->error).status;
            }
            continue;
        }
        status = take_message(scan, message, (size_t)len);
        PQfreemem(message);
        if (status != HF_STORE_OK) {
            /* What is left of the answer may be long, and is of no use. */
            hf_postgres_disconnect(scan->store);
            return status;
        }
    }
    return HF_STORE_OK;
}

enum hf_store_status hf_postgres_scan(struct hf_store *store, const char *sql, const char *types,
                                      hf_columns_fn *fn, void *ctx, struct hf_store_error *error)
{
    struct scan scan = {.store = store, .types = types, .fn = fn, .ctx = ctx, .error = error};
    PGconn *conn = hf_postgres_of(store)->conn;
    char copy[SQL_BYTES];
    enum hf_store_status status;
    PGresult *result;
    int len = snprintf(copy, sizeof(copy), "COPY (%s) TO STDOUT (FORMAT binary)", sql);

    scan.cnt = (unsigned)strlen(types);
    if (len < 0 || (size_t)len >= sizeof(copy) || scan.cnt > COLUMNS_MAX) {
        return hf_store_fail(error, HF_STORE_INVALID, "a statement that is too long");
    }
    /* Rows come from an index that has them in order. A planner without statistics would rather sort them, on disk if they are many:
     * a quarter of the time of a walk. */
    status = hf_pg_command(store, "SET LOCAL enable_sort = off", "reading receipts", error);
    if (status != HF_STORE_OK) {
        return status;
    }
    if (PQsendQuery(conn, copy) == 0 || !hf_pg_flush(store)) {
        return hf_pg_judge(store, NULL, "reading receipts", error).status;
    }
    result = hf_pg_result(store);
    status = hf_pg_judge(store, result, "reading receipts", error).status;
    PQclear(result);
    if (status == HF_STORE_OK) {
        status = take_messages(&scan);
    }
    if (hf_postgres_of(store)->conn == NULL) {
        return status;
    }
    if (status == HF_STORE_OK) { /* how it ended: an error in the middle comes here */
        result = hf_pg_result(store);
        status = hf_pg_judge(store, result, "reading receipts", error).status;
        PQclear(result);
    }
    hf_pg_drain(store);
    return status == HF_STORE_OK && !scan.ended ? unreadable(&scan) : status;
}
