/* Canonical texts and their SHA-256. */
#include "persist/digest.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

struct hf_digest {
    EVP_MD *md;
    EVP_MD_CTX *ctx;
    char *text; /* canonical text under construction */
    size_t len;
    size_t cap;
    char scratch[HF_RECEIPT_BUCKETS_BYTES];
};

struct hf_digest *hf_digest_new(void)
{
    struct hf_digest *digest = calloc(1, sizeof(*digest));

    if (digest == NULL) {
        return NULL;
    }
    /* Fetched once: an implicit fetch per digest costs more than the digest of a receipt. */
    digest->md = EVP_MD_fetch(NULL, "SHA256", NULL);
    digest->ctx = EVP_MD_CTX_new();
    if (digest->md == NULL || digest->ctx == NULL) {
        hf_digest_free(digest);
        return NULL;
    }
    return digest;
}

void hf_digest_free(struct hf_digest *digest)
{
    if (digest == NULL) {
        return;
    }
    EVP_MD_CTX_free(digest->ctx);
    EVP_MD_free(digest->md);
    free(digest->text);
    free(digest);
}

static bool begin(struct hf_digest *digest)
{
    return EVP_DigestInit_ex2(digest->ctx, digest->md, NULL) == 1;
}

bool hf_digest_bytes(struct hf_digest *digest, const void *bytes, size_t len, uint8_t out[HF_DIGEST_BYTES])
{
    return begin(digest) && EVP_DigestUpdate(digest->ctx, bytes, len) == 1 &&
           hf_digest_batch_end(digest, out);
}

/* ---- the text under construction ------------------------------------------------------------------------------- */

static bool room(struct hf_digest *digest, size_t bytes)
{
    size_t cap = digest->cap == 0 ? 4096 : digest->cap;
    char *text;

    if (digest->cap - digest->len >= bytes) {
        return true;
    }
    while (cap - digest->len < bytes) {
        if (cap > SIZE_MAX / 2) {
            return false;
        }
        cap *= 2;
    }
    text = realloc(digest->text, cap);
    if (text == NULL) {
        return false;
    }
    digest->text = text;
    digest->cap = cap;
    return true;
}

static void put(struct hf_digest *digest, const char *bytes, size_t len)
{
    memcpy(digest->text + digest->len, bytes, len);
    digest->len += len;
}

static void put_number(struct hf_digest *digest, uint64_t number)
{
    char digits[20];
    size_t at = sizeof(digits);

    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    put(digest, digits + at, sizeof(digits) - at);
}

#define NAMED(name) (name), sizeof(name) - 1

/* name=, with room for `bytes` more. */
static bool put_key(struct hf_digest *digest, const char *name, size_t len, size_t bytes)
{
    if (!room(digest, len + bytes + 24)) {
        return false;
    }
    put(digest, name, len);
    put(digest, "=", 1);
    return true;
}

static bool line_number(struct hf_digest *digest, const char *name, size_t name_len, uint64_t number)
{
    if (!put_key(digest, name, name_len, 20)) {
        return false;
    }
    put_number(digest, number);
    put(digest, "\n", 1);
    return true;
}

