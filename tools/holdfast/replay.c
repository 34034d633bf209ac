#include "tools/holdfast/replay.h"

#include "shm/clock.h"
#include "shm/segment.h"
#include "tools/holdfast/command.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "Usage: holdfast replay TRACE.csv --policy FILE [options]\n"
    "\n"
    "Drives real worker processes from a trace of real traffic through a segment with its\n"
    "daemon, and then accounts for every row: buckets against slots, segment against store,\n"
    "what workers wrote down against receipts. The mismatch count must be 0.\n"
    "\n"
    "Formats, told apart by the header line: the Azure LLM inference trace\n"
    "(TIMESTAMP,ContextTokens,GeneratedTokens) and BurstGPT (Timestamp,Model,Request tokens,\n"
    "Response tokens,Total tokens,Log Type; a response of 0 tokens is a failed call, which is\n"
    "settled with outcome failure).\n"
    "\n"
    "The rule: row i goes to the path number hash(seed, i) of all combinations of tenant, team,\n"
    "key or none, and capability of the policy, and to the model that the row names, else to\n"
    "model number hash(seed, i). max_output_tokens is the model's longest output, lowered to the\n"
    "largest that fits the capability's caps. Where the team or the tenant degrades, the economy\n"
    "model is the other one that allows this output and can cost least. A worker keeps up to 16\n"
    "calls in flight and settles the oldest with the row's tokens; usage is the row's.\n"
    "\n"
    "  --policy FILE            policy (required)\n"
    "  --store URL              sqlite:PATH or a libpq URL; default: a temporary SQLite file.\n"
    "                           It is initialised when it has no schema yet.\n"
    "  --segment NAME           an existing segment with its daemon, instead of an own one\n"
    "  --workers N              worker processes, 1 to 256 (4)\n"
    "  --speed X | max          1 is the trace's own speed (default), 0.5 half, max as fast as it goes\n"
    "  --ttl-ms N               time to live of each hold, instead of the policy's\n"
    "  --kill-every SECONDS     kill a random worker with SIGKILL and start another; may be 0.2\n"
    "  --kill-daemon-every SECONDS   likewise the daemon\n"
    "  --seed N                 of the rule and of the kills (1)\n"
    "  --slots N                known reservations of an own segment (65536)\n"
    "  --daemon PATH            the holdfastd to start (beside this command or in ../sbin)\n"
    "  --keep                   leave segment, store and log of an own run, and say where\n"
    "  --help                   this text\n"
    "\n"
    "Exit status: 0 mismatch 0, 1 a mismatch or a failure, 2 it could not start.\n";

enum option_id {
    OPTION_POLICY = 256,
    OPTION_STORE,
    OPTION_SEGMENT,
    OPTION_WORKERS,
    OPTION_SPEED,
    OPTION_TTL,
    OPTION_KILL,
    OPTION_KILL_DAEMON,
    OPTION_SEED,
    OPTION_SLOTS,
    OPTION_DAEMON,
    OPTION_KEEP
};

/* ---- numbers ------------------------------------------------------------------------------------------------ */

static bool read_number(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number < least || number > most) {
        return false;
    }
    *value = number;
    return true;
}

/* A decimal with up to three places, in thousandths. */
static bool read_permille(const char *text, uint64_t *value)
{
    uint64_t whole = 0;
    uint64_t part = 0;
    int digits = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && whole < 1000000000; at++) {
        whole = whole * 10 + (uint64_t)(*at - '0');
    }
    if (at == text) {
        return false;
    }
    if (*at == '.') {
        for (at++; *at >= '0' && *at <= '9' && digits < 3; at++, digits++) {
            part = part * 10 + (uint64_t)(*at - '0');
        }
    }
    for (; digits < 3; digits++) {
        part *= 10;
    }
    *value = whole * 1000 + part;
    return *at == '\0';
}

static bool read_speed(const char *text, uint64_t *permille)
{
    if (strcmp(text, "max") == 0) {
        *permille = 0;
        return true;
    }
    return read_permille(text, permille) && *permille != 0;
}

/* ---- arguments ---------------------------------------------------------------------------------------------- */

