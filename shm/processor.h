/* What the processor must be able to do, asked before the first atomic access to a segment. */
#ifndef HF_SHM_PROCESSOR_H
#define HF_SHM_PROCESSOR_H

#include "shm/error.h"

/* HF_OK when this processor compares and swaps 128 bits by one instruction (x86-64: cmpxchg16b; arm64: casp, one of
 * the Large System Extensions), else HF_ESYS with a sentence. Without this check the first operation would end the
 * program by SIGILL. Asked by whatever makes or attaches a segment. */
int hf_processor_check(struct hf_error *err);

#endif
