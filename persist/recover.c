#include "persist/recover.h"

#include "core/policy_compile.h"
#include "core/window.h"
#include "persist/batch.h"
#include "persist/digest.h"
#include "persist/maker.h"
#include "shm/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWNER_BYTES  65536 /* of the lock file: one per owner */
#define DETAIL_BYTES 1024  /* of the epoch's details */

/* ---- who still lives ------------------------------------------------------------------------------------------- */

int hf_recover_unused(const char *segment, struct hf_error *err)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = OWNER_BYTES};
    char path[256];
    char lock_path[300];
    int code = hf_segment_path(segment, path, err);

    if (code != HF_OK) {
        return code;
    }
    (void)snprintf(lock_path, sizeof(lock_path), "%s.lock", path);
    int fd = open(lock_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0) {
        if (errno == ENOENT) {
            return HF_OK;
        }
        if (errno == ELOOP) {
            return hf_error_set(
                err, HF_EFOREIGN,
                "%s is a symbolic link, and a lock file is never followed through one; remove it", lock_path);
        }
        return hf_error_set(err, HF_ESYS,
                            "cannot look who uses the segment: %s: %s; run as a user who may write that file",
                            lock_path, strerror(errno));
    }
    code = HF_OK;
    if (fcntl(fd, F_OFD_GETLK, &lock) != 0) {
        code = hf_error_set(err, HF_ESYS, "cannot look who uses the segment: %s: %s", lock_path,
                            strerror(errno));
    } else if (lock.l_type != F_UNLCK) {
        code = hf_error_set(
            err, HF_EBUSY,
            "process number %lld of the lost segment %s still lives; a new one is made when it has "
            "ended: stop the gateways that use it (fuser %s)",
            (long long)lock.l_start, segment, lock_path);
    }
    (void)close(fd);
    return code;
}

/* ---- what the store says --------------------------------------------------------------------------------------- */

static enum hf_recover_status store_says(enum hf_store_status status, const struct hf_store_error *error,
                                         struct hf_error *err)
{
    (void)hf_error_set(err, HF_ESYS, "%s", error->text);
    switch (status) {
    case HF_STORE_OK:
        return HF_RECOVER_OK;
    case HF_STORE_RETRY:
    case HF_STORE_UNKNOWN:
    case HF_STORE_BEHIND:
        return HF_RECOVER_RETRY;
    default:
        return HF_RECOVER_REFUSED;
    }
}

/* The newest epoch or policy receipt, as far as it is of interest. */
struct last {
    bool found;
    bool same_policy; /* details hold the digest that was asked for */
    uint64_t epoch;
    uint64_t revision;
    struct hf_name currency;
    const char *digest; /* to be looked for; NULL: none */
};

static int take_last(void *ctx, const struct hf_receipt *receipt)
{
    struct last *last = ctx;

    last->found = true;
    last->epoch = receipt->epoch;
    last->revision = receipt->policy_revision;
    last->currency = receipt->currency;
    last->same_policy =
        last->digest != NULL && receipt->details != NULL && strstr(receipt->details, last->digest) != NULL;
    return 0;
}

enum hf_store_status hf_recover_revision(struct hf_store *store, const char *store_name, uint64_t *revision,
                                         struct hf_store_error *error)
{
    struct last last = {0};
    enum hf_store_status status = hf_store_last(store, store_name, HF_RECEIPT_EPOCH, take_last, &last, error);

    *revision = last.found && last.revision != HF_UNKNOWN ? last.revision : 0;
    return status;
}

/* Now, by the store, and never before what the store holds already. */
static enum hf_store_status find_now(const struct hf_recover_options *options,
                                     struct hf_recover_report *report, struct hf_store_error *error)
{
    struct hf_store_time time = {0};
    enum hf_store_status status = HF_STORE_OK;

    report->now_ms = options->injected_ms;
    if (!options->injected) {
        status = hf_store_now(options->store, &time, error);
        report->now_ms = time.now_us / 1000U;
        report->mono_ms = time.mono_ns / 1000000U;
    }
    if (report->head.last.committed_ms > report->now_ms) {
        report->now_ms = report->head.last.committed_ms;
    }
    return status;
}

