/* Repair: alone in the segment. */
#include "core/fsck_mend.h"

#include "shm/clock.h"

#include <stdio.h>
#include <stdlib.h>

/* HF_EBUSY with the pids of whoever else lives in the segment. */
static int alone(const struct hf_segment *seg, const struct hf_owner *own, struct hf_error *err)
{
    char pids[256] = "";
    size_t used = 0;

    for (uint32_t i = 0; i < seg->owners_cnt; i++) {
        uint64_t ref = hf_load_acq_u64(&seg->owners[i].own_ref); /* E7 acquire -> hf_owner_join */

        if (ref == 0 || ref == own->ref || !hf_owner_alive(seg, ref)) {
            continue;
        }
        int cnt = snprintf(pids + used, sizeof(pids) - used, "%s%u", used > 0 ? ", " : "",
                           hf_load_rlx_u32(&seg->owners[i].own_pid)); /* relaxed: for people */

        used += cnt > 0 && (size_t)cnt < sizeof(pids) - used ? (size_t)cnt : 0;
    }
    return used == 0 ? HF_OK
                     : hf_error_set(
                           err, HF_EBUSY,
                           "a repair must be alone in the segment %s, and these processes are in it: %s (as "
                           "numbered in their own containers); end them first",
                           seg->name, pids);
}

static uint32_t state_of(const struct hf_segment *seg)
{
    return hf_load_acq_u32(&seg->header->hdr_state); /* E1 acquire -> hf_segment_set_state */
}

/* What the state becomes when the repair is through. */
static uint32_t state_after(const struct hf_segment *seg, uint32_t before)
{
    struct hf_clock_published pub;

    if (before != HF_SEGMENT_REPAIR) {
        return before;
    }
    /* Cut off before: it was open for work if it ever had a clock. */
    return seg->injected || hf_clock_published(seg, &pub) ? HF_SEGMENT_READY : HF_SEGMENT_NEW;
}

/* The findings of one look, for the steps that go by them. */
static void look_for(struct hf_mend *mend)
{
    struct hf_fsck *fsck = mend->fsck;

    hf_fsck_begin_look(fsck);
    hf_fsck_check_header(fsck);
    hf_fsck_check_tenants(fsck);
    hf_fsck_check_index(fsck);
    hf_fsck_check_slots(fsck);
}

static int mend_all(struct hf_mend *mend)
{
    mend->unsound = calloc(mend->seg->tenants_cnt, sizeof(*mend->unsound));
    if (mend->unsound == NULL) {
        return HF_ESYS;
    }
    hf_mend_owners(mend);
    hf_mend_words(mend);
    hf_mend_slots(mend);
    look_for(mend);
    hf_mend_judge(mend);
    hf_mend_index(mend);
    hf_mend_credits(mend);
    hf_mend_chunks(mend);
    hf_mend_published(mend);
    bool right = hf_mend_buckets(mend);

    free(mend->unsound);
    return right ? HF_OK : HF_ESYS;
}

static int repair_alone(struct hf_fsck *fsck, const struct hf_fsck_repair *repair, uint64_t own_ref,
                        bool again)
{
    struct hf_mend mend = {
        .fsck = fsck, .seg = fsck->seg, .repair = repair, .own_ref = own_ref, .again = again};

    int rc = mend_all(&mend);

    if (rc == HF_OK) {
        hf_fsck_looks(fsck);
        rc = hf_fsck_check_sums(fsck) ? HF_OK : HF_ESYS;
    }
    return rc;
}

int hf_fsck_repair(struct hf_segment *seg, const struct hf_owner *own, const struct hf_fsck_repair *repair,
                   hf_fsck_report_fn *report, void *ctx, struct hf_fsck_result *result, struct hf_error *err)
{
    struct hf_fsck fsck = {.seg = seg,
                           .options = repair->options,
                           .report = report,
                           .ctx = ctx,
                           .result = result,
                           .repairing = true};
    uint32_t before = state_of(seg);
    int rc = alone(seg, own, err); /* before anybody is told `not-ready` */

    *result = (struct hf_fsck_result){0};
    if (rc == HF_OK && (before == HF_SEGMENT_SUPERSEDED || before == HF_SEGMENT_CLOSED)) {
        rc = hf_error_set(err, HF_ENOTREADY,
                          "the segment %s is superseded or closed: the daemon makes a new one from the store",
                          seg->name);
    }
    if (rc == HF_OK) {
        rc = hf_owner_take_daemon(seg, own, err);
    }
    if (rc != HF_OK) {
        return rc;
    }
    hf_segment_set_state(seg, HF_SEGMENT_REPAIR); /* E1 */
    hf_fence_seq(); /* E7 fence: who joins from now on sees the state; who joined before is seen below */
    rc = alone(seg, own, err);
    if (rc == HF_OK) {
        rc = hf_fsck_open(&fsck) ? repair_alone(&fsck, repair, own->ref, before == HF_SEGMENT_REPAIR)
                                 : HF_ESYS;
        if (rc == HF_ESYS) {
            (void)hf_error_set(
                err, rc, "there is not enough memory to check the segment %s: run it where more is free",
                seg->name);
        }
        hf_fsck_close(&fsck);
    }
    hf_segment_set_state(seg, state_after(seg, before)); /* E1 */
    hf_owner_drop_daemon(seg, own);
    return rc;
}
