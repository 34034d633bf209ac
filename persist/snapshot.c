#include "persist/snapshot.h"

#include "core/lookup.h"
#include "core/price.h"
#include "core/window.h"
#include "shm/clock.h"
#include "shm/commit.h"

#include <string.h>

#define SNAPSHOT_TRIES 64U

_Static_assert(sizeof(struct hf_shm_slot) % 8 == 0, "a slot is copied word by word");

int hf_snapshot_take(const struct hf_segment *seg, uint32_t slot_idx, struct hf_snapshot *snap)
{
    const struct hf_shm_slot *slot = &seg->slots[slot_idx];
    const uint64_t *from = (const uint64_t *)(const void *)slot;
    uint64_t words[sizeof(struct hf_shm_slot) / 8];

    snap->slot_idx = slot_idx;
    for (uint32_t try = 0; try < SNAPSHOT_TRIES; try++) {
        snap->st = hf_commit_read_st(slot); /* E13 */
        for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
            words[i] = hf_load_rlx_u64(&from[i]); /* relaxed: after E13, and checked again below */
        }
        /* E16 acquire fence -> hf_slot_begin: who saw a field of the next life sees its generation too. */
        hf_fence_acq();
        struct hf_u128 again = hf_commit_read_st(slot); /* E13 */
        if (again.lo == snap->st.lo && again.hi == snap->st.hi) {
            memcpy(&snap->slot, words, sizeof(words));
            snap->persisted = snap->slot.slot_persisted;
            return HF_OK;
        }
        hf_pause();
    }
    return HF_EBUSY;
}

bool hf_snapshot_final(enum hf_state state)
{
    switch (state) {
    case HF_STATE_SETTLED:
    case HF_STATE_RELEASED:
    case HF_STATE_EXPIRED:
    case HF_STATE_RETAINED:
    case HF_STATE_DISPUTED:
    case HF_STATE_LATE:
    case HF_STATE_RESOLVED:
    case HF_STATE_CREDIT:
        return true;
    default:
        return false;
    }
}

/* Marks that must stand when nothing is owed; 0: a state of which no receipts are made. */
static uint32_t wanted(enum hf_state state)
{
    switch (state) {
    case HF_STATE_HELD:
    case HF_STATE_DISPATCHED:
        return HF_PERSISTED_RESERVATION;
    case HF_STATE_EXPIRED:
    case HF_STATE_RETAINED:
        return HF_PERSISTED_RESERVATION | HF_PERSISTED_EXPIRY;
    case HF_STATE_SETTLED:
    case HF_STATE_RELEASED:
    case HF_STATE_DISPUTED:
    case HF_STATE_LATE:
        return HF_PERSISTED_RESERVATION | HF_PERSISTED_CLOSING;
    case HF_STATE_CREDIT:
        return HF_PERSISTED_CLOSING;
    default:
        return 0;
    }
}

bool hf_snapshot_written(struct hf_u128 st, uint64_t persisted)
{
    uint32_t bits = wanted(hf_st_state(st));

    if (bits == 0) {
        return true;
    }
    return hf_persisted_gen(persisted) == hf_st_gen(st) &&
           hf_persisted_ordinal(persisted) == hf_st_ordinal(st) &&
           (hf_persisted_receipts(persisted) & bits) == bits;
}

/* Marks that stand for this generation. */
static uint32_t marks(const struct hf_snapshot *snap)
{
    return hf_persisted_gen(snap->persisted) == hf_st_gen(snap->st) ? hf_persisted_receipts(snap->persisted)
                                                                    : 0;
}

static const struct hf_shm_hold *current(const struct hf_snapshot *snap)
{
    return &snap->slot.slot_holds[hf_st_ordinal(snap->st) & 1U];
}

static bool was_expired(const struct hf_snapshot *snap)
{
    enum hf_state state = hf_st_state(snap->st);

    return (state == HF_STATE_LATE || state == HF_STATE_DISPUTED) &&
           (snap->slot.slot_close & (HF_CLOSE_WAS_EXPIRED | HF_CLOSE_WAS_RETAINED)) != 0;
}

