/* The whole job in twenty lines; the README shows what stands between the two marks. */
#include <holdfast.h>
#include <stdio.h>

/* README: begin */
int main(int argc, char **argv)
{
    struct holdfast_segment *segment;
    struct holdfast *quota;
    struct holdfast_request call;
    struct holdfast_answer answer;
    struct holdfast_usage usage;
    struct holdfast_closing bill;
    int result = holdfast_open(argc > 1 ? argv[1] : "demo", &segment, NULL, 0);

    if (result != HOLDFAST_OK || (result = holdfast_join(segment, &quota)) != HOLDFAST_OK)
        return puts(holdfast_strerror(result)), 1;
    holdfast_request_init(&call); /* before the call: hold what it can cost at most */
    call.id = "request-1", call.tenant = "demo", call.team = "app", call.capability = "chat";
    call.model = "small", call.input_tokens = 900, call.max_output_tokens = 400;
    if (holdfast_reserve(quota, &call, &answer) != HOLDFAST_OK)
        return printf("not now: %s\n", holdfast_reason_name(answer.reason)), 1;
    holdfast_usage_init(&usage, 870, 212); /* after it: charge what it really came to */
    if (holdfast_settle(quota, call.id, answer.hold, &usage, HOLDFAST_SUCCESS, NULL, &bill) == HOLDFAST_OK)
        printf("%llu micros spent\n", (unsigned long long)bill.actual.cost_micros);
    holdfast_leave(quota);
    holdfast_close(segment);
}
/* README: end */
