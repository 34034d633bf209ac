/* The store in PostgreSQL: statements, their answers, and what an error means. */
#include "persist/postgres_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COLUMNS_MAX 128
#define PARAMS_MAX  160

static bool postgres_mine(const char *url)
{
    const char *equal = strchr(url, '=');
    const char *colon = strchr(url, ':');

    if (strncmp(url, "postgres://", 11) == 0 || strncmp(url, "postgresql://", 13) == 0) {
        return true;
    }
    /* host=... dbname=...: a colon before the first = would be another scheme. */
    return equal != NULL && (colon == NULL || colon > equal);
}

static struct hf_store *postgres_make(void)
{
    struct hf_postgres *pg = calloc(1, sizeof(*pg));

    return pg == NULL ? NULL : &pg->base;
}

void hf_postgres_disconnect(struct hf_store *store)
{
    struct hf_postgres *pg = hf_postgres_of(store);

    if (pg->conn == NULL) {
        return;
    }
    if (store->locked) {
        pg->old_pid = pg->pid;
        pg->old_start_us = pg->start_us;
    }
    PQfinish(pg->conn);
    pg->conn = NULL;
    pg->in_transaction = false;
    pg->silent = false;
    hf_postgres_forget_partitions(pg);
    store->locked = false;
}

static void postgres_destroy(struct hf_store *store)
{
    free(hf_postgres_of(store)->buffer);
    free(hf_postgres_of(store));
}

static bool postgres_connected(const struct hf_store *store)
{
    return ((const struct hf_postgres *)store)->conn != NULL;
}

static int postgres_socket(const struct hf_store *store)
{
    const struct hf_postgres *pg = (const struct hf_postgres *)store;

    return pg->conn == NULL ? -1 : PQsocket(pg->conn);
}

/* ---- waiting -------------------------------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits until the socket is readable (or writable too). False: time is up. */
static bool wait_socket(const PGconn *conn, short events, int64_t until_ms)
{
    for (;;) {
        struct pollfd fd = {.fd = PQsocket(conn), .events = events};
        int64_t left_ms = until_ms - now_ms();
        int cnt;

        if (fd.fd < 0 || left_ms <= 0) {
            return false;
        }
        cnt = poll(&fd, 1, (int)left_ms);
        if (cnt > 0) {
            return true;
        }
        if (cnt < 0 && errno != EINTR) {
            return false;
        }
    }
}

/* Somewhat beyond the server's own statement timeout: then a silent connection is taken for lost. */
static int64_t deadline_ms(const struct hf_store *store)
{
    return now_ms() + store->options.statement_timeout_ms + store->options.statement_timeout_ms / 8 + 250;
}

bool hf_pg_flush(struct hf_store *store)
{
    PGconn *conn = hf_postgres_of(store)->conn;
    int64_t until_ms = deadline_ms(store);
    int left;

    while ((left = PQflush(conn)) > 0) {
        /* Readable too: the server may be waiting for us to read an error before it reads on. */
        if (!wait_socket(conn, POLLIN | POLLOUT, until_ms) || PQconsumeInput(conn) == 0) {
            return false;
        }
    }
    return left == 0;
}

PGresult *hf_pg_result(struct hf_store *store)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    int64_t until_ms = deadline_ms(store);

    while (PQisBusy(pg->conn) != 0) {
        if (!wait_socket(pg->conn, POLLIN, until_ms)) {
            pg->silent = true;
            return NULL;
        }
        if (PQconsumeInput(pg->conn) == 0) {
            break; /* the result says what the server's last words were */
        }
    }
    return PQgetResult(pg->conn);
}

bool hf_pg_wait(struct hf_store *store)
{
    struct hf_postgres *pg = hf_postgres_of(store);

    if (!wait_socket(pg->conn, POLLIN, deadline_ms(store))) {
        pg->silent = true;
        return false;
    }
    return PQconsumeInput(pg->conn) != 0;
}

