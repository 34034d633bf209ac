/* ctest: labels=threads */
/* The id index: an id is in it once whoever inserts it, readers survive everything, damage ends every walk. */
#include "shm/chunk.h"
#include "shm/hash.h"
#include "shm/index.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NOW 1000000U

static const struct hf_segment_plan plan = {
    .slots = 256,
    .owners = 8,
    .tenants = 1,
    .rows = 1,
    .names = 1,
    .prices = 1,
    .policy_bytes = 64,
    .replay_horizon_ms = 60000,
    .late_horizon_ms = 3600000,
    .group = (gid_t)-1,
};

static int setup(void **state)
{
    struct hf_segment *seg = calloc(1, sizeof *seg);

    *state = seg;
    return seg == NULL ? -1 : hf_segment_create_anonymous(&plan, seg, NULL);
}

static int teardown(void **state)
{
    hf_segment_detach(*state);
    free(*state);
    return 0;
}

/* As reserve fills a slot: new generation, fence, fields, then PENDING. */
static void fill(struct hf_segment *seg, uint32_t hash, uint32_t idx, const char *id, uint32_t id_bytes)
{
    struct hf_shm_slot *slot = &seg->slots[idx];
    uint32_t gen = hf_st_gen(slot->slot_st) + 1U;
    struct hf_u128 st = hf_st_make(0, 0, HF_STATE_FILLING, NOW, gen);
    uint64_t words[8] = {0};

    hf_store_rlx_u64(&slot->slot_st.hi, st.hi);
    hf_store_rlx_u64(&slot->slot_st.lo, st.lo);
    hf_fence_rel();
    memcpy(words, id, id_bytes);
    for (uint32_t i = 0; i < 8; i++)
        hf_store_rlx_u64((uint64_t *)(void *)slot->slot_id + i, words[i]);
    hf_store_rlx_u8(&slot->slot_id_bytes, (uint8_t)id_bytes);
    hf_store_rlx_u32(&slot->slot_id_hash, hash);
    hf_store_rel_u64(&slot->slot_st.lo, hf_st_make(0, 0, HF_STATE_PENDING, NOW, gen).lo);
}

static void set_state(struct hf_segment *seg, uint32_t idx, enum hf_state state, uint64_t time_ms)
{
    struct hf_shm_slot *slot = &seg->slots[idx];
    struct hf_u128 st = hf_st_make(0, 0, state, time_ms, hf_st_gen(slot->slot_st));

    hf_store_rel_u64(&slot->slot_st.lo, st.lo);
    hf_store_rel_u64(&slot->slot_st.hi, st.hi);
}

static enum hf_index_result insert(struct hf_segment *seg, uint32_t hash, const char *id, uint32_t idx,
                                   uint32_t *found)
{
    struct hf_u128 st;
    uint32_t other = HF_SHM_NONE;
    uint32_t id_bytes = (uint32_t)strlen(id);

    fill(seg, hash, idx, id, id_bytes);
    enum hf_index_result result = hf_index_insert(seg, hash, id, id_bytes, NOW, idx, &other, &st);
    if (found != NULL)
        *found = other;
    return result;
}

static enum hf_index_result find(struct hf_segment *seg, uint32_t hash, const char *id, uint64_t now_ms,
                                 uint32_t *found)
{
    struct hf_u128 st;

    *found = HF_SHM_NONE;
    return hf_index_find(seg, hash, id, (uint32_t)strlen(id), now_ms, found, &st);
}

static void hash_depends_on_every_byte_and_the_seed(void **state)
{
    uint8_t bytes[64];

    (void)state;
    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37U + 5U);
    for (uint32_t cnt = 0; cnt <= 63; cnt++) {
        uint64_t hash = hf_hash_bytes(1, bytes, cnt);

        assert_int_equal(hf_hash_bytes(1, bytes, cnt), hash);
        assert_true(hf_hash_bytes(2, bytes, cnt) != hash);
        assert_true(hf_hash_bytes(1, bytes, cnt + 1) != hash);
        for (uint32_t i = 0; i < cnt; i++) {
            bytes[i] ^= 0x10U;
            assert_true(hf_hash_bytes(1, bytes, cnt) != hash);
            bytes[i] ^= 0x10U;
        }
        /* Bytes behind the end do not count. */
        bytes[cnt] ^= 0xffU;
        assert_int_equal(hf_hash_bytes(1, bytes, cnt), hash);
        bytes[cnt] ^= 0xffU;
    }
}

