#include "bench/processes.h"

#include "shm/atomic.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- counting ------------------------------------------------------------------------------------------------------------- */

/* A second of measured time is full: how far the slowest stayed behind in it. */
static void close_second(struct hf_run *run)
{
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;

    for (uint32_t i = 0; i < run->workers; i++) {
        uint64_t pairs = run->board->seats[i].second_pairs;

        least = pairs < least ? pairs : least;
        most = pairs > most ? pairs : most;
        run->board->seats[i].second_pairs = 0;
    }
    double ratio = most == 0 ? 0 : (double)least / (double)most;

    run->worst_second = run->seconds_cnt == 0 || ratio < run->worst_second ? ratio : run->worst_second;
    run->seconds_cnt++;
    run->second_ns = 0;
}

void hf_run_account(struct hf_run *run, enum hf_round kind)
{
    struct hf_board *board = run->board;
    uint64_t end_ns = 0;
    uint64_t pairs = 0;

    for (uint32_t i = 0; i < run->workers; i++) {
        end_ns = board->seats[i].end_ns > end_ns ? board->seats[i].end_ns : end_ns;
        pairs += board->seats[i].round_pairs;
    }
    if (kind == HF_ROUND_THROUGHPUT) {
        uint64_t wall_ns = end_ns - board->start_ns;

        if (run->rounds < HF_RUN_ROUNDS && wall_ns > 0) {
            run->rates[run->rounds] = (float)((double)pairs * 1e9 / (double)wall_ns);
        }
        run->rounds++;
        run->wall_ns += wall_ns;
        run->second_ns += wall_ns;
        if (run->second_ns >= 1000000000U) {
            close_second(run);
        }
    }
    run->rounds_left--;
    if (run->rounds_left == 0 || (double)run->wall_ns >= run->seconds * 1e9 ||
        hf_load_rlx_u32(&board->failed) != 0) { /* relaxed: the barrier before orders it */
        hf_store_rel_u32(&board->quit, 1);
    }
}

/* ---- figures -------------------------------------------------------------------------------------------------------------- */

struct figures {
    uint64_t pairs;
    double pairs_per_s;
    double median_per_s; /* of the rounds */
    double best_per_s;
    double slower_of_faster; /* pairs of the slowest worker to those of the fastest */
    double cpu_ns;           /* of processor time for each pair */
    struct hf_histogram_summary latency;
};

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;

    return x < y ? -1 : x > y;
}

static void rates(const struct hf_run *run, struct figures *f)
{
    uint32_t cnt = run->rounds < HF_RUN_ROUNDS ? run->rounds : HF_RUN_ROUNDS;
    float *sorted = calloc(cnt + 1U, sizeof(*sorted));

    f->median_per_s = f->best_per_s = 0;
    if (sorted == NULL || cnt == 0) {
        free(sorted);
        return;
    }
    for (uint32_t i = 0; i < cnt; i++) {
        sorted[i] = run->rates[i];
    }
    qsort(sorted, cnt, sizeof(*sorted), by_value);
    f->median_per_s = (double)sorted[cnt / 2];
    f->best_per_s = (double)sorted[cnt - 1];
    free(sorted);
}

static void gather(const struct hf_run *run, struct figures *f)
{
    struct hf_histogram *all = calloc(1, sizeof(*all));
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    uint64_t cpu_ns = 0;

    *f = (struct figures){0};
    for (uint32_t i = 0; i < run->workers; i++) {
        const struct hf_board_seat *seat = &run->board->seats[i];

        f->pairs += seat->pairs;
        cpu_ns += seat->cpu_ns;
        least = seat->pairs < least ? seat->pairs : least;
        most = seat->pairs > most ? seat->pairs : most;
        if (all != NULL) {
            hf_histogram_merge(all, &seat->histogram);
        }
    }
    if (all != NULL) {
        f->latency = hf_histogram_summary(all);
    }
    free(all);
    if (f->pairs > 0) {
        f->pairs_per_s = (double)f->pairs * 1e9 / (double)run->wall_ns;
        f->cpu_ns = (double)cpu_ns / (double)f->pairs;
        f->slower_of_faster = (double)least / (double)most;
    }
    rates(run, f);
}

