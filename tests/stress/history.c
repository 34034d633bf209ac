/* Histories of small runs: three processes make some calls each on one small limit, with the times of their beginnings and ends, and
 * a checker looks for an order that explains every answer. Some processes are killed or stopped in the middle of a call.
 *
 *   stress_history [--histories N] [--seed N]
 *
 * HOLDFAST_SEED is the seed when --seed is not given; HOLDFAST_LONG=1 makes more. Exit status 0, 1 (some history has no order). */
#include "tests/stress/board.h"
#include "tests/stress/history_model.h"

#include "core/policy.h"
#include "core/policy_compile.h"
#include "shm/chunk.h"
#include "shm/clock.h"
#include "shm/commit.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES       3U
#define CALLS_MAX       5U
#define SLOTS           256U
#define HISTORIES_QUICK 3000U
#define HISTORIES_LONG  1000000U
#define MEET_PAUSES     400U
#define MINUTE_MS       UINT64_C(60000)

struct process {
    uint32_t go; /* number of the phase to do */
    uint32_t done;
    uint32_t cnt;
    uint32_t fuse_ns; /* not 0: a timer strikes */
    uint32_t fuse_signal;
    struct history_op calls[CALLS_MAX];
    struct history_op
        reaped[HISTORY_IDS]; /* result DONE: this process closed it, in its one reap of a phase */
    uint32_t begun;          /* calls begun */
};

struct table {
    uint64_t history;
    uint64_t start_ms;
    uint32_t arrived; /* in this phase */
    struct process processes[PROCESSES];
};

struct test {
    char folder[64];
    char path[128];
    struct table *table;
    struct hf_segment seg;
    pid_t pids[PROCESSES];
    bool dead[PROCESSES];
    uint64_t random;
    uint64_t seed;
    struct history_op ops[HISTORY_OPS_MAX];
    uint32_t ops_cnt;
    uint64_t calls;
    uint64_t kills;
    uint64_t lost;
    uint64_t stops;
    uint64_t refusals;
    uint64_t overlaps;
    uint64_t steps;
    uint32_t violations;
};

static const char policy_text[] =
    "version: 1\n"
    "currency: EUR\n"
    "prices: {revision: '1', models: []}\n"
    "tenants:\n"
    "  - id: t\n"
    "    allow_overcommit: true\n"
    "    limits: [{window: minute, cost_micros: 100}]\n"
    "    teams:\n"
    "      - {id: u0, limits: [{window: minute, cost_micros: 80}], capabilities: [{id: c, cap_micros: 1000}]}\n"
    "      - {id: u1, limits: [{window: minute, cost_micros: 60}], capabilities: [{id: c, cap_micros: 1000}]}\n";

