/* Does an amount fit the buckets of a path as they were seen: the first that refuses, when to come again, and what
 * remains. Pure: reads a view, touches nothing. */
#ifndef HF_CORE_CHECK_H
#define HF_CORE_CHECK_H

#include "core/path.h"
#include "core/want.h"

/* The one limit that a degraded attempt may overdraw: cost of a layer's window. */
struct hf_widen {
    uint32_t layer; /* HF_SHM_NONE: nothing is widened */
    uint32_t window;
    uint64_t micros;
};
#define HF_WIDEN_NONE ((struct hf_widen){HF_SHM_NONE, 0, 0})

/* Index of the first bucket that refuses amounts, in the order of the checks, or -1. */
int hf_check(const struct hf_path *path, const struct hf_view *view, const struct hf_amounts *amounts,
             const struct hf_widen *widen);

/* True when every bucket stays within the range of amounts. Needed where limit + credit + overdraft may be above the range:
 * otherwise hf_check() has shown it. */
bool hf_check_range(const struct hf_path *path, const struct hf_view *view, const struct hf_amounts *amounts);

/* retry_after_ms of a refusal by some bucket (semantics.md, section 3): HF_SHM_UNKNOWN when amounts can never fit. */
uint64_t hf_check_retry_ms(const struct hf_path *path, const struct hf_view *view,
                           const struct hf_amounts *amounts, const struct hf_widen *widen);

/* Fills answer->remaining. added: what an admission has counted since the view (NULL: nothing, the view is final).
 * refused: no value below 0. held: amount for the layer `request` (HF_SHM_UNKNOWN: null there); NULL: null. */
void hf_check_remaining(const struct hf_path *path, const struct hf_view *view,
                        const struct hf_amounts *added, bool refused, const struct hf_amounts *held,
                        struct holdfast_answer *answer);

#endif
