/* What a fuzz target offers: LLVMFuzzerTestOneInput(), which libFuzzer calls, or corpus.c with the files of a folder. */
#ifndef HF_TESTS_FUZZ_FUZZ_H
#define HF_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t cnt);

/* A broken promise ends the process, which is what the fuzzer looks for. */
#define FUZZ_REQUIRE(condition)                                                           \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            (void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

#endif
