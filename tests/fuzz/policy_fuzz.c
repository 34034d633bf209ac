/* Any bytes are loaded as a policy: either every rule holds in it, or a report says where it does not, in words that are fit
 * for a terminal. */
#include "fuzz.h"

#include "core/policy.h"

#include <string.h>

/* ---- the report ---------------------------------------------------------------------------------------- */

/* Text for people: valid UTF-8, and nothing that moves a cursor or starts a line. */
static void require_readable(const char *text)
{
    size_t len = strlen(text);

    for (size_t i = 0; i < len;) {
        uint32_t code_point = 0;
        size_t step = hf_utf8_decode(text + i, len - i, &code_point);

        FUZZ_REQUIRE(step > 0);
        FUZZ_REQUIRE(code_point >= 0x20 && (code_point < 0x7F || code_point > 0x9F));
        i += step;
    }
}

static void require_report(const struct hf_policy_report *report, int status, uint32_t line_cnt)
{
    uint32_t line = 0;

    FUZZ_REQUIRE((report->error_cnt > 0) == (status == HF_POLICY_REFUSED));
    FUZZ_REQUIRE(report->problem_cnt <= report->error_cnt + report->warning_cnt);
    FUZZ_REQUIRE(!report->incomplete);
    for (size_t i = 0; i < report->problem_cnt; i++) {
        const struct hf_policy_problem *problem = &report->problems[i];

        FUZZ_REQUIRE(problem->line >= line && problem->line >= 1 && problem->line <= line_cnt);
        FUZZ_REQUIRE(problem->column >= 1);
        FUZZ_REQUIRE(problem->message[0] != '\0');
        require_readable(problem->path);
        require_readable(problem->message);
        line = problem->line;
    }
}

/* ---- the policy ---------------------------------------------------------------------------------------- */

static void require_amount(uint64_t amount, uint64_t least)
{
    FUZZ_REQUIRE(amount == HF_UNKNOWN || (amount >= least && amount <= HF_AMOUNT_MAX));
}

static void require_limits(const struct hf_policy_limits *limits)
{
    for (size_t w = 0; w < HF_WINDOW_CNT; w++) {
        for (size_t d = 0; d < HF_DIM_CNT; d++) {
            require_amount(limits->limits[w][d], 0);
        }
    }
}

static bool limits_any(const struct hf_policy_limits *limits, enum hf_dimension dimension)
{
    for (size_t w = 0; w < HF_WINDOW_CNT; w++) {
        if (limits->limits[w][dimension] != HF_UNKNOWN) {
            return true;
        }
    }
    return false;
}

/* A name each, and each another. elements start with their name. */
static void require_ids(const void *elements, size_t cnt, size_t size)
{
    for (size_t i = 0; i < cnt; i++) {
        const struct hf_name *id = (const void *)((const char *)elements + i * size);

        FUZZ_REQUIRE(hf_name_valid(id->bytes, id->len) && id->bytes[id->len] == '\0');
        for (size_t j = 0; j < i && cnt < 200; j++) {
            FUZZ_REQUIRE(!hf_name_equal(id, (const void *)((const char *)elements + j * size)));
        }
    }
}

static void require_on_limit(const struct hf_policy_on_limit *on_limit)
{
    require_amount(on_limit->overdraft_micros, 0);
    require_amount(on_limit->queue_limit, 1);
    require_amount(on_limit->queue_deadline_ms, 1);
    FUZZ_REQUIRE(on_limit->kind != HF_ON_LIMIT_DEGRADE || on_limit->overdraft_micros != HF_UNKNOWN);
    FUZZ_REQUIRE(on_limit->kind != HF_ON_LIMIT_QUEUE ||
                 (on_limit->queue_limit != HF_UNKNOWN && on_limit->queue_deadline_ms != HF_UNKNOWN));
}

static void require_modes(const struct hf_policy_modes *modes)
{
    FUZZ_REQUIRE(modes->ttl_ms >= 1 && modes->ttl_ms <= HF_AMOUNT_MAX);
    FUZZ_REQUIRE(modes->retry_after_ms >= 1 && modes->retry_after_ms <= HF_AMOUNT_MAX);
    FUZZ_REQUIRE(modes->on_expiry <= HF_ON_EXPIRY_RETAIN_DISPATCHED &&
                 modes->on_overage <= HF_ON_OVERAGE_FAIL);
}

static bool every_output_ends(const struct hf_policy *policy)
{
    for (size_t i = 0; i < policy->model_cnt; i++) {
        if (policy->models[i].price.max_output_tokens == HF_UNKNOWN) {
            return false;
        }
    }
    return true;
}

