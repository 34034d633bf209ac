/* Committing a batch: chain, attempts and digests, the same for every store. */
#include "persist/escape.h"
#include "persist/store_attempt.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* After an optimistic attempt that was in vain, so many batches are not: ids that come again rarely come alone. */
#define CAREFUL_BATCHES 16

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static enum hf_store_status check_row(const struct hf_store_batch *batch, const struct hf_receipt *row,
                                      size_t i, struct hf_store_error *error)
{
    bool family = hf_receipt_in_family(row->kind);
    const struct hf_field *beyond;

    if ((unsigned)row->kind >= HF_RECEIPT_KIND_CNT || row->epoch != batch->epoch ||
        row->seq != batch->first_seq + i || row->made_ms > INT64_MAX) {
        return hf_store_fail(error, HF_STORE_INVALID,
                             "row %zu of batch %" PRIu64 " has a wrong kind, epoch, seq or time", i,
                             batch->number);
    }
    if (family && (row->id.len == 0 || row->tenant.len == 0 || row->window_ms > INT64_MAX ||
                   row->bucket_mask > INT64_MAX)) {
        return hf_store_fail(error, HF_STORE_INVALID,
                             "receipt %" PRIu64 " has no id, tenant, window or buckets", row->seq);
    }
    beyond = hf_receipt_beyond(row);
    return beyond == NULL ? HF_STORE_OK
                          : hf_store_fail(error, HF_STORE_INVALID, "receipt %" PRIu64 ": %s is out of range",
                                          row->seq, beyond->name);
}

static enum hf_store_status check_batch(const struct hf_store *store, const struct hf_store_batch *batch,
                                        size_t rows_cnt, struct hf_store_error *error)
{
    if (store->segment.len == 0) {
        return hf_store_fail(error, HF_STORE_INVALID, "a batch needs the lock of its segment's name");
    }
    if (rows_cnt == 0 || rows_cnt > HF_STORE_ROWS_MAX || batch->number == 0 || batch->number > INT64_MAX ||
        batch->epoch > INT64_MAX || batch->first_seq == 0 || batch->first_seq > INT64_MAX - rows_cnt ||
        batch->committed_ms > INT64_MAX) {
        return hf_store_fail(error, HF_STORE_INVALID, "batch %" PRIu64 " of %zu rows is out of range",
                             batch->number, rows_cnt);
    }
    return HF_STORE_OK;
}

static void raise_to(uint64_t *ms, uint64_t other_ms)
{
    if (*ms < other_ms) {
        *ms = other_ms;
    }
}

/* Checks the rows and saves what an attempt changes in them; makes names storable. One pass: rows are large. */
static enum hf_store_status take_rows(struct hf_attempt *a)
{
    for (size_t i = 0; i < a->rows_cnt; i++) {
        struct hf_receipt *row = &a->rows[i];
        struct hf_saved *saved = &a->saved[i];
        enum hf_store_status status = check_row(a->batch, row, i, a->error);

        if (status != HF_STORE_OK) {
            return status;
        }
        saved->reservation_seq = row->reservation_seq;
        memcpy(saved->reservation_digest, row->reservation_digest, HF_DIGEST_BYTES);
        saved->conflict = row->conflict;
        row->fate = HF_FATE_NONE;
        raise_to(&a->newest_ms, row->made_ms);
        raise_to(&a->newest_ms, row->window_ms == HF_UNKNOWN ? 0 : row->window_ms);
        hf_escape_row(row);
    }
    return HF_STORE_OK;
}

/* ---- digests ------------------------------------------------------------------------------------------------------- */

enum hf_store_status hf_store_no_digest(struct hf_store_error *error)
{
    return hf_store_fail(error, HF_STORE_NOMEM,
                         "the digests of a batch failed: no memory, or libcrypto failed");
}

