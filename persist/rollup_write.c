/* Rollups: writing one from a tally, in one transaction, the same for every store. */
#include "core/window.h"
#include "persist/rollup_impl.h"
#include "persist/tally.h"
#include "shm/layout.h"

#include <stdlib.h>
#include <string.h>

#define MINUTE_MS       60000U
#define MINUTES_OF_DAY  1440U
#define MINUTES_CLOCK   (HF_CLOCK_MS_MAX / MINUTE_MS)
#define SUM_COLUMNS     19U
#define SUM_VALUES_FROM 8U /* the first of its columns that is a sum */

struct window {
    enum hf_window kind;
    uint64_t start_ms;
    uint64_t end_ms;
    uint64_t mask;
};

struct writing {
    struct hf_store *store;
    struct hf_store_error *error;
    const struct hf_tally *tally;
    struct hf_rollup made;
    struct window *windows; /* that it lists */
    size_t windows_cnt;
    size_t windows_cap;
    size_t reading;             /* the window whose base is being read */
    struct hf_tally_table sums; /* in whole: keys as in a tally, with the window's index for the minute */
    struct hf_tally_table meters;
    struct hf_tally_table open;
};

static enum hf_store_status no_room(struct hf_store_error *error)
{
    return hf_store_fail(error, HF_STORE_NOMEM,
                         "the sums of a rollup do not fit into memory, or into 64 bits");
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

/* Unless it is listed already. */
static bool list_window(struct writing *w, enum hf_window kind, uint32_t id)
{
    const struct window window = {.kind = kind,
                                  .start_ms = hf_window_start_ms(kind, id),
                                  .end_ms = hf_window_end_ms(kind, id),
                                  .mask = hf_rollup_window_mask(kind)};

    for (size_t i = 0; i < w->windows_cnt; i++) {
        if (w->windows[i].kind == kind && w->windows[i].start_ms == window.start_ms) {
            return true;
        }
    }
    if (w->windows_cnt == w->windows_cap) {
        size_t cap = w->windows_cap == 0 ? 16 : 2 * w->windows_cap;
        struct window *windows = realloc(w->windows, cap * sizeof(*windows));

        if (windows == NULL) {
            return false;
        }
        w->windows = windows;
        w->windows_cap = cap;
    }
    w->windows[w->windows_cnt++] = window;
    return true;
}

/* Those that are open at its end, and the days and months that it adds to. A day that no clock can show has no window. */
static bool list_windows(struct writing *w)
{
    uint64_t end_ms = w->made.end_ms > HF_CLOCK_MS_MAX ? HF_CLOCK_MS_MAX : w->made.end_ms;
    const struct hf_tally_table *sums = &w->tally->sums;
    uint32_t ids[HF_WINDOW_CNT];
    uint64_t listed_day = UINT64_MAX;

    hf_window_ids(end_ms, ids);
    for (unsigned kind = 0; kind < HF_WINDOW_CNT; kind++) {
        if (!list_window(w, (enum hf_window)kind, ids[kind])) {
            return false;
        }
    }
    for (size_t i = 0; i < sums->cnt; i++) {
        struct hf_tally_sum sum;

        memcpy(&sum, hf_tally_table_key(sums, i), sizeof(sum));
        if (sum.minute > MINUTES_CLOCK || sum.minute / MINUTES_OF_DAY == listed_day) {
            continue;
        }
        listed_day = sum.minute / MINUTES_OF_DAY;
        if (!list_window(w, HF_WINDOW_DAY, hf_window_id(HF_WINDOW_DAY, sum.minute * MINUTE_MS)) ||
            !list_window(w, HF_WINDOW_MONTH, hf_window_id(HF_WINDOW_MONTH, sum.minute * MINUTE_MS))) {
            return false;
        }
    }
    return true;
}

static enum hf_store_status write_windows(struct writing *w)
{
    enum hf_store_status status = list_windows(w) ? HF_STORE_OK : no_room(w->error);

