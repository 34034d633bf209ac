/* A reserve as asked, in numbers: what it holds, what its economy alternative holds, what tells a replay from a
 * conflict. Pure apart from looking up prices. */
#ifndef HF_CORE_WANT_H
#define HF_CORE_WANT_H

#include "core/include/holdfast.h"
#include "core/name_cache.h"
#include "core/path.h"

/* Amounts by dimension; HF_SHM_UNKNOWN where the request does not determine one. */
struct hf_amounts {
    uint64_t by[HF_SHM_DIMS];
};

struct hf_want {
    const char *id;
    uint32_t id_bytes;
    uint32_t id_hash;
    struct hf_names names;
    uint32_t flags; /* HF_SLOT_FORM_MODEL, HF_SLOT_HAS_x */
    uint32_t model; /* price index, HF_SHM_NONE */
    uint32_t economy;
    uint64_t in1, in2, eco1, eco2, ttl_ms; /* as given; 0 where not */
    struct hf_amounts own;                 /* what the request can cost at most */
    struct hf_amounts own_economy;
};

/* Form and range of single numbers: HOLDFAST_REASON_NONE, _INVALID_REQUEST or _INVALID_AMOUNT. Fills id and names
 * of want. With request->path the four names are not looked at. */
int hf_want_read(const struct holdfast_request *request, struct hf_want *want);

/* The request as given, in the numbers of a slot: flags, in1, in2, eco1, eco2, ttl_ms of want. For who fills a slot or compares with
 * one. */
void hf_want_given(const struct holdfast_request *request, struct hf_want *want);

/* Models and computed amounts, by the policy generation of path: HOLDFAST_REASON_NONE, _UNKNOWN_MODEL, _MODEL_LIMIT,
 * _INVALID_AMOUNT. */
int hf_want_price(const struct hf_segment *seg, uint32_t policy_gen, const struct holdfast_request *request,
                  struct hf_want *want);

/* What is held of amounts under the path's capability: the caps with basis cap, else the amounts. */
static inline struct hf_amounts hf_want_held(const struct hf_path *path, const struct hf_amounts *own)
{
    struct hf_amounts held = *own;
    if (path->cap_basis == HF_BASIS_CAP) {
        if (path->cap_tokens != HF_SHM_UNKNOWN) {
            held.by[HF_DIM_TOKENS] = path->cap_tokens;
        }
        if (path->cap_micros != HF_SHM_UNKNOWN) {
            held.by[HF_DIM_COST] = path->cap_micros;
        }
    }
    return held;
}

/* Layer `request`: a cap that is exceeded, or an amount that a cap or limit needs and nobody knows.
 * HOLDFAST_REASON_NONE, _REQUEST_CAP or _AMOUNT_UNKNOWN with *dimension. */
int hf_want_request_layer(const struct hf_path *path, const struct hf_amounts *held, int *dimension);

#endif
