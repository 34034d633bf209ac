#include "tests/store/vfs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sqlite3.h>

/* A file: the methods here, then the real file. */
struct file {
    sqlite3_file base;
    sqlite3_file *real;
};

static struct {
    sqlite3_vfs vfs;
    sqlite3_vfs *real;
    enum vfs_fault fault;
    uint64_t at;
    uint64_t changes;
    bool happened;
} shim;

static sqlite3_file *real_of(sqlite3_file *file)
{
    return ((struct file *)(void *)file)->real;
}

/* What the change that is about to be made answers instead; torn: half of it is to be made. */
static int judge(bool write, bool *torn)
{
    bool lasting = shim.fault == VFS_FULL || shim.fault == VFS_IOERR;
    bool now = shim.fault != VFS_NONE && (shim.changes == shim.at || (lasting && shim.changes > shim.at));

    *torn = false;
    shim.changes++;
    if (!now) {
        return SQLITE_OK;
    }
    shim.happened = true;
    switch (shim.fault) {
    case VFS_EXIT:
        _exit(9);
    case VFS_EXIT_TORN:
        *torn = write;
        if (!write) {
            _exit(9);
        }
        return SQLITE_OK;
    case VFS_FULL:
    case VFS_FULL_ONCE:
        return write ? SQLITE_FULL : SQLITE_OK;
    default:
        return write ? SQLITE_IOERR_WRITE : SQLITE_IOERR_FSYNC;
    }
}

/* ---- methods of a file ------------------------------------------------------------------------------------------- */

static int file_close(sqlite3_file *file)
{
    struct file *own = (struct file *)(void *)file;
    int rc = own->real->pMethods == NULL ? SQLITE_OK : own->real->pMethods->xClose(own->real);

    free(own->real);
    own->real = NULL;
    return rc;
}

static int file_read(sqlite3_file *file, void *bytes, int cnt, sqlite3_int64 at)
{
    return real_of(file)->pMethods->xRead(real_of(file), bytes, cnt, at);
}

static int file_write(sqlite3_file *file, const void *bytes, int cnt, sqlite3_int64 at)
{
    bool torn;
    int rc = judge(true, &torn);

    if (torn) {
        (void)real_of(file)->pMethods->xWrite(real_of(file), bytes, cnt / 2, at);
        _exit(9);
    }
    return rc != SQLITE_OK ? rc : real_of(file)->pMethods->xWrite(real_of(file), bytes, cnt, at);
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    bool torn;
    int rc = judge(false, &torn);

    return rc != SQLITE_OK ? rc : real_of(file)->pMethods->xTruncate(real_of(file), size);
}

static int file_sync(sqlite3_file *file, int flags)
{
    bool torn;
    int rc = judge(false, &torn);

    return rc != SQLITE_OK ? rc : real_of(file)->pMethods->xSync(real_of(file), flags);
}

static int file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    return real_of(file)->pMethods->xFileSize(real_of(file), size);
}

static int file_lock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xLock(real_of(file), level);
}

static int file_unlock(sqlite3_file *file, int level)
{
    return real_of(file)->pMethods->xUnlock(real_of(file), level);
}

static int file_reserved(sqlite3_file *file, int *out)
{
    return real_of(file)->pMethods->xCheckReservedLock(real_of(file), out);
}

static int file_control(sqlite3_file *file, int what, void *arg)
{
    return real_of(file)->pMethods->xFileControl(real_of(file), what, arg);
}

static int file_sector(sqlite3_file *file)
{
    return real_of(file)->pMethods->xSectorSize(real_of(file));
}

static int file_traits(sqlite3_file *file)
{
    return real_of(file)->pMethods->xDeviceCharacteristics(real_of(file));
}

static int file_shm_map(sqlite3_file *file, int page, int size, int extend, void *out)
{
    return real_of(file)->pMethods->xShmMap(real_of(file), page, size, extend, out);
}

static int file_shm_lock(sqlite3_file *file, int offset, int cnt, int flags)
{
    return real_of(file)->pMethods->xShmLock(real_of(file), offset, cnt, flags);
}

static void file_shm_barrier(sqlite3_file *file)
{
    real_of(file)->pMethods->xShmBarrier(real_of(file));
}

static int file_shm_unmap(sqlite3_file *file, int drop)
{
    return real_of(file)->pMethods->xShmUnmap(real_of(file), drop);
}

/* Version 2: no mapping of the file itself, so that every change is a write. */
static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_reserved,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_traits,
    .xShmMap = (__typeof__(((sqlite3_io_methods *)0)->xShmMap))
        file_shm_map, /* its last parameter, by another name */
    .xShmLock = file_shm_lock,
    .xShmBarrier = file_shm_barrier,
    .xShmUnmap = file_shm_unmap,
};

/* ---- the file system --------------------------------------------------------------------------------------------- */

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    struct file *own = (struct file *)(void *)file;

    (void)vfs;
    own->base.pMethods = NULL;
    own->real = calloc(1, (size_t)shim.real->szOsFile);
    if (own->real == NULL) {
        return SQLITE_NOMEM;
    }
    int rc = shim.real->xOpen(shim.real, name, own->real, flags, out);

    if (rc != SQLITE_OK) {
        free(own->real);
        own->real = NULL;
        return rc;
    }
    own->base.pMethods = &methods;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync)
{
    bool torn;
    int rc = judge(false, &torn);

    (void)vfs;
    return rc != SQLITE_OK ? rc : shim.real->xDelete(shim.real, name, sync);
}

bool vfs_register(void)
{
    shim.real = sqlite3_vfs_find(NULL);
    if (shim.real == NULL) {
        return false;
    }
    shim.vfs = *shim.real;
    shim.vfs.zName = "holdfast-faults";
    shim.vfs.pNext = NULL;
    shim.vfs.szOsFile = sizeof(struct file);
    shim.vfs.xOpen = vfs_open;
    shim.vfs.xDelete = vfs_delete;
    return sqlite3_vfs_register(&shim.vfs, 1) == SQLITE_OK;
}

void vfs_arm(enum vfs_fault fault, uint64_t at)
{
    shim.fault = fault;
    shim.at = at;
    shim.changes = 0;
    shim.happened = false;
}

uint64_t vfs_changes(void)
{
    return shim.changes;
}

bool vfs_happened(void)
{
    return shim.happened;
}
