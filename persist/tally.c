#include "persist/tally.h"

#include "persist/meter.h"
#include "persist/store_impl.h"

#include <string.h>

#define MINUTE_MS 60000U

void hf_tally_start(struct hf_tally *tally, const struct hf_rollup *before)
{
    const struct hf_rollup copy = *before; /* may be the tally's own */

    hf_tally_drop(tally);
    tally->started = true;
    tally->before = copy;
    tally->next_seq = copy.next_seq;
    tally->last.number = copy.batch_number;
    tally->sums.values_cnt = HF_TALLY_SUM_VALUES;
    tally->meters.values_cnt = sizeof(struct hf_meter_change) / sizeof(int64_t);
    tally->open.values_cnt = 1;
}

void hf_tally_drop(struct hf_tally *tally)
{
    hf_tally_table_free(&tally->sums);
    hf_tally_table_free(&tally->meters);
    hf_tally_table_free(&tally->open);
    *tally = (struct hf_tally){.started = false};
}

/* ---- one receipt: the views sum_row and meter_row in C --------------------------------------------------------------- */

char *hf_tally_put_name(char *at, const char *bytes, size_t len)
{
    *at++ = (char)len;
    memcpy(at, bytes, len);
    return at + len;
}

static int64_t high(int64_t amount)
{
    return amount >> 32; /* rounds down, as the stores do */
}

static int64_t low(int64_t amount)
{
    return amount & INT64_C(0xffffffff);
}

static bool add_sum(struct hf_tally *tally, const struct hf_receipt *row)
{
    const struct hf_tally_sum sum = {.minute = row->window_ms / MINUTE_MS, .bucket_mask = row->bucket_mask};
    const int64_t values[HF_TALLY_SUM_VALUES] = {1,
                                                 row->held_invocations,
                                                 high(row->held_tokens),
                                                 low(row->held_tokens),
                                                 high(row->held_cost_micros),
                                                 low(row->held_cost_micros),
                                                 row->charged_invocations,
                                                 high(row->charged_tokens),
                                                 low(row->charged_tokens),
                                                 high(row->charged_cost_micros),
                                                 low(row->charged_cost_micros)};
    char key[HF_TALLY_KEY_BYTES];
    char *at = key + sizeof(sum);

    memcpy(key, &sum, sizeof(sum));
    at = hf_tally_put_name(at, row->tenant.bytes, row->tenant.len);
    at = hf_tally_put_name(at, row->team.bytes, row->team.len);
    at = hf_tally_put_name(at, row->key.bytes, row->key.len);
    return hf_tally_table_add(&tally->sums, key, (size_t)(at - key), values);
}

static bool add_meter(struct hf_tally *tally, const struct hf_receipt *row)
{
    struct hf_meter_change change;
    char key[HF_TALLY_KEY_BYTES];
    char *at = hf_tally_put_name(key, row->tenant.bytes, row->tenant.len);

    at = hf_tally_put_name(at, row->capability.bytes, row->capability.len);
    at = hf_tally_put_name(at, row->model.bytes, row->model.len);
    (void)hf_meter_change(row, &change); /* one that changes nothing is a row of zeros all the same */
    const int64_t values[] = {change.requests, change.failures, change.degraded, change.reserved_micros,
                              change.settled_micros};

    return hf_tally_table_add(&tally->meters, key, (size_t)(at - key), values);
}

static bool add_row(struct hf_tally *tally, const struct hf_receipt *row)
{
    bool counts = row->bucket_mask != HF_UNKNOWN;

    if (counts && row->window_ms != HF_UNKNOWN && !add_sum(tally, row)) {
        return false;
    }
    if (counts && !row->conflict && !add_meter(tally, row)) {
        return false;
    }
    return row->reservation_seq == HF_UNKNOWN ||
           hf_tally_table_add(&tally->open, &row->reservation_seq, sizeof(row->reservation_seq),
                              &row->held_invocations);
}

/* ---- batches --------------------------------------------------------------------------------------------------------- */

