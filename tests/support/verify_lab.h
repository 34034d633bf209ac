/* A store to be attacked: in SQLite or PostgreSQL, filled through the library, then changed behind its back as the owner, and verified.
 */
#ifndef HF_TESTS_SUPPORT_VERIFY_LAB_H
#define HF_TESTS_SUPPORT_VERIFY_LAB_H

#include "persist/verify.h"
#include "tests/support/store_cases.h"

#include <stdbool.h>

#define LAB_FINDINGS_MAX 64

struct lab_finding {
    enum hf_verify_what what;
    char segment[64];
    uint64_t batch, seq, last_seq;
    char column[64]; /* empty: not told */
    char text[512];
};

struct lab {
    bool postgres;
    char url[512];
    struct hf_store *store; /* of segment "gateway", locked; NULL when closed */
    struct cases_chain chain;
    /* Of the last look. */
    struct lab_finding findings[LAB_FINDINGS_MAX];
    size_t findings_cnt; /* may be more than are kept */
    struct hf_verify_report report;
    struct hf_store_batch head; /* of "gateway" */
    bool held;
};

/* False: PostgreSQL was asked for and there is no HOLDFAST_TEST_PG. The folder of SQLite files is made with the first one. */
bool lab_available(bool postgres);
/* Removes the folder. */
void lab_clean(void);

/* A store with segment "other" (one batch) and "gateway": batches 1 (receipts 1 to 4), 2 (5 to 7), 3 (8, 9), 4 (10 to 12), 5 (13):
 * 1 epoch, 2 policy, 3 reserves a, 4 reserves b, 5 settles a, 6 reserves c, 7 reserves d, 8 settles c, 9 credit,
 * 10 reserves e, 11 reserves f, 12 settles d, 13 settles b. e and f stay open. */
void lab_new(struct lab *lab, bool postgres);
void lab_drop(struct lab *lab);

/* Runs statements past the library as the owner who lifted the triggers and put them back. The first column of the first row. */
const char *lab_sql(struct lab *lab, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same without lifting anything; the library's words when it fails. True: it was done. */
bool lab_try(struct lab *lab, const char *sql, char *why, size_t why_bytes);

/* Verifies; heads may be NULL. Fails the test when it could not. */
void lab_look(struct lab *lab, const struct hf_verify_head *heads, size_t heads_cnt);
/* The first finding of that kind at that batch and receipt (0: any), or NULL. */
const struct lab_finding *lab_found(const struct lab *lab, enum hf_verify_what what, uint64_t batch,
                                    uint64_t seq);
/* All findings, for a message. Static buffer. */
const char *lab_told(const struct lab *lab);

/* Gives receipts from seq on, and batches from the one that has them to until_batch, the digests that they should have: as one would who
 * knows how. */
void lab_forge(struct lab *lab, uint64_t seq, uint64_t until_batch);

#endif
