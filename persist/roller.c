#include "persist/roller.h"

#include "persist/rollup_impl.h"

#define RETRY_MS 10000U
/* How much further than what came meanwhile a step reads: a batch of the drain fits, so that it catches up whatever comes. */
#define SLICE_ROWS 8192U

static void failed(struct hf_roller *roller, uint64_t mono_ms, const struct hf_store_error *error,
                   const struct hf_log *log)
{
    hf_tally_drop(&roller->tally); /* an answer may have been lost */
    roller->next_ms = mono_ms + RETRY_MS;
    hf_log_say(log, HF_LOG_WARNING, "no rollup was made, receipts are not affected; trying again in %u s: %s",
               RETRY_MS / 1000U, error->text);
}

void hf_roller_forget(struct hf_roller *roller)
{
    hf_tally_drop(&roller->tally);
    *roller = (struct hf_roller){.next_ms = 0};
}

/* Begins anew, or reads on. */
static enum hf_store_status follow(struct hf_roller *roller, struct hf_store *store, const char *store_name,
                                   uint64_t next_seq, struct hf_store_error *error)
{
    struct hf_tally *tally = &roller->tally;
    uint64_t came = next_seq > roller->seen_seq && roller->seen_seq != 0 ? next_seq - roller->seen_seq : 0;

    roller->seen_seq = next_seq;
    if (!tally->started) {
        struct hf_rollup newest;
        enum hf_store_status status = hf_rollup_newest(store, store_name, &newest, error);

        if (status != HF_STORE_OK) {
            return status;
        }
        hf_tally_start(tally, &newest);
    }
    if (tally->full || tally->next_seq >= next_seq) {
        return HF_STORE_OK;
    }
    return hf_tally_read(tally, store, came + SLICE_ROWS, error);
}

void hf_roller_step(struct hf_roller *roller, struct hf_segment *seg, struct hf_store *store,
                    const char *store_name, uint64_t mono_ms, const struct hf_log *log)
{
    struct hf_tally *tally = &roller->tally;
    uint64_t next_seq = hf_load_rlx_u64(&seg->header->hdr_next_seq); /* relaxed: the daemon alone writes it */
    struct hf_store_error error = {""};
    struct hf_rollup made;

    if (mono_ms < roller->next_ms) {
        return;
    }
    if (follow(roller, store, store_name, next_seq, &error) != HF_STORE_OK) {
        failed(roller, mono_ms, &error, log);
        return;
    }
    /* Of what does not fit a rollup is due in any case: else all that comes would be read again later. */
    if (!tally->full && (!hf_rollup_due(&tally->before, next_seq) || tally->next_seq < next_seq)) {
        return;
    }
    if (hf_rollup_write(store, tally, &made, &error) != HF_STORE_OK) {
        failed(roller, mono_ms, &error, log);
        return;
    }
    hf_tally_start(tally, &made);
}
