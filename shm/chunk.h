/* Which slots a process may fill: chunks of slots claimed by an owner word, more as needed. */
#ifndef HF_SHM_CHUNK_H
#define HF_SHM_CHUNK_H

#include "shm/owner.h"

/* Chunks of one handle. No allocation: the list is threaded through chunk numbers found again by owner
 * word; the cursor remembers where. */
struct hf_chunks {
    uint32_t current;      /* chunk the free bits belong to, HF_SHM_NONE */
    uint64_t free_bits;    /* slots of it that are believed to be free, taken from chunk_free */
    uint32_t cursor;       /* where to look for another chunk */
    uint32_t owned_cnt;    /* chunks held */
};

void hf_chunks_init(struct hf_chunks *chunks, uint32_t start_hint);

/* A slot of an own chunk with st FREE, or HF_SHM_NONE when there is none (hot path: bounded, no system
 * call). The caller alone may fill it. Order: rest of the current chunk; own chunks with free bits; a new
 * chunk by CAS; the st words of own chunks themselves. A wholly free second chunk is given back. */
uint32_t hf_chunk_take(struct hf_segment *seg, struct hf_chunks *chunks, uint64_t owner_ref);

/* The slot goes back unused (st FREE still): the next take may give it again. */
void hf_chunk_untake(struct hf_segment *seg, struct hf_chunks *chunks, uint32_t slot_idx);

/* Gives back the chunks of a leaving owner: those with slots in use stay its until the daemon returns them
 * (hf_chunk_return treats an owner that left like a dead one). */
void hf_chunk_leave(struct hf_segment *seg, struct hf_chunks *chunks, uint64_t owner_ref);

/* Daemon: st of slot is FREE now; tells its owner by the free bit. */
void hf_chunk_freed(struct hf_segment *seg, uint32_t slot_idx);

/* Daemon: a chunk whose owner is gone and whose slots are all FREE belongs to nobody again. Returns true
 * when it was returned. Calls hf_owner_alive() (a system call). */
bool hf_chunk_return(struct hf_segment *seg, uint32_t chunk_idx);

/* The dirty mark of a slot. Set after apply by the committer and by every helper; taken by the daemon. */
static inline void hf_chunk_mark_dirty(const struct hf_segment *seg, uint32_t slot_idx)
{
    /* E9 acqrel -> the daemon's exchange: it sees the state that was stored before the mark.
     * CRASH before: the daemon's sweep compares st with slot_persisted. */
    hf_or_acqrel_u64(&seg->chunks[slot_idx >> seg->chunk_shift].chunk_dirty,
                     1ULL << (slot_idx & (seg->chunk_slots - 1U)));
}

#endif