/* Ids as gateways make them, in as many heads as there are slots: chains as short as chance makes them. */
static void hash_spreads_counting_ids(void **state)
{
    enum {
        IDS = 65536
    };
    uint32_t *heads = calloc(IDS, sizeof *heads);
    uint32_t longest = 0;
    uint32_t empty = 0;

    (void)state;
    for (uint32_t i = 0; i < IDS; i++) {
        char id[40];
        int cnt = snprintf(id, sizeof id, "req-2026-%08u", i);
        uint64_t hash = hf_hash_bytes(42, id, (uint32_t)cnt);

        heads[(uint32_t)(hash ^ hash >> 32) % IDS]++;
    }
    for (uint32_t i = 0; i < IDS; i++) {
        longest = heads[i] > longest ? heads[i] : longest;
        empty += heads[i] == 0;
    }
    free(heads);
    assert_true(longest <= 12);
    assert_in_range(empty, IDS * 35 / 100, IDS * 39 / 100); /* 1/e */
}

static void known_states_and_horizons(void **state)
{
    struct hf_segment *seg = *state;
    const struct {
        enum hf_state state;
        uint64_t known_ms; /* 0: never, UINT64_MAX: always */
    } cases[] = {
        {HF_STATE_FREE, 0},
        {HF_STATE_FILLING, 0},
        {HF_STATE_PENDING, UINT64_MAX},
        {HF_STATE_ABANDONED, 0},
        {HF_STATE_HELD, UINT64_MAX},
        {HF_STATE_DISPATCHED, UINT64_MAX},
        {HF_STATE_SETTLED, 60000},
        {HF_STATE_RELEASED, 60000},
        {HF_STATE_EXPIRED, 3600000},
        {HF_STATE_RETAINED, 3600000},
        {HF_STATE_DISPUTED, 3600000},
        {HF_STATE_LATE, 60000},
        {HF_STATE_RESOLVED, 60000},
        {HF_STATE_CREDIT, 0},
        {HF_STATE_LIMITS, 0},
        {HF_STATE_TICKET, UINT64_MAX},
        {HF_STATE_TICKET_OUT, 0},
    };

    assert_int_equal(sizeof cases / sizeof cases[0], HF_STATE_CNT);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hf_u128 st = hf_st_make(3, 1, cases[i].state, NOW, 9);
        uint64_t known = cases[i].known_ms;

        assert_int_equal(hf_index_known(seg, st, NOW), known != 0);
        assert_int_equal(hf_index_known(seg, st, NOW - 5), known != 0); /* a clock behind the closing one */
        if (known != 0 && known != UINT64_MAX) {
            assert_true(hf_index_known(seg, st, NOW + known - 1));
            assert_false(hf_index_known(seg, st, NOW + known));
        } else {
            assert_int_equal(hf_index_known(seg, st, NOW + 400000000000ULL), known != 0);
        }
    }
    /* A state that no build makes. */
    assert_false(hf_index_known(seg, (struct hf_u128){.lo = 31U << 4, .hi = 0}, NOW));
}

static void insert_find_remove(void **state)
{
    struct hf_segment *seg = *state;
    uint32_t found;

    /* One chain for all, by the same hash. */
    assert_int_equal(find(seg, 5, "a", NOW, &found), HF_INDEX_ABSENT);
    assert_int_equal(insert(seg, 5, "a", 10, NULL), HF_INDEX_INSERTED);
    assert_int_equal(insert(seg, 5, "b", 11, NULL), HF_INDEX_INSERTED);
    assert_int_equal(insert(seg, 5, "c", 12, NULL), HF_INDEX_INSERTED);
    assert_int_equal(insert(seg, 5, "b", 13, &found), HF_INDEX_FOUND);
    assert_int_equal(found, 11);
    assert_int_equal(find(seg, 5, "a", NOW, &found), HF_INDEX_FOUND);
    assert_int_equal(found, 10);
    assert_int_equal(find(seg, 6, "a", NOW, &found), HF_INDEX_ABSENT); /* another chain */
    /* Middle, head, tail, and none. */
    assert_true(hf_index_remove(seg, 5, 11));
    assert_false(hf_index_remove(seg, 5, 11));
    assert_int_equal(find(seg, 5, "b", NOW, &found), HF_INDEX_ABSENT);
    assert_int_equal(find(seg, 5, "a", NOW, &found), HF_INDEX_FOUND);
    assert_true(hf_index_remove(seg, 5, 12));
    assert_int_equal(find(seg, 5, "c", NOW, &found), HF_INDEX_ABSENT);
    assert_true(hf_index_remove(seg, 5, 10));
    assert_int_equal(find(seg, 5, "a", NOW, &found), HF_INDEX_ABSENT);
    assert_false(hf_index_remove(seg, 5, 10));
    assert_false(hf_index_remove(seg, 5, seg->slots_cnt));
    assert_int_equal(hf_link_slot(seg->heads[5 & seg->heads_mask]), 0);
}

