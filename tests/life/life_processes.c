/* J1, J2: who is alive. A number of a process proves nothing; what the kernel holds for it does. */
#include "life.h"

#include "shm/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CANNOT_NAMESPACE "no pid namespace can be made here (needs root and unshare)"
#define CANNOT_PID       "no process can be given a number of one's choice here (needs clone3 with set_tid)"

enum {
    READY = 0,   /* words: how many are where the scenario wants them */
    RELEASE = 1, /* and when they may go on */
    WRONG = 2,
    PID = 3,
};

/* Joins, holds, tells its reference, waits to be killed or released; then settles what it holds. */
static int hold_and_wait(struct life *life, void *arg)
{
    uint64_t number = *(const uint64_t *)arg;
    struct life_worker worker;
    char id[32];

    life_join(life, &worker);
    (void)snprintf(id, sizeof id, "hold-%u", (unsigned)number);
    LIFE_REQUIRE(life_reserve(&worker, id, "u", 100, 600000, NULL) == HOLDFAST_OK);
    life->shared->refs[number] = worker.handle->owner.ref;
    life_tell(&life->shared->words[PID + number], (uint64_t)getpid());
    (void)hf_add_acqrel_u64(&life->shared->words[READY], 1);
    life_await(&life->shared->words[RELEASE], 1);
    LIFE_REQUIRE(life_settle(&worker, id, 60, NULL) == HOLDFAST_OK);
    life_leave(&worker);
    return 0;
}

/* ---- pid namespaces ------------------------------------------------------------------------------------------------------------ */

/* The first process of a new pid namespace; runs f as a process with number `pid` of it, and ends with its status. */
struct inside {
    int (*f)(struct life *, void *);
    void *arg;
    pid_t pid;
};

static int in_namespace(struct life *life, void *arg)
{
    const struct inside *inside = arg;

    if (unshare(CLONE_NEWPID) != 0) {
        return 77;
    }
    pid_t init = fork();
    if (init < 0) {
        return 77;
    }
    if (init > 0) {
        return life_wait(init) & 0xff;
    }
    (void)prctl(PR_SET_PDEATHSIG,
                SIGKILL); /* the namespace goes with the process that stands for it outside */
    if (inside->pid == 1) {
        _exit(inside->f(life, inside->arg));
    }
    for (;;) {
        pid_t pid = fork();

        if (pid < 0) {
            _exit(77);
        }
        if (pid == 0) {
            _exit(getpid() == inside->pid ? inside->f(life, inside->arg) : 78);
        }
        int status = life_wait(pid);

        if (pid == inside->pid) {
            _exit(status & 0xff);
        }
    }
}

static pid_t start_inside(struct life *life, struct inside *inside)
{
    uint64_t ready = hf_load_acq_u64(&life->shared->words[READY]);
    pid_t pid = life_start(life, in_namespace, inside);

    for (uint32_t i = 0; hf_load_acq_u64(&life->shared->words[READY]) == ready; i++) {
        int status = 0;

        if (waitpid(pid, &status, WNOHANG) == pid) {
            if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
                life_skip(CANNOT_NAMESPACE);
            }
            LIFE_FAIL("it got where it should");
        }
        LIFE_REQUIRE(i < 60000);
        life_sleep_ms(1);
    }
    return pid;
}

/* Sweeps and reaps from inside a namespace, in which the other's number is one's own. */
static int sweep_inside(struct life *life, void *arg)
{
    struct life_worker worker;

    (void)arg;
    life_join(life, &worker);
    uint64_t wrong = 0;
    for (int i = 0; i < 50; i++) {
        wrong += hf_owner_sweep(worker.handle->seg);
        wrong += !hf_owner_alive(worker.handle->seg, life->shared->refs[0]);
        wrong += holdfast_reap(worker.handle, 0, NULL, NULL) != 0;
    }
    life_leave(&worker);
    life_tell(&life->shared->words[WRONG], wrong);
    (void)hf_add_acqrel_u64(&life->shared->words[READY], 1);
    return 0;
}

