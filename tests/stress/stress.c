/* Many processes on one segment, killed, stopped, forked and replaced at random, and every amount accounted for afterwards.
 *
 *   stress CONFIG [--kills N] [--seed N] [--exec 0]
 *
 * HOLDFAST_SEED is the seed when --seed is not given; HOLDFAST_LONG=1 makes runs long. Exit status 0, 1 (something was wrong). */
#include "tests/stress/board.h"

#include "persist/store.h"
#include "shm/clock.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUND_KILLS  500U
#define KILLS_QUICK  500U
#define KILLS_LONG   3000U  /* 12,000 in the four configurations */
#define PATIENCE_MS  60000U /* for a busy machine; nothing is decided by time */
#define STOPPED_MAX  12U    /* steps a process stays stopped at most */
#define HOLDS_OF_ALL (STRESS_PLACES + 2U)
#define REAPER       STRESS_PLACES
#define DAEMON       (STRESS_PLACES + 1U)

struct stress {
    char folder[64];
    struct stress_board *board;
    const struct stress_config *config;
    struct hf_segment seg;
    uint64_t random;
    pid_t pids[HOLDS_OF_ALL]; /* workers, reaper, daemon */
    uint32_t stopped[HOLDS_OF_ALL];
    uint32_t lives[STRESS_PLACES];
    pid_t sampler;
    uint64_t kills;
    uint64_t stops;
    uint64_t exits;
};

static void give_up(struct stress *stress, const char *what)
{
    stress_wrong(stress->board, "%s", what);
}

static void pause_us(uint64_t us)
{
    const struct timespec time = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

    (void)nanosleep(&time, NULL);
}

/* ---- processes -------------------------------------------------------------------------------------------------- */

static pid_t fork_or_die(void)
{
    pid_t pid = fork();

    if (pid < 0) {
        perror("stress: fork");
        exit(1);
    }
    return pid;
}

static void start(struct stress *stress, uint32_t who)
{
    if (who < STRESS_PLACES) {
        stress->lives[who]++;
        stress->board->allowed[who] = STRESS_WARM;
        stress->board->done[who] = stress->board->leave[who] = 0;
        stress->board->fuse_ns[who] = 0;
        memcpy(stress->board->lives[who], stress->lives, sizeof(stress->lives));
    }
    stress->stopped[who] = 0;
    pid_t pid = fork_or_die();

    if (pid == 0) {
        struct stress_place place = {
            .folder = stress->folder, .board = stress->board, .place = who, .life = 0};

        (void)setpgid(0, 0);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* nobody outlives the controller */
        if (who == REAPER) {
            stress_reap(stress->folder, stress->board);
        } else if (who == DAEMON) {
            stress_serve(stress->folder, stress->board);
        }
        place.life = stress->lives[who];
        stress_work(&place);
    }
    (void)setpgid(pid, pid);
    stress->pids[who] = pid;
}

