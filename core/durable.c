/* Waiting for the daemon, and resolving paths ahead: the calls that may wait or allocate. */
#include "core/client.h"
#include "core/slot.h"
#include "shm/clock.h"
#include "shm/wake.h"

#include <stdlib.h>

#define HF_DURABLE_STEP_MS 50U
#define HF_DURABLE_ALIGN   128U /* of a kept path */

int holdfast_flush(struct holdfast *handle, uint32_t timeout_ms)
{
    int rc = hf_client_enter(handle);
    if (rc != HOLDFAST_OK) {
        return rc;
    }
    return hf_wake_flush(handle->seg, timeout_ms) == HF_OK ? HOLDFAST_OK : HOLDFAST_TIMEOUT;
}

/* HOLDFAST_OK, _CONFLICT, or _TIMEOUT: not yet. */
static int hf_durable_look(const struct hf_found *found)
{
    uint64_t persisted = hf_load_acq_u64(&found->slot->slot_persisted); /* E18 acquire -> the daemon's mark */
    uint32_t receipts = hf_persisted_receipts(persisted);
    if (hf_persisted_gen(persisted) != hf_st_gen(found->st) || (receipts & HF_PERSISTED_RESERVATION) == 0) {
        return HOLDFAST_TIMEOUT;
    }
    return (receipts & HF_PERSISTED_CONFLICT) != 0 ? HOLDFAST_CONFLICT : HOLDFAST_OK;
}

int holdfast_wait_durable(struct holdfast *handle, const char *id, uint64_t hold, uint32_t timeout_ms)
{
    int rc = hf_client_enter(handle);
    uint32_t id_bytes = hf_client_name(id);
    if (rc != HOLDFAST_OK || id_bytes == 0) {
        return rc != HOLDFAST_OK ? rc : HOLDFAST_INVALID;
    }
    uint64_t until_ms = hf_clock_mono_fine_ms() + timeout_ms;
    struct hf_found found;
    /* PENDING has not happened, and when it is freed in the end that does not mean that it was committed. */
    if (hf_slot_find(handle, id, id_bytes, hold, &found) != HF_INDEX_FOUND ||
        hf_st_state(found.st) == HF_STATE_PENDING) {
        return HOLDFAST_REFUSED;
    }
    for (;;) {
        rc = hf_durable_look(&found);
        uint64_t now_ms = hf_clock_mono_fine_ms();
        if (rc != HOLDFAST_TIMEOUT || now_ms >= until_ms) {
            return rc;
        }
        uint64_t left_ms = until_ms - now_ms;
        hf_wake_flush(handle->seg, left_ms < HF_DURABLE_STEP_MS ? (uint32_t)left_ms : HF_DURABLE_STEP_MS);
        rc = hf_client_enter(handle);
        if (rc != HOLDFAST_OK) {
            return rc;
        }
        /* Forgotten while we waited: only what is committed is freed. */
        if (hf_st_gen(hf_commit_read_st(found.slot)) != hf_st_gen(found.st)) { /* E13 */
            return HOLDFAST_OK;
        }
    }
}

int holdfast_resolve(struct holdfast *handle, const char *tenant, const char *team, const char *key,
                     const char *capability, struct holdfast_path **path, int *reason)
{
    int rc = hf_client_enter(handle);
    if (rc != HOLDFAST_OK || path == NULL || reason == NULL) {
        return rc != HOLDFAST_OK ? rc : HOLDFAST_INVALID;
    }
    struct hf_names names = {.tenant = tenant, .team = team, .key = key, .cap = capability};
    names.tenant_bytes = hf_client_name(tenant);
    names.team_bytes = hf_client_name(team);
    names.key_bytes = hf_client_name(key);
    names.cap_bytes = hf_client_name(capability);
    *path = NULL;
    if (names.tenant_bytes == 0 || names.team_bytes == 0 || names.cap_bytes == 0 ||
        (key != NULL && names.key_bytes == 0)) {
        *reason = HOLDFAST_REASON_INVALID_REQUEST;
        return HOLDFAST_REFUSED;
    }
    struct hf_path room;
    rc = hf_path_resolve(handle->seg, &names, &room, reason);
    if (rc != HF_OK) {
        return rc == HF_ENOTREADY ? HOLDFAST_REFUSED : hf_client_fault(handle, rc);
    }
    /* Whole lines, from the first of a pair. */
    struct hf_path *made = aligned_alloc(HF_DURABLE_ALIGN, (hf_path_bytes(&room) + HF_DURABLE_ALIGN - 1U) /
                                                               HF_DURABLE_ALIGN * HF_DURABLE_ALIGN);
    if (made == NULL) {
        return HOLDFAST_NO_MEMORY;
    }
    hf_path_copy(made, &room);
    *path = (struct holdfast_path *)(void *)made;
    return HOLDFAST_OK;
}

void holdfast_path_free(struct holdfast_path *path)
{
    free(path);
}
