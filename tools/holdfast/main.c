/* holdfast: one command with subcommands. */
#include "tools/holdfast/command.h"

#include <stdio.h>
#include <string.h>

/* Made in files of their own: where one is not there, its command is not listed. */
#pragma weak hf_cmd_recover
#pragma weak hf_cmd_replay

struct command {
    const char *name;
    int (*function)(int argc, char **argv);
    const char *help;
};

static const struct command commands[] = {
    {"run", hf_cmd_run, "one operation a line: JSON in, JSON out, on a private or a live segment"},
    {"check", hf_cmd_check, "say everything that is wrong with a policy file"},
    {"status", hf_cmd_status, "how a segment and its daemon are doing, and its alarms"},
    {"usage", hf_cmd_usage, "what a tenant, team or key has used and has left"},
    {"store", hf_cmd_store, "make a store, show what it holds, prune it"},
    {"verify", hf_cmd_verify, "prove that a store is what was written into it"},
    {"fsck", hf_cmd_fsck, "check every invariant of a live segment; mend what can be proved"},
    {"recover", hf_cmd_recover, "rebuild a lost segment from its store"},
    {"replay", hf_cmd_replay, "drive a segment with a trace of real traffic"},
    {"trace-gen", hf_cmd_trace_gen, "print a synthetic trace for replay"},
};
#define COMMAND_CNT (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *to)
{
    (void)fputs("Usage: holdfast COMMAND [ARGUMENTS]\n"
                "\n"
                "Quota for gateways that spend other people's money.\n"
                "\n"
                "Commands:\n",
                to);
    for (size_t i = 0; i < COMMAND_CNT; i++) {
        if (commands[i].function != NULL) {
            (void)fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
        }
    }
    (void)fputs("  help       print this, or the help of a command\n"
                "\n"
                "`holdfast COMMAND --help` says more, and so does `man holdfast`.\n"
                "The daemon is a program of its own: holdfastd.\n",
                to);
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < COMMAND_CNT; i++) {
        if (strcmp(commands[i].name, name) == 0 && commands[i].function != NULL) {
            return &commands[i];
        }
    }
    return NULL;
}

/* The command that somebody who typed name may have meant: the same first letters, the more the better. */
static const struct command *nearest(const char *name)
{
    const struct command *best = NULL;
    size_t most = 1;

    for (size_t i = 0; i < COMMAND_CNT; i++) {
        size_t same = 0;

        while (name[same] != '\0' && name[same] == commands[i].name[same]) {
            same++;
        }
        if (same > most && commands[i].function != NULL) {
            most = same;
            best = &commands[i];
        }
    }
    return best;
}

static int unknown(const char *name)
{
    const struct command *meant = nearest(name);

    (void)fprintf(stderr, "holdfast: there is no command '%s'", name);
    if (meant != NULL) {
        (void)fprintf(stderr, "; did you mean '%s'?", meant->name);
    }
    (void)fprintf(stderr, "\nTry `holdfast --help`.\n");
    return HF_EXIT_USAGE;
}

static int help_of(const char *name)
{
    const struct command *command = find(name);
    char shown[32], option[] = "--help";
    char *args[] = {shown, option, NULL};

    if (command == NULL) {
        return unknown(name);
    }
    (void)snprintf(shown, sizeof(shown), "%s", command->name);
    return command->function(2, args);
}

int main(int argc, char **argv)
{
    const char *name = argc < 2 ? "" : argv[1];

    if (strcmp(name, "--version") == 0) {
        (void)puts("holdfast " HF_VERSION);
        return HF_EXIT_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
        (strcmp(name, "help") == 0 && (argc == 2 || strcmp(argv[2], "--help") == 0))) {
        print_help(stdout);
        return HF_EXIT_OK;
    }
    if (strcmp(name, "help") == 0) {
        return help_of(argv[2]);
    }
    if (*name == '\0') {
        print_help(stderr);
        return HF_EXIT_USAGE;
    }

    const struct command *command = find(name);

    return command == NULL ? unknown(name) : command->function(argc - 1, argv + 1);
}
