/* ctest: timeout=120 */
/* A daemon on a segment in a file: the next one goes on where the one before was, at whatever step it was killed. */
#include "core/slot.h"
#include "persist/batch.h"
#include "persist/clockkeeper.h"
#include "shm/clock.h"
#include "tests/support/daemon.h"
#include "tests/support/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct hf_test_daemon daemon_;

static int open_daemon(void **state)
{
    (void)state;
    hf_test_daemon_prepare(&daemon_, hf_test_policy(), true);
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

static void reserve(const char *id, const char *team, uint64_t tokens, uint64_t cost)
{
    struct holdfast_answer answer;

    assert_int_equal(hf_test_reserve(daemon_.handle, id, team, NULL, tokens, cost, &answer), HOLDFAST_OK);
}

static void settle(const char *id, uint64_t input, uint64_t output, uint64_t cost)
{
    struct holdfast_closing closing;

    assert_int_equal(hf_test_settle(daemon_.handle, id, input, output, cost, &closing), HOLDFAST_OK);
}

static void expect_limit(uint64_t held, uint64_t settled)
{
    struct holdfast_limit limit =
        hf_test_daemon_limit(&daemon_, "t", "u", NULL, HOLDFAST_WINDOW_MONTH, HOLDFAST_COST_MICROS);

    assert_int_equal(limit.held, held);
    assert_int_equal(limit.settled, settled);
}

static void the_next_daemon_goes_on(void **state)
{
    struct hf_receipt rows[4];

    (void)state;
    reserve("a", "u", 100, 500);
    hf_test_daemon_drain(&daemon_);
    reserve("b", "u", 100, 300);
    hf_test_daemon_drop(&daemon_);
    settle("a", 1, 1, 20);
    reserve("c", "u", 100, 200);
    hf_test_daemon_open(&daemon_);
    assert_null(hf_serve_recovered(daemon_.serve));
    assert_non_null(strstr(daemon_.log, "going on with the segment of epoch 1"));
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "a", rows, 4), 2);
    assert_int_equal(rows[1].reservation_seq, rows[0].seq);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "b", rows, 4), 1);
    assert_int_equal(rows[0].policy_revision, 1);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "c", rows, 4), 1);
    expect_limit(500, 20);
    assert_int_equal(hf_test_daemon_totals(&daemon_).conflicts_cnt, 0);
}

/* What the daemon had when it was killed after the commit of a batch and before it marked the slots. */
static void forget_last_batch(uint32_t marks_left)
{
    struct hf_segment *seg = daemon_.seg;
    struct hf_shm_header *header = seg->header;
    struct hf_shm_batch *desc = &seg->batches[header->hdr_batch_number & 1U];

    desc->bat_number = header->hdr_batch_number;
    for (uint32_t i = marks_left; i < desc->bat_entries_cnt; i++) {
        seg->slots[hf_batch_slot(&desc->bat_entries[i])].slot_persisted = 0;
    }
    header->hdr_batch_number--;
    header->hdr_next_seq = desc->bat_first_seq;
    memcpy(header->hdr_batch_digest, desc->bat_before, sizeof(desc->bat_before));
}

static void a_batch_committed_and_not_marked_is_not_written_again(void **state)
{
    struct hf_receipt rows[4];

    (void)state;
    for (uint32_t left = 0; left <= 2; left++) {
        char a[8];
        char b[8];

        (void)snprintf(a, sizeof(a), "a%u", left);
        (void)snprintf(b, sizeof(b), "b%u", left);
        reserve(a, "u", 10, 50);
        reserve(b, "u", 10, 30);
        settle(a, 1, 1, 20);
        hf_test_daemon_drain(&daemon_);
        forget_last_batch(left);
        hf_test_daemon_drop(&daemon_);
        settle(b, 1, 1, 7);
        hf_test_daemon_open(&daemon_);
        hf_test_daemon_drain(&daemon_);
        assert_int_equal(hf_test_daemon_receipts(&daemon_, a, rows, 4), 2);
        assert_int_equal(hf_test_daemon_receipts(&daemon_, b, rows, 4), 2);
        expect_limit(0, (left + 1) * 27);
    }
    assert_int_equal(hf_test_daemon_totals(&daemon_).conflicts_cnt, 0);
}

