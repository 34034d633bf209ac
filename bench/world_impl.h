/* Inside of a world, for the benches in C. */
#ifndef HF_BENCH_WORLD_IMPL_H
#define HF_BENCH_WORLD_IMPL_H

#include "bench/world.h"
#include "shm/segment.h"

/* What drained slots leave in the buckets of a row, per window kind in the newest window seen. */
struct hf_world_account {
    uint64_t values[HF_SHM_WINDOWS][HF_SHM_DIMS];
    uint32_t windows[HF_SHM_WINDOWS];
};

/* In shared memory; map holds addresses that are the same in every forked child. */
struct hf_world {
    struct hf_world_plan plan;
    struct hf_segment map;
    struct hf_world_account *accounts; /* one a row; writer: who drains */
    size_t accounts_bytes;
    uint64_t *word_seqs; /* one a tenant, of hf_commit_detach(): not shared, each process has its own */
    /* Lines of their own: written while others work. */
    struct {
        uint64_t cnt;
        uint64_t pad[15];
    } admitted, drained __attribute__((aligned(128)));
    uint32_t stop;
};

/* by more in a bucket of a row, in a window of this kind and number: a newer window begins at nothing, and what belongs to an
 * older one is in no bucket any more. */
void hf_world_charge(struct hf_world_account *account, uint32_t kind, uint32_t window, uint32_t dim,
                     uint64_t by);

/* Text of the policy of a plan; the caller frees it. NULL: no memory. */
char *hf_world_policy_text(const struct hf_world_plan *plan, size_t *bytes);

#endif
