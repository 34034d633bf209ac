/* ctest: labels=postgres timeout=300
 * The store in PostgreSQL: the cases of every store, and what a server's own are: lost answers, roles, digests by psql.
 * Needs HOLDFAST_TEST_PG, the URL of a superuser; every case makes a database of its own. SQL goes through psql, as a person's
 * would. */
#include "tests/support/store_cases.h"

#include <inttypes.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *server;
static unsigned made_cnt;
static char folder[] = "/tmp/hf-psql.XXXXXX";

/* The server's URL with another database and user, as a keyword string: later settings win. */
static void url_of(char *url, size_t url_bytes, const char *database, const char *user)
{
    const char *slash = strstr(server, "://");
    const char *query = strchr(server, '?');
    const char *path = slash == NULL ? NULL : strchr(slash + 3, '/');
    const char *at = slash == NULL ? NULL : strchr(slash, '@');

    assert_non_null(path);
    if (at == NULL || at > path) {
        at = slash + 2;
    }
    snprintf(url, url_bytes, "postgresql://%s@%.*s/%s%s", user, (int)(path - at - 1), at + 1, database,
             query == NULL ? "" : query);
}

static int psql(const char *url, const char *text, char *result, size_t result_bytes)
{
    char command[1024];
    FILE *pipe;
    char script[64];
    FILE *file;
    size_t len;
    int rc;

    snprintf(script, sizeof(script), "%s/%d.sql", folder, (int)getpid());
    file = fopen(script, "w");
    if (file == NULL) {
        return -1;
    }
    fprintf(file, "SET search_path = holdfast, public;\n%s;\n", text);
    fclose(file);
    setenv("HF_PSQL_URL", url, 1);
    snprintf(
        command, sizeof(command),
        "PGOPTIONS=--client-min-messages=error psql -X -q -A -t -v ON_ERROR_STOP=1 -d \"$HF_PSQL_URL\" -f %s 2>&1",
        script);
    pipe = popen(command, "r");
    if (pipe == NULL) {
        return -1;
    }
    len = fread(result, 1, result_bytes - 1, pipe);
    result[len] = '\0';
    rc = pclose(pipe);
    while (len > 0 && result[len - 1] == '\n') {
        result[--len] = '\0';
    }
    return rc;
}

static int make(char *url, size_t url_bytes)
{
    char text[128];
    char result[1024];
    char name[64];

    snprintf(name, sizeof(name), "hf_store_%d_%u", (int)getpid(), made_cnt++);
    snprintf(text, sizeof(text), "CREATE DATABASE %s", name);
    url_of(url, url_bytes, name, "postgres");
    if (psql(server, text, result, sizeof(result)) != 0) {
        print_error("%s\n", result);
        return -1;
    }
    return 0;
}

static void database_of(const char *url, char *name, size_t name_bytes)
{
    const char *path = strchr(strstr(url, "://") + 3, '/');

    snprintf(name, name_bytes, "%.*s", (int)strcspn(path + 1, "?"), path + 1);
}

static void drop(const char *url)
{
    char name[64];
    char text[128];
    char result[1024];

    database_of(url, name, sizeof(name));
    snprintf(text, sizeof(text), "DROP DATABASE %s WITH (FORCE)", name);
    if (psql(server, text, result, sizeof(result)) != 0) {
        fail_msg("%s", result);
    }
}

static const struct store_backend backend = {
    .name = "store_postgres",
    .make = make,
    .drop = drop,
    .sql = psql,
    .before_change = "SET holdfast.retention = 'on';",
    .after_change = "",
    .refuse_id = "ALTER TABLE receipt ADD CONSTRAINT refuse CHECK (id <> 'refused')",
};

static int64_t number(const char *url, const char *text)
{
    return strtoll(cases_sql(url, text), NULL, 10);
}

/* ---- lost answers ------------------------------------------------------------------------------------------------ */

struct cut {
    const char *point;
    int cnt;
};

static void cut_at(void *ctx, const char *point, int fd)
{
    struct cut *cut = ctx;
    char answer[256];

    if (cut->point != NULL && strcmp(point, cut->point) == 0) {
        /* Cut at once, the server may be told to end this session before it has read COMMIT: then nothing happened. So its answer is
         * awaited, and thrown away. */
        if (strcmp(point, "commit-sent") == 0) {
            struct pollfd wait = {.fd = fd, .events = POLLIN};

            assert_int_equal(poll(&wait, 1, 60000), 1);
            assert_true(recv(fd, answer, sizeof(answer), 0) > 0);
        }
        cut->point = NULL;
        cut->cnt++;
        shutdown(fd, SHUT_RDWR);
    }
}