/* The hash of an id in chain 5, with a tag: the bits that a last link carries. */
static uint32_t tagged(uint32_t tag)
{
    return tag << 21 | 5U;
}

static bool says_last(uint64_t link)
{
    return (link & HF_LINK_LAST) != 0;
}

static void a_last_link_spares_its_slot(void **state)
{
    struct hf_segment *seg = *state;
    uint64_t *head = &seg->heads[5];
    uint32_t found;

    assert_int_equal(insert(seg, tagged(1), "a", 1, NULL), HF_INDEX_INSERTED);
    assert_true(says_last(*head));
    assert_true(hf_link_excludes(*head, tagged(2)));
    assert_false(hf_link_excludes(*head, tagged(1)));
    /* A new generation under the link stops whoever looks at the slot. */
    struct hf_u128 st = seg->slots[1].slot_st;
    seg->slots[1].slot_st.hi++;
    assert_int_equal(find(seg, tagged(2), "b", NOW, &found), HF_INDEX_ABSENT);
    assert_int_equal(find(seg, tagged(1), "c", NOW, &found), HF_INDEX_BUSY);
    assert_int_equal(insert(seg, tagged(2), "b", 2, NULL), HF_INDEX_INSERTED);
    /* Behind another one, the last link goes on saying so. */
    assert_false(says_last(*head));
    assert_true(says_last(seg->slots[2].slot_next));
    assert_int_equal(hf_link_count(seg->slots[2].slot_next), 0);
    assert_int_equal(find(seg, tagged(3), "c", NOW, &found), HF_INDEX_ABSENT);
    seg->slots[1].slot_st = st;
    assert_int_equal(find(seg, tagged(1), "a", NOW, &found), HF_INDEX_FOUND);
    assert_int_equal(found, 1);
    /* Two ids may have one tag. */
    assert_int_equal(insert(seg, tagged(1), "c", 3, NULL), HF_INDEX_INSERTED);
    assert_int_equal(insert(seg, tagged(1), "a", 4, &found), HF_INDEX_FOUND);
    assert_int_equal(found, 1);
    assert_int_equal(find(seg, tagged(2), "b", NOW, &found), HF_INDEX_FOUND);
}

static void a_link_says_last_only_where_nothing_follows(void **state)
{
    struct hf_segment *seg = *state;
    const uint64_t *head = &seg->heads[5];
    const char *const ids[] = {"a", "b", "c", "d"};
    uint32_t found;

    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(insert(seg, tagged(i), ids[i], 10 + i, NULL), HF_INDEX_INSERTED);
    /* The last one, with another one between it and the head. */
    assert_true(hf_index_remove(seg, tagged(0), 10));
    for (uint32_t i = 1; i < 4; i++)
        assert_int_equal(find(seg, tagged(i), ids[i], NOW, &found), HF_INDEX_FOUND);
    /* The one behind the head, with another one behind. */
    assert_true(hf_index_remove(seg, tagged(2), 12));
    assert_false(says_last(*head));
    assert_int_equal(find(seg, tagged(1), "b", NOW, &found), HF_INDEX_FOUND);
    assert_int_equal(find(seg, tagged(3), "d", NOW, &found), HF_INDEX_FOUND);
    /* The last one, behind the head: now the head says it, and that it has changed. */
    uint64_t before = *head;
    assert_true(hf_index_remove(seg, tagged(1), 11));
    assert_true(says_last(*head));
    assert_int_equal(hf_link_slot(*head), 13 + 1);
    assert_int_equal(hf_link_count(*head), hf_link_count(before) + 1U);
    assert_true(hf_link_excludes(*head, tagged(1)));
    assert_int_equal(find(seg, tagged(3), "d", NOW, &found), HF_INDEX_FOUND);
    /* The head before a last one. */
    assert_int_equal(insert(seg, tagged(4), "e", 14, NULL), HF_INDEX_INSERTED);
    assert_true(hf_index_remove(seg, tagged(4), 14));
    assert_true(says_last(*head));
    assert_int_equal(find(seg, tagged(3), "d", NOW, &found), HF_INDEX_FOUND);
    assert_true(hf_index_remove(seg, tagged(3), 13));
    assert_int_equal(hf_link_slot(*head), 0);
    assert_false(says_last(*head));
}

