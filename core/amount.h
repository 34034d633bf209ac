/* Amounts: integers from 0 to 2^56 - 1 (invocations, tokens, micros), and arithmetic that never leaves that
 * range unnoticed.
 *
 * Unknown is never zero: HF_UNKNOWN is outside the range, and every function here refuses it as operand. */
#ifndef HF_CORE_AMOUNT_H
#define HF_CORE_AMOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HF_AMOUNT_MAX ((UINT64_C(1) << 56) - 1)
/* Not known, or no such limit, cap or price: which one, the field says. */
#define HF_UNKNOWN UINT64_MAX

/* True when value is an amount; HF_UNKNOWN is none. */
static inline bool hf_amount_valid(uint64_t value)
{
    return value <= HF_AMOUNT_MAX;
}

/* Sets *sum to a + b. False, with *sum untouched, when an operand or the sum is above the range. sum may point
 * to an operand. */
static inline bool hf_amount_add(uint64_t a, uint64_t b, uint64_t *sum)
{
    if (a > HF_AMOUNT_MAX || b > HF_AMOUNT_MAX - a) {
        return false;
    }
    *sum = a + b;
    return true;
}

/* Sets *sum to the sum of the cnt values (0 for none). False, with *sum untouched, when a value or the sum is
 * above the range. */
bool hf_amount_sum(const uint64_t *values, size_t cnt, uint64_t *sum);

/* Sets *result to ceil(a * b / divisor), the product in 128 bits. divisor > 0. a and b may be any 64-bit number
 * but HF_UNKNOWN. False, with *result untouched, when one is HF_UNKNOWN or the result is above the range. */
bool hf_amount_mul_div_ceil(uint64_t a, uint64_t b, uint64_t divisor, uint64_t *result);

#endif
