/* What all stores share: handles, connections that come back by themselves, the single-writer lock. */
#include "persist/store_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct hf_store_ops *const all_ops[] = {&hf_sqlite_ops, &hf_postgres_ops};
#define OPS_CNT       (sizeof(all_ops) / sizeof(all_ops[0]))
#define LOCK_PAUSE_MS 20

const char *hf_store_status_name(enum hf_store_status status)
{
    switch (status) {
    case HF_STORE_OK:
        return "ok";
    case HF_STORE_RETRY:
        return "retry";
    case HF_STORE_UNKNOWN:
        return "unknown";
    case HF_STORE_TAKEN:
        return "taken";
    case HF_STORE_BEHIND:
        return "behind";
    case HF_STORE_LOCKED:
        return "locked";
    case HF_STORE_STOPPED:
        return "stopped";
    case HF_STORE_REFUSED:
        return "refused";
    case HF_STORE_SCHEMA:
        return "schema";
    case HF_STORE_INVALID:
        return "invalid";
    case HF_STORE_NOMEM:
        return "no-memory";
    }
    return "?";
}

enum hf_store_status hf_store_fail(struct hf_store_error *error, enum hf_store_status status,
                                   const char *format, ...)
{
    va_list args;
    size_t len;

    if (error == NULL) {
        return status;
    }
    va_start(args, format);
    vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    for (len = strlen(error->text); len > 0 && error->text[len - 1] == '\n'; len--) {
        error->text[len - 1] = '\0';
    }
    return status;
}

struct hf_param hf_param_text(const char *text)
{
    return (struct hf_param){HF_PARAM_TEXT, 0, text, strlen(text)};
}

/* ---- URLs ------------------------------------------------------------------------------------------------------- */

static const struct hf_store_ops *ops_of(const char *url)
{
    for (size_t i = 0; i < OPS_CNT; i++) {
        if (all_ops[i]->mine(url)) {
            return all_ops[i];
        }
    }
    return NULL;
}

void hf_store_display_url(const char *url, char *text, size_t text_bytes)
{
    const struct hf_store_ops *ops = ops_of(url);

    if (ops == NULL) {
        snprintf(text, text_bytes, "(not a store URL)");
        return;
    }
    ops->display(url, text, text_bytes);
}

enum hf_store_status hf_store_default_url(char *url, size_t url_bytes, struct hf_store_error *error)
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    int len;

    /* The XDG rule: a relative path there is to be ignored. */
    if (state != NULL && state[0] == '/') {
        len = snprintf(url, url_bytes, "sqlite:%s/holdfast/holdfast.db", state);
    } else if (home != NULL && home[0] == '/') {
        len = snprintf(url, url_bytes, "sqlite:%s/.local/state/holdfast/holdfast.db", home);
    } else {
        return hf_store_fail(
            error, HF_STORE_INVALID,
            "there is no default store: neither XDG_STATE_HOME nor HOME is set. Name one: sqlite:PATH");
    }
    if (len < 0 || (size_t)len >= url_bytes) {
        return hf_store_fail(error, HF_STORE_INVALID,
                             "the path of the default store is too long. Name a shorter one: sqlite:PATH");
    }
    return HF_STORE_OK;
}

/* ---- handles ---------------------------------------------------------------------------------------------------- */

static void fill_options(struct hf_store_options *options, const struct hf_store_options *given)
{
    if (given != NULL) {
        *options = *given;
    }
    if (options->connect_timeout_ms == 0) {
        options->connect_timeout_ms = 10000;
    }
    if (options->statement_timeout_ms == 0) {
        options->statement_timeout_ms = 30000;
    }
    if (options->busy_timeout_ms == 0) {
        options->busy_timeout_ms = 5000;
    }
    if (options->lock_wait_ms == 0) {
        options->lock_wait_ms = 2000;
    }
}

/* A handle without a connection. */
static enum hf_store_status make(const char *url, const struct hf_store_options *options,
                                 struct hf_store **made, struct hf_store_error *error)
{
    const struct hf_store_ops *ops = ops_of(url);
    struct hf_store *store;
    char display[512];

