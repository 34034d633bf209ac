#include "core/name.h"
#include "core/price.h"
#include "tools/common/trace.h"
#include "tools/holdfast/command.h"
#include "tools/holdfast/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- paths -------------------------------------------------------------------------------------------------- */

static uint32_t count_paths(const struct hf_policy *policy)
{
    size_t cnt = 0;
    for (size_t t = 0; t < policy->tenant_cnt; t++) {
        for (size_t m = 0; m < policy->tenants[t].team_cnt; m++) {
            const struct hf_policy_team *team = &policy->tenants[t].teams[m];
            cnt += team->capability_cnt * (team->key_cnt + 1);
        }
    }
    return (uint32_t)cnt;
}

static bool make_paths(struct hf_replay_plan *plan)
{
    plan->paths = calloc((size_t)count_paths(plan->policy) + 1, sizeof *plan->paths);
    if (plan->paths == NULL) {
        return false;
    }
    for (size_t t = 0; t < plan->policy->tenant_cnt; t++) {
        const struct hf_policy_tenant *tenant = &plan->policy->tenants[t];
        for (size_t m = 0; m < tenant->team_cnt; m++) {
            const struct hf_policy_team *team = &tenant->teams[m];
            for (size_t i = 0; i < team->capability_cnt * (team->key_cnt + 1); i++) {
                size_t key = i / team->capability_cnt;
                plan->paths[plan->paths_cnt++] =
                    (struct hf_replay_path){tenant, team, key == 0 ? NULL : &team->keys[key - 1],
                                            &team->capabilities[i % team->capability_cnt]};
            }
        }
    }
    return true;
}

/* ---- the rule ----------------------------------------------------------------------------------------------- */

/* Spreads by row number and seed alone, so that a run can be repeated. */
static uint64_t spread(uint64_t seed, uint64_t row, const char *what)
{
    const uint64_t words[2] = {seed, row};
    char bytes[sizeof words + 8];
    memcpy(bytes, words, sizeof words);
    size_t len = strlen(what);
    memcpy(bytes + sizeof words, what, len);
    return hf_name_hash(bytes, sizeof words + len, seed);
}

static uint32_t model_of(const struct hf_replay_plan *plan, const char *named, uint64_t row)
{
    for (size_t i = 0; named != NULL && i < plan->policy->model_cnt; i++) {
        if (hf_name_is(&plan->policy->models[i].id, named, strlen(named))) {
            return (uint32_t)i;
        }
    }
    return plan->policy->model_cnt == 0
               ? 0
               : (uint32_t)(spread(plan->seed, row, "model") % plan->policy->model_cnt);
}

static bool fits(const struct hf_price *price, const struct hf_policy_capability *capability, uint64_t input,
                 uint64_t output)
{
    uint64_t tokens;
    uint64_t cost;
    return hf_price_worst(price, input, output, &tokens, &cost) &&
           (capability->cap_tokens == HF_UNKNOWN || tokens <= capability->cap_tokens) &&
           (capability->cap_micros == HF_UNKNOWN || cost <= capability->cap_micros);
}

/* The model's longest output, lowered to the largest that fits the capability's caps; 1 when none does (then the
 * request layer refuses). A model without a longest output: what the row came to. */
static uint64_t longest_output(const struct hf_replay_plan *plan, const struct hf_replay_row *row)
{
    const struct hf_price *price = &plan->policy->models[row->model].price;
    const struct hf_policy_capability *capability = plan->paths[row->path].capability;
    uint64_t most = price->max_output_tokens;
    if (most == HF_UNKNOWN) {
        most = row->output_tokens == 0 ? 1 : row->output_tokens;
    }
    if (capability == NULL ||
        fits(price, capability, row->input_tokens, most)) { /* never NULL: for the analyzer */
        return most;
    }
    uint64_t low = 1;
    while (low <
           most) { /* the largest that fits, by halving: what costs more never fits where less does not */
        uint64_t middle = low + (most - low + 1) / 2;
        if (fits(price, capability, row->input_tokens, middle)) {
            low = middle;
        } else {
            most = middle - 1;
        }
    }
    return low;
}

/* The other model that allows such an output and can cost least for this call: named where the team or the tenant of the path
 * degrades. It may be dearer than the row's, which then is refused as degrade-not-cheaper. */
static uint32_t economy_of(const struct hf_replay_plan *plan, const struct hf_replay_row *row)
{
    const struct hf_replay_path *path = &plan->paths[row->path];
    uint64_t least = HF_UNKNOWN;
    uint32_t economy = HF_REPLAY_NO_MODEL;
    if (path->team == NULL || path->tenant == NULL || /* never NULL: for the analyzer */
        (path->team->on_limit.kind != HF_ON_LIMIT_DEGRADE &&
         path->tenant->on_limit.kind != HF_ON_LIMIT_DEGRADE)) {
        return HF_REPLAY_NO_MODEL;
    }
    for (uint32_t i = 0; i < plan->policy->model_cnt; i++) {
        const struct hf_price *price = &plan->policy->models[i].price;
        uint64_t tokens;
        uint64_t cost;
        /* HF_UNKNOWN, no longest output, is above every output */
        if (i != row->model && row->max_output_tokens <= price->max_output_tokens &&
            hf_price_worst(price, row->input_tokens, row->max_output_tokens, &tokens, &cost) &&
            cost < least) {
            least = cost;
            economy = i;
        }
    }
    return economy;
}

