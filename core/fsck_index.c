/* The id index: every chain, link by link. */
#include "core/fsck_impl.h"

#include "core/slot.h"
#include "shm/commit.h"
#include "shm/index.h"

#include <string.h>

#define WALK_TRIES 32U
#define TWIN_MAX   64U /* slots of one chain compared for the same id; chains are short */

/* relaxed everywhere below: ordered as in shm/index.c; what does not fit is walked again from the head. */

struct walk {
    uint64_t head;
    uint32_t steps;
    uint32_t seen[TWIN_MAX];
    uint32_t seen_cnt;
    uint32_t bad_slot; /* HF_SHM_NONE: none there */
    uint64_t bad_link;
};

enum end {
    WALKED,
    BAD_LINK,
    RING,
    FOREIGN,
    TWICE,
    HIDING
};

static bool same_id(const struct hf_segment *seg, uint32_t a, uint32_t b)
{
    const struct hf_shm_slot *x = &seg->slots[a];
    const struct hf_shm_slot *y = &seg->slots[b];
    char id[64];
    uint32_t bytes = hf_slot_load_text(x->slot_id, hf_load_rlx_u8(&x->slot_id_bytes), id);

    return hf_slot_text_is(y->slot_id, hf_load_rlx_u8(&y->slot_id_bytes), id, bytes);
}

/* Known, and no conflict that was recovered with an id of another. */
static bool known(const struct hf_fsck *fsck, uint32_t slot_idx)
{
    struct hf_u128 st = hf_commit_read_st(&fsck->seg->slots[slot_idx]); /* E13 */

    return hf_st_state(st) != HF_STATE_PENDING && hf_index_known(fsck->seg, st, fsck->now_ms) &&
           (hf_load_rlx_u32(&fsck->seg->slots[slot_idx].slot_flags) & HF_SLOT_CONFLICT) == 0;
}

static bool was_seen(const struct walk *walk, uint32_t slot_idx)
{
    for (uint32_t i = 0; i < walk->seen_cnt; i++) {
        if (walk->seen[i] == slot_idx) {
            return true;
        }
    }
    return false;
}

static bool has_twin(const struct hf_fsck *fsck, const struct walk *walk, uint32_t slot_idx)
{
    for (uint32_t i = 0; i < walk->seen_cnt; i++) {
        if (same_id(fsck->seg, walk->seen[i], slot_idx) && known(fsck, walk->seen[i]) &&
            known(fsck, slot_idx)) {
            return true;
        }
    }
    return false;
}

/* A slot that a link names belongs there: by its hash, and by its state. */
static bool belongs(const struct hf_segment *seg, uint32_t hash, struct hf_u128 st, uint32_t head_idx)
{
    enum hf_state state = hf_st_state(st);

    /* ABANDONED is taken out before it is FREE; a credit has no id. */
    return state != HF_STATE_FREE && state != HF_STATE_FILLING && state != HF_STATE_CREDIT &&
           (hash & seg->heads_mask) == head_idx;
}

/* A link that says that it is the last one is followed by another, or has another tag than its slot's hash. Where that hash is not
 * its id's, the hash is wrong and not the link: check_id() says so, and the tag may be what proves it. */
static bool hides(const struct hf_segment *seg, const struct hf_shm_slot *slot, uint32_t hash, uint64_t link,
                  uint64_t next)
{
    char id[64];

    if ((link & HF_LINK_LAST) == 0) {
        return false;
    }
    if (hf_link_slot(next) != 0) {
        return true;
    }
    if (!hf_link_excludes(link, hash)) {
        return false;
    }
    uint32_t bytes = hf_slot_load_text(slot->slot_id, hf_load_rlx_u8(&slot->slot_id_bytes), id);

    return hf_index_hash(seg, id, bytes) == hash;
}

/* Follows one chain once. */
static enum end walk_once(struct hf_fsck *fsck, uint32_t head_idx, struct walk *walk)
{
    const struct hf_segment *seg = fsck->seg;
    uint64_t hiding_link = 0;
    uint32_t hiding_slot = HF_SHM_NONE;
    uint64_t link;

