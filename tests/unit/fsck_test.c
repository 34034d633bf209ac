/* fsck: a sound segment in every state is clean; each kind of damage is found and named; what can be proved is mended,
 * and a second repair changes nothing. */
#include "core/fsck.h"
#include "core/policy_compile.h"
#include "core/slot.h"
#include "core/window.h"
#include "shm/clock.h"
#include "shm/commit.h"
#include "tests/support/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ITEMS_MAX 64

struct found {
    struct hf_fsck_item items[ITEMS_MAX];
    char where[ITEMS_MAX][300];
    uint32_t cnt;
};

static void take(void *ctx, const struct hf_segment *seg, const struct hf_fsck_item *item)
{
    struct found *found = ctx;

    if (found->cnt < ITEMS_MAX) {
        (void)hf_fsck_where(seg, item, found->where[found->cnt], sizeof(found->where[0]));
        found->items[found->cnt++] = *item;
    }
}

static void show(const struct found *found)
{
    for (uint32_t i = 0; i < found->cnt; i++) {
        print_message(
            "  %s %s %s: %s (expected %llu, found %llu)\n", hf_fsck_severity_name(found->items[i].severity),
            hf_fsck_kind_name(found->items[i].kind), found->where[i], found->items[i].text,
            (unsigned long long)found->items[i].expected, (unsigned long long)found->items[i].found);
    }
}

static struct hf_fsck_result check(const struct hf_segment *seg, struct found *found)
{
    const struct hf_fsck_options options = {.rounds = 2, .sums_tries = 3, .tenant = HF_SHM_NONE};
    struct hf_fsck_result result;

    found->cnt = 0;
    assert_int_equal(hf_fsck(seg, &options, take, found, &result), HF_OK);
    return result;
}

static void assert_clean(const struct hf_segment *seg)
{
    struct found found;
    struct hf_fsck_result result = check(seg, &found);

    if (result.damage != 0 || result.sums_busy != 0) {
        show(&found);
    }
    assert_int_equal(result.damage, 0);
    assert_int_equal(result.sums_busy, 0);
    assert_int_equal(result.sums_proved, 2);
}

static uint32_t count(const struct found *found, enum hf_fsck_kind kind, enum hf_fsck_severity severity)
{
    uint32_t cnt = 0;

    for (uint32_t i = 0; i < found->cnt; i++) {
        cnt += found->items[i].kind == kind && found->items[i].severity == severity;
    }
    return cnt;
}

/* ---- a segment with something in every state ------------------------------------------------------------------------ */

static void reserve(struct hf_test_quota *quota, const char *id, const char *team, uint64_t tokens,
                    uint64_t cost)
{
    struct holdfast_answer answer;

    assert_int_equal(hf_test_reserve(quota->handles[0], id, team, NULL, tokens, cost, &answer), HOLDFAST_OK);
}

static void fill(struct hf_test_quota *quota)
{
    struct holdfast_closing closing;
    struct holdfast_answer answer;
    struct holdfast_extension extension;
    uint64_t total = 0;
    int refused = 0;

    hf_test_quota_make(quota, hf_test_policy(), 256);
    reserve(quota, "old", "u", 10, 100);
    reserve(quota, "kept", "v", 10, 100);
    reserve(quota, "late", "v", 10, 100);
    reserve(quota, "disputed", "v", 10, 100);
    hf_clock_inject(quota->seg, HF_TEST_NOW_MS + 2000);
    assert_true(holdfast_reap(quota->handles[0], 0, NULL, NULL) == 4);
    assert_int_equal(hf_test_settle(quota->handles[0], "late", 4, 4, 80, &closing), HOLDFAST_OK);
    assert_int_equal(hf_test_settle(quota->handles[0], "disputed", 4, 4, 8000, &closing), HOLDFAST_REFUSED);
    reserve(quota, "open", "u", 100, 400);
    reserve(quota, "sent", "w", 7, 70);
    assert_int_equal(holdfast_dispatch(quota->handles[0], "sent", 0, NULL), HOLDFAST_OK);
    reserve(quota, "settled", "u", 50, 500);
    assert_int_equal(hf_test_settle(quota->handles[0], "settled", 20, 10, 300, &closing), HOLDFAST_OK);
    reserve(quota, "released", "u", 50, 500);
    assert_int_equal(holdfast_release(quota->handles[0], "released", 0, &closing), HOLDFAST_OK);
    assert_int_equal(hf_test_reserve(quota->handles[1], "key", "u", "k", 5, 50, &answer), HOLDFAST_OK);
    reserve(quota, "extended", "u", 10, 10);
    holdfast_extension_init(&extension);
    extension.id = "extended";
    extension.tokens = 30;
    extension.cost_micros = 60;
    assert_int_equal(holdfast_extend(quota->handles[0], &extension, &answer), HOLDFAST_OK);
    assert_int_equal(
        holdfast_credit(quota->handles[2], "t", "u", HF_WINDOW_MONTH, 777, "more", "tests", &total, &refused),
        HOLDFAST_OK);
    assert_int_equal(hf_test_mismatches(quota), 0);
}

static struct hf_shm_slot *slot_of(struct hf_test_quota *quota, const char *id)
{
    return &quota->seg->slots[hf_test_slot(quota, id)];
}

static uint32_t row_of(struct hf_test_quota *quota, const char *team, const char *key)
{
    return hf_policy_row(quota->seg, 1, "t", team, key);
}

static struct hf_u128 *bucket_of(struct hf_test_quota *quota, const char *team, int window, int dimension)
{
    return &quota->seg->rows[row_of(quota, team, NULL)].row_buckets[window][dimension];
}

