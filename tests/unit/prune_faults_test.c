/* ctest: labels=postgres timeout=300 */
/* Retention under fire: killed at any step, beside those who write, read and prune, and with a store that somebody changed by hand. */
#include "persist/prune_impl.h"
#include "persist/rollup_impl.h"
#include "tests/support/prune_lab.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define GATEWAY "segment_id = (SELECT segment_id FROM segment WHERE name = 'gateway')"

static const struct prune_past past = {.summed = true};
static bool postgres;

/* ---- killed ------------------------------------------------------------------------------------------------------- */

/* Counts down; dies at zero. */
static void die(void *ctx)
{
    int *left = ctx;

    if (--*left == 0) {
        (void)kill(getpid(), SIGKILL);
    }
}

static void prune_and_die(struct lab *lab, const struct prune_hooks *hooks)
{
    struct told told;
    struct hf_store_error error = {""};
    int status = 0;
    pid_t child = fork();

    assert_int_not_equal(child, -1);
    if (child == 0) {
        (void)prune_lab(lab, PRUNE_BEFORE, false, hooks, &told, &error);
        _exit(3);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* A server learns a moment later that somebody died. */
static void prune_again(struct lab *lab, struct told *told)
{
    struct hf_store_error error = {""};
    enum hf_store_status status = HF_STORE_RETRY;

    for (int i = 0; i < 1000 && status == HF_STORE_RETRY; i++) {
        status = prune_lab(lab, PRUNE_BEFORE, false, NULL, told, &error);
        if (status == HF_STORE_RETRY) {
            (void)usleep(10000);
        }
    }
    if (status != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
}

static void killed_at_any_step_it_goes_on_where_it_was(void **state)
{
    static struct prune_dump before;
    static struct prune_dump after;
    int left = 2;
    const struct prune_hooks hooks[] = {
        {.taken = die, .ctx = &left}, {.committed = die, .ctx = &left}, {.stepped = die, .ctx = &left}};
    struct lab lab;
    struct told dry;
    struct told told;

    (void)state;
    for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]) - (postgres ? 1 : 0); i++) {
        prune_lab_new(&lab, postgres, &past);
        prune_lab_dump(&lab, &before);
        prune_lab_ok(&lab, PRUNE_BEFORE, true, &dry);
        left = 2;
        prune_and_die(&lab, &hooks[i]);
        prune_lab_holds(&lab);
        assert_true(lab.report.pruned_cnt > 0 && lab.report.pruned_cnt < dry.rows_cnt);
        prune_lab_dump(&lab, &after);
        assert_string_equal(before.text, after.text);
        prune_again(&lab, &told);
        prune_lab_holds(&lab);
        assert_int_equal(lab.report.pruned_cnt, dry.rows_cnt);
        prune_lab_dump(&lab, &after);
        assert_string_equal(before.text, after.text);
        lab_drop(&lab);
    }
}

/* ---- beside others ------------------------------------------------------------------------------------------------ */

static void write_some(void *ctx)
{
    prune_lab_traffic(ctx, "during", 2, PRUNE_NOW_MS);
}

static void a_daemon_writes_meanwhile(void **state)
{
    struct lab lab;
    struct told told;
    struct hf_store_error error = {""};
    struct prune_hooks hooks = {.stepped = write_some, .ctx = &lab};

    (void)state;
    prune_lab_new(&lab, postgres, &past);
    prune_lab_open(&lab);
    assert_int_equal(prune_lab(&lab, PRUNE_BEFORE, false, &hooks, &told, &error), HF_STORE_OK);
    assert_in_range(told.gone_cnt, 3, 10);
    prune_lab_holds(&lab);
    prune_lab_roll_up(&lab);
    prune_lab_holds(&lab);
    lab_drop(&lab);
}

/* What is everything that it has: the partition in which it goes on as well. */
static void an_idle_segment_gets_its_partition_back(void **state)
{
    const struct prune_past old = {.summed = true, .old_only = true};
    struct lab lab;
    struct told told;

    (void)state;
    prune_lab_new(&lab, postgres, &old);
    prune_lab_open(&lab);
    prune_lab_ok(&lab, PRUNE_BEFORE, false, &told);
    if (postgres) {
        assert_non_null(strstr(told.text, "a daemon goes on writing receipts of 'gateway'"));
        assert_int_equal(atoi(lab_sql(&lab, "SELECT min(first) FROM partition")), 25);
    }
    hf_store_close(lab.store);
    prune_lab_ok(&lab, PRUNE_BEFORE, false, &told);
    assert_string_equal(told.text, "");
    assert_int_equal(atoi(lab_sql(&lab, "SELECT count(*) FROM receipt WHERE " GATEWAY)), 0);
    prune_lab_holds(&lab);
    prune_lab_open(&lab);
    prune_lab_traffic(&lab, "again", 12, PRUNE_NOW_MS);
    prune_lab_roll_up(&lab);
    prune_lab_holds(&lab);
    assert_int_equal(atoi(lab_sql(&lab, "SELECT count(*) FROM receipt WHERE " GATEWAY)), 24);
    lab_drop(&lab);
}

