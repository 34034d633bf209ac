/* Digests of receipts and batches: SHA-256 over a documented canonical text, which anybody can rebuild from the rows.
 *
 * Receipt:  holdfast/<kind>@<version>\n  segment=<text>\n  then for each field that is not null, in the order of the table of
 *           fields, from `epoch` to `reservation_digest`:  <name>=<value>\n
 *           Numbers in decimal; flags true or false; texts as <bytes>:<text>, so that no text can pretend to be another field;
 *           digests in lower-case hexadecimal. A null field has no line, an empty text has one with 0: .
 * Batch:    holdfast/batch@1\n segment=<text>\n number= epoch= first_seq= rows_cnt= committed_ms= before=<hex>\n, then the
 *           digests of its rows, 32 bytes each, in the order of seq.
 *
 * persist/README.md gives the SQL that computes both in psql alone.
 */
#ifndef HF_PERSIST_DIGEST_H
#define HF_PERSIST_DIGEST_H

#include "persist/receipt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A reused context with its buffer: one thread at a time. */
struct hf_digest;

/* NULL when there is no memory, or libcrypto has no SHA-256. */
struct hf_digest *hf_digest_new(void);
void hf_digest_free(struct hf_digest *digest);

/* SHA-256 of bytes. All functions here return false when libcrypto fails or memory runs out. */
bool hf_digest_bytes(struct hf_digest *digest, const void *bytes, size_t len, uint8_t out[HF_DIGEST_BYTES]);

/* The canonical text of a receipt of that segment name; valid until the next call with this context. */
bool hf_digest_canonical(struct hf_digest *digest, const char *segment, const struct hf_receipt *receipt,
                         const char **text, size_t *len);

/* SHA-256 of the canonical text. */
bool hf_digest_receipt(struct hf_digest *digest, const char *segment, const struct hf_receipt *receipt,
                       uint8_t out[HF_DIGEST_BYTES]);

/* What of a batch is in its digest beside the rows. */
struct hf_digest_batch {
    uint64_t number;
    uint64_t epoch;
    uint64_t first_seq;
    uint64_t rows_cnt;
    uint64_t committed_ms;
    const uint8_t *before; /* HF_DIGEST_BYTES */
};

/* A batch's digest in steps: begin, then add for each row in the order of seq, then end. Nothing else with this context between. */
bool hf_digest_batch_begin(struct hf_digest *digest, const char *segment,
                           const struct hf_digest_batch *batch);
bool hf_digest_batch_add(struct hf_digest *digest, const uint8_t row[HF_DIGEST_BYTES]);
bool hf_digest_batch_end(struct hf_digest *digest, uint8_t out[HF_DIGEST_BYTES]);

/* A text of lines, name=value as above: begin with its title, then lines, then end. Nothing else with this context between. */
bool hf_digest_lines_begin(struct hf_digest *digest, const char *title);
bool hf_digest_line_number(struct hf_digest *digest, const char *name, int64_t number);
bool hf_digest_line_text(struct hf_digest *digest, const char *name, const char *text, size_t len);
bool hf_digest_line_digest(struct hf_digest *digest, const char *name, const uint8_t bytes[HF_DIGEST_BYTES]);
bool hf_digest_lines_end(struct hf_digest *digest, uint8_t out[HF_DIGEST_BYTES]);

/* 64 hexadecimal digits and a NUL. */
void hf_digest_hex(const uint8_t digest[HF_DIGEST_BYTES], char text[2 * HF_DIGEST_BYTES + 1]);

#endif
