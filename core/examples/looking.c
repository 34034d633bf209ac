/* Looking: what a layer has left, and what was used by capability and model. */
#include "example.h"

static void show_meter(void *arg, const struct holdfast_meter *meter)
{
    int *seen = arg;

    (*seen)++;
    printf("  %s %s %s: %lld requests, %lld failures, %lld micros reserved, %lld settled\n", meter->tenant,
           meter->capability, meter->model[0] == '\0' ? "(explicit amounts)" : meter->model,
           (long long)meter->requests, (long long)meter->failures, (long long)meter->reserved_micros,
           (long long)meter->settled_micros);
}

int main(int argc, char **argv)
{
    static const char *const windows[] = {"minute", "hour", "day", "month", "lifetime"};
    static const char *const dimensions[] = {"invocations", "tokens", "cost_micros"};
    struct holdfast_segment *segment;
    struct holdfast *quota = example_join(argc, argv, &segment);
    struct holdfast_request call;
    struct holdfast_answer answer;
    struct holdfast_usage usage;
    struct holdfast_closing closing;
    struct holdfast_limit limits[15];
    char id[64];
    int reason;

    holdfast_request_init(&call);
    call.id = example_id(id, "looking");
    call.tenant = "demo";
    call.team = "app";
    call.key = "bot";
    call.capability = "chat";
    call.model = "small";
    call.input_tokens = 1000;
    holdfast_usage_init(&usage, 1000, 20);
    if (holdfast_reserve(quota, &call, &answer) != HOLDFAST_OK ||
        holdfast_settle(quota, id, answer.hold, &usage, HOLDFAST_SUCCESS, NULL, &closing) != HOLDFAST_OK) {
        return 1;
    }
    /* Held and settled are apart, and meters are made, once the daemon has drained what was done before. */
    example_expect(holdfast_flush(quota, 10000) == HOLDFAST_OK, "all of it is committed and published");

    int cnt = holdfast_limits(quota, "demo", "app", NULL, limits, 15, &reason);
    example_expect(cnt == 1 && limits[0].settled >= 275, "the team has one limit, of which some is settled");
    for (int i = 0; i < cnt; i++) {
        printf("  %s %s: limit %llu, held %llu, settled %llu, available %lld\n", windows[limits[i].window],
               dimensions[limits[i].dimension], (unsigned long long)limits[i].limit,
               (unsigned long long)limits[i].held, (unsigned long long)limits[i].settled,
               (long long)limits[i].available);
    }
    example_expect(holdfast_limits(quota, "demo", "app", "nobody", limits, 15, &reason) == HOLDFAST_INVALID &&
                       reason == HOLDFAST_REASON_UNKNOWN_KEY,
                   "a key that the policy does not have has no limits");

    int seen = 0;
    example_expect(holdfast_meters(quota, "demo", show_meter, &seen, &reason) == HOLDFAST_OK && seen > 0,
                   "these are the meters of the tenant");

    holdfast_leave(quota);
    holdfast_close(segment);
    return 0;
}
