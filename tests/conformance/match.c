#include "match.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHOWN_BYTES_MAX 300

static void no_memory(const void *got)
{
    if (got == NULL) {
        (void)fputs("conformance: out of memory\n", stderr);
        exit(2);
    }
}

char *one_line(const json_t *json)
{
    char *line = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);

    no_memory(line);
    return line;
}

/* Whether a text is "$" and a name. */
static bool is_capture(const json_t *json)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    const char *text = json_string_value(json);

    return text != NULL && text[0] == '$' && text[1] != '\0' && strchr("0123456789", text[1]) == NULL &&
           strspn(text + 1, letters) == strlen(text + 1) && strlen(text) == json_string_length(json) &&
           strlen(text) < 64;
}

/* The key of an object like {"$any": true}; NULL for any other value. */
static const char *special(const json_t *json)
{
    void *member = json_object_iter((json_t *)json);

    return member != NULL && json_object_iter_key(member)[0] == '$' ? json_object_iter_key(member) : NULL;
}

static bool is_special(const json_t *json, const char *key)
{
    const char *found = special(json);

    return found != NULL && strcmp(found, key) == 0;
}

static const char *special_fault(const json_t *json, const char *key, bool is_member)
{
    const json_t *value = json_object_get(json, key);

    if (json_object_size(json) != 1) {
        return "an object with a $ key has other keys";
    }
    if (strcmp(key, "$absent") == 0) {
        return !is_member ? "$absent stands for no key" : json_is_true(value) ? NULL : "$absent must be true";
    }
    if (strcmp(key, "$any") == 0) {
        return json_is_true(value) ? NULL : "$any must be true";
    }
    if (strcmp(key, "$len") == 0) {
        return json_is_integer(value) && json_integer_value(value) >= 0 ? NULL : "$len must be a number";
    }
    return "an unknown $ key";
}

/* NOLINTBEGIN(misc-no-recursion): JSON nests, and the parser bounds how deep. */
static const char *fault_at(const json_t *json, bool is_member)
{
    const char *key = special(json), *fault = NULL;
    size_t i = 0;
    json_t *value = NULL;

    if (key != NULL) {
        return special_fault(json, key, is_member);
    }
    json_object_foreach((json_t *)json, key, value)
    {
        fault = key[0] == '$' ? "an object with a $ key has other keys" : fault_at(value, true);
        if (fault != NULL) {
            return fault;
        }
    }
    json_array_foreach(json, i, value)
    {
        fault = fault_at(value, false);
        if (fault != NULL) {
            return fault;
        }
    }
    return NULL;
}

const char *pattern_fault(const json_t *expected)
{
    return fault_at(expected, false);
}

/* NOLINTEND(misc-no-recursion) */

/* Keeps why it differs; false, so that a check can end with it. */
static bool differ(struct mismatch *mismatch, const char *expected, const json_t *actual)
{
    char *came = one_line(actual);

    (void)snprintf(mismatch->why, sizeof(mismatch->why), "expected %.*s, came %.*s%s", SHOWN_BYTES_MAX,
                   expected, SHOWN_BYTES_MAX, came, strlen(came) > SHOWN_BYTES_MAX ? "…" : "");
    free(came);
    return false;
}

static bool differ_from(struct mismatch *mismatch, const json_t *expected, const json_t *actual)
{
    char *text = one_line(expected);

    (void)differ(mismatch, text, actual);
    free(text);
    return false;
}

/* Adds a step to the path; what it returns cuts the path back. */
static size_t enter(struct mismatch *mismatch, const char *key, size_t entry_idx)
{
    size_t used = strlen(mismatch->path);

    if (key != NULL) {
        (void)snprintf(mismatch->path + used, sizeof(mismatch->path) - used, "%s%s", used == 0 ? "" : ".",
                       key);
    } else {
        (void)snprintf(mismatch->path + used, sizeof(mismatch->path) - used, "[%zu]", entry_idx);
    }
    return used;
}

/* NOLINTBEGIN(misc-no-recursion): as above */
static bool match_object(const json_t *expected, const json_t *actual, json_t *captures,
                         struct mismatch *mismatch)
{
    const char *key = NULL;
    json_t *value = NULL;

    if (!json_is_object(actual)) {
        return differ(mismatch, "an object", actual);
    }
    json_object_foreach((json_t *)expected, key, value)
    {
        const json_t *got = json_object_get(actual, key);
        size_t back = enter(mismatch, key, 0);

        if (is_special(value, "$absent")) {
            if (got != NULL) {
                return differ(mismatch, "no such key", got);
            }
        } else if (got == NULL) {
            char *text = one_line(value);

            (void)snprintf(mismatch->why, sizeof(mismatch->why), "expected %.*s, the key is not there",
                           SHOWN_BYTES_MAX, text);
            free(text);
            return false;
        } else if (!matches(value, got, captures, mismatch)) {
            return false;
        }
        mismatch->path[back] = '\0';
    }
    return true;
}

