/* Words and places for people. */
#include "core/fsck.h"

#include "core/lookup.h"
#include "core/slot.h"
#include "core/terms.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static const char *const names[HF_FSCK_KIND_CNT] = {
    [HF_FSCK_HEADER] = "header",
    [HF_FSCK_CLOCK] = "clock",
    [HF_FSCK_OWNER] = "owner",
    [HF_FSCK_DAEMON] = "daemon",
    [HF_FSCK_POLICY] = "policy",
    [HF_FSCK_LOOKUP] = "lookup",
    [HF_FSCK_NAME] = "name",
    [HF_FSCK_PRICE] = "price",
    [HF_FSCK_TENANT] = "tenant",
    [HF_FSCK_WORD] = "word",
    [HF_FSCK_APPLIED] = "applied",
    [HF_FSCK_ROW] = "row",
    [HF_FSCK_BUCKET_TAG] = "bucket-tag",
    [HF_FSCK_BUCKET_WINDOW] = "bucket-window",
    [HF_FSCK_BUCKET_VALUE] = "bucket-value",
    [HF_FSCK_CREDIT] = "credit",
    [HF_FSCK_PUBLISHED] = "published",
    [HF_FSCK_METER] = "meter",
    [HF_FSCK_BATCH] = "batch",
    [HF_FSCK_CHUNK] = "chunk",
    [HF_FSCK_FREE_BITS] = "free-bits",
    [HF_FSCK_SLOT_STATE] = "slot-state",
    [HF_FSCK_SLOT_SEQ] = "slot-seq",
    [HF_FSCK_SLOT_PATH] = "slot-path",
    [HF_FSCK_SLOT_WINDOWS] = "slot-windows",
    [HF_FSCK_SLOT_AMOUNT] = "slot-amount",
    [HF_FSCK_SLOT_ID] = "slot-id",
    [HF_FSCK_SLOT_FLAGS] = "slot-flags",
    [HF_FSCK_SLOT_NAMES] = "slot-names",
    [HF_FSCK_SLOT_PERSISTED] = "slot-persisted",
    [HF_FSCK_SLOT_CLAIM] = "slot-claim",
    [HF_FSCK_INDEX_LINK] = "index-link",
    [HF_FSCK_INDEX_RING] = "index-ring",
    [HF_FSCK_INDEX_FOREIGN] = "index-foreign",
    [HF_FSCK_INDEX_MISSING] = "index-missing",
    [HF_FSCK_INDEX_TWICE] = "index-twice",
    [HF_FSCK_DEAD] = "dead",
    [HF_FSCK_NOT_CHECKED] = "not-checked",
};

const char *hf_fsck_kind_name(enum hf_fsck_kind kind)
{
    return (unsigned)kind < HF_FSCK_KIND_CNT ? names[kind] : "?";
}

const char *hf_fsck_severity_name(enum hf_fsck_severity severity)
{
    switch (severity) {
    case HF_FSCK_NOTE:
        return "note";
    case HF_FSCK_DAMAGE:
        return "damage";
    case HF_FSCK_MENDED:
        return "mended";
    }
    return "?";
}

/* A text that grows; what does not fit is left out. */
struct text {
    char *at;
    size_t left;
};

static void put(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *text, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int cnt = vsnprintf(text->at, text->left, format, args);
    va_end(args);
    if (cnt > 0) {
        size_t used = (size_t)cnt < text->left ? (size_t)cnt : text->left > 0 ? text->left - 1 : 0;

        text->at += used;
        text->left -= used;
    }
}

/* Of a damaged id the bytes that can be printed. */
static void make_printable(char *id)
{
    for (; *id != '\0'; id++) {
        *id = (unsigned char)*id < 0x20 || *id == 0x7f ? '?' : *id;
    }
}

