/* A store to be attacked. */
#include "tests/support/verify_lab.h"

#include "persist/digest.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SQL_BYTES 65536
#define TRIGGERS  64

static char folder[64];
static unsigned made_cnt;

bool lab_available(bool postgres)
{
    const char *server = getenv("HOLDFAST_TEST_PG");

    if (!postgres && folder[0] == '\0') {
        (void)snprintf(folder, sizeof(folder), "/tmp/hf-verify.XXXXXX");
        assert_non_null(mkdtemp(folder));
    }
    return !postgres || (server != NULL && server[0] != '\0');
}

void lab_clean(void)
{
    char command[128];

    if (folder[0] != '\0') {
        (void)snprintf(command, sizeof(command), "rm -rf '%s'", folder);
        assert_int_equal(system(command), 0);
    }
}

/* ---- PostgreSQL ----------------------------------------------------------------------------------------------------- */

static bool postgres_run(const char *url, const char *sql, char *result, size_t result_bytes)
{
    PGconn *conn = PQconnectdb(url);
    PGresult *answer = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(answer);
    bool done = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;

    result[0] = '\0';
    if (!done) {
        (void)snprintf(result, result_bytes, "%s", PQerrorMessage(conn));
    } else if (status == PGRES_TUPLES_OK && PQntuples(answer) > 0) {
        (void)snprintf(result, result_bytes, "%s", PQgetvalue(answer, 0, 0));
    }
    PQclear(answer);
    PQfinish(conn);
    return done;
}

static void postgres_make(char *url, size_t url_bytes, const char *order)
{
    const char *server = getenv("HOLDFAST_TEST_PG");
    const char *query = strchr(server, '?');
    const char *path = strchr(strstr(server, "://") + 3, '/');
    char name[64];
    char sql[128];
    char result[512];

    (void)snprintf(name, sizeof(name), "hf_verify_%d_%u", (int)getpid(), made_cnt++);
    (void)snprintf(sql, sizeof(sql), order, name);
    if (!postgres_run(server, sql, result, sizeof(result))) {
        fail_msg("%s: %s", sql, result);
    }
    (void)snprintf(url, url_bytes, "%.*s/%s%s", (int)(path - server), server, name,
                   query == NULL ? "" : query);
}

static void postgres_drop(const char *url)
{
    const char *name = strstr(url, "/hf_verify_") + 1;
    char sql[128];
    char result[512];

    (void)snprintf(sql, sizeof(sql), "DROP DATABASE %.*s WITH (FORCE)", (int)strcspn(name, "?"), name);
    assert_true(postgres_run(getenv("HOLDFAST_TEST_PG"), sql, result, sizeof(result)));
}

/* ---- SQLite --------------------------------------------------------------------------------------------------------- */

static bool sqlite_run(sqlite3 *db, const char *sql, char *result, size_t result_bytes)
{
    const char *rest = sql;
    int rc = SQLITE_OK;

    result[0] = '\0';
    while (rc == SQLITE_OK && rest[0] != '\0') {
        sqlite3_stmt *statement = NULL;

        rc = sqlite3_prepare_v2(db, rest, -1, &statement, &rest);
        while (rc == SQLITE_OK && statement != NULL && sqlite3_step(statement) == SQLITE_ROW) {
            const unsigned char *value = sqlite3_column_text(statement, 0);

            if (result[0] == '\0' && value != NULL) {
                (void)snprintf(result, result_bytes, "%s", (const char *)value);
            }
        }
        rc = rc == SQLITE_OK ? sqlite3_finalize(statement) : rc;
    }
    if (rc != SQLITE_OK) {
        (void)snprintf(result, result_bytes, "%s", sqlite3_errmsg(db));
    }
    return rc == SQLITE_OK;
}

