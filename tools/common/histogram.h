/* A histogram of durations in nanoseconds, of fixed size and without pointers, so that it can lie in memory that
 * processes share. Up to 127 ns it is exact; above, a bucket is at most 1/64 of its smallest value wide, so a
 * percentile is at most 1.6 % too high. It takes every 64-bit value.
 *
 * All zero is an empty one. One writer at a time; anybody may read or merge it meanwhile, and a writer
 * that is killed at any instruction leaves one that is short of at most the value it was adding. */
#ifndef HF_TOOLS_COMMON_HISTOGRAM_H
#define HF_TOOLS_COMMON_HISTOGRAM_H

#include <stdint.h>

#define HF_HISTOGRAM_LINEAR_BITS 6
#define HF_HISTOGRAM_LINEAR_CNT  (1 << HF_HISTOGRAM_LINEAR_BITS)
#define HF_HISTOGRAM_BUCKET_CNT  ((64 - HF_HISTOGRAM_LINEAR_BITS + 1) * HF_HISTOGRAM_LINEAR_CNT)

struct hf_histogram {
    uint64_t bucket_cnt[HF_HISTOGRAM_BUCKET_CNT];
    /* The longest duration, exactly. */
    uint64_t max_ns;
};

/* What a table of durations shows, all 0 when nothing was counted. */
struct hf_histogram_summary {
    uint64_t cnt;
    uint64_t p50_ns;
    uint64_t p99_ns;
    uint64_t p999_ns;
    uint64_t max_ns;
};

/* Counts one duration. By the histogram's writer only. */
void hf_histogram_add(struct hf_histogram *histogram, uint64_t ns);

/* Adds what `from` counts to `into`. By the writer of `into` only. */
void hf_histogram_merge(struct hf_histogram *into, const struct hf_histogram *from);

/* How many durations were counted. */
uint64_t hf_histogram_cnt(const struct hf_histogram *histogram);

/* The smallest value, as exact as a bucket and never above the longest, that at least part/whole of all
 * durations do not exceed: 1/2 is the median, 999/1000 is p99.9. 0 when nothing was counted.
 * 0 < part <= whole. */
uint64_t hf_histogram_at(const struct hf_histogram *histogram, uint64_t part, uint64_t whole);

struct hf_histogram_summary hf_histogram_summary(const struct hf_histogram *histogram);

#endif
