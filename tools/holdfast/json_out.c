#include "tools/holdfast/json_out.h"

#include "core/amount.h"
#include "core/name.h"
#include "tools/holdfast/json_in.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void put(struct hf_json_out *out, const char *bytes, size_t cnt)
{
    if (out->error != 0) {
        return;
    }
    if (cnt > out->size_bytes - out->used_bytes) {
        size_t size = out->size_bytes == 0 ? 1024 : out->size_bytes;

        while (size - out->used_bytes < cnt && size <= SIZE_MAX / 2) {
            size *= 2;
        }

        char *grown = size - out->used_bytes < cnt ? NULL : realloc(out->buf, size);

        if (grown == NULL) {
            out->error = -ENOMEM;
            return;
        }
        out->buf = grown;
        out->size_bytes = size;
    }
    memcpy(out->buf + out->used_bytes, bytes, cnt);
    out->used_bytes += cnt;
}

static void put_text(struct hf_json_out *out, const char *text)
{
    put(out, text, strlen(text));
}

static void put_quoted(struct hf_json_out *out, const char *text, size_t text_bytes)
{
    put_text(out, "\"");
    for (size_t i = 0; i < text_bytes;) {
        uint32_t point = 0;
        size_t cnt = hf_utf8_decode(text + i, text_bytes - i, &point);
        char escape[8];

        if (cnt == 0) {
            put_text(out, "\xef\xbf\xbd");
            i++;
            continue;
        }
        if (point == '"' || point == '\\') {
            escape[0] = '\\';
            escape[1] = text[i];
            put(out, escape, 2);
        } else if (point < 0x20 || point == 0x7f) {
            (void)snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)point);
            put_text(out, escape);
        } else {
            put(out, text + i, cnt);
        }
        i += cnt;
    }
    put_text(out, "\"");
}

static void put_key(struct hf_json_out *out, const char *key)
{
    if (out->comma) {
        put_text(out, ",");
    }
    out->comma = true;
    if (key != NULL) {
        put_quoted(out, key, strlen(key));
        put_text(out, ":");
    }
}

static void open_with(struct hf_json_out *out, const char *bracket)
{
    put_text(out, bracket);
    out->comma = false;
    out->depth++;
}

static void close_with(struct hf_json_out *out, const char *bracket)
{
    put_text(out, bracket);
    out->comma = true;
    out->depth--;
}

void hf_json_out_begin(struct hf_json_out *out)
{
    out->used_bytes = 0;
    out->error = 0;
    out->depth = 0;
    open_with(out, "{");
}

void hf_json_out_text_bytes(struct hf_json_out *out, const char *key, const char *text, size_t text_bytes)
{
    put_key(out, key);
    put_quoted(out, text, text_bytes);
}

void hf_json_out_text(struct hf_json_out *out, const char *key, const char *text)
{
    if (text == NULL) {
        hf_json_out_null(out, key);
    } else {
        hf_json_out_text_bytes(out, key, text, strlen(text));
    }
}

void hf_json_out_amount(struct hf_json_out *out, const char *key, uint64_t amount)
{
    char digits[24];

    put_key(out, key);
    (void)snprintf(digits, sizeof(digits), "%" PRIu64, amount);
    put_text(out, amount == HF_UNKNOWN ? "null" : digits);
}

void hf_json_out_number(struct hf_json_out *out, const char *key, int64_t number)
{
    char digits[24];

    put_key(out, key);
    (void)snprintf(digits, sizeof(digits), "%" PRId64, number);
    put_text(out, digits);
}

void hf_json_out_flag(struct hf_json_out *out, const char *key, bool flag)
{
    put_key(out, key);
    put_text(out, flag ? "true" : "false");
}

void hf_json_out_null(struct hf_json_out *out, const char *key)
{
    put_key(out, key);
    put_text(out, "null");
}

void hf_json_out_object(struct hf_json_out *out, const char *key)
{
    put_key(out, key);
    open_with(out, "{");
}

void hf_json_out_object_end(struct hf_json_out *out)
{
    close_with(out, "}");
}

void hf_json_out_list(struct hf_json_out *out, const char *key)
{
    put_key(out, key);
    open_with(out, "[");
}

void hf_json_out_list_end(struct hf_json_out *out)
{
    close_with(out, "]");
}

int hf_json_out_line(struct hf_json_out *out, FILE *to)
{
    int error = 0;

    close_with(out, "}");
    put_text(out, "\n");
    if (out->error == 0 && out->depth != 0) {
        out->error = -EINVAL;
    }
    error = out->error;
    if (error == 0) {
        errno = 0;
        if (fwrite(out->buf, 1, out->used_bytes, to) != out->used_bytes || fflush(to) != 0) {
            error = errno == 0 ? -EIO : -errno;
        }
    }
    out->used_bytes = 0;
    out->error = 0;
    return error;
}

void hf_json_out_fault(struct hf_json_out *out, const char *op, const struct hf_json_fault *fault)
{
    hf_json_out_begin(out);
    hf_json_out_text(out, "op", op);
    hf_json_out_flag(out, "ok", false);
    hf_json_out_text(out, "reason", fault->reason);
    hf_json_out_text(out, "message", fault->message);
}

void hf_json_out_free(struct hf_json_out *out)
{
    free(out->buf);
    *out = (struct hf_json_out){0};
}
