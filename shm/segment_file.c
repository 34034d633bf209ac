/* Files of a segment: who may own them, how they are opened, the bytes of the lock file. */
#include "shm/segment_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool own_group(gid_t gid)
{
    gid_t groups[1024];
    int cnt;

    if (gid == getegid())
        return true;
    cnt = getgroups((int)(sizeof groups / sizeof groups[0]), groups);
    for (int i = 0; i < cnt; i++) {
        if (groups[i] == gid)
            return true;
    }
    return false;
}

int hf_segment_check_file(const char *path, const struct stat *st, const char *what, struct hf_error *err)
{
    unsigned mode = (unsigned)st->st_mode & 07777U;

    if (S_ISLNK(st->st_mode))
        return hf_error_set(
            err, HF_EFOREIGN,
            "%s is a symbolic link, and a %s is never followed through one; remove it and let the "
            "daemon make the %s",
            path, what, what);
    if (!S_ISREG(st->st_mode))
        return hf_error_set(err, HF_EFOREIGN,
                            "%s is no regular file; remove it and let the daemon make the %s", path, what);
    /* Root as well: whoever may write the file decides what is admitted, and may cut it under a reader. */
    if (st->st_uid != 0 && st->st_uid != geteuid() && !own_group(st->st_gid))
        return hf_error_set(
            err, HF_EFOREIGN,
            "the %s %s belongs to user %u, group %u (mode %04o), not to root, this user (%u) or a "
            "group of this process; run as that user or in that group, or remove the file if nobody "
            "should have made it",
            what, path, (unsigned)st->st_uid, (unsigned)st->st_gid, mode, (unsigned)geteuid());
    if ((mode & S_IWOTH) != 0)
        return hf_error_set(
            err, HF_EFOREIGN,
            "the %s %s may be written by everybody (mode %04o, owner %u); nobody knows what is in it: "
            "stop its users, remove it and let the daemon make it again",
            what, path, mode, (unsigned)st->st_uid);
    if (st->st_nlink != 1)
        return hf_error_set(
            err, HF_EFOREIGN,
            "the %s %s has %lu names (hard links) instead of one, owner %u; remove the others", what, path,
            (unsigned long)st->st_nlink, (unsigned)st->st_uid);
    return HF_OK;
}

int hf_segment_open_file(const char *path, const char *what, struct stat *st, struct hf_error *err)
{
    int fd;

    if (lstat(path, st) != 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            (void)hf_error_set(err, HF_EMISSING, "there is no %s at %s; start the daemon of the segment",
                               what, path);
        else
            (void)hf_error_set(err, HF_ESYS, "cannot look at the %s %s: %s", what, path, strerror(errno));
        return -1;
    }
    /* Before opening: opening a device or a pipe may already do something. */
    if (hf_segment_check_file(path, st, what, err) != HF_OK)
        return -1;
    fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        if (errno == EACCES || errno == EPERM)
            (void)hf_error_set(
                err, HF_EFOREIGN,
                "this user (%u) may not write the %s %s (owner %u, group %u, mode %04o); add the user "
                "to that group, or give the segment another group or mode",
                (unsigned)geteuid(), what, path, (unsigned)st->st_uid, (unsigned)st->st_gid,
                (unsigned)st->st_mode & 07777U);
        else if (errno == ELOOP)
            (void)hf_error_set(err, HF_EFOREIGN, "%s became a symbolic link; remove it", path);
        else if (errno == ENOENT)
            (void)hf_error_set(err, HF_EMISSING, "the %s %s was removed just now; try again", what, path);
        else
            (void)hf_error_set(err, HF_ESYS, "cannot open the %s %s: %s", what, path, strerror(errno));
        return -1;
    }
    /* The file that is open, not the one that stood there before. */
    if (fstat(fd, st) != 0) {
        (void)hf_error_set(err, HF_ESYS, "cannot look at the %s %s: %s", what, path, strerror(errno));
    } else if (hf_segment_check_file(path, st, what, err) == HF_OK) {
        return fd;
    }
    (void)close(fd);
    return -1;
}

/* Gives a file its mode and group, whatever the umask was. 0 or -1 with errno. */
int hf_segment_set_mode(int fd, mode_t mode, gid_t group)
{
    if (group != (gid_t)-1 && fchown(fd, (uid_t)-1, group) != 0)
        return -1;
    return fchmod(fd, mode);
}

int hf_segment_make_lock(const struct hf_segment *seg, mode_t mode, gid_t group, uint64_t *ino,
                         struct hf_error *err)
{
    char path[320];
    struct stat st;
    int fd;

    (void)snprintf(path, sizeof path, "%s.lock", seg->path);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST) {
        (void)hf_error_set(err, errno == ENOSPC ? HF_ENOSPACE : HF_ESYS, "cannot make the lock file %s: %s",
                           path, strerror(errno));
        return -1;
    }
    if (fd < 0)
        fd = hf_segment_open_file(path, "lock file", &st, err);
    if (fd < 0)
        return -1;
    /* One that stands there from an earlier life keeps its inode, and gets what is wanted now, where it is ours. */
    if (fstat(fd, &st) == 0 &&
        ((st.st_uid != geteuid() && geteuid() != 0) || hf_segment_set_mode(fd, mode, group) == 0)) {
        *ino = (uint64_t)st.st_ino;
        return fd;
    }
    (void)hf_error_set(err, HF_ESYS, "cannot give the lock file %s mode %04o and group %d: %s", path,
                       (unsigned)mode, (int)group, strerror(errno));
    (void)close(fd);
    return -1;
}

int hf_segment_open_lock(const struct hf_segment *seg, uint64_t ino, struct hf_error *err)
{
    char path[320];
    struct stat st;
    int fd;

    (void)snprintf(path, sizeof path, "%s.lock", seg->path);
    fd = hf_segment_open_file(path, "lock file", &st, err);
    if (fd < 0)
        return -1;
    if ((uint64_t)st.st_ino == ino)
        return fd;
    (void)hf_error_set(
        err, HF_EFOREIGN,
        "the lock file %s is not the one that the segment was made with (inode %llu, not %llu), so "
        "nobody can tell who is alive; stop all users of the segment, remove it and start the daemon",
        path, (unsigned long long)st.st_ino, (unsigned long long)ino);
    (void)close(fd);
    return -1;
}

int hf_segment_lock_byte(int fd, off_t byte)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
        return HF_OK;
    return errno == EAGAIN || errno == EACCES ? HF_EBUSY : HF_ESYS;
}

void hf_segment_unlock_byte(int fd, off_t byte)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

    (void)fcntl(fd, F_OFD_SETLK, &lock);
}
