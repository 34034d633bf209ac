/* What the readers of a store and the makers of rollups know of each other. */
#ifndef HF_PERSIST_ROLLUP_IMPL_H
#define HF_PERSIST_ROLLUP_IMPL_H

#include "persist/rollup.h"
#include "persist/store_impl.h"

/* The first row that can be of since_ms or later, INT64_MAX when there is none: no row is committed in a batch that is earlier
 * than itself. */
enum hf_store_status hf_store_first_since(struct hf_store *store, int64_t segment_id, uint64_t since_ms,
                                          int64_t *first_seq, struct hf_store_error *error);

/* hf_rollup_newest of a segment number, of those that end at end_ms at the latest; number 0 and next_seq 1 when there is none. */
enum hf_store_status hf_rollup_of(struct hf_store *store, int64_t segment_id, int64_t end_ms,
                                  struct hf_rollup *rollup, struct hf_store_error *error);

/* A row of HF_ROLLUP_HEAD_COLUMNS, `r` being the table of rollups, into a struct hf_rollup. */
#define HF_ROLLUP_HEAD_COLUMNS \
    "r.number, r.epoch, r.first_seq, r.next_seq, r.end_ms, r.batch_number, r.parts_cnt, r.batch_digest, r.before, r.digest"
enum hf_store_status hf_rollup_read(void *ctx, const struct hf_column *columns, unsigned cnt);

/* The columns of its tables, in the order in which they are written and compared. */
/* clang-format off */
#define HF_ROLLUP_SUM_COLUMNS \
    "segment_id, number, window_kind, start_ms, tenant, team, key, bucket_mask, rows_cnt, held_invocations,"      \
    "    held_tokens_high, held_tokens_low, held_cost_high, held_cost_low, charged_invocations,"                   \
    "    charged_tokens_high, charged_tokens_low, charged_cost_high, charged_cost_low "
#define HF_ROLLUP_METER_COLUMNS \
    "segment_id, number, tenant, capability, model, requests, failures, degraded, reserved_micros, settled_micros "
#define HF_ROLLUP_OPEN_COLUMNS "segment_id, number, reservation_seq "
/* clang-format on */

struct hf_tally;

/* Writes the next rollup from a tally that is not empty, in one transaction. RETRY also when the store has no longer what the tally
 * follows and ends with: then it is of no use any more. */
enum hf_store_status hf_rollup_write(struct hf_store *store, const struct hf_tally *tally,
                                     struct hf_rollup *made, struct hf_store_error *error);

/* The bits of a window kind's buckets on a path. */
uint64_t hf_rollup_window_mask(enum hf_window window);

#endif
