/* The id index: hash chains through the slots. An id that is open or known stands in it once.
 *
 * A link is {slot + 1, generation}; heads carry a change count besides. Inserters scan the chain, then CAS its
 * head; so of two inserters of one id the second scans again and meets the first. Readers check the
 * generation of the slot a link names and start over where it changed. Only the daemon removes.
 *
 * A link behind which no other one follows may say so, and then carries eleven bits of its id's hash: who looks for another id
 * need not touch the slot, which is a line nowhere near. It stays true, since slots are put in at the head alone. A link that does
 * not say so may be the last one all the same. A link out of range hides nothing, whatever it says: it is damage.
 *
 * A head that is the same word after a scan as before it stands over nothing that was not scanned. A slot is linked once in a life
 * (generation), and at the head alone: so what has been put over the {slot, generation} that was scanned, or into a chain
 * that was empty, is out again by then, and forgotten, and what stands there now was scanned. The count is for a slot that stands at its
 * head in the same generation again: 2^20 lives later, all of them while one inserter stood still. Eight bits of it are enough for
 * that.
 */
#ifndef HF_SHM_INDEX_H
#define HF_SHM_INDEX_H

#include "shm/segment.h"

enum hf_index_result {
    HF_INDEX_ABSENT = 0,
    HF_INDEX_FOUND = 1, /* *slot_idx and *st are the slot and its state as seen */
    HF_INDEX_BUSY = 2,  /* chain kept changing, or is damaged: bounded tries are used up */
    HF_INDEX_INSERTED = 3
};

/* Hash of an id in this segment. */
uint32_t hf_index_hash(const struct hf_segment *seg, const char *id, uint32_t id_bytes);

/* Fetches the head of the id's chain, and later the first slot in it: an insertion or a look that comes some tens of nanoseconds later
 * waits less for lines that another processor has written. For reading: seven other heads are in the line, and a refusal or a replay
 * writes none of them. */
static inline void hf_index_prefetch_head(const struct hf_segment *seg, uint32_t hash)
{
    __builtin_prefetch(&seg->heads[hash & seg->heads_mask]);
}
void hf_index_prefetch_chain(const struct hf_segment *seg, uint32_t hash);

/* Whether a slot in this state is known at now_ms (semantics.md, section 3): PENDING and open ones always; settled,
 * released, late and resolved ones while now_ms - st.time < replay horizon; expired, retained and disputed
 * ones likewise with the late horizon; FREE, FILLING, ABANDONED and credits never. */
bool hf_index_known(const struct hf_segment *seg, struct hf_u128 st, uint64_t now_ms);

/* Finds the slot that carries the id and is known at now_ms. */
enum hf_index_result hf_index_find(const struct hf_segment *seg, uint32_t hash, const char *id,
                                   uint32_t id_bytes, uint64_t now_ms, uint32_t *slot_idx,
                                   struct hf_u128 *st);

/* Inserts slot new_idx (PENDING, fields complete, id and slot_id_bytes filled) at the head of its chain
 * unless the id is known at now_ms: HF_INDEX_FOUND then. A forgotten slot of the same id may still hang
 * in the chain behind it until the daemon takes it out. */
enum hf_index_result hf_index_insert(struct hf_segment *seg, uint32_t hash, const char *id, uint32_t id_bytes,
                                     uint64_t now_ms, uint32_t new_idx, uint32_t *slot_idx,
                                     struct hf_u128 *st);

/* Daemon only: takes the slot out of its chain. False when it is not in it. */
bool hf_index_remove(struct hf_segment *seg, uint32_t hash, uint32_t slot_idx);

#endif