static void a_lost_answer_to_commit_is_asked_for(void **state)
{
    char url[512];
    struct cut cut = {NULL, 0};
    struct hf_store_options options = {.fault = cut_at, .fault_ctx = &cut};
    struct cases_chain chain;
    struct hf_receipt rows[2];
    struct hf_store *store;
    struct hf_store_batch batch;
    struct hf_store_batch there;
    bool found = false;

    (void)state;
    hf_store_close(cases_new(url, sizeof(url), NULL));
    store = cases_open(url, "gateway", &options);
    cases_chain_start(&chain, store);
    cases_reservation(&rows[0], "a");
    assert_int_equal(cases_chain_commit(&chain, rows, 1), HF_STORE_OK);
    cases_reservation(&rows[0], "b");
    cases_settlement(&rows[1], "a");
    cases_chain_prepare(&chain, &batch, rows, 2);
    cut.point = "commit-sent";
    assert_int_equal(hf_store_commit(store, &batch, rows, 2, &chain.report, &chain.error), HF_STORE_UNKNOWN);
    assert_int_equal(cut.cnt, 1);
    assert_non_null(strstr(chain.error.text, "its answer was lost"));

    /* The server heard it: the number is there, with this very content. */
    assert_int_equal(hf_store_batch(store, "gateway", 2, &found, &there, &chain.error), HF_STORE_OK);
    assert_true(found);
    assert_memory_equal(there.digest, batch.digest, HF_DIGEST_BYTES);
    assert_int_equal(there.epoch, 1);

    /* Committing it again only finds that out. */
    assert_int_equal(hf_store_commit(store, &batch, rows, 2, &chain.report, &chain.error), HF_STORE_OK);
    assert_true(chain.report.already);
    assert_int_equal(number(url, "SELECT count(*) FROM receipt"), 3);
    assert_int_equal(number(url, "SELECT count(*) FROM batch"), 2);
    cases_drop(store, url);
}

static void a_connection_lost_before_commit_leaves_nothing(void **state)
{
    static const char *const points[] = {"begin", "rows", "before-commit"};
    char url[512];
    struct cut cut = {NULL, 0};
    struct hf_store_options options = {.fault = cut_at, .fault_ctx = &cut};
    struct cases_chain chain;
    struct hf_receipt *rows = calloc(3000, sizeof(*rows));
    struct hf_store *store;

    (void)state;
    hf_store_close(cases_new(url, sizeof(url), NULL));
    store = cases_open(url, "gateway", &options);
    cases_chain_start(&chain, store);
    for (size_t p = 0; p < 3; p++) {
        enum hf_store_status status;

        for (size_t i = 0; i < 3000; i++) {
            char id[32];

            snprintf(id, sizeof(id), "%zu-%zu", p, i);
            cases_reservation(&rows[i], id);
        }
        cut.point = points[p];
        status = cases_chain_commit(&chain, rows, 3000);
        /* What a socket takes with it just before COMMIT, the sender cannot know. */
        assert_int_equal(status, p == 2 ? HF_STORE_UNKNOWN : HF_STORE_RETRY);
        assert_int_equal(number(url, "SELECT count(*) FROM receipt"), (int64_t)p * 3000);
        assert_int_equal(cases_chain_commit(&chain, rows, 3000), HF_STORE_OK);
        assert_false(chain.report.already);
        assert_int_equal(chain.report.conflicts_cnt, 0);
    }
    assert_int_equal(cut.cnt, 3);
    assert_int_equal(number(url, "SELECT count(*) FROM receipt"), 9000);
    free(rows);
    cases_drop(store, url);
}

static void a_session_that_the_server_ends_is_begun_again(void **state)
{
    char url[512];
    struct cases_chain chain;
    struct hf_receipt row;
    struct hf_store *store = cases_new(url, sizeof(url), "gateway");
    enum hf_store_status status;

    (void)state;
    cases_chain_start(&chain, store);
    number(
        url,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'holdfast' AND "
        "datname = current_database()");
    cases_reservation(&row, "a");
    status = cases_chain_commit(&chain, &row, 1);
    assert_int_equal(status, HF_STORE_RETRY);
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    cases_drop(store, url);
}

