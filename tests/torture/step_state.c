/* What a segment says, as text that two runs can be compared by, and the rules that hold whatever it says. */
#include "core/slot.h"
#include "persist/batch.h"
#include "persist/snapshot.h"
#include "shm/clock.h"
#include "shm/commit.h"
#include "tests/support/quota.h"
#include "tests/torture/step_world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 512U
#define LINES_MAX  256U

struct hf_lines {
    char line[LINES_MAX][LINE_BYTES];
    uint32_t cnt;
    uint32_t broken;
};

static __attribute__((format(printf, 2, 3))) void add(struct hf_lines *lines, const char *format, ...)
{
    va_list args;

    if (lines->cnt == LINES_MAX) {
        lines->broken++;
        return;
    }
    va_start(args, format);
    (void)vsnprintf(lines->line[lines->cnt++], LINE_BYTES, format, args);
    va_end(args);
}

#define BROKEN(lines, ...)                   \
    do {                                     \
        (lines)->broken++;                   \
        add((lines), "BROKEN " __VA_ARGS__); \
    } while (0)

static const char *state_name(enum hf_state state)
{
    static const char *const names[] = {
        [HF_STATE_FREE] = "free",         [HF_STATE_FILLING] = "filling",
        [HF_STATE_PENDING] = "pending",   [HF_STATE_ABANDONED] = "abandoned",
        [HF_STATE_HELD] = "held",         [HF_STATE_DISPATCHED] = "dispatched",
        [HF_STATE_SETTLED] = "settled",   [HF_STATE_RELEASED] = "released",
        [HF_STATE_EXPIRED] = "expired",   [HF_STATE_RETAINED] = "retained",
        [HF_STATE_DISPUTED] = "disputed", [HF_STATE_LATE] = "late",
        [HF_STATE_CREDIT] = "credit",
    };

    return (size_t)state < sizeof(names) / sizeof(names[0]) && names[state] != NULL ? names[state] : "?";
}

/* One line per receipt that a slot owes, with the digest of its canonical text. */
static void receipts(struct hf_world *world, const struct hf_snapshot *snap, struct hf_lines *lines)
{
    static const struct hf_snapshot_known known = {.policy_revision = 1, .reservation_seq = HF_UNKNOWN};
    struct hf_receipt rows[HF_OWES_ROWS_MAX];
    uint32_t owes = hf_snapshot_owes(snap);
    size_t cnt = owes != 0 ? hf_snapshot_receipts(world->seg, snap, owes, &known, rows) : 0;

    if (owes != 0 && cnt == 0) {
        BROKEN(lines, "slot %u: no receipt can be made of it", snap->slot_idx);
    }
    for (size_t i = 0; i < cnt; i++) {
        uint8_t digest[HF_DIGEST_BYTES] = {0};

        rows[i].seq = 1; /* given at the commit */
        if (!hf_digest_receipt(world->digest, "torture", &rows[i], digest)) {
            BROKEN(lines, "slot %u: its receipt has no canonical text", snap->slot_idx);
        }
        add(lines,
            "receipt %s %s held %" PRId64 " %" PRId64 " charged %" PRId64 " %" PRId64 " %02x%02x%02x%02x",
            rows[i].id.bytes, hf_receipt_kind_name(rows[i].kind), rows[i].held_tokens,
            rows[i].held_cost_micros, rows[i].charged_tokens, rows[i].charged_cost_micros, digest[0],
            digest[1], digest[2], digest[3]);
    }
}

static void slots(struct hf_world *world, struct hf_lines *lines)
{
    struct hf_segment *seg = world->seg;

    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        struct hf_snapshot snap;

        if (hf_snapshot_take(seg, i, &snap) != HF_OK) {
            BROKEN(lines, "slot %u cannot be read", i);
            continue;
        }
        enum hf_state state = hf_st_state(snap.st);
        const struct hf_shm_slot *slot = &snap.slot;
        const struct hf_shm_hold *hold = &slot->slot_holds[hf_st_ordinal(snap.st) & 1U];

        if (state == HF_STATE_FREE) {
            continue;
        }
        if (state < HF_STATE_HELD || strcmp(state_name(state), "?") == 0) {
            BROKEN(lines, "slot %u is %s still", i, state_name(state));
            continue;
        }
        if (state == HF_STATE_CREDIT) {
            add(lines, "credit");
        } else {
            add(lines, "slot %.63s %s tenant %u hold %" PRIu64 " %" PRIu64 " until %" PRIu64, slot->slot_id,
                state_name(state), slot->slot_tenant, hold->hold_tokens, hold->hold_cost,
                hold->hold_deadline);
        }
        receipts(world, &snap, lines);
    }
}

