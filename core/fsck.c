/* Looks, their agreement, and what is said of them. */
#include "core/fsck_impl.h"

#include "shm/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS       3U
#define SUMS_TRIES   400U
#define SUMS_WAIT_MS 3000U

/* ---- items ----------------------------------------------------------------------------------------------------- */

struct hf_fsck_item hf_fsck_item(enum hf_fsck_kind kind, enum hf_fsck_severity severity)
{
    return (struct hf_fsck_item){.kind = kind,
                                 .severity = severity,
                                 .tenant = HF_SHM_NONE,
                                 .row = HF_SHM_NONE,
                                 .window = HF_SHM_NONE,
                                 .window_id = HF_SHM_NONE,
                                 .dimension = HF_SHM_NONE,
                                 .slot = HF_SHM_NONE,
                                 .chunk = HF_SHM_NONE,
                                 .idx = HF_SHM_NONE};
}

struct hf_fsck_item *hf_fsck_add(struct hf_fsck *fsck, enum hf_fsck_kind kind, const char *format, ...)
{
    bool note = kind == HF_FSCK_DEAD || kind == HF_FSCK_FREE_BITS || kind == HF_FSCK_NOT_CHECKED;
    va_list args;

    if (fsck->items_cnt == HF_FSCK_ITEMS_MAX) {
        fsck->overflowed = true;
        return NULL;
    }
    struct hf_fsck_item *item = &fsck->items[fsck->items_cnt++];

    *item = hf_fsck_item(kind, note ? HF_FSCK_NOTE : HF_FSCK_DAMAGE);
    va_start(args, format);
    (void)vsnprintf(item->text, sizeof(item->text), format, args);
    va_end(args);
    return item;
}

void hf_fsck_numbers(struct hf_fsck_item *item, uint64_t expected, uint64_t found)
{
    if (item != NULL) {
        item->has_numbers = true;
        item->expected = expected;
        item->found = found;
    }
}

void hf_fsck_say(struct hf_fsck *fsck, const struct hf_fsck_item *item)
{
    fsck->result->damage += item->severity == HF_FSCK_DAMAGE;
    fsck->result->notes += item->severity == HF_FSCK_NOTE;
    fsck->result->mended += item->severity == HF_FSCK_MENDED;
    if (fsck->report != NULL) {
        fsck->report(fsck->ctx, fsck->seg, item);
    }
}

static bool same_item(const struct hf_fsck_item *a, const struct hf_fsck_item *b)
{
    return a->kind == b->kind && a->tenant == b->tenant && a->row == b->row && a->window == b->window &&
           a->dimension == b->dimension && a->slot == b->slot && a->chunk == b->chunk && a->idx == b->idx &&
           a->sig[0] == b->sig[0] && a->sig[1] == b->sig[1];
}

/* Keeps of `before` what this look found as well. Both are in the order of the look, so the partner is near. */
static void intersect(struct hf_fsck *fsck)
{
    uint32_t kept = 0;
    uint32_t from = 0;

    if (fsck->look == 0) {
        memcpy(fsck->before, fsck->items, fsck->items_cnt * sizeof(*fsck->items));
        fsck->before_cnt = fsck->items_cnt;
        return;
    }
    for (uint32_t i = 0; i < fsck->before_cnt; i++) {
        for (uint32_t step = 0; step < fsck->items_cnt; step++) {
            uint32_t at = (from + step) % fsck->items_cnt;

            if (same_item(&fsck->before[i], &fsck->items[at])) {
                fsck->before[kept++] = fsck->items[at]; /* the newest numbers */
                from = at + 1U;
                break;
            }
        }
    }
    fsck->before_cnt = kept;
}

void hf_fsck_begin_look(struct hf_fsck *fsck)
{
    fsck->items_cnt = 0;
    fsck->now_ms = hf_clock_now_ms(fsck->seg);
    hf_window_ids(fsck->now_ms > HF_CLOCK_MS_MAX ? HF_CLOCK_MS_MAX : fsck->now_ms, fsck->windows);
}

static void look(struct hf_fsck *fsck)
{
    hf_fsck_begin_look(fsck);
    hf_fsck_check_header(fsck);
    hf_fsck_check_tables(fsck);
    hf_fsck_check_daemon(fsck);
    hf_fsck_check_tenants(fsck);
    hf_fsck_check_index(fsck);
    hf_fsck_check_slots(fsck);
}