static void die(const char *what)
{
    (void)fprintf(stderr, "stress_history: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- a process ----------------------------------------------------------------------------------------------------- */

static void id_text(const struct table *table, uint32_t id, char text[40])
{
    (void)snprintf(text, 40, "h%" PRIu64 "-%" PRIu32, table->history, id);
}

static void result(struct history_op *op, int rc, int reason, bool replayed)
{
    static const struct {
        int reason;
        enum history_reason name;
    } reasons[] = {{HOLDFAST_REASON_TEAM_SHARE, HISTORY_TEAM_SHARE},
                   {HOLDFAST_REASON_TENANT_TOTAL, HISTORY_TENANT_TOTAL},
                   {HOLDFAST_REASON_UNKNOWN_RESERVATION, HISTORY_UNKNOWN},
                   {HOLDFAST_REASON_ALREADY_CLOSED, HISTORY_CLOSED},
                   {HOLDFAST_REASON_ALREADY_DISPATCHED, HISTORY_DISPATCHED}};

    op->result = rc == HOLDFAST_OK ? (replayed ? HISTORY_AGAIN : HISTORY_DONE) : HISTORY_ODD;
    if (rc == HOLDFAST_REFUSED && reason == HOLDFAST_REASON_BUSY) {
        op->result = HISTORY_BUSY;
    }
    for (size_t i = 0; rc == HOLDFAST_REFUSED && i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (reasons[i].reason == reason) {
            op->result = HISTORY_NO;
            op->reason = (uint8_t)reasons[i].name;
        }
    }
}

static void call_reserve(struct holdfast *handle, const char *id, struct history_op *op)
{
    struct holdfast_request request;
    struct holdfast_answer answer;

    holdfast_request_init(&request);
    request.id = id;
    request.tenant = "t";
    request.team = op->id % HISTORY_TEAMS == 0 ? "u0" : "u1";
    request.capability = "c";
    request.cost_micros = (uint64_t)op->amount;
    request.ttl_ms = 1000;
    request.want_remaining = 1;
    int rc = holdfast_reserve(handle, &request, &answer);

    result(op, rc, answer.reason, answer.replayed != 0);
    if (op->result == HISTORY_AGAIN) {
        op->amount = (int32_t)answer.reserved.cost_micros;
    } else if (op->result == HISTORY_DONE || op->result == HISTORY_NO) {
        op->saw_left = 1;
        op->team_left = (int32_t)answer.remaining[HOLDFAST_COST_MICROS][HOLDFAST_LAYER_TEAM];
        op->tenant_left = (int32_t)answer.remaining[HOLDFAST_COST_MICROS][HOLDFAST_LAYER_TENANT];
    }
}

static void call_extend(struct holdfast *handle, const char *id, struct history_op *op)
{
    struct holdfast_extension extension;
    struct holdfast_answer answer;

    holdfast_extension_init(&extension);
    extension.id = id;
    extension.cost_micros = (uint64_t)op->amount;
    int rc = holdfast_extend(handle, &extension, &answer);

    result(op, rc, answer.reason, false);
}

static void call_settle(struct holdfast *handle, const char *id, struct history_op *op)
{
    struct holdfast_usage usage;
    struct holdfast_closing closing;

    holdfast_usage_init(&usage, 0, 0);
    usage.cost_micros = (uint64_t)op->amount;
    int rc = holdfast_settle(handle, id, 0, &usage, HOLDFAST_SUCCESS, NULL, &closing);

    result(op, rc, closing.reason, closing.replayed != 0);
    op->late = (uint8_t)closing.late;
    op->exceeded = (uint8_t)closing.quota_exceeded;
}

static void call_look(struct holdfast *handle, struct history_op *op)
{
    static const char *const teams[] = {NULL, "u0", "u1"};
    struct holdfast_limit limits[4];
    int reason;
    int cnt = holdfast_limits(handle, "t", teams[op->id], NULL, limits, 4, &reason);

    op->result = cnt == 1 ? HISTORY_DONE : HISTORY_ODD;
    op->amount = cnt == 1 ? (int32_t)(limits[0].limit - (uint64_t)limits[0].available) : -1;
}

struct reaping {
    struct table *table;
    struct process *process;
};

static void take_reaped(void *arg, const char *id, int kind)
{
    const struct reaping *reaping = arg;
    char text[40];

    (void)kind;
    for (uint32_t i = 0; i < HISTORY_IDS; i++) {
        id_text(reaping->table, i, text);
        if (strcmp(text, id) == 0) {
            reaping->process->reaped[i].result = HISTORY_DONE;
        }
    }
}

static void call(struct table *table, struct process *process, struct holdfast *handle, struct history_op *op)
{
    struct reaping reaping = {table, process};
    struct holdfast_closing closing;
    char id[40];
    int reason;

    id_text(table, op->id, id);
    op->begin_ns = hf_clock_mono_ns();
    hf_store_rel_u32(&process->begun, process->begun + 1); /* plain: read when this process is gone */
    switch (op->kind) {
    case HISTORY_RESERVE:
        call_reserve(handle, id, op);
        break;
    case HISTORY_EXTEND:
        call_extend(handle, id, op);
        break;
    case HISTORY_DISPATCH: {
        int rc = holdfast_dispatch(handle, id, 0, &reason);

        result(op, rc, reason, false);
        break;
    }
    case HISTORY_SETTLE:
        call_settle(handle, id, op);
        break;
    case HISTORY_RELEASE: {
        int rc = holdfast_release(handle, id, 0, &closing);

        result(op, rc, closing.reason, closing.replayed != 0);
        break;
    }
    case HISTORY_REAP:
        op->result = holdfast_reap(handle, 0, take_reaped, &reaping) >= 0 ? HISTORY_DONE : HISTORY_ODD;
        break;
    case HISTORY_ADVANCE:
        (void)hf_clock_inject(handle->seg, table->start_ms + 2000);
        op->result = HISTORY_DONE;
        break;
    default:
        call_look(handle, op);
    }
    op->end_ns = hf_clock_mono_ns();
}

static void light(const struct process *process)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = (int)process->fuse_signal};
    struct itimerspec when = {.it_value = {.tv_nsec = (long)process->fuse_ns}};
    timer_t timer;

    if (process->fuse_ns != 0 &&
        (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &when, NULL) != 0)) {
        _exit(3);
    }
}

