#include "tests/support/hand_segment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void *block(size_t cnt, size_t bytes)
{
    void *memory = NULL;

    assert_int_equal(posix_memalign(&memory, 64, cnt * bytes + (cnt == 0)), 0);
    memset(memory, 0, cnt * bytes);
    return memory;
}

void hf_hand_segment_make(const struct hf_segment_plan *plan, struct hf_segment *seg)
{
    memset(seg, 0, sizeof(*seg));
    seg->header = block(1, sizeof(*seg->header));
    seg->tenants = block(plan->tenants, sizeof(*seg->tenants));
    seg->rows = block(plan->rows, sizeof(*seg->rows));
    seg->names = block(plan->names, sizeof(*seg->names));
    seg->prices = block(plan->prices, sizeof(*seg->prices));
    seg->policies = block(2, plan->policy_bytes);
    seg->tenants_cnt = plan->tenants;
    seg->rows_cnt = plan->rows;
    seg->names_max = plan->names;
    seg->prices_max = plan->prices;
    seg->policy_bytes = plan->policy_bytes;
    seg->hash_seed = UINT64_C(0x1234567890ABCDEF);
    seg->lock_fd = -1;
}

void hf_hand_segment_free(struct hf_segment *seg)
{
    free(seg->header);
    free(seg->tenants);
    free(seg->rows);
    free(seg->names);
    free(seg->prices);
    free(seg->policies);
    memset(seg, 0, sizeof(*seg));
}

#define NAME(text)                             \
    {                                          \
        .len = sizeof(text) - 1, .bytes = text \
    }
#define NONE HF_UNKNOWN
#define FREE_WINDOW      \
    {                    \
        NONE, NONE, NONE \
    }

static struct hf_policy_model models[] = {
    {NAME("mock"), {1000000, 2000000, NONE, NONE, 4096}},
    {NAME("mini"), {500000, 1000000, 50000, NONE, 2048}},
    {NAME("free"), {0, 0, 0, 0, NONE}},
    {NAME("echo"), {1, 2, 3, 4, 5}}, /* a model with the name of a tenant */
};
static struct hf_policy_capability content_caps[] = {
    {NAME("summary"), 6200, NONE, HF_BASIS_ESTIMATE},
    {NAME("reply"), 4200, 8192, HF_BASIS_CAP},
};
static struct hf_policy_capability support_caps[] = {
    {NAME("reply"), NONE, 1, HF_BASIS_ESTIMATE},
};
static struct hf_policy_key support_keys[] = {
    {NAME("bot"), {{FREE_WINDOW, FREE_WINDOW, FREE_WINDOW, {NONE, 2000000, NONE}, FREE_WINDOW}}},
    {NAME("content"), {{FREE_WINDOW, FREE_WINDOW, FREE_WINDOW, FREE_WINDOW, {1, NONE, NONE}}}},
};
static struct hf_policy_team echo_teams[] = {
    {.id = NAME("content"),
     .limits = {{FREE_WINDOW, FREE_WINDOW, FREE_WINDOW, {NONE, NONE, 40000000}, FREE_WINDOW}},
     .on_limit = {HF_ON_LIMIT_REJECT, NONE, NONE, NONE},
     .modes = {600000, 60000, HF_ON_EXPIRY_RELEASE, HF_ON_OVERAGE_RECORD, 0},
     .capabilities = content_caps,
     .capability_cnt = 2},
    {.id = NAME("support"),
     .limits = {{{60, 90000, NONE}, FREE_WINDOW, FREE_WINDOW, {NONE, NONE, 0}, FREE_WINDOW}},
     .on_limit = {HF_ON_LIMIT_DEGRADE, 17, 2, 2000},
     .modes = {5000, 7000, HF_ON_EXPIRY_RETAIN_DISPATCHED, HF_ON_OVERAGE_FAIL, HF_POLICY_TOLD_TTL},
     .capabilities = support_caps,
     .capability_cnt = 1,
     .keys = support_keys,
     .key_cnt = 2},
};
static struct hf_policy_team other_teams[] = {
    {.id = NAME("content"), /* the name of a team of the other tenant */
     .limits = {{FREE_WINDOW, FREE_WINDOW, FREE_WINDOW, FREE_WINDOW, FREE_WINDOW}},
     .on_limit = {HF_ON_LIMIT_REJECT, NONE, NONE, NONE},
     .modes = {300000, 60000, HF_ON_EXPIRY_RETAIN, HF_ON_OVERAGE_RECORD, 0}},
};
static struct hf_policy_tenant tenants[] = {
    {.id = NAME("echo"),
     .limits = {{FREE_WINDOW, FREE_WINDOW, FREE_WINDOW, {NONE, NONE, 100000000}, {HF_AMOUNT_MAX, 1, 2}}},
     .on_limit = {HF_ON_LIMIT_DEGRADE, 1000, NONE, NONE},
     .modes = {600000, 60000, HF_ON_EXPIRY_RELEASE, HF_ON_OVERAGE_RECORD, 0},
     .teams = echo_teams,
     .team_cnt = 2},
    {.id = NAME("other"),
     .limits = {{FREE_WINDOW, {5, 6, 7}, FREE_WINDOW, FREE_WINDOW, FREE_WINDOW}},
     .on_limit = {HF_ON_LIMIT_REJECT, NONE, NONE, NONE},
     .modes = {300000, 60000, HF_ON_EXPIRY_RETAIN, HF_ON_OVERAGE_RECORD, 0},
     .teams = other_teams,
     .team_cnt = 1},
};
static const struct hf_policy policy = {
    .currency = NAME("CNY"),
    .price_revision = NAME("2026-11"),
    .models = models,
    .model_cnt = 4,
    .tenants = tenants,
    .tenant_cnt = 2,
};

const struct hf_policy *hf_hand_policy(void)
{
    return &policy;
}