/* ---- no false alarm ---------------------------------------------------------------------------------------------------- */

static void a_sound_segment_is_clean(void **state)
{
    struct hf_test_quota quota;

    (void)state;
    fill(&quota);
    assert_clean(quota.seg);
    /* The minute is over, the month goes on. */
    hf_clock_inject(quota.seg, HF_TEST_NOW_MS + 120000);
    assert_clean(quota.seg);
    reserve(&quota, "next", "u", 3, 30);
    assert_clean(quota.seg);
    hf_test_quota_free(&quota);
}

enum done {
    DONE_WORD,
    DONE_FIRST_BUCKET,
    DONE_BUCKETS,
    DONE_STATE,
    DONE_CNT
};

/* Moves W and does only a part of what follows, as a process that was killed or is stopped. */
static void die_within(struct hf_segment *seg, uint32_t slot_idx, enum hf_kind kind, enum done done)
{
    struct hf_shm_slot *slot = &seg->slots[slot_idx];
    struct hf_shm_tenant *tenant = &seg->tenants[slot->slot_tenant];
    struct hf_u128 word;
    struct hf_op op;

    assert_int_equal(hf_commit_ready(seg, slot->slot_tenant, &word), HF_OK);
    assert_true(hf_commit_describe(seg, slot_idx, kind, hf_word_seq(word) + 1, HF_TEST_NOW_MS, &op, NULL));
    assert_true(
        hf_cas_acqrel_u128(&tenant->ten_word, word, hf_word_make(op.seq, kind, slot_idx, HF_TEST_NOW_MS)));
    uint32_t cnt = done == DONE_WORD ? 0 : done == DONE_FIRST_BUCKET ? op.buckets_cnt != 0 : op.buckets_cnt;

    for (uint32_t n = 0; n < cnt; n++) {
        struct hf_u128 before = *op.buckets[n].word;
        struct hf_u128 after;

        if (hf_commit_bucket_after(&op, n, before, &after)) {
            assert_true(hf_cas_acqrel_u128(op.buckets[n].word, before, after));
        }
    }
    if (done == DONE_STATE) {
        assert_true(hf_cas_acqrel_u128(&slot->slot_st, op.st_before, op.st_after));
    }
}

static void a_half_applied_operation_is_clean(void **state)
{
    static const struct {
        enum hf_kind kind;
        const char *id;
    } ops[] = {{HF_KIND_SETTLE, "open"},   {HF_KIND_RELEASE, "open"}, {HF_KIND_EXTEND, "open"},
               {HF_KIND_DISPATCH, "open"}, {HF_KIND_EXPIRE, "sent"},  {HF_KIND_RETAIN, "sent"},
               {HF_KIND_DISPUTE, "kept"},  {HF_KIND_LATE, "old"},     {HF_KIND_LATE, "kept"},
               {HF_KIND_DISPUTE, "old"}};

    (void)state;
    for (uint32_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        for (int done = DONE_WORD; done < DONE_CNT; done++) {
            struct hf_test_quota quota;

            fill(&quota);
            struct hf_shm_slot *slot = slot_of(&quota, ops[i].id);
            enum hf_state before = hf_st_state(slot->slot_st);

            slot->slot_actual_tokens = 33;
            slot->slot_actual_cost = 44;
            slot->slot_close = HF_CLOSE_USAGE | HF_CLOSE_SOURCE_PROVIDER |
                               (before == HF_STATE_EXPIRED ? HF_CLOSE_WAS_EXPIRED : 0) |
                               (before == HF_STATE_RETAINED ? HF_CLOSE_WAS_RETAINED : 0);
            slot->slot_holds[1] = slot->slot_holds[0];
            slot->slot_holds[1].hold_tokens += 5;
            die_within(quota.seg, hf_test_slot(&quota, ops[i].id), ops[i].kind, (enum done)done);
            uint64_t applied = quota.seg->tenants[0].ten_applied;

            assert_clean(quota.seg);
            /* It wrote nothing, not even by helping. */
            assert_true(quota.seg->tenants[0].ten_applied == applied);
            hf_test_quota_free(&quota);
        }
    }
}

static void a_reserve_without_its_word_is_clean(void **state)
{
    struct hf_test_quota quota;

    (void)state;
    for (int done = -1; done < DONE_CNT; done++) {
        fill(&quota);
        uint32_t slot_idx = hf_test_slot(&quota, "released");
        struct hf_shm_slot *slot = &quota.seg->slots[slot_idx];

        /* Back to PENDING, linked, as before its W. */
        slot->slot_st = hf_st_make(0, 0, HF_STATE_PENDING, 0, hf_st_gen(slot->slot_st));
        if (done >= 0) {
            die_within(quota.seg, slot_idx, HF_KIND_RESERVE, (enum done)done);
        } else {
            assert_true(hf_index_remove(quota.seg, slot->slot_id_hash, slot_idx));
            slot->slot_st = hf_st_make(0, 0, HF_STATE_FILLING, 0, hf_st_gen(slot->slot_st) + 1U);
            /* Who fills a slot holds its chunk. */
            quota.seg->chunks[slot_idx >> quota.seg->chunk_shift].chunk_owner = quota.handles[3]->owner.ref;
        }
        assert_clean(quota.seg);
        hf_test_quota_free(&quota);
    }
}

