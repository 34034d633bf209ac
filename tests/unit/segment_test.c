/* Files of a segment: made whole or not at all, put in place at once, and never believed when attached. */
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SKIPPED 77

static struct hf_segment_plan plan_of(uint32_t slots)
{
    return (struct hf_segment_plan){
        .slots = slots,
        .owners = 4,
        .tenants = 2,
        .rows = 3,
        .names = 5,
        .prices = 2,
        .meters = 0,
        .policy_bytes = 1000,
        .replay_horizon_ms = 60000,
        .late_horizon_ms = 3600000,
        .max_lag_ms = 30000,
        .epoch = 17,
        .group = (gid_t)-1,
        .store_name = "prod",
        .store_url = "sqlite:/var/lib/holdfast/prod.db",
    };
}

/* A folder of its own for each test. */
struct place {
    char folder[64];
    char path[96];
    char lock[128];
};

static int setup(void **state)
{
    struct place *place = calloc(1, sizeof *place);

    *state = place;
    if (place == NULL)
        return -1;
    (void)snprintf(place->folder, sizeof place->folder, "/tmp/holdfast-segment-XXXXXX");
    if (mkdtemp(place->folder) == NULL || chmod(place->folder, 0755) != 0)
        return -1;
    (void)snprintf(place->path, sizeof place->path, "%s/seg", place->folder);
    (void)snprintf(place->lock, sizeof place->lock, "%s/seg.lock", place->folder);
    return 0;
}

static int teardown(void **state)
{
    struct place *place = *state;
    char command[128];

    (void)snprintf(command, sizeof command, "rm -rf -- %s", place->folder);
    int status = system(command); /* NOLINT(cert-env33-c): a folder of our own */
    free(place);
    return status;
}

/* Files in the folder besides . and .. */
static int files_in(const char *folder)
{
    char command[128];
    int cnt = -1;

    (void)snprintf(command, sizeof command, "ls -A %s | wc -l", folder);
    FILE *pipe = popen(command, "r"); /* NOLINT(cert-env33-c): a folder of our own */
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%d", &cnt), 1); /* NOLINT(cert-err34-c): a number by wc */
    assert_int_equal(pclose(pipe), 0);
    return cnt;
}

static void make(const struct place *place, struct hf_segment *seg)
{
    struct hf_segment_plan plan = plan_of(64);
    struct hf_error err = {.text = ""};

    if (hf_segment_create(place->path, &plan, seg, &err) != HF_OK)
        fail_msg("%s", err.text);
    if (hf_segment_publish(seg, false, &err) != HF_OK)
        fail_msg("%s", err.text);
}

/* Attaching must fail with this code and a sentence that holds each of the texts. */
static void refused(const char *name, int code, const char *first, const char *second)
{
    struct hf_segment seg;
    struct hf_error err = {.text = ""};
    int got = hf_segment_attach(name, &seg, &err);

    if (got != code || (int)err.code != code)
        fail_msg("%d instead of %d: %s", got, code, err.text);
    if (strstr(err.text, first) == NULL || strstr(err.text, second) == NULL)
        fail_msg("'%s' and '%s' are not in: %s", first, second, err.text);
    assert_null(seg.base);
    assert_int_equal(seg.lock_fd, -1);
}

/* Runs f in a child, with its own copy of everything; its exit status. */
static int in_child(int (*f)(const struct place *), const struct place *place)
{
    int status = -1;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        _exit(f(place));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* ---- names and shapes ------------------------------------------------------------------------------------ */

static void names_and_paths(void **state)
{
    const char *const bad[] = {
        "",     ".x",    "a b",     "a*",    "\xc3\xa4",
        "a\nb", "/tmp/", "/tmp/.x", "./a b", "0123456789012345678901234567890123456789012345678"};
    char path[256];
    char longest[300];
    struct hf_error err;

    (void)state;
    assert_int_equal(hf_segment_path("prod-1.A_z", path, &err), HF_OK);
    assert_string_equal(path, "/dev/shm/holdfast.prod-1.A_z");
    assert_int_equal(hf_segment_path("012345678901234567890123456789012345678901234567", path, &err), HF_OK);
    assert_int_equal(hf_segment_path("./holdfast.x", path, &err), HF_OK);
    assert_string_equal(path, "./holdfast.x");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err.text[0] = 0;
        assert_int_equal(hf_segment_path(bad[i], path, &err), HF_EARG);
        assert_string_not_equal(err.text, "");
    }
    assert_int_equal(hf_segment_path(NULL, path, NULL), HF_EARG);
    memset(longest, 'd', sizeof longest);
    longest[0] = '/';
    longest[298] = '/';
    longest[299] = 0;
    assert_int_equal(hf_segment_path(longest, path, &err), HF_EARG);
}

