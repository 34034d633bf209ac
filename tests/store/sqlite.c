/* What a disk does to a SQLite store: the daemon killed at every single write, sync and removal of a cycle (whole and half made), a
 * disk that is full or fails from each of them on, a reader that stays in the way, a file that was damaged. Afterwards rows and
 * sums equal what the segment admitted. */
#include "tests/store/rig.h"
#include "tests/store/vfs.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>
#include <cmocka.h>

static struct {
    struct rig rig;
    uint64_t kills;
    uint64_t errors;
    uint64_t rows;
} t;

static int open_rig(void **state)
{
    const struct hf_store_options options = {.busy_timeout_ms = 20};

    (void)state;
    vfs_arm(VFS_NONE, 0);
    rig_prepare(&t.rig, NULL, &options);
    rig_open(&t.rig);
    rig_step(&t.rig);
    (void)rig_drain(&t.rig, 10);
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    vfs_arm(VFS_NONE, 0);
    (void)rig_drain(&t.rig, 50);
    rig_check(&t.rig);
    t.rows += rig_rows(&t.rig);
    rig_close(&t.rig);
    return 0;
}

static int tell(void **state)
{
    (void)state;
    print_message("totals: %" PRIu64 " kills and %" PRIu64 " failures at a write, %" PRIu64
                  " receipts, each once\n",
                  t.kills, t.errors, t.rows);
    return 0;
}