static void the_lock_of_a_lost_connection_is_taken_back(void **state)
{
    char url[512];
    struct cases_chain chain;
    struct hf_receipt row;
    struct hf_store *store = cases_new(url, sizeof(url), "gateway");

    (void)state;
    cases_chain_start(&chain, store);
    for (int i = 0; i < 20; i++) {
        char id[16];

        /* The server may still be cleaning up after the old session when the new one asks for its lock. */
        hf_store_disconnect(store);
        snprintf(id, sizeof(id), "id-%d", i);
        cases_reservation(&row, id);
        assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    }
    cases_drop(store, url);
}

static void a_server_that_hangs_is_taken_for_lost(void **state)
{
    char url[512];
    const struct hf_store_options options = {.statement_timeout_ms = 300, .lock_wait_ms = 10000};
    struct cases_chain chain;
    struct hf_receipt row;
    struct hf_store *store;
    pid_t server_pid;

    (void)state;
    hf_store_close(cases_new(url, sizeof(url), NULL));
    store = cases_open(url, "gateway", &options);
    cases_chain_start(&chain, store);
    server_pid =
        (pid_t)number(url, "SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast' AND "
                           "datname = current_database()");
    assert_true(server_pid > 1);
    if (kill(server_pid, SIGSTOP) != 0) {
        print_message("not allowed to stop the server's process: only told\n");
        cases_drop(store, url);
        return;
    }
    cases_reservation(&row, "a");
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_RETRY);
    assert_int_equal(kill(server_pid, SIGCONT), 0);
    assert_non_null(strstr(chain.error.text, "no answer in time"));
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    assert_int_equal(number(url, "SELECT count(*) FROM receipt"), 1);
    cases_drop(store, url);
}

static void a_statement_that_takes_too_long_is_tried_again(void **state)
{
    char url[512];
    const struct hf_store_options options = {.statement_timeout_ms = 200};
    struct cases_chain chain;
    struct hf_receipt row;
    struct hf_store *store;
    pid_t child;
    int status;

    (void)state;
    hf_store_close(cases_new(url, sizeof(url), NULL));
    store = cases_open(url, "gateway", &options);
    cases_chain_start(&chain, store);
    child = fork();
    if (child == 0) {
        char result[1024];

        _exit(psql(url, "BEGIN; LOCK TABLE batch IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(60)", result,
                   sizeof(result)) == 0
                  ? 0
                  : 1);
    }
    while (number(url, "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted AND "
                       "relation = 'holdfast.batch'::regclass") == 0) {
        usleep(10000);
    }
    cases_reservation(&row, "a");
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_RETRY);
    assert_non_null(strstr(chain.error.text, "this is tried again"));
    number(
        url,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND "
        "pid <> pg_backend_pid()");
    waitpid(child, &status, 0);
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    cases_drop(store, url);
}

/* ---- servers that say no ------------------------------------------------------------------------------------------- */

static void a_server_that_is_down_is_tried_again(void **state)
{
    struct hf_store *store = NULL;
    struct hf_store_error error;

    (void)state;
    assert_int_equal(hf_store_open("postgresql://gate:s3cret@/quota?host=/nonexistent", NULL, &store, &error),
                     HF_STORE_RETRY);
    assert_null(store);
    assert_non_null(strstr(error.text, "connecting to postgresql://gate@/quota?host=/nonexistent failed"));
    assert_non_null(strstr(error.text, "Is the server up"));
    assert_null(strstr(error.text, "s3cret"));
    assert_int_equal(hf_store_open("postgresql://gate:s3cret@127.0.0.1:1/quota", NULL, &store, &error),
                     HF_STORE_RETRY);
    assert_null(strstr(error.text, "s3cret"));
}

