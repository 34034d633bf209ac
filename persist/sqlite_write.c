/* The store in SQLite: transactions, the fence, and rows by prepared inserts. */
#include "persist/escape.h"
#include "persist/sqlite_impl.h"

#include <stdio.h>
#include <string.h>

#define SQL_BYTES 8192

enum hf_store_status hf_sqlite_begin(struct hf_store *store, struct hf_store_error *error)
{
    sqlite3 *db = hf_sqlite_of(store)->db;
    int moved = 0;
    int rc;

    /* Somebody removed or replaced the file: what went into the old one now would be lost without a word. */
    if (sqlite3_file_control(db, NULL, SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && moved != 0) {
        hf_store_disconnect(store);
        return hf_store_fail(error, HF_STORE_RETRY,
                             "the file of %s was removed or replaced while in use. Put it back",
                             store->display);
    }
    rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    return rc == SQLITE_OK ? HF_STORE_OK : hf_sqlite_fail(store, rc, "beginning a transaction", error);
}

void hf_sqlite_rollback(struct hf_store *store)
{
    sqlite3 *db = hf_sqlite_of(store)->db;

    if (db != NULL && sqlite3_get_autocommit(db) == 0) {
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    }
}

enum hf_store_status hf_sqlite_commit(struct hf_store *store, struct hf_store_error *error)
{
    sqlite3 *db = hf_sqlite_of(store)->db;
    int rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    enum hf_store_status status;

    if (rc == SQLITE_OK) {
        return HF_STORE_OK;
    }
    status = hf_sqlite_fail(store, rc, "a commit", error);
    /* The frames may have reached the log before the error: only the next look can tell. */
    return status == HF_STORE_RETRY && (rc & 0xff) == SQLITE_IOERR ? HF_STORE_UNKNOWN : status;
}

/* ---- the fence ------------------------------------------------------------------------------------------------------ */

static enum hf_store_status look_up(struct hf_store *store, sqlite3_stmt *statement, struct hf_lookup *lookup,
                                    struct hf_store_error *error)
{
    int rc;

    sqlite3_reset(statement);
    sqlite3_bind_int64(statement, 1, store->segment_id);
    sqlite3_bind_text(statement, 2, lookup->id->bytes, lookup->id->len, SQLITE_STATIC);
    rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) {
        uint64_t seq = (uint64_t)sqlite3_column_int64(statement, 0);

        if ((!lookup->found || seq > lookup->seq) && sqlite3_column_bytes(statement, 1) == HF_DIGEST_BYTES) {
            lookup->found = true;
            lookup->seq = seq;
            memcpy(lookup->digest, sqlite3_column_blob(statement, 1), HF_DIGEST_BYTES);
            lookup->conflict = sqlite3_column_int(statement, 2) != 0;
        }
        rc = SQLITE_DONE;
    }
    sqlite3_reset(statement);
    return rc == SQLITE_DONE ? HF_STORE_OK : hf_sqlite_fail(store, rc, "looking up an id", error);
}

#define LOOKUP(table)                                              \
    "SELECT seq, digest, conflict FROM " table                     \
    " WHERE segment_id = ?1 AND id = ?2 AND kind = 'reservation' " \
    "ORDER BY seq DESC LIMIT 1"

enum hf_store_status hf_sqlite_lookup(struct hf_store *store, struct hf_lookup *lookups, size_t cnt,
                                      uint64_t before_seq, struct hf_store_error *error)
{
    struct hf_sqlite *sqlite = hf_sqlite_of(store);
    enum hf_store_status status = HF_STORE_OK;

    (void)before_seq;
    if (sqlite->lookup == NULL) {
        status = hf_sqlite_prepare(store, LOOKUP("receipt"), &sqlite->lookup, error);
    }
    if (status == HF_STORE_OK && sqlite->lookup_aside == NULL) {
        status = hf_sqlite_prepare(store, LOOKUP("conflict"), &sqlite->lookup_aside, error);
    }
    for (size_t i = 0; i < cnt && status == HF_STORE_OK; i++) {
        status = look_up(store, sqlite->lookup, &lookups[i], error);
        if (status == HF_STORE_OK && store->has_aside) {
            status = look_up(store, sqlite->lookup_aside, &lookups[i], error);
        }
    }
    return status;
}

/* ---- rows ----------------------------------------------------------------------------------------------------------- */

static enum hf_store_status prepare_insert(struct hf_store *store, bool aside, sqlite3_stmt **statement,
                                           struct hf_store_error *error)
{
    char sql[SQL_BYTES];
    size_t fields = hf_receipt_fields();
    size_t len =
        (size_t)snprintf(sql, sizeof(sql), "INSERT INTO %s (segment_id", aside ? "conflict" : "receipt");

