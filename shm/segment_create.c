/* Making a segment: shape, memory really allocated, header; then into place. */
#include "shm/clock.h"
#include "shm/processor.h"
#include "shm/segment_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define HF_SEGMENT_ROWS_MAX   (1U << 24)
#define HF_SEGMENT_OWNERS_MAX 65535U
#define HF_SEGMENT_MODE       0660

/* Slots of a chunk: small segments are cut finer, so that each process that may join finds a chunk; an idle one
 * keeps its own from the others. */
static uint32_t chunk_slots_for(uint32_t slots, uint32_t owners)
{
    uint32_t chunk = 4;
    uint32_t most = slots >= 4096 ? HF_SHM_CHUNK_SLOTS : slots >= 1024 ? 16 : 8;

    while (chunk < most && (uint64_t)chunk * 4U * owners <= slots)
        chunk *= 2U;
    return chunk;
}

static uint32_t power_of_two(uint32_t at_least)
{
    uint32_t value = 1;

    while (value < at_least)
        value *= 2U;
    return value;
}

bool hf_segment_shape(const struct hf_segment_plan *plan, struct hf_segment_shape *shape)
{
    uint64_t off = sizeof(struct hf_shm_header);

    memset(shape, 0, sizeof *shape);
    if (plan->slots == 0 || plan->slots > HF_SHM_SLOTS_MAX || plan->owners == 0 ||
        plan->owners > HF_SEGMENT_OWNERS_MAX || plan->tenants == 0 || plan->tenants > HF_SEGMENT_ROWS_MAX ||
        plan->rows == 0 || plan->rows > HF_SEGMENT_ROWS_MAX || plan->names == 0 ||
        plan->names > HF_SEGMENT_ROWS_MAX || plan->prices == 0 || plan->prices > HF_SEGMENT_ROWS_MAX ||
        plan->meters > HF_SEGMENT_ROWS_MAX || plan->policy_bytes == 0 || plan->policy_bytes > (1U << 31))
        return false;
    shape->chunk_slots = chunk_slots_for(plan->slots, plan->owners);
    uint32_t chunks = (plan->slots + shape->chunk_slots - 1U) / shape->chunk_slots;
    shape->slots_cnt =
        chunks * shape->chunk_slots; /* at most 2^24: a power of two is a multiple of a chunk */
    shape->heads_cnt = power_of_two(shape->slots_cnt);
    shape->policy_bytes = (plan->policy_bytes + 63U) & ~63ULL;

    const struct {
        uint32_t cnt;
        uint32_t stride;
    } entries[HF_REGION_CNT] = {
        [HF_REGION_OWNERS] = {plan->owners, sizeof(struct hf_shm_owner)},
        [HF_REGION_TENANTS] = {plan->tenants, sizeof(struct hf_shm_tenant)},
        [HF_REGION_ROWS] = {plan->rows, sizeof(struct hf_shm_row)},
        [HF_REGION_PUBLISHED] = {plan->rows, sizeof(struct hf_shm_published)},
        [HF_REGION_CHUNKS] = {chunks, sizeof(struct hf_shm_chunk)},
        [HF_REGION_SLOTS] = {shape->slots_cnt, sizeof(struct hf_shm_slot)},
        [HF_REGION_HEADS] = {shape->heads_cnt, sizeof(uint64_t)},
        [HF_REGION_NAMES] = {plan->names, sizeof(struct hf_shm_name)},
        [HF_REGION_PRICES] = {plan->prices, sizeof(struct hf_shm_price)},
        [HF_REGION_POLICIES] = {2, (uint32_t)shape->policy_bytes},
        [HF_REGION_METERS] = {plan->meters, sizeof(struct hf_shm_meter)},
        [HF_REGION_BATCHES] = {2, sizeof(struct hf_shm_batch)},
    };
    for (uint32_t i = 0; i < HF_REGION_CNT; i++) {
        off = (off + HF_SEGMENT_ALIGN - 1U) & ~(uint64_t)(HF_SEGMENT_ALIGN - 1U);
        shape->regions[i] = (struct hf_shm_region){
            .reg_off = off, .reg_cnt = entries[i].cnt, .reg_stride = entries[i].stride};
        off += (uint64_t)entries[i].cnt * entries[i].stride;
    }
    shape->size_bytes = (off + HF_SEGMENT_ALIGN - 1U) & ~(uint64_t)(HF_SEGMENT_ALIGN - 1U);
    return true;
}

uint64_t hf_segment_plan_bytes(const struct hf_segment_plan *plan)
{
    struct hf_segment_shape shape;

    return hf_segment_shape(plan, &shape) ? shape.size_bytes : 0;
}

static uint64_t wall_ms(void)
{
    struct timespec ts;

    if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
        return 0;
    return (uint64_t)ts.tv_sec * 1000U + (uint64_t)ts.tv_nsec / 1000000U;
}

