/* Any bytes are read as a line of `holdfast run`: it is taken with values that keep the promises of
 * tools/holdfast/json_in.h, or refused with one of two reasons, and the answer to either is JSON that can be read back. */
/* The command's own files are in no library. */
#include "tools/holdfast/json_in.c"
#include "tools/holdfast/json_out.c"

#include "fuzz.h"

enum {
    F_ID,
    F_USAGE,
    F_INPUT,
    F_OUTPUT,
    F_OUTCOME,
    F_REASON,
    F_MICROS,
    F_NOW,
    F_LIMIT,
    F_TTL,
    F_CNT
};

static const char *const outcomes[] = {"success", "failure", NULL};

/* One field of each kind, and fields within a field. */
static const struct hf_json_field fields[F_CNT] = {
    [F_ID] = {.name = "id", .kind = HF_JSON_NAME, .required = true},
    [F_USAGE] = {.name = "usage", .kind = HF_JSON_OBJECT, .nullable = true},
    [F_INPUT] = {.name = "input_tokens", .kind = HF_JSON_AMOUNT, .required = true, .within = "usage"},
    [F_OUTPUT] = {.name = "output_tokens", .kind = HF_JSON_AMOUNT, .within = "usage"},
    [F_OUTCOME] = {.name = "outcome", .kind = HF_JSON_WORD, .words = outcomes},
    [F_REASON] = {.name = "reason", .kind = HF_JSON_TEXT, .max = 100},
    [F_MICROS] = {.name = "micros", .kind = HF_JSON_SIGNED},
    [F_NOW] = {.name = "now", .kind = HF_JSON_FLAG},
    [F_LIMIT] = {.name = "limit", .kind = HF_JSON_COUNT, .min = 1},
    [F_TTL] = {.name = "ttl_ms", .kind = HF_JSON_AMOUNT, .min = 1},
};
static const struct hf_json_schema schema = {fields, F_CNT, NULL};

static void check_values(const struct hf_json_value *v)
{
    FUZZ_REQUIRE(v[F_ID].given && hf_name_valid(v[F_ID].text, v[F_ID].text_bytes));
    FUZZ_REQUIRE(!(v[F_USAGE].given && v[F_USAGE].null));
    FUZZ_REQUIRE(v[F_INPUT].given == v[F_USAGE].given);
    FUZZ_REQUIRE(!v[F_OUTPUT].given || v[F_USAGE].given);
    FUZZ_REQUIRE(v[F_OUTCOME].given ? v[F_OUTCOME].word == 0 || v[F_OUTCOME].word == 1
                                    : v[F_OUTCOME].word == -1);
    FUZZ_REQUIRE(!v[F_REASON].given || (v[F_REASON].text_bytes >= 1 && v[F_REASON].text_bytes <= 100 &&
                                        strlen(v[F_REASON].text) == v[F_REASON].text_bytes));
    FUZZ_REQUIRE(v[F_MICROS].number <= (int64_t)HF_AMOUNT_MAX &&
                 v[F_MICROS].number >= -(int64_t)HF_AMOUNT_MAX);
    FUZZ_REQUIRE(v[F_NOW].given || !v[F_NOW].flag);
    for (size_t i = 0; i < F_CNT; i++) {
        bool is_amount = fields[i].kind == HF_JSON_AMOUNT || fields[i].kind == HF_JSON_COUNT;

        FUZZ_REQUIRE(is_amount && v[i].given ? v[i].amount >= fields[i].min && v[i].amount <= HF_AMOUNT_MAX
                                             : v[i].amount == HF_UNKNOWN);
    }
}

/* The answer is one line, and says what it was told. */
static void check_answer(struct hf_json_out *out, const char *key, const char *text, size_t text_bytes)
{
    char *line = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&line, &bytes);
    json_t *read = NULL;

    FUZZ_REQUIRE(to != NULL);
    FUZZ_REQUIRE(hf_json_out_line(out, to) == 0);
    (void)fclose(to);
    FUZZ_REQUIRE(bytes > 0 && memchr(line, '\n', bytes) == line + bytes - 1);
    read = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    FUZZ_REQUIRE(json_is_object(read));
    if (text != NULL) {
        const json_t *value = json_object_get(read, key);

        FUZZ_REQUIRE(json_is_string(value) && json_string_length(value) == text_bytes);
        FUZZ_REQUIRE(memcmp(json_string_value(value), text, text_bytes) == 0);
    }
    json_decref(read);
    free(line);
}

/* Taming numbers makes JSON of no text that was none for another reason, and leaves JSON what it is. */
static void check_tamed(const char *text, size_t text_bytes)
{
    char *copy = malloc(text_bytes + 1);
    json_error_t error;
    json_t *before = parse(text, text_bytes, &error), *after = NULL;
    bool overflow = before == NULL && json_error_code(&error) == json_error_numeric_overflow;

    FUZZ_REQUIRE(copy != NULL);
    memcpy(copy, text, text_bytes);
    tame_numbers(copy, text_bytes);
    after = parse(copy, text_bytes, &error);
    FUZZ_REQUIRE(overflow || (before == NULL) == (after == NULL));
    FUZZ_REQUIRE(json_object_size(before) == 0 || json_object_size(before) == json_object_size(after));
    json_decref(before);
    json_decref(after);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t cnt)
{
    struct hf_json_line line;
    struct hf_json_value values[F_CNT];
    struct hf_json_fault fault = {.reason = NULL};
    struct hf_json_out out = {0};
    int rc = hf_json_in_open(&line, (const char *)bytes, cnt, &fault);

    FUZZ_REQUIRE((rc == 0) == (line.op != NULL));
    if (rc == 0 || memchr(bytes, '\0', cnt) == NULL) {
        check_tamed((const char *)bytes, cnt);
    }
    if (rc == 0) {
        rc = hf_json_in_read(&line, &schema, values, &fault);
    }
    FUZZ_REQUIRE(rc == 0 || rc == 1);
    if (rc == 0) {
        check_values(values);
        hf_json_out_begin(&out);
        hf_json_out_text(&out, "op", line.op);
        hf_json_out_text(&out, "id", values[F_ID].text);
        hf_json_out_amount(&out, "ttl_ms", values[F_TTL].amount);
        hf_json_out_number(&out, "micros", values[F_MICROS].number);
        check_answer(&out, "id", values[F_ID].text, values[F_ID].text_bytes);
    } else {
        FUZZ_REQUIRE(strcmp(fault.reason, "invalid-request") == 0 ||
                     strcmp(fault.reason, "invalid-amount") == 0);
        FUZZ_REQUIRE(fault.message[0] != '\0');
        hf_json_out_fault(&out, line.op, &fault);
        check_answer(&out, "op", line.op, line.op == NULL ? 0 : strlen(line.op));
        /* Any bytes at all, as a text. */
        hf_json_out_begin(&out);
        hf_json_out_text_bytes(&out, "raw", (const char *)bytes, cnt);
        check_answer(&out, "raw", NULL, 0);
    }
    hf_json_out_free(&out);
    hf_json_in_close(&line);
    return 0;
}
