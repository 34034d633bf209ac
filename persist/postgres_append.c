/* The store in PostgreSQL: rows of rollups, by COPY. */
#include "persist/postgres_impl.h"

#include <stdio.h>

#define SQL_BYTES 2048
/* What a row takes at most: its texts are names. */
#define ROW_BYTES (2U + HF_PART_COLUMNS_MAX * (4U + HF_NAME_BYTES_MAX))

/* Rows on their way. */
struct rows {
    struct hf_store *store;
    const struct hf_store_part *part;
    size_t cnt;
};

static void put_row(struct hf_postgres *pg, const struct hf_param *params, unsigned cnt)
{
    pg->buffer[pg->buffer_len++] = (char)(cnt >> 8);
    pg->buffer[pg->buffer_len++] = (char)(cnt & 0xff);
    for (unsigned i = 0; i < cnt; i++) {
        if (params[i].type == HF_PARAM_INTEGER) {
            hf_pg_put_integer(pg, params[i].integer);
        } else {
            hf_pg_put_bytes(pg, params[i].bytes, params[i].len);
        }
    }
}

static enum hf_pg_sent put_rows(void *ctx)
{
    const struct rows *rows = ctx;
    struct hf_postgres *pg = hf_postgres_of(rows->store);
    struct hf_param params[HF_PART_COLUMNS_MAX];

    for (size_t i = 0; i < rows->cnt; i++) {
        if (!rows->part->row(rows->part->ctx, i, params)) {
            continue;
        }
        if (!hf_pg_room(pg, ROW_BYTES)) {
            return HF_PG_NOMEM;
        }
        put_row(pg, params, rows->part->columns_cnt);
        if (!hf_pg_copy_row(rows->store)) {
            return HF_PG_LOST;
        }
    }
    return HF_PG_SENT;
}

enum hf_store_status hf_postgres_append(struct hf_store *store, const struct hf_store_part *part, size_t cnt,
                                        struct hf_store_error *error)
{
    struct rows rows = {.store = store, .part = part, .cnt = cnt};
    char sql[SQL_BYTES];

    (void)snprintf(sql, sizeof(sql), "COPY %s (%s) FROM STDIN (FORMAT binary)", part->table, part->columns);
    return hf_pg_copy(store, sql, "writing a rollup", put_rows, &rows, error).status;
}
