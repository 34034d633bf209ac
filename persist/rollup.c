/* Rollups: making them. One transaction of INSERT ... SELECT, the same for every store. */
#include "persist/rollup.h"

#include "core/window.h"
#include "persist/rollup_impl.h"
#include "persist/rollup_sql.h"
#include "shm/layout.h"

#include <stdlib.h>
#include <string.h>

#define DAY_MS INT64_C(86400000)

/* ---- the newest --------------------------------------------------------------------------------------------------- */

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

/* ---- what it covers ----------------------------------------------------------------------------------------------- */

struct making {
    struct hf_store *store;
    struct hf_store_error *error;
    const struct hf_rollup *before;
    struct hf_rollup made;
    uint64_t last_month_ms; /* start of the last month listed; HF_UNKNOWN: none yet */
    uint32_t open_ids[HF_WINDOW_CNT];
};

static enum hf_store_status read_end(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct making *m = ctx;

    (void)cnt;
    m->made.batch_number = (uint64_t)columns[0].integer;
    m->made.epoch = (uint64_t)columns[1].integer;
    m->made.next_seq = (uint64_t)columns[2].integer;
    m->made.end_ms = (uint64_t)columns[3].integer;
    if (columns[4].len == HF_DIGEST_BYTES) {
        memcpy(m->made.batch_digest, columns[4].bytes, HF_DIGEST_BYTES);
    }
    return HF_STORE_OK;
}

/* The last batch that is within rows_max, or else the first one. */
static enum hf_store_status find_end(struct making *m, uint64_t rows_max)
{
    static const char *const statements[] = {
        "SELECT number, epoch, first_seq + rows_cnt, committed_ms, digest FROM batch WHERE segment_id = $1 "
        "AND number > $2 AND first_seq + rows_cnt <= $3 ORDER BY number DESC LIMIT 1",
        "SELECT number, epoch, first_seq + rows_cnt, committed_ms, digest FROM batch WHERE segment_id = $1 "
        "AND number > $2 ORDER BY number LIMIT 1"};
    struct hf_param params[3] = {hf_param_integer(m->store->segment_id),
                                 hf_param_integer((int64_t)m->before->batch_number),
                                 hf_param_integer((int64_t)(m->before->next_seq + rows_max))};
    enum hf_store_status status = HF_STORE_OK;

    for (unsigned i = 0; i < 2 && status == HF_STORE_OK && m->made.batch_number == 0; i++) {
        status = m->store->ops->query(m->store, statements[i], params, i == 0 ? 3 : 2, read_end, m, m->error);
    }
    return status;
}

/* ---- its windows -------------------------------------------------------------------------------------------------- */

uint64_t hf_rollup_window_mask(enum hf_window window)
{
    uint64_t mask = 0;

    for (uint32_t layer = 0; layer < HF_SHM_LAYERS; layer++) {
        mask |= UINT64_C(7) << (layer * HF_SHM_ROW_BUCKETS + (uint32_t)window * HF_SHM_DIMS);
    }
    return mask;
}

static enum hf_store_status list_window(struct making *m, enum hf_window window, uint32_t id)
{
    uint64_t end_ms = hf_window_end_ms(window, id);
    struct hf_param params[6] = {hf_param_integer(m->store->segment_id),
                                 hf_param_integer((int64_t)m->made.number),
                                 hf_param_text(hf_window_name(window)),
                                 hf_param_integer((int64_t)hf_window_start_ms(window, id)),
                                 hf_param_integer(end_ms > INT64_MAX ? INT64_MAX : (int64_t)end_ms),
                                 hf_param_integer((int64_t)hf_rollup_window_mask(window))};

    m->made.parts_cnt++;
    return m->store->ops->query(
        m->store,
        "INSERT INTO rollup_window (segment_id, number, window_kind, start_ms, end_ms, mask, base) "
        "VALUES ($1, $2, $3, $4, $5, $6, (SELECT max(number) FROM rollup_window "
        "WHERE segment_id = $1 AND number < $2 AND window_kind = $3 AND start_ms = $4))",
        params, 6, NULL, NULL, m->error);
}

/* A day that is over and its month, unless they are listed already: open, or the month of the day before in the list. A day that no
 * clock can show has no window. */
static enum hf_store_status list_day(struct making *m, int64_t day)
{
    if (day < 0 || day > (int64_t)HF_CLOCK_MS_MAX / DAY_MS) {
        return HF_STORE_OK;
    }
    uint64_t ms = (uint64_t)(day * DAY_MS);
    uint32_t day_id = hf_window_id(HF_WINDOW_DAY, ms);
    uint32_t month_id = hf_window_id(HF_WINDOW_MONTH, ms);
    enum hf_store_status status = HF_STORE_OK;

    if (day_id != m->open_ids[HF_WINDOW_DAY]) {
        status = list_window(m, HF_WINDOW_DAY, day_id);
    }
    if (status == HF_STORE_OK && month_id != m->open_ids[HF_WINDOW_MONTH] &&
        hf_window_start_ms(HF_WINDOW_MONTH, month_id) != m->last_month_ms) {
        m->last_month_ms = hf_window_start_ms(HF_WINDOW_MONTH, month_id);
        status = list_window(m, HF_WINDOW_MONTH, month_id);
    }
    return status;
}

static enum hf_store_status list_windows(struct making *m)
{
    struct hf_store_integers days = {NULL, 0, 0}; /* that were touched */
    struct hf_param params[3] = {hf_param_integer(m->store->segment_id),
                                 hf_param_integer((int64_t)m->made.first_seq),
                                 hf_param_integer((int64_t)m->made.next_seq)};
    enum hf_store_status status = m->store->ops->query(
        m->store,
        "SELECT DISTINCT window_ms / 86400000 FROM every_receipt WHERE segment_id = $1 AND seq >= $2 AND seq < $3 "
        "AND bucket_mask IS NOT NULL ORDER BY 1",
        params, 3, hf_store_add_integer, &days, m->error);

