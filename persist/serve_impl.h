/* The daemon's parts, for serve_open.c, which puts them together, and serve.c, which runs them. */
#ifndef HF_PERSIST_SERVE_IMPL_H
#define HF_PERSIST_SERVE_IMPL_H

#include "persist/clockkeeper.h"
#include "persist/roller.h"
#include "persist/serve.h"
#include "persist/temporary.h"

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

/* The segment admits nothing from now on; says why. */
void hf_serve_supersede(struct hf_serve *serve, const char *why);

/* The store lost commits: goes back with it, and loads anew what it says. */
enum hf_store_status hf_serve_rewind(struct hf_serve *serve, struct hf_store_error *error);

#endif
