/* 100,000 reserve+settle pairs between two markers, for strace to look at; counts the allocations between them
 * itself, those inside of the C library too. bench/no_syscall_no_malloc runs it. */
#include "bench/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOTS 4096U
#define BATCH 1024U
#define PAIRS 100000U

/* glibc's own functions, behind the public ones that are defined below. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t cnt, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

static uint64_t allocations;

/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name): theirs are reserved names */
void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t cnt, size_t bytes)
{
    allocations++;
    return __libc_calloc(cnt, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    allocations++;
    return __libc_realloc(memory, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    allocations++;
    *memory = __libc_memalign(alignment, bytes);
    return *memory == NULL;
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    allocations++;
    return __libc_memalign(alignment, bytes);
}

void free(void *memory)
{
    allocations += memory != NULL;
    __libc_free(memory);
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

static int pairs(struct hf_world *world, struct hf_worker *worker, enum hf_worker_how how, uint32_t cnt)
{
    while (cnt > 0) {
        uint32_t batch = cnt < BATCH ? cnt : BATCH;
        hf_worker_prepare(worker, batch);
        if (hf_worker_refusals(worker, 1) != 0) { /* its id is used again: a refused one is not kept */
            return -1;
        }
        int rc = hf_worker_pairs(worker, how, batch);
        if (rc != 0) {
            return rc;
        }
        if (hf_world_drain(world, 0) != batch) {
            return -2;
        }
        cnt -= batch;
    }
    return 0;
}

/* A system call of its own that is easy to find in a trace. */
static void marker(const char *text)
{
    if (write(STDOUT_FILENO, text, strlen(text)) < 0) {
        exit(2);
    }
}

int main(int argc, char **argv)
{
    const struct hf_world_plan plan = {.tenants = 1, .k = 2, .slots = SLOTS, .workers = 1, .refusals = 1};
    const struct hf_worker_plan work = {.batch = BATCH, .tenants = HF_WORKER_ONE};
    char error[512] = "";
    enum hf_worker_how how = argc > 1 && strcmp(argv[1], "names") == 0 ? HF_WORKER_NAMES : HF_WORKER_RESOLVED;
    uint32_t cnt = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : PAIRS;
    struct hf_world *world = hf_world_make(&plan, error, sizeof(error));
    struct hf_worker *worker = world == NULL ? NULL : hf_worker_join(world, &work, error, sizeof(error));

    if (worker == NULL) {
        (void)fprintf(stderr, "steady: %s\n", error);
        return 2;
    }
    int rc = pairs(world, worker, how, 4 * BATCH);
    uint64_t before = allocations;
    marker("steady: begin\n");
    if (rc == 0) {
        rc = pairs(world, worker, how, cnt);
    }
    marker("steady: end\n");
    uint64_t between = allocations - before;
    if (rc != 0) {
        (void)fprintf(stderr, "steady: a pair or its drain answered %d\n", rc);
        return 2;
    }
    uint64_t mismatches = hf_world_mismatches(world);
    (void)printf("steady: %u pairs, %llu allocations, %llu mismatches\n", cnt, (unsigned long long)between,
                 (unsigned long long)mismatches);
    hf_worker_leave(worker);
    hf_world_free(world);
    return between == 0 && mismatches == 0 ? 0 : 1;
}
