#include "tests/support/daemon.h"

#include "shm/owner.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void take_line(void *ctx, enum hf_log_level level, const char *text)
{
    struct hf_test_daemon *daemon = ctx;
    size_t used = strlen(daemon->log);

    (void)level;
    (void)snprintf(daemon->log + used, sizeof(daemon->log) - used, "%s\n", text);
}

void hf_test_daemon_prepare(struct hf_test_daemon *daemon, const char *policy, bool in_file)
{
    struct hf_store_options options = {.durability = HF_STORE_OFF};
    struct hf_store_error error = {""};

    memset(daemon, 0, sizeof(*daemon));
    (void)snprintf(daemon->folder, sizeof(daemon->folder), "/tmp/holdfast-test-XXXXXX");
    assert_non_null(mkdtemp(daemon->folder));
    (void)snprintf(daemon->policy, sizeof(daemon->policy), "%s/policy.yaml", daemon->folder);
    (void)snprintf(daemon->store_url, sizeof(daemon->store_url), "sqlite:%s/store.db", daemon->folder);
    (void)snprintf(daemon->segment, sizeof(daemon->segment), "%s/segment", daemon->folder);
    FILE *out = fopen(daemon->policy, "we");

    assert_non_null(out);
    assert_true(fputs(policy, out) >= 0);
    assert_int_equal(fclose(out), 0);
    if (hf_store_init(daemon->store_url, &options, &error) != HF_STORE_OK) {
        fail_msg("store init: %s", error.text);
    }
    daemon->options = (struct hf_serve_options){.segment = in_file ? daemon->segment : NULL,
                                                .policy_path = daemon->policy,
                                                .store_url = daemon->store_url,
                                                .store_name = "test",
                                                .slots = 1024,
                                                .owners = 16,
                                                .max_lag_ms = 3600000,
                                                .injected = true,
                                                .injected_ms = UINT64_C(1790000000000),
                                                .log = take_line,
                                                .log_ctx = daemon};
}

void hf_test_daemon_open(struct hf_test_daemon *daemon)
{
    struct hf_policy_report report = {0};
    struct hf_error err = {.text = ""};

    daemon->log[0] = '\0';
    if (hf_serve_open(&daemon->options, &daemon->serve, &report, &err) != HF_SERVE_OK) {
        hf_policy_report_print(&report, stderr);
        fail_msg("serve: %s", err.text);
    }
    hf_policy_report_free(&report);
    daemon->seg = hf_serve_segment(daemon->serve);
    if (daemon->handle != NULL) {
        return; /* the worker outlived the daemon before */
    }
    if (daemon->options.segment != NULL) {
        assert_int_equal(holdfast_open(daemon->segment, &daemon->shared, NULL, 0), HOLDFAST_OK);
    } else {
        assert_int_equal(hf_client_wrap(daemon->seg, &daemon->shared), HOLDFAST_OK);
    }
    assert_int_equal(holdfast_join(daemon->shared, &daemon->handle), HOLDFAST_OK);
}

void hf_test_daemon_drop(struct hf_test_daemon *daemon)
{
    hf_serve_close(daemon->serve);
    daemon->serve = NULL;
    daemon->seg = NULL;
}

void hf_test_daemon_close(struct hf_test_daemon *daemon)
{
    holdfast_leave(daemon->handle);
    if (daemon->options.segment == NULL && daemon->shared != NULL) {
        daemon->shared->map = (struct hf_segment){.lock_fd = -1}; /* the daemon's mapping */
    }
    holdfast_close(daemon->shared);
    daemon->handle = NULL;
    daemon->shared = NULL;
    hf_test_daemon_drop(daemon);
}

void hf_test_daemon_clean(struct hf_test_daemon *daemon)
{
    DIR *dir = opendir(daemon->folder);
    const struct dirent *entry;
    char path[512];

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        (void)snprintf(path, sizeof(path), "%s/%s", daemon->folder, entry->d_name);
        (void)unlink(path);
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    assert_int_equal(rmdir(daemon->folder), 0);
}

void hf_test_daemon_drain(struct hf_test_daemon *daemon)
{
    assert_true(hf_serve_flush(daemon->serve, 60000)); /* under valgrind on a busy machine too */
}

struct hf_store_totals hf_test_daemon_totals(struct hf_test_daemon *daemon)
{
    struct hf_store_totals totals = {0};
    struct hf_store_error error = {""};

    assert_int_equal(
        hf_store_totals(hf_serve_store(daemon->serve), hf_serve_store_name(daemon->serve), &totals, &error),
        HF_STORE_OK);
    return totals;
}

struct rows {
    struct hf_receipt *rows;
    size_t max;
    size_t cnt;
};

static int take_row(void *ctx, const struct hf_receipt *receipt)
{
    struct rows *rows = ctx;

    if (rows->cnt < rows->max) {
        rows->rows[rows->cnt] = *receipt;
    }
    rows->cnt++;
    return 0;
}

size_t hf_test_daemon_receipts(struct hf_test_daemon *daemon, const char *id, struct hf_receipt *rows,
                               size_t max)
{
    struct rows all = {rows, max, 0};
    struct hf_store_error error = {""};

    assert_int_equal(hf_store_receipts(hf_serve_store(daemon->serve), hf_serve_store_name(daemon->serve), id,
                                       take_row, &all, &error),
                     HF_STORE_OK);
    return all.cnt;
}

struct wanted {
    const char *tenant;
    const char *cap;
    const char *model;
    struct holdfast_meter *meter;
    bool found;
};

static void take_meter(void *arg, const struct holdfast_meter *meter)
{
    struct wanted *wanted = arg;

    if (strcmp(meter->tenant, wanted->tenant) == 0 && strcmp(meter->capability, wanted->cap) == 0 &&
        strcmp(meter->model, wanted->model) == 0) {
        assert_false(wanted->found);
        *wanted->meter = *meter;
        wanted->found = true;
    }
}

bool hf_test_daemon_meter(struct hf_test_daemon *daemon, const char *tenant, const char *cap,
                          const char *model, struct holdfast_meter *meter)
{
    struct wanted wanted = {tenant, cap, model, meter, false};
    int reason;

    assert_int_equal(holdfast_meters(daemon->handle, NULL, take_meter, &wanted, &reason), HOLDFAST_OK);
    return wanted.found;
}

struct holdfast_limit hf_test_daemon_limit(struct hf_test_daemon *daemon, const char *tenant,
                                           const char *team, const char *key, int window, int dimension)
{
    struct holdfast_limit limits[15];
    int reason;
    int cnt = holdfast_limits(daemon->handle, tenant, team, key, limits, 15, &reason);

    for (int i = 0; i < cnt; i++) {
        if (limits[i].window == window && limits[i].dimension == dimension) {
            return limits[i];
        }
    }
    fail_msg("no such limit");
    return (struct holdfast_limit){0};
}
