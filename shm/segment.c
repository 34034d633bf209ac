#include "shm/segment.h"

#include "shm/segment_impl.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HF_SEGMENT_FOLDER   "/dev/shm/"
#define HF_SEGMENT_PREFIX   "holdfast."
#define HF_SEGMENT_NAME_MAX 48U
#define HF_SEGMENT_PATH_MAX 200U /* room for ".lock" and the temporary suffix */

static bool right_name(const char *name)
{
    size_t cnt = strlen(name);

    if (cnt == 0 || cnt > HF_SEGMENT_NAME_MAX || name[0] == '.')
        return false;
    for (size_t i = 0; i < cnt; i++) {
        unsigned char c = (unsigned char)name[i];

        if (c >= 0x80U || (!isalnum(c) && c != '.' && c != '_' && c != '-'))
            return false;
    }
    return true;
}

const char *hf_segment_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    size_t prefix = sizeof HF_SEGMENT_PREFIX - 1U;

    if (strncmp(base, HF_SEGMENT_PREFIX, prefix) == 0 && base[prefix] != 0)
        base += prefix;
    return base;
}

int hf_segment_path(const char *name, char path[256], struct hf_error *err)
{
    if (name == NULL)
        return hf_error_set(err, HF_EARG, "no segment was named; name one");
    if (strchr(name, '/') == NULL) {
        if (!right_name(name))
            return hf_error_set(
                err, HF_EARG,
                "'%.64s' cannot name a segment: use 1 to %u of A-Z a-z 0-9 . _ -, not starting with "
                "a dot, or a path with a '/'",
                name, HF_SEGMENT_NAME_MAX);
        (void)snprintf(path, 256, "%s%s%s", HF_SEGMENT_FOLDER, HF_SEGMENT_PREFIX, name);
        return HF_OK;
    }
    if (strlen(name) > HF_SEGMENT_PATH_MAX)
        return hf_error_set(err, HF_EARG,
                            "the path of the segment is longer than %u bytes; use a shorter one",
                            HF_SEGMENT_PATH_MAX);
    if (!right_name(hf_segment_base_name(name)))
        return hf_error_set(
            err, HF_EARG,
            "'%.200s' cannot be the path of a segment: its last part must be 1 to %u of A-Z a-z 0-9 "
            ". _ -, not starting with a dot",
            name, HF_SEGMENT_NAME_MAX);
    (void)snprintf(path, 256, "%s", name);
    return HF_OK;
}

void hf_segment_temp_path(const struct hf_segment *seg, char path[320])
{
    (void)snprintf(path, 320, "%s.new-%016llx", seg->path, (unsigned long long)seg->hash_seed);
}

