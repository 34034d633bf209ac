/* life NAME runs one scenario, life --list names them, life alone runs all and lists at the end what could not be run. */
#include "life.h"

#include "persist/serve.h"
#include "tests/support/quota.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SKIPPED 77

extern char **environ;

/* ---- saying ------------------------------------------------------------------------------------------------------------ */

void life_require(bool so, const char *what, const char *file, int line)
{
    if (!so) {
        (void)printf("%s:%d: not so: %s\n", file, line, what);
        (void)fflush(stdout);
        _exit(1);
    }
}

void life_says(const char *said, const char *text, const char *file, int line)
{
    if (strstr(said, text) == NULL) {
        (void)printf("%s:%d: '%s' is not in: %s\n", file, line, text, said);
        (void)fflush(stdout);
        _exit(1);
    }
}

void life_skip(const char *why)
{
    (void)printf("skipped: %s\n", why);
    (void)fflush(stdout);
    _exit(SKIPPED);
}

/* ---- the place ----------------------------------------------------------------------------------------------------------- */

void life_make(struct life *life)
{
    struct hf_store_options options = {.durability = HF_STORE_OFF};
    struct hf_store_error error = {""};

    (void)snprintf(life->folder, sizeof life->folder, "/tmp/holdfast-life-XXXXXX");
    LIFE_REQUIRE(mkdtemp(life->folder) != NULL);
    (void)snprintf(life->segment, sizeof life->segment, "%s/segment", life->folder);
    (void)snprintf(life->policy, sizeof life->policy, "%s/policy.yaml", life->folder);
    (void)snprintf(life->store, sizeof life->store, "sqlite:%s/store.db", life->folder);
    (void)snprintf(life->other, sizeof life->other, "sqlite:%s/other.db", life->folder);
    life->shared =
        mmap(NULL, sizeof *life->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    LIFE_REQUIRE(life->shared != MAP_FAILED);
    FILE *out = fopen(life->policy, "we");
    LIFE_REQUIRE(out != NULL && fputs(hf_test_policy(), out) >= 0 && fclose(out) == 0);
    if (hf_store_init(life->store, &options, &error) != HF_STORE_OK ||
        hf_store_init(life->other, &options, &error) != HF_STORE_OK) {
        (void)printf("%s\n", error.text);
        LIFE_FAIL("there are stores");
    }
}

void life_clean(struct life *life)
{
    char command[128];

    if (life->daemon > 0) {
        life_kill(life->daemon);
    }
    (void)snprintf(command, sizeof command, "rm -rf -- %s", life->folder);
    LIFE_REQUIRE(system(command) == 0); /* NOLINT(cert-env33-c): a folder of our own */
}

static uint32_t stopped;

static void stop(int signal_number)
{
    (void)signal_number;
    hf_store_rlx_u32(&stopped, 1); /* relaxed: a flag of this process alone */
}

static void say(void *ctx, enum hf_log_level level, const char *text)
{
    (void)ctx;
    if (level == HF_LOG_ERROR) {
        (void)printf("daemon: %s\n", text);
        (void)fflush(stdout);
    }
}

static struct hf_serve_options options_of(const struct life *life)
{
    return (struct hf_serve_options){.segment = life->segment,
                                     .policy_path = life->policy,
                                     .store_url = life->store,
                                     .store_name = "life",
                                     .slots = life->slots != 0 ? life->slots : 1024,
                                     .owners = life->owners != 0 ? life->owners : 32,
                                     .max_lag_ms = 3600000,
                                     .mode = 0660,
                                     .log = say};
}

struct refusal {
    int status;
    const char *says;
};

static int be_refused(struct life *life, void *arg)
{
    const struct refusal *refusal = arg;
    struct hf_serve_options options = options_of(life);
    struct hf_policy_report report = {0};
    struct hf_error err = {.text = ""};
    struct hf_serve *daemon = NULL;

    options.store_url = life->other;
    int status = (int)hf_serve_open(&options, &daemon, &report, &err);

    if (status != refusal->status) {
        (void)printf("%d instead of %d: %s\n", status, refusal->status, err.text);
        return 1;
    }
    LIFE_SAYS(err.text, refusal->says);
    return 0;
}

void life_refused(struct life *life, int status, const char *says)
{
    struct refusal refusal = {status, says};

    LIFE_REQUIRE(life_wait(life_start(life, be_refused, &refusal)) == 0);
}

int life_daemon(struct life *life, void *arg)
{
    struct hf_serve_options options = options_of(life);
    struct hf_policy_report report = {0};
    struct hf_error err = {.text = ""};
    struct hf_serve *daemon = NULL;
    uint32_t wait_ms = 0;

    (void)arg;
    (void)signal(SIGTERM, stop);
    if (hf_serve_open(&options, &daemon, &report, &err) != HF_SERVE_OK) {
        (void)printf("daemon: %s\n", err.text);
        (void)fflush(stdout);
        return 1;
    }
    life_tell(&life->shared->words[15], life->shared->words[15] + 1U);
    while (hf_load_rlx_u32(&stopped) == 0) { /* relaxed: as above */
        enum hf_drain_result result = hf_serve_step(daemon, &wait_ms);

        if (result == HF_DRAIN_SUPERSEDED || result == HF_DRAIN_FAILED) {
            life_sleep_ms(20);
        }
        hf_serve_wait(daemon, wait_ms);
    }
    hf_serve_close(daemon);
    return 0;
}

void life_serve(struct life *life)
{
    uint64_t before = life->shared->words[15];

    life->daemon = life_start(life, life_daemon, NULL);
    life_await(&life->shared->words[15], before + 1U);
}

void life_unserve(struct life *life, int signal_number)
{
    LIFE_REQUIRE(kill(life->daemon, signal_number) == 0);
    int status = life_wait(life->daemon);

    LIFE_REQUIRE(signal_number != SIGTERM || status == 0);
    life->daemon = 0;
}

/* ---- processes ------------------------------------------------------------------------------------------------------------ */

pid_t life_start(struct life *life, int (*f)(struct life *, void *), void *arg)
{
    pid_t parent = getpid();

    (void)fflush(stdout);
    pid_t pid = fork();
    LIFE_REQUIRE(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent && getppid() != 0) {
            _exit(1);
        }
        int status = f(life, arg);

        (void)fflush(stdout);
        _exit(status);
    }
    return pid;
}

