/* The life of a hold: dispatch, extend a streamed answer that grows, settle; and a release of a call never made. */
#include "example.h"

int main(int argc, char **argv)
{
    struct holdfast_segment *segment;
    struct holdfast *quota = example_join(argc, argv, &segment);
    struct holdfast_request call;
    struct holdfast_answer answer;
    struct holdfast_extension more;
    struct holdfast_usage usage;
    struct holdfast_closing closing;
    char id[64];
    int reason;

    holdfast_request_init(&call);
    call.id = example_id(id, "streamed");
    call.tenant = "demo";
    call.team = "app";
    call.capability = "chat";
    call.model = "small";
    call.input_tokens = 400;
    call.max_output_tokens = 200;
    example_expect(holdfast_reserve(quota, &call, &answer) == HOLDFAST_OK, "held for 200 tokens of output");
    example_expect(holdfast_dispatch(quota, id, answer.hold, &reason) == HOLDFAST_OK,
                   "on its way to the provider");
    example_expect(holdfast_release(quota, id, answer.hold, &closing) == HOLDFAST_REFUSED &&
                       closing.reason == HOLDFAST_REASON_ALREADY_DISPATCHED,
                   "so it cannot be released any more");

    holdfast_extension_init(&more);
    more.id = id;
    more.hold = answer.hold;
    more.max_output_tokens = 800;
    more.ttl_ms = 120000;
    example_expect(holdfast_extend(quota, &more, &answer) == HOLDFAST_OK && answer.reserved.tokens == 1200,
                   "the answer grows: held for 800 tokens of output, and two minutes more");

    /* What the provider told. Its own bill, where it sends one, goes into usage.cost_micros. */
    holdfast_usage_init(&usage, 400, 731);
    example_expect(holdfast_settle(quota, id, 0, &usage, HOLDFAST_SUCCESS, "provider-7", &closing) ==
                           HOLDFAST_OK &&
                       closing.kind == HOLDFAST_CLOSED_SETTLED && closing.source == HOLDFAST_SOURCE_DERIVED &&
                       closing.actual.tokens == 1131 && closing.released.tokens == 69,
                   "settled; what was not used is free again");
    example_expect(holdfast_settle(quota, id, 0, &usage, HOLDFAST_SUCCESS, "provider-7", &closing) ==
                           HOLDFAST_OK &&
                       closing.replayed == 1,
                   "told again, it is answered as the first time");
    example_expect(holdfast_release(quota, id, 0, &closing) == HOLDFAST_REFUSED &&
                       closing.reason == HOLDFAST_REASON_ALREADY_CLOSED,
                   "any other closing comes too late");

    /* A call whose usage nobody knows stays charged as it was held: unknown is never zero. */
    call.id = example_id(id, "unknown");
    example_expect(holdfast_reserve(quota, &call, &answer) == HOLDFAST_OK, "held");
    example_expect(holdfast_settle(quota, id, answer.hold, NULL, HOLDFAST_FAILURE, NULL, &closing) ==
                           HOLDFAST_OK &&
                       closing.source == HOLDFAST_SOURCE_UNKNOWN && closing.released.cost_micros == 0,
                   "settled at an unknown usage: nothing is given back");

    /* A call that was never made. */
    call.id = example_id(id, "never-made");
    example_expect(holdfast_reserve(quota, &call, &answer) == HOLDFAST_OK, "held");
    example_expect(holdfast_release(quota, id, answer.hold, &closing) == HOLDFAST_OK &&
                       closing.kind == HOLDFAST_CLOSED_RELEASED,
                   "released: all is given back, the invocation too");

    holdfast_leave(quota);
    holdfast_close(segment);
    return 0;
}