/* The batch's digest from the digests of its rows. */
static bool digest_batch(struct hf_attempt *a, uint64_t committed_ms, uint8_t out[HF_DIGEST_BYTES])
{
    struct hf_digest_batch header = {
        .number = a->batch->number,
        .epoch = a->batch->epoch,
        .first_seq = a->batch->first_seq,
        .rows_cnt = a->rows_cnt,
        .committed_ms = committed_ms,
        .before = a->batch->before,
    };

    if (!hf_digest_batch_begin(a->store->digest, a->store->segment.bytes, &header)) {
        return false;
    }
    for (size_t i = 0; i < a->rows_cnt; i++) {
        if (!hf_digest_batch_add(a->store->digest, a->rows[i].digest)) {
            return false;
        }
    }
    return hf_digest_batch_end(a->store->digest, out);
}

static bool digest_row(struct hf_attempt *a, size_t i)
{
    return hf_digest_receipt(a->store->digest, a->store->segment.bytes, &a->rows[i], a->rows[i].digest);
}

/* hf_store_rows.complete */
static bool complete(void *ctx, size_t i)
{
    struct hf_attempt *a = ctx;

    hf_refer(a, i);
    /* The batch's with the last row's: the server still has rows to write then. */
    return digest_row(a, i) &&
           (i + 1 < a->rows_cnt || digest_batch(a, a->batch->committed_ms, a->batch->digest));
}

/* ---- the number is there already ----------------------------------------------------------------------------------- */

/* Takes over what the stored row says of things that only the commit knows. */
static enum hf_store_status take_over(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct hf_attempt *a = ctx;
    uint64_t i = (uint64_t)columns[0].integer - a->batch->first_seq;
    struct hf_receipt *row;

    (void)cnt;
    if (i >= a->rows_cnt) {
        return HF_STORE_OK;
    }
    row = &a->rows[i];
    row->conflict = columns[1].integer != 0;
    row->reservation_seq = columns[2].null ? HF_UNKNOWN : (uint64_t)columns[2].integer;
    memset(row->reservation_digest, 0, HF_DIGEST_BYTES);
    if (!columns[3].null && columns[3].len == HF_DIGEST_BYTES) {
        memcpy(row->reservation_digest, columns[3].bytes, HF_DIGEST_BYTES);
    }
    row->fate = columns[4].integer != 0 ? HF_FATE_ASIDE : HF_FATE_STORED;
    if (row->conflict && row->kind == HF_RECEIPT_RESERVATION && row->fate == HF_FATE_STORED) {
        row->fate = HF_FATE_CONFLICT;
    }
    a->report->conflicts_cnt += row->fate == HF_FATE_CONFLICT;
    a->report->aside_cnt += row->fate == HF_FATE_ASIDE;
    return HF_STORE_OK;
}

/* The batch's number is in the store: our own batch, whose answer was lost, or somebody else's. */
static enum hf_store_status already_or_taken(struct hf_attempt *a)
{
    struct hf_store_batch there;
    bool found = false;
    uint8_t digest[HF_DIGEST_BYTES];
    struct hf_param params[3] = {
        hf_param_integer(a->store->segment_id),
        hf_param_integer((int64_t)a->batch->first_seq),
        hf_param_integer((int64_t)(a->batch->first_seq + a->rows_cnt)),
    };
    enum hf_store_status status =
        hf_store_batch_of(a->store, a->store->segment_id, a->batch->number, &found, &there, a->error);

