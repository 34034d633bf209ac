/* What a run of bench_processes is, and what comes of it. In memory that its processes share. */
#ifndef HF_BENCH_PROCESSES_H
#define HF_BENCH_PROCESSES_H

#include "bench/board.h"
#include "bench/worker.h"

#include <sched.h>

enum hf_drain {
    HF_DRAIN_BETWEEN = 0, /* between rounds, each worker its own slots, outside of the time */
    HF_DRAIN_BESIDE = 1,  /* by a process or thread of its own, all the time */
    HF_DRAIN_NONE = 2     /* after the last round: each slot is used once */
};

#define HF_RUN_ROUNDS 65536U

struct hf_run {
    /* What was asked for. */
    uint32_t workers;
    uint32_t cores; /* this program may use */
    cpu_set_t allowed;
    uint32_t first_core;
    uint32_t k;
    uint32_t round; /* pairs */
    uint32_t slots; /* 0: what the rounds need */
    uint32_t tenants_cnt;
    double seconds;
    enum hf_worker_tenants tenants;
    enum hf_drain drain;
    bool threads;
    bool ids_apart;
    bool json;
    struct hf_board *board;
    struct hf_world *world;
    /* What came of it. Writer: worker 0, between rounds; then the process that started it. */
    uint32_t rounds_left;
    uint32_t rounds; /* of throughput */
    uint64_t wall_ns;
    uint64_t second_ns;
    double worst_second; /* slower of faster; 1 where no second was full */
    uint32_t seconds_cnt;
    uint64_t mismatches;
    float rates[HF_RUN_ROUNDS]; /* pairs a second of the first rounds */
};

enum hf_round {
    HF_ROUND_WARM,
    HF_ROUND_THROUGHPUT,
    HF_ROUND_LATENCY /* a look at the clock for each pair: in the histograms only */
};

/* By worker 0, after a round: counts it, and says when it was the last. */
void hf_run_account(struct hf_run *run, enum hf_round kind);
/* A table for people, or a line of JSON. */
void hf_run_print(const struct hf_run *run);

#endif