static void what_needs_a_person_is_refused(void **state)
{
    char url[512];
    char other[512];
    struct hf_store *store = NULL;
    struct hf_store_error error;

    (void)state;
    assert_int_equal(make(url, sizeof(url)), 0);
    url_of(other, sizeof(other), "hf_no_such_database", "postgres");
    assert_int_equal(hf_store_open(other, NULL, &store, &error), HF_STORE_REFUSED);
    assert_non_null(strstr(error.text, "hf_no_such_database"));
    url_of(other, sizeof(other), "postgres", "hf_no_such_user");
    assert_int_equal(hf_store_open(other, NULL, &store, &error), HF_STORE_REFUSED);
    drop(url);
}

static void a_database_that_is_not_utf8_is_refused(void **state)
{
    char url[512];
    struct hf_store_error error;

    (void)state;
    cases_sql(server, "DROP DATABASE IF EXISTS hf_latin1");
    cases_sql(server, "CREATE DATABASE hf_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    url_of(url, sizeof(url), "hf_latin1", "postgres");
    assert_int_equal(hf_store_init(url, NULL, &error), HF_STORE_REFUSED);
    assert_non_null(strstr(error.text, "UTF8"));
    drop(url);
}

/* ---- roles ---------------------------------------------------------------------------------------------------------- */

static void refused(const char *url, const char *text)
{
    char result[1024];

    assert_int_not_equal(psql(url, text, result, sizeof(result)), 0);
    if (strstr(result, "permission denied") == NULL) {
        fail_msg("%s: %s", text, result);
    }
}

static void each_role_has_its_rights_and_no_more(void **state)
{
    static const char *const tables[] = {"receipt", "batch", "segment", "conflict", "migration"};
    static const char *const columns[] = {"seq", "number", "name", "refusal", "checksum"};
    char url[512];
    struct hf_store *store = cases_new(url, sizeof(url), "gateway");
    struct cases_chain chain;
    struct hf_receipt row;
    char text[512];
    char result[1024];

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&row, "a");
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    for (size_t i = 0; i < 5; i++) {
        static const char *const roles[] = {"holdfast_runtime", "holdfast_reader"};
        static const char *const orders[] = {"DELETE FROM %s", "TRUNCATE %s", "UPDATE %s SET %s = NULL"};

        for (size_t r = 0; r < 2; r++) {
            for (size_t o = 0; o < 3; o++) {
                int len =
                    snprintf(text, sizeof(text), "SET ROLE %s; SET holdfast.retention = 'on'; ", roles[r]);
                snprintf(text + len, sizeof(text) - (size_t)len, orders[o], tables[i], columns[i]);
                refused(url, text);
            }
        }
        /* Not even the owner, short of saying so. */
        snprintf(text, sizeof(text), "TRUNCATE %s", tables[i]);
        assert_int_not_equal(psql(url, text, result, sizeof(result)), 0);
        assert_non_null(strstr(result, "holdfast only ever inserts"));
        snprintf(text, sizeof(text), "SET session_replication_role = replica; DELETE FROM %s", tables[i]);
        assert_int_not_equal(psql(url, text, result, sizeof(result)), 0);
        assert_non_null(strstr(result, "holdfast only ever inserts"));
    }
    refused(url, "SET ROLE holdfast_reader; INSERT INTO segment (name) VALUES ('x')");
    refused(url, "SET ROLE holdfast_runtime; INSERT INTO migration VALUES (2, 'x', 'x', 0)");
    refused(url,
            "SET ROLE pg_read_all_settings; SELECT * FROM holdfast.receipt"); /* any role without a grant */
    refused(url, "SET ROLE holdfast_runtime; CREATE TABLE holdfast.x (a int)");
    assert_int_equal(number(url, "SET ROLE holdfast_reader; SELECT count(*) FROM every_receipt"), 1);
    assert_int_equal(
        number(
            url,
            "SELECT count(*) FROM information_schema.role_table_grants WHERE table_schema = 'holdfast' AND "
            "grantee = 'PUBLIC'"),
        0);
    /* The daemon, connected as a superuser, has taken the role. */
    assert_int_equal(number(url,
                            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holdfast' AND "
                            "datname = current_database()"),
                     1);
    cases_drop(store, url);
}

