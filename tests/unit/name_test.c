/* Names: what is one, and how they are hashed; and the words of the contract. */
#include "core/name.h"
#include "core/terms.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define VALID(text) hf_name_valid(text, sizeof(text) - 1)

static void length_is_1_to_63_bytes(void **state)
{
    char long_name[HF_NAME_BYTES_MAX + 2];

    (void)state;
    memset(long_name, 'x', sizeof(long_name));
    assert_false(hf_name_valid(NULL, 0));
    assert_false(VALID(""));
    assert_true(VALID("a"));
    assert_true(hf_name_valid(long_name, 63));
    assert_false(hf_name_valid(long_name, 64));

    /* 21 characters of three bytes are 63 bytes; one byte more is too much, whatever the count of characters */
    for (size_t i = 0; i < 21; i++) {
        memcpy(long_name + 3 * i, "\xE4\xB8\xAD", 3);
    }
    assert_true(hf_name_valid(long_name, 63));
    assert_false(hf_name_valid(long_name, 62)); /* cut within a character */
}

static void spaces_and_case_are_part_of_a_name(void **state)
{
    (void)state;
    assert_true(VALID(" "));
    assert_true(VALID(" a b "));
    assert_true(VALID("a:b/c\"\\'"));
    assert_true(VALID("no"));
    assert_true(VALID("10513478508167781E58455"));
}

static void control_characters_are_refused(void **state)
{
    char name[4];

    (void)state;
    for (unsigned c = 0; c < 0x80; c++) {
        name[0] = 'a';
        name[1] = (char)c;
        name[2] = 'b';
        assert_int_equal(hf_name_valid(name, 3), c >= 0x20 && c != 0x7F);
    }
    for (unsigned c = 0x80; c < 0xC0; c++) {
        name[0] = '\xC2';
        name[1] = (char)c;
        assert_int_equal(hf_name_valid(name, 2), c >= 0xA0);
    }
}

static void only_valid_utf8(void **state)
{
    (void)state;
    assert_true(VALID("\xC2\xA0"));          /* U+00A0, the first after the controls */
    assert_true(VALID("\xDF\xBF"));          /* U+07FF */
    assert_true(VALID("\xE0\xA0\x80"));      /* U+0800 */
    assert_true(VALID("\xED\x9F\xBF"));      /* U+D7FF */
    assert_true(VALID("\xEE\x80\x80"));      /* U+E000 */
    assert_true(VALID("\xEF\xBF\xBF"));      /* U+FFFF */
    assert_true(VALID("\xF0\x90\x80\x80"));  /* U+10000 */
    assert_true(VALID("\xF4\x8F\xBF\xBF"));  /* U+10FFFF */
    assert_false(VALID("\xF4\x90\x80\x80")); /* U+110000 */
    assert_false(VALID("\xF5\x80\x80\x80"));
    assert_false(VALID("\xED\xA0\x80")); /* surrogates */
    assert_false(VALID("\xED\xBF\xBF"));
    assert_false(VALID("\xC0\xAF")); /* overlong / */
    assert_false(VALID("\xC1\xBF"));
    assert_false(VALID("\xE0\x9F\xBF"));
    assert_false(VALID("\xF0\x8F\xBF\xBF"));
    assert_false(VALID("\xC3\x28")); /* no continuation */
    assert_false(VALID("\x80"));     /* continuation alone */
    assert_false(VALID("a\xBF"));
    assert_false(VALID("\xC3")); /* cut */
    assert_false(VALID("a\xE4\xB8"));
    assert_false(VALID("\xF0\x90\x80"));
    assert_false(VALID("\xFE"));
    assert_false(VALID("\xFF"));
}

