/* holdfast usage: what a tenant, team or key has used and has left, as a table for people. */
#include "core/include/holdfast.h"
#include "core/terms.h"
#include "tools/common/utc.h"
#include "tools/holdfast/command.h"
#include "tools/holdfast/run_answer.h"

#include <inttypes.h>
#include <stdio.h>

/* How long a look waits for the daemon; after that held and settled are only known together. */
#define FLUSH_MS 2000U

static const char help[] =
    "Usage: holdfast usage --segment NAME TENANT [TEAM [KEY]]\n"
    "\n"
    "Prints the limits of a tenant, of one of its teams or of one of the team's keys, with\n"
    "what open calls hold, what is settled, and what is left in the window of now.\n"
    "Amounts of cost_micros are millionths of the policy's currency.\n"
    "\n"
    "  --segment NAME  name or path of the segment\n"
    "  --help          this text\n"
    "\n"
    "Exit status: 0, 1 when the policy has no such name, 2 when the segment cannot be used.\n";

static void print_limit(const struct holdfast_limit *limit)
{
    char until[HF_UTC_BYTES] = "never ends";

    if (limit->window_end_ms != HOLDFAST_UNKNOWN) {
        hf_utc_format(limit->window_end_ms, until);
    }
    (void)printf(
        "%-8s  %-11s  %17" PRIu64 "  %17" PRIu64 "  %17" PRIu64 "  %17" PRIu64 "  %17" PRId64 "  %s\n",
        hf_window_name((enum hf_window)limit->window), hf_dimension_name((enum hf_dimension)limit->dimension),
        limit->limit, limit->credit, limit->held, limit->settled, limit->available, until);
}

static int print_usage(struct holdfast *handle, char *const *names)
{
    struct holdfast_limit limits[HF_WINDOW_CNT * HF_DIM_CNT];
    int reason = HOLDFAST_REASON_NONE;
    int flushed = holdfast_flush(handle, FLUSH_MS);
    int cnt = holdfast_limits(handle, names[0], names[1], names[2], limits,
                              (int)(sizeof(limits) / sizeof(limits[0])), &reason);

    if (cnt < 0 && reason != HOLDFAST_REASON_NONE) {
        const char *sentence = hf_answer_sentence(reason);

        return hf_command_fail("usage", HF_EXIT_FAILED, "%s: %s", holdfast_reason_name(reason),
                               sentence == NULL ? "" : sentence);
    }
    if (cnt < 0) {
        return hf_command_fail("usage", HF_EXIT_USAGE, "%s", holdfast_strerror(cnt));
    }
    if (cnt == 0) {
        (void)printf("no limits of its own\n");
        return HF_EXIT_OK;
    }
    (void)printf("%-8s  %-11s  %17s  %17s  %17s  %17s  %17s  %s\n", "window", "dimension", "limit", "credit",
                 "held", "settled", "available", "until (UTC)");
    for (int i = 0; i < cnt; i++) {
        print_limit(&limits[i]);
    }
    if (flushed != HOLDFAST_OK) {
        (void)printf(
            "The daemon has not come to the newest operations: held and settled are exact together, not each.\n");
    }
    return HF_EXIT_OK;
}

int hf_cmd_usage(int argc, char **argv)
{
    static const struct option options[] = {
        {"segment", required_argument, NULL, 's'}, HF_OPTION_HELP, HF_OPTION_END};
    char *names[3] = {NULL, NULL, NULL}, error[512] = "";
    const char *name = NULL;
    struct holdfast_segment *segment = NULL;
    struct holdfast *handle = NULL;
    int option = 0, result = 0, status = 0;

    optind = 0;
    while ((option = hf_command_option("usage", argc, argv, options)) != -1) {
        if (option == 'h') {
            (void)fputs(help, stdout);
            return HF_EXIT_OK;
        }
        if (option != 's') {
            return HF_EXIT_USAGE;
        }
        name = optarg;
    }
    if (name == NULL || argc - optind < 1 || argc - optind > 3) {
        return hf_command_misuse("usage",
                                 "name the segment by --segment, then a tenant, and a team and key of it");
    }
    for (int i = optind; i < argc; i++) {
        names[i - optind] = argv[i];
    }
    result = holdfast_open(name, &segment, error, sizeof(error));
    if (result != HOLDFAST_OK) {
        return hf_command_fail("usage", HF_EXIT_USAGE, "%s", error);
    }
    result = holdfast_join(segment, &handle);
    status = result == HOLDFAST_OK ? print_usage(handle, names)
                                   : hf_command_fail("usage", HF_EXIT_USAGE, "%s", holdfast_strerror(result));
    holdfast_leave(handle);
    holdfast_close(segment);
    return status;
}
