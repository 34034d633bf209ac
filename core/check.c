#include "core/check.h"

#include "core/amount.h"
#include "core/window.h"

/* limit + credit (+ overdraft) of a bucket; may exceed the range, never overflows 64 bits. */
static inline uint64_t hf_check_room(const struct hf_view *view, const struct hf_path_bucket *bucket,
                                     const struct hf_widen *widen)
{
    uint64_t room = bucket->limit;
    if (bucket->has_credit != 0) {
        room += view->credits[bucket->window];
    }
    if (widen->layer == bucket->layer && widen->window == bucket->window &&
        bucket->dimension == HF_DIM_COST) {
        room += widen->micros;
    }
    return room;
}

/* Amounts that are unknown are limited by nobody: amount-unknown came first. */
static inline uint64_t hf_check_amount(const struct hf_amounts *amounts, uint32_t dimension)
{
    uint64_t amount = amounts->by[dimension];
    return amount == HF_SHM_UNKNOWN ? 0 : amount;
}

int hf_check(const struct hf_path *path, const struct hf_view *view, const struct hf_amounts *amounts,
             const struct hf_widen *widen)
{
    for (uint32_t i = 0; i < path->buckets_cnt; i++) {
        const struct hf_path_bucket *bucket = &path->buckets[i];
        uint64_t amount = hf_check_amount(amounts, bucket->dimension);
        /* A bucket that is above its limit refuses an amount of 0 too. */
        if (view->values[i] + amount > hf_check_room(view, bucket, widen)) {
            return (int)i;
        }
    }
    return -1;
}

bool hf_check_range(const struct hf_path *path, const struct hf_view *view, const struct hf_amounts *amounts)
{
    for (uint32_t i = 0; i < path->buckets_cnt; i++) {
        if (view->values[i] + hf_check_amount(amounts, path->buckets[i].dimension) > HF_AMOUNT_MAX) {
            return false;
        }
    }
    return true;
}

uint64_t hf_check_retry_ms(const struct hf_path *path, const struct hf_view *view,
                           const struct hf_amounts *amounts, const struct hf_widen *widen)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < path->buckets_cnt; i++) {
        const struct hf_path_bucket *bucket = &path->buckets[i];
        uint64_t amount = hf_check_amount(amounts, bucket->dimension);
        uint64_t room = hf_check_room(view, bucket, widen);
        if (view->values[i] + amount <= room) {
            continue;
        }
        if (amount > room) {
            return HF_SHM_UNKNOWN;
        }
        uint64_t end = hf_window_end_ms((enum hf_window)bucket->window, view->windows[bucket->window]);
        uint64_t wait = end == HF_UNKNOWN ? HF_AMOUNT_MAX : end - view->now_ms;
        longest = wait > longest ? wait : longest;
    }
    if (longest == 0) {
        return path->retry_after_ms;
    }
    return longest < path->retry_after_ms ? longest : path->retry_after_ms;
}

static void hf_check_remaining_request(const struct hf_path *path, bool refused,
                                       const struct hf_amounts *held, struct holdfast_answer *answer)
{
    const uint64_t caps[HF_SHM_DIMS] = {HF_SHM_UNKNOWN, path->cap_tokens, path->cap_micros};
    for (uint32_t dim = HF_DIM_TOKENS; held != NULL && dim <= HF_DIM_COST; dim++) {
        if (caps[dim] == HF_SHM_UNKNOWN || held->by[dim] == HF_SHM_UNKNOWN) {
            continue;
        }
        int64_t left = (int64_t)caps[dim] - (int64_t)held->by[dim];
        answer->remaining[dim][HOLDFAST_LAYER_REQUEST] = refused && left < 0 ? 0 : left;
    }
}

void hf_check_remaining(const struct hf_path *path, const struct hf_view *view,
                        const struct hf_amounts *added, bool refused, const struct hf_amounts *held,
                        struct holdfast_answer *answer)
{
    for (uint32_t dim = 0; dim < HF_SHM_DIMS; dim++) {
        for (uint32_t layer = 0; layer < 4; layer++) {
            answer->remaining[dim][layer] = HOLDFAST_NONE;
        }
    }
    for (uint32_t i = 0; i < path->buckets_cnt; i++) {
        const struct hf_path_bucket *bucket = &path->buckets[i];
        uint64_t used = view->values[i] + (added != NULL ? hf_check_amount(added, bucket->dimension) : 0);
        int64_t left = (int64_t)hf_check_room(view, bucket, &HF_WIDEN_NONE) - (int64_t)used;
        if (refused && left < 0) {
            left = 0;
        }
        int64_t *tightest = &answer->remaining[bucket->dimension][bucket->layer + 1U];
        if (*tightest == HOLDFAST_NONE || left < *tightest) {
            *tightest = left;
        }
    }
    hf_check_remaining_request(path, refused, held, answer);
    answer->has_remaining = 1;
}