void hf_fsck_looks(struct hf_fsck *fsck)
{
    for (fsck->look = 0; fsck->look < fsck->options.rounds; fsck->look++) {
        if (fsck->look > 0) {
            hf_fsck_nap(fsck->options.pause_ms);
        }
        look(fsck);
        intersect(fsck);
        if (fsck->before_cnt == 0) {
            break; /* nothing is left that a further look could confirm */
        }
    }
    for (uint32_t i = 0; i < fsck->before_cnt; i++) {
        hf_fsck_say(fsck, &fsck->before[i]);
    }
    if (fsck->overflowed) {
        struct hf_fsck_item more = hf_fsck_item(HF_FSCK_NOT_CHECKED, HF_FSCK_NOTE);

        (void)snprintf(more.text, sizeof(more.text), "more than %u things were found: not all are listed",
                       HF_FSCK_ITEMS_MAX);
        hf_fsck_say(fsck, &more);
    }
}

/* ---- opening ------------------------------------------------------------------------------------------------------ */

static void list_rows(struct hf_fsck *fsck)
{
    const struct hf_segment *seg = fsck->seg;

    /* plain: rows are read-only once published. */
    for (uint32_t row = 0; row < seg->rows_cnt; row++) {
        uint32_t tenant = seg->rows[row].row_tenant;

        fsck->row_place[row] = HF_SHM_NONE;
        if (hf_row_used(&seg->rows[row]) && tenant < seg->tenants_cnt) {
            fsck->row_place[row] = fsck->row_first[tenant + 1U]++;
        }
    }
    for (uint32_t t = 0; t < seg->tenants_cnt; t++) {
        fsck->row_first[t + 1U] += fsck->row_first[t];
    }
    for (uint32_t row = 0; row < seg->rows_cnt; row++) {
        uint32_t tenant = seg->rows[row].row_tenant;

        if (fsck->row_place[row] != HF_SHM_NONE && tenant < seg->tenants_cnt) {
            fsck->row_list[fsck->row_first[tenant] + fsck->row_place[row]] = row;
        }
    }
}

bool hf_fsck_open(struct hf_fsck *fsck)
{
    const struct hf_segment *seg = fsck->seg;
    struct hf_fsck_options *options = &fsck->options;

    options->rounds = options->rounds == 0 ? ROUNDS : options->rounds;
    options->sums_tries = options->sums_tries == 0 ? SUMS_TRIES : options->sums_tries;
    options->sums_wait_ms = options->sums_wait_ms == 0 ? SUMS_WAIT_MS : options->sums_wait_ms;
    fsck->items = calloc(HF_FSCK_ITEMS_MAX, sizeof(*fsck->items));
    fsck->before = calloc(HF_FSCK_ITEMS_MAX, sizeof(*fsck->before));
    fsck->linked = calloc(seg->slots_cnt, sizeof(*fsck->linked));
    fsck->row_first = calloc((size_t)seg->tenants_cnt + 1U, sizeof(*fsck->row_first));
    fsck->row_list = calloc(seg->rows_cnt, sizeof(*fsck->row_list));
    fsck->row_place = calloc(seg->rows_cnt, sizeof(*fsck->row_place));
    if (fsck->items == NULL || fsck->before == NULL || fsck->linked == NULL || fsck->row_first == NULL ||
        fsck->row_list == NULL || fsck->row_place == NULL) {
        return false;
    }
    list_rows(fsck);
    for (uint32_t i = 0; i < seg->tenants_cnt; i++) {
        fsck->result->tenants += hf_fsck_tenant_used(seg, i);
    }
    return true;
}

void hf_fsck_close(struct hf_fsck *fsck)
{
    free(fsck->items);
    free(fsck->before);
    free(fsck->linked);
    free(fsck->row_first);
    free(fsck->row_list);
    free(fsck->row_place);
}

int hf_fsck(const struct hf_segment *seg, const struct hf_fsck_options *options, hf_fsck_report_fn *report,
            void *ctx, struct hf_fsck_result *result)
{
    struct hf_fsck fsck = {.seg = (struct hf_segment *)seg, /* only read */
                           .options = *options,
                           .report = report,
                           .ctx = ctx,
                           .result = result};
    int rc = HF_ESYS;

    *result = (struct hf_fsck_result){0};
    if (hf_fsck_open(&fsck)) {
        hf_fsck_looks(&fsck);
        rc = hf_fsck_check_sums(&fsck) ? HF_OK : HF_ESYS;
    }
    hf_fsck_close(&fsck);
    return rc;
}
