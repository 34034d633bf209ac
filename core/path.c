#include "core/path.h"

#include "core/include/holdfast.h"
#include "core/lookup.h"
#include "core/name_cache.h"
#include "core/window.h"
#include "shm/clock.h"
#include "shm/commit.h"

#define HF_VIEW_ROUNDS 16U

uint32_t hf_path_generation(const struct hf_segment *seg, uint32_t tenant_idx)
{
    const struct hf_shm_tenant *tenant = hf_segment_tenant(seg, tenant_idx);
    /* relaxed: the generation's tables were complete before any tenant named it (E15, W CAS). */
    return tenant == NULL ? 0 : (uint32_t)hf_load_rlx_u64(&tenant->ten_policy);
}

/* What a policy may say; anything else is damage, and would leave the range in the sums that follow. */
static bool hf_path_amount(uint64_t amount)
{
    return amount <= HF_SHM_AMOUNT_MAX || amount == HF_SHM_UNKNOWN;
}

/* False: a limit that cannot be. */
static bool hf_path_add_limits(struct hf_path *path, uint32_t layer, const struct hf_shm_row_policy *policy)
{
    uint64_t first = (uint64_t)path->rows[layer] * (sizeof(struct hf_shm_row) / sizeof(struct hf_u128));
    if (first > UINT32_MAX - HF_SHM_WINDOWS * HF_SHM_WINDOW_WORDS) {
        return false; /* 64 GiB of rows */
    }
    for (uint32_t i = 0; i < HF_SHM_ROW_BUCKETS; i++) {
        uint32_t window = i / HF_SHM_DIMS;
        uint32_t dimension = i % HF_SHM_DIMS;
        /* relaxed: read-only once published; a damaged one may change between its check and its use. */
        uint64_t limit = hf_load_rlx_u64(&policy->rpl_limits[window][dimension]);
        if (limit == HF_SHM_UNKNOWN) {
            continue;
        }
        if (!hf_path_amount(limit)) {
            return false;
        }
        struct hf_path_bucket *bucket = &path->buckets[path->buckets_cnt++];
        bucket->limit = limit;
        bucket->word_idx = (uint32_t)first + HF_SHM_ROW_WORD(window, dimension);
        bucket->has_credit = layer == 1 && dimension == HF_DIM_COST;
        bucket->layer = (uint8_t)layer;
        bucket->window = (uint8_t)window;
        bucket->dimension = (uint8_t)dimension;
        path->mask |= 1ULL << (layer * HF_SHM_ROW_BUCKETS + i);
        path->dims_limited = (uint8_t)(path->dims_limited | 1U << dimension);
    }
    return true;
}

static void hf_path_clear(struct hf_path *path)
{
    path->cap_micros = path->cap_tokens = HF_SHM_UNKNOWN;
    path->cap_basis = 0;
    path->ttl_ms = path->retry_after_ms = path->mask = 0;
    path->slot_flags = path->dims_limited = path->buckets_cnt = 0;
    for (uint32_t layer = 0; layer < HF_SHM_LAYERS; layer++) {
        path->on_limit[layer] = 0;
        path->overdraft[layer] = 0;
    }
}

/* Limits and modes of the layers that rows[] names; removed_too: as hf_path_fill(). */
static int hf_path_fill_rows(const struct hf_segment *seg, const struct hf_shm_policy *policy,
                             struct hf_path *path, bool removed_too)
{
    hf_path_clear(path);
    for (uint32_t layer = 0; layer < HF_SHM_LAYERS; layer++) {
        if (path->rows[layer] == HF_SHM_NONE) {
            continue;
        }
        const struct hf_shm_row_policy *row = hf_lookup_row(seg, policy, path->rows[layer]);
        if (hf_segment_row(seg, path->rows[layer]) == NULL || (row == NULL && !removed_too)) {
            return HF_ECORRUPT;
        }
        if (row == NULL) {
            continue;
        }
        uint64_t overdraft = hf_load_rlx_u64(&row->rpl_overdraft_micros); /* relaxed: read once */
        path->on_limit[layer] = (uint8_t)row->rpl_on_limit;
        path->overdraft[layer] = overdraft == HF_SHM_UNKNOWN ? 0 : overdraft;
        if (layer == 1) {
            path->ttl_ms = row->rpl_ttl_ms;
            path->retry_after_ms = row->rpl_retry_after_ms;
            path->slot_flags =
                (uint16_t)((row->rpl_on_expiry & HF_SLOT_EXPIRY_MASK) |
                           (row->rpl_on_overage == HF_ON_OVERAGE_FAIL ? HF_SLOT_OVERAGE_FAIL : 0));
        } else if (layer == 2 && path->retry_after_ms == 0) {
            path->retry_after_ms = row->rpl_retry_after_ms; /* its team is removed */
        }
        if (!hf_path_amount(overdraft) || !hf_path_add_limits(path, layer, row)) {
            return HF_ECORRUPT;
        }
    }
    return HF_OK;
}

