#include "persist/serve_impl.h"

#include "persist/reaper.h"
#include "persist/rewind.h"
#include "shm/clock.h"
#include "shm/commit.h"
#include "shm/wake.h"

#include <inttypes.h>

#define CYCLE_MS 100U   /* a daemon with nothing to do looks so often, */
#define QUIET_MS 250U   /* and so often after it had nothing to do for QUIET_AFTER_MS */
#define HOUSE_MS 1000U  /* housekeeping */
#define SEQ_MS   60000U /* how far the tenants' sequences are */

#define QUIET_AFTER_MS 1000U
#define LAG_LOOKS      4U /* so many cycles in a lag limit, so that an idle daemon is never taken for a late one */
#define COARSE_MS      5U /* deadlines are compared with the coarse clock, which may be so late */

/* ---- going back with the store ------------------------------------------------------------------------------------- */

void hf_serve_supersede(struct hf_serve *serve, const char *why)
{
    hf_segment_set_state(&serve->seg, HF_SEGMENT_SUPERSEDED);
    hf_log_say(&serve->log, HF_LOG_ERROR, "the segment is superseded and admits nothing any more: %s", why);
}

enum hf_store_status hf_serve_rewind(struct hf_serve *serve, struct hf_store_error *error)
{
    uint64_t now_ms = hf_clock_now_ms(&serve->seg);
    const struct hf_rewind_options options = {.seg = &serve->seg,
                                              .store = serve->store,
                                              .store_name = serve->store_name,
                                              .policy_revision = serve->policy_revision,
                                              .now_ms = now_ms,
                                              .log = serve->log};
    hf_publish_stale(serve->publish); /* the marks of slots go back before what is published does */
    enum hf_store_status status = hf_rewind(&options, error);

    hf_roller_forget(&serve->roller);
    if (status == HF_STORE_OK) {
        hf_drain_rewound(serve->drain, now_ms);
        status = hf_publish_load(serve->publish, serve->store, serve->store_name, now_ms, error);
    }
    return status;
}

/* ---- working ------------------------------------------------------------------------------------------------------ */

/* The sequence of a tenant's W. relaxed: one that is some operations old does as well. */
static uint64_t word_seq(const struct hf_shm_tenant *tenant)
{
    return hf_word_seq((struct hf_u128){.lo = hf_load_rlx_u64(&tenant->ten_word.lo)}); /* relaxed: as above */
}

/* A tenant whose sequence nears its end needs a rebuilt segment, in which it starts at 0. */
static void look_at_sequences(struct hf_serve *serve, uint64_t mono_ms)
{
    if (mono_ms < serve->next_seq_ms) {
        return;
    }
    serve->next_seq_ms = mono_ms + SEQ_MS;
    for (uint32_t i = 0; i < serve->seg.tenants_cnt; i++) {
        uint64_t seq = word_seq(&serve->seg.tenants[i]);

        if (seq >= HF_SHM_SEQ_ALARM) {
            hf_alarm(&serve->seg, HF_ALARM_SEQUENCE, 1);
            hf_log_say(
                &serve->log, HF_LOG_ERROR,
                "tenant number %" PRIu32 " has made %" PRIu64
                " operations in this segment and can make few more: end the gateways, remove the segment and start "
                "again, and it is made anew from the store",
                i, seq);
        }
    }
}

/* Who moved W and was killed or stopped then: on a tenant where nobody works it would wait for the next one who does, and its receipt
 * with it. Of all tenants, as an entry of a dead process may have been taken by another one, and then no death is seen. */
static void apply_words(struct hf_segment *seg)
{
    struct hf_u128 ignored;

    for (uint32_t i = 0; i < seg->tenants_cnt; i++) {
        const struct hf_shm_tenant *tenant = &seg->tenants[i];

        /* relaxed: a hint; hf_commit_ready() looks itself. */
        if (hf_load_rlx_u64(&tenant->ten_applied) < word_seq(tenant)) {
            (void)hf_commit_ready(seg, i, &ignored); /* lost to others, they apply; damaged, fsck tells */
        }
    }
}

/* Once a second: the dead, what they left in W, and whether the file is still there. */
static void keep_house(struct hf_serve *serve, uint64_t mono_ms)
{
    if (mono_ms < serve->next_house_ms) {
        return;
    }
    serve->next_house_ms = mono_ms + HOUSE_MS;
    look_at_sequences(serve, mono_ms);
    uint32_t dead = hf_owner_sweep(&serve->seg);

    if (dead > 0) {
        hf_log_say(
            &serve->log, HF_LOG_WARNING,
            "%" PRIu32
            " processes died without leaving: what they held stays held until it is settled or expires",
            dead);
        hf_drain_look_at_all(serve->drain);
    }
    apply_words(&serve->seg); /* after the sweep, and before the cycle that takes the marks */
    if (!hf_segment_in_place(&serve->seg) && hf_segment_state(&serve->seg) == HF_SEGMENT_READY) {
        hf_log_say(
            &serve->log, HF_LOG_ERROR,
            "the segment %s was removed or replaced: it admits nothing any more, what is in it is committed",
            serve->options.segment);
        hf_segment_set_state(&serve->seg, HF_SEGMENT_SUPERSEDED);
    }
}

/* After HF_DRAIN_BEHIND. A store that does not answer now is asked again by the next cycle, which finds the same. */
static enum hf_drain_result go_back(struct hf_serve *serve)
{
    struct hf_store_error error = {""};
    enum hf_store_status status = hf_serve_rewind(serve, &error);

