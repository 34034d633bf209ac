/* ctest: labels=postgres;store timeout=300 */
/* What is added up while batches are committed is what the store has: after gaps, restarts, takeovers and kills. */
#include "persist/rollup_impl.h"
#include "persist/tally.h"
#include "persist/verify.h"
#include "tests/support/store_cases.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SEGMENT   "gateway"
#define BATCH_MAX 24U
#define DAY_MS    UINT64_C(86400000)

static struct {
    char scratch[64];
    unsigned made_cnt;
} t;

/* ---- a store ---------------------------------------------------------------------------------------------------------- */

static void new_url(char *url, size_t url_bytes)
{
    (void)snprintf(url, url_bytes, "sqlite:%s/%u.db", t.scratch, t.made_cnt++);
}

/* A database of its own on the server of HOLDFAST_TEST_PG, or the test is skipped. */
static void new_postgres_url(char *url, size_t url_bytes)
{
    const char *server = getenv("HOLDFAST_TEST_PG");
    char command[4096];
    char name[64];

    if (server == NULL) {
        print_message("HOLDFAST_TEST_PG is not set: not tried on PostgreSQL\n");
        skip();
        return;
    }
    (void)snprintf(name, sizeof(name), "hf_tally_%d_%u", (int)getpid(), t.made_cnt++);
    (void)snprintf(command, sizeof(command), "psql -q -d '%s' -c 'CREATE DATABASE %s' >/dev/null", server,
                   name);
    assert_int_equal(system(command), 0);
    const char *slash = strchr(strstr(server, "://") + 3, '/');

    (void)snprintf(url, url_bytes, "%.*s/%s%s", (int)(slash - server), server, name,
                   slash + strcspn(slash, "?"));
}

static struct hf_store *open_store(const char *url, bool init)
{
    const struct hf_store_options options = {.durability = HF_STORE_OFF};
    struct hf_store_error error = {""};
    struct hf_store *store = NULL;

