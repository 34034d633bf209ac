#include "shm/chunk.h"

#define LOOK_AHEAD 64U /* chunks among which the next one with free slots is looked for */

void hf_chunks_init(struct hf_chunks *chunks, uint32_t start_hint)
{
    /* Spread by the golden ratio; taken modulo the number of chunks where it is used. */
    *chunks = (struct hf_chunks){.current = HF_SHM_NONE, .cursor = start_hint * 2654435769U};
}

/* Asks for the lines of the first of these slots of a chunk, which the daemon has written last: by the time that it is taken they
 * are here. */
static void prefetch_slot(const struct hf_segment *seg, uint32_t chunk_idx, uint64_t bits)
{
    const uint8_t *slot =
        (const uint8_t *)&seg->slots[(chunk_idx << seg->chunk_shift) + (uint32_t)__builtin_ctzll(bits)];

#pragma GCC unroll 8
    for (uint32_t line = 0; line < sizeof(struct hf_shm_slot); line += 64)
        hf_prefetch_write(slot + line);
}

/* Whether the chunk may be claimed, to go by what it says. homes: only an own home or one that is nobody's. */
static bool looks_free(const struct hf_shm_chunk *chunk, uint64_t owner_ref, bool homes)
{
    uint64_t home = hf_load_rlx_u64(&chunk->chunk_home); /* relaxed: a hint */

    /* relaxed: claim() decides by CAS and exchange. */
    return (!homes || home == 0 || home == owner_ref) && hf_load_rlx_u64(&chunk->chunk_free) != 0 &&
           hf_load_rlx_u64(&chunk->chunk_owner) == 0;
}

/* Asks for the lines of the slot that is taken next. Behind the last one of the chunk held that is one that was freed there meanwhile,
 * or else the first one of the chunk that will be claimed: the cursor moves there, past those that have nothing. In a segment that is
 * nearly full each take does so. */
static void prefetch_next(const struct hf_segment *seg, struct hf_chunks *chunks, uint64_t owner_ref)
{
    uint64_t held = chunks->free_bits;

    if (held == 0) /* relaxed: only tells what to fetch. */
        held = hf_load_rlx_u64(&seg->chunks[chunks->current].chunk_free) & hf_chunk_all(seg);
    if (held != 0) {
        prefetch_slot(seg, chunks->current, held);
        return;
    }
    uint32_t idx = chunks->cursor % seg->chunks_cnt;
    uint32_t left = seg->chunks_cnt < LOOK_AHEAD ? seg->chunks_cnt : LOOK_AHEAD;

    for (; left > 0; left--) {
        const struct hf_shm_chunk *chunk = &seg->chunks[idx];

        if (looks_free(chunk, owner_ref, true)) {
            /* relaxed: only tells what to fetch. */
            uint64_t bits = hf_load_rlx_u64(&chunk->chunk_free) & hf_chunk_all(seg);

            if (bits != 0)
                prefetch_slot(seg, idx, bits);
            break;
        }
        idx = idx + 1U < seg->chunks_cnt ? idx + 1U : 0;
    }
    chunks->cursor = idx;
}

/* The first slot of the chunk held that is free in truth; HF_SHM_NONE when its bits are used up. */
static uint32_t take_from_current(const struct hf_segment *seg, struct hf_chunks *chunks, uint64_t owner_ref)
{
    while (chunks->free_bits != 0) {
        uint32_t bit = (uint32_t)__builtin_ctzll(chunks->free_bits);
        uint32_t idx = (chunks->current << seg->chunk_shift) + bit;
        struct hf_u128 st = {0};

        chunks->free_bits &= chunks->free_bits - 1U;
        st.lo = hf_load_acq_u64(&seg->slots[idx].slot_st.lo); /* E6 acquire -> the daemon's FREE */
        /* A bit without FREE is one that came late, after its slot had been found free by other means. */
        if (hf_st_state(st) == HF_STATE_FREE) {
            prefetch_next(seg, chunks, owner_ref);
            return idx;
        }
    }
    return HF_SHM_NONE;
}

