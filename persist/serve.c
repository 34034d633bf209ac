#include "persist/serve.h"

#include "persist/clockkeeper.h"
#include "persist/reaper.h"
#include "persist/rewind.h"
#include "persist/roller.h"
#include "persist/temporary.h"
#include "shm/clock.h"
#include "shm/wake.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CYCLE_MS 100U   /* a daemon with nothing to do looks so often, */
#define QUIET_MS 250U   /* and so often after it had nothing to do for QUIET_AFTER_MS */
#define HOUSE_MS 1000U  /* housekeeping */
#define SEQ_MS   60000U /* how far the tenants' sequences are */

#define QUIET_AFTER_MS 1000U
#define LAG_LOOKS      4U /* so many cycles in a lag limit, so that an idle daemon is never taken for a late one */
#define COARSE_MS      5U /* deadlines are compared with the coarse clock, which may be so late */

/* How long a call of the store may hold up reaping, clock and heartbeat. */
#define CONNECT_MS   5000U
#define STATEMENT_MS 15000U
#define BUSY_MS      500U

struct hf_serve {
    struct hf_serve_options options;
    struct hf_policy_file policy;
    struct hf_temporary temporary;
    char url[1024];
    char store_name[64];
    struct hf_log log;
    struct hf_store *store;
    struct hf_segment seg;
    bool attached;
    struct hf_owner owner;
    bool joined;
    bool is_daemon; /* hdr_daemon is ours */
    struct hf_deadlines deadlines;
    struct hf_publish *publish;
    struct hf_drain *drain;
    struct hf_clockkeeper clock;
    struct hf_roller roller;
    struct hf_recover_report report;
    bool recovered;
    uint64_t policy_revision;
    uint64_t next_cycle_ms;
    uint64_t next_reap_ms;
    uint64_t next_house_ms;
    uint64_t next_seq_ms;
    uint64_t worked_ms; /* when something was to be done last */
    uint32_t woken;     /* wake_word as last seen */
};

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

static void supersede(struct hf_serve *serve, const char *why)
{
    hf_segment_set_state(&serve->seg, HF_SEGMENT_SUPERSEDED);
    hf_log_say(&serve->log, HF_LOG_ERROR, "the segment is superseded and admits nothing any more: %s", why);
}

/* The store lost commits: goes back with it, and loads anew what it says. */
static enum hf_store_status rewind_segment(struct hf_serve *serve, struct hf_store_error *error)
{
    uint64_t now_ms = hf_clock_now_ms(&serve->seg);
    const struct hf_rewind_options options = {.seg = &serve->seg,
                                              .store = serve->store,
                                              .store_name = serve->store_name,
                                              .policy_revision = serve->policy_revision,
                                              .now_ms = now_ms,
                                              .log = serve->log};
    hf_publish_stale(serve->publish); /* the marks of slots go back before what is published does */
    enum hf_store_status status = hf_rewind(&options, error);

    hf_roller_forget(&serve->roller);
    if (status == HF_STORE_OK) {
        hf_drain_rewound(serve->drain, now_ms);
        status = hf_publish_load(serve->publish, serve->store, serve->store_name, now_ms, error);
    }
    return status;
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
        status = rewind_segment(serve, &error);
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

/* ---- working ------------------------------------------------------------------------------------------------------ */

/* A tenant whose sequence nears its end needs a rebuilt segment, in which it starts at 0. */
static void look_at_sequences(struct hf_serve *serve, uint64_t mono_ms)
{
    if (mono_ms < serve->next_seq_ms) {
        return;
    }
    serve->next_seq_ms = mono_ms + SEQ_MS;
    for (uint32_t i = 0; i < serve->seg.tenants_cnt; i++) {
        /* relaxed: a sequence that is some operations old does as well. */
        uint64_t seq = hf_load_rlx_u64(&serve->seg.tenants[i].ten_word.lo) >> 20;

        if (seq >= HF_SHM_SEQ_ALARM) {
            hf_alarm(&serve->seg, HF_ALARM_SEQUENCE, 1);
            hf_log_say(
                &serve->log, HF_LOG_ERROR,
                "tenant number %" PRIu32 " has made %" PRIu64
                " operations in this segment and can make few more: end the gateways, remove the segment and start "
                "again, and it is made anew from the store",
                i, seq);
        }
    }
}

/* Once a second: the dead, and whether the file is still there. */
static void keep_house(struct hf_serve *serve, uint64_t mono_ms)
{
    if (mono_ms < serve->next_house_ms) {
        return;
    }
    serve->next_house_ms = mono_ms + HOUSE_MS;
    look_at_sequences(serve, mono_ms);
    uint32_t dead = hf_owner_sweep(&serve->seg);

    if (dead > 0) {
        hf_log_say(
            &serve->log, HF_LOG_WARNING,
            "%" PRIu32
            " processes died without leaving: what they held stays held until it is settled or expires",
            dead);
        hf_drain_look_at_all(serve->drain);
    }
    if (!hf_segment_in_place(&serve->seg) && hf_segment_state(&serve->seg) == HF_SEGMENT_READY) {
        hf_log_say(
            &serve->log, HF_LOG_ERROR,
            "the segment %s was removed or replaced: it admits nothing any more, what is in it is committed",
            serve->options.segment);
        hf_segment_set_state(&serve->seg, HF_SEGMENT_SUPERSEDED);
    }
}

/* After HF_DRAIN_BEHIND. A store that does not answer now is asked again by the next cycle, which finds the same. */
static enum hf_drain_result go_back(struct hf_serve *serve)
{
    struct hf_store_error error = {""};
    enum hf_store_status status = rewind_segment(serve, &error);

