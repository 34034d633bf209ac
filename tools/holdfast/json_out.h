/*
 * Writing of one answer of `holdfast run`: JSON on one line, keys in the order in
 * which they are written. There is nothing to check at each call: a failure is
 * kept and told by hf_json_out_line(), and a buffer is reused from line to line.
 *
 *     struct hf_json_out out = {0};
 *     hf_json_out_begin(&out);
 *     hf_json_out_text(&out, "op", "release");
 *     hf_json_out_flag(&out, "ok", true);
 *     rc = hf_json_out_line(&out, stdout);
 *     ...
 *     hf_json_out_free(&out);
 */
#ifndef HF_TOOLS_HOLDFAST_JSON_OUT_H
#define HF_TOOLS_HOLDFAST_JSON_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct hf_json_fault;

/* All fields are private; zero is an empty one. */
struct hf_json_out {
    char *buf;
    size_t used_bytes;
    size_t size_bytes;
    /* Whether the next value of the innermost list or object needs a comma. */
    bool comma;
    /* First failure: 0 or -ENOMEM. */
    int error;
    unsigned depth;
};

/* Starts a line with the object that is the answer. */
void hf_json_out_begin(struct hf_json_out *out);

/* One member each; key NULL: an entry of a list. Keys and texts are UTF-8, what is not becomes
 * U+FFFD. */
void hf_json_out_text(struct hf_json_out *out, const char *key, const char *text); /* NULL: null */
void hf_json_out_text_bytes(struct hf_json_out *out, const char *key, const char *text, size_t text_bytes);
void hf_json_out_amount(struct hf_json_out *out, const char *key, uint64_t amount); /* UINT64_MAX: null */
void hf_json_out_number(struct hf_json_out *out, const char *key, int64_t number);
void hf_json_out_flag(struct hf_json_out *out, const char *key, bool flag);
void hf_json_out_null(struct hf_json_out *out, const char *key);

/* A nested object or list; every one that is opened is closed. */
void hf_json_out_object(struct hf_json_out *out, const char *key);
void hf_json_out_object_end(struct hf_json_out *out);
void hf_json_out_list(struct hf_json_out *out, const char *key);
void hf_json_out_list_end(struct hf_json_out *out);

/*
 * Ends the answer, writes it with a newline and flushes the stream.
 * Returns 0, -ENOMEM when the answer could not be built and -EINVAL when a list or object was
 * left open (nothing is written then), or
 * the negative errno of the write. The line is gone in any case.
 */
int hf_json_out_line(struct hf_json_out *out, FILE *to) __attribute__((warn_unused_result));

/* The whole answer to a line that was refused: {"op":…,"ok":false,"reason":…,"message":…};
 * op NULL is null. To be ended by hf_json_out_line(). */
void hf_json_out_fault(struct hf_json_out *out, const char *op, const struct hf_json_fault *fault);

/* Frees the buffer and leaves an empty one. */
void hf_json_out_free(struct hf_json_out *out);

#endif
