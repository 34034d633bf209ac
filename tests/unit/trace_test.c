/* ctest: labels=valgrind */
#include "tools/common/trace.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define AZURE    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
#define BURSTGPT "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
#define NS_PER_S INT64_C(1000000000)

/* A trace in memory and what was said of its rows. */
struct fixture {
    char *text;
    FILE *stream;
    struct hf_trace *trace;
    unsigned bad_cnt;
    uint64_t bad_line;
    char bad_reason[256];
};

static void on_bad_row(void *context, uint64_t line, const char *reason)
{
    struct fixture *f = context;

    f->bad_cnt++;
    f->bad_line = line;
    (void)snprintf(f->bad_reason, sizeof(f->bad_reason), "%s", reason);
}

static void open_bytes(struct fixture *f, const char *text, size_t bytes)
{
    char why[512] = "";

    *f = (struct fixture){.text = malloc(bytes)};
    assert_non_null(f->text);
    memcpy(f->text, text, bytes);
    f->stream = fmemopen(f->text, bytes, "r");
    assert_non_null(f->stream);
    assert_int_equal(hf_trace_open_stream(&f->trace, f->stream, "test", on_bad_row, f, why, sizeof(why)), 0);
}

static void open_text(struct fixture *f, const char *text)
{
    open_bytes(f, text, strlen(text));
}

static void close_all(struct fixture *f)
{
    hf_trace_close(f->trace);
    (void)fclose(f->stream);
    free(f->text);
}

static void assert_row(struct fixture *f, uint64_t line, int64_t at_ns, uint64_t input, uint64_t output)
{
    struct hf_trace_row row;

    assert_int_equal(hf_trace_next(f->trace, &row), 0);
    assert_int_equal(row.line, line);
    assert_int_equal(row.at_ns, at_ns);
    assert_int_equal(row.input_tokens, input);
    assert_int_equal(row.output_tokens, output);
    assert_true(row.failed == (output == 0));
}

static void assert_end(struct fixture *f)
{
    struct hf_trace_row row;

    assert_int_equal(hf_trace_next(f->trace, &row), HF_TRACE_END);
    assert_int_equal(hf_trace_next(f->trace, &row), HF_TRACE_END);
}

/* A line between two good rows is reported with its number and this in its reason, and both rows are there. */
static void assert_bad(const char *header, const char *line, const char *good, const char *reason)
{
    char text[16384];
    struct fixture f;

    (void)snprintf(text, sizeof(text), "%s%s\n%s\n%s", header, good, line, good);
    open_text(&f, text);
    assert_row(&f, 2, 0, 7, 8);
    assert_row(&f, 4, 0, 7, 8);
    assert_end(&f);
    if (f.bad_cnt != 1 || f.bad_line != 3 || strstr(f.bad_reason, reason) == NULL) {
        fail_msg("'%s': %u reports, line %d: '%s'", line, f.bad_cnt, (int)f.bad_line, f.bad_reason);
    }
    assert_int_equal(hf_trace_counts(f.trace).skipped_cnt, 1);
    assert_int_equal(hf_trace_counts(f.trace).row_cnt, 2);
    close_all(&f);
}

static void bad_azure(const char *line, const char *reason)
{
    assert_bad(AZURE, line, "2023-11-16 18:17:03.9799600,7,8", reason);
}

static void bad_burstgpt(const char *line, const char *reason)
{
    assert_bad(BURSTGPT, line, "5,ChatGPT,7,8,15,Conversation log", reason);
}

static void the_azure_format(void **state)
{
    struct fixture f;

    (void)state;
    open_text(&f, AZURE "2023-11-16 18:17:03.9799600,4808,10\r\n"
                        "2023-11-16 18:17:04.0319600,3180,8\r\n"
                        "2023-11-16 18:17:04.0319601,0,0\r\n"
                        "2023-11-17 00:00:00,110,27");
    assert_int_equal(hf_trace_format(f.trace), HF_TRACE_AZURE);
    assert_row(&f, 2, 0, 4808, 10);
    assert_row(&f, 3, 52000000, 3180, 8);
    assert_row(&f, 4, 52000100, 0, 0);
    assert_row(&f, 5, 20576020040000, 110, 27);
    assert_end(&f);
    assert_int_equal(f.bad_cnt, 0);
    close_all(&f);
}

