/* The chain of batches as the segment knows it, and the descriptor of the batch on its way.
 *
 * Header: number and digest of the last committed batch, next receipt. Descriptor (two, by number & 1): which slots a batch
 * marks when it is committed, written before its transaction, its number last. A lost answer or a killed daemon leaves it
 * there; whoever comes asks the store for the number: there: mark exactly these slots; not there: they owe what they owed.
 *
 * CRASH table, in the order of the stores: descriptor half filled (number 0): the batch was never sent. Number stored: ask the
 * store. Some slots marked: marked again, the same. Digest or next receipt stored, number not: the store's chain is one ahead of
 * the header, the descriptor names it: as before. Number stored, descriptor not cleared: marked again, the same.
 */
#ifndef HF_PERSIST_BATCH_H
#define HF_PERSIST_BATCH_H

#include "persist/store.h"
#include "shm/segment.h"

/* The descriptor of the next batch, cleared; entries may be filled. */
struct hf_shm_batch *hf_batch_begin(struct hf_segment *seg);

/* Completes the descriptor and fills in the batch for hf_store_commit: number, epoch, first_seq, before, committed_ms. */
void hf_batch_announce(struct hf_segment *seg, struct hf_shm_batch *desc, uint64_t rows_cnt,
                       uint64_t entries_cnt, uint64_t committed_ms, struct hf_store_batch *batch);

/* Marks one entry's slot; extra: further HF_PERSISTED_x bits. A slot of another generation is left alone. */
void hf_batch_mark(struct hf_segment *seg, const struct hf_shm_batch_entry *entry, uint32_t extra);

/* The batch is committed and its slots are marked: header, then the descriptor is cleared. desc may be NULL. */
void hf_batch_done(struct hf_segment *seg, struct hf_shm_batch *desc, const struct hf_store_batch *batch);

/* The descriptor that names this batch number, or NULL. */
struct hf_shm_batch *hf_batch_pending(struct hf_segment *seg, uint64_t number);

/* Sets the header to the store's end of the chain, for a new segment or one whose store lost commits. */
void hf_batch_adopt(struct hf_segment *seg, const struct hf_store_head *head);

static inline uint32_t hf_batch_slot(const struct hf_shm_batch_entry *entry)
{
    return (uint32_t)entry->bat_slot & (HF_SHM_SLOTS_MAX - 1U);
}

#endif