/* Every code point, encoded by hand, is decoded to itself; surrogates are not. */
static void every_code_point(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x10FFFF; c++) {
        char bytes[4];
        size_t len;
        uint32_t decoded = 0;

        if (c < 0x80) {
            bytes[0] = (char)c;
            len = 1;
        } else if (c < 0x800) {
            bytes[0] = (char)(0xC0 | c >> 6);
            bytes[1] = (char)(0x80 | (c & 0x3F));
            len = 2;
        } else if (c < 0x10000) {
            bytes[0] = (char)(0xE0 | c >> 12);
            bytes[1] = (char)(0x80 | (c >> 6 & 0x3F));
            bytes[2] = (char)(0x80 | (c & 0x3F));
            len = 3;
        } else {
            bytes[0] = (char)(0xF0 | c >> 18);
            bytes[1] = (char)(0x80 | (c >> 12 & 0x3F));
            bytes[2] = (char)(0x80 | (c >> 6 & 0x3F));
            bytes[3] = (char)(0x80 | (c & 0x3F));
            len = 4;
        }
        if (c >= 0xD800 && c <= 0xDFFF) {
            assert_int_equal(hf_utf8_decode(bytes, len, &decoded), 0);
            continue;
        }
        assert_int_equal(hf_utf8_decode(bytes, len, &decoded), len);
        assert_int_equal(decoded, c);
        if (len > 1) {
            assert_int_equal(hf_utf8_decode(bytes, len - 1, &decoded), 0);
        }
    }
}

