/* Windows of time against a calendar that is walked day by day. */
#include "core/window.h"

#include "core/amount.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define DAY_MS UINT64_C(86400000)

static uint32_t days_in_month(uint32_t year, uint32_t month)
{
    static const uint32_t days[12] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    uint32_t leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return days[month] + (month == 1 ? leap : 0);
}

/* Each day from 1970-01-01 to 2400-12-31 lies in the month that counting days says, from its first to its last ms. */
static void every_month_to_the_year_2400(void **state)
{
    uint64_t day = 0;
    uint32_t month = 0;

    (void)state;
    for (uint32_t year = 1970; year <= 2400; year++) {
        for (uint32_t m = 0; m < 12; m++, month++) {
            assert_int_equal(hf_window_start_ms(HF_WINDOW_MONTH, month), day * DAY_MS);
            for (uint32_t d = 0; d < days_in_month(year, m); d++, day++) {
                assert_int_equal(hf_window_id(HF_WINDOW_MONTH, day * DAY_MS), month);
                assert_int_equal(hf_window_id(HF_WINDOW_MONTH, day * DAY_MS + DAY_MS - 1), month);
            }
            assert_int_equal(hf_window_end_ms(HF_WINDOW_MONTH, month), day * DAY_MS);
        }
    }
    assert_int_equal(day * DAY_MS - 1, HF_CLOCK_MS_MAX);
}

static void even_windows_begin_and_end_with_their_id(void **state)
{
    static const uint64_t lengths_ms[] = {60000, 3600000, 86400000};
    static const enum hf_window kinds[] = {HF_WINDOW_MINUTE, HF_WINDOW_HOUR, HF_WINDOW_DAY};

    (void)state;
    for (size_t k = 0; k < 3; k++) {
        for (uint64_t id = 0; id <= HF_CLOCK_MS_MAX / lengths_ms[k]; id += id < 100000 ? 1 : 9973) {
            uint64_t start_ms = id * lengths_ms[k];

            assert_int_equal(hf_window_start_ms(kinds[k], (uint32_t)id), start_ms);
            assert_int_equal(hf_window_end_ms(kinds[k], (uint32_t)id), start_ms + lengths_ms[k]);
            assert_int_equal(hf_window_id(kinds[k], start_ms), id);
            assert_int_equal(hf_window_id(kinds[k], start_ms + lengths_ms[k] - 1), id);
        }
    }
}

static void lifetime_starts_at_0_and_never_ends(void **state)
{
    (void)state;
    assert_int_equal(hf_window_id(HF_WINDOW_LIFETIME, 0), 0);
    assert_int_equal(hf_window_id(HF_WINDOW_LIFETIME, HF_CLOCK_MS_MAX), 0);
    assert_int_equal(hf_window_start_ms(HF_WINDOW_LIFETIME, 0), 0);
    assert_true(hf_window_end_ms(HF_WINDOW_LIFETIME, 0) == HF_UNKNOWN);
}

static void all_at_once_is_each_alone(void **state)
{
    (void)state;
    for (uint64_t now_ms = 0; now_ms <= HF_CLOCK_MS_MAX; now_ms += UINT64_C(6311520011)) {
        uint32_t ids[HF_WINDOW_CNT];

        hf_window_ids(now_ms, ids);
        for (int kind = 0; kind < HF_WINDOW_CNT; kind++) {
            assert_int_equal(ids[kind], hf_window_id((enum hf_window)kind, now_ms));
            assert_true(hf_window_start_ms((enum hf_window)kind, ids[kind]) <= now_ms);
            assert_true(hf_window_end_ms((enum hf_window)kind, ids[kind]) > now_ms);
        }
    }
}

static void ids_fit_28_bits_to_the_end_of_the_clock(void **state)
{
    uint32_t ids[HF_WINDOW_CNT];

    (void)state;
    hf_window_ids(HF_CLOCK_MS_MAX, ids);
    for (int kind = 0; kind < HF_WINDOW_CNT; kind++) {
        assert_true(ids[kind] < UINT32_C(1) << HF_WINDOW_ID_BITS);
    }
    assert_int_equal(ids[HF_WINDOW_MINUTE], 226684799);
    assert_int_equal(ids[HF_WINDOW_MONTH], 431 * 12 - 1);
}

/* Dates looked up elsewhere: conformance files 05, 34 and 37, and the field report of the leap day. */
static void known_dates(void **state)
{
    (void)state;
    /* 2026-11-02 12:59:59 UTC */
    assert_int_equal(hf_window_id(HF_WINDOW_MONTH, UINT64_C(1793624399000)), 56 * 12 + 10);
    assert_int_equal(hf_window_start_ms(HF_WINDOW_MONTH, 56 * 12 + 10), UINT64_C(1793491200000));
    assert_int_equal(hf_window_end_ms(HF_WINDOW_MONTH, 56 * 12 + 10), UINT64_C(1796083200000));
    assert_int_equal(hf_window_start_ms(HF_WINDOW_DAY, hf_window_id(HF_WINDOW_DAY, UINT64_C(1793624399000))),
                     UINT64_C(1793577600000));
    /* 2028-02-29 belongs to February, 2028-03-01 does not */
    assert_int_equal(hf_window_id(HF_WINDOW_MONTH, UINT64_C(1835395200000)), 58 * 12 + 1);
    assert_int_equal(hf_window_id(HF_WINDOW_MONTH, UINT64_C(1835481599999)), 58 * 12 + 1);
    assert_int_equal(hf_window_id(HF_WINDOW_MONTH, UINT64_C(1835481600000)), 58 * 12 + 2);
    /* 2100 has no leap day: 2100-02-28T23:59:59.999Z is the last ms of February */
    assert_int_equal(hf_window_end_ms(HF_WINDOW_MONTH, 130 * 12 + 1), UINT64_C(4107542400000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_month_to_the_year_2400),
        cmocka_unit_test(even_windows_begin_and_end_with_their_id),
        cmocka_unit_test(lifetime_starts_at_0_and_never_ends),
        cmocka_unit_test(all_at_once_is_each_alone),
        cmocka_unit_test(ids_fit_28_bits_to_the_end_of_the_clock),
        cmocka_unit_test(known_dates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
