/* A seeded 64-bit hash of bytes, for the id index: fast for 8 to 63 bytes, not for keeping secrets.
 *
 * Multiply-and-fold over 16 bytes at a time (128-bit product, halves xored). The seed is random per segment, so that
 * nobody who chooses ids can choose chains. Little-endian loads: the value is used within one host only.
 */
#ifndef HF_SHM_HASH_H
#define HF_SHM_HASH_H

#include <stdint.h>
#include <string.h>

static inline uint64_t hf_hash_fold(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hf_hash_read(const uint8_t *bytes, uint32_t cnt)
{
    uint64_t word = 0;

    memcpy(&word, bytes, cnt);
    return word;
}

/* Hash of bytes_cnt bytes under seed. Any length; 0 bytes allowed. */
static inline uint64_t hf_hash_bytes(uint64_t seed, const void *bytes, uint32_t bytes_cnt)
{
    const uint64_t k0 = 0x9e3779b97f4a7c15ULL; /* odd, half of the bits set */
    const uint64_t k1 = 0xe7037ed1a0b428dbULL;
    const uint8_t *at = (const uint8_t *)bytes;
    uint32_t left = bytes_cnt;
    uint64_t hash = seed ^ hf_hash_fold(seed ^ k0, (uint64_t)bytes_cnt ^ k1);

    while (left > 16) {
        hash = hf_hash_fold(hf_hash_read(at, 8) ^ k1, hf_hash_read(at + 8, 8) ^ hash);
        at += 16;
        left -= 16;
    }
    uint64_t first;
    uint64_t last;
    if (left >= 8) {
        first = hf_hash_read(at, 8);
        last = hf_hash_read(at + left - 8, 8);
    } else if (left >= 4) {
        first = hf_hash_read(at, 4);
        last = hf_hash_read(at + left - 4, 4);
    } else {
        first = left > 0 ? (uint64_t)at[0] << 16 | (uint64_t)at[left >> 1] << 8 | at[left - 1] : 0;
        last = 0;
    }
    hash = hf_hash_fold(first ^ k1, last ^ hash);
    return hf_hash_fold(hash ^ k0, (uint64_t)bytes_cnt ^ k1);
}

#endif