struct intruder {
    struct lab *lab;
    enum hf_store_status status;
    struct hf_store_error error;
};

static void prune_too(void *ctx)
{
    struct intruder *intruder = ctx;
    struct told told;

    intruder->status = prune_lab(intruder->lab, PRUNE_BEFORE, false, NULL, &told, &intruder->error);
}

static void two_do_not_prune_at_once(void **state)
{
    struct lab lab;
    struct told told;
    struct hf_store_error error = {""};
    struct intruder intruder = {.lab = &lab};
    const struct prune_hooks hooks = {.began = prune_too, .ctx = &intruder};

    (void)state;
    if (!postgres) {
        return; /* one writes at a time */
    }
    prune_lab_new(&lab, postgres, &past);
    assert_int_equal(prune_lab(&lab, PRUNE_BEFORE, false, &hooks, &told, &error), HF_STORE_OK);
    assert_int_equal(intruder.status, HF_STORE_RETRY);
    assert_non_null(strstr(intruder.error.text, "somebody else is pruning"));
    prune_lab_holds(&lab);
    lab_drop(&lab);
}

/* A segment that is new since pruning began has its first receipts in the oldest partition. */
static void come_new(void *ctx)
{
    struct lab *lab = ctx;
    struct hf_store *store = cases_open(lab->url, "newcomer", NULL);
    struct cases_chain chain;
    struct hf_receipt row;

    cases_chain_start(&chain, store);
    cases_reservation(&row, "new");
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    hf_store_close(store);
}

static void a_new_segment_loses_nothing(void **state)
{
    struct lab lab;
    struct told told;
    struct hf_store_error error = {""};
    const struct prune_hooks hooks = {.began = come_new, .ctx = &lab};

    (void)state;
    if (!postgres) {
        return; /* a segment's rows alone are deleted */
    }
    prune_lab_new(&lab, postgres, &past);
    assert_int_equal(prune_lab(&lab, PRUNE_BEFORE, false, &hooks, &told, &error), HF_STORE_RETRY);
    assert_non_null(strstr(error.text, "a new segment"));
    assert_int_equal(told.gone_cnt, 0);
    prune_lab_holds(&lab);
    assert_int_equal(atoi(lab_sql(&lab, "SELECT count(*) FROM receipt WHERE id = 'new'")), 1);
    prune_lab_ok(&lab, PRUNE_BEFORE, false, &told);
    assert_int_equal(told.gone_cnt, 0);
    assert_non_null(strstr(told.text, "no rollup covers the receipts of 'newcomer'"));
    lab_drop(&lab);
}

static void who_reads_for_long_is_not_waited_for(void **state)
{
    const struct hf_store_options reading = {.role = HF_STORE_READER};
    struct hf_store *reader;
    struct lab lab;
    struct told told;
    struct hf_store_error error = {""};

    (void)state;
    if (!postgres) {
        return; /* readers and writers do not wait for each other */
    }
    prune_lab_new(&lab, postgres, &past);
    reader = cases_open(lab.url, NULL, &reading);
    assert_int_equal(reader->ops->query(reader, reader->ops->snapshot, NULL, 0, NULL, NULL, &error),
                     HF_STORE_OK);
    assert_int_equal(reader->ops->query(reader, "SELECT count(*) FROM receipt", NULL, 0, NULL, NULL, &error),
                     HF_STORE_OK);
    assert_int_equal(prune_lab(&lab, PRUNE_BEFORE, false, NULL, &told, &error), HF_STORE_RETRY);
    assert_non_null(strstr(error.text, "holds a lock"));
    hf_store_close(reader);
    prune_lab_holds(&lab);
    prune_lab_ok(&lab, PRUNE_BEFORE, false, &told);
    assert_true(told.gone_cnt > 0);
    lab_drop(&lab);
}

/* ---- changed by hand ---------------------------------------------------------------------------------------------- */

static void receipts_that_go_without_a_record_are_missed(void **state)
{
    struct lab lab;
    struct told told;
    struct hf_store_error error = {""};

    (void)state;
    prune_lab_new(&lab, postgres, &past);
    (void)lab_sql(&lab, "DELETE FROM receipt WHERE " GATEWAY " AND seq = 6");
    assert_int_equal(prune_lab(&lab, PRUNE_BEFORE, false, NULL, &told, &error), HF_STORE_REFUSED);
    assert_non_null(strstr(error.text, "missing"));
    assert_int_equal(atoi(lab_sql(&lab, "SELECT min(seq) FROM receipt WHERE " GATEWAY)), 1);
    lab_drop(&lab);
}

