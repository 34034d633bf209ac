/* A daemon in the test's own process, stepped by the test: a private segment or one in a file, on a SQLite store in a folder of
 * the test's own. */
#ifndef HF_TESTS_DAEMON_H
#define HF_TESTS_DAEMON_H

#include "core/client.h"
#include "persist/serve.h"

struct hf_test_daemon {
    char folder[128];    /* everything of the test is in here */
    char policy[192];    /* path of the policy file */
    char store_url[192]; /* sqlite:FOLDER/store.db */
    char segment[192];   /* path of a segment, for those in a file */
    struct hf_serve_options options;
    struct hf_serve *serve;
    struct holdfast_segment *shared;
    struct holdfast *handle;
    struct hf_segment *seg;
    char log[8192]; /* what the daemon said, one line each */
};

/* A folder with the policy and an initialised store; nothing is open. in_file: options name a segment in that folder. */
void hf_test_daemon_prepare(struct hf_test_daemon *daemon, const char *policy, bool in_file);

/* Opens the daemon and a worker's handle; the test fails when it cannot. */
void hf_test_daemon_open(struct hf_test_daemon *daemon);

/* The worker leaves and the daemon closes; folder and store stay. */
void hf_test_daemon_close(struct hf_test_daemon *daemon);

/* As if the daemon's process died: nothing is written any more, locks are dropped. The worker stays. */
void hf_test_daemon_drop(struct hf_test_daemon *daemon);

/* Removes the folder. */
void hf_test_daemon_clean(struct hf_test_daemon *daemon);

/* One cycle that must leave nothing to do. */
void hf_test_daemon_drain(struct hf_test_daemon *daemon);

/* Counts and sums of everything in the store under the daemon's name. */
struct hf_store_totals hf_test_daemon_totals(struct hf_test_daemon *daemon);

/* The receipts under an id, oldest first, up to max; returns how many there are. */
size_t hf_test_daemon_receipts(struct hf_test_daemon *daemon, const char *id, struct hf_receipt *rows,
                               size_t max);

/* One meter of the segment; false when it is not there. model "": explicit amounts. */
bool hf_test_daemon_meter(struct hf_test_daemon *daemon, const char *tenant, const char *cap,
                          const char *model, struct holdfast_meter *meter);

/* held and settled of one limit of a layer (team, key may be NULL). */
struct holdfast_limit hf_test_daemon_limit(struct hf_test_daemon *daemon, const char *tenant,
                                           const char *team, const char *key, int window, int dimension);

#endif
