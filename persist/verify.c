/* Verification: a store, its segments, their pages of batches and rows. */
#include "persist/verify_impl.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REMEMBERED ((size_t)1 << 19) /* reservations: 40 MB */

const char *hf_verify_what_name(enum hf_verify_what what)
{
    static const char *const names[] = {"changed", "removed",   "added",  "batch", "orphaned", "uneven",
                                        "renamed", "truncated", "rollup", "prune", "schema"};

    return (unsigned)what < sizeof(names) / sizeof(names[0]) ? names[what] : "?";
}

void hf_verify_find(struct hf_verify *v, enum hf_verify_what what, int64_t batch, int64_t seq,
                    int64_t last_seq, const char *column, const char *format, ...)
{
    char text[512];
    struct hf_verify_finding finding = {
        .what = what,
        .segment = v->segment == NULL ? NULL : v->segment->bytes,
        .batch = batch < 0 ? 0 : (uint64_t)batch,
        .seq = seq < 0 ? 0 : (uint64_t)seq,
        .last_seq = last_seq < 0 ? 0 : (uint64_t)last_seq,
        .column = column,
        .text = text,
    };
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    v->report->findings_cnt++;
    v->options->finding(v->options->ctx, &finding);
}

static size_t place_of(const char *name)
{
    for (size_t i = 0; i < hf_receipt_fields(); i++) {
        if (strcmp(hf_receipt_field(i)->name, name) == 0) {
            return i;
        }
    }
    return 0;
}

static void look_up_places(struct hf_verify_places *places)
{
    *places = (struct hf_verify_places){
        .kind = place_of("kind"),
        .epoch = place_of("epoch"),
        .seq = place_of("seq"),
        .reservation_seq = place_of("reservation_seq"),
        .held = place_of("held_invocations"),
        .id = place_of("id"),
        .tenant = place_of("tenant"),
        .team = place_of("team"),
        .key = place_of("key"),
        .conflict = place_of("conflict"),
        .reservation_digest = place_of("reservation_digest"),
        .digest = place_of("digest"),
    };
}

static enum hf_store_status no_memory(struct hf_verify *v)
{
    return hf_store_fail(v->error, HF_STORE_NOMEM,
                         "no memory to verify a store, or libcrypto without SHA-256");
}

/* ---- what a walk needs ---------------------------------------------------------------------------------------------- */

static char letter_of(size_t field)
{
    switch (hf_receipt_field(field)->type) {
    case HF_FIELD_NUMBER:
    case HF_FIELD_SIGNED:
        return 'i';
    case HF_FIELD_FLAG:
    case HF_FIELD_TRI:
        return 'b';
    default:
        return 't';
    }
}

/* Fields in the order in which PostgreSQL's tables have their columns: numbers, flags, texts, digests. */
static void put_in_order(size_t *order)
{
    size_t at = 0;

    for (unsigned group = 0; group < 4; group++) {
        for (size_t i = 0; i < hf_receipt_fields(); i++) {
            bool digest = hf_receipt_field(i)->type == HF_FIELD_DIGEST;

            if ((letter_of(i) == "ibtt"[group]) && digest == (group == 3)) {
                order[at++] = i;
            }
        }
    }
}

/* What scan is told of the columns: a number of the table's, then the fields in their order. */
static bool make_columns(struct hf_verify *v)
{
    size_t cnt = hf_receipt_fields();

    v->order = calloc(cnt, sizeof(*v->order));
    v->types = calloc(cnt + 2, 1);
    v->fields = calloc(cnt, sizeof(*v->fields));
    if (v->order == NULL || v->types == NULL || v->fields == NULL) {
        return false;
    }
    put_in_order(v->order);
    v->types[0] = 'i';
    for (size_t i = 0; i < cnt; i++) {
        v->types[i + 1] = letter_of(v->order[i]);
    }
    return true;
}

static bool make(struct hf_verify *v)
{
    size_t heads = v->options->heads_cnt == 0 ? 1 : v->options->heads_cnt;

    look_up_places(&v->places);
    v->canonical = hf_canonical_new();
    v->family = hf_family_new(REMEMBERED);
    v->open.stored = calloc(HF_STORE_ROWS_MAX, HF_DIGEST_BYTES);
    v->open.again = calloc(HF_STORE_ROWS_MAX, HF_DIGEST_BYTES);
    v->heads_found = calloc(heads, sizeof(*v->heads_found));
    v->heads_differ = calloc(heads, sizeof(*v->heads_differ));
    return make_columns(v) && v->canonical != NULL && v->family != NULL && v->open.stored != NULL &&
           v->open.again != NULL && v->heads_found != NULL && v->heads_differ != NULL;
}

static void unmake(struct hf_verify *v)
{
    for (size_t i = 0; i < v->open.copies_cnt; i++) {
        hf_verify_copy_free(&v->open.copies[i]);
    }
    for (size_t i = 0; i < v->names_cnt; i++) {
        free(v->names[i].bytes);
    }
    free(v->names);
    free(v->asked);
    free(v->heads_found);
    free(v->heads_differ);
    free(v->open.stored);
    free(v->open.again);
    free(v->types);
    free(v->order);
    free(v->fields);
    hf_family_free(v->family);
    hf_canonical_free(v->canonical);
}

/* ---- segments ------------------------------------------------------------------------------------------------------- */

