/* ctest: labels=valgrind */
/* The command's own files are in no library. */
#include "tools/holdfast/run_lines.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#include <cmocka.h>

/* A descriptor from which exactly these bytes can be read. */
static int input_of(const char *bytes, size_t cnt)
{
    int fd = memfd_create("lines", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, cnt), (ssize_t)cnt);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static void assert_next(struct hf_lines *lines, const char *expected)
{
    const char *text = NULL;
    size_t bytes = 0;

    assert_int_equal(hf_lines_next(lines, &text, &bytes), HF_LINES_LINE);
    assert_int_equal(bytes, strlen(expected));
    assert_memory_equal(text, expected, bytes);
}

static void assert_result(struct hf_lines *lines, int expected)
{
    const char *text = NULL;
    size_t bytes = 0;

    assert_int_equal(hf_lines_next(lines, &text, &bytes), expected);
}

static void lines_come_one_by_one(void **state)
{
    static const char input[] = "first\n\n  \nlast without newline";
    int fd = input_of(input, sizeof(input) - 1);
    struct hf_lines lines;

    (void)state;
    assert_int_equal(hf_lines_start(&lines, fd), 0);
    assert_next(&lines, "first");
    assert_next(&lines, "");
    assert_next(&lines, "  ");
    assert_next(&lines, "last without newline");
    assert_result(&lines, HF_LINES_END);
    assert_result(&lines, HF_LINES_END);
    hf_lines_free(&lines);
    (void)close(fd);
}

static void no_input_is_no_line(void **state)
{
    int fd = input_of("", 0);
    struct hf_lines lines;

    (void)state;
    assert_int_equal(hf_lines_start(&lines, fd), 0);
    assert_result(&lines, HF_LINES_END);
    hf_lines_free(&lines);
    (void)close(fd);
}

/* A line is handed out before anything that follows it is there. */
static void a_line_does_not_wait_for_the_next(void **state)
{
    int ends[2];
    struct hf_lines lines;

    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(hf_lines_start(&lines, ends[0]), 0);
    assert_int_equal(write(ends[1], "one\ntw", 6), 6);
    assert_next(&lines, "one");
    assert_int_equal(write(ends[1], "o\n", 2), 2);
    assert_next(&lines, "two");
    assert_int_equal(close(ends[1]), 0);
    assert_result(&lines, HF_LINES_END);
    hf_lines_free(&lines);
    (void)close(ends[0]);
}

/* Of a line of cnt bytes, between two others, with or without a newline at the end. */
static void check_long(size_t cnt, bool ended, int expected)
{
    char *input = malloc(cnt + 16);
    const char *text = NULL;
    size_t bytes = 0, used = 0;
    struct hf_lines lines;

    assert_non_null(input);
    memcpy(input, "a\n", 2);
    memset(input + 2, 'x', cnt);
    used = cnt + 2;
    if (ended) {
        memcpy(input + used, "\nb\n", 3);
        used += 3;
    }

    int fd = input_of(input, used);

    assert_int_equal(hf_lines_start(&lines, fd), 0);
    assert_next(&lines, "a");
    assert_int_equal(hf_lines_next(&lines, &text, &bytes), expected);
    if (expected == HF_LINES_LINE) {
        assert_int_equal(bytes, cnt);
        assert_memory_equal(text, input + 2, cnt);
    }
    if (ended) {
        assert_next(&lines, "b");
    }
    assert_result(&lines, HF_LINES_END);
    hf_lines_free(&lines);
    (void)close(fd);
    free(input);
}

static void the_longest_line_is_read(void **state)
{
    (void)state;
    check_long(HF_LINES_BYTES_MAX - 1, true, HF_LINES_LINE);
    check_long(HF_LINES_BYTES_MAX, true, HF_LINES_LINE);
    check_long(HF_LINES_BYTES_MAX, false, HF_LINES_LINE);
}

static void a_longer_line_is_skipped_and_the_next_one_read(void **state)
{
    static const size_t sizes[] = {HF_LINES_BYTES_MAX + 1, 2 * HF_LINES_BYTES_MAX, 2 * HF_LINES_BYTES_MAX + 1,
                                   2 * HF_LINES_BYTES_MAX + 2, 5 * HF_LINES_BYTES_MAX + 77};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        check_long(sizes[i], true, HF_LINES_TOO_LONG);
        check_long(sizes[i], false, HF_LINES_TOO_LONG);
    }
}

static void a_descriptor_that_fails_says_so(void **state)
{
    struct hf_lines lines;

    (void)state;
    assert_int_equal(hf_lines_start(&lines, -1), 0);
    assert_result(&lines, -EBADF);
    hf_lines_free(&lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_come_one_by_one),
        cmocka_unit_test(no_input_is_no_line),
        cmocka_unit_test(a_line_does_not_wait_for_the_next),
        cmocka_unit_test(the_longest_line_is_read),
        cmocka_unit_test(a_longer_line_is_skipped_and_the_next_one_read),
        cmocka_unit_test(a_descriptor_that_fails_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
