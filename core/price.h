/* What a call costs: the prices of a model and the two sums made of them. Micros and tokens in, micros and
 * tokens out; every product in 128 bits, every item of the bill rounded up on its own. */
#ifndef HF_CORE_PRICE_H
#define HF_CORE_PRICE_H

#include <stdbool.h>
#include <stdint.h>

/* Prices in micros per million tokens, 0..HF_AMOUNT_MAX. */
struct hf_price {
    uint64_t input;
    uint64_t output;
    uint64_t cached_input; /* HF_UNKNOWN: names no price of its own, cached tokens cost as uncached ones */
    uint64_t cache_write;  /* HF_UNKNOWN: likewise for tokens written to the provider's cache */
    uint64_t max_output_tokens; /* the model's longest output, >= 1; HF_UNKNOWN: it has none */
};

/* The most that a request can come to: tokens = input + output; cost = all input at the dearest input price +
 * all output, plus 1 micro for each further input price that the model names, whatever the tokens.
 * max_output_tokens is the request's own; HF_UNKNOWN takes the model's, and if that has none, *tokens and
 * *cost become HF_UNKNOWN. Whether the request's is above the model's (model-limit) is the caller's check.
 * False, with *tokens and *cost untouched, when an amount given or computed is above the range: invalid-
 * amount. */
bool hf_price_worst(const struct hf_price *price, uint64_t input_tokens, uint64_t max_output_tokens,
                    uint64_t *tokens, uint64_t *cost);

/* What a call came to: tokens = input + output (cached and cache-write tokens are part of the input); cost =
 * the sum of the items {uncached input, cached input, cache-write input, output}, where a kind of input
 * without a price of its own counts as uncached. cached + cache_write <= input; 0 where the provider told
 * none. False, with *tokens and *cost untouched, when cached + cache_write > input, or an amount given or
 * computed is above the range: invalid-amount. */
bool hf_price_actual(const struct hf_price *price, uint64_t input_tokens, uint64_t cached_input_tokens,
                     uint64_t cache_write_input_tokens, uint64_t output_tokens, uint64_t *tokens,
                     uint64_t *cost);

#endif
