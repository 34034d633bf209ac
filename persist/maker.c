#include "persist/maker.h"

#include "persist/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool hf_maker_of(const struct hf_segment *seg, char text[HF_MAKER_BYTES])
{
    const struct hf_shm_header *header = seg->header;
    struct hf_digest *digest = hf_digest_new();
    uint8_t out[HF_DIGEST_BYTES];
    char hex[2 * HF_DIGEST_BYTES + 1];
    char facts[256];
    /* The seed of the hash tables is random and stays inside: what is told of it is one-way. */
    int len = snprintf(facts, sizeof(facts), "holdfast/maker@1\n%" PRIu64 "\n%" PRIu64 "\n%" PRIu64 "\n",
                       header->hdr_hash_seed, header->hdr_epoch, header->hdr_created_ms);
    bool done = digest != NULL && hf_digest_bytes(digest, facts, (size_t)len, out);

    hf_digest_free(digest);
    if (done) {
        hf_digest_hex(out, hex);
        memcpy(text, hex, HF_MAKER_BYTES - 1);
        text[HF_MAKER_BYTES - 1] = '\0';
    }
    return done;
}

bool hf_maker_states(const struct hf_receipt *row, const char text[HF_MAKER_BYTES])
{
    char member[HF_MAKER_BYTES + 16];

    (void)snprintf(member, sizeof(member), "\"maker\":\"%s\"", text);
    return row->details != NULL && strstr(row->details, member) != NULL;
}
