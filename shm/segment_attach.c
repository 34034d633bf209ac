/* Attaching: each stage says what it found. */
#include "shm/processor.h"
#include "shm/segment_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Magic, version, fingerprint. */
static int check_build(const char *path, const struct hf_shm_header *header, struct hf_error *err)
{
    uint64_t ours = hf_layout_fingerprint();

    if (header->hdr_magic != HF_SHM_MAGIC)
        return hf_error_set(
            err, HF_EBUILD,
            "%s is no segment of holdfast (it starts with %016llx, not %016llx); remove it if nobody "
            "needs it, and start the daemon",
            path, (unsigned long long)header->hdr_magic, (unsigned long long)HF_SHM_MAGIC);
    if (header->hdr_version != HF_SHM_VERSION)
        return hf_error_set(
            err, HF_EBUILD,
            "the segment %s has version %u and this program knows version %u; run the same release of "
            "the daemon and its workers",
            path, header->hdr_version, HF_SHM_VERSION);
    if (header->hdr_fingerprint != ours || header->hdr_header_bytes != sizeof *header)
        return hf_error_set(
            err, HF_EBUILD,
            "the segment %s was made by another build: its layout is %016llx, that of this program "
            "%016llx; run the same build of the daemon and its workers",
            path, (unsigned long long)header->hdr_fingerprint, (unsigned long long)ours);
    return HF_OK;
}

static int check_boot(const char *path, const struct hf_shm_header *header, struct hf_error *err)
{
    static const uint8_t none[16];
    uint8_t boot[16];

    hf_segment_boot_id(boot);
    if (memcmp(boot, header->hdr_boot_id, sizeof boot) == 0 || memcmp(boot, none, sizeof boot) == 0 ||
        memcmp(header->hdr_boot_id, none, sizeof boot) == 0)
        return HF_OK;
    return hf_error_set(
        err, HF_ENOTREADY,
        "the segment %s is from before this host was started; start the daemon, which makes it again "
        "from the store",
        path);
}

static int damaged(const char *path, const char *what, uint64_t value, struct hf_error *err)
{
    return hf_error_set(
        err, HF_ECORRUPT,
        "the segment %s is damaged: its %s cannot be %llu; stop its users, remove it and start the "
        "daemon, which makes it again from the store",
        path, what, (unsigned long long)value);
}

static uint32_t stride_of(enum hf_region region, uint64_t policy_bytes)
{
    switch (region) {
    case HF_REGION_OWNERS:
        return sizeof(struct hf_shm_owner);
    case HF_REGION_TENANTS:
        return sizeof(struct hf_shm_tenant);
    case HF_REGION_ROWS:
        return sizeof(struct hf_shm_row);
    case HF_REGION_PUBLISHED:
        return sizeof(struct hf_shm_published);
    case HF_REGION_CHUNKS:
        return sizeof(struct hf_shm_chunk);
    case HF_REGION_SLOTS:
        return sizeof(struct hf_shm_slot);
    case HF_REGION_HEADS:
        return sizeof(uint64_t);
    case HF_REGION_NAMES:
        return sizeof(struct hf_shm_name);
    case HF_REGION_PRICES:
        return sizeof(struct hf_shm_price);
    case HF_REGION_POLICIES:
        return (uint32_t)policy_bytes;
    case HF_REGION_METERS:
        return sizeof(struct hf_shm_meter);
    case HF_REGION_BATCHES:
        return sizeof(struct hf_shm_batch);
    case HF_REGION_CNT:
        break;
    }
    return 0;
}

/* Counts that belong together. */
static int check_counts(const char *path, const struct hf_shm_header *header, struct hf_error *err)
{
    const struct hf_shm_region *regions = header->hdr_regions;
    uint32_t chunk = header->hdr_chunk_slots;
    uint32_t slots = regions[HF_REGION_SLOTS].reg_cnt;

    if (chunk == 0 || chunk > HF_SHM_CHUNK_SLOTS || (chunk & (chunk - 1U)) != 0)
        return damaged(path, "number of slots in a chunk", chunk, err);
    if (slots == 0 || slots > HF_SHM_SLOTS_MAX || slots != header->hdr_slots_cnt ||
        (uint64_t)regions[HF_REGION_CHUNKS].reg_cnt * chunk != slots)
        return damaged(path, "number of slots", slots, err);
    if (header->hdr_heads_mask == UINT32_MAX ||
        (header->hdr_heads_mask & (header->hdr_heads_mask + 1U)) != 0 ||
        regions[HF_REGION_HEADS].reg_cnt != header->hdr_heads_mask + 1U)
        return damaged(path, "mask of index heads", header->hdr_heads_mask, err);
    if (regions[HF_REGION_OWNERS].reg_cnt == 0 || regions[HF_REGION_OWNERS].reg_cnt > UINT16_MAX)
        return damaged(path, "number of owners", regions[HF_REGION_OWNERS].reg_cnt, err);
    if (regions[HF_REGION_TENANTS].reg_cnt == 0)
        return damaged(path, "number of tenants", 0, err);
    if (regions[HF_REGION_ROWS].reg_cnt == 0 ||
        regions[HF_REGION_ROWS].reg_cnt != regions[HF_REGION_PUBLISHED].reg_cnt)
        return damaged(path, "number of rows", regions[HF_REGION_ROWS].reg_cnt, err);
    if (regions[HF_REGION_NAMES].reg_cnt == 0)
        return damaged(path, "number of names", 0, err);
    if (regions[HF_REGION_PRICES].reg_cnt == 0)
        return damaged(path, "number of prices", 0, err);
    if (header->hdr_policy_bytes == 0 || header->hdr_policy_bytes > UINT32_MAX ||
        regions[HF_REGION_POLICIES].reg_cnt != 2)
        return damaged(path, "room for policies", header->hdr_policy_bytes, err);
    if (regions[HF_REGION_BATCHES].reg_cnt != 2)
        return damaged(path, "number of batches", regions[HF_REGION_BATCHES].reg_cnt, err);
    return HF_OK;
}

