/* Not under TSan: stepping through what it makes of a publication takes minutes. */
/* The authority clock: injected, published, held on a step back; readers beside a publisher, and a publisher that
 * was stopped in the middle. */
#include "shm/clock.h"

#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SKIPPED 77

static const struct hf_segment_plan plan = {
    .slots = 64,
    .owners = 4,
    .tenants = 1,
    .rows = 1,
    .names = 1,
    .prices = 1,
    .policy_bytes = 64,
    .group = (gid_t)-1,
};

static int setup(void **state)
{
    struct hf_segment *seg = calloc(1, sizeof *seg);

    *state = seg;
    return seg == NULL ? -1 : hf_segment_create_anonymous(&plan, seg, NULL);
}

static int teardown(void **state)
{
    hf_segment_detach(*state);
    free(*state);
    return 0;
}

static void injected_clock_moves_only_forward(void **state)
{
    struct hf_segment_plan injected = plan;
    struct hf_segment seg;

    (void)state;
    injected.injected = true;
    injected.injected_ms = 1790000000000ULL;
    assert_int_equal(hf_segment_create_anonymous(&injected, &seg, NULL), HF_OK);
    assert_int_equal(hf_clock_now_ms(&seg), 1790000000000ULL);
    assert_int_equal(hf_clock_elapsed_ms(&seg), 1790000000000ULL);
    assert_int_equal(hf_clock_inject(&seg, 1790000000005ULL), 1790000000005ULL);
    assert_int_equal(hf_clock_inject(&seg, 1790000000001ULL), 1790000000005ULL);
    assert_int_equal(hf_clock_now_ms(&seg), 1790000000005ULL);
    /* The forecast of a deadline is the deadline, before and after it. */
    assert_int_equal(hf_clock_forecast_ms(&seg, 1790000600000ULL), 1790000600000ULL);
    assert_int_equal(hf_clock_forecast_ms(&seg, 1790000000000ULL), 1790000000000ULL);
    /* The daemon's publications do not move it. */
    hf_clock_publish(&seg, 5, hf_clock_mono_fine_ms(), 0);
    assert_int_equal(hf_clock_now_ms(&seg), 1790000000005ULL);
    hf_segment_detach(&seg);
}

static void nothing_published_is_zero(void **state)
{
    struct hf_segment *seg = *state;
    struct hf_clock_published pub = {.time_ms = 1};

    assert_int_equal(hf_clock_now_ms(seg), 0);
    assert_false(hf_clock_published(seg, &pub));
    assert_int_equal(pub.time_ms, 0);
}

static void publication_is_advanced_by_the_monotonic_clock(void **state)
{
    struct hf_segment *seg = *state;
    struct hf_clock_published pub;
    uint64_t mono = hf_clock_mono_fine_ms();

    /* The store was asked 10 s ago. */
    hf_clock_publish(seg, 5000000, mono - 10000, 7);
    uint64_t before = hf_clock_mono_ms();
    uint64_t now = hf_clock_now_ms(seg);
    uint64_t after = hf_clock_mono_ms();
    assert_in_range(now - 5000000, before - (mono - 10000), after - (mono - 10000));
    assert_true(hf_clock_published(seg, &pub));
    assert_int_equal(pub.time_ms, 5000000);
    assert_int_equal(pub.mono_ms, mono - 10000);
    assert_int_equal(pub.uncertainty_ms, 7);
    /* Asked in the future of the coarse clock: it stands, it does not wrap. */
    hf_clock_publish(seg, 6000000, mono + 100000, 7);
    assert_int_equal(hf_clock_now_ms(seg), 6000000);
}

static void step_back_holds_still(void **state)
{
    struct hf_segment *seg = *state;
    uint64_t mono = hf_clock_mono_fine_ms();

    hf_clock_publish(seg, 9000000, mono, 0);
    hf_clock_publish(seg, 8000000, mono, 0); /* 1,000 s back */
    uint64_t held = hf_clock_now_ms(seg);
    assert_true(held >= 9000000);
    assert_true(held < 9000000 + 600000); /* and not far ahead */
    (void)usleep(20000);
    assert_int_equal(hf_clock_now_ms(seg), held); /* still, though the monotonic clock moved */
    /* Again back: still nothing earlier. */
    hf_clock_publish(seg, 7000000, mono, 0);
    assert_int_equal(hf_clock_now_ms(seg), held);
    /* Real time caught up. */
    hf_clock_publish(seg, held + 5, hf_clock_mono_fine_ms(), 0);
    assert_true(hf_clock_now_ms(seg) >= held + 5);
}

