/* Making a segment: no room, and makers that die half-way. */
#include "life.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Files of the folder whose name begins so. */
static int files_like(const char *folder, const char *prefix)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    int cnt = 0;

    LIFE_REQUIRE(dir != NULL);
    while ((entry = readdir(dir)) != NULL) {
        cnt += strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && entry->d_name[0] != '.';
    }
    (void)closedir(dir);
    return cnt;
}

/* ---- no room ------------------------------------------------------------------------------------------------------------- */

/* A file system of so many MiB under the folder, for this process and its children alone. */
static void mount_small(struct life *life, const char *mib)
{
    char options[64];
    char place[96];

    (void)snprintf(place, sizeof place, "%s/shm", life->folder);
    (void)snprintf(options, sizeof options, "size=%sm,mode=0755", mib);
    LIFE_REQUIRE(mkdir(place, 0755) == 0);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", place, "tmpfs", 0, options) != 0) {
        life_skip("no file system of its own can be mounted here (needs root and unshare)");
    }
    (void)snprintf(life->segment, sizeof life->segment, "%s/shm/seg", life->folder);
}

static int start_daemon(const struct life *life, const char *slots, char *said, size_t said_bytes)
{
    const char *const argv[] = {"holdfastd", "--segment", life->segment, "--policy", life->policy,
                                "--store",   life->store, "--slots",     slots,      NULL};

    return life_command(argv, said, said_bytes);
}

static void no_room(struct life *life)
{
    char said[4096];
    char place[96];

    mount_small(life, "16");
    (void)snprintf(place, sizeof place, "%s/shm", life->folder);
    LIFE_REQUIRE(start_daemon(life, "131072", said, sizeof said) > 0);
    LIFE_SAYS(said, "needs ");
    LIFE_SAYS(said, "has 1"); /* 16, or 15 when the lock file took a page */
    LIFE_SAYS(said, " MiB");
    LIFE_REQUIRE(files_like(place, "seg") == 1); /* the lock file alone: nothing half-made to attach to */
    /* Full altogether: not even small ones. */
    char fill[128];
    (void)snprintf(fill, sizeof fill, "%s/fill", place);
    int fd = open(fill, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    LIFE_REQUIRE(fd >= 0);
    for (off_t at = 0; posix_fallocate(fd, at, 65536) == 0;) {
        at += 65536;
    }
    LIFE_REQUIRE(start_daemon(life, "64", said, sizeof said) > 0);
    LIFE_SAYS(said, "has 0 MiB");
    LIFE_REQUIRE(files_like(place, "seg") == 1);
    /* Room again: the same command's options serve. */
    LIFE_REQUIRE(close(fd) == 0 && unlink(fill) == 0);
    life->slots = 64;
    life_serve(life);
    struct life_worker worker;
    life_join(life, &worker);
    LIFE_REQUIRE(life_reserve(&worker, "a", "u", 10, 60000, NULL) == HOLDFAST_OK);
    /* Every page is there already: a file system that fills up afterwards harms nobody. */
    fd = open(fill, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    LIFE_REQUIRE(fd >= 0);
    for (off_t at = 0; posix_fallocate(fd, at, 65536) == 0;) {
        at += 65536;
    }
    for (uint32_t i = 0; i < worker.segment->map.size_bytes; i += 4096) {
        hf_or_acqrel_u64((uint64_t *)(void *)(worker.segment->map.base + i), 0); /* a store into each */
    }
    LIFE_REQUIRE(life_settle(&worker, "a", 7, NULL) == HOLDFAST_OK);
    LIFE_REQUIRE(life_used(&worker, "u") == 7);
    life_leave(&worker);
    life_unserve(life, SIGTERM);
    LIFE_REQUIRE(close(fd) == 0 && umount2(place, MNT_DETACH) == 0);
}

/* ---- makers that die --------------------------------------------------------------------------------------------------------- */

static int make_small(struct life *life, void *replace)
{
    const struct hf_segment_plan plan = {.slots = 16,
                                         .owners = 2,
                                         .tenants = 1,
                                         .rows = 1,
                                         .names = 1,
                                         .prices = 1,
                                         .policy_bytes = 64,
                                         .epoch = 5,
                                         .group = (gid_t)-1};
    struct hf_segment seg;

    if (hf_segment_create(life->segment, &plan, &seg, NULL) != HF_OK) {
        return 2;
    }
    hf_segment_set_state(&seg, HF_SEGMENT_READY);
    int code = hf_segment_publish(&seg, replace != NULL, NULL);

    hf_segment_detach(&seg);
    return code == HF_OK ? 0 : code == HF_EEXISTS ? 3 : 4;
}

static void be_traced(void)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        _exit(0); /* nobody would see it stop */
    }
    (void)raise(SIGSTOP);
}

