/* The canonical text of a receipt from its columns as they are in the store, byte for byte: what persist/digest.h makes of a struct
 * hf_receipt, without the detour. A value that this build does not understand is in it as it stands, so nothing can hide behind
 * a reading. For who proves a store; no meaning is looked at. */
#ifndef HF_PERSIST_CANONICAL_H
#define HF_PERSIST_CANONICAL_H

#include "persist/store_impl.h"

/* A reused buffer, for rows of one segment at a time. One thread at a time. */
struct hf_canonical;

/* NULL: no memory. */
struct hf_canonical *hf_canonical_new(void);
void hf_canonical_free(struct hf_canonical *canonical);

/* The segment whose rows come next; the name is copied. False: no memory. */
bool hf_canonical_segment(struct hf_canonical *canonical, const char *name, size_t len);

/* The text of one row; fields are its columns in the order of hf_receipt_field, all of them. Valid until the next call. False: no
 * memory. */
bool hf_canonical_row(struct hf_canonical *canonical, const struct hf_column *fields, const char **text,
                      size_t *len);

#endif
