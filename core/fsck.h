/* Checking a live segment: every invariant that can be checked from the segment alone, under traffic, without a write and
 * without a false alarm; and mending, alone in the segment, what can be proved.
 *
 * Why there is no false alarm. What a fact of one slot, link or word says is read until it stands still, is only called
 * damage when no process that was stopped or killed at any instruction can have left it so, and must be found unchanged in
 * each of several looks. Sums are compared at one instant: all that changes a bucket goes through the W of its tenant, so a
 * scan that has followed W from number to number knows what it must read again, until W stands still for a moment; and the
 * daemon's marks and publications are read between two batches (core/fsck_sums.c). Where no such instant can be had, a
 * note says that the sums were not checked.
 *
 * What is legal though untidy (a dead process's entry, a half-made reservation of the dead) is a note as well: daemon and
 * workers clean it up by themselves.
 */
#ifndef HF_CORE_FSCK_H
#define HF_CORE_FSCK_H

#include "shm/owner.h"
#include "shm/segment.h"

enum hf_fsck_kind {
    HF_FSCK_HEADER,         /* identity, counts, state, gauges of the header */
    HF_FSCK_CLOCK,          /* the published or injected clock */
    HF_FSCK_OWNER,          /* an entry of the owner table */
    HF_FSCK_DAEMON,         /* the daemon's word */
    HF_FSCK_POLICY,         /* compiled policy: header, rows, capabilities */
    HF_FSCK_LOOKUP,         /* its lookup table */
    HF_FSCK_NAME,           /* an interned name */
    HF_FSCK_PRICE,          /* a price */
    HF_FSCK_TENANT,         /* a tenant's own fields */
    HF_FSCK_WORD,           /* commit word W */
    HF_FSCK_APPLIED,        /* A ahead of W, or of what is applied */
    HF_FSCK_ROW,            /* links of a row */
    HF_FSCK_BUCKET_TAG,     /* tag ahead of W */
    HF_FSCK_BUCKET_WINDOW,  /* window ahead of the clock */
    HF_FSCK_BUCKET_VALUE,   /* value is not what was published plus what the slots hold */
    HF_FSCK_CREDIT,         /* a credit */
    HF_FSCK_PUBLISHED,      /* what is published as settled */
    HF_FSCK_METER,          /* a meter: its names, its amounts */
    HF_FSCK_BATCH,          /* a batch descriptor */
    HF_FSCK_CHUNK,          /* owner, bits or marks of a chunk */
    HF_FSCK_FREE_BITS,      /* note: hints of a chunk that are wrong */
    HF_FSCK_SLOT_STATE,     /* st: an unknown state, impossible bits */
    HF_FSCK_SLOT_SEQ,       /* sequence ahead of its tenant's W */
    HF_FSCK_SLOT_PATH,      /* tenant, rows, mask */
    HF_FSCK_SLOT_WINDOWS,   /* windows are not those of its instant */
    HF_FSCK_SLOT_AMOUNT,    /* amounts and deadline out of range */
    HF_FSCK_SLOT_ID,        /* id and its hash */
    HF_FSCK_SLOT_FLAGS,     /* flags, closing flags, policy generation */
    HF_FSCK_SLOT_NAMES,     /* capability, model, economy model */
    HF_FSCK_SLOT_PERSISTED, /* receipts claimed that cannot be */
    HF_FSCK_SLOT_CLAIM,     /* a claim of nobody who can be */
    HF_FSCK_INDEX_LINK,     /* a link to no slot, or to another life of one */
    HF_FSCK_INDEX_RING,     /* a chain that does not end */
    HF_FSCK_INDEX_FOREIGN,  /* a slot in a chain where it does not belong */
    HF_FSCK_INDEX_MISSING,  /* a known reservation that its id does not find */
    HF_FSCK_INDEX_TWICE,    /* two known reservations of one id */
    HF_FSCK_DEAD,           /* note: left by a dead process */
    HF_FSCK_NOT_CHECKED,    /* note: could not be checked, and why */
    HF_FSCK_KIND_CNT
};

enum hf_fsck_severity {
    HF_FSCK_NOTE,   /* nothing is wrong */
    HF_FSCK_DAMAGE, /* an invariant does not hold */
    HF_FSCK_MENDED  /* of a repair: it held not, and does now; expected is after, found before */
};

