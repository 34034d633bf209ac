/* What sqlite.c and sqlite_write.c know of each other. */
#ifndef HF_PERSIST_SQLITE_IMPL_H
#define HF_PERSIST_SQLITE_IMPL_H

#include "persist/store_impl.h"

#include <sqlite3.h>

struct hf_sqlite {
    struct hf_store base;
    sqlite3 *db;
    int lock_fd; /* 0: none (never standard input: see take_lock) */
    sqlite3_stmt *lookup;
    sqlite3_stmt *lookup_aside;
    sqlite3_stmt *insert;
    sqlite3_stmt *insert_aside;
};

static inline struct hf_sqlite *hf_sqlite_of(struct hf_store *store)
{
    return (struct hf_sqlite *)store;
}

/* The path of a sqlite: URL. */
static inline const char *hf_sqlite_path(const struct hf_store *store)
{
    return store->url + sizeof("sqlite:") - 1;
}

/* Turns a result code into a status and a sentence: what was being done, why not, what to do. Drops a connection that is of no
 * use any more. */
enum hf_store_status hf_sqlite_fail(struct hf_store *store, int rc, const char *doing,
                                    struct hf_store_error *error);

enum hf_store_status hf_sqlite_prepare(struct hf_store *store, const char *sql, sqlite3_stmt **statement,
                                       struct hf_store_error *error);

enum hf_store_status hf_sqlite_begin(struct hf_store *store, struct hf_store_error *error);
enum hf_store_status hf_sqlite_schema(struct hf_store *store, hf_schema_fn *fn, void *ctx,
                                      struct hf_store_error *error);
enum hf_store_status hf_sqlite_lookup(struct hf_store *store, struct hf_lookup *lookups, size_t cnt,
                                      uint64_t before_seq, struct hf_store_error *error);
enum hf_store_status hf_sqlite_insert(struct hf_store *store, const struct hf_store_batch *batch,
                                      struct hf_store_rows *rows, struct hf_store_report *report,
                                      struct hf_store_error *error);
enum hf_store_status hf_sqlite_append(struct hf_store *store, const struct hf_store_part *part, size_t cnt,
                                      struct hf_store_error *error);
enum hf_store_status hf_sqlite_commit(struct hf_store *store, struct hf_store_error *error);
void hf_sqlite_rollback(struct hf_store *store);

/* ---- sqlite_prune.c ---- */
enum hf_store_status hf_sqlite_retention(struct hf_store *store, struct hf_store_error *error);
enum hf_store_status hf_sqlite_idle(struct hf_store *store, const char *segment, bool *idle,
                                    struct hf_store_error *error);
enum hf_store_status hf_sqlite_take_away(struct hf_store *store, const char *partition, int64_t segment_id,
                                         int64_t next_seq, struct hf_store_error *error);

#endif
