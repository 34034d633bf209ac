/* What operators do: credit for a team in the current window; closing what passed its deadline. */
#include "example.h"

static void show_closed(void *arg, const char *id, int kind)
{
    (void)arg;
    printf("  %s is %s\n", id, kind == HOLDFAST_CLOSED_EXPIRED ? "expired" : "retained");
}

int main(int argc, char **argv)
{
    struct holdfast_segment *segment;
    struct holdfast *quota = example_join(argc, argv, &segment);
    uint64_t before;
    uint64_t total;
    int reason;

    /* Taking back nothing tells what is there. */
    if (holdfast_credit(quota, "demo", "app", HOLDFAST_WINDOW_MONTH, 0, "a look", "example", &before,
                        &reason) != HOLDFAST_OK) {
        return 1;
    }
    example_expect(holdfast_credit(quota, "demo", "app", HOLDFAST_WINDOW_MONTH, 5000000, "the launch",
                                   "example", &total, &reason) == HOLDFAST_OK &&
                       total == before + 5000000,
                   "five units of the currency more, this month");
    example_expect(holdfast_credit(quota, "demo", "app", HOLDFAST_WINDOW_MONTH, -5000000,
                                   "the launch is over", "example", &total, &reason) == HOLDFAST_OK &&
                       total == before,
                   "and taken back");
    example_expect(holdfast_credit(quota, "demo", "app", HOLDFAST_WINDOW_HOUR, 1, "no such limit", "example",
                                   &total, &reason) == HOLDFAST_REFUSED &&
                       reason == HOLDFAST_REASON_INVALID_REQUEST,
                   "a window that the team does not limit takes no credit");

    /* The daemon does this by itself. */
    example_expect(holdfast_reap(quota, 0, show_closed, NULL) >= 0, "looked for holds past their deadline");

    holdfast_leave(quota);
    holdfast_close(segment);
    return 0;
}