static bool line_signed(struct hf_digest *digest, const char *name, size_t name_len, int64_t number)
{
    if (!put_key(digest, name, name_len, 20)) {
        return false;
    }
    if (number < 0) {
        put(digest, "-", 1);
    }
    put_number(digest, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
    put(digest, "\n", 1);
    return true;
}

static bool line_text(struct hf_digest *digest, const char *name, size_t name_len, const char *text,
                      size_t len)
{
    if (!put_key(digest, name, name_len, len + 20)) {
        return false;
    }
    put_number(digest, len);
    put(digest, ":", 1);
    put(digest, text, len);
    put(digest, "\n", 1);
    return true;
}

static bool line_digest(struct hf_digest *digest, const char *name, size_t name_len, const uint8_t *bytes)
{
    char text[2 * HF_DIGEST_BYTES + 1];

    if (!put_key(digest, name, name_len, 2 * HF_DIGEST_BYTES)) {
        return false;
    }
    hf_digest_hex(bytes, text);
    put(digest, text, 2 * HF_DIGEST_BYTES);
    put(digest, "\n", 1);
    return true;
}

static bool line_field(struct hf_digest *digest, const struct hf_field *field,
                       const struct hf_field_value *value)
{
    switch (field->type) {
    case HF_FIELD_NUMBER:
        return line_number(digest, field->name, field->name_len, value->number);
    case HF_FIELD_SIGNED:
        return line_signed(digest, field->name, field->name_len, value->integer);
    case HF_FIELD_FLAG:
    case HF_FIELD_TRI:
        if (!put_key(digest, field->name, field->name_len, 8)) {
            return false;
        }
        put(digest, value->flag ? "true\n" : "false\n", value->flag ? 5 : 6);
        return true;
    case HF_FIELD_DIGEST:
        return line_digest(digest, field->name, field->name_len, (const uint8_t *)value->bytes);
    default:
        return line_text(digest, field->name, field->name_len, value->bytes, value->len);
    }
}

/* ---- receipts and batches -------------------------------------------------------------------------------------- */

#define FIRST_FIELD 2 /* kind and version are in the first line */

bool hf_digest_canonical(struct hf_digest *digest, const char *segment, const struct hf_receipt *receipt,
                         const char **text, size_t *len)
{
    const char *kind = hf_receipt_kind_name(receipt->kind);

    digest->len = 0;
    if (!room(digest, 128)) {
        return false;
    }
    put(digest, "holdfast/", 9);
    put(digest, kind, strlen(kind));
    put(digest, "@", 1);
    put_number(digest, receipt->version);
    put(digest, "\n", 1);
    if (!line_text(digest, NAMED("segment"), segment, strlen(segment))) {
        return false;
    }
    for (size_t i = FIRST_FIELD; i + 1 < hf_receipt_fields(); i++) {
        struct hf_field_value value;

        hf_receipt_get(receipt, i, &value, digest->scratch);
        if (!value.null && !line_field(digest, hf_receipt_field(i), &value)) {
            return false;
        }
    }
    *text = digest->text;
    *len = digest->len;
    return true;
}

bool hf_digest_receipt(struct hf_digest *digest, const char *segment, const struct hf_receipt *receipt,
                       uint8_t out[HF_DIGEST_BYTES])
{
    const char *text;
    size_t len;

    return hf_digest_canonical(digest, segment, receipt, &text, &len) &&
           hf_digest_bytes(digest, text, len, out);
}

bool hf_digest_batch_begin(struct hf_digest *digest, const char *segment, const struct hf_digest_batch *batch)
{
    static const char first[] = "holdfast/batch@1\n";

    digest->len = 0;
    if (!room(digest, sizeof(first))) {
        return false;
    }
    put(digest, first, sizeof(first) - 1);
    return line_text(digest, NAMED("segment"), segment, strlen(segment)) &&
           line_number(digest, NAMED("number"), batch->number) &&
           line_number(digest, NAMED("epoch"), batch->epoch) &&
           line_number(digest, NAMED("first_seq"), batch->first_seq) &&
           line_number(digest, NAMED("rows_cnt"), batch->rows_cnt) &&
           line_number(digest, NAMED("committed_ms"), batch->committed_ms) &&
           line_digest(digest, NAMED("before"), batch->before) && begin(digest) &&
           EVP_DigestUpdate(digest->ctx, digest->text, digest->len) == 1;
}

bool hf_digest_batch_add(struct hf_digest *digest, const uint8_t row[HF_DIGEST_BYTES])
{
    return EVP_DigestUpdate(digest->ctx, row, HF_DIGEST_BYTES) == 1;
}

bool hf_digest_batch_end(struct hf_digest *digest, uint8_t out[HF_DIGEST_BYTES])
{
    unsigned len = 0;

    return EVP_DigestFinal_ex(digest->ctx, out, &len) == 1 && len == HF_DIGEST_BYTES;
}

/* ---- any text of lines ------------------------------------------------------------------------------------------ */

static bool hash_lines(struct hf_digest *digest, bool put)
{
    put = put && EVP_DigestUpdate(digest->ctx, digest->text, digest->len) == 1;
    digest->len = 0;
    return put;
}

bool hf_digest_lines_begin(struct hf_digest *digest, const char *title)
{
    size_t len = strlen(title);

    digest->len = 0;
    if (!room(digest, len + 1) || !begin(digest)) {
        return false;
    }
    put(digest, title, len);
    put(digest, "\n", 1);
    return hash_lines(digest, true);
}

bool hf_digest_line_number(struct hf_digest *digest, const char *name, int64_t number)
{
    return hash_lines(digest, line_signed(digest, name, strlen(name), number));
}

bool hf_digest_line_text(struct hf_digest *digest, const char *name, const char *text, size_t len)
{
    return hash_lines(digest, line_text(digest, name, strlen(name), text, len));
}

bool hf_digest_line_digest(struct hf_digest *digest, const char *name, const uint8_t bytes[HF_DIGEST_BYTES])
{
    return hash_lines(digest, line_digest(digest, name, strlen(name), bytes));
}

bool hf_digest_lines_end(struct hf_digest *digest, uint8_t out[HF_DIGEST_BYTES])
{
    return hf_digest_batch_end(digest, out);
}

void hf_digest_hex(const uint8_t digest[HF_DIGEST_BYTES], char text[2 * HF_DIGEST_BYTES + 1])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < HF_DIGEST_BYTES; i++) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
    text[2 * HF_DIGEST_BYTES] = '\0';
}
