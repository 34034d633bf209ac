/* How a daemon begins: policy, store, segment, parts, in this order; and how it ends. */
#include "persist/serve_impl.h"

#include "shm/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a call of the store may hold up reaping, clock and heartbeat. */
#define CONNECT_MS   5000U
#define STATEMENT_MS 15000U
#define BUSY_MS      500U

/* ---- opening: store --------------------------------------------------------------------------------------------- */

static enum hf_serve_status of_store(enum hf_store_status status, const struct hf_store_error *error,
                                     struct hf_error *err)
{
    (void)hf_error_set(err, HF_ESYS, "%s", error->text);
    switch (status) {
    case HF_STORE_OK:
        return HF_SERVE_OK;
    case HF_STORE_RETRY:
    case HF_STORE_UNKNOWN:
        return HF_SERVE_RETRY;
    case HF_STORE_LOCKED:
        return HF_SERVE_LOCKED;
    default:
        return HF_SERVE_REFUSED;
    }
}

static enum hf_serve_status choose_url(struct hf_serve *serve, struct hf_error *err)
{
    const struct hf_serve_options *options = &serve->options;
    struct hf_store_error error = {""};

    if (options->store_url != NULL) {
        if (strlen(options->store_url) >= sizeof(serve->url)) {
            (void)hf_error_set(err, HF_EARG, "the store's URL is longer than %zu bytes",
                               sizeof(serve->url) - 1);
            return HF_SERVE_REFUSED;
        }
        (void)snprintf(serve->url, sizeof(serve->url), "%s", options->store_url);
        return HF_SERVE_OK;
    }
    if (options->segment == NULL) {
        return hf_temporary_make(&serve->temporary, serve->url, sizeof(serve->url), err) == HF_OK
                   ? HF_SERVE_OK
                   : HF_SERVE_REFUSED;
    }
    return of_store(hf_store_default_url(serve->url, sizeof(serve->url), &error), &error, err);
}

static struct hf_store_options store_options(const struct hf_serve *serve)
{
    struct hf_store_options store = serve->options.store;

    store.connect_timeout_ms = store.connect_timeout_ms != 0 ? store.connect_timeout_ms : CONNECT_MS;
    store.statement_timeout_ms = store.statement_timeout_ms != 0 ? store.statement_timeout_ms : STATEMENT_MS;
    store.busy_timeout_ms = store.busy_timeout_ms != 0 ? store.busy_timeout_ms : BUSY_MS;
    return store;
}

static enum hf_serve_status open_store(struct hf_serve *serve, struct hf_error *err)
{
    const struct hf_serve_options *options = &serve->options;
    struct hf_store_error error = {""};
    struct hf_store_options store = store_options(serve);
    enum hf_serve_status served = choose_url(serve, err);
    enum hf_store_status status = HF_STORE_OK;

    if (served != HF_SERVE_OK) {
        return served;
    }
    if (serve->temporary.path[0] != '\0') {
        store.durability = HF_STORE_OFF;
    }
    /* Only a store that nobody has named is made here: a mistyped URL must not begin an empty one. */
    if (options->store_url == NULL) {
        status = hf_store_init(serve->url, &store, &error);
    }
    if (status == HF_STORE_OK) {
        status = hf_store_open(serve->url, &store, &serve->store, &error);
    }
    if (status == HF_STORE_OK) {
        status = hf_store_lock(serve->store, serve->store_name, &error);
    }
    return of_store(status, &error, err);
}

static enum hf_serve_status choose_name(struct hf_serve *serve, struct hf_error *err)
{
    const struct hf_serve_options *options = &serve->options;
    const char *name = options->store_name;

    if (name == NULL) {
        const char *slash = options->segment == NULL ? NULL : strrchr(options->segment, '/');

        name = options->segment == NULL ? "run" : slash == NULL ? options->segment : slash + 1;
    }
    if (!hf_name_valid(name, strnlen(name, HF_NAME_BYTES_MAX + 1))) {
        (void)hf_error_set(err, HF_EARG, "the store name must be 1 to %d bytes without control characters",
                           HF_NAME_BYTES_MAX);
        return HF_SERVE_REFUSED;
    }
    (void)snprintf(serve->store_name, sizeof(serve->store_name), "%s", name);
    return HF_SERVE_OK;
}

/* ---- opening: segment ------------------------------------------------------------------------------------------- */

static struct hf_recover_options recover_options(struct hf_serve *serve, const char *reason)
{
    const struct hf_serve_options *o = &serve->options;
    bool private_one = o->segment == NULL;

