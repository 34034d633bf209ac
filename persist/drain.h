/* Draining: from slots that changed to receipts in the store, and from slots that are done to free ones.
 *
 * A cycle takes the dirty marks, looks at a share of all slots besides (so that every slot is looked at once a second: a mark may
 * be lost with the process that should have set it), makes receipts of what is owed, commits them in batches, marks
 * the slots, publishes, and frees what is over. It never waits: a store that does not take a batch leaves it in flight, to be
 * tried again by a later cycle, and everything that changes meanwhile stays marked.
 *
 * One thread, one writer: the daemon of the segment.
 */
#ifndef HF_PERSIST_DRAIN_H
#define HF_PERSIST_DRAIN_H

#include "persist/deadlines.h"
#include "persist/log.h"
#include "persist/publish.h"
#include "persist/store.h"
#include "persist/tally.h"
#include "shm/segment.h"

/* What became of a cycle. */
enum hf_drain_result {
    HF_DRAIN_IDLE,       /* nothing was to be done; everything before the cycle is committed */
    HF_DRAIN_WORKED,     /* there was work, and there may be more; a backlog takes several cycles */
    HF_DRAIN_WAITING,    /* the store takes no batch now: come again at hf_drain_next_try_ms() */
    HF_DRAIN_SUPERSEDED, /* another daemon took over the store's name: stop for ever */
    HF_DRAIN_FAILED,     /* the store can never take this batch: logged; workers meet the lag limit */
    HF_DRAIN_BEHIND      /* the store lost commits that the segment had counted on */
};

struct hf_drain_options {
    struct hf_segment *seg;
    struct hf_store *store; /* locked for store_name */
    const char *store_name;
    uint64_t daemon_ref;
    bool fresh;               /* this daemon made the segment, and nobody was in it before */
    uint64_t policy_revision; /* of the generation in force */
    uint64_t committed_ms;    /* of the last batch: later ones are not earlier */
    struct hf_publish *publish;
    struct hf_deadlines *deadlines;
    struct hf_tally *tally; /* gets what is committed; NULL: nobody adds up */
    struct hf_log log;
};

struct hf_drain;

/* NULL: no memory. What options point to outlives it. */
struct hf_drain *hf_drain_open(const struct hf_drain_options *options);
void hf_drain_close(struct hf_drain *drain);

/* After attaching to a segment that had a daemon before: finishes the batch of a descriptor. HF_STORE_OK; _BEHIND: the store's
 * chain ends before what the segment knows to be committed; _TAKEN: it goes on otherwise; others: as the store says. */
enum hf_store_status hf_drain_resume(struct hf_drain *drain, struct hf_store_error *error);

/* After hf_rewind(): what was in flight and what is remembered of the store is forgotten, every slot is looked at. */
void hf_drain_rewound(struct hf_drain *drain, uint64_t committed_ms);

/* The next cycles look at every slot, 65,536 in a cycle: at the start, and when a process died. */
void hf_drain_look_at_all(struct hf_drain *drain);

/* One cycle at mono_ms (CLOCK_MONOTONIC). */
enum hf_drain_result hf_drain_cycle(struct hf_drain *drain, uint64_t mono_ms);

/* CLOCK_MONOTONIC in ms at which a waiting drain wants to be called again. */
uint64_t hf_drain_next_try_ms(const struct hf_drain *drain);

/* For people: slots in use, and what is known to wait for the store. */
struct hf_drain_counts {
    uint64_t used_slots;
    uint64_t rows_committed;
    uint64_t batches_committed;
    uint64_t rows_in_flight;
};
void hf_drain_count(const struct hf_drain *drain, struct hf_drain_counts *counts);

#endif
