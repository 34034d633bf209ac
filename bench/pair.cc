// The first benchmark: what a reserve+settle pair costs beside the bare `lock xadd` of its words, k = 2, one process.
//
// Each benchmark runs in batches whose ids are made, and whose slots are drained, outside of the measured time; only
// pair_resolved_thread has the drain beside it, on another processor. All repetitions are interleaved; the ratios
// are those of medians.
#include "bench/table.h"

#include <cstdio>

namespace
{

// Ratios to bare: of medians, and of the best repetitions, which other programs disturbed least.
void line(const hf_table::Table &table, const char *name, const char *text)
{
    if (!table.has(name)) {
        return;
    }
    std::printf("%-48s %9.1f %9.1f %9.1f", text, table.median(name), table.least(name), table.most(name));
    if (table.has("bare")) {
        std::printf(" %8.2f %8.2f", table.median(name) / table.median("bare"),
                    table.least(name) / table.least("bare"));
    }
    std::printf("\n");
}

} // namespace

int main(int argc, char **argv)
{
    if (!hf_table::initialize(argc, argv,
                              {"--benchmark_repetitions=21", "--benchmark_enable_random_interleaving=true",
                               "--benchmark_min_time=0.1"})) {
        return 2;
    }
    hf_table::Place between(2, 1, false);
    hf_table::Place beside(2, 1, true);
    auto add = [](const char *name, hf_table::Place *place, const char *operation) {
        benchmark::RegisterBenchmark(name, [=](benchmark::State &state) {
            place->run(state, *hf_operation_find(operation));
        })->UseManualTime();
    };
    benchmark::RegisterBenchmark("bare", [](benchmark::State &state) {
        hf_table::bare(state, 2);
    })->UseManualTime();
    add("pair_resolved", &between, "pair");
    add("pair_names", &between, "pair_names");
    add("pair_resolved_thread", &beside, "pair");
    add("refusal", &between, "refusal");
    hf_table::Table table;
    if (!hf_table::run(table, "bench_pair")) {
        return 2;
    }

    std::printf("%-48s %9s %9s %9s %8s %8s\n", "k = 2, one process; ns of this thread", "median", "min",
                "max", "x bare", "x (min)");
    line(table, "bare", "bare lock xadd: 2 words at reserve, 2 at settle");
    line(table, "pair_resolved", "pair, resolved path and hold token");
    line(table, "pair_names", "pair, names and id in each call");
    line(table, "pair_resolved_thread", "pair, resolved, drained by a thread beside it");
    line(table, "refusal", "refusal, resolved path");
    uint64_t mismatches = between.mismatches() + beside.mismatches();
    std::printf("mismatches, buckets against slots, after %llu pairs: %llu\n",
                static_cast<unsigned long long>(between.drained() + beside.drained()),
                static_cast<unsigned long long>(mismatches));
    return mismatches == 0 && !table.failed() ? 0 : 1;
}
