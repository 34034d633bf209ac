#include "core/amount.h"

bool hf_amount_sum(const uint64_t *values, size_t cnt, uint64_t *sum)
{
    uint64_t total = 0;

    for (size_t i = 0; i < cnt; i++) {
        if (!hf_amount_add(total, values[i], &total)) {
            return false;
        }
    }
    *sum = total;
    return true;
}

bool hf_amount_mul_div_ceil(uint64_t a, uint64_t b, uint64_t divisor, uint64_t *result)
{
    uint64_t product;
    uint64_t quotient;

    if (a == HF_UNKNOWN || b == HF_UNKNOWN) {
        return false;
    }
    if (!__builtin_mul_overflow(a, b, &product)) {
        /* The usual case, without the much slower 128-bit division. */
        quotient = product / divisor + (product % divisor != 0);
        if (quotient > HF_AMOUNT_MAX) {
            return false;
        }
        *result = quotient;
        return true;
    }

    unsigned __int128 wide = (unsigned __int128)a * b;
    unsigned __int128 wide_quotient = wide / divisor + (wide % divisor != 0);

    if (wide_quotient > HF_AMOUNT_MAX) {
        return false;
    }
    *result = (uint64_t)wide_quotient;
    return true;
}
