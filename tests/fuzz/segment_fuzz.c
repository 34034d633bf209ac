/* Any bytes are a list of damages to a small valid segment, and of calls: what the list damages before its first call is in
 * the file that is attached to, the rest happens between calls. Either the segment is refused with a code and a sentence, or
 * every region lies within the file, and every call ends with an answer that is one.
 *
 * An instruction is a byte. Below 64: damage of region (byte % 13), its offset in the next three bytes, what is put there in
 * the next eight, their number by (byte / 13). From 64 on: a call, with the next byte as its argument. */
#include "fuzz.h"

#include "core/client.h"
#include "core/policy.h"
#include "core/policy_compile.h"
#include "persist/retire.h"
#include "persist/snapshot.h"
#include "shm/clock.h"
#include "shm/commit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CALLS_MAX   60
#define HEADER_END  HF_REGION_CNT
#define BATCH_BYTES 4096U /* of the first batch: the rest is more of the same */

static const char policy_text[] =
    "version: 1\n"
    "currency: EUR\n"
    "prices:\n"
    "  revision: '1'\n"
    "  models:\n"
    "    - {id: m, input_micros_per_mtok: 1000000, output_micros_per_mtok: 2000000, max_output_tokens: 100}\n"
    "    - {id: mini, input_micros_per_mtok: 500000, output_micros_per_mtok: 1000000}\n"
    "tenants:\n"
    "  - id: t\n"
    "    limits: [{window: month, cost_micros: 5000}]\n"
    "    teams:\n"
    "      - id: u\n"
    "        limits: [{window: minute, tokens: 900, invocations: 60}, {window: month, cost_micros: 3000}]\n"
    "        capabilities: [{id: c, cap_micros: 1000, cap_tokens: 2000}]\n"
    "        keys: [{id: k, limits: [{window: day, invocations: 5}]}]\n"
    "      - {id: v, on_limit: degrade, overdraft_micros: 9, on_expiry: retain, on_overage: fail,\n"
    "         limits: [{window: month, cost_micros: 300}], capabilities: [{id: c, cap_micros: 1000, cap_tokens: 2000}]}\n";

/* The segment as it is when nothing is damaged, and the file that each input damages. */
static struct {
    char path[64];
    uint64_t bytes;
    uint64_t damaged_bytes; /* what can be damaged lies before */
    uint8_t *image;
    uint8_t *file;       /* mapped */
    uint64_t *word_seqs; /* the daemon's, of hf_commit_detach() */
} world;

/* ---- the valid segment --------------------------------------------------------------------------------------------- */

/* An answer that is one: a code of the interface, and with a refusal its reason. */
static void require_answer(int rc, int reason)
{
    FUZZ_REQUIRE(rc <= HOLDFAST_CONFLICT && rc > -100);
    FUZZ_REQUIRE(rc != HOLDFAST_REFUSED || (reason >= 0 && reason < HOLDFAST_REASON_CNT));
}

static void reserve(struct holdfast *handle, const char *id, const char *team, const char *key,
                    uint32_t number)
{
    struct holdfast_request request;
    struct holdfast_answer answer;

    holdfast_request_init(&request);
    request.id = id;
    request.tenant = "t";
    request.team = team;
    request.key = key;
    request.capability = "c";
    if (number % 2 == 0) {
        request.model = "m";
        request.input_tokens = number % 50;
        request.economy_model = number % 3 == 0 ? "mini" : NULL;
    } else {
        request.tokens = number;
        request.cost_micros = number * 3U;
        request.economy_cost_micros = number % 3 == 0 ? number : HOLDFAST_UNKNOWN;
    }
    request.ttl_ms = number % 5 == 0 ? number + 1U : HOLDFAST_UNKNOWN;
    request.want_remaining = 1;
    int rc = holdfast_reserve(handle, &request, &answer);

    require_answer(rc, answer.reason);
    FUZZ_REQUIRE(rc < 0 || (answer.kind >= HOLDFAST_REJECT && answer.kind <= HOLDFAST_QUEUE));
}

