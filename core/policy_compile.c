#include "core/policy_compile.h"

#include "core/lookup.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(HF_UNKNOWN == HF_SHM_UNKNOWN, "an amount nobody knows is one number everywhere");
_Static_assert(HF_AMOUNT_MAX == HF_SHM_AMOUNT_MAX, "one range of amounts");
_Static_assert(HF_WINDOW_CNT == HF_SHM_WINDOWS && HF_DIM_CNT == HF_SHM_DIMS,
               "a row's limits are copied whole");
_Static_assert(HF_NAME_BYTES_MAX == HF_SHM_NAME_BYTES, "a name fits its place");

#define HF_LAYER_IDX_KEY    0U /* row_layer: the order of the checks */
#define HF_LAYER_IDX_TEAM   1U
#define HF_LAYER_IDX_TENANT 2U

/* ---- how much of everything -------------------------------------------------------------------------- */

struct counts {
    uint64_t tenants;
    uint64_t rows;
    uint64_t caps;
    uint64_t models;
    uint64_t names;  /* distinct ones at most */
    uint64_t lookup; /* entries at most */
};

static struct counts count(const struct hf_policy *policy)
{
    struct counts c = {
        .tenants = policy->tenant_cnt, .rows = policy->tenant_cnt, .models = policy->model_cnt};

    for (size_t t = 0; t < policy->tenant_cnt; t++) {
        const struct hf_policy_tenant *tenant = &policy->tenants[t];
        c.rows += tenant->team_cnt;
        for (size_t m = 0; m < tenant->team_cnt; m++) {
            c.rows += tenant->teams[m].key_cnt;
            c.caps += tenant->teams[m].capability_cnt;
        }
    }
    c.names = c.rows + c.caps + c.models + 2; /* + currency and price revision */
    c.lookup = c.rows + c.caps + c.models + c.names;
    return c;
}

static uint64_t lookup_entries(const struct counts *c)
{
    uint64_t entries = 16;

    while (entries < 2 * c->lookup) {
        entries *= 2;
    }
    return entries;
}

static uint64_t up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* Where the arrays of a generation stand, from the start of its region; lines of their own. */
struct places {
    uint64_t rows_off;
    uint64_t caps_off;
    uint64_t lookup_off;
    uint64_t bytes;
};

static struct places place(const struct counts *c)
{
    struct places p;

    p.rows_off = up(sizeof(struct hf_shm_policy), 64);
    p.caps_off = up(p.rows_off + c->rows * sizeof(struct hf_shm_row_policy), 64);
    p.lookup_off = up(p.caps_off + c->caps * sizeof(struct hf_shm_cap), 64);
    p.bytes = p.lookup_off + lookup_entries(c) * sizeof(struct hf_shm_lookup);
    return p;
}

static int compare_names(const void *a, const void *b)
{
    const struct hf_name *const *x = a;
    const struct hf_name *const *y = b;
    int order = memcmp((*x)->bytes, (*y)->bytes, (*x)->len < (*y)->len ? (*x)->len : (*y)->len);

    return order != 0 ? order : (int)(*x)->len - (int)(*y)->len;
}

/* Capabilities of a tenant with different names: its meters are kept per name, not per team. */
static uint64_t distinct_caps(const struct hf_policy_tenant *tenant, const struct hf_name **scratch)
{
    size_t cnt = 0;
    uint64_t distinct = 0;

    for (size_t m = 0; m < tenant->team_cnt; m++) {
        for (size_t i = 0; i < tenant->teams[m].capability_cnt; i++) {
            scratch[cnt++] = &tenant->teams[m].capabilities[i].id;
        }
    }
    if (cnt > 0) {
        qsort(scratch, cnt, sizeof(const struct hf_name *), compare_names);
    }
    for (size_t i = 0; i < cnt; i++) {
        distinct += i == 0 || !hf_name_equal(scratch[i - 1], scratch[i]);
    }
    return distinct;
}

/* A quarter more and at least 64. */
static uint64_t grown(uint64_t cnt)
{
    uint64_t more = cnt / 4;

    return cnt + (more < 64 ? 64 : more);
}

