/* Names, prices and the compiled policy: written before they are published, then read-only. */
#include "core/fsck_impl.h"

#include "core/amount.h"
#include "core/lookup.h"
#include "core/name.h"

/* relaxed everywhere below: read-only once published; each look reads them anew. */

static void at(struct hf_fsck_item *item, uint32_t idx, uint64_t sig)
{
    if (item != NULL) {
        item->idx = idx;
        item->sig[0] = sig;
    }
}

static uint32_t names_cnt(const struct hf_segment *seg)
{
    uint32_t cnt = hf_load_acq_u32(&seg->header->hdr_names_cnt); /* E15 acquire -> who interns */

    return cnt < seg->names_max ? cnt : seg->names_max;
}

static uint32_t prices_cnt(const struct hf_segment *seg)
{
    uint32_t cnt = hf_load_rlx_u32(&seg->header->hdr_prices_cnt);

    return cnt < seg->prices_max ? cnt : seg->prices_max;
}

static void check_names(struct hf_fsck *fsck)
{
    const struct hf_segment *seg = fsck->seg;
    uint32_t cnt = names_cnt(seg);

    for (uint32_t i = 0; i < cnt; i++) {
        const struct hf_shm_name *name = &seg->names[i];
        uint8_t bytes = hf_load_rlx_u8(&name->name_bytes);

        if (bytes == 0 || bytes > HF_NAME_BYTES_MAX || !hf_name_valid(name->name_text, bytes)) {
            at(hf_fsck_add(fsck, HF_FSCK_NAME, "this interned name is no name (%u bytes)", bytes), i, bytes);
        }
    }
}

static bool price_or_none(uint64_t price)
{
    return price <= HF_AMOUNT_MAX || price == HF_SHM_UNKNOWN;
}

static void check_prices(struct hf_fsck *fsck)
{
    const struct hf_segment *seg = fsck->seg;
    uint32_t cnt = prices_cnt(seg);

    for (uint32_t i = 0; i < cnt; i++) {
        const struct hf_shm_price *price = &seg->prices[i];
        uint64_t input = hf_load_rlx_u64(&price->prc_input);

        if (hf_load_rlx_u32(&price->prc_model) >= names_cnt(seg) ||
            hf_load_rlx_u32(&price->prc_revision) >= names_cnt(seg) || input > HF_AMOUNT_MAX ||
            hf_load_rlx_u64(&price->prc_output) > HF_AMOUNT_MAX ||
            !price_or_none(hf_load_rlx_u64(&price->prc_cached_input)) ||
            !price_or_none(hf_load_rlx_u64(&price->prc_cache_write)) ||
            !price_or_none(hf_load_rlx_u64(&price->prc_max_output_tokens))) {
            at(hf_fsck_add(fsck, HF_FSCK_PRICE, "this price holds a number or a name that cannot be"), i,
               input);
        }
    }
}

/* ---- policy -------------------------------------------------------------------------------------------------- */

static bool limits_right(const struct hf_shm_row_policy *rules)
{
    for (uint32_t b = 0; b < HF_SHM_ROW_BUCKETS; b++) {
        if (!price_or_none(hf_load_rlx_u64(&rules->rpl_limits[b / HF_SHM_DIMS][b % HF_SHM_DIMS]))) {
            return false;
        }
    }
    return true;
}

static void check_rules(struct hf_fsck *fsck, const struct hf_shm_policy *policy)
{
    for (uint32_t i = 0; i < hf_load_rlx_u32(&policy->pol_rows_cnt); i++) {
        const struct hf_shm_row_policy *rules = hf_lookup_row(fsck->seg, policy, i);

        if (rules == NULL) {
            return;
        }
        if (!limits_right(rules) || hf_load_rlx_u32(&rules->rpl_on_limit) > HF_ON_LIMIT_QUEUE ||
            hf_load_rlx_u32(&rules->rpl_on_expiry) > HF_ON_EXPIRY_RETAIN_DISPATCHED ||
            hf_load_rlx_u32(&rules->rpl_on_overage) > HF_ON_OVERAGE_FAIL ||
            hf_load_rlx_u32(&rules->rpl_present) > 1 ||
            !price_or_none(hf_load_rlx_u64(&rules->rpl_overdraft_micros))) {
            struct hf_fsck_item *item =
                hf_fsck_add(fsck, HF_FSCK_POLICY, "the limits or modes of this row cannot be");

            at(item, i, hf_load_rlx_u32(&policy->pol_gen));
        }
    }
}

static void check_caps(struct hf_fsck *fsck, const struct hf_shm_policy *policy)
{
    for (uint32_t i = 0; i < hf_load_rlx_u32(&policy->pol_caps_cnt); i++) {
        const struct hf_shm_cap *cap = hf_lookup_cap(fsck->seg, policy, i);

        if (cap == NULL) {
            return;
        }
        if (!price_or_none(hf_load_rlx_u64(&cap->cap_micros)) ||
            !price_or_none(hf_load_rlx_u64(&cap->cap_tokens)) ||
            hf_load_rlx_u32(&cap->cap_name) >= names_cnt(fsck->seg) ||
            hf_load_rlx_u32(&cap->cap_team_row) >= fsck->seg->rows_cnt ||
            hf_load_rlx_u32(&cap->cap_basis) > HF_BASIS_CAP) {
            struct hf_fsck_item *item = hf_fsck_add(
                fsck, HF_FSCK_POLICY, "capability %u of the compiled policy holds what cannot be", i);

            at(item, HF_SHM_NONE, i);
        }
    }
}

