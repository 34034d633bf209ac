/* A receipt: one immutable row of the store, and the one table of its fields.
 *
 * Everything that reads or writes receipts (canonical text, both stores, JSON for people) walks the same table of fields, in the
 * same order; persist/README.md has it with meanings. A field's name is its column's name.
 *
 * Null: HF_UNKNOWN in a number, HF_RECEIPT_SIGNED_NULL in a signed one, -1 in a word or a tri-state, a name of length 0, a NULL
 * text, an all-zero digest. Unknown is never zero: hf_receipt_init makes everything null, and the effects 0.
 */
#ifndef HF_PERSIST_RECEIPT_H
#define HF_PERSIST_RECEIPT_H

#include "core/amount.h"
#include "core/name.h"
#include "core/terms.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HF_DIGEST_BYTES        32
#define HF_RECEIPT_SIGNED_NULL INT64_MIN
/* Buckets of one path: bit (layer * 5 + window) * 3 + dimension, layer 0 key, 1 team, 2 tenant. The same as slot_mask. */
#define HF_RECEIPT_BUCKETS_MAX 45
/* Room for the longest text of the column `buckets`, with its NUL. */
#define HF_RECEIPT_BUCKETS_BYTES 4096

/* Column `kind`, and the first line of the canonical text (holdfast/reservation@1). Append only. */
enum hf_receipt_kind {
    HF_RECEIPT_EPOCH,       /* a segment began: epoch, coverage gap */
    HF_RECEIPT_POLICY,      /* a policy revision: who, why, what changed */
    HF_RECEIPT_RESERVATION, /* reserve */
    HF_RECEIPT_EXTENSION,   /* extend: new totals and/or deadline; may stand for several calls */
    HF_RECEIPT_SETTLEMENT,  /* settle */
    HF_RECEIPT_RELEASE,     /* release */
    HF_RECEIPT_EXPIRY,      /* reap, on_expiry let go */
    HF_RECEIPT_RETENTION,   /* reap, on_expiry kept */
    HF_RECEIPT_DISPUTE, /* settle above the hold with on_overage fail (late: true when it had expired or been retained) */
    HF_RECEIPT_LATE,       /* settle after expiry or retention */
    HF_RECEIPT_RESOLUTION, /* resolve: laid out, not made yet */
    HF_RECEIPT_CREDIT,     /* credit */
    HF_RECEIPT_KIND_CNT
};

enum hf_receipt_admission {
    HF_ADMISSION_ALLOW,
    HF_ADMISSION_DEGRADE
};
enum hf_receipt_form {
    HF_FORM_MODEL,
    HF_FORM_AMOUNTS
};
enum hf_receipt_outcome {
    HF_OUTCOME_SUCCESS,
    HF_OUTCOME_FAILURE
};
enum hf_receipt_cost_source {
    HF_COST_PROVIDER,
    HF_COST_DERIVED,
    HF_COST_UNKNOWN
};

/* What became of a row in the last commit; no column. */
enum hf_receipt_fate {
    HF_FATE_NONE,   /* not committed yet */
    HF_FATE_STORED, /* in the table of receipts */
    HF_FATE_CONFLICT, /* stored with conflict = true: the store had a reservation under this id already. Raise the alarm */
    HF_FATE_ASIDE /* refused by the store, kept in the table of conflicts with the reason. Raise the alarm */
};

/* `all`: every kind. `family`: reservation and all that refers to one (extension to resolution). `closing`: settlement to
 * resolution. Times are authority time in ms since the Unix epoch. */
struct hf_receipt {
    enum hf_receipt_kind kind; /* all */
    uint16_t version;          /* all: version of the kind's canonical text, 1 */
    uint64_t epoch;            /* all: epoch of the segment */
    uint64_t seq; /* all: rises over all epochs of a segment name, without gaps: with the name the identity */

