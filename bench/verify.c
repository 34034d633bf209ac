/* What `verify` costs beside the least that anybody could do: COPY TO of the same rows and one SHA-256 of each one's canonical text.
 *
 *     tests/support/postgres.sh build/bench/bench/bench_verify [ROWS [ROUNDS]]
 *
 * Without HOLDFAST_TEST_PG it measures SQLite alone, where a SELECT of all columns stands for COPY. */
#include "persist/verify.h"
#include "persist/digest.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH_ROWS 10000U
#define TEXTS      1024U
#define ROUNDS_MAX 99U
#define GOAL       0.60
#define NOW_MS     UINT64_C(1790000000000)

static char *texts[TEXTS];
static size_t text_lens[TEXTS];
static uint64_t sink; /* so that no digest is left out */

_Noreturn static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_verify: %s: %s\n", what, why);
    exit(2);
}

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- the rows ------------------------------------------------------------------------------------------------------- */

static void name(struct hf_name *to, const char *text)
{
    if (!hf_name_set(to, text, strlen(text))) {
        die("a name", text);
    }
}

static void family(struct hf_receipt *row, enum hf_receipt_kind kind, uint64_t n)
{
    char id[40];

    hf_receipt_init(row, kind);
    (void)snprintf(id, sizeof(id), "%016" PRIx64 "-%08" PRIx64, n * UINT64_C(0x9E3779B97F4A7C15), n);
    name(&row->id, id);
    name(&row->tenant, "echo");
    name(&row->team, "content");
    name(&row->capability, "summary");
    name(&row->model, "mock-large-2026");
    row->made_ms = row->window_ms = NOW_MS + n / 10;
    row->expires_at_ms = row->made_ms + 300000;
    row->admission = HF_ADMISSION_ALLOW;
    row->on_expiry = HF_ON_EXPIRY_RELEASE;
    row->on_overage = HF_ON_OVERAGE_RECORD;
    row->dispatched = 0;
    row->hold_tokens = 900 + n % 1000;
    row->hold_cost_micros = 6200 + n % 5000;
    row->bucket_mask = UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MONTH, HF_DIM_COST) |
                       UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TENANT, HF_WINDOW_MONTH, HF_DIM_COST) |
                       UINT64_C(1) << hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MINUTE, HF_DIM_TOKENS);
}

static void reservation(struct hf_receipt *row, uint64_t n)
{
    family(row, HF_RECEIPT_RESERVATION, n);
    row->held_invocations = 1;
    row->held_tokens = (int64_t)row->hold_tokens;
    row->held_cost_micros = (int64_t)row->hold_cost_micros;
    row->form = HF_FORM_MODEL;
    row->basis = HF_BASIS_ESTIMATE;
    row->input_tokens = 500;
    row->max_output_tokens = 400 + n % 1000;
    row->input_micros_per_mtok = 1000000;
    row->output_micros_per_mtok = 2000000;
    row->policy_revision = 1;
    name(&row->price_revision, "2026-11");
    name(&row->currency, "CNY");
    row->limits[hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MONTH, HF_DIM_COST)] = 40000000000;
    row->limits[hf_receipt_bucket(HF_LAYER_TENANT, HF_WINDOW_MONTH, HF_DIM_COST)] = 100000000000;
    row->limits[hf_receipt_bucket(HF_LAYER_TEAM, HF_WINDOW_MINUTE, HF_DIM_TOKENS)] = 90000000;
}

static void settlement(struct hf_receipt *row, uint64_t n)
{
    family(row, HF_RECEIPT_SETTLEMENT, n);
    row->held_invocations = -1;
    row->held_tokens = -(int64_t)row->hold_tokens;
    row->held_cost_micros = -(int64_t)row->hold_cost_micros;
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
    row->released_tokens = row->hold_tokens - 800;
    row->released_cost_micros = row->hold_cost_micros - 4100;
    row->overage_tokens = 0;
    row->overage_cost_micros = 0;
    row->outcome = HF_OUTCOME_SUCCESS;
    row->quota_exceeded = 0;
    row->late = 0;
}

