#include "core/terms.h"

#include <string.h>

static const char *const windows[] = {"minute", "hour", "day", "month", "lifetime"};
static const char *const dimensions[] = {"invocations", "tokens", "cost_micros"};
static const char *const layers[] = {"request", "key", "team", "tenant"};
static const char *const on_limits[] = {"reject", "degrade", "queue"};
static const char *const on_expiries[] = {"release", "retain", "retain_dispatched"};
static const char *const on_overages[] = {"record", "fail"};
static const char *const bases[] = {"estimate", "cap"};

#define CNT(words) (sizeof(words) / sizeof((words)[0]))

_Static_assert(CNT(windows) == HF_WINDOW_CNT, "a word for each window");
_Static_assert(CNT(dimensions) == HF_DIM_CNT, "a word for each dimension");
_Static_assert(CNT(layers) == HF_LAYER_TENANT + 1, "a word for each layer");
_Static_assert(CNT(on_limits) == HF_ON_LIMIT_QUEUE + 1, "a word for each on_limit");
_Static_assert(CNT(on_expiries) == HF_ON_EXPIRY_RETAIN_DISPATCHED + 1, "a word for each on_expiry");
_Static_assert(CNT(on_overages) == HF_ON_OVERAGE_FAIL + 1, "a word for each on_overage");
_Static_assert(CNT(bases) == HF_BASIS_CAP + 1, "a word for each basis");

static const char *word_of(const char *const *words, size_t cnt, unsigned value)
{
    return value < cnt ? words[value] : "?";
}

/* The index of the word, or cnt. */
static unsigned value_of(const char *const *words, size_t cnt, const char *bytes, size_t len)
{
    unsigned value = 0;

    while (value < cnt && (strlen(words[value]) != len || memcmp(words[value], bytes, len) != 0)) {
        value++;
    }
    return value;
}

#define TERM(term, words)                                                      \
    const char *hf_##term##_name(enum hf_##term term)                          \
    {                                                                          \
        return word_of(words, CNT(words), (unsigned)term);                     \
    }                                                                          \
    bool hf_##term##_parse(const char *bytes, size_t len, enum hf_##term *out) \
    {                                                                          \
        unsigned value = value_of(words, CNT(words), bytes, len);              \
                                                                               \
        if (value == CNT(words)) {                                             \
            return false;                                                      \
        }                                                                      \
        *out = (enum hf_##term)value;                                          \
        return true;                                                           \
    }

TERM(window, windows)
TERM(dimension, dimensions)
TERM(layer, layers)
TERM(on_limit, on_limits)
TERM(on_expiry, on_expiries)
TERM(on_overage, on_overages)
TERM(basis, bases)
