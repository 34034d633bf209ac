/* The store in SQLite: rows of rollups. */
#include "persist/sqlite_impl.h"

#include <stdio.h>

#define SQL_BYTES 2048

static int insert(sqlite3_stmt *statement, const struct hf_param *params, unsigned cnt)
{
    int rc = SQLITE_OK;

    for (unsigned i = 0; i < cnt && rc == SQLITE_OK; i++) {
        rc = params[i].type == HF_PARAM_INTEGER
                 ? sqlite3_bind_int64(statement, (int)i + 1, params[i].integer)
                 : sqlite3_bind_text64(statement, (int)i + 1, params[i].bytes, params[i].len, SQLITE_STATIC,
                                       SQLITE_UTF8);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
    }
    sqlite3_reset(statement);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

enum hf_store_status hf_sqlite_append(struct hf_store *store, const struct hf_store_part *part, size_t cnt,
                                      struct hf_store_error *error)
{
    struct hf_param params[HF_PART_COLUMNS_MAX];
    sqlite3_stmt *statement = NULL;
    char sql[SQL_BYTES];
    size_t len =
        (size_t)snprintf(sql, sizeof(sql), "INSERT INTO %s (%s) VALUES (?", part->table, part->columns);

    for (unsigned i = 1; i < part->columns_cnt; i++) {
        len += (size_t)snprintf(sql + len, sizeof(sql) - len, ", ?");
    }
    (void)snprintf(sql + len, sizeof(sql) - len, ")");
    enum hf_store_status status = hf_sqlite_prepare(store, sql, &statement, error);

    for (size_t i = 0; i < cnt && status == HF_STORE_OK; i++) {
        if (part->row(part->ctx, i, params)) {
            int rc = insert(statement, params, part->columns_cnt);

            status = rc == SQLITE_OK ? HF_STORE_OK : hf_sqlite_fail(store, rc, "writing a rollup", error);
        }
    }
    sqlite3_finalize(
        statement); /* also of a connection that was dropped: it lives until its last statement */
    return status;
}
