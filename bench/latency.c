/* How long single operations take: p50, p99, p99.9 and the longest, each timed by two looks at the clock, which are in its time (the
 * first line says how much that is).
 *
 *     bench_latency [K [TENANTS]]      (default: 2 buckets, 1 tenant; more tenants in random order)
 *
 * One thread. Times are the wall's: what the machine does meanwhile is in them. */
#include "bench/operations.h"

#include "shm/clock.h"
#include "tools/common/histogram.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS   4096U
#define BATCH   1024U
#define BATCHES 128U

_Noreturn static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_latency: %s: %s\n", what, why);
    exit(1);
}

static void print(const char *text, const struct hf_histogram *histogram)
{
    struct hf_histogram_summary s = hf_histogram_summary(histogram);

    (void)printf("%-38s %8" PRIu64 " %8" PRIu64 " %8" PRIu64 " %10" PRIu64 "\n", text, s.p50_ns, s.p99_ns,
                 s.p999_ns, s.max_ns);
}

static int nothing(struct hf_worker *worker, uint32_t cnt)
{
    (void)worker, (void)cnt;
    return 0;
}

/* The first batch warms up. */
static void measure(struct hf_world *world, struct hf_worker *worker, const struct hf_operation *operation,
                    struct hf_histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
    for (uint32_t batch = 0; batch <= BATCHES; batch++) {
        hf_worker_prepare(worker, BATCH);
        if (operation->before != NULL && operation->before(worker, BATCH) != 0) {
            die(operation->name, "what goes before it failed");
        }
        for (uint32_t i = 0; i < BATCH; i++) {
            hf_worker_from(worker, i);
            uint64_t begin_ns = hf_clock_mono_ns();
            int rc = operation->run(worker, 1);
            uint64_t ns = hf_clock_mono_ns() - begin_ns;
            if (rc != 0) {
                die(operation->name, "it failed");
            }
            if (batch > 0) {
                hf_histogram_add(histogram, ns);
            }
        }
        hf_worker_from(worker, 0);
        if (operation->after(world, worker, BATCH, 0) != 0) {
            die(operation->name, "what goes after it failed");
        }
    }
}

static int pulse(struct hf_world *world, struct hf_worker *worker, uint32_t cnt, int drained)
{
    (void)worker, (void)cnt, (void)drained;
    hf_world_pulse(world);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct hf_operation clock = {"clock", "nothing: the looks at the clock", NULL, nothing,
                                              pulse};
    static struct hf_histogram histogram;
    struct hf_world_plan plan = {.tenants = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1,
                                 .k = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2,
                                 .slots = SLOTS,
                                 .workers = 1,
                                 .refusals = 1};
    const struct hf_worker_plan work = {.batch = BATCH, .tenants = HF_WORKER_SPREAD, .seed = 42};
    char error[512] = "";
    struct hf_world *world = hf_world_make(&plan, error, sizeof(error));
    struct hf_worker *worker = world == NULL ? NULL : hf_worker_join(world, &work, error, sizeof(error));

    if (worker == NULL) {
        die("a world", error);
    }
    (void)printf("k = %u, %u tenants; ns%-20s %8s %8s %8s %10s\n", plan.k, plan.tenants, "", "p50", "p99",
                 "p99.9", "max");
    measure(world, worker, &clock, &histogram);
    print(clock.text, &histogram);
    for (uint32_t i = 0; i < hf_operations_cnt; i++) {
        measure(world, worker, &hf_operations[i], &histogram);
        print(hf_operations[i].text, &histogram);
    }
    uint64_t mismatches = hf_world_mismatches(world);
    (void)printf("mismatches, buckets against slots: %" PRIu64 "\n", mismatches);
    hf_worker_leave(worker);
    hf_world_free(world);
    return mismatches == 0 ? 0 : 1;
}
