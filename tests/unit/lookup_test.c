/* Names to numbers: every name of a policy is found under its parent and nowhere else, at any size; a table full of
 * anything else ends every search and stays in its bounds. */
#include "core/lookup.h"

#include "core/policy_compile.h"
#include "core/price.h"

#include "tests/support/hand_segment.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t digest[32];

static void compiled(const struct hf_policy *policy, struct hf_segment *seg)
{
    struct hf_segment_plan plan;
    struct hf_error err = {0};

    memset(&plan, 0, sizeof(plan));
    assert_int_equal(hf_policy_plan(policy, &plan, NULL), HF_OK);
    hf_hand_segment_make(&plan, seg);
    if (hf_policy_compile(policy, digest, 1, seg, &err) != HF_OK) {
        fail_msg("%s", err.text);
    }
}

static uint32_t find(const struct hf_segment *seg, uint32_t kind, uint32_t parent, const char *text)
{
    return hf_lookup_find(seg, hf_lookup_policy(seg, 1), kind, parent, text, (uint32_t)strlen(text));
}

static void names_are_found_under_their_parent(void **state)
{
    struct hf_segment seg;

    (void)state;
    compiled(hf_hand_policy(), &seg);
    const struct hf_shm_policy *policy = hf_lookup_policy(&seg, 1);

    assert_int_equal(find(&seg, HF_LOOKUP_TENANT, 0, "echo"), 0);
    assert_int_equal(find(&seg, HF_LOOKUP_TENANT, 0, "other"), 1);
    assert_int_equal(find(&seg, HF_LOOKUP_TEAM, 0, "content"), 1);
    assert_int_equal(find(&seg, HF_LOOKUP_TEAM, 5, "content"), 6);
    assert_int_equal(find(&seg, HF_LOOKUP_KEY, 2, "content"), 4);
    assert_int_equal(find(&seg, HF_LOOKUP_KEY, 1, "content"), HF_SHM_NONE);
    assert_int_equal(find(&seg, HF_LOOKUP_TENANT, 0, "content"), HF_SHM_NONE);
    assert_int_equal(find(&seg, HF_LOOKUP_TENANT, 0, "ech"), HF_SHM_NONE);
    assert_int_equal(find(&seg, HF_LOOKUP_TENANT, 0, "echo "), HF_SHM_NONE);
    assert_int_equal(find(&seg, HF_LOOKUP_TENANT, 0, "Echo"), HF_SHM_NONE);
    assert_int_equal(find(&seg, HF_LOOKUP_TENANT, 0, ""), HF_SHM_NONE);
    assert_int_equal(
        find(&seg, HF_LOOKUP_TENANT, 0, "1234567890123456789012345678901234567890123456789012345678901234"),
        HF_SHM_NONE);
    assert_int_equal(find(&seg, HF_LOOKUP_CAP, 2, "summary"), HF_SHM_NONE);

    const struct hf_shm_cap *cap = hf_lookup_cap(&seg, policy, find(&seg, HF_LOOKUP_CAP, 1, "reply"));
    assert_int_equal(cap->cap_micros, 4200);
    assert_int_equal(cap->cap_tokens, 8192);
    assert_int_equal(cap->cap_basis, HF_BASIS_CAP);
    assert_int_equal(cap->cap_team_row, 1);
    cap = hf_lookup_cap(&seg, policy, find(&seg, HF_LOOKUP_CAP, 2, "reply"));
    assert_int_equal(cap->cap_micros, HF_SHM_UNKNOWN);
    assert_int_equal(cap->cap_tokens, 1);
    assert_null(hf_lookup_cap(&seg, policy, 3));
    assert_null(hf_lookup_cap(&seg, policy, HF_SHM_NONE));
    hf_hand_segment_free(&seg);
}

