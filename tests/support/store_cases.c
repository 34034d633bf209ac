/* The cases that every store must pass. */
#include "tests/support/store_cases.h"

#include "core/window.h"
#include "persist/digest.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const struct store_backend *store_backend;

#define URL_BYTES 512
#define SEGMENT   "gateway"

/* ---- helpers ---------------------------------------------------------------------------------------------------- */

#define assert_status(expected, got, error)                                     \
    do {                                                                        \
        enum hf_store_status status_got = (got);                                \
        if (status_got != (expected)) {                                         \
            fail_msg("expected %s, got %s: %s", hf_store_status_name(expected), \
                     hf_store_status_name(status_got), (error).text);           \
        }                                                                       \
    } while (0)

void cases_name(struct hf_name *name, const char *text)
{
    assert_true(hf_name_set(name, text, strlen(text)));
}

struct hf_store *cases_open(const char *url, const char *segment, const struct hf_store_options *options)
{
    struct hf_store_error error = {""};
    struct hf_store *store = NULL;

    assert_status(HF_STORE_OK, hf_store_open(url, options, &store, &error), error);
    if (segment != NULL) {
        assert_status(HF_STORE_OK, hf_store_lock(store, segment, &error), error);
    }
    return store;
}

struct hf_store *cases_new(char *url, size_t url_bytes, const char *segment)
{
    struct hf_store_error error = {""};

    assert_int_equal(store_backend->make(url, url_bytes), 0);
    assert_status(HF_STORE_OK, hf_store_init(url, NULL, &error), error);
    return cases_open(url, segment, NULL);
}

void cases_drop(struct hf_store *store, const char *url)
{
    hf_store_close(store);
    store_backend->drop(url);
}

const char *cases_sql(const char *url, const char *sql)
{
    static char result[4096];

    if (store_backend->sql(url, sql, result, sizeof(result)) != 0) {
        fail_msg("%s: %s", sql, result);
    }
    return result;
}

static void cases_path(struct hf_receipt *row, const char *id)
{
    cases_name(&row->id, id);
    cases_name(&row->tenant, "echo");
    cases_name(&row->team, "content");
    cases_name(&row->capability, "summary");
    cases_name(&row->model, "mock");
    row->made_ms = CASES_NOW_MS;
    row->window_ms = CASES_NOW_MS;
    row->expires_at_ms = CASES_NOW_MS + 600000;
    row->admission = HF_ADMISSION_ALLOW;
    row->on_expiry = HF_ON_EXPIRY_RELEASE;
    row->on_overage = HF_ON_OVERAGE_RECORD;
    row->dispatched = 0;
    row->hold_tokens = 900;
    row->hold_cost_micros = 6200;
    row->bucket_mask = UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MONTH, HF_DIM_COST) |
                       UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TENANT, HF_WINDOW_MONTH, HF_DIM_COST) |
                       UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MINUTE, HF_DIM_TOKENS);
}

void cases_reservation(struct hf_receipt *row, const char *id)
{
    hf_receipt_init(row, HF_RECEIPT_RESERVATION);
    cases_path(row, id);
    row->held_invocations = 1;
    row->held_tokens = 900;
    row->held_cost_micros = 6200;
    row->form = HF_FORM_MODEL;
    row->basis = HF_BASIS_ESTIMATE;
    row->input_tokens = 500;
    row->max_output_tokens = 400;
    row->input_micros_per_mtok = 1000000;
    row->output_micros_per_mtok = 2000000;
    row->policy_revision = 1;
    cases_name(&row->price_revision, "2026-11");
    cases_name(&row->currency, "CNY");
    row->limits[hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MONTH, HF_DIM_COST)] = 40000000;
    row->limits[hf_receipt_bucket(HF_LAYER_TENANT, HF_WINDOW_MONTH, HF_DIM_COST)] = 100000000;
    row->limits[hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MINUTE, HF_DIM_TOKENS)] = 90000;
    row->credits[HF_WINDOW_MONTH] = 1000;
}

void cases_settlement(struct hf_receipt *row, const char *id)
{
    hf_receipt_init(row, HF_RECEIPT_SETTLEMENT);
    cases_path(row, id);
    row->made_ms = CASES_NOW_MS + 1000;
    row->held_invocations = -1;
    row->held_tokens = -900;
    row->held_cost_micros = -6200;
    row->charged_invocations = 1;
    row->charged_tokens = 800;
    row->charged_cost_micros = 4100;
    row->usage_known = 1;
    row->usage_input_tokens = 500;
    row->usage_output_tokens = 300;
    row->usage_cost_micros = 4100;
    row->cost_source = HF_COST_PROVIDER;
    row->actual_tokens = 800;
    row->actual_cost_micros = 4100;
    row->released_tokens = 100;
    row->released_cost_micros = 2100;
    row->overage_tokens = 0;
    row->overage_cost_micros = 0;
    row->outcome = HF_OUTCOME_SUCCESS;
    row->quota_exceeded = 0;
    row->late = 0;
}

/* Any other closing of such a reservation. */
static void cases_closing(struct hf_receipt *row, const char *id, enum hf_receipt_kind kind,
                          int64_t charged_cost)
{
    hf_receipt_init(row, kind);
    cases_path(row, id);
    row->made_ms = CASES_NOW_MS + 2000;
    row->held_invocations = -1;
    row->held_tokens = -900;
    row->held_cost_micros = -6200;
    row->charged_invocations = kind == HF_RECEIPT_RELEASE ? 0 : 1;
    row->charged_tokens = charged_cost == 0 ? 0 : 900;
    row->charged_cost_micros = charged_cost;
    row->late = 0;
}

void cases_chain_start(struct cases_chain *chain, struct hf_store *store)
{
    memset(chain, 0, sizeof(*chain));
    chain->store = store;
    chain->next_seq = 1;
    chain->batch.epoch = 1;
}

void cases_chain_prepare(const struct cases_chain *chain, struct hf_store_batch *batch,
                         struct hf_receipt *rows, size_t cnt)
{
    memset(batch, 0, sizeof(*batch));
    batch->number = chain->batch.number + 1;
    batch->epoch = chain->batch.epoch;
    batch->first_seq = chain->next_seq;
    batch->committed_ms = CASES_NOW_MS + 5000;
    memcpy(batch->before, chain->batch.digest, HF_DIGEST_BYTES);
    for (size_t i = 0; i < cnt; i++) {
        rows[i].epoch = batch->epoch;
        rows[i].seq = chain->next_seq + i;
    }
}

enum hf_store_status cases_chain_commit(struct cases_chain *chain, struct hf_receipt *rows, size_t cnt)
{
    struct hf_store_batch batch;
    enum hf_store_status status;

    cases_chain_prepare(chain, &batch, rows, cnt);
    status = hf_store_commit(chain->store, &batch, rows, cnt, &chain->report, &chain->error);
    if (status == HF_STORE_OK) {
        chain->batch = batch;
        chain->next_seq += cnt;
    }
    return status;
}

#define commit_ok(chain, rows, cnt) \
    assert_status(HF_STORE_OK, cases_chain_commit(chain, rows, cnt), (chain)->error)

/* Receipts handed over by a reader. */
struct collected {
    struct hf_receipt rows[64];
    char reason[64][128];
    char details[64][128];
    size_t cnt;
};

static int collect(void *ctx, const struct hf_receipt *receipt)
{
    struct collected *collected = ctx;
    size_t i = collected->cnt;

    assert_in_range(i, 0, 63);
    collected->rows[i] = *receipt;
    if (receipt->reason != NULL) {
        snprintf(collected->reason[i], sizeof(collected->reason[i]), "%s", receipt->reason);
        collected->rows[i].reason = collected->reason[i];
    }
    if (receipt->details != NULL) {
        snprintf(collected->details[i], sizeof(collected->details[i]), "%s", receipt->details);
        collected->rows[i].details = collected->details[i];
    }
    collected->cnt++;
    return 0;
}

