#include "tests/torture/step_ops.h"

#include "core/slot.h"
#include "persist/retire.h"
#include "persist/snapshot.h"
#include "shm/clock.h"
#include "shm/index.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- answers as text --------------------------------------------------------------------------------------------- */

/* The operation is through: what follows is of no interest to who steps it. */
static void begin_telling(char *answer)
{
    hf_store_rlx_u8((uint8_t *)answer, '.');
}

static void tell(char *answer, size_t bytes, int rc, const char *what, int reason)
{
    const char *how = rc == HOLDFAST_OK ? "ok " : rc == HOLDFAST_REFUSED ? "refused " : "FAULT ";

    begin_telling(answer);
    (void)snprintf(answer, bytes, "%s%s;", how, rc == HOLDFAST_OK ? what : holdfast_reason_name(reason));
}

static void tell_answer(char *answer, size_t bytes, int rc, const struct holdfast_answer *a)
{
    char what[160] = "";

    begin_telling(answer);
    if (rc == HOLDFAST_OK) {
        (void)snprintf(what, sizeof(what), "%s %" PRIu64 " %" PRIu64 " until %" PRIu64 "%s",
                       a->kind == HOLDFAST_DEGRADE ? "degrade" : "allow", a->reserved.tokens,
                       a->reserved.cost_micros, a->expires_at_ms, a->replayed != 0 ? " replayed" : "");
    }
    tell(answer, bytes, rc, what, a->reason);
}

