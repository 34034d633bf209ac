/* holdfast recover: make a lost or damaged segment again from the store, or only look at what it would be made of. */
#include "persist/serve.h"

#include "core/window.h"
#include "tools/common/policy_check.h"
#include "tools/common/utc.h"
#include "tools/holdfast/command.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: holdfast recover --segment NAME --policy POLICY [OPTIONS]\n"
    "\n"
    "Makes the segment again from the store when it is lost or damaged: open reservations\n"
    "with their deadlines, what every bucket of a running window holds, credits, and what is\n"
    "still known. Says what it found. The daemon does the same when it starts without a\n"
    "segment; this is for looking first, or for doing it while the daemon is down.\n"
    "\n"
    "  --segment NAME     name or path of the segment\n"
    "  --policy POLICY    policy file\n"
    "  --store URL        the store (default: the SQLite file under $XDG_STATE_HOME)\n"
    "  --store-name NAME  name of the segment in the store (the segment's name)\n"
    "  --slots N          reservations that can be known at once (65536)\n"
    "  --clock-ms T       for tests: an injected clock from T on\n"
    "  --check            only look; nothing is made or changed\n"
    "  --help             this text\n"
    "\n"
    "Exit status: 0, 1 when it cannot be done now (the store is down, a process of the lost\n"
    "segment lives, a daemon serves it), 2 for bad arguments or a refused policy.\n";

struct told {
    struct hf_serve_options options;
    bool check;
    bool help;
};

/* ---- what was found --------------------------------------------------------------------------------------------- */

/* What one layer counts in one window; the store hands the sums over by path and mask. */
struct layer_sum {
    struct hf_name tenant;
    struct hf_name team; /* length 0: the tenant's own limit */
    struct hf_name key;  /* length 0: the team's own limit */
    enum hf_window window;
    bool limited[HF_DIM_CNT];
    __int128 held[HF_DIM_CNT];
    __int128 charged[HF_DIM_CNT];
};

struct layer_sums {
    struct layer_sum *list;
    size_t cnt;
    size_t room;
};

static int compare_sums(const void *a, const void *b)
{
    const struct layer_sum *x = a;
    const struct layer_sum *y = b;
    int order = strcmp(x->tenant.bytes, y->tenant.bytes);

    order = order != 0 ? order : strcmp(x->team.bytes, y->team.bytes);
    order = order != 0 ? order : strcmp(x->key.bytes, y->key.bytes);
    return order != 0 ? order : (int)x->window - (int)y->window;
}

/* Room for one more; NULL: no memory. */
static struct layer_sum *add_place(struct layer_sums *sums)
{
    if (sums->cnt == sums->room) {
        size_t room = sums->room == 0 ? 64 : 2 * sums->room;
        struct layer_sum *list = realloc(sums->list, room * sizeof(*list));

        if (list == NULL) {
            return NULL;
        }
        sums->list = list;
        sums->room = room;
    }
    return &sums->list[sums->cnt++];
}

/* The buckets of one path, by layer: 0 key, 1 team, 2 tenant. */
static int add_sum(void *ctx, const struct hf_store_sum *sum)
{
    for (unsigned layer = 0; layer < 3; layer++) {
        unsigned shift = (layer * HF_WINDOW_CNT + (unsigned)sum->window) * HF_DIM_CNT;
        unsigned limited = (unsigned)(sum->bucket_mask >> shift) & ((1U << HF_DIM_CNT) - 1);
        struct layer_sum *place = NULL;

        if (limited == 0) {
            continue;
        }
        place = add_place(ctx);
        if (place == NULL) {
            return 1;
        }
        *place = (struct layer_sum){.tenant = sum->tenant, .window = sum->window};
        if (layer < 2) {
            place->team = sum->team;
        }
        if (layer == 0) {
            place->key = sum->key;
        }
        for (int d = 0; d < HF_DIM_CNT; d++) {
            if ((limited >> d & 1U) != 0) {
                place->limited[d] = true;
                place->held[d] = sum->held[d];
                place->charged[d] = sum->charged[d];
            }
        }
    }
    return 0;
}

