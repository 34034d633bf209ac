/* ctest: labels=valgrind */
/* The command's own files are in no library. */
#include "tools/holdfast/json_in.c"
#include "tools/holdfast/json_out.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum {
    R_ID,
    R_MODEL,
    R_INPUT,
    R_TOKENS,
    R_TTL,
    R_CNT
};
enum {
    S_ID,
    S_USAGE,
    S_INPUT,
    S_OUTPUT,
    S_OUTCOME,
    S_REF,
    S_CNT
};
enum {
    O_WINDOW,
    O_MICROS,
    O_REASON,
    O_NOW,
    O_LIMIT,
    O_CNT
};

static int model_needs_input(const struct hf_json_value *v, struct hf_json_fault *fault)
{
    if (v[R_MODEL].given && !v[R_INPUT].given) {
        return hf_json_in_refuse(fault, "invalid-request", "\"input_tokens\" is missing");
    }
    return 0;
}

static const struct hf_json_field reserve_fields[R_CNT] = {
    [R_ID] = {.name = "id", .kind = HF_JSON_NAME, .required = true},
    [R_MODEL] = {.name = "model", .kind = HF_JSON_NAME},
    [R_INPUT] = {.name = "input_tokens", .kind = HF_JSON_AMOUNT},
    [R_TOKENS] = {.name = "tokens", .kind = HF_JSON_AMOUNT},
    [R_TTL] = {.name = "ttl_ms", .kind = HF_JSON_AMOUNT, .min = 1},
};
static const struct hf_json_schema reserve = {reserve_fields, R_CNT, model_needs_input};

static const char *const outcomes[] = {"success", "failure", NULL};
static const struct hf_json_field settle_fields[S_CNT] = {
    [S_ID] = {.name = "id", .kind = HF_JSON_NAME, .required = true},
    [S_USAGE] = {.name = "usage", .kind = HF_JSON_OBJECT, .required = true, .nullable = true},
    [S_INPUT] = {.name = "input_tokens", .kind = HF_JSON_AMOUNT, .required = true, .within = "usage"},
    [S_OUTPUT] = {.name = "output_tokens", .kind = HF_JSON_AMOUNT, .required = true, .within = "usage"},
    [S_OUTCOME] = {.name = "outcome", .kind = HF_JSON_WORD, .required = true, .words = outcomes},
    [S_REF] = {.name = "ref", .kind = HF_JSON_NAME},
};
static const struct hf_json_schema settle = {settle_fields, S_CNT, NULL};

static const char *const windows[] = {"minute", "hour", "day", "month", "lifetime", NULL};
static const struct hf_json_field other_fields[O_CNT] = {
    [O_WINDOW] = {.name = "window", .kind = HF_JSON_WORD, .words = windows},
    [O_MICROS] = {.name = "micros", .kind = HF_JSON_SIGNED},
    [O_REASON] = {.name = "reason", .kind = HF_JSON_TEXT, .max = 100},
    [O_NOW] = {.name = "now", .kind = HF_JSON_FLAG},
    [O_LIMIT] = {.name = "limit", .kind = HF_JSON_COUNT, .min = 1},
};
static const struct hf_json_schema other = {other_fields, O_CNT, NULL};

/* Reads a line and returns the reason of its refusal, NULL when it is taken. */
static const char *refusal_bytes(const struct hf_json_schema *schema, const char *text, size_t text_bytes,
                                 struct hf_json_fault *fault)
{
    struct hf_json_line line;
    struct hf_json_value v[R_CNT + S_CNT];
    int rc = hf_json_in_open(&line, text, text_bytes, fault);

    if (rc == 0) {
        rc = hf_json_in_read(&line, schema, v, fault);
    } else {
        assert_null(line.op);
    }
    hf_json_in_close(&line);
    assert_true(rc == 0 || rc == 1);
    if (rc == 1) {
        assert_true(strlen(fault->message) > 0);
    }
    return rc == 0 ? NULL : fault->reason;
}

static void assert_taken(const struct hf_json_schema *schema, const char *text)
{
    struct hf_json_fault fault = {.reason = "?"};

    assert_null(refusal_bytes(schema, text, strlen(text), &fault));
}

static void assert_refused(const struct hf_json_schema *schema, const char *text, const char *reason,
                           const char *named)
{
    struct hf_json_fault fault = {.reason = "?"};
    const char *got = refusal_bytes(schema, text, strlen(text), &fault);

    if (got == NULL || strcmp(got, reason) != 0) {
        fail_msg("%s: %s in place of %s", text, got == NULL ? "taken" : got, reason);
    }
    if (strstr(fault.message, named) == NULL) {
        fail_msg("%s: the message '%s' does not name %s", text, fault.message, named);
    }
}

