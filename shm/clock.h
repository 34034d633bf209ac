/* The authority clock as published in the segment. */
#ifndef HF_SHM_CLOCK_H
#define HF_SHM_CLOCK_H

#include "shm/segment.h"

/* CLOCK_MONOTONIC_COARSE (vDSO, no system call) in ms. */
uint64_t hf_clock_mono_ms(void);
/* CLOCK_MONOTONIC in ms and ns, for the daemon and for tests. */
uint64_t hf_clock_mono_fine_ms(void);
uint64_t hf_clock_mono_ns(void);

/* Authority time now: the injected clock, or the last publication advanced by the monotonic clock. Never
 * goes back within a segment as seen by one process order (clk_hold_ms). Bounded retries on the sequence
 * counter; after them the last consistent fields it could read (a stopped daemon must not stop workers). */
uint64_t hf_clock_now_ms(const struct hf_segment *seg);

/* Authority time and elapsed scale of one look, with the coarse clock they come from: one call for an operation. */
struct hf_clock_now {
    uint64_t now_ms;
    uint64_t elapsed_ms;
    uint64_t mono_ms;
};
void hf_clock_read(const struct hf_segment *seg, struct hf_clock_now *now);

/* Elapsed scale on which deadlines run: the injected clock, else CLOCK_MONOTONIC + clk_elapsed_off_ms. */
uint64_t hf_clock_elapsed_ms(const struct hf_segment *seg);

/* Forecast of the authority time at which the elapsed scale reaches deadline, from now on. */
uint64_t hf_clock_forecast_ms(const struct hf_segment *seg, uint64_t elapsed_deadline_ms);

/* Daemon, single writer: publishes the store's time read at mono_ms. A step back holds the clock until real
 * time has caught up. */
void hf_clock_publish(struct hf_segment *seg, uint64_t store_ms, uint64_t mono_ms, uint64_t uncertainty_ms);

/* The publication in force, for people and tools. False when there is none yet. */
struct hf_clock_published {
    uint64_t time_ms;
    uint64_t mono_ms;
    uint64_t uncertainty_ms;
};
bool hf_clock_published(const struct hf_segment *seg, struct hf_clock_published *out);

/* Injected clock: forward to at least ms (CAS loop); returns the clock afterwards. */
uint64_t hf_clock_inject(struct hf_segment *seg, uint64_t ms);

#endif
