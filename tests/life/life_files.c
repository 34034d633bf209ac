/* The file of a segment: another build, another size, gone, replaced, foreign. */
#include "life.h"

#include "persist/serve.h"
#include "shm/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_it(const struct life *life, char *said, size_t said_bytes)
{
    struct holdfast_segment *segment = NULL;
    int rc = holdfast_open(life->segment, &segment, said, said_bytes);

    holdfast_close(segment);
    return rc;
}

static void patch(const struct life *life, off_t off, const void *bytes, size_t cnt)
{
    int fd = open(life->segment, O_RDWR | O_CLOEXEC);

    LIFE_REQUIRE(fd >= 0 && pwrite(fd, bytes, cnt, off) == (ssize_t)cnt && close(fd) == 0);
}

/* Starts the daemon command on what stands there; it must refuse. */
static void daemon_refuses(const struct life *life, const char *first, const char *second)
{
    const char *const argv[] = {"holdfastd", "--segment", life->segment,  "--policy", life->policy,
                                "--store",   life->other, "--store-name", "life",     NULL};
    char said[4096];

    LIFE_REQUIRE(life_command(argv, said, sizeof said) > 0);
    LIFE_SAYS(said, first);
    LIFE_SAYS(said, second);
}

/* ---- another build (I3) ------------------------------------------------------------------------------------------------------ */

static void another_build(struct life *life)
{
    const uint32_t version = HF_SHM_VERSION + 1;
    const uint32_t ours = HF_SHM_VERSION;
    uint64_t fingerprint = hf_layout_fingerprint();
    uint64_t other = fingerprint ^ 0x10;
    struct life_worker worker;
    char said[512];
    char numbers[2][32];

    life_serve(life);
    life_join(life, &worker);
    LIFE_REQUIRE(life_reserve(&worker, "a", "u", 10, 60000, NULL) == HOLDFAST_OK);
    patch(life, offsetof(struct hf_shm_header, hdr_version), &version, sizeof version);
    LIFE_REQUIRE(open_it(life, said, sizeof said) == HOLDFAST_BUILD);
    (void)snprintf(numbers[0], sizeof numbers[0], "version %u", version);
    (void)snprintf(numbers[1], sizeof numbers[1], "version %u", ours);
    LIFE_SAYS(said, numbers[0]);
    LIFE_SAYS(said, numbers[1]);
    daemon_refuses(life, numbers[0], numbers[1]);
    patch(life, offsetof(struct hf_shm_header, hdr_version), &ours, sizeof ours);
    patch(life, offsetof(struct hf_shm_header, hdr_fingerprint), &other, sizeof other);
    LIFE_REQUIRE(open_it(life, said, sizeof said) == HOLDFAST_BUILD);
    (void)snprintf(numbers[0], sizeof numbers[0], "%016llx", (unsigned long long)other);
    (void)snprintf(numbers[1], sizeof numbers[1], "%016llx", (unsigned long long)fingerprint);
    LIFE_SAYS(said, numbers[0]);
    LIFE_SAYS(said, numbers[1]);
    daemon_refuses(life, numbers[0], numbers[1]);
    /* Who is in already works on: the words lie where its build puts them. */
    LIFE_REQUIRE(life_settle(&worker, "a", 5, NULL) == HOLDFAST_OK);
    LIFE_REQUIRE(life_used(&worker, "u") == 5);
    life_leave(&worker);
    life_unserve(life, SIGTERM);
}

/* A start with another size finds the old segment and goes on with it, or says so; it never gets a second one. */
static void another_size(struct life *life)
{
    struct life_worker worker;
    struct stat before;
    struct stat after;

    life->slots = 256;
    life_serve(life);
    life_join(life, &worker);
    LIFE_REQUIRE(life_reserve(&worker, "a", "u", 900, 60000, NULL) == HOLDFAST_OK);
    LIFE_REQUIRE(stat(life->segment, &before) == 0);
    life_unserve(life, SIGTERM);
    life->slots = 4096;
    life_serve(life);
    LIFE_REQUIRE(stat(life->segment, &after) == 0);
    LIFE_REQUIRE(before.st_ino == after.st_ino && before.st_size == after.st_size);
    LIFE_REQUIRE(life_used(&worker, "u") == 900);
    LIFE_REQUIRE(life_settle(&worker, "a", 10, NULL) == HOLDFAST_OK);
    LIFE_REQUIRE(holdfast_flush(worker.handle, 60000) == HOLDFAST_OK);
    life_leave(&worker);
    life_unserve(life, SIGTERM);
}

