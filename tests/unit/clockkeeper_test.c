/* ctest: timeout=120 */
/* The store's clock steps back and forward by seconds and hours, is asked while processes stand still, or does not answer: what
 * the segment's clock, windows and deadlines make of it. The readings are made up; monotonic time is theirs, too, so that a minute
 * costs none. */
#include "persist/clockkeeper.h"

#include "core/window.h"
#include "persist/store_impl.h"
#include "shm/clock.h"
#include "tests/support/daemon.h"
#include "tests/support/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BASE_MS   UINT64_C(1900000000000) /* later than any clock here; 40 s into a minute */
#define SECOND_MS UINT64_C(1000)
#define MINUTE_MS UINT64_C(60000)
#define HOUR_MS   UINT64_C(3600000)

static const struct hf_log silent = {0};

/* ---- readings ---------------------------------------------------------------------------------------------------- */

struct world {
    struct hf_segment seg;
    struct hf_clockkeeper keeper;
    uint64_t mono_ms; /* of the next reading */
    uint64_t real_ms; /* what a store's clock without faults shows then */
};

static int make_world(void **state)
{
    static const struct hf_segment_plan plan = {.slots = 64,
                                                .owners = 4,
                                                .tenants = 1,
                                                .rows = 1,
                                                .names = 1,
                                                .prices = 1,
                                                .policy_bytes = 64,
                                                .group = (gid_t)-1};
    struct world *world = calloc(1, sizeof(*world));

    if (world == NULL || hf_segment_create_anonymous(&plan, &world->seg, NULL) != HF_OK) {
        free(world);
        return -1;
    }
    world->mono_ms = SECOND_MS;
    world->real_ms = BASE_MS;
    *state = world;
    return 0;
}

static int drop_world(void **state)
{
    struct world *world = *state;

    hf_segment_detach(&world->seg);
    free(world);
    return 0;
}

static void pass(struct world *world, uint64_t ms)
{
    world->mono_ms += ms;
    world->real_ms += ms;
}

/* A reading of a store's clock that is off by off_ms. */
static bool read_off(struct world *world, int64_t off_ms, uint64_t uncertainty_ms)
{
    struct hf_store_time time = {.now_us = (uint64_t)((int64_t)world->real_ms + off_ms) * 1000U,
                                 .mono_ns = world->mono_ms * 1000000U,
                                 .uncertainty_ns = uncertainty_ms * 1000000U};

    return hf_clockkeeper_take(&world->keeper, &world->seg, &time, &silent);
}

static uint64_t alarms(const struct world *world)
{
    return world->seg.header->hdr_alarms[HF_ALARM_CLOCK_JUMP];
}

/* How far the publication is ahead of the clock without faults. */
static int64_t published_off(const struct world *world)
{
    struct hf_clock_published pub;

    assert_true(hf_clock_published(&world->seg, &pub));
    return (int64_t)(pub.time_ms + (world->mono_ms - pub.mono_ms)) - (int64_t)world->real_ms;
}

static void a_step_forward_is_taken_when_it_has_held_a_minute(void **state)
{
    static const uint64_t steps_ms[] = {SECOND_MS, 30 * SECOND_MS, HOUR_MS, 31 * 24 * HOUR_MS};
    struct world *world = *state;
    int64_t off = 0;

    assert_true(read_off(world, 0, 1));
    for (unsigned i = 0; i < sizeof(steps_ms) / sizeof(steps_ms[0]); i++) {
        int64_t before = off;

        off += (int64_t)steps_ms[i];
        for (unsigned s = 0; s < 60; s++) {
            pass(world, SECOND_MS);
            assert_false(read_off(world, off, 1));
            assert_int_equal(published_off(world), before);
        }
        assert_int_equal(alarms(world), i + 1);
        pass(world, SECOND_MS);
        assert_true(read_off(world, off, 1));
        assert_int_equal(published_off(world), off);
        assert_int_equal(alarms(world), i + 1);
    }
}

