/* ctest: labels=valgrind */
/* What `holdfast run` makes of a line before and after the library has its say: forms, and which field goes where. The
 * library is played by this test, the command's own files are in no library. */
#define holdfast_reserve  played_reserve
#define holdfast_extend   played_extend
#define holdfast_dispatch played_dispatch
#define holdfast_settle   played_settle
#define holdfast_release  played_release
#define holdfast_reap     played_reap
#define holdfast_limits   played_limits
#define holdfast_meters   played_meters
#define holdfast_credit   played_credit
#define holdfast_now_ms   played_now_ms
#define hf_clock_inject   played_inject

#include "tools/holdfast/json_in.c"
#include "tools/holdfast/json_out.c"
#include "tools/holdfast/run_admin.c"
#include "tools/holdfast/run_answer.c"
#include "tools/holdfast/run_close.c"
#include "tools/holdfast/run_look.c"
#include "tools/holdfast/run_op.c"
#include "tools/holdfast/run_receipt.c"
#include "tools/holdfast/run_reserve.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* ---- the library as played ---------------------------------------------------------------------------------------- */

static struct {
    struct holdfast_request request;
    struct holdfast_extension extension;
    struct holdfast_usage usage;
    bool has_usage;
    int outcome;
    int window;
    int64_t micros;
    char id[64], ref[64], by[64], reason[256], names[3][64];
    unsigned calls, flushes;
    bool flush_fails;
} seen;

static void keep(char *to, size_t bytes, const char *text)
{
    (void)snprintf(to, bytes, "%s", text == NULL ? "(none)" : text);
}

int played_reserve(struct holdfast *handle, const struct holdfast_request *request,
                   struct holdfast_answer *answer)
{
    (void)handle;
    seen.calls++;
    seen.request = *request;
    keep(seen.id, sizeof(seen.id), request->id);
    *answer = (struct holdfast_answer){.kind = HOLDFAST_ALLOW};
    return HOLDFAST_OK;
}

int played_extend(struct holdfast *handle, const struct holdfast_extension *extension,
                  struct holdfast_answer *answer)
{
    (void)handle;
    seen.calls++;
    seen.extension = *extension;
    *answer = (struct holdfast_answer){.kind = HOLDFAST_ALLOW};
    return HOLDFAST_OK;
}

int played_dispatch(struct holdfast *handle, const char *id, uint64_t hold, int *reason)
{
    (void)handle;
    (void)hold;
    (void)reason;
    seen.calls++;
    keep(seen.id, sizeof(seen.id), id);
    return HOLDFAST_OK;
}

int played_settle(struct holdfast *handle, const char *id, uint64_t hold, const struct holdfast_usage *usage,
                  int outcome, const char *ref, struct holdfast_closing *closing)
{
    (void)handle;
    (void)hold;
    seen.calls++;
    keep(seen.id, sizeof(seen.id), id);
    keep(seen.ref, sizeof(seen.ref), ref);
    seen.has_usage = usage != NULL;
    if (usage != NULL) {
        seen.usage = *usage;
    }
    seen.outcome = outcome;
    *closing = (struct holdfast_closing){.kind = HOLDFAST_CLOSED_SETTLED};
    return HOLDFAST_OK;
}

int played_release(struct holdfast *handle, const char *id, uint64_t hold, struct holdfast_closing *closing)
{
    (void)handle;
    (void)hold;
    seen.calls++;
    keep(seen.id, sizeof(seen.id), id);
    *closing = (struct holdfast_closing){.kind = HOLDFAST_CLOSED_RELEASED};
    return HOLDFAST_OK;
}

int played_reap(struct holdfast *handle, uint32_t slots_max, void (*cb)(void *arg, const char *id, int kind),
                void *arg)
{
    (void)handle;
    assert_int_equal(slots_max, 0);
    seen.calls++;
    cb(arg, "b", HOLDFAST_CLOSED_RETAINED);
    cb(arg, "\xc3\xa9", HOLDFAST_CLOSED_EXPIRED);
    cb(arg, "B", HOLDFAST_CLOSED_EXPIRED);
    cb(arg, "a10", HOLDFAST_CLOSED_EXPIRED);
    cb(arg, "a1", HOLDFAST_CLOSED_RETAINED);
    return 5;
}

