/* ctest: labels=valgrind */
/* The command's own files are in no library. */
#include "tools/holdfast/json_out.c"
#include "tools/holdfast/run_answer.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void assert_line(struct hf_json_out *out, const char *expected)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    assert_non_null(to);
    assert_int_equal(hf_json_out_line(out, to), 0);
    assert_int_equal(fclose(to), 0);
    assert_true(bytes > 0);
    text[bytes - 1] = '\0';
    assert_string_equal(text, expected);
    free(text);
    hf_json_out_free(out);
}

static void empty_answer(struct holdfast_answer *answer)
{
    *answer = (struct holdfast_answer){
        .layer = -1, .window = -1, .dimension = -1, .retry_after_ms = HOLDFAST_UNKNOWN};
    for (int dim = 0; dim < 3; dim++) {
        for (int layer = 0; layer < 4; layer++) {
            answer->remaining[dim][layer] = HOLDFAST_NONE;
        }
    }
}

/* The example of the protocol, to the letter. */
static void an_admission(void **state)
{
    struct hf_json_out out = {0};
    struct holdfast_answer answer;

    (void)state;
    empty_answer(&answer);
    answer.kind = HOLDFAST_ALLOW;
    answer.reserved = (struct holdfast_amounts){1, 900, 6200};
    answer.expires_at_ms = 1790000600000;
    answer.has_remaining = 1;
    answer.remaining[HOLDFAST_COST_MICROS][HOLDFAST_LAYER_REQUEST] = 0;
    answer.remaining[HOLDFAST_COST_MICROS][HOLDFAST_LAYER_TEAM] = 39993800;
    answer.remaining[HOLDFAST_COST_MICROS][HOLDFAST_LAYER_TENANT] = 99993800;
    hf_answer_admission(&out, "reserve", "a1", false, HOLDFAST_OK, &answer);
    assert_line(
        &out,
        "{\"op\":\"reserve\",\"ok\":true,\"id\":\"a1\",\"kind\":\"allow\",\"reserved\":{\"invocations\":1,"
        "\"tokens\":900,\"cost_micros\":6200},\"expires_at_ms\":1790000600000,\"replayed\":false,"
        "\"remaining\":{\"invocations\":{\"request\":null,\"key\":null,\"team\":null,\"tenant\":null},"
        "\"tokens\":{\"request\":null,\"key\":null,\"team\":null,\"tenant\":null},\"cost_micros\":{"
        "\"request\":0,\"key\":null,\"team\":39993800,\"tenant\":99993800}}}");
}

static void a_degraded_replay_with_unknown_tokens(void **state)
{
    struct hf_json_out out = {0};
    struct holdfast_answer answer;

    (void)state;
    empty_answer(&answer);
    answer.kind = HOLDFAST_DEGRADE;
    answer.replayed = 1;
    answer.reserved = (struct holdfast_amounts){1, HOLDFAST_UNKNOWN, 4030};
    answer.expires_at_ms = 5;
    hf_answer_admission(&out, "reserve", "d", false, HOLDFAST_OK, &answer);
    assert_line(
        &out,
        "{\"op\":\"reserve\",\"ok\":true,\"id\":\"d\",\"kind\":\"degrade\",\"reserved\":{\"invocations\":1,"
        "\"tokens\":null,\"cost_micros\":4030},\"expires_at_ms\":5,\"replayed\":true}");
}

/* An extension has no kind and is never a replay. */
static void an_extension(void **state)
{
    struct hf_json_out out = {0};
    struct holdfast_answer answer;

    (void)state;
    empty_answer(&answer);
    answer.kind = HOLDFAST_ALLOW;
    answer.reserved = (struct holdfast_amounts){1, 2, 3};
    answer.expires_at_ms = 4;
    hf_answer_admission(&out, "extend", "e", true, HOLDFAST_OK, &answer);
    assert_line(&out,
                "{\"op\":\"extend\",\"ok\":true,\"id\":\"e\",\"reserved\":{\"invocations\":1,\"tokens\":2,"
                "\"cost_micros\":3},\"expires_at_ms\":4}");
}

