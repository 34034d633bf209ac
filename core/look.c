/* Looking: limits of a layer, meters. Reads only. */
#include "core/amount.h"
#include "core/client.h"
#include "core/lookup.h"
#include "core/meter.h"
#include "core/slot.h"
#include "core/window.h"

#include <string.h>

#define HF_LOOK_ROUNDS 1000U

/* What the daemon has published as settled of a bucket in this window; 0 when it has nothing for it. */
static uint64_t hf_look_settled(const struct hf_segment *seg, uint32_t row_idx,
                                const struct hf_path_bucket *bucket, uint32_t window)
{
    const struct hf_shm_published *published = &seg->published[row_idx];
    const struct hf_shm_settled *settled = &published->pub_settled[bucket->window][bucket->dimension];
    for (uint32_t round = 0; round < HF_LOOK_ROUNDS; round++) {
        uint64_t seq = hf_load_acq_u64(&published->pub_seq); /* E19 acquire -> the daemon's publication */
        uint64_t amount =
            hf_load_rlx_u64(&settled->set_amount); /* relaxed: between the two looks at pub_seq */
        uint32_t of_window = hf_load_rlx_u32(&settled->set_window);           /* relaxed: likewise */
        hf_fence_acq();                                                       /* E19 */
        if ((seq & 1U) == 0 && hf_load_rlx_u64(&published->pub_seq) == seq) { /* relaxed: E19's fence */
            return of_window == window ? amount : 0;
        }
        hf_pause();
    }
    return 0;
}

static void hf_look_limit(const struct hf_segment *seg, const struct hf_path *path,
                          const struct hf_view *view, uint32_t i, struct holdfast_limit *limit)
{
    const struct hf_path_bucket *bucket = &path->buckets[i];
    uint32_t window = view->windows[bucket->window];
    uint64_t settled = hf_look_settled(seg, path->rows[bucket->layer], bucket, window);
    uint64_t value = view->values[i];
    settled = settled > value ? value : settled; /* the drain is ahead of this view */
    limit->window = bucket->window;
    limit->dimension = bucket->dimension;
    limit->window_start_ms = hf_window_start_ms((enum hf_window)bucket->window, window);
    limit->window_end_ms = hf_window_end_ms((enum hf_window)bucket->window, window);
    limit->limit = bucket->limit;
    limit->credit = bucket->has_credit != 0 ? view->credits[bucket->window] : 0;
    limit->settled = settled;
    limit->held = value - settled;
    limit->available = (int64_t)(limit->limit + limit->credit) - (int64_t)value;
}

int holdfast_limits(struct holdfast *handle, const char *tenant, const char *team, const char *key,
                    struct holdfast_limit *limits, int limits_max, int *reason)
{
    int rc = hf_client_enter(handle);
    if (rc != HOLDFAST_OK || reason == NULL || (limits == NULL && limits_max > 0)) {
        return rc != HOLDFAST_OK ? rc : HOLDFAST_INVALID;
    }
    struct hf_names names = {.tenant = tenant, .team = team, .key = key};
    names.tenant_bytes = hf_client_name(tenant);
    names.team_bytes = hf_client_name(team);
    names.key_bytes = hf_client_name(key);
    if (names.tenant_bytes == 0 || (team != NULL && names.team_bytes == 0) ||
        (key != NULL && names.key_bytes == 0) || (key != NULL && team == NULL)) {
        *reason = HOLDFAST_REASON_INVALID_REQUEST;
        return HOLDFAST_INVALID;
    }
    struct hf_path path;
    rc = hf_path_resolve(handle->seg, &names, &path, reason);
    if (rc == HF_ENOTREADY && *reason == HOLDFAST_REASON_UNKNOWN_TEAM && team == NULL) {
        *reason = HOLDFAST_REASON_NONE; /* only the tenant was asked for */
        rc = HF_OK;
    }
    if (rc != HF_OK) {
        return rc == HF_ENOTREADY ? HOLDFAST_INVALID : hf_client_fault(handle, rc);
    }
    struct hf_view view;
    for (uint32_t round = 0; round < HF_LOOK_ROUNDS; round++) {
        rc = hf_view_read(handle->seg, &path, &handle->windows, &view);
        if (rc == HF_OK && hf_commit_unchanged(&handle->seg->tenants[path.tenant_idx], view.word)) {
            break;
        }
        if (rc != HF_OK && rc != HF_EBUSY) {
            return hf_client_fault(handle, rc);
        }
    }
    if (rc != HF_OK) {
        return hf_client_fault(handle, rc);
    }
    uint32_t layer = key != NULL ? 0 : team != NULL ? 1 : 2;
    int written = 0;
    for (uint32_t i = 0; i < path.buckets_cnt && written < limits_max; i++) {
        if (path.buckets[i].layer == layer) {
            hf_look_limit(handle->seg, &path, &view, i, &limits[written++]);
        }
    }
    return written;
}

/* ---- meters ------------------------------------------------------------------------------------------------- */

/* A tenant's name by the policy or by the interned names alone (a meter may outlive its tenant). */
static int hf_look_tenant(struct holdfast *handle, const char *tenant)
{
    struct hf_names names = {.tenant = tenant, .tenant_bytes = hf_client_name(tenant)};
    struct hf_path path;
    int reason = HOLDFAST_REASON_NONE;
    if (names.tenant_bytes == 0) {
        return HOLDFAST_REASON_INVALID_REQUEST;
    }
    hf_path_resolve(handle->seg, &names, &path, &reason);
    return reason == HOLDFAST_REASON_UNKNOWN_TENANT ? reason : HOLDFAST_REASON_NONE;
}

int holdfast_meters(struct holdfast *handle, const char *tenant,
                    void (*cb)(void *arg, const struct holdfast_meter *meter), void *arg, int *reason)
{
    int rc = hf_client_enter(handle);
    if (rc != HOLDFAST_OK || cb == NULL || reason == NULL) {
        return rc != HOLDFAST_OK ? rc : HOLDFAST_INVALID;
    }
    *reason = tenant == NULL ? HOLDFAST_REASON_NONE : hf_look_tenant(handle, tenant);
    if (*reason != HOLDFAST_REASON_NONE) {
        return HOLDFAST_REFUSED;
    }
    for (uint32_t i = 0; i < handle->seg->meters_cnt; i++) {
        struct hf_shm_meter copy;
        struct holdfast_meter meter;
        if (!hf_meter_read(handle->seg, i, &copy)) {
            continue;
        }
        hf_lookup_name(handle->seg, copy.mtr_tenant, meter.tenant);
        hf_lookup_name(handle->seg, copy.mtr_cap, meter.capability);
        hf_lookup_name(handle->seg, copy.mtr_model, meter.model);
        if (tenant != NULL && strcmp(tenant, meter.tenant) != 0) {
            continue;
        }
        meter.requests = copy.mtr_requests;
        meter.failures = copy.mtr_failures;
        meter.degraded = copy.mtr_degraded;
        meter.reserved_micros = copy.mtr_reserved_micros;
        meter.settled_micros = copy.mtr_settled_micros;
        cb(arg, &meter);
    }
    return HOLDFAST_OK;
}