    for (size_t i = 0; i < w->windows_cnt && status == HF_STORE_OK; i++) {
        const struct window *window = &w->windows[i];
        struct hf_param params[6] = {hf_param_integer(w->store->segment_id),
                                     hf_param_integer((int64_t)w->made.number),
                                     hf_param_text(hf_window_name(window->kind)),
                                     hf_param_integer(hf_store_signed(window->start_ms)),
                                     hf_param_integer(hf_store_signed(window->end_ms)),
                                     hf_param_integer((int64_t)window->mask)};

        status = w->store->ops->query(
            w->store,
            "INSERT INTO rollup_window (segment_id, number, window_kind, start_ms, end_ms, mask, base) "
            "VALUES ($1, $2, $3, $4, $5, $6, (SELECT max(number) FROM rollup_window "
            "WHERE segment_id = $1 AND number < $2 AND window_kind = $3 AND start_ms = $4))",
            params, 6, NULL, NULL, w->error);
    }
    w->made.parts_cnt += w->windows_cnt;
    return status;
}

/* ---- its sums ----------------------------------------------------------------------------------------------------- */

static char *put_column(char *at, const struct hf_column *column)
{
    bool none = column->null || column->bytes == NULL || column->len > HF_NAME_BYTES_MAX;

    return hf_tally_put_name(at, none ? "" : column->bytes, none ? 0 : column->len);
}

/* A row of the rollup that listed the window last. */
static enum hf_store_status read_base(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct writing *w = ctx;
    const struct hf_tally_sum sum = {.minute = w->reading, .bucket_mask = (uint64_t)columns[3].integer};
    int64_t values[HF_TALLY_SUM_VALUES] = {0};
    char key[HF_TALLY_KEY_BYTES];
    char *at = key + sizeof(sum);

    memcpy(key, &sum, sizeof(sum));
    for (unsigned i = 0; i < 3; i++) {
        at = put_column(at, &columns[i]);
    }
    for (unsigned i = 0; i < HF_TALLY_SUM_VALUES && i + 4 < cnt; i++) {
        values[i] = columns[i + 4].integer;
    }
    return hf_tally_table_add(&w->sums, key, (size_t)(at - key), values) ? HF_STORE_OK : no_room(w->error);
}

/* What the tally adds to its windows. */
static bool add_sums(struct writing *w)
{
    const struct hf_tally_table *sums = &w->tally->sums;
    char key[HF_TALLY_KEY_BYTES];

    for (size_t i = 0; i < sums->cnt; i++) {
        struct hf_tally_sum sum;

        memcpy(key, hf_tally_table_key(sums, i), sums->keys[i].len);
        memcpy(&sum, key, sizeof(sum));
        for (size_t n = 0; n < w->windows_cnt; n++) {
            const struct window *window = &w->windows[n];
            const struct hf_tally_sum part = {.minute = n, .bucket_mask = sum.bucket_mask & window->mask};

            if (part.bucket_mask == 0 || sum.minute < window->start_ms / MINUTE_MS ||
                sum.minute >= window->end_ms / MINUTE_MS) {
                continue;
            }
            memcpy(key, &part, sizeof(part));
            if (!hf_tally_table_add(&w->sums, key, sums->keys[i].len, hf_tally_table_values(sums, i))) {
                return false;
            }
        }
    }
    return true;
}

/* Texts of a key into parameters. */
static void put_names(struct hf_param *params, unsigned cnt, const char *at)
{
    for (unsigned i = 0; i < cnt; i++) {
        size_t len = (unsigned char)*at++;

        params[i] = (struct hf_param){HF_PARAM_TEXT, 0, at, len};
        at += len;
    }
}

static bool sum_row(void *ctx, size_t i, struct hf_param *params)
{
    const struct writing *w = ctx;
    const char *key = hf_tally_table_key(&w->sums, i);
    const int64_t *values = hf_tally_table_values(&w->sums, i);
    struct hf_tally_sum sum;

    memcpy(&sum, key, sizeof(sum));
    params[0] = hf_param_integer(w->store->segment_id);
    params[1] = hf_param_integer((int64_t)w->made.number);
    params[2] = hf_param_text(hf_window_name(w->windows[sum.minute].kind));
    params[3] = hf_param_integer(hf_store_signed(w->windows[sum.minute].start_ms));
    put_names(&params[4], 3, key + sizeof(sum));
    params[7] = hf_param_integer((int64_t)sum.bucket_mask);
    for (unsigned v = 0; v < HF_TALLY_SUM_VALUES; v++) {
        params[SUM_VALUES_FROM + v] = hf_param_integer(values[v]);
    }
    /* What the low halves have too much goes up. */
    static const unsigned halves[] = {2, 4, 7, 9};

    for (unsigned h = 0; h < sizeof(halves) / sizeof(halves[0]); h++) {
        struct hf_param *pair = &params[SUM_VALUES_FROM + halves[h]];

        pair[0].integer += pair[1].integer >> 32;
        pair[1].integer &= INT64_C(0xffffffff);
    }
    return true;
}

static enum hf_store_status write_sums(struct writing *w)
{
    const struct hf_store_part part = {.table = "rollup_sum",
                                       .columns = HF_ROLLUP_SUM_COLUMNS,
                                       .columns_cnt = SUM_COLUMNS,
                                       .row = sum_row,
                                       .ctx = w};
    enum hf_store_status status = HF_STORE_OK;

