/* Reading, the same for every store: the statements, and rows turned into receipts. */
#include "core/window.h"
#include "persist/rollup_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SQL_BYTES 8192
/* The condition of the partial index receipt_rare, word by word, so that SQLite too sees that it applies; beside it no
 * `kind = '...'`, which SQLite would put into it. */
#define RARE "kind IN ('epoch', 'policy', 'credit')"

/* ---- rows as receipts --------------------------------------------------------------------------------------------- */

/* `SELECT aside, <all fields> FROM every_receipt `, then the printf-formatted rest. */
static void select_rows(char sql[SQL_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void select_rows(char sql[SQL_BYTES], const char *format, ...)
{
    size_t len = (size_t)snprintf(sql, SQL_BYTES, "SELECT aside");
    va_list args;

    for (size_t i = 0; i < hf_receipt_fields(); i++) {
        len += (size_t)snprintf(sql + len, SQL_BYTES - len, ", %s", hf_receipt_field(i)->name);
    }
    len += (size_t)snprintf(sql + len, SQL_BYTES - len, " FROM every_receipt ");
    va_start(args, format);
    vsnprintf(sql + len, SQL_BYTES - len, format, args);
    va_end(args);
}

static void to_value(enum hf_field_type type, const struct hf_column *column, struct hf_field_value *value)
{
    memset(value, 0, sizeof(*value));
    value->null = column->null;
    value->bytes = column->bytes;
    value->len = column->len;
    if (type == HF_FIELD_NUMBER) {
        value->number = (uint64_t)column->integer;
    } else if (type == HF_FIELD_SIGNED) {
        value->integer = column->integer;
    } else {
        value->flag = column->integer != 0;
    }
}

static enum hf_store_status to_receipt(const struct hf_column *columns, struct hf_receipt *receipt,
                                       struct hf_store_error *error)
{
    hf_receipt_init(receipt, HF_RECEIPT_EPOCH);
    for (size_t i = 0; i < hf_receipt_fields(); i++) {
        const struct hf_field *field = hf_receipt_field(i);
        struct hf_field_value value;

        to_value(field->type, &columns[i + 1], &value);
        if (!hf_receipt_set(receipt, i, &value)) {
            return hf_store_fail(
                error, HF_STORE_REFUSED,
                "receipt %" PRIu64
                " of the store cannot be read: column %s holds what this build does not know. "
                "Was the store changed by hand, or written by a newer holdfast?",
                receipt->seq, field->name);
        }
    }
    receipt->fate = columns[0].integer != 0 ? HF_FATE_ASIDE
                    : receipt->conflict     ? HF_FATE_CONFLICT
                                            : HF_FATE_STORED;
    return HF_STORE_OK;
}

struct row_reader {
    hf_store_row_fn *row;
    void *ctx;
    struct hf_store_error *error;
    struct hf_receipt receipt;
};

static enum hf_store_status read_row(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct row_reader *reader = ctx;
    enum hf_store_status status = to_receipt(columns, &reader->receipt, reader->error);

    (void)cnt;
    if (status == HF_STORE_OK && reader->row(reader->ctx, &reader->receipt) != 0) {
        return hf_store_stopped(reader->error);
    }
    return status;
}

static enum hf_store_status query_rows(struct hf_store *store, const char *sql, const struct hf_param *params,
                                       unsigned params_cnt, hf_store_row_fn *row, void *ctx,
                                       struct hf_store_error *error)
{
    struct row_reader reader = {.row = row, .ctx = ctx, .error = error};

    return hf_store_query(store, sql, params, params_cnt, read_row, &reader, error);
}

/* ---- batches ------------------------------------------------------------------------------------------------------ */

struct batch_reader {
    struct hf_store_batch batch;
    bool found;
};

static enum hf_store_status read_batch(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct batch_reader *reader = ctx;

    (void)cnt;
    reader->found = true;
    reader->batch.number = (uint64_t)columns[0].integer;
    reader->batch.epoch = (uint64_t)columns[1].integer;
    reader->batch.first_seq = (uint64_t)columns[2].integer;
    reader->batch.rows_cnt = (uint64_t)columns[3].integer;
    reader->batch.committed_ms = (uint64_t)columns[4].integer;
    if (columns[5].len == HF_DIGEST_BYTES && columns[6].len == HF_DIGEST_BYTES) {
        memcpy(reader->batch.before, columns[5].bytes, HF_DIGEST_BYTES);
        memcpy(reader->batch.digest, columns[6].bytes, HF_DIGEST_BYTES);
    }
    return HF_STORE_OK;
}

#define BATCH_COLUMNS \
    "SELECT number, epoch, first_seq, rows_cnt, committed_ms, before, digest FROM batch WHERE segment_id = $1 "

enum hf_store_status hf_store_chain(struct hf_store *store, int64_t segment_id, struct hf_store_head *head,
                                    struct hf_store_error *error)
{
    struct batch_reader reader = {.found = false};
    struct hf_param params[1] = {hf_param_integer(segment_id)};
    enum hf_store_status status = store->ops->query(store, BATCH_COLUMNS "ORDER BY number DESC LIMIT 1",
                                                    params, 1, read_batch, &reader, error);

    head->last = reader.batch;
    head->next_seq = reader.found ? reader.batch.first_seq + reader.batch.rows_cnt : 1;
    return status;
}

enum hf_store_status hf_store_batch_of(struct hf_store *store, int64_t segment_id, uint64_t number,
                                       bool *found, struct hf_store_batch *batch,
                                       struct hf_store_error *error)
{
    struct batch_reader reader = {.found = false};
    struct hf_param params[2] = {hf_param_integer(segment_id), hf_param_integer(hf_store_signed(number))};
    enum hf_store_status status =
        store->ops->query(store, BATCH_COLUMNS "AND number = $2", params, 2, read_batch, &reader, error);

    *found = reader.found;
    *batch = reader.batch;
    return status;
}

enum hf_store_status hf_store_head(struct hf_store *store, const char *segment, struct hf_store_head *head,
                                   struct hf_store_error *error)
{
    int64_t segment_id;
    enum hf_store_status status = hf_store_segment_id(store, segment, &segment_id, error);

    memset(head, 0, sizeof(*head));
    head->next_seq = 1;
    return status == HF_STORE_OK ? hf_store_chain(store, segment_id, head, error) : status;
}

enum hf_store_status hf_store_batch(struct hf_store *store, const char *segment, uint64_t number, bool *found,
                                    struct hf_store_batch *batch, struct hf_store_error *error)
{
    int64_t segment_id;
    enum hf_store_status status = hf_store_segment_id(store, segment, &segment_id, error);

    *found = false;
    return status == HF_STORE_OK ? hf_store_batch_of(store, segment_id, number, found, batch, error) : status;
}

enum hf_store_status hf_store_first_since(struct hf_store *store, int64_t segment_id, uint64_t since_ms,
                                          int64_t *first_seq, struct hf_store_error *error)
{
    struct hf_param params[2] = {hf_param_integer(segment_id), hf_param_integer(hf_store_signed(since_ms))};

    *first_seq = INT64_MAX;
    return hf_store_query(store,
                          "SELECT min(first_seq) FROM batch WHERE segment_id = $1 AND committed_ms >= $2",
                          params, 2, hf_store_one_or_none, first_seq, error);
}

/* ---- segments ----------------------------------------------------------------------------------------------------- */

struct segment_reader {
    hf_store_segment_fn *segment;
    void *ctx;
    struct hf_store_error *error;
};

static enum hf_store_status read_segment(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    const struct segment_reader *reader = ctx;
    char name[HF_NAME_BYTES_MAX + 1];

    (void)cnt;
    snprintf(name, sizeof(name), "%.*s", (int)columns[0].len, columns[0].bytes);
    return reader->segment(reader->ctx, name) == 0 ? HF_STORE_OK : hf_store_stopped(reader->error);
}

enum hf_store_status hf_store_segments(struct hf_store *store, hf_store_segment_fn *segment, void *ctx,
                                       struct hf_store_error *error)
{
    struct segment_reader reader = {.segment = segment, .ctx = ctx, .error = error};

    return hf_store_query(store, "SELECT name FROM segment ORDER BY name", NULL, 0, read_segment, &reader,
                          error);
}

/* ---- receipts ----------------------------------------------------------------------------------------------------- */

enum hf_store_status hf_store_rows(struct hf_store *store, const char *segment, uint64_t first_seq,
                                   uint64_t cnt, hf_store_row_fn *row, void *ctx,
                                   struct hf_store_error *error)
{
    char sql[SQL_BYTES];
    int64_t segment_id;
    enum hf_store_status status = hf_store_segment_id(store, segment, &segment_id, error);
    struct hf_param params[3];

    if (status != HF_STORE_OK) {
        return status;
    }
    params[0] = hf_param_integer(segment_id);
    params[1] = hf_param_integer(hf_store_signed(first_seq));
    params[2] =
        hf_param_integer(hf_store_signed(first_seq > UINT64_MAX - cnt ? UINT64_MAX : first_seq + cnt));
    select_rows(sql, "WHERE segment_id = $1 AND seq >= $2 AND seq < $3 ORDER BY seq");
    return query_rows(store, sql, params, 3, row, ctx, error);
}

enum hf_store_status hf_store_receipts(struct hf_store *store, const char *segment, const char *id,
                                       hf_store_row_fn *row, void *ctx, struct hf_store_error *error)
{
    char sql[SQL_BYTES];
    int64_t segment_id;
    struct hf_store_integers seqs = {NULL, 0, 0};
    struct hf_param params[2];
    enum hf_store_status status = hf_store_segment_id(store, segment, &segment_id, error);

    if (status != HF_STORE_OK) {
        return status;
    }
    params[0] = hf_param_integer(segment_id);
    params[1] = hf_param_text(id);
    status = hf_store_query(
        store,
        "SELECT seq FROM every_receipt WHERE segment_id = $1 AND id = $2 AND kind = 'reservation' "
        "ORDER BY seq",
        params, 2, hf_store_add_integer, &seqs, error);
    /* Two statements, so that each goes by its index. */
    for (size_t i = 0; i < seqs.cnt && status == HF_STORE_OK; i++) {
        params[1] = hf_param_integer(seqs.list[i]);
        select_rows(sql, "WHERE segment_id = $1 AND seq = $2");
        status = query_rows(store, sql, params, 2, row, ctx, error);
        if (status == HF_STORE_OK) {
            select_rows(
                sql, "WHERE segment_id = $1 AND reservation_seq = $2 AND kind <> 'reservation' ORDER BY seq");
            status = query_rows(store, sql, params, 2, row, ctx, error);
        }
    }
    free(seqs.list);
    return status;
}

enum hf_store_status hf_store_last(struct hf_store *store, const char *segment, enum hf_receipt_kind kind,
                                   hf_store_row_fn *row, void *ctx, struct hf_store_error *error)
{
    char sql[SQL_BYTES];
    int64_t segment_id;
    struct hf_param params[1];
    enum hf_store_status status = hf_store_segment_id(store, segment, &segment_id, error);

    if (status != HF_STORE_OK) {
        return status;
    }
    if (kind != HF_RECEIPT_EPOCH && kind != HF_RECEIPT_POLICY && kind != HF_RECEIPT_CREDIT) {
        return hf_store_fail(error, HF_STORE_INVALID, "the newest %s is nothing that a store is asked for",
                             hf_receipt_kind_name(kind));
    }
    params[0] = hf_param_integer(segment_id);
    select_rows(
        sql,
        "WHERE segment_id = $1 AND seq = (SELECT max(seq) FROM every_receipt WHERE segment_id = $1 AND "
        "kind || '' = '%s' AND " RARE ")",
        hf_receipt_kind_name(kind));
    return query_rows(store, sql, params, 1, row, ctx, error);
}

enum hf_store_status hf_store_credits(struct hf_store *store, const char *segment, uint64_t now_ms,
                                      hf_store_row_fn *row, void *ctx, struct hf_store_error *error)
{
#define OPEN_CREDITS \
    "segment_id = $1 AND " RARE " AND credit_window = $2 AND window_ms >= $3 AND window_ms < $4"
    char sql[SQL_BYTES];
    int64_t segment_id;
    struct hf_param params[4];
    enum hf_store_status status = hf_store_segment_id(store, segment, &segment_id, error);

    if (status == HF_STORE_OK && now_ms > HF_CLOCK_MS_MAX) {
        return hf_store_fail(error, HF_STORE_INVALID, "an instant beyond the end of the clock");
    }
    select_rows(sql,
                "WHERE " OPEN_CREDITS " AND seq IN (SELECT max(seq) FROM every_receipt WHERE " OPEN_CREDITS
                " GROUP BY tenant, team) ORDER BY seq");
    for (unsigned w = 0; w < HF_WINDOW_CNT && status == HF_STORE_OK; w++) {
        enum hf_window window = (enum hf_window)w;
        uint32_t id = hf_window_id(window, now_ms);

        params[0] = hf_param_integer(segment_id);
        params[1] = hf_param_text(hf_window_name(window));
        params[2] = hf_param_integer(hf_store_signed(hf_window_start_ms(window, id)));
        params[3] = hf_param_integer(hf_store_signed(hf_window_end_ms(window, id)));
        status = query_rows(store, sql, params, 4, row, ctx, error);
    }
    return status;
}

/* ---- reservations ------------------------------------------------------------------------------------------------- */

/* The rows of one reservation, while they come in. */
struct gatherer {
    const struct hf_store_filter *filter;
    hf_store_reservation_fn *reservation;
    void *ctx;
    struct hf_store_error *error;
    struct hf_receipt *rows;
    size_t cnt;
    size_t cap;
};

static void forget_rows(struct gatherer *g)
{
    for (size_t i = 0; i < g->cnt; i++) {
        free((void *)(uintptr_t)g->rows[i].reason);
        free((void *)(uintptr_t)g->rows[i].details);
    }
    g->cnt = 0;
}

static bool wanted(const struct hf_store_filter *filter, const struct hf_reservation *reservation)
{
    switch (reservation->state) {
    case HF_RESERVATION_OPEN:
        return filter->open;
    case HF_RESERVATION_EXPIRED:
    case HF_RESERVATION_RETAINED:
    case HF_RESERVATION_DISPUTED:
        return filter->late_since_ms != HF_UNKNOWN && reservation->state_since_ms >= filter->late_since_ms;
    default:
        return filter->closed_since_ms != HF_UNKNOWN &&
               reservation->state_since_ms >= filter->closed_since_ms;
    }
}

static enum hf_store_status hand_over(struct gatherer *g)
{
    struct hf_reservation reservation;
    enum hf_store_status status = HF_STORE_OK;

    if (g->cnt == 0) {
        return HF_STORE_OK;
    }
    if (!hf_reservation_from_rows(g->rows, g->cnt, &reservation)) {
        status = hf_store_fail(g->error, HF_STORE_REFUSED,
                               "the %zu rows of the reservation with receipt %" PRIu64
                               " contradict each other. Was the store "
                               "changed by hand?",
                               g->cnt, g->rows[0].reservation_seq);
    } else if (wanted(g->filter, &reservation) && g->reservation(g->ctx, g->rows, g->cnt) != 0) {
        status = hf_store_stopped(g->error);
    }
    forget_rows(g);
    return status;
}

static bool copy_text(const char **text)
{
    if (*text != NULL) {
        *text = strdup(*text);
        return *text != NULL;
    }
    return true;
}

static enum hf_store_status gather(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct gatherer *g = ctx;
    struct hf_receipt receipt;
    struct hf_receipt *row;
    enum hf_store_status status = to_receipt(columns, &receipt, g->error);

    (void)cnt;
    if (status == HF_STORE_OK && g->cnt > 0 && receipt.reservation_seq != g->rows[0].reservation_seq) {
        status = hand_over(g);
    }
    if (status != HF_STORE_OK) {
        return status;
    }
    if (g->cnt == g->cap) {
        size_t cap = g->cap == 0 ? 8 : 2 * g->cap;
        struct hf_receipt *rows = realloc(g->rows, cap * sizeof(*rows));

        if (rows == NULL) {
            return hf_store_fail(g->error, HF_STORE_NOMEM, "no memory for the rows of a reservation");
        }
        g->rows = rows;
        g->cap = cap;
    }
    row = &g->rows[g->cnt];
    *row = receipt;
    row->details = NULL;
    if (!copy_text(&row->reason)) {
        return hf_store_fail(g->error, HF_STORE_NOMEM, "no memory for the rows of a reservation");
    }
    g->cnt++;
    row->details = receipt.details;
    if (!copy_text(&row->details)) {
        return hf_store_fail(g->error, HF_STORE_NOMEM, "no memory for the rows of a reservation");
    }
    return HF_STORE_OK;
}

/* clang-format off */
/* What is open: its rows hold one invocation in sum. And what was closed since: a superset, since an expired one may have been
 * settled later. */
static const char wanted_sql[] =
    "SELECT reservation_seq FROM (SELECT reservation_seq, held_invocations FROM every_receipt"
    "    WHERE segment_id = $1 AND seq >= $2 AND reservation_seq IS NOT NULL"
    "    UNION ALL SELECT reservation_seq, 1 FROM rollup_open WHERE segment_id = $1 AND number = $3) AS part"
    "    GROUP BY reservation_seq HAVING sum(held_invocations) > 0 "
    "UNION "
    "SELECT reservation_seq FROM every_receipt WHERE segment_id = $1 AND reservation_seq IS NOT NULL AND seq >= $4 AND ("
    "    made_ms >= $5 AND kind IN ('settlement', 'release', 'late_settlement', 'resolution') OR"
    "    made_ms >= $6 AND kind IN ('expiry', 'retention', 'dispute')) ORDER BY 1";
/* clang-format on */

/* Which reservations the filter may mean, in order. */
static enum hf_store_status list_wanted(struct hf_store *store, int64_t segment_id,
                                        const struct hf_store_filter *filter, struct hf_store_integers *seqs,
                                        struct hf_store_error *error)
{
    static const int64_t never = INT64_MAX;
    struct hf_rollup rollup = {.number = 0};
    bool closed = filter->closed_since_ms != HF_UNKNOWN || filter->late_since_ms != HF_UNKNOWN;
    uint64_t since_ms =
        filter->closed_since_ms < filter->late_since_ms ? filter->closed_since_ms : filter->late_since_ms;
    int64_t first_seq = never;
    enum hf_store_status status = HF_STORE_OK;

    if (!filter->open && !closed) {
        return HF_STORE_OK;
    }
    if (closed) {
        status = hf_store_first_since(store, segment_id, since_ms, &first_seq, error);
    }
    if (status == HF_STORE_OK && filter->open) {
        status = hf_rollup_of(store, segment_id, INT64_MAX, &rollup, error);
    }
    if (status != HF_STORE_OK) {
        return status;
    }
    struct hf_param params[6] = {hf_param_integer(segment_id),
                                 hf_param_integer(filter->open ? hf_store_signed(rollup.next_seq) : never),
                                 hf_param_integer(hf_store_signed(rollup.number)),
                                 hf_param_integer(first_seq),
                                 hf_param_integer(hf_store_signed(filter->closed_since_ms)),
                                 hf_param_integer(hf_store_signed(filter->late_since_ms))};

    return hf_store_query(store, wanted_sql, params, 6, hf_store_add_integer, seqs, error);
}

/* Their rows are fetched by so many at a time: a join would read the whole table by the choice of some planner. */
#define FETCH_CNT 128U

/* The statement for cnt of them: $2, $3, ... */
static void select_rows_of(char sql[2 * SQL_BYTES + 8 * FETCH_CNT], unsigned cnt)
{
    char list[8 * FETCH_CNT];
    char rows[SQL_BYTES];
    size_t len = 0;

    for (unsigned i = 0; i < cnt; i++) {
        len += (size_t)snprintf(list + len, sizeof(list) - len, "%s$%u", i == 0 ? "" : ", ", i + 2);
    }
    select_rows(rows, "WHERE segment_id = $1 AND seq IN (%s)", list);
    len = (size_t)snprintf(sql, 2 * SQL_BYTES, "%s UNION ALL ", rows);
    select_rows(rows,
                "WHERE segment_id = $1 AND reservation_seq IN (%s) AND kind <> 'reservation' "
                "ORDER BY reservation_seq, seq",
                list);
    (void)snprintf(sql + len, 2 * SQL_BYTES + 8 * FETCH_CNT - len, "%s", rows);
}

static enum hf_store_status fetch_rows(struct hf_store *store, int64_t segment_id,
                                       const struct hf_store_integers *seqs, struct gatherer *g)
{
    char sql[2 * SQL_BYTES + 8 * FETCH_CNT];
    struct hf_param params[1 + FETCH_CNT];
    unsigned planned = 0;
    enum hf_store_status status = HF_STORE_OK;

    params[0] = hf_param_integer(segment_id);
    for (size_t at = 0; at < seqs->cnt && status == HF_STORE_OK;) {
        unsigned cnt = seqs->cnt - at < FETCH_CNT ? (unsigned)(seqs->cnt - at) : FETCH_CNT;

        for (unsigned i = 0; i < cnt; i++) {
            params[1 + i] = hf_param_integer(seqs->list[at + i]);
        }
        if (cnt != planned) {
            select_rows_of(sql, cnt);
            planned = cnt;
        }
        status = hf_store_query(store, sql, params, 1 + cnt, gather, g, g->error);
        at += cnt;
    }
    return status == HF_STORE_OK ? hand_over(g) : status;
}

enum hf_store_status hf_store_reservations(struct hf_store *store, const char *segment,
                                           const struct hf_store_filter *filter,
                                           hf_store_reservation_fn *reservation, void *ctx,
                                           struct hf_store_error *error)
{
    struct gatherer g = {.filter = filter, .reservation = reservation, .ctx = ctx, .error = error};
    struct hf_store_integers seqs = {NULL, 0, 0};
    int64_t segment_id;
    enum hf_store_status status = hf_store_segment_id(store, segment, &segment_id, error);

    if (status == HF_STORE_OK) {
        status = list_wanted(store, segment_id, filter, &seqs, error);
    }
    if (status == HF_STORE_OK) {
        status = fetch_rows(store, segment_id, &seqs, &g);
    }
    forget_rows(&g);
    free(g.rows);
    free(seqs.list);
    return status;
}

/* ---- totals ------------------------------------------------------------------------------------------------------- */

/* A sum in two halves: the high one signed, the low one of 32 bits each, so that no database's sum of 64 bits overflows. */
#define SUM2(column) "CAST(sum(" column " >> 32) AS bigint), CAST(sum(" column " & 4294967295) AS bigint)"
#define EFFECT_SUMS                                                                                    \
    SUM2("held_invocations")                                                                           \
    ", " SUM2("held_tokens") ", " SUM2("held_cost_micros") ", " SUM2("charged_invocations") ", " SUM2( \
        "charged_tokens") ", " SUM2("charged_cost_micros")

static void add_effects(const struct hf_column *columns, __int128 held[HF_DIM_CNT],
                        __int128 charged[HF_DIM_CNT])
{
    for (unsigned d = 0; d < HF_DIM_CNT; d++) {
        const struct hf_column *h = &columns[2 * d];
        const struct hf_column *c = &columns[2 * (d + HF_DIM_CNT)];

        held[d] += (__int128)h[0].integer * ((__int128)1 << 32) + h[1].integer;
        charged[d] += (__int128)c[0].integer * ((__int128)1 << 32) + c[1].integer;
    }
}

static enum hf_store_status read_batch_totals(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct hf_store_totals *totals = ctx;

    (void)cnt;
    totals->batches_cnt = (uint64_t)columns[0].integer;
    totals->batch_rows_cnt = (uint64_t)columns[1].integer;
    return HF_STORE_OK;
}

static enum hf_store_status read_totals(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct hf_store_totals *totals = ctx;
    uint64_t rows_cnt = (uint64_t)columns[3].integer;

    (void)cnt;
    totals->receipts_cnt += rows_cnt;
    for (unsigned k = 0; k < HF_RECEIPT_KIND_CNT; k++) {
        if (strcmp(columns[0].bytes, hf_receipt_kind_name((enum hf_receipt_kind)k)) == 0) {
            totals->kinds_cnt[k] += rows_cnt;
        }
    }
    totals->conflicts_cnt += columns[1].integer != 0 ? rows_cnt : 0;
    totals->aside_cnt += columns[2].integer != 0 ? rows_cnt : 0;
    add_effects(&columns[4], totals->held, totals->charged);
    return HF_STORE_OK;
}

enum hf_store_status hf_store_totals(struct hf_store *store, const char *segment,
                                     struct hf_store_totals *totals, struct hf_store_error *error)
{
    int64_t segment_id;
    struct hf_param params[1];
    enum hf_store_status status = hf_store_segment_id(store, segment, &segment_id, error);

    memset(totals, 0, sizeof(*totals));
    if (status != HF_STORE_OK) {
        return status;
    }
    params[0] = hf_param_integer(segment_id);
    status = hf_store_query(
        store, "SELECT count(*), CAST(coalesce(sum(rows_cnt), 0) AS bigint) FROM batch WHERE segment_id = $1",
        params, 1, read_batch_totals, totals, error);
    if (status == HF_STORE_OK) {
        status = hf_store_query(store,
                                "SELECT kind, conflict, aside, count(*), " EFFECT_SUMS " FROM every_receipt "
                                "WHERE segment_id = $1 GROUP BY kind, conflict, aside ORDER BY kind",
                                params, 1, read_totals, totals, error);
    }
    if (status == HF_STORE_OK) {
        int64_t pruned_cnt = 0;

        status = hf_store_query(
            store, "SELECT CAST(coalesce(sum(rows_cnt), 0) AS bigint) FROM prune WHERE segment_id = $1",
            params, 1, hf_store_one_integer, &pruned_cnt, error);
        totals->pruned_cnt = (uint64_t)pruned_cnt;
    }
    return status;
}
