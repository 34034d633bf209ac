/* What the daemon publishes and remembers. It may have been stopped anywhere, so most is judged only between two batches. */
#include "core/fsck_impl.h"

#include "core/meter.h"

/* relaxed everywhere below: between two looks at a sequence counter or number, or each word for itself. */

static void check_published(struct hf_fsck *fsck, uint32_t row)
{
    const struct hf_shm_published *published = &fsck->seg->published[row];
    uint64_t seq = hf_load_acq_u64(&published->pub_seq); /* E19 acquire -> the daemon's publication */

    for (uint32_t b = 0; b < HF_SHM_ROW_BUCKETS; b++) {
        const struct hf_shm_settled *settled = &published->pub_settled[b / HF_SHM_DIMS][b % HF_SHM_DIMS];
        uint64_t amount = hf_load_rlx_u64(&settled->set_amount);
        uint32_t window = hf_load_rlx_u32(&settled->set_window);

        if (amount <= HF_SHM_AMOUNT_MAX && window <= fsck->windows[b / HF_SHM_DIMS]) {
            continue;
        }
        struct hf_fsck_item *item = hf_fsck_add(
            fsck, HF_FSCK_PUBLISHED,
            "published as settled: an amount out of range, or of a window that is to come (%u)", window);

        hf_fsck_numbers(item, fsck->windows[b / HF_SHM_DIMS], amount);
        if (item != NULL) {
            item->row = row;
            item->tenant = fsck->seg->rows[row].row_tenant; /* plain: read-only once published */
            item->window = b / HF_SHM_DIMS;
            item->dimension = b % HF_SHM_DIMS;
            item->sig[0] = amount;
            item->sig[1] = seq;
        }
    }
}

static bool negative(const struct hf_shm_meter *meter)
{
    return meter->mtr_requests < 0 || meter->mtr_failures < 0 || meter->mtr_degraded < 0 ||
           meter->mtr_reserved_micros < 0 || meter->mtr_settled_micros < 0;
}

static uint64_t largest(const struct hf_shm_meter *meter)
{
    const int64_t fields[] = {meter->mtr_requests, meter->mtr_failures, meter->mtr_degraded,
                              meter->mtr_reserved_micros, meter->mtr_settled_micros};
    int64_t most = 0;

    for (uint32_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        most = fields[i] > most ? fields[i] : most;
    }
    return (uint64_t)most;
}

static struct hf_fsck_item *meter_item(struct hf_fsck *fsck, uint32_t idx, const struct hf_shm_meter *meter,
                                       const char *what)
{
    struct hf_fsck_item *item = hf_fsck_add(fsck, HF_FSCK_METER, "%s", what);

    if (item != NULL) {
        item->idx = idx;
        item->sig[0] = (uint64_t)meter->mtr_requests;
        item->sig[1] = (uint64_t)meter->mtr_settled_micros;
    }
    return item;
}

static void check_meter(struct hf_fsck *fsck, uint32_t idx)
{
    const struct hf_segment *seg = fsck->seg;
    uint64_t number = hf_load_acq_u64(&seg->header->hdr_batch_number); /* E20 acquire -> hf_batch_done */
    uint32_t names = hf_load_rlx_u32(&seg->header->hdr_names_cnt);
    struct hf_shm_meter meter;

    if (!hf_meter_read(seg, idx, &meter)) { /* unused, or in the making */
        return;
    }
    uint64_t most = hf_load_rlx_u64(&seg->header->hdr_meters_max);

    if (!hf_fsck_between_batches(seg, number)) {
        return; /* the next look finds it at rest */
    }
    if (meter.mtr_tenant >= names || meter.mtr_cap >= names ||
        (meter.mtr_model != HF_SHM_NONE && meter.mtr_model >= names)) {
        (void)meter_item(fsck, idx, &meter, "the meter is of a name that is not there");
    } else if (negative(&meter)) {
        (void)meter_item(fsck, idx, &meter, "the meter is negative");
    } else if (largest(&meter) > most) {
        hf_fsck_numbers(
            meter_item(fsck, idx, &meter, "the meter is larger than hdr_meters_max says that any is"), most,
            largest(&meter));
    }
}

static void batch_item(struct hf_fsck *fsck, uint32_t idx, uint64_t number, const char *what)
{
    struct hf_fsck_item *item = hf_fsck_add(fsck, HF_FSCK_BATCH, "%s", what);

    hf_fsck_numbers(item, hf_load_rlx_u64(&fsck->seg->header->hdr_batch_number) + 1U, number);
    if (item != NULL) {
        item->idx = idx;
        item->sig[0] = number;
    }
}

static const char *wrong_entries(const struct hf_segment *seg, const struct hf_shm_batch *batch, uint64_t cnt)
{
    for (uint64_t i = 0; i < cnt; i++) {
        uint64_t slot_word = hf_load_rlx_u64(&batch->bat_entries[i].bat_slot);
        uint64_t persisted = hf_load_rlx_u64(&batch->bat_entries[i].bat_persisted);
        uint64_t slot_idx = slot_word & (HF_SHM_SLOTS_MAX - 1U);

        if (slot_idx >= seg->slots_cnt) {
            return "the descriptor names a slot that is not there";
        }
        if (hf_persisted_gen(slot_word) != hf_persisted_gen(persisted)) {
            return "an entry of the descriptor is of two lives of its slot";
        }
    }
    return NULL;
}

static void check_batch(struct hf_fsck *fsck, uint32_t idx)
{
    const struct hf_segment *seg = fsck->seg;
    const struct hf_shm_batch *batch = &seg->batches[idx];
    uint64_t last = hf_load_acq_u64(&seg->header->hdr_batch_number); /* E20 acquire -> hf_batch_done */
    uint64_t number = hf_load_acq_u64(&batch->bat_number);           /* E20 acquire -> hf_batch_announce */
    uint64_t entries = hf_load_rlx_u64(&batch->bat_entries_cnt);
    uint64_t rows = hf_load_rlx_u64(&batch->bat_rows_cnt);
    const char *wrong = NULL;

    if (number == 0) {
        return;
    }
    if (number != last && number != last + 1U) {
        wrong = "the descriptor is of a batch that is neither the last nor the next one";
    } else if ((number & 1U) != idx) {
        wrong = "the descriptor stands at the other one's place";
    } else if (entries == 0 || entries > HF_SHM_BATCH_ENTRIES || rows < entries || rows > 4U * entries) {
        wrong = "the descriptor counts more, or fewer, than can be";
    } else {
        wrong = wrong_entries(seg, batch, entries);
    }
    hf_fence_acq(); /* E20 fence: all of it was read while the number stood */
    if (wrong != NULL && hf_load_rlx_u64(&batch->bat_number) == number &&
        hf_load_rlx_u64(&seg->header->hdr_batch_number) == last) {
        batch_item(fsck, idx, number, wrong);
    }
}

void hf_fsck_check_daemon(struct hf_fsck *fsck)
{
    const struct hf_segment *seg = fsck->seg;

    for (uint32_t row = 0; row < seg->rows_cnt; row++) {
        check_published(fsck, row);
    }
    for (uint32_t i = 0; i < seg->meters_cnt; i++) {
        check_meter(fsck, i);
    }
    check_batch(fsck, 0);
    check_batch(fsck, 1);
}
