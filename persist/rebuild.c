#include "persist/rebuild.h"

#include "core/lookup.h"
#include "core/policy_compile.h"
#include "core/price.h"
#include "core/window.h"
#include "persist/publish.h"
#include "persist/rows.h"
#include "shm/chunk.h"
#include "shm/index.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* relaxed everywhere below: the segment is new, and nobody else sees it. */

#define FIRST_GEN 1U /* of every slot that is filled here */

/* ---- survey --------------------------------------------------------------------------------------------------- */

/* A set of hashes: counts what is different. Two texts of one hash count once; the plan has room to spare. */
struct set {
    uint64_t *hashes;
    uint64_t mask;
    uint64_t cnt;
    bool failed;
};

static void set_grow(struct set *set)
{
    uint64_t places = set->mask == 0 ? 256 : 2 * (set->mask + 1);
    uint64_t *hashes = calloc(places, sizeof(*hashes));

    if (hashes == NULL) {
        set->failed = true;
        return;
    }
    for (uint64_t i = 0; set->hashes != NULL && i <= set->mask; i++) {
        uint64_t at = set->hashes[i] & (places - 1);

        while (set->hashes[i] != 0 && hashes[at] != 0) {
            at = (at + 1) & (places - 1);
        }
        if (set->hashes[i] != 0) {
            hashes[at] = set->hashes[i];
        }
    }
    free(set->hashes);
    set->hashes = hashes;
    set->mask = places - 1;
}

static void set_add(struct set *set, uint64_t hash)
{
    hash = hash == 0 ? 1 : hash;
    if (set->hashes == NULL || 2 * set->cnt >= set->mask) {
        set_grow(set);
    }
    if (set->failed) {
        return;
    }
    uint64_t at = hash & set->mask;

    while (set->hashes[at] != 0 && set->hashes[at] != hash) {
        at = (at + 1) & set->mask;
    }
    set->cnt += set->hashes[at] == 0;
    set->hashes[at] = hash;
}

struct survey {
    const struct hf_rebuild_options *options;
    struct hf_rebuild_found *found;
    struct set names;
    struct set rows;
    struct set prices;
};

static uint64_t add_name(struct survey *survey, const struct hf_name *name, uint64_t seed)
{
    if (name->len == 0) {
        return seed;
    }
    set_add(&survey->names, hf_name_hash(name->bytes, name->len, 0));
    return hf_name_hash(name->bytes, name->len, seed + 1);
}

static void count(struct hf_rebuild_found *found, const struct hf_reservation *reservation, uint64_t now_ms)
{
    found->conflicts_cnt += reservation->reserved->conflict;
    switch (reservation->state) {
    case HF_RESERVATION_OPEN:
        found->open_cnt++;
        found->open_tokens += reservation->hold_tokens == HF_UNKNOWN ? 0 : reservation->hold_tokens;
        found->open_cost_micros +=
            reservation->hold_cost_micros == HF_UNKNOWN ? 0 : reservation->hold_cost_micros;
        found->due_cnt += reservation->expires_at_ms <= now_ms;
        break;
    case HF_RESERVATION_EXPIRED:
    case HF_RESERVATION_RETAINED:
    case HF_RESERVATION_DISPUTED:
        found->late_cnt++;
        break;
    default:
        found->closed_cnt++;
        break;
    }
}

static int survey_reservation(void *ctx, const struct hf_receipt *rows, size_t rows_cnt)
{
    struct survey *survey = ctx;
    struct hf_reservation reservation;

    if (!hf_reservation_from_rows(rows, rows_cnt, &reservation)) {
        return 0; /* said when the segment is filled */
    }
    const struct hf_receipt *row = reservation.reserved;
    const uint64_t price[] = {row->input_micros_per_mtok, row->output_micros_per_mtok,
                              row->cached_input_micros_per_mtok, row->cache_write_input_micros_per_mtok,
                              row->model_max_output_tokens};

    count(survey->found, &reservation, survey->options->now_ms);
    uint64_t path = add_name(survey, &row->tenant, 1);
    set_add(&survey->rows, path);
    path = add_name(survey, &row->team, path);
    set_add(&survey->rows, path);
    if (row->key.len > 0) {
        set_add(&survey->rows, add_name(survey, &row->key, path));
    }
    (void)add_name(survey, &row->capability, 0);
    uint64_t model = add_name(survey, &row->model, add_name(survey, &row->price_revision, 2));
    set_add(&survey->prices, hf_name_hash((const char *)price, sizeof(price), model));
    set_add(&survey->prices, add_name(survey, &row->model_asked, 3));
    set_add(&survey->prices, add_name(survey, &row->economy_model, 3));
    return 0;
}

