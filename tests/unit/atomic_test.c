/* The 128-bit swap is one swap: between threads, and between processes that share nothing but the page. An emulator, or a
 * library, that takes a lock of its own would pass the first and fail the second. */
/* ctest: labels=threads timeout=60 */
#include "shm/atomic.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WORKERS 3
#define ROUNDS  100000U

/* The halves count together: hi is 3 * lo. A torn swap leaves a pair that breaks this, a lost one a count too low. */
static void *count_up(void *word_of_all)
{
    struct hf_u128 *word = word_of_all;
    uintptr_t odd = 0;
    for (uint32_t done = 0; done < ROUNDS;) {
        struct hf_u128 seen = {.lo = hf_load_acq_u64(&word->lo), .hi = 0};
        seen.hi = hf_load_acq_u64(&word->hi);
        struct hf_u128 next = {.lo = seen.lo + 1, .hi = seen.hi + 3};
        if (hf_cas_acqrel_u128(word, seen, next)) {
            odd += seen.hi != 3 * seen.lo; /* only a pair that was there can be swapped */
            done++;
        } else {
            hf_pause();
        }
    }
    return (void *)odd;
}

static struct hf_u128 *shared_word(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    return page;
}

static void threads_swap_both_halves_at_once(void **state)
{
    (void)state;
    struct hf_u128 *word = shared_word();
    pthread_t threads[WORKERS];
    for (uint32_t i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, word), 0);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        void *odd = NULL;
        assert_int_equal(pthread_join(threads[i], &odd), 0);
        assert_null(odd);
    }
    assert_int_equal(word->lo, WORKERS * ROUNDS);
    assert_int_equal(word->hi, 3U * WORKERS * ROUNDS);
    munmap(word, 4096);
}

static void processes_swap_both_halves_at_once(void **state)
{
    (void)state;
#if defined(HF_ATOMIC_TSAN)
    skip(); /* TSan's runtime takes a lock of the process for 128 bits, which is what this test finds */
#endif
    struct hf_u128 *word = shared_word();
    for (uint32_t i = 0; i < WORKERS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            _exit(count_up(word) == NULL ? 0 : 1);
        }
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        int status = -1;
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(word->lo, WORKERS * ROUNDS);
    assert_int_equal(word->hi, 3U * WORKERS * ROUNDS);
    munmap(word, 4096);
}

static void a_failed_swap_changes_nothing(void **state)
{
    (void)state;
    struct hf_u128 *word = shared_word();
    *word = (struct hf_u128){.lo = 1, .hi = 2};
    assert_false(hf_cas_acqrel_u128(word, (struct hf_u128){1, 3}, (struct hf_u128){7, 8}));
    assert_false(hf_cas_acqrel_u128(word, (struct hf_u128){0, 2}, (struct hf_u128){7, 8}));
    assert_int_equal(word->lo, 1);
    assert_int_equal(word->hi, 2);
    assert_true(hf_cas_acqrel_u128(word, (struct hf_u128){1, 2}, (struct hf_u128){7, 8}));
    assert_int_equal(word->lo, 7);
    assert_int_equal(word->hi, 8);
    munmap(word, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_swap_changes_nothing),
        cmocka_unit_test(threads_swap_both_halves_at_once),
        cmocka_unit_test(processes_swap_both_halves_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