static void azure_times_with_an_offset_and_over_a_leap_day(void **state)
{
    struct fixture f;

    (void)state;
    open_text(&f, AZURE "2024-02-28 23:59:59.5+00:00,1,1\n"
                        "2024-02-29 01:00:00.123456789123+01:00,2,2\n"
                        "2024-02-29 00:00:01Z,3,3\n"
                        "2024-02-29 19:30:00-04:30,4,4\n"
                        "2200-03-01 00:00:00,5,5\n");
    assert_row(&f, 2, 0, 1, 1);
    assert_row(&f, 3, 623456789, 2, 2);
    assert_row(&f, 4, NS_PER_S * 3 / 2, 3, 3);
    assert_row(&f, 5, 86400 * NS_PER_S + NS_PER_S / 2, 4, 4);
    /* 64283 whole days after 2024-02-29 00:00; 2100 and 2200 have no leap day */
    assert_row(&f, 6, INT64_C(64283) * 86400 * NS_PER_S + NS_PER_S / 2, 5, 5);
    assert_end(&f);
    close_all(&f);
}

static void the_burstgpt_format(void **state)
{
    struct fixture f;
    struct hf_trace_row row;

    (void)state;
    open_text(&f, "\xef\xbb\xbf" BURSTGPT "5,ChatGPT,472,18,490,Conversation log\n"
                  "45.25,\"GPT-4\",\"1087\",230,1317,\"Conversation, \"\"log\"\"\"\r\n"
                  "\r\n"
                  "1106,ChatGPT,5,0,5,\n");
    assert_int_equal(hf_trace_format(f.trace), HF_TRACE_BURSTGPT);
    assert_row(&f, 2, 0, 472, 18);
    assert_int_equal(hf_trace_next(f.trace, &row), 0);
    assert_int_equal(row.at_ns, 40250000000);
    assert_string_equal(row.model, "GPT-4");
    assert_int_equal(row.input_tokens, 1087);
    assert_false(row.failed);
    assert_row(&f, 5, 1101 * NS_PER_S, 5, 0);
    assert_end(&f);
    assert_int_equal(f.bad_cnt, 0);
    close_all(&f);
}

static void time_never_goes_back(void **state)
{
    struct fixture f;

    (void)state;
    open_text(&f, BURSTGPT "100,m,1,1,2,a\n90,m,2,1,3,a\n150,m,3,1,4,a\n149.999,m,4,1,5,a\n150,m,5,1,6,a\n"
                           "151,m,6,1,7,a\n");
    assert_row(&f, 2, 0, 1, 1);
    assert_row(&f, 3, 0, 2, 1);
    assert_row(&f, 4, 50 * NS_PER_S, 3, 1);
    assert_row(&f, 5, 50 * NS_PER_S, 4, 1);
    assert_row(&f, 6, 50 * NS_PER_S, 5, 1);
    assert_row(&f, 7, 51 * NS_PER_S, 6, 1);
    assert_int_equal(hf_trace_counts(f.trace).out_of_order_cnt, 2);
    close_all(&f);
}

/* A malformed row moves neither the first time nor the last. */
static void a_malformed_row_has_no_place_in_time(void **state)
{
    struct fixture f;

    (void)state;
    open_text(&f, BURSTGPT "1,m,-1,1,2,a\n100,m,1,1,2,a\n900,m,x,1,2,a\n101,m,2,1,3,a");
    assert_row(&f, 3, 0, 1, 1);
    assert_row(&f, 5, NS_PER_S, 2, 1);
    assert_end(&f);
    assert_int_equal(f.bad_cnt, 2);
    close_all(&f);
}

static void malformed_azure_rows(void **state)
{
    (void)state;
    bad_azure("2023-11-16 18:17:03.9,7", "2 columns in place of 3");
    bad_azure("2023-11-16 18:17:03.9,7,8,9", "4 columns");
    bad_azure("2023-11-16 18:17:03.9,7,8,9,9,9,9,9,9,9", "10 columns");
    bad_azure("x", "1 columns");
    bad_azure("2023-11-16 18:17:03.9,,8", "ContextTokens is no whole number");
    bad_azure("2023-11-16 18:17:03.9,7,8.0", "GeneratedTokens is no whole number: '8.0'");
    bad_azure("2023-11-16 18:17:03.9,7e1,8", "ContextTokens is no whole number");
    bad_azure("2023-11-16 18:17:03.9, 7,8", "ContextTokens is no whole number");
    bad_azure("2023-11-16 18:17:03.9,+7,8", "ContextTokens is no whole number");
    bad_azure("2023-11-16 18:17:03.9,-,8", "ContextTokens is no whole number");
    bad_azure("2023-11-16 18:17:03.9,-7,8", "ContextTokens is negative");
    bad_azure("2023-11-16 18:17:03.9,72057594037927936,8", "ContextTokens is above 2^56 - 1");
    bad_azure("2023-11-16 18:17:03.9,7,18446744073709551616", "GeneratedTokens is above 2^56 - 1");
    bad_azure("2023-11-16 18:17:03.9,7,99999999999999999999999999", "GeneratedTokens is above");
    bad_azure("2023-11-16 18:17:03.9,7,8\x1b[2J", "no whole number: '8?[2J'");
    bad_azure("2023-11-16 18:17:03.9,\"7,8", "quotes");
    bad_azure("2023-11-16 18:17:03.9,7\",8", "quotes");
    bad_azure("2023-11-16 18:17:03.9,\"7\"7,8", "quotes");
}

