/* holdfastd: the daemon of one segment. Foreground, one record a line on standard error, ends in order on SIGTERM and
 * SIGINT; killed at any time, the next one goes on where it was. */
#include "persist/serve.h"

#include "core/window.h"
#include "tools/common/policy_check.h"

#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <inttypes.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define EXIT_LEFT  1 /* it ended, and receipts are still to be committed; or it cannot go on */
#define EXIT_USAGE 2 /* it could not start */

#define RETRY_MS_MIN 200U
#define RETRY_MS_MAX 5000U
#define LOCKED_MS    5000U  /* a server may need some time to see that a daemon was killed */
#define FLUSH_MS     20000U /* at the end, for the store to take what is left */

static const char help[] =
    "Usage: holdfastd --segment NAME --policy POLICY [OPTIONS]\n"
    "\n"
    "Serves one segment: commits receipts to the store, reaps, publishes the clock, frees\n"
    "slots. Makes the segment from the store when there is none. Runs in the foreground and\n"
    "logs one record a line on standard error; says 'ready' when workers may open it.\n"
    "\n"
    "  --segment NAME      name of the segment, or its path when it has a '/'\n"
    "  --policy POLICY     policy file\n"
    "  --store URL         sqlite:PATH, or what libpq takes (postgresql://...); without it a\n"
    "                      SQLite file under $XDG_STATE_HOME/holdfast, made when missing.\n"
    "                      Passwords belong into PGPASSFILE, not here\n"
    "  --store-name NAME   name of the segment in the store (the segment's name)\n"
    "  --slots N           reservations that can be known at once (65536)\n"
    "  --owners N          processes and threads that can join (256)\n"
    "  --max-lag-ms N      how far the store may fall behind before workers answer busy (30000)\n"
    "  --replay-horizon-ms N\n"
    "                      how long a closed reservation stays known (60000)\n"
    "  --late-horizon-ms N how long an expired one can be settled late (3600000)\n"
    "  --group NAME        group of the segment: its processes may use it\n"
    "  --mode MODE         mode of the segment in octal (0660)\n"
    "  --clock-ms T        for tests: an injected clock from T on (Unix ms); nothing is reaped\n"
    "                      but by the reap operation\n"
    "  --help, --version\n"
    "\n"
    "SIGTERM or SIGINT: commits what is there and ends with 0; with 1 when the store does not\n"
    "take it (it stays in the segment, the next daemon commits it). Exit status 2: it could\n"
    "not start, the reason is on standard error.\n";

struct daemon {
    struct hf_serve_options options;
    int signals; /* signalfd */
};

/* ---- records ---------------------------------------------------------------------------------------------------- */

static void say(void *ctx, enum hf_log_level level, const char *text)
{
    static const char *const words[] = {"info", "warning", "error"};
    struct timespec now = {0};
    struct tm utc = {0};
    char at[32];

    (void)ctx;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    (void)strftime(at, sizeof(at), "%Y-%m-%dT%H:%M:%S", &utc);
    (void)fprintf(stderr, "%s.%03ldZ %s %s\n", at, now.tv_nsec / 1000000L, words[level], text);
}

