/* The fence and the references of a batch: which ids to look up, and what each row refers to. */
#include "persist/store_attempt.h"

#include <stdlib.h>
#include <string.h>

static struct hf_id_entry *entry_of(struct hf_attempt *a, const struct hf_name *id)
{
    size_t at = (size_t)hf_name_hash(id->bytes, id->len, a->batch->number) & a->ids_mask;

    while (a->ids[at].id != NULL && !hf_name_equal(a->ids[at].id, id)) {
        at = (at + 1) & a->ids_mask;
    }
    a->ids[at].id = id;
    return &a->ids[at];
}

/* True when the row names a reservation that an earlier row of this batch is. */
static bool refers_inside(const struct hf_attempt *a, const struct hf_receipt *row)
{
    return row->reservation_seq >= a->batch->first_seq && row->reservation_seq < row->seq;
}

/* True when what the row says of its reservation is not enough: the newest one under its id is meant. */
static bool refers_by_id(const struct hf_attempt *a, const struct hf_receipt *row)
{
    static const uint8_t none[HF_DIGEST_BYTES];

    return row->reservation_seq == HF_UNKNOWN ||
           (!refers_inside(a, row) && memcmp(row->reservation_digest, none, HF_DIGEST_BYTES) == 0);
}

static void want(struct hf_attempt *a, struct hf_id_entry *entry)
{
    if (entry->lookup == 0) {
        a->lookups[a->lookups_cnt++].id = entry->id;
        entry->lookup = (uint32_t)a->lookups_cnt;
    }
}

/* Lists the ids to look up: of rows whose reservation is told by its id alone, and of reservations (the fence). */
static void list_ids(struct hf_attempt *a)
{
    for (size_t i = 0; i < a->rows_cnt; i++) {
        const struct hf_receipt *row = &a->rows[i];
        bool reservation = row->kind == HF_RECEIPT_RESERVATION;
        struct hf_id_entry *entry;

        if (!hf_receipt_in_family(row->kind) || (!reservation && !refers_by_id(a, row))) {
            continue;
        }
        entry = entry_of(a, &row->id);
        /* What is put aside runs into no index. */
        if (!entry->reserved && !(reservation && hf_optimistic(a) && !row->escaped)) {
            want(a, entry);
        }
        entry->reserved = entry->reserved || reservation;
    }
    a->everywhere_cnt = a->lookups_cnt;
    for (size_t i = 0; i <= a->ids_mask && hf_optimistic(a) && a->fence.elsewhere; i++) {
        if (a->ids[i].reserved) {
            want(a, &a->ids[i]);
        }
    }
}

void hf_forget_ids(struct hf_attempt *a)
{
    free(a->ids);
    free(a->lookups);
    a->ids = NULL;
    a->lookups = NULL;
    a->lookups_cnt = 0;
}

enum hf_store_status hf_plan_lookups(struct hf_attempt *a)
{
    size_t places = 64;

    while (places < 2 * a->rows_cnt) {
        places *= 2;
    }
    hf_forget_ids(a);
    a->ids = calloc(places, sizeof(*a->ids));
    a->lookups = calloc(a->rows_cnt, sizeof(*a->lookups));
    if (a->ids == NULL || a->lookups == NULL) {
        return hf_store_fail(a->error, HF_STORE_NOMEM, "no memory for a batch of %zu rows", a->rows_cnt);
    }
    a->ids_mask = places - 1;
    list_ids(a);
    return HF_STORE_OK;
}

enum hf_store_status hf_look_up(struct hf_attempt *a)
{
    const struct hf_store_ops *ops = a->store->ops;
    enum hf_store_status status = HF_STORE_OK;

    if (a->everywhere_cnt > 0) {
        status = ops->lookup(a->store, a->lookups, a->everywhere_cnt, HF_UNKNOWN, a->error);
    }
    if (status == HF_STORE_OK && a->lookups_cnt > a->everywhere_cnt) {
        status = ops->lookup(a->store, a->lookups + a->everywhere_cnt, a->lookups_cnt - a->everywhere_cnt,
                             a->fence.first_seq, a->error);
    }
    return status;
}

static void refer_to(struct hf_receipt *row, uint64_t seq, const uint8_t *digest, bool conflict)
{
    row->reservation_seq = seq;
    memcpy(row->reservation_digest, digest, HF_DIGEST_BYTES);
    row->conflict = row->conflict || conflict;
}

/* Row i is a reservation: is it the first under its id? */
static void refer_first(struct hf_attempt *a, size_t i, struct hf_id_entry *entry,
                        const struct hf_lookup *found)
{
    struct hf_receipt *row = &a->rows[i];
    uint64_t before_seq = entry->newest != 0 ? a->rows[entry->newest - 1].seq
                          : found != NULL    ? found->seq
                                             : 0;

    row->reservation_seq = row->seq;
    memset(row->reservation_digest, 0, HF_DIGEST_BYTES);
    if (entry->newest != 0 || found != NULL) {
        row->conflict = true;
        row->fate = row->escaped ? HF_FATE_NONE : HF_FATE_CONFLICT;
        a->report->conflicts_cnt += row->fate == HF_FATE_CONFLICT;
    }
    if (row->conflict && !row->escaped && before_seq < a->fence.first_seq) {
        a->store->stray = true;
    }
    entry->newest = i + 1;
}

void hf_refer(struct hf_attempt *a, size_t i)
{
    struct hf_receipt *row = &a->rows[i];
    struct hf_id_entry *entry;
    const struct hf_lookup *found;

    if (!hf_receipt_in_family(row->kind)) {
        return;
    }
    if (row->kind != HF_RECEIPT_RESERVATION && !refers_by_id(a, row)) {
        if (refers_inside(a, row)) {
            const struct hf_receipt *reserved = &a->rows[row->reservation_seq - a->batch->first_seq];

            refer_to(row, reserved->seq, reserved->digest, reserved->conflict);
        }
        return;
    }
    entry = entry_of(a, &row->id);
    found = entry->lookup != 0 && a->lookups[entry->lookup - 1].found ? &a->lookups[entry->lookup - 1] : NULL;
    if (row->kind == HF_RECEIPT_RESERVATION) {
        refer_first(a, i, entry, found);
    } else if (entry->newest != 0) {
        const struct hf_receipt *reserved = &a->rows[entry->newest - 1];

        refer_to(row, reserved->seq, reserved->digest, reserved->conflict);
    } else if (found != NULL) {
        refer_to(row, found->seq, found->digest, found->conflict);
    } else {
        row->reservation_seq = HF_UNKNOWN;
        a->report->orphans_cnt++;
    }
}
