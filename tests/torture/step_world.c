#include "tests/torture/step_world.h"

#include "core/policy.h"
#include "core/policy_compile.h"
#include "core/slot.h"
#include "persist/batch.h"
#include "persist/retire.h"
#include "persist/snapshot.h"
#include "shm/chunk.h"
#include "shm/clock.h"
#include "shm/commit.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const policy_text =
    "version: 1\n"
    "currency: EUR\n"
    "prices:\n"
    "  revision: '1'\n"
    "  models:\n"
    "    - {id: m, input_micros_per_mtok: 1000000, output_micros_per_mtok: 2000000, max_output_tokens: 100}\n"
    "defaults: {ttl_ms: 1000}\n"
    "tenants:\n"
    "  - id: t\n"
    "    limits: [{window: month, cost_micros: 100000}, {window: minute, invocations: 1000}]\n"
    "    teams:\n"
    "      - id: u\n"
    "        limits:\n"
    "          - {window: month, cost_micros: 60000}\n"
    "          - {window: minute, tokens: 1000, invocations: 60}\n"
    "        capabilities: [{id: c, cap_micros: 10000, cap_tokens: 2000}]\n"
    "        keys: [{id: k, limits: [{window: day, invocations: 50}]}]\n"
    "      - id: v\n"
    "        on_limit: degrade\n"
    "        overdraft_micros: 100\n"
    "        on_overage: fail\n"
    "        limits: [{window: month, cost_micros: 500}]\n"
    "        capabilities: [{id: c, cap_micros: 10000, cap_tokens: 2000}]\n"
    "      - id: r\n"
    "        on_expiry: retain\n"
    "        limits: [{window: month, cost_micros: 20000}]\n"
    "        capabilities: [{id: c, cap_micros: 10000, cap_tokens: 2000}]\n"
    "  - id: z\n"
    "    limits: [{window: month, cost_micros: 100000}]\n"
    "    teams:\n"
    "      - id: u\n"
    "        limits:\n"
    "          - {window: month, cost_micros: 60000}\n"
    "          - {window: minute, tokens: 1000, invocations: 60}\n"
    "        capabilities: [{id: c, cap_micros: 10000, cap_tokens: 2000}]\n";

static __attribute__((noreturn)) void give_up(const char *what, const char *why)
{
    (void)fprintf(stderr, "torture: %s: %s\n", what, why);
    exit(2);
}

static void make_segment(const char *path)
{
    static const uint8_t digest[32];
    struct hf_policy_report report = {0};
    struct hf_policy *policy = NULL;
    struct hf_segment map;
    struct hf_error err = {.text = ""};
    struct hf_segment_plan plan = {.slots = HF_WORLD_SLOTS,
                                   .owners = 8,
                                   .replay_horizon_ms = 60000000000,
                                   .late_horizon_ms = 60000000000,
                                   .max_lag_ms = 30000,
                                   .epoch = 1,
                                   .injected = true,
                                   .injected_ms = HF_WORLD_NOW_MS,
                                   .mode = 0600,
                                   .group = (gid_t)-1,
                                   .store_name = "torture",
                                   .store_url = ""};

    if (hf_policy_load_bytes("torture", policy_text, strlen(policy_text), 0, &policy, &report) !=
            HF_POLICY_LOADED ||
        hf_policy_plan(policy, &plan, &err) != HF_OK || hf_segment_create(path, &plan, &map, &err) != HF_OK) {
        give_up("cannot make the segment", err.text);
    }
    /* plain: nobody else sees it. The seed, so that chains are the same in every run; the heartbeat, so that no operation asks
     * the file system for its file. */
    uint64_t made_seed = map.hash_seed; /* in the name of the file, until it is published */

    map.hash_seed = map.header->hdr_hash_seed = UINT64_C(0x9e3779b97f4a7c15);
    map.header->hdr_heartbeat_ms = UINT64_C(1) << 62;
    if (hf_policy_compile(policy, digest, 1, &map, &err) != HF_OK) {
        give_up("cannot compile the policy", err.text);
    }
    map.hash_seed = made_seed;
    hf_policy_free(policy);
    hf_policy_report_free(&report);
    hf_segment_set_state(&map, HF_SEGMENT_READY);
    if (hf_segment_publish(&map, false, &err) != HF_OK) {
        give_up("cannot publish the segment", err.text);
    }
    hf_segment_detach(&map);
}

