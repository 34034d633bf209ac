/* Parts of retention: the record, for who makes and who verifies it; what stands in the way; a segment's part of a step. */
#ifndef HF_PERSIST_PRUNE_IMPL_H
#define HF_PERSIST_PRUNE_IMPL_H

#include "persist/prune.h"
#include "persist/rollup.h"
#include "persist/store_impl.h"

/* ---- prune_record.c ---- */

struct hf_prune_record {
    int64_t number; /* 1, 2, ... */
    int64_t made_ms;
    char made_by[256];
    int64_t first_seq; /* receipts [first_seq, next_seq) */
    int64_t next_seq;
    int64_t rows_cnt;     /* that went */
    int64_t kept_cnt;     /* of the range in the tables `kept` and `conflict` */
    int64_t batch_number; /* the batch that ends at next_seq */
    int64_t rollup_number;
    uint8_t batch_digest[HF_DIGEST_BYTES];
    uint8_t rollup_digest[HF_DIGEST_BYTES];
    uint8_t before[HF_DIGEST_BYTES]; /* of the record before; zeros */
    uint8_t digest[HF_DIGEST_BYTES];
};

#define HF_PRUNE_COLUMNS                                                                               \
    "number, made_ms, made_by, first_seq, next_seq, rows_cnt, kept_cnt, batch_number, rollup_number, " \
    "batch_digest, rollup_digest, before, digest "

/* A row of HF_PRUNE_COLUMNS into a struct hf_prune_record. */
enum hf_store_status hf_prune_read(void *ctx, const struct hf_column *columns, unsigned cnt);
/* The SHA-256 of the record's canonical text (persist/README.md). It is over the headers of the batches after batch_before, the
 * batch_number of the record before, and over the rows that stay, which are counted. */
enum hf_store_status hf_prune_digest(struct hf_store *store, int64_t segment_id, const char *segment,
                                     const struct hf_prune_record *record, int64_t batch_before,
                                     int64_t *kept_cnt, uint8_t digest[HF_DIGEST_BYTES],
                                     struct hf_store_error *error);
/* The newest record of a segment; number 0 and next_seq 1 when there is none. */
enum hf_store_status hf_prune_newest(struct hf_store *store, int64_t segment_id,
                                     struct hf_prune_record *record, struct hf_store_error *error);
enum hf_store_status hf_prune_insert(struct hf_store *store, int64_t segment_id,
                                     const struct hf_prune_record *record, struct hf_store_error *error);

/* ---- prune_limit.c ---- */

#define HF_PRUNE_TEXT_BYTES 384

/* A segment, while its store is pruned. */
struct hf_prune_segment {
    int64_t segment_id;
    char *name;
    int64_t chain_next;
    struct hf_prune_record last; /* of the step before */
    /* What stands in the way, as it was when pruning began: receipts before limit_seq may go. */
    struct hf_rollup rollup;
    int64_t limit_seq;
    char limit_text[HF_PRUNE_TEXT_BYTES];
    /* In the present step. */
    bool takes_part;
    int64_t next_seq; /* the end of a batch, up to which it is pruned */
};

/* Finds out how far s may be pruned, and what stands in the way of more. */
enum hf_store_status hf_prune_limit(struct hf_store *store, struct hf_prune_segment *s, uint64_t now_ms,
                                    uint64_t before_ms, struct hf_store_error *error);

/* ---- prune_part.c ---- */

/* A step, for each segment that takes part in it. */
struct hf_prune_part {
    struct hf_store *store;
    const struct hf_prune_options *options;
    uint64_t now_ms;
    int64_t from; /* receipts [from, until) are taken away after it, as far as they are the segment's */
    int64_t
        until; /* those of the range from s->next_seq on are kept, since their batch has others that stay */
};

/* Finds s->next_seq: the last end of a batch at `until` or before, that of the record before when there is none. */
enum hf_store_status hf_prune_end(struct hf_store *store, struct hf_prune_segment *s, int64_t until,
                                  struct hf_store_error *error);
/* Moves what is kept, makes the record, counts into step. With dry_run it only counts. REFUSED: receipts are missing. */
enum hf_store_status hf_prune_take_part(const struct hf_prune_part *part, struct hf_prune_segment *s,
                                        struct hf_prune_step *step, struct hf_store_error *error);

#endif
