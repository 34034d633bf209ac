/* A scenario of the conformance folder, as its README describes the files. */
#ifndef HF_TESTS_CONFORMANCE_SCENARIO_H
#define HF_TESTS_CONFORMANCE_SCENARIO_H

#include <jansson.h>
#include <stddef.h>

struct step {
    unsigned long line;
    /* The operation; NULL when `raw` is sent as it is. */
    json_t *in;
    char *raw;
    size_t raw_bytes;
    /* What must match; NULL: any answer will do. */
    json_t *out;
    /* 0: once, and {i} stands for itself. */
    unsigned long repeat;
};

struct scenario {
    /* As given, and the folder that its policies are relative to. */
    char *path;
    char *folder;
    const char *name;
    json_t *header;
    /* Path of the policy; NULL when there are refused ones. */
    char *policy;
    json_int_t clock_ms;
    struct step *steps;
    size_t step_cnt;
};

/* Reads a file. NULL: a sentence with file and line has been printed on stderr. */
struct scenario *scenario_read(const char *path);
void scenario_free(struct scenario *scenario);

/* A new text: the path as it is meant from the scenario's folder. */
char *scenario_path(const struct scenario *scenario, const char *path);

#endif
