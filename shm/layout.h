/* Every byte of the segment.
 *
 * This file owns the layout: structs with natural alignment and explicit pads, integers and offsets only,
 * no pointers. shm/README.md has the same as a table; layout.c dumps name, offset and size for the test
 * that holds the two together. Any change here changes hf_layout_fingerprint(), and two builds with
 * different fingerprints refuse each other's segments.
 *
 * Writers: "creator" before the segment is linked into place; "daemon" the one process that holds
 * hdr_daemon; "owner" the process a thing belongs to; "claimant" the process whose reference stands in
 * slot_claim; "any, through W" any process, by the transaction of shm/commit.h.
 */
#ifndef HF_SHM_LAYOUT_H
#define HF_SHM_LAYOUT_H

#include "shm/atomic.h"

#include <stdint.h>

#define HF_SHM_MAGIC   0x74736166646c6f68ULL /* "holdfast" */
#define HF_SHM_VERSION 1U

#define HF_SHM_WINDOWS      5U /* minute, hour, day, month, lifetime */
#define HF_SHM_DIMS         3U /* invocations, tokens, cost */
#define HF_SHM_LAYERS       3U /* 0 key, 1 team, 2 tenant: the order of the checks */
#define HF_SHM_ROW_BUCKETS  (HF_SHM_WINDOWS * HF_SHM_DIMS)
#define HF_SHM_PATH_BUCKETS (HF_SHM_ROW_BUCKETS * HF_SHM_LAYERS)

#define HF_SHM_NONE        UINT32_MAX /* no row, no name, no price */
#define HF_SHM_UNKNOWN     UINT64_MAX /* an amount nobody knows; a limit that is not there */
#define HF_SHM_AMOUNT_MAX  72057594037927935ULL
#define HF_SHM_SEQ_MAX     ((1ULL << 44) - 1)
#define HF_SHM_SEQ_ALARM   (HF_SHM_SEQ_MAX - (1ULL << 40)) /* a rebuild is due long before the end */
#define HF_SHM_SLOTS_MAX   (1U << 24)
#define HF_SHM_CHUNK_SLOTS 64U
#define HF_SHM_NAME_BYTES  63U

/* ---- packed words -------------------------------------------------------------------------------- */

/* Commit word W of a tenant:   lo = sequence 44 | kind 6 | 0 (10) | slot high 4
 *                              hi = time_ms 44 | slot low 20 */
/* Slot state word st:          lo = sequence 44 | ordinal 11 | state 5 | 0 (4)
 *                              hi = time_ms 44 | generation 20; time of the last operation, in FILLING and PENDING of
 *                              the filling */
/* Bucket, and credit:          lo = value 56 | window low 8
 *                              hi = tag 44 | window high 20 */
/* Link of the id index:        slot 24 | generation 20 | count 20 (count: heads only, raised by each change) */
/* Owner reference:             index 16 | epoch 48; 0 = nobody */

/* Kinds of a tenant's operations (W). */
enum hf_kind {
    HF_KIND_NONE = 0, /* detach: W names no slot any more */
    HF_KIND_RESERVE = 1,
    HF_KIND_EXTEND = 2,
    HF_KIND_DISPATCH = 3,
    HF_KIND_SETTLE = 4,
    HF_KIND_RELEASE = 5,
    HF_KIND_EXPIRE = 6,
    HF_KIND_RETAIN = 7,
    HF_KIND_DISPUTE = 8,
    HF_KIND_LATE = 9,
    HF_KIND_RESOLVE = 10, /* laid out, not made yet */
    HF_KIND_CREDIT = 11,
    HF_KIND_LIMITS = 12,     /* laid out, not made yet */
    HF_KIND_TICKET_IN = 13,  /* laid out, not made yet */
    HF_KIND_TICKET_OUT = 14, /* laid out, not made yet */
    HF_KIND_CNT
};

/* States of a slot (st). */
enum hf_state {
    HF_STATE_FREE = 0,
    HF_STATE_FILLING = 1,   /* owner writes the fields */
    HF_STATE_PENDING = 2,   /* complete, waits for its W */
    HF_STATE_ABANDONED = 3, /* never happened; the daemon frees it */
    HF_STATE_HELD = 4,
    HF_STATE_DISPATCHED = 5,
    HF_STATE_SETTLED = 6,
    HF_STATE_RELEASED = 7,
    HF_STATE_EXPIRED = 8,
    HF_STATE_RETAINED = 9,
    HF_STATE_DISPUTED = 10,
    HF_STATE_LATE = 11,     /* settled late */
    HF_STATE_RESOLVED = 12, /* laid out, not made yet */
    HF_STATE_CREDIT = 13,   /* a credit that is applied; the slot carries its receipt */
    HF_STATE_LIMITS = 14,   /* laid out, not made yet */
    HF_STATE_TICKET = 15,   /* laid out, not made yet */
    HF_STATE_TICKET_OUT = 16,
    HF_STATE_CNT
};

