/* Receipts: the table of fields, the column of buckets, reservations put together from their rows. */
#include "persist/receipt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char scratch[HF_RECEIPT_BUCKETS_BYTES];

static size_t field(const char *name)
{
    for (size_t i = 0; i < hf_receipt_fields(); i++) {
        if (strcmp(hf_receipt_field(i)->name, name) == 0) {
            return i;
        }
    }
    fail_msg("no field %s", name);
    return 0;
}

static void a_new_receipt_knows_nothing(void **state)
{
    static const char *const set[] = {"kind",
                                      "version",
                                      "conflict",
                                      "held_invocations",
                                      "held_tokens",
                                      "held_cost_micros",
                                      "charged_invocations",
                                      "charged_tokens",
                                      "charged_cost_micros"};
    struct hf_receipt receipt;

    (void)state;
    hf_receipt_init(&receipt, HF_RECEIPT_CREDIT);
    for (size_t i = 0; i < hf_receipt_fields(); i++) {
        struct hf_field_value value;
        bool expected = false;

        for (size_t s = 0; s < sizeof(set) / sizeof(set[0]); s++) {
            expected = expected || strcmp(set[s], hf_receipt_field(i)->name) == 0;
        }
        hf_receipt_get(&receipt, i, &value, scratch);
        if (value.null == expected) {
            fail_msg("field %s", hf_receipt_field(i)->name);
        }
    }
    assert_int_equal(receipt.version, 1);
    hf_receipt_init(&receipt, HF_RECEIPT_RELEASE);
    assert_true(receipt.bucket_mask == 0);
}

static void field_names_are_unique(void **state)
{
    (void)state;
    for (size_t i = 0; i < hf_receipt_fields(); i++) {
        assert_int_equal(field(hf_receipt_field(i)->name), i);
    }
    assert_int_equal(field("kind"), 0);
    assert_int_equal(field("version"), 1);
    assert_int_equal(field("digest"), hf_receipt_fields() - 1);
}

static void words_are_those_of_the_contract(void **state)
{
    struct hf_receipt receipt;
    struct hf_field_value value;

    (void)state;
    hf_receipt_init(&receipt, HF_RECEIPT_LATE);
    hf_receipt_get(&receipt, field("kind"), &value, scratch);
    assert_string_equal(value.bytes, "late_settlement");
    for (int i = HF_ON_EXPIRY_RELEASE; i <= HF_ON_EXPIRY_RETAIN_DISPATCHED; i++) {
        receipt.on_expiry = (int8_t)i;
        hf_receipt_get(&receipt, field("on_expiry"), &value, scratch);
        assert_string_equal(value.bytes, hf_on_expiry_name((enum hf_on_expiry)i));
    }
    for (int i = HF_ON_OVERAGE_RECORD; i <= HF_ON_OVERAGE_FAIL; i++) {
        receipt.on_overage = (int8_t)i;
        hf_receipt_get(&receipt, field("on_overage"), &value, scratch);
        assert_string_equal(value.bytes, hf_on_overage_name((enum hf_on_overage)i));
    }
    for (int i = HF_BASIS_ESTIMATE; i <= HF_BASIS_CAP; i++) {
        receipt.basis = (int8_t)i;
        hf_receipt_get(&receipt, field("basis"), &value, scratch);
        assert_string_equal(value.bytes, hf_basis_name((enum hf_basis)i));
    }
    for (int i = HF_WINDOW_MINUTE; i < HF_WINDOW_CNT; i++) {
        receipt.credit_window = (int8_t)i;
        hf_receipt_get(&receipt, field("credit_window"), &value, scratch);
        assert_string_equal(value.bytes, hf_window_name((enum hf_window)i));
    }
    receipt.basis = 17; /* nonsense is seen and crashes nobody */
    hf_receipt_get(&receipt, field("basis"), &value, scratch);
    assert_string_equal(value.bytes, "?");
    assert_string_equal(hf_receipt_kind_name(HF_RECEIPT_KIND_CNT), "?");
}