static void ids_are_compared_whole(void **state)
{
    struct hf_segment *seg = *state;
    char id[64];
    uint32_t found;

    /* 1 to 63 bytes, each a prefix of the next, one chain. */
    memset(id, 'x', sizeof id);
    for (uint32_t cnt = 1; cnt <= 63; cnt++) {
        struct hf_u128 st;

        fill(seg, 1, cnt, id, cnt);
        memset(seg->slots[cnt].slot_id + cnt, 'x', 64 - cnt); /* leavings of an earlier id */
        assert_int_equal(hf_index_insert(seg, 1, id, cnt, NOW, cnt, &found, &st), HF_INDEX_INSERTED);
    }
    for (uint32_t cnt = 1; cnt <= 63; cnt++) {
        struct hf_u128 st;

        assert_int_equal(hf_index_find(seg, 1, id, cnt, NOW, &found, &st), HF_INDEX_FOUND);
        assert_int_equal(found, cnt);
        assert_int_equal(hf_st_state(st), HF_STATE_PENDING);
        id[cnt - 1] = 'y';
        assert_int_equal(hf_index_find(seg, 1, id, cnt, NOW, &found, &st), HF_INDEX_ABSENT);
        id[cnt - 1] = 'x';
    }
    struct hf_u128 st;
    assert_int_equal(hf_index_find(seg, 1, id, 0, NOW, &found, &st), HF_INDEX_ABSENT);
    assert_int_equal(hf_index_find(seg, 1, id, 64, NOW, &found, &st), HF_INDEX_ABSENT);
    assert_int_equal(hf_index_insert(seg, 1, id, 64, NOW, 70, &found, &st), HF_INDEX_BUSY);
    assert_int_equal(hf_index_insert(seg, 1, id, 63, NOW, seg->slots_cnt, &found, &st), HF_INDEX_BUSY);
}

static void the_forgotten_are_passed_over(void **state)
{
    struct hf_segment *seg = *state;
    uint32_t found;

    assert_int_equal(insert(seg, 5, "a", 1, NULL), HF_INDEX_INSERTED);
    set_state(seg, 1, HF_STATE_SETTLED, NOW - 60000); /* forgotten just now */
    assert_int_equal(insert(seg, 5, "a", 2, NULL), HF_INDEX_INSERTED);
    set_state(seg, 2, HF_STATE_ABANDONED, NOW);
    assert_int_equal(find(seg, 5, "a", NOW, &found), HF_INDEX_ABSENT);
    assert_int_equal(find(seg, 5, "a", NOW - 1, &found), HF_INDEX_FOUND); /* still known a moment ago */
    assert_int_equal(found, 1);
    assert_int_equal(insert(seg, 5, "a", 3, NULL), HF_INDEX_INSERTED);
    assert_int_equal(find(seg, 5, "a", NOW, &found), HF_INDEX_FOUND);
    assert_int_equal(found, 3);
    set_state(seg, 3, HF_STATE_HELD, NOW);
    assert_int_equal(insert(seg, 5, "a", 4, &found), HF_INDEX_FOUND);
    assert_int_equal(found, 3);
}

static void inserting_again_closes_no_ring(void **state)
{
    struct hf_segment *seg = *state;
    struct hf_u128 st;
    uint32_t found;

    assert_int_equal(insert(seg, 5, "a", 1, NULL), HF_INDEX_INSERTED);
    assert_int_equal(insert(seg, 5, "b", 2, NULL), HF_INDEX_INSERTED);
    assert_int_equal(hf_index_insert(seg, 5, "a", 1, NOW, 1, &found, &st), HF_INDEX_INSERTED);
    assert_int_equal(find(seg, 5, "none", NOW, &found), HF_INDEX_ABSENT);
    assert_true(hf_index_remove(seg, 5, 1));
    assert_true(hf_index_remove(seg, 5, 2));
    assert_int_equal(hf_link_slot(seg->heads[5]), 0);
}