static enum hf_store_status add_name(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct hf_verify *v = ctx;
    struct hf_verify_name *name;

    (void)cnt;
    if (v->names_cnt == v->names_cap) {
        size_t cap = v->names_cap == 0 ? 16 : 2 * v->names_cap;
        struct hf_verify_name *names = realloc(v->names, cap * sizeof(*names));

        if (names == NULL) {
            return no_memory(v);
        }
        v->names = names;
        v->names_cap = cap;
    }
    name = &v->names[v->names_cnt];
    name->segment_id = columns[0].integer;
    name->len = columns[1].len;
    name->bytes = calloc(name->len + 1, 1);
    if (name->bytes == NULL) {
        return no_memory(v);
    }
    memcpy(name->bytes, columns[1].bytes == NULL ? "" : columns[1].bytes, name->len);
    v->names_cnt++;
    return HF_STORE_OK;
}

static bool has_number(const struct hf_verify *v, int64_t segment_id)
{
    for (size_t i = 0; i < v->names_cnt; i++) {
        if (v->names[i].segment_id == segment_id) {
            return true;
        }
    }
    return false;
}

/* Rows of a segment number that has no name. From number to number by the primary key, so it costs next to nothing. */
static enum hf_store_status look_for_nameless(struct hf_verify *v)
{
    static const char *const tables[][2] = {
        {"receipt", "SELECT min(segment_id) FROM receipt WHERE segment_id >= $1"},
        {"conflict", "SELECT min(segment_id) FROM conflict WHERE segment_id >= $1"},
        {"kept", "SELECT min(segment_id) FROM kept WHERE segment_id >= $1"},
        {"prune", "SELECT min(segment_id) FROM prune WHERE segment_id >= $1"},
        {"batch", "SELECT min(segment_id) FROM batch WHERE segment_id >= $1"},
    };

    for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++) {
        int64_t number = INT64_MIN;

        while (number != INT64_MAX) {
            struct hf_param param = hf_param_integer(number);
            enum hf_store_status status = v->store->ops->query(v->store, tables[t][1], &param, 1,
                                                               hf_store_one_or_none, &number, v->error);

            if (status != HF_STORE_OK) {
                return status;
            }
            if (number == INT64_MAX) {
                break;
            }
            if (!has_number(v, number)) {
                hf_verify_find(v, HF_VERIFY_ADDED, 0, 0, 0, "segment_id",
                               "the table %s has rows of segment number %" PRId64
                               ", which has no name: added, or the segment was removed",
                               tables[t][0], number);
            }
            number++;
        }
    }
    return HF_STORE_OK;
}

static bool has_name(const struct hf_verify *v, const struct hf_name *name)
{
    for (size_t i = 0; i < v->names_cnt; i++) {
        if (hf_name_is(name, v->names[i].bytes, v->names[i].len)) {
            return true;
        }
    }
    return false;
}

/* Heads of segments that the store does not even know, and of none. */
static void report_heads(struct hf_verify *v)
{
    for (size_t i = 0; i < v->options->heads_cnt; i++) {
        const struct hf_verify_head *head = &v->options->heads[i];

        if (head->segment.len == 0 && !v->heads_found[i]) {
            hf_verify_find(
                v, HF_VERIFY_TRUNCATED, 0, 0, 0, NULL,
                "nothing has the digest of the head that was kept elsewhere: the chain was cut off or "
                "written anew");
        } else if (head->segment.len != 0 && !has_name(v, &head->segment) && v->options->segment == NULL) {
            hf_verify_find(v, HF_VERIFY_TRUNCATED, (int64_t)head->number, 0, 0, NULL,
                           "the store knows no segment '%s', whose head was kept elsewhere",
                           head->segment.bytes);
        }
    }
}

static enum hf_store_status walk(struct hf_verify *v)
{
    enum hf_store_status status = v->store->ops->query(
        v->store, "SELECT segment_id, name FROM segment ORDER BY name", NULL, 0, add_name, v, v->error);
    bool found = v->options->segment == NULL;

    if (status == HF_STORE_OK) {
        status = hf_verify_schema(v);
    }
    if (status == HF_STORE_OK && v->options->segment == NULL) {
        status = look_for_nameless(v);
    }
    for (size_t i = 0; i < v->names_cnt && status == HF_STORE_OK; i++) {
        if (v->options->segment != NULL && strcmp(v->options->segment, v->names[i].bytes) != 0) {
            continue;
        }
        found = true;
        v->segment = &v->names[i];
        status = hf_verify_prunes(v);
        if (status == HF_STORE_OK) {
            status = hf_verify_segment(v);
        }
        if (status == HF_STORE_OK) {
            status = hf_verify_rollups(v);
        }
        v->segment = NULL;
    }
    if (status == HF_STORE_OK && !found) {
        return hf_store_fail(
            v->error, HF_STORE_INVALID,
            "the store %s knows no segment '%s'. `holdfast verify` without --segment walks all",
            v->store->display, v->options->segment);
    }
    if (status == HF_STORE_OK) {
        report_heads(v);
    }
    return status;
}

enum hf_store_status hf_verify(struct hf_store *store, const struct hf_verify_options *options,
                               struct hf_verify_report *report, struct hf_store_error *error)
{
    struct hf_verify v = {.store = store, .options = options, .report = report, .error = error};
    enum hf_store_status status = hf_store_ensure(store, error);

    memset(report, 0, sizeof(*report));
    if (status != HF_STORE_OK) {
        return status;
    }
    status =
        make(&v) ? store->ops->query(store, store->ops->snapshot, NULL, 0, NULL, NULL, error) : no_memory(&v);
    if (status == HF_STORE_OK) {
        status = walk(&v);
        if (store->ops->connected(store)) {
            store->ops->query(store, "ROLLBACK", NULL, 0, NULL, NULL, NULL);
        }
    }
    unmake(&v);
    return status;
}
