/* What the daemon does with a slot after the commit of its receipts, without a store; and the oracle, which has its figures
 * from what passed through here. */
#include "bench/world_impl.h"

#include "shm/chunk.h"
#include "shm/clock.h"
#include "shm/commit.h"
#include "shm/index.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- accounts ----------------------------------------------------------------------------------------------------------- */

static uint64_t amount(uint64_t actual, uint64_t held)
{
    uint64_t charged = actual == HF_SHM_UNKNOWN ? held : actual;

    return charged == HF_SHM_UNKNOWN ? 0 : charged;
}

void hf_world_charge(struct hf_world_account *account, uint32_t kind, uint32_t window, uint32_t dim,
                     uint64_t by)
{
    if (window > account->windows[kind]) {
        memset(account->values[kind], 0, sizeof(account->values[kind]));
        account->windows[kind] = window;
    }
    account->values[kind][dim] += window == account->windows[kind] ? by : 0;
}

/* Charges what a slot in this state counts for to each bucket of its path. */
static void charge_slot(const struct hf_segment *seg, const struct hf_shm_slot *slot, struct hf_u128 st,
                        struct hf_world_account *accounts)
{
    enum hf_state state = hf_st_state(st);
    const struct hf_shm_hold *hold = &slot->slot_holds[hf_st_ordinal(st) & 1U];
    uint64_t by[HF_SHM_DIMS] = {0};

    /* relaxed, all of this function: E13 orders what the slot says, and nobody else closes or fills it meanwhile. */
    if (state != HF_STATE_RELEASED) {
        bool settled = state == HF_STATE_SETTLED;
        uint64_t tokens = hf_load_rlx_u64(&hold->hold_tokens); /* relaxed: E13 */
        uint64_t cost = hf_load_rlx_u64(&hold->hold_cost);     /* relaxed: E13 */

        by[0] = 1;
        by[1] =
            amount(settled ? hf_load_rlx_u64(&slot->slot_actual_tokens) : tokens, tokens); /* relaxed: E13 */
        by[2] = amount(settled ? hf_load_rlx_u64(&slot->slot_actual_cost) : cost, cost);   /* relaxed: E13 */
    }
    for (uint64_t mask = hf_load_rlx_u64(&slot->slot_mask); mask != 0; mask &= mask - 1) { /* relaxed: E13 */
        struct hf_commit_bit bit = hf_commit_bit((uint32_t)__builtin_ctzll(mask));
        uint32_t row = hf_load_rlx_u32(&slot->slot_rows[bit.layer]); /* relaxed: E13 */
        uint32_t window =
            bit.window < 4 ? hf_load_rlx_u32(&slot->slot_windows[bit.window]) : 0; /* relaxed: E13 */

        if (row < seg->rows_cnt) {
            hf_world_charge(&accounts[row], bit.window, window, bit.dimension, by[bit.dimension]);
        }
    }
}

/* ---- draining ------------------------------------------------------------------------------------------------------------ */

/* A closed slot, as after the commit of its receipts: out of the index, out of W, free. */
static bool drain_slot(struct hf_world *world, uint32_t slot_idx)
{
    struct hf_segment *seg = &world->map;
    struct hf_shm_slot *slot = &seg->slots[slot_idx];
    struct hf_u128 st = hf_commit_read_st(slot); /* E13 */

    if (hf_st_state(st) != HF_STATE_SETTLED && hf_st_state(st) != HF_STATE_RELEASED) {
        return false; /* still open: its closing marks it again */
    }
    if (hf_commit_detach(seg, slot->slot_tenant, slot_idx, st, &world->word_seqs[slot->slot_tenant]) !=
            HF_OK ||
        !hf_index_remove(seg, slot->slot_id_hash, slot_idx)) {
        return false; /* the oracle tells */
    }
    /* relaxed: one writer. */
    hf_store_rlx_u64(
        &slot->slot_persisted,
        hf_persisted_make(hf_st_gen(st), hf_st_ordinal(st), HF_PERSISTED_RESERVATION | HF_PERSISTED_CLOSING));
    charge_slot(seg, slot, st, world->accounts);
    struct hf_u128 gone = hf_st_make(hf_st_seq(st), 0, HF_STATE_FREE, hf_st_time_ms(st), hf_st_gen(st));
    if (!hf_cas_acqrel_u128(&slot->slot_st, st, gone)) {
        return false;
    }
    hf_chunk_freed(seg, slot_idx);
    return true;
}