/* Sorts, and adds up what is of one layer and window. */
static void merge_sums(struct layer_sums *sums)
{
    size_t kept = 0;

    if (sums->cnt == 0) {
        return;
    }
    qsort(sums->list, sums->cnt, sizeof(sums->list[0]), compare_sums);
    for (size_t i = 1; i < sums->cnt; i++) {
        struct layer_sum *into = &sums->list[kept];
        const struct layer_sum *from = &sums->list[i];

        if (compare_sums(into, from) != 0) {
            sums->list[++kept] = *from;
            continue;
        }
        for (int d = 0; d < HF_DIM_CNT; d++) {
            into->limited[d] = into->limited[d] || from->limited[d];
            into->held[d] += from->held[d];
            into->charged[d] += from->charged[d];
        }
    }
    sums->cnt = kept + 1;
}

static int64_t shown(__int128 amount)
{
    return amount > INT64_MAX ? INT64_MAX : amount < INT64_MIN ? INT64_MIN : (int64_t)amount;
}

static void print_sum(const struct layer_sum *sum)
{
    for (int d = 0; d < HF_DIM_CNT; d++) {
        if (sum->limited[d]) {
            (void)printf("%-20s  %-16s  %-16s  %-8s  %-11s  %17" PRId64 "  %17" PRId64 "\n",
                         sum->tenant.bytes, sum->team.bytes, sum->key.bytes, hf_window_name(sum->window),
                         hf_dimension_name((enum hf_dimension)d), shown(sum->held[d]),
                         shown(sum->charged[d]));
        }
    }
}

static int print_sums(struct hf_store *store, const char *store_name, uint64_t now_ms)
{
    struct layer_sums sums = {0};
    struct hf_store_error error = {""};
    enum hf_store_status status =
        hf_store_sums(store, store_name, now_ms, (1U << HF_WINDOW_CNT) - 1, add_sum, &sums, &error);

    if (status != HF_STORE_OK) {
        free(sums.list);
        return hf_command_fail("recover", HF_EXIT_FAILED, "cannot read the store: %s",
                               status == HF_STORE_STOPPED ? "no memory" : error.text);
    }
    merge_sums(&sums);
    if (sums.cnt > 0) {
        (void)printf("\n%-20s  %-16s  %-16s  %-8s  %-11s  %17s  %17s\n", "tenant", "team", "key", "window",
                     "dimension", "held", "settled");
    }
    for (size_t i = 0; i < sums.cnt; i++) {
        print_sum(&sums.list[i]);
    }
    free(sums.list);
    return HF_EXIT_OK;
}

static void print_report(const struct hf_recover_report *report)
{
    const struct hf_rebuild_found *found = &report->found;
    char from[HF_UTC_BYTES];
    char until[HF_UTC_BYTES];

    (void)printf("store        batch %" PRIu64 ", %" PRIu64 " receipts, epoch %" PRIu64 "\n",
                 report->head.last.number, report->head.next_seq - 1, report->head.last.epoch);
    (void)printf("open holds   %" PRIu64 " with %" PRIu64 " tokens and %" PRIu64 " micros; %" PRIu64
                 " past their deadline\n",
                 found->open_cnt, found->open_tokens, found->open_cost_micros, found->due_cnt);
    (void)printf("known        %" PRIu64 " closed, %" PRIu64 " expired, retained or disputed\n",
                 found->closed_cnt, found->late_cnt);
    (void)printf("conflicts    %" PRIu64 "\n", found->conflicts_cnt);
    (void)printf("policy       revision %" PRIu64 "%s\n", report->policy_revision,
                 report->policy_new ? ", new" : "");
    if (report->gap_from_ms == HF_UNKNOWN) {
        (void)printf("coverage gap none\n");
    } else {
        hf_utc_format(report->gap_from_ms, from);
        hf_utc_format(report->gap_until_ms, until);
        (void)printf("coverage gap %s to %s: what happened then and was not committed is lost\n", from,
                     until);
    }
}

