/* Rollups: the digest, from what the store holds. persist/README.md has the canonical text. */
#include "persist/rollup.h"
#include "persist/store_impl.h"

#include <string.h>

/* A table of a rollup: the columns in the text, in their order; rows in the order of their key. */
struct part {
    const char *sql;
    const char *columns[18]; /* ended by NULL */
};

/* clang-format off */
static const struct part parts[] = {
    {"SELECT window_kind, start_ms, end_ms, mask, base FROM rollup_window "
     "WHERE segment_id = $1 AND number = $2 ORDER BY window_kind, start_ms",
     {"window_kind", "start_ms", "end_ms", "mask", "base"}},
    {"SELECT window_kind, start_ms, tenant, team, key, bucket_mask, rows_cnt, held_invocations, held_tokens_high,"
     "    held_tokens_low, held_cost_high, held_cost_low, charged_invocations, charged_tokens_high,"
     "    charged_tokens_low, charged_cost_high, charged_cost_low FROM rollup_sum "
     "WHERE segment_id = $1 AND number = $2 ORDER BY window_kind, start_ms, tenant, team, key, bucket_mask",
     {"window_kind", "start_ms", "tenant", "team", "key", "bucket_mask", "rows_cnt", "held_invocations",
      "held_tokens_high", "held_tokens_low", "held_cost_high", "held_cost_low", "charged_invocations",
      "charged_tokens_high", "charged_tokens_low", "charged_cost_high", "charged_cost_low"}},
    {"SELECT tenant, capability, model, requests, failures, degraded, reserved_micros, settled_micros "
     "FROM rollup_meter WHERE segment_id = $1 AND number = $2 ORDER BY tenant, capability, model",
     {"tenant", "capability", "model", "requests", "failures", "degraded", "reserved_micros", "settled_micros"}},
    {"SELECT reservation_seq FROM rollup_open WHERE segment_id = $1 AND number = $2 ORDER BY reservation_seq",
     {"reservation_seq"}},
};
/* clang-format on */

struct reading {
    struct hf_digest *digest;
    const struct part *part;
    struct hf_store_error *error;
};

static enum hf_store_status failed(struct hf_store_error *error)
{
    return hf_store_fail(error, HF_STORE_NOMEM,
                         "the digest of a rollup failed: no memory, or libcrypto failed");
}

static enum hf_store_status read_part(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct reading *reading = ctx;
    const char *const *names = reading->part->columns;

    for (unsigned i = 0; i < cnt && names[i] != NULL; i++) {
        bool put = columns[i].null ? true
                   : columns[i].bytes != NULL
                       ? hf_digest_line_text(reading->digest, names[i], columns[i].bytes, columns[i].len)
                       : hf_digest_line_number(reading->digest, names[i], columns[i].integer);

        if (!put) {
            return failed(reading->error);
        }
    }
    return HF_STORE_OK;
}

static bool head(struct hf_digest *digest, const char *segment, const struct hf_rollup *rollup)
{
    return hf_digest_lines_begin(digest, "holdfast/rollup@1") &&
           hf_digest_line_text(digest, "segment", segment, strlen(segment)) &&
           hf_digest_line_number(digest, "number", (int64_t)rollup->number) &&
           hf_digest_line_number(digest, "epoch", (int64_t)rollup->epoch) &&
           hf_digest_line_number(digest, "first_seq", (int64_t)rollup->first_seq) &&
           hf_digest_line_number(digest, "next_seq", (int64_t)rollup->next_seq) &&
           hf_digest_line_number(digest, "end_ms", (int64_t)rollup->end_ms) &&
           hf_digest_line_number(digest, "batch_number", (int64_t)rollup->batch_number) &&
           hf_digest_line_digest(digest, "batch_digest", rollup->batch_digest) &&
           hf_digest_line_number(digest, "parts_cnt", (int64_t)rollup->parts_cnt) &&
           hf_digest_line_digest(digest, "before", rollup->before);
}

enum hf_store_status hf_rollup_digest(struct hf_store *store, const char *segment,
                                      const struct hf_rollup *rollup, uint8_t digest[HF_DIGEST_BYTES],
                                      struct hf_store_error *error)
{
    struct reading reading = {.digest = store->digest, .error = error};
    int64_t segment_id;
    enum hf_store_status status = hf_store_segment_id(store, segment, &segment_id, error);
    struct hf_param params[2] = {hf_param_integer(segment_id), hf_param_integer((int64_t)rollup->number)};

    if (status == HF_STORE_OK && !head(store->digest, segment, rollup)) {
        status = failed(error);
    }
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && status == HF_STORE_OK; i++) {
        reading.part = &parts[i];
        status = hf_store_query(store, parts[i].sql, params, 2, read_part, &reading, error);
    }
    if (status == HF_STORE_OK && !hf_digest_lines_end(store->digest, digest)) {
        status = failed(error);
    }
    return status;
}