/* A meter that finds no place is left out of what is shown, not out of the receipts: a bound against the
 * product of a large policy. */
#define METERS_MAX (UINT64_C(1) << 20)

int hf_policy_plan(const struct hf_policy *policy, struct hf_segment_plan *plan, struct hf_error *err)
{
    if (policy == NULL || plan == NULL) {
        return hf_error_set(err, HF_EARG, "hf_policy_plan needs a policy and a plan to fill");
    }
    struct counts c = count(policy);
    const struct hf_name **scratch = calloc(c.caps + 1, sizeof(const struct hf_name *));
    uint64_t meters = 0;

    if (scratch == NULL) {
        return hf_error_set(err, HF_ESYS,
                            "out of memory while sizing a segment for the policy: it has %llu capabilities",
                            (unsigned long long)c.caps);
    }
    for (size_t t = 0; t < policy->tenant_cnt; t++) {
        /* One per model, and one for explicit amounts. */
        meters += distinct_caps(&policy->tenants[t], scratch) * (c.models + 1);
    }
    free(scratch);

    struct counts g = {grown(c.tenants), grown(c.rows),  grown(c.caps),
                       grown(c.models),  grown(c.names), grown(c.lookup)};
    meters = grown(meters);
    if (g.names > HF_SHM_NONE - 1 || g.rows > HF_SHM_NONE - 1 || lookup_entries(&g) > UINT32_MAX) {
        return hf_error_set(err, HF_EARG,
                            "the policy is too large for a segment: %llu layers and %llu names; split it",
                            (unsigned long long)c.rows, (unsigned long long)c.names);
    }
    plan->tenants = (uint32_t)g.tenants;
    plan->rows = (uint32_t)g.rows;
    plan->names = (uint32_t)g.names;
    plan->prices = (uint32_t)g.models;
    plan->meters = (uint32_t)(meters < METERS_MAX ? meters : METERS_MAX);
    plan->policy_bytes = up(place(&g).bytes, 4096);
    return HF_OK;
}

/* ---- names ------------------------------------------------------------------------------------------- */

/* Open addressing over the names of the segment while a policy is compiled: name number + 1, 0 = empty. */
struct interned {
    uint32_t *entries;
    uint32_t mask;
};

static uint32_t name_slot(const struct hf_segment *seg, const struct interned *names, const char *text,
                          uint32_t bytes)
{
    uint32_t at = (uint32_t)hf_name_hash(text, bytes, seg->hash_seed) & names->mask;

    for (;; at = (at + 1) & names->mask) { /* at most half full: it ends */
        uint32_t entry = names->entries[at];
        if (entry == 0 || (seg->names[entry - 1].name_bytes == bytes &&
                           memcmp(seg->names[entry - 1].name_text, text, bytes) == 0)) {
            return at;
        }
    }
}

/* Appends a name; HF_SHM_NONE when there is no room. */
static uint32_t name_append(struct hf_segment *seg, const char *text, uint32_t bytes)
{
    uint32_t name =
        hf_load_rlx_u32(&seg->header->hdr_names_cnt); /* relaxed: creator or daemon alone writes it */

    if (name >= seg->names_max) {
        return HF_SHM_NONE;
    }
    memcpy(seg->names[name].name_text, text, bytes);
    seg->names[name].name_bytes = (uint8_t)bytes;
    /* relaxed: nobody finds a name by the count; its number reaches others with what is published under it.
     * CRASH before: the place is filled again by the next name. */
    hf_store_rlx_u32(&seg->header->hdr_names_cnt, name + 1);
    return name;
}

