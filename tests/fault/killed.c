/* Every operation, ended before each of its accesses: whoever comes next finds that it happened as a whole, or not at all, and the
 * change from one to the other is at one place. What the single steps of tests/torture do for each instruction, here for each
 * access, and on any processor. */
#include "core/reap.h"
#include "persist/retire.h"
#include "tests/fault/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool happened_before; /* at an earlier place */
static uint32_t places_all;
static int answered; /* by the one who is killed: nobody hears it */

static struct hf_shm_slot *slot_of(struct world *world)
{
    return &world->quota.seg->slots[world->slot_idx];
}

/* The daemon's look at what the dead has left. */
static void bury(struct hf_segment *seg)
{
    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        struct hf_u128 st = hf_commit_read_st(&seg->slots[i]);

        if (hf_st_state(st) == HF_STATE_FILLING || hf_st_state(st) == HF_STATE_PENDING) {
            (void)hf_retire_bury(seg, i, st);
            assert_true(hf_st_state(seg->slots[i].slot_st) != HF_STATE_PENDING);
        }
    }
}

/* Sums, W and A are right, without anybody having to do more than to come by. */
static void check_sums(struct world *world)
{
    struct hf_segment *seg = world->quota.seg;
    struct hf_u128 word;

    bury(seg);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(hf_commit_ready(seg, i, &word), HF_OK);
        assert_true(seg->tenants[i].ten_applied == hf_word_seq(word));
    }
    if (hf_test_mismatches(&world->quota) != 0) {
        print_message("killed before access %u: a bucket differs from its slots\n", world_place());
    }
    assert_int_equal(hf_test_mismatches(&world->quota), 0);
    assert_int_equal(seg->header->hdr_alarms[HF_ALARM_CORRUPT], 0);
}

static void once(bool happened)
{
    if (happened_before && !happened) {
        print_message("killed before access %u: not happened, though it had at an earlier one\n",
                      world_place());
    }
    assert_true(happened || !happened_before);
    happened_before = happened;
}

/* ---- closings ----------------------------------------------------------------------------------------------------- */

static void settle_a(struct world *world)
{
    struct holdfast_closing closing;

    (void)hf_test_settle(world->me, "a", 1, 2, 40, &closing);
}

static void release_a(struct world *world)
{
    struct holdfast_closing closing;

    answered = holdfast_release(world->me, "a", 0, &closing);
}

static void dispatch_a(struct world *world)
{
    int reason;

    answered = holdfast_dispatch(world->me, "a", 0, &reason);
}

static void extend_a(struct world *world)
{
    struct holdfast_extension extension;
    struct holdfast_answer answer;

    holdfast_extension_init(&extension);
    extension.id = "a";
    extension.tokens = 30;
    extension.cost_micros = 300;
    answered = holdfast_extend(world->me, &extension, &answer);
}

static void reap_a(struct world *world)
{
    (void)hf_reap_slot(world->quota.seg, world->slot_idx);
}

static void overdue(struct world *world)
{
    (void)hf_clock_inject(world->quota.seg, HF_TEST_NOW_MS + 2000);
}

static void expired(struct world *world)
{
    overdue(world);
    reap_a(world);
}

/* The state changed as a whole; and somebody else can close what is open still. */
static void check_closing(struct world *world)
{
    struct holdfast_closing closing;

    check_sums(world);
    struct hf_u128 st = slot_of(world)->slot_st;
    once(hf_st_seq(st) != 1000001 && hf_st_state(st) != HF_STATE_EXPIRED);
    int rc = hf_test_settle(world->other, "a", 1, 2, 50, &closing);
    assert_true(rc == HOLDFAST_OK || closing.reason == HOLDFAST_REASON_ALREADY_CLOSED);
    check_sums(world);
    assert_true(rc != HOLDFAST_OK || closing.replayed ||
                slot_of(world)->slot_claim == 0); /* a dead claim falls */
}

static void check_reap(struct world *world)
{
    check_sums(world);
    once(hf_st_state(slot_of(world)->slot_st) == HF_STATE_EXPIRED);
    reap_a(world);
    assert_int_equal(hf_st_state(slot_of(world)->slot_st), HF_STATE_EXPIRED);
    check_sums(world);
}

