/* holdfast status: how a segment and its daemon are doing. Reads only. */
#include "persist/snapshot.h"
#include "shm/clock.h"
#include "shm/index.h"
#include "shm/owner.h"
#include "shm/segment.h"
#include "tools/common/alarms.h"
#include "tools/common/utc.h"
#include "tools/holdfast/command.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static const char help[] =
    "Usage: holdfast status --segment NAME [--all]\n"
    "\n"
    "Prints how a segment and its daemon are doing: state, epoch and build, whether the\n"
    "daemon lives, how far the store is behind, slots, processes, and the alarm counters\n"
    "with their meaning. Changes nothing.\n"
    "\n"
    "  --segment NAME  name or path of the segment\n"
    "  --all           alarms that never rang as well\n"
    "  --help          this text\n"
    "\n"
    "Exit status: 0 open for work and its daemon lives, 1 not, 2 no such segment.\n";

struct slot_counts {
    uint32_t free, making, open, known, closed;
    uint64_t waiting;   /* slots with something that is not committed */
    uint64_t oldest_ms; /* when the oldest of these changed last; UINT64_MAX: none */
};

static const char *state_name(uint32_t state)
{
    switch (state) {
    case HF_SEGMENT_READY:
        return "ready";
    case HF_SEGMENT_SUPERSEDED:
        return "superseded (another segment took over its name)";
    case HF_SEGMENT_CLOSED:
        return "closed";
    case HF_SEGMENT_REPAIR:
        return "being repaired, or a repair was cut off: run `holdfast fsck --repair` again";
    default:
        return "being built";
    }
}

/* relaxed everywhere below: a look at a running segment, each number as of its own instant. */
static void count_slot(const struct hf_segment *seg, uint32_t idx, uint64_t now_ms, struct slot_counts *cnt)
{
    const struct hf_shm_slot *slot = &seg->slots[idx];
    /* A torn read shows a state that is over or about to come: good enough for a look. */
    struct hf_u128 st = {.lo = hf_load_rlx_u64(&slot->slot_st.lo), .hi = hf_load_rlx_u64(&slot->slot_st.hi)};
    uint64_t persisted = hf_load_rlx_u64(&slot->slot_persisted);
    enum hf_state state = hf_st_state(st);

    if (state == HF_STATE_FREE || state == HF_STATE_ABANDONED) {
        cnt->free++;
        return;
    }
    if (state == HF_STATE_FILLING || state == HF_STATE_PENDING) {
        cnt->making++;
        return;
    }
    cnt->open += state == HF_STATE_HELD || state == HF_STATE_DISPATCHED;
    cnt->closed += state != HF_STATE_HELD && state != HF_STATE_DISPATCHED;
    cnt->known += hf_index_known(seg, st, now_ms);
    if (!hf_snapshot_written(st, persisted)) {
        uint64_t time_ms = hf_st_time_ms(st);

        cnt->waiting++;
        cnt->oldest_ms = time_ms < cnt->oldest_ms ? time_ms : cnt->oldest_ms;
    }
}

static void print_identity(const struct hf_segment *seg, uint32_t state)
{
    const struct hf_shm_header *hdr = seg->header;
    uint64_t now_ms = hf_clock_now_ms(seg);
    char now[HF_UTC_BYTES];

    (void)printf("segment    %.64s%s%s\n", hdr->hdr_segment_name, seg->path[0] == '\0' ? "" : " at ",
                 seg->path);
    (void)printf(
        "state      %s\n",
        state_name(hf_load_rlx_u32(&hdr->hdr_state) == HF_SEGMENT_REPAIR ? HF_SEGMENT_REPAIR : state));
    (void)printf("epoch      %" PRIu64 "\n", hdr->hdr_epoch);
    (void)printf("build      layout %016" PRIx64 ", version %" PRIu32 ", holdfast " HF_VERSION "\n",
                 hdr->hdr_fingerprint, hdr->hdr_version);
    (void)printf("size       %" PRIu64 " KiB\n", seg->size_bytes / 1024);
    hf_utc_format(now_ms, now);
    (void)printf("clock      %s (%" PRIu64 " ms)%s\n", now, now_ms, seg->injected ? ", injected" : "");
    (void)printf("policy     generation %" PRIu32 "\n", hf_load_rlx_u32(&hdr->hdr_policy_gen));
    (void)printf("store      %.512s, as %.64s\n", hdr->hdr_store_url, hdr->hdr_store_name);
}

