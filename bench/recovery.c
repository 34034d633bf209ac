/* How long coming back takes: fills a store with a month of receipts, then makes a segment from it as `holdfastd` would.
 *
 *     bench_recovery fill URL ROWS     an initialised store; ROWS receipts under the segment name `bench`
 *     bench_recovery open URL POLICY   one line: milliseconds, open reservations, bytes read by this process
 */
#include "bench/history.h"
#include "persist/serve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME     "bench"
#define OPEN     1000U
#define START_MS UINT64_C(1788220800000) /* 2026-09-01T00:00:00Z */

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* What this process has read so far, by read(), from caches too. */
static uint64_t bytes_read(void)
{
    FILE *file = fopen("/proc/self/io", "re");
    uint64_t bytes = 0;

    if (file != NULL) {
        if (fscanf(file, "rchar: %" SCNu64, &bytes) != 1) {
            bytes = 0;
        }
        (void)fclose(file);
    }
    return bytes;
}

static int fill(const char *url, const char *rows)
{
    struct hf_store_error error = {""};
    struct hf_store *store = NULL;
    const struct hf_store_options options = {.durability = HF_STORE_OFF, .statement_timeout_ms = 600000};
    const struct hf_history history = {.rows = strtoull(rows, NULL, 10),
                                       .open = OPEN,
                                       .start_ms = START_MS,
                                       .teams = 100,
                                       .batch_rows = 10000,
                                       .rollups = true};
    struct hf_history_done done;
    double start = now_s();

    if (hf_store_open(url, &options, &store, &error) != HF_STORE_OK ||
        hf_store_lock(store, NAME, &error) != HF_STORE_OK ||
        hf_history_fill(store, &history, &done, &error) != HF_STORE_OK) {
        (void)fprintf(stderr, "bench_recovery: %s\n", error.text);
        hf_store_close(store);
        return 1;
    }
    (void)printf("%" PRIu64 " receipts in %.1f s, %" PRIu64 " rollups, %" PRIu64 " receipts since the last\n",
                 history.rows, now_s() - start, done.rollups, done.tail);
    hf_store_close(store);
    return 0;
}

static int open_one(const char *url, const char *policy)
{
    const struct hf_serve_options options = {.policy_path = policy,
                                             .store_url = url,
                                             .store_name = NAME,
                                             .injected = true,
                                             .injected_ms = START_MS + UINT64_C(28) * 86400000 + 3600000};
    struct hf_policy_report report = {0};
    struct hf_error err = {.text = ""};
    struct hf_serve *serve = NULL;
    double start = now_s();
    uint64_t before = bytes_read();

    if (hf_serve_open(&options, &serve, &report, &err) != HF_SERVE_OK) {
        (void)fprintf(stderr, "bench_recovery: %s\n", err.text);
        return 1;
    }
    (void)printf("%.1f ms, %" PRIu64 " open, %" PRIu64 " bytes read\n", (now_s() - start) * 1e3,
                 hf_serve_recovered(serve)->found.open_cnt, bytes_read() - before);
    hf_serve_close(serve);
    hf_policy_report_free(&report);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "fill") == 0) {
        return fill(argv[2], argv[3]);
    }
    if (argc == 4 && strcmp(argv[1], "open") == 0) {
        return open_one(argv[2], argv[3]);
    }
    (void)fprintf(stderr, "usage: bench_recovery fill URL ROWS | bench_recovery open URL POLICY\n");
    return 2;
}