static void what_is_no_object_with_an_op_is_refused(void **state)
{
    static const char *const lines[] = {
        "",
        "   ",
        "{",
        "reserve a1",
        "[]",
        "null",
        "42",
        "\"reap\"",
        "{}",
        "{\"op\":\"reap\"",
        "{\"op\":\"reap\",}",
        "{'op':'reap'}",
        "{\"op\":\"reap\"}{\"op\":\"reap\"}",
        "{\"op\":\"reap\"} x",
        "{\"op\":\"clock\",\"advance_ms\":NaN}",
        "{\"op\":\"reap\",\"x\":01}",
        "{\"op\":\"reap\",\"x\":1.}",
        "{\"op\":\"reap\",\"x\":+1}",
        "{\"op\":\"reap\",\"x\":-}",
        "{\"op\":\"reap\",\"op\":\"reap\"}",
        "{\"op\":\"reap\",\"x\":{\"a\":1,\"a\":2}}",
        "\xff\xfe{\"op\":\"reap\"}",
        "\xef\xbb\xbf{\"op\":\"reap\"}",
        "{\"op\":\"release\",\"id\":\"\xc3\x28\"}",
        "{\"op\":\"release\",\"id\":\"a\001b\"}",
        "{\"op\":\"release\",\"id\":\"\\ud800\"}",
        "{\"op\":7}",
        "{\"op\":null}",
        "{\"op\":\"re\\u0000ap\"}",
        "{\"op\":\"reap\",\"x\":00099999999999999999999}",
        "{\"op\":\"reap\",\"x\":99999999999999999999,}",
        "{\"op\":\"reap\",\"x\":1e999,\"y\":1e0e5}",
        "{\"op\":\"reap\",\"x\":1e999,\"y\":99999999999999999999-}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_refused(&other, lines[i], "invalid-request", "");
    }
}

static void a_nul_byte_and_deep_nesting_are_refused(void **state)
{
    static const char nul_after[] = "{\"op\":\"reap\"}\0", nul_inside[] = "{\"op\":\"reap\",\"x\":\"\0\"}";
    static const char nul_behind_number[] = "{\"op\":\"reap\",\"x\":1.06\0}";
    struct hf_json_fault fault;
    char deep[6100] = "{\"op\":\"reap\",\"x\":";
    size_t used = strlen(deep);

    (void)state;
    assert_string_equal(refusal_bytes(&other, nul_after, sizeof(nul_after) - 1, &fault), "invalid-request");
    assert_string_equal(refusal_bytes(&other, nul_inside, sizeof(nul_inside) - 1, &fault), "invalid-request");
    assert_string_equal(refusal_bytes(&other, nul_behind_number, sizeof(nul_behind_number) - 1, &fault),
                        "invalid-request");
    memset(deep + used, '[', 3000);
    memset(deep + used + 3000, ']', 3000);
    deep[used + 6000] = '}';
    assert_string_equal(refusal_bytes(&other, deep, used + 6001, &fault), "invalid-request");
}

static void the_op_is_told_even_when_fields_are_bad(void **state)
{
    static const char text[] = "  {\"op\" : \"r\\u0065serve\"}\r";
    struct hf_json_line line;
    struct hf_json_value v[R_CNT];
    struct hf_json_fault fault;

    (void)state;
    assert_int_equal(hf_json_in_open(&line, text, sizeof(text) - 1, &fault), 0);
    assert_string_equal(line.op, "reserve");
    assert_int_equal(hf_json_in_read(&line, &reserve, v, &fault), 1);
    assert_string_equal(fault.reason, "invalid-request");
    assert_string_equal(fault.message, "\"id\" is missing");
    hf_json_in_close(&line);
}