/* Two containers, each with a process 7: one sweeps, the other lives. */
static void two_namespaces(struct life *life)
{
    uint64_t first = 0;
    uint64_t second = 1;
    struct inside a = {hold_and_wait, &first, 7};
    struct inside b = {hold_and_wait, &second, 7};
    struct inside c = {sweep_inside, NULL, 7};

    life_serve(life);
    pid_t pid_a = start_inside(life, &a);
    pid_t pid_b = start_inside(life, &b);
    struct life_worker worker;
    life_join(life, &worker);
    const struct hf_segment *seg = worker.handle->seg;
    const uint64_t *refs = life->shared->refs;
    LIFE_REQUIRE(life->shared->words[PID] == 7 && life->shared->words[PID + 1] == 7);
    LIFE_REQUIRE(seg->owners[hf_ref_index(refs[0])].own_pid == 7 &&
                 seg->owners[hf_ref_index(refs[1])].own_pid == 7);
    LIFE_REQUIRE(refs[0] != refs[1] && hf_owner_alive(seg, refs[0]) && hf_owner_alive(seg, refs[1]));
    LIFE_REQUIRE(life_wait(start_inside(life, &c)) == 0);
    LIFE_REQUIRE(life->shared->words[WRONG] == 0);
    LIFE_REQUIRE(life_used(&worker, "u") == 200);
    /* One of the two dies, by the death of its namespace: it alone is dead. */
    life_kill(pid_b);
    for (uint32_t i = 0; hf_owner_alive(seg, refs[1]) && i < 60000; i++) {
        life_sleep_ms(1);
    }
    LIFE_REQUIRE(hf_owner_alive(seg, refs[0]) && !hf_owner_alive(seg, refs[1]));
    LIFE_REQUIRE(life_used(&worker, "u") == 200); /* its hold is open until it is settled or expires */
    life_tell(&life->shared->words[RELEASE], 1);
    LIFE_REQUIRE(life_wait(pid_a) == 0);
    LIFE_REQUIRE(life_used(&worker, "u") == 160);
    LIFE_REQUIRE(life_settle(&worker, "hold-1", 40, NULL) == HOLDFAST_OK);
    LIFE_REQUIRE(life_used(&worker, "u") == 100 && life_held(&worker, "u") == 0);
    life_leave(&worker);
    life_unserve(life, SIGTERM);
}

/* A container that is made again: its new process 1 has not what the old one held. */
static void container_again(struct life *life)
{
    uint64_t first = 0;
    uint64_t second = 1;
    struct inside a = {hold_and_wait, &first, 1};
    struct inside b = {hold_and_wait, &second, 1};
    struct life_worker worker;

    life_serve(life);
    life_join(life, &worker);
    const struct hf_segment *seg = worker.handle->seg;
    pid_t pid = start_inside(life, &a);
    LIFE_REQUIRE(life->shared->words[PID] == 1);
    life_kill(pid);
    for (uint32_t i = 0; hf_owner_alive(seg, life->shared->refs[0]) && i < 60000; i++) {
        life_sleep_ms(1);
    }
    pid = start_inside(life, &b);
    LIFE_REQUIRE(life->shared->words[PID + 1] == 1);
    LIFE_REQUIRE(life->shared->refs[0] != life->shared->refs[1]);
    LIFE_REQUIRE(!hf_owner_alive(seg, life->shared->refs[0]) && hf_owner_alive(seg, life->shared->refs[1]));
    LIFE_REQUIRE(life_used(&worker, "u") == 200); /* both holds are open, each under its own id */
    life_tell(&life->shared->words[RELEASE], 1);
    LIFE_REQUIRE(life_wait(pid) == 0);
    LIFE_REQUIRE(life_used(&worker, "u") == 160); /* the new one left the old one's alone */
    LIFE_REQUIRE(life_settle(&worker, "hold-0", 100, NULL) == HOLDFAST_OK);
    life_leave(&worker);
    life_unserve(life, SIGTERM);
}

/* ---- pid reuse ---------------------------------------------------------------------------------------------------------------------- */

