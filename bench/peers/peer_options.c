#include "bench/peers/peer_options.h"

#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct option long_options[] = {
    {"name", required_argument, NULL, 'n'},      {"how", required_argument, NULL, 'h'},
    {"address", required_argument, NULL, 'a'},   {"placement", required_argument, NULL, 'l'},
    {"processes", required_argument, NULL, 'p'}, {"seconds", required_argument, NULL, 's'},
    {"cpus", required_argument, NULL, 'c'},      {NULL, 0, NULL, 0},
};

static int read_cpus(const char *text, struct peer_options *options)
{
    const char *at = text;
    options->cpu_cnt = 0;
    while (options->cpu_cnt < PEER_PROCESSES_MAX) {
        char *end = NULL;
        long cpu = strtol(at, &end, 10);
        if (end == at || cpu < 0 || cpu >= CPU_SETSIZE || (*end != ',' && *end != '\0')) {
            break;
        }
        options->cpus[options->cpu_cnt++] = (int)cpu;
        if (*end == '\0') {
            return 0;
        }
        at = end + 1;
    }
    return peer_error("--cpus wants numbers of processors with commas between them, not '%s'", text);
}

static int read_numbers(int option, const char *text, struct peer_options *options)
{
    char *end = NULL;
    if (option == 'p') {
        long cnt = strtol(text, &end, 10);
        if (end == text || *end != '\0' || cnt < 1 || cnt > PEER_PROCESSES_MAX) {
            return peer_error("--processes wants 1 to %d, not '%s'", PEER_PROCESSES_MAX, text);
        }
        options->process_cnt = (unsigned)cnt;
        return 0;
    }
    double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !(seconds >= 0.01 && seconds <= 3600)) {
        return peer_error("--seconds wants 0.01 to 3600, not '%s'", text);
    }
    options->run_ns = (uint64_t)(seconds * 1e9);
    return 0;
}

/* They go into a line of JSON as they are. */
static int check_words(const struct peer_options *options)
{
    if (strpbrk(options->name, "\"\\\n") || strpbrk(options->placement, "\"\\\n")) {
        return peer_error("--name and --placement want words without quotes, backslashes and line feeds");
    }
    return 0;
}

int peer_options_read(int argc, char **argv, const char *name, struct peer_options *options)
{
    *options = (struct peer_options){
        .name = name, .how = "", .address = "", .placement = "any", .process_cnt = 1, .run_ns = 1000000000};
    for (;;) {
        int option = getopt_long(argc, argv, "", long_options, NULL);
        switch (option) {
        case -1:
            return optind == argc ? check_words(options) : peer_error("'%s' is no option", argv[optind]);
        case 'n':
            options->name = optarg;
            break;
        case 'h':
            options->how = optarg;
            break;
        case 'a':
            options->address = optarg;
            break;
        case 'l':
            options->placement = optarg;
            break;
        case 'c':
            if (read_cpus(optarg, options)) {
                return -1;
            }
            break;
        case 'p':
        case 's':
            if (read_numbers(option, optarg, options)) {
                return -1;
            }
            break;
        default:
            return peer_error(
                "the options are --processes N, --seconds S, --cpus A,B, --address WHERE, --how VARIANT, "
                "--name WORD and --placement WORDS");
        }
    }
}