int played_limits(struct holdfast *handle, const char *tenant, const char *team, const char *key,
                  struct holdfast_limit *limits, int limits_max, int *reason)
{
    (void)handle;
    seen.calls++;
    keep(seen.names[0], 64, tenant);
    keep(seen.names[1], 64, team);
    keep(seen.names[2], 64, key);
    assert_int_equal(limits_max, 15);
    if (strcmp(tenant, "nobody") == 0) {
        *reason = HOLDFAST_REASON_UNKNOWN_TENANT;
        return HOLDFAST_INVALID;
    }
    limits[0] = (struct holdfast_limit){
        .window = HOLDFAST_WINDOW_LIFETIME,
        .dimension = HOLDFAST_TOKENS,
        .window_end_ms = HOLDFAST_UNKNOWN,
        .limit = 10,
        .credit = 1,
        .held = 8,
        .settled = 5,
        .available = -2,
    };
    return 1;
}

int played_meters(struct holdfast *handle, const char *tenant,
                  void (*cb)(void *arg, const struct holdfast_meter *meter), void *arg, int *reason)
{
    static const struct holdfast_meter meters[] = {{"t", "c", "mock", 1, 2, 3, 4, 5},
                                                   {"t", "c", "", 6, 7, 8, 9, 10},
                                                   {"t", "b", "zeta", 0, 0, 0, 0, 0},
                                                   {"a", "z", "z", 0, 0, 0, -1, 0}};

    (void)handle;
    (void)reason;
    seen.calls++;
    keep(seen.names[0], 64, tenant);
    for (size_t i = 0; i < sizeof(meters) / sizeof(meters[0]); i++) {
        cb(arg, &meters[i]);
    }
    return HOLDFAST_OK;
}

int played_credit(struct holdfast *handle, const char *tenant, const char *team, int window, int64_t micros,
                  const char *reason, const char *by, uint64_t *total, int *refused)
{
    (void)handle;
    (void)refused;
    seen.calls++;
    keep(seen.names[0], 64, tenant);
    keep(seen.names[1], 64, team);
    keep(seen.reason, sizeof(seen.reason), reason);
    keep(seen.by, sizeof(seen.by), by);
    seen.window = window;
    seen.micros = micros;
    *total = 7;
    return HOLDFAST_OK;
}

uint64_t played_now_ms(const struct holdfast *handle)
{
    (void)handle;
    return 1790000000000;
}

uint64_t played_inject(struct hf_segment *seg, uint64_t ms)
{
    (void)seg;
    seen.calls++;
    return ms < 1790000000000 ? 1790000000000 : ms;
}

bool hf_run_flush(struct hf_run *run)
{
    run->extended = false;
    seen.flushes++;
    return !seen.flush_fails;
}

/* ---- asking ------------------------------------------------------------------------------------------------------- */

static struct hf_segment segment;
static struct hf_run run;

static int set_up(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof(seen));
    segment.injected = true;
    run = (struct hf_run){.segment = &segment, .by = "user"};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hf_json_out_free(&run.out);
    return 0;
}

/* The answer to a line, which must be a JSON object on one line. */
static json_t *ask(const char *line)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    assert_non_null(to);
    assert_int_equal(hf_run_line(&run, line, strlen(line)), 0);
    assert_int_equal(hf_json_out_line(&run.out, to), 0);
    assert_int_equal(fclose(to), 0);
    assert_ptr_equal(strchr(text, '\n'), text + bytes - 1);

    json_t *answer = json_loads(text, 0, NULL);

    free(text);
    assert_true(json_is_object(answer));
    return answer;
}