static void assert_same_receipt(const struct hf_receipt *a, const struct hf_receipt *b)
{
    for (size_t i = 0; i < hf_receipt_fields(); i++) {
        char scratch_a[HF_RECEIPT_BUCKETS_BYTES];
        char scratch_b[HF_RECEIPT_BUCKETS_BYTES];
        struct hf_field_value x = {.null = false};
        struct hf_field_value y = {.null = false};
        const struct hf_field *field = hf_receipt_field(i);

        hf_receipt_get(a, i, &x, scratch_a);
        hf_receipt_get(b, i, &y, scratch_b);
        if (x.null != y.null ||
            (!x.null && (x.number != y.number || x.integer != y.integer || x.flag != y.flag ||
                         x.len != y.len || (x.len > 0 && memcmp(x.bytes, y.bytes, x.len) != 0)))) {
            fail_msg("field %s of receipt %" PRIu64 " differs", field->name, a->seq);
        }
    }
}

static int64_t sql_number(const char *url, const char *sql)
{
    return strtoll(cases_sql(url, sql), NULL, 10);
}

/* ---- what is in a store ------------------------------------------------------------------------------------------ */

static void an_empty_store_has_an_empty_chain(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), NULL);
    struct hf_store_error error = {""};
    struct hf_store_head head;
    struct hf_store_batch batch;
    struct hf_store_totals totals;
    struct collected *got = calloc(1, sizeof(*got));
    bool found = true;

    (void)state;
    assert_status(HF_STORE_OK, hf_store_head(store, SEGMENT, &head, &error), error);
    assert_int_equal(head.last.number, 0);
    assert_int_equal(head.next_seq, 1);
    assert_status(HF_STORE_OK, hf_store_batch(store, SEGMENT, 1, &found, &batch, &error), error);
    assert_false(found);
    assert_status(HF_STORE_OK, hf_store_totals(store, SEGMENT, &totals, &error), error);
    assert_int_equal(totals.receipts_cnt, 0);
    assert_int_equal(totals.batches_cnt, 0);
    assert_status(HF_STORE_OK, hf_store_receipts(store, SEGMENT, "nobody", collect, got, &error), error);
    assert_status(HF_STORE_OK, hf_store_last(store, SEGMENT, HF_RECEIPT_EPOCH, collect, got, &error), error);
    assert_int_equal(got->cnt, 0);
    free(got);
    cases_drop(store, url);
}

/* Every field of the table set to something of its own. */
static void fill_every_field(struct hf_receipt *row)
{
    hf_receipt_init(row, HF_RECEIPT_RESERVATION);
    row->bucket_mask = (UINT64_C(1) << HF_RECEIPT_BUCKETS_MAX) - 1;
    row->hold_tokens = HF_AMOUNT_MAX;
    row->hold_cost_micros = 0;
    for (unsigned bit = 0; bit < HF_RECEIPT_BUCKETS_MAX; bit++) {
        row->limits[bit] = HF_AMOUNT_MAX - bit;
    }
    for (unsigned w = 0; w < HF_WINDOW_CNT; w++) {
        row->credits[w] = w;
    }
    row->admission = HF_ADMISSION_DEGRADE;
    row->form = HF_FORM_AMOUNTS;
    row->on_expiry = HF_ON_EXPIRY_RETAIN_DISPATCHED;
    row->on_overage = HF_ON_OVERAGE_FAIL;
    row->basis = HF_BASIS_CAP;
    row->cost_source = HF_COST_UNKNOWN;
    row->outcome = HF_OUTCOME_FAILURE;
    row->credit_window = HF_WINDOW_LIFETIME;
    for (size_t i = 0; i < hf_receipt_fields(); i++) {
        const struct hf_field *field = hf_receipt_field(i);
        struct hf_field_value value = {.number = 1000 + i, .integer = -1000 - (int64_t)i, .flag = true};
        char text[64];

        if (i < 2 || strcmp(field->name, "bucket_mask") == 0 || strcmp(field->name, "hold_tokens") == 0 ||
            strcmp(field->name, "hold_cost_micros") == 0 || field->type == HF_FIELD_BUCKETS ||
            field->type == HF_FIELD_DIGEST || field->type == HF_FIELD_WORD) {
            continue;
        }
        snprintf(text, sizeof(text), "%s '\"\\ \xe2\x82\xac\xf0\x9f\xa6\x86", field->name);
        value.bytes = field->type == HF_FIELD_TEXT ? "{\"text\": \"line\\n'quoted'\"}\n" : text;
        value.len = strlen(value.bytes);
        assert_true(hf_receipt_set(row, i, &value));
    }
}

static void every_field_comes_back_as_it_was(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt rows[HF_RECEIPT_KIND_CNT + 1];
    struct collected *got = calloc(1, sizeof(*got));
    struct hf_digest *digest = hf_digest_new();
    struct hf_store_error error = {""};

    (void)state;
    cases_chain_start(&chain, store);
    for (unsigned k = 0; k < HF_RECEIPT_KIND_CNT; k++) {
        char id[16];

        snprintf(id, sizeof(id), "id-%u", k);
        hf_receipt_init(&rows[k], (enum hf_receipt_kind)k);
        if (hf_receipt_in_family((enum hf_receipt_kind)k)) {
            cases_path(&rows[k], id);
        }
        rows[k].made_ms = CASES_NOW_MS;
    }
    fill_every_field(&rows[HF_RECEIPT_KIND_CNT]);
    commit_ok(&chain, rows, HF_RECEIPT_KIND_CNT + 1);
    assert_int_equal(chain.report.conflicts_cnt, 0);
    assert_int_equal(chain.report.aside_cnt, 0);
    assert_int_equal(chain.report.orphans_cnt, 8);
    assert_status(HF_STORE_OK, hf_store_rows(store, SEGMENT, 1, 100, collect, got, &error), error);
    assert_int_equal(got->cnt, HF_RECEIPT_KIND_CNT + 1);
    for (size_t i = 0; i < got->cnt; i++) {
        uint8_t again[HF_DIGEST_BYTES];

        assert_same_receipt(&rows[i], &got->rows[i]);
        assert_int_equal(rows[i].fate, HF_FATE_STORED);
        assert_true(hf_digest_receipt(digest, SEGMENT, &got->rows[i], again));
        assert_memory_equal(again, rows[i].digest, HF_DIGEST_BYTES);
    }
    hf_digest_free(digest);
    free(got);
    cases_drop(store, url);
}

static void unknown_is_null_and_never_zero(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt rows[2];
    struct collected *got = calloc(1, sizeof(*got));
    struct hf_store_error error = {""};

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&rows[0], "unknown");
    cases_reservation(&rows[1], "zero");
    rows[0].hold_tokens = HF_UNKNOWN;
    rows[0].max_output_tokens = HF_UNKNOWN;
    rows[1].hold_tokens = 0;
    rows[1].max_output_tokens = 0;
    rows[0].held_tokens = rows[1].held_tokens = 0;
    rows[0].bucket_mask = rows[1].bucket_mask = 0;
    commit_ok(&chain, rows, 2);
    assert_int_equal(
        sql_number(url,
                   "SELECT count(*) FROM receipt WHERE hold_tokens IS NULL AND max_output_tokens IS NULL "
                   "AND id = 'unknown'"),
        1);
    assert_int_equal(
        sql_number(url, "SELECT count(*) FROM receipt WHERE hold_tokens = 0 AND max_output_tokens = 0 "
                        "AND id = 'zero'"),
        1);
    assert_int_equal(
        sql_number(url,
                   "SELECT count(*) FROM receipt WHERE model_asked IS NULL AND ref IS NULL AND key IS NULL"),
        2);
    /* No bucket is an empty list, which is not null. */
    assert_int_equal(sql_number(url, "SELECT count(*) FROM receipt WHERE buckets = ''"), 2);
    assert_status(HF_STORE_OK, hf_store_rows(store, SEGMENT, 1, 2, collect, got, &error), error);
    assert_true(got->rows[0].hold_tokens == HF_UNKNOWN);
    assert_true(got->rows[1].hold_tokens == 0);
    free(got);
    cases_drop(store, url);
}

