/* Stands in for holdfast and holdfastd to test the runner: right and wrong answers on order.
 *
 * FAKE says what goes wrong (nothing by default). `run` answers the k-th line with the k-th line of the file
 * FAKE_ANSWERS; without it, with {"echo": the line, where it is JSON, "hex": its bytes, "pad": FAKE_PAD characters}.
 * A policy with "bad" in its name is refused. FAKE_FOLDER has a file for each segment that is served. */
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static bool is(const char *mode)
{
    const char *fake = getenv("FAKE");

    return fake != NULL && strcmp(fake, mode) == 0;
}

static const char *option(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return argv[i + 1];
        }
    }
    return NULL;
}

static void marker(char path[4096], const char *segment)
{
    (void)snprintf(path, 4096, "%s/%s", getenv("FAKE_FOLDER"), segment);
}

static void pause_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&pause, NULL);
}

static int serve(int argc, char **argv)
{
    char path[4096];
    sigset_t set;
    int caught = 0;
    FILE *file = NULL;

    if (strstr(option(argc, argv, "--policy"), "bad") != NULL && !is("daemon-accepts")) {
        (void)fputs("fake: a bad policy\n", stderr);
        return is("status-1") ? 1 : 2;
    }
    if (is("daemon-dies")) {
        (void)fputs("fake: no store today\n", stderr);
        return 3;
    }
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    marker(path, option(argc, argv, "--segment"));
    pause_ms(50);
    file = fopen(path, "w");
    if (file == NULL || option(argc, argv, "--store") == NULL || option(argc, argv, "--clock-ms") == NULL) {
        return 4;
    }
    (void)fclose(file);
    do {
        (void)sigwait(&set, &caught);
    } while (is("daemon-stays"));
    (void)unlink(path);
    return is("daemon-status") ? 1 : 0;
}

static void answer_echo(const char *line, size_t bytes)
{
    const char *pad = getenv("FAKE_PAD");
    json_t *echo = json_loadb(line, bytes, JSON_ALLOW_NUL, NULL);
    char *text = echo == NULL ? NULL : json_dumps(echo, JSON_COMPACT);

    (void)printf("{\"echo\":%s,\"hex\":\"", text == NULL ? "null" : text);
    for (size_t i = 0; i < bytes; i++) {
        (void)printf("%02x", (unsigned char)line[i]);
    }
    (void)printf("\",\"pad\":\"%*s\"}\n", pad == NULL ? 0 : (int)strtol(pad, NULL, 10), "");
    free(text);
    json_decref(echo);
}

/* Answers until the input ends; the exit status, -1 to go on with the end of the run. */
static int answer_lines(FILE *answers)
{
    char *line = NULL, *answer = NULL;
    size_t line_size = 0, answer_size = 0;
    unsigned long cnt = 0;
    ssize_t bytes = 0;

    while ((bytes = getline(&line, &line_size, stdin)) > 0) {
        cnt++;
        if (cnt == 2 && is("short")) {
            return 0;
        }
        if (cnt == 2 && is("crash")) {
            (void)fputs("fake: going down\n", stderr);
            (void)raise(SIGKILL);
        }
        if (answers == NULL) {
            answer_echo(line, (size_t)bytes - (line[bytes - 1] == '\n'));
        } else if ((bytes = getline(&answer, &answer_size, answers)) > 0) {
            (void)fwrite(answer, 1, (size_t)bytes, stdout);
        }
        if (!is("buffered")) {
            (void)fflush(stdout);
        }
    }
    free(line);
    free(answer);
    return -1;
}

static int run(int argc, char **argv)
{
    const char *policy = option(argc, argv, "--policy"), *segment = option(argc, argv, "--segment");
    const char *path = getenv("FAKE_ANSWERS");
    FILE *answers = NULL;
    char file[4096];
    int status = 0;

    if (segment != NULL) {
        marker(file, segment);
    }
    if (segment != NULL ? access(file, F_OK) != 0 : policy == NULL) {
        (void)fputs("fake: no such segment\n", stderr);
        return 2;
    }
    if (policy != NULL && strstr(policy, "bad") != NULL && !is("accepts")) {
        if (is("answers")) {
            (void)puts("{\"ok\":true}");
        }
        return is("status-1") ? 1 : 2;
    }
    if (is("early")) {
        (void)puts("{\"ok\":true}");
        (void)fflush(stdout);
    }
    if (path != NULL) {
        answers = fopen(path, "r");
    }
    status = answer_lines(answers);
    if (answers != NULL) {
        (void)fclose(answers);
    }
    if (status >= 0) {
        return status;
    }
    if (is("more-lines")) {
        (void)puts("{\"ok\":true}");
    }
    if (is("more-bytes")) {
        (void)fputs("{", stdout);
    }
    if (is("hangs")) {
        pause_ms(60000);
    }
    return is("status") ? 5 : 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "store") == 0) {
        return is("no-store") ? 1 : 0;
    }
    return argc > 1 && strcmp(argv[1], "run") == 0 ? run(argc, argv) : serve(argc, argv);
}