/* A child with that number; 0 in it. -1: not allowed. Called by processes that hold no handle, since no fork handler runs. */
static pid_t fork_as(pid_t wanted)
{
    pid_t set[1] = {wanted};
    struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)set, .set_tid_size = 1};

    return (pid_t)syscall(SYS_clone3, &args, sizeof args);
}

/* Process 4321 holds and dies; another program gets 4321. With a short ttl for one of its holds. */
static int reuse_inside(struct life *life, void *arg)
{
    const pid_t wanted = 4321;
    pid_t pid = fork_as(wanted);

    (void)arg;
    if (pid < 0) {
        return 79;
    }
    if (pid == 0) {
        struct life_worker worker;

        life_join(life, &worker);
        LIFE_REQUIRE(life_reserve(&worker, "long", "u", 100, 600000, NULL) == HOLDFAST_OK);
        LIFE_REQUIRE(life_reserve(&worker, "short", "u", 11, 1500, NULL) == HOLDFAST_OK);
        life->shared->refs[0] = worker.handle->owner.ref;
        life_tell(&life->shared->words[PID], (uint64_t)getpid());
        _exit(0); /* without leaving: dead */
    }
    (void)waitpid(pid, NULL, 0);
    pid = fork_as(wanted);
    if (pid == 0) { /* unrelated: it never heard of the segment */
        life_tell(&life->shared->words[PID + 1], (uint64_t)getpid());
        (void)hf_add_acqrel_u64(&life->shared->words[READY], 1);
        life_await(&life->shared->words[RELEASE], 1);
        _exit(0);
    }
    return pid < 0 ? 79 : life_wait(pid);
}

static void pid_reuse(struct life *life)
{
    struct inside inside = {reuse_inside, NULL, 1};
    struct life_worker worker;
    int status = 0;

    life_serve(life);
    life_join(life, &worker);
    pid_t pid = life_start(life, in_namespace, &inside);
    for (uint32_t i = 0; hf_load_acq_u64(&life->shared->words[READY]) == 0; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            life_skip(WIFEXITED(status) && WEXITSTATUS(status) == 79 ? CANNOT_PID : CANNOT_NAMESPACE);
        }
        LIFE_REQUIRE(i < 60000);
        life_sleep_ms(1);
    }
    LIFE_REQUIRE(life->shared->words[PID] == 4321 && life->shared->words[PID + 1] == 4321);
    LIFE_REQUIRE(
        !hf_owner_alive(worker.handle->seg, life->shared->refs[0])); /* although a process 4321 lives */
    for (uint32_t i = 0; life_used(&worker, "u") == 111; i++) {      /* freed at its ttl at the latest */
        LIFE_REQUIRE(i < 60000);
        life_sleep_ms(1);
    }
    LIFE_REQUIRE(life_used(&worker, "u") == 100); /* and not the one whose ttl runs on */
    life_tell(&life->shared->words[RELEASE], 1);
    LIFE_REQUIRE(life_wait(pid) == 0);
    LIFE_REQUIRE(life_settle(&worker, "long", 1, NULL) == HOLDFAST_OK);
    life_leave(&worker);
    life_unserve(life, SIGTERM);
}

/* ---- zombies, stopped ones ------------------------------------------------------------------------------------------------------------ */

static void zombie(struct life *life)
{
    uint64_t number = 0;
    struct life_worker worker;
    siginfo_t info;

    life_serve(life);
    life_join(life, &worker);
    pid_t pid = life_start(life, hold_and_wait, &number);
    life_await(&life->shared->words[READY], 1);
    LIFE_REQUIRE(hf_owner_alive(worker.handle->seg, life->shared->refs[0]));
    LIFE_REQUIRE(kill(pid, SIGKILL) == 0);
    LIFE_REQUIRE(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0); /* dead, and not waited for */
    LIFE_REQUIRE(kill(pid, 0) == 0);                                       /* a number that still answers */
    LIFE_REQUIRE(!hf_owner_alive(worker.handle->seg, life->shared->refs[0]));
    for (uint32_t i = 0;
         hf_load_acq_u64(&worker.handle->seg->owners[hf_ref_index(life->shared->refs[0])].own_ref) ==
         life->shared->refs[0];
         i++) { /* the daemon gives its place away */
        LIFE_REQUIRE(i < 60000);
        life_sleep_ms(1);
    }
    LIFE_REQUIRE(kill(pid, 0) == 0);
    LIFE_REQUIRE(life_wait(pid) == -SIGKILL);
    LIFE_REQUIRE(life_settle(&worker, "hold-0", 5, NULL) == HOLDFAST_OK);
    life_leave(&worker);
    life_unserve(life, SIGTERM);
}

