/* The daemon and the reaper of the stress, as processes that may be killed at any time. */
#include "tests/stress/board.h"

#include "persist/serve.h"
#include "shm/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void take_line(void *ctx, enum hf_log_level level, const char *text)
{
    FILE *out = ctx;

    if (level == HF_LOG_ERROR && strstr(text, "is kept as a conflict") == NULL) { /* these are counted */
        (void)fprintf(stderr, "daemon: %s\n", text);
    }
    (void)fprintf(out, "%s\n", text);
    (void)fflush(out);
}

/* Opens; a store that is still locked by a daemon that was just killed is asked again. */
static struct hf_serve *open_daemon(struct stress_board *board, const struct hf_serve_options *options)
{
    struct hf_policy_report report = {0};
    struct hf_error err = {.text = ""};
    struct hf_serve *serve = NULL;

    for (int i = 0; i < 20000; i++) {
        enum hf_serve_status status = hf_serve_open(options, &serve, &report, &err);

        hf_policy_report_free(&report);
        if (status == HF_SERVE_OK) {
            return serve;
        }
        if (status != HF_SERVE_RETRY && status != HF_SERVE_LOCKED) {
            break;
        }
        (void)usleep(1000);
    }
    stress_wrong(board, "the daemon cannot open: %s", err.text);
    _exit(3);
}

void stress_serve(const char *folder, struct stress_board *board)
{
    const struct stress_config *config = stress_config(board->config);
    char segment[256];
    char policy[256];
    char url[256];
    char log[256];

    (void)snprintf(segment, sizeof(segment), "%s/segment", folder);
    (void)snprintf(policy, sizeof(policy), "%s/policy.yaml", folder);
    (void)snprintf(url, sizeof(url), "sqlite:%s/store.db", folder);
    (void)snprintf(log, sizeof(log), "%s/daemon.log", folder);
    FILE *out = fopen(log, "ae");

    if (out == NULL) {
        _exit(3);
    }
    struct hf_serve_options options = {.segment = segment,
                                       .policy_path = policy,
                                       .store_url = url,
                                       .store_name = STRESS_STORE,
                                       .slots = config->slots,
                                       .owners = 32,
                                       .replay_horizon_ms = config->replay_horizon_ms,
                                       .late_horizon_ms = config->late_horizon_ms,
                                       .mode = 0600,
                                       .injected = true,
                                       .injected_ms = STRESS_START_MS,
                                       .log = take_line,
                                       .log_ctx = out};
    struct hf_serve *serve = open_daemon(board, &options);

    hf_store_rel_u32(&board->daemon_ready, (uint32_t)getpid()); /* plain: a flag of the test */
    while (hf_load_acq_u32(&board->stop_daemon) == 0) {         /* plain: likewise */
        uint32_t wait_ms = 0;
        enum hf_drain_result result = hf_serve_step(serve, &wait_ms);

        if (result == HF_DRAIN_SUPERSEDED || result == HF_DRAIN_FAILED) {
            stress_wrong(board, "the daemon ends: drain result %d", (int)result);
            _exit(3);
        }
        /* Half-made slots of the dead are half of a small segment: they are looked for in each cycle. */
        if (config->slots <= 1024) {
            hf_drain_look_at_all(hf_serve_drain(serve));
        }
        hf_serve_wait(serve, wait_ms < 3 ? wait_ms : 3);
    }
    hf_serve_close(serve);
    _exit(0);
}

struct reaping {
    struct stress_board *board;
};

static void take_expired(void *arg, const char *id, int kind)
{
    struct reaping *reaping = arg;
    uint64_t packed = 0;

    if (!stress_id_parse(id, &packed)) {
        stress_wrong(reaping->board, "reaped '%.40s', which nobody made", id);
        return;
    }
    struct stress_rec *rec =
        stress_intent(reaping->board, STRESS_REAPER, STRESS_EXPIRED, packed, (uint32_t)kind);

    if (rec != NULL) {
        stress_answer(rec);
    }
}

void stress_reap(const char *folder, struct stress_board *board)
{
    struct holdfast_segment *segment = NULL;
    struct holdfast *handle = NULL;
    struct reaping reaping = {board};
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/segment", folder);
    if (holdfast_open(path, &segment, NULL, 0) != HOLDFAST_OK ||
        holdfast_join(segment, &handle) != HOLDFAST_OK) {
        stress_wrong(board, "the reaper cannot join");
        _exit(3);
    }
    while (hf_load_acq_u32(&board->stop_reaper) == 0) { /* plain: a flag of the test */
        struct stress_rec *rec = stress_intent(board, STRESS_REAPER, STRESS_REAP, 0, 0);

        if (rec == NULL) { /* its log is full: it rests until the next round */
            (void)usleep(1000);
            continue;
        }
        int reaped = holdfast_reap(handle, 4096, take_expired, &reaping);

        if (reaped < 0) {
            stress_wrong(board, "reap answers %d", reaped);
        }
        stress_answer(rec);
        if (reaped == 0 && board->used[STRESS_REAPER] > 0 &&
            rec == &board->recs[STRESS_REAPER][board->used[STRESS_REAPER] - 1]) {
            board->used[STRESS_REAPER]--; /* nothing happened: not worth a line */
        }
        (void)usleep(reaped == 0 ? 400 : 50);
    }
    holdfast_leave(handle);
    holdfast_close(segment);
    _exit(0);
}
