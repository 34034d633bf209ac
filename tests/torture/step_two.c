/* Two levels: one process is stopped in its operation, a helper is stopped or killed in the middle of helping, the first one's
 * slot is closed, persisted, freed and filled again on another tenant whose sequence is far away; then they go on. At every second
 * place it is freed without a look at W, which the third has seen to go on from it. */
#include "tests/torture/step_grid.h"
#include "tests/torture/step_ops.h"

#include "core/slot.h"
#include "persist/retire.h"
#include "persist/snapshot.h"

#include <inttypes.h>
#include <string.h>

#define FIRST_POINTS  8U /* of an operation, without HOLDFAST_LONG */
#define HELPER_POINTS 7U /* of the helper, for each of these */
#define MODES         5U
#define REFS          3U
#define ANSWER        512U

struct two_case {
    const char *name;
    void (*prepare)(struct hf_world *world);
    hf_step_act *first;
    hf_step_act *closer; /* how the third closes `a`, if it is open */
};

static const struct two_case cases[] = {
    {"release", hf_step_found_open, hf_step_release_a, hf_step_release_a},
    {"expire", hf_step_found_due, hf_step_reap, hf_step_reap},
    {"dispatch", hf_step_found_open, hf_step_dispatch_a, hf_step_settle_a},
    {"settle", hf_step_found_due, hf_step_settle_a, hf_step_reap},
    {"extend", hf_step_found_open, hf_step_extend_a, hf_step_release_a},
    {"reserve", hf_step_found_base, hf_step_reserve_a, hf_step_release_a},
};

/* Sequences of the tenants t and z. */
static const uint64_t far[][2] = {{1, UINT64_C(1) << 40}, {UINT64_C(1) << 40, 1}};

static const char *const mode_names[MODES] = {
    "slot reused, helper goes on, first goes on", "slot reused, first goes on, helper goes on",
    "first goes on, slot reused, helper goes on", "slot reused, helper killed, first goes on",
    "helper goes on, slot reused, first goes on"};

struct outcome {
    char first[ANSWER];
    char helper[ANSWER];
    char text[HF_WORLD_TEXT_BYTES];
};

struct two_test {
    struct hf_grid grid;
    struct hf_world world;
    struct hf_step_profile first_profile;
    struct hf_step_profile helper_profile;
    uint32_t first_points[HF_STEP_MOST];
    uint32_t helper_points[HF_STEP_MOST];
    const struct two_case *cas;
    struct hf_actor first;
    struct hf_actor helper;
    bool keep; /* the third closes, but does not free */
    bool finishing;
    bool reused;
    bool unseen; /* `a` is to be freed without a look at W, if its state allows */
    bool passed; /* pass_by() is done */
    uint64_t reused_cnt;
    uint64_t unseen_cnt; /* `a` freed without a look at W, while first and helper stood */
    uint64_t unseen_all; /* in all cases */
    struct outcome refs[REFS];
    struct outcome found;
};

/* ---- the third -------------------------------------------------------------------------------------------------- */

static uint32_t slot_of_a(const struct hf_world *world)
{
    const struct hf_segment *seg = world->seg;

    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        struct hf_u128 st = hf_commit_read_st(&seg->slots[i]);

        if (hf_snapshot_final(hf_st_state(st)) && hf_st_state(st) != HF_STATE_CREDIT &&
            hf_slot_text_is(seg->slots[i].slot_id, seg->slots[i].slot_id_bytes, "a", 1)) {
            return i;
        }
    }
    return HF_SHM_NONE;
}