/* Totals of the newest receipt: the reservation's, until one was written. */
static struct hf_shm_hold written(const struct hf_snapshot *snap)
{
    const struct hf_shm_slot *slot = &snap->slot;

    if ((marks(snap) & HF_PERSISTED_RESERVATION) != 0) {
        return (struct hf_shm_hold){.hold_tokens = slot->slot_written_tokens,
                                    .hold_cost = slot->slot_written_cost,
                                    .hold_deadline = slot->slot_written_deadline};
    }
    /* The deadline of the first hold is not kept: with an ordinal above 0 it is one that was moved, or may have been. */
    return (struct hf_shm_hold){.hold_tokens = slot->slot_first_tokens,
                                .hold_cost = slot->slot_first_cost,
                                .hold_deadline =
                                    hf_st_ordinal(snap->st) == 0 ? current(snap)->hold_deadline : HF_UNKNOWN};
}

static bool extended(const struct hf_snapshot *snap)
{
    const struct hf_shm_hold *now = current(snap);
    struct hf_shm_hold before = written(snap);
    uint32_t ordinal =
        (marks(snap) & HF_PERSISTED_RESERVATION) != 0 ? hf_persisted_ordinal(snap->persisted) : 0;

    return hf_st_ordinal(snap->st) != ordinal || now->hold_tokens != before.hold_tokens ||
           now->hold_cost != before.hold_cost || now->hold_deadline != before.hold_deadline;
}

uint32_t hf_snapshot_owes(const struct hf_snapshot *snap)
{
    enum hf_state state = hf_st_state(snap->st);
    uint32_t want = wanted(state);
    uint32_t there = marks(snap);
    uint32_t owes = 0;

    if (state == HF_STATE_CREDIT) {
        return (there & HF_PERSISTED_CLOSING) != 0 ? 0 : HF_OWES_CREDIT;
    }
    if (want == 0) {
        return 0;
    }
    if ((there & HF_PERSISTED_RESERVATION) == 0) {
        owes |= HF_OWES_RESERVATION;
    }
    /* What ended an open hold took its totals along: no extension comes after an expiry or a closing. */
    if ((there & (HF_PERSISTED_EXPIRY | HF_PERSISTED_CLOSING)) == 0 && extended(snap)) {
        owes |= HF_OWES_EXTENSION;
    }
    if (((want & HF_PERSISTED_EXPIRY) != 0 || was_expired(snap)) && (there & HF_PERSISTED_EXPIRY) == 0) {
        owes |= HF_OWES_EXPIRY;
    }
    if ((want & HF_PERSISTED_CLOSING) != 0 && (there & HF_PERSISTED_CLOSING) == 0) {
        owes |= HF_OWES_CLOSING;
    }
    return owes;
}

void hf_snapshot_mark(const struct hf_snapshot *snap, struct hf_shm_batch_entry *entry)
{
    const struct hf_shm_hold *now = current(snap);
    uint32_t bits =
        marks(snap) | wanted(hf_st_state(snap->st)) | (was_expired(snap) ? HF_PERSISTED_EXPIRY : 0);

    *entry = (struct hf_shm_batch_entry){
        .bat_slot = hf_persisted_make(hf_st_gen(snap->st), hf_st_ordinal(snap->st), 0) | snap->slot_idx,
        .bat_persisted = hf_persisted_make(hf_st_gen(snap->st), hf_st_ordinal(snap->st), bits),
        .bat_tokens = now->hold_tokens,
        .bat_cost = now->hold_cost,
        .bat_deadline = now->hold_deadline};
}

/* ---- receipts ------------------------------------------------------------------------------------------------ */

static bool name_of(const struct hf_segment *seg, uint32_t name, struct hf_name *out)
{
    char text[64];
    uint32_t bytes = hf_lookup_name(seg, name, text);

    return hf_name_set(out, text, bytes);
}

