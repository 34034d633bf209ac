#include "tests/support/quota.h"

#include "core/lookup.h"
#include "core/name_cache.h"
#include "core/policy.h"
#include "core/policy_compile.h"
#include "core/slot.h"
#include "core/window.h"
#include "shm/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

const char *hf_test_policy(void)
{
    return "version: 1\n"
           "currency: EUR\n"
           "prices:\n"
           "  revision: '1'\n"
           "  models:\n"
           "    - {id: m, input_micros_per_mtok: 1000000, output_micros_per_mtok: 2000000, max_output_tokens: 100}\n"
           "    - {id: mini, input_micros_per_mtok: 500000, output_micros_per_mtok: 1000000, max_output_tokens: 100}\n"
           "defaults: {ttl_ms: 1000}\n"
           "tenants:\n"
           "  - id: t\n"
           "    limits: [{window: month, cost_micros: 100000}]\n"
           "    teams:\n"
           "      - id: u\n"
           "        limits:\n"
           "          - {window: month, cost_micros: 60000}\n"
           "          - {window: minute, tokens: 1000, invocations: 60}\n"
           "        capabilities: [{id: c, cap_micros: 10000, cap_tokens: 2000}]\n"
           "        keys: [{id: k, limits: [{window: day, invocations: 5}]}]\n"
           "      - id: v\n"
           "        on_limit: degrade\n"
           "        overdraft_micros: 100\n"
           "        on_expiry: retain\n"
           "        on_overage: fail\n"
           "        limits: [{window: month, cost_micros: 500}]\n"
           "        capabilities: [{id: c, cap_micros: 10000, cap_tokens: 2000}]\n"
           "      - id: w\n"
           "        on_expiry: retain_dispatched\n"
           "        capabilities: [{id: c, cap_micros: 10000, cap_tokens: 2000}]\n"
           "  - id: z\n"
           "    teams:\n"
           "      - {id: u, capabilities: [{id: c}]}\n";
}

void hf_test_quota_make(struct hf_test_quota *quota, const char *policy_text, uint32_t slots)
{
    static const uint8_t digest[32];
    struct hf_policy_report report = {0};
    struct hf_policy *policy = NULL;
    struct hf_segment map;
    struct hf_error err = {.text = ""};
    struct hf_segment_plan plan = {.slots = slots,
                                   .owners = 16,
                                   .replay_horizon_ms = 60000,
                                   .late_horizon_ms = 3600000,
                                   .max_lag_ms = 30000,
                                   .epoch = 1,
                                   .injected = true,
                                   .injected_ms = HF_TEST_NOW_MS,
                                   .mode = 0600,
                                   .group = (gid_t)-1,
                                   .store_name = "test",
                                   .store_url = ""};
    assert_int_equal(hf_policy_load_bytes("test", policy_text, strlen(policy_text), 0, &policy, &report),
                     HF_POLICY_LOADED);
    assert_int_equal(hf_policy_plan(policy, &plan, &err), HF_OK);
    assert_int_equal(hf_segment_create_anonymous(&plan, &map, &err), HF_OK);
    assert_int_equal(hf_policy_compile(policy, digest, 1, &map, &err), HF_OK);
    hf_policy_free(policy);
    hf_policy_report_free(&report);
    hf_segment_set_state(&map, HF_SEGMENT_READY);
    assert_int_equal(hf_client_wrap(&map, &quota->segment), HOLDFAST_OK);
    quota->seg = &quota->segment->map;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(holdfast_join(quota->segment, &quota->handles[i]), HOLDFAST_OK);
    }
}

void hf_test_quota_free(struct hf_test_quota *quota)
{
    for (int i = 0; i < 4; i++) {
        holdfast_leave(quota->handles[i]);
    }
    holdfast_close(quota->segment);
}

int hf_test_reserve(struct holdfast *handle, const char *id, const char *team, const char *key,
                    uint64_t tokens, uint64_t cost, struct holdfast_answer *answer)
{
    struct holdfast_request request;
    holdfast_request_init(&request);
    request.id = id;
    request.tenant = "t";
    request.team = team;
    request.key = key;
    request.capability = "c";
    request.tokens = tokens;
    request.cost_micros = cost;
    request.want_remaining = 1;
    return holdfast_reserve(handle, &request, answer);
}