static bool match_list(const json_t *expected, const json_t *actual, json_t *captures,
                       struct mismatch *mismatch)
{
    size_t i = 0;
    json_t *value = NULL;

    if (!json_is_array(actual)) {
        return differ(mismatch, "a list", actual);
    }
    if (json_array_size(actual) != json_array_size(expected)) {
        char text[64];

        (void)snprintf(text, sizeof(text), "a list of %zu, not of %zu", json_array_size(expected),
                       json_array_size(actual));
        return differ(mismatch, text, actual);
    }
    json_array_foreach(expected, i, value)
    {
        size_t back = enter(mismatch, NULL, i);

        if (!matches(value, json_array_get(actual, i), captures, mismatch)) {
            return false;
        }
        mismatch->path[back] = '\0';
    }
    return true;
}

static bool match_special(const json_t *expected, const json_t *actual, struct mismatch *mismatch)
{
    char text[64];
    json_int_t cnt = json_integer_value(json_object_get(expected, "$len"));

    if (is_special(expected, "$any")) {
        return true;
    }
    (void)snprintf(text, sizeof(text), "a list of %" JSON_INTEGER_FORMAT ", not of %zu", cnt,
                   json_array_size(actual));
    if (!json_is_array(actual) || json_array_size(actual) != (size_t)cnt) {
        return differ(mismatch, text, actual);
    }
    return true;
}

static bool match_capture(const json_t *expected, const json_t *actual, json_t *captures,
                          struct mismatch *mismatch)
{
    const char *name = json_string_value(expected) + 1;
    const json_t *before = json_object_get(captures, name);
    json_t *copy = NULL;

    if (before != NULL) {
        return json_equal(before, actual) ? true : differ_from(mismatch, before, actual);
    }
    copy = json_deep_copy(actual);
    no_memory(copy);
    (void)json_object_set_new(captures, name, copy);
    return true;
}

bool matches(const json_t *expected, const json_t *actual, json_t *captures, struct mismatch *mismatch)
{
    if (special(expected) != NULL) {
        return match_special(expected, actual, mismatch);
    }
    if (json_is_object(expected)) {
        return match_object(expected, actual, captures, mismatch);
    }
    if (json_is_array(expected)) {
        return match_list(expected, actual, captures, mismatch);
    }
    if (is_capture(expected)) {
        return match_capture(expected, actual, captures, mismatch);
    }
    /* Types count: 1, 1.0, true and "1" are four values. */
    return json_equal(expected, actual) ? true : differ_from(mismatch, expected, actual);
}

/* The text with each {i} replaced. */
static json_t *with_turn(const json_t *text, unsigned long turn)
{
    const char *from = json_string_value(text), *end = from + json_string_length(text);
    size_t digit_cnt = 0, used = 0;
    char digits[32], *to = NULL;
    json_t *filled = NULL;

    digit_cnt = (size_t)snprintf(digits, sizeof(digits), "%lu", turn);
    to = malloc((size_t)(end - from) * sizeof(digits) + 1);
    no_memory(to);
    while (from < end) {
        if (turn != 0 && end - from >= 3 && memcmp(from, "{i}", 3) == 0) {
            memcpy(to + used, digits, digit_cnt);
            used += digit_cnt;
            from += 3;
        } else {
            to[used++] = *from++;
        }
    }
    filled = json_stringn_nocheck(to, used);
    no_memory(filled);
    free(to);
    return filled;
}

static json_t *fill_text(const json_t *text, unsigned long turn, const json_t *captures, char missing[64])
{
    json_t *filled = with_turn(text, turn), *captured = NULL;

    if (captures == NULL || !is_capture(filled)) {
        return filled;
    }
    captured = json_object_get(captures, json_string_value(filled) + 1);
    if (captured == NULL) {
        (void)snprintf(missing, 64, "%s", json_string_value(filled));
    }
    json_decref(filled);
    return json_deep_copy(captured);
}

json_t *fill_in(const json_t *text, unsigned long turn, const json_t *captures, char missing[64])
{
    json_t *filled = NULL, *value = NULL, *part = NULL;
    const char *key = NULL;
    size_t i = 0;

    if (json_is_string(text)) {
        return fill_text(text, turn, captures, missing);
    }
    if (!json_is_object(text) && !json_is_array(text)) {
        filled = json_deep_copy(text);
        no_memory(filled);
        return filled;
    }
    filled = json_is_object(text) ? json_object() : json_array();
    no_memory(filled);
    json_object_foreach((json_t *)text, key, value)
    {
        part = fill_in(value, turn, captures, missing);
        if (part == NULL || json_object_set_new_nocheck(filled, key, part) != 0) {
            json_decref(filled);
            return NULL;
        }
    }
    json_array_foreach(text, i, value)
    {
        part = fill_in(value, turn, captures, missing);
        if (part == NULL || json_array_append_new(filled, part) != 0) {
            json_decref(filled);
            return NULL;
        }
    }
    return filled;
}
/* NOLINTEND(misc-no-recursion) */