/* ---- looking and making ----------------------------------------------------------------------------------------- */

static int look(const struct told *told, const struct hf_policy_file *policy, struct hf_store *store,
                const char *store_name)
{
    struct hf_segment seg = {.lock_fd = -1};
    struct hf_error err = {.text = ""};
    struct hf_recover_report report = {0};
    const struct hf_recover_options options = {.segment = told->options.segment,
                                               .policy = policy,
                                               .store = store,
                                               .store_name = store_name,
                                               .replay_horizon_ms = HF_SERVE_REPLAY_HORIZON_MS,
                                               .late_horizon_ms = HF_SERVE_LATE_HORIZON_MS,
                                               .injected = told->options.injected,
                                               .injected_ms = told->options.injected_ms};

    if (hf_segment_attach(told->options.segment, &seg, &err) == HF_OK) {
        (void)printf("segment      epoch %" PRIu64 ", %s\n", seg.header->hdr_epoch,
                     hf_segment_state(&seg) == HF_SEGMENT_SUPERSEDED
                         ? "superseded: to be made again"
                         : "whole: the daemon goes on with it; made again now, "
                           "it would be of this:");
        hf_segment_detach(&seg);
    } else {
        (void)printf("segment      %s\n", err.text);
        if (hf_recover_unused(told->options.segment, &err) != HF_OK) {
            (void)printf("in use       %s\n", err.text);
        }
    }
    if (hf_recover_look(&options, &report, &err) != HF_RECOVER_OK) {
        return hf_command_fail("recover", HF_EXIT_FAILED, "%s", err.text);
    }
    print_report(&report);
    return print_sums(store, store_name, report.now_ms);
}

static const char *name_of(const struct hf_serve_options *options)
{
    const char *slash = strrchr(options->segment, '/');

    return options->store_name != NULL ? options->store_name : slash != NULL ? slash + 1 : options->segment;
}

static int check(const struct told *told)
{
    struct hf_policy_report problems = {0};
    struct hf_policy_file policy;
    struct hf_store_options options = {.role = HF_STORE_READER};
    struct hf_store_error error = {""};
    struct hf_store *store = NULL;
    char by_default[1024];
    const char *url = told->options.store_url;
    int loaded =
        hf_policy_file_read(told->options.policy_path, told->options.policy_flags, &policy, &problems);

    hf_policy_report_free(&problems);
    if (loaded != HF_POLICY_LOADED) {
        return hf_command_fail("recover", HF_EXIT_USAGE, "the policy %s is refused",
                               told->options.policy_path);
    }
    enum hf_store_status status = HF_STORE_OK;

    if (url == NULL) {
        status = hf_store_default_url(by_default, sizeof(by_default), &error);
        url = by_default;
    }
    if (status == HF_STORE_OK) {
        status = hf_store_open(url, &options, &store, &error);
    }
    int exit_status = status == HF_STORE_OK ? look(told, &policy, store, name_of(&told->options))
                                            : hf_command_fail("recover", HF_EXIT_FAILED, "%s", error.text);

    hf_store_close(store);
    hf_policy_file_free(&policy);
    return exit_status;
}

static void say(void *ctx, enum hf_log_level level, const char *text)
{
    (void)ctx;
    if (level == HF_LOG_ERROR) { /* the rest is in what is printed */
        (void)fprintf(stderr, "holdfast recover: %s\n", text);
    }
}

