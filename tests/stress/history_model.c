#include "tests/stress/history_model.h"

#include <string.h>

#define TRIED (1U << 15)

const int32_t history_team_limits[HISTORY_TEAMS] = {80, 60};

enum state {
    ABSENT,
    HELD,
    ON_ITS_WAY,
    SETTLED,
    RELEASED,
    EXPIRED,
    SETTLED_LATE
};

struct model {
    uint8_t state[HISTORY_IDS];
    uint8_t made[HISTORY_IDS]; /* clock when reserved */
    uint8_t clock;
    uint8_t pad[7];             /* the whole is hashed */
    int32_t first[HISTORY_IDS]; /* as reserved */
    int32_t hold[HISTORY_IDS];
    int32_t actual[HISTORY_IDS];
};

const char *history_kind_name(uint32_t kind)
{
    static const char *const names[HISTORY_KINDS] = {"reserve", "extend", "dispatch", "settle", "release",
                                                     "reap",    "expire", "left",     "look",   "advance"};

    return kind < HISTORY_KINDS ? names[kind] : "?";
}

const char *history_result_name(uint32_t result)
{
    static const char *const names[] = {"done", "again", "refused", "busy", "lost", "odd"};

    return result <= HISTORY_ODD ? names[result] : "?";
}

/* ---- the contract ------------------------------------------------------------------------------------------------ */

static bool open_state(uint32_t state)
{
    return state == HELD || state == ON_ITS_WAY;
}

static int32_t counts(const struct model *m, uint32_t id)
{
    uint32_t state = m->state[id];

    if (open_state(state)) {
        return m->hold[id];
    }
    return state == SETTLED || state == SETTLED_LATE ? m->actual[id] : 0;
}

static int32_t used(const struct model *m, int32_t team)
{
    int32_t sum = 0;

    for (uint32_t id = 0; id < HISTORY_IDS; id++) {
        sum += team < 0 || (int32_t)(id % HISTORY_TEAMS) == team ? counts(m, id) : 0;
    }
    return sum;
}

/* Which layer refuses this much more for the id. */
static uint32_t refuses(const struct model *m, uint32_t id, int32_t more)
{
    int32_t team = (int32_t)(id % HISTORY_TEAMS);

    if (used(m, team) + more > history_team_limits[team]) {
        return HISTORY_TEAM_SHARE;
    }
    return used(m, -1) + more > HISTORY_TENANT_LIMIT ? HISTORY_TENANT_TOTAL : HISTORY_REASON_NONE;
}

static int32_t not_below_zero(int32_t v)
{
    return v < 0 ? 0 : v;
}

/* What remains is of the same instant as the decision. */
static bool left_is(const struct model *m, const struct history_op *op, bool refused)
{
    uint32_t team = op->id % HISTORY_TEAMS;
    int32_t of_team = history_team_limits[team] - used(m, (int32_t)team);
    int32_t of_tenant = HISTORY_TENANT_LIMIT - used(m, -1);

    if (refused) {
        of_team = not_below_zero(of_team);
        of_tenant = not_below_zero(of_tenant);
    }
    return op->saw_left == 0 || (op->team_left == of_team && op->tenant_left == of_tenant);
}

static bool answered(const struct history_op *op, uint32_t result, uint32_t reason)
{
    return op->result == HISTORY_LOST || (op->result == result && op->reason == reason);
}

static bool reserve(struct model *m, const struct history_op *op)
{
    if (m->state[op->id] != ABSENT) {
        return answered(op, HISTORY_AGAIN, 0) &&
               (op->result == HISTORY_LOST || op->amount == m->first[op->id]);
    }
    uint32_t layer = refuses(m, op->id, op->amount);

    if (layer != HISTORY_REASON_NONE) {
        return answered(op, HISTORY_NO, layer) && left_is(m, op, true);
    }
    m->state[op->id] = HELD;
    m->made[op->id] = m->clock;
    m->first[op->id] = m->hold[op->id] = op->amount;
    return answered(op, HISTORY_DONE, 0) && left_is(m, op, false);
}

