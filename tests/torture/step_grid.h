/* Which points are tried, from a seed; what was counted. */
#ifndef HF_TESTS_STEP_GRID_H
#define HF_TESTS_STEP_GRID_H

#include "tests/torture/stepper.h"

#include <stdio.h>

struct hf_grid {
    bool all;      /* HOLDFAST_LONG=1: every point */
    uint64_t seed; /* HOLDFAST_SEED, else by the clock */
    uint64_t random;
    const char *program;
    const char *only; /* HOLDFAST_STEP_OP: one operation by name, or NULL */
    uint64_t crash_points;
    uint64_t stops;
    uint64_t pairs;
    uint64_t violations;
};

/* Reads the environment; when nothing can be stepped here, says so and ends with 77. Prints what is run. */
void hf_grid_open(struct hf_grid *grid, const char *program);

/* What is drawn from here on depends on the seed and this name alone. */
void hf_grid_begin(struct hf_grid *grid, const char *name);

/* The line of totals; the status to exit with. */
int hf_grid_close(const struct hf_grid *grid);

uint32_t hf_grid_random(struct hf_grid *grid, uint32_t below);

/* The points of a profile, in order: n stands for "after n instructions". From before the first access to after the last; all of
 * them, or those beside a change and `sample` others. points: room for HF_STEP_MOST. */
uint32_t hf_grid_points(struct hf_grid *grid, const struct hf_step_profile *profile, uint32_t sample,
                        uint32_t *points);

/* Without grid->all: `most` of them, drawn, in order. Returns how many are left. */
uint32_t hf_grid_thin(struct hf_grid *grid, uint32_t *points, uint32_t cnt, uint32_t most);

/* Before each access, and after the last: all there is to tell apart for others. Without grid->all `most` of them, drawn; with
 * `changes` from those just before and just after a change. */
uint32_t hf_grid_accesses(struct hf_grid *grid, const struct hf_step_profile *profile, bool changes,
                          uint32_t most, uint32_t *points);

/* Says a violation and how it is run again. */
void hf_grid_violation(struct hf_grid *grid, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
