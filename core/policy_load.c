#include "core/policy_load.h"

#include "core/policy_check.h"

#include <string.h>

#define CNT(array) (sizeof(array) / sizeof((array)[0]))

/* What is in force where neither a team, nor its tenant, nor `defaults` say anything. */
#define BUILT_IN_TTL_MS         300000
#define BUILT_IN_RETRY_AFTER_MS 60000

static const char *window_word(unsigned value)
{
    return hf_window_name((enum hf_window)value);
}

static const char *on_limit_word(unsigned value)
{
    return hf_on_limit_name((enum hf_on_limit)value);
}

static const char *on_expiry_word(unsigned value)
{
    return hf_on_expiry_name((enum hf_on_expiry)value);
}

static const char *on_overage_word(unsigned value)
{
    return hf_on_overage_name((enum hf_on_overage)value);
}

static const char *basis_word(unsigned value)
{
    return hf_basis_name((enum hf_basis)value);
}

/* ---- modes: team, else tenant, else defaults, else built in -------------------------------------------- */

/* The values of the four fields in a mapping, in this order wherever they occur. */
#define MODE_FIELDS                                                 \
    {"ttl_ms", false}, {"on_expiry", false}, {"on_overage", false}, \
    {                                                               \
        "retry_after_ms", false                                     \
    }
#define MODE_CNT 4

static void read_modes(struct hf_policy_reader *reader, const uint32_t nodes[MODE_CNT],
                       const struct hf_policy_modes *inherited, struct hf_policy_modes *modes)
{
    unsigned word;

    *modes = *inherited;
    modes->told = 0;
    if (hf_reader_number(reader, "ttl_ms", nodes[0], 1, &modes->ttl_ms)) {
        modes->told |= HF_POLICY_TOLD_TTL;
    }
    if (hf_reader_word(reader, "on_expiry", nodes[1], on_expiry_word, HF_ON_EXPIRY_RETAIN_DISPATCHED + 1,
                       &word)) {
        modes->on_expiry = (enum hf_on_expiry)word;
        modes->told |= HF_POLICY_TOLD_ON_EXPIRY;
    }
    if (hf_reader_word(reader, "on_overage", nodes[2], on_overage_word, HF_ON_OVERAGE_FAIL + 1, &word)) {
        modes->on_overage = (enum hf_on_overage)word;
        modes->told |= HF_POLICY_TOLD_ON_OVERAGE;
    }
    if (hf_reader_number(reader, "retry_after_ms", nodes[3], 1, &modes->retry_after_ms)) {
        modes->told |= HF_POLICY_TOLD_RETRY_AFTER;
    }
}

/* ---- on_limit ------------------------------------------------------------------------------------------ */

/* The values of the three fields in a mapping, in this order wherever they occur. */
#define ON_LIMIT_FIELDS                               \
    {"on_limit", false}, {"overdraft_micros", false}, \
    {                                                 \
        "queue", false                                \
    }
#define ON_LIMIT_CNT 3

static void read_queue(struct hf_policy_reader *reader, uint32_t node, struct hf_policy_on_limit *on_limit)
{
    static const struct hf_reader_field fields[] = {{"limit", true}, {"deadline_ms", true}};
    uint32_t values[CNT(fields)];
    size_t before = hf_reader_enter_field(reader, "queue");

    hf_reader_mapping(reader, node, fields, CNT(fields), values);
    hf_reader_number(reader, "limit", values[0], 1, &on_limit->queue_limit);
    hf_reader_number(reader, "deadline_ms", values[1], 1, &on_limit->queue_deadline_ms);
    hf_reader_leave(reader, before);
}

static void read_on_limit(struct hf_policy_reader *reader, const uint32_t nodes[ON_LIMIT_CNT],
                          struct hf_policy_on_limit *on_limit)
{
    unsigned word = HF_ON_LIMIT_REJECT;
    bool told = hf_reader_word(reader, "on_limit", nodes[0], on_limit_word, HF_ON_LIMIT_QUEUE + 1, &word);

