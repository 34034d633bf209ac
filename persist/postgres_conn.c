/* The store in PostgreSQL: connecting, the session's settings and role, the lock. */
#include "persist/postgres_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- URLs ----------------------------------------------------------------------------------------------------------- */

static const char *option(const PQconninfoOption *options, const char *keyword)
{
    for (; options->keyword != NULL; options++) {
        if (strcmp(options->keyword, keyword) == 0) {
            return options->val == NULL ? "" : options->val;
        }
    }
    return "";
}

/* A text that is being put together; what does not fit is left out. */
struct hf_postgres_text {
    char *text;
    size_t bytes, used;
};

static void put_char(struct hf_postgres_text *to, char c)
{
    if (to->used + 1 < to->bytes) {
        to->text[to->used++] = c;
        to->text[to->used] = '\0';
    }
}

static void put_text(struct hf_postgres_text *to, const char *text)
{
    for (; *text != '\0'; text++) {
        put_char(to, *text);
    }
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("-._~", c) != NULL);
}

/* A part of a URL: percent-encoded where it must be; `also`: what may stand as it is besides. */
static void put_part(struct hf_postgres_text *to, const char *part, const char *also)
{
    static const char digits[] = "0123456789ABCDEF";

    for (; *part != '\0'; part++) {
        if (is_plain(*part) || strchr(also, *part) != NULL) {
            put_char(to, *part);
        } else {
            put_char(to, '%');
            put_char(to, digits[(unsigned char)*part >> 4]);
            put_char(to, digits[(unsigned char)*part & 0xf]);
        }
    }
}

/* Host and port as the middle of a URL; false where they are no such: a socket, a list, an IPv6 address. */
static bool put_authority(struct hf_postgres_text *to, const char *host, const char *port)
{
    for (const char *c = host; *c != '\0'; c++) {
        if (!is_plain(*c)) {
            return false;
        }
    }
    if (host[0] == '\0' && port[0] != '\0') {
        return false;
    }
    put_text(to, host);
    put_text(to, port[0] == '\0' ? "" : ":");
    put_part(to, port, "");
    return true;
}

/* Put together again from what is known to be harmless, so that nothing else can slip through. It is a URL again: who may
 * connect without a password in it can use it. */
void hf_postgres_display(const char *url, char *text, size_t text_bytes)
{
    PQconninfoOption *options = PQconninfoParse(url, NULL);
    struct hf_postgres_text to = {text, text_bytes, 0};
    const char *host, *port;

    if (options == NULL) {
        snprintf(text, text_bytes, "postgresql (not readable)");
        return;
    }
    host = option(options, "host");
    host = host[0] == '\0' ? option(options, "hostaddr") : host;
    port = option(options, "port");
    put_text(&to, "postgresql://");
    put_part(&to, option(options, "user"), "");
    put_text(&to, option(options, "user")[0] == '\0' ? "" : "@");

    bool told = put_authority(&to, host, port);

    put_text(&to, "/");
    put_part(&to, option(options, "dbname"), "");
    if (!told) {
        put_text(&to, "?host=");
        put_part(&to, host, "/:,@");
        put_text(&to, port[0] == '\0' ? "" : "&port=");
        put_part(&to, port, ",");
    }
    PQconninfoFree(options);
}

/* ---- connect -------------------------------------------------------------------------------------------------------- */

static void silent(void *arg, const char *message)
{
    (void)arg;
    (void)message;
}

/* libpq gives no SQLSTATE for a refused connection, so its words must do; what is not recognised is tried again. */
static enum hf_store_status refused_connection(const char *text, const char **advice)
{
    static const struct {
        const char *words;
        const char *advice;
    } faults[] = {
        {"authentication failed", "Look at user and password of the URL (or PGPASSFILE)"},
        {"no password supplied", "Give the password by PGPASSFILE or in the URL"},
        {"no pg_hba.conf entry", "Let the server's administrator add one"},
        {"is not permitted to log in", "Use a role that may: the holdfast_ roles are granted to it"},
        {"permission denied for database", "Let its owner GRANT CONNECT"},
        {"\" does not exist", "Make it first, or name another one"},
        {"invalid connection option", "Look at the URL"},
        {"invalid sslmode", "Look at the URL"},
    };

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        if (strstr(text, faults[i].words) != NULL) {
            *advice = faults[i].advice;
            return HF_STORE_REFUSED;
        }
    }
    *advice = "Is the server up, and are host and port right? This is tried again";
    return HF_STORE_RETRY;
}

