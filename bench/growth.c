/* How cost and memory grow: pairs over 10, 1,000 and 100,000 tenants, bytes for each of them; pairs with 1,000 to 1,000,000 slots
 * that are nearly all taken, and the chains of the id index then.
 *
 *     bench_growth [ROUNDS [TENANTS SLOTS]]      the most of both; exit status 1 when a bucket is wrong or an operation failed */
#include "bench/operations.h"
#include "bench/world_impl.h"
#include "shm/commit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH      1024U
#define TURN       8U /* batches of a world in a round; the first one warms up */
#define ROUNDS_MAX 99U
#define GOAL       1.5
#define SIZES      4U
#define CHAINS     16U

/* A world of some size, and what its batches took. */
struct size {
    uint32_t cnt; /* tenants, or slots */
    uint32_t batch;
    struct hf_world *world;
    struct hf_worker *worker;
    double ns[ROUNDS_MAX * TURN];
    uint32_t ns_cnt;
};

_Noreturn static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_growth: %s: %s\n", what, why);
    exit(1);
}

static void open_world(struct size *size, uint32_t tenants, uint32_t slots, uint32_t worker_batch)
{
    const struct hf_world_plan plan = {.tenants = tenants, .k = 2, .slots = slots, .workers = 1};
    const struct hf_worker_plan work = {.batch = worker_batch, .tenants = HF_WORKER_SPREAD, .seed = 42};
    char error[512] = "";

    size->world = hf_world_make(&plan, error, sizeof(error));
    size->worker = size->world == NULL ? NULL : hf_worker_join(size->world, &work, error, sizeof(error));
    if (size->worker == NULL) {
        die("a world", error);
    }
}

static uint64_t close_world(struct size *size)
{
    uint64_t mismatches = hf_world_mismatches(size->world);

    hf_worker_leave(size->worker);
    hf_world_free(size->world);
    return mismatches;
}

/* ---- measuring ------------------------------------------------------------------------------------------------------------- */

static void turn(struct size *size, const struct hf_operation *operation)
{
    for (uint32_t i = 0; i < TURN; i++) {
        hf_worker_prepare(size->worker, size->batch);
        uint64_t start_ns = hf_worker_cpu_ns();
        int rc = operation->run(size->worker, size->batch);
        uint64_t ns = hf_worker_cpu_ns() - start_ns;
        if (rc != 0 || operation->after(size->world, size->worker, size->batch, 0) != 0) {
            die(operation->name, "it failed");
        }
        if (i > 0) {
            size->ns[size->ns_cnt++] = (double)ns / size->batch;
        }
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Rounds of all sizes in turn; then medians, the best twentieth, and their ratio to the first size. */
static void measure(struct size *sizes, uint32_t cnt, const char *name, uint32_t rounds)
{
    const struct hf_operation *operation = hf_operation_find(name);

    for (uint32_t i = 0; i < cnt; i++) {
        sizes[i].ns_cnt = 0;
    }
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < cnt; i++) {
            turn(&sizes[i], operation);
        }
    }
    (void)printf("  %-38s", operation->text);
    for (uint32_t i = 0; i < cnt; i++) {
        qsort(sizes[i].ns, sizes[i].ns_cnt, sizeof(double), by_value);
        (void)printf(" %8.1f %7.1f", sizes[i].ns[sizes[i].ns_cnt / 2], sizes[i].ns[sizes[i].ns_cnt / 20]);
    }
    double ratio = sizes[cnt - 1].ns[sizes[cnt - 1].ns_cnt / 2] / sizes[0].ns[sizes[0].ns_cnt / 2];
    double best = sizes[cnt - 1].ns[sizes[cnt - 1].ns_cnt / 20] / sizes[0].ns[sizes[0].ns_cnt / 20];
    (void)printf("   x %.2f, of the best x %.2f; goal %.1f: %s\n", ratio, best, GOAL,
                 ratio <= GOAL  ? "reached"
                 : best <= GOAL ? "reached by the best alone"
                                : "NOT reached");
}

static void head(const char *what, const struct size *sizes, uint32_t cnt)
{
    (void)printf("%-40s", what);
    for (uint32_t i = 0; i < cnt; i++) {
        (void)printf(" %16u", sizes[i].cnt);
    }
    (void)printf("\n");
}

/* The usual sizes below the largest, and the largest. */
static uint32_t choose(struct size sizes[SIZES], const uint32_t usual[SIZES - 1], uint32_t most)
{
    uint32_t cnt = 0;

    for (uint32_t i = 0; i < SIZES - 1; i++) {
        if (usual[i] != 0 && usual[i] < most) {
            sizes[cnt++].cnt = usual[i];
        }
    }
    sizes[cnt++].cnt = most;
    return cnt;
}

/* ---- tenants --------------------------------------------------------------------------------------------------------------- */

