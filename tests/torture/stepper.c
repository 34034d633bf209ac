#include "tests/torture/stepper.h"

#include "shm/atomic.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 4096U

/* An instruction to make a stopped child call the kernel with. */
__asm__(".text\n.globl hf_step_syscall\n.hidden hf_step_syscall\nhf_step_syscall:\n\tsyscall\n\tint3\n");
extern const uint8_t hf_step_syscall[];

/* In place of the C library's, which reads the kernel's clock page again when it changes in between: here a call of the kernel is one
 * instruction, and every run has as many. */
int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    return (int)syscall(SYS_clock_gettime, clock_id, tp);
}

static __attribute__((noreturn)) void give_up(const char *what)
{
    (void)fprintf(stderr, "stepper: %s: %s\n", what, strerror(errno));
    exit(2);
}

static int wait_for(const struct hf_step_proc *proc)
{
    int status;

    while (waitpid(proc->pid, &status, __WALL) != proc->pid) {
        if (errno != EINTR)
            give_up("waitpid");
    }
    return status;
}

static __attribute__((noinline)) void run_body(const struct hf_step_body *body)
{
    body->prepare(body->arg);
    (void)raise(0); /* so that the dynamic linker has no work within the steps */
    (void)raise(SIGSTOP);
    body->act(body->arg);
    (void)raise(SIGSTOP);
    _exit(0);
}

static void child(const struct hf_step_body *body)
{
    /* The C library takes another way through a text that ends near the end of a page. So the stack begins at the same place of a page
     * in every run, however deep in its own calls the parent was. */
    size_t over = (uintptr_t)__builtin_frame_address(0) & (PAGE_BYTES - 1U);
    char *pad = __builtin_alloca(over + 16U);

    __asm__("" : : "r"(pad) : "memory"); /* so that the room is really taken */
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(77);
    run_body(body);
}

void hf_step_start(struct hf_step_proc *proc, const struct hf_step_body *body)
{
    pid_t pid = fork();

    if (pid < 0)
        give_up("fork");
    if (pid == 0)
        child(body); /* proc may be shared with it: it is the parent's */
    *proc = (struct hf_step_proc){.pid = pid};
    int status = wait_for(proc);

    if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP) {
        (void)fprintf(stderr, "stepper: the child did not come to its mark (status %x)\n", (unsigned)status);
        exit(2);
    }
    if (ptrace(PTRACE_SETOPTIONS, proc->pid, NULL, (void *)PTRACE_O_EXITKILL) != 0)
        give_up("PTRACE_SETOPTIONS");
}

/* One instruction. The signal that it stopped with; 0: it is gone. */
static int step(struct hf_step_proc *proc)
{
    if (ptrace(PTRACE_SINGLESTEP, proc->pid, NULL, NULL) != 0)
        give_up("PTRACE_SINGLESTEP");
    int status = wait_for(proc);

    return WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
}

void hf_step_run(struct hf_step_proc *proc, uint32_t n)
{
    while (n-- > 0 && !proc->over) {
        int sig = step(proc);

        if (sig == SIGSTOP) {
            proc->over = true;
        } else if (sig != SIGTRAP) {
            (void)fprintf(stderr, "stepper: the child stopped by signal %d after %u instructions\n", sig,
                          proc->steps);
            exit(2);
        }
        proc->steps++;
    }
}

static void get_regs(const struct hf_step_proc *proc, struct user_regs_struct *regs)
{
    if (ptrace(PTRACE_GETREGS, proc->pid, NULL, regs) != 0)
        give_up("PTRACE_GETREGS");
}

static void set_regs(const struct hf_step_proc *proc, struct user_regs_struct *regs)
{
    if (ptrace(PTRACE_SETREGS, proc->pid, NULL, regs) != 0)
        give_up("PTRACE_SETREGS");
}

uint64_t hf_step_rip(const struct hf_step_proc *proc)
{
    errno = 0;
    long rip = ptrace(PTRACE_PEEKUSER, proc->pid, (void *)offsetof(struct user_regs_struct, rip), NULL);

    if (rip == -1 && errno != 0)
        give_up("PTRACE_PEEKUSER");
    return (uint64_t)rip;
}

static uint64_t mono_s(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec;
}

