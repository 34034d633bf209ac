#include "core/policy_reader.h"

#include "core/policy_report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- paths and problems -------------------------------------------------------------------------------- */

static size_t lengthen(struct hf_policy_reader *reader, int written)
{
    size_t before = reader->path_len;
    size_t room = sizeof(reader->path) - before - 1;

    reader->path_len += (size_t)written < room ? (size_t)written : room;
    return before;
}

size_t hf_reader_enter_field(struct hf_policy_reader *reader, const char *field)
{
    return lengthen(reader, snprintf(reader->path + reader->path_len, sizeof(reader->path) - reader->path_len,
                                     "%s%s", reader->path_len > 0 ? "." : "", field));
}

size_t hf_reader_enter_index(struct hf_policy_reader *reader, size_t index)
{
    return lengthen(reader, snprintf(reader->path + reader->path_len, sizeof(reader->path) - reader->path_len,
                                     "[%zu]", index));
}

void hf_reader_leave(struct hf_policy_reader *reader, size_t path_len)
{
    reader->path_len = path_len;
    reader->path[path_len] = '\0';
}

static void note(struct hf_policy_reader *reader, enum hf_policy_severity severity, const char *field,
                 uint32_t node, const char *format, va_list args)
{
    const struct hf_yaml_node *at = &reader->yaml->nodes[node];
    size_t before = field != NULL ? hf_reader_enter_field(reader, field) : reader->path_len;
    char message[1024];

    vsnprintf(message, sizeof(message), format, args);
    hf_policy_report_add(reader->report, severity, at->line, at->column, reader->path, "%s", message);
    hf_reader_leave(reader, before);
}

void hf_reader_error(struct hf_policy_reader *reader, uint32_t node, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    note(reader, HF_POLICY_ERROR, NULL, node, format, args);
    va_end(args);
}

void hf_reader_error_of(struct hf_policy_reader *reader, const char *field, uint32_t node, const char *format,
                        ...)
{
    va_list args;

    va_start(args, format);
    note(reader, HF_POLICY_ERROR, field, node, format, args);
    va_end(args);
}

void hf_reader_warn(struct hf_policy_reader *reader, uint32_t node, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    note(reader, HF_POLICY_WARNING, NULL, node, format, args);
    va_end(args);
}

void hf_reader_warn_of(struct hf_policy_reader *reader, const char *field, uint32_t node, const char *format,
                       ...)
{
    va_list args;

    va_start(args, format);
    note(reader, HF_POLICY_WARNING, field, node, format, args);
    va_end(args);
}

uint32_t hf_reader_line(const struct hf_policy_reader *reader, uint32_t node)
{
    return reader->yaml->nodes[node].line;
}

/* ---- what is there ------------------------------------------------------------------------------------- */

static bool is_text(const struct hf_policy_reader *reader, const struct hf_yaml_node *node, const char *text)
{
    return node->text_len == strlen(text) &&
           memcmp(hf_yaml_text(reader->yaml, node), text, node->text_len) == 0;
}

/* What YAML makes null of: nothing at all, ~ or null, not quoted. */
static bool is_null(const struct hf_policy_reader *reader, const struct hf_yaml_node *node)
{
    return node->kind == HF_YAML_SCALAR && node->plain &&
           (node->text_len == 0 || is_text(reader, node, "~") || is_text(reader, node, "null") ||
            is_text(reader, node, "Null") || is_text(reader, node, "NULL"));
}

/* What stands where something else should, for messages. */
static const char *describe(const struct hf_policy_reader *reader, const struct hf_yaml_node *node)
{
    switch (node->kind) {
    case HF_YAML_SEQUENCE:
        return "a list";
    case HF_YAML_MAPPING:
        return "a mapping";
    case HF_YAML_SCALAR:
    case HF_YAML_ALIAS:
    default:
        return is_null(reader, node) ? (node->text_len == 0 ? "empty" : "null") : "a single value";
    }
}

/* Counts elements against the bound, so that aliases of aliases cost no more than an honest file. */
static bool count_elements(struct hf_policy_reader *reader, uint32_t node, size_t cnt)
{
    if (cnt > HF_POLICY_ELEMENTS_MAX - reader->element_cnt) {
        hf_reader_error(reader, node,
                        "the policy holds more than %u elements; split it, or write fewer aliases",
                        HF_POLICY_ELEMENTS_MAX);
        reader->stop = true;
        return false;
    }
    reader->element_cnt += (uint32_t)cnt;
    return true;
}

/* ---- mappings and lists -------------------------------------------------------------------------------- */

/* True for what can be part of a path as it is. */
static bool is_word(const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = bytes[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
              c == '-')) {
            return false;
        }
    }
    return len > 0 && len <= HF_NAME_BYTES_MAX;
}

