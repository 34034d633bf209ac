#include "shm/index.h"

#include "shm/hash.h"

#define HF_INDEX_TRIES 64U /* rounds in which a chain may change under its reader */

/* What a walk looks for and found. */
struct walk {
    const char *id;
    uint32_t id_bytes;
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

/* hf_link_excludes() of a link that nobody has looked at. One out of range excludes nothing: the walk tells that it is damage. */
static inline bool excludes(const struct hf_segment *seg, uint64_t link, uint32_t hash)
{
    return hf_link_slot(link) <= seg->slots_cnt && hf_link_excludes(link, hash);
}

uint32_t hf_index_hash(const struct hf_segment *seg, const char *id, uint32_t id_bytes)
{
    uint64_t hash = hf_hash_bytes(seg->hash_seed, id, id_bytes);

    return (uint32_t)(hash ^ hash >> 32);
}

void hf_index_prefetch_chain(const struct hf_segment *seg, uint32_t hash)
{
    /* relaxed: only tells what to fetch. */
    uint64_t link = hf_load_rlx_u64(&seg->heads[hash & seg->heads_mask]);

    if (!hf_link_excludes(link, hash) && hf_link_slot(link) <= seg->slots_cnt)
        __builtin_prefetch(&seg->slots[hf_link_slot(link) - 1U]);
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

static bool id_fits(uint32_t id_bytes)
{
    return id_bytes != 0 && id_bytes <= HF_SHM_NAME_BYTES;
}

/* Compares by whole atomic loads: the slot may be filled again meanwhile. Bytes behind the end of its id may be anything. */
static bool same_text(const struct hf_shm_slot *slot, const struct walk *walk)
{
    const uint64_t *theirs = (const uint64_t *)(const void *)slot->slot_id;
    uint64_t words[8] = {0};
    uint32_t whole = walk->id_bytes / 8U;
    uint32_t rest = walk->id_bytes % 8U;

    memcpy(words, walk->id, walk->id_bytes);
    for (uint32_t i = 0; i < whole; i++) {
        if (hf_load_rlx_u64(&theirs[i]) != words[i]) /* relaxed: ordered by E4 */
            return false;
    }
    if (rest == 0)
        return true;
    uint64_t mask = ~0ULL >> (64U - 8U * rest);
    return (hf_load_rlx_u64(&theirs[whole]) & mask) == words[whole]; /* relaxed: ordered by E4 */
}

/* Whether the slot carries the id; whatever it says, the caller then checks the generation. Another hash is read from the line of
 * the link itself, so of most strangers in a chain no other line is touched. */
static bool same_id(const struct hf_shm_slot *slot, const struct walk *walk)
{
    /* relaxed: ordered by E4. */
    return hf_load_rlx_u32(&slot->slot_id_hash) == walk->hash &&
           hf_load_rlx_u8(&slot->slot_id_bytes) == walk->id_bytes && same_text(slot, walk);
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
    for (uint32_t steps = 0; !excludes(seg, link, walk->hash); steps++) {
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

static struct walk begin_walk(const struct hf_segment *seg, uint32_t hash, const char *id, uint32_t id_bytes,
                              uint64_t now_ms, uint32_t own_idx)
{
    return (struct walk){.id = id,
                         .id_bytes = id_bytes,
                         .hash = hash,
                         .now_ms = now_ms,
                         .own_idx = own_idx,
                         .budget = 2U * seg->slots_cnt + 65536U};
}

/* hf_index_find() where the chain is not empty. */
static __attribute__((noinline)) enum hf_index_result
find_in_chain(const struct hf_segment *seg, struct walk walk, uint32_t *slot_idx, struct hf_u128 *st)
{
    for (uint32_t try = 0; try < HF_INDEX_TRIES; try++) {
        /* E3 acquire -> hf_index_insert: the slot behind a link is complete. */
        uint64_t head = hf_load_acq_u64(&seg->heads[walk.hash & seg->heads_mask]);

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

enum hf_index_result hf_index_find(const struct hf_segment *seg, uint32_t hash, const char *id,
                                   uint32_t id_bytes, uint64_t now_ms, uint32_t *slot_idx, struct hf_u128 *st)
{
    /* relaxed: of an empty chain, or one slot with another hash, no slot is looked at; another one is loaded again. */
    if (!id_fits(id_bytes) || excludes(seg, hf_load_rlx_u64(&seg->heads[hash & seg->heads_mask]), hash))
        return HF_INDEX_ABSENT;
    return find_in_chain(seg, begin_walk(seg, hash, id, id_bytes, now_ms, HF_SHM_NONE), slot_idx, st);
}

/* Puts the slot before the head that was scanned. False: the head has changed. */
static bool link_slot(const struct hf_segment *seg, uint32_t hash, uint32_t slot_idx, uint32_t gen,
                      uint64_t head)
{
    uint64_t *head_word = &seg->heads[hash & seg->heads_mask];

    /* relaxed: ours until the link; published by E3. */
    hf_store_rlx_u64(&seg->slots[slot_idx].slot_next, hf_link_inner(head));
    /* E3 release -> hf_index_find: fields, id and slot_next are complete. An unchanged head means that the chain holds
     * nothing but what was scanned (shm/index.h). CRASH before: a PENDING slot nobody can find. After: one that can be found. */
    return hf_cas_acqrel_u64(head_word, head, hf_link_over(head, slot_idx + 1U, gen, hash));
}

/* hf_index_insert() where the chain is not empty, or was lost once. */
static __attribute__((noinline)) enum hf_index_result insert_in_chain(struct hf_segment *seg,
                                                                      struct walk walk, uint32_t gen,
                                                                      uint32_t *slot_idx, struct hf_u128 *st)
{
    uint64_t *head_word = &seg->heads[walk.hash & seg->heads_mask];

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
        if (link_slot(seg, walk.hash, walk.own_idx, gen, head))
            return HF_INDEX_INSERTED;
        hf_pause();
    }
    return HF_INDEX_BUSY;
}

enum hf_index_result hf_index_insert(struct hf_segment *seg, uint32_t hash, const char *id, uint32_t id_bytes,
                                     uint64_t now_ms, uint32_t new_idx, uint32_t *slot_idx,
                                     struct hf_u128 *st)
{
    const struct hf_shm_slot *slot = hf_segment_slot(seg, new_idx);

    if (slot == NULL || !id_fits(id_bytes))
        return HF_INDEX_BUSY;
    uint32_t gen = (uint32_t)hf_load_rlx_u64(&slot->slot_st.hi) & 0xfffffU; /* relaxed: our own slot */
    uint64_t head =
        hf_load_acq_u64(&seg->heads[hash & seg->heads_mask]); /* E3 acquire -> another insertion */
    if (excludes(seg, head, hash) && link_slot(seg, hash, new_idx, gen, head))
        return HF_INDEX_INSERTED;
    return insert_in_chain(seg, begin_walk(seg, hash, id, id_bytes, now_ms, new_idx), gen, slot_idx, st);
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

/* Nothing follows first any more, the slot that the head names: the head says so. CRASH before, or lost to an inserter: who asks for
 * another id looks at one slot more. */
static void say_last(uint64_t *head_word, uint64_t head, const struct hf_shm_slot *first)
{
    uint64_t link = hf_link_make(hf_link_slot(head), hf_link_gen(head), hf_link_count(head) + 1U);

    /* relaxed: the hash was complete before the link (E3). */
    link = hf_link_last(link, hf_load_rlx_u32(&first->slot_id_hash));
    (void)hf_cas_acqrel_u64(head_word, head,
                            link); /* E3 release -> hf_index_find: after the store of slot_next */
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
            if (hf_link_slot(next) == 0 && pred == &seg->slots[hf_link_slot(head) - 1U])
                say_last(head_word, head, pred);
            return true;
        }
        uint64_t link = hf_link_inner(next) | hf_link_make(0, 0, hf_link_count(head) + 1U);
        if (hf_cas_acqrel_u64(head_word, head, link)) /* E3 release -> hf_index_find */
            return true;
    }
    return false;
}
