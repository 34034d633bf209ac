/* A YAML text as a tree that keeps the line of everything, without YAML's own ideas of types: a scalar is its
 * bytes and whether it was written plain.
 *
 * What could make a text mean something else than a reader sees is refused here: tags, several documents,
 * line breaks that editors do not show, byte order marks, invalid UTF-8, duplicate anchors. An alias stands
 * for what it names. Duplicate fields are the business of whoever reads a mapping. */
#ifndef HF_CORE_POLICY_YAML_H
#define HF_CORE_POLICY_YAML_H

#include "core/policy.h"

enum hf_yaml_kind {
    HF_YAML_SCALAR,
    HF_YAML_SEQUENCE,
    HF_YAML_MAPPING,
    HF_YAML_ALIAS
};

/* Nodes are numbered from 1; 0 is no node. */
struct hf_yaml_node {
    enum hf_yaml_kind kind;
    bool plain;      /* scalar: written without quotes and not as a block */
    uint32_t line;   /* from 1 */
    uint32_t column; /* from 1, in characters */
    uint32_t next;   /* the next one in the same collection, or 0 */
    uint32_t child;  /* collection: its first entry or key, or 0; alias: what it names */
    uint32_t cnt;    /* sequence: entries; mapping: fields */
    size_t text;     /* scalar: where its bytes start in the tree's text */
    size_t text_len; /* scalar */
};

/* Start with an all-zero struct. */
struct hf_yaml {
    struct hf_yaml_node *nodes;
    uint32_t node_cnt;
    uint32_t node_cap;
    char *text;
    size_t text_len;
    size_t text_cap;
    uint32_t root;
};

/* Parses the len bytes; every problem goes into the report. HF_POLICY_LOADED when the tree is whole, even
 * though problems may have been noted; HF_POLICY_REFUSED when it is not. Whatever comes of it, the tree is
 * the caller's: hf_yaml_free. */
enum hf_policy_load_status hf_yaml_parse(struct hf_yaml *yaml, const char *bytes, size_t len,
                                         struct hf_policy_report *report);

void hf_yaml_free(struct hf_yaml *yaml);

/* The node itself, or what it names when it is an alias. node != 0. */
const struct hf_yaml_node *hf_yaml_node(const struct hf_yaml *yaml, uint32_t node);

/* The bytes of a scalar: node->text_len of them, not NUL-terminated. */
static inline const char *hf_yaml_text(const struct hf_yaml *yaml, const struct hf_yaml_node *node)
{
    return yaml->text + node->text;
}

/* The value of the first field of that name, or 0: none, or node is 0 or no mapping. */
uint32_t hf_yaml_field(const struct hf_yaml *yaml, uint32_t node, const char *name);

#endif
