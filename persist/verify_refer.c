/* Verification: what receipts say of their reservations. */
#include "persist/verify_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ASKED_MAX ((size_t)1 << 20)

static enum hf_store_status no_memory(struct hf_verify *v)
{
    return hf_store_fail(v->error, HF_STORE_NOMEM, "no memory to verify a store");
}

static uint64_t hash_of(uint64_t hash, const struct hf_column *column)
{
    return hf_name_hash(column->bytes == NULL ? "" : column->bytes, column->null ? 0 : column->len,
                        hash + column->null);
}

static bool is_kind(const struct hf_column *column, enum hf_receipt_kind kind)
{
    const char *name = hf_receipt_kind_name(kind);

    return column->len == strlen(name) && memcmp(column->bytes, name, column->len) == 0;
}

static bool in_family(const struct hf_column *kind)
{
    return !is_kind(kind, HF_RECEIPT_EPOCH) && !is_kind(kind, HF_RECEIPT_POLICY) &&
           !is_kind(kind, HF_RECEIPT_CREDIT);
}

static void to_row(const struct hf_verify_places *p, const struct hf_column *fields, int64_t seq,
                   struct hf_family_row *row)
{
    uint64_t hash = hash_of(0, &fields[p->id]);

    hash = hash_of(hash, &fields[p->tenant]);
    hash = hash_of(hash, &fields[p->team]);
    hash = hash_of(hash, &fields[p->key]);
    row->seq = seq;
    row->reservation_seq = fields[p->reservation_seq].integer;
    row->id_hash = hash;
    for (unsigned d = 0; d < HF_DIM_CNT; d++) {
        row->held[d] = fields[p->held + d].integer;
    }
    row->digest = (const uint8_t *)fields[p->digest].bytes;
    row->reservation_digest = fields[p->reservation_digest].len == HF_DIGEST_BYTES
                                  ? (const uint8_t *)fields[p->reservation_digest].bytes
                                  : NULL;
    row->reserves = is_kind(&fields[p->kind], HF_RECEIPT_RESERVATION);
}

static enum hf_store_status ask_later(struct hf_verify *v, int64_t reservation_seq)
{
    if (v->asked_cnt == v->asked_cap) {
        size_t cap = v->asked_cap == 0 ? 1024 : 2 * v->asked_cap;
        int64_t *asked = cap > ASKED_MAX ? NULL : realloc(v->asked, cap * sizeof(*asked));

        if (asked == NULL) {
            return no_memory(v);
        }
        v->asked = asked;
        v->asked_cap = cap;
    }
    v->asked[v->asked_cnt++] = reservation_seq;
    return HF_STORE_OK;
}

static void report(struct hf_verify *v, enum hf_family_answer answer, const struct hf_family_row *row,
                   int64_t batch)
{
    switch (answer) {
    case HF_FAMILY_DIGEST:
        hf_verify_find(v, HF_VERIFY_ORPHANED, batch, row->seq, row->seq, "reservation_digest",
                       "it names another digest than its reservation, receipt %" PRId64 ", has",
                       row->reservation_seq);
        break;
    case HF_FAMILY_ID:
        hf_verify_find(v, HF_VERIFY_ORPHANED, batch, row->seq, row->seq, "reservation_seq",
                       "it names receipt %" PRId64 " as its reservation, which is of another id or path",
                       row->reservation_seq);
        break;
    case HF_FAMILY_UNEVEN:
        hf_verify_find(v, HF_VERIFY_UNEVEN, batch, row->seq, row->seq, NULL,
                       "after it the reservation with receipt %" PRId64
                       " holds what it cannot: closed twice, or amounts left after its end",
                       row->reservation_seq);
        break;
    default:
        break;
    }
}

enum hf_store_status hf_verify_refer(struct hf_verify *v, const struct hf_column *fields, int64_t seq,
                                     int64_t batch)
{
    const struct hf_verify_places *p = &v->places;
    struct hf_family_row row;
    enum hf_family_answer answer;

    if (!in_family(&fields[p->kind])) {
        return HF_STORE_OK;
    }
    to_row(p, fields, seq, &row);
    if (!fields[p->reservation_seq].null && row.reservation_seq >= 1 &&
        row.reservation_seq < v->pruned_next) {
        return HF_STORE_OK; /* its reservation is gone by rule, and was closed then */
    }
    v->held_invocations += row.held[HF_DIM_INVOCATIONS];
    v->report->conflicts_cnt += row.reserves && fields[p->conflict].integer != 0;
    if (fields[p->reservation_seq].null) {
        v->report->unknown_cnt++; /* in its digest, so not taken away: it never had one */
        return HF_STORE_OK;
    }
    if (row.digest == NULL || fields[p->digest].len != HF_DIGEST_BYTES) {
        return HF_STORE_OK; /* told of as such */
    }
    answer = hf_family_add(v->family, &row);
    if (answer == HF_FAMILY_NOMEM) {
        return no_memory(v);
    }
    if (answer == HF_FAMILY_FORGOTTEN) {
        return ask_later(v, row.reservation_seq);
    }
    report(v, answer, &row, batch);
    return HF_STORE_OK;
}

