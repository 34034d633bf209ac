/* A store filled with the receipts of a month, as a daemon would have written them: for benches of what comes after. */
#ifndef HF_BENCH_HISTORY_H
#define HF_BENCH_HISTORY_H

#include "persist/store.h"

struct hf_history {
    uint64_t rows;       /* receipts, reservations and settlements in turn */
    uint64_t open;       /* reservations that stay open, spread over the month */
    uint64_t start_ms;   /* of the month; its last receipt is 28 days later */
    uint32_t teams;      /* of tenant `t`: team-0, team-1, ... */
    uint32_t batch_rows; /* of one commit */
    bool rollups;        /* made whenever one is due, as the daemon does */
};

struct hf_history_done {
    uint64_t rollups;
    uint64_t tail;       /* receipts since the last rollup */
    double commit_s;     /* spent in commits alone */
    double commit_cpu_s; /* of this thread, in commits alone */
};

/* Fills an initialised store, locked for a segment name that it does not know yet. */
enum hf_store_status hf_history_fill(struct hf_store *store, const struct hf_history *history,
                                     struct hf_history_done *done, struct hf_store_error *error);

#endif
