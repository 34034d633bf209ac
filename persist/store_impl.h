/* For those who write a store: what store*.c (the same for all) and a driver (sqlite.c, postgres.c) know of each other.
 *
 * A driver is a small SQL driver: it connects, runs the statements that it is given (they are written so that both databases
 * understand them: parameters $1, $2 in the order of their first use, unqualified names, explicit casts), and does in its own way
 * what has a fast way: looking up many ids, inserting many rows. All statements go by parameters.
 */
#ifndef HF_PERSIST_STORE_IMPL_H
#define HF_PERSIST_STORE_IMPL_H

#include "persist/digest.h"
#include "persist/store.h"

#include <stdarg.h>

/* A column of a result row; bytes are valid during the callback and NUL-terminated. Booleans are integers 0 and 1. */
struct hf_column {
    bool null;
    int64_t integer;
    const char *bytes; /* text, bytea, BLOB; NULL for an integer */
    size_t len;
};

enum hf_param_type {
    HF_PARAM_INTEGER,
    HF_PARAM_TEXT,
    HF_PARAM_BYTES
};
struct hf_param {
    enum hf_param_type type;
    int64_t integer;
    const char *bytes; /* TEXT: NUL-terminated as well */
    size_t len;
};

/* One row. Anything but HF_STORE_OK stops, and is what the query returns. */
typedef enum hf_store_status hf_columns_fn(void *ctx, const struct hf_column *columns, unsigned cnt);

/* What differs in a schema: a sentence. */
typedef void hf_schema_fn(void *ctx, const char *text);

/* An id to look up, and the newest reservation under it. */
struct hf_lookup {
    const struct hf_name *id;
    bool found;
    bool conflict;
    uint64_t seq;
    uint8_t digest[HF_DIGEST_BYTES];
};

/* What of the fence an insertion does by itself. All-zero: nothing. */
struct hf_fence {
    /* An id is let in but once among the receipts from first_seq on, the batch's own among them; a second one refuses the rows. */
    bool once;
    bool elsewhere; /* ids may also be before first_seq or in the table of conflicts */
    uint64_t first_seq;
};

/* The rows of a batch. Their references and digests are made as they are read, in order: a server writes the first rows while the
 * last ones are being digested. */
struct hf_store_rows {
    struct hf_receipt *list;
    size_t cnt;
    size_t complete_cnt; /* so many are complete, the first ones */
    bool (*complete)(void *ctx, size_t i);
    void *ctx;
    /* Not all ids were looked up: nothing is put aside for being refused, the whole insertion is instead, and `refused` says that
     * the rows are why. */
    bool optimistic;
    bool refused;
};

/* Where rows go, and what they are. */
#define HF_PART_COLUMNS_MAX 24U
struct hf_store_part {
    const char *table;
    const char *columns; /* "a, b, c" */
    unsigned columns_cnt;
    /* Fills in columns_cnt parameters, integers and texts (which need no NUL), valid until the next call. False: leave it out. */
    bool (*row)(void *ctx, size_t i, struct hf_param *params);
    void *ctx;
};

