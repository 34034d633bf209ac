/* The sums of a tenant's buckets, as its slots and publications say, beside what the buckets say, of one instant. */
#include "core/fsck_instant.h"

#include "shm/clock.h"
#include "shm/commit.h"

#include <stdlib.h>

/* Adds a part into the sums of the windows of now. sums: rows_cnt times HF_SHM_ROW_BUCKETS. */
static void add_part(const struct hf_fsck_instant *take, const struct hf_fsck_part *part,
                     const uint32_t *windows, __int128 *sums)
{
    for (uint64_t mask = part->mask; mask != 0; mask &= mask - 1) {
        struct hf_commit_bit bit = hf_commit_bit((uint32_t)__builtin_ctzll(mask));
        uint32_t row = part->rows[bit.layer];

        if (hf_fsck_own_row(take, row) && part->windows[bit.window] == windows[bit.window]) {
            sums[take->fsck->row_place[row] * HF_SHM_ROW_BUCKETS + bit.window * HF_SHM_DIMS +
                 bit.dimension] += part->change[bit.dimension];
        }
    }
}

static uint64_t clamp(__int128 sum)
{
    return sum < 0 ? 0 : sum > (__int128)HF_SHM_AMOUNT_MAX ? HF_SHM_AMOUNT_MAX : (uint64_t)sum;
}

static void hand_over(const struct hf_fsck_instant *take, const uint32_t *windows, const __int128 *sums,
                      hf_fsck_sum_fn *fn, void *ctx)
{
    const struct hf_fsck *fsck = take->fsck;
    const uint32_t *rows = &fsck->row_list[fsck->row_first[take->tenant_idx]];

    for (uint32_t i = 0; i < take->rows_cnt; i++) {
        for (uint32_t b = 0; b < HF_SHM_ROW_BUCKETS; b++) {
            struct hf_u128 word = take->rows[i].words[b];
            uint32_t now = windows[b / HF_SHM_DIMS];
            struct hf_fsck_sum sum = {.row = rows[i],
                                      .window = b / HF_SHM_DIMS,
                                      .dimension = b % HF_SHM_DIMS,
                                      .window_id = now,
                                      .word = word};

            sum.published = take->rows[i].settled_window[b] == now ? take->rows[i].settled[b] : 0;
            sum.expected = clamp(sums[i * HF_SHM_ROW_BUCKETS + b] + sum.published);
            sum.found = hf_bucket_window(word) == now ? hf_bucket_value(word) : 0;
            /* Ahead of the clock: nothing of it can be told by the windows of now; another finding says so. */
            if (hf_bucket_window(word) <= now) {
                fn(ctx, &sum);
            }
        }
    }
}

int hf_fsck_take_sums(struct hf_fsck *fsck, uint32_t tenant_idx, hf_fsck_sum_fn *fn, void *ctx)
{
    struct hf_fsck_instant *take = calloc(1, sizeof(*take));
    uint32_t windows[HF_SHM_WINDOWS];
    __int128 *sums = NULL;
    int rc = HF_ESYS;

    if (take == NULL) {
        return HF_ESYS;
    }
    take->fsck = fsck;
    take->seg = fsck->seg;
    take->tenant_idx = tenant_idx;
    take->rows_cnt = fsck->row_first[tenant_idx + 1U] - fsck->row_first[tenant_idx];
    take->rows = calloc(take->rows_cnt + 1U, sizeof(*take->rows));
    take->place = calloc(fsck->seg->slots_cnt, sizeof(*take->place));
    sums = calloc((size_t)take->rows_cnt * HF_SHM_ROW_BUCKETS + 1U, sizeof(*sums));
    if (take->rows != NULL && take->place != NULL && sums != NULL) {
        enum hf_fsck_outcome outcome = hf_fsck_take_instant(take);
        uint64_t now_ms = hf_clock_now_ms(fsck->seg); /* after everything: no window read is ahead of it */

        rc = outcome == HF_FSCK_TAKEN        ? HF_OK
             : outcome == HF_FSCK_AGAIN      ? HF_EBUSY
             : outcome == HF_FSCK_PUBLISHING ? HF_ENOTREADY
             : outcome == HF_FSCK_IMPOSSIBLE ? HF_ECORRUPT
                                             : HF_ESYS;
        hf_window_ids(now_ms > HF_CLOCK_MS_MAX ? HF_CLOCK_MS_MAX : now_ms, windows);
        for (uint32_t i = 0; rc == HF_OK && i < take->parts_cnt; i++) {
            add_part(take, &take->parts[i], windows, sums);
        }
        if (rc == HF_OK) {
            hand_over(take, windows, sums, fn, ctx);
        }
    }
    free(sums);
    free(take->place);
    free(take->rows);
    free(take->parts);
    free(take);
    return rc;
}
