/* The bytes of the segment: no holes, words packed without overlap, and shm/README.md says the same. */
#include "shm/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifndef HF_TEST_SOURCE
#define HF_TEST_SOURCE "."
#endif

static char header_text[1 << 17];

/* How many records shm/layout.h declares. */
static uint32_t records_of_the_header(void)
{
    FILE *file = fopen(HF_TEST_SOURCE "/shm/layout.h", "re");
    uint32_t records = 0;

    assert_non_null(file);
    assert_true(fread(header_text, 1, sizeof header_text - 1, file) > 0);
    assert_int_equal(fclose(file), 0);
    for (const char *at = header_text; (at = strstr(at, "\nstruct hf_shm_")) != NULL; at++) {
        at += strlen("\nstruct hf_shm_");
        records += strncmp(at + strcspn(at, " \n"), " {", 2) == 0;
    }
    return records;
}

/* Every byte of every record belongs to a field that is listed: a field that layout.c forgets leaves a hole. */
static void fields_cover_their_records(void **state)
{
    struct hf_layout_entry entry;
    uint32_t records = 0;
    uint32_t end = 0;  /* of the fields so far */
    uint32_t size = 0; /* of the record */

    (void)state;
    for (uint32_t i = 0; hf_layout_entry(i, &entry); i++) {
        if (entry.field[0] == 0) {
            if (end != size)
                fail_msg("%u of %u bytes before %s are listed", end, size, entry.record);
            size = entry.size_bytes;
            end = 0;
            records++;
            continue;
        }
        if (entry.off != end)
            fail_msg("%s.%s is at %u, the field before ends at %u", entry.record, entry.field, entry.off,
                     end);
        end += entry.size_bytes;
    }
    assert_int_equal(end, size);
    assert_int_equal(records, records_of_the_header());
    assert_false(hf_layout_entry(UINT32_MAX, &entry));
}

static void hot_words_have_their_lines(void **state)
{
    (void)state;
    assert_int_equal(offsetof(struct hf_shm_header, hdr_state), 128);
    assert_int_equal(offsetof(struct hf_shm_header, clk_seq), 192);
    assert_int_equal(offsetof(struct hf_shm_header, clk_elapsed_off_ms) + 8, 256);
    assert_int_equal(offsetof(struct hf_shm_header, clk_injected_ms), 256);
    assert_int_equal(offsetof(struct hf_shm_header, wake_word), 320);
    assert_int_equal(offsetof(struct hf_shm_header, hdr_alarms), 384);
    assert_int_equal(offsetof(struct hf_shm_tenant, ten_word), 0);
    assert_int_equal(offsetof(struct hf_shm_tenant, ten_applied), 16);
    assert_int_equal(offsetof(struct hf_shm_chunk, chunk_dirty), 64);
    assert_int_equal(offsetof(struct hf_shm_slot, slot_st), 0);
    assert_int_equal(offsetof(struct hf_shm_slot, slot_id) % 8, 0);
    assert_int_equal(offsetof(struct hf_shm_row, row_buckets) % 64, 0);
    assert_int_equal(sizeof(((struct hf_shm_row *)NULL)->row_buckets[0]), 64);
    assert_true(HF_ALARM_CNT <= HF_SHM_ALARMS);
    assert_true(HF_REGION_CNT <= 16);
}

static void fingerprint_is_one_number(void **state)
{
    (void)state;
    assert_true(hf_layout_fingerprint() != 0);
    assert_int_equal(hf_layout_fingerprint(), hf_layout_fingerprint());
}

/* ---- packed words ---------------------------------------------------------------------------------------- */

/* Each field alone at its largest: it comes back whole, and the others stay 0. */
static void commit_words_keep_their_fields_apart(void **state)
{
    (void)state;
    for (int one = 0; one < 4; one++) {
        uint64_t seq = one == 0 ? HF_SHM_SEQ_MAX : 0;
        uint32_t kind = one == 1 ? 0x3fU : 0;
        uint32_t slot = one == 2 ? HF_SHM_SLOTS_MAX - 1 : 0;
        uint64_t time = one == 3 ? (1ULL << 44) - 1 : 0;
        struct hf_u128 w = hf_word_make(seq, (enum hf_kind)kind, slot, time);

        assert_int_equal(hf_word_seq(w), seq);
        assert_int_equal(hf_word_kind(w), kind);
        assert_int_equal(hf_word_slot(w), slot);
        assert_int_equal(hf_word_time_ms(w), time);
    }
}

