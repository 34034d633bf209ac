/* The segment of a run: a private one that it serves itself, or a live one. */
#ifndef HF_TOOLS_HOLDFAST_RUN_START_H
#define HF_TOOLS_HOLDFAST_RUN_START_H

#include "tools/holdfast/run.h"

struct hf_run_options {
    const char *policy; /* private segment; else NULL */
    uint64_t clock_ms;
    const char *segment; /* live segment; else NULL */
    const char *store_url;
    bool help;
};

/* Opens the segment and joins it; says on standard error why not. HF_EXIT_OK or HF_EXIT_USAGE; hf_run_stop() is right
 * after both. */
int hf_run_start(struct hf_run *run, const struct hf_run_options *told);

/* After each operation: the daemon of a private segment commits and publishes it, so that the answer, once written, is
 * durable and what it did shows everywhere. A store that takes nothing is said on standard error; work goes on. */
void hf_run_settle_down(struct hf_run *run);

/* Leaves, and removes a private segment with its temporary store. */
void hf_run_stop(struct hf_run *run);

#endif