static enum hf_store_status open_connection(struct hf_store *store, struct hf_store_error *error)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    char connect_s[12];
    char user_timeout[12];
    /* Before dbname: defaults, which the URL may override. After it: what must be so. */
    const char *const keywords[] = {"connect_timeout",           "keepalives",
                                    "keepalives_idle",           "keepalives_interval",
                                    "keepalives_count",          "tcp_user_timeout",
                                    "fallback_application_name", "dbname",
                                    "client_encoding",           NULL};
    const char *const values[] = {connect_s,    "1",        "10",       "5",    "3",
                                  user_timeout, "holdfast", store->url, "UTF8", NULL};
    const char *advice;
    enum hf_store_status status;

    snprintf(connect_s, sizeof(connect_s), "%u", (store->options.connect_timeout_ms + 999) / 1000);
    snprintf(user_timeout, sizeof(user_timeout), "%u", store->options.statement_timeout_ms);
    pg->conn = PQconnectdbParams(keywords, values, 1);
    if (pg->conn == NULL) {
        return hf_store_fail(error, HF_STORE_NOMEM, "no memory for a connection");
    }
    if (PQstatus(pg->conn) == CONNECTION_OK) {
        PQsetNoticeProcessor(pg->conn, silent, NULL);
        PQsetnonblocking(pg->conn, 1);
        return HF_STORE_OK;
    }
    status = refused_connection(PQerrorMessage(pg->conn), &advice);
    hf_store_fail(error, status, "connecting to %s failed: %.350s. %s", store->display,
                  PQerrorMessage(pg->conn), advice);
    for (char *at = error == NULL ? NULL : strchr(error->text, '\n'); at != NULL; at = strchr(at, '\n')) {
        *at = ' ';
    }
    hf_postgres_disconnect(store);
    return status;
}

static enum hf_store_status check_url(struct hf_store *store, struct hf_store_error *error)
{
    PQconninfoOption *options = PQconninfoParse(store->url, NULL);

    /* libpq's own message may quote the URL, password and all. */
    if (options == NULL) {
        return hf_store_fail(
            error, HF_STORE_INVALID,
            "the store URL cannot be read. Use postgresql://USER@HOST:PORT/DATABASE (special characters as %%XX) or "
            "host=... dbname=...");
    }
    PQconninfoFree(options);
    return HF_STORE_OK;
}

/* ---- session -------------------------------------------------------------------------------------------------------- */

struct backend {
    int64_t pid;
    int64_t start_us;
    bool utf8;
};

static enum hf_store_status read_backend(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct backend *backend = ctx;

    (void)cnt;
    backend->pid = columns[0].integer;
    backend->start_us = columns[1].null ? 0 : columns[1].integer;
    backend->utf8 = columns[2].integer != 0;
    return HF_STORE_OK;
}

static enum hf_store_status settings(struct hf_store *store, struct hf_store_error *error)
{
    char sql[512];

    /* Unqualified names mean ours and nothing that somebody else put in the way. A server or role that commits without waiting for
     * its disk would make every answer a lie: at least that is asked for; what waits for more stays as it is. */
    snprintf(
        sql, sizeof(sql),
        "SET search_path = pg_catalog, holdfast, pg_temp; SET statement_timeout = %u; SET lock_timeout = %u; "
        "SET idle_in_transaction_session_timeout = %u; "
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
        store->options.statement_timeout_ms, store->options.statement_timeout_ms,
        2 * store->options.statement_timeout_ms);
    return hf_pg_command(store, sql, "setting up a session", error);
}

/* Sends away the server's side of a connection that we lost, if it is still that one: it holds our lock, and its transaction must
 * be over before anybody asks how it ended. */
static void end_old_backend(struct hf_store *store)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    struct hf_param params[2] = {hf_param_integer(pg->old_pid), hf_param_integer(pg->old_start_us)};

    if (pg->old_pid == 0) {
        return;
    }
    hf_pg_query(store,
                "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE pid = $1 AND "
                "CAST(floor(extract(epoch FROM backend_start) * 1000000) AS bigint) = $2",
                params, 2, NULL, NULL, NULL);
    pg->old_pid = 0;
}

static enum hf_store_status identify(struct hf_store *store, struct hf_store_error *error)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    struct backend backend = {.pid = 0};
    enum hf_store_status status = hf_pg_query(
        store,
        "SELECT pid, CAST(floor(extract(epoch FROM backend_start) * 1000000) AS bigint), "
        "current_setting('server_encoding') = 'UTF8' FROM pg_stat_activity WHERE pid = pg_backend_pid()",
        NULL, 0, read_backend, &backend, error);

    pg->pid = (int32_t)backend.pid;
    pg->start_us = backend.start_us;
    if (status == HF_STORE_OK && !backend.utf8) {
        return hf_store_fail(
            error, HF_STORE_REFUSED,
            "the database %s is not encoded in UTF8, so names could change on their way. Make one that is: "
            "CREATE DATABASE holdfast ENCODING 'UTF8' TEMPLATE template0",
            store->display);
    }
    return status;
}