/* The header had the digest and the next receipt already, or all of it, and the descriptor was not cleared. */
static void a_half_written_header_is_completed(void **state)
{
    struct hf_receipt rows[4];
    struct hf_shm_header *header = daemon_.seg->header;

    (void)state;
    reserve("a", "u", 10, 50);
    hf_test_daemon_drain(&daemon_);
    daemon_.seg->batches[header->hdr_batch_number & 1U].bat_number = header->hdr_batch_number;
    header->hdr_batch_number--;
    hf_test_daemon_drop(&daemon_);
    hf_test_daemon_open(&daemon_);
    header = daemon_.seg->header;
    settle("a", 1, 1, 20);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "a", rows, 4), 2);
    daemon_.seg->batches[header->hdr_batch_number & 1U].bat_number = header->hdr_batch_number;
    hf_test_daemon_drop(&daemon_);
    hf_test_daemon_open(&daemon_);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "a", rows, 4), 2);
}

/* Announced, and never sent. */
static void a_batch_announced_and_not_committed_is_written(void **state)
{
    struct hf_receipt rows[4];

    (void)state;
    reserve("a", "u", 10, 50);
    hf_test_daemon_drain(&daemon_);
    struct hf_segment *seg = daemon_.seg;
    struct hf_shm_batch *done = &seg->batches[seg->header->hdr_batch_number & 1U];
    struct hf_shm_batch *next = &seg->batches[(seg->header->hdr_batch_number + 1) & 1U];

    reserve("b", "u", 10, 30);
    *next = *done;
    next->bat_number = seg->header->hdr_batch_number + 1;
    next->bat_first_seq = seg->header->hdr_next_seq;
    hf_test_daemon_drop(&daemon_);
    hf_test_daemon_open(&daemon_);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "a", rows, 4), 1);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "b", rows, 4), 1);
}

static enum hf_serve_status try_open(const struct hf_serve_options *options, struct hf_error *err)
{
    struct hf_policy_report report = {0};
    struct hf_serve *serve = NULL;
    enum hf_serve_status status = hf_serve_open(options, &serve, &report, err);

    assert_null(serve);
    hf_policy_report_free(&report);
    return status;
}

static void a_second_daemon_is_refused(void **state)
{
    struct hf_serve_options options = daemon_.options;
    struct hf_error err = {.text = ""};
    char other[256];

    (void)state;
    /* Of the store name, whatever the segment. */
    (void)snprintf(other, sizeof(other), "%s/another", daemon_.folder);
    options.segment = other;
    assert_int_equal(try_open(&options, &err), HF_SERVE_LOCKED);
    assert_non_null(strstr(err.text, "another daemon"));
    /* Of the segment, whatever the store name. */
    options = daemon_.options;
    options.store_name = "other";
    assert_int_equal(try_open(&options, &err), HF_SERVE_REFUSED);
    assert_non_null(strstr(err.text, "--store-name test"));
    reserve("a", "u", 10, 50);
}

static void what_does_not_fit_is_refused_with_a_sentence(void **state)
{
    struct hf_serve_options options = daemon_.options;
    struct hf_error err = {.text = ""};

    (void)state;
    hf_test_daemon_drop(&daemon_);
    options.injected = false;
    assert_int_equal(try_open(&options, &err), HF_SERVE_REFUSED);
    assert_non_null(strstr(err.text, "--clock-ms"));
    options = daemon_.options;
    options.store_url = "sqlite:/nonexistent/holdfast.db";
    assert_int_not_equal(try_open(&options, &err), HF_SERVE_OK);
    assert_true(err.text[0] != '\0');
    options = daemon_.options;
    options.policy_path = "/nonexistent/policy.yaml";
    assert_int_equal(try_open(&options, &err), HF_SERVE_POLICY);
    hf_test_daemon_open(&daemon_);
    reserve("a", "u", 10, 50);
}

