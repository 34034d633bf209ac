/* One worker of a replay: a gateway process that reserves, dispatches, keeps some calls in flight, and settles. Everything it
 * writes down lies in shared memory, so that a killed one leaves its account behind. */
#include "shm/atomic.h"
#include "shm/clock.h"
#include "tools/holdfast/replay.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define OPEN_TRIES_MAX  3000 /* x 10 ms: a daemon may be away for a moment */
#define BUSY_TRIES_MAX  200  /* x 1 ms: a settle that meets somebody at work */
#define FAULT_TRIES_MAX 3000 /* x 10 ms: not-ready while the segment is rebuilt */

struct worker {
    struct hf_replay_run *run;
    struct hf_replay_stats *stats;
    struct holdfast_segment *segment;
    struct holdfast *handle;
    struct holdfast_path **paths; /* resolved on first use */
    uint64_t flight[HF_REPLAY_IN_FLIGHT];
    uint64_t holds[HF_REPLAY_IN_FLIGHT];
    uint32_t flight_cnt;
};

static void sleep_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&time, NULL);
}

static void step(struct worker *worker, uint64_t row, enum hf_replay_step step)
{
    /* plain: a byte of its own; the supervisor reads it when this process is gone. */
    worker->run->shared->steps[row] = (uint8_t)step;
}

static void leave(struct worker *worker)
{
    holdfast_leave(worker->handle);
    holdfast_close(worker->segment);
    worker->handle = NULL;
    worker->segment = NULL;
}

static bool enter(struct worker *worker)
{
    for (int try = 0; try < OPEN_TRIES_MAX; try++) {
        if (holdfast_open(worker->run->segment, &worker->segment, NULL, 0) == HOLDFAST_OK) {
            if (holdfast_join(worker->segment, &worker->handle) == HOLDFAST_OK) {
                return true;
            }
            holdfast_close(worker->segment);
            worker->segment = NULL;
        }
        sleep_ms(10);
    }
    return false;
}

/* The segment was rebuilt: the old mapping answers not-ready for ever. Paths belong to a mapping. */
static bool enter_again(struct worker *worker)
{
    for (uint32_t i = 0; i < worker->run->plan.paths_cnt; i++) {
        holdfast_path_free(worker->paths[i]);
        worker->paths[i] = NULL;
    }
    memset(worker->holds, 0, sizeof worker->holds);
    leave(worker);
    return enter(worker);
}

static const struct holdfast_path *path_of(struct worker *worker, uint32_t i)
{
    const struct hf_replay_path *path = &worker->run->plan.paths[i];
    int reason;
    if (worker->paths[i] == NULL) {
        (void)!holdfast_resolve(worker->handle, path->tenant->id.bytes, path->team->id.bytes,
                                path->key == NULL ? NULL : path->key->id.bytes, path->capability->id.bytes,
                                &worker->paths[i], &reason);
    }
    return worker->paths[i];
}

static void fill_request(struct worker *worker, uint64_t i, const char *id, struct holdfast_request *request)
{
    const struct hf_replay_row *row = &worker->run->plan.rows[i];
    const struct hf_replay_path *path = &worker->run->plan.paths[row->path];
    holdfast_request_init(request);
    request->id = id;
    request->path = path_of(worker, row->path);
    if (request->path == NULL) {
        request->tenant = path->tenant->id.bytes;
        request->team = path->team->id.bytes;
        request->key = path->key == NULL ? NULL : path->key->id.bytes;
        request->capability = path->capability->id.bytes;
    }
    request->model = worker->run->plan.policy->models[row->model].id.bytes;
    if (row->economy != HF_REPLAY_NO_MODEL) {
        request->economy_model = worker->run->plan.policy->models[row->economy].id.bytes;
    }
    request->input_tokens = row->input_tokens;
    request->max_output_tokens = row->max_output_tokens;
    request->ttl_ms = worker->run->options.ttl_ms;
}

static void settle(struct worker *worker, uint64_t i, uint64_t hold)
{
    const struct hf_replay_row *row = &worker->run->plan.rows[i];
    struct holdfast_usage usage;
    struct holdfast_closing closing;
    char id[64];
    int rc = HOLDFAST_REFUSED;
    hf_replay_id(worker->run, i, id);
    holdfast_usage_init(&usage, row->input_tokens, row->output_tokens);
    step(worker, i, HF_REPLAY_STEP_SETTLING);
    for (int try = 0; try < FAULT_TRIES_MAX; try++) {
        uint64_t before = hf_clock_mono_ns();
        rc = holdfast_settle(worker->handle, id, hold, &usage,
                             row->failed ? HOLDFAST_FAILURE : HOLDFAST_SUCCESS, NULL, &closing);
        hf_histogram_add(&worker->stats->settle_ns, hf_clock_mono_ns() - before);
        if (rc == HOLDFAST_REFUSED && closing.reason == HOLDFAST_REASON_BUSY && try < BUSY_TRIES_MAX) {
            sleep_ms(1);
        } else if (rc == HOLDFAST_NOT_READY) {
            sleep_ms(10);
            (void)enter_again(worker);
            hold = 0;
        } else {
            break;
        }
    }
    if (rc == HOLDFAST_OK) {
        step(worker, i, HF_REPLAY_STEP_SETTLED);
        worker->stats->settled++;
        worker->stats->settled_tokens +=
            closing.actual.tokens == HOLDFAST_UNKNOWN ? 0 : closing.actual.tokens;
        worker->stats->settled_micros +=
            closing.actual.cost_micros == HOLDFAST_UNKNOWN ? 0 : closing.actual.cost_micros;
    } else if (rc == HOLDFAST_REFUSED && closing.reason == HOLDFAST_REASON_OVERAGE) {
        step(worker, i, HF_REPLAY_STEP_SETTLED); /* closed as disputed: the hold stays charged */
        worker->stats->disputed++;
    } else {
        worker->stats->lost++;
    }
}

