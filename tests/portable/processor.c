/* Makes and attaches a segment, as any program that uses holdfast does first. Prints the refusal and ends with 1 when this
 * processor is refused. The tests run it on emulated processors. */
#include "shm/segment.h"

#include <stdio.h>
#include <unistd.h>

int main(void)
{
    struct hf_segment_plan plan = {.slots = 64,
                                   .owners = 4,
                                   .tenants = 1,
                                   .rows = 1,
                                   .names = 1,
                                   .prices = 1,
                                   .policy_bytes = 4096,
                                   .replay_horizon_ms = 1000,
                                   .late_horizon_ms = 1000,
                                   .max_lag_ms = 1000,
                                   .epoch = 1,
                                   .group = (gid_t)-1,
                                   .store_name = "none",
                                   .store_url = "none:"};
    struct hf_segment seg;
    struct hf_error err = {.code = HF_OK, .text = ""};
    char path[64];

    /* What attaches asks before it looks at the file: a processor that is good enough hears that there is none. */
    (void)snprintf(path, sizeof path, "/tmp/holdfast-processor-%ld/none", (long)getpid());
    int attached = hf_segment_attach(path, &seg, &err);
    if (attached == HF_ESYS) {
        printf("attach: %s\n", err.text);
    } else if (attached != HF_EMISSING) {
        printf("attach: %d, %s\n", attached, err.text);
        return 2;
    }
    int made = hf_segment_create(path, &plan, &seg, &err);
    if (attached == HF_ESYS && made == HF_ESYS) {
        printf("create: %s\n", err.text);
    }
    int anonymous = hf_segment_create_anonymous(&plan, &seg, &err);
    if (anonymous == HF_OK) {
        struct hf_u128 *word = &seg.tenants[0].ten_word;
        bool swapped = hf_cas_acqrel_u128(word, (struct hf_u128){0, 0}, (struct hf_u128){1, 2});
        bool again = hf_cas_acqrel_u128(word, (struct hf_u128){0, 0}, (struct hf_u128){3, 4});
        printf("anonymous: swapped %d, again %d, {%llu, %llu}\n", swapped, again,
               (unsigned long long)word->lo, (unsigned long long)word->hi);
        hf_segment_detach(&seg);
        return swapped && !again && attached == HF_EMISSING ? 0 : 2;
    }
    printf("anonymous: %s\n", err.text);
    return anonymous == HF_ESYS && attached == HF_ESYS && made == HF_ESYS ? 1 : 2;
}