/* The segment's file is gone, its users live: no new epoch. Then they are gone. */
static void no_new_epoch_while_a_worker_of_the_old_one_lives(void **state)
{
    struct hf_error err = {.text = ""};

    (void)state;
    reserve("a", "u", 10, 50);
    hf_test_daemon_drain(&daemon_);
    hf_test_daemon_drop(&daemon_);
    assert_int_equal(unlink(daemon_.segment), 0);
    assert_int_equal(try_open(&daemon_.options, &err), HF_SERVE_RETRY);
    assert_non_null(strstr(err.text, "still lives"));
    holdfast_leave(daemon_.handle);
    holdfast_close(daemon_.shared);
    daemon_.handle = NULL;
    daemon_.shared = NULL;
    hf_test_daemon_open(&daemon_);
    assert_non_null(hf_serve_recovered(daemon_.serve));
    settle("a", 1, 1, 20);
    hf_test_daemon_drain(&daemon_);
    expect_limit(0, 20);
}

/* Another daemon went on under the name: this segment spends nothing any more. */
static void a_segment_that_was_overtaken_is_superseded(void **state)
{
    struct hf_test_daemon second = daemon_;
    struct hf_error err = {.text = ""};
    struct holdfast_answer answer;

    (void)state;
    reserve("a", "u", 10, 50);
    hf_test_daemon_drain(&daemon_);
    hf_test_daemon_drop(&daemon_);
    (void)snprintf(second.segment, sizeof(second.segment), "%s/second", daemon_.folder);
    second.options.segment = second.segment;
    second.options.log_ctx = &second;
    second.handle = NULL;
    second.shared = NULL;
    hf_test_daemon_open(&second);
    hf_test_daemon_close(&second);
    assert_int_equal(try_open(&daemon_.options, &err), HF_SERVE_REFUSED);
    assert_non_null(strstr(err.text, "superseded"));
    assert_int_not_equal(hf_test_reserve(daemon_.handle, "b", "u", NULL, 10, 50, &answer), HOLDFAST_OK);
    holdfast_leave(daemon_.handle);
    holdfast_close(daemon_.shared);
    daemon_.handle = NULL;
    daemon_.shared = NULL;
    /* Its users gone, a new one is made. */
    hf_test_daemon_open(&daemon_);
    assert_non_null(hf_serve_recovered(daemon_.serve));
    assert_int_equal(daemon_.seg->header->hdr_epoch, 3);
}

/* Overtaken while it runs: found at its next batch. */
static void a_running_daemon_that_was_overtaken_stops(void **state)
{
    struct hf_store *store = hf_serve_store(daemon_.serve);
    struct hf_store_error error;
    struct hf_store_batch batch = {0};
    struct hf_store_head head;
    struct hf_receipt row;
    struct holdfast_answer answer;

    (void)state;
    assert_int_equal(hf_store_head(store, "test", &head, &error), HF_STORE_OK);
    hf_receipt_init(&row, HF_RECEIPT_EPOCH);
    row.epoch = 9;
    row.seq = head.next_seq;
    row.made_ms = head.last.committed_ms;
    batch.number = head.last.number + 1;
    batch.epoch = 9;
    batch.first_seq = head.next_seq;
    batch.committed_ms = head.last.committed_ms;
    memcpy(batch.before, head.last.digest, sizeof(batch.before));
    assert_int_equal(hf_store_commit(store, &batch, &row, 1, NULL, &error), HF_STORE_OK);
    reserve("a", "u", 10, 50);
    assert_int_equal(hf_serve_cycle(daemon_.serve), HF_DRAIN_SUPERSEDED);
    assert_int_equal(hf_segment_state(daemon_.seg), HF_SEGMENT_SUPERSEDED);
    assert_int_not_equal(hf_test_reserve(daemon_.handle, "b", "u", NULL, 10, 50, &answer), HOLDFAST_OK);
    assert_int_equal(hf_serve_cycle(daemon_.serve), HF_DRAIN_SUPERSEDED);
}

