/* Scenarios of the life of segments and processes: what they share. A scenario is a function; it ends the program with status 1
 * where something is not so, and with 77 where the kernel does not allow what it needs. */
#ifndef HF_TESTS_LIFE_H
#define HF_TESTS_LIFE_H

#include "core/client.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LIFE_REQUIRE(condition) life_require((condition), #condition, __FILE__, __LINE__)
#define LIFE_FAIL(what)         life_require(false, (what), __FILE__, __LINE__)
void life_require(bool so, const char *what, const char *file, int line);
/* The text must be in what was said. */
#define LIFE_SAYS(said, text) life_says((said), (text), __FILE__, __LINE__)
void life_says(const char *said, const char *text, const char *file, int line);
/* Ends with status 77. Processes that the scenario started are ended. */
void life_skip(const char *why) __attribute__((noreturn));

/* What the processes of a scenario tell each other. */
struct life_shared {
    uint64_t words[16];
    uint64_t refs[16]; /* owner references */
    uint64_t cnt;
};

struct life {
    char folder[64];
    char segment[96];
    char policy[96];
    char store[112]; /* URL */
    char other
        [112]; /* of an empty store, for daemons that are to be refused by the segment and not by the store */
    pid_t daemon;
    struct life_shared *shared;
    uint32_t slots; /* 0: 1024 */
    uint32_t owners;
};

/* A folder, hf_test_policy() and an initialised store. */
void life_make(struct life *life);
void life_clean(struct life *life);
/* A daemon in a process of its own, with the real clock; returns when the segment is open for work. */
void life_serve(struct life *life);
/* A daemon that must not open: its status is this one, and it says that. Reads the other store. */
void life_refused(struct life *life, int status, const char *says);
/* What that process does. */
int life_daemon(struct life *life, void *arg);
/* Ends it: SIGTERM closes it in order, SIGKILL does not. */
void life_unserve(struct life *life, int signal_number);

/* ---- processes --------------------------------------------------------------------------------------------------- */

/* Runs f in a child; it ends with f's status. */
pid_t life_start(struct life *life, int (*f)(struct life *, void *), void *arg);
/* The exit status, or -signal. */
int life_wait(pid_t pid);
/* SIGKILL, and waits for it. */
void life_kill(pid_t pid);
void life_sleep_ms(uint32_t ms);
/* Waits until the word is at least value; ends the program after two minutes. */
void life_await(const uint64_t *word, uint64_t value);
void life_tell(uint64_t *word, uint64_t value);

/* ---- a worker's steps ---------------------------------------------------------------------------------------------- */

struct life_worker {
    struct holdfast_segment *segment;
    struct holdfast *handle;
};
/* Opens and joins; the program ends when it cannot. */
void life_join(const struct life *life, struct life_worker *worker);
void life_leave(struct life_worker *worker);
/* The result of a reserve of `cost` micros on tenant t, team u, with this ttl; *answer may be NULL. */
int life_reserve(const struct life_worker *worker, const char *id, const char *team, uint64_t cost,
                 uint64_t ttl_ms, struct holdfast_answer *answer);
int life_settle(const struct life_worker *worker, const char *id, uint64_t cost,
                struct holdfast_closing *closing);
/* used (held and settled) of the team's month of cost_micros, or held alone after a flush. */
uint64_t life_used(const struct life_worker *worker, const char *team);
uint64_t life_held(const struct life_worker *worker, const char *team);

/* ---- commands -------------------------------------------------------------------------------------------------------- */

/* Runs a program of this build (`holdfast` or `holdfastd`, by HOLDFAST and HOLDFASTD) until it ends, at most for a minute; what
 * it said on both streams goes to said. The exit status, or -signal. */
int life_command(const char *const argv[], char *said, size_t said_bytes);

/* ---- scenarios -------------------------------------------------------------------------------------------------------- */

struct life_scenario {
    const char *name;
    void (*run)(struct life *life);
    const char *says;
};
extern const struct life_scenario life_room[], life_files[], life_processes[], life_forks[], life_reload[];

#endif
