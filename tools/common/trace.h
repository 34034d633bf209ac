/* Reading of traces of real traffic, row by row, in two formats that the header line tells apart:
 *
 *   Azure LLM inference trace   TIMESTAMP,ContextTokens,GeneratedTokens
 *                               2023-11-16 18:17:03.9799600,4808,10
 *   BurstGPT                    Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
 *                               5,ChatGPT,472,18,490,Conversation log
 *
 * Lines may end in LF or CRLF, the last one in nothing; fields may be quoted; a byte order mark at the start and
 * lines without any text are passed over. An Azure time may end in a UTC offset (+00:00) as in the trace of 2024;
 * a BurstGPT time is in seconds, whole or with a fraction. What is finer than a nanosecond is cut off. The total
 * must be a number and is not used.
 *
 * A row that cannot be read is reported with its line number and the reason, skipped and counted.
 *
 * Time never goes back: a row stamped earlier than the row before it counts as arriving with that one. Rows keep
 * their order. */
#ifndef HF_TOOLS_COMMON_TRACE_H
#define HF_TOOLS_COMMON_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A longer line, its end not counted, is a malformed row. */
#define HF_TRACE_LINE_BYTES_MAX 4095

/* hf_trace_next(): there is no further row. */
#define HF_TRACE_END 1

enum hf_trace_format {
    HF_TRACE_AZURE,
    HF_TRACE_BURSTGPT,
};

struct hf_trace_row {
    /* Line of the file, from 1, the header counted. */
    uint64_t line;
    /* Since the first row that could be read. */
    uint64_t at_ns;
    /* A name (core/name.h), valid until the next row is asked for; NULL in a format without models. */
    const char *model;
    /* Amounts. */
    uint64_t input_tokens;
    uint64_t output_tokens;
    /* The answer has no tokens: the call failed. */
    bool failed;
};

struct hf_trace_counts {
    /* Rows given out. */
    uint64_t row_cnt;
    /* Rows reported as malformed. */
    uint64_t skipped_cnt;
    /* Rows given out that were stamped earlier than the row before them. */
    uint64_t out_of_order_cnt;
};

/* Told of each malformed row; reason is gone after the call. */
typedef void hf_trace_bad_row_fn(void *context, uint64_t line, const char *reason);

struct hf_trace;

/*
 * Opens a trace and reads its header. bad_row may be NULL. why[why_bytes] gets a sentence for people when the
 * result is not 0. Returns 0 with *out for hf_trace_close(); 1 when the header is of neither format;
 * -ENOMEM; or the negative errno of opening or reading the file.
 */
int hf_trace_open(struct hf_trace **out, const char *path, hf_trace_bad_row_fn *bad_row, void *context,
                  char *why, size_t why_bytes) __attribute__((warn_unused_result));

/* The same on a stream that stays the caller's; name is what `why` calls it. */
int hf_trace_open_stream(struct hf_trace **out, FILE *stream, const char *name, hf_trace_bad_row_fn *bad_row,
                         void *context, char *why, size_t why_bytes) __attribute__((warn_unused_result));

/* The next row: 0 with *row; HF_TRACE_END; or the negative errno of reading the file, for ever. */
int hf_trace_next(struct hf_trace *trace, struct hf_trace_row *row) __attribute__((warn_unused_result));

enum hf_trace_format hf_trace_format(const struct hf_trace *trace);
struct hf_trace_counts hf_trace_counts(const struct hf_trace *trace);

/* NULL is nothing. */
void hf_trace_close(struct hf_trace *trace);

#endif