static void copy_store(const char *to_ending, const char *from_ending)
{
    char command[600];

    /* Quiesced: no connection is open. */
    (void)snprintf(command, sizeof(command), "cd %s && rm -f store.db%s* && cp store.db%s store.db%s",
                   daemon_.folder, to_ending, from_ending, to_ending);
    if (to_ending[0] == '\0') {
        (void)snprintf(command, sizeof(command),
                       "cd %s && rm -f store.db-wal store.db-shm store.db && cp store.db%s store.db",
                       daemon_.folder, from_ending);
    }
    assert_int_equal(system(command), 0); /* NOLINT: the folder is the test's own */
}

/* a: committed before the backup. b: its reservation before, its closing after. c: all after. */
static void work_around_a_backup(void)
{
    struct holdfast_extension extension;
    struct holdfast_answer answer;

    reserve("a", "u", 10, 50);
    settle("a", 1, 1, 20);
    reserve("b", "u", 10, 30);
    hf_test_daemon_drain(&daemon_);
    hf_store_disconnect(hf_serve_store(daemon_.serve));
    copy_store(".old", "");
    holdfast_extension_init(&extension);
    extension.id = "b";
    extension.cost_micros = 40;
    assert_int_equal(holdfast_extend(daemon_.handle, &extension, &answer), HOLDFAST_OK);
    hf_test_daemon_drain(&daemon_);
    settle("b", 1, 1, 7);
    reserve("c", "u", 10, 500);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_test_daemon_totals(&daemon_).kinds_cnt[HF_RECEIPT_RESERVATION], 3);
}

static void expect_written_again(void)
{
    struct hf_receipt rows[4];
    struct hf_store_totals totals = hf_test_daemon_totals(&daemon_);

    assert_int_equal(hf_test_daemon_receipts(&daemon_, "a", rows, 4), 2);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "b", rows, 4), 3);
    assert_int_equal(rows[1].kind, HF_RECEIPT_EXTENSION);
    assert_int_equal(rows[1].held_cost_micros, 10);
    assert_int_equal(rows[2].reservation_seq, rows[0].seq);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "c", rows, 4), 1);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_EPOCH], 2);
    assert_int_equal(totals.conflicts_cnt, 0);
    assert_int_equal(totals.receipts_cnt, totals.batch_rows_cnt);
    assert_int_equal(daemon_.seg->header->hdr_alarms[HF_ALARM_COVERAGE_GAP], 1);
    assert_non_null(strstr(daemon_.log, "the store lost commits"));
    expect_limit(500, 27);
}

static void a_store_that_lost_commits_gets_them_again(void **state)
{
    uint32_t wait_ms;

    (void)state;
    work_around_a_backup();
    hf_store_disconnect(hf_serve_store(daemon_.serve));
    copy_store("", ".old");
    reserve("d", "u", 1, 1);
    for (int i = 0; i < 4; i++) {
        (void)hf_serve_step(daemon_.serve, &wait_ms);
    }
    settle("d", 1, 0, 0);
    hf_test_daemon_drain(&daemon_);
    expect_written_again();
}

static void a_daemon_that_finds_an_old_backup_writes_again(void **state)
{
    (void)state;
    work_around_a_backup();
    hf_test_daemon_drop(&daemon_);
    copy_store("", ".old");
    hf_test_daemon_open(&daemon_);
    hf_test_daemon_drain(&daemon_);
    expect_written_again();
}

/* The store lost exactly one batch, so that the receipt of the gap has the number of the last one that the segment knows. */
static void lose_one_batch(void)
{
    reserve("a", "u", 10, 50);
    hf_test_daemon_drain(&daemon_);
    hf_store_disconnect(hf_serve_store(daemon_.serve));
    copy_store(".old", "");
    settle("a", 1, 1, 20);
    hf_test_daemon_drain(&daemon_);
}