void *hf_world_room(size_t bytes)
{
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (room == MAP_FAILED) {
        give_up("no memory", "for a test");
    }
    return room;
}

void hf_world_room_free(void *room, size_t bytes)
{
    (void)munmap(room, bytes);
}

void hf_world_make(struct hf_world *world)
{
    char error[256] = "";
    const char *under = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

    memset(world, 0, sizeof(*world));
    (void)snprintf(world->folder, sizeof(world->folder), "%s/holdfast-step-XXXXXX", under);
    if (mkdtemp(world->folder) == NULL) {
        give_up("cannot make a folder", world->folder);
    }
    (void)snprintf(world->path, sizeof(world->path), "%s/segment", world->folder);
    make_segment(world->path);
    if (holdfast_open(world->path, &world->shared, error, sizeof(error)) != HOLDFAST_OK) {
        give_up("cannot open the segment", error);
    }
    world->seg = &world->shared->map;
    if (world->seg->tenants_cnt > HF_WORLD_TENANTS) {
        give_up("more tenants than a world has room for", world->path);
    }
    if (holdfast_join(world->shared, &world->maker) != HOLDFAST_OK ||
        holdfast_join(world->shared, &world->me) != HOLDFAST_OK) {
        give_up("cannot join the segment", world->path);
    }
    world->page = mmap(NULL, sizeof(*world->page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    world->digest = hf_digest_new();
    world->image_bytes = (size_t)((uint8_t *)world->seg->batches - world->seg->base);
    world->base_image = hf_world_room(world->image_bytes);
    world->image = hf_world_room(world->image_bytes);
    world->crash = hf_world_room(world->image_bytes);
    if (world->digest == NULL) {
        give_up("no memory", "for digests");
    }
    memcpy(world->base_image, world->seg->base, world->image_bytes);
    world->base_maker = *world->maker;
    world->base_me = *world->me;
}

void hf_world_free(struct hf_world *world)
{
    DIR *dir = opendir(world->folder);
    const struct dirent *entry;
    char path[512];

    holdfast_leave(world->maker);
    holdfast_leave(world->me);
    holdfast_close(world->shared);
    hf_digest_free(world->digest);
    hf_world_room_free(world->base_image, world->image_bytes);
    hf_world_room_free(world->image, world->image_bytes);
    hf_world_room_free(world->crash, world->image_bytes);
    hf_world_room_free(world->page, sizeof(*world->page));
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        (void)snprintf(path, sizeof(path), "%s/%s", world->folder, entry->d_name);
        (void)unlink(path);
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    (void)rmdir(world->folder);
}

/* ---- states ---------------------------------------------------------------------------------------------------- */

static void put(struct hf_world *world, const uint8_t *image, const struct holdfast *maker,
                const struct holdfast *me)
{
    /* plain: nobody runs. */
    memcpy(world->seg->base, image, world->image_bytes);
    *world->maker = *maker;
    *world->me = *me;
    world->retired[0] = '\0';
    memset(world->word_seqs, 0, sizeof(world->word_seqs));
    memset(world->page, 0, sizeof(*world->page));
}

static void take(const struct hf_world *world, uint8_t *image, struct holdfast *maker, struct holdfast *me)
{
    memcpy(image, world->seg->base, world->image_bytes);
    *maker = *world->maker;
    *me = *world->me;
}

void hf_world_reset(struct hf_world *world)
{
    put(world, world->base_image, &world->base_maker, &world->base_me);
}
void hf_world_keep(struct hf_world *world)
{
    take(world, world->image, &world->image_maker, &world->image_me);
}
void hf_world_restore(struct hf_world *world)
{
    put(world, world->image, &world->image_maker, &world->image_me);
}
void hf_world_save_crash(struct hf_world *world)
{
    take(world, world->crash, &world->crash_maker, &world->crash_me);
}
void hf_world_restore_crash(struct hf_world *world)
{
    put(world, world->crash, &world->crash_maker, &world->crash_me);
}

struct hf_step_watch hf_world_watch(const struct hf_world *world, uint32_t who)
{
    return (struct hf_step_watch){.base = world->seg->base,
                                  .bytes = world->seg->size_bytes,
                                  .compared = world->image_bytes,
                                  .told = (const uint8_t *)world->page->answer[who]};
}

void hf_world_plant_seq(struct hf_world *world, const char *tenant, uint64_t seq)
{
    uint32_t row = hf_policy_row(world->seg, 1, tenant, NULL, NULL);

    for (uint32_t i = 0; i < world->seg->tenants_cnt; i++) {
        struct hf_shm_tenant *ten = &world->seg->tenants[i];

        if (ten->ten_row == row) { /* plain: nobody runs */
            ten->ten_word = hf_word_make(seq, HF_KIND_NONE, 0, HF_WORLD_NOW_MS);
            ten->ten_applied = seq;
            return;
        }
    }
    give_up("no such tenant", tenant);
}

uint32_t hf_world_slot(struct hf_world *world, const char *id)
{
    struct hf_found found;

    return hf_slot_find(world->me, id, (uint32_t)strlen(id), 0, &found) == HF_INDEX_FOUND ? found.slot_idx
                                                                                          : HF_SHM_NONE;
}

/* ---- the daemon's work ------------------------------------------------------------------------------------------- */

void hf_world_tidy(struct hf_world *world)
{
    struct hf_segment *seg = world->seg;

    /* A slot freed by a daemon that was killed before it set the bit is found when its chunk belongs to nobody. */
    hf_chunk_leave(seg, &world->maker->chunks, world->maker->owner.ref);
    hf_chunk_leave(seg, &world->me->chunks, world->me->owner.ref);
    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        struct hf_u128 st = hf_commit_read_st(&seg->slots[i]);

        (void)hf_retire_bury(seg, i, st);
        st = hf_commit_read_st(&seg->slots[i]);
        if (hf_st_state(st) == HF_STATE_ABANDONED ||
            (hf_snapshot_final(hf_st_state(st)) && hf_snapshot_written(st, seg->slots[i].slot_persisted))) {
            (void)hf_retire_slot(seg, world->me->owner.ref, i, st, world->word_seqs);
        }
    }
    for (uint32_t i = 0; i < seg->chunks_cnt; i++) {
        (void)hf_chunk_return(seg, i);
    }
    (void)hf_owner_sweep(seg);
}

void hf_world_reap(struct hf_world *world, uint64_t ms)
{
    (void)hf_clock_inject(world->seg, hf_clock_now_ms(world->seg) + ms);
    (void)holdfast_reap(world->me, 0, NULL, NULL);
}

void hf_world_take_marks(struct hf_world *world)
{
    struct hf_segment *seg = world->seg;

    for (uint32_t i = 0; i < seg->chunks_cnt; i++) {
        (void)hf_chunk_take_marks(seg, i);
    }
    for (uint32_t i = 0; i < seg->slots_cnt && i < HF_WORLD_SLOTS; i++) {
        world->seen[i] = hf_commit_read_st(&seg->slots[i]);
    }
}

uint32_t hf_world_unmarked(const struct hf_world *world)
{
    const struct hf_segment *seg = world->seg;
    uint32_t missing = 0;

    for (uint32_t i = 0; i < seg->slots_cnt && i < HF_WORLD_SLOTS; i++) {
        struct hf_u128 st = seg->slots[i].slot_st; /* plain: nobody runs */
        uint64_t marks = hf_chunk_marks(seg, i >> seg->chunk_shift);

        missing += (st.lo != world->seen[i].lo || st.hi != world->seen[i].hi) &&
                   hf_st_state(st) >= HF_STATE_ABANDONED &&
                   (marks >> (i & (seg->chunk_slots - 1U)) & 1U) == 0;
    }
    return missing;
}
