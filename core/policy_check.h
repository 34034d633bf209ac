/* The rules of a policy that look at several elements at once: duplicate ids, shares against totals, caps
 * that limits need, and what is no error but hardly meant.
 *
 * The arrays of the policy have as many elements as the lists of the tree, wrong ones as zeros, so that an
 * index says the place in both. A zeroed element has an id of 0 bytes. */
#ifndef HF_CORE_POLICY_CHECK_H
#define HF_CORE_POLICY_CHECK_H

#include "core/policy_reader.h"

/* Notes each id that an element before it in the same list has. elements are cnt elements of size bytes that
 * start with their struct hf_name; node is their list in the tree.
 * The reader's path is that of the list. */
void hf_policy_check_ids(struct hf_policy_reader *reader, uint32_t node, const void *elements, size_t cnt,
                         size_t size);

/* Notes the limits of a tenant whose teams' shares add up to more: an error, or a warning with
 * allow_overcommit. node is the tenant's mapping; the reader's path is the tenant's. */
void hf_policy_check_shares(struct hf_policy_reader *reader, uint32_t node,
                            const struct hf_policy_tenant *tenant);

/* A limit that needs an amount of every request on its path: whose, which window, where. */
struct hf_policy_need {
    const char *layer; /* NULL: no limit needs it */
    enum hf_window window;
    uint32_t line;
};

/* What the limits of a tenant need of every request, per dimension. */
void hf_policy_needs_of_tenant(const struct hf_policy_reader *reader, uint32_t node,
                               const struct hf_policy_tenant *tenant,
                               struct hf_policy_need needs[HF_DIM_CNT]);

/* Notes the capabilities of a team without a cap that a limit of the tenant, the team or one of its keys
 * needs. The reader's path is the team's. */
void hf_policy_check_caps(struct hf_policy_reader *reader, uint32_t node, const struct hf_policy_team *team,
                          const struct hf_policy_need of_tenant[HF_DIM_CNT]);

/* Warns when the teams of a tenant differ in on_limit. The reader's path is the tenant's. */
void hf_policy_check_on_limits(struct hf_policy_reader *reader, uint32_t node,
                               const struct hf_policy_tenant *tenant);

#endif
