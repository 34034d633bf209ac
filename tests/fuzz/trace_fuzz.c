/* Any bytes are read as a trace: rows keep the promises of tools/common/trace.h, and every line is a row, a report or
 * nothing. */
#include "fuzz.h"

#include "core/amount.h"
#include "core/name.h"
#include "tools/common/trace.h"

#include <string.h>

struct seen {
    uint64_t line;
    uint64_t bad_cnt;
};

static void on_bad_row(void *context, uint64_t line, const char *reason)
{
    struct seen *seen = context;

    FUZZ_REQUIRE(line > seen->line);
    FUZZ_REQUIRE(reason[0] != '\0');
    for (const char *c = reason; *c != '\0'; c++) {
        FUZZ_REQUIRE(*c >= ' ' && *c <= '~');
    }
    seen->line = line;
    seen->bad_cnt++;
}

static void read_rows(struct hf_trace *trace, struct seen *seen)
{
    struct hf_trace_row row;
    uint64_t at_ns = 0, row_cnt = 0;

    while (hf_trace_next(trace, &row) == 0) {
        FUZZ_REQUIRE(row.line > seen->line);
        FUZZ_REQUIRE(row_cnt > 0 || row.at_ns == 0);
        FUZZ_REQUIRE(row.at_ns >= at_ns);
        FUZZ_REQUIRE(row.input_tokens <= HF_AMOUNT_MAX && row.output_tokens <= HF_AMOUNT_MAX);
        FUZZ_REQUIRE(row.failed == (row.output_tokens == 0));
        FUZZ_REQUIRE((row.model != NULL) == (hf_trace_format(trace) == HF_TRACE_BURSTGPT));
        FUZZ_REQUIRE(row.model == NULL || hf_name_valid(row.model, strlen(row.model)));
        seen->line = row.line;
        at_ns = row.at_ns;
        row_cnt++;
    }
    FUZZ_REQUIRE(hf_trace_next(trace, &row) == HF_TRACE_END);
    FUZZ_REQUIRE(hf_trace_counts(trace).row_cnt == row_cnt);
    FUZZ_REQUIRE(hf_trace_counts(trace).skipped_cnt == seen->bad_cnt);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t cnt)
{
    struct seen seen = {.line = 1};
    struct hf_trace *trace = NULL;
    uint64_t line_cnt = cnt > 0 && bytes[cnt - 1] != '\n';
    char why[512] = "";
    FILE *stream = cnt == 0 ? fopen("/dev/null", "r") : fmemopen((void *)bytes, cnt, "r");

    FUZZ_REQUIRE(stream != NULL);
    for (size_t i = 0; i < cnt; i++) {
        line_cnt += bytes[i] == '\n';
    }
    if (hf_trace_open_stream(&trace, stream, "fuzz", on_bad_row, &seen, why, sizeof(why)) == 0) {
        read_rows(trace, &seen);
        FUZZ_REQUIRE(seen.line <= line_cnt);
    } else {
        FUZZ_REQUIRE(trace == NULL && why[0] != '\0');
    }
    hf_trace_close(trace);
    (void)fclose(stream);
    return 0;
}
