#include "bench/table.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace hf_table
{

namespace
{

constexpr uint32_t kSlots = 4096;
constexpr uint32_t kSlotsBeside = 65536; // what is known between two passes of the thread, and more

// The benchmarks of one program share the words of the floor.
struct alignas(128) Words {
    uint64_t words[8 * 16];
} floor_words;

[[noreturn]] void die(const char *what)
{
    std::fprintf(stderr, "bench: %s\n", what);
    std::exit(2);
}

} // namespace

Place::Place(uint32_t k, uint32_t tenants, bool beside) : beside_(beside)
{
    char error[512] = "";
    hf_world_plan plan{};
    plan.tenants = tenants;
    plan.k = k;
    plan.slots = beside ? kSlotsBeside : kSlots;
    plan.workers = 1;
    plan.refusals = 1;
    hf_worker_plan work{};
    work.batch = kBatch;
    work.tenants = tenants == 1 ? HF_WORKER_ONE : HF_WORKER_SPREAD;
    work.seed = 42;
    world_ = hf_world_make(&plan, error, sizeof(error));
    worker_ = world_ == nullptr ? nullptr : hf_worker_join(world_, &work, error, sizeof(error));
    if (worker_ == nullptr) {
        die(error);
    }
}

Place::~Place()
{
    hf_worker_leave(worker_);
    hf_world_free(world_);
}

void Place::run(benchmark::State &state, const hf_operation &operation)
{
    if (beside_) {
        drain_ = std::thread(hf_world_drain_loop, world_);
    }
    for (auto _ : state) {
        hf_worker_prepare(worker_, kBatch);
        if (beside_) {
            hf_world_wait_room(world_, kBatch);
        }
        int rc = operation.before == nullptr ? 0 : operation.before(worker_, kBatch);
        uint64_t start_ns = hf_worker_cpu_ns();
        rc = rc != 0 ? rc : operation.run(worker_, kBatch);
        uint64_t ns = hf_worker_cpu_ns() - start_ns;
        rc = rc != 0 ? rc : operation.after(world_, worker_, kBatch, beside_ ? 1 : 0);
        if (rc != 0) {
            state.SkipWithError(("an operation or its drain answered " + std::to_string(rc)).c_str());
            break;
        }
        state.SetIterationTime(static_cast<double>(ns) * 1e-9);
    }
    if (beside_) {
        hf_world_drain_stop(world_);
        drain_.join();
    }
}

uint64_t Place::mismatches()
{
    return hf_world_mismatches(world_);
}

uint64_t Place::drained() const
{
    return hf_world_drained_cnt(world_);
}

void bare(benchmark::State &state, uint32_t k)
{
    for (auto _ : state) {
        uint64_t start_ns = hf_worker_cpu_ns();
        hf_worker_bare(floor_words.words, k, kBatch);
        state.SetIterationTime(static_cast<double>(hf_worker_cpu_ns() - start_ns) * 1e-9);
    }
}

bool Table::ReportContext(const Context &context)
{
    PrintBasicContext(&GetErrorStream(), context);
    return true;
}

void Table::ReportRuns(const std::vector<Run> &runs)
{
    for (const Run &one : runs) {
        if (one.error_occurred) {
            std::fprintf(stderr, "%s: %s\n", one.benchmark_name().c_str(), one.error_message.c_str());
            failed_ = true;
        } else if (one.run_type == Run::RT_Iteration) {
            double ns = one.real_accumulated_time * 1e9 / static_cast<double>(one.iterations) / kBatch;
            std::vector<double> &all = ns_[one.run_name.function_name];
            all.insert(std::upper_bound(all.begin(), all.end(), ns), ns);
        }
    }
}

bool Table::has(const std::string &name) const
{
    return ns_.count(name) != 0;
}

double Table::median(const std::string &name) const
{
    const std::vector<double> &all = ns_.at(name);
    return all[all.size() / 2];
}

double Table::least(const std::string &name) const
{
    return ns_.at(name).front();
}

double Table::most(const std::string &name) const
{
    return ns_.at(name).back();
}

bool initialize(int argc, char **argv, const std::vector<std::string> &defaults)
{
    std::vector<std::string> args(argv, argv + argc);
    for (const std::string &one : defaults) {
        std::string flag = one.substr(0, one.find('=') + 1);
        if (std::none_of(args.begin(), args.end(),
                         [&](const std::string &arg) { return arg.rfind(flag, 0) == 0; })) {
            args.push_back(one);
        }
    }
    static std::vector<std::string> kept; // Google Benchmark keeps the pointers
    kept = args;
    std::vector<char *> raw;
    for (std::string &arg : kept) {
        raw.push_back(arg.data());
    }
    int count = static_cast<int>(raw.size());
    benchmark::Initialize(&count, raw.data());
    return !benchmark::ReportUnrecognizedArguments(count, raw.data());
}

bool run(Table &table, const char *program)
{
    if (benchmark::RunSpecifiedBenchmarks(&table) != 0) {
        return true;
    }
    std::fprintf(
        stderr,
        "%s: nothing was measured: no benchmark fits the filter; --benchmark_list_tests=true lists them\n",
        program);
    return false;
}

} // namespace hf_table
