/* What the postgres*.c files know of each other. */
#ifndef HF_PERSIST_POSTGRES_IMPL_H
#define HF_PERSIST_POSTGRES_IMPL_H

#include "persist/store_impl.h"

#include <libpq-fe.h>
#include <string.h>

struct hf_postgres {
    struct hf_store base;
    PGconn *conn;
    bool in_transaction;
    bool silent; /* an answer did not come in time: the connection is of no use any more */
    /* The server process of a connection that broke while it held the lock, so that the next one can send it away: the server may
     * need minutes to notice by itself. */
    int32_t old_pid;
    int64_t old_start_us;
    int32_t pid;
    int64_t start_us;
    /* Partitions of receipts that this connection knows to be there take [first, next); 0, 0: none is known. */
    int64_t partition_first;
    int64_t partition_next;
    /* The partition of the newest batch takes [newest_first, newest_next); 0, 0: not asked yet. */
    int64_t newest_first;
    int64_t newest_next;
    bool older;   /* there are partitions before it */
    bool once;    /* its index of ids is unique */
    char *buffer; /* rows on their way into COPY */
    size_t buffer_len;
    size_t buffer_cap;
};

static inline struct hf_postgres *hf_postgres_of(struct hf_store *store)
{
    return (struct hf_postgres *)store;
}

#define HF_OID_BOOL  16
#define HF_OID_BYTEA 17
#define HF_OID_INT8  20
#define HF_OID_INT2  21
#define HF_OID_INT4  23
#define HF_OID_TEXT  25
#define HF_OID_TEXTS 1009

/* Big-endian integers, as the protocol has them. */
static inline char *hf_put_be32(char *at, uint32_t value)
{
    for (int i = 3; i >= 0; i--) {
        *at++ = (char)(value >> (8 * i) & 0xff);
    }
    return at;
}
static inline char *hf_put_be64(char *at, uint64_t value)
{
    at = hf_put_be32(at, (uint32_t)(value >> 32));
    return hf_put_be32(at, (uint32_t)value);
}

/* What goes to the server in binary is put together in pg->buffer. Makes room for so many bytes more; false: no memory. */
bool hf_pg_room(struct hf_postgres *pg, size_t bytes);
static inline void hf_pg_put_be32(struct hf_postgres *pg, uint32_t value)
{
    hf_put_be32(pg->buffer + pg->buffer_len, value);
    pg->buffer_len += 4;
}
static inline void hf_pg_put_bytes(struct hf_postgres *pg, const char *bytes, size_t len)
{
    hf_pg_put_be32(pg, (uint32_t)len);
    memcpy(pg->buffer + pg->buffer_len, bytes, len);
    pg->buffer_len += len;
}
static inline void hf_pg_put_integer(struct hf_postgres *pg, int64_t value)
{
    hf_pg_put_be32(pg, 8);
    hf_put_be64(pg->buffer + pg->buffer_len, (uint64_t)value);
    pg->buffer_len += 8;
}
enum hf_store_status hf_pg_no_memory(struct hf_store_error *error);

/* How a statement went. */
struct hf_pg_outcome {
    enum hf_store_status status;
    char sqlstate[6]; /* empty: no answer from the server */
    bool row_fault;   /* the data was refused, not the moment */
};

/* Connects, sets the session up, takes the role. */
enum hf_store_status hf_postgres_connect(struct hf_store *store, bool create, struct hf_store_error *error);
enum hf_store_status hf_postgres_take_lock(struct hf_store *store, struct hf_store_error *error);
enum hf_store_status hf_postgres_init_lock(struct hf_store *store, struct hf_store_error *error);
void hf_postgres_display(const char *url, char *text, size_t text_bytes);
void hf_postgres_disconnect(struct hf_store *store);

/* Waits for the next result, up to the statement timeout and some more. NULL: there is none any more, or (pg->silent) none came in
 * time. A broken connection is a result that says so. The result is the caller's. */
