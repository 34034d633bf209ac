#include "tests/stress/board.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct stress_config configs[] = {
    {"small_hot", 64, 2, true, 400, 16000, 80000, 3000, 9000, 2500},
    {"small_many", 64, 24, false, 24, 900, 5000, 3000, 9000, 2500},
    {"large_hot", 64000, 2, true, 1200, 48000, 250000, 60000, 300000, 25000},
    {"large_many", 64000, 24, false, 64, 2400, 13000, 60000, 300000, 25000},
};

const struct stress_config *stress_config(uint32_t idx)
{
    return idx < sizeof(configs) / sizeof(configs[0]) ? &configs[idx] : NULL;
}

static void write_limits(FILE *out, const struct stress_config *config, uint64_t part)
{
    (void)fprintf(
        out,
        "limits: [{window: minute, invocations: %" PRIu64 ", tokens: %" PRIu64 ", cost_micros: %" PRIu64
        "}, {window: day, invocations: 900000000}, {window: lifetime, cost_micros: 900000000000000}]\n",
        config->minute_invocations * part / 8, config->minute_tokens * part / 8,
        config->minute_micros * part / 8);
}

/* Shares add up to more than the tenant's total, so that every layer refuses at times. */
bool stress_policy_write(const struct stress_config *config, const char *path)
{
    FILE *out = fopen(path, "we");

    if (out == NULL) {
        return false;
    }
    (void)fprintf(out, "version: 1\ncurrency: EUR\nprices: {revision: '1', models: []}\ntenants:\n");
    for (uint32_t i = 0; i < config->tenants; i++) {
        const char *caps = "        capabilities: [{id: c, cap_micros: 5000, cap_tokens: 5000}]\n";

        (void)fprintf(out, "  - id: t%" PRIu32 "\n    allow_overcommit: true\n", i);
        (void)fprintf(out, "    on_expiry: %s\n    on_overage: %s\n    ",
                      stress_strict(i) ? "retain" : "release", stress_strict(i) ? "fail" : "record");
        write_limits(out, config, 8);
        (void)fprintf(out, "    teams:\n      - id: a\n        ");
        write_limits(out, config, 6);
        (void)fprintf(out,
                      "%s%s        keys: [{id: k, limits: [{window: minute, invocations: %" PRIu64 "}]}]\n",
                      stress_strict(i) ? "" : "        on_expiry: retain_dispatched\n", caps,
                      config->minute_invocations / 4 + 1);
        (void)fprintf(out,
                      "      - id: b\n        on_limit: degrade\n        overdraft_micros: 300\n        ");
        write_limits(out, config, 4);
        (void)fprintf(out, "%s", caps);
    }
    return fclose(out) == 0;
}

