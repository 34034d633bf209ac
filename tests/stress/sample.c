/* The reader of the stress: invariants of a live segment, looked at all the time. It writes nothing and helps only as any
 * reader does. */
#include "tests/stress/board.h"

#include "core/lookup.h"
#include "shm/clock.h"
#include "shm/commit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct seen {
    uint32_t gen;
    uint32_t ordinal;
    uint32_t state;
    uint64_t seq;
};

struct sampler {
    struct stress_board *board;
    struct hf_segment *seg;
    const struct hf_shm_policy *policy;
    struct seen *slots;
    uint64_t *tags; /* of each bucket */
    uint64_t *seqs; /* of each tenant */
    uint64_t alarms[HF_SHM_ALARMS];
    uint64_t now_ms;
    uint64_t batch;
    uint64_t next_seq;
    uint32_t cursor;
};

/* Within one life of a slot. */
static uint32_t rank_of(uint32_t state)
{
    static const uint8_t ranks[HF_STATE_CNT] = {
        [HF_STATE_PENDING] = 1,  [HF_STATE_HELD] = 2,    [HF_STATE_DISPATCHED] = 3, [HF_STATE_EXPIRED] = 4,
        [HF_STATE_RETAINED] = 4, [HF_STATE_SETTLED] = 5, [HF_STATE_RELEASED] = 5,   [HF_STATE_DISPUTED] = 5,
        [HF_STATE_LATE] = 5,     [HF_STATE_CREDIT] = 5,  [HF_STATE_ABANDONED] = 6,  [HF_STATE_FREE] = 7};

    return state < HF_STATE_CNT ? ranks[state] : 0;
}

static void look_at_slot(struct sampler *sampler, uint32_t slot_idx)
{
    struct hf_u128 st = hf_commit_read_st(&sampler->seg->slots[slot_idx]); /* E13 */
    struct seen now = {hf_st_gen(st), hf_st_ordinal(st), (uint32_t)hf_st_state(st), hf_st_seq(st)};
    struct seen *before = &sampler->slots[slot_idx];

    if (now.state == HF_STATE_FILLING) {
        return; /* its owner writes the two halves one after the other */
    }
    bool open_or_final = rank_of(now.state) >= 2 && rank_of(now.state) <= 5;
    bool was = rank_of(before->state) >= 2 && rank_of(before->state) <= 5;

    if (rank_of(now.state) == 0) {
        stress_wrong(sampler->board, "slot %" PRIu32 " has state %" PRIu32, slot_idx, now.state);
    }
    if (now.gen < before->gen) {
        stress_wrong(sampler->board, "slot %" PRIu32 " went from generation %" PRIu32 " to %" PRIu32,
                     slot_idx, before->gen, now.gen);
    } else if (now.gen == before->gen &&
               (rank_of(now.state) < rank_of(before->state) ||
                (rank_of(now.state) == 5 && rank_of(before->state) == 5 && now.state != before->state) ||
                (open_or_final && was && (now.ordinal < before->ordinal || now.seq < before->seq)))) {
        stress_wrong(sampler->board,
                     "slot %" PRIu32 " went from state %" PRIu32 " ordinal %" PRIu32 " sequence %" PRIu64
                     " to %" PRIu32 ", %" PRIu32 ", %" PRIu64,
                     slot_idx, before->state, before->ordinal, before->seq, now.state, now.ordinal, now.seq);
    }
    *before = now;
    sampler->board->samples++;
}

