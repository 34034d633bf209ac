#include "core/lookup.h"

#include "core/price.h"
#include "shm/hash.h"

#include <string.h>

/* relaxed everywhere below: the tables are written before their generation is published and then only read; who
 * got the generation's number got it by an acquire. These loads only keep the compiler from reading a number
 * twice, once for its check and once for its use: a damaged segment may change it in between. */

_Static_assert(sizeof(struct hf_shm_lookup) == 16, "four entries in a line");
_Static_assert(sizeof(struct hf_shm_name) == 64, "a name is one line");

static bool hf_lookup_array(uint64_t off, uint64_t cnt, uint64_t stride_bytes, uint64_t bytes)
{
    /* cnt < 2^32 and stride_bytes < 2^10: no product here leaves 64 bits. */
    return off % 8 == 0 && off >= sizeof(struct hf_shm_policy) && off <= bytes &&
           cnt * stride_bytes <= bytes - off;
}

const struct hf_shm_policy *hf_lookup_policy(const struct hf_segment *seg, uint32_t gen)
{
    const struct hf_shm_policy *policy = (const void *)(seg->policies + (gen & 1U) * seg->policy_bytes);

    if (gen == 0 || seg->policy_bytes < sizeof(*policy) || hf_load_rlx_u32(&policy->pol_gen) != gen) {
        return NULL;
    }
    uint64_t entries = (uint64_t)hf_load_rlx_u32(&policy->pol_lookup_mask) + 1;
    uint32_t rows_cnt = hf_load_rlx_u32(&policy->pol_rows_cnt);

    if ((entries & (entries - 1)) != 0 || rows_cnt > seg->rows_cnt ||
        !hf_lookup_array(hf_load_rlx_u64(&policy->pol_rows_off), rows_cnt, sizeof(struct hf_shm_row_policy),
                         seg->policy_bytes) ||
        !hf_lookup_array(hf_load_rlx_u64(&policy->pol_caps_off), hf_load_rlx_u32(&policy->pol_caps_cnt),
                         sizeof(struct hf_shm_cap), seg->policy_bytes) ||
        !hf_lookup_array(hf_load_rlx_u64(&policy->pol_lookup_off), entries, sizeof(struct hf_shm_lookup),
                         seg->policy_bytes)) {
        return NULL;
    }
    return policy;
}

const struct hf_shm_row_policy *hf_lookup_row(const struct hf_segment *seg,
                                              const struct hf_shm_policy *policy, uint32_t row)
{
    uint64_t off = hf_load_rlx_u64(&policy->pol_rows_off);

    if (row >= hf_load_rlx_u32(&policy->pol_rows_cnt) ||
        !hf_lookup_array(off, (uint64_t)row + 1, sizeof(struct hf_shm_row_policy), seg->policy_bytes)) {
        return NULL;
    }
    return (const struct hf_shm_row_policy *)(const void *)((const uint8_t *)policy + off) + row;
}

const struct hf_shm_cap *hf_lookup_cap(const struct hf_segment *seg, const struct hf_shm_policy *policy,
                                       uint32_t cap_idx)
{
    uint64_t off = hf_load_rlx_u64(&policy->pol_caps_off);

    if (cap_idx >= hf_load_rlx_u32(&policy->pol_caps_cnt) ||
        !hf_lookup_array(off, (uint64_t)cap_idx + 1, sizeof(struct hf_shm_cap), seg->policy_bytes)) {
        return NULL;
    }
    return (const struct hf_shm_cap *)(const void *)((const uint8_t *)policy + off) + cap_idx;
}

static inline uint64_t hf_lookup_hash_of(const struct hf_segment *seg, uint32_t kind, uint32_t parent,
                                         const char *text, uint32_t bytes)
{
    return hf_hash_bytes(seg->hash_seed ^ ((uint64_t)parent << 32 | kind), text, bytes);
}

uint64_t hf_lookup_hash(const struct hf_segment *seg, uint32_t kind, uint32_t parent, const char *text,
                        uint32_t bytes)
{
    return hf_lookup_hash_of(seg, kind, parent, text, bytes);
}