/* A reader stands on a slot that is taken out and filled again for another chain: it starts over, and does not follow
 * the other chain. Made by hand: the old link still leads to the slot. */
static void a_refilled_slot_is_noticed(void **state)
{
    struct hf_segment *seg = *state;
    uint32_t found;

    assert_int_equal(insert(seg, 5, "a", 1, NULL), HF_INDEX_INSERTED);
    assert_int_equal(insert(seg, 5, "b", 2, NULL), HF_INDEX_INSERTED);
    fill(seg, 5, 1, "z", 1); /* new generation, while the link of 2 has the old one */
    assert_int_equal(find(seg, 5, "z", NOW, &found), HF_INDEX_BUSY);
    assert_int_equal(find(seg, 5, "b", NOW, &found), HF_INDEX_FOUND);
    assert_int_equal(insert(seg, 5, "q", 3, &found), HF_INDEX_BUSY);
    assert_false(hf_index_remove(seg, 5, 1)); /* for the daemon that is damage */
    assert_int_equal(seg->header->hdr_alarms[HF_ALARM_CORRUPT], 1);
}

static void damage_ends_every_walk(void **state)
{
    struct hf_segment *seg = *state;
    uint32_t found;
    uint64_t alarms = 0;

    /* A ring. */
    assert_int_equal(insert(seg, 5, "a", 1, NULL), HF_INDEX_INSERTED);
    assert_int_equal(insert(seg, 5, "b", 2, NULL), HF_INDEX_INSERTED);
    seg->slots[1].slot_next = seg->heads[5];
    assert_int_equal(find(seg, 5, "c", NOW, &found), HF_INDEX_BUSY);
    assert_int_equal(insert(seg, 5, "d", 9, &found), HF_INDEX_BUSY);
    assert_false(hf_index_remove(seg, 5, 9));
    assert_int_equal(seg->header->hdr_alarms[HF_ALARM_CORRUPT], alarms += 3);
    /* A slot that is not there, whether or not it says that nothing follows, and of whatever id. */
    for (uint64_t low = 0; low <= 0xfffU; low++) {
        seg->heads[6] = hf_link_make(seg->slots_cnt + 1U, 0, 0) | low;
        assert_int_equal(find(seg, 6, "c", NOW, &found), HF_INDEX_BUSY);
        seg->heads[6] = hf_link_make(0xffffffU, 0, 0) | low;
        assert_int_equal(find(seg, 6, "c", NOW, &found), HF_INDEX_BUSY);
        assert_int_equal(insert(seg, 6, "c", 9, &found), HF_INDEX_BUSY);
        assert_false(hf_index_remove(seg, 6, 9));
        assert_int_equal(seg->header->hdr_alarms[HF_ALARM_CORRUPT], alarms += 4);
    }
    /* The same behind another one. */
    assert_int_equal(insert(seg, 7, "e", 11, NULL), HF_INDEX_INSERTED);
    seg->heads[7] &= ~0xfffULL;
    seg->slots[11].slot_next = hf_link_last(hf_link_make(0xffffffU, 0, 0), tagged(1));
    assert_int_equal(find(seg, 7, "c", NOW, &found), HF_INDEX_BUSY);
    assert_int_equal(insert(seg, 7, "c", 9, &found), HF_INDEX_BUSY);
    assert_int_equal(seg->header->hdr_alarms[HF_ALARM_CORRUPT], alarms + 2);
}

/* To a slot, to none, or to one that is not there; of a generation that may fit; says last or not, for any hash. */
static uint64_t random_link(const struct hf_segment *seg, unsigned *seed)
{
    uint64_t link =
        hf_link_make((uint32_t)rand_r(seed) % (seg->slots_cnt + 2), (uint32_t)rand_r(seed) % 2, 0);

    return link | ((uint32_t)rand_r(seed) & 0xfffU);
}