    if (status == HF_STORE_TAKEN) {
        hf_serve_supersede(serve, error.text);
        return HF_DRAIN_SUPERSEDED;
    }
    if (status != HF_STORE_OK) {
        hf_log_say(&serve->log, HF_LOG_WARNING, "trying again: %s", error.text);
        return HF_DRAIN_WAITING;
    }
    return HF_DRAIN_WORKED;
}

enum hf_drain_result hf_serve_cycle(struct hf_serve *serve)
{
    uint64_t mono_ms = hf_clock_mono_fine_ms();

    hf_store_rlx_u64(&serve->seg.header->hdr_heartbeat_ms, mono_ms); /* relaxed: a gauge */
    enum hf_drain_result result = hf_drain_cycle(serve->drain, mono_ms);

    return result == HF_DRAIN_BEHIND ? go_back(serve) : result;
}

/* How long until the first deadline that is known can be reaped; UINT64_MAX: there is none. */
static uint64_t until_reaping_ms(const struct hf_serve *serve, uint64_t mono_ms)
{
    if (serve->seg.injected || serve->deadlines.cnt == 0) {
        return UINT64_MAX;
    }
    uint64_t elapsed = hf_clock_elapsed_ms(&serve->seg);
    uint64_t due = serve->deadlines.next > elapsed ? serve->deadlines.next - elapsed : 0;
    uint64_t pass = serve->next_reap_ms > mono_ms ? serve->next_reap_ms - mono_ms : 0;

    due = due > UINT64_MAX - COARSE_MS ? due : due + COARSE_MS;
    return due > pass ? due : pass;
}

/* How long a daemon may sleep that has nothing to do: not past a deadline, and what is admitted meanwhile waits no longer. */
static uint32_t idle_ms(const struct hf_serve *serve, uint64_t mono_ms)
{
    uint64_t wait = mono_ms - serve->worked_ms >= QUIET_AFTER_MS ? QUIET_MS : CYCLE_MS;
    uint64_t lag = serve->seg.max_lag_ms / LAG_LOOKS;
    uint64_t reaping = until_reaping_ms(serve, mono_ms);

    wait = lag < wait ? lag : wait;
    wait = reaping < wait ? reaping : wait;
    return wait == 0 ? 1U : (uint32_t)wait;
}

enum hf_drain_result hf_serve_step(struct hf_serve *serve, uint32_t *wait_ms)
{
    uint64_t mono_ms = hf_clock_mono_fine_ms();

    hf_clockkeeper_step(&serve->clock, &serve->seg, serve->store, mono_ms, &serve->log);
    if (!serve->seg.injected && mono_ms >= serve->next_reap_ms) {
        serve->next_reap_ms = mono_ms + HF_REAPER_EVERY_MS;
        (void)hf_reaper_pass(&serve->seg, &serve->deadlines, &serve->log);
    }
    keep_house(serve, mono_ms);
    enum hf_drain_result result = hf_serve_cycle(serve);

    if (result == HF_DRAIN_IDLE || result == HF_DRAIN_WORKED) {
        hf_roller_step(&serve->roller, &serve->seg, serve->store, serve->store_name, mono_ms, &serve->log);
    }
    if (result != HF_DRAIN_IDLE || serve->worked_ms == 0) {
        serve->worked_ms = mono_ms;
    }
    *wait_ms = result == HF_DRAIN_WORKED ? 0 : idle_ms(serve, mono_ms);
    if (result == HF_DRAIN_WAITING) {
        uint64_t next = hf_drain_next_try_ms(serve->drain);
        uint64_t now = hf_clock_mono_fine_ms();

        *wait_ms = next <= now ? 1 : next - now < CYCLE_MS ? (uint32_t)(next - now) : CYCLE_MS;
    }
    return result;
}

void hf_serve_wait(struct hf_serve *serve, uint32_t wait_ms)
{
    if (wait_ms > 0) {
        serve->woken = hf_wake_wait(&serve->seg, serve->woken, wait_ms);
    }
}

bool hf_serve_flush(struct hf_serve *serve, uint32_t timeout_ms)
{
    uint64_t until = hf_clock_mono_fine_ms() + timeout_ms;

    for (;;) {
        enum hf_drain_result result = hf_serve_cycle(serve);

        if (result == HF_DRAIN_IDLE) {
            return true;
        }
        uint64_t now = hf_clock_mono_fine_ms();

        if ((result != HF_DRAIN_WORKED && result != HF_DRAIN_WAITING) || now >= until) {
            return false;
        }
        if (result == HF_DRAIN_WAITING) {
            hf_serve_wait(serve, until - now < CYCLE_MS ? (uint32_t)(until - now) : CYCLE_MS);
        }
    }
}

struct hf_segment *hf_serve_segment(struct hf_serve *serve)
{
    return &serve->seg;
}

struct hf_store *hf_serve_store(struct hf_serve *serve)
{
    return serve->store;
}

const char *hf_serve_store_name(const struct hf_serve *serve)
{
    return serve->store_name;
}

const struct hf_recover_report *hf_serve_recovered(const struct hf_serve *serve)
{
    return serve->recovered ? &serve->report : NULL;
}

struct hf_drain *hf_serve_drain(struct hf_serve *serve)
{
    return serve->drain;
}
