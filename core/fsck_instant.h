/* The instant at which fsck reads a live tenant: fsck_instant.c takes it, fsck_sums.c compares it. Nobody else includes this. */
#ifndef HF_CORE_FSCK_INSTANT_H
#define HF_CORE_FSCK_INSTANT_H

#include "core/fsck_impl.h"

#define HF_FSCK_QUEUE_MAX 4096U /* slots that may change during one try */

/* One row's words as read. */
struct hf_fsck_row {
    struct hf_u128 words[HF_SHM_ROW_BUCKETS];
    uint64_t settled[HF_SHM_ROW_BUCKETS];
    uint32_t settled_window[HF_SHM_ROW_BUCKETS];
    uint64_t pub_seq;
};

/* Opened by the one who wants it: fsck, seg, tenant_idx, rows_cnt, and rows and place with their memory. */
struct hf_fsck_instant {
    struct hf_fsck *fsck;
    const struct hf_segment *seg;
    uint32_t tenant_idx;
    struct hf_u128 last; /* W as last seen */
    uint32_t queue[HF_FSCK_QUEUE_MAX];
    uint32_t queue_cnt;
    struct hf_fsck_part *parts;
    uint32_t parts_cnt;
    uint32_t parts_room;
    uint32_t *place; /* per slot: number of its part + 1 */
    struct hf_fsck_row *rows;
    uint32_t rows_cnt;
    uint64_t number; /* hdr_batch_number before anything of the daemon's was read */
};

enum hf_fsck_outcome {
    HF_FSCK_TAKEN,
    HF_FSCK_AGAIN,      /* W, or the daemon, was faster */
    HF_FSCK_PUBLISHING, /* publications are in the making */
    HF_FSCK_IMPOSSIBLE, /* W names what cannot be: other findings say so */
    HF_FSCK_NO_MEMORY
};

/* Tries as often and as long as the options say. HF_FSCK_TAKEN: parts and rows hold what was true at one instant. The caller frees
 * parts, rows and place in any case. */
enum hf_fsck_outcome hf_fsck_take_instant(struct hf_fsck_instant *take);

/* The row is one of this tenant's. */
bool hf_fsck_own_row(const struct hf_fsck_instant *take, uint32_t row);

#endif
