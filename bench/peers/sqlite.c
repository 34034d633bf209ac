/* SQLite in WAL mode: a transaction that begins IMMEDIATE reserves and one settles, by prepared statements, one connection a process.
 * --address is a folder for the file; --how is what `synchronous` is: normal or full. */
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/peers/peer.h"

enum {
    TENANT = 1,
    TEAM = 2
};

enum statement {
    BEGIN_IMMEDIATE,
    COMMIT,
    ROLLBACK,
    ADD_WITHIN_LIMIT,
    CORRECT,
    INSERT_HOLD,
    SELECT_HOLD,
    SETTLE_HOLD,
    STATEMENT_CNT
};

static const char *const statement_sql[STATEMENT_CNT] = {
    [BEGIN_IMMEDIATE] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [ADD_WITHIN_LIMIT] = "UPDATE budget SET used = used + ?2 WHERE node = ?1 AND used + ?2 <= max",
    [CORRECT] = "UPDATE budget SET used = used + ?2 WHERE node = ?1",
    [INSERT_HOLD] = "INSERT INTO hold (id, held) VALUES (?1, ?2)",
    [SELECT_HOLD] = "SELECT held FROM hold WHERE id = ?1 AND actual IS NULL",
    [SETTLE_HOLD] = "UPDATE hold SET actual = ?2 WHERE id = ?1",
};

static const char schema_sql[] =
    "CREATE TABLE budget (node INTEGER PRIMARY KEY, max INTEGER NOT NULL, used INTEGER NOT NULL DEFAULT 0);"
    "CREATE TABLE hold (id INTEGER PRIMARY KEY, held INTEGER NOT NULL, actual INTEGER);";

/* The log is grown to more than what it has between two checkpoints, and then written again from its beginning: syncing a
 * file that grows takes several times as long, and would be all there is to see. */
static const char grow_log_sql[] =
    "CREATE TABLE grow (space BLOB); INSERT INTO grow VALUES (zeroblob(8000000)); DROP TABLE grow;"
    "PRAGMA wal_checkpoint(RESTART)";

struct connection {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENT_CNT];
};

static int failed(struct connection *c, const char *what)
{
    return peer_error("%s: %s", what, sqlite3_errmsg(c->db));
}

static int execute(struct connection *c, const char *sql)
{
    return sqlite3_exec(c->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : failed(c, sql);
}

static void sqlite_close(void *connection)
{
    struct connection *c = connection;
    for (int i = 0; i < STATEMENT_CNT; i++) {
        sqlite3_finalize(c->statements[i]);
    }
    sqlite3_close(c->db);
    free(c);
}

static struct connection *open_file(const struct peer_options *options)
{
    char path[4096];
    char synchronous[64];
    struct connection *c = calloc(1, sizeof(*c));
    if (!c) {
        return NULL;
    }
    snprintf(path, sizeof(path), "%s/quota.db", options->address);
    snprintf(synchronous, sizeof(synchronous), "PRAGMA synchronous = %s", options->how);
    if (sqlite3_open(path, &c->db) != SQLITE_OK) {
        peer_error("cannot open %s: %s; --address wants a folder", path, sqlite3_errmsg(c->db));
        sqlite_close(c);
        return NULL;
    }
    if (sqlite3_busy_timeout(c->db, 60000) != SQLITE_OK || execute(c, "PRAGMA journal_mode = WAL") ||
        execute(c, synchronous)) {
        sqlite_close(c);
        return NULL;
    }
    return c;
}

static void *sqlite_open(const struct peer_options *options, void *prepared, unsigned process_idx)
{
    struct connection *c = open_file(options);
    (void)prepared;
    if (c && process_idx == 0 && execute(c, grow_log_sql)) {
        sqlite_close(c);
        return NULL;
    }
    for (int i = 0; c && i < STATEMENT_CNT; i++) {
        if (sqlite3_prepare_v3(c->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &c->statements[i],
                               NULL) != SQLITE_OK) {
            failed(c, statement_sql[i]);
            sqlite_close(c);
            c = NULL;
        }
    }
    return c;
}

static void *sqlite_prepare(const struct peer_options *options)
{
    static char done;
    static const char *const endings[] = {"", "-wal", "-shm"};
    char text[4096];
    if (strcmp(options->how, "normal") != 0 && strcmp(options->how, "full") != 0) {
        peer_error("--how wants normal or full");
        return NULL;
    }
    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++) {
        snprintf(text, sizeof(text), "%s/quota.db%s", options->address, endings[i]);
        unlink(text);
    }
    struct connection *c = open_file(options);
    if (!c) {
        return NULL;
    }
    snprintf(text, sizeof(text), "INSERT INTO budget (node, max) VALUES (%d, %" PRIu64 "), (%d, %" PRIu64 ")",
             TENANT, PEER_TENANT_LIMIT, TEAM, PEER_TEAM_LIMIT);
    int result = execute(c, schema_sql) || execute(c, text);
    sqlite_close(c);
    return result ? NULL : &done;
}

