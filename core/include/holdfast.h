/* holdfast: quota for gateways that spend other people's money.
 *
 * Before a call, reserve its worst case; afterwards settle what it really came to. Tenant, team and key are checked
 * at one instant, all of them or none, in shared memory, without a lock or a system call.
 *
 *     process:  holdfast_open()  ->  struct holdfast_segment   (one mapping, shared by the threads)
 *     thread:   holdfast_join()  ->  struct holdfast           (one handle per thread)
 *
 * Amounts are whole numbers from 0 to HOLDFAST_AMOUNT_MAX: tokens, calls, and micros (millionths of the policy's
 * currency). HOLDFAST_UNKNOWN says "not given" in a request and "not known" or "no such limit" in an answer.
 * Names and ids are NUL-terminated UTF-8 of 1 to 63 bytes without control characters, compared bytewise.
 *
 * Functions return HOLDFAST_OK (0, it took effect), HOLDFAST_REFUSED (1, the answer says why; nothing has
 * changed) or a negative fault. They never abort, print, lock or wait, unless their comment says so. After fork() a child
 * must open nothing anew but join for itself: an inherited handle answers HOLDFAST_FORKED.
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HOLDFAST_API      __attribute__((visibility("default")))
#define HOLDFAST_MUST_USE __attribute__((warn_unused_result))
#else
#define HOLDFAST_API
#define HOLDFAST_MUST_USE
#endif

#define HOLDFAST_AMOUNT_MAX     UINT64_C(72057594037927935)
#define HOLDFAST_UNKNOWN        UINT64_MAX
#define HOLDFAST_NONE           INT64_MIN /* in remaining: no such limit */
#define HOLDFAST_NAME_BYTES_MAX 63

enum holdfast_result {
    HOLDFAST_OK = 0,
    HOLDFAST_REFUSED = 1,
    HOLDFAST_TIMEOUT = 2,    /* holdfast_wait_durable, holdfast_flush */
    HOLDFAST_CONFLICT = 3,   /* holdfast_wait_durable: the store has another reservation under this id */
    HOLDFAST_INVALID = -1,   /* an argument that no caller should pass (NULL, a foreign handle) */
    HOLDFAST_SYSTEM = -2,    /* a system call failed while opening or joining */
    HOLDFAST_MISSING = -3,   /* no segment of that name: is the daemon running? */
    HOLDFAST_FOREIGN = -4,   /* wrong owner, mode, or kind of file */
    HOLDFAST_BUILD = -5,     /* the segment was made by another build of holdfast */
    HOLDFAST_NOT_READY = -6, /* being built, superseded, or removed: open again later */
    HOLDFAST_CORRUPT =
        -7,               /* an impossible value in the segment; this handle refuses everything from now on */
    HOLDFAST_FULL = -8,   /* no place for another process */
    HOLDFAST_FORKED = -9, /* the handle belongs to the parent process: join again */
    HOLDFAST_NO_MEMORY = -10
};

/* Why something was refused; holdfast_reason_name() gives the word of the contract. */
enum holdfast_reason {
    HOLDFAST_REASON_NONE = 0,
    HOLDFAST_REASON_INVALID_REQUEST,
    HOLDFAST_REASON_INVALID_AMOUNT,
    HOLDFAST_REASON_UNKNOWN_TENANT,
    HOLDFAST_REASON_UNKNOWN_TEAM,
    HOLDFAST_REASON_UNKNOWN_KEY,
    HOLDFAST_REASON_UNKNOWN_CAPABILITY,
    HOLDFAST_REASON_UNKNOWN_MODEL,
    HOLDFAST_REASON_MODEL_LIMIT,
    HOLDFAST_REASON_REQUEST_CAP,
    HOLDFAST_REASON_AMOUNT_UNKNOWN,
    HOLDFAST_REASON_KEY_BUDGET,
    HOLDFAST_REASON_TEAM_SHARE,
    HOLDFAST_REASON_TENANT_TOTAL,
    HOLDFAST_REASON_DEGRADE_NOT_CHEAPER,
    HOLDFAST_REASON_QUEUE_FULL,
    HOLDFAST_REASON_QUEUE_EXPIRED,
    HOLDFAST_REASON_UNKNOWN_TICKET,
    HOLDFAST_REASON_ID_CONFLICT,
    HOLDFAST_REASON_BUSY,
    HOLDFAST_REASON_NOT_READY,
    HOLDFAST_REASON_WINDOW_OVER,
    HOLDFAST_REASON_UNKNOWN_RESERVATION,
    HOLDFAST_REASON_ALREADY_CLOSED,
    HOLDFAST_REASON_ALREADY_DISPATCHED,
    HOLDFAST_REASON_OVERAGE,
    HOLDFAST_REASON_STILL_OPEN,
    HOLDFAST_REASON_INVALID_POLICY,
    HOLDFAST_REASON_NOT_BUILT,
    HOLDFAST_REASON_CNT
};