/* With no more rights than needed, whoever connects; a user without that role goes on with its own. */
static enum hf_store_status take_role(struct hf_store *store, struct hf_store_error *error)
{
    bool reader = store->options.role == HF_STORE_READER;
    const char *sql = reader ? "SET ROLE holdfast_reader" : "SET ROLE holdfast_runtime";
    struct hf_pg_outcome outcome;
    PGresult *result;

    if (store->options.role == HF_STORE_OWNER) {
        return HF_STORE_OK;
    }
    if (PQsendQuery(hf_postgres_of(store)->conn, sql) == 0 || !hf_pg_flush(store)) {
        return hf_pg_judge(store, NULL, "taking a role", error).status;
    }
    result = hf_pg_result(store);
    outcome = hf_pg_judge(store, result, "taking a role", error);
    PQclear(result);
    hf_pg_drain(store);
    /* 22023: no such role (the schema is not there yet); 42501: not granted to this user. */
    if (outcome.status != HF_STORE_OK && strcmp(outcome.sqlstate, "22023") != 0 &&
        strcmp(outcome.sqlstate, "42501") != 0) {
        return outcome.status;
    }
    return reader
               ? hf_pg_command(store, "SET default_transaction_read_only = on", "setting up a session", error)
               : HF_STORE_OK;
}

enum hf_store_status hf_postgres_connect(struct hf_store *store, bool create, struct hf_store_error *error)
{
    enum hf_store_status status = check_url(store, error);

    if (status == HF_STORE_OK) {
        status = open_connection(store, error);
    }
    if (status == HF_STORE_OK) {
        status = settings(store, error);
    }
    if (status == HF_STORE_OK) {
        end_old_backend(store);
        status = hf_postgres_of(store)->conn == NULL ? HF_STORE_RETRY : identify(store, error);
    }
    if (status == HF_STORE_OK && !create) {
        status = take_role(store, error);
    }
    if (status != HF_STORE_OK) {
        hf_postgres_disconnect(store);
    }
    return status;
}

/* ---- locks ---------------------------------------------------------------------------------------------------------- */

enum hf_store_status hf_postgres_init_lock(struct hf_store *store, struct hf_store_error *error)
{
    return hf_pg_command(store, "SELECT pg_advisory_xact_lock(hashtextextended('holdfast store init', 0))",
                         "locking", error);
}

/* Waits until what this session sees as committed is as safe as a commit of its own. A session that waited for a synchronous standby
 * and was ended leaves a transaction that the standby may never have got, and that everybody sees: whoever finds it there would take
 * it for safe. So it must be followed by one that waits itself: its record comes after all others. */
static enum hf_store_status be_as_safe(struct hf_store *store, struct hf_store_error *error)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    int32_t pid = pg->pid;
    int64_t start_us = pg->start_us;
    enum hf_store_status status = hf_pg_query(store,
                                              "SELECT pg_logical_emit_message(true, 'holdfast', '') "
                                              "WHERE current_setting('synchronous_standby_names') <> ''",
                                              NULL, 0, NULL, NULL, error);

    if (status != HF_STORE_OK && pg->conn == NULL) {
        /* It has the lock and may wait for long: the next connection sends it away. */
        pg->old_pid = pid;
        pg->old_start_us = start_us;
    }
    return status;
}

/* A session lock: it ends with the session, however that ends. A pooler that hands one session to several clients breaks it. */
enum hf_store_status hf_postgres_take_lock(struct hf_store *store, struct hf_store_error *error)
{
    struct hf_param name = hf_param_text(store->segment.bytes);
    int64_t locked = 0;
    enum hf_store_status status =
        hf_pg_query(store, "SELECT pg_try_advisory_lock(hashtextextended('holdfast segment ' || $1, 0))",
                    &name, 1, hf_store_one_integer, &locked, error);

    if (status == HF_STORE_OK && locked == 0) {
        return hf_store_fail(
            error, HF_STORE_LOCKED,
            "another daemon uses the store %s under the name '%s'. Stop it, or give this one another name",
            store->display, store->segment.bytes);
    }
    return status == HF_STORE_OK ? be_as_safe(store, error) : status;
}
