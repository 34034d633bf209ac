/* ctest: labels=store timeout=120 */
/* When rollups are made: in small steps, across restarts, and again after a failure. */
#include "persist/roller.h"
#include "persist/verify.h"
#include "tests/support/quota.h"
#include "tests/support/store_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SEGMENT "gateway"
#define ROWS    8190U /* what a drain puts into a batch */

static struct {
    char folder[64];
    char url[128];
    struct hf_test_quota quota;
    struct hf_store *store;
    struct cases_chain chain;
    struct hf_roller roller;
    struct hf_receipt *rows;
    unsigned made_cnt;
    unsigned warnings;
    struct hf_log log;
} t;

static void count_warning(void *ctx, enum hf_log_level level, const char *text)
{
    (void)ctx;
    (void)text;
    t.warnings += level == HF_LOG_WARNING;
}

static int open_all(void **state)
{
    const struct hf_store_options options = {.durability = HF_STORE_OFF};
    struct hf_store_error error = {""};

    (void)state;
    memset(&t, 0, sizeof(t));
    (void)snprintf(t.folder, sizeof(t.folder), "/tmp/hf_roller_XXXXXX");
    assert_non_null(mkdtemp(t.folder));
    (void)snprintf(t.url, sizeof(t.url), "sqlite:%s/store.db", t.folder);
    assert_int_equal(hf_store_init(t.url, &options, &error), HF_STORE_OK);
    assert_int_equal(hf_store_open(t.url, &options, &t.store, &error), HF_STORE_OK);
    assert_int_equal(hf_store_lock(t.store, SEGMENT, &error), HF_STORE_OK);
    hf_test_quota_make(&t.quota, hf_test_policy(), 64);
    cases_chain_start(&t.chain, t.store);
    t.rows = calloc(ROWS, sizeof(*t.rows));
    assert_non_null(t.rows);
    t.log = (struct hf_log){count_warning, NULL};
    return 0;
}

static int close_all(void **state)
{
    char command[128];

    (void)state;
    hf_roller_forget(&t.roller);
    hf_store_close(t.store);
    hf_test_quota_free(&t.quota);
    free(t.rows);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", t.folder);
    return system(command); /* NOLINT: the test's own folder */
}

/* Reservations and their settlements; the header of the segment goes with it. */
static void commit(unsigned cnt)
{
    for (unsigned i = 0; i < cnt; i++) {
        char id[32];

        (void)snprintf(id, sizeof(id), "id-%u", t.made_cnt / 2);
        (t.made_cnt++ % 2 == 0 ? cases_reservation : cases_settlement)(&t.rows[i], id);
    }
    if (cases_chain_commit(&t.chain, t.rows, cnt) != HF_STORE_OK) {
        fail_msg("%s", t.chain.error.text);
    }
    t.quota.seg->header->hdr_next_seq = t.chain.next_seq;
}

static void step(uint64_t mono_ms)
{
    hf_roller_step(&t.roller, t.quota.seg, t.store, SEGMENT, mono_ms, &t.log);
}

static struct hf_rollup newest(void)
{
    struct hf_rollup rollup;
    struct hf_store_error error = {""};

    assert_int_equal(hf_rollup_newest(t.store, SEGMENT, &rollup, &error), HF_STORE_OK);
    return rollup;
}

static void small_steps_after_a_restart(void **state)
{
    unsigned steps = 0;

    (void)state;
    step(1);
    for (unsigned i = 0; i < 5; i++) {
        commit(ROWS);
        hf_tally_batch(&t.roller.tally, &t.chain.batch, t.rows);
        step(1);
        assert_int_equal(t.roller.tally.next_seq, t.chain.next_seq); /* nothing is left to be read */
    }
    hf_roller_forget(&t.roller); /* the daemon is another one */
    for (unsigned i = 5; i < 8; i++) {
        uint64_t before = t.roller.tally.next_seq;

        commit(ROWS);
        hf_tally_batch(&t.roller.tally, &t.chain.batch, t.rows); /* follows nothing that is known */
        step(1);
        /* What came meanwhile, and one more. */
        assert_true(t.roller.tally.next_seq - before <= 2 * ROWS + 1);
    }
    assert_true(t.roller.tally.next_seq < t.chain.next_seq);
    commit(20); /* 65,540: one is due */
    assert_true(hf_rollup_due(&t.roller.tally.before, t.chain.next_seq));
    while (newest().number == 0) {
        uint64_t before = t.roller.tally.next_seq;

        assert_true(++steps < 8);
        step(1);
        assert_true(t.roller.tally.next_seq - before <= ROWS + 20);
    }
    struct hf_rollup made = newest();

    assert_int_equal(made.first_seq, 1);
    assert_int_equal(made.next_seq, t.chain.next_seq);
    assert_int_equal(made.parts_cnt, t.roller.tally.before.parts_cnt);
    assert_true(steps > 1);
    assert_true(hf_tally_empty(&t.roller.tally));
    step(1);
    assert_int_equal(newest().number, 1);
    assert_int_equal(t.warnings, 0);

    /* And it is right, by sums of verify's own. */
    const struct hf_verify_options options = {.rollups = true};
    struct hf_verify_report report;
    struct hf_store_error error = {""};

    assert_int_equal(hf_verify(t.store, &options, &report, &error), HF_STORE_OK);
    assert_int_equal(report.findings_cnt, 0);
    assert_int_equal(report.rollups_cnt, 1);
}

/* When no more fits, what there is becomes a rollup, long before one is due: else all that comes would be read again later. */
static void a_full_tally_is_written(void **state)
{
    (void)state;
    step(1);
    commit(20);
    hf_tally_batch(&t.roller.tally, &t.chain.batch, t.rows);
    step(1);
    assert_int_equal(newest().number, 0);
    t.roller.tally.full = true;
    step(1);
    assert_int_equal(newest().number, 1);
    assert_int_equal(newest().next_seq, t.chain.next_seq);
    assert_false(t.roller.tally.full);
    assert_int_equal(t.warnings, 0);
}

/* Receipts whose sums nothing can hold: it says so, leaves receipts alone, and comes again ten seconds later. */
static void a_failure_is_said_and_tried_again(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 130; i++) {
        cases_settlement(&t.rows[i], "id");
        t.rows[i].actual_cost_micros = HF_AMOUNT_MAX;
    }
    assert_int_equal(cases_chain_commit(&t.chain, t.rows, 130), HF_STORE_OK);
    t.quota.seg->header->hdr_next_seq = t.chain.next_seq;
    step(1000);
    assert_int_equal(t.warnings, 1);
    assert_false(t.roller.tally.started);
    step(10999);
    assert_int_equal(t.warnings, 1);
    assert_false(t.roller.tally.started);
    step(11000);
    assert_int_equal(t.warnings, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(small_steps_after_a_restart, open_all, close_all),
        cmocka_unit_test_setup_teardown(a_full_tally_is_written, open_all, close_all),
        cmocka_unit_test_setup_teardown(a_failure_is_said_and_tried_again, open_all, close_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