enum holdfast_layer {
    HOLDFAST_LAYER_REQUEST = 0,
    HOLDFAST_LAYER_KEY,
    HOLDFAST_LAYER_TEAM,
    HOLDFAST_LAYER_TENANT
};
enum holdfast_window {
    HOLDFAST_WINDOW_MINUTE = 0,
    HOLDFAST_WINDOW_HOUR,
    HOLDFAST_WINDOW_DAY,
    HOLDFAST_WINDOW_MONTH,
    HOLDFAST_WINDOW_LIFETIME
};
enum holdfast_dimension {
    HOLDFAST_INVOCATIONS = 0,
    HOLDFAST_TOKENS,
    HOLDFAST_COST_MICROS
};
enum holdfast_kind {
    HOLDFAST_REJECT = 0,
    HOLDFAST_ALLOW,
    HOLDFAST_DEGRADE,
    HOLDFAST_QUEUE
};
enum holdfast_outcome {
    HOLDFAST_SUCCESS = 0,
    HOLDFAST_FAILURE = 1
};
enum holdfast_source {
    HOLDFAST_SOURCE_UNKNOWN = 0,
    HOLDFAST_SOURCE_DERIVED,
    HOLDFAST_SOURCE_PROVIDER
};
/* What closed a reservation. */
enum holdfast_closed {
    HOLDFAST_CLOSED_SETTLED = 1,
    HOLDFAST_CLOSED_RELEASED,
    HOLDFAST_CLOSED_EXPIRED,
    HOLDFAST_CLOSED_RETAINED,
    HOLDFAST_CLOSED_DISPUTED
};

struct holdfast_segment; /* one mapping, per process */
struct holdfast;         /* one handle, per thread */
struct holdfast_path;    /* resolved names */

/* Amounts per dimension; HOLDFAST_UNKNOWN where nothing is known or held. */
struct holdfast_amounts {
    uint64_t invocations;
    uint64_t tokens;
    uint64_t cost_micros;
};

/* ---- opening ---------------------------------------------------------------------------------------- */

/* Version of the library, as "0.1.0". */
HOLDFAST_API const char *holdfast_version(void);
/* "request-cap" for HOLDFAST_REASON_REQUEST_CAP; "" for none. Static text. */
HOLDFAST_API const char *holdfast_reason_name(int reason);
/* A sentence for a return code. Static text. */
HOLDFAST_API const char *holdfast_strerror(int result);

/* Maps an existing segment by name (or path, when it holds a '/'). System calls; thread-safe. The result is shared
 * by all threads of the process; holdfast_close() it after the last handle has left.
 * error (may be NULL) receives up to error_bytes of: what happened, why, what to do.
 * HOLDFAST_OK, _MISSING, _FOREIGN, _BUILD, _NOT_READY, _CORRUPT, _SYSTEM, _NO_MEMORY, _INVALID. */
HOLDFAST_API int holdfast_open(const char *name, struct holdfast_segment **segment, char *error,
                               size_t error_bytes) HOLDFAST_MUST_USE;
HOLDFAST_API void holdfast_close(struct holdfast_segment *segment);

