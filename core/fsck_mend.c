/* Owners, words, slots, chains, chunks. Plain stores would do, since nobody else is here; words of 128 bits are swapped all the
 * same, so that a cut-off repair leaves none in halves. */
#include "core/fsck_mend.h"

#include "core/name.h"
#include "core/slot.h"
#include "shm/chunk.h"
#include "shm/commit.h"
#include "shm/index.h"

#include <stdio.h>

/* relaxed everywhere below: alone in the segment; hf_fsck_repair() publishes it all by the state (E1). */

struct hf_fsck_item hf_mend_item(enum hf_fsck_kind kind, uint64_t before, uint64_t after, const char *text)
{
    struct hf_fsck_item item = hf_fsck_item(kind, HF_FSCK_MENDED);

    hf_fsck_numbers(&item, after, before);
    (void)snprintf(item.text, sizeof(item.text), "%s", text);
    return item;
}

/* ---- owners --------------------------------------------------------------------------------------------------------- */

void hf_mend_owners(struct hf_mend *mend)
{
    struct hf_segment *seg = mend->seg;

    for (uint32_t i = 0; i < seg->owners_cnt; i++) {
        uint64_t ref = hf_load_rlx_u64(&seg->owners[i].own_ref);
        bool impossible = ref != 0 && hf_ref_index(ref) != i;

        if (ref == 0 || ref == mend->own_ref || (!impossible && hf_owner_alive(seg, ref))) {
            continue;
        }
        struct hf_fsck_item item =
            impossible
                ? hf_mend_item(HF_FSCK_OWNER, ref, 0, "an entry that cannot stand at its place was cleared")
                : hf_mend_item(HF_FSCK_DEAD, ref, 0, "the entry of a dead process was cleared");

        item.idx = i;
        /* E7 acqrel: somebody may be joining at this very place. */
        if (hf_cas_acqrel_u64(&seg->owners[i].own_ref, ref, 0)) {
            hf_fsck_say(mend->fsck, &item);
        }
    }
}

/* ---- words ---------------------------------------------------------------------------------------------------------- */

static void say_word(struct hf_mend *mend, uint32_t tenant, enum hf_fsck_kind kind, uint64_t before,
                     uint64_t after, const char *text)
{
    struct hf_fsck_item item = hf_mend_item(kind, before, after, text);

    item.tenant = tenant;
    hf_fsck_say(mend->fsck, &item);
}

static void mend_word(struct hf_mend *mend, uint32_t idx)
{
    struct hf_segment *seg = mend->seg;
    struct hf_shm_tenant *tenant = &seg->tenants[idx];
    struct hf_u128 word = tenant->ten_word; /* plain: alone */
    uint64_t applied = hf_load_rlx_u64(&tenant->ten_applied);

    if (applied > hf_word_seq(word)) {
        hf_store_rlx_u64(&tenant->ten_applied, 0); /* a hint: the tags tell what is applied */
        say_word(mend, idx, HF_FSCK_APPLIED, applied, 0, "A was ahead of W and was taken back");
    }
    if (!hf_fsck_word_sound(seg, idx, word)) {
        hf_store_rlx_u64(&tenant->ten_applied, 0);
        if (hf_fsck_word_sound(seg, idx, word)) {
            say_word(mend, idx, HF_FSCK_WORD, applied, 0,
                     "A was taken back, so that the operation of W is applied");
        } else {
            /* What it named was answered to nobody: who answers has applied it, and then it is in its slot. */
            struct hf_u128 next =
                hf_word_make(hf_word_seq(word) < HF_SHM_SEQ_MAX ? hf_word_seq(word) + 1U : hf_word_seq(word),
                             HF_KIND_NONE, 0, 0);

            (void)hf_cas_acqrel_u128(&tenant->ten_word, word, next); /* E10 */
            hf_store_rlx_u64(&tenant->ten_applied, hf_word_seq(next));
            say_word(mend, idx, HF_FSCK_WORD, word.lo, next.lo,
                     "W named what cannot be and names nothing now; the buckets follow from the slots");
        }
    }
    (void)hf_commit_ready(seg, idx, &word);
}

