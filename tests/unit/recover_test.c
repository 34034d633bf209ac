/* ctest: labels=valgrind timeout=120 */
/* A segment that is lost, and made again from the store. */
#include "core/slot.h"
#include "persist/digest.h"
#include "shm/clock.h"
#include "tests/support/daemon.h"
#include "tests/support/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct hf_test_daemon daemon_;

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

/* The segment is gone, and with it the worker's handle; a new one is made at the same instant plus later_ms. */
static void lose_segment(uint64_t later_ms)
{
    uint64_t now_ms = hf_clock_now_ms(daemon_.seg);

    hf_test_daemon_close(&daemon_);
    daemon_.options.injected_ms = now_ms + later_ms;
    hf_test_daemon_open(&daemon_);
    assert_non_null(hf_serve_recovered(daemon_.serve));
}

static void write_policy(const char *text)
{
    FILE *out = fopen(daemon_.policy, "we");

    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static void reserve(const char *id, const char *team, const char *key, uint64_t tokens, uint64_t cost)
{
    struct holdfast_answer answer;

    assert_int_equal(hf_test_reserve(daemon_.handle, id, team, key, tokens, cost, &answer), HOLDFAST_OK);
}

static struct holdfast_closing settle(const char *id, uint64_t input, uint64_t output, uint64_t cost)
{
    struct holdfast_closing closing;

    assert_int_equal(hf_test_settle(daemon_.handle, id, input, output, cost, &closing), HOLDFAST_OK);
    return closing;
}

static void advance(uint64_t ms)
{
    (void)hf_clock_inject(daemon_.seg, hf_clock_now_ms(daemon_.seg) + ms);
}

static void expect_limit(const char *team, const char *key, int window, int dimension, uint64_t held,
                         uint64_t settled)
{
    struct holdfast_limit limit = hf_test_daemon_limit(&daemon_, "t", team, key, window, dimension);

    assert_int_equal(limit.held, held);
    assert_int_equal(limit.settled, settled);
}

static void open_reservations_come_back(void **state)
{
    struct holdfast_answer first;
    struct holdfast_answer answer;
    struct holdfast_extension extension;

    (void)state;
    assert_int_equal(hf_test_reserve(daemon_.handle, "a", "u", "k", 100, 500, &first), HOLDFAST_OK);
    reserve("b", "u", NULL, 50, 300);
    holdfast_extension_init(&extension);
    extension.id = "b";
    extension.cost_micros = 800;
    extension.ttl_ms = 9000;
    assert_int_equal(holdfast_extend(daemon_.handle, &extension, &answer), HOLDFAST_OK);
    reserve("c", "u", NULL, 10, 100);
    (void)settle("c", 5, 5, 40);
    hf_test_daemon_drain(&daemon_);
    lose_segment(100);
    assert_int_equal(hf_serve_recovered(daemon_.serve)->found.open_cnt, 2);
    assert_int_equal(hf_serve_recovered(daemon_.serve)->found.open_cost_micros, 1300);
    expect_limit("u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS, 1300, 40);
    expect_limit(NULL, NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS, 1300, 40);
    expect_limit("u", NULL, HOLDFAST_WINDOW_MINUTE, HOLDFAST_TOKENS, 150, 10);
    expect_limit("u", NULL, HOLDFAST_WINDOW_MINUTE, HOLDFAST_INVOCATIONS, 2, 1);
    expect_limit("u", "k", HOLDFAST_WINDOW_DAY, HOLDFAST_INVOCATIONS, 1, 0);

    /* The same request again is a replay with the first answer; another is a conflict. */
    assert_int_equal(hf_test_reserve(daemon_.handle, "a", "u", "k", 100, 500, &answer), HOLDFAST_OK);
    assert_int_equal(answer.replayed, 1);
    assert_int_equal(answer.expires_at_ms, first.expires_at_ms);
    assert_int_equal(answer.reserved.cost_micros, 500);
    assert_int_equal(hf_test_reserve(daemon_.handle, "a", "u", NULL, 100, 500, &answer), HOLDFAST_REFUSED);
    assert_int_equal(answer.reason, HOLDFAST_REASON_ID_CONFLICT);

    /* Deadlines are those of before: a's at 1000, b's at 9000 after its extension. */
    advance(900);
    assert_int_equal(holdfast_reap(daemon_.handle, 0, NULL, NULL), 1);
    (void)settle("b", 10, 10, 700);
    hf_test_daemon_drain(&daemon_);
    expect_limit("u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS, 0, 740);
    struct hf_receipt rows[4];

    assert_int_equal(hf_test_daemon_receipts(&daemon_, "b", rows, 4), 3);
    assert_int_equal(rows[2].kind, HF_RECEIPT_SETTLEMENT);
    assert_int_equal(rows[2].reservation_seq, rows[0].seq);
    assert_int_equal(rows[2].epoch, 2);
    assert_int_equal(rows[2].released_cost_micros, 100);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "a", rows, 4), 2);
}

/* More is open than the slots asked for: the segment has room for it, and says so. */
static void what_is_open_gets_its_slots(void **state)
{
    char id[16];

    (void)state;
    for (int i = 0; i < 100; i++) {
        (void)snprintf(id, sizeof id, "open-%d", i);
        reserve(id, "w", NULL, 1, 1);
    }
    hf_test_daemon_drain(&daemon_);
    daemon_.options.slots = 64;
    lose_segment(0);
    assert_int_equal(hf_serve_recovered(daemon_.serve)->found.open_cnt, 100);
    assert_true(hf_serve_recovered(daemon_.serve)->slots >= 100);
    assert_true(daemon_.seg->slots_cnt >= hf_serve_recovered(daemon_.serve)->slots); /* whole chunks */
    daemon_.options.slots = 0;
}

static void what_is_known_stays_known(void **state)
{
    struct holdfast_closing closing;
    struct holdfast_answer answer;

    (void)state;
    reserve("forgotten", "u", NULL, 1, 10);
    (void)settle("forgotten", 1, 0, 10);
    advance(61000);
    reserve("settled", "u", NULL, 100, 500);
    (void)settle("settled", 30, 20, 240);
    reserve("released", "u", NULL, 100, 500);
    assert_int_equal(holdfast_release(daemon_.handle, "released", 0, &closing), HOLDFAST_OK);
    reserve("expired", "u", NULL, 100, 500);
    reserve("retained", "v", NULL, 100, 100);
    reserve("disputed", "v", NULL, 100, 100);
    assert_int_equal(hf_test_settle(daemon_.handle, "disputed", 30, 20, 200, &closing), HOLDFAST_REFUSED);
    advance(1500);
    assert_int_equal(holdfast_reap(daemon_.handle, 0, NULL, NULL), 2);
    reserve("late", "u", NULL, 100, 500);
    advance(1500);
    assert_int_equal(holdfast_reap(daemon_.handle, 0, NULL, NULL), 1);
    (void)settle("late", 10, 10, 33);
    hf_test_daemon_drain(&daemon_);
    lose_segment(0);
    const struct hf_rebuild_found *found = &hf_serve_recovered(daemon_.serve)->found;

    assert_int_equal(found->open_cnt, 0);
    assert_int_equal(found->closed_cnt, 3);
    assert_int_equal(found->late_cnt, 3);
    closing = settle("settled", 30, 20, 240);
    assert_int_equal(closing.replayed, 1);
    assert_int_equal(closing.released.cost_micros, 260);
    assert_int_equal(hf_test_settle(daemon_.handle, "settled", 30, 20, 241, &closing), HOLDFAST_REFUSED);
    assert_int_equal(closing.reason, HOLDFAST_REASON_ALREADY_CLOSED);
    assert_int_equal(holdfast_release(daemon_.handle, "released", 0, &closing), HOLDFAST_OK);
    assert_int_equal(closing.replayed, 1);
    closing = settle("late", 10, 10, 33);
    assert_int_equal(closing.replayed, 1);
    assert_int_equal(closing.late, 1);
    assert_int_equal(hf_test_settle(daemon_.handle, "disputed", 30, 20, 200, &closing), HOLDFAST_REFUSED);
    assert_int_equal(closing.reason, HOLDFAST_REASON_OVERAGE);
    assert_int_equal(closing.replayed, 1);
    closing = settle("expired", 5, 5, 70);
    assert_int_equal(closing.late, 1);
    closing = settle("retained", 5, 5, 80);
    assert_int_equal(closing.late, 1);
    /* Forgotten by the segment, kept by the store. */
    assert_int_equal(hf_test_reserve(daemon_.handle, "forgotten", "u", NULL, 1, 10, &answer), HOLDFAST_OK);
    assert_int_equal(answer.replayed, 0);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(daemon_.seg->header->hdr_alarms[HF_ALARM_CONFLICT], 1);
    expect_limit("u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS, 10, 10 + 240 + 33 + 70);
    expect_limit("v", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS, 0, 100 + 80);
}

static void credits_and_meters_come_back(void **state)
{
    struct holdfast_meter meter;
    uint64_t total;
    int refused;

    (void)state;
    assert_int_equal(holdfast_credit(daemon_.handle, "t", "u", HOLDFAST_WINDOW_MONTH, 700, "sale", "eve",
                                     &total, &refused),
                     HOLDFAST_OK);
    assert_int_equal(
        holdfast_credit(daemon_.handle, "t", "u", HOLDFAST_WINDOW_MONTH, 50, "sale", "eve", &total, &refused),
        HOLDFAST_OK);
    reserve("a", "u", NULL, 100, 500);
    (void)settle("a", 1, 1, 20);
    hf_test_daemon_drain(&daemon_);
    lose_segment(0);
    struct holdfast_limit limit =
        hf_test_daemon_limit(&daemon_, "t", "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS);

    assert_int_equal(limit.credit, 750);
    assert_true(hf_test_daemon_meter(&daemon_, "t", "c", "", &meter));
    assert_int_equal(meter.requests, 1);
    assert_int_equal(meter.settled_micros, 20);
    /* Beyond the window the credit is gone. */
    lose_segment(UINT64_C(40) * 86400000);
    limit = hf_test_daemon_limit(&daemon_, "t", "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS);
    assert_int_equal(limit.credit, 0);
    assert_int_equal(limit.settled, 0);
}

/* Its prices are those that it was reserved under, whatever the policy says now; and its team may be gone. */
static void a_reservation_keeps_its_prices_and_its_team(void **state)
{
    struct holdfast_request request;
    struct holdfast_answer answer;
    struct holdfast_usage usage;
    struct holdfast_closing closing;

    (void)state;
    holdfast_request_init(&request);
    request.id = "m";
    request.tenant = "t";
    request.team = "u";
    request.key = "k";
    request.capability = "c";
    request.model = "m";
    request.economy_model = "mini";
    request.input_tokens = 10;
    assert_int_equal(holdfast_reserve(daemon_.handle, &request, &answer), HOLDFAST_OK);
    assert_int_equal(answer.reserved.cost_micros, 10 + 200);
    hf_test_daemon_drain(&daemon_);
    write_policy("version: 1\n"
                 "currency: EUR\n"
                 "prices:\n"
                 "  revision: '2'\n"
                 "  models: [{id: m, input_micros_per_mtok: 9000000, output_micros_per_mtok: 9000000}]\n"
                 "tenants:\n"
                 "  - id: t\n"
                 "    limits: [{window: month, cost_micros: 100000}]\n"
                 "    teams:\n"
                 "      - {id: other, capabilities: [{id: c, cap_micros: 100}]}\n");
    lose_segment(0);
    assert_int_equal(hf_serve_recovered(daemon_.serve)->policy_revision, 2);
    assert_true(hf_serve_recovered(daemon_.serve)->policy_new);
    expect_limit(NULL, NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS, 210, 0);
    assert_int_equal(holdfast_reserve(daemon_.handle, &request, &answer), HOLDFAST_OK);
    assert_int_equal(answer.replayed, 1);
    /* An extension finds a path without its team, and goes by what is left of it. */
    struct holdfast_extension extension;

    holdfast_extension_init(&extension);
    extension.id = "m";
    extension.max_output_tokens = 50;
    extension.want_remaining = 1;
    assert_int_equal(holdfast_extend(daemon_.handle, &extension, &answer), HOLDFAST_OK);
    assert_int_equal(answer.reserved.cost_micros, 210);
    assert_int_equal(answer.remaining[HOLDFAST_COST_MICROS][HOLDFAST_LAYER_TENANT], 100000 - 210);
    assert_true(answer.remaining[HOLDFAST_COST_MICROS][HOLDFAST_LAYER_TEAM] == HOLDFAST_NONE);
    holdfast_usage_init(&usage, 10, 50);
    assert_int_equal(holdfast_settle(daemon_.handle, "m", 0, &usage, HOLDFAST_SUCCESS, "ref-1", &closing),
                     HOLDFAST_OK);
    assert_int_equal(closing.actual.cost_micros, 110);
    assert_int_equal(closing.source, HOLDFAST_SOURCE_DERIVED);
    hf_test_daemon_drain(&daemon_);
    expect_limit(NULL, NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS, 0, 110);
    struct hf_receipt rows[4];

    assert_int_equal(hf_test_daemon_receipts(&daemon_, "m", rows, 4), 2);
    assert_string_equal(rows[1].team.bytes, "u");
    assert_string_equal(rows[1].key.bytes, "k");
    assert_string_equal(rows[1].model.bytes, "m");
    assert_string_equal(rows[1].ref.bytes, "ref-1");
    /* And once more, with the policy of before: the closed one is known with its reference. */
    write_policy(hf_test_policy());
    lose_segment(0);
    assert_int_equal(hf_serve_recovered(daemon_.serve)->policy_revision, 3);
    assert_int_equal(holdfast_settle(daemon_.handle, "m", 0, &usage, HOLDFAST_SUCCESS, "ref-1", &closing),
                     HOLDFAST_OK);
    assert_int_equal(closing.replayed, 1);
    expect_limit("u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS, 0, 110);
    expect_limit("u", "k", HOLDFAST_WINDOW_DAY, HOLDFAST_INVOCATIONS, 0, 1);
}

static int take_row(void *ctx, const struct hf_receipt *receipt)
{
    *(struct hf_receipt *)ctx = *receipt;
    return 0;
}

static void an_epoch_has_its_receipt_with_the_gap(void **state)
{
    struct hf_receipt epoch;
    struct hf_store_error error;
    struct hf_store *store = hf_serve_store(daemon_.serve);

    (void)state;
    assert_int_equal(hf_store_last(store, "test", HF_RECEIPT_EPOCH, take_row, &epoch, &error), HF_STORE_OK);
    assert_int_equal(epoch.epoch, 1);
    assert_int_equal(epoch.gap_from_ms, HF_UNKNOWN);
    assert_int_equal(daemon_.seg->header->hdr_alarms[HF_ALARM_COVERAGE_GAP], 0);
    reserve("a", "u", NULL, 100, 500);
    hf_test_daemon_drain(&daemon_);
    uint64_t committed_ms = hf_clock_now_ms(daemon_.seg);

    reserve("lost", "u", NULL, 100, 500);
    lose_segment(7000);
    store = hf_serve_store(daemon_.serve);
    assert_int_equal(hf_store_last(store, "test", HF_RECEIPT_EPOCH, take_row, &epoch, &error), HF_STORE_OK);
    assert_int_equal(epoch.epoch, 2);
    assert_int_equal(epoch.gap_from_ms, committed_ms);
    assert_int_equal(epoch.gap_until_ms, committed_ms + 7000);
    assert_int_equal(epoch.policy_revision, 1);
    assert_int_equal(daemon_.seg->header->hdr_alarms[HF_ALARM_COVERAGE_GAP], 1);
    assert_int_equal(hf_serve_recovered(daemon_.serve)->found.due_cnt, 1);
    assert_int_equal(daemon_.seg->header->hdr_epoch, 2);
    struct hf_store_totals totals = hf_test_daemon_totals(&daemon_);

    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_POLICY], 1);
}

static void another_currency_is_refused(void **state)
{
    struct hf_policy_report report = {0};
    struct hf_error err;
    struct hf_serve *serve;

    (void)state;
    hf_test_daemon_close(&daemon_);
    write_policy(
        "version: 1\ncurrency: USD\nprices: {revision: '2', models: []}\ntenants: [{id: t, teams: []}]\n");
    assert_int_not_equal(hf_serve_open(&daemon_.options, &serve, &report, &err), HF_SERVE_OK);
    assert_null(serve);
    hf_policy_report_free(&report);
    write_policy(hf_test_policy());
    hf_test_daemon_open(&daemon_);
}

/* The clock of a new segment is not before what the store holds. */
static void the_clock_does_not_go_back(void **state)
{
    (void)state;
    advance(5000);
    reserve("a", "u", NULL, 100, 500);
    uint64_t now_ms = hf_clock_now_ms(daemon_.seg);

    hf_test_daemon_drain(&daemon_);
    hf_test_daemon_close(&daemon_);
    daemon_.options.injected_ms = 1000;
    hf_test_daemon_open(&daemon_);
    assert_int_equal(hf_clock_now_ms(daemon_.seg), now_ms);
}

/* ---- everything that a reader sees is the same before and after ------------------------------------------------- */

static uint64_t random_ = 88172645463325252ULL;

static uint32_t draw(uint32_t below)
{
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return (uint32_t)(random_ >> 33) % below;
}

static void act(uint32_t i)
{
    static const char *const teams[] = {"u", "v", "w"};
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    struct holdfast_extension extension;
    char id[16];

    (void)snprintf(id, sizeof(id), "r%u", draw(i + 1));
    switch (draw(8)) {
    case 0:
    case 1:
    case 2:
        (void)snprintf(id, sizeof(id), "r%u", i);
        (void)hf_test_reserve(daemon_.handle, id, teams[draw(3)], NULL, draw(30), draw(60), &answer);
        break;
    case 3:
    case 4:
        (void)hf_test_settle(daemon_.handle, id, draw(20), draw(20), draw(2) ? draw(80) : HOLDFAST_UNKNOWN,
                             &closing);
        break;
    case 5:
        assert_true(holdfast_release(daemon_.handle, id, 0, &closing) >= 0);
        break;
    case 6:
        holdfast_extension_init(&extension);
        extension.id = id;
        extension.cost_micros = draw(100);
        extension.ttl_ms = 1 + draw(5000);
        assert_true(holdfast_extend(daemon_.handle, &extension, &answer) >= 0);
        break;
    default:
        advance(draw(400));
        if (draw(2) == 0) {
            (void)holdfast_reap(daemon_.handle, 0, NULL, NULL);
        }
        break;
    }
    if (draw(10) == 0) {
        (void)hf_serve_cycle(daemon_.serve);
    }
}

#define SEEN_MAX 128

struct seen {
    struct holdfast_limit limits[SEEN_MAX];
    size_t limits_cnt;
    struct holdfast_meter meters[16];
    size_t meters_cnt;
};

static void see_meter(void *arg, const struct holdfast_meter *meter)
{
    struct seen *seen = arg;

    seen->meters[seen->meters_cnt++] = *meter;
}

static void look_around(struct seen *seen)
{
    static const char *const paths[][2] = {{NULL, NULL}, {"u", NULL}, {"u", "k"}, {"v", NULL}};
    int reason;

    memset(seen, 0, sizeof(*seen));
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        int cnt = holdfast_limits(daemon_.handle, "t", paths[i][0], paths[i][1],
                                  &seen->limits[seen->limits_cnt], 15, &reason);

        assert_true(cnt > 0);
        seen->limits_cnt += (size_t)cnt;
    }
    assert_int_equal(holdfast_meters(daemon_.handle, NULL, see_meter, seen, &reason), HOLDFAST_OK);
}

static void nothing_changes_by_losing_a_drained_segment(void **state)
{
    struct seen before;
    struct seen after;

    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        for (uint32_t i = 0; i < 300; i++) {
            act(round * 300 + i);
        }
        hf_test_daemon_drain(&daemon_);
        look_around(&before);
        lose_segment(0);
        look_around(&after);
        assert_true(before.limits[0].settled > 0 && before.meters_cnt > 0);
        assert_int_equal(before.limits_cnt, after.limits_cnt);
        for (size_t i = 0; i < before.limits_cnt; i++) {
            assert_int_equal(before.limits[i].held, after.limits[i].held);
            assert_int_equal(before.limits[i].settled, after.limits[i].settled);
        }
        assert_int_equal(before.meters_cnt, after.meters_cnt);
        for (size_t i = 0; i < before.meters_cnt; i++) {
            size_t j = 0;

            while (j < after.meters_cnt && (strcmp(before.meters[i].tenant, after.meters[j].tenant) != 0 ||
                                            strcmp(before.meters[i].model, after.meters[j].model) != 0)) {
                j++;
            }
            assert_true(j < after.meters_cnt);
            assert_int_equal(before.meters[i].requests, after.meters[j].requests);
            assert_int_equal(before.meters[i].failures, after.meters[j].failures);
            assert_int_equal(before.meters[i].reserved_micros, after.meters[j].reserved_micros);
            assert_int_equal(before.meters[i].settled_micros, after.meters[j].settled_micros);
        }
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_daemon, close_daemon)
    const struct CMUnitTest tests[] = {
        CASE(open_reservations_come_back),
        CASE(what_is_open_gets_its_slots),
        CASE(what_is_known_stays_known),
        CASE(credits_and_meters_come_back),
        CASE(a_reservation_keeps_its_prices_and_its_team),
        CASE(an_epoch_has_its_receipt_with_the_gap),
        CASE(another_currency_is_refused),
        CASE(the_clock_does_not_go_back),
        CASE(nothing_changes_by_losing_a_drained_segment),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
