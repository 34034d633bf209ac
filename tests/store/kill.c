/* Real daemon, real workers, SIGKILL at random: what the workers were told is in the store, once, and nothing else.
 *
 *   store_kill --daemon PATH --store sqlite|postgres [--seconds N] [--seed N] [--kills N]
 *
 * Workers note each operation in shared memory before it (it may have happened) and after it (it has). At the end every note
 * is compared with the receipts; sums of the store with the buckets of the segment; and all of it again after the segment
 * was removed and made anew. Exit status 0, 1 (what is wrong is on standard error), 77: no PostgreSQL here. */
#include "core/client.h"
#include "persist/store.h"
#include "shm/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKERS     3U
#define NOTES_MAX   300000U /* per worker */
#define KILLS_LONG  500U    /* of the daemon, on each store: with HOLDFAST_LONG=1 */
#define TTL_MS      700U
#define PATIENCE_MS 90000U /* for a busy machine; nothing is decided by time */
#define CLOSE_NONE  0U
#define CLOSE_GIVEN 1U /* settled */
#define CLOSE_BACK  2U /* released */

/* One reservation as its worker knows it. Written by one worker at a time, read when all are gone. */
struct note {
    uint32_t asked;    /* reserve was called */
    uint32_t admitted; /* 1 it was admitted, 2 it was refused */
    uint32_t closing;  /* CLOSE_x that was called */
    uint32_t closed;   /* 1 it was accepted, 2 refused */
    uint64_t held;     /* micros, after the extension if that was accepted */
    uint64_t paid;     /* micros */
};

struct board {
    uint32_t stop;
    uint32_t used[WORKERS];
    struct note notes[WORKERS][NOTES_MAX];
};

/* What the store has of one reservation. */
struct stored {
    uint32_t reservations;
    uint32_t closings; /* settlement, release, late */
    uint32_t expiries;
    uint32_t kind; /* of the last closing */
    int64_t held;  /* sums of effects */
    int64_t charged;
    uint64_t paid;
};

struct test {
    char folder[64];
    char policy[96];
    char segment[96];
    char url[512];
    const char *daemon_path;
    pid_t daemon;
    pid_t workers[WORKERS];
    struct board *board;
    struct stored *stored;
    uint64_t random;
    uint32_t daemon_kills;
    uint32_t kills_wanted; /* 0: as many as the seconds allow */
    uint32_t worker_kills;
    uint32_t wrong;
};

static const char policy_text[] =
    "version: 1\n"
    "currency: EUR\n"
    "prices: {revision: '1', models: []}\n"
    "defaults: {ttl_ms: 700}\n"
    "tenants:\n"
    "  - id: t0\n"
    "    limits: [{window: month, cost_micros: 90000000000, invocations: 9000000}]\n"
    "    teams:\n"
    "      - {id: u, limits: [{window: month, cost_micros: 80000000000}, {window: minute, tokens: 90000000}],\n"
    "         capabilities: [{id: c, cap_micros: 100000, cap_tokens: 100000}]}\n"
    "  - id: t1\n"
    "    on_expiry: retain\n"
    "    limits: [{window: lifetime, cost_micros: 90000000000}]\n"
    "    teams:\n"
    "      - {id: u, limits: [{window: month, cost_micros: 80000000000}], \n"
    "         capabilities: [{id: c, cap_micros: 100000, cap_tokens: 100000}]}\n";

