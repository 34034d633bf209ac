/* The store in PostgreSQL: rows of rollups, by COPY. */
#include "persist/postgres_impl.h"

#include <stdio.h>
#include <string.h>

#define CHUNK_BYTES 65536U
#define SQL_BYTES   2048

/* Rows on their way. */
struct chunk {
    struct hf_store *store;
    size_t len;
    char bytes[CHUNK_BYTES];
};

static bool send_chunk(struct chunk *chunk)
{
    PGconn *conn = hf_postgres_of(chunk->store)->conn;
    int sent;

    while ((sent = PQputCopyData(conn, chunk->bytes, (int)chunk->len)) == 0) {
        if (!hf_pg_flush(chunk->store)) {
            return false;
        }
    }
    chunk->len = 0;
    return sent == 1;
}

static void put_row(struct chunk *chunk, const struct hf_param *params, unsigned cnt)
{
    char *at = chunk->bytes + chunk->len;

    *at++ = (char)(cnt >> 8);
    *at++ = (char)(cnt & 0xff);
    for (unsigned i = 0; i < cnt; i++) {
        if (params[i].type == HF_PARAM_INTEGER) {
            at = hf_put_be64(hf_put_be32(at, 8), (uint64_t)params[i].integer);
        } else {
            at = hf_put_be32(at, (uint32_t)params[i].len);
            memcpy(at, params[i].bytes, params[i].len);
            at += params[i].len;
        }
    }
    chunk->len = (size_t)(at - chunk->bytes);
}

/* What a row takes at most: its texts are names. */
#define ROW_BYTES (2U + HF_PART_COLUMNS_MAX * (4U + HF_NAME_BYTES_MAX))

static bool send_rows(struct chunk *chunk, const struct hf_store_part *part, size_t cnt)
{
    static const char header[] =
        "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0"; /* with the last \0 of the literal: 19 bytes */
    struct hf_param params[HF_PART_COLUMNS_MAX];

    memcpy(chunk->bytes, header, 19);
    chunk->len = 19;
    for (size_t i = 0; i < cnt; i++) {
        if (!part->row(part->ctx, i, params)) {
            continue;
        }
        if (chunk->len + ROW_BYTES > CHUNK_BYTES && !send_chunk(chunk)) {
            return false;
        }
        put_row(chunk, params, part->columns_cnt);
    }
    if (chunk->len + 2 > CHUNK_BYTES && !send_chunk(chunk)) {
        return false;
    }
    memset(chunk->bytes + chunk->len, 0xff, 2);
    chunk->len += 2;
    return send_chunk(chunk);
}

static bool end_copy(struct hf_store *store)
{
    PGconn *conn = hf_postgres_of(store)->conn;
    int ended;

    while ((ended = PQputCopyEnd(conn, NULL)) == 0) {
        if (!hf_pg_flush(store)) {
            return false;
        }
    }
    return ended == 1 && hf_pg_flush(store);
}

enum hf_store_status hf_postgres_append(struct hf_store *store, const struct hf_store_part *part, size_t cnt,
                                        struct hf_store_error *error)
{
    PGconn *conn = hf_postgres_of(store)->conn;
    struct chunk chunk = {.store = store, .len = 0};
    char sql[SQL_BYTES];

    (void)snprintf(sql, sizeof(sql), "COPY %s (%s) FROM STDIN (FORMAT binary)", part->table, part->columns);
    if (PQsendQuery(conn, sql) == 0 || !hf_pg_flush(store)) {
        return hf_pg_judge(store, NULL, "writing a rollup", error).status;
    }
    PGresult *result = hf_pg_result(store);
    enum hf_store_status status = hf_pg_judge(store, result, "writing a rollup", error).status;

    PQclear(result);
    if (status != HF_STORE_OK) {
        hf_pg_drain(store);
        return status;
    }
    result = send_rows(&chunk, part, cnt) && end_copy(store) ? hf_pg_result(store) : NULL;
    status = hf_pg_judge(store, result, "writing a rollup", error).status;
    PQclear(result);
    hf_pg_drain(store);
    return status;
}
