/* What answers of `holdfast run` have in common. */
#ifndef HF_TOOLS_HOLDFAST_RUN_ANSWER_H
#define HF_TOOLS_HOLDFAST_RUN_ANSWER_H

#include "tools/holdfast/run.h"

/* {"op":…,"ok":…  */
void hf_answer_begin(struct hf_json_out *out, const char *op, bool ok);

/* A whole refusal: op, ok, id (unless NULL), reason, message. message NULL: the sentence of the reason. */
void hf_answer_refuse(struct hf_json_out *out, const char *op, const char *id, int reason,
                      const char *message);

/* A whole answer for a result that is no outcome (< 0): the reason is `not-ready` where the segment is, else `fault`. */
void hf_answer_fault(struct hf_json_out *out, const char *op, const char *id, int result);

/* A whole answer of reserve (extends false) or extend. result: HOLDFAST_OK or HOLDFAST_REFUSED. */
void hf_answer_admission(struct hf_json_out *out, const char *op, const char *id, bool extends, int result,
                         const struct holdfast_answer *answer);

/* A whole answer of settle or release. result: HOLDFAST_OK or HOLDFAST_REFUSED. */
void hf_answer_closing(struct hf_json_out *out, const char *op, const char *id, int result,
                       const struct holdfast_closing *closing);

/* A sentence for people on a reason: what it means and what to do. Static text; NULL when the word says it all. */
const char *hf_answer_sentence(int reason);

#endif
