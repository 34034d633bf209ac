/* A worker of the stress: a life of seeded operations behind a gate, with forks, execs and new handles in between. */
#include "tests/stress/board.h"

#include "shm/clock.h"

#include <inttypes.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHILD_OPS 25U
#define FUSE_OPS  5000U   /* operations while a fuse burns, at most */
#define CHILD_N   0x8000U /* reservations of forked children: 32 for each */

struct worker {
    struct stress_place *place;
    struct stress_board *board;
    uint32_t region;
    struct holdfast_segment *segment;
    struct holdfast *handle;
    uint64_t recent[16]; /* made by this process last */
    uint32_t burning;    /* operations since the fuse of this number was lit */
    uint32_t fuse_number;
    timer_t fuse;
};

static void open_segment(struct worker *worker)
{
    char path[256];
    char error[256] = "";

    (void)snprintf(path, sizeof(path), "%s/segment", worker->place->folder);
    int rc = holdfast_open(path, &worker->segment, error, sizeof(error));

    if (rc == HOLDFAST_OK) {
        rc = holdfast_join(worker->segment, &worker->handle);
    }
    if (rc != HOLDFAST_OK) {
        stress_wrong(worker->board, "a worker cannot open or join: %s: %s", holdfast_strerror(rc), error);
        _exit(3);
    }
    /* A life is short: mapped now, it is not struck in page faults alone. Of slots it uses few. */
    struct hf_segment *seg = &worker->segment->map;
    size_t slots = (size_t)((uint8_t *)seg->slots - seg->base);
    size_t after = slots + (size_t)seg->slots_cnt * sizeof(*seg->slots);
    size_t from = seg->slots_cnt <= 1024 ? slots : (after + 4095) & ~(size_t)4095;

    (void)madvise(seg->base, slots & ~(size_t)4095, MADV_POPULATE_WRITE);
    (void)madvise(seg->base + (from & ~(size_t)4095), seg->size_bytes - (from & ~(size_t)4095),
                  MADV_POPULATE_WRITE);
}

static void close_segment(struct worker *worker)
{
    holdfast_leave(worker->handle);
    holdfast_close(worker->segment);
}

/* ---- operations ----------------------------------------------------------------------------------------------- */

static void note_rc(struct worker *worker, struct stress_rec *rec, int rc, int reason)
{
    rec->rc = (int8_t)rc;
    rec->reason = (uint8_t)reason;
    stress_answer(rec);
    if (rc < 0) {
        stress_wrong(worker->board, "operation %u answers %s", rec->op, holdfast_strerror(rc));
    }
}

static void reserve(struct worker *worker, uint64_t id, uint32_t variant)
{
    struct stress_rec *rec = stress_intent(worker->board, worker->region, STRESS_RESERVE, id, variant);
    struct stress_request asked;
    struct holdfast_request request;
    struct holdfast_answer answer;
    char text[32];

    if (rec == NULL) {
        return;
    }
    stress_request(worker->board, id, &asked);
    stress_id_text(id, text);
    holdfast_request_init(&request);
    request.id = text;
    request.tenant = asked.tenant;
    request.team = asked.team;
    request.key = asked.key;
    request.capability = "c";
    request.tokens = asked.tokens;
    request.cost_micros = asked.cost + variant;
    request.economy_cost_micros = asked.economy;
    request.ttl_ms = asked.ttl_ms;
    int rc = holdfast_reserve(worker->handle, &request, &answer);

    rec->kind = (uint8_t)answer.kind;
    rec->replayed = (uint8_t)answer.replayed;
    rec->tokens = answer.reserved.tokens;
    rec->cost = answer.reserved.cost_micros;
    rec->made_ms = answer.expires_at_ms - asked.ttl_ms;
    note_rc(worker, rec, rc, answer.reason);
}

