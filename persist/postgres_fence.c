/* The store in PostgreSQL: partitions, and the fence: an index of ids that rows run into, or one question for a whole batch. */
#include "persist/postgres_impl.h"

#include <string.h>

/* ---- looking ids up ------------------------------------------------------------------------------------------------------ */

struct fence {
    struct hf_lookup *lookups;
    size_t cnt;
};

static enum hf_store_status read_lookup(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct fence *fence = ctx;
    uint64_t i = (uint64_t)columns[0].integer - 1;
    uint64_t seq = (uint64_t)columns[1].integer;
    struct hf_lookup *lookup;

    (void)cnt;
    if (i >= fence->cnt || columns[2].len != HF_DIGEST_BYTES) {
        return HF_STORE_REFUSED;
    }
    lookup = &fence->lookups[i];
    if (!lookup->found || seq > lookup->seq) {
        lookup->found = true;
        lookup->seq = seq;
        memcpy(lookup->digest, columns[2].bytes, HF_DIGEST_BYTES);
        lookup->conflict = columns[3].integer != 0;
    }
    return HF_STORE_OK;
}

/* A text[] in binary: dimensions, has nulls, element type; length and lower bound; then the elements. */
static bool encode_ids(struct hf_postgres *pg, const struct hf_lookup *lookups, size_t cnt)
{
    pg->buffer_len = 0;
    if (!hf_pg_room(pg, 20 + cnt * (4 + HF_NAME_BYTES_MAX))) {
        return false;
    }
    hf_pg_put_be32(pg, 1);
    hf_pg_put_be32(pg, 0);
    hf_pg_put_be32(pg, HF_OID_TEXT);
    hf_pg_put_be32(pg, (uint32_t)cnt);
    hf_pg_put_be32(pg, 1);
    for (size_t i = 0; i < cnt; i++) {
        hf_pg_put_bytes(pg, lookups[i].id->bytes, lookups[i].id->len);
    }
    return true;
}

/* LATERAL with LIMIT, so that each id goes by the index, whatever the planner believes about the table's size. */
#define LOOKUP(table, segment, condition, newest)                                                        \
    "SELECT i.n, r.seq, r.digest, r.conflict FROM unnest($2) WITH ORDINALITY AS i (id, n), "             \
    "LATERAL (SELECT seq, digest, conflict FROM " table                                                  \
    " t WHERE t.kind = 'reservation' AND t.id = i.id AND " segment " = $1" condition " ORDER BY " newest \
    " DESC LIMIT 1) AS r"
/* The index of ids begins with the id, and the segment is no column by which another one could be taken: of a segment that is newer
 * than the statistics the planner believes that it has no rows, so that the primary key were as good. */
#define SEGMENT "t.segment_id + 0"
/* The order of the index of ids: in a partition a conflict comes after the first one, and then they rise. */
#define NEWEST "CASE WHEN t.conflict THEN t.seq ELSE 0 END"

static enum hf_store_status look_up(struct hf_store *store, const char *sql, const uint64_t *before_seq,
                                    struct fence *fence, struct hf_store_error *error)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    const Oid types[3] = {HF_OID_INT8, HF_OID_TEXTS, HF_OID_INT8};
    char segment_id[8];
    char before[8];
    const char *values[3] = {segment_id, pg->buffer, before};
    int lengths[3] = {8, (int)pg->buffer_len, 8};
    const int formats[3] = {1, 1, 1};

    hf_put_be64(segment_id, (uint64_t)store->segment_id);
    hf_put_be64(before, before_seq == NULL ? 0 : *before_seq);
    if (PQsendQueryParams(pg->conn, sql, before_seq == NULL ? 2 : 3, types, values, lengths, formats, 1) ==
            0 ||
        PQsetSingleRowMode(pg->conn) == 0 || !hf_pg_flush(store)) {
        return hf_pg_judge(store, NULL, "looking up ids", error).status;
    }
    return hf_pg_rows(store, read_lookup, fence, error);
}

enum hf_store_status hf_postgres_lookup(struct hf_store *store, struct hf_lookup *lookups, size_t cnt,
                                        uint64_t before_seq, struct hf_store_error *error)
{
    struct fence fence = {.lookups = lookups, .cnt = cnt};
    enum hf_store_status status = HF_STORE_OK;

    if (!encode_ids(hf_postgres_of(store), lookups, cnt)) {
        return hf_pg_no_memory(error);
    }
    if (before_seq == HF_UNKNOWN) {
        status = look_up(store, LOOKUP("receipt", SEGMENT, "", NEWEST), NULL, &fence, error);
    } else if (hf_postgres_of(store)->older) {
        status =
            look_up(store, LOOKUP("receipt", SEGMENT, " AND t.seq < $3", NEWEST), &before_seq, &fence, error);
    }
    if (status == HF_STORE_OK && store->has_aside) {
        status = look_up(store, LOOKUP("conflict", "t.segment_id", "", "t.seq"), NULL, &fence, error);
    }
    return status;
}

