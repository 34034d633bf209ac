#include "persist/deadlines.h"

#include <stdlib.h>

bool hf_deadlines_open(struct hf_deadlines *deadlines, uint32_t slots_cnt)
{
    *deadlines = (struct hf_deadlines){.slots_cnt = slots_cnt, .next = UINT64_MAX};
    deadlines->list = calloc(slots_cnt, sizeof(*deadlines->list));
    deadlines->place = calloc(slots_cnt, sizeof(*deadlines->place));
    if (deadlines->list == NULL || deadlines->place == NULL) {
        hf_deadlines_close(deadlines);
        return false;
    }
    return true;
}

void hf_deadlines_close(struct hf_deadlines *deadlines)
{
    free(deadlines->list);
    free(deadlines->place);
    *deadlines = (struct hf_deadlines){0};
}

void hf_deadlines_set(struct hf_deadlines *deadlines, uint32_t slot_idx, uint32_t gen, uint64_t deadline)
{
    if (deadlines->place[slot_idx] == 0) {
        deadlines->place[slot_idx] = ++deadlines->cnt;
    }
    deadlines->list[deadlines->place[slot_idx] - 1] = (struct hf_deadline){deadline, slot_idx, gen};
    if (deadline < deadlines->next) {
        deadlines->next = deadline;
    }
}

void hf_deadlines_clear(struct hf_deadlines *deadlines, uint32_t slot_idx)
{
    uint32_t place = deadlines->place[slot_idx];

    if (place == 0) {
        return;
    }
    struct hf_deadline last = deadlines->list[--deadlines->cnt];

    deadlines->list[place - 1] = last;
    deadlines->place[last.slot_idx] = place;
    deadlines->place[slot_idx] = 0;
}