/* All triggers away, the statements, the same triggers again: nothing but the rows differs afterwards. */
static bool sqlite_run_lifted(sqlite3 *db, const char *sql, char *result, size_t result_bytes)
{
    char *texts[TRIGGERS];
    char drop[256];
    char again[512];
    size_t cnt = 0;
    sqlite3_stmt *statement = NULL;
    bool done;

    assert_int_equal(sqlite3_prepare_v2(db, "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'", -1,
                                        &statement, NULL),
                     SQLITE_OK);
    while (sqlite3_step(statement) == SQLITE_ROW) {
        assert_in_range(cnt, 0, TRIGGERS - 1);
        texts[cnt++] = strdup((const char *)sqlite3_column_text(statement, 1));
    }
    (void)sqlite3_finalize(statement);
    for (size_t i = 0; i < cnt; i++) {
        char name[64];

        assert_int_equal(sscanf(texts[i], "CREATE TRIGGER %63s", name), 1);
        (void)snprintf(drop, sizeof(drop), "DROP TRIGGER %s", name);
        assert_true(sqlite_run(db, drop, again, sizeof(again)));
    }
    done = sqlite_run(db, sql, result, result_bytes);
    for (size_t i = 0; i < cnt; i++) {
        assert_true(sqlite_run(db, texts[i], again, sizeof(again)));
        free(texts[i]);
    }
    return done;
}

