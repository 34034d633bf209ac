/* ctest: timeout=300
 * Policies: what is read, what is refused, where and with which words; the conformance policies when they are there. */
#include "core/policy.h"

#include <dirent.h>
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define CNT(array) (sizeof(array) / sizeof((array)[0]))
#define MAX_TEXT   "72057594037927935"

/* ---- memory that runs out ------------------------------------------------------------------------------ */

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || HAS_FEATURE(address_sanitizer) || \
    HAS_FEATURE(thread_sanitizer) || HAS_FEATURE(memory_sanitizer)
#define MALLOC_IS_OURS 0
#else
#define MALLOC_IS_OURS 1
#endif

static size_t calls_left; /* 0: nothing fails; else the call that makes it 0 fails */
static bool has_failed;
static size_t block_cnt; /* allocated and not freed */

#if MALLOC_IS_OURS
static bool fails(void)
{
    if (calls_left == 0 || --calls_left > 0) {
        return false;
    }
    has_failed = true;
    return true;
}

/* In front of the C library's, libyaml's calls too. The symbols are looked up as they are needed, since others allocate before
 * main. */
#define OURS __attribute__((visibility("default")))
OURS void *malloc(size_t size);
OURS void *calloc(size_t cnt, size_t size);
OURS void *realloc(void *memory, size_t size);
OURS void free(void *memory);

void *malloc(size_t size)
{
    static void *(*next)(size_t);

    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "malloc");
    }
    if (fails()) {
        return NULL;
    }
    block_cnt++;
    return next(size);
}

void *calloc(size_t cnt, size_t size)
{
    static void *(*next)(size_t, size_t);

    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "calloc");
    }
    if (fails()) {
        return NULL;
    }
    block_cnt++;
    return next(cnt, size);
}

void *realloc(void *memory, size_t size)
{
    static void *(*next)(void *, size_t);

    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "realloc");
    }
    if (fails()) {
        return NULL;
    }
    block_cnt += memory == NULL;
    return next(memory, size);
}

void free(void *memory)
{
    static void (*next)(void *);

    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "free");
    }
    block_cnt -= memory != NULL;
    next(memory);
}
#endif

/* ---- loading and comparing ----------------------------------------------------------------------------- */

static struct hf_policy *load(const char *text)
{
    struct hf_policy_report report = {0};
    struct hf_policy *policy;
    int status = hf_policy_load_bytes("p", text, strlen(text), 0, &policy, &report);

    if (status != HF_POLICY_LOADED) {
        hf_policy_report_print(&report, stderr);
    }
    assert_int_equal(status, HF_POLICY_LOADED);
    assert_non_null(policy);
    assert_int_equal(report.error_cnt, 0);
    hf_policy_report_free(&report);
    return policy;
}

/* The problems of a text, one a line: "LINE PATH: MESSAGE" for errors, "LINE ~PATH: MESSAGE" for warnings. The caller frees
 * it. */
static char *problems_of(const void *text, size_t len, uint32_t flags, int expected_status)
{
    struct hf_policy_report report = {0};
    struct hf_policy *policy = (struct hf_policy *)&report; /* must be overwritten */
    char *lines = NULL;
    size_t lines_len = 0;
    FILE *out = open_memstream(&lines, &lines_len);
    int status = hf_policy_load_bytes("p", text, len, flags, &policy, &report);

    assert_non_null(out);
    assert_int_equal(status, expected_status);
    assert_int_equal(policy != NULL, status == HF_POLICY_LOADED);
    assert_int_equal(report.error_cnt > 0, status == HF_POLICY_REFUSED);
    for (size_t i = 0; i < report.problem_cnt; i++) {
        fprintf(out, "%u %s%s: %s\n", report.problems[i].line,
                report.problems[i].severity == HF_POLICY_WARNING ? "~" : "", report.problems[i].path,
                report.problems[i].message);
    }
    fclose(out);
    hf_policy_free(policy);
    hf_policy_report_free(&report);
    return lines;
}

/* expected: lines of the form of problems_of, each cut anywhere: the rest of a message does not matter. */
static void assert_problems(const char *text, size_t len, const char *expected)
{
    bool refused = false;
    char *found;
    const char *have;

    for (const char *line = expected; *line != '\0'; line = strchr(line, '\n') + 1) {
        refused = refused || strchr(line, '~') == NULL || strchr(line, '~') != strchr(line, ' ') + 1;
    }
    found = problems_of(text, len, 0, refused ? HF_POLICY_REFUSED : HF_POLICY_LOADED);
    have = found;
    for (const char *line = expected; *line != '\0'; line = strchr(line, '\n') + 1) {
        size_t line_len = (size_t)(strchr(line, '\n') - line);

        if (strncmp(have, line, line_len) != 0) {
            fprintf(stderr, "of:\n%s\nexpected:\n%s\nfound:\n%s", text, expected, found);
            fail();
        }
        have = strchr(have, '\n') + 1;
    }
    if (*have != '\0') {
        fprintf(stderr, "of:\n%s\nmore than expected:\n%s", text, have);
        fail();
    }
    free(found);
}

/* Three lines that are right, and the rest of a policy from line 4 on. */
#define HEAD  "version: 1\ncurrency: CNY\nprices: {revision: r, models: []}\n"
#define MODEL "input_micros_per_mtok: 1, output_micros_per_mtok: 2"
/* One tenant from line 4 on, with one team and one capability, and what the arguments add to their fields. */
#define TENANT(more)        "tenants: [{id: t, teams: [{id: u, capabilities: [{id: c}]}], " more "}]\n"
#define TEAM(more)          "tenants: [{id: t, teams: [{id: u, capabilities: [{id: c}], " more "}]}]\n"
#define CAPABILITY(more)    "tenants: [{id: t, teams: [{id: u, capabilities: [{id: c, " more "}]}]}]\n"
#define SAY(text, expected) assert_problems(text, sizeof(text) - 1, expected)

/* ---- the conformance policies -------------------------------------------------------------------------- */

static const char *shared_folder(void)
{
    const char *folder = getenv("HOLDFAST_SHARED");

#ifdef HF_TEST_SHARED
    folder = folder != NULL && folder[0] != '\0' ? folder : HF_TEST_SHARED;
#endif
    return folder;
}

/* Loads each .json and .yaml file of a folder below conformance/policies; how many there were. */
static size_t load_folder(const char *below, int expected_status)
{
    char folder[4096];
    size_t cnt = 0;
    DIR *dir;

    snprintf(folder, sizeof(folder), "%s/conformance/policies%s", shared_folder(), below);
    dir = opendir(folder);
    if (dir == NULL) {
        skip();
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[8192];
        struct hf_policy_report report = {0};
        struct hf_policy *policy;
        int status;

        if (strstr(entry->d_name, ".json") == NULL && strstr(entry->d_name, ".yaml") == NULL) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        status = hf_policy_load(path, 0, &policy, &report);
        if (status != expected_status) {
            hf_policy_report_print(&report, stderr);
            fail_msg("%s: status %d", path, status);
        }
        for (size_t i = 0; i < report.problem_cnt; i++) {
            assert_true(report.problems[i].line > 0);
        }
        hf_policy_free(policy);
        hf_policy_report_free(&report);
        cnt++;
    }
    closedir(dir);
    return cnt;
}

static void conformance_policies_are_accepted(void **state)
{
    (void)state;
    assert_true(load_folder("", HF_POLICY_LOADED) > 20);
}

static void bad_conformance_policies_are_refused(void **state)
{
    (void)state;
    assert_true(load_folder("/bad", HF_POLICY_REFUSED) > 30);
}

/* ---- what is read -------------------------------------------------------------------------------------- */

static const char everything[] =
    "version: 1\n"
    "currency: CNY\n"
    "prices:\n"
    "  revision: 2026-11\n"
    "  models:\n"
    "    - {id: mock, input_micros_per_mtok: 1000000, output_micros_per_mtok: 2000000,\n"
    "       max_output_tokens: 4096}\n"
    "    - {id: mini, input_micros_per_mtok: 0, output_micros_per_mtok: " MAX_TEXT ",\n"
    "       cached_input_micros_per_mtok: 3, cache_write_input_micros_per_mtok: 4}\n"
    "defaults: {ttl_ms: 600000, on_expiry: retain}\n"
    "tenants:\n"
    "  - id: echo\n"
    "    on_limit: degrade\n"
    "    overdraft_micros: 0\n"
    "    on_overage: fail\n"
    "    retry_after_ms: 1\n"
    "    limits:\n"
    "      - {window: month, cost_micros: 100, tokens: 0}\n"
    "      - {window: lifetime, invocations: 7}\n"
    "    teams:\n"
    "      - id: content\n"
    "        on_expiry: retain_dispatched\n"
    "        on_overage: record\n"
    "        limits: [{window: minute, cost_micros: 40}]\n"
    "        capabilities:\n"
    "          - {id: summary, cap_micros: 1, cap_tokens: " MAX_TEXT ", reserve_basis: cap}\n"
    "          - {id: draw, cap_micros: 5, cap_tokens: 6}\n"
    "      - id: support\n"
    "        on_limit: queue\n"
    "        queue: {limit: 2, deadline_ms: 2000}\n"
    "        ttl_ms: 5\n"
    "        capabilities: [{id: reply, cap_micros: 4200, cap_tokens: 8192}]\n"
    "        keys:\n"
    "          - {id: bot, limits: [{window: day, tokens: 9}]}\n"
    "          - id: free\n"
    "  - {id: other, allow_overcommit: true, teams: []}\n";