static void a_user_with_no_more_than_the_runtime_role_is_enough(void **state)
{
    char url[512];
    char runtime[512];
    char database[64];
    char text[512];
    struct hf_store *store = NULL;
    struct cases_chain chain;
    struct hf_receipt row;
    struct hf_store_error error;

    (void)state;
    assert_int_equal(make(url, sizeof(url)), 0);
    assert_int_equal(hf_store_init(url, NULL, &error), HF_STORE_OK);
    database_of(url, database, sizeof(database));
    snprintf(text, sizeof(text), "CREATE ROLE %s_gate LOGIN; GRANT CONNECT ON DATABASE %s TO %s_gate",
             database, database, database);
    cases_sql(url, text);
    snprintf(text, sizeof(text), "%s_gate", database);
    url_of(runtime, sizeof(runtime), database, text);
    assert_int_equal(hf_store_open(runtime, NULL, &store, &error), HF_STORE_REFUSED);
    assert_non_null(strstr(error.text, "GRANT holdfast_runtime"));
    snprintf(text, sizeof(text), "GRANT holdfast_runtime TO %s_gate", database);
    cases_sql(url, text);
    store = cases_open(runtime, "gateway", NULL);
    cases_chain_start(&chain, store);
    cases_reservation(&row, "a");
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    hf_store_close(store);
    /* Nor can it make a schema. */
    assert_int_equal(hf_store_init(runtime, NULL, &error), HF_STORE_OK); /* nothing is missing */
    snprintf(
        text, sizeof(text),
        "REVOKE ALL ON DATABASE %s FROM %s_gate; REVOKE holdfast_runtime FROM %s_gate; DROP ROLE %s_gate",
        database, database, database, database);
    cases_sql(url, text);
    drop(url);
}

static void init_without_the_right_to_it_says_so(void **state)
{
    char url[512];
    char plain[512];
    char database[64];
    char text[512];
    struct hf_store_error error;

    (void)state;
    assert_int_equal(make(url, sizeof(url)), 0);
    database_of(url, database, sizeof(database));
    snprintf(text, sizeof(text), "CREATE ROLE %s_plain LOGIN", database);
    cases_sql(url, text);
    snprintf(text, sizeof(text), "%s_plain", database);
    url_of(plain, sizeof(plain), database, text);
    assert_int_equal(hf_store_init(plain, NULL, &error), HF_STORE_REFUSED);
    assert_non_null(strstr(error.text, "CREATE ROLE holdfast_runtime"));
    /* One that owns the database, without the right to make roles, is enough once they are there. */
    snprintf(text, sizeof(text), "ALTER DATABASE %s OWNER TO %s_plain", database, database);
    cases_sql(url, text);
    assert_int_equal(hf_store_init(plain, NULL, &error), HF_STORE_OK);
    hf_store_close(cases_open(plain, "gateway", NULL));
    drop(url);
    snprintf(text, sizeof(text), "DROP ROLE %s_plain", database);
    cases_sql(server, text);
}

/* ---- digests by psql alone -------------------------------------------------------------------------------------------- */

/* The SQL between the marker and the end of its code block in persist/README.md. */
static void readme_sql(const char *marker, char *text, size_t text_bytes)
{
    static char readme[131072];
    FILE *file = fopen(HF_TEST_SOURCE "/persist/README.md", "r");
    const char *from;
    const char *to;
    size_t len;

    assert_non_null(file);
    len = fread(readme, 1, sizeof(readme) - 1, file);
    fclose(file);
    readme[len] = '\0';
    from = strstr(readme, marker);
    assert_non_null(from);
    from = strstr(from, "```sql\n");
    assert_non_null(from);
    from += strlen("```sql\n");
    to = strstr(from, "```");
    assert_non_null(to);
    assert_in_range(to - from, 1, text_bytes - 1);
    memcpy(text, from, (size_t)(to - from));
    text[to - from] = '\0';
    /* psql() adds the semicolon. */
    text[strcspn(text, ";")] = '\0';
}

