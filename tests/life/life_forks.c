/* J3 and K1: forks, threads, tables full of the dead and of names. */
#include "life.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 4
#define EACH     250

/* ---- fork after attach -------------------------------------------------------------------------------------------------------- */

struct parent {
    struct life_worker worker;
    int number;
};

/* A child: the handle it inherited answers so; it joins the segment it inherited for itself, and works. */
static int child_works(struct life *life, void *arg)
{
    struct parent *parent = arg;
    struct holdfast_answer answer;
    struct holdfast *handle = NULL;

    LIFE_REQUIRE(life_reserve(&parent->worker, "by-child", "w", 1, 60000, &answer) == HOLDFAST_FORKED);
    LIFE_REQUIRE(holdfast_flush(parent->worker.handle, 1) == HOLDFAST_FORKED);
    holdfast_leave(parent->worker.handle);
    LIFE_REQUIRE(holdfast_join(parent->worker.segment, &handle) == HOLDFAST_OK);
    struct life_worker own = {parent->worker.segment, handle};

    for (uint32_t i = 0; i < EACH; i++) {
        char id[32];

        (void)snprintf(id, sizeof id, "c%d-%u", parent->number, i);
        int rc = life_reserve(&own, id, "w", 10, 600000, &answer);

        LIFE_REQUIRE(rc == HOLDFAST_OK && answer.replayed == 0);
        (void)hf_add_acqrel_u64(&life->shared->cnt, 1);
    }
    (void)hf_add_acqrel_u64(&life->shared->words[0], 1);
    life_await(&life->shared->words[1], 1);
    if (parent->number == 0) {
        _exit(0); /* dies without leaving */
    }
    for (uint32_t i = 0; i < EACH; i++) {
        char id[32];

        (void)snprintf(id, sizeof id, "c%d-%u", parent->number, i);
        LIFE_REQUIRE(life_settle(&own, id, 4, NULL) == HOLDFAST_OK);
    }
    holdfast_leave(handle);
    return 0;
}

/* The parent: attaches, holds P, forks; then it is killed while its children live. */
static int parent_forks(struct life *life, void *arg)
{
    struct parent parent = {.number = 0};

    (void)arg;
    life_join(life, &parent.worker);
    LIFE_REQUIRE(life_reserve(&parent.worker, "P", "w", 100, 600000, NULL) == HOLDFAST_OK);
    life->shared->refs[0] = parent.worker.handle->owner.ref;
    for (; parent.number < CHILDREN; parent.number++) {
        pid_t pid = fork(); /* not a death signal: they outlive it */

        LIFE_REQUIRE(pid >= 0);
        if (pid == 0) {
            _exit(child_works(life, &parent));
        }
    }
    (void)hf_add_acqrel_u64(&life->shared->words[2], 1);
    for (;;) {
        (void)pause();
    }
}

static void fork_after_attach(struct life *life)
{
    struct life_worker worker;

    life->slots = 4096;
    life_serve(life);
    life_join(life, &worker);
    pid_t pid = life_start(life, parent_forks, NULL);
    life_await(&life->shared->words[0], CHILDREN);
    LIFE_REQUIRE(life->shared->cnt == (uint64_t)CHILDREN * EACH); /* 1000 distinct ids, all admitted */
    LIFE_REQUIRE(hf_owner_alive(worker.handle->seg, life->shared->refs[0]));
    life_kill(pid);
    LIFE_REQUIRE(!hf_owner_alive(worker.handle->seg, life->shared->refs[0])); /* although its children live */
    struct holdfast_limit limits[15];
    int reason = 0;
    LIFE_REQUIRE(holdfast_limits(worker.handle, "t", NULL, NULL, limits, 15, &reason) == 1);
    LIFE_REQUIRE(limits[0].held + limits[0].settled == 100 + 10 * CHILDREN * EACH);
    life_tell(&life->shared->words[1], 1);
    for (uint32_t i = 0; limits[0].settled != (CHILDREN - 1) * EACH * 4; i++) {
        LIFE_REQUIRE(i < 60000);
        life_sleep_ms(2);
        LIFE_REQUIRE(holdfast_flush(worker.handle, 60000) == HOLDFAST_OK);
        LIFE_REQUIRE(holdfast_limits(worker.handle, "t", NULL, NULL, limits, 15, &reason) == 1);
    }
    /* P is open still, and what the child held that died without a word; all can be settled by anybody. */
    LIFE_REQUIRE(limits[0].held == 100 + 10 * EACH);
    LIFE_REQUIRE(life_settle(&worker, "P", 1, NULL) == HOLDFAST_OK);
    for (uint32_t i = 0; i < EACH; i++) {
        char id[32];

        (void)snprintf(id, sizeof id, "c0-%u", i);
        LIFE_REQUIRE(life_settle(&worker, id, 4, NULL) == HOLDFAST_OK);
    }
    LIFE_REQUIRE(holdfast_flush(worker.handle, 60000) == HOLDFAST_OK);
    LIFE_REQUIRE(holdfast_limits(worker.handle, "t", NULL, NULL, limits, 15, &reason) == 1);
    LIFE_REQUIRE(limits[0].held == 0 && limits[0].settled == CHILDREN * EACH * 4 + 1);
    (void)printf("totals: %d distinct ids from %d children\n", CHILDREN * EACH, CHILDREN);
    life_leave(&worker);
    life_unserve(life, SIGTERM);
}

