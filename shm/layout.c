#include "shm/layout.h"

#include <stddef.h>

/* Every field of every record, in the order of layout.h; R is the record as a whole. The unit test compares this list
 * with the table of shm/README.md, and finds holes that no field covers. */
/* clang-format off */
#define R(record) {#record, "", 0, (uint32_t)sizeof(struct record)}
#define F(record, field)                                                \
    {#record, #field, (uint32_t)offsetof(struct record, field),         \
     (uint32_t)sizeof(((struct record *)0)->field)}

static const struct hf_layout_entry entries[] = {
    R(hf_shm_region),
    F(hf_shm_region, reg_off),
    F(hf_shm_region, reg_cnt),
    F(hf_shm_region, reg_stride),
    R(hf_shm_header),
    F(hf_shm_header, hdr_magic),
    F(hf_shm_header, hdr_version),
    F(hf_shm_header, hdr_header_bytes),
    F(hf_shm_header, hdr_fingerprint),
    F(hf_shm_header, hdr_size_bytes),
    F(hf_shm_header, hdr_epoch),
    F(hf_shm_header, hdr_hash_seed),
    F(hf_shm_header, hdr_boot_id),
    F(hf_shm_header, hdr_replay_horizon_ms),
    F(hf_shm_header, hdr_late_horizon_ms),
    F(hf_shm_header, hdr_max_lag_ms),
    F(hf_shm_header, hdr_injected),
    F(hf_shm_header, hdr_slots_cnt),
    F(hf_shm_header, hdr_chunk_slots),
    F(hf_shm_header, hdr_heads_mask),
    F(hf_shm_header, hdr_policy_bytes),
    F(hf_shm_header, hdr_created_ms),
    F(hf_shm_header, hdr_pad1),
    F(hf_shm_header, hdr_state),
    F(hf_shm_header, hdr_names_cnt),
    F(hf_shm_header, hdr_prices_cnt),
    F(hf_shm_header, hdr_policy_gen),
    F(hf_shm_header, hdr_daemon),
    F(hf_shm_header, hdr_heartbeat_ms),
    F(hf_shm_header, hdr_durable_ms),
    F(hf_shm_header, hdr_next_seq),
    F(hf_shm_header, hdr_batch_number),
    F(hf_shm_header, hdr_meters_max),
    F(hf_shm_header, clk_seq),
    F(hf_shm_header, clk_uncertainty_ms),
    F(hf_shm_header, clk_pad),
    F(hf_shm_header, clk_time_ms),
    F(hf_shm_header, clk_mono_ms),
    F(hf_shm_header, clk_hold_ms),
    F(hf_shm_header, clk_elapsed_off_ms),
    F(hf_shm_header, clk_injected_ms),
    F(hf_shm_header, hdr_pad4),
    F(hf_shm_header, wake_word),
    F(hf_shm_header, cyc_done_word),
    F(hf_shm_header, cyc_begun),
    F(hf_shm_header, cyc_done),
    F(hf_shm_header, hdr_pad5),
    F(hf_shm_header, hdr_alarms),
    F(hf_shm_header, hdr_regions),
    F(hf_shm_header, hdr_segment_name),
    F(hf_shm_header, hdr_store_name),
    F(hf_shm_header, hdr_store_url),
    F(hf_shm_header, hdr_batch_digest),
    F(hf_shm_header, hdr_lock_ino),
    F(hf_shm_header, hdr_pad6),
    R(hf_shm_owner),
    F(hf_shm_owner, own_ref),
    F(hf_shm_owner, own_last_epoch),
    F(hf_shm_owner, own_joined_ms),
    F(hf_shm_owner, own_pid),
    F(hf_shm_owner, own_role),
    F(hf_shm_owner, own_pad),
    R(hf_shm_tenant),
    F(hf_shm_tenant, ten_word),
    F(hf_shm_tenant, ten_applied),
    F(hf_shm_tenant, ten_policy),
    F(hf_shm_tenant, ten_row),
    F(hf_shm_tenant, ten_name),
    F(hf_shm_tenant, ten_wish),
    F(hf_shm_tenant, ten_pad),
    R(hf_shm_row),
    F(hf_shm_row, row_buckets),
    F(hf_shm_row, row_granted),
    F(hf_shm_row, row_tenant),
    F(hf_shm_row, row_parent),
    F(hf_shm_row, row_name),
    F(hf_shm_row, row_layer),
    F(hf_shm_row, row_pad),
    R(hf_shm_settled),
    F(hf_shm_settled, set_amount),
    F(hf_shm_settled, set_window),
    F(hf_shm_settled, set_pad),
    R(hf_shm_published),
    F(hf_shm_published, pub_seq),
    F(hf_shm_published, pub_alarm_window),
    F(hf_shm_published, pub_alarm_bits),
    F(hf_shm_published, pub_pad),
    F(hf_shm_published, pub_settled),
    R(hf_shm_chunk),
    F(hf_shm_chunk, chunk_owner),
    F(hf_shm_chunk, chunk_free),
    F(hf_shm_chunk, chunk_home),
    F(hf_shm_chunk, chunk_pad),
    F(hf_shm_chunk, chunk_dirty),
    R(hf_shm_hold),
    F(hf_shm_hold, hold_tokens),
    F(hf_shm_hold, hold_cost),
    F(hf_shm_hold, hold_deadline),
    F(hf_shm_hold, hold_time_ms),
    R(hf_shm_slot),
    F(hf_shm_slot, slot_st),
    F(hf_shm_slot, slot_claim),
    F(hf_shm_slot, slot_persisted),
    F(hf_shm_slot, slot_next),
    F(hf_shm_slot, slot_owner),
    F(hf_shm_slot, slot_id_hash),
    F(hf_shm_slot, slot_economy),
    F(hf_shm_slot, slot_mask),
    F(hf_shm_slot, slot_rows),
    F(hf_shm_slot, slot_tenant),
    F(hf_shm_slot, slot_windows),
    F(hf_shm_slot, slot_first_tokens),
    F(hf_shm_slot, slot_first_cost),
    F(hf_shm_slot, slot_first_expires_ms),
    F(hf_shm_slot, slot_flags),
    F(hf_shm_slot, slot_policy_gen),
    F(hf_shm_slot, slot_holds),
    F(hf_shm_slot, slot_actual_tokens),
    F(hf_shm_slot, slot_actual_cost),
    F(hf_shm_slot, slot_usage_input),
    F(hf_shm_slot, slot_usage_cached),
    F(hf_shm_slot, slot_usage_cache_write),
    F(hf_shm_slot, slot_expired_ms),
    F(hf_shm_slot, slot_close),
    F(hf_shm_slot, slot_note),
    F(hf_shm_slot, slot_ref_bytes),
    F(hf_shm_slot, slot_id_bytes),
    F(hf_shm_slot, slot_pad1),
    F(hf_shm_slot, slot_in1),
    F(hf_shm_slot, slot_in2),
    F(hf_shm_slot, slot_eco1),
    F(hf_shm_slot, slot_eco2),
    F(hf_shm_slot, slot_ttl_ms),
    F(hf_shm_slot, slot_cap),
    F(hf_shm_slot, slot_model),
    F(hf_shm_slot, slot_reserved_ms),
    F(hf_shm_slot, slot_pad2),
    F(hf_shm_slot, slot_credits),
    F(hf_shm_slot, slot_written_tokens),
    F(hf_shm_slot, slot_written_cost),
    F(hf_shm_slot, slot_written_deadline),
    F(hf_shm_slot, slot_id),
    F(hf_shm_slot, slot_ref),
    R(hf_shm_credit_note),
    F(hf_shm_credit_note, crd_micros),
    F(hf_shm_credit_note, crd_window),
    F(hf_shm_credit_note, crd_window_id),
    F(hf_shm_credit_note, crd_before),
    F(hf_shm_credit_note, crd_after),
    F(hf_shm_credit_note, crd_reason_bytes),
    F(hf_shm_credit_note, crd_by_bytes),
    F(hf_shm_credit_note, crd_pad),
    F(hf_shm_credit_note, crd_reason),
    F(hf_shm_credit_note, crd_by),
    R(hf_shm_name),
    F(hf_shm_name, name_bytes),
    F(hf_shm_name, name_text),
    R(hf_shm_price),
    F(hf_shm_price, prc_input),
    F(hf_shm_price, prc_output),
    F(hf_shm_price, prc_cached_input),
    F(hf_shm_price, prc_cache_write),
    F(hf_shm_price, prc_max_output_tokens),
    F(hf_shm_price, prc_model),
    F(hf_shm_price, prc_revision),
    F(hf_shm_price, prc_pad),
    R(hf_shm_policy),
    F(hf_shm_policy, pol_gen),
    F(hf_shm_policy, pol_rows_cnt),
    F(hf_shm_policy, pol_caps_cnt),
    F(hf_shm_policy, pol_lookup_mask),
    F(hf_shm_policy, pol_rows_off),
    F(hf_shm_policy, pol_caps_off),
    F(hf_shm_policy, pol_lookup_off),
    F(hf_shm_policy, pol_bytes),
    F(hf_shm_policy, pol_currency),
    F(hf_shm_policy, pol_price_revision),
    F(hf_shm_policy, pol_tenants_cnt),
    F(hf_shm_policy, pol_models_cnt),
    F(hf_shm_policy, pol_pad),
    F(hf_shm_policy, pol_digest),
    R(hf_shm_row_policy),
    F(hf_shm_row_policy, rpl_limits),
    F(hf_shm_row_policy, rpl_overdraft_micros),
    F(hf_shm_row_policy, rpl_ttl_ms),
    F(hf_shm_row_policy, rpl_retry_after_ms),
    F(hf_shm_row_policy, rpl_queue_limit),
    F(hf_shm_row_policy, rpl_queue_deadline_ms),
    F(hf_shm_row_policy, rpl_on_limit),
    F(hf_shm_row_policy, rpl_on_expiry),
    F(hf_shm_row_policy, rpl_on_overage),
    F(hf_shm_row_policy, rpl_present),
    F(hf_shm_row_policy, rpl_pad),
    R(hf_shm_cap),
    F(hf_shm_cap, cap_micros),
    F(hf_shm_cap, cap_tokens),
    F(hf_shm_cap, cap_name),
    F(hf_shm_cap, cap_team_row),
    F(hf_shm_cap, cap_basis),
    F(hf_shm_cap, cap_pad),
    R(hf_shm_lookup),
    F(hf_shm_lookup, lku_kind),
    F(hf_shm_lookup, lku_parent),
    F(hf_shm_lookup, lku_name),
    F(hf_shm_lookup, lku_value),
    R(hf_shm_meter),
    F(hf_shm_meter, mtr_seq),
    F(hf_shm_meter, mtr_tenant),
    F(hf_shm_meter, mtr_cap),
    F(hf_shm_meter, mtr_model),
    F(hf_shm_meter, mtr_pad),
    F(hf_shm_meter, mtr_requests),
    F(hf_shm_meter, mtr_failures),
    F(hf_shm_meter, mtr_degraded),
    F(hf_shm_meter, mtr_reserved_micros),
    F(hf_shm_meter, mtr_settled_micros),
    R(hf_shm_batch_entry),
    F(hf_shm_batch_entry, bat_slot),
    F(hf_shm_batch_entry, bat_persisted),
    F(hf_shm_batch_entry, bat_tokens),
    F(hf_shm_batch_entry, bat_cost),
    F(hf_shm_batch_entry, bat_deadline),
    F(hf_shm_batch_entry, bat_pad),
    R(hf_shm_batch),
    F(hf_shm_batch, bat_number),
    F(hf_shm_batch, bat_first_seq),
    F(hf_shm_batch, bat_rows_cnt),
    F(hf_shm_batch, bat_entries_cnt),
    F(hf_shm_batch, bat_before),
    F(hf_shm_batch, bat_digest),
    F(hf_shm_batch, bat_entries),
};
/* clang-format on */