/* Each region within the file, aligned, behind the one before it, with the stride of its record. */
static int check_regions(const char *path, const struct hf_shm_header *header, struct hf_error *err)
{
    uint64_t end = sizeof *header;

    for (uint32_t i = 0; i < HF_REGION_CNT; i++) {
        const struct hf_shm_region *region = &header->hdr_regions[i];

        if (region->reg_off < end || region->reg_off > header->hdr_size_bytes ||
            region->reg_off % HF_SEGMENT_ALIGN != 0)
            return damaged(path, "offset of a region", region->reg_off, err);
        if (region->reg_stride != stride_of((enum hf_region)i, header->hdr_policy_bytes))
            return damaged(path, "size of a record", region->reg_stride, err);
        end = region->reg_off + (uint64_t)region->reg_cnt * region->reg_stride;
        if (end > header->hdr_size_bytes)
            return damaged(path, "end of a region", end, err);
    }
    return HF_OK;
}

/* Reads and checks the header before anything is mapped: what is believed later is this copy. */
static int read_header(int fd, const char *path, const struct stat *st, struct hf_shm_header *header,
                       struct hf_error *err)
{
    ssize_t cnt = pread(fd, header, sizeof *header, 0);
    int code;

    if (cnt < 0)
        return hf_error_set(err, HF_ESYS, "cannot read the segment %s: %s", path, strerror(errno));
    if (cnt != (ssize_t)sizeof *header)
        return hf_error_set(
            err, HF_ECORRUPT,
            "%s has %lld bytes, less than the header of a segment: is that the right name? If it was one, stop its users, "
            "remove it and start the daemon",
            path, (long long)cnt);
    code = check_build(path, header, err);
    if (code != HF_OK)
        return code;
    if (header->hdr_size_bytes > (uint64_t)st->st_size || header->hdr_size_bytes < sizeof *header ||
        header->hdr_size_bytes > (uint64_t)INT64_MAX)
        return hf_error_set(
            err, HF_ECORRUPT,
            "the segment %s has %lld bytes and says that it has %llu: it was cut; stop its users, "
            "remove it and start the daemon",
            path, (long long)st->st_size, (unsigned long long)header->hdr_size_bytes);
    code = check_boot(path, header, err);
    if (code == HF_OK)
        code = check_counts(path, header, err);
    if (code == HF_OK)
        code = check_regions(path, header, err);
    return code;
}

int hf_segment_attach(const char *name, struct hf_segment *seg, struct hf_error *err)
{
    struct hf_error local = {.code = HF_OK};
    struct hf_shm_header header;
    struct stat st;
    int code;
    int fd;

    *seg = (struct hf_segment){.lock_fd = -1};
    if (err == NULL)
        err = &local;
    code = hf_processor_check(err);
    if (code == HF_OK)
        code = hf_segment_path(name, seg->path, err);
    if (code != HF_OK)
        return code;
    (void)snprintf(seg->name, sizeof seg->name, "%s", hf_segment_base_name(seg->path));
    fd = hf_segment_open_file(seg->path, "segment", &st, err);
    if (fd < 0)
        return (int)err->code;
    code = read_header(fd, seg->path, &st, &header, err);
    if (code == HF_OK) {
        seg->lock_fd = hf_segment_open_lock(seg, header.hdr_lock_ino, err);
        if (seg->lock_fd < 0)
            code = (int)err->code;
    }
    if (code == HF_OK) {
        void *base = mmap(NULL, header.hdr_size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (base == MAP_FAILED) {
            code = hf_error_set(err, HF_ESYS, "cannot map the segment %s: %s", seg->path, strerror(errno));
        } else {
            seg->base = (uint8_t *)base;
            seg->size_bytes = header.hdr_size_bytes;
            seg->dev = st.st_dev;
            seg->ino = st.st_ino;
            hf_segment_bind(seg, &header);
        }
    }
    (void)close(fd);
    if (code != HF_OK)
        hf_segment_detach(seg);
    return code;
}