static void settle(struct holdfast *handle, const char *id, uint32_t number)
{
    struct holdfast_usage usage;
    struct holdfast_closing closing;

    holdfast_usage_init(&usage, number, number / 3);
    usage.cost_micros = number % 4 == 0 ? number * 5U : HOLDFAST_UNKNOWN;
    int rc = holdfast_settle(handle, id, 0, number % 7 == 0 ? NULL : &usage, (int)(number % 2),
                             number % 3 == 0 ? "ref" : NULL, &closing);

    require_answer(rc, closing.reason);
}

/* Holds, closings, an expiry and a credit, as a segment in use has them. */
static void use(struct hf_segment *seg)
{
    struct holdfast_segment *segment = NULL;
    struct holdfast *handle = NULL;
    struct holdfast_closing closing;
    struct hf_segment map = *seg;
    uint64_t total;
    int reason;

    FUZZ_REQUIRE(hf_client_wrap(&map, &segment) == HOLDFAST_OK &&
                 holdfast_join(segment, &handle) == HOLDFAST_OK);
    reserve(handle, "a", "u", "k", 11);
    reserve(handle, "b", "u", NULL, 20);
    reserve(handle, "c", "v", NULL, 15);
    reserve(handle, "d", "v", NULL, 10);
    settle(handle, "b", 21);
    FUZZ_REQUIRE(holdfast_release(handle, "c", 0, &closing) == HOLDFAST_OK);
    FUZZ_REQUIRE(holdfast_credit(handle, "t", "u", HOLDFAST_WINDOW_MONTH, 50, "more", "me", &total,
                                 &reason) == HOLDFAST_OK);
    holdfast_leave(handle);
    segment->map = (struct hf_segment){.lock_fd = -1}; /* the mapping is the caller's */
    holdfast_close(segment);
}

static void make_segment(void)
{
    static const uint8_t digest[32];
    struct hf_segment_plan plan = {.slots = 12,
                                   .owners = 3,
                                   .replay_horizon_ms = 50,
                                   .late_horizon_ms = 100,
                                   .max_lag_ms = UINT64_MAX / 2,
                                   .epoch = 1,
                                   .injected = true,
                                   .injected_ms = UINT64_C(1790000000000),
                                   .mode = 0600,
                                   .group = (gid_t)-1,
                                   .store_name = "fuzz",
                                   .store_url = ""};
    struct hf_policy_report report = {0};
    struct hf_policy *policy = NULL;
    struct hf_segment seg;

    FUZZ_REQUIRE(hf_policy_load_bytes("fuzz", policy_text, strlen(policy_text), 0, &policy, &report) ==
                 HF_POLICY_LOADED);
    FUZZ_REQUIRE(hf_policy_plan(policy, &plan, NULL) == HF_OK);
    plan.meters = 4;
    FUZZ_REQUIRE(hf_segment_create(world.path, &plan, &seg, NULL) == HF_OK);
    FUZZ_REQUIRE(hf_policy_compile(policy, digest, 1, &seg, NULL) == HF_OK);
    hf_policy_free(policy);
    hf_policy_report_free(&report);
    hf_segment_set_state(&seg, HF_SEGMENT_READY);
    FUZZ_REQUIRE(hf_segment_publish(&seg, false, NULL) == HF_OK);
    use(&seg);
    world.bytes = seg.size_bytes;
    world.damaged_bytes = (uint64_t)((uint8_t *)seg.batches - seg.base) + BATCH_BYTES;
    world.image = malloc(world.bytes);
    FUZZ_REQUIRE(world.image != NULL);
    memcpy(world.image, seg.base, world.bytes);
    hf_segment_detach(&seg);
}

static void remove_world(void)
{
    char lock[96];

    (void)snprintf(lock, sizeof lock, "%s.lock", world.path);
    (void)unlink(world.path);
    (void)unlink(lock);
}

