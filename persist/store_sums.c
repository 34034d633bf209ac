/* Sums and meters, the same for every store: from the newest rollup and the receipts after it. */
#include "core/window.h"
#include "persist/rollup_impl.h"

#include <string.h>

static void to_name(struct hf_name *name, const struct hf_column *column)
{
    memset(name, 0, sizeof(*name));
    if (!column->null) {
        hf_name_set(name, column->bytes, column->len);
    }
}

/* ---- sums --------------------------------------------------------------------------------------------------------- */

/* clang-format off */
static const char sums_sql[] =
    "SELECT tenant, team, key, bucket_mask, CAST(sum(rows_cnt) AS bigint), CAST(sum(held_invocations) AS bigint),"
    "    CAST(sum(held_tokens_high) AS bigint), CAST(sum(held_tokens_low) AS bigint),"
    "    CAST(sum(held_cost_high) AS bigint), CAST(sum(held_cost_low) AS bigint),"
    "    CAST(sum(charged_invocations) AS bigint),"
    "    CAST(sum(charged_tokens_high) AS bigint), CAST(sum(charged_tokens_low) AS bigint),"
    "    CAST(sum(charged_cost_high) AS bigint), CAST(sum(charged_cost_low) AS bigint) "
    "FROM (SELECT tenant, team, key, bucket_mask, rows_cnt, held_invocations, held_tokens_high, held_tokens_low,"
    "        held_cost_high, held_cost_low, charged_invocations, charged_tokens_high, charged_tokens_low,"
    "        charged_cost_high, charged_cost_low "
    "    FROM rollup_sum WHERE segment_id = $1 AND number = $2 AND window_kind = $3 AND start_ms = $4 "
    "    UNION ALL "
    "    SELECT tenant, team, key, bucket_mask & $5 AS bucket_mask, 1 AS rows_cnt, held_invocations,"
    "        held_tokens_high, held_tokens_low, held_cost_high, held_cost_low, charged_invocations,"
    "        charged_tokens_high, charged_tokens_low, charged_cost_high, charged_cost_low "
    "    FROM sum_row WHERE segment_id = $1 AND seq >= $6 AND window_ms >= $4 AND window_ms < $7"
    "        AND (bucket_mask & $5) <> 0) AS part "
    "GROUP BY tenant, team, key, bucket_mask ORDER BY tenant, team, key, bucket_mask";
/* clang-format on */

struct sum_reader {
    hf_store_sum_fn *sum;
    void *ctx;
    enum hf_window window;
    struct hf_store_error *error;
};

/* high * 2^32 + low */
static __int128 halves(const struct hf_column *columns)
{
    return (__int128)columns[0].integer * ((__int128)1 << 32) + columns[1].integer;
}

static enum hf_store_status read_sum(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct sum_reader *reader = ctx;
    struct hf_store_sum sum = {.window = reader->window,
                               .bucket_mask = (uint64_t)columns[3].integer,
                               .rows_cnt = (uint64_t)columns[4].integer,
                               .held = {columns[5].integer, halves(&columns[6]), halves(&columns[8])},
                               .charged = {columns[10].integer, halves(&columns[11]), halves(&columns[13])}};

    (void)cnt;
    to_name(&sum.tenant, &columns[0]);
    to_name(&sum.team, &columns[1]);
    to_name(&sum.key, &columns[2]);
    return reader->sum(reader->ctx, &sum) == 0 ? HF_STORE_OK : hf_store_stopped(reader->error);
}

/* An instant before a rollup that receipts were pruned by needs these receipts: only a clock that ran back so far shows one. */
static enum hf_store_status refuse_pruned(struct hf_store *store, int64_t segment_id,
                                          const struct hf_rollup *rollup, struct hf_store_error *error)
{
    struct hf_param param = hf_param_integer(segment_id);
    int64_t pruned_next = 0;
    enum hf_store_status status = hf_store_query(
        store, "SELECT CAST(coalesce(max(next_seq), 0) AS bigint) FROM prune WHERE segment_id = $1", &param,
        1, hf_store_one_integer, &pruned_next, error);

    if (status == HF_STORE_OK && pruned_next > hf_store_signed(rollup->next_seq)) {
        return hf_store_fail(error, HF_STORE_REFUSED,
                             "the clock shows a time whose receipts were pruned from %s: what was used then "
                             "cannot be told any more. Set the clock of the store's host right",
                             store->display);
    }
    return status;
}

enum hf_store_status hf_store_sums(struct hf_store *store, const char *segment, uint64_t now_ms,
                                   uint32_t windows, hf_store_sum_fn *sum, void *ctx,
                                   struct hf_store_error *error)
{
    struct hf_rollup rollup = {.number = 0};
    int64_t segment_id;
    enum hf_store_status status = hf_store_segment_id(store, segment, &segment_id, error);