static void plans_out_of_range_are_refused(void **state)
{
    struct hf_segment_plan plan = plan_of(64);
    struct hf_segment seg;
    struct hf_error err = {.text = ""};

    (void)state;
    assert_true(hf_segment_plan_bytes(&plan) > 64 * sizeof(struct hf_shm_slot));
    assert_int_equal(hf_segment_plan_bytes(&plan) % 4096, 0);
    plan.slots = HF_SHM_SLOTS_MAX;
    assert_true(hf_segment_plan_bytes(&plan) > (uint64_t)HF_SHM_SLOTS_MAX * sizeof(struct hf_shm_slot));
    plan.slots = HF_SHM_SLOTS_MAX + 1;
    assert_int_equal(hf_segment_plan_bytes(&plan), 0);
    assert_int_equal(hf_segment_create_anonymous(&plan, &seg, &err), HF_EARG);
    assert_string_not_equal(err.text, "");
#define REFUSED(field, value)                              \
    do {                                                   \
        plan = plan_of(64);                                \
        plan.field = (value);                              \
        assert_int_equal(hf_segment_plan_bytes(&plan), 0); \
    } while (0)
    REFUSED(slots, 0);
    REFUSED(owners, 0);
    REFUSED(owners, 65536);
    REFUSED(tenants, 0);
    REFUSED(rows, 0);
    REFUSED(rows, UINT32_MAX);
    REFUSED(names, 0);
    REFUSED(prices, 0);
    REFUSED(policy_bytes, 0);
    REFUSED(policy_bytes, 1ULL << 40);
    REFUSED(meters, UINT32_MAX);
}

static void anonymous_segment(void **state)
{
    struct hf_segment_plan plan = plan_of(100);
    struct hf_segment seg;

    (void)state;
    assert_int_equal(hf_segment_create_anonymous(&plan, &seg, NULL), HF_OK);
    assert_int_equal(seg.lock_fd, -1);
    assert_string_equal(seg.path, "");
    assert_true(hf_segment_in_place(&seg));
    assert_int_equal(hf_segment_state(&seg), HF_SEGMENT_NEW);
    hf_segment_set_state(&seg, HF_SEGMENT_READY);
    assert_int_equal(hf_segment_state(&seg), HF_SEGMENT_READY);
    hf_segment_set_state(&seg, 99); /* no state */
    assert_int_equal(hf_segment_state(&seg), HF_SEGMENT_NEW);
    assert_non_null(hf_segment_slot(&seg, seg.slots_cnt - 1));
    assert_null(hf_segment_slot(&seg, seg.slots_cnt));
    assert_null(hf_segment_row(&seg, 3));
    assert_null(hf_segment_tenant(&seg, HF_SHM_NONE));
    assert_int_equal(hf_segment_publish(&seg, false, NULL), HF_EARG);
    hf_segment_detach(&seg);
    assert_null(seg.base);
    hf_segment_detach(&seg); /* twice is once */
}

/* ---- making ------------------------------------------------------------------------------------------------ */

