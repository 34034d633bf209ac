#include "bench/history.h"

#include "persist/rollup.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MONTH_MS  (UINT64_C(28) * 86400000)
#define IN_FLIGHT 64U /* a reservation is settled so many pairs later */

static void set_name(struct hf_name *name, const char *format, uint64_t number)
{
    char text[HF_NAME_BYTES_MAX + 1];
    int len = snprintf(text, sizeof(text), format, number);

    (void)hf_name_set(name, text, (size_t)len);
}

static void set_path(struct hf_receipt *row, const struct hf_history *history, uint64_t pair,
                     uint64_t window_ms)
{
    set_name(&row->id, "request-%016" PRIx64, pair * UINT64_C(0x9e3779b97f4a7c15)); /* in no order */
    (void)hf_name_set(&row->tenant, "t", 1);
    set_name(&row->team, "team-%" PRIu64, pair % history->teams);
    (void)hf_name_set(&row->capability, "chat", 4);
    (void)hf_name_set(&row->model, "m", 1);
    row->window_ms = window_ms;
    row->expires_at_ms = window_ms + 60000;
    row->admission = HF_ADMISSION_ALLOW;
    row->on_expiry = HF_ON_EXPIRY_RELEASE;
    row->on_overage = HF_ON_OVERAGE_RECORD;
    row->dispatched = 0;
    row->hold_tokens = 900;
    row->hold_cost_micros = 6200;
    row->bucket_mask = UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MONTH, HF_DIM_COST) |
                       UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TENANT, HF_WINDOW_MONTH, HF_DIM_COST) |
                       UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MINUTE, HF_DIM_TOKENS);
}

static void reservation(struct hf_receipt *row, const struct hf_history *history, uint64_t pair,
                        uint64_t now_ms)
{
    hf_receipt_init(row, HF_RECEIPT_RESERVATION);
    set_path(row, history, pair, now_ms);
    row->made_ms = now_ms;
    row->held_invocations = 1;
    row->held_tokens = 900;
    row->held_cost_micros = 6200;
    row->form = HF_FORM_MODEL;
    row->basis = HF_BASIS_ESTIMATE;
    row->input_tokens = 500;
    row->max_output_tokens = 400;
    row->input_micros_per_mtok = 1000000;
    row->output_micros_per_mtok = 2000000;
    row->policy_revision = 1;
    (void)hf_name_set(&row->price_revision, "1", 1);
    (void)hf_name_set(&row->currency, "EUR", 3);
    (void)hf_name_set(&row->model_asked, "m", 1);
    row->limits[hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MONTH, HF_DIM_COST)] = UINT64_C(40000000000);
    row->limits[hf_receipt_bucket(HF_LAYER_TENANT, HF_WINDOW_MONTH, HF_DIM_COST)] = UINT64_C(100000000000);
    row->limits[hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MINUTE, HF_DIM_TOKENS)] = UINT64_C(90000000);
}

static void settlement(struct hf_receipt *row, const struct hf_history *history, uint64_t pair,
                       uint64_t window_ms, uint64_t now_ms)
{
    hf_receipt_init(row, HF_RECEIPT_SETTLEMENT);
    set_path(row, history, pair, window_ms);
    row->made_ms = now_ms;
    row->held_invocations = -1;
    row->held_tokens = -900;
    row->held_cost_micros = -6200;
    row->charged_invocations = 1;
    row->charged_tokens = 800;
    row->charged_cost_micros = 4100;
    row->usage_known = 1;
    row->usage_input_tokens = 500;
    row->usage_output_tokens = 300;
    row->cost_source = HF_COST_DERIVED;
    row->actual_tokens = 800;
    row->actual_cost_micros = 4100;
    row->released_tokens = 100;
    row->released_cost_micros = 2100;
    row->overage_tokens = 0;
    row->overage_cost_micros = 0;
    row->outcome = HF_OUTCOME_SUCCESS;
    row->quota_exceeded = 0;
    row->late = 0;
}

struct filling {
    const struct hf_history *history;
    uint64_t made;   /* receipts so far */
    uint64_t opened; /* pairs reserved */
    uint64_t closed; /* pairs settled or passed over */
    uint64_t left;   /* pairs that stay open */
};

static uint64_t instant(const struct filling *f, uint64_t pair)
{
    uint64_t pairs = f->history->rows / 2 + f->history->open + 1;

    return f->history->start_ms + (uint64_t)((unsigned __int128)MONTH_MS * pair / pairs);
}

/* True for a pair that is never settled: `open` of all, evenly spread. */
static bool stays_open(const struct filling *f, uint64_t pair)
{
    uint64_t pairs = f->history->rows / 2 + f->history->open + 1;

    return pair * f->history->open / pairs != (pair + 1) * f->history->open / pairs;
}

static void next_row(struct filling *f, struct hf_receipt *row)
{
    while (f->closed < f->opened && stays_open(f, f->closed)) {
        f->closed++;
        f->left++;
    }
    if (f->opened < f->closed + IN_FLIGHT) {
        reservation(row, f->history, f->opened, instant(f, f->opened));
        f->opened++;
    } else {
        settlement(row, f->history, f->closed, instant(f, f->closed), instant(f, f->opened));
        f->closed++;
    }
    f->made++;
}

static double now_s(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

enum hf_store_status hf_history_fill(struct hf_store *store, const struct hf_history *history,
                                     struct hf_history_done *done, struct hf_store_error *error)
{
    struct filling f = {.history = history};
    struct hf_receipt *rows = calloc(history->batch_rows, sizeof(*rows));
    struct hf_store_batch batch = {.number = 0, .epoch = 1};
    struct hf_rollup rollup = {.next_seq = 1};
    uint64_t next_seq = 1;
    enum hf_store_status status = rows == NULL ? HF_STORE_NOMEM : HF_STORE_OK;

    *done = (struct hf_history_done){0};
    while (status == HF_STORE_OK && f.made < history->rows) {
        uint32_t cnt = 0;

        for (; cnt < history->batch_rows && f.made < history->rows; cnt++) {
            next_row(&f, &rows[cnt]);
            rows[cnt].epoch = 1;
            rows[cnt].seq = next_seq + cnt;
        }
        memcpy(batch.before, batch.digest, HF_DIGEST_BYTES);
        batch.number++;
        batch.first_seq = next_seq;
        batch.committed_ms = instant(&f, f.opened);
        double start = now_s(CLOCK_MONOTONIC);
        double start_cpu = now_s(CLOCK_THREAD_CPUTIME_ID);

        status = hf_store_commit(store, &batch, rows, cnt, NULL, error);
        done->commit_cpu_s += now_s(CLOCK_THREAD_CPUTIME_ID) - start_cpu;
        done->commit_s += now_s(CLOCK_MONOTONIC) - start;
        next_seq += cnt;
        while (status == HF_STORE_OK && history->rollups && hf_rollup_due(&rollup, next_seq)) {
            status = hf_rollup_make(store, HF_ROLLUP_ROWS_MAX, &rollup, error);
        }
    }
    done->rollups = rollup.number;
    done->tail = next_seq - rollup.next_seq;
    free(rows);
    return status;
}
