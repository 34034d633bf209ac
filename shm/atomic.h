/* The only file that touches the compiler's atomics.
 *
 * Every word shared between processes is a plain integer in the segment and is read and written
 * through these functions alone. The memory order is part of the name: rlx, acq, rel, acqrel.
 * 64-bit atomics must be lock-free: an emulated one would use a lock table private to a process.
 */
#ifndef HF_SHM_ATOMIC_H
#define HF_SHM_ATOMIC_H

#include "shm/fault.h"

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#if !defined(__GCC_HAVE_SYNC_COMPARE_AND_SWAP_16)
#error "holdfast needs cmpxchg16b: compile with -mcx16"
#endif
#elif defined(__aarch64__)
#if !defined(__ARM_FEATURE_ATOMICS)
#error "holdfast needs LSE (casp) on arm64: compile with -march=armv8.1-a or later, or -march=armv8-a+lse"
#endif
#else
#error "holdfast needs a 128-bit compare-and-swap: build it for x86-64, or for arm64 with LSE"
#endif

_Static_assert(__atomic_always_lock_free(8, 0), "64-bit atomics must be lock-free");
_Static_assert(__atomic_always_lock_free(4, 0), "32-bit atomics must be lock-free");

/* A 128-bit word of the segment. Aligned to 16 bytes wherever it stands. */
struct hf_u128 {
    uint64_t lo;
    uint64_t hi;
};

static inline uint64_t hf_load_rlx_u64(const uint64_t *word)
{
    hf_fault_point();
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline uint64_t hf_load_acq_u64(const uint64_t *word)
{
    hf_fault_point();
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void hf_store_rlx_u64(uint64_t *word, uint64_t value)
{
    hf_fault_point();
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline void hf_store_rel_u64(uint64_t *word, uint64_t value)
{
    hf_fault_point();
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline uint8_t hf_load_rlx_u8(const uint8_t *word)
{
    hf_fault_point();
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline void hf_store_rlx_u8(uint8_t *word, uint8_t value)
{
    hf_fault_point();
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline void hf_store_rel_u8(uint8_t *word, uint8_t value)
{
    hf_fault_point();
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline uint32_t hf_load_rlx_u32(const uint32_t *word)
{
    hf_fault_point();
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static inline uint32_t hf_load_acq_u32(const uint32_t *word)
{
    hf_fault_point();
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static inline void hf_store_rlx_u32(uint32_t *word, uint32_t value)
{
    hf_fault_point();
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static inline void hf_store_rel_u32(uint32_t *word, uint32_t value)
{
    hf_fault_point();
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

/* True when *word was expected and is now desired. Failure orders nothing. */
static inline bool hf_cas_acqrel_u64(uint64_t *word, uint64_t expected, uint64_t desired)
{
    hf_fault_point();
    return __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static inline bool hf_cas_acqrel_u32(uint32_t *word, uint32_t expected, uint32_t desired)
{
    hf_fault_point();
    return __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static inline uint64_t hf_add_rlx_u64(uint64_t *word, uint64_t amount)
{
    hf_fault_point();
    return __atomic_fetch_add(word, amount, __ATOMIC_RELAXED);
}

static inline uint64_t hf_add_acqrel_u64(uint64_t *word, uint64_t amount)
{
    hf_fault_point();
    return __atomic_fetch_add(word, amount, __ATOMIC_ACQ_REL);
}

static inline uint32_t hf_add_acqrel_u32(uint32_t *word, uint32_t amount)
{
    hf_fault_point();
    return __atomic_fetch_add(word, amount, __ATOMIC_ACQ_REL);
}

static inline uint64_t hf_or_acqrel_u64(uint64_t *word, uint64_t bits)
{
    hf_fault_point();
    return __atomic_fetch_or(word, bits, __ATOMIC_ACQ_REL);
}

static inline uint64_t hf_and_acqrel_u64(uint64_t *word, uint64_t bits)
{
    hf_fault_point();
    return __atomic_fetch_and(word, bits, __ATOMIC_ACQ_REL);
}

static inline uint64_t hf_xchg_acqrel_u64(uint64_t *word, uint64_t value)
{
    hf_fault_point();
    return __atomic_exchange_n(word, value, __ATOMIC_ACQ_REL);
}

/* Asks for a line that this processor is about to write: it comes for writing at once, where the builtin would fetch it for reading
 * and a store would have to ask its owner a second time. Changes nothing, and takes the line from whoever writes it: for lines that
 * nobody else wants now. x86-64 processors since 2006 that do not know the instruction pass over it. */
static inline void hf_prefetch_write(const void *line)
{
#if defined(__x86_64__)
    __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
}

static inline void hf_fence_acq(void)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

static inline void hf_fence_rel(void)
{
    __atomic_thread_fence(__ATOMIC_RELEASE);
}

static inline void hf_fence_seq(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void hf_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#endif
}

#if defined(__SANITIZE_THREAD__)
#define HF_ATOMIC_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HF_ATOMIC_TSAN 1
#endif
#endif

/* True when *word was expected and is now desired; acquire and release. On failure nothing is known of
 * the word: callers read it again by halves. x86-64 needs cmpxchg16b, arm64 the LSE casp. */
static inline bool hf_cas_acqrel_u128(struct hf_u128 *word, struct hf_u128 expected, struct hf_u128 desired)
{
    hf_fault_point();
#if defined(HF_ATOMIC_TSAN)
    unsigned __int128 old = ((unsigned __int128)expected.hi << 64) | expected.lo;
    unsigned __int128 new = ((unsigned __int128)desired.hi << 64) | desired.lo;
    return __sync_bool_compare_and_swap((unsigned __int128 *)(void *)word, old, new);
#elif defined(__x86_64__)
    bool done;
    __asm__ __volatile__("lock cmpxchg16b %1"
                         : "=@ccz"(done), "+m"(*word), "+a"(expected.lo), "+d"(expected.hi)
                         : "b"(desired.lo), "c"(desired.hi)
                         : "memory");
    return done;
#elif defined(__aarch64__)
    register uint64_t old_lo __asm__("x0") = expected.lo;
    register uint64_t old_hi __asm__("x1") = expected.hi;
    register uint64_t new_lo __asm__("x2") = desired.lo;
    register uint64_t new_hi __asm__("x3") = desired.hi;
    __asm__ __volatile__("caspal x0, x1, x2, x3, [%[word]]"
                         : "+r"(old_lo), "+r"(old_hi)
                         : [word] "r"(word), "r"(new_lo), "r"(new_hi)
                         : "memory");
    return old_lo == expected.lo && old_hi == expected.hi;
#endif
}

#endif
