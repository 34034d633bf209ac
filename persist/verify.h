/* Verification: a walk over a whole store that recomputes every digest, follows every chain and reference, and says what was
 * changed, removed, added, orphaned or cut off. Reads only, in one snapshot, in batches; its memory does not grow with the store.
 *
 * What it cannot know: whether the end of a chain was cut off, or the whole of it written anew with right digests. For that the
 * head (number and digest of the last batch) has to be kept elsewhere: struct hf_verify_head. Nor are a row's `refusal` and the
 * times of the migration records in any digest. */
#ifndef HF_PERSIST_VERIFY_H
#define HF_PERSIST_VERIFY_H

#include "persist/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hf_verify_what {
    HF_VERIFY_CHANGED,  /* a receipt, or a column beside it, is not what it was */
    HF_VERIFY_REMOVED,  /* receipts of a batch, or batches, are gone */
    HF_VERIFY_ADDED,    /* receipts that belong to no batch, or are there twice; a batch out of the chain */
    HF_VERIFY_BATCH,    /* a batch is not what its digest says, or does not follow the one before */
    HF_VERIFY_ORPHANED, /* a receipt names a reservation that is not there, or is another */
    HF_VERIFY_UNEVEN,   /* the receipts of a reservation hold more or less than can be: closed twice */
    HF_VERIFY_RENAMED, /* nothing of a segment holds under its name, and all of its chain does among itself */
    HF_VERIFY_TRUNCATED, /* the head that was kept elsewhere is not in the chain */
    HF_VERIFY_ROLLUP, /* a rollup is not what its digest says, not in its chain, or not what its receipts add up to */
    HF_VERIFY_PRUNE, /* a record of retention is not what it was, or says what cannot be */
    HF_VERIFY_SCHEMA /* triggers, rights or tables are not those of this build */
};

/* "changed", "removed", ... */
const char *hf_verify_what_name(enum hf_verify_what what);

struct hf_verify_finding {
    enum hf_verify_what what;
    const char *segment; /* NULL: of the whole store */
    uint64_t batch;      /* 0: of no batch, or not known */
    uint64_t seq;        /* 0: none */
    uint64_t last_seq;   /* a range of receipts; equal to seq for one */
    const char *column;  /* NULL: cannot be told */
    const char *text;    /* a sentence for a person */
};

/* The head of a chain, kept elsewhere. */
struct hf_verify_head {
    struct hf_name segment; /* length 0: of whichever segment is walked */
    uint64_t number;        /* 0: any number, the digest alone */
    uint8_t digest[HF_DIGEST_BYTES];
};

struct hf_verify_options {
    const char *segment; /* NULL: all */
    const struct hf_verify_head *heads;
    size_t heads_cnt;
    /* Called as things are found; must not call the store. */
    void (*finding)(void *ctx, const struct hf_verify_finding *finding);
    /* Called some times a second at most; NULL: none. */
    void (*progress)(void *ctx, const char *segment, uint64_t rows_cnt, uint64_t rows_total);
    /* The end of each chain that was walked, whatever was found; NULL: none. held: nothing was found in it. */
    void (*head)(void *ctx, const char *segment, const struct hf_store_batch *last, bool held);
    void *ctx;
    bool rollups;       /* add up what every rollup sums, too; their digests are recomputed in any case */
    uint64_t page_rows; /* rows asked for at once; 0: 200,000 */
};

struct hf_verify_report {
    uint64_t segments_cnt;
    uint64_t batches_cnt;
    uint64_t receipts_cnt; /* rows put aside included */
    uint64_t rollups_cnt;
    uint64_t findings_cnt;
    /* No findings, but worth knowing. */
    uint64_t open_cnt;      /* reservations that are not closed */
    uint64_t conflicts_cnt; /* reservations whose id the store had already */
    uint64_t aside_cnt;     /* rows that the table of receipts refused */
    uint64_t pruned_cnt;    /* receipts that retention took away, as its records say */
    uint64_t unknown_cnt;   /* rows whose reservation never came to this store */
};

/* Walks. OK: it came to the end, and the report says what it found. Otherwise it could not: the sentence is in error.
 * store: opened as HF_STORE_READER; its connection is given back without a transaction. */
enum hf_store_status hf_verify(struct hf_store *store, const struct hf_verify_options *options,
                               struct hf_verify_report *report, struct hf_store_error *error);

#endif
