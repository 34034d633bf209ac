/* A batch on its way: announced in the segment, committed by the store, marked in its slots. */
#include "persist/drain_impl.h"

#include "persist/batch.h"
#include "shm/clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BACKOFF_MS_MIN 50U
#define BACKOFF_MS_MAX 5000U
#define SAY_EVERY_MS   10000U

void hf_drain_drop_texts(struct hf_drain *drain)
{
    while (drain->texts_cnt > 0) {
        free(drain->texts[--drain->texts_cnt]);
    }
}

/* What the commit filled in of a reservation is kept for its later rows. */
static void remember(struct hf_drain *drain, const struct hf_receipt *row, uint32_t entry)
{
    const struct hf_shm_batch_entry *e = &drain->desc->bat_entries[entry];
    struct hf_drain_reserved *reserved =
        &drain->reserved[drain->ended[entry].slot_idx]; /* the segment may be damaged */
    const uint8_t *digest = row->kind == HF_RECEIPT_RESERVATION ? row->digest : row->reservation_digest;

    if (!hf_receipt_in_family(row->kind) || row->reservation_seq == HF_UNKNOWN) {
        return;
    }
    reserved->seq = row->reservation_seq;
    reserved->gen = hf_persisted_gen(e->bat_persisted);
    memcpy(reserved->digest, digest, HF_DIGEST_BYTES);
}

static int compare_ends(const void *a, const void *b)
{
    const struct hf_drain_ended *x = a;
    const struct hf_drain_ended *y = b;

    return x->st.hi < y->st.hi ? -1 : x->st.hi > y->st.hi; /* time first */
}

/* Slots of a committed batch go to where they wait, in the order in which they closed. */
static void take_on(struct hf_drain *drain)
{
    qsort(drain->ended, drain->entries_cnt, sizeof(*drain->ended), compare_ends);
    for (uint32_t i = 0; i < drain->entries_cnt; i++) {
        const struct hf_drain_ended *ended = &drain->ended[i];

        if (hf_st_state(ended->st) == HF_STATE_CREDIT) {
            hf_drain_mark_pending(drain,
                                  ended->slot_idx); /* nothing is owed any more: the next look frees it */
        } else {
            hf_closed_push(&drain->closed, ended->slot_idx, ended->st);
        }
    }
}

/* The batch is committed: marks its slots, publishes, and takes them on to where they wait. */
static void committed(struct hf_drain *drain)
{
    struct hf_segment *seg = drain->seg;
    uint32_t row = 0;

    for (uint32_t i = 0; i < drain->entries_cnt; i++) {
        uint32_t extra = 0;

        for (; row < drain->rows_cnt && drain->origins[row].entry == i; row++) {
            const struct hf_receipt *receipt = &drain->rows[row];

            extra |= receipt->kind == HF_RECEIPT_RESERVATION && receipt->conflict ? HF_PERSISTED_CONFLICT : 0;
            remember(drain, receipt, i);
        }
        hf_batch_mark(seg, &drain->desc->bat_entries[i], extra);
    }
    for (row = 0; row < drain->rows_cnt; row++) {
        hf_publish_receipt(drain->options.publish, &drain->rows[row], drain->origins[row].rows);
        hf_publish_alarms(drain->options.publish, &drain->rows[row]);
    }
    hf_batch_done(seg, drain->desc, &drain->batch);
    take_on(drain);
    drain->options.committed_ms = drain->batch.committed_ms;
    drain->counts.rows_committed += drain->rows_cnt;
    drain->counts.batches_committed++;
    drain->in_flight = false;
    drain->tries = 0;
    hf_drain_drop_texts(drain);
}

static void later(struct hf_drain *drain, uint64_t mono_ms, const char *what, const char *why)
{
    uint64_t wait = BACKOFF_MS_MIN << (drain->tries < 7 ? drain->tries : 7);

    wait = wait > BACKOFF_MS_MAX ? BACKOFF_MS_MAX : wait;
    drain->random = drain->random * 1664525U + 1013904223U;
    wait = wait / 2 + (drain->random >> 8) % (wait / 2 + 1);
    drain->next_try_ms = mono_ms + wait;
    if (drain->tries++ == 0 || mono_ms - drain->said_ms >= SAY_EVERY_MS) {
        drain->said_ms = mono_ms;
        hf_log_say(&drain->options.log, HF_LOG_WARNING, "%s (%" PRIu32 " receipts wait, nothing is lost): %s",
                   what, drain->rows_cnt, why);
    }
    hf_alarm(drain->seg, HF_ALARM_STORE_RETRY, 1);
}

