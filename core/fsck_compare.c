/* The sums of each tenant compared with its buckets, and confirmed. */
#include "core/fsck_impl.h"

#include <stdio.h>
#include <stdlib.h>

#define CONFIRM_LOOK 2U /* further exact looks that must say the same */

/* Buckets that differ: those of the first look, and of them what a further look finds the same. */
struct differing {
    struct hf_fsck_sum *list;
    uint8_t *seen; /* looks that agree */
    uint32_t cnt;
    uint32_t room;
    uint32_t look;
    uint64_t buckets;
    bool no_memory;
};

static void note_difference(struct differing *differing, const struct hf_fsck_sum *sum)
{
    if (differing->cnt == differing->room) {
        uint32_t room = differing->room == 0 ? 64 : 2 * differing->room;
        struct hf_fsck_sum *list = realloc(differing->list, room * sizeof(*list));

        if (list != NULL) {
            differing->list = list;
        }
        uint8_t *seen = realloc(differing->seen, room);

        if (seen != NULL) {
            differing->seen = seen;
        }
        if (list == NULL || seen == NULL) {
            differing->no_memory = true;
            return;
        }
        differing->room = room;
    }
    differing->seen[differing->cnt] = 0;
    differing->list[differing->cnt++] = *sum;
}

static void compare(void *ctx, const struct hf_fsck_sum *sum)
{
    struct differing *differing = ctx;

    if (differing->look == 0) {
        differing->buckets++;
        if (sum->expected != sum->found) {
            note_difference(differing, sum);
        }
        return;
    }
    for (uint32_t i = 0; i < differing->cnt; i++) {
        struct hf_fsck_sum *there = &differing->list[i];

        /* The same amount too much or too little, whatever happened in between. */
        if (there->row == sum->row && there->window == sum->window && there->dimension == sum->dimension &&
            there->window_id == sum->window_id &&
            there->found - there->expected == sum->found - sum->expected) {
            *there = *sum;
            differing->seen[i]++;
        }
    }
}

static void say_difference(struct hf_fsck *fsck, uint32_t tenant_idx, const struct hf_fsck_sum *sum)
{
    struct hf_fsck_item item = hf_fsck_item(HF_FSCK_BUCKET_VALUE, HF_FSCK_DAMAGE);
    bool high = sum->found > sum->expected;

    item.tenant = tenant_idx;
    item.row = sum->row;
    item.window = sum->window;
    item.window_id = sum->window_id;
    item.dimension = sum->dimension;
    hf_fsck_numbers(&item, sum->expected, sum->found);
    (void)snprintf(item.text, sizeof(item.text),
                   "the bucket holds %llu %s than is published as settled (%llu) and counted by the slots",
                   (unsigned long long)(high ? sum->found - sum->expected : sum->expected - sum->found),
                   high ? "more" : "less", (unsigned long long)sum->published);
    hf_fsck_say(fsck, &item);
}

static void say_not_checked(struct hf_fsck *fsck, uint32_t tenant_idx, int rc)
{
    struct hf_fsck_item item = hf_fsck_item(HF_FSCK_NOT_CHECKED, HF_FSCK_NOTE);

    item.tenant = tenant_idx;
    (void)snprintf(
        item.text, sizeof(item.text), "sums not checked: %s",
        rc == HF_EBUSY ? "too busy, or a batch is half written down; try again, or when there is less traffic"
        : rc == HF_ENOTREADY ? "what is settled is being published anew; a daemon does that when it starts"
        : rc == HF_ECORRUPT  ? "the operation that the commit word names cannot be applied"
                             : "no memory");
    hf_fsck_say(fsck, &item);
}

/* False without memory. */
static bool check_tenant(struct hf_fsck *fsck, uint32_t tenant_idx)
{
    struct differing differing = {.list = NULL};
    int rc = HF_OK;

    for (uint32_t look = 0; rc == HF_OK && look <= CONFIRM_LOOK; look++) {
        differing.look = look;
        rc = hf_fsck_take_sums(fsck, tenant_idx, compare, &differing);
        if (differing.cnt == 0) {
            break;
        }
        hf_fsck_nap(fsck->options.pause_ms);
    }
    if (rc == HF_OK && !differing.no_memory) {
        fsck->result->sums_proved++;
        fsck->result->buckets += differing.buckets;
        for (uint32_t i = 0; i < differing.cnt; i++) {
            if (differing.seen[i] == CONFIRM_LOOK) {
                say_difference(fsck, tenant_idx, &differing.list[i]);
            }
        }
    } else {
        fsck->result->sums_busy++;
        say_not_checked(fsck, tenant_idx, rc);
    }
    free(differing.list);
    free(differing.seen);
    return rc != HF_ESYS && !differing.no_memory;
}

bool hf_fsck_check_sums(struct hf_fsck *fsck)
{
    bool right = true;

    for (uint32_t i = 0; i < fsck->seg->tenants_cnt; i++) {
        if (hf_fsck_tenant_used(fsck->seg, i) &&
            (fsck->options.tenant == HF_SHM_NONE || fsck->options.tenant == i)) {
            right = check_tenant(fsck, i) && right;
        }
    }
    return right;
}