    if ((init && hf_store_init(url, &options, &error) != HF_STORE_OK) ||
        hf_store_open(url, &options, &store, &error) != HF_STORE_OK ||
        hf_store_lock(store, SEGMENT, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
    return store;
}

static void count_rollup_finding(void *ctx, const struct hf_verify_finding *finding)
{
    if (finding->what == HF_VERIFY_ROLLUP) {
        print_message("%s\n", finding->text);
        ++*(unsigned *)ctx;
    }
}

/* The rollups of the store, by verify's own sums over receipts. */
static void expect_right_rollups(const char *url, uint64_t cnt)
{
    const struct hf_store_options reader = {.role = HF_STORE_READER};
    unsigned found = 0;
    const struct hf_verify_options options = {
        .finding = count_rollup_finding, .ctx = &found, .rollups = true};
    struct hf_verify_report report;
    struct hf_store_error error = {""};
    struct hf_store *store = NULL;

    if (hf_store_open(url, &reader, &store, &error) != HF_STORE_OK ||
        hf_verify(store, &options, &report, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
    hf_store_close(store);
    assert_int_equal(found, 0);
    assert_int_equal(report.rollups_cnt, cnt);
}

/* ---- receipts of every kind ------------------------------------------------------------------------------------------- */

struct world {
    unsigned seed;
    uint64_t now_ms;
    unsigned ids_cnt;
    struct cases_chain chain;
    struct hf_receipt rows[BATCH_MAX];
};

static unsigned dice(struct world *world, unsigned sides)
{
    return (unsigned)rand_r(&world->seed) % sides;
}

static int64_t amount(struct world *world)
{
    return dice(world, 6) == 0 ? (int64_t)(HF_AMOUNT_MAX - dice(world, 1000)) : (int64_t)dice(world, 100000);
}

static void reservation(struct world *world, struct hf_receipt *row)
{
    static const char *const teams[] = {"content", "support"};
    char text[32];

    /* Now and then an id that is there already. */
    (void)snprintf(text, sizeof(text), "id-%u",
                   dice(world, 12) == 0 ? dice(world, world->ids_cnt + 1) : world->ids_cnt++);
    cases_reservation(row, text);
    cases_name(&row->team, teams[dice(world, 2)]);
    if (dice(world, 3) == 0) {
        cases_name(&row->key, "k");
    }
    row->admission = dice(world, 4) == 0 ? HF_ADMISSION_DEGRADE : HF_ADMISSION_ALLOW;
    row->held_tokens = amount(world);
    row->hold_tokens = (uint64_t)row->held_tokens;
}

/* Whatever comes after a reservation, of one that may or may not be there. */
static void later(struct world *world, struct hf_receipt *row)
{
    static const enum hf_receipt_kind kinds[] = {
        HF_RECEIPT_EXTENSION, HF_RECEIPT_SETTLEMENT, HF_RECEIPT_SETTLEMENT,
        HF_RECEIPT_RELEASE,   HF_RECEIPT_EXPIRY,     HF_RECEIPT_RETENTION,
        HF_RECEIPT_DISPUTE,   HF_RECEIPT_LATE,       HF_RECEIPT_RESOLUTION};
    char text[32];

    (void)snprintf(text, sizeof(text), "id-%u", dice(world, world->ids_cnt + 2));
    cases_settlement(row, text);
    row->kind = kinds[dice(world, sizeof(kinds) / sizeof(kinds[0]))];
    row->held_invocations = row->kind == HF_RECEIPT_EXTENSION || row->kind == HF_RECEIPT_LATE ? 0 : -1;
    row->held_tokens = -amount(world);
    row->charged_tokens = amount(world);
    row->outcome = dice(world, 2) == 0 ? HF_OUTCOME_SUCCESS : HF_OUTCOME_FAILURE;
    if (dice(world, 4) == 0) {
        row->actual_cost_micros = HF_UNKNOWN;
    }
    if (dice(world, 3) == 0) {
        row->model.len = 0;
        row->model.bytes[0] = '\0';
    }
}

static void any_row(struct world *world, struct hf_receipt *row)
{
    static const uint64_t masks[] = {0, 1, 0x7fff, UINT64_C(0x1fffffffffff), UINT64_C(0x0249249249)};

    if (dice(world, 20) == 0) {
        hf_receipt_init(row, dice(world, 2) == 0 ? HF_RECEIPT_CREDIT : HF_RECEIPT_POLICY);
        cases_name(&row->tenant, "echo");
        row->window_ms = row->kind == HF_RECEIPT_CREDIT ? world->now_ms : HF_UNKNOWN;
    } else {
        if (world->ids_cnt == 0 || dice(world, 2) == 0) {
            reservation(world, row);
        } else {
            later(world, row);
        }
        row->bucket_mask = masks[dice(world, sizeof(masks) / sizeof(masks[0]))];
        row->window_ms = world->now_ms - (dice(world, 5) == 0 ? dice(world, 70) * DAY_MS : 0);
        if (dice(world, 15) == 0) { /* no store takes it: to the table of conflicts */
            row->ref.len = 2;
            memcpy(row->ref.bytes, "\xff\xfe", 3);
        }
    }
    row->made_ms = world->now_ms;
}

static void commit_batch(struct world *world, unsigned cnt)
{
    struct cases_chain *chain = &world->chain;
    struct hf_store_batch batch;

    for (unsigned i = 0; i < cnt; i++) {
        world->now_ms += dice(world, 20000);
        any_row(world, &world->rows[i]);
    }
    cases_chain_prepare(chain, &batch, world->rows, cnt);
    batch.committed_ms = world->now_ms;
    if (hf_store_commit(chain->store, &batch, world->rows, cnt, &chain->report, &chain->error) !=
        HF_STORE_OK) {
        fail_msg("%s", chain->error.text);
    }
    chain->batch = batch;
    chain->next_seq += cnt;
}

static void begin_world(struct world *world, struct hf_store *store, unsigned seed)
{
    *world = (struct world){.seed = seed, .now_ms = CASES_NOW_MS};
    cases_chain_start(&world->chain, store);
}

/* ---- tallies ---------------------------------------------------------------------------------------------------------- */

static void begin_tally(struct hf_tally *tally, struct hf_store *store)
{
    struct hf_store_error error = {""};
    struct hf_rollup newest;

    assert_int_equal(hf_rollup_newest(store, SEGMENT, &newest, &error), HF_STORE_OK);
    hf_tally_start(tally, &newest);
}

static void read_tally(struct hf_tally *tally, struct hf_store *store, uint64_t next_seq, uint64_t rows_max)
{
    struct hf_store_error error = {""};

    while (tally->next_seq < next_seq && !tally->full) {
        if (hf_tally_read(tally, store, rows_max, &error) != HF_STORE_OK) {
            fail_msg("%s", error.text);
        }
    }
}

static void same_table(const struct hf_tally_table *a, const struct hf_tally_table *b)
{
    struct hf_tally_table difference = {.values_cnt = a->values_cnt};

    assert_int_equal(a->cnt, b->cnt);
    assert_int_equal(a->values_cnt, b->values_cnt);
    for (size_t i = 0; i < a->cnt; i++) {
        assert_true(hf_tally_table_add(&difference, hf_tally_table_key(a, i), a->keys[i].len,
                                       hf_tally_table_values(a, i)));
    }
    for (size_t i = 0; i < b->cnt; i++) {
        int64_t negative[HF_TALLY_VALUES_MAX];

        for (unsigned v = 0; v < b->values_cnt; v++) {
            negative[v] = -hf_tally_table_values(b, i)[v];
        }
        assert_true(hf_tally_table_add(&difference, hf_tally_table_key(b, i), b->keys[i].len, negative));
    }
    assert_int_equal(difference.cnt, a->cnt);
    for (size_t i = 0; i < difference.cnt * difference.values_cnt; i++) {
        assert_int_equal(difference.values[i], 0);
    }
    hf_tally_table_free(&difference);
}

static void same_tally(const struct hf_tally *a, const struct hf_tally *b)
{
    assert_int_equal(a->next_seq, b->next_seq);
    assert_int_equal(a->last.number, b->last.number);
    assert_int_equal(a->last.epoch, b->last.epoch);
    assert_int_equal(a->last.committed_ms, b->last.committed_ms);
    assert_memory_equal(a->last.digest, b->last.digest, HF_DIGEST_BYTES);
    same_table(&a->sums, &b->sums);
    same_table(&a->meters, &b->meters);
    same_table(&a->open, &b->open);
}

/* Batches are handed in, but now and then one is not (an answer was lost) or all is forgotten (a restart). */
static void run(const char *url, unsigned seed, unsigned batches)
{
    struct hf_store *store = open_store(url, true);
    struct hf_store_error error = {""};
    struct hf_tally tally = {.started = false};
    struct hf_rollup made = {.number = 0};
    struct world world;

    print_message("seed %u\n", seed);
    begin_world(&world, store, seed);
    begin_tally(&tally, store);
    for (unsigned i = 0; i < batches; i++) {
        struct hf_tally fresh = {.started = false};

        commit_batch(&world, 1 + dice(&world, BATCH_MAX - 1));
        if (dice(&world, 6) != 0) {
            hf_tally_batch(&tally, &world.chain.batch, world.rows);
        }
        if (dice(&world, 10) == 0) {
            begin_tally(&tally, store);
        }
        if (dice(&world, 3) == 0) {
            read_tally(&tally, store, world.chain.next_seq, dice(&world, 60));
            begin_tally(&fresh, store);
            read_tally(&fresh, store, world.chain.next_seq, HF_ROLLUP_ROWS_MAX);
            same_tally(&tally, &fresh);
            hf_tally_drop(&fresh);
        }
        if (!hf_tally_empty(&tally) && dice(&world, 5) == 0) { /* as far as it goes: the end or not */
            if (hf_rollup_write(store, &tally, &made, &error) != HF_STORE_OK) {
                fail_msg("%s", error.text);
            }
            hf_tally_start(&tally, &made);
        }
        if (dice(&world, 10) == 0) {
            world.now_ms += dice(&world, 3) * 11 * DAY_MS;
        }
    }
    assert_true(made.number > 5);
    hf_tally_drop(&tally);
    hf_store_close(store);
    expect_right_rollups(url, made.number);
}

static void it_is_what_the_store_has_in_sqlite(void **state)
{
    char url[512];

    (void)state;
    for (unsigned seed = 1; seed <= 3; seed++) {
        new_url(url, sizeof(url));
        run(url, seed, 80);
    }
}

static void it_is_what_the_store_has_in_postgres(void **state)
{
    char url[512];

    (void)state;
    new_postgres_url(url, sizeof(url));
    run(url, 6, 60);
}

/* ---- what makes it useless ------------------------------------------------------------------------------------------- */

static void nothing_is_taken_that_does_not_follow(void **state)
{
    struct hf_tally tally = {.started = false};
    struct world world;
    char url[512];

    (void)state;
    new_url(url, sizeof(url));
    struct hf_store *store = open_store(url, true);

    begin_world(&world, store, 11);
    commit_batch(&world, 5);
    hf_tally_batch(&tally, &world.chain.batch, world.rows); /* not begun */
    assert_int_equal(tally.sums.cnt + tally.open.cnt, 0);
    begin_tally(&tally, store);
    hf_tally_batch(&tally, &world.chain.batch, world.rows);
    assert_int_equal(tally.next_seq, 6);

    struct hf_store_batch twice = world.chain.batch;

    hf_tally_batch(&tally, &twice, world.rows);
    assert_int_equal(tally.next_seq, 6);
    commit_batch(&world, 3);
    commit_batch(&world, 4);
    hf_tally_batch(&tally, &world.chain.batch, world.rows); /* one is missing before it */
    assert_int_equal(tally.next_seq, 6);
    read_tally(&tally, store, world.chain.next_seq, 1);
    assert_int_equal(tally.next_seq, 13);
    assert_int_equal(tally.last.number, 3);
    hf_tally_drop(&tally);
    hf_store_close(store);
}

/* Somebody else made the next rollup, or the store lost the batch: nothing is written, and a new tally goes on. */
static void nothing_is_written_over_another_store(const char *url, const char *sql)
{
    struct hf_tally tally = {.started = false};
    struct hf_store_error error = {""};
    struct hf_rollup made = {.number = 0};
    struct world world;
    char command[1024];
    struct hf_store *store = open_store(url, true);

    begin_world(&world, store, 12);
    begin_tally(&tally, store);
    commit_batch(&world, 5);
    hf_tally_batch(&tally, &world.chain.batch, world.rows);
    commit_batch(&world, 5);
    hf_tally_batch(&tally, &world.chain.batch, world.rows);
    if (sql == NULL) {
        assert_int_equal(hf_rollup_make(store, 5, &made, &error), HF_STORE_OK);
        assert_int_equal(made.number, 1);
    } else {
        (void)snprintf(command, sizeof(command), "sqlite3 '%s' \"%s\"", url + strlen("sqlite:"), sql);
        assert_int_equal(system(command), 0);
    }
    assert_int_equal(hf_rollup_write(store, &tally, &made, &error), HF_STORE_RETRY);
    assert_non_null(strstr(error.text, "added up again"));
    assert_int_equal(hf_rollup_newest(store, SEGMENT, &made, &error), HF_STORE_OK);
    assert_int_equal(made.number, sql == NULL ? 1 : 0);
    begin_tally(&tally, store);
    read_tally(&tally, store, sql == NULL ? 11 : 6, HF_ROLLUP_ROWS_MAX);
    assert_int_equal(hf_rollup_write(store, &tally, &made, &error), HF_STORE_OK);
    assert_int_equal(made.number, sql == NULL ? 2 : 1);
    hf_tally_drop(&tally);
    hf_store_close(store);
    expect_right_rollups(url, made.number);
}

static void a_takeover_in_between(void **state)
{
    char url[512];

    (void)state;
    new_url(url, sizeof(url));
    nothing_is_written_over_another_store(url, NULL);
}

static void a_store_that_lost_the_last_batch(void **state)
{
    char url[512];

    (void)state;
    new_url(url, sizeof(url));
    nothing_is_written_over_another_store(
        url,
        "DROP TRIGGER batch_no_delete; DROP TRIGGER receipt_no_delete; DROP TRIGGER conflict_no_delete; "
        "DELETE FROM batch WHERE number = 2; DELETE FROM receipt WHERE seq > 5; DELETE FROM conflict WHERE "
        "seq > 5");
}

static void a_batch_that_is_another_one(void **state)
{
    struct hf_tally tally = {.started = false};
    struct hf_store_error error = {""};
    struct hf_rollup made = {.number = 0};
    struct world world;
    char url[512];

    (void)state;
    new_url(url, sizeof(url));
    struct hf_store *store = open_store(url, true);

    begin_world(&world, store, 13);
    begin_tally(&tally, store);
    commit_batch(&world, 5);
    hf_tally_batch(&tally, &world.chain.batch, world.rows);
    tally.last.digest[7] ^= 1;
    assert_int_equal(hf_rollup_write(store, &tally, &made, &error), HF_STORE_RETRY);
    tally.last.digest[7] ^= 1;
    assert_int_equal(hf_rollup_write(store, &tally, &made, &error), HF_STORE_OK);
    hf_tally_drop(&tally);
    hf_store_close(store);
}

/* A tally whose sums went wrong in memory: verify finds what was written from it. */
static void wrong_sums_are_found(void **state)
{
    struct hf_store_error error = {""};

    (void)state;
    for (unsigned which = 0; which < 3; which++) {
        struct hf_tally tally = {.started = false};
        struct hf_tally_table *const tables[] = {&tally.sums, &tally.meters, &tally.open};
        struct hf_rollup made = {.number = 0};
        unsigned found = 0;
        const struct hf_verify_options options = {
            .finding = count_rollup_finding, .ctx = &found, .rollups = true};
        struct hf_verify_report report;
        struct world world;
        char url[512];

        new_url(url, sizeof(url));
        struct hf_store *store = open_store(url, true);

        begin_world(&world, store, 14);
        begin_tally(&tally, store);
        commit_batch(&world, 20);
        hf_tally_batch(&tally, &world.chain.batch, world.rows);
        assert_true(tables[which]->cnt > 0);
        for (size_t i = 0; i < tables[which]->cnt; i++) {
            tables[which]->values[i * tables[which]->values_cnt] += 1;
        }
        assert_int_equal(hf_rollup_write(store, &tally, &made, &error), HF_STORE_OK);
        assert_int_equal(hf_verify(store, &options, &report, &error), HF_STORE_OK);
        assert_int_equal(found, 1);
        hf_tally_drop(&tally);
        hf_store_close(store);
    }
}

/* ---- bounds ----------------------------------------------------------------------------------------------------------- */

static void it_takes_no_more_than_a_rollup_covers(void **state)
{
    enum {
        ROWS = 8192
    };
    const struct hf_rollup none = {.next_seq = 1};
    struct hf_receipt *rows = calloc(ROWS, sizeof(*rows));
    struct hf_store_batch batch = {.rows_cnt = ROWS, .first_seq = 1};
    struct hf_tally tally = {.started = false};

    (void)state;
    assert_non_null(rows);
    for (unsigned i = 0; i < ROWS; i++) {
        cases_reservation(&rows[i], "id");
        rows[i].reservation_seq = i;
    }
    hf_tally_start(&tally, &none);
    for (batch.number = 1; batch.number <= 40; batch.number++) {
        hf_tally_batch(&tally, &batch, rows);
        assert_int_equal(tally.full, batch.number > HF_ROLLUP_ROWS_MAX / ROWS);
        batch.first_seq += ROWS;
    }
    assert_int_equal(tally.next_seq, HF_ROLLUP_ROWS_MAX + 1);
    assert_int_equal(hf_tally_table_values(&tally.sums, 0)[0], HF_ROLLUP_ROWS_MAX);
    assert_int_equal(tally.sums.cnt, 1);
    hf_tally_drop(&tally);
    free(rows);
}

/* A sum that does not fit is no sum: everything is dropped, and reading says why. */
static void what_does_not_fit_is_dropped(void **state)
{
    enum {
        ROWS = 130
    };
    static struct hf_receipt rows[ROWS];
    struct hf_tally tally = {.started = false};
    struct hf_store_error error = {""};
    struct cases_chain chain;
    char url[512];

    (void)state;
    new_url(url, sizeof(url));
    struct hf_store *store = open_store(url, true);

    for (unsigned i = 0; i < ROWS; i++) {
        char id[16];

        (void)snprintf(id, sizeof(id), "s%u", i);
        cases_settlement(&rows[i], id);
        rows[i].actual_cost_micros = HF_AMOUNT_MAX;
    }
    cases_chain_start(&chain, store);
    begin_tally(&tally, store);
    assert_int_equal(cases_chain_commit(&chain, rows, ROWS), HF_STORE_OK);
    hf_tally_batch(&tally, &chain.batch, rows);
    assert_false(tally.started);
    assert_null(tally.sums.keys);
    begin_tally(&tally, store);
    assert_int_equal(hf_tally_read(&tally, store, 1000, &error), HF_STORE_NOMEM);
    assert_non_null(strstr(error.text, "do not fit"));
    assert_false(tally.started);
    hf_store_close(store);
}

/* ---- killed while writing --------------------------------------------------------------------------------------------- */

/* Where: a word of the statement or the table, or what is done. */
static const char *const points[] = {"begin",       "rollup_window ", "rollup_sum", "rollup_meter",
                                     "rollup_open", "rollup ",        "commit",     "committed"};
#define POINTS (sizeof(points) / sizeof(points[0]))

static struct {
    struct hf_store_ops ops;
    const struct hf_store_ops *real;
    const char *point; /* NULL: nobody is killed */
} killing;

static void at_point(const char *what)
{
    if (killing.point != NULL && strncmp(what, killing.point, strlen(killing.point)) == 0) {
        (void)raise(SIGKILL);
    }
}

static enum hf_store_status watched_begin(struct hf_store *store, struct hf_store_error *error)
{
    enum hf_store_status status = killing.real->begin(store, error);

    at_point("begin");
    return status;
}

static enum hf_store_status watched_query(struct hf_store *store, const char *sql,
                                          const struct hf_param *params, unsigned params_cnt,
                                          hf_columns_fn *fn, void *ctx, struct hf_store_error *error)
{
    static const char insert[] = "INSERT INTO ";
    enum hf_store_status status = killing.real->query(store, sql, params, params_cnt, fn, ctx, error);

    if (strncmp(sql, insert, strlen(insert)) == 0) {
        at_point(sql + strlen(insert));
    }
    return status;
}

static enum hf_store_status watched_append(struct hf_store *store, const struct hf_store_part *part,
                                           size_t cnt, struct hf_store_error *error)
{
    enum hf_store_status status = killing.real->append(store, part, cnt, error);

    at_point(part->table);
    return status;
}

static enum hf_store_status watched_commit(struct hf_store *store, struct hf_store_error *error)
{
    at_point("commit");
    enum hf_store_status status = killing.real->commit(store, error);

    at_point("committed");
    return status;
}

/* In a process of its own: opens the store, reads the tally, writes a rollup. True: it was killed. */
static bool killed_at(const char *url, const char *point, uint64_t next_seq)
{
    pid_t child = fork();
    int how;

    assert_true(child >= 0);
    if (child == 0) {
        struct hf_tally tally = {.started = false};
        struct hf_store_error error = {""};
        struct hf_store *store = open_store(url, false);
        struct hf_rollup made;

        begin_tally(&tally, store);
        read_tally(&tally, store, next_seq, 8);
        killing.real = store->ops;
        killing.ops = *store->ops;
        killing.ops.begin = watched_begin;
        killing.ops.query = watched_query;
        killing.ops.append = watched_append;
        killing.ops.commit = watched_commit;
        killing.point = point;
        store->ops = &killing.ops;
        _exit(hf_rollup_write(store, &tally, &made, &error) == HF_STORE_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    if (WIFSIGNALED(how)) {
        assert_int_equal(WTERMSIG(how), SIGKILL);
        return true;
    }
    assert_int_equal(WEXITSTATUS(how), 0);
    return false;
}

static void killed_at_every_step(const char *url)
{
    struct world world;
    struct hf_store *store = open_store(url, true);
    struct hf_store_error error = {""};
    struct hf_rollup newest;

    begin_world(&world, store, 15);
    for (size_t p = 0; p <= POINTS; p++) {
        commit_batch(&world, BATCH_MAX);
        hf_store_close(store);
        assert_int_equal(killed_at(url, p < POINTS ? points[p] : NULL, world.chain.next_seq), p < POINTS);
        store = open_store(url, false);
        world.chain.store = store;
        assert_int_equal(hf_rollup_newest(store, SEGMENT, &newest, &error), HF_STORE_OK);
        /* Not at all, or, where only the answer was lost and where nobody was killed, whole. */
        assert_int_equal(newest.number, p < POINTS - 1 ? 0 : p < POINTS ? 1 : 2);
        assert_int_equal(newest.next_seq, p < POINTS - 1 ? 1 : world.chain.next_seq);
    }
    hf_store_close(store);
    expect_right_rollups(url, 2);
}

static void killed_at_every_step_in_sqlite(void **state)
{
    char url[512];

    (void)state;
    new_url(url, sizeof(url));
    killed_at_every_step(url);
}

static void killed_at_every_step_in_postgres(void **state)
{
    char url[512];

    (void)state;
    new_postgres_url(url, sizeof(url));
    killed_at_every_step(url);
}

static int make_scratch(void **state)
{
    (void)state;
    (void)snprintf(t.scratch, sizeof(t.scratch), "/tmp/hf_tally_XXXXXX");
    return mkdtemp(t.scratch) == NULL;
}

static int remove_scratch(void **state)
{
    char command[128];

    (void)state;
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", t.scratch);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_what_the_store_has_in_sqlite),
        cmocka_unit_test(it_is_what_the_store_has_in_postgres),
        cmocka_unit_test(nothing_is_taken_that_does_not_follow),
        cmocka_unit_test(a_takeover_in_between),
        cmocka_unit_test(a_store_that_lost_the_last_batch),
        cmocka_unit_test(a_batch_that_is_another_one),
        cmocka_unit_test(wrong_sums_are_found),
        cmocka_unit_test(it_takes_no_more_than_a_rollup_covers),
        cmocka_unit_test(what_does_not_fit_is_dropped),
        cmocka_unit_test(killed_at_every_step_in_sqlite),
        cmocka_unit_test(killed_at_every_step_in_postgres),
    };

    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