    for (size_t i = 0; i < fields; i++) {
        len += (size_t)snprintf(sql + len, sizeof(sql) - len, ", %s", hf_receipt_field(i)->name);
    }
    len += (size_t)snprintf(sql + len, sizeof(sql) - len, "%s) VALUES (?",
                            aside ? ", batch_number, refusal" : "");
    for (size_t i = 0; i < fields + (aside ? 2 : 0); i++) {
        len += (size_t)snprintf(sql + len, sizeof(sql) - len, ", ?");
    }
    snprintf(sql + len, sizeof(sql) - len, ")");
    return hf_sqlite_prepare(store, sql, statement, error);
}

static int bind_field(sqlite3_stmt *statement, int at, const struct hf_receipt *row, size_t i,
                      char scratch[HF_RECEIPT_BUCKETS_BYTES])
{
    struct hf_field_value value;

    hf_receipt_get(row, i, &value, scratch);
    if (value.null) {
        return sqlite3_bind_null(statement, at);
    }
    switch (hf_receipt_field(i)->type) {
    case HF_FIELD_NUMBER:
        return sqlite3_bind_int64(statement, at, (int64_t)value.number);
    case HF_FIELD_SIGNED:
        return sqlite3_bind_int64(statement, at, value.integer);
    case HF_FIELD_FLAG:
    case HF_FIELD_TRI:
        return sqlite3_bind_int(statement, at, value.flag);
    case HF_FIELD_DIGEST:
        return sqlite3_bind_blob64(statement, at, value.bytes, value.len, SQLITE_STATIC);
    default:
        return sqlite3_bind_text64(statement, at, value.bytes, value.len, SQLITE_STATIC, SQLITE_UTF8);
    }
}

/* Runs an insert of one row; its result code. */
static int insert_row(struct hf_store *store, sqlite3_stmt *statement, const struct hf_receipt *row,
                      uint64_t batch_number, const char *refusal)
{
    char scratch[HF_RECEIPT_BUCKETS_BYTES];
    int at = 1;
    int rc = sqlite3_bind_int64(statement, at++, store->segment_id);

    for (size_t i = 0; i < hf_receipt_fields() && rc == SQLITE_OK; i++) {
        rc = bind_field(statement, at++, row, i, scratch);
    }
    if (refusal != NULL && rc == SQLITE_OK) {
        sqlite3_bind_int64(statement, at++, (int64_t)batch_number);
        rc = sqlite3_bind_text(statement, at++, refusal, -1, SQLITE_STATIC);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
    }
    sqlite3_reset(statement);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

/* True when the row is what the store does not take, not the moment. */
static bool refused(int rc)
{
    return (rc & 0xff) == SQLITE_CONSTRAINT || (rc & 0xff) == SQLITE_TOOBIG || (rc & 0xff) == SQLITE_MISMATCH;
}

static enum hf_store_status put_aside(struct hf_store *store, const struct hf_store_batch *batch,
                                      struct hf_receipt *row, const char *why, struct hf_store_report *report,
                                      struct hf_store_error *error)
{
    struct hf_sqlite *sqlite = hf_sqlite_of(store);
    char refusal[sizeof(report->aside_reason)];
    enum hf_store_status status = HF_STORE_OK;
    int rc;

    snprintf(refusal, sizeof(refusal), "%s", why);
    if (sqlite->insert_aside == NULL) {
        status = prepare_insert(store, true, &sqlite->insert_aside, error);
    }
    if (status != HF_STORE_OK) {
        return status;
    }
    rc = insert_row(store, sqlite->insert_aside, row, batch->number, refusal);
    if (rc != SQLITE_OK) {
        return hf_sqlite_fail(store, rc, "putting aside a refused receipt", error);
    }
    store->has_aside = true;
    row->fate = HF_FATE_ASIDE;
    if (report->aside_cnt++ == 0) {
        memcpy(report->aside_reason, refusal, sizeof(refusal));
    }
    return HF_STORE_OK;
}

enum hf_store_status hf_sqlite_insert(struct hf_store *store, const struct hf_store_batch *batch,
                                      struct hf_store_rows *rows, struct hf_store_report *report,
                                      struct hf_store_error *error)
{
    struct hf_sqlite *sqlite = hf_sqlite_of(store);
    enum hf_store_status status = HF_STORE_OK;

    if (sqlite->insert == NULL) {
        status = prepare_insert(store, false, &sqlite->insert, error);
    }
    for (size_t i = 0; i < rows->cnt && status == HF_STORE_OK; i++) {
        struct hf_receipt *row = &rows->list[i];
        int rc = SQLITE_OK;

        if (!hf_store_complete(rows, i + 1)) {
            return hf_store_no_digest(error);
        }
        if (!row->escaped) {
            rc = insert_row(store, sqlite->insert, row, batch->number, NULL);
        }
        if (row->escaped) {
            status = put_aside(store, batch, row, hf_escape_reason, report, error);
        } else if (rc == SQLITE_OK) {
            row->fate = row->fate == HF_FATE_NONE ? HF_FATE_STORED : row->fate;
        } else if (refused(rc)) {
            status = put_aside(store, batch, row, sqlite3_errmsg(sqlite->db), report, error);
        } else {
            status = hf_sqlite_fail(store, rc, "inserting a receipt", error);
        }
    }
    return status;
}
