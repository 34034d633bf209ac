/* What the receipts since the newest rollup add up to, kept while their batches are committed, so that a rollup is some rows to be
 * written and no look at receipts.
 *
 * A tally covers the batches that follow a rollup, without a gap, as far as it goes: the drain hands in those that it commits, and
 * what is missing (after a start, after an answer that was lost) is read from the store, some batches at a time. The store stays
 * the truth: before a rollup is written from a tally, the store must still have the rollup that it follows as the newest, and the
 * batch that it ends with.
 */
#ifndef HF_PERSIST_TALLY_H
#define HF_PERSIST_TALLY_H

#include "persist/rollup.h"
#include "persist/tally_table.h"

/* All-zero: covers nothing and takes nothing. */
struct hf_tally {
    bool started;
    bool full;               /* what comes next does not fit */
    struct hf_rollup before; /* the rollup that it follows; number 0: it begins with the first receipt */
    uint64_t next_seq;       /* covers [before.next_seq, next_seq) */
    struct hf_store_batch
        last; /* its last batch; of an empty tally only the number is known: that of before */
    struct hf_tally_table sums;   /* by hf_tally_sum_key; HF_TALLY_SUM_VALUES */
    struct hf_tally_table meters; /* by the three names; as struct hf_meter_change */
    struct hf_tally_table open;   /* by reservation_seq (8 bytes): held_invocations */
};

/* Parts of a key of sums. Minutes, since every window begins and ends with one. */
struct hf_tally_sum {
    uint64_t minute;
    uint64_t bucket_mask;
};
#define HF_TALLY_KEY_BYTES (sizeof(struct hf_tally_sum) + 3 * (1 + HF_NAME_BYTES_MAX))

/* Integers of a row of sums, in the order of the columns of rollup_sum. */
#define HF_TALLY_SUM_VALUES 11U

/* Begins after that rollup, empty. */
void hf_tally_start(struct hf_tally *tally, const struct hf_rollup *before);

/* Forgets everything; all-zero afterwards. */
void hf_tally_drop(struct hf_tally *tally);

/* A batch that is in the store, with its rows as hf_store_commit left them. One that does not follow what is covered is left out,
 * and so is what would be more than HF_ROLLUP_ROWS_MAX (full). Without memory, or where a sum is out of range, all is dropped. */
void hf_tally_batch(struct hf_tally *tally, const struct hf_store_batch *batch,
                    const struct hf_receipt *rows);

/* Reads from the store what follows: whole batches, at most rows_max receipts but at least one batch. OK also when there is
 * nothing more. Anything else: the tally is dropped. The store is locked for its segment. */
enum hf_store_status hf_tally_read(struct hf_tally *tally, struct hf_store *store, uint64_t rows_max,
                                   struct hf_store_error *error);

static inline bool hf_tally_empty(const struct hf_tally *tally)
{
    return tally->next_seq == tally->before.next_seq;
}

/* Puts a name into a key: its length and its bytes. Returns where the key goes on. */
char *hf_tally_put_name(char *at, const char *bytes, size_t len);

#endif
