#include "session.h"

#include "match.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES 65536
#define SHOWN_MAX  3000

/* A place in the sequence of the lines: a step, and which turn of it, from 1. */
struct place {
    size_t step_idx;
    unsigned long turn;
};

struct buffer {
    char *bytes;
    size_t used;
    size_t size;
};

struct session {
    const struct scenario *scenario;
    struct child *child;
    json_t *captures;
    /* The next line to send, and the one whose answer is the next to come. */
    struct place send;
    struct place check;
    unsigned long in_flight;
    unsigned long in_flight_max;
    unsigned long answered;
    struct buffer to_send;
    size_t sent_bytes;
    struct buffer received;
    uint64_t deadline_ns;
};

void report(const struct scenario *scenario, const char *format, ...)
{
    va_list args;

    (void)printf("FAIL %s: ", scenario->name);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)printf("\n  file: %s\n", scenario->path);
}

static void append(struct buffer *buffer, const char *bytes, size_t cnt)
{
    if (buffer->size - buffer->used < cnt) {
        buffer->size = (buffer->used + cnt) * 2;
        buffer->bytes = realloc(buffer->bytes, buffer->size);
        if (buffer->bytes == NULL) {
            (void)fputs("conformance: out of memory\n", stderr);
            exit(2);
        }
    }
    memcpy(buffer->bytes + buffer->used, bytes, cnt);
    buffer->used += cnt;
}

static const struct step *step_at(const struct session *s, struct place place)
{
    return place.step_idx < s->scenario->step_cnt ? &s->scenario->steps[place.step_idx] : NULL;
}

/* The turn that {i} stands for; 0 in a step that is not repeated. */
static unsigned long turn_of(const struct step *step, struct place place)
{
    return step->repeat == 0 ? 0 : place.turn;
}

static void advance(const struct session *s, struct place *place)
{
    if (place->turn < step_at(s, *place)->repeat) {
        place->turn++;
    } else {
        place->step_idx++;
        place->turn = 1;
    }
}

/* The line of a step, without its newline; NULL, with *missing, when it needs an answer that has not come. */
static char *line_of(const struct session *s, struct place place, size_t *bytes, char missing[64])
{
    const struct step *step = step_at(s, place);
    char *line = NULL;

    if (step->in == NULL) {
        *bytes = step->raw_bytes;
        line = malloc(step->raw_bytes + 1);
        if (line != NULL) {
            memcpy(line, step->raw, step->raw_bytes);
        }
        return line;
    }

    json_t *in = fill_in(step->in, turn_of(step, place), s->captures, missing);

    if (in != NULL) {
        line = one_line(in);
        *bytes = strlen(line);
    }
    json_decref(in);
    return line;
}

static void print_line(const char *what, const char *bytes, size_t cnt)
{
    (void)printf("  %s: ", what);
    for (size_t i = 0; i < cnt && i < SHOWN_MAX; i++) {
        unsigned char c = (unsigned char)bytes[i];

        if (c < ' ' || c == 0x7f) {
            (void)printf("\\x%02x", c);
        } else {
            (void)putchar(c);
        }
    }
    (void)printf("%s\n", cnt > SHOWN_MAX ? "…" : "");
}

/* Says which step is meant and what was sent for it. */
static void print_step(const struct session *s)
{
    const struct step *step = step_at(s, s->check);
    char missing[64];
    size_t bytes = 0;
    char *line = line_of(s, s->check, &bytes, missing);

    (void)printf("  line: %lu", step->line);
    if (step->repeat != 0) {
        (void)printf(", turn %lu of %lu", s->check.turn, step->repeat);
    }
    (void)printf("\n");
    if (line != NULL) {
        print_line("sent", line, bytes);
    }
    free(line);
}

static void print_expected(const struct session *s)
{
    const struct step *step = step_at(s, s->check);
    char missing[64];
    json_t *out = step->out == NULL ? NULL : fill_in(step->out, turn_of(step, s->check), NULL, missing);
    char *text = out == NULL ? NULL : one_line(out);

    if (text != NULL) {
        print_line("expected", text, strlen(text));
    }
    free(text);
    json_decref(out);
}

static bool check_answer(struct session *s, const char *text, size_t bytes)
{
    const struct step *step = step_at(s, s->check);
    struct mismatch mismatch = {.path = ""};
    char missing[64];
    json_error_t error;
    json_t *answer = NULL;
    json_t *out = step->out == NULL ? NULL : fill_in(step->out, turn_of(step, s->check), NULL, missing);
    bool good = false;

    /* The parser overlooks a NUL behind a number. */
    if (memchr(text, '\0', bytes) == NULL) {
        answer = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    } else {
        (void)snprintf(error.text, sizeof(error.text), "it has a NUL byte");
    }
    good = json_is_object(answer) && (out == NULL || matches(out, answer, s->captures, &mismatch));
    if (!json_is_object(answer)) {
        report(s->scenario, "an answer is no JSON object%s%s", answer == NULL ? ": " : "",
               answer == NULL ? error.text : "");
    } else if (!good) {
        report(s->scenario, "line %lu: %s: %s", step->line, mismatch.path, mismatch.why);
    }
    if (!good) {
        print_step(s);
        print_line("came", text, bytes);
        print_expected(s);
    }
    json_decref(answer);
    json_decref(out);
    return good;
}

