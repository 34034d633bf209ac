/* Tenants, their words, rows, buckets and credits. */
#include "core/fsck_impl.h"

#include "core/lookup.h"
#include "shm/commit.h"

#include <string.h>

/* relaxed everywhere below: each word for itself; what belongs together is read around an unchanged W. */

bool hf_fsck_tenant_used(const struct hf_segment *seg, uint32_t tenant_idx)
{
    return hf_load_rlx_u64(&seg->tenants[tenant_idx].ten_policy) != 0;
}

static void of_tenant(struct hf_fsck_item *item, uint32_t tenant_idx, uint64_t sig0, uint64_t sig1)
{
    if (item != NULL) {
        item->tenant = tenant_idx;
        item->sig[0] = sig0;
        item->sig[1] = sig1;
    }
}

/* ---- W ------------------------------------------------------------------------------------------------------------ */

/* A kind that some operation makes. */
static bool kind_made(uint32_t kind)
{
    return kind <= HF_KIND_LATE || kind == HF_KIND_CREDIT;
}

/* What is wrong with W; NULL: nothing. *same: W stood while it was judged. */
static const char *word_wrong(const struct hf_segment *seg, uint32_t tenant_idx, struct hf_u128 word,
                              bool *same)
{
    const struct hf_shm_tenant *tenant = &seg->tenants[tenant_idx];
    uint32_t kind = hf_word_kind(word);
    uint32_t slot_idx = hf_word_slot(word);
    const char *wrong = NULL;
    uint64_t applied = hf_load_acq_u64(&tenant->ten_applied); /* E14 acquire -> who applied */
    bool done = false;
    struct hf_op op;

    *same = true;
    if ((word.lo & 0x3ff0U) != 0 || !kind_made(kind) || hf_word_time_ms(word) > HF_CLOCK_MS_MAX) {
        return "W is no word that an operation makes";
    }
    if (kind == HF_KIND_NONE) {
        return slot_idx == 0 ? NULL : "W names a slot and no operation";
    }
    if (slot_idx >= seg->slots_cnt) {
        return "W names a slot that is not there";
    }
    const struct hf_shm_slot *slot = &seg->slots[slot_idx];

    if (hf_load_rlx_u32(&slot->slot_tenant) != tenant_idx) {
        wrong = "W names a slot of another tenant";
    } else if (!hf_commit_describe(seg, slot_idx, (enum hf_kind)kind, hf_word_seq(word),
                                   hf_word_time_ms(word), &op, &done)) {
        wrong = "W names an operation that the state of its slot does not allow";
    } else if (!done && applied >= hf_word_seq(word)) {
        wrong = "A says that the operation of W is applied, and its slot does not have it";
    }
    *same = hf_commit_unchanged(tenant, word); /* E11 */
    return wrong;
}

bool hf_fsck_word_sound(const struct hf_segment *seg, uint32_t tenant_idx, struct hf_u128 word)
{
    bool same;

    return word_wrong(seg, tenant_idx, word, &same) == NULL;
}

static void check_word(struct hf_fsck *fsck, uint32_t tenant_idx)
{
    const struct hf_segment *seg = fsck->seg;
    const struct hf_shm_tenant *tenant = &seg->tenants[tenant_idx];
    uint64_t applied = hf_load_acq_u64(&tenant->ten_applied); /* E14 acquire: before W, which is not older */
    struct hf_u128 word;
    bool same;

    for (uint32_t try = 0; try < 64; try++) {
        if (!hf_commit_read_word(tenant, &word)) { /* E10 */
            continue;
        }
        const char *wrong = word_wrong(seg, tenant_idx, word, &same);

        if (!same) {
            continue;
        }
        if (wrong != NULL) {
            of_tenant(hf_fsck_add(fsck, HF_FSCK_WORD, "%s (sequence %llu, kind %u, slot %u)", wrong,
                                  (unsigned long long)hf_word_seq(word), hf_word_kind(word),
                                  hf_word_slot(word)),
                      tenant_idx, word.lo, word.hi);
        }
        break;
    }
    if (applied > hf_load_acq_u64(&tenant->ten_word.lo) >> 20) { /* E10 acquire */
        struct hf_fsck_item *item = hf_fsck_add(fsck, HF_FSCK_APPLIED, "A is ahead of W");

        hf_fsck_numbers(item, hf_load_rlx_u64(&tenant->ten_word.lo) >> 20, applied);
        of_tenant(item, tenant_idx, applied, 0);
    }
    if (hf_load_rlx_u64(&tenant->ten_word.lo) >> 20 >= HF_SHM_SEQ_ALARM) {
        of_tenant(hf_fsck_add(fsck, HF_FSCK_NOT_CHECKED,
                              "the sequence nears its end: plan a rebuild of the segment"),
                  tenant_idx, 0, 0);
    }
}

