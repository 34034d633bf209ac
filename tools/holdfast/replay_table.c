#include "tools/holdfast/replay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void add_stats(struct hf_replay_stats *sum, const struct hf_replay_stats *one)
{
    sum->requests += one->requests;
    sum->admitted += one->admitted;
    sum->degraded += one->degraded;
    sum->settled += one->settled;
    sum->disputed += one->disputed;
    sum->lost += one->lost;
    sum->held_tokens += one->held_tokens;
    sum->held_micros += one->held_micros;
    sum->settled_tokens += one->settled_tokens;
    sum->settled_micros += one->settled_micros;
    for (int reason = 0; reason < HOLDFAST_REASON_CNT; reason++) {
        for (int layer = 0; layer < 5; layer++) {
            sum->refused[reason][layer] += one->refused[reason][layer];
        }
    }
    hf_histogram_merge(&sum->reserve_ns, &one->reserve_ns);
    hf_histogram_merge(&sum->settle_ns, &one->settle_ns);
}

static uint64_t refused_cnt(const struct hf_replay_stats *stats)
{
    uint64_t sum = 0;
    for (int reason = 0; reason < HOLDFAST_REASON_CNT; reason++) {
        for (int layer = 0; layer < 5; layer++) {
            sum += stats->refused[reason][layer];
        }
    }
    return sum;
}

void hf_replay_progress(const struct hf_replay_run *run, uint64_t elapsed_ns)
{
    uint64_t requests = 0;
    uint64_t admitted = 0;
    uint64_t refused = 0;
    for (uint32_t i = 0; i < run->options.workers; i++) {
        requests += run->shared->stats[i].requests;
        admitted += run->shared->stats[i].admitted;
        refused += refused_cnt(&run->shared->stats[i]);
    }
    (void)fprintf(stderr,
                  "%5" PRIu64 " s  rows %" PRIu64 " of %" PRIu64 "  admitted %" PRIu64 "  refused %" PRIu64
                  "  killed: workers %" PRIu64 ", daemon %" PRIu64 "\n",
                  elapsed_ns / 1000000000, requests, run->plan.rows_cnt, admitted, refused,
                  run->workers_killed, run->daemons_killed);
}

static void print_refusals(const struct hf_replay_stats *stats)
{
    static const char *const layers[5] = {"-", "request", "key", "team", "tenant"};
    for (int reason = 0; reason < HOLDFAST_REASON_CNT; reason++) {
        for (int layer = 0; layer < 5; layer++) {
            if (stats->refused[reason][layer] != 0) {
                (void)printf("  refused   %-8s %-20s %12" PRIu64 "\n", layers[layer],
                             holdfast_reason_name(reason), stats->refused[reason][layer]);
            }
        }
    }
}

static void print_latency(const char *what, const struct hf_histogram *histogram)
{
    struct hf_histogram_summary s = hf_histogram_summary(histogram);
    (void)printf("  %-9s p50 %8" PRIu64 " ns   p99 %8" PRIu64 " ns   p99.9 %9" PRIu64 " ns   max %10" PRIu64
                 " ns\n",
                 what, s.p50_ns, s.p99_ns, s.p999_ns, s.max_ns);
}

static void print_amounts(const struct hf_replay_stats *stats, const struct hf_replay_account *account)
{
    (void)printf("  held      tokens %16" PRIu64 "   micros %16" PRIu64 "\n", stats->held_tokens,
                 stats->held_micros);
    (void)printf("  settled   tokens %16" PRIu64 "   micros %16" PRIu64 "\n", stats->settled_tokens,
                 stats->settled_micros);
    (void)printf("  charged   tokens %16" PRId64 "   micros %16" PRId64 "   (receipts of this run)\n",
                 account->charged_tokens, account->charged_micros);
    (void)printf(
        "  open      tokens %16" PRIu64 "   micros %16" PRIu64 "   in %" PRIu64 " holds of the segment\n",
        account->reconcile.open_tokens, account->reconcile.open_cost_micros, account->reconcile.open_cnt);
}

static void print_account(const struct hf_replay_account *account)
{
    (void)printf("Account\n");
    (void)printf("  buckets against open slots + charged receipts  %8" PRIu64 " compared  %8" PRIu64
                 " wrong\n",
                 account->reconcile.buckets_cnt, account->reconcile.mismatches_cnt);
    (void)printf("  written down by a worker, not in the store     %27" PRIu64 "\n", account->missing);
    (void)printf("  twice in the store, or held though refused     %27" PRIu64 "\n", account->twice);
    (void)printf("  settled to another amount than the row         %27" PRIu64 "\n", account->wrong_amounts);
    (void)printf("  rows missing from their batch                  %27" PRIu64 "\n",
                 account->totals.batch_rows_cnt - account->totals.receipts_cnt);
    (void)printf("  conflicts and rows put aside                   %27" PRIu64 "\n",
                 account->totals.conflicts_cnt + account->totals.aside_cnt);
    for (int i = 0; i < HF_RECONCILE_TEXTS && account->reconcile.texts[i][0] != '\0'; i++) {
        (void)printf("    %s\n", account->reconcile.texts[i]);
    }
    (void)printf("mismatch %" PRIu64 "\n", account->mismatches);
}

void hf_replay_table(const struct hf_replay_run *run, const struct hf_replay_account *account,
                     uint64_t elapsed_ns)
{
    struct hf_replay_stats *sum = calloc(1, sizeof *sum);
    if (sum == NULL) {
        return;
    }
    for (uint32_t i = 0; i < run->options.workers; i++) {
        add_stats(sum, &run->shared->stats[i]);
    }
    (void)printf("Replay of %s: %" PRIu64 " rows (%" PRIu64 " malformed, skipped), %" PRIu32
                 " workers, %" PRIu64 ".%03" PRIu64 " s, killed: workers %" PRIu64 ", daemon %" PRIu64 "\n",
                 run->options.trace, run->plan.rows_cnt, run->plan.skipped_cnt, run->options.workers,
                 elapsed_ns / 1000000000, elapsed_ns / 1000000 % 1000, run->workers_killed,
                 run->daemons_killed);
    (void)printf("  requests  %42" PRIu64 "\n", sum->requests);
    (void)printf("  admitted  %42" PRIu64 "\n", sum->admitted);
    (void)printf("  degraded  %42" PRIu64 "\n", sum->degraded);
    print_refusals(sum);
    (void)printf("  settled   %42" PRIu64 "\n", sum->settled);
    (void)printf("  disputed  %42" PRIu64 "\n", sum->disputed);
    (void)printf("  no answer %42" PRIu64 "\n", sum->lost);
    print_amounts(sum, account);
    print_latency("reserve", &sum->reserve_ns);
    print_latency("settle", &sum->settle_ns);
    (void)printf("Store\n");
    (void)printf("  reservations %" PRIu64 " (%" PRIu64
                 " of workers killed before they wrote it down), settlements %" PRIu64
                 ", expired or retained %" PRIu64 "\n",
                 account->reservations, account->unwritten, account->settlements, account->expiries);
    print_account(account);
    free(sum);
}