    if (status == HF_STORE_TAKEN) {
        supersede(serve, error.text);
        return HF_DRAIN_SUPERSEDED;
    }
    if (status != HF_STORE_OK) {
        hf_log_say(&serve->log, HF_LOG_WARNING, "trying again: %s", error.text);
        return HF_DRAIN_WAITING;
    }
    return HF_DRAIN_WORKED;
}

enum hf_drain_result hf_serve_cycle(struct hf_serve *serve)
{
    uint64_t mono_ms = hf_clock_mono_fine_ms();

    hf_store_rlx_u64(&serve->seg.header->hdr_heartbeat_ms, mono_ms); /* relaxed: a gauge */
    enum hf_drain_result result = hf_drain_cycle(serve->drain, mono_ms);

    return result == HF_DRAIN_BEHIND ? go_back(serve) : result;
}

/* How long until the first deadline that is known can be reaped; UINT64_MAX: there is none. */
static uint64_t until_reaping_ms(const struct hf_serve *serve, uint64_t mono_ms)
{
    if (serve->seg.injected || serve->deadlines.cnt == 0) {
        return UINT64_MAX;
    }
    uint64_t elapsed = hf_clock_elapsed_ms(&serve->seg);
    uint64_t due = serve->deadlines.next > elapsed ? serve->deadlines.next - elapsed : 0;
    uint64_t pass = serve->next_reap_ms > mono_ms ? serve->next_reap_ms - mono_ms : 0;

    due = due > UINT64_MAX - COARSE_MS ? due : due + COARSE_MS;
    return due > pass ? due : pass;
}

/* How long a daemon may sleep that has nothing to do: not past a deadline, and what is admitted meanwhile waits no longer. */
static uint32_t idle_ms(const struct hf_serve *serve, uint64_t mono_ms)
{
    uint64_t wait = mono_ms - serve->worked_ms >= QUIET_AFTER_MS ? QUIET_MS : CYCLE_MS;
    uint64_t lag = serve->seg.max_lag_ms / LAG_LOOKS;
    uint64_t reaping = until_reaping_ms(serve, mono_ms);

    wait = lag < wait ? lag : wait;
    wait = reaping < wait ? reaping : wait;
    return wait == 0 ? 1U : (uint32_t)wait;
}

enum hf_drain_result hf_serve_step(struct hf_serve *serve, uint32_t *wait_ms)
{
    uint64_t mono_ms = hf_clock_mono_fine_ms();

    hf_clockkeeper_step(&serve->clock, &serve->seg, serve->store, mono_ms, &serve->log);
    if (!serve->seg.injected && mono_ms >= serve->next_reap_ms) {
        serve->next_reap_ms = mono_ms + HF_REAPER_EVERY_MS;
        (void)hf_reaper_pass(&serve->seg, &serve->deadlines, &serve->log);
    }
    keep_house(serve, mono_ms);
    enum hf_drain_result result = hf_serve_cycle(serve);

    if (result == HF_DRAIN_IDLE || result == HF_DRAIN_WORKED) {
        hf_roller_step(&serve->roller, &serve->seg, serve->store, serve->store_name, mono_ms, &serve->log);
    }
    if (result != HF_DRAIN_IDLE || serve->worked_ms == 0) {
        serve->worked_ms = mono_ms;
    }
    *wait_ms = result == HF_DRAIN_WORKED ? 0 : idle_ms(serve, mono_ms);
    if (result == HF_DRAIN_WAITING) {
        uint64_t next = hf_drain_next_try_ms(serve->drain);
        uint64_t now = hf_clock_mono_fine_ms();

        *wait_ms = next <= now ? 1 : next - now < CYCLE_MS ? (uint32_t)(next - now) : CYCLE_MS;
    }
    return result;
}

void hf_serve_wait(struct hf_serve *serve, uint32_t wait_ms)
{
    if (wait_ms > 0) {
        serve->woken = hf_wake_wait(&serve->seg, serve->woken, wait_ms);
    }
}

bool hf_serve_flush(struct hf_serve *serve, uint32_t timeout_ms)
{
    uint64_t until = hf_clock_mono_fine_ms() + timeout_ms;

    for (;;) {
        enum hf_drain_result result = hf_serve_cycle(serve);

        if (result == HF_DRAIN_IDLE) {
            return true;
        }
        uint64_t now = hf_clock_mono_fine_ms();

        if ((result != HF_DRAIN_WORKED && result != HF_DRAIN_WAITING) || now >= until) {
            return false;
        }
        if (result == HF_DRAIN_WAITING) {
            hf_serve_wait(serve, until - now < CYCLE_MS ? (uint32_t)(until - now) : CYCLE_MS);
        }
    }
}

struct hf_segment *hf_serve_segment(struct hf_serve *serve)
{
    return &serve->seg;
}

struct hf_store *hf_serve_store(struct hf_serve *serve)
{
    return serve->store;
}

const char *hf_serve_store_name(const struct hf_serve *serve)
{
    return serve->store_name;
}

const struct hf_recover_report *hf_serve_recovered(const struct hf_serve *serve)
{
    return serve->recovered ? &serve->report : NULL;
}

struct hf_drain *hf_serve_drain(struct hf_serve *serve)
{
    return serve->drain;
}