/* What the dead leave is a note. */
static void the_dead_are_notes(void **state)
{
    struct hf_test_quota quota;
    struct found found;

    (void)state;
    fill(&quota);
    uint32_t idx = hf_ref_index(quota.handles[0]->owner.ref);

    /* In a private segment who is not in the table any more is dead. */
    quota.seg->owners[idx].own_ref = 0;
    slot_of(&quota, "open")->slot_claim = quota.handles[0]->owner.ref;
    struct hf_fsck_result result = check(quota.seg, &found);

    assert_int_equal(result.damage, 0);
    assert_true(count(&found, HF_FSCK_DEAD, HF_FSCK_NOTE) >= 2); /* claim, chunk */
    quota.seg->owners[idx].own_ref = quota.handles[0]->owner.ref;
    hf_test_quota_free(&quota);
}

/* Between the marks of a batch and its publication the two do not add up: never an alarm, only not checked. */
static void a_half_published_batch_is_not_judged(void **state)
{
    struct hf_test_quota quota;
    struct found found;

    (void)state;
    fill(&quota);
    struct hf_shm_slot *slot = slot_of(&quota, "settled");
    struct hf_shm_batch *batch = &quota.seg->batches[1];
    uint64_t marks =
        hf_persisted_make(hf_st_gen(slot->slot_st), 0, HF_PERSISTED_RESERVATION | HF_PERSISTED_CLOSING);

    batch->bat_entries_cnt = 1;
    batch->bat_rows_cnt = 2;
    batch->bat_entries[0] = (struct hf_shm_batch_entry){
        .bat_slot = hf_persisted_make(hf_st_gen(slot->slot_st), 0, 0) | hf_test_slot(&quota, "settled"),
        .bat_persisted = marks};
    batch->bat_number = 1;
    assert_clean(quota.seg); /* announced, nothing marked */
    slot->slot_persisted = marks;
    struct hf_fsck_result result = check(quota.seg, &found);

    assert_int_equal(result.damage, 0);
    assert_true(result.sums_busy > 0);
    assert_true(count(&found, HF_FSCK_NOT_CHECKED, HF_FSCK_NOTE) > 0);
    /* Counted as committed and still not published: now it is damage, in both directions of the same rule. */
    quota.seg->header->hdr_batch_number = 1;
    batch->bat_number = 0;
    result = check(quota.seg, &found);
    assert_true(count(&found, HF_FSCK_BUCKET_VALUE, HF_FSCK_DAMAGE) > 0);
    /* A daemon that starts says that it is about to publish. */
    for (uint32_t row = 0; row < quota.seg->rows_cnt; row++) {
        quota.seg->published[row].pub_seq |= 1U;
    }
    result = check(quota.seg, &found);
    assert_int_equal(result.damage, 0);
    assert_true(result.sums_busy > 0);
    hf_test_quota_free(&quota);
}

/* ---- damage ------------------------------------------------------------------------------------------------------------ */

typedef void plant_fn(struct hf_test_quota *quota);

