#include "load.h"

#include "core/include/holdfast.h"
#include "place.h"
#include "shm/atomic.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OPEN_MAX 64 /* reservations that a worker keeps open */

struct worker {
    struct holdfast *handle;
    uint64_t random;
    uint64_t number; /* of its next id */
    uint32_t idx;
    char open[OPEN_MAX][24];
    uint64_t ops;
};

static uint32_t draw(struct worker *worker, uint32_t below)
{
    worker->random = worker->random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)(worker->random >> 33) % below;
}

/* An answer may be anything; a fault ends the worker. */
static void no_fault(int result)
{
    if (result < 0) {
        (void)fprintf(stderr, "a worker was answered with fault %d\n", result);
        _exit(4);
    }
}

static void reserve(struct worker *worker, uint32_t place)
{
    static const char *const tenants[] = {"one", "one", "two", "three"};
    static const char *const teams[] = {"a", "b", "a", "a"};
    uint32_t path = draw(worker, 4);
    struct holdfast_request request;
    struct holdfast_answer answer;
    char *id = worker->open[place];

    (void)snprintf(id, sizeof(worker->open[0]), "w%u-%" PRIu64, worker->idx, worker->number++);
    holdfast_request_init(&request);
    request.id = id;
    request.tenant = tenants[path];
    request.team = teams[path];
    request.key = path % 2 == 0 && draw(worker, 2) == 0 ? "k" : NULL;
    request.capability = "c";
    request.tokens = draw(worker, 3000);
    request.cost_micros = draw(worker, 3000);
    request.ttl_ms = draw(worker, 8) == 0 ? 30 : 60000; /* some expire */
    int result = holdfast_reserve(worker->handle, &request, &answer);

    no_fault(result);
    if (result != HOLDFAST_OK) {
        id[0] = '\0';
    }
}

static void settle(struct worker *worker, const char *id)
{
    struct holdfast_usage usage;
    struct holdfast_closing closing;

    holdfast_usage_init(&usage, draw(worker, 1500), draw(worker, 1500));
    usage.cost_micros = draw(worker, 3500);
    no_fault(holdfast_settle(worker->handle, id, 0, draw(worker, 9) == 0 ? NULL : &usage,
                             draw(worker, 5) == 0 ? HOLDFAST_FAILURE : HOLDFAST_SUCCESS, NULL, &closing));
}

static void extend(struct worker *worker, const char *id)
{
    struct holdfast_extension extension;
    struct holdfast_answer answer;

    holdfast_extension_init(&extension);
    extension.id = id;
    extension.tokens = draw(worker, 6000);
    extension.cost_micros = draw(worker, 6000);
    no_fault(holdfast_extend(worker->handle, &extension, &answer));
}

/* One operation on one of its places. */
static void work(struct worker *worker)
{
    struct holdfast_closing closing;
    uint32_t place = draw(worker, OPEN_MAX);
    char *id = worker->open[place];
    uint64_t total = 0;
    int refused = 0;

    worker->ops++;
    if (id[0] == '\0') {
        reserve(worker, place);
        return;
    }
    switch (draw(worker, 12)) {
    case 0:
    case 1:
        extend(worker, id);
        return;
    case 2:
        no_fault(holdfast_dispatch(worker->handle, id, 0, NULL));
        return;
    case 3:
        no_fault(holdfast_release(worker->handle, id, 0, &closing));
        break;
    case 4:
        if (draw(worker, 400) == 0) {
            no_fault(holdfast_credit(worker->handle, "one", "a", HOLDFAST_WINDOW_MONTH,
                                     (int64_t)draw(worker, 90) - 30, "test", "fsck", &total, &refused));
        }
        return;
    case 5:
        break; /* forgotten: it expires, or stays open */
    default:
        settle(worker, id);
        break;
    }
    if (draw(worker, 3) != 0) {
        id[0] = '\0';
    } /* else it is settled again, late, or after all */
}

static int run(struct load_board *board, const char *segment, uint32_t idx, uint64_t seed,
               unsigned ops_per_ms)
{
    const struct timespec pause = {0, 1000000L};
    struct holdfast_segment *shared = NULL;
    struct worker *worker = calloc(1, sizeof(*worker));

    if (worker == NULL || holdfast_open(segment, &shared, NULL, 0) != HOLDFAST_OK ||
        holdfast_join(shared, &worker->handle) != HOLDFAST_OK) {
        return 3;
    }
    worker->random = seed * 977U + idx;
    worker->idx = idx;
    worker->number = seed % 1000U * 100000000U;
    while (hf_load_rlx_u64(&board->stop) == 0) {
        for (unsigned i = 0; i < ops_per_ms; i++) {
            work(worker);
        }
        hf_store_rlx_u64(&board->ops[idx], worker->ops);
        (void)nanosleep(&pause, NULL);
    }
    holdfast_leave(worker->handle);
    holdfast_close(shared);
    free(worker);
    return 0;
}

void load_start(struct load *load, const char *segment, uint64_t seed, unsigned ops_per_ms)
{
    load->board = mmap(NULL, sizeof(*load->board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (load->board == MAP_FAILED) {
        die("no memory for the board");
    }
    for (uint32_t i = 0; i < LOAD_WORKERS; i++) {
        load->pids[i] = fork();
        if (load->pids[i] == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(run(load->board, segment, i, seed, ops_per_ms));
        }
    }
}

void load_signal(struct load *load, uint32_t idx, int sig)
{
    (void)kill(load->pids[idx], sig);
    if (sig == SIGKILL) {
        (void)waitpid(load->pids[idx], NULL, 0);
        load->pids[idx] = 0;
    }
}

void load_stop(struct load *load)
{
    hf_store_rlx_u64(&load->board->stop, 1);
    for (uint32_t i = 0; i < LOAD_WORKERS; i++) {
        int status = 0;

        if (load->pids[i] != 0 && (waitpid(load->pids[i], &status, 0) != load->pids[i] || status != 0)) {
            die("worker %u ended with status %d", i, status);
        }
    }
}

uint64_t load_ops(const struct load *load)
{
    uint64_t ops = 0;

    for (uint32_t i = 0; i < LOAD_WORKERS; i++) {
        ops += hf_load_rlx_u64(&load->board->ops[i]);
    }
    return ops;
}
