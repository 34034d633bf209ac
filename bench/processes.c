/* Reserve+settle pairs by processes or threads side by side: pairs a second by the wall, latencies, fairness. bench/README.md says
 * how a round goes and what is within its time.
 *
 *     bench_processes --processes N | --threads N [--tenants one|own|spread[:COUNT]] [--k 1|2|4|8] [--seconds S]
 *                     [--drain between|beside|none] [--round PAIRS] [--slots N] [--ids any|apart]
 *                     [--core FIRST] [--json]
 *
 * Exit status 0; 1 when a bucket does not say what the slots add up to, or an operation failed; 2 when it could not start. */
#include "bench/processes.h"
#include "bench/board.h"
#include "bench/worker.h"

#include "shm/atomic.h"
#include "shm/clock.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define LATENCY_EVERY 8U /* each eighth round is timed pair by pair, and in no throughput */

/* The first round warms up and counts nowhere. */
static enum hf_round kind_of(uint32_t round)
{
    return round == 0 ? HF_ROUND_WARM : round % LATENCY_EVERY == 1 ? HF_ROUND_LATENCY : HF_ROUND_THROUGHPUT;
}

/* ---- a worker ------------------------------------------------------------------------------------------------------------ */

/* The processors that this program may use, round robin. */
static void pin(const struct hf_run *run, uint32_t number)
{
    uint32_t wanted = (run->first_core + number) % run->cores;
    cpu_set_t set;

    for (uint32_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET((size_t)core, &run->allowed) && wanted-- == 0) {
            CPU_ZERO(&set);
            CPU_SET((size_t)core, &set);
            (void)sched_setaffinity(0, sizeof(set), &set); /* refused: it floats */
            return;
        }
    }
}

/* Room for a round of everybody. */
static void make_room(struct hf_run *run, struct hf_worker *worker)
{
    if (run->drain == HF_DRAIN_BETWEEN) {
        hf_board_enter(run->board);
        (void)hf_world_drain(run->world, hf_worker_ref(worker));
        hf_board_leave(run->board);
    } else if (run->drain == HF_DRAIN_BESIDE) {
        hf_world_wait_room(run->world, run->round * run->workers);
    }
}

static void one_round(struct hf_run *run, struct hf_worker *worker, struct hf_board_seat *seat,
                      uint32_t round)
{
    struct hf_board *board = run->board;
    enum hf_round kind = kind_of(round);
    uint32_t done = 0;
    uint64_t cpu_ns = hf_worker_cpu_ns();
    uint64_t begin_ns = hf_clock_mono_ns();
    int rc = hf_worker_pairs_until(worker, run->round, &board->over,
                                   kind == HF_ROUND_LATENCY ? &seat->histogram : NULL, &done);

    hf_store_rlx_u32(&board->over, 1); /* relaxed: only ends the others' loops */
    seat->end_ns = hf_clock_mono_ns();
    seat->round_pairs = done;
    if (kind == HF_ROUND_THROUGHPUT) {
        seat->pairs += done;
        seat->second_pairs += done;
        seat->busy_ns += seat->end_ns - begin_ns;
        seat->cpu_ns += hf_worker_cpu_ns() - cpu_ns;
    }
    if (rc != 0) {
        (void)fprintf(stderr, "bench_processes: a pair answered %d\n", rc);
        hf_store_rlx_u32(&board->failed, 1); /* relaxed: read after the next barrier */
    }
}

/* All rounds of a worker; number 0 leads. Everybody meets as often as the others, whatever fails. */
static void work(struct hf_run *run, uint32_t number)
{
    struct hf_worker_plan plan = {.number = number,
                                  .batch = run->round,
                                  .tenants = run->tenants,
                                  .seed = 42,
                                  .index_parts = run->ids_apart ? run->workers : 1};
    struct hf_board *board = run->board;
    char error[256] = "";

    pin(run, number);
    struct hf_worker *worker = hf_worker_join(run->world, &plan, error, sizeof(error));
    if (worker == NULL) {
        (void)fprintf(stderr, "bench_processes: %s\n", error);
        hf_store_rlx_u32(&board->failed, 1); /* relaxed: read after the barrier */
    }
    for (uint32_t round = 0; hf_load_acq_u32(&board->quit) == 0; round++) {
        if (worker != NULL) {
            hf_worker_prepare(worker, run->round);
            make_room(run, worker);
        }
        hf_board_meet(board, NULL);
        if (number == 0) {
            hf_store_rlx_u32(&board->over, 0); /* relaxed: the barrier releases it */
            hf_world_pulse(run->world);
        }
        hf_board_start(board, &board->start_ns);
        if (worker != NULL) {
            one_round(run, worker, &board->seats[number], round);
        }
        hf_board_meet(board, NULL);
        if (number == 0) {
            hf_run_account(run, kind_of(round));
        }
        hf_board_meet(board, NULL);
    }
    hf_worker_leave(worker);
}

