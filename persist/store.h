/* The store: receipts in, receipts out, behind one small table of operations. SQLite and PostgreSQL are two of them; a third is
 * a new struct hf_store_ops and a line in store.c.
 *
 * A handle belongs to one thread at a time, does not cross fork, and holds at most one connection. When the connection breaks, the
 * operation answers RETRY or UNKNOWN, and the next operation connects again by itself (schema, role and lock included): callers
 * only wait (jittered backoff is theirs) and call again. Callbacks must not call the same handle.
 *
 * No message carries a password, whatever the URL says.
 */
#ifndef HF_PERSIST_STORE_H
#define HF_PERSIST_STORE_H

#include "persist/receipt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What happened, why, what to do: one or two sentences for a person, without a line feed at the end. */
struct hf_store_error {
    char text[640];
};

enum hf_store_status {
    HF_STORE_OK = 0,
    /* Expected answers. */
    HF_STORE_RETRY =
        1, /* nothing was changed; may well work later: connection lost before COMMIT, server down or starting,
                             read-only, too many connections, disk full, timeout, locked by somebody for a moment */
    HF_STORE_UNKNOWN =
        2, /* COMMIT was sent and its answer lost: ask hf_store_batch, then go on or call commit again */
    HF_STORE_TAKEN =
        3, /* the batch's number is there with other content: another daemon took over this name. Stop for ever */
    HF_STORE_BEHIND =
        4, /* the store's chain ends before the batch that this one follows, or in another digest: it lost
                             commits (failover, old backup). Alarm and coverage gap, never silence */
    HF_STORE_LOCKED = 5,  /* another daemon uses this store under the same segment name */
    HF_STORE_STOPPED = 6, /* a callback returned nonzero */
    /* Faults: the same call will not work again without a person. */
    HF_STORE_REFUSED = -1, /* the store says no: password, permission, missing table, corrupt file */
    HF_STORE_SCHEMA =
        -2, /* no schema of this version in there: the message says what differs and what to do */
    HF_STORE_INVALID = -3, /* the caller's arguments: bad URL, row out of range or order */
    HF_STORE_NOMEM = -4
};

/* "ok", "retry", ...: for logs. */
const char *hf_store_status_name(enum hf_store_status status);

enum hf_store_role {
    HF_STORE_WRITER, /* PostgreSQL: SET ROLE holdfast_runtime where the user may */
    HF_STORE_OWNER,  /* keeps the rights of the user of the URL: for retention. SQLite: a writer */
    HF_STORE_READER /* PostgreSQL: SET ROLE holdfast_reader where the user may, read-only. SQLite: opened read-only */
};

/* How hard a SQLite commit is (PRAGMA synchronous). PostgreSQL keeps what server and role say. */
enum hf_store_durability {
    HF_STORE_FULL,
    HF_STORE_NORMAL,
    HF_STORE_OFF
};

/* Zeroed means defaults. */
struct hf_store_options {
    enum hf_store_role role;
    enum hf_store_durability durability; /* OFF only for stores that are thrown away */
    uint32_t connect_timeout_ms;         /* 0: 10,000 */
    uint32_t statement_timeout_ms;       /* 0: 30,000; a server that hangs longer is taken for lost */
    uint32_t busy_timeout_ms;            /* 0: 5,000; SQLite: wait for another writer */
    uint32_t
        lock_wait_ms; /* 0: 2,000; wait for the lock of a name: a daemon that was just killed may still be ending */
    /* For tests: called at "begin", "rows", "before-commit" and "commit-sent" of each commit, with the connection's socket (-1 for
     * SQLite). NULL: none. */
    void (*fault)(void *ctx, const char *point, int fd);
    void *fault_ctx;
};

struct hf_store;

/* ---- URLs ---------------------------------------------------------------------------------------------------- */

/* `sqlite:PATH`, or what libpq takes: `postgresql://...`, `postgres://...`, `host=... dbname=...`. */

/* sqlite:$XDG_STATE_HOME/holdfast/holdfast.db, without XDG_STATE_HOME under $HOME/.local/state. INVALID without either, or when it
 * does not fit. */
enum hf_store_status hf_store_default_url(char *url, size_t url_bytes, struct hf_store_error *error);

/* The URL for people: host, port, database and user, or the path; never a password or another parameter. Always terminated;
 * "(not a store URL)" for what is none. */
void hf_store_display_url(const char *url, char *text, size_t text_bytes);

/* ---- open, init ---------------------------------------------------------------------------------------------- */

/* Makes the schema (for SQLite also the file, 0660 at most; of the default store also its folder, 0700), roles and migration records, or the migrations
 * that are missing. Twice is once. PostgreSQL: run by the owner-to-be. */
enum hf_store_status hf_store_init(const char *url, const struct hf_store_options *options,
                                   struct hf_store_error *error);

/* Opens an initialised store and verifies its migration records. options may be NULL. On OK *store is the caller's, to be
 * closed; otherwise it is NULL. RETRY: down at the moment. */
