/* holdfast verify: is a store what was written into it? Reads only. */
#include "persist/verify.h"

#include "tools/holdfast/command.h"
#include "tools/holdfast/json_out.h"
#include "tools/holdfast/verify_head.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SHOWN_MAX         1000 /* findings of one segment */
#define PROGRESS_EVERY_MS 200
/* A server may be busy: a page of rows must not be given up for that. */
#define STATEMENT_TIMEOUT_MS 600000

static const char help[] =
    "Usage: holdfast verify [URL] [--segment NAME] [--head FILE|DIGEST] [--print-head]\n"
    "                       [--rollups] [--json] [--progress]\n"
    "\n"
    "Walks a store and says what is not as it was written: receipts that were changed,\n"
    "removed, added or put into another order, batches that do not follow each other,\n"
    "closings of reservations that are not there or were closed twice, and a schema that no\n"
    "longer refuses changes. Changes nothing, and may run beside the daemon.\n"
    "\n"
    "  URL             the store (default: a SQLite file under $XDG_STATE_HOME)\n"
    "  --segment NAME  this segment alone\n"
    "  --head FILE     heads that were kept elsewhere, lines of NAME NUMBER DIGEST as printed\n"
    "                  by --print-head; - is standard input. Without them, a chain that was\n"
    "                  cut off at its end, or written anew as a whole, cannot be found\n"
    "  --head DIGEST   the digest alone, 64 hexadecimal digits: of a batch or a prune\n"
    "  --print-head    print the head of each segment that holds, and findings on standard\n"
    "                  error\n"
    "  --rollups       add up again what every rollup sums whose receipts were not pruned; without\n"
    "                  it, their digests and their chain are looked at\n"
    "  --json          a JSON object a line: each finding, then the summary\n"
    "  --progress      tell progress on standard error, also where that is no terminal\n"
    "  --help          this text\n"
    "\n"
    "Exit status: 0 the store holds, 1 it does not, 2 it could not be verified.\n";

struct look {
    const char *url, *segment, *head;
    bool print_head, rollups, json, progress, help;
    bool live;        /* a progress line stands on the terminal */
    FILE *to;         /* findings */
    uint64_t shown;   /* findings of the present segment that were printed */
    char of[64];      /* the present segment */
    uint64_t told_ms; /* of the last progress */
    struct hf_json_out out;
    bool failed; /* something could not be written */
};

static uint64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- what is found ---------------------------------------------------------------------------------------------- */

static void clear_line(struct look *look)
{
    if (look->live) {
        (void)fputs("\r\033[K", stderr);
        look->live = false;
    }
}

static void print_json(struct look *look, const struct hf_verify_finding *finding)
{
    struct hf_json_out *out = &look->out;

    hf_json_out_begin(out);
    hf_json_out_text(out, "finding", hf_verify_what_name(finding->what));
    hf_json_out_text(out, "segment", finding->segment);
    hf_json_out_amount(out, "batch", finding->batch == 0 ? UINT64_MAX : finding->batch);
    hf_json_out_amount(out, "seq", finding->seq == 0 ? UINT64_MAX : finding->seq);
    hf_json_out_amount(out, "last_seq", finding->last_seq == 0 ? UINT64_MAX : finding->last_seq);
    hf_json_out_text(out, "column", finding->column);
    hf_json_out_text(out, "message", finding->text);
    look->failed = hf_json_out_line(out, look->to) != 0 || look->failed;
}

static void print_text(struct look *look, const struct hf_verify_finding *finding)
{
    (void)fprintf(look->to, "%-9s ", hf_verify_what_name(finding->what));
    if (finding->segment != NULL) {
        (void)fprintf(look->to, " %s", finding->segment);
    }
    if (finding->batch > 0) {
        (void)fprintf(look->to, " batch %" PRIu64, finding->batch);
    }
    if (finding->seq > 0 && finding->last_seq > finding->seq) {
        (void)fprintf(look->to, " receipts %" PRIu64 " to %" PRIu64, finding->seq, finding->last_seq);
    } else if (finding->seq > 0) {
        (void)fprintf(look->to, " receipt %" PRIu64, finding->seq);
    }
    if (finding->column != NULL) {
        (void)fprintf(look->to, " column %s", finding->column);
    }
    look->failed = fprintf(look->to, ": %s\n", finding->text) < 0 || look->failed;
}