bool hf_snapshot_names(const struct hf_segment *seg, const struct hf_shm_slot *slot, struct hf_name *tenant,
                       struct hf_name *team, struct hf_name *key)
{
    const struct hf_shm_tenant *ten = hf_segment_tenant(seg, slot->slot_tenant);
    const struct hf_shm_row *team_row = hf_segment_row(seg, slot->slot_rows[1]);
    const struct hf_shm_row *key_row = hf_segment_row(seg, slot->slot_rows[0]);

    return ten != NULL && team_row != NULL && name_of(seg, ten->ten_name, tenant) &&
           name_of(seg, team_row->row_name, team) &&
           (slot->slot_rows[0] == HF_SHM_NONE || (key_row != NULL && name_of(seg, key_row->row_name, key)));
}

static bool amount_or_unknown(uint64_t amount)
{
    return amount <= HF_AMOUNT_MAX || amount == HF_UNKNOWN;
}

/* A held amount as a signed effect: what was never held counts nothing. */
static int64_t effect(uint64_t amount)
{
    return amount == HF_UNKNOWN ? 0 : (int64_t)amount;
}

/* The price a reservation was made under: the economy model's when degraded. */
static uint32_t price_in_force(const struct hf_shm_slot *slot)
{
    return (slot->slot_flags & HF_SLOT_DEGRADED) != 0 && (slot->slot_flags & HF_SLOT_FORM_MODEL) != 0
               ? slot->slot_economy
               : slot->slot_model;
}

static bool model_name(const struct hf_segment *seg, uint32_t price_idx, struct hf_name *out)
{
    struct hf_price price;
    uint32_t model;

    return price_idx == HF_SHM_NONE ||
           (hf_lookup_price(seg, price_idx, &price, &model) && name_of(seg, model, out));
}

/* Whether the call was dispatched, as far as the state tells; -1: it does not. */
static int8_t dispatched(const struct hf_snapshot *snap)
{
    enum hf_state state = hf_st_state(snap->st);
    bool by_dispatch = (snap->slot.slot_flags & HF_SLOT_EXPIRY_MASK) == HF_ON_EXPIRY_RETAIN_DISPATCHED;

    if (state == HF_STATE_DISPATCHED) {
        return 1;
    }
    if (state == HF_STATE_HELD || state == HF_STATE_RELEASED) {
        return 0;
    }
    if (by_dispatch && (state == HF_STATE_RETAINED ||
                        (was_expired(snap) && (snap->slot.slot_close & HF_CLOSE_WAS_RETAINED) != 0))) {
        return 1;
    }
    if (by_dispatch && (state == HF_STATE_EXPIRED || was_expired(snap))) {
        return 0;
    }
    return -1;
}

/* What every row of a reservation says; holds and deadline are those of now. False: damaged. */
static bool family(const struct hf_segment *seg, const struct hf_snapshot *snap,
                   const struct hf_snapshot_known *known, enum hf_receipt_kind kind, struct hf_receipt *row)
{
    const struct hf_shm_slot *slot = &snap->slot;
    const struct hf_shm_hold *now = current(snap);

    hf_receipt_init(row, kind);
    row->epoch = seg->header->hdr_epoch;
    row->window_ms = slot->slot_reserved_ms;
    row->bucket_mask = slot->slot_mask & ((1ULL << HF_SHM_PATH_BUCKETS) - 1);
    row->hold_tokens = now->hold_tokens;
    row->hold_cost_micros = now->hold_cost;
    row->expires_at_ms = hf_st_ordinal(snap->st) == 0 ? slot->slot_first_expires_ms
                                                      : hf_clock_forecast_ms(seg, now->hold_deadline);
    row->dispatched = dispatched(snap);
    row->admission = (slot->slot_flags & HF_SLOT_DEGRADED) != 0 ? HF_ADMISSION_DEGRADE : HF_ADMISSION_ALLOW;
    row->on_expiry = (int8_t)(slot->slot_flags & HF_SLOT_EXPIRY_MASK);
    row->on_overage =
        (slot->slot_flags & HF_SLOT_OVERAGE_FAIL) != 0 ? HF_ON_OVERAGE_FAIL : HF_ON_OVERAGE_RECORD;
    if (kind != HF_RECEIPT_RESERVATION) {
        row->reservation_seq = known->reservation_seq;
        if (known->reservation_seq != HF_UNKNOWN) {
            memcpy(row->reservation_digest, known->reservation_digest, HF_DIGEST_BYTES);
            row->conflict = (marks(snap) & HF_PERSISTED_CONFLICT) != 0;
        }
    }
    return row->on_expiry <= (int8_t)HF_ON_EXPIRY_RETAIN_DISPATCHED && amount_or_unknown(now->hold_tokens) &&
           amount_or_unknown(now->hold_cost) && row->window_ms <= HF_CLOCK_MS_MAX &&
           hf_name_set(&row->id, slot->slot_id,
                       slot->slot_id_bytes <= HF_NAME_BYTES_MAX ? slot->slot_id_bytes : 0) &&
           hf_snapshot_names(seg, slot, &row->tenant, &row->team, &row->key) &&
           name_of(seg, slot->slot_cap, &row->capability) &&
           model_name(seg, price_in_force(slot), &row->model);
}