static void work(struct test *test, uint32_t p)
{
    struct table *table = test->table;
    struct process *process = &table->processes[p];
    struct holdfast_segment *segment = NULL;
    struct holdfast *handle = NULL;
    uint32_t phase = process->done;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (holdfast_open(test->path, &segment, NULL, 0) != HOLDFAST_OK ||
        holdfast_join(segment, &handle) != HOLDFAST_OK) {
        _exit(3);
    }
    for (;;) {
        uint32_t go = hf_load_acq_u32(&process->go); /* plain: a gate of the test */

        if (go == phase) {
            (void)sched_yield();
            continue;
        }
        phase = go;
        (void)hf_add_acqrel_u32(&table->arrived, 1); /* plain: only so that they begin together */
        for (uint32_t i = 0; i < MEET_PAUSES && hf_load_acq_u32(&table->arrived) < PROCESSES;
             i++) { /* plain */
            hf_pause();
        }
        light(process);
        for (uint32_t i = 0; i < process->cnt; i++) {
            call(table, process, handle, &process->calls[i]);
        }
        if (process->fuse_ns != 0 && process->fuse_signal == SIGKILL) {
            for (;;) {
                (void)pause();
            }
        }
        hf_store_rel_u32(&process->done, go); /* plain: a gate of the test */
    }
}

static void start(struct test *test, uint32_t p)
{
    struct process *process = &test->table->processes[p];

    process->done = process->go;
    process->fuse_ns = 0;
    pid_t pid = fork();

    if (pid < 0) {
        die("fork");
    }
    if (pid == 0) {
        work(test, p);
    }
    test->pids[p] = pid;
    test->dead[p] = false;
}

/* ---- a history ------------------------------------------------------------------------------------------------------ */

static void draw_call(struct test *test, struct history_op *op, bool *reaps)
{
    static const int32_t amounts[HISTORY_IDS] = {50, 40, 30, 25};
    static const uint8_t kinds[] = {
        HISTORY_RESERVE,  HISTORY_RESERVE, HISTORY_RESERVE, HISTORY_RESERVE, HISTORY_RESERVE, HISTORY_SETTLE,
        HISTORY_SETTLE,   HISTORY_SETTLE,  HISTORY_RELEASE, HISTORY_RELEASE, HISTORY_EXTEND,  HISTORY_EXTEND,
        HISTORY_DISPATCH, HISTORY_LOOK,    HISTORY_LOOK,    HISTORY_REAP,    HISTORY_ADVANCE};
    uint64_t *random = &test->random;
    uint8_t kind = kinds[stress_draw(random, sizeof(kinds))];
    uint32_t id = (uint32_t)stress_draw(random, HISTORY_IDS);
    uint32_t variant = (uint32_t)stress_draw(random, 3);

    if (kind == HISTORY_REAP && *reaps) {
        kind = HISTORY_LOOK; /* one in a phase: its answers have one place */
    }
    *reaps |= kind == HISTORY_REAP;
    *op = (struct history_op){.kind = kind, .id = (uint8_t)id, .result = HISTORY_LOST};
    if (kind == HISTORY_LOOK) {
        op->id = (uint8_t)variant;
    } else if (kind == HISTORY_EXTEND) {
        op->amount = amounts[id] + 10 * (int32_t)variant;
    } else if (kind == HISTORY_SETTLE) {
        op->amount = variant == 0 ? amounts[id] / 2 : amounts[id] + 20 * (int32_t)(variant - 1);
    } else {
        op->amount = amounts[id];
    }
}

static void add(struct test *test, const struct history_op *op)
{
    if (test->ops_cnt < HISTORY_OPS_MAX) {
        test->ops[test->ops_cnt++] = *op;
    }
}

