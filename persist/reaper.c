#include "persist/reaper.h"

#include "core/reap.h"
#include "core/slot.h"
#include "shm/clock.h"
#include "shm/commit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define IDS_MAX 5U

struct pass {
    uint32_t expired;
    uint32_t retained;
    uint64_t tokens; /* sums for a log line: they wrap where nobody reads them any more */
    uint64_t micros;
    char ids[IDS_MAX * 66];
    size_t ids_bytes;
};

static void note(struct pass *pass, const struct hf_shm_slot *slot, struct hf_u128 st)
{
    struct hf_shm_hold hold;
    char id[64];

    hf_slot_hold(slot, st, &hold);
    pass->tokens += hold.hold_tokens == HF_SHM_UNKNOWN ? 0 : hold.hold_tokens;
    pass->micros += hold.hold_cost == HF_SHM_UNKNOWN ? 0 : hold.hold_cost;
    if (pass->expired + pass->retained <= IDS_MAX) {
        (void)hf_slot_load_text(slot->slot_id, slot->slot_id_bytes, id);
        pass->ids_bytes += (size_t)snprintf(pass->ids + pass->ids_bytes, sizeof(pass->ids) - pass->ids_bytes,
                                            "%s%s", pass->ids_bytes == 0 ? "" : ", ", id);
    }
}

/* True when the entry needs another look soon: its slot has not been drained since it changed, or others were faster on its
 * tenant each time. */
static bool reap(struct hf_segment *seg, const struct hf_deadline *due, struct pass *pass)
{
    const struct hf_shm_slot *slot = &seg->slots[due->slot_idx];
    struct hf_u128 st = hf_commit_read_st(slot); /* E13 */

    if (hf_st_gen(st) != due->gen) {
        return false;
    }
    int closed = hf_reap_slot(seg, due->slot_idx);

    if (closed == HOLDFAST_CLOSED_EXPIRED) {
        pass->expired++;
        note(pass, slot, st);
    } else if (closed == HOLDFAST_CLOSED_RETAINED) {
        pass->retained++;
        note(pass, slot, st);
    }
    return closed == 0 || closed == HF_EBUSY;
}

uint32_t hf_reaper_pass(struct hf_segment *seg, struct hf_deadlines *deadlines, const struct hf_log *log)
{
    uint64_t now = hf_clock_elapsed_ms(seg);
    uint64_t next = UINT64_MAX;
    struct pass pass = {0};

    if (deadlines->cnt == 0 || now < deadlines->next) {
        return 0;
    }
    for (uint32_t i = 0; i < deadlines->cnt; i++) {
        const struct hf_deadline *due = &deadlines->list[i];
        uint64_t again = due->deadline;

        if (due->deadline <= now) {
            again = reap(seg, due, &pass) ? now + HF_REAPER_EVERY_MS : UINT64_MAX;
        }
        next = again < next ? again : next;
    }
    deadlines->next = next;
    if (pass.expired + pass.retained > 0) {
        hf_log_say(log, HF_LOG_WARNING,
                   "reaped %" PRIu32 " expired and %" PRIu32 " retained reservations that held %" PRIu64
                   " tokens and %" PRIu64 " micros: %s%s",
                   pass.expired, pass.retained, pass.tokens, pass.micros, pass.ids,
                   pass.expired + pass.retained > IDS_MAX ? ", ..." : "");
    }
    return pass.expired + pass.retained;
}
