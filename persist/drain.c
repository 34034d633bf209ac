#include "persist/drain_impl.h"

#include "shm/chunk.h"
#include "shm/clock.h"
#include "shm/wake.h"

#include <stdlib.h>
#include <string.h>

#define BATCHES_MAX \
    4U /* of a cycle: reaping, clock and signals have their turn while a backlog is committed */

/* ---- open, close --------------------------------------------------------------------------------------------- */

struct hf_drain *hf_drain_open(const struct hf_drain_options *options)
{
    struct hf_segment *seg = options->seg;
    struct hf_drain *drain = calloc(1, sizeof(*drain));

    if (drain == NULL) {
        return NULL;
    }
    drain->options = *options;
    drain->seg = seg;
    drain->random = (uint32_t)(seg->hash_seed ^ options->daemon_ref) | 1U;
    drain->look_at_all = 2;
    drain->fresh = drain->seen_all = options->fresh;
    drain->pending = calloc(seg->chunks_cnt, sizeof(uint64_t));
    drain->filling = calloc(seg->chunks_cnt, sizeof(uint64_t));
    drain->damaged = calloc(seg->chunks_cnt, sizeof(uint64_t));
    drain->used = calloc(seg->chunks_cnt, sizeof(uint8_t));
    drain->reserved = calloc(seg->slots_cnt, sizeof(struct hf_drain_reserved));
    drain->rows = calloc(HF_DRAIN_ROWS_MAX, sizeof(struct hf_receipt));
    drain->origins = calloc(HF_DRAIN_ROWS_MAX, sizeof(struct hf_drain_origin));
    drain->ended = calloc(HF_SHM_BATCH_ENTRIES, sizeof(struct hf_drain_ended));
    drain->texts = calloc(HF_DRAIN_ROWS_MAX, sizeof(char *));
    if (drain->pending == NULL || drain->filling == NULL || drain->damaged == NULL || drain->used == NULL ||
        drain->reserved == NULL || drain->rows == NULL || drain->origins == NULL || drain->ended == NULL ||
        drain->texts == NULL || !hf_closed_open(&drain->closed, seg, options->daemon_ref, &options->log)) {
        hf_drain_close(drain);
        return NULL;
    }
    return drain;
}

void hf_drain_close(struct hf_drain *drain)
{
    if (drain == NULL) {
        return;
    }
    if (drain->texts != NULL) {
        hf_drain_drop_texts(drain);
    }
    hf_closed_close(&drain->closed);
    free(drain->pending);
    free(drain->filling);
    free(drain->damaged);
    free(drain->used);
    free(drain->reserved);
    free(drain->rows);
    free(drain->origins);
    free(drain->ended);
    free((void *)drain->texts);
    free(drain);
}

void hf_drain_look_at_all(struct hf_drain *drain)
{
    /* The second finds the chunks of the dead empty of half-made slots. One that is under way has passed by some already. */
    drain->look_at_all = drain->look_at > 0 ? 3 : 2;
    drain->fresh = false;
}

void hf_drain_rewound(struct hf_drain *drain, uint64_t committed_ms)
{
    drain->in_flight = false;
    drain->ask_first = false;
    drain->tries = 0;
    drain->next_try_ms = 0;
    drain->options.committed_ms = committed_ms;
    memset(drain->reserved, 0, drain->seg->slots_cnt * sizeof(*drain->reserved));
    hf_drain_drop_texts(drain);
    drain->seen_all = false;
    drain->look_at = 0;
    hf_drain_look_at_all(drain);
}

uint64_t hf_drain_next_try_ms(const struct hf_drain *drain)
{
    return drain->next_try_ms;
}

void hf_drain_count(const struct hf_drain *drain, struct hf_drain_counts *counts)
{
    *counts = drain->counts;
    counts->used_slots = drain->closed.used_cnt;
    counts->rows_in_flight = drain->in_flight ? drain->rows_cnt : 0;
}

/* ---- a cycle --------------------------------------------------------------------------------------------------- */

static bool take_marks(struct hf_drain *drain)
{
    bool any = false;

    for (uint32_t i = 0; i < drain->seg->chunks_cnt; i++) {
        drain->pending[i] |= hf_chunk_take_marks(drain->seg, i); /* E9 */
        any = any || drain->pending[i] != 0;
    }
    return any;
}

static void done(struct hf_drain *drain, uint64_t mono_ms)
{
    /* E8 release -> hf_wake_flush, and the workers' lag: what was committed before is marked and published. */
    hf_store_rel_u64(&drain->seg->header->hdr_durable_ms, mono_ms);
    hf_wake_cycle_done(drain->seg);
}

/* Commits what is in flight, then what is pending. *again: not everything, or some slot is to be looked at once more. */
static enum hf_drain_result write_all(struct hf_drain *drain, bool any, uint64_t mono_ms, bool *again)
{
    enum hf_drain_result result = HF_DRAIN_IDLE;

    if (drain->in_flight) {
        result = hf_drain_push(drain, mono_ms);
        if (result != HF_DRAIN_WORKED) {
            return result;
        }
    }
    for (uint32_t batches = 0; any; batches++) {
        if (batches == BATCHES_MAX) {
            *again = true;
            break;
        }
        hf_drain_gather(drain, again);
        if (drain->rows_cnt == 0) {
            break;
        }
        hf_drain_announce(drain);
        result = hf_drain_push(drain, mono_ms);
        if (result != HF_DRAIN_WORKED) {
            return result;
        }
    }
    return result;
}

enum hf_drain_result hf_drain_cycle(struct hf_drain *drain, uint64_t mono_ms)
{
    bool again = false;

    if (drain->stopped != HF_DRAIN_IDLE) {
        return drain->stopped;
    }
    hf_wake_cycle_begin(drain->seg);
    hf_drain_sweep(drain, mono_ms);
    bool any = take_marks(drain);
    enum hf_drain_result result = write_all(drain, any, mono_ms, &again);

    hf_publish_limits(drain->options.publish);
    /* In the middle of a look at all slots those that closed are in no order. */
    if ((drain->look_at > 0 || hf_closed_free_due(&drain->closed, hf_clock_now_ms(drain->seg)) > 0) &&
        result == HF_DRAIN_IDLE) {
        result = HF_DRAIN_WORKED;
    }
    if (!again && drain->seen_all && (result == HF_DRAIN_IDLE || result == HF_DRAIN_WORKED)) {
        done(drain, mono_ms);
    }
    return result;
}