static void prices_are_those_of_the_model(void **state)
{
    struct hf_segment seg;
    struct hf_price price;
    uint32_t model = 0;
    char text[64];

    (void)state;
    compiled(hf_hand_policy(), &seg);
    assert_true(hf_lookup_price(&seg, find(&seg, HF_LOOKUP_MODEL, 0, "mini"), &price, &model));
    assert_int_equal(price.input, 500000);
    assert_int_equal(price.output, 1000000);
    assert_int_equal(price.cached_input, 50000);
    assert_int_equal(price.cache_write, HF_UNKNOWN);
    assert_int_equal(price.max_output_tokens, 2048);
    hf_lookup_name(&seg, model, text);
    assert_string_equal(text, "mini");
    assert_true(hf_lookup_price(&seg, find(&seg, HF_LOOKUP_MODEL, 0, "echo"), &price, NULL));
    assert_int_equal(price.cache_write, 4);
    /* A place that nobody filled is no model for free. */
    assert_false(hf_lookup_price(&seg, 4, &price, NULL));
    assert_false(hf_lookup_price(&seg, HF_SHM_NONE, &price, NULL));
    hf_hand_segment_free(&seg);
}

static void names_out_of_range_are_empty(void **state)
{
    struct hf_segment seg;
    char text[64];

    (void)state;
    compiled(hf_hand_policy(), &seg);
    assert_int_equal(hf_lookup_name(&seg, HF_SHM_NONE, text), 0);
    assert_string_equal(text, "");
    assert_int_equal(hf_lookup_name(&seg, seg.names_max, text), 0);
    assert_int_equal(hf_lookup_name(&seg, seg.names_max - 1, text), 0);
    seg.names[0].name_bytes = 64;
    assert_int_equal(hf_lookup_name(&seg, 0, text), 0);
    hf_hand_segment_free(&seg);
}

/* 300 tenants x 20 teams x 5 keys: long probes, shared names, several parents. */
static void a_large_policy_is_found_whole(void **state)
{
    enum {
        TENANTS = 300,
        TEAMS = 20,
        KEYS = 5
    };
    struct hf_policy policy = *hf_hand_policy();
    struct hf_policy_tenant *tenants = calloc(TENANTS, sizeof(*tenants));
    struct hf_policy_team *teams = calloc(TENANTS * TEAMS, sizeof(*teams));
    struct hf_policy_key *keys = calloc(TENANTS * TEAMS * KEYS, sizeof(*keys));
    struct hf_segment seg;
    char text[64];

    (void)state;
    assert_true(tenants != NULL && teams != NULL && keys != NULL);
    policy.tenants = tenants;
    policy.tenant_cnt = TENANTS;
    for (int t = 0; t < TENANTS; t++) {
        tenants[t].teams = &teams[t * TEAMS];
        tenants[t].team_cnt = TEAMS;
        tenants[t].id.len = (uint8_t)snprintf(tenants[t].id.bytes, 64, "tenant-%d", t);
        for (int m = 0; m < TEAMS; m++) {
            struct hf_policy_team *team = &tenants[t].teams[m];
            team->id.len = (uint8_t)snprintf(team->id.bytes, 64, "team-%d", m);
            team->keys = &keys[(t * TEAMS + m) * KEYS];
            team->key_cnt = KEYS;
            for (int k = 0; k < KEYS; k++) {
                team->keys[k].id.len =
                    (uint8_t)snprintf(team->keys[k].id.bytes, 64, "k%d-%d", k, t * TEAMS + m);
            }
        }
    }
    compiled(&policy, &seg);
    for (int t = 0; t < TENANTS; t++) {
        uint32_t tenant = find(&seg, HF_LOOKUP_TENANT, 0, tenants[t].id.bytes);
        assert_int_equal(tenant, t);
        for (int m = 0; m < TEAMS; m++) {
            uint32_t row = find(&seg, HF_LOOKUP_TEAM, seg.tenants[t].ten_row, teams[m].id.bytes);
            assert_int_equal(seg.rows[row].row_parent, seg.tenants[t].ten_row);
            for (int k = 0; k < KEYS; k++) {
                uint32_t key = find(&seg, HF_LOOKUP_KEY, row, keys[(t * TEAMS + m) * KEYS + k].id.bytes);
                assert_int_equal(seg.rows[key].row_parent, row);
                assert_int_equal(seg.rows[key].row_tenant, t);
                hf_lookup_name(&seg, seg.rows[key].row_name, text);
                assert_string_equal(text, keys[(t * TEAMS + m) * KEYS + k].id.bytes);
            }
        }
    }
    hf_hand_segment_free(&seg);
    free(keys);
    free(teams);
    free(tenants);
}

