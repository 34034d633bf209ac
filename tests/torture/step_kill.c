/* Killed at every instruction: after a kill anywhere in an operation, a survivor finds it done or not done, whole. */
#include "tests/torture/step_grid.h"
#include "tests/torture/step_ops.h"

#include <string.h>

#define SAMPLE    10U
#define TEXT_CNT  2U /* after the survivor's work, after reaping */
#define TEXT_SIZE ((size_t)TEXT_CNT * HF_WORLD_TEXT_BYTES)

struct kill_test {
    struct hf_grid grid;
    struct hf_world world;
    struct hf_step_profile profile;
    uint32_t points[HF_STEP_MOST];
    const struct hf_step_op *op;
    char not_done[TEXT_CNT][HF_WORLD_TEXT_BYTES];
    char done[TEXT_CNT][HF_WORLD_TEXT_BYTES];
    char repeated[HF_WORLD_TEXT_BYTES];
    char found[TEXT_CNT][HF_WORLD_TEXT_BYTES];
};

/* The survivor works on (or the daemon cleans up before), the daemon cleans up, time passes, the survivor reaps. Returns how many rules are broken. */
static uint32_t go_on(struct kill_test *test, bool daemon_first, char text[TEXT_CNT][HF_WORLD_TEXT_BYTES])
{
    struct hf_world *world = &test->world;
    char answer[512];
    char id[16];
    uint32_t broken = 0;

    if (daemon_first) {
        hf_world_tidy(world);
    }
    hf_world_take_marks(world);
    hf_step_work(world, world->me, answer, sizeof(answer));
    broken += strstr(answer, "refused") != NULL || strstr(answer, "FAULT") != NULL;
    hf_step_chain_id(world->seg, 9, id);
    hf_step_reserve(world->me, id, "t", "u", NULL, 1, 1, HF_WORLD_LONG_TTL, answer, sizeof(answer));
    broken += strncmp(answer, "ok ", 3) != 0;
    broken += hf_world_unmarked(world);
    hf_world_tidy(world);
    broken += hf_world_text(world, text[0]);
    hf_world_reap(world, 20000);
    hf_world_tidy(world);
    broken += hf_world_text(world, text[1]);
    return broken;
}

/* The survivor repeats the operation instead. */
static uint32_t repeat(struct kill_test *test, char text[HF_WORLD_TEXT_BYTES])
{
    struct hf_world *world = &test->world;
    char answer[512];
    size_t word = strcspn(test->op->expect, " ");

    test->op->act(world, world->me, answer, sizeof(answer));
    uint32_t broken = strncmp(answer, test->op->expect, word) != 0;

    hf_world_tidy(world);
    return broken + hf_world_text(world, text);
}

static bool same(char a[TEXT_CNT][HF_WORLD_TEXT_BYTES], char b[TEXT_CNT][HF_WORLD_TEXT_BYTES])
{
    return strcmp(a[0], b[0]) == 0 && strcmp(a[1], b[1]) == 0;
}

/* What it is when it did not happen, when it did, and when it was repeated. */
static void references(struct kill_test *test)
{
    struct hf_actor actor;
    struct hf_world *world = &test->world;

    hf_world_restore(world);
    if (go_on(test, false, test->not_done) != 0) {
        hf_grid_violation(&test->grid, "%s: without the operation\n%s", test->op->name, test->not_done[0]);
    }
    hf_actor_profile(&actor, world, test->op->act, &test->profile);
    if (strncmp(hf_actor_answer(&actor), test->op->expect, strlen(test->op->expect)) != 0) {
        hf_grid_violation(&test->grid, "%s: undisturbed it answers %s, not %s", test->op->name,
                          hf_actor_answer(&actor), test->op->expect);
    }
    hf_step_kill(&actor.proc);
    hf_world_save_crash(world);
    if (go_on(test, false, test->done) != 0) {
        hf_grid_violation(&test->grid, "%s: after the operation\n%s", test->op->name, test->done[0]);
    }
    hf_world_restore_crash(world);
    if (test->op->repeats && repeat(test, test->repeated) != 0) {
        hf_grid_violation(&test->grid, "%s: repeated after the operation\n%s", test->op->name,
                          test->repeated);
    }
}

