/* Four threads on one mapping, one hot tenant and a second one, ids that collide on purpose, closings that race with each
 * other and with the reaper; afterwards every bucket equals what the slots say, and no limit was ever passed. */
/* ctest: labels=threads timeout=300 */
#include "core/slot.h"
#include "shm/clock.h"
#include "tests/support/quota.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORKERS 4
#define ROUNDS  3000
#define IDS     700

struct worker {
    pthread_t thread;
    struct holdfast *handle;
    uint64_t random;
    uint32_t admitted;
    uint32_t closed; /* closings that this worker won */
    uint32_t odd;    /* answers that cannot be */
};

static uint64_t next_random(struct worker *worker)
{
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random;
}

static void one_reserve(struct worker *worker, const char *id, uint64_t r)
{
    struct holdfast_answer answer;
    const char *teams[] = {"u", "v", "w"};
    int rc = hf_test_reserve(worker->handle, id, teams[r % 3], NULL, 1 + r % 3, 1 + r % 50, &answer);
    worker->admitted += rc == HOLDFAST_OK && answer.replayed == 0;
    worker->odd += rc < 0;
}

static void one_closing(struct worker *worker, const char *id, uint64_t r)
{
    struct holdfast_closing closing;
    int rc = r % 3 == 0 ? holdfast_release(worker->handle, id, 0, &closing)
                        : hf_test_settle(worker->handle, id, r % 5, r % 3, r % 60, &closing);
    worker->closed += rc == HOLDFAST_OK && closing.replayed == 0 && closing.late == 0;
    worker->odd += rc < 0;
}

static void one_extension(struct worker *worker, const char *id, uint64_t r)
{
    struct holdfast_extension extension;
    struct holdfast_answer answer;
    holdfast_extension_init(&extension);
    extension.id = id;
    extension.cost_micros = r % 80;
    extension.tokens = r % 5;
    extension.ttl_ms = r % 2 == 0 ? HOLDFAST_UNKNOWN : 1 + r % 20;
    worker->odd += holdfast_extend(worker->handle, &extension, &answer) < 0;
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t r = next_random(worker);
        char id[16];
        int reason;
        snprintf(id, sizeof id, "id-%u", (unsigned)(r >> 40) % IDS);
        switch (r % 8) {
        case 0:
        case 1:
        case 2:
            one_reserve(worker, id, r >> 8);
            break;
        case 3:
        case 4:
            one_closing(worker, id, r >> 8);
            break;
        case 5:
            one_extension(worker, id, r >> 8);
            break;
        case 6:
            worker->odd += holdfast_dispatch(worker->handle, id, 0, &reason) < 0;
            break;
        default:
            hf_clock_inject(worker->handle->seg, hf_clock_now_ms(worker->handle->seg) + r % 3);
            int reaped = holdfast_reap(worker->handle, 50, NULL, NULL);
            worker->odd += reaped < 0;
            worker->closed += reaped > 0 ? (uint32_t)reaped : 0;
        }
    }
    return NULL;
}

static uint32_t count_states(const struct hf_segment *seg, bool closed)
{
    uint32_t cnt = 0;
    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        enum hf_state state = hf_st_state(seg->slots[i].slot_st); /* plain: quiesced */
        bool is_closed = state >= HF_STATE_SETTLED && state < HF_STATE_CREDIT;
        cnt += closed ? is_closed && state != HF_STATE_DISPUTED
                      : state >= HF_STATE_HELD && state < HF_STATE_CREDIT;
    }
    return cnt;
}

static void threads_agree(void **state)
{
    (void)state;
    struct hf_test_quota quota;
    struct worker workers[WORKERS] = {0};
    hf_test_quota_make(&quota, hf_test_policy(), 8192);
    for (int i = 0; i < WORKERS; i++) {
        workers[i].handle = quota.handles[i];
        workers[i].random = UINT64_C(0x9e3779b97f4a7c15) * ((uint64_t)i + 1);
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    uint32_t admitted = 0;
    uint32_t closed = 0;
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].odd, 0);
        admitted += workers[i].admitted;
        closed += workers[i].closed;
    }
    struct hf_u128 word;
    for (uint32_t t = 0; t < 2; t++) {
        assert_int_equal(hf_commit_ready(quota.seg, t, &word), HF_OK);
    }
    assert_true(admitted > 100);
    assert_int_equal(hf_test_mismatches(&quota), 0);
    assert_int_equal(count_states(quota.seg, false), admitted);
    /* Each reservation was closed at most once: what is closed was won by exactly one closing (disputes apart). */
    assert_true(closed >= count_states(quota.seg, true));
    hf_test_quota_free(&quota);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
