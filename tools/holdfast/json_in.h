/*
 * Strict reading of one line of `holdfast run`: a JSON object becomes typed
 * values, or the first fault in the order that the protocol fixes.
 *
 * The order matters: every `invalid-request` check (JSON, missing or mistyped
 * fields, bad names, fields that do not go together) comes before every
 * `invalid-amount` check (numbers that are no amount, or out of range). So an
 * operation states its fields in a table and its "go together" rules in one
 * function, and hf_json_in_read() runs the phases in order:
 *
 *     enum { R_ID, R_TOKENS, R_TTL, R_CNT };
 *     static const struct hf_json_field fields[R_CNT] = {
 *         [R_ID]     = {.name = "id", .kind = HF_JSON_NAME, .required = true},
 *         [R_TOKENS] = {.name = "tokens", .kind = HF_JSON_AMOUNT},
 *         [R_TTL]    = {.name = "ttl_ms", .kind = HF_JSON_AMOUNT, .min = 1},
 *     };
 *     static const struct hf_json_schema schema = {fields, R_CNT, together};
 *
 *     struct hf_json_line line;
 *     struct hf_json_value v[R_CNT];
 *     struct hf_json_fault fault;
 *     rc = hf_json_in_open(&line, text, text_bytes, &fault);
 *     if (rc == 0)
 *         rc = hf_json_in_read(&line, &schema, v, &fault);
 *     if (rc > 0)
 *         answer line.op (null when NULL), fault.reason, fault.message
 *     ...
 *     hf_json_in_close(&line);
 */
#ifndef HF_TOOLS_HOLDFAST_JSON_IN_H
#define HF_TOOLS_HOLDFAST_JSON_IN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest amount, 2^56 - 1, and the value of an amount that was not given. */
#define HF_JSON_AMOUNT_MAX ((UINT64_C(1) << 56) - 1)
#define HF_UNKNOWN         UINT64_MAX
/* Bytes of a name or id, and of a text whose field states no `max`. */
#define HF_JSON_NAME_BYTES_MAX 63
#define HF_JSON_TEXT_BYTES_MAX 1023

enum hf_json_kind {
    /* A name as core/name.h has it: 1 to 63 bytes without control characters. */
    HF_JSON_NAME,
    /* Text of `min` (0 means 1) to `max` (0: 1023) bytes without U+0000. */
    HF_JSON_TEXT,
    /* Text that is one of `words`. */
    HF_JSON_WORD,
    /* true or false; anything else, numbers too, is invalid-request. */
    HF_JSON_FLAG,
    /* Whole number from `min` to `max` (0: 2^56 - 1). Out of range, a fraction or
     * exponent, text or boolean: invalid-amount. List or object: invalid-request. */
    HF_JSON_AMOUNT,
    /* The same from -max to max; `min` is not used. */
    HF_JSON_SIGNED,
    /* As HF_JSON_AMOUNT, but a whole number below `min` is invalid-request. */
    HF_JSON_COUNT,
    /* Object; other fields name it as `within`. */
    HF_JSON_OBJECT,
};

/* One field of an operation. Its place in the table is the place of its value. */
struct hf_json_field {
    const char *name;
    enum hf_json_kind kind;
    /* Absent or null is invalid-request. A field within an object that is not
     * given is not missed. */
    bool required;
    /* null is a value (usage): a required field may be null, not absent. */
    bool nullable;
    /* Name of the object that holds this field, which stands earlier in the
     * table; NULL: the line itself. */
    const char *within;
    uint64_t min;
    uint64_t max;
    /* HF_JSON_WORD: what is allowed, ended by NULL. */
    const char *const *words;
};

/* What a field had. Texts belong to the line and live until it is closed. */
struct hf_json_value {
    /* A value other than null was given. */
    bool given;
    /* null was given for a nullable field. */
    bool null;
    /* FLAG; false when not given. */
    bool flag;
    /* NAME, TEXT, WORD: ended by NUL, no NUL inside; NULL when not given. */
    const char *text;
    size_t text_bytes;
    /* WORD: index in `words`; -1 when not given. */
    int word;
    /* AMOUNT, COUNT: HF_UNKNOWN when not given. */
    uint64_t amount;
    /* SIGNED: 0 when not given. */
    int64_t number;
    /* Any: borrowed from the line; NULL when not given. */
    const json_t *json;
};

/* Why a line is refused: `reason` is static text, `message` is for people. */
struct hf_json_fault {
    const char *reason;
    char message[256];
};

/* Checks which fields go together, after the form of each is known to be good
 * and before any number is looked at: only `given`, `null`, `text`, `word` and `flag`
 * are filled. Returns 0, or what hf_json_in_refuse() returned. */
typedef int hf_json_together_fn(const struct hf_json_value *values, struct hf_json_fault *fault);

struct hf_json_schema {
    const struct hf_json_field *fields;
    size_t field_cnt;
    /* May be NULL. */
    hf_json_together_fn *together;
};

/* A line that has been read. */
struct hf_json_line {
    json_t *object;
    /* The text of `op` as given; NULL when the line has none. An op that nobody knows is for the
     * caller to refuse, and is answered as null like none. */
    const char *op;
};

/*
 * Parses one line (without its newline; line_bytes may be 0, the text need not
 * end with NUL). Duplicate keys, invalid UTF-8, trailing text, NaN and
 * nesting deeper than 2048 are refused, like everything else that is no JSON
 * object with a text `op`. Whole numbers of any length are read.
 *
 * Returns 0; 1 when refused, with *fault filled and line->op NULL; -ENOMEM.
 * hf_json_in_close() is right after each of them.
 */
int hf_json_in_open(struct hf_json_line *line, const char *text, size_t text_bytes,
                    struct hf_json_fault *fault) __attribute__((warn_unused_result));

/*
 * Reads the schema's fields into values[field_cnt]; fields that the schema does
 * not name are ignored. Runs in order: the form of every field, together(),
 * the range of every number.
 *
 * Returns 0, or 1 when refused, with *fault filled.
 */
int hf_json_in_read(const struct hf_json_line *line, const struct hf_json_schema *schema,
                    struct hf_json_value *values, struct hf_json_fault *fault)
    __attribute__((warn_unused_result));

/* Frees what the line holds; the texts of its values are gone after it. */
void hf_json_in_close(struct hf_json_line *line);

/* Fills *fault; reason must be static ("invalid-request"). Returns 1, so that a
 * check can end with `return hf_json_in_refuse(...)`. */
int hf_json_in_refuse(struct hf_json_fault *fault, const char *reason, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