static size_t limited_cnt(const struct hf_policy_limits *limits)
{
    size_t cnt = 0;

    for (size_t w = 0; w < HF_WINDOW_CNT; w++) {
        for (size_t d = 0; d < HF_DIM_CNT; d++) {
            cnt += limits->limits[w][d] != HF_UNKNOWN;
        }
    }
    return cnt;
}

static void prices_are_read(void **state)
{
    struct hf_policy *policy = load(everything);

    (void)state;
    assert_string_equal(policy->currency.bytes, "CNY");
    assert_string_equal(policy->price_revision.bytes, "2026-11");
    assert_int_equal(policy->model_cnt, 2);
    assert_string_equal(policy->models[0].id.bytes, "mock");
    assert_int_equal(policy->models[0].price.input, 1000000);
    assert_int_equal(policy->models[0].price.output, 2000000);
    assert_true(policy->models[0].price.cached_input == HF_UNKNOWN);
    assert_true(policy->models[0].price.cache_write == HF_UNKNOWN);
    assert_int_equal(policy->models[0].price.max_output_tokens, 4096);
    assert_int_equal(policy->models[1].price.input, 0);
    assert_int_equal(policy->models[1].price.output, HF_AMOUNT_MAX);
    assert_int_equal(policy->models[1].price.cached_input, 3);
    assert_int_equal(policy->models[1].price.cache_write, 4);
    assert_true(policy->models[1].price.max_output_tokens == HF_UNKNOWN);
    hf_policy_free(policy);
}

static void layers_and_limits_are_read(void **state)
{
    struct hf_policy *policy = load(everything);
    const struct hf_policy_tenant *echo = &policy->tenants[0];

    (void)state;
    assert_int_equal(policy->tenant_cnt, 2);
    assert_string_equal(echo->id.bytes, "echo");
    assert_false(echo->allow_overcommit);
    assert_true(policy->tenants[1].allow_overcommit);
    assert_int_equal(policy->tenants[1].team_cnt, 0);
    assert_int_equal(limited_cnt(&policy->tenants[1].limits), 0);
    assert_int_equal(limited_cnt(&echo->limits), 3);
    assert_int_equal(echo->limits.limits[HF_WINDOW_MONTH][HF_DIM_COST], 100);
    assert_int_equal(echo->limits.limits[HF_WINDOW_MONTH][HF_DIM_TOKENS], 0); /* 0 limits; absent does not */
    assert_int_equal(echo->limits.limits[HF_WINDOW_LIFETIME][HF_DIM_INVOCATIONS], 7);

    assert_int_equal(echo->team_cnt, 2);
    assert_int_equal(limited_cnt(&echo->teams[0].limits), 1);
    assert_int_equal(echo->teams[0].limits.limits[HF_WINDOW_MINUTE][HF_DIM_COST], 40);
    assert_int_equal(echo->teams[0].key_cnt, 0);
    assert_int_equal(limited_cnt(&echo->teams[1].limits), 0);
    assert_int_equal(echo->teams[1].key_cnt, 2);
    assert_string_equal(echo->teams[1].keys[0].id.bytes, "bot");
    assert_int_equal(limited_cnt(&echo->teams[1].keys[0].limits), 1);
    assert_int_equal(echo->teams[1].keys[0].limits.limits[HF_WINDOW_DAY][HF_DIM_TOKENS], 9);
    assert_string_equal(echo->teams[1].keys[1].id.bytes, "free");
    assert_int_equal(limited_cnt(&echo->teams[1].keys[1].limits), 0);

    assert_int_equal(echo->teams[0].capability_cnt, 2);
    assert_string_equal(echo->teams[0].capabilities[0].id.bytes, "summary");
    assert_int_equal(echo->teams[0].capabilities[0].cap_micros, 1);
    assert_int_equal(echo->teams[0].capabilities[0].cap_tokens, HF_AMOUNT_MAX);
    assert_int_equal(echo->teams[0].capabilities[0].basis, HF_BASIS_CAP);
    assert_int_equal(echo->teams[0].capabilities[1].basis, HF_BASIS_ESTIMATE);
    hf_policy_free(policy);
}

static void caps_are_unknown_where_absent(void **state)
{
    struct hf_policy *policy = load(HEAD "tenants: [{id: t, teams: [{id: u, capabilities: [{id: c}]}]}]");

    (void)state;
    assert_true(policy->tenants[0].teams[0].capabilities[0].cap_micros == HF_UNKNOWN);
    assert_true(policy->tenants[0].teams[0].capabilities[0].cap_tokens == HF_UNKNOWN);
    hf_policy_free(policy);
}

static void on_limit_is_never_inherited(void **state)
{
    struct hf_policy *policy = load(everything);
    const struct hf_policy_tenant *echo = &policy->tenants[0];

    (void)state;
    assert_int_equal(echo->on_limit.kind, HF_ON_LIMIT_DEGRADE);
    assert_int_equal(echo->on_limit.overdraft_micros, 0);
    assert_true(echo->on_limit.queue_limit == HF_UNKNOWN);
    assert_true(echo->on_limit.queue_deadline_ms == HF_UNKNOWN);
    assert_int_equal(echo->teams[0].on_limit.kind, HF_ON_LIMIT_REJECT);
    assert_true(echo->teams[0].on_limit.overdraft_micros == HF_UNKNOWN);
    assert_int_equal(echo->teams[1].on_limit.kind, HF_ON_LIMIT_QUEUE);
    assert_int_equal(echo->teams[1].on_limit.queue_limit, 2);
    assert_int_equal(echo->teams[1].on_limit.queue_deadline_ms, 2000);
    assert_int_equal(policy->tenants[1].on_limit.kind, HF_ON_LIMIT_REJECT);
    hf_policy_free(policy);
}

static void assert_modes(const struct hf_policy_modes *modes, uint64_t ttl_ms, enum hf_on_expiry on_expiry,
                         enum hf_on_overage on_overage, uint64_t retry_after_ms, uint32_t told)
{
    assert_int_equal(modes->ttl_ms, ttl_ms);
    assert_int_equal(modes->on_expiry, on_expiry);
    assert_int_equal(modes->on_overage, on_overage);
    assert_int_equal(modes->retry_after_ms, retry_after_ms);
    assert_int_equal(modes->told, told);
}

static void modes_are_the_teams_else_the_tenants_else_the_defaults(void **state)
{
    struct hf_policy *policy = load(everything);
    const struct hf_policy_tenant *echo = &policy->tenants[0];

    (void)state;
    assert_modes(&policy->defaults, 600000, HF_ON_EXPIRY_RETAIN, HF_ON_OVERAGE_RECORD, 60000,
                 HF_POLICY_TOLD_TTL | HF_POLICY_TOLD_ON_EXPIRY);
    assert_modes(&echo->modes, 600000, HF_ON_EXPIRY_RETAIN, HF_ON_OVERAGE_FAIL, 1,
                 HF_POLICY_TOLD_ON_OVERAGE | HF_POLICY_TOLD_RETRY_AFTER);
    assert_modes(&echo->teams[0].modes, 600000, HF_ON_EXPIRY_RETAIN_DISPATCHED, HF_ON_OVERAGE_RECORD, 1,
                 HF_POLICY_TOLD_ON_EXPIRY | HF_POLICY_TOLD_ON_OVERAGE);
    assert_modes(&echo->teams[1].modes, 5, HF_ON_EXPIRY_RETAIN, HF_ON_OVERAGE_FAIL, 1, HF_POLICY_TOLD_TTL);
    assert_modes(&policy->tenants[1].modes, 600000, HF_ON_EXPIRY_RETAIN, HF_ON_OVERAGE_RECORD, 60000, 0);
    hf_policy_free(policy);
}