static struct hf_rebuild_options rebuild_options(const struct hf_recover_options *options,
                                                 const struct hf_recover_report *report)
{
    return (struct hf_rebuild_options){.store = options->store,
                                       .store_name = options->store_name,
                                       .now_ms = report->now_ms,
                                       .replay_horizon_ms = options->replay_horizon_ms,
                                       .late_horizon_ms = options->late_horizon_ms,
                                       .log = options->log};
}

static enum hf_recover_status look(const struct hf_recover_options *options, struct hf_recover_report *report,
                                   struct last *policy, struct hf_error *err)
{
    struct hf_store_error error = {""};
    struct last epoch = {0};
    enum hf_store_status status = hf_store_head(options->store, options->store_name, &report->head, &error);

    if (status == HF_STORE_OK) {
        status =
            hf_store_last(options->store, options->store_name, HF_RECEIPT_EPOCH, take_last, &epoch, &error);
    }
    if (status == HF_STORE_OK) {
        status =
            hf_store_last(options->store, options->store_name, HF_RECEIPT_POLICY, take_last, policy, &error);
    }
    if (status == HF_STORE_OK) {
        status = find_now(options, report, &error);
    }
    if (status == HF_STORE_OK) {
        struct hf_rebuild_options rebuild = rebuild_options(options, report);

        status = hf_rebuild_survey(&rebuild, &report->found, &error);
    }
    if (status != HF_STORE_OK) {
        return store_says(status, &error, err);
    }
    if (policy->found && !hf_name_equal(&policy->currency, &options->policy->policy->currency)) {
        (void)hf_error_set(
            err, HF_EARG,
            "the policy %s is in %s and the store keeps %s in %s: use a policy in that currency, or another "
            "store name (--store-name)",
            options->policy->path, options->policy->policy->currency.bytes, options->store_name,
            policy->currency.bytes);
        return HF_RECOVER_REFUSED;
    }
    report->epoch =
        (epoch.found && epoch.epoch > report->head.last.epoch ? epoch.epoch : report->head.last.epoch) + 1;
    report->policy_new = !policy->same_policy;
    report->policy_revision = (policy->found && policy->revision != HF_UNKNOWN ? policy->revision : 0) +
                              (report->policy_new ? 1 : 0);
    report->gap_from_ms = HF_UNKNOWN;
    report->gap_until_ms = HF_UNKNOWN;
    if (report->head.last.number > 0 && report->head.last.committed_ms < report->now_ms) {
        report->gap_from_ms = report->head.last.committed_ms;
        report->gap_until_ms = report->now_ms;
    }
    return HF_RECOVER_OK;
}

enum hf_recover_status hf_recover_look(const struct hf_recover_options *options,
                                       struct hf_recover_report *report, struct hf_error *err)
{
    char hex[2 * HF_DIGEST_BYTES + 1];
    struct last policy = {.digest = hex};

    hf_digest_hex(options->policy->digest, hex);
    return look(options, report, &policy, err);
}

/* ---- making it ------------------------------------------------------------------------------------------------- */

/* A JSON string of a file's text, or NULL: no memory. Bytes that are no UTF-8 cannot be in a policy. */
static char *json_text(const char *text, size_t len)
{
    char *out = malloc(6 * len + 3);
    size_t at = 0;

    if (out == NULL) {
        return NULL;
    }
    out[at++] = '"';
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == '"' || c == '\\') {
            out[at++] = '\\';
            out[at++] = (char)c;
        } else if (c == '\n') {
            out[at++] = '\\';
            out[at++] = 'n';
        } else if (c < 0x20) {
            at += (size_t)snprintf(out + at, 7, "\\u%04x", c);
        } else {
            out[at++] = (char)c;
        }
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}

static void put_common(const struct hf_recover_options *options, const struct hf_recover_report *report,
                       enum hf_receipt_kind kind, struct hf_receipt *row)
{
    const struct hf_policy *policy = options->policy->policy;

