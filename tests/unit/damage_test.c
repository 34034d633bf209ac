/* Damage that life.flip found, each by itself: what is read from the segment is checked before it leads anywhere. */
#include "core/lookup.h"
#include "persist/publish.h"
#include "shm/clock.h"
#include "tests/support/daemon.h"
#include "tests/support/quota.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int setup(void **state)
{
    struct hf_test_daemon *daemon = calloc(1, sizeof *daemon);

    *state = daemon;
    if (daemon == NULL)
        return -1;
    hf_test_daemon_prepare(daemon, hf_test_policy(), false);
    hf_test_daemon_open(daemon);
    return 0;
}

static int teardown(void **state)
{
    hf_test_daemon_close(*state);
    hf_test_daemon_clean(*state);
    free(*state);
    return 0;
}

static void reserve(struct hf_test_daemon *daemon, const char *id)
{
    struct holdfast_answer answer;

    assert_int_equal(hf_test_reserve(daemon->handle, id, "u", NULL, 10, 20, &answer), HOLDFAST_OK);
}

/* Bits of a word that stand for no slot of the chunk, above all behind the last one. */
static void dirty_marks_of_no_slot(void **state)
{
    struct hf_test_daemon *daemon = *state;
    struct hf_segment *seg = daemon->seg;
    struct hf_receipt rows[4];

    assert_true(seg->chunk_slots < 64);
    hf_test_daemon_drain(daemon);
    reserve(daemon, "a");
    for (uint32_t i = 0; i < seg->chunks_cnt; i++)
        memset(seg->chunks[i].chunk_dirty, 0xff, sizeof(seg->chunks[i].chunk_dirty)); /* plain: quiesced */
    hf_test_daemon_drain(daemon);
    assert_int_equal(hf_test_daemon_receipts(daemon, "a", rows, 4), 1);
}