static void apply_rule(const struct hf_replay_plan *plan, uint64_t i, const struct hf_trace_row *from,
                       struct hf_replay_row *row)
{
    row->at_ns = from->at_ns;
    row->input_tokens = from->input_tokens;
    row->output_tokens = from->output_tokens;
    row->failed = from->failed;
    row->path = plan->paths_cnt == 0 ? 0 : (uint32_t)(spread(plan->seed, i, "path") % plan->paths_cnt);
    row->model = model_of(plan, from->model, i);
    row->max_output_tokens = longest_output(plan, row);
    row->economy = economy_of(plan, row);
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static void bad_row(void *context, uint64_t line, const char *reason)
{
    (void)fprintf(stderr, "holdfast replay: %s:%" PRIu64 ": %s; row skipped\n", (const char *)context, line,
                  reason);
}

static bool grow(struct hf_replay_plan *plan, uint64_t *room)
{
    if (plan->rows_cnt < *room) {
        return true;
    }
    uint64_t more = *room == 0 ? 4096 : *room * 2;
    struct hf_replay_row *rows = realloc(plan->rows, more * sizeof *rows);
    if (rows == NULL) {
        return false;
    }
    plan->rows = rows;
    *room = more;
    return true;
}

static int read_rows(struct hf_trace *trace, const char *name, struct hf_replay_plan *plan)
{
    struct hf_trace_row from;
    uint64_t room = 0;
    int rc;
    while ((rc = hf_trace_next(trace, &from)) == 0) {
        if (!grow(plan, &room)) {
            return hf_command_fail("replay", HF_EXIT_USAGE, "out of memory for the rows of %s", name);
        }
        apply_rule(plan, plan->rows_cnt, &from, &plan->rows[plan->rows_cnt]);
        plan->rows_cnt++;
    }
    plan->skipped_cnt = hf_trace_counts(trace).skipped_cnt;
    if (rc != HF_TRACE_END) {
        return hf_command_fail("replay", HF_EXIT_USAGE, "%s cannot be read: %s", name, strerror(-rc));
    }
    return 0;
}

int hf_replay_plan_make(const char *trace_path, const struct hf_policy *policy, uint64_t seed,
                        struct hf_replay_plan *plan)
{
    struct hf_trace *trace;
    char why[512];
    char name[512];
    memset(plan, 0, sizeof *plan);
    plan->policy = policy;
    plan->seed = seed;
    if (!make_paths(plan)) {
        return hf_command_fail("replay", HF_EXIT_USAGE, "out of memory");
    }
    if (plan->paths_cnt == 0) {
        return hf_command_fail("replay", HF_EXIT_USAGE,
                               "the policy has no team with a capability to replay on");
    }
    (void)snprintf(name, sizeof name, "%s", trace_path);
    if (hf_trace_open(&trace, trace_path, bad_row, name, why, sizeof why) != 0) {
        return hf_command_fail("replay", HF_EXIT_USAGE, "%s", why);
    }
    int status = read_rows(trace, name, plan);
    hf_trace_close(trace);
    return status;
}

void hf_replay_plan_free(struct hf_replay_plan *plan)
{
    free(plan->rows);
    free(plan->paths);
}

void hf_replay_actual(const struct hf_replay_plan *plan, const struct hf_replay_row *row, bool degraded,
                      uint64_t *tokens, uint64_t *cost)
{
    uint32_t model = degraded ? row->economy : row->model;
    *tokens = *cost = HF_UNKNOWN;
    if (model != HF_REPLAY_NO_MODEL) {
        (void)hf_price_actual(&plan->policy->models[model].price, row->input_tokens, 0, 0, row->output_tokens,
                              tokens, cost);
    }
}

/* ---- ids ---------------------------------------------------------------------------------------------------- */

static void id_start(const struct hf_replay_run *run, char text[40])
{
    (void)snprintf(text, 40, "r%" PRIu64 "-%" PRIx64 "-", run->options.seed, run->shared->start_ns);
}

void hf_replay_id(const struct hf_replay_run *run, uint64_t row, char id[64])
{
    char start[40];
    id_start(run, start);
    (void)snprintf(id, 64, "%s%" PRIu64, start, row);
}

uint64_t hf_replay_row_of(const struct hf_replay_run *run, const char *id)
{
    char start[40];
    id_start(run, start);
    size_t len = strlen(start);
    if (strncmp(id, start, len) != 0) {
        return UINT64_MAX;
    }
    char *end;
    uint64_t row = strtoull(id + len, &end, 10);
    return *end == '\0' && row < run->plan.rows_cnt ? row : UINT64_MAX;
}