static int hf_path_set_cap(struct hf_path *path, const struct hf_shm_cap *cap)
{
    path->cap_name = cap->cap_name;
    path->cap_micros = cap->cap_micros;
    path->cap_tokens = cap->cap_tokens;
    path->cap_basis = (uint8_t)cap->cap_basis;
    if (path->cap_basis == HF_BASIS_CAP) {
        path->slot_flags = (uint16_t)(path->slot_flags | HF_SLOT_BASIS_CAP |
                                      (path->cap_tokens != HF_SHM_UNKNOWN ? HF_SLOT_CAP_TOKENS : 0) |
                                      (path->cap_micros != HF_SHM_UNKNOWN ? HF_SLOT_CAP_COST : 0));
    }
    return hf_path_amount(path->cap_micros) && hf_path_amount(path->cap_tokens) ? HF_OK : HF_ECORRUPT;
}

int hf_path_fill(const struct hf_segment *seg, struct hf_path *path, bool removed_too)
{
    path->policy_gen = hf_path_generation(seg, path->tenant_idx);
    const struct hf_shm_policy *policy = hf_lookup_policy(seg, path->policy_gen);
    if (policy == NULL) {
        return HF_ECORRUPT;
    }
    int rc = hf_path_fill_rows(seg, policy, path, removed_too);
    if (rc != HF_OK) {
        return rc;
    }
    char name[64];
    uint32_t bytes = hf_lookup_name(seg, path->cap_name, name);
    uint32_t found = hf_lookup_find(seg, policy, HF_LOOKUP_CAP, path->rows[1], name, bytes);
    const struct hf_shm_cap *cap = found == HF_SHM_NONE ? NULL : hf_lookup_cap(seg, policy, found);
    return cap == NULL ? HF_OK : hf_path_set_cap(path, cap);
}

/* One name after the other; the first unknown one is the reason. */
static int hf_path_find(const struct hf_segment *seg, const struct hf_shm_policy *policy,
                        const struct hf_names *names, struct hf_path *path, uint32_t *cap_idx)
{
    path->rows[1] =
        hf_lookup_find(seg, policy, HF_LOOKUP_TEAM, path->rows[2], names->team, names->team_bytes);
    if (path->rows[1] == HF_SHM_NONE) {
        return HOLDFAST_REASON_UNKNOWN_TEAM;
    }
    if (names->key_bytes != 0) {
        path->rows[0] =
            hf_lookup_find(seg, policy, HF_LOOKUP_KEY, path->rows[1], names->key, names->key_bytes);
        if (path->rows[0] == HF_SHM_NONE) {
            return HOLDFAST_REASON_UNKNOWN_KEY;
        }
    }
    if (names->cap_bytes != 0) {
        *cap_idx = hf_lookup_find(seg, policy, HF_LOOKUP_CAP, path->rows[1], names->cap, names->cap_bytes);
        if (*cap_idx == HF_SHM_NONE) {
            return HOLDFAST_REASON_UNKNOWN_CAPABILITY;
        }
    }
    return HOLDFAST_REASON_NONE;
}

