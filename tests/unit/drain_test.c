/* ctest: labels=valgrind timeout=120 */
/* Draining a private segment into a SQLite store: receipts and their effects, meters, published amounts, freeing. */
#include "core/slot.h"
#include "persist/retire.h"
#include "shm/clock.h"
#include "shm/index.h"
#include "tests/support/daemon.h"
#include "tests/support/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct hf_test_daemon daemon_;

static void reserve(const char *id, const char *team, uint64_t tokens, uint64_t cost)
{
    struct holdfast_answer answer;

    assert_int_equal(hf_test_reserve(daemon_.handle, id, team, NULL, tokens, cost, &answer), HOLDFAST_OK);
}

static void settle(const char *id, uint64_t input, uint64_t output, uint64_t cost)
{
    struct holdfast_closing closing;

    assert_int_equal(hf_test_settle(daemon_.handle, id, input, output, cost, &closing), HOLDFAST_OK);
}

static void advance(uint64_t ms)
{
    (void)hf_clock_inject(daemon_.seg, hf_clock_now_ms(daemon_.seg) + ms);
}

static int open_daemon(void **state)
{
    (void)state;
    hf_test_daemon_prepare(&daemon_, hf_test_policy(), false);
    hf_test_daemon_open(&daemon_);
    return 0;
}

static int close_daemon(void **state)
{
    (void)state;
    hf_test_daemon_close(&daemon_);
    hf_test_daemon_clean(&daemon_);
    return 0;
}

/* Sums of the effects of one id's rows. */
static void effects(const char *id, int64_t held[3], int64_t charged[3])
{
    struct hf_receipt rows[8];
    size_t cnt = hf_test_daemon_receipts(&daemon_, id, rows, 8);

    assert_in_range(cnt, 1, 8);
    memset(held, 0, 3 * sizeof(held[0]));
    memset(charged, 0, 3 * sizeof(charged[0]));
    for (size_t i = 0; i < cnt; i++) {
        held[0] += rows[i].held_invocations;
        held[1] += rows[i].held_tokens;
        held[2] += rows[i].held_cost_micros;
        charged[0] += rows[i].charged_invocations;
        charged[1] += rows[i].charged_tokens;
        charged[2] += rows[i].charged_cost_micros;
    }
}

static void expect_effects(const char *id, int64_t h0, int64_t h1, int64_t h2, int64_t c0, int64_t c1,
                           int64_t c2)
{
    int64_t held[3];
    int64_t charged[3];

    effects(id, held, charged);
    assert_int_equal(held[0], h0);
    assert_int_equal(held[1], h1);
    assert_int_equal(held[2], h2);
    assert_int_equal(charged[0], c0);
    assert_int_equal(charged[1], c1);
    assert_int_equal(charged[2], c2);
}

static void one_life_in_one_drain(void **state)
{
    struct hf_receipt rows[4];

    (void)state;
    reserve("a", "u", 100, 500);
    settle("a", 30, 20, 240);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "a", rows, 4), 2);
    assert_int_equal(rows[0].kind, HF_RECEIPT_RESERVATION);
    assert_int_equal(rows[0].hold_cost_micros, 500);
    assert_int_equal(rows[0].requested_tokens, 100);
    assert_string_equal(rows[0].tenant.bytes, "t");
    assert_string_equal(rows[0].team.bytes, "u");
    assert_string_equal(rows[0].currency.bytes, "EUR");
    assert_int_equal(rows[0].policy_revision, 1);
    assert_int_equal(rows[0].limits[hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MONTH, HF_DIM_COST)], 60000);
    assert_int_equal(rows[0].limits[hf_receipt_bucket(HF_LAYER_TENANT, HF_WINDOW_MONTH, HF_DIM_COST)],
                     100000);
    assert_int_equal(rows[0].expires_at_ms, rows[0].made_ms + 1000);
    assert_int_equal(rows[1].kind, HF_RECEIPT_SETTLEMENT);
    assert_int_equal(rows[1].reservation_seq, rows[0].seq);
    assert_memory_equal(rows[1].reservation_digest, rows[0].digest, HF_DIGEST_BYTES);
    assert_int_equal(rows[1].actual_cost_micros, 240);
    assert_int_equal(rows[1].usage_output_tokens, 20);
    assert_int_equal(rows[1].released_cost_micros, 260);
    assert_int_equal(rows[1].released_tokens, 50);
    assert_int_equal(rows[1].cost_source, HF_COST_PROVIDER);
    expect_effects("a", 0, 0, 0, 1, 50, 240);
}