static void elapsed_runs_on_whatever_the_store_says(void **state)
{
    struct hf_segment *seg = *state;
    uint64_t off = seg->header->clk_elapsed_off_ms;

    hf_clock_publish(seg, 9000000, hf_clock_mono_fine_ms(), 0);
    hf_clock_publish(seg, 900000000000ULL, hf_clock_mono_fine_ms(), 0);
    assert_int_equal(seg->header->clk_elapsed_off_ms, off);
    uint64_t before = hf_clock_mono_ms();
    uint64_t elapsed = hf_clock_elapsed_ms(seg);
    uint64_t after = hf_clock_mono_ms();
    assert_in_range(elapsed - off, before, after);
    /* A deadline 60 s ahead is forecast 60 s ahead of the authority time, one 60 s ago that much before it. */
    uint64_t now = hf_clock_now_ms(seg);
    assert_in_range(hf_clock_forecast_ms(seg, hf_clock_elapsed_ms(seg) + 60000), now + 60000, now + 120000);
    now = hf_clock_now_ms(seg);
    assert_in_range(hf_clock_forecast_ms(seg, hf_clock_elapsed_ms(seg) - 60000), now - 60001, now);
}

/* Stopped anywhere within a publication: workers read the one in force. The halves are made by hand. */
static void stopped_publisher_stops_nobody(void **state)
{
    struct hf_segment *seg = *state;
    struct hf_shm_header *header = seg->header;
    struct hf_clock_published pub;

    hf_clock_publish(seg, 5000000, hf_clock_mono_fine_ms(), 1);
    uint32_t spare = (header->clk_seq >> 1 & 1U) ^ 1U;
    header->clk_time_ms[spare] = 123; /* half-filled */
    uint64_t now = hf_clock_now_ms(seg);
    assert_true(now >= 5000000 && now < 5600000);
    header->clk_mono_ms[spare] = 456;
    header->clk_seq |= 1U; /* killed while taking over */
    for (int i = 0; i < 100; i++) {
        uint64_t next = hf_clock_now_ms(seg);

        assert_true(next >= now && next < 5600000);
        now = next;
    }
    assert_true(header->clk_hold_ms >= now); /* seen, so held */
    assert_true(hf_clock_published(seg, &pub));
    assert_int_equal(pub.time_ms, 5000000);
    /* The next daemon goes on, and what was seen is not taken back. */
    hf_clock_publish(seg, 4000000, hf_clock_mono_fine_ms(), 1);
    assert_int_equal(header->clk_seq & 1U, 0);
    assert_true(hf_clock_now_ms(seg) >= now);
}

static void counter_wraps_without_losing_the_copy(void **state)
{
    struct hf_segment *seg = *state;

    hf_clock_publish(seg, 1000, hf_clock_mono_fine_ms(), 0);
    /* As after 2^31 - 1 publications (an odd number, as the one above). */
    seg->header->clk_seq = 0xfffffffeU;
    assert_true(hf_clock_now_ms(seg) >= 1000);
    for (uint64_t i = 1; i <= 5; i++) {
        struct hf_clock_published pub;

        hf_clock_publish(seg, 1000000 * i, hf_clock_mono_fine_ms(), 0);
        assert_true(hf_clock_now_ms(seg) >= 1000000 * i);
        assert_true(hf_clock_published(seg, &pub));
        assert_int_equal(pub.time_ms, 1000000 * i);
    }
}

/* ---- beside a publisher ------------------------------------------------------------------------------------------ */

struct race {
    struct hf_segment *seg;
    uint64_t reads;
    uint64_t backwards;
    uint64_t torn;
};

/* Each publication is told as of now or as of 500 s ago, so that a mixed one is 500 s off; and its uncertainty is its
 * time, so that a mixed one shows in that as well. */
static void publish_step(struct hf_segment *seg, uint64_t step)
{
    uint64_t ago = step % 2 * 500000;

    hf_clock_publish(seg, 1000000 + step * 2 - ago, hf_clock_mono_fine_ms() - ago, step);
}

static bool is_mixed(const struct hf_clock_published *pub)
{
    return pub->time_ms != 1000000 + pub->uncertainty_ms * 2 - pub->uncertainty_ms % 2 * 500000;
}

static void *read_on(void *arg)
{
    struct race *race = arg;
    uint64_t last = 0;

    for (uint64_t i = 0; i < race->reads; i++) {
        struct hf_clock_published pub;
        uint64_t now = hf_clock_now_ms(race->seg);

        if (now < last)
            race->backwards++;
        if (now > 1000000 + 300000) /* no test runs for 300 s */
            race->torn++;
        last = now;
        if (hf_clock_published(race->seg, &pub) && is_mixed(&pub))
            race->torn++;
    }
    return NULL;
}

static void readers_never_see_it_step_back(void **state)
{
    struct hf_segment *seg = *state;
    struct race races[2];
    pthread_t threads[2];
    unsigned seed = 7;

    hf_clock_publish(seg, 1000000, hf_clock_mono_fine_ms(), 0);
    for (int i = 0; i < 2; i++) {
        races[i] = (struct race){.seg = seg, .reads = 300000};
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &races[i]), 0);
    }
    for (int i = 0; i < 100000; i++) {
        uint64_t step = (uint64_t)rand_r(&seed) % 50; /* forwards and backwards by up to 100 ms */

        publish_step(seg, step);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(races[i].backwards, 0);
        assert_int_equal(races[i].torn, 0);
    }
}

