/* Opening, joining, and what every call asks first. */
#include "core/client.h"

#include "core/name.h"
#include "shm/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef HF_VERSION
#define HF_VERSION "0"
#endif

const char *holdfast_version(void)
{
    return HF_VERSION;
}

/* ---- codes -------------------------------------------------------------------------------------------------- */

static int hf_client_result(int code)
{
    switch (code) {
    case HF_OK:
        return HOLDFAST_OK;
    case HF_ESYS:
    case HF_ENOSPACE:
        return HOLDFAST_SYSTEM;
    case HF_EMISSING:
        return HOLDFAST_MISSING;
    case HF_EFOREIGN:
        return HOLDFAST_FOREIGN;
    case HF_EBUILD:
        return HOLDFAST_BUILD;
    case HF_ENOTREADY:
    case HF_EEXISTS:
    case HF_EBUSY:
        return HOLDFAST_NOT_READY;
    case HF_ECORRUPT:
        return HOLDFAST_CORRUPT;
    case HF_EFULL:
        return HOLDFAST_FULL;
    case HF_EFORKED:
        return HOLDFAST_FORKED;
    default:
        return HOLDFAST_INVALID;
    }
}

int hf_client_fault(struct holdfast *handle, int code)
{
    int result = hf_client_result(code);
    if (result == HOLDFAST_CORRUPT) {
        handle->fatal = result;
        hf_alarm(handle->seg, HF_ALARM_CORRUPT, 1);
    }
    return result;
}

/* ---- per call ----------------------------------------------------------------------------------------------- */

int hf_client_look(struct holdfast *handle, uint64_t mono_ms)
{
    const struct hf_segment *seg = handle->seg;
    if (seg->path[0] == '\0' || mono_ms - handle->looked_ms < HF_CLIENT_SILENT_MS) {
        return HF_OK;
    }
    handle->looked_ms = mono_ms;
    if (!hf_segment_in_place(seg)) {
        handle->fatal = HOLDFAST_NOT_READY;
        return HF_ENOTREADY;
    }
    return HF_OK;
}

const struct hf_shm_policy *hf_client_policy_of(struct holdfast *handle, uint32_t gen)
{
    const struct hf_segment *seg = handle->seg;
    const struct hf_shm_policy *policy = hf_lookup_policy(seg, gen);
    /* relaxed: read-only once published; a damaged number is checked with the rows that it counts. */
    uint32_t rows_cnt = policy == NULL ? 0 : hf_load_rlx_u32(&policy->pol_rows_cnt);
    const struct hf_shm_row_policy *last = rows_cnt == 0 ? NULL : hf_lookup_row(seg, policy, rows_cnt - 1U);
    handle->policy = policy;
    handle->policy_gen = gen;
    handle->policy_rows_cnt = last == NULL ? 0 : rows_cnt;
    handle->policy_rows = last == NULL ? NULL : last - (rows_cnt - 1U);
    return policy;
}

int hf_client_enter(struct holdfast *handle)
{
    if (handle == NULL) {
        return HOLDFAST_INVALID;
    }
    if (__builtin_expect(hf_owner_forked(&handle->owner), 0)) {
        return HOLDFAST_FORKED;
    }
    if (__builtin_expect(handle->fatal != HOLDFAST_OK, 0)) {
        return handle->fatal;
    }
    struct hf_segment *seg = handle->seg;
    if (__builtin_expect(hf_segment_state(seg) != HF_SEGMENT_READY, 0)) {
        return HOLDFAST_NOT_READY;
    }
    return HOLDFAST_OK;
}

uint32_t hf_client_name(const char *text)
{
    if (text == NULL) {
        return 0;
    }
    size_t bytes = strnlen(text, HF_NAME_BYTES_MAX + 1);
    return bytes <= HF_NAME_BYTES_MAX && hf_name_valid(text, bytes) ? (uint32_t)bytes : 0;
}

uint64_t holdfast_now_ms(const struct holdfast *handle)
{
    return handle == NULL ? 0 : hf_clock_now_ms(handle->seg);
}

/* ---- open, join --------------------------------------------------------------------------------------------- */

int hf_client_wrap(const struct hf_segment *map, struct holdfast_segment **segment)
{
    struct holdfast_segment *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return HOLDFAST_NO_MEMORY;
    }
    made->map = *map;
    made->names = hf_name_cache_create();
    if (made->names == NULL) {
        free(made);
        return HOLDFAST_NO_MEMORY;
    }
    *segment = made;
    return HOLDFAST_OK;
}

static void hf_client_tell(char *error, size_t error_bytes, const char *text)
{
    if (error != NULL && error_bytes != 0) {
        snprintf(error, error_bytes, "%s", text);
    }
}

int holdfast_open(const char *name, struct holdfast_segment **segment, char *error, size_t error_bytes)
{
    struct hf_segment map;
    struct hf_error err = {.code = HF_OK, .text = ""};
    if (name == NULL || segment == NULL) {
        hf_client_tell(error, error_bytes, "holdfast_open needs a segment name and a place for the result");
        return HOLDFAST_INVALID;
    }
    *segment = NULL;
    int rc = hf_segment_attach(name, &map, &err);
    if (rc != HF_OK) {
        hf_client_tell(error, error_bytes, err.text);
        return hf_client_result(rc);
    }
    rc = hf_client_wrap(&map, segment);
    if (rc != HOLDFAST_OK) {
        hf_segment_detach(&map);
        hf_client_tell(error, error_bytes, holdfast_strerror(rc));
    }
    return rc;
}

void holdfast_close(struct holdfast_segment *segment)
{
    if (segment != NULL) {
        hf_name_cache_destroy(segment->names);
        hf_segment_detach(&segment->map);
        free(segment);
    }
}

int hf_client_join(struct holdfast_segment *segment, enum hf_role role, struct holdfast **handle)
{
    if (segment == NULL || handle == NULL) {
        return HOLDFAST_INVALID;
    }
    *handle = NULL;
    struct holdfast *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return HOLDFAST_NO_MEMORY;
    }
    struct hf_error err;
    made->shared = segment;
    made->seg = &segment->map;
    int rc = hf_owner_join(made->seg, role, &made->owner, &err);
    if (rc != HF_OK) {
        free(made);
        return hf_client_result(rc);
    }
    made->random = made->owner.ref * 0x9e3779b97f4a7c15ULL | 1U;
    made->reap_cursor = (uint32_t)(made->random >> 33);
    hf_chunks_init(&made->chunks, hf_ref_index(made->owner.ref));
    *handle = made;
    return HOLDFAST_OK;
}

int holdfast_join(struct holdfast_segment *segment, struct holdfast **handle)
{
    return hf_client_join(segment, HF_ROLE_WORKER, handle);
}

void holdfast_leave(struct holdfast *handle)
{
    if (handle == NULL) {
        return;
    }
    if (!hf_owner_forked(&handle->owner)) {
        hf_chunk_leave(handle->seg, &handle->chunks, handle->owner.ref);
        hf_owner_leave(handle->seg, &handle->owner);
    }
    free(handle);
}
