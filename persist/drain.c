#include "persist/drain.h"

#include "core/slot.h"
#include "persist/batch.h"
#include "persist/closed.h"
#include "persist/retire.h"
#include "persist/snapshot.h"
#include "shm/chunk.h"
#include "shm/clock.h"
#include "shm/commit.h"
#include "shm/wake.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 8192U /* of a batch */
#define BATCHES_MAX \
    4U /* of a cycle: reaping, clock and signals have their turn while a backlog is committed */
#define SWEEP_MS 800U /* every slot is looked at once in this time */
#define LOOK_SLOTS \
    65536U /* of a look at all of them, in a cycle: what is found is committed before the next ones */
#define SWEEP_AHEAD    8U /* slots whose lines are asked for before they are looked at */
#define SWEEPS_RETURN  8U /* a held chunk's owner is asked for once in so many sweeps */
#define BACKOFF_MS_MIN 50U
#define BACKOFF_MS_MAX 5000U
#define SAY_EVERY_MS   10000U

/* What is remembered of a slot's reservation, so that the store need not look it up. */
struct reserved {
    uint64_t seq;
    uint32_t gen; /* of the slot; another one: nothing is known */
    uint8_t digest[HF_DIGEST_BYTES];
};

/* Where a row of the batch comes from. */
struct origin {
    uint32_t entry;
    uint32_t rows[HF_SHM_LAYERS];
};

/* A slot of the batch as its snapshot saw it. */
struct ended {
    struct hf_u128 st;
    uint32_t slot_idx;
};

struct hf_drain {
    struct hf_drain_options options;
    struct hf_segment *seg;
    struct hf_closed closed;
    uint64_t *pending; /* per chunk: bit per slot to be looked at */
    uint64_t *filling; /* per chunk: FILLING or PENDING at the last sweep */
    uint64_t *damaged; /* per chunk: said once */
    uint8_t *used;     /* per chunk: how many were not free at the last sweep */
    struct reserved *reserved;
    struct hf_receipt *rows;
    struct origin *origins;
    struct ended *ended; /* per entry */
    char **texts;        /* reasons of the batch's credits */
    uint32_t rows_cnt;
    uint32_t entries_cnt;
    uint32_t texts_cnt;
    struct hf_shm_batch *desc; /* of the batch being collected or in flight */
    struct hf_store_batch batch;
    bool in_flight;
    bool ask_first;               /* the answer to the last try was lost */
    enum hf_drain_result stopped; /* SUPERSEDED or FAILED; IDLE: it works */
    uint64_t next_try_ms;
    uint64_t said_ms;
    uint32_t tries;
    uint32_t random;
    uint32_t gather_at; /* chunk where the last batch ended, so that none waits for another's new marks */
    uint32_t sweep_at;  /* chunk */
    uint32_t sweeps;
    uint64_t swept_ms;
    uint32_t look_at_all; /* sweeps of everything that are due */
    uint32_t look_at;     /* chunk where the one under way goes on; 0: none is */
    bool seen_all; /* one of them came to its end: no mark is missing that a daemon before this one took */
    bool fresh;    /* nobody was in the segment before this daemon */
    struct hf_drain_counts counts;
};

/* ---- open, close --------------------------------------------------------------------------------------------- */

struct hf_drain *hf_drain_open(const struct hf_drain_options *options)
{
    struct hf_segment *seg = options->seg;
    struct hf_drain *drain = calloc(1, sizeof(*drain));