int life_wait(pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) != pid) {
        LIFE_REQUIRE(errno == EINTR);
    }
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void life_kill(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)life_wait(pid);
}

void life_sleep_ms(uint32_t ms)
{
    const struct timespec ts = {.tv_sec = ms / 1000U, .tv_nsec = (long)(ms % 1000U) * 1000000L};

    (void)nanosleep(&ts, NULL);
}

void life_await(const uint64_t *word, uint64_t value)
{
    for (uint32_t i = 0; hf_load_acq_u64(word) < value; i++) {
        LIFE_REQUIRE(i < 60000);
        life_sleep_ms(1);
    }
}

void life_tell(uint64_t *word, uint64_t value)
{
    hf_store_rel_u64(word, value);
}

/* ---- a worker's steps ------------------------------------------------------------------------------------------------------- */

void life_join(const struct life *life, struct life_worker *worker)
{
    char error[512] = "";
    int rc = holdfast_open(life->segment, &worker->segment, error, sizeof error);

    if (rc != HOLDFAST_OK) {
        (void)printf("%s\n", error);
    }
    LIFE_REQUIRE(rc == HOLDFAST_OK);
    LIFE_REQUIRE(holdfast_join(worker->segment, &worker->handle) == HOLDFAST_OK);
}

void life_leave(struct life_worker *worker)
{
    holdfast_leave(worker->handle);
    holdfast_close(worker->segment);
    *worker = (struct life_worker){NULL, NULL};
}

int life_reserve(const struct life_worker *worker, const char *id, const char *team, uint64_t cost,
                 uint64_t ttl_ms, struct holdfast_answer *answer)
{
    struct holdfast_request request;
    struct holdfast_answer own;

    holdfast_request_init(&request);
    request.id = id;
    request.tenant = "t";
    request.team = team;
    request.capability = "c";
    request.tokens = 1;
    request.cost_micros = cost;
    request.ttl_ms = ttl_ms;
    return holdfast_reserve(worker->handle, &request, answer != NULL ? answer : &own);
}

int life_settle(const struct life_worker *worker, const char *id, uint64_t cost,
                struct holdfast_closing *closing)
{
    struct holdfast_usage usage;
    struct holdfast_closing own;

    holdfast_usage_init(&usage, 1, 0);
    usage.cost_micros = cost;
    return holdfast_settle(worker->handle, id, 0, &usage, HOLDFAST_SUCCESS, NULL,
                           closing != NULL ? closing : &own);
}

static struct holdfast_limit month_of(const struct life_worker *worker, const char *team)
{
    struct holdfast_limit limits[15];
    int reason = 0;
    int cnt = holdfast_limits(worker->handle, "t", team, NULL, limits, 15, &reason);