/* Killed between the commit of the gap's receipt and its adoption: the next one finds a batch under the number, its own. */
static void the_receipt_of_a_gap_is_known_again(void **state)
{
    uint8_t digest[32];

    (void)state;
    lose_one_batch();
    uint64_t number = daemon_.seg->header->hdr_batch_number;
    uint64_t next_seq = daemon_.seg->header->hdr_next_seq;

    memcpy(digest, daemon_.seg->header->hdr_batch_digest, sizeof(digest));
    hf_test_daemon_drop(&daemon_);
    copy_store("", ".old");
    hf_test_daemon_open(&daemon_);
    assert_int_equal(daemon_.seg->header->hdr_batch_number, number);
    assert_memory_not_equal(daemon_.seg->header->hdr_batch_digest, digest, sizeof(digest));
    /* As it is when the header was not written any more. */
    daemon_.seg->header->hdr_batch_number = number;
    daemon_.seg->header->hdr_next_seq = next_seq;
    memcpy(daemon_.seg->header->hdr_batch_digest, digest, sizeof(digest));
    hf_test_daemon_drop(&daemon_);
    hf_test_daemon_open(&daemon_);
    assert_int_equal(hf_segment_state(daemon_.seg), HF_SEGMENT_READY);
    hf_test_daemon_drain(&daemon_);
    struct hf_store_totals totals = hf_test_daemon_totals(&daemon_);

    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_EPOCH], 2); /* its own, and one gap */
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_RESERVATION], 1);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_SETTLEMENT], 1);
    assert_int_equal(totals.receipts_cnt, totals.batch_rows_cnt);
    assert_true(daemon_.seg->header->hdr_alarms[HF_ALARM_COVERAGE_GAP] >= 1);
    expect_limit(0, 20);
}

/* The same while it runs: the cycle that finds its own receipt goes on. */
static void a_running_daemon_knows_its_gap_again(void **state)
{
    uint8_t digest[32];

    (void)state;
    lose_one_batch();
    uint64_t number = daemon_.seg->header->hdr_batch_number;
    uint64_t next_seq = daemon_.seg->header->hdr_next_seq;

    memcpy(digest, daemon_.seg->header->hdr_batch_digest, sizeof(digest));
    hf_store_disconnect(hf_serve_store(daemon_.serve));
    copy_store("", ".old");
    reserve("b", "u", 1, 1);
    assert_int_equal(hf_serve_cycle(daemon_.serve), HF_DRAIN_WORKED);
    assert_memory_not_equal(daemon_.seg->header->hdr_batch_digest, digest, sizeof(digest));
    daemon_.seg->header->hdr_batch_number = number;
    daemon_.seg->header->hdr_next_seq = next_seq;
    memcpy(daemon_.seg->header->hdr_batch_digest, digest, sizeof(digest));
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_segment_state(daemon_.seg), HF_SEGMENT_READY);
    struct hf_store_totals totals = hf_test_daemon_totals(&daemon_);

    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_EPOCH], 2);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_RESERVATION], 2);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_SETTLEMENT], 1);
    expect_limit(1, 20);
}

/* As it was before anybody came. */
static void begin_the_store_again(void)
{
    struct hf_store_error error = {""};
    char path[256];

    for (int i = 0; i < 3; i++) {
        static const char *const endings[] = {"", "-wal", "-shm"};

        (void)snprintf(path, sizeof(path), "%s/store.db%s", daemon_.folder, endings[i]);
        (void)unlink(path);
    }
    assert_int_equal(hf_store_init(daemon_.store_url, NULL, &error), HF_STORE_OK);
}