static void check_tenant(struct hf_fsck *fsck, uint32_t tenant_idx)
{
    const struct hf_segment *seg = fsck->seg;
    const struct hf_shm_tenant *tenant = &seg->tenants[tenant_idx];
    uint64_t gen = hf_load_rlx_u64(&tenant->ten_policy);
    uint32_t row = hf_load_rlx_u32(&tenant->ten_row);
    uint32_t name = hf_load_rlx_u32(&tenant->ten_name);

    if (!hf_fsck_tenant_used(seg, tenant_idx)) {
        return;
    }
    if (gen > hf_load_rlx_u32(&seg->header->hdr_policy_gen) || hf_lookup_policy(seg, (uint32_t)gen) == NULL) {
        struct hf_fsck_item *item =
            hf_fsck_add(fsck, HF_FSCK_TENANT, "the generation of its limits is not there");

        hf_fsck_numbers(item, hf_load_rlx_u32(&seg->header->hdr_policy_gen), gen);
        of_tenant(item, tenant_idx, gen, 1);
    }
    if (row >= seg->rows_cnt || hf_load_rlx_u32(&seg->rows[row].row_layer) != 2 ||
        hf_load_rlx_u32(&seg->rows[row].row_tenant) != tenant_idx ||
        hf_load_rlx_u32(&seg->rows[row].row_name) != name) {
        of_tenant(hf_fsck_add(fsck, HF_FSCK_TENANT, "its row (%u) is not its own", row), tenant_idx, row, 2);
    }
    check_word(fsck, tenant_idx);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool parent_right(const struct hf_segment *seg, uint32_t layer, uint32_t parent, uint32_t tenant)
{
    if (layer == 2) {
        return parent == HF_SHM_NONE;
    }
    return parent < seg->rows_cnt && hf_load_rlx_u32(&seg->rows[parent].row_layer) == layer + 1U &&
           hf_load_rlx_u32(&seg->rows[parent].row_tenant) == tenant;
}

static bool row_right(const struct hf_segment *seg, uint32_t row)
{
    const struct hf_shm_row *shm_row = &seg->rows[row];
    uint32_t layer = hf_load_rlx_u32(&shm_row->row_layer);
    uint32_t tenant = hf_load_rlx_u32(&shm_row->row_tenant);

    return layer <= 2 && tenant < seg->tenants_cnt && hf_fsck_tenant_used(seg, tenant) &&
           hf_load_rlx_u32(&shm_row->row_name) < hf_load_rlx_u32(&seg->header->hdr_names_cnt) &&
           parent_right(seg, layer, hf_load_rlx_u32(&shm_row->row_parent), tenant);
}

static struct hf_fsck_item *of_row(struct hf_fsck_item *item, const struct hf_segment *seg, uint32_t row,
                                   struct hf_u128 word)
{
    if (item != NULL) {
        item->row = row;
        item->tenant = hf_load_rlx_u32(&seg->rows[row].row_tenant);
        item->sig[0] = word.lo;
        item->sig[1] = word.hi;
    }
    return item;
}

/* A bucket or credit by itself: its tag against W, its window against the clock. */
static void check_bucket(struct hf_fsck *fsck, uint32_t row, const struct hf_u128 *at, uint32_t window,
                         uint32_t dimension)
{
    const struct hf_segment *seg = fsck->seg;
    struct hf_u128 word = hf_commit_read_bucket(at); /* E12: before W, which is not older than its tag */
    uint64_t seq = hf_load_acq_u64(&seg->tenants[hf_load_rlx_u32(&seg->rows[row].row_tenant)].ten_word.lo) >>
                   20; /* E10 */
    bool credit = dimension == HF_SHM_NONE;
    struct hf_fsck_item *item = NULL;

    if (hf_bucket_tag(word) > seq) {
        item = hf_fsck_add(fsck, HF_FSCK_BUCKET_TAG, "the tag of this %s is ahead of its tenant's W",
                           credit ? "credit" : "bucket");
        hf_fsck_numbers(item, seq, hf_bucket_tag(word));
    } else if (hf_bucket_window(word) > fsck->windows[window]) {
        item = hf_fsck_add(fsck, credit ? HF_FSCK_CREDIT : HF_FSCK_BUCKET_WINDOW,
                           "the window of this %s is ahead of the clock", credit ? "credit" : "bucket");
        hf_fsck_numbers(item, fsck->windows[window], hf_bucket_window(word));
    }
    if (of_row(item, seg, row, word) != NULL) {
        item->window = window;
        item->window_id = hf_bucket_window(word);
        item->dimension = credit ? (uint32_t)HF_DIM_COST : dimension;
    }
}

static void check_credit_layer(struct hf_fsck *fsck, uint32_t row, uint32_t window)
{
    const struct hf_segment *seg = fsck->seg;
    struct hf_u128 word = hf_commit_read_bucket(&seg->rows[row].row_buckets[window][HF_SHM_CREDIT]); /* E12 */

    if (hf_load_rlx_u32(&seg->rows[row].row_layer) != 1 && (word.lo | word.hi) != 0) {
        struct hf_fsck_item *item =
            hf_fsck_add(fsck, HF_FSCK_CREDIT, "credit where no team is: only teams have credit");

        hf_fsck_numbers(item, 0, hf_bucket_value(word));
        if (of_row(item, seg, row, word) != NULL) {
            item->window = window;
        }
    }
}

static bool all_zero(const struct hf_shm_row *row)
{
    const uint64_t *words = (const uint64_t *)(const void *)row->row_buckets;
    uint64_t any = 0;

    for (uint32_t i = 0; i < 2U * (HF_SHM_ROW_BUCKETS + HF_SHM_WINDOWS); i++) {
        any |= hf_load_rlx_u64(&words[i]);
    }
    return any == 0;
}

static void check_row(struct hf_fsck *fsck, uint32_t row)
{
    const struct hf_segment *seg = fsck->seg;
    const struct hf_shm_row *shm_row = &seg->rows[row];
    const struct hf_u128 none = {0, 0};

    if (!hf_row_used(shm_row)) {
        if (!all_zero(shm_row)) {
            (void)of_row(hf_fsck_add(fsck, HF_FSCK_ROW, "a row that is not in use has buckets"), seg, row,
                         none);
        }
        return;
    }
    if (!row_right(seg, row)) {
        struct hf_fsck_item *item =
            hf_fsck_add(fsck, HF_FSCK_ROW, "its tenant, layer, parent or name cannot be");

        if (item != NULL) {
            item->row = row;
            item->sig[0] = hf_load_rlx_u32(&shm_row->row_parent);
            item->sig[1] = hf_load_rlx_u32(&shm_row->row_tenant);
        }
    }
    if (hf_load_rlx_u32(&shm_row->row_tenant) >= seg->tenants_cnt) {
        return;
    }
    for (uint32_t b = 0; b < HF_SHM_ROW_BUCKETS; b++) {
        check_bucket(fsck, row, &shm_row->row_buckets[b / HF_SHM_DIMS][b % HF_SHM_DIMS], b / HF_SHM_DIMS,
                     b % HF_SHM_DIMS);
    }
    for (uint32_t w = 0; w < HF_SHM_WINDOWS; w++) {
        check_credit_layer(fsck, row, w);
        check_bucket(fsck, row, &shm_row->row_buckets[w][HF_SHM_CREDIT], w, HF_SHM_NONE);
    }
}

void hf_fsck_check_tenants(struct hf_fsck *fsck)
{
    for (uint32_t i = 0; i < fsck->seg->tenants_cnt; i++) {
        check_tenant(fsck, i);
    }
    for (uint32_t i = 0; i < fsck->seg->rows_cnt; i++) {
        check_row(fsck, i);
    }
}
