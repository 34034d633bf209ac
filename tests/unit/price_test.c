/* Prices: the numbers of the conformance scenarios, worked out by hand there, and the ends of the range. */
#include "core/price.h"

#include "core/amount.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define NONE HF_UNKNOWN

/* input, output, cached_input, cache_write, max_output_tokens */
static const struct hf_price mock = {1000000, 2000000, NONE, NONE, 4096};
static const struct hf_price mini = {500000, 1000000, 50000, NONE, 2048};
static const struct hf_price crumb = {1, 1, 1, NONE, 4096};
static const struct hf_price open_end = {1000000, 2000000, NONE, NONE, NONE};
static const struct hf_price large = {3000000, 15000000, 300000, 3750000, 8192};
static const struct hf_price odd = {1000000, 1000000, 2000000, 500000, 8192};
static const struct hf_price third = {333333, 1000000, NONE, NONE, 8192};
static const struct hf_price gateway_large = {3000000, 15000000, 300000, NONE, 8192};
static const struct hf_price gateway_small = {250000, 1250000, 25000, NONE, 4096};
static const struct hf_price nothing = {0, 0, NONE, NONE, NONE};
static const struct hf_price two = {2000000, 2000000, NONE, NONE, NONE};

static void worst_cases_of_the_scenarios(void **state)
{
    static const struct {
        const struct hf_price *price;
        uint64_t input, max_output, tokens, cost;
    } cases[] = {
        /* 05 */
        {&mock, 100, 200, 300, 500},
        {&mock, 9679, 1, 9680, 9681},
        {&mock, 9678, 1, 9679, 9680},
        {&crumb, 1, 1, 2, 3},
        {&crumb, 0, 1, 1, 2},
        {&mini, 1000, 10, 1010, 511},
        {&mini, 3, 1, 4, 4},
        {&mock, 100, 10, 110, 120},
        {&mock, 0, 4096, 4096, 8192},
        /* 16 */
        {&mock, 100, 50, 150, 200},
        {&open_end, 1, 2000, 2001, 4001},
        {&open_end, 1, 1999, 2000, 3999},
        /* 17: without its own, the request's longest output is the model's */
        {&mock, 100, NONE, 4196, 8292},
        {&mock, 1809, NONE, 5905, 10001},
        {&open_end, 100, NONE, HF_UNKNOWN, HF_UNKNOWN},
        /* 18 */
        {&large, 1000, 100, 1100, 5252},
        {&large, 3, 1, 4, 29},
        {&large, 4, 1, 5, 32},
        {&odd, 100, 10, 110, 212},
        {&third, 3, 1, 4, 2},
        /* 34 */
        {&gateway_large, 4000, 2000, 6000, 42001},
        {&gateway_large, 1000, 1000, 2000, 18001},
        {&gateway_large, 1000, 2000, 3000, 33001},
        {&gateway_small, 1000, 1000, 2000, 1501},
        /* 37 */
        {&nothing, 100000, 100000, 200000, 0},
        /* what rounding can add is added even where no token is asked for */
        {&large, 0, 0, 0, 2},
        /* no longest output, no price: still not known, and unknown is never zero */
        {&nothing, 1, NONE, HF_UNKNOWN, HF_UNKNOWN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t tokens = 7;
        uint64_t cost = 7;

        assert_true(hf_price_worst(cases[i].price, cases[i].input, cases[i].max_output, &tokens, &cost));
        assert_int_equal(tokens, cases[i].tokens);
        assert_int_equal(cost, cases[i].cost);
    }
}

static void actual_costs_of_the_scenarios(void **state)
{
    static const struct {
        const struct hf_price *price;
        uint64_t input, cached, cache_write, output, tokens, cost;
    } cases[] = {
        /* 05 */
        {&mock, 100, 0, 0, 110, 210, 320},
        {&crumb, 2, 1, 0, 1, 3, 3},
        {&crumb, 0, 0, 0, 0, 0, 0},
        {&mini, 1000, 600, 0, 10, 1010, 240},
        {&mini, 3, 1, 0, 1, 4, 3},
        {&mock, 100, 100, 0, 10, 110, 120},
        /* 16, 17 */
        {&open_end, 100, 0, 0, 50, 150, 200},
        /* 18 */
        {&large, 1000, 400, 500, 100, 1100, 3795},
        {&large, 3, 1, 1, 1, 4, 23},
        {&large, 4, 1, 3, 1, 5, 28},
        {&odd, 100, 100, 0, 10, 110, 210},
        {&odd, 100, 0, 100, 10, 110, 60},
        {&third, 3, 1, 1, 1, 4, 2}, /* one item: without own prices all three are uncached input */
        {&mock, 100, 50, 50, 10, 110, 120},
        {&mock, 100, 0, 100, 10, 110, 120},
        /* 34 */
        {&gateway_large, 4000, 3000, 0, 350, 4350, 9150},
        {&gateway_large, 1000, 0, 0, 120, 1120, 4800},
        {&gateway_small, 1000, 0, 0, 10, 1010, 263},
        {&gateway_small, 1000, 0, 0, 1001, 2001, 1502},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t tokens = 7;
        uint64_t cost = 7;

        assert_true(hf_price_actual(cases[i].price, cases[i].input, cases[i].cached, cases[i].cache_write,
                                    cases[i].output, &tokens, &cost));
        assert_int_equal(tokens, cases[i].tokens);
        assert_int_equal(cost, cases[i].cost);
    }
}

static void cached_and_cache_write_together_are_at_most_the_input(void **state)
{
    uint64_t tokens = 7;
    uint64_t cost = 8;

    (void)state;
    assert_false(hf_price_actual(&mock, 100, 51, 50, 10, &tokens, &cost));
    assert_false(hf_price_actual(&mock, 100, 0, 101, 10, &tokens, &cost));
    assert_false(hf_price_actual(&large, 100, 101, 0, 10, &tokens, &cost));
    assert_false(hf_price_actual(&large, 100, UINT64_MAX, 2, 10, &tokens, &cost)); /* the sum would wrap */
    assert_int_equal(tokens, 7);
    assert_int_equal(cost, 8);
}

static void nothing_leaves_the_range(void **state)
{
    const struct hf_price most = {HF_AMOUNT_MAX, HF_AMOUNT_MAX, HF_AMOUNT_MAX, HF_AMOUNT_MAX, NONE};
    const struct hf_price named = {2000000, 2000000, 0, NONE, NONE};
    uint64_t tokens = 7;
    uint64_t cost = 8;

    (void)state;
    /* 29: the tokens; the cost although each number is below */
    assert_false(hf_price_worst(&two, HF_AMOUNT_MAX, 1, &tokens, &cost));
    assert_false(hf_price_worst(&two, UINT64_C(36028797018963967), 1, &tokens, &cost));
    /* each item of the bill, and a product of 112 bits */
    assert_false(hf_price_worst(&most, HF_AMOUNT_MAX, 0, &tokens, &cost));
    assert_false(hf_price_worst(&most, 0, HF_AMOUNT_MAX, &tokens, &cost));
    assert_false(hf_price_worst(&most, 1000001, 0, &tokens, &cost));
    assert_false(hf_price_actual(&most, 1000001, 0, 0, 0, &tokens, &cost));
    assert_false(hf_price_actual(&most, 1000001, 1000001, 0, 0, &tokens, &cost));
    assert_false(hf_price_actual(&most, 1000001, 0, 1000001, 0, &tokens, &cost));
    assert_false(hf_price_actual(&most, 0, 0, 0, 1000001, &tokens, &cost));
    assert_false(hf_price_actual(&two, HF_AMOUNT_MAX, 0, 0, 1, &tokens, &cost));
    /* 2^56 - 2 and the micro that rounding can add fit; with 2^56 - 1 before it they do not */
    assert_false(hf_price_worst(&named, UINT64_C(36028797018963967), 1, &tokens, &cost));
    /* a number that is no amount, HF_UNKNOWN too, even where the output is not known */
    assert_false(hf_price_worst(&open_end, HF_AMOUNT_MAX + 1, NONE, &tokens, &cost));
    assert_false(hf_price_worst(&open_end, HF_UNKNOWN, NONE, &tokens, &cost));
    assert_false(hf_price_worst(&open_end, 0, HF_AMOUNT_MAX + 1, &tokens, &cost));
    assert_false(hf_price_actual(&nothing, 0, 0, 0, HF_UNKNOWN, &tokens, &cost));
    assert_int_equal(tokens, 7);
    assert_int_equal(cost, 8);

    assert_true(hf_price_worst(&two, UINT64_C(36028797018963966), 1, &tokens, &cost));
    assert_int_equal(tokens, UINT64_C(36028797018963967));
    assert_int_equal(cost, UINT64_C(72057594037927934));
    assert_true(hf_price_worst(&named, UINT64_C(36028797018963966), 1, &tokens, &cost));
    assert_int_equal(cost, HF_AMOUNT_MAX);
    assert_true(hf_price_actual(&most, 1000000, 0, 0, 0, &tokens, &cost));
    assert_int_equal(cost, HF_AMOUNT_MAX);
}

/* Whatever the split of a settled call within what was asked for, it never costs more than its worst case. */
static void no_split_exceeds_the_worst_case(void **state)
{
    static const struct hf_price *const prices[] = {&mock, &mini, &crumb, &large, &odd, &third};

    (void)state;
    for (size_t p = 0; p < sizeof(prices) / sizeof(prices[0]); p++) {
        for (uint64_t input = 0; input <= 12; input++) {
            uint64_t most_tokens;
            uint64_t most_cost;

            assert_true(hf_price_worst(prices[p], input, 3, &most_tokens, &most_cost));
            for (uint64_t cached = 0; cached <= input; cached++) {
                for (uint64_t cache_write = 0; cached + cache_write <= input; cache_write++) {
                    uint64_t tokens;
                    uint64_t cost;

                    assert_true(hf_price_actual(prices[p], input, cached, cache_write, 3, &tokens, &cost));
                    assert_true(tokens <= most_tokens);
                    assert_true(cost <= most_cost);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worst_cases_of_the_scenarios),
        cmocka_unit_test(actual_costs_of_the_scenarios),
        cmocka_unit_test(cached_and_cache_write_together_are_at_most_the_input),
        cmocka_unit_test(nothing_leaves_the_range),
        cmocka_unit_test(no_split_exceeds_the_worst_case),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