static void extend(struct worker *worker, uint64_t id, uint32_t variant, bool later)
{
    struct stress_rec *rec = stress_intent(worker->board, worker->region, STRESS_EXTEND, id, variant);
    struct stress_request asked;
    struct holdfast_extension extension;
    struct holdfast_answer answer;
    char text[32];

    if (rec == NULL) {
        return;
    }
    stress_request(worker->board, id, &asked);
    stress_id_text(id, text);
    holdfast_extension_init(&extension);
    extension.id = text;
    stress_totals(&asked, variant, &extension.tokens, &extension.cost_micros);
    extension.ttl_ms = later ? asked.ttl_ms : HOLDFAST_UNKNOWN;
    int rc = holdfast_extend(worker->handle, &extension, &answer);

    rec->tokens = answer.reserved.tokens;
    rec->cost = answer.reserved.cost_micros;
    note_rc(worker, rec, rc, answer.reason);
}

static void dispatch(struct worker *worker, uint64_t id)
{
    struct stress_rec *rec = stress_intent(worker->board, worker->region, STRESS_DISPATCH, id, 0);
    char text[32];
    int reason;

    if (rec != NULL) {
        stress_id_text(id, text);
        int rc = holdfast_dispatch(worker->handle, text, 0, &reason);

        note_rc(worker, rec, rc, reason);
    }
}

static void settle(struct worker *worker, uint64_t id, uint32_t variant)
{
    struct stress_rec *rec = stress_intent(worker->board, worker->region, STRESS_SETTLE, id, variant);
    struct stress_request asked;
    struct holdfast_usage usage;
    struct holdfast_closing closing;
    char text[32];

    if (rec == NULL) {
        return;
    }
    stress_request(worker->board, id, &asked);
    stress_id_text(id, text);
    bool known = stress_usage(&asked, variant, &usage);
    int rc =
        holdfast_settle(worker->handle, text, 0, known ? &usage : NULL, HOLDFAST_SUCCESS, NULL, &closing);

    rec->kind = (uint8_t)closing.kind;
    rec->replayed = (uint8_t)closing.replayed;
    rec->late = (uint8_t)closing.late;
    rec->tokens = closing.actual.tokens;
    rec->cost = closing.actual.cost_micros;
    note_rc(worker, rec, rc, closing.reason);
}

static void release(struct worker *worker, uint64_t id)
{
    struct stress_rec *rec = stress_intent(worker->board, worker->region, STRESS_RELEASE, id, 0);
    struct holdfast_closing closing;
    char text[32];

    if (rec != NULL) {
        stress_id_text(id, text);
        int rc = holdfast_release(worker->handle, text, 0, &closing);

        rec->replayed = (uint8_t)closing.replayed;
        note_rc(worker, rec, rc, closing.reason);
    }
}

static void credit(struct worker *worker, uint64_t r)
{
    const struct stress_config *config = stress_config(worker->board->config);
    uint64_t tenant_idx = config->hot ? 0 : r % config->tenants;
    struct stress_rec *rec = stress_intent(worker->board, worker->region, STRESS_CREDIT, tenant_idx, 0);
    char tenant[16];
    uint64_t total = 0;
    int reason = 0;

    if (rec != NULL) {
        (void)snprintf(tenant, sizeof(tenant), "t%" PRIu64, tenant_idx);
        int rc = holdfast_credit(worker->handle, tenant, "a", HOLDFAST_WINDOW_MINUTE, 1, "stress", "worker",
                                 &total, &reason);

        rec->cost = total;
        note_rc(worker, rec, rc, reason);
    }
}

/* What a reader is told must fit at the one instant of its answer, where nothing may rise above a hold. */
static void look(struct worker *worker, uint64_t r)
{
    const struct stress_config *config = stress_config(worker->board->config);
    uint32_t tenant_idx = (uint32_t)(r % config->tenants);
    struct holdfast_limit limits[16];
    char tenant[16];
    int reason;

    (void)snprintf(tenant, sizeof(tenant), "t%" PRIu32, tenant_idx);
    const char *team = r >> 20 & 1 ? "a" : r >> 21 & 1 ? "b" : NULL;
    int cnt = holdfast_limits(worker->handle, tenant, team, NULL, limits, 16, &reason);

    if (cnt < 0) {
        stress_wrong(worker->board, "limits of %s answers %d", tenant, cnt);
    }
    for (int i = 0; i < cnt; i++) {
        int64_t overdraft =
            team != NULL && team[0] == 'b' && limits[i].dimension == HOLDFAST_COST_MICROS ? 300 : 0;

        if ((stress_strict(tenant_idx) || limits[i].dimension == HOLDFAST_INVOCATIONS) &&
            limits[i].available < -overdraft) {
            stress_wrong(worker->board, "%s/%s window %d dimension %d is at %" PRId64, tenant,
                         team == NULL ? "" : team, limits[i].window, limits[i].dimension,
                         limits[i].available);
        }
    }
}