static void a_life_over_several_drains(void **state)
{
    struct hf_receipt rows[4];
    struct holdfast_extension extension;
    struct holdfast_answer answer;

    (void)state;
    reserve("a", "u", 100, 500);
    hf_test_daemon_drain(&daemon_);
    holdfast_extension_init(&extension);
    extension.id = "a";
    extension.cost_micros = 700;
    assert_int_equal(holdfast_extend(daemon_.handle, &extension, &answer), HOLDFAST_OK);
    extension.cost_micros = 900;
    extension.ttl_ms = 5000;
    assert_int_equal(holdfast_extend(daemon_.handle, &extension, &answer), HOLDFAST_OK);
    hf_test_daemon_drain(&daemon_);
    settle("a", 30, 20, 240);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "a", rows, 4), 3);
    assert_int_equal(rows[1].kind, HF_RECEIPT_EXTENSION);
    assert_int_equal(rows[1].extend_calls, 2);
    assert_int_equal(rows[1].held_cost_micros, 400);
    assert_int_equal(rows[1].hold_cost_micros, 900);
    assert_int_equal(rows[1].expires_at_ms, answer.expires_at_ms);
    assert_int_equal(rows[2].reservation_seq, rows[0].seq);
    assert_memory_equal(rows[2].reservation_digest, rows[0].digest, HF_DIGEST_BYTES);
    assert_int_equal(rows[2].hold_cost_micros, 900);
    expect_effects("a", 0, 0, 0, 1, 50, 240);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "a", rows, 4), 3);
}

static void every_closing_has_its_effects(void **state)
{
    struct holdfast_closing closing;

    (void)state;
    reserve("unknown", "u", 100, 500);
    assert_int_equal(holdfast_settle(daemon_.handle, "unknown", 0, NULL, HOLDFAST_FAILURE, NULL, &closing),
                     HOLDFAST_OK);
    reserve("released", "u", 100, 500);
    assert_int_equal(holdfast_release(daemon_.handle, "released", 0, &closing), HOLDFAST_OK);
    reserve("expired", "u", 100, 500);
    reserve("expired-late", "u", 100, 500);
    reserve("retained", "v", 100, 100);
    reserve("retained-late", "v", 100, 100);
    reserve("retained-dispute", "v", 100, 100);
    reserve("dispute", "v", 100, 100);
    assert_int_equal(hf_test_settle(daemon_.handle, "dispute", 30, 20, 200, &closing), HOLDFAST_REFUSED);
    advance(2000);
    assert_int_equal(holdfast_reap(daemon_.handle, 0, NULL, NULL), 5);
    settle("expired-late", 1, 2, 333);
    settle("retained-late", 1, 2, 44);
    assert_int_equal(hf_test_settle(daemon_.handle, "retained-dispute", 30, 20, 200, &closing),
                     HOLDFAST_REFUSED);
    hf_test_daemon_drain(&daemon_);
    expect_effects("unknown", 0, 0, 0, 1, 100, 500);
    expect_effects("released", 0, 0, 0, 0, 0, 0);
    expect_effects("expired", 0, 0, 0, 1, 0, 0);
    expect_effects("expired-late", 0, 0, 0, 1, 3, 333);
    expect_effects("retained", 0, 0, 0, 1, 100, 100);
    expect_effects("retained-late", 0, 0, 0, 1, 3, 44);
    expect_effects("retained-dispute", 0, 0, 0, 1, 100, 100);
    expect_effects("dispute", 0, 0, 0, 1, 100, 100);
    assert_int_equal(daemon_.seg->header->hdr_alarms[HF_ALARM_EXPIRED], 2);
    assert_int_equal(daemon_.seg->header->hdr_alarms[HF_ALARM_RETAINED], 3);
    assert_int_equal(daemon_.seg->header->hdr_alarms[HF_ALARM_DISPUTED], 2);
}

