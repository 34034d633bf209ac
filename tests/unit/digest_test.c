/* Canonical texts and digests. */
#include "persist/digest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct hf_digest *digest;

static int setup(void **state)
{
    (void)state;
    digest = hf_digest_new();
    return digest == NULL;
}

static int teardown(void **state)
{
    (void)state;
    hf_digest_free(digest);
    hf_digest_free(NULL);
    return 0;
}

static void a_name(struct hf_name *name, const char *text)
{
    assert_true(hf_name_set(name, text, strlen(text)));
}

static void release(struct hf_receipt *receipt)
{
    hf_receipt_init(receipt, HF_RECEIPT_RELEASE);
    receipt->epoch = 3;
    receipt->seq = 18;
    receipt->made_ms = 1790000000000;
    receipt->reservation_seq = 17;
    receipt->held_invocations = -1;
    receipt->held_cost_micros = -72057594037927935;
    receipt->bucket_mask = 5;
    receipt->late = 0;
    a_name(&receipt->id, "\xe2\x82\xac 1");
    a_name(&receipt->tenant, "echo");
    receipt->reservation_digest[0] = 0xab;
    receipt->reservation_digest[31] = 0x01;
}

static void hex_of(const struct hf_receipt *receipt, const char *segment, char hex[2 * HF_DIGEST_BYTES + 1])
{
    uint8_t bytes[HF_DIGEST_BYTES];

    assert_true(hf_digest_receipt(digest, segment, receipt, bytes));
    hf_digest_hex(bytes, hex);
}

