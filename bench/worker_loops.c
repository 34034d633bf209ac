#include "bench/worker_impl.h"

#include "shm/clock.h"
#include "tools/common/histogram.h"

/* ---- what is asked ------------------------------------------------------------------------------------------------------ */

/* Only k = 8 limits tokens, and only there they are told. */
static bool with_tokens(const struct hf_worker *worker)
{
    return worker->world->plan.k == 8;
}

static void ask(const struct hf_worker *worker, struct holdfast_request *request)
{
    holdfast_request_init(request);
    request->cost_micros = HF_WORLD_HELD_MICROS;
    if (with_tokens(worker)) {
        request->tokens = HF_WORLD_HELD_TOKENS;
    }
}

static void use(struct holdfast_usage *usage)
{
    holdfast_usage_init(usage, 100, HF_WORLD_ACTUAL_TOKENS - 100);
    usage->cost_micros = HF_WORLD_ACTUAL_MICROS;
}

static inline void name_one(const struct hf_worker *worker, enum hf_worker_how how, uint32_t i,
                            struct holdfast_request *request)
{
    request->id = worker->ids[i];
    if (how == HF_WORKER_RESOLVED) {
        request->path = worker->paths[worker->tenants[i]];
    } else {
        request->tenant = worker->names[worker->tenants[i]];
        request->team = "app";
        request->capability = "answer";
    }
}

/* ---- pairs --------------------------------------------------------------------------------------------------------------- */

static inline int one_pair(struct hf_worker *worker, enum hf_worker_how how, uint32_t i,
                           struct holdfast_request *request, const struct holdfast_usage *usage)
{
    struct holdfast_answer answer;
    struct holdfast_closing closing;

    name_one(worker, how, i, request);
    int rc = holdfast_reserve(worker->handle, request, &answer);
    if (rc == HOLDFAST_OK) {
        uint64_t hold = how == HF_WORKER_RESOLVED ? answer.hold : 0;
        rc = holdfast_settle(worker->handle, worker->ids[i], hold, usage, HOLDFAST_SUCCESS, NULL, &closing);
    }
    return rc;
}

int hf_worker_pairs(struct hf_worker *worker, enum hf_worker_how how, uint32_t cnt)
{
    struct holdfast_request request;
    struct holdfast_usage usage;
    uint32_t i = 0;
    int rc = 0;

    ask(worker, &request);
    use(&usage);
    for (; i < cnt && rc == 0; i++) {
        rc = one_pair(worker, how, i, &request, &usage);
    }
    hf_world_admitted(worker->world, i - (rc != 0)); /* the oracle need not count what failed as well */
    return rc;
}

int hf_worker_pairs_until(struct hf_worker *worker, uint32_t cnt, const uint32_t *over,
                          struct hf_histogram *histogram, uint32_t *done)
{
    static const uint32_t never;
    struct holdfast_request request;
    struct holdfast_usage usage;
    uint32_t i = 0;
    int rc = 0;

    ask(worker, &request);
    use(&usage);
    over = over != NULL ? over : &never;
    if (histogram == NULL) {
        for (; i < cnt && rc == 0 && hf_load_rlx_u32(over) == 0; i++) { /* relaxed: only ends the loop */
            rc = one_pair(worker, HF_WORKER_RESOLVED, i, &request, &usage);
        }
    } else {
        uint64_t before_ns = hf_clock_mono_ns();
        for (; i < cnt && rc == 0 && hf_load_rlx_u32(over) == 0; i++) { /* relaxed: as above */
            rc = one_pair(worker, HF_WORKER_RESOLVED, i, &request, &usage);
            uint64_t now_ns = hf_clock_mono_ns();
            hf_histogram_add(histogram, now_ns - before_ns);
            before_ns = now_ns;
        }
    }
    *done = i - (rc != 0);
    hf_world_admitted(worker->world, *done);
    return rc;
}

void hf_worker_bare(uint64_t *words, uint32_t k, uint32_t cnt)
{
    const uint64_t given_back = 0U - (uint64_t)(HF_WORLD_HELD_MICROS - HF_WORLD_ACTUAL_MICROS);

    for (uint32_t i = 0; i < cnt; i++) {
        for (uint32_t w = 0; w < k; w++) {
            hf_add_acqrel_u64(&words[w * 16U],
                              HF_WORLD_HELD_MICROS); /* plain: a floor, nothing follows from it */
        }
        for (uint32_t w = 0; w < k; w++) {
            hf_add_acqrel_u64(&words[w * 16U], given_back); /* plain: as above */
        }
    }
}

