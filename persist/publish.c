#include "persist/publish.h"

#include "core/lookup.h"
#include "core/policy_compile.h"
#include "core/window.h"
#include "persist/meter.h"
#include "persist/rows.h"
#include "shm/commit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ALARM_80   1U
#define ALARM_100  8U
#define ALARM_ZERO 64U

/* Open addressing over the meters of the segment by their three names: meter number + 1, 0 = empty. */
struct hf_publish {
    struct hf_segment *seg;
    struct hf_log log;
    uint32_t *meters;
    uint32_t meters_mask;
    uint32_t meters_cnt;
    bool meters_full;  /* said once */
    uint64_t *touched; /* bit per row */
    uint32_t *touched_rows;
    uint32_t touched_cnt;
    /* Names of receipts to numbers: name number + 1, 0 = empty. */
    uint32_t *names;
    uint32_t names_mask;
};

/* relaxed everywhere below: the daemon alone writes what is read here, and what it writes is published by the sequence
 * counters of edge E19. */

struct hf_publish *hf_publish_open(struct hf_segment *seg, const struct hf_log *log)
{
    struct hf_publish *publish = calloc(1, sizeof(*publish));
    uint32_t meters = 64;
    uint32_t names = 64;

    if (publish == NULL) {
        return NULL;
    }
    while (meters < 2 * seg->meters_cnt) {
        meters *= 2;
    }
    while (names < 2 * seg->names_max) {
        names *= 2;
    }
    publish->seg = seg;
    publish->log = *log;
    publish->meters_mask = meters - 1;
    publish->names_mask = names - 1;
    publish->meters = calloc(meters, sizeof(uint32_t));
    publish->names = calloc(names, sizeof(uint32_t));
    publish->touched = calloc(seg->rows_cnt / 64 + 1, sizeof(uint64_t));
    publish->touched_rows = calloc(seg->rows_cnt, sizeof(uint32_t));
    if (publish->meters == NULL || publish->names == NULL || publish->touched == NULL ||
        publish->touched_rows == NULL) {
        hf_publish_close(publish);
        return NULL;
    }
    return publish;
}

void hf_publish_close(struct hf_publish *publish)
{
    if (publish == NULL) {
        return;
    }
    free(publish->meters);
    free(publish->names);
    free(publish->touched);
    free(publish->touched_rows);
    free(publish);
}

/* ---- what is settled ----------------------------------------------------------------------------------------- */

static void pub_begin(uint64_t *seq)
{
    hf_store_rlx_u64(seq, hf_load_rlx_u64(seq) | 1U); /* relaxed: E19's fence follows */
    /* E19 release fence -> readers: who sees a word of what follows sees the odd counter.
     * CRASH until pub_end: readers see it odd and take what they can; the next daemon loads everything anew. */
    hf_fence_rel();
}

static void pub_end(uint64_t *seq)
{
    hf_store_rel_u64(seq, (hf_load_rlx_u64(seq) | 1U) + 1U); /* E19 release -> readers: all of it is there */
}

void hf_publish_settled(struct hf_segment *seg, uint32_t row, enum hf_window window, uint32_t window_id,
                        enum hf_dimension dimension, int64_t change)
{
    struct hf_shm_settled *settled = &seg->published[row].pub_settled[window][dimension];
    uint32_t there = hf_load_rlx_u32(&settled->set_window);
    uint64_t amount = hf_load_rlx_u64(&settled->set_amount);

    if (there > window_id) {
        return; /* that window is over: its receipts carry its sums */
    }
    if (there != window_id) {
        amount = 0;
    }
    if (change < 0) {
        amount = amount > (uint64_t)-change ? amount - (uint64_t)-change : 0;
    } else {
        amount += (uint64_t)change;
        amount = amount > HF_SHM_AMOUNT_MAX ? HF_SHM_AMOUNT_MAX : amount;
    }
    hf_store_rlx_u64(&settled->set_amount, amount);
    hf_store_rlx_u32(&settled->set_window, window_id);
}

static void touch(struct hf_publish *publish, uint32_t row)
{
    if (row >= publish->seg->rows_cnt || (publish->touched[row / 64] >> (row % 64) & 1U) != 0) {
        return;
    }
    publish->touched[row / 64] |= 1ULL << (row % 64);
    publish->touched_rows[publish->touched_cnt++] = row;
}

