/* ctest: labels=postgres timeout=300 */
/* Rollups: two stores with the same receipts, one of them rolled up at random places, always say the same. */
#include "core/window.h"
#include "persist/rollup.h"
#include "persist/verify.h"
#include "tests/support/store_cases.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SEGMENT   "gateway"
#define OPEN_MAX  64U
#define BATCH_MAX 24U
#define DUMP_MAX  (256U * 1024U)
#define DAY_MS    UINT64_C(86400000)

/* ---- two stores of one kind ----------------------------------------------------------------------------------------- */

struct pair {
    char urls[2][512];
    struct hf_store *stores[2];
    struct cases_chain chains[2];
};

static char scratch[64];
static unsigned made_cnt;

static void sqlite_url(char *url, size_t url_bytes)
{
    (void)snprintf(url, url_bytes, "sqlite:%s/%u.db", scratch, made_cnt++);
}

/* A database of its own on the server of HOLDFAST_TEST_PG, or false. */
static bool postgres_url(char *url, size_t url_bytes)
{
    const char *server = getenv("HOLDFAST_TEST_PG");
    char command[4096];

    if (server == NULL) {
        return false;
    }
    (void)snprintf(url, url_bytes, "hf_rollup_%d_%u", (int)getpid(), made_cnt++);
    (void)snprintf(command, sizeof(command), "psql -q -d '%s' -c 'CREATE DATABASE %s' >/dev/null", server,
                   url);
    assert_int_equal(system(command), 0);

    /* The server's URL with another database in its path. */
    char name[64];
    const char *slash = strchr(strstr(server, "://") + 3, '/');

    (void)snprintf(name, sizeof(name), "%s", url);
    (void)snprintf(url, url_bytes, "%.*s/%s%s", (int)(slash - server), server, name,
                   slash + strcspn(slash, "?"));
    return true;
}

static bool pair_open(struct pair *pair, bool postgres)
{
    struct hf_store_error error = {""};

    memset(pair, 0, sizeof(*pair));
    for (size_t i = 0; i < 2; i++) {
        if (!postgres) {
            sqlite_url(pair->urls[i], sizeof(pair->urls[i]));
        } else if (!postgres_url(pair->urls[i], sizeof(pair->urls[i]))) {
            return false;
        }
        const struct hf_store_options options = {.durability = HF_STORE_OFF};

        if (hf_store_init(pair->urls[i], &options, &error) != HF_STORE_OK ||
            hf_store_open(pair->urls[i], &options, &pair->stores[i], &error) != HF_STORE_OK ||
            hf_store_lock(pair->stores[i], SEGMENT, &error) != HF_STORE_OK) {
            fail_msg("%s", error.text);
        }
        cases_chain_start(&pair->chains[i], pair->stores[i]);
    }
    return true;
}

static void pair_close(struct pair *pair)
{
    hf_store_close(pair->stores[0]);
    hf_store_close(pair->stores[1]);
}

/* ---- random receipts ------------------------------------------------------------------------------------------------ */

struct world {
    unsigned seed;
    uint64_t now_ms;
    unsigned ids_cnt;
    struct hf_receipt open[OPEN_MAX];
    unsigned open_cnt;
};

static unsigned dice(struct world *world, unsigned sides)
{
    return (unsigned)rand_r(&world->seed) % sides;
}

static void reservation(struct world *world, struct hf_receipt *row)
{
    static const char *const teams[] = {"content", "support"};
    char text[32];

    (void)snprintf(text, sizeof(text), "id-%u", world->ids_cnt++);
    cases_reservation(row, text);
    cases_name(&row->team, teams[dice(world, 2)]);
    if (dice(world, 3) == 0) {
        cases_name(&row->key, "k");
    }
    if (dice(world, 3) == 0) {
        row->model.len = 0;
        row->model.bytes[0] = '\0';
    }
    row->made_ms = row->window_ms = world->now_ms;
    row->expires_at_ms = world->now_ms + 60000;
    row->bucket_mask = 0;
    for (unsigned w = 0; w < HF_WINDOW_CNT; w++) {
        if (dice(world, 2) == 0) {
            row->bucket_mask |= UINT64_C(1)
                                << hf_receipt_bucket(HF_LAYER_TENANT, (enum hf_window)w, HF_DIM_COST);
            row->bucket_mask |= UINT64_C(1)
                                << hf_receipt_bucket(HF_LAYER_TEAM, (enum hf_window)w, HF_DIM_TOKENS);
        }
    }
    if (dice(world, 8) == 0) { /* beyond 32 bits, so that the halves carry */
        row->held_tokens = (int64_t)(HF_AMOUNT_MAX - dice(world, 1000));
        row->hold_tokens = (uint64_t)row->held_tokens;
    }
}

