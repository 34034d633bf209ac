/* The segment: a file that processes map. Create, staged attach, detach, bounds-checked access. */
#ifndef HF_SHM_SEGMENT_H
#define HF_SHM_SEGMENT_H

#include "shm/error.h"
#include "shm/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What to make. Counts are entries; all >= 1 but meters. Rounded up to whole chunks and powers of two. */
struct hf_segment_plan {
    uint32_t slots;
    uint32_t owners;
    uint32_t tenants;
    uint32_t rows;
    uint32_t names;
    uint32_t prices;
    uint32_t meters;
    uint64_t policy_bytes; /* of one compiled generation */
    uint64_t replay_horizon_ms;
    uint64_t late_horizon_ms;
    uint64_t max_lag_ms;
    uint64_t epoch;
    bool injected;
    uint64_t injected_ms;
    mode_t mode; /* 0660 by default */
    gid_t group; /* (gid_t)-1: the process's own */
    const char *store_name;
    const char *store_url; /* without secrets */
};

/* Mapping of a segment in this process; plain pointers, valid until hf_segment_detach(). Its bounds come
 * from the header as it was checked at attach and are kept here: the header is not believed twice. */
struct hf_segment {
    uint8_t *base;
    uint64_t size_bytes;
    struct hf_shm_header *header;
    struct hf_shm_owner *owners;
    struct hf_shm_tenant *tenants;
    struct hf_shm_row *rows;
    struct hf_shm_published *published;
    struct hf_shm_chunk *chunks;
    struct hf_shm_slot *slots;
    uint64_t *heads;
    struct hf_shm_name *names;
    struct hf_shm_price *prices;
    uint8_t *policies;
    struct hf_shm_meter *meters;
    struct hf_shm_batch *batches; /* two */
    uint32_t owners_cnt, tenants_cnt, rows_cnt, chunks_cnt, slots_cnt, heads_mask, names_max, prices_max,
        meters_cnt;
    uint32_t chunk_slots; /* 1 << chunk_shift */
    uint32_t chunk_shift;
    uint64_t policy_bytes;
    uint64_t hash_seed;
    uint64_t late_horizon_ms, replay_horizon_ms, max_lag_ms;
    bool injected;
    bool unpublished; /* made here, still under its temporary name */
    int lock_fd;      /* of the lock file, for hf_owner_*; -1 for an anonymous segment */
    dev_t dev;        /* of the mapped file, to notice a replaced one */
    ino_t ino;
    char path[256]; /* "" for an anonymous segment */
    char name[64];
};

/* Path of a segment's file: name itself when it holds a '/', else /dev/shm/holdfast.<name>. The lock file is
 * that + ".lock"; it is never removed. Names: 1..48 of [A-Za-z0-9._-], not starting with a dot. */
int hf_segment_path(const char *name, char path[256], struct hf_error *err);

/* Makes a segment under a temporary name, memory really allocated (posix_fallocate; checked against free
 * space before, so no SIGBUS later), header and regions laid out, state HF_SEGMENT_NEW, and maps it.
 * Nobody else sees it until hf_segment_publish(). Everything half-made is removed on failure.
 * HF_ENOSPACE names what is needed and what is there; HF_EFOREIGN, HF_EEXISTS, HF_ESYS, HF_EARG. */
int hf_segment_create(const char *name, const struct hf_segment_plan *plan, struct hf_segment *seg,
                      struct hf_error *err);

/* A private anonymous segment (MAP_SHARED | MAP_ANONYMOUS): tests, benches and `holdfast run --policy`.
 * Its owners live in the same process (and forked children); all are taken for alive. */
int hf_segment_create_anonymous(const struct hf_segment_plan *plan, struct hf_segment *seg,
                                struct hf_error *err);

/* Links the finished file into place. HF_EEXISTS when a segment stands there already, unless replace is
 * true: then it is replaced atomically (caller has proved that nobody live uses the old epoch). */
int hf_segment_publish(struct hf_segment *seg, bool replace, struct hf_error *err);

/* Staged attach: file there, regular, no link, owner and mode right (owner root or own uid or the group of
 * the segment; never writable by others), size, magic, version, fingerprint, boot id, regions within
 * bounds. Each stage has its own code and sentence. Does not require HF_SEGMENT_READY: see
 * hf_segment_state(). Does not join as an owner: see shm/owner.h. */
int hf_segment_attach(const char *name, struct hf_segment *seg, struct hf_error *err);

/* Unmaps; the file stays. */
void hf_segment_detach(struct hf_segment *seg);

/* Removes the file of a segment by name (not its lock file). */
int hf_segment_remove(const char *name, struct hf_error *err);

/* enum hf_segment_state as published, anything else read as HF_SEGMENT_NEW. */
uint32_t hf_segment_state(const struct hf_segment *seg);
/* E1 release: everything before is visible to who sees the state. */
void hf_segment_set_state(struct hf_segment *seg, uint32_t state);

/* True when the path still names the mapped file. One stat() call: at most once a second. */
bool hf_segment_in_place(const struct hf_segment *seg);

/* Boot id of this host as 16 bytes. */
void hf_segment_boot_id(uint8_t id[16]);

/* Bounds-checked access; NULL when the index cannot be. */
static inline struct hf_shm_slot *hf_segment_slot(const struct hf_segment *seg, uint32_t idx)
{
    return idx < seg->slots_cnt ? &seg->slots[idx] : NULL;
}
static inline struct hf_shm_tenant *hf_segment_tenant(const struct hf_segment *seg, uint32_t idx)
{
    return idx < seg->tenants_cnt ? &seg->tenants[idx] : NULL;
}
static inline struct hf_shm_row *hf_segment_row(const struct hf_segment *seg, uint32_t idx)
{
    return idx < seg->rows_cnt ? &seg->rows[idx] : NULL;
}

/* Bytes a plan needs in all. 0 when the plan is out of range. */
uint64_t hf_segment_plan_bytes(const struct hf_segment_plan *plan);

/* Adds n to an alarm counter. relaxed: a statistic, no other access depends on it. */
static inline void hf_alarm(const struct hf_segment *seg, enum hf_alarm alarm, uint64_t n)
{
    hf_add_rlx_u64(&seg->header->hdr_alarms[alarm], n);
}

#endif
