/* A store that lost commits (a failover, an old backup): what the segment still holds is written again, what it does not is
 * a coverage gap, with an alarm and a receipt.
 *
 * Every slot that had been marked is compared with what the store still has of it, and owes the rest again. Slots that were
 * freed after the lost commits are gone from both: their amounts stay in the buckets, and are in no receipt.
 *
 * Order: marks of all slots, the gap's receipt as the chain's next batch, the alarm, the header. CRASH before the receipt: all of it
 * again. CRASH after it, or its answer lost: the receipt is known again by what it states (this segment, from which batch to
 * which), and alarm and header follow. The chain goes on only where the newest epoch's receipt is this segment's: a store that
 * lost an epoch may have given its number to another segment meanwhile.
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