/* ---- who works ------------------------------------------------------------------------------------------------------------ */

struct seat_of {
    struct hf_run *run;
    uint32_t number;
};

static void *work_thread(void *arg)
{
    const struct seat_of *seat = arg;

    if (seat->number == seat->run->workers) {
        pin(seat->run, seat->number);
        hf_world_drain_loop(seat->run->world);
    } else {
        work(seat->run, seat->number);
    }
    return NULL;
}

/* Workers 0 .. workers - 1, and the drain as the last one. 0, or what is wrong. */
static int run_threads(struct hf_run *run, uint32_t cnt)
{
    pthread_t threads[HF_BOARD_SEATS + 1];
    struct seat_of seats[HF_BOARD_SEATS + 1];

    for (uint32_t i = 0; i < cnt; i++) {
        seats[i] = (struct seat_of){run, i};
        if (pthread_create(&threads[i], NULL, work_thread, &seats[i]) != 0) {
            return -1; /* the others wait at the barrier: the process ends */
        }
    }
    for (uint32_t i = 0; i < run->workers; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    if (cnt > run->workers) {
        hf_world_drain_stop(run->world);
        (void)pthread_join(threads[run->workers], NULL);
    }
    return 0;
}

static int run_processes(struct hf_run *run, uint32_t cnt)
{
    pid_t pids[HF_BOARD_SEATS + 1];
    int wrong = 0;

    (void)fflush(NULL);
    for (uint32_t i = 0; i < cnt; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            struct seat_of seat = {run, i};

            (void)work_thread(&seat);
            _exit(0);
        }
        wrong |= pids[i] < 0;
    }
    for (uint32_t left = run->workers; left > 0 && wrong == 0; left--) {
        int status = 0;
        pid_t ended = wait(&status);

        wrong |= ended < 0 || status != 0; /* killed, or the drain ended early: who is left waits for ever */
    }
    if (wrong == 0 && cnt > run->workers) {
        hf_world_drain_stop(run->world);
        wrong = waitpid(pids[run->workers], NULL, 0) < 0;
    }
    for (uint32_t i = 0; i < cnt && wrong != 0; i++) {
        if (pids[i] > 0) {
            (void)kill(pids[i], SIGKILL);
        }
    }
    return wrong;
}

/* ---- arguments ------------------------------------------------------------------------------------------------------------ */

_Noreturn static void usage(const char *what)
{
    (void)fprintf(
        stderr,
        "bench_processes: %s\n"
        "  --processes N | --threads N        workers, 1 to %u (default: 1 process)\n"
        "  --tenants one|own|spread[:COUNT]   one for all (default), one each, or COUNT (1000) at random\n"
        "  --k 1|2|4|8                        buckets on the path (default 2)\n"
        "  --seconds S                        measured time in all (default 3)\n"
        "  --drain between|beside|none        between rounds (default), by a process beside, or at the end\n"
        "  --round PAIRS                      pairs of a worker in a round, at most\n"
        "  --slots N                          of the segment (default: as many as the rounds need)\n"
        "  --ids any|apart                    ids of any part of the id index (default), or of one part a worker\n"
        "  --core C                           first core (default 0); workers go round robin from there\n"
        "  --json                             one line of JSON instead of the table\n",
        what, HF_BOARD_SEATS);
    exit(2);
}

static uint32_t number(const char *option, const char *text, uint32_t least, uint32_t most)
{
    char *end;
    char what[128];
    unsigned long value = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || *end != '\0' || value < least || value > most) {
        (void)snprintf(what, sizeof(what), "%s %.40s: a whole number from %" PRIu32 " to %" PRIu32, option,
                       text, least, most);
        usage(what);
    }
    return (uint32_t)value;
}

static double seconds(const char *text)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value > 0 && value < 3600)) {
        usage("--seconds is a number above 0 and below 3600");
    }
    return value;
}

static void tenants(struct hf_run *run, const char *text)
{
    if (strcmp(text, "one") == 0) {
        run->tenants = HF_WORKER_ONE;
    } else if (strcmp(text, "own") == 0) {
        run->tenants = HF_WORKER_OWN;
    } else if (strncmp(text, "spread", 6) == 0 && (text[6] == '\0' || text[6] == ':')) {
        run->tenants = HF_WORKER_SPREAD;
        run->tenants_cnt = text[6] == ':' ? number("--tenants spread:", text + 7, 1, 200000) : 1000;
    } else {
        usage("--tenants is one, own or spread[:COUNT]");
    }
}

static void drain(struct hf_run *run, const char *text)
{
    static const char *const words[] = {"between", "beside", "none"};

    for (int i = 0; i < 3; i++) {
        if (strcmp(text, words[i]) == 0) {
            run->drain = (enum hf_drain)i;
            return;
        }
    }
    usage("--drain is between, beside or none");
}