enum hf_store_status hf_store_open(const char *url, const struct hf_store_options *options,
                                   struct hf_store **store, struct hf_store_error *error);
/* NULL is nothing to do. Gives up the lock. */
void hf_store_close(struct hf_store *store);

/* Drops the connection, if there is one; the next operation connects again. */
void hf_store_disconnect(struct hf_store *store);

/* The URL for people; owned by the store. */
const char *hf_store_url(const struct hf_store *store);

/* ---- writing ------------------------------------------------------------------------------------------------- */

/* Takes the single-writer lock of a segment name (1..63 bytes, a name), kept until close and taken again after each reconnect;
 * makes the name known to the store. LOCKED: another daemon has it; after a reconnect that may be the server's idea of our own
 * lost connection for some seconds. The lock gives the early, clear error; the batch number is what really protects. One
 * name per handle. commit needs it, reading does not. */
enum hf_store_status hf_store_lock(struct hf_store *store, const char *segment, struct hf_store_error *error);

/* A batch as recorded. */
struct hf_store_batch {
    uint64_t number;    /* 1, 2, 3, ... per segment name, over all epochs */
    uint64_t epoch;     /* of the segment that wrote it */
    uint64_t first_seq; /* its rows are first_seq .. first_seq + rows_cnt - 1, wherever they are kept */
    uint64_t rows_cnt;  /* >= 1 */
    uint64_t
        committed_ms; /* authority time of the commit; not before made_ms of any of its rows or of an earlier batch */
    uint8_t before[HF_DIGEST_BYTES]; /* digest of the batch before; zeros for number 1 */
    uint8_t digest[HF_DIGEST_BYTES];
};

struct hf_store_report {
    uint64_t conflicts_cnt; /* rows with fate HF_FATE_CONFLICT */
    uint64_t aside_cnt;     /* rows with fate HF_FATE_ASIDE */
    uint64_t orphans_cnt; /* rows of a reservation that the store does not know: stored without a reference */
    bool already;         /* the batch was there before, the same: nothing was written */
    char aside_reason[256]; /* of the first row put aside */
};

/* Commits a batch and its rows in one transaction: all, or nothing.
 *
 * In: batch number, epoch, first_seq, committed_ms, before; rows in sequence order (rows[i].seq = first_seq + i, any epoch of rows =
 * batch->epoch), at most HF_STORE_ROWS_MAX. Out, on OK: batch rows_cnt and digest; in each row fate, conflict, digest,
 * reservation_seq and reservation_digest; report (may be NULL).
 *
 * In the same transaction it compares the chain's end (number - 1, with digest `before`, ending at first_seq - 1), looks up the ids
 * of the batch's reservations (the fence: what is there already, or twice in the batch, is stored with conflict = true) and the
 * references that are missing. Rows that the server refuses go one by one to the table of conflicts, with the reason; the rest is
 * committed.
 *
 * RETRY: rows and batch are as they were given; call again. UNKNOWN: they keep what this attempt filled in; after hf_store_batch
 * says that the number is not there, call again; commit itself also notices that the very same batch is there (report->already). */
#define HF_STORE_ROWS_MAX 65536
enum hf_store_status hf_store_commit(struct hf_store *store, struct hf_store_batch *batch,
                                     struct hf_receipt *rows, size_t rows_cnt, struct hf_store_report *report,
                                     struct hf_store_error *error);

/* ---- reading ------------------------------------------------------------------------------------------------- */

/* The store's clock. PostgreSQL: clock_timestamp(); SQLite: this host's. */
struct hf_store_time {
    uint64_t now_us;         /* µs since the Unix epoch, at the instant mono_ns */
    uint64_t mono_ns;        /* CLOCK_MONOTONIC: the middle of the round trip */
    uint64_t uncertainty_ns; /* half the round trip: the true instant is mono_ns +- this */
};
enum hf_store_status hf_store_now(struct hf_store *store, struct hf_store_time *time,
                                  struct hf_store_error *error);

/* The end of a segment name's chain. */
struct hf_store_head {
    struct hf_store_batch last; /* number 0 and zeros: the store knows no batch of that name */
    uint64_t next_seq;          /* last.first_seq + last.rows_cnt; 1 without a batch */
};
enum hf_store_status hf_store_head(struct hf_store *store, const char *segment, struct hf_store_head *head,
                                   struct hf_store_error *error);

/* The batch of that number, *found false when there is none. After UNKNOWN: found with our epoch and digest: it is committed; found
 * with something else: TAKEN in effect. */
enum hf_store_status hf_store_batch(struct hf_store *store, const char *segment, uint64_t number, bool *found,
                                    struct hf_store_batch *batch, struct hf_store_error *error);

/* Called once per receipt. Nonzero stops (HF_STORE_STOPPED). */
typedef int hf_store_row_fn(void *ctx, const struct hf_receipt *receipt);

/* The rows of a sequence range, in order, those put aside included (fate HF_FATE_ASIDE): [first_seq, first_seq + cnt). */
enum hf_store_status hf_store_rows(struct hf_store *store, const char *segment, uint64_t first_seq,
                                   uint64_t cnt, hf_store_row_fn *row, void *ctx,
                                   struct hf_store_error *error);