static bool names_start(const struct hf_segment *seg, uint64_t more, struct interned *names)
{
    uint32_t there =
        hf_load_rlx_u32(&seg->header->hdr_names_cnt); /* relaxed: creator or daemon alone writes it */
    uint64_t entries = 16;

    if (there > seg->names_max) {
        there = seg->names_max;
    }
    while (entries < 2 * (more + there)) {
        entries *= 2;
    }
    names->mask = (uint32_t)(entries - 1);
    names->entries = calloc(entries, sizeof(*names->entries));
    if (names->entries == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < there; i++) {
        const struct hf_shm_name *name = &seg->names[i];
        if (name->name_bytes > 0 && name->name_bytes <= HF_SHM_NAME_BYTES) {
            names->entries[name_slot(seg, names, name->name_text, name->name_bytes)] = i + 1;
        }
    }
    return true;
}

/* ---- compiling --------------------------------------------------------------------------------------- */

struct compile {
    struct hf_segment *seg;
    struct hf_error *err;
    struct interned names;
    struct hf_shm_policy *head;
    struct hf_shm_row_policy *rows;
    struct hf_shm_cap *caps;
    struct hf_shm_lookup *lookup;
    uint32_t next_row;
    uint32_t next_cap;
    int rc; /* first failure; nothing is done after it */
};

static void fail_full(struct compile *c, const char *table, uint64_t needed, uint64_t room, const char *field)
{
    if (c->rc == HF_OK) {
        c->rc = hf_error_set(
            c->err, HF_EFULL,
            "the segment has room for %llu %s and the policy needs %llu: make the segment anew with a "
            "larger plan (%s)",
            (unsigned long long)room, table, (unsigned long long)needed, field);
    }
}

/* The number of a name, interned if it is new. */
static uint32_t intern(struct compile *c, const struct hf_name *name)
{
    if (c->rc != HF_OK) {
        return HF_SHM_NONE;
    }
    uint32_t at = name_slot(c->seg, &c->names, name->bytes, name->len);
    if (c->names.entries[at] == 0) {
        uint32_t number = name_append(c->seg, name->bytes, name->len);
        if (number == HF_SHM_NONE) {
            fail_full(c, "names", (uint64_t)c->seg->names_max + 1, c->seg->names_max, "names");
            return HF_SHM_NONE;
        }
        c->names.entries[at] = number + 1;
    }
    return c->names.entries[at] - 1;
}

/* Enters a name in the lookup table. The same entry twice means that the policy was not checked. */
static void enter(struct compile *c, uint32_t kind, uint32_t parent, uint32_t name, uint32_t value)
{
    if (c->rc != HF_OK) {
        return;
    }
    const struct hf_shm_name *text = &c->seg->names[name];
    uint32_t mask = c->head->pol_lookup_mask;
    uint32_t at = (uint32_t)hf_lookup_hash(c->seg, kind, parent, text->name_text, text->name_bytes) & mask;

    for (; c->lookup[at].lku_kind != 0; at = (at + 1) & mask) { /* at most half full: it ends */
        const struct hf_shm_lookup *entry = &c->lookup[at];
        if (entry->lku_kind == kind && entry->lku_parent == parent && entry->lku_name == name) {
            c->rc = hf_error_set(c->err, HF_EARG,
                                 "the policy names `%.*s` twice in one list: load it with its checks",
                                 (int)text->name_bytes, text->name_text);
            return;
        }
    }
    c->lookup[at] = (struct hf_shm_lookup){kind, parent, name, value};
}

/* What a limit in the way does and the modes in force: a team's own, and those of its keys. */
static void put_modes(struct hf_shm_row_policy *row, const struct hf_policy_on_limit *on_limit,
                      const struct hf_policy_modes *modes)
{
    row->rpl_overdraft_micros = on_limit->overdraft_micros;
    row->rpl_queue_limit = on_limit->queue_limit;
    row->rpl_queue_deadline_ms = on_limit->queue_deadline_ms;
    row->rpl_on_limit = (uint32_t)on_limit->kind;
    row->rpl_ttl_ms = modes->ttl_ms;
    row->rpl_retry_after_ms = modes->retry_after_ms;
    row->rpl_on_expiry = (uint32_t)modes->on_expiry;
    row->rpl_on_overage = (uint32_t)modes->on_overage;
}

