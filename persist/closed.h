/* Closed slots until they are freed: in the order in which they closed, in this process.
 *
 * A slot stays known for its horizon after it closed (settled, released, late: replay horizon; expired, retained, disputed:
 * late horizon). If the slots run short, roughly the longest closed go first, and are counted.
 */
#ifndef HF_PERSIST_CLOSED_H
#define HF_PERSIST_CLOSED_H

#include "persist/log.h"
#include "shm/segment.h"

struct hf_closed_entry {
    struct hf_u128 st; /* with every receipt of it committed; its time is the authority time of the closing */
    uint32_t slot_idx;
};

/* A ring: a slot is at most once in it. */
struct hf_closed_queue {
    struct hf_closed_entry *ring;
    uint64_t *inside; /* bit per slot */
    uint32_t cap;     /* places; a power of two */
    uint32_t head;    /* counts up; place = head & (cap - 1) */
    uint32_t cnt;
    uint64_t horizon_ms;
};

struct hf_closed {
    struct hf_segment *seg;
    uint64_t daemon_ref;
    struct hf_log log;
    struct hf_closed_queue queues[2]; /* 0: replay horizon, 1: late horizon */
    uint64_t *used;                   /* bit per slot: not FREE when last seen */
    uint64_t *word_seqs; /* per tenant: at which sequence freeing saw its W last; see hf_commit_detach() */
    uint32_t used_cnt;
    uint64_t forgotten_cnt; /* since it was last said */
    uint64_t said_ms;
};

/* False: no memory, and nothing is left to be closed. seg outlives it. */
bool hf_closed_open(struct hf_closed *closed, struct hf_segment *seg, uint64_t daemon_ref,
                    const struct hf_log *log);
void hf_closed_close(struct hf_closed *closed);

/* The slot was seen in state st: keeps count of the used ones. */
void hf_closed_seen(struct hf_closed *closed, uint32_t slot_idx, struct hf_u128 st);

/* A final slot all of whose receipts are committed waits for its horizon. Nothing for others. */
void hf_closed_push(struct hf_closed *closed, uint32_t slot_idx, struct hf_u128 st);

/* Sorts by the time of closing: after many were pushed in no order. */
void hf_closed_sort(struct hf_closed *closed);

/* Frees at once what needs no horizon: abandoned slots, credits. True when it is free now. */
bool hf_closed_free(struct hf_closed *closed, uint32_t slot_idx, struct hf_u128 st);

/* Frees what is past its horizon at now_ms, and more when slots are short. Returns how many. */
uint32_t hf_closed_free_due(struct hf_closed *closed, uint64_t now_ms);

#endif