/* ---- single operations --------------------------------------------------------------------------------------------------- */

int hf_worker_reserve(struct hf_worker *worker, enum hf_worker_how how, uint32_t cnt)
{
    struct holdfast_request request;
    struct holdfast_answer answer;
    uint32_t i = 0;
    int rc = 0;

    ask(worker, &request);
    for (; i < cnt && rc == 0; i++) {
        name_one(worker, how, i, &request);
        rc = holdfast_reserve(worker->handle, &request, &answer);
        worker->holds[i] = answer.hold;
    }
    hf_world_admitted(worker->world, i - (rc != 0));
    return rc;
}

int hf_worker_replay(struct hf_worker *worker, uint32_t cnt)
{
    struct holdfast_request request;
    struct holdfast_answer answer;

    ask(worker, &request);
    for (uint32_t i = 0; i < cnt; i++) {
        name_one(worker, HF_WORKER_RESOLVED, i, &request);
        int rc = holdfast_reserve(worker->handle, &request, &answer);
        if (rc != HOLDFAST_OK || answer.replayed != 1) {
            return rc != HOLDFAST_OK ? rc : -1;
        }
    }
    return 0;
}

int hf_worker_settle(struct hf_worker *worker, enum hf_worker_how how, uint32_t cnt)
{
    struct holdfast_usage usage;
    struct holdfast_closing closing;

    use(&usage);
    for (uint32_t i = 0; i < cnt; i++) {
        int rc =
            holdfast_settle(worker->handle, worker->ids[i], how == HF_WORKER_RESOLVED ? worker->holds[i] : 0,
                            &usage, HOLDFAST_SUCCESS, NULL, &closing);
        if (rc != HOLDFAST_OK) {
            return rc;
        }
    }
    return 0;
}

int hf_worker_release(struct hf_worker *worker, uint32_t cnt)
{
    struct holdfast_closing closing;

    for (uint32_t i = 0; i < cnt; i++) {
        int rc = holdfast_release(worker->handle, worker->ids[i], worker->holds[i], &closing);
        if (rc != HOLDFAST_OK) {
            return rc;
        }
    }
    return 0;
}

int hf_worker_extend(struct hf_worker *worker, uint32_t cnt)
{
    struct holdfast_extension extension;
    struct holdfast_answer answer;

    holdfast_extension_init(&extension);
    extension.cost_micros = HF_WORLD_EXTENDED_MICROS;
    if (with_tokens(worker)) {
        extension.tokens = HF_WORLD_EXTENDED_TOKENS;
    }
    for (uint32_t i = 0; i < cnt; i++) {
        extension.id = worker->ids[i];
        extension.hold = worker->holds[i];
        int rc = holdfast_extend(worker->handle, &extension, &answer);
        if (rc != HOLDFAST_OK) {
            return rc;
        }
    }
    return 0;
}

int hf_worker_refusals(struct hf_worker *worker, uint32_t cnt)
{
    struct holdfast_request request;
    struct holdfast_answer answer;

    ask(worker, &request);
    for (uint32_t i = 0; i < cnt; i++) {
        request.id = worker->ids[i];
        request.path = worker->paths_none[worker->tenants[i]];
        if (holdfast_reserve(worker->handle, &request, &answer) != HOLDFAST_REFUSED ||
            answer.reason != HOLDFAST_REASON_TEAM_SHARE) {
            return -1;
        }
    }
    return 0;
}

int hf_worker_resolve(struct hf_worker *worker, uint32_t cnt)
{
    for (uint32_t i = 0; i < cnt; i++) {
        struct holdfast_path *path = NULL;
        int reason;
        int rc = holdfast_resolve(worker->handle, worker->names[worker->tenants[i]], "app", NULL, "answer",
                                  &path, &reason);
        if (rc != HOLDFAST_OK) {
            return rc;
        }
        holdfast_path_free(path);
    }
    return 0;
}

int hf_worker_usage(struct hf_worker *worker, uint32_t cnt)
{
    struct holdfast_limit limits[HF_SHM_ROW_BUCKETS];

    for (uint32_t i = 0; i < cnt; i++) {
        int reason;
        int limits_cnt = holdfast_limits(worker->handle, worker->names[worker->tenants[i]], "app", NULL,
                                         limits, HF_SHM_ROW_BUCKETS, &reason);
        if (limits_cnt <= 0) {
            return limits_cnt < 0 ? limits_cnt : -1;
        }
    }
    return 0;
}