/* A reap is no one instant: for each id it has closed it at one, or left it alone at one. */
static void add_reap(struct test *test, const struct process *process, const struct history_op *reap)
{
    for (uint32_t id = 0; id < HISTORY_IDS; id++) {
        struct history_op op = *reap;

        op.id = (uint8_t)id;
        if (reap->result == HISTORY_LOST) {
            op.kind = HISTORY_EXPIRE;
            op.result = process->reaped[id].result == HISTORY_DONE ? HISTORY_DONE : HISTORY_LOST;
        } else {
            op.kind = process->reaped[id].result == HISTORY_DONE ? HISTORY_EXPIRE : HISTORY_LEFT;
        }
        add(test, &op);
    }
}

static void collect(struct test *test, uint32_t p, uint64_t died_ns)
{
    struct process *process = &test->table->processes[p];

    for (uint32_t i = 0; i < process->cnt && i < process->begun; i++) {
        struct history_op *op = &process->calls[i];

        op->by = (uint8_t)p;
        if (op->end_ns == 0) {
            op->result = HISTORY_LOST;
            op->saw_left = 0;
            op->end_ns = died_ns;
            test->lost++;
        }
        test->calls++;
        test->refusals += op->result == HISTORY_NO && op->reason <= HISTORY_TENANT_TOTAL;
        if (op->kind == HISTORY_REAP) {
            add_reap(test, process, op);
        } else {
            add(test, op);
        }
    }
}

static void await_done(struct test *test, uint32_t p)
{
    const struct process *process = &test->table->processes[p];
    uint64_t until = 0;

    while (hf_load_acq_u32(&process->done) != process->go) { /* plain: a gate of the test */
        (void)sched_yield();
        if (until++ > UINT64_C(4000000000)) {
            die("a process does not come to its end");
        }
    }
}

/* Kills or stops one, waits for the others, and has it go on. */
static void await_phase(struct test *test, uint32_t struck, int signal)
{
    int status = 0;
    uint64_t died_ns = 0;

    for (uint32_t p = 0; p < PROCESSES; p++) {
        if (p != struck && !test->dead[p]) {
            await_done(test, p);
        }
    }
    if (struck < PROCESSES && signal == SIGKILL) {
        (void)waitpid(test->pids[struck], &status, 0);
        died_ns = hf_clock_mono_ns();
        test->dead[struck] = true;
        test->kills++;
    } else if (struck < PROCESSES) {
        (void)waitpid(test->pids[struck], &status, WUNTRACED);
        (void)kill(test->pids[struck], SIGCONT);
        await_done(test, struck);
        test->stops++;
    }
    if (struck < PROCESSES && signal == SIGKILL ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL
                                                : struck < PROCESSES && !WIFSTOPPED(status)) {
        die("a process ended by itself");
    }
    for (uint32_t p = 0; p < PROCESSES; p++) {
        collect(test, p, died_ns);
    }
}

static void play_phase(struct test *test, uint32_t struck, int signal)
{
    for (uint32_t p = 0; p < PROCESSES; p++) {
        struct process *process = &test->table->processes[p];
        bool reaps = false;

        process->cnt = test->dead[p] ? 0
                       : p == struck ? CALLS_MAX /* so that it is struck in the middle of one */
                                     : 1 + (uint32_t)stress_draw(&test->random, 3);
        process->begun = 0;
        for (uint32_t i = 0; i < process->cnt; i++) {
            draw_call(test, &process->calls[i], &reaps);
        }
        memset(process->reaped, 0, sizeof(process->reaped));
        for (uint32_t id = 0; id < HISTORY_IDS; id++) {
            process->reaped[id].result = HISTORY_LOST;
        }
        process->fuse_ns = p == struck ? 1500 + (uint32_t)stress_draw(&test->random, 15000) : 0;
        process->fuse_signal = (uint32_t)signal;
    }
    test->table->arrived = 0;
    for (uint32_t p = 0; p < PROCESSES; p++) {
        if (!test->dead[p]) {
            /* plain: a gate of the test */
            hf_store_rel_u32(&test->table->processes[p].go, test->table->processes[p].go + 1);
        }
    }
    await_phase(test, struck, signal);
}