static void name_of_row(const struct hf_segment *seg, uint32_t row, char name[64])
{
    name[0] = '\0';
    if (row < seg->rows_cnt) {
        (void)hf_lookup_name(seg, seg->rows[row].row_name, name); /* plain: read-only once published */
    }
}

static void put_row(struct text *text, const struct hf_segment *seg, uint32_t row)
{
    static const char *const layers[] = {"key", "team", "tenant"};
    uint32_t layer = seg->rows[row].row_layer; /* plain: read-only once published; as below */
    char own[64];
    char above[64] = "";
    char top[64] = "";

    name_of_row(seg, row, own);
    if (layer <= 1) {
        name_of_row(seg, seg->rows[row].row_parent, above);
    }
    if (layer == 0 && seg->rows[row].row_parent < seg->rows_cnt) {
        name_of_row(seg, seg->rows[seg->rows[row].row_parent].row_parent, top);
    }
    put(text, "%s %s%s%s%s%s (row %" PRIu32 ")", layer < 3 ? layers[layer] : "row", top, *top ? "/" : "",
        above, *above ? "/" : "", own, row);
}

static void put_slot(struct text *text, const struct hf_segment *seg, uint32_t slot_idx)
{
    const struct hf_shm_slot *slot = &seg->slots[slot_idx];
    char id[64];

    /* relaxed: for people; the slot may be another reservation's by now. */
    (void)hf_slot_load_text(slot->slot_id, hf_load_rlx_u8(&slot->slot_id_bytes), id);
    make_printable(id);
    put(text, "slot %" PRIu32 " (%s)", slot_idx, id);
}

static void put_index(struct text *text, const struct hf_fsck_item *item)
{
    const char *what = item->kind == HF_FSCK_OWNER || item->kind == HF_FSCK_DEAD ? "owner"
                       : item->kind == HF_FSCK_NAME                              ? "name"
                       : item->kind == HF_FSCK_PRICE                             ? "price"
                       : item->kind == HF_FSCK_METER                             ? "meter"
                       : item->kind == HF_FSCK_BATCH                             ? "descriptor"
                       : item->kind == HF_FSCK_LOOKUP                            ? "entry"
                       : item->kind == HF_FSCK_POLICY                            ? "row"
                                                                                 : "head";
    put(text, "%s %" PRIu32, what, item->idx);
}

const char *hf_fsck_where(const struct hf_segment *seg, const struct hf_fsck_item *item, char *buffer,
                          size_t buffer_bytes)
{
    struct text text = {buffer, buffer_bytes};
    const char *comma = "";
    char name[64];

    if (buffer_bytes > 0) {
        *buffer = '\0';
    }
    if (item->row < seg->rows_cnt) {
        put_row(&text, seg, item->row);
        comma = ", ";
    } else if (item->tenant < seg->tenants_cnt) {
        /* plain: read-only once published. */
        (void)hf_lookup_name(seg, seg->tenants[item->tenant].ten_name, name);
        put(&text, "tenant %s (%" PRIu32 ")", name, item->tenant);
        comma = ", ";
    }
    if (item->window != HF_SHM_NONE) {
        put(&text, "%s%s", comma, hf_window_name((enum hf_window)item->window));
        if (item->window_id != HF_SHM_NONE) {
            put(&text, " %" PRIu32, item->window_id);
        }
        comma = " ";
    }
    if (item->dimension != HF_SHM_NONE) {
        put(&text, "%s%s", comma, hf_dimension_name((enum hf_dimension)item->dimension));
        comma = ", ";
    }
    if (item->slot < seg->slots_cnt) {
        put(&text, "%s", *comma == ' ' ? ", " : comma);
        put_slot(&text, seg, item->slot);
        comma = ", ";
    }
    if (item->chunk != HF_SHM_NONE) {
        put(&text, "%schunk %" PRIu32, comma, item->chunk);
        comma = ", ";
    }
    if (item->idx != HF_SHM_NONE) {
        put(&text, "%s", comma);
        put_index(&text, item);
    }
    return buffer;
}
