/* The store in SQLite: the cases of every store, and what is a file's own. */
#include "tests/support/store_cases.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static unsigned made_cnt;

static int make(char *url, size_t url_bytes)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%u", folder, made_cnt++);
    snprintf(url, url_bytes, "sqlite:%s/holdfast.db", path);
    return mkdir(path, 0700);
}

static void drop(const char *url)
{
    (void)url; /* the folder goes as a whole */
}

static int sql(const char *url, const char *text, char *result, size_t result_bytes)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    const char *rest = text;
    int rc = sqlite3_open_v2(url + strlen("sqlite:"), &db, SQLITE_OPEN_READWRITE, NULL);

    result[0] = '\0';
    sqlite3_busy_timeout(db, 5000);
    while (rc == SQLITE_OK && rest[0] != '\0') {
        rc = sqlite3_prepare_v2(db, rest, -1, &statement, &rest);
        if (rc != SQLITE_OK || statement == NULL) {
            break;
        }
        while ((rc = sqlite3_step(statement)) == SQLITE_ROW) {
            const unsigned char *value = sqlite3_column_text(statement, 0);

            if (result[0] == '\0' && value != NULL) {
                snprintf(result, result_bytes, "%s", (const char *)value);
            }
        }
        rc = sqlite3_finalize(statement);
        statement = NULL;
    }
    if (rc != SQLITE_OK) {
        snprintf(result, result_bytes, "%s", sqlite3_errmsg(db));
    }
    sqlite3_close(db);
    return rc;
}

static const struct store_backend backend = {
    .name = "store_sqlite",
    .make = make,
    .drop = drop,
    .sql = sql,
    .before_change = "DROP TRIGGER migration_no_update; DROP TRIGGER migration_no_delete;",
    .after_change =
        "CREATE TRIGGER migration_no_update BEFORE UPDATE ON migration BEGIN SELECT RAISE(ABORT, 'no'); END;"
        "CREATE TRIGGER migration_no_delete BEFORE DELETE ON migration BEGIN SELECT RAISE(ABORT, 'no'); END;",
    .refuse_id = "CREATE TRIGGER refuse BEFORE INSERT ON receipt WHEN NEW.id = 'refused' "
                 "BEGIN SELECT RAISE(ABORT, 'not this one'); END;",
};

static void files_are_for_their_owner_and_group(void **state)
{
    char url[256];
    char path[300];
    struct stat found;
    mode_t mask = umask(0);
    struct hf_store *store = cases_new(url, sizeof(url), "gateway");
    struct cases_chain chain;
    struct hf_receipt row;

    (void)state;
    umask(mask);
    cases_chain_start(&chain, store);
    cases_reservation(&row, "a");
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    for (size_t i = 0; i < 4; i++) {
        static const char *const suffixes[] = {"", "-wal", "-shm", "-lock"};

        snprintf(path, sizeof(path), "%s%s", url + strlen("sqlite:"), suffixes[i]);
        assert_int_equal(stat(path, &found), 0);
        assert_int_equal(found.st_mode & 0777, 0660);
    }
    cases_drop(store, url);
}

static void a_folder_is_made_for_the_default_store_alone(void **state)
{
    char url[256];
    char path[256];
    struct hf_store_error error;
    struct stat found;

    (void)state;
    snprintf(url, sizeof(url), "sqlite:%s/missing/too/holdfast.db", folder);
    assert_int_equal(hf_store_init(url, NULL, &error), HF_STORE_REFUSED);
    snprintf(path, sizeof(path), "%s/missing", folder);
    assert_int_not_equal(stat(path, &found), 0);
    snprintf(path, sizeof(path), "there is no folder %s/missing/too for sqlite:", folder);
    assert_non_null(strstr(error.text, path));
    snprintf(path, sizeof(path), "%s/state", folder);
    setenv("XDG_STATE_HOME", path, 1);
    assert_int_equal(hf_store_default_url(url, sizeof(url), &error), HF_STORE_OK);
    assert_int_equal(hf_store_init(url, NULL, &error), HF_STORE_OK);
    snprintf(path, sizeof(path), "%s/state/holdfast", folder);
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_mode & 0777, 0700);
    unsetenv("XDG_STATE_HOME");
}