static int survey_meter(void *ctx, const struct hf_store_meter *meter)
{
    struct survey *survey = ctx;

    survey->found->meters_cnt++;
    (void)add_name(survey, &meter->tenant, 0);
    (void)add_name(survey, &meter->capability, 0);
    (void)add_name(survey, &meter->model, 0);
    return 0;
}

static struct hf_store_filter filter_of(const struct hf_rebuild_options *options)
{
    uint64_t now = options->now_ms;

    /* Known while younger than the horizon: closed at now - horizon is forgotten. */
    return (struct hf_store_filter){
        .open = true,
        .closed_since_ms = now >= options->replay_horizon_ms ? now - options->replay_horizon_ms + 1 : 0,
        .late_since_ms = now >= options->late_horizon_ms ? now - options->late_horizon_ms + 1 : 0};
}

enum hf_store_status hf_rebuild_survey(const struct hf_rebuild_options *options,
                                       struct hf_rebuild_found *found, struct hf_store_error *error)
{
    struct hf_store_filter filter = filter_of(options);
    struct survey survey = {.options = options, .found = found};

    *found = (struct hf_rebuild_found){0};
    enum hf_store_status status = hf_store_reservations(options->store, options->store_name, &filter,
                                                        survey_reservation, &survey, error);

    if (status == HF_STORE_OK) {
        status = hf_store_meters(options->store, options->store_name, NULL, survey_meter, &survey, error);
    }
    found->names_cnt = survey.names.cnt;
    found->rows_cnt = survey.rows.cnt;
    found->prices_cnt = survey.prices.cnt;
    if (status == HF_STORE_OK && (survey.names.failed || survey.rows.failed || survey.prices.failed)) {
        (void)snprintf(error->text, sizeof(error->text), "no memory to look at what is open in the store");
        status = HF_STORE_NOMEM;
    }
    free(survey.names.hashes);
    free(survey.rows.hashes);
    free(survey.prices.hashes);
    return status;
}

static uint32_t more(uint32_t planned, uint64_t needed)
{
    uint64_t sum = planned + needed;

    return sum > UINT32_MAX ? UINT32_MAX : (uint32_t)sum;
}

void hf_rebuild_plan(const struct hf_rebuild_found *found, struct hf_segment_plan *plan)
{
    uint64_t filled = found->open_cnt + found->closed_cnt + found->late_cnt;
    uint64_t slots = filled + filled / 3 + HF_SHM_CHUNK_SLOTS;

    if (filled > 0 && slots > plan->slots) {
        plan->slots = slots > HF_SHM_SLOTS_MAX ? HF_SHM_SLOTS_MAX : (uint32_t)slots;
    }
    plan->names = more(plan->names, found->names_cnt);
    plan->rows = more(plan->rows, found->rows_cnt);
    plan->tenants = more(plan->tenants, found->rows_cnt);
    plan->prices = more(plan->prices, found->prices_cnt);
    plan->meters = more(plan->meters, found->meters_cnt);
}

/* ---- filling: a slot ------------------------------------------------------------------------------------------- */

struct fill {
    struct hf_segment *seg;
    const struct hf_rebuild_options *options;
    struct hf_rebuild_found *found;
    struct hf_store_error *error;
    uint64_t elapsed_ms;
    uint32_t next_slot;
    uint32_t windows[HF_WINDOW_CNT];
};

static int no_room(struct fill *fill, const char *of)
{
    (void)snprintf(
        fill->error->text, sizeof(fill->error->text),
        "the new segment has no room for %s of what is open in the store; give it more slots (--slots)", of);
    return 1;
}