    /* When. */
    uint64_t made_ms; /* all: when the operation took effect */
    uint64_t
        window_ms; /* family, credit: the instant whose windows it belongs to (of a closing: its reservation's) */
    uint64_t expires_at_ms; /* family: the deadline after this row; of a closing the last one it had */

    /* Of which reservation. A reservation refers to itself. reservation_seq HF_UNKNOWN in a family row other than a reservation:
     * hf_store_commit looks up the newest reservation under `id` and fills in seq, digest and conflict. If seq is given, the
     * digest must be too, unless that reservation is in the same batch. */
    uint64_t reservation_seq;                    /* family */
    uint8_t reservation_digest[HF_DIGEST_BYTES]; /* family but reservation: digest of the reservation's row */

    /* held_invocations is +1 on a reservation, -1 on the closing that ends its being open, 0 on everything later.
     * Effects on every bucket in `bucket_mask` of every window that window_ms lies in; 0 elsewhere. `held`: what open reservations
     * hold. `charged`: what is settled (or left charged by expired, retained, disputed, unknown). The sums over all rows of a
     * window are what the bucket holds and has settled. Signed, within +-HF_AMOUNT_MAX. Conflicting rows have them too. */
    int64_t held_invocations;
    int64_t held_tokens;
    int64_t held_cost_micros;
    int64_t charged_invocations;
    int64_t charged_tokens;
    int64_t charged_cost_micros;

    uint64_t bucket_mask; /* family: buckets in which the reservation counts; 0: none is limited */

    /* Totals held after this row; of a closing: what it closed. Null: not held in that dimension. */
    uint64_t hold_tokens;
    uint64_t hold_cost_micros;
    uint64_t extend_calls; /* extension: how many extend calls it stands for, >= 1 */

    /* reservation: the request, to tell a replay from a conflict after recovery. Null: was not given. */
    uint64_t input_tokens;
    uint64_t max_output_tokens;
    uint64_t requested_tokens; /* explicit form: `tokens` */
    uint64_t requested_cost_micros;
    uint64_t economy_tokens;
    uint64_t economy_cost_micros;
    uint64_t requested_ttl_ms;

    /* reservation: prices fixed at reserve, of `model`. Null: no such price (or explicit amounts). */
    uint64_t input_micros_per_mtok;
    uint64_t output_micros_per_mtok;
    uint64_t cached_input_micros_per_mtok;
    uint64_t cache_write_input_micros_per_mtok;
    uint64_t model_max_output_tokens;

    /* closing with a settle: usage as told (null: not told), actual (null: unknown), difference to the hold (null: nothing was
     * held in that dimension). */
    uint64_t usage_input_tokens;
    uint64_t usage_output_tokens;
    uint64_t usage_cached_input_tokens;
    uint64_t usage_cache_write_input_tokens;
    uint64_t usage_cost_micros;
    uint64_t actual_tokens;
    uint64_t actual_cost_micros;
    uint64_t released_tokens;
    uint64_t released_cost_micros;
    uint64_t overage_tokens;
    uint64_t overage_cost_micros;

    uint64_t policy_revision; /* epoch, policy, reservation: revision of the policy in force */

    /* credit */
    int64_t credit_micros;         /* as asked; negative takes back */
    uint64_t credit_before_micros; /* the window's total before and after */
    uint64_t credit_after_micros;

    /* epoch: nothing is known to be committed of what happened in [gap_from_ms, gap_until_ms). Null: no gap. */
    uint64_t gap_from_ms;
    uint64_t gap_until_ms;

    bool
        conflict; /* all: belongs to a reservation whose id the store had already: in bucket sums, in no meter */

    int8_t dispatched;     /* family: 1, 0, or -1 null: whether dispatch was known when the row was made */
    int8_t usage_known;    /* closing with a settle: 0: usage null */
    int8_t quota_exceeded; /* closing with a settle: as answered */
    int8_t late;           /* closing: it had expired or been retained before */