static void a_value_that_is_none_is_not_taken(void **state)
{
    static char long_name[70];
    struct hf_receipt receipt;
    struct hf_field_value value = {.bytes = "resolved", .len = 8};

    (void)state;
    hf_receipt_init(&receipt, HF_RECEIPT_EPOCH);
    assert_false(hf_receipt_set(&receipt, field("kind"), &value));
    assert_false(hf_receipt_set(&receipt, field("outcome"), &value));
    value.len = 3; /* a prefix of `release`... */
    value.bytes = "rel";
    assert_false(hf_receipt_set(&receipt, field("on_expiry"), &value));
    value.bytes = "bad\nname";
    value.len = 8;
    assert_false(hf_receipt_set(&receipt, field("id"), &value));
    memset(long_name, 'x', sizeof(long_name));
    value.bytes = long_name;
    value.len = 64;
    assert_false(hf_receipt_set(&receipt, field("id"), &value));
    value.len = 31;
    assert_false(hf_receipt_set(&receipt, field("digest"), &value));
    value.number = 65536;
    assert_false(hf_receipt_set(&receipt, field("version"), &value));
    value.null = true;
    assert_false(hf_receipt_set(&receipt, field("kind"), &value));
    assert_true(hf_receipt_set(&receipt, field("id"), &value));
    assert_int_equal(receipt.kind, HF_RECEIPT_EPOCH);
}

static void buckets_are_written_and_read(void **state)
{
    struct hf_receipt receipt;
    struct hf_receipt back;
    char text[HF_RECEIPT_BUCKETS_BYTES];
    size_t len;

    (void)state;
    hf_receipt_init(&receipt, HF_RECEIPT_RESERVATION);
    hf_receipt_init(&back, HF_RECEIPT_RESERVATION);
    assert_int_equal(hf_receipt_buckets_format(&receipt, text), 0);
    assert_string_equal(text, "");
    assert_true(hf_receipt_buckets_parse("", 0, &back));

    assert_int_equal(hf_receipt_bucket(HF_LAYER_KEY, HF_WINDOW_MINUTE, HF_DIM_INVOCATIONS), 0);
    assert_int_equal(hf_receipt_bucket(HF_LAYER_TENANT, HF_WINDOW_LIFETIME, HF_DIM_COST),
                     HF_RECEIPT_BUCKETS_MAX - 1);
    receipt.hold_tokens = 900;
    receipt.hold_cost_micros = 6200;
    receipt.credits[HF_WINDOW_MONTH] = 5;
    receipt.bucket_mask =
        UINT64_C(1) << hf_receipt_bucket(HF_LAYER_KEY, HF_WINDOW_MINUTE, HF_DIM_INVOCATIONS) |
        UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MONTH, HF_DIM_COST) |
        UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TENANT, HF_WINDOW_MONTH, HF_DIM_COST) |
        UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TENANT, HF_WINDOW_LIFETIME, HF_DIM_TOKENS);
    receipt.limits[hf_receipt_bucket(HF_LAYER_KEY, HF_WINDOW_MINUTE, HF_DIM_INVOCATIONS)] = 60;
    receipt.limits[hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MONTH, HF_DIM_COST)] = 40000000;
    receipt.limits[hf_receipt_bucket(HF_LAYER_TENANT, HF_WINDOW_MONTH, HF_DIM_COST)] = HF_AMOUNT_MAX;
    len = hf_receipt_buckets_format(&receipt, text);
    assert_string_equal(text,
                        "key/minute/invocations=60+0:1;team/month/cost_micros=40000000+5:6200;"
                        "tenant/month/cost_micros=72057594037927935+0:6200;tenant/lifetime/tokens=0+0:900");
    assert_int_equal(len, strlen(text));
    assert_true(hf_receipt_buckets_parse(text, len, &back));
    assert_memory_equal(receipt.limits, back.limits, sizeof(back.limits));
    assert_memory_equal(receipt.credits, back.credits, sizeof(back.credits));
}