    if (status == HF_STORE_OK && found && there.epoch == a->batch->epoch &&
        there.first_seq == a->batch->first_seq && there.rows_cnt == a->rows_cnt &&
        memcmp(there.before, a->batch->before, HF_DIGEST_BYTES) == 0) {
        status = a->store->ops->query(
            a->store,
            "SELECT seq, conflict, reservation_seq, reservation_digest, aside FROM every_receipt "
            "WHERE segment_id = $1 AND seq >= $2 AND seq < $3",
            params, 3, take_over, a, a->error);
        for (size_t i = 0; i < a->rows_cnt && status == HF_STORE_OK; i++) {
            status = digest_row(a, i) ? HF_STORE_OK : hf_store_no_digest(a->error);
        }
        if (status == HF_STORE_OK && !digest_batch(a, there.committed_ms, digest)) {
            status = hf_store_no_digest(a->error);
        }
        if (status == HF_STORE_OK && memcmp(digest, there.digest, HF_DIGEST_BYTES) == 0) {
            *a->batch = there;
            a->report->already = true;
            return HF_STORE_OK;
        }
    }
    if (status != HF_STORE_OK) {
        return status;
    }
    return hf_store_fail(a->error, HF_STORE_TAKEN,
                         "another daemon took over the name '%s' in the store %s: batch %" PRIu64
                         " is there with other content (epoch %" PRIu64 ", ours is %" PRIu64
                         "). This segment is superseded and spends nothing any more",
                         a->store->segment.bytes, a->store->display, a->batch->number,
                         found ? there.epoch : 0, a->batch->epoch);
}

/* ---- one attempt --------------------------------------------------------------------------------------------------- */

static void fault(struct hf_attempt *a, const char *point)
{
    if (a->store->options.fault != NULL) {
        a->store->options.fault(a->store->options.fault_ctx, point, a->store->ops->socket(a->store));
    }
}

static enum hf_store_status compare_chain(struct hf_attempt *a, const struct hf_store_head *head)
{
    if (head->last.number + 1 == a->batch->number &&
        memcmp(head->last.digest, a->batch->before, HF_DIGEST_BYTES) == 0) {
        if (head->next_seq != a->batch->first_seq) {
            return hf_store_fail(a->error, HF_STORE_INVALID,
                                 "batch %" PRIu64 " begins at receipt %" PRIu64
                                 ", the store goes on at %" PRIu64,
                                 a->batch->number, a->batch->first_seq, head->next_seq);
        }
        return HF_STORE_OK;
    }
    return hf_store_fail(
        a->error, HF_STORE_BEHIND,
        "the store %s has lost receipts: its chain of '%s' ends at batch %" PRIu64
        ", not at the batch %" PRIu64
        " that was committed. Was it restored from a backup, or did a standby take over that lagged? "
        "Run: holdfast recover",
        a->store->display, a->store->segment.bytes, head->last.number, a->batch->number - 1);
}

static enum hf_store_status insert_batch(struct hf_attempt *a)
{
    const struct hf_store_batch *batch = a->batch;
    struct hf_param params[8] = {
        hf_param_integer(a->store->segment_id),         hf_param_integer((int64_t)batch->number),
        hf_param_integer((int64_t)batch->epoch),        hf_param_integer((int64_t)batch->first_seq),
        hf_param_integer((int64_t)batch->rows_cnt),     hf_param_integer((int64_t)batch->committed_ms),
        hf_param_bytes(batch->before, HF_DIGEST_BYTES), hf_param_bytes(batch->digest, HF_DIGEST_BYTES),
    };

    return a->store->ops->query(
        a->store,
        "INSERT INTO batch (segment_id, number, epoch, first_seq, rows_cnt, committed_ms, before, digest) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        params, 8, NULL, NULL, a->error);
}

static enum hf_store_status write_rows(struct hf_attempt *a, uint64_t before_ms)
{
    const struct hf_store_ops *ops = a->store->ops;
    struct hf_store_rows rows = {.list = a->rows, .cnt = a->rows_cnt, .complete = complete, .ctx = a};
    enum hf_store_status status = HF_STORE_OK;

