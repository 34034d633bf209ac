#include "bench/shim.h"

#include "core/client.h"
#include "core/policy.h"
#include "core/policy_compile.h"
#include "shm/chunk.h"
#include "shm/clock.h"
#include "shm/commit.h"
#include "shm/index.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char policy_text[] = "version: 1\n"
                                  "currency: EUR\n"
                                  "prices: {revision: '1', models: [{id: m, input_micros_per_mtok: 1000000,"
                                  " output_micros_per_mtok: 2000000, max_output_tokens: 4096}]}\n"
                                  "tenants:\n"
                                  "  - id: tenant-one\n"
                                  "    limits: [{window: month, cost_micros: 72057594037927935}]\n"
                                  "    teams:\n"
                                  "      - id: team-one\n"
                                  "        limits: [{window: month, cost_micros: 72057594037927000}]\n"
                                  "        capabilities: [{id: answer, cap_micros: 1000000}]\n"
                                  "      - id: team-none\n"
                                  "        limits: [{window: month, cost_micros: 0}]\n"
                                  "        capabilities: [{id: answer, cap_micros: 1000000}]\n";

#define ID_BYTES      32
#define HELD_MICROS   1000
#define ACTUAL_MICROS 400

/* A word on a pair of lines of its own. */
struct bare {
    uint64_t word;
    uint64_t pad[15];
} __attribute__((aligned(128)));

struct hf_bench {
    struct bare bare[2];
    struct hf_segment map;
    struct holdfast_segment *segment; /* owns the mapping */
    struct holdfast *handle;
    struct holdfast_path *path;      /* team-one */
    struct holdfast_path *path_none; /* team-none */
    char (*ids)[ID_BYTES];
    uint32_t slots;
    uint64_t next_id;
    uint64_t charged_micros; /* what drained slots leave in each bucket of their path */
    uint64_t settled_cnt;    /* written by whoever drains */
    uint64_t begun_cnt;      /* pairs begun */
    pthread_t thread;
    bool draining;
    uint32_t stop;
};

uint64_t hf_bench_cpu_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

/* ---- a segment ---------------------------------------------------------------------------------------- */

static int load_policy(struct hf_policy **policy, char *error, size_t error_bytes)
{
    struct hf_policy_report report = {0};
    int rc = hf_policy_load_bytes("bench", policy_text, sizeof(policy_text) - 1, 0, policy, &report);

    if (rc != HF_POLICY_LOADED) {
        (void)snprintf(error, error_bytes, "the policy of the benchmark: line %u: %s",
                       report.problem_cnt > 0 ? report.problems[0].line : 0,
                       report.problem_cnt > 0 ? report.problems[0].message : "out of memory");
    }
    hf_policy_report_free(&report);
    return rc;
}

