/* A new segment under a new epoch, from the store and a policy: the first one of a name, or one after a loss.
 *
 * Steps: nobody live uses the old segment's lock file; what the store holds is surveyed; the segment is made under a temporary
 * name, compiled and filled; the epoch's receipt (and the policy's, when it is a new one) is committed with the next batch
 * number; the segment is linked into place. CRASH before the commit: a temporary file, removed by the next maker. After it: the
 * next start finds an epoch whose segment never was, and makes the next one.
 */
#ifndef HF_PERSIST_RECOVER_H
#define HF_PERSIST_RECOVER_H

#include "persist/policy_file.h"
#include "persist/rebuild.h"

enum hf_recover_status {
    HF_RECOVER_OK = 0,
    HF_RECOVER_RETRY = 1,   /* the store does not answer now, or a process still uses the lost segment */
    HF_RECOVER_REFUSED = -1 /* a person is needed: the error says what to do */
};

struct hf_recover_options {
    const char *segment; /* NULL: a private one */
    const struct hf_policy_file *policy;
    struct hf_store *store; /* locked for store_name */
    const char *store_name;
    uint32_t slots;
    uint32_t owners;
    uint64_t replay_horizon_ms;
    uint64_t late_horizon_ms;
    uint64_t max_lag_ms;
    mode_t mode;
    gid_t group;
    bool injected;
    uint64_t injected_ms;
    const char *made_by; /* who, for the receipt; NULL: none */
    const char *reason;  /* why, for the receipt */
    struct hf_log log;
};

/* What was found and made. */
struct hf_recover_report {
    struct hf_rebuild_found found;
    struct hf_store_head head; /* the chain's end before */
    uint64_t epoch;            /* of the new segment */
    uint32_t slots; /* of the new segment; more than asked for where what is still known needs more */
    uint64_t policy_revision;
    bool policy_new; /* this policy is not the last one of the store */
    uint64_t now_ms;
    uint64_t mono_ms;     /* CLOCK_MONOTONIC when it was now_ms; of an injected clock 0 */
    uint64_t gap_from_ms; /* HF_UNKNOWN: no gap */
    uint64_t gap_until_ms;
};

/* Looks only: fills the report. */
enum hf_recover_status hf_recover_look(const struct hf_recover_options *options,
                                       struct hf_recover_report *report, struct hf_error *err);

/* Makes the segment, in place but not ready: its clock is to be published first (hf_segment_set_state). The caller detaches. */
enum hf_recover_status hf_recover_make(const struct hf_recover_options *options, struct hf_segment *seg,
                                       struct hf_recover_report *report, struct hf_error *err);

/* Revision of the policy that the newest epoch of the store began with; 0: none. */
enum hf_store_status hf_recover_revision(struct hf_store *store, const char *store_name, uint64_t *revision,
                                         struct hf_store_error *error);

/* HF_OK when no process holds an owner's lock of that segment name; HF_EBUSY with a sentence otherwise. */
int hf_recover_unused(const char *segment, struct hf_error *err);

#endif