/* Everything is applied now, so no bucket can be ahead of W. */
static void mend_tag(struct hf_mend *mend, uint32_t row, struct hf_u128 *at, uint32_t window,
                     uint32_t dimension)
{
    struct hf_u128 word = *at; /* plain: alone */
    uint64_t seq = hf_word_seq(mend->seg->tenants[mend->seg->rows[row].row_tenant].ten_word);

    if (hf_bucket_tag(word) <= seq) {
        return;
    }
    struct hf_fsck_item item = hf_mend_item(HF_FSCK_BUCKET_TAG, hf_bucket_tag(word), seq,
                                            "the tag was set to the sequence of its tenant");

    item.row = row;
    item.window = window;
    item.dimension = dimension;
    (void)hf_cas_acqrel_u128(at, word,
                             hf_bucket_make(hf_bucket_value(word), hf_bucket_window(word), seq)); /* E12 */
    hf_fsck_say(mend->fsck, &item);
}

void hf_mend_words(struct hf_mend *mend)
{
    struct hf_segment *seg = mend->seg;

    for (uint32_t i = 0; i < seg->tenants_cnt; i++) {
        if (hf_fsck_tenant_used(seg, i)) {
            mend_word(mend, i);
        }
    }
    for (uint32_t row = 0; row < seg->rows_cnt; row++) {
        if (!hf_row_used(&seg->rows[row]) || seg->rows[row].row_tenant >= seg->tenants_cnt) {
            continue;
        }
        for (uint32_t b = 0; b < HF_SHM_ROW_BUCKETS; b++) {
            mend_tag(mend, row, &seg->rows[row].row_buckets[b / HF_SHM_DIMS][b % HF_SHM_DIMS],
                     b / HF_SHM_DIMS, b % HF_SHM_DIMS);
        }
        for (uint32_t w = 0; w < HF_SHM_WINDOWS; w++) {
            mend_tag(mend, row, &seg->rows[row].row_buckets[w][HF_SHM_CREDIT], w, HF_SHM_NONE);
        }
    }
}

/* ---- slots ---------------------------------------------------------------------------------------------------------- */

static void change_st(struct hf_mend *mend, uint32_t slot_idx, struct hf_u128 st, struct hf_u128 to,
                      enum hf_fsck_kind kind, const char *text)
{
    struct hf_fsck_item item = hf_mend_item(kind, st.lo, to.lo, text);

    item.slot = slot_idx;
    (void)hf_cas_acqrel_u128(&mend->seg->slots[slot_idx].slot_st, st, to); /* E13 */
    hf_fsck_say(mend->fsck, &item);
}

static void mend_state(struct hf_mend *mend, uint32_t slot_idx)
{
    struct hf_segment *seg = mend->seg;
    const struct hf_shm_slot *slot = &seg->slots[slot_idx];
    struct hf_u128 st = slot->slot_st; /* plain: alone */
    enum hf_state state = hf_st_state(st);
    struct hf_u128 clean = {hf_st_make(0, 0, state, 0, 0).lo, st.hi};

    if (state == HF_STATE_FILLING || state == HF_STATE_PENDING) {
        /* No W names it, or it would have been applied: it never happened. The daemon frees it. */
        change_st(mend, slot_idx, st, hf_st_make(0, 0, HF_STATE_ABANDONED, 0, hf_st_gen(st)), HF_FSCK_DEAD,
                  "a reservation that a dead process was making was undone");
        hf_alarm(seg, HF_ALARM_ABANDONED, 1);
    } else if ((state == HF_STATE_FREE || state == HF_STATE_ABANDONED) && st.lo != clean.lo) {
        change_st(mend, slot_idx, st, clean, HF_FSCK_SLOT_STATE,
                  "a slot without a reservation lost its sequence and ordinal");
    } else if (hf_fsck_counts(st) && slot->slot_tenant < seg->tenants_cnt &&
               hf_st_seq(st) > hf_word_seq(seg->tenants[slot->slot_tenant].ten_word)) {
        struct hf_u128 to = hf_st_make(0, hf_st_ordinal(st), state, hf_st_time_ms(st), hf_st_gen(st));

        change_st(mend, slot_idx, st, to, HF_FSCK_SLOT_SEQ, "its sequence was ahead of W and was forgotten");
    }
}

