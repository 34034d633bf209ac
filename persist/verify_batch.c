/* Verification: batches, and the rows in them. */
#include "persist/verify_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static enum hf_store_status failed(struct hf_verify *v)
{
    return hf_store_fail(v->error, HF_STORE_NOMEM, "no memory to verify a store, or libcrypto failed");
}

/* ---- digests of batches -------------------------------------------------------------------------------------------- */

bool hf_verify_digest(struct hf_verify *v, const struct hf_verify_batch *batch, const char *segment,
                      const uint8_t (*rows)[HF_DIGEST_BYTES], size_t rows_cnt, uint8_t out[HF_DIGEST_BYTES])
{
    struct hf_digest *digest = v->store->digest;
    /* What is negative is shown as what it would be, and no digest of ours is over that. */
    struct hf_digest_batch header = {
        .number = (uint64_t)batch->number,
        .epoch = (uint64_t)batch->epoch,
        .first_seq = (uint64_t)batch->first_seq,
        .rows_cnt = (uint64_t)batch->rows_cnt,
        .committed_ms = (uint64_t)batch->committed_ms,
        .before = batch->before,
    };

    if (!hf_digest_batch_begin(digest, segment, &header)) {
        return false;
    }
    for (size_t i = 0; i < rows_cnt; i++) {
        if (!hf_digest_batch_add(digest, rows[i])) {
            return false;
        }
    }
    return hf_digest_batch_end(digest, out);
}

static bool same(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, HF_DIGEST_BYTES) == 0;
}

/* ---- where the rows of a batch are expected ------------------------------------------------------------------------- */

struct digests {
    uint8_t (*list)[HF_DIGEST_BYTES];
    size_t cnt;
    size_t cap;
};

static enum hf_store_status add_digest(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct digests *digests = ctx;

    (void)cnt;
    if (digests->cnt < digests->cap && columns[0].len == HF_DIGEST_BYTES) {
        memcpy(digests->list[digests->cnt++], columns[0].bytes, HF_DIGEST_BYTES);
    }
    return HF_STORE_OK;
}

/* Whether the batch's digest is one over rows_cnt rows from first_seq on, with a header that says so. Asks the store: only when two
 * batches do not agree where one ends. */
static enum hf_store_status judge(struct hf_verify *v, const struct hf_verify_batch *batch, int64_t first_seq,
                                  int64_t rows_cnt, bool *holds)
{
    struct hf_verify_batch tried = *batch;
    struct digests digests = {.cap = HF_STORE_ROWS_MAX};
    uint8_t digest[HF_DIGEST_BYTES];
    struct hf_param params[3];
    enum hf_store_status status;

    *holds = false;
    if (first_seq < 1 || rows_cnt < 1 || rows_cnt > HF_STORE_ROWS_MAX || first_seq > INT64_MAX - rows_cnt) {
        return HF_STORE_OK;
    }
    digests.list = calloc(HF_STORE_ROWS_MAX, HF_DIGEST_BYTES);
    if (digests.list == NULL) {
        return failed(v);
    }
    params[0] = hf_param_integer(v->segment->segment_id);
    params[1] = hf_param_integer(first_seq);
    params[2] = hf_param_integer(first_seq + rows_cnt);
    status = v->store->ops->query(
        v->store,
        "SELECT digest FROM every_receipt WHERE segment_id = $1 AND seq >= $2 AND seq < $3 ORDER BY seq",
        params, 3, add_digest, &digests, v->error);
    tried.first_seq = first_seq;
    tried.rows_cnt = rows_cnt;
    if (status == HF_STORE_OK && digests.cnt == (size_t)rows_cnt) {
        if (!hf_verify_digest(v, &tried, v->segment->bytes, (const uint8_t(*)[HF_DIGEST_BYTES])digests.list,
                              digests.cnt, digest)) {
            status = failed(v);
        }
        *holds = status == HF_STORE_OK && same(digest, batch->digest);
    }
    free(digests.list);
    return status;
}

