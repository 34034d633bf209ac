/* What the verify*.c files know of each other. */
#ifndef HF_PERSIST_VERIFY_IMPL_H
#define HF_PERSIST_VERIFY_IMPL_H

#include "persist/canonical.h"
#include "persist/verify.h"
#include "persist/verify_family.h"

/* A batch as its row says, and where its rows are expected. */
struct hf_verify_batch {
    int64_t number;
    int64_t epoch;
    int64_t first_seq;
    int64_t rows_cnt;
    int64_t committed_ms;
    uint8_t before[HF_DIGEST_BYTES];
    uint8_t digest[HF_DIGEST_BYTES];
    bool follows; /* its number is the one after the batch before */
    int64_t from; /* expected rows: [from, until) */
    int64_t until;
};

/* A row that was kept because it differs. */
struct hf_verify_copy {
    struct hf_column *fields; /* hf_receipt_fields() of them; NULL: no memory for them */
    int64_t seq;
    size_t at; /* place in its batch */
};

/* Where a row of the table `kept` is from, in the column for the batch that put a row aside. */
#define HF_VERIFY_KEPT     (-1)
#define HF_VERIFY_KEPT_SQL "CAST(-1 AS bigint)"

#define HF_VERIFY_COPIES_MAX 8 /* of one batch */

/* The batch whose rows come by. */
struct hf_verify_open {
    const struct hf_verify_batch *batch;
    uint8_t (
        *stored)[HF_DIGEST_BYTES];     /* digests as stored, in the order of seq; HF_STORE_ROWS_MAX of them */
    uint8_t (*again)[HF_DIGEST_BYTES]; /* recomputed */
    size_t rows_cnt;                   /* rows of it that came by */
    int64_t due;                       /* the next seq */
    int64_t epoch;                     /* of its first row */
    bool gaps;                         /* rows are missing */
    size_t changed_cnt;                /* rows that are not as their digest says */
    struct hf_verify_copy copies[HF_VERIFY_COPIES_MAX];
    size_t copies_cnt;
    int64_t last_seq; /* the row before; 0: none */
    bool last_aside;  /* it is of the table of conflicts */
};

/* Rows that belong to no batch, while they come by. */
struct hf_verify_stray {
    int64_t from;
    int64_t last;
    uint64_t cnt;
    uint64_t changed_cnt;
};

/* Places of fields. */
struct hf_verify_places {
    size_t kind, epoch, seq, reservation_seq, held, id, tenant, team, key, conflict, reservation_digest,
        digest;
};

struct hf_verify {
    struct hf_verify_places places;
    struct hf_store *store;
    const struct hf_verify_options *options;
    struct hf_verify_report *report;
    struct hf_store_error *error;
    struct hf_canonical *canonical;
    struct hf_family *family;
    size_t *order;            /* fields in the order in which they are read */
    char *types;              /* of the columns of a row, for scan */
    struct hf_column *fields; /* of the row that comes by, in the order of fields */

    /* All segments: names by number. */
    struct hf_verify_name *names;
    size_t names_cnt;
    size_t names_cap;

    /* The present segment. */
    const struct hf_verify_name *segment;
    uint64_t rows_total;
    uint64_t rows_cnt;
    uint64_t rows_changed_cnt;
    uint64_t batches_cnt;
    uint64_t batches_changed_cnt;
    uint64_t links_broken_cnt;
    uint64_t findings_before;    /* findings_cnt when it began */
    int64_t held_invocations;    /* sum */
    bool any_aside;              /* rows of it are in the table of conflicts */
    bool any_kept;               /* rows of it are in the table `kept` */
    int64_t kept_last;           /* the last of these */
    bool from_told;              /* columns[0] of the present rows tells where they are from */
    unsigned searches_left;      /* for the column of a changed row: each costs some 100 ms at most */
    struct hf_verify_batch prev; /* number 0: none */
    uint8_t prev_again[HF_DIGEST_BYTES];
    bool prev_known; /* prev_again is what its digest should be */
    struct hf_verify_open open;
    struct hf_verify_stray stray;
    const struct hf_verify_batch *page; /* batches of the page that is read */
    size_t page_cnt;
    size_t page_more; /* batches that are known after the page */
    size_t page_at;

    int64_t pruned_next; /* receipts before it are gone by rule: records of retention say so; 1: none */

    /* Reservations to be asked for, sorted and without doubles once the page is over. */
    int64_t *asked;
    size_t asked_cnt;
    size_t asked_cap;

    /* Heads that were kept elsewhere: found in the chain, one flag each. */
    bool *heads_found;
    bool *heads_differ;
};

struct hf_verify_name {
    int64_t segment_id;
    char *bytes; /* NUL-terminated */
    size_t len;
};

/* Writes the sentence and hands the finding over. */
void hf_verify_find(struct hf_verify *v, enum hf_verify_what what, int64_t batch, int64_t seq,
                    int64_t last_seq, const char *column, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

/* ---- verify_walk.c: a segment, page by page ---- */

/* Walks v->segment. */
enum hf_store_status hf_verify_segment(struct hf_verify *v);

/* ---- verify_batch.c: batches and the rows in them ---- */

/* The digest that a batch with this header and these rows has. */
bool hf_verify_digest(struct hf_verify *v, const struct hf_verify_batch *batch, const char *segment,
                      const uint8_t (*rows)[HF_DIGEST_BYTES], size_t rows_cnt, uint8_t out[HF_DIGEST_BYTES]);
/* Says from where to where its rows are expected; next may be NULL. It comes after v->prev or after `before`. */
enum hf_store_status hf_verify_plan(struct hf_verify *v, const struct hf_verify_batch *before,
                                    struct hf_verify_batch *batch, const struct hf_verify_batch *next);
/* A row: columns[0] is the batch that put it aside, HF_VERIFY_KEPT or 0 (not so without v->from_told), then its fields in v->order. */
enum hf_store_status hf_verify_row(void *ctx, const struct hf_column *columns, unsigned cnt);
/* Ends the batches of the page whose rows are over, up to (not including) seq. */
enum hf_store_status hf_verify_until(struct hf_verify *v, int64_t seq);
/* Hands over what is known of rows without a batch. */
void hf_verify_stray_end(struct hf_verify *v);

/* ---- verify_column.c: what was it before? ---- */

/* Looks for the one column whose change explains that a row's digest is `wanted`. Its name, and what it was into was; NULL: none. */
const char *hf_verify_column(struct hf_verify *v, const struct hf_verify_copy *copy,
                             const uint8_t wanted[HF_DIGEST_BYTES], char *was, size_t was_bytes);
/* Keeps a copy of a row. */
bool hf_verify_copy(struct hf_verify_copy *copy, const struct hf_column *fields);
void hf_verify_copy_free(struct hf_verify_copy *copy);

/* ---- verify_refer.c: references and holds ---- */

/* A family row as it comes by. */
enum hf_store_status hf_verify_refer(struct hf_verify *v, const struct hf_column *fields, int64_t seq,
                                     int64_t batch);
/* Asks the store for the reservations that were not remembered. */
enum hf_store_status hf_verify_ask(struct hf_verify *v);

/* ---- verify_rollup.c ---- */

/* The rollups of v->segment. */
enum hf_store_status hf_verify_rollups(struct hf_verify *v);

/* ---- verify_prune.c ---- */

/* The records of retention of v->segment, before its walk: sets pruned_next. */
enum hf_store_status hf_verify_prunes(struct hf_verify *v);

/* ---- verify_schema.c ---- */

enum hf_store_status hf_verify_schema(struct hf_verify *v);

#endif
