/* Verification of rollups: their digests, their chain, their place in the chain of batches, and, where asked for, their sums. */
#include "persist/rollup_impl.h"
#include "persist/rollup_sql.h"
#include "persist/verify_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The rollups of a segment, in order; in_chain: the batch it names is there and ends where it says. */
struct listed {
    struct hf_rollup rollup;
    bool in_chain;
};

struct list {
    struct listed *list;
    size_t cnt;
    size_t cap;
};

static enum hf_store_status add(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct list *all = ctx;

    (void)cnt;
    if (all->cnt == all->cap) {
        size_t cap = all->cap == 0 ? 64 : 2 * all->cap;
        struct listed *list = realloc(all->list, cap * sizeof(*list));

        if (list == NULL) {
            return HF_STORE_NOMEM;
        }
        all->list = list;
        all->cap = cap;
    }
    struct listed *listed = &all->list[all->cnt++];

    memset(listed, 0, sizeof(*listed));
    listed->in_chain = columns[10].integer != 0;
    return hf_rollup_read(&listed->rollup, columns, cnt);
}

/* How many rows are on one side alone. */
#define DIFFERENCE(columns, table, again)                                                           \
    "WITH again AS MATERIALIZED (" again "), there AS MATERIALIZED (SELECT " columns " FROM " table \
    " WHERE segment_id = $1 AND number = $2) SELECT count(*) FROM (SELECT * FROM (SELECT * FROM "   \
    "there EXCEPT SELECT * FROM again) AS a UNION ALL SELECT * FROM (SELECT * FROM again EXCEPT "   \
    "SELECT * FROM there) AS b) AS difference"

/* Adds up again what a rollup sums, from the one before it and its receipts. */
static enum hf_store_status add_up(struct hf_verify *v, const struct hf_rollup *rollup, uint64_t before)
{
    static const struct {
        const char *table;
        const char *sql;
        unsigned params_cnt;
    } tables[] = {{"rollup_sum", DIFFERENCE(HF_ROLLUP_SUM_COLUMNS, "rollup_sum", HF_ROLLUP_SUMS), 4},
                  {"rollup_meter", DIFFERENCE(HF_ROLLUP_METER_COLUMNS, "rollup_meter", HF_ROLLUP_METERS), 5},
                  {"rollup_open", DIFFERENCE(HF_ROLLUP_OPEN_COLUMNS, "rollup_open", HF_ROLLUP_OPEN), 5}};
    struct hf_param params[5] = {
        hf_param_integer(v->segment->segment_id), hf_param_integer((int64_t)rollup->number),
        hf_param_integer((int64_t)rollup->first_seq), hf_param_integer((int64_t)rollup->next_seq),
        hf_param_integer((int64_t)before)};
    enum hf_store_status status = HF_STORE_OK;

    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && status == HF_STORE_OK; i++) {
        int64_t differing = 0;

        status = v->store->ops->query(v->store, tables[i].sql, params, tables[i].params_cnt,
                                      hf_store_one_integer, &differing, v->error);
        if (status == HF_STORE_OK && differing != 0) {
            hf_verify_find(
                v, HF_VERIFY_ROLLUP, (int64_t)rollup->batch_number, (int64_t)rollup->first_seq,
                (int64_t)rollup->next_seq - 1, tables[i].table,
                "rollup %" PRIu64 ": %" PRId64
                " rows of %s are not what its receipts add up to: it was written anew, or receipts were "
                "changed after it",
                rollup->number, differing, tables[i].table);
        }
    }
    return status;
}

static enum hf_store_status check(struct hf_verify *v, const struct listed *listed,
                                  const struct hf_rollup *before)
{
    const struct hf_rollup *rollup = &listed->rollup;
    uint8_t digest[HF_DIGEST_BYTES];
    enum hf_store_status status = hf_rollup_digest(v->store, v->segment->bytes, rollup, digest, v->error);
    int64_t last = (int64_t)rollup->next_seq - 1;

    if (status == HF_STORE_OK && memcmp(digest, rollup->digest, HF_DIGEST_BYTES) != 0) {
        hf_verify_find(v, HF_VERIFY_ROLLUP, (int64_t)rollup->batch_number, (int64_t)rollup->first_seq, last,
                       "digest", "rollup %" PRIu64 " is not what its digest says: it was changed",
                       rollup->number);
    }
    if (rollup->number != before->number + 1 || rollup->first_seq != before->next_seq ||
        memcmp(rollup->before, before->digest, HF_DIGEST_BYTES) != 0) {
        hf_verify_find(
            v, HF_VERIFY_ROLLUP, (int64_t)rollup->batch_number, (int64_t)rollup->first_seq, last, "before",
            "rollup %" PRIu64 " does not follow the one before it: one was removed, added or changed",
            rollup->number);
    }
    if (!listed->in_chain) {
        hf_verify_find(v, HF_VERIFY_ROLLUP, (int64_t)rollup->batch_number, (int64_t)rollup->first_seq, last,
                       "batch_digest",
                       "rollup %" PRIu64 " names batch %" PRIu64
                       ", which is not in the chain as it was: readers pass it over",
                       rollup->number, rollup->batch_number);
    }
    if (status == HF_STORE_OK && v->options->rollups && (int64_t)rollup->first_seq >= v->pruned_next) {
        status = add_up(v, rollup, before->number);
    }
    return status;
}

enum hf_store_status hf_verify_rollups(struct hf_verify *v)
{
    struct hf_rollup before = {.next_seq = 1};
    struct list all = {NULL, 0, 0};
    struct hf_param params[1] = {hf_param_integer(v->segment->segment_id)};
    enum hf_store_status status = v->store->ops->query(
        v->store,
        "SELECT " HF_ROLLUP_HEAD_COLUMNS
        ", CASE WHEN b.digest IS NOT NULL AND b.digest = r.batch_digest AND b.first_seq + b.rows_cnt = r.next_seq "
        "AND b.epoch = r.epoch AND b.committed_ms = r.end_ms THEN 1 ELSE 0 END "
        "FROM rollup r LEFT JOIN batch b ON b.segment_id = r.segment_id AND b.number = r.batch_number "
        "WHERE r.segment_id = $1 ORDER BY r.number",
        params, 1, add, &all, v->error);

    for (size_t i = 0; i < all.cnt && status == HF_STORE_OK; i++) {
        status = check(v, &all.list[i], &before);
        before = all.list[i].rollup;
    }
    v->report->rollups_cnt += all.cnt;
    free(all.list);
    return status;
}
