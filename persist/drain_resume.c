/* A daemon that continues: finishes the batch that the one before it had announced. */
#include "persist/drain_impl.h"

#include "persist/batch.h"

#include <string.h>

struct resume {
    struct hf_drain *drain;
    uint64_t entry; /* of the descriptor, in the order of the rows */
    uint64_t entries_cnt;
};

/* A row of the batch that was found committed: which reservations are conflicts, and the alarms. */
static int resume_row(void *ctx, const struct hf_receipt *receipt)
{
    struct resume *resume = ctx;
    struct hf_shm_batch *desc = resume->drain->desc;
    struct hf_receipt row = *receipt;

    if (receipt->kind == HF_RECEIPT_RESERVATION && receipt->conflict) {
        while (resume->entry < resume->entries_cnt) {
            struct hf_shm_batch_entry *entry = &desc->bat_entries[resume->entry++];
            const struct hf_shm_slot *slot = hf_segment_slot(resume->drain->seg, hf_batch_slot(entry));

            if (slot != NULL && hf_name_is(&receipt->id, slot->slot_id, slot->slot_id_bytes)) {
                entry->bat_persisted |= HF_PERSISTED_CONFLICT;
                break;
            }
        }
        row.fate = row.fate == HF_FATE_ASIDE ? HF_FATE_ASIDE : HF_FATE_CONFLICT;
    }
    hf_publish_alarms(resume->drain->options.publish, &row);
    return 0;
}

/* The store has one batch more than the header says, or as many: marks the slots of its descriptor. */
static enum hf_store_status finish(struct hf_drain *drain, const struct hf_store_head *head,
                                   struct hf_shm_batch *desc, struct hf_store_error *error)
{
    /* Read once: a damaged segment may say something else the next time. */
    uint64_t entries_cnt = hf_load_rlx_u64(&desc->bat_entries_cnt); /* relaxed: after E20 */
    struct resume resume = {.drain = drain,
                            .entries_cnt =
                                entries_cnt < HF_SHM_BATCH_ENTRIES ? entries_cnt : HF_SHM_BATCH_ENTRIES};
    enum hf_store_status status;

    drain->desc = desc;
    status = hf_store_rows(drain->options.store, drain->options.store_name, head->last.first_seq,
                           head->last.rows_cnt, resume_row, &resume, error);
    if (status != HF_STORE_OK) {
        return status;
    }
    for (uint64_t i = 0; i < resume.entries_cnt; i++) {
        hf_batch_mark(drain->seg, &desc->bat_entries[i], 0);
    }
    hf_batch_done(drain->seg, desc, &head->last);
    return HF_STORE_OK;
}

enum hf_store_status hf_drain_resume(struct hf_drain *drain, struct hf_store_error *error)
{
    const struct hf_shm_header *header = drain->seg->header;
    struct hf_store_head head;
    enum hf_store_status status =
        hf_store_head(drain->options.store, drain->options.store_name, &head, error);

    if (status != HF_STORE_OK) {
        return status;
    }
    struct hf_shm_batch *desc = hf_batch_pending(drain->seg, head.last.number);

    drain->options.committed_ms = head.last.committed_ms;
    if (desc != NULL && head.last.epoch == header->hdr_epoch && head.last.first_seq == desc->bat_first_seq &&
        head.last.rows_cnt == desc->bat_rows_cnt &&
        memcmp(head.last.before, desc->bat_before, HF_DIGEST_BYTES) == 0 &&
        (head.last.number == header->hdr_batch_number || head.last.number == header->hdr_batch_number + 1)) {
        return finish(drain, &head, desc, error);
    }
    if (head.last.number == header->hdr_batch_number &&
        memcmp(head.last.digest, header->hdr_batch_digest, HF_DIGEST_BYTES) == 0) {
        return HF_STORE_OK;
    }
    return head.last.number > header->hdr_batch_number ? HF_STORE_TAKEN : HF_STORE_BEHIND;
}
