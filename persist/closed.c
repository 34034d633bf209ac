#include "persist/closed.h"

#include "persist/retire.h"
#include "persist/snapshot.h"
#include "shm/commit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SAY_EVERY_MS 10000U

#define REPLAY 0
#define LATE   1

static bool bit(const uint64_t *bits, uint32_t i)
{
    return (bits[i / 64] >> (i % 64) & 1U) != 0;
}

bool hf_closed_open(struct hf_closed *closed, struct hf_segment *seg, uint64_t daemon_ref,
                    const struct hf_log *log)
{
    uint32_t cap = 64;

    *closed = (struct hf_closed){.seg = seg, .daemon_ref = daemon_ref, .log = *log};
    while (cap < seg->slots_cnt) {
        cap *= 2;
    }
    closed->used = calloc(seg->slots_cnt / 64 + 1, sizeof(uint64_t));
    closed->word_seqs = calloc(seg->tenants_cnt, sizeof(uint64_t));
    for (int i = 0; i < 2; i++) {
        struct hf_closed_queue *queue = &closed->queues[i];

        queue->cap = cap;
        queue->horizon_ms = i == REPLAY ? seg->replay_horizon_ms : seg->late_horizon_ms;
        queue->ring = calloc(cap, sizeof(*queue->ring));
        queue->inside = calloc(seg->slots_cnt / 64 + 1, sizeof(uint64_t));
        if (queue->ring == NULL || queue->inside == NULL || closed->used == NULL ||
            closed->word_seqs == NULL) {
            hf_closed_close(closed);
            return false;
        }
    }
    return true;
}

void hf_closed_close(struct hf_closed *closed)
{
    for (int i = 0; i < 2; i++) {
        free(closed->queues[i].ring);
        free(closed->queues[i].inside);
    }
    free(closed->used);
    free(closed->word_seqs);
    *closed = (struct hf_closed){0};
}

void hf_closed_seen(struct hf_closed *closed, uint32_t slot_idx, struct hf_u128 st)
{
    bool used = hf_st_state(st) != HF_STATE_FREE;

    if (used == bit(closed->used, slot_idx)) {
        return;
    }
    closed->used[slot_idx / 64] ^= 1ULL << (slot_idx % 64);
    closed->used_cnt = used ? closed->used_cnt + 1 : closed->used_cnt - 1;
}

/* Which queue a state waits in; -1: none. */
static int queue_of(enum hf_state state)
{
    switch (state) {
    case HF_STATE_SETTLED:
    case HF_STATE_RELEASED:
    case HF_STATE_LATE:
    case HF_STATE_RESOLVED:
        return REPLAY;
    case HF_STATE_EXPIRED:
    case HF_STATE_RETAINED:
    case HF_STATE_DISPUTED:
        return LATE;
    default:
        return -1;
    }
}

void hf_closed_push(struct hf_closed *closed, uint32_t slot_idx, struct hf_u128 st)
{
    int which = queue_of(hf_st_state(st));

    if (which < 0 || bit(closed->queues[which].inside, slot_idx)) {
        return;
    }
    struct hf_closed_queue *queue = &closed->queues[which];

    queue->inside[slot_idx / 64] |= 1ULL << (slot_idx % 64);
    queue->ring[(queue->head + queue->cnt++) & (queue->cap - 1)] = (struct hf_closed_entry){st, slot_idx};
}

static int compare_since(const void *a, const void *b)
{
    uint64_t x = hf_st_time_ms(((const struct hf_closed_entry *)a)->st);
    uint64_t y = hf_st_time_ms(((const struct hf_closed_entry *)b)->st);

    return x < y ? -1 : x > y;
}

void hf_closed_sort(struct hf_closed *closed)
{
    for (int i = 0; i < 2; i++) {
        struct hf_closed_queue *queue = &closed->queues[i];
        struct hf_closed_entry *flat = queue->cnt > 1 ? calloc(queue->cnt, sizeof(*flat)) : NULL;

        for (uint32_t n = 0; flat != NULL && n < queue->cnt; n++) {
            flat[n] = queue->ring[(queue->head + n) & (queue->cap - 1)];
        }
        if (flat != NULL) {
            qsort(flat, queue->cnt, sizeof(*flat), compare_since);
            memcpy(queue->ring, flat, queue->cnt * sizeof(*flat));
            queue->head = 0;
            free(flat);
        }
    }
}

