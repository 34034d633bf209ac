#include "persist/rewind.h"

#include "persist/batch.h"
#include "persist/maker.h"
#include "persist/snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DETAIL_BYTES 256
#define GAP_REASON   "the store lost commits"

/* What the store has of one slot's life. */
struct kept {
    const struct hf_snapshot *snap;
    uint64_t seq; /* of its reservation; HF_UNKNOWN: none found */
    uint32_t marks;
    bool extended;
    uint64_t tokens; /* totals after the newest row */
    uint64_t cost;
};

static int take_row(void *ctx, const struct hf_receipt *row)
{
    struct kept *kept = ctx;

    if (row->kind == HF_RECEIPT_RESERVATION) {
        /* Of the lives under this id, the one that was reserved when the slot was. */
        if (row->made_ms != kept->snap->slot.slot_reserved_ms) {
            return 0;
        }
        *kept = (struct kept){.snap = kept->snap,
                              .seq = row->seq,
                              .marks = HF_PERSISTED_RESERVATION | (row->conflict ? HF_PERSISTED_CONFLICT : 0),
                              .tokens = row->hold_tokens,
                              .cost = row->hold_cost_micros};
        return 0;
    }
    if (row->reservation_seq != kept->seq) {
        return 0;
    }
    switch (row->kind) {
    case HF_RECEIPT_EXTENSION:
        kept->extended = true;
        kept->tokens = row->hold_tokens;
        kept->cost = row->hold_cost_micros;
        break;
    case HF_RECEIPT_EXPIRY:
    case HF_RECEIPT_RETENTION:
        kept->marks |= HF_PERSISTED_EXPIRY;
        break;
    default:
        kept->marks |= HF_PERSISTED_CLOSING;
        break;
    }
    return 0;
}

/* Marks the slot as far as the store has it. */
static void put_marks(struct hf_segment *seg, const struct hf_snapshot *snap, const struct kept *kept)
{
    struct hf_shm_batch_entry entry;
    const struct hf_shm_hold *now = &snap->slot.slot_holds[hf_st_ordinal(snap->st) & 1U];
    uint32_t ordinal = hf_st_ordinal(snap->st);
    bool same =
        (ordinal == 0 || kept->extended) && kept->tokens == now->hold_tokens && kept->cost == now->hold_cost;

    hf_snapshot_mark(snap, &entry);
    /* An extension that moved only the deadline and was lost with its commit is not seen here: the deadline in the segment
     * stands, and its expiry or closing will state it. */
    entry.bat_persisted = hf_persisted_make(hf_st_gen(snap->st), same ? ordinal : 0, kept->marks);
    if (!same) {
        entry.bat_tokens = kept->tokens;
        entry.bat_cost = kept->cost;
        entry.bat_deadline = HF_UNKNOWN;
    }
    hf_batch_mark(seg, &entry, 0);
}

static enum hf_store_status rewind_slot(const struct hf_rewind_options *options, uint32_t slot_idx,
                                        struct hf_store_error *error)
{
    struct hf_segment *seg = options->seg;
    struct hf_snapshot snap;
    struct kept kept = {.snap = &snap, .seq = HF_UNKNOWN};
    char id[64];

    if (hf_snapshot_take(seg, slot_idx, &snap) != HF_OK) {
        return HF_STORE_RETRY;
    }
    enum hf_state state = hf_st_state(snap.st);

    if (hf_persisted_gen(snap.persisted) != hf_st_gen(snap.st) ||
        hf_persisted_receipts(snap.persisted) == 0 || state == HF_STATE_FREE || state == HF_STATE_CREDIT ||
        snap.slot.slot_id_bytes > 63) {
        return HF_STORE_OK;
    }
    memcpy(id, snap.slot.slot_id, snap.slot.slot_id_bytes);
    id[snap.slot.slot_id_bytes] = '\0';
    enum hf_store_status status =
        hf_store_receipts(options->store, options->store_name, id, take_row, &kept, error);

    if (status == HF_STORE_OK) {
        put_marks(seg, &snap, &kept);
    }
    return status;
}

/* ---- the receipt of the gap ------------------------------------------------------------------------------------ */

/* The same for as long as the segment's header is: how one that is there already is known again. */
static void gap_details(const struct hf_rewind_options *options, const char *maker, uint64_t left,
                        char details[DETAIL_BYTES])
{
    (void)snprintf(details, DETAIL_BYTES,
                   "{\"last_batch_before\":%" PRIu64 ",\"last_batch_left\":%" PRIu64 ",\"maker\":\"%s\"}",
                   options->seg->header->hdr_batch_number, left, maker);
}

/* The alarm before the header: a daemon killed between them comes here again, and an alarm counts at least once. */
static void adopt(const struct hf_rewind_options *options, const struct hf_store_head *head)
{
    hf_alarm(options->seg, HF_ALARM_COVERAGE_GAP, 1);
    hf_batch_adopt(options->seg, head);
}

