/* ctest: labels=threads */
/* Owners: life is what the kernel says. Processes are killed, stopped and forked here. */
#include "shm/owner.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* What the processes of a test tell each other. */
struct shared {
    uint64_t ref;    /* of the child that joined */
    uint64_t ready;  /* counts who is where the test wants him */
    uint64_t forked; /* what the grandchild saw: 1 + hf_owner_forked() */
    uint64_t stop;
    uint64_t wrong;
    uint64_t joins;
};

struct place {
    char folder[64];
    char path[96];
    struct hf_segment seg;
    struct shared *shared;
    /* Of this process. They leave whatever becomes of the test: their list goes on into the next one. */
    struct hf_owner own[3];
};

static int setup(void **state)
{
    const struct hf_segment_plan plan = {
        .slots = 64,
        .owners = 3,
        .tenants = 1,
        .rows = 1,
        .names = 1,
        .prices = 1,
        .policy_bytes = 64,
        .group = (gid_t)-1,
    };
    struct place *place = calloc(1, sizeof *place);

    *state = place;
    if (place == NULL)
        return -1;
    for (int i = 0; i < 3; i++)
        place->own[i].fd = -1;
    place->shared =
        mmap(NULL, sizeof *place->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)snprintf(place->folder, sizeof place->folder, "/tmp/holdfast-owner-XXXXXX");
    if (place->shared == MAP_FAILED || mkdtemp(place->folder) == NULL)
        return -1;
    (void)snprintf(place->path, sizeof place->path, "%s/seg", place->folder);
    if (hf_segment_create(place->path, &plan, &place->seg, NULL) != HF_OK)
        return -1;
    return hf_segment_publish(&place->seg, false, NULL);
}

static int teardown(void **state)
{
    struct place *place = *state;
    char lock[128];

    for (int i = 0; i < 3; i++)
        hf_owner_leave(&place->seg, &place->own[i]);
    hf_segment_detach(&place->seg);
    (void)snprintf(lock, sizeof lock, "%s.lock", place->path);
    (void)unlink(place->path);
    (void)unlink(lock);
    (void)rmdir(place->folder);
    (void)munmap(place->shared, sizeof *place->shared);
    free(place);
    return 0;
}

static void wait_for(const uint64_t *word, uint64_t value)
{
    while (hf_load_acq_u64(word) < value)
        (void)usleep(200);
}

/* A process of the test, which ends with it also when the test fails. */
static pid_t start(void)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    return pid;
}

/* Waits for what the process tells; it must not have ended by itself. */
static void wait_for_word_of(pid_t pid, const uint64_t *word, uint64_t value)
{
    while (hf_load_acq_u64(word) < value) {
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
        (void)usleep(200);
    }
}

