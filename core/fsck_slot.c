/* Chunks and slots, each for itself. */
#include "core/fsck_impl.h"

#include "core/name.h"
#include "shm/chunk.h"
#include "shm/clock.h"
#include "shm/commit.h"
#include "shm/index.h"

#include <string.h>

#define COPY_TRIES   64U
#define FLAGS_KNOWN  0x7fffU
#define CLOSE_KNOWN  0x3ffU
#define AHEAD_MAX    1024U /* lives or extensions: what is further ahead is a number that has come round */
#define DEADLINE_FAR (2U * HF_SHM_AMOUNT_MAX)
#define GEN_MASK     0xfffffU
#define ORDINAL_MASK 0x7ffU

/* relaxed everywhere below: a slot is judged by a copy during which its st stood still. */

bool hf_fsck_copy_slot(const struct hf_segment *seg, uint32_t slot_idx, struct hf_u128 *st,
                       struct hf_shm_slot *copy)
{
    const struct hf_shm_slot *slot = &seg->slots[slot_idx];
    const uint64_t *from = (const uint64_t *)(const void *)slot;
    uint64_t words[sizeof(*slot) / 8];

    for (uint32_t try = 0; try < COPY_TRIES; try++) {
        *st = hf_commit_read_st(slot); /* E13 */
        for (uint32_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
            words[i] = hf_load_rlx_u64(&from[i]);
        }
        hf_fence_acq(); /* E16 fence -> hf_slot_begin: a field of the next life implies its generation */
        struct hf_u128 again = hf_commit_read_st(slot); /* E13 */

        if (again.lo == st->lo && again.hi == st->hi) {
            memcpy(copy, words, sizeof(words));
            return true;
        }
        hf_pause();
    }
    return false;
}

struct judged {
    struct hf_fsck *fsck;
    const struct hf_segment *seg;
    uint32_t slot_idx;
    struct hf_u128 st;
    const struct hf_shm_slot *slot; /* the copy */
};

static struct hf_fsck_item *wrong(const struct judged *j, enum hf_fsck_kind kind, const char *what)
{
    struct hf_fsck_item *item = hf_fsck_add(j->fsck, kind, "%s", what);

    if (item != NULL) {
        item->slot = j->slot_idx;
        item->tenant = j->slot->slot_tenant < j->seg->tenants_cnt ? j->slot->slot_tenant : HF_SHM_NONE;
        item->sig[0] = j->st.lo;
        item->sig[1] = j->st.hi;
    }
    return item;
}

/* ---- a reservation's fields ------------------------------------------------------------------------------------------ */

static bool path_right(const struct judged *j)
{
    const struct hf_segment *seg = j->seg;
    const struct hf_shm_slot *slot = j->slot;
    const uint32_t *rows = slot->slot_rows;

    /* plain: rows are read-only once published. */
    if (slot->slot_tenant >= seg->tenants_cnt || !hf_fsck_tenant_used(seg, slot->slot_tenant) ||
        rows[2] != seg->tenants[slot->slot_tenant].ten_row || rows[1] >= seg->rows_cnt ||
        seg->rows[rows[1]].row_layer != 1 || seg->rows[rows[1]].row_parent != rows[2]) {
        return false;
    }
    if (rows[0] != HF_SHM_NONE && (rows[0] >= seg->rows_cnt || seg->rows[rows[0]].row_layer != 0 ||
                                   seg->rows[rows[0]].row_parent != rows[1])) {
        return false;
    }
    uint64_t key_bits = (1ULL << HF_SHM_ROW_BUCKETS) - 1U;

    return slot->slot_mask >> HF_SHM_PATH_BUCKETS == 0 &&
           (rows[0] != HF_SHM_NONE || (slot->slot_mask & key_bits) == 0);
}

static void check_path(const struct judged *j)
{
    if (!path_right(j)) {
        (void)wrong(j, HF_FSCK_SLOT_PATH, "tenant, rows or mask do not belong together");
        return;
    }
    /* st was read before W, which is not older. */
    uint64_t seq =
        hf_load_acq_u64(&j->seg->tenants[j->slot->slot_tenant].ten_word.lo) >> 20; /* E10 acquire */

    if (hf_st_seq(j->st) > seq) {
        hf_fsck_numbers(wrong(j, HF_FSCK_SLOT_SEQ, "the sequence of its last operation is ahead of W"), seq,
                        hf_st_seq(j->st));
    }
}

