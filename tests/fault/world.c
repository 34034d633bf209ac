#include "tests/fault/world.h"

#include "persist/retire.h"
#include "shm/fault.h"
#include "shm/index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PLACES_MOST 100000U /* accesses of one operation: more is an endless loop */

/* Every tenant has buckets of two windows. */
static const char policy[] =
    "version: 1\n"
    "currency: EUR\n"
    "prices:\n"
    "  revision: '1'\n"
    "  models:\n"
    "    - {id: m, input_micros_per_mtok: 1000000, output_micros_per_mtok: 2000000, max_output_tokens: 100}\n"
    "defaults: {ttl_ms: 1000}\n"
    "tenants:\n"
    "  - id: t\n"
    "    limits: [{window: month, cost_micros: 100000}]\n"
    "    teams:\n"
    "      - id: u\n"
    "        limits: [{window: month, cost_micros: 60000}, {window: minute, tokens: 1000, invocations: 60}]\n"
    "        capabilities: [{id: c, cap_micros: 80000, cap_tokens: 2000}]\n"
    "      - {id: w, capabilities: [{id: c, cap_micros: 80000, cap_tokens: 2000}]}\n"
    "  - id: z\n"
    "    limits: [{window: month, cost_micros: 100000}]\n"
    "    teams:\n"
    "      - id: u\n"
    "        limits: [{window: month, cost_micros: 60000}, {window: minute, tokens: 1000, invocations: 60}]\n"
    "        capabilities: [{id: c, cap_micros: 80000, cap_tokens: 2000}]\n";

/* Ids of the tests that share a chain: then a place is another access than in other worlds. The seed is drawn anew each time. */
static bool chains_meet(const struct hf_segment *seg)
{
    const char *ids[] = {"a", "b", "r", "o", "c", "d", "big", "elsewhere"};
    uint64_t seen[1024] = {0};

    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        if (seen[hf_index_hash(seg, ids[i], (uint32_t)strlen(ids[i])) & seg->heads_mask & 1023U]++ != 0) {
            return true;
        }
    }
    return false;
}

void world_make(struct world *world)
{
    struct holdfast_answer answer;

    memset(world, 0, sizeof(*world));
    hf_test_quota_make(&world->quota, policy, 64);
    while (chains_meet(world->quota.seg)) {
        hf_test_quota_free(&world->quota);
        hf_test_quota_make(&world->quota, policy, 64);
    }
    struct hf_segment *seg = world->quota.seg;
    world->word_seqs = calloc(seg->tenants_cnt, sizeof(*world->word_seqs));
    assert_non_null(world->word_seqs);
    world->me = world->quota.handles[0];
    world->other = world->quota.handles[1];
    world->daemon_ref = world->quota.handles[2]->owner.ref;
    world->gone_ref = world->quota.handles[3]->owner.ref;
    holdfast_leave(world->quota.handles[3]);
    world->quota.handles[3] = NULL;
    /* Tenant z is far behind t: what carries a sequence of t over to it is then found. */
    seg->tenants[0].ten_word = hf_word_make(1000000, HF_KIND_NONE, 0, HF_TEST_NOW_MS);
    seg->tenants[0].ten_applied = 1000000;
    assert_int_equal(hf_test_reserve(world->other, "a", "u", NULL, 10, 100, &answer), HOLDFAST_OK);
    world->slot_idx = hf_test_slot(&world->quota, "a");
}

void world_free(struct world *world)
{
    free(world->word_seqs);
    hf_test_quota_free(&world->quota);
}

bool world_forget(struct world *world, uint32_t slot_idx)
{
    struct hf_segment *seg = world->quota.seg;
    struct hf_u128 st = hf_commit_read_st(&seg->slots[slot_idx]);

    return hf_retire_slot(seg, world->daemon_ref, slot_idx, st, world->word_seqs) == HF_OK;
}