bool hf_step_finish(struct hf_step_proc *proc)
{
    if (proc->over)
        return true;
    if (ptrace(PTRACE_CONT, proc->pid, NULL, NULL) != 0)
        give_up("PTRACE_CONT");
    uint64_t until = mono_s() + 60;

    for (uint32_t looks = 0;; looks++) {
        int status = 0;
        pid_t pid = waitpid(proc->pid, &status, __WALL | WNOHANG);

        if (pid == proc->pid) {
            proc->over = WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
            if (!WIFSTOPPED(status))
                proc->pid = 0; /* gone */
            return proc->over;
        }
        if (pid < 0 && errno != EINTR)
            give_up("waitpid");
        if (mono_s() > until)
            return false;
        if (looks > 100)
            (void)usleep(100);
        else
            (void)sched_yield();
    }
}

void hf_step_kill(struct hf_step_proc *proc)
{
    if (proc->pid <= 0)
        return;
    (void)kill(proc->pid, SIGKILL);
    for (;;) {
        int status = wait_for(proc);

        if (!WIFSTOPPED(status))
            break;
    }
    proc->pid = 0;
}

/* ---- breakpoints -------------------------------------------------------------------------------------------- */

extern const uint8_t __executable_start[];
extern const uint8_t etext[];

/* Only in the program itself: not in the kernel's clock page. */
static bool may_break(uint64_t rip)
{
    return rip >= (uint64_t)(uintptr_t)__executable_start && rip < (uint64_t)(uintptr_t)etext;
}

static void poke(const struct hf_step_proc *proc, uint64_t rip, long word)
{
    if (ptrace(PTRACE_POKETEXT, proc->pid, (void *)(uintptr_t)rip, (void *)word) != 0)
        give_up("PTRACE_POKETEXT");
}

/* Runs freely to the instruction at rip, the first time it comes there. */
static bool run_to_break(struct hf_step_proc *proc, uint64_t rip)
{
    struct user_regs_struct regs;

    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, proc->pid, (void *)(uintptr_t)rip, NULL);

    if (word == -1 && errno != 0)
        give_up("PTRACE_PEEKTEXT");
    poke(proc, rip, (long)(((unsigned long)word & ~0xffUL) | 0xccUL));
    if (ptrace(PTRACE_CONT, proc->pid, NULL, NULL) != 0)
        give_up("PTRACE_CONT");
    int status = wait_for(proc);

    if (!WIFSTOPPED(status))
        return false;
    poke(proc, rip, word);
    if (WSTOPSIG(status) == SIGSTOP) {
        proc->over = true;
        return false;
    }
    get_regs(proc, &regs);
    if (WSTOPSIG(status) != SIGTRAP || regs.rip != rip + 1U)
        give_up("a breakpoint");
    regs.rip = rip;
    set_regs(proc, &regs);
    return true;
}

/* From an anchor to `wanted`, n instructions away: by steps, or in a loop by a breakpoint of its own where that is less. */
static bool run_through(struct hf_step_proc *proc, const struct hf_step_at *wanted, uint32_t n)
{
    if (!may_break(wanted->rip) || n < 4U * (wanted->times + 1U)) {
        hf_step_run(proc, n);
        return true;
    }
    for (uint32_t i = 0; i <= wanted->times; i++) {
        if (i > 0)
            hf_step_run(proc, 1);
        if (!run_to_break(proc, wanted->rip))
            return false;
    }
    return true;
}

bool hf_step_run_to(struct hf_step_proc *proc, const struct hf_step_profile *profile, uint32_t n)
{
    uint32_t at = n < profile->cnt ? profile->at[n].anchor : profile->cnt;

    if (at >= profile->cnt) {
        hf_step_run(proc, n);
        return n >= profile->cnt;
    }
    if (at > 0) {
        if (!run_to_break(proc, profile->at[at].rip))
            return false;
        proc->steps = at;
    }
    if (proc->steps < n && !run_through(proc, &profile->at[n], n - at))
        return false;
    proc->steps = n;
    return !proc->over && hf_step_rip(proc) == profile->at[n].rip;
}

static void find_anchors(struct hf_step_profile *profile)
{
    uint32_t anchor = 0;

    for (uint32_t i = 0; i < profile->cnt; i++) {
        uint32_t first = 0;

        while (profile->at[first].rip != profile->at[i].rip)
            first++;
        if (first == i && may_break(profile->at[i].rip))
            anchor = i;
        profile->at[i].anchor = anchor;
        profile->at[i].times = 0;
        for (uint32_t j = anchor; j < i; j++)
            profile->at[i].times += profile->at[j].rip == profile->at[i].rip;
    }
}

/* ---- profile ------------------------------------------------------------------------------------------------- */

