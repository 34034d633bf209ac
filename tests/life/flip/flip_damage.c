#include "flip.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A region, the record that lies in it, and its share of the damage in each theme. */
struct target {
    enum hf_region region; /* HF_REGION_CNT: the header */
    const char *record;
    const char *what;
    uint8_t share[8];
};

static const char *const themes[8] = {"slots",          "id index",  "commit words and buckets",
                                      "policy",         "processes", "what the daemon writes",
                                      "the header too", "everything"};

static const struct target targets[] = {
    {HF_REGION_CNT, "hf_shm_header", "header", {0, 0, 0, 0, 0, 0, 40, 6}},
    {HF_REGION_OWNERS, "hf_shm_owner", "owner", {0, 0, 0, 0, 30, 0, 5, 6}},
    {HF_REGION_TENANTS, "hf_shm_tenant", "tenant", {0, 0, 30, 5, 0, 0, 5, 8}},
    {HF_REGION_ROWS, "hf_shm_row", "row", {0, 0, 30, 5, 0, 0, 5, 8}},
    {HF_REGION_PUBLISHED, "hf_shm_published", "published", {0, 0, 0, 0, 0, 20, 5, 5}},
    {HF_REGION_CHUNKS, "hf_shm_chunk", "chunk", {5, 0, 0, 0, 30, 0, 5, 8}},
    {HF_REGION_SLOTS, "hf_shm_slot", "slot", {60, 20, 5, 5, 0, 10, 20, 30}},
    {HF_REGION_HEADS, "", "index head", {0, 40, 0, 0, 0, 0, 5, 8}},
    {HF_REGION_NAMES, "hf_shm_name", "name", {0, 0, 0, 20, 0, 0, 5, 5}},
    {HF_REGION_PRICES, "hf_shm_price", "price", {0, 0, 0, 20, 0, 0, 5, 5}},
    {HF_REGION_POLICIES, "hf_shm_policy", "policy", {0, 0, 0, 60, 0, 0, 5, 8}},
    {HF_REGION_METERS, "hf_shm_meter", "meter", {0, 0, 0, 0, 0, 20, 5, 5}},
    {HF_REGION_BATCHES, "hf_shm_batch", "batch", {0, 0, 0, 0, 0, 40, 5, 8}},
};
#define TARGETS (sizeof(targets) / sizeof(targets[0]))

const char *flip_theme_name(uint32_t theme)
{
    return themes[theme % 8];
}

bool flip_damage_open(struct flip_damage *damage, const struct flip_place *place, uint64_t seed)
{
    damage->random = seed;
    damage->shared = place->shared;
    if (hf_segment_attach(place->segment, &damage->seg, NULL) != HF_OK) {
        return false;
    }
    damage->whole = malloc(damage->seg.size_bytes);
    if (damage->whole == NULL) {
        hf_segment_detach(&damage->seg);
        return false;
    }
    memcpy(damage->whole, damage->seg.base, damage->seg.size_bytes);
    return true;
}

void flip_damage_close(struct flip_damage *damage)
{
    free(damage->whole);
    damage->whole = NULL;
    hf_segment_detach(&damage->seg);
}

static const struct target *choose_target(struct flip_damage *damage)
{
    uint32_t all = 0;

    for (size_t i = 0; i < TARGETS; i++) {
        all += targets[i].share[damage->theme % 8];
    }
    uint32_t at = flip_below(&damage->random, all);
    for (size_t i = 0; i < TARGETS; i++) {
        if (at < targets[i].share[damage->theme % 8]) {
            return &targets[i];
        }
        at -= targets[i].share[damage->theme % 8];
    }
    return &targets[0];
}

/* A field of the record by chance: its offset and size. Pads and nested records are bytes like all others. */
static void choose_field(struct flip_damage *damage, const char *record, uint32_t stride, uint32_t *off,
                         uint32_t *size)
{
    struct hf_layout_entry entry;
    uint32_t cnt = 0;

    *off = flip_below(&damage->random, (stride + 7U) / 8U) * 8U;
    *size = 8;
    for (uint32_t i = 0; hf_layout_entry(i, &entry); i++) {
        bool pad = strstr(entry.field, "pad") != NULL;

        if (strcmp(entry.record, record) == 0 && !pad && entry.size_bytes > 0) {
            cnt++;
            if (flip_below(&damage->random, cnt) == 0) {
                *off = entry.off;
                *size = entry.size_bytes;
            }
        }
    }
    if (*size > 8) {
        *off += flip_below(&damage->random, *size / 8U) * 8U;
        *size = 8;
    }
    *size = *size >= 8 ? 8 : *size >= 4 ? 4 : 1;
    *off = *off / *size * *size;
}

static uint64_t read_word(const uint8_t *at, uint32_t size)
{
    if (size == 8) {
        return hf_load_rlx_u64((const uint64_t *)(const void *)at);
    }
    return size == 4 ? hf_load_rlx_u32((const uint32_t *)(const void *)at) : hf_load_rlx_u8(at);
}

static void write_word(uint8_t *at, uint32_t size, uint64_t value)
{
    if (size == 8) {
        hf_store_rlx_u64((uint64_t *)(void *)at, value);
    } else if (size == 4) {
        hf_store_rlx_u32((uint32_t *)(void *)at, (uint32_t)value);
    } else {
        hf_store_rlx_u8(at, (uint8_t)value);
    }
}

