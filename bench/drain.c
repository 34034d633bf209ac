/* What committing receipts costs beside the least that writes the same rows into the same tables: binary COPY in transactions of
 * 10,000 (PostgreSQL), prepared inserts in transactions of 1,000 (SQLite). One connection each; both stores are initialised and empty.
 *
 *     bench_drain URL URL2 ROWS [ROUNDS]    URL for the product, URL2 for the bare one: rows of a round go on top of those before
 *
 * A round is ROWS receipts of each, one after the other. Prints receipts a second and their ratio, and the median of the ratios.
 */
#include "bench/history.h"
#include "persist/store_impl.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POSTGRES_BATCH 10000U
#define SQLITE_BATCH   1000U
#define ROUNDS_MAX     31U
#define START_MS       UINT64_C(1788220800000)
#define COLUMNS_MAX    128

_Noreturn static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_drain: %s: %s\n", what, why);
    exit(2);
}

static double clock_s(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double now_s(void)
{
    return clock_s(CLOCK_MONOTONIC);
}

/* What one side of a round took. CPU of the server's process: of a server on this machine, else 0. */
struct took {
    double seconds;
    double server_cpu_s;
    double client_cpu_s;
};

/* The CPU time that a process has had. 0: not known here. */
static double cpu_of(int64_t pid)
{
    char path[64];
    char text[64] = "";
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%" PRId64 "/schedstat", pid);
    file = pid > 0 ? fopen(path, "re") : NULL;
    if (file != NULL) {
        (void)fgets(text, sizeof(text), file);
        (void)fclose(file);
    }
    return (double)strtoull(text, NULL, 10) / 1e9;
}

/* A round's segment name: of this process, so that what is there already is in nobody's way. */
static void name_of(unsigned round, char name[32])
{
    (void)snprintf(name, 32, "bench-%d-%u", (int)getpid(), round);
}

/* Where the time of a commit goes, between the points that a store calls out for tests. */
struct phases {
    double before; /* the moment of the last point */
    double find;   /* chain, fence and digests */
    double write;  /* rows */
};

static void at_point(void *ctx, const char *point, int fd)
{
    struct phases *phases = ctx;
    double now = now_s();

    (void)fd;
    if (strcmp(point, "rows") == 0) {
        phases->find += now - phases->before;
    } else if (strcmp(point, "before-commit") == 0) {
        phases->write += now - phases->before;
    }
    phases->before = now;
}

/* The process that serves a connection; 0: none. */
static int64_t server_of(struct hf_store *store)
{
    int64_t pid = 0;

    if (store->ops == &hf_postgres_ops) {
        (void)hf_store_query(store, "SELECT pg_backend_pid()", NULL, 0, hf_store_one_integer, &pid, NULL);
    }
    return pid;
}

/* One round of the product under a segment name of its own. */
static struct took product(const char *url, uint64_t rows, unsigned round, uint32_t batch_rows)
{
    struct phases phases = {0};
    const struct hf_store_options options = {
        .statement_timeout_ms = 600000, .fault = at_point, .fault_ctx = &phases};
    const struct hf_history history = {.rows = rows,
                                       .open = 100,
                                       .start_ms = START_MS,
                                       .teams = 100,
                                       .batch_rows = batch_rows,
                                       .rollups = false};
    struct hf_store_error error = {""};
    struct hf_store *store = NULL;
    struct hf_history_done done;
    struct took took = {0};
    int64_t server;
    char name[32];

    name_of(round, name);
    if (hf_store_open(url, &options, &store, &error) != HF_STORE_OK ||
        hf_store_lock(store, name, &error) != HF_STORE_OK) {
        die(url, error.text);
    }
    server = server_of(store);
    took.server_cpu_s = -cpu_of(server);
    if (hf_history_fill(store, &history, &done, &error) != HF_STORE_OK) {
        die(url, error.text);
    }
    took.server_cpu_s += cpu_of(server);
    took.client_cpu_s = done.commit_cpu_s;
    took.seconds = done.commit_s;
    hf_store_close(store);
    (void)printf("  us a row: chain, fence and digests %.2f, rows %.2f, the rest %.2f\n",
                 phases.find * 1e6 / (double)rows, phases.write * 1e6 / (double)rows,
                 (done.commit_s - phases.find - phases.write) * 1e6 / (double)rows);
    return took;
}

/* ---- PostgreSQL ----------------------------------------------------------------------------------------------------- */

struct copied {
    char *bytes;
    int len;
};

static PGconn *connect_to(const char *url)
{
    PGconn *conn = PQconnectdb(url);

    if (PQstatus(conn) != CONNECTION_OK) {
        die("connecting", PQerrorMessage(conn));
    }
    return conn;
}

static void run(PGconn *conn, const char *sql, ExecStatusType wanted)
{
    PGresult *result = PQexec(conn, sql);

    if (PQresultStatus(result) != wanted) {
        die(sql, PQerrorMessage(conn));
    }
    PQclear(result);
}

/* The rows of the round as COPY gives them: a message a row; the first has the header in front of its row, the last is the trailer. */
static struct copied *copy_out(const char *url, unsigned round, uint64_t rows)
{
    struct copied *list = calloc(rows + 2, sizeof(*list));
    PGconn *conn = connect_to(url);
    char sql[256];
    char name[32];
    uint64_t cnt = 0;

    name_of(round, name);
    (void)snprintf(sql, sizeof(sql),
                   "COPY (SELECT r.* FROM holdfast.receipt r JOIN holdfast.segment s USING (segment_id) "
                   "WHERE s.name = '%s' ORDER BY seq) TO STDOUT BINARY",
                   name);
    if (list == NULL) {
        die("rows", "no memory");
    }
    run(conn, sql, PGRES_COPY_OUT);
    while (cnt < rows + 2 && (list[cnt].len = PQgetCopyData(conn, &list[cnt].bytes, 0)) > 0) {
        cnt++;
    }
    if (cnt < rows || cnt > rows + 1) {
        die("rows", "COPY did not give a message a row");
    }
    PQfinish(conn);
    return list;
}

#define HEADER_BYTES 19 /* of binary COPY */

static void begin_took(struct took *took, int64_t server)
{
    took->server_cpu_s = -cpu_of(server);
    took->client_cpu_s = -clock_s(CLOCK_THREAD_CPUTIME_ID);
    took->seconds = -now_s();
}

static void end_took(struct took *took, int64_t server)
{
    took->seconds += now_s();
    took->client_cpu_s += clock_s(CLOCK_THREAD_CPUTIME_ID);
    took->server_cpu_s += cpu_of(server);
}

static struct took copy_in(const char *url, struct copied *list, uint64_t rows)
{
    static const char trailer[2] = {'\xff', '\xff'};
    PGconn *conn = connect_to(url);
    struct took took;

    run(conn, "SET search_path = holdfast", PGRES_COMMAND_OK);
    begin_took(&took, PQbackendPID(conn));
    for (uint64_t at = 0; at < rows;) {
        run(conn, "BEGIN", PGRES_COMMAND_OK);
        run(conn, "COPY receipt FROM STDIN BINARY", PGRES_COPY_IN);
        if (at > 0 && PQputCopyData(conn, list[0].bytes, HEADER_BYTES) != 1) {
            die("COPY", PQerrorMessage(conn));
        }
        for (uint64_t i = 0; i < POSTGRES_BATCH && at < rows; i++, at++) {
            if (PQputCopyData(conn, list[at].bytes, list[at].len) != 1) {
                die("COPY", PQerrorMessage(conn));
            }
        }
        if (PQputCopyData(conn, trailer, 2) != 1 || PQputCopyEnd(conn, NULL) != 1) {
            die("COPY", PQerrorMessage(conn));
        }
        for (PGresult *result; (result = PQgetResult(conn)) != NULL; PQclear(result)) {
            if (PQresultStatus(result) != PGRES_COMMAND_OK) {
                die("COPY", PQresultErrorMessage(result));
            }
        }
        run(conn, "COMMIT", PGRES_COMMAND_OK);
    }
    end_took(&took, PQbackendPID(conn));
    PQfinish(conn);
    return took;
}

static struct took bare_postgres(const char *from, const char *to, unsigned round, uint64_t rows)
{
    struct copied *list = copy_out(from, round, rows);
    struct took took = copy_in(to, list, rows);

    for (uint64_t i = 0; i < rows + 2; i++) {
        PQfreemem(list[i].bytes);
    }
    free(list);
    return took;
}

/* ---- SQLite --------------------------------------------------------------------------------------------------------- */

static sqlite3 *open_file(const char *url)
{
    sqlite3 *db = NULL;

    if (sqlite3_open(url + strlen("sqlite:"), &db) != SQLITE_OK ||
        sqlite3_exec(db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL", NULL, NULL, NULL) !=
            SQLITE_OK) {
        die(url, sqlite3_errmsg(db));
    }
    return db;
}

static sqlite3_stmt *prepare(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt = NULL;

    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK) {
        die(sql, sqlite3_errmsg(db));
    }
    return stmt;
}

/* All values of the round's rows, columns one after the other. */
static sqlite3_value **read_values(const char *url, unsigned round, uint64_t rows, int *columns)
{
    sqlite3 *db = open_file(url);
    sqlite3_stmt *stmt =
        prepare(db, "SELECT r.* FROM receipt r JOIN segment s USING (segment_id) WHERE s.name = ?1 "
                    "ORDER BY seq");
    char name[32];
    sqlite3_value **values;
    uint64_t cnt = 0;

    name_of(round, name);
    (void)sqlite3_bind_text(stmt, 1, name, -1, SQLITE_TRANSIENT);
    *columns = sqlite3_column_count(stmt);
    values = calloc(rows * (uint64_t)*columns, sizeof(*values));
    if (values == NULL) {
        die("rows", "no memory");
    }
    for (; cnt < rows && sqlite3_step(stmt) == SQLITE_ROW; cnt++) {
        for (int c = 0; c < *columns; c++) {
            values[cnt * (uint64_t)*columns + (uint64_t)c] = sqlite3_value_dup(sqlite3_column_value(stmt, c));
        }
    }
    if (cnt != rows) {
        die("rows", "not all of them are there");
    }
    (void)sqlite3_finalize(stmt);
    (void)sqlite3_close(db);
    return values;
}

static struct took insert_values(const char *url, sqlite3_value *const *values, uint64_t rows, int columns)
{
    sqlite3 *db = open_file(url);
    char sql[64 + 2 * COLUMNS_MAX] = "INSERT INTO receipt VALUES (?";
    sqlite3_stmt *stmt;
    struct took took;

    for (int c = 1; c < columns; c++) {
        (void)strcat(sql, ",?");
    }
    stmt = prepare(db, strcat(sql, ")"));
    begin_took(&took, 0);
    for (uint64_t at = 0; at < rows;) {
        (void)sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        for (uint64_t i = 0; i < SQLITE_BATCH && at < rows; i++, at++) {
            for (int c = 0; c < columns; c++) {
                (void)sqlite3_bind_value(stmt, c + 1, values[at * (uint64_t)columns + (uint64_t)c]);
            }
            if (sqlite3_step(stmt) != SQLITE_DONE) {
                die("inserting", sqlite3_errmsg(db));
            }
            (void)sqlite3_reset(stmt);
        }
        if (sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) {
            die("committing", sqlite3_errmsg(db));
        }
    }
    end_took(&took, 0);
    (void)sqlite3_finalize(stmt);
    (void)sqlite3_close(db);
    return took;
}

static struct took bare_sqlite(const char *from, const char *to, unsigned round, uint64_t rows)
{
    int columns;
    sqlite3_value **values = read_values(from, round, rows, &columns);
    struct took took = insert_values(to, values, rows, columns);

    for (uint64_t i = 0; i < rows * (uint64_t)columns; i++) {
        sqlite3_value_free(values[i]);
    }
    free(values);
    return took;
}

/* ---- rounds --------------------------------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* The middle one; sorts the list. */
static double median(double *list, unsigned cnt)
{
    qsort(list, cnt, sizeof(*list), by_size);
    return list[cnt / 2];
}

struct ratios {
    double speed[ROUNDS_MAX];  /* rows a second beside bare */
    double server[ROUNDS_MAX]; /* CPU of the server for the same rows, bare beside ours */
    double index[ROUNDS_MAX];  /* time of bare rows without the index of ids */
};

static void one_round(char **argv, const char *without, unsigned r, uint64_t rows, struct ratios *ratios)
{
    bool sqlite = strncmp(argv[1], "sqlite:", 7) == 0;
    double each = 1e6 / (double)rows;
    struct took ours = product(argv[1], rows, r, sqlite ? SQLITE_BATCH : POSTGRES_BATCH);
    struct took bare =
        sqlite ? bare_sqlite(argv[1], argv[2], r, rows) : bare_postgres(argv[1], argv[2], r, rows);

    ratios->speed[r] = bare.seconds / ours.seconds;
    ratios->server[r] = ours.server_cpu_s > 0 ? bare.server_cpu_s / ours.server_cpu_s : 0;
    (void)printf("  us of CPU a row: client %.2f, bare %.2f", ours.client_cpu_s * each,
                 bare.client_cpu_s * each);
    if (ours.server_cpu_s > 0) {
        (void)printf("; server %.2f, bare %.2f", ours.server_cpu_s * each, bare.server_cpu_s * each);
    }
    (void)printf("\n");
    (void)printf("round %u: holdfast %.0f receipts/s, bare %.0f rows/s, ratio %.2f\n", r,
                 (double)rows / ours.seconds, (double)rows / bare.seconds, ratios->speed[r]);
    if (without != NULL) {
        struct took faster = bare_postgres(argv[1], without, r, rows);

        ratios->index[r] = faster.seconds / bare.seconds;
        (void)printf("  bare without the index of ids %.0f rows/s\n", (double)rows / faster.seconds);
    }
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    struct ratios ratios;
    uint64_t rows = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    unsigned rounds = argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 5;
    const char *without = argc > 5 ? argv[5] : NULL; /* a store without the index of ids */

    if (argc < 4 || rows == 0 || rounds == 0 || rounds > ROUNDS_MAX) {
        (void)fprintf(stderr, "usage: bench_drain URL URL2 ROWS [ROUNDS up to %u [URL3]]\n", ROUNDS_MAX);
        return 2;
    }
    for (unsigned r = 0; r < rounds; r++) {
        one_round(argv, without, r, rows, &ratios);
    }
    double server = median(ratios.server, rounds);

    (void)printf("median ratio %.2f (goal 0.80)", median(ratios.speed, rounds));
    if (server > 0) {
        (void)printf(", of the server's CPU %.2f", server);
    }
    (void)printf("\n");
    if (without != NULL) {
        (void)printf("the index of ids is %.0f %% of the time of bare rows (median)\n",
                     100.0 * (1.0 - median(ratios.index, rounds)));
    }
    return 0;
}
