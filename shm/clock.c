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

/* What a publication shows at mono_ms. The coarse clock may still stand before the fine one of the daemon. */
static uint64_t extrapolate(const struct hf_clock_published *pub, uint64_t mono_ms)
{
    return mono_ms > pub->mono_ms ? pub->time_ms + (mono_ms - pub->mono_ms) : pub->time_ms;
}

/* Copies time and mono of the publication that seq names. False when there is none. */
static inline bool read_copy(const struct hf_shm_header *header, uint32_t seq, struct hf_clock_published *pub)
{
    uint32_t copy = seq >> 1 & 1U;

    if (__builtin_expect(seq < 2, 0))
        return false;
    /* relaxed: E2's fence at the caller proves that the copy was not filled again meanwhile. */
    pub->time_ms = hf_load_rlx_u64(&header->clk_time_ms[copy]);
    pub->mono_ms = hf_load_rlx_u64(&header->clk_mono_ms[copy]);
    return true;
}

/* Raises clk_hold_ms to at least ms; a lost round means that it was raised. */
static __attribute__((noinline)) void raise_hold(struct hf_shm_header *header, uint64_t ms)
{
    for (;;) {
        uint64_t hold = hf_load_rlx_u64(&header->clk_hold_ms); /* relaxed: the CAS decides */

        if (hold >= ms || hf_cas_acqrel_u64(&header->clk_hold_ms, hold, ms)) /* E2 release -> now_and_mono */
            return;
    }
}

bool hf_clock_published(const struct hf_segment *seg, struct hf_clock_published *out)
{
    const struct hf_shm_header *header = seg->header;

    for (int try = 0; try < HF_CLOCK_TRIES; try++) {
        uint32_t seq =
            hf_load_acq_u32(&header->clk_seq); /* E2 acquire -> hf_clock_publish: the copy is whole */
        bool there = read_copy(header, seq, out);

        out->uncertainty_ms =
            hf_load_rlx_u32(&header->clk_uncertainty_ms[seq >> 1 & 1U]); /* relaxed: E2's fence */
        hf_fence_acq();                                                  /* E2 fence -> hf_clock_publish */
        if (there && hf_load_rlx_u32(&header->clk_seq) >> 1 == seq >> 1) /* relaxed: E2's fence */
            return true;
    }
    *out = (struct hf_clock_published){0};
    return false;
}

/* Authority time, and the reading of the coarse clock that goes with it.
 *
 * It takes effect at the second look at clk_seq, and the coarse clock was read before. So who still follows an old
 * publication and finds clk_seq even saw no more than that one showed when the daemon made clk_seq odd; the daemon
 * reads its clock after that, and holds what was shown then. Who finds clk_seq odd raises the hold himself before he
 * looks again. Either way the next publication starts from nothing less than anybody saw. */
static inline __attribute__((always_inline)) uint64_t now_and_mono(struct hf_shm_header *header,
                                                                   uint64_t *mono_ms)
{
    for (int try = 0; try < HF_CLOCK_TRIES; try++) {
        uint32_t seq =
            hf_load_acq_u32(&header->clk_seq); /* E2 acquire -> hf_clock_publish: copy and hold are whole */
        struct hf_clock_published pub;

        if (!read_copy(header, seq, &pub))
            break;
        uint64_t hold = hf_load_rlx_u64(&header->clk_hold_ms); /* relaxed: at least what came with seq */
        *mono_ms = hf_clock_mono_ms();
        uint64_t now = extrapolate(&pub, *mono_ms);
        if (now < hold)
            now = hold;
        if (__builtin_expect((seq & 1U) != 0, 0)) {
            /* Only what a whole copy showed: a reader that was stopped since its first look may hold halves of two
             * publications, and the hold never comes down again. */
            hf_fence_acq();                               /* E2 fence -> hf_clock_publish */
            if (hf_load_rlx_u32(&header->clk_seq) != seq) /* relaxed: E2's fence */
                continue;
            raise_hold(header, now);
        }
        hf_fence_acq(); /* E2 fence -> hf_clock_publish: a word of a copy being filled implies a newer clk_seq */
        if (hf_load_acq_u32(&header->clk_seq) == seq) /* E2 acquire: not before the hold was raised */
            return now;
    }
    *mono_ms = hf_clock_mono_ms();
    return hf_load_acq_u64(&header->clk_hold_ms); /* E2 acquire -> raise_hold */
}

uint64_t hf_clock_now_ms(const struct hf_segment *seg)
{
    uint64_t mono;

    if (seg->injected)
        return hf_load_acq_u64(&seg->header->clk_injected_ms); /* E2 acquire -> hf_clock_inject */
    return now_and_mono(seg->header, &mono);
}

void hf_clock_read(const struct hf_segment *seg, struct hf_clock_now *now)
{
    if (seg->injected) {
        now->now_ms = hf_load_acq_u64(&seg->header->clk_injected_ms); /* E2 acquire -> hf_clock_inject */
        now->elapsed_ms = now->now_ms;
        now->mono_ms = hf_clock_mono_ms();
        return;
    }
    now->now_ms = now_and_mono(seg->header, &now->mono_ms);
    /* plain: fixed by the creator. */
    now->elapsed_ms = now->mono_ms + hf_load_rlx_u64(&seg->header->clk_elapsed_off_ms);
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

void hf_clock_publish(struct hf_segment *seg, uint64_t store_ms, uint64_t mono_ms, uint64_t uncertainty_ms)
{
    struct hf_shm_header *header = seg->header;
    struct hf_clock_published old = {0};
    uint32_t number = hf_load_rlx_u32(&header->clk_seq) >> 1; /* relaxed: single writer */
    uint32_t next = number == INT32_MAX ? 2U : number + 1U;   /* the parity must change, 0 is "none yet" */
    uint32_t copy = next & 1U;

    /* E2 fence -> now_and_mono: who sees a word of what follows sees that clk_seq has moved since it was in force.
     * CRASH from here to the last store: readers go on with the copy in force; the next daemon fills this one again. */
    hf_fence_rel();
    /* relaxed: published by clk_seq. */
    hf_store_rlx_u64(&header->clk_time_ms[copy], store_ms);
    hf_store_rlx_u64(&header->clk_mono_ms[copy], mono_ms);
    hf_store_rlx_u32(&header->clk_uncertainty_ms[copy],
                     uncertainty_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)uncertainty_ms);
    if (number != 0) {
        hf_store_rel_u32(&header->clk_seq,
                         number << 1 | 1U); /* E2 release -> now_and_mono: readers raise the hold */
        hf_fence_seq(); /* E2 fence: our clock is read after nobody can follow the old copy without raising */
        (void)read_copy(header, number << 1, &old);
        raise_hold(header, extrapolate(&old, hf_clock_mono_fine_ms()));
    }
    hf_store_rel_u32(&header->clk_seq,
                     next << 1); /* E2 release -> now_and_mono: copy and hold are complete */
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
