/* A store with a past, to be pruned: the lab's, with what came later, at a clock of the test's own. */
#ifndef HF_TESTS_SUPPORT_PRUNE_LAB_H
#define HF_TESTS_SUPPORT_PRUNE_LAB_H

#include "persist/prune.h"
#include "tests/support/verify_lab.h"

#define PRUNE_DAY_MS UINT64_C(86400000)
/* Where the store's clock is when it is pruned: two months later. */
#define PRUNE_NOW_MS (CASES_NOW_MS + 70 * PRUNE_DAY_MS)
#define PRUNE_BEFORE (PRUNE_NOW_MS - 3 * PRUNE_DAY_MS)

struct prune_past {
    bool open;     /* e and f of the lab stay open, else 14 and 15 settle them */
    bool summed;   /* rollups cover all of it */
    bool old_only; /* without the 16 receipts of PRUNE_NOW_MS */
};

/* The lab's store: 13 or 15 receipts, 16 of four batches, all long ago, 16 of the present; in partitions of 8. Segment `other` has two.
 * Nobody has it open afterwards. */
void prune_lab_new(struct lab *lab, bool postgres, const struct prune_past *past);
/* Reservations `name`-0 to `name`-(cnt - 1) and their settlements, four receipts a batch, through lab->store. */
void prune_lab_traffic(struct lab *lab, const char *name, unsigned cnt, uint64_t at_ms);
void prune_lab_roll_up(struct lab *lab);
/* lab->store again, as a daemon of segment "gateway" has it. */
void prune_lab_open(struct lab *lab);

struct told {
    unsigned gone_cnt; /* steps */
    uint64_t rows_cnt;
    uint64_t kept_cnt;
    char text[4096]; /* what stands in the way, a line each */
};

/* What a test does in the middle, NULL: nothing. */
struct prune_hooks {
    void (*began)(void *ctx);     /* a step began, and nobody else may prune */
    void (*taken)(void *ctx);     /* rows were taken away, the transaction is not at its end */
    void (*committed)(void *ctx); /* COMMIT is over, nobody was told */
    void (*stepped)(void *ctx);   /* a step was told of that goes */
    void *ctx;
};

/* Prunes as the owner, at PRUNE_NOW_MS, in SQLite 8 receipts a step. hooks may be NULL. */
enum hf_store_status prune_lab(struct lab *lab, uint64_t before_ms, bool dry_run,
                               const struct prune_hooks *hooks, struct told *told,
                               struct hf_store_error *error);
/* The test fails when that fails. */
void prune_lab_ok(struct lab *lab, uint64_t before_ms, bool dry_run, struct told *told);
/* The test fails when verify finds something. */
void prune_lab_holds(struct lab *lab);

/* All that a daemon asks a store of for the segment "gateway", as text. */
struct prune_dump {
    char text[256 * 1024];
    size_t len;
};
void prune_lab_dump(struct lab *lab, struct prune_dump *dump);

#endif
