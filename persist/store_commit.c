/* Committing a batch: chain, fence, references and digests, the same for every store. */
#include "persist/escape.h"
#include "persist/store_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What an attempt changes in a row, to be put back when it did not happen. */
struct saved {
    uint64_t reservation_seq;
    uint8_t reservation_digest[HF_DIGEST_BYTES];
    bool conflict;
};

/* An id of this batch. */
struct id_entry {
    const struct hf_name *id; /* NULL: free place */
    size_t newest;            /* 1 + index of the newest reservation of the batch under it; 0: none yet */
    size_t lookup;            /* 1 + index of its lookup; 0: none wanted */
};

struct attempt {
    struct hf_store *store;
    struct hf_store_batch *batch;
    struct hf_receipt *rows;
    size_t rows_cnt;
    struct hf_store_report *report;
    struct hf_store_error *error;
    struct id_entry *ids; /* open addressing */
    size_t ids_mask;
    struct hf_lookup *lookups;
    size_t lookups_cnt;
};

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static enum hf_store_status check_row(const struct hf_store_batch *batch, const struct hf_receipt *row,
                                      size_t i, struct hf_store_error *error)
{
    bool family = hf_receipt_in_family(row->kind);
    char scratch[HF_RECEIPT_BUCKETS_BYTES];

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
    for (size_t f = 0; f < hf_receipt_fields(); f++) {
        const struct hf_field *field = hf_receipt_field(f);
        struct hf_field_value value;

        if (field->type != HF_FIELD_NUMBER && field->type != HF_FIELD_SIGNED) {
            continue;
        }
        hf_receipt_get(row, f, &value, scratch);
        if (!value.null && field->type == HF_FIELD_NUMBER && value.number > INT64_MAX) {
            return hf_store_fail(error, HF_STORE_INVALID, "receipt %" PRIu64 ": %s is out of range", row->seq,
                                 field->name);
        }
    }
    return HF_STORE_OK;
}

static enum hf_store_status check_arguments(const struct hf_store *store, const struct hf_store_batch *batch,
                                            const struct hf_receipt *rows, size_t rows_cnt,
                                            struct hf_store_error *error)
{
    enum hf_store_status status = HF_STORE_OK;

    if (store->segment.len == 0) {
        return hf_store_fail(error, HF_STORE_INVALID, "a batch needs the lock of its segment's name");
    }
    if (rows_cnt == 0 || rows_cnt > HF_STORE_ROWS_MAX || batch->number == 0 || batch->number > INT64_MAX ||
        batch->epoch > INT64_MAX || batch->first_seq == 0 || batch->first_seq > INT64_MAX - rows_cnt ||
        batch->committed_ms > INT64_MAX) {
        return hf_store_fail(error, HF_STORE_INVALID, "batch %" PRIu64 " of %zu rows is out of range",
                             batch->number, rows_cnt);
    }
    for (size_t i = 0; i < rows_cnt && status == HF_STORE_OK; i++) {
        status = check_row(batch, &rows[i], i, error);
    }
    return status;
}

/* ---- the ids of a batch -------------------------------------------------------------------------------------------- */

static struct id_entry *entry_of(struct attempt *a, const struct hf_name *id)
{
    size_t at = (size_t)hf_name_hash(id->bytes, id->len, a->batch->number) & a->ids_mask;

    while (a->ids[at].id != NULL && !hf_name_equal(a->ids[at].id, id)) {
        at = (at + 1) & a->ids_mask;
    }
    a->ids[at].id = id;
    return &a->ids[at];
}

/* True when the row names a reservation that an earlier row of this batch is. */
static bool refers_inside(const struct attempt *a, const struct hf_receipt *row)
{
    return row->reservation_seq >= a->batch->first_seq && row->reservation_seq < row->seq;
}

/* True when what the row says of its reservation is not enough: the newest one under its id is meant. */
static bool refers_by_id(const struct attempt *a, const struct hf_receipt *row)
{
    static const uint8_t none[HF_DIGEST_BYTES];

    return row->reservation_seq == HF_UNKNOWN ||
           (!refers_inside(a, row) && memcmp(row->reservation_digest, none, HF_DIGEST_BYTES) == 0);
}

/* Lists the ids to look up: of reservations (the fence) and of rows whose reservation is told by its id alone. */
static enum hf_store_status plan(struct attempt *a)
{
    size_t places = 64;