static void a_reader_in_a_transaction_does_not_block_the_writer(void **state)
{
    char url[256];
    struct hf_store *store = cases_new(url, sizeof(url), "gateway");
    struct cases_chain chain;
    struct hf_receipt row;
    sqlite3 *reader = NULL;

    (void)state;
    cases_chain_start(&chain, store);
    assert_int_equal(sqlite3_open(url + strlen("sqlite:"), &reader), SQLITE_OK);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM receipt", NULL, NULL, NULL),
                     SQLITE_OK);
    cases_reservation(&row, "a");
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    sqlite3_close(reader);
    cases_drop(store, url);
}

static void another_writer_is_waited_for_and_then_tried_again(void **state)
{
    char url[256];
    struct hf_store_options options = {.busy_timeout_ms = 20};
    struct cases_chain chain;
    struct hf_receipt row;
    sqlite3 *other = NULL;
    struct hf_store *store;

    (void)state;
    hf_store_close(cases_new(url, sizeof(url), NULL));
    store = cases_open(url, "gateway", &options);
    cases_chain_start(&chain, store);
    assert_int_equal(sqlite3_open(url + strlen("sqlite:"), &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    cases_reservation(&row, "a");
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_RETRY);
    assert_non_null(strstr(chain.error.text, "Another program holds the file"));
    assert_int_equal(row.fate, HF_FATE_NONE);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    cases_drop(store, url);
}

static void a_file_that_cannot_grow_is_tried_again(void **state)
{
    char url[256];
    struct hf_store *store = cases_new(url, sizeof(url), "gateway");
    struct cases_chain chain;
    struct hf_receipt *rows = calloc(3000, sizeof(*rows));
    struct rlimit unlimited;
    struct rlimit limited;
    struct hf_store_totals totals;
    enum hf_store_status status;

    (void)state;
    cases_chain_start(&chain, store);
    for (size_t n = 0; n < 3000; n++) {
        char id[16];

        snprintf(id, sizeof(id), "id-%zu", n);
        cases_reservation(&rows[n], id);
    }
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
    limited = unlimited;
    limited.rlim_cur = 500000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limited), 0);
    status = cases_chain_commit(&chain, rows, 3000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
    assert_true(status == HF_STORE_RETRY || status == HF_STORE_UNKNOWN);
    assert_non_null(strstr(chain.error.text, "failed"));
    assert_int_equal(cases_chain_commit(&chain, rows, 3000), HF_STORE_OK);
    assert_int_equal(hf_store_totals(store, "gateway", &totals, &chain.error), HF_STORE_OK);
    assert_int_equal(totals.receipts_cnt, 3000);
    free(rows);
    cases_drop(store, url);
}

static void a_file_that_was_removed_gets_no_receipts(void **state)
{
    char url[256];
    struct hf_store *store = cases_new(url, sizeof(url), "gateway");
    struct cases_chain chain;
    struct hf_receipt row;

    (void)state;
    cases_chain_start(&chain, store);
    cases_reservation(&row, "a");
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_OK);
    assert_int_equal(unlink(url + strlen("sqlite:")), 0);
    cases_reservation(&row, "b");
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_RETRY);
    assert_non_null(strstr(chain.error.text, "removed or replaced"));
    assert_int_equal(cases_chain_commit(&chain, &row, 1), HF_STORE_SCHEMA);
    assert_non_null(strstr(chain.error.text, "there is no store at"));
    cases_drop(store, url);
}