/* The chunk held belongs to nobody again; its home stays. Its slots are all filled, or have their bit set. */
static void put_back(struct hf_segment *seg, struct hf_chunks *chunks)
{
    if (chunks->current == HF_SHM_NONE)
        return;
    struct hf_shm_chunk *chunk = &seg->chunks[chunks->current];

    if (chunks->free_bits != 0)
        hf_or_acqrel_u64(&chunk->chunk_free, chunks->free_bits); /* E6 release -> claim */
    chunks->current = HF_SHM_NONE;
    chunks->free_bits = 0;
    /* E5 release -> claim: whoever fills slots here next sees ours as filled.
     * CRASH before: hf_chunk_return. After: anybody claims it. */
    hf_store_rel_u64(&chunk->chunk_owner, 0);
}

/* Takes a chunk that nobody holds, with its free bits. False when somebody was faster, or no bit is set. */
static bool claim(struct hf_segment *seg, struct hf_chunks *chunks, uint32_t chunk_idx, uint64_t owner_ref)
{
    struct hf_shm_chunk *chunk = &seg->chunks[chunk_idx];

    /* E5 acquire -> put_back, hf_chunk_return. CRASH after: hf_chunk_return makes the bits again from st. */
    if (!hf_cas_acqrel_u64(&chunk->chunk_owner, 0, owner_ref))
        return false;
    chunks->current = chunk_idx;
    chunks->free_bits =
        hf_xchg_acqrel_u64(&chunk->chunk_free, 0) & hf_chunk_all(seg); /* E6 acquire -> hf_chunk_freed */
    chunks->cursor = chunk_idx + 1U;
    hf_store_rlx_u64(&chunk->chunk_home, owner_ref); /* relaxed: a hint */
    if (chunks->free_bits != 0)
        return true;
    put_back(seg, chunks);
    return false;
}

/* One pass over the chunks from the cursor. homes: only own homes and those that are nobody's. */
static uint32_t take_from_other(struct hf_segment *seg, struct hf_chunks *chunks, uint64_t owner_ref,
                                bool homes)
{
    uint32_t idx = chunks->cursor % seg->chunks_cnt;

    for (uint32_t left = seg->chunks_cnt; left > 0; left--) {
        if (looks_free(&seg->chunks[idx], owner_ref, homes) && claim(seg, chunks, idx, owner_ref)) {
            uint32_t slot_idx = take_from_current(seg, chunks, owner_ref);

            if (slot_idx != HF_SHM_NONE)
                return slot_idx;
            put_back(seg, chunks);
        }
        idx = idx + 1U < seg->chunks_cnt ? idx + 1U : 0;
    }
    return HF_SHM_NONE;
}

uint32_t hf_chunk_take(struct hf_segment *seg, struct hf_chunks *chunks, uint64_t owner_ref)
{
    uint32_t idx = take_from_current(seg, chunks, owner_ref);

    if (idx != HF_SHM_NONE)
        return idx;
    if (chunks->current != HF_SHM_NONE) {
        /* What was freed here meanwhile. E6 acquire -> hf_chunk_freed */
        uint64_t *free_word = &seg->chunks[chunks->current].chunk_free;

        if (hf_load_rlx_u64(free_word) != 0) { /* relaxed: the exchange decides */
            chunks->free_bits =
                hf_xchg_acqrel_u64(free_word, 0) & hf_chunk_all(seg); /* E6 acquire, as above */
            idx = take_from_current(seg, chunks, owner_ref);
            if (idx != HF_SHM_NONE)
                return idx;
        }
        put_back(seg, chunks);
    }
    idx = take_from_other(seg, chunks, owner_ref, true);
    return idx != HF_SHM_NONE ? idx : take_from_other(seg, chunks, owner_ref, false);
}

void hf_chunk_untake(struct hf_segment *seg, struct hf_chunks *chunks, uint32_t slot_idx)
{
    if (slot_idx >= seg->slots_cnt)
        return;
    uint64_t bit = 1ULL << (slot_idx & (seg->chunk_slots - 1U));

    if (slot_idx >> seg->chunk_shift == chunks->current)
        chunks->free_bits |= bit;
    else
        hf_or_acqrel_u64(&seg->chunks[slot_idx >> seg->chunk_shift].chunk_free,
                         bit); /* E6 release -> claim */
}

void hf_chunk_leave(struct hf_segment *seg, struct hf_chunks *chunks, uint64_t owner_ref)
{
    put_back(seg, chunks);
    for (uint32_t idx = 0; idx < seg->chunks_cnt; idx++) {
        uint64_t *home = &seg->chunks[idx].chunk_home;

        if (hf_load_rlx_u64(home) == owner_ref)
            (void)hf_cas_acqrel_u64(home, owner_ref, 0); /* relaxed: a hint, nothing follows from it */
    }
}