static void found(void *ctx, const struct hf_verify_finding *finding)
{
    struct look *look = ctx;
    const char *segment = finding->segment == NULL ? "" : finding->segment;

    clear_line(look);
    if (strcmp(segment, look->of) != 0) {
        (void)snprintf(look->of, sizeof(look->of), "%s", segment);
        look->shown = 0;
    }
    if (look->shown++ < SHOWN_MAX) {
        look->json ? print_json(look, finding) : print_text(look, finding);
    } else if (look->shown == SHOWN_MAX + 1 && !look->json) {
        (void)fprintf(look->to, "          %s: more findings are counted and not shown\n", segment);
    }
}

static void progressed(void *ctx, const char *segment, uint64_t rows_cnt, uint64_t rows_total)
{
    struct look *look = ctx;
    uint64_t ms = now_ms();

    if (ms - look->told_ms < PROGRESS_EVERY_MS) {
        return;
    }
    look->told_ms = ms;
    clear_line(look);
    (void)fprintf(stderr, "%s: %" PRIu64 " of %" PRIu64 " receipts", segment, rows_cnt, rows_total);
    look->live = isatty(STDERR_FILENO) != 0;
    (void)fputs(look->live ? "" : "\n", stderr);
    (void)fflush(stderr);
}

static void ended(void *ctx, const char *segment, const struct hf_store_batch *last, bool held)
{
    struct look *look = ctx;

    clear_line(look);
    if (!look->print_head) {
        return;
    }
    if (!held) {
        (void)fprintf(stderr, "holdfast verify: no head for segment '%s', which does not hold\n", segment);
        return;
    }
    look->failed = !hf_verify_head_print(stdout, segment, last) || look->failed;
}

/* ---- the summary ------------------------------------------------------------------------------------------------ */

static void summary_json(struct look *look, const char *store, const struct hf_verify_report *report)
{
    struct hf_json_out *out = &look->out;

    hf_json_out_begin(out);
    hf_json_out_text(out, "store", store);
    hf_json_out_flag(out, "holds", report->findings_cnt == 0);
    hf_json_out_amount(out, "findings", report->findings_cnt);
    hf_json_out_amount(out, "segments", report->segments_cnt);
    hf_json_out_amount(out, "batches", report->batches_cnt);
    hf_json_out_amount(out, "receipts", report->receipts_cnt);
    hf_json_out_amount(out, "rollups", report->rollups_cnt);
    hf_json_out_amount(out, "pruned", report->pruned_cnt);
    hf_json_out_amount(out, "open", report->open_cnt);
    hf_json_out_amount(out, "conflicts", report->conflicts_cnt);
    hf_json_out_amount(out, "put_aside", report->aside_cnt);
    hf_json_out_amount(out, "without_reservation", report->unknown_cnt);
    look->failed = hf_json_out_line(out, look->to) != 0 || look->failed;
}

static void summary(struct look *look, const char *store, const struct hf_verify_report *report)
{
    (void)fprintf(look->to, "store      %s\n", store);
    (void)fprintf(look->to,
                  "read       %" PRIu64 " receipts in %" PRIu64 " batches of %" PRIu64 " segments, %" PRIu64
                  " rollups\n",
                  report->receipts_cnt, report->batches_cnt, report->segments_cnt, report->rollups_cnt);
    if (report->pruned_cnt > 0) {
        (void)fprintf(look->to, "pruned     %" PRIu64 " receipts, by the records of retention\n",
                      report->pruned_cnt);
    }
    (void)fprintf(look->to,
                  "open       %" PRIu64 " reservations\n"
                  "conflicts  %" PRIu64 " stored, %" PRIu64 " put aside; %" PRIu64
                  " receipts without a reservation\n",
                  report->open_cnt, report->conflicts_cnt, report->aside_cnt, report->unknown_cnt);
    if (report->findings_cnt == 0) {
        look->failed =
            fprintf(look->to, "result     holds%s\n",
                    look->head == NULL ? "; that nothing was cut off at the end, only --head can tell" : "") <
                0 ||
            look->failed;
    } else {
        look->failed =
            fprintf(look->to, "result     DOES NOT HOLD: %" PRIu64 " findings\n", report->findings_cnt) < 0 ||
            look->failed;
    }
}