void hf_pg_drain(struct hf_store *store)
{
    PGresult *result;

    while (hf_postgres_of(store)->conn != NULL && (result = hf_pg_result(store)) != NULL) {
        ExecStatusType status = PQresultStatus(result);

        PQclear(result);
        if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT ||
            PQstatus(hf_postgres_of(store)->conn) != CONNECTION_OK) {
            return;
        }
    }
}

/* ---- what an error means -------------------------------------------------------------------------------------------- */

struct meaning {
    const char *prefix; /* of the SQLSTATE; the first that fits */
    enum hf_store_status status;
    bool row_fault;
    const char *advice;
};

static const struct meaning meanings[] = {
    {"42P01", HF_STORE_REFUSED, false, "The schema is not that of this build. Run: holdfast store init URL"},
    {"42703", HF_STORE_REFUSED, false, "The schema is not that of this build. Run: holdfast store init URL"},
    {"42501", HF_STORE_REFUSED, false, "Grant the role: GRANT holdfast_runtime TO the user of the URL"},
    {"28", HF_STORE_REFUSED, false, "Look at user and password of the URL, and at pg_hba.conf"},
    {"3D000", HF_STORE_REFUSED, false, "Make the database, or name another one"},
    {"25006", HF_STORE_RETRY, false, "The server only reads: a standby? This is tried again"},
    {"53100", HF_STORE_RETRY, false, "Make room on the server's disk; this is tried again"},
    {"53300", HF_STORE_RETRY, false, "Raise max_connections or end other sessions; this is tried again"},
    {"53", HF_STORE_RETRY, false, "The server lacks resources; this is tried again"},
    {"57014", HF_STORE_RETRY, false,
     "It took longer than the statement timeout, or somebody cancelled it; this is tried again"},
    {"57", HF_STORE_RETRY, false, "The server is going down or coming up; this is tried again"},
    {"08", HF_STORE_RETRY, false, "The connection broke; this is tried again"},
    {"40", HF_STORE_RETRY, false, "This is tried again"},
    {"55P03", HF_STORE_RETRY, false, "Somebody holds a lock for long; this is tried again"},
    {"58", HF_STORE_RETRY, false, "Look at the server's disk and log; this is tried again"},
    {"22", HF_STORE_REFUSED, true, "Look at the server's log"},
    {"23", HF_STORE_REFUSED, true, "Look at the server's log"},
    {"54", HF_STORE_REFUSED, true, "Look at the server's log"},
    {"P0", HF_STORE_REFUSED, true, "Look at the server's log"},
    {"", HF_STORE_REFUSED, false, "Look at the server's log"},
};

static const struct meaning *meaning_of(const char *sqlstate)
{
    const struct meaning *meaning = meanings;

    while (strncmp(sqlstate, meaning->prefix, strlen(meaning->prefix)) != 0) {
        meaning++;
    }
    return meaning;
}

static struct hf_pg_outcome lost(struct hf_store *store, const char *doing, struct hf_store_error *error)
{
    struct hf_pg_outcome outcome = {.status = HF_STORE_RETRY};
    PGconn *conn = hf_postgres_of(store)->conn;
    const char *why = conn == NULL ? "" : PQerrorMessage(conn);

    hf_store_fail(error, HF_STORE_RETRY,
                  "%s in %s failed: the connection was lost (%.200s). This is tried again", doing,
                  store->display, why[0] == '\0' ? "no answer in time" : why);
    hf_postgres_disconnect(store);
    return outcome;
}

struct hf_pg_outcome hf_pg_judge(struct hf_store *store, const PGresult *result, const char *doing,
                                 struct hf_store_error *error)
{
    struct hf_pg_outcome outcome = {.status = HF_STORE_OK};
    const char *sqlstate;
    const char *severity;
    const char *text;
    const struct meaning *meaning;