static void made_published_attached(void **state)
{
    struct place *place = *state;
    struct hf_segment_plan plan = plan_of(64);
    struct hf_segment made;
    struct hf_segment seg;
    struct hf_error err;
    struct stat st;
    mode_t umask_before = umask(077);

    refused(place->path, HF_EMISSING, place->path, "daemon");
    assert_int_equal(hf_segment_create(place->path, &plan, &made, &err), HF_OK);
    /* Not there until it is published. */
    assert_int_equal(stat(place->path, &st), -1);
    refused(place->path, HF_EMISSING, place->path, "daemon");
    made.slots[63].slot_mask = 42;
    hf_segment_set_state(&made, HF_SEGMENT_READY);
    assert_int_equal(hf_segment_publish(&made, false, &err), HF_OK);
    umask(umask_before);
    assert_int_equal(hf_segment_publish(&made, false, &err), HF_EARG); /* once */
    assert_int_equal(files_in(place->folder), 2);
    /* The mode is what the plan says, whatever the umask; all of it is really allocated. */
    assert_int_equal(stat(place->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    assert_int_equal(st.st_size, hf_segment_plan_bytes(&plan));
    assert_true((uint64_t)st.st_blocks * 512 >= hf_segment_plan_bytes(&plan));
    assert_int_equal(stat(place->lock, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);

    assert_int_equal(hf_segment_attach(place->path, &seg, &err), HF_OK);
    assert_ptr_not_equal(seg.base, made.base);
    assert_int_equal(seg.slots[63].slot_mask, 42);
    assert_int_equal(hf_segment_state(&seg), HF_SEGMENT_READY);
    assert_int_equal(seg.header->hdr_epoch, 17);
    assert_string_equal(seg.header->hdr_segment_name, "seg");
    assert_string_equal(seg.name, "seg");
    assert_string_equal(seg.header->hdr_store_name, "prod");
    assert_string_equal(seg.header->hdr_store_url, "sqlite:/var/lib/holdfast/prod.db");
    assert_int_equal(seg.slots_cnt, made.slots_cnt);
    assert_int_equal(seg.heads_mask, made.heads_mask);
    assert_int_equal(seg.chunk_slots, made.chunk_slots);
    assert_int_equal(seg.hash_seed, made.hash_seed);
    assert_int_equal(seg.rows_cnt, 3);
    assert_int_equal(seg.tenants_cnt, 2);
    assert_int_equal(seg.names_max, 5);
    assert_int_equal(seg.meters_cnt, 0);
    assert_int_equal(seg.replay_horizon_ms, 60000);
    assert_int_equal(seg.late_horizon_ms, 3600000);
    assert_int_equal(seg.max_lag_ms, 30000);
    assert_false(seg.injected);
    assert_true(hf_segment_in_place(&seg));
    assert_int_equal(hf_segment_remove(place->path, &err), HF_OK);
    assert_int_equal(hf_segment_remove(place->path, &err), HF_EMISSING);
    assert_false(hf_segment_in_place(&seg));
    assert_int_equal(files_in(place->folder), 1); /* the lock file stays */
    hf_segment_detach(&seg);
    hf_segment_detach(&made);
}

static void what_stands_there_is_replaced_only_when_told(void **state)
{
    struct place *place = *state;
    struct hf_segment_plan plan = plan_of(64);
    struct hf_segment old;
    struct hf_segment next;
    struct hf_segment seg;
    struct hf_error err;

    make(place, &old);
    plan.epoch = 18;
    assert_int_equal(hf_segment_create(place->path, &plan, &next, &err), HF_OK);
    assert_int_equal(hf_segment_publish(&next, false, &err), HF_EEXISTS);
    assert_non_null(strstr(err.text, place->path));
    assert_true(hf_segment_in_place(&old));
    assert_int_equal(hf_segment_publish(&next, true, &err), HF_OK);
    assert_false(hf_segment_in_place(&old));
    assert_int_equal(old.header->hdr_epoch, 17); /* still mapped by who had it */
    assert_true(hf_segment_in_place(&next));
    assert_int_equal(hf_segment_attach(place->path, &seg, &err), HF_OK);
    assert_int_equal(seg.header->hdr_epoch, 18);
    assert_int_equal(seg.header->hdr_lock_ino, old.header->hdr_lock_ino);
    hf_segment_detach(&seg);
    hf_segment_detach(&next);
    hf_segment_detach(&old);
}

static int make_and_die(const struct place *place)
{
    struct hf_segment_plan plan = plan_of(64);
    struct hf_segment seg;

    return hf_segment_create(place->path, &plan, &seg, NULL) == HF_OK ? 0 : 1;
}

static void one_maker_at_a_time_and_no_leavings(void **state)
{
    struct place *place = *state;
    struct hf_segment_plan plan = plan_of(64);
    struct hf_segment first;
    struct hf_segment second;
    struct hf_error err;

    assert_int_equal(hf_segment_create(place->path, &plan, &first, &err), HF_OK);
    assert_int_equal(hf_segment_create(place->path, &plan, &second, &err), HF_EEXISTS);
    assert_non_null(strstr(err.text, "another process"));
    assert_int_equal(files_in(place->folder), 2); /* the first one's file is still there */
    hf_segment_detach(&first);
    assert_int_equal(files_in(place->folder), 1);
    /* A maker that died leaves its file to the next one. */
    assert_int_equal(in_child(make_and_die, place), 0);
    assert_int_equal(in_child(make_and_die, place), 0);
    assert_int_equal(files_in(place->folder), 2); /* of two dead makers one is left */
    assert_int_equal(hf_segment_create(place->path, &plan, &second, &err), HF_OK);
    assert_int_equal(hf_segment_publish(&second, false, &err), HF_OK);
    assert_int_equal(files_in(place->folder), 2);
    hf_segment_detach(&second);
    assert_int_equal(files_in(place->folder), 2);
}

static void no_room_is_said_with_numbers(void **state)
{
    struct place *place = *state;
    struct hf_segment_plan plan = plan_of(65536);
    struct hf_segment seg;
    struct hf_error err = {.text = ""};
    struct rlimit before;
    struct rlimit small = {.rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY};

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int code = hf_segment_create(place->path, &plan, &seg, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(code, HF_ENOSPACE);
    assert_non_null(strstr(err.text, "ulimit"));
    assert_non_null(strstr(err.text, "1 MiB"));
    assert_int_equal(files_in(place->folder), 1); /* nothing half-made: the lock file alone */

    plan.mode = 0662;
    assert_int_equal(hf_segment_create(place->path, &plan, &seg, &err), HF_EARG);
    plan.mode = 0060;
    assert_int_equal(hf_segment_create(place->path, &plan, &seg, &err), HF_EARG);
    assert_int_equal(hf_segment_create("/no-such-folder/seg", &plan, &seg, &err), HF_EARG);
    plan.mode = 0600;
    assert_int_equal(hf_segment_create("/no-such-folder/seg", &plan, &seg, &err), HF_ESYS);
    assert_non_null(strstr(err.text, "/no-such-folder"));
}

/* In a file system of 8 MiB of its own. */
static int in_full_file_system(const struct place *place)
{
    struct hf_segment_plan plan = plan_of(65536);
    struct hf_segment seg;
    struct hf_error err = {.text = ""};

    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", place->folder, "tmpfs", 0, "size=8m,mode=0755") != 0)
        return SKIPPED;
    if (hf_segment_create(place->path, &plan, &seg, &err) != HF_ENOSPACE)
        return 1;
    if (strstr(err.text, "8 MiB") == NULL || strstr(err.text, "needs 3") == NULL)
        return 2;
    if (files_in(place->folder) != 1)
        return 3;
    /* Small enough: works there. */
    plan = plan_of(64);
    if (hf_segment_create(place->path, &plan, &seg, &err) != HF_OK)
        return 4;
    hf_segment_detach(&seg);
    return 0;
}

static void full_file_system(void **state)
{
    int status = in_child(in_full_file_system, *state);

    if (status == SKIPPED) {
        print_message("full_file_system: no file system of its own can be mounted here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

/* ---- attaching to what nobody should believe ------------------------------------------------------------------ */

static void links_and_other_kinds_are_refused(void **state)
{
    struct place *place = *state;
    struct hf_segment seg;
    char other[128];
    struct hf_segment_plan plan = plan_of(64);
    struct hf_error err;

    make(place, &seg);
    hf_segment_detach(&seg);
    (void)snprintf(other, sizeof other, "%s/other", place->folder);
    assert_int_equal(symlink(place->path, other), 0);
    refused(other, HF_EFOREIGN, "symbolic link", other);
    assert_int_equal(hf_segment_create(other, &plan, &seg, &err), HF_EFOREIGN);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(mkfifo(other, 0600), 0);
    refused(other, HF_EFOREIGN, "no regular file", other);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(mkdir(other, 0700), 0);
    refused(other, HF_EFOREIGN, "no regular file", other);
    assert_int_equal(rmdir(other), 0);
    assert_int_equal(link(place->path, other), 0);
    refused(place->path, HF_EFOREIGN, "2 names", place->path);
    assert_int_equal(unlink(other), 0);
    assert_int_equal(chmod(place->path, 0666), 0);
    refused(place->path, HF_EFOREIGN, "0666", "everybody");
    assert_int_equal(chmod(place->path, 0660), 0);
    assert_int_equal(hf_segment_attach(place->path, &seg, &err), HF_OK);
    hf_segment_detach(&seg);
}

static void another_lock_file_is_refused(void **state)
{
    struct place *place = *state;
    struct hf_segment seg;
    char aside[160];

    make(place, &seg);
    hf_segment_detach(&seg);
    (void)snprintf(aside, sizeof aside, "%s.aside", place->lock);
    assert_int_equal(rename(place->lock, aside), 0);
    refused(place->path, HF_EMISSING, "lock file", place->lock);
    int fd = open(place->lock, O_CREAT | O_WRONLY | O_CLOEXEC, 0660);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    refused(place->path, HF_EFOREIGN, "is not the one", place->lock);
    assert_int_equal(unlink(place->lock), 0);
    assert_int_equal(symlink(aside, place->lock), 0);
    refused(place->path, HF_EFOREIGN, "symbolic link", place->lock);
    assert_int_equal(rename(aside, place->lock), 0);
    assert_int_equal(hf_segment_attach(place->path, &seg, NULL), HF_OK);
    hf_segment_detach(&seg);
}

/* Codes for what an unprivileged process finds: 0 when as expected. */
static int become(uid_t uid, gid_t gid)
{
    return setgroups(0, NULL) == 0 && setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0 ? 0 : -1;
}

static int attach_code_as(const struct place *place, uid_t uid, gid_t gid, const char *text)
{
    struct hf_segment seg;
    struct hf_error err = {.text = ""};

    if (become(uid, gid) != 0)
        return 100;
    int code = hf_segment_attach(place->path, &seg, &err);
    hf_segment_detach(&seg);
    if (text != NULL && strstr(err.text, text) == NULL)
        return 101;
    return -code;
}

static int as_stranger(const struct place *place)
{
    return attach_code_as(place, 23456, 23456, "23456");
}

static int as_group_member(const struct place *place)
{
    return attach_code_as(place, 23456, 34567, NULL);
}

static int as_owner(const struct place *place)
{
    return attach_code_as(place, 12345, 12345, NULL);
}

static void only_the_trusted_are_believed(void **state)
{
    struct place *place = *state;
    struct hf_segment_plan plan = plan_of(64);
    struct hf_segment seg;
    struct stat st;

    if (geteuid() != 0) {
        print_message("only_the_trusted_are_believed: needs root\n");
        skip();
    }
    plan.group = 34567;
    assert_int_equal(hf_segment_create(place->path, &plan, &seg, NULL), HF_OK);
    assert_int_equal(hf_segment_publish(&seg, false, NULL), HF_OK);
    hf_segment_detach(&seg);
    assert_int_equal(stat(place->path, &st), 0);
    assert_int_equal(st.st_gid, 34567);
    assert_int_equal(stat(place->lock, &st), 0);
    assert_int_equal(st.st_gid, 34567);
    /* Of root, group 34567: its members may, others may not. */
    assert_int_equal(in_child(as_group_member, place), 0);
    assert_int_equal(in_child(as_stranger, place), -HF_EFOREIGN);
    /* Of user 12345: he may, and the group; nobody else, not even root, believes it. */
    assert_int_equal(chown(place->path, 12345, 34567), 0);
    assert_int_equal(chown(place->lock, 12345, 34567), 0);
    assert_int_equal(in_child(as_owner, place), 0);
    assert_int_equal(in_child(as_group_member, place), 0);
    assert_int_equal(in_child(as_stranger, place), -HF_EFOREIGN);
    refused(place->path, HF_EFOREIGN, "user 12345, group 34567", "0660");
    assert_int_equal(hf_segment_create(place->path, &plan, &seg, NULL), HF_EFOREIGN);
    /* A lock file of a stranger is no better. */
    assert_int_equal(chown(place->path, 0, 34567), 0);
    refused(place->path, HF_EFOREIGN, "lock file", "user 12345");
}

static void patch(const struct place *place, size_t off, const void *bytes, size_t cnt)
{
    int fd = open(place->path, O_WRONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, cnt, (off_t)off), (ssize_t)cnt);
    assert_int_equal(close(fd), 0);
}

#define PATCH(place, field, value)                                                   \
    do {                                                                             \
        __typeof__(((struct hf_shm_header *)0)->field) bytes = (value);              \
        patch((place), offsetof(struct hf_shm_header, field), &bytes, sizeof bytes); \
    } while (0)

static void another_build_or_boot_is_refused(void **state)
{
    struct place *place = *state;
    struct hf_segment seg;
    char ours[32];
    uint8_t boot[16];
    uint8_t zero[16] = {0};

    make(place, &seg);
    hf_segment_detach(&seg);
    (void)snprintf(ours, sizeof ours, "%016llx", (unsigned long long)hf_layout_fingerprint());
    PATCH(place, hdr_fingerprint, 0x1234567890abcdefULL);
    refused(place->path, HF_EBUILD, "1234567890abcdef", ours);
    PATCH(place, hdr_fingerprint, hf_layout_fingerprint());
    PATCH(place, hdr_version, 99);
    refused(place->path, HF_EBUILD, "version 99", "version 1");
    PATCH(place, hdr_version, HF_SHM_VERSION);
    PATCH(place, hdr_magic, 0);
    refused(place->path, HF_EBUILD, "no segment of holdfast", place->path);
    PATCH(place, hdr_magic, HF_SHM_MAGIC);
    hf_segment_boot_id(boot);
    if (memcmp(boot, zero, sizeof boot) != 0) {
        boot[3] ^= 1U;
        patch(place, offsetof(struct hf_shm_header, hdr_boot_id), boot, sizeof boot);
        refused(place->path, HF_ENOTREADY, "before this host was started", place->path);
        boot[3] ^= 1U;
        patch(place, offsetof(struct hf_shm_header, hdr_boot_id), boot, sizeof boot);
    }
    assert_int_equal(hf_segment_attach(place->path, &seg, NULL), HF_OK);
    hf_segment_detach(&seg);
}

/* A file of somebody else, however short, is not replaced: the daemon puts a new segment in the place of a damaged one. */
static void a_foreign_file_is_not_replaced(void **state)
{
    static const char *const contents[] = {"x", "precious",
                                           "something else, and somewhat longer than a magic number"};
    struct place *place = *state;
    const struct hf_segment_plan plan = plan_of(256);
    struct hf_segment seg;
    struct hf_error err;

    for (size_t i = 0; i < sizeof(contents) / sizeof(contents[0]); i++) {
        char there[128] = "";
        int fd = open(place->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, contents[i], strlen(contents[i])), (ssize_t)strlen(contents[i]));
        assert_int_equal(hf_segment_create(place->path, &plan, &seg, &err), HF_EFOREIGN);
        assert_non_null(strstr(err.text, "is that the right name"));
        assert_true(pread(fd, there, sizeof(there) - 1, 0) > 0);
        assert_string_equal(there, contents[i]);
        assert_int_equal(close(fd), 0);
    }
    assert_int_equal(truncate(place->path, 0), 0);
    assert_int_equal(hf_segment_create(place->path, &plan, &seg, &err), HF_OK);
    hf_segment_detach(&seg);
}

static void a_cut_file_is_refused(void **state)
{
    struct place *place = *state;
    struct hf_segment seg;

    make(place, &seg);
    uint64_t size = seg.size_bytes;
    hf_segment_detach(&seg);
    assert_int_equal(truncate(place->path, (off_t)size - 1), 0);
    refused(place->path, HF_ECORRUPT, "was cut", place->path);
    assert_int_equal(truncate(place->path, 4096), 0);
    refused(place->path, HF_ECORRUPT, "was cut", place->path);
    assert_int_equal(truncate(place->path, 100), 0);
    refused(place->path, HF_ECORRUPT, "100 bytes", place->path);
    assert_int_equal(truncate(place->path, 0), 0);
    refused(place->path, HF_ECORRUPT, "0 bytes", place->path);
}

/* Touches the first and the last byte of every region. */
static uint64_t touch(const struct hf_segment *seg)
{
    uint64_t sum = 0;
    const struct {
        const void *first;
        uint64_t bytes;
    } regions[] = {
        {seg->owners, (uint64_t)seg->owners_cnt * sizeof *seg->owners},
        {seg->tenants, (uint64_t)seg->tenants_cnt * sizeof *seg->tenants},
        {seg->rows, (uint64_t)seg->rows_cnt * sizeof *seg->rows},
        {seg->published, (uint64_t)seg->rows_cnt * sizeof *seg->published},
        {seg->chunks, (uint64_t)seg->chunks_cnt * sizeof *seg->chunks},
        {seg->slots, (uint64_t)seg->slots_cnt * sizeof *seg->slots},
        {seg->heads, ((uint64_t)seg->heads_mask + 1U) * sizeof *seg->heads},
        {seg->names, (uint64_t)seg->names_max * sizeof *seg->names},
        {seg->prices, (uint64_t)seg->prices_max * sizeof *seg->prices},
        {seg->policies, seg->policy_bytes * 2U},
        {seg->meters, (uint64_t)seg->meters_cnt * sizeof *seg->meters},
        {seg->batches, 2U * sizeof *seg->batches},
    };

    for (size_t i = 0; i < sizeof regions / sizeof regions[0]; i++) {
        const uint8_t *bytes = regions[i].first;

        if (regions[i].bytes == 0)
            continue;
        assert_true(bytes >= seg->base && bytes + regions[i].bytes <= seg->base + seg->size_bytes);
        sum += (uint64_t)bytes[0] + bytes[regions[i].bytes - 1];
    }
    assert_int_equal((uint64_t)seg->chunks_cnt << seg->chunk_shift, seg->slots_cnt);
    return sum;
}

/* Any header: refused with a sentence, or every region lies within the file. The seed is printed when it fails. */
static void random_headers_never_lead_outside(void **state)
{
    struct place *place = *state;
    struct hf_segment seg;
    struct hf_shm_header right;
    unsigned attached = 0;
    unsigned denied = 0;

    make(place, &seg);
    memcpy(&right, seg.header, sizeof right);
    hf_segment_detach(&seg);
    for (unsigned seed = 1; seed <= 6000; seed++) {
        struct hf_shm_header header = right;
        struct hf_error err = {.text = ""};
        unsigned rnd = seed;
        uint8_t *bytes = (uint8_t *)&header;

        /* One kind in four: all random; else a few bytes, or whole words, of the checked part behind the fingerprint. */
        size_t from = seed % 4 == 0 ? 0 : offsetof(struct hf_shm_header, hdr_size_bytes);
        size_t span = offsetof(struct hf_shm_header, hdr_segment_name) - from;
        int changes = seed % 4 == 0 ? 4096 : 1 + rand_r(&rnd) % 4;
        for (int i = 0; i < changes; i++) {
            size_t at = from + (size_t)rand_r(&rnd) % span;

            if (seed % 4 == 1)
                memset(bytes + (at & ~(size_t)3U), rand_r(&rnd) % 2 != 0 ? 0xff : 0, 4);
            else
                bytes[at] = (uint8_t)rand_r(&rnd);
        }
        memcpy(header.hdr_boot_id, right.hdr_boot_id, sizeof right.hdr_boot_id);
        header.hdr_lock_ino = right.hdr_lock_ino;
        patch(place, 0, &header, sizeof header);
        if (hf_segment_attach(place->path, &seg, &err) == HF_OK) {
            attached++;
            (void)touch(&seg);
            hf_segment_detach(&seg);
        } else {
            denied++;
            if (err.text[0] == 0)
                fail_msg("no sentence with seed %u", seed);
        }
    }
    /* Both happen: most words are options and statistics, the others are checked. */
    assert_true(attached > 100);
    assert_true(denied > 2000);
}

static void each_region_is_checked(void **state)
{
    struct place *place = *state;
    struct hf_segment seg;

    make(place, &seg);
    for (uint32_t i = 0; i < HF_REGION_CNT; i++) {
        size_t at = offsetof(struct hf_shm_header, hdr_regions) + i * sizeof(struct hf_shm_region);
        struct hf_shm_region right = seg.header->hdr_regions[i];
        struct hf_shm_region wrong = right;
        struct hf_segment other;

        wrong.reg_off += 64; /* not aligned */
        patch(place, at, &wrong, sizeof wrong);
        refused(place->path, HF_ECORRUPT, "damaged", place->path);
        wrong = right;
        wrong.reg_off = seg.size_bytes; /* outside */
        patch(place, at, &wrong, sizeof wrong);
        if (right.reg_cnt > 0)
            refused(place->path, HF_ECORRUPT, "damaged", place->path);
        wrong = right;
        wrong.reg_off = 0; /* over the header */
        patch(place, at, &wrong, sizeof wrong);
        refused(place->path, HF_ECORRUPT, "damaged", place->path);
        wrong = right;
        wrong.reg_stride++;
        patch(place, at, &wrong, sizeof wrong);
        refused(place->path, HF_ECORRUPT, "damaged", place->path);
        wrong = right;
        wrong.reg_cnt = UINT32_MAX;
        patch(place, at, &wrong, sizeof wrong);
        refused(place->path, HF_ECORRUPT, "damaged", place->path);
        patch(place, at, &right, sizeof right);
        assert_int_equal(hf_segment_attach(place->path, &other, NULL), HF_OK);
        hf_segment_detach(&other);
    }
    hf_segment_detach(&seg);
}

static void boot_id_is_one_number(void **state)
{
    uint8_t a[16];
    uint8_t b[16];

    (void)state;
    memset(a, 1, sizeof a);
    memset(b, 2, sizeof b);
    hf_segment_boot_id(a);
    hf_segment_boot_id(b);
    assert_memory_equal(a, b, sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_paths),
        cmocka_unit_test(plans_out_of_range_are_refused),
        cmocka_unit_test(anonymous_segment),
        cmocka_unit_test_setup_teardown(made_published_attached, setup, teardown),
        cmocka_unit_test_setup_teardown(what_stands_there_is_replaced_only_when_told, setup, teardown),
        cmocka_unit_test_setup_teardown(one_maker_at_a_time_and_no_leavings, setup, teardown),
        cmocka_unit_test_setup_teardown(no_room_is_said_with_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(full_file_system, setup, teardown),
        cmocka_unit_test_setup_teardown(links_and_other_kinds_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(another_lock_file_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(only_the_trusted_are_believed, setup, teardown),
        cmocka_unit_test_setup_teardown(another_build_or_boot_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_foreign_file_is_not_replaced, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cut_file_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(each_region_is_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(random_headers_never_lead_outside, setup, teardown),
        cmocka_unit_test(boot_id_is_one_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
