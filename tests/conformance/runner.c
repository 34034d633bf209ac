/* Runs the scenarios of the conformance folder against a `holdfast` command. See README.md. */
#include "served.h"
#include "session.h"

#include <errno.h>
#include <getopt.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STATUS_SKIP     77
#define STATUS_USAGE    2
#define WITHOUT_CNT_MAX 32

struct options {
    struct programs programs;
    const char *without[WITHOUT_CNT_MAX];
    bool without_used[WITHOUT_CNT_MAX];
    size_t without_cnt;
    unsigned long in_flight_max;
    unsigned long timeout_s;
};

struct totals {
    unsigned passed_cnt;
    unsigned skipped_cnt;
    unsigned failed_cnt;
    unsigned long step_cnt;
};

static void print_usage(FILE *to)
{
    (void)fputs(
        "Usage: conformance --holdfast PATH [--daemon PATH --store STORE] [OPTION...] FILE|FOLDER...\n"
        "\n"
        "  --holdfast PATH   the command; each scenario has `PATH run` to itself\n"
        "  --daemon PATH     holdfastd: scenarios run on a segment that it serves\n"
        "  --store STORE     sqlite; postgres (databases beside that of HOLDFAST_TEST_PG); or a\n"
        "                    URL, where {name} stands for the name of the segment\n"
        "  --without NAMES   skip scenarios that need one of these (queue,poll,...)\n"
        "  --in-flight N     lines sent ahead of their answers, from 1 (default 256)\n"
        "  --timeout S       seconds for a scenario (default 120)\n"
        "\n"
        "Exit status: 0 all others passed, 1 not, 2 bad arguments, 77 there is nothing to run.\n",
        to);
}

/* Whether the scenario needs something that is left out; it is named in *which. */
static bool is_left_out(struct options *options, const struct scenario *scenario, const char **which)
{
    size_t i = 0;
    json_t *need = NULL;

    json_array_foreach(json_object_get(scenario->header, "needs"), i, need)
    {
        for (size_t k = 0; k < options->without_cnt; k++) {
            if (strcmp(json_string_value(need), options->without[k]) == 0) {
                options->without_used[k] = true;
                *which = options->without[k];
                return true;
            }
        }
    }
    return false;
}

/* Ends a child; what it had to say is part of a report. */
static void finish(struct child *child, bool good, const char *whose)
{
    if (!good) {
        (void)child_wait(child, 0);
        child_print_errors(child, whose);
    }
    child_finish(child);
}

static bool run_private(const struct options *options, const struct scenario *scenario, uint64_t deadline_ns,
                        unsigned long *step_cnt)
{
    char clock[32];
    struct child child;
    bool good = false;

    (void)snprintf(clock, sizeof(clock), "%" JSON_INTEGER_FORMAT, scenario->clock_ms);

    char *argv[] = {
        (char *)options->programs.holdfast, "run", "--policy", scenario->policy, "--clock-ms", clock, NULL};

    child_start(&child, argv);
    good = session_run(scenario, &child, options->in_flight_max, deadline_ns, step_cnt);
    finish(&child, good, "holdfast run");
    return good;
}

static bool run_served(const struct options *options, const struct scenario *scenario, uint64_t deadline_ns,
                       unsigned long *step_cnt)
{
    struct served served;
    struct child child;
    bool good = served_make_store(&served, &options->programs, scenario, deadline_ns);

    if (good) {
        char *argv[] = {(char *)options->programs.holdfast, "run", "--segment", served.name, NULL};

        served_start(&served, scenario->policy, scenario->clock_ms);
        good = served_wait_ready(&served, scenario, deadline_ns);
        if (good) {
            child_start(&child, argv);
            good = session_run(scenario, &child, options->in_flight_max, deadline_ns, step_cnt);
            finish(&child, good, "holdfast run --segment");
            good = good && served_stop(&served, scenario, deadline_ns);
            finish(&served.daemon, good, "the daemon");
        }
    }
    served_finish(&served);
    return good;
}