/* A limit in the way: every key, and a sentence that says when to come again. */
static void a_refusal_by_a_limit(void **state)
{
    struct hf_json_out out = {0};
    struct holdfast_answer answer;

    (void)state;
    empty_answer(&answer);
    answer.reason = HOLDFAST_REASON_TEAM_SHARE;
    answer.layer = HOLDFAST_LAYER_TEAM;
    answer.window = HOLDFAST_WINDOW_MONTH;
    answer.dimension = HOLDFAST_COST_MICROS;
    answer.retry_after_ms = 60000;
    hf_answer_admission(&out, "reserve", "s", false, HOLDFAST_REFUSED, &answer);
    assert_line(
        &out,
        "{\"op\":\"reserve\",\"ok\":false,\"id\":\"s\",\"kind\":\"reject\",\"layer\":\"team\",\"reason\":"
        "\"team-share\",\"window\":\"month\",\"dimension\":\"cost_micros\",\"retry_after_ms\":60000,"
        "\"message\":\"the team has not enough cost_micros left in its month window; come again in 60000 "
        "ms\"}");

    answer.retry_after_ms = HOLDFAST_UNKNOWN;
    answer.layer = HOLDFAST_LAYER_KEY;
    answer.reason = HOLDFAST_REASON_KEY_BUDGET;
    hf_answer_admission(&out, "extend", "s", true, HOLDFAST_REFUSED, &answer);
    assert_line(
        &out,
        "{\"op\":\"extend\",\"ok\":false,\"id\":\"s\",\"kind\":\"reject\",\"layer\":\"key\",\"reason\":"
        "\"key-budget\",\"window\":\"month\",\"dimension\":\"cost_micros\",\"retry_after_ms\":null,"
        "\"message\":\"the key has not enough cost_micros left in its month window; waiting cannot help: it "
        "is more than the limit ever has\"}");
}

/* The request's own fault has no window, but a dimension and a null to say that waiting cannot help. */
static void a_refusal_by_a_cap(void **state)
{
    struct hf_json_out out = {0};
    struct holdfast_answer answer;

    (void)state;
    empty_answer(&answer);
    answer.reason = HOLDFAST_REASON_REQUEST_CAP;
    answer.layer = HOLDFAST_LAYER_REQUEST;
    answer.dimension = HOLDFAST_TOKENS;
    hf_answer_admission(&out, "reserve", "c", false, HOLDFAST_REFUSED, &answer);
    assert_line(
        &out,
        "{\"op\":\"reserve\",\"ok\":false,\"id\":\"c\",\"kind\":\"reject\",\"layer\":\"request\",\"reason\":"
        "\"request-cap\",\"dimension\":\"tokens\",\"retry_after_ms\":null,\"message\":\"more than the "
        "capability's cap for one call; waiting cannot help\"}");
}

/* Names, conflicts, busy and window-over: a kind and a reason, nothing of layers. */
static void a_refusal_without_layer(void **state)
{
    static const int reasons[] = {HOLDFAST_REASON_UNKNOWN_TENANT, HOLDFAST_REASON_MODEL_LIMIT,
                                  HOLDFAST_REASON_ID_CONFLICT, HOLDFAST_REASON_BUSY,
                                  HOLDFAST_REASON_WINDOW_OVER};

    (void)state;
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        struct hf_json_out out = {0};
        struct holdfast_answer answer;
        char expected[512];

        empty_answer(&answer);
        answer.reason = reasons[i];
        hf_answer_admission(&out, "reserve", "n", false, HOLDFAST_REFUSED, &answer);
        (void)snprintf(
            expected, sizeof(expected),
            "{\"op\":\"reserve\",\"ok\":false,\"id\":\"n\",\"kind\":\"reject\",\"reason\":\"%s\",\"message\":\"%s\"}",
            holdfast_reason_name(reasons[i]), hf_answer_sentence(reasons[i]));
        assert_line(&out, expected);
    }
}

