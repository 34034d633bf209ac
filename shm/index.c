#include "shm/index.h"

#include "shm/hash.h"

#define HF_INDEX_TRIES 64U /* rounds in which a chain may change under its reader */

/* An id as words, so that a slot that is filled again meanwhile can be compared by whole atomic loads. */
struct id_words {
    uint64_t words[8];
    uint32_t bytes_cnt;
};

/* What a walk looks for and found. */
struct walk {
    const struct id_words *id;
    uint32_t hash;
    uint64_t now_ms;
    uint32_t own_idx; /* the inserter's own slot, or HF_SHM_NONE */
    uint32_t budget;  /* links that may still be followed, over all rounds */
    uint32_t slot_idx;
    struct hf_u128 st;
};

enum step {
    STEP_END,
    STEP_FOUND,
    STEP_OWN,
    STEP_CHANGED,
    STEP_SPENT,
    STEP_DAMAGED
};

uint32_t hf_index_hash(const struct hf_segment *seg, const char *id, uint32_t id_bytes)
{
    uint64_t hash = hf_hash_bytes(seg->hash_seed, id, id_bytes);

    return (uint32_t)(hash ^ hash >> 32);
}

void hf_index_prefetch_chain(const struct hf_segment *seg, uint32_t hash)
{
    /* relaxed: only tells what to fetch. */
    uint32_t slot_plus_1 = hf_link_slot(hf_load_rlx_u64(&seg->heads[hash & seg->heads_mask]));

    if (slot_plus_1 != 0 && slot_plus_1 <= seg->slots_cnt)
        __builtin_prefetch(&seg->slots[slot_plus_1 - 1U]);
}

bool hf_index_known(const struct hf_segment *seg, struct hf_u128 st, uint64_t now_ms)
{
    uint64_t since = hf_st_time_ms(st);
    uint64_t age = now_ms > since ? now_ms - since : 0;

    switch (hf_st_state(st)) {
    case HF_STATE_PENDING:
    case HF_STATE_HELD:
    case HF_STATE_DISPATCHED:
    case HF_STATE_TICKET:
        return true;
    case HF_STATE_SETTLED:
    case HF_STATE_RELEASED:
    case HF_STATE_LATE:
    case HF_STATE_RESOLVED:
        return age < seg->replay_horizon_ms;
    case HF_STATE_EXPIRED:
    case HF_STATE_RETAINED:
    case HF_STATE_DISPUTED:
        return age < seg->late_horizon_ms;
    case HF_STATE_FREE:
    case HF_STATE_FILLING:
    case HF_STATE_ABANDONED:
    case HF_STATE_CREDIT:
    case HF_STATE_LIMITS:
    case HF_STATE_TICKET_OUT:
    case HF_STATE_CNT:
        break;
    }
    return false;
}

static bool make_words(const char *id, uint32_t id_bytes, struct id_words *out)
{
    if (id_bytes == 0 || id_bytes > HF_SHM_NAME_BYTES)
        return false;
    memset(out->words, 0, sizeof out->words);
    memcpy(out->words, id, id_bytes);
    out->bytes_cnt = id_bytes;
    return true;
}

/* Whether the slot carries the id; whatever it says, the caller then checks the generation. Another hash is read from the line of
 * the link itself, so of most strangers in a chain no other line is touched. */
static bool same_id(const struct hf_shm_slot *slot, const struct walk *walk)
{
    const struct id_words *id = walk->id;

    /* relaxed: ordered by E4; bytes behind the end of the id may be anything. */
    if (hf_load_rlx_u32(&slot->slot_id_hash) != walk->hash ||
        hf_load_rlx_u8(&slot->slot_id_bytes) != id->bytes_cnt)
        return false;
    const uint64_t *theirs = (const uint64_t *)(const void *)slot->slot_id;
    uint32_t whole = id->bytes_cnt / 8U;
    uint32_t rest = id->bytes_cnt % 8U;

    for (uint32_t i = 0; i < whole; i++) {
        if (hf_load_rlx_u64(&theirs[i]) != id->words[i]) /* relaxed: as above */
            return false;
    }
    if (rest == 0)
        return true;
    uint64_t mask = ~0ULL >> (64U - 8U * rest);
    return (hf_load_rlx_u64(&theirs[whole]) & mask) == id->words[whole]; /* relaxed: as above */
}

/* st as it stands, both halves of one instant as far as two equal reads of its high half can tell: the low half
 * changes without the high one only by a transition within a millisecond, and then belongs to it. */
