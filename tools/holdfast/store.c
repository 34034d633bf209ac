/* holdfast store: make a store, show what it holds, or prune it. */
#include "persist/store.h"

#include "tools/common/utc.h"
#include "tools/holdfast/command.h"
#include "tools/holdfast/store_prune.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: holdfast store init [URL]\n"
    "       holdfast store show [URL] [--segment NAME]\n"
    "       holdfast store prune [URL] --before TIME [--dry-run] [--json]\n"
    "\n"
    "init makes the schema of a store, its roles and its record of migrations, or what is\n"
    "missing of them; twice is once. show says where the store is and whose receipts it has;\n"
    "with --segment, what it holds of that segment. prune takes away receipts that were committed before a time,\n"
    "as far as a rollup covers them and nobody can ask for them any more: nothing of a month\n"
    "that is not over, of the last two days or the late horizon, or of an open reservation.\n"
    "PostgreSQL: whole partitions, by the owner of the schema. Daemons may run meanwhile.\n"
    "\n"
    "  URL             sqlite:PATH, or what libpq takes: postgresql://..., host=... dbname=...\n"
    "                  (default: a SQLite file under $XDG_STATE_HOME). Leave passwords to\n"
    "                  ~/.pgpass or $PGPASSFILE: arguments can be read by everybody\n"
    "  --segment NAME  name under which the store knows the segment\n"
    "  --before TIME   in UTC: 2026-09-01, or 2026-09-01T00:00:00Z\n"
    "  --dry-run       say what would go, and what stays and why, and change nothing\n"
    "  --json          the same as a JSON object a line, then a summary\n"
    "  --help          this text\n"
    "\n"
    "Exit status: 0, 1 when the store cannot be reached or refuses, 2 for bad arguments.\n";

static int fail(const char *what, enum hf_store_status status, const struct hf_store_error *error)
{
    return hf_command_fail("store", status == HF_STORE_INVALID ? HF_EXIT_USAGE : HF_EXIT_FAILED, "%s: %s",
                           what, error->text);
}

static int init(const char *url)
{
    char shown[512];
    struct hf_store_error error = {.text = ""};
    enum hf_store_status status = hf_store_init(url, NULL, &error);

    if (status != HF_STORE_OK) {
        return fail("cannot make the store", status, &error);
    }
    hf_store_display_url(url, shown, sizeof(shown));
    (void)printf("The store is ready: %s\n", shown);
    return HF_EXIT_OK;
}

static void print_totals(const struct hf_store_head *head, const struct hf_store_totals *totals)
{
    char when[HF_UTC_BYTES] = "never";
    bool missing = totals->receipts_cnt + totals->pruned_cnt != totals->batch_rows_cnt;

    if (head->last.number > 0) {
        hf_utc_format(head->last.committed_ms, when);
    }
    (void)printf("last batch   %" PRIu64 " of epoch %" PRIu64 ", committed %s\n", head->last.number,
                 head->last.epoch, when);
    (void)printf("receipts     %" PRIu64 " in %" PRIu64 " batches%s\n", totals->receipts_cnt,
                 totals->batches_cnt, missing ? ", which told of another number: ROWS ARE MISSING" : "");
    if (totals->pruned_cnt > 0) {
        (void)printf("pruned       %" PRIu64 ", by the records of retention\n", totals->pruned_cnt);
    }
    for (int kind = 0; kind < HF_RECEIPT_KIND_CNT; kind++) {
        if (totals->kinds_cnt[kind] > 0) {
            (void)printf("  %-16s %" PRIu64 "\n", hf_receipt_kind_name((enum hf_receipt_kind)kind),
                         totals->kinds_cnt[kind]);
        }
    }
    (void)printf("conflicts    %" PRIu64 " stored, %" PRIu64 " put aside\n", totals->conflicts_cnt,
                 totals->aside_cnt);
}

/* The names that a store knows, one a line. */
struct listing {
    FILE *out;
    unsigned cnt;
};

static int list_segment(void *ctx, const char *segment)
{
    struct listing *listing = ctx;

    (void)fprintf(listing->out, "%s%s\n", listing->cnt++ == 0 ? "segments     " : "             ", segment);
    return 0;
}

static enum hf_store_status show_segments(struct hf_store *store, FILE *out, struct hf_store_error *error)
{
    struct listing listing = {.out = out};
    enum hf_store_status status = hf_store_segments(store, list_segment, &listing, error);

    if (status == HF_STORE_OK && listing.cnt == 0) {
        (void)fprintf(out, "segments     none: no daemon has written to this store yet\n");
    }
    return status;
}

/* *known false: the store has nothing under that name. */
static enum hf_store_status show_segment(struct hf_store *store, const char *segment, bool *known,
                                         struct hf_store_error *error)
{
    struct hf_store_head head;
    struct hf_store_totals totals;
    enum hf_store_status status = hf_store_head(store, segment, &head, error);

