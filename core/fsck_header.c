/* Header, clock, processes. */
#include "core/fsck_impl.h"

#include "shm/clock.h"

#include <string.h>

#define AHEAD_MS \
    2000U /* gauges of another process: the coarse clock, and a nap between reading and looking */

/* relaxed everywhere below: each word for itself, and confirmed by further looks. */

static void check_equal(struct hf_fsck *fsck, const char *field, uint64_t expected, uint64_t found)
{
    if (expected != found) {
        struct hf_fsck_item *item = hf_fsck_add(fsck, HF_FSCK_HEADER, "%s of the header was changed", field);

        hf_fsck_numbers(item, expected, found);
        if (item != NULL) {
            item->sig[0] = found;
            item->sig[1] = expected;
        }
    }
}

static void check_at_most(struct hf_fsck *fsck, const char *field, uint64_t most, uint64_t found)
{
    if (found > most) {
        struct hf_fsck_item *item = hf_fsck_add(fsck, HF_FSCK_HEADER, "%s is higher than it can be", field);

        hf_fsck_numbers(item, most, found);
        if (item != NULL) {
            item->sig[0] = found;
        }
    }
}

/* What was checked at attach and is kept outside the segment must still stand in the header. */
static void check_identity(struct hf_fsck *fsck)
{
    const struct hf_segment *seg = fsck->seg;
    const struct hf_shm_header *header = seg->header;

    check_equal(fsck, "hdr_magic", HF_SHM_MAGIC, hf_load_rlx_u64(&header->hdr_magic));
    check_equal(fsck, "hdr_version", HF_SHM_VERSION, hf_load_rlx_u32(&header->hdr_version));
    check_equal(fsck, "hdr_header_bytes", sizeof(*header), hf_load_rlx_u32(&header->hdr_header_bytes));
    check_equal(fsck, "hdr_fingerprint", hf_layout_fingerprint(), hf_load_rlx_u64(&header->hdr_fingerprint));
    check_equal(fsck, "hdr_size_bytes", seg->size_bytes, hf_load_rlx_u64(&header->hdr_size_bytes));
    check_equal(fsck, "hdr_slots_cnt", seg->slots_cnt, hf_load_rlx_u32(&header->hdr_slots_cnt));
    check_equal(fsck, "hdr_chunk_slots", seg->chunk_slots, hf_load_rlx_u32(&header->hdr_chunk_slots));
    check_equal(fsck, "hdr_heads_mask", seg->heads_mask, hf_load_rlx_u32(&header->hdr_heads_mask));
    check_equal(fsck, "hdr_policy_bytes", seg->policy_bytes, hf_load_rlx_u64(&header->hdr_policy_bytes));
    check_equal(fsck, "hdr_hash_seed", seg->hash_seed, hf_load_rlx_u64(&header->hdr_hash_seed));
    check_equal(fsck, "hdr_injected", seg->injected, hf_load_rlx_u32(&header->hdr_injected));
    check_equal(fsck, "hdr_replay_horizon_ms", seg->replay_horizon_ms,
                hf_load_rlx_u64(&header->hdr_replay_horizon_ms));
    check_equal(fsck, "hdr_late_horizon_ms", seg->late_horizon_ms,
                hf_load_rlx_u64(&header->hdr_late_horizon_ms));
}