/* ---- segment header: one page --------------------------------------------------------------------- */

enum hf_segment_state {
    HF_SEGMENT_NEW = 0,        /* being made, or no first clock yet: not-ready */
    HF_SEGMENT_READY = 1,      /* open for work */
    HF_SEGMENT_SUPERSEDED = 2, /* another host or epoch took over the name: not-ready for ever */
    HF_SEGMENT_CLOSED = 3,     /* a private segment after its run */
    HF_SEGMENT_REPAIR = 4 /* `holdfast fsck --repair` is at work, or was cut off; read as HF_SEGMENT_NEW */
};

/* A region: hdr_regions[HF_REGION_x]. */
enum hf_region {
    HF_REGION_OWNERS = 0,
    HF_REGION_TENANTS,
    HF_REGION_ROWS,
    HF_REGION_PUBLISHED,
    HF_REGION_CHUNKS,
    HF_REGION_SLOTS,
    HF_REGION_HEADS,
    HF_REGION_NAMES,
    HF_REGION_PRICES,
    HF_REGION_POLICIES, /* two generations of the compiled policy, each hdr_policy_bytes */
    HF_REGION_METERS,
    HF_REGION_BATCHES, /* two batch descriptors */
    HF_REGION_CNT
};

struct hf_shm_region {
    uint64_t reg_off;    /* from the start of the segment; 4096-aligned */
    uint32_t reg_cnt;    /* entries */
    uint32_t reg_stride; /* bytes of one entry */
};

/* Alarm counters: hdr_alarms[HF_ALARM_x]; shm/README.md says what each means and what to do. */
enum hf_alarm {
    HF_ALARM_EXPIRED = 0,
    HF_ALARM_RETAINED,
    HF_ALARM_OVERAGE,
    HF_ALARM_DISPUTED,
    HF_ALARM_CONFLICT,
    HF_ALARM_BUSY,
    HF_ALARM_BELOW_ZERO,
    HF_ALARM_UNKNOWN_SETTLE,
    HF_ALARM_LIMIT_80,
    HF_ALARM_LIMIT_100,
    HF_ALARM_FORGOTTEN,
    HF_ALARM_CLOCK_JUMP,
    HF_ALARM_COVERAGE_GAP,
    HF_ALARM_STORE_RETRY,
    HF_ALARM_STORE_CONFLICT,
    HF_ALARM_ABANDONED,
    HF_ALARM_SEQUENCE,
    HF_ALARM_CORRUPT,
    HF_ALARM_CNT
};
#define HF_SHM_ALARMS 32U

