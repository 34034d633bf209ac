/* Random bytes in a live segment: the judge.
 *
 *     flip [--seconds N]     environment: HOLDFAST_SEED (of the first round), HOLDFAST_LONG=1 (20 minutes), HOLDFAST_FLIP_TOOL
 *
 * Fails when a process ends by a signal or another status than 0, or when a call takes more processor time than a whole pass
 * over everything could. A failure names the seed that begins with its round. */
#include "flip.h"

#include "tests/support/quota.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUND_MS 400
#define CALL_CPU_S \
    30 /* a call takes microseconds; under a memory checker, on a damaged chain, some milliseconds */
#define COMMAND_S   60
#define DAEMON_SEAT 0

struct totals {
    uint64_t rounds, flips, calls, admitted, opens, daemons, commands, ruins, longest_ns;
    const char *longest;
};

struct judge {
    struct flip_place place;
    struct totals totals;
    uint64_t seed; /* of this round */
    uint32_t theme;
    pid_t pids[FLIP_SEATS];
    const char *tool; /* the command `holdfast`, or NULL */
    bool failed;
};

extern char **environ;

/* ---- seats ----------------------------------------------------------------------------------------------------------- */

static uint64_t ns_of(clockid_t clock)
{
    struct timespec ts = {0};

    return clock_gettime(clock, &ts) == 0 ? (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec : 0;
}

void flip_begin(struct flip_seat *seat, const char *call)
{
    seat->call = call;
    seat->calls_cnt++;
    hf_store_rel_u64(&seat->cpu_ns, ns_of(CLOCK_PROCESS_CPUTIME_ID) + 1U);
}

void flip_end(struct flip_seat *seat)
{
    uint64_t took_ns = ns_of(CLOCK_PROCESS_CPUTIME_ID) - seat->cpu_ns;

    if (took_ns > seat->longest_ns && seat->cpu_ns != 0) {
        seat->longest_ns = took_ns;
        seat->longest = seat->call;
    }
    hf_store_rel_u64(&seat->cpu_ns, 0);
}

bool flip_over(const struct flip_shared *shared)
{
    return hf_load_acq_u32(&shared->stop) != 0;
}

/* ---- what went wrong ------------------------------------------------------------------------------------------------- */

static void report(struct judge *judge, const char *who, const char *call, const char *what)
{
    const struct flip_shared *shared = judge->place.shared;
    uint64_t cnt = shared->flips_cnt;

    judge->failed = true;
    (void)printf("FAILED: the %s, in its call '%s': %s\n"
                 "  theme '%s', %s clock; again: HOLDFAST_SEED=%" PRIu64
                 " (rounds differ in their timing: try some)\n",
                 who, call == NULL ? "none" : call, what, flip_theme_name(judge->theme),
                 judge->place.injected ? "injected" : "real", judge->seed);
    for (uint64_t i = cnt > 12 ? cnt - 12 : 0; i < cnt; i++) {
        const struct flip_mark *mark = &shared->ring[i % FLIP_RING];

        (void)printf("  damaged %s at %" PRIu64 ": %016" PRIx64 " -> %016" PRIx64 "\n", mark->what, mark->off,
                     mark->before, mark->after);
    }
    (void)fflush(stdout);
}

static const char *seat_name(uint32_t seat)
{
    return seat == DAEMON_SEAT ? "daemon" : seat == FLIP_SEATS - 1 ? "reader" : "worker";
}

static void judge_status(struct judge *judge, uint32_t seat, int status)
{
    const char *call = judge->place.shared->seats[seat].call;
    char what[96];

    if (WIFSIGNALED(status)) {
        (void)snprintf(what, sizeof what, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
        report(judge, seat_name(seat), call, what);
    } else if (WEXITSTATUS(status) != 0) {
        (void)snprintf(what, sizeof what, "status %d: a checker's report stands above", WEXITSTATUS(status));
        report(judge, seat_name(seat), call, what);
    }
}

/* A call that has had its processor time. */
static void watch(struct judge *judge)
{
    for (uint32_t i = 0; i < FLIP_SEATS; i++) {
        struct flip_seat *seat = &judge->place.shared->seats[i];
        uint64_t begun = hf_load_acq_u64(&seat->cpu_ns);
        clockid_t clock;

        if (judge->pids[i] <= 0 || begun == 0 || clock_getcpuclockid(judge->pids[i], &clock) != 0) {
            continue;
        }
        uint64_t now = ns_of(clock);
        if (now > begun && now - begun > CALL_CPU_S * UINT64_C(1000000000) &&
            hf_load_acq_u64(&seat->cpu_ns) == begun) {
            report(judge, seat_name(i), seat->call, "no end: it has had 30 seconds of processor time");
            (void)kill(judge->pids[i], SIGABRT); /* for a core, where one is kept */
            hf_store_rel_u64(&seat->cpu_ns, 0);
        }
    }
}

#ifndef __SANITIZE_ADDRESS__
/* Where a process ends by a signal: its frames, for addr2line. A memory checker says more by itself. */
static void show_frames(int signal_number)
{
    void *frames[40];
    /* Loaded before: nothing is allocated here. */
    int cnt = backtrace(frames, 40); /* NOLINT(bugprone-signal-handler,cert-sig30-c) */

    backtrace_symbols_fd(frames, cnt, STDOUT_FILENO); /* NOLINT(bugprone-signal-handler,cert-sig30-c) */
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
}
#endif

static void show_frames_of_crashes(void)
{
#ifndef __SANITIZE_ADDRESS__
    void *frame;

    (void)backtrace(&frame, 1); /* loads what it needs now */
    (void)signal(SIGSEGV, show_frames);
    (void)signal(SIGBUS, show_frames);
    (void)signal(SIGFPE, show_frames);
    (void)signal(SIGABRT, show_frames);
#endif
}

/* ---- a round ------------------------------------------------------------------------------------------------------------ */

static void start_seat(struct judge *judge, uint32_t seat)
{
    struct flip_place *place = &judge->place;
    uint64_t seed = judge->seed * 64U + seat;

    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        show_frames_of_crashes();
        if (seat == DAEMON_SEAT) {
            flip_daemon(place, &place->shared->seats[seat], seed + place->shared->flips_cnt);
        }
        flip_worker(place, &place->shared->seats[seat], seed);
    }
    judge->pids[seat] = pid;
    judge->totals.daemons += seat == DAEMON_SEAT;
}

/* Who ended; a daemon that ended rightly is followed by the next one. */
static void collect(struct judge *judge, bool again)
{
    for (uint32_t i = 0; i < FLIP_SEATS; i++) {
        int status = 0;

        if (judge->pids[i] > 0 && waitpid(judge->pids[i], &status, WNOHANG) == judge->pids[i]) {
            judge->pids[i] = 0;
            judge_status(judge, i, status);
            if (i == DAEMON_SEAT && again && !judge->failed) {
                start_seat(judge, i);
            }
        }
    }
}

static bool any_left(const struct judge *judge)
{
    for (uint32_t i = 0; i < FLIP_SEATS; i++) {
        if (judge->pids[i] > 0) {
            return true;
        }
    }
    return false;
}

static void nap(uint64_t ns)
{
    const struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000U), .tv_nsec = (long)(ns % 1000000000U)};

    (void)nanosleep(&ts, NULL);
}

