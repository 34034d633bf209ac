/* One run of `holdfast run` through the steps of a scenario. */
#ifndef HF_TESTS_CONFORMANCE_SESSION_H
#define HF_TESTS_CONFORMANCE_SESSION_H

#include "child.h"
#include "scenario.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Sends the steps and matches the answers, up to in_flight_max lines ahead of the answers (the first step alone, so
 * that an answer that is not flushed shows). At the end it closes the command's input and expects status 0 and not another
 * word. At the first fault a report is printed on stdout. Returns whether all was well; *step_cnt is raised by the
 * answers that matched.
 */
bool session_run(const struct scenario *scenario, struct child *child, unsigned long in_flight_max,
                 uint64_t deadline_ns, unsigned long *step_cnt);

/* Prints the head of a report: which scenario, and what is wrong. */
void report(const struct scenario *scenario, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
