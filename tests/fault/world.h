/* A private quota whose operations can be interrupted between any two accesses to shared memory. */
#ifndef HF_TESTS_FAULT_WORLD_H
#define HF_TESTS_FAULT_WORLD_H

#include "core/slot.h"
#include "shm/clock.h"
#include "shm/commit.h"
#include "tests/support/quota.h"

struct world {
    struct hf_test_quota quota;
    struct holdfast *me;    /* whose operation is interrupted */
    struct holdfast *other; /* who works meanwhile */
    struct holdfast *gone;  /* has left: its reference is that of a dead process */
    uint64_t gone_ref;
    uint64_t daemon_ref;
    uint64_t *word_seqs; /* the daemon's, of hf_commit_detach() */
    uint32_t slot_idx;   /* of reservation `a` */
};

/* Tenants t and z, their sequences far apart; `a` is reserved on team u of t by other: 10 tokens, 100 micros. */
void world_make(struct world *world);
void world_free(struct world *world);

/* Ends the life of a slot that is closed, as the daemon does when its receipts are committed. False: it is claimed or open. */
bool world_forget(struct world *world, uint32_t slot_idx);

/* The next life of a free slot: id reserved by other on tenant z, or t. Fails when another slot would be taken. */
void world_refill(struct world *world, uint32_t slot_idx, const char *id, const char *tenant);

/* Moves W for an operation on the slot and applies nothing of it, as a process that was killed then. */
struct hf_op world_die_after_word(struct world *world, uint32_t slot_idx, enum hf_kind kind);

/* One operation (act) with meanwhile in the middle of it, before each of its accesses in turn, each time in a world of its
 * own; then check. Returns the number of places. */
struct between {
    void (*prepare)(struct world *world); /* may be NULL */
    void (*act)(struct world *world);
    void (*meanwhile)(struct world *world);
    void (*check)(struct world *world); /* after act */
};
uint32_t world_between(const struct between *between);

/* act ends before each of its accesses in turn, as if its process (world->me) were killed there; then check. Returns the number of
 * places. The last one is behind the last access: act is through. */
struct killed {
    void (*prepare)(struct world *world); /* may be NULL */
    void (*act)(struct world *world);
    void (*check)(struct world *world);
};
uint32_t world_killed(const struct killed *killed);

/* The place at which meanwhile works now: of messages. */
uint32_t world_place(void);

#endif
