/* Inside of a worker, for the benches in C. */
#ifndef HF_BENCH_WORKER_IMPL_H
#define HF_BENCH_WORKER_IMPL_H

#include "bench/worker.h"
#include "bench/world_impl.h"
#include "core/client.h"

#define HF_WORKER_ID_BYTES 32

struct hf_worker {
    struct hf_world *world;
    struct holdfast_segment *segment; /* wraps the world's mapping and does not own it */
    struct holdfast *handle;
    struct hf_worker_plan plan;
    struct holdfast_path **paths;      /* tenants_cnt, of team `app` */
    struct holdfast_path **paths_none; /* of team `none`, or NULL */
    char (*names)[HF_WORLD_TENANT_BYTES];
    uint32_t tenants_cnt;
    uint32_t first_tenant;
    uint64_t next_id;
    uint64_t random;
    /* What the next loops work on: within all_x, plan.batch of each. */
    char (*ids)[HF_WORKER_ID_BYTES];
    uint64_t *holds;   /* tokens */
    uint32_t *tenants; /* index into paths and names */
    char (*all_ids)[HF_WORKER_ID_BYTES];
    uint64_t *all_holds;
    uint32_t *all_tenants;
};

#endif
