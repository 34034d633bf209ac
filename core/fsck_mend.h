/* Steps of a repair: alone in the segment, each idempotent, each saying what it changed. */
#ifndef HF_CORE_FSCK_MEND_H
#define HF_CORE_FSCK_MEND_H

#include "core/fsck_impl.h"

struct hf_mend {
    struct hf_fsck *fsck;
    struct hf_segment *seg;
    const struct hf_fsck_repair *repair;
    uint64_t own_ref;
    bool again;       /* a repair was cut off before: what it may have half done is done again */
    uint8_t *unsound; /* per tenant: a slot of it holds what cannot be, so its sums prove nothing */
    bool all_unsound; /* a slot whose tenant cannot be told does */
};

/* Says that something was mended. text: what was done. */
struct hf_fsck_item hf_mend_item(enum hf_fsck_kind kind, uint64_t before, uint64_t after, const char *text);

void hf_mend_owners(struct hf_mend *mend);
void hf_mend_words(struct hf_mend *mend); /* W, A, tags, sequences */
void hf_mend_slots(struct hf_mend *mend); /* half-made ones, claims, hashes */
void hf_mend_index(struct hf_mend *mend); /* from the items of a look */
void hf_mend_chunks(struct hf_mend *mend);
void hf_mend_credits(struct hf_mend *mend); /* from the items of a look */
void hf_mend_published(struct hf_mend *mend);
bool hf_mend_buckets(
    struct hf_mend *mend); /* last: what the others leave is believed. False without memory */

/* Which tenants' slots prove nothing, from the items of a look. */
void hf_mend_judge(struct hf_mend *mend);

#endif
