/* Rows of a segment by names, those included that only older receipts know. */
#ifndef HF_PERSIST_ROWS_H
#define HF_PERSIST_ROWS_H

#include "persist/store.h"
#include "shm/segment.h"

/* Row of (tenant[, team[, key]]), of the policy in force or, behind its rows, of one that a recovery added for what is still
 * open; HF_SHM_NONE when there is none. Daemon or creator only. */
uint32_t hf_rows_find(const struct hf_segment *seg, const char *tenant, const char *team, const char *key);

/* The same, and adds what is missing (tenant, team and key): creator only, before the segment is published. HF_SHM_NONE: no
 * room. */
uint32_t hf_rows_add(struct hf_segment *seg, const char *tenant, const char *team, const char *key);

/* One bucket of a sum: what it adds to the sums of that bucket. row < rows_cnt. */
typedef void hf_rows_bucket_fn(void *ctx, uint32_t row, enum hf_window window, enum hf_dimension dimension,
                               __int128 held, __int128 charged);

/* Calls fn for each bucket of the sum's window on its path; rows that the segment does not know are passed over. */
void hf_rows_of_sum(const struct hf_segment *seg, const struct hf_store_sum *sum, hf_rows_bucket_fn *fn,
                    void *ctx);

#endif