/* Everything of the segment is as new: nobody works in it now. Plain stores, all of this function. */
static void wipe(struct test *test)
{
    struct hf_segment *seg = &test->seg;
    struct hf_u128 word;

    if (hf_commit_ready(seg, 0, &word) != HF_OK) {
        die("the tenant cannot be made ready");
    }
    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        struct hf_shm_slot *slot = &seg->slots[i];

        if (hf_st_state(slot->slot_st) != HF_STATE_FREE) {
            slot->slot_st = hf_st_make(0, 0, HF_STATE_FREE, 0, hf_st_gen(slot->slot_st));
            slot->slot_claim = slot->slot_next = 0;
        }
    }
    memset(seg->heads, 0, ((size_t)seg->heads_mask + 1) * sizeof(*seg->heads));
    for (uint32_t i = 0; i < seg->chunks_cnt; i++) {
        seg->chunks[i].chunk_free = hf_chunk_all(seg);
        (void)hf_chunk_take_marks(seg, i);
    }
}

static void print_history(const struct test *test)
{
    uint64_t begin = UINT64_MAX;

    for (uint32_t i = 0; i < test->ops_cnt; i++) {
        begin = test->ops[i].begin_ns < begin ? test->ops[i].begin_ns : begin;
    }
    for (uint32_t i = 0; i < test->ops_cnt; i++) {
        const struct history_op *op = &test->ops[i];

        (void)fprintf(stderr,
                      "  %6" PRIu64 " to %6" PRIu64 " process %u: %s id %u amount %d: %s reason %u late %u "
                      "exceeded %u left %d/%d\n",
                      op->begin_ns - begin, op->end_ns - begin, op->by, history_kind_name(op->kind), op->id,
                      op->amount, history_result_name(op->result), op->reason, op->late, op->exceeded,
                      op->saw_left ? op->team_left : -1, op->saw_left ? op->tenant_left : -1);
    }
}

static void count_overlaps(struct test *test)
{
    for (uint32_t i = 0; i < test->ops_cnt; i++) {
        for (uint32_t j = 0; j < i; j++) {
            const struct history_op *a = &test->ops[i];
            const struct history_op *b = &test->ops[j];

            if (a->by != b->by && a->begin_ns <= b->end_ns && b->begin_ns <= a->end_ns) {
                test->overlaps++;
                return;
            }
        }
    }
}

static void play(struct test *test, uint64_t history)
{
    uint32_t struck = PROCESSES;
    int signal = 0;

    test->random = stress_mix(test->seed, history);
    test->table->history = history;
    test->table->start_ms = STRESS_START_MS / MINUTE_MS * MINUTE_MS + history * MINUTE_MS;
    (void)hf_clock_inject(&test->seg, test->table->start_ms);
    test->ops_cnt = 0;
    uint64_t odd = stress_draw(&test->random, 64);

    if (odd < 24) {
        struck = (uint32_t)stress_draw(&test->random, PROCESSES);
        signal = odd < 4 ? SIGKILL : SIGSTOP;
    }
    play_phase(test, struck, signal);
    play_phase(test, PROCESSES, 0);
    count_overlaps(test);
    if (!history_check(test->ops, test->ops_cnt, &test->steps)) {
        test->violations++;
        (void)fprintf(stderr,
                      "history %" PRIu64 " of seed %" PRIu64 " has no order that explains its answers:\n",
                      history, test->seed);
        print_history(test);
    }
    wipe(test);
    for (uint32_t p = 0; p < PROCESSES; p++) {
        if (test->dead[p]) {
            for (uint32_t i = 0; i < test->seg.chunks_cnt; i++) {
                (void)hf_chunk_return(&test->seg, i);
            }
            start(test, p);
        }
    }
}

/* ---- setting up ------------------------------------------------------------------------------------------------------ */

