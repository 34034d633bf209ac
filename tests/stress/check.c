/* The end of a round: everything is reaped and drained, then what the buckets say, what the store's receipts say and what the
 * log says must be the same, and every slot must become free again. */
#include "tests/stress/account.h"

#include "core/lookup.h"
#include "core/window.h"
#include "shm/clock.h"
#include "shm/commit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_MS 60000U /* for a busy machine; nothing is decided by time */

struct checker {
    struct stress_board *board;
    struct holdfast_segment *segment;
    struct holdfast *handle;
    struct hf_segment *seg;
    struct hf_store *store;
    uint64_t *sums; /* of each bucket, from the store */
};

static void give_up(struct checker *checker, const char *what)
{
    stress_wrong(checker->board, "%s", what);
    _exit(3);
}

static void flush(struct checker *checker)
{
    if (holdfast_flush(checker->handle, PATIENCE_MS) != HOLDFAST_OK) {
        give_up(checker, "the daemon does not drain");
    }
}

/* ---- buckets against the store --------------------------------------------------------------------------------- */

static uint32_t row_of(struct checker *checker, const struct hf_store_sum *sum, uint32_t layer)
{
    const struct hf_segment *seg = checker->seg;
    const struct hf_name *names[HF_SHM_LAYERS] = {&sum->key, &sum->team, &sum->tenant};

    for (uint32_t r = 0; r < seg->rows_cnt; r++) {
        uint32_t at = r;
        bool same = seg->rows[r].row_layer == layer && names[layer]->len > 0;

        for (uint32_t i = layer; same && i < HF_SHM_LAYERS; i++) {
            char text[64];

            (void)hf_lookup_name(seg, seg->rows[at].row_name, text);
            same = strcmp(text, names[i]->bytes) == 0;
            at = i + 1 < HF_SHM_LAYERS ? seg->rows[at].row_parent : at;
        }
        if (same) {
            return r;
        }
    }
    return HF_SHM_NONE;
}

static int take_sum(void *ctx, const struct hf_store_sum *sum)
{
    struct checker *checker = ctx;

    for (uint32_t layer = 0; layer < HF_SHM_LAYERS; layer++) {
        uint32_t row = row_of(checker, sum, layer);

        for (uint32_t dim = 0; dim < HF_SHM_DIMS; dim++) {
            uint32_t in_row = (uint32_t)sum->window * HF_SHM_DIMS + dim;

            if ((sum->bucket_mask >> (layer * HF_SHM_ROW_BUCKETS + in_row) & 1U) == 0) {
                continue;
            }
            if (row == HF_SHM_NONE) {
                stress_wrong(checker->board, "the store has a path that the segment has not");
                return 0;
            }
            checker->sums[row * HF_SHM_ROW_BUCKETS + in_row] +=
                (uint64_t)(sum->held[dim] + sum->charged[dim]);
        }
    }
    return 0;
}

/* Held and charged by the receipts of the windows of now is what the buckets say. */
static void compare_buckets(struct checker *checker, const char *when)
{
    const struct hf_segment *seg = checker->seg;
    uint64_t now_ms = hf_clock_now_ms(seg);
    struct hf_store_error error = {""};

    memset(checker->sums, 0, (size_t)seg->rows_cnt * HF_SHM_ROW_BUCKETS * sizeof(uint64_t));
    if (hf_store_sums(checker->store, STRESS_STORE, now_ms, 0x1f, take_sum, checker, &error) != HF_STORE_OK) {
        give_up(checker, error.text);
    }
    for (uint32_t i = 0; i < seg->rows_cnt * HF_SHM_ROW_BUCKETS; i++) {
        uint32_t in_row = i % HF_SHM_ROW_BUCKETS;
        enum hf_window window = (enum hf_window)(in_row / HF_SHM_DIMS);
        struct hf_u128 word = hf_commit_read_bucket(
            &seg->rows[i / HF_SHM_ROW_BUCKETS].row_buckets[window][in_row % HF_SHM_DIMS]); /* E12 */
        uint64_t value = hf_bucket_window(word) == hf_window_id(window, now_ms) ? hf_bucket_value(word) : 0;

        if (value != checker->sums[i]) {
            stress_wrong(checker->board,
                         "%s: row %" PRIu32 " bucket %" PRIu32 " has %" PRIu64 ", the receipts say %" PRIu64,
                         when, i / HF_SHM_ROW_BUCKETS, in_row, value, checker->sums[i]);
        }
    }
}

/* ---- the segment ------------------------------------------------------------------------------------------------ */

static void take_expired(void *arg, const char *id, int kind)
{
    struct checker *checker = arg;
    uint64_t packed = 0;

    if (!stress_id_parse(id, &packed)) {
        stress_wrong(checker->board, "reaped '%.40s', which nobody made", id);
        return;
    }
    struct stress_rec *rec =
        stress_intent(checker->board, STRESS_CHECKER, STRESS_EXPIRED, packed, (uint32_t)kind);

    if (rec != NULL) {
        stress_answer(rec);
    }
}