struct stress_board *stress_board_map(const char *folder, bool make)
{
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/board", folder);
    int fd = open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT | O_EXCL : 0), 0600);

    if (fd < 0 || (make && ftruncate(fd, (off_t)sizeof(struct stress_board)) != 0)) {
        return NULL;
    }
    void *at = mmap(NULL, sizeof(struct stress_board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    (void)close(fd);
    return at == MAP_FAILED ? NULL : at;
}

/* ---- decisions ----------------------------------------------------------------------------------------------- */

uint64_t stress_mix(uint64_t a, uint64_t b)
{
    uint64_t x = a + UINT64_C(0x9e3779b97f4a7c15) * (b + 1);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t stress_draw(uint64_t *random, uint64_t below)
{
    *random += UINT64_C(0x9e3779b97f4a7c15);
    return (stress_mix(*random, 7) >> 16) % below;
}

uint64_t stress_id_pack(struct stress_id id)
{
    return (uint64_t)(id.place + 1) << 48 | (uint64_t)(id.life & 0xffffffffU) << 16 | (id.n & 0xffffU);
}

struct stress_id stress_id_unpack(uint64_t packed)
{
    return (struct stress_id){(uint32_t)(packed >> 48) - 1, (uint32_t)(packed >> 16),
                              (uint32_t)(packed & 0xffffU)};
}

void stress_id_text(uint64_t packed, char text[32])
{
    struct stress_id id = stress_id_unpack(packed);

    (void)snprintf(text, 32, "p%" PRIu32 "-%" PRIu32 "-%" PRIu32, id.place, id.life, id.n);
}

bool stress_id_parse(const char *text, uint64_t *packed)
{
    struct stress_id id;
    char again[32];
    char *end = NULL;

    if (text[0] != 'p') {
        return false;
    }
    id.place = (uint32_t)strtoul(text + 1, &end, 10);
    id.life = *end == '-' ? (uint32_t)strtoul(end + 1, &end, 10) : 0;
    id.n = *end == '-' ? (uint32_t)strtoul(end + 1, &end, 10) : 0;
    *packed = stress_id_pack(id);
    stress_id_text(*packed, again);
    return strcmp(again, text) == 0;
}

void stress_request(const struct stress_board *board, uint64_t id, struct stress_request *request)
{
    const struct stress_config *config = stress_config(board->config);
    uint64_t random = stress_mix(board->seed ^ UINT64_C(0x1d), id);

    if (config->hot) {
        request->tenant_idx = stress_draw(&random, 10) < 8 ? 0 : 1;
    } else {
        request->tenant_idx = (uint32_t)stress_draw(&random, config->tenants);
    }
    (void)snprintf(request->tenant, sizeof(request->tenant), "t%" PRIu32, request->tenant_idx);
    request->team = stress_draw(&random, 3) < 2 ? "a" : "b";
    request->key = request->team[0] == 'a' && stress_draw(&random, 3) == 0 ? "k" : NULL;
    request->tokens = stress_draw(&random, 80);
    request->cost = 10 + stress_draw(&random, 400);
    request->economy = stress_draw(&random, 2) == 0 ? 1 + stress_draw(&random, 60) : HOLDFAST_UNKNOWN;
    request->ttl_ms = 300 + stress_draw(&random, config->ttl_max_ms);
}

bool stress_usage(const struct stress_request *request, uint32_t variant, struct holdfast_usage *usage)
{
    holdfast_usage_init(usage, 0, 0);
    switch (variant) {
    case 0: /* below */
        usage->input_tokens = request->tokens / 3;
        usage->output_tokens = request->tokens / 4;
        usage->cost_micros = request->cost / 2;
        return true;
    case 1: /* what was asked for */
        usage->input_tokens = request->tokens;
        usage->cost_micros = request->cost;
        return true;
    case 2: /* above */
        usage->input_tokens = request->tokens;
        usage->output_tokens = 7;
        usage->cost_micros = 2 * request->cost + 1;
        return true;
    default:
        return false;
    }
}

void stress_totals(const struct stress_request *request, uint32_t variant, uint64_t *tokens, uint64_t *cost)
{
    *tokens = request->tokens + 3 * variant;
    *cost = request->cost + 40 * variant;
}

/* ---- the log --------------------------------------------------------------------------------------------------- */

void stress_wrong(struct stress_board *board, const char *format, ...)
{
    /* plain: counted, never decided on before the end. */
    uint32_t n = hf_add_acqrel_u32(&board->violations, 1); /* relaxed: a count */
    va_list args;

    if (n < 8) {
        va_start(args, format);
        (void)vsnprintf(board->texts[n], sizeof(board->texts[n]), format, args);
        va_end(args);
        (void)fprintf(stderr, "WRONG: %s\n", board->texts[n]);
    }
}

struct stress_rec *stress_intent(struct stress_board *board, uint32_t region, enum stress_op op, uint64_t id,
                                 uint32_t variant)
{
    uint32_t n = board->used[region];

    if (n >= STRESS_RECS_MAX) {
        return NULL;
    }
    struct stress_rec *rec = &board->recs[region][n];

    *rec = (struct stress_rec){.id = id, .op = (uint8_t)op, .variant = (uint8_t)variant};
    hf_fence_rel(); /* plain: read when this process is gone */
    board->used[region] = n + 1;
    hf_fence_rel(); /* plain: likewise, before the call */
    return rec;
}

void stress_answer(struct stress_rec *rec)
{
    hf_fence_rel(); /* plain: read when this process is gone */
    rec->answered = 1;
}
