/* Credits, publications, bucket values. */
#include "core/fsck_mend.h"

#include "shm/commit.h"

#include <stdio.h>

/* relaxed everywhere below: alone in the segment; hf_fsck_repair() publishes it all by the state (E1). */

/* Damage by which a slot says nothing for certain of what it counts, or what of it is published. */
static bool unsettles(enum hf_fsck_kind kind)
{
    return kind == HF_FSCK_SLOT_STATE || kind == HF_FSCK_SLOT_PATH || kind == HF_FSCK_SLOT_WINDOWS ||
           kind == HF_FSCK_SLOT_AMOUNT || kind == HF_FSCK_SLOT_PERSISTED || kind == HF_FSCK_ROW ||
           kind == HF_FSCK_TENANT || kind == HF_FSCK_CLOCK;
}

void hf_mend_judge(struct hf_mend *mend)
{
    for (uint32_t i = 0; i < mend->fsck->items_cnt; i++) {
        const struct hf_fsck_item *item = &mend->fsck->items[i];

        if (!unsettles(item->kind)) {
            continue;
        }
        /* Whose a slot with a damaged path is cannot be told. */
        if (item->tenant < mend->seg->tenants_cnt && item->kind != HF_FSCK_SLOT_PATH) {
            mend->unsound[item->tenant] = 1;
        } else {
            mend->all_unsound = true;
        }
    }
}

/* ---- credits -------------------------------------------------------------------------------------------------------- */

void hf_mend_credits(struct hf_mend *mend)
{
    struct hf_segment *seg = mend->seg;

    for (uint32_t i = 0; i < mend->fsck->items_cnt; i++) {
        struct hf_fsck_item item = mend->fsck->items[i];

        if (item.kind != HF_FSCK_CREDIT || item.row >= seg->rows_cnt || item.window >= HF_SHM_WINDOWS) {
            continue;
        }
        struct hf_u128 *at = &seg->rows[item.row].row_buckets[item.window][HF_SHM_CREDIT];
        struct hf_u128 before = *at; /* plain: alone */
        struct hf_u128 after = {0, 0};

        if (item.slot < seg->slots_cnt) {
            const struct hf_shm_credit_note *note =
                (const struct hf_shm_credit_note *)(const void *)((const uint8_t *)&seg->slots[item.slot] +
                                                                  HF_SHM_CREDIT_OFF);

            after = hf_bucket_make(note->crd_after, note->crd_window_id, hf_bucket_tag(before));
        } else if (seg->rows[item.row].row_layer == 1) {
            continue; /* of a window to come: what it was cannot be told */
        }
        (void)hf_cas_acqrel_u128(at, before, after); /* E12 */
        item.severity = HF_FSCK_MENDED;
        hf_fsck_numbers(&item, hf_bucket_value(after), hf_bucket_value(before));
        (void)snprintf(item.text, sizeof(item.text), "%s",
                       item.slot < seg->slots_cnt ? "the credit was set to what the newest credit made it"
                                                  : "credit where no team is was cleared");
        hf_fsck_say(mend->fsck, &item);
    }
}

/* ---- publications --------------------------------------------------------------------------------------------------- */

static void mend_settled(struct hf_mend *mend, uint32_t row, uint32_t in_row)
{
    struct hf_shm_published *published = &mend->seg->published[row];
    uint32_t window = in_row / HF_SHM_DIMS;
    uint32_t dimension = in_row % HF_SHM_DIMS;
    struct hf_shm_settled *settled = &published->pub_settled[window][dimension];
    uint32_t now = mend->fsck->windows[window];
    uint32_t of_window = hf_load_rlx_u32(&settled->set_window);
    uint64_t there = of_window == now ? hf_load_rlx_u64(&settled->set_amount) : 0;
    uint64_t amount = 0;

    if (!mend->repair->charged(mend->repair->charged_ctx, row, window, now, dimension, &amount) ||
        (there == amount && of_window <= now)) {
        return;
    }
    struct hf_fsck_item item = hf_mend_item(HF_FSCK_PUBLISHED, hf_load_rlx_u64(&settled->set_amount), amount,
                                            "what is published as settled was set to what the store has");

    item.row = row;
    item.window = window;
    item.window_id = now;
    item.dimension = dimension;
    /* Amount first: with the old window it is believed by nobody. Cut off: it is done again. */
    hf_store_rlx_u64(&settled->set_amount, amount);
    hf_store_rlx_u32(&settled->set_window, now);
    hf_fsck_say(mend->fsck, &item);
}

void hf_mend_published(struct hf_mend *mend)
{
    struct hf_segment *seg = mend->seg;

    if (mend->repair->charged == NULL) {
        return;
    }
    for (uint32_t row = 0; row < seg->rows_cnt; row++) {
        uint64_t *seq = &seg->published[row].pub_seq;

        if (!hf_row_used(&seg->rows[row])) {
            continue;
        }
        for (uint32_t b = 0; b < HF_SHM_ROW_BUCKETS; b++) {
            mend_settled(mend, row, b);
        }
        if ((hf_load_rlx_u64(seq) & 1U) != 0) {
            hf_store_rel_u64(seq, hf_load_rlx_u64(seq) +
                                      1U); /* E19 release: a dead daemon left it odd; it is whole */
        }
    }
}

