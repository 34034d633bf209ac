#include "tools/holdfast/run_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUF_BYTES ((size_t)HF_LINES_BYTES_MAX + 1)

int hf_lines_start(struct hf_lines *lines, int fd)
{
    *lines = (struct hf_lines){.fd = fd, .buf = malloc(BUF_BYTES)};
    return lines->buf == NULL ? -ENOMEM : 0;
}

void hf_lines_free(struct hf_lines *lines)
{
    free(lines->buf);
    lines->buf = NULL;
}

/* Takes the line that ends before `end`, and `skip` bytes after it. */
static int take(struct hf_lines *lines, size_t end, size_t skip, const char **text, size_t *text_bytes)
{
    *text = lines->buf + lines->start;
    *text_bytes = end - lines->start;
    lines->start = lines->looked = end + skip;
    return HF_LINES_LINE;
}

/* Room for more at the end of the buffer: the begun line moves to its front; one that fills it all is too long. */
static void make_room(struct hf_lines *lines)
{
    if (lines->end < BUF_BYTES) {
        return;
    }
    if (lines->start == 0) {
        lines->skipping = true;
        lines->start = lines->end;
    }
    memmove(lines->buf, lines->buf + lines->start, lines->end - lines->start);
    lines->end -= lines->start;
    lines->looked -= lines->start < lines->looked ? lines->start : lines->looked;
    lines->start = 0;
}

int hf_lines_next(struct hf_lines *lines, const char **text, size_t *text_bytes)
{
    for (;;) {
        const char *newline = memchr(lines->buf + lines->looked, '\n', lines->end - lines->looked);

        if (newline != NULL) {
            (void)take(lines, (size_t)(newline - lines->buf), 1, text, text_bytes);
            if (!lines->skipping) {
                return HF_LINES_LINE;
            }
            lines->skipping = false;
            return HF_LINES_TOO_LONG;
        }
        lines->looked = lines->end;
        if (lines->ended && lines->skipping) {
            lines->skipping = false;
            lines->start = lines->end;
            return HF_LINES_TOO_LONG;
        }
        if (lines->ended) {
            return lines->start == lines->end ? HF_LINES_END : take(lines, lines->end, 0, text, text_bytes);
        }
        make_room(lines);

        ssize_t got = read(lines->fd, lines->buf + lines->end, BUF_BYTES - lines->end);

        if (got < 0) {
            return -errno;
        }
        lines->ended = got == 0;
        lines->end += (size_t)got;
    }
}
