/* Times for people. */
#ifndef HF_TOOLS_COMMON_UTC_H
#define HF_TOOLS_COMMON_UTC_H

#include <stdbool.h>
#include <stdint.h>

#define HF_UTC_BYTES 25

/* Unix ms as "2026-09-21T14:13:20.000Z"; "-" for a time beyond the year 9999. */
void hf_utc_format(uint64_t ms, char text[HF_UTC_BYTES]);

/* The other way round: "2026-09-21T14:13:20Z", the same with milliseconds, or the day alone, "2026-09-21", which is its first
 * instant. False: it is none of these, or before 1970. */
bool hf_utc_parse(const char *text, uint64_t *ms);

#endif
