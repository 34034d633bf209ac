/* Rollups: the newest one, when the next is due, and making it from what the store has. */
#include "persist/rollup.h"

#include "persist/rollup_impl.h"
#include "persist/tally.h"

#include <string.h>

enum hf_store_status hf_rollup_read(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct hf_rollup *rollup = ctx;

    (void)cnt;
    rollup->number = (uint64_t)columns[0].integer;
    rollup->epoch = (uint64_t)columns[1].integer;
    rollup->first_seq = (uint64_t)columns[2].integer;
    rollup->next_seq = (uint64_t)columns[3].integer;
    rollup->end_ms = (uint64_t)columns[4].integer;
    rollup->batch_number = (uint64_t)columns[5].integer;
    rollup->parts_cnt = (uint64_t)columns[6].integer;
    if (columns[7].len == HF_DIGEST_BYTES && columns[8].len == HF_DIGEST_BYTES &&
        columns[9].len == HF_DIGEST_BYTES) {
        memcpy(rollup->batch_digest, columns[7].bytes, HF_DIGEST_BYTES);
        memcpy(rollup->before, columns[8].bytes, HF_DIGEST_BYTES);
        memcpy(rollup->digest, columns[9].bytes, HF_DIGEST_BYTES);
    }
    return HF_STORE_OK;
}

enum hf_store_status hf_rollup_of(struct hf_store *store, int64_t segment_id, int64_t end_ms,
                                  struct hf_rollup *rollup, struct hf_store_error *error)
{
    struct hf_param params[2] = {hf_param_integer(segment_id), hf_param_integer(end_ms)};

    *rollup = (struct hf_rollup){.next_seq = 1};
    return hf_store_query(
        store,
        "SELECT " HF_ROLLUP_HEAD_COLUMNS
        " FROM rollup r JOIN batch b ON b.segment_id = r.segment_id AND b.number = r.batch_number "
        "AND b.digest = r.batch_digest WHERE r.segment_id = $1 AND r.end_ms <= $2 ORDER BY r.number DESC LIMIT 1",
        params, 2, hf_rollup_read, rollup, error);
}

enum hf_store_status hf_rollup_newest(struct hf_store *store, const char *segment, struct hf_rollup *rollup,
                                      struct hf_store_error *error)
{
    int64_t segment_id;
    enum hf_store_status status = hf_store_segment_id(store, segment, &segment_id, error);

    *rollup = (struct hf_rollup){.next_seq = 1};
    return status == HF_STORE_OK ? hf_rollup_of(store, segment_id, INT64_MAX, rollup, error) : status;
}

bool hf_rollup_due(const struct hf_rollup *newest, uint64_t next_seq)
{
    uint64_t rows = next_seq > newest->next_seq ? next_seq - newest->next_seq : 0;

    return rows >= HF_ROLLUP_ROWS && rows / 4 >= newest->parts_cnt;
}

enum hf_store_status hf_rollup_make(struct hf_store *store, uint64_t rows_max, struct hf_rollup *made,
                                    struct hf_store_error *error)
{
    struct hf_rollup before;
    struct hf_tally tally = {.started = false};
    enum hf_store_status status;

    if (store->segment.len == 0) {
        return hf_store_fail(error, HF_STORE_INVALID, "a rollup needs the lock of its segment's name");
    }
    status = hf_rollup_newest(store, store->segment.bytes, &before, error);
    if (status == HF_STORE_OK) {
        hf_tally_start(&tally, &before);
        status = hf_tally_read(&tally, store, rows_max, error);
    }
    if (status == HF_STORE_OK && hf_tally_empty(&tally)) {
        *made = before;
    } else if (status == HF_STORE_OK) {
        status = hf_rollup_write(store, &tally, made, error);
    }
    hf_tally_drop(&tally);
    return status;
}