static void what_is_no_database_is_refused(void **state)
{
    char url[256];
    struct hf_store *store = NULL;
    struct hf_store_error error;
    FILE *file;

    (void)state;
    make(url, sizeof(url));
    assert_int_equal(hf_store_init(url, NULL, &error), HF_STORE_OK);
    file = fopen(url + strlen("sqlite:"), "w");
    assert_non_null(file);
    for (int i = 0; i < 1000; i++) {
        fputs("this is a text and no database\n", file);
    }
    fclose(file);
    assert_int_equal(hf_store_open(url, NULL, &store, &error), HF_STORE_REFUSED);
    assert_non_null(strstr(error.text, "backup"));
    assert_int_equal(hf_store_open("sqlite:", NULL, &store, &error), HF_STORE_INVALID);
    assert_int_equal(hf_store_open("sqlite::memory:", NULL, &store, &error), HF_STORE_INVALID);
    assert_int_equal(hf_store_init("sqlite:/proc/nowhere/holdfast.db", NULL, &error), HF_STORE_REFUSED);
    assert_non_null(strstr(error.text, "there is no folder /proc/nowhere"));
    assert_int_equal(hf_store_init("sqlite:/proc/holdfast.db", NULL, &error), HF_STORE_REFUSED);
    assert_non_null(strstr(error.text, "cannot be made"));
}

/* REPLACE removes the row in its way without asking the triggers of DELETE. */
static void nothing_is_ever_replaced(void **state)
{
    static const char *const attacks[] = {
        "INSERT OR REPLACE INTO receipt SELECT * FROM receipt",
        "REPLACE INTO receipt SELECT * FROM receipt LIMIT 1",
        "INSERT OR REPLACE INTO batch SELECT * FROM batch",
        "INSERT OR REPLACE INTO conflict SELECT * FROM conflict",
        "INSERT OR REPLACE INTO segment SELECT * FROM segment",
        "INSERT OR REPLACE INTO segment (name) SELECT name FROM segment",
        "INSERT OR REPLACE INTO migration SELECT * FROM migration",
        /* By the number that every row has besides. */
        ("INSERT OR REPLACE INTO batch (rowid, segment_id, number, epoch, first_seq, rows_cnt, committed_ms, before, "
         "digest) SELECT rowid, segment_id, 99, epoch, first_seq, rows_cnt, committed_ms, before, digest FROM batch"),
        "UPDATE OR REPLACE receipt SET seq = 1",
        "PRAGMA recursive_triggers = OFF; INSERT OR REPLACE INTO receipt SELECT * FROM receipt",
    };
    char url[256];
    char result[1024];
    struct hf_store *store = cases_new(url, sizeof(url), "gateway");
    struct cases_chain chain;
    struct hf_receipt rows[2];

    (void)state;
    cases_sql(url, backend.refuse_id);
    cases_chain_start(&chain, store);
    cases_reservation(&rows[0], "a");
    cases_reservation(&rows[1], "refused");
    assert_int_equal(cases_chain_commit(&chain, rows, 2), HF_STORE_OK);
    cases_reservation(&rows[0], "b");
    assert_int_equal(cases_chain_commit(&chain, rows, 1), HF_STORE_OK);
    for (size_t i = 0; i < sizeof(attacks) / sizeof(attacks[0]); i++) {
        if (sql(url, attacks[i], result, sizeof(result)) == 0) {
            fail_msg("not refused: %s", attacks[i]);
        }
        assert_non_null(strstr(result, "holdfast only ever inserts"));
    }
    /* What is in nobody's way still comes in. */
    cases_reservation(&rows[0], "c");
    assert_int_equal(cases_chain_commit(&chain, rows, 1), HF_STORE_OK);
    assert_int_equal(chain.report.aside_cnt, 0);
    cases_drop(store, url);
}