/* True when the daemon lives. */
static bool print_daemon(const struct hf_segment *seg)
{
    const struct hf_shm_header *hdr = seg->header;
    uint64_t ref = hf_load_rlx_u64(&hdr->hdr_daemon);
    uint64_t mono_ms = hf_clock_mono_fine_ms(), beat_ms = hf_load_rlx_u64(&hdr->hdr_heartbeat_ms);
    uint64_t durable_ms = hf_load_rlx_u64(&hdr->hdr_durable_ms);
    uint32_t idx = hf_ref_index(ref);
    bool alive = ref != 0 && hf_owner_alive(seg, ref);

    if (ref == 0 || idx >= seg->owners_cnt) {
        (void)printf("daemon     none: start holdfastd\n");
    } else {
        (void)printf("daemon     pid %" PRIu32 "%s, last cycle %" PRIu64 " ms ago\n",
                     hf_load_rlx_u32(&seg->owners[idx].own_pid), alive ? "" : ", dead: start holdfastd",
                     mono_ms > beat_ms ? mono_ms - beat_ms : 0);
    }
    uint64_t lag_ms = mono_ms > durable_ms ? mono_ms - durable_ms : 0;
    bool over = !seg->injected && lag_ms > seg->max_lag_ms;

    (void)printf("lag        %" PRIu64 " ms of %" PRIu64 " at most; last batch %" PRIu64 "%s\n", lag_ms,
                 seg->max_lag_ms, hf_load_rlx_u64(&hdr->hdr_batch_number),
                 over ? "; reserves are busy until the store has caught up" : "");
    return alive;
}

static void print_slots(const struct hf_segment *seg)
{
    struct slot_counts cnt = {.oldest_ms = UINT64_MAX};
    uint64_t now_ms = hf_clock_now_ms(seg);

    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        count_slot(seg, i, now_ms, &cnt);
    }
    (void)printf("slots      %" PRIu32 ": %" PRIu32 " free, %" PRIu32 " in the making, %" PRIu32
                 " open, %" PRIu32 " closed; %" PRIu32 " known by id\n",
                 seg->slots_cnt, cnt.free, cnt.making, cnt.open, cnt.closed, cnt.known);
    if (cnt.free < seg->slots_cnt / 5) {
        (void)printf(
            "           fewer than a fifth are free; when none is, reserves are busy: see holdfastd --slots\n");
    }
    if (cnt.waiting == 0) {
        (void)printf("unwritten  nothing: everything is committed\n");
    } else {
        (void)printf("unwritten  %" PRIu64 " slots, the oldest change %" PRIu64 " ms ago\n", cnt.waiting,
                     now_ms > cnt.oldest_ms ? now_ms - cnt.oldest_ms : 0);
    }
}

static void print_owners(const struct hf_segment *seg)
{
    static const char *const roles[] = {"?", "worker", "daemon", "tool"};
    uint32_t cnt = 0;

    for (uint32_t i = 0; i < seg->owners_cnt; i++) {
        cnt += hf_load_rlx_u64(&seg->owners[i].own_ref) != 0;
    }
    (void)printf("processes  %" PRIu32 " of %" PRIu32 " places\n", cnt, seg->owners_cnt);
    for (uint32_t i = 0; i < seg->owners_cnt; i++) {
        const struct hf_shm_owner *own = &seg->owners[i];
        uint64_t ref = hf_load_rlx_u64(&own->own_ref);
        uint32_t role = hf_load_rlx_u32(&own->own_role);

        if (ref != 0) {
            (void)printf("  %-6s   pid %" PRIu32 "%s\n", roles[role < 4 ? role : 0],
                         hf_load_rlx_u32(&own->own_pid), hf_owner_alive(seg, ref) ? "" : ", dead");
        }
    }
}

static void print_alarms(const struct hf_segment *seg, bool all)
{
    bool quiet = true;

    for (unsigned i = 0; i < HF_ALARM_CNT; i++) {
        uint64_t cnt = hf_load_rlx_u64(&seg->header->hdr_alarms[i]);

        if (cnt > 0 || all) {
            (void)printf("%s%-15s %10" PRIu64 "  %s\n", quiet ? "alarms\n  " : "  ", hf_alarm_text(i)->name,
                         cnt, hf_alarm_text(i)->meaning);
            quiet = false;
        }
    }
    if (quiet) {
        (void)printf("alarms     none\n");
    }
}

int hf_cmd_status(int argc, char **argv)
{
    static const struct option options[] = {{"segment", required_argument, NULL, 's'},
                                            {"all", no_argument, NULL, 'a'},
                                            HF_OPTION_HELP,
                                            HF_OPTION_END};
    const char *name = NULL;
    bool all = false, alive = false;
    struct hf_segment seg;
    struct hf_error err;
    int option = 0;

    optind = 0;
    while ((option = hf_command_option("status", argc, argv, options)) != -1) {
        switch (option) {
        case 's':
            name = optarg;
            break;
        case 'a':
            all = true;
            break;
        case 'h':
            (void)fputs(help, stdout);
            return HF_EXIT_OK;
        default:
            return HF_EXIT_USAGE;
        }
    }
    if (name == NULL || optind < argc) {
        return hf_command_misuse("status", "name the segment by --segment, and nothing else");
    }
    if (hf_segment_attach(name, &seg, &err) != HF_OK) {
        return hf_command_fail("status", HF_EXIT_USAGE, "%s", err.text);
    }

    uint32_t state = hf_segment_state(&seg);

    print_identity(&seg, state);
    alive = print_daemon(&seg);
    print_slots(&seg);
    print_owners(&seg);
    print_alarms(&seg, all);
    hf_segment_detach(&seg);
    return state == HF_SEGMENT_READY && alive ? HF_EXIT_OK : HF_EXIT_FAILED;
}