    if (status == HF_STORE_OK && now_ms > HF_CLOCK_MS_MAX) {
        return hf_store_fail(error, HF_STORE_INVALID, "an instant beyond the end of the clock");
    }
    if (status == HF_STORE_OK) {
        status = hf_rollup_of(store, segment_id, (int64_t)now_ms, &rollup, error);
    }
    if (status == HF_STORE_OK) {
        status = refuse_pruned(store, segment_id, &rollup, error);
    }
    for (unsigned w = 0; w < HF_WINDOW_CNT && status == HF_STORE_OK; w++) {
        struct sum_reader reader = {.sum = sum, .ctx = ctx, .window = (enum hf_window)w, .error = error};
        uint32_t id = hf_window_id(reader.window, now_ms);
        uint64_t start_ms = hf_window_start_ms(reader.window, id);
        int64_t first_seq;

        if ((windows >> w & 1) == 0) {
            continue;
        }
        status = hf_store_first_since(store, segment_id, start_ms, &first_seq, error);
        if (status != HF_STORE_OK) {
            break;
        }
        if (first_seq < hf_store_signed(rollup.next_seq)) {
            first_seq = hf_store_signed(rollup.next_seq);
        }
        struct hf_param params[7] = {hf_param_integer(segment_id),
                                     hf_param_integer(hf_store_signed(rollup.number)),
                                     hf_param_text(hf_window_name(reader.window)),
                                     hf_param_integer(hf_store_signed(start_ms)),
                                     hf_param_integer((int64_t)hf_rollup_window_mask(reader.window)),
                                     hf_param_integer(first_seq),
                                     hf_param_integer(hf_store_signed(hf_window_end_ms(reader.window, id)))};

        status = hf_store_query(store, sums_sql, params, 7, read_sum, &reader, error);
    }
    return status;
}

/* ---- meters ------------------------------------------------------------------------------------------------------- */

/* clang-format off */
static const char meters_sql[] =
    "SELECT tenant, capability, model, CAST(sum(requests) AS bigint), CAST(sum(failures) AS bigint),"
    "    CAST(sum(degraded) AS bigint), CAST(sum(reserved_micros) AS bigint), CAST(sum(settled_micros) AS bigint) "
    "FROM (SELECT tenant, coalesce(capability, '') AS capability, coalesce(model, '') AS model, requests, failures,"
    "        degraded, reserved_micros, settled_micros FROM meter_row WHERE segment_id = $1 AND seq >= $2 "
    "    UNION ALL "
    "    SELECT tenant, capability, model, requests, failures, degraded, reserved_micros, settled_micros"
    "    FROM rollup_meter WHERE segment_id = $1 AND number = $3) AS part "
    "WHERE $4 = '' OR tenant = $4 "
    "GROUP BY tenant, capability, model ORDER BY tenant, capability, model";
/* clang-format on */

struct meter_reader {
    hf_store_meter_fn *meter;
    void *ctx;
    struct hf_store_error *error;
};

static enum hf_store_status read_meter(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct meter_reader *reader = ctx;
    struct hf_store_meter meter;

    (void)cnt;
    to_name(&meter.tenant, &columns[0]);
    to_name(&meter.capability, &columns[1]);
    to_name(&meter.model, &columns[2]);
    meter.requests = columns[3].integer;
    meter.failures = columns[4].integer;
    meter.degraded = columns[5].integer;
    meter.reserved_micros = columns[6].integer;
    meter.settled_micros = columns[7].integer;
    return reader->meter(reader->ctx, &meter) == 0 ? HF_STORE_OK : hf_store_stopped(reader->error);
}

enum hf_store_status hf_store_meters(struct hf_store *store, const char *segment, const char *tenant,
                                     hf_store_meter_fn *meter, void *ctx, struct hf_store_error *error)
{
    struct meter_reader reader = {.meter = meter, .ctx = ctx, .error = error};
    struct hf_rollup rollup = {.number = 0};
    int64_t segment_id;
    enum hf_store_status status = hf_store_segment_id(store, segment, &segment_id, error);

    if (status == HF_STORE_OK) {
        status = hf_rollup_of(store, segment_id, INT64_MAX, &rollup, error);
    }
    if (status != HF_STORE_OK) {
        return status;
    }
    struct hf_param params[4] = {
        hf_param_integer(segment_id), hf_param_integer(hf_store_signed(rollup.next_seq)),
        hf_param_integer(hf_store_signed(rollup.number)), hf_param_text(tenant == NULL ? "" : tenant)};

    return hf_store_query(store, meters_sql, params, 4, read_meter, &reader, error);
}