static void the_default_is_below_the_state_folder(void **state)
{
    char url[256];
    char small[16];
    struct hf_store_error error;

    (void)state;
    setenv("XDG_STATE_HOME", "/var/state", 1);
    assert_int_equal(hf_store_default_url(url, sizeof(url), &error), HF_STORE_OK);
    assert_string_equal(url, "sqlite:/var/state/holdfast/holdfast.db");
    assert_int_equal(hf_store_default_url(small, sizeof(small), &error), HF_STORE_INVALID);
    setenv("XDG_STATE_HOME", "relative", 1);
    setenv("HOME", "/home/gate", 1);
    assert_int_equal(hf_store_default_url(url, sizeof(url), &error), HF_STORE_OK);
    assert_string_equal(url, "sqlite:/home/gate/.local/state/holdfast/holdfast.db");
    unsetenv("XDG_STATE_HOME");
    unsetenv("HOME");
    assert_int_equal(hf_store_default_url(url, sizeof(url), &error), HF_STORE_INVALID);
    assert_non_null(strstr(error.text, "sqlite:PATH"));
}

static void urls_are_told_apart_and_shown_without_secrets(void **state)
{
    static const char *const shown[][2] = {
        {"sqlite:/var/lib/x.db", "sqlite:/var/lib/x.db"},
        {"postgresql://gate:s3cret@db.example:5433/quota?sslmode=require",
         "postgresql://gate@db.example:5433/quota"},
        {"postgres://gate@db.example/quota?password=s3cret", "postgresql://gate@db.example/quota"},
        {"host=/run/pg dbname=quota password='s3cret' sslpassword=s3cret",
         "postgresql:///quota?host=/run/pg"},
        {"postgresql://gate:s3cret@h/quota?nonsense=s3cret", "postgresql (not readable)"},
        {"mysql://gate:s3cret@h/quota", "(not a store URL)"},
        {"mysql://gate:s3cret@h/quota?a=b", "(not a store URL)"},
        {"", "(not a store URL)"},
    };
    struct hf_store *store = NULL;
    struct hf_store_error error;
    char text[128];

    (void)state;
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
        hf_store_display_url(shown[i][0], text, sizeof(text));
        assert_string_equal(text, shown[i][1]);
    }
    assert_int_equal(hf_store_open("mysql://gate:s3cret@h/quota", NULL, &store, &error), HF_STORE_INVALID);
    assert_null(strstr(error.text, "s3cret"));
    assert_int_equal(hf_store_open("postgresql://gate:s3cret@h/quota?nonsense=s3cret", NULL, &store, &error),
                     HF_STORE_INVALID);
    assert_null(strstr(error.text, "s3cret"));
    assert_int_equal(hf_store_open("password=s3cret host", NULL, &store, &error), HF_STORE_INVALID);
    assert_null(strstr(error.text, "s3cret"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_for_their_owner_and_group),
        cmocka_unit_test(a_folder_is_made_for_the_default_store_alone),
        cmocka_unit_test(a_reader_in_a_transaction_does_not_block_the_writer),
        cmocka_unit_test(another_writer_is_waited_for_and_then_tried_again),
        cmocka_unit_test(a_file_that_cannot_grow_is_tried_again),
        cmocka_unit_test(a_file_that_was_removed_gets_no_receipts),
        cmocka_unit_test(what_is_no_database_is_refused),
        cmocka_unit_test(nothing_is_ever_replaced),
        cmocka_unit_test(the_default_is_below_the_state_folder),
        cmocka_unit_test(urls_are_told_apart_and_shown_without_secrets),
    };
    char command[128];
    int failed;

    strcpy(folder, "/tmp/hf-sqlite.XXXXXX");
    if (mkdtemp(folder) == NULL) {
        perror("mkdtemp");
        return 1;
    }
    failed = store_cases_run(&backend);
    failed += cmocka_run_group_tests_name("sqlite", tests, NULL, NULL);
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command) != 0) {
        failed++;
    }
    return failed == 0 ? 0 : 1;
}
