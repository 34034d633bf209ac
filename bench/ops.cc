// What each operation costs, with 1, 2, 4 and 8 buckets on its path, on one hot tenant and on a thousand in random order; and the
// floor of each k. One thread; bench_processes has more.
//
// Names are <operation>/k:<k>/<hot|spread|beside>, and bare/k:<k>. --benchmark_filter takes a regular expression over them.
#include "bench/table.h"

#include <cstdio>
#include <memory>

namespace
{

constexpr uint32_t kTenants = 1000;
constexpr uint32_t kKs[] = {1, 2, 4, 8};

std::string name_of(const char *operation, uint32_t k, const char *tenants)
{
    return std::string(operation) + "/k:" + std::to_string(k) + "/" + tenants;
}

// Worlds are made when the first of their benchmarks runs: a filter may leave most of them out.
class Places
{
  public:
    hf_table::Place &at(uint32_t k, const std::string &tenants)
    {
        std::unique_ptr<hf_table::Place> &place = places_[{k, tenants}];
        if (place == nullptr) {
            place =
                std::make_unique<hf_table::Place>(k, tenants == "spread" ? kTenants : 1, tenants == "beside");
        }
        return *place;
    }

    uint64_t mismatches()
    {
        uint64_t all = 0;
        for (auto &one : places_) {
            all += one.second->mismatches();
        }
        return all;
    }

    uint64_t drained() const
    {
        uint64_t all = 0;
        for (const auto &one : places_) {
            all += one.second->drained();
        }
        return all;
    }

  private:
    std::map<std::pair<uint32_t, std::string>, std::unique_ptr<hf_table::Place>> places_;
};

void add(Places *places, const hf_operation *operation, uint32_t k, const char *tenants)
{
    benchmark::RegisterBenchmark(name_of(operation->name, k, tenants).c_str(), [=](benchmark::State &state) {
        places->at(k, tenants).run(state, *operation);
    })->UseManualTime();
}

void add_all(Places *places)
{
    for (uint32_t k : kKs) {
        benchmark::RegisterBenchmark(("bare/k:" + std::to_string(k)).c_str(), [=](benchmark::State &state) {
            hf_table::bare(state, k);
        })->UseManualTime();
        for (uint32_t i = 0; i < hf_operations_cnt; i++) {
            add(places, &hf_operations[i], k, "hot");
            add(places, &hf_operations[i], k, "spread");
        }
        add(places, hf_operation_find("pair"), k, "beside");
    }
}

// A line of the table: median and best of each k.
void line(const hf_table::Table &table, const char *text, const char *operation, const char *tenants)
{
    bool any = false;
    std::string out;
    for (uint32_t k : kKs) {
        std::string name = tenants[0] == '\0' ? std::string(operation) + "/k:" + std::to_string(k)
                                              : name_of(operation, k, tenants);
        char cell[64] = "";
        if (table.has(name)) {
            std::snprintf(cell, sizeof(cell), "%8.1f %7.1f ", table.median(name), table.least(name));
            any = true;
        }
        out += std::string(17 - std::min<size_t>(17, std::string(cell).size()), ' ') + cell;
    }
    if (any) {
        std::printf("%-38s%s\n", text, out.c_str());
    }
}

void goal(const hf_table::Table &table, const char *text, const std::string &a, const std::string &b,
          double most)
{
    if (table.has(a) && table.has(b)) {
        double median = table.median(a) / table.median(b);
        double least = table.least(a) / table.least(b);
        std::printf("%-60s %6.2f, of the best %6.2f; goal %4.2f: %s\n", text, median, least, most,
                    median <= most  ? "reached"
                    : least <= most ? "reached by the best alone"
                                    : "NOT reached");
    }
}

void print(const hf_table::Table &table)
{
    std::printf("ns of this thread, median and best%22s", "");
    for (uint32_t k : kKs) {
        std::printf("%s = %u        ", k == 1 ? "k" : "     k", k);
    }
    std::printf("\n");
    line(table, "bare lock xadd of k words, twice", "bare", "");
    for (const char *tenants : {"hot", "spread", "beside"}) {
        std::printf("%s\n", tenants[0] == 'h'   ? "one tenant"
                            : tenants[0] == 's' ? "1000 tenants, in random order"
                                                : "one tenant, drained by a thread beside it");
        for (uint32_t i = 0; i < hf_operations_cnt; i++) {
            line(table, (std::string("  ") + hf_operations[i].text).c_str(), hf_operations[i].name, tenants);
        }
    }
    goal(table, "a refusal to an admitted reserve, k = 2", "refusal/k:2/hot", "reserve/k:2/hot", 0.25);
    goal(table, "a pair to bare lock xadd of its words, k = 2", "pair/k:2/hot", "bare/k:2", 6);
}

} // namespace

int main(int argc, char **argv)
{
    if (!hf_table::initialize(argc, argv,
                              {"--benchmark_repetitions=9", "--benchmark_enable_random_interleaving=true",
                               "--benchmark_min_time=0.02"})) {
        return 2;
    }
    Places places;
    add_all(&places);
    hf_table::Table table;
    if (!hf_table::run(table, "bench_ops")) {
        return 2;
    }
    print(table);
    uint64_t mismatches = places.mismatches();
    std::printf("mismatches, buckets against slots, after %llu reservations: %llu\n",
                static_cast<unsigned long long>(places.drained()),
                static_cast<unsigned long long>(mismatches));
    return mismatches == 0 && !table.failed() ? 0 : 1;
}
