/* What the processes of the stress share: the log of operations, the gates, what was found wrong. A file in the test's folder,
 * mapped by all; what a killed process has stored stays.
 *
 * Every decision follows from the seed: the controller's sequence, and each worker life's sequence of operations. How the kernel
 * interleaves them does not. */
#ifndef HF_STRESS_BOARD_H
#define HF_STRESS_BOARD_H

#include "core/client.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define STRESS_PLACES   6U                        /* workers at a time */
#define STRESS_REGIONS  (2U * STRESS_PLACES + 2U) /* workers, their forked children, the reaper, the checker */
#define STRESS_REAPER   (2U * STRESS_PLACES)
#define STRESS_CHECKER  (2U * STRESS_PLACES + 1U)
#define STRESS_WARM     48U    /* operations of a life before a fuse is lit: then its pages are mapped */
#define STRESS_RECS_MAX 65536U /* per region and round */
#define STRESS_START_MS UINT64_C(1790000000000)
#define STRESS_STORE    "stress"

enum stress_op {
    STRESS_NONE = 0,
    STRESS_RESERVE, /* variant 1: another input under the id */
    STRESS_EXTEND,
    STRESS_DISPATCH,
    STRESS_SETTLE,
    STRESS_RELEASE,
    STRESS_CREDIT,
    STRESS_REAP,    /* one pass */
    STRESS_EXPIRED, /* one reservation, by the pass */
    STRESS_OPS
};

/* One call: written before it (the intent), and again after it (the answer). */
struct stress_rec {
    uint64_t id; /* struct stress_id packed; of a credit the tenant and team */
    uint8_t op;
    uint8_t variant;
    uint8_t answered;
    uint8_t replayed;
    uint8_t late;
    uint8_t kind;
    uint8_t reason;
    int8_t rc;
    uint64_t tokens; /* as answered */
    uint64_t cost;
    uint64_t made_ms; /* of a reserve: expires_at_ms - ttl */
};

struct stress_config {
    const char *name;
    uint32_t slots;
    uint32_t tenants; /* even ones strict, odd ones loose */
    bool hot;         /* nine of ten reservations on tenant 0 */
    uint64_t minute_invocations;
    uint64_t minute_tokens;
    uint64_t minute_micros;
    uint64_t replay_horizon_ms;
    uint64_t late_horizon_ms;
    uint64_t ttl_max_ms;
};

struct stress_board {
    uint64_t seed;
    uint32_t config;
    uint32_t no_exec;      /* workers start no program: an emulator has none to start */
    uint32_t end;          /* the sampler ends */
    uint32_t stop_reaper;  /* it ends */
    uint32_t stop_daemon;  /* it ends */
    uint32_t daemon_ready; /* pid of the daemon that serves */
    uint64_t first_seq;    /* of the store, when the round began */
    uint32_t leave[STRESS_PLACES];
    uint32_t allowed[STRESS_PLACES]; /* operations of this life */
    uint32_t done[STRESS_PLACES];
    uint32_t
        fuse_ns[STRESS_PLACES]; /* not 0: the kernel sends fuse_signal so long after the worker has lit it */
    uint32_t fuse_signal[STRESS_PLACES];
    uint32_t fuse_number[STRESS_PLACES]; /* of this fuse: a new one is lit beside one that has burnt */
    uint32_t lives[STRESS_PLACES][STRESS_PLACES]; /* for a worker: the lives of all when it was made */
    uint64_t operations;                          /* of rounds before */
    uint64_t views;                  /* whole views of a tenant at one instant that the sampler took */
    uint64_t samples;                /* values that the sampler looked at */
    uint64_t checked;                /* reservations compared with the store */
    uint64_t refused;                /* reserves refused by a bucket */
    uint64_t unanswered[STRESS_OPS]; /* calls during which their process was killed */
    uint64_t answered[STRESS_OPS];
    uint64_t unanswered_happened; /* reserves among them that had happened */
    uint32_t violations;
    char texts[8][256];
    uint32_t used[STRESS_REGIONS];
    struct stress_rec recs[STRESS_REGIONS][STRESS_RECS_MAX];
};

/* A reservation's name: who made it up. */
struct stress_id {
    uint32_t place;
    uint32_t life;
    uint32_t n; /* < 65536 */
};

/* What a reservation asks for: follows from the seed and its id. */
struct stress_request {
    uint32_t tenant_idx;
    char tenant[16];
    const char *team;
    const char *key; /* or NULL */
    uint64_t tokens;
    uint64_t cost;
    uint64_t economy; /* HOLDFAST_UNKNOWN: none */
    uint64_t ttl_ms;
};

#define STRESS_VARIANTS 4U /* of a settle: below, exact, above, unknown */

const struct stress_config *stress_config(uint32_t idx); /* NULL: no such */
/* The policy file of a configuration. */
bool stress_policy_write(const struct stress_config *config, const char *path);

struct stress_board *stress_board_map(const char *folder, bool make);

uint64_t stress_draw(uint64_t *random, uint64_t below);
uint64_t stress_mix(uint64_t a, uint64_t b);

uint64_t stress_id_pack(struct stress_id id);
struct stress_id stress_id_unpack(uint64_t packed);
void stress_id_text(uint64_t packed, char text[32]);
bool stress_id_parse(const char *text, uint64_t *packed);

void stress_request(const struct stress_board *board, uint64_t id, struct stress_request *request);
/* Usage that a settle of that variant tells; false: unknown (NULL). */
bool stress_usage(const struct stress_request *request, uint32_t variant, struct holdfast_usage *usage);
/* Totals that an extension of that variant asks for. */
void stress_totals(const struct stress_request *request, uint32_t variant, uint64_t *tokens, uint64_t *cost);

static inline bool stress_strict(uint32_t tenant_idx)
{
    return tenant_idx % 2U == 0;
}

/* Counts something that cannot be; the first ones are kept for the controller to print. */
void stress_wrong(struct stress_board *board, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The next record of a region, its intent stored, or NULL when the region is full. */
struct stress_rec *stress_intent(struct stress_board *board, uint32_t region, enum stress_op op, uint64_t id,
                                 uint32_t variant);
void stress_answer(struct stress_rec *rec);

/* The processes. None returns. */
struct stress_place {
    const char *folder;
    struct stress_board *board;
    uint32_t place;
    uint32_t life;
    uint64_t random;   /* 0: begin a life */
    uint32_t n;        /* next reservation */
    uint32_t children; /* made so far */
};
void stress_work(struct stress_place *place) __attribute__((noreturn));
void stress_reap(const char *folder, struct stress_board *board) __attribute__((noreturn));
void stress_serve(const char *folder, struct stress_board *board) __attribute__((noreturn));
void stress_sample(const char *folder, struct stress_board *board) __attribute__((noreturn));
void stress_check(const char *folder, struct stress_board *board) __attribute__((noreturn));

#endif