int hf_path_resolve(const struct hf_segment *seg, const struct hf_names *names, struct hf_path *path,
                    int *reason)
{
    path->rows[0] = path->rows[1] = path->rows[2] = HF_SHM_NONE;
    path->cap_name = HF_SHM_NONE;
    hf_path_clear(path);
    /* relaxed: the newest generation only finds the tenant; its own word says which limits are in force. */
    uint32_t newest = hf_load_rlx_u32(&seg->header->hdr_policy_gen);
    const struct hf_shm_policy *policy = hf_lookup_policy(seg, newest);
    if (policy == NULL) {
        return HF_ECORRUPT;
    }
    path->tenant_idx = hf_lookup_find(seg, policy, HF_LOOKUP_TENANT, 0, names->tenant, names->tenant_bytes);
    struct hf_shm_tenant *tenant = hf_segment_tenant(seg, path->tenant_idx);
    if (tenant == NULL) {
        *reason = HOLDFAST_REASON_UNKNOWN_TENANT;
        return path->tenant_idx == HF_SHM_NONE ? HF_ENOTREADY : HF_ECORRUPT;
    }
    path->policy_gen = hf_path_generation(seg, path->tenant_idx);
    if (path->policy_gen != newest) {
        policy = hf_lookup_policy(seg, path->policy_gen);
        if (policy == NULL) {
            return HF_ECORRUPT;
        }
    }
    path->rows[2] = tenant->ten_row; /* plain: read-only once published */
    uint32_t cap_idx = HF_SHM_NONE;
    *reason = hf_path_find(seg, policy, names, path, &cap_idx);
    int rc = hf_path_fill_rows(seg, policy, path, false);
    if (rc != HF_OK || *reason != HOLDFAST_REASON_NONE) {
        return rc != HF_OK ? rc : HF_ENOTREADY;
    }
    if (cap_idx != HF_SHM_NONE) {
        const struct hf_shm_cap *cap = hf_lookup_cap(seg, policy, cap_idx);
        if (cap == NULL) {
            return HF_ECORRUPT;
        }
        return hf_path_set_cap(path, cap);
    }
    return HF_OK;
}

/* ---- view --------------------------------------------------------------------------------------------------- */

/* Reads every bucket. False: one is ahead of now_ms; now_ms is the start of its window then. */
static bool hf_view_buckets(const struct hf_segment *seg, const struct hf_path *path, struct hf_view *view)
{
    view->credits_any = 0;
    for (uint32_t i = 0; i < path->buckets_cnt; i++) {
        const struct hf_path_bucket *bucket = &path->buckets[i];
        struct hf_u128 word = hf_commit_read_bucket(hf_path_word(seg, bucket)); /* E12 */
        uint32_t window = view->windows[bucket->window];
        uint32_t seen = hf_bucket_window(word);
        if (__builtin_expect(seen > window, 0)) {
            view->now_ms = hf_window_start_ms((enum hf_window)bucket->window, seen);
            return false;
        }
        view->words[i] = word;
        view->values[i] = seen == window ? hf_bucket_value(word) : 0;
        if (bucket->has_credit != 0) {
            struct hf_u128 credit = hf_commit_read_bucket(hf_path_credit(seg, bucket)); /* E12 */
            uint64_t micros = hf_bucket_window(credit) == window ? hf_bucket_value(credit) : 0;
            view->credits[bucket->window] = micros;
            view->credits_any |= micros;
        }
    }
    return true;
}

int hf_view_read(struct hf_segment *seg, const struct hf_path *path, struct hf_window_memo *memo,
                 struct hf_view *view)
{
    int rc = hf_commit_ready(seg, path->tenant_idx, &view->word);
    if (rc != HF_OK) {
        return rc;
    }
    struct hf_clock_now now;
    hf_clock_read(seg, &now);
    view->now_ms = now.now_ms;
    view->elapsed_ms = now.elapsed_ms;
    view->mono_ms = now.mono_ms;
    for (uint32_t round = 0; round < HF_VIEW_ROUNDS; round++) {
        if (view->now_ms > HF_CLOCK_MS_MAX) {
            return HF_ECORRUPT;
        }
        hf_window_ids_memo(memo, view->now_ms, view->windows);
        if (hf_view_buckets(seg, path, view)) {
            return HF_OK;
        }
    }
    return HF_EBUSY;
}
