/* holdfast fsck: every invariant of a live segment, and mending what can be proved. */
#include "core/fsck.h"

#include "core/lookup.h"
#include "core/window.h"
#include "persist/recover.h"
#include "persist/rows.h"
#include "persist/store.h"
#include "shm/clock.h"
#include "tools/holdfast/command.h"
#include "tools/holdfast/json_out.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: holdfast fsck --segment NAME [--repair [--store URL]] [--wait-ms N]\n"
    "                     [--json]\n"
    "\n"
    "Checks every invariant of a segment while gateways and daemon work in it: words, links,\n"
    "slots, index, and that each bucket holds what is settled plus what its reservations\n"
    "count. Writes nothing and stops nobody. What is found is found in several looks.\n"
    "\n"
    "  --segment NAME  name or path of the segment\n"
    "  --repair        mend what can be proved, and say each change; everybody else must have\n"
    "                  left the segment. Run twice, it changes nothing the second time\n"
    "  --store URL     where the receipts are, for --repair (the segment knows)\n"
    "  --wait-ms N     for the sums of a busy tenant at most (3000)\n"
    "  --json          one JSON object a line: each finding, then the totals\n"
    "  --help          this text\n"
    "\n"
    "Exit status: 0 nothing is wrong, 1 something is (after --repair: still is), 2 could not.\n";

struct told {
    const char *segment;
    const char *store;
    bool repair;
    bool json;
    uint32_t wait_ms;
    struct hf_json_out out;
    bool failed; /* something could not be written */
};

/* ---- what is found --------------------------------------------------------------------------------------------- */

static void put_number(struct hf_json_out *out, const char *key, uint32_t number)
{
    if (number != HF_SHM_NONE) {
        hf_json_out_amount(out, key, number);
    }
}

static void print_json(struct told *told, const struct hf_fsck_item *item, const char *where)
{
    struct hf_json_out *out = &told->out;

    hf_json_out_begin(out);
    hf_json_out_text(out, "severity", hf_fsck_severity_name(item->severity));
    hf_json_out_text(out, "kind", hf_fsck_kind_name(item->kind));
    hf_json_out_text(out, "where", where);
    hf_json_out_text(out, "text", item->text);
    put_number(out, "tenant", item->tenant);
    put_number(out, "row", item->row);
    put_number(out, "window_id", item->window_id);
    put_number(out, "slot", item->slot);
    put_number(out, "chunk", item->chunk);
    put_number(out, "index", item->idx);
    if (item->window != HF_SHM_NONE) {
        hf_json_out_text(out, "window", hf_window_name((enum hf_window)item->window));
    }
    if (item->dimension != HF_SHM_NONE) {
        hf_json_out_text(out, "dimension", hf_dimension_name((enum hf_dimension)item->dimension));
    }
    if (item->has_numbers && item->expected <= INT64_MAX && item->found <= INT64_MAX) {
        hf_json_out_amount(out, "expected", item->expected);
        hf_json_out_amount(out, "found", item->found);
    }
    told->failed = hf_json_out_line(out, stdout) != 0 || told->failed;
}

static void print_item(void *ctx, const struct hf_segment *seg, const struct hf_fsck_item *item)
{
    struct told *told = ctx;
    char where[400];

    (void)hf_fsck_where(seg, item, where, sizeof(where));
    if (told->json) {
        print_json(told, item, where);
        return;
    }
    (void)printf("%-7s %-14s %s%s", hf_fsck_severity_name(item->severity), hf_fsck_kind_name(item->kind),
                 where, *where == '\0' ? "" : ": ");
    if (item->has_numbers) {
        (void)printf(item->severity == HF_FSCK_MENDED ? "now %" PRIu64 ", was %" PRIu64 ": "
                                                      : "expected %" PRIu64 ", found %" PRIu64 ": ",
                     item->expected, item->found);
    }
    (void)printf("%s\n", item->text);
}

static void total_json(struct told *told, const struct hf_fsck_result *result)
{
    struct hf_json_out *out = &told->out;

    hf_json_out_begin(out);
    hf_json_out_text(out, "severity", "total");
    hf_json_out_amount(out, "damage", result->damage);
    hf_json_out_amount(out, "notes", result->notes);
    hf_json_out_amount(out, "mended", result->mended);
    hf_json_out_amount(out, "tenants", result->tenants);
    hf_json_out_amount(out, "sums_proved", result->sums_proved);
    hf_json_out_amount(out, "sums_not_checked", result->sums_busy);
    hf_json_out_amount(out, "buckets", result->buckets);
    hf_json_out_amount(out, "slots_in_use", result->slots_checked);
    told->failed = hf_json_out_line(out, stdout) != 0 || told->failed;
}

