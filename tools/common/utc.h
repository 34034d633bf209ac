/* Times for people. */
#ifndef HF_TOOLS_COMMON_UTC_H
#define HF_TOOLS_COMMON_UTC_H

#include <stdint.h>

#define HF_UTC_BYTES 25

/* Unix ms as "2026-09-21T14:13:20.000Z"; "-" for a time beyond the year 9999. */
void hf_utc_format(uint64_t ms, char text[HF_UTC_BYTES]);

#endif