static void settle_row(struct hf_publish *publish, const struct hf_receipt *receipt, uint32_t row,
                       uint32_t bits, const uint32_t windows[HF_WINDOW_CNT])
{
    const int64_t charged[HF_DIM_CNT] = {receipt->charged_invocations, receipt->charged_tokens,
                                         receipt->charged_cost_micros};
    uint64_t *seq = &publish->seg->published[row].pub_seq;

    touch(publish, row);
    pub_begin(seq); /* E19 */
    for (; bits != 0; bits &= bits - 1) {
        uint32_t bit = (uint32_t)__builtin_ctz(bits);
        enum hf_window window = (enum hf_window)(bit / HF_DIM_CNT);
        enum hf_dimension dimension = (enum hf_dimension)(bit % HF_DIM_CNT);

        hf_publish_settled(publish->seg, row, window, windows[window], dimension, charged[dimension]);
    }
    pub_end(seq); /* E19 */
}

static void settle_path(struct hf_publish *publish, const struct hf_receipt *receipt,
                        const uint32_t rows[HF_SHM_LAYERS])
{
    uint32_t windows[HF_WINDOW_CNT];

    if (receipt->window_ms > HF_CLOCK_MS_MAX) {
        return;
    }
    hf_window_ids(receipt->window_ms, windows);
    for (uint32_t layer = 0; layer < HF_SHM_LAYERS; layer++) {
        uint32_t bits = (uint32_t)(receipt->bucket_mask >> (layer * HF_SHM_ROW_BUCKETS)) &
                        ((1U << HF_SHM_ROW_BUCKETS) - 1);

        if (bits != 0 && rows[layer] < publish->seg->rows_cnt) {
            settle_row(publish, receipt, rows[layer], bits, windows);
        }
    }
}

/* ---- meters -------------------------------------------------------------------------------------------------- */

static uint32_t intern(struct hf_publish *publish, const struct hf_name *name)
{
    struct hf_segment *seg = publish->seg;
    uint32_t at = (uint32_t)hf_name_hash(name->bytes, name->len, seg->hash_seed) & publish->names_mask;

    /* At most half full; in a damaged segment, whose names change, a name may come again and again: once round is enough. */
    for (uint32_t left = publish->names_mask; publish->names[at] != 0 && left > 0;
         at = (at + 1) & publish->names_mask, left--) {
        const struct hf_shm_name *there = &seg->names[publish->names[at] - 1];

        if (hf_name_is(name, there->name_text, there->name_bytes)) {
            return publish->names[at] - 1;
        }
    }
    uint32_t number = hf_policy_intern(seg, name->bytes, name->len, true);

    if (number != HF_SHM_NONE) {
        publish->names[at] = number + 1;
    }
    return number;
}

static void say_full(struct hf_publish *publish)
{
    if (!publish->meters_full) {
        publish->meters_full = true;
        hf_log_say(&publish->log, HF_LOG_WARNING,
                   "the segment has room for %" PRIu32
                   " meters and more are in use; further ones are only in the store",
                   publish->seg->meters_cnt);
    }
}

static struct hf_shm_meter *meter_of(struct hf_publish *publish, uint32_t tenant, uint32_t cap,
                                     uint32_t model)
{
    struct hf_segment *seg = publish->seg;
    uint64_t hash = (((uint64_t)tenant * 0x9e3779b97f4a7c15ULL) ^ cap) * 0x9e3779b97f4a7c15ULL;
    uint32_t at;

    hash = (hash ^ model) * 0x9e3779b97f4a7c15ULL;
    for (at = (uint32_t)(hash >> 32) & publish->meters_mask; publish->meters[at] != 0;
         at = (at + 1) & publish->meters_mask) {
        struct hf_shm_meter *meter = &seg->meters[publish->meters[at] - 1];

        if (meter->mtr_tenant == tenant && meter->mtr_cap == cap && meter->mtr_model == model) {
            return meter;
        }
    }
    if (publish->meters_cnt >= seg->meters_cnt) {
        say_full(publish);
        return NULL;
    }
    publish->meters[at] = ++publish->meters_cnt;
    struct hf_shm_meter *meter = &seg->meters[publish->meters_cnt - 1];

    pub_begin(&meter->mtr_seq); /* E19 */
    hf_store_rlx_u32(&meter->mtr_tenant, tenant);
    hf_store_rlx_u32(&meter->mtr_cap, cap);
    hf_store_rlx_u32(&meter->mtr_model, model);
    pub_end(&meter->mtr_seq); /* E19 */
    return meter;
}

static void add(int64_t *field, int64_t change)
{
    uint64_t *word = (uint64_t *)(void *)field;
    int64_t sum;

    /* Beyond 64 bits only in a damaged segment: then it stays where it is. */
    if (!__builtin_add_overflow((int64_t)hf_load_rlx_u64(word), change, &sum)) {
        hf_store_rlx_u64(word, (uint64_t)sum);
    }
}