    walk->head = link = hf_load_acq_u64(&seg->heads[head_idx]); /* E3 acquire -> hf_index_insert */
    walk->seen_cnt = 0;
    walk->bad_slot = HF_SHM_NONE;
    for (walk->steps = 0; hf_link_slot(link) != 0; walk->steps++) {
        uint32_t idx = hf_link_slot(link) - 1U;

        walk->bad_link = link;
        if (idx >= seg->slots_cnt) {
            return BAD_LINK;
        }
        const struct hf_shm_slot *slot = &seg->slots[idx];
        uint64_t next = hf_load_acq_u64(&slot->slot_next);    /* E4 acquire -> filler, hf_index_remove */
        uint32_t hash = hf_load_rlx_u32(&slot->slot_id_hash); /* relaxed: before the fence below */
        bool hiding = hides(seg, slot, hash, link, next);

        hf_fence_acq(); /* E4 fence: next, hash and id were read before the generation is checked */
        struct hf_u128 st = hf_commit_read_st(slot); /* E13 */

        walk->bad_slot = idx;
        if (hf_st_gen(st) != hf_link_gen(link)) {
            return BAD_LINK;
        }
        if (!belongs(seg, hash, st, head_idx)) {
            return FOREIGN;
        }
        if (walk->steps >= seg->slots_cnt || was_seen(walk, idx)) {
            return RING;
        }
        if (has_twin(fsck, walk, idx)) {
            return TWICE;
        }
        if (walk->seen_cnt < TWIN_MAX) {
            walk->seen[walk->seen_cnt++] = idx;
        }
        fsck->linked[idx] = hf_st_gen(st) + 1U;
        if (hiding) {
            hiding_link = link;
            hiding_slot = idx;
        }
        link = next;
    }
    if (hiding_link != 0) {
        walk->bad_link = hiding_link;
        walk->bad_slot = hiding_slot;
        return HIDING;
    }
    return WALKED;
}

static void say(struct hf_fsck *fsck, uint32_t head_idx, const struct walk *walk, enum end end)
{
    static const struct {
        enum hf_fsck_kind kind;
        const char *text;
    } said[] = {
        [BAD_LINK] = {HF_FSCK_INDEX_LINK, "a link of this chain leads to no slot, or to another life of one"},
        [RING] = {HF_FSCK_INDEX_RING, "this chain does not end: it is a ring"},
        [FOREIGN] = {HF_FSCK_INDEX_FOREIGN, "a slot hangs in a chain where it does not belong"},
        [HIDING] = {HF_FSCK_INDEX_LINK, "a link of this chain hides its reservation, or the one behind it"},
        [TWICE] = {HF_FSCK_INDEX_TWICE, "two known reservations have the same id"},
    };
    struct hf_fsck_item *item = hf_fsck_add(fsck, said[end].kind, "%s", said[end].text);

    if (item != NULL) {
        item->idx = head_idx;
        item->slot = walk->bad_slot;
        item->sig[0] = walk->bad_link;
        item->sig[1] = walk->steps;
        if (end == RING) { /* wherever it was left */
            item->sig[0] = item->sig[1] = 0;
            item->slot = HF_SHM_NONE;
        } else if (end == HIDING) { /* the same however many come before it */
            item->sig[0] = hf_link_inner(walk->bad_link);
            item->sig[1] = 0;
        }
    }
}

/* Walks until it is walked, or says the same of the chain again and again. */
static void check_chain(struct hf_fsck *fsck, uint32_t head_idx)
{
    struct walk walk;
    enum end end = WALKED;

    for (uint32_t try = 0; try < WALK_TRIES; try++) {
        end = walk_once(fsck, head_idx, &walk);
        if (end == WALKED) {
            return;
        }
        hf_pause();
    }
    say(fsck, head_idx, &walk, end);
}

uint64_t hf_fsck_link_to(const struct hf_segment *seg, uint32_t slot_idx, uint32_t hash)
{
    uint32_t head_idx = hash & seg->heads_mask;
    struct hf_u128 st = hf_commit_read_st(&seg->slots[slot_idx]); /* E13 */

    for (uint32_t try = 0; try < WALK_TRIES; try++) {
        uint64_t link = hf_load_acq_u64(&seg->heads[head_idx]); /* E3 acquire */
        bool whole = true;

        for (uint32_t steps = 0; hf_link_slot(link) != 0; steps++) {
            uint32_t idx = hf_link_slot(link) - 1U;

            if (idx == slot_idx && hf_link_gen(link) == hf_st_gen(st)) {
                return link;
            }
            if (idx >= seg->slots_cnt || steps >= seg->slots_cnt) {
                return 0;
            }
            uint64_t next = hf_load_acq_u64(&seg->slots[idx].slot_next); /* E4 acquire */

            hf_fence_acq();                                                            /* E4 fence */
            if (hf_st_gen(hf_commit_read_st(&seg->slots[idx])) != hf_link_gen(link)) { /* E13 */
                whole = false;
                break;
            }
            link = next;
        }
        if (whole) {
            return 0;
        }
        hf_pause();
    }
    return 0;
}

void hf_fsck_check_index(struct hf_fsck *fsck)
{
    const struct hf_segment *seg = fsck->seg;

    memset(fsck->linked, 0, seg->slots_cnt * sizeof(*fsck->linked));
    for (uint32_t i = 0; i <= seg->heads_mask; i++) {
        if (i + 8U <= seg->heads_mask) {
            uint32_t ahead = hf_link_slot(hf_load_rlx_u64(&seg->heads[i + 8U]));

            if (ahead != 0 && ahead <= seg->slots_cnt) {
                __builtin_prefetch(&seg->slots[ahead - 1U]);
            }
        }
        if (hf_load_rlx_u64(&seg->heads[i]) >> 40 != 0) {
            check_chain(fsck, i);
        }
    }
}
