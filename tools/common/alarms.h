/* The alarm counters of a segment, with their words and what each means. */
#ifndef HF_TOOLS_COMMON_ALARMS_H
#define HF_TOOLS_COMMON_ALARMS_H

#include "shm/layout.h"

struct hf_alarm_text {
    const char *name;    /* "below_zero": as in logs and metrics */
    const char *meaning; /* what happened, and what to do where there is something to do */
};

/* Of alarm (enum hf_alarm); never NULL. */
const struct hf_alarm_text *hf_alarm_text(unsigned alarm);

#endif