static void modes_have_built_in_defaults(void **state)
{
    struct hf_policy *policy = load(HEAD "tenants: [{id: t, teams: [{id: u, capabilities: [{id: c}]}]}]");

    (void)state;
    assert_modes(&policy->defaults, 300000, HF_ON_EXPIRY_RELEASE, HF_ON_OVERAGE_RECORD, 60000, 0);
    assert_modes(&policy->tenants[0].teams[0].modes, 300000, HF_ON_EXPIRY_RELEASE, HF_ON_OVERAGE_RECORD,
                 60000, 0);
    hf_policy_free(policy);
}

/* Where `defaults` stands in the file does not matter. */
static void defaults_may_come_last(void **state)
{
    struct hf_policy *policy = load(HEAD "tenants: [{id: t, teams: []}]\ndefaults: {ttl_ms: 9}");

    (void)state;
    assert_int_equal(policy->tenants[0].modes.ttl_ms, 9);
    hf_policy_free(policy);
}

static void ids_stay_strings(void **state)
{
    static const char *const ids[] = {"no",         "yes",  "true", "10513478508167781E58455",
                                      "1",          "007",  "0x1F", "1_000",
                                      ".5",         "1.0",  "+1",   "-1",
                                      "2026-11-02", "1:30", "inf",  ".nan",
                                      "<<",         "a b",  "A",    "a"};
    char text[4096] = HEAD "tenants:\n";
    struct hf_policy *policy;

    (void)state;
    for (size_t i = 0; i < CNT(ids); i++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "  - {id: %s, teams: []}\n", ids[i]);
    }
    policy = load(text);
    assert_int_equal(policy->tenant_cnt, CNT(ids));
    for (size_t i = 0; i < CNT(ids); i++) {
        assert_string_equal(policy->tenants[i].id.bytes, ids[i]);
        assert_int_equal(policy->tenants[i].id.len, strlen(ids[i]));
    }
    hf_policy_free(policy);
}

static void quoted_ids_are_not_trimmed_folded_or_cut(void **state)
{
    struct hf_policy *policy =
        load(HEAD "tenants: [{id: ' a ', teams: []}, {id: \"\\u00e9\\/\", teams: []},\n"
                  " {id: \"e\\u0301\\/\", teams: []}, {id: \"\\u2028\", teams: []},\n"
                  " {id: \"012345678901234567890123456789012345678901234567890123456789012\","
                  " teams: []}]");

    (void)state;
    assert_string_equal(policy->tenants[0].id.bytes, " a ");
    assert_string_equal(policy->tenants[1].id.bytes, "\xC3\xA9/");
    assert_string_equal(policy->tenants[2].id.bytes, "e\xCC\x81/");
    assert_string_equal(policy->tenants[3].id.bytes, "\xE2\x80\xA8");
    assert_int_equal(policy->tenants[4].id.len, 63);
    hf_policy_free(policy);
}

static void what_looks_null_is_a_name_with_a_warning(void **state)
{
    (void)state;
    SAY(HEAD "tenants: [{id: null, teams: [{id: ~, capabilities: [{id: 'null'}]}]}]\n",
        "4 ~tenants[0].id: is taken as the name \"null\"\n"
        "4 ~tenants[0].teams[0].id: is taken as the name \"~\"\n");
}

static void json_is_read(void **state)
{
    struct hf_policy *policy = load(
        "{\"version\":1,\n\t\"currency\" : \"CNY\"\n,\t\"prices\":{\"revision\":\"1\",\"models\":[]},\r\n"
        "\"tenants\":[{\"id\":\"\\u4e2d\\\"\\\\\\/\",\"teams\":[],\"on_limit\":\"reject\","
        "\"allow_overcommit\":false}]}");

    (void)state;
    assert_string_equal(policy->tenants[0].id.bytes, "\xE4\xB8\xAD\"\\/");
    hf_policy_free(policy);
}

static void an_alias_is_what_it_stands_for(void **state)
{
    struct hf_policy *policy =
        load(HEAD "tenants:\n"
                  "  - {id: t, teams: [{id: &name u, capabilities: &all [{id: a, cap_micros: &cap 5}, "
                  "{id: b}]},\n"
                  "      {id: v, capabilities: *all}, {id: w, capabilities: [{id: *name, cap_micros: "
                  "*cap}]}]}\n");
    const struct hf_policy_team *teams = policy->tenants[0].teams;

    (void)state;
    assert_int_equal(teams[1].capability_cnt, 2);
    assert_string_equal(teams[1].capabilities[1].id.bytes, "b");
    assert_int_equal(teams[1].capabilities[0].cap_micros, 5);
    assert_string_equal(teams[2].capabilities[0].id.bytes, "u");
    assert_int_equal(teams[2].capabilities[0].cap_micros, 5);
    hf_policy_free(policy);
}

/* ---- what is refused ----------------------------------------------------------------------------------- */

static void required_fields(void **state)
{
    (void)state;
    SAY("{}\n",
        "1 version: is missing\n1 currency: is missing\n1 prices: is missing\n1 tenants: is missing\n");
    SAY("version: 1\ncurrency: C\nprices: {}\ntenants:\n  - {}\n  - id: t\n    teams:\n      - limits: []\n",
        "3 prices.revision: is missing\n3 prices.models: is missing\n5 tenants[0].id: is missing\n5 tenants[0].teams: is "
        "missing\n8 tenants[1].teams[0].id: is missing\n8 tenants[1].teams[0].capabilities: is missing\n");
    SAY("version: 1\ncurrency: C\nprices:\n  revision: r\n  models:\n    - max_output_tokens: 1\ntenants:\n  - id: t\n    teams:\n"
        "      - {id: u, keys: [{}], limits: [{}], capabilities: [{}]}\n",
        "6 prices.models[0].id: is missing\n6 prices.models[0].input_micros_per_mtok: is missing\n"
        "6 prices.models[0].output_micros_per_mtok: is missing\n10 tenants[0].teams[0].keys[0].id: is missing\n"
        "10 tenants[0].teams[0].limits[0].window: is missing\n10 tenants[0].teams[0].limits[0]: limits nothing\n"
        "10 tenants[0].teams[0].capabilities[0].id: is missing\n");
}

static void unknown_and_duplicate_fields(void **state)
{
    (void)state;
    SAY(HEAD "tenants: []\ncolour: red\n", "4 ~tenants: is empty\n5 colour: is no field\n");
    SAY(HEAD TENANT("limit: []"), "4 tenants[0].limit: is no field\n");
    SAY(HEAD TEAM("overdraft: 5"), "4 tenants[0].teams[0].overdraft: is no field\n");
    SAY(HEAD TEAM("allow_overcommit: true"), "4 tenants[0].teams[0].allow_overcommit: is no field\n");
    SAY(HEAD TEAM("keys: [{id: k, on_limit: reject}]"),
        "4 tenants[0].teams[0].keys[0].on_limit: is no field\n");
    SAY(HEAD CAPABILITY("cap: 5"), "4 tenants[0].teams[0].capabilities[0].cap: is no field\n");
    SAY(HEAD TENANT("limits: [{window: day, token: 5}]"),
        "4 tenants[0].limits[0]: limits nothing\n4 tenants[0].limits[0].token: is no field\n");
    SAY(HEAD TENANT("queue: {limit: 1, deadline_ms: 1, size: 1}"),
        "4 ~tenants[0].queue: has no effect\n4 tenants[0].queue.size: is no field\n");
    SAY(HEAD TENANT("Limits: []"), "4 tenants[0].Limits: is no field\n");
    SAY(HEAD TENANT("\"limits \": []"), "4 tenants[0]: `limits ` is no field\n");
    SAY(HEAD TENANT("\"\": []"), "4 tenants[0]: `` is no field\n");
    SAY(HEAD "defaults: {ttl: 5}\n" TENANT(""), "4 defaults.ttl: is no field\n");
    SAY(HEAD "version: 1\n" TENANT(""), "4 version: is here twice, first on line 1\n");
    SAY(HEAD "tenants:\n  - id: t\n    teams: []\n    id: s\n    teams: []\n",
        "6 ~tenants[0].teams: is empty\n7 tenants[0].id: is here twice, first on line 5\n"
        "8 tenants[0].teams: is here twice, first on line 6\n");
    /* the second one counts as little as a third */
    SAY(HEAD CAPABILITY("cap_micros: 5, cap_micros: x, cap_micros: 5"),
        "4 tenants[0].teams[0].capabilities[0].cap_micros: is here twice\n"
        "4 tenants[0].teams[0].capabilities[0].cap_micros: is here twice\n");
    SAY(HEAD TENANT("? [a]\n : 5"), "4 tenants[0]: a field name must be one word\n");
}

