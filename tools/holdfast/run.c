/* holdfast run: the command and its loop. */
#include "tools/holdfast/run.h"

#include "core/window.h"
#include "tools/holdfast/command.h"
#include "tools/holdfast/run_lines.h"
#include "tools/holdfast/run_start.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: holdfast run --policy POLICY --clock-ms T [--store URL]\n"
    "       holdfast run --segment NAME [--store URL]\n"
    "\n"
    "Reads one operation a line from standard input, as a JSON object, and answers each\n"
    "with one JSON object on one line of standard output, in order, flushed at once.\n"
    "\n"
    "With --policy: a private segment with a daemon of its own and an injected clock,\n"
    "gone at the end of input. With --segment: an existing one, with its own clock.\n"
    "\n"
    "  --policy POLICY  policy file of the private segment\n"
    "  --clock-ms T     its clock at the start, in ms since the Unix epoch\n"
    "  --segment NAME   name or path of an existing segment\n"
    "  --store URL      where receipts go: sqlite:PATH, or what libpq takes. A private\n"
    "                   segment keeps them in a temporary SQLite file without it; of an\n"
    "                   existing one: where to read them, when its own URL does not do\n"
    "  --help           this text\n"
    "\n"
    "Operations: reserve extend dispatch settle release reap usage meters credit receipts\n"
    "clock; poll, apply, resolve and holds are not built yet.\n"
    "\n"
    "    {\"op\":\"reserve\",\"id\":\"a1\",\"tenant\":\"echo\",\"team\":\"content\",\"capability\":\"summary\",\n"
    "     \"cost_micros\":6200,\"tokens\":900}\n"
    "\n"
    "Exit status: 0 at the end of input, 1 when answers could not be written, 2 when it\n"
    "could not start.\n";

/* The signal that ended the run; 0: none. */
static volatile sig_atomic_t stopped_by;

static void note_signal(int number)
{
    stopped_by = number;
}

/* Signals that end the run end it in order, so that the temporary store goes with it; a reader that went away shows as
 * a failed write. */
static void take_signals(void)
{
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = note_signal}; /* no SA_RESTART: a read shall end */

    for (size_t i = 0; i < sizeof(ending) / sizeof(ending[0]); i++) {
        (void)sigaction(ending[i], &action, NULL);
    }
    action.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &action, NULL);
}

static int read_clock(const char *text, uint64_t *clock_ms)
{
    char *end = NULL;

    errno = 0;
    *clock_ms = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || *clock_ms > HF_CLOCK_MS_MAX) {
        return hf_command_misuse("run", "--clock-ms must be a whole number from 0 to %" PRIu64 ", not '%s'",
                                 HF_CLOCK_MS_MAX, text);
    }
    return HF_EXIT_OK;
}

static int read_arguments(int argc, char **argv, struct hf_run_options *told)
{
    static const struct option options[] = {
        {"policy", required_argument, NULL, 'p'},
        {"clock-ms", required_argument, NULL, 'c'},
        {"segment", required_argument, NULL, 's'},
        {"store", required_argument, NULL, 'u'},
        HF_OPTION_HELP,
        HF_OPTION_END,
    };
    bool clock = false;
    int option = 0;

    optind = 0;
    while ((option = hf_command_option("run", argc, argv, options)) != -1) {
        switch (option) {
        case 'p':
            told->policy = optarg;
            break;
        case 'c':
            clock = true;
            if (read_clock(optarg, &told->clock_ms) != HF_EXIT_OK) {
                return HF_EXIT_USAGE;
            }
            break;
        case 's':
            told->segment = optarg;
            break;
        case 'u':
            told->store_url = optarg;
            break;
        case 'h':
            told->help = true;
            return HF_EXIT_OK;
        default:
            return HF_EXIT_USAGE;
        }
    }
    if (optind < argc) {
        return hf_command_misuse("run", "'%s' is not expected; operations come from standard input",
                                 argv[optind]);
    }
    if ((told->policy == NULL) == (told->segment == NULL)) {
        return hf_command_misuse("run", "state either --policy, for a private segment, or --segment");
    }
    if ((told->policy != NULL) != clock) {
        return hf_command_misuse(
            "run", "--clock-ms goes with --policy, and --policy needs it: only a private segment's "
                   "clock is injected here");
    }
    return HF_EXIT_OK;
}

/* The operating-system user, or its number where it has no name. */
static void find_user(struct hf_run *run)
{
    const struct passwd *user = getpwuid(geteuid());

    if (user != NULL && strlen(user->pw_name) < sizeof(run->by)) {
        (void)snprintf(run->by, sizeof(run->by), "%s", user->pw_name);
    } else {
        (void)snprintf(run->by, sizeof(run->by), "uid:%lu", (unsigned long)geteuid());
    }
}

/* Answers every line; the exit status. */
static int answer_lines(struct hf_run *run, struct hf_lines *lines)
{
    const char *text = NULL;
    size_t text_bytes = 0;

    for (;;) {
        int got = hf_lines_next(lines, &text, &text_bytes), rc = 0;

        if (got == HF_LINES_END || stopped_by != 0) {
            return HF_EXIT_OK;
        }
        if (got == -EINTR) {
            continue;
        }
        if (got < 0) {
            return hf_command_fail("run", HF_EXIT_FAILED, "cannot read standard input: %s", strerror(-got));
        }
        if (got == HF_LINES_TOO_LONG) {
            hf_run_line_too_long(run);
        } else {
            rc = hf_run_line(run, text, text_bytes);
        }
        if (rc == 0) {
            hf_run_settle_down(run);
            rc = hf_json_out_line(&run->out, stdout);
        }
        if (rc != 0) {
            return hf_command_fail("run", HF_EXIT_FAILED, "cannot answer: %s", strerror(-rc));
        }
    }
}

int hf_cmd_run(int argc, char **argv)
{
    struct hf_run_options told = {0};
    struct hf_run run = {0};
    struct hf_lines lines;
    int status = read_arguments(argc, argv, &told);

    if (status != HF_EXIT_OK || told.help) {
        (void)fputs(told.help ? help : "", stdout);
        return status;
    }
    take_signals();
    find_user(&run);
    if (hf_lines_start(&lines, STDIN_FILENO) != 0) {
        return hf_command_fail("run", HF_EXIT_USAGE, "not enough memory to start");
    }
    status = hf_run_start(&run, &told);
    if (status == HF_EXIT_OK) {
        status = answer_lines(&run, &lines);
    }
    hf_run_stop(&run);
    hf_lines_free(&lines);
    if (stopped_by != 0) {
        (void)signal(stopped_by, SIG_DFL);
        (void)raise(stopped_by);
    }
    return status;
}
