/* A tenant's slots and rows at one instant, beside its traffic.
 *
 * Every operation of a tenant raises the sequence of its W by one and names its slot. So a scan that reads W again and again
 * and has seen each number knows every slot that may have changed behind its back; it reads those again, and their rows, until
 * W stands still while there is nothing left to read. Then everything it holds is true at that instant. A number missed (this
 * process was not running just then) makes it start again. The operation that W names at the end may be half applied: then
 * what it will have done is computed, as a helper would, without writing it.
 *
 * The daemon changes slot_persisted, and then what is published, for a whole batch, and raises hdr_batch_number at the end. The
 * descriptor of the batch names the slots, so whether its marks have begun can be seen: the instant must lie after one batch and
 * before the marks of the next. A slot all of whose receipts are committed counts nothing in these sums, and so its being freed
 * and filled anew is no matter.
 *
 * Nothing is written. relaxed everywhere below: what is read is proved to be of one instant by E11's fence and W. */
#include "core/fsck_instant.h"

#include "shm/clock.h"
#include "shm/commit.h"

#include <stdlib.h>
#include <time.h>

#define ROUNDS_MAX  256U /* of reading again what has changed */
#define POLL_SLOTS  8U   /* slots read between two looks at W */
#define AHEAD_SLOTS 16U  /* slots asked for before they are read */

void hf_fsck_nap(uint32_t ms)
{
    struct timespec nap = {.tv_sec = ms / 1000U, .tv_nsec = (long)(ms % 1000U) * 1000000L};

    if (ms > 0) {
        (void)nanosleep(&nap, NULL);
    }
}

/* ---- following W ------------------------------------------------------------------------------------------------- */

static void push(struct hf_fsck_instant *take, struct hf_u128 word)
{
    if (hf_word_kind(word) != HF_KIND_NONE && hf_word_slot(word) < take->seg->slots_cnt) {
        take->queue[take->queue_cnt++] = hf_word_slot(word);
    }
}

/* Looks at W. False: a number was missed, or too much happens. */
static bool follow(struct hf_fsck_instant *take)
{
    const struct hf_shm_tenant *tenant = &take->seg->tenants[take->tenant_idx];
    struct hf_u128 word;

    for (uint32_t try = 0; try < 64; try++) {
        if (!hf_commit_read_word(tenant, &word)) { /* E10 */
            continue;
        }
        if (word.lo == take->last.lo) {
            return true;
        }
        if (hf_word_seq(word) != hf_word_seq(take->last) + 1U || take->queue_cnt == HF_FSCK_QUEUE_MAX) {
            return false;
        }
        take->last = word;
        push(take, word);
        return true;
    }
    return false;
}

static bool follow_from_here(struct hf_fsck_instant *take)
{
    const struct hf_shm_tenant *tenant = &take->seg->tenants[take->tenant_idx];

    for (uint32_t try = 0; try < 64; try++) {
        if (hf_commit_read_word(tenant, &take->last)) { /* E10 */
            push(take, take->last);
            return true;
        }
    }
    return false;
}

/* ---- slots ---------------------------------------------------------------------------------------------------- */

static bool reserve_part(struct hf_fsck_instant *take, uint32_t slot_idx)
{
    if (take->parts_cnt == take->parts_room) {
        uint32_t room = take->parts_room == 0 ? 1024 : 2 * take->parts_room;
        struct hf_fsck_part *parts = realloc(take->parts, room * sizeof(*parts));

        if (parts == NULL) {
            return false;
        }
        take->parts = parts;
        take->parts_room = room;
    }
    take->place[slot_idx] = ++take->parts_cnt;
    return true;
}

/* Reads a slot (again). A part is kept for every slot of the tenant that is not written whole. */
static enum hf_fsck_outcome read_slot(struct hf_fsck_instant *take, uint32_t slot_idx)
{
    struct hf_shm_slot copy;
    struct hf_u128 st;

    if (!hf_fsck_copy_slot(take->seg, slot_idx, &st, &copy)) {
        return HF_FSCK_AGAIN;
    }
    bool ours = hf_fsck_counts(st) && copy.slot_tenant == take->tenant_idx;

