/* A call that must not be forgotten even if the host is lost: wait for its receipt before the call is made. */
#include "example.h"

int main(int argc, char **argv)
{
    struct holdfast_segment *segment;
    struct holdfast *quota = example_join(argc, argv, &segment);
    struct holdfast_request call;
    struct holdfast_answer answer;
    struct holdfast_closing closing;
    char id[64];

    holdfast_request_init(&call);
    call.id = example_id(id, "durable");
    call.tenant = "demo";
    call.team = "app";
    call.capability = "chat";
    call.tokens = 1000;
    call.cost_micros = 150000;
    if (holdfast_reserve(quota, &call, &answer) != HOLDFAST_OK) {
        return 1;
    }
    int rc = holdfast_wait_durable(quota, id, answer.hold, 10000);
    if (rc == HOLDFAST_CONFLICT) {
        fprintf(stderr, "the store has another reservation under this id: do not make the call\n");
        return 1;
    }
    example_expect(rc == HOLDFAST_OK, "the reservation is in the store: the call may be made");
    example_expect(holdfast_settle(quota, id, answer.hold, NULL, HOLDFAST_SUCCESS, NULL, &closing) ==
                       HOLDFAST_OK,
                   "settled");
    example_expect(holdfast_flush(quota, 10000) == HOLDFAST_OK, "its settlement is in the store, too");
    example_expect(holdfast_wait_durable(quota, "no-such-id", 0, 100) == HOLDFAST_REFUSED,
                   "an id that the segment does not know has nothing to wait for");

    holdfast_leave(quota);
    holdfast_close(segment);
    return 0;
}