static bool read_st(const struct hf_shm_slot *slot, uint32_t gen, struct hf_u128 *st)
{
    for (uint32_t try = 0; try < HF_INDEX_TRIES; try++) {
        st->hi = hf_load_acq_u64(&slot->slot_st.hi); /* E4 acquire -> the filler's new generation */
        st->lo = hf_load_acq_u64(&slot->slot_st.lo); /* E4 acquire -> PENDING and every later state */
        if (hf_st_gen(*st) != gen)
            return false;
        if (hf_load_rlx_u64(&slot->slot_st.hi) == st->hi) /* relaxed: after the acquires above */
            return true;
    }
    return false;
}

/* Follows one chain. Wait-free but for restarts by the caller; runs beside inserters and the one remover. */
static enum step walk_chain(const struct hf_segment *seg, uint64_t link, struct walk *walk)
{
    /* A link leads to an older insertion, always: so no walk meets more links than there are slots, whatever happens
     * beside it. Restarts can make it more in all, until the budget is spent. */
    for (uint32_t steps = 0; hf_link_slot(link) != 0; steps++) {
        uint32_t idx = hf_link_slot(link) - 1U;
        uint32_t gen = hf_link_gen(link);

        if (idx >= seg->slots_cnt || steps >= seg->slots_cnt)
            return STEP_DAMAGED;
        if (walk->budget == 0)
            return STEP_SPENT;
        walk->budget--;
        const struct hf_shm_slot *slot = &seg->slots[idx];
        /* E4 acquire -> slot_next of the filler or of hf_index_remove. A slot that was taken out and is filled again
         * has its new generation stored before its slot_next: the check of the generation below sees it. */
        uint64_t next = hf_load_acq_u64(&slot->slot_next);
        bool same = same_id(slot, walk);

        hf_fence_acq(); /* E4 fence: id and next were read before the generation is checked */
        if (!read_st(slot, gen, &walk->st))
            return STEP_CHANGED;
        if (idx == walk->own_idx) {
            walk->slot_idx = idx;
            return STEP_OWN;
        }
        if (same && hf_index_known(seg, walk->st, walk->now_ms)) {
            walk->slot_idx = idx;
            return STEP_FOUND;
        }
        link = next;
    }
    return STEP_END;
}

static void set_budget(const struct hf_segment *seg, struct walk *walk)
{
    walk->budget = 2U * seg->slots_cnt + 65536U;
}

enum hf_index_result hf_index_find(const struct hf_segment *seg, uint32_t hash, const char *id,
                                   uint32_t id_bytes, uint64_t now_ms, uint32_t *slot_idx, struct hf_u128 *st)
{
    struct id_words words;
    struct walk walk = {.id = &words, .hash = hash, .now_ms = now_ms, .own_idx = HF_SHM_NONE};

    if (!make_words(id, id_bytes, &words))
        return HF_INDEX_ABSENT;
    set_budget(seg, &walk);
    for (uint32_t try = 0; try < HF_INDEX_TRIES; try++) {
        /* E3 acquire -> hf_index_insert: the slot behind a link is complete. */
        uint64_t head = hf_load_acq_u64(&seg->heads[hash & seg->heads_mask]);

        switch (walk_chain(seg, head, &walk)) {
        case STEP_FOUND:
            *slot_idx = walk.slot_idx;
            *st = walk.st;
            return HF_INDEX_FOUND;
        case STEP_END:
            return HF_INDEX_ABSENT;
        case STEP_DAMAGED:
            hf_alarm(seg, HF_ALARM_CORRUPT, 1);
            return HF_INDEX_BUSY;
        case STEP_SPENT:
            return HF_INDEX_BUSY;
        case STEP_OWN:
        case STEP_CHANGED:
            hf_pause();
            break;
        }
    }
    return HF_INDEX_BUSY;
}

enum hf_index_result hf_index_insert(struct hf_segment *seg, uint32_t hash, const char *id, uint32_t id_bytes,
                                     uint64_t now_ms, uint32_t new_idx, uint32_t *slot_idx,
                                     struct hf_u128 *st)
{
    struct id_words words;
    struct walk walk = {.id = &words, .hash = hash, .now_ms = now_ms, .own_idx = new_idx};
    uint64_t *head_word = &seg->heads[hash & seg->heads_mask];
    struct hf_shm_slot *slot = hf_segment_slot(seg, new_idx);