static void make_world(void)
{
    (void)snprintf(world.path, sizeof world.path, "/dev/shm/holdfast.fuzz-%d", (int)getpid());
    remove_world();
    make_segment();
    (void)atexit(remove_world);
    int fd = open(world.path, O_RDWR | O_CLOEXEC);

    FUZZ_REQUIRE(fd >= 0);
    world.file = mmap(NULL, world.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    FUZZ_REQUIRE(world.file != MAP_FAILED && close(fd) == 0);
}

/* ---- what was attached to ------------------------------------------------------------------------------------------- */

/* The regions, each in a block of exactly its size, so that a memory checker sees an access that leaves it. */
struct blocks {
    void *blocks[HF_REGION_CNT + 1];
    uint64_t bytes[HF_REGION_CNT + 1];
};

static void *block_of(struct blocks *blocks, uint32_t region, const void *from, uint64_t bytes,
                      const struct hf_segment *seg)
{
    void *to = NULL;

    FUZZ_REQUIRE((const uint8_t *)from >= seg->base && bytes <= seg->size_bytes &&
                 (uint64_t)((const uint8_t *)from - seg->base) <= seg->size_bytes - bytes);
    FUZZ_REQUIRE(posix_memalign(&to, 64, bytes + (bytes == 0)) == 0);
    memcpy(to, from, bytes);
    blocks->blocks[region] = to;
    blocks->bytes[region] = bytes;
    return to;
}

static struct hf_segment in_blocks(const struct hf_segment *seg, struct blocks *blocks)
{
    struct hf_segment out = *seg;

#define BLOCK(region, field, cnt) \
    out.field = block_of(blocks, region, seg->field, (uint64_t)(cnt) * sizeof(*seg->field), seg)
    BLOCK(HF_REGION_CNT, header, 1);
    BLOCK(HF_REGION_OWNERS, owners, seg->owners_cnt);
    BLOCK(HF_REGION_TENANTS, tenants, seg->tenants_cnt);
    BLOCK(HF_REGION_ROWS, rows, seg->rows_cnt);
    BLOCK(HF_REGION_PUBLISHED, published, seg->rows_cnt);
    BLOCK(HF_REGION_CHUNKS, chunks, seg->chunks_cnt);
    BLOCK(HF_REGION_SLOTS, slots, seg->slots_cnt);
    BLOCK(HF_REGION_HEADS, heads, seg->heads_mask + 1ULL);
    BLOCK(HF_REGION_NAMES, names, seg->names_max);
    BLOCK(HF_REGION_PRICES, prices, seg->prices_max);
    BLOCK(HF_REGION_POLICIES, policies, 2 * seg->policy_bytes);
    BLOCK(HF_REGION_METERS, meters, seg->meters_cnt);
    /* The batches, most of the file, stay where they are: no call of a worker looks at them. */
#undef BLOCK
    return out;
}

/* ---- instructions ---------------------------------------------------------------------------------------------------- */

struct input {
    const uint8_t *bytes;
    size_t left;
};

static uint64_t take(struct input *in, uint32_t cnt)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < cnt && in->left > 0; i++, in->left--) {
        value |= (uint64_t)*in->bytes++ << (8U * i);
    }
    return value;
}

/* Damages a region that starts at `to`. */
static void damage(struct input *in, uint8_t code, uint8_t *to, uint64_t bytes)
{
    static const uint32_t widths[] = {8, 4, 1, 8, 8};
    uint64_t off = take(in, 3);
    uint64_t value = take(in, 8);
    uint32_t width = widths[code / 13U % 5U];

    if (bytes >= width) {
        off = off % (bytes - width + 1U) / width * width;
        memcpy(to + off, &value, width);
    }
}

