#include "tests/torture/step_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 50U

static void prepare(void *arg)
{
    struct hf_actor *actor = arg;

    if (holdfast_join(actor->world->shared, &actor->handle) != HOLDFAST_OK) {
        (void)fprintf(stderr, "torture: a child cannot join\n");
        exit(2);
    }
}

static void act(void *arg)
{
    struct hf_actor *actor = arg;

    actor->act(actor->world, actor->handle, actor->world->page->answer[actor->who],
               sizeof(actor->world->page->answer[0]));
}

static struct hf_step_body body_of(struct hf_actor *actor, struct hf_world *world, hf_step_act *what,
                                   uint32_t who)
{
    *actor = (struct hf_actor){.world = world, .act = what, .who = who};
    return (struct hf_step_body){.prepare = prepare, .act = act, .arg = actor};
}

void hf_actor_start(struct hf_actor *actor, struct hf_world *world, hf_step_act *what, uint32_t who)
{
    struct hf_step_body body = body_of(actor, world, what, who);

    hf_step_start(&actor->proc, &body);
}

bool hf_actor_run_to(struct hf_actor *actor, const struct hf_step_profile *profile, uint32_t n)
{
    if (hf_step_run_to(&actor->proc, profile, n)) {
        return true;
    }
    hf_step_kill(&actor->proc);
    return false;
}

void hf_actor_restart_at(struct hf_actor *actor, struct hf_world *world, hf_step_act *what,
                         const struct hf_step_profile *profile, uint32_t n)
{
    for (uint32_t try = 0; try < TRIES; try++) {
        hf_world_restore(world);
        hf_actor_start(actor, world, what, 0);
        if (hf_actor_run_to(actor, profile, n)) {
            return;
        }
    }
    (void)fprintf(stderr, "torture: instruction %u is not the same in every run\n", n);
    exit(2);
}

void hf_actor_profile(struct hf_actor *actor, struct hf_world *world, hf_step_act *what,
                      struct hf_step_profile *profile)
{
    uint32_t before = 0;

    /* Two runs alike: an interrupt can change nothing, but the proof of it is cheap. */
    for (uint32_t try = 0; try < TRIES; try++) {
        hf_world_restore(world);
        struct hf_step_body body = body_of(actor, world, what, 0);
        struct hf_step_watch watch = hf_world_watch(world, 0);

        hf_step_profile(&actor->proc, &body, &watch, profile);
        if (profile->cnt == before) {
            return;
        }
        before = profile->cnt;
        hf_step_kill(&actor->proc);
    }
    (void)fprintf(stderr, "torture: no two runs are alike\n");
    exit(2);
}

const char *hf_actor_answer(const struct hf_actor *actor)
{
    return actor->world->page->answer[actor->who];
}