/* Damage for as long as a round lasts. */
static void damage_round(struct judge *judge)
{
    struct flip_damage damage = {.theme = judge->theme};
    uint64_t until = ns_of(CLOCK_MONOTONIC) + ROUND_MS * UINT64_C(1000000);
    uint64_t heal = 0;
    uint64_t last = ns_of(CLOCK_MONOTONIC);
    uint64_t random = judge->seed;
    uint32_t most = 2U + flip_below(&random, 12); /* some rounds get far, others see much */
    bool open = false;

    while (ns_of(CLOCK_MONOTONIC) < until && !judge->failed &&
           hf_load_acq_u32(&judge->place.shared->ruins) == 0) {
        if (open && !hf_segment_in_place(&damage.seg)) {
            flip_damage_close(&damage);
            open = false;
        }
        open = open || flip_damage_open(&damage, &judge->place, flip_random(&random));
        if (open) {
            /* On a busy machine the judge comes late, and makes up for it. */
            uint64_t late = (ns_of(CLOCK_MONOTONIC) - last) / 300000U;

            for (uint64_t n = flip_below(&random, most) * (1U + (late < 40 ? late : 40)); n > 0; n--) {
                flip_damage_one(&damage);
            }
            last = ns_of(CLOCK_MONOTONIC);
            if (last > heal) {
                flip_damage_heal(&damage);
                heal = ns_of(CLOCK_MONOTONIC) + (1U + flip_below(&random, 10)) * UINT64_C(1000000);
            }
        }
        watch(judge);
        collect(judge, true);
        nap(flip_below(&random, 300) * UINT64_C(1000));
    }
    if (open) {
        flip_damage_heal(&damage); /* else the commands that follow get no further than the header */
        flip_damage_close(&damage);
    }
}

