/* The authority clock: asks the store for its time once a second and publishes it in the segment.
 *
 * A step back of the store's clock holds the segment's clock still until real time has caught up (shm/clock.h). A step
 * forward beyond the uncertainty is taken only after it has held for a minute: until then the clock goes on as it was, since
 * a minute too late costs less than a month's windows too early. A step that changes within that minute is another one, and
 * its minute begins anew. The uncertainty is that of both readings (half of what each took), and what two clocks may have
 * drifted apart between them.
 *
 * A reading that is less certain than what is published has become by drifting is left out: a process that was stopped while
 * it asked would move the clock by half of that time. Of a segment with an injected clock nothing is published.
 */
#ifndef HF_PERSIST_CLOCKKEEPER_H
#define HF_PERSIST_CLOCKKEEPER_H

#include "persist/log.h"
#include "persist/store.h"
#include "shm/segment.h"

#define HF_CLOCK_EVERY_MS      1000U
#define HF_CLOCK_RETRY_MS      5000U  /* after a store that did not answer */
#define HF_CLOCK_JUMP_MS       500U   /* beyond the uncertainties: a jump */
#define HF_CLOCK_JUMP_HOLDS_MS 60000U /* how long it must hold to be taken */
#define HF_CLOCK_DRIFT         1000U  /* two clocks drift apart by at most one part in so many */
#define HF_CLOCK_VAGUE_MS      100U   /* a reading as uncertain as this is always taken */

struct hf_clockkeeper {
    uint64_t next_mono_ms;  /* when to ask again */
    uint64_t jump_mono_ms;  /* since when the store's clock is ahead; 0: it is not */
    uint64_t jump_ahead_ms; /* by how much */
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
