/* holdfast replay: real traffic through real processes, and then the account of it.
 *
 *   replay.c            arguments, the whole run
 *   replay_plan.c       the trace in memory; which path and model a row takes, what it asks for
 *   replay_worker.c     one worker process
 *   replay_processes.c  starting and killing workers and the daemon
 *   replay_account.c    the store's rows against what the workers wrote down; buckets against slots and store
 *   replay_table.c      the progress line and the final table
 */
#ifndef HF_TOOLS_HOLDFAST_REPLAY_H
#define HF_TOOLS_HOLDFAST_REPLAY_H

#include "core/include/holdfast.h"
#include "core/policy.h"
#include "persist/reconcile.h"
#include "persist/store.h"
#include "tools/common/histogram.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HF_REPLAY_WORKERS_MAX 256
#define HF_REPLAY_IN_FLIGHT   16 /* reservations that a worker keeps open before it settles the oldest */

#define HF_REPLAY_NO_MODEL UINT32_MAX

/* A row of the trace, and what the rule makes of it. */
struct hf_replay_row {
    uint64_t at_ns;
    uint64_t input_tokens;
    uint64_t output_tokens;
    uint64_t max_output_tokens;
    uint32_t path;    /* of hf_replay_plan.paths */
    uint32_t model;   /* of policy->models */
    uint32_t economy; /* likewise: the economy model; HF_REPLAY_NO_MODEL: none is named */
    bool failed;
};

/* One combination of tenant, team, key or none, and capability. */
struct hf_replay_path {
    const struct hf_policy_tenant *tenant;
    const struct hf_policy_team *team;
    const struct hf_policy_key *key; /* NULL: none */
    const struct hf_policy_capability *capability;
};

struct hf_replay_plan {
    struct hf_replay_row *rows;
    uint64_t rows_cnt;
    uint64_t skipped_cnt;
    struct hf_replay_path *paths;
    uint32_t paths_cnt;
    const struct hf_policy *policy;
    uint64_t seed;
};

/* What became of a row, as its worker wrote down. Goes up only. */
enum hf_replay_step {
    HF_REPLAY_STEP_NONE = 0,
    HF_REPLAY_STEP_BEGUN, /* the worker asked; whether it was admitted, nobody wrote down */
    HF_REPLAY_STEP_REFUSED,
    HF_REPLAY_STEP_ADMITTED,
    HF_REPLAY_STEP_SETTLING, /* asked to settle */
    HF_REPLAY_STEP_SETTLED
};

/* What one worker place has seen; the next process of a killed one goes on with it. Writer: that worker alone. */
struct hf_replay_stats {
    uint64_t requests, admitted, degraded, settled, disputed,
        lost;                                 /* lost: no answer that can be, or a fault */
    uint64_t refused[HOLDFAST_REASON_CNT][5]; /* [reason][layer + 1] */
    uint64_t held_tokens, held_micros, settled_tokens, settled_micros;
    struct hf_histogram reserve_ns;
    struct hf_histogram settle_ns;
};

/* Memory that the supervisor shares with its workers. */
struct hf_replay_shared {
    uint64_t next_row; /* rows given out; any worker adds */
    uint64_t start_ns; /* CLOCK_MONOTONIC at row time 0 */
    uint32_t stop;
    uint32_t workers;
    struct hf_replay_stats stats[HF_REPLAY_WORKERS_MAX];
    uint8_t steps[]; /* enum hf_replay_step, one per row; writer: the worker that took the row */
};

struct hf_replay_options {
    const char *trace;
    const char *policy;
    const char *store;   /* URL */
    const char *segment; /* an existing one with its daemon, or NULL: an own one */
    const char *daemon;  /* path of holdfastd */
    uint32_t workers;
    uint64_t speed_permille; /* 1000 is the original speed; 0: as fast as it goes */
    uint64_t ttl_ms;         /* HOLDFAST_UNKNOWN: the policy's */
    uint64_t kill_every_ms;  /* 0: never */
    uint64_t kill_daemon_every_ms;
    uint64_t seed;
    uint32_t slots;
    bool keep; /* leave segment and store of an own run */
};

struct hf_replay_run {
    struct hf_replay_options options;
    struct hf_replay_plan plan;
    struct hf_replay_shared *shared;
    char segment[64];
    char store[512];
    char dir[256]; /* temporary folder of an own run, "" when there is none */
    pid_t workers[HF_REPLAY_WORKERS_MAX];
    pid_t daemon; /* 0: not ours */
    uint64_t workers_killed, daemons_killed;
    uint64_t random;
};

/* ---- replay_plan.c */

/* Reads the trace; malformed rows are said on stderr with their line, skipped and counted. 0, or an exit status. */
int hf_replay_plan_make(const char *trace, const struct hf_policy *policy, uint64_t seed,
                        struct hf_replay_plan *plan);
void hf_replay_plan_free(struct hf_replay_plan *plan);
/* Id of row i, unique per run: "r<seed>-<run>-<row>". */
void hf_replay_id(const struct hf_replay_run *run, uint64_t row, char id[64]);
/* Row of an id of this run, or UINT64_MAX. */
uint64_t hf_replay_row_of(const struct hf_replay_run *run, const char *id);
/* What the row came to: tokens and cost by the prices of its model, or of its economy model when it was degraded. */
void hf_replay_actual(const struct hf_replay_plan *plan, const struct hf_replay_row *row, bool degraded,
                      uint64_t *tokens, uint64_t *cost);

/* ---- replay_worker.c */

/* The life of worker process `place`; never returns. */
void hf_replay_worker(struct hf_replay_run *run, uint32_t place) __attribute__((noreturn));

/* ---- replay_processes.c */

/* Starts the daemon of an own run and waits until its segment is open. 0, or an exit status (said on stderr). */
int hf_replay_start_daemon(struct hf_replay_run *run);
/* Starts, kills and starts again until every row is done; prints progress. 0, or an exit status. */
int hf_replay_supervise(struct hf_replay_run *run);
/* SIGTERM and wait: the daemon drains and leaves. True when it left with status 0. */
bool hf_replay_stop_daemon(struct hf_replay_run *run);

/* ---- replay_account.c */

struct hf_replay_account {
    struct hf_reconcile_report reconcile;
    struct hf_store_totals totals;
    uint64_t reservations; /* of this run in the store */
    uint64_t settlements;
    uint64_t expiries;
    uint64_t unwritten;     /* in the store, and the worker died before it wrote that down */
    uint64_t missing;       /* written down as admitted or settled, and not in the store */
    uint64_t twice;         /* a row with two reservations or two closings */
    uint64_t wrong_amounts; /* settled to something else than the row came to */
    uint64_t alarms_conflict;
    uint64_t mismatches;    /* all of these that must be 0, added up */
    int64_t charged_tokens; /* sums of the store over this run */
    int64_t charged_micros;
};
/* Waits for the drain and compares. 0, or an exit status (said on stderr). */
int hf_replay_account(struct hf_replay_run *run, struct hf_replay_account *out);

/* ---- replay_table.c */

void hf_replay_progress(const struct hf_replay_run *run, uint64_t elapsed_ns);
void hf_replay_table(const struct hf_replay_run *run, const struct hf_replay_account *account,
                     uint64_t elapsed_ns);

#endif