    while (places < 2 * a->rows_cnt) {
        places *= 2;
    }
    a->ids = calloc(places, sizeof(*a->ids));
    a->lookups = calloc(a->rows_cnt, sizeof(*a->lookups));
    if (a->ids == NULL || a->lookups == NULL) {
        return hf_store_fail(a->error, HF_STORE_NOMEM, "no memory for a batch of %zu rows", a->rows_cnt);
    }
    a->ids_mask = places - 1;
    for (size_t i = 0; i < a->rows_cnt; i++) {
        const struct hf_receipt *row = &a->rows[i];
        struct id_entry *entry;

        if (!hf_receipt_in_family(row->kind) ||
            (row->kind != HF_RECEIPT_RESERVATION && !refers_by_id(a, row))) {
            continue;
        }
        entry = entry_of(a, &row->id);
        if (entry->lookup == 0 && entry->newest == 0) {
            a->lookups[a->lookups_cnt++].id = &row->id;
            entry->lookup = a->lookups_cnt;
        }
        if (row->kind == HF_RECEIPT_RESERVATION) {
            entry->newest = i + 1;
        }
    }
    for (size_t i = 0; i <= a->ids_mask; i++) {
        a->ids[i].newest = 0; /* filled again, row by row, by refer */
    }
    return HF_STORE_OK;
}

static void refer_to(struct hf_receipt *row, uint64_t seq, const uint8_t *digest, bool conflict)
{
    row->reservation_seq = seq;
    memcpy(row->reservation_digest, digest, HF_DIGEST_BYTES);
    row->conflict = row->conflict || conflict;
}

/* Fills in conflict and the reference of row i; the rows before it have their digests. */
static void refer(struct attempt *a, size_t i)
{
    struct hf_receipt *row = &a->rows[i];
    struct id_entry *entry;
    const struct hf_lookup *lookup;

    if (!hf_receipt_in_family(row->kind)) {
        return;
    }
    if (row->kind != HF_RECEIPT_RESERVATION && !refers_by_id(a, row)) {
        if (refers_inside(a, row)) {
            const struct hf_receipt *reserved = &a->rows[row->reservation_seq - a->batch->first_seq];

            refer_to(row, reserved->seq, reserved->digest, reserved->conflict);
        }
        return;
    }
    entry = entry_of(a, &row->id);
    lookup = &a->lookups[entry->lookup - 1];
    if (row->kind == HF_RECEIPT_RESERVATION) {
        row->reservation_seq = row->seq;
        memset(row->reservation_digest, 0, HF_DIGEST_BYTES);
        if (entry->newest != 0 || lookup->found) {
            row->conflict = true;
            row->fate = row->escaped ? HF_FATE_NONE : HF_FATE_CONFLICT;
            a->report->conflicts_cnt += row->fate == HF_FATE_CONFLICT;
        }
        entry->newest = i + 1;
    } else if (entry->newest != 0) {
        const struct hf_receipt *reserved = &a->rows[entry->newest - 1];

        refer_to(row, reserved->seq, reserved->digest, reserved->conflict);
    } else if (lookup->found) {
        refer_to(row, lookup->seq, lookup->digest, lookup->conflict);
    } else {
        row->reservation_seq = HF_UNKNOWN;
        a->report->orphans_cnt++;
    }
}

/* ---- digests ------------------------------------------------------------------------------------------------------- */

enum hf_store_status hf_store_no_digest(struct hf_store_error *error)
{
    return hf_store_fail(error, HF_STORE_NOMEM,
                         "the digests of a batch failed: no memory, or libcrypto failed");
}

/* The batch's digest from the digests of its rows. */
static bool digest_batch(struct attempt *a, uint64_t committed_ms, uint8_t out[HF_DIGEST_BYTES])
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

static bool digest_row(struct attempt *a, size_t i)
{
    return hf_digest_receipt(a->store->digest, a->store->segment.bytes, &a->rows[i], a->rows[i].digest);
}

/* hf_store_rows.complete */
static bool complete(void *ctx, size_t i)
{
    struct attempt *a = ctx;

    refer(a, i);
    return digest_row(a, i);
}

/* ---- the number is there already ----------------------------------------------------------------------------------- */

