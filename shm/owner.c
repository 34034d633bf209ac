#include "shm/owner.h"

#include "shm/clock.h"
#include "shm/segment_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define HF_OWNER_PASSES 4 /* over the table: a sweep of somebody else holds a byte for an instant */

/* The only state of this process: its handles with a descriptor, for the atfork handlers, and how often it was forked.
 * The lock is held by fork() too, so that no child is made in the middle of join, leave or sweep. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t atfork_once = PTHREAD_ONCE_INIT;
static int atfork_errno;
static struct hf_owner *list_head;
static uint32_t fork_mark = 1;

static void before_fork(void)
{
    (void)pthread_mutex_lock(&list_lock);
}

static void after_fork_parent(void)
{
    (void)pthread_mutex_unlock(&list_lock);
}

/* The child inherits the open file descriptions, and with them the locks: it closes them, else the kernel would see
 * the parent alive for as long as the child. Only calls that are safe between fork and exec. */
static void after_fork_child(void)
{
    struct hf_owner *own = list_head;

    while (own != NULL) {
        struct hf_owner *next = own->next;

        (void)close(own->fd);
        own->fd = -1;
        own->next = NULL;
        own = next;
    }
    list_head = NULL;
    /* relaxed: read by this process's threads, of which there is one now. */
    hf_store_rlx_u32(&fork_mark, hf_load_rlx_u32(&fork_mark) + 1U);
    (void)pthread_mutex_unlock(&list_lock);
}

static void register_atfork(void)
{
    atfork_errno = pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

bool hf_owner_forked(const struct hf_owner *own)
{
    return own->fork_mark !=
           hf_load_rlx_u32(&fork_mark); /* relaxed: changes in a child before it has threads */
}

/* Whether some open file description but ours holds the byte. Taken for held when the kernel does not say. */
static bool byte_locked(int fd, uint32_t idx)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)idx, .l_len = 1};

    if (fcntl(fd, F_OFD_GETLK, &lock) != 0)
        return true;
    return lock.l_type != F_UNLCK;
}

bool hf_owner_alive(const struct hf_segment *seg, uint64_t ref)
{
    uint32_t idx = hf_ref_index(ref);

    if (ref == 0 || idx >= seg->owners_cnt)
        return false;
    /* E7 acquire -> hf_owner_join, hf_owner_leave: a joiner holds the lock before its reference stands here, so a
     * reference that stands here without a lock is that of a dead one. */
    if (hf_load_acq_u64(&seg->owners[idx].own_ref) != ref)
        return false;
    return seg->lock_fd < 0 || byte_locked(seg->lock_fd, idx);
}

/* Writes our entry over what is there (0, or a dead owner's reference), whose byte we hold. */
static bool enter(struct hf_segment *seg, uint32_t idx, uint64_t before, enum hf_role role,
                  struct hf_owner *own)
{
    struct hf_shm_owner *entry = &seg->owners[idx];
    /* relaxed: the lock of the byte orders it; without a lock (anonymous) the addition alone makes it unique.
     * CRASH after: a number is left out. */
    uint64_t epoch = hf_ref_epoch(hf_add_rlx_u64(&entry->own_last_epoch, 1) + 1U);
    uint64_t ref = hf_ref_make(idx, epoch != 0 ? epoch : 1U); /* reference 0 is nobody */

    /* E7 release -> hf_owner_alive. CRASH before: the kernel drops the lock, nothing is there.
     * After: a reference without a lock, which is dead. */
    if (!hf_cas_acqrel_u64(&entry->own_ref, before, ref))
        return false;
    /* relaxed: for people. */
    hf_store_rlx_u64(&entry->own_joined_ms, hf_clock_now_ms(seg));
    hf_store_rlx_u32(&entry->own_pid, (uint32_t)getpid());
    hf_store_rlx_u32(&entry->own_role, (uint32_t)role);
    own->ref = ref;
    return true;
}

/* One pass over the table; over_dead: take the places of the dead, not only empty ones. HF_OK, HF_EFULL, HF_ESYS. */
static int find_place(struct hf_segment *seg, enum hf_role role, struct hf_owner *own, bool over_dead)
{
    for (uint32_t idx = 0; idx < seg->owners_cnt; idx++) {
        uint64_t *ref_word = &seg->owners[idx].own_ref;
        uint64_t ref = hf_load_acq_u64(ref_word); /* E7 acquire -> hf_owner_leave */

        if (ref != 0 && (!over_dead || own->fd < 0))
            continue;
        if (own->fd >= 0) {
            int code = hf_segment_lock_byte(own->fd, (off_t)idx);

            if (code == HF_ESYS)
                return code;
            if (code == HF_EBUSY)
                continue;
            ref = hf_load_acq_u64(ref_word); /* E7 acquire: again, now that nobody else may write it */
        }
        /* With the byte in our hand, whoever stands here is dead. */
        if (enter(seg, idx, ref, role, own))
            return HF_OK;
        if (own->fd >= 0)
            hf_segment_unlock_byte(own->fd, (off_t)idx);
    }
    return HF_EFULL;
}