bool hf_closed_free(struct hf_closed *closed, uint32_t slot_idx, struct hf_u128 st)
{
    if (hf_retire_slot(closed->seg, closed->daemon_ref, slot_idx, st, closed->word_seqs) != HF_OK) {
        return false;
    }
    hf_closed_seen(closed, slot_idx, hf_st_make(0, 0, HF_STATE_FREE, 0, 0));
    return true;
}

static struct hf_closed_entry pop(struct hf_closed_queue *queue)
{
    struct hf_closed_entry entry = queue->ring[queue->head++ & (queue->cap - 1)];

    queue->cnt--;
    queue->inside[entry.slot_idx / 64] &= ~(1ULL << (entry.slot_idx % 64));
    return entry;
}

/* When the head of a queue closed. */
static uint64_t head_since(const struct hf_closed_queue *queue)
{
    return hf_st_time_ms(queue->ring[queue->head & (queue->cap - 1)].st);
}

static bool short_of_slots(const struct hf_closed *closed)
{
    return closed->seg->slots_cnt - closed->used_cnt < closed->seg->slots_cnt / 4;
}

/* The queue whose head is to be freed at now_ms; NULL: none. *forgotten: before its horizon. */
static struct hf_closed_queue *due(struct hf_closed *closed, uint64_t now_ms, bool *forgotten)
{
    struct hf_closed_queue *oldest = NULL;

    for (int i = 0; i < 2; i++) {
        struct hf_closed_queue *queue = &closed->queues[i];

        if (queue->cnt == 0) {
            continue;
        }
        uint64_t since = head_since(queue);

        if (now_ms >= since && now_ms - since >= queue->horizon_ms) {
            *forgotten = false;
            return queue;
        }
        if (oldest == NULL || since < head_since(oldest)) {
            oldest = queue;
        }
    }
    *forgotten = true;
    return short_of_slots(closed) ? oldest : NULL;
}

static void say_forgotten(struct hf_closed *closed, uint32_t cnt, uint64_t now_ms)
{
    closed->forgotten_cnt += cnt;
    if (closed->said_ms != 0 && now_ms - closed->said_ms < SAY_EVERY_MS) {
        return;
    }
    hf_log_say(
        &closed->log, HF_LOG_WARNING,
        "slots run short: %" PRIu64
        " closed reservations were forgotten before their horizon; a replay of them is a new reservation: give the "
        "segment more slots (--slots, now %" PRIu32 ")",
        closed->forgotten_cnt, closed->seg->slots_cnt);
    closed->said_ms = now_ms;
    closed->forgotten_cnt = 0;
}

uint32_t hf_closed_free_due(struct hf_closed *closed, uint64_t now_ms)
{
    uint32_t tries = closed->queues[0].cnt + closed->queues[1].cnt;
    uint32_t freed = 0;
    uint32_t forgotten_cnt = 0;
    struct hf_closed_queue *queue;
    bool forgotten;

    while (tries-- > 0 && (queue = due(closed, now_ms, &forgotten)) != NULL) {
        struct hf_closed_entry entry = pop(queue);
        const struct hf_shm_slot *slot = &closed->seg->slots[entry.slot_idx];
        struct hf_u128 st = hf_commit_read_st(slot); /* E13 */

        /* Another life, or closed once more, in the very same millisecond perhaps, and that receipt is not committed: it is
         * pushed again when it owes nothing. */
        if (st.lo != entry.st.lo || st.hi != entry.st.hi) {
            continue;
        }
        /* The store lost a receipt of it: as above. relaxed: the daemon is its writer. */
        if (!hf_snapshot_written(st, hf_load_rlx_u64(&slot->slot_persisted))) {
            continue;
        }
        if (hf_closed_free(closed, entry.slot_idx, st)) {
            freed++;
            forgotten_cnt += forgotten;
        } else {
            hf_closed_push(closed, entry.slot_idx, st); /* claimed at the moment: at the end of the queue */
        }
    }
    if (forgotten_cnt > 0) {
        hf_alarm(closed->seg, HF_ALARM_FORGOTTEN, forgotten_cnt);
        say_forgotten(closed, forgotten_cnt, now_ms);
    }
    return freed;
}
