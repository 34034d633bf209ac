#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ERROR_BYTES_MAX 4000
#define STEP_NS         2000000

static void must(bool good, const char *what)
{
    if (!good) {
        (void)fprintf(stderr, "conformance: %s: %s\n", what, strerror(errno));
        exit(2);
    }
}

uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Runs in the child. */
static void become(char *const *argv, pid_t parent, int in_fd, int out_fd, int errors_fd)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent || dup2(in_fd, STDIN_FILENO) < 0 ||
        dup2(out_fd, STDOUT_FILENO) < 0 || dup2(errors_fd, STDERR_FILENO) < 0) {
        _exit(126);
    }
    (void)signal(SIGPIPE, SIG_DFL);
    (void)execvp(argv[0], argv);
    (void)dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

void child_start(struct child *child, char *const *argv)
{
    int to[2], from[2];
    pid_t parent = getpid();

    must(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0, "pipe");
    child->errors_fd = memfd_create("errors", MFD_CLOEXEC);
    must(child->errors_fd >= 0, "memfd_create");
    (void)fflush(NULL);
    child->pid = fork();
    must(child->pid >= 0, "fork");
    if (child->pid == 0) {
        become(argv, parent, to[0], from[1], child->errors_fd);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    child->to_fd = to[1];
    child->from_fd = from[0];
    child->status = 0;
    must(fcntl(to[1], F_SETFL, O_NONBLOCK) == 0 && fcntl(from[0], F_SETFL, O_NONBLOCK) == 0, "fcntl");
}

bool child_is_gone(struct child *child)
{
    if (child->pid > 0 && waitpid(child->pid, &child->status, WNOHANG) == child->pid) {
        child->pid = 0;
    }
    return child->pid == 0;
}

bool child_wait(struct child *child, uint64_t deadline_ns)
{
    while (!child_is_gone(child)) {
        struct timespec step = {.tv_nsec = STEP_NS};

        if (now_ns() >= deadline_ns) {
            (void)kill(child->pid, SIGKILL);
            (void)waitpid(child->pid, &child->status, 0);
            child->pid = 0;
            return false;
        }
        (void)nanosleep(&step, NULL);
    }
    return true;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
    }
    *fd = -1;
}

void child_finish(struct child *child)
{
    (void)child_wait(child, 0);
    close_fd(&child->to_fd);
    close_fd(&child->from_fd);
    close_fd(&child->errors_fd);
}

void child_describe(const struct child *child, char *text, size_t text_bytes)
{
    if (child->pid != 0) {
        (void)snprintf(text, text_bytes, "is still running");
    } else if (WIFEXITED(child->status)) {
        (void)snprintf(text, text_bytes, "ended with status %d", WEXITSTATUS(child->status));
    } else {
        (void)snprintf(text, text_bytes, "was ended by signal %d (%s)", WTERMSIG(child->status),
                       strsignal(WTERMSIG(child->status)));
    }
}

void child_print_errors(const struct child *child, const char *whose)
{
    char text[ERROR_BYTES_MAX + 1];
    off_t size = lseek(child->errors_fd, 0, SEEK_END);
    off_t from = size > ERROR_BYTES_MAX ? size - ERROR_BYTES_MAX : 0;
    ssize_t bytes = pread(child->errors_fd, text, ERROR_BYTES_MAX, from);

    if (size <= 0 || bytes <= 0) {
        return;
    }
    text[bytes] = '\0';
    (void)printf("  standard error of %s:\n", whose);
    for (char *rest = text, *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
        if (line[0] != '\0') {
            (void)printf("    %s\n", line);
        }
    }
}