    return (struct hf_recover_options){
        .segment = o->segment,
        .policy = &serve->policy,
        .store = serve->store,
        .store_name = serve->store_name,
        .slots = o->slots != 0 ? o->slots
                 : private_one ? HF_SERVE_SLOTS_PRIVATE
                               : HF_SERVE_SLOTS,
        .owners = o->owners != 0 ? o->owners : HF_SERVE_OWNERS,
        .replay_horizon_ms = o->replay_horizon_ms != 0 ? o->replay_horizon_ms : HF_SERVE_REPLAY_HORIZON_MS,
        .late_horizon_ms = o->late_horizon_ms != 0 ? o->late_horizon_ms : HF_SERVE_LATE_HORIZON_MS,
        /* Of a private segment nothing is behind: it is drained when its only user says so. */
        .max_lag_ms = o->max_lag_ms != 0 ? o->max_lag_ms
                      : private_one      ? HF_SHM_AMOUNT_MAX
                                         : HF_SERVE_MAX_LAG_MS,
        .mode = o->mode != 0 ? o->mode : 0660,
        .group = o->has_group ? o->group : (gid_t)-1,
        .injected = o->injected,
        .injected_ms = o->injected_ms,
        .made_by = o->made_by,
        .reason = reason,
        .log = serve->log};
}

static void say_recovered(const struct hf_serve *serve, const char *reason, uint32_t slots_asked)
{
    const struct hf_recover_report *report = &serve->report;

    hf_log_say(&serve->log, report->gap_from_ms == HF_UNKNOWN ? HF_LOG_INFO : HF_LOG_WARNING,
               "made a new segment, epoch %" PRIu64 " (%s): %" PRIu64 " open reservations holding %" PRIu64
               " tokens and %" PRIu64 " micros, %" PRIu64 " closed and %" PRIu64 " expired ones still known",
               report->epoch, reason, report->found.open_cnt, report->found.open_tokens,
               report->found.open_cost_micros, report->found.closed_cnt, report->found.late_cnt);
    if (report->gap_from_ms != HF_UNKNOWN) {
        hf_log_say(&serve->log, HF_LOG_WARNING,
                   "coverage gap: nothing is known to be committed of what happened from %" PRIu64
                   " to %" PRIu64 " (Unix ms); it is in the receipt of the epoch",
                   report->gap_from_ms, report->gap_until_ms);
    }
    if (report->slots > slots_asked) {
        hf_log_say(&serve->log, HF_LOG_WARNING,
                   "the segment has %" PRIu32 " slots, not %" PRIu32
                   ": the reservations that are still known need them. Raise --slots",
                   report->slots, slots_asked);
    }
}

static enum hf_serve_status make_segment(struct hf_serve *serve, const char *reason, struct hf_error *err)
{
    struct hf_recover_options options = recover_options(serve, reason);
    enum hf_recover_status status = hf_recover_make(&options, &serve->seg, &serve->report, err);

    if (status != HF_RECOVER_OK) {
        return status == HF_RECOVER_RETRY ? HF_SERVE_RETRY : HF_SERVE_REFUSED;
    }
    serve->attached = true;
    serve->recovered = true;
    serve->policy_revision = serve->report.policy_revision;
    say_recovered(serve, reason, options.slots);
    return HF_SERVE_OK;
}

/* The segment that stands there is one that this daemon may go on with. */
static enum hf_serve_status check_segment(struct hf_serve *serve, struct hf_error *err)
{
    const struct hf_serve_options *options = &serve->options;
    const struct hf_shm_header *header = serve->seg.header;

    if (strncmp(header->hdr_store_name, serve->store_name, sizeof(header->hdr_store_name)) != 0) {
        (void)hf_error_set(
            err, HF_EARG,
            "the segment %s keeps its receipts under the name %.63s, not %s: start with --store-name %.63s",
            options->segment, header->hdr_store_name, serve->store_name, header->hdr_store_name);
        return HF_SERVE_REFUSED;
    }
    if (serve->seg.injected != options->injected) {
        (void)hf_error_set(err, HF_EARG, "the segment %s has %s clock: start %s --clock-ms", options->segment,
                           serve->seg.injected ? "an injected" : "its own",
                           serve->seg.injected ? "with" : "without");
        return HF_SERVE_REFUSED;
    }
    return HF_SERVE_OK;
}

static void say_continued(const struct hf_serve *serve)
{
    const struct hf_shm_header *header = serve->seg.header;
    const struct hf_shm_policy *policy =
        (const struct hf_shm_policy *)(const void *)(serve->seg.policies +
                                                     (header->hdr_policy_gen & 1U) * serve->seg.policy_bytes);

    hf_log_say(&serve->log, HF_LOG_INFO, "going on with the segment of epoch %" PRIu64, header->hdr_epoch);
    if (memcmp(policy->pol_digest, serve->policy.digest, sizeof(policy->pol_digest)) != 0) {
        hf_log_say(
            &serve->log, HF_LOG_WARNING,
            "%s differs from the policy in force, which stays: applying a policy to a running segment is not built "
            "yet; to use it, end the gateways, remove the segment and start again",
            serve->policy.path);
    }
}

