/* Rollups: immutable sums of receipts in the store, so that a start or a recovery costs in proportion to what is open and to
 * the receipts since the newest rollup, not to the whole history.
 *
 * A rollup covers the receipts from where the one before ended to the end of some batch. It states, as of that end: each open
 * window's sums, and those of each day and month that is over and was touched since (path by path, in whole); the meters; which
 * reservations are open. It names its batch and that batch's digest, the rollup before it, and carries a SHA-256 over all of it.
 * Only sums of committed receipts below a fixed sequence number go in, so it makes no difference who makes it, or when.
 */
#ifndef HF_PERSIST_ROLLUP_H
#define HF_PERSIST_ROLLUP_H

#include "persist/store.h"

/* A rollup is due when so many receipts came since the last one, and four times as many as it has parts; or no more fit into one. */
#define HF_ROLLUP_ROWS 65536U
/* One rollup covers no more, which bounds what is kept of them in memory: a store without rollups gets several. */
#define HF_ROLLUP_ROWS_MAX 262144U

struct hf_rollup {
    uint64_t number; /* 0: there is none */
    uint64_t epoch;
    uint64_t
        first_seq; /* covers [first_seq, next_seq) beyond the one before; next_seq is 1 when there is none */
    uint64_t next_seq;
    uint64_t end_ms; /* committed_ms of its last batch: its windows are those open then */
    uint64_t batch_number;
    uint64_t parts_cnt; /* rows of its tables */
    uint8_t batch_digest[HF_DIGEST_BYTES];
    uint8_t before[HF_DIGEST_BYTES];
    uint8_t digest[HF_DIGEST_BYTES];
};

/* The newest rollup whose batch is in the chain as it was. */
enum hf_store_status hf_rollup_newest(struct hf_store *store, const char *segment, struct hf_rollup *rollup,
                                      struct hf_store_error *error);

/* True when one should be made, with next_seq as the end of the chain. */
bool hf_rollup_due(const struct hf_rollup *newest, uint64_t next_seq);

/* Makes the next one over at most rows_max receipts (at least one batch), in one transaction. The store is locked for its segment.
 * *made: the new newest; unchanged when there was nothing to cover. RETRY, UNKNOWN: nothing is lost, come again. */
enum hf_store_status hf_rollup_make(struct hf_store *store, uint64_t rows_max, struct hf_rollup *made,
                                    struct hf_store_error *error);

/* The SHA-256 of a rollup's canonical text (persist/README.md), from what the store holds of it. */
enum hf_store_status hf_rollup_digest(struct hf_store *store, const char *segment,
                                      const struct hf_rollup *rollup, uint8_t digest[HF_DIGEST_BYTES],
                                      struct hf_store_error *error);

#endif