/* What would wait in a queue says where it stopped, and nothing of when to come again. */
static void a_refusal_for_want_of_queues(void **state)
{
    struct hf_json_out out = {0};
    struct holdfast_answer answer;

    (void)state;
    empty_answer(&answer);
    answer.reason = HOLDFAST_REASON_NOT_BUILT;
    answer.layer = HOLDFAST_LAYER_TEAM;
    answer.window = HOLDFAST_WINDOW_MINUTE;
    answer.dimension = HOLDFAST_INVOCATIONS;
    hf_answer_admission(&out, "reserve", "q", false, HOLDFAST_REFUSED, &answer);
    assert_line(
        &out,
        "{\"op\":\"reserve\",\"ok\":false,\"id\":\"q\",\"kind\":\"reject\",\"layer\":\"team\",\"reason\":"
        "\"not-built\",\"window\":\"minute\",\"dimension\":\"invocations\",\"message\":\"over the limit, "
        "and the policy says on_limit: queue, which this build of holdfast cannot do yet\"}");
}

/* What is no verdict on amounts has no kind: an extension of what is closed, a sum beyond the range. */
static void a_refusal_without_kind(void **state)
{
    struct hf_json_out out = {0};
    struct holdfast_answer answer;

    (void)state;
    empty_answer(&answer);
    answer.reason = HOLDFAST_REASON_ALREADY_CLOSED;
    hf_answer_admission(&out, "extend", "x", true, HOLDFAST_REFUSED, &answer);
    assert_line(
        &out,
        "{\"op\":\"extend\",\"ok\":false,\"id\":\"x\",\"reason\":\"already-closed\",\"message\":\"closed "
        "before, in another way\"}");
    answer.reason = HOLDFAST_REASON_UNKNOWN_RESERVATION;
    hf_answer_admission(&out, "extend", "x", true, HOLDFAST_REFUSED, &answer);
    assert_line(
        &out,
        "{\"op\":\"extend\",\"ok\":false,\"id\":\"x\",\"reason\":\"unknown-reservation\",\"message\":\"the "
        "segment does not know this id (any more)\"}");
}

static void a_settlement(void **state)
{
    struct hf_json_out out = {0};
    struct holdfast_closing closing = {
        .kind = HOLDFAST_CLOSED_SETTLED,
        .actual = {0, 800, 4100},
        .released = {0, 100, 2100},
        .overage = {0, 0, 0},
        .source = HOLDFAST_SOURCE_PROVIDER,
    };

    (void)state;
    hf_answer_closing(&out, "settle", "a1", HOLDFAST_OK, &closing);
    assert_line(
        &out,
        "{\"op\":\"settle\",\"ok\":true,\"id\":\"a1\",\"kind\":\"settled\",\"actual\":{\"tokens\":800,"
        "\"cost_micros\":4100},\"released\":{\"tokens\":100,\"cost_micros\":2100},\"overage\":{\"tokens\":0,"
        "\"cost_micros\":0},\"cost_source\":\"provider\",\"quota_exceeded\":false,\"late\":false,"
        "\"replayed\":false}");

    closing.actual = (struct holdfast_amounts){0, HOLDFAST_UNKNOWN, HOLDFAST_UNKNOWN};
    closing.released.tokens = closing.overage.tokens = HOLDFAST_UNKNOWN;
    closing.source = HOLDFAST_SOURCE_UNKNOWN;
    closing.quota_exceeded = closing.late = closing.replayed = 1;
    hf_answer_closing(&out, "settle", "a1", HOLDFAST_OK, &closing);
    assert_line(
        &out,
        "{\"op\":\"settle\",\"ok\":true,\"id\":\"a1\",\"kind\":\"settled\",\"actual\":{\"tokens\":null,"
        "\"cost_micros\":null},\"released\":{\"tokens\":null,\"cost_micros\":2100},\"overage\":{\"tokens\":"
        "null,\"cost_micros\":0},\"cost_source\":\"unknown\",\"quota_exceeded\":true,\"late\":true,"
        "\"replayed\":true}");
}

