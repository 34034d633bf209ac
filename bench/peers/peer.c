#include "bench/peers/peer.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/peers/peer_options.h"

#define NS_PER_S 1000000000.0

/* Written by one process each, read when all have ended. */
struct result {
    _Alignas(128) uint64_t pair_cnt; /* all, for the check */
    uint64_t measured_pair_cnt;
    uint64_t measured_ns;
    struct hf_histogram durations;
};

struct run {
    pthread_barrier_t start;
    struct result results[PEER_PROCESSES_MAX];
};

struct worker {
    const struct peer *peer;
    const struct peer_options *options;
    void *connection;
    struct result *result;
    uint64_t next_id;
};

int peer_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return -1;
}

uint64_t peer_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void *peer_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        peer_error("no shared memory of %zu bytes: %s", bytes, strerror(errno));
        return NULL;
    }
    return memory;
}

static int do_pairs(struct worker *worker, unsigned cnt)
{
    if (worker->peer->pairs(worker->connection, worker->next_id, cnt)) {
        return -1;
    }
    worker->next_id += cnt;
    worker->result->pair_cnt += cnt;
    return 0;
}

/* Pairs without a clock around each, for the rate. */
static int measure_rate(struct worker *worker, uint64_t run_ns)
{
    uint64_t begin_ns = peer_now_ns();
    uint64_t now_ns = begin_ns;
    while (now_ns - begin_ns < run_ns) {
        if (do_pairs(worker, worker->peer->batch_cnt)) {
            return -1;
        }
        now_ns = peer_now_ns();
    }
    worker->result->measured_pair_cnt = worker->result->pair_cnt;
    worker->result->measured_ns = now_ns - begin_ns;
    return 0;
}

/* The peer times its own pairs, some at once. */
static int measure_inside(struct worker *worker, uint64_t run_ns)
{
    const unsigned cnt = 1000;
    uint64_t begin_ns = peer_now_ns();
    while (peer_now_ns() - begin_ns < run_ns) {
        if (worker->peer->timed(worker->connection, worker->next_id, cnt, &worker->result->durations)) {
            return -1;
        }
        worker->next_id += cnt;
        worker->result->pair_cnt += cnt;
    }
    return 0;
}

/* Each pair with the clock around it. */
static int measure_each(struct worker *worker, uint64_t run_ns)
{
    uint64_t begin_ns = peer_now_ns();
    uint64_t outside_ns = 0;
    uint64_t now_ns = begin_ns;
    while (now_ns - begin_ns < run_ns) {
        uint64_t pair_ns = now_ns;
        if (worker->peer->between) {
            if (worker->peer->between(worker->connection)) {
                return -1;
            }
            pair_ns = peer_now_ns();
            outside_ns += pair_ns - now_ns;
        }
        if (do_pairs(worker, 1)) {
            return -1;
        }
        now_ns = peer_now_ns();
        hf_histogram_add(&worker->result->durations, now_ns - pair_ns);
    }
    if (worker->peer->batch_cnt == 1) {
        worker->result->measured_pair_cnt = worker->result->pair_cnt;
        worker->result->measured_ns = now_ns - begin_ns - outside_ns;
    }
    return 0;
}

static int measure(struct worker *worker)
{
    uint64_t run_ns = worker->options->run_ns;
    if (worker->peer->batch_cnt == 1) {
        return measure_each(worker, run_ns);
    }
    if (measure_rate(worker, run_ns / 5 * 4)) {
        return -1;
    }
    return worker->peer->timed ? measure_inside(worker, run_ns / 5) : measure_each(worker, run_ns / 5);
}

static int pin(const struct peer_options *options, unsigned process_idx)
{
    cpu_set_t set;
    if (options->cpu_cnt == 0) {
        return 0;
    }
    CPU_ZERO(&set);
    CPU_SET((unsigned)options->cpus[process_idx % options->cpu_cnt], &set);
    if (sched_setaffinity(0, sizeof(set), &set)) {
        return peer_error("cannot stay on processor %d: %s; give --cpus others",
                          options->cpus[process_idx % options->cpu_cnt], strerror(errno));
    }
    return 0;
}

/* In a process of its own. Returns its exit status. */
static int work(const struct peer *peer, const struct peer_options *options, void *prepared, struct run *run,
                unsigned process_idx)
{
    struct worker worker = {
        .peer = peer,
        .options = options,
        .result = &run->results[process_idx],
        .next_id = PEER_FIRST_ID(process_idx),
    };
    if (pin(options, process_idx)) {
        return 1;
    }
    worker.connection = peer->open(options, prepared, process_idx);
    if (!worker.connection) {
        return 1;
    }
    pthread_barrier_wait(&run->start);
    int result = measure(&worker);
    peer->close(worker.connection);
    return result ? 1 : 0;
}

