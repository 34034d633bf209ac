#include "persist/batch.h"

#include "shm/commit.h"

#include <string.h>

/* relaxed everywhere below: the daemon is the only writer and, but for slot_persisted, the only reader. */

struct hf_shm_batch *hf_batch_begin(struct hf_segment *seg)
{
    struct hf_shm_batch *desc = &seg->batches[(hf_load_rlx_u64(&seg->header->hdr_batch_number) + 1U) & 1U];

    hf_store_rel_u64(&desc->bat_number,
                     0); /* E20 release -> hf_batch_pending: no half-filled descriptor has a number */
    hf_fence_seq();      /* E20 fence: the entries that follow are stored after it */
    return desc;
}

void hf_batch_announce(struct hf_segment *seg, struct hf_shm_batch *desc, uint64_t rows_cnt,
                       uint64_t entries_cnt, uint64_t committed_ms, struct hf_store_batch *batch)
{
    const struct hf_shm_header *header = seg->header;

    *batch = (struct hf_store_batch){.number = header->hdr_batch_number + 1,
                                     .epoch = header->hdr_epoch,
                                     .first_seq = header->hdr_next_seq,
                                     .rows_cnt = rows_cnt,
                                     .committed_ms = committed_ms};
    memcpy(batch->before, header->hdr_batch_digest, HF_DIGEST_BYTES);
    desc->bat_first_seq = batch->first_seq;
    desc->bat_rows_cnt = rows_cnt;
    desc->bat_entries_cnt = entries_cnt;
    memcpy(desc->bat_before, batch->before, sizeof(desc->bat_before));
    memset(desc->bat_digest, 0, sizeof(desc->bat_digest));
    hf_store_rel_u64(&desc->bat_number,
                     batch->number); /* E20 release -> hf_batch_pending: the descriptor is complete */
}

void hf_batch_mark(struct hf_segment *seg, const struct hf_shm_batch_entry *entry, uint32_t extra)
{
    struct hf_shm_slot *slot = hf_segment_slot(seg, hf_batch_slot(entry));

    if (slot == NULL ||
        hf_st_gen(hf_commit_read_st(slot)) != hf_persisted_gen(entry->bat_persisted)) { /* E13 */
        return;
    }
    hf_store_rlx_u64(&slot->slot_written_tokens, entry->bat_tokens);
    hf_store_rlx_u64(&slot->slot_written_cost, entry->bat_cost);
    hf_store_rlx_u64(&slot->slot_written_deadline, entry->bat_deadline);
    /* E18 release -> holdfast_wait_durable: who sees the mark may rely on the commit; and the totals above are there. */
    hf_store_rel_u64(&slot->slot_persisted, entry->bat_persisted | extra);
}

void hf_batch_done(struct hf_segment *seg, struct hf_shm_batch *desc, const struct hf_store_batch *batch)
{
    struct hf_shm_header *header = seg->header;

    memcpy(header->hdr_batch_digest, batch->digest, HF_DIGEST_BYTES);
    hf_store_rlx_u64(&header->hdr_next_seq, batch->first_seq + batch->rows_cnt);
    hf_store_rel_u64(&header->hdr_batch_number,
                     batch->number); /* E20 release: digest and next receipt go with it */
    if (desc != NULL) {
        hf_store_rel_u64(&desc->bat_number, 0); /* E20 release: after the marks and the header */
    }
}

struct hf_shm_batch *hf_batch_pending(struct hf_segment *seg, uint64_t number)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct hf_shm_batch *desc = &seg->batches[i];

        /* E20 acquire -> hf_batch_announce */
        if (number != 0 && hf_load_acq_u64(&desc->bat_number) == number &&
            desc->bat_entries_cnt <= HF_SHM_BATCH_ENTRIES) {
            return desc;
        }
    }
    return NULL;
}

void hf_batch_adopt(struct hf_segment *seg, const struct hf_store_head *head)
{
    struct hf_shm_header *header = seg->header;

    memcpy(header->hdr_batch_digest, head->last.digest, HF_DIGEST_BYTES);
    hf_store_rlx_u64(&header->hdr_next_seq, head->next_seq);
    hf_store_rlx_u64(&header->hdr_batch_number, head->last.number);
}
