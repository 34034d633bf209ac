/* What `verify` costs beside the least that anybody could do: COPY TO of the same rows and one SHA-256 of each one's canonical text.
 *
 *     tests/support/postgres.sh build/bench/bench/bench_verify [ROWS [ROUNDS]]
 *
 * Without HOLDFAST_TEST_PG it measures SQLite alone, where a SELECT of all columns stands for COPY. */
#include "persist/verify.h"
#include "bench/history.h"
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
#define START_MS   UINT64_C(1788220800000) /* 2026-09-01T00:00:00Z */
#define SEGMENT    "bench"

static char *texts[TEXTS];
static size_t text_lens[TEXTS];
static size_t texts_cnt;
static uint64_t sink; /* so that no digest is left out */

/* Texts on their way out of a store. */
struct texts {
    struct hf_digest *digest;
    size_t cnt;
};

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

static int keep_text(void *ctx, const struct hf_receipt *row)
{
    struct texts *kept = ctx;
    const char *text;

    if (!hf_digest_canonical(kept->digest, SEGMENT, row, &text, &text_lens[kept->cnt])) {
        die("a canonical text", "no memory");
    }
    texts[kept->cnt] = malloc(text_lens[kept->cnt]);
    if (texts[kept->cnt] == NULL) {
        die("a canonical text", "no memory");
    }
    memcpy(texts[kept->cnt], text, text_lens[kept->cnt]);
    kept->cnt++;
    return 0;
}

static void fill(const char *url, uint64_t rows_cnt)
{
    const struct hf_store_options options = {.durability = HF_STORE_OFF, .statement_timeout_ms = 600000};
    const struct hf_history history = {
        .rows = rows_cnt, .open = 100, .start_ms = START_MS, .teams = 100, .batch_rows = BATCH_ROWS};
    struct texts kept = {.digest = hf_digest_new()};
    struct hf_store_error error = {""};
    struct hf_store *store = NULL;
    struct hf_history_done done;

    if (kept.digest == NULL || hf_store_init(url, &options, &error) != HF_STORE_OK ||
        hf_store_open(url, &options, &store, &error) != HF_STORE_OK ||
        hf_store_lock(store, SEGMENT, &error) != HF_STORE_OK ||
        hf_history_fill(store, &history, &done, &error) != HF_STORE_OK ||
        hf_store_rows(store, SEGMENT, 1, TEXTS, keep_text, &kept, &error) != HF_STORE_OK || kept.cnt == 0) {
        die("filling a store", error.text);
    }
    texts_cnt = kept.cnt;
    hf_digest_free(kept.digest);
    hf_store_close(store);
}

/* ---- what is measured ----------------------------------------------------------------------------------------------- */

static void one_digest(struct hf_digest *digest, uint64_t row)
{
    uint8_t out[HF_DIGEST_BYTES];

    if (!hf_digest_bytes(digest, texts[row % texts_cnt], text_lens[row % texts_cnt], out)) {
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
    result = PQexec(conn, "COPY (SELECT * FROM holdfast.receipt) TO STDOUT (FORMAT binary)");
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