static void plant_header(struct hf_test_quota *quota)
{
    quota->seg->header->hdr_slots_cnt++;
}
static void plant_region(struct hf_test_quota *quota)
{
    quota->seg->header->hdr_regions[HF_REGION_ROWS].reg_off += 64;
}
static void plant_state(struct hf_test_quota *quota)
{
    quota->seg->header->cyc_done = quota->seg->header->cyc_begun + 9;
}
static void plant_clock(struct hf_test_quota *quota)
{
    quota->seg->header->clk_injected_ms = HF_CLOCK_MS_MAX + 1;
}
static void plant_owner(struct hf_test_quota *quota)
{
    quota->seg->owners[9].own_ref = hf_ref_make(3, 77);
}
static void plant_daemon(struct hf_test_quota *quota)
{
    quota->seg->header->hdr_daemon = hf_ref_make(3, 70000);
}
static struct hf_shm_policy *policy_of(struct hf_test_quota *quota)
{
    return (struct hf_shm_policy *)(void *)(quota->seg->policies + quota->seg->policy_bytes);
}
static void plant_policy(struct hf_test_quota *quota)
{
    struct hf_shm_policy *policy = policy_of(quota);
    struct hf_shm_row_policy *rows = (void *)((uint8_t *)policy + policy->pol_rows_off);

    rows[1].rpl_on_expiry = 9;
}
static void plant_lookup(struct hf_test_quota *quota)
{
    struct hf_shm_policy *policy = policy_of(quota);
    struct hf_shm_lookup *entries = (void *)((uint8_t *)policy + policy->pol_lookup_off);
    uint32_t i = 0;

    while (entries[i].lku_kind != HF_LOOKUP_TEAM) {
        i++;
    }
    entries[i].lku_value = 0;
}
static void plant_name(struct hf_test_quota *quota)
{
    quota->seg->names[quota->seg->header->hdr_names_cnt - 1U].name_bytes = 0;
}
static void plant_price(struct hf_test_quota *quota)
{
    quota->seg->prices[0].prc_input = HF_SHM_AMOUNT_MAX + 5;
}
static void plant_tenant(struct hf_test_quota *quota)
{
    quota->seg->tenants[0].ten_row = 2;
}
static void plant_word(struct hf_test_quota *quota)
{
    struct hf_u128 *word = &quota->seg->tenants[0].ten_word;

    *word = hf_word_make(hf_word_seq(*word), HF_KIND_SETTLE, 250, HF_TEST_NOW_MS);
}
static void plant_applied(struct hf_test_quota *quota)
{
    quota->seg->tenants[0].ten_applied += 3;
}
static void plant_row(struct hf_test_quota *quota)
{
    quota->seg->rows[row_of(quota, "u", "k")].row_parent = row_of(quota, NULL, NULL);
}
static void plant_tag(struct hf_test_quota *quota)
{
    struct hf_u128 *b = bucket_of(quota, "u", HF_WINDOW_MONTH, HF_DIM_COST);

    *b = hf_bucket_make(hf_bucket_value(*b), hf_bucket_window(*b), hf_bucket_tag(*b) + 100);
}
static void plant_window(struct hf_test_quota *quota)
{
    struct hf_u128 *b = bucket_of(quota, "u", HF_WINDOW_MONTH, HF_DIM_COST);

    *b = hf_bucket_make(hf_bucket_value(*b), hf_bucket_window(*b) + 3, hf_bucket_tag(*b));
}
static void plant_window_back(struct hf_test_quota *quota)
{
    struct hf_u128 *b = bucket_of(quota, "u", HF_WINDOW_MONTH, HF_DIM_COST);

    *b = hf_bucket_make(hf_bucket_value(*b), hf_bucket_window(*b) - 1, hf_bucket_tag(*b));
}
static void plant_value_high(struct hf_test_quota *quota)
{
    struct hf_u128 *b = bucket_of(quota, "u", HF_WINDOW_MONTH, HF_DIM_COST);

    *b = hf_bucket_make(hf_bucket_value(*b) + 500, hf_bucket_window(*b), hf_bucket_tag(*b));
}
static void plant_value_low(struct hf_test_quota *quota)
{
    struct hf_u128 *b = bucket_of(quota, "u", HF_WINDOW_MONTH, HF_DIM_COST);

    *b = hf_bucket_make(hf_bucket_value(*b) - 5, hf_bucket_window(*b), hf_bucket_tag(*b));
}
static void plant_credit(struct hf_test_quota *quota)
{
    struct hf_u128 *c =
        &quota->seg->rows[row_of(quota, "u", NULL)].row_buckets[HF_WINDOW_MONTH][HF_SHM_CREDIT];

    *c = hf_bucket_make(hf_bucket_value(*c) + 1, hf_bucket_window(*c), hf_bucket_tag(*c));
}
static void plant_credit_layer(struct hf_test_quota *quota)
{
    quota->seg->rows[row_of(quota, NULL, NULL)].row_buckets[HF_WINDOW_MONTH][HF_SHM_CREDIT] =
        hf_bucket_make(1, 1, 1);
}
static void plant_published(struct hf_test_quota *quota)
{
    quota->seg->published[row_of(quota, "u", NULL)].pub_settled[0][1] =
        (struct hf_shm_settled){.set_amount = 1, .set_window = (1U << 28) - 1};
}
static void plant_meter(struct hf_test_quota *quota)
{
    quota->seg->meters[1] = (struct hf_shm_meter){.mtr_seq = 2, .mtr_model = HF_SHM_NONE, .mtr_requests = -1};
}
static void plant_meter_max(struct hf_test_quota *quota)
{
    quota->seg->meters[1] = (struct hf_shm_meter){.mtr_seq = 2, .mtr_model = HF_SHM_NONE, .mtr_requests = 5};
}
static void plant_batch(struct hf_test_quota *quota)
{
    quota->seg->batches[1].bat_number = 77;
}
static void plant_batch_entry(struct hf_test_quota *quota)
{
    quota->seg->batches[1].bat_number = 1;
    quota->seg->batches[1].bat_entries_cnt = 1;
    quota->seg->batches[1].bat_rows_cnt = 1;
    quota->seg->batches[1].bat_entries[0] = (struct hf_shm_batch_entry){.bat_slot = 9999, .bat_persisted = 1};
}
static void plant_chunk(struct hf_test_quota *quota)
{
    quota->seg->chunks[3].chunk_owner = hf_ref_make(4, 88888);
}
static void plant_chunk_bits(struct hf_test_quota *quota)
{
    quota->seg->chunks[3].chunk_free = ~0ULL;
}
static void plant_slot_state(struct hf_test_quota *quota)
{
    struct hf_u128 *st = &slot_of(quota, "open")->slot_st;

    st->lo = hf_st_make(hf_st_seq(*st), 0, HF_STATE_TICKET, 0, 0).lo;
}
static void plant_free_seq(struct hf_test_quota *quota)
{
    quota->seg->slots[255].slot_st = hf_st_make(7, 0, HF_STATE_FREE, 0, 1);
}
static void plant_filling(struct hf_test_quota *quota)
{
    quota->seg->slots[255].slot_st = hf_st_make(0, 0, HF_STATE_FILLING, 0, 1);
}
static void plant_slot_seq(struct hf_test_quota *quota)
{
    struct hf_u128 *st = &slot_of(quota, "open")->slot_st;

    *st = hf_st_make(9999, hf_st_ordinal(*st), hf_st_state(*st), hf_st_time_ms(*st), hf_st_gen(*st));
}
static void plant_path(struct hf_test_quota *quota)
{
    slot_of(quota, "open")->slot_rows[1] = row_of(quota, NULL, NULL);
}
static void plant_windows(struct hf_test_quota *quota)
{
    slot_of(quota, "open")->slot_windows[1]++;
}
static void plant_amount(struct hf_test_quota *quota)
{
    slot_of(quota, "settled")->slot_actual_cost = 1ULL << 60;
}
static void plant_deadline(struct hf_test_quota *quota)
{
    slot_of(quota, "open")->slot_holds[0].hold_deadline = 1ULL << 62;
}
static void plant_id(struct hf_test_quota *quota)
{
    struct hf_shm_slot *slot = slot_of(quota, "open");

    do { /* an id of another chain is proof of another thing */
        slot->slot_id[0]++;
    } while (((hf_index_hash(quota->seg, slot->slot_id, 4) ^ slot->slot_id_hash) & quota->seg->heads_mask) ==
             0);
}
static void plant_hash(struct hf_test_quota *quota)
{
    slot_of(quota, "open")->slot_id_hash ^= 1U;
}
/* Of the same chain. The first one of all that was put in hangs by a link that says it is the last, and has the id's tag. */
static void plant_hash_high(struct hf_test_quota *quota)
{
    slot_of(quota, "old")->slot_id_hash ^= 0x80000000U;
}
/* Of the same chain and tag. */
static void plant_hash_middle(struct hf_test_quota *quota)
{
    assert_true(quota->seg->heads_mask < 0x100000U);
    slot_of(quota, "old")->slot_id_hash ^= 0x100000U;
}
static void plant_flags(struct hf_test_quota *quota)
{
    slot_of(quota, "open")->slot_flags |= 0x100000U;
}
static void plant_generation(struct hf_test_quota *quota)
{
    slot_of(quota, "open")->slot_policy_gen = 5;
}
static void plant_slot_name(struct hf_test_quota *quota)
{
    slot_of(quota, "open")->slot_cap = 100000;
}
static void plant_persisted(struct hf_test_quota *quota)
{
    struct hf_shm_slot *slot = slot_of(quota, "released");

    slot->slot_persisted =
        hf_persisted_make(hf_st_gen(slot->slot_st), 0, HF_PERSISTED_RESERVATION | HF_PERSISTED_EXPIRY);
}
static void plant_persisted_ahead(struct hf_test_quota *quota)
{
    struct hf_shm_slot *slot = slot_of(quota, "open");

    slot->slot_persisted = hf_persisted_make(hf_st_gen(slot->slot_st) + 1U, 0, HF_PERSISTED_RESERVATION);
}
static void plant_claim(struct hf_test_quota *quota)
{
    slot_of(quota, "open")->slot_claim = hf_ref_make(60000, 1);
}
static uint64_t *head_of(struct hf_test_quota *quota, const char *id)
{
    return &quota->seg->heads[slot_of(quota, id)->slot_id_hash & quota->seg->heads_mask];
}
static void plant_link(struct hf_test_quota *quota)
{
    uint64_t *head = head_of(quota, "open");

    *head = hf_link_make(hf_link_slot(*head), hf_link_gen(*head) + 5U, hf_link_count(*head));
}
static void plant_link_out(struct hf_test_quota *quota)
{
    *head_of(quota, "open") = hf_link_make(0xfffff0, 1, 1);
}
static void plant_link_hiding(struct hf_test_quota *quota)
{
    uint64_t *head = head_of(quota, "open");

    /* Another hash than its id has; or, where something stands before it in its chain, the last one too early. */
    *head = (*head & ~0xfffULL) | HF_LINK_LAST | ~slot_of(quota, "open")->slot_id_hash >> 21;
}
/* The tag is right, and another one follows. */
static void plant_link_followed(struct hf_test_quota *quota)
{
    uint64_t *head = head_of(quota, "open");
    char id[16];
    uint32_t hash;
    uint32_t n = 0;

    do {
        int bytes = snprintf(id, sizeof(id), "beside%u", n++);

        hash = hf_index_hash(quota->seg, id, (uint32_t)bytes);
    } while (((hash ^ slot_of(quota, "open")->slot_id_hash) & quota->seg->heads_mask) != 0);
    reserve(quota, id, "w", 1, 1);
    assert_int_not_equal(hf_link_slot(slot_of(quota, id)->slot_next), 0);
    *head = hf_link_last(*head, hash);
}
static void plant_ring(struct hf_test_quota *quota)
{
    struct hf_shm_slot *slot = slot_of(quota, "open");

    slot->slot_next = hf_link_make(hf_test_slot(quota, "open") + 1U, hf_st_gen(slot->slot_st), 0);
}
static void plant_foreign(struct hf_test_quota *quota)
{
    uint64_t *head = head_of(quota, "open");

    for (uint32_t i = 0; i <= quota->seg->heads_mask; i++) {
        if (hf_link_slot(quota->seg->heads[i]) == 0) {
            quota->seg->heads[i] = *head;
            return;
        }
    }
    fail();
}
static void plant_missing(struct hf_test_quota *quota)
{
    *head_of(quota, "open") = 0;
}
static void plant_twice(struct hf_test_quota *quota)
{
    /* "released" becomes a second "open": same id and hash, in the same chain. */
    struct hf_shm_slot *a = slot_of(quota, "open");
    struct hf_shm_slot *b = slot_of(quota, "released");
    uint64_t *to = head_of(quota, "open");
    uint32_t b_idx = hf_test_slot(quota, "released");

    *head_of(quota, "released") = 0;
    memcpy(b->slot_id, a->slot_id, sizeof(a->slot_id));
    b->slot_id_bytes = a->slot_id_bytes;
    b->slot_id_hash = a->slot_id_hash;
    b->slot_next = hf_link_make(hf_link_slot(*to), hf_link_gen(*to), 0);
    *to = hf_link_make(b_idx + 1U, hf_st_gen(b->slot_st), 1);
}

