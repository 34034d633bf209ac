/* fsck beside live traffic: see README.md.
 *
 *   fsck_live HOLDFAST HOLDFASTD      HOLDFAST_SEED=n; HOLDFAST_LONG=1: for a minute */
#include "core/fsck.h"
#include "core/policy_compile.h"
#include "core/window.h"
#include "load.h"
#include "persist/reconcile.h"
#include "place.h"
#include "shm/clock.h"
#include "shm/commit.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS_MAX 16
#define STRIKES   5

struct found {
    struct hf_fsck_item items[ITEMS_MAX];
    uint32_t cnt; /* of damage */
    bool loud;
};

struct totals {
    uint64_t runs;
    uint64_t proved;
    uint64_t busy;
    uint64_t tries;
    uint64_t buckets;
    uint64_t alarms;
};

static uint64_t seed;

static void take(void *ctx, const struct hf_segment *seg, const struct hf_fsck_item *item)
{
    struct found *found = ctx;
    char where[300];

    if (item->severity == HF_FSCK_NOTE) {
        return;
    }
    if (found->cnt < ITEMS_MAX) {
        found->items[found->cnt] = *item;
    }
    found->cnt++;
    if (found->loud) {
        (void)printf("  %s %s %s: %s (expected %" PRIu64 ", found %" PRIu64 ")\n",
                     hf_fsck_severity_name(item->severity), hf_fsck_kind_name(item->kind),
                     hf_fsck_where(seg, item, where, sizeof(where)), item->text, item->expected, item->found);
    }
}

static void check(const struct hf_segment *seg, struct found *found, struct totals *totals)
{
    const struct hf_fsck_options options = {.pause_ms = 20, .tenant = HF_SHM_NONE};
    struct hf_fsck_result result;

    *found = (struct found){.loud = true};
    if (hf_fsck(seg, &options, take, found, &result) != HF_OK) {
        die("fsck: no memory");
    }
    totals->runs++;
    totals->proved += result.sums_proved;
    totals->busy += result.sums_busy;
    totals->tries += result.tries;
    totals->buckets += result.buckets;
}

static void plant(struct hf_segment *seg, uint32_t row, int64_t change)
{
    struct hf_u128 *at = &seg->rows[row].row_buckets[HF_WINDOW_MONTH][HF_DIM_COST];

    for (;;) {
        struct hf_u128 before = hf_commit_read_bucket(at);
        uint64_t value = (uint64_t)((int64_t)hf_bucket_value(before) + change);

        if (hf_cas_acqrel_u128(at, before,
                               hf_bucket_make(value, hf_bucket_window(before), hf_bucket_tag(before)))) {
            return;
        }
    }
}

static void expect_clean(const struct hf_segment *seg, const char *when)
{
    struct found found;
    struct totals totals = {0};

    check(seg, &found, &totals);
    if (found.cnt != 0 || totals.busy != 0) {
        die("%s: %u findings, %" PRIu64 " tenants not checked", when, found.cnt, totals.busy);
    }
}

/* Every counter by the segment and by the store. */
static void expect_exact(struct hf_segment *seg, const struct place *place)
{
    struct hf_store_options options = {.role = HF_STORE_READER};
    struct hf_reconcile_report report = {0};
    struct hf_store_error error = {""};
    struct hf_store *store = NULL;

    if (hf_store_open(place->store, &options, &store, &error) != HF_STORE_OK ||
        hf_reconcile(seg, store, seg->header->hdr_store_name, &report, &error) != HF_RECONCILE_DONE) {
        die("the store cannot be read: %s", error.text);
    }
    hf_store_close(store);
    if (report.mismatches_cnt != 0) {
        die("segment and store differ: %s", report.texts[0]);
    }
    (void)printf("exact: %" PRIu64 " buckets of segment and store agree, %" PRIu64 " reservations open\n",
                 report.buckets_cnt, report.open_cnt);
}

/* ---- under load -------------------------------------------------------------------------------------------------- */