/* Refused before the library is asked, with this reason; op NULL: answered null. */
static void assert_refused(const char *line, const char *op, const char *reason)
{
    unsigned calls = seen.calls;
    json_t *answer = ask(line);
    const json_t *answered = json_object_get(answer, "op");

    assert_int_equal(seen.calls, calls);
    assert_true(json_is_false(json_object_get(answer, "ok")));
    assert_string_equal(json_string_value(json_object_get(answer, "reason")), reason);
    assert_true(json_string_length(json_object_get(answer, "message")) > 0);
    if (op == NULL) {
        assert_true(json_is_null(answered));
    } else {
        assert_string_equal(json_string_value(answered), op);
    }
    json_decref(answer);
}

static void assert_taken(const char *line)
{
    unsigned calls = seen.calls;
    json_t *answer = ask(line);

    assert_int_equal(seen.calls, calls + 1);
    assert_true(json_is_true(json_object_get(answer, "ok")));
    json_decref(answer);
}

static void assert_answer(const char *line, const char *expected)
{
    json_t *answer = ask(line);
    char *text = json_dumps(answer, JSON_COMPACT);

    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
    json_decref(answer);
}

#define PATH "\"op\":\"reserve\",\"id\":\"x\",\"tenant\":\"t\",\"team\":\"u\",\"capability\":\"c\""

/* ---- forms -------------------------------------------------------------------------------------------------------- */

static void a_line_that_is_no_operation(void **state)
{
    (void)state;
    assert_refused("", NULL, "invalid-request");
    assert_refused("   ", NULL, "invalid-request");
    assert_refused("{", NULL, "invalid-request");
    assert_refused("[]", NULL, "invalid-request");
    assert_refused("{}", NULL, "invalid-request");
    assert_refused("{\"op\":7}", NULL, "invalid-request");
    assert_refused("{\"op\":\"nope\"}", NULL, "invalid-request");
    assert_refused("{\"op\":\"Reap\"}", NULL, "invalid-request");
}

static void a_line_that_is_too_long(void **state)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    (void)state;
    assert_non_null(to);
    hf_run_line_too_long(&run);
    assert_int_equal(hf_json_out_line(&run.out, to), 0);
    assert_int_equal(fclose(to), 0);
    assert_string_equal(
        text, "{\"op\":null,\"ok\":false,\"reason\":\"invalid-request\",\"message\":\"the line is longer "
              "than 1048576 bytes, the most that is read\"}\n");
    free(text);
}

static void forms_of_reserve(void **state)
{
    (void)state;
    assert_refused("{\"op\":\"reserve\"}", "reserve", "invalid-request");
    assert_refused("{" PATH "}", "reserve", "invalid-request");
    assert_refused("{" PATH ",\"model\":\"m\"}", "reserve", "invalid-request");
    assert_refused("{" PATH ",\"input_tokens\":1}", "reserve", "invalid-request");
    assert_refused("{" PATH ",\"input_tokens\":1,\"tokens\":1}", "reserve", "invalid-request");
    assert_refused("{" PATH ",\"model\":\"m\",\"input_tokens\":1,\"cost_micros\":1}", "reserve",
                   "invalid-request");
    assert_refused("{" PATH ",\"model\":\"m\",\"input_tokens\":1,\"economy_cost_micros\":1}", "reserve",
                   "invalid-request");
    assert_refused("{" PATH ",\"tokens\":1,\"economy_model\":\"m\"}", "reserve", "invalid-request");
    assert_refused("{" PATH ",\"tokens\":1,\"max_output_tokens\":5}", "reserve", "invalid-request");
    assert_refused("{" PATH ",\"tokens\":1,\"economy_tokens\":5}", "reserve", "invalid-request");
    assert_refused("{" PATH ",\"economy_cost_micros\":5}", "reserve", "invalid-request");
    assert_refused("{" PATH ",\"tokens\":1,\"key\":\"\"}", "reserve", "invalid-request");
    assert_refused("{" PATH ",\"tokens\":1,\"ttl_ms\":0}", "reserve", "invalid-amount");
    assert_refused("{" PATH ",\"tokens\":1.0}", "reserve", "invalid-amount");
    assert_refused("{" PATH ",\"tokens\":72057594037927936}", "reserve", "invalid-amount");
    assert_refused("{" PATH ",\"model\":\"m\",\"input_tokens\":1,\"max_output_tokens\":0}", "reserve",
                   "invalid-amount");
    /* What does not go together comes before a number that is none. */
    assert_refused("{" PATH ",\"tokens\":-1,\"model\":\"m\"}", "reserve", "invalid-request");
    assert_refused("{" PATH ",\"tokens\":-1,\"economy_tokens\":5}", "reserve", "invalid-request");
}