static void the_longest_buckets_fit(void **state)
{
    struct hf_receipt receipt;
    struct hf_receipt back;
    char text[HF_RECEIPT_BUCKETS_BYTES];
    size_t len;

    (void)state;
    hf_receipt_init(&receipt, HF_RECEIPT_RESERVATION);
    receipt.bucket_mask = (UINT64_C(1) << HF_RECEIPT_BUCKETS_MAX) - 1;
    receipt.hold_tokens = receipt.hold_cost_micros = UINT64_MAX - 1;
    memset(receipt.limits, 0xff, sizeof(receipt.limits));
    memset(receipt.credits, 0xff, sizeof(receipt.credits));
    len = hf_receipt_buckets_format(&receipt, text);
    assert_in_range(len, 1, sizeof(text) - 1);
    assert_int_equal(text[len], '\0');
    hf_receipt_init(&back, HF_RECEIPT_RESERVATION);
    assert_false(hf_receipt_buckets_parse(text, len, &back)); /* above what a number may be, and refused */
}

static void broken_buckets_are_refused(void **state)
{
    static const char *const texts[] = {"team",
                                        "team/month",
                                        "team/month/cost_micros",
                                        "team/month/cost_micros=",
                                        "team/month/cost_micros=1",
                                        "team/month/cost_micros=1+2",
                                        "team/month/cost_micros=1+2:",
                                        "team/month/cost_micros=1+2:3x",
                                        "team/month/cost_micros=-1+2:3",
                                        "team/month/cost_micros=99999999999999999999+2:3",
                                        "request/month/cost_micros=1+2:3",
                                        "team/week/cost_micros=1+2:3",
                                        "team/month/cost=1+2:3",
                                        ";team/month/cost_micros=1+2:3"};
    struct hf_receipt receipt;

    (void)state;
    hf_receipt_init(&receipt, HF_RECEIPT_RESERVATION);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (hf_receipt_buckets_parse(texts[i], strlen(texts[i]), &receipt)) {
            fail_msg("'%s' was taken", texts[i]);
        }
    }
    assert_true(hf_receipt_buckets_parse("team/month/cost_micros=1+2:3", 28, &receipt));
}

/* ---- reservations --------------------------------------------------------------------------------------------------- */

static struct hf_receipt rows[4];

static void row(size_t i, enum hf_receipt_kind kind)
{
    hf_receipt_init(&rows[i], kind);
    rows[i].seq = 10 + i;
    rows[i].reservation_seq = 10;
    rows[i].made_ms = 1000 + i;
    rows[i].hold_tokens = 100 + i;
    rows[i].hold_cost_micros = 200 + i;
    rows[i].expires_at_ms = 5000 + i;
}

static enum hf_reservation_state state_of(size_t cnt)
{
    struct hf_reservation reservation;

    assert_true(hf_reservation_from_rows(rows, cnt, &reservation));
    return reservation.state;
}

static void a_reservation_is_what_its_rows_made_it(void **state)
{
    struct hf_reservation reservation;

    (void)state;
    row(0, HF_RECEIPT_RESERVATION);
    row(1, HF_RECEIPT_EXTENSION);
    rows[1].dispatched = 1;
    assert_true(hf_reservation_from_rows(rows, 1, &reservation));
    assert_int_equal(reservation.state, HF_RESERVATION_OPEN);
    assert_int_equal(reservation.hold_tokens, 100);
    assert_int_equal(reservation.state_since_ms, 1000);
    assert_null(reservation.closing);
    assert_false(reservation.dispatched);
    assert_true(hf_reservation_from_rows(rows, 2, &reservation));
    assert_int_equal(reservation.state, HF_RESERVATION_OPEN);
    assert_int_equal(reservation.hold_tokens, 101);
    assert_int_equal(reservation.hold_cost_micros, 201);
    assert_int_equal(reservation.expires_at_ms, 5001);
    assert_true(reservation.dispatched);

    row(2, HF_RECEIPT_EXPIRY);
    row(3, HF_RECEIPT_LATE);
    assert_true(hf_reservation_from_rows(rows, 4, &reservation));
    assert_int_equal(reservation.state, HF_RESERVATION_LATE);
    assert_ptr_equal(reservation.reserved, &rows[0]);
    assert_ptr_equal(reservation.expiry, &rows[2]);
    assert_ptr_equal(reservation.closing, &rows[3]);
    assert_int_equal(reservation.state_since_ms, 1003);
    assert_int_equal(reservation.expires_at_ms, 5001);
}