static void names_are_1_to_63_bytes_without_control_characters(void **state)
{
    char longest[64], line[128];

    (void)state;
    memset(longest, 'n', 63);
    longest[63] = '\0';
    (void)snprintf(line, sizeof(line), "{\"op\":\"reserve\",\"id\":\"%s\"}", longest);
    assert_taken(&reserve, line);
    (void)snprintf(line, sizeof(line), "{\"op\":\"reserve\",\"id\":\"%s%s\"}", longest, "n");
    assert_refused(&reserve, line, "invalid-request", "64 bytes");
    assert_taken(&reserve, "{\"op\":\"reserve\",\"id\":\" \xc2\xa0\xe2\x80\xa8\\ud83d\\ude42 \"}");
    assert_refused(&reserve, "{\"op\":\"reserve\",\"id\":\"\\u001f\"}", "invalid-request", "\"id\"");
    assert_refused(&reserve, "{\"op\":\"reserve\",\"id\":\"a\xc2\x80\"}", "invalid-request", "\"id\"");
    assert_refused(&reserve, "{\"op\":\"reserve\",\"id\":\"\"}", "invalid-request", "\"id\"");
    assert_refused(&reserve, "{\"op\":\"reserve\",\"id\":\"a\\u0000b\"}", "invalid-request", "\"id\"");
    assert_refused(&reserve, "{\"op\":\"reserve\",\"id\":7}", "invalid-request", "\"id\"");
    assert_refused(&reserve, "{\"op\":\"reserve\",\"id\":null}", "invalid-request", "\"id\"");
    assert_refused(&reserve, "{\"op\":\"reserve\",\"id\":\"a\",\"model\":\"\"}", "invalid-request",
                   "\"model\"");
}

static void what_is_no_amount_is_invalid_amount(void **state)
{
    static const char *const numbers[] = {
        "-1",
        "72057594037927936",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "18446744073709551617",
        "-18446744073709551617",
        "99999999999999999999999999999",
        "1.5",
        "1.0",
        "1e3",
        "1E3",
        "-0.0",
        "0e0",
        "1e999",
        "-1e999",
        "1e-999",
        "\"6200\"",
        "\"\"",
        "true",
        "false",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        char line[128];

        (void)snprintf(line, sizeof(line), "{\"op\":\"reserve\",\"id\":\"a\",\"tokens\":%s}", numbers[i]);
        assert_refused(&reserve, line, "invalid-amount", "\"tokens\"");
    }
    assert_refused(&reserve, "{\"op\":\"reserve\",\"id\":\"a\",\"ttl_ms\":0}", "invalid-amount",
                   "\"ttl_ms\"");
    assert_refused(&reserve, "{\"op\":\"reserve\",\"id\":\"a\",\"tokens\":[1]}", "invalid-request",
                   "\"tokens\"");
    assert_refused(&reserve, "{\"op\":\"reserve\",\"id\":\"a\",\"tokens\":{}}", "invalid-request",
                   "\"tokens\"");
}

static void amounts_are_exact_up_to_the_largest(void **state)
{
    static const char text[] =
        "{\"op\":\"reserve\",\"id\":\"a\",\"tokens\":72057594037927935,\"input_tokens\":0,"
        "\"ttl_ms\":null,\"unknown\":99999999999999999999,\"also\":[\"\\u0000\",1e999,"
        "\"\\\"12345678901234567890\"]}";
    struct hf_json_line line;
    struct hf_json_value v[R_CNT];
    struct hf_json_fault fault;

    (void)state;
    assert_int_equal(hf_json_in_open(&line, text, sizeof(text) - 1, &fault), 0);
    assert_int_equal(hf_json_in_read(&line, &reserve, v, &fault), 0);
    assert_true(v[R_TOKENS].given && v[R_TOKENS].amount == HF_AMOUNT_MAX);
    assert_true(v[R_INPUT].given && v[R_INPUT].amount == 0);
    assert_true(!v[R_TTL].given && !v[R_TTL].null && v[R_TTL].amount == HF_UNKNOWN);
    assert_true(!v[R_MODEL].given && v[R_MODEL].text == NULL);
    assert_string_equal(v[R_ID].text, "a");
    assert_string_equal(json_string_value(json_array_get(json_object_get(line.object, "also"), 2)),
                        "\"12345678901234567890");
    hf_json_in_close(&line);
}

static void every_form_check_comes_before_every_range_check(void **state)
{
    (void)state;
    assert_refused(&reserve, "{\"op\":\"reserve\",\"tokens\":-1}", "invalid-request", "\"id\"");
    assert_refused(&reserve, "{\"op\":\"reserve\",\"tokens\":99999999999999999999}", "invalid-request",
                   "\"id\"");
    assert_refused(&reserve, "{\"op\":\"reserve\",\"id\":\"a\",\"tokens\":-1,\"model\":\"m\"}",
                   "invalid-request", "\"input_tokens\"");
    assert_refused(&reserve, "{\"op\":\"reserve\",\"id\":\"a\",\"tokens\":-1,\"ttl_ms\":[]}",
                   "invalid-request", "\"ttl_ms\"");
    assert_refused(&reserve, "{\"op\":\"reserve\",\"id\":\"a\",\"input_tokens\":\"1\",\"model\":\"m\"}",
                   "invalid-amount", "\"input_tokens\"");
    assert_refused(&settle,
                   "{\"op\":\"settle\",\"id\":\"a\",\"usage\":{\"input_tokens\":-1},\"outcome\":\"success\"}",
                   "invalid-request", "\"output_tokens\"");
    assert_refused(
        &settle,
        "{\"op\":\"settle\",\"id\":\"a\",\"usage\":{\"input_tokens\":-1,\"output_tokens\":1},\"outcome\":\"done\"}",
        "invalid-request", "\"outcome\"");
}