struct hf_shm_header {
    /* line 0: identity. Writer: creator; read-only afterwards. */
    uint64_t hdr_magic;
    uint32_t hdr_version;
    uint32_t hdr_header_bytes;
    uint64_t hdr_fingerprint;
    uint64_t hdr_size_bytes;
    uint64_t hdr_epoch; /* of this segment; rows of the store carry it */
    uint64_t hdr_hash_seed;
    uint8_t hdr_boot_id[16];
    /* line 1: options. Writer: creator. */
    uint64_t hdr_replay_horizon_ms;
    uint64_t hdr_late_horizon_ms;
    uint64_t hdr_max_lag_ms;
    uint32_t hdr_injected; /* 1: injected clock */
    uint32_t hdr_slots_cnt;
    uint32_t hdr_chunk_slots; /* slots of one chunk, a power of two, 1..64 */
    uint32_t hdr_heads_mask;  /* heads of the id index - 1 */
    uint64_t hdr_policy_bytes;
    uint64_t hdr_created_ms;
    uint64_t hdr_pad1;
    /* line 2: state. Writer: daemon. */
    uint32_t hdr_state; /* enum hf_segment_state; published last */
    uint32_t hdr_names_cnt;
    uint32_t hdr_prices_cnt;
    uint32_t hdr_policy_gen;   /* newest generation; its region is gen & 1 */
    uint64_t hdr_daemon;       /* owner reference of the daemon; CAS 0 or dead -> self */
    uint64_t hdr_heartbeat_ms; /* CLOCK_MONOTONIC of the daemon's last cycle */
    uint64_t hdr_durable_ms;   /* CLOCK_MONOTONIC instant before which everything is committed */
    uint64_t hdr_next_seq;     /* next receipt sequence */
    uint64_t hdr_batch_number; /* last committed batch */
    /* The largest amount in any meter: below half the range nobody needs to look closer. */
    uint64_t hdr_meters_max;
    /* line 3: the authority clock. Writer: daemon. Two copies: (clk_seq >> 1) & 1 says which is in force, the other
     * one is filled for the next publication; so a daemon stopped in the middle of it stops nobody. */
    uint32_t clk_seq; /* twice the publications so far (0: none yet), + 1 while the next one takes over */
    uint32_t clk_uncertainty_ms[2];
    uint32_t clk_pad;
    uint64_t clk_time_ms[2];     /* store's time at clk_mono_ms */
    uint64_t clk_mono_ms[2];     /* CLOCK_MONOTONIC */
    uint64_t clk_hold_ms;        /* the clock shows at least this: it never runs backwards */
    uint64_t clk_elapsed_off_ms; /* elapsed scale of deadlines: CLOCK_MONOTONIC + this. Creator; fixed */
    /* line 4: injected clock. Writer: any (CAS, only forward). */
    uint64_t clk_injected_ms;
    uint64_t hdr_pad4[7];
    /* line 5: waiting for the daemon. Writers: any (wake_word, cyc_asked), daemon (the others). */
    uint32_t wake_word;     /* futex: raised to wake the daemon */
    uint32_t cyc_done_word; /* futex: raised when a cycle ends */
    uint64_t cyc_begun;     /* drain cycles begun */
    uint64_t cyc_done;      /* drain cycles whose marks are all committed */
    uint64_t hdr_pad5[5];
    /* line 6..9: alarms. Writers: any (add, relaxed). */
    uint64_t hdr_alarms[HF_SHM_ALARMS];
    /* regions. Writer: creator. */
    struct hf_shm_region hdr_regions[16];
    char hdr_segment_name[64];
    char hdr_store_name[64];      /* name under which the store knows this segment */
    char hdr_store_url[512];      /* for people and tools; never with a secret */
    uint8_t hdr_batch_digest[32]; /* of the last committed batch. Writer: daemon */
    uint64_t hdr_lock_ino; /* inode of the lock file: another one would show the living as dead. Creator */
    uint8_t hdr_pad6[2520];
};
_Static_assert(sizeof(struct hf_shm_header) == 4096, "the header is one page");

/* ---- processes ------------------------------------------------------------------------------------ */

/* Life is proved by an open-file-description lock on byte (index) of the lock file, never by these. */
struct hf_shm_owner {
    uint64_t own_ref; /* 0 = free; else the reference of the one who joined. CAS by joiner and sweeper */
    uint64_t own_last_epoch; /* highest epoch ever given at this place. Writer: joiner under its lock */
    uint64_t own_joined_ms;
    uint32_t own_pid;  /* for people only */
    uint32_t own_role; /* 1 worker, 2 daemon, 3 tool */
    uint64_t own_pad[4];
};
_Static_assert(sizeof(struct hf_shm_owner) == 64, "one line");

/* ---- quota ---------------------------------------------------------------------------------------- */

/* 128 bytes of its own: the commit word, and what every operation reads with it. */
struct hf_shm_tenant {
    struct hf_u128 ten_word; /* W. Writer: any, CAS */
    uint64_t ten_applied;    /* A: a sequence known to be applied; a hint, never ahead */
    uint64_t ten_policy;     /* generation of the limits in force. Writer: any, through W */
    uint32_t ten_row;        /* its row. Writer: creator */
    uint32_t ten_name;
    uint64_t ten_wish; /* who asks for a turn (owner reference), or 0; a hint. Writer: any */
    uint64_t ten_pad[10];
};
_Static_assert(sizeof(struct hf_shm_tenant) == 128, "two lines: the prefetcher couples pairs");

/* One layer of a policy (tenant, team or key): its buckets. A bucket's number follows from window and
 * dimension. 512 bytes, so that the buckets of two rows never share a pair of lines; what a window has (a bucket for each
 * dimension, then at [HF_SHM_CREDIT] its credit, of teams alone) is one line. */