/* ---- threads --------------------------------------------------------------------------------------------------------------------- */

struct thread {
    pthread_t thread;
    struct holdfast_segment *segment;
    int number;
    int faults;
};

static void *thread_works(void *arg)
{
    struct thread *thread = arg;
    struct life_worker own = {thread->segment, NULL};

    if (holdfast_join(thread->segment, &own.handle) != HOLDFAST_OK) {
        thread->faults++;
        return NULL;
    }
    for (uint32_t i = 0; i < EACH; i++) {
        char id[32];

        (void)snprintf(id, sizeof id, "t%d-%u", thread->number, i);
        thread->faults += life_reserve(&own, id, "w", 10, 600000, NULL) != HOLDFAST_OK;
        thread->faults += life_settle(&own, id, 3, NULL) != HOLDFAST_OK;
    }
    holdfast_leave(own.handle);
    return NULL;
}

/* Threads of one process, each with a handle, beside forks of it. */
static void threads(struct life *life)
{
    struct thread all[CHILDREN];
    struct life_worker worker;

    life->slots = 4096;
    life_serve(life);
    life_join(life, &worker);
    for (int i = 0; i < CHILDREN; i++) {
        all[i] = (struct thread){.segment = worker.segment, .number = i};
        LIFE_REQUIRE(pthread_create(&all[i].thread, NULL, thread_works, &all[i]) == 0);
    }
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();

        LIFE_REQUIRE(pid >= 0);
        if (pid == 0) {
            _exit(life_reserve(&worker, "x", "w", 1, 1, NULL) == HOLDFAST_FORKED ? 0 : 1);
        }
        LIFE_REQUIRE(life_wait(pid) == 0);
    }
    for (int i = 0; i < CHILDREN; i++) {
        LIFE_REQUIRE(pthread_join(all[i].thread, NULL) == 0);
        LIFE_REQUIRE(all[i].faults == 0);
    }
    struct holdfast_limit limits[15];
    int reason = 0;
    LIFE_REQUIRE(holdfast_flush(worker.handle, 60000) == HOLDFAST_OK);
    LIFE_REQUIRE(holdfast_limits(worker.handle, "t", NULL, NULL, limits, 15, &reason) == 1);
    LIFE_REQUIRE(limits[0].held == 0 && limits[0].settled == CHILDREN * EACH * 3);
    life_leave(&worker);
    life_unserve(life, SIGTERM);
}

/* ---- a table full of the dead -------------------------------------------------------------------------------------------------------- */

static int join_and_die(struct life *life, void *arg)
{
    struct life_worker worker;
    char id[32];

    life_join(life, &worker);
    (void)snprintf(id, sizeof id, "dead-%u", *(const unsigned *)arg);
    LIFE_REQUIRE(life_reserve(&worker, id, "w", 10, 600000, NULL) == HOLDFAST_OK);
    _exit(0);
}