static void report_number(struct hf_verify *v, const struct hf_verify_batch *before,
                          const struct hf_verify_batch *batch)
{
    int64_t due = before->number + 1;

    if (batch->number < 1) {
        hf_verify_find(v, HF_VERIFY_ADDED, batch->number, 0, 0, "number",
                       "the batch has a number that none can have");
    } else if (due == batch->number - 1) {
        hf_verify_find(v, HF_VERIFY_REMOVED, due, 0, 0, NULL,
                       "the batch was removed: %" PRId64 " follows %" PRId64, batch->number, before->number);
    } else {
        hf_verify_find(v, HF_VERIFY_REMOVED, due, 0, 0, NULL,
                       "the batches to %" PRId64 " were removed: %" PRId64 " follows %" PRId64,
                       batch->number - 1, batch->number, before->number);
    }
}

/* Two neighbours do not agree where the first one ends: whose word holds? */
static enum hf_store_status settle_end(struct hf_verify *v, struct hf_verify_batch *batch,
                                       const struct hf_verify_batch *next)
{
    int64_t until_next = next->first_seq;
    bool holds = false;
    enum hf_store_status status = judge(v, batch, batch->from, batch->rows_cnt, &holds);

    if (status != HF_STORE_OK || holds || until_next <= batch->from ||
        until_next - batch->from > HF_STORE_ROWS_MAX) {
        return status;
    }
    batch->until = until_next;
    return HF_STORE_OK;
}

enum hf_store_status hf_verify_plan(struct hf_verify *v, const struct hf_verify_batch *before,
                                    struct hf_verify_batch *batch, const struct hf_verify_batch *next)
{
    int64_t from = before->number == 0 ? 1 : before->until;
    int64_t cnt = batch->rows_cnt;

    batch->follows = batch->number == before->number + 1;
    if (!batch->follows) {
        report_number(v, before, batch);
        from = batch->first_seq > from ? batch->first_seq : from;
    }
    if (cnt < 1 || cnt > HF_STORE_ROWS_MAX) {
        cnt = cnt < 1 ? 0 : HF_STORE_ROWS_MAX;
    }
    batch->from = from;
    batch->until = from > INT64_MAX - cnt ? INT64_MAX : from + cnt;
    if (next != NULL && next->number == batch->number + 1 && next->first_seq != batch->until) {
        return settle_end(v, batch, next);
    }
    return HF_STORE_OK;
}

/* ---- the end of a batch --------------------------------------------------------------------------------------------- */

/* The rows are all there, the digest is another: which one column of the header explains it? NULL: none. */
static const char *header_column(struct hf_verify *v, const struct hf_verify_batch *batch,
                                 const struct hf_verify_open *open)
{
    static const char *const names[] = {"before", "epoch", "first_seq", "rows_cnt", "number"};
    struct hf_verify_batch tried;
    uint8_t digest[HF_DIGEST_BYTES];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        tried = *batch;
        switch (i) {
        case 0:
            memcpy(tried.before, v->prev.digest, HF_DIGEST_BYTES); /* zeros without one */
            break;
        case 1:
            tried.epoch = open->epoch;
            break;
        case 2:
            tried.first_seq = batch->from;
            break;
        case 3:
            tried.rows_cnt = (int64_t)open->rows_cnt;
            break;
        default:
            tried.number = v->prev.number + 1;
            break;
        }
        if (hf_verify_digest(v, &tried, v->segment->bytes, (const uint8_t(*)[HF_DIGEST_BYTES])open->stored,
                             open->rows_cnt, digest) &&
            same(digest, batch->digest)) {
            return names[i];
        }
    }
    return NULL;
}