static bool extend(struct model *m, const struct history_op *op)
{
    if (!open_state(m->state[op->id])) {
        return answered(op, HISTORY_NO, m->state[op->id] == ABSENT ? HISTORY_UNKNOWN : HISTORY_CLOSED);
    }
    if (op->amount > m->hold[op->id]) {
        uint32_t layer = refuses(m, op->id, op->amount - m->hold[op->id]);

        if (layer != HISTORY_REASON_NONE) {
            return answered(op, HISTORY_NO, layer);
        }
        m->hold[op->id] = op->amount;
    }
    return answered(op, HISTORY_DONE, 0);
}

static bool settle(struct model *m, const struct history_op *op)
{
    uint32_t state = m->state[op->id];
    bool late = state == EXPIRED || state == SETTLED_LATE;
    int32_t team = (int32_t)(op->id % HISTORY_TEAMS);

    if (state == ABSENT || state == RELEASED) {
        return answered(op, HISTORY_NO, state == ABSENT ? HISTORY_UNKNOWN : HISTORY_CLOSED);
    }
    if (state == SETTLED || state == SETTLED_LATE) {
        return m->actual[op->id] == op->amount
                   ? answered(op, HISTORY_AGAIN, 0) && (op->result == HISTORY_LOST || op->late == late)
                   : answered(op, HISTORY_NO, HISTORY_CLOSED);
    }
    m->actual[op->id] = op->amount;
    m->state[op->id] = late ? SETTLED_LATE : SETTLED;
    bool exceeded = used(m, team) > history_team_limits[team] || used(m, -1) > HISTORY_TENANT_LIMIT;

    return answered(op, HISTORY_DONE, 0) &&
           (op->result == HISTORY_LOST || (op->late == late && op->exceeded == exceeded));
}

static bool release(struct model *m, const struct history_op *op)
{
    switch (m->state[op->id]) {
    case ABSENT:
        return answered(op, HISTORY_NO, HISTORY_UNKNOWN);
    case HELD:
        m->state[op->id] = RELEASED;
        return answered(op, HISTORY_DONE, 0);
    case RELEASED:
        return answered(op, HISTORY_AGAIN, 0);
    case ON_ITS_WAY:
        return answered(op, HISTORY_NO, HISTORY_DISPATCHED);
    default:
        return answered(op, HISTORY_NO, HISTORY_CLOSED);
    }
}

static bool due(const struct model *m, uint32_t id)
{
    return open_state(m->state[id]) && m->made[id] < m->clock;
}

/* One call at one instant: false when its answer cannot be given then. */
static bool apply(struct model *m, const struct history_op *op)
{
    switch (op->kind) {
    case HISTORY_RESERVE:
        return reserve(m, op);
    case HISTORY_EXTEND:
        return extend(m, op);
    case HISTORY_DISPATCH:
        if (!open_state(m->state[op->id])) {
            return answered(op, HISTORY_NO, m->state[op->id] == ABSENT ? HISTORY_UNKNOWN : HISTORY_CLOSED);
        }
        m->state[op->id] = ON_ITS_WAY;
        return answered(op, HISTORY_DONE, 0);
    case HISTORY_SETTLE:
        return settle(m, op);
    case HISTORY_RELEASE:
        return release(m, op);
    case HISTORY_EXPIRE:
        if (!due(m, op->id)) {
            return false;
        }
        m->state[op->id] = EXPIRED;
        return true;
    case HISTORY_LEFT:
        return !due(m, op->id);
    case HISTORY_LOOK:
        return used(m, (int32_t)op->id - 1) == op->amount;
    case HISTORY_ADVANCE:
        m->clock = 1;
        return true;
    default:
        return false;
    }
}

/* ---- the search --------------------------------------------------------------------------------------------------- */

struct tried {
    uint64_t round;
    uint64_t done;
    struct model model;
};

struct search {
    const struct history_op *ops;
    uint32_t cnt;
    uint64_t required; /* bits of the calls that were answered */
    uint64_t round;
    uint64_t steps;
};

