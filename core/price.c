#include "core/price.h"

#include "core/amount.h"

/* Prices are per this many tokens. */
#define PRICED_TOKENS UINT64_C(1000000)

/* One line of the bill. */
static bool item(uint64_t tokens, uint64_t price, uint64_t *cost)
{
    return hf_amount_mul_div_ceil(tokens, price, PRICED_TOKENS, cost);
}

bool hf_price_worst(const struct hf_price *price, uint64_t input_tokens, uint64_t max_output_tokens,
                    uint64_t *tokens, uint64_t *cost)
{
    uint64_t dearest = price->input;
    uint64_t items[3] = {0, 0, 0}; /* input, output, what rounding item by item can add */
    uint64_t sum;

    if (max_output_tokens == HF_UNKNOWN) {
        max_output_tokens = price->max_output_tokens;
    }
    if (!hf_amount_valid(input_tokens)) {
        return false;
    }
    if (max_output_tokens == HF_UNKNOWN) {
        *tokens = HF_UNKNOWN;
        *cost = HF_UNKNOWN;
        return true;
    }
    if (price->cached_input != HF_UNKNOWN) {
        items[2]++;
        dearest = price->cached_input > dearest ? price->cached_input : dearest;
    }
    if (price->cache_write != HF_UNKNOWN) {
        items[2]++;
        dearest = price->cache_write > dearest ? price->cache_write : dearest;
    }
    if (!hf_amount_add(input_tokens, max_output_tokens, &sum) || !item(input_tokens, dearest, &items[0]) ||
        !item(max_output_tokens, price->output, &items[1]) || !hf_amount_sum(items, 3, cost)) {
        return false;
    }
    *tokens = sum;
    return true;
}

bool hf_price_actual(const struct hf_price *price, uint64_t input_tokens, uint64_t cached_input_tokens,
                     uint64_t cache_write_input_tokens, uint64_t output_tokens, uint64_t *tokens,
                     uint64_t *cost)
{
    uint64_t uncached = input_tokens;
    uint64_t items[4] = {0, 0, 0, 0}; /* uncached input, cached input, cache-write input, output */
    uint64_t own;
    uint64_t sum;

    if (!hf_amount_add(cached_input_tokens, cache_write_input_tokens, &own) || own > input_tokens ||
        !hf_amount_add(input_tokens, output_tokens, &sum)) {
        return false;
    }
    if (price->cached_input != HF_UNKNOWN) {
        uncached -= cached_input_tokens;
        if (!item(cached_input_tokens, price->cached_input, &items[1])) {
            return false;
        }
    }
    if (price->cache_write != HF_UNKNOWN) {
        uncached -= cache_write_input_tokens;
        if (!item(cache_write_input_tokens, price->cache_write, &items[2])) {
            return false;
        }
    }
    if (!item(uncached, price->input, &items[0]) || !item(output_tokens, price->output, &items[3]) ||
        !hf_amount_sum(items, 4, cost)) {
        return false;
    }
    *tokens = sum;
    return true;
}
