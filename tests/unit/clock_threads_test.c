/* ctest: labels=threads */
/* The clock beside itself: a publisher, readers and an injector, threads on one mapping, nobody stepped. A reader that put
 * together halves of two publications would see an hour that neither of them shows. */
#include "shm/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define READERS 3
#ifdef __SANITIZE_THREAD__
#define PUBLICATIONS 100000U /* each of its accesses takes a hundred times as long, and is looked at */
#else
#define PUBLICATIONS \
    3000000U /* some readers are stopped in the middle of a copy for two publications and more */
#endif
#define BASE_MS UINT64_C(1790000000000)
#define HOUR_MS UINT64_C(3600000)

struct clocks {
    struct hf_segment seg;
    uint64_t mono_ms; /* of the fine clock when the test began */
    uint32_t done;
};

struct reader {
    pthread_t thread;
    struct clocks *clocks;
    uint64_t reads_cnt;
    uint64_t back_cnt;  /* earlier than the reading before */
    uint64_t mixed_cnt; /* beyond anything a whole publication shows */
};

static void make(struct clocks *clocks, bool injected)
{
    const struct hf_segment_plan plan = {.slots = 8,
                                         .owners = 4,
                                         .tenants = 1,
                                         .rows = 1,
                                         .names = 1,
                                         .prices = 1,
                                         .policy_bytes = 64,
                                         .injected = injected,
                                         .injected_ms = BASE_MS,
                                         .group = (gid_t)-1};

    memset(clocks, 0, sizeof *clocks);
    assert_int_equal(hf_segment_create_anonymous(&plan, &clocks->seg, NULL), HF_OK);
    clocks->mono_ms = hf_clock_mono_fine_ms();
}

/* Each publication shows BASE_MS + (now - start) by itself: time and monotonic instant move together, by up to some hundred
 * hours there and back. A time of one with the instant of another is hours off. */
static void publish_one(struct clocks *clocks, uint32_t i)
{
    uint64_t hours = i * 7U % 512U;
    uint64_t shift = hours * HOUR_MS;

    if (clocks->mono_ms <= shift)
        shift = clocks->mono_ms / 2;
    hf_clock_publish(&clocks->seg, BASE_MS - shift, clocks->mono_ms - shift, i & 7U);
}

static void *publish(void *arg)
{
    struct clocks *clocks = arg;

    for (uint32_t i = 0; i < PUBLICATIONS; i++)
        publish_one(clocks, i);
    hf_store_rel_u32(&clocks->done, 1);
    return NULL;
}

static void *inject(void *arg)
{
    struct clocks *clocks = arg;

    for (uint32_t i = 1; i <= PUBLICATIONS; i++)
        (void)hf_clock_inject(&clocks->seg,
                              BASE_MS + i - (i < PUBLICATIONS ? i % 3U : 0)); /* some are late */
    hf_store_rel_u32(&clocks->done, 1);
    return NULL;
}

/* What the clock may show at most now, a minute for a slow machine: far from an hour. */
static uint64_t latest_ms(const struct clocks *clocks)
{
    return clocks->seg.injected ? BASE_MS + PUBLICATIONS
                                : BASE_MS + (hf_clock_mono_fine_ms() - clocks->mono_ms) + 1U;
}

static void *read_clock(void *arg)
{
    struct reader *reader = arg;
    struct clocks *clocks = reader->clocks;
    uint64_t before_ms = 0;
    uint32_t done;

    do {
        done = hf_load_acq_u32(&clocks->done);
        struct hf_clock_now now;

        hf_clock_read(&clocks->seg, &now);
        reader->back_cnt += now.now_ms < before_ms;
        reader->mixed_cnt += now.now_ms < BASE_MS || now.now_ms > latest_ms(clocks);
        before_ms = now.now_ms;
        if (!clocks->seg.injected) {
            struct hf_clock_published pub;

            if (hf_clock_published(&clocks->seg, &pub))
                reader->mixed_cnt += pub.time_ms - pub.mono_ms != BASE_MS - clocks->mono_ms;
        }
        reader->reads_cnt++;
    } while (done == 0);
    return NULL;
}

static void race(bool injected)
{
    struct clocks clocks;
    struct reader readers[READERS] = {0};
    pthread_t writers[2];
    struct reader all = {0};

    make(&clocks, injected);
    publish_one(&clocks, 0);
    for (int i = 0; i < READERS; i++) {
        readers[i].clocks = &clocks;
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_clock, &readers[i]), 0);
    }
    /* One publisher, as there is one daemon; injectors race with each other. */
    int writers_cnt = injected ? 2 : 1;
    for (int i = 0; i < writers_cnt; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, injected ? inject : publish, &clocks), 0);
    for (int i = 0; i < writers_cnt; i++)
        assert_int_equal(pthread_join(writers[i], NULL), 0);
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
        all.back_cnt += readers[i].back_cnt;
        all.mixed_cnt += readers[i].mixed_cnt;
        all.reads_cnt += readers[i].reads_cnt;
    }
    print_message("totals: %u publications, %llu readings\n", PUBLICATIONS * (unsigned)writers_cnt,
                  (unsigned long long)all.reads_cnt);
    assert_int_equal(all.back_cnt, 0);
    assert_int_equal(all.mixed_cnt, 0);
    if (injected)
        assert_int_equal(hf_clock_now_ms(&clocks.seg), BASE_MS + PUBLICATIONS);
    hf_segment_detach(&clocks.seg);
}

static void published_clock_is_never_mixed(void **state)
{
    (void)state;
    race(false);
}

static void injected_clock_never_goes_back(void **state)
{
    (void)state;
    race(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_clock_is_never_mixed),
        cmocka_unit_test(injected_clock_never_goes_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