    hf_receipt_init(row, kind);
    row->epoch = report->epoch;
    row->made_ms = report->now_ms;
    row->policy_revision = report->policy_revision;
    row->price_revision = policy->price_revision;
    row->currency = policy->currency;
    row->reason = options->reason;
    if (options->made_by != NULL) {
        (void)hf_name_set(&row->made_by, options->made_by, strnlen(options->made_by, HF_NAME_BYTES_MAX + 1));
    }
}

static char *policy_details(const struct hf_policy_file *file)
{
    char hex[2 * HF_DIGEST_BYTES + 1];
    char *text = json_text(file->bytes, file->len);
    size_t room = text == NULL ? 0 : strlen(text) + 256;
    char *details = text == NULL ? NULL : malloc(room);

    if (details != NULL) {
        hf_digest_hex(file->digest, hex);
        (void)snprintf(details, room, "{\"policy_sha256\":\"%s\",\"policy\":%s}", hex, text);
    }
    free(text);
    return details;
}

static bool epoch_details(const struct hf_recover_options *options, const struct hf_recover_report *report,
                          const struct hf_segment *seg, char details[DETAIL_BYTES])
{
    const struct hf_rebuild_found *found = &report->found;
    char hex[2 * HF_DIGEST_BYTES + 1];
    char maker[HF_MAKER_BYTES];

    if (!hf_maker_of(seg, maker)) {
        return false;
    }
    hf_digest_hex(options->policy->digest, hex);
    (void)snprintf(details, DETAIL_BYTES,
                   "{\"epoch_before\":%" PRIu64 ",\"open\":%" PRIu64 ",\"open_tokens\":%" PRIu64
                   ",\"open_cost_micros\":%" PRIu64 ",\"closed_known\":%" PRIu64 ",\"late_known\":%" PRIu64
                   ",\"conflicts\":%" PRIu64 ",\"credits\":%" PRIu64 ",\"late_horizon_ms\":%" PRIu64
                   ",\"policy_sha256\":\"%s\",\"maker\":\"%s\"}",
                   report->head.last.epoch, found->open_cnt, found->open_tokens, found->open_cost_micros,
                   found->closed_cnt, found->late_cnt, found->conflicts_cnt, found->credits_cnt,
                   seg->late_horizon_ms, hex, maker);
    return true;
}

/* Commits the epoch's receipts with the next number, and sets the header to it. */
static enum hf_recover_status commit_epoch(const struct hf_recover_options *options, struct hf_segment *seg,
                                           const struct hf_recover_report *report, struct hf_error *err)
{
    struct hf_receipt *rows = calloc(2, sizeof(*rows));
    struct hf_store_batch batch = {.number = report->head.last.number + 1,
                                   .epoch = report->epoch,
                                   .first_seq = report->head.next_seq,
                                   .committed_ms = report->now_ms};
    struct hf_store_error error = {""};
    char details[DETAIL_BYTES];
    char *policy = report->policy_new ? policy_details(options->policy) : NULL;
    size_t cnt = 0;

    if (rows == NULL || (report->policy_new && policy == NULL) ||
        !epoch_details(options, report, seg, details)) {
        free(policy);
        free(rows);
        (void)hf_error_set(err, HF_ESYS, "no memory for the receipt of the new segment");
        return HF_RECOVER_REFUSED;
    }
    put_common(options, report, HF_RECEIPT_EPOCH, &rows[cnt]);
    rows[cnt].details = details;
    rows[cnt].gap_from_ms = report->gap_from_ms;
    rows[cnt].gap_until_ms = report->gap_until_ms;
    rows[cnt].seq = batch.first_seq + cnt;
    cnt++;
    if (policy != NULL) {
        put_common(options, report, HF_RECEIPT_POLICY, &rows[cnt]);
        rows[cnt].details = policy;
        rows[cnt].seq = batch.first_seq + cnt;
        cnt++;
    }
    memcpy(batch.before, report->head.last.digest, HF_DIGEST_BYTES);
    enum hf_store_status status = hf_store_commit(options->store, &batch, rows, cnt, NULL, &error);

    if (status == HF_STORE_OK) {
        const struct hf_store_head head = {.last = batch, .next_seq = batch.first_seq + batch.rows_cnt};

        hf_batch_adopt(seg, &head);
    }
    free(policy);
    free(rows);
    return store_says(status, &error, err);
}

