/* Processes of a segment: who they are, and whether they live.
 *
 * A process (a handle, one per thread) takes an entry of the owner table and holds an open-file-description
 * write lock on byte (index) of the lock file. The kernel drops it at death, in any pid namespace; nothing
 * else ever declares a process dead. An epoch per entry tells the living from who had the place before.
 * The descriptor is O_CLOEXEC; after fork() the child inherits the description, so a pthread_atfork child
 * handler closes it (registered once, at the first join): else the child would keep a dead parent alive.
 */
#ifndef HF_SHM_OWNER_H
#define HF_SHM_OWNER_H

#include "shm/segment.h"

enum hf_role {
    HF_ROLE_WORKER = 1,
    HF_ROLE_DAEMON = 2,
    HF_ROLE_TOOL = 3
};

/* A joined handle of this process. */
struct hf_owner {
    uint64_t ref;          /* owner reference; never 0 while joined */
    int fd;                /* own open file description of the lock file; -1 for anonymous segments */
    uint32_t fork_mark;    /* of the process that joined: hf_owner_forked() */
    struct hf_owner *next; /* list of this process's handles, for the atfork handler */
};

/* Joins. HF_EFULL when the table is full of the living (the dead are swept first); HF_ESYS. */
int hf_owner_join(struct hf_segment *seg, enum hf_role role, struct hf_owner *own, struct hf_error *err);
/* Leaves: clears the entry, drops the lock. Chunks must have been given back (hf_chunk_leave). */
void hf_owner_leave(struct hf_segment *seg, struct hf_owner *own);
/* True in a child of the process that joined: the handle must not be used. No system call. */
bool hf_owner_forked(const struct hf_owner *own);

/* True unless the kernel proves that the owner behind ref is dead: entry reused, or no lock on its byte.
 * One fcntl (F_OFD_GETLK) call; false for ref 0; true for any ref of an anonymous segment that is still
 * in the table. Never on the hot path: only when a ref stands in one's way. */
bool hf_owner_alive(const struct hf_segment *seg, uint64_t ref);

/* Clears entries of the dead; returns how many. The daemon, and joiners who find no place. */
uint32_t hf_owner_sweep(struct hf_segment *seg);

/* Takes hdr_daemon for own (CAS from 0 or from a dead owner). HF_EBUSY when a live one holds it; the
 * text names its pid. */
int hf_owner_take_daemon(struct hf_segment *seg, const struct hf_owner *own, struct hf_error *err);
void hf_owner_drop_daemon(struct hf_segment *seg, const struct hf_owner *own);

#endif