/* A handle for the calling thread: one thread at a time may use it. System calls, allocates.
 * HOLDFAST_OK, _FULL, _SYSTEM, _NO_MEMORY, _INVALID. */
HOLDFAST_API int holdfast_join(struct holdfast_segment *segment, struct holdfast **handle) HOLDFAST_MUST_USE;
/* Leaves; its open reservations stay open, to be settled by id from any process. NULL is nothing to do. */
HOLDFAST_API void holdfast_leave(struct holdfast *handle);

/* ---- reserve ---------------------------------------------------------------------------------------- */

/* Start from holdfast_request_init(). Either model + input_tokens (+ max_output_tokens, economy_model), or tokens and/or
 * cost_micros (+ economy_cost_micros, economy_tokens). Nothing is kept after the call. */
struct holdfast_request {
    const char *id;     /* unique per logical request in the whole segment */
    const char *tenant; /* the four names, or path */
    const char *team;
    const char *key; /* NULL: none */
    const char *capability;
    const struct holdfast_path *path; /* from holdfast_resolve(): saves looking up the four names */
    const char *model;
    const char *economy_model;
    uint64_t input_tokens;      /* >= 0 */
    uint64_t max_output_tokens; /* >= 1; HOLDFAST_UNKNOWN: the model's longest output */
    uint64_t tokens;
    uint64_t cost_micros;
    uint64_t economy_tokens;
    uint64_t economy_cost_micros;
    uint64_t ttl_ms;         /* >= 1; HOLDFAST_UNKNOWN: the policy's */
    uint32_t want_remaining; /* 1: fill answer->remaining (costs a little) */
    uint32_t reserved0;
};

static inline void holdfast_request_init(struct holdfast_request *request)
{
    request->id = request->tenant = request->team = request->key = request->capability = NULL;
    request->path = NULL;
    request->model = request->economy_model = NULL;
    request->input_tokens = request->max_output_tokens = HOLDFAST_UNKNOWN;
    request->tokens = request->cost_micros = HOLDFAST_UNKNOWN;
    request->economy_tokens = request->economy_cost_micros = HOLDFAST_UNKNOWN;
    request->ttl_ms = HOLDFAST_UNKNOWN;
    request->want_remaining = 0;
    request->reserved0 = 0;
}

/* Answer of reserve and extend. Refused: reason and, where they apply (else -1), layer, window, dimension. */
struct holdfast_answer {
    int kind;                /* enum holdfast_kind */
    int reason;              /* enum holdfast_reason */
    int layer;               /* enum holdfast_layer or -1 */
    int window;              /* enum holdfast_window or -1 */
    int dimension;           /* enum holdfast_dimension or -1 */
    int replayed;            /* 1: the first answer again; nothing has changed */
    uint64_t retry_after_ms; /* HOLDFAST_UNKNOWN: waiting cannot help */
    struct holdfast_amounts reserved;
    uint64_t expires_at_ms; /* Unix time */
    uint64_t hold;          /* token for the closings: saves the lookup of the id; never needed */
    /* [dimension][layer]: what the layer still has in its tightest limit; HOLDFAST_NONE: no such limit. Filled
     * when the tenant is known and want_remaining was set. */
    int64_t remaining[3][4];
    int has_remaining;
    int reserved0;
};

/* Holds the worst case of a call in every bucket on its path, or in none. Lock-free, no system call, no allocation.
 * The same id with the same input again: the first answer, replayed = 1.
 * HOLDFAST_OK (kind allow or degrade), _REFUSED (kind reject; reasons invalid-request, invalid-amount, unknown-*,
 * model-limit, request-cap, amount-unknown, key-budget, team-share, tenant-total, degrade-not-cheaper,
 * id-conflict, busy, not-ready, not-built), _NOT_READY, _CORRUPT, _FORKED, _INVALID. */
HOLDFAST_API int holdfast_reserve(struct holdfast *handle, const struct holdfast_request *request,
                                  struct holdfast_answer *answer) HOLDFAST_MUST_USE;