#define HF_SHM_CREDIT       HF_SHM_DIMS
#define HF_SHM_WINDOW_WORDS (HF_SHM_DIMS + 1U)
/* The number of a word in its row; at: a dimension, or HF_SHM_CREDIT. */
#define HF_SHM_ROW_WORD(window, at) ((window)*HF_SHM_WINDOW_WORDS + (at))
struct hf_shm_row {
    struct hf_u128 row_buckets[HF_SHM_WINDOWS][HF_SHM_WINDOW_WORDS]; /* Writer: any, through W */
    uint64_t row_granted[HF_SHM_ROW_BUCKETS];                        /* room for grants; 0 */
    uint32_t row_tenant; /* index of its tenant. Writer: creator, as for the rest */
    uint32_t row_parent; /* row of the layer above, HF_SHM_NONE for a tenant */
    uint32_t row_name;
    uint32_t row_layer; /* 0 key, 1 team, 2 tenant */
    uint64_t row_pad[7];
};
_Static_assert(sizeof(struct hf_shm_row) == 512, "a row is 512 bytes");

/* False: nobody has used it. (The row of a key has a parent, which is a team's and so never row 0.) */
static inline bool hf_row_used(const struct hf_shm_row *row)
{
    /* relaxed: written by the creator. */
    return hf_load_rlx_u32(&row->row_layer) != 0 || hf_load_rlx_u32(&row->row_parent) != 0;
}

/* What the daemon knows of a row from receipts. Writer: daemon, under pub_seq (odd while writing). */
struct hf_shm_settled {
    uint64_t set_amount;
    uint32_t set_window;
    uint32_t set_pad;
};
struct hf_shm_published {
    uint64_t pub_seq;
    uint32_t pub_alarm_window[HF_SHM_WINDOWS]; /* window for which the bits below stand */
    uint32_t pub_alarm_bits[HF_SHM_WINDOWS];   /* 1 = 80 %, 8 = 100 %, 64 = below zero; << dimension */
    uint64_t pub_pad[4];
    struct hf_shm_settled pub_settled[HF_SHM_WINDOWS][HF_SHM_DIMS];
};
_Static_assert(sizeof(struct hf_shm_published) == 320, "five lines");

/* ---- slots ---------------------------------------------------------------------------------------- */

/* hdr_chunk_slots slots that one process fills at a time. chunk_free is a hint: the truth is st. */
struct hf_shm_chunk {
    /* Who alone may fill its free slots now. CAS 0 -> self; back to 0 by the owner when it goes on to another chunk,
     * or by the daemon when the owner is dead. */
    uint64_t chunk_owner;
    uint64_t chunk_free; /* bit per slot: set by the daemon when freed, taken by the owner (exchange) */
    uint64_t chunk_home; /* who filled it last and looks here first; a hint. Writer: owner, daemon */
    uint64_t chunk_pad[5];
    /* A byte for each slot: 1 stored by committers and helpers, taken by the daemon (exchange of eight at a time). */
    uint8_t chunk_dirty[64];
};
_Static_assert(sizeof(struct hf_shm_chunk) == 128, "two lines");

/* slot_flags: fixed at reserve. */
#define HF_SLOT_EXPIRY_MASK  0x3U /* enum hf_on_expiry */
#define HF_SLOT_OVERAGE_FAIL 0x4U
#define HF_SLOT_BASIS_CAP    0x8U
#define HF_SLOT_DEGRADED     0x10U
#define HF_SLOT_FORM_MODEL   0x20U  /* model + input_tokens, else explicit amounts */
#define HF_SLOT_HAS_IN1      0x40U  /* input_tokens or tokens was given */
#define HF_SLOT_HAS_IN2      0x80U  /* max_output_tokens or cost_micros was given */
#define HF_SLOT_HAS_ECO1     0x100U /* economy_tokens */
#define HF_SLOT_HAS_ECO2     0x200U /* economy_cost_micros */
#define HF_SLOT_HAS_TTL      0x400U
#define HF_SLOT_CREDITS      0x800U  /* slot_credits[] is filled (not all zero) */
#define HF_SLOT_CAP_TOKENS   0x1000U /* basis cap: the capability capped tokens at reserve */
#define HF_SLOT_CAP_COST     0x2000U
#define HF_SLOT_CONFLICT     0x4000U /* recovered from a conflicting reservation */

