#include "tools/common/histogram.h"

#include "shm/atomic.h"

/* relaxed everywhere below: each word is a statistic of its own, and no other access depends on it. */

/* Values below 2^7 have a bucket each; above, each power of two has 64. */
static unsigned bucket_of(uint64_t ns)
{
    unsigned shift = 0;

    if (ns >= HF_HISTOGRAM_LINEAR_CNT) {
        shift = 63 - (unsigned)__builtin_clzll(ns) - HF_HISTOGRAM_LINEAR_BITS;
    }
    return shift * HF_HISTOGRAM_LINEAR_CNT + (unsigned)(ns >> shift);
}

/* The largest value of a bucket. */
static uint64_t end_of(unsigned bucket_idx)
{
    unsigned shift = bucket_idx / HF_HISTOGRAM_LINEAR_CNT;
    uint64_t top = bucket_idx % HF_HISTOGRAM_LINEAR_CNT;

    if (shift > 0) {
        shift--;
        top += HF_HISTOGRAM_LINEAR_CNT;
    }
    return (top << shift) + ((UINT64_C(1) << shift) - 1);
}

/* The one writer needs no read-modify-write. */
static void raise_by(uint64_t *cnt, uint64_t by)
{
    hf_store_rlx_u64(cnt, hf_load_rlx_u64(cnt) + by);
}

static void raise_max(struct hf_histogram *histogram, uint64_t ns)
{
    if (ns > hf_load_rlx_u64(&histogram->max_ns)) {
        hf_store_rlx_u64(&histogram->max_ns, ns);
    }
}

void hf_histogram_add(struct hf_histogram *histogram, uint64_t ns)
{
    /* The longest first: a reader in between finds no duration above it. */
    raise_max(histogram, ns);
    raise_by(&histogram->bucket_cnt[bucket_of(ns)], 1);
}

void hf_histogram_merge(struct hf_histogram *into, const struct hf_histogram *from)
{
    for (unsigned i = 0; i < HF_HISTOGRAM_BUCKET_CNT; i++) {
        raise_by(&into->bucket_cnt[i], hf_load_rlx_u64(&from->bucket_cnt[i]));
    }
    raise_max(into, hf_load_rlx_u64(&from->max_ns));
}

uint64_t hf_histogram_cnt(const struct hf_histogram *histogram)
{
    uint64_t cnt = 0;

    for (unsigned i = 0; i < HF_HISTOGRAM_BUCKET_CNT; i++) {
        cnt += hf_load_rlx_u64(&histogram->bucket_cnt[i]);
    }
    return cnt;
}

uint64_t hf_histogram_at(const struct hf_histogram *histogram, uint64_t part, uint64_t whole)
{
    uint64_t cnt = hf_histogram_cnt(histogram), max_ns = hf_load_rlx_u64(&histogram->max_ns), passed = 0;
    uint64_t rank = (uint64_t)(((unsigned __int128)cnt * part + whole - 1) / whole);

    for (unsigned i = 0; i < HF_HISTOGRAM_BUCKET_CNT && cnt > 0; i++) {
        passed += hf_load_rlx_u64(&histogram->bucket_cnt[i]);
        if (passed >= rank) {
            return end_of(i) < max_ns ? end_of(i) : max_ns;
        }
    }
    return cnt > 0 ? max_ns : 0;
}

struct hf_histogram_summary hf_histogram_summary(const struct hf_histogram *histogram)
{
    return (struct hf_histogram_summary){
        .cnt = hf_histogram_cnt(histogram),
        .p50_ns = hf_histogram_at(histogram, 1, 2),
        .p99_ns = hf_histogram_at(histogram, 99, 100),
        .p999_ns = hf_histogram_at(histogram, 999, 1000),
        .max_ns = hf_load_rlx_u64(&histogram->max_ns),
    };
}