/* Matches the answers that are whole. */
static bool check_received(struct session *s)
{
    size_t from = 0;
    char *end = NULL;

    while ((end = memchr(s->received.bytes + from, '\n', s->received.used - from)) != NULL) {
        size_t bytes = (size_t)(end - s->received.bytes) - from;

        if (s->in_flight == 0) {
            report(s->scenario, "the command said more than there were lines");
            print_line("came", s->received.bytes + from, bytes);
            return false;
        }
        if (!check_answer(s, s->received.bytes + from, bytes)) {
            return false;
        }
        advance(s, &s->check);
        s->in_flight--;
        s->answered++;
        from += bytes + 1;
    }
    s->received.used -= from;
    memmove(s->received.bytes, s->received.bytes + from, s->received.used);
    return true;
}

/* Puts lines into the buffer as far as they may go ahead of their answers. */
static bool queue_lines(struct session *s)
{
    unsigned long max = s->answered == 0 ? 1 : s->in_flight_max;

    while (step_at(s, s->send) != NULL && s->in_flight < max) {
        char missing[64] = "";
        size_t bytes = 0;
        char *line = line_of(s, s->send, &bytes, missing);

        if (line == NULL && s->in_flight == 0) {
            report(s->scenario, "line %lu: no earlier answer gave %s", step_at(s, s->send)->line, missing);
            return false;
        }
        if (line == NULL) {
            break;
        }
        append(&s->to_send, line, bytes);
        append(&s->to_send, "\n", 1);
        free(line);
        advance(s, &s->send);
        s->in_flight++;
    }
    return true;
}

static void close_input(struct session *s)
{
    if (s->child->to_fd >= 0) {
        (void)close(s->child->to_fd);
        s->child->to_fd = -1;
    }
}

/* Writes what can be written. A command that does not read any more shows at its output. */
static void write_some(struct session *s)
{
    ssize_t cnt = write(s->child->to_fd, s->to_send.bytes + s->sent_bytes, s->to_send.used - s->sent_bytes);

    if (cnt > 0) {
        s->sent_bytes += (size_t)cnt;
    } else if (cnt < 0 && errno != EAGAIN && errno != EINTR) {
        close_input(s);
    }
    if (s->sent_bytes == s->to_send.used) {
        s->sent_bytes = 0;
        s->to_send.used = 0;
    }
}

/* Reads what is there: 1, 0 at the end of the command's output, -1 when an answer is wrong. */
static int read_some(struct session *s)
{
    char bytes[READ_BYTES];
    ssize_t cnt = read(s->child->from_fd, bytes, sizeof(bytes));

    if (cnt < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 1;
    }
    if (cnt <= 0) {
        return 0;
    }
    append(&s->received, bytes, (size_t)cnt);
    return check_received(s) ? 1 : -1;
}

static bool out_of_time(struct session *s)
{
    report(s->scenario, "the time for the scenario is over after %lu answers", s->answered);
    if (step_at(s, s->check) != NULL) {
        (void)printf("  waiting for an answer to:\n");
        print_step(s);
    } else {
        (void)printf("  waiting for the command to end\n");
    }
    return false;
}

/* Until the command's output ends: sends, reads, matches. */
static bool exchange(struct session *s)
{
    int more = 1;

    while (more > 0) {
        uint64_t now = now_ns();
        struct pollfd fds[2] = {{.fd = s->child->from_fd, .events = POLLIN}, {.fd = -1, .events = POLLOUT}};

        if (now >= s->deadline_ns) {
            return out_of_time(s);
        }
        if (!queue_lines(s)) {
            return false;
        }
        if (step_at(s, s->send) == NULL && s->to_send.used == 0) {
            close_input(s);
        }
        if (s->to_send.used > 0) {
            fds[1].fd = s->child->to_fd;
        }
        if (poll(fds, 2, (int)((s->deadline_ns - now) / 1000000) + 1) < 0 && errno != EINTR) {
            report(s->scenario, "poll: %s", strerror(errno));
            return false;
        }
        if (fds[1].fd >= 0 && fds[1].revents != 0) {
            write_some(s);
        }
        if (fds[0].revents != 0) {
            more = read_some(s);
        }
    }
    return more == 0;
}

/* The command's output has ended: nothing may be missing or left over, and its status must be 0. */
static bool check_end(struct session *s)
{
    char how[128];
    bool ended = child_wait(s->child, s->deadline_ns);

    child_describe(s->child, how, sizeof(how));
    if (step_at(s, s->check) != NULL) {
        report(s->scenario, "the command %s after %lu answers", ended ? how : "closed its output",
               s->answered);
        (void)printf("  without an answer to:\n");
        print_step(s);
        return false;
    }
    if (s->received.used > 0) {
        report(s->scenario, "the command said more, and not a whole line");
        print_line("came", s->received.bytes, s->received.used);
        return false;
    }
    if (!ended) {
        return out_of_time(s);
    }
    if (s->child->status != 0) {
        report(s->scenario, "all answers were right, but the command %s in place of 0", how);
        return false;
    }
    return true;
}

bool session_run(const struct scenario *scenario, struct child *child, unsigned long in_flight_max,
                 uint64_t deadline_ns, unsigned long *step_cnt)
{
    struct session s = {
        .scenario = scenario,
        .child = child,
        .captures = json_object(),
        .send = {0, 1},
        .check = {0, 1},
        .in_flight_max = in_flight_max,
        .deadline_ns = deadline_ns,
    };
    bool good = exchange(&s) && check_end(&s);

    *step_cnt += s.answered;
    free(s.to_send.bytes);
    free(s.received.bytes);
    json_decref(s.captures);
    return good;
}
