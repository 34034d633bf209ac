#include "tools/common/trace_gen.h"

#include <errno.h>
#include <inttypes.h>
#include <time.h>

/* Numbers with a fraction have 16 bits of it. */
#define ONE (1 << 16)

/* 2026-01-01 00:00:00 UTC. */
#define START_S        1767225600
#define NS_PER_S       1000000000
#define CALM_GAP_NS    400000000
#define BURST_GAP_NS   10000000
#define CALM_CALL_CNT  60
#define BURST_CALL_CNT 40
#define FAILURE_ONE_IN 100
#define INPUT_MEDIAN   900
#define OUTPUT_MEDIAN  160
/* Standard deviations of the base-2 logarithm. */
#define INPUT_DEVIATION  (ONE * 5 / 4)
#define OUTPUT_DEVIATION (ONE * 3 / 2)
#define UNIFORM_SUM_CNT  12

/* splitmix64 */
static uint64_t draw(struct hf_trace_gen *gen)
{
    uint64_t z = gen->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static bool one_in(struct hf_trace_gen *gen, uint64_t cnt)
{
    return draw(gen) % cnt == 0;
}

/* The base-2 logarithm of value / 2^32 for 0 < value < 2^32, as a positive number with a fraction (its sign is
 * left out): one bit of the fraction for each squaring. */
static uint64_t minus_log2(uint32_t value)
{
    unsigned shift = (unsigned)__builtin_clz(value);
    uint64_t whole = (uint64_t)shift + 1, mantissa = (uint64_t)value << shift, fraction = 0;

    /* mantissa / 2^31 is in [1, 2) */
    for (unsigned i = 0; i < 16; i++) {
        mantissa = (mantissa * mantissa) >> 31;
        fraction <<= 1;
        if (mantissa >> 32 != 0) {
            mantissa >>= 1;
            fraction |= 1;
        }
    }
    return whole * ONE - fraction;
}

/* 2 to the power of a number with a fraction, >= 0 and < 32, as a number with a fraction: a parabola through the
 * powers of 0, 1/2 and 1 is within 0.3 %. */
static uint64_t power_of_2(uint64_t exponent)
{
    uint64_t whole = exponent / ONE, fraction = exponent % ONE;
    uint64_t power = ONE + (fraction * 43148 + fraction * fraction / ONE * 22388) / ONE;

    return power << whole;
}

/* An exponentially distributed time with this mean: -ln(u) * mean, ln 2 = 45426 / 65536. */
static uint64_t draw_gap_ns(struct hf_trace_gen *gen, uint64_t mean_ns)
{
    uint64_t log = minus_log2((uint32_t)(draw(gen) >> 32) | 1);

    return ((log * 45426 / ONE) * (mean_ns / 1000) / ONE) * 1000;
}

/* A log-normally distributed number from 1 to max. The sum of 12 uniform numbers is normal enough: its mean is 6,
 * its deviation 1. */
static uint64_t draw_tokens(struct hf_trace_gen *gen, uint64_t median, uint64_t deviation, uint64_t max)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < UNIFORM_SUM_CNT; i++) {
        sum += draw(gen) >> 48;
    }

    bool above = sum >= UNIFORM_SUM_CNT / 2 * ONE;
    uint64_t distance = above ? sum - UNIFORM_SUM_CNT / 2 * ONE : UNIFORM_SUM_CNT / 2 * ONE - sum;
    uint64_t factor = power_of_2(distance * deviation / ONE);
    uint64_t tokens = above ? median * factor / ONE : median * ONE / factor;

    if (tokens > max) {
        return max;
    }
    return tokens < 1 ? 1 : tokens;
}

void hf_trace_gen_start(struct hf_trace_gen *gen, uint64_t seed)
{
    *gen = (struct hf_trace_gen){.random = seed};
}

struct hf_trace_gen_row hf_trace_gen_next(struct hf_trace_gen *gen)
{
    struct hf_trace_gen_row row;

    if (gen->started) {
        gen->at_ns += draw_gap_ns(gen, gen->in_burst ? BURST_GAP_NS : CALM_GAP_NS);
    }
    gen->started = true;
    if (one_in(gen, gen->in_burst ? BURST_CALL_CNT : CALM_CALL_CNT)) {
        gen->in_burst = !gen->in_burst;
    }
    row.at_ns = gen->at_ns;
    row.input_tokens = draw_tokens(gen, INPUT_MEDIAN, INPUT_DEVIATION, HF_TRACE_GEN_INPUT_MAX);
    row.output_tokens = draw_tokens(gen, OUTPUT_MEDIAN, OUTPUT_DEVIATION, HF_TRACE_GEN_OUTPUT_MAX);
    if (one_in(gen, FAILURE_ONE_IN)) {
        row.output_tokens = 0;
    }
    return row;
}

int hf_trace_gen_write(FILE *to, uint64_t row_cnt, uint64_t seed)
{
    struct hf_trace_gen gen;

    if (row_cnt > HF_TRACE_GEN_ROW_CNT_MAX) {
        return -EINVAL;
    }
    hf_trace_gen_start(&gen, seed);
    errno = 0;
    (void)fputs("TIMESTAMP,ContextTokens,GeneratedTokens\n", to);
    for (uint64_t i = 0; i < row_cnt && ferror(to) == 0; i++) {
        struct hf_trace_gen_row row = hf_trace_gen_next(&gen);
        time_t second = START_S + (time_t)(row.at_ns / NS_PER_S);
        struct tm tm;
        char when[32] = "";

        (void)gmtime_r(&second, &tm);
        (void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
        (void)fprintf(to, "%s.%07" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", when, row.at_ns % NS_PER_S / 100,
                      row.input_tokens, row.output_tokens);
    }
    if (fflush(to) != 0 || ferror(to) != 0) {
        return errno == 0 ? -EIO : -errno;
    }
    return 0;
}
