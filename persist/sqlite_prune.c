/* The store in SQLite: retention deletes rows, with the trigger against that away for the moment. */
#include "persist/sqlite_impl.h"

#include <stdio.h>

enum hf_store_status hf_sqlite_retention(struct hf_store *store, struct hf_store_error *error)
{
    (void)store; /* BEGIN IMMEDIATE keeps writers out, and who may write the file owns it */
    (void)error;
    return HF_STORE_OK;
}

enum hf_store_status hf_sqlite_idle(struct hf_store *store, const char *segment, bool *idle,
                                    struct hf_store_error *error)
{
    (void)store;
    (void)segment;
    (void)error;
    *idle = true;
    return HF_STORE_OK;
}

static enum hf_store_status copy_text(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    (void)cnt;
    (void)snprintf(ctx, 1024, "%s", columns[0].bytes == NULL ? "" : columns[0].bytes);
    return HF_STORE_OK;
}

enum hf_store_status hf_sqlite_take_away(struct hf_store *store, const char *partition, int64_t segment_id,
                                         int64_t next_seq, struct hf_store_error *error)
{
    const struct hf_store_ops *ops = store->ops;
    struct hf_param params[2] = {hf_param_integer(segment_id), hf_param_integer(next_seq)};
    char trigger[1024] = "";
    enum hf_store_status status = ops->query(
        store, "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = 'receipt_no_delete'", NULL, 0,
        copy_text, trigger, error);

    (void)partition;
    if (status == HF_STORE_OK && trigger[0] == '\0') {
        return hf_store_fail(error, HF_STORE_REFUSED,
                             "the store %s lacks the trigger receipt_no_delete. Run: holdfast verify %s",
                             store->display, store->display);
    }
    if (status == HF_STORE_OK) {
        status = ops->query(store, "DROP TRIGGER receipt_no_delete", NULL, 0, NULL, NULL, error);
    }
    if (status == HF_STORE_OK) {
        status = ops->query(store, "DELETE FROM receipt WHERE segment_id = $1 AND seq < $2", params, 2, NULL,
                            NULL, error);
    }
    return status == HF_STORE_OK ? ops->query(store, trigger, NULL, 0, NULL, NULL, error) : status;
}
