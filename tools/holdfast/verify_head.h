/* Heads of chains, kept elsewhere than in the store: lines of NAME NUMBER DIGEST. */
#ifndef HF_TOOLS_HOLDFAST_VERIFY_HEAD_H
#define HF_TOOLS_HOLDFAST_VERIFY_HEAD_H

#include "persist/verify.h"

#include <stdbool.h>
#include <stdio.h>

struct hf_verify_heads {
    struct hf_verify_head *list; /* the caller frees it */
    size_t cnt;
};

/* Reads what --head says: 64 hexadecimal digits, else the path of a file of lines, - for standard input. False: a sentence in why. */
bool hf_verify_heads_read(struct hf_verify_heads *heads, const char *told, char *why, size_t why_bytes);

/* One line. False: it could not be written. */
bool hf_verify_head_print(FILE *to, const char *segment, const struct hf_store_batch *last);

#endif
