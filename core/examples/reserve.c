/* Reserving: by model and by explicit amounts, with names and with a resolved path; refusals; a degraded call. */
#include "example.h"

#include <string.h>

int main(int argc, char **argv)
{
    struct holdfast_segment *segment;
    struct holdfast *quota = example_join(argc, argv, &segment);
    struct holdfast_request call;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    char id[64];

    /* By model: 1000 input tokens at 0.25, 500 output tokens at 1.25 micros. */
    holdfast_request_init(&call);
    call.id = example_id(id, "by-model");
    call.tenant = "demo";
    call.team = "app";
    call.key = "bot";
    call.capability = "chat";
    call.model = "small";
    call.input_tokens = 1000;
    call.max_output_tokens = 500;
    call.want_remaining = 1;
    example_expect(holdfast_reserve(quota, &call, &answer) == HOLDFAST_OK && answer.kind == HOLDFAST_ALLOW &&
                       answer.reserved.tokens == 1500 && answer.reserved.cost_micros == 875,
                   "1500 tokens and 875 micros are held");
    example_expect(answer.remaining[HOLDFAST_COST_MICROS][HOLDFAST_LAYER_TEAM] != HOLDFAST_NONE &&
                       answer.remaining[HOLDFAST_INVOCATIONS][HOLDFAST_LAYER_TEAM] == HOLDFAST_NONE,
                   "the team has a limit of money, and none of calls");
    /* The same id with the same input: the first answer, and nothing more is held. */
    example_expect(holdfast_reserve(quota, &call, &answer) == HOLDFAST_OK && answer.replayed == 1,
                   "asked again, it is answered as the first time");
    call.max_output_tokens = 600;
    example_expect(holdfast_reserve(quota, &call, &answer) == HOLDFAST_REFUSED &&
                       answer.reason == HOLDFAST_REASON_ID_CONFLICT,
                   "another call under the same id is refused");
    example_expect(holdfast_release(quota, id, 0, &closing) == HOLDFAST_OK, "released");

    /* A path saves looking up the names in each call. */
    struct holdfast_path *path;
    int reason;
    example_expect(holdfast_resolve(quota, "demo", "nobody", NULL, "chat", &path, &reason) ==
                           HOLDFAST_REFUSED &&
                       strcmp(holdfast_reason_name(reason), "unknown-team") == 0,
                   "a team that the policy does not have cannot be resolved");
    if (holdfast_resolve(quota, "demo", "app", NULL, "chat", &path, &reason) != HOLDFAST_OK) {
        return 1;
    }
    holdfast_request_init(&call);
    call.id = example_id(id, "explicit");
    call.path = path;
    call.tokens = 900;
    call.cost_micros = 6200;
    example_expect(holdfast_reserve(quota, &call, &answer) == HOLDFAST_OK, "explicit amounts are held");
    example_expect(holdfast_release(quota, id, answer.hold, &closing) == HOLDFAST_OK, "released");
    call.id = example_id(id, "above-the-cap");
    call.cost_micros = 200001;
    example_expect(holdfast_reserve(quota, &call, &answer) == HOLDFAST_REFUSED &&
                       answer.reason == HOLDFAST_REASON_REQUEST_CAP &&
                       answer.layer == HOLDFAST_LAYER_REQUEST && answer.dimension == HOLDFAST_COST_MICROS &&
                       answer.retry_after_ms == HOLDFAST_UNKNOWN,
                   "more than the capability may hold is refused, and waiting cannot help");
    holdfast_path_free(path);

    /* The team `poor` has 5000 micros a month, and says on_limit: degrade. */
    holdfast_request_init(&call);
    call.id = example_id(id, "degraded");
    call.tenant = "thrift";
    call.team = "poor";
    call.capability = "chat";
    call.model = "large";
    call.economy_model = "small";
    call.input_tokens = 100;
    call.max_output_tokens = 1000;
    example_expect(holdfast_reserve(quota, &call, &answer) == HOLDFAST_OK && answer.kind == HOLDFAST_DEGRADE,
                   "too dear for the large model: make the call with the small one");
    example_expect(holdfast_release(quota, id, answer.hold, &closing) == HOLDFAST_OK, "released");

    holdfast_leave(quota);
    holdfast_close(segment);
    return 0;
}