/* Attaches to what stands there. *reason: why a new one is to be made instead (then nothing is attached). */
static enum hf_serve_status attach(struct hf_serve *serve, const char **reason, struct hf_error *err)
{
    const char *name = serve->options.segment;
    int code = hf_segment_attach(name, &serve->seg, err);

    switch (code) {
    case HF_OK:
        serve->attached = true;
        break;
    case HF_EMISSING:
        *reason = "there was none";
        return HF_SERVE_OK;
    case HF_ENOTREADY:
        *reason = "the old one was of an earlier boot";
        return HF_SERVE_OK;
    case HF_ECORRUPT:
        hf_log_say(&serve->log, HF_LOG_ERROR, "%s", err->text);
        *reason = "the old one was damaged";
        return HF_SERVE_OK;
    default:
        return HF_SERVE_REFUSED;
    }
    uint32_t state = hf_segment_state(&serve->seg);

    /* E1 acquire -> hf_segment_set_state. Everybody else reads it as HF_SEGMENT_NEW. */
    if (hf_load_acq_u32(&serve->seg.header->hdr_state) == HF_SEGMENT_REPAIR) {
        (void)hf_error_set(
            err, HF_ENOTREADY,
            "the segment %s is being repaired, or a repair of it was cut off: run `holdfast fsck --repair "
            "--segment %s` and start again",
            name, name);
        return HF_SERVE_REFUSED;
    }
    if (state == HF_SEGMENT_SUPERSEDED || state == HF_SEGMENT_CLOSED) {
        *reason = state == HF_SEGMENT_CLOSED ? "the old one was closed" : "the old one was superseded";
        hf_segment_detach(&serve->seg);
        serve->attached = false;
        return HF_SERVE_OK;
    }
    return check_segment(serve, err);
}

static enum hf_serve_status take_daemon(struct hf_serve *serve, struct hf_error *err)
{
    int code = hf_owner_join(&serve->seg, HF_ROLE_DAEMON, &serve->owner, err);

    if (code != HF_OK) {
        return HF_SERVE_REFUSED;
    }
    serve->joined = true;
    code = hf_owner_take_daemon(&serve->seg, &serve->owner, err);
    if (code != HF_OK) {
        return HF_SERVE_REFUSED;
    }
    serve->is_daemon = true;
    return HF_SERVE_OK;
}

/* ---- opening: the working parts -------------------------------------------------------------------------------- */

static enum hf_serve_status make_parts(struct hf_serve *serve, struct hf_error *err)
{
    serve->publish = hf_publish_open(&serve->seg, &serve->log);
    if (serve->publish != NULL && hf_deadlines_open(&serve->deadlines, serve->seg.slots_cnt)) {
        struct hf_drain_options options = {.seg = &serve->seg,
                                           .store = serve->store,
                                           .store_name = serve->store_name,
                                           .daemon_ref = serve->owner.ref,
                                           .fresh = serve->recovered,
                                           .policy_revision = serve->policy_revision,
                                           .committed_ms = serve->recovered ? serve->report.now_ms : 0,
                                           .publish = serve->publish,
                                           .deadlines = &serve->deadlines,
                                           .tally = &serve->roller.tally,
                                           .log = serve->log};

        serve->drain = hf_drain_open(&options);
    }
    if (serve->drain == NULL) {
        (void)hf_error_set(err, HF_ESYS, "no memory for a daemon of %" PRIu32 " slots", serve->seg.slots_cnt);
        return HF_SERVE_REFUSED;
    }
    return HF_SERVE_OK;
}

/* Of a segment that had a daemon before: its last batch, and which policy revision it runs under. */
static enum hf_serve_status resume(struct hf_serve *serve, struct hf_error *err)
{
    struct hf_store_error error = {""};
    enum hf_store_status status;

    if (serve->recovered) {
        return HF_SERVE_OK;
    }
    hf_publish_stale(serve->publish); /* a batch that is finished now is published only by the load below */
    status = hf_drain_resume(serve->drain, &error);
    if (status == HF_STORE_BEHIND) {
        status = hf_serve_rewind(serve, &error);
    }
    if (status == HF_STORE_TAKEN) {
        hf_segment_set_state(&serve->seg, HF_SEGMENT_SUPERSEDED);
        (void)hf_error_set(
            err, HF_ESYS,
            "another daemon went on with %s in the store since this segment was served: the segment is "
            "superseded; end its gateways and start again, and a new one is made from the store",
            serve->store_name);
        return HF_SERVE_REFUSED;
    }
    return of_store(status, &error, err);
}

static enum hf_serve_status load_publications(struct hf_serve *serve, struct hf_error *err)
{
    struct hf_store_error error = {""};
    enum hf_store_status status = hf_publish_load(serve->publish, serve->store, serve->store_name,
                                                  hf_clock_now_ms(&serve->seg), &error);