static void closing(struct world *world, struct hf_receipt *row)
{
    unsigned i = dice(world, world->open_cnt);
    const struct hf_receipt open = world->open[i];

    cases_settlement(row, open.id.bytes);
    row->team = open.team;
    row->key = open.key;
    row->model = open.model;
    row->bucket_mask = open.bucket_mask;
    row->window_ms = open.window_ms;
    row->made_ms = world->now_ms;
    row->held_tokens = -open.held_tokens;
    row->hold_tokens = open.hold_tokens;
    if (dice(world, 4) == 0) {
        row->outcome = HF_OUTCOME_FAILURE;
    }
    world->open[i] = world->open[--world->open_cnt];
}

/* The same batch for both stores, each with its own copy: committing fills rows in. */
static void commit_batch(struct pair *pair, struct world *world)
{
    static struct hf_receipt rows[2][BATCH_MAX];
    unsigned cnt = 1 + dice(world, BATCH_MAX);

    for (unsigned i = 0; i < cnt; i++) {
        world->now_ms += dice(world, 20000);
        if (world->open_cnt > 0 && (world->open_cnt == OPEN_MAX || dice(world, 2) == 0)) {
            closing(world, &rows[0][i]);
        } else {
            reservation(world, &rows[0][i]);
            world->open[world->open_cnt++] = rows[0][i];
        }
    }
    memcpy(rows[1], rows[0], sizeof(rows[0]));
    for (unsigned s = 0; s < 2; s++) {
        struct cases_chain *chain = &pair->chains[s];
        struct hf_store_batch batch;

        cases_chain_prepare(chain, &batch, rows[s], cnt);
        batch.committed_ms = world->now_ms;
        if (hf_store_commit(chain->store, &batch, rows[s], cnt, &chain->report, &chain->error) !=
            HF_STORE_OK) {
            fail_msg("%s", chain->error.text);
        }
        chain->batch = batch;
        chain->next_seq += cnt;
    }
}

/* ---- what a store says, as text ------------------------------------------------------------------------------------- */

struct dump {
    char text[DUMP_MAX];
    size_t len;
};

static void say(struct dump *dump, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct dump *dump, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    dump->len += (size_t)vsnprintf(dump->text + dump->len, sizeof(dump->text) - dump->len, format, args);
    va_end(args);
    assert_true(dump->len < sizeof(dump->text));
}

static int say_sum(void *ctx, const struct hf_store_sum *sum)
{
    say(ctx, "sum %d %s/%s/%s %" PRIx64 " n=%" PRIu64, sum->window, sum->tenant.bytes, sum->team.bytes,
        sum->key.bytes, sum->bucket_mask, sum->rows_cnt);
    for (unsigned d = 0; d < HF_DIM_CNT; d++) {
        say(ctx, " %lld:%llu %lld:%llu", (long long)(sum->held[d] >> 64), (unsigned long long)sum->held[d],
            (long long)(sum->charged[d] >> 64), (unsigned long long)sum->charged[d]);
    }
    say(ctx, "\n");
    return 0;
}

static int say_meter(void *ctx, const struct hf_store_meter *meter)
{
    say(ctx, "meter %s %s %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n",
        meter->tenant.bytes, meter->capability.bytes, meter->model.bytes, meter->requests, meter->failures,
        meter->degraded, meter->reserved_micros, meter->settled_micros);
    return 0;
}

