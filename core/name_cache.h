/* Resolved paths of this process, by their four names: one lookup instead of five. An RCU hash table (bp flavour, no
 * registration of threads) over a fixed pool, so that the hot path never allocates: when the pool is used up,
 * callers resolve by the policy's table. Entries of an older policy generation are not used any more. */
#ifndef HF_CORE_NAME_CACHE_H
#define HF_CORE_NAME_CACHE_H

#include "core/path.h"

#define HF_NAME_CACHE_ENTRIES 1024U

struct hf_name_cache;

struct hf_name_cache *hf_name_cache_create(void); /* NULL: no memory */
void hf_name_cache_destroy(struct hf_name_cache *cache);

/* The four names of a path with their lengths; key_bytes 0: none. */
struct hf_names {
    const char *tenant, *team, *key, *cap;
    uint32_t tenant_bytes, team_bytes, key_bytes, cap_bytes;
};

/* The cached path of these names for this generation, or NULL. Valid until the cache is destroyed. */
const struct hf_path *hf_name_cache_find(struct hf_name_cache *cache, const struct hf_names *names,
                                         uint32_t gen);
/* Adds a copy when there is room; no matter if not. */
void hf_name_cache_add(struct hf_name_cache *cache, const struct hf_names *names, const struct hf_path *path);

#endif
