/* Verification: is what keeps a store append-only still in force, and is it what this build made? */
#include "persist/verify_impl.h"

static void found(void *ctx, const char *text)
{
    hf_verify_find(ctx, HF_VERIFY_SCHEMA, 0, 0, 0, NULL, "%s", text);
}

enum hf_store_status hf_verify_schema(struct hf_verify *v)
{
    return v->store->ops->schema(v->store, found, v, v->error);
}