static void look_at_header(struct sampler *sampler)
{
    const struct hf_shm_header *header = sampler->seg->header;
    uint64_t now_ms = hf_clock_now_ms(sampler->seg);
    uint64_t batch = hf_load_rlx_u64(&header->hdr_batch_number); /* relaxed: looked at alone */
    uint64_t next_seq = hf_load_rlx_u64(&header->hdr_next_seq);  /* relaxed: likewise */

    if (now_ms < sampler->now_ms || batch < sampler->batch || next_seq < sampler->next_seq) {
        stress_wrong(sampler->board, "clock, batch or receipt number went back");
    }
    sampler->now_ms = now_ms;
    sampler->batch = batch;
    sampler->next_seq = next_seq;
    for (uint32_t i = 0; i < HF_SHM_ALARMS; i++) {
        uint64_t alarm = hf_load_rlx_u64(&header->hdr_alarms[i]); /* relaxed: likewise */

        if (alarm < sampler->alarms[i]) {
            stress_wrong(sampler->board, "alarm %" PRIu32 " went back", i);
        }
        sampler->alarms[i] = alarm;
    }
}

/* One look at each bucket: its tag only rises, and where nothing may rise above a hold, the limit holds at any instant. */
static void look_at_row(struct sampler *sampler, uint32_t row_idx)
{
    const struct hf_shm_row *row = &sampler->seg->rows[row_idx];
    const struct hf_shm_row_policy *limits = hf_lookup_row(sampler->seg, sampler->policy, row_idx);
    bool strict = stress_strict(row->row_tenant);

    for (uint32_t i = 0; i < HF_SHM_ROW_BUCKETS; i++) {
        uint32_t window = i / HF_SHM_DIMS;
        uint32_t dimension = i % HF_SHM_DIMS;
        struct hf_u128 bucket = hf_commit_read_bucket(&row->row_buckets[window][dimension]);     /* E12 */
        struct hf_u128 credit = hf_commit_read_bucket(&row->row_buckets[window][HF_SHM_CREDIT]); /* E12 */
        uint64_t *tag = &sampler->tags[row_idx * HF_SHM_ROW_BUCKETS + i];

        if (hf_bucket_tag(bucket) < *tag) {
            stress_wrong(sampler->board, "the tag of row %" PRIu32 " bucket %" PRIu32 " went back", row_idx,
                         i);
        }
        *tag = hf_bucket_tag(bucket);
        sampler->board->samples++;
        if (limits == NULL || limits->rpl_limits[window][dimension] == HF_SHM_UNKNOWN ||
            (!strict && dimension != HOLDFAST_INVOCATIONS)) {
            continue;
        }
        uint64_t room = limits->rpl_limits[window][dimension];

        if (dimension == HOLDFAST_COST_MICROS) {
            /* Credits of the test only rise within a window; a newer window's may be less, and is none of this one's. */
            if (hf_bucket_window(credit) > hf_bucket_window(bucket)) {
                continue;
            }
            room += hf_bucket_window(credit) == hf_bucket_window(bucket) ? hf_bucket_value(credit) : 0;
            room += limits->rpl_on_limit == HF_ON_LIMIT_DEGRADE ? limits->rpl_overdraft_micros : 0;
        }
        if (hf_bucket_value(bucket) > room) {
            stress_wrong(sampler->board,
                         "oversold: row %" PRIu32 " window %" PRIu32 " dimension %" PRIu32 " has %" PRIu64
                         ", limit, credit and overdraft are %" PRIu64,
                         row_idx, window, dimension, hf_bucket_value(bucket), room);
        }
    }
}

