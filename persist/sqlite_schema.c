/* The store in SQLite: is its schema that of this build? Compared with one made anew in memory. */
#include "persist/sqlite_impl.h"

#include <stdio.h>
#include <string.h>

/* ANALYZE and AUTOINCREMENT make tables of SQLite's own. */
#define OBJECTS                                                                                         \
    "SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%'" \
    " ESCAPE '\\' ORDER BY 1"

struct cursor {
    sqlite3_stmt *statement;
    int rc;
};

static const char *name_of(const struct cursor *cursor)
{
    return cursor->rc == SQLITE_ROW ? (const char *)sqlite3_column_text(cursor->statement, 0) : NULL;
}

static const char *text_of(const struct cursor *cursor)
{
    return (const char *)sqlite3_column_text(cursor->statement, 1);
}

static void step(struct cursor *cursor)
{
    cursor->rc = sqlite3_step(cursor->statement);
}

static int begin(sqlite3 *db, struct cursor *cursor)
{
    int rc = sqlite3_prepare_v2(db, OBJECTS, -1, &cursor->statement, NULL);

    if (rc == SQLITE_OK) {
        step(cursor);
    }
    return rc;
}

static void tell(hf_schema_fn *fn, void *ctx, const char *name, const char *what)
{
    char text[512];

    snprintf(text, sizeof(text), "%s %s", name, what);
    fn(ctx, text);
}

/* Both in the order of names. */
static void compare(struct cursor *there, struct cursor *due, hf_schema_fn *fn, void *ctx)
{
    while (there->rc == SQLITE_ROW || due->rc == SQLITE_ROW) {
        const char *a = name_of(there);
        const char *b = name_of(due);
        int order = a == NULL ? 1 : b == NULL ? -1 : strcmp(a, b);

        if (order < 0) {
            tell(fn, ctx, a, "is none of holdfast's: it was added");
        } else if (order > 0) {
            tell(fn, ctx, b, "is not there: it was removed");
        } else if (strcmp(text_of(there), text_of(due)) != 0) {
            tell(fn, ctx, a, "is not as holdfast made it: it was changed");
        }
        if (order <= 0) {
            step(there);
        }
        if (order >= 0) {
            step(due);
        }
    }
}

/* The schema files of this build, run in memory. */
static int make_due(sqlite3 **db)
{
    int rc = sqlite3_open_v2(":memory:", db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);

    for (const struct hf_schema_file *file = hf_schema_files; rc == SQLITE_OK && file->name != NULL; file++) {
        if (strstr(file->name, hf_sqlite_ops.schema_suffix) != NULL) {
            rc = sqlite3_exec(*db, file->text, NULL, NULL, NULL);
        }
    }
    return rc;
}

enum hf_store_status hf_sqlite_schema(struct hf_store *store, hf_schema_fn *fn, void *ctx,
                                      struct hf_store_error *error)
{
    struct cursor there = {.rc = SQLITE_DONE};
    struct cursor due = {.rc = SQLITE_DONE};
    sqlite3 *memory = NULL;
    int rc = make_due(&memory);

    if (rc == SQLITE_OK) {
        rc = begin(memory, &due);
    }
    if (rc == SQLITE_OK) {
        rc = begin(hf_sqlite_of(store)->db, &there);
    }
    if (rc == SQLITE_OK) {
        compare(&there, &due, fn, ctx);
        rc = there.rc == SQLITE_DONE ? SQLITE_OK : there.rc;
    }
    sqlite3_finalize(there.statement);
    sqlite3_finalize(due.statement);
    sqlite3_close(memory);
    return rc == SQLITE_OK ? HF_STORE_OK : hf_sqlite_fail(store, rc, "reading the schema", error);
}