/* slot_close: written by the claimant before W. */
#define HF_CLOSE_FAILURE         0x1U /* outcome: failure */
#define HF_CLOSE_SOURCE_MASK     0x6U /* 0 unknown, 2 derived, 4 provider */
#define HF_CLOSE_SOURCE_DERIVED  0x2U
#define HF_CLOSE_SOURCE_PROVIDER 0x4U
#define HF_CLOSE_USAGE           0x8U /* usage was an object, not null */
#define HF_CLOSE_HAS_CACHED      0x10U
#define HF_CLOSE_HAS_CACHE_WRITE 0x20U
#define HF_CLOSE_QUOTA_EXCEEDED  0x40U
#define HF_CLOSE_WAS_EXPIRED     0x80U /* late: it had been expired */
#define HF_CLOSE_WAS_RETAINED    0x100U
#define HF_CLOSE_REF             0x200U /* slot_ref is given */

/* The two sets of what a hold is; st.ordinal & 1 says which is current. */
struct hf_shm_hold {
    uint64_t hold_tokens; /* HF_SHM_UNKNOWN: not held */
    uint64_t hold_cost;
    uint64_t hold_deadline; /* elapsed scale, ms */
    uint64_t hold_time_ms;  /* authority time when this set was made */
};

/* A reservation, from FILLING to FREE; with HF_STATE_CREDIT a credit (struct hf_shm_credit_note in
 * slot_body). While st says FILLING or PENDING the owner alone writes; later each field names its writer. */
struct hf_shm_slot {
    /* 0 */
    struct hf_u128 slot_st;  /* owner to PENDING; any, through W; daemon to FREE */
    uint64_t slot_claim;     /* owner reference of the claimant. CAS */
    uint64_t slot_persisted; /* generation 20 | ordinal 11 | receipts 33 (HF_PERSISTED_x). Writer: daemon */
    uint64_t slot_next;      /* link to the next slot of its chain. Owner before insertion, daemon after */
    uint64_t slot_owner;     /* owner reference of who filled it */
    uint32_t slot_id_hash;   /* owner; in this line, so that a walk along a chain reads one line of a slot */
    uint32_t slot_economy;   /* price of the economy model, or HF_SHM_NONE */
    uint64_t slot_mask;      /* bit layer*15 + window*3 + dimension: buckets in which it counts */
    /* 64 */
    uint32_t slot_rows[HF_SHM_LAYERS]; /* key (or HF_SHM_NONE), team, tenant */
    uint32_t slot_tenant;
    uint32_t slot_windows[4];   /* minute, hour, day, month; lifetime is 0 */
    uint64_t slot_first_tokens; /* as reserved: the first answer */
    uint64_t slot_first_cost;
    uint64_t slot_first_expires_ms;
    uint32_t slot_flags;
    uint32_t slot_policy_gen;
    /* 128 */
    struct hf_shm_hold slot_holds[2]; /* [0] owner, then the claimant writes the spare one */
    /* 192: closing. Writer: claimant, before W */
    uint64_t slot_actual_tokens;
    uint64_t slot_actual_cost;
    uint64_t slot_usage_input;
    uint64_t slot_usage_cached;
    uint64_t slot_usage_cache_write;
    uint64_t slot_expired_ms; /* when it had expired, before a late closing */
    uint32_t slot_close;
    uint32_t slot_note; /* slot with the texts of a resolution; room */
    uint8_t slot_ref_bytes;
    uint8_t slot_id_bytes; /* owner */
    uint8_t slot_pad1[6];
    /* 256: the request, to tell a replay from a conflict. Writer: owner */
    uint64_t slot_in1;  /* input_tokens or tokens */
    uint64_t slot_in2;  /* max_output_tokens or cost_micros */
    uint64_t slot_eco1; /* economy_tokens */
    uint64_t slot_eco2; /* economy_cost_micros */
    uint64_t slot_ttl_ms;
    uint32_t slot_cap;         /* name of the capability */
    uint32_t slot_model;       /* price of the model asked for, or HF_SHM_NONE */
    uint64_t slot_reserved_ms; /* the instant whose windows it belongs to */
    uint64_t slot_pad2;
    /* 320: credits in force per window at reserve (HF_SLOT_CREDITS). Writer: owner */
    uint64_t slot_credits[HF_SHM_WINDOWS];
    /* 360: what the daemon has made receipts of. Writer: daemon */
    uint64_t slot_written_tokens;
    uint64_t slot_written_cost;
    uint64_t slot_written_deadline;
    /* 384 */
    char slot_id[64];  /* owner */
    char slot_ref[64]; /* claimant, before W */
};
_Static_assert(sizeof(struct hf_shm_slot) == 512, "a slot is 512 bytes");