static void sha256_is_that_of_the_standard(void **state)
{
    uint8_t bytes[HF_DIGEST_BYTES];
    char hex[2 * HF_DIGEST_BYTES + 1];

    (void)state;
    assert_true(hf_digest_bytes(digest, "abc", 3, bytes));
    hf_digest_hex(bytes, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_true(hf_digest_bytes(digest, "", 0, bytes));
    hf_digest_hex(bytes, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/* The text as persist/README.md promises it: a change here is a new version of the kind, or a broken promise. */
static void the_canonical_text_is_as_documented(void **state)
{
    static const char expected[] =
        "holdfast/release@1\n"
        "segment=7:gateway\n"
        "epoch=3\n"
        "seq=18\n"
        "made_ms=1790000000000\n"
        "reservation_seq=17\n"
        "held_invocations=-1\n"
        "held_tokens=0\n"
        "held_cost_micros=-72057594037927935\n"
        "charged_invocations=0\n"
        "charged_tokens=0\n"
        "charged_cost_micros=0\n"
        "bucket_mask=5\n"
        "conflict=false\n"
        "late=false\n"
        "id=5:\xe2\x82\xac 1\n"
        "tenant=4:echo\n"
        "reservation_digest=ab00000000000000000000000000000000000000000000000000000000000001\n";
    struct hf_receipt receipt;
    const char *text;
    size_t len;
    uint8_t bytes[HF_DIGEST_BYTES];
    char hex[2 * HF_DIGEST_BYTES + 1];
    char hex_text[2 * HF_DIGEST_BYTES + 1];

    (void)state;
    release(&receipt);
    assert_true(hf_digest_canonical(digest, "gateway", &receipt, &text, &len));
    assert_int_equal(len, sizeof(expected) - 1);
    assert_memory_equal(text, expected, len);
    assert_true(hf_digest_bytes(digest, expected, sizeof(expected) - 1, bytes));
    hf_digest_hex(bytes, hex_text);
    hex_of(&receipt, "gateway", hex);
    assert_string_equal(hex, hex_text);
    /* The digest itself is no part of the text. */
    memset(receipt.digest, 7, sizeof(receipt.digest));
    hex_of(&receipt, "gateway", hex);
    assert_string_equal(hex, hex_text);
}

static void every_difference_shows(void **state)
{
    struct hf_receipt receipt;
    char hexes[8][2 * HF_DIGEST_BYTES + 1];

    (void)state;
    release(&receipt);
    hex_of(&receipt, "gateway", hexes[0]);
    hex_of(&receipt, "gateway2", hexes[1]);
    receipt.conflict = true;
    hex_of(&receipt, "gateway", hexes[2]);
    release(&receipt);
    receipt.late = -1; /* null, not false */
    hex_of(&receipt, "gateway", hexes[3]);
    release(&receipt);
    receipt.reason = ""; /* empty, not null */
    hex_of(&receipt, "gateway", hexes[4]);
    release(&receipt);
    receipt.hold_tokens = 0; /* zero, not unknown */
    hex_of(&receipt, "gateway", hexes[5]);
    release(&receipt);
    receipt.kind = HF_RECEIPT_EXPIRY;
    hex_of(&receipt, "gateway", hexes[6]);
    release(&receipt);
    receipt.version = 2;
    hex_of(&receipt, "gateway", hexes[7]);
    for (size_t a = 0; a < 8; a++) {
        for (size_t b = 0; b < a; b++) {
            assert_string_not_equal(hexes[a], hexes[b]);
        }
    }
}

static void no_text_can_pretend_to_be_another_field(void **state)
{
    struct hf_receipt one;
    struct hf_receipt two;
    char hexes[2][2 * HF_DIGEST_BYTES + 1];

    (void)state;
    hf_receipt_init(&one, HF_RECEIPT_POLICY);
    hf_receipt_init(&two, HF_RECEIPT_POLICY);
    one.reason = "x";
    one.details = "y";
    two.reason = "x\ndetails=1:y";
    hex_of(&one, "gateway", hexes[0]);
    hex_of(&two, "gateway", hexes[1]);
    assert_string_not_equal(hexes[0], hexes[1]);
}

static void long_texts_are_digested_whole(void **state)
{
    struct hf_receipt receipt;
    char *details = malloc(100001);
    const char *text;
    size_t len;
    char hexes[2][2 * HF_DIGEST_BYTES + 1];

    (void)state;
    assert_non_null(details);
    memset(details, 'd', 100000);
    details[100000] = '\0';
    hf_receipt_init(&receipt, HF_RECEIPT_EPOCH);
    receipt.details = details;
    assert_true(hf_digest_canonical(digest, "gateway", &receipt, &text, &len));
    assert_in_range(len, 100000, 100500);
    hex_of(&receipt, "gateway", hexes[0]);
    details[99999] = 'e';
    hex_of(&receipt, "gateway", hexes[1]);
    assert_string_not_equal(hexes[0], hexes[1]);
    free(details);
}

static void a_batch_is_its_header_and_the_digests_of_its_rows(void **state)
{
    uint8_t before[HF_DIGEST_BYTES] = {0};
    uint8_t rows[2][HF_DIGEST_BYTES];
    struct hf_digest_batch batch = {4, 3, 17, 2, 1790000000000, before};
    char text[512];
    uint8_t out[HF_DIGEST_BYTES];
    uint8_t expected[HF_DIGEST_BYTES];
    int len;

    (void)state;
    memset(rows[0], 0x11, HF_DIGEST_BYTES);
    memset(rows[1], 0x22, HF_DIGEST_BYTES);
    len = snprintf(
        text, sizeof(text),
        "holdfast/batch@1\nsegment=7:gateway\nnumber=4\nepoch=3\nfirst_seq=17\nrows_cnt=2\ncommitted_ms=1790000000000\n"
        "before=%064d\n",
        0);
    memcpy(text + len, rows, sizeof(rows));
    assert_true(hf_digest_bytes(digest, text, (size_t)len + sizeof(rows), expected));
    assert_true(hf_digest_batch_begin(digest, "gateway", &batch));
    assert_true(hf_digest_batch_add(digest, rows[0]));
    assert_true(hf_digest_batch_add(digest, rows[1]));
    assert_true(hf_digest_batch_end(digest, out));
    assert_memory_equal(out, expected, HF_DIGEST_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_is_that_of_the_standard),
        cmocka_unit_test(the_canonical_text_is_as_documented),
        cmocka_unit_test(every_difference_shows),
        cmocka_unit_test(no_text_can_pretend_to_be_another_field),
        cmocka_unit_test(long_texts_are_digested_whole),
        cmocka_unit_test(a_batch_is_its_header_and_the_digests_of_its_rows),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