static void each_closing_happens_or_not(void **state)
{
    const struct killed all[] = {{NULL, settle_a, check_closing},    {NULL, release_a, check_closing},
                                 {NULL, dispatch_a, check_closing},  {NULL, extend_a, check_closing},
                                 {expired, settle_a, check_closing}, {overdue, reap_a, check_reap}};

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        happened_before = false;
        places_all += world_killed(&all[i]);
        assert_true(happened_before);
    }
}

/* ---- reserves, credits ---------------------------------------------------------------------------------------------- */

static struct holdfast_path *path;

/* With its path, so that no lock of the process's own cache is held where it ends. */
static void resolve(struct world *world)
{
    int reason;

    assert_int_equal(holdfast_resolve(world->me, "t", "u", NULL, "c", &path, &reason), HOLDFAST_OK);
}

static void reserve_r(struct world *world)
{
    struct holdfast_request request;
    struct holdfast_answer answer;

    holdfast_request_init(&request);
    request.id = "r";
    request.path = path;
    request.tokens = 7;
    request.cost_micros = 70;
    answered = holdfast_reserve(world->me, &request, &answer);
}

static void check_reserve(struct world *world)
{
    struct holdfast_answer answer;

    check_sums(world);
    assert_int_equal(hf_test_reserve(world->other, "r", "u", NULL, 7, 70, &answer), HOLDFAST_OK);
    once(answer.replayed == 1);
    check_sums(world);
    assert_int_equal(hf_test_value(&world->quota, "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS),
                     170);
    holdfast_path_free(path);
}

static void a_reserve_happens_or_not(void **state)
{
    const struct killed killed = {resolve, reserve_r, check_reserve};

    (void)state;
    happened_before = false;
    places_all += world_killed(&killed);
    assert_true(happened_before);
}

static void credit_700(struct world *world)
{
    uint64_t total;
    int refused;

    answered =
        holdfast_credit(world->me, "t", "u", HOLDFAST_WINDOW_MONTH, 700, "more", "me", &total, &refused);
}

static void check_credit(struct world *world)
{
    uint64_t total;
    int refused;

    check_sums(world);
    assert_int_equal(
        holdfast_credit(world->other, "t", "u", HOLDFAST_WINDOW_MONTH, 0, "look", "me", &total, &refused),
        HOLDFAST_OK);
    assert_true(total == 0 || total == 700);
    once(total == 700);
}

static void a_credit_happens_or_not(void **state)
{
    const struct killed killed = {NULL, credit_700, check_credit};

    (void)state;
    happened_before = false;
    places_all += world_killed(&killed);
    assert_true(happened_before);
}

/* ---- the helper dies too ------------------------------------------------------------------------------------------------ */

static enum hf_kind helped;

static void die_first(struct world *world)
{
    slot_of(world)->slot_actual_tokens = 3;
    slot_of(world)->slot_actual_cost = 40;
    slot_of(world)->slot_holds[1] = slot_of(world)->slot_holds[0];
    slot_of(world)->slot_holds[1].hold_cost = 222;
    (void)world_die_after_word(world, world->slot_idx, helped);
}

static void help(struct world *world)
{
    struct hf_u128 word;

    (void)hf_commit_ready(world->quota.seg, 0, &word);
}

static void check_helped(struct world *world)
{
    check_sums(world);
    assert_true(hf_st_seq(slot_of(world)->slot_st) == 1000002);
}

static void a_helper_may_die(void **state)
{
    const enum hf_kind kinds[] = {HF_KIND_SETTLE, HF_KIND_RELEASE, HF_KIND_EXTEND, HF_KIND_DISPATCH,
                                  HF_KIND_EXPIRE, HF_KIND_RETAIN,  HF_KIND_DISPUTE};
    const struct killed killed = {die_first, help, check_helped};

    (void)state;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        helped = kinds[i];
        places_all += world_killed(&killed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_closing_happens_or_not),
        cmocka_unit_test(a_reserve_happens_or_not),
        cmocka_unit_test(a_credit_happens_or_not),
        cmocka_unit_test(a_helper_may_die),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    printf("totals: killed before %u accesses, %d of %zu tests failed\n", places_all, failed,
           sizeof(tests) / sizeof(tests[0]));
    return failed;
}