/* Deaths and stops at their share of the time: the daemon is killed and comes again, a worker is killed, one is stopped. */
static void strike(struct place *place, struct load *load, uint64_t percent, unsigned *struck)
{
    static const uint64_t at[] = {25, 32, 50, 60, 85, 101};

    if (percent < at[*struck]) {
        return;
    }
    switch ((*struck)++) {
    case 0:
        place_kill_daemon(place);
        break;
    case 1:
        place_spawn_daemon(place);
        break;
    case 2:
        load_signal(load, 2, SIGKILL);
        break;
    case 3:
        load_signal(load, 1, SIGSTOP);
        break;
    default:
        load_signal(load, 1, SIGCONT);
        break;
    }
}

static void watch(struct hf_segment *seg, struct place *place, struct load *load, unsigned seconds)
{
    uint64_t begin = hf_clock_mono_fine_ms();
    uint64_t ops = load_ops(load);
    struct totals totals = {0};
    unsigned struck = 0;

    while (hf_clock_mono_fine_ms() - begin < seconds * 1000ULL) {
        struct found found;

        check(seg, &found, &totals);
        totals.alarms += found.cnt;
        strike(place, load, (hf_clock_mono_fine_ms() - begin) / (10ULL * seconds), &struck);
    }
    uint64_t ms = hf_clock_mono_fine_ms() - begin;

    while (struck < STRIKES) { /* on a slow machine */
        strike(place, load, 100, &struck);
    }

    (void)printf("totals: %" PRIu64 " operations a second; fsck ran %" PRIu64 " times in %" PRIu64
                 " ms: %" PRIu64 " false alarms, sums of %" PRIu64 " tenants proved (%" PRIu64
                 " buckets, %" PRIu64 " tries), %" PRIu64 " too busy; seed %" PRIu64 "\n",
                 (load_ops(load) - ops) * 1000U / ms, totals.runs, ms, totals.alarms, totals.proved,
                 totals.buckets, totals.tries, totals.busy, seed);
    if (totals.alarms != 0) {
        die("false alarms: run it again with HOLDFAST_SEED=%" PRIu64, seed);
    }
    if (totals.proved < totals.busy) {
        die("fewer than half of the sums could be proved");
    }
}

static void find_planted(struct hf_segment *seg, uint32_t row)
{
    struct found found;
    struct totals totals = {0};

    plant(seg, row, 500);
    for (int try = 0; try < 20; try++) {
        check(seg, &found, &totals);
        if (found.cnt == 1) {
            break;
        }
        if (found.cnt > 1) {
            die("one thing was planted and %u are found", found.cnt);
        }
    }
    const struct hf_fsck_item *item = &found.items[0];

    if (found.cnt != 1 || item->kind != HF_FSCK_BUCKET_VALUE || item->row != row ||
        item->window != HF_WINDOW_MONTH || item->dimension != HF_DIM_COST ||
        item->window_id != hf_window_id(HF_WINDOW_MONTH, hf_clock_now_ms(seg)) ||
        item->found != item->expected + 500) {
        die("what was planted under load was not found as it is");
    }
}

/* ---- repair ------------------------------------------------------------------------------------------------------ */

static uint32_t count_lines(const char *path, const char *with)
{
    FILE *in = fopen(path, "re");
    char line[2048];
    uint32_t cnt = 0;

    while (in != NULL && fgets(line, sizeof(line), in) != NULL) {
        cnt += strstr(line, with) != NULL;
    }
    if (in != NULL) {
        (void)fclose(in);
    }
    return cnt;
}

/* at_least: changes that it must say; 0: none may be; -1: any. */
static void expect_repair(const struct place *place, int at_least, const char *when)
{
    char log[160];

    (void)snprintf(log, sizeof(log), "%s/fsck.log", place->folder);
    (void)remove(log);
    const char *const args[] = {"holdfast", "fsck", "--segment", place->segment, "--repair", NULL};
    int status = place_run(place, log, args);
    uint32_t mended = count_lines(log, "mended ");

    if (status != 0 || (at_least > 0 && mended < (uint32_t)at_least) || (at_least == 0 && mended != 0)) {
        die("%s: status %d, %u mended: see %s", when, status, mended, log);
    }
}