/* Until it is dead, and still there to be waited for: its process group is still its own. */
static void await_dead(const struct stress *stress, uint32_t who)
{
    siginfo_t info;

    while (waitid(P_PID, (id_t)stress->pids[who], &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
}

/* Waits for one that was killed, or told to end, and for the children that it leaves. */
static void await_end(struct stress *stress, uint32_t who, bool killed)
{
    pid_t pid = stress->pids[who];
    uint64_t until = hf_clock_mono_fine_ms() + PATIENCE_MS;
    int status = 0;
    pid_t ended;

    while ((ended = waitpid(pid, &status, killed ? 0 : WNOHANG)) == 0 && hf_clock_mono_fine_ms() < until) {
        pause_us(200);
    }
    if (ended == 0) {
        give_up(stress, "a process does not come to its end: is it held up by another one that is stopped?");
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, &status, 0);
    } else if (WIFEXITED(status) ? WEXITSTATUS(status) != 0 : !killed || WTERMSIG(status) != SIGKILL) {
        stress_wrong(stress->board, "process %" PRIu32 " ended with status 0x%x", who, (unsigned)status);
    }
    while (waitpid(-pid, &status, 0) > 0) {
        if (WIFEXITED(status) ? WEXITSTATUS(status) != 0 : WTERMSIG(status) != SIGKILL) {
            stress_wrong(stress->board, "a child of process %" PRIu32 " ended with status 0x%x", who,
                         (unsigned)status);
        }
    }
}

static void kill_one(struct stress *stress, uint32_t who, bool group)
{
    (void)kill(group ? -stress->pids[who] : stress->pids[who], SIGKILL);
    await_end(stress, who, true);
    stress->kills++;
}

static void grant(struct stress *stress, uint32_t who, uint32_t operations)
{
    uint32_t *allowed = &stress->board->allowed[who];

    hf_store_rel_u32(allowed, stress->board->done[who] + operations); /* plain: a gate of the test */
    (void)syscall(SYS_futex, allowed, FUTEX_WAKE, 8, NULL, NULL, 0);
}

static void leave_one(struct stress *stress, uint32_t who)
{
    uint32_t *leave = who < STRESS_PLACES ? &stress->board->leave[who]
                      : who == REAPER     ? &stress->board->stop_reaper
                                          : &stress->board->stop_daemon;

    if (stress->stopped[who] != 0) {
        (void)kill(stress->pids[who], SIGCONT);
        stress->stopped[who] = 0;
    }
    hf_store_rel_u32(leave, 1); /* plain: a flag of the test */
    if (who < STRESS_PLACES) {
        grant(stress, who, 0);
        (void)syscall(SYS_futex, &stress->board->allowed[who], FUTEX_WAKE, 8, NULL, NULL, 0);
    }
    await_end(stress, who, false);
    hf_store_rel_u32(leave, 0); /* plain: likewise */
    stress->exits++;
}

/* A worker is struck by its own timer, wherever it is then: the length of the fuse is the decision. */
static void light(struct stress *stress, uint32_t who, int signal)
{
    stress->board->fuse_signal[who] = (uint32_t)signal;
    stress->board->fuse_number[who]++;
    /* plain: a flag of the test */
    hf_store_rel_u32(&stress->board->fuse_ns[who], 2000 + (uint32_t)stress_draw(&stress->random, 60000));
    grant(stress, who, 0);
}

static void stop_one(struct stress *stress, uint32_t who)
{
    int status = 0;

    if (stress->stopped[who] != 0) {
        return;
    }
    stress->stopped[who] = 1 + (uint32_t)stress_draw(&stress->random, STOPPED_MAX);
    stress->stops++;
    if (who >= STRESS_PLACES) {
        (void)kill(stress->pids[who], SIGSTOP);
        return;
    }
    light(stress, who, SIGSTOP);
    while (waitpid(stress->pids[who], &status, WUNTRACED) < 0 && errno == EINTR) {
    }
    if (!WIFSTOPPED(status)) {
        stress_wrong(stress->board, "worker %" PRIu32 " ended with status 0x%x", who, (unsigned)status);
    }
    hf_store_rel_u32(&stress->board->fuse_ns[who], 0); /* plain: a flag of the test */
}

static void continue_due(struct stress *stress, bool all)
{
    for (uint32_t i = 0; i < HOLDS_OF_ALL; i++) {
        if (stress->stopped[i] != 0 && (--stress->stopped[i] == 0 || all)) {
            stress->stopped[i] = 0;
            (void)kill(stress->pids[i], SIGCONT);
        }
    }
}

/* ---- a round ---------------------------------------------------------------------------------------------------- */

/* Some workers die at once, each at an instruction of its own. */
static void strike_workers(struct stress *stress)
{
    bool struck[STRESS_PLACES] = {false};
    uint64_t *random = &stress->random;

    for (uint64_t cnt = 2 + stress_draw(random, 6); cnt > 0; cnt--) {
        uint32_t who = (uint32_t)stress_draw(random, STRESS_PLACES);

        if (!struck[who] && stress->stopped[who] == 0) {
            light(stress, who, SIGKILL);
        }
        struck[who] = true;
    }
    for (uint32_t who = 0; who < STRESS_PLACES; who++) {
        if (struck[who] && (stress->stopped[who] != 0 || stress_draw(random, 3) == 0)) {
            if (stress->stopped[who] == 0) {
                await_dead(stress, who);
            }
            (void)kill(-stress->pids[who], SIGKILL); /* its children too; or it is stopped */
        }
        if (struck[who]) {
            await_end(stress, who, true);
            stress->kills++;
            start(stress, who);
        }
    }
}

/* The reaper or the daemon dies, stops or leaves. */
static void strike_other(struct stress *stress)
{
    uint32_t who = stress_draw(&stress->random, 2) == 0 ? REAPER : DAEMON;
    uint64_t what = stress_draw(&stress->random, 10);

    if (what < 3) {
        stop_one(stress, who);
        return;
    }
    if (what < 9) {
        kill_one(stress, who, false);
    } else {
        leave_one(stress, who);
    }
    start(stress, who);
}

static void step(struct stress *stress)
{
    uint64_t *random = &stress->random;
    uint64_t what = stress_draw(random, 100);
    uint32_t who = (uint32_t)stress_draw(random, STRESS_PLACES);

    for (uint32_t i = 0; i < 3; i++) {
        grant(stress, (uint32_t)stress_draw(random, STRESS_PLACES), 4 + (uint32_t)stress_draw(random, 40));
    }
    (void)hf_clock_inject(&stress->seg, hf_clock_now_ms(&stress->seg) + stress_draw(random, 6000));
    if (stress_draw(random, 40) == 0) {
        (void)hf_clock_inject(&stress->seg, hf_clock_now_ms(&stress->seg) + stress_draw(random, 40000));
    }
    if (stress_draw(random, 8) == 0) {
        pause_us(stress_draw(random, 1000));
    }
    if (what < 80) {
        strike_workers(stress);
    } else if (what < 91) {
        stop_one(stress, who);
    } else if (what < 94) {
        leave_one(stress, who);
        start(stress, who);
    } else {
        strike_other(stress);
    }
    continue_due(stress, false);
}

static void end_round(struct stress *stress)
{
    int status = 0;

    continue_due(stress, true);
    for (uint32_t i = 0; i <= REAPER; i++) {
        if (stress_draw(&stress->random, 2) == 0) {
            leave_one(stress, i);
        } else {
            kill_one(stress, i, i < STRESS_PLACES);
        }
    }
    kill_one(stress, DAEMON, false);
    start(stress, DAEMON);
    pid_t checker = fork_or_die();

    if (checker == 0) {
        stress_check(stress->folder, stress->board);
    }
    (void)waitpid(checker, &status, 0);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3)) {
        stress_wrong(stress->board, "the checker ended with status 0x%x", (unsigned)status);
    }
    memset(stress->board->used, 0, sizeof(stress->board->used));
}