    hf_window_ids(m->made.end_ms > HF_CLOCK_MS_MAX ? HF_CLOCK_MS_MAX : m->made.end_ms, m->open_ids);
    for (unsigned w = 0; w < HF_WINDOW_CNT && status == HF_STORE_OK; w++) {
        status = list_window(m, (enum hf_window)w, m->open_ids[w]);
    }
    for (size_t i = 0; i < days.cnt && status == HF_STORE_OK; i++) {
        status = list_day(m, days.list[i]);
    }
    free(days.list);
    return status;
}

/* ---- its sums, meters and open reservations ----------------------------------------------------------------------- */

static enum hf_store_status fill(struct making *m)
{
    static const struct {
        const char *insert;
        unsigned params_cnt;
        const char *count;
    } tables[] = {{"INSERT INTO rollup_sum (" HF_ROLLUP_SUM_COLUMNS ") " HF_ROLLUP_SUMS, 4,
                   "SELECT count(*) FROM rollup_sum WHERE segment_id = $1 AND number = $2"},
                  {"INSERT INTO rollup_meter (" HF_ROLLUP_METER_COLUMNS ") " HF_ROLLUP_METERS, 5,
                   "SELECT count(*) FROM rollup_meter WHERE segment_id = $1 AND number = $2"},
                  {"INSERT INTO rollup_open (" HF_ROLLUP_OPEN_COLUMNS ") " HF_ROLLUP_OPEN, 5,
                   "SELECT count(*) FROM rollup_open WHERE segment_id = $1 AND number = $2"}};
    struct hf_param params[5] = {
        hf_param_integer(m->store->segment_id), hf_param_integer((int64_t)m->made.number),
        hf_param_integer((int64_t)m->made.first_seq), hf_param_integer((int64_t)m->made.next_seq),
        hf_param_integer((int64_t)m->before->number)};
    enum hf_store_status status = HF_STORE_OK;

    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && status == HF_STORE_OK; i++) {
        status = m->store->ops->query(m->store, tables[i].insert, params, tables[i].params_cnt, NULL, NULL,
                                      m->error);
        int64_t cnt = 0;

        if (status == HF_STORE_OK) {
            status = m->store->ops->query(m->store, tables[i].count, params, 2, hf_store_one_integer, &cnt,
                                          m->error);
        }
        m->made.parts_cnt += (uint64_t)cnt;
    }
    return status;
}

static enum hf_store_status write_head(struct making *m)
{
    const struct hf_rollup *made = &m->made;
    struct hf_param params[11] = {
        hf_param_integer(m->store->segment_id),        hf_param_integer((int64_t)made->number),
        hf_param_integer((int64_t)made->epoch),        hf_param_integer((int64_t)made->first_seq),
        hf_param_integer((int64_t)made->next_seq),     hf_param_integer((int64_t)made->end_ms),
        hf_param_integer((int64_t)made->batch_number), hf_param_bytes(made->batch_digest, HF_DIGEST_BYTES),
        hf_param_integer((int64_t)made->parts_cnt),    hf_param_bytes(made->before, HF_DIGEST_BYTES),
        hf_param_bytes(made->digest, HF_DIGEST_BYTES)};

    return m->store->ops->query(
        m->store,
        "INSERT INTO rollup (segment_id, number, epoch, first_seq, next_seq, end_ms, batch_number, batch_digest, "
        "parts_cnt, before, digest) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        params, 11, NULL, NULL, m->error);
}

/* ---- one transaction ---------------------------------------------------------------------------------------------- */

static enum hf_store_status write_all(struct making *m)
{
    enum hf_store_status status = list_windows(m);

    if (status == HF_STORE_OK) {
        status = fill(m);
    }
    if (status == HF_STORE_OK) {
        status = hf_rollup_digest(m->store, m->store->segment.bytes, &m->made, m->made.digest, m->error);
    }
    return status == HF_STORE_OK ? write_head(m) : status;
}

enum hf_store_status hf_rollup_make(struct hf_store *store, uint64_t rows_max, struct hf_rollup *made,
                                    struct hf_store_error *error)
{
    struct hf_rollup before;
    struct making m = {.store = store, .error = error, .before = &before, .last_month_ms = HF_UNKNOWN};
    enum hf_store_status status = hf_store_ensure(store, error);

    if (status == HF_STORE_OK && store->segment.len == 0) {
        return hf_store_fail(error, HF_STORE_INVALID, "a rollup needs the lock of its segment's name");
    }
    if (status == HF_STORE_OK) {
        status = store->ops->begin(store, error);
    }
    if (status == HF_STORE_OK) {
        status = hf_rollup_of(store, store->segment_id, INT64_MAX, &before, error);
    }
    if (status == HF_STORE_OK) {
        m.made.number = before.number + 1;
        m.made.first_seq = before.next_seq;
        memcpy(m.made.before, before.digest, HF_DIGEST_BYTES);
        status = find_end(&m, rows_max);
    }
    if (status == HF_STORE_OK && m.made.batch_number == 0) {
        store->ops->rollback(store);
        *made = before;
        return HF_STORE_OK;
    }
    if (status == HF_STORE_OK) {
        status = write_all(&m);
    }
    if (status == HF_STORE_OK) {
        status = store->ops->commit(store, error);
    }
    if (status != HF_STORE_OK) {
        store->ops->rollback(store);
        return status;
    }
    *made = m.made;
    return HF_STORE_OK;
}