static void put_request(const struct hf_shm_slot *slot, struct hf_receipt *row)
{
    uint32_t flags = slot->slot_flags;
    bool by_model = (flags & HF_SLOT_FORM_MODEL) != 0;
    uint64_t in1 = (flags & HF_SLOT_HAS_IN1) != 0 ? slot->slot_in1 : HF_UNKNOWN;
    uint64_t in2 = (flags & HF_SLOT_HAS_IN2) != 0 ? slot->slot_in2 : HF_UNKNOWN;

    row->form = by_model ? HF_FORM_MODEL : HF_FORM_AMOUNTS;
    row->input_tokens = by_model ? in1 : HF_UNKNOWN;
    row->max_output_tokens = by_model ? in2 : HF_UNKNOWN;
    row->requested_tokens = by_model ? HF_UNKNOWN : in1;
    row->requested_cost_micros = by_model ? HF_UNKNOWN : in2;
    row->economy_tokens = (flags & HF_SLOT_HAS_ECO1) != 0 ? slot->slot_eco1 : HF_UNKNOWN;
    row->economy_cost_micros = (flags & HF_SLOT_HAS_ECO2) != 0 ? slot->slot_eco2 : HF_UNKNOWN;
    row->requested_ttl_ms = (flags & HF_SLOT_HAS_TTL) != 0 ? slot->slot_ttl_ms : HF_UNKNOWN;
    row->basis = (flags & HF_SLOT_BASIS_CAP) != 0 ? HF_BASIS_CAP : HF_BASIS_ESTIMATE;
}

/* Prices in force, and the models that were named. */
static bool put_models(const struct hf_segment *seg, const struct hf_shm_slot *slot, struct hf_receipt *row)
{
    uint32_t idx = price_in_force(slot);
    struct hf_price price;
    uint32_t model;

    if (slot->slot_economy != HF_SHM_NONE && !model_name(seg, slot->slot_economy, &row->economy_model)) {
        return false;
    }
    if (idx != slot->slot_model && !model_name(seg, slot->slot_model, &row->model_asked)) {
        return false;
    }
    if (idx == HF_SHM_NONE) {
        return true;
    }
    if (!hf_lookup_price(seg, idx, &price, &model)) {
        return false;
    }
    row->input_micros_per_mtok = price.input;
    row->output_micros_per_mtok = price.output;
    row->cached_input_micros_per_mtok = price.cached_input;
    row->cache_write_input_micros_per_mtok = price.cache_write;
    row->model_max_output_tokens = price.max_output_tokens;
    return name_of(seg, seg->prices[idx].prc_revision, &row->price_revision);
}