    for (int i = 0; i < cnt; i++) {
        if (limits[i].window == HOLDFAST_WINDOW_MONTH && limits[i].dimension == HOLDFAST_COST_MICROS) {
            return limits[i];
        }
    }
    LIFE_FAIL("the team has such a limit");
    return (struct holdfast_limit){0};
}

uint64_t life_used(const struct life_worker *worker, const char *team)
{
    struct holdfast_limit limit = month_of(worker, team);

    return limit.held + limit.settled;
}

uint64_t life_held(const struct life_worker *worker, const char *team)
{
    LIFE_REQUIRE(holdfast_flush(worker->handle, 60000) == HOLDFAST_OK);
    return month_of(worker, team).held;
}

/* ---- commands ---------------------------------------------------------------------------------------------------------------- */

static void read_all(int from, char *said, size_t said_bytes)
{
    size_t used = 0;
    ssize_t cnt;
    char rest[256];

    while ((cnt = used + 1 < said_bytes ? read(from, said + used, said_bytes - 1 - used)
                                        : read(from, rest, sizeof rest)) > 0) {
        used += used + 1 < said_bytes ? (size_t)cnt : 0;
    }
    said[used] = '\0';
    (void)close(from);
}

int life_command(const char *const argv[], char *said, size_t said_bytes)
{
    bool is_daemon = strcmp(argv[0], "holdfastd") == 0;
    const char *path = getenv(is_daemon ? "HOLDFASTD" : "HOLDFAST");
    posix_spawn_file_actions_t actions;
    int ends[2];
    pid_t pid = 0;

    if (path == NULL) {
        life_skip("HOLDFAST and HOLDFASTD do not name the programs (ctest sets them)");
    }
    LIFE_REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    LIFE_REQUIRE(posix_spawn_file_actions_init(&actions) == 0);
    LIFE_REQUIRE(posix_spawn_file_actions_adddup2(&actions, ends[1], 1) == 0);
    LIFE_REQUIRE(posix_spawn_file_actions_adddup2(&actions, ends[1], 2) == 0);
    LIFE_REQUIRE(posix_spawn(&pid, path, &actions, NULL, (char *const *)(uintptr_t)argv, environ) == 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    read_all(ends[0], said, said_bytes);
    return life_wait(pid);
}

/* ---- running ------------------------------------------------------------------------------------------------------------------ */

static const struct life_scenario *const groups[] = {life_room, life_files, life_processes, life_forks,
                                                     life_reload};
#define GROUPS (sizeof(groups) / sizeof(groups[0]))

static int run_in_child(struct life *life, void *arg)
{
    const struct life_scenario *scenario = arg;

    life_make(life);
    scenario->run(life);
    life_clean(life);
    return 0;
}

/* In a child of its own: a scenario that fails takes its processes along. */
static int run(const struct life_scenario *scenario)
{
    struct life life = {.daemon = 0};

    (void)printf("%s: %s\n", scenario->name, scenario->says);
    int status = life_wait(life_start(&life, run_in_child, (void *)(uintptr_t)scenario));
    (void)printf("%s: %s\n", scenario->name, status == 0 ? "ok" : status == SKIPPED ? "skipped" : "FAILED");
    return status;
}

static int run_all(void)
{
    const char *skipped[64];
    size_t skipped_cnt = 0, run_cnt = 0, failed_cnt = 0;

    for (size_t g = 0; g < GROUPS; g++) {
        for (const struct life_scenario *s = groups[g]; s->name != NULL; s++) {
            int status = run(s);

            run_cnt++;
            failed_cnt += status != 0 && status != SKIPPED;
            if (status == SKIPPED && skipped_cnt < 64) {
                skipped[skipped_cnt++] = s->name;
            }
        }
    }
    (void)printf("totals: %zu scenarios, %zu failed, %zu skipped%s", run_cnt, failed_cnt, skipped_cnt,
                 skipped_cnt > 0 ? ":" : "\n");
    for (size_t i = 0; i < skipped_cnt; i++) {
        (void)printf(" %s%s", skipped[i], i + 1 == skipped_cnt ? "\n" : ",");
    }
    return failed_cnt > 0;
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        return run_all();
    }
    for (size_t g = 0; g < GROUPS; g++) {
        for (const struct life_scenario *s = groups[g]; s->name != NULL; s++) {
            if (strcmp(argv[1], "--list") == 0) {
                (void)printf("%s\n", s->name);
            } else if (strcmp(argv[1], s->name) == 0) {
                int status = run(s);

                return status < 0 ? 1 : status;
            }
        }
    }
    return strcmp(argv[1], "--list") == 0 ? 0 : 2;
}
