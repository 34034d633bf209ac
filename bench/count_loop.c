/* Runs each operation's loop once, warmed up, inside of hf_loop_measured(): for bench/count, which counts what is executed there.
 *
 *     bench_count_loop OPERATIONS K[:TENANTS] ...
 *
 * prints `operation K[:TENANTS] count` for each, in the order in which they run. More than one tenant: in random order. */
#include "bench/operations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 4096U
#define BATCH 1024U
#define WARM  2U

int hf_loop_measured(int (*run)(struct hf_worker *, uint32_t), struct hf_worker *worker, uint32_t cnt);

/* By name, and so neither inlined nor cloned. */
#ifdef __clang__
__attribute__((noinline))
#else
__attribute__((noipa))
#endif
int hf_loop_measured(int (*run)(struct hf_worker *, uint32_t),
                                            struct hf_worker *worker, uint32_t cnt)
{
    return run(worker, cnt);
}

_Noreturn static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_count_loop: %s: %s\n", what, why);
    exit(2);
}

static int one_batch(struct hf_world *world, struct hf_worker *worker, const struct hf_operation *operation,
                     int measured)
{
    hf_worker_prepare(worker, BATCH);
    int rc = operation->before == NULL ? 0 : operation->before(worker, BATCH);
    if (rc == 0) {
        rc = measured ? hf_loop_measured(operation->run, worker, BATCH) : operation->run(worker, BATCH);
    }
    return rc != 0 ? rc : operation->after(world, worker, BATCH, 0);
}

static void one_operation(struct hf_world *world, struct hf_worker *worker,
                          const struct hf_operation *operation, const char *k)
{
    int rc = 0;

    for (uint32_t i = 0; i <= WARM && rc == 0; i++) {
        rc = one_batch(world, worker, operation, i == WARM);
    }
    if (rc != 0) {
        die(operation->name, "it answered what it should not");
    }
    (void)printf("%s %s %u\n", operation->name, k, BATCH);
}

/* The named operations, comma by comma; `all`. */
static int chosen(const char *list, const char *name)
{
    size_t bytes = strlen(name);

    for (const char *at = strstr(list, name); at != NULL; at = strstr(at + 1, name)) {
        if ((at == list || at[-1] == ',') && (at[bytes] == '\0' || at[bytes] == ',')) {
            return 1;
        }
    }
    return strcmp(list, "all") == 0;
}

int main(int argc, char **argv)
{
    char error[512] = "";
    uint64_t mismatches = 0;

    if (argc < 3) {
        die("arguments", "OPERATIONS (comma by comma, or all) and at least one K");
    }
    for (int i = 2; i < argc; i++) {
        const char *tenants = strchr(argv[i], ':');
        struct hf_world_plan plan = {.tenants =
                                         tenants == NULL ? 1 : (uint32_t)strtoul(tenants + 1, NULL, 10),
                                     .k = (uint32_t)strtoul(argv[i], NULL, 10),
                                     .slots = SLOTS,
                                     .workers = 1,
                                     .refusals = 1};
        const struct hf_worker_plan work = {.batch = BATCH, .tenants = HF_WORKER_SPREAD, .seed = 42};
        struct hf_world *world = hf_world_make(&plan, error, sizeof(error));
        struct hf_worker *worker = world == NULL ? NULL : hf_worker_join(world, &work, error, sizeof(error));

        if (worker == NULL) {
            die("a world", error);
        }
        for (uint32_t op = 0; op < hf_operations_cnt; op++) {
            if (chosen(argv[1], hf_operations[op].name)) {
                one_operation(world, worker, &hf_operations[op], argv[i]);
            }
        }
        mismatches += hf_world_mismatches(world);
        hf_worker_leave(worker);
        hf_world_free(world);
    }
    if (mismatches != 0) {
        die("the oracle", "buckets differ from what the slots add up to");
    }
    return 0;
}
