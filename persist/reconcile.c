#include "persist/reconcile.h"

#include "core/lookup.h"
#include "core/policy_compile.h"
#include "core/slot.h"
#include "core/terms.h"
#include "core/window.h"
#include "shm/clock.h"
#include "shm/commit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one bucket should be, from both sides. */
struct side {
    uint64_t slots_open; /* held by open reservations in the segment, in this window */
    __int128 store_held; /* the same as the store's receipts say */
    __int128 store_charged;
};

struct reconcile {
    struct hf_segment *seg;
    struct hf_reconcile_report *report;
    struct side *sides;  /* rows x HF_SHM_ROW_BUCKETS */
    uint64_t *sequences; /* of each tenant when the look began */
    uint32_t windows[HF_SHM_WINDOWS];
};

static struct side *side_of(struct reconcile *all, uint32_t row, uint32_t in_row)
{
    return row < all->seg->rows_cnt ? &all->sides[(size_t)row * HF_SHM_ROW_BUCKETS + in_row] : NULL;
}

/* Brings every tenant to rest and remembers where it stood. */
static bool begin(struct reconcile *all)
{
    for (uint32_t i = 0; i < all->seg->tenants_cnt; i++) {
        struct hf_u128 word;
        int rc = HF_EBUSY;
        for (int try = 0; rc == HF_EBUSY && try < 100; try++) {
            rc = hf_commit_ready(all->seg, i, &word);
        }
        if (rc != HF_OK) {
            return false;
        }
        all->sequences[i] = hf_word_seq(word);
    }
    hf_window_ids(hf_clock_now_ms(all->seg), all->windows);
    return true;
}

static bool moved(const struct reconcile *all)
{
    uint32_t windows[HF_SHM_WINDOWS];
    hf_window_ids(hf_clock_now_ms(all->seg), windows);
    if (memcmp(windows, all->windows, sizeof windows) != 0) {
        return true;
    }
    for (uint32_t i = 0; i < all->seg->tenants_cnt; i++) {
        struct hf_u128 word;
        if (!hf_commit_read_word(&all->seg->tenants[i], &word) ||
            hf_word_seq(word) != all->sequences[i]) { /* E10 */
            return true;
        }
    }
    return false;
}

/* ---- the slots ---------------------------------------------------------------------------------------------- */

static uint64_t known(uint64_t amount)
{
    return amount == HF_SHM_UNKNOWN ? 0 : amount;
}

static void add_slot(struct reconcile *all, const struct hf_shm_slot *slot, const struct hf_shm_hold *hold)
{
    const uint64_t held[HF_SHM_DIMS] = {1, known(hold->hold_tokens), known(hold->hold_cost)};
    uint64_t mask = hf_load_rlx_u64(&slot->slot_mask); /* relaxed: E13 */
    for (uint32_t bit = 0; bit < HF_SHM_PATH_BUCKETS; bit++) {
        uint32_t in_row = bit % HF_SHM_ROW_BUCKETS;
        uint32_t window = in_row / HF_SHM_DIMS;
        uint32_t row = hf_load_rlx_u32(&slot->slot_rows[bit / HF_SHM_ROW_BUCKETS]); /* relaxed: E13 */
        bool same_window = window == HF_WINDOW_LIFETIME || hf_load_rlx_u32(&slot->slot_windows[window]) ==
                                                               all->windows[window]; /* relaxed: E13 */
        struct side *side = (mask >> bit & 1U) != 0 && same_window ? side_of(all, row, in_row) : NULL;
        if (side != NULL) {
            side->slots_open += held[in_row % HF_SHM_DIMS];
        }
    }
}

static void add_slots(struct reconcile *all)
{
    for (uint32_t i = 0; i < all->seg->slots_cnt; i++) {
        const struct hf_shm_slot *slot = &all->seg->slots[i];
        struct hf_u128 st = hf_commit_read_st(slot); /* E13 */
        if (!hf_slot_open(st)) {
            continue;
        }
        struct hf_shm_hold hold;
        hf_slot_hold(slot, st, &hold);
        all->report->open_cnt++;
        all->report->open_tokens += known(hold.hold_tokens);
        all->report->open_cost_micros += known(hold.hold_cost);
        add_slot(all, slot, &hold);
    }
}

/* ---- the store ---------------------------------------------------------------------------------------------- */

