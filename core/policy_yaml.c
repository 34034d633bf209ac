#include "core/policy_yaml.h"

#include "core/policy_report.h"

#include <stdlib.h>
#include <string.h>

#include <yaml.h>

struct frame {
    uint32_t node;
    uint32_t last; /* its last entry so far, or 0 */
};

struct anchor {
    char *name;
    uint64_t hash; /* aliases may be many, and are looked up one after another */
    uint32_t node;
};

struct build {
    struct hf_yaml *yaml;
    struct hf_policy_report *report;
    uint32_t line_cnt;
    struct frame frames[HF_POLICY_DEPTH_MAX];
    size_t depth;
    struct anchor anchors[HF_POLICY_ANCHORS_MAX];
    size_t anchor_cnt;
    bool no_memory;
    bool stop; /* nothing sensible can follow */
    bool whole;
};

/* For libyaml the end of a text is one line further than for people. */
static uint32_t line_of(const struct build *build, const yaml_mark_t *mark)
{
    return mark->line < build->line_cnt ? (uint32_t)mark->line + 1 : build->line_cnt;
}

static void problem(struct build *build, const yaml_mark_t *mark, const char *message)
{
    hf_policy_report_add(build->report, HF_POLICY_ERROR, line_of(build, mark), (uint32_t)mark->column + 1, "",
                         "%s", message);
}

/* ---- the tree ------------------------------------------------------------------------------------------ */

static uint32_t new_node(struct build *build, enum hf_yaml_kind kind, const yaml_mark_t *mark)
{
    struct hf_yaml *yaml = build->yaml;

    if (yaml->node_cnt == 2 * HF_POLICY_ELEMENTS_MAX) {
        problem(build, mark, "more values than a policy may have; split it");
        build->stop = true;
        return 0;
    }
    if (yaml->node_cnt + 1 >= yaml->node_cap) {
        uint32_t cap = yaml->node_cap == 0 ? 256 : yaml->node_cap * 2;
        struct hf_yaml_node *nodes = realloc(yaml->nodes, cap * sizeof(*nodes));

        if (nodes == NULL) {
            build->no_memory = true;
            return 0;
        }
        memset(nodes, 0, sizeof(*nodes)); /* 0 is no node, of line 0 */
        yaml->nodes = nodes;
        yaml->node_cap = cap;
    }
    yaml->node_cnt++;
    yaml->nodes[yaml->node_cnt] = (struct hf_yaml_node){
        .kind = kind, .line = line_of(build, mark), .column = (uint32_t)mark->column + 1};
    return yaml->node_cnt;
}

/* Makes the node the next entry of the collection being read, or the root. */
static void link_node(struct build *build, uint32_t node)
{
    struct hf_yaml *yaml = build->yaml;
    struct frame *frame;

    if (build->depth == 0) {
        yaml->root = node;
        return;
    }
    frame = &build->frames[build->depth - 1];
    if (frame->last == 0) {
        yaml->nodes[frame->node].child = node;
    } else {
        yaml->nodes[frame->last].next = node;
    }
    frame->last = node;
    yaml->nodes[frame->node].cnt++;
}

static bool append_text(struct build *build, struct hf_yaml_node *node, const yaml_char_t *bytes, size_t len)
{
    struct hf_yaml *yaml = build->yaml;

    if (yaml->text == NULL || len > yaml->text_cap - yaml->text_len) {
        size_t cap = yaml->text_cap * 2 + len + 4096;
        char *text = realloc(yaml->text, cap);

        if (text == NULL) {
            build->no_memory = true;
            return false;
        }
        yaml->text = text;
        yaml->text_cap = cap;
    }
    memcpy(yaml->text + yaml->text_len, bytes, len);
    node->text = yaml->text_len;
    node->text_len = len;
    yaml->text_len += len;
    return true;
}

/* ---- anchors, aliases, tags ---------------------------------------------------------------------------- */

static struct anchor *find_anchor(struct build *build, const yaml_char_t *name)
{
    uint64_t hash = hf_name_hash((const char *)name, strlen((const char *)name), 0);

    for (size_t i = 0; i < build->anchor_cnt; i++) {
        if (build->anchors[i].hash == hash && strcmp(build->anchors[i].name, (const char *)name) == 0) {
            return &build->anchors[i];
        }
    }
    return NULL;
}

static void note_anchor(struct build *build, const yaml_char_t *name, const yaml_mark_t *mark, uint32_t node)
{
    struct anchor *anchor;

    if (name == NULL || node == 0) {
        return;
    }
    if (find_anchor(build, name) != NULL) {
        problem(build, mark,
                "this anchor was set before, so what its aliases stand for is unclear; name it "
                "differently");
        return;
    }
    if (build->anchor_cnt == HF_POLICY_ANCHORS_MAX) {
        problem(build, mark, "there are more than 256 anchors; write the elements out");
        build->stop = true;
        return;
    }
    anchor = &build->anchors[build->anchor_cnt];
    anchor->name = strdup((const char *)name);
    if (anchor->name == NULL) {
        build->no_memory = true;
        return;
    }
    anchor->hash = hf_name_hash(anchor->name, strlen(anchor->name), 0);
    anchor->node = node;
    build->anchor_cnt++;
}