static void wrong(struct test *test, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void wrong(struct test *test, const char *format, ...)
{
    va_list args;

    test->wrong++;
    if (test->wrong <= 20) {
        (void)fprintf(stderr, "WRONG: ");
        va_start(args, format);
        (void)vfprintf(stderr, format, args);
        va_end(args);
        (void)fprintf(stderr, "\n");
    }
}

static void die(const char *what)
{
    (void)fprintf(stderr, "store_kill: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (*random >> 20) % below;
}

static void pause_ms(uint64_t ms)
{
    (void)usleep((useconds_t)(ms * 1000));
}

/* ---- a worker --------------------------------------------------------------------------------------------------- */

static void settle_one(struct holdfast *handle, const char *id, struct note *note, uint64_t *random)
{
    struct holdfast_closing closing;
    struct holdfast_usage usage;

    holdfast_usage_init(&usage, draw(random, 50), draw(random, 50));
    usage.cost_micros = note->paid = draw(random, 400);
    note->closing = CLOSE_GIVEN;
    hf_fence_rel(); /* plain: read when this process is gone */
    note->closed =
        holdfast_settle(handle, id, 0, &usage, HOLDFAST_SUCCESS, NULL, &closing) == HOLDFAST_OK ? 1 : 2;
}

/* Settlements put off; the oldest is overwritten when there are too many, and expires. */
#define LATER 32U
struct later {
    uint64_t due_ms[LATER];
    uint32_t n[LATER];
    uint32_t cnt;
};

static void settle_due(struct holdfast *handle, struct note *notes, uint32_t worker, struct later *later,
                       uint64_t *random)
{
    char id[32];

    for (uint32_t i = 0; i < LATER; i++) {
        if (later->due_ms[i] != 0 && hf_clock_mono_fine_ms() >= later->due_ms[i]) {
            later->due_ms[i] = 0;
            (void)snprintf(id, sizeof(id), "w%u-%u", worker, later->n[i]);
            settle_one(handle, id, &notes[later->n[i]], random);
        }
    }
}

static void close_one(struct holdfast *handle, const char *id, struct note *note, uint32_t n,
                      struct later *later, uint64_t *random)
{
    struct holdfast_closing closing;
    struct holdfast_extension extension;
    struct holdfast_answer answer;

    switch (draw(random, 8)) {
    case 0:
        return; /* it expires */
    case 1:
        later->n[later->cnt % LATER] = n; /* late, or just before it is reaped */
        later->due_ms[later->cnt++ % LATER] = hf_clock_mono_fine_ms() + TTL_MS + draw(random, 300);
        return;
    case 2:
        note->closing = CLOSE_BACK;
        hf_fence_rel(); /* plain: read when this process is gone */
        note->closed = holdfast_release(handle, id, 0, &closing) == HOLDFAST_OK ? 1 : 2;
        return;
    case 3:
        holdfast_extension_init(&extension);
        extension.id = id;
        extension.cost_micros = note->held + draw(random, 100);
        extension.ttl_ms = TTL_MS;
        if (holdfast_extend(handle, &extension, &answer) == HOLDFAST_OK) {
            note->held = answer.reserved.cost_micros;
        }
        break;
    default:
        break;
    }
    settle_one(handle, id, note, random);
}

static void work(struct test *test, uint32_t worker)
{
    struct board *board = test->board;
    struct holdfast_segment *segment = NULL;
    struct holdfast *handle = NULL;
    uint64_t random = test->random;
    struct later later = {.cnt = 0};

    if (holdfast_open(test->segment, &segment, NULL, 0) != HOLDFAST_OK ||
        holdfast_join(segment, &handle) != HOLDFAST_OK) {
        _exit(1);
    }
    while (hf_load_acq_u32(&board->stop) == 0 && board->used[worker] < NOTES_MAX) { /* plain: a flag */
        uint32_t n = board->used[worker]++;
        struct note *note = &board->notes[worker][n];
        struct holdfast_request request;
        struct holdfast_answer answer;
        char id[32];
        char tenant[8];

        (void)snprintf(id, sizeof(id), "w%u-%u", worker, n);
        (void)snprintf(tenant, sizeof(tenant), "t%u", n % 2);
        holdfast_request_init(&request);
        request.id = id;
        request.tenant = tenant;
        request.team = "u";
        request.capability = "c";
        request.tokens = draw(&random, 1000);
        request.cost_micros = note->held = draw(&random, 1000);
        note->asked = 1;
        hf_fence_rel(); /* plain: read when this process is gone */
        note->admitted = holdfast_reserve(handle, &request, &answer) == HOLDFAST_OK ? 1 : 2;
        if (note->admitted == 1) {
            close_one(handle, id, note, n, &later, &random);
        } else {
            pause_ms(5);
        }
        settle_due(handle, board->notes[worker], worker, &later, &random);
        (void)usleep((useconds_t)draw(&random, 1000));
    }
    holdfast_leave(handle);
    holdfast_close(segment);
    _exit(0);
}

static void start_worker(struct test *test, uint32_t worker)
{
    test->random = test->random * 6364136223846793005ULL + 1442695040888963407ULL;
    test->workers[worker] = fork();
    if (test->workers[worker] < 0) {
        die("fork");
    }
    if (test->workers[worker] == 0) {
        work(test, worker);
    }
}

/* ---- the daemon ------------------------------------------------------------------------------------------------- */

static void start_daemon(struct test *test)
{
    test->daemon = fork();
    if (test->daemon < 0) {
        die("fork");
    }
    if (test->daemon == 0) {
        char log[128];

        (void)snprintf(log, sizeof(log), "%s/daemon.log", test->folder);
        int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

        (void)dup2(out, STDERR_FILENO);
        (void)execl(test->daemon_path, "holdfastd", "--segment", test->segment, "--policy", test->policy,
                    "--store", test->url, "--store-name", "kill", "--slots", "16384", (char *)NULL);
        _exit(127);
    }
}

static void await_ready(struct test *test)
{
    for (int i = 0; i < 4500; i++) {
        struct hf_segment seg;

        if (hf_segment_attach(test->segment, &seg, NULL) == HF_OK) {
            uint32_t state = hf_segment_state(&seg);

            hf_segment_detach(&seg);
            if (state == HF_SEGMENT_READY) {
                return;
            }
        }
        if (waitpid(test->daemon, NULL, WNOHANG) == test->daemon) {
            start_daemon(test); /* the lock of a killed one may be held for a moment */
            pause_ms(100);
        }
        pause_ms(20);
    }
    die("the segment was not ready in 90 s");
}

static void kill_daemon(struct test *test)
{
    (void)kill(test->daemon, SIGKILL);
    (void)waitpid(test->daemon, NULL, 0);
    test->daemon_kills++;
}

static void play(struct test *test, uint64_t seconds)
{
    uint64_t until = hf_clock_mono_fine_ms() + seconds * 1000;

    while (test->kills_wanted != 0 ? test->daemon_kills < test->kills_wanted
                                   : hf_clock_mono_fine_ms() < until) {
        pause_ms(10 + draw(&test->random, 250));
        if (draw(&test->random, 4) == 0) {
            uint32_t worker = (uint32_t)draw(&test->random, WORKERS);

            (void)kill(test->workers[worker], SIGKILL);
            (void)waitpid(test->workers[worker], NULL, 0);
            test->worker_kills++;
            start_worker(test, worker);
        } else {
            kill_daemon(test);
            pause_ms(draw(&test->random, 60));
            start_daemon(test);
        }
    }
}

/* ---- comparing -------------------------------------------------------------------------------------------------- */

static struct stored *stored_of(struct test *test, const char *id)
{
    char *dash = NULL;
    char *end = NULL;
    unsigned long worker = id[0] == 'w' ? strtoul(id + 1, &dash, 10) : WORKERS;

    if (worker >= WORKERS || *dash != '-') {
        return NULL;
    }
    unsigned long n = strtoul(dash + 1, &end, 10);

    if (*end != '\0' || n >= NOTES_MAX) {
        return NULL;
    }
    return &test->stored[worker * NOTES_MAX + n];
}

static int take_row(void *ctx, const struct hf_receipt *row)
{
    struct test *test = ctx;

    if (!hf_receipt_in_family(row->kind)) {
        return 0;
    }
    struct stored *stored = stored_of(test, row->id.bytes);

    if (stored == NULL) {
        wrong(test, "a receipt of %s, which nobody asked for", row->id.bytes);
        return 0;
    }
    if (row->conflict) {
        wrong(test, "%s is a conflict", row->id.bytes);
    }
    stored->held += row->held_cost_micros;
    stored->charged += row->charged_cost_micros;
    if (row->kind == HF_RECEIPT_RESERVATION) {
        stored->reservations++;
    } else if (row->kind == HF_RECEIPT_EXPIRY || row->kind == HF_RECEIPT_RETENTION) {
        stored->expiries++;
    } else if (row->kind != HF_RECEIPT_EXTENSION) {
        stored->closings++;
        stored->kind = (uint32_t)row->kind;
        stored->paid = row->actual_cost_micros;
    }
    return 0;
}

static void compare_note(struct test *test, uint32_t worker, uint32_t n)
{
    const struct note *note = &test->board->notes[worker][n];
    const struct stored *stored = &test->stored[worker * NOTES_MAX + n];
    bool retains = n % 2 == 1;

    if (note->admitted == 1 && stored->reservations != 1) {
        wrong(test, "w%u-%u was admitted and is %u times in the store", worker, n, stored->reservations);
    }
    if (note->admitted == 2 && stored->reservations != 0) {
        wrong(test, "w%u-%u was refused and is in the store", worker, n);
    }
    if (stored->reservations > 1 || stored->closings > 1 || stored->expiries > 1 || stored->held != 0) {
        wrong(test, "w%u-%u: %u reservations, %u closings, %u expiries, %" PRId64 " still held", worker, n,
              stored->reservations, stored->closings, stored->expiries, stored->held);
    }
    if (stored->reservations == 0) {
        return;
    }
    if (stored->closings + stored->expiries == 0) {
        wrong(test, "w%u-%u was never closed", worker, n);
    }
    if (note->closed == 1 && stored->closings != 1) {
        wrong(test, "w%u-%u was closed and its closing is not in the store", worker, n);
    }
    if (note->closed == 2 && stored->closings != 0) {
        wrong(test, "w%u-%u: its closing was refused and is in the store", worker, n);
    }
    if (stored->closings == 1 && note->closing == CLOSE_GIVEN &&
        (stored->paid != note->paid || stored->charged != (int64_t)note->paid)) {
        wrong(test, "w%u-%u paid %" PRIu64 ", the store says %" PRIu64 " and charges %" PRId64, worker, n,
              note->paid, stored->paid, stored->charged);
    }
    if (stored->closings == 1 && note->closing == CLOSE_BACK && stored->charged != 0) {
        wrong(test, "w%u-%u was released and is charged", worker, n);
    }
    /* The totals of an extension whose answer was lost with its worker are not known to the note. */
    if (stored->closings == 0 && !retains && stored->charged != 0) {
        wrong(test, "w%u-%u expired and %" PRId64 " is charged, it held %" PRIu64, worker, n, stored->charged,
              note->held);
    }
    if (stored->closings == 0 && retains && stored->charged < (int64_t)note->held) {
        wrong(test, "w%u-%u was retained with %" PRId64 ", it held %" PRIu64, worker, n, stored->charged,
              note->held);
    }
}

static void compare_store(struct test *test)
{
    struct hf_store_options options = {.role = HF_STORE_READER};
    struct hf_store_totals totals;
    struct hf_store_head head;
    struct hf_store_error error = {""};
    struct hf_store *store = NULL;

    memset(test->stored, 0, sizeof(*test->stored) * WORKERS * NOTES_MAX);
    if (hf_store_open(test->url, &options, &store, &error) != HF_STORE_OK ||
        hf_store_head(store, "kill", &head, &error) != HF_STORE_OK ||
        hf_store_totals(store, "kill", &totals, &error) != HF_STORE_OK ||
        hf_store_rows(store, "kill", 1, head.next_seq - 1, take_row, test, &error) != HF_STORE_OK) {
        wrong(test, "reading the store: %s", error.text);
        hf_store_close(store);
        return;
    }
    hf_store_close(store);
    if (totals.receipts_cnt != totals.batch_rows_cnt || totals.receipts_cnt != head.next_seq - 1 ||
        totals.conflicts_cnt != 0 || totals.aside_cnt != 0) {
        wrong(test,
              "%" PRIu64 " receipts, %" PRIu64 " told by batches, next is %" PRIu64 "; %" PRIu64 " conflicts",
              totals.receipts_cnt, totals.batch_rows_cnt, head.next_seq, totals.conflicts_cnt);
    }
    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        for (uint32_t n = 0; n < test->board->used[worker]; n++) {
            compare_note(test, worker, n);
        }
    }
}

/* What readers see. values: settled per limit; *held: sum of what is held. Returns the number of limits. */
static int see_limits(struct test *test, uint64_t values[16], uint64_t *held)
{
    struct holdfast_segment *segment = NULL;
    struct holdfast *handle = NULL;
    struct holdfast_limit limits[16];
    int cnt = 0;
    int reason;

    *held = 0;
    if (holdfast_open(test->segment, &segment, NULL, 0) != HOLDFAST_OK ||
        holdfast_join(segment, &handle) != HOLDFAST_OK) {
        wrong(test, "the segment cannot be opened");
        return 0;
    }
    if (holdfast_flush(handle, PATIENCE_MS) != HOLDFAST_OK) {
        wrong(test, "the daemon does not drain");
    }
    for (int i = 0; i < 4; i++) {
        int more = holdfast_limits(handle, i < 2 ? "t0" : "t1", i % 2 == 0 ? NULL : "u", NULL, &limits[cnt],
                                   16 - cnt, &reason);

        for (int k = cnt; k < cnt + more; k++) {
            *held += limits[k].held;
            /* Minutes go by between two looks. */
            values[k] = limits[k].window == HOLDFAST_WINDOW_MINUTE ? 0 : limits[k].settled;
        }
        cnt += more;
    }
    holdfast_leave(handle);
    holdfast_close(segment);
    return cnt;
}

/* Waits until everything is reaped; what is then still held is in no open reservation. */
static int see_quiet(struct test *test, uint64_t values[16])
{
    uint64_t until = hf_clock_mono_fine_ms() + PATIENCE_MS;
    uint64_t held = 0;
    int cnt;

    do {
        pause_ms(300);
        cnt = see_limits(test, values, &held);
    } while (held != 0 && hf_clock_mono_fine_ms() < until);
    if (held != 0) {
        wrong(test, "%" PRIu64 " are held in all limits, and nothing is open", held);
    }
    return cnt;
}

static void end_daemon(struct test *test)
{
    int status = 0;

    (void)kill(test->daemon, SIGTERM);
    (void)waitpid(test->daemon, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        wrong(test, "the daemon did not end with 0");
    }
}

static void check(struct test *test)
{
    uint64_t before[16] = {0};
    uint64_t after[16] = {0};

    /* One more kill, with everything quiet: it must be found by the sweep. */
    kill_daemon(test);
    start_daemon(test);
    await_ready(test);
    int cnt = see_quiet(test, before);

    compare_store(test);
    end_daemon(test);
    if (unlink(test->segment) != 0) {
        die("removing the segment");
    }
    start_daemon(test);
    await_ready(test);
    if (see_quiet(test, after) != cnt || cnt != 6) {
        wrong(test, "other limits after recovery");
    }
    for (int i = 0; i < cnt; i++) {
        if (before[i] != after[i]) {
            wrong(test, "limit %d: settled %" PRIu64 " before and %" PRIu64 " after recovery", i, before[i],
                  after[i]);
        }
    }
    end_daemon(test);
}

/* ---- set-up ----------------------------------------------------------------------------------------------------- */

static int make_store(struct test *test, const char *kind)
{
    struct hf_store_error error = {""};
    const char *pg = getenv("HOLDFAST_TEST_PG");

    if (strcmp(kind, "sqlite") == 0) {
        (void)snprintf(test->url, sizeof(test->url), "sqlite:%s/store.db", test->folder);
    } else if (pg == NULL || pg[0] == '\0') {
        (void)fprintf(stderr, "store_kill: no PostgreSQL here (HOLDFAST_TEST_PG)\n");
        return 77;
    } else {
        char command[1200];

        /* A database of its own, since tests run side by side. */
        (void)snprintf(command, sizeof(command),
                       "psql -q -v ON_ERROR_STOP=1 -d '%s' -c 'create database kill_%d'", pg, (int)getpid());
        if (system(command) != 0) { /* NOLINT: a test's own names */
            die("making a database");
        }
        const char *query = strchr(pg, '?');
        const char *slash = strstr(pg, "://");

        slash = slash == NULL ? NULL : strchr(slash + 3, '/');
        (void)snprintf(test->url, sizeof(test->url), "%.*s/kill_%d%s", (int)(slash == NULL ? 0 : slash - pg),
                       pg, (int)getpid(), query == NULL ? "" : query);
    }
    if (hf_store_init(test->url, NULL, &error) != HF_STORE_OK) {
        (void)fprintf(stderr, "store_kill: %s\n", error.text);
        return 1;
    }
    return 0;
}

static void prepare(struct test *test)
{
    (void)snprintf(test->folder, sizeof(test->folder), "/tmp/holdfast-kill-XXXXXX");
    if (mkdtemp(test->folder) == NULL) {
        die("mkdtemp");
    }
    (void)snprintf(test->policy, sizeof(test->policy), "%s/policy.yaml", test->folder);
    (void)snprintf(test->segment, sizeof(test->segment), "%s/segment", test->folder);
    FILE *out = fopen(test->policy, "we");

    if (out == NULL || fputs(policy_text, out) < 0 || fclose(out) != 0) {
        die("writing the policy");
    }
    test->board = mmap(NULL, sizeof(*test->board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    test->stored = calloc((size_t)WORKERS * NOTES_MAX, sizeof(*test->stored));
    if (test->board == MAP_FAILED || test->stored == NULL) {
        die("memory");
    }
}

static void clean(const struct test *test)
{
    char command[128];

    if (test->wrong > 0) {
        (void)fprintf(stderr, "store_kill: what is left is in %s\n", test->folder);
        return;
    }
    (void)snprintf(command, sizeof(command), "rm -rf %s", test->folder);
    if (system(command) != 0) { /* NOLINT: a test's own folder */
        die("cleaning up");
    }
}

int main(int argc, char **argv)
{
    struct test test = {.random = 88172645463325252ULL};
    const char *kind = "sqlite";
    uint64_t seconds = 8;
    const char *given = getenv("HOLDFAST_SEED");
    const char *longer = getenv("HOLDFAST_LONG");
    uint64_t seed = (uint64_t)getpid();

    if (given != NULL) {
        seed = strtoull(given, NULL, 10);
    }
    if (longer != NULL && longer[0] == '1') {
        test.kills_wanted = KILLS_LONG;
    }
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--daemon") == 0) {
            test.daemon_path = argv[i + 1];
        } else if (strcmp(argv[i], "--store") == 0) {
            kind = argv[i + 1];
        } else if (strcmp(argv[i], "--seconds") == 0) {
            seconds = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--kills") == 0) {
            test.kills_wanted = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        }
    }
    if (test.daemon_path == NULL) {
        (void)fprintf(stderr, "store_kill: --daemon is missing\n");
        return 2;
    }
    test.random ^= seed * 0x9e3779b97f4a7c15ULL;
    prepare(&test);
    int status = make_store(&test, kind);

    if (status != 0) {
        clean(&test);
        return status;
    }
    start_daemon(&test);
    await_ready(&test);
    for (uint32_t i = 0; i < WORKERS; i++) {
        start_worker(&test, i);
    }
    play(&test, seconds);
    hf_store_rel_u32(&test.board->stop, 1); /* plain: a flag */
    for (uint32_t i = 0; i < WORKERS; i++) {
        (void)waitpid(test.workers[i], NULL, 0);
    }
    check(&test);
    (void)printf("totals: %u reservations, %u kills of the daemon, %u of workers, %u wrong "
                 "(run again with HOLDFAST_SEED=%" PRIu64 ")\n",
                 test.board->used[0] + test.board->used[1] + test.board->used[2], test.daemon_kills,
                 test.worker_kills, test.wrong, seed);
    clean(&test);
    free(test.stored);
    return test.wrong == 0 ? 0 : 1;
}
