/* Verification: one segment, page by page. A page is a run of whole batches and their rows, so memory stays the same and no statement
 * of the server takes long. */
#include "persist/verify_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCHES_MAX  4096
#define PAGE_ROWS    UINT64_C(200000)
#define SEARCHES_MAX 64
#define SQL_BYTES    16384

/* The batches that are read but not walked yet. */
struct batches {
    struct hf_verify_batch list[BATCHES_MAX];
    size_t cnt;
    size_t at;
    int64_t next_number;
    bool all; /* there are none after these */
};

static enum hf_store_status add_batch(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct batches *batches = ctx;
    struct hf_verify_batch *batch = &batches->list[batches->cnt++];

    (void)cnt;
    memset(batch, 0, sizeof(*batch));
    batch->number = columns[0].integer;
    batch->epoch = columns[1].integer;
    batch->first_seq = columns[2].integer;
    batch->rows_cnt = columns[3].integer;
    batch->committed_ms = columns[4].integer;
    /* A digest of another length is no digest: it stays zeros, which none is. */
    if (columns[5].len == HF_DIGEST_BYTES) {
        memcpy(batch->before, columns[5].bytes, HF_DIGEST_BYTES);
    }
    if (columns[6].len == HF_DIGEST_BYTES) {
        memcpy(batch->digest, columns[6].bytes, HF_DIGEST_BYTES);
    }
    batches->all = batch->number == INT64_MAX;
    batches->next_number = batches->all ? batch->number : batch->number + 1;
    return HF_STORE_OK;
}

static enum hf_store_status fill(struct hf_verify *v, struct batches *batches)
{
    size_t before = batches->cnt - batches->at;
    struct hf_param params[3] = {hf_param_integer(v->segment->segment_id),
                                 hf_param_integer(batches->next_number),
                                 hf_param_integer((int64_t)(BATCHES_MAX - before))};
    enum hf_store_status status;

    memmove(batches->list, batches->list + batches->at, before * sizeof(batches->list[0]));
    batches->at = 0;
    batches->cnt = before;
    if (batches->all) {
        return HF_STORE_OK;
    }
    status =
        v->store->ops->query(v->store,
                             "SELECT number, epoch, first_seq, rows_cnt, committed_ms, before, digest "
                             "FROM batch WHERE segment_id = $1 AND number >= $2 ORDER BY number LIMIT $3",
                             params, 3, add_batch, batches, v->error);
    batches->all = batches->all || batches->cnt < BATCHES_MAX;
    return status;
}

/* How many batches the next page has, planned; one that is not the last of all has a neighbour to be compared with. */
static enum hf_store_status plan_page(struct hf_verify *v, struct batches *batches)
{
    uint64_t rows_max = v->options->page_rows == 0 ? PAGE_ROWS : v->options->page_rows;
    uint64_t rows_cnt = 0;
    const struct hf_verify_batch *before = &v->prev;

    v->page = batches->list + batches->at;
    v->page_cnt = v->page_at = 0;
    while (batches->at < batches->cnt && rows_cnt < rows_max) {
        struct hf_verify_batch *batch = &batches->list[batches->at];
        const struct hf_verify_batch *next = batches->at + 1 < batches->cnt ? batch + 1 : NULL;
        enum hf_store_status status;

        if (next == NULL && !batches->all) {
            break;
        }
        status = hf_verify_plan(v, before, batch, next);
        if (status != HF_STORE_OK) {
            return status;
        }
        rows_cnt += (uint64_t)(batch->until - batch->from);
        before = batch;
        batches->at++;
        v->page_cnt++;
    }
    v->page_more = batches->cnt - batches->at;
    return HF_STORE_OK;
}

/* `SELECT <number>, <all fields> FROM <table> WHERE ...`. With segment_id as the number these are a table's columns as they lie there,
 * which PostgreSQL hands out as they are; anything else it puts together again for each row, which costs a sixth of a walk. */