static void reap(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A process that attaches for itself, joins, tells its reference and sleeps. */
static pid_t start_owner(struct place *place, enum hf_role role)
{
    pid_t pid = start();

    if (pid == 0) {
        struct hf_segment seg;
        struct hf_owner own;

        if (hf_segment_attach(place->path, &seg, NULL) != HF_OK ||
            hf_owner_join(&seg, role, &own, NULL) != HF_OK)
            _exit(3);
        if (role == HF_ROLE_DAEMON && hf_owner_take_daemon(&seg, &own, NULL) != HF_OK)
            _exit(4);
        hf_store_rel_u64(&place->shared->ref, own.ref);
        hf_add_acqrel_u64(&place->shared->ready, 1);
        for (;;)
            (void)pause();
    }
    return pid;
}

static void join_and_leave(void **state)
{
    struct place *place = *state;
    struct hf_segment *seg = &place->seg;
    struct hf_owner *a = &place->own[0];
    struct hf_owner *b = &place->own[1];

    assert_int_equal(hf_owner_join(seg, HF_ROLE_WORKER, a, NULL), HF_OK);
    assert_int_equal(hf_owner_join(seg, HF_ROLE_TOOL, b, NULL), HF_OK);
    assert_true(a->ref != 0 && b->ref != 0 && a->ref != b->ref);
    assert_true(hf_owner_alive(seg, a->ref)); /* also seen by the process that holds the lock itself */
    assert_true(hf_owner_alive(seg, b->ref));
    assert_false(hf_owner_forked(a));
    const struct hf_shm_owner *entry = &seg->owners[hf_ref_index(b->ref)];
    assert_int_equal(entry->own_pid, getpid());
    assert_int_equal(entry->own_role, HF_ROLE_TOOL);
    assert_int_equal(hf_owner_sweep(seg), 0);
    uint64_t gone = a->ref;
    hf_owner_leave(seg, a);
    assert_int_equal(a->ref, 0);
    assert_false(hf_owner_alive(seg, gone));
    assert_true(hf_owner_alive(seg, b->ref));
    /* The same place, another life. */
    assert_int_equal(hf_owner_join(seg, HF_ROLE_WORKER, a, NULL), HF_OK);
    assert_int_equal(hf_ref_index(a->ref), hf_ref_index(gone));
    assert_true(hf_ref_epoch(a->ref) > hf_ref_epoch(gone));
    assert_false(hf_owner_alive(seg, gone));
    hf_owner_leave(seg, a);
    hf_owner_leave(seg, b);
    hf_owner_leave(seg, b); /* twice is once */
}

static void nobody_is_not_alive(void **state)
{
    struct hf_segment *seg = &((struct place *)*state)->seg;

    assert_false(hf_owner_alive(seg, 0));
    assert_false(hf_owner_alive(seg, hf_ref_make(0, 1)));
    assert_false(hf_owner_alive(seg, hf_ref_make(seg->owners_cnt, 1)));
    assert_false(hf_owner_alive(seg, UINT64_MAX));
    /* A reference in the table that no lock proves. */
    seg->owners[1].own_ref = hf_ref_make(1, 5);
    assert_false(hf_owner_alive(seg, hf_ref_make(1, 5)));
    assert_int_equal(hf_owner_sweep(seg), 1);
    assert_int_equal(seg->owners[1].own_ref, 0);
}

static void death_is_seen_and_stopping_is_not_death(void **state)
{
    struct place *place = *state;
    pid_t pid = start_owner(place, HF_ROLE_WORKER);

    wait_for_word_of(pid, &place->shared->ready, 1);
    uint64_t ref = place->shared->ref;
    assert_true(hf_owner_alive(&place->seg, ref));
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
    assert_true(hf_owner_alive(&place->seg, ref));
    assert_int_equal(hf_owner_sweep(&place->seg), 0);
    reap(pid);
    assert_false(hf_owner_alive(&place->seg, ref));
    assert_int_equal(place->seg.owners[hf_ref_index(ref)].own_ref, ref); /* looking changes nothing */
    assert_int_equal(hf_owner_sweep(&place->seg), 1);
    assert_int_equal(hf_owner_sweep(&place->seg), 0);
    assert_int_equal(place->seg.owners[hf_ref_index(ref)].own_ref, 0);
}

/* Closing any other descriptor of the lock file would drop a POSIX lock. */
static void closing_another_descriptor_is_not_death(void **state)
{
    struct place *place = *state;
    struct hf_owner *own = &place->own[0];
    struct hf_segment other;
    char lock[128];

    assert_int_equal(hf_owner_join(&place->seg, HF_ROLE_WORKER, own, NULL), HF_OK);
    (void)snprintf(lock, sizeof lock, "%s.lock", place->path);
    int fd = open(lock, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(hf_segment_attach(place->path, &other, NULL), HF_OK);
    hf_segment_detach(&other);
    assert_true(hf_owner_alive(&place->seg, own->ref));
    hf_owner_leave(&place->seg, own);
}

/* The parent joins and forks; the parent is killed, the child lives: the owner is dead. */
static void a_child_does_not_keep_its_parent_alive(void **state)
{
    struct place *place = *state;
    struct shared *shared = place->shared;
    pid_t pid = start();

    if (pid == 0) {
        struct hf_segment seg;
        struct hf_owner own;

        if (hf_segment_attach(place->path, &seg, NULL) != HF_OK ||
            hf_owner_join(&seg, HF_ROLE_WORKER, &own, NULL) != HF_OK)
            _exit(3);
        hf_store_rel_u64(&shared->ref, own.ref);
        if (fork() == 0) {
            hf_store_rel_u64(&shared->forked, 1U + (hf_owner_forked(&own) ? 1U : 0U));
            /* What the child does with the inherited handle changes nothing for the parent. */
            hf_owner_leave(&seg, &own);
            if (!hf_owner_alive(&seg, hf_load_acq_u64(&shared->ref)))
                hf_add_acqrel_u64(&shared->wrong, 1);
            /* It joins for itself. */
            if (hf_owner_join(&seg, HF_ROLE_WORKER, &own, NULL) != HF_OK || hf_owner_forked(&own))
                hf_add_acqrel_u64(&shared->wrong, 1);
            hf_add_acqrel_u64(&shared->ready, 1);
            wait_for(&shared->stop, 1);
            hf_owner_leave(&seg, &own);
            hf_add_acqrel_u64(&shared->ready, 1);
            _exit(0);
        }
        if (hf_owner_forked(&own))
            hf_add_acqrel_u64(&shared->wrong, 1);
        for (;;)
            (void)pause();
    }
    wait_for_word_of(pid, &shared->ready, 1);
    assert_int_equal(shared->forked, 2);
    assert_true(hf_owner_alive(&place->seg, shared->ref));
    reap(pid);
    assert_false(hf_owner_alive(&place->seg, shared->ref));
    assert_int_equal(hf_owner_sweep(&place->seg), 1); /* the parent; the child lives */
    hf_store_rel_u64(&shared->stop, 1);
    wait_for(&shared->ready, 2);
    assert_int_equal(shared->wrong, 0);
}

/* A child that does nothing at all with what it inherited. */
static void an_idle_child_does_not_keep_its_parent_alive(void **state)
{
    struct place *place = *state;
    struct shared *shared = place->shared;
    pid_t pid = start();

    if (pid == 0) {
        struct hf_segment seg;
        struct hf_owner own[2];

        if (hf_segment_attach(place->path, &seg, NULL) != HF_OK ||
            hf_owner_join(&seg, HF_ROLE_WORKER, &own[0], NULL) != HF_OK ||
            hf_owner_join(&seg, HF_ROLE_WORKER, &own[1], NULL) != HF_OK)
            _exit(3);
        hf_store_rel_u64(&shared->ref, own[0].ref);
        hf_store_rel_u64(&shared->joins, own[1].ref);
        pid_t child = fork();
        if (child == 0) {
            hf_add_acqrel_u64(&shared->ready, 1);
            wait_for(&shared->stop, 1);
            hf_add_acqrel_u64(&shared->ready, 1);
            _exit(0);
        }
        for (;;)
            (void)pause();
    }
    wait_for_word_of(pid, &shared->ready, 1);
    assert_true(hf_owner_alive(&place->seg, shared->ref));
    assert_true(hf_owner_alive(&place->seg, shared->joins));
    reap(pid);
    assert_false(hf_owner_alive(&place->seg, shared->ref));
    assert_false(hf_owner_alive(&place->seg, shared->joins));
    assert_int_equal(hf_owner_sweep(&place->seg), 2);
    hf_store_rel_u64(&shared->stop, 1);
    wait_for(&shared->ready, 2);
}

/* Programs started by the owner inherit nothing: the descriptor is closed at exec. */
static void a_started_program_does_not_keep_it_alive(void **state)
{
    struct place *place = *state;
    struct shared *shared = place->shared;
    pid_t pid = start();

    if (pid == 0) {
        struct hf_segment seg;
        struct hf_owner own;
        char *const argv[] = {"sleep", "30", NULL};
        char *const envp[] = {NULL};
        pid_t program = 0;

        if (hf_segment_attach(place->path, &seg, NULL) != HF_OK ||
            hf_owner_join(&seg, HF_ROLE_WORKER, &own, NULL) != HF_OK)
            _exit(3);
        hf_store_rel_u64(&shared->ref, own.ref);
        if (posix_spawn(&program, "/bin/sleep", NULL, NULL, argv, envp) != 0)
            program = 0;
        hf_store_rel_u64(&shared->joins, (uint64_t)program);
        hf_add_acqrel_u64(&shared->ready, 1);
        for (;;)
            (void)pause();
    }
    wait_for_word_of(pid, &shared->ready, 1);
    assert_true(shared->joins > 0);
    assert_true(hf_owner_alive(&place->seg, shared->ref));
    reap(pid);
    /* posix_spawn may return a moment before exec has closed the descriptor; the program itself runs for 30 seconds. */
    for (int i = 0; i < 20000 && hf_owner_alive(&place->seg, shared->ref); i++)
        (void)usleep(200);
    assert_false(hf_owner_alive(&place->seg, shared->ref));
    assert_int_equal(kill((pid_t)shared->joins, 0), 0); /* the program still runs */
    assert_int_equal(kill((pid_t)shared->joins, SIGKILL), 0);
}

static void a_full_table_and_the_places_of_the_dead(void **state)
{
    struct place *place = *state;
    struct hf_owner *own = place->own;
    struct hf_owner *more = &place->own[2];
    struct hf_error err = {.text = ""};

    assert_int_equal(hf_owner_join(&place->seg, HF_ROLE_WORKER, &own[0], NULL), HF_OK);
    pid_t pid = start_owner(place, HF_ROLE_WORKER);
    wait_for_word_of(pid, &place->shared->ready, 1);
    uint64_t dead = place->shared->ref;
    assert_int_equal(hf_owner_join(&place->seg, HF_ROLE_WORKER, &own[1], NULL), HF_OK);
    assert_int_equal(hf_owner_join(&place->seg, HF_ROLE_WORKER, more, &err), HF_EFULL);
    assert_non_null(strstr(err.text, "all 3 places"));
    assert_int_equal(more->ref, 0);
    assert_true(hf_owner_alive(&place->seg, dead));
    reap(pid);
    assert_int_equal(hf_owner_join(&place->seg, HF_ROLE_WORKER, more, &err), HF_OK);
    assert_int_equal(hf_ref_index(more->ref), hf_ref_index(dead));
    assert_false(hf_owner_alive(&place->seg, dead));
    assert_true(hf_owner_alive(&place->seg, more->ref));
    hf_owner_leave(&place->seg, more);
    hf_owner_leave(&place->seg, &own[0]);
    hf_owner_leave(&place->seg, &own[1]);
}

static void one_daemon(void **state)
{
    struct place *place = *state;
    struct hf_owner *own = &place->own[0];
    struct hf_owner *other = &place->own[1];
    struct hf_error err = {.text = ""};
    char number[16];

    assert_int_equal(hf_owner_join(&place->seg, HF_ROLE_DAEMON, own, NULL), HF_OK);
    pid_t pid = start_owner(place, HF_ROLE_DAEMON);
    wait_for_word_of(pid, &place->shared->ready, 1);
    assert_int_equal(hf_owner_take_daemon(&place->seg, own, &err), HF_EBUSY);
    (void)snprintf(number, sizeof number, "%d", (int)pid);
    assert_non_null(strstr(err.text, number));
    hf_owner_drop_daemon(&place->seg, own); /* not its own to drop */
    assert_int_equal(place->seg.header->hdr_daemon, place->shared->ref);
    reap(pid);
    assert_int_equal(hf_owner_take_daemon(&place->seg, own, &err), HF_OK);
    assert_int_equal(hf_owner_take_daemon(&place->seg, own, &err), HF_OK); /* again is fine */
    assert_int_equal(place->seg.header->hdr_daemon, own->ref);
    assert_int_equal(hf_owner_join(&place->seg, HF_ROLE_DAEMON, other, NULL), HF_OK);
    assert_int_equal(hf_owner_take_daemon(&place->seg, other, &err), HF_EBUSY);
    hf_owner_drop_daemon(&place->seg, own);
    assert_int_equal(hf_owner_take_daemon(&place->seg, other, &err), HF_OK);
    hf_owner_leave(&place->seg, other);
    /* Who left without dropping it is gone as well. */
    assert_int_equal(hf_owner_take_daemon(&place->seg, own, &err), HF_OK);
    hf_owner_leave(&place->seg, own);
}

static void anonymous_segments_take_all_for_alive(void **state)
{
    const struct hf_segment_plan plan = {.slots = 4,
                                         .owners = 2,
                                         .tenants = 1,
                                         .rows = 1,
                                         .names = 1,
                                         .prices = 1,
                                         .policy_bytes = 1,
                                         .group = (gid_t)-1};
    struct hf_segment seg;
    struct hf_owner own[2];
    struct hf_owner more;

    (void)state;
    assert_int_equal(hf_segment_create_anonymous(&plan, &seg, NULL), HF_OK);
    assert_int_equal(hf_owner_join(&seg, HF_ROLE_WORKER, &own[0], NULL), HF_OK);
    assert_int_equal(hf_owner_join(&seg, HF_ROLE_DAEMON, &own[1], NULL), HF_OK);
    assert_int_equal(own[0].fd, -1);
    assert_true(own[0].ref != own[1].ref);
    assert_int_equal(hf_owner_join(&seg, HF_ROLE_WORKER, &more, NULL), HF_EFULL);
    assert_true(hf_owner_alive(&seg, own[0].ref));
    assert_int_equal(hf_owner_sweep(&seg), 0);
    uint64_t gone = own[0].ref;
    hf_owner_leave(&seg, &own[0]);
    assert_false(hf_owner_alive(&seg, gone));
    assert_int_equal(hf_owner_join(&seg, HF_ROLE_WORKER, &own[0], NULL), HF_OK);
    assert_true(own[0].ref != gone);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(hf_owner_forked(&own[0]) ? 0 : 1);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    hf_owner_leave(&seg, &own[0]);
    hf_owner_leave(&seg, &own[1]);
    hf_segment_detach(&seg);
}

/* ---- beside others -------------------------------------------------------------------------------------------- */

/* Joins, looks that it stays in the table while others sweep, leaves. */
static void come_and_go(struct hf_segment *seg, struct shared *shared, uint32_t rounds)
{
    for (uint32_t i = 0; i < rounds; i++) {
        struct hf_owner own;

        if (hf_owner_join(seg, HF_ROLE_WORKER, &own, NULL) != HF_OK)
            continue; /* three places for four */
        hf_add_acqrel_u64(&shared->joins, 1);
        for (int look = 0; look < 20; look++) {
            if (!hf_owner_alive(seg, own.ref) ||
                hf_load_acq_u64(&seg->owners[hf_ref_index(own.ref)].own_ref) != own.ref)
                hf_add_acqrel_u64(&shared->wrong, 1);
        }
        hf_owner_leave(seg, &own);
    }
}

static void *come_and_go_thread(void *arg)
{
    struct place *place = arg;

    come_and_go(&place->seg, place->shared, 200);
    hf_add_acqrel_u64(&place->shared->ready, 1);
    return NULL;
}

static void nobody_alive_is_swept(void **state)
{
    struct place *place = *state;
    pthread_t threads[2];
    pid_t pids[2];

    for (int i = 0; i < 2; i++) {
        pids[i] = start();
        if (pids[i] == 0) {
            struct hf_segment seg;

            if (hf_segment_attach(place->path, &seg, NULL) != HF_OK)
                _exit(3);
            for (;;)
                come_and_go(&seg, place->shared, 1); /* killed in the middle: its entry is swept */
        }
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go_thread, place), 0);
    for (int i = 0; i < 300; i++)
        (void)hf_owner_sweep(&place->seg);
    for (int i = 0; i < 2; i++)
        reap(pids[i]);
    for (int i = 0; i < 300; i++)
        (void)hf_owner_sweep(&place->seg);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    (void)hf_owner_sweep(&place->seg);
    assert_int_equal(place->shared->wrong, 0);
    assert_true(place->shared->joins > 0);
    for (uint32_t i = 0; i < place->seg.owners_cnt; i++)
        assert_int_equal(place->seg.owners[i].own_ref, 0);
}

/* Forks while other threads join and leave: the child is never made in the middle, and inherits no lock. */
static void forks_beside_joins(void **state)
{
    struct place *place = *state;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, come_and_go_thread, place), 0);
    assert_int_equal(pthread_detach(thread), 0); /* a child could not join it */
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
            struct hf_owner own;

            if (hf_owner_join(&place->seg, HF_ROLE_WORKER, &own, NULL) != HF_OK)
                _exit(1);
            hf_owner_leave(&place->seg, &own);
            _exit(0);
        }
        int status = -1;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    wait_for(&place->shared->ready, 1);
    assert_int_equal(place->shared->wrong, 0);
    for (uint32_t i = 0; i < place->seg.owners_cnt; i++)
        assert_int_equal(place->seg.owners[i].own_ref, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(join_and_leave, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody_is_not_alive, setup, teardown),
        cmocka_unit_test_setup_teardown(death_is_seen_and_stopping_is_not_death, setup, teardown),
        cmocka_unit_test_setup_teardown(closing_another_descriptor_is_not_death, setup, teardown),
        cmocka_unit_test_setup_teardown(a_child_does_not_keep_its_parent_alive, setup, teardown),
        cmocka_unit_test_setup_teardown(an_idle_child_does_not_keep_its_parent_alive, setup, teardown),
        cmocka_unit_test_setup_teardown(a_started_program_does_not_keep_it_alive, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_table_and_the_places_of_the_dead, setup, teardown),
        cmocka_unit_test_setup_teardown(one_daemon, setup, teardown),
        cmocka_unit_test(anonymous_segments_take_all_for_alive),
        cmocka_unit_test_setup_teardown(nobody_alive_is_swept, setup, teardown),
        cmocka_unit_test_setup_teardown(forks_beside_joins, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