/* ---- gone (I4) ------------------------------------------------------------------------------------------------------------------ */

/* Workers that see that their segment is gone: each writes the code of its first fault. */
static int work_until_gone(struct life *life, void *arg)
{
    uint64_t number = *(uint64_t *)arg;
    struct life_worker worker;

    life_join(life, &worker);
    char id[32];

    (void)snprintf(id, sizeof id, "w%u", (unsigned)number);
    LIFE_REQUIRE(life_reserve(&worker, id, "v", 240, 600000, NULL) == HOLDFAST_OK);
    life_tell(&life->shared->words[number], 1);
    life_await(&life->shared->words[3], 1); /* both hold */
    for (;;) {
        struct holdfast_answer answer;
        int rc = life_reserve(&worker, "more", "v", 50, 600000, &answer);

        if (rc < 0) {
            life_tell(&life->shared->words[number], 2);
            LIFE_REQUIRE(rc == HOLDFAST_NOT_READY);
            return 0;
        }
        LIFE_REQUIRE(rc == HOLDFAST_REFUSED); /* 480 of 500 are held */
        life_sleep_ms(5);
    }
}

static void removed(struct life *life, bool replaced, bool daemon_lives)
{
    uint64_t numbers[2] = {1, 2};
    pid_t pids[2];
    char said[512];

    life_serve(life);
    for (int i = 0; i < 2; i++) {
        pids[i] = life_start(life, work_until_gone, &numbers[i]);
        life_await(&life->shared->words[numbers[i]], 1);
    }
    life_tell(&life->shared->words[3], 1);
    /* What the workers hold is in the store, from which a new world would be made. */
    struct life_worker worker;
    life_join(life, &worker);
    LIFE_REQUIRE(holdfast_flush(worker.handle, 60000) == HOLDFAST_OK);
    life_leave(&worker);
    if (!daemon_lives) {
        life_unserve(life, SIGKILL);
    }
    LIFE_REQUIRE(unlink(life->segment) == 0);
    if (replaced) {
        FILE *out = fopen(life->segment, "we");

        LIFE_REQUIRE(out != NULL && fputs("something else", out) >= 0 && fclose(out) == 0);
    }
    /* C gets no fresh world: nothing to open, and no daemon makes one while A and B live. */
    int rc = open_it(life, said, sizeof said);
    LIFE_REQUIRE(rc == (replaced ? HOLDFAST_CORRUPT : HOLDFAST_MISSING));
    if (!replaced) {
        life_refused(life, HF_SERVE_RETRY, "process");
    }
    /* A and B notice: at once when the daemon says so, within seconds when there is none. */
    for (int i = 0; i < 2; i++) {
        life_await(&life->shared->words[numbers[i]], 2);
        LIFE_REQUIRE(life_wait(pids[i]) == 0);
    }
    if (daemon_lives) {
        life_unserve(life, SIGTERM);
    }
    (void)unlink(life->segment);
    /* With A and B gone it is made from the store: what they held is held. */
    life_serve(life);
    life_join(life, &worker);
    LIFE_REQUIRE(life_used(&worker, "v") == 480);
    LIFE_REQUIRE(life_reserve(&worker, "c", "v", 50, 60000, NULL) == HOLDFAST_REFUSED);
    LIFE_REQUIRE(life_settle(&worker, "w1", 100, NULL) == HOLDFAST_OK);
    LIFE_REQUIRE(life_used(&worker, "v") == 340);
    life_leave(&worker);
    life_unserve(life, SIGTERM);
}

static void removed_under_workers(struct life *life)
{
    removed(life, false, true);
}

static void removed_without_daemon(struct life *life)
{
    removed(life, false, false);
}

static void replaced_under_workers(struct life *life)
{
    removed(life, true, true);
}

/* ---- foreign (I5) ---------------------------------------------------------------------------------------------------------------- */

struct stranger {
    uid_t uid;
    int want;
    const char *says;
};

/* As another user without groups. */
static int open_as(struct life *life, void *arg)
{
    const struct stranger *stranger = arg;
    char said[512] = "";

    if (setgroups(0, NULL) != 0 || setresgid(stranger->uid, stranger->uid, stranger->uid) != 0 ||
        setresuid(stranger->uid, stranger->uid, stranger->uid) != 0) {
        return 77;
    }
    int rc = open_it(life, said, sizeof said);

    if (rc != stranger->want) {
        (void)printf("%d instead of %d: %s\n", rc, stranger->want, said);
        return 1;
    }
    if (rc != HOLDFAST_OK) {
        LIFE_SAYS(said, stranger->says);
    }
    return 0;
}