/* The rows of the reservations under an id, oldest first (with conflicts: of all of them). */
enum hf_store_status hf_store_receipts(struct hf_store *store, const char *segment, const char *id,
                                       hf_store_row_fn *row, void *ctx, struct hf_store_error *error);

/* The newest row of a kind (HF_RECEIPT_EPOCH, HF_RECEIPT_POLICY); no call when there is none. */
enum hf_store_status hf_store_last(struct hf_store *store, const char *segment, enum hf_receipt_kind kind,
                                   hf_store_row_fn *row, void *ctx, struct hf_store_error *error);

/* What to hand over of reservations. */
struct hf_store_filter {
    bool open; /* all that are not closed */
    uint64_t
        closed_since_ms;    /* settled, released, late, resolved at or after this; HF_UNKNOWN: none of them */
    uint64_t late_since_ms; /* expired, retained, disputed at or after this; HF_UNKNOWN: none */
};
/* Called once per reservation with all its rows, oldest first: hf_reservation_from_rows puts them together. Rows are valid during
 * the call. In order of the reservations' seq. */
typedef int hf_store_reservation_fn(void *ctx, const struct hf_receipt *rows, size_t rows_cnt);
enum hf_store_status hf_store_reservations(struct hf_store *store, const char *segment,
                                           const struct hf_store_filter *filter,
                                           hf_store_reservation_fn *reservation, void *ctx,
                                           struct hf_store_error *error);

/* Sums of the effects over one window of one path and one set of buckets, those of this window alone. For a bucket: add up `held`
 * and `charged` of its dimension over all sums of its window on paths below it whose bucket_mask has its bit. Exact; may exceed
 * the range of amounts in dimensions that no bucket counts. Read from a rollup and what came after it. */
struct hf_store_sum {
    struct hf_name tenant;
    struct hf_name team;
    struct hf_name key;   /* length 0: none */
    uint64_t bucket_mask; /* bits of `window` */
    enum hf_window window;
    uint64_t rows_cnt;
    __int128 held[HF_DIM_CNT];
    __int128 charged[HF_DIM_CNT];
};
typedef int hf_store_sum_fn(void *ctx, const struct hf_store_sum *sum);
/* For each window kind in `windows` (bit 1 << enum hf_window): the window that is open at now_ms (any instant: of a later rollup than
 * that nothing is used). */
enum hf_store_status hf_store_sums(struct hf_store *store, const char *segment, uint64_t now_ms,
                                   uint32_t windows, hf_store_sum_fn *sum, void *ctx,
                                   struct hf_store_error *error);

/* Meters as semantics.md §5, in its order: tenant, capability, model, bytewise (null model first). */
struct hf_store_meter {
    struct hf_name tenant;
    struct hf_name capability;
    struct hf_name model; /* length 0: explicit amounts */
    int64_t requests;
    int64_t failures;
    int64_t degraded;
    int64_t reserved_micros;
    int64_t settled_micros;
};
typedef int hf_store_meter_fn(void *ctx, const struct hf_store_meter *meter);
/* tenant NULL: all. */
enum hf_store_status hf_store_meters(struct hf_store *store, const char *segment, const char *tenant,
                                     hf_store_meter_fn *meter, void *ctx, struct hf_store_error *error);

/* The newest credit of each team and window kind whose window is open at now_ms: credit_after_micros is in force. */
enum hf_store_status hf_store_credits(struct hf_store *store, const char *segment, uint64_t now_ms,
                                      hf_store_row_fn *row, void *ctx, struct hf_store_error *error);

/* For verification: counts and sums over everything of a segment name, rows put aside included. */
struct hf_store_totals {
    uint64_t batches_cnt;
    uint64_t batch_rows_cnt; /* as the batches say; receipts_cnt + pruned_cnt when nothing is missing */
    uint64_t receipts_cnt;
    uint64_t pruned_cnt; /* that retention took away, as its records say */
    uint64_t kinds_cnt[HF_RECEIPT_KIND_CNT];
    uint64_t conflicts_cnt; /* rows with conflict = true */
    uint64_t aside_cnt;     /* rows in the table of conflicts */
    __int128 held[HF_DIM_CNT];
    __int128 charged[HF_DIM_CNT];
};
enum hf_store_status hf_store_totals(struct hf_store *store, const char *segment,
                                     struct hf_store_totals *totals, struct hf_store_error *error);

/* The segment names that a store knows, in order. Nonzero stops (HF_STORE_STOPPED). */
typedef int hf_store_segment_fn(void *ctx, const char *segment);
enum hf_store_status hf_store_segments(struct hf_store *store, hf_store_segment_fn *segment, void *ctx,
                                       struct hf_store_error *error);

/* ---- for those who write a store ------------------------------------------------------------------------------- */

/* persist/store_impl.h has struct hf_store and struct hf_store_ops. */

#endif
