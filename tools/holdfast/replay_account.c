/* The account of a replay: what the store has against what the workers wrote down, row by row, and every bucket against
 * slots and store. */
#include "core/client.h"
#include "shm/clock.h"
#include "tools/holdfast/command.h"
#include "tools/holdfast/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FLUSH_MS         60000U
#define RECONCILE_TRIES  50
#define REAP_WAIT_MAX_MS 30000U

/* What the store says of a row of the trace. */
enum seen {
    SEEN_RESERVED = 1,
    SEEN_CLOSED = 2,
    SEEN_LATE = 4,
    SEEN_DEGRADED = 8
};

struct account {
    struct hf_replay_run *run;
    struct hf_replay_account *out;
    uint8_t *seen; /* per row */
};

static bool is_closing(enum hf_receipt_kind kind)
{
    return kind >= HF_RECEIPT_SETTLEMENT && kind <= HF_RECEIPT_DISPUTE;
}

static void check_amounts(struct account *account, uint64_t i, const struct hf_receipt *receipt)
{
    uint64_t tokens;
    uint64_t cost;
    hf_replay_actual(&account->run->plan, &account->run->plan.rows[i],
                     (account->seen[i] & SEEN_DEGRADED) != 0, &tokens, &cost);
    account->out->wrong_amounts += receipt->actual_tokens != tokens || receipt->actual_cost_micros != cost;
}

static int look_at_row(void *ctx, const struct hf_receipt *receipt)
{
    struct account *account = ctx;
    uint64_t i = receipt->id.len == 0 ? UINT64_MAX : hf_replay_row_of(account->run, receipt->id.bytes);
    if (i == UINT64_MAX) {
        return 0;
    }
    uint8_t bit = receipt->kind == HF_RECEIPT_RESERVATION ? SEEN_RESERVED
                  : is_closing(receipt->kind)             ? SEEN_CLOSED
                  : receipt->kind == HF_RECEIPT_LATE      ? SEEN_LATE
                                                          : 0;
    account->out->twice += (account->seen[i] & bit) != 0;
    account->seen[i] |= bit;
    if (receipt->kind == HF_RECEIPT_RESERVATION && receipt->admission == HF_ADMISSION_DEGRADE) {
        account->seen[i] |= SEEN_DEGRADED;
    }
    account->out->reservations += receipt->kind == HF_RECEIPT_RESERVATION;
    account->out->settlements += receipt->kind == HF_RECEIPT_SETTLEMENT || receipt->kind == HF_RECEIPT_LATE;
    account->out->expiries += receipt->kind == HF_RECEIPT_EXPIRY || receipt->kind == HF_RECEIPT_RETENTION;
    account->out->charged_tokens += receipt->charged_tokens;
    account->out->charged_micros += receipt->charged_cost_micros;
    if (receipt->kind == HF_RECEIPT_SETTLEMENT || receipt->kind == HF_RECEIPT_LATE) {
        check_amounts(account, i, receipt);
    }
    return 0;
}

/* What was written down must be there. What is there and was not written down belongs to a killed worker. */
static void compare_steps(struct account *account)
{
    for (uint64_t i = 0; i < account->run->plan.rows_cnt; i++) {
        enum hf_replay_step step = (enum hf_replay_step)account->run->shared->steps[i];
        uint8_t seen = account->seen[i];
        bool closed = (seen & (SEEN_CLOSED | SEEN_LATE)) != 0;
        if (step >= HF_REPLAY_STEP_ADMITTED && (seen & SEEN_RESERVED) == 0) {
            account->out->missing++;
        }
        if (step == HF_REPLAY_STEP_SETTLED && !closed) {
            account->out->missing++;
        }
        if ((step == HF_REPLAY_STEP_NONE || step == HF_REPLAY_STEP_REFUSED) && seen != 0) {
            account->out->twice++; /* held although it was refused, or never asked for */
        }
        account->out->unwritten += step == HF_REPLAY_STEP_BEGUN && (seen & SEEN_RESERVED) != 0;
    }
}