static void names_keep_every_byte(void **state)
{
    static const char *const ids[] = {
        "it's",     "a\"b",     "back\\slash", "x'); DROP TABLE receipt; --", "\xe2\x82\xac\xf0\x9f\xa6\x86",
        " spaces ", "%s$1?1{}", "NULL",        "e\xcc\x81 is not \xc3\xa9",   "\xc3\xa9"};
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), "seg'ment\\\"");
    struct cases_chain chain;
    struct hf_receipt rows[sizeof(ids) / sizeof(ids[0])];
    struct hf_store_error error = {""};

    (void)state;
    cases_chain_start(&chain, store);
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        cases_reservation(&rows[i], ids[i]);
    }
    commit_ok(&chain, rows, sizeof(ids) / sizeof(ids[0]));
    assert_int_equal(chain.report.conflicts_cnt, 0);
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        struct collected *got = calloc(1, sizeof(*got));

        assert_status(HF_STORE_OK, hf_store_receipts(store, "seg'ment\\\"", ids[i], collect, got, &error),
                      error);
        assert_int_equal(got->cnt, 1);
        assert_string_equal(got->rows[0].id.bytes, ids[i]);
        free(got);
    }
    cases_drop(store, url);
}

/* ---- exactly once ------------------------------------------------------------------------------------------------ */

static void a_batch_follows_the_one_before(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct cases_chain wrong;
    struct hf_store_batch first;
    struct hf_store_head head;
    struct hf_receipt row;
    bool found;

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&row, "a");
    commit_ok(&chain, &row, 1);
    first = chain.batch;

    wrong = chain;
    wrong.batch.digest[0] ^= 1;
    cases_reservation(&row, "b");
    assert_status(HF_STORE_BEHIND, cases_chain_commit(&wrong, &row, 1), wrong.error);
    assert_non_null(strstr(wrong.error.text, "lost receipts"));

    wrong = chain;
    wrong.batch.number = 5;
    assert_status(HF_STORE_BEHIND, cases_chain_commit(&wrong, &row, 1), wrong.error);

    wrong = chain;
    wrong.next_seq = 7;
    assert_status(HF_STORE_INVALID, cases_chain_commit(&wrong, &row, 1), wrong.error);
    assert_int_equal(row.fate, HF_FATE_NONE);
    assert_true(row.reservation_seq == HF_UNKNOWN);

    commit_ok(&chain, &row, 1);
    assert_status(HF_STORE_OK, hf_store_head(store, SEGMENT, &head, &chain.error), chain.error);
    assert_int_equal(head.last.number, 2);
    assert_int_equal(head.next_seq, 3);
    assert_memory_equal(head.last.before, first.digest, HF_DIGEST_BYTES);
    assert_memory_equal(head.last.digest, chain.batch.digest, HF_DIGEST_BYTES);
    assert_status(HF_STORE_OK, hf_store_batch(store, SEGMENT, 1, &found, &first, &chain.error), chain.error);
    assert_true(found);
    assert_int_equal(first.rows_cnt, 1);
    assert_int_equal(first.committed_ms, CASES_NOW_MS + 5000);
    cases_drop(store, url);
}

static void the_digest_of_a_batch_is_over_header_and_rows(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt rows[2];
    struct hf_digest *digest = hf_digest_new();
    struct hf_digest_batch header;
    uint8_t again[HF_DIGEST_BYTES];

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&rows[0], "a");
    cases_reservation(&rows[1], "b");
    commit_ok(&chain, rows, 2);
    header = (struct hf_digest_batch){1, 1, 1, 2, chain.batch.committed_ms, chain.batch.before};
    assert_true(hf_digest_batch_begin(digest, SEGMENT, &header));
    assert_true(hf_digest_batch_add(digest, rows[0].digest));
    assert_true(hf_digest_batch_add(digest, rows[1].digest));
    assert_true(hf_digest_batch_end(digest, again));
    assert_memory_equal(again, chain.batch.digest, HF_DIGEST_BYTES);
    hf_digest_free(digest);
    cases_drop(store, url);
}

static void the_same_batch_again_changes_nothing(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct cases_chain before;
    struct hf_receipt rows[3];
    struct hf_receipt fresh[3];
    struct hf_store_batch committed;

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&rows[0], "twice");
    commit_ok(&chain, rows, 1);
    before = chain;
    cases_reservation(&rows[0], "a");
    cases_settlement(&rows[1], "a");
    cases_reservation(&rows[2], "twice"); /* a conflict, which only the first commit could find */
    commit_ok(&chain, rows, 3);
    assert_int_equal(chain.report.conflicts_cnt, 1);
    assert_false(chain.report.already);
    committed = chain.batch;

    /* By the daemon that committed it and did not hear the answer. */
    chain = before;
    commit_ok(&chain, rows, 3);
    assert_true(chain.report.already);
    assert_memory_equal(chain.batch.digest, committed.digest, HF_DIGEST_BYTES);

    /* By one that was started again and made the rows once more: it learns what the first one found. */
    chain = before;
    cases_reservation(&fresh[0], "a");
    cases_settlement(&fresh[1], "a");
    cases_reservation(&fresh[2], "twice");
    commit_ok(&chain, fresh, 3);
    assert_true(chain.report.already);
    assert_int_equal(chain.report.conflicts_cnt, 1);
    assert_int_equal(fresh[2].fate, HF_FATE_CONFLICT);
    for (size_t i = 0; i < 3; i++) {
        assert_same_receipt(&rows[i], &fresh[i]);
    }
    assert_int_equal(sql_number(url, "SELECT count(*) FROM every_receipt"), 4);
    assert_int_equal(sql_number(url, "SELECT count(*) FROM batch"), 2);
    cases_drop(store, url);
}

static void a_number_with_other_content_is_taken(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct cases_chain other;
    struct hf_receipt row;

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&row, "a");
    commit_ok(&chain, &row, 1);
    hf_store_disconnect(store); /* the host is away, and so is its lock */

    cases_chain_start(&other, cases_open(url, SEGMENT, NULL));
    other.batch = chain.batch;
    other.batch.epoch = 2;
    other.next_seq = chain.next_seq;
    cases_reservation(&row, "b");
    commit_ok(&other, &row, 1);
    hf_store_close(other.store);

    cases_reservation(&row, "b");
    assert_status(HF_STORE_TAKEN, cases_chain_commit(&chain, &row, 1), chain.error);
    assert_non_null(strstr(chain.error.text, "took over"));
    /* The same epoch, and yet another content. */
    chain.batch.epoch = 2;
    cases_reservation(&row, "c");
    assert_status(HF_STORE_TAKEN, cases_chain_commit(&chain, &row, 1), chain.error);
    assert_int_equal(sql_number(url, "SELECT count(*) FROM receipt"), 2);
    cases_drop(store, url);
}

