#include "tools/holdfast/command.h"

#include <stdarg.h>
#include <stdio.h>

int hf_command_option(const char *name, int argc, char **argv, const struct option *options)
{
    opterr = 0;
    int option = getopt_long(argc, argv, ":", options, NULL);

    if (option == ':') {
        (void)hf_command_misuse(name, "option %s needs a value", argv[optind - 1]);
        return '?';
    }
    if (option == '?') {
        (void)hf_command_misuse(name, optopt != 0 ? "option %s takes no value" : "unknown option %s",
                                argv[optind - 1]);
    }
    return option;
}

int hf_command_misuse(const char *name, const char *format, ...)
{
    va_list args;

    (void)fprintf(stderr, "holdfast %s: ", name);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fprintf(stderr, "\nTry `holdfast %s --help`.\n", name);
    return HF_EXIT_USAGE;
}

int hf_command_fail(const char *name, int status, const char *format, ...)
{
    va_list args;

    (void)fprintf(stderr, "holdfast %s: ", name);
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fputc('\n', stderr);
    return status;
}