/* Damage of every kind that can be mended, on a segment at rest. */
static void wreck(struct hf_segment *seg, uint32_t row)
{
    plant(seg, row, 12345);
    for (uint32_t i = 0; i <= seg->heads_mask; i += 3) {
        seg->heads[i] = 0;
    }
    for (uint32_t i = 0; i < seg->slots_cnt; i += 7) {
        if (hf_st_state(seg->slots[i].slot_st) >= HF_STATE_HELD) {
            seg->slots[i].slot_claim = hf_ref_make(1, 1);
        }
    }
    for (uint32_t i = 0; i < seg->chunks_cnt; i += 5) {
        seg->chunks[i].chunk_free = ~0ULL;
    }
    seg->tenants[0].ten_applied += 9;
}

static void repair_with_kills(struct hf_segment *seg, const struct place *place, uint32_t row,
                              unsigned rounds)
{
    const char *const args[] = {"holdfast", "fsck", "--segment", place->segment, "--repair", NULL};
    char log[160];
    uint64_t random = seed * 2654435761U + 1U;
    uint32_t killed = 0;
    uint32_t within = 0;

    (void)snprintf(log, sizeof(log), "%s/fsck.log", place->folder);
    for (unsigned i = 0; i < rounds; i++) {
        wreck(seg, row);
        for (unsigned kills = 0; kills < 2; kills++) {
            random = random * 6364136223846793005ULL + 1442695040888963407ULL;
            /* The second begins on what the first has left: its state stands already. */
            killed += place_run_killed(place, log, args, seg,
                                       (unsigned)(random >> 40) % (kills == 0 ? 6000U : 60000U)) < 0;
            within += hf_load_acq_u32(&seg->header->hdr_state) == HF_SEGMENT_REPAIR;
        }
        expect_repair(place, -1, "a repair after kills");
        expect_clean(seg, "after a repair that was killed before");
        expect_repair(place, 0, "once more");
    }
    (void)printf("totals: %u repairs killed (%u of them within their work), each ended by the next one\n",
                 killed, within);
}

/* No daemon starts on a repair that was cut off; one goes on after it; and a segment made anew from the store is clean. */
static void go_on(struct hf_segment *seg, struct place *place)
{
    struct hf_error err;

    hf_segment_set_state(seg, HF_SEGMENT_REPAIR);
    place_spawn_daemon(place);
    if (place_end_of_daemon(place) != 2) {
        die("a daemon started on a repair that was cut off");
    }
    expect_repair(place, -1, "the repair of what was cut off");
    place_start_daemon(place);
    place_stop_daemon(place);
    expect_clean(seg, "after the daemon went on");
    hf_segment_detach(seg);
    (void)remove(place->segment);
    place_start_daemon(place);
    place_stop_daemon(place);
    if (hf_segment_attach(place->segment, seg, &err) != HF_OK) {
        die("%s", err.text);
    }
    expect_clean(seg, "after the segment was made anew from the store");
    expect_exact(seg, place);
}

int main(int argc, char **argv)
{
    const char *told = getenv("HOLDFAST_SEED");
    bool is_long = getenv("HOLDFAST_LONG") != NULL;
    struct hf_segment seg;
    struct hf_error err;
    struct place place;
    struct load load;

    if (argc != 3) {
        die("Usage: %s HOLDFAST HOLDFASTD", argv[0]);
    }
    seed = told != NULL ? strtoull(told, NULL, 10) : hf_clock_mono_ns() % 1000000U;
    (void)printf("seed %" PRIu64 " (HOLDFAST_SEED)\n", seed);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    place_make(&place, argv[1], argv[2]);
    place_start_daemon(&place);
    if (hf_segment_attach(place.segment, &seg, &err) != HF_OK) {
        die("%s", err.text);
    }
    uint32_t row = hf_policy_row(&seg, 1, "one", "a", NULL);

    load_start(&load, place.segment, seed, 25);
    watch(&seg, &place, &load, is_long ? 60 : 12);
    find_planted(&seg, row);
    load_stop(&load);
    place_stop_daemon(&place);
    expect_repair(&place, 1, "the repair of what was planted");
    expect_repair(&place, 0, "the second repair");
    expect_clean(&seg, "after the repair");
    expect_exact(&seg, &place);
    repair_with_kills(&seg, &place, row, is_long ? 25 : 5);
    expect_exact(&seg, &place);
    go_on(&seg, &place);
    hf_segment_detach(&seg);
    place_remove(&place);
    return 0;
}