static void tell_closing(char *answer, size_t bytes, int rc, const struct holdfast_closing *c)
{
    char what[200] = "";

    begin_telling(answer);
    if (rc == HOLDFAST_OK) {
        (void)snprintf(what, sizeof(what), "kind %d actual %" PRIx64 " %" PRIx64 " released %" PRIx64 "%s%s",
                       c->kind, c->actual.tokens, c->actual.cost_micros, c->released.cost_micros,
                       c->late != 0 ? " late" : "", c->replayed != 0 ? " replayed" : "");
    }
    tell(answer, bytes, rc, what, c->reason);
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

static void begin(struct holdfast_request *request, const char *id, const char *team, uint64_t tokens,
                  uint64_t cost)
{
    holdfast_request_init(request);
    request->id = id;
    request->tenant = "t";
    request->team = team;
    request->capability = "c";
    request->tokens = tokens;
    request->cost_micros = cost;
}

void hf_step_reserve(struct holdfast *handle, const char *id, const char *tenant, const char *team,
                     const char *key, uint64_t tokens, uint64_t cost, uint64_t ttl_ms, char *answer,
                     size_t bytes)
{
    struct holdfast_request request;
    struct holdfast_answer a;

    begin(&request, id, team, tokens, cost);
    request.tenant = tenant;
    request.key = key;
    request.ttl_ms = ttl_ms;
    int rc = holdfast_reserve(handle, &request, &a);

    tell_answer(answer, bytes, rc, &a);
}

/* What must work while a state is prepared. */
static void must(const char *answer)
{
    if (strncmp(answer, "ok ", 3) != 0) {
        (void)fprintf(stderr, "torture: a preparation was answered %s\n", answer);
        exit(2);
    }
}

static void have(struct hf_world *world, const char *id, const char *team, uint64_t tokens, uint64_t cost,
                 uint64_t ttl_ms)
{
    char answer[256];

    hf_step_reserve(world->maker, id, "t", team, strcmp(team, "u") == 0 ? "k" : NULL, tokens, cost, ttl_ms,
                    answer, sizeof(answer));
    must(answer);
}

static void settle(struct holdfast *handle, const char *id, uint64_t input, uint64_t output, uint64_t cost,
                   char *answer, size_t bytes)
{
    struct holdfast_usage usage;
    struct holdfast_closing closing;

    holdfast_usage_init(&usage, input, output);
    usage.cost_micros = cost;
    int rc = holdfast_settle(handle, id, 0, &usage, HOLDFAST_SUCCESS, "ref-1", &closing);

    tell_closing(answer, bytes, rc, &closing);
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

void hf_step_found_base(struct hf_world *world)
{
    char answer[256];

    have(world, "base", "u", 100, 400, HF_WORLD_LONG_TTL);
    /* What the survivor's handle caches is cached from the start. */
    hf_step_reserve(world->me, "mine", "t", "u", NULL, 1, 1, HF_WORLD_LONG_TTL, answer, sizeof(answer));
    must(answer);
    hf_step_reserve(world->me, "there", "z", "u", NULL, 1, 1, HF_WORLD_LONG_TTL, answer, sizeof(answer));
    must(answer);
}

void hf_step_found_open(struct hf_world *world)
{
    hf_step_found_base(world);
    have(world, "a", "u", 100, 400, HOLDFAST_UNKNOWN);
}
static void found_degraded(struct hf_world *world)
{
    hf_step_found_base(world);
    have(world, "b1", "v", 10, 300, HF_WORLD_LONG_TTL);
}
static void found_open_fail(struct hf_world *world)
{
    hf_step_found_base(world);
    have(world, "a", "v", 100, 300, HOLDFAST_UNKNOWN);
}
static void found_open_retain(struct hf_world *world)
{
    hf_step_found_base(world);
    have(world, "a", "r", 100, 400, HOLDFAST_UNKNOWN);
}
void hf_step_found_due(struct hf_world *world)
{
    hf_step_found_open(world);
    (void)hf_clock_inject(world->seg, HF_WORLD_NOW_MS + 1000);
}
static void found_due_retain(struct hf_world *world)
{
    found_open_retain(world);
    (void)hf_clock_inject(world->seg, HF_WORLD_NOW_MS + 1000);
}
static void found_expired(struct hf_world *world)
{
    hf_step_found_open(world);
    hf_world_reap(world, 1000);
}
static void found_retained(struct hf_world *world)
{
    found_open_retain(world);
    hf_world_reap(world, 1000);
}
static void found_expired_fail(struct hf_world *world)
{
    found_open_fail(world);
    hf_world_reap(world, 1000);
}
static void found_next_window(struct hf_world *world)
{
    hf_step_found_base(world);
    (void)hf_clock_inject(world->seg, HF_WORLD_NOW_MS + 60000);
}

void hf_step_chain_id(const struct hf_segment *seg, uint32_t nth, char id[16])
{
    uint32_t head = hf_index_hash(seg, "a", 1) & seg->heads_mask;

    for (uint32_t i = 0;; i++) {
        (void)snprintf(id, 16, "c%u", i);
        if ((hf_index_hash(seg, id, (uint32_t)strlen(id)) & seg->heads_mask) == head && nth-- == 0) {
            return;
        }
    }
}

static void found_chain(struct hf_world *world)
{
    char id[16];

    hf_step_found_base(world);
    for (uint32_t i = 0; i < 3; i++) {
        hf_step_chain_id(world->seg, i, id);
        have(world, id, "u", 1, 1, HF_WORLD_LONG_TTL);
    }
}

/* Closed, its receipts committed: what the daemon frees. In the middle of its chain. */
static void found_closed(struct hf_world *world)
{
    struct holdfast_closing closing;
    char id[16];

    hf_step_found_base(world);
    hf_step_chain_id(world->seg, 0, id);
    have(world, id, "u", 1, 1, HF_WORLD_LONG_TTL);
    have(world, "a", "u", 100, 400, HOLDFAST_UNKNOWN);
    hf_step_chain_id(world->seg, 1, id);
    have(world, id, "u", 1, 1, HF_WORLD_LONG_TTL);
    if (holdfast_release(world->maker, "a", 0, &closing) != HOLDFAST_OK) {
        must("no release");
    }
    hf_world_persist(world, hf_world_slot(world, "a"));
}

void hf_step_have_b(struct hf_world *world)
{
    have(world, "b", "u", 20, 30, HF_WORLD_LONG_TTL);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

void hf_step_reserve_a(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    (void)world;
    hf_step_reserve(handle, "a", "t", "u", "k", 100, 400, HOLDFAST_UNKNOWN, answer, bytes);
}
static void reserve_too_much(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    (void)world;
    hf_step_reserve(handle, "a", "t", "u", "k", 950, 400, HOLDFAST_UNKNOWN, answer, bytes);
}
/* Takes the room that `a` needs. */
static void reserve_rest(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    (void)world;
    hf_step_reserve(handle, "rest", "t", "u", NULL, 850, 10, HF_WORLD_LONG_TTL, answer, bytes);
}
static void reserve_degraded(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    struct holdfast_request request;
    struct holdfast_answer a;

    (void)world;
    begin(&request, "a", "v", 50, 400);
    request.economy_cost_micros = 250;
    request.economy_tokens = 40;
    int rc = holdfast_reserve(handle, &request, &a);

    tell_answer(answer, bytes, rc, &a);
}
void hf_step_extend_a(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    struct holdfast_extension extension;
    struct holdfast_answer a;

    (void)world;
    holdfast_extension_init(&extension);
    extension.id = "a";
    extension.tokens = 150;
    extension.cost_micros = 450;
    extension.ttl_ms = 5000;
    int rc = holdfast_extend(handle, &extension, &a);

    tell_answer(answer, bytes, rc, &a);
}
void hf_step_dispatch_a(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    int reason = 0;
    int rc = holdfast_dispatch(handle, "a", 0, &reason);

    (void)world;
    tell(answer, bytes, rc, "dispatched", reason);
}
static void settle_exact(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    (void)world;
    settle(handle, "a", 60, 40, 400, answer, bytes);
}
void hf_step_settle_a(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    (void)world;
    settle(handle, "a", 30, 20, 240, answer, bytes);
}
static void settle_above(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    (void)world;
    settle(handle, "a", 100, 100, 700, answer, bytes);
}
static void settle_unknown(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    struct holdfast_closing closing;
    int rc = holdfast_settle(handle, "a", 0, NULL, HOLDFAST_FAILURE, NULL, &closing);

    (void)world;
    tell_closing(answer, bytes, rc, &closing);
}
void hf_step_release_a(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    struct holdfast_closing closing;
    int rc = holdfast_release(handle, "a", 0, &closing);

    (void)world;
    tell_closing(answer, bytes, rc, &closing);
}
void hf_step_release_b(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    struct holdfast_closing closing;
    int rc = holdfast_release(handle, "b", 0, &closing);

    (void)world;
    tell_closing(answer, bytes, rc, &closing);
}
void hf_step_reap(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    int closed = holdfast_reap(handle, 0, NULL, NULL);

    (void)world;
    begin_telling(answer);
    (void)snprintf(answer, bytes, "%s reaped %d;", closed >= 0 ? "ok" : "FAULT", closed);
}
/* The deadline of `a` passes, and somebody reaps. */
static void expire_a(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    (void)hf_clock_inject(world->seg, HF_WORLD_NOW_MS + 1000);
    hf_step_reap(world, handle, answer, bytes);
}
static void credit(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    uint64_t total = 0;
    int refused = 0;
    char what[64];
    int rc = holdfast_credit(handle, "t", "u", HOLDFAST_WINDOW_MONTH, 500, "a reason", "somebody", &total,
                             &refused);

    (void)world;
    begin_telling(answer);
    (void)snprintf(what, sizeof(what), "total %" PRIu64, total);
    tell(answer, bytes, rc, rc == HOLDFAST_OK ? what : "", refused);
}
/* The daemon's, with this handle's reference as the daemon's. */
static void retire_a(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    struct hf_segment *seg = world->seg;
    int rc = HF_OK;

    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        struct hf_u128 st = hf_commit_read_st(&seg->slots[i]);

        if (hf_st_state(st) == HF_STATE_RELEASED) {
            rc = hf_retire_slot(seg, handle->owner.ref, i, st, world->word_seqs);
        }
    }
    begin_telling(answer);
    (void)snprintf(answer, bytes, "%s", rc == HF_OK ? "ok gone;" : "refused;");
}

void hf_step_work(struct hf_world *world, struct holdfast *handle, char *answer, size_t bytes)
{
    char part[4][128];
    struct holdfast_request request[2];
    struct holdfast_answer a[2];
    struct holdfast_closing closing[2];
    struct holdfast_usage usage;
    int rc[4];

    (void)world;
    begin(&request[0], "w1", "u", 3, 7);
    request[0].key = "k";
    request[0].ttl_ms = HF_WORLD_LONG_TTL;
    begin(&request[1], "w2", "u", 4, 9);
    holdfast_usage_init(&usage, 1, 1);
    usage.cost_micros = 5;
    rc[0] = holdfast_reserve(handle, &request[0], &a[0]);
    rc[1] = holdfast_settle(handle, "w1", 0, &usage, HOLDFAST_SUCCESS, NULL, &closing[0]);
    rc[2] = holdfast_reserve(handle, &request[1], &a[1]);
    rc[3] = holdfast_release(handle, "w2", 0, &closing[1]);
    begin_telling(answer);
    tell_answer(part[0], sizeof(part[0]), rc[0], &a[0]);
    tell_closing(part[1], sizeof(part[1]), rc[1], &closing[0]);
    tell_answer(part[2], sizeof(part[2]), rc[2], &a[1]);
    tell_closing(part[3], sizeof(part[3]), rc[3], &closing[1]);
    (void)snprintf(answer, bytes, "%s%s%s%s", part[0], part[1], part[2], part[3]);
}

const struct hf_step_op hf_step_ops[] = {
    {"reserve",
     hf_step_found_base,
     hf_step_reserve_a,
     "ok allow 100 400",
     true,
     {hf_step_reserve_a, reserve_rest, reserve_too_much}},
    {"reserve_refused",
     hf_step_found_base,
     reserve_too_much,
     "refused team-share",
     true,
     {hf_step_reserve_a, reserve_rest}},
    {"reserve_replayed",
     hf_step_found_open,
     hf_step_reserve_a,
     "ok allow 100 400",
     true,
     {hf_step_release_a, expire_a}},
    {"reserve_degraded", found_degraded, reserve_degraded, "ok degrade 40 250", true, {reserve_degraded}},
    {"extend",
     hf_step_found_open,
     hf_step_extend_a,
     "ok allow 150 450",
     true,
     {hf_step_release_a, reserve_rest, expire_a}},
    {"dispatch",
     hf_step_found_open,
     hf_step_dispatch_a,
     "ok dispatched",
     true,
     {hf_step_release_a, hf_step_settle_a, expire_a}},
    {"settle_exact",
     hf_step_found_open,
     settle_exact,
     "ok kind 1",
     true,
     {hf_step_release_a, hf_step_settle_a, expire_a, hf_step_extend_a}},
    {"settle_below",
     hf_step_found_open,
     hf_step_settle_a,
     "ok kind 1",
     true,
     {hf_step_settle_a, hf_step_dispatch_a, expire_a}},
    {"settle_above", hf_step_found_open, settle_above, "ok kind 1", true, {hf_step_release_a, reserve_rest}},
    {"settle_disputed",
     found_open_fail,
     settle_above,
     "refused overage",
     true,
     {hf_step_release_a, expire_a}},
    {"settle_unknown", hf_step_found_open, settle_unknown, "ok kind 1", true, {hf_step_settle_a, expire_a}},
    {"release",
     hf_step_found_open,
     hf_step_release_a,
     "ok kind 2",
     true,
     {hf_step_release_a, hf_step_settle_a, hf_step_dispatch_a, expire_a}},
    {"reap_release",
     hf_step_found_due,
     hf_step_reap,
     "ok reaped 1",
     true,
     {hf_step_reap, hf_step_settle_a, hf_step_release_a, hf_step_extend_a}},
    {"reap_retain", found_due_retain, hf_step_reap, "ok reaped 1", true, {hf_step_reap, hf_step_settle_a}},
    {"late_expired", found_expired, hf_step_settle_a, "ok kind 1", true, {settle_above, hf_step_release_a}},
    {"late_retained", found_retained, hf_step_settle_a, "ok kind 1", true, {settle_above}},
    {"late_disputed", found_expired_fail, settle_above, "refused overage", true, {hf_step_settle_a}},
    {"credit", hf_step_found_base, credit, "ok total 500", false, {credit, reserve_rest}},
    {"roll_over",
     found_next_window,
     hf_step_reserve_a,
     "ok allow 100 400",
     true,
     {hf_step_reserve_a, reserve_rest}},
    {"chain", found_chain, hf_step_reserve_a, "ok allow 100 400", true, {hf_step_reserve_a}},
    {"retire", found_closed, retire_a, "ok gone", true, {hf_step_reserve_a, hf_step_settle_a}},
};
const uint32_t hf_step_ops_cnt = sizeof(hf_step_ops) / sizeof(hf_step_ops[0]);
