#include "tools/common/trace.h"

#include "core/amount.h"
#include "core/name.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FIELD_CNT_MAX    6
#define NS_PER_S         1000000000
#define FRACTION_DIGITS  9
#define REASON_BYTES_MAX 160
#define SHOWN_BYTES_MAX  40

/* The columns of a format, by name, and where those lie that are used. */
struct columns {
    const char *names[FIELD_CNT_MAX];
    size_t cnt;
    size_t input_idx;
    size_t output_idx;
};

static const struct columns formats[] = {
    [HF_TRACE_AZURE] = {{"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, 3, 1, 2},
    [HF_TRACE_BURSTGPT] = {
        {"Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"}, 6, 2, 3}};

enum burstgpt_column {
    BURSTGPT_MODEL = 1,
    BURSTGPT_TOTAL = 4,
};

struct hf_trace {
    FILE *stream;
    bool owns_stream;
    enum hf_trace_format format;
    hf_trace_bad_row_fn *bad_row;
    void *context;
    /* The line that was read last. */
    uint64_t line;
    /* Negative errno of the first failed read, else 0. */
    int error;
    bool has_first;
    __int128 first_ns;
    __int128 last_ns;
    struct hf_trace_counts counts;
    /* NUL after the line; fields are cut in place. */
    char text[HF_TRACE_LINE_BYTES_MAX + 1];
    char reason[REASON_BYTES_MAX];
};

static bool bad(struct hf_trace *trace, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Keeps why the row is malformed; false, so that a check can end with it. */
static bool bad(struct hf_trace *trace, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(trace->reason, sizeof(trace->reason), format, args);
    va_end(args);
    return false;
}

enum line_state {
    LINE_READ,
    LINE_TOO_LONG,
    LINE_END,
    LINE_ERROR,
};

/* Reads the next line without its end into trace->text and counts it; *bytes is its length. */
static enum line_state read_line(struct hf_trace *trace, size_t *bytes)
{
    size_t used = 0;
    bool too_long = false;
    int c = EOF;

    if (trace->error != 0) {
        return LINE_ERROR;
    }
    errno = 0;
    c = getc_unlocked(trace->stream);
    if (c != EOF) {
        trace->line++;
    }
    for (; c != EOF && c != '\n'; c = getc_unlocked(trace->stream)) {
        /* One more than allowed fits, since it may be the CR of the line's end. */
        if (used == sizeof(trace->text)) {
            too_long = true;
        } else {
            trace->text[used++] = (char)c;
        }
    }
    if (c == EOF && ferror(trace->stream)) {
        trace->error = errno == 0 ? -EIO : -errno;
        return LINE_ERROR;
    }
    if (c == EOF && used == 0) {
        return LINE_END;
    }
    if (used > 0 && trace->text[used - 1] == '\r' && !too_long) {
        used--;
    }
    if (too_long || used > HF_TRACE_LINE_BYTES_MAX) {
        return LINE_TOO_LONG;
    }
    trace->text[used] = '\0';
    *bytes = used;
    return LINE_READ;
}

/* Undoes the quotes of the field that starts behind its opening quote; returns what stands behind the closing
 * one, NULL when there is none. */
static char *unquote(char *from)
{
    char *to = from;

    for (; *from != '"' || from[1] == '"'; from++) {
        if (*from == '\0') {
            return NULL;
        }
        if (*from == '"') {
            from++;
        }
        *to++ = *from;
    }
    *to = '\0';
    return from + 1;
}

/* Takes one field off *at and leaves *at behind its comma, NULL after the last field. NULL: bad quotes. */
static char *take_field(char **at)
{
    char *field = *at, *end = NULL;

    if (*field == '"') {
        field++;
        end = unquote(field);
    } else {
        end = field + strcspn(field, ",\"");
    }
    if (end == NULL || (*end != ',' && *end != '\0')) {
        return NULL;
    }
    *at = *end == ',' ? end + 1 : NULL;
    *end = '\0';
    return field;
}

/* Cuts trace->text into its fields: *cnt of them, of which the first FIELD_CNT_MAX are given out. */
static bool split(struct hf_trace *trace, size_t bytes, char *fields[FIELD_CNT_MAX], size_t *cnt)
{
    char *at = trace->text;

    *cnt = 0;
    if (memchr(trace->text, '\0', bytes) != NULL) {
        return bad(trace, "a NUL byte in the line");
    }
    while (at != NULL) {
        char *field = take_field(&at);

        if (field == NULL) {
            return bad(trace, "quotes that do not pair up in column %zu", *cnt + 1);
        }
        if (*cnt < FIELD_CNT_MAX) {
            fields[*cnt] = field;
        }
        ++*cnt;
    }
    return true;
}

/* The text of a field for a message: no terminal is at its mercy. */
static const char *shown(const char *text, char buf[SHOWN_BYTES_MAX + 1])
{
    size_t i = 0;

    for (; text[i] != '\0' && i < SHOWN_BYTES_MAX; i++) {
        buf[i] = text[i];
        if (text[i] < ' ' || text[i] > '~') {
            buf[i] = '?';
        }
    }
    buf[i] = '\0';
    return buf;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The digits of a field become an amount; what follows them is at *end. False: no digit, or above the range. */
static bool take_amount(const char *text, uint64_t *value, const char **end)
{
    bool fits = is_digit(*text);

    *value = 0;
    for (; is_digit(*text); text++) {
        fits = fits && hf_amount_add(*value * 10, (uint64_t)(*text - '0'), value);
    }
    *end = text;
    return fits;
}

static bool read_amount(struct hf_trace *trace, size_t column_idx, const char *text, uint64_t *value)
{
    const char *name = formats[trace->format].names[column_idx];
    const char *digits = *text == '-' ? text + 1 : text, *end = NULL;
    char buf[SHOWN_BYTES_MAX + 1];
    bool fits = take_amount(digits, value, &end);

    if (end == digits || *end != '\0') {
        return bad(trace, "%s is no whole number: '%s'", name, shown(text, buf));
    }
    if (*text == '-') {
        return bad(trace, "%s is negative: '%s'", name, shown(text, buf));
    }
    if (!fits) {
        return bad(trace, "%s is above 2^56 - 1: '%s'", name, shown(text, buf));
    }
    return true;
}

/* Reads exactly cnt digits, then the character `then` (NUL: whatever follows). */
static bool take_digits(const char **at, unsigned cnt, char then, unsigned *value)
{
    *value = 0;
    for (unsigned i = 0; i < cnt; i++, (*at)++) {
        if (!is_digit(**at)) {
            return false;
        }
        *value = *value * 10 + (unsigned)(**at - '0');
    }
    if (then != '\0') {
        return *(*at)++ == then;
    }
    return true;
}

/* Reads an optional fraction of a second. */
static bool take_fraction(const char **at, unsigned *ns)
{
    unsigned digit_cnt = 0;

    *ns = 0;
    if (**at != '.') {
        return true;
    }
    for ((*at)++; is_digit(**at); (*at)++, digit_cnt++) {
        if (digit_cnt < FRACTION_DIGITS) {
            *ns = *ns * 10 + (unsigned)(**at - '0');
        }
    }
    for (unsigned i = digit_cnt; i < FRACTION_DIGITS; i++) {
        *ns *= 10;
    }
    return digit_cnt > 0;
}

/* Reads an optional offset from UTC, Z or +HH:MM, up to the end. */
static bool take_offset(const char **at, int *minutes)
{
    unsigned hours = 0, rest = 0;
    char sign = **at;

    *minutes = 0;
    if (sign == '\0') {
        return true;
    }
    (*at)++;
    if (sign == 'Z') {
        return **at == '\0';
    }
    if ((sign != '+' && sign != '-') || !take_digits(at, 2, ':', &hours) ||
        !take_digits(at, 2, '\0', &rest)) {
        return false;
    }
    *minutes = (int)(hours * 60 + rest) * (sign == '-' ? -1 : 1);
    return hours < 24 && rest < 60 && **at == '\0';
}

static bool is_leap(unsigned year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Days from the first day of year 1 to this one; false when there is no such day. */
static bool days_of(unsigned year, unsigned month, unsigned day, int64_t *days)
{
    static const unsigned before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};

    if (year < 1 || month < 1 || month > 12 || day < 1) {
        return false;
    }

    unsigned leap_day = is_leap(year) ? 1 : 0, past = year - 1;

    if (day > before[month] - before[month - 1] + (month == 2 ? leap_day : 0)) {
        return false;
    }
    *days = (int64_t)past * 365 + past / 4 - past / 100 + past / 400 + before[month - 1] +
            (month > 2 ? leap_day : 0) + day - 1;
    return true;
}

/* YYYY-MM-DD HH:MM:SS, an optional fraction, an optional offset. */
static bool read_date(const char *text, __int128 *ns)
{
    unsigned year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0, fraction_ns = 0;
    int offset_minutes = 0;
    int64_t days = 0;

    if (!take_digits(&text, 4, '-', &year) || !take_digits(&text, 2, '-', &month) ||
        !take_digits(&text, 2, ' ', &day) || !take_digits(&text, 2, ':', &hour) ||
        !take_digits(&text, 2, ':', &minute) || !take_digits(&text, 2, '\0', &second) ||
        !take_fraction(&text, &fraction_ns) || !take_offset(&text, &offset_minutes) ||
        !days_of(year, month, day, &days) || hour > 23 || minute > 59 || second > 59) {
        return false;
    }

    int64_t seconds = ((days * 24 + hour) * 60 + minute - offset_minutes) * 60 + second;

    *ns = (__int128)seconds * NS_PER_S + fraction_ns;
    return true;
}

/* Seconds, whole or with a fraction. */
static bool read_seconds(const char *text, __int128 *ns)
{
    uint64_t seconds = 0;
    unsigned fraction_ns = 0;

    if (!take_amount(text, &seconds, &text) || !take_fraction(&text, &fraction_ns) || *text != '\0') {
        return false;
    }
    *ns = (__int128)seconds * NS_PER_S + fraction_ns;
    return true;
}

static bool read_model(struct hf_trace *trace, const char *text, const char **model)
{
    if (!hf_name_valid(text, strlen(text))) {
        return bad(trace, "Model is no name of 1 to %d bytes without control characters", HF_NAME_BYTES_MAX);
    }
    *model = text;
    return true;
}

/* Reads the fields of a row, all but its place in time, which is *ns. */
static bool read_fields(struct hf_trace *trace, char *const *fields, struct hf_trace_row *row, __int128 *ns)
{
    const struct columns *columns = &formats[trace->format];
    bool azure = trace->format == HF_TRACE_AZURE;
    char buf[SHOWN_BYTES_MAX + 1];
    uint64_t total = 0;

    if (!(azure ? read_date(fields[0], ns) : read_seconds(fields[0], ns))) {
        return bad(trace, "%s is no time like %s: '%s'", columns->names[0],
                   azure ? "2023-11-16 18:17:03.9799600" : "5 or 5.25", shown(fields[0], buf));
    }
    row->model = NULL;
    if (!azure && (!read_model(trace, fields[BURSTGPT_MODEL], &row->model) ||
                   !read_amount(trace, BURSTGPT_TOTAL, fields[BURSTGPT_TOTAL], &total))) {
        return false;
    }
    if (!read_amount(trace, columns->input_idx, fields[columns->input_idx], &row->input_tokens) ||
        !read_amount(trace, columns->output_idx, fields[columns->output_idx], &row->output_tokens)) {
        return false;
    }
    row->line = trace->line;
    row->failed = row->output_tokens == 0;
    return true;
}

/* Gives a row its place in time, which only a row that is good in every other way may move. */
static bool place_in_time(struct hf_trace *trace, struct hf_trace_row *row, __int128 ns)
{
    if (!trace->has_first) {
        trace->has_first = true;
        trace->first_ns = ns;
        trace->last_ns = ns;
    }
    if (ns - trace->first_ns > (__int128)UINT64_MAX) {
        return bad(trace, "more than 584 years after the first row");
    }
    if (ns < trace->last_ns) {
        trace->counts.out_of_order_cnt++;
    } else {
        trace->last_ns = ns;
    }
    row->at_ns = (uint64_t)(trace->last_ns - trace->first_ns);
    return true;
}

static bool read_row(struct hf_trace *trace, size_t bytes, struct hf_trace_row *row)
{
    char *fields[FIELD_CNT_MAX];
    size_t cnt = 0;
    __int128 ns = 0;

    if (!split(trace, bytes, fields, &cnt)) {
        return false;
    }
    if (cnt != formats[trace->format].cnt) {
        return bad(trace, "%zu columns in place of %zu", cnt, formats[trace->format].cnt);
    }
    return read_fields(trace, fields, row, &ns) && place_in_time(trace, row, ns);
}

int hf_trace_next(struct hf_trace *trace, struct hf_trace_row *row)
{
    for (;;) {
        size_t bytes = 0;
        bool good = false;

        switch (read_line(trace, &bytes)) {
        case LINE_END:
            return HF_TRACE_END;
        case LINE_ERROR:
            return trace->error;
        case LINE_TOO_LONG:
            good = bad(trace, "the line is longer than %d bytes", HF_TRACE_LINE_BYTES_MAX);
            break;
        case LINE_READ:
            if (bytes == 0) {
                continue;
            }
            good = read_row(trace, bytes, row);
            break;
        }
        if (good) {
            trace->counts.row_cnt++;
            return 0;
        }
        trace->counts.skipped_cnt++;
        if (trace->bad_row != NULL) {
            trace->bad_row(trace->context, trace->line, trace->reason);
        }
    }
}

/* Whether the header's fields are those of the format. */
static bool is_header_of(const struct columns *columns, char *const *fields, size_t cnt)
{
    if (cnt != columns->cnt) {
        return false;
    }
    for (size_t i = 0; i < cnt; i++) {
        if (strcmp(fields[i], columns->names[i]) != 0) {
            return false;
        }
    }
    return true;
}

/* 0 with trace->format set, 1 when the first line is no header that is known, the error of reading. */
static int read_header(struct hf_trace *trace)
{
    static const char mark[] = "\xef\xbb\xbf";
    char *fields[FIELD_CNT_MAX];
    size_t bytes = 0, cnt = 0;
    enum line_state state = read_line(trace, &bytes);

    if (state == LINE_ERROR) {
        return trace->error;
    }
    if (state != LINE_READ) {
        return 1;
    }
    if (strncmp(trace->text, mark, strlen(mark)) == 0) {
        bytes -= strlen(mark);
        memmove(trace->text, trace->text + strlen(mark), bytes + 1);
    }
    if (!split(trace, bytes, fields, &cnt)) {
        return 1;
    }
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (is_header_of(&formats[i], fields, cnt)) {
            trace->format = (enum hf_trace_format)i;
            return 0;
        }
    }
    return 1;
}

int hf_trace_open_stream(struct hf_trace **out, FILE *stream, const char *name, hf_trace_bad_row_fn *bad_row,
                         void *context, char *why, size_t why_bytes)
{
    struct hf_trace *trace = calloc(1, sizeof(*trace));
    int rc = -ENOMEM;

    *out = NULL;
    if (trace != NULL) {
        trace->stream = stream;
        trace->bad_row = bad_row;
        trace->context = context;
        rc = read_header(trace);
    }
    if (rc == 0) {
        *out = trace;
        return 0;
    }
    free(trace);
    if (rc > 0) {
        (void)snprintf(
            why, why_bytes,
            "%s: the first line is no header of a trace that is known. Expected "
            "'TIMESTAMP,ContextTokens,GeneratedTokens' (Azure LLM inference trace) or 'Timestamp,Model,"
            "Request tokens,Response tokens,Total tokens,Log Type' (BurstGPT)",
            name);
    } else {
        (void)snprintf(why, why_bytes, "%s: cannot read the trace: %s", name, strerror(-rc));
    }
    return rc;
}

int hf_trace_open(struct hf_trace **out, const char *path, hf_trace_bad_row_fn *bad_row, void *context,
                  char *why, size_t why_bytes)
{
    FILE *stream = fopen(path, "re");
    int rc = 0;

    *out = NULL;
    if (stream == NULL) {
        rc = -errno;
        (void)snprintf(why, why_bytes, "%s: cannot open the trace: %s", path, strerror(-rc));
        return rc;
    }
    rc = hf_trace_open_stream(out, stream, path, bad_row, context, why, why_bytes);
    if (rc == 0) {
        (*out)->owns_stream = true;
    } else {
        (void)fclose(stream);
    }
    return rc;
}

enum hf_trace_format hf_trace_format(const struct hf_trace *trace)
{
    return trace->format;
}

struct hf_trace_counts hf_trace_counts(const struct hf_trace *trace)
{
    return trace->counts;
}

void hf_trace_close(struct hf_trace *trace)
{
    if (trace != NULL && trace->owns_stream) {
        (void)fclose(trace->stream);
    }
    free(trace);
}