/* slot_persisted: which receipts of this generation are committed. */
#define HF_PERSISTED_RESERVATION 0x1U
#define HF_PERSISTED_EXPIRY      0x2U /* expired or retained */
#define HF_PERSISTED_CLOSING     0x4U /* settled, released, disputed, or the late settlement */
#define HF_PERSISTED_CONFLICT    0x8U /* its reservation was put aside as a conflict */

/* A credit: lies over the slot from byte 128. The slot's row is slot_rows[1], its tenant slot_tenant. */
struct hf_shm_credit_note {
    int64_t crd_micros;  /* as asked, negative takes back */
    uint32_t crd_window; /* kind */
    uint32_t crd_window_id;
    uint64_t crd_before; /* the window's total before and after: for the receipt */
    uint64_t crd_after;
    uint8_t crd_reason_bytes;
    uint8_t crd_by_bytes;
    uint8_t crd_pad[6];
    char crd_reason[256];
    char crd_by[64];
};
#define HF_SHM_CREDIT_OFF 128U
_Static_assert(HF_SHM_CREDIT_OFF + sizeof(struct hf_shm_credit_note) <= 512, "a credit fits its slot");

/* ---- names, prices, policy ------------------------------------------------------------------------ */

/* Interned, append-only within an epoch; index = the name's number. Writer: creator, later the daemon. */
struct hf_shm_name {
    uint8_t name_bytes;
    char name_text[63];
};

/* One revision of one model's prices, append-only, so that a slot keeps what it was reserved under. */
struct hf_shm_price {
    uint64_t prc_input;
    uint64_t prc_output;
    uint64_t prc_cached_input; /* HF_SHM_UNKNOWN: counts as uncached input */
    uint64_t prc_cache_write;
    uint64_t prc_max_output_tokens; /* HF_SHM_UNKNOWN: none */
    uint32_t prc_model;             /* name */
    uint32_t prc_revision;          /* name */
    uint64_t prc_pad[2];
};

/* A compiled policy: this header, then arrays at the offsets it states (from its own start).
 * Writer: creator (later the daemon); read-only once its generation is published. */
struct hf_shm_policy {
    uint32_t pol_gen;
    uint32_t pol_rows_cnt; /* entries of the row array, index = row */
    uint32_t pol_caps_cnt;
    uint32_t pol_lookup_mask; /* slots of the lookup table - 1 */
    uint64_t pol_rows_off;    /* struct hf_shm_row_policy[] */
    uint64_t pol_caps_off;    /* struct hf_shm_cap[] */
    uint64_t pol_lookup_off;  /* struct hf_shm_lookup[] */
    uint64_t pol_bytes;
    uint32_t pol_currency;       /* name */
    uint32_t pol_price_revision; /* name */
    uint32_t pol_tenants_cnt;
    uint32_t pol_models_cnt;
    uint64_t pol_pad[2];
    uint8_t pol_digest[32]; /* of the policy file */
};
_Static_assert(sizeof(struct hf_shm_policy) == 112, "policy header");

/* What a policy says of one row. */
struct hf_shm_row_policy {
    uint64_t rpl_limits[HF_SHM_WINDOWS][HF_SHM_DIMS]; /* HF_SHM_UNKNOWN: no limit */
    uint64_t rpl_overdraft_micros;
    uint64_t rpl_ttl_ms; /* in force: inheritance is resolved. Of a key: its team's */
    uint64_t rpl_retry_after_ms;
    uint64_t rpl_queue_limit;
    uint64_t rpl_queue_deadline_ms;
    uint32_t rpl_on_limit;   /* enum hf_on_limit; of a key its team's */
    uint32_t rpl_on_expiry;  /* enum hf_on_expiry */
    uint32_t rpl_on_overage; /* enum hf_on_overage */
    uint32_t rpl_present;    /* 1: the row is in this policy */
    uint64_t rpl_pad[2];
};
_Static_assert(sizeof(struct hf_shm_row_policy) == 192, "three lines");