    on_limit->kind = (enum hf_on_limit)word;
    on_limit->overdraft_micros = HF_UNKNOWN;
    on_limit->queue_limit = HF_UNKNOWN;
    on_limit->queue_deadline_ms = HF_UNKNOWN;
    hf_reader_number(reader, "overdraft_micros", nodes[1], 0, &on_limit->overdraft_micros);
    read_queue(reader, nodes[2], on_limit);
    if (on_limit->kind == HF_ON_LIMIT_DEGRADE && nodes[1] == 0) {
        hf_reader_error_of(reader, "overdraft_micros", nodes[0],
                           "is missing: on_limit is degrade; add it, 0 for no overdraft");
    }
    if (on_limit->kind == HF_ON_LIMIT_QUEUE && nodes[2] == 0) {
        hf_reader_error_of(reader, "queue", nodes[0],
                           "is missing: on_limit is queue; add {limit: TICKETS, deadline_ms: MILLISECONDS}");
    }
    if (on_limit->kind == HF_ON_LIMIT_QUEUE && (reader->flags & HF_POLICY_REFUSE_QUEUE) != 0) {
        hf_reader_error_of(reader, "on_limit", nodes[0],
                           "queue is not built yet: requests cannot wait here; use reject or degrade");
    }
    /* After a wrong on_limit nobody knows what is meant to have an effect. */
    if (!told && nodes[0] != 0) {
        return;
    }
    if (on_limit->kind != HF_ON_LIMIT_DEGRADE && nodes[1] != 0) {
        hf_reader_warn_of(reader, "overdraft_micros", nodes[1], "has no effect: on_limit is %s, not degrade",
                          hf_on_limit_name(on_limit->kind));
    }
    if (on_limit->kind != HF_ON_LIMIT_QUEUE && nodes[2] != 0) {
        hf_reader_warn_of(reader, "queue", nodes[2], "has no effect: on_limit is %s, not queue",
                          hf_on_limit_name(on_limit->kind));
    }
}

/* ---- limits -------------------------------------------------------------------------------------------- */

static void read_limit(struct hf_policy_reader *reader, uint32_t node, struct hf_policy_limits *limits,
                       uint32_t lines[HF_WINDOW_CNT])
{
    static const struct hf_reader_field fields[] = {
        {"window", true}, {"invocations", false}, {"tokens", false}, {"cost_micros", false}};
    uint32_t values[CNT(fields)];
    uint64_t amounts[HF_DIM_CNT] = {HF_UNKNOWN, HF_UNKNOWN, HF_UNKNOWN};
    unsigned window;

    if (!hf_reader_mapping(reader, node, fields, CNT(fields), values)) {
        return;
    }
    for (unsigned d = 0; d < HF_DIM_CNT; d++) {
        hf_reader_number(reader, fields[1 + d].name, values[1 + d], 0, &amounts[d]);
    }
    if (values[1] == 0 && values[2] == 0 && values[3] == 0) {
        hf_reader_error(reader, node, "limits nothing; add invocations, tokens or cost_micros");
    }
    if (!hf_reader_word(reader, "window", values[0], window_word, HF_WINDOW_CNT, &window)) {
        return;
    }
    if (lines[window] != 0) {
        hf_reader_error_of(reader, "window", values[0],
                           "%s is limited on line %u already; write one limit of it with all its amounts",
                           window_word(window), lines[window]);
        return;
    }
    lines[window] = hf_reader_line(reader, values[0]);
    memcpy(limits->limits[window], amounts, sizeof(amounts));
}

static void read_limits(struct hf_policy_reader *reader, uint32_t node, struct hf_policy_limits *limits)
{
    uint32_t lines[HF_WINDOW_CNT] = {0};
    size_t before = hf_reader_enter_field(reader, "limits");
    uint32_t item;
    size_t cnt;

    memset(limits, 0xFF, sizeof(*limits)); /* HF_UNKNOWN throughout */
    hf_reader_list(reader, node, 0, &item, &cnt, NULL);
    for (size_t i = 0; i < cnt; i++, item = hf_reader_next(reader, item)) {
        size_t list = hf_reader_enter_index(reader, i);

        read_limit(reader, item, limits, lines);
        hf_reader_leave(reader, list);
    }
    hf_reader_leave(reader, before);
}

