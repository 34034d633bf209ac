/* The store in PostgreSQL: retention takes whole partitions. */
#include "persist/postgres_impl.h"

#include <stdio.h>
#include <string.h>

enum hf_store_status hf_postgres_retention(struct hf_store *store, struct hf_store_error *error)
{
    int64_t owner = 0;
    int64_t alone = 0;
    enum hf_store_status status = hf_pg_query(
        store,
        "SELECT pg_has_role(current_user, relowner, 'USAGE') FROM pg_class WHERE oid = 'holdfast.receipt'::regclass",
        NULL, 0, hf_store_one_integer, &owner, error);

    if (status == HF_STORE_OK && owner == 0) {
        return hf_store_fail(
            error, HF_STORE_REFUSED,
            "only the owner of the schema holdfast in %s may prune. Connect as the user who ran "
            "holdfast store init",
            store->display);
    }
    if (status == HF_STORE_OK) {
        status = hf_pg_query(store, "SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast prune', 0))",
                             NULL, 0, hf_store_one_integer, &alone, error);
    }
    if (status == HF_STORE_OK && alone == 0) {
        return hf_store_fail(error, HF_STORE_RETRY, "somebody else is pruning %s", store->display);
    }
    return status;
}

enum hf_store_status hf_postgres_idle(struct hf_store *store, const char *segment, bool *idle,
                                      struct hf_store_error *error)
{
    struct hf_param name = hf_param_text(segment);
    int64_t locked = 0;
    enum hf_store_status status =
        hf_pg_query(store, "SELECT pg_try_advisory_xact_lock(hashtextextended('holdfast segment ' || $1, 0))",
                    &name, 1, hf_store_one_integer, &locked, error);

    *idle = locked != 0;
    return status;
}

/* A daemon's transactions wait behind whoever waits for the table, so that is not for long: less than workers wait for the daemon. */
#define WAIT "SET LOCAL lock_timeout = 5000"

enum hf_store_status hf_postgres_take_away(struct hf_store *store, const char *partition, int64_t segment_id,
                                           int64_t next_seq, struct hf_store_error *error)
{
    char sql[192];
    char *name = PQescapeIdentifier(hf_postgres_of(store)->conn, partition, strlen(partition));
    enum hf_store_status status;

    (void)segment_id;
    (void)next_seq;
    if (name == NULL) {
        return hf_store_fail(error, HF_STORE_NOMEM, "no memory for a statement");
    }
    (void)snprintf(sql, sizeof(sql), "DROP TABLE holdfast.%s", name);
    PQfreemem(name);
    status = hf_pg_command(store, WAIT, "a limit of waiting", error);
    if (status == HF_STORE_OK) { /* nobody makes one meanwhile */
        status =
            hf_pg_command(store, "SELECT pg_advisory_xact_lock(hashtextextended('holdfast partitions', 0))",
                          "locking", error);
    }
    return status == HF_STORE_OK ? hf_pg_command(store, sql, "dropping a partition", error) : status;
}