static void heads_kept_elsewhere_are_found_across_the_cut(void **state)
{
    struct hf_verify_head heads[3] = {{.number = 2}, {.number = 0}, {.number = 0}};
    struct hf_prune_record record;
    struct hf_store_batch batch;
    struct hf_store_error error = {""};
    struct lab lab;
    struct told told;
    bool found = false;

    (void)state;
    prune_lab_new(&lab, postgres, &past);
    prune_lab_open(&lab);
    assert_int_equal(hf_store_batch_of(lab.store, lab.store->segment_id, 2, &found, &batch, &error),
                     HF_STORE_OK);
    assert_true(found);
    hf_name_set(&heads[0].segment, "gateway", strlen("gateway"));
    memcpy(heads[0].digest, batch.digest, HF_DIGEST_BYTES);
    memcpy(heads[1].digest, batch.digest, HF_DIGEST_BYTES);
    prune_lab_ok(&lab, PRUNE_BEFORE, false, &told);
    assert_int_equal(hf_prune_newest(lab.store, lab.store->segment_id, &record, &error), HF_STORE_OK);
    assert_true(record.number > 0);
    memcpy(heads[2].digest, record.digest, HF_DIGEST_BYTES);
    lab_look(&lab, heads, 3);
    if (lab.findings_cnt > 0) {
        fail_msg("does not hold:%s", lab_told(&lab));
    }
    heads[2].digest[7] ^= 1U;
    lab_look(&lab, heads, 3);
    assert_non_null(lab_found(&lab, HF_VERIFY_TRUNCATED, 0, 0));
    lab_drop(&lab);
}

static const struct {
    const char *sql;
    enum hf_verify_what what;
} attacks[] = {
    {"DELETE FROM prune WHERE " GATEWAY, HF_VERIFY_REMOVED},
    {"DELETE FROM prune WHERE " GATEWAY " AND number = 1", HF_VERIFY_PRUNE},
    {"UPDATE prune SET next_seq = next_seq + 4 WHERE " GATEWAY " AND number = 3", HF_VERIFY_PRUNE},
    {"UPDATE prune SET made_ms = made_ms + 1 WHERE " GATEWAY, HF_VERIFY_PRUNE},
    {"UPDATE prune SET made_by = 'nobody' WHERE " GATEWAY, HF_VERIFY_PRUNE},
    {"UPDATE prune SET rollup_number = 7 WHERE " GATEWAY, HF_VERIFY_PRUNE},
    {"DELETE FROM kept WHERE kind = 'policy'", HF_VERIFY_PRUNE},
    {"UPDATE kept SET made_ms = made_ms + 1 WHERE kind = 'epoch'", HF_VERIFY_CHANGED},
    {"INSERT INTO receipt SELECT * FROM kept WHERE kind = 'epoch'", HF_VERIFY_ADDED},
    {"DELETE FROM receipt WHERE " GATEWAY " AND seq = (SELECT max(seq) FROM receipt)", HF_VERIFY_REMOVED},
    {"INSERT INTO kept SELECT * FROM receipt WHERE seq = 47; DELETE FROM receipt WHERE seq = 47",
     HF_VERIFY_ADDED},
    {"UPDATE receipt SET charged_cost_micros = 0 WHERE seq = 46", HF_VERIFY_CHANGED},
    {"DELETE FROM batch WHERE " GATEWAY " AND number = 2", HF_VERIFY_REMOVED},
    {"UPDATE batch SET digest = before WHERE " GATEWAY " AND number = 2", HF_VERIFY_BATCH},
    {"UPDATE batch SET committed_ms = committed_ms + 1 WHERE " GATEWAY " AND number = 2", HF_VERIFY_PRUNE},
    {"UPDATE batch SET epoch = epoch + 1 WHERE " GATEWAY " AND number = 2", HF_VERIFY_PRUNE},
};

/* Each on a store of its own in SQLite; of PostgreSQL, which has the same statements and takes longer, some. */
static void attacks_are_found_on_both_sides_of_the_cut(void **state)
{
    struct lab lab;
    struct told told;

    (void)state;
    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i += postgres ? 7 : 1) {
        prune_lab_new(&lab, postgres, &past);
        prune_lab_ok(&lab, PRUNE_BEFORE, false, &told);
        assert_in_range(told.gone_cnt, 3, 10);
        (void)lab_sql(&lab, "%s", attacks[i].sql);
        lab_look(&lab, NULL, 0);
        if (lab_found(&lab, attacks[i].what, 0, 0) == NULL) {
            fail_msg("not found: %s, but:%s", attacks[i].sql, lab_told(&lab));
        }
        lab_drop(&lab);
    }
}

