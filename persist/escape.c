#include "persist/escape.h"

#include <string.h>

const char hf_escape_reason[] =
    "a name or text is no UTF-8, has control characters or is too long: written with \\xNN for such bytes, cut where it ends "
    "in ...";

static const char left_out[] = "(this text is no UTF-8 and was left out)";

/* Bytes of the character at the beginning, 0: it is none. */
static size_t character(const char *bytes, size_t len)
{
    const unsigned char *at = (const unsigned char *)bytes;
    unsigned char first = at[0];
    size_t cnt = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : (first & 0xf0) == 0xe0 ? 3 : 4;

    if (cnt > len || (cnt == 1 && first >= 0x80) || (cnt == 4 && (first < 0xf0 || first > 0xf4))) {
        return 0;
    }
    for (size_t i = 1; i < cnt; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    /* No overlong form, no surrogate, nothing beyond U+10FFFF. */
    if ((first == 0xe0 && at[1] < 0xa0) || (first == 0xed && at[1] >= 0xa0) ||
        (first == 0xf0 && at[1] < 0x90) || (first == 0xf4 && at[1] >= 0x90)) {
        return 0;
    }
    return cnt;
}

static bool control(const char *bytes, size_t cnt)
{
    const unsigned char *at = (const unsigned char *)bytes;

    return (cnt == 1 && (at[0] < 0x20 || at[0] == 0x7f)) || (cnt == 2 && at[0] == 0xc2 && at[1] < 0xa0);
}

/* Puts some bytes at the end, if they fit before the mark of a cut. False: they do not. */
static bool put(struct hf_name *out, const char *bytes, size_t cnt)
{
    if (out->len + cnt > HF_NAME_BYTES_MAX - 3) {
        return false;
    }
    memcpy(out->bytes + out->len, bytes, cnt);
    out->len = (uint8_t)(out->len + cnt);
    return true;
}

static bool put_byte(struct hf_name *out, unsigned char byte)
{
    static const char digits[] = "0123456789abcdef";
    const char text[4] = {'\\', 'x', digits[byte >> 4], digits[byte & 0xf]};

    return put(out, text, sizeof(text));
}

static bool escape_name(struct hf_name *name)
{
    struct hf_name out = {.len = 0};
    size_t len = name->len < sizeof(name->bytes) ? name->len : sizeof(name->bytes);
    bool fits = name->len <= HF_NAME_BYTES_MAX;

    if (name->len == 0 || (fits && hf_name_valid(name->bytes, name->len))) {
        return false;
    }
    for (size_t at = 0; at < len;) {
        size_t cnt = character(name->bytes + at, len - at);
        bool plain = cnt > 0 && !control(name->bytes + at, cnt);

        if (plain ? !put(&out, name->bytes + at, cnt) : !put_byte(&out, (unsigned char)name->bytes[at])) {
            fits = false;
            break;
        }
        at += plain ? cnt : 1;
    }
    if (!fits) {
        memcpy(out.bytes + out.len, "...", 3);
        out.len = (uint8_t)(out.len + 3);
    }
    *name = out;
    return true;
}

static bool escape_text(const char **text)
{
    size_t len = *text == NULL ? 0 : strlen(*text);

    for (size_t at = 0; at < len;) {
        size_t cnt = character(*text + at, len - at);

        if (cnt == 0) {
            *text = left_out;
            return true;
        }
        at += cnt;
    }
    return false;
}

void hf_escape_row(struct hf_receipt *row)
{
    struct hf_name *const names[] = {&row->id,          &row->tenant,        &row->team,
                                     &row->key,         &row->capability,    &row->model,
                                     &row->model_asked, &row->economy_model, &row->price_revision,
                                     &row->currency,    &row->ref,           &row->made_by};
    bool changed = false;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        changed = escape_name(names[i]) || changed;
    }
    changed = escape_text(&row->reason) || changed;
    changed = escape_text(&row->details) || changed;
    row->escaped = row->escaped || changed;
}