/* The number of these prices, appended if they are new; HF_SHM_NONE: no room. */
static uint32_t put_price(struct hf_segment *seg, const struct hf_price *price, uint32_t model,
                          uint32_t revision)
{
    uint32_t cnt = seg->header->hdr_prices_cnt;

    for (uint32_t i = 0; i < cnt; i++) {
        const struct hf_shm_price *there = &seg->prices[i];

        if (there->prc_model == model && there->prc_revision == revision &&
            there->prc_input == price->input && there->prc_output == price->output &&
            there->prc_cached_input == price->cached_input && there->prc_cache_write == price->cache_write &&
            there->prc_max_output_tokens == price->max_output_tokens) {
            return i;
        }
    }
    if (cnt >= seg->prices_max) {
        return HF_SHM_NONE;
    }
    seg->prices[cnt] = (struct hf_shm_price){.prc_input = price->input,
                                             .prc_output = price->output,
                                             .prc_cached_input = price->cached_input,
                                             .prc_cache_write = price->cache_write,
                                             .prc_max_output_tokens = price->max_output_tokens,
                                             .prc_model = model,
                                             .prc_revision = revision};
    seg->header->hdr_prices_cnt = cnt + 1;
    return cnt;
}

/* A model that a request named and that no price was taken from: any entry of its name will do. */
static uint32_t put_named(struct hf_segment *seg, const struct hf_name *name)
{
    static const struct hf_price none = {0, 0, HF_UNKNOWN, HF_UNKNOWN, HF_UNKNOWN};
    uint32_t model = hf_policy_intern(seg, name->bytes, name->len, true);

    for (uint32_t i = 0; model != HF_SHM_NONE && i < seg->header->hdr_prices_cnt; i++) {
        if (seg->prices[i].prc_model == model) {
            return i;
        }
    }
    return model == HF_SHM_NONE ? HF_SHM_NONE : put_price(seg, &none, model, model);
}

static bool fill_models(struct hf_segment *seg, const struct hf_receipt *row, struct hf_shm_slot *slot)
{
    uint32_t *in_force = row->admission == HF_ADMISSION_DEGRADE ? &slot->slot_economy : &slot->slot_model;

    slot->slot_model = HF_SHM_NONE;
    slot->slot_economy = HF_SHM_NONE;
    if (row->form != HF_FORM_MODEL) {
        return true;
    }
    if (row->model_asked.len > 0 && (slot->slot_model = put_named(seg, &row->model_asked)) == HF_SHM_NONE) {
        return false;
    }
    if (row->economy_model.len > 0 &&
        (slot->slot_economy = put_named(seg, &row->economy_model)) == HF_SHM_NONE) {
        return false;
    }
    const struct hf_price price = {row->input_micros_per_mtok, row->output_micros_per_mtok,
                                   row->cached_input_micros_per_mtok, row->cache_write_input_micros_per_mtok,
                                   row->model_max_output_tokens};
    uint32_t model = hf_policy_intern(seg, row->model.bytes, row->model.len, true);
    uint32_t revision = hf_policy_intern(seg, row->price_revision.bytes, row->price_revision.len, true);

    if (model == HF_SHM_NONE || revision == HF_SHM_NONE) {
        return false;
    }
    *in_force = put_price(seg, &price, model, revision);
    return *in_force != HF_SHM_NONE;
}

static void fill_number(uint64_t number, uint32_t flag, uint64_t *field, uint32_t *flags)
{
    *field = number == HF_UNKNOWN ? 0 : number;
    *flags |= number == HF_UNKNOWN ? 0 : flag;
}

/* With basis cap, which dimensions the capability had capped: by the policy in force, as far as it still has it. Where it has
 * not, what is held stays as it is. */
static uint32_t cap_flags(const struct hf_segment *seg, const struct hf_shm_slot *slot,
                          const struct hf_receipt *row)
{
    const struct hf_shm_policy *policy = hf_lookup_policy(seg, seg->header->hdr_policy_gen);
    uint32_t idx = policy == NULL ? HF_SHM_NONE
                                  : hf_lookup_find(seg, policy, HF_LOOKUP_CAP, slot->slot_rows[1],
                                                   row->capability.bytes, row->capability.len);
    const struct hf_shm_cap *cap = idx == HF_SHM_NONE ? NULL : hf_lookup_cap(seg, policy, idx);
    uint32_t flags = 0;

    if (row->basis != HF_BASIS_CAP) {
        return 0;
    }
    flags |= cap == NULL || cap->cap_tokens != HF_SHM_UNKNOWN ? HF_SLOT_CAP_TOKENS : 0;
    flags |= cap == NULL || cap->cap_micros != HF_SHM_UNKNOWN ? HF_SLOT_CAP_COST : 0;
    return HF_SLOT_BASIS_CAP | flags;
}