static void duplicate_ids(void **state)
{
    (void)state;
    SAY("version: 1\ncurrency: C\nprices:\n  revision: r\n  models:\n    - {id: m, " MODEL
        "}\n    - {id: n, " MODEL "}\n    - {id: m, " MODEL "}\ntenants: []\n",
        "8 prices.models[2].id: `m` is the id of the one on line 6 too\n9 ~tenants: is empty\n");
    SAY(HEAD
        "tenants:\n  - {id: t, teams: []}\n  - {id: t , teams: []}\n  - {id: T, teams: []}\n  - {id: t, teams: []}\n",
        "5 ~tenants[0].teams: is empty\n6 tenants[1].id: `t` is the id of the one on line 5 too\n6 ~tenants[1].teams: is empty\n"
        "7 ~tenants[2].teams: is empty\n8 tenants[3].id: `t` is the id of the one on line 5 too\n"
        "8 ~tenants[3].teams: is empty\n");
    SAY(HEAD
        "tenants:\n  - id: t\n    teams:\n      - id: u\n        capabilities:\n          - id: c\n          - id: c\n"
        "        keys:\n          - id: k\n          - id: k\n      - id: u\n        capabilities: [{id: c}]\n",
        "10 tenants[0].teams[0].capabilities[1].id: `c` is the id of the one on line 9 too\n"
        "13 tenants[0].teams[0].keys[1].id: `k` is the id of the one on line 12 too\n"
        "14 tenants[0].teams[1].id: `u` is the id of the one on line 7 too\n");
    /* quoted or not, it is the same name; a prefix is another one; a team may be called like another tenant's */
    SAY(HEAD
        "tenants:\n  - {id: t, teams: [{id: ab, capabilities: [{id: c}]}, {id: a, capabilities: [{id: c}]}]}\n"
        "  - {id: 't', teams: [{id: a, capabilities: [{id: c}]}]}\n",
        "6 tenants[1].id: `t` is the id of the one on line 5 too\n");
}

static void bad_ids(void **state)
{
    (void)state;
    SAY("version: 1\ncurrency:\nprices: {revision: '', models: []}\n"
        "tenants: [{id: [t], teams: []}, {id: {}, teams: []}, {id: , teams: []}]\n",
        "2 currency: has 0 bytes\n3 prices.revision: has 0 bytes\n4 tenants[0].id: is a list\n4 ~tenants[0].teams: is\n"
        "4 tenants[1].id: is a mapping\n4 ~tenants[1].teams: is\n4 tenants[2].id: has 0 bytes\n4 ~tenants[2].teams: is\n");
    SAY(HEAD TEAM(
            "keys: [{id: \"a\\0b\"}, {id: \"\\t\"}, {id: \"\\x7F\"}, {id: \"\\u0085\"}, {id: \"\\x9f\"}, {id: \"\\xA0\"}]"),
        "4 tenants[0].teams[0].keys[0].id: `a<U+0000>b` has a control character\n"
        "4 tenants[0].teams[0].keys[1].id: `<U+0009>` has a control character\n"
        "4 tenants[0].teams[0].keys[2].id: `<U+007F>` has a control character\n"
        "4 tenants[0].teams[0].keys[3].id: `<U+0085>` has a control character\n"
        "4 tenants[0].teams[0].keys[4].id: `<U+009F>` has a control character\n");
    SAY(HEAD "tenants:\n  - teams: []\n    id: |\n      t\n",
        "5 ~tenants[0].teams: is empty\n6 tenants[0].id: `t<U+000A>` has a control character\n");
    SAY(HEAD TEAM("keys: [{id: 0123456789012345678901234567890123456789012345678901234567890123}]"),
        "4 tenants[0].teams[0].keys[0].id: has 64 bytes; a name has 1 to 63\n");
}

static void wrong_kinds_of_value(void **state)
{
    (void)state;
    SAY("5\n", "1 : is a single value; a mapping\n");
    SAY("[]\n", "1 : is a list; a mapping\n");
    SAY("--- \n", "1 : is empty; a mapping\n");
    SAY("version: 1\ncurrency: C\nprices: []\ntenants: {}\ndefaults: x\n",
        "3 prices: is a list; a mapping\n4 tenants: is a mapping; a list\n5 defaults: is a single value; a mapping\n");
    SAY("version: 1\ncurrency: C\nprices:\ntenants:\ndefaults: null\n",
        "3 prices: is empty; a mapping\n4 tenants: is empty; a list\n5 defaults: is null; a mapping\n");
    SAY(HEAD "tenants:\n  -\n  - t\n  - [t]\n",
        "5 tenants[0]: is empty; a mapping\n6 tenants[1]: is a single value; a mapping\n7 tenants[2]: is a list; a mapping\n");
    SAY(HEAD TEAM("keys: , limits: ~, queue: 5"),
        "4 tenants[0].teams[0].keys: is empty; a list\n4 tenants[0].teams[0].limits: is null; a list\n"
        "4 tenants[0].teams[0].queue: is a single value; a mapping\n4 ~tenants[0].teams[0].queue: has no effect\n");
    SAY(HEAD TENANT("allow_overcommit: yes"), "4 tenants[0].allow_overcommit: must be true or false\n");
    SAY(HEAD TENANT("allow_overcommit: 'true'"), "4 tenants[0].allow_overcommit: must be true or false\n");
    SAY(HEAD TENANT("allow_overcommit: "), "4 tenants[0].allow_overcommit: must be true or false\n");
    SAY(HEAD TENANT("on_limit: "),
        "4 tenants[0].on_limit: is empty; it must be one of reject, degrade, queue\n");
    SAY(HEAD TENANT("on_limit: [reject]"), "4 tenants[0].on_limit: is a list; it must be one of\n");
    SAY(HEAD TENANT("on_limit: Reject"),
        "4 tenants[0].on_limit: `Reject` is not one of reject, degrade, queue\n");
    SAY(HEAD TENANT("on_expiry: keep"),
        "4 tenants[0].on_expiry: `keep` is not one of release, retain, retain_dispatched\n");
    SAY(HEAD TENANT("on_overage: ''"), "4 tenants[0].on_overage: `` is not one of record, fail\n");
    SAY(HEAD CAPABILITY("reserve_basis: caps"),
        "4 tenants[0].teams[0].capabilities[0].reserve_basis: `caps` is not one of estimate, cap\n");
    SAY(HEAD TENANT("limits: [{window: week, tokens: 1}]"),
        "4 tenants[0].limits[0].window: `week` is not one of minute, hour, day, month, lifetime\n");
}

static void only_plain_decimal_integers(void **state)
{
    static const struct {
        const char *form, *message;
    } forms[] = {
        {"", "is empty"},
        {"~", "is null"},
        {"null", "is null"},
        {"\"\"", "is text"},
        {"'5'", "is text"},
        {"\"5\"", "is text"},
        {"[5]", "is a list"},
        {"{}", "is a mapping"},
        {"-1", "`-1` is below the least, 0"},
        {"-0", "`-0` is below the least, 0"},
        {"+5", "`+5` is no plain whole number"},
        {"010", "`010` starts with 0"},
        {"00", "`00` starts with 0"},
        {"0x64", "`0x64` is no plain"},
        {"0o17", "`0o17` is no plain"},
        {"0b1", "`0b1` is no plain"},
        {"1e3", "`1e3` is no plain"},
        {"1.0", "`1.0` is no plain"},
        {"0.1", "`0.1` is no plain"},
        {".5", "`.5` is no plain"},
        {"1_000", "`1_000` is no plain"},
        {"1 000", "`1 000` is no plain"},
        {"1:30", "`1:30` is no plain"},
        {".inf", "`.inf` is no plain"},
        {"many", "`many` is no plain"},
        {"true", "`true` is no plain"},
        {"\xD9\xA3", "`\xD9\xA3` is no plain"}, /* an Arabic digit */
        {"5\xC2\xA0", "`5\xC2\xA0` is no plain"},
        {"72057594037927936", "must be from 0 to " MAX_TEXT},
        {"18446744073709551616", "must be from 0 to " MAX_TEXT},
        {"18446744073709551617", "must be from 0 to " MAX_TEXT},
        {"99999999999999999999999999999999999999999999999999", "must be from 0 to " MAX_TEXT},
    };

    (void)state;
    for (size_t i = 0; i < CNT(forms); i++) {
        char text[512];
        char expected[512];

        snprintf(text, sizeof(text), HEAD TENANT("limits: [{window: day, invocations: %s}]"), forms[i].form);
        snprintf(expected, sizeof(expected), "4 tenants[0].limits[0].invocations: %s\n", forms[i].message);
        assert_problems(text, strlen(text), expected);
    }
}