static void forms_of_extend(void **state)
{
    (void)state;
    assert_refused("{\"op\":\"extend\"}", "extend", "invalid-request");
    assert_refused("{\"op\":\"extend\",\"id\":\"x\",\"max_output_tokens\":300,\"tokens\":400}", "extend",
                   "invalid-request");
    assert_refused("{\"op\":\"extend\",\"id\":\"x\",\"max_output_tokens\":0}", "extend", "invalid-amount");
    assert_refused("{\"op\":\"extend\",\"id\":\"x\",\"cost_micros\":\"4500\"}", "extend", "invalid-amount");
    assert_refused("{\"op\":\"extend\",\"id\":\"x\",\"ttl_ms\":0}", "extend", "invalid-amount");
    assert_taken("{\"op\":\"extend\",\"id\":\"x\"}");
}

static void forms_of_settle(void **state)
{
    (void)state;
    assert_refused("{\"op\":\"settle\",\"id\":\"x\",\"outcome\":\"success\"}", "settle", "invalid-request");
    assert_refused("{\"op\":\"settle\",\"usage\":null,\"outcome\":\"success\"}", "settle", "invalid-request");
    assert_refused("{\"op\":\"settle\",\"id\":\"x\",\"usage\":\"none\",\"outcome\":\"success\"}", "settle",
                   "invalid-request");
    assert_refused("{\"op\":\"settle\",\"id\":\"x\",\"usage\":{\"input_tokens\":1},\"outcome\":\"success\"}",
                   "settle", "invalid-request");
    assert_refused("{\"op\":\"settle\",\"id\":\"x\",\"usage\":null,\"outcome\":\"done\"}", "settle",
                   "invalid-request");
    assert_refused("{\"op\":\"settle\",\"id\":\"x\",\"usage\":null}", "settle", "invalid-request");
    assert_refused("{\"op\":\"settle\",\"id\":\"x\",\"usage\":null,\"outcome\":\"success\",\"ref\":\"\"}",
                   "settle", "invalid-request");
    assert_refused(
        "{\"op\":\"settle\",\"id\":\"x\",\"usage\":{\"input_tokens\":1,\"output_tokens\":-1},\"outcome\":"
        "\"success\"}",
        "settle", "invalid-amount");
}

static void forms_of_the_others(void **state)
{
    (void)state;
    assert_refused("{\"op\":\"release\"}", "release", "invalid-request");
    assert_refused("{\"op\":\"dispatch\",\"id\":7}", "dispatch", "invalid-request");
    assert_refused("{\"op\":\"receipts\"}", "receipts", "invalid-request");
    assert_refused("{\"op\":\"usage\"}", "usage", "invalid-request");
    assert_refused("{\"op\":\"usage\",\"tenant\":\"t\",\"key\":\"k\"}", "usage", "invalid-request");
    assert_refused(
        "{\"op\":\"credit\",\"tenant\":\"t\",\"team\":\"u\",\"window\":\"week\",\"micros\":1,\"reason\":\"x\"}",
        "credit", "invalid-request");
    assert_refused("{\"op\":\"credit\",\"tenant\":\"t\",\"team\":\"u\",\"window\":\"month\",\"micros\":1}",
                   "credit", "invalid-request");
    assert_refused(
        "{\"op\":\"credit\",\"tenant\":\"t\",\"team\":\"u\",\"window\":\"month\",\"micros\":1.5,\"reason\":"
        "\"x\"}",
        "credit", "invalid-amount");
    assert_refused("{\"op\":\"credit\",\"tenant\":\"t\",\"team\":\"u\",\"window\":\"month\",\"micros\":"
                   "-72057594037927936,\"reason\":\"x\"}",
                   "credit", "invalid-amount");
}