static void fill_request(const struct hf_segment *seg, const struct hf_receipt *row, struct hf_shm_slot *slot)
{
    bool by_model = row->form == HF_FORM_MODEL;
    uint32_t flags = by_model ? HF_SLOT_FORM_MODEL : 0;

    fill_number(by_model ? row->input_tokens : row->requested_tokens, HF_SLOT_HAS_IN1, &slot->slot_in1,
                &flags);
    fill_number(by_model ? row->max_output_tokens : row->requested_cost_micros, HF_SLOT_HAS_IN2,
                &slot->slot_in2, &flags);
    fill_number(row->economy_tokens, HF_SLOT_HAS_ECO1, &slot->slot_eco1, &flags);
    fill_number(row->economy_cost_micros, HF_SLOT_HAS_ECO2, &slot->slot_eco2, &flags);
    fill_number(row->requested_ttl_ms, HF_SLOT_HAS_TTL, &slot->slot_ttl_ms, &flags);
    flags |= (uint32_t)(row->on_expiry < 0 ? 0 : row->on_expiry) & HF_SLOT_EXPIRY_MASK;
    flags |= row->on_overage == HF_ON_OVERAGE_FAIL ? HF_SLOT_OVERAGE_FAIL : 0;
    flags |= row->admission == HF_ADMISSION_DEGRADE ? HF_SLOT_DEGRADED : 0;
    flags |= row->conflict ? HF_SLOT_CONFLICT : 0;
    flags |= cap_flags(seg, slot, row);
    for (uint32_t i = 0; i < HF_SHM_WINDOWS; i++) {
        slot->slot_credits[i] = row->credits[i] == HF_UNKNOWN ? 0 : row->credits[i];
        flags |= slot->slot_credits[i] != 0 ? HF_SLOT_CREDITS : 0;
    }
    slot->slot_flags = flags;
}

static void fill_closing(const struct hf_reservation *reservation, struct hf_shm_slot *slot)
{
    const struct hf_receipt *row = reservation->closing;
    uint32_t close = 0;

    slot->slot_actual_tokens = HF_SHM_UNKNOWN;
    slot->slot_actual_cost = HF_SHM_UNKNOWN;
    if (row == NULL || row == reservation->expiry || row->kind == HF_RECEIPT_RELEASE) {
        return;
    }
    slot->slot_actual_tokens = row->actual_tokens;
    slot->slot_actual_cost = row->actual_cost_micros;
    if (row->usage_known == 1) {
        close |= HF_CLOSE_USAGE;
        slot->slot_usage_input = row->usage_input_tokens;
        fill_number(row->usage_cached_input_tokens, HF_CLOSE_HAS_CACHED, &slot->slot_usage_cached, &close);
        fill_number(row->usage_cache_write_input_tokens, HF_CLOSE_HAS_CACHE_WRITE,
                    &slot->slot_usage_cache_write, &close);
    }
    close |= row->outcome == HF_OUTCOME_FAILURE ? HF_CLOSE_FAILURE : 0;
    close |= row->cost_source == HF_COST_PROVIDER  ? HF_CLOSE_SOURCE_PROVIDER
             : row->cost_source == HF_COST_DERIVED ? HF_CLOSE_SOURCE_DERIVED
                                                   : 0;
    close |= row->quota_exceeded == 1 ? HF_CLOSE_QUOTA_EXCEEDED : 0;
    if (reservation->expiry != NULL) {
        slot->slot_expired_ms = reservation->expiry->made_ms;
        close |=
            reservation->expiry->kind == HF_RECEIPT_RETENTION ? HF_CLOSE_WAS_RETAINED : HF_CLOSE_WAS_EXPIRED;
    }
    if (row->ref.len > 0) {
        close |= HF_CLOSE_REF;
        slot->slot_ref_bytes = row->ref.len;
        memcpy(slot->slot_ref, row->ref.bytes, row->ref.len);
    }
    slot->slot_close = close;
}

static enum hf_state state_of(const struct hf_reservation *reservation)
{
    switch (reservation->state) {
    case HF_RESERVATION_OPEN:
        return reservation->dispatched ? HF_STATE_DISPATCHED : HF_STATE_HELD;
    case HF_RESERVATION_SETTLED:
        return HF_STATE_SETTLED;
    case HF_RESERVATION_RELEASED:
        return HF_STATE_RELEASED;
    case HF_RESERVATION_EXPIRED:
        return HF_STATE_EXPIRED;
    case HF_RESERVATION_RETAINED:
        return HF_STATE_RETAINED;
    case HF_RESERVATION_DISPUTED:
        return HF_STATE_DISPUTED;
    case HF_RESERVATION_LATE:
        return HF_STATE_LATE;
    default:
        return HF_STATE_RESOLVED;
    }
}

