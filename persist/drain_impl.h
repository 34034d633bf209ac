/* A drain's parts, and what its files do for one another: drain.c opens it and makes a cycle of drain_sweep.c (looks at a share of
 * all slots), drain_look.c (from a slot to rows of a batch), drain_batch.c (the batch on its way) and closed.c. */
#ifndef HF_PERSIST_DRAIN_IMPL_H
#define HF_PERSIST_DRAIN_IMPL_H

#include "persist/closed.h"
#include "persist/drain.h"

#define HF_DRAIN_ROWS_MAX 8192U /* of a batch */

/* What is remembered of a slot's reservation, so that the store need not look it up. */
struct hf_drain_reserved {
    uint64_t seq;
    uint32_t gen; /* of the slot; another one: nothing is known */
    uint8_t digest[HF_DIGEST_BYTES];
};

/* Where a row of the batch comes from. */
struct hf_drain_origin {
    uint32_t entry;
    uint32_t rows[HF_SHM_LAYERS];
};

/* A slot of the batch as its snapshot saw it. */
struct hf_drain_ended {
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
    struct hf_drain_reserved *reserved;
    struct hf_receipt *rows;
    struct hf_drain_origin *origins;
    struct hf_drain_ended *ended; /* per entry */
    char **texts;                 /* reasons of the batch's credits */
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

/* The slot is looked at by the next hf_drain_gather(). */
static inline void hf_drain_mark_pending(struct hf_drain *drain, uint32_t slot_idx)
{
    drain->pending[slot_idx >> drain->seg->chunk_shift] |= 1ULL
                                                           << (slot_idx & (drain->seg->chunk_slots - 1U));
}

/* The share of this cycle, by the time since the last one; more when everything is to be looked at. */
void hf_drain_sweep(struct hf_drain *drain, uint64_t mono_ms);

/* Fills a batch from the pending slots. *again: some are to be looked at in the next cycle only. */
void hf_drain_gather(struct hf_drain *drain, bool *again);

/* The batch that was filled is in flight from now on, and the segment says so. */
void hf_drain_announce(struct hf_drain *drain);

/* Tries to commit the batch in flight. */
enum hf_drain_result hf_drain_push(struct hf_drain *drain, uint64_t mono_ms);

/* The texts that rows of a batch point to. */
void hf_drain_drop_texts(struct hf_drain *drain);

#endif
