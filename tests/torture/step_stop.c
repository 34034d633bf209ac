/* Stopped at every instruction: meanwhile another process does its own work on the same tenant in a bounded number of
 * instructions; when the first one goes on, both answers and all sums are those of one order or the other. */
#include "shm/atomic.h"
#include "tests/torture/step_grid.h"
#include "tests/torture/step_ops.h"

#include <string.h>

#define POINTS      10U    /* of a pair of operations, without HOLDFAST_LONG */
#define COUNTED     1U     /* of these, with the other's instructions counted */
#define COUNT_EVERY 50U    /* with HOLDFAST_LONG: one of so many */
#define BOUND       16000U /* no operation of the other takes more, whoever is stopped where */
#define ANSWER      512U

/* What came out of one run. */
struct outcome {
    char first[ANSWER];
    char other[ANSWER];
    char text[HF_WORLD_TEXT_BYTES];
};

struct stop_test {
    struct hf_grid grid;
    struct hf_world world;
    struct hf_step_profile profile;
    uint32_t points[HF_STEP_MOST];
    const struct hf_step_op *op;
    hf_step_act *other;
    uint32_t other_idx;
    uint32_t steps_undisturbed;
    uint32_t steps_most;
    struct outcome after;  /* the first goes on after the other */
    struct outcome before; /* the first was through */
    struct outcome alone;  /* the other does nothing */
    struct outcome found;
};

static bool same(const struct outcome *a, const struct outcome *b)
{
    return strcmp(a->first, b->first) == 0 && strcmp(a->other, b->other) == 0 &&
           strcmp(a->text, b->text) == 0;
}

/* The other one as a process of its own, its instructions counted. */
static uint32_t other_counted(struct stop_test *test, struct outcome *out)
{
    struct hf_actor other;

    hf_actor_start(&other, &test->world, test->other, 1);
    while (!other.proc.over && hf_load_rlx_u8((const uint8_t *)hf_actor_answer(&other)) == 0 &&
           other.proc.steps <= HF_STEP_MOST) {
        hf_step_run(&other.proc, 1);
    }
    uint32_t steps = other.proc.steps;

    if (!hf_step_finish(&other.proc)) {
        hf_grid_violation(&test->grid, "%s: the other one does not come to an end", test->op->name);
    }
    memcpy(out->other, hf_actor_answer(&other), ANSWER);
    hf_step_kill(&other.proc);
    return steps;
}

/* Stops after n instructions, lets the other work (or not), goes on. */
static void run(struct stop_test *test, uint32_t n, bool other, bool counted, struct outcome *out)
{
    struct hf_world *world = &test->world;
    struct hf_actor first;
    uint32_t steps = 0;

    memset(out, 0, sizeof(*out));
    hf_actor_restart_at(&first, world, test->op->act, &test->profile, n);
    if (other && counted) {
        steps = other_counted(test, out);
        test->steps_most = steps > test->steps_most ? steps : test->steps_most;
        if (steps > BOUND) {
            hf_grid_violation(&test->grid, "%s, stopped after %u instructions: the other one needed %u",
                              test->op->name, n, steps);
        }
    } else if (other) {
        test->other(world, world->me, out->other, sizeof(out->other));
    }
    hf_world_take_marks(world);
    if (!hf_step_finish(&first.proc)) {
        hf_grid_violation(&test->grid, "%s, stopped after %u instructions: it does not come to an end",
                          test->op->name, n);
    }
    memcpy(out->first, hf_actor_answer(&first), ANSWER);
    hf_step_kill(&first.proc);
    if (hf_world_unmarked(world) != 0) {
        hf_grid_violation(&test->grid, "%s, stopped after %u instructions, other %u: a change is not marked",
                          test->op->name, n, test->other_idx);
    }
    hf_world_tidy(world);
    if (hf_world_text(world, out->text) != 0) {
        hf_grid_violation(&test->grid, "%s, stopped after %u instructions, other %u: a rule is broken\n%s",
                          test->op->name, n, test->other_idx, out->text);
    }
}