/* Half a batch of reservations, half of the settlements of those some batches before. */
static void make_rows(struct hf_receipt *rows, uint64_t batch)
{
    const uint64_t half = BATCH_ROWS / 2;

    for (uint64_t i = 0; i < half; i++) {
        uint64_t n = batch * half + i;

        reservation(&rows[2 * i], n);
        if (n < 3 * half) {
            reservation(&rows[2 * i + 1], n + UINT64_C(1000000000));
        } else {
            settlement(&rows[2 * i + 1], n - 3 * half);
        }
    }
}

static void keep_texts(const struct hf_receipt *rows)
{
    struct hf_digest *digest = hf_digest_new();

    for (size_t i = 0; i < TEXTS; i++) {
        const char *text;

        if (digest == NULL || !hf_digest_canonical(digest, "bench", &rows[i], &text, &text_lens[i])) {
            die("a canonical text", "no memory");
        }
        texts[i] = malloc(text_lens[i]);
        if (texts[i] == NULL) {
            die("a canonical text", "no memory");
        }
        memcpy(texts[i], text, text_lens[i]);
    }
    hf_digest_free(digest);
}

static void fill(const char *url, uint64_t rows_cnt)
{
    const struct hf_store_options options = {.durability = HF_STORE_OFF, .statement_timeout_ms = 600000};
    struct hf_receipt *rows = calloc(BATCH_ROWS, sizeof(*rows));
    struct hf_store_batch batch = {.epoch = 1};
    struct hf_store_error error = {""};
    struct hf_store *store = NULL;
    uint64_t seq = 1;

    if (rows == NULL || hf_store_init(url, &options, &error) != HF_STORE_OK ||
        hf_store_open(url, &options, &store, &error) != HF_STORE_OK ||
        hf_store_lock(store, "bench", &error) != HF_STORE_OK) {
        die("making a store", error.text);
    }
    for (uint64_t b = 0; b * BATCH_ROWS < rows_cnt; b++) {
        uint8_t before[HF_DIGEST_BYTES];

        make_rows(rows, b);
        memcpy(before, batch.digest, HF_DIGEST_BYTES);
        batch =
            (struct hf_store_batch){.number = b + 1, .epoch = 1, .first_seq = seq, .committed_ms = NOW_MS};
        memcpy(batch.before, before, HF_DIGEST_BYTES);
        for (size_t i = 0; i < BATCH_ROWS; i++) {
            rows[i].epoch = 1;
            rows[i].seq = seq++;
        }
        if (hf_store_commit(store, &batch, rows, BATCH_ROWS, NULL, &error) != HF_STORE_OK) {
            die("filling a store", error.text);
        }
    }
    keep_texts(rows);
    hf_store_close(store);
    free(rows);
}

/* ---- what is measured ----------------------------------------------------------------------------------------------- */

static void one_digest(struct hf_digest *digest, uint64_t row)
{
    uint8_t out[HF_DIGEST_BYTES];

    if (!hf_digest_bytes(digest, texts[row % TEXTS], text_lens[row % TEXTS], out)) {
        die("a digest", "libcrypto failed");
    }
    sink += out[0];
}

static double copy_postgres(const char *url, uint64_t *rows_cnt)
{
    PGconn *conn = PQconnectdb(url);
    struct hf_digest *digest = hf_digest_new();
    PGresult *result;
    char *message = NULL;
    double began;

    result = PQexec(conn, "SET statement_timeout = 0");
    PQclear(result);
    began = now_s();
    result = PQexec(conn, "COPY holdfast.receipt TO STDOUT (FORMAT binary)");
    if (PQresultStatus(result) != PGRES_COPY_OUT || digest == NULL) {
        die("COPY", PQerrorMessage(conn));
    }
    PQclear(result);
    *rows_cnt = 0;
    while (PQgetCopyData(conn, &message, 0) > 0) {
        PQfreemem(message);
        one_digest(digest, (*rows_cnt)++);
    }
    *rows_cnt -= 1; /* the trailer is a message too */
    PQfinish(conn);
    hf_digest_free(digest);
    return now_s() - began;
}