    /* Words; -1: null. */
    int8_t admission;     /* family: enum hf_receipt_admission */
    int8_t form;          /* reservation: enum hf_receipt_form */
    int8_t on_expiry;     /* family: enum hf_on_expiry, fixed at reserve */
    int8_t on_overage;    /* family: enum hf_on_overage */
    int8_t basis;         /* reservation: enum hf_basis */
    int8_t cost_source;   /* closing with a settle: enum hf_receipt_cost_source */
    int8_t outcome;       /* closing with a settle: enum hf_receipt_outcome */
    int8_t credit_window; /* credit: enum hf_window */

    /* Names. */
    struct hf_name id;             /* family: the caller's id */
    struct hf_name tenant;         /* family, credit */
    struct hf_name team;           /* family, credit */
    struct hf_name key;            /* family; null: none given */
    struct hf_name capability;     /* family */
    struct hf_name model;          /* family; null: explicit amounts. The economy model when degraded */
    struct hf_name model_asked;    /* reservation: the model asked for, when degraded */
    struct hf_name economy_model;  /* reservation: the alternative, as asked */
    struct hf_name price_revision; /* epoch, policy, reservation */
    struct hf_name currency;       /* epoch, policy, reservation */
    struct hf_name ref;            /* closing: the caller's reference for the finished call */
    struct hf_name made_by;        /* epoch, policy, credit, resolution: who */

    /* Texts of any length: UTF-8, NUL-terminated, not owned by the receipt. From a store they are valid during the callback. */
    const char *reason; /* policy, credit, resolution, epoch: why */
    const char *
        details; /* epoch, policy: a JSON document: what was found, what changed from what to what, the policy itself */

    /* reservation: the limit in force of each bucket of bucket_mask, by bit number, and the credit of the team's windows (cost).
     * Column `buckets`: see hf_receipt_buckets_format. */
    uint64_t limits[HF_RECEIPT_BUCKETS_MAX];
    uint64_t credits[HF_WINDOW_CNT];

    uint8_t digest[HF_DIGEST_BYTES]; /* all: filled in by hf_store_commit */

    enum hf_receipt_fate fate; /* no column */
    bool escaped; /* no column: hf_escape_row changed a name or text; goes to the table of conflicts */
};

/* The number of a bucket's bit. layer: HF_LAYER_KEY, TEAM or TENANT. */
static inline unsigned hf_receipt_bucket(enum hf_layer layer, enum hf_window window,
                                         enum hf_dimension dimension)
{
    return (((unsigned)layer - (unsigned)HF_LAYER_KEY) * HF_WINDOW_CNT + (unsigned)window) * HF_DIM_CNT +
           (unsigned)dimension;
}

/* Everything null, effects 0, version 1, of that kind; bucket_mask of a family row is 0, no bucket. */
void hf_receipt_init(struct hf_receipt *receipt, enum hf_receipt_kind kind);

/* "reservation", "late_settlement", ...: the column's word; "?" for no kind. */
const char *hf_receipt_kind_name(enum hf_receipt_kind kind);

/* True for a reservation and all that refers to one. */
static inline bool hf_receipt_in_family(enum hf_receipt_kind kind)
{
    return kind >= HF_RECEIPT_RESERVATION && kind <= HF_RECEIPT_RESOLUTION;
}

/* The column `buckets` of a reservation: `team/month/cost_micros=40000000+0:6200;...`, per bucket of bucket_mask in the order of
 * bits: layer/window/dimension=limit+credit:amount. The window is the one in which window_ms lies; the amount is 1, hold_tokens or
 * hold_cost_micros. Returns the length; 0 (empty text) when the mask is 0. */
size_t hf_receipt_buckets_format(const struct hf_receipt *receipt, char text[HF_RECEIPT_BUCKETS_BYTES]);

/* Reads such a text back into limits, credits (bucket_mask is a column of its own). False when it is none. */
bool hf_receipt_buckets_parse(const char *text, size_t len, struct hf_receipt *receipt);