static void checkpoint(struct rig *rig)
{
    sqlite3 *db = NULL;

    assert_int_equal(sqlite3_open(rig->daemon.store_url + strlen("sqlite:"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* ---- killed at a write ------------------------------------------------------------------------------------------- */

/* A daemon in a process of its own: attaches, drains, leaves. Its exit status. */
static int serve_once(enum vfs_fault fault, uint64_t at)
{
    struct hf_policy_report report = {0};
    struct hf_error err = {.text = ""};
    struct hf_serve *serve = NULL;
    int status = 1;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        vfs_arm(fault, at);
        if (hf_serve_open(&t.rig.daemon.options, &serve, &report, &err) != HF_SERVE_OK) {
            (void)fprintf(stderr, "%s\n", err.text);
            _exit(1);
        }
        if (!hf_serve_flush(serve, 60000)) {
            _exit(2);
        }
        hf_serve_close(serve);
        _exit(vfs_happened() ? 3 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Killed at change `at`, counted from the daemon's opening of the store; the next one goes on. False: there are fewer. */
static bool kill_at(enum vfs_fault fault, uint64_t at)
{
    struct hf_store_head head;
    struct hf_store_error error = {""};

    rig_step(&t.rig);
    hf_test_daemon_drop(&t.rig.daemon);
    int ended = serve_once(fault, at);

    assert_true(ended == 9 || ended == 0);
    t.kills += ended == 9;
    rig_open(&t.rig);
    (void)rig_drain(&t.rig, 20);
    assert_int_equal(hf_store_head(hf_serve_store(t.rig.daemon.serve), "test", &head, &error), HF_STORE_OK);
    if (head.next_seq - 1 != rig_rows(&t.rig)) {
        fail_msg("killed at change %" PRIu64 ": %" PRIu64 " receipts in the store, %" PRIu64 " were made", at,
                 head.next_seq - 1, rig_rows(&t.rig));
    }
    return ended == 9;
}

static void kill_at_all(enum vfs_fault fault)
{
    uint64_t at = 0;

    /* Closing writes the log back into the file, so the changes of a cycle include those. */
    while (kill_at(fault, at)) {
        at++;
    }
    assert_true(at > 10);
    rig_check(&t.rig);
}

static void killed_at_every_write(void **state)
{
    (void)state;
    kill_at_all(VFS_EXIT);
}

static void killed_within_every_write(void **state)
{
    (void)state;
    kill_at_all(VFS_EXIT_TORN);
}

/* ---- a disk that fails ------------------------------------------------------------------------------------------- */

/* One cycle with that fault, then the disk is well again. False: it has fewer changes. */
static bool fail_at(enum vfs_fault fault, uint64_t at)
{
    vfs_arm(fault, at);
    rig_step(&t.rig);
    for (int i = 0; i < 3; i++) {
        enum hf_drain_result result = rig_cycle(&t.rig);

        if (result != HF_DRAIN_WAITING && result != HF_DRAIN_WORKED && result != HF_DRAIN_IDLE) {
            fail_msg("change %" PRIu64 ": the drain answers %d:\n%s", at, (int)result, t.rig.daemon.log);
        }
    }
    bool happened = vfs_happened();

    vfs_arm(VFS_NONE, 0);
    (void)rig_drain(&t.rig, 20);
    t.errors += happened;
    return happened;
}

static void fail_at_all(enum vfs_fault fault)
{
    uint64_t at = 0;

    while (fail_at(fault, at)) {
        rig_check(&t.rig);
        at++;
    }
    assert_true(at > 2);
    assert_true(rig_alarm(&t.rig, HF_ALARM_STORE_RETRY) > 0);
    assert_int_equal(rig_alarm(&t.rig, HF_ALARM_STORE_CONFLICT), 0);
}

static void a_full_disk(void **state)
{
    (void)state;
    fail_at_all(VFS_FULL);
    assert_non_null(strstr(t.rig.daemon.log, "Make room on that file system"));
    fail_at_all(VFS_FULL_ONCE);
}

static void a_disk_that_fails(void **state)
{
    (void)state;
    fail_at_all(VFS_IOERR);
    assert_non_null(strstr(t.rig.daemon.log, "Look at the disk"));
    fail_at_all(VFS_IOERR_ONCE);
}

/* ---- other programs ---------------------------------------------------------------------------------------------- */

/* A reader that stays for long holds up nothing; a writer holds up, and what waits comes when it is gone. */
static void others_in_the_file(void **state)
{
    const char *path = t.rig.daemon.store_url + strlen("sqlite:");
    sqlite3 *other = NULL;

    (void)state;
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN; SELECT count(*) FROM receipt", NULL, NULL, NULL), SQLITE_OK);
    for (int i = 0; i < 20; i++) {
        rig_step(&t.rig);
        assert_int_equal(rig_drain(&t.rig, 5), 0);
    }
    assert_int_equal(sqlite3_exec(other, "ROLLBACK; BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    for (int i = 0; i < 5; i++) {
        rig_step(&t.rig);
        assert_int_equal(rig_cycle(&t.rig), HF_DRAIN_WAITING);
    }
    assert_non_null(strstr(t.rig.daemon.log, "Another program holds the file"));
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    (void)rig_drain(&t.rig, 10);
    rig_check(&t.rig);
}

/* Each wait is drawn between half and all of what doubles from 50 ms to 5 s, so that many daemons do not come back at once. */
static void waits_are_drawn(void **state)
{
    sqlite3 *other = NULL;
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    uint64_t due = 50;

    (void)state;
    assert_int_equal(sqlite3_open(t.rig.daemon.store_url + strlen("sqlite:"), &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    rig_step(&t.rig);
    for (int i = 0; i < 24; i++) {
        assert_int_equal(rig_cycle(&t.rig), HF_DRAIN_WAITING);
        uint64_t wait = hf_drain_next_try_ms(hf_serve_drain(t.rig.daemon.serve)) - t.rig.mono_ms;

        assert_in_range(wait, due / 2, due);
        if (due == 5000) {
            least = wait < least ? wait : least;
            most = wait > most ? wait : most;
        }
        due = due * 2 < 5000 ? due * 2 : 5000;
    }
    assert_true(most - least > 500);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
}

/* ---- a damaged file ---------------------------------------------------------------------------------------------- */

static void copy_file(const char *from, const char *to)
{
    char command[1024];

    (void)snprintf(command, sizeof(command), "cp %.400s %.400s", from, to);
    assert_int_equal(system(command), 0); /* NOLINT: the test's own folder */
}

/* Damaged while the daemon runs and is restarted: it says so, keeps everything, and commits it once the file is whole again. */
static void a_damaged_file(void **state)
{
    const char *path = t.rig.daemon.store_url + strlen("sqlite:");
    char whole[400];
    static const char junk[8192] = "this was a page";

    (void)state;
    (void)snprintf(whole, sizeof(whole), "%.190s.whole", path);
    hf_store_disconnect(hf_serve_store(t.rig.daemon.serve));
    checkpoint(&t.rig);
    copy_file(path, whole);
    for (int page = 0; page < 2; page++) {
        int fd = open(path, O_WRONLY | O_CLOEXEC);

        /* The first page, or all but it. */
        assert_true(fd >= 0);
        for (off_t at = page == 0 ? 0 : 4096; at < (page == 0 ? 4096 : 400000); at += 4096) {
            assert_int_equal(pwrite(fd, junk, 4096, at), 4096);
        }
        assert_int_equal(close(fd), 0);
        t.rig.daemon.log[0] = '\0';
        for (int i = 0; i < 3; i++) {
            rig_step(&t.rig);
            assert_int_equal(rig_cycle(&t.rig), HF_DRAIN_WAITING);
        }
        assert_non_null(strstr(t.rig.daemon.log, "Restore the file from a backup"));
        hf_store_disconnect(hf_serve_store(t.rig.daemon.serve));
        copy_file(whole, path);
        (void)rig_drain(&t.rig, 20);
        rig_check(&t.rig);
        hf_store_disconnect(hf_serve_store(t.rig.daemon.serve));
        checkpoint(&t.rig);
        copy_file(path, whole);
    }
    assert_int_equal(unlink(whole), 0);
}

/* Gone while it is in use: never silently a new one. */
static void a_file_that_was_removed(void **state)
{
    const char *path = t.rig.daemon.store_url + strlen("sqlite:");
    char aside[400];

    (void)state;
    (void)snprintf(aside, sizeof(aside), "%.190s.aside", path);
    hf_store_disconnect(hf_serve_store(t.rig.daemon.serve));
    checkpoint(&t.rig);
    rig_step(&t.rig);
    (void)rig_drain(&t.rig, 5);
    assert_int_equal(rename(path, aside), 0);
    for (int i = 0; i < 3; i++) {
        rig_step(&t.rig);
        assert_int_equal(rig_cycle(&t.rig), HF_DRAIN_WAITING);
    }
    assert_int_equal(access(path, F_OK), -1);
    assert_non_null(strstr(t.rig.daemon.log, "removed or replaced"));
    assert_int_equal(rename(aside, path), 0);
    (void)rig_drain(&t.rig, 20);
    rig_check(&t.rig);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    const struct CMUnitTest tests[] = {
        CASE(killed_at_every_write), CASE(killed_within_every_write), CASE(a_full_disk),
        CASE(a_disk_that_fails),     CASE(waits_are_drawn),           CASE(others_in_the_file),
        CASE(a_damaged_file),        CASE(a_file_that_was_removed),
    };
#undef CASE
    if (!vfs_register()) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, tell);
}