static void table_of_the_dead(struct life *life)
{
    struct life_worker workers[8];
    uint32_t taken = 0;
    const unsigned rounds = 40;

    life->owners = 6;
    life->slots = 1024;
    life_serve(life);
    LIFE_REQUIRE(kill(life->daemon, SIGSTOP) == 0); /* nobody sweeps but those who join */
    for (unsigned i = 0; i < rounds; i++) {
        LIFE_REQUIRE(life_wait(life_start(life, join_and_die, &i)) == 0);
    }
    /* All places but the daemon's are the dead's: the living get every one of them, and no more. */
    for (; taken < 5; taken++) {
        life_join(life, &workers[taken]);
    }
    struct holdfast *handle = NULL;
    LIFE_REQUIRE(holdfast_join(workers[0].segment, &handle) == HOLDFAST_FULL && handle == NULL);
    LIFE_REQUIRE(life_used(&workers[0], "u") == 0);
    LIFE_REQUIRE(kill(life->daemon, SIGCONT) == 0);
    for (unsigned i = 0; i < rounds; i++) { /* what they held is there, once each */
        char id[32];

        (void)snprintf(id, sizeof id, "dead-%u", i);
        LIFE_REQUIRE(life_settle(&workers[i % 5], id, 1, NULL) == HOLDFAST_OK);
    }
    while (taken > 0) {
        life_leave(&workers[--taken]);
    }
    life_unserve(life, SIGTERM);
    (void)printf("totals: %u dead in a table of 6\n", rounds);
}

/* ---- K1 -------------------------------------------------------------------------------------------------------------------------------- */

/* Slots used up: refused, counted, and nobody is evicted; names beyond what the policy knows are refused. */
static void full_tables(struct life *life)
{
    struct life_worker worker;
    struct holdfast_answer answer;
    uint32_t admitted = 0;
    char id[32];

    life->slots = 64;
    life->owners = 4;
    life_serve(life);
    life_join(life, &worker);
    LIFE_REQUIRE(life_reserve(&worker, "first", "v", 500, 600000, &answer) ==
                 HOLDFAST_OK); /* v's whole month */
    uint64_t busy = hf_load_rlx_u64(&worker.handle->seg->header->hdr_alarms[HF_ALARM_BUSY]);
    for (; admitted < 1000; admitted++) {
        (void)snprintf(id, sizeof id, "fill-%u", admitted);
        if (life_reserve(&worker, id, "w", 1, 600000, &answer) != HOLDFAST_OK) {
            break;
        }
    }
    LIFE_REQUIRE(answer.reason == HOLDFAST_REASON_BUSY && admitted >= 32 && admitted < 64);
    LIFE_REQUIRE(hf_load_rlx_u64(&worker.handle->seg->header->hdr_alarms[HF_ALARM_BUSY]) > busy);
    LIFE_REQUIRE(life_reserve(&worker, id, "w", 1, 600000, &answer) == HOLDFAST_REFUSED);
    /* The one at its limit is there still, and still refused. */
    LIFE_REQUIRE(life_used(&worker, "v") == 500);
    LIFE_REQUIRE(life_reserve(&worker, "second", "v", 1, 600000, &answer) == HOLDFAST_REFUSED);
    LIFE_REQUIRE(life_reserve(&worker, "first", "v", 500, 600000, &answer) == HOLDFAST_OK &&
                 answer.replayed == 1);
    /* Names that are in no policy take no place at all, however many come. */
    struct holdfast_request request;
    holdfast_request_init(&request);
    request.id = "k";
    request.tenant = "t";
    request.team = "u";
    request.capability = "c";
    request.tokens = 1;
    request.cost_micros = 1;
    for (uint32_t i = 0; i < 5000; i++) {
        (void)snprintf(id, sizeof id, "key-%u", i);
        request.key = id;
        LIFE_REQUIRE(holdfast_reserve(worker.handle, &request, &answer) == HOLDFAST_REFUSED);
        LIFE_REQUIRE(answer.reason == HOLDFAST_REASON_UNKNOWN_KEY);
    }
    /* Room again where something closes. */
    LIFE_REQUIRE(life_settle(&worker, "fill-0", 1, NULL) == HOLDFAST_OK);
    for (uint32_t i = 0; life_reserve(&worker, "after", "w", 1, 600000, &answer) != HOLDFAST_OK; i++) {
        LIFE_REQUIRE(answer.reason == HOLDFAST_REASON_BUSY && i < 60000);
        life_sleep_ms(2);
    }
    (void)printf("totals: %u of 64 slots filled, 5000 names refused\n", admitted + 1);
    life_leave(&worker);
    life_unserve(life, SIGTERM);
}

const struct life_scenario life_forks[] = {
    {"fork", fork_after_attach, "J3: fork after attach; the parent killed, the children live"},
    {"threads", threads, "J3: threads with a handle each, beside forks"},
    {"dead-table", table_of_the_dead, "a process table full of the dead"},
    {"full-tables", full_tables, "K1: no slot left, names beyond the policy"},
    {NULL, NULL, NULL},
};