/* The limits that were in force, by the generation of the policy under which it was admitted. */
static void put_limits(const struct hf_segment *seg, const struct hf_shm_slot *slot, struct hf_receipt *row)
{
    const struct hf_shm_policy *policy = hf_lookup_policy(seg, slot->slot_policy_gen);

    for (uint64_t mask = row->bucket_mask; policy != NULL && mask != 0; mask &= mask - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(mask);
        uint32_t in_row = bit % HF_SHM_ROW_BUCKETS;
        const struct hf_shm_row_policy *rules =
            hf_lookup_row(seg, policy, slot->slot_rows[bit / HF_SHM_ROW_BUCKETS]);

        if (rules != NULL) {
            row->limits[bit] = rules->rpl_limits[in_row / HF_SHM_DIMS][in_row % HF_SHM_DIMS];
        }
    }
    for (uint32_t i = 0; i < HF_SHM_WINDOWS; i++) {
        row->credits[i] = (slot->slot_flags & HF_SLOT_CREDITS) != 0 ? slot->slot_credits[i] : 0;
    }
    if (policy != NULL) {
        (void)name_of(seg, policy->pol_currency, &row->currency);
        if (row->price_revision.len == 0) {
            (void)name_of(seg, policy->pol_price_revision, &row->price_revision);
        }
    }
}

static bool put_reservation(const struct hf_segment *seg, const struct hf_snapshot *snap,
                            const struct hf_snapshot_known *known, struct hf_receipt *row)
{
    const struct hf_shm_slot *slot = &snap->slot;

    row->made_ms = slot->slot_reserved_ms;
    row->expires_at_ms = slot->slot_first_expires_ms;
    row->hold_tokens = slot->slot_first_tokens;
    row->hold_cost_micros = slot->slot_first_cost;
    row->held_invocations = 1;
    row->held_tokens = effect(slot->slot_first_tokens);
    row->held_cost_micros = effect(slot->slot_first_cost);
    row->policy_revision = known->policy_revision;
    put_request(slot, row);
    if (!put_models(seg, slot, row)) {
        return false;
    }
    put_limits(seg, slot, row);
    return amount_or_unknown(slot->slot_first_tokens) && amount_or_unknown(slot->slot_first_cost);
}

static bool put_extension(const struct hf_snapshot *snap, struct hf_receipt *row)
{
    const struct hf_shm_hold *now = current(snap);
    struct hf_shm_hold before = written(snap);
    uint32_t ordinal =
        (marks(snap) & HF_PERSISTED_RESERVATION) != 0 ? hf_persisted_ordinal(snap->persisted) : 0;
    uint32_t calls = (hf_st_ordinal(snap->st) - ordinal) & 0x7ffU;

    if (!amount_or_unknown(before.hold_tokens) || !amount_or_unknown(before.hold_cost)) {
        return false;
    }
    row->made_ms = now->hold_time_ms;
    row->held_tokens = effect(now->hold_tokens) - effect(before.hold_tokens);
    row->held_cost_micros = effect(now->hold_cost) - effect(before.hold_cost);
    row->extend_calls =
        calls == 0 ? 0x800U : calls; /* the same ordinal with other totals: it has come round */
    return true;
}

static void end_hold(const struct hf_snapshot *snap, struct hf_receipt *row)
{
    row->held_invocations = -1;
    row->held_tokens = -effect(current(snap)->hold_tokens);
    row->held_cost_micros = -effect(current(snap)->hold_cost);
}

static void charge_hold(const struct hf_snapshot *snap, struct hf_receipt *row)
{
    row->charged_tokens = effect(current(snap)->hold_tokens);
    row->charged_cost_micros = effect(current(snap)->hold_cost);
}

static void put_expiry(const struct hf_snapshot *snap, struct hf_receipt *row)
{
    enum hf_state state = hf_st_state(snap->st);

    row->made_ms = state == HF_STATE_EXPIRED || state == HF_STATE_RETAINED ? hf_st_time_ms(snap->st)
                                                                           : snap->slot.slot_expired_ms;
    row->late = 0;
    end_hold(snap, row);
    row->charged_invocations = 1;
    if (row->kind == HF_RECEIPT_RETENTION) {
        charge_hold(snap, row);
    }
}

