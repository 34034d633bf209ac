#include "scenario.h"

#include "match.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *have(void *memory)
{
    if (memory == NULL) {
        (void)fputs("conformance: out of memory\n", stderr);
        exit(2);
    }
    return memory;
}

static bool fault(const struct scenario *scenario, unsigned long line, const char *what, const char *which)
{
    (void)fprintf(stderr, "%s:%lu: %s%s%s\n", scenario->path, line, what, which[0] == '\0' ? "" : ": ",
                  which);
    return false;
}

char *scenario_path(const struct scenario *scenario, const char *path)
{
    char *whole = NULL;

    if (path[0] == '/') {
        return have(strdup(path));
    }
    if (asprintf(&whole, "%s/%s", scenario->folder, path) < 0) {
        whole = NULL;
    }
    return have(whole);
}

/* Whether the object has no other keys than these, a list ended by NULL. */
static bool has_only(const struct scenario *scenario, unsigned long line, const json_t *object,
                     const char *const *keys)
{
    const char *key = NULL;
    json_t *value = NULL;

    json_object_foreach((json_t *)object, key, value)
    {
        size_t i = 0;

        while (keys[i] != NULL && strcmp(keys[i], key) != 0) {
            i++;
        }
        if (keys[i] == NULL) {
            return fault(scenario, line, "an unknown key", key);
        }
    }
    return true;
}

static bool is_list_of_texts(const json_t *list)
{
    size_t i = 0;
    json_t *value = NULL;

    json_array_foreach(list, i, value)
    {
        if (!json_is_string(value)) {
            return false;
        }
    }
    return json_is_array(list) && json_array_size(list) > 0;
}

static bool read_header(struct scenario *scenario, json_t *header)
{
    static const char *const keys[] = {"title", "policy", "clock_ms", "needs", "refused_policies", NULL};
    const json_t *policy = json_object_get(header, "policy"),
                 *refused = json_object_get(header, "refused_policies");
    const json_t *needs = json_object_get(header, "needs"), *clock = json_object_get(header, "clock_ms");

    scenario->header = json_incref(header);
    if (!has_only(scenario, 1, header, keys)) {
        return false;
    }
    if ((policy == NULL) == (refused == NULL)) {
        return fault(scenario, 1, "the header has one of policy and refused_policies", "");
    }
    if ((policy != NULL && !json_is_string(policy)) || (refused != NULL && !is_list_of_texts(refused)) ||
        (needs != NULL && !is_list_of_texts(needs)) || !json_is_integer(clock) ||
        !json_is_string(json_object_get(header, "title"))) {
        return fault(scenario, 1,
                     "title, policy, refused_policies, needs or clock_ms is not what it should be", "");
    }
    scenario->clock_ms = json_integer_value(clock);
    if (policy != NULL) {
        scenario->policy = scenario_path(scenario, json_string_value(policy));
    }
    return true;
}

static bool read_hex(struct step *step, const char *hex)
{
    size_t bytes = strlen(hex) / 2;

    step->raw = have(malloc(bytes + 1));
    step->raw_bytes = bytes;
    for (size_t i = 0; i < bytes; i++) {
        unsigned value = 0;
        char digits[3] = {hex[2 * i], hex[2 * i + 1], '\0'};

        if (strspn(digits, "0123456789abcdefABCDEF") != 2) {
            return false;
        }
        value = (unsigned)strtoul(digits, NULL, 16);
        step->raw[i] = (char)value;
    }
    return strlen(hex) % 2 == 0;
}

/* The operation of `apply` names its policy from the scenario's folder. */
static void resolve_policy(const struct scenario *scenario, json_t *in)
{
    const char *op = json_string_value(json_object_get(in, "op"));
    const char *policy = json_string_value(json_object_get(in, "policy"));

    if (op != NULL && policy != NULL && strcmp(op, "apply") == 0) {
        char *path = scenario_path(scenario, policy);

        (void)json_object_set_new(in, "policy", have(json_string(path)));
        free(path);
    }
}

