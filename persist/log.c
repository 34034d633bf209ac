#include "persist/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

void hf_log_say(const struct hf_log *log, enum hf_log_level level, const char *format, ...)
{
    char text[1000];
    va_list args;

    if (log->fn == NULL) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
    log->fn(log->ctx, level, text);
}