static void refuse_tag(struct build *build, const yaml_char_t *tag, const yaml_mark_t *mark)
{
    if (tag != NULL) {
        problem(build, mark,
                "tags such as !!str are not read here, since they change what a value is; leave it out");
    }
}

static void add_alias(struct build *build, const yaml_event_t *event)
{
    const struct anchor *anchor = find_anchor(build, event->data.alias.anchor);
    uint32_t node;

    if (anchor == NULL) {
        problem(build, &event->start_mark, "this alias stands for nothing: no anchor before it has its name");
        build->stop = true;
        return;
    }
    for (size_t i = 0; i < build->depth; i++) {
        if (build->frames[i].node == anchor->node) {
            problem(build, &event->start_mark,
                    "this alias stands for an element that contains it; write it out");
            build->stop = true;
            return;
        }
    }
    node = new_node(build, HF_YAML_ALIAS, &event->start_mark);
    if (node != 0) {
        build->yaml->nodes[node].child = anchor->node;
        link_node(build, node);
    }
}

/* ---- events -------------------------------------------------------------------------------------------- */

static void add_scalar(struct build *build, const yaml_event_t *event)
{
    uint32_t node = new_node(build, HF_YAML_SCALAR, &event->start_mark);

    if (node == 0 ||
        !append_text(build, &build->yaml->nodes[node], event->data.scalar.value, event->data.scalar.length)) {
        return;
    }
    build->yaml->nodes[node].plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    refuse_tag(build, event->data.scalar.tag, &event->start_mark);
    note_anchor(build, event->data.scalar.anchor, &event->start_mark, node);
    link_node(build, node);
}

static void open_collection(struct build *build, const yaml_event_t *event, enum hf_yaml_kind kind)
{
    uint32_t node;

    if (build->depth == HF_POLICY_DEPTH_MAX) {
        problem(build, &event->start_mark, "nests deeper than any element of a policy");
        build->stop = true;
        return;
    }
    node = new_node(build, kind, &event->start_mark);
    if (node == 0) {
        return;
    }
    if (kind == HF_YAML_SEQUENCE) {
        refuse_tag(build, event->data.sequence_start.tag, &event->start_mark);
        note_anchor(build, event->data.sequence_start.anchor, &event->start_mark, node);
    } else {
        refuse_tag(build, event->data.mapping_start.tag, &event->start_mark);
        note_anchor(build, event->data.mapping_start.anchor, &event->start_mark, node);
    }
    link_node(build, node);
    build->frames[build->depth++] = (struct frame){.node = node};
}

static void close_collection(struct build *build)
{
    struct hf_yaml_node *node = &build->yaml->nodes[build->frames[--build->depth].node];

    if (node->kind == HF_YAML_MAPPING) {
        node->cnt /= 2; /* keys and values were counted */
    }
}

static void add_event(struct build *build, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (build->yaml->root != 0) {
            problem(build, &event->start_mark, "a second document starts here; a policy is one document");
            build->stop = true;
        }
        break;
    case YAML_SCALAR_EVENT:
        add_scalar(build, event);
        break;
    case YAML_SEQUENCE_START_EVENT:
        open_collection(build, event, HF_YAML_SEQUENCE);
        break;
    case YAML_MAPPING_START_EVENT:
        open_collection(build, event, HF_YAML_MAPPING);
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        close_collection(build);
        break;
    case YAML_ALIAS_EVENT:
        add_alias(build, event);
        break;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
    default:
        break;
    }
}

static void note_syntax_error(struct build *build, const yaml_parser_t *parser)
{
    const char *what = parser->problem != NULL ? parser->problem : "it cannot be read";
    char where[32] = "";
    char message[256];

    if (parser->error == YAML_MEMORY_ERROR) {
        build->no_memory = true;
        return;
    }
    if (strcmp(what, "found invalid Unicode character escape code") == 0) {
        /* JSON writers that keep to ASCII make pairs of \uD800-DFFF of such characters. */
        problem(build, &parser->problem_mark,
                "this \\u escape is half of a character for YAML; write the character itself");
        return;
    }
    if (parser->context != NULL && parser->context_mark.line != parser->problem_mark.line) {
        snprintf(where, sizeof(where), " that starts on line %zu", parser->context_mark.line + 1);
    }
    snprintf(message, sizeof(message), "is not YAML: %s%s%s%s", what, parser->context != NULL ? " " : "",
             parser->context != NULL ? parser->context : "", where);
    problem(build, &parser->problem_mark, message);
}