/* One thing found. Where it is: indexes, HF_SHM_NONE for what does not apply. */
struct hf_fsck_item {
    enum hf_fsck_kind kind;
    enum hf_fsck_severity severity;
    uint32_t tenant;
    uint32_t row;
    uint32_t window; /* kind */
    uint32_t window_id;
    uint32_t dimension;
    uint32_t slot;
    uint32_t chunk;
    uint32_t idx; /* owner, name, price, meter, batch, head, lookup entry: by kind */
    bool has_numbers;
    uint64_t expected;
    uint64_t found;
    uint64_t sig[2]; /* words under which it was found: the next look must find it under the same */
    char text[200];  /* what is wrong, for people */
};

struct hf_fsck_options {
    uint32_t rounds;       /* looks that must agree; 0: 3 */
    uint32_t pause_ms;     /* between two looks; of a unit test 0 */
    uint32_t sums_tries;   /* tries for one tenant's sums; 0: 400 */
    uint32_t sums_wait_ms; /* for one tenant's sums at most; 0: 3000 */
    uint32_t tenant;       /* sums of this tenant only, or HF_SHM_NONE: of all */
};

/* Item by item; item is valid during the call. */
typedef void hf_fsck_report_fn(void *ctx, const struct hf_segment *seg, const struct hf_fsck_item *item);

struct hf_fsck_result {
    uint32_t damage;        /* things that are wrong */
    uint32_t notes;         /* and things to know */
    uint32_t mended;        /* of a repair */
    uint32_t tenants;       /* in use */
    uint32_t sums_proved;   /* tenants whose sums were compared at one instant (right or wrong) */
    uint32_t sums_busy;     /* tenants whose sums could not be compared */
    uint64_t buckets;       /* buckets compared */
    uint64_t slots_checked; /* slots that carry something, in the last look */
    uint64_t tries;         /* for the sums, in all */
};

/* Checks; writes nothing. Runs beside everybody. HF_OK (see result), HF_ESYS without memory. report may be NULL. */
int hf_fsck(const struct hf_segment *seg, const struct hf_fsck_options *options, hf_fsck_report_fn *report,
            void *ctx, struct hf_fsck_result *result);

/* What committed receipts charged of one bucket in this window: for who can ask the store. False: it is not known. */
typedef bool hf_fsck_charged_fn(void *ctx, uint32_t row, uint32_t window, uint32_t window_id,
                                uint32_t dimension, uint64_t *amount);

struct hf_fsck_repair {
    struct hf_fsck_options options;
    /* Proves what is published. NULL: a bucket that is too high stays as it is, and a publication is believed only where
     * it makes a bucket higher. Called with the segment quiet. */
    hf_fsck_charged_fn *charged;
    void *charged_ctx;
};

/* Mends what can be proved and reports each change (HF_FSCK_MENDED), then checks and reports what is left. Takes the
 * daemon's place for that time; HF_EBUSY and a sentence with their pids when a daemon or any other live process is in
 * the segment; HF_ENOTREADY and a sentence when it was superseded or closed; HF_ESYS without memory. Workers that come
 * meanwhile are told `not-ready`. Twice is once; cut off in the middle (state HF_SEGMENT_REPAIR: the daemon refuses to
 * start) it is run again. own: joined by the caller, as a daemon. report may be NULL. */
int hf_fsck_repair(struct hf_segment *seg, const struct hf_owner *own, const struct hf_fsck_repair *repair,
                   hf_fsck_report_fn *report, void *ctx, struct hf_fsck_result *result, struct hf_error *err);

/* "bucket-value", ...: static text, "?" for a number that is no kind. */
const char *hf_fsck_kind_name(enum hf_fsck_kind kind);
const char *hf_fsck_severity_name(enum hf_fsck_severity severity);

/* Where an item is, by names: "team acme/content, month cost_micros (window 681), slot 12 (call-7)". Returns buffer. */
const char *hf_fsck_where(const struct hf_segment *seg, const struct hf_fsck_item *item, char *buffer,
                          size_t buffer_bytes);

#endif
