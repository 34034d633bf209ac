/* I3: a gateway that is reloaded, and workers that crash inside a call. */
#include "life.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define STREAMS 20

/* ---- a reload -------------------------------------------------------------------------------------------------------------- */

/* An old worker: its stream is open while new workers start; it settles afterwards and goes. */
static int old_worker(struct life *life, void *arg)
{
    uint32_t number = *(const uint32_t *)arg;
    struct life_worker worker;
    struct holdfast_closing closing;
    char id[32];

    life_join(life, &worker);
    (void)snprintf(id, sizeof id, "stream-%u", number);
    LIFE_REQUIRE(life_reserve(&worker, id, "u", 50, 600000, NULL) == HOLDFAST_OK);
    (void)hf_add_acqrel_u64(&life->shared->words[0], 1);
    life_await(&life->shared->words[1], 1);
    LIFE_REQUIRE(life_settle(&worker, id, 30, &closing) == HOLDFAST_OK && closing.replayed == 0);
    life_leave(&worker);
    return 0;
}

static int new_worker(struct life *life, void *arg)
{
    uint32_t number = *(const uint32_t *)arg;
    struct life_worker worker;
    char id[32];

    life_join(life, &worker);
    (void)hf_add_acqrel_u64(&life->shared->words[2], 1);
    for (uint32_t i = 0; i < 50; i++) {
        (void)snprintf(id, sizeof id, "new-%u-%u", number, i);
        LIFE_REQUIRE(life_reserve(&worker, id, "w", 10, 600000, NULL) == HOLDFAST_OK);
        LIFE_REQUIRE(life_settle(&worker, id, 2, NULL) == HOLDFAST_OK);
    }
    life_leave(&worker);
    return 0;
}

