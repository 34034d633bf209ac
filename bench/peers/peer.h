/* What every peer program shares: options, processes, the clock, the check at the end, one line of JSON.
 *
 * A peer keeps two budgets, one of a tenant and one of a team, and does pairs: a reserve that checks both limits and adds to
 * both, and a settle that corrects both by what the call cost in the end. peer_main() forks the processes, lets them
 * begin together, measures, and then compares the budgets with what was settled.
 *
 * The path is always the same tenant and team. Amounts are micros. Functions that return int: 0, or -1 after a sentence on
 * stderr (peer_error). */
#ifndef HF_BENCH_PEERS_PEER_H
#define HF_BENCH_PEERS_PEER_H

#include <stddef.h>
#include <stdint.h>

#include "tools/common/histogram.h"

/* Both are far above what a run adds up to. Layers are checked from the team up, so PEER_TOO_MUCH passes the team's limit
 * and fails the tenant's: the peer has to take back what it added to the team. Below 2^53, since Lua's numbers are doubles. */
#define PEER_TEAM_LIMIT   (UINT64_C(1) << 50)
#define PEER_TENANT_LIMIT (UINT64_C(1) << 49)
#define PEER_TOO_MUCH     (UINT64_C(1) << 49)

/* Ids of a process are consecutive from here on. The process that sets up and checks has an index of its own, above. */
#define PEER_FIRST_ID(process_idx) (((uint64_t)(process_idx) << 40) + 1)
#define PEER_PROCESSES_MAX         64

struct peer_options {
    const char *name;      /* as the line of JSON says it */
    const char *how;       /* the variant of a peer that has several, or "" */
    const char *address;   /* where the server or the file is, or "" */
    const char *placement; /* on which processors, for the line of JSON */
    unsigned process_cnt;
    unsigned cpu_cnt; /* 0: the kernel places the processes */
    int cpus[PEER_PROCESSES_MAX];
    uint64_t run_ns;
};

struct peer_totals {
    uint64_t tenant_micros;
    uint64_t team_micros;
    uint64_t record_cnt; /* records of settled holds, or UINT64_MAX where nobody counts them */
};

struct peer {
    const char *name;
    /* How many pairs a call of pairs() does while the rate is measured. 1: a pair takes so long that each is timed. Else
     * the rate comes from batches without a clock, and durations from single pairs in the last fifth of the time. */
    unsigned batch_cnt;

    /* Before the processes are forked: empties the budgets. What it returns is given to open(); NULL is a failure. */
    void *(*prepare)(const struct peer_options *options);
    /* In each process. NULL is a failure. */
    void *(*open)(const struct peer_options *options, void *prepared, unsigned process_idx);
    /* cnt pairs with ids from first_id on, of peer_held() and peer_actual(). */
    int (*pairs)(void *connection, uint64_t first_id, unsigned cnt);
    /* cnt pairs, each timed where it happens; NULL: here, around pairs(). */
    int (*timed)(void *connection, uint64_t first_id, unsigned cnt, struct hf_histogram *histogram);
    /* What must happen now and then and is not to be measured; NULL: nothing. */
    int (*between)(void *connection);
    /* One reserve of PEER_TOO_MUCH: 1 refused, 0 admitted, -1 an error. NULL: the peer has no limits. */
    int (*refused)(void *connection, uint64_t id);
    int (*totals)(void *connection, struct peer_totals *totals);
    void (*close)(void *connection);
};

/* The whole program: its exit status. */
int peer_main(int argc, char **argv, const struct peer *peer);

/* Memory that forked processes share, zeroed and aligned to a page; NULL after a sentence. */
void *peer_shared(size_t bytes);

uint64_t peer_now_ns(void);

/* Prints the sentence with the program's name. Returns -1. */
int peer_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What the call `id` holds and what it costs in the end: different ones, so that a lost correction is seen. */
static inline uint64_t peer_held(uint64_t id)
{
    return 1000 + (id & 63);
}

static inline uint64_t peer_actual(uint64_t id)
{
    return 700 + (id & 31);
}

#endif
