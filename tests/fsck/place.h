/* A folder with a policy, a SQLite store, a segment and its daemon, for one run. */
#ifndef HF_TESTS_FSCK_PLACE_H
#define HF_TESTS_FSCK_PLACE_H

#include "shm/segment.h"

#include <stdbool.h>
#include <sys/types.h>

struct place {
    const char *holdfast;
    const char *holdfastd;
    char folder[96];
    char policy[128];
    char store[140];   /* URL */
    char segment[128]; /* path */
    pid_t daemon;
};

/* Says what and where on standard error and ends the program with status 1; the folder stays to be looked at. */
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

void place_make(struct place *place, const char *holdfast, const char *holdfastd);
void place_remove(struct place *place);

/* Starts the daemon and waits until the segment is ready. Stops it by SIGTERM: everything is committed then. */
void place_start_daemon(struct place *place);
void place_spawn_daemon(struct place *place); /* only starts it */
/* The exit status of a daemon that is to refuse. */
int place_end_of_daemon(struct place *place);
void place_kill_daemon(struct place *place); /* SIGKILL */
void place_stop_daemon(struct place *place);

/* Runs `holdfast` with these arguments (NULL at the end), output to the file. The exit status. */
int place_run(const struct place *place, const char *output, const char *const args[]);

/* The same, with a SIGKILL so long after a repair has begun in the segment. -1 when it was killed. */
int place_run_killed(const struct place *place, const char *output, const char *const args[],
                     const struct hf_segment *seg, unsigned kill_after_us);

#endif