/* The receipt of the gap goes on with the store's chain. */
static enum hf_store_status write_gap(const struct hf_rewind_options *options, const char *maker,
                                      const struct hf_store_head *head, struct hf_store_error *error)
{
    struct hf_receipt *row = calloc(1, sizeof(*row));
    uint64_t now_ms = options->now_ms > head->last.committed_ms ? options->now_ms : head->last.committed_ms;
    struct hf_store_batch batch = {.number = head->last.number + 1,
                                   .epoch = options->seg->header->hdr_epoch,
                                   .first_seq = head->next_seq,
                                   .committed_ms = now_ms};
    char details[DETAIL_BYTES];

    if (row == NULL) {
        (void)snprintf(error->text, sizeof(error->text), "no memory for the receipt of the coverage gap");
        return HF_STORE_NOMEM;
    }
    hf_receipt_init(row, HF_RECEIPT_EPOCH);
    row->epoch = batch.epoch;
    row->seq = batch.first_seq;
    row->made_ms = now_ms;
    row->policy_revision = options->policy_revision;
    row->gap_from_ms = head->last.committed_ms;
    row->gap_until_ms = now_ms;
    row->reason = GAP_REASON;
    gap_details(options, maker, head->last.number, details);
    row->details = details;
    memcpy(batch.before, head->last.digest, HF_DIGEST_BYTES);
    enum hf_store_status status = hf_store_commit(options->store, &batch, row, 1, NULL, error);

    if (status == HF_STORE_OK) {
        const struct hf_store_head next = {.last = batch, .next_seq = batch.first_seq + 1};

        adopt(options, &next);
    }
    free(row);
    return status;
}

/* ---- whose chain it is ----------------------------------------------------------------------------------------- */

/* What the newest receipt of an epoch says. */
struct newest {
    const char *maker;   /* of this segment */
    const char *details; /* of the gap's receipt that this segment would have written last */
    uint64_t epoch;
    uint64_t seq;
    bool mine;
    bool gap; /* it is that receipt */
};

static int take_newest(void *ctx, const struct hf_receipt *row)
{
    struct newest *newest = ctx;

    newest->epoch = row->epoch;
    newest->seq = row->seq;
    newest->mine = hf_maker_states(row, newest->maker);
    newest->gap = row->reason != NULL && strcmp(row->reason, GAP_REASON) == 0 && row->details != NULL &&
                  strcmp(row->details, newest->details) == 0;
    return 0;
}

static enum hf_store_status foreign(const struct hf_rewind_options *options, const struct hf_store_head *head,
                                    struct hf_store_error *error)
{
    const struct hf_shm_header *header = options->seg->header;

    (void)snprintf(error->text, sizeof(error->text),
                   "the store's chain of %s ends with batch %" PRIu64 " of epoch %" PRIu64
                   ", which this segment (epoch %" PRIu64 ", batch %" PRIu64 ") did not write",
                   options->store_name, head->last.number, head->last.epoch, header->hdr_epoch,
                   header->hdr_batch_number);
    return HF_STORE_TAKEN;
}

/* Whether this segment may go on with the store's chain. *done: it did so before, and the receipt of the gap is the chain's end: the
 * answer to its commit was lost, or the daemon was killed before it could note it. */
static enum hf_store_status whose(const struct hf_rewind_options *options, const char *maker,
                                  const struct hf_store_head *head, bool *done, struct hf_store_error *error)
{
    const struct hf_shm_header *header = options->seg->header;
    char details[DETAIL_BYTES];
    struct newest newest = {.maker = maker, .details = details};

    *done = false;
    if (head->last.epoch > header->hdr_epoch || head->last.number > header->hdr_batch_number) {
        return foreign(options, head, error);
    }
    gap_details(options, maker, head->last.number - 1, details);
    enum hf_store_status status =
        hf_store_last(options->store, options->store_name, HF_RECEIPT_EPOCH, take_newest, &newest, error);

    if (status != HF_STORE_OK) {
        return status;
    }
    if (newest.epoch > header->hdr_epoch || (newest.epoch == header->hdr_epoch && !newest.mine)) {
        return foreign(options, head, error);
    }
    *done = newest.gap && newest.epoch == header->hdr_epoch && head->last.rows_cnt == 1 &&
            head->last.first_seq == newest.seq;
    return *done || head->last.number < header->hdr_batch_number ? HF_STORE_OK
                                                                 : foreign(options, head, error);
}

static enum hf_store_status go_back(const struct hf_rewind_options *options, const char *maker,
                                    const struct hf_store_head *head, struct hf_store_error *error)
{
    enum hf_store_status status = HF_STORE_OK;

    hf_log_say(&options->log, HF_LOG_ERROR,
               "the store lost commits: its chain ends with batch %" PRIu64 ", this segment had %" PRIu64
               " committed; what the segment still holds is written again, the rest is a coverage gap",
               head->last.number, options->seg->header->hdr_batch_number);
    for (uint32_t i = 0; i < options->seg->slots_cnt && status == HF_STORE_OK; i++) {
        status = rewind_slot(options, i, error);
    }
    return status == HF_STORE_OK ? write_gap(options, maker, head, error) : status;
}

enum hf_store_status hf_rewind(const struct hf_rewind_options *options, struct hf_store_error *error)
{
    char maker[HF_MAKER_BYTES];
    struct hf_store_head head;
    bool done = false;

    if (!hf_maker_of(options->seg, maker)) {
        (void)snprintf(error->text, sizeof(error->text), "no memory for a digest, or libcrypto failed");
        return HF_STORE_NOMEM;
    }
    enum hf_store_status status = hf_store_head(options->store, options->store_name, &head, error);

    if (status == HF_STORE_OK) {
        status = whose(options, maker, &head, &done, error);
    }
    if (status == HF_STORE_OK && done) {
        /* Every slot was marked as the store has it before that receipt was sent. */
        adopt(options, &head);
        return HF_STORE_OK;
    }
    return status == HF_STORE_OK ? go_back(options, maker, &head, error) : status;
}