int hf_owner_join(struct hf_segment *seg, enum hf_role role, struct hf_owner *own, struct hf_error *err)
{
    struct hf_error local = {.code = HF_OK};
    int code = HF_EFULL;

    *own = (struct hf_owner){.fd = -1};
    if (err == NULL)
        err = &local;
    (void)pthread_once(&atfork_once, register_atfork);
    if (atfork_errno != 0)
        return hf_error_set(err, HF_ESYS, "cannot register for fork(): %s", strerror(atfork_errno));
    (void)pthread_mutex_lock(&list_lock);
    if (seg->lock_fd >= 0) {
        /* plain: written by the creator. */
        own->fd = hf_segment_open_lock(seg, seg->header->hdr_lock_ino, err);
        code = own->fd >= 0 ? HF_EFULL : (int)err->code;
    }
    for (int pass = 0; pass < HF_OWNER_PASSES && code == HF_EFULL; pass++)
        code = find_place(seg, role, own, pass > 0);
    if (code == HF_EFULL)
        code = hf_error_set(
            err, code,
            "all %u places of the segment's owner table are taken by live processes; stop some, or "
            "make the segment with more",
            seg->owners_cnt);
    else if (code == HF_ESYS && err->code == HF_OK)
        code = hf_error_set(err, code, "cannot lock %s.lock: %s", seg->path, strerror(errno));
    if (code == HF_OK) {
        own->fork_mark = hf_load_rlx_u32(&fork_mark); /* relaxed: under the lock */
        if (own->fd >= 0) {
            own->next = list_head;
            list_head = own;
        }
    } else if (own->fd >= 0) {
        (void)close(own->fd);
        own->fd = -1;
    }
    (void)pthread_mutex_unlock(&list_lock);
    return code;
}

void hf_owner_leave(struct hf_segment *seg, struct hf_owner *own)
{
    (void)pthread_mutex_lock(&list_lock);
    /* In a child the entry is the parent's, and the descriptor is closed already. */
    if (own->ref != 0 && own->fork_mark == hf_load_rlx_u32(&fork_mark)) { /* relaxed: under the lock */
        uint32_t idx = hf_ref_index(own->ref);

        /* E7 release -> hf_owner_alive: we are through. CRASH before: dead, swept. After: an empty place. */
        if (idx < seg->owners_cnt)
            (void)hf_cas_acqrel_u64(&seg->owners[idx].own_ref, own->ref, 0);
    }
    for (struct hf_owner **at = &list_head; *at != NULL; at = &(*at)->next) {
        if (*at == own) {
            *at = own->next;
            break;
        }
    }
    if (own->fd >= 0)
        (void)close(own->fd);
    *own = (struct hf_owner){.fd = -1};
    (void)pthread_mutex_unlock(&list_lock);
}

uint32_t hf_owner_sweep(struct hf_segment *seg)
{
    uint32_t cleared = 0;
    int fd;

    if (seg->lock_fd < 0)
        return 0;
    (void)pthread_mutex_lock(&list_lock);
    /* A description of our own: locks of lock_fd would not stop another thread that sweeps. */
    fd = hf_segment_open_lock(seg, seg->header->hdr_lock_ino, NULL); /* plain: written by the creator */
    for (uint32_t idx = 0; fd >= 0 && idx < seg->owners_cnt; idx++) {
        uint64_t *ref_word = &seg->owners[idx].own_ref;

        if (hf_load_rlx_u64(ref_word) == 0) /* relaxed: read again below */
            continue;
        if (hf_segment_lock_byte(fd, (off_t)idx) != HF_OK)
            continue;
        uint64_t ref = hf_load_acq_u64(ref_word); /* E7 acquire -> hf_owner_join */

        /* E7 release -> hf_owner_alive. CRASH before: swept by the next. After: an empty place. */
        if (ref != 0 && hf_cas_acqrel_u64(ref_word, ref, 0))
            cleared++;
        hf_segment_unlock_byte(fd, (off_t)idx);
    }
    if (fd >= 0)
        (void)close(fd);
    (void)pthread_mutex_unlock(&list_lock);
    return cleared;
}

int hf_owner_take_daemon(struct hf_segment *seg, const struct hf_owner *own, struct hf_error *err)
{
    uint64_t *word = &seg->header->hdr_daemon;

    /* A lost round means that another one took or dropped it. */
    for (int try = 0; try < HF_OWNER_PASSES; try++) {
        uint64_t holder = hf_load_acq_u64(word); /* E7 acquire -> hf_owner_drop_daemon */

        if (holder == own->ref)
            return HF_OK;
        if (hf_owner_alive(seg, holder)) {
            uint32_t pid =
                hf_load_rlx_u32(&seg->owners[hf_ref_index(holder)].own_pid); /* relaxed: for people */

            return hf_error_set(
                err, HF_EBUSY,
                "the segment %s is served already by a daemon, process %u (as numbered in its own "
                "container); stop that one first",
                seg->name, pid);
        }
        /* E7 acquire and release: what the one before did is seen. CRASH after: dead, the next one takes it. */
        if (hf_cas_acqrel_u64(word, holder, own->ref))
            return HF_OK;
    }
    return hf_error_set(err, HF_EBUSY, "daemons of the segment %s are coming and going; try again",
                        seg->name);
}

void hf_owner_drop_daemon(struct hf_segment *seg, const struct hf_owner *own)
{
    /* E7 release -> hf_owner_take_daemon: what this daemon wrote is complete. */
    (void)hf_cas_acqrel_u64(&seg->header->hdr_daemon, own->ref, 0);
}