static void one_writer_per_name(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    const struct hf_store_options impatient = {.lock_wait_ms = 1};
    struct hf_store *second = cases_open(url, NULL, &impatient);
    struct hf_store_error error = {""};
    struct hf_store_head head;

    (void)state;
    assert_status(HF_STORE_LOCKED, hf_store_lock(second, SEGMENT, &error), error);
    assert_non_null(strstr(error.text, "another daemon uses the store"));
    assert_non_null(strstr(error.text, "under the name '" SEGMENT "'"));
    /* It may read, and write under another name. */
    assert_status(HF_STORE_OK, hf_store_head(second, SEGMENT, &head, &error), error);
    assert_status(HF_STORE_OK, hf_store_lock(second, "other", &error), error);
    assert_status(HF_STORE_INVALID, hf_store_lock(second, "third", &error), error);
    hf_store_close(second);
    hf_store_close(store);
    store = cases_open(url, SEGMENT, NULL);
    cases_drop(store, url);
}

static void a_broken_connection_comes_back_with_its_lock(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    const struct hf_store_options impatient = {.lock_wait_ms = 1};
    struct hf_store *second = cases_open(url, NULL, &impatient);
    struct cases_chain chain;
    struct hf_receipt row;
    struct hf_store_error error = {""};

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&row, "a");
    commit_ok(&chain, &row, 1);
    hf_store_disconnect(store);
    cases_reservation(&row, "b");
    commit_ok(&chain, &row, 1);
    assert_status(HF_STORE_LOCKED, hf_store_lock(second, SEGMENT, &error), error);
    hf_store_close(second);
    cases_drop(store, url);
}

/* ---- the fence, references ---------------------------------------------------------------------------------------- */

static void a_second_reservation_under_an_id_is_kept_as_a_conflict(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt rows[3];
    struct collected *got = calloc(1, sizeof(*got));
    struct hf_store_totals totals;

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&rows[0], "a");
    cases_settlement(&rows[1], "a");
    commit_ok(&chain, rows, 2);
    assert_int_equal(chain.report.conflicts_cnt, 0);

    cases_reservation(&rows[0], "a");
    cases_reservation(&rows[1], "b");
    cases_reservation(&rows[2], "b"); /* twice in one batch */
    commit_ok(&chain, rows, 3);
    assert_int_equal(chain.report.conflicts_cnt, 2);
    assert_int_equal(rows[0].fate, HF_FATE_CONFLICT);
    assert_true(rows[0].conflict);
    assert_int_equal(rows[1].fate, HF_FATE_STORED);
    assert_false(rows[1].conflict);
    assert_int_equal(rows[2].fate, HF_FATE_CONFLICT);

    /* What closes the conflicting one refers to it, not to the first, and is one too. */
    cases_settlement(&rows[0], "a");
    commit_ok(&chain, rows, 1);
    assert_int_equal(rows[0].reservation_seq, 3);
    assert_true(rows[0].conflict);

    assert_status(HF_STORE_OK, hf_store_receipts(store, SEGMENT, "a", collect, got, &chain.error),
                  chain.error);
    assert_int_equal(got->cnt, 4);
    assert_false(got->rows[0].conflict);
    assert_false(got->rows[1].conflict);
    assert_int_equal(got->rows[1].reservation_seq, 1);
    assert_true(got->rows[2].conflict);
    assert_true(got->rows[3].conflict);

    /* In the sums, in no meter. */
    assert_status(HF_STORE_OK, hf_store_totals(store, SEGMENT, &totals, &chain.error), chain.error);
    assert_int_equal(totals.conflicts_cnt, 3);
    assert_true(totals.held[HF_DIM_INVOCATIONS] == 2);
    assert_true(totals.held[HF_DIM_COST] == 2 * 6200);
    assert_true(totals.charged[HF_DIM_COST] == 2 * 4100);
    assert_int_equal(sql_number(url, "SELECT requests FROM meter"), 2);
    assert_int_equal(sql_number(url, "SELECT settled_micros FROM meter"), 4100);
    free(got);
    cases_drop(store, url);
}

static void a_closing_names_the_digest_of_its_reservation(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt rows[4];
    struct hf_receipt reserved;
    uint8_t none[HF_DIGEST_BYTES] = {0};

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&rows[0], "a");
    cases_settlement(&rows[1], "a"); /* in the same batch, by id */
    cases_reservation(&rows[2], "b");
    cases_reservation(&rows[3], "c");
    commit_ok(&chain, rows, 4);
    assert_int_equal(rows[0].reservation_seq, 1);
    assert_memory_equal(rows[0].reservation_digest, none, HF_DIGEST_BYTES);
    assert_int_equal(rows[1].reservation_seq, 1);
    assert_memory_equal(rows[1].reservation_digest, rows[0].digest, HF_DIGEST_BYTES);
    reserved = rows[2];

    cases_settlement(&rows[0], "b"); /* in a later batch, by id */
    cases_settlement(&rows[1], "c"); /* told by the caller */
    rows[1].reservation_seq = 4;
    memcpy(rows[1].reservation_digest, rows[3].digest, HF_DIGEST_BYTES);
    cases_settlement(&rows[2], "nobody");
    commit_ok(&chain, rows, 3);
    assert_int_equal(rows[0].reservation_seq, reserved.seq);
    assert_memory_equal(rows[0].reservation_digest, reserved.digest, HF_DIGEST_BYTES);
    assert_int_equal(rows[1].reservation_seq, 4);
    assert_true(rows[2].reservation_seq == HF_UNKNOWN);
    assert_int_equal(chain.report.orphans_cnt, 1);
    assert_int_equal(sql_number(url,
                                "SELECT count(*) FROM receipt c JOIN receipt r ON r.seq = c.reservation_seq "
                                "AND r.digest = c.reservation_digest"),
                     3);
    cases_drop(store, url);
}

static void a_refused_row_does_not_hold_up_the_others(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt rows[7];
    struct collected *got = calloc(1, sizeof(*got));
    struct hf_store_totals totals;

    (void)state;
    cases_sql(url, store_backend->refuse_id);
    cases_chain_start(&chain, store);
    for (size_t i = 0; i < 7; i++) {
        static const char *const ids[] = {"a", "b", "refused", "c", "d", "e", "f"};

        cases_reservation(&rows[i], ids[i]);
    }
    commit_ok(&chain, rows, 7);
    assert_int_equal(chain.report.aside_cnt, 1);
    assert_int_not_equal(strlen(chain.report.aside_reason), 0);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(rows[i].fate, i == 2 ? HF_FATE_ASIDE : HF_FATE_STORED);
    }
    assert_int_equal(
        sql_number(
            url, "SELECT count(*) FROM conflict WHERE id = 'refused' AND refusal <> '' AND batch_number = 1"),
        1);
    assert_int_equal(sql_number(url, "SELECT count(*) FROM receipt"), 6);

    /* It counts, it is found, and what closes it refers to it. */
    assert_status(HF_STORE_OK, hf_store_totals(store, SEGMENT, &totals, &chain.error), chain.error);
    assert_true(totals.held[HF_DIM_COST] == 7 * 6200);
    assert_int_equal(totals.receipts_cnt, 7);
    assert_int_equal(totals.batch_rows_cnt, 7);
    assert_int_equal(totals.aside_cnt, 1);
    cases_settlement(&rows[0], "refused");
    commit_ok(&chain, rows, 1);
    assert_int_equal(rows[0].reservation_seq, 3);
    assert_int_equal(rows[0].fate, HF_FATE_ASIDE);
    assert_status(HF_STORE_OK, hf_store_receipts(store, SEGMENT, "refused", collect, got, &chain.error),
                  chain.error);
    assert_int_equal(got->cnt, 2);
    assert_int_equal(got->rows[0].fate, HF_FATE_ASIDE);
    assert_same_receipt(&rows[0], &got->rows[1]);
    /* A second one under its id is a conflict like any other. */
    cases_reservation(&rows[0], "refused");
    commit_ok(&chain, rows, 1);
    assert_int_equal(chain.report.conflicts_cnt, 1);
    free(got);
    cases_drop(store, url);
}

/* ---- sums, meters, credits ---------------------------------------------------------------------------------------- */