static void check_windows(const struct judged *j)
{
    uint32_t windows[HF_SHM_WINDOWS];

    if (j->slot->slot_reserved_ms > HF_CLOCK_MS_MAX) {
        (void)wrong(j, HF_FSCK_SLOT_WINDOWS, "it was reserved after the end of the clock");
        return;
    }
    hf_window_ids(j->slot->slot_reserved_ms, windows);
    for (uint32_t w = 0; w < 4; w++) {
        if (windows[w] != j->slot->slot_windows[w]) {
            struct hf_fsck_item *item =
                wrong(j, HF_FSCK_SLOT_WINDOWS, "a window is not that of the instant of its reservation");

            hf_fsck_numbers(item, windows[w], j->slot->slot_windows[w]);
            if (item != NULL) {
                item->window = w;
            }
        }
    }
}

static bool amount(uint64_t value)
{
    return value <= HF_SHM_AMOUNT_MAX || value == HF_SHM_UNKNOWN;
}

static void check_amounts(const struct judged *j)
{
    const struct hf_shm_hold *hold = &j->slot->slot_holds[hf_st_ordinal(j->st) & 1U];
    enum hf_state state = hf_st_state(j->st);
    bool settled = state == HF_STATE_SETTLED || state == HF_STATE_LATE || state == HF_STATE_DISPUTED;

    if (!amount(hold->hold_tokens) || !amount(hold->hold_cost) || !amount(j->slot->slot_first_tokens) ||
        !amount(j->slot->slot_first_cost)) {
        (void)wrong(j, HF_FSCK_SLOT_AMOUNT, "what it holds is out of the range of amounts");
    } else if (settled && (!amount(j->slot->slot_actual_tokens) || !amount(j->slot->slot_actual_cost))) {
        (void)wrong(j, HF_FSCK_SLOT_AMOUNT, "what it came to is out of the range of amounts");
    } else if (hold->hold_deadline > DEADLINE_FAR) {
        hf_fsck_numbers(wrong(j, HF_FSCK_SLOT_AMOUNT, "its deadline is further away than any can be"),
                        DEADLINE_FAR, hold->hold_deadline);
    }
}

static void check_id(const struct judged *j)
{
    uint32_t bytes = j->slot->slot_id_bytes;

    if (bytes == 0 || bytes > HF_SHM_NAME_BYTES || !hf_name_valid(j->slot->slot_id, bytes)) {
        (void)wrong(j, HF_FSCK_SLOT_ID, "its id is no name");
    } else if (hf_index_hash(j->seg, j->slot->slot_id, bytes) != j->slot->slot_id_hash) {
        hf_fsck_numbers(wrong(j, HF_FSCK_SLOT_ID, "its id and the hash of its id do not belong together"),
                        hf_index_hash(j->seg, j->slot->slot_id, bytes), j->slot->slot_id_hash);
    }
}

static void check_flags(const struct judged *j)
{
    uint32_t flags = j->slot->slot_flags;
    uint32_t gen = j->slot->slot_policy_gen;
    enum hf_state state = hf_st_state(j->st);
    bool closed = state == HF_STATE_SETTLED || state == HF_STATE_LATE || state == HF_STATE_DISPUTED;

    if ((flags & ~FLAGS_KNOWN) != 0 || (flags & HF_SLOT_EXPIRY_MASK) > HF_ON_EXPIRY_RETAIN_DISPATCHED ||
        (closed && ((j->slot->slot_close & ~CLOSE_KNOWN) != 0 ||
                    (j->slot->slot_close & HF_CLOSE_SOURCE_MASK) == HF_CLOSE_SOURCE_MASK))) {
        (void)wrong(j, HF_FSCK_SLOT_FLAGS, "its flags are none that an operation sets");
    }
    if (gen == 0 || gen > hf_load_rlx_u32(&j->seg->header->hdr_policy_gen)) {
        hf_fsck_numbers(wrong(j, HF_FSCK_SLOT_FLAGS, "it was reserved under a policy that never was"),
                        hf_load_rlx_u32(&j->seg->header->hdr_policy_gen), gen);
    }
}

