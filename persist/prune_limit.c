/* Retention: what stands in the way of a segment's receipts. */
#include "core/window.h"
#include "persist/prune_impl.h"
#include "persist/rollup_impl.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HORIZON_MEMBER "\"late_horizon_ms\":"

static void lower(struct hf_prune_segment *s, int64_t seq, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void lower(struct hf_prune_segment *s, int64_t seq, const char *format, ...)
{
    va_list args;

    if (seq >= s->limit_seq) {
        return;
    }
    s->limit_seq = seq;
    va_start(args, format);
    (void)vsnprintf(s->limit_text, sizeof(s->limit_text), format, args);
    va_end(args);
}

static enum hf_store_status read_horizon(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    const char *member = columns[0].bytes == NULL ? NULL : strstr(columns[0].bytes, HORIZON_MEMBER);

    (void)cnt;
    if (member != NULL) {
        *(uint64_t *)ctx = strtoull(member + strlen(HORIZON_MEMBER), NULL, 10);
    }
    return HF_STORE_OK;
}

/* What was committed from then on is young: a daemon may be asked to settle it late, or to tell it again. */
static enum hf_store_status find_young(struct hf_store *store, const struct hf_prune_segment *s,
                                       uint64_t now_ms, uint64_t *young_ms, struct hf_store_error *error)
{
    struct hf_param param = hf_param_integer(s->segment_id);
    uint64_t horizon_ms = 0;
    uint64_t age_ms = HF_PRUNE_YOUNG_MS;
    enum hf_store_status status = store->ops->query(
        store,
        "SELECT details FROM every_receipt WHERE segment_id = $1 AND kind = 'epoch' ORDER BY seq DESC LIMIT 1",
        &param, 1, read_horizon, &horizon_ms, error);

    if (horizon_ms > now_ms) {
        horizon_ms = now_ms;
    }
    /* A day of slack: for the reservations of that epoch that were made shortly before their horizon. */
    if (horizon_ms + HF_PRUNE_YOUNG_MS / 2 > age_ms) {
        age_ms = horizon_ms + HF_PRUNE_YOUNG_MS / 2;
    }
    *young_ms = now_ms > age_ms ? now_ms - age_ms : 0;
    return status;
}

static enum hf_store_status limit_by_time(struct hf_store *store, struct hf_prune_segment *s, uint64_t now_ms,
                                          uint64_t before_ms, int64_t young_seq, struct hf_store_error *error)
{
    /* A rollup that covers all there is says as much of the months after its end. */
    bool all = hf_store_signed(s->rollup.next_seq) >= s->chain_next;
    uint64_t over_ms = all || now_ms < s->rollup.end_ms ? now_ms : s->rollup.end_ms;
    uint64_t month_ms = hf_window_start_ms(HF_WINDOW_MONTH, hf_window_id(HF_WINDOW_MONTH, over_ms));
    int64_t seq;
    enum hf_store_status status = hf_store_first_since(store, s->segment_id, before_ms, &seq, error);

    if (status == HF_STORE_OK) {
        lower(s, seq, "receipts of '%s' from %" PRId64 " on were committed at --before or later", s->name,
              seq);
        status = hf_store_first_since(store, s->segment_id, month_ms, &seq, error);
    }
    if (status == HF_STORE_OK) {
        lower(s, seq,
              "receipts of '%s' from %" PRId64
              " on count in a month that is not over, by the store's clock and the newest rollup",
              s->name, seq);
    }
    lower(s, young_seq,
          "receipts of '%s' from %" PRId64
          " on are younger than two days or the late horizon: a daemon may still be asked for them",
          s->name, young_seq);
    return status;
}

/* Reservations that are open, or that had a receipt since young_seq. */
static enum hf_store_status limit_by_reservations(struct hf_store *store, struct hf_prune_segment *s,
                                                  int64_t young_seq, struct hf_store_error *error)
{
    struct hf_param params[2] = {hf_param_integer(s->segment_id),
                                 hf_param_integer(hf_store_signed(s->rollup.number))};
    int64_t seq = INT64_MAX;
    enum hf_store_status status = store->ops->query(
        store, "SELECT min(reservation_seq) FROM rollup_open WHERE segment_id = $1 AND number = $2", params,
        2, hf_store_one_or_none, &seq, error);

    if (status == HF_STORE_OK) {
        lower(
            s, seq,
            "the reservation of '%s' with receipt %" PRId64
            " is open, or was at the newest rollup: settle it or let it expire, and wait for the next rollup",
            s->name, seq);
        params[1] = hf_param_integer(young_seq);
        status = store->ops->query(
            store, "SELECT min(reservation_seq) FROM every_receipt WHERE segment_id = $1 AND seq >= $2",
            params, 2, hf_store_one_or_none, &seq, error);
    }
    if (status == HF_STORE_OK) {
        lower(s, seq,
              "the reservation of '%s' with receipt %" PRId64
              " had another receipt less than two days, or the late horizon, ago",
              s->name, seq);
    }
    return status;
}

enum hf_store_status hf_prune_limit(struct hf_store *store, struct hf_prune_segment *s, uint64_t now_ms,
                                    uint64_t before_ms, struct hf_store_error *error)
{
    uint64_t young_ms = 0;
    int64_t young_seq = INT64_MAX;
    enum hf_store_status status = hf_rollup_of(store, s->segment_id, INT64_MAX, &s->rollup, error);

    s->limit_seq = INT64_MAX;
    if (status == HF_STORE_OK && s->rollup.number == 0) {
        lower(s, 1,
              "no rollup covers the receipts of '%s' yet: its daemon makes the first one after %u receipts",
              s->name, HF_ROLLUP_ROWS);
        return HF_STORE_OK;
    }
    if (status == HF_STORE_OK) {
        lower(s, hf_store_signed(s->rollup.next_seq),
              "receipts of '%s' from %" PRIu64 " on are in no rollup yet: its daemon makes the next one",
              s->name, s->rollup.next_seq);
        status = find_young(store, s, now_ms, &young_ms, error);
    }
    if (status == HF_STORE_OK) {
        status = hf_store_first_since(store, s->segment_id, young_ms, &young_seq, error);
    }
    if (status == HF_STORE_OK) {
        status = limit_by_time(store, s, now_ms, before_ms, young_seq, error);
    }
    return status == HF_STORE_OK ? limit_by_reservations(store, s, young_seq, error) : status;
}