struct hf_store_ops {
    const char *name;
    /* True when the URL is one of this store. */
    bool (*mine)(const char *url);
    /* The URL for people. */
    void (*display)(const char *url, char *text, size_t text_bytes);
    /* A driver's handle, zeroed, its base filled in by the caller; no connection yet. NULL: no memory. */
    struct hf_store *(*make)(void);
    /* Drops connection and lock; forgets nothing else. */
    void (*disconnect)(struct hf_store *store);
    /* Frees what make made; disconnect came before. */
    void (*destroy)(struct hf_store *store);
    bool (*connected)(const struct hf_store *store);
    /* The connection's socket, -1 when there is none: for tests that cut it. */
    int (*socket)(const struct hf_store *store);
    /* create: for init: make the file and its folder; keep the owner's role. */
    enum hf_store_status (*connect)(struct hf_store *store, bool create, struct hf_store_error *error);
    /* A query whose one row and column says (1 or 0) whether the table of migrations is there. */
    const char *schema_probe;
    const char *schema_suffix; /* of this store's files: ".sqlite.sql" */
    /* Runs a schema file, which has many statements and no parameters. */
    enum hf_store_status (*script)(struct hf_store *store, const char *sql, struct hf_store_error *error);
    /* In init, inside the transaction: keeps a second init out until it ends. */
    enum hf_store_status (*init_lock)(struct hf_store *store, struct hf_store_error *error);
    /* fn may be NULL: rows are not wanted. */
    enum hf_store_status (*query)(struct hf_store *store, const char *sql, const struct hf_param *params,
                                  unsigned params_cnt, hf_columns_fn *fn, void *ctx,
                                  struct hf_store_error *error);
    /* Begins a transaction that only reads and sees one state of the store to its end: a statement for `query`. */
    const char *snapshot;
    /* As query, the fastest way for many rows: no parameters; types has a letter per column: i integer, b boolean, t text or
     * bytes. Bytes are not NUL-terminated. */
    enum hf_store_status (*scan)(struct hf_store *store, const char *sql, const char *types,
                                 hf_columns_fn *fn, void *ctx, struct hf_store_error *error);
    /* Says how tables, triggers and rights differ from what this build makes. */
    enum hf_store_status (*schema)(struct hf_store *store, hf_schema_fn *fn, void *ctx,
                                   struct hf_store_error *error);
    /* The single-writer lock of store->segment, on this connection. */
    enum hf_store_status (*take_lock)(struct hf_store *store, struct hf_store_error *error);
    enum hf_store_status (*now)(struct hf_store *store, struct hf_store_time *time,
                                struct hf_store_error *error);

    enum hf_store_status (*begin)(struct hf_store *store, struct hf_store_error *error);
    /* Inside the transaction, before rows [first_seq, next_seq): makes room for them, and says what `insert` finds by itself.
     * NULL: nothing. */
    enum hf_store_status (*fence)(struct hf_store *store, uint64_t first_seq, uint64_t next_seq,
                                  struct hf_fence *fence, struct hf_store_error *error);
    /* before_seq: among the receipts before that number, and in the table of conflicts; HF_UNKNOWN: everywhere. A store whose fence
     * is NULL is only asked for everywhere. */
    enum hf_store_status (*lookup)(struct hf_store *store, struct hf_lookup *lookups, size_t cnt,
                                   uint64_t before_seq, struct hf_store_error *error);
    /* Inserts the rows; sets their fate to STORED or ASIDE; counts and explains in report. */
    enum hf_store_status (*insert)(struct hf_store *store, const struct hf_store_batch *batch,
                                   struct hf_store_rows *rows, struct hf_store_report *report,
                                   struct hf_store_error *error);
    /* Inserts rows into a table of rollups, inside a transaction: those of 0 .. cnt - 1 that part->row fills in. */
    enum hf_store_status (*append)(struct hf_store *store, const struct hf_store_part *part, size_t cnt,
                                   struct hf_store_error *error);
    /* Retention, inside a transaction. Which tables receipts are in, a query for name, first and next number; NULL: one. */
    const char *partitions;
    /* Keeps out who prunes as well, RETRY; REFUSED to who is not the owner. */
    enum hf_store_status (*retention)(struct hf_store *store, struct hf_store_error *error);
    /* True: nobody writes under this name, and nobody can before the transaction ends. */
    enum hf_store_status (*idle)(struct hf_store *store, const char *segment, bool *idle,
                                 struct hf_store_error *error);
    /* Takes away the partition of that name or, without partitions, the segment's receipts before next_seq. */
    enum hf_store_status (*take_away)(struct hf_store *store, const char *partition, int64_t segment_id,
                                      int64_t next_seq, struct hf_store_error *error);
    /* UNKNOWN when the answer was lost. */
    enum hf_store_status (*commit)(struct hf_store *store, struct hf_store_error *error);
    /* Also after a failure, and when nothing was begun. */
    void (*rollback)(struct hf_store *store);
};

/* Makes rows before `until` complete. False: no memory, or libcrypto failed. */
static inline bool hf_store_complete(struct hf_store_rows *rows, size_t until)
{
    while (rows->complete_cnt < until) {
        if (!rows->complete(rows->ctx, rows->complete_cnt)) {
            return false;
        }
        rows->complete_cnt++;
    }
    return true;
}