/* The deadline on the new elapsed scale. */
static uint64_t deadline_of(const struct fill *fill, uint64_t expires_at_ms)
{
    uint64_t now = fill->options->now_ms;

    if (expires_at_ms == HF_UNKNOWN || expires_at_ms >= now) {
        return expires_at_ms == HF_UNKNOWN ? fill->elapsed_ms : fill->elapsed_ms + (expires_at_ms - now);
    }
    return fill->elapsed_ms > now - expires_at_ms ? fill->elapsed_ms - (now - expires_at_ms) : 0;
}

/* Rows, windows, names. False: no room. */
static bool fill_path(struct hf_segment *seg, const struct hf_receipt *row, struct hf_shm_slot *slot)
{
    const char *key = row->key.len > 0 ? row->key.bytes : NULL;
    uint32_t windows[HF_WINDOW_CNT];

    slot->slot_rows[2] = hf_rows_add(seg, row->tenant.bytes, NULL, NULL);
    slot->slot_rows[1] = hf_rows_add(seg, row->tenant.bytes, row->team.bytes, NULL);
    slot->slot_rows[0] =
        key == NULL ? HF_SHM_NONE : hf_rows_add(seg, row->tenant.bytes, row->team.bytes, key);
    slot->slot_cap = hf_policy_intern(seg, row->capability.bytes, row->capability.len, true);
    if (slot->slot_rows[2] == HF_SHM_NONE || slot->slot_rows[1] == HF_SHM_NONE ||
        (key != NULL && slot->slot_rows[0] == HF_SHM_NONE) || slot->slot_cap == HF_SHM_NONE) {
        return false;
    }
    slot->slot_tenant = seg->rows[slot->slot_rows[2]].row_tenant;
    slot->slot_reserved_ms = row->window_ms;
    slot->slot_mask = row->bucket_mask;
    hf_window_ids(row->window_ms, windows);
    memcpy(slot->slot_windows, windows, sizeof(slot->slot_windows));
    return true;
}

static void fill_holds(const struct fill *fill, const struct hf_reservation *reservation,
                       struct hf_shm_slot *slot)
{
    struct hf_shm_hold *hold = &slot->slot_holds[0];

    slot->slot_first_tokens = reservation->reserved->hold_tokens;
    slot->slot_first_cost = reservation->reserved->hold_cost_micros;
    slot->slot_first_expires_ms = reservation->reserved->expires_at_ms;
    hold->hold_tokens = reservation->hold_tokens;
    hold->hold_cost = reservation->hold_cost_micros;
    hold->hold_deadline = deadline_of(fill, reservation->expires_at_ms);
    hold->hold_time_ms = reservation->reserved->made_ms;
    slot->slot_written_tokens = hold->hold_tokens;
    slot->slot_written_cost = hold->hold_cost;
    slot->slot_written_deadline = hold->hold_deadline;
}

static uint32_t marks_of(const struct hf_reservation *reservation)
{
    return HF_PERSISTED_RESERVATION | (reservation->expiry != NULL ? HF_PERSISTED_EXPIRY : 0) |
           (reservation->closing != NULL && reservation->closing != reservation->expiry ? HF_PERSISTED_CLOSING
                                                                                        : 0) |
           (reservation->reserved->conflict ? HF_PERSISTED_CONFLICT : 0);
}

