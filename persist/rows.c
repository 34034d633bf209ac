#include "persist/rows.h"

#include "core/lookup.h"
#include "core/policy_compile.h"

#include <string.h>

/* relaxed everywhere below: written by the creator before the segment was published. */

static const struct hf_shm_policy *policy_of(const struct hf_segment *seg)
{
    return hf_lookup_policy(seg, hf_load_rlx_u32(&seg->header->hdr_policy_gen));
}

static uint32_t find_added(const struct hf_segment *seg, uint32_t first, uint32_t layer, uint32_t parent,
                           const char *text)
{
    uint32_t name = hf_policy_intern((struct hf_segment *)seg, text, (uint32_t)strnlen(text, 64), false);

    for (uint32_t i = first; name != HF_SHM_NONE && i < seg->rows_cnt && hf_row_used(&seg->rows[i]); i++) {
        const struct hf_shm_row *row = &seg->rows[i];

        if (row->row_layer == layer && row->row_name == name && row->row_parent == parent) {
            return i;
        }
    }
    return HF_SHM_NONE;
}

static uint32_t add(struct hf_segment *seg, uint32_t first, uint32_t layer, uint32_t parent,
                    uint32_t tenant_idx, const char *text)
{
    uint32_t name = hf_policy_intern(seg, text, (uint32_t)strnlen(text, 64), true);
    uint32_t i = first;

    while (i < seg->rows_cnt && hf_row_used(&seg->rows[i])) {
        i++;
    }
    if (name == HF_SHM_NONE || i >= seg->rows_cnt) {
        return HF_SHM_NONE;
    }
    if (layer == 2) {
        const struct hf_shm_policy *policy = policy_of(seg);

        tenant_idx = policy == NULL ? 0 : policy->pol_tenants_cnt;
        while (tenant_idx < seg->tenants_cnt && seg->tenants[tenant_idx].ten_policy != 0) {
            tenant_idx++;
        }
        if (tenant_idx >= seg->tenants_cnt) {
            return HF_SHM_NONE;
        }
        struct hf_shm_tenant *tenant = &seg->tenants[tenant_idx];

        /* plain: before publish. W and A at sequence 0, naming no slot. */
        memset(tenant, 0, sizeof(*tenant));
        tenant->ten_row = i;
        tenant->ten_name = name;
        tenant->ten_policy = seg->header->hdr_policy_gen;
    }
    struct hf_shm_row *row = &seg->rows[i];

    memset(row, 0, sizeof(*row)); /* plain: before publish */
    row->row_tenant = tenant_idx;
    row->row_parent = parent;
    row->row_name = name;
    row->row_layer = layer;
    return i;
}

static uint32_t step(struct hf_segment *seg, bool make, uint32_t layer, uint32_t parent, const char *tenant,
                     const char *team, const char *key)
{
    const char *text = layer == 2 ? tenant : layer == 1 ? team : key;
    const struct hf_shm_policy *policy = policy_of(seg);
    uint32_t first = policy == NULL ? 0 : policy->pol_rows_cnt;
    uint32_t row = hf_policy_row(seg, seg->header->hdr_policy_gen, tenant, layer < 2 ? team : NULL,
                                 layer < 1 ? key : NULL);

    if (row != HF_SHM_NONE) {
        return row;
    }
    row = find_added(seg, first, layer, parent, text);
    if (row == HF_SHM_NONE && make) {
        row = add(seg, first, layer, parent, layer == 2 ? 0 : seg->rows[parent].row_tenant, text);
    }
    return row;
}

static uint32_t walk(struct hf_segment *seg, bool make, const char *tenant, const char *team, const char *key)
{
    uint32_t row = step(seg, make, 2, HF_SHM_NONE, tenant, team, key);

    if (row != HF_SHM_NONE && team != NULL) {
        row = step(seg, make, 1, row, tenant, team, key);
        if (row != HF_SHM_NONE && key != NULL) {
            row = step(seg, make, 0, row, tenant, team, key);
        }
    }
    return row;
}

uint32_t hf_rows_find(const struct hf_segment *seg, const char *tenant, const char *team, const char *key)
{
    return walk((struct hf_segment *)seg, false, tenant, team, key);
}

uint32_t hf_rows_add(struct hf_segment *seg, const char *tenant, const char *team, const char *key)
{
    return walk(seg, true, tenant, team, key);
}

void hf_rows_of_sum(const struct hf_segment *seg, const struct hf_store_sum *sum, hf_rows_bucket_fn *fn,
                    void *ctx)
{
    const char *team = sum->team.bytes;
    const uint32_t rows[HF_SHM_LAYERS] = {
        sum->key.len == 0 ? HF_SHM_NONE : hf_rows_find(seg, sum->tenant.bytes, team, sum->key.bytes),
        hf_rows_find(seg, sum->tenant.bytes, team, NULL), hf_rows_find(seg, sum->tenant.bytes, NULL, NULL)};

    for (uint32_t layer = 0; layer < HF_SHM_LAYERS; layer++) {
        uint64_t bits = sum->bucket_mask >> (layer * HF_SHM_ROW_BUCKETS + (uint32_t)sum->window * HF_DIM_CNT);

        for (uint32_t d = 0; rows[layer] < seg->rows_cnt && d < HF_DIM_CNT; d++) {
            if ((bits >> d & 1U) != 0) {
                fn(ctx, rows[layer], sum->window, (enum hf_dimension)d, sum->held[d], sum->charged[d]);
            }
        }
    }
}