static void check_names(const struct judged *j)
{
    uint32_t names = hf_load_rlx_u32(&j->seg->header->hdr_names_cnt);
    uint32_t prices = hf_load_rlx_u32(&j->seg->header->hdr_prices_cnt);
    const struct hf_shm_slot *slot = j->slot;

    if (slot->slot_cap >= names || (slot->slot_model != HF_SHM_NONE && slot->slot_model >= prices) ||
        (slot->slot_economy != HF_SHM_NONE && slot->slot_economy >= prices)) {
        (void)wrong(j, HF_FSCK_SLOT_NAMES, "its capability or a price of it is not there");
    }
}

/* Which receipts may be committed of a reservation in this state. */
static uint32_t may_be_marked(enum hf_state state)
{
    uint32_t bits = HF_PERSISTED_RESERVATION | HF_PERSISTED_CONFLICT;

    switch (state) {
    case HF_STATE_EXPIRED:
    case HF_STATE_RETAINED:
        return bits | HF_PERSISTED_EXPIRY;
    case HF_STATE_SETTLED:
    case HF_STATE_RELEASED:
        return bits | HF_PERSISTED_CLOSING;
    case HF_STATE_LATE:
    case HF_STATE_DISPUTED:
    case HF_STATE_RESOLVED:
        return bits | HF_PERSISTED_EXPIRY | HF_PERSISTED_CLOSING;
    default:
        return bits;
    }
}

static void check_persisted(const struct judged *j)
{
    uint64_t persisted = j->slot->slot_persisted;
    uint32_t bits = hf_persisted_receipts(persisted);
    uint32_t ahead = (hf_persisted_gen(persisted) - hf_st_gen(j->st)) & GEN_MASK;
    struct hf_fsck_item *item = NULL;

    if (ahead != 0) {
        if (ahead < AHEAD_MAX) {
            item = wrong(j, HF_FSCK_SLOT_PERSISTED, "receipts are committed of a life that is to come");
        }
    } else if ((bits & ~may_be_marked(hf_st_state(j->st))) != 0) {
        item =
            wrong(j, HF_FSCK_SLOT_PERSISTED, "receipts are marked committed that its state cannot have made");
    } else if (bits != 0 && (bits & HF_PERSISTED_RESERVATION) == 0) {
        item = wrong(j, HF_FSCK_SLOT_PERSISTED, "a receipt is marked committed and its reservation's is not");
    } else if (((hf_st_ordinal(j->st) - hf_persisted_ordinal(persisted)) & ORDINAL_MASK) > AHEAD_MAX) {
        item = wrong(j, HF_FSCK_SLOT_PERSISTED, "extensions are marked committed that were not made");
    }
    hf_fsck_numbers(item, hf_persisted_make(hf_st_gen(j->st), hf_st_ordinal(j->st), 0), persisted);
    if (item != NULL) {
        item->sig[0] ^= persisted;
    }
}

static void check_claim(const struct judged *j)
{
    uint64_t claim = j->slot->slot_claim;

    if (claim == 0) {
        return;
    }
    if (hf_ref_index(claim) >= j->seg->owners_cnt ||
        hf_ref_epoch(claim) >
            hf_load_acq_u64(&j->seg->owners[hf_ref_index(claim)].own_last_epoch)) { /* E7 acquire */
        struct hf_fsck_item *item = wrong(j, HF_FSCK_SLOT_CLAIM, "its claim names a process that never was");

        hf_fsck_numbers(item, 0, claim);
    } else if (!hf_owner_alive(j->seg, claim)) {
        (void)wrong(j, HF_FSCK_DEAD, "a dead process holds its claim: the next who closes it takes over");
    }
}

/* A slot that no chain holds though its id is known. */
static void check_linked(const struct judged *j)
{
    const struct hf_segment *seg = j->seg;
    uint64_t claim = j->slot->slot_claim;
    uint32_t gen = hf_st_gen(j->st);

    if (j->fsck->linked[j->slot_idx] == gen + 1U || (j->slot->slot_flags & HF_SLOT_CONFLICT) != 0 ||
        (hf_fsck_is_written(j->slot, j->st) && claim != 0 &&
         (claim == hf_load_rlx_u64(&seg->header->hdr_daemon) || !hf_owner_alive(seg, claim))) ||
        hf_fsck_link_to(seg, j->slot_idx, j->slot->slot_id_hash) != 0) {
        return; /* linked; or of an id that another has (a conflict); or on its way out, by the daemon or a dead one */
    }
    (void)wrong(j, HF_FSCK_INDEX_MISSING, "its id does not find it: no chain of the index holds this slot");
}