/* An hour ahead for 59 s and then a month: the month has not held a minute. */
static void a_step_that_changes_begins_its_minute_anew(void **state)
{
    struct world *world = *state;

    assert_true(read_off(world, 0, 1));
    for (unsigned s = 0; s < 59; s++) {
        pass(world, SECOND_MS);
        assert_false(read_off(world, (int64_t)HOUR_MS, 1));
    }
    for (unsigned s = 0; s < 60; s++) {
        pass(world, SECOND_MS);
        assert_false(read_off(world, (int64_t)(31 * 24 * HOUR_MS), 1));
        assert_int_equal(published_off(world), 0);
    }
    assert_int_equal(alarms(world), 2);
    /* And one that went away again was none. */
    pass(world, SECOND_MS);
    assert_true(read_off(world, 0, 1));
    assert_int_equal(published_off(world), 0);
}

static void what_drift_and_uncertainty_explain_is_no_step(void **state)
{
    struct world *world = *state;

    assert_true(read_off(world, 0, 1));
    for (unsigned s = 0; s < 100;
         s++) { /* 500 parts in a million, up to what a second's readings leave open */
        pass(world, SECOND_MS);
        assert_true(read_off(world, s / 2, 1));
    }
    pass(world, SECOND_MS);
    assert_true(read_off(world, 50 + 80, 90)); /* a slow answer */
    assert_true(read_off(world, 50, 1));
    /* The store was away for 4 hours, in which the clocks went 7 s apart. */
    pass(world, 4 * HOUR_MS);
    assert_true(read_off(world, 50 + 7000, 1));
    assert_int_equal(published_off(world), 50 + 7000);
    assert_int_equal(alarms(world), 0);
}

/* Shows nothing earlier than before, and goes on when real time has caught up. */
static void a_step_back_holds_the_clock(void **state)
{
    static const int64_t steps_ms[] = {-2000, -30000, -3600000, -86400000};
    struct world *world = *state;

    /* By the real monotonic clock here, for the sake of hf_clock_now_ms(). */
    world->mono_ms = hf_clock_mono_fine_ms();
    assert_true(read_off(world, 0, 1));
    for (unsigned i = 0; i < sizeof(steps_ms) / sizeof(steps_ms[0]); i++) {
        uint64_t shown = hf_clock_now_ms(&world->seg);

        assert_true(read_off(world, steps_ms[i], 1));
        assert_true(read_off(world, steps_ms[i], 1)); /* said once */
        uint64_t held = hf_clock_now_ms(&world->seg);

        assert_true(held >= shown);
        assert_true(held < BASE_MS + MINUTE_MS);
        assert_int_equal(hf_clock_now_ms(&world->seg),
                         held); /* it stands, except for the first step of 2 s */
        assert_int_equal(alarms(world), i + 1);
        /* Its time is set right, which is a step forward to what is published. */
        world->keeper = (struct hf_clockkeeper){0};
        world->seg.header->clk_seq = 0;
        world->mono_ms = hf_clock_mono_fine_ms();
        world->real_ms = held;
        assert_true(read_off(world, 0, 1));
    }
}

/* Back by an hour and forward again: nothing is early, nothing goes back, and after a minute all is as before. */
static void back_and_forward_again(void **state)
{
    struct world *world = *state;

    assert_true(read_off(world, 0, 1));
    pass(world, SECOND_MS);
    assert_true(read_off(world, -(int64_t)HOUR_MS, 1));
    uint64_t held = world->seg.header->clk_hold_ms;

    for (unsigned s = 0; s < 60; s++) {
        pass(world, SECOND_MS);
        assert_false(read_off(world, 0, 1));
    }
    pass(world, SECOND_MS);
    assert_true(read_off(world, 0, 1));
    assert_int_equal(published_off(world), 0);
    assert_true(world->seg.header->clk_hold_ms >= held);
    assert_int_equal(alarms(world), 2);
}

/* Stopped for an hour while it asked: the reading says nothing that is not known better. */
static void a_vague_reading_moves_nothing(void **state)
{
    struct world *world = *state;

    assert_true(read_off(world, 0, 1));
    pass(world, HOUR_MS);
    assert_false(read_off(world, (int64_t)HOUR_MS / 2, HOUR_MS / 2));
    assert_false(read_off(world, -(int64_t)HOUR_MS / 2, HOUR_MS / 2));
    assert_int_equal(published_off(world), 0);
    assert_int_equal(alarms(world), 0);
    assert_true(read_off(world, 0, 1));
    /* A store that answers slowly every time is asked for long enough until its answer says more than drift leaves. */
    pass(world, SECOND_MS);
    assert_false(read_off(world, 300, 400));
    pass(world, 500 * SECOND_MS);
    assert_true(read_off(world, 300, 400));
}

