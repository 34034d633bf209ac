/* Waking the daemon, and waiting for its cycles. Not on the hot path: these make system calls. */
#ifndef HF_SHM_WAKE_H
#define HF_SHM_WAKE_H

#include "shm/segment.h"

/* Raises wake_word and wakes the daemon (FUTEX_WAKE, shared). */
void hf_wake_daemon(struct hf_segment *seg);
/* Daemon: sleeps until wake_word differs from seen or timeout_ms has passed; returns wake_word. */
uint32_t hf_wake_wait(struct hf_segment *seg, uint32_t seen, uint32_t timeout_ms);

/* Daemon: a cycle begins / is over with all marks taken since its beginning committed. */
void hf_wake_cycle_begin(struct hf_segment *seg);
void hf_wake_cycle_done(struct hf_segment *seg);

/* Waits until a whole cycle that began after this call is done: every operation before it is committed and
 * published. 0, or HF_ENOTREADY after timeout_ms (no daemon, or it is behind). */
int hf_wake_flush(struct hf_segment *seg, uint32_t timeout_ms);

#endif