/* What a command that was given a policy to refuse has done. */
static bool check_refusal(const struct scenario *scenario, const char *policy, struct child *child,
                          uint64_t deadline_ns)
{
    static const char line[] = "{\"op\":\"reap\"}\n";
    char how[128], said[256];
    ssize_t bytes = 0;
    bool in_time = false;

    /* Here nobody reads while the command runs, but what it may not say fits the pipe. */
    if (write(child->to_fd, line, sizeof(line) - 1) < 0 && errno != EPIPE) {
        report(scenario, "cannot write to the command: %s", strerror(errno));
        return false;
    }
    (void)close(child->to_fd);
    child->to_fd = -1;
    in_time = child_wait(child, deadline_ns);
    bytes = read(child->from_fd, said, sizeof(said));
    child_describe(child, how, sizeof(how));
    if (!in_time || !WIFEXITED(child->status) || WEXITSTATUS(child->status) != 2) {
        report(scenario, "with %s it %s in place of status 2", policy, in_time ? how : "did not end");
        return false;
    }
    if (bytes > 0) {
        report(scenario, "with %s it answered: %.*s", policy, (int)bytes, said);
        return false;
    }
    return true;
}

static bool run_refused(const struct options *options, const struct scenario *scenario, uint64_t deadline_ns,
                        unsigned long *step_cnt)
{
    bool is_served = options->programs.daemon != NULL, good = true;
    struct served served;
    size_t i = 0;
    json_t *refused = NULL;
    char clock[32];

    (void)snprintf(clock, sizeof(clock), "%" JSON_INTEGER_FORMAT, scenario->clock_ms);
    good = !is_served || served_make_store(&served, &options->programs, scenario, deadline_ns);
    json_array_foreach(json_object_get(scenario->header, "refused_policies"), i, refused)
    {
        char *policy = scenario_path(scenario, json_string_value(refused));
        char *argv[] = {
            (char *)options->programs.holdfast, "run", "--policy", policy, "--clock-ms", clock, NULL};
        struct child alone, *child = is_served ? &served.daemon : &alone;

        if (good && access(policy, R_OK) != 0) {
            report(scenario, "%s cannot be read", policy);
            good = false;
        }
        if (good) {
            if (is_served) {
                served_start(&served, policy, scenario->clock_ms);
            } else {
                child_start(child, argv);
            }
            good = check_refusal(scenario, policy, child, deadline_ns);
            finish(child, good, is_served ? "the daemon" : "holdfast run");
            *step_cnt += good;
        }
        free(policy);
    }
    if (is_served) {
        served_finish(&served);
    }
    return good;
}

static void run_scenario(struct options *options, const char *path, struct totals *totals)
{
    struct scenario *scenario = scenario_read(path);
    uint64_t deadline_ns = now_ns() + options->timeout_s * UINT64_C(1000000000);
    const char *left_out = NULL;
    bool good = false;

    if (scenario == NULL) {
        (void)printf("FAIL %s: the scenario cannot be read\n", path);
        totals->failed_cnt++;
        return;
    }
    if (is_left_out(options, scenario, &left_out)) {
        (void)printf("SKIP %s: needs %s\n", scenario->name, left_out);
        totals->skipped_cnt++;
        scenario_free(scenario);
        return;
    }
    if (scenario->policy == NULL) {
        good = run_refused(options, scenario, deadline_ns, &totals->step_cnt);
    } else if (options->programs.daemon != NULL) {
        good = run_served(options, scenario, deadline_ns, &totals->step_cnt);
    } else {
        good = run_private(options, scenario, deadline_ns, &totals->step_cnt);
    }
    if (good) {
        (void)printf("PASS %s\n", scenario->name);
        totals->passed_cnt++;
    } else {
        totals->failed_cnt++;
    }
    scenario_free(scenario);
}

/* A file, or all scenarios of a folder in the order of their names. */
static void run_path(struct options *options, const char *path, struct totals *totals)
{
    struct stat st;
    char pattern[4096];
    glob_t found = {0};

    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        run_scenario(options, path, totals);
        return;
    }
    (void)snprintf(pattern, sizeof(pattern), "%s/*.jsonl", path);
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            run_scenario(options, found.gl_pathv[i], totals);
        }
    }
    globfree(&found);
}