static void late_closings_after_their_expiry_was_drained(void **state)
{
    struct hf_receipt rows[4];

    (void)state;
    reserve("e", "u", 100, 500);
    reserve("r", "v", 100, 100);
    advance(2000);
    assert_int_equal(holdfast_reap(daemon_.handle, 0, NULL, NULL), 2);
    hf_test_daemon_drain(&daemon_);
    expect_effects("e", 0, 0, 0, 1, 0, 0);
    expect_effects("r", 0, 0, 0, 1, 100, 100);
    advance(500);
    settle("e", 1, 2, 600);
    settle("r", 1, 2, 50);
    hf_test_daemon_drain(&daemon_);
    expect_effects("e", 0, 0, 0, 1, 3, 600);
    expect_effects("r", 0, 0, 0, 1, 3, 50);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "e", rows, 4), 3);
    assert_int_equal(rows[1].kind, HF_RECEIPT_EXPIRY);
    assert_int_equal(rows[2].kind, HF_RECEIPT_LATE);
    assert_int_equal(rows[2].late, 1);
    assert_int_equal(rows[2].overage_cost_micros, 100);
    assert_int_equal(daemon_.seg->header->hdr_alarms[HF_ALARM_OVERAGE], 1);
}

static void meters_follow_the_contract(void **state)
{
    struct holdfast_meter meter;
    struct holdfast_closing closing;
    struct holdfast_request request;
    struct holdfast_answer answer;

    (void)state;
    reserve("a", "u", 100, 500);
    settle("a", 30, 20, 240);
    reserve("b", "u", 100, 500);
    assert_int_equal(holdfast_settle(daemon_.handle, "b", 0, NULL, HOLDFAST_FAILURE, NULL, &closing),
                     HOLDFAST_OK);
    reserve("c", "u", 100, 500);
    assert_int_equal(holdfast_release(daemon_.handle, "c", 0, &closing), HOLDFAST_OK);
    reserve("d", "u", 100, 500);
    holdfast_request_init(&request);
    request.id = "m";
    request.tenant = "t";
    request.team = "u";
    request.capability = "c";
    request.model = "m";
    request.input_tokens = 10;
    request.max_output_tokens = 20;
    assert_int_equal(holdfast_reserve(daemon_.handle, &request, &answer), HOLDFAST_OK);
    hf_test_daemon_drain(&daemon_);
    assert_true(hf_test_daemon_meter(&daemon_, "t", "c", "", &meter));
    assert_int_equal(meter.requests, 3);
    assert_int_equal(meter.failures, 1);
    assert_int_equal(meter.reserved_micros, 1500);
    assert_int_equal(meter.settled_micros, 740);
    assert_true(hf_test_daemon_meter(&daemon_, "t", "c", "m", &meter));
    assert_int_equal(meter.requests, 1);
    assert_int_equal(meter.reserved_micros, 50);
    advance(2000);
    assert_int_equal(holdfast_reap(daemon_.handle, 0, NULL, NULL), 2);
    settle("d", 1, 1, 7);
    hf_test_daemon_drain(&daemon_);
    assert_true(hf_test_daemon_meter(&daemon_, "t", "c", "", &meter));
    assert_int_equal(meter.requests, 3);
    assert_int_equal(meter.failures, 1);
    assert_int_equal(meter.reserved_micros, 1000);
    assert_int_equal(meter.settled_micros, 747);
    assert_false(hf_test_daemon_meter(&daemon_, "z", "c", "", &meter));
}