static void play(struct stress *stress, uint64_t kills)
{
    uint64_t round = 0;

    while (stress->kills < kills && stress->board->violations == 0) {
        uint64_t until = kills < stress->kills + ROUND_KILLS ? kills : stress->kills + ROUND_KILLS;

        for (uint32_t i = 0; i < STRESS_PLACES; i++) {
            stress->lives[i]++; /* nobody knows an id of the round before */
        }
        for (uint32_t i = 0; i <= REAPER; i++) {
            start(stress, i);
        }
        while (stress->kills < until && stress->board->violations == 0) {
            step(stress);
        }
        end_round(stress);
        round++;
        if (stress->board->violations != 0) {
            (void)fprintf(stderr, "in round %" PRIu64 " (of %u kills each)\n", round, ROUND_KILLS);
        }
    }
}

/* ---- setting up -------------------------------------------------------------------------------------------------- */

static void make_folder(struct stress *stress, uint32_t config, uint64_t seed)
{
    struct hf_store_options options = {.durability = HF_STORE_OFF};
    struct hf_store_error error = {""};
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* commits without a disk */
    char path[256];
    char url[256];

    (void)snprintf(stress->folder, sizeof(stress->folder), "%s/holdfast-stress-XXXXXX", base);
    if (mkdtemp(stress->folder) == NULL) {
        perror("stress: mkdtemp");
        exit(1);
    }
    (void)snprintf(path, sizeof(path), "%s/policy.yaml", stress->folder);
    (void)snprintf(url, sizeof(url), "sqlite:%s/store.db", stress->folder);
    stress->board = stress_board_map(stress->folder, true);
    if (stress->board == NULL || !stress_policy_write(stress->config, path) ||
        hf_store_init(url, &options, &error) != HF_STORE_OK) {
        (void)fprintf(stderr, "stress: cannot make %s: %s %s\n", stress->folder, strerror(errno), error.text);
        exit(1);
    }
    stress->board->seed = seed;
    stress->board->config = config;
    stress->board->first_seq = 1;
}

static void remove_folder(const struct stress *stress)
{
    DIR *dir = opendir(stress->folder);
    const struct dirent *entry;
    char path[512];

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        (void)snprintf(path, sizeof(path), "%s/%s", stress->folder, entry->d_name);
        (void)unlink(path);
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    (void)rmdir(stress->folder);
}

static void await_segment(struct stress *stress)
{
    char path[256];
    struct hf_error err = {.text = ""};

    (void)snprintf(path, sizeof(path), "%s/segment", stress->folder);
    for (uint32_t i = 0; i < PATIENCE_MS; i++) {
        if (hf_segment_attach(path, &stress->seg, &err) == HF_OK) {
            if (hf_segment_state(&stress->seg) == HF_SEGMENT_READY) {
                return;
            }
            hf_segment_detach(&stress->seg);
        }
        pause_us(1000);
    }
    (void)fprintf(stderr, "stress: no segment after a minute: %s\n", err.text);
    exit(1);
}