    if (result == NULL) {
        return lost(store, doing, error);
    }
    switch (PQresultStatus(result)) {
    case PGRES_COMMAND_OK:
    case PGRES_TUPLES_OK:
    case PGRES_SINGLE_TUPLE:
    case PGRES_COPY_IN:
    case PGRES_COPY_OUT:
        return outcome;
    default:
        break;
    }
    sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (sqlstate == NULL) {
        return lost(store, doing, error);
    }
    meaning = meaning_of(sqlstate);
    snprintf(outcome.sqlstate, sizeof(outcome.sqlstate), "%s", sqlstate);
    outcome.status = meaning->status;
    outcome.row_fault = meaning->row_fault;
    hf_store_fail(error, outcome.status, "%s in %s failed: %.300s (SQLSTATE %s). %s", doing, store->display,
                  text == NULL ? "no reason given" : text, sqlstate, meaning->advice);
    severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    /* FATAL: the server's last words, though the end of the connection may not have come in yet. */
    if (PQstatus(hf_postgres_of(store)->conn) != CONNECTION_OK || severity == NULL ||
        strcmp(severity, "ERROR") != 0) {
        hf_postgres_disconnect(store);
    }
    return outcome;
}

/* ---- statements ----------------------------------------------------------------------------------------------------- */

enum hf_store_status hf_pg_command(struct hf_store *store, const char *sql, const char *doing,
                                   struct hf_store_error *error)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    enum hf_store_status status = HF_STORE_OK;
    PGresult *result;

    if (PQsendQuery(pg->conn, sql) == 0 || !hf_pg_flush(store)) {
        return hf_pg_judge(store, NULL, doing, error).status;
    }
    /* A command of several statements has several results; after the first that failed there is none. */
    while (status == HF_STORE_OK && (result = hf_pg_result(store)) != NULL) {
        status = hf_pg_judge(store, result, doing, error).status;
        PQclear(result);
    }
    if (status == HF_STORE_OK && pg->silent) {
        return hf_pg_judge(store, NULL, doing, error).status;
    }
    hf_pg_drain(store);
    return status;
}

int64_t hf_pg_integer(const char *bytes, size_t len)
{
    uint64_t value = 0;

    for (size_t i = 0; i < len; i++) {
        value = value << 8 | (unsigned char)bytes[i];
    }
    if (len < 8 && len > 0 && ((unsigned char)bytes[0] & 0x80) != 0) {
        value |= UINT64_MAX << (8 * len);
    }
    return (int64_t)value;
}

static void fetch(const PGresult *result, struct hf_column *columns, int cnt)
{
    for (int c = 0; c < cnt; c++) {
        memset(&columns[c], 0, sizeof(columns[c]));
        columns[c].null = PQgetisnull(result, 0, c) != 0;
        if (columns[c].null) {
            continue;
        }
        columns[c].bytes = PQgetvalue(result, 0, c);
        columns[c].len = (size_t)PQgetlength(result, 0, c);
        switch (PQftype(result, c)) {
        case HF_OID_BOOL:
            columns[c].integer = (unsigned char)columns[c].bytes[0];
            break;
        case HF_OID_INT8:
        case HF_OID_INT4:
        case HF_OID_INT2:
            columns[c].integer = hf_pg_integer(columns[c].bytes, columns[c].len);
            break;
        default:
            break;
        }
    }
}

enum hf_store_status hf_pg_rows(struct hf_store *store, hf_columns_fn *fn, void *ctx,
                                struct hf_store_error *error)
{
    struct hf_column columns[COLUMNS_MAX];
    enum hf_store_status status = HF_STORE_OK;

    for (;;) {
        PGresult *result = hf_pg_result(store);
        struct hf_pg_outcome outcome = hf_pg_judge(store, result, "a statement", error);
        bool row = result != NULL && PQresultStatus(result) == PGRES_SINGLE_TUPLE;

        if (outcome.status != HF_STORE_OK) {
            status = outcome.status;
        } else if (row && fn != NULL && status == HF_STORE_OK) {
            int cnt = PQnfields(result);

            fetch(result, columns, cnt < COLUMNS_MAX ? cnt : COLUMNS_MAX);
            status = fn(ctx, columns, (unsigned)cnt);
        }
        PQclear(result);
        if (!row) {
            break;
        }
    }
    hf_pg_drain(store);
    return status;
}