void hf_segment_fill(uint8_t *base, const struct hf_segment_plan *plan, const struct hf_segment_shape *shape,
                     const char *name, uint64_t hash_seed, uint64_t lock_ino)
{
    struct hf_shm_header *header = (struct hf_shm_header *)(void *)base;
    uint64_t mono_ms = hf_clock_mono_fine_ms();
    uint64_t now_ms = wall_ms();

    /* plain: nobody else sees it before it is published. */
    header->hdr_magic = HF_SHM_MAGIC;
    header->hdr_version = HF_SHM_VERSION;
    header->hdr_header_bytes = sizeof *header;
    header->hdr_fingerprint = hf_layout_fingerprint();
    header->hdr_size_bytes = shape->size_bytes;
    header->hdr_epoch = plan->epoch;
    header->hdr_hash_seed = hash_seed;
    hf_segment_boot_id(header->hdr_boot_id);
    header->hdr_replay_horizon_ms = plan->replay_horizon_ms;
    header->hdr_late_horizon_ms = plan->late_horizon_ms;
    header->hdr_max_lag_ms = plan->max_lag_ms;
    header->hdr_injected = plan->injected ? 1 : 0;
    header->hdr_slots_cnt = shape->slots_cnt;
    header->hdr_chunk_slots = shape->chunk_slots;
    header->hdr_heads_mask = shape->heads_cnt - 1U;
    header->hdr_policy_bytes = shape->policy_bytes;
    header->hdr_created_ms = plan->injected ? plan->injected_ms : now_ms;
    header->hdr_state = HF_SEGMENT_NEW;
    header->hdr_heartbeat_ms = mono_ms;
    header->hdr_durable_ms = mono_ms; /* nothing has happened yet, so all of it is committed */
    /* For people: the elapsed scale starts as the host's wall time. */
    header->clk_elapsed_off_ms = now_ms > mono_ms ? now_ms - mono_ms : 0;
    header->clk_injected_ms = plan->injected_ms;
    header->hdr_lock_ino = lock_ino;
    memcpy(header->hdr_regions, shape->regions, sizeof shape->regions);
    (void)snprintf(header->hdr_segment_name, sizeof header->hdr_segment_name, "%s", name);
    if (plan->store_name != NULL)
        (void)snprintf(header->hdr_store_name, sizeof header->hdr_store_name, "%s", plan->store_name);
    if (plan->store_url != NULL)
        (void)snprintf(header->hdr_store_url, sizeof header->hdr_store_url, "%s", plan->store_url);

    struct hf_shm_chunk *chunks =
        (struct hf_shm_chunk *)(void *)(base + shape->regions[HF_REGION_CHUNKS].reg_off);
    for (uint32_t i = 0; i < shape->regions[HF_REGION_CHUNKS].reg_cnt; i++)
        chunks[i].chunk_free = ~0ULL >> (64U - shape->chunk_slots);
}

static int bad_plan(const struct hf_segment_plan *plan, struct hf_error *err)
{
    return hf_error_set(
        err, HF_EARG,
        "a segment of %u slots, %u owners, %u tenants, %u rows, %u names, %u prices and %llu bytes of "
        "policy cannot be made: slots are 1 to %u, owners 1 to %u, the others 1 to %u",
        plan->slots, plan->owners, plan->tenants, plan->rows, plan->names, plan->prices,
        (unsigned long long)plan->policy_bytes, HF_SHM_SLOTS_MAX, HF_SEGMENT_OWNERS_MAX, HF_SEGMENT_ROWS_MAX);
}

/* A seed that cannot be guessed, so that nobody chooses ids that share a chain; it names the temporary file too. */
static int random_seed(uint64_t *seed, struct hf_error *err)
{
    if (getrandom(seed, sizeof *seed, 0) == (ssize_t)sizeof *seed)
        return HF_OK;
    return hf_error_set(err, HF_ESYS, "the kernel gave no random bytes: %s", strerror(errno));
}

int hf_segment_create_anonymous(const struct hf_segment_plan *plan, struct hf_segment *seg,
                                struct hf_error *err)
{
    struct hf_segment_shape shape;
    uint64_t seed;