struct plant {
    const char *name;
    plant_fn *fn;
    enum hf_fsck_kind kind;
    bool mended; /* a repair proves it and mends it */
};

static const struct plant plants[] = {
    {"header count", plant_header, HF_FSCK_HEADER, false},
    {"header region", plant_region, HF_FSCK_HEADER, false},
    {"cycles", plant_state, HF_FSCK_HEADER, false},
    {"clock", plant_clock, HF_FSCK_CLOCK, false},
    {"owner", plant_owner, HF_FSCK_OWNER, true},
    {"daemon", plant_daemon, HF_FSCK_DAEMON, true},
    {"policy", plant_policy, HF_FSCK_POLICY, false},
    {"lookup", plant_lookup, HF_FSCK_LOOKUP, false},
    {"name", plant_name, HF_FSCK_NAME, false},
    {"price", plant_price, HF_FSCK_PRICE, false},
    {"tenant", plant_tenant, HF_FSCK_TENANT, false},
    {"word", plant_word, HF_FSCK_WORD, true},
    {"applied", plant_applied, HF_FSCK_APPLIED, true},
    {"row", plant_row, HF_FSCK_ROW, false},
    {"tag", plant_tag, HF_FSCK_BUCKET_TAG, true},
    {"window ahead", plant_window, HF_FSCK_BUCKET_WINDOW, true},
    {"window back", plant_window_back, HF_FSCK_BUCKET_VALUE, true},
    {"value high", plant_value_high, HF_FSCK_BUCKET_VALUE, true},
    {"value low", plant_value_low, HF_FSCK_BUCKET_VALUE, true},
    {"credit", plant_credit, HF_FSCK_CREDIT, true},
    {"credit layer", plant_credit_layer, HF_FSCK_CREDIT, true},
    {"published", plant_published, HF_FSCK_PUBLISHED, true},
    {"meter", plant_meter, HF_FSCK_METER, false},
    {"meter max", plant_meter_max, HF_FSCK_METER, false},
    {"batch", plant_batch, HF_FSCK_BATCH, false},
    {"batch entry", plant_batch_entry, HF_FSCK_BATCH, false},
    {"chunk", plant_chunk, HF_FSCK_CHUNK, true},
    {"chunk bits", plant_chunk_bits, HF_FSCK_CHUNK, true},
    {"slot state", plant_slot_state, HF_FSCK_SLOT_STATE, false},
    {"free with sequence", plant_free_seq, HF_FSCK_SLOT_STATE, true},
    {"filling of nobody", plant_filling, HF_FSCK_SLOT_STATE, true},
    {"slot sequence", plant_slot_seq, HF_FSCK_SLOT_SEQ, true},
    {"slot path", plant_path, HF_FSCK_SLOT_PATH, false},
    {"slot windows", plant_windows, HF_FSCK_SLOT_WINDOWS, false},
    {"slot amount", plant_amount, HF_FSCK_SLOT_AMOUNT, false},
    {"slot deadline", plant_deadline, HF_FSCK_SLOT_AMOUNT, false},
    {"slot id", plant_id, HF_FSCK_SLOT_ID, false},
    {"slot hash", plant_hash, HF_FSCK_SLOT_ID, true},
    {"slot hash, same chain", plant_hash_high, HF_FSCK_SLOT_ID, true},
    {"slot hash, same chain and tag", plant_hash_middle, HF_FSCK_SLOT_ID, false},
    {"slot flags", plant_flags, HF_FSCK_SLOT_FLAGS, false},
    {"slot generation", plant_generation, HF_FSCK_SLOT_FLAGS, false},
    {"slot names", plant_slot_name, HF_FSCK_SLOT_NAMES, false},
    {"slot persisted", plant_persisted, HF_FSCK_SLOT_PERSISTED, false},
    {"slot persisted ahead", plant_persisted_ahead, HF_FSCK_SLOT_PERSISTED, false},
    {"slot claim", plant_claim, HF_FSCK_SLOT_CLAIM, true},
    {"index link", plant_link, HF_FSCK_INDEX_LINK, true},
    {"index link out", plant_link_out, HF_FSCK_INDEX_LINK, true},
    {"index link, hiding", plant_link_hiding, HF_FSCK_INDEX_LINK, true},
    {"index link, hiding the next", plant_link_followed, HF_FSCK_INDEX_LINK, true},
    {"index ring", plant_ring, HF_FSCK_INDEX_RING, true},
    {"index foreign", plant_foreign, HF_FSCK_INDEX_FOREIGN, true},
    {"index missing", plant_missing, HF_FSCK_INDEX_MISSING, true},
    {"index twice", plant_twice, HF_FSCK_INDEX_TWICE, false},
};
#define PLANTS_CNT (sizeof(plants) / sizeof(plants[0]))