static void check_regions(struct hf_fsck *fsck)
{
    const struct hf_segment *seg = fsck->seg;
    const struct hf_shm_region *regions = seg->header->hdr_regions;
    const struct {
        const void *at;
        uint64_t cnt;
        uint32_t stride;
    } bound[HF_REGION_CNT] = {
        [HF_REGION_OWNERS] = {seg->owners, seg->owners_cnt, sizeof(*seg->owners)},
        [HF_REGION_TENANTS] = {seg->tenants, seg->tenants_cnt, sizeof(*seg->tenants)},
        [HF_REGION_ROWS] = {seg->rows, seg->rows_cnt, sizeof(*seg->rows)},
        [HF_REGION_PUBLISHED] = {seg->published, seg->rows_cnt, sizeof(*seg->published)},
        [HF_REGION_CHUNKS] = {seg->chunks, seg->chunks_cnt, sizeof(*seg->chunks)},
        [HF_REGION_SLOTS] = {seg->slots, seg->slots_cnt, sizeof(*seg->slots)},
        [HF_REGION_HEADS] = {seg->heads, (uint64_t)seg->heads_mask + 1U, sizeof(*seg->heads)},
        [HF_REGION_NAMES] = {seg->names, seg->names_max, sizeof(*seg->names)},
        [HF_REGION_PRICES] = {seg->prices, seg->prices_max, sizeof(*seg->prices)},
        [HF_REGION_METERS] = {seg->meters, seg->meters_cnt, sizeof(*seg->meters)},
        [HF_REGION_BATCHES] = {seg->batches, 2, sizeof(*seg->batches)},
    };

    for (uint32_t i = 0; i < HF_REGION_CNT; i++) {
        uint64_t off = hf_load_rlx_u64(&regions[i].reg_off);
        bool right = i == HF_REGION_POLICIES ? off == (uint64_t)(seg->policies - seg->base)
                                             : off == (uint64_t)((const uint8_t *)bound[i].at - seg->base) &&
                                                   hf_load_rlx_u32(&regions[i].reg_cnt) == bound[i].cnt &&
                                                   hf_load_rlx_u32(&regions[i].reg_stride) == bound[i].stride;

        if (!right) {
            struct hf_fsck_item *item =
                hf_fsck_add(fsck, HF_FSCK_HEADER, "region %u of the header was changed", i);

            if (item != NULL) {
                item->sig[0] = off;
                item->sig[1] = i;
            }
        }
    }
}

static void check_gauges(struct hf_fsck *fsck)
{
    const struct hf_segment *seg = fsck->seg;
    const struct hf_shm_header *header = seg->header;
    uint64_t done = hf_load_acq_u64(&header->cyc_done); /* E8 acquire: before what is ahead of it is read */

    check_at_most(fsck, "cyc_done", hf_load_rlx_u64(&header->cyc_begun), done);
    check_at_most(fsck, "hdr_state", HF_SEGMENT_REPAIR, hf_load_rlx_u32(&header->hdr_state));
    check_at_most(fsck, "hdr_names_cnt", seg->names_max, hf_load_rlx_u32(&header->hdr_names_cnt));
    check_at_most(fsck, "hdr_prices_cnt", seg->prices_max, hf_load_rlx_u32(&header->hdr_prices_cnt));
    uint64_t beat_ms = hf_load_rlx_u64(&header->hdr_heartbeat_ms);
    uint64_t durable_ms = hf_load_rlx_u64(&header->hdr_durable_ms);
    uint64_t mono_ms = hf_clock_mono_fine_ms();

    check_at_most(fsck, "hdr_heartbeat_ms", mono_ms + AHEAD_MS, beat_ms);
    check_at_most(fsck, "hdr_durable_ms", mono_ms + AHEAD_MS, durable_ms);
    if (!fsck->repairing && hf_load_rlx_u32(&header->hdr_state) == HF_SEGMENT_REPAIR) {
        (void)hf_fsck_add(fsck, HF_FSCK_HEADER,
                          "a repair is at work, or was cut off: run `holdfast fsck --repair` again");
    }
}

