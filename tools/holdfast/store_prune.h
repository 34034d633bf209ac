/* holdfast store prune: retention, told to people. */
#ifndef HF_TOOLS_HOLDFAST_STORE_PRUNE_H
#define HF_TOOLS_HOLDFAST_STORE_PRUNE_H

#include <stdbool.h>

struct hf_store_prune {
    const char *before; /* as given: a time in UTC */
    bool dry_run;
    bool json;
};

/* The exit status. */
int hf_store_prune(const char *url, const struct hf_store_prune *asked);

#endif
