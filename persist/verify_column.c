/* Verification: which column of a changed row was it, and what was in it? A digest cannot be undone, but much of what can stand in a
 * column is known: its words, the values of the columns beside it and what they add up to. Whatever makes the digest right again
 * is what was there. */
#include "persist/verify_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS_MAX 64
#define SEQS_MAX    4096

static const char *const words[] = {
    "epoch",    "policy",    "reservation", "extension",       "settlement", "release",
    "expiry",   "retention", "dispute",     "late_settlement", "resolution", "credit",
    "allow",    "degrade",   "model",       "amounts",         "success",    "failure",
    "provider", "derived",   "unknown",     "retain",          "estimate",   "retain_dispatched",
    "record",   "fail",      "cap",         "minute",          "hour",       "day",
    "month",    "lifetime",
};

bool hf_verify_copy(struct hf_verify_copy *copy, const struct hf_column *fields)
{
    size_t cnt = hf_receipt_fields();
    size_t bytes = cnt * sizeof(*fields);
    char *at;

    for (size_t i = 0; i < cnt; i++) {
        bytes += fields[i].len + 1;
    }
    copy->fields = malloc(bytes);
    if (copy->fields == NULL) {
        return false;
    }
    memcpy(copy->fields, fields, cnt * sizeof(*fields));
    at = (char *)(copy->fields + cnt);
    for (size_t i = 0; i < cnt; i++) {
        if (!fields[i].null && fields[i].len > 0) {
            memcpy(at, fields[i].bytes, fields[i].len);
        }
        at[fields[i].len] = '\0';
        copy->fields[i].bytes = at;
        at += fields[i].len + 1;
    }
    return true;
}

void hf_verify_copy_free(struct hf_verify_copy *copy)
{
    free(copy->fields);
    copy->fields = NULL;
}

/* A search for the value of one column. */
struct search {
    struct hf_verify *v;
    struct hf_column *fields; /* tried values are put in here, and taken out again */
    const uint8_t *wanted;
    char *was;
    size_t was_bytes;
};

static bool matches(struct search *s)
{
    uint8_t digest[HF_DIGEST_BYTES];
    const char *text;
    size_t len;

    return hf_canonical_row(s->v->canonical, s->fields, &text, &len) &&
           hf_digest_bytes(s->v->store->digest, text, len, digest) &&
           memcmp(digest, s->wanted, HF_DIGEST_BYTES) == 0;
}

/* Tries one value in place of column i. */
static bool try_value(struct search *s, size_t i, const struct hf_column *value)
{
    struct hf_column now = s->fields[i];
    bool found;

    s->fields[i] = *value;
    found = matches(s);
    s->fields[i] = now;
    return found;
}

static bool try_null(struct search *s, size_t i)
{
    struct hf_column value = {.null = true};

    snprintf(s->was, s->was_bytes, "null");
    return !s->fields[i].null && try_value(s, i, &value);
}

static bool try_number(struct search *s, size_t i, int64_t number)
{
    struct hf_column value = {.integer = number};

    if (!s->fields[i].null && s->fields[i].integer == number) {
        return false;
    }
    snprintf(s->was, s->was_bytes, "%" PRId64, number);
    return try_value(s, i, &value);
}

/* A whole pass over the sums and differences is tried for columns of amounts only; 64 numbers make 8,000 of them. */
static bool try_numbers(struct search *s, size_t i)
{
    int64_t numbers[NUMBERS_MAX];
    size_t cnt = 0;

    numbers[cnt++] = 0;
    for (size_t f = 1; f < hf_receipt_fields() && cnt < NUMBERS_MAX; f++) {
        enum hf_field_type type = hf_receipt_field(f)->type;

        if ((type == HF_FIELD_NUMBER || type == HF_FIELD_SIGNED) && !s->fields[f].null) {
            numbers[cnt++] = s->fields[f].integer;
        }
    }
    if (try_number(s, i, 1) || try_number(s, i, -1)) {
        return true;
    }
    for (size_t a = 0; a < cnt; a++) {
        for (size_t b = 0; b < cnt; b++) {
            int64_t sum;

            if ((!__builtin_add_overflow(numbers[a], numbers[b], &sum) && try_number(s, i, sum)) ||
                (!__builtin_sub_overflow(numbers[a], numbers[b], &sum) && try_number(s, i, sum))) {
                return true;
            }
        }
    }
    return false;
}