    w->sums.values_cnt = HF_TALLY_SUM_VALUES;
    for (w->reading = 0; w->reading < w->windows_cnt && status == HF_STORE_OK; w->reading++) {
        const struct window *window = &w->windows[w->reading];
        struct hf_param params[4] = {
            hf_param_integer(w->store->segment_id), hf_param_integer((int64_t)w->made.number),
            hf_param_text(hf_window_name(window->kind)), hf_param_integer(hf_store_signed(window->start_ms))};

        status = w->store->ops->query(
            w->store,
            "SELECT s.tenant, s.team, s.key, s.bucket_mask, s.rows_cnt, s.held_invocations, s.held_tokens_high, "
            "s.held_tokens_low, s.held_cost_high, s.held_cost_low, s.charged_invocations, s.charged_tokens_high, "
            "s.charged_tokens_low, s.charged_cost_high, s.charged_cost_low "
            "FROM rollup_window w JOIN rollup_sum s ON s.segment_id = w.segment_id AND s.number = w.base "
            "AND s.window_kind = w.window_kind AND s.start_ms = w.start_ms "
            "WHERE w.segment_id = $1 AND w.number = $2 AND w.window_kind = $3 AND w.start_ms = $4",
            params, 4, read_base, w, w->error);
    }
    if (status == HF_STORE_OK && !add_sums(w)) {
        status = no_room(w->error);
    }
    w->made.parts_cnt += w->sums.cnt;
    return status == HF_STORE_OK ? w->store->ops->append(w->store, &part, w->sums.cnt, w->error) : status;
}

/* ---- its meters and open reservations ------------------------------------------------------------------------------- */

static bool add_table(struct hf_tally_table *to, const struct hf_tally_table *from)
{
    for (size_t i = 0; i < from->cnt; i++) {
        if (!hf_tally_table_add(to, hf_tally_table_key(from, i), from->keys[i].len,
                                hf_tally_table_values(from, i))) {
            return false;
        }
    }
    return true;
}

static enum hf_store_status read_meter(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct writing *w = ctx;
    int64_t values[HF_TALLY_VALUES_MAX] = {0};
    char key[HF_TALLY_KEY_BYTES];
    char *at = key;

    for (unsigned i = 0; i < 3; i++) {
        at = put_column(at, &columns[i]);
    }
    for (unsigned i = 0; i < w->meters.values_cnt && i + 3 < cnt; i++) {
        values[i] = columns[i + 3].integer;
    }
    return hf_tally_table_add(&w->meters, key, (size_t)(at - key), values) ? HF_STORE_OK : no_room(w->error);
}

static bool meter_row(void *ctx, size_t i, struct hf_param *params)
{
    const struct writing *w = ctx;
    const int64_t *values = hf_tally_table_values(&w->meters, i);

    params[0] = hf_param_integer(w->store->segment_id);
    params[1] = hf_param_integer((int64_t)w->made.number);
    put_names(&params[2], 3, hf_tally_table_key(&w->meters, i));
    for (unsigned v = 0; v < w->meters.values_cnt; v++) {
        params[5 + v] = hf_param_integer(values[v]);
    }
    return true;
}

static enum hf_store_status write_meters(struct writing *w)
{
    const struct hf_store_part part = {.table = "rollup_meter",
                                       .columns = HF_ROLLUP_METER_COLUMNS,
                                       .columns_cnt = 10,
                                       .row = meter_row,
                                       .ctx = w};
    struct hf_param params[2] = {hf_param_integer(w->store->segment_id),
                                 hf_param_integer((int64_t)w->tally->before.number)};

