/* A receipt as JSON: every column of its row, under the column's name. */
#ifndef HF_TOOLS_HOLDFAST_RUN_RECEIPT_H
#define HF_TOOLS_HOLDFAST_RUN_RECEIPT_H

#include "persist/receipt.h"
#include "tools/holdfast/json_out.h"

/* Writes one object, an entry of the list that is open. A column without a value is null; digests are 64 hex digits. */
void hf_receipt_put_json(struct hf_json_out *out, const struct hf_receipt *receipt);

#endif