void hf_segment_bind(struct hf_segment *seg, const struct hf_shm_header *header)
{
    const struct hf_shm_region *regions = header->hdr_regions;
    uint8_t *base = seg->base;

    seg->header = (struct hf_shm_header *)(void *)base;
    seg->owners = (struct hf_shm_owner *)(void *)(base + regions[HF_REGION_OWNERS].reg_off);
    seg->tenants = (struct hf_shm_tenant *)(void *)(base + regions[HF_REGION_TENANTS].reg_off);
    seg->rows = (struct hf_shm_row *)(void *)(base + regions[HF_REGION_ROWS].reg_off);
    seg->published = (struct hf_shm_published *)(void *)(base + regions[HF_REGION_PUBLISHED].reg_off);
    seg->chunks = (struct hf_shm_chunk *)(void *)(base + regions[HF_REGION_CHUNKS].reg_off);
    seg->slots = (struct hf_shm_slot *)(void *)(base + regions[HF_REGION_SLOTS].reg_off);
    seg->heads = (uint64_t *)(void *)(base + regions[HF_REGION_HEADS].reg_off);
    seg->names = (struct hf_shm_name *)(void *)(base + regions[HF_REGION_NAMES].reg_off);
    seg->prices = (struct hf_shm_price *)(void *)(base + regions[HF_REGION_PRICES].reg_off);
    seg->policies = base + regions[HF_REGION_POLICIES].reg_off;
    seg->meters = (struct hf_shm_meter *)(void *)(base + regions[HF_REGION_METERS].reg_off);
    seg->batches = (struct hf_shm_batch *)(void *)(base + regions[HF_REGION_BATCHES].reg_off);
    seg->owners_cnt = regions[HF_REGION_OWNERS].reg_cnt;
    seg->tenants_cnt = regions[HF_REGION_TENANTS].reg_cnt;
    seg->rows_cnt = regions[HF_REGION_ROWS].reg_cnt;
    seg->chunks_cnt = regions[HF_REGION_CHUNKS].reg_cnt;
    seg->slots_cnt = regions[HF_REGION_SLOTS].reg_cnt;
    seg->heads_mask = header->hdr_heads_mask;
    seg->names_max = regions[HF_REGION_NAMES].reg_cnt;
    seg->prices_max = regions[HF_REGION_PRICES].reg_cnt;
    seg->meters_cnt = regions[HF_REGION_METERS].reg_cnt;
    seg->chunk_slots = header->hdr_chunk_slots;
    seg->chunk_shift = (uint32_t)__builtin_ctz(header->hdr_chunk_slots);
    seg->policy_bytes = header->hdr_policy_bytes;
    seg->hash_seed = header->hdr_hash_seed;
    seg->late_horizon_ms = header->hdr_late_horizon_ms;
    seg->replay_horizon_ms = header->hdr_replay_horizon_ms;
    seg->max_lag_ms = header->hdr_max_lag_ms;
    seg->injected = header->hdr_injected != 0;
}

void hf_segment_detach(struct hf_segment *seg)
{
    if (seg->unpublished) {
        char temp[320];

        hf_segment_temp_path(seg, temp);
        (void)unlink(temp);
        hf_segment_unlock_byte(seg->lock_fd, HF_SEGMENT_LOCK_BYTE);
    }
    if (seg->base != NULL)
        (void)munmap(seg->base, seg->size_bytes);
    if (seg->lock_fd >= 0)
        (void)close(seg->lock_fd);
    *seg = (struct hf_segment){.lock_fd = -1};
}

int hf_segment_remove(const char *name, struct hf_error *err)
{
    char path[256];
    int code = hf_segment_path(name, path, err);

    if (code != HF_OK)
        return code;
    if (unlink(path) == 0)
        return HF_OK;
    if (errno == ENOENT)
        return hf_error_set(err, HF_EMISSING, "there is no segment at %s", path);
    return hf_error_set(err, HF_ESYS, "cannot remove the segment %s: %s", path, strerror(errno));
}

uint32_t hf_segment_state(const struct hf_segment *seg)
{
    uint32_t state = hf_load_acq_u32(&seg->header->hdr_state); /* E1 acquire -> hf_segment_set_state */

    return state <= HF_SEGMENT_CLOSED ? state : HF_SEGMENT_NEW;
}

void hf_segment_set_state(struct hf_segment *seg, uint32_t state)
{
    hf_store_rel_u32(&seg->header->hdr_state,
                     state); /* E1 release -> hf_segment_state: all before is complete */
}

bool hf_segment_in_place(const struct hf_segment *seg)
{
    struct stat st;

    if (seg->path[0] == 0)
        return true;
    return lstat(seg->path, &st) == 0 && st.st_dev == seg->dev && st.st_ino == seg->ino;
}

void hf_segment_boot_id(uint8_t id[16])
{
    char text[64] = {0};
    uint32_t nibbles = 0;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    memset(id, 0, 16);
    if (fd < 0)
        return;
    ssize_t cnt = read(fd, text, sizeof text - 1U);
    (void)close(fd);
    for (ssize_t i = 0; i < cnt && nibbles < 32; i++) {
        char c = text[i];
        uint8_t value;

        if (c >= '0' && c <= '9')
            value = (uint8_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = (uint8_t)(c - 'a' + 10);
        else
            continue;
        id[nibbles / 2] = (uint8_t)(id[nibbles / 2] << 4 | value);
        nibbles++;
    }
}
