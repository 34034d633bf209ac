/* The one table of a receipt's fields, and what is made of it: values, texts, reservations put together. */
#include "persist/receipt.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct words {
    const char *const *list;
    unsigned cnt;
};

static const char *const kind_words[HF_RECEIPT_KIND_CNT] = {
    "epoch",  "policy",    "reservation", "extension",       "settlement", "release",
    "expiry", "retention", "dispute",     "late_settlement", "resolution", "credit",
};
static const char *const admission_words[] = {"allow", "degrade"};
static const char *const form_words[] = {"model", "amounts"};
static const char *const outcome_words[] = {"success", "failure"};
static const char *const cost_source_words[] = {"provider", "derived", "unknown"};
static const char *const on_expiry_words[] = {"release", "retain", "retain_dispatched"};
static const char *const on_overage_words[] = {"record", "fail"};
static const char *const basis_words[] = {"estimate", "cap"};
static const char *const window_words[] = {"minute", "hour", "day", "month", "lifetime"};
static const char *const layer_words[] = {"key", "team", "tenant"};
static const char *const dimension_words[] = {"invocations", "tokens", "cost_micros"};

#define WORDS(list)                                          \
    {                                                        \
        (list), (unsigned)(sizeof(list) / sizeof((list)[0])) \
    }
static const struct words all_words[] = {
    WORDS(admission_words), WORDS(form_words),        WORDS(on_expiry_words), WORDS(on_overage_words),
    WORDS(basis_words),     WORDS(cost_source_words), WORDS(outcome_words),   WORDS(window_words),
};
enum {
    W_ADMISSION,
    W_FORM,
    W_ON_EXPIRY,
    W_ON_OVERAGE,
    W_BASIS,
    W_COST_SOURCE,
    W_OUTCOME,
    W_WINDOW
};

struct entry {
    struct hf_field field;
    size_t off;
    unsigned words; /* index into all_words */
};