static size_t select_from(const size_t *order, char *sql, size_t bytes, const char *table, const char *number,
                          int64_t segment_id, int64_t from, int64_t last)
{
    size_t len = (size_t)snprintf(sql, bytes, "SELECT %s", number);

    for (size_t i = 0; i < hf_receipt_fields(); i++) {
        len += (size_t)snprintf(sql + len, bytes - len, ", %s", hf_receipt_field(order[i])->name);
    }
    len +=
        (size_t)snprintf(sql + len, bytes - len, " FROM %s WHERE segment_id = %" PRId64, table, segment_id);
    if (from != INT64_MIN) {
        len += (size_t)snprintf(sql + len, bytes - len, " AND seq >= %" PRId64, from);
    }
    if (last != INT64_MAX) {
        len += (size_t)snprintf(sql + len, bytes - len, " AND seq <= %" PRId64, last);
    }
    return len;
}

/* The rows of [from, last], those put aside included, in the order of seq. */
static enum hf_store_status read_rows(struct hf_verify *v, int64_t from, int64_t last)
{
    char sql[SQL_BYTES];
    int64_t segment_id = v->segment->segment_id;
    bool kept = v->any_kept && from <= v->kept_last;
    size_t len;

    v->from_told = v->any_aside || kept;
    len = select_from(v->order, sql, sizeof(sql), "receipt",
                      v->from_told ? "CAST(0 AS bigint) AS put_aside" : "segment_id", segment_id, from, last);

    if (v->any_aside) {
        len += (size_t)snprintf(sql + len, sizeof(sql) - len, " UNION ALL ");
        len += select_from(v->order, sql + len, sizeof(sql) - len, "conflict", "batch_number", segment_id,
                           from, last);
    }
    if (kept) {
        len += (size_t)snprintf(sql + len, sizeof(sql) - len, " UNION ALL ");
        len += select_from(v->order, sql + len, sizeof(sql) - len, "kept", HF_VERIFY_KEPT_SQL, segment_id,
                           from, last);
    }
    snprintf(sql + len, sizeof(sql) - len, v->from_told ? " ORDER BY seq, put_aside" : " ORDER BY seq");
    return v->store->ops->scan(v->store, sql, v->types, hf_verify_row, v, v->error);
}

static enum hf_store_status ask_integer(struct hf_verify *v, const char *sql, int64_t *integer)
{
    struct hf_param param = hf_param_integer(v->segment->segment_id);

    *integer = 0;
    return v->store->ops->query(v->store, sql, &param, 1, hf_store_one_integer, integer, v->error);
}

static enum hf_store_status walk_pages(struct hf_verify *v, struct batches *batches)
{
    int64_t from = INT64_MIN;

    for (;;) {
        enum hf_store_status status = fill(v, batches);
        bool last_page;
        int64_t last;

        if (status == HF_STORE_OK) {
            status = plan_page(v, batches);
        }
        if (status != HF_STORE_OK) {
            return status;
        }
        last_page = batches->all && batches->at == batches->cnt;
        last = last_page ? INT64_MAX : v->page[v->page_cnt - 1].until - 1;
        status = read_rows(v, from, last);
        if (status == HF_STORE_OK) {
            status = hf_verify_until(v, last_page ? INT64_MAX : last + 1);
        }
        if (status == HF_STORE_OK) {
            status = hf_verify_ask(v);
        }
        if (status != HF_STORE_OK || last_page) {
            return status;
        }
        from = last + 1;
    }
}

static void begin_segment(struct hf_verify *v)
{
    hf_family_reset(v->family);
    v->findings_before = v->report->findings_cnt;
    v->rows_total = v->rows_cnt = v->rows_changed_cnt = 0;
    v->batches_cnt = v->batches_changed_cnt = v->links_broken_cnt = 0;
    v->held_invocations = 0;
    v->searches_left = SEARCHES_MAX;
    v->prev_known = false;
    memset(&v->prev, 0, sizeof(v->prev));
    memset(&v->stray, 0, sizeof(v->stray));
}