static void show_file(const char *path)
{
    FILE *in = fopen(path, "re");
    char line[512];

    while (in != NULL && fgets(line, sizeof line, in) != NULL) {
        (void)fputs(line, stdout);
    }
    if (in != NULL) {
        (void)fclose(in);
    }
}

/* Runs a command on what is left; it must end by itself and not by a signal. */
static void run_command(struct judge *judge, const char *command, const char *what)
{
    char *const argv[] = {(char *)(uintptr_t)judge->tool, (char *)(uintptr_t)command, "--segment",
                          judge->place.segment,           (char *)(uintptr_t)what,    NULL};
    char said[96];
    posix_spawn_file_actions_t actions;
    pid_t pid = 0;
    int status = 0;

    if (judge->tool == NULL || judge->failed) {
        return;
    }
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    (void)snprintf(said, sizeof said, "%s/said", judge->place.folder);
    (void)posix_spawn_file_actions_addopen(&actions, 2, said, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int failed = posix_spawn(&pid, judge->tool, &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) {
        return;
    }
    judge->totals.commands++;
    for (uint64_t until = ns_of(CLOCK_MONOTONIC) + COMMAND_S * UINT64_C(1000000000);;) {
        if (waitpid(pid, &status, WNOHANG) == pid) {
            break;
        }
        if (ns_of(CLOCK_MONOTONIC) > until) {
            (void)kill(pid, SIGKILL);
            (void)waitpid(pid, &status, 0);
            report(judge, "command", command, "no end");
            return;
        }
        nap(1000000);
    }
    if (WIFSIGNALED(status) || WEXITSTATUS(status) == 99) {
        show_file(said);
        report(judge, "command", command,
               WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "a checker's report stands above");
    }
}

static bool make_place(struct judge *judge)
{
    struct flip_place *place = &judge->place;
    struct hf_store_options options = {.durability = HF_STORE_OFF};
    struct hf_store_error error = {""};

    (void)snprintf(place->folder, sizeof place->folder, "/tmp/holdfast-flip-XXXXXX");
    if (mkdtemp(place->folder) == NULL) {
        return false;
    }
    (void)snprintf(place->segment, sizeof place->segment, "%s/segment", place->folder);
    (void)snprintf(place->policy, sizeof place->policy, "%s/policy.yaml", place->folder);
    (void)snprintf(place->store, sizeof place->store, "sqlite:%s/store.db", place->folder);
    FILE *out = fopen(place->policy, "we");
    bool written = out != NULL && fputs(hf_test_policy(), out) >= 0;

    if (out != NULL && fclose(out) != 0) {
        written = false;
    }
    return written && hf_store_init(place->store, &options, &error) == HF_STORE_OK;
}

static void drop_place(const struct judge *judge)
{
    static const char *const names[] = {"segment",       "segment.lock",     "policy.yaml",
                                        "store.db",      "store.db-wal",     "store.db-shm",
                                        "store.db.lock", "store.db-journal", "said"};
    char command[128];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[128];

        (void)snprintf(path, sizeof path, "%s/%s", judge->place.folder, names[i]);
        (void)unlink(path);
    }
    (void)snprintf(command, sizeof command, "rm -rf -- %s", judge->place.folder);
    if (rmdir(judge->place.folder) != 0 &&
        system(command) != 0) { /* NOLINT(cert-env33-c): a folder of our own */
        (void)printf("cannot remove %s\n", judge->place.folder);
    }
}

