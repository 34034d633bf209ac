/* credit: semantics.md, section 7. A credit is an operation of its tenant like any other; a slot carries it to the
 * helpers and to its receipt. */
#include "core/amount.h"
#include "core/client.h"
#include "core/lookup.h"
#include "core/name.h"
#include "core/slot.h"
#include "core/turn.h"
#include "core/window.h"
#include "shm/clock.h"

#include <string.h>

#define HF_CREDIT_ROUNDS     100000U
#define HF_CREDIT_SPENT      (-100) /* the tenant's sequence is used up: `busy` */
#define HF_CREDIT_REASON_MAX 255U

struct hf_credit {
    struct holdfast *handle;
    struct hf_path path;
    uint32_t window;
    int64_t micros;
    uint64_t limit;
    uint32_t slot_idx;
    uint64_t after;
};

static struct hf_shm_credit_note *hf_credit_note(struct hf_shm_slot *slot)
{
    return (struct hf_shm_credit_note *)(void *)((uint8_t *)slot + HF_SHM_CREDIT_OFF);
}

/* UTF-8 without control characters apart from what a sentence may hold; 1..255 bytes. */
static uint32_t hf_credit_text(const char *text)
{
    size_t bytes = text == NULL ? 0 : strnlen(text, HF_CREDIT_REASON_MAX + 1);
    if (bytes == 0 || bytes > HF_CREDIT_REASON_MAX) {
        return 0;
    }
    for (size_t at = 0; at < bytes;) {
        uint32_t code_point;
        size_t step = hf_utf8_decode(text + at, bytes - at, &code_point);
        if (step == 0 || hf_utf8_control(code_point)) {
            return 0;
        }
        at += step;
    }
    return (uint32_t)bytes;
}

/* The slot up to what a round decides. */
static void hf_credit_fill(struct hf_credit *credit, const char *reason, const char *by)
{
    struct hf_shm_slot *slot = &credit->handle->seg->slots[credit->slot_idx];
    struct hf_shm_credit_note *note = hf_credit_note(slot);
    hf_slot_begin(slot, credit->handle->owner.ref, hf_clock_now_ms(credit->handle->seg));
    for (uint32_t i = 0; i < HF_SHM_LAYERS; i++) {
        hf_store_rlx_u32(&slot->slot_rows[i], credit->path.rows[i]); /* relaxed: E13 */
    }
    hf_store_rlx_u32(&slot->slot_tenant, credit->path.tenant_idx); /* relaxed: E13 */
    hf_store_rlx_u64(&slot->slot_mask, 0);                         /* relaxed: E13 */
    /* plain, all of the note but the words a helper reads: before PENDING, the owner alone (E13). */
    memset(note, 0, sizeof *note);
    note->crd_reason_bytes = (uint8_t)strlen(reason);
    note->crd_by_bytes = (uint8_t)strlen(by);
    memcpy(note->crd_reason, reason, note->crd_reason_bytes);
    memcpy(note->crd_by, by, note->crd_by_bytes);
    hf_store_rlx_u32(&note->crd_window, credit->window);                       /* relaxed: E13 */
    hf_store_rlx_u64((uint64_t *)&note->crd_micros, (uint64_t)credit->micros); /* relaxed: E13 */
    hf_slot_pending(slot);
}

/* before + micros, not below 0; false above the range, of limit + credit too. */
static bool hf_credit_after(const struct hf_credit *credit, uint64_t before, uint64_t *after)
{
    if (credit->micros < 0) {
        uint64_t back = (uint64_t)-credit->micros;
        *after = before > back ? before - back : 0;
        return true;
    }
    *after = before + (uint64_t)credit->micros;
    return *after <= HF_AMOUNT_MAX && *after + credit->limit <= HF_AMOUNT_MAX;
}

/* One round: HOLDFAST_OK, HOLDFAST_REFUSED (range), or HF_EBUSY: again; HF_CREDIT_SPENT; HF_ECORRUPT. */
static int hf_credit_round(struct hf_credit *credit)
{
    struct hf_segment *seg = credit->handle->seg;
    struct hf_shm_slot *slot = &seg->slots[credit->slot_idx];
    struct hf_shm_credit_note *note = hf_credit_note(slot);
    struct hf_view view;
    int rc = hf_view_read(seg, &credit->path, &credit->handle->windows, &view);
    if (rc != HF_OK) {
        return rc;
    }
    struct hf_u128 word = hf_commit_read_bucket(
        &seg->rows[credit->path.rows[1]].row_buckets[credit->window][HF_SHM_CREDIT]); /* E12 */
    uint64_t before = hf_bucket_window(word) == view.windows[credit->window] ? hf_bucket_value(word) : 0;
    if (!hf_credit_after(credit, before, &credit->after)) {
        return HOLDFAST_REFUSED;
    }
    hf_store_rlx_u32(&note->crd_window_id, view.windows[credit->window]); /* relaxed: E10 */
    hf_store_rlx_u64(&note->crd_before, before);                          /* relaxed: E10 */
    hf_store_rlx_u64(&note->crd_after, credit->after);                    /* relaxed: E10 */
    hf_store_rlx_u64(&slot->slot_reserved_ms, view.now_ms);               /* relaxed: E10 */
    for (uint32_t i = 0; i < 4; i++) {
        hf_store_rlx_u32(&slot->slot_windows[i], view.windows[i]); /* relaxed: E10 */
    }
    struct hf_op op;
    if (!hf_commit_describe(seg, credit->slot_idx, HF_KIND_CREDIT, hf_word_seq(view.word) + 1U, view.now_ms,
                            &op, NULL)) {
        return HF_ECORRUPT;
    }
    if (hf_commit_run(seg, credit->path.tenant_idx, view.word, &op, view.now_ms)) {
        return HOLDFAST_OK;
    }
    return hf_commit_exhausted(view.word) ? HF_CREDIT_SPENT : HF_EBUSY;
}