static void every_closing_has_its_state(void **state)
{
    (void)state;
    row(0, HF_RECEIPT_RESERVATION);
    row(1, HF_RECEIPT_SETTLEMENT);
    assert_int_equal(state_of(2), HF_RESERVATION_SETTLED);
    row(1, HF_RECEIPT_RELEASE);
    assert_int_equal(state_of(2), HF_RESERVATION_RELEASED);
    row(1, HF_RECEIPT_EXPIRY);
    assert_int_equal(state_of(2), HF_RESERVATION_EXPIRED);
    row(1, HF_RECEIPT_RETENTION);
    assert_int_equal(state_of(2), HF_RESERVATION_RETAINED);
    row(2, HF_RECEIPT_DISPUTE);
    assert_int_equal(state_of(3), HF_RESERVATION_DISPUTED);
    row(1, HF_RECEIPT_DISPUTE);
    assert_int_equal(state_of(2), HF_RESERVATION_DISPUTED);
    row(2, HF_RECEIPT_RESOLUTION);
    assert_int_equal(state_of(3), HF_RESERVATION_RESOLVED);
}

static void rows_that_contradict_each_other_are_refused(void **state)
{
    static const enum hf_receipt_kind wrong[][2] = {
        {HF_RECEIPT_SETTLEMENT, HF_RECEIPT_SETTLEMENT},
        {HF_RECEIPT_SETTLEMENT, HF_RECEIPT_EXTENSION},
        {HF_RECEIPT_SETTLEMENT, HF_RECEIPT_LATE},
        {HF_RECEIPT_DISPUTE, HF_RECEIPT_LATE},
        {HF_RECEIPT_LATE, HF_RECEIPT_LATE},
        {HF_RECEIPT_RELEASE, HF_RECEIPT_RESOLUTION},
        {HF_RECEIPT_EXPIRY, HF_RECEIPT_SETTLEMENT},
        {HF_RECEIPT_EXTENSION, HF_RECEIPT_RESERVATION},
        {HF_RECEIPT_EXTENSION, HF_RECEIPT_CREDIT},
    };
    struct hf_reservation reservation;

    (void)state;
    assert_false(hf_reservation_from_rows(rows, 0, &reservation));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        row(0, HF_RECEIPT_RESERVATION);
        row(1, wrong[i][0]);
        row(2, wrong[i][1]);
        if (hf_reservation_from_rows(rows, 3, &reservation)) {
            fail_msg("case %zu was taken", i);
        }
    }
    row(0, HF_RECEIPT_SETTLEMENT);
    assert_false(hf_reservation_from_rows(rows, 1, &reservation));
    row(0, HF_RECEIPT_RESERVATION);
    row(1, HF_RECEIPT_SETTLEMENT);
    rows[1].reservation_seq = 11;
    assert_false(hf_reservation_from_rows(rows, 2, &reservation));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_receipt_knows_nothing),
        cmocka_unit_test(field_names_are_unique),
        cmocka_unit_test(words_are_those_of_the_contract),
        cmocka_unit_test(a_value_that_is_none_is_not_taken),
        cmocka_unit_test(buckets_are_written_and_read),
        cmocka_unit_test(the_longest_buckets_fit),
        cmocka_unit_test(broken_buckets_are_refused),
        cmocka_unit_test(a_reservation_is_what_its_rows_made_it),
        cmocka_unit_test(every_closing_has_its_state),
        cmocka_unit_test(rows_that_contradict_each_other_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
