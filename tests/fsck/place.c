#include "place.h"

#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char policy_text[] =
    "version: 1\n"
    "currency: EUR\n"
    "prices: {revision: '1', models: [{id: m, input_micros_per_mtok: 1000000, output_micros_per_mtok: 2000000,"
    " max_output_tokens: 100}]}\n"
    "defaults: {ttl_ms: 400}\n"
    "tenants:\n"
    "  - id: one\n"
    "    limits: [{window: minute, tokens: 900000000, invocations: 9000000}, {window: lifetime, cost_micros: "
    "9000000000000}]\n"
    "    teams:\n"
    "      - id: a\n"
    "        limits: [{window: month, cost_micros: 800000000000}, {window: day, tokens: 80000000000}]\n"
    "        capabilities: [{id: c, cap_micros: 100000, cap_tokens: 100000}]\n"
    "        keys: [{id: k, limits: [{window: hour, invocations: 90000000}]}]\n"
    "      - id: b\n"
    "        on_expiry: retain\n"
    "        limits: [{window: hour, cost_micros: 700000000000}]\n"
    "        capabilities: [{id: c, cap_micros: 100000, cap_tokens: 100000}]\n"
    "  - id: two\n"
    "    limits: [{window: month, cost_micros: 900000000000}]\n"
    "    teams:\n"
    "      - id: a\n"
    "        on_overage: fail\n"
    "        limits: [{window: month, cost_micros: 800000000000, invocations: 90000000}]\n"
    "        capabilities: [{id: c, cap_micros: 100000, cap_tokens: 100000}]\n"
    "        keys: [{id: k, limits: [{window: minute, tokens: 90000000}]}]\n"
    "  - id: three\n"
    "    teams:\n"
    "      - id: a\n"
    "        limits: [{window: day, tokens: 900000000000}]\n"
    "        capabilities: [{id: c, cap_tokens: 100000}]\n";

void die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fprintf(stderr, "\n");
    exit(1);
}

static void nap(unsigned us)
{
    struct timespec time = {us / 1000000U, (long)(us % 1000000U) * 1000L};

    (void)nanosleep(&time, NULL);
}

static pid_t begin(const struct place *place, const char *output, const char *const args[])
{
    pid_t pid = fork();

    if (pid < 0) {
        die("fork: %s", strerror(errno));
    }
    if (pid == 0) {
        int fd = open(output, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

        if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0) {
            _exit(99);
        }
        (void)execv(place->holdfast, (char *const *)args);
        _exit(98);
    }
    return pid;
}

static int end(pid_t pid)
{
    int status = 0;

    if (waitpid(pid, &status, 0) != pid) {
        die("waitpid: %s", strerror(errno));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int place_run(const struct place *place, const char *output, const char *const args[])
{
    return end(begin(place, output, args));
}

int place_run_killed(const struct place *place, const char *output, const char *const args[],
                     const struct hf_segment *seg, unsigned kill_after_us)
{
    pid_t pid = begin(place, output, args);
    siginfo_t gone = {.si_pid = 0};

    /* relaxed: it is killed sooner or later. */
    while (hf_load_rlx_u32(&seg->header->hdr_state) != HF_SEGMENT_REPAIR && gone.si_pid == 0) {
        nap(20);
        (void)waitid(P_PID, (id_t)pid, &gone, WEXITED | WNOHANG | WNOWAIT);
    }
    if (kill_after_us > 0) {
        nap(kill_after_us);
    }
    (void)kill(pid, SIGKILL);
    return end(pid);
}

void place_make(struct place *place, const char *holdfast, const char *holdfastd)
{
    const char *base = getenv("TMPDIR");

    *place = (struct place){.holdfast = holdfast, .holdfastd = holdfastd};
    (void)snprintf(place->folder, sizeof(place->folder), "%.60s/holdfast-fsck-XXXXXX",
                   base != NULL ? base : "/tmp");
    if (mkdtemp(place->folder) == NULL) {
        die("%s: %s", place->folder, strerror(errno));
    }
    (void)snprintf(place->policy, sizeof(place->policy), "%s/policy.yaml", place->folder);
    (void)snprintf(place->store, sizeof(place->store), "sqlite:%s/store.db", place->folder);
    (void)snprintf(place->segment, sizeof(place->segment), "%s/segment", place->folder);
    FILE *out = fopen(place->policy, "we");

    if (out == NULL || fputs(policy_text, out) < 0 || fclose(out) != 0) {
        die("%s: %s", place->policy, strerror(errno));
    }
    const char *const init[] = {"holdfast", "store", "init", place->store, NULL};
    char log[160];

    (void)snprintf(log, sizeof(log), "%s/log", place->folder);
    if (place_run(place, log, init) != 0) {
        die("cannot make the store: see %s", log);
    }
}

void place_remove(struct place *place)
{
    static const char *const names[] = {"policy.yaml", "store.db",     "store.db-wal", "store.db-shm",
                                        "segment",     "segment.lock", "log",          "daemon.log",
                                        "fsck.log",    "store.db-lock"};
    char path[200];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", place->folder, names[i]);
        (void)unlink(path);
    }
    if (rmdir(place->folder) != 0) {
        (void)fprintf(stderr, "%s stays: %s\n", place->folder, strerror(errno));
    }
}

static bool is_ready(const struct place *place)
{
    struct hf_segment seg;
    struct hf_error err;

    if (hf_segment_attach(place->segment, &seg, &err) != HF_OK) {
        return false;
    }
    uint64_t ref = hf_load_acq_u64(&seg.header->hdr_daemon);
    bool ready = hf_segment_state(&seg) == HF_SEGMENT_READY && ref != 0 &&
                 hf_load_rlx_u32(&seg.owners[hf_ref_index(ref)].own_pid) == (uint32_t)place->daemon;

    hf_segment_detach(&seg);
    return ready;
}

void place_spawn_daemon(struct place *place)
{
    char log[160];

    (void)snprintf(log, sizeof(log), "%s/daemon.log", place->folder);
    place->daemon = fork();
    if (place->daemon == 0) {
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

        if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0) {
            _exit(99);
        }
        (void)execl(place->holdfastd, "holdfastd", "--segment", place->segment, "--policy", place->policy,
                    "--store", place->store, "--slots", "16384", "--replay-horizon-ms", "1000",
                    "--late-horizon-ms", "3000", (char *)NULL);
        _exit(98);
    }
}

int place_end_of_daemon(struct place *place)
{
    int status = end(place->daemon);

    place->daemon = 0;
    return status;
}

void place_kill_daemon(struct place *place)
{
    (void)kill(place->daemon, SIGKILL);
    (void)waitpid(place->daemon, NULL, 0);
    place->daemon = 0;
}

void place_start_daemon(struct place *place)
{
    place_spawn_daemon(place);
    for (int i = 0; i < 3000; i++) {
        if (is_ready(place)) {
            return;
        }
        if (waitpid(place->daemon, NULL, WNOHANG) == place->daemon) {
            die("the daemon ended: see %s/daemon.log", place->folder);
        }
        nap(20000);
    }
    die("the daemon did not become ready: see %s/daemon.log", place->folder);
}

void place_stop_daemon(struct place *place)
{
    int status = 0;

    (void)kill(place->daemon, SIGTERM);
    if (waitpid(place->daemon, &status, 0) != place->daemon || !WIFEXITED(status) ||
        WEXITSTATUS(status) != 0) {
        die("the daemon ended with status %d: see %s/daemon.log", status, place->folder);
    }
    place->daemon = 0;
}
