/* Noting the problems of a policy while it is loaded; what readers of a report need is in core/policy.h. */
#ifndef HF_CORE_POLICY_REPORT_H
#define HF_CORE_POLICY_REPORT_H

#include "core/policy.h"

/* Makes report an empty one of that file. False when memory ran out. */
bool hf_policy_report_start(struct hf_policy_report *report, const char *file);

/* Notes a problem; line, column and path as in struct hf_policy_problem, then the message as for printf. When
 * memory runs out, report->incomplete becomes true. */
void hf_policy_report_add(struct hf_policy_report *report, enum hf_policy_severity severity, uint32_t line,
                          uint32_t column, const char *path, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* Brings the problems into line order; those of one place stay in the order in which they were noted. */
void hf_policy_report_sort(struct hf_policy_report *report);

/* Room for a quoted text of hf_policy_quote. */
#define HF_POLICY_QUOTE_BYTES 200

/* Writes the text in back quotes for a message: cut after about 40 characters, control characters and line
 * separators as <U+0007>. Returns quoted. */
const char *hf_policy_quote(char quoted[HF_POLICY_QUOTE_BYTES], const char *bytes, size_t len);

#endif