/* Looks up names once. key may be NULL. The path belongs to the caller and may be used by any handle of the same
 * segment in this process until holdfast_path_free(). Allocates.
 * HOLDFAST_OK, _REFUSED (*reason: unknown-tenant, unknown-team, unknown-key, unknown-capability,
 * invalid-request), _NO_MEMORY, _NOT_READY, _CORRUPT, _FORKED, _INVALID. */
HOLDFAST_API int holdfast_resolve(struct holdfast *handle, const char *tenant, const char *team,
                                  const char *key, const char *capability, struct holdfast_path **path,
                                  int *reason) HOLDFAST_MUST_USE;
HOLDFAST_API void holdfast_path_free(struct holdfast_path *path);

/* ---- the life of a hold ------------------------------------------------------------------------------ */

struct holdfast_extension {
    const char *id;
    uint64_t hold;              /* token of the reserve, or 0 */
    uint64_t max_output_tokens; /* new totals; HOLDFAST_UNKNOWN: as it is */
    uint64_t tokens;
    uint64_t cost_micros;
    uint64_t ttl_ms; /* deadline = now + ttl_ms, never earlier; HOLDFAST_UNKNOWN: as it is */
    uint32_t want_remaining;
    uint32_t reserved0;
};
static inline void holdfast_extension_init(struct holdfast_extension *extension)
{
    extension->id = NULL;
    extension->hold = 0;
    extension->max_output_tokens = extension->tokens = extension->cost_micros = HOLDFAST_UNKNOWN;
    extension->ttl_ms = HOLDFAST_UNKNOWN;
    extension->want_remaining = 0;
    extension->reserved0 = 0;
}

/* Raises an open hold to new totals, all or nothing, and/or moves its deadline. Lock-free.
 * HOLDFAST_OK (answer: reserved = totals, expires_at_ms), _REFUSED (as reserve; also window-over,
 * unknown-reservation, already-closed, busy), faults as reserve. */
HOLDFAST_API int holdfast_extend(struct holdfast *handle, const struct holdfast_extension *extension,
                                 struct holdfast_answer *answer) HOLDFAST_MUST_USE;

/* Marks that the call is on its way to the provider; may be repeated. hold: token or 0. *reason (may be NULL):
 * unknown-reservation, already-closed, busy, invalid-request. Lock-free. HOLDFAST_OK, _REFUSED, faults. */
HOLDFAST_API int holdfast_dispatch(struct holdfast *handle, const char *id, uint64_t hold,
                                   int *reason) HOLDFAST_MUST_USE;

struct holdfast_usage {
    uint64_t input_tokens;
    uint64_t output_tokens;
    uint64_t cached_input_tokens;      /* part of the input; HOLDFAST_UNKNOWN: not told */
    uint64_t cache_write_input_tokens; /* likewise */
    uint64_t cost_micros;              /* the provider's bill; HOLDFAST_UNKNOWN: derived from the prices */
};
static inline void holdfast_usage_init(struct holdfast_usage *usage, uint64_t input_tokens,
                                       uint64_t output_tokens)
{
    usage->input_tokens = input_tokens;
    usage->output_tokens = output_tokens;
    usage->cached_input_tokens = usage->cache_write_input_tokens = usage->cost_micros = HOLDFAST_UNKNOWN;
}

struct holdfast_closing {
    int kind;                       /* enum holdfast_closed */
    int reason;                     /* when refused */
    struct holdfast_amounts actual; /* invocations unused; HOLDFAST_UNKNOWN: unknown */
    struct holdfast_amounts released;
    struct holdfast_amounts overage;
    int source; /* enum holdfast_source */
    int quota_exceeded;
    int late;
    int replayed;
};

/* Settles to the real usage; usage NULL: unknown, the whole hold stays charged. ref: a name or NULL. Works past the deadline
 * too (late). HOLDFAST_OK, _REFUSED (unknown-reservation, already-closed, overage, invalid-amount,
 * invalid-request, busy), faults. Lock-free. */
HOLDFAST_API int holdfast_settle(struct holdfast *handle, const char *id, uint64_t hold,
                                 const struct holdfast_usage *usage, int outcome, const char *ref,
                                 struct holdfast_closing *closing) HOLDFAST_MUST_USE;

