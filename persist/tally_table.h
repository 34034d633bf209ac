/* Sums by key in memory: a key of some bytes has a row of integers. For who adds up what a store would with GROUP BY. */
#ifndef HF_PERSIST_TALLY_TABLE_H
#define HF_PERSIST_TALLY_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HF_TALLY_VALUES_MAX 11U

/* Zeroed but for values_cnt: an empty one. */
struct hf_tally_table {
    unsigned values_cnt; /* integers of a row, at most HF_TALLY_VALUES_MAX */
    size_t cnt;          /* rows */
    size_t rows_cap;
    struct hf_tally_key {
        size_t at; /* in bytes */
        size_t len;
    } * keys;
    int64_t *values;
    char *bytes; /* of all keys */
    size_t bytes_len;
    size_t bytes_cap;
    uint32_t *places; /* open addressing: row + 1, 0 empty; at most half full */
    size_t places_mask;
};

/* Adds values to the row of that key, which is made with zeros when there is none. False: no memory, or a sum does not fit; the
 * table is of no use any more then, but to be freed. */
bool hf_tally_table_add(struct hf_tally_table *table, const void *key, size_t len, const int64_t *values);

/* Frees the rows; values_cnt stays. */
void hf_tally_table_free(struct hf_tally_table *table);

/* The i-th row, i < cnt: in the order in which they came. Valid until the next add. */
static inline const char *hf_tally_table_key(const struct hf_tally_table *table, size_t i)
{
    return table->bytes + table->keys[i].at;
}
static inline const int64_t *hf_tally_table_values(const struct hf_tally_table *table, size_t i)
{
    return table->values + i * table->values_cnt;
}

#endif
