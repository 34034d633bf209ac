#include "bench/operations.h"

#include <string.h>

#define DRAINED_WRONG (-100) /* the drain did not find the slots that were closed */

/* ---- what is measured ------------------------------------------------------------------------------------------------------ */

static int reserve(struct hf_worker *worker, uint32_t cnt)
{
    return hf_worker_reserve(worker, HF_WORKER_RESOLVED, cnt);
}

static int reserve_names(struct hf_worker *worker, uint32_t cnt)
{
    return hf_worker_reserve(worker, HF_WORKER_NAMES, cnt);
}

static int settle(struct hf_worker *worker, uint32_t cnt)
{
    return hf_worker_settle(worker, HF_WORKER_RESOLVED, cnt);
}

static int settle_id(struct hf_worker *worker, uint32_t cnt)
{
    return hf_worker_settle(worker, HF_WORKER_NAMES, cnt);
}

static int pair(struct hf_worker *worker, uint32_t cnt)
{
    return hf_worker_pairs(worker, HF_WORKER_RESOLVED, cnt);
}

static int pair_names(struct hf_worker *worker, uint32_t cnt)
{
    return hf_worker_pairs(worker, HF_WORKER_NAMES, cnt);
}

/* ---- what follows ---------------------------------------------------------------------------------------------------------- */

static int nothing(struct hf_world *world, struct hf_worker *worker, uint32_t cnt, int drained)
{
    (void)worker, (void)cnt, (void)drained;
    hf_world_pulse(world);
    return 0;
}

static int drain(struct hf_world *world, struct hf_worker *worker, uint32_t cnt, int drained)
{
    (void)worker;
    return drained != 0 || hf_world_drain(world, 0) == cnt ? 0 : DRAINED_WRONG;
}

static int settle_drain(struct hf_world *world, struct hf_worker *worker, uint32_t cnt, int drained)
{
    int rc = settle(worker, cnt);

    return rc != 0 ? rc : drain(world, worker, cnt, drained);
}

static int transacted(struct hf_world *world, struct hf_worker *worker, uint32_t cnt, int drained)
{
    hf_worker_transacted(worker, cnt);
    return nothing(world, worker, cnt, drained);
}

const struct hf_operation hf_operations[] = {
    {"reserve", "reserve", NULL, reserve, settle_drain},
    {"reserve_names", "reserve, four names in each call", NULL, reserve_names, settle_drain},
    {"settle", "settle by the hold's token", reserve, settle, drain},
    {"settle_id", "settle by the id", reserve, settle_id, drain},
    {"pair", "pair: reserve and settle", NULL, pair, drain},
    {"pair_names", "pair, names and id in each call", NULL, pair_names, drain},
    {"transaction", "pair of transactions alone", NULL, hf_worker_transactions, transacted},
    {"refusal", "refusal: the team has nothing left", NULL, hf_worker_refusals, nothing},
    {"release", "release", reserve, hf_worker_release, drain},
    {"extend", "extend: more held", reserve, hf_worker_extend, settle_drain},
    {"replay", "replay: reserve of an open id", reserve, hf_worker_replay, settle_drain},
    {"resolve", "resolve: four names to a path", NULL, hf_worker_resolve, nothing},
    {"usage", "usage: a team's limits", NULL, hf_worker_usage, nothing},
};

const uint32_t hf_operations_cnt = sizeof(hf_operations) / sizeof(hf_operations[0]);

const struct hf_operation *hf_operation_find(const char *name)
{
    for (uint32_t i = 0; i < hf_operations_cnt; i++) {
        if (strcmp(hf_operations[i].name, name) == 0) {
            return &hf_operations[i];
        }
    }
    return NULL;
}
