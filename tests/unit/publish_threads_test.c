/* ctest: labels=threads */
/* Published meters beside their readers: a reader never gets two publications in one copy (edge E19). */
#include "core/meter.h"
#include "persist/publish.h"
#include "tests/support/quota.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define READERS     2
#define HOLD_MICROS 7
#ifdef __SANITIZE_THREAD__
#define RECEIPTS 20000U
#else
#define RECEIPTS 2000000U
#endif

struct reader {
    pthread_t thread;
    const struct hf_segment *seg;
    const uint32_t *done;
    uint64_t reads_cnt;
    uint64_t mixed_cnt;
    uint64_t back_cnt;
};

/* Each receipt adds one request and HOLD_MICROS, so every whole publication has them in that ratio. */
static void *read_meter(void *arg)
{
    struct reader *reader = arg;
    int64_t last = 0;

    while (hf_load_acq_u32(reader->done) == 0) {
        struct hf_shm_meter meter;

        if (!hf_meter_read(reader->seg, 0, &meter)) {
            continue;
        }
        reader->reads_cnt++;
        reader->mixed_cnt += meter.mtr_reserved_micros != meter.mtr_requests * HOLD_MICROS;
        reader->back_cnt += meter.mtr_requests < last;
        last = meter.mtr_requests;
    }
    return NULL;
}

static void readers_see_whole_publications(void **state)
{
    const struct hf_log log = {NULL, NULL};
    const uint32_t rows[HF_SHM_LAYERS] = {HF_SHM_NONE, HF_SHM_NONE, HF_SHM_NONE};
    struct hf_test_quota quota;
    struct reader readers[READERS];
    struct hf_receipt receipt;
    uint32_t done = 0;

    (void)state;
    hf_test_quota_make(&quota, hf_test_policy(), 64);
    struct hf_publish *publish = hf_publish_open(quota.seg, &log);

    assert_non_null(publish);
    hf_receipt_init(&receipt, HF_RECEIPT_RESERVATION);
    assert_true(hf_name_set(&receipt.tenant, "t", 1));
    assert_true(hf_name_set(&receipt.team, "u", 1));
    assert_true(hf_name_set(&receipt.capability, "c", 1));
    receipt.held_cost_micros = HOLD_MICROS;
    receipt.window_ms = HF_TEST_NOW_MS;
    receipt.bucket_mask = 0;
    hf_publish_receipt(publish, &receipt, rows);
    for (size_t i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.seg = quota.seg, .done = &done};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_meter, &readers[i]), 0);
    }
    for (uint32_t i = 1; i < RECEIPTS; i++) {
        hf_publish_receipt(publish, &receipt, rows);
    }
    hf_store_rel_u32(&done, 1);
    for (size_t i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
        assert_int_equal(readers[i].mixed_cnt, 0);
        assert_int_equal(readers[i].back_cnt, 0);
        print_message("reader %zu: %llu copies\n", i, (unsigned long long)readers[i].reads_cnt);
    }
    struct hf_shm_meter meter;

    assert_true(hf_meter_read(quota.seg, 0, &meter));
    assert_int_equal(meter.mtr_requests, RECEIPTS);
    assert_int_equal(meter.mtr_reserved_micros, (int64_t)RECEIPTS * HOLD_MICROS);
    hf_publish_close(publish);
    hf_test_quota_free(&quota);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(readers_see_whole_publications)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
