/* A SQLite file system of the tests' own, on top of the real one: counts what changes a file (writes, truncations, syncs, removals)
 * and fails or ends the process at one of them. Registered as the default, so the daemon's store uses it unknowingly. */
#ifndef HF_TESTS_STORE_VFS_H
#define HF_TESTS_STORE_VFS_H

#include <stdbool.h>
#include <stdint.h>

enum vfs_fault {
    VFS_NONE,
    VFS_EXIT,      /* _exit(9) before the change is made */
    VFS_EXIT_TORN, /* half of a write is made, then _exit(9) */
    VFS_FULL,      /* from there on every write says that the disk is full, until it is disarmed */
    VFS_FULL_ONCE,
    VFS_IOERR, /* from there on every write and sync fails */
    VFS_IOERR_ONCE
};

bool vfs_register(void);
/* The fault happens at change number `at` from now on (from 0). */
void vfs_arm(enum vfs_fault fault, uint64_t at);
/* Changes since vfs_arm, and whether the fault happened. */
uint64_t vfs_changes(void);
bool vfs_happened(void);

#endif
