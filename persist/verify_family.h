/* Reservations as their receipts come by in the order of seq: does each reference lead to what it says, and does each reservation hold
 * one invocation, then none? Remembers the newest reservations, so that memory is bounded; the older ones are asked for again. */
#ifndef HF_PERSIST_VERIFY_FAMILY_H
#define HF_PERSIST_VERIFY_FAMILY_H

#include "persist/receipt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What of a receipt counts here. */
struct hf_family_row {
    int64_t seq;
    int64_t reservation_seq;
    uint64_t id_hash; /* of id and path: the same in all receipts of a reservation */
    int64_t held[HF_DIM_CNT];
    const uint8_t *digest;             /* of a reservation: its own, as stored */
    const uint8_t *reservation_digest; /* NULL: null */
    bool reserves;                     /* the kind is reservation */
};

enum hf_family_answer {
    HF_FAMILY_FITS,
    HF_FAMILY_FORGOTTEN, /* its reservation is not remembered: ask the store */
    HF_FAMILY_DIGEST,    /* names another digest than the reservation has */
    HF_FAMILY_ID,        /* has another id or path than the reservation */
    HF_FAMILY_UNEVEN, /* the reservation holds less than nothing, more than one, or amounts after its end */
    HF_FAMILY_NOMEM
};

struct hf_family;

/* Remembers `most` reservations. NULL: no memory. */
struct hf_family *hf_family_new(size_t most);
void hf_family_free(struct hf_family *family);
/* Forgets everything: another segment. */
void hf_family_reset(struct hf_family *family);

enum hf_family_answer hf_family_add(struct hf_family *family, const struct hf_family_row *row);

#endif