    /* A commit is never earlier than what it commits: readers go from an instant to the first batch that can hold rows of it. */
    raise_to(&a->batch->committed_ms, before_ms);
    raise_to(&a->batch->committed_ms, a->newest_ms);
    a->batch->rows_cnt = a->rows_cnt;
    if (ops->fence != NULL) {
        status =
            ops->fence(a->store, a->batch->first_seq, a->batch->first_seq + a->rows_cnt, &a->fence, a->error);
    }
    if (status == HF_STORE_OK) {
        status = hf_plan_lookups(a);
    }
    if (status == HF_STORE_OK) {
        status = hf_look_up(a);
    }
    if (status == HF_STORE_OK) {
        fault(a, "rows");
        rows.optimistic = hf_optimistic(a);
        status = ops->insert(a->store, a->batch, &rows, a->report, a->error);
        a->refused = rows.refused;
    }
    return status == HF_STORE_OK ? insert_batch(a) : status;
}

static enum hf_store_status attempt(struct hf_attempt *a)
{
    const struct hf_store_ops *ops = a->store->ops;
    struct hf_store_head head;
    enum hf_store_status status = hf_store_ensure(a->store, a->error);

    if (status != HF_STORE_OK) {
        return status;
    }
    fault(a, "begin");
    status = ops->begin(a->store, a->error);
    if (status == HF_STORE_OK) {
        status = hf_store_chain(a->store, a->store->segment_id, &head, a->error);
    }
    if (status == HF_STORE_OK && head.last.number >= a->batch->number) {
        status = already_or_taken(a);
        ops->rollback(a->store);
        return status;
    }
    if (status == HF_STORE_OK) {
        status = compare_chain(a, &head);
    }
    if (status == HF_STORE_OK) {
        status = write_rows(a, head.last.committed_ms);
    }
    if (status == HF_STORE_OK) {
        fault(a, "before-commit");
        status = ops->commit(a->store, a->error);
    }
    if (status != HF_STORE_OK) {
        ops->rollback(a->store);
    }
    return status;
}

static void put_back(struct hf_attempt *a)
{
    *a->batch = a->given;
    for (size_t i = 0; i < a->rows_cnt; i++) {
        a->rows[i].reservation_seq = a->saved[i].reservation_seq;
        memcpy(a->rows[i].reservation_digest, a->saved[i].reservation_digest, HF_DIGEST_BYTES);
        a->rows[i].conflict = a->saved[i].conflict;
        a->rows[i].fate = HF_FATE_NONE;
    }
}

/* Optimistic where that may do, and else, or when that was in vain, with all ids looked up and refused rows put aside. */
static enum hf_store_status attempts(struct hf_attempt *a)
{
    enum hf_store_status status;

    a->careful = a->store->careful_cnt > 0;
    a->store->careful_cnt -= a->careful;
    status = attempt(a);
    if (a->refused) {
        put_back(a);
        memset(a->report, 0, sizeof(*a->report));
        a->refused = false;
        a->careful = true;
        a->store->careful_cnt = CAREFUL_BATCHES;
        status = attempt(a);
    }
    return status;
}

enum hf_store_status hf_store_commit(struct hf_store *store, struct hf_store_batch *batch,
                                     struct hf_receipt *rows, size_t rows_cnt, struct hf_store_report *report,
                                     struct hf_store_error *error)
{
    struct hf_store_report unwanted;
    struct hf_attempt a = {
        .store = store,
        .batch = batch,
        .rows = rows,
        .rows_cnt = rows_cnt,
        .report = report == NULL ? &unwanted : report,
        .error = error,
        .given = *batch,
    };
    enum hf_store_status status = check_batch(store, batch, rows_cnt, error);

    memset(a.report, 0, sizeof(*a.report));
    if (status != HF_STORE_OK) {
        return status;
    }
    a.saved = calloc(rows_cnt, sizeof(*a.saved));
    if (a.saved == NULL) {
        return hf_store_fail(error, HF_STORE_NOMEM, "no memory for a batch of %zu rows", rows_cnt);
    }
    status = take_rows(&a);
    if (status == HF_STORE_OK) {
        status = attempts(&a);
        if (status != HF_STORE_OK && status != HF_STORE_UNKNOWN) {
            put_back(&a);
        }
    }
    free(a.saved);
    hf_forget_ids(&a);
    return status;
}
