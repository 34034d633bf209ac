#include "core/policy_check.h"

#include "core/policy_report.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- ids ----------------------------------------------------------------------------------------------- */

struct listed_id {
    const struct hf_name *name;
    size_t index;
    uint32_t node;
};

static int compare_ids(const void *a, const void *b)
{
    const struct listed_id *x = a;
    const struct listed_id *y = b;
    size_t len = x->name->len < y->name->len ? x->name->len : y->name->len;
    int order = memcmp(x->name->bytes, y->name->bytes, len);

    if (order != 0) {
        return order;
    }
    if (x->name->len != y->name->len) {
        return x->name->len < y->name->len ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

static void note_duplicate_id(struct hf_policy_reader *reader, const struct listed_id *first,
                              const struct listed_id *again)
{
    size_t before = hf_reader_enter_index(reader, again->index);
    char quoted[HF_POLICY_QUOTE_BYTES];

    hf_reader_error_of(reader, "id", again->node, "%s is the id of the one on line %u too; give each its own",
                       hf_policy_quote(quoted, again->name->bytes, again->name->len),
                       hf_reader_line(reader, first->node));
    hf_reader_leave(reader, before);
}

void hf_policy_check_ids(struct hf_policy_reader *reader, uint32_t node, const void *elements, size_t cnt,
                         size_t size)
{
    struct listed_id *ids;
    size_t id_cnt = 0;
    uint32_t item;

    if (cnt < 2 || reader->stop) {
        return;
    }
    ids = calloc(cnt, sizeof(*ids));
    if (ids == NULL) {
        reader->no_memory = true;
        reader->stop = true;
        return;
    }
    item = hf_yaml_node(reader->yaml, node)->child;
    for (size_t i = 0; i < cnt; i++, item = hf_reader_next(reader, item)) {
        const struct hf_name *name = (const struct hf_name *)((const char *)elements + i * size);

        if (name->len > 0) {
            ids[id_cnt++] =
                (struct listed_id){.name = name, .index = i, .node = hf_yaml_field(reader->yaml, item, "id")};
        }
    }
    qsort(ids, id_cnt, sizeof(*ids), compare_ids);
    for (size_t i = 1, first = 0; i < id_cnt; i++) {
        if (hf_name_equal(ids[first].name, ids[i].name)) {
            note_duplicate_id(reader, &ids[first], &ids[i]);
        } else {
            first = i;
        }
    }
    free(ids);
}

/* ---- where a limit stands in the file ------------------------------------------------------------------ */

/* The value of that limit of a layer, and the index of its entry in `limits`. 0 where there is none. */
static uint32_t limit_node(const struct hf_policy_reader *reader, uint32_t layer, enum hf_window window,
                           enum hf_dimension dimension, size_t *index)
{
    uint32_t limits = hf_yaml_field(reader->yaml, layer, "limits");
    uint32_t item;

    *index = 0;
    if (limits == 0 || hf_yaml_node(reader->yaml, limits)->kind != HF_YAML_SEQUENCE) {
        return 0;
    }
    for (item = hf_yaml_node(reader->yaml, limits)->child; item != 0; item = hf_reader_next(reader, item)) {
        uint32_t told = hf_yaml_field(reader->yaml, item, "window");
        const struct hf_yaml_node *word = told != 0 ? hf_yaml_node(reader->yaml, told) : NULL;
        enum hf_window found;

        if (word != NULL && word->kind == HF_YAML_SCALAR &&
            hf_window_parse(hf_yaml_text(reader->yaml, word), word->text_len, &found) && found == window) {
            return hf_yaml_field(reader->yaml, item, hf_dimension_name(dimension));
        }
        (*index)++;
    }
    return 0;
}

/* ---- shares -------------------------------------------------------------------------------------------- */

static void note_shares(struct hf_policy_reader *reader, uint32_t tenant_node,
                        const struct hf_policy_tenant *tenant, enum hf_window window,
                        enum hf_dimension dimension, unsigned __int128 sum)
{
    uint64_t total = tenant->limits.limits[window][dimension];
    const char *dimension_name = hf_dimension_name(dimension);
    size_t index;
    uint32_t node = limit_node(reader, tenant_node, window, dimension, &index);
    size_t before = hf_reader_enter_field(reader, "limits");
    char sum_text[40] = "more than 72057594037927935";

    if (sum <= HF_AMOUNT_MAX) {
        snprintf(sum_text, sizeof(sum_text), "%" PRIu64, (uint64_t)sum);
    }
    hf_reader_enter_index(reader, index);
    if (tenant->allow_overcommit) {
        hf_reader_warn_of(reader, dimension_name, node,
                          "the teams' shares of the %s add up to %s, the tenant's total is %" PRIu64
                          ": a team may be refused before its share is used",
                          hf_window_name(window), sum_text, total);
    } else {
        hf_reader_error_of(reader, dimension_name, node,
                           "the teams' shares of the %s add up to %s, the tenant's total is %" PRIu64
                           "; lower the shares, raise the total, or set allow_overcommit: true",
                           hf_window_name(window), sum_text, total);
    }
    hf_reader_leave(reader, before);
}

void hf_policy_check_shares(struct hf_policy_reader *reader, uint32_t node,
                            const struct hf_policy_tenant *tenant)
{
    for (unsigned w = 0; w < HF_WINDOW_CNT && !reader->stop; w++) {
        for (unsigned d = 0; d < HF_DIM_CNT; d++) {
            /* 2^22 shares below 2^56: far from the end of 128 bits. */
            unsigned __int128 sum = 0;

            for (size_t i = 0; i < tenant->team_cnt; i++) {
                uint64_t share = tenant->teams[i].limits.limits[w][d];

                sum += share != HF_UNKNOWN ? share : 0;
            }
            if (tenant->limits.limits[w][d] != HF_UNKNOWN && sum > tenant->limits.limits[w][d]) {
                note_shares(reader, node, tenant, (enum hf_window)w, (enum hf_dimension)d, sum);
            }
        }
    }
}

/* ---- caps ---------------------------------------------------------------------------------------------- */

/* True when the layer limits the dimension; then need says where. */
static bool layer_needs(const struct hf_policy_reader *reader, const char *layer,
                        const struct hf_policy_limits *limits, uint32_t node, enum hf_dimension dimension,
                        struct hf_policy_need *need)
{
    for (unsigned w = 0; w < HF_WINDOW_CNT; w++) {
        if (limits->limits[w][dimension] != HF_UNKNOWN) {
            size_t index;

            need->layer = layer;
            need->window = (enum hf_window)w;
            need->line = hf_reader_line(reader, limit_node(reader, node, need->window, dimension, &index));
            return true;
        }
    }
    return false;
}

void hf_policy_needs_of_tenant(const struct hf_policy_reader *reader, uint32_t node,
                               const struct hf_policy_tenant *tenant, struct hf_policy_need needs[HF_DIM_CNT])
{
    for (unsigned d = 0; d < HF_DIM_CNT; d++) {
        needs[d].layer = NULL;
        layer_needs(reader, "tenant", &tenant->limits, node, (enum hf_dimension)d, &needs[d]);
    }
}

static struct hf_policy_need need_of_team(const struct hf_policy_reader *reader, uint32_t node,
                                          const struct hf_policy_team *team, enum hf_dimension dimension)
{
    struct hf_policy_need need = {.layer = NULL};
    uint32_t item;

    if (layer_needs(reader, "team", &team->limits, node, dimension, &need) || team->key_cnt == 0) {
        return need;
    }
    item = hf_yaml_node(reader->yaml, hf_yaml_field(reader->yaml, node, "keys"))->child;
    for (size_t i = 0; i < team->key_cnt; i++, item = hf_reader_next(reader, item)) {
        if (layer_needs(reader, "key", &team->keys[i].limits, item, dimension, &need)) {
            break;
        }
    }
    return need;
}

static void check_cap_tokens(struct hf_policy_reader *reader, uint32_t node,
                             const struct hf_policy_capability *capability, const struct hf_policy_need *need)
{
    if (capability->basis == HF_BASIS_CAP) {
        hf_reader_error_of(
            reader, "cap_tokens", node,
            "is missing: reserve_basis is cap, and the %s's limit of a %s on line %u counts tokens; "
            "add it",
            need->layer, hf_window_name(need->window), need->line);
    } else if (reader->endless_line != 0) {
        hf_reader_error_of(
            reader, "cap_tokens", node,
            "is missing: the %s's limit of a %s on line %u counts tokens, and the model on line %u has "
            "no max_output_tokens; add one of them",
            need->layer, hf_window_name(need->window), need->line, reader->endless_line);
    }
}

void hf_policy_check_caps(struct hf_policy_reader *reader, uint32_t node, const struct hf_policy_team *team,
                          const struct hf_policy_need of_tenant[HF_DIM_CNT])
{
    struct hf_policy_need cost = of_tenant[HF_DIM_COST];
    struct hf_policy_need tokens = of_tenant[HF_DIM_TOKENS];
    size_t before;
    uint32_t item;

    if (reader->stop || team->capability_cnt == 0) {
        return;
    }
    if (cost.layer == NULL) {
        cost = need_of_team(reader, node, team, HF_DIM_COST);
    }
    if (tokens.layer == NULL) {
        tokens = need_of_team(reader, node, team, HF_DIM_TOKENS);
    }
    item = hf_yaml_node(reader->yaml, hf_yaml_field(reader->yaml, node, "capabilities"))->child;
    before = hf_reader_enter_field(reader, "capabilities");
    for (size_t i = 0; i < team->capability_cnt; i++, item = hf_reader_next(reader, item)) {
        size_t list = hf_reader_enter_index(reader, i);

        if (hf_yaml_node(reader->yaml, item)->kind == HF_YAML_MAPPING) {
            if (cost.layer != NULL && hf_yaml_field(reader->yaml, item, "cap_micros") == 0) {
                hf_reader_error_of(reader, "cap_micros", item,
                                   "is missing: the %s's limit of a %s on line %u counts cost_micros; add it",
                                   cost.layer, hf_window_name(cost.window), cost.line);
            }
            if (tokens.layer != NULL && hf_yaml_field(reader->yaml, item, "cap_tokens") == 0) {
                check_cap_tokens(reader, item, &team->capabilities[i], &tokens);
            }
        }
        hf_reader_leave(reader, list);
    }
    hf_reader_leave(reader, before);
}

/* ---- on_limit ------------------------------------------------------------------------------------------ */

void hf_policy_check_on_limits(struct hf_policy_reader *reader, uint32_t node,
                               const struct hf_policy_tenant *tenant)
{
    char quoted[2][HF_POLICY_QUOTE_BYTES];
    uint32_t item;
    size_t before;

    if (tenant->team_cnt < 2 || reader->stop) {
        return;
    }
    item = hf_yaml_node(reader->yaml, hf_yaml_field(reader->yaml, node, "teams"))->child;
    for (size_t i = 0; i < tenant->team_cnt; i++, item = hf_reader_next(reader, item)) {
        const struct hf_policy_team *team = &tenant->teams[i];

        if (team->on_limit.kind != tenant->teams[0].on_limit.kind) {
            uint32_t told = hf_yaml_field(reader->yaml, item, "on_limit");

            before = hf_reader_enter_field(reader, "teams");
            hf_reader_enter_index(reader, i);
            hf_reader_warn_of(reader, "on_limit", told != 0 ? told : item,
                              "the teams of this tenant differ in on_limit: %s has %s, %s has %s",
                              hf_policy_quote(quoted[0], tenant->teams[0].id.bytes, tenant->teams[0].id.len),
                              hf_on_limit_name(tenant->teams[0].on_limit.kind),
                              hf_policy_quote(quoted[1], team->id.bytes, team->id.len),
                              hf_on_limit_name(team->on_limit.kind));
            hf_reader_leave(reader, before);
            return;
        }
    }
}