struct sums {
    struct hf_store_sum list[64];
    size_t cnt;
};

static int add_sum(void *ctx, const struct hf_store_sum *sum)
{
    struct sums *sums = ctx;

    assert_in_range(sums->cnt, 0, 63);
    sums->list[sums->cnt++] = *sum;
    return 0;
}

/* What a bucket holds and has settled, from the sums. */
static void bucket(const struct sums *sums, enum hf_layer layer, enum hf_window window,
                   enum hf_dimension dimension, const char *tenant, const char *team, __int128 *held,
                   __int128 *charged)
{
    *held = 0;
    *charged = 0;
    for (size_t i = 0; i < sums->cnt; i++) {
        const struct hf_store_sum *sum = &sums->list[i];

        if (sum->window == window && strcmp(sum->tenant.bytes, tenant) == 0 &&
            (team == NULL || strcmp(sum->team.bytes, team) == 0) &&
            (sum->bucket_mask >> hf_receipt_bucket(layer, window, dimension) & 1) != 0) {
            *held += sum->held[dimension];
            *charged += sum->charged[dimension];
        }
    }
}

#define ALL_WINDOWS 31U

static void sums_are_what_each_open_window_holds(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt rows[6];
    struct sums sums = {.cnt = 0};
    __int128 held;
    __int128 charged;

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&rows[0], "a");
    cases_settlement(&rows[1], "a");
    cases_reservation(&rows[2], "b");
    cases_reservation(&rows[3], "earlier minute"); /* the same month, another minute */
    rows[3].window_ms = rows[3].made_ms = CASES_NOW_MS - 120000;
    cases_reservation(&rows[4], "earlier month");
    rows[4].window_ms = rows[4].made_ms = CASES_NOW_MS - UINT64_C(40) * 86400000;
    cases_reservation(&rows[5], "other team");
    cases_name(&rows[5].team, "support");
    rows[5].bucket_mask = UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TENANT, HF_WINDOW_MONTH, HF_DIM_COST);
    commit_ok(&chain, rows, 6);
    /* A closing acts on the window of its reservation, whenever it is made. */
    cases_settlement(&rows[0], "earlier month");
    rows[0].window_ms = rows[4].window_ms;
    commit_ok(&chain, rows, 1);

    assert_status(
        HF_STORE_OK,
        hf_store_sums(store, SEGMENT, CASES_NOW_MS + 2000, ALL_WINDOWS, add_sum, &sums, &chain.error),
        chain.error);
    bucket(&sums, HF_LAYER_TEAM, HF_WINDOW_MONTH, HF_DIM_COST, "echo", "content", &held, &charged);
    assert_true(held == 2 * 6200);
    assert_true(charged == 4100);
    bucket(&sums, HF_LAYER_TENANT, HF_WINDOW_MONTH, HF_DIM_COST, "echo", NULL, &held, &charged);
    assert_true(held == 3 * 6200);
    assert_true(charged == 4100);
    bucket(&sums, HF_LAYER_TEAM, HF_WINDOW_MINUTE, HF_DIM_TOKENS, "echo", "content", &held, &charged);
    assert_true(held == 900);
    assert_true(charged == 800);
    bucket(&sums, HF_LAYER_TEAM, HF_WINDOW_MINUTE, HF_DIM_TOKENS, "echo", "support", &held, &charged);
    assert_true(held == 0);

    /* A minute later, that window is empty; and only what is asked for comes. */
    sums.cnt = 0;
    assert_status(HF_STORE_OK,
                  hf_store_sums(store, SEGMENT, CASES_NOW_MS + 60000, 1U << HF_WINDOW_MINUTE, add_sum, &sums,
                                &chain.error),
                  chain.error);
    assert_int_equal(sums.cnt, 0);
    assert_status(
        HF_STORE_OK,
        hf_store_sums(store, SEGMENT, CASES_NOW_MS, 1U << HF_WINDOW_LIFETIME, add_sum, &sums, &chain.error),
        chain.error);
    assert_int_equal(sums.cnt, 0); /* no bucket of that kind */
    assert_status(
        HF_STORE_OK,
        hf_store_sums(store, SEGMENT, CASES_NOW_MS, 1U << HF_WINDOW_MONTH, add_sum, &sums, &chain.error),
        chain.error);
    assert_int_equal(sums.cnt, 2);
    assert_int_equal(sums.list[0].rows_cnt + sums.list[1].rows_cnt, 5);
    cases_drop(store, url);
}

static void the_largest_amounts_add_up(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt *rows = calloc(300, sizeof(*rows));
    struct sums sums = {.cnt = 0};
    struct hf_store_totals totals;

    (void)state;
    cases_chain_start(&chain, store);
    for (size_t i = 0; i < 300; i++) {
        char id[16];

        snprintf(id, sizeof(id), "id-%zu", i);
        cases_reservation(&rows[i], id);
        rows[i].bucket_mask = UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MONTH, HF_DIM_COST);
        rows[i].hold_tokens = HF_AMOUNT_MAX;
        rows[i].hold_cost_micros = HF_AMOUNT_MAX;
        rows[i].held_tokens = (int64_t)HF_AMOUNT_MAX;
        rows[i].charged_cost_micros = -(int64_t)HF_AMOUNT_MAX;
    }
    commit_ok(&chain, rows, 300);
    assert_status(
        HF_STORE_OK,
        hf_store_sums(store, SEGMENT, CASES_NOW_MS, 1U << HF_WINDOW_MONTH, add_sum, &sums, &chain.error),
        chain.error);
    assert_int_equal(sums.cnt, 1);
    /* Beyond 64 bits, and exact. */
    assert_true(sums.list[0].held[HF_DIM_TOKENS] == (__int128)300 * (__int128)HF_AMOUNT_MAX);
    assert_true(sums.list[0].charged[HF_DIM_COST] == -(__int128)300 * (__int128)HF_AMOUNT_MAX);
    assert_status(HF_STORE_OK, hf_store_totals(store, SEGMENT, &totals, &chain.error), chain.error);
    assert_true(totals.held[HF_DIM_TOKENS] == (__int128)300 * (__int128)HF_AMOUNT_MAX);
    assert_true(totals.charged[HF_DIM_COST] == -(__int128)300 * (__int128)HF_AMOUNT_MAX);
    free(rows);
    cases_drop(store, url);
}

struct meters {
    struct hf_store_meter list[16];
    size_t cnt;
};

static int add_meter(void *ctx, const struct hf_store_meter *meter)
{
    struct meters *meters = ctx;

    assert_in_range(meters->cnt, 0, 15);
    meters->list[meters->cnt++] = *meter;
    return 0;
}

static void assert_meter(const struct hf_store_meter *meter, const char *model, int64_t requests,
                         int64_t failures, int64_t degraded, int64_t reserved, int64_t settled)
{
    assert_string_equal(meter->model.bytes, model);
    assert_int_equal(meter->requests, requests);
    assert_int_equal(meter->failures, failures);
    assert_int_equal(meter->degraded, degraded);
    assert_int_equal(meter->reserved_micros, reserved);
    assert_int_equal(meter->settled_micros, settled);
}

