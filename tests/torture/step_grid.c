#include "tests/torture/step_grid.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VIOLATIONS_SAID 10U

void hf_grid_open(struct hf_grid *grid, const char *program)
{
    const char *text = getenv("HOLDFAST_SEED");
    const char *why = hf_step_possible();
    const char *all = getenv("HOLDFAST_LONG");

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    memset(grid, 0, sizeof(*grid));
    grid->program = program;
    if (why != NULL) {
        (void)printf("skipped: %s\n", why);
        exit(77);
    }
    grid->all = all != NULL && strcmp(all, "1") == 0;
    grid->seed = text != NULL ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
    grid->random = grid->seed | 1U;
    grid->only = getenv("HOLDFAST_STEP_OP");
    (void)printf("%s: %s, seed %" PRIu64 " (again: HOLDFAST_SEED=%" PRIu64 "%s)\n", program,
                 grid->all ? "every point" : "a seeded part of the points", grid->seed, grid->seed,
                 grid->all ? " HOLDFAST_LONG=1" : "");
}

void hf_grid_begin(struct hf_grid *grid, const char *name)
{
    uint64_t random = grid->seed;

    for (; *name != '\0'; name++) {
        random = (random ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
    }
    grid->random = random * UINT64_C(0x9e3779b97f4a7c15) | 1U;
}

int hf_grid_close(const struct hf_grid *grid)
{
    (void)printf("totals: crash points %" PRIu64 ", stops %" PRIu64 ", pairs %" PRIu64 ", violations %" PRIu64
                 "\n",
                 grid->crash_points, grid->stops, grid->pairs, grid->violations);
    return grid->violations == 0 ? 0 : 1;
}

uint32_t hf_grid_random(struct hf_grid *grid, uint32_t below)
{
    grid->random ^= grid->random << 13;
    grid->random ^= grid->random >> 7;
    grid->random ^= grid->random << 17;
    return (uint32_t)((grid->random >> 16) % below);
}

/* Marks `most` of the points that are not marked yet. */
static void draw(struct hf_grid *grid, uint8_t *wanted, uint32_t from, uint32_t to, uint32_t most)
{
    for (uint32_t i = 0; i < most; i++) {
        wanted[from + hf_grid_random(grid, to - from + 1U)] = 1;
    }
}

uint32_t hf_grid_points(struct hf_grid *grid, const struct hf_step_profile *profile, uint32_t sample,
                        uint32_t *points)
{
    static uint8_t wanted[HF_STEP_MOST + 2U];
    uint32_t cnt = 0;
    uint32_t last = profile->last + 1U;

    memset(wanted, grid->all ? 1 : 0, sizeof(wanted));
    wanted[profile->first] = wanted[last] = 1;
    for (uint32_t i = profile->first; i < last; i++) {
        if (profile->at[i].changes) {
            wanted[i] = wanted[i + 1U] = 1;
        }
    }
    draw(grid, wanted, profile->first, last, sample);
    for (uint32_t i = profile->first; i <= last; i++) {
        if (wanted[i] != 0) {
            points[cnt++] = i;
        }
    }
    return cnt;
}

uint32_t hf_grid_thin(struct hf_grid *grid, uint32_t *points, uint32_t cnt, uint32_t most)
{
    uint32_t kept = 0;

    if (grid->all || cnt <= most) {
        return cnt;
    }
    for (uint32_t i = 0; i < cnt; i++) {
        if (hf_grid_random(grid, cnt - i) < most - kept) {
            points[kept++] = points[i];
        }
    }
    return kept;
}

uint32_t hf_grid_accesses(struct hf_grid *grid, const struct hf_step_profile *profile, bool changes,
                          uint32_t most, uint32_t *points)
{
    uint32_t cnt = 0;
    bool changed = false; /* by the access before */

    for (uint32_t i = profile->first; i <= profile->last; i++) {
        const struct hf_step_at *at = &profile->at[i];

        if (at->accesses && (grid->all || !changes || at->changes || changed)) {
            points[cnt++] = i;
        }
        changed = at->accesses ? at->changes : changed;
    }
    points[cnt++] = profile->last + 1U;
    return hf_grid_thin(grid, points, cnt, most);
}

void hf_grid_violation(struct hf_grid *grid, const char *format, ...)
{
    va_list args;

    if (grid->violations++ >= VIOLATIONS_SAID) {
        return;
    }
    (void)printf("VIOLATION: ");
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)printf("\n  again: HOLDFAST_SEED=%" PRIu64 "%s %s\n", grid->seed,
                 grid->all ? " HOLDFAST_LONG=1" : "", grid->program);
}
