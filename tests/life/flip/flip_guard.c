#include "flip.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define GUARD_BYTES (UINT64_C(64) << 30) /* any 32-bit number of lines on either side */

#define MOVED(pointer) ((void *)((uint8_t *)(pointer) + shift))

bool flip_guard(struct hf_segment *seg)
{
    uint64_t bytes = (seg->size_bytes + 4095U) & ~4095ULL;
    uint8_t *area =
        mmap(NULL, bytes + 2 * GUARD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (area == MAP_FAILED) {
        return false; /* no room for guards here: the checks of the process itself remain */
    }
    void *to = mremap(seg->base, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, area + GUARD_BYTES);
    if (to == MAP_FAILED) {
        perror("mremap");
        exit(90);
    }
    ptrdiff_t shift = area + GUARD_BYTES - seg->base;

    seg->header = MOVED(seg->header);
    seg->owners = MOVED(seg->owners);
    seg->tenants = MOVED(seg->tenants);
    seg->rows = MOVED(seg->rows);
    seg->published = MOVED(seg->published);
    seg->chunks = MOVED(seg->chunks);
    seg->slots = MOVED(seg->slots);
    seg->heads = MOVED(seg->heads);
    seg->names = MOVED(seg->names);
    seg->prices = MOVED(seg->prices);
    seg->policies = MOVED(seg->policies);
    seg->meters = MOVED(seg->meters);
    seg->batches = MOVED(seg->batches);
    seg->base = MOVED(seg->base);
    return true;
}

void flip_unguard(const struct hf_segment *seg)
{
    (void)munmap(seg->base - GUARD_BYTES, GUARD_BYTES);
    (void)munmap(seg->base + ((seg->size_bytes + 4095U) & ~4095ULL), GUARD_BYTES);
}