    if (drain == NULL) {
        return NULL;
    }
    drain->options = *options;
    drain->seg = seg;
    drain->random = (uint32_t)(seg->hash_seed ^ options->daemon_ref) | 1U;
    drain->look_at_all = 2;
    drain->fresh = drain->seen_all = options->fresh;
    drain->pending = calloc(seg->chunks_cnt, sizeof(uint64_t));
    drain->filling = calloc(seg->chunks_cnt, sizeof(uint64_t));
    drain->damaged = calloc(seg->chunks_cnt, sizeof(uint64_t));
    drain->used = calloc(seg->chunks_cnt, sizeof(uint8_t));
    drain->reserved = calloc(seg->slots_cnt, sizeof(struct reserved));
    drain->rows = calloc(ROWS_MAX, sizeof(struct hf_receipt));
    drain->origins = calloc(ROWS_MAX, sizeof(struct origin));
    drain->ended = calloc(HF_SHM_BATCH_ENTRIES, sizeof(struct ended));
    drain->texts = calloc(ROWS_MAX, sizeof(char *));
    if (drain->pending == NULL || drain->filling == NULL || drain->damaged == NULL || drain->used == NULL ||
        drain->reserved == NULL || drain->rows == NULL || drain->origins == NULL || drain->ended == NULL ||
        drain->texts == NULL || !hf_closed_open(&drain->closed, seg, options->daemon_ref, &options->log)) {
        hf_drain_close(drain);
        return NULL;
    }
    return drain;
}

static void drop_texts(struct hf_drain *drain)
{
    while (drain->texts_cnt > 0) {
        free(drain->texts[--drain->texts_cnt]);
    }
}

void hf_drain_close(struct hf_drain *drain)
{
    if (drain == NULL) {
        return;
    }
    if (drain->texts != NULL) {
        drop_texts(drain);
    }
    hf_closed_close(&drain->closed);
    free(drain->pending);
    free(drain->filling);
    free(drain->damaged);
    free(drain->used);
    free(drain->reserved);
    free(drain->rows);
    free(drain->origins);
    free(drain->ended);
    free((void *)drain->texts);
    free(drain);
}

void hf_drain_look_at_all(struct hf_drain *drain)
{
    /* The second finds the chunks of the dead empty of half-made slots. One that is under way has passed by some already. */
    drain->look_at_all = drain->look_at > 0 ? 3 : 2;
    drain->fresh = false;
}

void hf_drain_rewound(struct hf_drain *drain, uint64_t committed_ms)
{
    drain->in_flight = false;
    drain->ask_first = false;
    drain->tries = 0;
    drain->next_try_ms = 0;
    drain->options.committed_ms = committed_ms;
    memset(drain->reserved, 0, drain->seg->slots_cnt * sizeof(*drain->reserved));
    drop_texts(drain);
    drain->seen_all = false;
    drain->look_at = 0;
    hf_drain_look_at_all(drain);
}

uint64_t hf_drain_next_try_ms(const struct hf_drain *drain)
{
    return drain->next_try_ms;
}

void hf_drain_count(const struct hf_drain *drain, struct hf_drain_counts *counts)
{
    *counts = drain->counts;
    counts->used_slots = drain->closed.used_cnt;
    counts->rows_in_flight = drain->in_flight ? drain->rows_cnt : 0;
}

/* ---- the batch ----------------------------------------------------------------------------------------------- */

static void mark_pending(struct hf_drain *drain, uint32_t slot_idx)
{
    drain->pending[slot_idx >> drain->seg->chunk_shift] |= 1ULL
                                                           << (slot_idx & (drain->seg->chunk_slots - 1U));
}

/* What the commit filled in of a reservation is kept for its later rows. */
static void remember(struct hf_drain *drain, const struct hf_receipt *row, uint32_t entry)
{
    const struct hf_shm_batch_entry *e = &drain->desc->bat_entries[entry];
    struct reserved *reserved =
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
    const struct ended *x = a;
    const struct ended *y = b;

    return x->st.hi < y->st.hi ? -1 : x->st.hi > y->st.hi; /* time first */
}

