/* Which slots a process may fill: those of one chunk at a time, claimed by its owner word.
 *
 * A process holds the one chunk that it fills. When nothing is left in it, the chunk goes back, whatever its
 * slots carry (who filled a slot stands in the slot), and stays the process's home: it looks there first when
 * slots have become free. So an idle process keeps one chunk from the others, however much it once filled.
 * FILLING and PENDING slots of a process are in the chunk that it holds, also when it is dead.
 */
#ifndef HF_SHM_CHUNK_H
#define HF_SHM_CHUNK_H

#include "shm/owner.h"

/* Place of one handle among the chunks. No allocation. */
struct hf_chunks {
    uint32_t current;   /* chunk held, HF_SHM_NONE */
    uint32_t cursor;    /* where to look for another one */
    uint64_t free_bits; /* slots of it that are believed to be free, taken from chunk_free */
};

/* A bit for each slot of a chunk: any other bit in its words is damage. */
static inline uint64_t hf_chunk_all(const struct hf_segment *seg)
{
    return seg->chunk_slots < 64U ? (1ULL << seg->chunk_slots) - 1U : ~0ULL;
}

/* start_hint spreads the processes over the segment (the owner index, say): any number will do. */
void hf_chunks_init(struct hf_chunks *chunks, uint32_t start_hint);

/* A slot with st FREE of a chunk held, or HF_SHM_NONE when nobody's chunk has one (hot path: bounded, no system
 * call). The caller alone may fill it; it fills it (any state but FREE) or gives it back before the next take.
 * Order: what is left in the chunk held; then, by one pass over the chunks from the cursor, a home or never
 * used chunk with free slots; then any chunk that nobody holds. */
uint32_t hf_chunk_take(struct hf_segment *seg, struct hf_chunks *chunks, uint64_t owner_ref);

/* The slot goes back unused (st FREE still): the next take may give it again. */
void hf_chunk_untake(struct hf_segment *seg, struct hf_chunks *chunks, uint32_t slot_idx);

/* Gives back the chunk of a leaving owner, and its homes to everybody. */
void hf_chunk_leave(struct hf_segment *seg, struct hf_chunks *chunks, uint64_t owner_ref);

/* Daemon: st of slot is FREE now; tells its owner by the free bit. */
void hf_chunk_freed(struct hf_segment *seg, uint32_t slot_idx);

/* Daemon: a chunk whose owner is gone and none of whose slots is FILLING or PENDING belongs to nobody again,
 * and its free bits are made again from its slots. Also repairs the free bits of a chunk nobody holds (a mark can
 * be lost with a daemon). True when it took the chunk from a dead owner. hf_owner_alive() is a system call. */
bool hf_chunk_return(struct hf_segment *seg, uint32_t chunk_idx);

/* The dirty mark of a slot. Set after apply by the committer and by every helper, right behind the CAS of its st; taken by the
 * daemon. */
static inline void hf_chunk_mark_dirty(const struct hf_segment *seg, uint32_t slot_idx)
{
    struct hf_shm_chunk *chunk = &seg->chunks[slot_idx >> seg->chunk_shift];
    /* E9 release -> hf_chunk_take_marks: it sees the state that was stored before the mark.
     * CRASH before: the daemon's sweep compares st with slot_persisted. */
    hf_store_rel_u8(&chunk->chunk_dirty[slot_idx & (seg->chunk_slots - 1U)], 1);
}

/* The marks of a chunk as they stand, a bit for each slot, damaged ones too. */
uint64_t hf_chunk_marks(const struct hf_segment *seg, uint32_t chunk_idx);

/* Daemon: takes the marks of a chunk, a bit for each of its slots. Who was marked before is to be looked at after.
 * CRASH after: the marks are lost, the next daemon looks at every slot. */
uint64_t hf_chunk_take_marks(struct hf_segment *seg, uint32_t chunk_idx);

#endif