/* A store that lost a whole epoch gave its number to another segment: the first one does not go on with the chain of that. */
static void an_epoch_of_the_same_number_is_not_ours(void **state)
{
    struct hf_test_daemon second = daemon_;
    struct hf_error err = {.text = ""};
    struct holdfast_answer answer;

    (void)state;
    for (int i = 0; i < 8; i++) {
        char id[8];

        (void)snprintf(id, sizeof(id), "a%d", i);
        reserve(id, "u", 10, 50);
        hf_test_daemon_drain(&daemon_);
    }
    uint64_t number = daemon_.seg->header->hdr_batch_number;

    hf_test_daemon_drop(&daemon_);
    begin_the_store_again();
    (void)snprintf(second.segment, sizeof(second.segment), "%s/second", daemon_.folder);
    second.options.segment = second.segment;
    second.options.log_ctx = &second;
    second.handle = NULL;
    second.shared = NULL;
    hf_test_daemon_open(&second);
    assert_int_equal(hf_test_reserve(second.handle, "b", "u", NULL, 10, 50, &answer), HOLDFAST_OK);
    hf_test_daemon_drain(&second);
    assert_int_equal(second.seg->header->hdr_epoch, 1);
    assert_true(second.seg->header->hdr_batch_number < number);
    hf_test_daemon_close(&second);
    assert_int_equal(try_open(&daemon_.options, &err), HF_SERVE_REFUSED);
    assert_non_null(strstr(err.text, "superseded"));
    assert_int_not_equal(hf_test_reserve(daemon_.handle, "c", "u", NULL, 10, 50, &answer), HOLDFAST_OK);
    holdfast_leave(daemon_.handle);
    holdfast_close(daemon_.shared);
    daemon_.handle = NULL;
    daemon_.shared = NULL;
    hf_test_daemon_open(&daemon_);
    assert_int_equal(daemon_.seg->header->hdr_epoch, 2);
}

/* A worker that died between FILLING and W: its slot comes back, nothing is held. */
static void half_made_slots_of_the_dead_are_freed(void **state)
{
    (void)state;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct holdfast *handle = NULL;

        if (holdfast_join(daemon_.shared, &handle) != HOLDFAST_OK) {
            _exit(1);
        }
        uint32_t filling = hf_chunk_take(handle->seg, &handle->chunks, handle->owner.ref);

        hf_slot_begin(&handle->seg->slots[filling], handle->owner.ref, 1);
        uint32_t pending = hf_chunk_take(handle->seg, &handle->chunks, handle->owner.ref);

        hf_slot_begin(&handle->seg->slots[pending], handle->owner.ref, 1);
        hf_slot_pending(&handle->seg->slots[pending]);
        _exit(filling != HF_SHM_NONE && pending != HF_SHM_NONE && filling != pending ? 0 : 2);
    }
    int status = 0;

    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
    uint32_t wait_ms;

    for (int i = 0; i < 4; i++) {
        (void)hf_serve_step(daemon_.serve, &wait_ms);
    }
    for (uint32_t i = 0; i < daemon_.seg->slots_cnt; i++) {
        assert_int_equal(hf_st_state(daemon_.seg->slots[i].slot_st), HF_STATE_FREE);
    }
    for (uint32_t i = 0; i < daemon_.seg->chunks_cnt; i++) {
        assert_int_equal(daemon_.seg->chunks[i].chunk_owner, 0);
    }
    assert_int_equal(daemon_.seg->header->hdr_alarms[HF_ALARM_ABANDONED], 2);
}

/* A worker that died behind W, on a tenant where nobody works: what it did is applied, and its receipt comes. */
static void what_the_dead_got_through_is_applied(void **state)
{
    struct hf_receipt rows[4];
    uint32_t wait_ms;

    (void)state;
    reserve("a", "u", 10, 50);
    hf_test_daemon_drain(&daemon_);
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct holdfast *handle = NULL;
        struct hf_found found;
        struct hf_u128 word;
        struct hf_op op;

        if (holdfast_join(daemon_.shared, &handle) != HOLDFAST_OK ||
            hf_slot_find(handle, "a", 1, 0, &found) != HF_INDEX_FOUND ||
            hf_commit_ready(handle->seg, found.slot->slot_tenant, &word) != HF_OK ||
            !hf_commit_describe(handle->seg, found.slot_idx, HF_KIND_RELEASE, hf_word_seq(word) + 1,
                                hf_word_time_ms(word), &op, NULL)) {
            _exit(1);
        }
        struct hf_u128 next = hf_word_make(op.seq, op.kind, op.slot_idx, hf_word_time_ms(word));

        _exit(hf_cas_acqrel_u128(&handle->seg->tenants[found.slot->slot_tenant].ten_word, word, next) ? 0
                                                                                                      : 2);
    }
    int status = 0;

    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "a", rows, 4), 1);
    (void)hf_serve_step(daemon_.serve, &wait_ms);
    hf_test_daemon_drain(&daemon_);
    assert_int_equal(hf_test_daemon_receipts(&daemon_, "a", rows, 4), 2);
    assert_int_equal(rows[1].kind, HF_RECEIPT_RELEASE);
    expect_limit(0, 0);
}