static void say_text(enum hf_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say_text(enum hf_log_level level, const char *format, ...)
{
    char text[1000];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    say(NULL, level, text);
}

/* ---- arguments -------------------------------------------------------------------------------------------------- */

static int misuse(const char *format, const char *what)
{
    (void)fprintf(stderr, "holdfastd: ");
    (void)fprintf(stderr, format, what);
    (void)fprintf(stderr, "; see holdfastd --help\n");
    return EXIT_USAGE;
}

/* A whole number from least to most. */
static bool read_number(const char *text, uint64_t least, uint64_t most, uint64_t *number)
{
    char *end = NULL;

    errno = 0;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *number >= least && *number <= most;
}

static int read_group(struct hf_serve_options *options, const char *text)
{
    const struct group *group = getgrnam(text);
    uint64_t number;

    options->has_group = true;
    if (group != NULL) {
        options->group = group->gr_gid;
        return 0;
    }
    if (read_number(text, 0, UINT32_MAX - 1, &number)) {
        options->group = (gid_t)number;
        return 0;
    }
    return misuse("there is no group %s on this host", text);
}

static int read_mode(struct hf_serve_options *options, const char *text)
{
    char *end = NULL;
    unsigned long mode = strtoul(text, &end, 8);

    if (*text < '0' || *text > '7' || *end != '\0' || (mode & ~0660UL) != 0 || (mode & 0600UL) != 0600UL) {
        return misuse("--mode must be 0600 or 0660 (or 0620, 0640), not %s", text);
    }
    options->mode = (mode_t)mode;
    return 0;
}

enum option_letter {
    OPT_SEGMENT = 256,
    OPT_POLICY,
    OPT_STORE,
    OPT_STORE_NAME,
    OPT_SLOTS,
    OPT_OWNERS,
    OPT_LAG,
    OPT_REPLAY,
    OPT_LATE,
    OPT_GROUP,
    OPT_MODE,
    OPT_CLOCK,
    OPT_HELP,
    OPT_VERSION
};

static const struct option long_options[] = {
    {"segment", required_argument, NULL, OPT_SEGMENT},
    {"policy", required_argument, NULL, OPT_POLICY},
    {"store", required_argument, NULL, OPT_STORE},
    {"store-name", required_argument, NULL, OPT_STORE_NAME},
    {"slots", required_argument, NULL, OPT_SLOTS},
    {"owners", required_argument, NULL, OPT_OWNERS},
    {"max-lag-ms", required_argument, NULL, OPT_LAG},
    {"replay-horizon-ms", required_argument, NULL, OPT_REPLAY},
    {"late-horizon-ms", required_argument, NULL, OPT_LATE},
    {"group", required_argument, NULL, OPT_GROUP},
    {"mode", required_argument, NULL, OPT_MODE},
    {"clock-ms", required_argument, NULL, OPT_CLOCK},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static const char *name_of(int letter)
{
    const struct option *option = long_options;

    while (option->name != NULL && option->val != letter) {
        option++;
    }
    return option->name == NULL ? "?" : option->name;
}

/* Options that are numbers. 0, or the exit status of a misuse. */
static int read_numeric(struct hf_serve_options *options, int letter, const char *text)
{
    uint64_t number = 0;
    uint64_t most = letter == OPT_SLOTS ? HF_SHM_SLOTS_MAX : letter == OPT_OWNERS ? 65535U : HF_CLOCK_MS_MAX;
    uint64_t least = letter == OPT_CLOCK ? 0 : letter == OPT_SLOTS ? HF_SHM_CHUNK_SLOTS : 1;

    if (!read_number(text, least, most, &number)) {
        (void)fprintf(stderr,
                      "holdfastd: --%s: '%s' must be a whole number from %" PRIu64 " to %" PRIu64 "\n",
                      name_of(letter), text, least, most);
        return EXIT_USAGE;
    }
    switch (letter) {
    case OPT_SLOTS:
        options->slots = (uint32_t)number;
        break;
    case OPT_OWNERS:
        options->owners = (uint32_t)number;
        break;
    case OPT_LAG:
        options->max_lag_ms = number;
        break;
    case OPT_REPLAY:
        options->replay_horizon_ms = number;
        break;
    case OPT_LATE:
        options->late_horizon_ms = number;
        break;
    default:
        options->injected = true;
        options->injected_ms = number;
        break;
    }
    return 0;
}

/* One option. -1: goes on; else the exit status. */
static int read_option(struct hf_serve_options *options, int letter)
{
    int wrong = 0;

    switch (letter) {
    case OPT_SEGMENT:
        options->segment = optarg;
        break;
    case OPT_POLICY:
        options->policy_path = optarg;
        break;
    case OPT_STORE:
        options->store_url = optarg;
        break;
    case OPT_STORE_NAME:
        options->store_name = optarg;
        break;
    case OPT_GROUP:
        wrong = read_group(options, optarg);
        break;
    case OPT_MODE:
        wrong = read_mode(options, optarg);
        break;
    case OPT_HELP:
        (void)fputs(help, stdout);
        return 0;
    case OPT_VERSION:
        (void)printf("holdfastd %s\n", HF_VERSION);
        return 0;
    case '?': /* getopt_long has said which */
        (void)fputs("See holdfastd --help.\n", stderr);
        return EXIT_USAGE;
    default:
        wrong = read_numeric(options, letter, optarg);
        break;
    }
    return wrong == 0 ? -1 : wrong;
}

static int read_arguments(int argc, char **argv, struct hf_serve_options *options)
{
    int letter;

    while ((letter = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
        int done = read_option(options, letter);

        if (done >= 0) {
            return done;
        }
    }
    if (optind < argc) {
        return misuse("'%s' is not expected", argv[optind]);
    }
    if (options->segment == NULL || options->policy_path == NULL) {
        return misuse("%s is missing", options->segment == NULL ? "--segment" : "--policy");
    }
    return -1;
}

/* ---- running ---------------------------------------------------------------------------------------------------- */

/* SIGTERM or SIGINT has come; waits for it at most wait_ms. */
static bool told_to_end(const struct daemon *daemon, int wait_ms)
{
    struct pollfd ready = {.fd = daemon->signals, .events = POLLIN};
    struct signalfd_siginfo info;

    return poll(&ready, 1, wait_ms) > 0 &&
           read(daemon->signals, &info, sizeof(info)) == (ssize_t)sizeof(info);
}

/* Says everything about the policy once, its warnings too; each opening reads it again. */
static bool check_policy(const char *path)
{
    struct hf_policy *policy = NULL;
    bool good = hf_policy_check_file(path, false, stderr, &policy) == 0;

    hf_policy_free(policy);
    return good;
}

/* Opens, and tries again as long as the store is down. -1: *serve is open; else the exit status. */
static int open_serve(struct daemon *daemon, struct hf_serve **serve)
{
    uint32_t wait_ms = RETRY_MS_MIN;
    uint32_t waited_ms = 0;
    char said[sizeof(((struct hf_error *)0)->text)] = "";

    for (;;) {
        struct hf_policy_report report = {0};
        struct hf_error err = {.text = ""};
        enum hf_serve_status status = hf_serve_open(&daemon->options, serve, &report, &err);

        hf_policy_report_free(&report);
        if (status == HF_SERVE_OK) {
            return -1;
        }
        if (status != HF_SERVE_RETRY && (status != HF_SERVE_LOCKED || waited_ms >= LOCKED_MS)) {
            say(NULL, HF_LOG_ERROR, err.text);
            return EXIT_USAGE;
        }
        if (strcmp(said, err.text) != 0) {
            memcpy(said, err.text, sizeof(said));
            say_text(HF_LOG_WARNING, "not ready, trying again: %s", err.text);
        }
        if (told_to_end(daemon, (int)wait_ms)) {
            say(NULL, HF_LOG_INFO, "ended before the segment was open");
            return EXIT_LEFT;
        }
        waited_ms += wait_ms;
        wait_ms = wait_ms * 2 > RETRY_MS_MAX ? RETRY_MS_MAX : wait_ms * 2;
    }
}

static int end(struct hf_serve *serve)
{
    struct hf_drain_counts counts;
    bool flushed = hf_serve_flush(serve, FLUSH_MS);

    hf_drain_count(hf_serve_drain(serve), &counts);
    if (flushed) {
        say_text(HF_LOG_INFO, "ended: everything is committed (%" PRIu64 " receipts in %" PRIu64 " batches)",
                 counts.rows_committed, counts.batches_committed);
        return 0;
    }
    say_text(
        HF_LOG_ERROR,
        "ended, and at least %" PRIu64
        " receipts are not committed: they stay in the segment, start the daemon again when the store is back",
        counts.rows_in_flight);
    return EXIT_LEFT;
}

static int run(const struct daemon *daemon, struct hf_serve *serve)
{
    for (;;) {
        uint32_t wait_ms = 0;
        enum hf_drain_result result = hf_serve_step(serve, &wait_ms);

        if (result == HF_DRAIN_SUPERSEDED) {
            return EXIT_LEFT;
        }
        if (told_to_end(daemon, 0)) {
            return end(serve);
        }
        if (hf_segment_state(hf_serve_segment(serve)) != HF_SEGMENT_READY) {
            (void)end(serve); /* removed or replaced: said by who found it */
            return EXIT_LEFT;
        }
        hf_serve_wait(serve, wait_ms);
    }
}

static bool block_signals(struct daemon *daemon)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0) {
        return false;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    daemon->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return daemon->signals >= 0;
}

int main(int argc, char **argv)
{
    struct daemon daemon = {.signals = -1};
    struct hf_serve *serve = NULL;
    const struct passwd *user = getpwuid(geteuid());
    int status = read_arguments(argc, argv, &daemon.options);

    if (status >= 0) {
        return status;
    }
    daemon.options.log = say;
    daemon.options.made_by = user != NULL ? user->pw_name : NULL;
    (void)setvbuf(stderr, NULL, _IOLBF, 0);
    if (!block_signals(&daemon)) {
        (void)fprintf(stderr, "holdfastd: cannot take signals: %s\n", strerror(errno));
        return EXIT_USAGE;
    }
    status = check_policy(daemon.options.policy_path) ? open_serve(&daemon, &serve) : EXIT_USAGE;
    if (status < 0) {
        say_text(HF_LOG_INFO, "ready: segment %s, %" PRIu32 " slots, store %s as %s", daemon.options.segment,
                 hf_serve_segment(serve)->slots_cnt, hf_store_url(hf_serve_store(serve)),
                 hf_serve_store_name(serve));
        status = run(&daemon, serve);
        hf_serve_close(serve);
    }
    (void)close(daemon.signals);
    return status;
}
