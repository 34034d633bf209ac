/* A new segment filled from the store: open reservations, what is known by the horizons, buckets, credits.
 *
 * Two passes over the store: a survey that counts, so that the segment is made large enough, and the filling. The
 * segment is seen by nobody else until both are done. Tenants' sequences, tags and ordinals start at 0.
 */
#ifndef HF_PERSIST_REBUILD_H
#define HF_PERSIST_REBUILD_H

#include "persist/log.h"
#include "persist/store.h"
#include "shm/segment.h"

/* What was found. Amounts of open holds; unknown ones count as 0. */
struct hf_rebuild_found {
    uint64_t open_cnt;
    uint64_t open_tokens;
    uint64_t open_cost_micros;
    uint64_t due_cnt;       /* of the open ones: past their deadline already */
    uint64_t closed_cnt;    /* settled, released, settled late: known by the replay horizon */
    uint64_t late_cnt;      /* expired, retained, disputed: known by the late horizon */
    uint64_t conflicts_cnt; /* of all these */
    uint64_t credits_cnt;
    uint64_t meters_cnt;
    /* Room that the segment needs beside the policy's. */
    uint64_t names_cnt;
    uint64_t rows_cnt;
    uint64_t prices_cnt;
};

struct hf_rebuild_options {
    struct hf_store *store;
    const char *store_name;
    uint64_t now_ms; /* authority time of the new segment's beginning */
    uint64_t replay_horizon_ms;
    uint64_t late_horizon_ms;
    struct hf_log log;
};

/* Counts. HF_STORE_OK, or as the store says. */
enum hf_store_status hf_rebuild_survey(const struct hf_rebuild_options *options,
                                       struct hf_rebuild_found *found, struct hf_store_error *error);

/* Adds the room to a plan: slots (a third more than are filled, or the policy's own number), names, rows, prices, meters. */
void hf_rebuild_plan(const struct hf_rebuild_found *found, struct hf_segment_plan *plan);

/* Fills a segment with its policy compiled into it. Its clock is not asked: the elapsed scale at now_ms is elapsed_ms. found is
 * counted anew. HF_STORE_OK; HF_STORE_STOPPED: no room (the error says of what); others as the store says. */
enum hf_store_status hf_rebuild_fill(struct hf_segment *seg, const struct hf_rebuild_options *options,
                                     uint64_t elapsed_ms, struct hf_rebuild_found *found,
                                     struct hf_store_error *error);

#endif