static void each_damage_is_found_and_named(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PLANTS_CNT; i++) {
        struct hf_test_quota quota;
        struct found found;

        fill(&quota);
        uint64_t tenants = quota.seg->tenants[0].ten_word.lo;

        plants[i].fn(&quota);
        struct hf_fsck_result result = check(quota.seg, &found);

        if (count(&found, plants[i].kind, HF_FSCK_DAMAGE) == 0) {
            print_message("planted: %s\n", plants[i].name);
            show(&found);
        }
        assert_true(result.damage > 0);
        assert_true(count(&found, plants[i].kind, HF_FSCK_DAMAGE) > 0);
        (void)tenants;
        hf_test_quota_free(&quota);
    }
}

/* Key, window, expected and found of a wrong value. */
static void a_wrong_value_is_told_exactly(void **state)
{
    struct hf_test_quota quota;
    struct found found;

    (void)state;
    fill(&quota);
    uint64_t right = hf_test_value(&quota, "u", NULL, HF_WINDOW_MONTH, HF_DIM_COST);

    plant_value_high(&quota);
    struct hf_fsck_result result = check(quota.seg, &found);

    assert_int_equal(result.damage, 1);
    assert_int_equal(found.cnt, 1);
    assert_int_equal(found.items[0].kind, HF_FSCK_BUCKET_VALUE);
    assert_int_equal(found.items[0].row, row_of(&quota, "u", NULL));
    assert_int_equal(found.items[0].window, HF_WINDOW_MONTH);
    assert_int_equal(found.items[0].window_id, hf_window_id(HF_WINDOW_MONTH, HF_TEST_NOW_MS));
    assert_int_equal(found.items[0].dimension, HF_DIM_COST);
    assert_true(found.items[0].expected == right);
    assert_true(found.items[0].found == right + 500);
    assert_non_null(strstr(found.where[0], "team t/u"));
    assert_non_null(strstr(found.where[0], "month 680 cost_micros"));
    hf_test_quota_free(&quota);
}

