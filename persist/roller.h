/* When the daemon makes rollups: as soon as one is due and the store took the last batch. */
#ifndef HF_PERSIST_ROLLER_H
#define HF_PERSIST_ROLLER_H

#include "persist/log.h"
#include "persist/rollup.h"
#include "shm/segment.h"

/* Zeroed at the start, and again when the store lost commits. */
struct hf_roller {
    struct hf_rollup newest;
    bool known; /* newest was read */
    uint64_t next_ms;
};

/* Makes at most one rollup; it may hold the daemon up for as long as one statement takes. A failure is logged, and tried again
 * later: rollups save time and nothing depends on them. */
void hf_roller_step(struct hf_roller *roller, struct hf_segment *seg, struct hf_store *store,
                    const char *store_name, uint64_t mono_ms, const struct hf_log *log);

#endif