static void check_clock(struct hf_fsck *fsck)
{
    const struct hf_segment *seg = fsck->seg;
    const struct hf_shm_header *header = seg->header;
    struct hf_clock_published pub;
    struct hf_fsck_item *item = NULL;
    uint64_t hold_ms = hf_load_rlx_u64(&header->clk_hold_ms);
    uint64_t mono_ms = hf_clock_mono_fine_ms();

    if (fsck->now_ms > HF_CLOCK_MS_MAX) {
        item = hf_fsck_add(fsck, HF_FSCK_CLOCK, "the clock is beyond the year 2400");
        hf_fsck_numbers(item, HF_CLOCK_MS_MAX, fsck->now_ms);
    } else if (seg->injected) {
        return;
    } else if (!hf_clock_published(seg, &pub)) {
        if (hf_segment_state(seg) == HF_SEGMENT_READY) {
            item = hf_fsck_add(fsck, HF_FSCK_CLOCK, "the segment is ready and no clock was ever published");
        }
    } else if (pub.mono_ms > mono_ms + AHEAD_MS) {
        item = hf_fsck_add(fsck, HF_FSCK_CLOCK, "the clock was published at an instant that is to come");
        hf_fsck_numbers(item, mono_ms, pub.mono_ms);
    } else if (pub.time_ms > HF_CLOCK_MS_MAX || hold_ms > HF_CLOCK_MS_MAX) {
        item = hf_fsck_add(fsck, HF_FSCK_CLOCK, "the clock or its hold is beyond the year 2400");
        hf_fsck_numbers(item, HF_CLOCK_MS_MAX, pub.time_ms > hold_ms ? pub.time_ms : hold_ms);
    }
    if (item != NULL) {
        item->sig[0] = hold_ms;
    }
}

/* ---- processes ------------------------------------------------------------------------------------------------- */

static void check_owner(struct hf_fsck *fsck, uint32_t idx)
{
    const struct hf_segment *seg = fsck->seg;
    const struct hf_shm_owner *owner = &seg->owners[idx];
    uint64_t ref = hf_load_acq_u64(&owner->own_ref); /* E7 acquire: the number it was made of is older */
    uint64_t last = hf_load_rlx_u64(&owner->own_last_epoch);
    struct hf_fsck_item *item = NULL;

    if (ref == 0) {
        return;
    }
    if (hf_ref_index(ref) != idx || hf_ref_epoch(ref) > last) {
        item = hf_fsck_add(fsck, HF_FSCK_OWNER,
                           "the reference %016llx cannot stand at this place of the owner table",
                           (unsigned long long)ref);
    } else if (!hf_owner_alive(seg, ref) && hf_load_rlx_u64(&owner->own_ref) == ref) {
        item = hf_fsck_add(fsck, HF_FSCK_DEAD,
                           "process %u is dead and has not been swept yet: the daemon does it",
                           hf_load_rlx_u32(&owner->own_pid));
    }
    if (item != NULL) {
        item->idx = idx;
        item->sig[0] = ref;
    }
}

static void check_daemon_word(struct hf_fsck *fsck)
{
    const struct hf_segment *seg = fsck->seg;
    uint64_t ref = hf_load_acq_u64(&seg->header->hdr_daemon); /* E7 acquire -> hf_owner_take_daemon */
    struct hf_fsck_item *item = NULL;

    if (ref == 0) {
        return;
    }
    if (hf_ref_index(ref) >= seg->owners_cnt ||
        hf_ref_epoch(ref) > hf_load_rlx_u64(&seg->owners[hf_ref_index(ref)].own_last_epoch)) {
        item = hf_fsck_add(fsck, HF_FSCK_DAEMON, "the daemon's word %016llx names a process that never was",
                           (unsigned long long)ref);
    } else if (!hf_owner_alive(seg, ref) && hf_load_rlx_u64(&seg->header->hdr_daemon) == ref) {
        item = hf_fsck_add(fsck, HF_FSCK_DEAD, "the daemon is dead: start holdfastd, which goes on with it");
    }
    if (item != NULL) {
        item->sig[0] = ref;
    }
}

void hf_fsck_check_header(struct hf_fsck *fsck)
{
    check_identity(fsck);
    check_regions(fsck);
    check_gauges(fsck);
    check_clock(fsck);
    for (uint32_t i = 0; i < fsck->seg->owners_cnt; i++) {
        check_owner(fsck, i);
    }
    check_daemon_word(fsck);
}
