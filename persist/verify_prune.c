/* Verification of retention: what its records say is gone, is gone by rule. */
#include "core/window.h"
#include "persist/prune.h"
#include "persist/prune_impl.h"
#include "persist/verify_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct list {
    struct hf_prune_record *list;
    size_t cnt;
};

static enum hf_store_status add(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct list *all = ctx;
    struct hf_prune_record *list = realloc(all->list, (all->cnt + 1) * sizeof(*list));

    if (list == NULL) {
        return HF_STORE_NOMEM;
    }
    all->list = list;
    memset(&list[all->cnt], 0, sizeof(*list));
    return hf_prune_read(&list[all->cnt++], columns, cnt);
}

static void find(struct hf_verify *v, const struct hf_prune_record *record, const char *column,
                 const char *why)
{
    hf_verify_find(v, HF_VERIFY_PRUNE, record->batch_number, record->first_seq, record->next_seq - 1, column,
                   "record %" PRId64 " of retention %s", record->number, why);
}

/* One integer about the segment's row of that number, where the two others fit; -1: none. */
static enum hf_store_status ask(struct hf_verify *v, const char *sql, int64_t number, int64_t next_seq,
                                const uint8_t *digest, int64_t *answer)
{
    struct hf_param params[4] = {hf_param_integer(v->segment->segment_id), hf_param_integer(number),
                                 hf_param_integer(next_seq), hf_param_bytes(digest, HF_DIGEST_BYTES)};

    *answer = -1;
    return v->store->ops->query(v->store, sql, params, digest == NULL ? 3 : 4, hf_store_one_integer, answer,
                                v->error);
}

static bool too_early(const struct hf_prune_record *record, int64_t committed_ms)
{
    uint64_t made_ms = record->made_ms < 0 ? 0 : (uint64_t)record->made_ms;
    uint64_t month_ms = made_ms > HF_CLOCK_MS_MAX
                            ? 0
                            : hf_window_start_ms(HF_WINDOW_MONTH, hf_window_id(HF_WINDOW_MONTH, made_ms));

    return (uint64_t)committed_ms >= month_ms || (uint64_t)committed_ms + HF_PRUNE_YOUNG_MS > made_ms;
}

/* The rule: a month that was over, two days, a rollup over all of it, nothing open. */
static enum hf_store_status check_rule(struct hf_verify *v, const struct hf_prune_record *record)
{
    int64_t committed_ms = -1;
    int64_t end_ms = -1;
    int64_t open_cnt = 0;
    enum hf_store_status status =
        ask(v,
            "SELECT committed_ms FROM batch WHERE segment_id = $1 AND number = $2 "
            "AND first_seq + rows_cnt = $3 AND digest = $4",
            record->batch_number, record->next_seq, record->batch_digest, &committed_ms);

    if (status == HF_STORE_OK) {
        status = ask(v,
                     "SELECT end_ms FROM rollup WHERE segment_id = $1 AND number = $2 AND next_seq >= $3 "
                     "AND digest = $4",
                     record->rollup_number, record->next_seq, record->rollup_digest, &end_ms);
    }
    if (status == HF_STORE_OK) {
        status = ask(v,
                     "SELECT count(*) FROM rollup_open WHERE segment_id = $1 AND number = $2 "
                     "AND reservation_seq < $3",
                     record->rollup_number, record->next_seq, NULL, &open_cnt);
    }
    if (status != HF_STORE_OK) {
        return status;
    }
    if (committed_ms < 0) {
        find(v, record, "batch_digest", "names a batch that is not there, or does not end where it says");
    } else if (end_ms < 0) {
        find(v, record, "rollup_digest", "names a rollup that is not there, or does not cover what is gone");
    } else if (open_cnt > 0) {
        find(v, record, NULL, "says that receipts of an open reservation were pruned, which is never done");
    } else if (too_early(record, committed_ms)) {
        find(
            v, record, "made_ms",
            "says that receipts of a month that was not over, or of less than two days, were pruned, which is "
            "never done");
    }
    return HF_STORE_OK;
}

/* A record's digest that was kept elsewhere is as good as the digest of a batch. */
static void look_for_heads(struct hf_verify *v, const struct hf_prune_record *record)
{
    for (size_t i = 0; i < v->options->heads_cnt; i++) {
        const struct hf_verify_head *head = &v->options->heads[i];

        if (head->segment.len == 0 && head->number == 0 &&
            memcmp(head->digest, record->digest, HF_DIGEST_BYTES) == 0) {
            v->heads_found[i] = true;
        }
    }
}

static enum hf_store_status check(struct hf_verify *v, const struct hf_prune_record *record,
                                  const struct hf_prune_record *before)
{
    __int128 range = (__int128)record->next_seq - record->first_seq;
    uint8_t digest[HF_DIGEST_BYTES];
    int64_t kept_cnt;
    enum hf_store_status status = hf_prune_digest(v->store, v->segment->segment_id, v->segment->bytes, record,
                                                  before->batch_number, &kept_cnt, digest, v->error);

    if (status != HF_STORE_OK) {
        return status;
    }
    if (kept_cnt != record->kept_cnt) {
        find(v, record, "kept_cnt", "tells of another number of kept receipts than there are");
    } else if (memcmp(digest, record->digest, HF_DIGEST_BYTES) != 0) {
        find(v, record, "digest",
             "is not what its digest says: it, a receipt that was kept, or a batch of its range was changed");
    } else if (record->rows_cnt < 0 || record->rows_cnt > range ||
               (__int128)record->rows_cnt + kept_cnt < range) {
        find(v, record, "rows_cnt", "tells of another number of receipts than its range has");
    }
    if (record->number != before->number + 1 || record->first_seq != before->next_seq ||
        record->next_seq <= record->first_seq ||
        memcmp(record->before, before->digest, HF_DIGEST_BYTES) != 0) {
        find(v, record, "before", "does not follow the one before it: one was removed, added or changed");
    }
    look_for_heads(v, record);
    return check_rule(v, record);
}

enum hf_store_status hf_verify_prunes(struct hf_verify *v)
{
    struct hf_prune_record before = {.next_seq = 1};
    struct list all = {NULL, 0};
    struct hf_param param = hf_param_integer(v->segment->segment_id);
    enum hf_store_status status = v->store->ops->query(
        v->store, "SELECT " HF_PRUNE_COLUMNS "FROM prune WHERE segment_id = $1 ORDER BY number", &param, 1,
        add, &all, v->error);

    v->pruned_next = 1;
    for (size_t i = 0; i < all.cnt && status == HF_STORE_OK; i++) {
        status = check(v, &all.list[i], &before);
        before = all.list[i];
        v->report->pruned_cnt += before.rows_cnt > 0 ? (uint64_t)before.rows_cnt : 0;
        v->pruned_next = before.next_seq > v->pruned_next ? before.next_seq : v->pruned_next;
    }
    free(all.list);
    return status;
}