static enum hf_drain_result superseded(struct hf_drain *drain, const char *why)
{
    hf_segment_set_state(drain->seg, HF_SEGMENT_SUPERSEDED);
    hf_log_say(
        &drain->options.log, HF_LOG_ERROR,
        "another daemon took over %s in the store: this segment is superseded and admits nothing any more (%s)",
        drain->options.store_name, why);
    drain->stopped = HF_DRAIN_SUPERSEDED;
    return drain->stopped;
}

/* Whether the batch is in the store after all. *there; anything but OK: not known yet. */
static enum hf_store_status ask(struct hf_drain *drain, bool *there, struct hf_store_error *error)
{
    struct hf_store_batch stored;
    enum hf_store_status status = hf_store_batch(drain->options.store, drain->options.store_name,
                                                 drain->batch.number, there, &stored, error);

    if (status == HF_STORE_OK && *there &&
        (stored.epoch != drain->batch.epoch ||
         memcmp(stored.digest, drain->batch.digest, HF_DIGEST_BYTES) != 0)) {
        return HF_STORE_TAKEN;
    }
    return status;
}

static enum hf_drain_result told(struct hf_drain *drain, enum hf_store_status status, uint64_t mono_ms,
                                 const struct hf_store_error *error)
{
    switch (status) {
    case HF_STORE_OK:
        committed(drain);
        return HF_DRAIN_WORKED;
    case HF_STORE_TAKEN:
        return superseded(drain, error->text);
    case HF_STORE_BEHIND:
        return HF_DRAIN_BEHIND;
    case HF_STORE_INVALID:
        hf_log_say(&drain->options.log, HF_LOG_ERROR,
                   "the store cannot take batch %" PRIu64
                   ": %s; nothing more is committed, workers answer busy when the lag limit is reached",
                   drain->batch.number, error->text);
        drain->stopped = HF_DRAIN_FAILED;
        return drain->stopped;
    case HF_STORE_UNKNOWN:
        drain->ask_first = true;
        later(drain, mono_ms, "the answer to a commit was lost", error->text);
        return HF_DRAIN_WAITING;
    default:
        later(drain, mono_ms, "the store takes no receipts now", error->text);
        return HF_DRAIN_WAITING;
    }
}

enum hf_drain_result hf_drain_push(struct hf_drain *drain, uint64_t mono_ms)
{
    struct hf_store_error error = {""};
    struct hf_store_report report = {0};
    enum hf_store_status status;

    if (mono_ms < drain->next_try_ms) {
        return HF_DRAIN_WAITING;
    }
    if (drain->ask_first) {
        bool there = false;

        status = ask(drain, &there, &error);
        if (status != HF_STORE_OK || there) {
            drain->ask_first = status != HF_STORE_OK;
            return told(drain, status, mono_ms, &error);
        }
        drain->ask_first = false;
    }
    status =
        hf_store_commit(drain->options.store, &drain->batch, drain->rows, drain->rows_cnt, &report, &error);
    /* One whose answer was lost is left out: what the store has of it is read from there. */
    if (status == HF_STORE_OK && !report.already && drain->options.tally != NULL) {
        hf_tally_batch(drain->options.tally, &drain->batch, drain->rows);
    }
    return told(drain, status, mono_ms, &error);
}

void hf_drain_announce(struct hf_drain *drain)
{
    uint64_t committed_ms = hf_clock_now_ms(drain->seg);

    committed_ms = committed_ms < drain->options.committed_ms ? drain->options.committed_ms : committed_ms;
    for (uint32_t i = 0; i < drain->rows_cnt; i++) {
        committed_ms = committed_ms < drain->rows[i].made_ms ? drain->rows[i].made_ms : committed_ms;
    }
    hf_batch_announce(drain->seg, drain->desc, drain->rows_cnt, drain->entries_cnt, committed_ms,
                      &drain->batch);
    drain->in_flight = true;
    drain->ask_first = false;
    drain->next_try_ms = 0;
}
