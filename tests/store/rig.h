/* What the tests of this folder share: a segment with its daemon in the test's own process, on any store, and a count of
 * everything that it admitted, to be compared with the store's rows and sums. */
#ifndef HF_TESTS_STORE_RIG_H
#define HF_TESTS_STORE_RIG_H

#include "tests/support/daemon.h"

/* What the store must have. */
struct rig_sums {
    uint64_t kinds_cnt[HF_RECEIPT_KIND_CNT];
    int64_t held[3]; /* invocations, tokens, micros */
    int64_t charged[3];
};

/* A hold that a later step closes. */
struct rig_hold {
    uint64_t n;
    uint64_t tokens;
    uint64_t cost;
};

struct rig {
    struct hf_test_daemon daemon;
    struct rig_sums sums;
    struct rig_hold left[4]; /* 0: to be extended; 1, 2: to be closed; 3: extended, to be settled */
    bool has_left;
    bool has_extended;
    uint64_t n;       /* reservations made */
    uint64_t mono_ms; /* given to the drain: back-off costs no time here */
    uint64_t random;
};

/* Prepares folder and policy. url NULL: SQLite in the folder. The store's schema is made; nothing is open. store: options of the
 * daemon's store handle, may be NULL. */
void rig_prepare(struct rig *rig, const char *url, const struct hf_store_options *store);
void rig_open(struct rig *rig);
void rig_close(struct rig *rig); /* and removes the folder */

/* Up to seven receipts: three reservations; of the step before one extension, a settlement and a release; of the one before that a
 * settlement. */
void rig_step(struct rig *rig);

/* One drain cycle, five virtual seconds after the last. */
enum hf_drain_result rig_cycle(struct rig *rig);
/* Cycles until nothing is left; the number of cycles that had to wait. Fails the test after `cycles` of them. */
uint32_t rig_drain(struct rig *rig, uint32_t cycles);

/* Rows that there must be by now. */
uint64_t rig_rows(const struct rig *rig);
/* Compares kinds, sums and chain with what the store says; then segment and store bucket by bucket. */
void rig_check(struct rig *rig);

uint64_t rig_alarm(const struct rig *rig, uint32_t alarm);

/* ---- for all tests of this folder ------------------------------------------------------------------------------- */

bool rig_long(void);     /* HOLDFAST_LONG=1 */
uint64_t rig_seed(void); /* HOLDFAST_SEED, else of this process; printed at its first use */
/* A new database on the server of HOLDFAST_TEST_PG; its URL, and the same one by a proxy in `folder` (may be NULL). Ends the program
 * with 77 when there is no server. */
void rig_database(char *url, size_t url_bytes);
void rig_proxied(const char *url, const char *folder, char *proxied, size_t proxied_bytes, char *socket_path,
                 size_t socket_bytes);
/* Runs SQL by psql; true when it worked. */
bool rig_psql(const char *url, const char *sql);

#endif
