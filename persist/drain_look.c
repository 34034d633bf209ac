/* From a slot that changed to rows of a batch. */
#include "persist/drain_impl.h"

#include "persist/batch.h"
#include "persist/snapshot.h"
#include "shm/commit.h"

#include <inttypes.h>
#include <string.h>

static void known_of(const struct hf_drain *drain, const struct hf_snapshot *snap,
                     struct hf_snapshot_known *known)
{
    const struct hf_drain_reserved *reserved = &drain->reserved[snap->slot_idx];

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
        struct hf_drain_origin *origin = &drain->origins[drain->rows_cnt + i];

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
    drain->ended[drain->entries_cnt++] = (struct hf_drain_ended){snap->st, snap->slot_idx};
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
    return drain->rows_cnt + HF_OWES_ROWS_MAX > HF_DRAIN_ROWS_MAX ||
           drain->entries_cnt == HF_SHM_BATCH_ENTRIES;
}

void hf_drain_gather(struct hf_drain *drain, bool *again)
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