static void note_unknown_field(struct hf_policy_reader *reader, uint32_t key,
                               const struct hf_reader_field *fields, size_t field_cnt)
{
    const struct hf_yaml_node *node = &reader->yaml->nodes[key];
    char quoted[HF_POLICY_QUOTE_BYTES];
    char known[600] = "";
    size_t len = 0;

    if (node->kind != HF_YAML_SCALAR) {
        hf_reader_error(reader, key, "a field name must be one word, written out");
        return;
    }
    if (is_text(reader, node, "<<")) {
        hf_reader_error(reader, key, "merge keys (<<) are not read here; write the fields out");
        return;
    }
    for (size_t i = 0; i < field_cnt && len < sizeof(known) - 1; i++) {
        len += (size_t)snprintf(known + len, sizeof(known) - len, "%s%s", i > 0 ? ", " : "", fields[i].name);
    }
    if (is_word(hf_yaml_text(reader->yaml, node), node->text_len)) {
        snprintf(quoted, sizeof(quoted), "%.*s", (int)node->text_len, hf_yaml_text(reader->yaml, node));
        hf_reader_error_of(reader, quoted, key, "is no field that is known here; known are %s", known);
    } else {
        hf_reader_error(reader, key, "%s is no field that is known here; known are %s",
                        hf_policy_quote(quoted, hf_yaml_text(reader->yaml, node), node->text_len), known);
    }
}

bool hf_reader_mapping(struct hf_policy_reader *reader, uint32_t node, const struct hf_reader_field *fields,
                       size_t field_cnt, uint32_t *values)
{
    const struct hf_yaml_node *mapping;

    memset(values, 0, field_cnt * sizeof(*values));
    if (node == 0 || reader->stop) {
        return false;
    }
    mapping = hf_yaml_node(reader->yaml, node);
    if (!count_elements(reader, node, (size_t)mapping->cnt + 1)) {
        return false;
    }
    if (mapping->kind != HF_YAML_MAPPING) {
        hf_reader_error(reader, node, "is %s; a mapping with fields such as `%s` is needed here",
                        describe(reader, mapping), fields[0].name);
        return false;
    }
    for (uint32_t key = mapping->child; key != 0;) {
        const struct hf_yaml_node *name = &reader->yaml->nodes[key];
        size_t i = 0;

        while (i < field_cnt && !(name->kind == HF_YAML_SCALAR && is_text(reader, name, fields[i].name))) {
            i++;
        }
        if (i == field_cnt) {
            note_unknown_field(reader, key, fields, field_cnt);
        } else if (values[i] != 0) {
            hf_reader_error_of(reader, fields[i].name, key,
                               "is here twice, first on line %u; keep the one that is meant",
                               hf_reader_line(reader, values[i]));
        } else {
            values[i] = name->next;
        }
        key = reader->yaml->nodes[name->next].next;
    }
    for (size_t i = 0; i < field_cnt; i++) {
        if (fields[i].required && values[i] == 0) {
            hf_reader_error_of(reader, fields[i].name, node, "is missing, and required here");
        }
    }
    return true;
}

bool hf_reader_list(struct hf_policy_reader *reader, uint32_t node, size_t size, uint32_t *item, size_t *cnt,
                    void **array)
{
    const struct hf_yaml_node *list;

    *item = 0;
    *cnt = 0;
    if (array != NULL) {
        *array = NULL;
    }
    if (node == 0 || reader->stop) {
        return false;
    }
    list = hf_yaml_node(reader->yaml, node);
    if (list->kind != HF_YAML_SEQUENCE) {
        hf_reader_error(reader, node, "is %s; a list is needed here, [] for none", describe(reader, list));
        return false;
    }
    if (!count_elements(reader, node, list->cnt)) {
        return false;
    }
    if (array != NULL && list->cnt > 0) {
        *array = calloc(list->cnt, size);
        if (*array == NULL) {
            reader->no_memory = true;
            reader->stop = true;
            return false;
        }
    }
    *item = list->child;
    *cnt = list->cnt;
    return true;
}

/* ---- single values ------------------------------------------------------------------------------------- */

/* Notes why the text of a scalar is no number, or leaves alone what is one. */
static bool check_digits(struct hf_policy_reader *reader, const char *field, uint32_t node,
                         const struct hf_yaml_node *scalar, uint64_t least)
{
    const char *text = hf_yaml_text(reader->yaml, scalar);
    char quoted[HF_POLICY_QUOTE_BYTES];
    size_t digit_cnt = 0;

    while (digit_cnt < scalar->text_len && text[digit_cnt] >= '0' && text[digit_cnt] <= '9') {
        digit_cnt++;
    }
    if (digit_cnt == scalar->text_len && (digit_cnt == 1 || text[0] != '0')) {
        return true;
    }
    hf_policy_quote(quoted, text, scalar->text_len);
    if (digit_cnt == scalar->text_len) {
        hf_reader_error_of(reader, field, node,
                           "%s starts with 0, which some read as octal; write it without", quoted);
    } else if (text[0] == '-' && scalar->text_len > 1 && text[1] >= '0' && text[1] <= '9') {
        hf_reader_error_of(reader, field, node, "%s is below the least, %" PRIu64, quoted, least);
    } else {
        hf_reader_error_of(reader, field, node,
                           "%s is no plain whole number; write decimal digits only, such as 1000", quoted);
    }
    return false;
}

