#include "persist/tally_table.h"

#include "core/name.h"

#include <stdlib.h>
#include <string.h>

#define ROWS_MIN  64U
#define BYTES_MIN 4096U

static size_t place_of(const struct hf_tally_table *table, const void *key, size_t len)
{
    size_t at = (size_t)hf_name_hash(key, len, 0) & table->places_mask;

    while (table->places[at] != 0) {
        const struct hf_tally_key *there = &table->keys[table->places[at] - 1U];

        if (there->len == len && memcmp(table->bytes + there->at, key, len) == 0) {
            break;
        }
        at = (at + 1) & table->places_mask;
    }
    return at;
}

/* Room for another row, with the places twice as many as rows can be. */
static bool grow_rows(struct hf_tally_table *table)
{
    size_t cap = table->rows_cap == 0 ? ROWS_MIN : 2 * table->rows_cap;

    if (table->cnt < table->rows_cap) {
        return true;
    }
    struct hf_tally_key *keys = realloc(table->keys, cap * sizeof(*keys));

    table->keys = keys == NULL ? table->keys : keys;
    int64_t *values = realloc(table->values, cap * table->values_cnt * sizeof(*values));

    table->values = values == NULL ? table->values : values;
    uint32_t *places = calloc(2 * cap, sizeof(*places));

    if (keys == NULL || values == NULL || places == NULL || cap > UINT32_MAX) {
        free(places);
        return false;
    }
    free(table->places);
    table->places = places;
    table->places_mask = 2 * cap - 1;
    table->rows_cap = cap;
    for (size_t i = 0; i < table->cnt; i++) {
        table->places[place_of(table, table->bytes + keys[i].at, keys[i].len)] = (uint32_t)i + 1U;
    }
    return true;
}

static bool grow_bytes(struct hf_tally_table *table, size_t len)
{
    size_t cap = table->bytes_cap == 0 ? BYTES_MIN : table->bytes_cap;

    while (cap - table->bytes_len < len) {
        cap *= 2;
    }
    if (cap == table->bytes_cap) {
        return true;
    }
    char *bytes = realloc(table->bytes, cap);

    if (bytes == NULL) {
        return false;
    }
    table->bytes = bytes;
    table->bytes_cap = cap;
    return true;
}

bool hf_tally_table_add(struct hf_tally_table *table, const void *key, size_t len, const int64_t *values)
{
    if (!grow_rows(table)) {
        return false;
    }
    size_t at = place_of(table, key, len);

    if (table->places[at] == 0) {
        if (!grow_bytes(table, len)) {
            return false;
        }
        memcpy(table->bytes + table->bytes_len, key, len);
        table->keys[table->cnt] = (struct hf_tally_key){.at = table->bytes_len, .len = len};
        table->bytes_len += len;
        memcpy(table->values + table->cnt * table->values_cnt, values, table->values_cnt * sizeof(*values));
        table->places[at] = (uint32_t)++table->cnt;
        return true;
    }
    int64_t *sums = table->values + (table->places[at] - 1U) * table->values_cnt;

    for (unsigned v = 0; v < table->values_cnt; v++) {
        if (__builtin_add_overflow(sums[v], values[v], &sums[v])) {
            return false;
        }
    }
    return true;
}

void hf_tally_table_free(struct hf_tally_table *table)
{
    free(table->keys);
    free(table->values);
    free(table->bytes);
    free(table->places);
    *table = (struct hf_tally_table){.values_cnt = table->values_cnt};
}
