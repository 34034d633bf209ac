#include "tools/holdfast/run_receipt.h"

static void put_digest(struct hf_json_out *out, const char *key, const char *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    char text[2 * HF_DIGEST_BYTES];

    if (len > HF_DIGEST_BYTES) {
        len = HF_DIGEST_BYTES;
    }
    for (size_t i = 0; i < len; i++) {
        text[2 * i] = digits[(unsigned char)bytes[i] >> 4];
        text[2 * i + 1] = digits[(unsigned char)bytes[i] & 0xf];
    }
    hf_json_out_text_bytes(out, key, text, 2 * len);
}

static void put_field(struct hf_json_out *out, const struct hf_field *field,
                      const struct hf_field_value *value)
{
    if (value->null) {
        hf_json_out_null(out, field->name);
        return;
    }
    switch (field->type) {
    case HF_FIELD_NUMBER:
        hf_json_out_amount(out, field->name, value->number);
        break;
    case HF_FIELD_SIGNED:
        hf_json_out_number(out, field->name, value->integer);
        break;
    case HF_FIELD_FLAG:
    case HF_FIELD_TRI:
        hf_json_out_flag(out, field->name, value->flag);
        break;
    case HF_FIELD_WORD:
    case HF_FIELD_NAME:
    case HF_FIELD_TEXT:
    case HF_FIELD_BUCKETS:
        hf_json_out_text_bytes(out, field->name, value->bytes, value->len);
        break;
    case HF_FIELD_DIGEST:
        put_digest(out, field->name, value->bytes, value->len);
        break;
    }
}

void hf_receipt_put_json(struct hf_json_out *out, const struct hf_receipt *receipt)
{
    char scratch[HF_RECEIPT_BUCKETS_BYTES];
    struct hf_field_value value;

    hf_json_out_object(out, NULL);
    for (size_t i = 0; i < hf_receipt_fields(); i++) {
        hf_receipt_get(receipt, i, &value, scratch);
        put_field(out, hf_receipt_field(i), &value);
    }
    hf_json_out_object_end(out);
}
