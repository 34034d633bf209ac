/* Loading a policy for a program that people start: everything wrong with it is said in full. */
#ifndef HF_TOOLS_COMMON_POLICY_CHECK_H
#define HF_TOOLS_COMMON_POLICY_CHECK_H

#include "core/policy.h"

#include <stdbool.h>
#include <stdio.h>

/* Loads the policy at path. Problems and warnings go to err, one a line (`file:line: path: message`); then, for a
 * refused file, a line that counts them.
 *
 * on_limit: queue is not made yet. Where this is decided, once for all programs: a policy that has it is accepted with a
 * warning, and a reserve that would wait in a queue is refused with the reason not-built; with strict the policy is
 * refused, at each line that has it.
 *
 * 0 with *policy the caller's (hf_policy_free), or -1. */
int hf_policy_check_file(const char *path, bool strict, FILE *err, struct hf_policy **policy)
    __attribute__((warn_unused_result));

/* How many teams and tenants of a policy say on_limit: queue. */
size_t hf_policy_queue_cnt(const struct hf_policy *policy);

#endif