    w->meters.values_cnt = w->tally->meters.values_cnt;
    enum hf_store_status status = w->store->ops->query(
        w->store,
        "SELECT tenant, capability, model, requests, failures, degraded, reserved_micros, settled_micros "
        "FROM rollup_meter WHERE segment_id = $1 AND number = $2",
        params, 2, read_meter, w, w->error);

    if (status == HF_STORE_OK && !add_table(&w->meters, &w->tally->meters)) {
        status = no_room(w->error);
    }
    w->made.parts_cnt += w->meters.cnt;
    return status == HF_STORE_OK ? w->store->ops->append(w->store, &part, w->meters.cnt, w->error) : status;
}

static enum hf_store_status read_open(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    static const int64_t one = 1;
    struct writing *w = ctx;
    uint64_t seq = (uint64_t)columns[0].integer;

    (void)cnt;
    return hf_tally_table_add(&w->open, &seq, sizeof(seq), &one) ? HF_STORE_OK : no_room(w->error);
}

/* What is open: its rows hold one invocation in sum. */
static bool open_row(void *ctx, size_t i, struct hf_param *params)
{
    const struct writing *w = ctx;
    uint64_t seq;

    if (*hf_tally_table_values(&w->open, i) <= 0) {
        return false;
    }
    memcpy(&seq, hf_tally_table_key(&w->open, i), sizeof(seq));
    params[0] = hf_param_integer(w->store->segment_id);
    params[1] = hf_param_integer((int64_t)w->made.number);
    params[2] = hf_param_integer(hf_store_signed(seq));
    return true;
}

static enum hf_store_status write_open(struct writing *w)
{
    const struct hf_store_part part = {.table = "rollup_open",
                                       .columns = HF_ROLLUP_OPEN_COLUMNS,
                                       .columns_cnt = 3,
                                       .row = open_row,
                                       .ctx = w};
    struct hf_param params[2] = {hf_param_integer(w->store->segment_id),
                                 hf_param_integer((int64_t)w->tally->before.number)};

    w->open.values_cnt = 1;
    enum hf_store_status status = w->store->ops->query(
        w->store, "SELECT reservation_seq FROM rollup_open WHERE segment_id = $1 AND number = $2", params, 2,
        read_open, w, w->error);

    if (status == HF_STORE_OK && !add_table(&w->open, &w->tally->open)) {
        status = no_room(w->error);
    }
    for (size_t i = 0; i < w->open.cnt; i++) {
        w->made.parts_cnt += *hf_tally_table_values(&w->open, i) > 0;
    }
    return status == HF_STORE_OK ? w->store->ops->append(w->store, &part, w->open.cnt, w->error) : status;
}

/* ---- one transaction ---------------------------------------------------------------------------------------------- */

static enum hf_store_status write_head(struct writing *w)
{
    const struct hf_rollup *made = &w->made;
    struct hf_param params[11] = {
        hf_param_integer(w->store->segment_id),        hf_param_integer((int64_t)made->number),
        hf_param_integer((int64_t)made->epoch),        hf_param_integer((int64_t)made->first_seq),
        hf_param_integer((int64_t)made->next_seq),     hf_param_integer((int64_t)made->end_ms),
        hf_param_integer((int64_t)made->batch_number), hf_param_bytes(made->batch_digest, HF_DIGEST_BYTES),
        hf_param_integer((int64_t)made->parts_cnt),    hf_param_bytes(made->before, HF_DIGEST_BYTES),
        hf_param_bytes(made->digest, HF_DIGEST_BYTES)};