static sqlite3 *sqlite_at(const char *url)
{
    sqlite3 *db = NULL;

    assert_int_equal(sqlite3_open_v2(url + strlen("sqlite:"), &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    (void)sqlite3_busy_timeout(db, 5000);
    assert_int_equal(sqlite3_exec(db, "PRAGMA synchronous = OFF", NULL, NULL, NULL), SQLITE_OK);
    return db;
}

/* ---- both ----------------------------------------------------------------------------------------------------------- */

static bool run(struct lab *lab, const char *sql, bool lifted, char *result, size_t result_bytes)
{
    char text[SQL_BYTES + 128];
    sqlite3 *db;
    bool done;

    if (lab->postgres) {
        (void)snprintf(text, sizeof(text), "SET search_path = holdfast, public;%s %s",
                       lifted ? "SET holdfast.retention = 'on';" : "", sql);
        return postgres_run(lab->url, text, result, result_bytes);
    }
    db = sqlite_at(lab->url);
    done =
        lifted ? sqlite_run_lifted(db, sql, result, result_bytes) : sqlite_run(db, sql, result, result_bytes);
    (void)sqlite3_close(db);
    return done;
}

const char *lab_sql(struct lab *lab, const char *format, ...)
{
    static char result[4096];
    static char sql[SQL_BYTES];
    va_list args;

    va_start(args, format);
    assert_in_range(vsnprintf(sql, sizeof(sql), format, args), 1, SQL_BYTES - 1);
    va_end(args);
    if (!run(lab, sql, true, result, sizeof(result))) {
        fail_msg("%s: %s", sql, result);
    }
    return result;
}

bool lab_try(struct lab *lab, const char *sql, char *why, size_t why_bytes)
{
    return run(lab, sql, false, why, why_bytes);
}

static void commit(struct lab *lab, struct hf_receipt *rows, size_t cnt)
{
    if (cases_chain_commit(&lab->chain, rows, cnt) != HF_STORE_OK) {
        fail_msg("%s", lab->chain.error.text);
    }
}

static void fill(struct lab *lab)
{
    struct hf_receipt rows[4];

    hf_receipt_init(&rows[0], HF_RECEIPT_EPOCH);
    hf_receipt_init(&rows[1], HF_RECEIPT_POLICY);
    rows[0].made_ms = rows[1].made_ms = CASES_NOW_MS;
    rows[0].gap_from_ms = CASES_NOW_MS - 10;
    rows[0].gap_until_ms = CASES_NOW_MS;
    rows[1].reason = "because";
    rows[1].details = "{\"a\": 1}";
    cases_name(&rows[1].made_by, "somebody");
    cases_reservation(&rows[2], "a");
    cases_reservation(&rows[3], "b");
    commit(lab, rows, 4);
    cases_settlement(&rows[0], "a");
    cases_reservation(&rows[1], "c");
    cases_reservation(&rows[2], "d");
    commit(lab, rows, 3);
    cases_settlement(&rows[0], "c");
    hf_receipt_init(&rows[1], HF_RECEIPT_CREDIT);
    rows[1].made_ms = rows[1].window_ms = CASES_NOW_MS;
    rows[1].credit_window = HF_WINDOW_MONTH;
    rows[1].credit_micros = -5;
    rows[1].credit_before_micros = 7;
    rows[1].credit_after_micros = 2;
    cases_name(&rows[1].tenant, "echo");
    cases_name(&rows[1].team, "content");
    commit(lab, rows, 2);
    cases_reservation(&rows[0], "e");
    cases_reservation(&rows[1], "f");
    cases_settlement(&rows[2], "d");
    commit(lab, rows, 3);
    cases_settlement(&rows[0], "b");
    commit(lab, rows, 1);
}

void lab_new(struct lab *lab, bool postgres)
{
    const struct hf_store_options options = {.durability = HF_STORE_OFF};
    struct hf_store_error error = {""};
    struct hf_store *other;
    struct cases_chain chain;
    struct hf_receipt row;

    memset(lab, 0, sizeof(*lab));
    lab->postgres = postgres;
    if (postgres) {
        postgres_make(lab->url, sizeof(lab->url), "CREATE DATABASE %s");
    } else {
        (void)snprintf(lab->url, sizeof(lab->url), "sqlite:%s/%u.db", folder, made_cnt++);
    }
    if (hf_store_init(lab->url, &options, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
    other = cases_open(lab->url, "other", &options);
    cases_chain_start(&chain, other);
    cases_reservation(&row, "elsewhere");
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    hf_store_close(other);
    lab->store = cases_open(lab->url, "gateway", &options);
    cases_chain_start(&lab->chain, lab->store);
    fill(lab);
}

void lab_drop(struct lab *lab)
{
    hf_store_close(lab->store);
    lab->store = NULL;
    if (lab->postgres) {
        postgres_drop(lab->url);
    }
}

/* ---- looking -------------------------------------------------------------------------------------------------------- */

static void keep(void *ctx, const struct hf_verify_finding *finding)
{
    struct lab *lab = ctx;
    struct lab_finding *kept;

    if (lab->findings_cnt++ >= LAB_FINDINGS_MAX) {
        return;
    }
    kept = &lab->findings[lab->findings_cnt - 1];
    kept->what = finding->what;
    kept->batch = finding->batch;
    kept->seq = finding->seq;
    kept->last_seq = finding->last_seq;
    (void)snprintf(kept->segment, sizeof(kept->segment), "%s",
                   finding->segment == NULL ? "" : finding->segment);
    (void)snprintf(kept->column, sizeof(kept->column), "%s", finding->column == NULL ? "" : finding->column);
    (void)snprintf(kept->text, sizeof(kept->text), "%s", finding->text);
}

static void take_head(void *ctx, const char *segment, const struct hf_store_batch *last, bool held)
{
    struct lab *lab = ctx;

    if (strcmp(segment, "gateway") == 0) {
        lab->head = *last;
        lab->held = held;
    }
}

void lab_look(struct lab *lab, const struct hf_verify_head *heads, size_t heads_cnt)
{
    const struct hf_store_options reading = {.role = HF_STORE_READER};
    const struct hf_verify_options options = {
        .heads = heads,
        .heads_cnt = heads_cnt,
        .finding = keep,
        .head = take_head,
        .ctx = lab,
        .page_rows = 4, /* so that pages have ends where it matters */
    };
    struct hf_store_error error = {""};
    struct hf_store *reader = cases_open(lab->url, NULL, &reading);

    lab->findings_cnt = 0;
    if (hf_verify(reader, &options, &lab->report, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(lab->report.findings_cnt, lab->findings_cnt);
    hf_store_close(reader);
}

const struct lab_finding *lab_found(const struct lab *lab, enum hf_verify_what what, uint64_t batch,
                                    uint64_t seq)
{
    for (size_t i = 0; i < lab->findings_cnt && i < LAB_FINDINGS_MAX; i++) {
        const struct lab_finding *finding = &lab->findings[i];

        if (finding->what == what && (batch == 0 || finding->batch == batch) &&
            (seq == 0 || (finding->seq <= seq && seq <= finding->last_seq))) {
            return finding;
        }
    }
    return NULL;
}

const char *lab_told(const struct lab *lab)
{
    static char text[8192];
    size_t len = 0;

    text[0] = '\0';
    for (size_t i = 0; i < lab->findings_cnt && i < LAB_FINDINGS_MAX && len < sizeof(text); i++) {
        const struct lab_finding *finding = &lab->findings[i];

        len += (size_t)snprintf(text + len, sizeof(text) - len,
                                "\n  %s %s batch %" PRIu64 " receipts %" PRIu64 "-%" PRIu64 " column %s: %s",
                                hf_verify_what_name(finding->what), finding->segment, finding->batch,
                                finding->seq, finding->last_seq, finding->column, finding->text);
    }
    return text;
}

/* ---- forging -------------------------------------------------------------------------------------------------------- */

#define ROWS_MAX 32

struct rows {
    struct hf_receipt list[ROWS_MAX];
    size_t cnt;
};

static int add_row(void *ctx, const struct hf_receipt *receipt)
{
    struct rows *rows = ctx;

    assert_in_range(rows->cnt, 0, ROWS_MAX - 1);
    rows->list[rows->cnt] = *receipt;
    rows->list[rows->cnt].reason = receipt->reason == NULL ? NULL : strdup(receipt->reason);
    rows->list[rows->cnt].details = receipt->details == NULL ? NULL : strdup(receipt->details);
    rows->cnt++;
    return 0;
}

static void set_digest(struct lab *lab, const char *table, const char *column, const char *where, uint64_t at,
                       const uint8_t digest[HF_DIGEST_BYTES])
{
    char hex[2 * HF_DIGEST_BYTES + 1];

    hf_digest_hex(digest, hex);
    (void)lab_sql(lab,
                  "UPDATE %s SET %s = %s'%s'%s WHERE %s = %" PRIu64
                  " AND segment_id = (SELECT segment_id FROM segment WHERE name = 'gateway')",
                  table, column, lab->postgres ? "decode(" : "x", hex, lab->postgres ? ", 'hex')" : "", where,
                  at);
}

static void forge_batch(struct lab *lab, struct hf_digest *digest, struct hf_store_batch *batch, uint64_t seq)
{
    struct rows *rows = calloc(1, sizeof(*rows));
    struct hf_store_error error = {""};
    struct hf_digest_batch header = {.number = batch->number,
                                     .epoch = batch->epoch,
                                     .first_seq = batch->first_seq,
                                     .rows_cnt = batch->rows_cnt,
                                     .committed_ms = batch->committed_ms,
                                     .before = batch->before};

    assert_int_equal(
        hf_store_rows(lab->store, "gateway", batch->first_seq, batch->rows_cnt, add_row, rows, &error),
        HF_STORE_OK);
    for (size_t i = 0; i < rows->cnt; i++) {
        if (rows->list[i].seq >= seq) {
            assert_true(hf_digest_receipt(digest, "gateway", &rows->list[i], rows->list[i].digest));
            set_digest(lab, "receipt", "digest", "seq", rows->list[i].seq, rows->list[i].digest);
        }
    }
    assert_true(hf_digest_batch_begin(digest, "gateway", &header));
    for (size_t i = 0; i < rows->cnt; i++) {
        assert_true(hf_digest_batch_add(digest, rows->list[i].digest));
        free((void *)(uintptr_t)rows->list[i].reason);
        free((void *)(uintptr_t)rows->list[i].details);
    }
    assert_true(hf_digest_batch_end(digest, batch->digest));
    free(rows);
}

void lab_forge(struct lab *lab, uint64_t seq, uint64_t until_batch)
{
    struct hf_digest *digest = hf_digest_new();
    struct hf_store_error error = {""};
    struct hf_store_batch batch = {.number = 0};
    uint8_t before[HF_DIGEST_BYTES];
    bool forged = false;
    bool found = true;

    assert_non_null(digest);
    for (uint64_t number = 1; found; number++) {
        assert_int_equal(hf_store_batch(lab->store, "gateway", number, &found, &batch, &error), HF_STORE_OK);
        if (!found || seq >= batch.first_seq + batch.rows_cnt) {
            continue;
        }
        if (forged && number <= until_batch) {
            memcpy(batch.before, before, HF_DIGEST_BYTES);
            set_digest(lab, "batch", "before", "number", number, before);
        }
        if (!forged || number <= until_batch) {
            forge_batch(lab, digest, &batch, forged ? UINT64_MAX : seq);
        }
        if (number <= until_batch) {
            set_digest(lab, "batch", "digest", "number", number, batch.digest);
        }
        memcpy(before, batch.digest, HF_DIGEST_BYTES);
        forged = true;
    }
    hf_digest_free(digest);
}