    return of_store(status, &error, err);
}

static enum hf_serve_status open_segment(struct hf_serve *serve, struct hf_error *err)
{
    const char *reason = serve->options.segment == NULL ? "private" : NULL;
    struct hf_store_error error = {""};
    enum hf_serve_status status = HF_SERVE_OK;

    if (serve->options.segment != NULL) {
        status = attach(serve, &reason, err);
    }
    if (status == HF_SERVE_OK && reason != NULL) {
        status = make_segment(serve, reason, err);
    }
    if (status == HF_SERVE_OK) {
        status = take_daemon(serve, err);
    }
    if (status == HF_SERVE_OK && !serve->recovered) {
        say_continued(serve);
        status =
            of_store(hf_recover_revision(serve->store, serve->store_name, &serve->policy_revision, &error),
                     &error, err);
    }
    return status;
}

static enum hf_serve_status start(struct hf_serve *serve, struct hf_error *err)
{
    enum hf_serve_status status = make_parts(serve, err);

    if (status == HF_SERVE_OK) {
        status = resume(serve, err);
    }
    if (status == HF_SERVE_OK) {
        status = load_publications(serve, err);
    }
    if (status != HF_SERVE_OK) {
        return status;
    }
    uint64_t mono_ms = hf_clock_mono_fine_ms();

    if (serve->seg.injected) {
        (void)hf_clock_inject(&serve->seg, serve->options.injected_ms);
    } else {
        hf_clockkeeper_step(&serve->clock, &serve->seg, serve->store, mono_ms, &serve->log);
    }
    struct hf_clock_published published;

    if (!serve->seg.injected && !hf_clock_published(&serve->seg, &published)) {
        (void)hf_error_set(err, HF_ENOTREADY, "the store does not tell the time");
        return HF_SERVE_RETRY;
    }
    /* relaxed: a gauge. */
    hf_store_rlx_u64(&serve->seg.header->hdr_heartbeat_ms, mono_ms);
    if (hf_segment_state(&serve->seg) == HF_SEGMENT_NEW) {
        hf_store_rlx_u64(&serve->seg.header->hdr_durable_ms,
                         mono_ms); /* relaxed: a gauge; nothing has happened yet */
        hf_segment_set_state(&serve->seg, HF_SEGMENT_READY);
    }
    return HF_SERVE_OK;
}

enum hf_serve_status hf_serve_open(const struct hf_serve_options *options, struct hf_serve **out,
                                   struct hf_policy_report *report, struct hf_error *err)
{
    struct hf_serve *serve = calloc(1, sizeof(*serve));
    enum hf_serve_status status;

    *out = NULL;
    if (serve == NULL || options->policy_path == NULL) {
        free(serve);
        (void)hf_error_set(err, HF_EARG, "a daemon needs memory and a policy");
        return HF_SERVE_REFUSED;
    }
    serve->options = *options;
    serve->log = (struct hf_log){options->log, options->log_ctx};
    serve->seg.lock_fd = -1;
    int loaded = hf_policy_file_read(options->policy_path, options->policy_flags, &serve->policy, report);

    if (loaded != HF_POLICY_LOADED) {
        hf_serve_close(serve);
        (void)hf_error_set(err, HF_EARG, "the policy %s is refused%s", options->policy_path,
                           loaded == HF_POLICY_NO_MEMORY ? ": no memory" : "");
        return HF_SERVE_POLICY;
    }
    status = choose_name(serve, err);
    if (status == HF_SERVE_OK) {
        status = open_store(serve, err);
    }
    if (status == HF_SERVE_OK) {
        status = open_segment(serve, err);
    }
    if (status == HF_SERVE_OK) {
        status = start(serve, err);
    }
    if (status != HF_SERVE_OK) {
        hf_serve_close(serve);
        return status;
    }
    *out = serve;
    return HF_SERVE_OK;
}

void hf_serve_close(struct hf_serve *serve)
{
    if (serve == NULL) {
        return;
    }
    hf_drain_close(serve->drain);
    hf_roller_forget(&serve->roller);
    hf_publish_close(serve->publish);
    hf_deadlines_close(&serve->deadlines);
    if (serve->is_daemon) {
        hf_owner_drop_daemon(&serve->seg, &serve->owner);
    }
    if (serve->joined) {
        hf_owner_leave(&serve->seg, &serve->owner);
    }
    if (serve->attached) {
        if (serve->options.segment == NULL) {
            hf_segment_set_state(&serve->seg, HF_SEGMENT_CLOSED);
        }
        hf_segment_detach(&serve->seg);
    }
    hf_store_close(serve->store);
    hf_temporary_remove(&serve->temporary);
    hf_policy_file_free(&serve->policy);
    free(serve);
}