static int fork_workers(const struct peer *peer, const struct peer_options *options, void *prepared,
                        struct run *run, pid_t *pids)
{
    pid_t parent = getpid();
    for (unsigned i = 0; i < options->process_cnt; i++) {
        pids[i] = fork();
        if (pids[i] < 0) {
            return peer_error("no more processes: %s", strerror(errno));
        }
        if (pids[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(getppid() == parent ? work(peer, options, prepared, run, i) : 1);
        }
    }
    return 0;
}

/* All processes to their end; the first that fails ends the others, which may wait for it. */
static int run_workers(const struct peer *peer, const struct peer_options *options, void *prepared,
                       struct run *run)
{
    pid_t pids[PEER_PROCESSES_MAX] = {0};
    int result = fork_workers(peer, options, prepared, run, pids);
    for (;;) {
        int status = 0;
        if (result) {
            for (unsigned i = 0; i < options->process_cnt; i++) {
                if (pids[i] > 0) {
                    kill(pids[i], SIGKILL);
                }
            }
        }
        pid_t pid = wait(&status);
        if (pid < 0) {
            return result;
        }
        for (unsigned i = 0; i < options->process_cnt; i++) {
            pids[i] = pids[i] == pid ? 0 : pids[i];
        }
        if (status != 0) {
            result = -1;
        }
    }
}

/* How many of budgets, records and refusals are not as they must be; -1 when it cannot be told. */
static int check(const struct peer *peer, const struct peer_options *options, void *prepared,
                 const struct run *run)
{
    struct peer_totals totals = {.record_cnt = UINT64_MAX};
    void *connection = peer->open(options, prepared, options->process_cnt);
    if (!connection) {
        return -1;
    }
    int refused = peer->refused ? peer->refused(connection, PEER_FIRST_ID(options->process_cnt)) : 1;
    int result = peer->totals(connection, &totals);
    peer->close(connection);
    if (refused < 0 || result) {
        return -1;
    }
    uint64_t settled_micros = 0;
    uint64_t pair_cnt = 0;
    for (unsigned i = 0; i < options->process_cnt; i++) {
        for (uint64_t k = 0; k < run->results[i].pair_cnt; k++) {
            settled_micros += peer_actual(PEER_FIRST_ID(i) + k);
        }
        pair_cnt += run->results[i].pair_cnt;
    }
    if (!refused) {
        peer_error("a reserve above the tenant's limit was admitted");
    }
    if (totals.tenant_micros != settled_micros || totals.team_micros != settled_micros) {
        peer_error("settled are %" PRIu64 " micros, but the tenant has %" PRIu64 " and the team %" PRIu64,
                   settled_micros, totals.tenant_micros, totals.team_micros);
    }
    if (totals.record_cnt != UINT64_MAX && totals.record_cnt != pair_cnt) {
        peer_error("%" PRIu64 " pairs left %" PRIu64 " records", pair_cnt, totals.record_cnt);
    }
    return (refused ? 0 : 1) + (totals.tenant_micros != settled_micros) +
           (totals.team_micros != settled_micros) +
           (totals.record_cnt != UINT64_MAX && totals.record_cnt != pair_cnt);
}

static void print(const struct peer_options *options, const struct run *run, int mismatch_cnt)
{
    struct hf_histogram *durations = calloc(1, sizeof(*durations));
    double pairs_per_s = 0;
    double slowest = 0;
    double fastest = 0;
    double seconds = 0;
    uint64_t pair_cnt = 0;
    if (!durations) {
        return;
    }
    for (unsigned i = 0; i < options->process_cnt; i++) {
        const struct result *result = &run->results[i];
        double own_seconds = (double)result->measured_ns / NS_PER_S;
        double rate = own_seconds > 0 ? (double)result->measured_pair_cnt / own_seconds : 0;
        pairs_per_s += rate;
        slowest = i == 0 || rate < slowest ? rate : slowest;
        fastest = rate > fastest ? rate : fastest;
        seconds = own_seconds > seconds ? own_seconds : seconds;
        pair_cnt += result->measured_pair_cnt;
        hf_histogram_merge(durations, &result->durations);
    }
    struct hf_histogram_summary summary = hf_histogram_summary(durations);
    printf("{\"peer\":\"%s\",\"processes\":%u,\"placement\":\"%s\",\"pairs\":%" PRIu64
           ",\"seconds\":%.3f,\"pairs_per_s\":%.1f,"
           "\"p50_ns\":%" PRIu64 ",\"p99_ns\":%" PRIu64 ",\"p999_ns\":%" PRIu64 ",\"max_ns\":%" PRIu64
           ",\"slower_of_faster\":%.3f,\"mismatches\":%d}\n",
           options->name, options->process_cnt, options->placement, pair_cnt, seconds, pairs_per_s,
           summary.p50_ns, summary.p99_ns, summary.p999_ns, summary.max_ns,
           fastest > 0 ? slowest / fastest : 0, mismatch_cnt);
    free(durations);
}

int peer_main(int argc, char **argv, const struct peer *peer)
{
    struct peer_options options;
    pthread_barrierattr_t shared;
    if (peer_options_read(argc, argv, peer->name, &options)) {
        return 2;
    }
    struct run *run = peer_shared(sizeof(*run));
    if (!run) {
        return 1;
    }
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&run->start, &shared, options.process_cnt);
    void *prepared = peer->prepare(&options);
    if (!prepared || run_workers(peer, &options, prepared, run)) {
        return 1;
    }
    int mismatch_cnt = check(peer, &options, prepared, run);
    if (mismatch_cnt < 0) {
        return 1;
    }
    print(&options, run, mismatch_cnt);
    return mismatch_cnt == 0 ? 0 : 1;
}
