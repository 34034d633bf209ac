#include "tests/support/prune_lab.h"

#include "persist/rollup.h"
#include "persist/store_impl.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- what a store says -------------------------------------------------------------------------------------------- */

static void say(struct prune_dump *dump, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct prune_dump *dump, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    dump->len += (size_t)vsnprintf(dump->text + dump->len, sizeof(dump->text) - dump->len, format, args);
    va_end(args);
    assert_true(dump->len < sizeof(dump->text));
}

static int say_sum(void *ctx, const struct hf_store_sum *sum)
{
    say(ctx, "sum %d %s/%s %" PRIx64 " n=%" PRIu64 " %lld %lld\n", sum->window, sum->tenant.bytes,
        sum->team.bytes, sum->bucket_mask, sum->rows_cnt, (long long)sum->held[HF_DIM_COST],
        (long long)sum->charged[HF_DIM_COST]);
    return 0;
}

static int say_meter(void *ctx, const struct hf_store_meter *meter)
{
    say(ctx, "meter %s %s %" PRId64 " %" PRId64 "\n", meter->tenant.bytes, meter->model.bytes,
        meter->requests, meter->settled_micros);
    return 0;
}

static int say_reservation(void *ctx, const struct hf_receipt *rows, size_t rows_cnt)
{
    say(ctx, "reservation %s %zu\n", rows[0].id.bytes, rows_cnt);
    return 0;
}

static int say_row(void *ctx, const struct hf_receipt *row)
{
    say(ctx, "row %" PRIu64 " %s\n", row->seq, hf_receipt_kind_name(row->kind));
    return 0;
}