/* 0: the other was first; 1: it was told to come again; 2: the first was first; neither tells: `last`. */
static uint32_t classify(struct stop_test *test, uint32_t n, uint32_t last)
{
    const struct outcome *found = &test->found;
    bool is_after = same(found, &test->after);
    bool is_before = same(found, &test->before);

    if (is_after && is_before) {
        return last;
    }
    if (is_after || is_before) {
        return is_before ? 2U : 0U;
    }
    if (strstr(found->other, "busy;") != NULL && strcmp(found->first, test->alone.first) == 0 &&
        strcmp(found->text, test->alone.text) == 0) {
        return 1U;
    }
    hf_grid_violation(
        &test->grid,
        "%s, stopped after %u instructions, other %u: answers %s and %s fit no order (%s and %s, or "
        "%s and %s)\n%s",
        test->op->name, n, test->other_idx, found->first, found->other, test->after.first, test->after.other,
        test->before.first, test->before.other, hf_world_diff(test->before.text, found->text));
    return last;
}

static void against(struct stop_test *test)
{
    /* Between two accesses to the segment a stop is the same for everybody else; so the work is done at every instruction, what is
     * against the operation at every access. */
    uint32_t cnt = test->grid.all && test->other_idx > 0
                       ? hf_grid_accesses(&test->grid, &test->profile, false, 0, test->points)
                       : hf_grid_points(&test->grid, &test->profile, POINTS, test->points);
    uint32_t last = 0;
    uint32_t busy = 0;

    run(test, test->profile.first, true, false, &test->after);
    run(test, test->profile.last + 1U, true, false, &test->before);
    run(test, test->profile.first, false, false, &test->alone);
    cnt = hf_grid_thin(&test->grid, test->points, cnt, POINTS);
    for (uint32_t i = 0; i < cnt; i++) {
        bool counted =
            test->other_idx == 0 &&
            (test->grid.all ? i % COUNT_EVERY == 0 : i % (POINTS / COUNTED) == POINTS / COUNTED - 1U);

        run(test, test->points[i], true, counted, &test->found);
        uint32_t class = classify(test, test->points[i], last);

        if (class < last) {
            hf_grid_violation(&test->grid, "%s, other %u: after %u instructions it is undone again",
                              test->op->name, test->other_idx, test->points[i]);
        }
        busy += class == 1U;
        last = class;
        test->grid.stops++;
    }
    (void)printf("  other %u: %4u stops, %3u times busy; first %s other %s, or first %s other %s\n",
                 test->other_idx, cnt, busy, test->after.first, test->after.other, test->before.first,
                 test->before.other);
}

/* How many instructions the work takes when nobody is stopped. */
static void undisturbed(struct stop_test *test)
{
    struct outcome out;

    hf_world_restore(&test->world);
    test->other = hf_step_work;
    uint32_t steps = other_counted(test, &out);

    test->steps_undisturbed = steps > test->steps_undisturbed ? steps : test->steps_undisturbed;
}

static void one(struct stop_test *test)
{
    struct hf_actor actor;

    hf_world_reset(&test->world);
    test->op->prepare(&test->world);
    hf_world_keep(&test->world);
    hf_grid_begin(&test->grid, test->op->name);
    undisturbed(test);
    hf_actor_profile(&actor, &test->world, test->op->act, &test->profile);
    hf_step_kill(&actor.proc);
    (void)printf("%s: %u instructions\n", test->op->name, test->profile.last - test->profile.first + 1U);
    test->other = hf_step_work;
    test->other_idx = 0;
    against(test);
    for (uint32_t i = 0; i < 4 && test->op->against[i] != NULL; i++) {
        test->other = test->op->against[i];
        test->other_idx = i + 1U;
        against(test);
    }
}

int main(void)
{
    struct stop_test *test = hf_world_room(sizeof(*test));

    hf_grid_open(&test->grid, "step_stop");
    hf_world_make(&test->world);
    for (uint32_t i = 0; i < hf_step_ops_cnt; i++) {
        test->op = &hf_step_ops[i];
        if (test->grid.only == NULL || strcmp(test->grid.only, test->op->name) == 0) {
            one(test);
        }
    }
    hf_world_free(&test->world);
    (void)printf(
        "bound: two reservations, a settlement and a release of the other process took at most %u instructions, "
        "%u when nobody was stopped\n",
        test->steps_most, test->steps_undisturbed);
    int status = hf_grid_close(&test->grid);

    hf_world_room_free(test, sizeof(*test));
    return status;
}