PGresult *hf_pg_result(struct hf_store *store);
/* Waits for more input and takes it in. False: none came in time (pg->silent), or the connection is lost. */
bool hf_pg_wait(struct hf_store *store);
/* Reads away what is left of an answer. */
void hf_pg_drain(struct hf_store *store);
/* Sends what is buffered. False: the connection is lost. */
bool hf_pg_flush(struct hf_store *store);
/* Judges a result (NULL: lost connection), writes the sentence, drops a connection that is lost. Does not free the result. */
struct hf_pg_outcome hf_pg_judge(struct hf_store *store, const PGresult *result, const char *doing,
                                 struct hf_store_error *error);
/* Sends a plain command without parameters and judges its answer. */
enum hf_store_status hf_pg_command(struct hf_store *store, const char *sql, const char *doing,
                                   struct hf_store_error *error);
/* A big-endian signed integer of up to 8 bytes. */
int64_t hf_pg_integer(const char *bytes, size_t len);
/* A statement with parameters, all values binary; fn may be NULL. */
enum hf_store_status hf_pg_query(struct hf_store *store, const char *sql, const struct hf_param *params,
                                 unsigned params_cnt, hf_columns_fn *fn, void *ctx,
                                 struct hf_store_error *error);
/* Calls fn for each row of what was sent, row by row. */
enum hf_store_status hf_pg_rows(struct hf_store *store, hf_columns_fn *fn, void *ctx,
                                struct hf_store_error *error);

/* Puts rows into pg->buffer, with hf_pg_copy_row() after each. */
enum hf_pg_sent {
    HF_PG_SENT,
    HF_PG_LOST, /* the connection */
    HF_PG_NOMEM
};
typedef enum hf_pg_sent hf_pg_rows_put_fn(void *ctx);
/* Sends the buffer when it is full. False: the connection is lost. */
bool hf_pg_copy_row(struct hf_store *store);
/* A COPY ... FROM STDIN (FORMAT binary) of the rows that put makes. */
struct hf_pg_outcome hf_pg_copy(struct hf_store *store, const char *sql, const char *doing,
                                hf_pg_rows_put_fn *put, void *ctx, struct hf_store_error *error);

enum hf_store_status hf_postgres_scan(struct hf_store *store, const char *sql, const char *types,
                                      hf_columns_fn *fn, void *ctx, struct hf_store_error *error);
enum hf_store_status hf_postgres_schema(struct hf_store *store, hf_schema_fn *fn, void *ctx,
                                        struct hf_store_error *error);
enum hf_store_status hf_postgres_fence(struct hf_store *store, uint64_t first_seq, uint64_t next_seq,
                                       struct hf_fence *fence, struct hf_store_error *error);
enum hf_store_status hf_postgres_lookup(struct hf_store *store, struct hf_lookup *lookups, size_t cnt,
                                        uint64_t before_seq, struct hf_store_error *error);
enum hf_store_status hf_postgres_insert(struct hf_store *store, const struct hf_store_batch *batch,
                                        struct hf_store_rows *rows, struct hf_store_report *report,
                                        struct hf_store_error *error);

/* Forgets which partitions there are: one may have been made by a transaction that did not take place. */
static inline void hf_postgres_forget_partitions(struct hf_postgres *pg)
{
    pg->partition_first = pg->partition_next = 0;
    pg->newest_first = pg->newest_next = 0;
}

/* ---- postgres_append.c ---- */
enum hf_store_status hf_postgres_append(struct hf_store *store, const struct hf_store_part *part, size_t cnt,
                                        struct hf_store_error *error);

/* ---- postgres_prune.c ---- */
enum hf_store_status hf_postgres_retention(struct hf_store *store, struct hf_store_error *error);
enum hf_store_status hf_postgres_idle(struct hf_store *store, const char *segment, bool *idle,
                                      struct hf_store_error *error);
enum hf_store_status hf_postgres_take_away(struct hf_store *store, const char *partition, int64_t segment_id,
                                           int64_t next_seq, struct hf_store_error *error);

#endif
