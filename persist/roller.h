/* When the daemon makes rollups: as soon as one is due and the store took the last batch. */
#ifndef HF_PERSIST_ROLLER_H
#define HF_PERSIST_ROLLER_H

#include "persist/log.h"
#include "persist/tally.h"
#include "shm/segment.h"

/* All-zero at the start. */
struct hf_roller {
    struct hf_tally tally; /* of what came since the newest rollup; the drain adds to it */
    uint64_t seen_seq;     /* end of the chain at the last step */
    uint64_t next_ms;
};

/* Forgets everything, to begin again from the store: when the store lost commits, and at the end. */
void hf_roller_forget(struct hf_roller *roller);

/* One small step: reads a slice of what the tally has not seen, or writes a rollup that is due. A failure is logged, and tried
 * again later: rollups save time and nothing depends on them. */
void hf_roller_step(struct hf_roller *roller, struct hf_segment *seg, struct hf_store *store,
                    const char *store_name, uint64_t mono_ms, const struct hf_log *log);

#endif