void world_refill(struct world *world, uint32_t slot_idx, const char *id, const char *tenant)
{
    struct hf_segment *seg = world->quota.seg;
    struct hf_chunks *chunks = &world->other->chunks;
    struct holdfast_request request;
    struct holdfast_answer answer;
    uint64_t bit = 1ULL << (slot_idx & (seg->chunk_slots - 1U));

    /* The slot is the only free one of the chunk at hand. */
    assert_int_equal(chunks->current, slot_idx >> seg->chunk_shift);
    uint64_t bits = chunks->free_bits;
    chunks->free_bits = bit;
    holdfast_request_init(&request);
    request.id = id;
    request.tenant = tenant;
    request.team = "u";
    request.capability = "c";
    request.tokens = 20;
    request.cost_micros = 77;
    assert_int_equal(holdfast_reserve(world->other, &request, &answer), HOLDFAST_OK);
    chunks->free_bits = bits & ~bit;
    assert_int_equal(answer.hold >> 20, slot_idx + 1U);
}

struct hf_op world_die_after_word(struct world *world, uint32_t slot_idx, enum hf_kind kind)
{
    struct hf_segment *seg = world->quota.seg;
    uint32_t tenant = seg->slots[slot_idx].slot_tenant;
    struct hf_u128 word;
    struct hf_op op;

    assert_int_equal(hf_commit_ready(seg, tenant, &word), HF_OK);
    assert_true(hf_commit_describe(seg, slot_idx, kind, hf_word_seq(word) + 1, HF_TEST_NOW_MS, &op, NULL));
    assert_true(hf_cas_acqrel_u128(&seg->tenants[tenant].ten_word, word,
                                   hf_word_make(op.seq, kind, slot_idx, HF_TEST_NOW_MS)));
    return op;
}

/* ---- between --------------------------------------------------------------------------------------------------- */

/* Of this test program: one thread, one operation at a time. */
static struct {
    struct world *world;
    void (*meanwhile)(struct world *world);
    uint32_t seen;
    uint32_t place;
} now;

static void hook(void)
{
    if (now.seen++ == now.place) {
        hf_fault_hook = NULL;
        now.meanwhile(now.world);
    }
    assert_true(now.seen < PLACES_MOST);
}

static jmp_buf gone_from_here;

static void kill_here(void)
{
    if (now.seen++ == now.place) {
        hf_fault_hook = NULL;
        longjmp(gone_from_here, 1);
    }
    assert_true(now.seen < PLACES_MOST);
}

static void act_until_killed(const struct killed *killed)
{
    if (setjmp(gone_from_here) == 0) {
        hf_fault_hook = kill_here;
        killed->act(now.world);
    }
    hf_fault_hook = NULL;
}

uint32_t world_killed(const struct killed *killed)
{
    static struct world world;

    for (uint32_t place = 0;; place++) {
        world_make(&world);
        if (killed->prepare != NULL) {
            killed->prepare(&world);
        }
        now.world = &world;
        now.seen = 0;
        now.place = place;
        act_until_killed(killed);
        bool through = now.seen <= place;
        /* Its owner entry is what the sweep leaves of the dead. */
        world.quota.seg->owners[hf_ref_index(world.me->owner.ref)].own_ref = 0;
        killed->check(&world);
        world_free(&world);
        if (through) {
            assert_true(place > 0);
            return place;
        }
    }
}

uint32_t world_place(void)
{
    return now.place;
}

uint32_t world_between(const struct between *between)
{
    for (uint32_t place = 0;; place++) {
        struct world world;

        world_make(&world);
        if (between->prepare != NULL) {
            between->prepare(&world);
        }
        now.world = &world;
        now.meanwhile = between->meanwhile;
        now.seen = 0;
        now.place = place;
        hf_fault_hook = hook;
        between->act(&world);
        hf_fault_hook = NULL;
        bool through = now.seen <= place;
        if (!through) {
            between->check(&world);
        }
        world_free(&world);
        if (through) {
            assert_true(place > 0);
            return place;
        }
    }
}
