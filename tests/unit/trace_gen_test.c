#include "tools/common/trace.h"
#include "tools/common/trace_gen.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What the generator prints; the caller frees it. */
static char *printed(uint64_t row_cnt, uint64_t seed, size_t *bytes)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, bytes);

    assert_non_null(to);
    assert_int_equal(hf_trace_gen_write(to, row_cnt, seed), 0);
    assert_int_equal(fclose(to), 0);
    return text;
}

static void the_bundled_file_is_what_the_default_seed_prints(void **state)
{
    size_t bytes = 0;
    char *text = printed(HF_TRACE_GEN_ROWS, HF_TRACE_GEN_SEED, &bytes);
    char *bundled = calloc(1, bytes + 2);
    FILE *file = fopen(HF_TEST_SOURCE "/tools/data/synthetic.csv", "r");

    (void)state;
    assert_non_null(bundled);
    assert_non_null(file);
    assert_int_equal(fread(bundled, 1, bytes + 2, file), bytes);
    assert_memory_equal(bundled, text, bytes);
    (void)fclose(file);
    free(bundled);
    free(text);
}

static void the_seed_alone_decides(void **state)
{
    size_t first_bytes = 0, again_bytes = 0, other_bytes = 0;
    char *first = printed(50, 7, &first_bytes), *again = printed(50, 7, &again_bytes);
    char *other = printed(50, 8, &other_bytes);

    (void)state;
    assert_int_equal(first_bytes, again_bytes);
    assert_memory_equal(first, again, first_bytes);
    assert_string_not_equal(first, other);
    free(first);
    free(again);
    free(other);
}

static void what_is_printed_is_read_back(void **state)
{
    char why[256];
    size_t bytes = 0;
    char *text = printed(2000, 3, &bytes);
    FILE *stream = fmemopen(text, bytes, "r");
    struct hf_trace *trace = NULL;
    struct hf_trace_row row;
    struct hf_trace_gen gen;

    (void)state;
    assert_non_null(stream);
    assert_int_equal(hf_trace_open_stream(&trace, stream, "generated", NULL, NULL, why, sizeof(why)), 0);
    hf_trace_gen_start(&gen, 3);
    for (int i = 0; i < 2000; i++) {
        struct hf_trace_gen_row expected = hf_trace_gen_next(&gen);

        assert_int_equal(hf_trace_next(trace, &row), 0);
        assert_int_equal(row.at_ns, expected.at_ns / 100 * 100);
        assert_int_equal(row.input_tokens, expected.input_tokens);
        assert_int_equal(row.output_tokens, expected.output_tokens);
    }
    assert_int_equal(hf_trace_next(trace, &row), HF_TRACE_END);
    assert_int_equal(hf_trace_counts(trace).skipped_cnt, 0);
    hf_trace_close(trace);
    (void)fclose(stream);
    free(text);
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The header states the distributions. */
static void the_rows_are_distributed_as_stated(void **state)
{
    enum {
        ROWS = 100000
    };
    uint64_t *inputs = calloc(ROWS, sizeof(*inputs)), *outputs = calloc(ROWS, sizeof(*outputs));
    uint64_t failed_cnt = 0, short_gap_cnt = 0, last_ns = 0;
    struct hf_trace_gen gen;

    (void)state;
    assert_true(inputs != NULL && outputs != NULL);
    hf_trace_gen_start(&gen, 11);
    for (size_t i = 0; i < ROWS; i++) {
        struct hf_trace_gen_row row = hf_trace_gen_next(&gen);

        assert_in_range(row.input_tokens, 1, HF_TRACE_GEN_INPUT_MAX);
        assert_in_range(row.output_tokens, 0, HF_TRACE_GEN_OUTPUT_MAX);
        assert_true(row.at_ns >= last_ns);
        short_gap_cnt += row.at_ns - last_ns < 20000000;
        failed_cnt += row.output_tokens == 0;
        last_ns = row.at_ns;
        inputs[i] = row.input_tokens;
        outputs[i] = row.output_tokens;
    }
    qsort(inputs, ROWS, sizeof(*inputs), compare);
    qsort(outputs, ROWS, sizeof(*outputs), compare);
    assert_in_range(inputs[ROWS / 2], 880, 920);
    assert_in_range(outputs[ROWS / 2], 150, 165);
    /* One deviation is a factor of 2^(5/4): 900 * 2.378 */
    assert_in_range(inputs[ROWS * 8413 / 10000], 2000, 2300);
    assert_in_range(failed_cnt, ROWS / 120, ROWS / 80);
    /* 40 % come in bursts, of which 86 % have such a gap; 5 % of the others. */
    assert_in_range(short_gap_cnt, ROWS * 33 / 100, ROWS * 42 / 100);
    free(inputs);
    free(outputs);
}

static void what_cannot_be_written_is_told(void **state)
{
    FILE *full = fopen("/dev/full", "w");

    (void)state;
    assert_non_null(full);
    assert_int_equal(hf_trace_gen_write(full, 10000, 1), -ENOSPC);
    assert_int_equal(hf_trace_gen_write(full, (uint64_t)HF_TRACE_GEN_ROW_CNT_MAX + 1, 1), -EINVAL);
    (void)fclose(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bundled_file_is_what_the_default_seed_prints),
        cmocka_unit_test(the_seed_alone_decides),
        cmocka_unit_test(what_is_printed_is_read_back),
        cmocka_unit_test(the_rows_are_distributed_as_stated),
        cmocka_unit_test(what_cannot_be_written_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
