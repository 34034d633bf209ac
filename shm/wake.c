#include "shm/wake.h"

#include "shm/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Shared futexes: the word is in a mapping of several processes. Results do not matter: callers look again. */
static void wake_all(uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void wait_while(uint32_t *word, uint32_t seen, uint64_t timeout_ms)
{
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ms / 1000U),
                               .tv_nsec = (long)(timeout_ms % 1000U) * 1000000L};

    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

void hf_wake_daemon(struct hf_segment *seg)
{
    (void)hf_add_acqrel_u32(&seg->header->wake_word, 1); /* E8 release -> hf_wake_wait: the reason is there */
    wake_all(&seg->header->wake_word);
}

uint32_t hf_wake_wait(struct hf_segment *seg, uint32_t seen, uint32_t timeout_ms)
{
    uint32_t *word = &seg->header->wake_word;

    if (hf_load_acq_u32(word) == seen) /* E8 acquire -> hf_wake_daemon */
        wait_while(word, seen, timeout_ms);
    return hf_load_acq_u32(word); /* E8 acquire -> hf_wake_daemon */
}

void hf_wake_cycle_begin(struct hf_segment *seg)
{
    uint64_t *begun = &seg->header->cyc_begun;

    hf_store_rlx_u64(begun, hf_load_rlx_u64(begun) + 1U); /* relaxed: single writer, ordered by E8's fence */
    /* E8 fence -> hf_wake_flush: either it sees this number, or the marks taken from now on include its own. */
    hf_fence_seq();
}

void hf_wake_cycle_done(struct hf_segment *seg)
{
    struct hf_shm_header *header = seg->header;

    /* E8 release -> hf_wake_flush: what the cycle published is complete.
     * CRASH before: the cycle was never done; the next daemon's first one counts for it. */
    hf_store_rel_u64(&header->cyc_done, hf_load_rlx_u64(&header->cyc_begun)); /* relaxed: single writer */
    (void)hf_add_acqrel_u32(&header->cyc_done_word, 1); /* E8 release -> hf_wake_flush */
    wake_all(&header->cyc_done_word);
}

int hf_wake_flush(struct hf_segment *seg, uint32_t timeout_ms)
{
    struct hf_shm_header *header = seg->header;
    uint64_t until = hf_clock_mono_fine_ms() + timeout_ms;

    hf_fence_seq(); /* E8 fence -> hf_wake_cycle_begin: our marks are set before the number is read */
    uint64_t target = hf_load_acq_u64(&header->cyc_begun) + 1U; /* E8 acquire -> hf_wake_cycle_begin */
    hf_wake_daemon(seg);
    for (;;) {
        uint32_t seen = hf_load_acq_u32(&header->cyc_done_word); /* E8 acquire -> hf_wake_cycle_done */

        if (hf_load_acq_u64(&header->cyc_done) >= target) /* E8 acquire -> hf_wake_cycle_done */
            return HF_OK;
        uint64_t now = hf_clock_mono_fine_ms();
        if (now >= until)
            return HF_ENOTREADY;
        wait_while(&header->cyc_done_word, seen, until - now);
    }
}
