#include "tools/common/utc.h"

#include <stdio.h>
#include <string.h>
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

/* Reads `digits` digits at *text and moves it on. -1: there are others. */
static int read_number(const char **text, int digits)
{
    int number = 0;

    for (int i = 0; i < digits; i++, (*text)++) {
        if (**text < '0' || **text > '9') {
            return -1;
        }
        number = number * 10 + (**text - '0');
    }
    return number;
}

/* Reads a two-digit number of at most `max` after that mark. */
static bool read_part(const char **text, char mark, int max, int *number)
{
    if (**text != mark) {
        return false;
    }
    (*text)++;
    *number = read_number(text, 2);
    return *number >= 0 && *number <= max;
}

/* THH:MM:SS[.mmm]Z */
static bool read_clock(const char *text, struct tm *parts, int *ms)
{
    if (!read_part(&text, 'T', 23, &parts->tm_hour) || !read_part(&text, ':', 59, &parts->tm_min) ||
        !read_part(&text, ':', 59, &parts->tm_sec)) {
        return false;
    }
    if (*text == '.') {
        text++;
        *ms = read_number(&text, 3);
    }
    return *ms >= 0 && strcmp(text, "Z") == 0;
}

bool hf_utc_parse(const char *text, uint64_t *ms)
{
    struct tm parts = {.tm_year = read_number(&text, 4) - 1900};
    struct tm again;
    int part_ms = 0;
    time_t seconds;

    if (parts.tm_year < 70 || !read_part(&text, '-', 12, &parts.tm_mon) ||
        !read_part(&text, '-', 31, &parts.tm_mday)) {
        return false;
    }
    parts.tm_mon--;
    if (*text != '\0' && !read_clock(text, &parts, &part_ms)) {
        return false;
    }
    again = parts;
    seconds = timegm(&again);
    *ms = (uint64_t)seconds * 1000 + (uint64_t)part_ms;
    /* The 31st of June would have become the 1st of July. */
    return seconds >= 0 && again.tm_mon == parts.tm_mon && again.tm_mday == parts.tm_mday;
}
