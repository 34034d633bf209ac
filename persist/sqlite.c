/* The store in SQLite: the file, its lock file, connections and statements. */
#include "persist/sqlite_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PREFIX      "sqlite:"
#define PATH_BYTES  4096
#define FILE_MODE   0660 /* less the umask */
#define FOLDER_MODE 0700

static bool sqlite_mine(const char *url)
{
    return strncmp(url, PREFIX, sizeof(PREFIX) - 1) == 0;
}

static void sqlite_display(const char *url, char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "%s", url);
}

static struct hf_store *sqlite_make(void)
{
    struct hf_sqlite *sqlite = calloc(1, sizeof(*sqlite));

    return sqlite == NULL ? NULL : &sqlite->base;
}

static void finalize(sqlite3_stmt **statement)
{
    sqlite3_finalize(*statement);
    *statement = NULL;
}

static void sqlite_disconnect(struct hf_store *store)
{
    struct hf_sqlite *sqlite = hf_sqlite_of(store);

    finalize(&sqlite->lookup);
    finalize(&sqlite->lookup_aside);
    finalize(&sqlite->insert);
    finalize(&sqlite->insert_aside);
    sqlite3_close_v2(sqlite->db);
    sqlite->db = NULL;
    if (sqlite->lock_fd > 0) {
        close(sqlite->lock_fd);
        sqlite->lock_fd = 0;
    }
    store->locked = false;
}

static void sqlite_destroy(struct hf_store *store)
{
    free(hf_sqlite_of(store));
}

static bool sqlite_connected(const struct hf_store *store)
{
    return ((const struct hf_sqlite *)store)->db != NULL;
}

static int sqlite_socket(const struct hf_store *store)
{
    (void)store;
    return -1;
}

/* ---- errors --------------------------------------------------------------------------------------------------------- */

static enum hf_store_status status_of(int rc, const char **advice)
{
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        *advice = "Another program holds the file; a daemon tries again by itself";
        return HF_STORE_RETRY;
    case SQLITE_FULL:
        *advice = "Make room on that file system; a daemon tries again by itself";
        return HF_STORE_RETRY;
    case SQLITE_IOERR:
        if (rc == SQLITE_IOERR_CORRUPTFS || rc == SQLITE_IOERR_DATA) {
            *advice = "Restore the file from a backup";
            return HF_STORE_REFUSED;
        }
        *advice = "Look at the disk and the system's log; a daemon tries again by itself";
        return HF_STORE_RETRY;
    case SQLITE_READONLY:
        *advice = "Make file and folder writable for this user; a daemon tries again by itself";
        return HF_STORE_RETRY;
    case SQLITE_NOMEM:
        *advice = "Free some memory";
        return HF_STORE_NOMEM;
    case SQLITE_CANTOPEN:
        *advice = "Look at path, owner and mode";
        return HF_STORE_REFUSED;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        *advice = "Restore the file from a backup, or name another one";
        return HF_STORE_REFUSED;
    default:
        *advice = "Look at the file and the version of holdfast";
        return HF_STORE_REFUSED;
    }
}

enum hf_store_status hf_sqlite_fail(struct hf_store *store, int rc, const char *doing,
                                    struct hf_store_error *error)
{
    struct hf_sqlite *sqlite = hf_sqlite_of(store);
    const char *advice;
    enum hf_store_status status = status_of(rc, &advice);

