/* A worker of a world: a joined handle, ids and paths made beforehand, and loops over operations.
 *
 * A loop counts operations, not time, and is made of public calls (holdfast.h) unless it says otherwise. Ids are unique in the
 * world by the worker's number. One thread at a time; after fork() a child makes workers of its own. */
#ifndef HF_BENCH_WORKER_H
#define HF_BENCH_WORKER_H

#include "bench/world.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hf_worker;
struct hf_histogram;

enum hf_worker_tenants {
    HF_WORKER_ONE = 0,   /* all operations on tenant 0 */
    HF_WORKER_OWN = 1,   /* on the tenant of the worker's number */
    HF_WORKER_SPREAD = 2 /* each on another one, all in random order */
};

struct hf_worker_plan {
    uint32_t number; /* 0 ..: unique among the workers of a world, of all times */
    uint32_t batch;  /* operations of a loop, at most */
    enum hf_worker_tenants tenants;
    uint64_t seed; /* of the random order */
    /* Above 1: only ids from part `number` of so many of the id index, so that no worker's chains are another's. What that
     * changes is what sharing the index costs. */
    uint32_t index_parts;
};

/* Joins, and resolves the paths of its tenants. NULL with a sentence in error. */
struct hf_worker *hf_worker_join(struct hf_world *world, const struct hf_worker_plan *plan, char *error,
                                 size_t error_bytes);
/* NULL is nothing to do. */
void hf_worker_leave(struct hf_worker *worker);
/* For hf_world_drain(). */
uint64_t hf_worker_ref(const struct hf_worker *worker);
/* Bytes that a worker keeps for each tenant outside of the segment: its resolved paths. */
size_t hf_worker_path_bytes(const struct hf_worker *worker);

/* New ids and tenants for the next cnt reservations: a gateway has its request's id already. The daemon gives a sign of life. */
void hf_worker_prepare(struct hf_worker *worker, uint32_t cnt);

/* The loops begin at reservation `first` of those prepared, until hf_worker_prepare() or the next call of this. */
void hf_worker_from(struct hf_worker *worker, uint32_t first);
/* Puts the first cnt reservations prepared, or made, into random order. */
void hf_worker_shuffle(struct hf_worker *worker, uint32_t cnt);

/* Loops over the reservations prepared, from the first. 0, or the first result that was not what the loop is for. */

/* Names and tokens: a resolved path for each reserve and its token for the closing; or the four names in each reserve, and the
 * reservation found by its id. */
enum hf_worker_how {
    HF_WORKER_RESOLVED = 0,
    HF_WORKER_NAMES = 1
};
int hf_worker_pairs(struct hf_worker *worker, enum hf_worker_how how, uint32_t cnt);
int hf_worker_reserve(struct hf_worker *worker, enum hf_worker_how how, uint32_t cnt);
/* Of what was reserved, by token or by id. */
int hf_worker_settle(struct hf_worker *worker, enum hf_worker_how how, uint32_t cnt);
int hf_worker_release(struct hf_worker *worker, uint32_t cnt);
int hf_worker_extend(struct hf_worker *worker, uint32_t cnt);
/* The same reserves again. */
int hf_worker_replay(struct hf_worker *worker, uint32_t cnt);
/* Reserves that the team `none` has nothing left for; -1 when one was not refused so. Resolved. */
int hf_worker_refusals(struct hf_worker *worker, uint32_t cnt);
/* Four names to a path and back: holdfast_resolve() and holdfast_path_free(). */
int hf_worker_resolve(struct hf_worker *worker, uint32_t cnt);
/* What a team has left: holdfast_limits(). */
int hf_worker_usage(struct hf_worker *worker, uint32_t cnt);
/* The transaction alone, twice a pair: tenant ready, clock, buckets and limits read and checked, W moved, buckets changed. No
 * slot, so no record, no id index, no dirty mark; nobody could help. By core/path.h and shm/commit.h; one worker in the world.
 * hf_worker_transacted() then tells the oracle, outside of the time. */
int hf_worker_transactions(struct hf_worker *worker, uint32_t cnt);
void hf_worker_transacted(struct hf_worker *worker, uint32_t cnt);

/* Resolved pairs, until cnt are done or *over (may be NULL) is not 0. *done: how many. With a histogram each pair is timed: one
 * look at the clock a pair, which is in its time. */
int hf_worker_pairs_until(struct hf_worker *worker, uint32_t cnt, const uint32_t *over,
                          struct hf_histogram *histogram, uint32_t *done);

/* The floor: for each pair, of each of k words on lines of their own, `lock xadd` at reserve and again at settle; no check, no
 * record, no recovery. words: k * 128 bytes, aligned so. */
void hf_worker_bare(uint64_t *words, uint32_t k, uint32_t cnt);

/* Time of the calling thread on its processor, in ns: other programs' turns do not count, and an operation that never
 * waits has no other time. Two system calls a batch. */
uint64_t hf_worker_cpu_ns(void);

#ifdef __cplusplus
}
#endif

#endif