static void every_byte_of_a_name_counts(void **state)
{
    struct hf_policy policy = *hf_hand_policy();
    struct hf_policy_model models[HF_NAME_BYTES_MAX];
    struct hf_segment seg;

    (void)state;
    memset(models, 0, sizeof(models));
    for (uint8_t len = 1; len <= HF_NAME_BYTES_MAX; len++) {
        models[len - 1].id.len = len;
        memset(models[len - 1].id.bytes, 'x', len);
    }
    policy.models = models;
    policy.model_cnt = HF_NAME_BYTES_MAX;
    compiled(&policy, &seg);
    for (uint32_t len = 1; len <= HF_NAME_BYTES_MAX; len++) {
        char *text = malloc(len); /* exactly: a step behind it is seen */
        assert_non_null(text);
        memset(text, 'x', len);
        uint32_t price = hf_lookup_find(&seg, hf_lookup_policy(&seg, 1), HF_LOOKUP_MODEL, 0, text, len);
        assert_int_equal(price, len - 1);
        /* The stored name differs in one byte from the one that its place in the table was made for. */
        struct hf_shm_name *name = &seg.names[seg.prices[price].prc_model];
        for (uint32_t i = 0; i < len; i++) {
            name->name_text[i] ^= 1;
            assert_int_equal(hf_lookup_find(&seg, hf_lookup_policy(&seg, 1), HF_LOOKUP_MODEL, 0, text, len),
                             HF_SHM_NONE);
            name->name_text[i] ^= 1;
        }
        free(text);
    }
    hf_hand_segment_free(&seg);
}

static uint64_t random_next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

/* Every byte that a search may read, damaged: it answers something in bounds, or nothing. The regions are heap
 * blocks of their exact size, so the sanitizers see a step outside. */
static void damaged_tables_end_every_search(void **state)
{
    struct hf_segment seg;
    uint64_t x = 88172645463325252ULL;
    uint64_t answers = 0;

    (void)state;
    compiled(hf_hand_policy(), &seg);
    uint8_t *whole = malloc(2 * seg.policy_bytes);
    assert_non_null(whole);
    memcpy(whole, seg.policies, 2 * seg.policy_bytes);
    for (int round = 0; round < 3000; round++) {
        struct hf_shm_policy *head = (void *)(seg.policies + seg.policy_bytes);
        memcpy(seg.policies, whole, 2 * seg.policy_bytes);
        if (round % 3 == 0) { /* no entry is empty */
            for (uint64_t i = head->pol_lookup_off; i < head->pol_bytes; i++) {
                ((uint8_t *)head)[i] = (uint8_t)(1 + random_next(&x) % 6);
            }
        }
        uint8_t *fields = (uint8_t *)head + 4; /* the generation stays, so that the rest is looked at */
        for (uint64_t i = 0; i < 1 + random_next(&x) % 3; i++) {
            uint64_t at = random_next(&x) % 44;
            fields[at] = (uint8_t)(random_next(&x) >> (random_next(&x) % 8));
        }
        seg.names[random_next(&x) % 4].name_bytes = (uint8_t)random_next(&x);

        const struct hf_shm_policy *policy = hf_lookup_policy(&seg, 1);
        if (policy == NULL) {
            continue;
        }
        for (uint32_t kind = HF_LOOKUP_TENANT; kind <= HF_LOOKUP_NAME; kind++) {
            answers += hf_lookup_find(&seg, policy, kind, (uint32_t)(random_next(&x) % 8), "content", 7) !=
                       HF_SHM_NONE;
        }
        for (uint32_t i = 0; i < 10; i++) {
            const struct hf_shm_row_policy *row = hf_lookup_row(&seg, policy, i);
            const struct hf_shm_cap *cap = hf_lookup_cap(&seg, policy, i);
            answers += row != NULL && row->rpl_pad[1] == 0;
            answers += cap != NULL && cap->cap_pad == 0;
        }
    }
    assert_true(answers > 0);
    free(whole);
    hf_hand_segment_free(&seg);
}