    if (take->place[slot_idx] == 0) {
        if (!ours || hf_fsck_is_written(&copy, st)) {
            return HF_FSCK_TAKEN;
        }
        if (!reserve_part(take, slot_idx)) {
            return HF_FSCK_NO_MEMORY;
        }
    }
    struct hf_fsck_part *part = &take->parts[take->place[slot_idx] - 1U];

    if (ours) {
        hf_fsck_part_of(&copy, slot_idx, st, part);
    } else {
        *part = (struct hf_fsck_part){.slot_idx = slot_idx};
    }
    return HF_FSCK_TAKEN;
}

/* One look at all slots for those of the tenant. */
static enum hf_fsck_outcome read_all(struct hf_fsck_instant *take)
{
    const struct hf_segment *seg = take->seg;

    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        const struct hf_shm_slot *slot = &seg->slots[i];

        if (i % POLL_SLOTS == 0 && !follow(take)) {
            return HF_FSCK_AGAIN;
        }
        if (i + AHEAD_SLOTS < seg->slots_cnt) {
            __builtin_prefetch(&slot[AHEAD_SLOTS].slot_st);
            __builtin_prefetch(&slot[AHEAD_SLOTS].slot_tenant);
        }
        struct hf_u128 st = {.lo = hf_load_acq_u64(&slot->slot_st.lo)}; /* E13 acquire -> every CAS of st */

        /* The tenant stands from PENDING on. A slot that changes hands meanwhile gets its new tenant by an operation. */
        if (hf_fsck_counts(st) && hf_load_rlx_u32(&slot->slot_tenant) == take->tenant_idx) {
            enum hf_fsck_outcome outcome = read_slot(take, i);

            if (outcome != HF_FSCK_TAKEN) {
                return outcome;
            }
        }
    }
    return HF_FSCK_TAKEN;
}

static enum hf_fsck_outcome read_parts_again(struct hf_fsck_instant *take)
{
    for (uint32_t i = 0; i < take->parts_cnt; i++) {
        if (i % POLL_SLOTS == 0 && !follow(take)) {
            return HF_FSCK_AGAIN;
        }
        enum hf_fsck_outcome outcome = read_slot(take, take->parts[i].slot_idx);

        if (outcome != HF_FSCK_TAKEN) {
            return outcome;
        }
    }
    return HF_FSCK_TAKEN;
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static void read_words(struct hf_fsck_instant *take, uint32_t row)
{
    struct hf_fsck_row *words = &take->rows[take->fsck->row_place[row]];

    for (uint32_t b = 0; b < HF_SHM_ROW_BUCKETS; b++) {
        words->words[b] = hf_commit_read_bucket(
            &take->seg->rows[row].row_buckets[b / HF_SHM_DIMS][b % HF_SHM_DIMS]); /* E12 */
    }
}

static bool read_published(struct hf_fsck_instant *take, uint32_t row)
{
    const struct hf_shm_published *published = &take->seg->published[row];
    struct hf_fsck_row *words = &take->rows[take->fsck->row_place[row]];

    words->pub_seq = hf_load_acq_u64(&published->pub_seq); /* E19 acquire -> the daemon's publication */
    for (uint32_t b = 0; b < HF_SHM_ROW_BUCKETS; b++) {
        const struct hf_shm_settled *settled = &published->pub_settled[b / HF_SHM_DIMS][b % HF_SHM_DIMS];

        words->settled[b] = hf_load_rlx_u64(&settled->set_amount);
        words->settled_window[b] = hf_load_rlx_u32(&settled->set_window);
    }
    hf_fence_acq(); /* E19 */
    return (words->pub_seq & 1U) == 0 && hf_load_rlx_u64(&published->pub_seq) == words->pub_seq;
}

static enum hf_fsck_outcome read_rows(struct hf_fsck_instant *take)
{
    const struct hf_fsck *fsck = take->fsck;
    const uint32_t *rows = &fsck->row_list[fsck->row_first[take->tenant_idx]];