/* The id is right where the chain of the id holds the slot; in one and the same chain with either hash, where the tag of the link to
 * it is that of the id. */
static void mend_hash(struct hf_mend *mend, uint32_t slot_idx)
{
    struct hf_segment *seg = mend->seg;
    struct hf_shm_slot *slot = &seg->slots[slot_idx];
    uint32_t bytes = slot->slot_id_bytes; /* plain: alone */

    if (bytes == 0 || bytes > HF_SHM_NAME_BYTES || !hf_name_valid(slot->slot_id, bytes)) {
        return;
    }
    uint32_t right = hf_index_hash(seg, slot->slot_id, bytes);
    uint32_t before = slot->slot_id_hash;

    if (right == before) {
        return;
    }
    uint64_t link = hf_fsck_link_to(seg, slot_idx, right);
    bool same_chain = ((right ^ before) & seg->heads_mask) == 0;

    /* Which of the two is right cannot be told. */
    if (link == 0 || (same_chain && (!hf_link_excludes(link, before) || hf_link_excludes(link, right)))) {
        return;
    }
    hf_store_rlx_u32(&slot->slot_id_hash, right);
    struct hf_fsck_item item = hf_mend_item(HF_FSCK_SLOT_ID, before, right,
                                            "the hash was made again from the id, by whose link it hangs");

    item.slot = slot_idx;
    hf_fsck_say(mend->fsck, &item);
}

void hf_mend_slots(struct hf_mend *mend)
{
    struct hf_segment *seg = mend->seg;

    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        struct hf_shm_slot *slot = &seg->slots[i];
        uint64_t claim = hf_load_rlx_u64(&slot->slot_claim);

        mend_state(mend, i);
        if (hf_fsck_counts(slot->slot_st)) { /* plain: alone */
            mend_hash(mend, i);
        }
        if (claim != 0) {
            struct hf_fsck_item item =
                hf_ref_index(claim) < seg->owners_cnt
                    ? hf_mend_item(HF_FSCK_DEAD, claim, 0, "the claim of a dead process was cleared")
                    : hf_mend_item(HF_FSCK_SLOT_CLAIM, claim, 0,
                                   "the claim of a process that never was was cleared");

            item.slot = i;
            hf_store_rlx_u64(&slot->slot_claim, 0);
            hf_fsck_say(mend->fsck, &item);
        }
    }
}

/* ---- chains --------------------------------------------------------------------------------------------------------- */

static bool of_index(enum hf_fsck_kind kind)
{
    return kind >= HF_FSCK_INDEX_LINK && kind <= HF_FSCK_INDEX_MISSING;
}

static void link_slot(struct hf_segment *seg, uint32_t slot_idx)
{
    struct hf_shm_slot *slot = &seg->slots[slot_idx];
    uint64_t *head_word = &seg->heads[slot->slot_id_hash & seg->heads_mask]; /* plain: alone */
    uint64_t head = hf_load_rlx_u64(head_word);

    hf_store_rlx_u64(&slot->slot_next, hf_link_inner(head));
    hf_store_rlx_u64(head_word,
                     hf_link_over(head, slot_idx + 1U, hf_st_gen(slot->slot_st), slot->slot_id_hash));
}

/* All chains anew. Cut off within: the state says so, and they are made anew again. */
static void make_chains(struct hf_segment *seg)
{
    for (uint32_t i = 0; i <= seg->heads_mask; i++) {
        uint64_t head = hf_load_rlx_u64(&seg->heads[i]);

        hf_store_rlx_u64(&seg->heads[i], hf_link_make(0, 0, hf_link_count(head) + 1U));
    }
    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        const struct hf_shm_slot *slot = &seg->slots[i]; /* plain: alone */

        if (hf_fsck_counts(slot->slot_st) && (slot->slot_flags & HF_SLOT_CONFLICT) == 0) {
            link_slot(seg, i);
        }
    }
}