struct hf_shm_cap {
    uint64_t cap_micros; /* HF_SHM_UNKNOWN: no cap */
    uint64_t cap_tokens;
    uint32_t cap_name;
    uint32_t cap_team_row;
    uint32_t cap_basis; /* enum hf_basis */
    uint32_t cap_pad;
};

/* Open addressing by core/lookup.h: hf_lookup_hash of (kind, parent, name); lku_kind 0 ends a probe. */
#define HF_LOOKUP_TENANT 1U /* parent 0; value = tenant index */
#define HF_LOOKUP_TEAM   2U /* parent = tenant row; value = row */
#define HF_LOOKUP_KEY    3U /* parent = team row; value = row */
#define HF_LOOKUP_CAP    4U /* parent = team row; value = index into caps */
#define HF_LOOKUP_MODEL  5U /* parent 0; value = price */
struct hf_shm_lookup {
    uint32_t lku_kind;
    uint32_t lku_parent;
    uint32_t lku_name;
    uint32_t lku_value;
};

/* ---- what the daemon publishes and remembers -------------------------------------------------------- */

/* Writer: daemon, under mtr_seq (odd while writing). Sorted by the reader, not here. */
struct hf_shm_meter {
    uint64_t mtr_seq;    /* 0: unused */
    uint32_t mtr_tenant; /* names */
    uint32_t mtr_cap;
    uint32_t mtr_model; /* HF_SHM_NONE: explicit amounts */
    uint32_t mtr_pad;
    int64_t mtr_requests;
    int64_t mtr_failures;
    int64_t mtr_degraded;
    int64_t mtr_reserved_micros;
    int64_t mtr_settled_micros;
};
_Static_assert(sizeof(struct hf_shm_meter) == 64, "one line");

/* A batch on its way to the store, written before its transaction. Writer: daemon. */
#define HF_SHM_BATCH_ENTRIES 8192U
struct hf_shm_batch_entry {
    uint64_t bat_slot;      /* slot 24 | generation 20 | ordinal 11 */
    uint64_t bat_persisted; /* slot_persisted when it is committed */
    uint64_t bat_tokens;    /* slot_written_* when it is committed */
    uint64_t bat_cost;
    uint64_t bat_deadline;
    uint64_t bat_pad;
};
struct hf_shm_batch {
    uint64_t bat_number; /* 0: none. Stored last; cleared when its slots are marked */
    uint64_t bat_first_seq;
    uint64_t bat_rows_cnt;
    uint64_t bat_entries_cnt;
    uint8_t bat_before[32]; /* digest of the batch before */
    uint8_t bat_digest[32]; /* its own */
    struct hf_shm_batch_entry bat_entries[HF_SHM_BATCH_ENTRIES];
};

/* ---- packing --------------------------------------------------------------------------------------- */

static inline uint64_t hf_word_seq(struct hf_u128 w)
{
    return w.lo >> 20;
}
static inline uint32_t hf_word_kind(struct hf_u128 w)
{
    return (uint32_t)(w.lo >> 14) & 0x3fU;
}
static inline uint32_t hf_word_slot(struct hf_u128 w)
{
    return (uint32_t)((w.lo & 0xfU) << 20) | (uint32_t)(w.hi & 0xfffffU);
}
static inline uint64_t hf_word_time_ms(struct hf_u128 w)
{
    return w.hi >> 20;
}
static inline struct hf_u128 hf_word_make(uint64_t seq, enum hf_kind kind, uint32_t slot, uint64_t time_ms)
{
    return (struct hf_u128){.lo = seq << 20 | (uint64_t)kind << 14 | (slot >> 20 & 0xfU),
                            .hi = time_ms << 20 | (slot & 0xfffffU)};
}

static inline uint64_t hf_st_seq(struct hf_u128 st)
{
    return st.lo >> 20;
}
static inline uint32_t hf_st_ordinal(struct hf_u128 st)
{
    return (uint32_t)(st.lo >> 9) & 0x7ffU;
}
static inline enum hf_state hf_st_state(struct hf_u128 st)
{
    return (enum hf_state)((st.lo >> 4) & 0x1fU);
}
static inline uint64_t hf_st_time_ms(struct hf_u128 st)
{
    return st.hi >> 20;
}
static inline uint32_t hf_st_gen(struct hf_u128 st)
{
    return (uint32_t)st.hi & 0xfffffU;
}
static inline struct hf_u128 hf_st_make(uint64_t seq, uint32_t ordinal, enum hf_state state, uint64_t time_ms,
                                        uint32_t gen)
{
    return (struct hf_u128){.lo = seq << 20 | (uint64_t)(ordinal & 0x7ffU) << 9 | (uint64_t)state << 4,
                            .hi = time_ms << 20 | (gen & 0xfffffU)};
}