/* The first reading is taken whatever it says; one beyond the calendar never. */
static void the_first_reading(void **state)
{
    struct world *world = *state;

    assert_false(read_off(world, (int64_t)(HF_CLOCK_MS_MAX + 1U - BASE_MS), 1));
    assert_int_equal(hf_clock_now_ms(&world->seg), 0);
    assert_true(read_off(world, 0, 20000));
    assert_int_equal(published_off(world), 0);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static enum hf_store_status answer_now;
static uint32_t asked_cnt;

static bool always_connected(const struct hf_store *store)
{
    (void)store;
    return true;
}

static enum hf_store_status tell_time(struct hf_store *store, struct hf_store_time *time,
                                      struct hf_store_error *error)
{
    (void)store;
    (void)error;
    asked_cnt++;
    *time = (struct hf_store_time){
        .now_us = BASE_MS * 1000U, .mono_ns = hf_clock_mono_ns(), .uncertainty_ns = 1000};
    return answer_now;
}

/* A store that lets a connection wait for 5 s must not be asked at every step: reaping would never have its turn. */
static void a_silent_store_is_asked_less_often(void **state)
{
    static const struct hf_store_ops ops = {.connected = always_connected, .now = tell_time};
    struct world *world = *state;
    struct hf_store store = {.ops = &ops};
    uint64_t mono = hf_clock_mono_fine_ms();

    asked_cnt = 0;
    answer_now = HF_STORE_OK;
    hf_clockkeeper_step(&world->keeper, &world->seg, &store, mono, &silent);
    hf_clockkeeper_step(&world->keeper, &world->seg, &store, mono + 999, &silent);
    assert_int_equal(asked_cnt, 1);
    assert_true(hf_clock_now_ms(&world->seg) >= BASE_MS - 1U); /* rounded down */
    answer_now = HF_STORE_RETRY;
    hf_clockkeeper_step(&world->keeper, &world->seg, &store, mono + 1000, &silent);
    assert_int_equal(asked_cnt, 2);
    hf_clockkeeper_step(&world->keeper, &world->seg, &store, mono + HF_CLOCK_RETRY_MS - 1U, &silent);
    assert_int_equal(asked_cnt, 2);
    hf_clockkeeper_step(&world->keeper, &world->seg, &store, mono + 10 * MINUTE_MS, &silent);
    assert_int_equal(asked_cnt, 3);
}

/* ---- windows and deadlines --------------------------------------------------------------------------------------- */

static struct hf_test_daemon daemon_;

static int open_daemon(void **state)
{
    (void)state;
    hf_test_daemon_prepare(&daemon_, hf_test_policy(), true);
    daemon_.options.injected = false;
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

static bool tell(struct hf_clockkeeper *keeper, uint64_t store_ms, uint64_t later_ms)
{
    struct hf_store_time time = {.now_us = store_ms * 1000U,
                                 .mono_ns = (hf_clock_mono_fine_ms() + later_ms) * 1000000U,
                                 .uncertainty_ns = 1000};

    return hf_clockkeeper_take(keeper, daemon_.seg, &time, &silent);
}

/* The time passes: not a step, but what a daemon would have published by then. */
static void go_on_at(uint64_t store_ms)
{
    hf_clock_publish(daemon_.seg, store_ms, hf_clock_mono_fine_ms(), 1);
}

static void use_up(const char *id)
{
    struct holdfast_answer answer;
    struct holdfast_closing closing;

    assert_int_equal(hf_test_reserve(daemon_.handle, id, "u", NULL, 1000, 1, &answer), HOLDFAST_OK);
    assert_int_equal(hf_test_settle(daemon_.handle, id, 1000, 0, 1, &closing), HOLDFAST_OK);
}

static void expect_used_up(const char *id)
{
    struct holdfast_answer answer;

    assert_int_equal(hf_test_reserve(daemon_.handle, id, "u", NULL, 100, 1, &answer), HOLDFAST_REFUSED);
    assert_int_equal(answer.reason, HOLDFAST_REASON_TEAM_SHARE);
    assert_int_equal(answer.window, HOLDFAST_WINDOW_MINUTE);
    assert_in_range(answer.retry_after_ms, 1, MINUTE_MS);
}

static void minutes_stay_used_up(void **state)
{
    const uint64_t twelve_five = BASE_MS + 20 * SECOND_MS; /* a full minute */
    struct hf_clockkeeper keeper = {0};

    (void)state;
    go_on_at(twelve_five - 30 * SECOND_MS);
    use_up("a");
    expect_used_up("b");
    go_on_at(twelve_five + 2 * SECOND_MS);
    use_up("c");
    assert_true(tell(&keeper, twelve_five - 8 * SECOND_MS, 0)); /* 10 s back, into the minute before */
    expect_used_up("d");
    assert_true(tell(&keeper, twelve_five - HOUR_MS, 0)); /* an hour back */
    expect_used_up("e");
    assert_false(tell(&keeper, twelve_five + HOUR_MS, 0)); /* an hour forward */
    expect_used_up("f");
    assert_true(tell(&keeper, twelve_five - 8 * SECOND_MS + SECOND_MS - HOUR_MS, 0)); /* and back */
    expect_used_up("g");
    hf_test_daemon_drain(&daemon_);
    struct holdfast_limit limit =
        hf_test_daemon_limit(&daemon_, "t", "u", NULL, HOLDFAST_WINDOW_MINUTE, HOLDFAST_TOKENS);

    assert_int_equal(limit.held + limit.settled, 1000);
}

/* Neither a step back nor one forward that is taken makes a hold expire, or live on. */
static void deadlines_do_not_move(void **state)
{
    struct hf_clockkeeper keeper = {0};
    struct holdfast_request request;
    struct holdfast_answer answer;

    (void)state;
    go_on_at(BASE_MS);
    holdfast_request_init(&request);
    request.id = "long";
    request.tenant = "t";
    request.team = "u";
    request.capability = "c";
    request.tokens = 1;
    request.cost_micros = 1;
    request.ttl_ms = HOUR_MS;
    assert_int_equal(holdfast_reserve(daemon_.handle, &request, &answer), HOLDFAST_OK);
    request.id = "short";
    request.ttl_ms = 1;
    assert_int_equal(holdfast_reserve(daemon_.handle, &request, &answer), HOLDFAST_OK);
    assert_false(tell(&keeper, BASE_MS + 48 * HOUR_MS, 0));
    assert_true(tell(&keeper, BASE_MS + 48 * HOUR_MS + MINUTE_MS, MINUTE_MS));
    assert_true(hf_clock_now_ms(daemon_.seg) >= BASE_MS + 48 * HOUR_MS);
    assert_true(tell(&keeper, BASE_MS - 48 * HOUR_MS, MINUTE_MS));
    uint64_t until = hf_clock_elapsed_ms(daemon_.seg) + 20;

    while (hf_clock_elapsed_ms(daemon_.seg) < until) {
    }
    assert_int_equal(holdfast_reap(daemon_.handle, 0, NULL, NULL), 1); /* the short one */
    assert_int_equal(holdfast_reap(daemon_.handle, 0, NULL, NULL), 0);
    hf_test_daemon_drain(&daemon_);
    struct hf_store_totals totals = hf_test_daemon_totals(&daemon_);

    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_EXPIRY], 1);
    assert_int_equal(totals.held[0], 1);
}

int main(void)
{
#define READING(name) cmocka_unit_test_setup_teardown(name, make_world, drop_world)
#define DAEMON(name)  cmocka_unit_test_setup_teardown(name, open_daemon, close_daemon)
    const struct CMUnitTest tests[] = {
        READING(a_step_forward_is_taken_when_it_has_held_a_minute),
        READING(a_step_that_changes_begins_its_minute_anew),
        READING(what_drift_and_uncertainty_explain_is_no_step),
        READING(a_step_back_holds_the_clock),
        READING(back_and_forward_again),
        READING(a_vague_reading_moves_nothing),
        READING(the_first_reading),
        READING(a_silent_store_is_asked_less_often),
        DAEMON(minutes_stay_used_up),
        DAEMON(deadlines_do_not_move),
    };
#undef READING
#undef DAEMON
    return cmocka_run_group_tests(tests, NULL, NULL);
}