static void report_row(struct hf_verify *v, const struct hf_verify_batch *batch, struct hf_verify_copy *copy,
                       bool digest_changed)
{
    char was[128];
    const char *column;

    if (digest_changed) {
        hf_verify_find(v, HF_VERIFY_CHANGED, batch->number, copy->seq, copy->seq, "digest",
                       "its digest was changed; the rest of the receipt is what the batch was made of");
        return;
    }
    column =
        copy->fields == NULL ? NULL : hf_verify_column(v, copy, v->open.stored[copy->at], was, sizeof(was));
    if (column != NULL) {
        hf_verify_find(v, HF_VERIFY_CHANGED, batch->number, copy->seq, copy->seq, column,
                       "the receipt is not what its digest says: the column was %s", was);
    } else {
        hf_verify_find(
            v, HF_VERIFY_CHANGED, batch->number, copy->seq, copy->seq, NULL,
            "the receipt is not what its digest says; which column was changed, or whether several were, "
            "cannot be told");
    }
}

static void report_rows(struct hf_verify *v, const struct hf_verify_batch *batch, bool digests_changed)
{
    struct hf_verify_open *open = &v->open;

    for (size_t i = 0; i < open->copies_cnt; i++) {
        report_row(v, batch, &open->copies[i], digests_changed);
    }
    if (open->changed_cnt > open->copies_cnt) {
        hf_verify_find(v, HF_VERIFY_CHANGED, batch->number, 0, 0, NULL,
                       "%zu more receipts of the batch are not what their digests say",
                       open->changed_cnt - open->copies_cnt);
    }
}

static void report_gap(struct hf_verify *v, int64_t until)
{
    struct hf_verify_open *open = &v->open;

    if (until > open->due) {
        open->gaps = true;
        hf_verify_find(v, HF_VERIFY_REMOVED, open->batch->number, open->due, until - 1, NULL,
                       until - open->due == 1 ? "the receipt was removed" : "the receipts were removed");
    }
}

/* A row is missing at the end: or is it that rows_cnt was raised? */
static bool raised(struct hf_verify *v, const struct hf_verify_batch *batch)
{
    const char *column;

    if (v->open.gaps || v->open.rows_cnt == 0 || v->open.due >= batch->until) {
        return false;
    }
    column = header_column(v, batch, &v->open);
    return column != NULL && strcmp(column, "rows_cnt") == 0;
}

static void report_link(struct hf_verify *v, const struct hf_verify_batch *batch)
{
    static const uint8_t none[HF_DIGEST_BYTES];
    const uint8_t *due = v->prev.number == 0 ? none : v->prev.digest;

    if (!batch->follows || same(batch->before, due) ||
        (v->prev_known && same(batch->before, v->prev_again))) {
        return;
    }
    v->links_broken_cnt++;
    hf_verify_find(v, HF_VERIFY_BATCH, batch->number, 0, 0, NULL,
                   "it follows another batch %" PRId64 " than the one that is there: that one was replaced",
                   v->prev.number);
}

static void report_batch(struct hf_verify *v, const struct hf_verify_batch *batch, const uint8_t *own)
{
    const char *column = header_column(v, batch, &v->open);
    const struct hf_verify_batch *next =
        v->page_at + 1 < v->page_cnt + v->page_more ? &v->page[v->page_at + 1] : NULL;

    v->batches_changed_cnt++;
    if (column == NULL && next != NULL && next->number == batch->number + 1 && same(next->before, own)) {
        column = "digest";
    }
    if (column != NULL) {
        hf_verify_find(v, HF_VERIFY_BATCH, batch->number, 0, 0, column,
                       "the batch is not what its digest says: this column was changed");
    } else {
        hf_verify_find(
            v, HF_VERIFY_BATCH, batch->number, 0, 0, NULL,
            "the batch is not what its digest says: its header, its digest or the set of its receipts was "
            "changed");
    }
}

