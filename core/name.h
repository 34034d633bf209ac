/* Names and ids: 1 to 63 bytes of valid UTF-8 without control characters, compared bytewise, never trimmed,
 * folded, normalised or cut. */
#ifndef HF_CORE_NAME_H
#define HF_CORE_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HF_NAME_BYTES_MAX 63

/* A name on the heap or the stack. bytes ends with a NUL for printing; a valid name has none of its own. */
struct hf_name {
    uint8_t len;
    char bytes[HF_NAME_BYTES_MAX + 1];
};

/* True when the len bytes are a name: 1..63 bytes, valid UTF-8 (no overlong form, no surrogate, at most
 * U+10FFFF), no U+0000-1F and no U+007F-9F. bytes may be NULL when len is 0. */
bool hf_name_valid(const char *bytes, size_t len);

/* Copies a valid name. False, with *name untouched, when the bytes are no name. */
bool hf_name_set(struct hf_name *name, const char *bytes, size_t len);

/* 64-bit hash of len bytes, the same on every machine for the same seed. Not a secret and no digest: equal
 * hashes do not make equal names, so compare the bytes. A seed that callers cannot guess keeps them from
 * choosing names that collide. */
uint64_t hf_name_hash(const char *bytes, size_t len, uint64_t seed);

/* Decodes the character that starts at bytes (len > 0 bytes are there): its length in bytes, 1 to 4, with
 * *code_point set, or 0 when the bytes there are not valid UTF-8. */
size_t hf_utf8_decode(const char *bytes, size_t len, uint32_t *code_point);

/* A control character: C0, DEL or C1. */
static inline bool hf_utf8_control(uint32_t code_point)
{
    return code_point < 0x20 || (code_point >= 0x7F && code_point <= 0x9F);
}

static inline bool hf_name_is(const struct hf_name *name, const char *bytes, size_t len)
{
    return name->len == len && memcmp(name->bytes, bytes, len) == 0;
}

static inline bool hf_name_equal(const struct hf_name *a, const struct hf_name *b)
{
    return hf_name_is(a, b->bytes, b->len);
}

#endif
