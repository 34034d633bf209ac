#include "persist/meter.h"

bool hf_meter_change(const struct hf_receipt *receipt, struct hf_meter_change *change)
{
    int64_t degraded = receipt->admission == HF_ADMISSION_DEGRADE;
    uint64_t actual =
        receipt->actual_cost_micros == HF_UNKNOWN ? receipt->hold_cost_micros : receipt->actual_cost_micros;
    int64_t settled = actual == HF_UNKNOWN ? 0 : (int64_t)actual;

    *change = (struct hf_meter_change){0};
    switch (receipt->kind) {
    case HF_RECEIPT_RESERVATION:
        *change = (struct hf_meter_change){1, 0, degraded, receipt->held_cost_micros, 0};
        return true;
    case HF_RECEIPT_EXTENSION:
        change->reserved_micros = receipt->held_cost_micros;
        return true;
    case HF_RECEIPT_SETTLEMENT:
        change->settled_micros = settled;
        change->failures = receipt->outcome == HF_OUTCOME_FAILURE;
        return true;
    case HF_RECEIPT_RELEASE:
        *change = (struct hf_meter_change){-1, 0, -degraded, receipt->held_cost_micros, 0};
        return true;
    case HF_RECEIPT_EXPIRY:
    case HF_RECEIPT_RETENTION:
        *change = (struct hf_meter_change){0, 1, 0, receipt->held_cost_micros, 0};
        return true;
    case HF_RECEIPT_LATE:
        change->failures = receipt->outcome == HF_OUTCOME_SUCCESS ? -1 : 0;
        change->settled_micros = settled;
        return true;
    case HF_RECEIPT_RESOLUTION:
        change->settled_micros = settled;
        return true;
    default:
        return false;
    }
}