static void ends_of_the_ranges(void **state)
{
    (void)state;
    SAY(HEAD TENANT("limits: [{window: day, invocations: 0}, {window: hour, invocations: " MAX_TEXT "}]"),
        "");
    SAY(HEAD TENANT("ttl_ms: 1, retry_after_ms: 1"), "");
    SAY(HEAD TENANT("ttl_ms: 0, retry_after_ms: 0"),
        "4 tenants[0].ttl_ms: must be from 1\n4 tenants[0].retry_after_ms: must be from 1\n");
    SAY(HEAD TENANT("on_limit: queue, queue: {limit: 0, deadline_ms: 0}"),
        "4 tenants[0].queue.limit: must be from 1\n4 tenants[0].queue.deadline_ms: must be from 1\n");
    SAY(HEAD TENANT("on_limit: queue, queue: {limit: 1, deadline_ms: 1}"), "");
    SAY(HEAD TENANT("on_limit: degrade, overdraft_micros: 0"), "");
    SAY(HEAD TENANT("on_limit: degrade, overdraft_micros: -1"),
        "4 tenants[0].overdraft_micros: `-1` is below\n");
    SAY(HEAD CAPABILITY("cap_micros: 0, cap_tokens: 0"),
        "4 tenants[0].teams[0].capabilities[0].cap_micros: must be from 1\n"
        "4 tenants[0].teams[0].capabilities[0].cap_tokens: must be from 1\n");
    SAY(HEAD CAPABILITY("cap_micros: 1, cap_tokens: " MAX_TEXT), "");
    SAY("version: 1\ncurrency: C\nprices: {revision: r, models: [{id: m, input_micros_per_mtok: -1, output_micros_per_mtok: 1.5, "
        "cached_input_micros_per_mtok: null, cache_write_input_micros_per_mtok: '1', max_output_tokens: 0}]}\n" TENANT(
            ""),
        "3 prices.models[0].input_micros_per_mtok: `-1` is below\n3 prices.models[0].output_micros_per_mtok: `1.5` is no\n"
        "3 prices.models[0].cached_input_micros_per_mtok: is null\n"
        "3 prices.models[0].cache_write_input_micros_per_mtok: is text\n3 prices.models[0].max_output_tokens: must be from 1\n");
}

static void version_is_the_number_1(void **state)
{
    static const char *const versions[][2] = {
        {"2", "must be 1"},    {"0", "must be 1"}, {"'1'", "is text"},  {"1.0", "`1.0` is no"},
        {"01", "`01` starts"}, {"", "is empty"},   {"v1", "`v1` is no"}};

    (void)state;
    for (size_t i = 0; i < CNT(versions); i++) {
        char text[512];
        char expected[512];

        snprintf(text, sizeof(text),
                 "currency: C\nversion: %s\nprices: {revision: r, models: []}\n" TENANT(""), versions[i][0]);
        snprintf(expected, sizeof(expected), "2 version: %s\n", versions[i][1]);
        assert_problems(text, strlen(text), expected);
    }
}

static void one_limit_per_window_and_layer(void **state)
{
    (void)state;
    SAY(HEAD
        "tenants:\n  - id: t\n    limits:\n      - {window: day, invocations: 1}\n      - {window: hour, invocations: 1}\n"
        "      - window: 'day'\n        tokens: 5\n    teams: [{id: u, capabilities: [{id: c}],\n"
        "      limits: [{window: day, invocations: 1}], keys: [{id: k, limits: [{window: month, invocations: 1},\n"
        "        {window: month, invocations: 1}]}]}]\n",
        "9 tenants[0].limits[2].window: day is limited on line 7 already\n"
        "13 tenants[0].teams[0].keys[0].limits[1].window: month is limited on line 12 already\n");
    /* an amount that is wrong is an amount all the same: one fault, one problem */
    SAY(HEAD TENANT("limits: [{window: day, invocations: x}]"),
        "4 tenants[0].limits[0].invocations: `x` is no\n");
}

static void on_limit_needs_its_settings(void **state)
{
    (void)state;
    SAY(HEAD TENANT("on_limit: degrade"), "4 tenants[0].overdraft_micros: is missing\n");
    SAY(HEAD TEAM("on_limit: degrade"), "4 tenants[0].teams[0].overdraft_micros: is missing\n");
    SAY(HEAD TENANT("on_limit: queue"), "4 tenants[0].queue: is missing\n");
    SAY(HEAD TEAM("on_limit: queue"), "4 tenants[0].teams[0].queue: is missing\n");
    SAY(HEAD TEAM("on_limit: queue, queue: {limit: 5}"),
        "4 tenants[0].teams[0].queue.deadline_ms: is missing\n");
    SAY(HEAD TEAM("on_limit: queue, queue: {deadline_ms: 5}"),
        "4 tenants[0].teams[0].queue.limit: is missing\n");
    SAY(HEAD TEAM("on_limit: queue, queue: {}"),
        "4 tenants[0].teams[0].queue.limit: is missing\n4 tenants[0].teams[0].queue.deadline_ms: is missing\n");
    SAY(HEAD TEAM("on_limit: reject, overdraft_micros: 5, queue: {limit: 5, deadline_ms: 1}"),
        "4 ~tenants[0].teams[0].overdraft_micros: has no effect: on_limit is reject\n"
        "4 ~tenants[0].teams[0].queue: has no effect: on_limit is reject\n");
    SAY(HEAD TEAM("overdraft_micros: 5"),
        "4 ~tenants[0].teams[0].overdraft_micros: has no effect: on_limit is reject\n");
    /* what the tenant says is not the team's */
    SAY(HEAD
        "tenants: [{id: t, overdraft_micros: 5, on_limit: degrade, teams: [{id: u, on_limit: degrade, capabilities: []}]}]\n",
        "4 tenants[0].teams[0].overdraft_micros: is missing\n4 ~tenants[0].teams[0].capabilities: is empty\n");
}

/* Two teams that limit one window, in a tenant whose mapping is open for the rest. */
#define TEAMS(a, b)                                                                                                                     \
    "tenants:\n  - id: t\n    teams:\n      - {id: u, capabilities: [{id: c, cap_micros: 1, cap_tokens: 1}], limits: [{window: day, " a \
    "}]}\n      - {id: v, capabilities: [{id: c, cap_micros: 1, cap_tokens: 1}], limits: [{window: day, " b                             \
    "}]}\n"

static void shares_are_at_most_the_total(void **state)
{
    (void)state;
    SAY(HEAD TEAMS("tokens: 60", "tokens: 40") "    limits: [{window: day, tokens: 100}]\n", "");
    SAY(HEAD TEAMS("tokens: 60", "tokens: 41") "    limits: [{window: day, tokens: 100}]\n",
        "9 tenants[0].limits[0].tokens: the teams' shares of the day add up to 101, the tenant's total is 100; lower\n");
    SAY(HEAD TEAMS("tokens: 60",
                   "tokens: 41") "    allow_overcommit: false\n    limits: [{window: day, tokens: 100}]\n",
        "10 tenants[0].limits[0].tokens: the teams' shares of the day add up to 101\n");
    SAY(HEAD TEAMS("tokens: 60",
                   "tokens: 41") "    allow_overcommit: true\n    limits: [{window: day, tokens: 100}]\n",
        "10 ~tenants[0].limits[0].tokens: the teams' shares of the day add up to 101, the tenant's total is 100: a team\n");
    /* one share alone; a total of 0; other windows and dimensions do not count */
    SAY(HEAD TEAMS("tokens: 101", "invocations: 5") "    limits: [{window: day, tokens: 100}]\n",
        "9 tenants[0].limits[0].tokens: the teams' shares of the day add up to 101\n");
    SAY(HEAD TEAMS("tokens: 1", "tokens: 0") "    limits: [{window: day, tokens: 0}]\n",
        "9 tenants[0].limits[0].tokens: the teams' shares of the day add up to 1, the tenant's total is 0\n");
    SAY(HEAD TEAMS("tokens: 90, invocations: 5",
                   "cost_micros: 90") "    limits: [{window: day, tokens: 100, cost_micros: 100}]\n",
        "");
    SAY(HEAD TEAMS("tokens: 90",
                   "tokens: 90") "    limits: [{window: hour, tokens: 1}, {window: month, tokens: 1}]\n",
        "");
    /* each window and dimension is one problem, in the order of the file */
    SAY(HEAD TEAMS(
            "cost_micros: 3, invocations: 3",
            "tokens: 3") "    limits:\n      - {window: hour, invocations: 1}\n      - window: day\n        cost_micros: 2\n        tokens: 2\n"
                         "        invocations: 2\n",
        "12 tenants[0].limits[1].cost_micros: the teams' shares\n13 tenants[0].limits[1].tokens: the teams' shares\n"
        "14 tenants[0].limits[1].invocations: the teams' shares\n");
    /* sums above the range of amounts, and above 64 bits if they were multiplied */
    SAY(HEAD TEAMS("tokens: " MAX_TEXT, "tokens: 1") "    limits: [{window: day, tokens: " MAX_TEXT "}]\n",
        "9 tenants[0].limits[0].tokens: the teams' shares of the day add up to more than " MAX_TEXT
        ", the tenant's total is\n");
}