/* The daemon is killed over and over while it publishes; the clock goes on in another process. */
static void killed_publishers_leave_a_clock(void **state)
{
    struct hf_segment *seg = *state;
    uint64_t last = 0;

    hf_clock_publish(seg, 1000000, hf_clock_mono_fine_ms(), 0);
    for (int round = 0; round < 30; round++) {
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
            for (unsigned seed = (unsigned)round + 1U;;) {
                uint64_t step = (uint64_t)rand_r(&seed) % 50;

                publish_step(seg, step);
            }
        }
        for (int i = 0; i < 20000; i++) {
            struct hf_clock_published pub;
            uint64_t now = hf_clock_now_ms(seg);

            assert_true(now >= last);
            last = now;
            if (hf_clock_published(seg, &pub))
                assert_false(is_mixed(&pub));
        }
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_true(hf_clock_now_ms(seg) >= last);
    }
}

/* ---- a publication stopped at each of its instructions ---------------------------------------------------- */

/* A child under trace that publishes a step back of 500 s. Runs it for up to `steps` instructions; how many it made. Ends
 * stopped there, or gone when *gone. */
static pid_t step_publisher(struct hf_segment *seg, uint64_t store_ms, long steps, long *made, bool *gone)
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        uint64_t mono = hf_clock_mono_fine_ms();

        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(SKIPPED);
        (void)raise(0); /* so that the dynamic linker has no work within the steps */
        (void)raise(SIGSTOP);
        hf_clock_publish(seg, store_ms, mono, 0);
        (void)raise(SIGKILL);
    }
    *gone = false;
    *made = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    while (WIFSTOPPED(status) && *made < steps) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        ++*made;
    }
    if (!WIFSTOPPED(status)) {
        *gone = true;
        if (WIFEXITED(status)) /* never stopped, never killed */
            *made = -1;
    }
    return pid;
}

/* Whatever is seen while it is stopped is not taken back when it goes on, nor when it is killed and another one comes. */
static void stopped_at_every_instruction(void **state)
{
    struct hf_segment *seg = *state;
    long total = 0;
    bool gone = false;

    hf_clock_publish(seg, 1000000, hf_clock_mono_fine_ms(), 0);
    (void)step_publisher(seg, 500000, LONG_MAX, &total, &gone);
    if (total < 0) {
        print_message("stopped_at_every_instruction: processes cannot be traced here\n");
        skip();
    }
    assert_true(total > 20);
    /* Sanitizers make many more instructions of it: then not all of them. */
    long stride = 1 + total / 500;
    for (long steps = 0; steps < total; steps += stride) {
        uint64_t base = hf_clock_now_ms(seg) + 1000000;
        bool killed = steps % 3 == 0;
        long made;

        hf_clock_publish(seg, base, hf_clock_mono_fine_ms(), 0);
        uint32_t before = seg->header->clk_seq;
        pid_t pid = step_publisher(seg, base - 500000, steps, &made, &gone);
        /* Two ticks of the coarse clock; more of it finds nothing where it took over already. */
        if (seg->header->clk_seq - before < 2)
            (void)usleep(9000);
        uint64_t seen = hf_clock_now_ms(seg);
        assert_in_range(seen, base, base + 300000);
        if (!gone) {
            assert_int_equal(killed ? kill(pid, SIGKILL) : (int)ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
            assert_int_equal(waitpid(pid, NULL, 0), pid);
        }
        if (hf_clock_now_ms(seg) < seen)
            fail_msg("stopped after %ld instructions, it went on before what was seen", steps);
        hf_clock_publish(seg, base - 400000, hf_clock_mono_fine_ms(), 0);
        assert_true(hf_clock_now_ms(seg) >= seen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(injected_clock_moves_only_forward),
        cmocka_unit_test_setup_teardown(nothing_published_is_zero, setup, teardown),
        cmocka_unit_test_setup_teardown(publication_is_advanced_by_the_monotonic_clock, setup, teardown),
        cmocka_unit_test_setup_teardown(step_back_holds_still, setup, teardown),
        cmocka_unit_test_setup_teardown(elapsed_runs_on_whatever_the_store_says, setup, teardown),
        cmocka_unit_test_setup_teardown(stopped_publisher_stops_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(counter_wraps_without_losing_the_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(readers_never_see_it_step_back, setup, teardown),
        cmocka_unit_test_setup_teardown(killed_publishers_leave_a_clock, setup, teardown),
        cmocka_unit_test_setup_teardown(stopped_at_every_instruction, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
