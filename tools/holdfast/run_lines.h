/* Lines of bounded length from a descriptor, each handed out as soon as it is there. */
#ifndef HF_TOOLS_HOLDFAST_RUN_LINES_H
#define HF_TOOLS_HOLDFAST_RUN_LINES_H

#include <stdbool.h>
#include <stddef.h>

/* Longest line, without its newline. A longer one is skipped whole. */
#define HF_LINES_BYTES_MAX (1 << 20)

enum hf_lines_got {
    HF_LINES_END = 0, /* end of input */
    HF_LINES_LINE = 1,
    HF_LINES_TOO_LONG = 2 /* one line was skipped; the next call gives the one after it */
};

/* Fields are private. */
struct hf_lines {
    int fd;
    char *buf; /* HF_LINES_BYTES_MAX + 1 */
    size_t start, end, looked;
    bool skipping, ended;
};

/* Reads from fd, which stays the caller's. 0 or -ENOMEM. */
int hf_lines_start(struct hf_lines *lines, int fd);
void hf_lines_free(struct hf_lines *lines);

/* The next line: *text (not ended by NUL) of *text_bytes bytes, valid until the next call. The last line needs no newline.
 * enum hf_lines_got, or a negative errno; -EINTR after a signal: call again to go on. */
int hf_lines_next(struct hf_lines *lines, const char **text, size_t *text_bytes);

#endif