    *seg = (struct hf_segment){.lock_fd = -1};
    if (!hf_segment_shape(plan, &shape))
        return bad_plan(plan, err);
    int code = hf_processor_check(err);
    if (code == HF_OK)
        code = random_seed(&seed, err);
    if (code != HF_OK)
        return code;
    void *base = mmap(NULL, shape.size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return hf_error_set(err, HF_ENOSPACE, "no memory for a segment of %llu MiB: %s",
                            (unsigned long long)(shape.size_bytes >> 20), strerror(errno));
    seg->base = (uint8_t *)base;
    seg->size_bytes = shape.size_bytes;
    hf_segment_fill(seg->base, plan, &shape, "", seed, 0);
    hf_segment_bind(seg, (const struct hf_shm_header *)base);
    return HF_OK;
}

static unsigned long long mib_up(uint64_t bytes)
{
    return (unsigned long long)((bytes + (1U << 20) - 1U) >> 20);
}

/* Removes temporary files beside the path: their makers are dead, since we hold the maker's lock. */
static void remove_leftovers(const char *path)
{
    char folder[256];
    char prefix[256];
    const char *slash = strrchr(path, '/');
    const struct dirent *entry;
    DIR *dir;

    (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    (void)snprintf(prefix, sizeof prefix, "%s.new-", slash + 1);
    dir = opendir(folder);
    if (dir == NULL)
        return;
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
            strlen(entry->d_name) == strlen(prefix) + 16U)
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
    (void)closedir(dir);
}

/* Allocates all memory of the file, so that no store into it can fail later. */
static int allocate(int fd, const char *path, uint64_t bytes, struct hf_error *err)
{
    struct statvfs vfs;
    struct rlimit limit;
    int code;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes)
        return hf_error_set(
            err, HF_ENOSPACE,
            "the segment %s needs %llu MiB, and this process may make files of at most %llu MiB "
            "(ulimit -f); raise that limit or plan fewer slots",
            path, mib_up(bytes), (unsigned long long)limit.rlim_cur >> 20);
    /* A file system without a size of its own (tmpfs with size=0) says 0 blocks. */
    if (fstatvfs(fd, &vfs) == 0 && vfs.f_blocks != 0 && (uint64_t)vfs.f_bavail * vfs.f_frsize < bytes)
        return hf_error_set(
            err, HF_ENOSPACE,
            "the segment %s needs %llu MiB, and its file system has %llu MiB available; make room "
            "(containers: --shm-size), choose another path or plan fewer slots",
            path, mib_up(bytes), (unsigned long long)((uint64_t)vfs.f_bavail * vfs.f_frsize >> 20));
    do {
        code = posix_fallocate(fd, 0, (off_t)bytes);
    } while (code == EINTR);
    if (code == 0)
        return HF_OK;
    if (code == ENOSPC || code == EFBIG || code == ENOMEM) {
        uint64_t available = fstatvfs(fd, &vfs) == 0 ? (uint64_t)vfs.f_bavail * vfs.f_frsize : 0;

        return hf_error_set(
            err, HF_ENOSPACE,
            "the segment %s needs %llu MiB, and its file system ran out of room (%llu MiB were "
            "available); make room (containers: --shm-size), choose another path or plan fewer slots",
            path, mib_up(bytes), (unsigned long long)(available >> 20));
    }
    return hf_error_set(err, HF_ESYS, "cannot allocate the %llu MiB of the segment %s: %s", mib_up(bytes),
                        path, strerror(code));
}

/* Makes, allocates and maps the temporary file. */
static int make_file(struct hf_segment *seg, const char *temp, uint64_t bytes, mode_t mode, gid_t group,
                     struct hf_error *err)
{
    struct stat st = {0};
    int fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int code;

    if (fd < 0)
        return hf_error_set(
            err, errno == ENOSPC ? HF_ENOSPACE : HF_ESYS,
            "cannot make the segment's file %s: %s; check that its folder is there and writable", temp,
            strerror(errno));
    seg->unpublished = true;
    code = allocate(fd, seg->path, bytes, err);
    if (code == HF_OK && (hf_segment_set_mode(fd, mode, group) != 0 || fstat(fd, &st) != 0))
        code = hf_error_set(err, HF_ESYS, "cannot give the segment %s mode %04o and group %d: %s", seg->path,
                            (unsigned)mode, (int)group, strerror(errno));
    if (code == HF_OK) {
        void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (base == MAP_FAILED) {
            code = hf_error_set(err, HF_ESYS, "cannot map the %llu MiB of the segment %s: %s", mib_up(bytes),
                                seg->path, strerror(errno));
        } else {
            seg->base = (uint8_t *)base;
            seg->size_bytes = bytes;
            seg->dev = st.st_dev;
            seg->ino = st.st_ino;
        }
    }
    (void)close(fd);
    return code;
}

/* The lock file, and the maker's byte in it. */
static int become_maker(struct hf_segment *seg, mode_t mode, gid_t group, uint64_t *lock_ino,
                        struct hf_error *err)
{
    int code;