static void malformed_azure_times(void **state)
{
    static const char *const times[] = {
        "",
        "5",
        "2023-11-16",
        "2023-11-16 18:17",
        "2023-11-16T18:17:03",
        "2023-11-16 18:17:03.",
        "2023-11-16 18:17:03 ",
        "2023-11-16 18:17:60",
        "2023-11-16 18:60:03",
        "2023-11-16 24:17:03",
        "2023-13-16 18:17:03",
        "2023-00-16 18:17:03",
        "2023-11-31 18:17:03",
        "2023-11-00 18:17:03",
        "2023-02-29 18:17:03",
        "1900-02-29 18:17:03",
        "0000-01-01 18:17:03",
        "2023-11-16 18:17:03+1:00",
        "2023-11-16 18:17:03+01:00x",
        "2023-11-16 18:17:03+24:00",
        "2023-11-16 18:17:03Zx",
        "23-11-16 18:17:03",
        "-023-11-16 18:17:03",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        char line[128];

        (void)snprintf(line, sizeof(line), "%s,7,8", times[i]);
        bad_azure(line, "TIMESTAMP is no time");
    }
    bad_azure("9999-01-01 00:00:00,7,8", "more than 584 years");
}

static void malformed_burstgpt_rows(void **state)
{
    (void)state;
    bad_burstgpt("5,ChatGPT,7,8,15", "5 columns in place of 6");
    bad_burstgpt("5,ChatGPT,7,8,15,Conversation, log", "7 columns in place of 6");
    bad_burstgpt("-5,ChatGPT,7,8,15,x", "Timestamp is no time");
    bad_burstgpt("5s,ChatGPT,7,8,15,x", "Timestamp is no time");
    bad_burstgpt("5.,ChatGPT,7,8,15,x", "Timestamp is no time");
    bad_burstgpt(".5,ChatGPT,7,8,15,x", "Timestamp is no time");
    bad_burstgpt("1e3,ChatGPT,7,8,15,x", "Timestamp is no time");
    bad_burstgpt("99999999999999999999,ChatGPT,7,8,15,x", "Timestamp is no time");
    bad_burstgpt("72057594037927935,ChatGPT,7,8,15,x", "more than 584 years");
    bad_burstgpt("5,,7,8,15,x", "Model is no name");
    bad_burstgpt("5,\xff,7,8,15,x", "Model is no name");
    bad_burstgpt("5,ChatGPT,-7,8,15,x", "Request tokens is negative");
    bad_burstgpt("5,ChatGPT,7,x,15,x", "Response tokens is no whole number");
    bad_burstgpt("5,ChatGPT,7,8,,x", "Total tokens is no whole number");
}

static void an_over_long_line_is_one_malformed_row(void **state)
{
    char line[3 * HF_TRACE_LINE_BYTES_MAX];

    (void)state;
    memset(line, '1', sizeof(line));
    line[HF_TRACE_LINE_BYTES_MAX + 1] = '\0';
    bad_azure(line, "longer than 4095 bytes");
    line[HF_TRACE_LINE_BYTES_MAX + 1] = '1';
    line[sizeof(line) - 1] = '\0';
    bad_azure(line, "longer than 4095 bytes");
    /* The longest line that is read, and its CR. */
    line[HF_TRACE_LINE_BYTES_MAX] = '\0';
    bad_azure(line, "1 columns");
    line[HF_TRACE_LINE_BYTES_MAX] = '\r';
    line[HF_TRACE_LINE_BYTES_MAX + 1] = '\0';
    bad_azure(line, "1 columns");
}

static void a_nul_byte_is_a_malformed_row(void **state)
{
    static const char text[] = AZURE "2023-11-16 18:17:03,7,8\0\n2023-11-16 18:17:03,\0"
                                     "7,8\n2023-11-16 18:17:03,7,8\n";
    struct fixture f;

    (void)state;
    open_bytes(&f, text, sizeof(text) - 1);
    assert_row(&f, 4, 0, 7, 8);
    assert_end(&f);
    assert_int_equal(f.bad_cnt, 2);
    assert_string_equal(f.bad_reason, "a NUL byte in the line");
    close_all(&f);
}

