/* The cases that every store must pass: one table, run on each. A backend makes empty stores and speaks SQL to them past the
 * library, as a person with a shell would. */
#ifndef HF_TESTS_SUPPORT_STORE_CASES_H
#define HF_TESTS_SUPPORT_STORE_CASES_H

#include "persist/store.h"

#include <stddef.h>

struct store_backend {
    const char *name;
    /* The URL of a new place without a schema. 0, or not 0: this backend is not available. */
    int (*make)(char *url, size_t url_bytes);
    void (*drop)(const char *url);
    /* Runs statements as the owner. The first column of the first row as text ("" for none) goes to result. 0, or not 0: it
     * failed, and result says why. */
    int (*sql)(const char *url, const char *sql, char *result, size_t result_bytes);
    /* Statements that let the owner change rows in spite of the triggers, before and after `%s`. */
    const char *before_change;
    const char *after_change;
    /* Makes the table of receipts refuse the id 'refused'. */
    const char *refuse_id;
};

/* The store under test in every case. */
extern const struct store_backend *store_backend;

/* Runs the table; the number of cases that failed. */
int store_cases_run(const struct store_backend *backend);

/* ---- helpers, for the tests of one store too -------------------------------------------------------------------- */

#define CASES_NOW_MS UINT64_C(1790000000000)

/* A new initialised store, its URL in url; opened, and locked for `segment` unless NULL. */
struct hf_store *cases_new(char *url, size_t url_bytes, const char *segment);
struct hf_store *cases_open(const char *url, const char *segment, const struct hf_store_options *options);
void cases_drop(struct hf_store *store, const char *url);
/* Fails the test when it fails; the result. Static buffer. */
const char *cases_sql(const char *url, const char *sql);

/* A reservation of 900 tokens and 6200 micros of echo/content/summary by mock, counted in the team's and tenant's month of cost
 * and the team's minute of tokens. */
void cases_reservation(struct hf_receipt *row, const char *id);
/* Its settlement at 800 tokens and 4100 micros. */
void cases_settlement(struct hf_receipt *row, const char *id);
void cases_name(struct hf_name *name, const char *text);

/* Continues a chain: number, epoch, seq and digest before, for rows that a case hands over one batch after the other. */
struct cases_chain {
    struct hf_store *store;
    struct hf_store_batch batch; /* the last one */
    uint64_t next_seq;
    struct hf_store_report report;
    struct hf_store_error error;
};
void cases_chain_start(struct cases_chain *chain, struct hf_store *store);
/* Numbers rows and the next batch, without committing. */
void cases_chain_prepare(const struct cases_chain *chain, struct hf_store_batch *batch,
                         struct hf_receipt *rows, size_t cnt);
/* Commits and goes on when OK. */
enum hf_store_status cases_chain_commit(struct cases_chain *chain, struct hf_receipt *rows, size_t cnt);

#endif