static void make_segment(struct test *test)
{
    static const uint8_t digest[32];
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    struct hf_policy_report report = {0};
    struct hf_policy *policy = NULL;
    struct hf_error err = {.text = ""};
    struct hf_segment_plan plan = {.slots = SLOTS,
                                   .owners = 16,
                                   .replay_horizon_ms = 60000,
                                   .late_horizon_ms = 3600000,
                                   .max_lag_ms = 30000,
                                   .epoch = 1,
                                   .injected = true,
                                   .injected_ms = STRESS_START_MS / MINUTE_MS * MINUTE_MS,
                                   .mode = 0600,
                                   .group = (gid_t)-1,
                                   .store_name = "history",
                                   .store_url = ""};

    (void)snprintf(test->folder, sizeof(test->folder), "%s/holdfast-history-XXXXXX", base);
    if (mkdtemp(test->folder) == NULL) {
        die("mkdtemp");
    }
    (void)snprintf(test->path, sizeof(test->path), "%s/segment", test->folder);
    if (hf_policy_load_bytes("history", policy_text, strlen(policy_text), 0, &policy, &report) !=
            HF_POLICY_LOADED ||
        hf_policy_plan(policy, &plan, &err) != HF_OK ||
        hf_segment_create(test->path, &plan, &test->seg, &err) != HF_OK ||
        hf_policy_compile(policy, digest, 1, &test->seg, &err) != HF_OK ||
        hf_segment_publish(&test->seg, false, &err) != HF_OK) {
        die(err.text);
    }
    hf_policy_free(policy);
    hf_policy_report_free(&report);
    hf_segment_set_state(&test->seg, HF_SEGMENT_READY);
    void *table = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (table == MAP_FAILED) {
        die("mmap");
    }
    test->table = table;
}

static void end(struct test *test)
{
    char lock[160];

    for (uint32_t p = 0; p < PROCESSES; p++) {
        (void)kill(test->pids[p], SIGKILL);
        (void)waitpid(test->pids[p], NULL, 0);
    }
    hf_segment_detach(&test->seg);
    (void)snprintf(lock, sizeof(lock), "%s.lock", test->path);
    (void)unlink(test->path);
    (void)unlink(lock);
    (void)rmdir(test->folder);
}

static uint64_t option(int argc, char **argv, const char *name, uint64_t otherwise)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return strtoull(argv[i + 1], NULL, 10);
        }
    }
    return otherwise;
}

int main(int argc, char **argv)
{
    static struct test test;
    const char *seed_text = getenv("HOLDFAST_SEED");
    const char *long_text = getenv("HOLDFAST_LONG");
    bool is_long = long_text != NULL && strcmp(long_text, "1") == 0;
    uint64_t histories = option(argc, argv, "--histories", is_long ? HISTORIES_LONG : HISTORIES_QUICK);
    uint32_t misjudged = history_selftest();

    test.seed = option(argc, argv, "--seed",
                       seed_text != NULL && seed_text[0] != '\0' ? strtoull(seed_text, NULL, 10)
                                                                 : hf_clock_mono_ns() % 1000000000U);
    (void)printf("histories: seed %" PRIu64 "; the checker misjudges %" PRIu32 " of its own examples\n",
                 test.seed, misjudged);
    (void)fflush(stdout);
    make_segment(&test);
    for (uint32_t p = 0; p < PROCESSES; p++) {
        start(&test, p);
    }
    uint64_t begin_ms = hf_clock_mono_fine_ms();

    for (uint64_t history = 1; history <= histories && test.violations < 3; history++) {
        play(&test, history);
    }
    uint64_t took_ms = hf_clock_mono_fine_ms() - begin_ms + 1;

    end(&test);
    (void)printf("calls %" PRIu64 ", refused by a bucket %" PRIu64
                 ", histories with calls at the same time %" PRIu64 ", calls cut off %" PRIu64
                 ", states searched %" PRIu64 ", histories a second %" PRIu64 "\n",
                 test.calls, test.refusals, test.overlaps, test.lost, test.steps, histories * 1000 / took_ms);
    (void)printf("totals: kills %" PRIu64 ", stops %" PRIu64 ", operations %" PRIu64 ", histories %" PRIu64
                 ", violations %" PRIu32 "\n",
                 test.kills, test.stops, test.calls, histories, test.violations + misjudged);
    if (test.violations != 0) {
        (void)fprintf(
            stderr,
            "stress_history: the same calls again (the kernel schedules them anew): HOLDFAST_SEED=%" PRIu64
            " stress_history --histories %" PRIu64 "\n",
            test.seed, histories);
    }
    return test.violations + misjudged == 0 ? 0 : 1;
}
