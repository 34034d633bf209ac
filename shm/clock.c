#include "shm/clock.h"

#include <time.h>

/* A round fails only when a publication came between its two reads of clk_seq. */
#define HF_CLOCK_TRIES 64

static uint64_t clock_ms(clockid_t id)
{
    struct timespec ts;

    if (clock_gettime(id, &ts) != 0)
        return 0;
    return (uint64_t)ts.tv_sec * 1000U + (uint64_t)ts.tv_nsec / 1000000U;
}

uint64_t hf_clock_mono_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC_COARSE);
}

uint64_t hf_clock_mono_fine_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

uint64_t hf_clock_mono_ns(void)
{
    struct timespec ts;

    if (clock_gettime(CLOCK_MONOTONIC, &ts) != 0)
        return 0;
    return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

/* Copies the publication in force. False when there is none, or 64 publications came while reading one. */
static bool read_published(const struct hf_shm_header *header, struct hf_clock_published *out,
                           uint64_t *mono_ms)
{
    for (int try = 0; try < HF_CLOCK_TRIES; try++) {
        /* E2 acquire -> hf_clock_publish: the copy that clk_seq names is whole. */
        uint32_t seq = hf_load_acq_u32(&header->clk_seq);
        uint32_t copy = seq & 1U;

        if (seq == 0)
            return false;
        /* relaxed: E2's fence below proves that the copy was not filled again meanwhile. */
        out->time_ms = hf_load_rlx_u64(&header->clk_time_ms[copy]);
        out->mono_ms = hf_load_rlx_u64(&header->clk_mono_ms[copy]);
        out->uncertainty_ms = hf_load_rlx_u32(&header->clk_uncertainty_ms[copy]);
        /* Read before the second look at clk_seq: who still follows an old publication does so at an instant
         * before the new one, which the hold of the new one covers. */
        if (mono_ms != NULL)
            *mono_ms = hf_clock_mono_ms();
        hf_fence_acq(); /* E2 fence -> hf_clock_publish: a copy being filled implies a newer clk_seq */
        if (hf_load_rlx_u32(&header->clk_seq) == seq) /* relaxed: E2 */
            return true;
    }
    return false;
}

bool hf_clock_published(const struct hf_segment *seg, struct hf_clock_published *out)
{
    *out = (struct hf_clock_published){0};
    return read_published(seg->header, out, NULL);
}

/* What a publication shows at mono_ms. The coarse clock may still stand before the fine one of the daemon. */
static uint64_t extrapolate(const struct hf_clock_published *pub, uint64_t mono_ms)
{
    return mono_ms > pub->mono_ms ? pub->time_ms + (mono_ms - pub->mono_ms) : pub->time_ms;
}

/* Authority time, and the reading of the coarse clock that goes with it. */
static uint64_t now_and_mono(const struct hf_shm_header *header, uint64_t *mono_ms)
{
    struct hf_clock_published pub;
    bool read = read_published(header, &pub, mono_ms);
    /* E2 acquire -> hf_clock_publish: after clk_seq, so a new publication comes with its hold. */
    uint64_t hold = hf_load_acq_u64(&header->clk_hold_ms);

    if (!read) {
        *mono_ms = hf_clock_mono_ms();
        return hold;
    }
    uint64_t now = extrapolate(&pub, *mono_ms);
    return now > hold ? now : hold;
}

uint64_t hf_clock_now_ms(const struct hf_segment *seg)
{
    uint64_t mono;

    if (seg->injected)
        return hf_load_acq_u64(&seg->header->clk_injected_ms); /* E2 acquire -> hf_clock_inject */
    return now_and_mono(seg->header, &mono);
}

uint64_t hf_clock_elapsed_ms(const struct hf_segment *seg)
{
    if (seg->injected)
        return hf_load_acq_u64(&seg->header->clk_injected_ms); /* E2 acquire -> hf_clock_inject */
    /* plain: fixed by the creator. */
    return hf_clock_mono_ms() + hf_load_rlx_u64(&seg->header->clk_elapsed_off_ms);
}

uint64_t hf_clock_forecast_ms(const struct hf_segment *seg, uint64_t elapsed_deadline_ms)
{
    if (seg->injected)
        return elapsed_deadline_ms;

    uint64_t mono;
    uint64_t now = now_and_mono(seg->header, &mono);
    /* plain: fixed by the creator. */
    uint64_t elapsed = mono + hf_load_rlx_u64(&seg->header->clk_elapsed_off_ms);

    if (elapsed_deadline_ms >= elapsed)
        return now + (elapsed_deadline_ms - elapsed);
    uint64_t past = elapsed - elapsed_deadline_ms;
    return now > past ? now - past : 0;
}

/* Raises the hold to what readers of the publication in force may have seen by now. */
static void raise_hold(struct hf_shm_header *header, const struct hf_clock_published *pub)
{
    uint64_t shown = extrapolate(pub, hf_clock_mono_fine_ms());

    if (shown > hf_load_rlx_u64(&header->clk_hold_ms)) /* relaxed: single writer */
        /* E2 release -> now_and_mono: readers that miss it follow the publication that it was taken from. */
        hf_store_rel_u64(&header->clk_hold_ms, shown);
}

void hf_clock_publish(struct hf_segment *seg, uint64_t store_ms, uint64_t mono_ms, uint64_t uncertainty_ms)
{
    struct hf_shm_header *header = seg->header;
    struct hf_clock_published old = {0};
    uint32_t seq = hf_load_rlx_u32(&header->clk_seq);  /* relaxed: single writer */
    uint32_t next = seq == UINT32_MAX ? 2U : seq + 1U; /* 0 says "none yet"; the parity must change */
    uint32_t copy = next & 1U;

    /* E2 fence -> read_published: who sees a word of what follows sees that clk_seq has moved since it was in force.
     * CRASH until the store of clk_seq: readers go on with the copy in force, the next daemon fills this one again. */
    hf_fence_rel();
    /* relaxed: published by clk_seq. */
    hf_store_rlx_u64(&header->clk_time_ms[copy], store_ms);
    hf_store_rlx_u64(&header->clk_mono_ms[copy], mono_ms);
    hf_store_rlx_u32(&header->clk_uncertainty_ms[copy],
                     uncertainty_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)uncertainty_ms);
    bool again = seq != 0 && read_published(header, &old, NULL);
    if (again)
        raise_hold(header, &old);
    hf_store_rel_u32(&header->clk_seq, next); /* E2 release -> read_published: copy and hold are complete */
    /* Stopped just before that store, the hold is too old: it is raised to what was shown until then. */
    if (again)
        raise_hold(header, &old);
}

uint64_t hf_clock_inject(struct hf_segment *seg, uint64_t ms)
{
    uint64_t *word = &seg->header->clk_injected_ms;

    /* A lost round means that somebody moved the clock forward: it ends at the latest where ms is reached. */
    for (;;) {
        uint64_t now = hf_load_acq_u64(word); /* E2 acquire -> another injection */

        if (now >= ms)
            return now;
        if (hf_cas_acqrel_u64(word, now, ms)) /* E2 release -> hf_clock_now_ms */
            return ms;
    }
}