static void settle_oldest(struct worker *worker)
{
    uint64_t row = worker->flight[0];
    uint64_t hold = worker->holds[0];
    worker->flight_cnt--;
    memmove(worker->flight, worker->flight + 1, worker->flight_cnt * sizeof worker->flight[0]);
    memmove(worker->holds, worker->holds + 1, worker->flight_cnt * sizeof worker->holds[0]);
    settle(worker, row, hold);
}

static void admitted(struct worker *worker, uint64_t i, const char *id, const struct holdfast_answer *answer)
{
    int reason;
    struct hf_replay_stats *stats = worker->stats;
    stats->admitted++;
    stats->degraded += answer->kind == HOLDFAST_DEGRADE;
    stats->held_tokens += answer->reserved.tokens == HOLDFAST_UNKNOWN ? 0 : answer->reserved.tokens;
    stats->held_micros += answer->reserved.cost_micros == HOLDFAST_UNKNOWN ? 0 : answer->reserved.cost_micros;
    (void)!holdfast_dispatch(worker->handle, id, answer->hold, &reason);
    worker->flight[worker->flight_cnt] = i;
    worker->holds[worker->flight_cnt++] = answer->hold;
    if (worker->flight_cnt == HF_REPLAY_IN_FLIGHT) {
        settle_oldest(worker);
    }
}

static void one_row(struct worker *worker, uint64_t i)
{
    struct holdfast_request request;
    struct holdfast_answer answer;
    char id[64];
    int rc = HOLDFAST_NOT_READY;
    hf_replay_id(worker->run, i, id);
    worker->stats->requests++;
    step(worker, i, HF_REPLAY_STEP_BEGUN);
    for (int try = 0; rc == HOLDFAST_NOT_READY && try < FAULT_TRIES_MAX; try++) {
        fill_request(worker, i, id, &request);
        uint64_t before = hf_clock_mono_ns();
        rc = holdfast_reserve(worker->handle, &request, &answer);
        hf_histogram_add(&worker->stats->reserve_ns, hf_clock_mono_ns() - before);
        if (rc == HOLDFAST_NOT_READY) {
            sleep_ms(10);
            (void)enter_again(worker);
        }
    }
    if (rc == HOLDFAST_OK) {
        step(worker, i, HF_REPLAY_STEP_ADMITTED);
        admitted(worker, i, id, &answer);
    } else if (rc == HOLDFAST_REFUSED) {
        step(worker, i, HF_REPLAY_STEP_REFUSED);
        worker->stats->refused[answer.reason][answer.layer + 1]++;
    } else {
        worker->stats->lost++;
    }
}

/* Sleeps until the row is due; settles what is in flight while there is time. False: stop. */
static bool wait_until_due(struct worker *worker, uint64_t i)
{
    const struct hf_replay_run *run = worker->run;
    if (run->options.speed_permille == 0) {
        return true;
    }
    uint64_t at_ns =
        (uint64_t)((unsigned __int128)run->plan.rows[i].at_ns * 1000 / run->options.speed_permille);
    uint64_t due_ns = run->shared->start_ns + at_ns;
    for (uint64_t now_ns = hf_clock_mono_ns(); now_ns < due_ns; now_ns = hf_clock_mono_ns()) {
        if (hf_load_rlx_u32(&run->shared->stop) != 0) { /* relaxed: a flag */
            return false;
        }
        if (worker->flight_cnt > 0) {
            settle_oldest(worker);
        } else {
            sleep_ms(due_ns - now_ns > 20000000 ? 20 : (long)((due_ns - now_ns) / 1000000 + 1));
        }
    }
    return true;
}

void hf_replay_worker(struct hf_replay_run *run, uint32_t place)
{
    struct worker worker = {.run = run, .stats = &run->shared->stats[place]};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a supervisor that dies takes its workers with it */
    worker.paths = calloc(run->plan.paths_cnt, sizeof(struct holdfast_path *));
    if (worker.paths == NULL || !enter(&worker)) {
        _exit(1);
    }
    for (;;) {
        uint64_t i = hf_add_rlx_u64(&run->shared->next_row, 1); /* relaxed: only the number matters */
        if (i >= run->plan.rows_cnt || hf_load_rlx_u32(&run->shared->stop) != 0 || /* relaxed: a flag */
            !wait_until_due(&worker, i)) {
            break;
        }
        one_row(&worker, i);
    }
    while (worker.flight_cnt > 0) {
        settle_oldest(&worker);
    }
    for (uint32_t i = 0; i < run->plan.paths_cnt; i++) {
        holdfast_path_free(worker.paths[i]);
    }
    free((void *)worker.paths);
    leave(&worker);
    _exit(0);
}