static int hold_short(struct life *life, void *arg)
{
    struct life_worker worker;
    struct holdfast_closing closing;

    (void)arg;
    life_join(life, &worker);
    LIFE_REQUIRE(life_reserve(&worker, "stopped", "w", 9000, 400, NULL) == HOLDFAST_OK);
    (void)hf_add_acqrel_u64(&life->shared->words[READY], 1);
    life_await(&life->shared->words[RELEASE], 1);
    LIFE_REQUIRE(life_settle(&worker, "stopped", 8000, &closing) == HOLDFAST_OK);
    LIFE_REQUIRE(closing.late == 1 && closing.replayed == 0);
    LIFE_REQUIRE(life_settle(&worker, "stopped", 8000, &closing) == HOLDFAST_OK && closing.replayed == 1);
    life_leave(&worker);
    return 0;
}

/* J2: stopped past its ttl; others take what it held; it wakes and settles late, once. Its place is its own all the time. */
static void stopped(struct life *life)
{
    struct life_worker worker;

    life_serve(life);
    life_join(life, &worker);
    pid_t pid = life_start(life, hold_short, NULL);
    life_await(&life->shared->words[READY], 1);
    LIFE_REQUIRE(kill(pid, SIGSTOP) == 0);
    uint64_t limit = 100000;           /* the tenant's month */
    for (uint32_t i = 0; i < 9; i++) { /* 90,000 and 9,000 are held */
        char id[16];

        (void)snprintf(id, sizeof id, "w-%u", i);
        LIFE_REQUIRE(life_reserve(&worker, id, "w", 10000, 600000, NULL) == HOLDFAST_OK);
    }
    for (uint32_t i = 0; life_reserve(&worker, "taken", "w", 10000, 600000, NULL) != HOLDFAST_OK; i++) {
        LIFE_REQUIRE(i < 60000); /* admitted as soon as the hold of the stopped one is reaped */
        life_sleep_ms(1);
    }
    LIFE_REQUIRE(hf_owner_sweep(worker.handle->seg) == 0); /* stopped is not dead */
    life_tell(&life->shared->words[RELEASE], 1);
    LIFE_REQUIRE(kill(pid, SIGCONT) == 0);
    LIFE_REQUIRE(life_wait(pid) == 0);
    /* Counted once, and the excess is seen: nothing more fits. */
    struct holdfast_answer answer;
    LIFE_REQUIRE(life_reserve(&worker, "none", "w", 1, 600000, &answer) == HOLDFAST_REFUSED);
    LIFE_REQUIRE(answer.reason == HOLDFAST_REASON_TENANT_TOTAL);
    struct holdfast_limit limits[15];
    int reason = 0;
    LIFE_REQUIRE(holdfast_limits(worker.handle, "t", NULL, NULL, limits, 15, &reason) == 1);
    LIFE_REQUIRE(limits[0].held + limits[0].settled == 108000 && limits[0].limit == limit);
    LIFE_REQUIRE(limits[0].available == -8000);
    life_leave(&worker);
    life_unserve(life, SIGTERM);
}

const struct life_scenario life_processes[] = {
    {"pid-reuse", pid_reuse, "J1: the number of a dead holder goes to an unrelated process"},
    {"pid-namespaces", two_namespaces, "J1: two containers with the same number; one sweeps"},
    {"container-again", container_again, "J1: process 1 of a container that was made again"},
    {"zombie", zombie, "J1: a zombie is dead"},
    {"stopped", stopped, "J2: stopped past its ttl is alive, and late"},
    {NULL, NULL, NULL},
};
