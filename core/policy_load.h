/* From the tree of a policy file to struct hf_policy: which fields there are, and what each means. */
#ifndef HF_CORE_POLICY_LOAD_H
#define HF_CORE_POLICY_LOAD_H

#include "core/policy_reader.h"

/* Fills policy, an all-zero struct, from the reader's tree; the reader's report then says whether it is good
 * for anything. Whatever comes of it, what policy holds is the caller's: hf_policy_free. */
void hf_policy_read(struct hf_policy_reader *reader, struct hf_policy *policy);

#endif