/* ---- asking ------------------------------------------------------------------------------------------------------- */

/* The rows of one reservation, asked for. */
struct asked {
    struct hf_verify *v;
    struct hf_family *family; /* of this one alone */
    int64_t reservation_seq;
    bool found;
    bool told;
};

#define ASKED_COLUMNS                                                                                                  \
    "SELECT seq, kind, digest, reservation_seq, reservation_digest, held_invocations, held_tokens, held_cost_micros, " \
    "id, tenant, team, key FROM every_receipt WHERE segment_id = $1 AND "

static enum hf_store_status add_asked(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct asked *asked = ctx;
    struct hf_family_row row = {
        .seq = columns[0].integer,
        .reservation_seq = columns[3].integer,
        .digest = (const uint8_t *)columns[2].bytes,
        .reservation_digest = columns[4].len == HF_DIGEST_BYTES ? (const uint8_t *)columns[4].bytes : NULL,
        .reserves = is_kind(&columns[1], HF_RECEIPT_RESERVATION),
    };
    enum hf_family_answer answer;

    (void)cnt;
    row.id_hash = hash_of(0, &columns[8]);
    for (unsigned c = 9; c < 12; c++) {
        row.id_hash = hash_of(row.id_hash, &columns[c]);
    }
    for (unsigned d = 0; d < HF_DIM_CNT; d++) {
        row.held[d] = columns[5 + d].integer;
    }
    if (columns[2].len != HF_DIGEST_BYTES || (row.seq != asked->reservation_seq && row.reserves)) {
        return HF_STORE_OK;
    }
    if (row.seq == asked->reservation_seq) {
        asked->found = asked->found || row.reserves;
        if (!row.reserves) {
            return HF_STORE_OK;
        }
    }
    answer = hf_family_add(asked->family, &row);
    if (answer == HF_FAMILY_FORGOTTEN || (!asked->found && row.seq != asked->reservation_seq)) {
        hf_verify_find(asked->v, HF_VERIFY_ORPHANED, 0, row.seq, row.seq, "reservation_seq",
                       "it names receipt %" PRId64 " as its reservation, which is not there, or is none",
                       asked->reservation_seq);
    } else {
        report(asked->v, answer, &row, 0);
    }
    return answer == HF_FAMILY_NOMEM ? no_memory(asked->v) : HF_STORE_OK;
}

static enum hf_store_status ask(struct hf_verify *v, int64_t reservation_seq, struct hf_family *family)
{
    struct asked asked = {.v = v, .family = family, .reservation_seq = reservation_seq};
    struct hf_param params[2] = {hf_param_integer(v->segment->segment_id), hf_param_integer(reservation_seq)};
    enum hf_store_status status;

    hf_family_reset(family);
    /* Two statements, so that each goes by its index. */
    status = v->store->ops->query(v->store, ASKED_COLUMNS "seq = $2", params, 2, add_asked, &asked, v->error);
    if (status == HF_STORE_OK) {
        status = v->store->ops->query(
            v->store, ASKED_COLUMNS "reservation_seq = $2 AND kind <> 'reservation' ORDER BY seq", params, 2,
            add_asked, &asked, v->error);
    }
    return status;
}

static int by_seq(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

enum hf_store_status hf_verify_ask(struct hf_verify *v)
{
    struct hf_family *family;
    enum hf_store_status status = HF_STORE_OK;

    if (v->asked_cnt == 0) {
        return HF_STORE_OK;
    }
    family = hf_family_new(16);
    if (family == NULL) {
        return no_memory(v);
    }
    qsort(v->asked, v->asked_cnt, sizeof(*v->asked), by_seq);
    for (size_t i = 0; i < v->asked_cnt && status == HF_STORE_OK; i++) {
        if (i == 0 || v->asked[i] != v->asked[i - 1]) {
            status = ask(v, v->asked[i], family);
        }
    }
    v->asked_cnt = 0;
    hf_family_free(family);
    return status;
}
