#include "shm/error.h"

#include <stdarg.h>
#include <stdio.h>

int hf_error_set(struct hf_error *err, enum hf_code code, const char *format, ...)
{
    if (err != NULL) {
        va_list args;

        err->code = code;
        va_start(args, format);
        (void)vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return (int)code;
}