void prune_lab_dump(struct lab *lab, struct prune_dump *dump)
{
    const struct hf_store_filter filter = {.open = true,
                                           .closed_since_ms = PRUNE_NOW_MS - PRUNE_DAY_MS,
                                           .late_since_ms = PRUNE_NOW_MS - PRUNE_DAY_MS};
    struct hf_store_error error = {""};
    struct hf_store *store = cases_open(lab->url, NULL, NULL);

    dump->len = 0;
    if (hf_store_sums(store, "gateway", PRUNE_NOW_MS, (1U << HF_WINDOW_CNT) - 1, say_sum, dump, &error) !=
            HF_STORE_OK ||
        hf_store_meters(store, "gateway", NULL, say_meter, dump, &error) != HF_STORE_OK ||
        hf_store_reservations(store, "gateway", &filter, say_reservation, dump, &error) != HF_STORE_OK ||
        hf_store_last(store, "gateway", HF_RECEIPT_EPOCH, say_row, dump, &error) != HF_STORE_OK ||
        hf_store_last(store, "gateway", HF_RECEIPT_POLICY, say_row, dump, &error) != HF_STORE_OK ||
        hf_store_last(store, "gateway", HF_RECEIPT_CREDIT, say_row, dump, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
    hf_store_close(store);
    assert_true(dump->len > 0);
}

/* ---- a store with a past ------------------------------------------------------------------------------------------ */

static void commit_at(struct lab *lab, struct hf_receipt *rows, size_t cnt, uint64_t at_ms)
{
    struct hf_store_batch batch;

    for (size_t i = 0; i < cnt; i++) {
        rows[i].made_ms = at_ms;
        if (rows[i].window_ms != HF_UNKNOWN) {
            rows[i].window_ms = at_ms;
        }
    }
    cases_chain_prepare(&lab->chain, &batch, rows, cnt);
    batch.committed_ms = at_ms;
    if (hf_store_commit(lab->store, &batch, rows, cnt, &lab->chain.report, &lab->chain.error) !=
        HF_STORE_OK) {
        fail_msg("%s", lab->chain.error.text);
    }
    lab->chain.batch = batch;
    lab->chain.next_seq += cnt;
}

void prune_lab_traffic(struct lab *lab, const char *name, unsigned cnt, uint64_t at_ms)
{
    for (unsigned i = 0; i < cnt; i += 2) {
        struct hf_receipt rows[4];
        char id[2][32];

        for (unsigned k = 0; k < 2; k++) {
            (void)snprintf(id[k], sizeof(id[k]), "%s-%u", name, i + k);
            cases_reservation(&rows[k], id[k]);
            cases_settlement(&rows[2 + k], id[k]);
        }
        commit_at(lab, rows, 4, at_ms);
    }
}

void prune_lab_roll_up(struct lab *lab)
{
    struct hf_rollup made;
    struct hf_store_error error = {""};

    if (hf_rollup_make(lab->store, HF_ROLLUP_ROWS_MAX, &made, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
}

/* Partitions of 8. The first one has 16 million: made anew while they are few. */
static void make_partitions(struct lab *lab)
{
    (void)lab_sql(
        lab,
        "CREATE OR REPLACE FUNCTION holdfast.partition_rows() RETURNS bigint LANGUAGE sql IMMUTABLE SET "
        "search_path = pg_catalog, pg_temp AS 'SELECT 8::bigint'; CREATE TABLE public.all_rows AS SELECT * "
        "FROM receipt; DROP TABLE receipt_p1; SELECT ensure_partition(1); SELECT ensure_partition(9); "
        "INSERT INTO receipt SELECT * FROM public.all_rows; DROP TABLE public.all_rows");
    hf_store_disconnect(lab->store);
}

/* The other segment's second receipt, and its rollup. */
static void sum_other_up(struct lab *lab)
{
    struct hf_store_error error = {""};
    struct hf_rollup made;
    struct hf_store *other = cases_open(lab->url, "other", NULL);
    struct cases_chain chain;
    struct hf_store_head head;
    struct hf_receipt row;

    cases_chain_start(&chain, other);
    assert_int_equal(hf_store_head(other, "other", &head, &error), HF_STORE_OK);
    chain.batch = head.last;
    chain.next_seq = head.next_seq;
    cases_settlement(&row, "elsewhere");
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    if (hf_rollup_make(other, HF_ROLLUP_ROWS_MAX, &made, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
    hf_store_close(other);
}

void prune_lab_new(struct lab *lab, bool postgres, const struct prune_past *past)
{
    struct hf_receipt rows[2];

    lab_new(lab, postgres);
    if (!past->open) {
        cases_settlement(&rows[0], "e");
        cases_settlement(&rows[1], "f");
        commit_at(lab, rows, 2, CASES_NOW_MS + 1000); /* 14, 15 */
    }
    if (postgres) {
        make_partitions(lab);
    }
    prune_lab_traffic(lab, "old", 8, CASES_NOW_MS + 2000);
    if (past->summed) {
        sum_other_up(lab);
    }
    if (!past->old_only) {
        prune_lab_traffic(lab, "new", 8, PRUNE_NOW_MS);
    }
    if (past->summed) {
        prune_lab_roll_up(lab);
    }
    hf_store_close(lab->store);
    lab->store = NULL;
}

void prune_lab_open(struct lab *lab)
{
    lab->store = cases_open(lab->url, "gateway", NULL);
    lab->chain.store = lab->store;
}

/* ---- pruning ------------------------------------------------------------------------------------------------------ */

/* One at a time, in this process. */
static const struct hf_store_ops *real;
static const struct prune_hooks *now_hooks;

static enum hf_store_status hooked_now(struct hf_store *store, struct hf_store_time *time,
                                       struct hf_store_error *error)
{
    enum hf_store_status status = real->now(store, time, error);

    time->now_us = PRUNE_NOW_MS * 1000;
    return status;
}

static enum hf_store_status hooked_retention(struct hf_store *store, struct hf_store_error *error)
{
    enum hf_store_status status = real->retention(store, error);

    if (status == HF_STORE_OK && now_hooks != NULL && now_hooks->began != NULL) {
        now_hooks->began(now_hooks->ctx);
    }
    return status;
}

static enum hf_store_status hooked_take_away(struct hf_store *store, const char *partition,
                                             int64_t segment_id, int64_t next_seq,
                                             struct hf_store_error *error)
{
    enum hf_store_status status = real->take_away(store, partition, segment_id, next_seq, error);

    if (status == HF_STORE_OK && now_hooks != NULL && now_hooks->taken != NULL) {
        now_hooks->taken(now_hooks->ctx);
    }
    return status;
}

static enum hf_store_status hooked_commit(struct hf_store *store, struct hf_store_error *error)
{
    enum hf_store_status status = real->commit(store, error);

    if (status == HF_STORE_OK && now_hooks != NULL && now_hooks->committed != NULL) {
        now_hooks->committed(now_hooks->ctx);
    }
    return status;
}

static void take_step(void *ctx, const struct hf_prune_step *step)
{
    struct told *told = ctx;
    size_t len = strlen(told->text);

    if (!step->goes) {
        (void)snprintf(told->text + len, sizeof(told->text) - len, "%s\n", step->text);
        return;
    }
    told->gone_cnt++;
    told->rows_cnt += step->rows_cnt;
    told->kept_cnt += step->kept_cnt;
    assert_null(step->text);
    if (now_hooks != NULL && now_hooks->stepped != NULL) {
        now_hooks->stepped(now_hooks->ctx);
    }
}

enum hf_store_status prune_lab(struct lab *lab, uint64_t before_ms, bool dry_run,
                               const struct prune_hooks *hooks, struct told *told,
                               struct hf_store_error *error)
{
    const struct hf_store_options owner = {.role = HF_STORE_OWNER, .durability = HF_STORE_OFF};
    const struct hf_prune_options options = {.before_ms = before_ms,
                                             .made_by = "test",
                                             .dry_run = dry_run,
                                             .step_rows = 8,
                                             .pause_ms = 1,
                                             .step = take_step,
                                             .ctx = told};
    const struct hf_store_ops *real_before = real;
    const struct prune_hooks *hooks_before = now_hooks;
    struct hf_store *store = cases_open(lab->url, NULL, &owner);
    struct hf_store_ops ops = *store->ops;
    enum hf_store_status status;

    memset(told, 0, sizeof(*told));
    real = store->ops;
    now_hooks = hooks;
    ops.now = hooked_now;
    ops.retention = hooked_retention;
    ops.take_away = hooked_take_away;
    ops.commit = hooked_commit;
    store->ops = &ops;
    status = hf_prune(store, &options, error);
    store->ops = real;
    real = real_before;
    now_hooks = hooks_before;
    hf_store_close(store);
    return status;
}

void prune_lab_ok(struct lab *lab, uint64_t before_ms, bool dry_run, struct told *told)
{
    struct hf_store_error error = {""};

    if (prune_lab(lab, before_ms, dry_run, NULL, told, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
}

void prune_lab_holds(struct lab *lab)
{
    lab_look(lab, NULL, 0);
    if (lab->findings_cnt > 0) {
        fail_msg("does not hold:%s", lab_told(lab));
    }
}