static void meters_follow_every_kind(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt rows[16];
    struct meters meters = {.cnt = 0};
    size_t n = 0;

    (void)state;
    cases_chain_start(&chain, store);
    /* mock: settled (failure), extended and disputed, released. */
    cases_reservation(&rows[n++], "settled");
    cases_settlement(&rows[n], "settled");
    rows[n++].outcome = HF_OUTCOME_FAILURE;
    cases_reservation(&rows[n++], "disputed");
    cases_closing(&rows[n], "disputed", HF_RECEIPT_EXTENSION, 0);
    rows[n].held_invocations = rows[n].held_tokens = rows[n].charged_invocations = 0;
    rows[n].held_cost_micros = 800;
    rows[n].extend_calls = 1;
    rows[n++].hold_cost_micros = 7000;
    cases_closing(&rows[n++], "disputed", HF_RECEIPT_DISPUTE, 7000);
    cases_reservation(&rows[n++], "released");
    cases_closing(&rows[n++], "released", HF_RECEIPT_RELEASE, 0);
    /* explicit amounts: expired, then a late success of unknown cost; retained. */
    cases_reservation(&rows[n++], "expired");
    cases_closing(&rows[n++], "expired", HF_RECEIPT_EXPIRY, 0);
    cases_settlement(&rows[n], "expired");
    rows[n].kind = HF_RECEIPT_LATE;
    rows[n].held_invocations = rows[n].held_tokens = rows[n].held_cost_micros = 0;
    rows[n].actual_cost_micros = HF_UNKNOWN;
    rows[n++].charged_cost_micros = 6200;
    cases_reservation(&rows[n++], "retained");
    cases_closing(&rows[n++], "retained", HF_RECEIPT_RETENTION, 6200);
    for (size_t i = 7; i < n; i++) {
        memset(&rows[i].model, 0, sizeof(rows[i].model));
    }
    /* mini, degraded and released. */
    cases_reservation(&rows[n++], "degraded");
    cases_closing(&rows[n++], "degraded", HF_RECEIPT_RELEASE, 0);
    cases_reservation(&rows[n++], "degraded 2");
    for (size_t i = n - 3; i < n; i++) {
        rows[i].admission = HF_ADMISSION_DEGRADE;
        cases_name(&rows[i].model, "mini");
    }
    commit_ok(&chain, rows, n);
    assert_status(HF_STORE_OK, hf_store_meters(store, SEGMENT, NULL, add_meter, &meters, &chain.error),
                  chain.error);
    assert_int_equal(meters.cnt, 3);
    assert_meter(&meters.list[0], "", 2, 1, 0, 0, 6200);
    assert_meter(&meters.list[1], "mini", 1, 0, 1, 6200, 0);
    assert_meter(&meters.list[2], "mock", 2, 1, 0, 6200 + 6200 + 800, 4100);
    meters.cnt = 0;
    assert_status(HF_STORE_OK, hf_store_meters(store, SEGMENT, "nobody", add_meter, &meters, &chain.error),
                  chain.error);
    assert_int_equal(meters.cnt, 0);
    assert_status(HF_STORE_OK, hf_store_meters(store, SEGMENT, "echo", add_meter, &meters, &chain.error),
                  chain.error);
    assert_int_equal(meters.cnt, 3);
    cases_drop(store, url);
}

static void credit(struct hf_receipt *row, const char *team, enum hf_window window, uint64_t window_ms,
                   uint64_t after)
{
    hf_receipt_init(row, HF_RECEIPT_CREDIT);
    cases_name(&row->tenant, "echo");
    cases_name(&row->team, team);
    cases_name(&row->made_by, "operator");
    row->reason = "the fair is on; 50 % more";
    row->made_ms = window_ms;
    row->window_ms = window_ms;
    row->credit_window = (int8_t)window;
    row->credit_micros = -5;
    row->credit_before_micros = after + 5;
    row->credit_after_micros = after;
}

static void credits_of_running_windows_come_back(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt rows[5];
    struct collected *got = calloc(1, sizeof(*got));

    (void)state;
    cases_chain_start(&chain, store);
    credit(&rows[0], "content", HF_WINDOW_MINUTE, CASES_NOW_MS - 3600000, 1);
    credit(&rows[1], "content", HF_WINDOW_MONTH, CASES_NOW_MS - 3600000, 2);
    credit(&rows[2], "support", HF_WINDOW_MONTH, CASES_NOW_MS - 3600000, 3);
    credit(&rows[3], "content", HF_WINDOW_MONTH, CASES_NOW_MS - 1800000, 4);
    credit(&rows[4], "content", HF_WINDOW_LIFETIME, CASES_NOW_MS - 1800000, 5);
    commit_ok(&chain, rows, 5);
    assert_status(HF_STORE_OK, hf_store_credits(store, SEGMENT, CASES_NOW_MS, collect, got, &chain.error),
                  chain.error);
    assert_int_equal(got->cnt, 3);
    assert_int_equal(got->rows[0].credit_after_micros, 3);
    assert_int_equal(got->rows[1].credit_after_micros, 4);
    assert_int_equal(got->rows[1].credit_micros, -5);
    assert_string_equal(got->rows[1].reason, "the fair is on; 50 % more");
    assert_int_equal(got->rows[2].credit_after_micros, 5);
    free(got);
    cases_drop(store, url);
}

/* ---- coming back ---------------------------------------------------------------------------------------------------- */

struct found {
    struct hf_reservation list[16];
    char ids[16][64];
    size_t rows_cnt[16];
    size_t cnt;
};

static int add_reservation(void *ctx, const struct hf_receipt *rows, size_t rows_cnt)
{
    struct found *found = ctx;

    assert_in_range(found->cnt, 0, 15);
    assert_true(hf_reservation_from_rows(rows, rows_cnt, &found->list[found->cnt]));
    snprintf(found->ids[found->cnt], sizeof(found->ids[0]), "%s", rows[0].id.bytes);
    found->rows_cnt[found->cnt++] = rows_cnt;
    return 0;
}

/* Reservations in every state that comes back. */
static void commit_states(struct cases_chain *chain)
{
    struct hf_receipt rows[16];
    size_t n = 0;

    cases_reservation(&rows[n++], "settled long ago");
    cases_settlement(&rows[n++], "settled long ago");
    cases_reservation(&rows[n++], "open");
    cases_reservation(&rows[n++], "extended");
    cases_reservation(&rows[n++], "settled");
    cases_reservation(&rows[n++], "expired");
    cases_reservation(&rows[n++], "late");
    cases_closing(&rows[n], "late", HF_RECEIPT_EXPIRY, 0);
    rows[n++].made_ms = CASES_NOW_MS + 4000;
    commit_ok(chain, rows, n);
    n = 0;
    cases_closing(&rows[n], "extended", HF_RECEIPT_EXTENSION, 0);
    rows[n].held_invocations = rows[n].charged_invocations = 0;
    rows[n].held_tokens = 100;
    rows[n].held_cost_micros = 800;
    rows[n].hold_tokens = 1000;
    rows[n].hold_cost_micros = 7000;
    rows[n].expires_at_ms = CASES_NOW_MS + 900000;
    rows[n++].dispatched = 1;
    cases_settlement(&rows[n], "settled");
    rows[n++].made_ms = CASES_NOW_MS + 5000;
    cases_closing(&rows[n], "expired", HF_RECEIPT_EXPIRY, 0);
    rows[n++].made_ms = CASES_NOW_MS + 4500;
    cases_settlement(&rows[n], "late");
    rows[n].kind = HF_RECEIPT_LATE;
    rows[n].held_invocations = rows[n].held_tokens = rows[n].held_cost_micros = 0;
    rows[n++].made_ms = CASES_NOW_MS + 4600;
    commit_ok(chain, rows, n);
}