    return w->store->ops->query(
        w->store,
        "INSERT INTO rollup (segment_id, number, epoch, first_seq, next_seq, end_ms, batch_number, batch_digest, "
        "parts_cnt, before, digest) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        params, 11, NULL, NULL, w->error);
}

/* The store has what the tally begins and ends with, as it was. */
static enum hf_store_status check_ends(struct writing *w)
{
    const struct hf_tally *tally = w->tally;
    struct hf_rollup newest;
    struct hf_store_batch batch;
    bool found = false;
    enum hf_store_status status = hf_rollup_of(w->store, w->store->segment_id, INT64_MAX, &newest, w->error);

    if (status == HF_STORE_OK) {
        status =
            hf_store_batch_of(w->store, w->store->segment_id, tally->last.number, &found, &batch, w->error);
    }
    if (status != HF_STORE_OK) {
        return status;
    }
    if (newest.number != tally->before.number ||
        memcmp(newest.digest, tally->before.digest, HF_DIGEST_BYTES) != 0 || !found ||
        memcmp(batch.digest, tally->last.digest, HF_DIGEST_BYTES) != 0 ||
        batch.first_seq + batch.rows_cnt != tally->next_seq) {
        return hf_store_fail(
            w->error, HF_STORE_RETRY,
            "the store %s has another newest rollup, or another batch %llu, than was added up: it "
            "is added up again",
            w->store->display, (unsigned long long)tally->last.number);
    }
    return HF_STORE_OK;
}

static enum hf_store_status write_all(struct writing *w)
{
    enum hf_store_status (*const steps[])(struct writing *) = {check_ends, write_windows, write_sums,
                                                               write_meters, write_open};
    enum hf_store_status status = HF_STORE_OK;

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && status == HF_STORE_OK; i++) {
        status = steps[i](w);
    }
    if (status == HF_STORE_OK) {
        status = hf_rollup_digest(w->store, w->store->segment.bytes, &w->made, w->made.digest, w->error);
    }
    return status == HF_STORE_OK ? write_head(w) : status;
}

enum hf_store_status hf_rollup_write(struct hf_store *store, const struct hf_tally *tally,
                                     struct hf_rollup *made, struct hf_store_error *error)
{
    struct writing w = {.store = store,
                        .error = error,
                        .tally = tally,
                        .made = {.number = tally->before.number + 1,
                                 .epoch = tally->last.epoch,
                                 .first_seq = tally->before.next_seq,
                                 .next_seq = tally->next_seq,
                                 .end_ms = tally->last.committed_ms,
                                 .batch_number = tally->last.number}};
    enum hf_store_status status = hf_store_ensure(store, error);

    memcpy(w.made.batch_digest, tally->last.digest, HF_DIGEST_BYTES);
    memcpy(w.made.before, tally->before.digest, HF_DIGEST_BYTES);
    if (status == HF_STORE_OK) {
        status = store->ops->begin(store, error);
    }
    if (status == HF_STORE_OK) {
        status = write_all(&w);
    }
    if (status == HF_STORE_OK) {
        status = store->ops->commit(store, error);
    }
    if (status == HF_STORE_OK) {
        *made = w.made;
    } else {
        store->ops->rollback(store);
    }
    free(w.windows);
    hf_tally_table_free(&w.sums);
    hf_tally_table_free(&w.meters);
    hf_tally_table_free(&w.open);
    return status;
}