static int hf_credit_rounds(struct hf_credit *credit, uint64_t *total, int *refused)
{
    struct holdfast *handle = credit->handle;
    int rc = HF_EBUSY;
    for (uint32_t round = 0; rc == HF_EBUSY && round < HF_CREDIT_ROUNDS; round++) {
        rc = hf_credit_round(credit);
        if (rc == HF_EBUSY) {
            hf_turn_lost(handle, credit->path.tenant_idx, round);
        }
    }
    if (rc == HOLDFAST_OK) {
        *total = credit->after;
        return HOLDFAST_OK;
    }
    hf_slot_undo(&handle->seg->slots[credit->slot_idx]);
    hf_chunk_untake(handle->seg, &handle->chunks, credit->slot_idx);
    if (rc != HOLDFAST_REFUSED && rc != HF_EBUSY && rc != HF_CREDIT_SPENT) {
        return hf_client_fault(handle, rc);
    }
    *refused = rc == HOLDFAST_REFUSED ? HOLDFAST_REASON_INVALID_AMOUNT : HOLDFAST_REASON_BUSY;
    return HOLDFAST_REFUSED;
}

static int hf_credit_form(const char *team, int window, int64_t micros, const char *reason, const char *by)
{
    if (hf_client_name(team) == 0 || window < 0 || window >= HF_WINDOW_CNT || hf_credit_text(reason) == 0 ||
        hf_client_name(by) == 0) {
        return HOLDFAST_REASON_INVALID_REQUEST;
    }
    int64_t most = (int64_t)HF_AMOUNT_MAX;
    return micros > most || micros < -most ? HOLDFAST_REASON_INVALID_AMOUNT : HOLDFAST_REASON_NONE;
}

/* The team and its limit; HOLDFAST_REASON_NONE or why not. */
static int hf_credit_team(struct hf_credit *credit, const char *tenant, const char *team, int *fault)
{
    struct hf_names names = {.tenant = tenant,
                             .team = team,
                             .tenant_bytes = hf_client_name(tenant),
                             .team_bytes = hf_client_name(team)};
    int reason = HOLDFAST_REASON_NONE;
    int rc = hf_path_resolve(credit->handle->seg, &names, &credit->path, &reason);
    *fault = rc == HF_ENOTREADY ? HF_OK : rc;
    if (rc != HF_OK) {
        return reason;
    }
    for (uint32_t i = 0; i < credit->path.buckets_cnt; i++) {
        const struct hf_path_bucket *bucket = &credit->path.buckets[i];
        if (bucket->layer == 1 && bucket->window == credit->window && bucket->dimension == HF_DIM_COST) {
            credit->limit = bucket->limit;
            return HOLDFAST_REASON_NONE;
        }
    }
    return HOLDFAST_REASON_INVALID_REQUEST;
}

int holdfast_credit(struct holdfast *handle, const char *tenant, const char *team, int window, int64_t micros,
                    const char *reason, const char *by, uint64_t *total, int *refused)
{
    int rc = hf_client_enter(handle);
    if (rc != HOLDFAST_OK || total == NULL || refused == NULL) {
        return rc != HOLDFAST_OK ? rc : HOLDFAST_INVALID;
    }
    *refused = hf_client_name(tenant) == 0 ? HOLDFAST_REASON_INVALID_REQUEST
                                           : hf_credit_form(team, window, micros, reason, by);
    if (*refused != HOLDFAST_REASON_NONE) {
        return HOLDFAST_REFUSED;
    }
    struct hf_credit credit = {.handle = handle, .window = (uint32_t)window, .micros = micros};
    int fault;
    *refused = hf_credit_team(&credit, tenant, team, &fault);
    if (fault != HF_OK) {
        return hf_client_fault(handle, fault);
    }
    if (*refused != HOLDFAST_REASON_NONE) {
        return HOLDFAST_REFUSED;
    }
    credit.slot_idx = hf_chunk_take(handle->seg, &handle->chunks, handle->owner.ref);
    if (credit.slot_idx == HF_SHM_NONE) {
        *refused = HOLDFAST_REASON_BUSY;
        hf_alarm(handle->seg, HF_ALARM_BUSY, 1);
        return HOLDFAST_REFUSED;
    }
    hf_credit_fill(&credit, reason, by);
    return hf_credit_rounds(&credit, total, refused);
}