static int make(struct told *told)
{
    struct hf_policy_report problems = {0};
    struct hf_error err = {.text = ""};
    struct hf_serve *serve = NULL;
    const struct passwd *user = getpwuid(geteuid());

    told->options.log = say;
    told->options.made_by = user != NULL ? user->pw_name : NULL;
    enum hf_serve_status status = hf_serve_open(&told->options, &serve, &problems, &err);

    hf_policy_report_free(&problems);
    if (status != HF_SERVE_OK) {
        return hf_command_fail("recover", status == HF_SERVE_POLICY ? HF_EXIT_USAGE : HF_EXIT_FAILED, "%s",
                               err.text);
    }
    const struct hf_recover_report *report = hf_serve_recovered(serve);
    bool flushed = hf_serve_flush(serve, 10000);
    int exit_status = HF_EXIT_OK;

    if (report != NULL) {
        (void)printf("segment      made again, epoch %" PRIu64 "\n", report->epoch);
        print_report(report);
        exit_status = print_sums(hf_serve_store(serve), hf_serve_store_name(serve), report->now_ms);
    } else {
        (void)printf("segment      whole, epoch %" PRIu64 ": nothing was to be made again%s\n",
                     hf_serve_segment(serve)->header->hdr_epoch,
                     flushed ? "; what was in it is committed" : "");
    }
    hf_serve_close(serve);
    return exit_status;
}

/* ---- arguments -------------------------------------------------------------------------------------------------- */

static bool read_number(const char *text, uint64_t most, uint64_t *number)
{
    char *end = NULL;

    errno = 0;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0 && *number <= most;
}

/* One option. HF_EXIT_OK, or the exit status of a misuse. */
static int read_option(struct told *told, int option)
{
    uint64_t number;

    switch (option) {
    case 's':
        told->options.segment = optarg;
        return HF_EXIT_OK;
    case 'p':
        told->options.policy_path = optarg;
        return HF_EXIT_OK;
    case 'u':
        told->options.store_url = optarg;
        return HF_EXIT_OK;
    case 'n':
        told->options.store_name = optarg;
        return HF_EXIT_OK;
    case 'N':
        if (!read_number(optarg, HF_SHM_SLOTS_MAX, &number) || number < HF_SHM_CHUNK_SLOTS) {
            return hf_command_misuse("recover", "--slots must be a whole number from %u to %u, not '%s'",
                                     HF_SHM_CHUNK_SLOTS, HF_SHM_SLOTS_MAX, optarg);
        }
        told->options.slots = (uint32_t)number;
        return HF_EXIT_OK;
    case 'c':
        if (!read_number(optarg, HF_CLOCK_MS_MAX, &told->options.injected_ms)) {
            return hf_command_misuse("recover",
                                     "--clock-ms must be a whole number from 0 to %" PRIu64 ", not '%s'",
                                     HF_CLOCK_MS_MAX, optarg);
        }
        told->options.injected = true;
        return HF_EXIT_OK;
    case 'C':
        told->check = true;
        return HF_EXIT_OK;
    case 'h':
        told->help = true;
        return HF_EXIT_OK;
    default:
        return HF_EXIT_USAGE;
    }
}

int hf_cmd_recover(int argc, char **argv)
{
    static const struct option options[] = {
        {"segment", required_argument, NULL, 's'},
        {"policy", required_argument, NULL, 'p'},
        {"store", required_argument, NULL, 'u'},
        {"store-name", required_argument, NULL, 'n'},
        {"slots", required_argument, NULL, 'N'},
        {"clock-ms", required_argument, NULL, 'c'},
        {"check", no_argument, NULL, 'C'},
        HF_OPTION_HELP,
        HF_OPTION_END,
    };
    struct told told = {0};
    struct hf_policy *policy = NULL;
    int option = 0;

    optind = 0;
    while ((option = hf_command_option("recover", argc, argv, options)) != -1) {
        int status = read_option(&told, option);

        if (status != HF_EXIT_OK) {
            return status;
        }
    }
    if (told.help) {
        (void)fputs(help, stdout);
        return HF_EXIT_OK;
    }
    if (optind < argc) {
        return hf_command_misuse("recover", "'%s' is not expected", argv[optind]);
    }
    if (told.options.segment == NULL || told.options.policy_path == NULL) {
        return hf_command_misuse("recover", "%s is missing",
                                 told.options.segment == NULL ? "--segment" : "--policy");
    }
    if (hf_policy_check_file(told.options.policy_path, false, stderr, &policy) != 0) {
        return HF_EXIT_USAGE;
    }
    hf_policy_free(policy);
    return told.check ? check(&told) : make(&told);
}
