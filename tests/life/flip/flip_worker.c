/* A worker and the reader: every call of the public interface, on ids that the workers share. */
#include "flip.h"

#include "core/client.h"
#include "shm/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define IDS 80

struct worker {
    const struct flip_place *place;
    struct flip_seat *seat;
    uint64_t random;
    struct holdfast_segment *segment;
    struct holdfast *handle;
    bool guarded;
    uint64_t holds[IDS];
};

/* ---- calls -------------------------------------------------------------------------------------------------------- */

static void choose_names(struct worker *w, struct holdfast_request *request)
{
    static const char *const teams[] = {"u", "v", "w"};

    request->tenant = flip_below(&w->random, 4) == 0 ? "z" : "t";
    request->team = request->tenant[0] == 'z' ? "u" : teams[flip_below(&w->random, 3)];
    request->key = request->team[0] == 'u' && flip_below(&w->random, 3) == 0 ? "k" : NULL;
    request->capability = "c";
}

static int call_reserve(struct worker *w, const char *id, uint32_t i)
{
    struct holdfast_request request;
    struct holdfast_answer answer;

    holdfast_request_init(&request);
    request.id = id;
    choose_names(w, &request);
    if (flip_below(&w->random, 2) == 0) {
        request.model = "m";
        request.input_tokens = flip_below(&w->random, 50);
        request.economy_model = flip_below(&w->random, 3) == 0 ? "mini" : NULL;
    } else {
        request.tokens = 1U + flip_below(&w->random, 20);
        request.cost_micros = 1U + flip_below(&w->random, 200);
        request.economy_cost_micros = flip_below(&w->random, 3) == 0 ? 1 : HOLDFAST_UNKNOWN;
    }
    request.ttl_ms = flip_below(&w->random, 2) == 0 ? HOLDFAST_UNKNOWN : 1U + flip_below(&w->random, 200);
    request.want_remaining = flip_below(&w->random, 2);
    int rc = holdfast_reserve(w->handle, &request, &answer);

    if (rc == HOLDFAST_OK) {
        w->holds[i] = answer.hold;
        w->seat->admitted_cnt++;
    }
    return rc;
}

static int call_extend(struct worker *w, const char *id, uint64_t hold)
{
    struct holdfast_extension extension;
    struct holdfast_answer answer;

    holdfast_extension_init(&extension);
    extension.id = id;
    extension.hold = hold;
    if (flip_below(&w->random, 2) == 0) {
        extension.max_output_tokens = 1U + flip_below(&w->random, 100);
    } else {
        extension.cost_micros = flip_below(&w->random, 400);
        extension.tokens = flip_below(&w->random, 40);
    }
    extension.ttl_ms = flip_below(&w->random, 2) == 0 ? HOLDFAST_UNKNOWN : 1U + flip_below(&w->random, 400);
    extension.want_remaining = flip_below(&w->random, 2);
    return holdfast_extend(w->handle, &extension, &answer);
}

static int call_settle(struct worker *w, const char *id, uint64_t hold)
{
    struct holdfast_usage usage;
    struct holdfast_closing closing;

    holdfast_usage_init(&usage, flip_below(&w->random, 60), flip_below(&w->random, 60));
    if (flip_below(&w->random, 2) == 0) {
        usage.cost_micros = flip_below(&w->random, 300);
    }
    if (flip_below(&w->random, 4) == 0) {
        usage.cached_input_tokens = flip_below(&w->random, 10);
    }
    return holdfast_settle(w->handle, id, hold, flip_below(&w->random, 6) == 0 ? NULL : &usage,
                           flip_below(&w->random, 4) == 0 ? HOLDFAST_FAILURE : HOLDFAST_SUCCESS,
                           flip_below(&w->random, 3) == 0 ? "ref-1" : NULL, &closing);
}

static void see_meter(void *arg, const struct holdfast_meter *meter)
{
    uint64_t *sum = arg;

    *sum += strlen(meter->tenant) + strlen(meter->capability) + strlen(meter->model);
}

static void see_reaped(void *arg, const char *id, int kind)
{
    uint64_t *sum = arg;

    *sum += strlen(id) + (uint64_t)kind;
}

static int call_look(struct worker *w)
{
    struct holdfast_limit limits[15];
    uint64_t sum = 0;
    int reason;

    switch (flip_below(&w->random, 5)) {
    case 0:
        return holdfast_limits(w->handle, "t", NULL, NULL, limits, 15, &reason);
    case 1:
        return holdfast_limits(w->handle, "t", "v", NULL, limits, 15, &reason);
    case 2:
        return holdfast_limits(w->handle, "t", "u", "k", limits, 15, &reason);
    case 3:
        return holdfast_meters(w->handle, NULL, see_meter, &sum, &reason);
    default:
        return holdfast_meters(w->handle, "t", see_meter, &sum, &reason);
    }
}