static uint64_t choose_value(struct flip_damage *damage, uint64_t before, uint32_t size, const uint8_t *like)
{
    uint64_t *random = &damage->random;
    const uint64_t special[] = {0,
                                1,
                                2,
                                UINT64_MAX,
                                UINT32_MAX,
                                INT32_MAX,
                                UINT64_C(1) << 63,
                                INT64_MAX,
                                HF_SHM_AMOUNT_MAX,
                                HF_SHM_AMOUNT_MAX + 1U,
                                HF_SHM_SEQ_MAX,
                                UINT64_C(1) << 44,
                                damage->seg.slots_cnt,
                                damage->seg.slots_cnt - 1U,
                                damage->seg.rows_cnt,
                                damage->seg.names_max};

    switch (flip_below(random, 8)) {
    case 0:
    case 1:
        return before ^ (UINT64_C(1) << flip_below(random, 8U * size));
    case 2:
        return flip_random(random);
    case 3:
        return before + 1U;
    case 4:
        return before - 1U;
    case 5:
        return read_word(like, size);
    case 6:
        return (before & ~0xffULL) | (flip_random(random) & 0xffU);
    default:
        return special[flip_below(random, sizeof(special) / sizeof(special[0]))];
    }
}

void flip_damage_one(struct flip_damage *damage)
{
    const struct target *target = choose_target(damage);
    struct hf_segment *seg = &damage->seg;
    const struct hf_shm_header *whole = (const struct hf_shm_header *)(const void *)damage->whole;
    uint64_t base = 0;
    uint32_t cnt = 1;
    uint32_t stride = sizeof(*whole);
    uint32_t off;
    uint32_t size;

    if (target->region != HF_REGION_CNT) {
        base = whole->hdr_regions[target->region].reg_off;
        cnt = whole->hdr_regions[target->region].reg_cnt;
        stride = whole->hdr_regions[target->region].reg_stride;
    }
    if (cnt == 0) {
        return;
    }
    const char *record = target->record;
    if (target->region == HF_REGION_POLICIES) {
        const struct hf_shm_policy *policy =
            (const struct hf_shm_policy *)(const void *)(damage->whole + base + stride); /* generation 1 */

        base += stride;
        cnt = 1;
        if (flip_below(&damage->random, 4) != 0) { /* the tables behind its header */
            record = "";
            stride = (uint32_t)policy->pol_bytes < stride ? (uint32_t)policy->pol_bytes : stride;
        }
    } else if (target->region == HF_REGION_BATCHES && flip_below(&damage->random, 4) != 0) {
        record = ""; /* its first entries */
        base += flip_below(&damage->random, cnt) * (uint64_t)stride;
        cnt = 1;
        stride = (uint32_t)offsetof(struct hf_shm_batch, bat_entries) +
                 32U * (uint32_t)sizeof(struct hf_shm_batch_entry);
    }
    choose_field(damage, record, stride, &off, &size);
    uint64_t at = base + flip_below(&damage->random, cnt) * (uint64_t)stride + off;
    uint64_t like = base + flip_below(&damage->random, cnt) * (uint64_t)stride + off;
    if (at + size > seg->size_bytes || like + size > seg->size_bytes) {
        return;
    }
    uint64_t before = read_word(seg->base + at, size);
    uint64_t after = choose_value(damage, before, size, seg->base + like);

    damage->shared->ring[damage->shared->flips_cnt++ % FLIP_RING] =
        (struct flip_mark){target->what, at, before, after};
    write_word(seg->base + at, size, after);
}

static void restore(struct flip_damage *damage, uint64_t off, uint64_t bytes)
{
    for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t value;

        memcpy(&value, damage->whole + off + i, 8);
        write_word(damage->seg.base + off + i, 8, value);
    }
}

void flip_damage_heal(struct flip_damage *damage)
{
    const struct hf_shm_header *whole = (const struct hf_shm_header *)(const void *)damage->whole;
    const enum hf_region regions[] = {HF_REGION_NAMES, HF_REGION_PRICES, HF_REGION_POLICIES};

    restore(damage, 0, offsetof(struct hf_shm_header, hdr_state));
    hf_store_rlx_u32(&damage->seg.header->hdr_prices_cnt, whole->hdr_prices_cnt);
    hf_store_rlx_u32(&damage->seg.header->hdr_policy_gen, whole->hdr_policy_gen);
    restore(damage, offsetof(struct hf_shm_header, hdr_regions), sizeof(whole->hdr_regions) + 64 + 64 + 512);
    hf_store_rlx_u64(&damage->seg.header->hdr_lock_ino, whole->hdr_lock_ino);
    for (size_t i = 0; i < sizeof(regions) / sizeof(regions[0]); i++) {
        const struct hf_shm_region *region = &whole->hdr_regions[regions[i]];

        restore(damage, region->reg_off, (uint64_t)region->reg_cnt * region->reg_stride);
    }
    for (uint32_t i = 0; i < damage->seg.tenants_cnt; i++) {
        const struct hf_shm_tenant *tenant =
            (const struct hf_shm_tenant *)(const void *)(damage->whole +
                                                         whole->hdr_regions[HF_REGION_TENANTS].reg_off) +
            i;

        hf_store_rlx_u64(&damage->seg.tenants[i].ten_policy, tenant->ten_policy);
        hf_store_rlx_u32(&damage->seg.tenants[i].ten_row, tenant->ten_row);
        hf_store_rlx_u32(&damage->seg.tenants[i].ten_name, tenant->ten_name);
    }
    hf_segment_set_state(&damage->seg, HF_SEGMENT_READY);
}
