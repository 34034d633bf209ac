/* A store that lost commits (a failover, an old backup): what the segment still holds is written again, what it does not is
 * a coverage gap, with an alarm and a receipt.
 *
 * Every slot that had been marked is compared with what the store still has of it, and owes the rest again. Slots that were
 * freed after the lost commits are gone from both: their amounts stay in the buckets, and are in no receipt.
 */
#ifndef HF_PERSIST_REWIND_H
#define HF_PERSIST_REWIND_H

#include "persist/log.h"
#include "persist/store.h"
#include "shm/segment.h"

struct hf_rewind_options {
    struct hf_segment *seg;
    struct hf_store *store;
    const char *store_name;
    uint64_t policy_revision;
    uint64_t now_ms;
    struct hf_log log;
};

/* HF_STORE_OK: header and slots are those of the store's end of the chain, and the gap's receipt is committed; slots owe what is
 * missing. HF_STORE_TAKEN: the chain goes on under another epoch, or otherwise than this segment knows it. Others as the store
 * says: call again. */
enum hf_store_status hf_rewind(const struct hf_rewind_options *options, struct hf_store_error *error);

#endif