#define FIELD(member, kind)                                                                     \
    {                                                                                           \
        {#member, HF_FIELD_##kind, sizeof(#member) - 1}, offsetof(struct hf_receipt, member), 0 \
    }
#define WORD(member, which)                                                                       \
    {                                                                                             \
        {#member, HF_FIELD_WORD, sizeof(#member) - 1}, offsetof(struct hf_receipt, member), which \
    }

#define AT_KIND    0
#define AT_VERSION 1

/* Order: that of columns and canonical text. Append before `digest`, with a new version of the kinds that use the new field. */
static const struct entry entries[] = {
    FIELD(kind, WORD),
    FIELD(version, NUMBER),
    FIELD(epoch, NUMBER),
    FIELD(seq, NUMBER),
    FIELD(made_ms, NUMBER),
    FIELD(window_ms, NUMBER),
    FIELD(expires_at_ms, NUMBER),
    FIELD(reservation_seq, NUMBER),
    FIELD(held_invocations, SIGNED),
    FIELD(held_tokens, SIGNED),
    FIELD(held_cost_micros, SIGNED),
    FIELD(charged_invocations, SIGNED),
    FIELD(charged_tokens, SIGNED),
    FIELD(charged_cost_micros, SIGNED),
    FIELD(bucket_mask, NUMBER),
    FIELD(hold_tokens, NUMBER),
    FIELD(hold_cost_micros, NUMBER),
    FIELD(extend_calls, NUMBER),
    FIELD(input_tokens, NUMBER),
    FIELD(max_output_tokens, NUMBER),
    FIELD(requested_tokens, NUMBER),
    FIELD(requested_cost_micros, NUMBER),
    FIELD(economy_tokens, NUMBER),
    FIELD(economy_cost_micros, NUMBER),
    FIELD(requested_ttl_ms, NUMBER),
    FIELD(input_micros_per_mtok, NUMBER),
    FIELD(output_micros_per_mtok, NUMBER),
    FIELD(cached_input_micros_per_mtok, NUMBER),
    FIELD(cache_write_input_micros_per_mtok, NUMBER),
    FIELD(model_max_output_tokens, NUMBER),
    FIELD(usage_input_tokens, NUMBER),
    FIELD(usage_output_tokens, NUMBER),
    FIELD(usage_cached_input_tokens, NUMBER),
    FIELD(usage_cache_write_input_tokens, NUMBER),
    FIELD(usage_cost_micros, NUMBER),
    FIELD(actual_tokens, NUMBER),
    FIELD(actual_cost_micros, NUMBER),
    FIELD(released_tokens, NUMBER),
    FIELD(released_cost_micros, NUMBER),
    FIELD(overage_tokens, NUMBER),
    FIELD(overage_cost_micros, NUMBER),
    FIELD(policy_revision, NUMBER),
    FIELD(credit_micros, SIGNED),
    FIELD(credit_before_micros, NUMBER),
    FIELD(credit_after_micros, NUMBER),
    FIELD(gap_from_ms, NUMBER),
    FIELD(gap_until_ms, NUMBER),
    FIELD(conflict, FLAG),
    FIELD(dispatched, TRI),
    FIELD(usage_known, TRI),
    FIELD(quota_exceeded, TRI),
    FIELD(late, TRI),
    WORD(admission, W_ADMISSION),
    WORD(form, W_FORM),
    WORD(on_expiry, W_ON_EXPIRY),
    WORD(on_overage, W_ON_OVERAGE),
    WORD(basis, W_BASIS),
    WORD(cost_source, W_COST_SOURCE),
    WORD(outcome, W_OUTCOME),
    WORD(credit_window, W_WINDOW),
    FIELD(id, NAME),
    FIELD(tenant, NAME),
    FIELD(team, NAME),
    FIELD(key, NAME),
    FIELD(capability, NAME),
    FIELD(model, NAME),
    FIELD(model_asked, NAME),
    FIELD(economy_model, NAME),
    FIELD(price_revision, NAME),
    FIELD(currency, NAME),
    FIELD(ref, NAME),
    FIELD(made_by, NAME),
    FIELD(reason, TEXT),
    FIELD(details, TEXT),
    {{"buckets", HF_FIELD_BUCKETS, sizeof("buckets") - 1}, 0, 0},
    FIELD(reservation_digest, DIGEST),
    FIELD(digest, DIGEST),
};
#define ENTRIES (sizeof(entries) / sizeof(entries[0]))

void hf_receipt_init(struct hf_receipt *receipt, enum hf_receipt_kind kind)
{
    memset(receipt, 0, sizeof(*receipt));
    for (size_t i = 0; i < ENTRIES; i++) {
        char *at = (char *)receipt + entries[i].off;

        switch (entries[i].field.type) {
        case HF_FIELD_NUMBER:
            if (i != AT_VERSION) {
                *(uint64_t *)(void *)at = HF_UNKNOWN;
            }
            break;
        case HF_FIELD_TRI:
            *(int8_t *)at = -1;
            break;
        case HF_FIELD_WORD:
            if (i != AT_KIND) {
                *(int8_t *)at = -1;
            }
            break;
        default:
            break;
        }
    }
    receipt->kind = kind;
    receipt->version = 1;
    receipt->credit_micros = HF_RECEIPT_SIGNED_NULL;
    if (hf_receipt_in_family(kind)) {
        receipt->bucket_mask = 0;
    }
}

const char *hf_receipt_kind_name(enum hf_receipt_kind kind)
{
    return (unsigned)kind < HF_RECEIPT_KIND_CNT ? kind_words[kind] : "?";
}

/* ---- the column of buckets ------------------------------------------------------------------------------------ */

static char *put_text(char *at, const char *text)
{
    size_t len = strlen(text);

    memcpy(at, text, len);
    return at + len;
}

static char *put_number(char *at, uint64_t number)
{
    char digits[20];
    size_t cnt = 0;

    do {
        digits[cnt++] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    while (cnt > 0) {
        *at++ = digits[--cnt];
    }
    return at;
}

/* A bucket's longest text: "tenant/lifetime/invocations=" and three numbers of 20 digits with their signs, 45 of them. */
_Static_assert(HF_RECEIPT_BUCKETS_MAX *(28 + 3 * 20 + 3) < HF_RECEIPT_BUCKETS_BYTES + 1,
               "the longest list of buckets fits");

size_t hf_receipt_buckets_format(const struct hf_receipt *receipt, char text[HF_RECEIPT_BUCKETS_BYTES])
{
    char *at = text;

    for (unsigned bit = 0; bit < HF_RECEIPT_BUCKETS_MAX; bit++) {
        unsigned dimension = bit % HF_DIM_CNT;
        unsigned window = bit / HF_DIM_CNT % HF_WINDOW_CNT;
        unsigned layer = bit / HF_DIM_CNT / HF_WINDOW_CNT;
        uint64_t credit = layer == 1 && dimension == HF_DIM_COST ? receipt->credits[window] : 0;
        uint64_t amount = dimension == HF_DIM_INVOCATIONS ? 1
                          : dimension == HF_DIM_TOKENS    ? receipt->hold_tokens
                                                          : receipt->hold_cost_micros;

        if (receipt->bucket_mask == HF_UNKNOWN || (receipt->bucket_mask >> bit & 1) == 0) {
            continue;
        }
        at = at == text ? at : put_text(at, ";");
        at = put_text(at, layer_words[layer]);
        at = put_text(at, "/");
        at = put_text(at, window_words[window]);
        at = put_text(at, "/");
        at = put_text(at, dimension_words[dimension]);
        at = put_text(at, "=");
        at = put_number(at, receipt->limits[bit]);
        at = put_text(at, "+");
        at = put_number(at, credit);
        at = put_text(at, ":");
        at = put_number(at, amount == HF_UNKNOWN ? 0 : amount);
    }
    *at = '\0';
    return (size_t)(at - text);
}

/* Takes one of the words and the byte after it off *text. -1: none of them stands there. */
static int take_word(const char **text, const char *end, const char *const *words, unsigned cnt, char after)
{
    for (unsigned i = 0; i < cnt; i++) {
        size_t len = strlen(words[i]);

        if ((size_t)(end - *text) > len && memcmp(*text, words[i], len) == 0 && (*text)[len] == after) {
            *text += len + 1;
            return (int)i;
        }
    }
    return -1;
}

/* Takes a decimal number and the byte after it (0: the end, or ';' which is taken too) off *text. */
static bool take_number(const char **text, const char *end, char after, uint64_t *number)
{
    uint64_t value = 0;
    const char *at = *text;

    while (at < end && *at >= '0' && *at <= '9') {
        if (value > (UINT64_MAX - 9) / 10) {
            return false;
        }
        value = value * 10 + (uint64_t)(*at - '0');
        at++;
    }
    if (at == *text) {
        return false;
    }
    if (after == '\0') {
        if (at < end && *at++ != ';') {
            return false;
        }
    } else if (at == end || *at++ != after) {
        return false;
    }
    *text = at;
    *number = value;
    return true;
}

bool hf_receipt_buckets_parse(const char *text, size_t len, struct hf_receipt *receipt)
{
    const char *end = text + len;

    while (text < end) {
        int layer = take_word(&text, end, layer_words, 3, '/');
        int window = layer < 0 ? -1 : take_word(&text, end, window_words, HF_WINDOW_CNT, '/');
        int dimension = window < 0 ? -1 : take_word(&text, end, dimension_words, HF_DIM_CNT, '=');
        uint64_t limit;
        uint64_t credit;
        uint64_t amount;

        if (dimension < 0 || !take_number(&text, end, '+', &limit) ||
            !take_number(&text, end, ':', &credit) || !take_number(&text, end, '\0', &amount)) {
            return false;
        }
        receipt->limits[(layer * HF_WINDOW_CNT + window) * HF_DIM_CNT + dimension] = limit;
        if (layer == 1 && dimension == HF_DIM_COST) {
            receipt->credits[window] = credit;
        }
    }
    return true;
}

/* ---- fields --------------------------------------------------------------------------------------------------- */

size_t hf_receipt_fields(void)
{
    return ENTRIES;
}

const struct hf_field *hf_receipt_field(size_t i)
{
    return &entries[i].field;
}

static bool all_zero(const uint8_t *bytes, size_t len)
{
    uint8_t any = 0;

    for (size_t i = 0; i < len; i++) {
        any |= bytes[i];
    }
    return any == 0;
}

static void get_word(const struct hf_receipt *receipt, size_t i, struct hf_field_value *value)
{
    const struct words *words = &all_words[entries[i].words];
    int8_t word = *((const int8_t *)receipt + entries[i].off);

    if (i == AT_KIND) {
        value->bytes = hf_receipt_kind_name(receipt->kind);
    } else if (word < 0) {
        value->null = true;
        return;
    } else {
        value->bytes = (unsigned)word < words->cnt ? words->list[word] : "?";
    }
    value->len = strlen(value->bytes);
}

void hf_receipt_get(const struct hf_receipt *receipt, size_t i, struct hf_field_value *value,
                    char scratch[HF_RECEIPT_BUCKETS_BYTES])
{
    const void *at = (const char *)receipt + entries[i].off;

    value->null = false;
    switch (entries[i].field.type) {
    case HF_FIELD_NUMBER:
        value->number = i == AT_VERSION ? receipt->version : *(const uint64_t *)at;
        value->null = value->number == HF_UNKNOWN;
        break;
    case HF_FIELD_SIGNED:
        value->integer = *(const int64_t *)at;
        value->null = value->integer == HF_RECEIPT_SIGNED_NULL;
        break;
    case HF_FIELD_FLAG:
        value->flag = *(const bool *)at;
        break;
    case HF_FIELD_TRI:
        value->null = *(const int8_t *)at < 0;
        value->flag = *(const int8_t *)at > 0;
        break;
    case HF_FIELD_WORD:
        get_word(receipt, i, value);
        break;
    case HF_FIELD_NAME:
        value->bytes = ((const struct hf_name *)at)->bytes;
        value->len = ((const struct hf_name *)at)->len;
        value->null = value->len == 0;
        break;
    case HF_FIELD_TEXT:
        value->bytes = *(const char *const *)at;
        value->null = value->bytes == NULL;
        value->len = value->null ? 0 : strlen(value->bytes);
        break;
    case HF_FIELD_BUCKETS:
        value->null = receipt->kind != HF_RECEIPT_RESERVATION;
        value->bytes = scratch;
        value->len = value->null ? 0 : hf_receipt_buckets_format(receipt, scratch);
        break;
    case HF_FIELD_DIGEST:
        value->bytes = at;
        value->len = HF_DIGEST_BYTES;
        value->null = all_zero(at, HF_DIGEST_BYTES);
        break;
    }
}

const struct hf_field *hf_receipt_beyond(const struct hf_receipt *receipt)
{
    for (size_t i = 0; i < ENTRIES; i++) {
        uint64_t number;

        if (entries[i].field.type != HF_FIELD_NUMBER || i == AT_VERSION) {
            continue;
        }
        memcpy(&number, (const char *)receipt + entries[i].off, sizeof(number));
        if (number > INT64_MAX && number != HF_UNKNOWN) {
            return &entries[i].field;
        }
    }
    return NULL;
}

static bool set_word(struct hf_receipt *receipt, size_t i, const struct hf_field_value *value)
{
    struct words words =
        i == AT_KIND ? (struct words){kind_words, HF_RECEIPT_KIND_CNT} : all_words[entries[i].words];

    if (value->null && i != AT_KIND) {
        *((int8_t *)receipt + entries[i].off) = -1;
        return true;
    }
    for (unsigned w = 0; w < words.cnt && !value->null; w++) {
        if (strlen(words.list[w]) == value->len && memcmp(words.list[w], value->bytes, value->len) == 0) {
            if (i == AT_KIND) {
                receipt->kind = (enum hf_receipt_kind)w;
            } else {
                *((int8_t *)receipt + entries[i].off) = (int8_t)w;
            }
            return true;
        }
    }
    return false;
}

static bool set_number(struct hf_receipt *receipt, size_t i, const struct hf_field_value *value)
{
    if (i == AT_VERSION) {
        receipt->version = (uint16_t)value->number;
        return !value->null && value->number <= UINT16_MAX;
    }
    *(uint64_t *)(void *)((char *)receipt + entries[i].off) = value->null ? HF_UNKNOWN : value->number;
    return true;
}

bool hf_receipt_set(struct hf_receipt *receipt, size_t i, const struct hf_field_value *value)
{
    void *at = (char *)receipt + entries[i].off;

    switch (entries[i].field.type) {
    case HF_FIELD_NUMBER:
        return set_number(receipt, i, value);
    case HF_FIELD_SIGNED:
        *(int64_t *)at = value->null ? HF_RECEIPT_SIGNED_NULL : value->integer;
        return true;
    case HF_FIELD_FLAG:
        *(bool *)at = !value->null && value->flag;
        return !value->null;
    case HF_FIELD_TRI:
        *(int8_t *)at = value->null ? -1 : value->flag ? 1 : 0;
        return true;
    case HF_FIELD_WORD:
        return set_word(receipt, i, value);
    case HF_FIELD_NAME:
        if (value->null) {
            memset(at, 0, sizeof(struct hf_name));
            return true;
        }
        return hf_name_set(at, value->bytes, value->len);
    case HF_FIELD_TEXT:
        *(const char **)at = value->null ? NULL : value->bytes;
        return true;
    case HF_FIELD_BUCKETS:
        return value->null || hf_receipt_buckets_parse(value->bytes, value->len, receipt);
    case HF_FIELD_DIGEST:
        if (value->null) {
            memset(at, 0, HF_DIGEST_BYTES);
            return true;
        }
        if (value->len != HF_DIGEST_BYTES) {
            return false;
        }
        memcpy(at, value->bytes, HF_DIGEST_BYTES);
        return true;
    }
    return false;
}

/* ---- a reservation from its rows ------------------------------------------------------------------------------ */

static bool state_after(enum hf_receipt_kind kind, enum hf_reservation_state *state)
{
    switch (kind) {
    case HF_RECEIPT_SETTLEMENT:
        *state = HF_RESERVATION_SETTLED;
        return true;
    case HF_RECEIPT_RELEASE:
        *state = HF_RESERVATION_RELEASED;
        return true;
    case HF_RECEIPT_EXPIRY:
        *state = HF_RESERVATION_EXPIRED;
        return true;
    case HF_RECEIPT_RETENTION:
        *state = HF_RESERVATION_RETAINED;
        return true;
    case HF_RECEIPT_DISPUTE:
        *state = HF_RESERVATION_DISPUTED;
        return true;
    case HF_RECEIPT_LATE:
        *state = HF_RESERVATION_LATE;
        return true;
    case HF_RECEIPT_RESOLUTION:
        *state = HF_RESERVATION_RESOLVED;
        return true;
    default:
        return false;
    }
}

/* True when a row that brings `next` may follow `before`. */
static bool follows(enum hf_reservation_state before, enum hf_reservation_state next)
{
    bool expired = before == HF_RESERVATION_EXPIRED || before == HF_RESERVATION_RETAINED;

    switch (next) {
    case HF_RESERVATION_LATE:
        return expired;
    case HF_RESERVATION_DISPUTED:
        return before == HF_RESERVATION_OPEN || expired;
    case HF_RESERVATION_RESOLVED:
        return before == HF_RESERVATION_DISPUTED || expired;
    default:
        return before == HF_RESERVATION_OPEN;
    }
}

bool hf_reservation_from_rows(const struct hf_receipt *rows, size_t rows_cnt,
                              struct hf_reservation *reservation)
{
    struct hf_reservation r = {0};

    if (rows_cnt == 0 || rows[0].kind != HF_RECEIPT_RESERVATION) {
        return false;
    }
    r.reserved = &rows[0];
    r.state_since_ms = rows[0].made_ms;
    for (size_t i = 0; i < rows_cnt; i++) {
        const struct hf_receipt *row = &rows[i];
        enum hf_reservation_state next;

        if (row->reservation_seq != rows[0].seq || (i > 0 && row->kind == HF_RECEIPT_RESERVATION)) {
            return false;
        }
        if (i == 0 || row->kind == HF_RECEIPT_EXTENSION) {
            if (r.state != HF_RESERVATION_OPEN) {
                return false;
            }
            r.hold_tokens = row->hold_tokens;
            r.hold_cost_micros = row->hold_cost_micros;
            r.expires_at_ms = row->expires_at_ms;
        } else if (state_after(row->kind, &next) && follows(r.state, next)) {
            r.state = next;
            r.closing = row;
            r.state_since_ms = row->made_ms;
            if (next == HF_RESERVATION_EXPIRED || next == HF_RESERVATION_RETAINED) {
                r.expiry = row;
            }
        } else {
            return false;
        }
        r.dispatched = r.dispatched || row->dispatched == 1;
    }
    *reservation = r;
    return true;
}
