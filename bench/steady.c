/* 100,000 reserve+settle pairs between two markers, for strace to look at; counts the allocations between them
 * itself, those inside of the C library too. bench/no_syscall_no_malloc runs it. */
#include "bench/shim.h"

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

static int pairs(struct hf_bench *bench, enum hf_bench_how how, uint32_t cnt)
{
    while (cnt > 0) {
        uint32_t batch = cnt < BATCH ? cnt : BATCH;
        hf_bench_new_ids(bench, batch);
        if (hf_bench_refusals(bench, 1) != 0) { /* its id is used again: a refused one is not kept */
            return -1;
        }
        int rc = hf_bench_pairs(bench, how, batch);
        if (rc != 0) {
            return rc;
        }
        if (hf_bench_drain(bench) != batch) {
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
    char error[512] = "";
    enum hf_bench_how how = argc > 1 && strcmp(argv[1], "names") == 0 ? HF_BENCH_NAMES : HF_BENCH_RESOLVED;
    uint32_t cnt = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : PAIRS;
    struct hf_bench *bench = hf_bench_open(SLOTS, error, sizeof(error));

    if (bench == NULL) {
        (void)fprintf(stderr, "steady: %s\n", error);
        return 2;
    }
    int rc = pairs(bench, how, 4 * BATCH);
    uint64_t before = allocations;
    marker("steady: begin\n");
    if (rc == 0) {
        rc = pairs(bench, how, cnt);
    }
    marker("steady: end\n");
    uint64_t between = allocations - before;
    if (rc != 0) {
        (void)fprintf(stderr, "steady: a pair or its drain answered %d\n", rc);
        return 2;
    }
    uint64_t mismatches = hf_bench_mismatches(bench);
    (void)printf("steady: %u pairs, %llu allocations, %llu mismatches\n", cnt, (unsigned long long)between,
                 (unsigned long long)mismatches);
    hf_bench_close(bench);
    return between == 0 && mismatches == 0 ? 0 : 1;
}