/* The next row, of that layer; its number, or HF_SHM_NONE after a failure. */
static uint32_t put_row(struct compile *c, uint32_t tenant_idx, uint32_t parent, uint32_t layer,
                        const struct hf_name *id, const struct hf_policy_limits *limits)
{
    uint32_t name = intern(c, id);
    if (c->rc != HF_OK) {
        return HF_SHM_NONE;
    }
    uint32_t number = c->next_row++;
    struct hf_shm_row *row = &c->seg->rows[number];
    struct hf_shm_row_policy *rules = &c->rows[number];

    memset(row, 0, sizeof(*row));
    row->row_tenant = tenant_idx;
    row->row_parent = parent;
    row->row_name = name;
    row->row_layer = layer;
    memcpy(rules->rpl_limits, limits->limits, sizeof(rules->rpl_limits));
    rules->rpl_present = 1;
    return number;
}

static void put_team(struct compile *c, uint32_t row, const struct hf_policy_team *team)
{
    for (size_t i = 0; i < team->capability_cnt; i++) {
        const struct hf_policy_capability *cap = &team->capabilities[i];
        uint32_t name = intern(c, &cap->id);

        c->caps[c->next_cap] = (struct hf_shm_cap){.cap_micros = cap->cap_micros,
                                                   .cap_tokens = cap->cap_tokens,
                                                   .cap_name = name,
                                                   .cap_team_row = row,
                                                   .cap_basis = (uint32_t)cap->basis};
        enter(c, HF_LOOKUP_CAP, row, name, c->next_cap++);
    }
}

static void put_keys(struct compile *c, uint32_t tenant_idx, uint32_t team_row,
                     const struct hf_policy_team *team)
{
    for (size_t k = 0; k < team->key_cnt && c->rc == HF_OK; k++) {
        const struct hf_policy_key *key = &team->keys[k];
        uint32_t row = put_row(c, tenant_idx, team_row, HF_LAYER_IDX_KEY, &key->id, &key->limits);
        if (row == HF_SHM_NONE) {
            return;
        }
        put_modes(&c->rows[row], &team->on_limit, &team->modes);
        enter(c, HF_LOOKUP_KEY, team_row, c->seg->rows[row].row_name, row);
    }
}

/* The tenant's row, then its teams', then their keys': what one operation touches lies close together. */
static void put_tenant(struct compile *c, uint32_t tenant_idx, const struct hf_policy_tenant *tenant)
{
    uint32_t row = put_row(c, tenant_idx, HF_SHM_NONE, HF_LAYER_IDX_TENANT, &tenant->id, &tenant->limits);
    if (row == HF_SHM_NONE) {
        return;
    }
    struct hf_shm_tenant *word = &c->seg->tenants[tenant_idx];
    memset(word, 0, sizeof(*word)); /* plain: before publish. W and A at sequence 0, naming no slot */
    word->ten_row = row;
    word->ten_name = c->seg->rows[row].row_name;
    word->ten_policy = c->head->pol_gen;
    put_modes(&c->rows[row], &tenant->on_limit, &tenant->modes);
    enter(c, HF_LOOKUP_TENANT, 0, word->ten_name, tenant_idx);

    uint32_t first_team = c->next_row;
    for (size_t m = 0; m < tenant->team_cnt && c->rc == HF_OK; m++) {
        const struct hf_policy_team *team = &tenant->teams[m];
        uint32_t team_row = put_row(c, tenant_idx, row, HF_LAYER_IDX_TEAM, &team->id, &team->limits);
        if (team_row == HF_SHM_NONE) {
            return;
        }
        put_modes(&c->rows[team_row], &team->on_limit, &team->modes);
        enter(c, HF_LOOKUP_TEAM, row, c->seg->rows[team_row].row_name, team_row);
        put_team(c, team_row, team);
    }
    for (size_t m = 0; m < tenant->team_cnt && c->rc == HF_OK; m++) {
        put_keys(c, tenant_idx, first_team + (uint32_t)m, &tenant->teams[m]);
    }
}