static int say_reservation(void *ctx, const struct hf_receipt *rows, size_t rows_cnt)
{
    say(ctx, "reservation %s", rows[0].id.bytes);
    for (size_t i = 0; i < rows_cnt; i++) {
        say(ctx, " %" PRIu64, rows[i].seq);
    }
    say(ctx, "\n");
    return 0;
}

static void say_all(struct hf_store *store, uint64_t now_ms, struct dump *dump)
{
    const struct hf_store_filter filter = {
        .open = true, .closed_since_ms = now_ms - 60000, .late_since_ms = HF_UNKNOWN};
    struct hf_store_error error = {""};

    dump->len = 0;
    if (hf_store_sums(store, SEGMENT, now_ms, (1U << HF_WINDOW_CNT) - 1, say_sum, dump, &error) !=
            HF_STORE_OK ||
        hf_store_meters(store, SEGMENT, NULL, say_meter, dump, &error) != HF_STORE_OK ||
        hf_store_reservations(store, SEGMENT, &filter, say_reservation, dump, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
}

static void same(struct pair *pair, uint64_t now_ms)
{
    static struct dump dumps[2];

    say_all(pair->stores[0], now_ms, &dumps[0]);
    say_all(pair->stores[1], now_ms, &dumps[1]);
    assert_true(dumps[0].len > 0);
    assert_string_equal(dumps[0].text, dumps[1].text);
}

/* ---- tests ---------------------------------------------------------------------------------------------------------- */

static void roll_up(struct pair *pair, uint64_t rows_max, struct hf_rollup *made)
{
    struct hf_store_error error = {""};

    if (hf_rollup_make(pair->stores[1], rows_max, made, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
}

static void run_pair(bool postgres, unsigned seed, unsigned batches)
{
    struct pair pair;
    struct world world = {.seed = seed, .now_ms = UINT64_C(1790000000000)};
    struct hf_rollup made = {.number = 0};
    struct hf_rollup newest;
    struct hf_store_error error = {""};

    if (!pair_open(&pair, postgres)) {
        print_message("HOLDFAST_TEST_PG is not set: not tried on PostgreSQL\n");
        skip();
    }
    print_message("seed %u\n", seed);
    for (unsigned i = 0; i < batches; i++) {
        commit_batch(&pair, &world);
        if (dice(&world, 4) == 0) {
            roll_up(&pair, 1 + dice(&world, 100), &made); /* in parts, and with a tail */
        }
        if (dice(&world, 6) == 0) {
            world.now_ms += dice(&world, 3) * 11 * DAY_MS; /* windows end: minutes to months */
        }
        same(&pair, world.now_ms + dice(&world, 2) * 30000);
        same(&pair, world.now_ms - dice(&world, 40) * DAY_MS); /* an instant before the newest rollup, too */
    }
    assert_true(made.number > 5);
    assert_int_equal(hf_rollup_newest(pair.stores[1], SEGMENT, &newest, &error), HF_STORE_OK);
    assert_int_equal(newest.number, made.number);
    assert_int_equal(newest.next_seq, made.next_seq);
    assert_int_equal(newest.parts_cnt, made.parts_cnt);

    uint8_t digest[HF_DIGEST_BYTES];

    assert_int_equal(hf_rollup_digest(pair.stores[1], SEGMENT, &newest, digest, &error), HF_STORE_OK);
    assert_memory_equal(digest, newest.digest, HF_DIGEST_BYTES);
    pair_close(&pair);
}

static void a_rolled_up_store_says_the_same_in_sqlite(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 6; seed++) {
        run_pair(false, seed, 60);
    }
}

static void a_rolled_up_store_says_the_same_in_postgres(void **state)
{
    (void)state;
    run_pair(true, 7, 60);
}

static void there_is_nothing_to_roll_up_twice(void **state)
{
    struct pair pair;
    struct world world = {.seed = 9, .now_ms = UINT64_C(1790000000000)};
    struct hf_rollup made = {.number = 0};
    struct hf_rollup again = {.number = 0};

    (void)state;
    assert_true(pair_open(&pair, false));
    roll_up(&pair, 100, &made);
    assert_int_equal(made.number, 0);
    assert_int_equal(made.next_seq, 1);
    commit_batch(&pair, &world);
    roll_up(&pair, HF_ROLLUP_ROWS_MAX, &made);
    assert_int_equal(made.number, 1);
    assert_int_equal(made.next_seq, pair.chains[1].next_seq);
    roll_up(&pair, HF_ROLLUP_ROWS_MAX, &again);
    assert_int_equal(again.number, 1);
    assert_memory_equal(again.digest, made.digest, HF_DIGEST_BYTES);
    pair_close(&pair);
}

static void it_is_due_by_rows_and_by_its_own_size(void **state)
{
    const struct hf_rollup none = {.next_seq = 1};
    const struct hf_rollup large = {.number = 1, .next_seq = 1001, .parts_cnt = 100000};

    (void)state;
    assert_false(hf_rollup_due(&none, HF_ROLLUP_ROWS));
    assert_true(hf_rollup_due(&none, HF_ROLLUP_ROWS + 1));
    assert_false(hf_rollup_due(&large, 1001 + HF_ROLLUP_ROWS));
    assert_true(hf_rollup_due(&large, 1001 + 400000));
    assert_false(hf_rollup_due(&large, 5)); /* a store that lost commits */
}

/* A rollup of a chain that is no longer the store's is not used. */
static void a_rollup_of_another_chain_is_not_used(void **state)
{
    struct pair pair;
    struct world world = {.seed = 11, .now_ms = UINT64_C(1790000000000)};
    struct hf_rollup made = {.number = 0};
    struct hf_rollup newest;
    struct hf_store_error error = {""};
    char command[4096];

    (void)state;
    assert_true(pair_open(&pair, false));
    commit_batch(&pair, &world);
    commit_batch(&pair, &world);
    roll_up(&pair, HF_ROLLUP_ROWS_MAX, &made);
    assert_int_equal(made.batch_number, 2);
    (void)snprintf(
        command, sizeof(command),
        "sqlite3 '%s' \"DROP TRIGGER batch_no_update; UPDATE batch SET digest = zeroblob(32) WHERE number = 2\"",
        pair.urls[1] + strlen("sqlite:"));
    assert_int_equal(system(command), 0);
    assert_int_equal(hf_rollup_newest(pair.stores[1], SEGMENT, &newest, &error), HF_STORE_OK);
    assert_int_equal(newest.number, 0);
    same(&pair, world.now_ms);
    pair_close(&pair);
}

/* ---- attacks -------------------------------------------------------------------------------------------------------- */

static void count_finding(void *ctx, const struct hf_verify_finding *finding)
{
    unsigned *cnt = ctx;

    if (finding->what == HF_VERIFY_ROLLUP) {
        (*cnt)++;
    }
}

/* SQL on a copy of the rolled-up store, by somebody with a shell: before, then sql. 0: it went through. */
static int sql_on_copy(struct pair *pair, const char *before, const char *sql)
{
    const char *file = pair->urls[1] + strlen("sqlite:");
    char command[8192];

    hf_store_disconnect(pair->stores[1]); /* so that the file is whole */
    (void)snprintf(command, sizeof(command),
                   "cp '%s' '%s.copy' && sqlite3 -bail '%s.copy' \"%s %s;\" 2>/dev/null", file, file, file,
                   before, sql);
    return system(command);
}

/* Findings about rollups after a change by SQL, made as the owner of the file. */
static unsigned findings_after(struct pair *pair, const char *sql, bool add_up)
{
    const struct hf_store_options reader = {.role = HF_STORE_READER};
    unsigned cnt = 0;
    const struct hf_verify_options options = {.finding = count_finding, .ctx = &cnt, .rollups = add_up};
    struct hf_verify_report report;
    struct hf_store_error error = {""};
    struct hf_store *store = NULL;
    static const char *const tables[] = {"rollup",       "rollup_window", "rollup_sum",
                                         "rollup_meter", "rollup_open",   "receipt"};
    char text[4096];
    size_t len = 0;

    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        len +=
            (size_t)snprintf(text + len, sizeof(text) - len,
                             "DROP TRIGGER %s_no_update; DROP TRIGGER %s_no_delete; ", tables[i], tables[i]);
    }
    assert_int_equal(sql_on_copy(pair, text, sql), 0);
    (void)snprintf(text, sizeof(text), "%s.copy", pair->urls[1]);
    if (hf_store_open(text, &reader, &store, &error) != HF_STORE_OK ||
        hf_verify(store, &options, &report, &error) != HF_STORE_OK) {
        fail_msg("%s", error.text);
    }
    assert_true(report.rollups_cnt > 0);
    hf_store_close(store);
    return cnt;
}

static void every_change_of_a_rollup_is_found(void **state)
{
    static const char *const changes[] = {
        "UPDATE rollup SET end_ms = end_ms + 1 WHERE number = 2",
        "UPDATE rollup SET next_seq = next_seq + 1 WHERE number = 2",
        "UPDATE rollup SET digest = zeroblob(32) WHERE number = 2",
        "UPDATE rollup SET batch_digest = zeroblob(32) WHERE number = 2",
        "DELETE FROM rollup WHERE number = 2",
        "UPDATE rollup_sum SET charged_cost_low = charged_cost_low - 1 WHERE number = 3 AND window_kind = 'month'",
        "UPDATE rollup_sum SET team = team || 'x' WHERE number = 3 AND window_kind = 'month'",
        "DELETE FROM rollup_sum WHERE number = 3 AND window_kind = 'lifetime'",
        "UPDATE rollup_window SET base = NULL WHERE number = 3 AND window_kind = 'lifetime'",
        "UPDATE rollup_meter SET settled_micros = 0 WHERE number = 1",
        "DELETE FROM rollup_open WHERE number = 3",
        "INSERT INTO rollup_open (segment_id, number, reservation_seq) VALUES (1, 2, 1000000)",
    };
    struct pair pair;
    struct world world = {.seed = 21, .now_ms = UINT64_C(1790000000000)};
    struct hf_rollup made = {.number = 0};

    (void)state;
    assert_true(pair_open(&pair, false));
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned b = 0; b < 4; b++) {
            commit_batch(&pair, &world);
        }
        roll_up(&pair, HF_ROLLUP_ROWS_MAX, &made);
    }
    assert_int_equal(findings_after(&pair, "SELECT 1 WHERE 0;", true), 0);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        if (findings_after(&pair, changes[i], false) == 0) {
            fail_msg("not found: %s", changes[i]);
        }
    }
    assert_int_not_equal(
        sql_on_copy(&pair, "", "INSERT OR REPLACE INTO rollup_open SELECT * FROM rollup_open"), 0);
    assert_int_not_equal(sql_on_copy(&pair, "", "INSERT OR REPLACE INTO rollup_sum SELECT * FROM rollup_sum"),
                         0);
    assert_int_not_equal(sql_on_copy(&pair, "", "INSERT OR REPLACE INTO rollup SELECT * FROM rollup"), 0);
    /* A receipt that is changed after its rollup: its own digest tells, and so do the sums. */
    assert_int_equal(
        findings_after(&pair, "UPDATE receipt SET charged_cost_micros = 1 WHERE kind = 'settlement'", false),
        0);
    assert_true(findings_after(&pair, "UPDATE receipt SET charged_cost_micros = 1 WHERE kind = 'settlement'",
                               true) >= 4);
    pair_close(&pair);
}

static int make_scratch(void **state)
{
    (void)state;
    (void)snprintf(scratch, sizeof(scratch), "/tmp/hf_rollup_XXXXXX");
    return mkdtemp(scratch) == NULL;
}

static int remove_scratch(void **state)
{
    char command[128];

    (void)state;
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", scratch);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_due_by_rows_and_by_its_own_size),
        cmocka_unit_test(there_is_nothing_to_roll_up_twice),
        cmocka_unit_test(a_rollup_of_another_chain_is_not_used),
        cmocka_unit_test(every_change_of_a_rollup_is_found),
        cmocka_unit_test(a_rolled_up_store_says_the_same_in_sqlite),
        cmocka_unit_test(a_rolled_up_store_says_the_same_in_postgres),
    };

    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