/* ---- which reservation ----------------------------------------------------------------------------------------- */

static uint64_t fresh_id(struct worker *worker)
{
    struct stress_place *place = worker->place;
    uint64_t id = stress_id_pack((struct stress_id){place->place, place->life, place->n++});

    worker->recent[place->n % 16U] = id;
    return id;
}

/* One that this process made lately, or one that another worker may have made. */
static uint64_t known_id(struct worker *worker)
{
    struct stress_place *place = worker->place;
    uint64_t recent = worker->recent[stress_draw(&place->random, 16)];
    uint32_t other = (uint32_t)stress_draw(&place->random, STRESS_PLACES);
    uint32_t n = (uint32_t)stress_draw(&place->random, 24);

    if (recent != 0 && stress_draw(&place->random, 4) != 0) {
        return recent;
    }
    return stress_id_pack((struct stress_id){other, worker->board->lives[place->place][other], n});
}

static void operate(struct worker *worker)
{
    uint64_t *random = &worker->place->random;
    uint64_t what = stress_draw(random, 100);

    if (what < 42) {
        reserve(worker, fresh_id(worker), 0);
    } else if (what < 50) {
        reserve(worker, known_id(worker), what == 49);
    } else if (what < 74) {
        settle(worker, known_id(worker), (uint32_t)stress_draw(random, STRESS_VARIANTS));
    } else if (what < 80) {
        release(worker, known_id(worker));
    } else if (what < 87) {
        extend(worker, known_id(worker), (uint32_t)stress_draw(random, 4), stress_draw(random, 2) == 0);
    } else if (what < 92) {
        dispatch(worker, known_id(worker));
    } else if (what < 95) {
        credit(worker, stress_draw(random, 1U << 20));
    } else {
        look(worker, stress_draw(random, 1U << 24));
    }
}

/* ---- a life ------------------------------------------------------------------------------------------------------ */

/* A child must join for itself; it works on beside, or after, its parent. */
static void child_works(struct worker *parent, uint64_t random)
{
    struct stress_place place = *parent->place;
    struct worker worker = {.place = &place,
                            .board = parent->board,
                            .region = STRESS_PLACES + place.place,
                            .segment = parent->segment};
    struct holdfast_answer answer;
    struct holdfast_request request;

    memcpy(worker.recent, parent->recent, sizeof(worker.recent));
    place.random = random;
    place.n = CHILD_N + 32U * (place.children % 1000U);
    holdfast_request_init(&request);
    request.id = "nobody";
    if (holdfast_reserve(parent->handle, &request, &answer) != HOLDFAST_FORKED) {
        stress_wrong(worker.board, "an inherited handle does not answer 'forked'");
    }
    int rc = holdfast_join(worker.segment, &worker.handle);

    if (rc != HOLDFAST_OK) {
        stress_wrong(worker.board, "a forked child cannot join: %s", holdfast_strerror(rc));
        _exit(3);
    }
    for (uint32_t i = 0; i < CHILD_OPS; i++) {
        operate(&worker);
    }
    if (stress_draw(&place.random, 2) == 0) {
        holdfast_leave(worker.handle);
    }
    _exit(0);
}

static void make_child(struct worker *worker)
{
    uint64_t random = stress_draw(&worker->place->random, UINT64_C(1) << 40);

    while (waitpid(-1, NULL, 0) > 0) { /* the one before */
    }
    worker->place->children++;
    pid_t pid = fork();

    if (pid == 0) {
        child_works(worker, random);
    }
    if (pid < 0) {
        stress_wrong(worker->board, "a worker cannot fork");
    }
}