    for (uint32_t i = 0; i < take->rows_cnt; i++) {
        if (!follow(take)) {
            return HF_FSCK_AGAIN;
        }
        read_words(take, rows[i]);
        if (!read_published(take, rows[i])) {
            return HF_FSCK_PUBLISHING;
        }
    }
    return HF_FSCK_TAKEN;
}

bool hf_fsck_own_row(const struct hf_fsck_instant *take, uint32_t row)
{
    return row < take->seg->rows_cnt &&
           take->seg->rows[row].row_tenant == take->tenant_idx && /* plain: read-only once published */
           take->fsck->row_place[row] < take->rows_cnt;
}

/* ---- the instant --------------------------------------------------------------------------------------------------- */

/* Reads again what W has named, until there is nothing left to read. */
static enum hf_fsck_outcome catch_up(struct hf_fsck_instant *take)
{
    for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
        if (!follow(take)) {
            return HF_FSCK_AGAIN;
        }
        if (take->queue_cnt == 0) {
            return HF_FSCK_TAKEN;
        }
        uint32_t slot_idx = take->queue[--take->queue_cnt];
        enum hf_fsck_outcome outcome = read_slot(take, slot_idx);

        if (outcome != HF_FSCK_TAKEN) {
            return outcome;
        }
        for (uint32_t layer = 0; layer < HF_SHM_LAYERS; layer++) {
            uint32_t row = hf_load_rlx_u32(&take->seg->slots[slot_idx].slot_rows[layer]);

            if (hf_fsck_own_row(take, row)) {
                read_words(take, row);
            }
        }
    }
    return HF_FSCK_AGAIN;
}

/* What the operation that W names will have done, in what was read. */
static enum hf_fsck_outcome finish_last(struct hf_fsck_instant *take)
{
    const struct hf_segment *seg = take->seg;
    struct hf_shm_slot copy;
    struct hf_u128 st;
    struct hf_op op;
    bool applied = false;

    if (hf_word_kind(take->last) == HF_KIND_NONE) {
        return HF_FSCK_TAKEN;
    }
    uint32_t slot_idx = hf_word_slot(take->last);

    if (slot_idx >= seg->slots_cnt || hf_word_kind(take->last) >= HF_KIND_CNT) {
        return HF_FSCK_IMPOSSIBLE;
    }
    bool right = hf_commit_describe(seg, slot_idx, (enum hf_kind)hf_word_kind(take->last),
                                    hf_word_seq(take->last), hf_word_time_ms(take->last), &op, &applied);
    if (!hf_commit_unchanged(&seg->tenants[take->tenant_idx], take->last)) { /* E11 */
        return HF_FSCK_AGAIN;
    }
    if (!right) {
        return HF_FSCK_IMPOSSIBLE;
    }
    if (applied) {
        return HF_FSCK_TAKEN;
    }
    for (uint32_t n = 0; n < op.buckets_cnt; n++) {
        size_t off = (size_t)((const uint8_t *)op.buckets[n].word - (const uint8_t *)seg->rows);
        uint32_t row = (uint32_t)(off / sizeof(*seg->rows));
        uint32_t in_row = op.buckets[n].window * HF_SHM_DIMS + op.buckets[n].dimension;

        if (hf_fsck_own_row(take, row)) {
            struct hf_u128 *word = &take->rows[take->fsck->row_place[row]].words[in_row];

            (void)hf_commit_bucket_after(&op, n, *word, word);
        }
    }
    if (!hf_fsck_copy_slot(seg, slot_idx, &st, &copy)) {
        return HF_FSCK_AGAIN;
    }
    if (!hf_fsck_counts(op.st_after)) {
        return HF_FSCK_TAKEN;
    }
    if (take->place[slot_idx] == 0 && !reserve_part(take, slot_idx)) {
        return HF_FSCK_NO_MEMORY;
    }
    hf_fsck_part_of(&copy, slot_idx, op.st_after, &take->parts[take->place[slot_idx] - 1U]);
    return HF_FSCK_TAKEN;
}