static enum hf_recover_status plan_segment(const struct hf_recover_options *options,
                                           struct hf_recover_report *report, struct hf_segment *seg,
                                           struct hf_error *err)
{
    struct hf_segment_plan plan = {.slots = options->slots,
                                   .owners = options->owners,
                                   .replay_horizon_ms = options->replay_horizon_ms,
                                   .late_horizon_ms = options->late_horizon_ms,
                                   .max_lag_ms = options->max_lag_ms,
                                   .epoch = report->epoch,
                                   .injected = options->injected,
                                   .injected_ms = report->now_ms,
                                   .mode = options->mode,
                                   .group = options->group,
                                   .store_name = options->store_name,
                                   .store_url = hf_store_url(options->store)};

    if (hf_policy_plan(options->policy->policy, &plan, err) != HF_OK) {
        return HF_RECOVER_REFUSED;
    }
    hf_rebuild_plan(&report->found, &plan);
    report->slots = plan.slots;
    int code = options->segment == NULL ? hf_segment_create_anonymous(&plan, seg, err)
                                        : hf_segment_create(options->segment, &plan, seg, err);

    if (code == HF_OK &&
        hf_policy_compile(options->policy->policy, options->policy->digest, 1, seg, err) != HF_OK) {
        hf_segment_detach(seg);
        return HF_RECOVER_REFUSED;
    }
    return code == HF_OK ? HF_RECOVER_OK : code == HF_EBUSY ? HF_RECOVER_RETRY : HF_RECOVER_REFUSED;
}

static enum hf_recover_status fill_segment(const struct hf_recover_options *options,
                                           struct hf_recover_report *report, struct hf_segment *seg,
                                           struct hf_error *err)
{
    struct hf_rebuild_options rebuild = rebuild_options(options, report);
    struct hf_store_error error = {""};
    /* plain: fixed by the creator. The elapsed scale at the instant that was now_ms: looking took its time since. */
    uint64_t elapsed_ms =
        options->injected ? report->now_ms : report->mono_ms + seg->header->clk_elapsed_off_ms;

    return store_says(hf_rebuild_fill(seg, &rebuild, elapsed_ms, &report->found, &error), &error, err);
}

enum hf_recover_status hf_recover_make(const struct hf_recover_options *options, struct hf_segment *seg,
                                       struct hf_recover_report *report, struct hf_error *err)
{
    enum hf_recover_status status;

    if (options->segment != NULL) {
        int code = hf_recover_unused(options->segment, err);

        if (code != HF_OK) {
            return code == HF_EBUSY ? HF_RECOVER_RETRY : HF_RECOVER_REFUSED;
        }
    }
    status = hf_recover_look(options, report, err);
    if (status == HF_RECOVER_OK) {
        status = plan_segment(options, report, seg, err);
    }
    if (status != HF_RECOVER_OK) {
        return status;
    }
    status = fill_segment(options, report, seg, err);
    if (status == HF_RECOVER_OK) {
        status = commit_epoch(options, seg, report, err);
    }
    if (status == HF_RECOVER_OK && options->segment != NULL && hf_segment_publish(seg, true, err) != HF_OK) {
        status = HF_RECOVER_REFUSED;
    }
    if (status != HF_RECOVER_OK) {
        hf_segment_detach(seg);
        return status;
    }
    if (!options->injected) {
        /* The clock begins no earlier than what the store holds; the store's own reading follows. */
        hf_clock_publish(seg, report->now_ms, report->mono_ms, 0);
    }
    if (report->gap_from_ms != HF_UNKNOWN) {
        hf_alarm(seg, HF_ALARM_COVERAGE_GAP, 1);
    }
    return HF_RECOVER_OK;
}
