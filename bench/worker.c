#include "bench/worker_impl.h"

#include "shm/index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t hf_worker_cpu_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

uint64_t hf_worker_ref(const struct hf_worker *worker)
{
    return worker->handle->owner.ref;
}

size_t hf_worker_path_bytes(const struct hf_worker *worker)
{
    return hf_path_bytes((const struct hf_path *)(const void *)worker->paths[0]);
}

/* ---- joining ------------------------------------------------------------------------------------------------------------ */

static bool make_rooms(struct hf_worker *worker)
{
    const struct hf_worker_plan *plan = &worker->plan;
    size_t tenants = worker->tenants_cnt;

    worker->all_ids = calloc(plan->batch, sizeof(*worker->ids));
    worker->all_holds = calloc(plan->batch, sizeof(*worker->holds));
    worker->all_tenants = calloc(plan->batch, sizeof(*worker->tenants));
    hf_worker_from(worker, 0);
    worker->paths = calloc(tenants, sizeof(*worker->paths));
    worker->paths_none = calloc(tenants, sizeof(*worker->paths_none));
    worker->names = calloc(tenants, sizeof(*worker->names));
    return worker->ids != NULL && worker->holds != NULL && worker->tenants != NULL && worker->paths != NULL &&
           worker->paths_none != NULL && worker->names != NULL;
}

static int resolve_all(struct hf_worker *worker)
{
    int reason;

    for (uint32_t i = 0; i < worker->tenants_cnt; i++) {
        char *name = worker->names[i];

        hf_world_tenant(worker->first_tenant + i, name);
        int rc = holdfast_resolve(worker->handle, name, "app", NULL, "answer", &worker->paths[i], &reason);
        if (rc == HOLDFAST_OK && worker->world->plan.refusals != 0) {
            rc = holdfast_resolve(worker->handle, name, "none", NULL, "answer", &worker->paths_none[i],
                                  &reason);
        }
        if (rc != HOLDFAST_OK) {
            return rc;
        }
    }
    return HOLDFAST_OK;
}

/* A forked child has the pages and no way to them yet, and a virtual machine may shadow its page tables: both would fault within
 * the time. A write that changes nothing, whoever else is at work. */
static void touch(const struct hf_segment *seg)
{
    for (uint64_t off = 0; off < seg->size_bytes; off += 4096) {
        hf_or_acqrel_u64((uint64_t *)(void *)(seg->base + off), 0); /* plain: nothing follows from it */
    }
}

static int join(struct hf_worker *worker)
{
    if (!make_rooms(worker)) {
        return HOLDFAST_NO_MEMORY;
    }
    touch(&worker->world->map);
    int rc = hf_client_wrap(&worker->world->map, &worker->segment);
    if (rc == HOLDFAST_OK) {
        rc = holdfast_join(worker->segment, &worker->handle);
    }
    return rc == HOLDFAST_OK ? resolve_all(worker) : rc;
}

struct hf_worker *hf_worker_join(struct hf_world *world, const struct hf_worker_plan *plan, char *error,
                                 size_t error_bytes)
{
    struct hf_worker *worker = calloc(1, sizeof(*worker));
    int rc = HOLDFAST_NO_MEMORY;

    if (worker != NULL) {
        worker->world = world;
        worker->plan = *plan;
        worker->random = (plan->seed + plan->number + 1) * UINT64_C(0x9E3779B97F4A7C15) | 1U;
        worker->tenants_cnt = plan->tenants == HF_WORKER_SPREAD ? world->plan.tenants : 1;
        worker->first_tenant = plan->tenants == HF_WORKER_OWN ? plan->number % world->plan.tenants : 0;
        rc = join(worker);
    }
    if (rc != HOLDFAST_OK) {
        (void)snprintf(error, error_bytes, "joining the segment: %s", holdfast_strerror(rc));
        hf_worker_leave(worker);
        return NULL;
    }
    return worker;
}

void hf_worker_leave(struct hf_worker *worker)
{
    if (worker == NULL) {
        return;
    }
    for (uint32_t i = 0; worker->paths != NULL && worker->paths_none != NULL && i < worker->tenants_cnt;
         i++) {
        holdfast_path_free(worker->paths[i]);
        holdfast_path_free(worker->paths_none[i]);
    }
    holdfast_leave(worker->handle);
    if (worker->segment != NULL) {
        hf_name_cache_destroy(worker->segment->names);
        free(worker->segment); /* holdfast_close() would unmap the world */
    }
    free(worker->all_ids);
    free(worker->all_holds);
    free(worker->all_tenants);
    free(worker->paths);
    free(worker->paths_none);
    free(worker->names);
    free(worker);
}

/* ---- preparing ---------------------------------------------------------------------------------------------------------- */

static void hex(char *to, uint64_t value, int digits)
{
    for (int i = digits - 1; i >= 0; i--, value >>= 4) {
        to[i] = "0123456789abcdef"[value & 0xfU];
    }
}

/* splitmix64 */
static uint64_t next_random(struct hf_worker *worker)
{
    uint64_t z = worker->random += UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Whether the id stands in this worker's part of the index. */
static bool in_own_part(const struct hf_worker *worker, const char *id, uint32_t bytes)
{
    const struct hf_segment *seg = &worker->world->map;
    uint64_t parts = worker->plan.index_parts;

    if (parts <= 1) {
        return true;
    }
    uint64_t head = hf_index_hash(seg, id, bytes) & seg->heads_mask;
    return head * parts / ((uint64_t)seg->heads_mask + 1) == worker->plan.number % parts;
}

void hf_worker_from(struct hf_worker *worker, uint32_t first)
{
    worker->ids = worker->all_ids + first;
    worker->holds = worker->all_holds + first;
    worker->tenants = worker->all_tenants + first;
}

void hf_worker_prepare(struct hf_worker *worker, uint32_t cnt)
{
    hf_world_pulse(worker->world); /* a world may have rested for longer than its store may lag behind */
    hf_worker_from(worker, 0);
    for (uint32_t i = 0; i < cnt && i < worker->plan.batch; i++) {
        char *id = worker->ids[i];

        memcpy(id, "req-", 4);
        hex(id + 4, worker->plan.number, 3);
        id[7] = '-';
        id[20] = '\0';
        do {
            hex(id + 8, worker->next_id++, 12);
        } while (!in_own_part(worker, id, 20));
        worker->tenants[i] = worker->tenants_cnt == 1
                                 ? 0
                                 : (uint32_t)((next_random(worker) >> 32) * worker->tenants_cnt >> 32);
    }
}

void hf_worker_shuffle(struct hf_worker *worker, uint32_t cnt)
{
    for (uint32_t i = cnt; i > 1; i--) {
        uint32_t other = (uint32_t)((next_random(worker) >> 32) * i >> 32);
        char id[HF_WORKER_ID_BYTES];
        uint64_t hold = worker->holds[other];
        uint32_t tenant = worker->tenants[other];

        memcpy(id, worker->ids[other], sizeof(id));
        memcpy(worker->ids[other], worker->ids[i - 1], sizeof(id));
        memcpy(worker->ids[i - 1], id, sizeof(id));
        worker->holds[other] = worker->holds[i - 1];
        worker->holds[i - 1] = hold;
        worker->tenants[other] = worker->tenants[i - 1];
        worker->tenants[i - 1] = tenant;
    }
}