static uint64_t tenants(uint32_t rounds, uint32_t most)
{
    struct size sizes[SIZES] = {{0}};
    const uint32_t cnt = choose(sizes, (const uint32_t[SIZES - 1]){10, 1000}, most);
    uint64_t mismatches = 0;

    for (uint32_t i = 0; i < cnt; i++) {
        sizes[i].batch = BATCH;
        open_world(&sizes[i], sizes[i].cnt, 4 * BATCH, BATCH);
    }
    head("tenants, each call another one at random", sizes, cnt);
    measure(sizes, cnt, "pair", rounds);
    measure(sizes, cnt, "pair_names", rounds);
    measure(sizes, cnt, "transaction", rounds);
    (void)printf("  %-38s", "bytes a tenant (it and one team), segment");
    for (uint32_t i = 0; i < cnt; i++) {
        (void)printf(" %13.0f   ", (double)hf_world_bytes(sizes[i].world, 1) / sizes[i].cnt);
    }
    double more =
        (double)(hf_world_bytes(sizes[cnt - 1].world, 1) - hf_world_bytes(sizes[cnt - 2].world, 1)) /
        (double)(sizes[cnt - 1].cnt - sizes[cnt - 2].cnt);
    (void)printf(
        "\n  %.0f bytes for each further tenant, and %zu for each path that a worker keeps resolved\n", more,
        hf_worker_path_bytes(sizes[0].worker));
    for (uint32_t i = 0; i < cnt; i++) {
        mismatches += close_world(&sizes[i]);
    }
    return mismatches;
}

/* ---- slots ----------------------------------------------------------------------------------------------------------------- */

/* Takes all slots but those for two batches, which are free here and there among the others. */
static void fill(struct size *size)
{
    uint32_t slots_cnt = size->world->map.slots_cnt;
    uint32_t all = slots_cnt - 64; /* a chunk that cannot be claimed while it is held */
    uint32_t freed = 2 * size->batch;

    hf_worker_prepare(size->worker, all);
    if (hf_worker_reserve(size->worker, HF_WORKER_RESOLVED, all) != 0) {
        die("filling", "a reserve failed");
    }
    hf_worker_shuffle(size->worker, all);
    if (hf_worker_release(size->worker, freed) != 0 || hf_world_drain(size->world, 0) != freed) {
        die("filling", "a release or its drain failed");
    }
}

static void chains(const struct hf_segment *seg)
{
    uint64_t lengths[CHAINS + 1] = {0};
    uint64_t links = 0;
    uint64_t steps = 0; /* to find each one once */
    uint32_t longest = 0;

    for (uint32_t i = 0; i <= seg->heads_mask; i++) {
        uint64_t link = hf_load_acq_u64(&seg->heads[i]); /* E3 */
        uint32_t length = 0;

        for (; hf_link_slot(link) != 0; length++) {
            link = hf_load_acq_u64(&seg->slots[hf_link_slot(link) - 1U].slot_next); /* E4 */
        }
        links += length;
        steps += (uint64_t)length * (length + 1) / 2;
        longest = length > longest ? length : longest;
        lengths[length < CHAINS ? length : CHAINS]++;
    }
    (void)printf("  %8u slots, %8u heads, %8" PRIu64
                 " ids: mean %.2f, longest %u, %.2f looks to find one; heads by length:",
                 seg->slots_cnt, seg->heads_mask + 1U, links, (double)links / ((double)seg->heads_mask + 1),
                 longest, links > 0 ? (double)steps / (double)links : 0);
    for (uint32_t i = 0; i <= CHAINS && i <= longest; i++) {
        (void)printf(" %" PRIu64, lengths[i]);
    }
    (void)printf("\n");
}

static uint64_t slots(uint32_t rounds, uint32_t most)
{
    struct size sizes[SIZES] = {{0}};
    const uint32_t cnt = choose(sizes, (const uint32_t[SIZES - 1]){1000, 10000, 100000}, most);
    uint64_t mismatches = 0;

    for (uint32_t i = 0; i < cnt; i++) {
        sizes[i].batch = sizes[i].cnt / 8 < BATCH ? sizes[i].cnt / 8 : BATCH;
        open_world(&sizes[i], 1, sizes[i].cnt, sizes[i].cnt + 64);
    }
    head("slots, hardly any taken", sizes, cnt);
    measure(sizes, cnt, "pair", rounds);
    for (uint32_t i = 0; i < cnt; i++) {
        fill(&sizes[i]);
    }
    head("slots, all but two batches taken", sizes, cnt);
    measure(sizes, cnt, "pair", rounds);
    (void)printf("chains of the id index then\n");
    for (uint32_t i = 0; i < cnt; i++) {
        chains(&sizes[i].world->map);
        mismatches += close_world(&sizes[i]);
    }
    return mismatches;
}

/* A whole number from least to most. */
static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if (*text < '0' || *text > '9' || *end != '\0' || value < least || value > most) {
        (void)fprintf(
            stderr,
            "bench_growth: %s is not a whole number from %u to %u\n"
            "usage: bench_growth [ROUNDS [TENANTS SLOTS]]    1 to %u rounds; the most tenants and slots\n",
            text, least, most, ROUNDS_MAX);
        exit(2);
    }
    return (uint32_t)value;
}

int main(int argc, char **argv)
{
    if (argc > 4 || argc == 3) {
        die("arguments", "[ROUNDS [TENANTS SLOTS]]");
    }
    uint32_t rounds = argc > 1 ? number(argv[1], 1, ROUNDS_MAX) : 15;
    uint32_t most_tenants = argc > 3 ? number(argv[2], 11, 100000) : 100000;
    uint32_t most_slots = argc > 3 ? number(argv[3], 1001, 1000000) : 1000000;
    (void)printf("k = 2, ns of the thread for a pair, median and best twentieth of %u rounds\n", rounds);
    uint64_t mismatches = tenants(rounds, most_tenants);
    mismatches += slots(rounds, most_slots);
    (void)printf("mismatches, buckets against slots: %" PRIu64 "\n", mismatches);
    return mismatches == 0 ? 0 : 1;
}