/* ---- repair ------------------------------------------------------------------------------------------------------------ */

static bool nothing_charged(void *ctx, uint32_t row, uint32_t window, uint32_t window_id, uint32_t dimension,
                            uint64_t *amount)
{
    (void)ctx;
    (void)row;
    (void)window;
    (void)window_id;
    (void)dimension;
    *amount = 0; /* of a segment without a daemon */
    return true;
}

/* Everybody leaves; the mapping stays. */
static void leave(struct hf_test_quota *quota)
{
    for (int i = 0; i < 4; i++) {
        holdfast_leave(quota->handles[i]);
        quota->handles[i] = NULL;
    }
}

static void come_again(struct hf_test_quota *quota)
{
    for (int i = 0; i < 4; i++) {
        assert_int_equal(holdfast_join(quota->segment, &quota->handles[i]), HOLDFAST_OK);
    }
}

static struct hf_fsck_result repair(struct hf_segment *seg, struct found *found, hf_fsck_charged_fn *charged)
{
    const struct hf_fsck_repair with = {.options = {.rounds = 2, .sums_tries = 3, .tenant = HF_SHM_NONE},
                                        .charged = charged};
    struct hf_fsck_result result;
    struct hf_owner own;
    struct hf_error err = {.text = ""};

    found->cnt = 0;
    assert_int_equal(hf_owner_join(seg, HF_ROLE_DAEMON, &own, &err), HF_OK);
    int rc = hf_fsck_repair(seg, &own, &with, take, found, &result, &err);

    if (rc != HF_OK) {
        fail_msg("%s", err.text);
    }
    hf_owner_leave(seg, &own);
    return result;
}

static void what_can_be_proved_is_mended_once(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PLANTS_CNT; i++) {
        struct hf_test_quota quota;
        struct found found;

        if (!plants[i].mended) {
            continue;
        }
        fill(&quota);
        uint64_t values[HF_SHM_ROW_BUCKETS];

        for (int b = 0; b < (int)HF_SHM_ROW_BUCKETS; b++) {
            values[b] = hf_test_value(&quota, "u", NULL, b / 3, b % 3);
        }
        plants[i].fn(&quota);
        leave(&quota);
        struct hf_fsck_result result = repair(quota.seg, &found, nothing_charged);

        if (result.damage != 0 || (result.mended == 0 && plants[i].kind != HF_FSCK_DAEMON)) {
            print_message("planted: %s\n", plants[i].name);
            show(&found);
        }
        assert_int_equal(result.damage, 0);
        assert_true(result.mended > 0 ||
                    plants[i].kind == HF_FSCK_DAEMON); /* taking its place overwrites it */
        result = repair(quota.seg, &found, nothing_charged);
        if (result.mended != 0) {
            print_message("planted: %s; mended a second time\n", plants[i].name);
            show(&found);
        }
        assert_int_equal(result.mended, 0);
        assert_int_equal(hf_segment_state(quota.seg), HF_SEGMENT_READY);
        come_again(&quota);
        assert_clean(quota.seg);
        assert_int_equal(hf_test_mismatches(&quota), 0);
        for (int b = 0; b < (int)HF_SHM_ROW_BUCKETS; b++) {
            assert_true(values[b] == hf_test_value(&quota, "u", NULL, b / 3, b % 3));
        }
        struct holdfast_closing closing;

        assert_int_equal(hf_test_settle(quota.handles[1], "open", 1, 1, 2, &closing), HOLDFAST_OK);
        assert_clean(quota.seg);
        hf_test_quota_free(&quota);
    }
}

/* The link is right then, and its tag proves the hash. */
static void a_wrong_hash_is_no_wrong_link(void **state)
{
    struct hf_test_quota quota;
    struct found found;

    (void)state;
    fill(&quota);
    uint32_t slot_idx = hf_test_slot(&quota, "old");
    uint32_t hash = quota.seg->slots[slot_idx].slot_id_hash;

    plant_hash_high(&quota);
    struct hf_fsck_result result = check(quota.seg, &found);

    assert_int_equal(result.damage, 1);
    assert_int_equal(count(&found, HF_FSCK_SLOT_ID, HF_FSCK_DAMAGE), 1);
    leave(&quota);
    result = repair(quota.seg, &found, nothing_charged);
    assert_int_equal(result.damage, 0);
    assert_int_equal(count(&found, HF_FSCK_SLOT_ID, HF_FSCK_MENDED), 1);
    assert_int_equal(count(&found, HF_FSCK_INDEX_LINK, HF_FSCK_MENDED), 0);
    assert_int_equal(quota.seg->slots[slot_idx].slot_id_hash, hash);
    come_again(&quota);
    assert_int_equal(hf_test_slot(&quota, "old"), slot_idx);
    hf_test_quota_free(&quota);
}