static void a_header_that_cannot_be_is_no_policy(void **state)
{
    struct hf_segment seg;

    (void)state;
    compiled(hf_hand_policy(), &seg);
    struct hf_shm_policy *head = (void *)(seg.policies + seg.policy_bytes);
    struct hf_shm_policy whole = *head;

    assert_non_null(hf_lookup_policy(&seg, 1));
    assert_null(hf_lookup_policy(&seg, 0));
    assert_null(hf_lookup_policy(&seg, 2));
    assert_null(hf_lookup_policy(&seg, 3));
    head->pol_rows_cnt = seg.rows_cnt + 1;
    assert_null(hf_lookup_policy(&seg, 1));
    *head = whole;
    head->pol_lookup_mask = 6;
    assert_null(hf_lookup_policy(&seg, 1));
    *head = whole;
    head->pol_lookup_off = seg.policy_bytes;
    assert_null(hf_lookup_policy(&seg, 1));
    *head = whole;
    head->pol_caps_off = UINT64_MAX - 7;
    assert_null(hf_lookup_policy(&seg, 1));
    *head = whole;
    head->pol_rows_off += 4;
    assert_null(hf_lookup_policy(&seg, 1));
    hf_hand_segment_free(&seg);
}

/* The header was right when it was looked up, and is damaged when something is looked for by it. */
static void a_header_that_changes_leads_nowhere(void **state)
{
    struct hf_segment seg;

    (void)state;
    compiled(hf_hand_policy(), &seg);
    struct hf_shm_policy *head = (void *)(seg.policies + seg.policy_bytes);
    const struct hf_shm_policy *policy = hf_lookup_policy(&seg, 1);
    struct hf_shm_policy whole = *head;
    const uint64_t offs[] = {
        0, 4, seg.policy_bytes - 8, seg.policy_bytes, 0x73c4b9c0e4936808, UINT64_MAX - 7};

    assert_non_null(policy);
    assert_non_null(hf_lookup_cap(&seg, policy, 0));
    for (size_t i = 0; i < sizeof(offs) / sizeof(offs[0]); i++) {
        head->pol_caps_off = head->pol_rows_off = head->pol_lookup_off = offs[i];
        assert_null(hf_lookup_cap(&seg, policy, 0));
        assert_null(hf_lookup_row(&seg, policy, 0));
        assert_int_equal(hf_lookup_find(&seg, policy, HF_LOOKUP_TENANT, 0, "echo", 4), HF_SHM_NONE);
    }
    *head = whole;
    head->pol_caps_cnt = head->pol_rows_cnt = UINT32_MAX;
    assert_null(hf_lookup_cap(&seg, policy, UINT32_MAX - 1));
    assert_null(hf_lookup_row(&seg, policy, UINT32_MAX - 1));
    hf_hand_segment_free(&seg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_under_their_parent),
        cmocka_unit_test(prices_are_those_of_the_model),
        cmocka_unit_test(names_out_of_range_are_empty),
        cmocka_unit_test(every_byte_of_a_name_counts),
        cmocka_unit_test(a_large_policy_is_found_whole),
        cmocka_unit_test(damaged_tables_end_every_search),
        cmocka_unit_test(a_header_that_cannot_be_is_no_policy),
        cmocka_unit_test(a_header_that_changes_leads_nowhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
