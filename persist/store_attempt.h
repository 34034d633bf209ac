/* What store_commit.c and store_ids.c know of each other: one attempt to commit a batch. */
#ifndef HF_PERSIST_STORE_ATTEMPT_H
#define HF_PERSIST_STORE_ATTEMPT_H

#include "persist/store_impl.h"

/* What an attempt changes in a row, to be put back when it did not happen. */
struct hf_saved {
    uint64_t reservation_seq;
    uint8_t reservation_digest[HF_DIGEST_BYTES];
    bool conflict;
};

/* An id of this batch. */
struct hf_id_entry {
    const struct hf_name *id; /* NULL: free place */
    size_t
        newest; /* 1 + index of the newest reservation of the batch under it; 0: none yet. Filled by refer, row by row */
    uint32_t lookup; /* 1 + index of its lookup; 0: none wanted */
    bool reserved;   /* of plan: a reservation of the batch has it */
};

struct hf_attempt {
    struct hf_store *store;
    struct hf_store_batch *batch;
    struct hf_receipt *rows;
    size_t rows_cnt;
    struct hf_store_report *report;
    struct hf_store_error *error;
    struct hf_id_entry *ids; /* open addressing */
    size_t ids_mask;
    struct hf_lookup *lookups;
    size_t lookups_cnt;
    size_t everywhere_cnt; /* of them, the first ones: to be looked up everywhere */
    struct hf_saved *saved;
    struct hf_store_batch given;
    uint64_t newest_ms; /* of all times in the rows */
    struct hf_fence fence;
    bool careful; /* all ids are looked up, whatever the fence */
    bool refused; /* the rows were refused, and not all ids had been looked up */
};

/* True when not all ids are looked up: the insertion finds those that are there from fence.first_seq on. */
static inline bool hf_optimistic(const struct hf_attempt *a)
{
    return a->fence.once && !a->careful;
}

/* Says which ids are to be looked up, in place of what an earlier attempt wanted. NOMEM. */
enum hf_store_status hf_plan_lookups(struct hf_attempt *a);
/* Looks them up. */
enum hf_store_status hf_look_up(struct hf_attempt *a);
/* Fills in conflict and the reference of row i; the rows before it have their digests. */
void hf_refer(struct hf_attempt *a, size_t i);
/* Frees what hf_plan_lookups made. */
void hf_forget_ids(struct hf_attempt *a);

#endif