static void set_copies_only_names(void **state)
{
    struct hf_name name;

    (void)state;
    assert_true(hf_name_set(&name, "acme", 4));
    assert_false(hf_name_set(&name, "a\nb", 3));
    assert_int_equal(name.len, 4);
    assert_string_equal(name.bytes, "acme");
    assert_true(hf_name_is(&name, "acme!", 4));
    assert_false(hf_name_is(&name, "acm", 3));
    assert_false(hf_name_is(&name, "Acme", 4));
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* A million similar names: no two hashes alike, and each bit of the hash set in half of them, within 1 %. */
static void hash_spreads_similar_names(void **state)
{
    const size_t cnt = 1000000;
    uint64_t *hashes = malloc(cnt * sizeof(*hashes));
    size_t ones[64] = {0};

    (void)state;
    assert_non_null(hashes);
    for (size_t i = 0; i < cnt; i++) {
        char name[32];
        int len = snprintf(name, sizeof(name), "tenant-%zu/key-%zu", i / 1000, i % 1000);

        hashes[i] = hf_name_hash(name, (size_t)len, 0);
        for (size_t bit = 0; bit < 64; bit++) {
            ones[bit] += hashes[i] >> bit & 1;
        }
    }
    for (size_t bit = 0; bit < 64; bit++) {
        assert_in_range(ones[bit], cnt / 2 - cnt / 100, cnt / 2 + cnt / 100);
    }
    qsort(hashes, cnt, sizeof(*hashes), compare_u64);
    for (size_t i = 1; i < cnt; i++) {
        assert_true(hashes[i - 1] != hashes[i]);
    }
    free(hashes);
}

/* Each bit of a name and of the seed turns between a quarter and three quarters of the hash's bits. */
static void hash_turns_with_every_bit(void **state)
{
    (void)state;
    for (size_t len = 1; len <= HF_NAME_BYTES_MAX; len++) {
        char name[HF_NAME_BYTES_MAX];
        uint64_t hash;

        memset(name, 'q', sizeof(name));
        hash = hf_name_hash(name, len, 99);
        for (size_t bit = 0; bit < len * 8; bit++) {
            name[bit / 8] = (char)(name[bit / 8] ^ 1 << bit % 8);
            assert_in_range(__builtin_popcountll(hash ^ hf_name_hash(name, len, 99)), 10, 54);
            name[bit / 8] = (char)(name[bit / 8] ^ 1 << bit % 8);
        }
        for (size_t bit = 0; bit < 64; bit++) {
            assert_in_range(__builtin_popcountll(hash ^ hf_name_hash(name, len, 99 ^ UINT64_C(1) << bit)), 10,
                            54);
        }
    }
}

static void hash_tells_lengths_apart(void **state)
{
    const char zeros[HF_NAME_BYTES_MAX] = {0};

    (void)state;
    for (size_t len = 0; len < HF_NAME_BYTES_MAX; len++) {
        for (size_t other = len + 1; other <= HF_NAME_BYTES_MAX; other++) {
            assert_true(hf_name_hash(zeros, len, 0) != hf_name_hash(zeros, other, 0));
        }
    }
}

/* The hash is stored in segments: another value is another layout. */
static void hash_never_changes(void **state)
{
    (void)state;
    assert_int_equal(hf_name_hash("", 0, 0), UINT64_C(0x9A83AC9E420ADBE));
    assert_int_equal(hf_name_hash("acme", 4, 0), UINT64_C(0xE4C3D4FE0395A86C));
    assert_int_equal(hf_name_hash("acme", 4, 1), UINT64_C(0x90DCCF2F1C986F06));
    assert_int_equal(hf_name_hash("reservation-0001", 16, 7), UINT64_C(0xC0872C586896AE4A));
}

#define CHECK_TERM(term, value, word)                                        \
    do {                                                                     \
        enum hf_##term parsed;                                               \
        assert_string_equal(hf_##term##_name(value), word);                  \
        assert_true(hf_##term##_parse(word "!", sizeof(word) - 1, &parsed)); \
        assert_int_equal(parsed, value);                                     \
        assert_false(hf_##term##_parse(word "!", sizeof(word), &parsed));    \
        assert_false(hf_##term##_parse(word, sizeof(word) - 2, &parsed));    \
    } while (0)

static void words_and_their_values(void **state)
{
    (void)state;
    CHECK_TERM(window, HF_WINDOW_MINUTE, "minute");
    CHECK_TERM(window, HF_WINDOW_HOUR, "hour");
    CHECK_TERM(window, HF_WINDOW_DAY, "day");
    CHECK_TERM(window, HF_WINDOW_MONTH, "month");
    CHECK_TERM(window, HF_WINDOW_LIFETIME, "lifetime");
    CHECK_TERM(dimension, HF_DIM_INVOCATIONS, "invocations");
    CHECK_TERM(dimension, HF_DIM_TOKENS, "tokens");
    CHECK_TERM(dimension, HF_DIM_COST, "cost_micros");
    CHECK_TERM(layer, HF_LAYER_REQUEST, "request");
    CHECK_TERM(layer, HF_LAYER_KEY, "key");
    CHECK_TERM(layer, HF_LAYER_TEAM, "team");
    CHECK_TERM(layer, HF_LAYER_TENANT, "tenant");
    CHECK_TERM(on_limit, HF_ON_LIMIT_REJECT, "reject");
    CHECK_TERM(on_limit, HF_ON_LIMIT_DEGRADE, "degrade");
    CHECK_TERM(on_limit, HF_ON_LIMIT_QUEUE, "queue");
    CHECK_TERM(on_expiry, HF_ON_EXPIRY_RELEASE, "release");
    CHECK_TERM(on_expiry, HF_ON_EXPIRY_RETAIN_DISPATCHED, "retain_dispatched");
    CHECK_TERM(on_overage, HF_ON_OVERAGE_RECORD, "record");
    CHECK_TERM(on_overage, HF_ON_OVERAGE_FAIL, "fail");
    CHECK_TERM(basis, HF_BASIS_ESTIMATE, "estimate");
    CHECK_TERM(basis, HF_BASIS_CAP, "cap");
}

static void retain_is_not_a_part_of_retain_dispatched(void **state)
{
    enum hf_on_expiry on_expiry = HF_ON_EXPIRY_RELEASE;

    (void)state;
    assert_true(hf_on_expiry_parse("retain_dispatched", 6, &on_expiry));
    assert_int_equal(on_expiry, HF_ON_EXPIRY_RETAIN);
    assert_string_equal(hf_on_expiry_name(HF_ON_EXPIRY_RETAIN), "retain");
}

static void a_corrupt_value_has_a_word_too(void **state)
{
    enum hf_window window = HF_WINDOW_DAY;

    (void)state;
    assert_string_equal(hf_window_name(HF_WINDOW_CNT), "?");
    assert_string_equal(hf_layer_name((enum hf_layer)250), "?");
    assert_false(hf_window_parse("week", 4, &window));
    assert_false(hf_window_parse("Month", 5, &window));
    assert_false(hf_window_parse("", 0, &window));
    assert_int_equal(window, HF_WINDOW_DAY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(length_is_1_to_63_bytes),
        cmocka_unit_test(spaces_and_case_are_part_of_a_name),
        cmocka_unit_test(control_characters_are_refused),
        cmocka_unit_test(only_valid_utf8),
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(set_copies_only_names),
        cmocka_unit_test(hash_spreads_similar_names),
        cmocka_unit_test(hash_turns_with_every_bit),
        cmocka_unit_test(hash_tells_lengths_apart),
        cmocka_unit_test(hash_never_changes),
        cmocka_unit_test(words_and_their_values),
        cmocka_unit_test(retain_is_not_a_part_of_retain_dispatched),
        cmocka_unit_test(a_corrupt_value_has_a_word_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