/* ---- keys and capabilities ----------------------------------------------------------------------------- */

static void read_key(struct hf_policy_reader *reader, uint32_t node, struct hf_policy_key *key)
{
    static const struct hf_reader_field fields[] = {{"id", true}, {"limits", false}};
    uint32_t values[CNT(fields)];

    hf_reader_mapping(reader, node, fields, CNT(fields), values);
    hf_reader_name(reader, "id", values[0], &key->id);
    read_limits(reader, values[1], &key->limits);
}

static void read_capability(struct hf_policy_reader *reader, uint32_t node,
                            struct hf_policy_capability *capability)
{
    static const struct hf_reader_field fields[] = {
        {"id", true}, {"cap_micros", false}, {"cap_tokens", false}, {"reserve_basis", false}};
    uint32_t values[CNT(fields)];
    unsigned word = HF_BASIS_ESTIMATE;

    capability->cap_micros = HF_UNKNOWN;
    capability->cap_tokens = HF_UNKNOWN;
    hf_reader_mapping(reader, node, fields, CNT(fields), values);
    hf_reader_name(reader, "id", values[0], &capability->id);
    hf_reader_number(reader, "cap_micros", values[1], 1, &capability->cap_micros);
    hf_reader_number(reader, "cap_tokens", values[2], 1, &capability->cap_tokens);
    hf_reader_word(reader, "reserve_basis", values[3], basis_word, HF_BASIS_CAP + 1, &word);
    capability->basis = (enum hf_basis)word;
}

static void read_keys(struct hf_policy_reader *reader, uint32_t node, struct hf_policy_team *team)
{
    size_t before = hf_reader_enter_field(reader, "keys");
    void *array;
    uint32_t item;

    hf_reader_list(reader, node, sizeof(*team->keys), &item, &team->key_cnt, &array);
    team->keys = array;
    for (size_t i = 0; i < team->key_cnt; i++, item = hf_reader_next(reader, item)) {
        size_t list = hf_reader_enter_index(reader, i);

        read_key(reader, item, &team->keys[i]);
        hf_reader_leave(reader, list);
    }
    hf_policy_check_ids(reader, node, team->keys, team->key_cnt, sizeof(*team->keys));
    hf_reader_leave(reader, before);
}

static void read_capabilities(struct hf_policy_reader *reader, uint32_t node, struct hf_policy_team *team)
{
    size_t before = hf_reader_enter_field(reader, "capabilities");
    void *array;
    uint32_t item;

    if (hf_reader_list(reader, node, sizeof(*team->capabilities), &item, &team->capability_cnt, &array) &&
        team->capability_cnt == 0) {
        hf_reader_warn(reader, node, "is empty: the team can call nothing");
    }
    team->capabilities = array;
    for (size_t i = 0; i < team->capability_cnt; i++, item = hf_reader_next(reader, item)) {
        size_t list = hf_reader_enter_index(reader, i);

        read_capability(reader, item, &team->capabilities[i]);
        hf_reader_leave(reader, list);
    }
    hf_policy_check_ids(reader, node, team->capabilities, team->capability_cnt, sizeof(*team->capabilities));
    hf_reader_leave(reader, before);
}

/* ---- teams and tenants --------------------------------------------------------------------------------- */

static void read_team(struct hf_policy_reader *reader, uint32_t node, const struct hf_policy_tenant *tenant,
                      struct hf_policy_team *team)
{
    static const struct hf_reader_field fields[] = {{"id", true},      {"capabilities", true},
                                                    {"limits", false}, {"keys", false},
                                                    ON_LIMIT_FIELDS,   MODE_FIELDS};
    uint32_t values[CNT(fields)];

