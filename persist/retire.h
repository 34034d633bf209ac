/* The end of a slot's life: from final, abandoned or half-made to FREE. The daemon alone frees.
 *
 * Order (each step may be the last of a killed daemon; the next one begins again and finds the rest to do):
 *
 *   claim         a live claimant keeps the slot; from here no settle, extension or dispute begins on it
 *   ready, detach what W names is applied to the end, then W names the slot no more. Left out of a slot that was closed for good
 *                 before the operation that W was last seen at: W has gone on from it
 *   re-check st   a closing that its dead claimant had got through W shows now: the slot owes a receipt, and stays. (Not of a slot
 *                 closed for good, from which no closing starts: there st alone says that it is still that life of it)
 *   unlink        not found by id any more, but complete: a closing by token still works and is swept
 *   ABANDONED     nobody acts on it any more (a late settle by token answers unknown-reservation)
 *   unclaim       so that no claim of ours lies over the next life
 *   FREE          keeps the generation; the free bit tells the chunk's owner
 *
 * Killed after the claim: a dead claim, taken over by whoever comes. Killed after ABANDONED: swept and freed as any abandoned
 * slot. Killed after FREE: the free bit is made again by hf_chunk_return().
 */
#ifndef HF_PERSIST_RETIRE_H
#define HF_PERSIST_RETIRE_H

#include "shm/segment.h"

/* Frees the slot whose state is st (final with every receipt committed, or abandoned). word_seqs: what hf_commit_detach() has seen of
 * W, one for each of the segment's tenants. HF_OK: it is FREE, its generation kept.
 * HF_EBUSY: claimed by a live process, or it has changed: look at it again. HF_ECORRUPT: its tenant cannot be made ready. */
int hf_retire_slot(struct hf_segment *seg, uint64_t daemon_ref, uint32_t slot_idx, struct hf_u128 st,
                   uint64_t *word_seqs);

/* A slot that is FILLING or PENDING as st says: when who fills it is dead and it never got to W, it is ABANDONED, and true
 * is returned. */
bool hf_retire_bury(struct hf_segment *seg, uint32_t slot_idx, struct hf_u128 st);

#endif