/* Makes the child change the protection of the watched memory. */
static void protect(struct hf_step_proc *proc, const struct hf_step_watch *watch, int prot)
{
    struct user_regs_struct saved;
    struct user_regs_struct regs;

    get_regs(proc, &saved);
    regs = saved;
    regs.rax = SYS_mprotect;
    regs.orig_rax = ~0ULL;
    regs.rdi = (uint64_t)(uintptr_t)watch->base;
    regs.rsi = watch->bytes;
    regs.rdx = (unsigned)prot;
    regs.rip = (uint64_t)(uintptr_t)hf_step_syscall;
    set_regs(proc, &regs);
    if (step(proc) != SIGTRAP)
        give_up("a call made by the child");
    get_regs(proc, &regs);
    if (regs.rax != 0)
        give_up("mprotect of the child");
    set_regs(proc, &saved);
}

/* One instruction with the memory out of reach; when it wants it, again with the memory there. */
static int step_watched(struct hf_step_proc *proc, const struct hf_step_watch *watch, uint8_t *before,
                        struct hf_step_at *at)
{
    siginfo_t info;

    *at = (struct hf_step_at){.rip = hf_step_rip(proc)};
    int sig = step(proc);

    if (sig != SIGSEGV)
        return sig;
    if (ptrace(PTRACE_GETSIGINFO, proc->pid, NULL, &info) != 0)
        give_up("PTRACE_GETSIGINFO");
    const uint8_t *address = info.si_addr;

    if (address < watch->base || address >= watch->base + watch->bytes)
        return sig;
    at->accesses = true;
    protect(proc, watch, PROT_READ | PROT_WRITE);
    sig = step(proc);
    protect(proc, watch, PROT_NONE);
    at->changes = memcmp(before, watch->base, watch->compared) != 0;
    if (at->changes)
        memcpy(before, watch->base, watch->compared);
    return sig;
}

void hf_step_profile_on(struct hf_step_proc *proc, const struct hf_step_watch *watch,
                        struct hf_step_profile *profile)
{
    uint8_t *before = malloc(watch->compared);
    int sig = SIGTRAP;

    if (before == NULL)
        give_up("malloc");
    memcpy(before, watch->base, watch->compared);
    profile->cnt = profile->first = profile->last = profile->accesses_cnt = profile->changes_cnt = 0;
    protect(proc, watch, PROT_NONE);
    while (sig == SIGTRAP && profile->cnt < HF_STEP_MOST) {
        struct hf_step_at *at = &profile->at[profile->cnt];

        sig = step_watched(proc, watch, before, at);
        if (at->accesses) {
            profile->first = profile->accesses_cnt == 0 ? profile->cnt : profile->first;
            profile->last = profile->cnt;
            profile->accesses_cnt++;
            profile->changes_cnt += at->changes;
        }
        profile->cnt++;
        proc->steps++;
        if (sig == SIGTRAP && hf_load_rlx_u8(watch->told) != 0)
            break;
    }
    free(before);
    if (sig == SIGTRAP && profile->cnt < HF_STEP_MOST) {
        protect(proc, watch, PROT_READ | PROT_WRITE);
        find_anchors(profile);
        if (hf_step_finish(proc))
            return;
        sig = 0;
    }
    if (sig != SIGSTOP) {
        (void)fprintf(stderr, "stepper: the operation did not end: signal %d after %u instructions\n", sig,
                      profile->cnt);
        exit(2);
    }
    protect(proc, watch, PROT_READ | PROT_WRITE);
    find_anchors(profile);
    proc->over = true;
}

void hf_step_profile(struct hf_step_proc *proc, const struct hf_step_body *body,
                     const struct hf_step_watch *watch, struct hf_step_profile *profile)
{
    hf_step_start(proc, body);
    hf_step_profile_on(proc, watch, profile);
}

const char *hf_step_possible(void)
{
    int status;
    pid_t pid = fork();

    if (pid < 0)
        return "no process can be made";
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(77);
        (void)raise(SIGSTOP);
        _exit(0);
    }
    if (waitpid(pid, &status, 0) != pid)
        return "no process can be waited for";
    if (!WIFSTOPPED(status))
        return "processes may not be traced here (ptrace is forbidden)";
    bool stepped = ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid &&
                   WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;

    (void)kill(pid, SIGKILL);
    if (waitpid(pid, &status, 0) != pid || !stepped)
        return "processes cannot be run by single instructions here";
    return NULL;
}