enum hf_store_status hf_pg_query(struct hf_store *store, const char *sql, const struct hf_param *params,
                                 unsigned params_cnt, hf_columns_fn *fn, void *ctx,
                                 struct hf_store_error *error)
{
    PGconn *conn = hf_postgres_of(store)->conn;
    Oid types[PARAMS_MAX] = {0};
    const char *values[PARAMS_MAX] = {NULL};
    int lengths[PARAMS_MAX] = {0};
    int formats[PARAMS_MAX] = {0};
    char integers[PARAMS_MAX][8];

    if (params_cnt > PARAMS_MAX) {
        return hf_store_fail(error, HF_STORE_INVALID, "a statement with too many parameters");
    }
    for (unsigned i = 0; i < params_cnt; i++) {
        static const Oid type_of[] = {
            [HF_PARAM_INTEGER] = HF_OID_INT8, [HF_PARAM_TEXT] = HF_OID_TEXT, [HF_PARAM_BYTES] = HF_OID_BYTEA};

        types[i] = type_of[params[i].type];
        formats[i] = 1;
        if (params[i].type == HF_PARAM_INTEGER) {
            hf_put_be64(integers[i], (uint64_t)params[i].integer);
            values[i] = integers[i];
            lengths[i] = 8;
        } else {
            values[i] = params[i].bytes;
            lengths[i] = (int)params[i].len;
        }
    }
    if (PQsendQueryParams(conn, sql, (int)params_cnt, types, values, lengths, formats, 1) == 0 ||
        PQsetSingleRowMode(conn) == 0 || !hf_pg_flush(store)) {
        return hf_pg_judge(store, NULL, "a statement", error).status;
    }
    return hf_pg_rows(store, fn, ctx, error);
}

static enum hf_store_status postgres_script(struct hf_store *store, const char *sql,
                                            struct hf_store_error *error)
{
    uint32_t timeout_ms = store->options.statement_timeout_ms;
    enum hf_store_status status =
        hf_pg_command(store, "SET LOCAL statement_timeout = 0", "making the schema", error);
    char *advice = NULL;

    /* Indexes of a large store take as long as they take. */
    store->options.statement_timeout_ms = INT32_MAX / 2;
    if (status == HF_STORE_OK) {
        status = hf_pg_command(store, sql, "making the schema", error);
    }
    store->options.statement_timeout_ms = timeout_ms;
    if (error != NULL && status == HF_STORE_REFUSED) {
        advice = strstr(error->text, "(SQLSTATE 42501)");
    }
    if (advice != NULL) {
        advice += strlen("(SQLSTATE 42501)");
        snprintf(
            advice, sizeof(error->text) - (size_t)(advice - error->text),
            ". The user of the URL needs the right to make a schema in this database, and the roles: let an administrator "
            "run CREATE ROLE holdfast_runtime NOLOGIN; CREATE ROLE holdfast_reader NOLOGIN;");
    }
    return status;
}

/* ---- clock, transactions -------------------------------------------------------------------------------------------- */

static enum hf_store_status one_integer(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    if (cnt != 1) {
        return HF_STORE_REFUSED;
    }
    *(int64_t *)ctx = columns[0].integer;
    return HF_STORE_OK;
}

static uint64_t mono_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static enum hf_store_status postgres_now(struct hf_store *store, struct hf_store_time *time,
                                         struct hf_store_error *error)
{
    int64_t us = 0;
    uint64_t before_ns = mono_ns();
    uint64_t after_ns;
    enum hf_store_status status =
        hf_pg_query(store, "SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000000) AS bigint)",
                    NULL, 0, one_integer, &us, error);

    after_ns = mono_ns();
    time->now_us = us < 0 ? 0 : (uint64_t)us;
    time->mono_ns = before_ns + (after_ns - before_ns) / 2;
    time->uncertainty_ns = (after_ns - before_ns) / 2;
    return status;
}