/* A reservation of tenant z, in the slot that was freed just now if its chunk is maker's. */
static void fill_again(struct two_test *test, uint32_t slot_idx)
{
    struct hf_world *world = &test->world;
    struct hf_chunks *chunks = &world->maker->chunks;
    bool mine = slot_idx != HF_SHM_NONE && chunks->current == slot_idx >> world->seg->chunk_shift;
    uint64_t kept = chunks->free_bits;
    char answer[ANSWER];

    if (mine) {
        chunks->free_bits = 0; /* so that it asks for what was freed */
    }
    hf_step_reserve(world->maker, "y", "z", "u", NULL, 70, 90, HF_WORLD_LONG_TTL, answer, sizeof(answer));
    if (mine) {
        chunks->free_bits |= kept;
    }
    if (strncmp(answer, "ok ", 3) != 0 || (mine && hf_world_slot(world, "y") != slot_idx)) {
        hf_grid_violation(&test->grid, "%s: the slot was not filled again: %s", test->cas->name, answer);
    }
    test->reused = true;
    test->reused_cnt += mine && !test->finishing;
}

/* Another operation on the first tenant: W goes on from `a`, and is seen to, when the slot of that one is freed. */
static void pass_by(struct two_test *test)
{
    struct hf_world *world = &test->world;
    struct holdfast_closing closing;
    char answer[ANSWER];

    hf_step_reserve(world->me, "q", "t", "u", NULL, 1, 1, HF_WORLD_LONG_TTL, answer, sizeof(answer));
    uint32_t slot_idx = hf_world_slot(world, "q");

    if (slot_idx == HF_SHM_NONE || holdfast_release(world->me, "q", 0, &closing) != HOLDFAST_OK) {
        hf_grid_violation(&test->grid, "%s: another operation: %s", test->cas->name, answer);
        return;
    }
    hf_world_persist(world, slot_idx);
    struct hf_u128 st = hf_commit_read_st(&world->seg->slots[slot_idx]);

    if (hf_retire_slot(world->seg, world->me->owner.ref, slot_idx, st, world->word_seqs) != HF_OK) {
        hf_grid_violation(&test->grid, "%s: the slot of another operation is not freed", test->cas->name);
    }
    test->passed = true;
}

/* Frees the slot of `a`. After pass_by() W is one ahead of what was seen, by the detach: so a look at W shows. */
static bool free_a(struct two_test *test, uint32_t slot_idx, struct hf_u128 st)
{
    struct hf_world *world = &test->world;
    uint32_t tenant = world->seg->slots[slot_idx].slot_tenant;
    bool ahead = test->unseen && !test->finishing && !test->passed;

    if (ahead) {
        pass_by(test);
    }
    uint64_t seen = world->word_seqs[tenant];

    if (hf_retire_slot(world->seg, world->me->owner.ref, slot_idx, st, world->word_seqs) != HF_OK) {
        return false;
    }
    test->unseen_cnt += ahead && world->word_seqs[tenant] == seen;
    return true;
}

/* Closes `a`, makes its receipts, frees its slot, fills it again: as far as it gets. */
static void third(struct two_test *test)
{
    struct hf_world *world = &test->world;
    char answer[ANSWER];

    test->cas->closer(world, world->me, answer, sizeof(answer));
    if (strstr(answer, "FAULT") != NULL) {
        hf_grid_violation(&test->grid, "%s: the third is answered %s", test->cas->name, answer);
    }
    uint32_t slot_idx = slot_of_a(world);

    if (slot_idx == HF_SHM_NONE) {
        return;
    }
    hf_world_persist(world, slot_idx);
    struct hf_u128 st = hf_commit_read_st(&world->seg->slots[slot_idx]);

    if (!test->keep && hf_snapshot_written(st, world->seg->slots[slot_idx].slot_persisted) &&
        free_a(test, slot_idx, st) && !test->reused) {
        fill_again(test, slot_idx);
    }
}