static bool read_number(const char *option, const char *text, unsigned long max, unsigned long *number)
{
    char *end = NULL;

    errno = 0;
    *number = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || *number < 1 || *number > max) {
        (void)fprintf(stderr, "conformance: --%s must be a number from 1 to %lu, not '%s'\n", option, max,
                      text);
        return false;
    }
    return true;
}

static bool read_without(struct options *options, char *names)
{
    for (char *name = strtok(names, ", "); name != NULL; name = strtok(NULL, ", ")) {
        if (options->without_cnt == WITHOUT_CNT_MAX) {
            (void)fprintf(stderr, "conformance: --without has more than %d names\n", WITHOUT_CNT_MAX);
            return false;
        }
        options->without[options->without_cnt++] = name;
    }
    return true;
}

static bool read_options(struct options *options, int argc, char **argv)
{
    static const struct option known[] = {
        {"holdfast", required_argument, NULL, 'c'},
        {"daemon", required_argument, NULL, 'd'},
        {"store", required_argument, NULL, 's'},
        {"without", required_argument, NULL, 'w'},
        {"in-flight", required_argument, NULL, 'f'},
        {"timeout", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option = 0;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        bool good = true;

        switch (option) {
        case 'c':
            options->programs.holdfast = optarg;
            break;
        case 'd':
            options->programs.daemon = optarg;
            break;
        case 's':
            options->programs.store = optarg;
            break;
        case 'w':
            good = read_without(options, optarg);
            break;
        case 'f':
            good = read_number("in-flight", optarg, 1000000, &options->in_flight_max);
            break;
        case 't':
            good = read_number("timeout", optarg, 86400, &options->timeout_s);
            break;
        case 'h':
            print_usage(stdout);
            exit(0);
        default:
            good = false;
        }
        if (!good) {
            return false;
        }
    }
    return options->programs.holdfast != NULL && optind < argc &&
           (options->programs.daemon == NULL) == (options->programs.store == NULL);
}

/* A reason why nothing can be run here; NULL: there is none. */
static const char *why_not(const struct options *options, int argc, char **argv)
{
    for (int i = optind; i < argc; i++) {
        if (access(argv[i], R_OK) != 0) {
            return argv[i];
        }
    }
    if (options->programs.store != NULL && strcmp(options->programs.store, "postgres") == 0 &&
        getenv("HOLDFAST_TEST_PG") == NULL) {
        return "HOLDFAST_TEST_PG";
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct options options = {.in_flight_max = 256, .timeout_s = 120};
    struct totals totals = {0};
    const char *missing = NULL, *tmp = getenv("TMPDIR");
    char folder[4096];

    if (!read_options(&options, argc, argv)) {
        print_usage(stderr);
        return STATUS_USAGE;
    }
    missing = why_not(&options, argc, argv);
    if (missing != NULL) {
        (void)printf("conformance: skipped, %s is not there\n", missing);
        return STATUS_SKIP;
    }
    (void)snprintf(folder, sizeof(folder), "%s/holdfast-conformance.XXXXXX", tmp == NULL ? "/tmp" : tmp);
    if (mkdtemp(folder) == NULL) {
        (void)fprintf(stderr, "conformance: %s: %s\n", folder, strerror(errno));
        return STATUS_USAGE;
    }
    options.programs.folder = folder;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = optind; i < argc; i++) {
        run_path(&options, argv[i], &totals);
    }
    (void)rmdir(folder);
    for (size_t i = 0; i < options.without_cnt; i++) {
        if (!options.without_used[i]) {
            (void)printf("note: no scenario was left out for want of %s\n", options.without[i]);
        }
    }
    (void)printf("conformance: %u passed, %u skipped, %u failed; %lu steps\n", totals.passed_cnt,
                 totals.skipped_cnt, totals.failed_cnt, totals.step_cnt);
    return totals.failed_cnt == 0 && totals.passed_cnt > 0 ? 0 : 1;
}