static int take_option(struct hf_replay_options *options, int option, const char *text)
{
    uint64_t number = 0;
    bool right = true;
    switch (option) {
    case OPTION_POLICY:
        options->policy = text;
        break;
    case OPTION_STORE:
        options->store = text;
        break;
    case OPTION_SEGMENT:
        options->segment = text;
        break;
    case OPTION_DAEMON:
        options->daemon = text;
        break;
    case OPTION_KEEP:
        options->keep = true;
        break;
    case OPTION_WORKERS:
        right = read_number(text, 1, HF_REPLAY_WORKERS_MAX, &number);
        options->workers = (uint32_t)number;
        break;
    case OPTION_SPEED:
        right = read_speed(text, &options->speed_permille);
        break;
    case OPTION_TTL:
        right = read_number(text, 1, HOLDFAST_AMOUNT_MAX, &options->ttl_ms);
        break;
    case OPTION_KILL:
        right = read_permille(text, &options->kill_every_ms);
        break;
    case OPTION_KILL_DAEMON:
        right = read_permille(text, &options->kill_daemon_every_ms);
        break;
    case OPTION_SEED:
        right = read_number(text, 0, UINT64_MAX, &options->seed);
        break;
    case OPTION_SLOTS:
        right = read_number(text, 1, 16000000, &number);
        options->slots = (uint32_t)number;
        break;
    default:
        return hf_command_misuse("replay", "unknown option");
    }
    return right ? 0 : hf_command_misuse("replay", "'%s' is out of range or no number", text);
}

static int read_arguments(int argc, char **argv, struct hf_replay_options *options)
{
    static const struct option table[] = {{"policy", required_argument, NULL, OPTION_POLICY},
                                          {"store", required_argument, NULL, OPTION_STORE},
                                          {"segment", required_argument, NULL, OPTION_SEGMENT},
                                          {"workers", required_argument, NULL, OPTION_WORKERS},
                                          {"speed", required_argument, NULL, OPTION_SPEED},
                                          {"ttl-ms", required_argument, NULL, OPTION_TTL},
                                          {"kill-every", required_argument, NULL, OPTION_KILL},
                                          {"kill-daemon-every", required_argument, NULL, OPTION_KILL_DAEMON},
                                          {"seed", required_argument, NULL, OPTION_SEED},
                                          {"slots", required_argument, NULL, OPTION_SLOTS},
                                          {"daemon", required_argument, NULL, OPTION_DAEMON},
                                          {"keep", no_argument, NULL, OPTION_KEEP},
                                          HF_OPTION_HELP,
                                          HF_OPTION_END};
    int option;
    optind = 1;
    while ((option = hf_command_option("replay", argc, argv, table)) != -1) {
        if (option == 'h') {
            (void)fputs(help, stdout);
            return -1;
        }
        if (option == '?') {
            return HF_EXIT_USAGE;
        }
        int status = take_option(options, option, optarg);
        if (status != 0) {
            return status;
        }
    }
    if (optind != argc - 1 || options->policy == NULL) {
        return hf_command_misuse("replay", "one TRACE.csv and --policy are needed");
    }
    options->trace = argv[optind];
    if (options->segment != NULL && options->kill_daemon_every_ms != 0) {
        return hf_command_misuse("replay", "--kill-daemon-every needs an own daemon: leave out --segment");
    }
    return 0;
}

/* ---- an own run --------------------------------------------------------------------------------------------- */

static int own_store(struct hf_replay_run *run)
{
    struct hf_store_error error = {.text = ""};
    if (run->options.store == NULL) {
        (void)snprintf(run->store, sizeof run->store, "sqlite:%s/receipts.db", run->dir);
    } else if (snprintf(run->store, sizeof run->store, "%s", run->options.store) >= (int)sizeof run->store) {
        return hf_command_fail("replay", HF_EXIT_USAGE, "the store URL is longer than %zu bytes",
                               sizeof run->store - 1);
    }
    struct hf_store *store = NULL;
    enum hf_store_status status = hf_store_open(run->store, NULL, &store, &error);
    hf_store_close(store);
    if (status == HF_STORE_SCHEMA) {
        status = hf_store_init(run->store, NULL, &error);
    }
    if (status != HF_STORE_OK) {
        return hf_command_fail("replay", HF_EXIT_USAGE, "the store cannot be used: %s", error.text);
    }
    return 0;
}

