/* The authority clock: asks the store for its time once a second and publishes it in the segment.
 *
 * A step back of the store's clock holds the segment's clock still until real time has caught up (shm/clock.h). A step
 * forward beyond the uncertainty is taken only after it has held for a minute: until then the clock goes on as it was, since
 * a minute too late costs less than a month's windows too early. Of a segment with an injected clock nothing is published.
 */
#ifndef HF_PERSIST_CLOCKKEEPER_H
#define HF_PERSIST_CLOCKKEEPER_H

#include "persist/log.h"
#include "persist/store.h"
#include "shm/segment.h"

#define HF_CLOCK_EVERY_MS      1000U
#define HF_CLOCK_JUMP_MS       2000U  /* beyond the uncertainties: a jump */
#define HF_CLOCK_JUMP_HOLDS_MS 60000U /* how long it must hold to be taken */

struct hf_clockkeeper {
    uint64_t next_mono_ms; /* when to ask again */
    uint64_t jump_mono_ms; /* since when the store's clock is ahead; 0: it is not */
    bool back_said;
    bool failed_said;
};

/* Publishes one reading of the store's clock, as above. True when it was published. */
bool hf_clockkeeper_take(struct hf_clockkeeper *keeper, struct hf_segment *seg,
                         const struct hf_store_time *time, const struct hf_log *log);

/* Asks and publishes when it is due at mono_ms. A store that does not answer is asked again later; the segment's clock goes on
 * by its monotonic clock. */
void hf_clockkeeper_step(struct hf_clockkeeper *keeper, struct hf_segment *seg, struct hf_store *store,
                         uint64_t mono_ms, const struct hf_log *log);

#endif