    if (slot == NULL || !make_words(id, id_bytes, &words))
        return HF_INDEX_BUSY;
    uint32_t gen = (uint32_t)hf_load_rlx_u64(&slot->slot_st.hi) & 0xfffffU; /* relaxed: our own slot */
    set_budget(seg, &walk);
    for (uint32_t try = 0; try < HF_INDEX_TRIES; try++) {
        uint64_t head = hf_load_acq_u64(head_word); /* E3 acquire -> another insertion */

        switch (walk_chain(seg, head, &walk)) {
        case STEP_FOUND:
            *slot_idx = walk.slot_idx;
            *st = walk.st;
            return HF_INDEX_FOUND;
        case STEP_OWN:
            return HF_INDEX_INSERTED; /* linked by an earlier call: a second link would close a ring */
        case STEP_DAMAGED:
            hf_alarm(seg, HF_ALARM_CORRUPT, 1);
            return HF_INDEX_BUSY;
        case STEP_SPENT:
            return HF_INDEX_BUSY;
        case STEP_CHANGED:
            hf_pause();
            continue;
        case STEP_END:
            break;
        }
        /* relaxed: ours until the link; published by E3. */
        hf_store_rlx_u64(&slot->slot_next, hf_link_make(hf_link_slot(head), hf_link_gen(head), 0));
        uint64_t link = hf_link_make(new_idx + 1U, gen, hf_link_count(head) + 1U);
        /* E3 release -> hf_index_find: fields, id and slot_next are complete. An unchanged head means that no id was
         * inserted since the scan. CRASH before: a PENDING slot nobody can find. After: one that can be found. */
        if (hf_cas_acqrel_u64(head_word, head, link))
            return HF_INDEX_INSERTED;
        hf_pause();
    }
    return HF_INDEX_BUSY;
}

/* Finds the slot from a head; *pred is the slot before it, NULL at the head. Only the daemon changes what is behind
 * the head, so a generation that does not fit is damage, not a race. */
static enum step find_pred(const struct hf_segment *seg, uint64_t head, uint32_t slot_idx,
                           struct hf_shm_slot **pred)
{
    uint64_t link = head;

    *pred = NULL;
    for (uint32_t steps = 0; hf_link_slot(link) != 0; steps++) {
        uint32_t idx = hf_link_slot(link) - 1U;

        if (idx >= seg->slots_cnt || steps >= seg->slots_cnt)
            return STEP_DAMAGED;
        struct hf_shm_slot *slot = &seg->slots[idx];
        /* relaxed: the slot was complete before its link, which was read with acquire (E3, E4). */
        if ((hf_load_rlx_u64(&slot->slot_st.hi) & 0xfffffU) != hf_link_gen(link))
            return STEP_DAMAGED;
        if (idx == slot_idx)
            return STEP_FOUND;
        *pred = slot;
        link = hf_load_acq_u64(&slot->slot_next); /* E4 acquire -> the filler's slot_next */
    }
    return STEP_END;
}

bool hf_index_remove(struct hf_segment *seg, uint32_t hash, uint32_t slot_idx)
{
    uint64_t *head_word = &seg->heads[hash & seg->heads_mask];

    if (slot_idx >= seg->slots_cnt)
        return false;
    /* A head lost to an inserter is found again as an inner link; each further round is an insertion made. */
    for (uint32_t try = 0; try < HF_INDEX_TRIES; try++) {
        uint64_t head = hf_load_acq_u64(head_word); /* E3 acquire -> hf_index_insert */
        struct hf_shm_slot *pred;
        enum step step = find_pred(seg, head, slot_idx, &pred);

        if (step == STEP_DAMAGED)
            hf_alarm(seg, HF_ALARM_CORRUPT, 1);
        if (step != STEP_FOUND)
            return false;
        uint64_t next =
            hf_load_rlx_u64(&seg->slots[slot_idx].slot_next); /* relaxed: read with acquire before, ours */

        if (pred != NULL) {
            /* E4 release -> walk_chain. CRASH before: still linked, removed again. After: out; readers that stand on it
             * follow its own slot_next, which stays as it is until the slot is filled again. */
            hf_store_rel_u64(&pred->slot_next, next);
            return true;
        }
        uint64_t link = hf_link_make(hf_link_slot(next), hf_link_gen(next), hf_link_count(head) + 1U);
        if (hf_cas_acqrel_u64(head_word, head, link)) /* E3 release -> hf_index_find */
            return true;
    }
    return false;
}