/* A conflict is found by its id only where no other reservation has it. */
static void link_conflicts(struct hf_mend *mend)
{
    struct hf_segment *seg = mend->seg;

    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        const struct hf_shm_slot *slot = &seg->slots[i]; /* plain: alone */
        struct hf_u128 st;
        uint32_t other;

        if (hf_fsck_counts(slot->slot_st) && (slot->slot_flags & HF_SLOT_CONFLICT) != 0) {
            (void)hf_index_insert(seg, slot->slot_id_hash, slot->slot_id, slot->slot_id_bytes,
                                  mend->fsck->now_ms, i, &other, &st);
        }
    }
}

void hf_mend_index(struct hf_mend *mend)
{
    bool broken = mend->again;

    for (uint32_t i = 0; i < mend->fsck->items_cnt; i++) {
        broken = broken || of_index(mend->fsck->items[i].kind);
    }
    if (!broken) {
        return;
    }
    make_chains(mend->seg);
    link_conflicts(mend);
    for (uint32_t i = 0; i < mend->fsck->items_cnt; i++) {
        struct hf_fsck_item item = mend->fsck->items[i];

        if (of_index(item.kind)) {
            item.severity = HF_FSCK_MENDED;
            (void)snprintf(item.text, sizeof(item.text),
                           "the chains were made again from the ids of the slots");
            hf_fsck_say(mend->fsck, &item);
        }
    }
}

/* ---- chunks --------------------------------------------------------------------------------------------------------- */

static void say_chunk(struct hf_mend *mend, uint32_t chunk, enum hf_fsck_kind kind, uint64_t before,
                      uint64_t after, const char *text)
{
    struct hf_fsck_item item = hf_mend_item(kind, before, after, text);

    item.chunk = chunk;
    hf_fsck_say(mend->fsck, &item);
}

void hf_mend_chunks(struct hf_mend *mend)
{
    struct hf_segment *seg = mend->seg;
    uint64_t all = hf_chunk_all(seg);

    for (uint32_t c = 0; c < seg->chunks_cnt; c++) {
        struct hf_shm_chunk *chunk = &seg->chunks[c];
        uint64_t owner = hf_load_rlx_u64(&chunk->chunk_owner);
        uint64_t home = hf_load_rlx_u64(&chunk->chunk_home);
        uint64_t bits = hf_load_rlx_u64(&chunk->chunk_free);
        uint64_t truth = 0;

        for (uint32_t i = 0; i < seg->chunk_slots; i++) {
            struct hf_u128 st = seg->slots[(c << seg->chunk_shift) + i].slot_st; /* plain: alone */

            truth |= (uint64_t)(hf_st_state(st) == HF_STATE_FREE) << i;
        }
        if (owner != 0) {
            hf_store_rlx_u64(&chunk->chunk_owner, 0);
            bool was = hf_ref_index(owner) < seg->owners_cnt;

            say_chunk(mend, c, was ? HF_FSCK_DEAD : HF_FSCK_CHUNK, owner, 0,
                      was ? "the chunk of a dead process belongs to nobody again"
                          : "the chunk of a process that never was belongs to nobody again");
        }
        if (home != 0 && !hf_owner_alive(seg, home)) {
            hf_store_rlx_u64(&chunk->chunk_home, 0); /* a hint: nothing to say */
        }
        if (bits != truth) {
            hf_store_rlx_u64(&chunk->chunk_free, truth);
            say_chunk(mend, c, (bits & ~all) != 0 ? HF_FSCK_CHUNK : HF_FSCK_FREE_BITS, bits, truth,
                      "the bits of free slots were made again from the slots");
        }
        uint64_t marks = hf_chunk_marks(seg, c);
        if ((marks & ~all) != 0) {
            say_chunk(mend, c, HF_FSCK_CHUNK, marks, marks & all,
                      "marks of slots that are not there were cleared");
            for (uint32_t i = seg->chunk_slots; i < sizeof(chunk->chunk_dirty); i++) {
                hf_store_rlx_u8(&chunk->chunk_dirty[i], 0);
            }
        }
    }
}
