/* The migration records: what a store was made by, against what this build carries. */
#include "persist/store_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIGRATIONS_MAX 64

struct recorded {
    int64_t version;
    char checksum[2 * HF_DIGEST_BYTES + 1];
};

struct records {
    struct recorded list[MIGRATIONS_MAX];
    size_t cnt;
};

static enum hf_store_status one_flag(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    (void)cnt;
    *(bool *)ctx = columns[0].integer != 0;
    return HF_STORE_OK;
}

static enum hf_store_status one_record(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct records *records = ctx;
    struct recorded *record;

    (void)cnt;
    if (records->cnt == MIGRATIONS_MAX) {
        return HF_STORE_SCHEMA;
    }
    record = &records->list[records->cnt++];
    record->version = columns[0].integer;
    snprintf(record->checksum, sizeof(record->checksum), "%s",
             columns[1].bytes == NULL ? "" : columns[1].bytes);
    return HF_STORE_OK;
}

static bool of_store(const struct hf_schema_file *file, const char *suffix)
{
    size_t name = strlen(file->name);
    size_t end = strlen(suffix);

    return name > end && strcmp(file->name + name - end, suffix) == 0;
}

static const struct recorded *find(const struct records *records, int64_t version)
{
    for (size_t i = 0; i < records->cnt; i++) {
        if (records->list[i].version == version) {
            return &records->list[i];
        }
    }
    return NULL;
}

static enum hf_store_status apply_file(struct hf_store *store, const struct hf_schema_file *file,
                                       const char *checksum, struct hf_store_error *error)
{
    struct timespec now;
    struct hf_param params[4];
    enum hf_store_status status = store->ops->script(store, file->text, error);

    if (status != HF_STORE_OK) {
        return status;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    params[0] = hf_param_integer(strtol(file->name, NULL, 10));
    params[1] = hf_param_text(file->name);
    params[2] = hf_param_text(checksum);
    params[3] = hf_param_integer((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    return store->ops->query(
        store, "INSERT INTO migration (version, name, checksum, applied_ms) VALUES ($1, $2, $3, $4)", params,
        4, NULL, NULL, error);
}

static enum hf_store_status check_file(struct hf_store *store, const struct hf_schema_file *file,
                                       const struct records *records, bool apply,
                                       struct hf_store_error *error)
{
    const struct recorded *record = find(records, strtol(file->name, NULL, 10));
    uint8_t digest[HF_DIGEST_BYTES];
    char checksum[2 * HF_DIGEST_BYTES + 1];

    if (!hf_digest_bytes(store->digest, file->text, file->len, digest)) {
        return hf_store_fail(error, HF_STORE_NOMEM, "libcrypto failed to compute a SHA-256");
    }
    hf_digest_hex(digest, checksum);
    if (record == NULL && apply) {
        return apply_file(store, file, checksum, error);
    }
    if (record == NULL) {
        return hf_store_fail(
            error, HF_STORE_SCHEMA,
            "the store %s lacks the schema change %s that this build needs. Run: holdfast store init URL",
            store->display, file->name);
    }
    if (strcmp(record->checksum, checksum) != 0) {
        return hf_store_fail(
            error, HF_STORE_SCHEMA,
            "the store %s was made by another build: its record of %s has the checksum %.16s..., this build "
            "has %.16s.... Use the build that made it, or make a new store",
            store->display, file->name, record->checksum, checksum);
    }
    return HF_STORE_OK;
}

enum hf_store_status hf_schema_check(struct hf_store *store, bool apply, struct hf_store_error *error)
{
    struct records records = {.cnt = 0};
    bool there = false;
    int64_t newest = 0;
    enum hf_store_status status =
        store->ops->query(store, store->ops->schema_probe, NULL, 0, one_flag, &there, error);

    if (status == HF_STORE_OK && there) {
        status = store->ops->query(store, "SELECT version, checksum FROM migration ORDER BY version", NULL, 0,
                                   one_record, &records, error);
    } else if (status == HF_STORE_OK && !apply) {
        return hf_store_fail(error, HF_STORE_SCHEMA,
                             "there is no holdfast schema in %s yet. Make it: holdfast store init URL",
                             store->display);
    }
    for (const struct hf_schema_file *file = hf_schema_files; status == HF_STORE_OK && file->name != NULL;
         file++) {
        if (of_store(file, store->ops->schema_suffix)) {
            newest = strtol(file->name, NULL, 10);
            status = check_file(store, file, &records, apply, error);
        }
    }
    if (status == HF_STORE_OK && records.cnt > 0 && records.list[records.cnt - 1].version > newest) {
        return hf_store_fail(
            error, HF_STORE_SCHEMA,
            "the store %s has schema version %lld, this build knows up to %lld. Use a newer holdfast",
            store->display, (long long)records.list[records.cnt - 1].version, (long long)newest);
    }
    return status;
}