    *known = status != HF_STORE_OK || head.last.number > 0;
    if (status != HF_STORE_OK || !*known) {
        return status;
    }
    status = hf_store_totals(store, segment, &totals, error);
    if (status == HF_STORE_OK) {
        (void)printf("segment      %s\n", segment);
        print_totals(&head, &totals);
    }
    return status;
}

static int show(const char *url, const char *segment)
{
    struct hf_store_options options = {.role = HF_STORE_READER};
    struct hf_store_error error = {.text = ""};
    struct hf_store *store = NULL;
    bool known = true;
    enum hf_store_status status = hf_store_open(url, &options, &store, &error);

    if (status != HF_STORE_OK) {
        return fail("cannot open the store", status, &error);
    }
    (void)printf("store        %s\n", hf_store_url(store));
    status =
        segment == NULL ? show_segments(store, stdout, &error) : show_segment(store, segment, &known, &error);
    if (!known) {
        (void)hf_command_fail("store", HF_EXIT_FAILED,
                              "the store has nothing of a segment '%s'; what it has:", segment);
        status = show_segments(store, stderr, &error);
    }
    hf_store_close(store);
    if (status != HF_STORE_OK) {
        return fail("cannot read the store", status, &error);
    }
    return known ? HF_EXIT_OK : HF_EXIT_FAILED;
}

struct arguments {
    const char *segment;
    struct hf_store_prune prune;
    bool help;
};

/* One option. False: it was no good, which has been said. */
static bool read_option(struct arguments *arguments, int option)
{
    switch (option) {
    case 's':
        arguments->segment = optarg;
        return true;
    case 'b':
        arguments->prune.before = optarg;
        return true;
    case 'n':
        arguments->prune.dry_run = true;
        return true;
    case 'j':
        arguments->prune.json = true;
        return true;
    case 'h':
        arguments->help = true;
        return true;
    default:
        return false;
    }
}

/* Whether the options go with the verb; what is wrong has been said then. */
static bool fits(const char *verb, const struct arguments *arguments)
{
    const struct hf_store_prune *prune = &arguments->prune;
    bool is_prune = strcmp(verb, "prune") == 0;

    if (!is_prune && strcmp(verb, "init") != 0 && strcmp(verb, "show") != 0) {
        (void)hf_command_misuse("store", "say init, show or prune, not '%s'", verb);
        return false;
    }
    if (arguments->segment != NULL && strcmp(verb, "show") != 0) {
        (void)hf_command_misuse("store", "--segment goes with show, not '%s'", verb);
        return false;
    }
    if (!is_prune && (prune->before != NULL || prune->dry_run || prune->json)) {
        (void)hf_command_misuse("store", "--before, --dry-run and --json go with prune, not '%s'", verb);
        return false;
    }
    if (is_prune && prune->before == NULL) {
        (void)hf_command_misuse("store", "say by --before what may go, such as --before 2026-09-01");
        return false;
    }
    return true;
}

static int work(const char *verb, const char *url, const struct arguments *arguments)
{
    char by_default[1024];
    struct hf_store_error error = {.text = ""};

    if (url == NULL) {
        enum hf_store_status status = hf_store_default_url(by_default, sizeof(by_default), &error);

        if (status != HF_STORE_OK) {
            return fail("no store is named, and there is no default", status, &error);
        }
        url = by_default;
    }
    if (strcmp(verb, "init") == 0) {
        return init(url);
    }
    return strcmp(verb, "show") == 0 ? show(url, arguments->segment) : hf_store_prune(url, &arguments->prune);
}

int hf_cmd_store(int argc, char **argv)
{
    static const struct option options[] = {
        {"segment", required_argument, NULL, 's'},
        {"before", required_argument, NULL, 'b'},
        {"dry-run", no_argument, NULL, 'n'},
        {"json", no_argument, NULL, 'j'},
        HF_OPTION_HELP,
        HF_OPTION_END,
    };
    struct arguments arguments = {.segment = NULL};
    int option = 0;

    optind = 0;
    while ((option = hf_command_option("store", argc, argv, options)) != -1) {
        if (!read_option(&arguments, option)) {
            return HF_EXIT_USAGE;
        }
    }
    if (arguments.help) {
        (void)fputs(help, stdout);
        return HF_EXIT_OK;
    }
    if (argc - optind < 1 || argc - optind > 2) {
        return hf_command_misuse("store", "say init, show or prune, then the URL of the store");
    }
    if (!fits(argv[optind], &arguments)) {
        return HF_EXIT_USAGE;
    }
    return work(argv[optind], argc - optind == 2 ? argv[optind + 1] : NULL, &arguments);
}