/* What an entry of the lookup table may lead to. */
static bool value_right(const struct hf_segment *seg, const struct hf_shm_policy *policy, uint32_t kind,
                        uint32_t value)
{
    switch (kind) {
    case HF_LOOKUP_TENANT:
        return value < seg->tenants_cnt;
    case HF_LOOKUP_TEAM:
    case HF_LOOKUP_KEY:
        return value < seg->rows_cnt;
    case HF_LOOKUP_CAP:
        return value < hf_load_rlx_u32(&policy->pol_caps_cnt);
    case HF_LOOKUP_MODEL:
        return value < prices_cnt(seg);
    case HF_LOOKUP_NAME:
        return value < names_cnt(seg);
    default:
        return false;
    }
}

/* The names at the far end agree: an entry that leads elsewhere would spend another's quota. */
static bool name_right(const struct hf_segment *seg, const struct hf_shm_policy *policy, uint32_t kind,
                       uint32_t name, uint32_t value)
{
    const struct hf_shm_cap *cap;

    switch (kind) {
    case HF_LOOKUP_TENANT:
        return seg->tenants[value].ten_name == name; /* plain: read-only once published; as below */
    case HF_LOOKUP_TEAM:
    case HF_LOOKUP_KEY:
        return seg->rows[value].row_name == name;
    case HF_LOOKUP_CAP:
        cap = hf_lookup_cap(seg, policy, value);
        return cap != NULL && cap->cap_name == name;
    case HF_LOOKUP_MODEL:
        return seg->prices[value].prc_model == name;
    default:
        return value == name;
    }
}

static void check_entry(struct hf_fsck *fsck, const struct hf_shm_policy *policy,
                        const struct hf_shm_lookup *entry, uint32_t idx)
{
    const struct hf_segment *seg = fsck->seg;
    uint32_t kind = hf_load_rlx_u32(&entry->lku_kind);
    uint32_t parent = hf_load_rlx_u32(&entry->lku_parent);
    uint32_t name = hf_load_rlx_u32(&entry->lku_name);
    uint32_t value = hf_load_rlx_u32(&entry->lku_value);
    char text[64];

    if (kind == 0) {
        return;
    }
    bool right = name < names_cnt(seg) && value_right(seg, policy, kind, value) &&
                 name_right(seg, policy, kind, name, value);

    if (right) {
        uint32_t bytes = hf_lookup_name(seg, name, text);

        right = hf_lookup_find(seg, policy, kind, parent, text, bytes) == value;
    }
    if (!right) {
        at(hf_fsck_add(
               fsck, HF_FSCK_LOOKUP,
               "this entry of the lookup table (kind %u, parent %u, name %u, value %u) leads to nothing or "
               "is not found",
               kind, parent, name, value),
           idx, (uint64_t)name << 32 | value);
    }
}

/* Every capability, and every row, is found by its name. */
static void check_found(struct hf_fsck *fsck, const struct hf_shm_policy *policy)
{
    const struct hf_segment *seg = fsck->seg;
    char text[64];

    for (uint32_t row = 0; row < hf_load_rlx_u32(&policy->pol_rows_cnt) && row < seg->rows_cnt; row++) {
        const struct hf_shm_row *shm_row = &seg->rows[row]; /* plain: read-only once published */
        uint32_t kind = shm_row->row_layer == 2   ? HF_LOOKUP_TENANT
                        : shm_row->row_layer == 1 ? HF_LOOKUP_TEAM
                                                  : HF_LOOKUP_KEY;
        uint32_t bytes = hf_lookup_name(seg, shm_row->row_name, text);
        uint32_t parent = kind == HF_LOOKUP_TENANT ? 0 : shm_row->row_parent;
        uint32_t expected = kind == HF_LOOKUP_TENANT ? shm_row->row_tenant : row;

        if (hf_lookup_find(seg, policy, kind, parent, text, bytes) != expected) {
            struct hf_fsck_item *item =
                hf_fsck_add(fsck, HF_FSCK_LOOKUP, "this row is not found by its name");

            if (item != NULL) {
                item->row = row;
            }
        }
    }
}

static void check_policy(struct hf_fsck *fsck)
{
    const struct hf_segment *seg = fsck->seg;
    uint32_t gen = hf_load_rlx_u32(&seg->header->hdr_policy_gen);
    const struct hf_shm_policy *policy = hf_lookup_policy(seg, gen);

    if (policy == NULL) {
        at(hf_fsck_add(fsck, HF_FSCK_POLICY, "generation %u of the compiled policy cannot be believed", gen),
           HF_SHM_NONE, gen);
        return;
    }
    check_rules(fsck, policy);
    check_caps(fsck, policy);
    uint32_t mask = hf_load_rlx_u32(&policy->pol_lookup_mask);
    const struct hf_shm_lookup *entries =
        (const void *)((const uint8_t *)policy + hf_load_rlx_u64(&policy->pol_lookup_off));

    for (uint32_t i = 0; i <= mask; i++) {
        check_entry(fsck, policy, &entries[i], i);
    }
    check_found(fsck, policy);
}

void hf_fsck_check_tables(struct hf_fsck *fsck)
{
    check_names(fsck);
    check_prices(fsck);
    check_policy(fsck);
}