    hf_store_fail(error, status, "%s of %s failed: %s (SQLite %d). %s", doing, store->display,
                  sqlite->db == NULL ? sqlite3_errstr(rc) : sqlite3_errmsg(sqlite->db), rc, advice);
    if ((rc & 0xff) == SQLITE_IOERR || (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_READONLY) {
        sqlite_disconnect(store);
    }
    return status;
}

/* ---- connect -------------------------------------------------------------------------------------------------------- */

/* Makes the folders of path that are missing. False with errno. */
static bool make_folders(const char *path)
{
    char folder[PATH_BYTES];
    char *at;

    if (strlen(path) >= sizeof(folder)) {
        errno = ENAMETOOLONG;
        return false;
    }
    snprintf(folder, sizeof(folder), "%s", path);
    for (at = strchr(folder + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        if (mkdir(folder, FOLDER_MODE) != 0 && errno != EEXIST) {
            return false;
        }
        *at = '/';
    }
    return true;
}

/* Where there is none, a folder is made for the default store alone: a mistyped path must not bring up a store that nobody finds. */
static enum hf_store_status need_folder(struct hf_store *store, struct hf_store_error *error)
{
    char folder[PATH_BYTES];
    const char *path = hf_sqlite_path(store);
    const char *slash = strrchr(path, '/');
    struct stat found;

    if (slash == NULL || slash == path || (size_t)(slash - path) >= sizeof(folder)) {
        return HF_STORE_OK;
    }
    snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
    if (stat(folder, &found) == 0 && S_ISDIR(found.st_mode)) {
        return HF_STORE_OK;
    }
    return hf_store_fail(
        error, HF_STORE_REFUSED,
        "there is no folder %s for %s. Make it first (mkdir -p '%s'), or name a path in one that "
        "is there",
        folder, store->display, folder);
}

static bool is_default(const struct hf_store *store)
{
    char url[PATH_BYTES];

    return hf_store_default_url(url, sizeof(url), NULL) == HF_STORE_OK && strcmp(url, store->url) == 0;
}

static enum hf_store_status make_file(struct hf_store *store, struct hf_store_error *error)
{
    const char *path = hf_sqlite_path(store);
    int fd;

    if (!is_default(store)) {
        enum hf_store_status status = need_folder(store, error);

        if (status != HF_STORE_OK) {
            return status;
        }
    } else if (!make_folders(path)) {
        return hf_store_fail(error, HF_STORE_REFUSED,
                             "the folder of %s cannot be made: %s. Name a path that this user may write",
                             store->display, strerror(errno));
    }
    /* O_EXCL: a file that is there may be open in this process, and closing it here would drop SQLite's locks on it. */
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, FILE_MODE);
    if (fd < 0 && errno != EEXIST) {
        return hf_store_fail(error, HF_STORE_REFUSED,
                             "%s cannot be made: %s. Name a path that this user may write", store->display,
                             strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    return HF_STORE_OK;
}

static enum hf_store_status run(struct hf_store *store, const char *sql, const char *doing,
                                struct hf_store_error *error)
{
    int rc = sqlite3_exec(hf_sqlite_of(store)->db, sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? HF_STORE_OK : hf_sqlite_fail(store, rc, doing, error);
}

static enum hf_store_status settings(struct hf_store *store, bool create, struct hf_store_error *error)
{
    static const char *const synchronous[] = {
        [HF_STORE_FULL] = "PRAGMA synchronous = FULL",
        [HF_STORE_NORMAL] = "PRAGMA synchronous = NORMAL",
        [HF_STORE_OFF] = "PRAGMA synchronous = OFF",
    };
    sqlite3 *db = hf_sqlite_of(store)->db;
    enum hf_store_status status;

    sqlite3_busy_timeout(db, (int)store->options.busy_timeout_ms);
    /* Nobody who can write the file gets code of theirs run by what the schema calls, or at the schema by plain SQL. */
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    status = run(store, "PRAGMA schema_version", "opening", error);
    if (status == HF_STORE_OK && create) {
        status = run(store, "PRAGMA journal_mode = WAL", "setting up", error);
    }
    if (status == HF_STORE_OK && store->options.role != HF_STORE_READER) {
        status = run(store, synchronous[store->options.durability], "setting up", error);
    }
    return status;
}

static enum hf_store_status sqlite_connect(struct hf_store *store, bool create, struct hf_store_error *error)
{
    struct hf_sqlite *sqlite = hf_sqlite_of(store);
    const char *path = hf_sqlite_path(store);
    int flags =
        SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
        (store->options.role == HF_STORE_READER && !create ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE);
    enum hf_store_status status = HF_STORE_OK;
    struct stat found;
    int rc;

    if (path[0] == '\0' || path[0] == ':') {
        return hf_store_fail(error, HF_STORE_INVALID, "the store URL %s has no path. Use sqlite:PATH",
                             store->display);
    }
    if (create) {
        status = make_file(store, error);
    } else if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return hf_store_fail(error, HF_STORE_SCHEMA,
                             "there is no store at %s. Make it: holdfast store init %s", store->display,
                             store->display);
    }
    if (status == HF_STORE_OK && stat(path, &found) == 0 && S_ISDIR(found.st_mode)) {
        status =
            hf_store_fail(error, HF_STORE_REFUSED, "%s is a folder. Name a file in it: sqlite:%s/receipts.db",
                          store->display, path);
    }
    if (status != HF_STORE_OK) {
        return status;
    }
    rc = sqlite3_open_v2(path, &sqlite->db, flags, NULL);
    status = rc == SQLITE_OK ? settings(store, create, error) : hf_sqlite_fail(store, rc, "opening", error);
    if (status != HF_STORE_OK) {
        sqlite_disconnect(store);
    }
    return status;
}

/* ---- the lock ------------------------------------------------------------------------------------------------------- */

/* One lock file beside the database for all names, one byte of it per name (far beyond its end; the file stays empty). An
 * open-file-description lock, so that the kernel drops it with the process; the file itself is never removed. */
static enum hf_store_status sqlite_take_lock(struct hf_store *store, struct hf_store_error *error)
{
    struct hf_sqlite *sqlite = hf_sqlite_of(store);
    char path[PATH_BYTES + 8];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    int fd;

    snprintf(path, sizeof(path), "%s-lock", hf_sqlite_path(store));
    lock.l_start = (off_t)(hf_name_hash(store->segment.bytes, store->segment.len, 0) >> 2);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    if (fd == 0) {
        /* A daemon without standard input: 0 stands for none here. */
        fd = fcntl(0, F_DUPFD_CLOEXEC, 3);
        close(0);
    }
    if (fd < 0) {
        return hf_store_fail(error, HF_STORE_REFUSED,
                             "the lock file %s cannot be opened: %s. Look at owner and mode", path,
                             strerror(errno));
    }
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        int why = errno;

        close(fd);
        if (why == EAGAIN || why == EACCES) {
            return hf_store_fail(
                error, HF_STORE_LOCKED,
                "another daemon uses the store %s under the name '%s'. Stop it, or give this one another name",
                store->display, store->segment.bytes);
        }
        return hf_store_fail(
            error, HF_STORE_REFUSED,
            "the lock file %s cannot be locked: %s. The store must be on a local file system", path,
            strerror(why));
    }
    sqlite->lock_fd = fd;
    return HF_STORE_OK;
}

static enum hf_store_status sqlite_init_lock(struct hf_store *store, struct hf_store_error *error)
{
    (void)store;
    (void)error;
    return HF_STORE_OK; /* BEGIN IMMEDIATE is it */
}

/* ---- statements ----------------------------------------------------------------------------------------------------- */

enum hf_store_status hf_sqlite_prepare(struct hf_store *store, const char *sql, sqlite3_stmt **statement,
                                       struct hf_store_error *error)
{
    int rc = sqlite3_prepare_v2(hf_sqlite_of(store)->db, sql, -1, statement, NULL);

    return rc == SQLITE_OK ? HF_STORE_OK : hf_sqlite_fail(store, rc, "a statement", error);
}

static int bind(sqlite3_stmt *statement, unsigned i, const struct hf_param *param)
{
    char name[12];
    int at;

    snprintf(name, sizeof(name), "$%u", i + 1);
    at = sqlite3_bind_parameter_index(statement, name);
    if (at == 0) {
        return SQLITE_OK; /* a parameter that this statement does not use */
    }
    switch (param->type) {
    case HF_PARAM_INTEGER:
        return sqlite3_bind_int64(statement, at, param->integer);
    case HF_PARAM_TEXT:
        return sqlite3_bind_text(statement, at, param->bytes, (int)param->len, SQLITE_STATIC);
    case HF_PARAM_BYTES:
        return sqlite3_bind_blob(statement, at, param->bytes, (int)param->len, SQLITE_STATIC);
    }
    return SQLITE_MISUSE;
}

#define COLUMNS_MAX 128

static void fetch(sqlite3_stmt *statement, struct hf_column *columns, unsigned cnt)
{
    for (unsigned c = 0; c < cnt; c++) {
        int type = sqlite3_column_type(statement, (int)c);

        memset(&columns[c], 0, sizeof(columns[c]));
        if (type == SQLITE_INTEGER) {
            columns[c].integer = sqlite3_column_int64(statement, (int)c);
        } else if (type == SQLITE_TEXT || type == SQLITE_BLOB) {
            columns[c].bytes = type == SQLITE_TEXT ? (const char *)sqlite3_column_text(statement, (int)c)
                                                   : sqlite3_column_blob(statement, (int)c);
            columns[c].len = (size_t)sqlite3_column_bytes(statement, (int)c);
        } else {
            columns[c].null = true;
        }
    }
}

static enum hf_store_status sqlite_query(struct hf_store *store, const char *sql,
                                         const struct hf_param *params, unsigned params_cnt,
                                         hf_columns_fn *fn, void *ctx, struct hf_store_error *error)
{
    struct hf_column columns[COLUMNS_MAX];
    sqlite3_stmt *statement = NULL;
    enum hf_store_status status = hf_sqlite_prepare(store, sql, &statement, error);
    int rc = SQLITE_OK;

    if (status != HF_STORE_OK) {
        return status;
    }
    for (unsigned i = 0; i < params_cnt && rc == SQLITE_OK; i++) {
        rc = bind(statement, i, &params[i]);
    }
    while (rc == SQLITE_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
        int cnt = sqlite3_column_count(statement);

        rc = cnt > COLUMNS_MAX ? SQLITE_RANGE : SQLITE_OK;
        if (fn != NULL && rc == SQLITE_OK) {
            fetch(statement, columns, (unsigned)cnt);
            status = fn(ctx, columns, (unsigned)cnt);
            if (status != HF_STORE_OK) {
                sqlite3_finalize(statement);
                return status;
            }
        }
    }
    sqlite3_finalize(statement);
    return rc == SQLITE_DONE ? HF_STORE_OK : hf_sqlite_fail(store, rc, "a statement", error);
}

static enum hf_store_status sqlite_scan(struct hf_store *store, const char *sql, const char *types,
                                        hf_columns_fn *fn, void *ctx, struct hf_store_error *error)
{
    (void)types;
    return sqlite_query(store, sql, NULL, 0, fn, ctx, error);
}

static enum hf_store_status sqlite_script(struct hf_store *store, const char *sql,
                                          struct hf_store_error *error)
{
    return run(store, sql, "making the schema", error);
}

static enum hf_store_status sqlite_now(struct hf_store *store, struct hf_store_time *now,
                                       struct hf_store_error *error)
{
    struct timespec before;
    struct timespec real;
    struct timespec after;
    uint64_t before_ns;
    uint64_t after_ns;

    (void)store;
    (void)error;
    clock_gettime(CLOCK_MONOTONIC, &before);
    clock_gettime(CLOCK_REALTIME, &real);
    clock_gettime(CLOCK_MONOTONIC, &after);
    before_ns = (uint64_t)before.tv_sec * 1000000000U + (uint64_t)before.tv_nsec;
    after_ns = (uint64_t)after.tv_sec * 1000000000U + (uint64_t)after.tv_nsec;
    now->now_us = (uint64_t)real.tv_sec * 1000000U + (uint64_t)real.tv_nsec / 1000U;
    now->mono_ns = before_ns + (after_ns - before_ns) / 2;
    now->uncertainty_ns = (after_ns - before_ns) / 2;
    return HF_STORE_OK;
}

const struct hf_store_ops hf_sqlite_ops = {
    .name = "SQLite",
    .mine = sqlite_mine,
    .display = sqlite_display,
    .make = sqlite_make,
    .disconnect = sqlite_disconnect,
    .destroy = sqlite_destroy,
    .connected = sqlite_connected,
    .socket = sqlite_socket,
    .connect = sqlite_connect,
    .schema_probe = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'migration'",
    .schema_suffix = ".sqlite.sql",
    .script = sqlite_script,
    .init_lock = sqlite_init_lock,
    .query = sqlite_query,
    .snapshot = "BEGIN",
    .scan = sqlite_scan,
    .schema = hf_sqlite_schema,
    .take_lock = sqlite_take_lock,
    .now = sqlite_now,
    .begin = hf_sqlite_begin,
    .lookup = hf_sqlite_lookup,
    .insert = hf_sqlite_insert,
    .append = hf_sqlite_append,
    .retention = hf_sqlite_retention,
    .idle = hf_sqlite_idle,
    .take_away = hf_sqlite_take_away,
    .commit = hf_sqlite_commit,
    .rollback = hf_sqlite_rollback,
};
