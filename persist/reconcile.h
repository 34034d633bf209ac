/* Do the segment and the store agree? For every bucket, in the window of now: its value = what the slots hold open + what
 * receipts have charged; for the store: what its receipts hold open = what the slots hold open. Reads only.
 *
 * The segment must be drained and at rest for the answer to mean something: words that moved while it was being
 * looked at are told apart (HF_RECONCILE_MOVED), never reported as mismatches.
 */
#ifndef HF_PERSIST_RECONCILE_H
#define HF_PERSIST_RECONCILE_H

#include "persist/store.h"
#include "shm/segment.h"

#define HF_RECONCILE_TEXTS 8

struct hf_reconcile_report {
    uint64_t buckets_cnt;    /* limited ones that were compared */
    uint64_t mismatches_cnt; /* buckets and sums that do not agree */
    uint64_t open_cnt;       /* open reservations in the segment */
    uint64_t open_tokens;
    uint64_t open_cost_micros;
    char texts[HF_RECONCILE_TEXTS][256]; /* the first mismatches: where, what was expected, what was found */
};

enum hf_reconcile_result {
    HF_RECONCILE_DONE = 0,
    HF_RECONCILE_MOVED = 1,  /* operations happened meanwhile: drain and look again */
    HF_RECONCILE_STORE = -1, /* the store could not be read: error says why */
    HF_RECONCILE_NOMEM = -2,
    HF_RECONCILE_CORRUPT = -3 /* a tenant's operation cannot be brought to its end */
};

enum hf_reconcile_result hf_reconcile(struct hf_segment *seg, struct hf_store *store, const char *store_name,
                                      struct hf_reconcile_report *report, struct hf_store_error *error);

#endif