static void what_is_settled_is_published(void **state)
{
    struct holdfast_limit limit;

    (void)state;
    reserve("a", "u", 100, 500);
    settle("a", 30, 20, 240);
    reserve("b", "u", 100, 1000);
    hf_test_daemon_drain(&daemon_);
    limit = hf_test_daemon_limit(&daemon_, "t", "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS);
    assert_int_equal(limit.settled, 240);
    assert_int_equal(limit.held, 1000);
    limit = hf_test_daemon_limit(&daemon_, "t", NULL, NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS);
    assert_int_equal(limit.settled, 240);
    assert_int_equal(limit.held, 1000);
    limit = hf_test_daemon_limit(&daemon_, "t", "u", NULL, HOLDFAST_WINDOW_MINUTE, HOLDFAST_INVOCATIONS);
    assert_int_equal(limit.settled, 1);
    assert_int_equal(limit.held, 1);
    /* The next minute: its window starts anew, and closings of the old one leave it alone. */
    advance(60000);
    reserve("c", "u", 10, 100);
    settle("b", 1, 1, 20);
    hf_test_daemon_drain(&daemon_);
    limit = hf_test_daemon_limit(&daemon_, "t", "u", NULL, HOLDFAST_WINDOW_MINUTE, HOLDFAST_INVOCATIONS);
    assert_int_equal(limit.settled, 0);
    assert_int_equal(limit.held, 1);
    limit = hf_test_daemon_limit(&daemon_, "t", "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS);
    assert_int_equal(limit.settled, 260);
    assert_int_equal(limit.held, 100);
}

static void credits_have_receipts(void **state)
{
    uint64_t total;
    int refused;

    (void)state;
    assert_int_equal(holdfast_credit(daemon_.handle, "t", "u", HOLDFAST_WINDOW_MONTH, 700, "sale", "eve",
                                     &total, &refused),
                     HOLDFAST_OK);
    assert_int_equal(holdfast_credit(daemon_.handle, "t", "u", HOLDFAST_WINDOW_MONTH, -1000, "over", "eve",
                                     &total, &refused),
                     HOLDFAST_OK);
    hf_test_daemon_drain(&daemon_);
    struct hf_store_totals totals = hf_test_daemon_totals(&daemon_);

    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_CREDIT], 2);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_EPOCH], 1);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_POLICY], 1);
    hf_test_daemon_drain(&daemon_);
    for (uint32_t i = 0; i < daemon_.seg->slots_cnt; i++) {
        assert_int_equal(hf_st_state(daemon_.seg->slots[i].slot_st), HF_STATE_FREE);
    }
}

static bool known(const char *id)
{
    uint32_t slot_idx;
    struct hf_u128 st;

    return hf_index_find(daemon_.seg, hf_index_hash(daemon_.seg, id, (uint32_t)strlen(id)), id,
                         (uint32_t)strlen(id), hf_clock_now_ms(daemon_.seg), &slot_idx,
                         &st) == HF_INDEX_FOUND;
}

static uint32_t used(void)
{
    uint32_t cnt = 0;

    for (uint32_t i = 0; i < daemon_.seg->slots_cnt; i++) {
        cnt += hf_st_state(daemon_.seg->slots[i].slot_st) != HF_STATE_FREE;
    }
    return cnt;
}

static void slots_are_freed_after_their_horizon(void **state)
{
    struct holdfast_answer answer;

    (void)state;
    reserve("settled", "u", 100, 500);
    settle("settled", 1, 1, 10);
    reserve("expired", "u", 100, 500);
    advance(2000);
    assert_int_equal(holdfast_reap(daemon_.handle, 0, NULL, NULL), 1);
    reserve("open", "w", 1, 1);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(used(), 3);
    advance(59999 - 2000);
    hf_test_daemon_drain(&daemon_);
    assert_true(known("settled"));
    assert_int_equal(used(), 3);
    advance(1);
    hf_test_daemon_drain(&daemon_);
    assert_false(known("settled"));
    assert_true(known("expired"));
    assert_true(known("open"));
    assert_int_equal(used(), 2);
    /* A late settle closes it anew: it is known for the replay horizon from there. */
    settle("expired", 1, 1, 10);
    advance(60000);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(used(), 1);
    assert_int_equal(daemon_.seg->header->hdr_alarms[HF_ALARM_FORGOTTEN], 0);
    /* The freed slots are filled again, under the same ids too: the store is the fence. */
    assert_int_equal(hf_test_reserve(daemon_.handle, "settled", "u", NULL, 100, 500, &answer), HOLDFAST_OK);
    assert_int_equal(answer.replayed, 0);
}

