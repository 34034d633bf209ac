/* Deadlines of open reservations, compact, in this process: what the reaper looks through. */
#ifndef HF_PERSIST_DEADLINES_H
#define HF_PERSIST_DEADLINES_H

#include <stdbool.h>
#include <stdint.h>

struct hf_deadline {
    uint64_t deadline; /* elapsed scale, ms */
    uint32_t slot_idx;
    uint32_t gen;
};

struct hf_deadlines {
    struct hf_deadline *list; /* dense, in no order */
    uint32_t *place;          /* per slot: 1 + its place in the list, 0: none */
    uint32_t cnt;
    uint32_t slots_cnt;
    uint64_t next; /* none is earlier than this */
};

/* False: no memory. */
bool hf_deadlines_open(struct hf_deadlines *deadlines, uint32_t slots_cnt);
void hf_deadlines_close(struct hf_deadlines *deadlines);

/* The slot is open in this generation with this deadline. */
void hf_deadlines_set(struct hf_deadlines *deadlines, uint32_t slot_idx, uint32_t gen, uint64_t deadline);
/* The slot is not open. */
void hf_deadlines_clear(struct hf_deadlines *deadlines, uint32_t slot_idx);

#endif