static void psql_alone_recomputes_every_digest(void **state)
{
    char url[512];
    static char receipts[32768];
    static char batches[8192];
    struct hf_store *store = cases_new(url, sizeof(url), "seg'ment \xe2\x82\xac");
    struct cases_chain chain;
    struct hf_receipt rows[6];

    (void)state;
    readme_sql("<!-- sql: receipts -->", receipts, sizeof(receipts));
    readme_sql("<!-- sql: batches -->", batches, sizeof(batches));
    cases_sql(url, backend.refuse_id);
    cases_chain_start(&chain, store);
    cases_reservation(&rows[0], "a \xf0\x9f\xa6\x86 '\"\\");
    cases_settlement(&rows[1], "a \xf0\x9f\xa6\x86 '\"\\");
    cases_name(&rows[1].ref, "ref");
    rows[1].usage_known = 0;
    cases_reservation(&rows[2], "refused");
    cases_reservation(&rows[3], "refused");
    hf_receipt_init(&rows[4], HF_RECEIPT_POLICY);
    rows[4].made_ms = CASES_NOW_MS;
    rows[4].reason = "";
    rows[4].details = "{\"a\": \"line\\nfeed\"}\nkey=3:abc\n";
    hf_receipt_init(&rows[5], HF_RECEIPT_CREDIT);
    rows[5].made_ms = rows[5].window_ms = CASES_NOW_MS;
    rows[5].credit_window = HF_WINDOW_MONTH;
    rows[5].credit_micros = -1;
    rows[5].credit_before_micros = HF_AMOUNT_MAX;
    assert_int_equal(cases_chain_commit(&chain, rows, 6), HF_STORE_OK);
    cases_settlement(&rows[0], "refused");
    assert_int_equal(cases_chain_commit(&chain, rows, 1), HF_STORE_OK);

    assert_string_equal(cases_sql(url, receipts), "");
    assert_string_equal(cases_sql(url, batches), "");

    /* Whatever is changed, added or removed shows. */
    cases_sql(url, "SET holdfast.retention = 'on'; UPDATE receipt SET charged_cost_micros = 1 WHERE seq = 2");
    assert_non_null(strstr(cases_sql(url, receipts), "1|2|"));
    cases_sql(url,
              "SET holdfast.retention = 'on'; UPDATE receipt SET charged_cost_micros = 4100 WHERE seq = 2");
    assert_string_equal(cases_sql(url, receipts), "");
    cases_sql(url, "SET holdfast.retention = 'on'; UPDATE receipt SET late = NULL WHERE seq = 2");
    assert_non_null(strstr(cases_sql(url, receipts), "1|2|"));
    cases_sql(url, "SET holdfast.retention = 'on'; UPDATE receipt SET late = false WHERE seq = 2");
    cases_sql(url, "SET holdfast.retention = 'on'; UPDATE conflict SET held_tokens = 1 WHERE seq = 3");
    assert_non_null(strstr(cases_sql(url, receipts), "1|3|"));
    cases_sql(url, "SET holdfast.retention = 'on'; DELETE FROM receipt WHERE seq = 5");
    assert_string_equal(cases_sql(url, batches), "1|1");
    cases_sql(url, "SET holdfast.retention = 'on'; DELETE FROM batch WHERE number = 1");
    assert_string_equal(cases_sql(url, batches), "1|2");
    cases_drop(store, url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_answer_to_commit_is_asked_for),
        cmocka_unit_test(a_connection_lost_before_commit_leaves_nothing),
        cmocka_unit_test(a_session_that_the_server_ends_is_begun_again),
        cmocka_unit_test(the_lock_of_a_lost_connection_is_taken_back),
        cmocka_unit_test(a_server_that_hangs_is_taken_for_lost),
        cmocka_unit_test(a_statement_that_takes_too_long_is_tried_again),
        cmocka_unit_test(a_server_that_is_down_is_tried_again),
        cmocka_unit_test(what_needs_a_person_is_refused),
        cmocka_unit_test(a_database_that_is_not_utf8_is_refused),
        cmocka_unit_test(each_role_has_its_rights_and_no_more),
        cmocka_unit_test(a_user_with_no_more_than_the_runtime_role_is_enough),
        cmocka_unit_test(init_without_the_right_to_it_says_so),
        cmocka_unit_test(psql_alone_recomputes_every_digest),
    };
    char command[64];
    int failed;

    server = getenv("HOLDFAST_TEST_PG");
    if (server == NULL || server[0] == '\0') {
        puts("skipped: HOLDFAST_TEST_PG is not set; run it below tests/support/postgres.sh");
        return 77;
    }
    if (mkdtemp(folder) == NULL) {
        perror("mkdtemp");
        return 1;
    }
    store_backend = &backend;
    failed = store_cases_run(&backend);
    failed += cmocka_run_group_tests_name("postgres", tests, NULL, NULL);
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    failed += system(command) != 0;
    return failed == 0 ? 0 : 1;
}
