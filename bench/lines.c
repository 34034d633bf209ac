/* Which cache lines of the segment an operation changes, and that a refusal changes none: with the whole segment write-protected,
 * where any store or locked instruction, even one that changes nothing, would be a fault.
 *
 *     bench_lines      exit status 1 when an operation that should only read has written, or a bucket is wrong */
#include "bench/operations.h"
#include "bench/world_impl.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS      4096U
#define BATCH      1024U
#define ROUNDS     64U
#define PROTECTED  100U /* batches */
#define LINE_BYTES 64U

static const char *running; /* what is at work while the segment is protected */

_Noreturn static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_lines: %s: %s\n", what, why);
    exit(1);
}

/* ---- lines changed --------------------------------------------------------------------------------------------------------- */

static uint64_t lines_changed(const struct hf_segment *seg, const uint8_t *before)
{
    uint64_t lines = 0;

    for (uint64_t off = 0; off < seg->size_bytes; off += LINE_BYTES) {
        lines += memcmp(seg->base + off, before + off, LINE_BYTES) != 0;
    }
    return lines;
}

/* One operation at a time; lines changed by ROUNDS of them. */
static uint64_t changed_by(struct hf_world *world, struct hf_worker *worker,
                           const struct hf_operation *operation, uint8_t *before)
{
    uint64_t lines = 0;

    for (uint32_t round = 0; round < ROUNDS; round++) {
        hf_worker_prepare(worker, 1);
        if (operation->before != NULL && operation->before(worker, 1) != 0) {
            die(operation->name, "what goes before it failed");
        }
        memcpy(before, world->map.base, world->map.size_bytes);
        if (operation->run(worker, 1) != 0) {
            die(operation->name, "it failed");
        }
        lines += lines_changed(&world->map, before);
        if (operation->after(world, worker, 1, 0) != 0) {
            die(operation->name, "what goes after it failed");
        }
    }
    return lines;
}

/* ---- nothing written ------------------------------------------------------------------------------------------------------- */

static void written(int signal_number, siginfo_t *info, void *context)
{
    static const char text[] = ": writes to the segment\n";

    (void)signal_number, (void)info, (void)context;
    if (write(STDERR_FILENO, running, strlen(running)) < 0 ||
        write(STDERR_FILENO, text, sizeof(text) - 1) < 0) {
        _exit(2);
    }
    _exit(1);
}

static void only_reads(struct hf_world *world, struct hf_worker *worker, const char *name, uint32_t k)
{
    const struct hf_operation *operation = hf_operation_find(name);

    hf_worker_prepare(worker, BATCH);
    if (operation->before != NULL && operation->before(worker, BATCH) != 0) {
        die(name, "what goes before it failed");
    }
    hf_world_pulse(world);
    running = name;
    if (mprotect(world->map.base, world->map.size_bytes, PROT_READ) != 0) {
        die(name, "the segment cannot be protected");
    }
    for (uint32_t i = 0; i < PROTECTED; i++) {
        if (operation->run(worker, BATCH) != 0) {
            die(name, "it failed");
        }
    }
    if (mprotect(world->map.base, world->map.size_bytes, PROT_READ | PROT_WRITE) != 0) {
        die(name, "the segment cannot be released");
    }
    if (operation->after(world, worker, BATCH, 0) != 0) {
        die(name, "what goes after it failed");
    }
    (void)printf("%-16s %2u  %u without one write to the segment\n", name, k, PROTECTED * BATCH);
}

static void one_k(uint32_t k)
{
    static const char *const readers[] = {"refusal", "resolve", "usage"};
    const struct hf_world_plan plan = {.tenants = 1, .k = k, .slots = SLOTS, .workers = 1, .refusals = 1};
    const struct hf_worker_plan work = {.batch = BATCH, .tenants = HF_WORKER_ONE};
    char error[512] = "";
    struct hf_world *world = hf_world_make(&plan, error, sizeof(error));
    struct hf_worker *worker = world == NULL ? NULL : hf_worker_join(world, &work, error, sizeof(error));
    uint8_t *before = world == NULL ? NULL : malloc(world->map.size_bytes);

    if (worker == NULL || before == NULL) {
        die("a world", error);
    }
    for (uint32_t i = 0; i < hf_operations_cnt; i++) {
        uint64_t lines = changed_by(world, worker, &hf_operations[i], before);

        (void)printf("%-16s %2u  %5.2f lines changed\n", hf_operations[i].name, k, (double)lines / ROUNDS);
    }
    for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
        only_reads(world, worker, readers[i], k);
    }
    uint64_t mismatches = hf_world_mismatches(world);
    if (mismatches != 0) {
        die("the oracle", "buckets differ from what the slots add up to");
    }
    free(before);
    hf_worker_leave(worker);
    hf_world_free(world);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = written, .sa_flags = SA_SIGINFO};

    if (sigaction(SIGSEGV, &action, NULL) != 0) {
        die("SIGSEGV", "cannot be caught");
    }
    for (uint32_t k = 1; k <= 8; k *= 2) {
        one_k(k);
    }
    return 0;
}