static void a_second_reservation_of_an_id_is_a_conflict(void **state)
{
    struct hf_receipt rows[4];
    struct holdfast_meter before;
    struct holdfast_meter after;

    (void)state;
    reserve("a", "u", 100, 500);
    settle("a", 1, 1, 10);
    hf_test_daemon_drain(&daemon_);
    assert_true(hf_test_daemon_meter(&daemon_, "t", "c", "", &before));
    advance(60000);
    hf_test_daemon_drain(&daemon_);
    reserve("a", "u", 50, 300);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(holdfast_wait_durable(daemon_.handle, "a", 0, 0), HOLDFAST_CONFLICT);
    settle("a", 2, 2, 70);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "a", rows, 4), 4);
    assert_false(rows[0].conflict);
    assert_true(rows[2].conflict);
    assert_true(rows[3].conflict);
    assert_int_equal(rows[3].reservation_seq, rows[2].seq);
    assert_true(hf_test_daemon_meter(&daemon_, "t", "c", "", &after));
    assert_int_equal(after.requests, before.requests);
    assert_int_equal(after.reserved_micros, before.reserved_micros);
    assert_int_equal(after.settled_micros, before.settled_micros);
    assert_int_equal(daemon_.seg->header->hdr_alarms[HF_ALARM_CONFLICT], 1);
    /* Its amounts count in the buckets. */
    struct holdfast_limit limit =
        hf_test_daemon_limit(&daemon_, "t", "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS);
    assert_int_equal(limit.settled, 80);
    assert_int_equal(limit.held, 0);
}

static void the_longest_closed_go_when_slots_run_short(void **state)
{
    uint32_t slots = daemon_.seg->slots_cnt;
    char id[32];

    (void)state;
    for (uint32_t i = 0; i < slots - slots / 8; i++) {
        (void)snprintf(id, sizeof(id), "n%u", i);
        reserve(id, "w", 1, 1);
        settle(id, 1, 0, 1);
        advance(1);
    }
    assert_int_equal(used(), slots - slots / 8);
    hf_test_daemon_drain(&daemon_);
    assert_true(slots - used() >= slots / 4);
    assert_false(known("n0"));
    (void)snprintf(id, sizeof(id), "n%u", slots - slots / 8 - 1);
    assert_true(known(id));
    assert_int_equal(daemon_.seg->header->hdr_alarms[HF_ALARM_FORGOTTEN], slots - slots / 8 - used());
}

static void limits_raise_their_alarms_once_a_window(void **state)
{
    const uint64_t *alarms = daemon_.seg->header->hdr_alarms;

    (void)state;
    for (int i = 0; i < 4; i++) {
        char id[8];

        (void)snprintf(id, sizeof(id), "t%d", i);
        reserve(id, "u", 200, 10);
    }
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(alarms[HF_ALARM_LIMIT_80], 1);
    assert_int_equal(alarms[HF_ALARM_LIMIT_100], 0);
    reserve("t4", "u", 200, 10);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(alarms[HF_ALARM_LIMIT_80], 1);
    assert_int_equal(alarms[HF_ALARM_LIMIT_100], 1);
    assert_int_equal(alarms[HF_ALARM_BELOW_ZERO], 0);
    settle("t4", 200, 1, 10);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(alarms[HF_ALARM_BELOW_ZERO], 1);
    assert_non_null(strstr(daemon_.log, "tokens of the minute stands at 1001 of 1000 (below zero)"));
    advance(60000);
    reserve("u0", "u", 900, 10);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(alarms[HF_ALARM_LIMIT_80], 2);
}

/* A freeing that was killed after each of its steps is finished by the next sweep. */
static void a_half_freed_slot_is_freed_by_the_next_daemon(void **state)
{
    uint32_t slot_idx = 0;
    struct hf_u128 st;

    (void)state;
    reserve("a", "u", 100, 500);
    settle("a", 1, 1, 10);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_index_find(daemon_.seg, hf_index_hash(daemon_.seg, "a", 1), "a", 1,
                                   hf_clock_now_ms(daemon_.seg), &slot_idx, &st),
                     HF_INDEX_FOUND);
    struct hf_shm_slot *slot = &daemon_.seg->slots[slot_idx];

    /* Claimed by a daemon that is dead, unlinked, not yet abandoned. */
    slot->slot_claim = hf_ref_make(15, 77);
    assert_true(hf_index_remove(daemon_.seg, slot->slot_id_hash, slot_idx));
    assert_false(known("a"));
    advance(60000);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_st_state(slot->slot_st), HF_STATE_FREE);
    assert_int_equal(slot->slot_claim, 0);

    /* Abandoned, and still to be made FREE. */
    slot->slot_st = hf_st_make(0, 0, HF_STATE_ABANDONED, 0, hf_st_gen(slot->slot_st));
    hf_drain_look_at_all(hf_serve_drain(daemon_.serve));
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_st_state(slot->slot_st), HF_STATE_FREE);
    reserve("a", "u", 100, 500);
}