/* ---- printing ------------------------------------------------------------------------------------------------------------- */

static const char *const tenants_words[] = {"one", "own", "spread"};
static const char *const drain_words[] = {"between", "beside", "none"};

static void placement(const struct hf_run *run, char *text, size_t bytes)
{
    uint32_t used = run->workers < run->cores ? run->workers : run->cores;

    (void)snprintf(text, bytes, "%u %s%s on %u of %u cores", run->workers,
                   run->threads ? "thread" : "process",
                   run->workers == 1 ? ""
                   : run->threads    ? "s"
                                     : "es",
                   used, run->cores);
}

static void print_json(const struct hf_run *run, const struct figures *f, const char *place)
{
    (void)printf(
        "{\"peer\":\"holdfast\",\"processes\":%u,\"placement\":\"%s\",\"tenants\":\"%s\",\"k\":%u,\"pairs\":%" PRIu64
        ",\"seconds\":%.3f,\"pairs_per_s\":%.0f,\"p50_ns\":%" PRIu64 ",\"p99_ns\":%" PRIu64
        ",\"p999_ns\":%" PRIu64 ",\"max_ns\":%" PRIu64 ",\"slower_of_faster\":%.3f,\"mismatches\":%" PRIu64
        ",\"kind\":\"%s\",\"drain\":\"%s\",\"ids\":\"%s\",\"round\":%u,\"median_round_pairs_per_s\":%.0f,\"best_round_pairs_per_s\":%.0f,"
        "\"worst_second\":%.3f,\"cpu_ns_per_pair\":%.1f}\n",
        run->workers, place, tenants_words[run->tenants], run->k, f->pairs, (double)run->wall_ns / 1e9,
        f->pairs_per_s, f->latency.p50_ns, f->latency.p99_ns, f->latency.p999_ns, f->latency.max_ns,
        f->slower_of_faster, run->mismatches, run->threads ? "threads" : "processes", drain_words[run->drain],
        run->ids_apart ? "apart" : "any", run->round, f->median_per_s, f->best_per_s,
        run->seconds_cnt > 0 ? run->worst_second : f->slower_of_faster, f->cpu_ns);
}

void hf_run_print(const struct hf_run *run)
{
    struct figures f;
    char place[64];

    gather(run, &f);
    placement(run, place, sizeof(place));
    if (run->json) {
        print_json(run, &f, place);
        return;
    }
    (void)printf("%s, tenants %s (%u), k = %u, drain %s, rounds of up to %u pairs a worker\n", place,
                 tenants_words[run->tenants], run->tenants_cnt, run->k, drain_words[run->drain], run->round);
    (void)printf("  throughput  %.0f pairs/s over %.3f s in %u rounds, %" PRIu64
                 " pairs; median round %.0f, best %.0f\n",
                 f.pairs_per_s, (double)run->wall_ns / 1e9, run->rounds, f.pairs, f.median_per_s,
                 f.best_per_s);
    (void)printf("  a pair      %.1f ns of each worker's wall, %.1f ns of processor time\n",
                 f.pairs_per_s > 0 ? (double)run->workers * 1e9 / f.pairs_per_s : 0, f.cpu_ns);
    (void)printf("  latency     p50 %" PRIu64 "  p99 %" PRIu64 "  p99.9 %" PRIu64 "  max %" PRIu64
                 " ns (%" PRIu64 " pairs of their own rounds, with one look at the clock each)\n",
                 f.latency.p50_ns, f.latency.p99_ns, f.latency.p999_ns, f.latency.max_ns, f.latency.cnt);
    if (run->workers > 1) {
        (void)printf("  fairness    slowest of fastest worker %.3f in all", f.slower_of_faster);
        if (run->seconds_cnt > 0) {
            (void)printf(", %.3f in the worst of %u seconds", run->worst_second, run->seconds_cnt);
        }
        (void)printf("\n");
    }
    (void)printf("  mismatches, buckets against slots: %" PRIu64 "\n", run->mismatches);
}