static void build_tree(struct build *build, const char *bytes, size_t len)
{
    yaml_parser_t parser;
    yaml_event_t event;
    bool end = false;

    if (!yaml_parser_initialize(&parser)) {
        build->no_memory = true;
        return;
    }
    /* Told, not guessed: else the first bytes could make it UTF-16. */
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)bytes, len);
    while (!end && !build->stop && !build->no_memory) {
        if (!yaml_parser_parse(&parser, &event)) {
            note_syntax_error(build, &parser);
            break;
        }
        add_event(build, &event);
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    build->whole = end && build->yaml->root != 0;
    if (end && !build->whole) {
        hf_policy_report_add(build->report, HF_POLICY_ERROR, 1, 1, "",
                             "holds no policy; `version`, `currency`, `prices` and `tenants` are required");
    }
}

/* ---- the text as such ---------------------------------------------------------------------------------- */

/* What is wrong with a character that is valid UTF-8, or NULL. next is the byte after it, or -1. */
static const char *refuse_character(uint32_t code_point, int next)
{
    if ((code_point == '\r' && next != '\n') || code_point == 0x85 || code_point == 0x2028 ||
        code_point == 0x2029) {
        return "breaks the line for YAML but not for every reader; leave it out, or write it as an escape";
    }
    if (hf_utf8_control(code_point) && code_point != '\t' && code_point != '\n' && code_point != '\r') {
        return "is a control character; leave it out";
    }
    if (code_point == 0xFFFE || code_point == 0xFFFF) {
        return "is none that YAML can hold; leave it out, or write it as an escape";
    }
    return NULL;
}

/* Notes each character that a text must not have, and returns the number of lines. Character by character, since
 * libyaml knows only offsets of such faults, takes some of them for line breaks, and lets others pass. */
static uint32_t check_text(const char *bytes, size_t len, struct hf_policy_report *report)
{
    uint32_t line = 1;
    uint32_t column = 1;
    size_t i = 0;

    if (len >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0) {
        hf_policy_report_add(report, HF_POLICY_ERROR, 1, 1, "",
                             "starts with a byte order mark; save the file as UTF-8 without it");
    }
    while (i < len) {
        uint32_t code_point = 0;
        size_t step = hf_utf8_decode(bytes + i, len - i, &code_point);
        const char *fault;

        if (step == 0) {
            hf_policy_report_add(report, HF_POLICY_ERROR, line, column, "",
                                 "the byte 0x%02X is not UTF-8; save the file as UTF-8",
                                 (unsigned char)bytes[i]);
            step = 1;
        } else {
            fault = refuse_character(code_point, i + step < len ? bytes[i + step] : -1);
            if (fault != NULL) {
                hf_policy_report_add(report, HF_POLICY_ERROR, line, column, "", "the character U+%04X %s",
                                     code_point, fault);
            }
        }
        i += step;
        column++;
        if (code_point == '\n') {
            line++;
            column = 1;
        }
    }
    return column == 1 && line > 1 ? line - 1 : line;
}

enum hf_policy_load_status hf_yaml_parse(struct hf_yaml *yaml, const char *bytes, size_t len,
                                         struct hf_policy_report *report)
{
    struct build *build;
    enum hf_policy_load_status status;
    uint32_t line_cnt = check_text(bytes, len, report);

    if (report->error_cnt > 0) {
        return HF_POLICY_REFUSED;
    }
    build = calloc(1, sizeof(*build));
    if (build == NULL) {
        return HF_POLICY_NO_MEMORY;
    }
    build->yaml = yaml;
    build->report = report;
    build->line_cnt = line_cnt;
    build_tree(build, bytes, len);
    for (size_t i = 0; i < build->anchor_cnt; i++) {
        free(build->anchors[i].name);
    }
    if (build->no_memory) {
        status = HF_POLICY_NO_MEMORY;
    } else {
        status = build->whole ? HF_POLICY_LOADED : HF_POLICY_REFUSED;
    }
    free(build);
    return status;
}

void hf_yaml_free(struct hf_yaml *yaml)
{
    free(yaml->nodes);
    free(yaml->text);
    memset(yaml, 0, sizeof(*yaml));
}

const struct hf_yaml_node *hf_yaml_node(const struct hf_yaml *yaml, uint32_t node)
{
    const struct hf_yaml_node *found = &yaml->nodes[node];

    /* An anchor is never set on an alias, so one step is enough. */
    return found->kind == HF_YAML_ALIAS ? &yaml->nodes[found->child] : found;
}

uint32_t hf_yaml_field(const struct hf_yaml *yaml, uint32_t node, const char *name)
{
    const struct hf_yaml_node *mapping;
    size_t len = strlen(name);

    if (node == 0 || (mapping = hf_yaml_node(yaml, node))->kind != HF_YAML_MAPPING) {
        return 0;
    }
    for (uint32_t key = mapping->child; key != 0; key = yaml->nodes[yaml->nodes[key].next].next) {
        const struct hf_yaml_node *found = &yaml->nodes[key];

        if (found->kind == HF_YAML_SCALAR && found->text_len == len &&
            memcmp(hf_yaml_text(yaml, found), name, len) == 0) {
            return found->next;
        }
    }
    return 0;
}