/* Released and overage of one dimension against its hold. */
static void compare(uint64_t hold, uint64_t actual, uint64_t *released, uint64_t *overage)
{
    if (hold == HF_UNKNOWN) {
        return;
    }
    *released = actual != HF_UNKNOWN && actual < hold ? hold - actual : 0;
    *overage = actual != HF_UNKNOWN && actual > hold ? actual - hold : 0;
}

/* What a settle was told and what came of it. */
static bool put_usage(const struct hf_snapshot *snap, struct hf_receipt *row)
{
    const struct hf_shm_slot *slot = &snap->slot;
    uint32_t close = slot->slot_close;
    uint32_t source = close & HF_CLOSE_SOURCE_MASK;

    row->usage_known = (close & HF_CLOSE_USAGE) != 0;
    row->actual_tokens = slot->slot_actual_tokens;
    row->actual_cost_micros = slot->slot_actual_cost;
    if (row->usage_known == 1) {
        if (slot->slot_actual_tokens > HF_AMOUNT_MAX || slot->slot_usage_input > slot->slot_actual_tokens) {
            return false;
        }
        row->usage_input_tokens = slot->slot_usage_input;
        row->usage_output_tokens = slot->slot_actual_tokens - slot->slot_usage_input;
        row->usage_cached_input_tokens =
            (close & HF_CLOSE_HAS_CACHED) != 0 ? slot->slot_usage_cached : HF_UNKNOWN;
        row->usage_cache_write_input_tokens =
            (close & HF_CLOSE_HAS_CACHE_WRITE) != 0 ? slot->slot_usage_cache_write : HF_UNKNOWN;
        row->usage_cost_micros = source == HF_CLOSE_SOURCE_PROVIDER ? slot->slot_actual_cost : HF_UNKNOWN;
    }
    row->cost_source = source == HF_CLOSE_SOURCE_PROVIDER  ? HF_COST_PROVIDER
                       : source == HF_CLOSE_SOURCE_DERIVED ? HF_COST_DERIVED
                                                           : HF_COST_UNKNOWN;
    row->outcome = (close & HF_CLOSE_FAILURE) != 0 ? HF_OUTCOME_FAILURE : HF_OUTCOME_SUCCESS;
    row->quota_exceeded = (close & HF_CLOSE_QUOTA_EXCEEDED) != 0;
    compare(row->hold_tokens, row->actual_tokens, &row->released_tokens, &row->overage_tokens);
    compare(row->hold_cost_micros, row->actual_cost_micros, &row->released_cost_micros,
            &row->overage_cost_micros);
    if ((close & HF_CLOSE_REF) != 0 &&
        !hf_name_set(&row->ref, slot->slot_ref,
                     slot->slot_ref_bytes <= HF_NAME_BYTES_MAX ? slot->slot_ref_bytes : 0)) {
        return false;
    }
    return amount_or_unknown(row->actual_tokens) && amount_or_unknown(row->actual_cost_micros);
}

/* Charges what was used; where nobody knows, what was held. */
static void charge_actual(const struct hf_snapshot *snap, struct hf_receipt *row)
{
    const struct hf_shm_hold *now = current(snap);

    row->charged_tokens = effect(row->actual_tokens == HF_UNKNOWN ? now->hold_tokens : row->actual_tokens);
    row->charged_cost_micros =
        effect(row->actual_cost_micros == HF_UNKNOWN ? now->hold_cost : row->actual_cost_micros);
}

static bool put_closing(const struct hf_snapshot *snap, struct hf_receipt *row)
{
    bool late = was_expired(snap);
    bool retained = late && (snap->slot.slot_close & HF_CLOSE_WAS_RETAINED) != 0;

    row->made_ms = hf_st_time_ms(snap->st);
    row->late = late;
    if (!late) {
        end_hold(snap, row);
    }
    if (row->kind == HF_RECEIPT_RELEASE) {
        return true;
    }
    if (!put_usage(snap, row)) {
        return false;
    }
    row->charged_invocations = !late;
    if (row->kind == HF_RECEIPT_DISPUTE) {
        if (!retained) {
            charge_hold(snap, row);
        }
        return true;
    }
    charge_actual(snap, row);
    if (retained) {
        row->charged_tokens -= effect(current(snap)->hold_tokens);
        row->charged_cost_micros -= effect(current(snap)->hold_cost);
    }
    return true;
}

