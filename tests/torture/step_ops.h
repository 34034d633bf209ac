/* The public operations, each with the state it finds and what others may do against it. */
#ifndef HF_TESTS_STEP_OPS_H
#define HF_TESTS_STEP_OPS_H

#include "tests/torture/step_world.h"

/* An operation by a handle; what it answered as text (without tokens, which name slots). */
typedef void hf_step_act(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes);

struct hf_step_op {
    const char *name;
    void (*prepare)(struct hf_world *world); /* on a segment as made, by maker and me */
    hf_step_act *act;
    const char *expect; /* how the answer begins when nobody disturbs it */
    bool repeats;       /* once more is the same as once */
    /* Against it, on the same reservation or for the same room (NULL: none). */
    hf_step_act *against[4];
};

extern const struct hf_step_op hf_step_ops[];
extern const uint32_t hf_step_ops_cnt;

/* A fixed set of operations of another process on the same tenant. */
hf_step_act hf_step_work;

/* Pieces of them, for tests of two levels. */
hf_step_act hf_step_release_a;
hf_step_act hf_step_dispatch_a;
hf_step_act hf_step_settle_a;
hf_step_act hf_step_reap;
hf_step_act hf_step_reserve_a;
hf_step_act hf_step_extend_a;
hf_step_act hf_step_release_b;

/* States: some reservations in both tenants; with `a` open; with `a` past its deadline. */
void hf_step_found_base(struct hf_world *world);
void hf_step_found_open(struct hf_world *world);
void hf_step_found_due(struct hf_world *world);
/* `b` besides, open, in the same chunk of maker's. */
void hf_step_have_b(struct hf_world *world);

/* The nth id that shares the chain of `a`. */
void hf_step_chain_id(const struct hf_segment *seg, uint32_t nth, char id[16]);

/* A reserve of explicit amounts in a team and key (or NULL) with a ttl. */
void hf_step_reserve(struct holdfast *handle, const char *id, const char *tenant, const char *team,
                     const char *key, uint64_t tokens, uint64_t cost, uint64_t ttl_ms, char *answer,
                     size_t bytes);

/* ---- a child that does one -------------------------------------------------------------------------------------- */

struct hf_actor {
    struct hf_world *world;
    hf_step_act *act;
    uint32_t who;            /* place of its answer in world->page */
    struct holdfast *handle; /* the child's own */
    struct hf_step_proc proc;
};

/* Starts it: joined, at the mark. */
void hf_actor_start(struct hf_actor *actor, struct hf_world *world, hf_step_act *act, uint32_t who);

/* Runs it n instructions from the mark. False: it did not come to where the profile was after n, and is killed. */
bool hf_actor_run_to(struct hf_actor *actor, const struct hf_step_profile *profile, uint32_t n);

/* Puts the state back and brings it to n, as often as needed. Ends the program when that does not work. */
void hf_actor_restart_at(struct hf_actor *actor, struct hf_world *world, hf_step_act *act,
                         const struct hf_step_profile *profile, uint32_t n);

/* The profile of an act from the state that was kept; stands at the end of it. */
void hf_actor_profile(struct hf_actor *actor, struct hf_world *world, hf_step_act *act,
                      struct hf_step_profile *profile);

/* What it answered. */
const char *hf_actor_answer(const struct hf_actor *actor);

#endif