/* 1: it happened, 0: not, or no difference. */
static bool happened(struct kill_test *test, uint32_t n, bool daemon_first)
{
    uint32_t broken = go_on(test, daemon_first, test->found);
    bool not_done = same(test->found, test->not_done);

    if (broken != 0 || (!not_done && !same(test->found, test->done))) {
        hf_grid_violation(
            &test->grid,
            "%s, killed after %u instructions: %u rules broken, or neither done nor not done. To not "
            "done:\n%s",
            test->op->name, n, broken, hf_world_diff(test->not_done[0], test->found[0]));
        (void)printf("  after reaping, to done:\n%s", hf_world_diff(test->done[1], test->found[1]));
    }
    return !not_done;
}

/* Kills after n instructions: whoever comes first then, the survivor, the daemon or a repetition. 1: it happened. */
static bool kill_at(struct kill_test *test, uint32_t n)
{
    struct hf_actor actor;
    struct hf_world *world = &test->world;
    char text[HF_WORLD_TEXT_BYTES];

    hf_actor_restart_at(&actor, world, test->op->act, &test->profile, n);
    hf_step_kill(&actor.proc);
    hf_world_save_crash(world);
    bool done = happened(test, n, false);

    hf_world_restore_crash(world);
    if (happened(test, n, true) != done) {
        hf_grid_violation(&test->grid, "%s, killed after %u instructions: done or not by who comes first",
                          test->op->name, n);
    }
    hf_world_restore_crash(world);
    if (test->op->repeats && (repeat(test, text) != 0 || strcmp(text, test->repeated) != 0)) {
        hf_grid_violation(&test->grid, "%s, killed after %u instructions: a repetition comes to\n%s",
                          test->op->name, n, hf_world_diff(test->repeated, text));
    }
    test->grid.crash_points++;
    return done;
}

static void one(struct kill_test *test)
{
    hf_world_reset(&test->world);
    test->op->prepare(&test->world);
    hf_world_keep(&test->world);
    references(test);
    hf_grid_begin(&test->grid, test->op->name);
    uint32_t cnt = hf_grid_points(&test->grid, &test->profile, SAMPLE, test->points);
    uint32_t switches = 0;
    uint32_t where = 0;
    bool before = false;

    for (uint32_t i = 0; i < cnt; i++) {
        bool done = kill_at(test, test->points[i]);

        if (done != before) {
            switches++;
            where = test->points[i];
        }
        before = done;
    }
    bool differs = !same(test->done, test->not_done);

    if (switches != (differs ? 1U : 0U)) {
        hf_grid_violation(&test->grid, "%s: from 'did not happen' to 'happened' %u times", test->op->name,
                          switches);
    }
    (void)printf("%-16s %4u instructions, %3u accesses, %3u changes; killed at %4u points; ", test->op->name,
                 test->profile.last - test->profile.first + 1U, test->profile.accesses_cnt,
                 test->profile.changes_cnt, cnt);
    if (differs) {
        (void)printf("happens by instruction %u\n", where - test->profile.first);
    } else {
        (void)printf("no difference\n");
    }
}

int main(void)
{
    struct kill_test *test = hf_world_room(sizeof(*test));

    hf_grid_open(&test->grid, "step_kill");
    hf_world_make(&test->world);
    for (uint32_t i = 0; i < hf_step_ops_cnt; i++) {
        test->op = &hf_step_ops[i];
        if (test->grid.only == NULL || strcmp(test->grid.only, test->op->name) == 0) {
            one(test);
        }
    }
    hf_world_free(&test->world);
    int status = hf_grid_close(&test->grid);

    hf_world_room_free(test, sizeof(*test));
    return status;
}
