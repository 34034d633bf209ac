#include "core/name.h"

#include <endian.h>

size_t hf_utf8_decode(const char *bytes, size_t len, uint32_t *code_point)
{
    /* The least code point that needs that many bytes: anything below it is an overlong form. */
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *b = (const unsigned char *)bytes;
    size_t need;
    uint32_t value;

    if (b[0] < 0x80) {
        *code_point = b[0];
        return 1;
    }
    if (b[0] >= 0xC2 && b[0] <= 0xDF) {
        need = 2;
        value = b[0] & 0x1Fu;
    } else if (b[0] >= 0xE0 && b[0] <= 0xEF) {
        need = 3;
        value = b[0] & 0x0Fu;
    } else if (b[0] >= 0xF0 && b[0] <= 0xF4) {
        need = 4;
        value = b[0] & 0x07u;
    } else {
        return 0;
    }
    if (len < need) {
        return 0;
    }
    for (size_t i = 1; i < need; i++) {
        if ((b[i] & 0xC0u) != 0x80u) {
            return 0;
        }
        value = value << 6 | (b[i] & 0x3Fu);
    }
    if (value < least[need] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
        return 0;
    }
    *code_point = value;
    return need;
}

/* True when one of the eight bytes is not printable ASCII. Its top bit shows: not ASCII; below 0x20 (the subtraction
 * borrows); 0x7F (the addition carries). The lowest such byte is never missed: below it nothing borrows or carries. */
static bool odd_byte(const char *bytes)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t tops = UINT64_C(0x8080808080808080);
    uint64_t word;

    memcpy(&word, bytes, 8);
    return ((word | (word - ones * 0x20) | (word + ones)) & tops) != 0;
}

/* Printable ASCII of at least eight bytes: most ids are that and nothing else. The last word overlaps the one before. */
static bool printable_ascii(const char *bytes, size_t len)
{
    for (size_t i = 0; i + 8 < len; i += 8) {
        if (odd_byte(bytes + i)) {
            return false;
        }
    }
    return !odd_byte(bytes + len - 8);
}

bool hf_name_valid(const char *bytes, size_t len)
{
    if (len == 0 || len > HF_NAME_BYTES_MAX) {
        return false;
    }
    if (len >= 8 && printable_ascii(bytes, len)) {
        return true;
    }
    for (size_t i = 0; i < len;) {
        uint32_t code_point;
        size_t step = hf_utf8_decode(bytes + i, len - i, &code_point);

        if (step == 0 || hf_utf8_control(code_point)) {
            return false;
        }
        i += step;
    }
    return true;
}

bool hf_name_set(struct hf_name *name, const char *bytes, size_t len)
{
    if (!hf_name_valid(bytes, len)) {
        return false;
    }
    memset(name, 0, sizeof(*name));
    memcpy(name->bytes, bytes, len);
    name->len = (uint8_t)len;
    return true;
}

/* Both halves of the product: one multiplication mixes all 64 bits of value into each other. */
static uint64_t fold(uint64_t value, uint64_t multiplier)
{
    unsigned __int128 product = (unsigned __int128)value * multiplier;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t hf_name_hash(const char *bytes, size_t len, uint64_t seed)
{
    /* The multiplier depends on the seed, so that names which collide under one seed do not under another;
     * odd, so that it is never zero. */
    const uint64_t multiplier = fold(seed ^ UINT64_C(0x9E3779B97F4A7C15), UINT64_C(0xD6E8FEB86659FD93)) | 1;
    uint64_t hash = seed ^ fold((uint64_t)len + UINT64_C(0xA0761D6478BD642F), UINT64_C(0xE7037ED1A0B428DB));
    uint64_t word;

    for (; len >= sizeof(word); bytes += sizeof(word), len -= sizeof(word)) {
        memcpy(&word, bytes, sizeof(word));
        hash = fold(hash ^ le64toh(word), multiplier) + UINT64_C(0x8EBC6AF09C88C6E3);
    }
    if (len > 0) {
        word = 0;
        memcpy(&word, bytes, len);
        hash = fold(hash ^ le64toh(word), multiplier) + UINT64_C(0x8EBC6AF09C88C6E3);
    }
    hash = fold(hash, UINT64_C(0x9FB21C651E98DF25));
    return hash ^ hash >> 32;
}