static inline uint64_t hf_bucket_value(struct hf_u128 b)
{
    return b.lo >> 8;
}
static inline uint32_t hf_bucket_window(struct hf_u128 b)
{
    return (uint32_t)((b.hi & 0xfffffU) << 8) | (uint32_t)(b.lo & 0xffU);
}
static inline uint64_t hf_bucket_tag(struct hf_u128 b)
{
    return b.hi >> 20;
}
static inline struct hf_u128 hf_bucket_make(uint64_t value, uint32_t window, uint64_t tag)
{
    return (struct hf_u128){.lo = value << 8 | (window & 0xffU), .hi = tag << 20 | (window >> 8 & 0xfffffU)};
}

static inline uint32_t hf_link_slot(uint64_t link)
{
    return (uint32_t)(link >> 40);
}
static inline uint32_t hf_link_gen(uint64_t link)
{
    return (uint32_t)(link >> 20) & 0xfffffU;
}
static inline uint32_t hf_link_count(uint64_t link)
{
    return (uint32_t)link >> 12 & 0xffU;
}
/* Slot numbers in links are one higher than in the array, so that 0 is "none". */
static inline uint64_t hf_link_make(uint32_t slot_plus_1, uint32_t gen, uint32_t count)
{
    return (uint64_t)slot_plus_1 << 40 | (uint64_t)(gen & 0xfffffU) << 20 | (count & 0xffU) << 12;
}
/* A head as it goes on in slot_next: without its count. */
static inline uint64_t hf_link_inner(uint64_t head)
{
    return head & ~0xff000ULL;
}
/* A link that hf_link_make() made, saying that no other follows it, with the bits of its id's hash that tell ids apart. */
#define HF_LINK_LAST 0x800U
static inline uint64_t hf_link_last(uint64_t link, uint32_t hash)
{
    return link | HF_LINK_LAST | hash >> 21;
}
/* The head that puts a slot, the id of which has this hash, over an old head. */
static inline uint64_t hf_link_over(uint64_t head, uint32_t slot_plus_1, uint32_t gen, uint32_t hash)
{
    uint64_t link = hf_link_make(slot_plus_1, gen, hf_link_count(head) + 1U);

    return hf_link_slot(head) == 0 ? hf_link_last(link, hash) : link;
}
/* True when an id of this hash is neither in the slot that the link names nor behind it: neither need be looked at. Of a link that
 * names a slot of the segment, or none; of another one it is no proof. */
static inline bool hf_link_excludes(uint64_t link, uint32_t hash)
{
    return hf_link_slot(link) == 0 || ((link & HF_LINK_LAST) != 0 && ((link ^ hash >> 21) & 0x7ffU) != 0);
}

static inline uint64_t hf_persisted_make(uint32_t gen, uint32_t ordinal, uint32_t receipts)
{
    return (uint64_t)(gen & 0xfffffU) << 44 | (uint64_t)(ordinal & 0x7ffU) << 33 | receipts;
}
static inline uint32_t hf_persisted_gen(uint64_t p)
{
    return (uint32_t)(p >> 44);
}
static inline uint32_t hf_persisted_ordinal(uint64_t p)
{
    return (uint32_t)(p >> 33) & 0x7ffU;
}
static inline uint32_t hf_persisted_receipts(uint64_t p)
{
    return (uint32_t)p;
}

static inline uint64_t hf_ref_make(uint32_t index, uint64_t epoch)
{
    return (uint64_t)index << 48 | (epoch & 0xffffffffffffULL);
}
static inline uint32_t hf_ref_index(uint64_t ref)
{
    return (uint32_t)(ref >> 48);
}
static inline uint64_t hf_ref_epoch(uint64_t ref)
{
    return ref & 0xffffffffffffULL;
}

/* Fingerprint of every name, offset and size above; two builds that differ refuse each other. */
uint64_t hf_layout_fingerprint(void);

/* One line of the layout table; iterate i from 0 until false. For the golden test and `holdfast`. */
struct hf_layout_entry {
    const char *record;
    const char *field;
    uint32_t off;
    uint32_t size_bytes;
};
bool hf_layout_entry(uint32_t i, struct hf_layout_entry *entry);

#endif