int hf_test_settle(struct holdfast *handle, const char *id, uint64_t input, uint64_t output, uint64_t cost,
                   struct holdfast_closing *closing)
{
    struct holdfast_usage usage;
    holdfast_usage_init(&usage, input, output);
    usage.cost_micros = cost;
    return holdfast_settle(handle, id, 0, &usage, HOLDFAST_SUCCESS, NULL, closing);
}

uint64_t hf_test_value(struct hf_test_quota *quota, const char *team, const char *key, int window,
                       int dimension)
{
    uint32_t row_idx = hf_policy_row(quota->seg, 1, "t", team, key);
    assert_true(row_idx < quota->seg->rows_cnt);
    struct hf_u128 word = quota->seg->rows[row_idx].row_buckets[window][dimension]; /* plain: quiesced */
    uint32_t now = hf_window_id((enum hf_window)window, hf_clock_now_ms(quota->seg));
    return hf_bucket_window(word) == now ? hf_bucket_value(word) : 0;
}

uint32_t hf_test_slot(struct hf_test_quota *quota, const char *id)
{
    struct hf_found found;
    assert_int_equal(hf_slot_find(quota->handles[0], id, (uint32_t)strlen(id), 0, &found), HF_INDEX_FOUND);
    return found.slot_idx;
}

/* What a slot leaves in a bucket of this dimension. */
static uint64_t slot_counts(const struct hf_shm_slot *slot, uint32_t dimension)
{
    struct hf_u128 st = slot->slot_st; /* plain: quiesced, as all of this file */
    const struct hf_shm_hold *hold = &slot->slot_holds[hf_st_ordinal(st) & 1U];
    uint64_t held = dimension == 0 ? 1 : dimension == 1 ? hold->hold_tokens : hold->hold_cost;
    uint64_t actual = dimension == 0 ? 1 : dimension == 1 ? slot->slot_actual_tokens : slot->slot_actual_cost;
    held = held == HF_SHM_UNKNOWN ? 0 : held;
    switch (hf_st_state(st)) {
    case HF_STATE_HELD:
    case HF_STATE_DISPATCHED:
    case HF_STATE_RETAINED:
    case HF_STATE_DISPUTED:
        return held;
    case HF_STATE_SETTLED:
    case HF_STATE_LATE:
        return actual == HF_SHM_UNKNOWN ? held : actual;
    case HF_STATE_EXPIRED:
        return dimension == 0 ? 1 : 0;
    default:
        return 0;
    }
}

/* What all slots leave in one bucket in the window that its word shows. */
static uint64_t bucket_counts(const struct hf_segment *seg, uint32_t row_idx, uint32_t in_row,
                              uint32_t window_id)
{
    uint64_t sum = 0;
    uint32_t window = in_row / HF_SHM_DIMS;
    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        const struct hf_shm_slot *slot = &seg->slots[i];
        uint32_t layer = seg->rows[row_idx].row_layer;
        if (hf_st_state(slot->slot_st) < HF_STATE_HELD || hf_st_state(slot->slot_st) >= HF_STATE_CREDIT ||
            slot->slot_rows[layer] != row_idx ||
            (slot->slot_mask >> (layer * HF_SHM_ROW_BUCKETS + in_row) & 1U) == 0 ||
            (window < 4 && slot->slot_windows[window] != window_id)) {
            continue;
        }
        sum += slot_counts(slot, in_row % HF_SHM_DIMS);
    }
    return sum;
}

uint32_t hf_test_mismatches(struct hf_test_quota *quota)
{
    const struct hf_segment *seg = quota->seg;
    uint32_t wrong = 0;
    for (uint32_t row = 0; row < seg->rows_cnt; row++) {
        for (uint32_t b = 0; b < HF_SHM_ROW_BUCKETS; b++) {
            struct hf_u128 word = seg->rows[row].row_buckets[b / HF_SHM_DIMS][b % HF_SHM_DIMS];
            if (hf_bucket_value(word) != bucket_counts(seg, row, b, hf_bucket_window(word))) {
                wrong++;
            }
        }
    }
    return wrong;
}
