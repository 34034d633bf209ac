/* What a receipt changes in the meters of semantics.md, section 5. The view meter_row says the same in SQL. */
#ifndef HF_PERSIST_METER_H
#define HF_PERSIST_METER_H

#include "persist/receipt.h"

struct hf_meter_change {
    int64_t requests;
    int64_t failures;
    int64_t degraded;
    int64_t reserved_micros;
    int64_t settled_micros;
};

/* False: this kind changes no meter; then all are zero. Whether the receipt is in conflict is not looked at. */
bool hf_meter_change(const struct hf_receipt *receipt, struct hf_meter_change *change);

#endif
