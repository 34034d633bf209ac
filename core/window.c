#include "core/window.h"

#include <string.h>

#include "core/amount.h"

#define MINUTE_MS UINT64_C(60000)
#define HOUR_MS   UINT64_C(3600000)
#define DAY_MS    UINT64_C(86400000)

_Static_assert(HF_CLOCK_MS_MAX / MINUTE_MS < UINT64_C(1) << HF_WINDOW_ID_BITS, "the largest id fits");

/* Days from 0000-03-01 to 1970-01-01. Counting from a March 1st puts the leap day at the end of a year, where
 * it moves no other month. */
#define EPOCH_DAY       719468u
#define CENTURIES4_DAYS 146097u /* days of 400 years of the Gregorian calendar */

/* Calendar months from 1970-01 to the month of that day since 1970-01-01; day < 2^28. */
static uint32_t month_of_day(uint32_t day)
{
    /* 4 * days + 3 over the days of 400 (4) years: the century (year in it), rounded the calendar's way. */
    uint32_t quarter_days = 4 * (day + EPOCH_DAY) + 3;
    uint32_t century = quarter_days / CENTURIES4_DAYS;
    uint32_t in_century = quarter_days % CENTURIES4_DAYS | 3;
    uint32_t year_in_century = in_century / 1461;
    uint32_t day_of_year = in_century % 1461 / 4;
    /* From March on the month lengths repeat 31 30 31 30 31: five months have 153 days. */
    uint32_t months_since_march = (5 * day_of_year + 2) / 153;

    return (100 * century + year_in_century) * 12 + months_since_march + 2 - 1970 * 12;
}

/* The first day, since 1970-01-01, of that month since 1970-01. */
static uint64_t first_day_of_month(uint32_t month)
{
    uint64_t since_march = (uint64_t)month + 1970 * 12 - 2;
    uint64_t year = since_march / 12;
    uint64_t day_of_year = (153 * (since_march % 12) + 2) / 5;

    return 365 * year + year / 4 - year / 100 + year / 400 + day_of_year - EPOCH_DAY;
}

uint32_t hf_window_id(enum hf_window kind, uint64_t now_ms)
{
    switch (kind) {
    case HF_WINDOW_MINUTE:
        return (uint32_t)(now_ms / MINUTE_MS);
    case HF_WINDOW_HOUR:
        return (uint32_t)(now_ms / HOUR_MS);
    case HF_WINDOW_DAY:
        return (uint32_t)(now_ms / DAY_MS);
    case HF_WINDOW_MONTH:
        return month_of_day((uint32_t)(now_ms / DAY_MS));
    case HF_WINDOW_LIFETIME:
    case HF_WINDOW_CNT:
    default:
        return 0;
    }
}

void hf_window_ids(uint64_t now_ms, uint32_t ids[HF_WINDOW_CNT])
{
    /* Each from now_ms and not from the one before, so that no division waits for another. */
    ids[HF_WINDOW_MINUTE] = (uint32_t)(now_ms / MINUTE_MS);
    ids[HF_WINDOW_HOUR] = (uint32_t)(now_ms / HOUR_MS);
    ids[HF_WINDOW_DAY] = (uint32_t)(now_ms / DAY_MS);
    ids[HF_WINDOW_MONTH] = month_of_day((uint32_t)(now_ms / DAY_MS));
    ids[HF_WINDOW_LIFETIME] = 0;
}

uint64_t hf_window_start_ms(enum hf_window kind, uint32_t id)
{
    switch (kind) {
    case HF_WINDOW_MINUTE:
        return id * MINUTE_MS;
    case HF_WINDOW_HOUR:
        return id * HOUR_MS;
    case HF_WINDOW_DAY:
        return id * DAY_MS;
    case HF_WINDOW_MONTH:
        return first_day_of_month(id) * DAY_MS;
    case HF_WINDOW_LIFETIME:
    case HF_WINDOW_CNT:
    default:
        return 0;
    }
}

uint64_t hf_window_end_ms(enum hf_window kind, uint32_t id)
{
    if (kind == HF_WINDOW_LIFETIME) {
        return HF_UNKNOWN;
    }
    return hf_window_start_ms(kind, id + 1);
}

void hf_window_ids_memo(struct hf_window_memo *memo, uint64_t now_ms, uint32_t ids[HF_WINDOW_CNT])
{
    /* Every window begins and ends at a minute's edge. An empty memo wraps around to a large difference. */
    if (__builtin_expect(now_ms + 1U - memo->minute_ms >= 60000U || memo->minute_ms == 0, 0)) {
        hf_window_ids(now_ms, memo->ids);
        memo->minute_ms = now_ms - now_ms % 60000U + 1U;
    }
    memcpy(ids, memo->ids, sizeof memo->ids);
}