static double select_sqlite(const char *url, uint64_t *rows_cnt)
{
    struct hf_digest *digest = hf_digest_new();
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    double began = now_s();

    if (digest == NULL ||
        sqlite3_open_v2(url + strlen("sqlite:"), &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(db, "SELECT * FROM receipt", -1, &statement, NULL) != SQLITE_OK) {
        die("SELECT", sqlite3_errmsg(db));
    }
    *rows_cnt = 0;
    while (sqlite3_step(statement) == SQLITE_ROW) {
        int columns = sqlite3_column_count(statement);

        for (int c = 0; c < columns; c++) {
            switch (sqlite3_column_type(statement, c)) {
            case SQLITE_INTEGER:
                sink += (uint64_t)sqlite3_column_int64(statement, c);
                break;
            case SQLITE_NULL:
                break;
            default:
                sink += sqlite3_column_blob(statement, c) != NULL;
                sink += (uint64_t)sqlite3_column_bytes(statement, c);
                break;
            }
        }
        one_digest(digest, (*rows_cnt)++);
    }
    (void)sqlite3_finalize(statement);
    (void)sqlite3_close(db);
    hf_digest_free(digest);
    return now_s() - began;
}

static void found(void *ctx, const struct hf_verify_finding *finding)
{
    (void)ctx;
    die("the store does not hold", finding->text);
}

static double verify(const char *url, uint64_t *rows_cnt)
{
    const struct hf_store_options reading = {.role = HF_STORE_READER, .statement_timeout_ms = 600000};
    const struct hf_verify_options options = {.finding = found};
    struct hf_verify_report report;
    struct hf_store_error error = {""};
    struct hf_store *store = NULL;
    double began = now_s();

    if (hf_store_open(url, &reading, &store, &error) != HF_STORE_OK ||
        hf_verify(store, &options, &report, &error) != HF_STORE_OK) {
        die("verify", error.text);
    }
    hf_store_close(store);
    *rows_cnt = report.receipts_cnt;
    return now_s() - began;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median(double *list, size_t cnt)
{
    qsort(list, cnt, sizeof(*list), by_value);
    return cnt % 2 != 0 ? list[cnt / 2] : (list[cnt / 2 - 1] + list[cnt / 2]) / 2;
}

static void measure(const char *what, const char *url, double (*bare)(const char *, uint64_t *),
                    size_t rounds)
{
    double bares[ROUNDS_MAX];
    double verifies[ROUNDS_MAX];
    double ratios[ROUNDS_MAX];
    uint64_t rows_cnt = 0;
    uint64_t again_cnt = 0;

    (void)bare(url, &rows_cnt); /* warms the caches */
    for (size_t r = 0; r < rounds; r++) {
        bares[r] = bare(url, &rows_cnt);
        verifies[r] = verify(url, &again_cnt);
        ratios[r] = bares[r] / verifies[r];
        if (rows_cnt != again_cnt) {
            die(what, "both did not read the same number of rows");
        }
    }
    double bare_s = median(bares, rounds);
    double verify_s = median(verifies, rounds);
    double ratio = median(ratios, rounds);

    (void)printf("%-10s  %9" PRIu64
                 " rows  bare %8.0f rows/s  verify %8.0f rows/s  ratio %.2f (median of %zu)  goal %.2f: %s\n",
                 what, rows_cnt, (double)rows_cnt / bare_s, (double)rows_cnt / verify_s, ratio, rounds, GOAL,
                 ratio >= GOAL ? "reached" : "NOT reached");
}

int main(int argc, char **argv)
{
    const char *server = getenv("HOLDFAST_TEST_PG");
    uint64_t rows_cnt = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000;
    size_t rounds = argc > 2 ? (size_t)strtoull(argv[2], NULL, 10) : 7;
    char url[128];
    char path[64] = "/tmp/hf-bench.XXXXXX";
    char command[128];

    if (rows_cnt == 0 || rounds == 0 || rounds > ROUNDS_MAX) {
        die("ROWS and ROUNDS", "whole numbers from 1 on, at most 99 rounds");
    }
    if (server != NULL && server[0] != '\0') {
        fill(server, rows_cnt);
        measure("PostgreSQL", server, copy_postgres, rounds);
    } else {
        (void)puts(
            "PostgreSQL  left out: HOLDFAST_TEST_PG is not set; run it below tests/support/postgres.sh");
    }
    if (mkdtemp(path) == NULL) {
        die("a folder", path);
    }
    (void)snprintf(url, sizeof(url), "sqlite:%s/bench.db", path);
    fill(url, rows_cnt);
    measure("SQLite", url, select_sqlite, rounds);
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", path);
    return system(command) == 0 && sink != 1 ? 0 : 1;
}