/* All rows of the batch came by. own: the digest that it should have. */
static enum hf_store_status judge_whole(struct hf_verify *v, const struct hf_verify_batch *batch,
                                        uint8_t *own)
{
    struct hf_verify_open *open = &v->open;
    uint8_t again[HF_DIGEST_BYTES];
    bool digests_changed = false;
    bool holds;

    if (!hf_verify_digest(v, batch, v->segment->bytes, (const uint8_t(*)[HF_DIGEST_BYTES])open->stored,
                          open->rows_cnt, own)) {
        return failed(v);
    }
    holds = same(own, batch->digest);
    if (!holds && open->changed_cnt > 0) {
        if (!hf_verify_digest(v, batch, v->segment->bytes, (const uint8_t(*)[HF_DIGEST_BYTES])open->again,
                              open->rows_cnt, again)) {
            return failed(v);
        }
        digests_changed = holds = same(again, batch->digest);
        if (holds) {
            memcpy(own, again, HF_DIGEST_BYTES);
        }
    }
    report_rows(v, batch, digests_changed);
    if (holds) {
        report_link(v, batch);
    } else {
        report_batch(v, batch, own);
    }
    return HF_STORE_OK;
}

static void forget(struct hf_verify_open *open)
{
    for (size_t i = 0; i < open->copies_cnt; i++) {
        hf_verify_copy_free(&open->copies[i]);
    }
    open->copies_cnt = 0;
}

static void look_for_heads(struct hf_verify *v, const struct hf_verify_batch *batch)
{
    for (size_t i = 0; i < v->options->heads_cnt; i++) {
        const struct hf_verify_head *head = &v->options->heads[i];
        bool here = head->segment.len == 0 || hf_name_is(&head->segment, v->segment->bytes, v->segment->len);

        if (here && (head->number == 0 || head->number == (uint64_t)batch->number)) {
            v->heads_found[i] = v->heads_found[i] || same(head->digest, batch->digest);
            v->heads_differ[i] =
                v->heads_differ[i] || (head->number != 0 && !same(head->digest, batch->digest));
        }
    }
}

static enum hf_store_status end_batch(struct hf_verify *v)
{
    struct hf_verify_open *open = &v->open;
    const struct hf_verify_batch *batch = open->batch;
    enum hf_store_status status = HF_STORE_OK;
    uint8_t own[HF_DIGEST_BYTES];
    bool known = false;

    v->batches_cnt++;
    v->report->batches_cnt++;
    if (batch->until <= v->pruned_next) {
        report_link(v, batch); /* its rows are gone by rule: what it says of itself is all there is */
    } else if (batch->rows_cnt < 1 || batch->rows_cnt > HF_STORE_ROWS_MAX) {
        hf_verify_find(v, HF_VERIFY_BATCH, batch->number, 0, 0, "rows_cnt",
                       "%" PRId64 " receipts cannot be in one batch", batch->rows_cnt);
    } else if (raised(v, batch)) {
        hf_verify_find(v, HF_VERIFY_BATCH, batch->number, 0, 0, "rows_cnt",
                       "the batch is not what its digest says: it was made of %zu receipts", open->rows_cnt);
    } else {
        report_gap(v, batch->until);
        if (open->gaps) {
            report_rows(v, batch, false);
            report_link(v, batch);
        } else {
            known = true;
            status = judge_whole(v, batch, own);
        }
    }
    look_for_heads(v, batch);
    forget(open);
    v->prev = *batch;
    v->prev_known = known && status == HF_STORE_OK;
    if (v->prev_known) {
        memcpy(v->prev_again, own, HF_DIGEST_BYTES);
    }
    open->batch = NULL;
    return status;
}

static void begin_batch(struct hf_verify *v, const struct hf_verify_batch *batch)
{
    struct hf_verify_open *open = &v->open;

    open->batch = batch;
    open->rows_cnt = 0;
    open->due = batch->from;
    open->epoch = batch->epoch;
    open->gaps = false;
    open->changed_cnt = 0;
}

enum hf_store_status hf_verify_until(struct hf_verify *v, int64_t seq)
{
    while (v->page_at < v->page_cnt) {
        enum hf_store_status status;

        if (v->open.batch == NULL) {
            begin_batch(v, &v->page[v->page_at]);
        }
        if (seq < v->open.batch->until) {
            break;
        }
        status = end_batch(v);
        if (status != HF_STORE_OK) {
            return status;
        }
        v->page_at++;
    }
    return HF_STORE_OK;
}