static void require_team(const struct hf_policy *policy, const struct hf_policy_tenant *tenant,
                         const struct hf_policy_team *team)
{
    bool needs_cost = limits_any(&tenant->limits, HF_DIM_COST) || limits_any(&team->limits, HF_DIM_COST);
    bool needs_tokens =
        limits_any(&tenant->limits, HF_DIM_TOKENS) || limits_any(&team->limits, HF_DIM_TOKENS);

    require_limits(&team->limits);
    require_on_limit(&team->on_limit);
    require_modes(&team->modes);
    require_ids(team->keys, team->key_cnt, sizeof(*team->keys));
    require_ids(team->capabilities, team->capability_cnt, sizeof(*team->capabilities));
    for (size_t i = 0; i < team->key_cnt; i++) {
        require_limits(&team->keys[i].limits);
        needs_cost = needs_cost || limits_any(&team->keys[i].limits, HF_DIM_COST);
        needs_tokens = needs_tokens || limits_any(&team->keys[i].limits, HF_DIM_TOKENS);
    }
    for (size_t i = 0; i < team->capability_cnt; i++) {
        const struct hf_policy_capability *capability = &team->capabilities[i];

        require_amount(capability->cap_micros, 1);
        require_amount(capability->cap_tokens, 1);
        FUZZ_REQUIRE(!needs_cost || capability->cap_micros != HF_UNKNOWN);
        FUZZ_REQUIRE(!needs_tokens || capability->cap_tokens != HF_UNKNOWN ||
                     (capability->basis == HF_BASIS_ESTIMATE && every_output_ends(policy)));
    }
}

static void require_shares(const struct hf_policy_tenant *tenant)
{
    for (size_t w = 0; w < HF_WINDOW_CNT; w++) {
        for (size_t d = 0; d < HF_DIM_CNT; d++) {
            unsigned __int128 sum = 0;

            for (size_t i = 0; i < tenant->team_cnt; i++) {
                uint64_t share = tenant->teams[i].limits.limits[w][d];

                sum += share == HF_UNKNOWN ? 0 : share;
            }
            FUZZ_REQUIRE(tenant->allow_overcommit || sum <= tenant->limits.limits[w][d]);
        }
    }
}

static void require_policy(const struct hf_policy *policy)
{
    FUZZ_REQUIRE(hf_name_valid(policy->currency.bytes, policy->currency.len));
    FUZZ_REQUIRE(hf_name_valid(policy->price_revision.bytes, policy->price_revision.len));
    require_ids(policy->models, policy->model_cnt, sizeof(*policy->models));
    require_ids(policy->tenants, policy->tenant_cnt, sizeof(*policy->tenants));
    require_modes(&policy->defaults);
    for (size_t i = 0; i < policy->model_cnt; i++) {
        const struct hf_price *price = &policy->models[i].price;

        FUZZ_REQUIRE(price->input <= HF_AMOUNT_MAX && price->output <= HF_AMOUNT_MAX);
        require_amount(price->cached_input, 0);
        require_amount(price->cache_write, 0);
        require_amount(price->max_output_tokens, 1);
    }
    for (size_t i = 0; i < policy->tenant_cnt; i++) {
        const struct hf_policy_tenant *tenant = &policy->tenants[i];

        require_limits(&tenant->limits);
        require_on_limit(&tenant->on_limit);
        require_modes(&tenant->modes);
        require_ids(tenant->teams, tenant->team_cnt, sizeof(*tenant->teams));
        require_shares(tenant);
        for (size_t j = 0; j < tenant->team_cnt; j++) {
            require_team(policy, tenant, &tenant->teams[j]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t cnt)
{
    struct hf_policy_report report = {0};
    struct hf_policy *policy = NULL;
    uint32_t line_cnt = 1;
    int status = hf_policy_load_bytes("p", bytes, cnt, 0, &policy, &report);

    for (size_t i = 0; i + 1 < cnt; i++) {
        line_cnt += bytes[i] == '\n';
    }
    FUZZ_REQUIRE(status == HF_POLICY_LOADED || status == HF_POLICY_REFUSED);
    FUZZ_REQUIRE((policy != NULL) == (status == HF_POLICY_LOADED));
    require_report(&report, status, line_cnt);
    if (policy != NULL) {
        require_policy(policy);
    }
    hf_policy_free(policy);
    hf_policy_report_free(&report);
    return 0;
}
