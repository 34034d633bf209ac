/* ctest: labels=valgrind */
#include "tools/common/histogram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static struct hf_histogram *empty(void)
{
    struct hf_histogram *histogram = calloc(1, sizeof(*histogram));

    assert_non_null(histogram);
    return histogram;
}

static void an_empty_one_is_all_zero(void **state)
{
    struct hf_histogram *h = empty();
    struct hf_histogram_summary sum = hf_histogram_summary(h);

    (void)state;
    assert_true(sum.cnt == 0 && sum.p50_ns == 0 && sum.p99_ns == 0 && sum.p999_ns == 0 && sum.max_ns == 0);
    free(h);
}

static void small_values_are_exact(void **state)
{
    struct hf_histogram *h = empty();

    (void)state;
    for (uint64_t ns = 1; ns <= 100; ns++) {
        hf_histogram_add(h, ns);
    }
    assert_int_equal(hf_histogram_cnt(h), 100);
    for (uint64_t part = 1; part <= 100; part++) {
        assert_int_equal(hf_histogram_at(h, part, 100), part);
    }
    /* ceil(100 * 991 / 1000) = 100, ceil(100 * 990 / 1000) = 99 */
    assert_int_equal(hf_histogram_at(h, 991, 1000), 100);
    assert_int_equal(hf_histogram_at(h, 990, 1000), 99);
    free(h);
}

/* Every value, alone in a histogram below a longer one, comes back at most 1/64 too high. */
static void large_values_are_at_most_a_64th_too_high(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 63; bit++) {
        for (uint64_t step = 0; step < 8; step++) {
            uint64_t ns = (UINT64_C(1) << bit) + step * ((UINT64_C(1) << bit) / 8) - (step == 7 ? 1 : 0);
            struct hf_histogram *h = empty();

            hf_histogram_add(h, ns);
            hf_histogram_add(h, UINT64_MAX);

            uint64_t got = hf_histogram_at(h, 1, 2);

            assert_true(got >= ns);
            assert_true(got - ns <= ns / 64);
            free(h);
        }
    }
}

static void the_ends_of_the_range_are_taken(void **state)
{
    struct hf_histogram *h = empty();

    (void)state;
    hf_histogram_add(h, 0);
    assert_int_equal(hf_histogram_at(h, 1, 1), 0);
    hf_histogram_add(h, UINT64_MAX);
    assert_int_equal(hf_histogram_at(h, 1, 2), 0);
    assert_true(hf_histogram_at(h, 1, 1) == UINT64_MAX);
    assert_int_equal(h->bucket_cnt[HF_HISTOGRAM_BUCKET_CNT - 1], 1);
    free(h);
}

static void a_percentile_is_never_above_the_longest(void **state)
{
    struct hf_histogram *h = empty();

    (void)state;
    hf_histogram_add(h, 1000000);
    assert_int_equal(hf_histogram_at(h, 1, 2), 1000000);
    assert_int_equal(hf_histogram_summary(h).p999_ns, 1000000);
    free(h);
}

static void merged_ones_count_like_one(void **state)
{
    struct hf_histogram *a = empty(), *b = empty(), *all = empty();
    uint64_t random = 88172645463325252;

    (void)state;
    for (int i = 0; i < 10000; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;

        uint64_t ns = random >> (random % 64);

        hf_histogram_add(i % 3 == 0 ? a : b, ns);
        hf_histogram_add(all, ns);
    }
    hf_histogram_merge(a, b);
    assert_memory_equal(a, all, sizeof(*all));
    assert_int_equal(hf_histogram_cnt(a), 10000);
    free(a);
    free(b);
    free(all);
}

static void p999_is_the_tail_and_not_the_middle(void **state)
{
    struct hf_histogram *h = empty();

    (void)state;
    for (int i = 0; i < 9989; i++) {
        hf_histogram_add(h, 100);
    }
    for (int i = 0; i < 11; i++) {
        hf_histogram_add(h, 64000);
    }

    struct hf_histogram_summary sum = hf_histogram_summary(h);

    assert_int_equal(sum.p50_ns, 100);
    assert_int_equal(sum.p99_ns, 100);
    assert_int_equal(sum.p999_ns, 64000);
    assert_int_equal(sum.max_ns, 64000);
    free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_one_is_all_zero),
        cmocka_unit_test(small_values_are_exact),
        cmocka_unit_test(large_values_are_at_most_a_64th_too_high),
        cmocka_unit_test(the_ends_of_the_range_are_taken),
        cmocka_unit_test(a_percentile_is_never_above_the_longest),
        cmocka_unit_test(merged_ones_count_like_one),
        cmocka_unit_test(p999_is_the_tail_and_not_the_middle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
