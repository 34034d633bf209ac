#include "core/policy_report.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define QUOTED_CHARACTERS_MAX 40

bool hf_policy_report_start(struct hf_policy_report *report, const char *file)
{
    memset(report, 0, sizeof(*report));
    report->file = strdup(file);
    report->incomplete = report->file == NULL;
    return !report->incomplete;
}

/* Room for one more problem. */
static bool grow(struct hf_policy_report *report)
{
    size_t cap = report->problem_cap == 0 ? 16 : report->problem_cap * 2;
    struct hf_policy_problem *problems;

    if (report->problem_cnt < report->problem_cap) {
        return true;
    }
    problems = realloc(report->problems, cap * sizeof(*problems));
    if (problems == NULL) {
        return false;
    }
    report->problems = problems;
    report->problem_cap = cap;
    return true;
}

void hf_policy_report_add(struct hf_policy_report *report, enum hf_policy_severity severity, uint32_t line,
                          uint32_t column, const char *path, const char *format, ...)
{
    struct hf_policy_problem problem = {.severity = severity, .line = line, .column = column};
    va_list args;
    int len;

    if ((severity == HF_POLICY_ERROR ? ++report->error_cnt : ++report->warning_cnt) >
        HF_POLICY_PROBLEMS_MAX) {
        return;
    }
    va_start(args, format);
    len = vasprintf(&problem.message, format, args);
    va_end(args);
    if (len < 0) {
        report->incomplete = true;
        return;
    }
    problem.path = strdup(path);
    if (problem.path == NULL || !grow(report)) {
        free(problem.path);
        free(problem.message);
        report->incomplete = true;
        return;
    }
    report->problems[report->problem_cnt++] = problem;
}

static bool comes_before(const struct hf_policy_problem *a, const struct hf_policy_problem *b)
{
    return a->line < b->line || (a->line == b->line && a->column < b->column);
}

void hf_policy_report_sort(struct hf_policy_report *report)
{
    /* Insertion: it is stable, needs no memory, and there are at most
     * 2 * HF_POLICY_PROBLEMS_MAX. */
    for (size_t i = 1; i < report->problem_cnt; i++) {
        struct hf_policy_problem problem = report->problems[i];
        size_t at = i;

        while (at > 0 && comes_before(&problem, &report->problems[at - 1])) {
            report->problems[at] = report->problems[at - 1];
            at--;
        }
        report->problems[at] = problem;
    }
}

void hf_policy_report_print(const struct hf_policy_report *report, FILE *out)
{
    const char *file = report->file != NULL ? report->file : "policy";
    size_t further = report->error_cnt + report->warning_cnt - report->problem_cnt;

    for (size_t i = 0; i < report->problem_cnt; i++) {
        const struct hf_policy_problem *problem = &report->problems[i];

        fprintf(out, "%s:", file);
        if (problem->line > 0) {
            fprintf(out, "%u:", problem->line);
        }
        fprintf(out, "%s %s%s%s\n", problem->severity == HF_POLICY_WARNING ? " warning:" : "", problem->path,
                problem->path[0] != '\0' ? ": " : "", problem->message);
    }
    if (further > 0) {
        fprintf(out, "%s: %zu further problems are not listed; mend these first\n", file, further);
    }
    if (report->incomplete) {
        fprintf(out, "%s: memory ran out, so there may be further problems; free some and try again\n", file);
    }
}

void hf_policy_report_free(struct hf_policy_report *report)
{
    for (size_t i = 0; i < report->problem_cnt; i++) {
        free(report->problems[i].path);
        free(report->problems[i].message);
    }
    free(report->problems);
    free(report->file);
    memset(report, 0, sizeof(*report));
}

/* Characters that a terminal or an editor would not show as one visible character in its place. */
static bool hidden(uint32_t code_point)
{
    return hf_utf8_control(code_point) || (code_point >= 0x200B && code_point <= 0x200F) ||
           (code_point >= 0x2028 && code_point <= 0x202E) || (code_point >= 0x2066 && code_point <= 0x2069) ||
           code_point == 0xFEFF;
}

const char *hf_policy_quote(char quoted[HF_POLICY_QUOTE_BYTES], const char *bytes, size_t len)
{
    size_t at = 0;
    size_t i = 0;

    quoted[at++] = '`';
    /* Each round writes at most 10 bytes, and the end needs 5. */
    for (unsigned shown = 0; i < len && shown < QUOTED_CHARACTERS_MAX && at < HF_POLICY_QUOTE_BYTES - 16;
         shown++) {
        uint32_t code_point;
        size_t step = hf_utf8_decode(bytes + i, len - i, &code_point);

        if (step == 0) {
            at += (size_t)snprintf(quoted + at, 10, "<%02X>", (unsigned char)bytes[i]);
            step = 1;
        } else if (hidden(code_point)) {
            at += (size_t)snprintf(quoted + at, 10, "<U+%04X>", code_point);
        } else {
            memcpy(quoted + at, bytes + i, step);
            at += step;
        }
        i += step;
    }
    if (i < len) {
        memcpy(quoted + at, "...", 3);
        at += 3;
    }
    quoted[at++] = '`';
    quoted[at] = '\0';
    return quoted;
}