static void damage_file(struct input *in, uint8_t code)
{
    const struct hf_shm_header *header = (const struct hf_shm_header *)(const void *)world.image;
    uint32_t region = code % 13U;

    if (region == HEADER_END) {
        damage(in, code, world.file, sizeof *header);
        return;
    }
    const struct hf_shm_region *at = &header->hdr_regions[region];
    uint64_t bytes = (uint64_t)at->reg_cnt * at->reg_stride;

    if (region == HF_REGION_BATCHES) {
        bytes = BATCH_BYTES;
    } else if (region == HF_REGION_POLICIES) {
        damage(in, code, world.file + at->reg_off + at->reg_stride,
               at->reg_stride); /* the generation in force */
        return;
    }
    damage(in, code, world.file + at->reg_off, bytes);
}

static void damage_block(struct input *in, uint8_t code, struct blocks *blocks)
{
    uint32_t region = code % 13U;
    uint8_t *to = blocks->blocks[region];
    uint64_t bytes = blocks->bytes[region];

    if (to == NULL) {
        bytes = 0;
    } else if (region == HF_REGION_POLICIES) {
        to += bytes / 2;
        bytes /= 2;
    }
    damage(in, code, to, bytes);
}

/* Receipts of every slot, as the daemon makes them. */
static void make_receipts(const struct hf_segment *seg)
{
    static struct hf_receipt rows[HF_OWES_ROWS_MAX];
    static const struct hf_snapshot_known known = {.reservation_seq = 7, .policy_revision = 1};
    struct hf_shm_batch_entry entry;
    struct hf_snapshot snap;

    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        if (hf_snapshot_take(seg, i, &snap) == HF_OK) {
            uint32_t owes = hf_snapshot_owes(&snap);

            hf_snapshot_mark(&snap, &entry);
            if (owes != 0) {
                FUZZ_REQUIRE(hf_snapshot_receipts(seg, &snap, owes, &known, rows) <= HF_OWES_ROWS_MAX);
            }
        }
    }
}

static void see_meter(void *arg, const struct holdfast_meter *meter)
{
    (void)arg;
    FUZZ_REQUIRE(strlen(meter->tenant) < 64 && strlen(meter->capability) < 64 && strlen(meter->model) < 64);
}

static void see_reaped(void *arg, const char *id, int kind)
{
    (void)arg;
    FUZZ_REQUIRE(strlen(id) < 64 && (kind == HOLDFAST_CLOSED_EXPIRED || kind == HOLDFAST_CLOSED_RETAINED));
}

static void look(struct holdfast *handle, uint32_t number)
{
    struct holdfast_limit limits[15];
    struct holdfast_path *path = NULL;
    int reason = 0;
    int cnt = holdfast_limits(handle, "t", number % 2 == 0 ? "u" : NULL, number % 4 == 0 ? "k" : NULL, limits,
                              15, &reason);

    FUZZ_REQUIRE(cnt <= 15);
    (void)holdfast_meters(handle, number % 3 == 0 ? "t" : NULL, see_meter, NULL, &reason);
    if (holdfast_resolve(handle, "t", "v", NULL, "c", &path, &reason) == HOLDFAST_OK) {
        holdfast_path_free(path);
    }
}

static void extend(struct holdfast *handle, const char *id, uint32_t number)
{
    struct holdfast_extension extension;
    struct holdfast_answer answer;

    holdfast_extension_init(&extension);
    extension.id = id;
    if (number % 2 == 0) {
        extension.max_output_tokens = 1U + number;
    } else {
        extension.cost_micros = number * 4U;
        extension.ttl_ms = 1U + number;
    }
    extension.want_remaining = 1;
    int rc = holdfast_extend(handle, &extension, &answer);

    require_answer(rc, answer.reason);
}

/* The daemon's part that needs no store. */
static void keep(struct hf_segment *seg, uint32_t number)
{
    uint32_t idx = number % seg->slots_cnt;

    switch (number % 4U) {
    case 0:
        make_receipts(seg);
        break;
    case 1:
        (void)hf_chunk_return(seg, number % seg->chunks_cnt);
        (void)hf_owner_sweep(seg);
        break;
    case 2:
        (void)hf_retire_bury(seg, idx, hf_commit_read_st(&seg->slots[idx]));
        break;
    default:
        (void)hf_retire_slot(seg, hf_ref_make(0, 1), idx, hf_commit_read_st(&seg->slots[idx]),
                             world.word_seqs);
        break;
    }
}