static void reload(struct life *life)
{
    struct life_worker worker;
    uint32_t numbers[STREAMS];
    pid_t old[STREAMS];
    pid_t young[4];

    life->slots = 4096;
    life_serve(life);
    life_join(life, &worker);
    for (uint32_t i = 0; i < STREAMS; i++) {
        numbers[i] = i;
        old[i] = life_start(life, old_worker, &numbers[i]);
    }
    life_await(&life->shared->words[0], STREAMS);
    LIFE_REQUIRE(life_used(&worker, "u") == 50 * STREAMS);
    for (uint32_t i = 0; i < 4; i++) { /* the new configuration's workers, beside the old ones */
        young[i] = life_start(life, new_worker, &numbers[i]);
    }
    life_await(&life->shared->words[2], 4);
    life_unserve(life, SIGTERM); /* and a daemon that is restarted with it */
    life_serve(life);
    life_tell(&life->shared->words[1], 1);
    for (uint32_t i = 0; i < STREAMS; i++) {
        LIFE_REQUIRE(life_wait(old[i]) == 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        LIFE_REQUIRE(life_wait(young[i]) == 0);
    }
    LIFE_REQUIRE(life_held(&worker, "u") == 0);
    LIFE_REQUIRE(life_used(&worker, "u") == 30 * STREAMS); /* each stream once */
    life_leave(&worker);
    life_unserve(life, SIGTERM);
}

/* ---- crashes inside a call --------------------------------------------------------------------------------------------------- */

/* A part of the mapping that the crashing worker may not touch any more, or not write: its call ends in the middle. */
struct crash {
    uint32_t call;
    uint32_t part;
    int protection;
    uint32_t number;
};

static const char *const calls[] = {"reserve", "settle", "release", "extend", "dispatch", "reap", "limits",
                                    "meters",  "credit", "flush",   "wait",   "resolve",  "leave"};
#define CALLS (sizeof(calls) / sizeof(calls[0]))
#define PARTS 7

static void protect(struct hf_segment *seg, uint32_t part, int protection)
{
    void *const starts[PARTS] = {seg->tenants, seg->rows,     seg->chunks, seg->slots,
                                 seg->heads,   seg->policies, seg->header};
    const size_t bytes[PARTS] = {seg->tenants_cnt * sizeof(*seg->tenants),
                                 seg->rows_cnt * sizeof(*seg->rows),
                                 seg->chunks_cnt * sizeof(*seg->chunks),
                                 seg->slots_cnt * sizeof(*seg->slots),
                                 (seg->heads_mask + 1U) * sizeof(*seg->heads),
                                 2 * seg->policy_bytes,
                                 4096};

    LIFE_REQUIRE(mprotect(starts[part], bytes[part], protection) == 0);
}

static void see_reaped(void *arg, const char *id, int kind)
{
    (void)arg;
    (void)id;
    (void)kind;
}

static void see_meter(void *arg, const struct holdfast_meter *meter)
{
    (void)arg;
    (void)meter;
}

static void make_call(const struct life_worker *worker, uint32_t call, const char *id)
{
    struct holdfast_extension extension;
    struct holdfast_closing closing;
    struct holdfast_answer answer;
    struct holdfast_limit limits[15];
    struct holdfast_path *path = NULL;
    uint64_t total = 0;
    int reason = 0;
    int rc = 0;

    switch (call) {
    case 0:
        rc = life_reserve(worker, "never-seen", "w", 7, 600000, &answer);
        break;
    case 1:
        rc = life_settle(worker, id, 3, &closing);
        break;
    case 2:
        rc = holdfast_release(worker->handle, id, 0, &closing);
        break;
    case 3:
        holdfast_extension_init(&extension);
        extension.id = id;
        extension.cost_micros = 20;
        rc = holdfast_extend(worker->handle, &extension, &answer);
        break;
    case 4:
        rc = holdfast_dispatch(worker->handle, id, 0, &reason);
        break;
    case 5:
        rc = holdfast_reap(worker->handle, 0, see_reaped, NULL);
        break;
    case 6:
        rc = holdfast_limits(worker->handle, "t", "u", NULL, limits, 15, &reason);
        break;
    case 7:
        rc = holdfast_meters(worker->handle, NULL, see_meter, NULL, &reason);
        break;
    case 8:
        rc = holdfast_credit(worker->handle, "t", "u", HOLDFAST_WINDOW_MONTH, 0, "none", "me", &total,
                             &reason);
        break;
    case 9:
        rc = holdfast_flush(worker->handle, 1);
        break;
    case 10:
        rc = holdfast_wait_durable(worker->handle, id, 0, 1);
        break;
    case 11:
        rc = holdfast_resolve(worker->handle, "t", "v", NULL, "c", &path, &reason);
        break;
    default:
        holdfast_leave(worker->handle);
        break;
    }
    (void)rc; /* where nothing was in its way, it has answered: that is all right too */
}

static int crash_in_call(struct life *life, void *arg)
{
    const struct crash *crash = arg;
    const struct rlimit none = {0, 0};
    struct life_worker worker;
    char id[32];

    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(SIGSEGV, SIG_DFL); /* whatever a memory checker made of it */
    life_join(life, &worker);
    (void)snprintf(id, sizeof id, "crash-%u", crash->number);
    LIFE_REQUIRE(life_reserve(&worker, id, "w", 10, 600000, NULL) == HOLDFAST_OK);
    struct hf_segment *seg = worker.handle->seg; /* of the segment: it outlives the handle */
    protect(seg, crash->part, crash->protection);
    make_call(&worker, crash->call, id);
    protect(seg, crash->part, PROT_READ | PROT_WRITE);
    _exit(0);
}

/* The other workers, all the while: every call is answered. */
static int go_on(struct life *life, void *arg)
{
    struct life_worker worker;
    uint64_t rounds = 0;
    char id[32];

    (void)arg;
    life_join(life, &worker);
    for (; hf_load_acq_u64(&life->shared->words[1]) == 0; rounds++) {
        (void)snprintf(id, sizeof id, "on-%u-%u", (unsigned)getpid(), (unsigned)rounds);
        struct holdfast_answer answer;
        int rc = life_reserve(&worker, id, "w", 10, 600000, &answer);

        if (rc != HOLDFAST_OK) {
            (void)printf("%s: %d, %s\n", id, rc, holdfast_reason_name(answer.reason));
        }
        LIFE_REQUIRE(rc == HOLDFAST_OK);
        LIFE_REQUIRE(life_settle(&worker, id, 0, NULL) == HOLDFAST_OK);
        life_sleep_ms(1);
    }
    (void)hf_add_acqrel_u64(&life->shared->cnt, rounds);
    life_leave(&worker);
    return 0;
}

/* What the crashed one left: settled by somebody else, once it is known to be dead. */
static void clear_up(const struct life_worker *worker, const char *id)
{
    struct holdfast_closing closing;

    for (uint32_t i = 0; i < 60000; i++) {
        int rc = life_settle(worker, id, 3, &closing);

        if (rc == HOLDFAST_OK || closing.reason == HOLDFAST_REASON_ALREADY_CLOSED ||
            closing.reason == HOLDFAST_REASON_UNKNOWN_RESERVATION) {
            return;
        }
        LIFE_REQUIRE(rc == HOLDFAST_REFUSED && closing.reason == HOLDFAST_REASON_BUSY);
        life_sleep_ms(1);
    }
    LIFE_FAIL("closed in the end");
}

static void crashes(struct life *life)
{
    struct life_worker worker;
    struct crash crash = {.number = 0};
    uint32_t crashed = 0;
    pid_t others[2];
    char id[32];

    life->slots = 32768; /* each of the dead keeps a chunk of them for up to a second */
    life_serve(life);
    life_join(life, &worker);
    for (int i = 0; i < 2; i++) {
        others[i] = life_start(life, go_on, NULL);
    }
    for (crash.call = 0; crash.call < CALLS; crash.call++) {
        uint32_t before = crashed;

        for (crash.part = 0; crash.part < PARTS; crash.part++) {
            for (int none = 0; none < 2; none++, crash.number++) {
                crash.protection = none == 0 ? PROT_READ : PROT_NONE;
                int status = life_wait(life_start(life, crash_in_call, &crash));

                LIFE_REQUIRE(status == 0 || status == -SIGSEGV);
                crashed += status == -SIGSEGV;
                (void)snprintf(id, sizeof id, "crash-%u", crash.number);
                clear_up(&worker, id);
                clear_up(&worker, "never-seen");
            }
        }
        (void)printf("%s: crashed in %u of %d ways\n", calls[crash.call], crashed - before, 2 * PARTS);
        LIFE_REQUIRE(crashed > before);
    }
    life_tell(&life->shared->words[1], 1);
    LIFE_REQUIRE(life_wait(others[0]) == 0 && life_wait(others[1]) == 0);
    struct holdfast_limit limits[15];
    int reason = 0;
    for (uint32_t i = 0;; i++) { /* the daemon gives back what the dead had half-made */
        LIFE_REQUIRE(holdfast_flush(worker.handle, 60000) == HOLDFAST_OK);
        LIFE_REQUIRE(holdfast_limits(worker.handle, "t", NULL, NULL, limits, 15, &reason) == 1);
        if (limits[0].held == 0) {
            break;
        }
        LIFE_REQUIRE(i < 10000);
        life_sleep_ms(2);
    }
    (void)printf("totals: %u crashes in %zu calls, %llu rounds of the others beside them\n", crashed, CALLS,
                 (unsigned long long)life->shared->cnt);
    life_leave(&worker);
    life_unserve(life, SIGTERM);
}

const struct life_scenario life_reload[] = {
    {"reload", reload, "I3: old workers settle after a reload, beside new ones and a restarted daemon"},
    {"crashes", crashes, "I3: a worker crashes in each call; the others answer"},
    {NULL, NULL, NULL},
};