/* ---- states --------------------------------------------------------------------------------------------------------- */

static void check_credit(const struct judged *j)
{
    const struct hf_shm_credit_note *note =
        (const struct hf_shm_credit_note *)(const void *)((const uint8_t *)j->slot + HF_SHM_CREDIT_OFF);

    if (j->slot->slot_tenant >= j->seg->tenants_cnt || j->slot->slot_rows[1] >= j->seg->rows_cnt ||
        j->seg->rows[j->slot->slot_rows[1]].row_tenant != j->slot->slot_tenant || /* plain: read-only */
        note->crd_window >= HF_SHM_WINDOWS) {
        (void)wrong(j, HF_FSCK_SLOT_PATH, "the credit is of no team and window");
        return;
    }
    /* The newest credit of its window: the word must be as it left it. */
    struct hf_u128 word = hf_commit_read_bucket(
        &j->seg->rows[j->slot->slot_rows[1]].row_buckets[note->crd_window][HF_SHM_CREDIT]); /* E12 */

    if (hf_bucket_tag(word) == hf_st_seq(j->st) && hf_st_seq(j->st) != 0 &&
        (hf_bucket_value(word) != note->crd_after || hf_bucket_window(word) != note->crd_window_id)) {
        struct hf_fsck_item *item =
            wrong(j, HF_FSCK_CREDIT, "the credit in force is not what the newest credit made it");

        hf_fsck_numbers(item, note->crd_after, hf_bucket_value(word));
        if (item != NULL) {
            item->row = j->slot->slot_rows[1];
            item->window = note->crd_window;
            item->sig[0] ^= word.lo;
            item->sig[1] ^= word.hi;
        }
    }
}

static bool state_known(enum hf_state state)
{
    return (unsigned)state <= HF_STATE_CREDIT;
}

/* A slot in which somebody is at work, or nobody any more. */
static void check_making(const struct judged *j)
{
    const struct hf_segment *seg = j->seg;
    enum hf_state state = hf_st_state(j->st);
    uint64_t holder =
        hf_load_acq_u64(&seg->chunks[j->slot_idx >> seg->chunk_shift].chunk_owner); /* E5 acquire -> claim */

    if (j->st.lo != hf_st_make(0, 0, state, 0, 0).lo) {
        (void)wrong(j, HF_FSCK_SLOT_STATE, "a slot without a reservation has a sequence or an ordinal");
    }
    if (state == HF_STATE_FILLING && holder == 0) {
        (void)wrong(j, HF_FSCK_SLOT_STATE, "a slot is being filled in a chunk that nobody holds");
    } else if ((state == HF_STATE_FILLING || state == HF_STATE_PENDING) && !hf_owner_alive(seg, holder)) {
        (void)wrong(j, HF_FSCK_DEAD, "a dead process was making a reservation here: the daemon undoes it");
    }
}

static void check_reservation(const struct judged *j)
{
    check_path(j);
    check_windows(j);
    check_amounts(j);
    check_id(j);
    check_flags(j);
    check_names(j);
    check_persisted(j);
    check_claim(j);
    check_linked(j);
}

static void check_slot(struct hf_fsck *fsck, uint32_t slot_idx)
{
    struct hf_shm_slot copy;
    struct judged j = {.fsck = fsck, .seg = fsck->seg, .slot_idx = slot_idx, .slot = &copy};
    struct hf_u128 quick = {.lo = hf_load_acq_u64(&fsck->seg->slots[slot_idx].slot_st.lo)}; /* E13 acquire */

    /* By far the most: nothing else is to be said of it. */
    if (quick.lo == 0 || !hf_fsck_copy_slot(fsck->seg, slot_idx, &j.st, &copy)) {
        return;
    }
    enum hf_state state = hf_st_state(j.st);

    fsck->result->slots_checked++;
    if (!state_known(state) || (j.st.lo & 0xfU) != 0 || hf_st_time_ms(j.st) > HF_CLOCK_MS_MAX) {
        hf_fsck_numbers(wrong(&j, HF_FSCK_SLOT_STATE, "its state is none that can be"), HF_STATE_CREDIT,
                        state);
        return;
    }
    switch (state) {
    case HF_STATE_FREE:
    case HF_STATE_FILLING:
    case HF_STATE_PENDING:
    case HF_STATE_ABANDONED:
        check_making(&j);
        break;
    case HF_STATE_CREDIT:
        check_credit(&j);
        break;
    default:
        check_reservation(&j);
        break;
    }
}

