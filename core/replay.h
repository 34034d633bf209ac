/* A known id again: the same input is answered as the first time, another is a conflict. */
#ifndef HF_CORE_REPLAY_H
#define HF_CORE_REPLAY_H

#include "core/slot.h"

enum hf_replay {
    HF_REPLAY_ABSENT = 0, /* the id is not known */
    HF_REPLAY_SAME = 1,   /* answer is the first answer */
    HF_REPLAY_CONFLICT = 2,
    HF_REPLAY_BUSY = 3 /* somebody live is at work on it */
};

/* Looks the id of want up, as known at now_ms. request carries the names as given, path (may hold HF_SHM_NONE rows) those of a resolved path.
 * Fills answer on HF_REPLAY_SAME. */
enum hf_replay hf_replay_look(struct holdfast *handle, const struct holdfast_request *request,
                              struct hf_want *want, uint64_t now_ms, struct holdfast_answer *answer);

/* The same for a slot that was found on the way into the index. */
enum hf_replay hf_replay_found(struct holdfast *handle, const struct holdfast_request *request,
                               struct hf_want *want, const struct hf_found *found,
                               struct holdfast_answer *answer);

#endif