static void buckets(const struct hf_world *world, struct hf_lines *lines)
{
    const struct hf_segment *seg = world->seg;

    for (uint32_t r = 0; r < seg->rows_cnt; r++) {
        const struct hf_shm_row *row = &seg->rows[r]; /* plain: nobody runs */

        for (uint32_t b = 0; b < HF_SHM_ROW_BUCKETS; b++) {
            struct hf_u128 word = row->row_buckets[b / HF_SHM_DIMS][b % HF_SHM_DIMS];

            if (word.lo != 0 || word.hi != 0) {
                add(lines, "bucket %u.%u %" PRIu64 " in %u", r, b, hf_bucket_value(word),
                    hf_bucket_window(word));
            }
        }
        for (uint32_t w = 0; w < HF_SHM_WINDOWS; w++) {
            struct hf_u128 word = row->row_buckets[w][HF_SHM_CREDIT];

            if (word.lo != 0 || word.hi != 0) {
                add(lines, "credit %u.%u %" PRIu64 " in %u", r, w, hf_bucket_value(word),
                    hf_bucket_window(word));
            }
        }
    }
}

/* Every known id is in its chain exactly once, and no link leads anywhere else. */
static void index_of(const struct hf_world *world, struct hf_lines *lines)
{
    const struct hf_segment *seg = world->seg;
    uint32_t seen[4096] = {0};

    for (uint32_t h = 0; h <= seg->heads_mask; h++) {
        uint64_t link = seg->heads[h]; /* plain: nobody runs */

        for (uint32_t steps = 0; hf_link_slot(link) != 0; steps++) {
            uint32_t idx = hf_link_slot(link) - 1U;

            if (idx >= seg->slots_cnt || steps > seg->slots_cnt) {
                BROKEN(lines, "chain %u leads nowhere", h);
                break;
            }
            const struct hf_shm_slot *slot = &seg->slots[idx];
            enum hf_state state = hf_st_state(slot->slot_st);

            if (hf_link_gen(link) != hf_st_gen(slot->slot_st) || state < HF_STATE_HELD ||
                state == HF_STATE_CREDIT || (slot->slot_id_hash & seg->heads_mask) != h) {
                BROKEN(lines, "chain %u has slot %u, which is %s", h, idx, state_name(state));
            }
            if ((link & HF_LINK_LAST) != 0 &&
                (hf_link_slot(slot->slot_next) != 0 || hf_link_excludes(link, slot->slot_id_hash))) {
                BROKEN(lines, "chain %u hides slot %u, or the one behind it", h, idx);
            }
            seen[idx]++;
            link = slot->slot_next;
        }
    }
    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        enum hf_state state = hf_st_state(seg->slots[i].slot_st);
        uint32_t wanted = state >= HF_STATE_HELD && state != HF_STATE_CREDIT;

        if (seen[i] != wanted) {
            BROKEN(lines, "slot %u (%s) is in %u chains", i, state_name(state), seen[i]);
        }
    }
}

/* No free slot is lost: its bit is set, or who holds its chunk has it. No chunk is a dead process's. */
static void chunks(const struct hf_world *world, struct hf_lines *lines)
{
    const struct hf_segment *seg = world->seg;
    const struct holdfast *handles[2] = {world->maker, world->me};

    for (uint32_t c = 0; c < seg->chunks_cnt; c++) {
        uint64_t bits = seg->chunks[c].chunk_free; /* plain: nobody runs */
        uint64_t owner = seg->chunks[c].chunk_owner;

        for (uint32_t i = 0; i < 2; i++) {
            if (handles[i]->chunks.current == c) {
                bits |= handles[i]->chunks.free_bits;
                owner = owner == handles[i]->owner.ref ? 0 : owner;
            }
        }
        if (owner != 0) {
            BROKEN(lines, "chunk %u belongs to a dead process", c);
        }
        for (uint32_t i = 0; i < seg->chunk_slots; i++) {
            uint32_t idx = (c << seg->chunk_shift) + i;

            if (hf_st_state(seg->slots[idx].slot_st) == HF_STATE_FREE && (bits >> i & 1U) == 0) {
                BROKEN(lines, "slot %u is free and nobody can take it", idx);
            }
        }
    }
}