/* What cannot be proved stays, and is said. */
static void what_cannot_be_proved_stays(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PLANTS_CNT; i++) {
        struct hf_test_quota quota;
        struct found found;

        if (plants[i].mended) {
            continue;
        }
        fill(&quota);
        plants[i].fn(&quota);
        leave(&quota);
        struct hf_fsck_result result = repair(quota.seg, &found, nothing_charged);

        if (count(&found, plants[i].kind, HF_FSCK_DAMAGE) == 0) {
            print_message("planted: %s\n", plants[i].name);
            show(&found);
        }
        assert_true(result.damage > 0);
        assert_true(count(&found, plants[i].kind, HF_FSCK_DAMAGE) > 0);
        result = repair(quota.seg, &found, nothing_charged);
        assert_int_equal(result.mended, 0);
        come_again(&quota);
        hf_test_quota_free(&quota);
    }
}

/* A hold is never lost to a repair: with a slot that proves nothing, no bucket of its tenant is touched. */
static void a_damaged_slot_keeps_the_buckets(void **state)
{
    struct hf_test_quota quota;
    struct found found;

    (void)state;
    fill(&quota);
    uint64_t before = hf_test_value(&quota, "u", NULL, HF_WINDOW_MONTH, HF_DIM_COST);

    plant_slot_state(&quota); /* its 400 micros are counted by nobody now */
    leave(&quota);
    (void)repair(quota.seg, &found, nothing_charged);
    assert_true(hf_test_value(&quota, "u", NULL, HF_WINDOW_MONTH, HF_DIM_COST) == before);
    come_again(&quota);
    hf_test_quota_free(&quota);
}

/* Without the store a bucket may rise, and never falls. */
static void without_the_store_nothing_gets_smaller(void **state)
{
    struct hf_test_quota quota;
    struct found found;

    (void)state;
    fill(&quota);
    uint64_t right = hf_test_value(&quota, "u", NULL, HF_WINDOW_MONTH, HF_DIM_COST);

    plant_value_high(&quota);
    leave(&quota);
    (void)repair(quota.seg, &found, NULL);
    assert_true(hf_test_value(&quota, "u", NULL, HF_WINDOW_MONTH, HF_DIM_COST) == right + 500);
    struct hf_u128 *b = bucket_of(&quota, "u", HF_WINDOW_MONTH, HF_DIM_COST);

    *b = hf_bucket_make(right - 7, hf_bucket_window(*b), hf_bucket_tag(*b));
    (void)repair(quota.seg, &found, NULL);
    assert_true(hf_test_value(&quota, "u", NULL, HF_WINDOW_MONTH, HF_DIM_COST) == right);
    come_again(&quota);
    hf_test_quota_free(&quota);
}

static void a_repair_is_alone(void **state)
{
    const struct hf_fsck_repair with = {.options = {.tenant = HF_SHM_NONE}};
    struct hf_test_quota quota;
    struct hf_fsck_result result;
    struct hf_owner own;
    struct hf_error err = {.text = ""};
    char pid[32];

    (void)state;
    fill(&quota);
    plant_value_high(&quota);
    struct hf_u128 before = *bucket_of(&quota, "u", HF_WINDOW_MONTH, HF_DIM_COST);

    assert_int_equal(hf_owner_join(quota.seg, HF_ROLE_DAEMON, &own, &err), HF_OK);
    assert_int_equal(hf_fsck_repair(quota.seg, &own, &with, NULL, NULL, &result, &err), HF_EBUSY);
    (void)snprintf(pid, sizeof(pid), "%u", quota.seg->owners[0].own_pid);
    assert_non_null(strstr(err.text, pid));
    assert_int_equal(hf_segment_state(quota.seg), HF_SEGMENT_READY);
    assert_true(quota.seg->header->hdr_daemon == 0);
    assert_memory_equal(&before, bucket_of(&quota, "u", HF_WINDOW_MONTH, HF_DIM_COST), sizeof(before));
    hf_owner_leave(quota.seg, &own);
    hf_test_quota_free(&quota);
}

/* Cut off anywhere, it leaves HF_SEGMENT_REPAIR: nobody works, fsck says so, and the next repair ends it. */
static void a_repair_that_was_cut_off_is_run_again(void **state)
{
    struct hf_test_quota quota;
    struct found found;

    (void)state;
    fill(&quota);
    leave(&quota);
    quota.seg->header->hdr_state = HF_SEGMENT_REPAIR;
    memset(quota.seg->heads, 0, (quota.seg->heads_mask + 1ULL) * sizeof(*quota.seg->heads));
    struct hf_fsck_result result = check(quota.seg, &found);

    assert_true(count(&found, HF_FSCK_HEADER, HF_FSCK_DAMAGE) == 1);
    result = repair(quota.seg, &found, nothing_charged);
    assert_int_equal(result.damage, 0);
    assert_int_equal(hf_segment_state(quota.seg), HF_SEGMENT_READY);
    come_again(&quota);
    assert_clean(quota.seg);
    (void)hf_test_slot(&quota, "open");
    hf_test_quota_free(&quota);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_segment_is_clean),
        cmocka_unit_test(a_half_applied_operation_is_clean),
        cmocka_unit_test(a_reserve_without_its_word_is_clean),
        cmocka_unit_test(the_dead_are_notes),
        cmocka_unit_test(a_half_published_batch_is_not_judged),
        cmocka_unit_test(each_damage_is_found_and_named),
        cmocka_unit_test(a_wrong_value_is_told_exactly),
        cmocka_unit_test(what_can_be_proved_is_mended_once),
        cmocka_unit_test(a_wrong_hash_is_no_wrong_link),
        cmocka_unit_test(what_cannot_be_proved_stays),
        cmocka_unit_test(a_damaged_slot_keeps_the_buckets),
        cmocka_unit_test(without_the_store_nothing_gets_smaller),
        cmocka_unit_test(a_repair_is_alone),
        cmocka_unit_test(a_repair_that_was_cut_off_is_run_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