static void put_prices(struct compile *c, const struct hf_policy *policy, uint32_t first)
{
    for (size_t i = 0; i < policy->model_cnt; i++) {
        const struct hf_price *price = &policy->models[i].price;
        uint32_t name = intern(c, &policy->models[i].id);
        uint32_t number = first + (uint32_t)i;

        c->seg->prices[number] = (struct hf_shm_price){.prc_input = price->input,
                                                       .prc_output = price->output,
                                                       .prc_cached_input = price->cached_input,
                                                       .prc_cache_write = price->cache_write,
                                                       .prc_max_output_tokens = price->max_output_tokens,
                                                       .prc_model = name,
                                                       .prc_revision = c->head->pol_price_revision};
        enter(c, HF_LOOKUP_MODEL, 0, name, number);
    }
}

/* All that the policy needs but names, whose number is known only when they are interned. */
static void check_room(struct compile *c, const struct counts *need, uint64_t bytes, uint32_t prices_there)
{
    const struct hf_segment *seg = c->seg;

    if (need->tenants > seg->tenants_cnt) {
        fail_full(c, "tenants", need->tenants, seg->tenants_cnt, "tenants");
    }
    if (need->rows > seg->rows_cnt) {
        fail_full(c, "rows (tenants, teams and keys)", need->rows, seg->rows_cnt, "rows");
    }
    if (prices_there > seg->prices_max || need->models > seg->prices_max - prices_there) {
        fail_full(c, "prices", need->models + prices_there, seg->prices_max, "prices");
    }
    if (bytes > seg->policy_bytes) {
        fail_full(c, "bytes of a compiled policy", bytes, seg->policy_bytes, "policy_bytes");
    }
}

static void start_generation(struct compile *c, const struct hf_policy *policy, const uint8_t digest[32],
                             uint32_t gen, const struct counts *need)
{
    struct places at = place(need);
    uint8_t *region = c->seg->policies + (gen & 1U) * c->seg->policy_bytes;

    memset(region, 0, at.bytes);
    c->head = (struct hf_shm_policy *)(void *)region;
    c->rows = (struct hf_shm_row_policy *)(void *)(region + at.rows_off);
    c->caps = (struct hf_shm_cap *)(void *)(region + at.caps_off);
    c->lookup = (struct hf_shm_lookup *)(void *)(region + at.lookup_off);
    *c->head = (struct hf_shm_policy){.pol_gen = gen,
                                      .pol_rows_cnt = (uint32_t)need->rows,
                                      .pol_caps_cnt = (uint32_t)need->caps,
                                      .pol_lookup_mask = (uint32_t)(lookup_entries(need) - 1),
                                      .pol_rows_off = at.rows_off,
                                      .pol_caps_off = at.caps_off,
                                      .pol_lookup_off = at.lookup_off,
                                      .pol_bytes = at.bytes,
                                      .pol_currency = intern(c, &policy->currency),
                                      .pol_price_revision = intern(c, &policy->price_revision),
                                      .pol_tenants_cnt = (uint32_t)need->tenants,
                                      .pol_models_cnt = (uint32_t)need->models};
    memcpy(c->head->pol_digest, digest, sizeof(c->head->pol_digest));
}

static int finish_generation(struct compile *c, uint32_t gen, uint32_t prices_cnt)
{
    uint32_t names_cnt =
        hf_load_rlx_u32(&c->seg->header->hdr_names_cnt); /* relaxed: this process alone writes it */

    for (uint32_t i = 0; i <= c->names.mask; i++) {
        uint32_t entry = c->names.entries[i];
        if (entry != 0 && entry <= names_cnt) {
            enter(c, HF_LOOKUP_NAME, 0, entry - 1, entry - 1);
        }
    }
    if (c->rc == HF_OK) {
        /* relaxed: before publish; whoever sees the segment ready sees these. */
        hf_store_rlx_u32(&c->seg->header->hdr_prices_cnt, prices_cnt);
        hf_store_rlx_u32(&c->seg->header->hdr_policy_gen, gen);
    } else {
        c->head->pol_gen = 0; /* plain: before publish. Half a generation is none */
    }
    return c->rc;
}