/* ---- the table of fields ------------------------------------------------------------------------------------ */

enum hf_field_type {
    HF_FIELD_NUMBER,  /* uint64_t, null HF_UNKNOWN; column: 64-bit integer */
    HF_FIELD_SIGNED,  /* int64_t, null HF_RECEIPT_SIGNED_NULL; column: 64-bit integer */
    HF_FIELD_FLAG,    /* bool, never null; column: boolean (0 or 1 in SQLite) */
    HF_FIELD_TRI,     /* int8_t 0, 1, null -1; column: boolean */
    HF_FIELD_WORD,    /* int8_t of an enum, null -1; column: text */
    HF_FIELD_NAME,    /* struct hf_name; column: text */
    HF_FIELD_TEXT,    /* const char *; column: text */
    HF_FIELD_BUCKETS, /* from limits and credits; column: text */
    HF_FIELD_DIGEST   /* 32 bytes; column: bytea or BLOB */
};

struct hf_field {
    const char *name;
    enum hf_field_type type;
    uint8_t name_len;
};

/* A field's value, or that of a column. Texts point into the receipt, static words or the scratch. */
struct hf_field_value {
    bool null;
    uint64_t number;   /* NUMBER */
    int64_t integer;   /* SIGNED */
    bool flag;         /* FLAG, TRI */
    const char *bytes; /* WORD, NAME, TEXT, BUCKETS, DIGEST */
    size_t len;
};

/* How many fields there are, and the i-th. `kind`, `version` and the own `digest` are fields like others: the first two and the
 * last. The order is that of the columns and of the canonical text. */
size_t hf_receipt_fields(void);
const struct hf_field *hf_receipt_field(size_t i);

/* The value of field i. */
void hf_receipt_get(const struct hf_receipt *receipt, size_t i, struct hf_field_value *value,
                    char scratch[HF_RECEIPT_BUCKETS_BYTES]);

/* The first number above INT64_MAX, which no column takes, that is not null. NULL: there is none. */
const struct hf_field *hf_receipt_beyond(const struct hf_receipt *receipt);

/* Sets field i from a column's value (bytes of a TEXT must be NUL-terminated and outlive the receipt). False when the value
 * cannot be one of this field: an unknown word, a name that is none, a digest of another length. */
bool hf_receipt_set(struct hf_receipt *receipt, size_t i, const struct hf_field_value *value);

/* ---- a reservation put together from its rows ---------------------------------------------------------------- */

enum hf_reservation_state {
    HF_RESERVATION_OPEN,
    HF_RESERVATION_SETTLED,
    HF_RESERVATION_RELEASED,
    HF_RESERVATION_EXPIRED,
    HF_RESERVATION_RETAINED,
    HF_RESERVATION_DISPUTED,
    HF_RESERVATION_LATE, /* settled late */
    HF_RESERVATION_RESOLVED
};

struct hf_reservation {
    enum hf_reservation_state state;
    const struct hf_receipt *reserved; /* its reservation row */
    const struct hf_receipt *expiry;   /* the expiry or retention, or NULL */
    const struct hf_receipt *closing;  /* the last closing (may be the expiry), or NULL: open */
    uint64_t hold_tokens;              /* now held or, closed, what was held; HF_UNKNOWN: not held */
    uint64_t hold_cost_micros;
    uint64_t expires_at_ms;
    uint64_t state_since_ms; /* made_ms of the closing, or of the reservation while open */
    bool dispatched;         /* as far as any row knows */
};

/* Puts together the rows of one reservation, oldest first (as hf_store_reservations hands them over). The pointers point into
 * rows. False when the first row is no reservation or the rows contradict each other. */
bool hf_reservation_from_rows(const struct hf_receipt *rows, size_t rows_cnt,
                              struct hf_reservation *reservation);

#endif
