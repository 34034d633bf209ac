// The first benchmark: what a reserve+settle pair costs beside the bare `lock xadd` of its words, k = 2, one process.
//
// Each benchmark runs in batches whose ids are made, and whose slots are drained, outside of the measured time; only
// pair_resolved_thread has the drain beside it, on another processor. All repetitions are interleaved; the ratios
// are those of medians.
#include "bench/shim.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace
{

constexpr uint32_t kSlots = 4096;
constexpr uint32_t kSlotsThread = 65536; // what is known between two passes of the thread, and more
constexpr uint32_t kBatch = 1024;

hf_bench *inline_drained;
hf_bench *thread_drained;

// One batch an iteration. work and after return 0, or what went wrong.
template <typename Before, typename Work, typename After>
void run(benchmark::State &state, hf_bench *bench, Before before, Work work, After after)
{
    for (auto _ : state) {
        hf_bench_new_ids(bench, kBatch);
        before(bench);
        uint64_t start_ns = hf_bench_cpu_ns();
        int rc = work(bench);
        uint64_t ns = hf_bench_cpu_ns() - start_ns;
        if (rc == 0) {
            rc = after(bench);
        }
        if (rc != 0) {
            state.SkipWithError(("an operation or its drain answered " + std::to_string(rc)).c_str());
            return;
        }
        state.SetIterationTime(static_cast<double>(ns) * 1e-9);
    }
}

void nothing_before(hf_bench *)
{
}

int nothing_after(hf_bench *)
{
    return 0;
}

int drain_batch(hf_bench *bench)
{
    return hf_bench_drain(bench) == kBatch ? 0 : -100;
}

int resolved_batch(hf_bench *bench)
{
    return hf_bench_pairs(bench, HF_BENCH_RESOLVED, kBatch);
}

void bare(benchmark::State &state)
{
    auto work = [](hf_bench *bench) {
        hf_bench_bare(bench, kBatch);
        return 0;
    };
    run(state, inline_drained, nothing_before, work, nothing_after);
}

void pair_resolved(benchmark::State &state)
{
    run(state, inline_drained, nothing_before, resolved_batch, drain_batch);
}

void pair_names(benchmark::State &state)
{
    auto work = [](hf_bench *bench) { return hf_bench_pairs(bench, HF_BENCH_NAMES, kBatch); };
    run(state, inline_drained, nothing_before, work, drain_batch);
}

void pair_resolved_thread(benchmark::State &state)
{
    if (hf_bench_drain_start(thread_drained) != 0) {
        state.SkipWithError("no thread for the drain");
        return;
    }
    auto room = [](hf_bench *bench) { hf_bench_drain_wait(bench, kBatch); };
    run(state, thread_drained, room, resolved_batch, nothing_after);
    hf_bench_drain_stop(thread_drained);
}

void refusal(benchmark::State &state)
{
    auto work = [](hf_bench *bench) { return hf_bench_refusals(bench, kBatch); };
    run(state, inline_drained, nothing_before, work, nothing_after);
}

// Collects ns per operation of each repetition; prints where the run stands, and a table at the end.
class Table : public benchmark::BenchmarkReporter
{
  public:
    bool ReportContext(const Context &context) override
    {
        PrintBasicContext(&GetErrorStream(), context);
        return true;
    }

    void ReportRuns(const std::vector<Run> &runs) override
    {
        for (const Run &one : runs) {
            if (one.error_occurred) {
                std::fprintf(stderr, "%s: %s\n", one.benchmark_name().c_str(), one.error_message.c_str());
                failed_ = true;
            } else if (one.run_type == Run::RT_Iteration) {
                double ns = one.real_accumulated_time * 1e9 / static_cast<double>(one.iterations) / kBatch;
                ns_[one.run_name.function_name].push_back(ns);
            }
        }
    }

    // Ratios to bare: of medians, and of the best repetitions, which other programs disturbed least.
    void line(const char *name, const char *text)
    {
        if (ns_[name].empty()) {
            return;
        }
        double ns = median(name);
        double least = ns_[name].front();
        double most = ns_[name].back();
        std::printf("%-48s %9.1f %9.1f %9.1f", text, ns, least, most);
        if (!ns_["bare"].empty()) {
            double floor = median("bare");
            std::printf(" %8.2f %8.2f", ns / floor, least / ns_["bare"].front());
        }
        std::printf("\n");
    }

    bool failed() const
    {
        return failed_;
    }

  private:
    double median(const char *name)
    {
        std::vector<double> &all = ns_[name];
        std::sort(all.begin(), all.end());
        return all[all.size() / 2];
    }

    std::map<std::string, std::vector<double>> ns_;
    bool failed_ = false;
};

bool told(const std::vector<std::string> &args, const std::string &flag)
{
    return std::any_of(args.begin(), args.end(),
                       [&](const std::string &arg) { return arg.rfind(flag, 0) == 0; });
}

hf_bench *opened(uint32_t slots)
{
    char error[512] = "";
    hf_bench *bench = hf_bench_open(slots, error, sizeof(error));
    if (bench == nullptr) {
        std::fprintf(stderr, "bench_pair: %s\n", error);
    }
    return bench;
}

} // namespace

BENCHMARK(bare)->UseManualTime();
BENCHMARK(pair_resolved)->UseManualTime();
BENCHMARK(pair_names)->UseManualTime();
BENCHMARK(pair_resolved_thread)->UseManualTime();
BENCHMARK(refusal)->UseManualTime();

int main(int argc, char **argv)
{
    std::vector<std::string> args(argv, argv + argc);
    if (!told(args, "--benchmark_repetitions")) {
        args.emplace_back("--benchmark_repetitions=21");
    }
    if (!told(args, "--benchmark_enable_random_interleaving")) {
        args.emplace_back("--benchmark_enable_random_interleaving=true");
    }
    if (!told(args, "--benchmark_min_time")) {
        args.emplace_back("--benchmark_min_time=0.1");
    }
    std::vector<char *> raw;
    for (std::string &arg : args) {
        raw.push_back(arg.data());
    }
    int count = static_cast<int>(raw.size());
    benchmark::Initialize(&count, raw.data());
    if (benchmark::ReportUnrecognizedArguments(count, raw.data())) {
        return 2;
    }
    inline_drained = opened(kSlots);
    thread_drained = opened(kSlotsThread);
    if (inline_drained == nullptr || thread_drained == nullptr) {
        return 2;
    }
    Table table;
    benchmark::RunSpecifiedBenchmarks(&table);

    std::printf("%-48s %9s %9s %9s %8s %8s\n", "k = 2, one process; ns of this thread", "median", "min",
                "max", "x bare", "x (min)");
    table.line("bare", "bare lock xadd: 2 words at reserve, 2 at settle");
    table.line("pair_resolved", "pair, resolved path and hold token");
    table.line("pair_names", "pair, names and id in each call");
    table.line("pair_resolved_thread", "pair, resolved, drained by a thread beside it");
    table.line("refusal", "refusal, resolved path");
    uint64_t pairs = hf_bench_settled_cnt(inline_drained) + hf_bench_settled_cnt(thread_drained);
    uint64_t mismatches = hf_bench_mismatches(inline_drained) + hf_bench_mismatches(thread_drained);
    std::printf("mismatches, buckets against slots, after %llu pairs: %llu\n",
                static_cast<unsigned long long>(pairs), static_cast<unsigned long long>(mismatches));
    hf_bench_close(inline_drained);
    hf_bench_close(thread_drained);
    return mismatches == 0 && !table.failed() ? 0 : 1;
}