/* Runs a statement with up to two numbers. SQLITE_DONE or SQLITE_ROW (then *row is its first column), else -1 after a sentence. */
static int step(struct connection *c, enum statement which, uint64_t first, uint64_t second, uint64_t *row)
{
    sqlite3_stmt *statement = c->statements[which];
    int parameter_cnt = sqlite3_bind_parameter_count(statement);
    if (parameter_cnt > 0) {
        sqlite3_bind_int64(statement, 1, (sqlite3_int64)first);
    }
    if (parameter_cnt > 1) {
        sqlite3_bind_int64(statement, 2, (sqlite3_int64)second);
    }
    int result = sqlite3_step(statement);
    if (result == SQLITE_ROW && row) {
        *row = (uint64_t)sqlite3_column_int64(statement, 0);
    }
    sqlite3_reset(statement);
    return result == SQLITE_DONE || result == SQLITE_ROW ? result : failed(c, statement_sql[which]);
}

static int add_within_limit(struct connection *c, int node, uint64_t held)
{
    if (step(c, ADD_WITHIN_LIMIT, (uint64_t)node, held, NULL) < 0) {
        return -1;
    }
    return sqlite3_changes(c->db) == 1 ? 0 : 1;
}

/* 0 admitted, 1 refused, -1 an error. */
static int reserve(struct connection *c, uint64_t id, uint64_t held)
{
    if (step(c, BEGIN_IMMEDIATE, 0, 0, NULL) < 0) {
        return -1;
    }
    int refused = add_within_limit(c, TEAM, held);
    if (refused == 0) {
        refused = add_within_limit(c, TENANT, held);
    }
    if (refused != 0) {
        return step(c, ROLLBACK, 0, 0, NULL) < 0 ? -1 : refused;
    }
    return step(c, INSERT_HOLD, id, held, NULL) < 0 || step(c, COMMIT, 0, 0, NULL) < 0 ? -1 : 0;
}

/* 0 settled, 1 not known or settled before, -1 an error. */
static int settle(struct connection *c, uint64_t id, uint64_t actual)
{
    uint64_t held = 0;
    if (step(c, BEGIN_IMMEDIATE, 0, 0, NULL) < 0) {
        return -1;
    }
    int found = step(c, SELECT_HOLD, id, 0, &held);
    if (found != SQLITE_ROW) {
        return step(c, ROLLBACK, 0, 0, NULL) < 0 || found < 0 ? -1 : 1;
    }
    return step(c, CORRECT, TEAM, actual - held, NULL) < 0 ||
                   step(c, CORRECT, TENANT, actual - held, NULL) < 0 ||
                   step(c, SETTLE_HOLD, id, actual, NULL) < 0 || step(c, COMMIT, 0, 0, NULL) < 0
               ? -1
               : 0;
}

static int sqlite_pairs(void *connection, uint64_t first_id, unsigned cnt)
{
    for (uint64_t id = first_id; id < first_id + cnt; id++) {
        if (reserve(connection, id, peer_held(id)) || settle(connection, id, peer_actual(id))) {
            return peer_error("a pair was not admitted and settled");
        }
    }
    return 0;
}

static int sqlite_refused(void *connection, uint64_t id)
{
    return reserve(connection, id, PEER_TOO_MUCH);
}

static int sqlite_totals(void *connection, struct peer_totals *totals)
{
    struct connection *c = connection;
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(
            c->db,
            "SELECT (SELECT used FROM budget WHERE node = 1), (SELECT used FROM budget WHERE node = 2),"
            " (SELECT count(*) FROM hold WHERE actual IS NOT NULL)",
            -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW) {
        sqlite3_finalize(statement);
        return failed(c, "the sums");
    }
    totals->tenant_micros = (uint64_t)sqlite3_column_int64(statement, 0);
    totals->team_micros = (uint64_t)sqlite3_column_int64(statement, 1);
    totals->record_cnt = (uint64_t)sqlite3_column_int64(statement, 2);
    sqlite3_finalize(statement);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct peer peer = {
        .name = "sqlite",
        .batch_cnt = 1,
        .prepare = sqlite_prepare,
        .open = sqlite_open,
        .pairs = sqlite_pairs,
        .refused = sqlite_refused,
        .totals = sqlite_totals,
        .close = sqlite_close,
    };
    return peer_main(argc, argv, &peer);
}