/* Takes over what the stored row says of things that only the commit knows. */
static enum hf_store_status take_over(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct attempt *a = ctx;
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
static enum hf_store_status already_or_taken(struct attempt *a)
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

static void fault(struct attempt *a, const char *point)
{
    if (a->store->options.fault != NULL) {
        a->store->options.fault(a->store->options.fault_ctx, point, a->store->ops->socket(a->store));
    }
}

static enum hf_store_status compare_chain(struct attempt *a, const struct hf_store_head *head)
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

static enum hf_store_status insert_batch(struct attempt *a)
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

/* A commit is never earlier than what it commits: readers go from an instant to the first batch that can hold rows of it. */
static void raise_time(struct attempt *a, uint64_t before_ms)
{
    if (a->batch->committed_ms < before_ms) {
        a->batch->committed_ms = before_ms;
    }
    for (size_t i = 0; i < a->rows_cnt; i++) {
        const struct hf_receipt *row = &a->rows[i];

        if (a->batch->committed_ms < row->made_ms) {
            a->batch->committed_ms = row->made_ms;
        }
        if (row->window_ms != HF_UNKNOWN && a->batch->committed_ms < row->window_ms) {
            a->batch->committed_ms = row->window_ms;
        }
    }
}

static enum hf_store_status write_rows(struct attempt *a, uint64_t before_ms)
{
    const struct hf_store_ops *ops = a->store->ops;
    enum hf_store_status status = plan(a);

    raise_time(a, before_ms);
    if (status == HF_STORE_OK && a->lookups_cnt > 0) {
        status = ops->lookup(a->store, a->lookups, a->lookups_cnt, a->error);
    }
    if (status == HF_STORE_OK) {
        struct hf_store_rows rows = {.list = a->rows, .cnt = a->rows_cnt, .complete = complete, .ctx = a};

        fault(a, "rows");
        a->batch->rows_cnt = a->rows_cnt;
        status = ops->insert(a->store, a->batch, &rows, a->report, a->error);
    }
    if (status == HF_STORE_OK && !digest_batch(a, a->batch->committed_ms, a->batch->digest)) {
        status = hf_store_no_digest(a->error);
    }
    return status == HF_STORE_OK ? insert_batch(a) : status;
}

static enum hf_store_status attempt(struct attempt *a)
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

static void put_back(struct attempt *a, const struct saved *saved, const struct hf_store_batch *batch)
{
    *a->batch = *batch;
    for (size_t i = 0; i < a->rows_cnt; i++) {
        a->rows[i].reservation_seq = saved[i].reservation_seq;
        memcpy(a->rows[i].reservation_digest, saved[i].reservation_digest, HF_DIGEST_BYTES);
        a->rows[i].conflict = saved[i].conflict;
        a->rows[i].fate = HF_FATE_NONE;
    }
}

enum hf_store_status hf_store_commit(struct hf_store *store, struct hf_store_batch *batch,
                                     struct hf_receipt *rows, size_t rows_cnt, struct hf_store_report *report,
                                     struct hf_store_error *error)
{
    struct hf_store_report unwanted;
    struct attempt a = {
        .store = store,
        .batch = batch,
        .rows = rows,
        .rows_cnt = rows_cnt,
        .report = report == NULL ? &unwanted : report,
        .error = error,
    };
    struct hf_store_batch given = *batch;
    struct saved *saved;
    enum hf_store_status status = check_arguments(store, batch, rows, rows_cnt, error);

    memset(a.report, 0, sizeof(*a.report));
    if (status != HF_STORE_OK) {
        return status;
    }
    saved = calloc(rows_cnt, sizeof(*saved));
    if (saved == NULL) {
        return hf_store_fail(error, HF_STORE_NOMEM, "no memory for a batch of %zu rows", rows_cnt);
    }
    for (size_t i = 0; i < rows_cnt; i++) {
        saved[i].reservation_seq = rows[i].reservation_seq;
        memcpy(saved[i].reservation_digest, rows[i].reservation_digest, HF_DIGEST_BYTES);
        saved[i].conflict = rows[i].conflict;
        rows[i].fate = HF_FATE_NONE;
        hf_escape_row(&rows[i]);
    }
    status = attempt(&a);
    if (status != HF_STORE_OK && status != HF_STORE_UNKNOWN) {
        put_back(&a, saved, &given);
    }
    free(saved);
    free(a.ids);
    free(a.lookups);
    return status;
}