/* What is left to be done, so that every run comes to the same; then both tenants work once more. */
static void finish(struct two_test *test)
{
    struct hf_world *world = &test->world;
    char answer[ANSWER];

    test->keep = false;
    test->finishing = true;
    third(test);
    test->finishing = false;
    hf_step_release_b(world, world->me, answer, sizeof(answer));
    if (!test->reused) {
        fill_again(test, HF_SHM_NONE);
    }
    if (!test->passed) {
        pass_by(test);
    }
    hf_step_work(world, world->me, answer, sizeof(answer));
    if (strstr(answer, "refused") != NULL || strstr(answer, "FAULT") != NULL) {
        hf_grid_violation(&test->grid, "%s: work on the first tenant: %s", test->cas->name, answer);
    }
    hf_step_reserve(world->me, "z2", "z", "u", NULL, 5, 6, HF_WORLD_LONG_TTL, answer, sizeof(answer));
    if (strncmp(answer, "ok ", 3) != 0) {
        hf_grid_violation(&test->grid, "%s: work on the other tenant: %s", test->cas->name, answer);
    }
    hf_world_tidy(world);
}

/* ---- a run ------------------------------------------------------------------------------------------------------ */

static void go(struct two_test *test, struct hf_actor *actor, char answer[ANSWER])
{
    if (!hf_step_finish(&actor->proc)) {
        hf_grid_violation(&test->grid, "%s: it does not come to an end", test->cas->name);
    }
    memcpy(answer, hf_actor_answer(actor), ANSWER);
}

/* From where both stand: how they and the third go on. */
static void go_on(struct two_test *test, uint32_t mode, struct outcome *out)
{
    memset(out, 0, sizeof(*out));
    if (mode == 2) {
        go(test, &test->first, out->first);
    } else if (mode == 4) {
        go(test, &test->helper, out->helper);
    }
    third(test);
    if (mode == 1) {
        go(test, &test->first, out->first);
    }
    if (mode != 3 && mode != 4) {
        go(test, &test->helper, out->helper);
    }
    hf_step_kill(&test->helper.proc);
    if (mode != 1 && mode != 2) {
        go(test, &test->first, out->first);
    }
    hf_step_kill(&test->first.proc);
    finish(test);
    if (hf_world_text(&test->world, out->text) != 0) {
        hf_grid_violation(&test->grid, "%s, %s: a rule is broken\n%s", test->cas->name, mode_names[mode],
                          out->text);
    }
}

/* First after n instructions, helper after m. */
static void place(struct two_test *test, uint32_t n, uint32_t m)
{
    for (uint32_t try = 0; try < 20; try++) {
        hf_actor_restart_at(&test->first, &test->world, test->cas->first, &test->first_profile, n);
        test->reused = false;
        test->passed = false;
        hf_actor_start(&test->helper, &test->world, hf_step_release_b, 1);
        if (hf_actor_run_to(&test->helper, &test->helper_profile, m)) {
            return;
        }
        hf_step_kill(&test->first.proc);
    }
    hf_grid_violation(&test->grid, "%s, after %u and %u: no two runs are alike", test->cas->name, n, m);
}

static bool same(const struct outcome *a, const struct outcome *b)
{
    return strcmp(a->first, b->first) == 0 && strcmp(a->text, b->text) == 0;
}

static void pair(struct two_test *test, uint32_t n, uint32_t m, uint32_t mode)
{
    struct outcome *found = &test->found;

    place(test, n, m);
    test->keep = false;
    go_on(test, mode, found);
    bool right = mode == 3 || strncmp(found->helper, "ok kind 2", 9) == 0;

    if (!right ||
        (!same(found, &test->refs[0]) && !same(found, &test->refs[1]) && !same(found, &test->refs[2]))) {
        hf_grid_violation(
            &test->grid,
            "%s, first stopped after %u, helper after %u, %s: answers %s and %s; to one order\n%s  to the "
            "other\n%s",
            test->cas->name, n, m, mode_names[mode], found->first, found->helper,
            hf_world_diff(test->refs[0].text, found->text), hf_world_diff(test->refs[1].text, found->text));
    }
    test->grid.pairs++;
}

/* ---- a case ----------------------------------------------------------------------------------------------------- */