/* ---- the command ------------------------------------------------------------------------------------------------ */

static int walk(struct look *look, struct hf_store *store, const struct hf_verify_heads *heads)
{
    const struct hf_verify_options options = {
        .segment = look->segment,
        .heads = heads->list,
        .heads_cnt = heads->cnt,
        .finding = found,
        .progress = look->progress ? progressed : NULL,
        .head = ended,
        .rollups = look->rollups,
        .ctx = look,
    };
    struct hf_verify_report report;
    struct hf_store_error error = {.text = ""};
    enum hf_store_status status = hf_verify(store, &options, &report, &error);

    clear_line(look);
    if (status != HF_STORE_OK) {
        return hf_command_fail("verify", HF_EXIT_USAGE, "cannot verify the store: %s", error.text);
    }
    look->json ? summary_json(look, hf_store_url(store), &report)
               : summary(look, hf_store_url(store), &report);
    hf_json_out_free(&look->out);
    if (look->failed || fflush(stdout) != 0) {
        return hf_command_fail("verify", HF_EXIT_USAGE, "the findings could not be written");
    }
    return report.findings_cnt == 0 ? HF_EXIT_OK : HF_EXIT_FAILED;
}

static int verify(struct look *look)
{
    const struct hf_store_options options = {.role = HF_STORE_READER,
                                             .statement_timeout_ms = STATEMENT_TIMEOUT_MS};
    struct hf_verify_heads heads = {.list = NULL};
    struct hf_store_error error = {.text = ""};
    struct hf_store *store = NULL;
    const char *url = look->url;
    char by_default[1024];
    char why[256];
    enum hf_store_status status = HF_STORE_OK;
    int exit_status;

    if (look->head != NULL && !hf_verify_heads_read(&heads, look->head, why, sizeof(why))) {
        return hf_command_fail("verify", HF_EXIT_USAGE, "--head: %s", why);
    }
    if (url == NULL) {
        status = hf_store_default_url(by_default, sizeof(by_default), &error);
        url = by_default;
    }
    if (status == HF_STORE_OK) {
        status = hf_store_open(url, &options, &store, &error);
    }
    exit_status = status == HF_STORE_OK
                      ? walk(look, store, &heads)
                      : hf_command_fail("verify", HF_EXIT_USAGE, "cannot open the store: %s", error.text);
    hf_store_close(store);
    free(heads.list);
    return exit_status;
}

/* One option. HF_EXIT_OK, or the exit status of a misuse. */
static int read_option(struct look *look, int option)
{
    switch (option) {
    case 's':
        look->segment = optarg;
        return HF_EXIT_OK;
    case 'd':
        look->head = optarg;
        return HF_EXIT_OK;
    case 'p':
        look->print_head = true;
        return HF_EXIT_OK;
    case 'r':
        look->rollups = true;
        return HF_EXIT_OK;
    case 'j':
        look->json = true;
        return HF_EXIT_OK;
    case 'g':
        look->progress = true;
        return HF_EXIT_OK;
    case 'h':
        look->help = true;
        return HF_EXIT_OK;
    default:
        return HF_EXIT_USAGE;
    }
}

int hf_cmd_verify(int argc, char **argv)
{
    static const struct option options[] = {
        {"segment", required_argument, NULL, 's'},
        {"head", required_argument, NULL, 'd'},
        {"print-head", no_argument, NULL, 'p'},
        {"rollups", no_argument, NULL, 'r'},
        {"json", no_argument, NULL, 'j'},
        {"progress", no_argument, NULL, 'g'},
        HF_OPTION_HELP,
        HF_OPTION_END,
    };
    struct look look = {.progress = isatty(STDERR_FILENO) != 0};
    int option = 0;

    optind = 0;
    while ((option = hf_command_option("verify", argc, argv, options)) != -1) {
        int status = read_option(&look, option);

        if (status != HF_EXIT_OK) {
            return status;
        }
    }
    if (look.help) {
        (void)fputs(help, stdout);
        return HF_EXIT_OK;
    }
    if (argc - optind > 1) {
        return hf_command_misuse("verify", "'%s' is not expected: say one store", argv[optind + 1]);
    }
    look.url = optind < argc ? argv[optind] : NULL;
    look.to = look.print_head ? stderr : stdout;
    return verify(&look);
}