/* What only the end of a segment shows. */
static void end_segment(struct hf_verify *v)
{
    hf_verify_stray_end(v);
    if (v->rows_cnt > 0 && v->rows_changed_cnt == v->rows_cnt && v->batches_cnt > 0 &&
        v->batches_changed_cnt == v->batches_cnt && v->links_broken_cnt == 0) {
        hf_verify_find(
            v, HF_VERIFY_RENAMED, 0, 0, 0, "name",
            "no receipt and no batch holds under this name, while each follows the one before: the segment "
            "was renamed");
    }
    for (size_t i = 0; i < v->options->heads_cnt; i++) {
        const struct hf_verify_head *head = &v->options->heads[i];

        if (head->segment.len == 0 || !hf_name_is(&head->segment, v->segment->bytes, v->segment->len)) {
            continue;
        }
        if (v->heads_differ[i]) {
            hf_verify_find(
                v, HF_VERIFY_TRUNCATED, (int64_t)head->number, 0, 0, "digest",
                "the batch has another digest than the head that was kept elsewhere: the chain was written "
                "anew");
        } else if (!v->heads_found[i]) {
            hf_verify_find(v, HF_VERIFY_TRUNCATED, (int64_t)head->number, 0, 0, NULL,
                           "the chain ends at batch %" PRId64
                           ", before the head that was kept elsewhere: its end was cut off",
                           v->prev.number);
        }
    }
    v->report->segments_cnt++;
    v->report->open_cnt += v->held_invocations > 0 ? (uint64_t)v->held_invocations : 0;
}

static void hand_over_head(struct hf_verify *v)
{
    struct hf_store_batch last = {
        .number = (uint64_t)v->prev.number,
        .epoch = (uint64_t)v->prev.epoch,
        .first_seq = (uint64_t)v->prev.first_seq,
        .rows_cnt = (uint64_t)v->prev.rows_cnt,
        .committed_ms = (uint64_t)v->prev.committed_ms,
    };

    memcpy(last.before, v->prev.before, HF_DIGEST_BYTES);
    memcpy(last.digest, v->prev.digest, HF_DIGEST_BYTES);
    if (v->options->head != NULL && v->batches_cnt > 0) {
        v->options->head(v->options->ctx, v->segment->bytes, &last,
                         v->report->findings_cnt == v->findings_before);
    }
}

enum hf_store_status hf_verify_segment(struct hf_verify *v)
{
    struct batches *batches = calloc(1, sizeof(*batches));
    int64_t total = 0;
    int64_t aside = 0;
    int64_t kept = 0;
    enum hf_store_status status;

    if (batches == NULL || !hf_canonical_segment(v->canonical, v->segment->bytes, v->segment->len)) {
        free(batches);
        return hf_store_fail(v->error, HF_STORE_NOMEM, "no memory to verify a store");
    }
    begin_segment(v);
    batches->next_number = INT64_MIN;
    /* Only to tell progress: whatever the batches say. */
    status = ask_integer(
        v, "SELECT CAST(coalesce(sum(rows_cnt % 1000000), 0) AS bigint) FROM batch WHERE segment_id = $1",
        &total);
    v->rows_total = total > 0 ? (uint64_t)total : 0;
    if (status == HF_STORE_OK) {
        status = ask_integer(v, "SELECT count(*) FROM conflict WHERE segment_id = $1", &aside);
    }
    if (status == HF_STORE_OK) {
        v->any_aside = aside > 0;
        status = ask_integer(v, "SELECT count(*) FROM kept WHERE segment_id = $1", &kept);
        v->any_kept = kept > 0;
    }
    if (status == HF_STORE_OK && v->any_kept) {
        status = ask_integer(v, "SELECT max(seq) FROM kept WHERE segment_id = $1", &v->kept_last);
    }
    if (status == HF_STORE_OK) {
        status = walk_pages(v, batches);
    }
    if (status == HF_STORE_OK) {
        end_segment(v);
        hand_over_head(v);
    }
    if (v->open.batch != NULL) { /* stopped in the middle */
        v->open.batch = NULL;
    }
    free(batches);
    return status;
}
