/* A segment that a daemon serves, with a fresh store: what `holdfast run --segment` is pointed at. */
#ifndef HF_TESTS_CONFORMANCE_SERVED_H
#define HF_TESTS_CONFORMANCE_SERVED_H

#include "child.h"
#include "scenario.h"

#include <stdbool.h>
#include <stdint.h>

struct programs {
    const char *holdfast;
    /* NULL: private segments. */
    const char *daemon;
    /* "sqlite", "postgres" (a new database beside that of HOLDFAST_TEST_PG), or a URL in which {name} stands for the segment. */
    const char *store;
    /* A folder of the run's own, for the files of SQLite. */
    const char *folder;
};

struct served {
    const struct programs *programs;
    struct child daemon;
    char name[48];
    char *store_url;
};

/* Makes the store. False: a report has been printed; served_finish() is still right. */
bool served_make_store(struct served *served, const struct programs *programs,
                       const struct scenario *scenario, uint64_t deadline_ns);

/* Starts the daemon with this policy, and does not wait. */
void served_start(struct served *served, const char *policy, json_int_t clock_ms);

/* Waits until a command can attach. False: a report has been printed. */
bool served_wait_ready(struct served *served, const struct scenario *scenario, uint64_t deadline_ns);

/* Asks the daemon to leave and expects status 0. False: a report has been printed. */
bool served_stop(struct served *served, const struct scenario *scenario, uint64_t deadline_ns);

/* Ends what runs and removes segment, store and all. */
void served_finish(struct served *served);

#endif