void hf_chunk_freed(struct hf_segment *seg, uint32_t slot_idx)
{
    if (slot_idx >= seg->slots_cnt)
        return;
    /* E6 release -> claim, hf_chunk_take: st is FREE before its bit is seen.
     * CRASH before: the bit is missing until hf_chunk_return makes it again from st. */
    hf_or_acqrel_u64(&seg->chunks[slot_idx >> seg->chunk_shift].chunk_free,
                     1ULL << (slot_idx & (seg->chunk_slots - 1U)));
}

/* Bits of the slots of a chunk that are FREE; *filling: one is being filled. */
static uint64_t free_in_truth(const struct hf_segment *seg, uint32_t chunk_idx, bool *filling)
{
    uint64_t bits = 0;

    *filling = false;
    for (uint32_t i = 0; i < seg->chunk_slots; i++) {
        uint32_t idx = (chunk_idx << seg->chunk_shift) + i;
        struct hf_u128 st = {0};

        st.lo = hf_load_acq_u64(&seg->slots[idx].slot_st.lo); /* E6 acquire -> the owner's FILLING, PENDING */
        enum hf_state state = hf_st_state(st);
        if (state == HF_STATE_FREE)
            bits |= 1ULL << i;
        else if (state == HF_STATE_FILLING || state == HF_STATE_PENDING)
            *filling = true;
    }
    return bits;
}

bool hf_chunk_return(struct hf_segment *seg, uint32_t chunk_idx)
{
    if (chunk_idx >= seg->chunks_cnt)
        return false;
    struct hf_shm_chunk *chunk = &seg->chunks[chunk_idx];
    uint64_t owner = hf_load_acq_u64(&chunk->chunk_owner); /* E5 acquire -> put_back */
    uint64_t home = hf_load_rlx_u64(&chunk->chunk_home);   /* relaxed: a hint */
    bool filling;

    if (owner != 0 && hf_owner_alive(seg, owner))
        return false;
    if (home != 0 && home != owner && !hf_owner_alive(seg, home))
        (void)hf_cas_acqrel_u64(&chunk->chunk_home, home, 0); /* relaxed: a hint, nothing follows from it */
    uint64_t bits = free_in_truth(seg, chunk_idx, &filling);
    if (owner != 0 && filling)
        return false;
    /* The bits are hints: one too many is found out by st, also if somebody claims and fills just now. */
    if ((bits & ~hf_load_rlx_u64(&chunk->chunk_free)) != 0) /* relaxed: the or below decides */
        hf_or_acqrel_u64(&chunk->chunk_free, bits);         /* E6 release -> claim */
    if (owner == 0)
        return false;
    if (home == owner)
        (void)hf_cas_acqrel_u64(&chunk->chunk_home, home, 0); /* relaxed: a hint, nothing follows from it */
    return hf_cas_acqrel_u64(&chunk->chunk_owner, owner, 0);  /* E5 release -> claim */
}

uint64_t hf_chunk_marks(const struct hf_segment *seg, uint32_t chunk_idx)
{
    const uint8_t *marks = seg->chunks[chunk_idx].chunk_dirty;
    uint64_t bits = 0;

    for (uint32_t i = 0; i < 64; i++)
        bits |= (uint64_t)(hf_load_rlx_u8(&marks[i]) != 0) << i; /* relaxed: only looks */
    return bits;
}

uint64_t hf_chunk_take_marks(struct hf_segment *seg, uint32_t chunk_idx)
{
    uint64_t *words = (uint64_t *)(void *)seg->chunks[chunk_idx].chunk_dirty;
    uint64_t bits = 0;

    for (uint32_t i = 0; i < 8; i++) {
        if (hf_load_rlx_u64(&words[i]) == 0) /* relaxed: the exchange decides */
            continue;
        /* E9 acqrel -> hf_chunk_mark_dirty: the state that was stored before the mark is seen. */
        uint64_t marks = hf_xchg_acqrel_u64(&words[i], 0) & 0x0101010101010101U;
        /* The product moves the lowest bit of byte b to bit 56 + b. */
        bits |= (marks * 0x0102040810204080U >> 56) << 8U * i;
    }
    return bits & hf_chunk_all(seg);
}