static struct tried tried_[TRIED]; /* of one thread */

static uint64_t hash_of(uint64_t done, const struct model *m)
{
    uint64_t words[sizeof(*m) / 8];
    uint64_t h = done * UINT64_C(0x9e3779b97f4a7c15);

    memcpy(words, m, sizeof(words));
    for (uint32_t i = 0; i < sizeof(*m) / 8; i++) {
        h = (h ^ words[i]) * UINT64_C(0xbf58476d1ce4e5b9);
        h ^= h >> 29;
    }
    return h;
}

/* True when these calls were already found to lead nowhere from this state. A full table forgets. */
static bool seen(struct search *search, uint64_t done, const struct model *m)
{
    struct tried *at = &tried_[hash_of(done, m) & (TRIED - 1)];

    if (at->round == search->round && at->done == done && memcmp(&at->model, m, sizeof(*m)) == 0) {
        return true;
    }
    *at = (struct tried){search->round, done, *m};
    return false;
}

/* A call may come next when no other one, still to come and answered, had ended before it began. */
static bool may_be_next(const struct search *search, uint64_t done, uint32_t i)
{
    for (uint64_t left = search->required & ~done; left != 0; left &= left - 1) {
        if (search->ops[__builtin_ctzll(left)].end_ns < search->ops[i].begin_ns) {
            return false;
        }
    }
    return true;
}

/* No deeper than HISTORY_OPS_MAX. NOLINTNEXTLINE(misc-no-recursion) */
static bool search_from(struct search *search, uint64_t done, const struct model *m)
{
    search->steps++;
    if ((done & search->required) == search->required) {
        return true;
    }
    for (uint32_t i = 0; i < search->cnt; i++) {
        struct model next = *m;

        if ((done >> i & 1U) == 0 && may_be_next(search, done, i) && apply(&next, &search->ops[i]) &&
            !seen(search, done | UINT64_C(1) << i, &next) &&
            search_from(search, done | UINT64_C(1) << i, &next)) {
            return true;
        }
    }
    return false;
}

/* A busy answer needs another call on that id at the same time. */
static bool busy_is_right(const struct history_op *ops, uint32_t cnt, uint32_t i)
{
    for (uint32_t j = 0; j < cnt; j++) {
        if (j != i && ops[j].by != ops[i].by && ops[j].id == ops[i].id && ops[j].kind != HISTORY_LOOK &&
            ops[j].kind != HISTORY_ADVANCE && ops[j].begin_ns <= ops[i].end_ns &&
            ops[j].end_ns >= ops[i].begin_ns) {
            return true;
        }
    }
    return false;
}

bool history_check(const struct history_op *ops, uint32_t cnt, uint64_t *steps)
{
    static uint64_t rounds; /* of one thread */
    struct history_op left[HISTORY_OPS_MAX];
    struct search search = {.ops = left, .round = ++rounds};
    const struct model begin = {.clock = 0};

    if (cnt > HISTORY_OPS_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < cnt; i++) {
        if (ops[i].result == HISTORY_ODD || (ops[i].result == HISTORY_BUSY && !busy_is_right(ops, cnt, i))) {
            return false;
        }
        if (ops[i].result != HISTORY_BUSY) {
            search.required |= ops[i].result == HISTORY_LOST ? 0 : UINT64_C(1) << search.cnt;
            left[search.cnt++] = ops[i];
        }
    }
    bool right = search_from(&search, 0, &begin);

    *steps += search.steps;
    return right;
}

/* ---- hand-made histories ------------------------------------------------------------------------------------------- */

static struct history_op op(uint8_t kind, uint8_t id, int32_t amount, uint8_t result, uint8_t reason,
                            uint64_t begin_ns, uint64_t end_ns)
{
    return (struct history_op){.kind = kind,
                               .id = id,
                               .amount = amount,
                               .result = result,
                               .reason = reason,
                               .by = (uint8_t)begin_ns,
                               .begin_ns = begin_ns,
                               .end_ns = end_ns};
}

