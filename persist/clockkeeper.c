#include "persist/clockkeeper.h"

#include "core/window.h"
#include "shm/clock.h"

#include <inttypes.h>

/* A reading in whole milliseconds: the store's time at the start of a millisecond of the monotonic clock. */
static void round_down(const struct hf_store_time *time, uint64_t *store_ms, uint64_t *mono_ms,
                       uint64_t *uncertainty_ms)
{
    uint64_t into_us = time->mono_ns % 1000000U / 1000U;

    *mono_ms = time->mono_ns / 1000000U;
    *store_ms = (time->now_us > into_us ? time->now_us - into_us : 0) / 1000U;
    *uncertainty_ms = time->uncertainty_ns / 1000000U + 1U;
}

static void look_back(struct hf_clockkeeper *keeper, struct hf_segment *seg, uint64_t back_ms,
                      const struct hf_log *log)
{
    if (back_ms <= HF_CLOCK_JUMP_MS) {
        keeper->back_said = false;
        return;
    }
    if (!keeper->back_said) {
        keeper->back_said = true;
        hf_alarm(seg, HF_ALARM_CLOCK_JUMP, 1);
        hf_log_say(
            log, HF_LOG_WARNING,
            "the store's clock went back by %" PRIu64
            " ms: the segment's clock stands still until real time has caught up; look at the clock of the store's host",
            back_ms);
    }
}

/* True when a clock that is ahead by ahead_ms is to be taken now. */
static bool ripe(struct hf_clockkeeper *keeper, struct hf_segment *seg, uint64_t ahead_ms, uint64_t mono_ms,
                 const struct hf_log *log)
{
    if (keeper->jump_mono_ms == 0) {
        keeper->jump_mono_ms = mono_ms;
        hf_alarm(seg, HF_ALARM_CLOCK_JUMP, 1);
        hf_log_say(log, HF_LOG_WARNING,
                   "the store's clock went forward by %" PRIu64
                   " ms: that is taken when it has held for a minute; look at the clock of the store's host",
                   ahead_ms);
    }
    if (mono_ms - keeper->jump_mono_ms < HF_CLOCK_JUMP_HOLDS_MS) {
        return false;
    }
    hf_log_say(log, HF_LOG_WARNING, "the store's clock has been ahead by %" PRIu64 " ms for a minute: taken",
               ahead_ms);
    return true;
}

bool hf_clockkeeper_take(struct hf_clockkeeper *keeper, struct hf_segment *seg,
                         const struct hf_store_time *time, const struct hf_log *log)
{
    struct hf_clock_published old;
    uint64_t store_ms;
    uint64_t mono_ms;
    uint64_t uncertainty_ms;

    if (seg->injected) {
        return false;
    }
    round_down(time, &store_ms, &mono_ms, &uncertainty_ms);
    if (store_ms > HF_CLOCK_MS_MAX) {
        if (!keeper->failed_said) {
            keeper->failed_said = true;
            hf_log_say(log, HF_LOG_ERROR, "the store's clock is beyond the year 2400: set it right");
        }
        return false;
    }
    if (hf_clock_published(seg, &old)) {
        uint64_t expected = old.time_ms + (mono_ms > old.mono_ms ? mono_ms - old.mono_ms : 0);
        uint64_t slack = HF_CLOCK_JUMP_MS + uncertainty_ms + old.uncertainty_ms;

        if (store_ms > expected + slack) {
            if (!ripe(keeper, seg, store_ms - expected, mono_ms, log)) {
                return false;
            }
        } else {
            look_back(keeper, seg, expected > store_ms ? expected - store_ms : 0, log);
        }
    }
    keeper->jump_mono_ms = 0;
    keeper->failed_said = false;
    hf_clock_publish(seg, store_ms, mono_ms, uncertainty_ms);
    return true;
}

void hf_clockkeeper_step(struct hf_clockkeeper *keeper, struct hf_segment *seg, struct hf_store *store,
                         uint64_t mono_ms, const struct hf_log *log)
{
    struct hf_store_time time;
    struct hf_store_error error;

    if (seg->injected || mono_ms < keeper->next_mono_ms) {
        return;
    }
    keeper->next_mono_ms = mono_ms + HF_CLOCK_EVERY_MS;
    if (hf_store_now(store, &time, &error) == HF_STORE_OK) {
        (void)hf_clockkeeper_take(keeper, seg, &time, log);
    }
}
