/* The transaction without what surrounds it: what core/admit.c and core/close.c do to a tenant, and nothing else. */
#include "bench/worker_impl.h"

#include "core/path.h"
#include "shm/commit.h"

/* One operation on the buckets of a path; opens: it is checked against the limits. False when there is no room. */
static bool transact(struct hf_worker *worker, const struct hf_path *path, bool opens,
                     const int64_t change[HF_SHM_DIMS], struct hf_view *view)
{
    struct hf_segment *seg = &worker->world->map;

    for (;;) {
        if (hf_view_read(seg, path, &worker->handle->windows, view) != HF_OK) {
            return false;
        }
        struct hf_op op;        /* large: not zeroed */
        op.kind = HF_KIND_NONE; /* names no slot */
        op.slot_idx = 0;
        op.seq = hf_word_seq(view->word) + 1U;
        op.opens = opens;
        op.foretold = true;
        op.buckets_cnt = path->buckets_cnt;
        for (uint32_t i = 0; i < path->buckets_cnt; i++) {
            const struct hf_path_bucket *bucket = &path->buckets[i];

            if (opens && view->values[i] + (uint64_t)change[bucket->dimension] > bucket->limit) {
                return false;
            }
            op.buckets[i].word = hf_path_word(seg, bucket);
            op.buckets[i].before = op.buckets[i].after = view->words[i];
            (void)hf_commit_after(view->words[i], op.seq, view->windows[bucket->window],
                                  change[bucket->dimension], opens, &op.buckets[i].after);
        }
        if (hf_commit_run(seg, path->tenant_idx, view->word, &op, view->now_ms)) {
            return true;
        }
    }
}

int hf_worker_transactions(struct hf_worker *worker, uint32_t cnt)
{
    static const int64_t held[HF_SHM_DIMS] = {1, HF_WORLD_HELD_TOKENS, HF_WORLD_HELD_MICROS};
    static const int64_t settled[HF_SHM_DIMS] = {0, (int64_t)HF_WORLD_ACTUAL_TOKENS - HF_WORLD_HELD_TOKENS,
                                                 (int64_t)HF_WORLD_ACTUAL_MICROS - HF_WORLD_HELD_MICROS};

    for (uint32_t i = 0; i < cnt; i++) {
        const struct hf_path *path = (const struct hf_path *)(const void *)worker->paths[worker->tenants[i]];
        struct hf_view view;

        if (!transact(worker, path, true, held, &view) || !transact(worker, path, false, settled, &view)) {
            return -1;
        }
    }
    return 0;
}

void hf_worker_transacted(struct hf_worker *worker, uint32_t cnt)
{
    static const uint64_t by[HF_SHM_DIMS] = {1, HF_WORLD_ACTUAL_TOKENS, HF_WORLD_ACTUAL_MICROS};

    for (uint32_t i = 0; i < cnt; i++) {
        const struct hf_path *path = (const struct hf_path *)(const void *)worker->paths[worker->tenants[i]];

        for (uint32_t n = 0; n < path->buckets_cnt; n++) {
            const struct hf_path_bucket *bucket = &path->buckets[n];
            uint32_t window =
                hf_bucket_window(hf_commit_read_bucket(hf_path_word(&worker->world->map, bucket))); /* E12 */

            hf_world_charge(&worker->world->accounts[path->rows[bucket->layer]], bucket->window, window,
                            bucket->dimension, by[bucket->dimension]);
        }
    }
}