static int add_sum(void *ctx, const struct hf_store_sum *sum)
{
    struct reconcile *all = ctx;
    uint32_t gen =
        hf_load_rlx_u32(&all->seg->header->hdr_policy_gen); /* relaxed: only to find rows by name */
    const char *team = sum->team.len != 0 ? sum->team.bytes : NULL;
    const char *key = sum->key.len != 0 ? sum->key.bytes : NULL;
    const uint32_t rows[HF_SHM_LAYERS] = {
        key != NULL ? hf_policy_row(all->seg, gen, sum->tenant.bytes, team, key) : HF_SHM_NONE,
        hf_policy_row(all->seg, gen, sum->tenant.bytes, team, NULL),
        hf_policy_row(all->seg, gen, sum->tenant.bytes, NULL, NULL)};
    for (uint32_t bit = 0; bit < HF_SHM_PATH_BUCKETS; bit++) {
        uint32_t in_row = bit % HF_SHM_ROW_BUCKETS;
        if ((sum->bucket_mask >> bit & 1U) == 0 || in_row / HF_SHM_DIMS != (uint32_t)sum->window) {
            continue;
        }
        struct side *side = side_of(all, rows[bit / HF_SHM_ROW_BUCKETS], in_row);
        if (side != NULL) {
            side->store_held += sum->held[in_row % HF_SHM_DIMS];
            side->store_charged += sum->charged[in_row % HF_SHM_DIMS];
        }
    }
    return 0;
}

/* ---- comparing ---------------------------------------------------------------------------------------------- */

static void tell(struct reconcile *all, uint32_t row, uint32_t in_row, const char *what, __int128 expected,
                 __int128 found)
{
    uint64_t n = all->report->mismatches_cnt++;
    char name[64];
    if (n < HF_RECONCILE_TEXTS) {
        hf_lookup_name(all->seg, all->seg->rows[row].row_name, name); /* plain: read-only once published */
        snprintf(all->report->texts[n], sizeof all->report->texts[n],
                 "%s (row %" PRIu32 ") %s %s: %s: expected %" PRId64 ", found %" PRId64, name, row,
                 hf_window_name((enum hf_window)(in_row / HF_SHM_DIMS)),
                 hf_dimension_name((enum hf_dimension)(in_row % HF_SHM_DIMS)), what, (int64_t)expected,
                 (int64_t)found);
    }
}

static void compare(struct reconcile *all, uint32_t row, uint32_t in_row)
{
    struct hf_u128 word = hf_commit_read_bucket(
        &all->seg->rows[row].row_buckets[in_row / HF_SHM_DIMS][in_row % HF_SHM_DIMS]); /* E12 */
    const struct side *side = side_of(all, row, in_row);
    uint64_t value = hf_bucket_window(word) == all->windows[in_row / HF_SHM_DIMS] ? hf_bucket_value(word) : 0;
    all->report->buckets_cnt++;
    if ((__int128)side->slots_open + side->store_charged != value) {
        tell(all, row, in_row, "open slots + charged receipts against the bucket",
             (__int128)side->slots_open + side->store_charged, value);
    }
    if (side->store_held != side->slots_open) {
        tell(all, row, in_row, "open slots against what receipts hold", side->slots_open, side->store_held);
    }
}

static void compare_all(struct reconcile *all)
{
    uint32_t gen =
        hf_load_rlx_u32(&all->seg->header->hdr_policy_gen); /* relaxed: a table to look limits up in */
    const struct hf_shm_policy *policy = hf_lookup_policy(all->seg, gen);
    for (uint32_t row = 0; policy != NULL && row < all->seg->rows_cnt; row++) {
        const struct hf_shm_row_policy *limits = hf_lookup_row(all->seg, policy, row);
        for (uint32_t b = 0; limits != NULL && limits->rpl_present != 0 && b < HF_SHM_ROW_BUCKETS; b++) {
            if (limits->rpl_limits[b / HF_SHM_DIMS][b % HF_SHM_DIMS] != HF_SHM_UNKNOWN) {
                compare(all, row, b);
            }
        }
    }
}

static enum hf_reconcile_result reconcile(struct reconcile *all, struct hf_store *store,
                                          const char *store_name, struct hf_store_error *error)
{
    if (!begin(all)) {
        return HF_RECONCILE_CORRUPT;
    }
    add_slots(all);
    enum hf_store_status status = hf_store_sums(store, store_name, hf_clock_now_ms(all->seg),
                                                (1U << HF_WINDOW_CNT) - 1U, add_sum, all, error);
    if (status != HF_STORE_OK) {
        return HF_RECONCILE_STORE;
    }
    compare_all(all);
    return moved(all) ? HF_RECONCILE_MOVED : HF_RECONCILE_DONE;
}

enum hf_reconcile_result hf_reconcile(struct hf_segment *seg, struct hf_store *store, const char *store_name,
                                      struct hf_reconcile_report *report, struct hf_store_error *error)
{
    struct reconcile all = {.seg = seg, .report = report};
    memset(report, 0, sizeof *report);
    all.sides = calloc((size_t)seg->rows_cnt * HF_SHM_ROW_BUCKETS, sizeof *all.sides);
    all.sequences = calloc(seg->tenants_cnt, sizeof *all.sequences);
    enum hf_reconcile_result result = HF_RECONCILE_NOMEM;
    if (all.sides != NULL && all.sequences != NULL) {
        result = reconcile(&all, store, store_name, error);
    }
    free(all.sides);
    free(all.sequences);
    return result;
}
