/* The contract of one small limit as a sequential machine, written from the contract alone, and the search for an order of the calls
 * of a history in which each answer is right (Wing and Gong, with memory of what was tried). */
#ifndef HF_HISTORY_MODEL_H
#define HF_HISTORY_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#define HISTORY_IDS          4U
#define HISTORY_OPS_MAX      60U
#define HISTORY_TENANT_LIMIT 100
#define HISTORY_TEAMS        2U /* ids with an even number are of team 0, the others of team 1 */

enum history_kind {
    HISTORY_RESERVE,
    HISTORY_EXTEND, /* to amount */
    HISTORY_DISPATCH,
    HISTORY_SETTLE, /* at amount */
    HISTORY_RELEASE,
    HISTORY_REAP,    /* as called; the checker sees the two below for each id */
    HISTORY_EXPIRE,  /* this call has closed it */
    HISTORY_LEFT,    /* at some instant of the call it was not open and due */
    HISTORY_LOOK,    /* what is used of the tenant (id 0) or of a team (id 1, 2) */
    HISTORY_ADVANCE, /* the clock, past the deadlines of what was reserved before */
    HISTORY_KINDS
};

enum history_result {
    HISTORY_DONE,  /* it took effect */
    HISTORY_AGAIN, /* a replay; dispatch and extend: nothing to do is DONE */
    HISTORY_NO,    /* refused: why is in reason */
    HISTORY_BUSY,  /* allowed while another call on the same id overlaps */
    HISTORY_LOST,  /* its process was killed: it happened at one instant before that, or never */
    HISTORY_ODD    /* an answer that is none */
};

/* Words of the contract, for the model's own use. */
enum history_reason {
    HISTORY_REASON_NONE,
    HISTORY_TEAM_SHARE,
    HISTORY_TENANT_TOTAL,
    HISTORY_UNKNOWN,
    HISTORY_CLOSED,
    HISTORY_DISPATCHED
};

struct history_op {
    uint8_t kind;
    uint8_t id;
    uint8_t result;
    uint8_t reason;
    uint8_t late;
    uint8_t exceeded; /* settle: quota_exceeded */
    uint8_t by;       /* process, for people */
    uint8_t saw_left; /* the two below are told */
    int32_t amount;   /* reserve: what; extend: total; settle: actual; look: what was seen */
    int32_t team_left;
    int32_t tenant_left;
    uint64_t begin_ns;
    uint64_t end_ns;
};

extern const int32_t history_team_limits[HISTORY_TEAMS];

/* Whether some order explains all answers. *steps: how many states the search has seen. */
bool history_check(const struct history_op *ops, uint32_t cnt, uint64_t *steps);

/* Hand-made histories, right and wrong: how many the checker judges wrongly. */
uint32_t history_selftest(void);

const char *history_kind_name(uint32_t kind);
const char *history_result_name(uint32_t result);

#endif
