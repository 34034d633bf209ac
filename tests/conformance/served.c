#include "served.h"

#include "session.h"

#include <glob.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RETRY_NS 20000000

static void *have(void *memory)
{
    if (memory == NULL) {
        (void)fputs("conformance: out of memory\n", stderr);
        exit(2);
    }
    return memory;
}

static char *joined(const char *a, const char *b, const char *c, const char *d)
{
    char *whole = NULL;

    if (asprintf(&whole, "%s%s%s%s", a, b, c, d) < 0) {
        whole = NULL;
    }
    return have(whole);
}

/* The same connection, to another database: in a URL its path, in a connection string the last dbname counts. */
static char *with_database(const char *connection, const char *database)
{
    const char *authority = strstr(connection, "://"), *path = NULL, *options = NULL;
    char *head = NULL, *whole = NULL;

    if (authority == NULL) {
        return joined(connection, " dbname=", database, "");
    }
    path = authority + 3 + strcspn(authority + 3, "/?");
    options = path + strcspn(path, "?");
    head = have(strndup(connection, (size_t)(path - connection)));
    whole = joined(head, "/", database, options);
    free(head);
    return whole;
}

/* Runs one statement on the database of HOLDFAST_TEST_PG; the text of an error, NULL when it went well. */
static char *run_sql(const char *before, const char *name, const char *after)
{
    PGconn *connection = PQconnectdb(getenv("HOLDFAST_TEST_PG"));
    char *quoted =
        PQstatus(connection) == CONNECTION_OK ? PQescapeIdentifier(connection, name, strlen(name)) : NULL;
    char *error = NULL;

    if (quoted != NULL) {
        char *sql = joined(before, quoted, after, "");
        PGresult *result = PQexec(connection, sql);

        if (PQresultStatus(result) != PGRES_COMMAND_OK) {
            error = have(strdup(PQerrorMessage(connection)));
        }
        PQclear(result);
        free(sql);
        PQfreemem(quoted);
    } else {
        error = have(strdup(PQerrorMessage(connection)));
    }
    PQfinish(connection);
    return error;
}

static bool is_postgres(const struct served *served)
{
    return strcmp(served->programs->store, "postgres") == 0;
}

static char *url_of(const struct served *served)
{
    const char *template = served->programs->store, *place = strstr(template, "{name}");
    char *head = NULL, *whole = NULL;

    if (is_postgres(served)) {
        return with_database(getenv("HOLDFAST_TEST_PG"), served->name);
    }
    if (strcmp(template, "sqlite") == 0) {
        head = joined("sqlite:", served->programs->folder, "/", served->name);
        whole = joined(head, ".db", "", "");
    } else {
        head = have(strndup(template, place == NULL ? strlen(template) : (size_t)(place - template)));
        whole = joined(head, place == NULL ? "" : served->name, place == NULL ? "" : place + strlen("{name}"),
                       "");
    }
    free(head);
    return whole;
}

/* Runs a command to its end; whether its status is 0. Its standard input is empty. */
static bool run(struct child *child, char *const *argv, uint64_t deadline_ns)
{
    child_start(child, argv);
    (void)close(child->to_fd);
    child->to_fd = -1;
    return child_wait(child, deadline_ns) && child->status == 0;
}

bool served_make_store(struct served *served, const struct programs *programs,
                       const struct scenario *scenario, uint64_t deadline_ns)
{
    static unsigned made_cnt;
    struct child child;
    char *error = NULL;
    bool good = false;

    *served = (struct served){.programs = programs, .daemon = {.to_fd = -1, .from_fd = -1, .errors_fd = -1}};
    (void)snprintf(served->name, sizeof(served->name), "conformance-%d-%u", (int)getpid(), ++made_cnt);
    served->store_url = url_of(served);
    if (is_postgres(served)) {
        error = run_sql("CREATE DATABASE ", served->name, "");
        if (error != NULL) {
            report(scenario, "cannot make a database: %s", error);
            free(error);
            return false;
        }
    }

    char *argv[] = {(char *)programs->holdfast, "store", "init", served->store_url, NULL};

    good = run(&child, argv, deadline_ns);
    if (!good) {
        char how[128];

        child_describe(&child, how, sizeof(how));
        report(scenario, "holdfast store init %s", how);
        child_print_errors(&child, "holdfast store init");
    }
    child_finish(&child);
    return good;
}

void served_start(struct served *served, const char *policy, json_int_t clock_ms)
{
    char clock[32];

    (void)snprintf(clock, sizeof(clock), "%" JSON_INTEGER_FORMAT, clock_ms);

    char *argv[] = {(char *)served->programs->daemon,
                    "--segment",
                    served->name,
                    "--policy",
                    (char *)policy,
                    "--store",
                    served->store_url,
                    "--clock-ms",
                    clock,
                    NULL};

    child_start(&served->daemon, argv);
}

bool served_wait_ready(struct served *served, const struct scenario *scenario, uint64_t deadline_ns)
{
    char *argv[] = {(char *)served->programs->holdfast, "run", "--segment", served->name, NULL};
    char how[128];

    for (;;) {
        struct child child;
        struct timespec pause = {.tv_nsec = RETRY_NS};
        bool ready = run(&child, argv, deadline_ns), late = now_ns() >= deadline_ns;

        if (!ready && (late || child_is_gone(&served->daemon))) {
            child_describe(&served->daemon, how, sizeof(how));
            report(scenario, "no command could attach to the segment, and the daemon %s", how);
            child_print_errors(&served->daemon, "the daemon");
            child_print_errors(&child, "holdfast run --segment");
        }
        child_finish(&child);
        if (ready || late || served->daemon.pid == 0) {
            return ready;
        }
        (void)nanosleep(&pause, NULL);
    }
}

bool served_stop(struct served *served, const struct scenario *scenario, uint64_t deadline_ns)
{
    char how[128];
    bool was_gone = child_is_gone(&served->daemon), in_time = false;

    if (!was_gone) {
        (void)kill(served->daemon.pid, SIGTERM);
    }
    in_time = child_wait(&served->daemon, deadline_ns);
    if (!was_gone && in_time && served->daemon.status == 0) {
        return true;
    }
    child_describe(&served->daemon, how, sizeof(how));
    report(scenario, "the daemon %s %s",
           was_gone ? "had left before it was asked: it" : "was asked to leave and",
           in_time ? how : "did not");
    return false;
}

/* Removes every file whose name starts so: the segment and its lock, the database and its journal. */
static void remove_all(const char *before, const char *name)
{
    char *pattern = joined(before, name, "*", "");
    glob_t found = {0};

    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            (void)unlink(found.gl_pathv[i]);
        }
    }
    globfree(&found);
    free(pattern);
}

void served_finish(struct served *served)
{
    char *in_folder = joined(served->programs->folder, "/", "", "");

    child_finish(&served->daemon);
    remove_all("/dev/shm/holdfast.", served->name);
    remove_all(in_folder, served->name);
    if (is_postgres(served)) {
        free(run_sql("DROP DATABASE IF EXISTS ", served->name, " WITH (FORCE)"));
    }
    free(in_folder);
    free(served->store_url);
}