static void a_release_and_its_refusal(void **state)
{
    struct hf_json_out out = {0};
    struct holdfast_closing closing = {.kind = HOLDFAST_CLOSED_RELEASED, .replayed = 1};

    (void)state;
    hf_answer_closing(&out, "release", "r", HOLDFAST_OK, &closing);
    assert_line(&out,
                "{\"op\":\"release\",\"ok\":true,\"id\":\"r\",\"kind\":\"released\",\"replayed\":true}");
    closing.reason = HOLDFAST_REASON_ALREADY_DISPATCHED;
    hf_answer_closing(&out, "release", "r", HOLDFAST_REFUSED, &closing);
    assert_line(
        &out,
        "{\"op\":\"release\",\"ok\":false,\"id\":\"r\",\"reason\":\"already-dispatched\",\"message\":\"the "
        "call is on its way to the provider; settle it\"}");
}

/* A dispute says so again when it is asked again. */
static void a_dispute(void **state)
{
    struct hf_json_out out = {0};
    struct holdfast_closing closing = {.kind = HOLDFAST_CLOSED_DISPUTED, .reason = HOLDFAST_REASON_OVERAGE};
    char expected[512];

    (void)state;
    (void)snprintf(expected, sizeof(expected),
                   "{\"op\":\"settle\",\"ok\":false,\"id\":\"f\",\"reason\":\"overage\",\"message\":\"%s\"}",
                   hf_answer_sentence(HOLDFAST_REASON_OVERAGE));
    hf_answer_closing(&out, "settle", "f", HOLDFAST_REFUSED, &closing);
    assert_line(&out, expected);
    (void)snprintf(
        expected, sizeof(expected),
        "{\"op\":\"settle\",\"ok\":false,\"id\":\"f\",\"reason\":\"overage\",\"message\":\"%s\",\"replayed\":true}",
        hf_answer_sentence(HOLDFAST_REASON_OVERAGE));
    closing.replayed = 1;
    hf_answer_closing(&out, "settle", "f", HOLDFAST_REFUSED, &closing);
    assert_line(&out, expected);
}

/* A result that is no outcome still is one line. */
static void a_fault(void **state)
{
    struct hf_json_out out = {0};
    char expected[512];

    (void)state;
    hf_answer_fault(&out, "reserve", "x", HOLDFAST_NOT_READY);
    (void)snprintf(
        expected, sizeof(expected),
        "{\"op\":\"reserve\",\"ok\":false,\"id\":\"x\",\"reason\":\"not-ready\",\"message\":\"%s\"}",
        hf_answer_sentence(HOLDFAST_REASON_NOT_READY));
    assert_line(&out, expected);
    hf_answer_fault(&out, "reap", NULL, HOLDFAST_CORRUPT);
    (void)snprintf(expected, sizeof(expected),
                   "{\"op\":\"reap\",\"ok\":false,\"reason\":\"fault\",\"message\":\"%s\"}",
                   holdfast_strerror(HOLDFAST_CORRUPT));
    assert_line(&out, expected);
}

/* Whatever can be refused is explained, but for the limits, which are explained with their numbers. */
static void every_reason_has_a_sentence(void **state)
{
    (void)state;
    for (int reason = HOLDFAST_REASON_NONE + 1; reason < HOLDFAST_REASON_CNT; reason++) {
        bool limit = reason >= HOLDFAST_REASON_KEY_BUDGET && reason <= HOLDFAST_REASON_TENANT_TOTAL;

        assert_int_equal(hf_answer_sentence(reason) == NULL, limit);
    }
    assert_null(hf_answer_sentence(HOLDFAST_REASON_NONE));
    assert_null(hf_answer_sentence(HOLDFAST_REASON_CNT));
    assert_null(hf_answer_sentence(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_admission),
        cmocka_unit_test(a_degraded_replay_with_unknown_tokens),
        cmocka_unit_test(an_extension),
        cmocka_unit_test(a_refusal_by_a_limit),
        cmocka_unit_test(a_refusal_by_a_cap),
        cmocka_unit_test(a_refusal_without_layer),
        cmocka_unit_test(a_refusal_for_want_of_queues),
        cmocka_unit_test(a_refusal_without_kind),
        cmocka_unit_test(a_settlement),
        cmocka_unit_test(a_release_and_its_refusal),
        cmocka_unit_test(a_dispute),
        cmocka_unit_test(a_fault),
        cmocka_unit_test(every_reason_has_a_sentence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
