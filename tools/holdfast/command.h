/* The subcommands of `holdfast`.
 *
 * Each takes its own arguments (argv[0] is its name), answers --help on standard output and returns the exit status:
 * HF_EXIT_x. Errors go to standard error as `holdfast NAME: what happened; what to do`. */
#ifndef HF_TOOLS_HOLDFAST_COMMAND_H
#define HF_TOOLS_HOLDFAST_COMMAND_H

#include "tools/holdfast/trace_gen.h"

#include <getopt.h>

enum hf_exit {
    HF_EXIT_OK = 0,
    HF_EXIT_FAILED = 1, /* it started, and did not come to a good end; of status: not open for work */
    HF_EXIT_USAGE = 2   /* it could not start: arguments, policy, segment or store */
};

/* Options that every command has: the help, and the end of the list. */
#define HF_OPTION_HELP                 \
    {                                  \
        "help", no_argument, NULL, 'h' \
    }
#define HF_OPTION_END    \
    {                    \
        NULL, 0, NULL, 0 \
    }

int hf_cmd_run(int argc, char **argv);
int hf_cmd_check(int argc, char **argv);
int hf_cmd_status(int argc, char **argv);
int hf_cmd_usage(int argc, char **argv);
int hf_cmd_store(int argc, char **argv);
int hf_cmd_fsck(int argc, char **argv);
int hf_cmd_verify(int argc, char **argv);
int hf_cmd_recover(int argc, char **argv);
int hf_cmd_replay(int argc, char **argv);

/* The next option as getopt_long gives it (optind = 0 before the first), -1 at the end, '?' for one that is not there or lacks its
 * value: that has been said. */
int hf_command_option(const char *name, int argc, char **argv, const struct option *options);

/* Says `holdfast NAME: ` and the message on standard error, and where to read on; returns HF_EXIT_USAGE. */
int hf_command_misuse(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says `holdfast NAME: ` and the message on standard error; returns status. */
int hf_command_fail(const char *name, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
