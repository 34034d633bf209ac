#include "shm/clock.h"
#include "tools/holdfast/command.h"
#include "tools/holdfast/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define READY_TRIES_MAX   12000 /* x 10 ms */
#define DAEMON_AWAY_MS    200   /* how long a killed daemon stays away */
#define STOP_TRIES_MAX    6000  /* x 10 ms */
#define WORKER_STARTS_MAX 1000000U

static void sleep_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&time, NULL);
}

static uint64_t next_random(struct hf_replay_run *run)
{
    run->random ^= run->random << 13;
    run->random ^= run->random >> 7;
    run->random ^= run->random << 17;
    return run->random;
}

/* ---- the daemon --------------------------------------------------------------------------------------------- */

static bool spawn_daemon(struct hf_replay_run *run)
{
    char slots[16];
    (void)snprintf(slots, sizeof slots, "%" PRIu32, run->options.slots);
    pid_t pid = fork();
    if (pid == 0) {
        int log = -1;
        if (run->dir[0] != '\0') {
            char path[320];
            (void)snprintf(path, sizeof path, "%s/holdfastd.log", run->dir);
            log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        }
        if (log >= 0) {
            (void)dup2(log, STDERR_FILENO);
        }
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void)execl(run->options.daemon, "holdfastd", "--segment", run->segment, "--policy",
                    run->options.policy, "--store", run->store, "--slots", slots, (char *)NULL);
        (void)fprintf(stderr, "holdfast replay: %s cannot be started: %s\n", run->options.daemon,
                      strerror(errno));
        _exit(127);
    }
    run->daemon = pid;
    return pid > 0;
}

static bool segment_open(const struct hf_replay_run *run)
{
    struct holdfast_segment *segment;
    struct holdfast *handle;
    bool ready = false;
    if (holdfast_open(run->segment, &segment, NULL, 0) != HOLDFAST_OK) {
        return false;
    }
    if (holdfast_join(segment, &handle) == HOLDFAST_OK) {
        ready = holdfast_flush(handle, 1000) == HOLDFAST_OK;
        holdfast_leave(handle);
    }
    holdfast_close(segment);
    return ready;
}

/* The log goes with the run's folder, so what it says is printed while it is there. */
static void show_log(const struct hf_replay_run *run)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/holdfastd.log", run->dir);
    FILE *log = run->dir[0] != '\0' ? fopen(path, "re") : NULL;
    for (int c; log != NULL && (c = getc(log)) != EOF;) {
        (void)putc(c, stderr);
    }
    if (log != NULL) {
        (void)fclose(log);
    }
}

int hf_replay_start_daemon(struct hf_replay_run *run)
{
    int status;
    if (!spawn_daemon(run)) {
        return hf_command_fail("replay", HF_EXIT_USAGE, "no process for the daemon: %s", strerror(errno));
    }
    for (int try = 0; try < READY_TRIES_MAX; try++) {
        if (segment_open(run)) {
            return 0;
        }
        if (waitpid(run->daemon, &status, WNOHANG) == run->daemon) {
            run->daemon = 0;
            show_log(run);
            return hf_command_fail("replay", HF_EXIT_USAGE,
                                   "the daemon ended before its segment was open; what it said stands above");
        }
        sleep_ms(10);
    }
    show_log(run);
    return hf_command_fail(
        "replay", HF_EXIT_USAGE,
        "the daemon did not open its segment within two minutes; what it said stands above");
}

bool hf_replay_stop_daemon(struct hf_replay_run *run)
{
    int status = 0;
    if (run->daemon <= 0) {
        return true;
    }
    (void)kill(run->daemon, SIGTERM);
    for (int try = 0; try < STOP_TRIES_MAX; try++) {
        if (waitpid(run->daemon, &status, WNOHANG) == run->daemon) {
            run->daemon = 0;
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
        sleep_ms(10);
    }
    (void)kill(run->daemon, SIGKILL);
    (void)waitpid(run->daemon, &status, 0);
    run->daemon = 0;
    return false;
}

/* ---- supervision -------------------------------------------------------------------------------------------- */

struct supervisor {
    struct hf_replay_run *run;
    uint32_t alive_cnt;
    uint32_t starts_cnt;
    uint64_t kill_at_ms, kill_daemon_at_ms, start_daemon_at_ms, progress_at_ms;
};

static bool spawn_worker(struct supervisor *all, uint32_t place)
{
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        hf_replay_worker(all->run, place);
    }
    if (pid < 0) {
        return false;
    }
    all->run->workers[place] = pid;
    all->alive_cnt++;
    all->starts_cnt++;
    return true;
}

