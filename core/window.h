/* Fixed windows of time, aligned to the Unix epoch in UTC, without leap seconds: pure arithmetic, no libc
 * time, no TZ.
 *
 * A window is {kind, id}. Ids count from 0 at 1970-01-01T00:00:00Z and never go back: minutes, hours, days
 * and calendar months since then; lifetime has only the window 0, which starts at 0 and never ends. Up to
 * HF_CLOCK_MS_MAX every id fits 28 bits. */
#ifndef HF_CORE_WINDOW_H
#define HF_CORE_WINDOW_H

#include "core/terms.h"

#include <stdint.h>

/* The last millisecond of the year 2400, the end of the clock: 2400-12-31T23:59:59.999Z. */
#define HF_CLOCK_MS_MAX   UINT64_C(13601087999999)
#define HF_WINDOW_ID_BITS 28

/* The id of the window of that kind in which now_ms lies. now_ms <= HF_CLOCK_MS_MAX. */
uint32_t hf_window_id(enum hf_window kind, uint64_t now_ms);

/* The ids of all window kinds at now_ms (<= HF_CLOCK_MS_MAX), each as hf_window_id gives it. Wait-free, a few
 * ns: on the hot path of every operation. */
void hf_window_ids(uint64_t now_ms, uint32_t ids[HF_WINDOW_CNT]);

/* The ids of one minute, kept by a caller: most looks at the clock fall into the minute of the last one. All-zero: empty. */
struct hf_window_memo {
    uint64_t minute_ms; /* start of the minute + 1; 0: empty */
    uint32_t ids[HF_WINDOW_CNT];
};

/* hf_window_ids() by way of the memo; the same ids. */
void hf_window_ids_memo(struct hf_window_memo *memo, uint64_t now_ms, uint32_t ids[HF_WINDOW_CNT]);

/* The first millisecond of a window, and the first one after it (the start of the next), in ms since the Unix
 * epoch. The end of lifetime is HF_UNKNOWN. id < 2^28. */
uint64_t hf_window_start_ms(enum hf_window kind, uint32_t id);
uint64_t hf_window_end_ms(enum hf_window kind, uint32_t id);

#endif