/* 257 shares of 2^56 - 1 are 2^64 + 2^56 - 257: a sum of 64 bits would have wrapped to less than the total. */
static void the_sum_of_shares_does_not_wrap(void **state)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    (void)state;
    assert_non_null(out);
    fprintf(out,
            HEAD "tenants:\n  - id: t\n    limits: [{window: day, invocations: " MAX_TEXT "}]\n    teams:\n");
    for (int i = 0; i < 257; i++) {
        fprintf(out,
                "    - {id: u%d, capabilities: [{id: c}], limits: [{window: day, invocations: " MAX_TEXT
                "}]}\n",
                i);
    }
    fclose(out);
    assert_problems(text, len,
                    "6 tenants[0].limits[0].invocations: the teams' shares of the day add up to more than\n");
    free(text);
}

#define COST           "limits: [{window: day, cost_micros: 0}]"
#define TOKENS         "limits: [{window: day, tokens: 9}]"
#define PRICED(models) "version: 1\ncurrency: C\nprices: {revision: r, models: [" models "]}\n"
#define ENDED          "{id: m, " MODEL ", max_output_tokens: 9}"
#define ENDLESS        "{id: n, " MODEL "}"
#define CAP_PATH       "4 tenants[0].teams[0].capabilities[0]."

static void a_cost_limit_anywhere_on_the_path_needs_cap_micros(void **state)
{
    (void)state;
    /* on each layer; for any basis; whatever the models; a limit of 0 too */
    SAY(HEAD TENANT(COST),
        CAP_PATH "cap_micros: is missing: the tenant's limit of a day on line 4 counts cost_micros\n");
    SAY(HEAD TEAM(COST), CAP_PATH "cap_micros: is missing: the team's limit\n");
    SAY(HEAD TEAM("keys: [{id: k}, {id: l, " COST "}]"),
        CAP_PATH "cap_micros: is missing: the key's limit\n");
    SAY(PRICED(ENDED) TENANT(COST), CAP_PATH "cap_micros: is missing\n");
    SAY(HEAD "tenants: [{id: t, " COST ", teams: [{id: u, capabilities: [{id: c, reserve_basis: cap}]}]}]\n",
        CAP_PATH "cap_micros: is missing\n");
    /* cap_tokens is no cap_micros; each capability of each team on the path, and no other tenant's */
    SAY(HEAD
        "tenants:\n  - id: t\n    limits: [{window: month, cost_micros: 5}]\n    teams:\n    - id: u\n      capabilities:\n"
        "        - {id: a, cap_micros: 5}\n        - {id: b, cap_tokens: 5}\n        - {id: c}\n    - id: v\n"
        "      capabilities:\n        - {id: a}\n  - {id: s, teams: [{id: u, capabilities: [{id: a}]}]}\n",
        "11 tenants[0].teams[0].capabilities[1].cap_micros: is missing: the tenant's limit of a month on line 6 counts\n"
        "12 tenants[0].teams[0].capabilities[2].cap_micros: is missing\n"
        "15 tenants[0].teams[1].capabilities[0].cap_micros: is missing\n");
    /* the limit of one team, or of its keys, is on no path of another team */
    SAY(HEAD "tenants:\n  - id: t\n    teams:\n    - {id: u, " COST
             ", capabilities: [{id: a, cap_micros: 1}]}\n"
             "    - {id: w, keys: [{id: k, " COST "}], capabilities: [{id: a, cap_micros: 1}]}\n"
             "    - {id: v, capabilities: [{id: a}]}\n",
        "");
    /* other limits need no cap_micros */
    SAY(HEAD TENANT("limits: [{window: day, invocations: 5}]"), "");
    SAY(PRICED(ENDED) TENANT(TOKENS), "");
    /* a cap that is wrong is wrong once */
    SAY(HEAD "tenants: [{id: t, " COST ", teams: [{id: u, capabilities: [{id: c, cap_micros: 0}]}]}]\n",
        CAP_PATH "cap_micros: must be from 1\n");
}

static void a_tokens_limit_needs_cap_tokens_unless_every_output_ends(void **state)
{
    (void)state;
    /* basis estimate, and every model ends: no cap needed, on no layer; with no models too, as every one ends */
    SAY(PRICED(ENDED) TENANT(TOKENS), "");
    SAY(PRICED(ENDED) TEAM(TOKENS), "");
    SAY(PRICED(ENDED) TEAM("keys: [{id: k, " TOKENS "}]"), "");
    SAY(HEAD TENANT(TOKENS), "");
    SAY(PRICED(ENDED) "tenants: [{id: t, " TOKENS
                      ", teams: [{id: u, capabilities: [{id: c, reserve_basis: estimate}]}]}]\n",
        "");
    /* one model without an end */
    SAY(PRICED(ENDED ", " ENDLESS) TENANT(TOKENS), CAP_PATH
        "cap_tokens: is missing: the tenant's limit of a day on line 4 counts tokens, and the model on line 3 has no\n");
    SAY(PRICED(ENDLESS) TEAM(TOKENS), CAP_PATH "cap_tokens: is missing: the team's limit\n");
    SAY(PRICED(ENDLESS ", " ENDED) TEAM("keys: [{id: k, " TOKENS "}]"),
        CAP_PATH "cap_tokens: is missing: the key's limit\n");
    SAY(PRICED(ENDLESS) "tenants: [{id: t, " TOKENS
                        ", teams: [{id: u, capabilities: [{id: c, cap_tokens: 1}]}]}]\n",
        "");
    SAY(PRICED(ENDLESS) TENANT("limits: [{window: day, invocations: 5}]"), "");
    SAY(PRICED(ENDLESS) TENANT(""), "");
    /* basis cap: needed whatever the models */
    SAY(PRICED(ENDED) "tenants: [{id: t, " TOKENS
                      ", teams: [{id: u, capabilities: [{id: c, reserve_basis: cap}]}]}]\n",
        CAP_PATH
        "cap_tokens: is missing: reserve_basis is cap, and the tenant's limit of a day on line 4 counts tokens\n");
    SAY(HEAD "tenants: [{id: t, " TOKENS
             ", teams: [{id: u, capabilities: [{id: c, reserve_basis: cap, cap_micros: 5}]}]}]\n",
        CAP_PATH "cap_tokens: is missing\n");
    SAY(HEAD "tenants: [{id: t, " TOKENS
             ", teams: [{id: u, capabilities: [{id: c, reserve_basis: cap, cap_tokens: 5}]}]}]\n",
        "");
    /* where the prices stand in the file does not matter */
    SAY("version: 1\ncurrency: C\ntenants: [{id: t, " TOKENS ", teams: [{id: u, capabilities: [{id: c}]}]}]\n"
        "prices: {revision: r, models: [" ENDLESS "]}\n",
        "3 tenants[0].teams[0].capabilities[0].cap_tokens: is missing: the tenant's limit of a day on line 3 counts tokens, and the "
        "model on line 4 has no max_output_tokens\n");
    /* both at once */
    SAY(PRICED(ENDLESS) TENANT("limits: [{window: day, tokens: 9, cost_micros: 9}]"),
        CAP_PATH "cap_micros: is missing\n" CAP_PATH "cap_tokens: is missing\n");
}

static void teams_that_differ_in_on_limit_are_warned_of(void **state)
{
    (void)state;
    SAY(HEAD
        "tenants:\n  - id: t\n    teams:\n    - {id: u, capabilities: [{id: c}]}\n    - {id: v, capabilities: [{id: c}]}\n"
        "    - {id: w, capabilities: [{id: c}], overdraft_micros: 1, on_limit: degrade}\n    - {id: x, capabilities: [{id: c}],\n"
        "      queue: {limit: 1, deadline_ms: 1}, on_limit: queue}\n",
        "9 ~tenants[0].teams[2].on_limit: the teams of this tenant differ in on_limit: `u` has reject, `w` has degrade\n");
    SAY(HEAD
        "tenants:\n  - id: t\n    on_limit: degrade\n    overdraft_micros: 1\n    teams: [{id: u, capabilities: [{id: c}]},\n"
        "    {id: v, capabilities: [{id: c}]}]\n  - id: s\n    teams: [{id: u, capabilities: [{id: c}], on_limit: degrade,\n"
        "    overdraft_micros: 1}]\n",
        "");
}

static void queue_is_refused_on_request(void **state)
{
    static const char text[] =
        HEAD "tenants:\n  - id: t\n    on_limit: queue\n    queue: {limit: 1, deadline_ms: 1}\n    teams:\n"
             "    - {id: u, capabilities: [{id: c}], queue: {limit: 1, deadline_ms: 1},\n"
             "       on_limit: queue}\n";
    char *problems = problems_of(text, sizeof(text) - 1, HF_POLICY_REFUSE_QUEUE, HF_POLICY_REFUSED);

    (void)state;
    assert_string_equal(
        problems,
        "6 tenants[0].on_limit: queue is not built yet: requests cannot wait here; use reject or degrade\n"
        "10 tenants[0].teams[0].on_limit: queue is not built yet: requests cannot wait here; use reject "
        "or degrade\n");
    free(problems);
    SAY(text, "");
}

