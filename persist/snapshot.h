/* A slot as it was at one instant, what receipts it owes, and the receipts themselves.
 *
 * What has been made receipts of stands in the slot: slot_persisted (generation, ordinal, HF_PERSISTED_x) and
 * slot_written_* (the totals of its newest receipt). What it owes is the difference between that and its state. A slot
 * owes at most a reservation, one extension, an expiry and a closing, in this order; a credit owes one receipt, whose
 * mark is HF_PERSISTED_CLOSING.
 */
#ifndef HF_PERSIST_SNAPSHOT_H
#define HF_PERSIST_SNAPSHOT_H

#include "persist/receipt.h"
#include "shm/segment.h"

/* What a slot owes, as bits. */
#define HF_OWES_RESERVATION 0x1U
#define HF_OWES_EXTENSION   0x2U
#define HF_OWES_EXPIRY      0x4U
#define HF_OWES_CLOSING     0x8U
#define HF_OWES_CREDIT      0x10U
#define HF_OWES_ROWS_MAX    4U

struct hf_snapshot {
    uint32_t slot_idx;
    struct hf_u128 st;
    uint64_t persisted;
    struct hf_shm_slot slot; /* copy; its own slot_st and slot_claim are not to be used */
};

/* Copies a slot. HF_OK; HF_EBUSY when it changed under each of a bounded number of tries: look again later. */
int hf_snapshot_take(const struct hf_segment *seg, uint32_t slot_idx, struct hf_snapshot *snap);

/* By the two words alone: true when the slot owes nothing. Of one state it knows less than hf_snapshot_owes(): an extension
 * whose count has come round to the same ordinal. */
bool hf_snapshot_written(struct hf_u128 st, uint64_t persisted);

/* HF_OWES_x of a snapshot; 0: nothing, or no receipt can be made of its state (free, being filled, abandoned). */
uint32_t hf_snapshot_owes(const struct hf_snapshot *snap);

/* The state is final: nothing but a late settlement or a resolution can follow. */
bool hf_snapshot_final(enum hf_state state);

/* What the daemon knows besides the slot. */
struct hf_snapshot_known {
    uint64_t policy_revision;
    uint64_t reservation_seq; /* of this slot's reservation; HF_UNKNOWN: the store looks it up */
    uint8_t reservation_digest[HF_DIGEST_BYTES];
};

/* Makes the receipts of `owes` in order into rows (room for HF_OWES_ROWS_MAX). epoch is filled in, seq is not; a row's
 * reason points into snap. Returns how many; 0 when the slot holds values that cannot be (damaged). */
size_t hf_snapshot_receipts(const struct hf_segment *seg, const struct hf_snapshot *snap, uint32_t owes,
                            const struct hf_snapshot_known *known, struct hf_receipt *rows);

/* slot_persisted and slot_written_* when everything that the snapshot owes is committed. */
void hf_snapshot_mark(const struct hf_snapshot *snap, struct hf_shm_batch_entry *entry);

/* The tenant, team and key rows' names as text; false when the slot's rows cannot be. */
bool hf_snapshot_names(const struct hf_segment *seg, const struct hf_shm_slot *slot, struct hf_name *tenant,
                       struct hf_name *team, struct hf_name *key);

#endif