/* ---- the clock -------------------------------------------------------------------------------------------------- */

static struct hf_store_time reading(uint64_t store_ms, uint64_t mono_ms)
{
    return (struct hf_store_time){
        .now_us = store_ms * 1000, .mono_ns = mono_ms * 1000000, .uncertainty_ns = 500000};
}

static void jumps_of_the_clock_are_taken_after_a_minute(void **state)
{
    struct hf_clockkeeper keeper = {0};
    const struct hf_log silent = {0};
    struct hf_clock_published published;
    uint64_t mono = 1000000;
    uint64_t day = 86400000;
    uint64_t t = UINT64_C(1800000000000);
    struct hf_store_time time;

    (void)state;
    hf_test_daemon_close(&daemon_);
    daemon_.options.injected = false;
    assert_int_equal(unlink(daemon_.segment), 0);
    daemon_.options.store_name = "clock";
    hf_test_daemon_open(&daemon_);
    struct hf_segment *seg = daemon_.seg;

    /* This host's own time is far from these readings: the first one is a jump itself. */
    seg->header->clk_seq = 0;
    time = reading(t, mono);
    assert_true(hf_clockkeeper_take(&keeper, seg, &time, &silent));
    time = reading(t + 1100, mono + 1000);
    assert_true(hf_clockkeeper_take(&keeper, seg, &time, &silent));
    for (uint64_t s = 2; s < 62; s++) {
        time = reading(t + s * 1000 + day, mono + s * 1000);
        assert_false(hf_clockkeeper_take(&keeper, seg, &time, &silent));
    }
    assert_int_equal(seg->header->hdr_alarms[HF_ALARM_CLOCK_JUMP], 1);
    time = reading(t + 62000 + day, mono + 62000);
    assert_true(hf_clockkeeper_take(&keeper, seg, &time, &silent));
    assert_true(hf_clock_published(seg, &published));
    assert_int_equal(published.time_ms, t + 62000 + day);
    /* A jump that goes away again was none; the minute begins anew. */
    time = reading(t + 63000 + 2 * day, mono + 63000);
    assert_false(hf_clockkeeper_take(&keeper, seg, &time, &silent));
    time = reading(t + 64000 + day, mono + 64000);
    assert_true(hf_clockkeeper_take(&keeper, seg, &time, &silent));
    time = reading(t + 124000 + 2 * day, mono + 124000);
    assert_false(hf_clockkeeper_take(&keeper, seg, &time, &silent));
    /* Back: published, and the segment's clock holds still. */
    uint64_t shown = hf_clock_now_ms(seg);

    time = reading(t, mono + 125000);
    assert_true(hf_clockkeeper_take(&keeper, seg, &time, &silent));
    assert_true(hf_clock_now_ms(seg) >= shown);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_daemon, close_daemon)
    const struct CMUnitTest tests[] = {
        CASE(the_next_daemon_goes_on),
        CASE(a_batch_committed_and_not_marked_is_not_written_again),
        CASE(a_half_written_header_is_completed),
        CASE(a_batch_announced_and_not_committed_is_written),
        CASE(a_second_daemon_is_refused),
        CASE(what_does_not_fit_is_refused_with_a_sentence),
        CASE(no_new_epoch_while_a_worker_of_the_old_one_lives),
        CASE(a_segment_that_was_overtaken_is_superseded),
        CASE(a_running_daemon_that_was_overtaken_stops),
        CASE(a_store_that_lost_commits_gets_them_again),
        CASE(a_daemon_that_finds_an_old_backup_writes_again),
        CASE(the_receipt_of_a_gap_is_known_again),
        CASE(a_running_daemon_knows_its_gap_again),
        CASE(an_epoch_of_the_same_number_is_not_ours),
        CASE(half_made_slots_of_the_dead_are_freed),
        CASE(what_the_dead_got_through_is_applied),
        CASE(jumps_of_the_clock_are_taken_after_a_minute),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
