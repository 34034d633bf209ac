/* How an answer matches what a scenario expects, and how the texts of a step are filled in. */
#ifndef HF_TESTS_CONFORMANCE_MATCH_H
#define HF_TESTS_CONFORMANCE_MATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Where an answer differs first, and why. */
struct mismatch {
    char path[512];
    char why[1024];
};

/* Says why `expected`, the `out` of a step, is no pattern: a misspelt or misplaced $absent, $any or $len. NULL: it
 * is one. */
const char *pattern_fault(const json_t *expected);

/* Whether `actual` matches. captures (an object) gets the names that are used first. */
bool matches(const json_t *expected, const json_t *actual, json_t *captures, struct mismatch *mismatch);

/*
 * A new copy of `text`, any JSON value, with {i} in every text replaced by `turn` (0: nothing is replaced) and, where
 * captures is given, each "$name" by what was captured. Returns NULL with *missing naming a capture that does not exist yet
 * (borrowed from `text`'s copy, in missing_name). Running out of memory ends the program.
 */
json_t *fill_in(const json_t *text, unsigned long turn, const json_t *captures, char missing[64]);

/* One line of JSON for people or for the command; ends the program when out of memory. The caller frees it. */
char *one_line(const json_t *json);

#endif