bool hf_fsck_between_batches(const struct hf_segment *seg, uint64_t number)
{
    hf_fence_acq(); /* E20 fence: what was read before is older than these looks */
    for (uint32_t i = 0; i < 2; i++) {
        const struct hf_shm_batch *batch = &seg->batches[i];

        /* E20 acquire -> hf_batch_announce. No descriptor of it yet: its marks have not begun. */
        if (hf_load_acq_u64(&batch->bat_number) != number + 1U) {
            continue;
        }
        uint64_t cnt = hf_load_rlx_u64(&batch->bat_entries_cnt);

        for (uint64_t e = 0; e < cnt && e < 4; e++) { /* they are marked in their order */
            uint64_t slot_idx = hf_load_rlx_u64(&batch->bat_entries[e].bat_slot) & (HF_SHM_SLOTS_MAX - 1U);
            uint64_t marked = hf_load_rlx_u64(&batch->bat_entries[e].bat_persisted);

            if (slot_idx < seg->slots_cnt &&
                ((hf_load_acq_u64(&seg->slots[slot_idx].slot_persisted) ^ marked) & /* E18 */
                 ~(uint64_t)HF_PERSISTED_CONFLICT) == 0) {
                return false;
            }
        }
    }
    hf_fence_acq(); /* E20 fence */
    return hf_load_rlx_u64(&seg->header->hdr_batch_number) == number;
}

static bool same_publications(const struct hf_fsck_instant *take)
{
    const struct hf_fsck *fsck = take->fsck;
    const uint32_t *rows = &fsck->row_list[fsck->row_first[take->tenant_idx]];

    for (uint32_t i = 0; i < take->rows_cnt; i++) {
        if (hf_load_rlx_u64(&take->seg->published[rows[i]].pub_seq) != take->rows[i].pub_seq) {
            return false;
        }
    }
    return true;
}

static void start(struct hf_fsck_instant *take)
{
    for (uint32_t i = 0; i < take->parts_cnt; i++) {
        take->place[take->parts[i].slot_idx] = 0;
    }
    take->parts_cnt = 0;
    take->queue_cnt = 0;
}

/* One try. */
static enum hf_fsck_outcome try_once(struct hf_fsck_instant *take)
{
    const struct hf_segment *seg = take->seg;

    start(take);
    if (!follow_from_here(take)) {
        return HF_FSCK_AGAIN;
    }
    enum hf_fsck_outcome outcome = read_all(take);

    if (outcome != HF_FSCK_TAKEN) {
        return outcome;
    }
    take->number = hf_load_acq_u64(&seg->header->hdr_batch_number); /* E20 acquire -> hf_batch_done */
    outcome = read_parts_again(take);
    if (outcome == HF_FSCK_TAKEN) {
        outcome = read_rows(take);
    }
    for (uint32_t round = 0; outcome == HF_FSCK_TAKEN && round < ROUNDS_MAX; round++) {
        outcome = catch_up(take);
        if (outcome == HF_FSCK_TAKEN) {
            outcome = finish_last(take);
        }
        if (outcome == HF_FSCK_TAKEN &&
            (!hf_fsck_between_batches(seg, take->number) || !same_publications(take))) {
            return HF_FSCK_AGAIN;
        }
        if (outcome == HF_FSCK_TAKEN &&
            hf_commit_unchanged(&seg->tenants[take->tenant_idx], take->last)) { /* E11 */
            return HF_FSCK_TAKEN;
        }
    }
    return outcome == HF_FSCK_TAKEN ? HF_FSCK_AGAIN : outcome;
}

enum hf_fsck_outcome hf_fsck_take_instant(struct hf_fsck_instant *take)
{
    const struct hf_fsck_options *options = &take->fsck->options;
    uint64_t until = hf_clock_mono_fine_ms() + options->sums_wait_ms;
    enum hf_fsck_outcome outcome = HF_FSCK_AGAIN;
    uint32_t spread = 1;

    for (uint32_t try = 0; try < options->sums_tries; try++) {
        outcome = try_once(take);
        take->fsck->result->tries++;
        if (outcome == HF_FSCK_TAKEN || outcome == HF_FSCK_NO_MEMORY ||
            (try > 0 && hf_clock_mono_fine_ms() >= until)) {
            break;
        }
        spread = spread * 1664525U + 1013904223U; /* out of step with the traffic */
        hf_fsck_nap(try < 2 ? 0 : 1U + (spread >> 16) % 4U);
    }
    return outcome;
}