/* All rows of a tenant under one W: each reservation is in the tenant's and in one team's bucket, so they add up. */
static void look_at_tenant(struct sampler *sampler, uint32_t tenant_idx)
{
    const struct hf_segment *seg = sampler->seg;
    struct hf_shm_tenant *tenant = &seg->tenants[tenant_idx];
    struct hf_u128 own[HF_SHM_ROW_BUCKETS];
    uint64_t sums[HF_SHM_ROW_BUCKETS] = {0};
    uint64_t applied = hf_load_acq_u64(&tenant->ten_applied); /* E14 */
    struct hf_u128 word;

    if (hf_commit_ready(sampler->seg, tenant_idx, &word) != HF_OK) {
        return; /* others made progress all the time */
    }
    if (hf_word_seq(word) < sampler->seqs[tenant_idx] || applied > hf_word_seq(word)) {
        stress_wrong(sampler->board, "tenant %" PRIu32 " went back to %" PRIu64, tenant_idx,
                     hf_word_seq(word));
    }
    sampler->seqs[tenant_idx] = hf_word_seq(word);
    for (uint32_t i = 0; i < HF_SHM_ROW_BUCKETS; i++) {
        own[i] = hf_commit_read_bucket(
            &seg->rows[tenant->ten_row].row_buckets[i / HF_SHM_DIMS][i % HF_SHM_DIMS]); /* E12 */
    }
    for (uint32_t r = 0; r < seg->rows_cnt; r++) {
        for (uint32_t i = 0;
             seg->rows[r].row_tenant == tenant_idx && seg->rows[r].row_layer == 1 && i < HF_SHM_ROW_BUCKETS;
             i++) {
            struct hf_u128 team =
                hf_commit_read_bucket(&seg->rows[r].row_buckets[i / HF_SHM_DIMS][i % HF_SHM_DIMS]); /* E12 */

            sums[i] += hf_bucket_window(team) == hf_bucket_window(own[i]) ? hf_bucket_value(team) : 0;
        }
    }
    if (!hf_commit_unchanged(tenant, word)) { /* E11 */
        return;
    }
    sampler->board->views++;
    for (uint32_t i = 0; i < HF_SHM_ROW_BUCKETS; i++) {
        if (sums[i] != hf_bucket_value(own[i])) {
            stress_wrong(sampler->board,
                         "tenant %" PRIu32 " at sequence %" PRIu64 ": bucket %" PRIu32 " has %" PRIu64
                         ", its teams have %" PRIu64,
                         tenant_idx, hf_word_seq(word), i, hf_bucket_value(own[i]), sums[i]);
        }
    }
}

static void pass(struct sampler *sampler)
{
    struct hf_segment *seg = sampler->seg;
    uint32_t slots = seg->slots_cnt < 512 ? seg->slots_cnt : 512;

    look_at_header(sampler);
    for (uint32_t i = 0; i < slots; i++) {
        look_at_slot(sampler, sampler->cursor++ % seg->slots_cnt);
    }
    for (uint32_t i = 0; i < seg->rows_cnt; i++) {
        look_at_row(sampler, i);
    }
    for (uint32_t i = 0; i < stress_config(sampler->board->config)->tenants; i++) {
        look_at_tenant(sampler, i); /* the segment has room for more */
    }
}

void stress_sample(const char *folder, struct stress_board *board)
{
    struct sampler sampler = {.board = board};
    struct holdfast_segment *segment = NULL;
    char path[256];

    (void)snprintf(path, sizeof(path), "%s/segment", folder);
    if (holdfast_open(path, &segment, NULL, 0) != HOLDFAST_OK) {
        stress_wrong(board, "the reader cannot open");
        _exit(3);
    }
    sampler.seg = &segment->map;
    sampler.policy = hf_lookup_policy(sampler.seg, 1);
    sampler.slots = calloc(sampler.seg->slots_cnt, sizeof(*sampler.slots));
    sampler.tags = calloc((size_t)sampler.seg->rows_cnt * HF_SHM_ROW_BUCKETS, sizeof(*sampler.tags));
    sampler.seqs = calloc(sampler.seg->tenants_cnt, sizeof(*sampler.seqs));
    if (sampler.policy == NULL || sampler.slots == NULL || sampler.tags == NULL || sampler.seqs == NULL) {
        stress_wrong(board, "the reader has no policy or no memory");
        _exit(3);
    }
    while (hf_load_acq_u32(&board->end) == 0) { /* plain: a flag of the test */
        pass(&sampler);
        (void)usleep(1000);
    }
    holdfast_close(segment);
    _exit(0);
}