static void an_object_may_be_null_but_not_absent(void **state)
{
    static const char text[] =
        "{\"op\":\"settle\",\"id\":\"a\",\"usage\":null,\"outcome\":\"failure\",\"input_tokens\":5}";
    struct hf_json_line line;
    struct hf_json_value v[S_CNT];
    struct hf_json_fault fault;

    (void)state;
    assert_int_equal(hf_json_in_open(&line, text, sizeof(text) - 1, &fault), 0);
    assert_int_equal(hf_json_in_read(&line, &settle, v, &fault), 0);
    assert_true(v[S_USAGE].null && !v[S_USAGE].given);
    assert_true(!v[S_INPUT].given);
    assert_int_equal(v[S_OUTCOME].word, 1);
    hf_json_in_close(&line);

    assert_refused(&settle, "{\"op\":\"settle\",\"id\":\"a\",\"outcome\":\"success\"}", "invalid-request",
                   "\"usage\"");
    assert_refused(&settle, "{\"op\":\"settle\",\"id\":\"a\",\"usage\":\"none\",\"outcome\":\"success\"}",
                   "invalid-request", "\"usage\"");
    assert_refused(&settle, "{\"op\":\"settle\",\"id\":\"a\",\"usage\":{},\"outcome\":\"success\"}",
                   "invalid-request", "\"input_tokens\"");
    assert_refused(&settle,
                   "{\"op\":\"settle\",\"id\":\"a\",\"usage\":{\"input_tokens\":null,\"output_tokens\":1},"
                   "\"outcome\":\"success\"}",
                   "invalid-request", "\"input_tokens\"");
    assert_refused(&settle, "{\"op\":\"settle\",\"id\":\"a\",\"usage\":null,\"outcome\":null}",
                   "invalid-request", "\"outcome\"");
    assert_refused(&settle, "{\"op\":\"settle\",\"id\":\"a\",\"usage\":null,\"outcome\":\"success\\u0000\"}",
                   "invalid-request", "\"outcome\"");
    assert_refused(&settle,
                   "{\"op\":\"settle\",\"id\":\"f\",\"usage\":null,\"outcome\":\"success\",\"ref\":\"\"}",
                   "invalid-request", "\"ref\"");
}

static void words_flags_signed_numbers_and_counts(void **state)
{
    static const char text[] =
        "{\"op\":\"x\",\"window\":\"lifetime\",\"micros\":-72057594037927935,\"now\":true,"
        "\"reason\":\"because\\n\",\"limit\":1}";
    struct hf_json_line line;
    struct hf_json_value v[O_CNT];
    struct hf_json_fault fault;

    (void)state;
    assert_int_equal(hf_json_in_open(&line, text, sizeof(text) - 1, &fault), 0);
    assert_int_equal(hf_json_in_read(&line, &other, v, &fault), 0);
    assert_int_equal(v[O_WINDOW].word, 4);
    assert_true(v[O_MICROS].number == -(int64_t)HF_AMOUNT_MAX);
    assert_true(v[O_NOW].flag);
    assert_string_equal(v[O_REASON].text, "because\n");
    assert_true(v[O_LIMIT].amount == 1);
    hf_json_in_close(&line);

    assert_taken(&other, "{\"op\":\"x\",\"window\":null,\"now\":null}");
    assert_refused(&other, "{\"op\":\"x\",\"window\":\"week\"}", "invalid-request", "minute, hour, day");
    assert_refused(&other, "{\"op\":\"x\",\"now\":1}", "invalid-request", "\"now\"");
    assert_refused(&other, "{\"op\":\"x\",\"now\":\"true\"}", "invalid-request", "\"now\"");
    assert_refused(&other, "{\"op\":\"x\",\"reason\":\"\"}", "invalid-request", "\"reason\"");
    assert_refused(&other, "{\"op\":\"x\",\"reason\":\"a\\u0000\"}", "invalid-request", "\"reason\"");
    assert_refused(&other, "{\"op\":\"x\",\"micros\":72057594037927936}", "invalid-amount", "\"micros\"");
    assert_refused(&other, "{\"op\":\"x\",\"micros\":-9223372036854775808}", "invalid-amount", "\"micros\"");
    assert_refused(&other, "{\"op\":\"x\",\"micros\":1.5}", "invalid-amount", "\"micros\"");
    assert_refused(&other, "{\"op\":\"x\",\"limit\":0}", "invalid-request", "\"limit\"");
    assert_refused(&other, "{\"op\":\"x\",\"limit\":-99999999999999999999}", "invalid-request", "\"limit\"");
    assert_refused(&other, "{\"op\":\"x\",\"limit\":\"5\"}", "invalid-amount", "\"limit\"");
    assert_refused(&other, "{\"op\":\"x\",\"limit\":0.5}", "invalid-amount", "\"limit\"");
    assert_refused(&other, "{\"op\":\"x\",\"limit\":72057594037927936}", "invalid-amount", "\"limit\"");
}