static bool rows_left(const struct hf_replay_run *run)
{
    return hf_load_rlx_u64(&run->shared->next_row) < run->plan.rows_cnt; /* relaxed: a gauge */
}

/* One ended child. 0, or an exit status. */
static int ended(struct supervisor *all, pid_t pid, int status)
{
    struct hf_replay_run *run = all->run;
    if (pid == run->daemon) {
        run->daemon = 0;
        if (all->start_daemon_at_ms != 0) {
            return 0;
        }
        return hf_command_fail("replay", HF_EXIT_FAILED,
                               "the daemon ended by itself (status %d); its log: %s", status, run->dir);
    }
    for (uint32_t place = 0; place < run->options.workers; place++) {
        if (run->workers[place] != pid) {
            continue;
        }
        run->workers[place] = 0;
        all->alive_cnt--;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            return 0;
        }
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
            return hf_command_fail("replay", HF_EXIT_FAILED, "worker %" PRIu32 " died of signal %d", place,
                                   WTERMSIG(status));
        }
        if (WIFEXITED(status) && !rows_left(run)) {
            return hf_command_fail("replay", HF_EXIT_FAILED, "worker %" PRIu32 " could not open the segment",
                                   place);
        }
        if (rows_left(run) && all->starts_cnt < WORKER_STARTS_MAX && !spawn_worker(all, place)) {
            return hf_command_fail("replay", HF_EXIT_FAILED, "no process for a worker: %s", strerror(errno));
        }
    }
    return 0;
}

static void kill_some(struct supervisor *all, uint64_t now_ms)
{
    struct hf_replay_run *run = all->run;
    if (run->options.kill_every_ms != 0 && now_ms >= all->kill_at_ms) {
        uint32_t place = (uint32_t)(next_random(run) % run->options.workers);
        all->kill_at_ms = now_ms + run->options.kill_every_ms;
        if (run->workers[place] > 0 && kill(run->workers[place], SIGKILL) == 0) {
            run->workers_killed++;
        }
    }
    if (run->options.kill_daemon_every_ms != 0 && run->daemon > 0 && all->start_daemon_at_ms == 0 &&
        now_ms >= all->kill_daemon_at_ms) {
        all->start_daemon_at_ms = now_ms + DAEMON_AWAY_MS;
        (void)kill(run->daemon, SIGKILL);
        run->daemons_killed++;
    }
    if (all->start_daemon_at_ms != 0 && run->daemon == 0 && now_ms >= all->start_daemon_at_ms) {
        all->start_daemon_at_ms = 0;
        all->kill_daemon_at_ms = now_ms + run->options.kill_daemon_every_ms;
        (void)spawn_daemon(run);
    }
}

static void end_workers(struct hf_replay_run *run)
{
    for (uint32_t place = 0; place < run->options.workers; place++) {
        if (run->workers[place] > 0) {
            (void)kill(run->workers[place], SIGKILL);
            (void)waitpid(run->workers[place], NULL, 0);
            run->workers[place] = 0;
        }
    }
}

static int supervise_once(struct supervisor *all)
{
    int status;
    pid_t pid;
    uint64_t now_ms = hf_clock_mono_fine_ms();
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        int rc = ended(all, pid, status);
        if (rc != 0) {
            return rc;
        }
    }
    kill_some(all, now_ms);
    if (now_ms >= all->progress_at_ms) {
        all->progress_at_ms = now_ms + 1000;
        hf_replay_progress(all->run, hf_clock_mono_ns() - all->run->shared->start_ns);
    }
    sleep_ms(5);
    return 0;
}

int hf_replay_supervise(struct hf_replay_run *run)
{
    uint64_t now_ms = hf_clock_mono_fine_ms();
    struct supervisor all = {.run = run,
                             .kill_at_ms = now_ms + run->options.kill_every_ms,
                             .kill_daemon_at_ms = now_ms + run->options.kill_daemon_every_ms,
                             .progress_at_ms = now_ms + 1000};
    for (uint32_t place = 0; place < run->options.workers; place++) {
        if (!spawn_worker(&all, place)) {
            end_workers(run);
            return hf_command_fail("replay", HF_EXIT_FAILED, "no process for a worker: %s", strerror(errno));
        }
    }
    int rc = 0;
    while (rc == 0 && (all.alive_cnt > 0 || all.start_daemon_at_ms != 0)) {
        rc = supervise_once(&all);
    }
    end_workers(run);
    return rc;
}