static void print_result(struct told *told, const struct hf_fsck_result *result)
{
    if (told->json) {
        total_json(told, result);
        return;
    }
    (void)printf(
        "%s: %" PRIu32 " damaged, %" PRIu32 " mended, %" PRIu32 " notes; sums of %" PRIu32 " of %" PRIu32
        " tenants proved (%" PRIu64 " buckets), %" PRIu32 " not checked; %" PRIu64 " slots in use\n",
        result->damage == 0 ? "clean" : "damage", result->damage, result->mended, result->notes,
        result->sums_proved, result->tenants, result->buckets, result->sums_busy, result->slots_checked);
}

/* ---- what the store charged ---------------------------------------------------------------------------------- */

struct charges {
    const struct hf_segment *seg;
    uint64_t *amounts;               /* rows x HF_SHM_ROW_BUCKETS; NULL: the store could not be asked */
    uint32_t windows[HF_WINDOW_CNT]; /* for which the store was asked */
};

static void add_bucket(void *ctx, uint32_t row, enum hf_window window, enum hf_dimension dimension,
                       __int128 held, __int128 charged)
{
    const struct charges *charges = ctx;
    uint64_t *amount =
        &charges->amounts[(size_t)row * HF_SHM_ROW_BUCKETS + (size_t)window * HF_DIM_CNT + (size_t)dimension];
    __int128 all = (__int128)*amount + charged;

    (void)held;
    *amount = all < 0 ? 0 : all > (__int128)HF_SHM_AMOUNT_MAX ? HF_SHM_AMOUNT_MAX : (uint64_t)all;
}

static int add_sum(void *ctx, const struct hf_store_sum *sum)
{
    hf_rows_of_sum(((const struct charges *)ctx)->seg, sum, add_bucket, ctx);
    return 0;
}

static bool is_charged(void *ctx, uint32_t row, uint32_t window, uint32_t window_id, uint32_t dimension,
                       uint64_t *amount)
{
    const struct charges *charges = ctx;

    if (charges->amounts == NULL || charges->windows[window] != window_id) {
        return false; /* a window has begun since */
    }
    *amount = charges->amounts[(size_t)row * HF_SHM_ROW_BUCKETS + (size_t)window * HF_SHM_DIMS + dimension];
    return true;
}

/* Whether the store's chain ends where the segment's does: only then its sums are what must be published. */
static bool same_end(const struct hf_segment *seg, const struct hf_store_head *head,
                     struct hf_store_error *error)
{
    const struct hf_shm_header *header = seg->header;

    if (head->last.number == header->hdr_batch_number &&
        memcmp(head->last.digest, header->hdr_batch_digest, HF_DIGEST_BYTES) == 0) {
        return true;
    }
    (void)snprintf(error->text, sizeof(error->text),
                   "the store ends with batch %" PRIu64 " and the segment with %" PRIu64
                   ": start holdfastd, which brings the two together, stop it and repair then",
                   head->last.number, header->hdr_batch_number);
    return false;
}

/* Reads what is charged. On failure amounts stays NULL and error says why. */
static void read_charges(const struct told *told, struct charges *charges, struct hf_store_error *error)
{
    const struct hf_segment *seg = charges->seg;
    struct hf_store_options options = {.role = HF_STORE_READER};
    char url[sizeof(seg->header->hdr_store_url) + 1];
    char name[sizeof(seg->header->hdr_store_name) + 1];
    struct hf_store *store = NULL;
    struct hf_store_head head;

    (void)snprintf(url, sizeof(url), "%.*s", (int)sizeof(seg->header->hdr_store_url),
                   seg->header->hdr_store_url);
    (void)snprintf(name, sizeof(name), "%.*s", (int)sizeof(seg->header->hdr_store_name),
                   seg->header->hdr_store_name);
    uint64_t *amounts = calloc((size_t)seg->rows_cnt * HF_SHM_ROW_BUCKETS, sizeof(*amounts));
    enum hf_store_status status =
        amounts == NULL ? HF_STORE_NOMEM
                        : hf_store_open(told->store != NULL ? told->store : url, &options, &store, error);

    if (status == HF_STORE_OK) {
        status = hf_store_head(store, name, &head, error);
    }
    if (status == HF_STORE_OK && same_end(seg, &head, error)) {
        uint64_t now_ms = hf_clock_now_ms(seg);

        charges->amounts = amounts;
        hf_window_ids(now_ms > HF_CLOCK_MS_MAX ? HF_CLOCK_MS_MAX : now_ms, charges->windows);
        status = hf_store_sums(store, name, now_ms, (1U << HF_WINDOW_CNT) - 1, add_sum, charges, error);
    }
    if (status != HF_STORE_OK || charges->amounts == NULL) {
        charges->amounts = NULL;
        free(amounts);
    }
    hf_store_close(store);
}

