#include "bench/world_impl.h"

#include "core/policy.h"
#include "core/policy_compile.h"
#include "shm/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define TENANTS_MAX 200000U

/* ---- the policy --------------------------------------------------------------------------------------------------------- */

/* The limits of a layer. last: what its last limit leaves. */
static int limits_text(char *to, size_t bytes, uint32_t k, uint64_t last)
{
    const uint64_t most = HF_SHM_AMOUNT_MAX;

    if (k <= 2) {
        return snprintf(to, bytes, "[{window: month, cost_micros: %llu}]", (unsigned long long)last);
    }
    if (k == 4) {
        return snprintf(to, bytes, "[{window: day, cost_micros: %llu}, {window: month, cost_micros: %llu}]",
                        (unsigned long long)most, (unsigned long long)last);
    }
    return snprintf(to, bytes,
                    "[{window: day, tokens: %llu, cost_micros: %llu}, {window: month, tokens: %llu, "
                    "cost_micros: %llu}]",
                    (unsigned long long)most, (unsigned long long)most, (unsigned long long)most,
                    (unsigned long long)last);
}

static void tenant_text(FILE *out, const struct hf_world_plan *plan, uint32_t tenant)
{
    /* A cap on tokens would ask each request for its tokens. */
    const char *capability = plan->k == 8
                                 ? "capabilities: [{id: answer, cap_micros: 1000000, cap_tokens: 1000000}]"
                                 : "capabilities: [{id: answer, cap_micros: 1000000}]";
    char name[HF_WORLD_TENANT_BYTES];
    char limits[256];
    char none[256];

    hf_world_tenant(tenant, name);
    (void)limits_text(limits, sizeof(limits), plan->k, HF_SHM_AMOUNT_MAX);
    (void)limits_text(none, sizeof(none), plan->k, 0);
    (void)fprintf(out, "  - id: %s\n    allow_overcommit: true\n", name);
    if (plan->k > 1) {
        (void)fprintf(out, "    limits: %s\n", limits);
    }
    (void)fprintf(out, "    teams:\n      - {id: app, limits: %s, %s}\n", limits, capability);
    if (plan->refusals != 0) {
        (void)fprintf(out, "      - {id: none, limits: %s, %s}\n", none, capability);
    }
}

char *hf_world_policy_text(const struct hf_world_plan *plan, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);

    if (out == NULL) {
        return NULL;
    }
    (void)fprintf(out, "version: 1\ncurrency: EUR\n"
                       "prices: {revision: '1', models: [{id: m, input_micros_per_mtok: 1000000,"
                       " output_micros_per_mtok: 2000000, max_output_tokens: 4096}]}\n"
                       "tenants:\n");
    for (uint32_t t = 0; t < plan->tenants; t++) {
        tenant_text(out, plan, t);
    }
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static struct hf_policy *load_policy(const struct hf_world_plan *plan, char *error, size_t error_bytes)
{
    struct hf_policy_report report = {0};
    struct hf_policy *policy = NULL;
    size_t bytes = 0;
    char *text = hf_world_policy_text(plan, &bytes);

    if (text == NULL || hf_policy_load_bytes("bench", text, bytes, 0, &policy, &report) != HF_POLICY_LOADED) {
        (void)snprintf(error, error_bytes, "the policy of the benchmark: line %u: %s",
                       report.problem_cnt > 0 ? report.problems[0].line : 0,
                       report.problem_cnt > 0 ? report.problems[0].message : "out of memory");
    }
    hf_policy_report_free(&report);
    free(text);
    return policy;
}

/* ---- making ------------------------------------------------------------------------------------------------------------- */

