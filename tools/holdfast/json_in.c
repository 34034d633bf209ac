#include "tools/holdfast/json_in.h"

#include "core/amount.h"
#include "core/name.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST "invalid-request"
#define AMOUNT  "invalid-amount"

int hf_json_in_refuse(struct hf_json_fault *fault, const char *reason, const char *format, ...)
{
    va_list args;

    fault->reason = reason;
    va_start(args, format);
    (void)vsnprintf(fault->message, sizeof(fault->message), format, args);
    va_end(args);
    return 1;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Length of the JSON number at s[0], 0 when there is none; *whole: no fraction, no exponent. */
static size_t number_bytes(const char *s, size_t left, bool *whole)
{
    size_t i = 0;

    *whole = true;
    if (i < left && s[i] == '-') {
        i++;
    }
    if (i >= left || !is_digit(s[i])) {
        return 0;
    }
    if (s[i] == '0') {
        i++;
    } else {
        while (i < left && is_digit(s[i])) {
            i++;
        }
    }
    if (i + 1 < left && s[i] == '.' && is_digit(s[i + 1])) {
        *whole = false;
        for (i++; i < left && is_digit(s[i]);) {
            i++;
        }
    }
    if (i < left && (s[i] == 'e' || s[i] == 'E')) {
        size_t digits = i + 1;

        if (digits < left && (s[digits] == '+' || s[digits] == '-')) {
            digits++;
        }
        if (digits < left && is_digit(s[digits])) {
            *whole = false;
            for (i = digits; i < left && is_digit(s[i]);) {
                i++;
            }
        }
    }
    return i;
}

/* Writes a number that the parser can hold over one that it may not, padded with blanks. What
 * replaces it is judged alike: a fraction stays a fraction, a whole number beyond 64 bits stays
 * beyond every range, on its own side of zero. */
static void tame_number(char *number, size_t bytes, bool whole)
{
    static const char above[] = "9223372036854775807", below[] = "-9223372036854775808";
    const char *instead = NULL;

    if (!whole) {
        instead = "0.5";
    } else if (number[0] == '-') {
        if (bytes >= sizeof(below) - 1 && (bytes > sizeof(below) - 1 || memcmp(number, below, bytes) > 0)) {
            instead = below;
        }
    } else if (bytes >= sizeof(above) - 1) {
        if (bytes > sizeof(above) - 1 || memcmp(number, above, bytes) > 0) {
            instead = above;
        }
    }
    if (instead == NULL) {
        return;
    }
    memset(number, ' ', bytes);
    memcpy(number, instead, strlen(instead));
}

/* Length of the run of characters that numbers are made of. */
static size_t run_bytes(const char *s, size_t left)
{
    size_t i = 0;

    while (i < left && (is_digit(s[i]) || (s[i] != '\0' && strchr("+-.eE", s[i]) != NULL))) {
        i++;
    }
    return i;
}

/* Tames every number outside of texts. A run that is not one whole number, like 1e0e5, is no JSON and stays as it
 * is: what replaces its head could make it JSON. */
static void tame_numbers(char *text, size_t text_bytes)
{
    bool in_text = false;

    for (size_t i = 0; i < text_bytes; i++) {
        if (text[i] == '"') {
            in_text = !in_text;
        } else if (in_text && text[i] == '\\') {
            i++;
        }
        if (in_text || (text[i] != '-' && !is_digit(text[i]))) {
            continue;
        }

        bool whole = false;
        size_t bytes = run_bytes(text + i, text_bytes - i);

        if (number_bytes(text + i, bytes, &whole) == bytes) {
            tame_number(text + i, bytes, whole);
        }
        i += bytes - 1;
    }
}

static json_t *parse(const char *text, size_t text_bytes, json_error_t *error)
{
    /* U+0000 in a text is form like any other control character: it is for the field
     * to refuse, and an ignored field may have it. */
    return json_loadb(text, text_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, error);
}

/* The parser gives up on numbers beyond 64 bits, but a field that nobody asks for may have one,
 * and one in an amount is a matter of range, after all matters of form. NULL: see *error. */
static json_t *parse_tamed(const char *text, size_t text_bytes, json_error_t *error, bool *no_memory)
{
    char *copy = malloc(text_bytes);
    json_t *json = NULL;

    *no_memory = copy == NULL;
    if (copy == NULL) {
        return NULL;
    }
    memcpy(copy, text, text_bytes);
    tame_numbers(copy, text_bytes);
    json = parse(copy, text_bytes, error);
    free(copy);
    return json;
}

int hf_json_in_open(struct hf_json_line *line, const char *text, size_t text_bytes,
                    struct hf_json_fault *fault)
{
    json_error_t error;
    bool no_memory = false;

    line->object = NULL;
    line->op = NULL;
    if (text_bytes == 0) {
        return hf_json_in_refuse(fault, REQUEST, "a blank line; send one JSON object a line");
    }
    /* The parser overlooks one behind a number. */
    if (memchr(text, '\0', text_bytes) != NULL) {
        return hf_json_in_refuse(fault, REQUEST, "the line is no JSON object: it has a NUL byte");
    }
    line->object = parse(text, text_bytes, &error);
    if (line->object == NULL && json_error_code(&error) == json_error_numeric_overflow) {
        line->object = parse_tamed(text, text_bytes, &error, &no_memory);
    }
    if (line->object == NULL) {
        if (no_memory || json_error_code(&error) == json_error_out_of_memory) {
            return -ENOMEM;
        }
        return hf_json_in_refuse(fault, REQUEST, "the line is no JSON object: %s, at byte %d", error.text,
                                 error.position);
    }
    if (!json_is_object(line->object)) {
        return hf_json_in_refuse(fault, REQUEST, "the line is JSON, but no object; send {\"op\": ...}");
    }

    const json_t *op = json_object_get(line->object, "op");

    if (!json_is_string(op) || strlen(json_string_value(op)) != json_string_length(op)) {
        return hf_json_in_refuse(fault, REQUEST, "\"op\" is missing or no text; name an operation");
    }
    line->op = json_string_value(op);
    return 0;
}

void hf_json_in_close(struct hf_json_line *line)
{
    json_decref(line->object);
    line->object = NULL;
    line->op = NULL;
}

static uint64_t max_of(const struct hf_json_field *field)
{
    if (field->max != 0) {
        return field->max;
    }
    return field->kind == HF_JSON_TEXT ? HF_JSON_TEXT_BYTES_MAX : HF_AMOUNT_MAX;
}

static int read_text(const struct hf_json_field *field, struct hf_json_value *value,
                     struct hf_json_fault *fault)
{
    if (!json_is_string(value->json)) {
        return hf_json_in_refuse(fault, REQUEST, "\"%s\" must be a text", field->name);
    }

    const char *text = json_string_value(value->json);
    size_t bytes = json_string_length(value->json);
    uint64_t min = field->min == 0 ? 1 : field->min;

    if (field->kind == HF_JSON_NAME && !hf_name_valid(text, bytes)) {
        return hf_json_in_refuse(fault, REQUEST,
                                 "\"%s\" must be 1 to %d bytes without control characters; it has %zu bytes",
                                 field->name, HF_NAME_BYTES_MAX, bytes);
    }
    if (field->kind == HF_JSON_TEXT && (bytes < min || bytes > max_of(field) || strlen(text) != bytes)) {
        return hf_json_in_refuse(fault, REQUEST, "\"%s\" must be %llu to %llu bytes without U+0000",
                                 field->name, (unsigned long long)min, (unsigned long long)max_of(field));
    }
    value->text = text;
    value->text_bytes = bytes;
    return 0;
}

static int read_word(const struct hf_json_field *field, struct hf_json_value *value,
                     struct hf_json_fault *fault)
{
    char allowed[160] = "";
    size_t used = 0;

    if (read_text(field, value, fault) != 0) {
        return 1;
    }

    const char *text = json_string_value(value->json);
    size_t bytes = json_string_length(value->json);

    for (int i = 0; field->words[i] != NULL; i++) {
        const char *word = field->words[i];

        if (strlen(word) == bytes && memcmp(word, text, bytes) == 0) {
            value->word = i;
            return 0;
        }

        int wrote = snprintf(allowed + used, sizeof(allowed) - used, "%s%s", i == 0 ? "" : ", ", word);

        if (wrote > 0 && (size_t)wrote < sizeof(allowed) - used) {
            used += (size_t)wrote;
        }
    }
    return hf_json_in_refuse(fault, REQUEST, "\"%s\" must be one of: %s", field->name, allowed);
}

/* The form of a number: what is left for the range is text, booleans, fractions and size. */
static int read_number(const struct hf_json_field *field, const struct hf_json_value *value,
                       struct hf_json_fault *fault)
{
    if (json_is_array(value->json) || json_is_object(value->json)) {
        return hf_json_in_refuse(fault, REQUEST, "\"%s\" must be a number", field->name);
    }
    if (field->kind != HF_JSON_COUNT || !json_is_integer(value->json)) {
        return 0;
    }

    json_int_t number = json_integer_value(value->json);

    if (number < 0 || (uint64_t)number < field->min) {
        return hf_json_in_refuse(fault, REQUEST, "\"%s\" must be at least %llu", field->name,
                                 (unsigned long long)field->min);
    }
    return 0;
}

static int read_form(const struct hf_json_field *field, struct hf_json_value *value,
                     struct hf_json_fault *fault)
{
    switch (field->kind) {
    case HF_JSON_NAME:
    case HF_JSON_TEXT:
        return read_text(field, value, fault);
    case HF_JSON_WORD:
        return read_word(field, value, fault);
    case HF_JSON_FLAG:
        if (!json_is_boolean(value->json)) {
            return hf_json_in_refuse(fault, REQUEST, "\"%s\" must be true or false", field->name);
        }
        value->flag = json_is_true(value->json);
        return 0;
    case HF_JSON_AMOUNT:
    case HF_JSON_SIGNED:
    case HF_JSON_COUNT:
        return read_number(field, value, fault);
    case HF_JSON_OBJECT:
        if (!json_is_object(value->json)) {
            return hf_json_in_refuse(fault, REQUEST, "\"%s\" must be an object%s", field->name,
                                     field->nullable ? " or null" : "");
        }
        return 0;
    }
    return hf_json_in_refuse(fault, REQUEST, "\"%s\" cannot be read", field->name);
}

/* The object that has the field: the line, or a value read before; NULL when that was not given. */
static const json_t *holder_of(const struct hf_json_line *line, const struct hf_json_schema *schema,
                               const struct hf_json_value *values, size_t field_idx)
{
    const char *within = schema->fields[field_idx].within;

    if (within == NULL) {
        return line->object;
    }
    for (size_t i = 0; i < field_idx; i++) {
        if (schema->fields[i].kind == HF_JSON_OBJECT && strcmp(schema->fields[i].name, within) == 0) {
            return values[i].json;
        }
    }
    return NULL;
}

static int read_field(const struct hf_json_field *field, const json_t *holder, struct hf_json_value *value,
                      struct hf_json_fault *fault)
{
    const json_t *json = json_object_get(holder, field->name);

    *value = (struct hf_json_value){.word = -1, .amount = HF_UNKNOWN};
    if (holder == NULL) {
        return 0;
    }
    if (json_is_null(json) && field->nullable) {
        value->null = true;
        return 0;
    }
    if (json == NULL || json_is_null(json)) {
        if (field->required) {
            return hf_json_in_refuse(fault, REQUEST, "\"%s\" is missing", field->name);
        }
        return 0;
    }
    value->given = true;
    value->json = json;
    return read_form(field, value, fault);
}

static int check_amount(const struct hf_json_field *field, struct hf_json_value *value,
                        struct hf_json_fault *fault)
{
    unsigned long long max = (unsigned long long)max_of(field), min = (unsigned long long)field->min;
    bool is_signed = field->kind == HF_JSON_SIGNED;

    if (!json_is_integer(value->json)) {
        return hf_json_in_refuse(
            fault, AMOUNT, "\"%s\" must be a plain whole number: no text, fraction or exponent", field->name);
    }

    json_int_t number = json_integer_value(value->json);
    uint64_t size = number < 0 ? -(uint64_t)number : (uint64_t)number;

    if (is_signed && size > max) {
        return hf_json_in_refuse(fault, AMOUNT, "\"%s\" must be from -%llu to %llu", field->name, max, max);
    }
    if (!is_signed && (number < 0 || size < min || size > max)) {
        return hf_json_in_refuse(fault, AMOUNT, "\"%s\" must be from %llu to %llu", field->name, min, max);
    }
    if (is_signed) {
        value->number = number;
    } else {
        value->amount = size;
    }
    return 0;
}

static bool is_number(enum hf_json_kind kind)
{
    return kind == HF_JSON_AMOUNT || kind == HF_JSON_SIGNED || kind == HF_JSON_COUNT;
}

int hf_json_in_read(const struct hf_json_line *line, const struct hf_json_schema *schema,
                    struct hf_json_value *values, struct hf_json_fault *fault)
{
    for (size_t i = 0; i < schema->field_cnt; i++) {
        const json_t *holder = holder_of(line, schema, values, i);

        if (read_field(&schema->fields[i], holder, &values[i], fault) != 0) {
            return 1;
        }
    }
    if (schema->together != NULL && schema->together(values, fault) != 0) {
        return 1;
    }
    for (size_t i = 0; i < schema->field_cnt; i++) {
        if (values[i].given && is_number(schema->fields[i].kind) &&
            check_amount(&schema->fields[i], &values[i], fault) != 0) {
            return 1;
        }
    }
    return 0;
}
