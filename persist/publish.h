/* What committed receipts come to, published in the segment for readers: what is settled of each row's buckets, the
 * meters, and the alarm counters that count receipts. One writer, the daemon.
 *
 * `held` of a bucket is what readers get by subtraction: its value minus what is settled here. So a receipt is published
 * only after its commit, and before the drain cycle that committed it is called done.
 */
#ifndef HF_PERSIST_PUBLISH_H
#define HF_PERSIST_PUBLISH_H

#include "persist/log.h"
#include "persist/receipt.h"
#include "persist/store.h"
#include "shm/segment.h"

struct hf_publish;

/* Tables of this process beside the segment. NULL: no memory. */
struct hf_publish *hf_publish_open(struct hf_segment *seg, const struct hf_log *log);
void hf_publish_close(struct hf_publish *publish);

/* Loads everything anew from the store, at the windows of now_ms: after a start, or when the store lost commits. */
enum hf_store_status hf_publish_load(struct hf_publish *publish, struct hf_store *store,
                                     const char *store_name, uint64_t now_ms, struct hf_store_error *error);

/* What is published is about to be made anew by hf_publish_load(), and slots will be marked out of step with it: until then
 * readers see it in the making. */
void hf_publish_stale(struct hf_publish *publish);

/* One committed receipt of the slot with these rows (key, team, tenant). */
void hf_publish_receipt(struct hf_publish *publish, const struct hf_receipt *receipt,
                        const uint32_t rows[HF_SHM_LAYERS]);

/* The alarms of one committed receipt: expired, retained, overage, disputed, conflict. */
void hf_publish_alarms(struct hf_publish *publish, const struct hf_receipt *receipt);

/* Looks at the limits of every row touched since the last call: 80 %, 100 % and below zero, once per window. */
void hf_publish_limits(struct hf_publish *publish);

/* Adds what is charged of a bucket, for who rebuilds a segment. row, window kind and id, dimension. */
void hf_publish_settled(struct hf_segment *seg, uint32_t row, enum hf_window window, uint32_t window_id,
                        enum hf_dimension dimension, int64_t change);

#endif