static uint32_t judged(bool right, const struct history_op *ops, uint32_t cnt)
{
    uint64_t steps = 0;

    return history_check(ops, cnt, &steps) == right ? 0 : 1;
}

uint32_t history_selftest(void)
{
    const struct history_op refused_with_room[] = {
        op(HISTORY_RESERVE, 0, 50, HISTORY_DONE, 0, 1, 2),
        op(HISTORY_RESERVE, 2, 30, HISTORY_NO, HISTORY_TEAM_SHARE, 3, 4)};
    const struct history_op refused_once[] = {
        op(HISTORY_RESERVE, 0, 50, HISTORY_DONE, 0, 1, 2), op(HISTORY_RELEASE, 0, 0, HISTORY_DONE, 0, 3, 9),
        op(HISTORY_RESERVE, 2, 40, HISTORY_NO, HISTORY_TEAM_SHARE, 4, 5)};
    const struct history_op refused_too_late[] = {
        op(HISTORY_RESERVE, 0, 50, HISTORY_DONE, 0, 1, 2), op(HISTORY_RELEASE, 0, 0, HISTORY_DONE, 0, 3, 4),
        op(HISTORY_RESERVE, 2, 40, HISTORY_NO, HISTORY_TEAM_SHARE, 5, 6)};
    const struct history_op oversold[] = {op(HISTORY_RESERVE, 0, 60, HISTORY_DONE, 0, 1, 9),
                                          op(HISTORY_RESERVE, 1, 50, HISTORY_DONE, 0, 2, 8)};
    const struct history_op settled_twice[] = {op(HISTORY_RESERVE, 0, 50, HISTORY_DONE, 0, 1, 2),
                                               op(HISTORY_SETTLE, 0, 20, HISTORY_DONE, 0, 3, 8),
                                               op(HISTORY_SETTLE, 0, 30, HISTORY_DONE, 0, 4, 9)};
    const struct history_op stale_look[] = {op(HISTORY_RESERVE, 0, 50, HISTORY_DONE, 0, 1, 2),
                                            op(HISTORY_LOOK, 0, 0, HISTORY_DONE, 0, 3, 4)};
    const struct history_op lost_and_seen[] = {op(HISTORY_RESERVE, 0, 50, HISTORY_LOST, 0, 1, 4),
                                               op(HISTORY_LOOK, 0, 50, HISTORY_DONE, 0, 5, 6)};
    const struct history_op lost_and_not_seen[] = {op(HISTORY_RESERVE, 0, 50, HISTORY_LOST, 0, 1, 4),
                                                   op(HISTORY_LOOK, 0, 0, HISTORY_DONE, 0, 5, 6)};
    const struct history_op lost_and_half_seen[] = {op(HISTORY_RESERVE, 0, 50, HISTORY_LOST, 0, 1, 4),
                                                    op(HISTORY_LOOK, 0, 50, HISTORY_DONE, 0, 5, 6),
                                                    op(HISTORY_LOOK, 1, 0, HISTORY_DONE, 0, 7, 8)};
    const struct history_op reaped_early[] = {op(HISTORY_RESERVE, 0, 50, HISTORY_DONE, 0, 1, 2),
                                              op(HISTORY_EXPIRE, 0, 0, HISTORY_DONE, 0, 3, 4),
                                              op(HISTORY_ADVANCE, 0, 0, HISTORY_DONE, 0, 5, 6)};
    const struct history_op busy_alone[] = {op(HISTORY_RESERVE, 0, 50, HISTORY_BUSY, 0, 1, 2)};

#define JUDGED(right, ops) judged(right, ops, sizeof(ops) / sizeof((ops)[0]))
    return JUDGED(false, refused_with_room) + JUDGED(true, refused_once) + JUDGED(false, refused_too_late) +
           JUDGED(false, oversold) + JUDGED(false, settled_twice) + JUDGED(false, stale_look) +
           JUDGED(true, lost_and_seen) + JUDGED(true, lost_and_not_seen) + JUDGED(false, lost_and_half_seen) +
           JUDGED(false, reaped_early) + JUDGED(false, busy_alone);
}