/* A record over all that was left, with the digest that it should have: as one would who knows how. */
static void forge(struct lab *lab)
{
    const struct hf_store_options owner = {.role = HF_STORE_OWNER, .durability = HF_STORE_OFF};
    struct hf_store *store = cases_open(lab->url, NULL, &owner);
    struct hf_store_error error = {""};
    struct hf_store_head head;
    struct hf_rollup rollup;
    struct hf_prune_record last;
    struct hf_prune_record record;
    int64_t segment_id = 0;

    assert_int_equal(hf_store_segment_id(store, "gateway", &segment_id, &error), HF_STORE_OK);
    assert_int_equal(hf_prune_newest(store, segment_id, &last, &error), HF_STORE_OK);
    assert_int_equal(hf_store_head(store, "gateway", &head, &error), HF_STORE_OK);
    assert_int_equal(hf_rollup_of(store, segment_id, INT64_MAX, &rollup, &error), HF_STORE_OK);
    record = (struct hf_prune_record){.number = last.number + 1,
                                      .made_ms = PRUNE_NOW_MS,
                                      .made_by = "forger",
                                      .first_seq = last.next_seq,
                                      .next_seq = (int64_t)head.next_seq,
                                      .batch_number = (int64_t)head.last.number,
                                      .rollup_number = (int64_t)rollup.number};
    record.rows_cnt = record.next_seq - record.first_seq;
    memcpy(record.batch_digest, head.last.digest, HF_DIGEST_BYTES);
    memcpy(record.rollup_digest, rollup.digest, HF_DIGEST_BYTES);
    memcpy(record.before, last.digest, HF_DIGEST_BYTES);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf_prune_digest(store, segment_id, "gateway", &record, last.batch_number,
                                         &record.kept_cnt, record.digest, &error),
                         HF_STORE_OK);
        record.rows_cnt = record.next_seq - record.first_seq - record.kept_cnt;
    }
    if (hf_prune_digest(store, segment_id, "gateway", &record, last.batch_number, &record.kept_cnt,
                        record.digest, &error) != HF_STORE_OK ||
        hf_prune_insert(store, segment_id, &record, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
    hf_store_close(store);
    (void)lab_sql(lab, "DELETE FROM receipt WHERE " GATEWAY);
}

static void a_record_that_is_made_up_is_held_against_the_rule(void **state)
{
    const struct {
        struct prune_past past;
        const char *words;
    } forgeries[] = {{{.summed = true}, "month that was not over"},
                     {{.summed = true, .open = true, .old_only = true}, "open reservation"},
                     {{.summed = false, .old_only = true}, "names a rollup that is not there"}};
    const struct lab_finding *finding;
    struct lab lab;

    (void)state;
    for (size_t i = 0; i < (postgres ? 1 : sizeof(forgeries) / sizeof(forgeries[0])); i++) {
        prune_lab_new(&lab, postgres, &forgeries[i].past);
        forge(&lab);
        lab_look(&lab, NULL, 0);
        finding = lab_found(&lab, HF_VERIFY_PRUNE, 0, 0);
        if (finding == NULL || strstr(finding->text, forgeries[i].words) == NULL) {
            fail_msg("not '%s', but:%s", forgeries[i].words, lab_told(&lab));
        }
        lab_drop(&lab);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_any_step_it_goes_on_where_it_was),
        cmocka_unit_test(a_daemon_writes_meanwhile),
        cmocka_unit_test(an_idle_segment_gets_its_partition_back),
        cmocka_unit_test(two_do_not_prune_at_once),
        cmocka_unit_test(a_new_segment_loses_nothing),
        cmocka_unit_test(who_reads_for_long_is_not_waited_for),
        cmocka_unit_test(receipts_that_go_without_a_record_are_missed),
        cmocka_unit_test(heads_kept_elsewhere_are_found_across_the_cut),
        cmocka_unit_test(attacks_are_found_on_both_sides_of_the_cut),
        cmocka_unit_test(a_record_that_is_made_up_is_held_against_the_rule),
    };
    int failed = 0;

    for (int i = 0; i < 2; i++) {
        postgres = i == 1;
        if (!lab_available(postgres)) {
            print_message("HOLDFAST_TEST_PG is not set: not tried on PostgreSQL\n");
            continue;
        }
        print_message("on %s\n", postgres ? "PostgreSQL" : "SQLite");
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    lab_clean();
    return failed;
}
