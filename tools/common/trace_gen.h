/* A generator of synthetic traffic in the format of the Azure LLM inference trace (tools/common/trace.h), for
 * those who have no trace at hand. The same seed gives the same bytes on every machine: all is integer arithmetic.
 *
 * Calls come one by one with exponential gaps (400 ms on average) and, about every 60 calls, in a burst of about
 * 40 with gaps of 10 ms. Input and output tokens are log-normal like those of a chat service: half of the inputs have at
 * most 900 tokens, half of the outputs at most 160, a few are 10 times longer. About one call in 100 fails: its
 * output is 0. */
#ifndef HF_TOOLS_COMMON_TRACE_GEN_H
#define HF_TOOLS_COMMON_TRACE_GEN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define HF_TRACE_GEN_ROWS        3000
#define HF_TRACE_GEN_SEED        1
#define HF_TRACE_GEN_ROW_CNT_MAX 100000000
#define HF_TRACE_GEN_INPUT_MAX   32000
#define HF_TRACE_GEN_OUTPUT_MAX  2000

struct hf_trace_gen {
    uint64_t random;
    /* Since the first row. */
    uint64_t at_ns;
    bool started;
    bool in_burst;
};

struct hf_trace_gen_row {
    uint64_t at_ns;
    uint64_t input_tokens;
    uint64_t output_tokens;
};

/* Starts a sequence; every seed is good. */
void hf_trace_gen_start(struct hf_trace_gen *gen, uint64_t seed);

/* The next row of the sequence; it never ends. */
struct hf_trace_gen_row hf_trace_gen_next(struct hf_trace_gen *gen);

/* Writes a trace of row_cnt rows (at most HF_TRACE_GEN_ROW_CNT_MAX) with its header and flushes. Returns 0, -EINVAL for more rows, or
 * the negative errno of the first failed write. */
int hf_trace_gen_write(FILE *to, uint64_t row_cnt, uint64_t seed) __attribute__((warn_unused_result));

#endif