/* Slots of a committed batch go to where they wait, in the order in which they closed. */
static void take_on(struct hf_drain *drain)
{
    qsort(drain->ended, drain->entries_cnt, sizeof(*drain->ended), compare_ends);
    for (uint32_t i = 0; i < drain->entries_cnt; i++) {
        const struct ended *ended = &drain->ended[i];

        if (hf_st_state(ended->st) == HF_STATE_CREDIT) {
            mark_pending(drain, ended->slot_idx); /* nothing is owed any more: the next look frees it */
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
    drop_texts(drain);
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

/* Tries to commit the batch in flight. */
static enum hf_drain_result push(struct hf_drain *drain, uint64_t mono_ms)
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

static void announce(struct hf_drain *drain)
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

/* ---- looking at slots ---------------------------------------------------------------------------------------- */

static void known_of(const struct hf_drain *drain, const struct hf_snapshot *snap,
                     struct hf_snapshot_known *known)
{
    const struct reserved *reserved = &drain->reserved[snap->slot_idx];

    known->policy_revision = drain->options.policy_revision;
    known->reservation_seq = HF_UNKNOWN;
    if (reserved->seq != 0 && reserved->gen == hf_st_gen(snap->st)) {
        known->reservation_seq = reserved->seq;
        memcpy(known->reservation_digest, reserved->digest, HF_DIGEST_BYTES);
    }
}

static void say_damaged(struct hf_drain *drain, const struct hf_snapshot *snap)
{
    uint64_t *word = &drain->damaged[snap->slot_idx >> drain->seg->chunk_shift];
    uint64_t bit = 1ULL << (snap->slot_idx & (drain->seg->chunk_slots - 1U));

    if ((*word & bit) == 0) {
        *word |= bit;
        hf_alarm(drain->seg, HF_ALARM_CORRUPT, 1);
        hf_log_say(&drain->options.log, HF_LOG_ERROR,
                   "slot %" PRIu32
                   " holds values that cannot be; no receipt is made of it: look at its reservation (%.*s)",
                   snap->slot_idx, (int)(snap->slot.slot_id_bytes & 63U), snap->slot.slot_id);
    }
}

/* Texts of credits outlive the snapshot. */
static bool keep_texts(struct hf_drain *drain, struct hf_receipt *row)
{
    if (row->reason == NULL) {
        return true;
    }
    char *text = strdup(row->reason);

    if (text == NULL) {
        return false;
    }
    drain->texts[drain->texts_cnt++] = text;
    row->reason = text;
    return true;
}

/* Puts what the slot owes into the batch. Nothing is put of a damaged slot, or without memory for a text: the sweeps come
 * back to it. */
static void collect(struct hf_drain *drain, const struct hf_snapshot *snap, uint32_t owes)
{
    struct hf_receipt *rows = &drain->rows[drain->rows_cnt];
    struct hf_snapshot_known known;
    uint64_t first = drain->seg->header->hdr_next_seq + drain->rows_cnt;

    known_of(drain, snap, &known);
    size_t cnt = hf_snapshot_receipts(drain->seg, snap, owes, &known, rows);

    if (cnt == 0) {
        say_damaged(drain, snap);
        return;
    }
    for (size_t i = 0; i < cnt; i++) {
        struct origin *origin = &drain->origins[drain->rows_cnt + i];

        rows[i].seq = first + i;
        if (i > 0 && rows[0].kind == HF_RECEIPT_RESERVATION) {
            rows[i].reservation_seq = first;
        }
        if (!keep_texts(drain, &rows[i])) {
            return;
        }
        origin->entry = drain->entries_cnt;
        memcpy(origin->rows, snap->slot.slot_rows, sizeof(origin->rows));
    }
    hf_snapshot_mark(snap, &drain->desc->bat_entries[drain->entries_cnt]);
    drain->ended[drain->entries_cnt++] = (struct ended){snap->st, snap->slot_idx};
    drain->rows_cnt += (uint32_t)cnt;
}

static void keep_deadline(struct hf_drain *drain, const struct hf_snapshot *snap)
{
    enum hf_state state = hf_st_state(snap->st);

    if (state == HF_STATE_HELD || state == HF_STATE_DISPATCHED) {
        hf_deadlines_set(drain->options.deadlines, snap->slot_idx, hf_st_gen(snap->st),
                         snap->slot.slot_holds[hf_st_ordinal(snap->st) & 1U].hold_deadline);
    } else {
        hf_deadlines_clear(drain->options.deadlines, snap->slot_idx);
    }
}

/* Looks at one slot: collects what it owes, or takes it on to where it waits. False: look again in the next cycle. */
static bool look(struct hf_drain *drain, uint32_t slot_idx)
{
    struct hf_u128 st = hf_commit_read_st(&drain->seg->slots[slot_idx]); /* E13 */
    struct hf_snapshot snap;

    hf_closed_seen(&drain->closed, slot_idx, st);
    switch (hf_st_state(st)) {
    case HF_STATE_FREE:
    case HF_STATE_FILLING:
    case HF_STATE_PENDING:
        hf_deadlines_clear(drain->options.deadlines, slot_idx);
        return true;
    case HF_STATE_ABANDONED:
        hf_deadlines_clear(drain->options.deadlines, slot_idx);
        (void)hf_closed_free(&drain->closed, slot_idx,
                             st); /* claimed at the moment: the next sweep comes again */
        return true;
    default:
        break;
    }
    if (hf_snapshot_take(drain->seg, slot_idx, &snap) != HF_OK) {
        return false;
    }
    keep_deadline(drain, &snap);
    uint32_t owes = hf_snapshot_owes(&snap);

    if (owes != 0) {
        collect(drain, &snap, owes);
        return true;
    }
    if (hf_st_state(snap.st) == HF_STATE_CREDIT) {
        (void)hf_closed_free(&drain->closed, slot_idx, snap.st); /* as above */
        return true;
    }
    hf_closed_push(&drain->closed, slot_idx, snap.st);
    return true;
}

static bool batch_full(const struct hf_drain *drain)
{
    return drain->rows_cnt + HF_OWES_ROWS_MAX > ROWS_MAX || drain->entries_cnt == HF_SHM_BATCH_ENTRIES;
}

/* Fills a batch from the pending slots. again: bits to be looked at in the next cycle only. */
static void gather(struct hf_drain *drain, bool *again)
{
    drain->desc = hf_batch_begin(drain->seg);
    drain->rows_cnt = 0;
    drain->entries_cnt = 0;
    for (uint32_t n = 0; n < drain->seg->chunks_cnt && !batch_full(drain); n++) {
        uint32_t chunk = drain->gather_at;
        uint64_t left = 0;

        while (drain->pending[chunk] != 0 && !batch_full(drain)) {
            uint32_t i = (uint32_t)__builtin_ctzll(drain->pending[chunk]);

            drain->pending[chunk] &= drain->pending[chunk] - 1;
            if (!look(drain, (chunk << drain->seg->chunk_shift) + i)) {
                left |= 1ULL << i;
                *again = true;
            }
        }
        if (drain->pending[chunk] == 0) {
            drain->gather_at = chunk + 1U < drain->seg->chunks_cnt ? chunk + 1U : 0;
        }
        drain->pending[chunk] |= left;
    }
}

/* ---- sweeping ------------------------------------------------------------------------------------------------ */

/* An open slot whose deadline is not known yet. */
static void find_deadline(struct hf_drain *drain, uint32_t slot_idx, struct hf_u128 st)
{
    const struct hf_shm_slot *slot = &drain->seg->slots[slot_idx];
    struct hf_shm_hold hold;

    if (drain->options.deadlines->place[slot_idx] != 0) {
        return;
    }
    hf_slot_hold(slot, st, &hold);
    hf_fence_acq(); /* E16 acquire fence -> hf_slot_begin, as in hf_snapshot_take() */
    if (hf_st_gen(hf_commit_read_st(slot)) == hf_st_gen(st)) { /* E13 */
        hf_deadlines_set(drain->options.deadlines, slot_idx, hf_st_gen(st), hold.hold_deadline);
    }
}

/* True when the slot is to be looked at closely. */
static bool sweep_slot(struct hf_drain *drain, uint32_t slot_idx, struct hf_u128 st, bool filling_before)
{
    const struct hf_shm_slot *slot = &drain->seg->slots[slot_idx];

    switch (hf_st_state(st)) {
    case HF_STATE_FREE:
        return drain->options.deadlines->place[slot_idx] != 0;
    case HF_STATE_FILLING:
    case HF_STATE_PENDING:
        return (filling_before || drain->look_at_all > 0) && hf_retire_bury(drain->seg, slot_idx, st);
    case HF_STATE_ABANDONED:
        return true;
    case HF_STATE_HELD:
    case HF_STATE_DISPATCHED:
        /* Not left to the look: while the store takes no batch nothing is looked at, and deadlines pass all the same. */
        find_deadline(drain, slot_idx, st);
        break;
    default:
        break;
    }
    /* relaxed: the daemon is its writer. */
    if (!hf_snapshot_written(st, hf_load_rlx_u64(&slot->slot_persisted))) {
        return true;
    }
    if (hf_snapshot_final(hf_st_state(st))) {
        hf_closed_push(&drain->closed, slot_idx, st);
    }
    return hf_st_state(st) == HF_STATE_CREDIT;
}

/* False: there was nothing to look at. */
static bool sweep_chunk(struct hf_drain *drain, uint32_t chunk_idx)
{
    struct hf_segment *seg = drain->seg;
    const struct hf_shm_chunk *chunk = &seg->chunks[chunk_idx];
    uint64_t all = hf_chunk_all(seg);
    uint64_t owner = hf_load_rlx_u64(&chunk->chunk_owner); /* relaxed: a hint of what to skip */
    uint64_t filling = 0;
    uint8_t used = 0;

    /* relaxed: with every free bit there nobody has taken a slot since they were all seen free, or made. */
    if ((drain->look_at_all == 0 || (drain->fresh && owner == 0)) && drain->used[chunk_idx] == 0 &&
        hf_load_rlx_u64(&chunk->chunk_free) == all) {
        return false;
    }
    for (uint32_t i = 0; i < seg->chunk_slots; i++) {
        uint32_t slot_idx = (chunk_idx << seg->chunk_shift) + i;
        struct hf_u128 st = hf_commit_read_st(&seg->slots[slot_idx]); /* E13 */
        enum hf_state state = hf_st_state(st);

        if (slot_idx + SWEEP_AHEAD < seg->slots_cnt) {
            __builtin_prefetch(&seg->slots[slot_idx + SWEEP_AHEAD].slot_st); /* and slot_persisted */
        }
        hf_closed_seen(&drain->closed, slot_idx, st);
        used = (uint8_t)(used + (state != HF_STATE_FREE));
        filling |= (uint64_t)(state == HF_STATE_FILLING || state == HF_STATE_PENDING) << i;
        if (sweep_slot(drain, slot_idx, st, (drain->filling[chunk_idx] >> i & 1U) != 0)) {
            mark_pending(drain, slot_idx);
        }
    }
    drain->used[chunk_idx] = used;
    drain->filling[chunk_idx] = filling;
    /* A daemon that was killed between FREE and the free bit left a slot that nobody can take. relaxed: a hint, as above. */
    bool lost =
        owner == 0 &&
        used + (uint32_t)__builtin_popcountll(hf_load_rlx_u64(&chunk->chunk_free) & all) < seg->chunk_slots;

    if (drain->look_at_all > 0 ||
        ((owner != 0 || lost) && (drain->sweeps + chunk_idx) % SWEEPS_RETURN == 0)) {
        (void)hf_chunk_return(seg, chunk_idx);
    }
    return true;
}

/* Everything, in as many cycles as it takes. */
static void look_on(struct hf_drain *drain)
{
    uint32_t chunks = drain->seg->chunks_cnt;

    for (uint32_t left = LOOK_SLOTS >> drain->seg->chunk_shift; left > 0 && drain->look_at < chunks;) {
        left -= sweep_chunk(drain, drain->look_at++);
    }
    if (drain->look_at < chunks) {
        return;
    }
    hf_closed_sort(&drain->closed);
    drain->look_at = 0;
    drain->look_at_all--;
    drain->seen_all = true;
}

/* The share of this cycle, by the time since the last one; more when everything is to be looked at. */
static void sweep(struct hf_drain *drain, uint64_t mono_ms)
{
    uint32_t chunks = drain->seg->chunks_cnt;
    uint64_t share = drain->swept_ms == 0 ? chunks : (mono_ms - drain->swept_ms) * chunks / SWEEP_MS;

    if (drain->look_at_all > 0) {
        look_on(drain);
        drain->swept_ms = mono_ms;
        return;
    }
    if (share == 0) {
        return;
    }
    for (uint64_t left = share < chunks ? share : chunks; left > 0; left--) {
        (void)sweep_chunk(drain, drain->sweep_at);
        if (++drain->sweep_at >= chunks) {
            drain->sweep_at = 0;
            drain->sweeps++;
        }
    }
    drain->swept_ms = mono_ms;
}

static bool take_marks(struct hf_drain *drain)
{
    bool any = false;

    for (uint32_t i = 0; i < drain->seg->chunks_cnt; i++) {
        drain->pending[i] |= hf_chunk_take_marks(drain->seg, i); /* E9 */
        any = any || drain->pending[i] != 0;
    }
    return any;
}

/* ---- a cycle --------------------------------------------------------------------------------------------------- */

static void done(struct hf_drain *drain, uint64_t mono_ms)
{
    /* E8 release -> hf_wake_flush, and the workers' lag: what was committed before is marked and published. */
    hf_store_rel_u64(&drain->seg->header->hdr_durable_ms, mono_ms);
    hf_wake_cycle_done(drain->seg);
}

/* Commits what is in flight, then what is pending. *again: not everything, or some slot is to be looked at once more. */
static enum hf_drain_result write_all(struct hf_drain *drain, bool any, uint64_t mono_ms, bool *again)
{
    enum hf_drain_result result = HF_DRAIN_IDLE;

    if (drain->in_flight) {
        result = push(drain, mono_ms);
        if (result != HF_DRAIN_WORKED) {
            return result;
        }
    }
    for (uint32_t batches = 0; any; batches++) {
        if (batches == BATCHES_MAX) {
            *again = true;
            break;
        }
        gather(drain, again);
        if (drain->rows_cnt == 0) {
            break;
        }
        announce(drain);
        result = push(drain, mono_ms);
        if (result != HF_DRAIN_WORKED) {
            return result;
        }
    }
    return result;
}

enum hf_drain_result hf_drain_cycle(struct hf_drain *drain, uint64_t mono_ms)
{
    bool again = false;

    if (drain->stopped != HF_DRAIN_IDLE) {
        return drain->stopped;
    }
    hf_wake_cycle_begin(drain->seg);
    sweep(drain, mono_ms);
    bool any = take_marks(drain);
    enum hf_drain_result result = write_all(drain, any, mono_ms, &again);

    hf_publish_limits(drain->options.publish);
    /* In the middle of a look at all slots those that closed are in no order. */
    if ((drain->look_at > 0 || hf_closed_free_due(&drain->closed, hf_clock_now_ms(drain->seg)) > 0) &&
        result == HF_DRAIN_IDLE) {
        result = HF_DRAIN_WORKED;
    }
    if (!again && drain->seen_all && (result == HF_DRAIN_IDLE || result == HF_DRAIN_WORKED)) {
        done(drain, mono_ms);
    }
    return result;
}

/* ---- resuming -------------------------------------------------------------------------------------------------- */

struct resume {
    struct hf_drain *drain;
    uint64_t entry; /* of the descriptor, in the order of the rows */
    uint64_t entries_cnt;
};

/* A row of the batch that was found committed: which reservations are conflicts, and the alarms. */
static int resume_row(void *ctx, const struct hf_receipt *receipt)
{
    struct resume *resume = ctx;
    struct hf_shm_batch *desc = resume->drain->desc;
    struct hf_receipt row = *receipt;

    if (receipt->kind == HF_RECEIPT_RESERVATION && receipt->conflict) {
        while (resume->entry < resume->entries_cnt) {
            struct hf_shm_batch_entry *entry = &desc->bat_entries[resume->entry++];
            const struct hf_shm_slot *slot = hf_segment_slot(resume->drain->seg, hf_batch_slot(entry));

            if (slot != NULL && hf_name_is(&receipt->id, slot->slot_id, slot->slot_id_bytes)) {
                entry->bat_persisted |= HF_PERSISTED_CONFLICT;
                break;
            }
        }
        row.fate = row.fate == HF_FATE_ASIDE ? HF_FATE_ASIDE : HF_FATE_CONFLICT;
    }
    hf_publish_alarms(resume->drain->options.publish, &row);
    return 0;
}

/* The store has one batch more than the header says, or as many: marks the slots of its descriptor. */
static enum hf_store_status finish(struct hf_drain *drain, const struct hf_store_head *head,
                                   struct hf_shm_batch *desc, struct hf_store_error *error)
{
    /* Read once: a damaged segment may say something else the next time. */
    uint64_t entries_cnt = hf_load_rlx_u64(&desc->bat_entries_cnt); /* relaxed: after E20 */
    struct resume resume = {.drain = drain,
                            .entries_cnt =
                                entries_cnt < HF_SHM_BATCH_ENTRIES ? entries_cnt : HF_SHM_BATCH_ENTRIES};
    enum hf_store_status status;

    drain->desc = desc;
    status = hf_store_rows(drain->options.store, drain->options.store_name, head->last.first_seq,
                           head->last.rows_cnt, resume_row, &resume, error);
    if (status != HF_STORE_OK) {
        return status;
    }
    for (uint64_t i = 0; i < resume.entries_cnt; i++) {
        hf_batch_mark(drain->seg, &desc->bat_entries[i], 0);
    }
    hf_batch_done(drain->seg, desc, &head->last);
    return HF_STORE_OK;
}

enum hf_store_status hf_drain_resume(struct hf_drain *drain, struct hf_store_error *error)
{
    const struct hf_shm_header *header = drain->seg->header;
    struct hf_store_head head;
    enum hf_store_status status =
        hf_store_head(drain->options.store, drain->options.store_name, &head, error);

    if (status != HF_STORE_OK) {
        return status;
    }
    struct hf_shm_batch *desc = hf_batch_pending(drain->seg, head.last.number);

    drain->options.committed_ms = head.last.committed_ms;
    if (desc != NULL && head.last.epoch == header->hdr_epoch && head.last.first_seq == desc->bat_first_seq &&
        head.last.rows_cnt == desc->bat_rows_cnt &&
        memcmp(head.last.before, desc->bat_before, HF_DIGEST_BYTES) == 0 &&
        (head.last.number == header->hdr_batch_number || head.last.number == header->hdr_batch_number + 1)) {
        return finish(drain, &head, desc, error);
    }
    if (head.last.number == header->hdr_batch_number &&
        memcmp(head.last.digest, header->hdr_batch_digest, HF_DIGEST_BYTES) == 0) {
        return HF_STORE_OK;
    }
    return head.last.number > header->hdr_batch_number ? HF_STORE_TAKEN : HF_STORE_BEHIND;
}