static uint32_t count_slots(const struct hf_segment *seg, uint32_t from, uint32_t to)
{
    uint32_t cnt = 0;

    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        uint32_t state = (uint32_t)hf_st_state(hf_commit_read_st(&seg->slots[i])); /* E13 */

        cnt += state >= from && state <= to;
    }
    return cnt;
}

static void reap_all(struct checker *checker)
{
    (void)hf_clock_inject(checker->seg, hf_clock_now_ms(checker->seg) + 70000);
    while (holdfast_reap(checker->handle, 0, take_expired, checker) > 0) {
    }
    uint32_t open = count_slots(checker->seg, HF_STATE_HELD, HF_STATE_DISPATCHED);

    if (open != 0) {
        stress_wrong(checker->board, "%" PRIu32 " reservations stay open past every deadline", open);
    }
}

/* Past every horizon nothing may be left: no slot, no link of the index, no chunk of the dead. */
static void free_all(struct checker *checker)
{
    struct hf_segment *seg = checker->seg;
    uint64_t until = hf_clock_mono_fine_ms() + PATIENCE_MS;
    uint32_t used;

    (void)hf_clock_inject(seg, hf_clock_now_ms(seg) + seg->late_horizon_ms + 61000);
    do {
        flush(checker);
        used = count_slots(seg, HF_STATE_FILLING, HF_STATE_CNT);
    } while (used != 0 && hf_clock_mono_fine_ms() < until);
    if (used != 0) {
        stress_wrong(checker->board, "%" PRIu32 " slots are leaked", used);
    }
    for (uint32_t i = 0; i <= seg->heads_mask; i++) {
        if (hf_link_slot(hf_load_rlx_u64(&seg->heads[i])) != 0) { /* relaxed: quiesced */
            stress_wrong(checker->board, "head %" PRIu32 " of the index still names a slot", i);
        }
    }
}

/* A dead process's chunks go back; what is left belongs to the daemon and to the checker. */
static void return_all(struct checker *checker)
{
    const struct hf_segment *seg = checker->seg;
    uint64_t until = hf_clock_mono_fine_ms() + PATIENCE_MS;
    uint32_t held;

    do {
        held = 0;
        for (uint32_t i = 0; i < seg->chunks_cnt; i++) {
            held += hf_load_rlx_u64(&seg->chunks[i].chunk_owner) != 0; /* relaxed: quiesced */
        }
    } while (held != 0 && hf_clock_mono_fine_ms() < until && usleep(5000) == 0);
    if (held != 0) {
        stress_wrong(checker->board, "%" PRIu32 " chunks are held by nobody alive", held);
    }
}

static void open_all(struct checker *checker, const char *folder)
{
    char path[256];
    struct hf_store_options options = {.role = HF_STORE_READER};
    struct hf_store_error error = {""};

    (void)snprintf(path, sizeof(path), "%s/segment", folder);
    if (holdfast_open(path, &checker->segment, NULL, 0) != HOLDFAST_OK ||
        holdfast_join(checker->segment, &checker->handle) != HOLDFAST_OK) {
        give_up(checker, "the checker cannot join");
    }
    (void)snprintf(path, sizeof(path), "sqlite:%s/store.db", folder);
    if (hf_store_open(path, &options, &checker->store, &error) != HF_STORE_OK) {
        give_up(checker, error.text);
    }
    checker->seg = &checker->segment->map;
    checker->sums = calloc((size_t)checker->seg->rows_cnt * HF_SHM_ROW_BUCKETS, sizeof(uint64_t));
    if (checker->sums == NULL) {
        give_up(checker, "no memory");
    }
}

static void check_alarms(struct checker *checker)
{
    static const struct {
        enum hf_alarm alarm;
        const char *name;
    } never[] = {{HF_ALARM_CORRUPT, "corrupt"},
                 {HF_ALARM_COVERAGE_GAP, "coverage gap"},
                 {HF_ALARM_SEQUENCE, "sequence"}};

    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        uint64_t n =
            hf_load_rlx_u64(&checker->seg->header->hdr_alarms[never[i].alarm]); /* relaxed: quiesced */

        if (n != 0) {
            stress_wrong(checker->board, "%" PRIu64 " alarms of kind '%s'", n, never[i].name);
        }
    }
}

void stress_check(const char *folder, struct stress_board *board)
{
    struct checker checker = {.board = board};
    struct hf_u128 word;

    open_all(&checker, folder);
    for (uint32_t i = 0; i < checker.seg->tenants_cnt; i++) {
        if (hf_commit_ready(checker.seg, i, &word) != HF_OK) {
            stress_wrong(board, "tenant %" PRIu32 " cannot be made ready", i);
        }
    }
    flush(&checker);
    compare_buckets(&checker, "with open holds");
    reap_all(&checker);
    flush(&checker);
    compare_buckets(&checker, "with all reaped");
    stress_account(board, checker.store);
    free_all(&checker);
    compare_buckets(&checker, "with all freed");
    check_alarms(&checker);
    holdfast_leave(checker.handle);
    return_all(&checker);
    hf_store_close(checker.store);
    holdfast_close(checker.segment);
    free(checker.sums);
    _exit(0);
}
