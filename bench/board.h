/* Where the workers of bench_processes meet: barriers, and what each of them counts. In memory that processes share. */
#ifndef HF_BENCH_BOARD_H
#define HF_BENCH_BOARD_H

#include "tools/common/histogram.h"

#include <stdbool.h>
#include <stdint.h>

#define HF_BOARD_SEATS 64U

/* What a worker counts. Writer: it, while it works; others read at barriers. */
struct hf_board_seat {
    uint64_t pairs;        /* in rounds without a clock for each pair */
    uint64_t second_pairs; /* of these, since the leader last closed a second */
    uint64_t busy_ns;      /* within these rounds, by the wall and by its processor's time */
    uint64_t cpu_ns;
    uint64_t round_pairs; /* of the last round, and when it ended */
    uint64_t end_ns;
    struct hf_histogram histogram; /* of the other rounds */
} __attribute__((aligned(128)));

struct hf_board {
    /* Read in each pair, written once a round: a line of its own. */
    uint32_t over; /* somebody has done all pairs of the round */
    uint32_t pad1[31];
    /* The barrier. */
    uint32_t arrived;
    uint32_t generation; /* futex */
    uint32_t workers;
    bool crowded;      /* more workers than processors: nobody spins */
    uint32_t draining; /* 1: somebody drains */
    uint32_t failed;   /* somebody could not go on: it meets the others still, and does nothing */
    uint32_t sleepers;
    uint32_t pad2[25];
    /* Leader. */
    uint64_t start_ns;
    uint32_t quit;
    struct hf_board_seat seats[HF_BOARD_SEATS];
};

/* A board for so many workers on so many processors. NULL: no memory. */
struct hf_board *hf_board_make(uint32_t workers, uint32_t processors);
void hf_board_free(struct hf_board *board);

/* Waits until all workers are here. release_ns (may be NULL) gets the time just before they go on. Every worker the same calls. */
void hf_board_meet(struct hf_board *board, uint64_t *release_ns);
/* The same, left within a fraction of a microsecond by all. */
void hf_board_start(struct hf_board *board, uint64_t *release_ns);

/* One at a time between these. */
void hf_board_enter(struct hf_board *board);
void hf_board_leave(struct hf_board *board);

#endif
