#include "tools/holdfast/trace_gen.h"

#include "tools/holdfast/command.h"

#include "tools/common/trace_gen.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void print_help(FILE *to)
{
    (void)fprintf(to,
                  "Usage: holdfast trace-gen [--rows N] [--seed S] > FILE.csv\n"
                  "\n"
                  "Prints a synthetic trace of calls to a model, in the format of the Azure LLM\n"
                  "inference trace, for `holdfast replay`. The same seed prints the same trace.\n"
                  "\n"
                  "  --rows N   how many calls, 0 to %d (default %d)\n"
                  "  --seed S   0 to 18446744073709551615 (default %d)\n"
                  "  --help     this text\n",
                  HF_TRACE_GEN_ROW_CNT_MAX, HF_TRACE_GEN_ROWS, HF_TRACE_GEN_SEED);
}

/* A plain decimal number from 0 to max; false, with a sentence on stderr, when the text is none. */
static bool read_number(const char *option, const char *text, uint64_t max, uint64_t *number)
{
    char *end = NULL;
    unsigned long long value = 0;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || value > max) {
        (void)fprintf(stderr,
                      "holdfast trace-gen: --%s must be a whole number from 0 to %" PRIu64 ", not '%s'\n",
                      option, max, text);
        return false;
    }
    *number = value;
    return true;
}

int hf_cmd_trace_gen(int argc, char **argv)
{
    static const struct option options[] = {
        {"rows", required_argument, NULL, 'r'},
        {"seed", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    uint64_t row_cnt = HF_TRACE_GEN_ROWS, seed = HF_TRACE_GEN_SEED;
    int option = 0, rc = 0;

    optind = 0;
    while ((option = hf_command_option("trace-gen", argc, argv, options)) != -1) {
        if (option == 'h') {
            print_help(stdout);
            return 0;
        }
        if (option == '?' ||
            (option == 'r' && !read_number("rows", optarg, HF_TRACE_GEN_ROW_CNT_MAX, &row_cnt)) ||
            (option == 's' && !read_number("seed", optarg, UINT64_MAX, &seed))) {
            return 2;
        }
    }
    if (optind < argc) {
        (void)fprintf(stderr, "holdfast trace-gen: '%s' is not expected; the trace goes to standard output\n",
                      argv[optind]);
        return 2;
    }
    rc = hf_trace_gen_write(stdout, row_cnt, seed);
    if (rc != 0) {
        (void)fprintf(stderr, "holdfast trace-gen: cannot write the trace: %s\n", strerror(-rc));
        return 1;
    }
    return 0;
}