static void assert_line(struct hf_json_out *out, const char *expected)
{
    char got[512] = "";
    FILE *to = fmemopen(got, sizeof(got), "w");

    assert_non_null(to);
    assert_int_equal(hf_json_out_line(out, to), 0);
    assert_int_equal(fclose(to), 0);
    assert_string_equal(got, expected);
}

static void an_answer_is_one_line_in_the_order_written(void **state)
{
    struct hf_json_out out = {0};
    struct hf_json_fault fault;

    (void)state;
    hf_json_out_begin(&out);
    hf_json_out_text(&out, "op", "reserve");
    hf_json_out_flag(&out, "ok", true);
    hf_json_out_object(&out, "reserved");
    hf_json_out_amount(&out, "tokens", HF_UNKNOWN);
    hf_json_out_amount(&out, "cost_micros", HF_AMOUNT_MAX);
    hf_json_out_object_end(&out);
    hf_json_out_list(&out, "limits");
    hf_json_out_object(&out, NULL);
    hf_json_out_number(&out, "available", -5);
    hf_json_out_object_end(&out);
    hf_json_out_number(&out, NULL, INT64_MIN);
    hf_json_out_list_end(&out);
    hf_json_out_list(&out, "none");
    hf_json_out_list_end(&out);
    hf_json_out_null(&out, "window");
    hf_json_out_text(&out, "layer", NULL);
    assert_line(
        &out,
        "{\"op\":\"reserve\",\"ok\":true,\"reserved\":{\"tokens\":null,\"cost_micros\":72057594037927935},"
        "\"limits\":[{\"available\":-5},-9223372036854775808],\"none\":[],\"window\":null,\"layer\":null}\n");

    (void)hf_json_in_refuse(&fault, "invalid-request", "%s",
                            "\"op\" \\ \x01\x7f \xff\xc3( \xed\xa0\x80 \xc3\xbc");
    hf_json_out_fault(&out, NULL, &fault);
    assert_line(
        &out,
        "{\"op\":null,\"ok\":false,\"reason\":\"invalid-request\",\"message\":\"\\\"op\\\" \\\\ \\u0001\\u007f "
        "\xef\xbf\xbd\xef\xbf\xbd( \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xc3\xbc\"}\n");
    hf_json_out_free(&out);
}

static void a_long_answer_and_a_full_disk(void **state)
{
    struct hf_json_out out = {0};
    FILE *full = fopen("/dev/full", "w");
    size_t long_bytes = 100000;
    char *text = calloc(1, long_bytes + 1);

    (void)state;
    assert_non_null(text);
    assert_non_null(full);
    memset(text, 'x', long_bytes);
    hf_json_out_begin(&out);
    hf_json_out_text(&out, "t", text);
    assert_int_equal(hf_json_out_line(&out, full), -ENOSPC);
    (void)fclose(full);

    hf_json_out_begin(&out);
    hf_json_out_list(&out, "left open");
    assert_int_equal(hf_json_out_line(&out, stderr), -EINVAL);
    hf_json_out_free(&out);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_object_with_an_op_is_refused),
        cmocka_unit_test(a_nul_byte_and_deep_nesting_are_refused),
        cmocka_unit_test(the_op_is_told_even_when_fields_are_bad),
        cmocka_unit_test(names_are_1_to_63_bytes_without_control_characters),
        cmocka_unit_test(what_is_no_amount_is_invalid_amount),
        cmocka_unit_test(amounts_are_exact_up_to_the_largest),
        cmocka_unit_test(every_form_check_comes_before_every_range_check),
        cmocka_unit_test(an_object_may_be_null_but_not_absent),
        cmocka_unit_test(words_flags_signed_numbers_and_counts),
        cmocka_unit_test(an_answer_is_one_line_in_the_order_written),
        cmocka_unit_test(a_long_answer_and_a_full_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
