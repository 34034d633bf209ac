#include "tools/holdfast/store_prune.h"

#include "persist/prune.h"
#include "tools/common/utc.h"
#include "tools/holdfast/command.h"
#include "tools/holdfast/json_out.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A partition has many rows to be counted. */
#define STATEMENT_TIMEOUT_MS 600000
#define BUSY_TIMEOUT_MS      60000

struct telling {
    const struct hf_store_prune *asked;
    struct hf_json_out out;
    bool failed; /* something could not be written */
    uint64_t rows_cnt, kept_cnt;
    bool stays; /* something does */
    /* Steps of one name that go, one after the other, are told as one. */
    struct hf_prune_step going;
    char name[80];
};

static void tell_json(struct telling *t, const struct hf_prune_step *step)
{
    struct hf_json_out *out = &t->out;

    hf_json_out_begin(out);
    hf_json_out_text(out, "of", step->name);
    hf_json_out_amount(out, "first_seq", step->first_seq);
    hf_json_out_amount(out, "last_seq", step->next_seq - 1);
    hf_json_out_flag(out, "prune", step->goes);
    hf_json_out_amount(out, "receipts", step->rows_cnt);
    hf_json_out_amount(out, "kept", step->kept_cnt);
    hf_json_out_text(out, "reason", step->text);
    t->failed = hf_json_out_line(out, stdout) != 0 || t->failed;
}

static void tell(struct telling *t, const struct hf_prune_step *step)
{
    if (t->asked->json) {
        tell_json(t, step);
        return;
    }
    (void)printf("%-9s  %s, receipts %" PRIu64 " to %" PRIu64 ": ", step->goes ? "goes" : "stays", step->name,
                 step->first_seq, step->next_seq - 1);
    t->failed = (step->goes ? printf("%" PRIu64 " receipts, %" PRIu64 " others are kept\n", step->rows_cnt,
                                     step->kept_cnt)
                            : printf("%s\n", step->text)) < 0 ||
                t->failed;
}

static void tell_going(struct telling *t)
{
    if (t->going.goes) {
        tell(t, &t->going);
    }
    t->going.goes = false;
}

static void take_step(void *ctx, const struct hf_prune_step *step)
{
    struct telling *t = ctx;

    if (!step->goes) {
        tell_going(t);
        tell(t, step);
        t->stays = true;
        return;
    }
    t->rows_cnt += step->rows_cnt;
    t->kept_cnt += step->kept_cnt;
    if (t->going.goes && strcmp(t->name, step->name) == 0 && t->going.next_seq == step->first_seq) {
        t->going.next_seq = step->next_seq;
        t->going.rows_cnt += step->rows_cnt;
        t->going.kept_cnt += step->kept_cnt;
        return;
    }
    tell_going(t);
    (void)snprintf(t->name, sizeof(t->name), "%s", step->name);
    t->going = *step;
    t->going.name = t->name;
}

static void summary(struct telling *t, const char *store, uint64_t before_ms, bool ended)
{
    struct hf_json_out *out = &t->out;
    char before[HF_UTC_BYTES];

    hf_utc_format(before_ms, before);
    if (t->asked->json) {
        hf_json_out_begin(out);
        hf_json_out_text(out, "store", store);
        hf_json_out_text(out, "before", before);
        hf_json_out_flag(out, "dry_run", t->asked->dry_run);
        hf_json_out_flag(out, "ended", ended);
        hf_json_out_amount(out, "receipts", t->rows_cnt);
        hf_json_out_amount(out, "kept", t->kept_cnt);
        t->failed = hf_json_out_line(out, stdout) != 0 || t->failed;
        return;
    }
    if (t->rows_cnt == 0 && ended) {
        t->failed = printf("Nothing to prune%s.\n", t->stays ? ": what stands in the way is above"
                                                             : ": there are no receipts before that") < 0 ||
                    t->failed;
        return;
    }
    t->failed = printf(t->asked->dry_run ? "%" PRIu64 " receipts before %s would be pruned from %s\n"
                                         : "%" PRIu64 " receipts before %s were pruned from %s\n",
                       t->rows_cnt, before, store) < 0 ||
                t->failed;
}

static int prune(struct telling *t, struct hf_store *store, uint64_t before_ms)
{
    const struct passwd *user = getpwuid(geteuid());
    char made_by[HF_PRUNE_BY_BYTES];
    const struct hf_prune_options options = {.before_ms = before_ms,
                                             .made_by = made_by,
                                             .dry_run = t->asked->dry_run,
                                             .step = take_step,
                                             .ctx = t};
    struct hf_store_error error = {.text = ""};
    enum hf_store_status status;

    if (user != NULL && strlen(user->pw_name) < sizeof(made_by)) {
        (void)snprintf(made_by, sizeof(made_by), "%s", user->pw_name);
    } else {
        (void)snprintf(made_by, sizeof(made_by), "uid:%lu", (unsigned long)geteuid());
    }
    status = hf_prune(store, &options, &error);
    tell_going(t);
    if (status == HF_STORE_OK || t->rows_cnt > 0) {
        summary(t, hf_store_url(store), before_ms, status == HF_STORE_OK);
    }
    hf_json_out_free(&t->out);
    if (status == HF_STORE_INVALID) {
        return hf_command_fail("store", HF_EXIT_USAGE, "%s", error.text);
    }
    if (status == HF_STORE_RETRY || status == HF_STORE_UNKNOWN) {
        return hf_command_fail("store", HF_EXIT_FAILED,
                               "pruning did not come to its end: %s. What is told above is done; prune again",
                               error.text);
    }
    if (status != HF_STORE_OK) {
        return hf_command_fail("store", HF_EXIT_FAILED, "cannot prune the store: %s", error.text);
    }
    if (t->failed || fflush(stdout) != 0) {
        return hf_command_fail("store", HF_EXIT_FAILED, "what was pruned could not be written");
    }
    return HF_EXIT_OK;
}

int hf_store_prune(const char *url, const struct hf_store_prune *asked)
{
    const struct hf_store_options options = {.role = HF_STORE_OWNER,
                                             .statement_timeout_ms = STATEMENT_TIMEOUT_MS,
                                             .busy_timeout_ms = BUSY_TIMEOUT_MS};
    struct telling t = {.asked = asked};
    struct hf_store_error error = {.text = ""};
    struct hf_store *store = NULL;
    uint64_t before_ms = 0;
    enum hf_store_status status;
    int exit_status;

    if (!hf_utc_parse(asked->before, &before_ms)) {
        return hf_command_misuse("store",
                                 "--before takes a time in UTC, 2026-09-01 or 2026-09-01T00:00:00Z, not '%s'",
                                 asked->before);
    }
    status = hf_store_open(url, &options, &store, &error);
    exit_status = status == HF_STORE_OK
                      ? prune(&t, store, before_ms)
                      : hf_command_fail("store", status == HF_STORE_INVALID ? HF_EXIT_USAGE : HF_EXIT_FAILED,
                                        "cannot open the store: %s", error.text);
    hf_store_close(store);
    return exit_status;
}
