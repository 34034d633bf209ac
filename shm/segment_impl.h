/* What the files of the segment share among themselves; nobody else includes it. */
#ifndef HF_SHM_SEGMENT_IMPL_H
#define HF_SHM_SEGMENT_IMPL_H

#include "shm/segment.h"

#include <sys/stat.h>

#define HF_SEGMENT_ALIGN 4096U
#define HF_SEGMENT_LOCK_BYTE \
    65536 /* byte of the lock file for who is making a segment; owners have those below */

/* Regions and rounded counts of a plan. False when it is out of range. */
struct hf_segment_shape {
    struct hf_shm_region regions[HF_REGION_CNT];
    uint32_t slots_cnt;
    uint32_t chunk_slots;
    uint32_t heads_cnt;
    uint64_t policy_bytes;
    uint64_t size_bytes;
};
bool hf_segment_shape(const struct hf_segment_plan *plan, struct hf_segment_shape *shape);

/* Fills pointers and bounds of seg from a header that has been checked; base and size are set. */
void hf_segment_bind(struct hf_segment *seg, const struct hf_shm_header *header);

/* Writes the header of a new segment into zeroed memory. name: hdr_segment_name. */
void hf_segment_fill(uint8_t *base, const struct hf_segment_plan *plan, const struct hf_segment_shape *shape,
                     const char *name, uint64_t hash_seed, uint64_t lock_ino);

/* The name of a segment within its path: without folder and "holdfast." */
const char *hf_segment_base_name(const char *path);

/* The temporary path of an unpublished segment. */
void hf_segment_temp_path(const struct hf_segment *seg, char path[320]);

/* HF_OK when the owner of a file is root, this user or the file's group one of this process's, nobody else may write
 * it, it is a regular file and has one name; else HF_EFOREIGN with what is wrong. what: "segment" or "lock file". */
int hf_segment_check_file(const char *path, const struct stat *st, const char *what, struct hf_error *err);

/* Opens for reading and writing without following a link, after a look at what stands there. -1 and err: HF_EMISSING,
 * HF_EFOREIGN, HF_ESYS. */
int hf_segment_open_file(const char *path, const char *what, struct stat *st, struct hf_error *err);

/* Gives a file its mode and group ((gid_t)-1: leaves it), whatever the umask was. 0 or -1 with errno. */
int hf_segment_set_mode(int fd, mode_t mode, gid_t group);

/* Makes the lock file of seg->path, or opens the one that is there; *ino is its inode. -1 and err. */
int hf_segment_make_lock(const struct hf_segment *seg, mode_t mode, gid_t group, uint64_t *ino,
                         struct hf_error *err);

/* Opens the lock file of seg->path by a new open file description; it must have this inode. -1 and err. */
int hf_segment_open_lock(const struct hf_segment *seg, uint64_t ino, struct hf_error *err);

/* Tries to lock a byte of the lock file for this open file description; HF_OK, HF_EBUSY or HF_ESYS. */
int hf_segment_lock_byte(int fd, off_t byte);
void hf_segment_unlock_byte(int fd, off_t byte);

#endif