/* ---- rows ----------------------------------------------------------------------------------------------------------- */

void hf_verify_stray_end(struct hf_verify *v)
{
    struct hf_verify_stray *stray = &v->stray;

    if (stray->cnt == 0) {
        return;
    }
    hf_verify_find(v, HF_VERIFY_ADDED, 0, stray->from, stray->last, NULL, "%s to no batch: %s",
                   stray->cnt == 1 ? "the receipt belongs" : "the receipts belong",
                   stray->changed_cnt == 0            ? "added, or their batch was removed"
                   : stray->changed_cnt == stray->cnt ? "added, with a digest that is wrong besides"
                                                      : "added, some with a digest that is wrong besides");
    memset(stray, 0, sizeof(*stray));
}

static void add_stray(struct hf_verify *v, int64_t seq, bool changed)
{
    struct hf_verify_stray *stray = &v->stray;

    if (stray->cnt > 0 && seq - 1 != stray->last) {
        hf_verify_stray_end(v);
    }
    if (stray->cnt == 0) {
        stray->from = seq;
    }
    stray->last = seq;
    stray->cnt++;
    stray->changed_cnt += changed;
}

static void keep_changed(struct hf_verify_open *open, const struct hf_column *fields, int64_t seq)
{
    open->changed_cnt++;
    if (open->copies_cnt < HF_VERIFY_COPIES_MAX) {
        struct hf_verify_copy *copy = &open->copies[open->copies_cnt++];

        copy->seq = seq;
        copy->at = open->rows_cnt - 1;
        hf_verify_copy(copy, fields); /* without memory for it, the column is not told */
    }
}

/* The same seq once more: a row that was put aside because of another one, or one too many. True: it takes the other one's place. */
static bool twice(struct hf_verify *v, int64_t seq, int64_t aside)
{
    struct hf_verify_open *open = &v->open;

    if (aside == open->batch->number && !open->last_aside) {
        hf_verify_find(
            v, HF_VERIFY_ADDED, open->batch->number, seq, seq, NULL,
            "a receipt that is no part of the batch stood in the place of the right one, which was put "
            "aside");
        /* Its place is taken back, and with it what was said of it. */
        open->rows_cnt--;
        if (open->copies_cnt > 0 && open->copies[open->copies_cnt - 1].seq == seq) {
            hf_verify_copy_free(&open->copies[--open->copies_cnt]);
            open->changed_cnt--;
        }
        return true;
    }
    hf_verify_find(v, HF_VERIFY_ADDED, open->batch->number, seq, seq, NULL,
                   "there is one more receipt with this number%s",
                   aside == 0 ? "" : ", in the table of conflicts");
    return false;
}

static enum hf_store_status add_to_batch(struct hf_verify *v, int64_t aside, int64_t seq,
                                         const uint8_t again[HF_DIGEST_BYTES], bool changed)
{
    const struct hf_verify_places *places = &v->places;
    const struct hf_column *fields = v->fields;
    const struct hf_column *digest = &fields[places->digest];
    struct hf_verify_open *open = &v->open;

    if (open->rows_cnt > 0 && seq == open->last_seq && !twice(v, seq, aside)) {
        return HF_STORE_OK;
    }
    if (seq > open->due) {
        report_gap(v, seq);
    }
    if (open->rows_cnt == HF_STORE_ROWS_MAX) {
        return HF_STORE_OK; /* cannot be: seq is within so many */
    }
    memset(open->stored[open->rows_cnt], 0, HF_DIGEST_BYTES);
    if (digest->len == HF_DIGEST_BYTES) {
        memcpy(open->stored[open->rows_cnt], digest->bytes, HF_DIGEST_BYTES);
    }
    memcpy(open->again[open->rows_cnt], again, HF_DIGEST_BYTES);
    open->rows_cnt++;
    open->due = seq + 1;
    open->last_seq = seq;
    open->last_aside = aside != 0;
    if (open->rows_cnt == 1) {
        open->epoch = fields[places->epoch].integer;
    }
    if (changed) {
        keep_changed(open, fields, seq);
    }
    if (aside != 0 && aside != open->batch->number) {
        hf_verify_find(v, HF_VERIFY_CHANGED, open->batch->number, seq, seq, "batch_number",
                       "the receipt was put aside, by its own word in batch %" PRId64, aside);
    }
    return HF_STORE_OK;
}