static void slot_states_keep_their_fields_apart(void **state)
{
    (void)state;
    for (int one = 0; one < 5; one++) {
        uint64_t seq = one == 0 ? HF_SHM_SEQ_MAX : 0;
        uint32_t ordinal = one == 1 ? 0x7ffU : 0;
        uint32_t state_no = one == 2 ? 0x1fU : 0;
        uint64_t time = one == 3 ? (1ULL << 44) - 1 : 0;
        uint32_t gen = one == 4 ? 0xfffffU : 0;
        struct hf_u128 st = hf_st_make(seq, ordinal, (enum hf_state)state_no, time, gen);

        assert_int_equal(hf_st_seq(st), seq);
        assert_int_equal(hf_st_ordinal(st), ordinal);
        assert_int_equal((uint32_t)hf_st_state(st), state_no);
        assert_int_equal(hf_st_time_ms(st), time);
        assert_int_equal(hf_st_gen(st), gen);
    }
    /* Ordinal and generation wrap within their fields. */
    struct hf_u128 st = hf_st_make(1, 0x800U, HF_STATE_HELD, 1, 0x100000U);
    assert_int_equal(hf_st_ordinal(st), 0);
    assert_int_equal(hf_st_gen(st), 0);
    assert_int_equal(hf_st_seq(st), 1);
    assert_int_equal(hf_st_time_ms(st), 1);
    assert_true(HF_STATE_CNT <= 32 && HF_KIND_CNT <= 64);
}

static void buckets_keep_their_fields_apart(void **state)
{
    (void)state;
    for (int one = 0; one < 3; one++) {
        uint64_t value = one == 0 ? HF_SHM_AMOUNT_MAX : 0;
        uint32_t window = one == 1 ? (1U << 28) - 1 : 0;
        uint64_t tag = one == 2 ? HF_SHM_SEQ_MAX : 0;
        struct hf_u128 b = hf_bucket_make(value, window, tag);

        assert_int_equal(hf_bucket_value(b), value);
        assert_int_equal(hf_bucket_window(b), window);
        assert_int_equal(hf_bucket_tag(b), tag);
    }
    /* The tag is whole in the high half: the low half may change without it. */
    assert_int_equal(hf_bucket_make(HF_SHM_AMOUNT_MAX, 0xff, 0).hi, 0);
}

static void links_marks_and_references_keep_their_fields_apart(void **state)
{
    (void)state;
    for (int one = 0; one < 3; one++) {
        uint32_t first = one == 0 ? 0xffffffU : 0;
        uint32_t second = one == 1 ? 0xfffffU : 0;
        uint32_t third = one == 2 ? 0xffU : 0;
        uint64_t link = hf_link_make(first, second, third);

        assert_int_equal(hf_link_slot(link), first);
        assert_int_equal(hf_link_gen(link), second);
        assert_int_equal(hf_link_count(link), third);
        /* What a last link says stands apart from all of these. */
        uint64_t last = hf_link_last(link, 0xffffffffU);
        assert_int_equal(last ^ link, 0xfffU);
        assert_int_equal(hf_link_last(link, 0x1fffffU) ^ link, HF_LINK_LAST);
        assert_int_equal(hf_link_inner(last), hf_link_last(hf_link_make(first, second, 0), 0xffffffffU));
        /* What is put over it is the last one where it names no slot, and counts on. */
        uint64_t over = hf_link_make(7, 3, third + 1U);
        assert_int_equal(hf_link_over(link, 7, 3, 0x9a000000U),
                         first == 0 ? hf_link_last(over, 0x9a000000U) : over);
        assert_int_equal(hf_link_over(last, 7, 3, 0), first == 0 ? hf_link_last(over, 0) : over);
    }
    for (int one = 0; one < 3; one++) {
        uint32_t gen = one == 0 ? 0xfffffU : 0;
        uint32_t ordinal = one == 1 ? 0x7ffU : 0;
        uint32_t receipts = one == 2 ? UINT32_MAX : 0;
        uint64_t persisted = hf_persisted_make(gen, ordinal, receipts);

        assert_int_equal(hf_persisted_gen(persisted), gen);
        assert_int_equal(hf_persisted_ordinal(persisted), ordinal);
        assert_int_equal(hf_persisted_receipts(persisted), receipts);
    }
    uint64_t ref = hf_ref_make(0xffffU, 0);
    assert_int_equal(hf_ref_index(ref), 0xffffU);
    assert_int_equal(hf_ref_epoch(ref), 0);
    ref = hf_ref_make(0, UINT64_MAX);
    assert_int_equal(hf_ref_index(ref), 0);
    assert_int_equal(hf_ref_epoch(ref), (1ULL << 48) - 1);
    assert_int_equal(hf_link_count(hf_link_make(0, 0, 0x100U)), 0); /* a count wraps */
    assert_int_equal(hf_link_gen(hf_link_make(0, 0, 0x100U)), 0);
}

