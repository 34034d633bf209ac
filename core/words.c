/* The words of the contract for numbers of the public header. */
#include "core/include/holdfast.h"

const char *holdfast_reason_name(int reason)
{
    static const char *const names[HOLDFAST_REASON_CNT] = {
        [HOLDFAST_REASON_NONE] = "",
        [HOLDFAST_REASON_INVALID_REQUEST] = "invalid-request",
        [HOLDFAST_REASON_INVALID_AMOUNT] = "invalid-amount",
        [HOLDFAST_REASON_UNKNOWN_TENANT] = "unknown-tenant",
        [HOLDFAST_REASON_UNKNOWN_TEAM] = "unknown-team",
        [HOLDFAST_REASON_UNKNOWN_KEY] = "unknown-key",
        [HOLDFAST_REASON_UNKNOWN_CAPABILITY] = "unknown-capability",
        [HOLDFAST_REASON_UNKNOWN_MODEL] = "unknown-model",
        [HOLDFAST_REASON_MODEL_LIMIT] = "model-limit",
        [HOLDFAST_REASON_REQUEST_CAP] = "request-cap",
        [HOLDFAST_REASON_AMOUNT_UNKNOWN] = "amount-unknown",
        [HOLDFAST_REASON_KEY_BUDGET] = "key-budget",
        [HOLDFAST_REASON_TEAM_SHARE] = "team-share",
        [HOLDFAST_REASON_TENANT_TOTAL] = "tenant-total",
        [HOLDFAST_REASON_DEGRADE_NOT_CHEAPER] = "degrade-not-cheaper",
        [HOLDFAST_REASON_QUEUE_FULL] = "queue-full",
        [HOLDFAST_REASON_QUEUE_EXPIRED] = "queue-expired",
        [HOLDFAST_REASON_UNKNOWN_TICKET] = "unknown-ticket",
        [HOLDFAST_REASON_ID_CONFLICT] = "id-conflict",
        [HOLDFAST_REASON_BUSY] = "busy",
        [HOLDFAST_REASON_NOT_READY] = "not-ready",
        [HOLDFAST_REASON_WINDOW_OVER] = "window-over",
        [HOLDFAST_REASON_UNKNOWN_RESERVATION] = "unknown-reservation",
        [HOLDFAST_REASON_ALREADY_CLOSED] = "already-closed",
        [HOLDFAST_REASON_ALREADY_DISPATCHED] = "already-dispatched",
        [HOLDFAST_REASON_OVERAGE] = "overage",
        [HOLDFAST_REASON_STILL_OPEN] = "still-open",
        [HOLDFAST_REASON_INVALID_POLICY] = "invalid-policy",
        [HOLDFAST_REASON_NOT_BUILT] = "not-built",
    };
    return reason >= 0 && reason < HOLDFAST_REASON_CNT ? names[reason] : "?";
}

const char *holdfast_strerror(int result)
{
    switch (result) {
    case HOLDFAST_OK:
        return "done";
    case HOLDFAST_REFUSED:
        return "refused: the answer says why";
    case HOLDFAST_TIMEOUT:
        return "not committed in time: the daemon is behind or gone";
    case HOLDFAST_CONFLICT:
        return "the store has another reservation under this id";
    case HOLDFAST_INVALID:
        return "invalid argument: a NULL or a handle of another segment was passed";
    case HOLDFAST_SYSTEM:
        return "a system call failed: see errno and the message of holdfast_open";
    case HOLDFAST_MISSING:
        return "no segment of that name: start holdfastd first";
    case HOLDFAST_FOREIGN:
        return "the segment's file belongs to somebody else or is no regular file: check owner, group and mode";
    case HOLDFAST_BUILD:
        return "the segment was made by another build of holdfast: restart all of it with one build";
    case HOLDFAST_NOT_READY:
        return "the segment is being built, superseded or gone: open it again later";
    case HOLDFAST_CORRUPT:
        return "the segment holds an impossible value: stop its users and run `holdfast recover`";
    case HOLDFAST_FULL:
        return "no place for another process in the segment: start holdfastd with more owners";
    case HOLDFAST_FORKED:
        return "this handle belongs to the parent process: join again in the child";
    case HOLDFAST_NO_MEMORY:
        return "out of memory";
    default:
        return "unknown result";
    }
}