/* A live claimant keeps its slot; a closing that was on its way is not lost. */
static void a_claimed_slot_is_not_freed(void **state)
{
    uint32_t slot_idx = 0;
    struct hf_u128 st;

    (void)state;
    reserve("a", "u", 100, 500);
    settle("a", 1, 1, 10);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_index_find(daemon_.seg, hf_index_hash(daemon_.seg, "a", 1), "a", 1,
                                   hf_clock_now_ms(daemon_.seg), &slot_idx, &st),
                     HF_INDEX_FOUND);
    struct hf_shm_slot *slot = &daemon_.seg->slots[slot_idx];

    slot->slot_claim = daemon_.handle->owner.ref;
    advance(60000);
    assert_int_equal(hf_serve_cycle(daemon_.serve), HF_DRAIN_IDLE);
    assert_int_equal(hf_st_state(slot->slot_st), HF_STATE_SETTLED);
    slot->slot_claim = 0;
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_st_state(slot->slot_st), HF_STATE_FREE);
}

/* No dirty mark, as if the committer had died before it set one: the sweep finds it. */
static void a_lost_mark_is_found_by_the_sweep(void **state)
{
    struct hf_receipt rows[4];

    (void)state;
    hf_test_daemon_drain(&daemon_);
    hf_test_daemon_drain(&daemon_);
    reserve("a", "u", 100, 500);
    for (uint32_t i = 0; i < daemon_.seg->chunks_cnt; i++) {
        (void)hf_chunk_take_marks(daemon_.seg, i);
    }
    uint64_t mono_ms = hf_clock_mono_fine_ms();

    for (int i = 0; i < 10; i++) { /* a second in steps of 100 ms */
        (void)hf_drain_cycle(hf_serve_drain(daemon_.serve), mono_ms += 100);
    }
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "a", rows, 4), 1);
}

/* A daemon killed between FREE and the free bit, of a chunk that a living process held: once that one lets go, nobody dies and
 * no daemon starts. */
static void a_free_slot_without_its_bit_is_found_by_the_sweep(void **state)
{
    struct hf_shm_chunk *chunk = &daemon_.seg->chunks[daemon_.seg->chunks_cnt - 1U];
    uint64_t mono_ms = hf_clock_mono_fine_ms();

    (void)state;
    for (int i = 0; i < 30; i++) { /* what a new daemon looks at is behind it */
        (void)hf_drain_cycle(hf_serve_drain(daemon_.serve), mono_ms += 100);
    }
    assert_int_equal(chunk->chunk_owner, 0);
    assert_true((chunk->chunk_free & 4U) != 0);
    chunk->chunk_free &= ~UINT64_C(4);
    for (int i = 0; i < 100; i++) {
        (void)hf_drain_cycle(hf_serve_drain(daemon_.serve), mono_ms += 100);
    }
    assert_true((chunk->chunk_free & 4U) != 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_daemon, close_daemon)
    const struct CMUnitTest tests[] = {
        CASE(one_life_in_one_drain),
        CASE(a_life_over_several_drains),
        CASE(every_closing_has_its_effects),
        CASE(late_closings_after_their_expiry_was_drained),
        CASE(meters_follow_the_contract),
        CASE(what_is_settled_is_published),
        CASE(credits_have_receipts),
        CASE(slots_are_freed_after_their_horizon),
        CASE(a_second_reservation_of_an_id_is_a_conflict),
        CASE(the_longest_closed_go_when_slots_run_short),
        CASE(limits_raise_their_alarms_once_a_window),
        CASE(a_half_freed_slot_is_freed_by_the_next_daemon),
        CASE(a_claimed_slot_is_not_freed),
        CASE(a_lost_mark_is_found_by_the_sweep),
        CASE(a_free_slot_without_its_bit_is_found_by_the_sweep),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
