#include "persist/escape.h"

#include <string.h>

const char hf_escape_reason[] =
    "a name or text is no UTF-8, has control characters or is too long: written with \\xNN for such bytes, cut where it ends "
    "in ...";

static const char left_out[] = "(this text is no UTF-8 and was left out)";

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
        uint32_t code_point;
        size_t cnt = hf_utf8_decode(name->bytes + at, len - at, &code_point);
        bool plain = cnt > 0 && !hf_utf8_control(code_point);

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
        uint32_t code_point;
        size_t cnt = hf_utf8_decode(*text + at, len - at, &code_point);

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