static void operations_that_are_not_made_yet(void **state)
{
    (void)state;
    assert_refused("{\"op\":\"poll\",\"ticket\":\"7\"}", "poll", "not-built");
    assert_refused("{\"op\":\"apply\",\"policy\":\"p.yaml\",\"reason\":\"x\",\"now\":true}", "apply",
                   "not-built");
    assert_refused("{\"op\":\"resolve\",\"id\":\"x\",\"usage\":null,\"reason\":\"y\"}", "resolve",
                   "not-built");
    assert_refused("{\"op\":\"holds\",\"tenant\":\"t\",\"state\":\"held\",\"limit\":2,\"after\":\"x\"}",
                   "holds", "not-built");
    assert_refused("{\"op\":\"poll\"}", "poll", "invalid-request");
    assert_refused("{\"op\":\"apply\",\"reason\":\"x\"}", "apply", "invalid-request");
    assert_refused("{\"op\":\"apply\",\"policy\":\"p\",\"reason\":\"x\",\"now\":1}", "apply",
                   "invalid-request");
    assert_refused("{\"op\":\"resolve\",\"id\":\"x\",\"usage\":null}", "resolve", "invalid-request");
    assert_refused("{\"op\":\"resolve\",\"id\":\"x\",\"reason\":\"y\"}", "resolve", "invalid-request");
    assert_refused("{\"op\":\"holds\",\"tenant\":\"\"}", "holds", "invalid-request");
    assert_refused("{\"op\":\"holds\",\"limit\":0}", "holds", "invalid-request");
    assert_refused("{\"op\":\"holds\",\"state\":\"open\"}", "holds", "invalid-request");
    assert_refused("{\"op\":\"holds\",\"limit\":1.5}", "holds", "invalid-amount");
}

static void forms_of_clock(void **state)
{
    (void)state;
    assert_refused("{\"op\":\"clock\"}", "clock", "invalid-request");
    assert_refused("{\"op\":\"clock\",\"set_ms\":1,\"advance_ms\":1}", "clock", "invalid-request");
    assert_refused("{\"op\":\"clock\",\"advance_ms\":-1}", "clock", "invalid-amount");
    assert_refused("{\"op\":\"clock\",\"set_ms\":13601088000000}", "clock", "invalid-amount");
    assert_refused("{\"op\":\"clock\",\"advance_ms\":11811088000000}", "clock", "invalid-amount");
    assert_answer("{\"op\":\"clock\",\"set_ms\":13601087999999}",
                  "{\"op\":\"clock\",\"ok\":true,\"now_ms\":13601087999999}");
    assert_answer("{\"op\":\"clock\",\"advance_ms\":11811087999999}",
                  "{\"op\":\"clock\",\"ok\":true,\"now_ms\":13601087999999}");
    assert_answer("{\"op\":\"clock\",\"set_ms\":5}",
                  "{\"op\":\"clock\",\"ok\":true,\"now_ms\":1790000000000}");
    segment.injected = false;
    assert_refused("{\"op\":\"clock\",\"advance_ms\":1}", "clock", "invalid-request");
}

/* ---- which field goes where ------------------------------------------------------------------------------------- */

