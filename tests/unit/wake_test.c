/* ctest: labels=threads */
/* Waking the daemon, and flushes: a flush ends only after a cycle that began after it. */
#include "shm/chunk.h"
#include "shm/wake.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define LONG_MS 100000U /* no test waits for it: a lost wake-up shows as the test's timeout */

static int setup(void **state)
{
    const struct hf_segment_plan plan = {
        .slots = 64,
        .owners = 4,
        .tenants = 1,
        .rows = 1,
        .names = 1,
        .prices = 1,
        .policy_bytes = 64,
        .group = (gid_t)-1,
    };
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

static void a_word_that_changed_is_not_slept_on(void **state)
{
    struct hf_segment *seg = *state;
    uint32_t seen = hf_wake_wait(seg, 0, 1); /* nobody woke: the timeout */

    assert_int_equal(seen, 0);
    hf_wake_daemon(seg);
    assert_int_equal(hf_wake_wait(seg, seen, LONG_MS), 1); /* returns at once */
    hf_wake_daemon(seg);
    hf_wake_daemon(seg);
    assert_int_equal(hf_wake_wait(seg, 1, LONG_MS), 3);
}

static void a_sleeper_in_another_process_is_woken(void **state)
{
    struct hf_segment *seg = *state;
    int status = -1;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(hf_wake_wait(seg, 0, LONG_MS) == 1 ? 0 : 1);
    (void)usleep(20000);
    hf_wake_daemon(seg);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void without_a_daemon_a_flush_gives_up(void **state)
{
    struct hf_segment *seg = *state;
    uint32_t before = seg->header->wake_word;

    assert_int_equal(hf_wake_flush(seg, 5), HF_ENOTREADY);
    assert_int_equal(seg->header->wake_word, before + 1); /* it asked */
    assert_int_equal(hf_wake_flush(seg, 0), HF_ENOTREADY);
}

struct flusher {
    struct hf_segment *seg;
    uint64_t done; /* 0: waits; 1: flushed; 2: failed */
};

static void *flush(void *arg)
{
    struct flusher *flusher = arg;

    hf_store_rel_u64(&flusher->done, hf_wake_flush(flusher->seg, LONG_MS) == HF_OK ? 1 : 2);
    return NULL;
}

/* The cycle that runs when the flush begins is not enough: it may have taken its marks before. */
static void a_running_cycle_is_not_enough(void **state)
{
    struct hf_segment *seg = *state;
    struct flusher flusher = {.seg = seg};
    pthread_t thread;

    hf_wake_cycle_begin(seg);
    assert_int_equal(pthread_create(&thread, NULL, flush, &flusher), 0);
    while (hf_load_acq_u32(&seg->header->wake_word) == 0) /* the flush has chosen its cycle, and woken us */
        (void)usleep(100);
    hf_wake_cycle_done(seg);
    (void)usleep(20000);
    assert_int_equal(hf_load_acq_u64(&flusher.done), 0);
    /* A daemon killed in the next cycle: the one after it counts for both. */
    hf_wake_cycle_begin(seg);
    (void)usleep(1000);
    assert_int_equal(hf_load_acq_u64(&flusher.done), 0);
    hf_wake_cycle_begin(seg);
    hf_wake_cycle_done(seg);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(flusher.done, 1);
}

/* ---- beside a daemon ------------------------------------------------------------------------------------- */

struct shared {
    uint64_t stop;
    uint64_t early; /* flushes that returned before their mark was taken */
    uint64_t flushes;
    uint64_t taken[64]; /* per slot: what the daemon has seen of its counter */
    uint64_t value[64];
};

/* Raises its slot's counter, marks, flushes: the daemon must have seen the new counter. */
static void work(struct hf_segment *seg, struct shared *shared, uint32_t slot, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        uint64_t value = hf_add_acqrel_u64(&shared->value[slot], 1) + 1U;

        hf_chunk_mark_dirty(seg, slot);
        if (hf_wake_flush(seg, LONG_MS) != HF_OK || hf_load_acq_u64(&shared->taken[slot]) < value)
            hf_add_acqrel_u64(&shared->early, 1);
        hf_add_acqrel_u64(&shared->flushes, 1);
    }
}

static void serve(struct hf_segment *seg, struct shared *shared)
{
    uint32_t seen = 0;

    while (hf_load_acq_u64(&shared->stop) == 0) {
        hf_wake_cycle_begin(seg);
        for (uint32_t c = 0; c < seg->chunks_cnt; c++) {
            uint64_t bits = hf_chunk_take_marks(seg, c);

            for (; bits != 0; bits &= bits - 1U) {
                uint32_t slot = (c << seg->chunk_shift) + (uint32_t)__builtin_ctzll(bits);

                hf_store_rel_u64(&shared->taken[slot], hf_load_acq_u64(&shared->value[slot]));
            }
        }
        hf_wake_cycle_done(seg);
        seen = hf_wake_wait(seg, seen, 10);
    }
}

static void no_flush_returns_before_its_marks_are_taken(void **state)
{
    struct hf_segment *seg = *state;
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[3];

    assert_ptr_not_equal(shared, MAP_FAILED);
    for (uint32_t i = 0; i < 3; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] != 0)
            continue;
        if (i == 0)
            serve(seg, shared);
        else
            work(seg, shared, i, 3000);
        _exit(0);
    }
    for (uint32_t i = 1; i < 3; i++) {
        int status = -1;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    hf_store_rel_u64(&shared->stop, 1);
    hf_wake_daemon(seg);
    assert_int_equal(waitpid(pids[0], NULL, 0), pids[0]);
    assert_int_equal(shared->flushes, 6000);
    assert_int_equal(shared->early, 0);
    assert_int_equal(munmap(shared, sizeof *shared), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_word_that_changed_is_not_slept_on, setup, teardown),
        cmocka_unit_test_setup_teardown(a_sleeper_in_another_process_is_woken, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_daemon_a_flush_gives_up, setup, teardown),
        cmocka_unit_test_setup_teardown(a_running_cycle_is_not_enough, setup, teardown),
        cmocka_unit_test_setup_teardown(no_flush_returns_before_its_marks_are_taken, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