/* Shared with children, zeroed, every page there. NULL: no memory. */
static void *shared(size_t bytes)
{
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static int make_segment(struct hf_world *world, const struct hf_policy *policy, struct hf_error *err)
{
    static const uint8_t digest[32];
    struct timespec now;
    struct hf_segment_plan plan = {.slots = world->plan.slots,
                                   .owners = world->plan.workers + 4,
                                   .replay_horizon_ms = 60000,
                                   .late_horizon_ms = 3600000,
                                   .max_lag_ms = 30000,
                                   .epoch = 1,
                                   .mode = 0600,
                                   .group = (gid_t)-1,
                                   .store_name = "bench",
                                   .store_url = ""};
    int rc = hf_policy_plan(policy, &plan, err);

    if (rc == HF_OK) {
        rc = hf_segment_create_anonymous(&plan, &world->map, err);
    }
    if (rc == HF_OK) {
        rc = hf_policy_compile(policy, digest, 1, &world->map, err);
        (void)clock_gettime(CLOCK_REALTIME, &now);
        hf_clock_publish(&world->map, (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000,
                         hf_clock_mono_fine_ms(), 1);
        hf_world_pulse(world);
        hf_segment_set_state(&world->map, HF_SEGMENT_READY);
    }
    return rc;
}

static const char *wrong_plan(const struct hf_world_plan *plan)
{
    if (plan->k != 1 && plan->k != 2 && plan->k != 4 && plan->k != 8) {
        return "k is 1, 2, 4 or 8 buckets";
    }
    if (plan->tenants == 0 || plan->tenants > TENANTS_MAX) {
        return "a world has 1 to 200000 tenants";
    }
    return plan->slots == 0 || plan->workers == 0 ? "a world has slots and workers" : NULL;
}

struct hf_world *hf_world_make(const struct hf_world_plan *plan, char *error, size_t error_bytes)
{
    struct hf_error err = {0};
    const char *wrong = wrong_plan(plan);
    struct hf_world *world = wrong == NULL ? shared(sizeof(*world)) : NULL;
    struct hf_policy *policy;

    if (world == NULL) {
        (void)snprintf(error, error_bytes, "%s", wrong != NULL ? wrong : "out of memory");
        return NULL;
    }
    world->plan = *plan;
    policy = load_policy(plan, error, error_bytes);
    if (policy == NULL) {
        hf_world_free(world);
        return NULL;
    }
    int rc = make_segment(world, policy, &err);
    hf_policy_free(policy);
    if (rc == HF_OK) {
        world->accounts_bytes = world->map.rows_cnt * sizeof(*world->accounts);
        world->accounts = shared(world->accounts_bytes);
        world->word_seqs = calloc(world->map.tenants_cnt, sizeof(*world->word_seqs));
    }
    if (world->accounts == NULL || world->word_seqs == NULL) {
        (void)snprintf(error, error_bytes, "%s", rc != HF_OK ? err.text : "out of memory");
        hf_world_free(world);
        return NULL;
    }
    return world;
}

void hf_world_free(struct hf_world *world)
{
    if (world == NULL) {
        return;
    }
    if (world->accounts != NULL) {
        (void)munmap(world->accounts, world->accounts_bytes);
    }
    free(world->word_seqs);
    if (world->map.base != NULL) {
        hf_segment_detach(&world->map);
    }
    (void)munmap(world, sizeof(*world));
}

/* ---- looking ------------------------------------------------------------------------------------------------------------ */

void hf_world_tenant(uint32_t tenant, char name[HF_WORLD_TENANT_BYTES])
{
    (void)snprintf(name, HF_WORLD_TENANT_BYTES, "tenant-%06u", tenant % (TENANTS_MAX + 1U));
}

uint64_t hf_world_bytes(const struct hf_world *world, int without_slots)
{
    const struct hf_shm_region *regions = world->map.header->hdr_regions;
    uint64_t slots = 0;

    for (int i = 0; i < HF_REGION_CNT && without_slots != 0; i++) {
        if (i == HF_REGION_SLOTS || i == HF_REGION_HEADS || i == HF_REGION_CHUNKS) {
            slots += (uint64_t)regions[i].reg_cnt * regions[i].reg_stride;
        }
    }
    return world->map.size_bytes - slots;
}
