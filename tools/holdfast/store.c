/* holdfast store: make a store, or show what it holds. */
#include "persist/store.h"

#include "tools/common/utc.h"
#include "tools/holdfast/command.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "Usage: holdfast store init [URL]\n"
    "       holdfast store show [URL] [--segment NAME]\n"
    "\n"
    "init makes the schema of a store, its roles and its record of migrations, or what is\n"
    "missing of them; twice is once. show says where the store is and, with --segment, what\n"
    "it holds of that segment.\n"
    "\n"
    "  URL             sqlite:PATH, or what libpq takes: postgresql://..., host=... dbname=...\n"
    "                  (default: a SQLite file under $XDG_STATE_HOME). Leave passwords to\n"
    "                  ~/.pgpass or $PGPASSFILE: arguments can be read by everybody\n"
    "  --segment NAME  name under which the store knows the segment\n"
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

    if (head->last.number > 0) {
        hf_utc_format(head->last.committed_ms, when);
    }
    (void)printf("last batch   %" PRIu64 " of epoch %" PRIu64 ", committed %s\n", head->last.number,
                 head->last.epoch, when);
    (void)printf(
        "receipts     %" PRIu64 " in %" PRIu64 " batches%s\n", totals->receipts_cnt, totals->batches_cnt,
        totals->receipts_cnt == totals->batch_rows_cnt ? ""
                                                       : ", which told of another number: ROWS ARE MISSING");
    for (int kind = 0; kind < HF_RECEIPT_KIND_CNT; kind++) {
        if (totals->kinds_cnt[kind] > 0) {
            (void)printf("  %-16s %" PRIu64 "\n", hf_receipt_kind_name((enum hf_receipt_kind)kind),
                         totals->kinds_cnt[kind]);
        }
    }
    (void)printf("conflicts    %" PRIu64 " stored, %" PRIu64 " put aside\n", totals->conflicts_cnt,
                 totals->aside_cnt);
}

static int show(const char *url, const char *segment)
{
    struct hf_store_options options = {.role = HF_STORE_READER};
    struct hf_store_error error = {.text = ""};
    struct hf_store *store = NULL;
    struct hf_store_head head;
    struct hf_store_totals totals;
    enum hf_store_status status = hf_store_open(url, &options, &store, &error);

    if (status != HF_STORE_OK) {
        return fail("cannot open the store", status, &error);
    }
    (void)printf("store        %s\n", hf_store_url(store));
    if (segment != NULL) {
        status = hf_store_head(store, segment, &head, &error);
        if (status == HF_STORE_OK) {
            status = hf_store_totals(store, segment, &totals, &error);
        }
        if (status == HF_STORE_OK) {
            (void)printf("segment      %s\n", segment);
            print_totals(&head, &totals);
        }
    }
    hf_store_close(store);
    return status == HF_STORE_OK ? HF_EXIT_OK : fail("cannot read the store", status, &error);
}

int hf_cmd_store(int argc, char **argv)
{
    static const struct option options[] = {
        {"segment", required_argument, NULL, 's'}, HF_OPTION_HELP, HF_OPTION_END};
    const char *segment = NULL;
    char by_default[1024];
    struct hf_store_error error = {.text = ""};
    int option = 0;

    optind = 0;
    while ((option = hf_command_option("store", argc, argv, options)) != -1) {
        if (option == 'h') {
            (void)fputs(help, stdout);
            return HF_EXIT_OK;
        }
        if (option != 's') {
            return HF_EXIT_USAGE;
        }
        segment = optarg;
    }
    if (argc - optind < 1 || argc - optind > 2) {
        return hf_command_misuse("store", "say init or show, then the URL of the store");
    }

    const char *verb = argv[optind], *url = argc - optind == 2 ? argv[optind + 1] : NULL;

    if (url == NULL) {
        enum hf_store_status status = hf_store_default_url(by_default, sizeof(by_default), &error);

        if (status != HF_STORE_OK) {
            return fail("no store is named, and there is no default", status, &error);
        }
        url = by_default;
    }
    if (strcmp(verb, "init") == 0 && segment == NULL) {
        return init(url);
    }
    if (strcmp(verb, "show") == 0) {
        return show(url, segment);
    }
    return hf_command_misuse(
        "store", segment == NULL ? "say init or show, not '%s'" : "--segment goes with show, not '%s'", verb);
}
