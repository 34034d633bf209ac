/* The daemon: steps until the round is over; begins again after each stop, now and then on purpose. */
#include "flip.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define TRIES_MAX 40

static void say_nothing(void *ctx, enum hf_log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    (void)text;
}

struct hf_serve_options flip_options(const struct flip_place *place)
{
    return (struct hf_serve_options){.segment = place->segment,
                                     .policy_path = place->policy,
                                     .store_url = place->store,
                                     .store_name = "flip",
                                     .slots = 256,
                                     .owners = 12,
                                     .replay_horizon_ms = 20,
                                     .late_horizon_ms = 60,
                                     .max_lag_ms = 3600000,
                                     .mode = 0600,
                                     .injected = place->injected,
                                     .injected_ms = UINT64_C(1790000000000),
                                     .log = say_nothing};
}

static struct hf_serve *open_daemon(const struct flip_place *place, struct flip_seat *seat, bool *guarded)
{
    struct hf_serve_options options = flip_options(place);
    struct hf_policy_report report = {0};
    struct hf_error err = {.text = ""};
    struct hf_serve *serve = NULL;

    flip_begin(seat, "serve open");
    (void)hf_serve_open(&options, &serve, &report, &err);
    flip_end(seat);
    hf_policy_report_free(&report);
    if (serve != NULL) {
        *guarded = flip_guard(hf_serve_segment(serve));
        seat->opens_cnt++;
    }
    return serve;
}

static void close_daemon(struct hf_serve *serve, struct flip_seat *seat, bool guarded)
{
    struct hf_segment seg = {.lock_fd = -1};

    if (serve != NULL) {
        seg = *hf_serve_segment(serve);
    }
    flip_begin(seat, "serve close");
    hf_serve_close(serve);
    flip_end(seat);
    if (serve != NULL && guarded) {
        flip_unguard(&seg);
    }
}

void flip_daemon(const struct flip_place *place, struct flip_seat *seat, uint64_t seed)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    struct hf_serve *serve = NULL;
    uint64_t random = seed;
    bool guarded = false;
    int tries = 0;

    while (!flip_over(place->shared)) {
        if (serve == NULL) {
            serve = open_daemon(place, seat, &guarded);
            if (serve == NULL) {
                (void)nanosleep(&moment, NULL);
                if (++tries > TRIES_MAX) {
                    hf_store_rel_u32(&place->shared->ruins, 1);
                }
                continue;
            }
            tries = 0;
        }
        uint32_t wait_ms = 0;

        flip_begin(seat, "serve step");
        enum hf_drain_result result = hf_serve_step(serve, &wait_ms);
        flip_end(seat);
        if (flip_below(&random, 400) == 0) {
            _exit(0); /* as if killed between two steps: the judge starts another */
        }
        if (result == HF_DRAIN_SUPERSEDED || result == HF_DRAIN_FAILED || flip_below(&random, 200) == 0) {
            close_daemon(serve, seat, guarded);
            serve = NULL;
        } else if (wait_ms > 0) {
            (void)nanosleep(&moment, NULL);
        }
    }
    close_daemon(serve, seat, guarded);
    _exit(0);
}