static enum hf_store_status postgres_begin(struct hf_store *store, struct hf_store_error *error)
{
    enum hf_store_status status =
        hf_pg_command(store, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", "a transaction", error);

    hf_postgres_of(store)->in_transaction = status == HF_STORE_OK;
    return status;
}

static void postgres_rollback(struct hf_store *store)
{
    struct hf_postgres *pg = hf_postgres_of(store);

    if (pg->conn != NULL && pg->in_transaction) {
        pg->in_transaction = false;
        hf_postgres_forget_partitions(pg);
        hf_pg_command(store, "ROLLBACK", "a rollback", NULL);
    }
}

static enum hf_store_status commit_unknown(struct hf_store *store, struct hf_store_error *error)
{
    hf_postgres_disconnect(store);
    return hf_store_fail(
        error, HF_STORE_UNKNOWN,
        "COMMIT was sent to %s and its answer was lost. Whether it took place is asked after the next connection",
        store->display);
}

static enum hf_store_status postgres_commit(struct hf_store *store, struct hf_store_error *error)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    struct hf_pg_outcome outcome;
    PGresult *result;
    bool committed;

    pg->in_transaction = false;
    /* From here on a lost connection leaves it open whether the server has heard us. */
    if (PQsendQuery(pg->conn, "COMMIT") == 0 || !hf_pg_flush(store)) {
        return commit_unknown(store, error);
    }
    if (store->options.fault != NULL) {
        store->options.fault(store->options.fault_ctx, "commit-sent", postgres_socket(store));
    }
    result = hf_pg_result(store);
    if (result == NULL) {
        return commit_unknown(store, error);
    }
    committed = PQresultStatus(result) == PGRES_COMMAND_OK && strcmp(PQcmdStatus(result), "COMMIT") == 0;
    outcome = hf_pg_judge(store, result, "a commit", error);
    PQclear(result);
    /* After an error too: or the next statement finds this one unfinished, and gives up the connection. */
    hf_pg_drain(store);
    if (outcome.status != HF_STORE_OK || !committed) {
        hf_postgres_forget_partitions(pg);
    }
    if (outcome.status != HF_STORE_OK) {
        /* An ERROR with the session alive undid it. When the session died of it (57P01 while waiting for a standby, for one), it
         * may have been committed before. */
        return pg->conn == NULL ? commit_unknown(store, error) : outcome.status;
    }
    if (!committed) {
        return hf_store_fail(error, HF_STORE_RETRY,
                             "the server rolled back instead of committing in %s. This is tried again",
                             store->display);
    }
    return HF_STORE_OK;
}

const struct hf_store_ops hf_postgres_ops = {
    .name = "PostgreSQL",
    .mine = postgres_mine,
    .display = hf_postgres_display,
    .make = postgres_make,
    .disconnect = hf_postgres_disconnect,
    .destroy = postgres_destroy,
    .connected = postgres_connected,
    .socket = postgres_socket,
    .connect = hf_postgres_connect,
    .schema_probe = "SELECT to_regclass('holdfast.migration') IS NOT NULL",
    .schema_suffix = ".postgres.sql",
    .script = postgres_script,
    .init_lock = hf_postgres_init_lock,
    .query = hf_pg_query,
    .snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    .scan = hf_postgres_scan,
    .schema = hf_postgres_schema,
    .take_lock = hf_postgres_take_lock,
    .now = postgres_now,
    .begin = postgres_begin,
    .fence = hf_postgres_fence,
    .lookup = hf_postgres_lookup,
    .insert = hf_postgres_insert,
    .partitions = "SELECT name, first, next FROM partition ORDER BY first",
    .append = hf_postgres_append,
    .retention = hf_postgres_retention,
    .idle = hf_postgres_idle,
    .take_away = hf_postgres_take_away,
    .commit = postgres_commit,
    .rollback = postgres_rollback,
};