int hf_policy_compile(const struct hf_policy *policy, const uint8_t digest[32], uint32_t gen,
                      struct hf_segment *seg, struct hf_error *err)
{
    if (policy == NULL || digest == NULL || seg == NULL || gen == 0) {
        return hf_error_set(err, HF_EARG,
                            "hf_policy_compile needs a policy, its digest, a segment and a generation "
                            "from 1");
    }
    struct compile c = {.seg = seg, .err = err, .rc = HF_OK};
    struct counts need = count(policy);
    uint32_t prices_there =
        hf_load_rlx_u32(&seg->header->hdr_prices_cnt); /* relaxed: this process alone writes it */

    /* Names that stand in the segment already are entered, too. */
    need.lookup += hf_load_rlx_u32(&seg->header->hdr_names_cnt); /* relaxed: likewise */
    check_room(&c, &need, place(&need).bytes, prices_there);
    if (c.rc != HF_OK) {
        return c.rc;
    }
    if (!names_start(seg, need.names, &c.names)) {
        return hf_error_set(err, HF_ESYS, "out of memory while compiling the policy: it has %llu names",
                            (unsigned long long)need.names);
    }
    start_generation(&c, policy, digest, gen, &need);
    for (size_t t = 0; t < policy->tenant_cnt && c.rc == HF_OK; t++) {
        put_tenant(&c, (uint32_t)t, &policy->tenants[t]);
    }
    put_prices(&c, policy, prices_there);
    int rc = finish_generation(&c, gen, prices_there + (uint32_t)need.models);
    free(c.names.entries);
    return rc;
}

/* ---- looking up without a client ---------------------------------------------------------------------- */

uint32_t hf_policy_intern(struct hf_segment *seg, const char *text, uint32_t bytes, bool add)
{
    uint32_t gen =
        hf_load_rlx_u32(&seg->header->hdr_policy_gen); /* relaxed: creator or daemon alone writes it */
    const struct hf_shm_policy *policy = hf_lookup_policy(seg, gen);

    if (!hf_name_valid(text, bytes)) {
        return HF_SHM_NONE;
    }
    if (policy != NULL) {
        uint32_t name = hf_lookup_find(seg, policy, HF_LOOKUP_NAME, 0, text, bytes);
        if (name < seg->names_max) { /* a damaged table may name anything */
            return name;
        }
    }
    /* Names of older policies, few and rarely asked for. */
    uint32_t names_cnt =
        hf_load_rlx_u32(&seg->header->hdr_names_cnt); /* relaxed: creator or daemon alone writes it */
    for (uint32_t i = 0; i < names_cnt && i < seg->names_max; i++) {
        if (seg->names[i].name_bytes == bytes && memcmp(seg->names[i].name_text, text, bytes) == 0) {
            return i;
        }
    }
    return add ? name_append(seg, text, bytes) : HF_SHM_NONE;
}

static uint32_t find(const struct hf_segment *seg, const struct hf_shm_policy *policy, uint32_t kind,
                     uint32_t parent, const char *text)
{
    size_t bytes = strnlen(text, HF_NAME_BYTES_MAX + 1);

    return hf_lookup_find(seg, policy, kind, parent, text, (uint32_t)bytes);
}

uint32_t hf_policy_row(const struct hf_segment *seg, uint32_t gen, const char *tenant, const char *team,
                       const char *key)
{
    const struct hf_shm_policy *policy = hf_lookup_policy(seg, gen);

    if (policy == NULL || tenant == NULL || (team == NULL && key != NULL)) {
        return HF_SHM_NONE;
    }
    const struct hf_shm_tenant *found =
        hf_segment_tenant(seg, find(seg, policy, HF_LOOKUP_TENANT, 0, tenant));
    uint32_t row = found == NULL ? HF_SHM_NONE : found->ten_row;
    if (row != HF_SHM_NONE && team != NULL) {
        row = find(seg, policy, HF_LOOKUP_TEAM, row, team);
    }
    if (row != HF_SHM_NONE && key != NULL) {
        row = find(seg, policy, HF_LOOKUP_KEY, row, key);
    }
    return row;
}