static void random_bytes_end_every_walk(void **state)
{
    struct hf_segment *seg = *state;
    unsigned seed = 3;
    uint32_t found;

    for (int round = 0; round < 200; round++) {
        for (uint32_t i = 0; i <= seg->heads_mask; i++)
            seg->heads[i] = random_link(seg, &seed);
        for (uint32_t i = 0; i < seg->slots_cnt; i++) {
            struct hf_shm_slot *slot = &seg->slots[i];

            slot->slot_st =
                hf_st_make(0, 0, (enum hf_state)(rand_r(&seed) % 32), NOW, (uint32_t)rand_r(&seed) % 2);
            slot->slot_next = random_link(seg, &seed);
            slot->slot_id_bytes = (uint8_t)rand_r(&seed);
            slot->slot_id_hash = i;
        }
        for (uint32_t hash = 0; hash <= seg->heads_mask; hash++) {
            struct hf_u128 st;
            bool out = hf_link_slot(seg->heads[hash]) > seg->slots_cnt;
            enum hf_index_result result = find(seg, hash, "a", NOW, &found);

            assert_true(!out || result == HF_INDEX_BUSY);
            assert_true(result != HF_INDEX_INSERTED);
            assert_true(result != HF_INDEX_FOUND || found < seg->slots_cnt);
            result = hf_index_insert(seg, hash, "a", 1, NOW, hash, &found, &st);
            assert_true(!out || result == HF_INDEX_BUSY);
            assert_true(result != HF_INDEX_ABSENT);
            (void)hf_index_remove(seg, hash, hash / 2);
        }
    }
}

/* ---- beside others --------------------------------------------------------------------------------------- */

#define THREADS    3
#define ROUNDS     6000
#define RACE_IDS   4
#define PER_WORKER 32

/* Worker w fills slots [w*PER_WORKER, ...) in turn; the daemon takes out and frees what is closed. Each id is held by at
 * most one at a time: who inserts counts itself in, who closes counts itself out before. */
struct race {
    struct hf_segment *seg;
    uint64_t holders[RACE_IDS];
    uint64_t twice;
    uint64_t inserted;
    uint64_t busy;
    uint64_t missed; /* inserted, and then not found by its own maker */
    uint64_t running;
};

struct racer {
    struct race *race;
    uint32_t number;
};

static const char *const race_ids[RACE_IDS] = {"a-first-id", "b", "an-id-of-more-than-sixteen-bytes", "d4"};

/* All ids in one chain, each with a tag of its own. */
static void race_once(struct race *race, uint32_t idx, uint32_t which)
{
    struct hf_segment *seg = race->seg;
    uint32_t hash = which << 21 | 7U;
    const char *id = race_ids[which];
    uint32_t id_bytes = (uint32_t)strlen(id);
    uint32_t found;
    struct hf_u128 st;

    fill(seg, hash, idx, id, id_bytes);
    switch (hf_index_insert(seg, hash, id, id_bytes, NOW, idx, &found, &st)) {
    case HF_INDEX_INSERTED:
        if (hf_add_acqrel_u64(&race->holders[which], 1) != 0)
            hf_add_acqrel_u64(&race->twice, 1);
        hf_add_acqrel_u64(&race->inserted, 1);
        enum hf_index_result again = hf_index_find(seg, hash, id, id_bytes, NOW, &found, &st);
        if (again == HF_INDEX_ABSENT || (again == HF_INDEX_FOUND && found != idx))
            hf_add_acqrel_u64(&race->missed, 1);
        hf_add_acqrel_u64(&race->holders[which], (uint64_t)-1);
        set_state(seg, idx, HF_STATE_ABANDONED, NOW); /* not known any more; the daemon frees it */
        break;
    case HF_INDEX_BUSY:
        hf_add_acqrel_u64(&race->busy, 1);
        set_state(seg, idx, HF_STATE_ABANDONED, NOW);
        break;
    default:
        set_state(seg, idx, HF_STATE_ABANDONED, NOW);
        break;
    }
}

static void *race_on(void *arg)
{
    struct racer *racer = arg;
    struct race *race = racer->race;
    uint32_t base = racer->number * PER_WORKER;
    unsigned seed = racer->number + 1U;

    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t idx = base + round % PER_WORKER;
        struct hf_u128 st = {0};

        do { /* until the daemon has freed it */
            st.lo = hf_load_acq_u64(&race->seg->slots[idx].slot_st.lo);
        } while (hf_st_state(st) != HF_STATE_FREE);
        race_once(race, idx, (uint32_t)rand_r(&seed) % RACE_IDS);
    }
    hf_add_acqrel_u64(&race->running, (uint64_t)-1);
    return NULL;
}