static void a_request_by_model(void **state)
{
    (void)state;
    assert_taken(
        "{" PATH
        ",\"key\":\"k\",\"model\":\"m\",\"input_tokens\":11,\"max_output_tokens\":12,\"economy_model\":"
        "\"e\",\"ttl_ms\":13}");
    assert_string_equal(seen.id, "x");
    assert_int_equal(seen.request.input_tokens, 11);
    assert_int_equal(seen.request.max_output_tokens, 12);
    assert_int_equal(seen.request.ttl_ms, 13);
    assert_int_equal(seen.request.want_remaining, 1);
    assert_true(seen.request.tokens == HOLDFAST_UNKNOWN && seen.request.cost_micros == HOLDFAST_UNKNOWN);
    assert_true(seen.request.model != NULL && seen.request.economy_model != NULL && seen.request.key != NULL);
}

static void a_request_by_amounts(void **state)
{
    (void)state;
    assert_taken(
        "{" PATH
        ",\"key\":null,\"tokens\":0,\"cost_micros\":21,\"economy_cost_micros\":22,\"economy_tokens\":23}");
    assert_int_equal(seen.request.tokens, 0);
    assert_int_equal(seen.request.cost_micros, 21);
    assert_int_equal(seen.request.economy_cost_micros, 22);
    assert_int_equal(seen.request.economy_tokens, 23);
    assert_true(seen.request.input_tokens == HOLDFAST_UNKNOWN && seen.request.ttl_ms == HOLDFAST_UNKNOWN);
    assert_true(seen.request.max_output_tokens == HOLDFAST_UNKNOWN);
    assert_true(seen.request.key == NULL && seen.request.model == NULL && seen.request.economy_model == NULL);
}

/* Each extension shall have a receipt of its own: one that may still wait is drained before the next. */
static void an_extension(void **state)
{
    (void)state;
    assert_taken("{\"op\":\"extend\",\"id\":\"x\",\"tokens\":5,\"cost_micros\":6,\"ttl_ms\":7}");
    assert_int_equal(seen.extension.tokens, 5);
    assert_int_equal(seen.extension.cost_micros, 6);
    assert_int_equal(seen.extension.ttl_ms, 7);
    assert_true(seen.extension.max_output_tokens == HOLDFAST_UNKNOWN);
    assert_int_equal(seen.extension.want_remaining, 1);
    assert_int_equal(seen.flushes, 0);
    assert_taken("{\"op\":\"extend\",\"id\":\"x\",\"max_output_tokens\":8}");
    assert_int_equal(seen.extension.max_output_tokens, 8);
    assert_int_equal(seen.flushes, 1);
}

static void a_settlement(void **state)
{
    (void)state;
    assert_taken(
        "{\"op\":\"settle\",\"id\":\"s\",\"usage\":{\"input_tokens\":1,\"output_tokens\":2,\"cached_input_tokens\":"
        "3,\"cache_write_input_tokens\":4,\"cost_micros\":5},\"outcome\":\"failure\",\"ref\":\"r\"}");
    assert_true(seen.has_usage);
    assert_int_equal(seen.usage.input_tokens, 1);
    assert_int_equal(seen.usage.output_tokens, 2);
    assert_int_equal(seen.usage.cached_input_tokens, 3);
    assert_int_equal(seen.usage.cache_write_input_tokens, 4);
    assert_int_equal(seen.usage.cost_micros, 5);
    assert_int_equal(seen.outcome, HOLDFAST_FAILURE);
    assert_string_equal(seen.ref, "r");
    assert_taken("{\"op\":\"settle\",\"id\":\"s\",\"usage\":null,\"outcome\":\"success\"}");
    assert_false(seen.has_usage);
    assert_int_equal(seen.outcome, HOLDFAST_SUCCESS);
    assert_string_equal(seen.ref, "(none)");
}

static void reaped_ones_are_sorted_bytewise(void **state)
{
    (void)state;
    assert_answer(
        "{\"op\":\"reap\"}",
        "{\"op\":\"reap\",\"ok\":true,\"closed\":[{\"id\":\"B\",\"kind\":\"expired\"},{\"id\":\"a1\",\"kind\":"
        "\"retained\"},{\"id\":\"a10\",\"kind\":\"expired\"},{\"id\":\"b\",\"kind\":\"retained\"},{\"id\":"
        "\"\xc3\xa9\",\"kind\":\"expired\"}]}");
}

