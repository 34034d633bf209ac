/* One daemon as an object that is stepped: store, segment, drain, reaper, clock, publications.
 *
 * `holdfastd` steps it in a loop; `holdfast run` has one in its own process for a private segment and runs a cycle after each
 * operation. One thread.
 */
#ifndef HF_PERSIST_SERVE_H
#define HF_PERSIST_SERVE_H

#include "persist/drain.h"
#include "persist/policy_file.h"
#include "persist/recover.h"
#include "shm/owner.h"

#define HF_SERVE_SLOTS             65536U
#define HF_SERVE_SLOTS_PRIVATE     131072U /* three quarters of them may be known before any is forgotten */
#define HF_SERVE_OWNERS            256U
#define HF_SERVE_REPLAY_HORIZON_MS 60000U
#define HF_SERVE_LATE_HORIZON_MS   3600000U
#define HF_SERVE_MAX_LAG_MS        30000U

enum hf_serve_status {
    HF_SERVE_OK = 0,
    HF_SERVE_RETRY =
        1, /* not now: the store is down, or a process of a lost segment still lives; open again later */
    HF_SERVE_LOCKED =
        2, /* another daemon uses the store's name, or the server still believes in one that was killed */
    HF_SERVE_REFUSED = -1, /* a person is needed: the error says what to do */
    HF_SERVE_POLICY = -2   /* the policy file is refused: the report says everything */
};

/* Zeroed means defaults; policy_path is required. */
struct hf_serve_options {
    const char *segment;           /* name or path; NULL: a private one */
    const char *policy_path;       /* read at each open */
    uint32_t policy_flags;         /* enum hf_policy_flag */
    const char *store_url;         /* NULL: the default store; of a private segment a temporary one */
    const char *store_name;        /* NULL: the segment's name; of a private one "run" */
    struct hf_store_options store; /* zeroed fields: the daemon's own values */
    uint32_t slots;
    uint32_t owners;
    uint64_t replay_horizon_ms;
    uint64_t late_horizon_ms;
    uint64_t max_lag_ms;
    mode_t mode;
    gid_t group; /* only with has_group */
    bool has_group;
    bool injected; /* an injected clock, from injected_ms on */
    uint64_t injected_ms;
    const char *made_by;
    hf_log_fn *log;
    void *log_ctx;
};

struct hf_serve;

/* Reads the policy, opens and locks the store, attaches to the segment or makes one. report: an all-zero struct, the caller's to
 * free; filled in with HF_SERVE_POLICY, and with warnings. *out is NULL unless OK. */
enum hf_serve_status hf_serve_open(const struct hf_serve_options *options, struct hf_serve **out,
                                   struct hf_policy_report *report, struct hf_error *err);

/* What is due: reaping, the clock, a drain cycle, housekeeping. *wait_ms: how long nothing will be due (0: call again at once).
 * HF_DRAIN_SUPERSEDED and _FAILED: this daemon has nothing more to do. */
enum hf_drain_result hf_serve_step(struct hf_serve *serve, uint32_t *wait_ms);

/* Sleeps until something is due or a process wakes the daemon, at most wait_ms. */
void hf_serve_wait(struct hf_serve *serve, uint32_t wait_ms);

/* One drain cycle now: what happened before is committed, published and, past its horizon, freed when it returns HF_DRAIN_IDLE, or
 * _WORKED when it was less than some ten thousand receipts. */
enum hf_drain_result hf_serve_cycle(struct hf_serve *serve);

/* Cycles until everything is committed, at most timeout_ms. True when it is. */
bool hf_serve_flush(struct hf_serve *serve, uint32_t timeout_ms);

/* Leaves: the segment stays as it is for the next daemon; a private one ends, and its temporary store is removed. Does not
 * flush. NULL is nothing to do. */
void hf_serve_close(struct hf_serve *serve);

/* Owned by serve. The store may be used for reading between steps. */
struct hf_segment *hf_serve_segment(struct hf_serve *serve);
struct hf_store *hf_serve_store(struct hf_serve *serve);
const char *hf_serve_store_name(const struct hf_serve *serve);
struct hf_drain *hf_serve_drain(struct hf_serve *serve);
/* What recovery found; NULL when the segment was continued. */
const struct hf_recover_report *hf_serve_recovered(const struct hf_serve *serve);

#endif