/* The receipts of one batch are neighbours: the seq that a row had is one of theirs. */
static bool try_seqs(struct search *s, size_t i)
{
    const struct hf_verify_batch *batch = s->v->open.batch;

    for (int64_t seq = batch->from; seq < batch->until && seq - batch->from < SEQS_MAX; seq++) {
        if (try_number(s, i, seq)) {
            return true;
        }
    }
    return false;
}

static bool try_flags(struct search *s, size_t i)
{
    for (int64_t flag = 0; flag < 2; flag++) {
        struct hf_column value = {.integer = flag};

        snprintf(s->was, s->was_bytes, "%s", flag != 0 ? "true" : "false");
        if (try_value(s, i, &value)) {
            return true;
        }
    }
    return false;
}

static bool try_text(struct search *s, size_t i, const char *bytes, size_t len)
{
    struct hf_column value = {.bytes = bytes, .len = len};

    snprintf(s->was, s->was_bytes, "'%.*s'", (int)(len < 100 ? len : 100), bytes);
    return try_value(s, i, &value);
}

static bool try_texts(struct search *s, size_t i)
{
    for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++) {
        if (try_text(s, i, words[w], strlen(words[w]))) {
            return true;
        }
    }
    /* Of the copies at hand, this row's among them. */
    for (size_t c = 0; c < s->v->open.copies_cnt; c++) {
        const struct hf_column *fields = s->v->open.copies[c].fields;

        for (size_t f = 0; fields != NULL && f < hf_receipt_fields(); f++) {
            if (hf_receipt_field(f)->type >= HF_FIELD_WORD && !fields[f].null && fields[f].len > 0 &&
                try_text(s, i, fields[f].bytes, fields[f].len)) {
                return true;
            }
        }
    }
    return try_text(s, i, "", 0);
}

static bool try_column(struct search *s, size_t i)
{
    if (try_null(s, i)) {
        return true;
    }
    switch (hf_receipt_field(i)->type) {
    case HF_FIELD_NUMBER:
    case HF_FIELD_SIGNED:
        return (i == s->v->places.seq && try_seqs(s, i)) || try_numbers(s, i);
    case HF_FIELD_FLAG:
    case HF_FIELD_TRI:
        return try_flags(s, i);
    case HF_FIELD_DIGEST:
        return false;
    default:
        return try_texts(s, i);
    }
}

/* Is it a receipt of another segment of this store? */
static bool try_segments(struct search *s)
{
    bool found = false;

    for (size_t i = 0; i < s->v->names_cnt && !found; i++) {
        const struct hf_verify_name *name = &s->v->names[i];

        if (name != s->v->segment && hf_canonical_segment(s->v->canonical, name->bytes, name->len)) {
            found = matches(s);
            snprintf(s->was, s->was_bytes, "that of segment '%s'", name->bytes);
        }
    }
    return hf_canonical_segment(s->v->canonical, s->v->segment->bytes, s->v->segment->len) && found;
}

const char *hf_verify_column(struct hf_verify *v, const struct hf_verify_copy *copy,
                             const uint8_t wanted[HF_DIGEST_BYTES], char *was, size_t was_bytes)
{
    struct search s = {.v = v, .fields = copy->fields, .wanted = wanted, .was = was, .was_bytes = was_bytes};

    if (v->searches_left == 0) {
        return NULL;
    }
    v->searches_left--;
    if (try_segments(&s)) {
        return "segment_id";
    }
    for (size_t i = 0; i + 1 < hf_receipt_fields(); i++) {
        if (try_column(&s, i)) {
            return hf_receipt_field(i)->name;
        }
    }
    return NULL;
}
