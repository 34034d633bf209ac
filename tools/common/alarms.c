#include "tools/common/alarms.h"

#include <stddef.h>

static const struct hf_alarm_text texts[HF_ALARM_CNT] = {
    [HF_ALARM_EXPIRED] = {"expired",
                          "holds past their deadline were freed: a worker died or forgot to settle"},
    [HF_ALARM_RETAINED] = {"retained",
                           "holds past their deadline stay charged: find out what those calls came to"},
    [HF_ALARM_OVERAGE] = {"overage", "settled above the hold, and charged so: caps or estimates are too low"},
    [HF_ALARM_DISPUTED] = {"disputed",
                           "settled above the hold where the policy refuses that: an operator decides"},
    [HF_ALARM_CONFLICT] = {"conflict", "an id was used again for another request"},
    [HF_ALARM_BUSY] = {"busy", "refused for want of a free slot, or because the store is too far behind"},
    [HF_ALARM_BELOW_ZERO] = {"below_zero",
                             "a settlement took a limit below zero: more was spent than allowed"},
    [HF_ALARM_UNKNOWN_SETTLE] = {"unknown_settle",
                                 "usage came for an id that nobody knows: it is charged to no budget"},
    [HF_ALARM_LIMIT_80] = {"limit_80", "a limit is used to 80 %, once per window"},
    [HF_ALARM_LIMIT_100] = {"limit_100", "a limit is used up, once per window"},
    [HF_ALARM_FORGOTTEN] =
        {"forgotten", "closed reservations were forgotten before their time: the segment needs more slots"},
    [HF_ALARM_CLOCK_JUMP] = {"clock_jump", "the store's clock jumped: check its time service"},
    [HF_ALARM_COVERAGE_GAP] =
        {"coverage_gap", "what happened in some span of time is not in the store: see the epoch's receipt"},
    [HF_ALARM_STORE_RETRY] = {"store_retry",
                              "the store did not take a batch at once: is it up, is its disk full?"},
    [HF_ALARM_STORE_CONFLICT] = {"store_conflict",
                                 "the store had another reservation under the id: kept aside, never merged"},
    [HF_ALARM_ABANDONED] = {"abandoned", "half-made reservations of dead processes were undone"},
    [HF_ALARM_SEQUENCE] = {"sequence", "a tenant's sequence nears its end: plan a rebuild of the segment"},
    [HF_ALARM_CORRUPT] =
        {"corrupt", "an impossible value was read: stop, keep the segment's file, recover from the store"},
};

const struct hf_alarm_text *hf_alarm_text(unsigned alarm)
{
    static const struct hf_alarm_text none = {"?", "unknown to this build"};

    return alarm < HF_ALARM_CNT && texts[alarm].name != NULL ? &texts[alarm] : &none;
}
