/* Retention: a segment's part of a step. */
#include "persist/prune_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SQL_BYTES 8192
#define RARE      "kind IN ('epoch', 'policy', 'credit')"

static enum hf_store_status one(const struct hf_prune_part *part, const struct hf_prune_segment *s,
                                const char *sql, int64_t from, int64_t *integer, struct hf_store_error *error)
{
    struct hf_param params[3] = {hf_param_integer(s->segment_id), hf_param_integer(from),
                                 hf_param_integer(s->next_seq)};

    return part->store->ops->query(part->store, sql, params, 3, hf_store_one_integer, integer, error);
}

enum hf_store_status hf_prune_end(struct hf_store *store, struct hf_prune_segment *s, int64_t until,
                                  struct hf_store_error *error)
{
    struct hf_param params[2] = {hf_param_integer(s->segment_id), hf_param_integer(until)};
    int64_t next_seq = 0;
    enum hf_store_status status = store->ops->query(
        store,
        "SELECT first_seq + rows_cnt FROM batch WHERE segment_id = $1 AND first_seq + rows_cnt <= $2 "
        "ORDER BY number DESC LIMIT 1",
        params, 2, hf_store_one_integer, &next_seq, error);

    s->next_seq = next_seq > s->last.next_seq ? next_seq : s->last.next_seq;
    return status;
}

/* Moves what is kept of a segment's receipts. */
static enum hf_store_status keep(const struct hf_prune_part *part, const struct hf_prune_segment *s,
                                 struct hf_store_error *error)
{
    char columns[SQL_BYTES / 4];
    char sql[SQL_BYTES];
    size_t len = (size_t)snprintf(columns, sizeof(columns), "segment_id");
    struct hf_param params[4] = {hf_param_integer(s->segment_id), hf_param_integer(part->from),
                                 hf_param_integer(part->until), hf_param_integer(s->next_seq)};

    for (size_t i = 0; i < hf_receipt_fields() && len < sizeof(columns); i++) {
        len += (size_t)snprintf(columns + len, sizeof(columns) - len, ", %s", hf_receipt_field(i)->name);
    }
    if (len >= sizeof(columns)) {
        return hf_store_fail(error, HF_STORE_INVALID, "a statement that is too long");
    }
    (void)snprintf(
        sql, sizeof(sql),
        "INSERT INTO kept (%s) SELECT %s FROM receipt WHERE segment_id = $1 AND seq >= $2 AND seq < $3 "
        "AND (" RARE " OR seq >= $4)",
        columns, columns);
    return part->store->ops->query(part->store, sql, params, 4, NULL, NULL, error);
}

static enum hf_store_status read_batch(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct hf_prune_record *record = ctx;

    (void)cnt;
    record->batch_number = columns[0].integer;
    if (columns[1].len == HF_DIGEST_BYTES) {
        memcpy(record->batch_digest, columns[1].bytes, HF_DIGEST_BYTES);
    }
    return HF_STORE_OK;
}

/* The record over [s->last.next_seq, s->next_seq), after what is kept was moved. */
static enum hf_store_status write_record(const struct hf_prune_part *part, struct hf_prune_segment *s,
                                         struct hf_prune_record *record, struct hf_store_error *error)
{
    struct hf_store *store = part->store;
    struct hf_param params[2] = {hf_param_integer(s->segment_id), hf_param_integer(s->next_seq)};
    enum hf_store_status status;

    (void)snprintf(record->made_by, sizeof(record->made_by), "%.*s", HF_PRUNE_BY_BYTES - 1,
                   part->options->made_by);
    memcpy(record->rollup_digest, s->rollup.digest, HF_DIGEST_BYTES);
    memcpy(record->before, s->last.digest, HF_DIGEST_BYTES);
    status = store->ops->query(store,
                               "SELECT number, digest FROM batch WHERE segment_id = $1 "
                               "AND first_seq + rows_cnt = $2 ORDER BY number DESC LIMIT 1",
                               params, 2, read_batch, record, error);
    /* Twice: the count is part of what the digest is over. */
    for (int i = 0; i < 2 && status == HF_STORE_OK; i++) {
        status = hf_prune_digest(store, s->segment_id, s->name, record, s->last.batch_number,
                                 &record->kept_cnt, record->digest, error);
    }
    return status == HF_STORE_OK ? hf_prune_insert(store, s->segment_id, record, error) : status;
}

/* Whether all receipts are there that should be. */
static enum hf_store_status look_for_missing(const struct hf_prune_part *part,
                                             const struct hf_prune_segment *s, struct hf_store_error *error)
{
    int64_t there = 0;
    enum hf_store_status status =
        one(part, s,
            "SELECT count(DISTINCT seq) FROM every_receipt WHERE segment_id = $1 AND seq >= $2 AND seq < $3",
            s->last.next_seq, &there, error);
    int64_t missing = s->next_seq - s->last.next_seq - there;

    if (status == HF_STORE_OK && missing != 0) {
        return hf_store_fail(error, HF_STORE_REFUSED,
                             "%" PRId64 " receipts of '%s' before %" PRId64
                             " are missing and were not pruned. Run: holdfast verify",
                             missing, s->name, s->next_seq);
    }
    return status;
}

enum hf_store_status hf_prune_take_part(const struct hf_prune_part *part, struct hf_prune_segment *s,
                                        struct hf_prune_step *step, struct hf_store_error *error)
{
    struct hf_prune_record record = {.number = s->last.number + 1,
                                     .made_ms = (int64_t)part->now_ms,
                                     .first_seq = s->last.next_seq,
                                     .next_seq = s->next_seq,
                                     .rollup_number = hf_store_signed(s->rollup.number)};
    enum hf_store_status status = HF_STORE_OK;
    bool ends = s->next_seq > s->last.next_seq; /* a batch, and so a record */

    if (ends) {
        status = look_for_missing(part, s, error);
    }
    if (status == HF_STORE_OK && ends) {
        status =
            one(part, s,
                "SELECT count(*) FROM receipt WHERE segment_id = $1 AND seq >= $2 AND seq < $3 AND NOT (" RARE
                ")",
                part->from > s->last.next_seq ? part->from : s->last.next_seq, &record.rows_cnt, error);
    }
    if (status == HF_STORE_OK && !part->options->dry_run) {
        status = keep(part, s, error);
    }
    if (status == HF_STORE_OK && ends && !part->options->dry_run) {
        status = write_record(part, s, &record, error);
    }
    if (status == HF_STORE_OK && ends) {
        step->rows_cnt += (uint64_t)record.rows_cnt;
        step->kept_cnt += (uint64_t)(record.next_seq - record.first_seq - record.rows_cnt);
        s->last = record;
    }
    return status;
}