static enum hf_receipt_kind closing_kind(enum hf_state state)
{
    switch (state) {
    case HF_STATE_RELEASED:
        return HF_RECEIPT_RELEASE;
    case HF_STATE_DISPUTED:
        return HF_RECEIPT_DISPUTE;
    case HF_STATE_LATE:
        return HF_RECEIPT_LATE;
    default:
        return HF_RECEIPT_SETTLEMENT;
    }
}

static enum hf_receipt_kind expiry_kind(const struct hf_snapshot *snap)
{
    enum hf_state state = hf_st_state(snap->st);
    bool retained = state == HF_STATE_RETAINED ||
                    (was_expired(snap) && (snap->slot.slot_close & HF_CLOSE_WAS_RETAINED) != 0);

    return retained ? HF_RECEIPT_RETENTION : HF_RECEIPT_EXPIRY;
}

static size_t put_credit(const struct hf_segment *seg, const struct hf_snapshot *snap, struct hf_receipt *row)
{
    const struct hf_shm_credit_note *note =
        (const struct hf_shm_credit_note *)(const void *)((const uint8_t *)&snap->slot + HF_SHM_CREDIT_OFF);
    struct hf_name none;
    struct hf_shm_slot path = snap->slot;

    hf_receipt_init(row, HF_RECEIPT_CREDIT);
    path.slot_rows[0] = HF_SHM_NONE;
    if (note->crd_window >= HF_WINDOW_CNT || note->crd_reason[sizeof(note->crd_reason) - 1] != '\0' ||
        hf_st_time_ms(snap->st) > HF_CLOCK_MS_MAX ||
        !hf_snapshot_names(seg, &path, &row->tenant, &row->team, &none) ||
        (note->crd_by_bytes != 0 && !hf_name_set(&row->made_by, note->crd_by, note->crd_by_bytes))) {
        return 0;
    }
    enum hf_window window = (enum hf_window)note->crd_window;
    row->epoch = seg->header->hdr_epoch;
    row->made_ms = hf_st_time_ms(snap->st);
    row->window_ms = hf_window_id(window, row->made_ms) == note->crd_window_id
                         ? row->made_ms
                         : hf_window_start_ms(window, note->crd_window_id);
    row->credit_micros = note->crd_micros;
    row->credit_before_micros = note->crd_before;
    row->credit_after_micros = note->crd_after;
    row->credit_window = (int8_t)window;
    row->reason = note->crd_reason;
    return 1;
}

size_t hf_snapshot_receipts(const struct hf_segment *seg, const struct hf_snapshot *snap, uint32_t owes,
                            const struct hf_snapshot_known *known, struct hf_receipt *rows)
{
    enum hf_state state = hf_st_state(snap->st);
    size_t cnt = 0;
    bool sound = true;

    if (owes == HF_OWES_CREDIT) {
        return put_credit(seg, snap, rows);
    }
    if ((owes & HF_OWES_RESERVATION) != 0) {
        sound = family(seg, snap, known, HF_RECEIPT_RESERVATION, &rows[cnt]) &&
                put_reservation(seg, snap, known, &rows[cnt]);
        cnt++;
    }
    if (sound && (owes & HF_OWES_EXTENSION) != 0) {
        sound = family(seg, snap, known, HF_RECEIPT_EXTENSION, &rows[cnt]) && put_extension(snap, &rows[cnt]);
        cnt++;
    }
    if (sound && (owes & HF_OWES_EXPIRY) != 0) {
        sound = family(seg, snap, known, expiry_kind(snap), &rows[cnt]);
        if (sound) {
            put_expiry(snap, &rows[cnt]);
        }
        cnt++;
    }
    if (sound && (owes & HF_OWES_CLOSING) != 0) {
        sound = family(seg, snap, known, closing_kind(state), &rows[cnt]) && put_closing(snap, &rows[cnt]);
        cnt++;
    }
    return sound ? cnt : 0;
}
