/* The world that benchmarks work in: a private segment with a policy made to measure, a stand-in for the daemon, and the
 * comparison of every bucket with what the slots add up to.
 *
 * The segment and the accounts lie in memory that forked children share, so who makes a world can fork workers for it. Plain
 * types, for C and C++. */
#ifndef HF_BENCH_WORLD_H
#define HF_BENCH_WORLD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a pair holds, and what it is settled at; what an extension raises it to. */
#define HF_WORLD_HELD_MICROS     1000U
#define HF_WORLD_ACTUAL_MICROS   400U
#define HF_WORLD_EXTENDED_MICROS 1500U
#define HF_WORLD_HELD_TOKENS     900U
#define HF_WORLD_ACTUAL_TOKENS   150U
#define HF_WORLD_EXTENDED_TOKENS 1200U

#define HF_WORLD_TENANT_BYTES 16

/* k buckets on the path of each tenant's team `app`:
 *   1: the team's month, in cost_micros
 *   2: tenant and team, month, in cost_micros
 *   4: tenant and team, day and month, in cost_micros
 *   8: tenant and team, day and month, in tokens and cost_micros
 * A second team `none` has the same limits with nothing left in the last one, where refusals is set. */
struct hf_world_plan {
    uint32_t tenants; /* 1 .. 200,000 */
    uint32_t k;
    uint32_t slots;
    uint32_t workers; /* handles joined at a time, at most */
    int refusals;     /* 1: with the team `none` */
};

struct hf_world;

/* Makes a world. NULL with a sentence in error. */
struct hf_world *hf_world_make(const struct hf_world_plan *plan, char *error, size_t error_bytes);
/* By the process that made it, with all workers gone. NULL is nothing to do. */
void hf_world_free(struct hf_world *world);

/* Name of a tenant, 0 .. tenants - 1. */
void hf_world_tenant(uint32_t tenant, char name[HF_WORLD_TENANT_BYTES]);
/* Bytes of the segment, all and without its slots and id index. */
uint64_t hf_world_bytes(const struct hf_world *world, int without_slots);

/* ---- the stand-in for the daemon: what it does after a commit, without a store. One at a time in a world. ------------- */

/* Says that the daemon lives and has committed everything; the drains below do it too. */
void hf_world_pulse(struct hf_world *world);
/* Takes the dirty marks of all chunks, or of those that owner_ref (of a worker) filled last, and frees the closed slots: out of W,
 * out of the id index, marked persisted, FREE. Returns how many. */
uint32_t hf_world_drain(struct hf_world *world, uint64_t owner_ref);
/* The same, all chunks every millisecond, until hf_world_drain_stop(); for a thread or process of its own. */
void hf_world_drain_loop(struct hf_world *world);
void hf_world_drain_stop(struct hf_world *world);
/* Waits until cnt reservations more have room. Only beside a drain loop. */
void hf_world_wait_room(const struct hf_world *world, uint32_t cnt);

/* ---- the oracle --------------------------------------------------------------------------------------------------------- */

/* cnt more reservations were admitted: by whoever made them. */
void hf_world_admitted(struct hf_world *world, uint64_t cnt);
uint64_t hf_world_drained_cnt(const struct hf_world *world);
/* Drains, then counts the buckets that differ from what the slots drained and still open add up to, lost slots, and a
 * number of reservations that is not the one admitted. Nobody else at work. */
uint64_t hf_world_mismatches(struct hf_world *world);

#ifdef __cplusplus
}
#endif

#endif