/* ---- partitions ----------------------------------------------------------------------------------------------------- */

static enum hf_store_status read_partition(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct hf_postgres *pg = ctx;
    int64_t first = columns[0].integer;
    int64_t next = columns[1].integer;

    (void)cnt;
    /* Neighbours are one range: a batch may reach into the next one. */
    if (first != pg->partition_next) {
        pg->partition_first = first;
    }
    pg->partition_next = next;
    return HF_STORE_OK;
}

/* Sees to it that there are partitions for these numbers. Asks once in millions of receipts, and once after each connect. */
static enum hf_store_status ensure_partitions(struct hf_store *store, int64_t seq, int64_t next_seq,
                                              struct hf_store_error *error)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    enum hf_store_status status = HF_STORE_OK;

    if (seq >= pg->partition_first && seq < pg->partition_next) {
        seq = pg->partition_next;
    }
    while (seq < next_seq && status == HF_STORE_OK) {
        struct hf_param param = hf_param_integer(seq);

        status = hf_pg_query(store, "SELECT first, next FROM ensure_partition($1)", &param, 1, read_partition,
                             pg, error);
        if (status == HF_STORE_OK && pg->partition_next <= seq) {
            return hf_store_fail(
                error, HF_STORE_REFUSED,
                "there is no partition for receipt %lld in %s. Was the schema changed by hand?",
                (long long)seq, store->display);
        }
        seq = pg->partition_next;
    }
    return status;
}

static enum hf_store_status read_newest(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct hf_postgres *pg = ctx;

    (void)cnt;
    pg->newest_first = columns[0].integer;
    pg->newest_next = columns[1].integer;
    pg->older = columns[2].integer != 0;
    pg->once = columns[3].integer != 0;
    return HF_STORE_OK;
}

/* Conflicts whose first one is not in the partition: 1 also when there are too many conflicts to tell. */
#define STRAYS                                                                                             \
    "SELECT count(*) = 256 OR count(*) FILTER (WHERE c.first IS NULL) > 0 FROM (SELECT ("                  \
    "SELECT 1 FROM receipt t WHERE t.kind = 'reservation' AND t.id = r.id AND " NEWEST " = 0 AND " SEGMENT \
    " = $1 AND t.seq >= $2 LIMIT 1) AS first FROM receipt r "                                              \
    "WHERE r.segment_id = $1 AND r.conflict AND r.kind = 'reservation' AND r.seq >= $2 LIMIT 256) AS c"

/* What there is to know of the partition of a number. Asked as often as ensure_partitions asks. */
static enum hf_store_status ask_newest(struct hf_store *store, int64_t seq, struct hf_store_error *error)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    struct hf_param params[2] = {hf_param_integer(seq)};
    int64_t strays = 0;
    enum hf_store_status status = hf_pg_query(
        store,
        "SELECT p.first, p.next, EXISTS (SELECT FROM partition o WHERE o.first < p.first), EXISTS ("
        "SELECT FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid WHERE x.indrelid = p.oid "
        "AND i.relname = p.name || '_once' AND x.indisunique AND x.indisvalid AND x.indisready) "
        "FROM (SELECT *, to_regclass(format('holdfast.%I', name)) AS oid FROM partition) AS p "
        "WHERE p.first <= $1 AND p.next > $1",
        params, 1, read_newest, pg, error);

    if (status == HF_STORE_OK && pg->once) {
        params[0] = hf_param_integer(store->segment_id);
        params[1] = hf_param_integer(pg->newest_first);
        status = hf_pg_query(store, STRAYS, params, 2, hf_store_one_integer, &strays, error);
        store->stray = strays != 0;
    }
    if (status != HF_STORE_OK) {
        hf_postgres_forget_partitions(pg);
    }
    return status;
}

enum hf_store_status hf_postgres_fence(struct hf_store *store, uint64_t first_seq, uint64_t next_seq,
                                       struct hf_fence *fence, struct hf_store_error *error)
{
    struct hf_postgres *pg = hf_postgres_of(store);
    int64_t last = (int64_t)next_seq - 1;
    enum hf_store_status status = ensure_partitions(store, (int64_t)first_seq, (int64_t)next_seq, error);

    if (status == HF_STORE_OK && (last < pg->newest_first || last >= pg->newest_next)) {
        status = ask_newest(store, last, error);
    }
    /* A batch may begin in the partition before: all that is stored of it comes before first_seq. */
    fence->once = pg->once && !store->stray;
    fence->elsewhere = pg->older || store->has_aside;
    fence->first_seq = (uint64_t)pg->newest_first;
    return status;
}