static void raise_meters_max(struct hf_segment *seg, const struct hf_shm_meter *meter)
{
    const int64_t fields[] = {meter->mtr_requests, meter->mtr_failures, meter->mtr_degraded,
                              meter->mtr_reserved_micros, meter->mtr_settled_micros};

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i] > 0 && (uint64_t)fields[i] > hf_load_rlx_u64(&seg->header->hdr_meters_max)) {
            hf_store_rlx_u64(&seg->header->hdr_meters_max, (uint64_t)fields[i]);
        }
    }
}

static void meter_add(struct hf_publish *publish, const struct hf_name *tenant, const struct hf_name *cap,
                      const struct hf_name *model, const struct hf_meter_change *change)
{
    uint32_t model_name = model->len == 0 ? HF_SHM_NONE : intern(publish, model);
    uint32_t tenant_name = intern(publish, tenant);
    uint32_t cap_name = intern(publish, cap);
    struct hf_shm_meter *meter;

    if ((model->len != 0 && model_name == HF_SHM_NONE) || tenant_name == HF_SHM_NONE ||
        cap_name == HF_SHM_NONE) {
        say_full(publish);
        return;
    }
    meter = meter_of(publish, tenant_name, cap_name, model_name);
    if (meter == NULL) {
        return;
    }
    pub_begin(&meter->mtr_seq); /* E19 */
    add(&meter->mtr_requests, change->requests);
    add(&meter->mtr_failures, change->failures);
    add(&meter->mtr_degraded, change->degraded);
    add(&meter->mtr_reserved_micros, change->reserved_micros);
    add(&meter->mtr_settled_micros, change->settled_micros);
    pub_end(&meter->mtr_seq); /* E19 */
    raise_meters_max(publish->seg, meter);
}

void hf_publish_receipt(struct hf_publish *publish, const struct hf_receipt *receipt,
                        const uint32_t rows[HF_SHM_LAYERS])
{
    struct hf_meter_change change;

    if (!hf_receipt_in_family(receipt->kind)) {
        return;
    }
    settle_path(publish, receipt, rows);
    if (!receipt->conflict && hf_meter_change(receipt, &change)) {
        meter_add(publish, &receipt->tenant, &receipt->capability, &receipt->model, &change);
    }
}

/* ---- loading ------------------------------------------------------------------------------------------------- */

struct load {
    struct hf_publish *publish;
    uint32_t windows[HF_WINDOW_CNT];
};

static void load_bucket(void *ctx, uint32_t row, enum hf_window window, enum hf_dimension dimension,
                        __int128 held, __int128 charged)
{
    const struct load *load = ctx;

    (void)held;
    charged = charged > (__int128)HF_AMOUNT_MAX ? (__int128)HF_AMOUNT_MAX : charged;
    charged = charged < -(__int128)HF_AMOUNT_MAX ? -(__int128)HF_AMOUNT_MAX : charged;
    hf_publish_settled(load->publish->seg, row, window, load->windows[window], dimension, (int64_t)charged);
    touch(load->publish, row);
}

static int load_sum(void *ctx, const struct hf_store_sum *sum)
{
    hf_rows_of_sum(((const struct load *)ctx)->publish->seg, sum, load_bucket, ctx);
    return 0;
}

static int load_meter(void *ctx, const struct hf_store_meter *meter)
{
    const struct load *load = ctx;
    const struct hf_meter_change change = {meter->requests, meter->failures, meter->degraded,
                                           meter->reserved_micros, meter->settled_micros};

    meter_add(load->publish, &meter->tenant, &meter->capability, &meter->model, &change);
    return 0;
}

static void clear(struct hf_publish *publish)
{
    struct hf_segment *seg = publish->seg;

    for (uint32_t row = 0; row < seg->rows_cnt; row++) {
        for (uint32_t i = 0; i < HF_SHM_ROW_BUCKETS; i++) {
            struct hf_shm_settled *settled =
                &seg->published[row].pub_settled[i / HF_SHM_DIMS][i % HF_SHM_DIMS];

            hf_store_rlx_u64(&settled->set_amount, 0);
            hf_store_rlx_u32(&settled->set_window, 0);
        }
    }
    for (uint32_t i = 0; i < seg->meters_cnt; i++) {
        struct hf_shm_meter *meter = &seg->meters[i];

        hf_store_rlx_u64((uint64_t *)(void *)&meter->mtr_requests, 0);
        hf_store_rlx_u64((uint64_t *)(void *)&meter->mtr_failures, 0);
        hf_store_rlx_u64((uint64_t *)(void *)&meter->mtr_degraded, 0);
        hf_store_rlx_u64((uint64_t *)(void *)&meter->mtr_reserved_micros, 0);
        hf_store_rlx_u64((uint64_t *)(void *)&meter->mtr_settled_micros, 0);
    }
    memset(publish->meters, 0, ((size_t)publish->meters_mask + 1) * sizeof(uint32_t));
    publish->meters_cnt = 0;
    hf_store_rlx_u64(&seg->header->hdr_meters_max, 0);
}