static void what_is_open_and_what_is_known_come_back(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct found found = {.cnt = 0};
    struct hf_store_filter filter = {
        .open = true, .closed_since_ms = HF_UNKNOWN, .late_since_ms = HF_UNKNOWN};

    (void)state;
    cases_chain_start(&chain, store);
    commit_states(&chain);

    assert_status(HF_STORE_OK,
                  hf_store_reservations(store, SEGMENT, &filter, add_reservation, &found, &chain.error),
                  chain.error);
    assert_int_equal(found.cnt, 2);
    assert_string_equal(found.ids[0], "open");
    assert_int_equal(found.list[0].state, HF_RESERVATION_OPEN);
    assert_int_equal(found.list[0].hold_cost_micros, 6200);
    assert_int_equal(found.list[0].expires_at_ms, CASES_NOW_MS + 600000);
    assert_string_equal(found.ids[1], "extended");
    assert_int_equal(found.rows_cnt[1], 2);
    assert_int_equal(found.list[1].hold_tokens, 1000);
    assert_int_equal(found.list[1].hold_cost_micros, 7000);
    assert_int_equal(found.list[1].expires_at_ms, CASES_NOW_MS + 900000);
    assert_true(found.list[1].dispatched);

    found.cnt = 0;
    filter = (struct hf_store_filter){
        .open = false, .closed_since_ms = CASES_NOW_MS + 4700, .late_since_ms = CASES_NOW_MS + 4000};
    assert_status(HF_STORE_OK,
                  hf_store_reservations(store, SEGMENT, &filter, add_reservation, &found, &chain.error),
                  chain.error);
    assert_int_equal(found.cnt, 2);
    assert_string_equal(found.ids[0], "settled");
    assert_int_equal(found.list[0].state, HF_RESERVATION_SETTLED);
    assert_string_equal(found.ids[1], "expired");
    assert_int_equal(found.list[1].state, HF_RESERVATION_EXPIRED);

    /* Settled late at +4600, that one is known by the other horizon. */
    found.cnt = 0;
    filter = (struct hf_store_filter){
        .open = true, .closed_since_ms = CASES_NOW_MS + 4550, .late_since_ms = HF_UNKNOWN};
    assert_status(HF_STORE_OK,
                  hf_store_reservations(store, SEGMENT, &filter, add_reservation, &found, &chain.error),
                  chain.error);
    assert_int_equal(found.cnt, 4);
    assert_string_equal(found.ids[3], "late");
    assert_int_equal(found.list[3].state, HF_RESERVATION_LATE);
    assert_int_equal(found.rows_cnt[3], 3);
    cases_drop(store, url);
}

static void the_newest_epoch_and_policy_come_back(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt rows[3];
    struct collected *got = calloc(1, sizeof(*got));
    struct hf_store_head head;

    (void)state;
    cases_chain_start(&chain, store);
    hf_receipt_init(&rows[0], HF_RECEIPT_EPOCH);
    hf_receipt_init(&rows[1], HF_RECEIPT_POLICY);
    hf_receipt_init(&rows[2], HF_RECEIPT_POLICY);
    rows[0].made_ms = rows[1].made_ms = rows[2].made_ms = CASES_NOW_MS;
    rows[0].gap_from_ms = CASES_NOW_MS - 30000;
    rows[0].gap_until_ms = CASES_NOW_MS;
    rows[1].policy_revision = 1;
    rows[2].policy_revision = 2;
    rows[2].details = "{\"changes\": [{\"path\": \"tenants[0]\", \"after\": \"\xe2\x82\xac\"}]}";
    commit_ok(&chain, rows, 3);
    hf_receipt_init(&rows[0], HF_RECEIPT_EPOCH);
    rows[0].made_ms = CASES_NOW_MS;
    chain.batch.epoch = 2;
    commit_ok(&chain, rows, 1);
    assert_status(HF_STORE_OK, hf_store_last(store, SEGMENT, HF_RECEIPT_EPOCH, collect, got, &chain.error),
                  chain.error);
    assert_status(HF_STORE_OK, hf_store_last(store, SEGMENT, HF_RECEIPT_POLICY, collect, got, &chain.error),
                  chain.error);
    assert_status(HF_STORE_INVALID,
                  hf_store_last(store, SEGMENT, HF_RECEIPT_RELEASE, collect, got, &chain.error), chain.error);
    assert_int_equal(got->cnt, 2);
    assert_int_equal(got->rows[0].epoch, 2);
    assert_true(got->rows[0].gap_from_ms == HF_UNKNOWN);
    assert_int_equal(got->rows[1].policy_revision, 2);
    assert_string_equal(got->rows[1].details, rows[2].details);
    assert_status(HF_STORE_OK, hf_store_head(store, SEGMENT, &head, &chain.error), chain.error);
    assert_int_equal(head.last.epoch, 2);
    free(got);
    cases_drop(store, url);
}

static int stop_at_second(void *ctx, const struct hf_receipt *receipt)
{
    (void)receipt;
    return ++*(int *)ctx == 2;
}

static void a_reader_may_stop(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt rows[3];
    int seen = 0;

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&rows[0], "a");
    cases_reservation(&rows[1], "b");
    cases_reservation(&rows[2], "c");
    commit_ok(&chain, rows, 3);
    assert_status(HF_STORE_STOPPED, hf_store_rows(store, SEGMENT, 1, 3, stop_at_second, &seen, &chain.error),
                  chain.error);
    assert_int_equal(seen, 2);
    cases_reservation(&rows[0], "d");
    commit_ok(&chain, rows, 1);
    cases_drop(store, url);
}

static void segments_share_a_store_and_nothing_else(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct cases_chain other;
    struct hf_receipt row;
    struct hf_store_totals totals;

    (void)state;
    cases_chain_start(&chain, store);
    cases_chain_start(&other, cases_open(url, "other", NULL));
    cases_reservation(&row, "a");
    commit_ok(&chain, &row, 1);
    cases_reservation(&row, "a"); /* no conflict: an id is unique in its segment */
    commit_ok(&other, &row, 1);
    assert_int_equal(other.report.conflicts_cnt, 0);
    assert_int_equal(other.batch.number, 1);
    assert_status(HF_STORE_OK, hf_store_totals(store, "other", &totals, &chain.error), chain.error);
    assert_int_equal(totals.receipts_cnt, 1);
    hf_store_close(other.store);
    cases_drop(store, url);
}

/* ---- arguments, schema, append only --------------------------------------------------------------------------------- */

static void bad_arguments_are_refused(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct hf_store *unlocked = cases_open(url, NULL, NULL);
    struct cases_chain chain;
    struct hf_store_batch batch;
    struct hf_receipt row;

    (void)state;
    cases_chain_start(&chain, store);
    assert_status(HF_STORE_INVALID, cases_chain_commit(&chain, &row, 0), chain.error);
    cases_reservation(&row, "a");
    row.held_tokens = 0;
    row.hold_tokens = UINT64_MAX - 1;
    assert_status(HF_STORE_INVALID, cases_chain_commit(&chain, &row, 1), chain.error);
    assert_non_null(strstr(chain.error.text, "hold_tokens"));
    cases_reservation(&row, "a");
    memset(&row.id, 0, sizeof(row.id));
    assert_status(HF_STORE_INVALID, cases_chain_commit(&chain, &row, 1), chain.error);
    cases_reservation(&row, "a");
    cases_chain_prepare(&chain, &batch, &row, 1);
    row.seq++;
    assert_status(HF_STORE_INVALID, hf_store_commit(store, &batch, &row, 1, NULL, &chain.error), chain.error);
    row.seq--;
    row.epoch++;
    assert_status(HF_STORE_INVALID, hf_store_commit(store, &batch, &row, 1, NULL, &chain.error), chain.error);
    row.epoch--;
    assert_status(HF_STORE_INVALID, hf_store_commit(unlocked, &batch, &row, 1, NULL, &chain.error),
                  chain.error);
    assert_status(HF_STORE_INVALID, hf_store_lock(unlocked, "", &chain.error), chain.error);
    assert_status(HF_STORE_INVALID, hf_store_lock(unlocked, "bad\nname", &chain.error), chain.error);
    hf_store_close(unlocked);
    commit_ok(&chain, &row, 1);
    cases_drop(store, url);
}

