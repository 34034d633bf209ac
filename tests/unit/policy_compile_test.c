/* A policy in a segment: numbers, inheritance of keys, names once, and every table too small by one. */
#include "core/policy_compile.h"

#include "core/lookup.h"

#include "tests/support/hand_segment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define NONE HF_UNKNOWN

static const uint8_t digest[32] = {1, 2, 3, [31] = 9};

static struct hf_segment_plan planned(void)
{
    struct hf_segment_plan plan;

    memset(&plan, 0, sizeof(plan));
    assert_int_equal(hf_policy_plan(hf_hand_policy(), &plan, NULL), HF_OK);
    return plan;
}

static void compiled(struct hf_segment *seg, uint32_t gen)
{
    struct hf_segment_plan plan = planned();
    struct hf_error err = {0};

    hf_hand_segment_make(&plan, seg);
    if (hf_policy_compile(hf_hand_policy(), digest, gen, seg, &err) != HF_OK) {
        fail_msg("%s", err.text);
    }
}

static void name_is(const struct hf_segment *seg, uint32_t name, const char *expected)
{
    char text[64];

    assert_int_equal(hf_lookup_name(seg, name, text), strlen(expected));
    assert_string_equal(text, expected);
}

static void a_plan_leaves_room_to_grow(void **state)
{
    struct hf_segment_plan plan = planned();

    (void)state;
    assert_int_equal(plan.tenants, 2 + 64);
    assert_int_equal(plan.rows, 7 + 64);
    assert_int_equal(plan.prices, 4 + 64);
    /* echo has two capabilities by name, other none; four models and explicit amounts */
    assert_int_equal(plan.meters, 2 * 5 + 64);
    assert_true(plan.names >= 64 + 11);
    assert_int_equal(plan.policy_bytes % 4096, 0);
    assert_int_equal(plan.slots, 0); /* not its business */
}

static void rows_are_numbered_tenant_teams_keys(void **state)
{
    static const struct {
        const char *name;
        uint32_t tenant, parent, layer;
    } rows[] = {
        {"echo", 0, HF_SHM_NONE, 2}, {"content", 0, 0, 1},         {"support", 0, 0, 1}, {"bot", 0, 2, 0},
        {"content", 0, 2, 0},        {"other", 1, HF_SHM_NONE, 2}, {"content", 1, 5, 1},
    };
    struct hf_segment seg;

    (void)state;
    compiled(&seg, 1);
    for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct hf_shm_row *row = &seg.rows[i];
        name_is(&seg, row->row_name, rows[i].name);
        assert_int_equal(row->row_tenant, rows[i].tenant);
        assert_int_equal(row->row_parent, rows[i].parent);
        assert_int_equal(row->row_layer, rows[i].layer);
        assert_int_equal(hf_bucket_value(row->row_buckets[3][2]), 0);
    }
    assert_int_equal(seg.rows[7].row_name, 0); /* the next row is untouched */
    assert_int_equal(seg.tenants[0].ten_row, 0);
    assert_int_equal(seg.tenants[1].ten_row, 5);
    assert_int_equal(seg.tenants[1].ten_policy, 1);
    name_is(&seg, seg.tenants[1].ten_name, "other");
    assert_int_equal(hf_word_seq(seg.tenants[0].ten_word), 0);
    assert_int_equal(hf_word_kind(seg.tenants[0].ten_word), HF_KIND_NONE);
    assert_int_equal(hf_policy_row(&seg, 1, "echo", NULL, NULL), 0);
    assert_int_equal(hf_policy_row(&seg, 1, "echo", "support", NULL), 2);
    assert_int_equal(hf_policy_row(&seg, 1, "echo", "support", "content"), 4);
    assert_int_equal(hf_policy_row(&seg, 1, "other", "content", NULL), 6);
    assert_int_equal(hf_policy_row(&seg, 1, "other", "support", NULL), HF_SHM_NONE);
    assert_int_equal(hf_policy_row(&seg, 1, "echo", "content", "bot"), HF_SHM_NONE);
    assert_int_equal(hf_policy_row(&seg, 1, "echo", NULL, "bot"), HF_SHM_NONE);
    assert_int_equal(hf_policy_row(&seg, 2, "echo", NULL, NULL), HF_SHM_NONE);
    hf_hand_segment_free(&seg);
}