static void as(struct life *life, uid_t uid, int want, const char *says)
{
    struct stranger stranger = {uid, want, says};
    int status = life_wait(life_start(life, open_as, &stranger));

    if (status == 77) {
        life_skip("the user cannot be changed here (needs root)");
    }
    LIFE_REQUIRE(status == 0);
}

static void owner_and_mode(struct life *life)
{
    char lock[128];
    mode_t before = umask(077);

    if (geteuid() != 0) {
        life_skip("the user cannot be changed here (needs root)");
    }
    (void)snprintf(lock, sizeof lock, "%s.lock", life->segment);
    LIFE_REQUIRE(chmod(life->folder, 0755) == 0);
    life_serve(life);
    (void)umask(before);
    /* Made as root with mode 0660 whatever the umask: strangers may not write it, and hear whose it is. */
    as(life, 12345, HOLDFAST_FOREIGN, "owner 0, group 0, mode 0660");
    /* Given to a group: its members may. */
    LIFE_REQUIRE(chown(life->segment, 0, 12345) == 0 && chown(lock, 0, 12345) == 0);
    as(life, 12345, HOLDFAST_OK, "");
    as(life, 12346, HOLDFAST_FOREIGN, "group 12345");
    /* Of some other user altogether, readable by all: nobody believes it, root neither. */
    LIFE_REQUIRE(chown(life->segment, 1001, 1001) == 0 && chmod(life->segment, 0664) == 0);
    as(life, 1002, HOLDFAST_FOREIGN, "belongs to user 1001");
    as(life, 1002, HOLDFAST_FOREIGN, "mode 0664");
    char said[512];
    LIFE_REQUIRE(open_it(life, said, sizeof said) == HOLDFAST_FOREIGN);
    LIFE_SAYS(said, "user 1001");
    daemon_refuses(life, "user 1001", "mode 0664");
    /* Writable by everybody. */
    LIFE_REQUIRE(chown(life->segment, 0, 0) == 0 && chmod(life->segment, 0666) == 0);
    LIFE_REQUIRE(open_it(life, said, sizeof said) == HOLDFAST_FOREIGN);
    LIFE_SAYS(said, "written by everybody (mode 0666, owner 0)");
    daemon_refuses(life, "0666", "owner 0");
    LIFE_REQUIRE(chmod(life->segment, 0660) == 0);
    LIFE_REQUIRE(open_it(life, said, sizeof said) == HOLDFAST_OK);
    life_unserve(life, SIGTERM);
}

static void symbolic_link(struct life *life)
{
    char real[128];
    char said[512];

    life_serve(life);
    (void)snprintf(real, sizeof real, "%s/real", life->folder);
    LIFE_REQUIRE(rename(life->segment, real) == 0 && symlink(real, life->segment) == 0);
    LIFE_REQUIRE(open_it(life, said, sizeof said) == HOLDFAST_FOREIGN);
    LIFE_SAYS(said, "symbolic link");
    life_unserve(life, SIGTERM);
    daemon_refuses(life, "symbolic link", life->segment);
    /* One that leads nowhere yet is no place to make a segment either. */
    LIFE_REQUIRE(unlink(real) == 0);
    daemon_refuses(life, "symbolic link", life->segment);
    LIFE_REQUIRE(access(real, F_OK) != 0 && errno == ENOENT);
    /* A hard link: two names, and nobody knows who holds the other. */
    LIFE_REQUIRE(unlink(life->segment) == 0);
    life_serve(life);
    LIFE_REQUIRE(link(life->segment, real) == 0);
    LIFE_REQUIRE(open_it(life, said, sizeof said) == HOLDFAST_FOREIGN);
    LIFE_SAYS(said, "2 names");
    life_unserve(life, SIGTERM);
}

const struct life_scenario life_files[] = {
    {"another-build", another_build,
     "I3: version and fingerprint of another build, refused with both numbers"},
    {"another-size", another_size, "I3: a restart with another size goes on with the segment that is there"},
    {"removed", removed_under_workers, "I4: removed under two workers and their daemon"},
    {"removed-no-daemon", removed_without_daemon, "I4: removed under two workers whose daemon is dead"},
    {"replaced", replaced_under_workers, "I4: another file at its path"},
    {"owner-and-mode", owner_and_mode, "I5: wrong owner, group, mode, umask"},
    {"links", symbolic_link, "I5: symbolic and hard links at its path"},
    {NULL, NULL, NULL},
};