static void all_problems_in_one_go_and_in_line_order(void **state)
{
    (void)state;
    SAY("version: 2\n"
        "tenants:\n"
        "  - id: t\n"
        "    limits:\n"
        "      - {window: month, cost_micros: 1e3}\n"
        "      - {window: day, cost_micros: 5}\n"
        "    teams:\n"
        "      - id: u\n"
        "        limt: 5\n"
        "        limits: [{window: day, cost_micros: 6}]\n"
        "        capabilities:\n"
        "          - {id: c}\n"
        "          - {id: d, cap_micros: 0}\n"
        "        on_limit: degrade\n"
        "      - id: u\n"
        "        capabilities: [{id: \"\\n\"}]\n"
        "defaults: {on_expiry: never}\n"
        "prices:\n"
        "  revision: r\n"
        "  models: [{id: m, input_micros_per_mtok: 1}]\n",
        "1 currency: is missing\n"
        "1 version: must be 1\n"
        "5 tenants[0].limits[0].cost_micros: `1e3` is no\n"
        "6 tenants[0].limits[1].cost_micros: the teams' shares of the day add up to 6\n"
        "9 tenants[0].teams[0].limt: is no field\n"
        "12 tenants[0].teams[0].capabilities[0].cap_micros: is missing\n"
        "13 tenants[0].teams[0].capabilities[1].cap_micros: must be from 1\n"
        "14 tenants[0].teams[0].overdraft_micros: is missing\n"
        "15 ~tenants[0].teams[1].on_limit: the teams of this tenant differ\n"
        "15 tenants[0].teams[1].id: `u` is the id of the one on line 8 too\n"
        "16 tenants[0].teams[1].capabilities[0].cap_micros: is missing\n"
        "16 tenants[0].teams[1].capabilities[0].id: `<U+000A>` has a control character\n"
        "17 defaults.on_expiry: `never` is not one of\n"
        "20 prices.models[0].output_micros_per_mtok: is missing\n");
}

/* ---- the text itself ----------------------------------------------------------------------------------- */

static void what_is_not_yaml(void **state)
{
    (void)state;
    SAY("", "1 : holds no policy\n");
    SAY("# nothing\n", "1 : holds no policy\n");
    SAY("tenants: [\n  - id: {\n", "2 : is not YAML: \n");
    SAY("version: 1\ntenants: [{id: t,\n\n\nteams: ]\n", "5 : is not YAML: \n");
    SAY("a: b: c\n", "1 : is not YAML: mapping values are not allowed in this context\n");
    SAY("a: \"\\q\"\n", "1 : is not YAML: found unknown escape character while parsing a quoted scalar\n");
    SAY("a: \"\\ud83d\\ude00\"\n", "1 : this \\u escape is half of a character\n");
    SAY("%YAML 2.0\n---\na: 1\n", "1 : is not YAML: found incompatible YAML document\n");
    SAY(HEAD TENANT("") "---\n" HEAD TENANT(""), "5 : a second document starts here\n");
    SAY(HEAD TENANT("") "...\n---\n", "6 : a second document starts here\n");
    SAY("--- # one document, with its marks\n" HEAD TENANT("") "...\n", "");
}

static void what_could_hide_something(void **state)
{
    (void)state;
    SAY("\xEF\xBB\xBF" HEAD TENANT(""), "1 : starts with a byte order mark\n");
    SAY("\xFF\xFEv\0e\0",
        "1 : the byte 0xFF is not UTF-8\n1 : the byte 0xFE is not UTF-8\n1 : the character U+0000\n"
        "1 : the character U+0000\n");
    SAY(HEAD TENANT("") "# \xC3\x28\n# \xED\xA0\x80\n",
        "5 : the byte 0xC3 is not UTF-8\n6 : the byte 0xED is\n6 : the byte 0xA0 is\n6 : the byte 0x80 is\n");
    SAY(HEAD TENANT("") "#\0\n# \x1B[2K\n# \x7F\n",
        "5 : the character U+0000\n6 : the character U+001B\n7 : the character U+007F\n");
    /* a comment for an editor, a field for YAML */
    SAY(HEAD TENANT("") "# \xE2\x80\xA8version: 1\n# \xE2\x80\xA9\n# \xC2\x85\n# \rversion: 1\n",
        "5 : the character U+2028 breaks the line\n6 : the character U+2029 breaks\n7 : the character U+0085 breaks\n"
        "8 : the character U+000D breaks\n");
    SAY("version: 1\r\ncurrency: C\r\nprices: {revision: r, models: []}\r\n" TENANT("limits: 5") "\r\n",
        "4 tenants[0].limits: is a single value\n");
    SAY(HEAD TENANT("limits: !!seq []") "# \n", "4 : tags such as !!str are not read here\n");
    SAY("version: !!int 1\ncurrency: ! C\nprices: !p {revision: r, models: []}\n" TENANT(""),
        "1 : tags\n2 : tags\n3 : tags\n");
    SAY(HEAD TENANT("<<: {limits: []}"), "4 tenants[0]: merge keys (<<) are not read here\n");
    SAY(HEAD "tenants: &a []\ndefaults: &a {}\n", "4 ~tenants: is empty\n5 : this anchor was set before\n");
    SAY(HEAD TENANT("limits: *nothing"), "4 : this alias stands for nothing\n");
    SAY(HEAD "tenants: &all [*all]\n", "4 : this alias stands for an element that contains it\n");
    SAY(HEAD "tenants: [{id: &f limits, teams: [], *f : []}]\n",
        "4 ~tenants[0].teams: is empty\n4 tenants[0]: a field name must be one word\n");
}

static void what_costs_too_much(void **state)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    struct hf_policy_report report = {0};
    struct hf_policy *policy;

    (void)state;
    assert_non_null(out);
    SAY(HEAD "tenants: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "4 : nests deeper\n");

    /* 3000 keys that are one, in 3000 teams that are one: 9 million keys in 60 kB */
    fprintf(out, HEAD "tenants: [{id: t, teams: [&u {id: u, capabilities: [], keys: [&k {id: k}");
    for (int i = 0; i < 3000; i++) {
        fprintf(out, ", *k");
    }
    fprintf(out, "]}");
    for (int i = 0; i < 3000; i++) {
        fprintf(out, ", *u");
    }
    fprintf(out, "]}]\n");
    fclose(out);
    assert_int_equal(hf_policy_load_bytes("p", text, len, 0, &policy, &report), HF_POLICY_REFUSED);
    assert_in_range(report.error_cnt, HF_POLICY_ELEMENTS_MAX / 4, HF_POLICY_ELEMENTS_MAX); /* duplicate ids */
    hf_policy_report_free(&report);
    free(text);
}

static void too_many_anchors(void **state)
{
    char text[16384] = HEAD "tenants: [\n";

    (void)state;
    for (int i = 0; i < HF_POLICY_ANCHORS_MAX + 1; i++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "&a%d {id: t%d, teams: []},\n", i, i);
    }
    strcat(text, "]\n");
    assert_problems(text, strlen(text), "261 : there are more than 256 anchors\n");
}

/* ---- files and reports --------------------------------------------------------------------------------- */

static void files_that_cannot_be_read(void **state)
{
    static const char *const paths[] = {"/no/such/policy.yaml", "/"};

    (void)state;
    for (size_t i = 0; i < CNT(paths); i++) {
        struct hf_policy_report report = {0};
        struct hf_policy *policy;

        assert_int_equal(hf_policy_load(paths[i], 0, &policy, &report), HF_POLICY_REFUSED);
        assert_null(policy);
        assert_int_equal(report.problem_cnt, 1);
        assert_int_equal(report.problems[0].line, 0);
        assert_non_null(strstr(report.problems[0].message, "cannot be read: "));
        assert_string_equal(report.file, paths[i]);
        hf_policy_report_free(&report);
    }
}

static void files_are_read_whole(void **state)
{
    char path[] = "/tmp/hf-policy-XXXXXX";
    int fd = mkstemp(path);
    struct hf_policy_report report = {0};
    struct hf_policy *policy;
    FILE *file;

    (void)state;
    assert_true(fd >= 0);
    file = fdopen(fd, "w");
    assert_non_null(file);
    fprintf(file, HEAD "tenants:\n");
    for (int i = 0; i < 5000; i++) {
        fprintf(file, "  - {id: tenant-%d, teams: [{id: u, capabilities: [{id: c}]}]}\n", i);
    }
    fclose(file);
    assert_int_equal(hf_policy_load(path, 0, &policy, &report), HF_POLICY_LOADED);
    assert_int_equal(policy->tenant_cnt, 5000);
    assert_string_equal(policy->tenants[4999].id.bytes, "tenant-4999");
    hf_policy_free(policy);
    hf_policy_report_free(&report);
    unlink(path);
}