/* Sequences: nothing was applied that its tenant's W does not know. And, where nothing was freed, buckets = slots. */
static void sequences(const struct hf_world *world, struct hf_lines *lines)
{
    const struct hf_segment *seg = world->seg;
    struct hf_test_quota quota = {.seg = world->seg};

    for (uint32_t i = 0; i < seg->tenants_cnt; i++) {
        if (seg->tenants[i].ten_applied > hf_word_seq(seg->tenants[i].ten_word)) { /* plain: nobody runs */
            BROKEN(lines, "tenant %u: A is ahead of W", i);
        }
    }
    for (uint32_t r = 0; r < seg->rows_cnt; r++) {
        const struct hf_shm_row *row = &seg->rows[r];
        uint64_t seq = hf_word_seq(seg->tenants[row->row_tenant].ten_word);

        for (uint32_t b = 0; b < HF_SHM_ROW_BUCKETS; b++) {
            if (hf_bucket_tag(row->row_buckets[b / HF_SHM_DIMS][b % HF_SHM_DIMS]) > seq) {
                BROKEN(lines, "bucket %u.%u: its tag is ahead of its tenant's sequence", r, b);
            }
        }
    }
    for (uint32_t i = 0; i < seg->slots_cnt; i++) {
        const struct hf_shm_slot *slot = &seg->slots[i];

        if (hf_st_state(slot->slot_st) >= HF_STATE_HELD &&
            hf_st_seq(slot->slot_st) > hf_word_seq(seg->tenants[slot->slot_tenant].ten_word)) {
            BROKEN(lines, "slot %u: its operation is ahead of its tenant's sequence", i);
        }
    }
    if (world->retired[0] == '\0' && hf_test_mismatches(&quota) != 0) {
        BROKEN(lines, "%u buckets are not what the slots leave in them", hf_test_mismatches(&quota));
    }
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void join(struct hf_lines *lines, const char *more, char text[HF_WORLD_TEXT_BYTES])
{
    size_t used = 0;
    char rest[sizeof(((struct hf_world *)NULL)->retired)];
    char *at = NULL;

    (void)snprintf(rest, sizeof(rest), "%s", more);
    for (char *line = strtok_r(rest, "\n", &at); line != NULL; line = strtok_r(NULL, "\n", &at)) {
        add(lines, "%s", line);
    }
    qsort(lines->line, lines->cnt, LINE_BYTES, compare_lines);
    for (uint32_t i = 0; i < lines->cnt && used + LINE_BYTES < HF_WORLD_TEXT_BYTES; i++) {
        used += (size_t)snprintf(text + used, HF_WORLD_TEXT_BYTES - used, "%s\n", lines->line[i]);
    }
}

static struct hf_lines *room_of(struct hf_world *world)
{
    if (world->lines == NULL) {
        world->lines = hf_world_room(sizeof(*world->lines));
    }
    world->lines->cnt = world->lines->broken = 0;
    return world->lines;
}

void hf_world_persist(struct hf_world *world, uint32_t slot_idx)
{
    struct hf_lines *lines = room_of(world);
    struct hf_shm_batch_entry entry = {0};
    struct hf_snapshot snap;
    size_t used = strlen(world->retired);

    if (hf_snapshot_take(world->seg, slot_idx, &snap) != HF_OK || hf_snapshot_owes(&snap) == 0) {
        return;
    }
    receipts(world, &snap, lines);
    for (uint32_t i = 0; i < lines->cnt && used + LINE_BYTES < sizeof(world->retired); i++) {
        used +=
            (size_t)snprintf(world->retired + used, sizeof(world->retired) - used, "%s\n", lines->line[i]);
    }
    hf_snapshot_mark(&snap, &entry);
    hf_batch_mark(world->seg, &entry, 0);
}

uint32_t hf_world_text(struct hf_world *world, char text[HF_WORLD_TEXT_BYTES])
{
    struct hf_lines *lines = room_of(world);
    const struct hf_segment *seg = world->seg;

    text[0] = '\0';
    slots(world, lines);
    buckets(world, lines);
    index_of(world, lines);
    chunks(world, lines);
    sequences(world, lines);
    if (seg->header->hdr_alarms[HF_ALARM_CORRUPT] != 0) {
        BROKEN(lines, "%" PRIu64 " values that cannot be were met",
               seg->header->hdr_alarms[HF_ALARM_CORRUPT]);
    }
    join(lines, world->retired, text);
    return lines->broken;
}

/* Appends the lines of a that are not in b. */
static size_t only_in(const char *a, const char *b, char sign, char *out, size_t bytes)
{
    size_t used = 0;

    while (*a != '\0') {
        size_t len = strcspn(a, "\n");
        const char *at = b;
        bool there = false;

        while (!there && *at != '\0') {
            size_t other = strcspn(at, "\n");

            there = other == len && memcmp(a, at, len) == 0;
            at += other + (at[other] != '\0');
        }
        if (!there && used + len + 8U < bytes) {
            used += (size_t)snprintf(out + used, bytes - used, "    %c %.*s\n", sign, (int)len, a);
        }
        a += len + (a[len] != '\0');
    }
    return used;
}

const char *hf_world_diff(const char *wanted, const char *found)
{
    static char out[4096];
    size_t used;

    out[0] = '\0';
    used = only_in(wanted, found, '-', out, sizeof(out) / 2U);
    (void)only_in(found, wanted, '+', out + used, sizeof(out) - used);
    return out;
}
