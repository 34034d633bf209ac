/* The words of the contract as numbers, and their one spelling in policies, answers and receipts.
 *
 * The order of enum hf_window, enum hf_dimension and enum hf_layer is the order in which admission checks
 * them; arrays are indexed by them, and bucket numbers are made of them. Append only. */
#ifndef HF_CORE_TERMS_H
#define HF_CORE_TERMS_H

#include <stdbool.h>
#include <stddef.h>

enum hf_window {
    HF_WINDOW_MINUTE,
    HF_WINDOW_HOUR,
    HF_WINDOW_DAY,
    HF_WINDOW_MONTH,
    HF_WINDOW_LIFETIME,
    HF_WINDOW_CNT
};

enum hf_dimension {
    HF_DIM_INVOCATIONS,
    HF_DIM_TOKENS,
    HF_DIM_COST,
    HF_DIM_CNT
};

enum hf_layer {
    HF_LAYER_REQUEST,
    HF_LAYER_KEY,
    HF_LAYER_TEAM,
    HF_LAYER_TENANT
};

/* What a team or tenant wants where a limit stands in the way. 0 is the default. */
enum hf_on_limit {
    HF_ON_LIMIT_REJECT,
    HF_ON_LIMIT_DEGRADE,
    HF_ON_LIMIT_QUEUE
};

/* What becomes of a hold whose deadline passed. 0 is the default. */
enum hf_on_expiry {
    HF_ON_EXPIRY_RELEASE,
    HF_ON_EXPIRY_RETAIN,
    HF_ON_EXPIRY_RETAIN_DISPATCHED
};

/* What becomes of a settlement above its hold. 0 is the default. */
enum hf_on_overage {
    HF_ON_OVERAGE_RECORD,
    HF_ON_OVERAGE_FAIL
};

/* What a reservation holds: what the request can cost at most, or the capability's caps. 0 is the default. */
enum hf_basis {
    HF_BASIS_ESTIMATE,
    HF_BASIS_CAP
};

/* The word for a value, as in policies and answers ("month", "cost_micros", "retain_dispatched"): static
 * text, never NULL; "?" for a number that is no value of the enum, so that a corrupt number is seen and
 * crashes nobody. */
const char *hf_window_name(enum hf_window window);
const char *hf_dimension_name(enum hf_dimension dimension);
const char *hf_layer_name(enum hf_layer layer);
const char *hf_on_limit_name(enum hf_on_limit on_limit);
const char *hf_on_expiry_name(enum hf_on_expiry on_expiry);
const char *hf_on_overage_name(enum hf_on_overage on_overage);
const char *hf_basis_name(enum hf_basis basis);

/* The value of a word of len bytes, compared bytewise (no case folding, no trimming). False for any other
 * text; then *out is left alone. */
bool hf_window_parse(const char *bytes, size_t len, enum hf_window *out);
bool hf_dimension_parse(const char *bytes, size_t len, enum hf_dimension *out);
bool hf_layer_parse(const char *bytes, size_t len, enum hf_layer *out);
bool hf_on_limit_parse(const char *bytes, size_t len, enum hf_on_limit *out);
bool hf_on_expiry_parse(const char *bytes, size_t len, enum hf_on_expiry *out);
bool hf_on_overage_parse(const char *bytes, size_t len, enum hf_on_overage *out);
bool hf_basis_parse(const char *bytes, size_t len, enum hf_basis *out);

#endif