static void usage_is_of_everything_before(void **state)
{
    (void)state;
    assert_answer(
        "{\"op\":\"usage\",\"tenant\":\"t\",\"team\":\"u\",\"key\":\"k\"}",
        "{\"op\":\"usage\",\"ok\":true,\"limits\":[{\"window\":\"lifetime\",\"window_start_ms\":0,"
        "\"window_end_ms\":null,\"dimension\":\"tokens\",\"limit\":10,\"credit\":1,\"held\":8,\"settled\":5,"
        "\"available\":-2}]}");
    assert_int_equal(seen.flushes, 1);
    assert_string_equal(seen.names[2], "k");

    json_t *answer = ask("{\"op\":\"usage\",\"tenant\":\"nobody\"}");

    assert_string_equal(json_string_value(json_object_get(answer, "reason")), "unknown-tenant");
    assert_string_equal(seen.names[1], "(none)");
    json_decref(answer);
    seen.flush_fails = true;
    assert_refused("{\"op\":\"usage\",\"tenant\":\"t\"}", "usage", "not-ready");
    assert_refused("{\"op\":\"meters\"}", "meters", "not-ready");
    assert_refused("{\"op\":\"receipts\",\"id\":\"t\"}", "receipts", "not-ready");
}

static void meters_are_sorted(void **state)
{
    json_t *answer = ask("{\"op\":\"meters\",\"tenant\":\"t\"}"), *meters = json_object_get(answer, "meters");

    (void)state;
    assert_int_equal(json_array_size(meters), 4);
    assert_string_equal(json_string_value(json_object_get(json_array_get(meters, 0), "tenant")), "a");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(meters, 0), "reserved_micros")), -1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(meters, 1), "capability")), "b");
    assert_true(json_is_null(json_object_get(json_array_get(meters, 2), "model")));
    assert_int_equal(json_integer_value(json_object_get(json_array_get(meters, 2), "settled_micros")), 10);
    assert_string_equal(json_string_value(json_object_get(json_array_get(meters, 3), "model")), "mock");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(meters, 3), "degraded")), 3);
    assert_string_equal(seen.names[0], "t");
    json_decref(answer);
}

static void credit_is_given_by_the_user_unless_told(void **state)
{
    (void)state;
    assert_answer(
        "{\"op\":\"credit\",\"tenant\":\"t\",\"team\":\"u\",\"window\":\"day\",\"micros\":-3,\"reason\":\"why\"}",
        "{\"op\":\"credit\",\"ok\":true,\"credit\":7}");
    assert_int_equal(seen.window, HOLDFAST_WINDOW_DAY);
    assert_int_equal(seen.micros, -3);
    assert_string_equal(seen.reason, "why");
    assert_string_equal(seen.by, "user");
    assert_taken(
        "{\"op\":\"credit\",\"tenant\":\"t\",\"team\":\"u\",\"window\":\"lifetime\",\"micros\":3,\"reason\":"
        "\"why\",\"by\":\"ops\"}");
    assert_int_equal(seen.window, HOLDFAST_WINDOW_LIFETIME);
    assert_string_equal(seen.by, "ops");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_that_is_no_operation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_line_that_is_too_long, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forms_of_reserve, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forms_of_extend, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forms_of_settle, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forms_of_the_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(operations_that_are_not_made_yet, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forms_of_clock, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_request_by_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_request_by_amounts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_extension, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_settlement, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reaped_ones_are_sorted_bytewise, set_up, tear_down),
        cmocka_unit_test_setup_teardown(usage_is_of_everything_before, set_up, tear_down),
        cmocka_unit_test_setup_teardown(meters_are_sorted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(credit_is_given_by_the_user_unless_told, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