/* The daemon: abandoned slots out of the chain, then free. */
static void clean(struct race *race)
{
    for (uint32_t idx = 0; idx < THREADS * PER_WORKER; idx++) {
        struct hf_shm_slot *slot = &race->seg->slots[idx];
        struct hf_u128 st = {.lo = hf_load_acq_u64(&slot->slot_st.lo)};

        if (hf_st_state(st) != HF_STATE_ABANDONED)
            continue;
        (void)hf_index_remove(race->seg, 7, idx);
        hf_store_rel_u64(&slot->slot_st.lo, hf_st_make(0, 0, HF_STATE_FREE, 0, 0).lo);
    }
}

static void an_id_is_in_it_once_whoever_inserts_it(void **state)
{
    struct race race = {.seg = *state, .running = THREADS};
    struct racer racers[THREADS];
    pthread_t threads[THREADS];

    for (uint32_t i = 0; i < THREADS; i++) {
        racers[i] = (struct racer){.race = &race, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, race_on, &racers[i]), 0);
    }
    while (hf_load_acq_u64(&race.running) != 0)
        clean(&race);
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    clean(&race);
    assert_int_equal(race.twice, 0);
    assert_int_equal(race.missed, 0);
    assert_true(race.inserted > 0);
    assert_true(race.busy < THREADS * ROUNDS / 10);
    assert_int_equal(race.seg->header->hdr_alarms[HF_ALARM_CORRUPT], 0);
    assert_int_equal(hf_link_slot(race.seg->heads[7]), 0);
}

/* Processes are killed while they insert: the chain stays whole, and the remover gets everything out. */
static void killed_inserters_leave_a_whole_chain(void **state)
{
    struct hf_segment *seg = *state;
    struct race *race = mmap(NULL, sizeof *race, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(race, MAP_FAILED);
    race->seg = seg;
    for (uint32_t round = 0; round < 60; round++) {
        uint64_t inserted = race->inserted;
        pid_t pids[2];

        for (uint32_t i = 0; i < 2; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] == 0) {
                struct racer racer = {.race = race, .number = i};

                for (;;)
                    (void)race_on(&racer);
            }
        }
        /* They take their time to start, under an emulator above all. */
        while (hf_load_acq_u64(&race->inserted) == inserted)
            clean(race);
        for (uint32_t i = 0; i < 300 + round * 7; i++)
            clean(race);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(kill(pids[i], SIGKILL), 0);
            assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
        }
        /* As the daemon cleans behind the dead: whatever they were doing, it never happened. */
        for (uint32_t idx = 0; idx < THREADS * PER_WORKER; idx++) {
            struct hf_u128 st = seg->slots[idx].slot_st;

            if (hf_st_state(st) != HF_STATE_FREE)
                set_state(seg, idx, HF_STATE_ABANDONED, NOW);
        }
        clean(race);
        assert_int_equal(hf_link_slot(seg->heads[7]), 0);
        assert_int_equal(seg->header->hdr_alarms[HF_ALARM_CORRUPT], 0);
    }
    assert_true(race->inserted > 0);
    assert_int_equal(race->missed, 0);
    assert_int_equal(munmap(race, sizeof *race), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_depends_on_every_byte_and_the_seed),
        cmocka_unit_test(hash_spreads_counting_ids),
        cmocka_unit_test_setup_teardown(known_states_and_horizons, setup, teardown),
        cmocka_unit_test_setup_teardown(insert_find_remove, setup, teardown),
        cmocka_unit_test_setup_teardown(a_last_link_spares_its_slot, setup, teardown),
        cmocka_unit_test_setup_teardown(a_link_says_last_only_where_nothing_follows, setup, teardown),
        cmocka_unit_test_setup_teardown(ids_are_compared_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(the_forgotten_are_passed_over, setup, teardown),
        cmocka_unit_test_setup_teardown(inserting_again_closes_no_ring, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refilled_slot_is_noticed, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_ends_every_walk, setup, teardown),
        cmocka_unit_test_setup_teardown(random_bytes_end_every_walk, setup, teardown),
        cmocka_unit_test_setup_teardown(an_id_is_in_it_once_whoever_inserts_it, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_inserters_leave_a_whole_chain, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