/* A driver's handle begins with this. */
struct hf_store {
    const struct hf_store_ops *ops;
    char *url;
    char *display;
    struct hf_store_options options; /* with the defaults filled in */
    struct hf_digest *digest;
    struct hf_name segment; /* wanted lock; length 0: none */
    int64_t segment_id;     /* of `segment`, once locked */
    bool locked;            /* on the present connection */
    bool has_aside;         /* the table of conflicts has rows of this segment: lookups read it too */
    /* A conflict is, or may be, stored from hf_fence.first_seq on whose first one is not: `once` would not see it. */
    bool stray;
    unsigned
        careful_cnt; /* so many batches more look all ids up: the last that did not was refused for its rows */
};

extern const struct hf_store_ops hf_sqlite_ops;
extern const struct hf_store_ops hf_postgres_ops;

/* Writes a sentence and returns status. error may be NULL. */
enum hf_store_status hf_store_fail(struct hf_store_error *error, enum hf_store_status status,
                                   const char *format, ...) __attribute__((format(printf, 3, 4)));

/* NOMEM, for the digests of a batch. */
enum hf_store_status hf_store_no_digest(struct hf_store_error *error);

/* A hf_columns_fn for a query of one integer, into an int64_t. */
enum hf_store_status hf_store_one_integer(void *ctx, const struct hf_column *columns, unsigned cnt);
/* The same of an aggregate over no rows: INT64_MAX where it is null. */
enum hf_store_status hf_store_one_or_none(void *ctx, const struct hf_column *columns, unsigned cnt);

/* Integers of a query's rows, one column each; all-zero at first, and `list` is to be freed. */
struct hf_store_integers {
    int64_t *list;
    size_t cnt;
    size_t cap;
};
/* A hf_columns_fn into a struct hf_store_integers; NOMEM. */
enum hf_store_status hf_store_add_integer(void *ctx, const struct hf_column *columns, unsigned cnt);

/* The reader asked to stop. */
enum hf_store_status hf_store_stopped(struct hf_store_error *error);

/* Connects if there is no connection: schema verified, lock taken again where one is wanted. */
enum hf_store_status hf_store_ensure(struct hf_store *store, struct hf_store_error *error);

/* Runs a query and, when that fails on a broken connection, leaves it dropped. One place for what every reader does. */
enum hf_store_status hf_store_query(struct hf_store *store, const char *sql, const struct hf_param *params,
                                    unsigned params_cnt, hf_columns_fn *fn, void *ctx,
                                    struct hf_store_error *error);

/* The number of a segment name, 0 when the store does not know it. */
enum hf_store_status hf_store_segment_id(struct hf_store *store, const char *segment, int64_t *segment_id,
                                         struct hf_store_error *error);

/* The end of the chain of a segment number, on the present connection. */
enum hf_store_status hf_store_chain(struct hf_store *store, int64_t segment_id, struct hf_store_head *head,
                                    struct hf_store_error *error);
enum hf_store_status hf_store_batch_of(struct hf_store *store, int64_t segment_id, uint64_t number,
                                       bool *found, struct hf_store_batch *batch,
                                       struct hf_store_error *error);

/* Verifies the migration records. With apply: runs what is missing; inside a transaction. */
enum hf_store_status hf_schema_check(struct hf_store *store, bool apply, struct hf_store_error *error);

/* Schema files, embedded at build time: the generated table, ended by a NULL name, in the order of names. */
struct hf_schema_file {
    const char *name; /* NNN_what.store.sql */
    const char *text; /* NUL-terminated */
    size_t len;
};
extern const struct hf_schema_file hf_schema_files[];

static inline struct hf_param hf_param_integer(int64_t integer)
{
    return (struct hf_param){HF_PARAM_INTEGER, integer, NULL, 0};
}
struct hf_param hf_param_text(const char *text);
/* A number as the store takes it: what is beyond its range is as large as it has. */
static inline int64_t hf_store_signed(uint64_t number)
{
    return number > INT64_MAX ? INT64_MAX : (int64_t)number;
}
static inline struct hf_param hf_param_bytes(const void *bytes, size_t len)
{
    return (struct hf_param){HF_PARAM_BYTES, 0, (const char *)bytes, len};
}

#endif
