#include "core/name_cache.h"

#include "core/name.h"

#define _LGPL_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <urcu-bp.h>
#include <urcu/rculfhash.h>

#define HF_NAME_CACHE_TEXT (4 * 64)

/* Never changed once it is in the table; never removed before the table goes: readers need no copy. */
struct hf_name_entry {
    struct cds_lfht_node node;
    struct hf_path path;
    uint32_t bytes;
    uint32_t
        complete; /* stored last; says the same as the table's own publication, to checkers that cannot see that */
    char text[HF_NAME_CACHE_TEXT]; /* the four names, each with its length in front */
};

struct hf_name_cache {
    struct cds_lfht *table;
    pthread_mutex_t adding; /* taken by adders only, and only tried: nobody waits for it */
    uint32_t used;
    struct hf_name_entry entries[HF_NAME_CACHE_ENTRIES];
};

/* What an entry is looked up by. */
struct hf_name_key {
    char text[HF_NAME_CACHE_TEXT];
    uint32_t bytes;
    uint32_t gen;
};

static void hf_name_key_add(struct hf_name_key *key, const char *text, uint32_t bytes)
{
    key->text[key->bytes++] = (char)bytes;
    memcpy(key->text + key->bytes, text, bytes);
    key->bytes += bytes;
}

static void hf_name_key_make(const struct hf_names *names, uint32_t gen, struct hf_name_key *key)
{
    key->bytes = 0;
    key->gen = gen;
    hf_name_key_add(key, names->tenant, names->tenant_bytes);
    hf_name_key_add(key, names->team, names->team_bytes);
    hf_name_key_add(key, names->key_bytes != 0 ? names->key : "", names->key_bytes);
    hf_name_key_add(key, names->cap, names->cap_bytes);
}

static int hf_name_match(struct cds_lfht_node *node, const void *arg)
{
    const struct hf_name_entry *entry = caa_container_of(node, struct hf_name_entry, node);
    const struct hf_name_key *key = arg;
    /* E21 acquire -> hf_name_cache_add: the entry is complete. */
    return hf_load_acq_u32(&entry->complete) != 0 && entry->path.policy_gen == key->gen &&
           entry->bytes == key->bytes && memcmp(entry->text, key->text, key->bytes) == 0;
}

static unsigned long hf_name_key_hash(const struct hf_name_key *key)
{
    return (unsigned long)hf_name_hash(key->text, key->bytes, key->gen);
}

/* After fork the child is one thread: the readers of the parent's other threads must not be waited for. */
static void hf_name_cache_atfork(void)
{
    pthread_atfork(urcu_bp_before_fork, urcu_bp_after_fork_parent, urcu_bp_after_fork_child);
}

struct hf_name_cache *hf_name_cache_create(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, hf_name_cache_atfork);
    struct hf_name_cache *cache = calloc(1, sizeof *cache);
    if (cache == NULL) {
        return NULL;
    }
    /* Fixed size, no automatic resize: nothing is allocated and no thread is started later. */
    cache->table = cds_lfht_new(2 * HF_NAME_CACHE_ENTRIES, 2 * HF_NAME_CACHE_ENTRIES,
                                2 * HF_NAME_CACHE_ENTRIES, 0, NULL);
    if (cache->table == NULL || pthread_mutex_init(&cache->adding, NULL) != 0) {
        if (cache->table != NULL) {
            cds_lfht_destroy(cache->table, NULL);
        }
        free(cache);
        return NULL;
    }
    return cache;
}

void hf_name_cache_destroy(struct hf_name_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    rcu_read_lock();
    for (uint32_t i = 0; i < cache->used; i++) {
        cds_lfht_del(cache->table, &cache->entries[i].node);
    }
    rcu_read_unlock();
    synchronize_rcu();
    cds_lfht_destroy(cache->table, NULL);
    pthread_mutex_destroy(&cache->adding);
    free(cache);
}

const struct hf_path *hf_name_cache_find(struct hf_name_cache *cache, const struct hf_names *names,
                                         uint32_t gen)
{
    struct hf_name_key key;
    struct cds_lfht_iter iter;
    hf_name_key_make(names, gen, &key);
    rcu_read_lock();
    cds_lfht_lookup(cache->table, hf_name_key_hash(&key), hf_name_match, &key, &iter);
    struct cds_lfht_node *node = cds_lfht_iter_get_node(&iter);
    rcu_read_unlock();
    return node == NULL ? NULL : &caa_container_of(node, struct hf_name_entry, node)->path;
}

void hf_name_cache_add(struct hf_name_cache *cache, const struct hf_names *names, const struct hf_path *path)
{
    struct hf_name_key key;
    if (pthread_mutex_trylock(&cache->adding) != 0) {
        return;
    }
    if (cache->used < HF_NAME_CACHE_ENTRIES) {
        hf_name_key_make(names, path->policy_gen, &key);
        struct hf_name_entry *entry = &cache->entries[cache->used];
        hf_path_copy(&entry->path, path);
        entry->bytes = key.bytes;
        memcpy(entry->text, key.text, key.bytes);
        hf_store_rel_u32(&entry->complete, 1); /* E21 release -> hf_name_match */
        cds_lfht_node_init(&entry->node);
        rcu_read_lock();
        struct cds_lfht_node *there =
            cds_lfht_add_unique(cache->table, hf_name_key_hash(&key), hf_name_match, &key, &entry->node);
        rcu_read_unlock();
        cache->used += there == &entry->node ? 1 : 0;
    }
    pthread_mutex_unlock(&cache->adding);
}