/* The descriptor of a batch in flight names slots that there are not. */
static void batch_of_no_slot(void **state)
{
    struct hf_test_daemon *daemon = *state;
    struct hf_segment *seg = daemon->seg;
    struct hf_receipt rows[4];
    sqlite3 *other = NULL;

    hf_test_daemon_drain(daemon);
    reserve(daemon, "a");
    assert_int_equal(sqlite3_open(daemon->store_url + strlen("sqlite:"), &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(hf_serve_cycle(daemon->serve), HF_DRAIN_WAITING);
    for (uint32_t i = 0; i < 2; i++) {
        seg->batches[i].bat_entries[0].bat_slot |= HF_SHM_SLOTS_MAX - 1U;
        seg->batches[i].bat_entries_cnt = UINT64_MAX;
    }
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    hf_test_daemon_drain(daemon);
    /* The slot that the entry no longer named owes its receipt still, and may have made it again by now. */
    assert_true(hf_test_daemon_receipts(daemon, "a", rows, 4) >= 1);
}

/* Amounts that no policy can say, in the tables of one: a sum of them would leave 63 bits. */
static void policy_beyond_the_range(void **state)
{
    struct hf_test_quota quota;
    struct holdfast_answer answer;

    (void)state;
    for (int which = 0; which < 3; which++) {
        hf_test_quota_make(&quota, hf_test_policy(), 64);
        uint8_t *region = quota.seg->policies + quota.seg->policy_bytes; /* generation 1 */
        const struct hf_shm_policy *policy = (const void *)region;
        struct hf_shm_row_policy *rows = (void *)(region + policy->pol_rows_off);
        struct hf_shm_cap *caps = (void *)(region + policy->pol_caps_off);

        for (uint32_t i = 0; i < policy->pol_rows_cnt && which == 0; i++)
            rows[i].rpl_limits[3][2] = (UINT64_C(1) << 63) + 5;
        for (uint32_t i = 0; i < policy->pol_rows_cnt && which == 1; i++)
            rows[i].rpl_overdraft_micros = UINT64_MAX - 1;
        for (uint32_t i = 0; i < policy->pol_caps_cnt && which == 2; i++)
            caps[i].cap_micros = (UINT64_C(1) << 63) + 5;
        assert_int_equal(hf_test_reserve(quota.handles[0], "a", "u", NULL, 10, 20, &answer),
                         HOLDFAST_CORRUPT);
        hf_test_quota_free(&quota);
    }
}

/* The count of names goes back for ever, and each name that follows finds a place: the table of the daemon fills up. */
static void names_without_end(void **state)
{
    static const uint32_t rows[HF_SHM_LAYERS] = {HF_SHM_NONE, HF_SHM_NONE, HF_SHM_NONE};
    static struct hf_receipt receipt;
    struct hf_test_quota quota;
    struct hf_log log = {0};
    char name[32];

    (void)state;
    hf_test_quota_make(&quota, hf_test_policy(), 64);
    struct hf_publish *publish = hf_publish_open(quota.seg, &log);
    uint32_t names_cnt = quota.seg->header->hdr_names_cnt;

    assert_non_null(publish);
    hf_receipt_init(&receipt, HF_RECEIPT_RESERVATION);
    assert_true(hf_name_set(&receipt.tenant, "t", 1));
    for (uint32_t i = 0; i < 5 * quota.seg->names_max; i++) {
        quota.seg->header->hdr_names_cnt = names_cnt;
        int bytes = snprintf(name, sizeof name, "name-%u", i);

        assert_true(hf_name_set(&receipt.capability, name, (size_t)bytes));
        hf_publish_receipt(publish, &receipt,
                           rows); /* and does not come back, once there is no empty place */
    }
    hf_publish_close(publish);
    hf_test_quota_free(&quota);
}

/* The policy's table gives numbers to names that are no names' numbers. */
static void names_of_no_number(void **state)
{
    static const uint32_t rows[HF_SHM_LAYERS] = {HF_SHM_NONE, HF_SHM_NONE, HF_SHM_NONE};
    static struct hf_receipt receipt;
    struct hf_test_quota quota;
    struct hf_log log = {0};

    (void)state;
    hf_test_quota_make(&quota, hf_test_policy(), 64);
    struct hf_publish *publish = hf_publish_open(quota.seg, &log);
    uint8_t *region = quota.seg->policies + quota.seg->policy_bytes; /* generation 1 */
    const struct hf_shm_policy *policy = (const void *)region;
    struct hf_shm_lookup *entries = (void *)(region + policy->pol_lookup_off);
    uint32_t damaged = 0;

    assert_non_null(publish);
    for (uint32_t i = 0; i <= policy->pol_lookup_mask; i++) {
        if (entries[i].lku_kind == HF_LOOKUP_NAME) {
            entries[i].lku_value = 0x7ffffff0U;
            damaged++;
        }
    }
    assert_true(damaged > 0);
    hf_receipt_init(&receipt, HF_RECEIPT_RESERVATION);
    assert_true(hf_name_set(&receipt.tenant, "t", 1) && hf_name_set(&receipt.capability, "c", 1));
    for (int i = 0; i < 2; i++)
        hf_publish_receipt(publish, &receipt, rows); /* the second time it looks at what the first found */
    hf_publish_close(publish);
    hf_test_quota_free(&quota);
}

/* What the last receipt said of a hold, beyond every amount: nothing is told of such a slot. */
static void written_beyond_the_range(void **state)
{
    struct hf_test_daemon *daemon = *state;
    struct hf_receipt rows[4];

    reserve(daemon, "a");
    hf_test_daemon_drain(daemon);
    for (uint32_t i = 0; i < daemon->seg->slots_cnt; i++)
        daemon->seg->slots[i].slot_written_tokens = UINT64_C(1) << 63; /* plain: quiesced */
    for (uint32_t i = 0; i < daemon->seg->chunks_cnt; i++)
        memset(daemon->seg->chunks[i].chunk_dirty, 0xff, sizeof(daemon->seg->chunks[i].chunk_dirty));
    (void)hf_serve_cycle(daemon->serve);
    assert_int_equal(hf_test_daemon_receipts(daemon, "a", rows, 4), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(dirty_marks_of_no_slot, setup, teardown),
        cmocka_unit_test_setup_teardown(batch_of_no_slot, setup, teardown),
        cmocka_unit_test_setup_teardown(written_beyond_the_range, setup, teardown),
        cmocka_unit_test(policy_beyond_the_range),
        cmocka_unit_test(names_without_end),
        cmocka_unit_test(names_of_no_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
