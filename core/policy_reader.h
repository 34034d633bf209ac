/* Reading the elements of a policy's tree: each reader checks one kind of value, notes what is wrong with its
 * line and path, and goes on, so that one load finds everything.
 *
 * A value is a node of the tree, 0 where the field is absent: a reader then does nothing and returns false. */
#ifndef HF_CORE_POLICY_READER_H
#define HF_CORE_POLICY_READER_H

#include "core/policy_yaml.h"

#define HF_POLICY_PATH_BYTES 512

struct hf_policy_reader {
    const struct hf_yaml *yaml;
    struct hf_policy_report *report;
    uint32_t flags; /* enum hf_policy_flag */
    char path[HF_POLICY_PATH_BYTES];
    size_t path_len;
    uint32_t element_cnt;
    uint32_t endless_line; /* of the first model without max_output_tokens; 0: each has one */
    bool stop;             /* too many elements or no memory: nothing more is read */
    bool no_memory;
};

/* Lengthens the path by a field ("tenants", ".id") or an index ("[2]"). Returns its length before, to leave. */
size_t hf_reader_enter_field(struct hf_policy_reader *reader, const char *field);
size_t hf_reader_enter_index(struct hf_policy_reader *reader, size_t index);
void hf_reader_leave(struct hf_policy_reader *reader, size_t path_len);

/* Notes a problem at the line of node, under the current path, or under the path of a field of it. */
void hf_reader_error(struct hf_policy_reader *reader, uint32_t node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void hf_reader_error_of(struct hf_policy_reader *reader, const char *field, uint32_t node, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));
void hf_reader_warn(struct hf_policy_reader *reader, uint32_t node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void hf_reader_warn_of(struct hf_policy_reader *reader, const char *field, uint32_t node, const char *format,
                       ...) __attribute__((format(printf, 4, 5)));

/* A field that a mapping may have. */
struct hf_reader_field {
    const char *name;
    bool required;
};

/* Opens a mapping: values[i] becomes the value of fields[i], or 0. Notes unknown, duplicate and missing
 * fields. False, with all values 0, when the node is no mapping. */
bool hf_reader_mapping(struct hf_policy_reader *reader, uint32_t node, const struct hf_reader_field *fields,
                       size_t field_cnt, uint32_t *values);

/* Opens a list: *item becomes its first entry (walk on with hf_reader_next), *cnt their number, and *array an
 * array of cnt zeroed elements of size bytes (NULL when there are none), which the caller frees; array may be
 * NULL. False, with all of them 0, when the node is no list. */
bool hf_reader_list(struct hf_policy_reader *reader, uint32_t node, size_t size, uint32_t *item, size_t *cnt,
                    void **array);

static inline uint32_t hf_reader_next(const struct hf_policy_reader *reader, uint32_t item)
{
    return reader->yaml->nodes[item].next;
}

/* The readers of single values stand under the path of their field. False, with *out untouched, when the
 * value is absent or wrong. */
bool hf_reader_number(struct hf_policy_reader *reader, const char *field, uint32_t node, uint64_t least,
                      uint64_t *out);
bool hf_reader_name(struct hf_policy_reader *reader, const char *field, uint32_t node, struct hf_name *out);
bool hf_reader_bool(struct hf_policy_reader *reader, const char *field, uint32_t node, bool *out);

/* One of the cnt words that word_of gives for 0, 1, ... */
bool hf_reader_word(struct hf_policy_reader *reader, const char *field, uint32_t node,
                    const char *(*word_of)(unsigned value), unsigned cnt, unsigned *out);

/* The line of a node, for messages that point at it. */
uint32_t hf_reader_line(const struct hf_policy_reader *reader, uint32_t node);

#endif