/* Names are short: by words of 8 and 4 bytes that overlap, without a call. bytes is 1..63 and text holds as
 * many; so does the name. */
static inline bool hf_lookup_same(const char *a, const char *b, uint32_t bytes)
{
    uint64_t x = 0;
    uint64_t y = 0;
    uint32_t at = 0;

    if (bytes < 4) {
        return a[0] == b[0] && a[bytes >> 1] == b[bytes >> 1] && a[bytes - 1] == b[bytes - 1];
    }
    if (bytes < 8) {
        memcpy(&x, a, 4);
        memcpy(&y, b, 4);
        uint64_t differ = x ^ y;
        memcpy(&x, a + bytes - 4, 4);
        memcpy(&y, b + bytes - 4, 4);
        return (differ | (x ^ y)) == 0;
    }
    for (; at + 8 < bytes; at += 8) {
        memcpy(&x, a + at, 8);
        memcpy(&y, b + at, 8);
        if (x != y) {
            return false;
        }
    }
    memcpy(&x, a + bytes - 8, 8);
    memcpy(&y, b + bytes - 8, 8);
    return x == y;
}

static inline bool hf_lookup_is(const struct hf_segment *seg, uint32_t name, const char *text, uint32_t bytes)
{
    return name < seg->names_max && seg->names[name].name_bytes == bytes &&
           hf_lookup_same(seg->names[name].name_text, text, bytes);
}

uint32_t hf_lookup_find(const struct hf_segment *seg, const struct hf_shm_policy *policy, uint32_t kind,
                        uint32_t parent, const char *text, uint32_t bytes)
{
    uint32_t mask = hf_load_rlx_u32(&policy->pol_lookup_mask);
    uint64_t off = hf_load_rlx_u64(&policy->pol_lookup_off);

    if (bytes == 0 || bytes > HF_SHM_NAME_BYTES ||
        !hf_lookup_array(off, (uint64_t)mask + 1, sizeof(struct hf_shm_lookup), seg->policy_bytes)) {
        return HF_SHM_NONE;
    }
    const struct hf_shm_lookup *entries = (const void *)((const uint8_t *)policy + off);
    uint32_t at = (uint32_t)hf_lookup_hash_of(seg, kind, parent, text, bytes) & mask;

    /* A table is at most half full, so an empty entry comes soon; in a damaged one, after one round. */
    for (uint32_t tries = 0; tries <= mask; tries++, at = (at + 1) & mask) {
        const struct hf_shm_lookup *entry = &entries[at];
        uint32_t found = hf_load_rlx_u32(&entry->lku_kind);

        if (found == kind && hf_load_rlx_u32(&entry->lku_parent) == parent &&
            hf_lookup_is(seg, hf_load_rlx_u32(&entry->lku_name), text, bytes)) {
            return hf_load_rlx_u32(&entry->lku_value);
        }
        if (found == 0) {
            break;
        }
    }
    return HF_SHM_NONE;
}

uint32_t hf_lookup_name(const struct hf_segment *seg, uint32_t name, char text[64])
{
    uint32_t bytes = name < seg->names_max ? hf_load_rlx_u8(&seg->names[name].name_bytes) : 0;

    if (bytes > HF_SHM_NAME_BYTES) {
        bytes = 0;
    }
    if (bytes > 0) {
        memcpy(text, seg->names[name].name_text, bytes);
    }
    text[bytes] = '\0';
    return bytes;
}

bool hf_lookup_price(const struct hf_segment *seg, uint32_t price_idx, struct hf_price *price,
                     uint32_t *model_name)
{
    /* An entry that nobody has filled is all zero: a model without a price, which nobody may take for free. */
    if (price_idx >= seg->prices_max || price_idx >= hf_load_rlx_u32(&seg->header->hdr_prices_cnt)) {
        return false;
    }
    const struct hf_shm_price *found = &seg->prices[price_idx];

    price->input = found->prc_input;
    price->output = found->prc_output;
    price->cached_input = found->prc_cached_input;
    price->cache_write = found->prc_cache_write;
    price->max_output_tokens = found->prc_max_output_tokens;
    if (model_name != NULL) {
        *model_name = found->prc_model;
    }
    return true;
}