    seg->lock_fd = hf_segment_make_lock(seg, mode, group, lock_ino, err);
    if (seg->lock_fd < 0)
        return err != NULL ? (int)err->code : HF_ESYS;
    code = hf_segment_lock_byte(seg->lock_fd, HF_SEGMENT_LOCK_BYTE);
    if (code == HF_EBUSY)
        return hf_error_set(err, HF_EEXISTS,
                            "another process is making the segment %s right now; wait for it or stop it",
                            seg->path);
    if (code != HF_OK)
        return hf_error_set(err, HF_ESYS, "cannot lock %s.lock: %s", seg->path, strerror(errno));
    return HF_OK;
}

/* Somebody else's file is never replaced, however it came to that name: a mistyped one, say. An empty one may be anybody's, and
 * holds nothing; one that cannot be read is told by who attaches. */
static int check_content(const char *path, struct hf_error *err)
{
    static const uint64_t magic = HF_SHM_MAGIC;
    char bytes[sizeof magic];
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t cnt = fd >= 0 ? pread(fd, bytes, sizeof bytes, 0) : 0;

    if (fd >= 0)
        (void)close(fd);
    if (cnt <= 0 || memcmp(bytes, &magic, (size_t)cnt) == 0)
        return HF_OK;
    return hf_error_set(
        err, HF_EFOREIGN,
        "%s is no segment of holdfast, and is not replaced by one: is that the right name? Remove it if "
        "nobody needs it, and start the daemon",
        path);
}

int hf_segment_create(const char *name, const struct hf_segment_plan *plan, struct hf_segment *seg,
                      struct hf_error *err)
{
    struct hf_error local = {.code = HF_OK};
    struct hf_segment_shape shape;
    struct stat st;
    mode_t mode = plan->mode != 0 ? plan->mode : HF_SEGMENT_MODE;
    uint64_t lock_ino = 0;
    uint64_t seed;
    char temp[320];
    int code;

    *seg = (struct hf_segment){.lock_fd = -1};
    if (err == NULL)
        err = &local;
    if (!hf_segment_shape(plan, &shape))
        return bad_plan(plan, err);
    if ((mode & ~(mode_t)0777) != 0 || (mode & S_IWOTH) != 0 || (mode & 0600) != 0600)
        return hf_error_set(
            err, HF_EARG,
            "mode %04o is none for a segment: its owner reads and writes it, everybody does not "
            "write it; 0660 and 0600 are usual",
            (unsigned)mode);
    code = hf_processor_check(err);
    if (code == HF_OK)
        code = hf_segment_path(name, seg->path, err);
    if (code != HF_OK)
        return code;
    code = random_seed(&seed, err);
    if (code != HF_OK)
        return code;
    seg->hash_seed = seed;
    (void)snprintf(seg->name, sizeof seg->name, "%s", hf_segment_base_name(seg->path));
    /* What stands at the path now will be replaced at most by who may have made it. */
    if (lstat(seg->path, &st) == 0)
        code = hf_segment_check_file(seg->path, &st, "segment", err);
    if (code == HF_OK)
        code = check_content(seg->path, err);
    if (code == HF_OK)
        code = become_maker(seg, mode, plan->group, &lock_ino, err);
    if (code == HF_OK) {
        remove_leftovers(seg->path);
        hf_segment_temp_path(seg, temp);
        code = make_file(seg, temp, shape.size_bytes, mode, plan->group, err);
    }
    if (code == HF_OK) {
        hf_segment_fill(seg->base, plan, &shape, seg->name, seed, lock_ino);
        hf_segment_bind(seg, (const struct hf_shm_header *)(const void *)seg->base);
        return HF_OK;
    }
    hf_segment_detach(seg);
    return code;
}

int hf_segment_publish(struct hf_segment *seg, bool replace, struct hf_error *err)
{
    char temp[320];
    int failed;

    if (!seg->unpublished)
        return hf_error_set(err, HF_EARG, "the segment %s is in its place already",
                            seg->path[0] != 0 ? seg->path : "(private)");
    hf_segment_temp_path(seg, temp);
    if (replace)
        failed = rename(temp, seg->path);
    else
        failed = renameat2(AT_FDCWD, temp, AT_FDCWD, seg->path, RENAME_NOREPLACE);
    if (failed != 0 && !replace && (errno == EINVAL || errno == ENOSYS)) {
        /* A file system without RENAME_NOREPLACE. CRASH between the two: two names, which the next maker undoes. */
        failed = link(temp, seg->path);
        if (failed == 0)
            (void)unlink(temp);
    }
    if (failed != 0 && errno == EEXIST)
        return hf_error_set(err, HF_EEXISTS,
                            "a segment stands at %s already; attach to it, or stop its users and replace it",
                            seg->path);
    if (failed != 0)
        return hf_error_set(err, HF_ESYS, "cannot put the segment in place at %s: %s", seg->path,
                            strerror(errno));
    seg->unpublished = false;
    hf_segment_unlock_byte(seg->lock_fd, HF_SEGMENT_LOCK_BYTE);
    return HF_OK;
}
