/* Flags of the processor, and the sentence for one that lacks the swap. */
#include "shm/processor.h"

#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_ATOMICS
#define HWCAP_ATOMICS (1UL << 8)
#endif
#endif

static bool swaps_128(void)
{
#if defined(__x86_64__)
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_CMPXCHG16B) != 0;
#elif defined(__aarch64__)
    return (getauxval(AT_HWCAP) & HWCAP_ATOMICS) != 0;
#else
    return false;
#endif
}

int hf_processor_check(struct hf_error *err)
{
    if (swaps_128()) {
        return HF_OK;
    }
    return hf_error_set(
        err, HF_ESYS,
        "this processor cannot swap 128 bits at once (x86-64: cmpxchg16b; arm64: LSE, which is ARMv8.1), so "
        "nothing in a segment could be changed safely; run holdfast on a machine that can: any x86-64 since "
        "2006, any arm64 server since Neoverse N1 or Graviton2; emulators have a processor model to choose");
}
