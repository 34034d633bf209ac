/* Retention: takes away old receipts that nobody can ask for any more, and leaves a record that says so.
 *
 * What may go, for every segment that has receipts there: all of it was committed before the day that was named, two days ago or longer,
 * and longer ago than the segment's late horizon; the newest rollup covers it; the month that it counts in is over; no reservation that
 * has receipts there is open, or had one since. In PostgreSQL whole partitions go, the oldest first; in SQLite rows, up to the end of a
 * batch.
 *
 * Epochs, policies and credits move to the table `kept`, and so do receipts whose batch has others that stay. Batches, rollups and rows
 * that were put aside stay where they are.
 *
 * Daemons may run meanwhile. A step is one transaction: killed at any moment, a step was done or was not, and pruning goes on where it
 * ended when it is asked for again.
 */
#ifndef HF_PERSIST_PRUNE_H
#define HF_PERSIST_PRUNE_H

#include "persist/store.h"

/* Nothing younger goes, however short the horizons are within which a daemon remembers closed reservations. */
#define HF_PRUNE_YOUNG_MS UINT64_C(172800000)
#define HF_PRUNE_BY_BYTES 64
/* SQLite, which has one writer: receipts of a step, and how long the daemon has the store between two. */
#define HF_PRUNE_STEP_ROWS 16384
#define HF_PRUNE_PAUSE_MS  200

/* What becomes of a partition (PostgreSQL) or of a segment's oldest receipts (SQLite). */
struct hf_prune_step {
    const char *name;   /* of the partition; SQLite: of the segment */
    uint64_t first_seq; /* [first_seq, next_seq) */
    uint64_t next_seq;
    bool goes;
    uint64_t rows_cnt; /* receipts that go, of all segments */
    uint64_t kept_cnt; /* receipts of the same range that stay: kept, or put aside once */
    const char *text;  /* what stands in the way, a sentence; NULL when it goes */
};

struct hf_prune_options {
    uint64_t before_ms;  /* what was committed from then on stays */
    const char *made_by; /* for the record; at most HF_PRUNE_BY_BYTES - 1 bytes are kept */
    bool dry_run;        /* tells the same, writes nothing */
    uint32_t step_rows;  /* SQLite; 0: HF_PRUNE_STEP_ROWS */
    void (*step)(void *ctx, const struct hf_prune_step *step); /* after it was done */
    void *ctx;
};

/* store: opened as HF_STORE_OWNER. Not OK: the steps that were told of are done, the one that failed is not (UNKNOWN: may be). INVALID:
 * before_ms lies in the future. RETRY: also when somebody else prunes, or reads for so long that a partition cannot be dropped. */
enum hf_store_status hf_prune(struct hf_store *store, const struct hf_prune_options *options,
                              struct hf_store_error *error);

#endif