    hf_reader_mapping(reader, node, fields, CNT(fields), values);
    hf_reader_name(reader, "id", values[0], &team->id);
    read_capabilities(reader, values[1], team);
    read_limits(reader, values[2], &team->limits);
    read_keys(reader, values[3], team);
    read_on_limit(reader, values + 4, &team->on_limit);
    read_modes(reader, values + 4 + ON_LIMIT_CNT, &tenant->modes, &team->modes);
}

static void read_teams(struct hf_policy_reader *reader, uint32_t node, uint32_t tenant_node,
                       struct hf_policy_tenant *tenant)
{
    size_t before = hf_reader_enter_field(reader, "teams");
    struct hf_policy_need needs[HF_DIM_CNT];
    void *array;
    uint32_t item;

    if (hf_reader_list(reader, node, sizeof(*tenant->teams), &item, &tenant->team_cnt, &array) &&
        tenant->team_cnt == 0) {
        hf_reader_warn(reader, node, "is empty: nobody of the tenant can call anything");
    }
    tenant->teams = array;
    hf_policy_needs_of_tenant(reader, tenant_node, tenant, needs);
    for (size_t i = 0; i < tenant->team_cnt; i++, item = hf_reader_next(reader, item)) {
        size_t list = hf_reader_enter_index(reader, i);

        read_team(reader, item, tenant, &tenant->teams[i]);
        hf_policy_check_caps(reader, item, &tenant->teams[i], needs);
        hf_reader_leave(reader, list);
    }
    hf_policy_check_ids(reader, node, tenant->teams, tenant->team_cnt, sizeof(*tenant->teams));
    hf_reader_leave(reader, before);
}

static void read_tenant(struct hf_policy_reader *reader, uint32_t node, const struct hf_policy *policy,
                        struct hf_policy_tenant *tenant)
{
    static const struct hf_reader_field fields[] = {{"id", true},      {"teams", true},
                                                    {"limits", false}, {"allow_overcommit", false},
                                                    ON_LIMIT_FIELDS,   MODE_FIELDS};
    uint32_t values[CNT(fields)];

    hf_reader_mapping(reader, node, fields, CNT(fields), values);
    hf_reader_name(reader, "id", values[0], &tenant->id);
    hf_reader_bool(reader, "allow_overcommit", values[3], &tenant->allow_overcommit);
    read_limits(reader, values[2], &tenant->limits);
    read_on_limit(reader, values + 4, &tenant->on_limit);
    read_modes(reader, values + 4 + ON_LIMIT_CNT, &policy->defaults, &tenant->modes);
    read_teams(reader, values[1], node, tenant);
    hf_policy_check_shares(reader, node, tenant);
    hf_policy_check_on_limits(reader, node, tenant);
}

static void read_tenants(struct hf_policy_reader *reader, uint32_t node, struct hf_policy *policy)
{
    size_t before = hf_reader_enter_field(reader, "tenants");
    void *array;
    uint32_t item;

    if (hf_reader_list(reader, node, sizeof(*policy->tenants), &item, &policy->tenant_cnt, &array) &&
        policy->tenant_cnt == 0) {
        hf_reader_warn(reader, node, "is empty: nobody can call anything");
    }
    policy->tenants = array;
    for (size_t i = 0; i < policy->tenant_cnt; i++, item = hf_reader_next(reader, item)) {
        size_t list = hf_reader_enter_index(reader, i);

        read_tenant(reader, item, policy, &policy->tenants[i]);
        hf_reader_leave(reader, list);
    }
    hf_policy_check_ids(reader, node, policy->tenants, policy->tenant_cnt, sizeof(*policy->tenants));
    hf_reader_leave(reader, before);
}

/* ---- prices -------------------------------------------------------------------------------------------- */