void hf_publish_stale(struct hf_publish *publish)
{
    for (uint32_t row = 0; row < publish->seg->rows_cnt; row++) {
        pub_begin(&publish->seg->published[row].pub_seq); /* E19 */
    }
}

enum hf_store_status hf_publish_load(struct hf_publish *publish, struct hf_store *store,
                                     const char *store_name, uint64_t now_ms, struct hf_store_error *error)
{
    struct load load = {.publish = publish};
    enum hf_store_status status;
    struct hf_segment *seg = publish->seg;

    if (now_ms > HF_CLOCK_MS_MAX) {
        now_ms = HF_CLOCK_MS_MAX;
    }
    hf_window_ids(now_ms, load.windows);
    hf_publish_stale(publish);
    for (uint32_t i = 0; i < seg->meters_cnt; i++) {
        if (hf_load_rlx_u64(&seg->meters[i].mtr_seq) != 0) {
            pub_begin(&seg->meters[i].mtr_seq); /* E19 */
        }
    }
    clear(publish);
    status = hf_store_sums(store, store_name, now_ms, (1U << HF_WINDOW_CNT) - 1, load_sum, &load, error);
    if (status == HF_STORE_OK) {
        status = hf_store_meters(store, store_name, NULL, load_meter, &load, error);
    }
    for (uint32_t row = 0; row < seg->rows_cnt; row++) {
        pub_end(&seg->published[row].pub_seq); /* E19 */
    }
    /* A place that no meter took again is unused once more. */
    for (uint32_t i = publish->meters_cnt; i < seg->meters_cnt; i++) {
        hf_store_rel_u64(&seg->meters[i].mtr_seq, 0); /* E19 */
    }
    return status;
}

/* ---- alarms -------------------------------------------------------------------------------------------------- */

void hf_publish_alarms(struct hf_publish *publish, const struct hf_receipt *receipt)
{
    const struct hf_segment *seg = publish->seg;

    switch (receipt->kind) {
    case HF_RECEIPT_EXPIRY:
        hf_alarm(seg, HF_ALARM_EXPIRED, 1);
        break;
    case HF_RECEIPT_RETENTION:
        hf_alarm(seg, HF_ALARM_RETAINED, 1);
        break;
    case HF_RECEIPT_DISPUTE:
        hf_alarm(seg, HF_ALARM_DISPUTED, 1);
        break;
    default:
        break;
    }
    if ((receipt->kind == HF_RECEIPT_SETTLEMENT || receipt->kind == HF_RECEIPT_LATE) &&
        ((receipt->overage_tokens != HF_UNKNOWN && receipt->overage_tokens > 0) ||
         (receipt->overage_cost_micros != HF_UNKNOWN && receipt->overage_cost_micros > 0))) {
        hf_alarm(seg, HF_ALARM_OVERAGE, 1);
    }
    if (receipt->fate == HF_FATE_CONFLICT) {
        hf_alarm(seg, HF_ALARM_CONFLICT, 1);
        hf_log_say(
            &publish->log, HF_LOG_ERROR,
            "the store has another reservation under the id %s: this one (receipt %" PRIu64
            ", tenant %s) is kept as a conflict with its own hold, and counts in no meter; give each request an id "
            "of its own",
            receipt->id.bytes, receipt->seq, receipt->tenant.bytes);
    } else if (receipt->fate == HF_FATE_ASIDE) {
        hf_alarm(seg, HF_ALARM_STORE_CONFLICT, 1);
        hf_log_say(&publish->log, HF_LOG_ERROR,
                   "the store refused receipt %" PRIu64
                   " (%s of %s): it is in the table of conflicts with the reason, and "
                   "its amounts count",
                   receipt->seq, hf_receipt_kind_name(receipt->kind), receipt->id.bytes);
    }
}

static const char *layer_word(uint32_t layer)
{
    return hf_layer_name((enum hf_layer)(layer + HF_LAYER_KEY));
}

