/* A private segment with a policy given as text, an injected clock and some handles: for tests of the core. */
#ifndef HF_TESTS_QUOTA_H
#define HF_TESTS_QUOTA_H

#include "core/client.h"

#define HF_TEST_NOW_MS UINT64_C(1790000000000)

/* One tenant `t` (month 100,000 micros) with team `u` (month 60,000 micros, minute 1,000 tokens, 60 invocations), its key
 * `k` (day 5 invocations), team `v` (on_expiry retain, on_overage fail, on_limit degrade, overdraft 100, month 500) and
 * team `w` (retain_dispatched, no limits); tenant `z` without limits. Capability `c` with caps 10,000 micros and 2,000
 * tokens everywhere; model `m`: 1 and 2 micros a token, longest output 100; model `mini`: half of that. */
const char *hf_test_policy(void);

struct hf_test_quota {
    struct holdfast_segment *segment;
    struct hf_segment *seg;
    struct holdfast *handles[4];
};

/* Fails the test when it cannot. slots: known reservations. */
void hf_test_quota_make(struct hf_test_quota *quota, const char *policy, uint32_t slots);
void hf_test_quota_free(struct hf_test_quota *quota);

/* A reserve of explicit amounts on tenant t; result of holdfast_reserve. */
int hf_test_reserve(struct holdfast *handle, const char *id, const char *team, const char *key,
                    uint64_t tokens, uint64_t cost, struct holdfast_answer *answer);
int hf_test_settle(struct holdfast *handle, const char *id, uint64_t input, uint64_t output, uint64_t cost,
                   struct holdfast_closing *closing);

/* The bucket of a row: its value in the window of now. row by names (team, key may be NULL). */
uint64_t hf_test_value(struct hf_test_quota *quota, const char *team, const char *key, int window,
                       int dimension);

/* Slot and state of an id; fails when it is not there. */
uint32_t hf_test_slot(struct hf_test_quota *quota, const char *id);

/* Every bucket of every row equals what the slots say (open holds and what closed ones left charged, by their windows):
 * number of buckets that do not. For segments without a daemon: no slot was freed. */
uint32_t hf_test_mismatches(struct hf_test_quota *quota);

#endif
