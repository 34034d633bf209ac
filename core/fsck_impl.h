/* What the files of fsck share among themselves; nobody else includes it. */
#ifndef HF_CORE_FSCK_IMPL_H
#define HF_CORE_FSCK_IMPL_H

#include "core/fsck.h"
#include "core/terms.h"
#include "core/window.h"

#define HF_FSCK_ITEMS_MAX 4096U /* of one look; that there are more is said */

/* A reservation's part in the sums: what it counts in its buckets that is not published yet. */
struct hf_fsck_part {
    uint32_t slot_idx;
    uint32_t rows[HF_SHM_LAYERS];
    uint32_t windows[HF_SHM_WINDOWS];
    uint64_t mask;
    int64_t change[HF_SHM_DIMS];
};

struct hf_fsck {
    struct hf_segment *seg; /* not written but by repair */
    struct hf_fsck_options options;
    hf_fsck_report_fn *report;
    void *ctx;
    struct hf_fsck_result *result;
    struct hf_fsck_item *items; /* of this look */
    uint32_t items_cnt;
    struct hf_fsck_item *before; /* what every look so far has found */
    uint32_t before_cnt;
    bool overflowed; /* some look found more than there is room for */
    uint32_t look;   /* 0, 1, ... */
    bool repairing;  /* this is the repair itself, and its state is no finding */
    uint64_t now_ms;
    uint32_t windows[HF_SHM_WINDOWS]; /* of now_ms */
    uint32_t *linked;                 /* per slot: generation + 1 under which a chain holds it; 0: none */
    /* Rows of each tenant: row_list[row_first[t]] up to row_list[row_first[t + 1]]. */
    uint32_t *row_first;
    uint32_t *row_list;
    uint32_t *row_place; /* of a row within its tenant's */
};

/* ---- items (fsck.c) --------------------------------------------------------------------------------------- */

/* An item of this look, at nowhere. NULL when the list is full. */
struct hf_fsck_item *hf_fsck_add(struct hf_fsck *fsck, enum hf_fsck_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The item's numbers, for items that have them. item may be NULL. */
void hf_fsck_numbers(struct hf_fsck_item *item, uint64_t expected, uint64_t found);

/* Goes straight to the caller: already confirmed. */
void hf_fsck_say(struct hf_fsck *fsck, const struct hf_fsck_item *item);

/* A clean item of a kind, to be filled. */
struct hf_fsck_item hf_fsck_item(enum hf_fsck_kind kind, enum hf_fsck_severity severity);

/* Allocates; false without memory. hf_fsck_close() in any case. */
bool hf_fsck_open(struct hf_fsck *fsck);
void hf_fsck_close(struct hf_fsck *fsck);

/* Begins a look: no items yet, the windows of now. */
void hf_fsck_begin_look(struct hf_fsck *fsck);

/* The looks: structure, confirmed; reports. */
void hf_fsck_looks(struct hf_fsck *fsck);

/* ---- one look ------------------------------------------------------------------------------------------------ */

void hf_fsck_check_header(struct hf_fsck *fsck);  /* fsck_header.c: header, clock, owners, daemon */
void hf_fsck_check_tables(struct hf_fsck *fsck);  /* fsck_tables.c: names, prices, policy, lookup */
void hf_fsck_check_daemon(struct hf_fsck *fsck);  /* fsck_daemon.c: published, meters, batches */
void hf_fsck_check_tenants(struct hf_fsck *fsck); /* fsck_tenant.c: tenants, rows, buckets, credits */
void hf_fsck_check_slots(struct hf_fsck *fsck);   /* fsck_slot.c: chunks and slots */
void hf_fsck_check_index(struct hf_fsck *fsck); /* fsck_index.c: chains; before the slots of the same look */

/* The link by which the chain of that hash holds the slot now; 0: it does not. */
uint64_t hf_fsck_link_to(const struct hf_segment *seg, uint32_t slot_idx, uint32_t hash);

/* ---- shared -------------------------------------------------------------------------------------------------- */

/* Copies a slot that stood still meanwhile (fsck_slot.c). False when it would not. */
bool hf_fsck_copy_slot(const struct hf_segment *seg, uint32_t slot_idx, struct hf_u128 *st,
                       struct hf_shm_slot *copy);

/* Final, all receipts committed: nothing of it is missing in what is published. */
bool hf_fsck_is_written(const struct hf_shm_slot *copy, struct hf_u128 st);

/* HELD up to RESOLVED: it may count in buckets. */
static inline bool hf_fsck_counts(struct hf_u128 st)
{
    return hf_st_state(st) >= HF_STATE_HELD && hf_st_state(st) <= HF_STATE_RESOLVED;
}

/* What the slot counts and what of it is published already, as the difference (fsck_part.c). */
void hf_fsck_part_of(const struct hf_shm_slot *copy, uint32_t slot_idx, struct hf_u128 st,
                     struct hf_fsck_part *part);

/* One bucket of a tenant at the instant of its sums. */
struct hf_fsck_sum {
    uint32_t row;
    uint32_t window;
    uint32_t dimension;
    uint32_t window_id; /* of now */
    uint64_t expected;
    uint64_t found; /* what the word says for that window */
    uint64_t published;
    struct hf_u128 word;
};
typedef void hf_fsck_sum_fn(void *ctx, const struct hf_fsck_sum *sum);

/* Sums of the tenant of the options, or of all: compared, confirmed, reported (fsck_compare.c). False without memory. */
bool hf_fsck_check_sums(struct hf_fsck *fsck);

/* One exact look at the sums of a tenant (fsck_sums.c, fsck_instant.c): each bucket is handed to fn, and valid during the call. HF_OK, or why not: HF_EBUSY no
 * instant could be had, HF_ENOTREADY the daemon's publications are in the making, HF_ECORRUPT W names what cannot be
 * applied, HF_ESYS no memory. */
int hf_fsck_take_sums(struct hf_fsck *fsck, uint32_t tenant_idx, hf_fsck_sum_fn *fn, void *ctx);

/* No batch is half marked: hdr_batch_number is still number, and the marks of the next one have not begun. */
bool hf_fsck_between_batches(const struct hf_segment *seg, uint64_t number);

/* W names no impossible thing: the slot and operation it names can be (fsck_tenant.c). */
bool hf_fsck_word_sound(const struct hf_segment *seg, uint32_t tenant_idx, struct hf_u128 word);

/* A tenant that is in use: it has a generation of limits. */
bool hf_fsck_tenant_used(const struct hf_segment *seg, uint32_t tenant_idx);

/* Sleeps; 0: returns at once. */
void hf_fsck_nap(uint32_t ms);

#endif