static void an_unknown_header_names_those_that_are_known(void **state)
{
    static const char *const headers[] = {
        "",
        "\n",
        "a,b,c\n",
        "2023-11-16 18:17:03,7,8\n",
        "TIMESTAMP,ContextTokens\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens,More\n",
        "TIMESTAMP;ContextTokens;GeneratedTokens\n",
        "\"TIMESTAMP,ContextTokens,GeneratedTokens\n",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log type\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        char text[128] = "", why[512] = "";
        FILE *stream = NULL;
        struct hf_trace *trace = NULL;

        (void)snprintf(text, sizeof(text), "%s", headers[i]);
        stream = text[0] == '\0' ? fopen("/dev/null", "r") : fmemopen(text, strlen(text), "r");
        assert_non_null(stream);
        assert_int_equal(hf_trace_open_stream(&trace, stream, "my.csv", NULL, NULL, why, sizeof(why)), 1);
        assert_null(trace);
        assert_non_null(strstr(why, "my.csv"));
        assert_non_null(strstr(why, "'TIMESTAMP,ContextTokens,GeneratedTokens'"));
        assert_non_null(
            strstr(why, "'Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type'"));
        (void)fclose(stream);
    }
}

static void a_header_may_be_quoted(void **state)
{
    struct fixture f;

    (void)state;
    open_text(&f, "\xef\xbb\xbf\"TIMESTAMP\",\"ContextTokens\",GeneratedTokens\n2023-11-16 18:17:03,7,8");
    assert_row(&f, 2, 0, 7, 8);
    close_all(&f);
}

static void a_file_that_cannot_be_read_is_told(void **state)
{
    struct hf_trace *trace = NULL;
    char why[512] = "";

    (void)state;
    assert_int_equal(hf_trace_open(&trace, "/nowhere/x.csv", NULL, NULL, why, sizeof(why)), -ENOENT);
    assert_non_null(strstr(why, "/nowhere/x.csv: cannot open"));
    assert_int_equal(hf_trace_open(&trace, "/", NULL, NULL, why, sizeof(why)), -EISDIR);
    assert_non_null(strstr(why, "/: cannot read"));
    assert_null(trace);
    hf_trace_close(NULL);
}

static void real_trace(const char *name, uint64_t row_cnt, uint64_t failed_cnt)
{
    const char *shared = getenv("HOLDFAST_SHARED");
    char path[4096], why[512] = "";
    struct hf_trace *trace = NULL;
    struct hf_trace_row row;
    uint64_t failed = 0;
    int rc = 0;

    (void)snprintf(path, sizeof(path), "%s/traces/%s", shared == NULL ? HF_TEST_SHARED : shared, name);
    rc = hf_trace_open(&trace, path, NULL, NULL, why, sizeof(why));
    if (rc == -ENOENT) {
        skip();
    }
    assert_int_equal(rc, 0);
    while ((rc = hf_trace_next(trace, &row)) == 0) {
        failed += row.failed;
    }
    assert_int_equal(rc, HF_TRACE_END);
    assert_int_equal(hf_trace_counts(trace).row_cnt, row_cnt);
    assert_int_equal(hf_trace_counts(trace).skipped_cnt, 0);
    assert_int_equal(hf_trace_counts(trace).out_of_order_cnt, 0);
    assert_int_equal(failed, failed_cnt);
    hf_trace_close(trace);
}

static void the_azure_code_trace_is_read_whole(void **state)
{
    (void)state;
    real_trace("azure-llm-2023-code.csv", 8819, 0);
}

static void the_azure_conversation_trace_is_read_whole(void **state)
{
    (void)state;
    real_trace("azure-llm-2023-conv.csv", 19366, 0);
}

static void the_burstgpt_sample_is_read_whole(void **state)
{
    (void)state;
    real_trace("burstgpt-sample.csv", 21, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_azure_format),
        cmocka_unit_test(azure_times_with_an_offset_and_over_a_leap_day),
        cmocka_unit_test(the_burstgpt_format),
        cmocka_unit_test(time_never_goes_back),
        cmocka_unit_test(a_malformed_row_has_no_place_in_time),
        cmocka_unit_test(malformed_azure_rows),
        cmocka_unit_test(malformed_azure_times),
        cmocka_unit_test(malformed_burstgpt_rows),
        cmocka_unit_test(an_over_long_line_is_one_malformed_row),
        cmocka_unit_test(a_nul_byte_is_a_malformed_row),
        cmocka_unit_test(an_unknown_header_names_those_that_are_known),
        cmocka_unit_test(a_header_may_be_quoted),
        cmocka_unit_test(a_file_that_cannot_be_read_is_told),
        cmocka_unit_test(the_azure_code_trace_is_read_whole),
        cmocka_unit_test(the_azure_conversation_trace_is_read_whole),
        cmocka_unit_test(the_burstgpt_sample_is_read_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