static void raise_limit(struct hf_publish *publish, uint32_t row, uint32_t window, uint32_t dimension,
                        uint32_t bit, uint64_t value, uint64_t limit)
{
    struct hf_segment *seg = publish->seg;
    enum hf_alarm alarm = bit == ALARM_80    ? HF_ALARM_LIMIT_80
                          : bit == ALARM_100 ? HF_ALARM_LIMIT_100
                                             : HF_ALARM_BELOW_ZERO;
    const struct hf_shm_row *shm_row = &seg->rows[row];
    char name[64];
    char tenant[64] = "";

    hf_alarm(seg, alarm, 1);
    (void)hf_lookup_name(seg, shm_row->row_name, name);
    if (shm_row->row_tenant < seg->tenants_cnt) {
        (void)hf_lookup_name(seg, seg->tenants[shm_row->row_tenant].ten_name, tenant);
    }
    hf_log_say(&publish->log, bit == ALARM_80 ? HF_LOG_INFO : HF_LOG_WARNING,
               "%s %s of tenant %s: %s of the %s stands at %" PRIu64 " of %" PRIu64 " (%s)",
               layer_word(shm_row->row_layer), name, tenant, hf_dimension_name((enum hf_dimension)dimension),
               hf_window_name((enum hf_window)window), value, limit,
               bit == ALARM_80    ? "80 % reached"
               : bit == ALARM_100 ? "used up"
                                  : "below zero");
}

static void check_limit(struct hf_publish *publish, uint32_t row, const struct hf_shm_row_policy *rules,
                        uint32_t window, uint32_t dimension)
{
    struct hf_segment *seg = publish->seg;
    uint64_t limit = rules->rpl_limits[window][dimension];
    struct hf_u128 bucket = hf_commit_read_bucket(&seg->rows[row].row_buckets[window][dimension]); /* E12 */
    struct hf_shm_published *pub = &seg->published[row];
    uint64_t value = hf_bucket_value(bucket);
    uint32_t now = 0;

    if (limit == HF_SHM_UNKNOWN || value == 0) {
        return;
    }
    if (dimension == HF_DIM_COST && seg->rows[row].row_layer == 1) {
        struct hf_u128 credit =
            hf_commit_read_bucket(&seg->rows[row].row_buckets[window][HF_SHM_CREDIT]); /* E12 */

        limit += hf_bucket_window(credit) == hf_bucket_window(bucket) ? hf_bucket_value(credit) : 0;
    }
    now |= (unsigned __int128)value * 5 >= (unsigned __int128)limit * 4 ? ALARM_80 : 0;
    now |= value >= limit ? ALARM_100 : 0;
    now |= value > limit ? ALARM_ZERO : 0;
    if (hf_load_rlx_u32(&pub->pub_alarm_window[window]) != hf_bucket_window(bucket)) {
        hf_store_rlx_u32(&pub->pub_alarm_bits[window], 0);
        hf_store_rlx_u32(&pub->pub_alarm_window[window], hf_bucket_window(bucket));
    }
    uint32_t there = hf_load_rlx_u32(&pub->pub_alarm_bits[window]);

    for (uint32_t bit = ALARM_80; bit <= ALARM_ZERO; bit <<= 3) {
        if ((now & bit) != 0 && (there & (bit << dimension)) == 0) {
            raise_limit(publish, row, window, dimension, bit, value, limit);
            there |= bit << dimension;
        }
    }
    hf_store_rlx_u32(&pub->pub_alarm_bits[window], there);
}

void hf_publish_limits(struct hf_publish *publish)
{
    struct hf_segment *seg = publish->seg;

    for (uint32_t i = 0; i < publish->touched_cnt; i++) {
        uint32_t row = publish->touched_rows[i];
        uint32_t tenant = seg->rows[row].row_tenant;
        const struct hf_shm_policy *policy =
            tenant < seg->tenants_cnt
                ? hf_lookup_policy(seg, (uint32_t)hf_load_rlx_u64(&seg->tenants[tenant].ten_policy))
                : NULL;
        const struct hf_shm_row_policy *rules = policy == NULL ? NULL : hf_lookup_row(seg, policy, row);

        for (uint32_t w = 0; rules != NULL && w < HF_SHM_ROW_BUCKETS; w++) {
            check_limit(publish, row, rules, w / HF_SHM_DIMS, w % HF_SHM_DIMS);
        }
        publish->touched[row / 64] &= ~(1ULL << (row % 64));
    }
    publish->touched_cnt = 0;
}