static int make_segment(struct hf_bench *bench, struct hf_error *err)
{
    static const uint8_t digest[32];
    struct hf_policy *policy = NULL;
    struct timespec now;
    struct hf_segment_plan plan = {.slots = bench->slots,
                                   .owners = 8,
                                   .replay_horizon_ms = 1,
                                   .late_horizon_ms = 1,
                                   .max_lag_ms = 30000,
                                   .epoch = 1,
                                   .mode = 0600,
                                   .group = (gid_t)-1,
                                   .store_name = "bench",
                                   .store_url = ""};
    int rc;

    if (load_policy(&policy, err->text, sizeof(err->text)) != HF_POLICY_LOADED) {
        return HF_EARG;
    }
    rc = hf_policy_plan(policy, &plan, err);
    if (rc == HF_OK) {
        rc = hf_segment_create_anonymous(&plan, &bench->map, err);
    }
    if (rc == HF_OK) {
        rc = hf_policy_compile(policy, digest, 1, &bench->map, err);
        (void)clock_gettime(CLOCK_REALTIME, &now);
        hf_clock_publish(&bench->map, (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000,
                         hf_clock_mono_fine_ms(), 1);
        hf_store_rlx_u64(&bench->map.header->hdr_durable_ms, hf_clock_mono_fine_ms());
        hf_store_rlx_u64(&bench->map.header->hdr_heartbeat_ms, hf_clock_mono_fine_ms());
        hf_segment_set_state(&bench->map, HF_SEGMENT_READY);
    }
    hf_policy_free(policy);
    return rc;
}

static int join(struct hf_bench *bench)
{
    int reason;
    int rc = hf_client_wrap(&bench->map, &bench->segment);

    if (rc == HOLDFAST_OK) {
        rc = holdfast_join(bench->segment, &bench->handle);
    }
    if (rc == HOLDFAST_OK) {
        rc = holdfast_resolve(bench->handle, "tenant-one", "team-one", NULL, "answer", &bench->path, &reason);
    }
    if (rc == HOLDFAST_OK) {
        rc = holdfast_resolve(bench->handle, "tenant-one", "team-none", NULL, "answer", &bench->path_none,
                              &reason);
    }
    return rc;
}

struct hf_bench *hf_bench_open(uint32_t slots, char *error, size_t error_bytes)
{
    struct hf_error err = {0};
    void *memory = NULL;

    if (posix_memalign(&memory, 128, sizeof(struct hf_bench)) != 0) {
        (void)snprintf(error, error_bytes, "out of memory");
        return NULL;
    }
    struct hf_bench *bench = memory;
    memset(bench, 0, sizeof(*bench));
    bench->slots = slots;
    bench->ids = calloc(slots, sizeof(*bench->ids));
    if (bench->ids == NULL || make_segment(bench, &err) != HF_OK) {
        (void)snprintf(error, error_bytes, "%s", bench->ids == NULL ? "out of memory" : err.text);
        hf_bench_close(bench);
        return NULL;
    }
    int rc = join(bench);
    if (rc != HOLDFAST_OK) {
        (void)snprintf(error, error_bytes, "joining the segment: %s", holdfast_strerror(rc));
        hf_bench_close(bench);
        return NULL;
    }
    return bench;
}

void hf_bench_close(struct hf_bench *bench)
{
    hf_bench_drain_stop(bench);
    holdfast_path_free(bench->path);
    holdfast_path_free(bench->path_none);
    holdfast_leave(bench->handle);
    if (bench->segment != NULL) {
        holdfast_close(bench->segment);
    } else if (bench->map.base != NULL) {
        hf_segment_detach(&bench->map);
    }
    free(bench->ids);
    free(bench);
}

/* ---- operations --------------------------------------------------------------------------------------- */

void hf_bench_new_ids(struct hf_bench *bench, uint32_t cnt)
{
    for (uint32_t i = 0; i < cnt && i < bench->slots; i++) {
        (void)snprintf(bench->ids[i], ID_BYTES, "req-%016" PRIx64, bench->next_id++);
    }
}

int hf_bench_pairs(struct hf_bench *bench, enum hf_bench_how how, uint32_t cnt)
{
    struct holdfast_request request;
    struct holdfast_answer answer;
    struct holdfast_usage usage;
    struct holdfast_closing closing;

    holdfast_request_init(&request);
    if (how == HF_BENCH_RESOLVED) {
        request.path = bench->path;
    } else {
        request.tenant = "tenant-one";
        request.team = "team-one";
        request.capability = "answer";
    }
    request.cost_micros = HELD_MICROS;
    holdfast_usage_init(&usage, 100, 50);
    usage.cost_micros = ACTUAL_MICROS;
    /* relaxed: a count for the drain thread's waiters, and the last pair is in flight either way. */
    hf_add_rlx_u64(&bench->begun_cnt, cnt);
    for (uint32_t i = 0; i < cnt; i++) {
        request.id = bench->ids[i];
        int rc = holdfast_reserve(bench->handle, &request, &answer);
        if (rc == HOLDFAST_OK) {
            uint64_t hold = how == HF_BENCH_RESOLVED ? answer.hold : 0;
            rc =
                holdfast_settle(bench->handle, bench->ids[i], hold, &usage, HOLDFAST_SUCCESS, NULL, &closing);
        }
        if (rc != HOLDFAST_OK) {
            return rc;
        }
    }
    return 0;
}

int hf_bench_refusals(struct hf_bench *bench, uint32_t cnt)
{
    struct holdfast_request request;
    struct holdfast_answer answer;

    holdfast_request_init(&request);
    request.path = bench->path_none;
    request.cost_micros = HELD_MICROS;
    for (uint32_t i = 0; i < cnt; i++) {
        request.id = bench->ids[i];
        if (holdfast_reserve(bench->handle, &request, &answer) != HOLDFAST_REFUSED ||
            answer.reason != HOLDFAST_REASON_TEAM_SHARE) {
            return -1;
        }
    }
    return 0;
}

void hf_bench_bare(struct hf_bench *bench, uint32_t cnt)
{
    uint64_t held = HELD_MICROS;
    uint64_t given_back = 0U - (uint64_t)(HELD_MICROS - ACTUAL_MICROS);

    for (uint32_t i = 0; i < cnt; i++) {
        hf_add_acqrel_u64(&bench->bare[0].word, held);
        hf_add_acqrel_u64(&bench->bare[1].word, held);
        hf_add_acqrel_u64(&bench->bare[0].word, given_back);
        hf_add_acqrel_u64(&bench->bare[1].word, given_back);
    }
}

/* ---- the stand-in for the daemon ------------------------------------------------------------------------ */

/* A settled slot, as after the commit of its receipts: out of the index, out of W, free. */
static bool drain_slot(struct hf_bench *bench, uint32_t slot_idx)
{
    struct hf_segment *seg = &bench->map;
    struct hf_shm_slot *slot = &seg->slots[slot_idx];
    struct hf_u128 st = hf_commit_read_st(slot); /* E13 */

    if (hf_st_state(st) != HF_STATE_SETTLED) {
        return false; /* still open: its closing marks it again */
    }
    /* relaxed: E13 orders what the slot says. */
    uint64_t actual = hf_load_rlx_u64(&slot->slot_actual_cost);
    if (hf_commit_detach(seg, slot->slot_tenant, slot_idx) != HF_OK ||
        !hf_index_remove(seg, slot->slot_id_hash, slot_idx)) {
        return false; /* the mismatch count tells */
    }
    hf_store_rlx_u64(
        &slot->slot_persisted,
        hf_persisted_make(hf_st_gen(st), hf_st_ordinal(st),
                          HF_PERSISTED_RESERVATION | HF_PERSISTED_CLOSING)); /* relaxed: one writer */
    struct hf_u128 gone = hf_st_make(hf_st_seq(st), 0, HF_STATE_FREE, hf_st_time_ms(st), hf_st_gen(st));
    if (!hf_cas_acqrel_u128(&slot->slot_st, st, gone)) {
        return false;
    }
    hf_chunk_freed(seg, slot_idx);
    bench->charged_micros += actual;
    hf_add_rlx_u64(&bench->settled_cnt, 1); /* relaxed: a count */
    return true;
}

uint32_t hf_bench_drain(struct hf_bench *bench)
{
    struct hf_segment *seg = &bench->map;
    uint64_t now_ms = hf_clock_mono_ms();
    uint32_t freed = 0;

    for (uint32_t chunk = 0; chunk < seg->chunks_cnt; chunk++) {
        uint64_t *dirty = &seg->chunks[chunk].chunk_dirty;
        if (hf_load_rlx_u64(dirty) == 0) { /* relaxed: the exchange decides */
            continue;
        }
        for (uint64_t bits = hf_xchg_acqrel_u64(dirty, 0); bits != 0; bits &= bits - 1) {
            freed += drain_slot(bench, (chunk << seg->chunk_shift) + (uint32_t)__builtin_ctzll(bits));
        }
    }
    hf_store_rlx_u64(&seg->header->hdr_durable_ms, now_ms); /* relaxed: gauges */
    hf_store_rlx_u64(&seg->header->hdr_heartbeat_ms, now_ms);
    return freed;
}

static void *drain_thread(void *arg)
{
    struct hf_bench *bench = arg;

    const struct timespec pause = {.tv_nsec = 1000000}; /* about a cycle of the daemon */

    while (hf_load_rlx_u32(&bench->stop) == 0) { /* relaxed: joined afterwards */
        (void)hf_bench_drain(bench);
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

int hf_bench_drain_start(struct hf_bench *bench)
{
    if (bench->draining) {
        return 0;
    }
    hf_store_rlx_u32(&bench->stop, 0);
    int rc = pthread_create(&bench->thread, NULL, drain_thread, bench);
    bench->draining = rc == 0;
    return rc;
}

void hf_bench_drain_stop(struct hf_bench *bench)
{
    if (!bench->draining) {
        return;
    }
    hf_store_rlx_u32(&bench->stop, 1);
    (void)pthread_join(bench->thread, NULL);
    bench->draining = false;
}

void hf_bench_drain_wait(const struct hf_bench *bench, uint32_t cnt)
{
    /* relaxed: a slot is seen free by its own words. */
    while (bench->draining &&
           hf_load_rlx_u64(&bench->begun_cnt) + cnt > hf_load_rlx_u64(&bench->settled_cnt) + bench->slots) {
        hf_pause();
    }
}

/* ---- the oracle ----------------------------------------------------------------------------------------- */

uint64_t hf_bench_settled_cnt(const struct hf_bench *bench)
{
    return hf_load_rlx_u64(&bench->settled_cnt);
}

uint64_t hf_bench_mismatches(struct hf_bench *bench)
{
    struct hf_segment *seg = &bench->map;
    uint64_t mismatches = 0;

    (void)hf_bench_drain(bench);
    uint64_t expected = bench->charged_micros;
    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        struct hf_u128 st = hf_commit_read_st(&seg->slots[i]);
        if (hf_st_state(st) == HF_STATE_HELD) {
            expected += seg->slots[i].slot_holds[hf_st_ordinal(st) & 1U].hold_cost;
        } else {
            mismatches += hf_st_state(st) != HF_STATE_FREE; /* lost */
        }
    }
    /* The tenant and team-one saw every pair; the team without money none. */
    uint32_t team = hf_policy_row(seg, 1, "tenant-one", "team-one", NULL);
    uint32_t none = hf_policy_row(seg, 1, "tenant-one", "team-none", NULL);
    for (uint32_t row = 0; row < 3; row++) {
        for (uint32_t window = 0; window < HF_SHM_WINDOWS; window++) {
            for (uint32_t dim = 0; dim < HF_SHM_DIMS; dim++) {
                bool counts = window == HF_WINDOW_MONTH && dim == HF_DIM_COST && row != none;
                uint64_t value =
                    hf_bucket_value(hf_commit_read_bucket(&seg->rows[row].row_buckets[window][dim]));
                mismatches += value != (counts ? expected : 0);
            }
        }
    }
    mismatches += team == HF_SHM_NONE || none == HF_SHM_NONE;
    /* Every pair begun was drained as settled, at the amount it told. */
    mismatches += bench->settled_cnt != bench->begun_cnt;
    mismatches += bench->charged_micros != bench->settled_cnt * ACTUAL_MICROS;
    return mismatches;
}