static bool read_what_is_sent(const struct scenario *scenario, struct step *step, const json_t *object)
{
    json_t *in = json_object_get(object, "in");
    const json_t *raw = json_object_get(object, "raw"), *hex = json_object_get(object, "hex");

    if ((in != NULL) + (raw != NULL) + (hex != NULL) != 1) {
        return fault(scenario, step->line, "a step has exactly one of in, raw and hex", "");
    }
    if (in != NULL) {
        if (!json_is_object(in)) {
            return fault(scenario, step->line, "in is no object", "");
        }
        step->in = json_incref(in);
        resolve_policy(scenario, in);
        return true;
    }
    if (hex != NULL) {
        return json_is_string(hex) && read_hex(step, json_string_value(hex))
                   ? true
                   : fault(scenario, step->line, "hex is no text of pairs of hexadecimal digits", "");
    }
    if (!json_is_string(raw)) {
        return fault(scenario, step->line, "raw is no text", "");
    }
    step->raw_bytes = json_string_length(raw);
    step->raw = have(malloc(step->raw_bytes + 1));
    memcpy(step->raw, json_string_value(raw), step->raw_bytes);
    return memchr(step->raw, '\n', step->raw_bytes) == NULL
               ? true
               : fault(scenario, step->line, "raw is more than one line", "");
}

static bool read_step(struct scenario *scenario, unsigned long line, const json_t *object)
{
    static const char *const keys[] = {"in", "raw", "hex", "out", "repeat", "note", NULL};
    const json_t *repeat = json_object_get(object, "repeat");
    json_t *out = json_object_get(object, "out");
    const char *bad_pattern = out == NULL ? NULL : pattern_fault(out);
    struct step *step = NULL;

    if (!has_only(scenario, line, object, keys)) {
        return false;
    }
    if (json_object_size(object) == 1 && json_object_get(object, "note") != NULL) {
        return true;
    }
    scenario->steps = have(reallocarray(scenario->steps, scenario->step_cnt + 1, sizeof(*scenario->steps)));
    step = &scenario->steps[scenario->step_cnt++];
    *step = (struct step){.line = line, .out = json_incref(out)};
    if (repeat != NULL) {
        if (!json_is_integer(repeat) || json_integer_value(repeat) < 1) {
            return fault(scenario, line, "repeat is no number from 1", "");
        }
        step->repeat = (unsigned long)json_integer_value(repeat);
    }
    if (out != NULL && !json_is_object(out)) {
        return fault(scenario, line, "out is no object", "");
    }
    if (bad_pattern != NULL) {
        return fault(scenario, line, "out cannot be matched", bad_pattern);
    }
    return read_what_is_sent(scenario, step, object);
}

static bool read_lines(struct scenario *scenario, FILE *file)
{
    char *text = NULL;
    size_t size = 0;
    ssize_t bytes = 0;
    unsigned long line = 0;
    bool good = true;

    while (good && (bytes = getline(&text, &size, file)) > 0) {
        json_error_t error;
        json_t *json = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);

        line++;
        if (!json_is_object(json)) {
            good = fault(scenario, line, "no JSON object", json == NULL ? error.text : "");
        } else {
            good = line == 1 ? read_header(scenario, json) : read_step(scenario, line, json);
        }
        json_decref(json);
    }
    free(text);
    if (good && line == 0) {
        return fault(scenario, 1, "the file is empty", "");
    }
    if (good && scenario->policy != NULL && scenario->step_cnt == 0) {
        return fault(scenario, line, "there is no step", "");
    }
    return good;
}

struct scenario *scenario_read(const char *path)
{
    struct scenario *scenario = have(calloc(1, sizeof(*scenario)));
    FILE *file = fopen(path, "re");
    char *slash = NULL;
    bool good = false;

    scenario->path = have(strdup(path));
    slash = strrchr(scenario->path, '/');
    scenario->name = slash == NULL ? scenario->path : slash + 1;
    scenario->folder =
        have(slash == NULL ? strdup(".") : strndup(scenario->path, (size_t)(slash - scenario->path)));
    if (file == NULL) {
        (void)fault(scenario, 0, "cannot open it", strerror(errno));
    } else {
        good = read_lines(scenario, file);
        (void)fclose(file);
    }
    if (!good) {
        scenario_free(scenario);
        return NULL;
    }
    return scenario;
}

void scenario_free(struct scenario *scenario)
{
    for (size_t i = 0; i < scenario->step_cnt; i++) {
        json_decref(scenario->steps[i].in);
        json_decref(scenario->steps[i].out);
        free(scenario->steps[i].raw);
    }
    free(scenario->steps);
    json_decref(scenario->header);
    free(scenario->policy);
    free(scenario->folder);
    free(scenario->path);
    free(scenario);
}