static bool fits(const struct hf_tally *tally, uint64_t next_seq)
{
    return hf_tally_empty(tally) || next_seq - tally->before.next_seq <= HF_ROLLUP_ROWS_MAX;
}

void hf_tally_batch(struct hf_tally *tally, const struct hf_store_batch *batch, const struct hf_receipt *rows)
{
    if (!tally->started || batch->first_seq != tally->next_seq) {
        return;
    }
    if (!fits(tally, batch->first_seq + batch->rows_cnt)) {
        tally->full = true;
        return;
    }
    for (uint64_t i = 0; i < batch->rows_cnt; i++) {
        if (!add_row(tally, &rows[i])) {
            hf_tally_drop(tally); /* the store tells why, when it is read */
            return;
        }
    }
    tally->last = *batch;
    tally->next_seq = batch->first_seq + batch->rows_cnt;
}

/* ---- from the store -------------------------------------------------------------------------------------------------- */

struct reading {
    struct hf_tally *tally;
    uint64_t until_seq; /* no batch but the first may reach beyond it */
    struct hf_store_batch last;
    bool more; /* there is a batch */
    bool failed;
};

/* Batches in order: the last one that is within bounds. */
static enum hf_store_status read_batch(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct reading *reading = ctx;
    const struct hf_tally *tally = reading->tally;
    uint64_t next_seq = (uint64_t)columns[2].integer + (uint64_t)columns[3].integer;
    bool first = reading->last.number == tally->last.number;

    (void)cnt;
    reading->more = true;
    if ((!first && next_seq > reading->until_seq) || !fits(tally, next_seq) ||
        columns[5].len != HF_DIGEST_BYTES) {
        return HF_STORE_OK;
    }
    reading->last.number = (uint64_t)columns[0].integer;
    reading->last.epoch = (uint64_t)columns[1].integer;
    reading->last.first_seq = (uint64_t)columns[2].integer;
    reading->last.rows_cnt = (uint64_t)columns[3].integer;
    reading->last.committed_ms = (uint64_t)columns[4].integer;
    memcpy(reading->last.digest, columns[5].bytes, HF_DIGEST_BYTES);
    return HF_STORE_OK;
}

static int read_row(void *ctx, const struct hf_receipt *receipt)
{
    struct reading *reading = ctx;

    reading->failed = !add_row(reading->tally, receipt);
    return reading->failed;
}

enum hf_store_status hf_tally_read(struct hf_tally *tally, struct hf_store *store, uint64_t rows_max,
                                   struct hf_store_error *error)
{
    struct reading reading = {
        .tally = tally, .until_seq = tally->next_seq + rows_max, .last = {.number = tally->last.number}};
    /* A batch has a row at least, so no more of them can be within bounds. */
    struct hf_param params[3] = {hf_param_integer(store->segment_id),
                                 hf_param_integer(hf_store_signed(tally->last.number)),
                                 hf_param_integer(hf_store_signed(rows_max == 0 ? 1 : rows_max))};
    enum hf_store_status status =
        hf_store_query(store,
                       "SELECT number, epoch, first_seq, rows_cnt, committed_ms, digest FROM batch "
                       "WHERE segment_id = $1 AND number > $2 ORDER BY number LIMIT $3",
                       params, 3, read_batch, &reading, error);

    if (status == HF_STORE_OK && reading.last.number == tally->last.number) {
        tally->full = reading.more;
        return HF_STORE_OK;
    }
    if (status == HF_STORE_OK) {
        uint64_t next_seq = reading.last.first_seq + reading.last.rows_cnt;

        status = hf_store_rows(store, store->segment.bytes, tally->next_seq, next_seq - tally->next_seq,
                               read_row, &reading, error);
        tally->last = reading.last;
        tally->next_seq = next_seq;
    }
    if (reading.failed) {
        status =
            hf_store_fail(error, HF_STORE_NOMEM,
                          "the sums of the receipts of '%s' since its last rollup do not fit into memory, or "
                          "into 64 bits",
                          store->segment.bytes);
    }
    if (status != HF_STORE_OK) {
        hf_tally_drop(tally);
    }
    return status;
}
