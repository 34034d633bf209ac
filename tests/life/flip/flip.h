/* Random bytes in a live segment: what the processes of the test share, and its parts.
 *
 * The judge forks a daemon, workers and a reader onto one segment, damages it while they work, and looks at what becomes of
 * them: no signal, no failing memory checker, no call that never returns. Amounts are wrong by then; they are not looked at. */
#ifndef HF_TESTS_LIFE_FLIP_H
#define HF_TESTS_LIFE_FLIP_H

#include "persist/serve.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define FLIP_SEATS 6
#define FLIP_RING  64

/* ---- random numbers: from one seed, whoever asks ---------------------------------------------------------------- */

static inline uint64_t flip_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ULL;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

static inline uint32_t flip_below(uint64_t *state, uint32_t cnt)
{
    return (uint32_t)(flip_random(state) % cnt);
}

/* ---- what the processes tell the judge -------------------------------------------------------------------------- */

/* One process. The judge measures the processor time since the call began. */
struct flip_seat {
    const char *call;    /* a literal: the processes are forks of one program */
    uint64_t cpu_ns;     /* of the process when the call began; 0: no call */
    uint64_t longest_ns; /* processor time of the longest call so far */
    const char *longest;
    uint64_t calls_cnt;
    uint64_t admitted_cnt;
    uint64_t opens_cnt; /* how often it attached, or served */
};

/* What was damaged last, for the report of a failure. */
struct flip_mark {
    const char *what; /* a literal */
    uint64_t off;
    uint64_t before;
    uint64_t after;
};

struct flip_shared {
    struct flip_seat seats[FLIP_SEATS];
    struct flip_mark ring[FLIP_RING];
    uint64_t flips_cnt;
    uint32_t stop;  /* the round is over */
    uint32_t ruins; /* the daemon finds no way to go on: the judge begins another round */
};

struct flip_place {
    char folder[64];
    char segment[96];
    char policy[96];
    char store[96]; /* URL */
    bool injected;
    struct flip_shared *shared;
};

/* Begins and ends a call for the watchdog. */
void flip_begin(struct flip_seat *seat, const char *call);
void flip_end(struct flip_seat *seat);
bool flip_over(const struct flip_shared *shared);

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* Moves a mapping into the middle of a large area that nobody may touch: an index that was believed ends in a signal, not in
 * some other mapping. False: there is no room for guards here, and the mapping stays where it is. */
bool flip_guard(struct hf_segment *seg);
/* Gives the guards back, after the mapping itself has gone; seg as it was. */
void flip_unguard(const struct hf_segment *seg);

/* The processes; they end by _exit(0). */
void flip_worker(const struct flip_place *place, struct flip_seat *seat, uint64_t seed)
    __attribute__((noreturn));
void flip_daemon(const struct flip_place *place, struct flip_seat *seat, uint64_t seed)
    __attribute__((noreturn));
struct hf_serve_options flip_options(const struct flip_place *place);

/* Damage. theme: which regions, chosen by the round. */
struct flip_damage {
    struct hf_segment seg; /* the judge's own mapping */
    uint8_t *whole;        /* the file as it was when it was new */
    struct flip_shared *shared;
    uint64_t random;
    uint32_t theme;
};
/* Attaches to what stands there now; false when that is impossible. */
bool flip_damage_open(struct flip_damage *damage, const struct flip_place *place, uint64_t seed);
void flip_damage_close(struct flip_damage *damage);
void flip_damage_one(struct flip_damage *damage);
/* Policies, names, prices and what the header says of the segment as they were: else nobody gets far. */
void flip_damage_heal(struct flip_damage *damage);
const char *flip_theme_name(uint32_t theme);

#endif
