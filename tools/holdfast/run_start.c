#include "tools/holdfast/run_start.h"

#include "core/client.h"
#include "persist/serve.h"
#include "tools/common/policy_check.h"
#include "tools/holdfast/command.h"

#include <stdio.h>

/* What the daemon of a private segment has to say; that it began is no news here. */
static void say(void *ctx, enum hf_log_level level, const char *text)
{
    (void)ctx;
    if (level != HF_LOG_INFO) {
        (void)fprintf(stderr, "holdfast run: %s\n", text);
    }
}

/* The handle of a run is a tool's: `holdfast status` shows it as one. */
static int join(struct hf_run *run)
{
    int result = hf_client_join(run->opened, HF_ROLE_TOOL, &run->handle);

    if (result != HOLDFAST_OK) {
        return hf_command_fail("run", HF_EXIT_USAGE, "cannot join the segment: %s",
                               holdfast_strerror(result));
    }
    run->segment = run->handle->seg;
    return HF_EXIT_OK;
}

static int start_private(struct hf_run *run, const struct hf_run_options *told)
{
    struct hf_serve_options options = {
        .policy_path = told->policy,
        .store_url = told->store_url,
        .injected = true,
        .injected_ms = told->clock_ms,
        .made_by = run->by,
        .log = say,
    };
    struct hf_policy_report report = {0};
    struct hf_policy *policy = NULL;
    struct hf_error err = {.text = ""};

    /* Read twice: once to say everything about it, once by the daemon. */
    if (hf_policy_check_file(told->policy, false, stderr, &policy) != 0) {
        return HF_EXIT_USAGE;
    }
    hf_policy_free(policy);

    enum hf_serve_status served = hf_serve_open(&options, &run->serve, &report, &err);

    hf_policy_report_free(&report);
    if (served != HF_SERVE_OK) {
        return hf_command_fail("run", HF_EXIT_USAGE, "cannot make the private segment: %s", err.text);
    }
    if (hf_client_wrap(hf_serve_segment(run->serve), &run->opened) != HOLDFAST_OK) {
        return hf_command_fail("run", HF_EXIT_USAGE, "not enough memory to start");
    }
    return join(run);
}

static int start_live(struct hf_run *run, const struct hf_run_options *told)
{
    char error[512] = "";
    int result = holdfast_open(told->segment, &run->opened, error, sizeof(error));

    if (result != HOLDFAST_OK) {
        return hf_command_fail("run", HF_EXIT_USAGE, "%s", error);
    }
    if (hf_segment_state(&run->opened->map) != HF_SEGMENT_READY) {
        return hf_command_fail(
            "run", HF_EXIT_USAGE,
            "the segment %s is not ready: it is being built or was replaced; see `holdfast status "
            "--segment %s`, and come again",
            told->segment, told->segment);
    }
    return join(run);
}

int hf_run_start(struct hf_run *run, const struct hf_run_options *told)
{
    run->store_url = told->store_url;
    return told->policy != NULL ? start_private(run, told) : start_live(run, told);
}

void hf_run_settle_down(struct hf_run *run)
{
    if (run->serve == NULL) {
        return;
    }

    enum hf_drain_result result = hf_serve_cycle(run->serve);
    bool drained = result == HF_DRAIN_IDLE || result == HF_DRAIN_WORKED;

    if (result == HF_DRAIN_WAITING) {
        drained = hf_serve_flush(run->serve, HF_RUN_FLUSH_MS);
    }
    if (!drained && !run->behind) {
        (void)fprintf(
            stderr,
            "holdfast run: the store does not take the receipts; what is answered from here on is not "
            "durable\n");
    }
    run->behind = !drained;
}

bool hf_run_flush(struct hf_run *run)
{
    run->extended = false;
    return run->serve != NULL ? !run->behind : holdfast_flush(run->handle, HF_RUN_FLUSH_MS) == HOLDFAST_OK;
}

void hf_run_stop(struct hf_run *run)
{
    hf_store_close(run->store);
    holdfast_leave(run->handle);
    if (run->serve != NULL && run->opened != NULL) {
        /* The mapping is the daemon's, which unmaps it. */
        run->opened->map = (struct hf_segment){.lock_fd = -1};
    }
    holdfast_close(run->opened);
    hf_serve_close(run->serve);
    hf_json_out_free(&run->out);
}
