/* How long a reservation takes from its answer to the commit of its receipt, beside a daemon at work:
 *
 *     bench_lag SEGMENT REQUESTS-PER-SECOND SECONDS
 *
 * One thread reserves and settles at that pace, in little bursts each millisecond as a busy host has them. Fifty reservations a second
 * are handed to threads that wait for them (holdfast_wait_durable), each by another thread, so that a slow commit hides none of
 * those after it. bench/lag starts the daemon. Exit status 1 when something was refused or not durable in ten seconds. */
#include "core/include/holdfast.h"
#include "tools/common/histogram.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WAITERS            64
#define SAMPLES_PER_SECOND 50 /* so that who waits for one does not keep the next ones from being seen */
#define TIMEOUT_MS         10000
#define ID_BYTES           32

/* A reservation on its way to a waiter. */
struct waiter {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct holdfast_segment *segment;
    struct hf_histogram lags;
    uint64_t reserved_ns;
    uint64_t hold;
    char id[ID_BYTES];
    bool full;
    bool over;
    unsigned late_cnt; /* not durable in time */
};

static struct waiter waiters[WAITERS];

_Noreturn static void die(const char *what, int rc)
{
    (void)fprintf(stderr, "bench_lag: %s: %s\n", what, holdfast_strerror(rc));
    exit(2);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void *wait_for_each(void *arg)
{
    struct waiter *waiter = arg;
    struct holdfast *quota;
    int rc = holdfast_join(waiter->segment, &quota);

    if (rc != HOLDFAST_OK) {
        die("joining", rc);
    }
    (void)pthread_mutex_lock(&waiter->lock);
    for (;;) {
        while (!waiter->full && !waiter->over) {
            (void)pthread_cond_wait(&waiter->filled, &waiter->lock);
        }
        if (!waiter->full) {
            break;
        }
        (void)pthread_mutex_unlock(&waiter->lock);
        rc = holdfast_wait_durable(quota, waiter->id, waiter->hold, TIMEOUT_MS);
        waiter->late_cnt += rc != HOLDFAST_OK;
        hf_histogram_add(&waiter->lags, now_ns() - waiter->reserved_ns);
        (void)pthread_mutex_lock(&waiter->lock);
        waiter->full = false;
    }
    (void)pthread_mutex_unlock(&waiter->lock);
    holdfast_leave(quota);
    return NULL;
}

/* To the first one who has nothing to wait for; nobody waits here. False: all are waiting. */
static bool hand_over(const char *id, uint64_t hold, uint64_t reserved_ns)
{
    for (int w = 0; w < WAITERS; w++) {
        struct waiter *waiter = &waiters[w];
        bool taken = false;

        if (pthread_mutex_trylock(&waiter->lock) != 0) {
            continue;
        }
        if (!waiter->full) {
            memcpy(waiter->id, id, ID_BYTES);
            waiter->hold = hold;
            waiter->reserved_ns = reserved_ns;
            waiter->full = taken = true;
            (void)pthread_cond_signal(&waiter->filled);
        }
        (void)pthread_mutex_unlock(&waiter->lock);
        if (taken) {
            return true;
        }
    }
    return false;
}

/* What is told at the end, besides the lags. */
struct tally {
    uint64_t refused_cnt;
    uint64_t unseen_cnt; /* samples that nobody was free to wait for */
};

static void one(struct holdfast *quota, struct holdfast_request *request, uint64_t number, bool sample,
                struct tally *tally)
{
    char id[ID_BYTES];
    struct holdfast_answer answer;
    struct holdfast_usage usage;
    struct holdfast_closing closing;

    (void)snprintf(id, sizeof(id), "lag-%d-%llu", (int)getpid(), (unsigned long long)number);
    request->id = id;
    int rc = holdfast_reserve(quota, request, &answer);
    if (rc < 0) {
        die("reserving", rc);
    }
    if (rc != HOLDFAST_OK) {
        tally->refused_cnt++;
        return;
    }
    if (sample) {
        tally->unseen_cnt += !hand_over(id, answer.hold, now_ns());
    }
    holdfast_usage_init(&usage, 100, 50);
    usage.cost_micros = 400;
    rc = holdfast_settle(quota, id, answer.hold, &usage, HOLDFAST_SUCCESS, NULL, &closing);
    tally->refused_cnt += rc != HOLDFAST_OK;
}

/* Requests at that pace. */
static struct tally work(struct holdfast *quota, uint64_t per_second, uint64_t seconds)
{
    uint64_t each = per_second > SAMPLES_PER_SECOND ? per_second / SAMPLES_PER_SECOND : 1;
    const struct timespec pause = {.tv_nsec = 1000000};
    struct holdfast_request request;
    struct tally tally = {0};
    uint64_t start_ns = now_ns();
    uint64_t done = 0;

    holdfast_request_init(&request);
    request.tenant = "t", request.team = "u", request.capability = "c";
    request.cost_micros = 1000;
    while (done < per_second * seconds) {
        uint64_t due = (uint64_t)((unsigned __int128)(now_ns() - start_ns) * per_second / 1000000000U);

        for (; done < due && done < per_second * seconds; done++) {
            one(quota, &request, done, done % each == 0, &tally);
        }
        (void)nanosleep(&pause, NULL);
    }
    return tally;
}

static int report(uint64_t per_second, const struct tally *tally)
{
    static const uint64_t edges_ms[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 10000};
    struct hf_histogram all = {.max_ns = 0};
    unsigned late_cnt = 0;
    uint64_t below = 0;

    for (int w = 0; w < WAITERS; w++) {
        hf_histogram_merge(&all, &waiters[w].lags);
        late_cnt += waiters[w].late_cnt;
    }
    struct hf_histogram_summary sum = hf_histogram_summary(&all);
    (void)printf("%llu requests/s: reserve to commit p50 %.1f p99 %.1f p99.9 %.1f max %.1f ms "
                 "of %llu, %llu unseen; %llu refused, %u late\n",
                 (unsigned long long)per_second, (double)sum.p50_ns / 1e6, (double)sum.p99_ns / 1e6,
                 (double)sum.p999_ns / 1e6, (double)sum.max_ns / 1e6, (unsigned long long)sum.cnt,
                 (unsigned long long)tally->unseen_cnt, (unsigned long long)tally->refused_cnt, late_cnt);
    for (size_t e = 0; e < sizeof(edges_ms) / sizeof(edges_ms[0]) && below < sum.cnt; e++) {
        uint64_t cnt = 0;

        for (uint64_t low = 0, high = sum.cnt; low < high;) { /* how many are below the edge */
            uint64_t part = low + (high - low + 1) / 2;

            if (hf_histogram_at(&all, part, sum.cnt) < edges_ms[e] * 1000000U) {
                low = cnt = part;
            } else {
                high = part - 1;
            }
        }
        (void)printf("  below %5llu ms %6.2f %%\n", (unsigned long long)edges_ms[e],
                     100.0 * (double)cnt / (double)sum.cnt);
        below = cnt;
    }
    return tally->refused_cnt + late_cnt == 0 && sum.cnt > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    uint64_t per_second = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
    uint64_t seconds = argc == 4 ? strtoull(argv[3], NULL, 10) : 0;
    struct holdfast_segment *segment;
    struct holdfast *quota;
    char error[256] = "";

    if (per_second == 0 || seconds == 0) {
        (void)fputs("usage: bench_lag SEGMENT REQUESTS-PER-SECOND SECONDS\n", stderr);
        return 2;
    }
    int rc = holdfast_open(argv[1], &segment, error, sizeof(error));
    if (rc != HOLDFAST_OK || (rc = holdfast_join(segment, &quota)) != HOLDFAST_OK) {
        die(error[0] != '\0' ? error : argv[1], rc);
    }
    for (int w = 0; w < WAITERS; w++) {
        waiters[w].segment = segment;
        (void)pthread_mutex_init(&waiters[w].lock, NULL);
        (void)pthread_cond_init(&waiters[w].filled, NULL);
        if (pthread_create(&waiters[w].thread, NULL, wait_for_each, &waiters[w]) != 0) {
            die("a thread", HOLDFAST_SYSTEM);
        }
    }
    struct tally tally = work(quota, per_second, seconds);
    for (int w = 0; w < WAITERS; w++) {
        (void)pthread_mutex_lock(&waiters[w].lock);
        waiters[w].over = true;
        (void)pthread_cond_signal(&waiters[w].filled);
        (void)pthread_mutex_unlock(&waiters[w].lock);
        (void)pthread_join(waiters[w].thread, NULL);
    }
    holdfast_leave(quota);
    holdfast_close(segment);
    return report(per_second, &tally);
}
