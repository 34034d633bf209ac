/* The operations that are measured, each with what has to happen before and after it, outside of what is measured. */
#ifndef HF_BENCH_OPERATIONS_H
#define HF_BENCH_OPERATIONS_H

#include "bench/worker.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hf_operation {
    const char *name; /* a word, for programs */
    const char *text; /* for people */
    /* On ids that hf_worker_prepare() made. 0, or what went wrong; before may be NULL. */
    int (*before)(struct hf_worker *worker, uint32_t cnt);
    int (*run)(struct hf_worker *worker, uint32_t cnt);
    /* Leaves everything as it was, slots drained; closes what is open. drained: by somebody beside, not here. */
    int (*after)(struct hf_world *world, struct hf_worker *worker, uint32_t cnt, int drained);
};

extern const struct hf_operation hf_operations[];
extern const uint32_t hf_operations_cnt;

/* By name; NULL when there is none. */
const struct hf_operation *hf_operation_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