    if (ops == NULL) {
        return hf_store_fail(
            error, HF_STORE_INVALID,
            "that is no store URL. Use sqlite:PATH, postgresql://HOST/DATABASE or host=... dbname=...");
    }
    store = ops->make();
    if (store == NULL) {
        return hf_store_fail(error, HF_STORE_NOMEM, "no memory for a store");
    }
    store->ops = ops;
    ops->display(url, display, sizeof(display));
    store->url = strdup(url);
    store->display = strdup(display);
    store->digest = hf_digest_new();
    fill_options(&store->options, options);
    if (store->url == NULL || store->display == NULL || store->digest == NULL) {
        hf_store_close(store);
        return hf_store_fail(error, HF_STORE_NOMEM, "no memory for a store, or libcrypto without SHA-256");
    }
    *made = store;
    return HF_STORE_OK;
}

enum hf_store_status hf_store_open(const char *url, const struct hf_store_options *options,
                                   struct hf_store **store, struct hf_store_error *error)
{
    enum hf_store_status status;

    *store = NULL;
    status = make(url, options, store, error);
    if (status == HF_STORE_OK) { /* then *store is set: asked again for the analyzer */
        status = *store == NULL ? HF_STORE_NOMEM : hf_store_ensure(*store, error);
    }
    if (status != HF_STORE_OK) {
        hf_store_close(*store);
        *store = NULL;
    }
    return status;
}

void hf_store_disconnect(struct hf_store *store)
{
    store->ops->disconnect(store);
    store->locked = false;
}

void hf_store_close(struct hf_store *store)
{
    if (store == NULL) {
        return;
    }
    hf_store_disconnect(store);
    hf_digest_free(store->digest);
    free(store->url);
    free(store->display);
    store->ops->destroy(store);
}

const char *hf_store_url(const struct hf_store *store)
{
    return store->display;
}

enum hf_store_status hf_store_init(const char *url, const struct hf_store_options *options,
                                   struct hf_store_error *error)
{
    struct hf_store *store = NULL;
    enum hf_store_status status = make(url, options, &store, error);

    if (status != HF_STORE_OK) {
        return status;
    }
    if (store == NULL) { /* make() says otherwise; for the analyzer */
        return HF_STORE_NOMEM;
    }
    status = store->ops->connect(store, true, error);
    if (status == HF_STORE_OK) {
        status = store->ops->begin(store, error);
    }
    if (status == HF_STORE_OK) {
        status = store->ops->init_lock(store, error);
    }
    if (status == HF_STORE_OK) {
        status = hf_schema_check(store, true, error);
    }
    if (status == HF_STORE_OK) {
        status = store->ops->commit(store, error);
    }
    if (status != HF_STORE_OK && store->ops->connected(store)) {
        store->ops->rollback(store);
    }
    hf_store_close(store);
    return status;
}

/* ---- the lock ----------------------------------------------------------------------------------------------------- */

enum hf_store_status hf_store_one_integer(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    (void)cnt;
    *(int64_t *)ctx = columns[0].integer;
    return HF_STORE_OK;
}

enum hf_store_status hf_store_one_or_none(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    (void)cnt;
    *(int64_t *)ctx = columns[0].null ? INT64_MAX : columns[0].integer;
    return HF_STORE_OK;
}

enum hf_store_status hf_store_add_integer(void *ctx, const struct hf_column *columns, unsigned cnt)
{
    struct hf_store_integers *all = ctx;

    (void)cnt;
    if (all->cnt == all->cap) {
        size_t cap = all->cap == 0 ? 16 : 2 * all->cap;
        int64_t *list = realloc(all->list, cap * sizeof(*list));

        if (list == NULL) {
            return HF_STORE_NOMEM;
        }
        all->list = list;
        all->cap = cap;
    }
    all->list[all->cnt++] = columns[0].integer;
    return HF_STORE_OK;
}

enum hf_store_status hf_store_stopped(struct hf_store_error *error)
{
    return hf_store_fail(error, HF_STORE_STOPPED, "reading was stopped by the reader");
}

/* On the present connection. */
static enum hf_store_status find_segment(struct hf_store *store, const char *segment, int64_t *segment_id,
                                         struct hf_store_error *error)
{
    struct hf_param name = hf_param_text(segment);

    *segment_id = 0;
    return store->ops->query(store, "SELECT segment_id FROM segment WHERE name = $1", &name, 1,
                             hf_store_one_integer, segment_id, error);
}

/* Tries until the time is up: a daemon that was killed a moment ago may hold it until its connection is cleaned away. */
static enum hf_store_status wait_for_lock(struct hf_store *store, struct hf_store_error *error)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000L};
    uint32_t waited_ms = 0;
    enum hf_store_status status;

    while ((status = store->ops->take_lock(store, error)) == HF_STORE_LOCKED &&
           waited_ms < store->options.lock_wait_ms) {
        nanosleep(&pause, NULL);
        waited_ms += LOCK_PAUSE_MS;
    }
    return status;
}

