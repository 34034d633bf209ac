#include "tools/common/utc.h"

#include <stdio.h>
#include <time.h>

#define UTC_MS_MAX UINT64_C(253402300799999) /* 9999-12-31T23:59:59.999Z */

void hf_utc_format(uint64_t ms, char text[HF_UTC_BYTES])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm parts;

    if (ms > UTC_MS_MAX || gmtime_r(&seconds, &parts) == NULL) {
        (void)snprintf(text, HF_UTC_BYTES, "-");
        return;
    }
    (void)strftime(text, HF_UTC_BYTES, "%Y-%m-%dT%H:%M:%S", &parts);
    (void)snprintf(text + 19, HF_UTC_BYTES - 19, ".%03uZ", (unsigned)(ms % 1000));
}
