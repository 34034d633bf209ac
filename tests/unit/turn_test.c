/* ctest: labels=valgrind */
/* Wishes of workers that lose W to each other (core/turn.h). They are hints: what is shown is who leaves, grants and takes back one,
 * and that no value of that word changes an answer. */
#include "core/turn.h"
#include "tests/support/quota.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct hf_test_quota quota;

static int setup(void **state)
{
    (void)state;
    hf_test_quota_make(&quota, hf_test_policy(), 64);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    hf_test_quota_free(&quota);
    return 0;
}

static uint32_t tenant_of(const char *id)
{
    return quota.seg->slots[hf_test_slot(&quota, id)].slot_tenant;
}

static uint64_t wish(uint32_t tenant_idx)
{
    return quota.seg->tenants[tenant_idx].ten_wish;
}

static void reserve(const char *id)
{
    struct holdfast_answer answer;

    assert_int_equal(hf_test_reserve(quota.handles[0], id, "u", NULL, 10, 10, &answer), HOLDFAST_OK);
}

static void a_wish_is_granted_before_each_kind_of_operation(void **state)
{
    struct holdfast_closing closing;
    int reason;

    (void)state;
    reserve("a");
    uint32_t tenant_idx = tenant_of("a");
    uint64_t *word = &quota.seg->tenants[tenant_idx].ten_wish;

    *word = quota.handles[1]->owner.ref;
    reserve("b");
    assert_int_equal(wish(tenant_idx), 0);
    *word = quota.handles[1]->owner.ref;
    assert_int_equal(holdfast_dispatch(quota.handles[0], "b", 0, &reason), HOLDFAST_OK);
    assert_int_equal(wish(tenant_idx), 0);
    *word = quota.handles[1]->owner.ref;
    assert_int_equal(hf_test_settle(quota.handles[0], "b", 5, 5, 5, &closing), HOLDFAST_OK);
    assert_int_equal(wish(tenant_idx), 0);
    *word = UINT64_MAX; /* of nobody: granted the same */
    assert_int_equal(holdfast_release(quota.handles[0], "a", 0, &closing), HOLDFAST_OK);
    assert_int_equal(wish(tenant_idx), 0);
    assert_int_equal(hf_test_mismatches(&quota), 0);
}

static void nobody_gives_way_to_himself(void **state)
{
    (void)state;
    reserve("a");
    uint32_t tenant_idx = tenant_of("a");

    quota.seg->tenants[tenant_idx].ten_wish = quota.handles[0]->owner.ref;
    reserve("b");
    assert_int_equal(wish(tenant_idx), quota.handles[0]->owner.ref);
}

static void who_loses_leaves_a_wish_and_takes_it_back(void **state)
{
    (void)state;
    reserve("a");
    uint32_t tenant_idx = tenant_of("a");

    hf_turn_lost(quota.handles[1], tenant_idx, 0);
    assert_int_equal(wish(tenant_idx), quota.handles[1]->owner.ref);
    hf_turn_done(quota.handles[1], tenant_idx, 0); /* nothing was lost: the line is not even looked at */
    assert_int_equal(wish(tenant_idx), quota.handles[1]->owner.ref);
    hf_turn_done(quota.handles[0], tenant_idx, 1); /* another's stays */
    assert_int_equal(wish(tenant_idx), quota.handles[1]->owner.ref);
    hf_turn_done(quota.handles[1], tenant_idx, 1);
    assert_int_equal(wish(tenant_idx), 0);
}

/* A tenant as a damaged slot may name it. */
static void a_tenant_that_cannot_be_is_left_alone(void **state)
{
    (void)state;
    const uint32_t beyond[] = {quota.seg->tenants_cnt, HF_SHM_NONE};

    for (size_t i = 0; i < 2; i++) {
        hf_turn_give(quota.handles[0], beyond[i]);
        hf_turn_lost(quota.handles[0], beyond[i], 0);
        hf_turn_done(quota.handles[0], beyond[i], 1);
    }
    for (uint32_t t = 0; t < quota.seg->tenants_cnt; t++) {
        assert_int_equal(wish(t), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_wish_is_granted_before_each_kind_of_operation, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody_gives_way_to_himself, setup, teardown),
        cmocka_unit_test_setup_teardown(who_loses_leaves_a_wish_and_takes_it_back, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tenant_that_cannot_be_is_left_alone, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