bool hf_reader_number(struct hf_policy_reader *reader, const char *field, uint32_t node, uint64_t least,
                      uint64_t *out)
{
    const struct hf_yaml_node *scalar;
    const char *text;
    uint64_t value = 0;

    if (node == 0) {
        return false;
    }
    scalar = hf_yaml_node(reader->yaml, node);
    if (scalar->kind != HF_YAML_SCALAR || is_null(reader, scalar)) {
        hf_reader_error_of(reader, field, node, "is %s; write a whole number, or leave the field out",
                           describe(reader, scalar));
        return false;
    }
    if (!scalar->plain) {
        hf_reader_error_of(reader, field, node, "is text; write a whole number without quotes");
        return false;
    }
    if (!check_digits(reader, field, node, scalar, least)) {
        return false;
    }
    text = hf_yaml_text(reader->yaml, scalar);
    for (size_t i = 0; i < scalar->text_len && value <= HF_AMOUNT_MAX; i++) {
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    if (value < least || value > HF_AMOUNT_MAX) {
        hf_reader_error_of(reader, field, node, "must be from %" PRIu64 " to %" PRIu64, least, HF_AMOUNT_MAX);
        return false;
    }
    *out = value;
    return true;
}

bool hf_reader_name(struct hf_policy_reader *reader, const char *field, uint32_t node, struct hf_name *out)
{
    const struct hf_yaml_node *scalar;
    const char *text;

    if (node == 0) {
        return false;
    }
    scalar = hf_yaml_node(reader->yaml, node);
    if (scalar->kind != HF_YAML_SCALAR) {
        hf_reader_error_of(reader, field, node, "is %s; a name of 1 to %d bytes is needed here",
                           describe(reader, scalar), HF_NAME_BYTES_MAX);
        return false;
    }
    text = hf_yaml_text(reader->yaml, scalar);
    if (scalar->text_len == 0 || scalar->text_len > HF_NAME_BYTES_MAX) {
        hf_reader_error_of(reader, field, node, "has %zu bytes; a name has 1 to %d", scalar->text_len,
                           HF_NAME_BYTES_MAX);
        return false;
    }
    if (!hf_name_set(out, text, scalar->text_len)) {
        char quoted[HF_POLICY_QUOTE_BYTES];

        hf_reader_error_of(reader, field, node, "%s has a control character; names have none",
                           hf_policy_quote(quoted, text, scalar->text_len));
        return false;
    }
    if (is_null(reader, scalar)) {
        hf_reader_warn_of(reader, field, node, "is taken as the name \"%s\"; put it in quotes if it is meant",
                          out->bytes);
    }
    return true;
}

bool hf_reader_bool(struct hf_policy_reader *reader, const char *field, uint32_t node, bool *out)
{
    const struct hf_yaml_node *scalar;

    if (node == 0) {
        return false;
    }
    scalar = hf_yaml_node(reader->yaml, node);
    if (scalar->kind == HF_YAML_SCALAR && scalar->plain) {
        *out = is_text(reader, scalar, "true");
        if (*out || is_text(reader, scalar, "false")) {
            return true;
        }
    }
    hf_reader_error_of(reader, field, node, "must be true or false, without quotes");
    return false;
}

bool hf_reader_word(struct hf_policy_reader *reader, const char *field, uint32_t node,
                    const char *(*word_of)(unsigned value), unsigned cnt, unsigned *out)
{
    const struct hf_yaml_node *scalar;
    char quoted[HF_POLICY_QUOTE_BYTES];
    char known[200] = "";
    size_t len = 0;

    if (node == 0) {
        return false;
    }
    scalar = hf_yaml_node(reader->yaml, node);
    for (unsigned value = 0; value < cnt; value++) {
        if (scalar->kind == HF_YAML_SCALAR && is_text(reader, scalar, word_of(value))) {
            *out = value;
            return true;
        }
        len +=
            (size_t)snprintf(known + len, sizeof(known) - len, "%s%s", value > 0 ? ", " : "", word_of(value));
    }
    if (scalar->kind != HF_YAML_SCALAR || is_null(reader, scalar)) {
        hf_reader_error_of(reader, field, node, "is %s; it must be one of %s", describe(reader, scalar),
                           known);
    } else {
        hf_reader_error_of(reader, field, node, "%s is not one of %s",
                           hf_policy_quote(quoted, hf_yaml_text(reader->yaml, scalar), scalar->text_len),
                           known);
    }
    return false;
}