static void add_totals(struct judge *judge)
{
    const struct flip_shared *shared = judge->place.shared;
    struct totals *totals = &judge->totals;

    totals->rounds++;
    totals->flips += shared->flips_cnt;
    totals->ruins += shared->ruins;
    for (uint32_t i = 0; i < FLIP_SEATS; i++) {
        totals->calls += shared->seats[i].calls_cnt;
        totals->admitted += shared->seats[i].admitted_cnt;
        totals->opens += shared->seats[i].opens_cnt;
        if (shared->seats[i].longest_ns > totals->longest_ns) {
            totals->longest_ns = shared->seats[i].longest_ns;
            totals->longest = shared->seats[i].longest;
        }
    }
}

static void one_round(struct judge *judge, uint32_t number)
{
    struct flip_place *place = &judge->place;
    uint32_t workers = 1U + number % 3U;

    judge->theme = number / 2U;
    place->injected = number % 4U == 3U;
    memset(place->shared, 0, sizeof *place->shared);
    if (!make_place(judge)) {
        report(judge, "judge", "make", strerror(errno));
        return;
    }
    start_seat(judge, DAEMON_SEAT);
    for (uint32_t i = 1; i <= workers; i++) {
        start_seat(judge, i);
    }
    start_seat(judge, FLIP_SEATS - 1);
    /* The daemon has made the segment, the first holds are there. */
    for (uint32_t i = 0; i < 2000 && hf_load_rlx_u64(&place->shared->seats[1].admitted_cnt) < 3; i++) {
        nap(1000000);
        collect(judge, true);
    }
    damage_round(judge);
    hf_store_rel_u32(&place->shared->stop, 1);
    while (any_left(judge)) {
        watch(judge);
        collect(judge, false);
        nap(200000);
    }
    run_command(judge, "status", "--all");
    run_command(judge, "usage", "t");
    add_totals(judge);
    drop_place(judge);
}

int main(int argc, char **argv)
{
    const char *seed = getenv("HOLDFAST_SEED");
    const char *lasting = getenv("HOLDFAST_LONG");
    uint64_t seconds = lasting != NULL && strcmp(lasting, "1") == 0 ? 1200 : 25;
    struct judge judge = {.tool = getenv("HOLDFAST_FLIP_TOOL")};
    uint64_t first = seed != NULL ? strtoull(seed, NULL, 10) : 1;

    if (argc == 3 && strcmp(argv[1], "--seconds") == 0) {
        seconds = strtoull(argv[2], NULL, 10);
    }
    (void)setenv("ASAN_OPTIONS", "exitcode=99:detect_leaks=0", 0);
    judge.place.shared =
        mmap(NULL, sizeof *judge.place.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (judge.place.shared == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    (void)printf("seed %" PRIu64 ", %" PRIu64 " seconds\n", first, seconds);
    uint64_t until = ns_of(CLOCK_MONOTONIC) + seconds * UINT64_C(1000000000);
    for (uint32_t i = 0; !judge.failed && ns_of(CLOCK_MONOTONIC) < until; i++) {
        judge.seed = first + i;
        one_round(&judge, (uint32_t)judge.seed);
    }
    const struct totals *t = &judge.totals;
    (void)printf(
        "totals: seeds %" PRIu64 "..%" PRIu64 ", %" PRIu64 " rounds, %" PRIu64 " words damaged, %" PRIu64
        " calls (%" PRIu64 " admissions), %" PRIu64 " attaches, %" PRIu64 " daemons, %" PRIu64
        " commands, %" PRIu64 " rounds without a way on, longest call %" PRIu64 " ms (%s); %s\n",
        first, first + t->rounds - (t->rounds > 0), t->rounds, t->flips, t->calls, t->admitted, t->opens,
        t->daemons, t->commands, t->ruins, t->longest_ns / 1000000U, t->longest == NULL ? "none" : t->longest,
        judge.failed ? "FAILED" : "no crash, no endless call");
    return judge.failed ? 1 : 0;
}
