#include "persist/clockkeeper.h"

#include "core/window.h"
#include "shm/clock.h"

#include <inttypes.h>

/* A reading in whole milliseconds: the store's time at the start of a millisecond of the monotonic clock. */
static void round_down(const struct hf_store_time *time, struct hf_clock_published *reading)
{
    uint64_t into_us = time->mono_ns % 1000000U / 1000U;

    reading->mono_ms = time->mono_ns / 1000000U;
    reading->time_ms = (time->now_us > into_us ? time->now_us - into_us : 0) / 1000U;
    reading->uncertainty_ms = time->uncertainty_ns / 1000000U + 1U;
}

static void look_back(struct hf_clockkeeper *keeper, struct hf_segment *seg, uint64_t back_ms,
                      uint64_t slack_ms, const struct hf_log *log)
{
    if (back_ms <= slack_ms) {
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
static bool ripe(struct hf_clockkeeper *keeper, struct hf_segment *seg, uint64_t ahead_ms, uint64_t slack_ms,
                 uint64_t mono_ms, const struct hf_log *log)
{
    uint64_t before = keeper->jump_ahead_ms;
    uint64_t changed = ahead_ms > before ? ahead_ms - before : before - ahead_ms;

    if (keeper->jump_mono_ms == 0 || changed > slack_ms) {
        keeper->jump_mono_ms = mono_ms;
        keeper->jump_ahead_ms = ahead_ms;
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

/* Compares a reading with what is published. False: it is not to be published now. */
static bool compare(struct hf_clockkeeper *keeper, struct hf_segment *seg,
                    const struct hf_clock_published *new_one, const struct hf_log *log)
{
    struct hf_clock_published old;

    if (!hf_clock_published(seg, &old)) {
        return true;
    }
    uint64_t age = new_one->mono_ms > old.mono_ms ? new_one->mono_ms - old.mono_ms : 0;
    uint64_t expected = old.time_ms + age;
    uint64_t doubt = old.uncertainty_ms + age / HF_CLOCK_DRIFT;
    uint64_t slack = HF_CLOCK_JUMP_MS + doubt + new_one->uncertainty_ms;

    if (new_one->uncertainty_ms > HF_CLOCK_VAGUE_MS && new_one->uncertainty_ms > doubt) {
        return false;
    }
    if (new_one->time_ms > expected + slack) {
        return ripe(keeper, seg, new_one->time_ms - expected, slack, new_one->mono_ms, log);
    }
    look_back(keeper, seg, expected > new_one->time_ms ? expected - new_one->time_ms : 0, slack, log);
    return true;
}

bool hf_clockkeeper_take(struct hf_clockkeeper *keeper, struct hf_segment *seg,
                         const struct hf_store_time *time, const struct hf_log *log)
{
    struct hf_clock_published reading;

    if (seg->injected) {
        return false;
    }
    round_down(time, &reading);
    if (reading.time_ms > HF_CLOCK_MS_MAX) {
        if (!keeper->failed_said) {
            keeper->failed_said = true;
            hf_log_say(log, HF_LOG_ERROR, "the store's clock is beyond the year 2400: set it right");
        }
        return false;
    }
    if (!compare(keeper, seg, &reading, log)) {
        return false;
    }
    keeper->jump_mono_ms = 0;
    keeper->failed_said = false;
    hf_clock_publish(seg, reading.time_ms, reading.mono_ms, reading.uncertainty_ms);
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
    if (hf_store_now(store, &time, &error) == HF_STORE_OK) {
        keeper->next_mono_ms = mono_ms + HF_CLOCK_EVERY_MS;
        (void)hf_clockkeeper_take(keeper, seg, &time, log);
    } else {
        /* From when it gave up: a store that lets us wait must not do so at each step. */
        keeper->next_mono_ms = hf_clock_mono_fine_ms() + HF_CLOCK_RETRY_MS;
    }
}
