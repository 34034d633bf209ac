/* A command that is run as a child, and dies with the runner. */
#ifndef HF_TESTS_CONFORMANCE_CHILD_H
#define HF_TESTS_CONFORMANCE_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct child {
    /* 0: none runs. */
    pid_t pid;
    /* Both ends that are ours do not block; -1: closed. */
    int to_fd;
    int from_fd;
    /* A file without a name that collects its standard error. */
    int errors_fd;
    /* Of waitpid(), once it is gone. */
    int status;
};

/* Nanoseconds of a clock that only goes forward. */
uint64_t now_ns(void);

/* Starts argv (argv[0] is looked up in PATH when it has no slash). Ends the program when that is impossible; a command
 * that cannot be executed ends with status 127. */
void child_start(struct child *child, char *const *argv);

/* Waits for its end; at the deadline it is killed. False: it had to be killed. */
bool child_wait(struct child *child, uint64_t deadline_ns);

/* Whether it is gone by now. */
bool child_is_gone(struct child *child);

/* Kills it if it runs, and closes everything. */
void child_finish(struct child *child);

/* Puts in words how it ended. */
void child_describe(const struct child *child, char *text, size_t text_bytes);

/* Prints what it wrote to its standard error, the last 4,000 bytes, indented; nothing if it wrote nothing. */
void child_print_errors(const struct child *child, const char *whose);

#endif