#define ENTRIES_CNT ((uint32_t)(sizeof entries / sizeof entries[0]))

bool hf_layout_entry(uint32_t i, struct hf_layout_entry *entry)
{
    if (i >= ENTRIES_CNT)
        return false;
    *entry = entries[i];
    return true;
}

/* FNV-1a, 64 bits. */
static uint64_t mix(uint64_t hash, const void *bytes, size_t cnt)
{
    const uint8_t *at = (const uint8_t *)bytes;

    for (size_t i = 0; i < cnt; i++)
        hash = (hash ^ at[i]) * 0x100000001b3ULL;
    return hash;
}

static uint64_t mix_text(uint64_t hash, const char *text)
{
    size_t cnt = 0;

    while (text[cnt] != 0)
        cnt++;
    return mix(hash, text, cnt + 1U); /* with its end, so that "ab","c" and "a","bc" differ */
}

static uint64_t mix_u64(uint64_t hash, uint64_t value)
{
    return mix(hash, &value, sizeof value);
}

/* Offsets do not show how the words are packed: a sample of each does. */
static uint64_t mix_packing(uint64_t hash)
{
    struct hf_u128 w = hf_word_make(0x123456789abULL, HF_KIND_LATE, 0x89abcdU, 0xfedcba98765ULL);
    struct hf_u128 st = hf_st_make(0x123456789abULL, 0x5a5U, HF_STATE_LATE, 0xfedcba98765ULL, 0x89abcU);
    struct hf_u128 b = hf_bucket_make(0x123456789abcdeULL, 0x89abcdeU, 0xfedcba98765ULL);
    const uint64_t words[] = {w.lo,
                              w.hi,
                              st.lo,
                              st.hi,
                              b.lo,
                              b.hi,
                              hf_link_make(0x89abcdU, 0x12345U, 0x6789aU),
                              hf_link_last(hf_link_make(0x89abcdU, 0x12345U, 0x9aU), 0x6789abcdU),
                              hf_persisted_make(0x89abcU, 0x5a5U, 0x12345678U),
                              hf_ref_make(0x1234U, 0x56789abcdef0ULL),
                              HF_KIND_CNT,
                              HF_STATE_CNT,
                              HF_REGION_CNT,
                              HF_ALARM_CNT,
                              HF_SHM_VERSION,
                              HF_SHM_WINDOWS,
                              HF_SHM_DIMS,
                              HF_SHM_LAYERS,
                              HF_SHM_CREDIT_OFF,
                              HF_SHM_BATCH_ENTRIES};

    return mix(hash, words, sizeof words);
}

uint64_t hf_layout_fingerprint(void)
{
    uint64_t hash = 0xcbf29ce484222325ULL;

    for (uint32_t i = 0; i < ENTRIES_CNT; i++) {
        hash = mix_text(hash, entries[i].record);
        hash = mix_text(hash, entries[i].field);
        hash = mix_u64(hash, (uint64_t)entries[i].off << 32 | entries[i].size_bytes);
    }
    return mix_packing(hash);
}