static int run(struct stress *stress, uint64_t kills)
{
    int status = 0;

    start(stress, DAEMON);
    await_segment(stress);
    stress->sampler = fork_or_die();
    if (stress->sampler == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        stress_sample(stress->folder, stress->board);
    }
    play(stress, kills);
    hf_store_rel_u32(&stress->board->end, 1); /* plain: a flag of the test */
    (void)waitpid(stress->sampler, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        stress_wrong(stress->board, "the reader ended with status 0x%x", (unsigned)status);
    }
    leave_one(stress, DAEMON);
    hf_segment_detach(&stress->seg);
    return stress->board->violations == 0 ? 0 : 1;
}

static void report(const struct stress *stress, uint64_t kills)
{
    const struct stress_board *board = stress->board;

    static const char *const names[STRESS_OPS] = {
        [STRESS_RESERVE] = "reserve", [STRESS_EXTEND] = "extend",   [STRESS_DISPATCH] = "dispatch",
        [STRESS_SETTLE] = "settle",   [STRESS_RELEASE] = "release", [STRESS_CREDIT] = "credit",
        [STRESS_REAP] = "reap"};

    for (uint32_t i = STRESS_RESERVE; i <= STRESS_REAP; i++) {
        (void)printf("%-8s answered %8" PRIu64 ", cut off by a kill %6" PRIu64 "\n", names[i],
                     board->answered[i], board->unanswered[i]);
    }
    (void)printf("reserves refused by a bucket %" PRIu64 ", cut off and yet made %" PRIu64
                 "; ids compared with the store %" PRIu64 "; whole views of a tenant %" PRIu64
                 ", samples %" PRIu64 "; orderly exits %" PRIu64 "\n",
                 board->refused, board->unanswered_happened, board->checked, board->views, board->samples,
                 stress->exits);
    (void)printf("totals: kills %" PRIu64 ", stops %" PRIu64 ", operations %" PRIu64
                 ", histories 0, violations %" PRIu32 "\n",
                 stress->kills, stress->stops, board->operations, board->violations);
    if (board->violations != 0) {
        (void)fprintf(stderr,
                      "stress: %" PRIu32
                      " violations; kept in %s. The same decisions again (the kernel schedules them "
                      "anew, so repeat it): HOLDFAST_SEED=%" PRIu64 " stress %s --kills %" PRIu64 "\n",
                      board->violations, stress->folder, board->seed, stress->config->name, kills);
    }
}

/* The rest of a life in a new program. */
static int worker_again(char **args)
{
    struct stress_place place = {.folder = args[0],
                                 .place = (uint32_t)strtoul(args[1], NULL, 10),
                                 .life = (uint32_t)strtoul(args[2], NULL, 10),
                                 .random = strtoull(args[3], NULL, 10),
                                 .n = (uint32_t)strtoul(args[4], NULL, 10),
                                 .children = (uint32_t)strtoul(args[5], NULL, 10)};

    place.board = stress_board_map(place.folder, false);
    if (place.board == NULL || place.place >= STRESS_PLACES) {
        return 3;
    }
    stress_work(&place);
}

int main(int argc, char **argv)
{
    struct stress stress = {.lives = {0}};
    const char *seed_text = getenv("HOLDFAST_SEED");
    const char *long_text = getenv("HOLDFAST_LONG");
    uint64_t seed = seed_text != NULL && seed_text[0] != '\0' ? strtoull(seed_text, NULL, 10)
                                                              : hf_clock_mono_ns() % 1000000000U;
    uint64_t kills = long_text != NULL && strcmp(long_text, "1") == 0 ? KILLS_LONG : KILLS_QUICK;
    uint64_t exec = 1;
    uint32_t config = 0;

    if (argc == 8 && strcmp(argv[1], "--worker") == 0) {
        return worker_again(&argv[2]);
    }
    while (argc > 1 && (stress.config = stress_config(config)) != NULL &&
           strcmp(stress.config->name, argv[1]) != 0) {
        config++;
    }
    for (int i = 2; i + 1 < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 10);

        kills = strcmp(argv[i], "--kills") == 0 ? value : kills;
        seed = strcmp(argv[i], "--seed") == 0 ? value : seed;
        exec = strcmp(argv[i], "--exec") == 0 ? value : exec;
    }
    if (stress.config == NULL) {
        (void)fprintf(
            stderr,
            "usage: stress small_hot|small_many|large_hot|large_many [--kills N] [--seed N] [--exec 0]\n");
        return 2;
    }
    (void)printf("%s: seed %" PRIu64 ", %" PRIu64 " kills; again with HOLDFAST_SEED=%" PRIu64
                 " stress %s --kills %" PRIu64 "\n",
                 stress.config->name, seed, kills, seed, stress.config->name, kills);
    (void)fflush(stdout);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    stress.random = stress_mix(seed, 99);
    make_folder(&stress, config, seed);
    stress.board->no_exec = exec == 0;
    int result = run(&stress, kills);

    report(&stress, kills);
    if (result == 0) {
        remove_folder(&stress);
    }
    return result;
}
