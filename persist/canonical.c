/* The canonical text of a receipt from its columns. */
#include "persist/canonical.h"

#include <stdlib.h>
#include <string.h>

#define FIELDS_MAX  96
#define KEY_BYTES   40 /* copied whole, whatever the length of the key */
#define FIRST_FIELD 2  /* kind and version are in the first line */
/* The most that a line has beside its key and a text: a length or number of 20 digits with its sign, colon, line feed; or a digest. */
#define LINE_BYTES  (2 * HF_DIGEST_BYTES + 24)
#define FIRST_BYTES 128

struct key {
    char text[KEY_BYTES]; /* name= */
    uint8_t len;
    uint8_t type; /* enum hf_field_type */
};

struct hf_canonical {
    struct key keys[FIELDS_MAX];
    size_t fields_cnt;
    char *segment; /* segment=<length>:<name>\n */
    size_t segment_len;
    char *text;
    size_t text_bytes;
};

struct hf_canonical *hf_canonical_new(void)
{
    struct hf_canonical *canonical = calloc(1, sizeof(*canonical));

    if (canonical == NULL) {
        return NULL;
    }
    canonical->fields_cnt = hf_receipt_fields();
    if (canonical->fields_cnt > FIELDS_MAX || !hf_canonical_segment(canonical, "", 0)) {
        hf_canonical_free(canonical);
        return NULL;
    }
    for (size_t i = 0; i < canonical->fields_cnt; i++) {
        const struct hf_field *field = hf_receipt_field(i);
        struct key *key = &canonical->keys[i];

        memcpy(key->text, field->name, field->name_len);
        key->text[field->name_len] = '=';
        key->len = (uint8_t)(field->name_len + 1);
        key->type = (uint8_t)field->type;
    }
    return canonical;
}

void hf_canonical_free(struct hf_canonical *canonical)
{
    if (canonical == NULL) {
        return;
    }
    free(canonical->segment);
    free(canonical->text);
    free(canonical);
}

/* ---- what lines are made of; all say where the next byte goes ------------------------------------------------------ */

static char *put_bytes(char *at, const void *bytes, size_t len)
{
    if (len > 0) {
        memcpy(at, bytes, len);
    }
    return at + len;
}

static char *put_number(char *at, uint64_t number)
{
    static const char pairs[] =
        "0001020304050607080910111213141516171819202122232425262728293031323334353637383940"
        "4142434445464748495051525354555657585960616263646566676869707172737475767778798081"
        "828384858687888990919293949596979899";
    char digits[20];
    size_t left = sizeof(digits);

    while (number >= 100) {
        left -= 2;
        memcpy(digits + left, pairs + 2 * (number % 100), 2);
        number /= 100;
    }
    if (number >= 10) {
        left -= 2;
        memcpy(digits + left, pairs + 2 * number, 2);
    } else {
        digits[--left] = (char)('0' + number);
    }
    return put_bytes(at, digits + left, sizeof(digits) - left);
}

static char *put_integer(char *at, int64_t integer)
{
    if (integer < 0) {
        *at++ = '-';
    }
    return put_number(at, integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer);
}

static char *put_hex(char *at, const char *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < len; i++) {
        *at++ = digits[(unsigned char)bytes[i] >> 4];
        *at++ = digits[(unsigned char)bytes[i] & 15];
    }
    return at;
}

static char *put_text(char *at, const char *text, size_t len)
{
    at = put_number(at, len);
    *at++ = ':';
    return put_bytes(at, text, len);
}

/* A boolean of SQLite can be any integer: it is shown as it is, so that 2 is not true. */
static char *put_flag(char *at, int64_t flag)
{
    if (flag == 1) {
        return put_bytes(at, "true", 4);
    }
    return flag == 0 ? put_bytes(at, "false", 5) : put_integer(at, flag);
}

static char *put_value(char *at, enum hf_field_type type, const struct hf_column *column)
{
    switch (type) {
    case HF_FIELD_NUMBER:
    case HF_FIELD_SIGNED:
        return put_integer(at, column->integer);
    case HF_FIELD_FLAG:
    case HF_FIELD_TRI:
        return put_flag(at, column->integer);
    case HF_FIELD_DIGEST:
        return put_hex(at, column->bytes, column->len);
    default:
        return put_text(at, column->bytes, column->len);
    }
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

bool hf_canonical_segment(struct hf_canonical *canonical, const char *name, size_t len)
{
    char *segment = realloc(canonical->segment, len + FIRST_BYTES);
    char *at = segment;

    if (segment == NULL) {
        return false;
    }
    at = put_bytes(at, "segment=", 8);
    at = put_text(at, name, len);
    *at++ = '\n';
    canonical->segment = segment;
    canonical->segment_len = (size_t)(at - segment);
    return true;
}

static bool room(struct hf_canonical *canonical, const struct hf_column *fields)
{
    size_t bytes = FIRST_BYTES + canonical->segment_len + canonical->fields_cnt * (KEY_BYTES + LINE_BYTES);
    char *text;

    for (size_t i = 0; i < canonical->fields_cnt; i++) {
        bytes += 2 * fields[i].len; /* a digest of a wrong length is twice as long in hexadecimal */
    }
    if (bytes <= canonical->text_bytes) {
        return true;
    }
    text = realloc(canonical->text, 2 * bytes);
    if (text == NULL) {
        return false;
    }
    canonical->text = text;
    canonical->text_bytes = 2 * bytes;
    return true;
}

bool hf_canonical_row(struct hf_canonical *canonical, const struct hf_column *fields, const char **text,
                      size_t *len)
{
    char *at;

    if (!room(canonical, fields)) {
        return false;
    }
    at = put_bytes(canonical->text, "holdfast/", 9);
    at = put_bytes(at, fields[0].bytes, fields[0].len);
    *at++ = '@';
    at = put_integer(at, fields[1].integer);
    *at++ = '\n';
    at = put_bytes(at, canonical->segment, canonical->segment_len);
    for (size_t i = FIRST_FIELD; i + 1 < canonical->fields_cnt; i++) {
        const struct key *key = &canonical->keys[i];

        if (fields[i].null) {
            continue;
        }
        memcpy(at, key->text, KEY_BYTES); /* the rest is written over */
        at = put_value(at + key->len, (enum hf_field_type)key->type, &fields[i]);
        *at++ = '\n';
    }
    *text = canonical->text;
    *len = (size_t)(at - canonical->text);
    return true;
}