/* Gives everything back, the invocation too: only for a call that never reached the provider.
 * HOLDFAST_OK, _REFUSED (unknown-reservation, already-dispatched, already-closed, busy), faults. Lock-free. */
HOLDFAST_API int holdfast_release(struct holdfast *handle, const char *id, uint64_t hold,
                                  struct holdfast_closing *closing) HOLDFAST_MUST_USE;

/* Closes open reservations whose deadline has passed, as their policy says; cb (may be NULL) hears of each
 * (kind: enum holdfast_closed). Looks at up to slots_max slots from where this handle stopped (0: all).
 * Lock-free. Returns how many were closed, or a negative fault. */
HOLDFAST_API int holdfast_reap(struct holdfast *handle, uint32_t slots_max,
                               void (*cb)(void *arg, const char *id, int kind), void *arg);

/* ---- looking ------------------------------------------------------------------------------------------ */

struct holdfast_limit {
    int window;
    int dimension;
    uint64_t window_start_ms;
    uint64_t window_end_ms; /* HOLDFAST_UNKNOWN: never */
    uint64_t limit;
    uint64_t credit;
    uint64_t held;    /* by open reservations */
    uint64_t settled; /* what stays charged */
    int64_t available;
};
/* The limits of one layer (team and key may be NULL, outer before inner) in the order of the checks, now.
 * held and settled are exact once the daemon has drained (holdfast_flush() first); their sum always is.
 * Returns how many were written (up to limits_max), HOLDFAST_UNKNOWN names as negative: *reason is set and the
 * result is HOLDFAST_INVALID. */
HOLDFAST_API int holdfast_limits(struct holdfast *handle, const char *tenant, const char *team,
                                 const char *key, struct holdfast_limit *limits, int limits_max, int *reason);

struct holdfast_meter {
    char tenant[64];
    char capability[64];
    char model[64]; /* "": explicit amounts */
    int64_t requests;
    int64_t failures;
    int64_t degraded;
    int64_t reserved_micros;
    int64_t settled_micros;
};
/* Calls cb for each meter (of one tenant, or of all when NULL), in no order, as of the last drain.
 * HOLDFAST_OK, or a fault; *reason: unknown-tenant with _REFUSED. */
HOLDFAST_API int holdfast_meters(struct holdfast *handle, const char *tenant,
                                 void (*cb)(void *arg, const struct holdfast_meter *meter), void *arg,
                                 int *reason);

/* ---- operators ---------------------------------------------------------------------------------------- */

/* Adds micros (negative takes back, down to zero) to the team's cost_micros limit of that window kind, for the
 * current window only. reason: 1..255 bytes; by: a name. *total: the window's credit afterwards.
 * HOLDFAST_OK, _REFUSED (*refused: unknown-tenant, unknown-team, invalid-request, invalid-amount, busy). */
HOLDFAST_API int holdfast_credit(struct holdfast *handle, const char *tenant, const char *team, int window,
                                 int64_t micros, const char *reason, const char *by, uint64_t *total,
                                 int *refused) HOLDFAST_MUST_USE;

/* Waits (system calls) until the receipt of this reservation is committed, at most timeout_ms.
 * HOLDFAST_OK, _TIMEOUT, _CONFLICT, _NOT_READY, _REFUSED (unknown-reservation). */
HOLDFAST_API int holdfast_wait_durable(struct holdfast *handle, const char *id, uint64_t hold,
                                       uint32_t timeout_ms) HOLDFAST_MUST_USE;

/* Waits (system calls) until everything done before this call is committed and published, at most timeout_ms.
 * HOLDFAST_OK, _TIMEOUT. */
HOLDFAST_API int holdfast_flush(struct holdfast *handle, uint32_t timeout_ms) HOLDFAST_MUST_USE;

/* Authority time now, Unix ms. */
HOLDFAST_API uint64_t holdfast_now_ms(const struct holdfast *handle);

#ifdef __cplusplus
}
#endif

#endif