/* ---- buckets -------------------------------------------------------------------------------------------------------- */

static bool window_taken(const struct hf_segment *seg, uint32_t row, uint32_t window, uint32_t window_id)
{
    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        const struct hf_shm_slot *slot = &seg->slots[i]; /* plain: alone */

        if (hf_fsck_counts(slot->slot_st) && window < 4 && slot->slot_windows[window] == window_id &&
            (slot->slot_rows[0] == row || slot->slot_rows[1] == row || slot->slot_rows[2] == row)) {
            return true;
        }
    }
    return false;
}

/* A window ahead of the clock in which nobody reserved: the bucket is of now again, its value follows from the sums. */
static void mend_window(struct hf_mend *mend, uint32_t row, uint32_t in_row)
{
    struct hf_segment *seg = mend->seg;
    uint32_t window = in_row / HF_SHM_DIMS;
    struct hf_u128 *at = &seg->rows[row].row_buckets[window][in_row % HF_SHM_DIMS];
    struct hf_u128 before = *at; /* plain: alone */
    uint32_t now = mend->fsck->windows[window];

    if (hf_bucket_window(before) <= now || window_taken(seg, row, window, hf_bucket_window(before))) {
        return;
    }
    struct hf_fsck_item item = hf_mend_item(HF_FSCK_BUCKET_WINDOW, hf_bucket_window(before), now,
                                            "the bucket is of the window of now again");

    item.row = row;
    item.window = window;
    item.dimension = in_row % HF_SHM_DIMS;
    /* Cut off here, the value is of another window; but the state lets nobody in before a repair has come to its end. */
    (void)hf_cas_acqrel_u128(at, before,
                             hf_bucket_make(hf_bucket_value(before), now, hf_bucket_tag(before))); /* E12 */
    hf_fsck_say(mend->fsck, &item);
}

struct setting {
    struct hf_mend *mend;
    uint32_t tenant;
};

static void leave(struct hf_mend *mend, const struct hf_fsck_sum *sum, const char *why)
{
    struct hf_fsck_item item = hf_fsck_item(HF_FSCK_NOT_CHECKED, HF_FSCK_NOTE);

    item.row = sum->row;
    item.window = sum->window;
    item.window_id = sum->window_id;
    item.dimension = sum->dimension;
    hf_fsck_numbers(&item, sum->expected, sum->found);
    (void)snprintf(item.text, sizeof(item.text), "left as it is: %s", why);
    hf_fsck_say(mend->fsck, &item);
}

static void set_bucket(void *ctx, const struct hf_fsck_sum *sum)
{
    const struct setting *setting = ctx;
    struct hf_mend *mend = setting->mend;
    struct hf_segment *seg = mend->seg;
    uint64_t ignored;

    if (sum->expected == sum->found) {
        return;
    }
    if (mend->all_unsound || mend->unsound[setting->tenant] != 0) {
        leave(mend, sum,
              "a damaged slot makes its sum uncertain; rebuild the segment with `holdfast recover`");
        return;
    }
    if (sum->found > sum->expected) {
        /* relaxed: a counter that only rises. */
        if (hf_load_rlx_u64(&seg->header->hdr_alarms[HF_ALARM_COVERAGE_GAP]) > 0) {
            leave(mend, sum, "the store once lost receipts, and what is too much may be what they stated");
            return;
        }
        if (mend->repair->charged == NULL ||
            !mend->repair->charged(mend->repair->charged_ctx, sum->row, sum->window, sum->window_id,
                                   sum->dimension, &ignored)) {
            leave(mend, sum, "only the store proves that it may hold less; it could not be asked");
            return;
        }
    }
    struct hf_u128 after = hf_bucket_make(sum->expected, sum->window_id, hf_bucket_tag(sum->word));
    struct hf_fsck_item item =
        hf_mend_item(HF_FSCK_BUCKET_VALUE, sum->found, sum->expected,
                     "the bucket was set to what is settled plus what the slots count");

    item.tenant = setting->tenant;
    item.row = sum->row;
    item.window = sum->window;
    item.window_id = sum->window_id;
    item.dimension = sum->dimension;
    (void)hf_cas_acqrel_u128(&seg->rows[sum->row].row_buckets[sum->window][sum->dimension], sum->word,
                             after); /* E12 */
    hf_fsck_say(mend->fsck, &item);
}

bool hf_mend_buckets(struct hf_mend *mend)
{
    struct hf_segment *seg = mend->seg;

    for (uint32_t row = 0; row < seg->rows_cnt; row++) {
        for (uint32_t b = 0; hf_row_used(&seg->rows[row]) && b < HF_SHM_ROW_BUCKETS; b++) {
            mend_window(mend, row, b);
        }
    }
    for (uint32_t i = 0; i < seg->tenants_cnt; i++) {
        struct setting setting = {mend, i};

        if (hf_fsck_tenant_used(seg, i) &&
            hf_fsck_take_sums(mend->fsck, i, set_bucket, &setting) == HF_ESYS) {
            return false;
        }
    }
    return true;
}