static void rules_are_those_in_force(void **state)
{
    struct hf_segment seg;

    (void)state;
    compiled(&seg, 3);
    const struct hf_shm_policy *policy = hf_lookup_policy(&seg, 3);
    assert_non_null(policy);
    assert_int_equal(seg.header->hdr_policy_gen, 3);
    assert_memory_equal(policy->pol_digest, digest, 32);
    name_is(&seg, policy->pol_currency, "CNY");
    name_is(&seg, policy->pol_price_revision, "2026-11");
    assert_int_equal(policy->pol_tenants_cnt, 2);
    assert_int_equal(policy->pol_models_cnt, 4);

    const struct hf_shm_row_policy *tenant = hf_lookup_row(&seg, policy, 0);
    assert_int_equal(tenant->rpl_limits[3][2], 100000000);
    assert_int_equal(tenant->rpl_limits[3][0], NONE);
    assert_int_equal(tenant->rpl_limits[4][0], HF_AMOUNT_MAX);
    assert_int_equal(tenant->rpl_on_limit, HF_ON_LIMIT_DEGRADE);
    assert_int_equal(tenant->rpl_overdraft_micros, 1000);

    const struct hf_shm_row_policy *team = hf_lookup_row(&seg, policy, 2);
    assert_int_equal(team->rpl_limits[0][0], 60);
    assert_int_equal(team->rpl_limits[0][1], 90000);
    assert_int_equal(team->rpl_limits[3][2], 0); /* zero is a limit, not its absence */

    /* A key has limits of its own and everything else of its team. */
    const struct hf_shm_row_policy *key = hf_lookup_row(&seg, policy, 3);
    assert_int_equal(key->rpl_limits[3][1], 2000000);
    assert_int_equal(key->rpl_limits[0][0], NONE);
    assert_int_equal(key->rpl_on_limit, HF_ON_LIMIT_DEGRADE);
    assert_int_equal(key->rpl_overdraft_micros, 17);
    assert_int_equal(key->rpl_queue_limit, 2);
    assert_int_equal(key->rpl_queue_deadline_ms, 2000);
    assert_int_equal(key->rpl_ttl_ms, 5000);
    assert_int_equal(key->rpl_retry_after_ms, 7000);
    assert_int_equal(key->rpl_on_expiry, HF_ON_EXPIRY_RETAIN_DISPATCHED);
    assert_int_equal(key->rpl_on_overage, HF_ON_OVERAGE_FAIL);
    assert_int_equal(key->rpl_present, 1);
    assert_null(hf_lookup_row(&seg, policy, 7));
    hf_hand_segment_free(&seg);
}

static void names_stand_once(void **state)
{
    struct hf_segment seg;

    (void)state;
    compiled(&seg, 1);
    uint32_t cnt = seg.header->hdr_names_cnt;
    assert_int_equal(cnt, 12); /* CNY 2026-11 echo content support bot other summary reply mock mini free */
    for (uint32_t i = 0; i < cnt; i++) {
        char text[64];
        uint32_t bytes = hf_lookup_name(&seg, i, text);
        assert_int_not_equal(bytes, 0);
        assert_int_equal(hf_policy_intern(&seg, text, bytes, false), i);
        assert_int_equal(hf_policy_intern(&seg, text, bytes, true), i);
    }
    assert_int_equal(seg.header->hdr_names_cnt, cnt);

    assert_int_equal(hf_policy_intern(&seg, "retired", 7, false), HF_SHM_NONE);
    assert_int_equal(hf_policy_intern(&seg, "retired", 7, true), cnt);
    assert_int_equal(hf_policy_intern(&seg, "retired", 7, true), cnt);
    name_is(&seg, cnt, "retired");
    assert_int_equal(hf_policy_intern(&seg, "", 0, true), HF_SHM_NONE);
    assert_int_equal(hf_policy_intern(&seg, "a\nb", 3, true), HF_SHM_NONE);
    for (uint32_t i = cnt + 1; i < seg.names_max; i++) {
        char text[16];
        int bytes = snprintf(text, sizeof(text), "n%u", i);
        assert_int_equal(hf_policy_intern(&seg, text, (uint32_t)bytes, true), i);
    }
    assert_int_equal(hf_policy_intern(&seg, "one more", 8, true), HF_SHM_NONE);
    hf_hand_segment_free(&seg);
}

