/* What benchmarks drive, in plain types for C++: a private segment with a small policy, loops over its operations,
 * and a stand-in for the daemon that takes marks and frees slots without a store.
 *
 * All loops are in C and count operations, not time. Not thread-safe but for hf_bench_drain_start(). */
#ifndef HF_BENCH_SHIM_H
#define HF_BENCH_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hf_bench;

/* Names of a pair: resolved once, with the token of the reserve given to settle; or given in each call, and the
 * reservation found by its id. */
enum hf_bench_how {
    HF_BENCH_RESOLVED = 0,
    HF_BENCH_NAMES = 1
};

/* A segment with room for `slots` known reservations: one tenant and one team with a month cost limit each, so
 * k = 2; a second team that has nothing left. NULL with a sentence in error. */
struct hf_bench *hf_bench_open(uint32_t slots, char *error, size_t error_bytes);
void hf_bench_close(struct hf_bench *bench);

/* New ids for the next pairs (at most the slots of hf_bench_open), outside of what is measured: a gateway has
 * its request's id already. */
void hf_bench_new_ids(struct hf_bench *bench, uint32_t cnt);

/* cnt reserve+settle pairs, one id each. 0, or the first result that was not HOLDFAST_OK. */
int hf_bench_pairs(struct hf_bench *bench, enum hf_bench_how how, uint32_t cnt);

/* cnt reserves that the team's limit refuses. 0, or -1 when one was not refused. */
int hf_bench_refusals(struct hf_bench *bench, uint32_t cnt);

/* The floor: per round 2 words on lines of their own, `lock xadd` at reserve and again at settle, no check, no
 * record, no recovery. */
void hf_bench_bare(struct hf_bench *bench, uint32_t cnt);

/* Takes all dirty marks and frees the slots that are closed, as a drain does after its commit. Returns how many
 * were freed. */
uint32_t hf_bench_drain(struct hf_bench *bench);
/* The same by a thread of its own, every millisecond, until hf_bench_drain_stop(). 0 or an errno. */
int hf_bench_drain_start(struct hf_bench *bench);
void hf_bench_drain_stop(struct hf_bench *bench);
/* Waits until a started drain thread has left room for cnt reservations. */
void hf_bench_drain_wait(const struct hf_bench *bench, uint32_t cnt);

/* Buckets that differ from what the slots drained and still open add up to, and slots that were lost. Drains
 * first; call it with the drain thread stopped. */
uint64_t hf_bench_mismatches(struct hf_bench *bench);
/* Pairs that the drain has seen settled so far. */
uint64_t hf_bench_settled_cnt(const struct hf_bench *bench);

/* Time of the calling thread on its processor, in ns: other programs' turns do not count, and an operation that never
 * waits has no other time. Two system calls a batch. */
uint64_t hf_bench_cpu_ns(void);

#ifdef __cplusplus
}
#endif

#endif