static void read_model(struct hf_policy_reader *reader, uint32_t node, struct hf_policy_model *model)
{
    static const struct hf_reader_field fields[] = {{"id", true},
                                                    {"input_micros_per_mtok", true},
                                                    {"output_micros_per_mtok", true},
                                                    {"cached_input_micros_per_mtok", false},
                                                    {"cache_write_input_micros_per_mtok", false},
                                                    {"max_output_tokens", false}};
    struct hf_price *price = &model->price;
    uint32_t values[CNT(fields)];

    price->cached_input = HF_UNKNOWN;
    price->cache_write = HF_UNKNOWN;
    price->max_output_tokens = HF_UNKNOWN;
    if (hf_reader_mapping(reader, node, fields, CNT(fields), values) && values[5] == 0 &&
        reader->endless_line == 0) {
        reader->endless_line = hf_reader_line(reader, node);
    }
    hf_reader_name(reader, "id", values[0], &model->id);
    hf_reader_number(reader, fields[1].name, values[1], 0, &price->input);
    hf_reader_number(reader, fields[2].name, values[2], 0, &price->output);
    hf_reader_number(reader, fields[3].name, values[3], 0, &price->cached_input);
    hf_reader_number(reader, fields[4].name, values[4], 0, &price->cache_write);
    hf_reader_number(reader, fields[5].name, values[5], 1, &price->max_output_tokens);
}

static void read_models(struct hf_policy_reader *reader, uint32_t node, struct hf_policy *policy)
{
    size_t before = hf_reader_enter_field(reader, "models");
    void *array;
    uint32_t item;

    hf_reader_list(reader, node, sizeof(*policy->models), &item, &policy->model_cnt, &array);
    policy->models = array;
    for (size_t i = 0; i < policy->model_cnt; i++, item = hf_reader_next(reader, item)) {
        size_t list = hf_reader_enter_index(reader, i);

        read_model(reader, item, &policy->models[i]);
        hf_reader_leave(reader, list);
    }
    hf_policy_check_ids(reader, node, policy->models, policy->model_cnt, sizeof(*policy->models));
    hf_reader_leave(reader, before);
}

static void read_prices(struct hf_policy_reader *reader, uint32_t node, struct hf_policy *policy)
{
    static const struct hf_reader_field fields[] = {{"revision", true}, {"models", true}};
    uint32_t values[CNT(fields)];
    size_t before = hf_reader_enter_field(reader, "prices");

    hf_reader_mapping(reader, node, fields, CNT(fields), values);
    hf_reader_name(reader, "revision", values[0], &policy->price_revision);
    read_models(reader, values[1], policy);
    hf_reader_leave(reader, before);
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

static void read_version(struct hf_policy_reader *reader, uint32_t node)
{
    uint64_t version;

    if (hf_reader_number(reader, "version", node, 0, &version) && version != 1) {
        hf_reader_error_of(reader, "version", node, "must be 1, the only version that is known here");
    }
}

static void read_defaults(struct hf_policy_reader *reader, uint32_t node, struct hf_policy *policy)
{
    static const struct hf_reader_field fields[] = {MODE_FIELDS};
    static const struct hf_policy_modes built_in = {.ttl_ms = BUILT_IN_TTL_MS,
                                                    .retry_after_ms = BUILT_IN_RETRY_AFTER_MS,
                                                    .on_expiry = HF_ON_EXPIRY_RELEASE,
                                                    .on_overage = HF_ON_OVERAGE_RECORD};
    uint32_t values[CNT(fields)];
    size_t before = hf_reader_enter_field(reader, "defaults");

    hf_reader_mapping(reader, node, fields, CNT(fields), values);
    read_modes(reader, values, &built_in, &policy->defaults);
    hf_reader_leave(reader, before);
}

void hf_policy_read(struct hf_policy_reader *reader, struct hf_policy *policy)
{
    static const struct hf_reader_field fields[] = {
        {"version", true}, {"currency", true}, {"prices", true}, {"tenants", true}, {"defaults", false}};
    uint32_t values[CNT(fields)];

    hf_reader_mapping(reader, reader->yaml->root, fields, CNT(fields), values);
    read_version(reader, values[0]);
    hf_reader_name(reader, "currency", values[1], &policy->currency);
    read_prices(reader, values[2], policy);
    read_defaults(reader, values[4], policy);
    read_tenants(reader, values[3], policy);
}
