/* What every closing shares: finding its reservation, making the tenant ready, moving W. For close.c and settle.c. */
#ifndef HF_CORE_CLOSE_H
#define HF_CORE_CLOSE_H

#include "core/slot.h"
#include "shm/clock.h"

#define HF_CLOSE_ROUNDS 100000U
#define HF_CLOSE_AGAIN  (-100) /* the state was another, or W was lost: look again */
#define HF_CLOSE_SPENT  (-101) /* the tenant's sequence is used up: `busy` */

/* A closing on its way. */
struct hf_close {
    struct holdfast *handle;
    const char *id;
    uint32_t id_bytes;
    uint64_t token;
    struct hf_found found;
    uint32_t tenant_idx;
};

/* Checks handle and id. HOLDFAST_OK, HOLDFAST_REFUSED with *reason invalid-request, or a fault. */
int hf_close_start(struct hf_close *close, struct holdfast *handle, const char *id, uint64_t token,
                   int *reason);

/* HOLDFAST_REASON_NONE when found holds a reservation that happened; busy, unknown-reservation, invalid-request or not-ready. */
int hf_close_find(struct hf_close *close);

/* Makes the tenant ready; word is its W and now the clock, read after it; found.st the state as it then stands. HF_OK;
 * HF_CLOSE_AGAIN when the slot is another's by now; a negative enum hf_code; HF_ENOTREADY: the segment is gone. */
int hf_close_ready(struct hf_close *close, struct hf_u128 *word, struct hf_clock_now *now);

/* Describes kind from the slot as it stands; HF_OK, or HF_CLOSE_AGAIN when found.st does not allow it or has changed. */
int hf_close_describe(const struct hf_close *close, enum hf_kind kind, struct hf_u128 word, uint64_t now_ms,
                      struct hf_op *op);

/* HF_OK, or HF_CLOSE_AGAIN: W was lost; HF_CLOSE_SPENT. */
int hf_close_run(const struct hf_close *close, struct hf_u128 word, const struct hf_op *op, uint64_t now_ms);

/* Everything unknown, nothing closed. */
void hf_close_clear(struct holdfast_closing *closing);

static inline int hf_close_refuse(struct holdfast_closing *closing, int reason)
{
    closing->reason = reason;
    return HOLDFAST_REFUSED;
}

#endif