/* ---- chunks --------------------------------------------------------------------------------------------------------- */

static uint64_t free_in_truth(const struct hf_segment *seg, uint32_t chunk_idx)
{
    uint64_t bits = 0;

    for (uint32_t i = 0; i < seg->chunk_slots; i++) {
        struct hf_u128 st = {
            .lo = hf_load_acq_u64(
                &seg->slots[(chunk_idx << seg->chunk_shift) + i].slot_st.lo)}; /* E6 acquire */

        bits |= (uint64_t)(hf_st_state(st) == HF_STATE_FREE) << i;
    }
    return bits;
}

static void of_chunk(struct hf_fsck_item *item, uint32_t chunk_idx, uint64_t sig0, uint64_t sig1)
{
    if (item != NULL) {
        item->chunk = chunk_idx;
        item->sig[0] = sig0;
        item->sig[1] = sig1;
    }
}

static bool ref_known(const struct hf_segment *seg, uint64_t ref)
{
    return ref == 0 || (hf_ref_index(ref) < seg->owners_cnt &&
                        hf_ref_epoch(ref) <=
                            hf_load_acq_u64(&seg->owners[hf_ref_index(ref)].own_last_epoch)); /* E7 acquire */
}

static void check_chunk(struct hf_fsck *fsck, uint32_t chunk_idx)
{
    const struct hf_segment *seg = fsck->seg;
    const struct hf_shm_chunk *chunk = &seg->chunks[chunk_idx];
    uint64_t owner = hf_load_acq_u64(&chunk->chunk_owner); /* E5 acquire -> claim */
    uint64_t home = hf_load_rlx_u64(&chunk->chunk_home);
    uint64_t bits = hf_load_acq_u64(&chunk->chunk_free); /* E6 acquire -> hf_chunk_freed */
    uint64_t all = hf_chunk_all(seg);

    if (!ref_known(seg, owner) || !ref_known(seg, home)) {
        struct hf_fsck_item *item =
            hf_fsck_add(fsck, HF_FSCK_CHUNK, "the chunk belongs to a process that never was");

        hf_fsck_numbers(item, 0, ref_known(seg, owner) ? home : owner);
        of_chunk(item, chunk_idx, owner, home);
    } else if (owner != 0 && !hf_owner_alive(seg, owner)) {
        of_chunk(hf_fsck_add(fsck, HF_FSCK_DEAD, "a dead process holds the chunk: the daemon returns it"),
                 chunk_idx, owner, 0);
    }
    uint64_t marks = hf_chunk_marks(seg, chunk_idx);
    if (((bits | marks) & ~all) != 0) {
        struct hf_fsck_item *item =
            hf_fsck_add(fsck, HF_FSCK_CHUNK, "bits are set of slots that the chunk does not have");

        hf_fsck_numbers(item, all, bits | marks);
        of_chunk(item, chunk_idx, bits & ~all, 1);
    }
    uint64_t truth = free_in_truth(seg, chunk_idx);

    /* A hint too many is found out by st, one too few is a slot that waits for the daemon: notes. */
    if ((bits & all & ~truth) != 0 || (owner == 0 && (truth & ~bits) != 0)) {
        struct hf_fsck_item *item = hf_fsck_add(
            fsck, HF_FSCK_FREE_BITS,
            "hints of free slots are wrong: %d too many, %d too few; they do no harm",
            __builtin_popcountll(bits & all & ~truth), owner == 0 ? __builtin_popcountll(truth & ~bits) : 0);

        hf_fsck_numbers(item, truth, bits);
        of_chunk(item, chunk_idx, bits, truth);
    }
}

void hf_fsck_check_slots(struct hf_fsck *fsck)
{
    fsck->result->slots_checked = 0;
    for (uint32_t i = 0; i < fsck->seg->slots_cnt; i++) {
        if (i + 8 < fsck->seg->slots_cnt) {
            __builtin_prefetch(&fsck->seg->slots[i + 8].slot_st);
        }
        check_slot(fsck, i);
    }
    for (uint32_t i = 0; i < fsck->seg->chunks_cnt; i++) {
        check_chunk(fsck, i);
    }
}