static void tell_progress(struct hf_verify *v)
{
    if (v->options->progress != NULL && v->rows_cnt % 16384 == 0) {
        v->options->progress(v->options->ctx, v->segment->bytes, v->rows_cnt, v->rows_total);
    }
}

/* A row of the range that was pruned: one that was kept, or was put aside once. Its own digest is all that there is to it; that none
 * was added or removed, the record's digest says. */
static void look_at_pruned(struct hf_verify *v, int64_t aside, int64_t seq, bool changed)
{
    if (aside == 0) {
        hf_verify_find(v, HF_VERIFY_ADDED, 0, seq, seq, NULL,
                       "the receipt is there although it was pruned: it was added");
    } else if (changed) {
        hf_verify_find(v, HF_VERIFY_CHANGED, 0, seq, seq, NULL,
                       "the receipt, one that was kept of those pruned, is not what its digest says");
    }
}

/* A row beyond what was pruned, in a batch: of the first one there some rows may have gone with a partition, and were kept. */
static void look_at_kept(struct hf_verify *v, int64_t aside, int64_t seq)
{
    if (aside == HF_VERIFY_KEPT && v->open.batch->from != v->pruned_next) {
        hf_verify_find(
            v, HF_VERIFY_ADDED, v->open.batch->number, seq, seq, NULL,
            "the receipt is among those that were kept, although nothing of its batch was pruned: it "
            "was moved there");
    }
}

enum hf_store_status hf_verify_row(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct hf_verify *v = ctx;
    const struct hf_verify_places *places = &v->places;
    const struct hf_column *fields = v->fields;
    const struct hf_column *digest = &fields[places->digest];
    int64_t aside = v->from_told ? columns[0].integer : 0;
    int64_t seq;
    uint8_t again[HF_DIGEST_BYTES];
    const char *text;
    size_t len;
    bool changed;
    enum hf_store_status status;

    for (size_t i = 0; i + 1 < cnt; i++) {
        v->fields[v->order[i]] = columns[i + 1];
    }
    seq = fields[places->seq].integer;
    status = hf_verify_until(v, seq);
    if (status != HF_STORE_OK) {
        return status;
    }
    if (!hf_canonical_row(v->canonical, fields, &text, &len) ||
        !hf_digest_bytes(v->store->digest, text, len, again)) {
        return failed(v);
    }
    changed = digest->len != HF_DIGEST_BYTES || !same(again, (const uint8_t *)digest->bytes);
    v->rows_cnt++;
    v->rows_changed_cnt += changed;
    v->report->receipts_cnt++;
    v->report->aside_cnt += aside > 0;
    if (seq >= 1 && seq < v->pruned_next) {
        look_at_pruned(v, aside, seq, changed);
    } else if (v->open.batch == NULL || seq < v->open.batch->from) {
        add_stray(v, seq, changed);
        status = hf_verify_refer(v, fields, seq, 0);
    } else {
        hf_verify_stray_end(v);
        look_at_kept(v, aside, seq);
        status = add_to_batch(v, aside == HF_VERIFY_KEPT ? 0 : aside, seq, again, changed);
        if (status == HF_STORE_OK) {
            status = hf_verify_refer(v, fields, seq, v->open.batch->number);
        }
    }
    tell_progress(v);
    return status;
}
