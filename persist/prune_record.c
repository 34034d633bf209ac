/* The record of a prune, and its digest. */
#include "persist/prune_impl.h"

#include <stdio.h>
#include <string.h>

static void digest_of(const struct hf_column *column, uint8_t digest[HF_DIGEST_BYTES])
{
    memset(digest, 0, HF_DIGEST_BYTES);
    if (column->len == HF_DIGEST_BYTES) {
        memcpy(digest, column->bytes, HF_DIGEST_BYTES);
    }
}

enum hf_store_status hf_prune_read(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct hf_prune_record *record = ctx;

    (void)cnt;
    record->number = columns[0].integer;
    record->made_ms = columns[1].integer;
    (void)snprintf(record->made_by, sizeof(record->made_by), "%s",
                   columns[2].bytes == NULL ? "" : columns[2].bytes);
    record->first_seq = columns[3].integer;
    record->next_seq = columns[4].integer;
    record->rows_cnt = columns[5].integer;
    record->kept_cnt = columns[6].integer;
    record->batch_number = columns[7].integer;
    record->rollup_number = columns[8].integer;
    digest_of(&columns[9], record->batch_digest);
    digest_of(&columns[10], record->rollup_digest);
    digest_of(&columns[11], record->before);
    digest_of(&columns[12], record->digest);
    return HF_STORE_OK;
}

enum hf_store_status hf_prune_newest(struct hf_store *store, int64_t segment_id,
                                     struct hf_prune_record *record, struct hf_store_error *error)
{
    struct hf_param param = hf_param_integer(segment_id);

    *record = (struct hf_prune_record){.next_seq = 1};
    return store->ops->query(
        store, "SELECT " HF_PRUNE_COLUMNS "FROM prune WHERE segment_id = $1 ORDER BY number DESC LIMIT 1",
        &param, 1, hf_prune_read, record, error);
}

enum hf_store_status hf_prune_insert(struct hf_store *store, int64_t segment_id,
                                     const struct hf_prune_record *record, struct hf_store_error *error)
{
    struct hf_param params[14] = {
        hf_param_integer(segment_id),
        hf_param_integer(record->number),
        hf_param_integer(record->made_ms),
        hf_param_text(record->made_by),
        hf_param_integer(record->first_seq),
        hf_param_integer(record->next_seq),
        hf_param_integer(record->rows_cnt),
        hf_param_integer(record->kept_cnt),
        hf_param_integer(record->batch_number),
        hf_param_integer(record->rollup_number),
        hf_param_bytes(record->batch_digest, HF_DIGEST_BYTES),
        hf_param_bytes(record->rollup_digest, HF_DIGEST_BYTES),
        hf_param_bytes(record->before, HF_DIGEST_BYTES),
        hf_param_bytes(record->digest, HF_DIGEST_BYTES),
    };

    return store->ops->query(store,
                             "INSERT INTO prune (segment_id, " HF_PRUNE_COLUMNS
                             ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
                             params, 14, NULL, NULL, error);
}

/* ---- the digest --------------------------------------------------------------------------------------------------- */

struct reading {
    struct hf_store *store;
    struct hf_store_error *error;
    int64_t cnt;
};

static enum hf_store_status failed(struct hf_store_error *error)
{
    return hf_store_fail(error, HF_STORE_NOMEM,
                         "the digest of a prune failed: no memory, or libcrypto failed");
}

/* What its digest was over is gone with its rows. */
static enum hf_store_status read_batch(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct reading *reading = ctx;
    struct hf_digest *digest = reading->store->digest;
    uint8_t bytes[HF_DIGEST_BYTES];

    (void)cnt;
    digest_of(&columns[4], bytes);
    return hf_digest_line_number(digest, "batch", columns[0].integer) &&
                   hf_digest_line_number(digest, "epoch", columns[1].integer) &&
                   hf_digest_line_number(digest, "rows_cnt", columns[2].integer) &&
                   hf_digest_line_number(digest, "committed_ms", columns[3].integer) &&
                   hf_digest_line_digest(digest, "digest", bytes)
               ? HF_STORE_OK
               : failed(reading->error);
}

static enum hf_store_status read_kept(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct reading *reading = ctx;
    uint8_t digest[HF_DIGEST_BYTES];

    (void)cnt;
    reading->cnt++;
    digest_of(&columns[1], digest);
    return hf_digest_line_digest(reading->store->digest, "kept", digest) ? HF_STORE_OK
                                                                         : failed(reading->error);
}

static bool head(struct hf_digest *digest, const char *segment, const struct hf_prune_record *record)
{
    return hf_digest_lines_begin(digest, "holdfast/prune@1") &&
           hf_digest_line_text(digest, "segment", segment, strlen(segment)) &&
           hf_digest_line_number(digest, "number", record->number) &&
           hf_digest_line_number(digest, "made_ms", record->made_ms) &&
           hf_digest_line_text(digest, "made_by", record->made_by, strlen(record->made_by)) &&
           hf_digest_line_number(digest, "first_seq", record->first_seq) &&
           hf_digest_line_number(digest, "next_seq", record->next_seq) &&
           hf_digest_line_number(digest, "rows_cnt", record->rows_cnt) &&
           hf_digest_line_number(digest, "kept_cnt", record->kept_cnt) &&
           hf_digest_line_number(digest, "batch_number", record->batch_number) &&
           hf_digest_line_digest(digest, "batch_digest", record->batch_digest) &&
           hf_digest_line_number(digest, "rollup_number", record->rollup_number) &&
           hf_digest_line_digest(digest, "rollup_digest", record->rollup_digest) &&
           hf_digest_line_digest(digest, "before", record->before);
}

enum hf_store_status hf_prune_digest(struct hf_store *store, int64_t segment_id, const char *segment,
                                     const struct hf_prune_record *record, int64_t batch_before,
                                     int64_t *kept_cnt, uint8_t digest[HF_DIGEST_BYTES],
                                     struct hf_store_error *error)
{
    struct reading reading = {.store = store, .error = error};
    struct hf_param batches[3] = {hf_param_integer(segment_id), hf_param_integer(batch_before),
                                  hf_param_integer(record->batch_number)};
    struct hf_param rows[3] = {hf_param_integer(segment_id), hf_param_integer(record->first_seq),
                               hf_param_integer(record->next_seq)};
    enum hf_store_status status = head(store->digest, segment, record) ? HF_STORE_OK : failed(error);

    if (status == HF_STORE_OK) {
        status = store->ops->query(store,
                                   "SELECT number, epoch, rows_cnt, committed_ms, digest FROM batch "
                                   "WHERE segment_id = $1 AND number > $2 AND number <= $3 ORDER BY number",
                                   batches, 3, read_batch, &reading, error);
    }
    if (status == HF_STORE_OK) {
        status = store->ops->query(
            store,
            "SELECT seq, digest FROM kept WHERE segment_id = $1 AND seq >= $2 AND seq < $3 UNION ALL "
            "SELECT seq, digest FROM conflict WHERE segment_id = $1 AND seq >= $2 AND seq < $3 ORDER BY 1, 2",
            rows, 3, read_kept, &reading, error);
    }
    *kept_cnt = reading.cnt;
    if (status == HF_STORE_OK && !hf_digest_lines_end(store->digest, digest)) {
        status = failed(error);
    }
    return status;
}