static void a_report_prints_file_line_path_and_message(void **state)
{
    static const char text[] = HEAD TENANT("on_limit: x") "defaults: {}\nmore: 1\n";
    struct hf_policy_report report = {0};
    struct hf_policy *policy;
    char *printed = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&printed, &len);

    (void)state;
    assert_non_null(out);
    assert_int_equal(hf_policy_load_bytes("a policy.yaml", text, sizeof(text) - 1, 0, &policy, &report),
                     HF_POLICY_REFUSED);
    hf_policy_report_print(&report, out);
    hf_policy_report_free(&report);
    assert_int_equal(
        hf_policy_load_bytes("p", HEAD "tenants: []", sizeof(HEAD "tenants: []") - 1, 0, &policy, &report),
        HF_POLICY_LOADED);
    hf_policy_report_print(&report, out);
    hf_policy_report_free(&report);
    hf_policy_free(policy);
    assert_int_equal(hf_policy_load_bytes("p", "[", 1, 0, &policy, &report), HF_POLICY_REFUSED);
    hf_policy_report_print(&report, out);
    hf_policy_report_free(&report);
    assert_int_equal(hf_policy_load("/no/such", 0, &policy, &report), HF_POLICY_REFUSED);
    hf_policy_report_print(&report, out);
    hf_policy_report_free(&report);
    fclose(out);
    assert_string_equal(
        printed,
        "a policy.yaml:4: tenants[0].on_limit: `x` is not one of reject, degrade, queue\n"
        "a policy.yaml:6: more: is no field that is known here; known are version, currency, prices, tenants, "
        "defaults\n"
        "p:4: warning: tenants: is empty: nobody can call anything\n"
        "p:1: is not YAML: did not find expected node content while parsing a flow node\n"
        "/no/such: cannot be read: No such file or directory; check the path and who may read it\n");
    free(printed);
    assert_null(report.problems);
}

static void a_report_lists_a_thousand_errors_and_counts_the_rest(void **state)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    struct hf_policy_report report = {0};
    struct hf_policy *policy;

    (void)state;
    assert_non_null(out);
    fprintf(out, HEAD "tenants:\n");
    for (int i = 0; i < 1500; i++) {
        fprintf(out, "  - {id: , teams: []}\n"); /* an error and a warning each */
    }
    fclose(out);
    assert_int_equal(hf_policy_load_bytes("p", text, len, 0, &policy, &report), HF_POLICY_REFUSED);
    free(text);
    assert_int_equal(report.error_cnt, 1500);
    assert_int_equal(report.warning_cnt, 1500);
    assert_int_equal(report.problem_cnt, 2000);
    for (size_t i = 1; i < report.problem_cnt; i++) {
        assert_true(report.problems[i - 1].line <= report.problems[i].line);
    }
    out = open_memstream(&text, &len);
    hf_policy_report_print(&report, out);
    fclose(out);
    assert_non_null(strstr(text, "p: 1000 further problems are not listed; mend these first\n"));
    free(text);
    hf_policy_report_free(&report);
}

static void long_and_hidden_text_is_quoted_short_and_visibly(void **state)
{
    (void)state;
    SAY(HEAD TENANT("on_limit: aaaaaaaaaabbbbbbbbbbccccccccccdddddddddde"),
        "4 tenants[0].on_limit: `aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd...` is not one of\n");
    SAY(HEAD TENANT("on_limit: \"re\\u202Eject\\u200B\\0\""),
        "4 tenants[0].on_limit: `re<U+202E>ject<U+200B><U+0000>` is not one of\n");
    /* 40 characters of the widest form still fit */
    SAY(HEAD TENANT(
            "on_limit: \"\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\""),
        "4 tenants[0].on_limit: `<U+0000><U+0000><U+0000><U+0000><U+0000>\n");
}

/* ---- memory that runs out ------------------------------------------------------------------------------ */

/* Lets each allocation of a load fail once. A load either says so, or did not need that one. */
static void let_each_allocation_fail(const char *text, int expected_status)
{
    size_t said_so = 0;
    size_t call = 1;
    size_t before;

    do {
        struct hf_policy_report report = {0};
        struct hf_policy *policy;
        int status;

        assert_true(call < 100000);
        has_failed = false;
        before = block_cnt;
        calls_left = call++;
        status = hf_policy_load_bytes("p", text, strlen(text), 0, &policy, &report);
        calls_left = 0;
        assert_true(status == expected_status || (has_failed && status == HF_POLICY_NO_MEMORY));
        assert_int_equal(policy != NULL, status == HF_POLICY_LOADED);
        assert_int_equal(report.incomplete, status == HF_POLICY_NO_MEMORY);
        said_so += status == HF_POLICY_NO_MEMORY;
        hf_policy_free(policy);
        hf_policy_report_free(&report);
        assert_int_equal(block_cnt, before);
    } while (has_failed);
    assert_true(said_so > 20);
}

static void running_out_of_memory_is_an_answer(void **state)
{
    static const char faulty[] = HEAD TENANT(
        "limits: &l [{window: week, tokens: 1}], limit: *l") "more: 1\nmore2: 1\nmore3: 1\nmore4: 1\nmore5: 1\nmore6: 1\nmore7: 1\nmore8: 1\nmore9: 1\nmore10: 1\nmore11: 1\n"
                                                             "more12: 1\nmore13: 1\nmore14: 1\nmore15: 1\nmore16: 1\nmore17: 1\n";

    (void)state;
    if (!MALLOC_IS_OURS) {
        skip();
    }
    let_each_allocation_fail(everything, HF_POLICY_LOADED);
    let_each_allocation_fail(faulty, HF_POLICY_REFUSED);
    let_each_allocation_fail("a: [", HF_POLICY_REFUSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conformance_policies_are_accepted),
        cmocka_unit_test(bad_conformance_policies_are_refused),
        cmocka_unit_test(prices_are_read),
        cmocka_unit_test(layers_and_limits_are_read),
        cmocka_unit_test(caps_are_unknown_where_absent),
        cmocka_unit_test(on_limit_is_never_inherited),
        cmocka_unit_test(modes_are_the_teams_else_the_tenants_else_the_defaults),
        cmocka_unit_test(modes_have_built_in_defaults),
        cmocka_unit_test(defaults_may_come_last),
        cmocka_unit_test(ids_stay_strings),
        cmocka_unit_test(quoted_ids_are_not_trimmed_folded_or_cut),
        cmocka_unit_test(what_looks_null_is_a_name_with_a_warning),
        cmocka_unit_test(json_is_read),
        cmocka_unit_test(an_alias_is_what_it_stands_for),
        cmocka_unit_test(required_fields),
        cmocka_unit_test(unknown_and_duplicate_fields),
        cmocka_unit_test(duplicate_ids),
        cmocka_unit_test(bad_ids),
        cmocka_unit_test(wrong_kinds_of_value),
        cmocka_unit_test(only_plain_decimal_integers),
        cmocka_unit_test(ends_of_the_ranges),
        cmocka_unit_test(version_is_the_number_1),
        cmocka_unit_test(one_limit_per_window_and_layer),
        cmocka_unit_test(on_limit_needs_its_settings),
        cmocka_unit_test(shares_are_at_most_the_total),
        cmocka_unit_test(the_sum_of_shares_does_not_wrap),
        cmocka_unit_test(a_cost_limit_anywhere_on_the_path_needs_cap_micros),
        cmocka_unit_test(a_tokens_limit_needs_cap_tokens_unless_every_output_ends),
        cmocka_unit_test(teams_that_differ_in_on_limit_are_warned_of),
        cmocka_unit_test(queue_is_refused_on_request),
        cmocka_unit_test(all_problems_in_one_go_and_in_line_order),
        cmocka_unit_test(what_is_not_yaml),
        cmocka_unit_test(what_could_hide_something),
        cmocka_unit_test(what_costs_too_much),
        cmocka_unit_test(too_many_anchors),
        cmocka_unit_test(files_that_cannot_be_read),
        cmocka_unit_test(files_are_read_whole),
        cmocka_unit_test(a_report_prints_file_line_path_and_message),
        cmocka_unit_test(a_report_lists_a_thousand_errors_and_counts_the_rest),
        cmocka_unit_test(long_and_hidden_text_is_quoted_short_and_visibly),
        cmocka_unit_test(running_out_of_memory_is_an_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