/* ---- commands ------------------------------------------------------------------------------------------------ */

static int finish(struct told *told, int rc, const struct hf_fsck_result *result, const struct hf_error *err)
{
    if (rc != HF_OK) {
        return hf_command_fail(
            "fsck", HF_EXIT_USAGE, "%s",
            err->text[0] != '\0'
                ? err->text
                : "there is not enough memory to check this segment: run it where more is free");
    }
    print_result(told, result);
    hf_json_out_free(&told->out);
    if (told->failed || fflush(stdout) != 0) {
        return hf_command_fail("fsck", HF_EXIT_USAGE, "the findings could not be written");
    }
    return result->damage == 0 ? HF_EXIT_OK : HF_EXIT_FAILED;
}

static int check(struct told *told, struct hf_segment *seg)
{
    const struct hf_fsck_options options = {
        .pause_ms = 25, .sums_wait_ms = told->wait_ms, .tenant = HF_SHM_NONE};
    struct hf_error err = {.text = ""};
    struct hf_fsck_result result;

    return finish(told, hf_fsck(seg, &options, print_item, told, &result), &result, &err);
}

static int repair(struct told *told, struct hf_segment *seg)
{
    struct charges charges = {.seg = seg};
    struct hf_fsck_repair with = {
        .options = {.pause_ms = 5, .sums_wait_ms = told->wait_ms, .tenant = HF_SHM_NONE},
        .charged = is_charged,
        .charged_ctx = &charges};
    struct hf_store_error error = {""};
    struct hf_error err = {.text = ""};
    struct hf_fsck_result result;
    struct hf_owner own;
    int rc = hf_owner_join(seg, HF_ROLE_DAEMON, &own, &err);

    if (rc != HF_OK) {
        return hf_command_fail("fsck", HF_EXIT_USAGE, "%s", err.text);
    }
    read_charges(told, &charges, &error);
    if (charges.amounts == NULL) {
        with.charged = NULL;
        (void)fprintf(stderr,
                      "holdfast fsck: the store proves nothing now, and no bucket is made smaller: %s\n",
                      error.text[0] != '\0' ? error.text : "no memory");
    }
    rc = hf_fsck_repair(seg, &own, &with, print_item, told, &result, &err);
    hf_owner_leave(seg, &own);
    free(charges.amounts);
    return finish(told, rc, &result, &err);
}

static int read_option(struct told *told, int option)
{
    char *end = NULL;
    unsigned long number = 0;

    switch (option) {
    case 's':
        told->segment = optarg;
        return HF_EXIT_OK;
    case 'r':
        told->repair = true;
        return HF_EXIT_OK;
    case 'u':
        told->store = optarg;
        return HF_EXIT_OK;
    case 'j':
        told->json = true;
        return HF_EXIT_OK;
    case 'w':
        number = strtoul(optarg, &end, 10);
        if (*optarg < '0' || *optarg > '9' || *end != '\0' || number == 0 || number > 3600000) {
            return hf_command_misuse("fsck", "--wait-ms must be a whole number from 1 to 3600000, not '%s'",
                                     optarg);
        }
        told->wait_ms = (uint32_t)number;
        return HF_EXIT_OK;
    default:
        return HF_EXIT_USAGE;
    }
}

int hf_cmd_fsck(int argc, char **argv)
{
    static const struct option options[] = {{"segment", required_argument, NULL, 's'},
                                            {"repair", no_argument, NULL, 'r'},
                                            {"store", required_argument, NULL, 'u'},
                                            {"wait-ms", required_argument, NULL, 'w'},
                                            {"json", no_argument, NULL, 'j'},
                                            HF_OPTION_HELP,
                                            HF_OPTION_END};
    struct told told = {0};
    struct hf_segment seg;
    struct hf_error err = {.text = ""};
    int option = 0;

    optind = 0;
    while ((option = hf_command_option("fsck", argc, argv, options)) != -1) {
        if (option == 'h') {
            (void)fputs(help, stdout);
            return HF_EXIT_OK;
        }
        if (read_option(&told, option) != HF_EXIT_OK) {
            return HF_EXIT_USAGE;
        }
    }
    if (told.segment == NULL || optind < argc) {
        return hf_command_misuse("fsck", "name the segment by --segment, and nothing else");
    }
    if (told.store != NULL && !told.repair) {
        return hf_command_misuse("fsck", "--store goes with --repair");
    }
    if (hf_segment_attach(told.segment, &seg, &err) != HF_OK) {
        return hf_command_fail("fsck", HF_EXIT_USAGE, "%s", err.text);
    }
    int status = told.repair ? repair(&told, &seg) : check(&told, &seg);

    hf_segment_detach(&seg);
    return status;
}