static void a_store_without_schema_says_what_to_do(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = (struct hf_store *)1;
    struct hf_store_error error = {""};
    int64_t files;

    (void)state;
    assert_int_equal(store_backend->make(url, sizeof(url)), 0);
    assert_status(HF_STORE_SCHEMA, hf_store_open(url, NULL, &store, &error), error);
    assert_null(store);
    assert_non_null(strstr(error.text, "holdfast store init"));
    assert_status(HF_STORE_OK, hf_store_init(url, NULL, &error), error);
    files = sql_number(url, "SELECT count(*) FROM migration");
    assert_true(files > 0);
    assert_status(HF_STORE_OK, hf_store_init(url, NULL, &error), error); /* twice is once */
    assert_int_equal(sql_number(url, "SELECT count(*) FROM migration"), files);
    cases_drop(cases_open(url, NULL, NULL), url);
}

/* The owner changes rows as only retention may. */
static void change(const char *url, const char *sql)
{
    char text[1024];

    snprintf(text, sizeof(text), "%s %s; %s", store_backend->before_change, sql, store_backend->after_change);
    cases_sql(url, text);
}

static void a_schema_of_another_build_is_refused(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), NULL);
    struct hf_store_error error = {""};

    (void)state;
    hf_store_close(store);
    change(url, "INSERT INTO migration VALUES (999, '999_later.sql', 'x', 0)");
    assert_status(HF_STORE_SCHEMA, hf_store_open(url, NULL, &store, &error), error);
    assert_non_null(strstr(error.text, "schema version 999"));
    assert_status(HF_STORE_SCHEMA, hf_store_init(url, NULL, &error), error);
    change(url, "DELETE FROM migration WHERE version = 999");
    change(url, "UPDATE migration SET checksum = 'f00' WHERE version = 1");
    assert_status(HF_STORE_SCHEMA, hf_store_open(url, NULL, &store, &error), error);
    assert_non_null(strstr(error.text, "001_receipts"));
    assert_non_null(strstr(error.text, "f00"));
    change(url, "DELETE FROM migration");
    assert_status(HF_STORE_SCHEMA, hf_store_open(url, NULL, &store, &error), error);
    assert_non_null(strstr(error.text, "lacks the schema change"));
    store_backend->drop(url);
}

static void nothing_is_ever_changed_or_removed(void **state)
{
    static const char *const attacks[] = {
        "UPDATE receipt SET charged_cost_micros = 0",
        "DELETE FROM receipt",
        "UPDATE batch SET rows_cnt = 0",
        "DELETE FROM batch",
        "UPDATE segment SET name = 'x'",
        "DELETE FROM segment",
        "UPDATE conflict SET refusal = ''",
        "DELETE FROM migration",
        "UPDATE migration SET checksum = ''",
        "INSERT INTO receipt SELECT * FROM receipt WHERE true ON CONFLICT (segment_id, seq) DO UPDATE SET epoch = 9",
        "INSERT INTO batch SELECT * FROM batch WHERE true ON CONFLICT (segment_id, number) DO UPDATE SET epoch = 9",
        "INSERT INTO segment (name) SELECT name FROM segment WHERE true ON CONFLICT (name) DO UPDATE SET name = 'x'",
    };
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt rows[2];
    char result[1024];

    (void)state;
    cases_sql(url, store_backend->refuse_id);
    cases_chain_start(&chain, store);
    cases_reservation(&rows[0], "a");
    cases_reservation(&rows[1], "refused");
    commit_ok(&chain, rows, 2);
    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
        assert_int_not_equal(store_backend->sql(url, attacks[i], result, sizeof(result)), 0);
        assert_non_null(strstr(result, "holdfast only ever inserts"));
    }
    assert_int_equal(sql_number(url, "SELECT sum(held_cost_micros) FROM every_receipt"), 2 * 6200);
    cases_drop(store, url);
}

static void a_reader_reads_and_nothing_else(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct hf_store_options options = {.role = HF_STORE_READER};
    struct hf_store *reader = cases_open(url, NULL, &options);
    struct cases_chain chain;
    struct hf_receipt row;
    struct hf_store_totals totals;

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&row, "a");
    commit_ok(&chain, &row, 1);
    assert_status(HF_STORE_OK, hf_store_totals(reader, SEGMENT, &totals, &chain.error), chain.error);
    assert_int_equal(totals.receipts_cnt, 1);
    assert_int_equal(totals.kinds_cnt[HF_RECEIPT_RESERVATION], 1);
    assert_status(HF_STORE_INVALID, hf_store_lock(reader, "mine", &chain.error), chain.error);
    hf_store_close(reader);
    cases_drop(store, url);
}

static void a_commit_is_never_earlier_than_its_rows(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), SEGMENT);
    struct cases_chain chain;
    struct hf_receipt row;

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&row, "a");
    row.made_ms = CASES_NOW_MS + 7000;
    commit_ok(&chain, &row, 1);
    assert_int_equal(chain.batch.committed_ms, CASES_NOW_MS + 7000);
    cases_reservation(&row, "b");
    commit_ok(&chain, &row, 1);
    assert_int_equal(chain.batch.committed_ms, CASES_NOW_MS + 7000);
    cases_drop(store, url);
}

static void the_store_tells_the_time(void **state)
{
    char url[URL_BYTES];
    struct hf_store *store = cases_new(url, sizeof(url), NULL);
    struct hf_store_time first = {0};
    struct hf_store_time second = {0};
    struct hf_store_error error = {""};

    (void)state;
    assert_status(HF_STORE_OK, hf_store_now(store, &first, &error), error);
    assert_status(HF_STORE_OK, hf_store_now(store, &second, &error), error);
    assert_true(first.now_us > UINT64_C(1600000000000000));
    assert_true(second.mono_ns > first.mono_ns);
    assert_true(second.now_us >= first.now_us);
    assert_true(first.mono_ns + first.uncertainty_ns <= second.mono_ns - second.uncertainty_ns);
    cases_drop(store, url);
}

int store_cases_run(const struct store_backend *backend)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_store_has_an_empty_chain),
        cmocka_unit_test(every_field_comes_back_as_it_was),
        cmocka_unit_test(unknown_is_null_and_never_zero),
        cmocka_unit_test(names_keep_every_byte),
        cmocka_unit_test(a_batch_follows_the_one_before),
        cmocka_unit_test(the_digest_of_a_batch_is_over_header_and_rows),
        cmocka_unit_test(the_same_batch_again_changes_nothing),
        cmocka_unit_test(a_number_with_other_content_is_taken),
        cmocka_unit_test(one_writer_per_name),
        cmocka_unit_test(a_broken_connection_comes_back_with_its_lock),
        cmocka_unit_test(a_second_reservation_under_an_id_is_kept_as_a_conflict),
        cmocka_unit_test(a_closing_names_the_digest_of_its_reservation),
        cmocka_unit_test(a_refused_row_does_not_hold_up_the_others),
        cmocka_unit_test(sums_are_what_each_open_window_holds),
        cmocka_unit_test(the_largest_amounts_add_up),
        cmocka_unit_test(meters_follow_every_kind),
        cmocka_unit_test(credits_of_running_windows_come_back),
        cmocka_unit_test(what_is_open_and_what_is_known_come_back),
        cmocka_unit_test(the_newest_epoch_and_policy_come_back),
        cmocka_unit_test(a_reader_may_stop),
        cmocka_unit_test(segments_share_a_store_and_nothing_else),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(a_store_without_schema_says_what_to_do),
        cmocka_unit_test(a_schema_of_another_build_is_refused),
        cmocka_unit_test(nothing_is_ever_changed_or_removed),
        cmocka_unit_test(a_reader_reads_and_nothing_else),
        cmocka_unit_test(a_commit_is_never_earlier_than_its_rows),
        cmocka_unit_test(the_store_tells_the_time),
    };

    store_backend = backend;
    return cmocka_run_group_tests_name(backend->name, tests, NULL, NULL);
}
