// What the programs on Google Benchmark share: worlds with one worker, a loop of batches in the time of its thread, and a
// reporter that keeps every repetition for a table at the end.
#ifndef HF_BENCH_TABLE_H
#define HF_BENCH_TABLE_H

#include "bench/operations.h"

#include <benchmark/benchmark.h>

#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace hf_table
{

constexpr uint32_t kBatch = 1024; // operations of an iteration

// A world and its one worker; beside: drained by a thread, where it has room for what is known between two of its passes.
class Place
{
  public:
    Place(uint32_t k, uint32_t tenants, bool beside);
    ~Place();
    Place(const Place &) = delete;
    Place &operator=(const Place &) = delete;

    // Iterations of one operation in the time of this thread. Stops the benchmark with an error.
    void run(benchmark::State &state, const hf_operation &operation);
    uint64_t mismatches();
    uint64_t drained() const;

  private:
    hf_world *world_;
    hf_worker *worker_;
    bool beside_;
    std::thread drain_;
};

// The floor: `lock xadd` on k words.
void bare(benchmark::State &state, uint32_t k);

// Collects ns of an operation of each repetition by the benchmark's name; prints where the run stands.
class Table : public benchmark::BenchmarkReporter
{
  public:
    bool ReportContext(const Context &context) override;
    void ReportRuns(const std::vector<Run> &runs) override;

    bool has(const std::string &name) const;
    double median(const std::string &name) const;
    double least(const std::string &name) const;
    double most(const std::string &name) const;
    bool failed() const
    {
        return failed_;
    }

  private:
    std::map<std::string, std::vector<double>> ns_; // sorted
    bool failed_ = false;
};

// Arguments for Google Benchmark, with ours where the caller has none. False: one is unknown.
bool initialize(int argc, char **argv, const std::vector<std::string> &defaults);

// Runs what the arguments choose. False: that is nothing; says so in the program's name.
bool run(Table &table, const char *program);

} // namespace hf_table

#endif