static void call(struct holdfast *handle, uint8_t code, uint32_t number)
{
    static const char *const ids[] = {"a", "b", "c", "d", "e", "f"};
    const char *id = ids[number % 6U];
    struct holdfast_closing closing;
    uint64_t total = 0;
    int reason = 0;
    int rc;

    switch (code % 11U) {
    case 0:
        reserve(handle, id, number % 3U == 0 ? "v" : "u", number % 5U == 0 && number % 3U != 0 ? "k" : NULL,
                number);
        break;
    case 1:
        settle(handle, id, number);
        break;
    case 2:
        rc = holdfast_release(handle, id, 0, &closing);
        require_answer(rc, closing.reason);
        break;
    case 3:
        extend(handle, id, number);
        break;
    case 4:
        rc = holdfast_dispatch(handle, id, hf_token_make(number % 12U, number / 64U), &reason);
        require_answer(rc, reason);
        break;
    case 5:
        (void)hf_clock_inject(handle->seg, hf_clock_now_ms(handle->seg) + number);
        (void)holdfast_reap(handle, number % 2U * 4U, see_reaped, NULL);
        break;
    case 6:
        look(handle, number);
        break;
    case 7:
        rc = holdfast_credit(handle, "t", "u", (int)(number % 5U), (int64_t)number - 100, "r", "b", &total,
                             &reason);
        require_answer(rc, reason);
        break;
    case 8:
        require_answer(holdfast_flush(handle, 0), 0);
        require_answer(holdfast_wait_durable(handle, id, 0, 0), 0);
        break;
    default:
        keep(handle->seg, number);
        break;
    }
}

/* Calls on the regions in their blocks. */
static void work(struct input *in, struct hf_segment *seg, struct blocks *blocks)
{
    struct holdfast_segment *segment = NULL;
    struct holdfast *handle = NULL;

    FUZZ_REQUIRE(hf_client_wrap(seg, &segment) == HOLDFAST_OK);
    world.word_seqs = calloc(seg->tenants_cnt, sizeof(*world.word_seqs));
    FUZZ_REQUIRE(world.word_seqs != NULL);
    for (uint32_t calls = 0; in->left > 0 && calls < CALLS_MAX; calls++) {
        uint8_t code = (uint8_t)take(in, 1);

        if (code < 64) {
            damage_block(in, code, blocks);
            continue;
        }
        if (handle == NULL && holdfast_join(segment, &handle) != HOLDFAST_OK) {
            break;
        }
        call(handle, code, (uint32_t)take(in, 1));
        if (handle->fatal != HOLDFAST_OK) { /* it answers the same for ever */
            holdfast_leave(handle);
            handle = NULL;
        }
    }
    holdfast_leave(handle);
    segment->map = (struct hf_segment){.lock_fd = -1};
    holdfast_close(segment);
    free(world.word_seqs);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t cnt)
{
    struct input in = {bytes, cnt};
    struct blocks blocks = {{NULL}, {0}};
    struct hf_error err = {.text = ""};
    struct hf_segment seg;

    if (world.file == NULL) {
        make_world();
    }
    memcpy(world.file, world.image, world.damaged_bytes);
    while (in.left > 0 && *in.bytes < 64) {
        uint8_t code = (uint8_t)take(&in, 1);

        damage_file(&in, code);
    }
    int rc = hf_segment_attach(world.path, &seg, &err);

    FUZZ_REQUIRE(rc == HF_OK || (rc == (int)err.code && err.text[0] != '\0' && seg.base == NULL));
    if (rc != HF_OK) {
        return 0;
    }
    struct hf_segment regions = in_blocks(&seg, &blocks);

    work(&in, &regions, &blocks);
    for (uint32_t i = 0; i <= HF_REGION_CNT; i++) {
        free(blocks.blocks[i]);
    }
    hf_segment_detach(&seg);
    return 0;
}