static int call_rare(struct worker *w, const char *id, uint64_t hold)
{
    struct holdfast_path *path = NULL;
    uint64_t total = 0;
    int reason;

    switch (flip_below(&w->random, 5)) {
    case 0:
        return holdfast_credit(w->handle, "t", "u", HOLDFAST_WINDOW_MONTH,
                               (int64_t)flip_below(&w->random, 200) - 100, "more", "me", &total, &reason);
    case 1:
        return holdfast_flush(w->handle, 2);
    case 2:
        return holdfast_wait_durable(w->handle, id, hold, 2);
    case 3:
        (void)holdfast_now_ms(w->handle);
        if (w->place->injected) {
            (void)hf_clock_inject(w->handle->seg,
                                  hf_clock_now_ms(w->handle->seg) + flip_below(&w->random, 100));
        }
        return HOLDFAST_OK;
    default: {
        int rc = holdfast_resolve(w->handle, "t", "u", NULL, "c", &path, &reason);

        holdfast_path_free(path);
        return rc;
    }
    }
}

static int one_call(struct worker *w, bool reads_only)
{
    uint32_t i = flip_below(&w->random, IDS);
    uint32_t which = reads_only ? 9 : flip_below(&w->random, 12);
    uint64_t hold = flip_below(&w->random, 3) == 0 ? 0 : w->holds[i];
    struct holdfast_closing closing;
    uint64_t sum = 0;
    char id[16];
    int reason;
    static const char *const names[] = {"reserve", "reserve",  "reserve", "settle", "settle", "release",
                                        "extend",  "dispatch", "reap",    "look",   "rare",   "rare"};

    (void)snprintf(id, sizeof id, "id-%u", i);
    flip_begin(w->seat, names[which]);
    int rc;
    switch (which) {
    case 0:
    case 1:
    case 2:
        rc = call_reserve(w, id, i);
        break;
    case 3:
    case 4:
        rc = call_settle(w, id, hold);
        break;
    case 5:
        rc = holdfast_release(w->handle, id, hold, &closing);
        break;
    case 6:
        rc = call_extend(w, id, hold);
        break;
    case 7:
        rc = holdfast_dispatch(w->handle, id, hold, &reason);
        break;
    case 8:
        rc = holdfast_reap(w->handle, flip_below(&w->random, 2) == 0 ? 0 : 8, see_reaped, &sum);
        break;
    case 9:
        rc = call_look(w);
        break;
    default:
        rc = call_rare(w, id, hold);
        break;
    }
    flip_end(w->seat);
    return rc;
}

/* ---- the process ---------------------------------------------------------------------------------------------------- */

static void leave(struct worker *w)
{
    struct hf_segment seg = {.lock_fd = -1};

    if (w->segment != NULL) {
        seg = w->segment->map;
    }
    flip_begin(w->seat, "leave");
    holdfast_leave(w->handle);
    holdfast_close(w->segment);
    flip_end(w->seat);
    if (w->guarded) {
        flip_unguard(&seg);
        w->guarded = false;
    }
    w->handle = NULL;
    w->segment = NULL;
}

static bool open_and_join(struct worker *w)
{
    char error[512];

    flip_begin(w->seat, "open");
    int rc = holdfast_open(w->place->segment, &w->segment, error, sizeof error);
    flip_end(w->seat);
    if (rc != HOLDFAST_OK) {
        return false;
    }
    w->guarded = flip_guard(&w->segment->map);
    flip_begin(w->seat, "join");
    rc = holdfast_join(w->segment, &w->handle);
    flip_end(w->seat);
    if (rc != HOLDFAST_OK) {
        leave(w);
        return false;
    }
    w->seat->opens_cnt++;
    return true;
}

void flip_worker(const struct flip_place *place, struct flip_seat *seat, uint64_t seed)
{
    struct worker w = {.place = place, .seat = seat, .random = seed};
    bool reads_only = seat == &place->shared->seats[FLIP_SEATS - 1];
    const struct timespec moment = {.tv_nsec = 500000};

    while (!flip_over(place->shared)) {
        if (w.handle == NULL && !open_and_join(&w)) {
            (void)nanosleep(&moment, NULL);
            continue;
        }
        int rc = one_call(&w, reads_only);
        bool fault = rc < 0 && rc != HOLDFAST_INVALID && rc != HOLDFAST_TIMEOUT;

        /* A handle that found damage answers that for ever; a worker that is told to leaves, and comes again. */
        if (fault || flip_below(&w.random, 400) == 0) {
            leave(&w);
        } else if (reads_only) {
            (void)nanosleep(&moment, NULL);
        }
    }
    leave(&w);
    _exit(0);
}
