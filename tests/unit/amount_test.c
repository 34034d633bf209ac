/* Amounts: the range, and that nothing leaves it unnoticed. */
#include "core/amount.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void range_ends_at_2_to_56(void **state)
{
    (void)state;
    assert_int_equal(HF_AMOUNT_MAX, UINT64_C(72057594037927935));
    assert_true(hf_amount_valid(0));
    assert_true(hf_amount_valid(UINT64_C(72057594037927935)));
    assert_false(hf_amount_valid(UINT64_C(72057594037927936)));
    assert_false(hf_amount_valid(HF_UNKNOWN));
}

static void add_stops_at_the_end_of_the_range(void **state)
{
    uint64_t sum = 7;

    (void)state;
    assert_true(hf_amount_add(HF_AMOUNT_MAX - 1, 1, &sum));
    assert_int_equal(sum, HF_AMOUNT_MAX);
    assert_true(hf_amount_add(HF_AMOUNT_MAX, 0, &sum));
    assert_int_equal(sum, HF_AMOUNT_MAX);
    assert_true(hf_amount_add(0, 0, &sum));
    assert_int_equal(sum, 0);

    sum = 7;
    assert_false(hf_amount_add(HF_AMOUNT_MAX, 1, &sum));
    assert_false(hf_amount_add(1, HF_AMOUNT_MAX, &sum));
    assert_false(hf_amount_add(HF_AMOUNT_MAX, HF_AMOUNT_MAX, &sum));
    assert_false(hf_amount_add(HF_UNKNOWN, 0, &sum));
    assert_false(hf_amount_add(0, HF_UNKNOWN, &sum));
    assert_false(hf_amount_add(HF_UNKNOWN, 1, &sum)); /* would wrap to 0 */
    assert_false(hf_amount_add(1, HF_UNKNOWN, &sum));
    assert_false(hf_amount_add(HF_AMOUNT_MAX + 1, 0, &sum));
    assert_int_equal(sum, 7);

    sum = 40;
    assert_true(hf_amount_add(sum, 2, &sum));
    assert_int_equal(sum, 42);
}

static void sum_refuses_what_one_of_its_steps_refuses(void **state)
{
    const uint64_t good[] = {1, HF_AMOUNT_MAX - 3, 2};
    const uint64_t over[] = {1, HF_AMOUNT_MAX - 3, 3};
    const uint64_t unknown[] = {1, HF_UNKNOWN, 3};
    uint64_t sum = 7;

    (void)state;
    assert_false(hf_amount_sum(over, 3, &sum));
    assert_false(hf_amount_sum(unknown, 3, &sum));
    assert_int_equal(sum, 7);
    assert_true(hf_amount_sum(good, 3, &sum));
    assert_int_equal(sum, HF_AMOUNT_MAX);
    assert_true(hf_amount_sum(good, 0, &sum));
    assert_int_equal(sum, 0);
}

static void mul_div_rounds_up(void **state)
{
    static const struct {
        uint64_t a, b, divisor, result;
    } cases[] = {
        {0, 5, 7, 0},
        {5, 0, 7, 0},
        {1, 1, 1000000, 1},
        {1, 1000000, 1000000, 1},
        {1, 1000001, 1000000, 2},
        {3, 333333, 1000000, 1},
        {4, 333333, 1000000, 2},
        {UINT64_C(1099511627776), 15000000, 1000000, UINT64_C(16492674416640)}, /* 2^40 tokens */
        {HF_AMOUNT_MAX, 1000000, 1000000, HF_AMOUNT_MAX},                       /* product above 64 bits */
        {HF_AMOUNT_MAX, 999999, 1000000, UINT64_C(72057521980333898)},
        {HF_AMOUNT_MAX, HF_AMOUNT_MAX, HF_AMOUNT_MAX, HF_AMOUNT_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t result = HF_UNKNOWN;

        assert_true(hf_amount_mul_div_ceil(cases[i].a, cases[i].b, cases[i].divisor, &result));
        assert_int_equal(result, cases[i].result);
    }
}

static void mul_div_refuses_results_above_the_range(void **state)
{
    uint64_t result = 7;

    (void)state;
    /* one above the range, product in 64 bits */
    assert_false(hf_amount_mul_div_ceil(HF_AMOUNT_MAX + 1, 1, 1, &result));
    assert_false(hf_amount_mul_div_ceil(UINT64_C(1) << 57, 2, 3, &result));
    /* one above the range, product above 64 bits */
    assert_false(hf_amount_mul_div_ceil(HF_AMOUNT_MAX, 1000001, 1000000, &result));
    /* 2^56 - 2^-7 is above it only by being rounded up */
    assert_false(hf_amount_mul_div_ceil(UINT64_MAX - 1, UINT64_C(1) << 55, UINT64_C(1) << 63, &result));
    /* far above: the quotient itself does not fit 64 bits */
    assert_false(hf_amount_mul_div_ceil(HF_AMOUNT_MAX, HF_AMOUNT_MAX, 1, &result));
    assert_false(hf_amount_mul_div_ceil(UINT64_MAX - 1, UINT64_MAX - 1, 1, &result));
    /* unknown is never an operand, not even beside 0 */
    assert_false(hf_amount_mul_div_ceil(HF_UNKNOWN, 0, 1, &result));
    assert_false(hf_amount_mul_div_ceil(0, HF_UNKNOWN, 1, &result));
    assert_int_equal(result, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(range_ends_at_2_to_56),
        cmocka_unit_test(add_stops_at_the_end_of_the_range),
        cmocka_unit_test(sum_refuses_what_one_of_its_steps_refuses),
        cmocka_unit_test(mul_div_rounds_up),
        cmocka_unit_test(mul_div_refuses_results_above_the_range),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