/* Holds that killed workers left are reaped at their deadline: waited for when that is soon. */
static void wait_for_reaper(const struct hf_replay_run *run, struct holdfast *handle)
{
    uint64_t ttl_ms = run->options.ttl_ms;
    if (run->workers_killed == 0 || ttl_ms == HOLDFAST_UNKNOWN || ttl_ms > REAP_WAIT_MAX_MS) {
        return;
    }
    (void)fprintf(stderr,
                  "holdfast replay: waiting %" PRIu64 " ms for the holds of killed workers to be reaped\n",
                  ttl_ms + 1000);
    const struct timespec time = {.tv_sec = (time_t)((ttl_ms + 1000) / 1000),
                                  .tv_nsec = (long)((ttl_ms + 1000) % 1000) * 1000000};
    (void)nanosleep(&time, NULL);
    (void)!holdfast_flush(handle, FLUSH_MS);
}

static int reconcile(struct account *account, struct holdfast_segment *segment, struct holdfast *handle,
                     struct hf_store *store, const char *name)
{
    struct hf_store_error error = {.text = ""};
    enum hf_reconcile_result result = HF_RECONCILE_MOVED;
    for (int try = 0; try < RECONCILE_TRIES && result == HF_RECONCILE_MOVED; try++) {
        if (holdfast_flush(handle, FLUSH_MS) != HOLDFAST_OK) {
            return hf_command_fail("replay", HF_EXIT_FAILED,
                                   "the daemon did not drain within %u s: is its store there?",
                                   FLUSH_MS / 1000);
        }
        result = hf_reconcile(&segment->map, store, name, &account->out->reconcile, &error);
    }
    if (result != HF_RECONCILE_DONE) {
        return hf_command_fail("replay", HF_EXIT_FAILED, "segment and store cannot be compared: %s",
                               result == HF_RECONCILE_MOVED ? "others are at work on the segment"
                                                            : error.text);
    }
    return 0;
}

static int read_store(struct account *account, struct hf_store *store, const char *name)
{
    struct hf_store_error error = {.text = ""};
    struct hf_store_head head;
    enum hf_store_status status = hf_store_head(store, name, &head, &error);
    for (uint64_t seq = 1; status == HF_STORE_OK && seq < head.next_seq; seq += 65536) {
        uint64_t cnt = head.next_seq - seq < 65536 ? head.next_seq - seq : 65536;
        status = hf_store_rows(store, name, seq, cnt, look_at_row, account, &error);
    }
    if (status == HF_STORE_OK) {
        status = hf_store_totals(store, name, &account->out->totals, &error);
    }
    if (status != HF_STORE_OK) {
        return hf_command_fail("replay", HF_EXIT_FAILED, "the store cannot be read: %s", error.text);
    }
    return 0;
}

static int account_open(struct account *account, struct holdfast_segment *segment, struct holdfast *handle)
{
    struct hf_store_options options = {.role = HF_STORE_READER};
    struct hf_store_error error = {.text = ""};
    struct hf_store *store = NULL;
    const char *name = segment->map.header->hdr_store_name; /* plain: written by the creator */
    wait_for_reaper(account->run, handle);
    if (hf_store_open(account->run->store, &options, &store, &error) != HF_STORE_OK) {
        return hf_command_fail("replay", HF_EXIT_FAILED, "the store cannot be opened: %s", error.text);
    }
    int status = reconcile(account, segment, handle, store, name);
    if (status == 0) {
        status = read_store(account, store, name);
    }
    hf_store_close(store);
    if (status == 0) {
        compare_steps(account);
        const struct hf_replay_account *out = account->out;
        uint64_t rows_lost = out->totals.batch_rows_cnt - out->totals.receipts_cnt;
        account->out->mismatches = out->reconcile.mismatches_cnt + out->missing + out->twice +
                                   out->wrong_amounts + rows_lost + out->totals.conflicts_cnt +
                                   out->totals.aside_cnt;
    }
    return status;
}

int hf_replay_account(struct hf_replay_run *run, struct hf_replay_account *out)
{
    struct account account = {.run = run, .out = out};
    struct holdfast_segment *segment;
    struct holdfast *handle;
    char error[512] = "";
    memset(out, 0, sizeof *out);
    account.seen = calloc(run->plan.rows_cnt + 1, 1);
    if (account.seen == NULL || holdfast_open(run->segment, &segment, error, sizeof error) != HOLDFAST_OK) {
        free(account.seen);
        return hf_command_fail("replay", HF_EXIT_FAILED, "the segment cannot be opened any more: %s", error);
    }
    int status = HF_EXIT_FAILED;
    if (holdfast_join(segment, &handle) == HOLDFAST_OK) {
        status = account_open(&account, segment, handle);
        holdfast_leave(handle);
    }
    holdfast_close(segment);
    free(account.seen);
    return status;
}
