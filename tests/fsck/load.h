/* Workers that never rest: reservations in every way, by the public API. */
#ifndef HF_TESTS_FSCK_LOAD_H
#define HF_TESTS_FSCK_LOAD_H

#include <stdint.h>
#include <sys/types.h>

#define LOAD_WORKERS 3

struct load_board {
    uint64_t stop; /* 1: end */
    uint64_t ops[LOAD_WORKERS];
};

struct load {
    struct load_board *board; /* shared */
    pid_t pids[LOAD_WORKERS]; /* 0: killed */
};

/* ops_per_ms: of each worker, as a pace. */
void load_start(struct load *load, const char *segment, uint64_t seed, unsigned ops_per_ms);
/* Workers leave; the program ends if one has failed. One that was killed by load_signal() is none of these. */
void load_stop(struct load *load);
void load_signal(struct load *load, uint32_t idx, int sig);
uint64_t load_ops(const struct load *load);

#endif