static enum hf_store_status lock_now(struct hf_store *store, struct hf_store_error *error)
{
    struct hf_param name = hf_param_text(store->segment.bytes);
    struct hf_param number;
    int64_t aside_cnt = 0;
    enum hf_store_status status = wait_for_lock(store, error);

    if (status == HF_STORE_OK) {
        status = find_segment(store, store->segment.bytes, &store->segment_id, error);
    }
    if (status == HF_STORE_OK && store->segment_id == 0) {
        status = store->ops->query(store, "INSERT INTO segment (name) VALUES ($1) ON CONFLICT DO NOTHING",
                                   &name, 1, NULL, NULL, error);
        if (status == HF_STORE_OK) {
            status = find_segment(store, store->segment.bytes, &store->segment_id, error);
        }
    }
    if (status == HF_STORE_OK) {
        number = hf_param_integer(store->segment_id);
        status = store->ops->query(store, "SELECT count(*) FROM conflict WHERE segment_id = $1", &number, 1,
                                   hf_store_one_integer, &aside_cnt, error);
    }
    store->has_aside = aside_cnt != 0;
    store->locked = status == HF_STORE_OK;
    return status;
}

enum hf_store_status hf_store_ensure(struct hf_store *store, struct hf_store_error *error)
{
    enum hf_store_status status;

    if (store->ops->connected(store)) {
        return HF_STORE_OK;
    }
    store->locked = false;
    status = store->ops->connect(store, false, error);
    if (status == HF_STORE_OK) {
        status = hf_schema_check(store, false, error);
    }
    if (status == HF_STORE_OK && store->segment.len != 0) {
        status = lock_now(store, error);
    }
    if (status != HF_STORE_OK) {
        hf_store_disconnect(store);
    }
    return status;
}

enum hf_store_status hf_store_lock(struct hf_store *store, const char *segment, struct hf_store_error *error)
{
    enum hf_store_status status;

    if (store->segment.len != 0) {
        if (!hf_name_is(&store->segment, segment, strlen(segment))) {
            return hf_store_fail(error, HF_STORE_INVALID,
                                 "this handle writes under the name '%s' already; open another one",
                                 store->segment.bytes);
        }
        return hf_store_ensure(store, error);
    }
    if (store->options.role != HF_STORE_WRITER) {
        return hf_store_fail(error, HF_STORE_INVALID, "this handle only reads; open one that writes");
    }
    status = hf_store_ensure(store, error);
    if (status != HF_STORE_OK) {
        return status;
    }
    if (!hf_name_set(&store->segment, segment, strlen(segment))) {
        return hf_store_fail(
            error, HF_STORE_INVALID,
            "a segment's name in the store has 1 to 63 bytes of UTF-8 without control characters");
    }
    status = lock_now(store, error);
    if (status != HF_STORE_OK) {
        /* Not ours, so no reconnect may try to take it behind the caller's back. */
        memset(&store->segment, 0, sizeof(store->segment));
        hf_store_disconnect(store);
    }
    return status;
}

/* ---- queries ------------------------------------------------------------------------------------------------------ */

enum hf_store_status hf_store_query(struct hf_store *store, const char *sql, const struct hf_param *params,
                                    unsigned params_cnt, hf_columns_fn *fn, void *ctx,
                                    struct hf_store_error *error)
{
    enum hf_store_status status = hf_store_ensure(store, error);

    return status == HF_STORE_OK ? store->ops->query(store, sql, params, params_cnt, fn, ctx, error) : status;
}

enum hf_store_status hf_store_segment_id(struct hf_store *store, const char *segment, int64_t *segment_id,
                                         struct hf_store_error *error)
{
    enum hf_store_status status = hf_store_ensure(store, error);

    if (status != HF_STORE_OK) {
        return status;
    }
    if (store->locked && hf_name_is(&store->segment, segment, strlen(segment))) {
        *segment_id = store->segment_id;
        return HF_STORE_OK;
    }
    return find_segment(store, segment, segment_id, error);
}

enum hf_store_status hf_store_now(struct hf_store *store, struct hf_store_time *time,
                                  struct hf_store_error *error)
{
    enum hf_store_status status = hf_store_ensure(store, error);

    return status == HF_STORE_OK ? store->ops->now(store, time, error) : status;
}