static int make_small_traced(struct life *life, void *arg)
{
    be_traced();
    return make_small(life, arg);
}

static int serve_traced(struct life *life, void *arg)
{
    be_traced();
    return life_daemon(life, arg);
}

/* Lets a traced child run to its n-th stop at a system call (on the way in or out), and kills it there. False: it ended before,
 * or *until was raised. */
static bool kill_at(struct life *life, int (*f)(struct life *, void *), const uint64_t *until, uint32_t n)
{
    uint64_t before = until == NULL ? 0 : hf_load_acq_u64(until);
    pid_t pid = life_start(life, f, life);
    int status = 0;

    LIFE_REQUIRE(waitpid(pid, &status, 0) == pid);
    if (!WIFSTOPPED(status)) {
        life_skip("no process may trace its child here");
    }
    for (uint32_t i = 0; i < n; i++) {
        if (ptrace(PTRACE_SYSCALL, pid, NULL, NULL) != 0) {
            life_skip("no process may trace its child here");
        }
        LIFE_REQUIRE(waitpid(pid, &status, 0) == pid);
        if (!WIFSTOPPED(status)) {
            LIFE_REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            return false;
        }
        if (until != NULL && hf_load_acq_u64(until) > before) {
            life_kill(pid);
            return false;
        }
    }
    life_kill(pid);
    return true;
}

/* A segment is there whole, or not at all; and the next maker finds no obstacle, and leaves no leavings. */
static void makers_die(struct life *life)
{
    uint32_t points = 0;
    uint32_t whole = 0;

    for (uint32_t n = 1; kill_at(life, make_small_traced, NULL, n); n++) {
        struct hf_segment seg;
        struct hf_error err = {.text = ""};
        int code = hf_segment_attach(life->segment, &seg, &err);

        points++;
        if (code == HF_OK) {
            LIFE_REQUIRE(hf_segment_state(&seg) == HF_SEGMENT_READY && seg.header->hdr_epoch == 5);
            hf_segment_detach(&seg);
            whole++;
        } else if (code != HF_EMISSING) {
            (void)printf("killed at system call %u: %s\n", n, err.text);
            LIFE_FAIL("whole or not there");
        }
        LIFE_REQUIRE(life_wait(life_start(life, make_small, NULL)) == (code == HF_OK ? 3 : 0));
        LIFE_REQUIRE(files_like(life->folder, "segment") == 2); /* it and the lock file: no leavings */
        LIFE_REQUIRE(hf_segment_attach(life->segment, &seg, &err) == HF_OK);
        hf_segment_detach(&seg);
        LIFE_REQUIRE(unlink(life->segment) == 0);
    }
    (void)printf("totals: killed at %u system calls of a maker, %u times after the segment stood there\n",
                 points, whole);
    LIFE_REQUIRE(points > 20 && whole > 0);
}

/* The daemon's way to a segment: store, epoch, segment, first clock. Whoever comes next goes on from wherever it died. */
static void daemons_die(struct life *life)
{
    const char *seed_text = getenv("HOLDFAST_SEED");
    const char *lasting = getenv("HOLDFAST_LONG");
    uint32_t seed = seed_text != NULL ? (uint32_t)strtoul(seed_text, NULL, 10) : 1;
    uint32_t step = lasting != NULL && strcmp(lasting, "1") == 0 ? 1 : 41;
    uint32_t points = 0;

    life->slots = 64;
    for (uint32_t n = 1 + seed % step; kill_at(life, serve_traced, &life->shared->words[15], n); n += step) {
        struct life_worker worker;
        char id[32];

        points++;
        life_serve(life);
        life_join(life, &worker);
        (void)snprintf(id, sizeof id, "after-%u", n);
        LIFE_REQUIRE(life_reserve(&worker, id, "w", 1, 60000, NULL) == HOLDFAST_OK);
        LIFE_REQUIRE(life_settle(&worker, id, 1, NULL) == HOLDFAST_OK);
        LIFE_REQUIRE(holdfast_flush(worker.handle, 60000) == HOLDFAST_OK);
        life_leave(&worker);
        life_unserve(life, SIGTERM);
        LIFE_REQUIRE(files_like(life->folder, "segment") == 2);
        LIFE_REQUIRE(points % 2 == 0 || unlink(life->segment) == 0); /* made anew, and gone on with */
    }
    (void)printf("totals: seed %u, killed at %u system calls of a starting daemon\n", seed, points);
    LIFE_REQUIRE(points > 5);
}

const struct life_scenario life_room[] = {
    {"no-room", no_room, "size accepted, memory not there; a full file system; one that fills up afterwards"},
    {"makers-die", makers_die, "a maker killed at each of its system calls"},
    {"daemons-die", daemons_die, "a daemon killed at system calls of its start, by seed"},
    {NULL, NULL, NULL},
};
