/* Closing what is past its deadline, and one line about it. */
#ifndef HF_PERSIST_REAPER_H
#define HF_PERSIST_REAPER_H

#include "persist/deadlines.h"
#include "persist/log.h"
#include "shm/segment.h"

#define HF_REAPER_EVERY_MS 100U

/* One pass over the deadlines: closes what is due on the elapsed scale, as each reservation's policy said at its reserve, and
 * logs how many, what they held and the first ids. Returns how many. Their slots are marked dirty; the next drain takes
 * them off the list. */
uint32_t hf_reaper_pass(struct hf_segment *seg, struct hf_deadlines *deadlines, const struct hf_log *log);

#endif
