/* The store in PostgreSQL: what goes to the server in binary, and COPY. */
#include "persist/postgres_impl.h"

#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES 65536

bool hf_pg_room(struct hf_postgres *pg, size_t bytes)
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

enum hf_store_status hf_pg_no_memory(struct hf_store_error *error)
{
    return hf_store_fail(error, HF_STORE_NOMEM, "no memory for a batch");
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

bool hf_pg_copy_row(struct hf_store *store)
{
    return hf_postgres_of(store)->buffer_len < CHUNK_BYTES || send_buffer(store);
}

static enum hf_pg_sent send_rows(struct hf_store *store, hf_pg_rows_put_fn *put, void *ctx)
{
    static const char header[] =
        "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0"; /* with the last \0 of the literal: 19 bytes */
    struct hf_postgres *pg = hf_postgres_of(store);
    enum hf_pg_sent sent;

    pg->buffer_len = 0;
    if (!hf_pg_room(pg, CHUNK_BYTES)) {
        return HF_PG_NOMEM;
    }
    memcpy(pg->buffer, header, 19);
    pg->buffer_len = 19;
    sent = put(ctx);
    if (sent != HF_PG_SENT) {
        return sent;
    }
    if (!hf_pg_room(pg, 2)) {
        return HF_PG_NOMEM;
    }
    pg->buffer[pg->buffer_len++] = (char)0xff;
    pg->buffer[pg->buffer_len++] = (char)0xff;
    return send_buffer(store) ? HF_PG_SENT : HF_PG_LOST;
}

/* Ends what was sent, well or not. False: the connection is lost. */
static bool end_copy(struct hf_store *store, enum hf_pg_sent sent)
{
    PGconn *conn = hf_postgres_of(store)->conn;
    int ended = 0;

    if (sent == HF_PG_LOST) {
        return false;
    }
    while ((ended = PQputCopyEnd(conn, sent == HF_PG_NOMEM ? "no memory" : NULL)) == 0) {
        if (!hf_pg_flush(store)) {
            return false;
        }
    }
    return ended == 1 && hf_pg_flush(store);
}

struct hf_pg_outcome hf_pg_copy(struct hf_store *store, const char *sql, const char *doing,
                                hf_pg_rows_put_fn *put, void *ctx, struct hf_store_error *error)
{
    struct hf_pg_outcome outcome;
    enum hf_pg_sent sent;
    PGresult *result;

    if (PQsendQuery(hf_postgres_of(store)->conn, sql) == 0 || !hf_pg_flush(store)) {
        return hf_pg_judge(store, NULL, doing, error);
    }
    result = hf_pg_result(store);
    outcome = hf_pg_judge(store, result, doing, error);
    PQclear(result);
    if (outcome.status != HF_STORE_OK) {
        hf_pg_drain(store);
        return outcome;
    }
    sent = send_rows(store, put, ctx);
    result = end_copy(store, sent) ? hf_pg_result(store) : NULL;
    outcome = hf_pg_judge(store, result, doing, error);
    PQclear(result);
    hf_pg_drain(store);
    if (sent == HF_PG_NOMEM) {
        outcome = (struct hf_pg_outcome){.status = hf_pg_no_memory(error)};
    }
    return outcome;
}