static void a_segment_with_names_keeps_them(void **state)
{
    struct hf_segment_plan plan = planned();
    struct hf_segment seg;

    (void)state;
    hf_hand_segment_make(&plan, &seg);
    assert_int_equal(hf_policy_intern(&seg, "retired", 7, true), 0);
    assert_int_equal(hf_policy_intern(&seg, "reply", 5, true), 1);
    assert_int_equal(hf_policy_compile(hf_hand_policy(), digest, 1, &seg, NULL), HF_OK);
    assert_int_equal(seg.header->hdr_names_cnt, 13);
    assert_int_equal(hf_policy_intern(&seg, "reply", 5, true), 1);
    assert_int_equal(hf_policy_intern(&seg, "retired", 7, true), 0);
    hf_hand_segment_free(&seg);
}

/* Fails with a code and a sentence that says which count of the plan to raise. */
static void refuses(const struct hf_segment_plan *plan, const char *field)
{
    struct hf_segment seg;
    struct hf_error err = {0};

    hf_hand_segment_make(plan, &seg);
    assert_int_equal(hf_policy_compile(hf_hand_policy(), digest, 1, &seg, &err), HF_EFULL);
    assert_int_equal(err.code, HF_EFULL);
    if (strstr(err.text, field) == NULL) {
        fail_msg("'%s' does not name %s", err.text, field);
    }
    assert_null(hf_lookup_policy(&seg, 1));
    assert_int_equal(seg.header->hdr_policy_gen, 0);
    hf_hand_segment_free(&seg);
}

static void each_table_is_bounded(void **state)
{
    /* Exactly what it needs; then one less of each. */
    struct hf_segment_plan exact = planned();
    struct hf_segment seg;

    (void)state;
    exact.tenants = 2;
    exact.rows = 7;
    exact.names = 12;
    exact.prices = 4;
    hf_hand_segment_make(&exact, &seg);
    assert_int_equal(hf_policy_compile(hf_hand_policy(), digest, 1, &seg, NULL), HF_OK);
    exact.policy_bytes = hf_lookup_policy(&seg, 1)->pol_bytes;
    hf_hand_segment_free(&seg);
    hf_hand_segment_make(&exact, &seg);
    assert_int_equal(hf_policy_compile(hf_hand_policy(), digest, 1, &seg, NULL), HF_OK);
    hf_hand_segment_free(&seg);

    struct hf_segment_plan less = exact;
    less.tenants--;
    refuses(&less, "(tenants)");
    less = exact;
    less.rows--;
    refuses(&less, "(rows)");
    less = exact;
    less.prices--;
    refuses(&less, "(prices)");
    less = exact;
    less.policy_bytes -= 8;
    refuses(&less, "(policy_bytes)");
    for (less = exact; less.names > 0; less.names--) {
        if (less.names < exact.names) {
            refuses(&less, "(names)");
        }
    }
}

static void wrong_arguments_are_refused(void **state)
{
    struct hf_segment_plan plan = planned();
    struct hf_segment seg;

    (void)state;
    hf_hand_segment_make(&plan, &seg);
    assert_int_equal(hf_policy_compile(hf_hand_policy(), digest, 0, &seg, NULL), HF_EARG);
    assert_int_equal(hf_policy_compile(NULL, digest, 1, &seg, NULL), HF_EARG);
    assert_int_equal(hf_policy_plan(NULL, &plan, NULL), HF_EARG);

    /* A policy that no load would give: one name twice in a list. */
    struct hf_policy policy = *hf_hand_policy();
    struct hf_policy_model twice[2] = {policy.models[0], policy.models[0]};
    policy.models = twice;
    policy.model_cnt = 2;
    struct hf_error err = {0};
    assert_int_equal(hf_policy_compile(&policy, digest, 1, &seg, &err), HF_EARG);
    assert_non_null(strstr(err.text, "`mock` twice"));
    assert_null(hf_lookup_policy(&seg, 1));
    hf_hand_segment_free(&seg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_leaves_room_to_grow),
        cmocka_unit_test(rows_are_numbered_tenant_teams_keys),
        cmocka_unit_test(rules_are_those_in_force),
        cmocka_unit_test(names_stand_once),
        cmocka_unit_test(a_segment_with_names_keeps_them),
        cmocka_unit_test(each_table_is_bounded),
        cmocka_unit_test(wrong_arguments_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