static void arguments(struct hf_run *run, int argc, char **argv)
{
    static const struct option options[] = {{"processes", required_argument, NULL, 'p'},
                                            {"threads", required_argument, NULL, 't'},
                                            {"tenants", required_argument, NULL, 'n'},
                                            {"k", required_argument, NULL, 'k'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"drain", required_argument, NULL, 'd'},
                                            {"round", required_argument, NULL, 'r'},
                                            {"core", required_argument, NULL, 'c'},
                                            {"slots", required_argument, NULL, 'l'},
                                            {"ids", required_argument, NULL, 'i'},
                                            {"json", no_argument, NULL, 'j'},
                                            {NULL, 0, NULL, 0}};
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'p':
        case 't':
            run->threads = option == 't';
            run->workers = number("workers", optarg, 1, HF_BOARD_SEATS);
            break;
        case 'n':
            tenants(run, optarg);
            break;
        case 'k':
            run->k = number("--k", optarg, 1, 8);
            break;
        case 's':
            run->seconds = seconds(optarg);
            break;
        case 'd':
            drain(run, optarg);
            break;
        case 'r':
            run->round = number("--round", optarg, 64, 1U << 20);
            break;
        case 'i':
            run->ids_apart = strcmp(optarg, "apart") == 0;
            if (!run->ids_apart && strcmp(optarg, "any") != 0) {
                usage("--ids is any or apart");
            }
            break;
        case 'l':
            run->slots = number("--slots", optarg, 64, 1U << 22);
            break;
        case 'c':
            run->first_core = number("--core", optarg, 0, run->cores - 1U);
            break;
        case 'j':
            run->json = true;
            break;
        default:
            usage("the options are these:");
        }
    }
    if (optind != argc) {
        usage("it takes options alone");
    }
}

/* ---- all ------------------------------------------------------------------------------------------------------------------ */

/* Slots for what is known at a time, and a chunk that each worker may hold. */
static uint32_t slots(const struct hf_run *run)
{
    uint32_t least = (run->round + 128U) * run->workers * (run->drain == HF_DRAIN_BESIDE ? 4U : 1U);

    if (run->slots == 0) {
        return run->drain == HF_DRAIN_NONE ? 1U << 20 : least;
    }
    if (run->slots < least) {
        usage("--slots: fewer than the rounds need");
    }
    return run->slots;
}

/* Shared with the workers, all zero. */
static struct hf_run *make_run(void)
{
    struct hf_run *run =
        mmap(NULL, sizeof(*run), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    if (run == MAP_FAILED) {
        (void)fprintf(stderr, "bench_processes: out of memory\n");
        exit(2);
    }
    run->workers = 1;
    run->k = 2;
    run->seconds = 3;
    if (sched_getaffinity(0, sizeof(run->allowed), &run->allowed) != 0) {
        (void)fprintf(stderr, "bench_processes: its processors: %s\n", strerror(errno));
        exit(2);
    }
    run->cores = (uint32_t)CPU_COUNT(&run->allowed);
    return run;
}

static void make_world(struct hf_run *run)
{
    char error[512] = "out of memory";

    if (run->tenants != HF_WORKER_SPREAD) {
        run->tenants_cnt = run->tenants == HF_WORKER_ONE ? 1 : run->workers;
    }
    if (run->round == 0) { /* several turns of a processor each, where they take turns */
        run->round = run->workers > run->cores ? 65536 : 4096;
    }
    struct hf_world_plan plan = {
        .tenants = run->tenants_cnt, .k = run->k, .slots = slots(run), .workers = run->workers};
    run->rounds_left = run->drain == HF_DRAIN_NONE ? plan.slots / (run->round * run->workers) : UINT32_MAX;
    run->board = hf_board_make(run->workers, run->cores);
    run->world =
        run->board == NULL || run->rounds_left == 0 ? NULL : hf_world_make(&plan, error, sizeof(error));
    if (run->world == NULL) {
        (void)fprintf(stderr, "bench_processes: %s\n",
                      run->rounds_left == 0 ? "rounds too long for --drain none" : error);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    struct hf_run *run = make_run();

    arguments(run, argc, argv);
    make_world(run);
    uint32_t cnt = run->workers + (run->drain == HF_DRAIN_BESIDE ? 1 : 0);
    if ((run->threads ? run_threads(run, cnt) : run_processes(run, cnt)) != 0) {
        (void)fprintf(stderr, "bench_processes: a worker could not be started, or ended early\n");
        return 1;
    }
    run->mismatches = hf_world_mismatches(run->world);
    hf_run_print(run);
    bool failed = run->board->failed != 0 || run->mismatches != 0;
    hf_world_free(run->world);
    hf_board_free(run->board);
    return failed ? 1 : 0;
}
