/* PostgreSQL: a function reserves and one settles, each call a transaction of a prepared statement (postgres_update.sql,
 * postgres_rows.sql). --address is a libpq URL; its schema `peer` is made anew. --how is
 *   update         budgets updated in place, each commit on the disk before the answer
 *   update-async   the same with synchronous_commit off: a crash loses the last commits
 *   rows           advisory lock, rows that are only inserted, 1,000 of them summed by each reserve; one process */
#include <inttypes.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/peer.h"
#include "bench/peers/peer_file.h"

#define PAIRS_PER_WINDOW 50
#define NUMBER_BYTES     24

enum {
    TENANT = 1,
    TEAM = 2
};

struct connection {
    PGconn *pg;
    int rows;
    unsigned period;
    unsigned pairs_left;
};

/* Runs SQL without parameters; its first value goes to `value` unless that is NULL. */
static int execute(PGconn *pg, const char *sql, char *value, size_t value_bytes)
{
    PGresult *result = PQexec(pg, sql);
    ExecStatusType status = PQresultStatus(result);
    int failed = status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK;
    if (failed) {
        peer_error("%.60s: %s", sql, PQerrorMessage(pg));
    } else if (value) {
        snprintf(value, value_bytes, "%s", PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");
    }
    PQclear(result);
    return failed ? -1 : 0;
}

static PGconn *connect_to(const struct peer_options *options)
{
    PGconn *pg = PQconnectdb(options->address);
    char fsync[8] = "";
    if (PQstatus(pg) != CONNECTION_OK) {
        peer_error("no PostgreSQL at '%s': %s", options->address, PQerrorMessage(pg));
    } else if (execute(pg, "SET client_min_messages = warning", NULL, 0) ||
               execute(pg, "SHOW fsync", fsync, sizeof(fsync))) {
        /* said */
    } else if (strcmp(fsync, "on") != 0) {
        peer_error("this server runs with fsync off, which is another work; start it with fsync on");
    } else {
        return pg;
    }
    PQfinish(pg);
    return NULL;
}

static int prepare_statements(struct connection *c)
{
    const char *reserve = c->rows ? "SELECT reserve($1, $2, 1, 2, $3)" : "SELECT reserve($1, 1, 2, $2)";
    const char *settle = c->rows ? "SELECT settle($1, $2)" : "SELECT settle($1, 1, 2, $2)";
    const char *const texts[][2] = {{"reserve", reserve}, {"settle", settle}};
    for (int i = 0; i < 2; i++) {
        PGresult *result = PQprepare(c->pg, texts[i][0], texts[i][1], 0, NULL);
        ExecStatusType status = PQresultStatus(result);
        PQclear(result);
        if (status != PGRES_COMMAND_OK) {
            return peer_error("%s: %s", texts[i][1], PQerrorMessage(c->pg));
        }
    }
    return 0;
}

static void postgres_close(void *connection)
{
    struct connection *c = connection;
    PQfinish(c->pg);
    free(c);
}

static void *postgres_open(const struct peer_options *options, void *prepared, unsigned process_idx)
{
    struct connection *c = calloc(1, sizeof(*c));
    const char *wait = strcmp(options->how, "update-async") == 0 ? "SET synchronous_commit = off"
                                                                 : "SET synchronous_commit = on";
    (void)prepared;
    if (!c) {
        return NULL;
    }
    c->rows = strcmp(options->how, "rows") == 0;
    c->period = process_idx == options->process_cnt ? 1 : 0; /* who checks: a window with something in it */
    c->pg = connect_to(options);
    if (!c->pg || execute(c->pg, "SET search_path = peer", NULL, 0) || execute(c->pg, wait, NULL, 0) ||
        prepare_statements(c)) {
        postgres_close(c);
        return NULL;
    }
    return c;
}

static void *postgres_prepare(const struct peer_options *options)
{
    static char done;
    char limits[200];
    int rows = strcmp(options->how, "rows") == 0;
    if (!rows && strcmp(options->how, "update") != 0 && strcmp(options->how, "update-async") != 0) {
        peer_error("--how wants update, update-async or rows");
        return NULL;
    }
    if (rows && options->process_cnt != 1) {
        peer_error("--how rows is measured with one process");
        return NULL;
    }
    snprintf(limits, sizeof(limits),
             "INSERT INTO peer.budget (node, max_micros) VALUES (%d, %" PRIu64 "), (%d, %" PRIu64 ")", TENANT,
             PEER_TENANT_LIMIT, TEAM, PEER_TEAM_LIMIT);
    PGconn *pg = connect_to(options);
    char *schema = peer_file_read(rows ? "postgres_rows.sql" : "postgres_update.sql");
    int result = !pg || !schema || execute(pg, schema, NULL, 0) || execute(pg, limits, NULL, 0);
    /* For the planner: a table with windows in it. They are counted down from the last, those of the run up from the first. */
    if (result == 0 && rows) {
        result = execute(pg, "SELECT peer.begin_window(1000000 - i, 1, 2) FROM generate_series(1, 50) AS i",
                         NULL, 0) ||
                 execute(pg, "ANALYZE peer.entry, peer.budget", NULL, 0);
    }
    /* What this left to be written is not the run's; and the run's log begins in a file that is written through already, since
     * fsync of one that still grows takes several times as long. */
    result = result || execute(pg, "SELECT pg_switch_wal()", NULL, 0) || execute(pg, "CHECKPOINT", NULL, 0);
    free(schema);
    PQfinish(pg);
    return result ? NULL : &done;
}

/* What the function answers, or -1. */
static int call(struct connection *c, const char *name, int parameter_cnt, const uint64_t *numbers)
{
    char texts[3][NUMBER_BYTES];
    const char *values[3];
    for (int i = 0; i < parameter_cnt; i++) {
        snprintf(texts[i], NUMBER_BYTES, "%" PRIu64, numbers[i]);
        values[i] = texts[i];
    }
    PGresult *result = PQexecPrepared(c->pg, name, parameter_cnt, values, NULL, NULL, 0);
    int answer = -1;
    if (PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1) {
        answer = atoi(PQgetvalue(result, 0, 0));
    } else {
        peer_error("%s: %s", name, PQerrorMessage(c->pg));
    }
    PQclear(result);
    return answer;
}

static int reserve(struct connection *c, uint64_t id, uint64_t held)
{
    return c->rows ? call(c, "reserve", 3, (uint64_t[]){id, c->period, held})
                   : call(c, "reserve", 2, (uint64_t[]){id, held});
}

static int postgres_pairs(void *connection, uint64_t first_id, unsigned cnt)
{
    struct connection *c = connection;
    for (uint64_t id = first_id; id < first_id + cnt; id++) {
        int reserved = reserve(c, id, peer_held(id));
        int settled = reserved == 0 ? call(c, "settle", 2, (uint64_t[]){id, peer_actual(id)}) : -1;
        if (settled != 0) {
            return peer_error("reserve answered %d, settle %d", reserved, settled);
        }
    }
    return 0;
}

static int postgres_between(void *connection)
{
    struct connection *c = connection;
    char sql[80];
    if (!c->rows || c->pairs_left-- > 0) {
        return 0;
    }
    c->pairs_left = PAIRS_PER_WINDOW - 1;
    c->period++;
    snprintf(sql, sizeof(sql), "SELECT begin_window(%u, %d, %d)", c->period, TENANT, TEAM);
    return execute(c->pg, sql, NULL, 0);
}

static int postgres_refused(void *connection, uint64_t id)
{
    struct connection *c = connection;
    int answer = reserve(c, id, PEER_TOO_MUCH);
    return answer < 0 ? -1 : answer == 2;
}

static int postgres_totals(void *connection, struct peer_totals *totals)
{
    struct connection *c = connection;
    PGresult *result = PQexec(c->pg, "SELECT tenant_micros, team_micros, record_cnt FROM totals");
    if (PQresultStatus(result) != PGRES_TUPLES_OK) {
        PQclear(result);
        return peer_error("the sums: %s", PQerrorMessage(c->pg));
    }
    totals->tenant_micros = strtoull(PQgetvalue(result, 0, 0), NULL, 10);
    totals->team_micros = strtoull(PQgetvalue(result, 0, 1), NULL, 10);
    totals->record_cnt = strtoull(PQgetvalue(result, 0, 2), NULL, 10);
    PQclear(result);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct peer peer = {
        .name = "postgres",
        .batch_cnt = 1,
        .prepare = postgres_prepare,
        .open = postgres_open,
        .pairs = postgres_pairs,
        .between = postgres_between,
        .refused = postgres_refused,
        .totals = postgres_totals,
        .close = postgres_close,
    };
    return peer_main(argc, argv, &peer);
}