/* Another program under the same pid: nothing of the segment survives, and nobody has left it. */
static void become_new(struct worker *worker)
{
    const struct stress_place *place = worker->place;
    char args[5][24];

    while (waitpid(-1, NULL, 0) > 0) {
    }
    (void)snprintf(args[0], sizeof(args[0]), "%" PRIu32, place->place);
    (void)snprintf(args[1], sizeof(args[1]), "%" PRIu32, place->life);
    (void)snprintf(args[2], sizeof(args[2]), "%" PRIu64, place->random | 1U);
    (void)snprintf(args[3], sizeof(args[3]), "%" PRIu32, place->n);
    (void)snprintf(args[4], sizeof(args[4]), "%" PRIu32, place->children);
    (void)execl("/proc/self/exe", "stress", "--worker", place->folder, args[0], args[1], args[2], args[3],
                args[4], (char *)NULL);
    stress_wrong(worker->board, "a worker cannot exec");
    _exit(3);
}

/* A timer of the kernel strikes this very process in the middle of what it does, at any instruction. True: one burns. */
static bool light_fuse(struct worker *worker)
{
    struct stress_board *board = worker->board;
    uint32_t p = worker->place->place;
    uint32_t fuse_ns = hf_load_acq_u32(&board->fuse_ns[p]); /* plain: a flag of the test */
    struct itimerspec when = {.it_value = {.tv_nsec = (long)fuse_ns}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = (int)board->fuse_signal[p]};

    if (fuse_ns == 0) {
        return false;
    }
    if (board->done[p] < STRESS_WARM) {
        return true;
    }
    if (worker->fuse_number != board->fuse_number[p]) {
        worker->fuse_number = board->fuse_number[p];
        worker->burning = 0;
        if (timer_create(CLOCK_MONOTONIC, &event, &worker->fuse) != 0 ||
            timer_settime(worker->fuse, 0, &when, NULL) != 0) {
            stress_wrong(board, "a worker has no timer");
            _exit(3);
        }
    }
    if (++worker->burning > FUSE_OPS) {
        (void)usleep(1000); /* a busy machine: it comes */
        if (worker->burning > 2 * FUSE_OPS) {
            (void)raise((int)board->fuse_signal[p]);
        }
    }
    return true;
}

static void await_gate(struct worker *worker)
{
    struct stress_board *board = worker->board;
    uint32_t p = worker->place->place;
    const struct timespec most = {.tv_nsec = 100000000};

    for (;;) {
        uint32_t allowed = hf_load_acq_u32(&board->allowed[p]); /* plain: a gate of the test */

        if (light_fuse(worker) || board->done[p] < allowed ||
            hf_load_acq_u32(&board->leave[p]) != 0) { /* plain: likewise */
            return;
        }
        (void)syscall(SYS_futex, &board->allowed[p], FUTEX_WAIT, allowed, &most, NULL, 0);
    }
}

void stress_work(struct stress_place *place)
{
    struct stress_board *board = place->board;
    struct worker worker = {.place = place, .board = board, .region = place->place};

    if (place->random == 0) {
        place->random = stress_mix(board->seed, (uint64_t)place->life * STRESS_PLACES + place->place);
    }
    open_segment(&worker);
    for (;;) {
        await_gate(&worker);
        if (hf_load_acq_u32(&board->leave[place->place]) != 0) { /* plain: a flag of the test */
            break;
        }
        board->done[place->place]++;
        uint64_t odd = stress_draw(&place->random, 1024);

        if (odd < 3) {
            make_child(&worker);
        } else if (odd < 4 && board->no_exec == 0) {
            become_new(&worker);
        } else if (odd < 12) {
            close_segment(&worker);
            open_segment(&worker);
        } else {
            operate(&worker);
        }
    }
    while (waitpid(-1, NULL, 0) > 0) {
    }
    close_segment(&worker);
    _exit(0);
}