/* In a build folder the daemon lies beside this command, installed in the sbin beside its bin. */
static bool find_daemon(char daemon[PATH_MAX])
{
    static const char *const places[] = {"holdfastd", "../sbin/holdfastd"};
    ssize_t len = readlink("/proc/self/exe", daemon, PATH_MAX - 32);
    char *slash = len > 0 ? memrchr(daemon, '/', (size_t)len) : NULL;
    for (size_t i = 0; slash != NULL && i < sizeof places / sizeof places[0]; i++) {
        (void)snprintf(slash + 1, (size_t)(daemon + PATH_MAX - slash - 1), "%s", places[i]);
        if (access(daemon, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

static int own_run(struct hf_replay_run *run, char daemon[PATH_MAX])
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(run->dir, sizeof run->dir, "%s/holdfast-replay-XXXXXX",
                   tmp != NULL && tmp[0] == '/' ? tmp : "/tmp");
    if (mkdtemp(run->dir) == NULL) {
        int status =
            hf_command_fail("replay", HF_EXIT_USAGE, "no temporary folder %s: %s", run->dir, strerror(errno));
        run->dir[0] = '\0';
        return status;
    }
    (void)snprintf(run->segment, sizeof run->segment, "replay-%d", (int)getpid());
    if (run->options.daemon == NULL) {
        if (!find_daemon(daemon)) {
            return hf_command_fail("replay", HF_EXIT_USAGE,
                                   "holdfastd is neither beside this command nor in ../sbin: give --daemon");
        }
        run->options.daemon = daemon;
    }
    int status = own_store(run);
    return status != 0 ? status : hf_replay_start_daemon(run);
}

/* A segment that is there: its store is the one it names, unless --store says otherwise. */
static int their_run(struct hf_replay_run *run)
{
    struct hf_segment seg;
    struct hf_error error;
    (void)snprintf(run->segment, sizeof run->segment, "%s", run->options.segment);
    if (hf_segment_attach(run->segment, &seg, &error) != HF_OK) {
        return hf_command_fail("replay", HF_EXIT_USAGE, "%s", error.text);
    }
    (void)snprintf(run->store, sizeof run->store, "%s",
                   run->options.store != NULL ? run->options.store : seg.header->hdr_store_url);
    hf_segment_detach(&seg);
    return 0;
}

static void clean_up(struct hf_replay_run *run)
{
    static const char *const files[] = {"receipts.db", "receipts.db-wal", "receipts.db-shm",
                                        "receipts.db-lock", "holdfastd.log"};
    char path[512];
    char lock[512 + 8];
    if (run->options.keep) {
        (void)fprintf(stderr, "holdfast replay: kept segment %s, store %s, log %s/holdfastd.log\n",
                      run->segment, run->store, run->dir);
        return;
    }
    (void)hf_segment_remove(run->segment, NULL);
    if (hf_segment_path(run->segment, path, NULL) == HF_OK) {
        (void)snprintf(lock, sizeof lock, "%s.lock", path); /* nobody else knows the name of this run */
        (void)unlink(lock);
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", run->dir, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(run->dir);
}

/* ---- the run ------------------------------------------------------------------------------------------------ */

static int drive(struct hf_replay_run *run)
{
    struct hf_replay_account account;
    size_t bytes = sizeof *run->shared + run->plan.rows_cnt;
    run->shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run->shared == MAP_FAILED) {
        return hf_command_fail("replay", HF_EXIT_USAGE, "no memory to share with the workers: %s",
                               strerror(errno));
    }
    run->shared->workers = run->options.workers;
    run->shared->start_ns = hf_clock_mono_ns();
    int status = hf_replay_supervise(run);
    uint64_t elapsed_ns = hf_clock_mono_ns() - run->shared->start_ns;
    if (status == 0) {
        status = hf_replay_account(run, &account);
    }
    if (status == 0) {
        hf_replay_table(run, &account, elapsed_ns);
        status = account.mismatches == 0 ? HF_EXIT_OK : HF_EXIT_FAILED;
    }
    (void)munmap(run->shared, bytes);
    return status;
}

static int load_policy(const char *path, struct hf_policy **policy)
{
    struct hf_policy_report report = {0};
    int rc = hf_policy_load(path, 0, policy, &report);
    if (rc != HF_POLICY_LOADED) {
        hf_policy_report_print(&report, stderr);
    }
    hf_policy_report_free(&report);
    return rc == HF_POLICY_LOADED
               ? 0
               : hf_command_fail("replay", HF_EXIT_USAGE, "the policy %s cannot be used", path);
}

int hf_cmd_replay(int argc, char **argv)
{
    static struct hf_replay_run run;
    static char daemon[PATH_MAX];
    struct hf_policy *policy = NULL;
    run.options = (struct hf_replay_options){
        .workers = 4, .speed_permille = 1000, .ttl_ms = HOLDFAST_UNKNOWN, .seed = 1, .slots = 65536};
    int status = read_arguments(argc, argv, &run.options);
    if (status != 0) {
        return status < 0 ? HF_EXIT_OK : status;
    }
    run.random = run.options.seed * UINT64_C(0x9e3779b97f4a7c15) | 1U;
    status = load_policy(run.options.policy, &policy);
    if (status == 0) {
        status = hf_replay_plan_make(run.options.trace, policy, run.options.seed, &run.plan);
    }
    if (status == 0) {
        status = run.options.segment != NULL ? their_run(&run) : own_run(&run, daemon);
    }
    if (status == 0) {
        status = drive(&run);
    }
    if (!hf_replay_stop_daemon(&run) && status == 0) {
        status = hf_command_fail("replay", HF_EXIT_FAILED,
                                 "the daemon left without draining everything; its log: %s", run.dir);
        run.options.keep = true;
    }
    if (run.dir[0] != '\0') {
        run.options.keep |= status == HF_EXIT_FAILED;
        clean_up(&run);
    }
    hf_replay_plan_free(&run.plan);
    hf_policy_free(policy);
    return status;
}
