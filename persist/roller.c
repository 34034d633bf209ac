#include "persist/roller.h"

#define RETRY_MS 10000U

static void failed(struct hf_roller *roller, uint64_t mono_ms, const struct hf_store_error *error,
                   const struct hf_log *log)
{
    roller->known = false; /* an answer may have been lost */
    roller->next_ms = mono_ms + RETRY_MS;
    hf_log_say(log, HF_LOG_WARNING, "no rollup was made, receipts are not affected; trying again in %u s: %s",
               RETRY_MS / 1000U, error->text);
}

void hf_roller_step(struct hf_roller *roller, struct hf_segment *seg, struct hf_store *store,
                    const char *store_name, uint64_t mono_ms, const struct hf_log *log)
{
    struct hf_store_error error = {""};

    if (mono_ms < roller->next_ms) {
        return;
    }
    if (!roller->known && hf_rollup_newest(store, store_name, &roller->newest, &error) != HF_STORE_OK) {
        failed(roller, mono_ms, &error, log);
        return;
    }
    roller->known = true;
    /* relaxed: the daemon alone writes it. */
    if (!hf_rollup_due(&roller->newest, hf_load_rlx_u64(&seg->header->hdr_next_seq))) {
        return;
    }
    if (hf_rollup_make(store, HF_ROLLUP_ROWS_MAX, &roller->newest, &error) != HF_STORE_OK) {
        failed(roller, mono_ms, &error, log);
    }
}
