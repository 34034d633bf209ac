/* Reservations as their receipts come by. */
#include "persist/verify_family.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_ENTRIES 4096

struct entry {
    int64_t seq;
    uint64_t id_hash;
    int64_t held[HF_DIM_CNT];
    uint8_t digest[HF_DIGEST_BYTES];
};

/* Entries are in the order of seq, since reservations come in it; the index is open addressing by the low bits of seq, which
 * rise with it too, so that neighbours share cache lines. */
struct hf_family {
    struct entry *entries;
    size_t cnt;
    size_t cap;
    size_t most;
    uint32_t *index; /* 1 + number of the entry; 0: free */
    size_t index_mask;
};

struct hf_family *hf_family_new(size_t most)
{
    struct hf_family *family = calloc(1, sizeof(*family));

    if (family != NULL) {
        family->most = most < 2 ? 2 : most;
    }
    return family;
}

void hf_family_free(struct hf_family *family)
{
    if (family != NULL) {
        free(family->entries);
        free(family->index);
        free(family);
    }
}

void hf_family_reset(struct hf_family *family)
{
    family->cnt = 0;
    if (family->index != NULL) {
        memset(family->index, 0, (family->index_mask + 1) * sizeof(*family->index));
    }
}

static size_t place_of(const struct hf_family *family, int64_t seq)
{
    size_t at = (size_t)seq & family->index_mask;

    while (family->index[at] != 0 && family->entries[family->index[at] - 1].seq != seq) {
        at = (at + 1) & family->index_mask;
    }
    return at;
}

static void index_all(struct hf_family *family)
{
    memset(family->index, 0, (family->index_mask + 1) * sizeof(*family->index));
    for (size_t i = 0; i < family->cnt; i++) {
        family->index[place_of(family, family->entries[i].seq)] = (uint32_t)i + 1;
    }
}

/* Forgets what is closed; when that is less than a quarter, the oldest quarter too. */
static void make_room(struct hf_family *family)
{
    size_t kept = 0;
    size_t too_many;

    for (size_t i = 0; i < family->cnt; i++) {
        if (family->entries[i].held[HF_DIM_INVOCATIONS] > 0) {
            family->entries[kept++] = family->entries[i];
        }
    }
    too_many = kept > family->cap - family->cap / 4 ? kept - (family->cap - family->cap / 4) : 0;
    memmove(family->entries, family->entries + too_many, (kept - too_many) * sizeof(*family->entries));
    family->cnt = kept - too_many;
    index_all(family);
}

static bool grow(struct hf_family *family)
{
    size_t cap = family->cap == 0 ? FIRST_ENTRIES : 2 * family->cap;
    size_t places = 64;
    struct entry *entries;
    uint32_t *index;

    cap = cap < family->most ? cap : family->most;
    while (places < 2 * cap) {
        places *= 2;
    }
    entries = realloc(family->entries, cap * sizeof(*entries));
    if (entries == NULL) {
        return false;
    }
    family->entries = entries;
    index = realloc(family->index, places * sizeof(*index));
    if (index == NULL) {
        return false;
    }
    family->cap = cap;
    family->index = index;
    family->index_mask = places - 1;
    index_all(family);
    return true;
}

/* Adds a row's effects. False: what they come to cannot be. */
static bool add_effects(struct entry *entry, const int64_t held[HF_DIM_CNT])
{
    bool fits = true;
    int64_t invocations;

    for (unsigned d = 0; d < HF_DIM_CNT; d++) {
        int64_t sum;

        /* What is out of range stays as it was: the row is found by its digest, too. */
        if (__builtin_add_overflow(entry->held[d], held[d], &sum)) {
            fits = false;
            continue;
        }
        entry->held[d] = sum;
        fits = fits && sum >= 0;
    }
    invocations = entry->held[HF_DIM_INVOCATIONS];
    return fits && (invocations == 1 ||
                    (invocations == 0 && entry->held[HF_DIM_TOKENS] == 0 && entry->held[HF_DIM_COST] == 0));
}

static enum hf_family_answer add_reservation(struct hf_family *family, const struct hf_family_row *row)
{
    struct entry *entry;

    if (family->cnt == family->cap) {
        if (family->cap < family->most && !grow(family)) {
            return HF_FAMILY_NOMEM;
        }
        if (family->cnt == family->cap) {
            make_room(family);
        }
    }
    entry = &family->entries[family->cnt++];
    memset(entry, 0, sizeof(*entry));
    entry->seq = row->seq;
    entry->id_hash = row->id_hash;
    memcpy(entry->digest, row->digest, HF_DIGEST_BYTES);
    family->index[place_of(family, row->seq)] = (uint32_t)family->cnt;
    if (row->reservation_seq != row->seq) {
        return HF_FAMILY_ID;
    }
    return add_effects(entry, row->held) && entry->held[HF_DIM_INVOCATIONS] == 1 ? HF_FAMILY_FITS
                                                                                 : HF_FAMILY_UNEVEN;
}

enum hf_family_answer hf_family_add(struct hf_family *family, const struct hf_family_row *row)
{
    struct entry *entry;
    uint32_t found;

    if (row->reserves) {
        return add_reservation(family, row);
    }
    found = family->cnt == 0 ? 0 : family->index[place_of(family, row->reservation_seq)];
    if (found == 0) {
        return HF_FAMILY_FORGOTTEN;
    }
    entry = &family->entries[found - 1];
    if (row->reservation_digest == NULL ||
        memcmp(row->reservation_digest, entry->digest, HF_DIGEST_BYTES) != 0) {
        return HF_FAMILY_DIGEST;
    }
    if (row->id_hash != entry->id_hash) {
        return HF_FAMILY_ID;
    }
    return add_effects(entry, row->held) ? HF_FAMILY_FITS : HF_FAMILY_UNEVEN;
}
