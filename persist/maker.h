/* Which segment made an epoch's receipt. Epochs alone do not tell: a store that lost commits may give the same number to two
 * segments. */
#ifndef HF_PERSIST_MAKER_H
#define HF_PERSIST_MAKER_H

#include "persist/receipt.h"
#include "shm/segment.h"

#define HF_MAKER_BYTES 33 /* 32 hexadecimal digits and a NUL */

/* The name of a segment's making: the same as long as it lives, another for every other segment. Goes into the details of the
 * epoch's receipts as "maker". False: no memory, or libcrypto failed. */
bool hf_maker_of(const struct hf_segment *seg, char text[HF_MAKER_BYTES]);

/* Whether an epoch's receipt states this maker. */
bool hf_maker_states(const struct hf_receipt *row, const char text[HF_MAKER_BYTES]);

#endif