/* ---- the table for people -------------------------------------------------------------------------------- */

#define WIDTH 110U

static void add(char *text, size_t room, const char *piece)
{
    size_t used = strlen(text);

    assert_true(used + strlen(piece) < room);
    memcpy(text + used, piece, strlen(piece) + 1U);
}

/* The table as it should stand in the README: a record with its size, then its fields as name offset+size. */
static void make_table(char *text, size_t room)
{
    struct hf_layout_entry entry;
    char piece[128];
    size_t column = 0;
    bool first = true;

    text[0] = 0;
    for (uint32_t i = 0; hf_layout_entry(i, &entry); i++) {
        if (entry.field[0] == 0) {
            (void)snprintf(piece, sizeof piece, "%s%s %u:", i == 0 ? "" : "\n\n", entry.record,
                           entry.size_bytes);
            add(text, room, piece);
            column = strlen(entry.record) + 6U;
            first = true;
            continue;
        }
        (void)snprintf(piece, sizeof piece, "%s %s %u+%u", first ? "" : ",", entry.field, entry.off,
                       entry.size_bytes);
        if (column + strlen(piece) > WIDTH) {
            (void)snprintf(piece, sizeof piece, "%s\n    %s %u+%u", first ? "" : ",", entry.field, entry.off,
                           entry.size_bytes);
            column = 3;
        }
        add(text, room, piece);
        column += strlen(piece);
        first = false;
    }
    add(text, room, "\n");
}

static void the_readme_says_the_same(void **state)
{
    static char readme[1 << 17];
    static char table[1 << 15];
    FILE *file = fopen(HF_TEST_SOURCE "/shm/README.md", "re");

    (void)state;
    assert_non_null(file);
    size_t cnt = fread(readme, 1, sizeof readme - 1, file);
    assert_int_equal(fclose(file), 0);
    assert_true(cnt < sizeof readme - 1);
    make_table(table, sizeof table);
    if (strstr(readme, table) == NULL) {
        (void)fprintf(stderr, "%s", table); /* more than cmocka prints in one go */
        fail_msg("shm/README.md does not state the layout; its table should be the one above");
    }
}

/* Each state, kind and alarm by its name in the README. */
static void the_readme_has_every_alarm(void **state)
{
    static char readme[1 << 17];
    FILE *file = fopen(HF_TEST_SOURCE "/shm/README.md", "re");
    int alarms = 0;

    (void)state;
    assert_non_null(file);
    assert_true(fread(readme, 1, sizeof readme - 1, file) > 0);
    assert_int_equal(fclose(file), 0);
    assert_true(records_of_the_header() > 0);
    const char *at = strstr(header_text, "enum hf_alarm {");
    assert_non_null(at);
    while ((at = strstr(at, "HF_ALARM_")) != NULL && strncmp(at, "HF_ALARM_CNT", 12) != 0) {
        char row[64];
        size_t cnt = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");

        (void)snprintf(row, sizeof row, "| `%.*s` |", (int)cnt, at);
        if (strstr(readme, row) == NULL)
            fail_msg("shm/README.md has no row %s", row);
        at += cnt;
        alarms++;
    }
    assert_int_equal(alarms, HF_ALARM_CNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_cover_their_records),
        cmocka_unit_test(hot_words_have_their_lines),
        cmocka_unit_test(fingerprint_is_one_number),
        cmocka_unit_test(commit_words_keep_their_fields_apart),
        cmocka_unit_test(slot_states_keep_their_fields_apart),
        cmocka_unit_test(buckets_keep_their_fields_apart),
        cmocka_unit_test(links_marks_and_references_keep_their_fields_apart),
        cmocka_unit_test(the_readme_says_the_same),
        cmocka_unit_test(the_readme_has_every_alarm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