static int fill_reservation(void *ctx, const struct hf_receipt *rows, size_t rows_cnt)
{
    struct fill *fill = ctx;
    struct hf_segment *seg = fill->seg;
    struct hf_reservation reservation;

    if (!hf_reservation_from_rows(rows, rows_cnt, &reservation) || rows[0].window_ms > HF_CLOCK_MS_MAX) {
        hf_log_say(&fill->options->log, HF_LOG_ERROR,
                   "the rows of reservation %s (receipt %" PRIu64
                   ") contradict each other: it is left out; look at it with "
                   "`holdfast verify`",
                   rows[0].id.bytes, rows[0].seq);
        return 0;
    }
    if (fill->next_slot >= seg->slots_cnt) {
        return no_room(fill, "the reservations");
    }
    uint32_t slot_idx = fill->next_slot++;
    struct hf_shm_slot *slot = &seg->slots[slot_idx];
    const struct hf_receipt *row = reservation.reserved;

    if (!fill_path(seg, row, slot) || !fill_models(seg, row, slot)) {
        return no_room(fill, "the names and prices");
    }
    fill_request(seg, row, slot);
    fill_holds(fill, &reservation, slot);
    fill_closing(&reservation, slot);
    slot->slot_policy_gen = seg->header->hdr_policy_gen;
    slot->slot_id_bytes = row->id.len;
    memcpy(slot->slot_id, row->id.bytes, row->id.len);
    slot->slot_id_hash = hf_index_hash(seg, row->id.bytes, row->id.len);
    slot->slot_persisted = hf_persisted_make(FIRST_GEN, 0, marks_of(&reservation));
    slot->slot_st = hf_st_make(0, 0, state_of(&reservation), reservation.state_since_ms, FIRST_GEN);
    seg->chunks[slot_idx >> seg->chunk_shift].chunk_free &= ~(1ULL << (slot_idx & (seg->chunk_slots - 1U)));

    uint32_t other;
    struct hf_u128 st;
    /* Found: a conflict of an id that is open already: it is held and reaped, and not to be had by its id. */
    (void)hf_index_insert(seg, slot->slot_id_hash, row->id.bytes, row->id.len, fill->options->now_ms,
                          slot_idx, &other, &st);
    count(fill->found, &reservation, fill->options->now_ms);
    return 0;
}

/* ---- filling: buckets and credits ------------------------------------------------------------------------------ */

/* What is charged is published by who loads the publications. */
static void fill_bucket(void *ctx, uint32_t row, enum hf_window window, enum hf_dimension dimension,
                        __int128 held, __int128 charged)
{
    const struct fill *fill = ctx;
    uint32_t window_id = fill->windows[window];
    struct hf_u128 *bucket = &fill->seg->rows[row].row_buckets[window][dimension];
    __int128 value = hf_bucket_window(*bucket) == window_id ? (__int128)hf_bucket_value(*bucket) : 0;

    value += held + charged;
    value = value < 0 ? 0 : value > (__int128)HF_AMOUNT_MAX ? (__int128)HF_AMOUNT_MAX : value;
    *bucket = hf_bucket_make((uint64_t)value, window_id, 0);
}

static int fill_sum(void *ctx, const struct hf_store_sum *sum)
{
    hf_rows_of_sum(((const struct fill *)ctx)->seg, sum, fill_bucket, ctx);
    return 0;
}

static int fill_credit(void *ctx, const struct hf_receipt *receipt)
{
    struct fill *fill = ctx;
    uint32_t row = hf_rows_find(fill->seg, receipt->tenant.bytes, receipt->team.bytes, NULL);

    if (row != HF_SHM_NONE && receipt->credit_window >= 0 && receipt->credit_window < HF_WINDOW_CNT &&
        receipt->credit_after_micros <= HF_AMOUNT_MAX) {
        fill->seg->rows[row].row_buckets[receipt->credit_window][HF_SHM_CREDIT] =
            hf_bucket_make(receipt->credit_after_micros, fill->windows[receipt->credit_window], 0);
        fill->found->credits_cnt += receipt->credit_after_micros > 0;
    }
    return 0;
}

enum hf_store_status hf_rebuild_fill(struct hf_segment *seg, const struct hf_rebuild_options *options,
                                     uint64_t elapsed_ms, struct hf_rebuild_found *found,
                                     struct hf_store_error *error)
{
    struct hf_store_filter filter = filter_of(options);
    struct fill fill = {
        .seg = seg, .options = options, .found = found, .error = error, .elapsed_ms = elapsed_ms};
    enum hf_store_status status;

    *found = (struct hf_rebuild_found){0};
    if (options->now_ms > HF_CLOCK_MS_MAX) {
        (void)snprintf(error->text, sizeof(error->text), "the clock is beyond the year 2400: set it right");
        return HF_STORE_INVALID;
    }
    hf_window_ids(options->now_ms, fill.windows);
    status =
        hf_store_reservations(options->store, options->store_name, &filter, fill_reservation, &fill, error);
    if (status == HF_STORE_OK) {
        status = hf_store_sums(options->store, options->store_name, options->now_ms,
                               (1U << HF_WINDOW_CNT) - 1, fill_sum, &fill, error);
    }
    if (status == HF_STORE_OK) {
        status =
            hf_store_credits(options->store, options->store_name, options->now_ms, fill_credit, &fill, error);
    }
    return status;
}