void hf_world_pulse(struct hf_world *world)
{
    struct hf_shm_header *header = world->map.header;
    uint64_t now_ms = hf_clock_mono_fine_ms();

    hf_store_rlx_u64(&header->hdr_durable_ms, now_ms); /* relaxed: gauges */
    hf_store_rlx_u64(&header->hdr_heartbeat_ms, now_ms);
}

uint32_t hf_world_drain(struct hf_world *world, uint64_t owner_ref)
{
    struct hf_segment *seg = &world->map;
    uint32_t freed = 0;

    for (uint32_t chunk = 0; chunk < seg->chunks_cnt; chunk++) {
        /* relaxed: a hint. */
        if (owner_ref != 0 && hf_load_rlx_u64(&seg->chunks[chunk].chunk_home) != owner_ref) {
            continue;
        }
        for (uint64_t bits = hf_chunk_take_marks(seg, chunk); bits != 0; bits &= bits - 1) { /* E9 */
            freed += drain_slot(world, (chunk << seg->chunk_shift) + (uint32_t)__builtin_ctzll(bits));
        }
    }
    hf_add_acqrel_u64(&world->drained.cnt, freed);
    hf_world_pulse(world);
    return freed;
}

void hf_world_drain_loop(struct hf_world *world)
{
    const struct timespec pause = {.tv_nsec = 1000000}; /* about a cycle of the daemon */

    while (hf_load_acq_u32(&world->stop) == 0) {
        (void)hf_world_drain(world, 0);
        (void)nanosleep(&pause, NULL);
    }
    hf_store_rel_u32(&world->stop, 0);
}

void hf_world_drain_stop(struct hf_world *world)
{
    hf_store_rel_u32(&world->stop, 1);
}

void hf_world_wait_room(const struct hf_world *world, uint32_t cnt)
{
    const struct timespec pause = {.tv_nsec = 100000};
    /* Up to a chunk of each worker may be held, with slots free in it that nobody else can take. */
    uint64_t room = world->map.slots_cnt - (uint64_t)world->plan.workers * world->map.chunk_slots;

    while (hf_load_acq_u64(&world->admitted.cnt) + cnt > hf_load_acq_u64(&world->drained.cnt) + room) {
        (void)nanosleep(&pause, NULL);
    }
}

/* ---- the oracle ---------------------------------------------------------------------------------------------------------- */

void hf_world_admitted(struct hf_world *world, uint64_t cnt)
{
    hf_add_acqrel_u64(&world->admitted.cnt, cnt);
}

uint64_t hf_world_drained_cnt(const struct hf_world *world)
{
    return hf_load_acq_u64(&world->drained.cnt);
}

static uint64_t wrong_buckets(const struct hf_segment *seg, const struct hf_world_account *accounts)
{
    uint64_t wrong = 0;

    for (uint32_t row = 0; row < seg->rows_cnt; row++) {
        for (uint32_t kind = 0; kind < HF_SHM_WINDOWS; kind++) {
            for (uint32_t dim = 0; dim < HF_SHM_DIMS; dim++) {
                struct hf_u128 bucket =
                    hf_commit_read_bucket(&seg->rows[row].row_buckets[kind][dim]); /* E12 */
                uint64_t value = accounts[row].values[kind][dim];

                wrong += hf_bucket_value(bucket) != value;
                wrong += value != 0 && hf_bucket_window(bucket) != accounts[row].windows[kind];
            }
        }
    }
    return wrong;
}

uint64_t hf_world_mismatches(struct hf_world *world)
{
    struct hf_segment *seg = &world->map;
    struct hf_world_account *accounts = malloc(world->accounts_bytes);
    uint64_t wrong = 0;
    uint64_t open = 0;

    if (accounts == NULL) {
        return UINT64_MAX;
    }
    (void)hf_world_drain(world, 0);
    memcpy(accounts, world->accounts, world->accounts_bytes);
    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        struct hf_u128 st = hf_commit_read_st(&seg->slots[i]); /* E13 */

        if (hf_st_state(st) == HF_STATE_HELD || hf_st_state(st) == HF_STATE_DISPATCHED) {
            charge_slot(seg, &seg->slots[i], st, accounts);
            open++;
        } else {
            wrong += hf_st_state(st) != HF_STATE_FREE; /* lost */
        }
    }
    wrong += wrong_buckets(seg, accounts);
    wrong += hf_load_acq_u64(&world->admitted.cnt) != hf_load_acq_u64(&world->drained.cnt) + open;
    free(accounts);
    return wrong;
}