/* What the helper does when the first is stopped after n. */
static void profile_helper(struct two_test *test, uint32_t n)
{
    struct hf_step_watch watch = hf_world_watch(&test->world, 1);

    hf_actor_restart_at(&test->first, &test->world, test->cas->first, &test->first_profile, n);
    hf_actor_start(&test->helper, &test->world, hf_step_release_b, 1);
    hf_step_profile_on(&test->helper.proc, &watch, &test->helper_profile);
    hf_step_kill(&test->helper.proc);
    hf_step_kill(&test->first.proc);
}

/* The orders there are: the third before the first, after it, and before it without freeing. */
static void references(struct two_test *test)
{
    const uint32_t at[REFS] = {test->first_profile.first, test->first_profile.last + 1U,
                               test->first_profile.first};

    for (uint32_t i = 0; i < REFS; i++) {
        profile_helper(test, at[i]);
        place(test, at[i], test->helper_profile.last + 1U);
        test->keep = i == 2;
        go_on(test, 4, &test->refs[i]);
    }
}

static void one(struct two_test *test, const uint64_t seqs[2])
{
    struct hf_actor actor;
    uint64_t before = test->grid.pairs;

    hf_world_reset(&test->world);
    hf_world_plant_seq(&test->world, "t", seqs[0]);
    hf_world_plant_seq(&test->world, "z", seqs[1]);
    test->cas->prepare(&test->world);
    hf_step_have_b(&test->world);
    hf_world_keep(&test->world);
    hf_grid_begin(&test->grid, test->cas->name);
    hf_actor_profile(&actor, &test->world, test->cas->first, &test->first_profile);
    hf_step_kill(&actor.proc);
    references(test);
    test->reused_cnt = 0;
    test->unseen_cnt = 0;
    uint32_t firsts =
        hf_grid_accesses(&test->grid, &test->first_profile, true, FIRST_POINTS, test->first_points);
    uint32_t most = 0;

    for (uint32_t i = 0; i < firsts; i++) {
        profile_helper(test, test->first_points[i]);
        uint32_t helpers =
            hf_grid_accesses(&test->grid, &test->helper_profile, false, HELPER_POINTS, test->helper_points);

        most = helpers > most ? helpers : most;
        for (uint32_t j = 0; j < helpers; j++) {
            uint32_t mode = hf_grid_random(&test->grid, MODES);

            for (uint32_t k = 0; k < (test->grid.all ? MODES : 1U); k++) {
                test->unseen = ((i + j + k) & 1U) != 0;
                pair(test, test->first_points[i], test->helper_points[j], (mode + k) % MODES);
            }
        }
    }
    test->unseen = false;
    test->unseen_all += test->unseen_cnt;
    (void)printf("%-9s sequences %" PRIu64 " and %" PRIu64
                 ": %u stops of the first, up to %u of the helper, %" PRIu64 " pairs, slot reused in %" PRIu64
                 ", freed without a look at W in %" PRIu64 "; first answers %s or %s or %s\n",
                 test->cas->name, seqs[0], seqs[1], firsts, most, test->grid.pairs - before, test->reused_cnt,
                 test->unseen_cnt, test->refs[0].first, test->refs[2].first, test->refs[1].first);
}

int main(void)
{
    struct two_test *test = hf_world_room(sizeof(*test));

    hf_grid_open(&test->grid, "step_two");
    hf_world_make(&test->world);
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        test->cas = &cases[i];
        for (uint32_t j = 0; j < sizeof(far) / sizeof(far[0]); j++) {
            if (test->grid.only == NULL || strcmp(test->grid.only, test->cas->name) == 0) {
                one(test, far[j]);
            }
        }
    }
    if (test->grid.only == NULL && test->unseen_all == 0) {
        hf_grid_violation(&test->grid, "no slot was freed without a look at W");
    }
    hf_world_free(&test->world);
    int status = hf_grid_close(&test->grid);

    hf_world_room_free(test, sizeof(*test));
    return status;
}
