/* What must be in the tables of a rollup, as SELECTs over receipts: for who adds up again. Rollups are written from a tally, so
 * the two have nothing in common but the meaning of a receipt.
 *
 * Parameters: $1 segment number, $2 the rollup's number, $3 and $4 the receipts [first, next) that it covers, $5 the number of the
 * rollup before it (meters and open reservations alone).
 */
#ifndef HF_PERSIST_ROLLUP_SQL_H
#define HF_PERSIST_ROLLUP_SQL_H

/* clang-format off */
/* The sums of the rollup that listed each window last, and what is new; what the low halves have too much goes up. */
#define HF_ROLLUP_SUMS \
    "SELECT segment_id, number, window_kind, start_ms, tenant, team, key, bucket_mask, rows_cnt, held_invocations," \
    "    held_tokens_high + (held_tokens_low >> 32), held_tokens_low & 4294967295," \
    "    held_cost_high + (held_cost_low >> 32), held_cost_low & 4294967295, charged_invocations," \
    "    charged_tokens_high + (charged_tokens_low >> 32), charged_tokens_low & 4294967295," \
    "    charged_cost_high + (charged_cost_low >> 32), charged_cost_low & 4294967295 " \
    "FROM (SELECT segment_id, number, window_kind, start_ms, tenant, team, key, bucket_mask," \
    "        CAST(sum(rows_cnt) AS bigint) AS rows_cnt, CAST(sum(held_invocations) AS bigint) AS held_invocations," \
    "        CAST(sum(held_tokens_high) AS bigint) AS held_tokens_high," \
    "        CAST(sum(held_tokens_low) AS bigint) AS held_tokens_low," \
    "        CAST(sum(held_cost_high) AS bigint) AS held_cost_high," \
    "        CAST(sum(held_cost_low) AS bigint) AS held_cost_low," \
    "        CAST(sum(charged_invocations) AS bigint) AS charged_invocations," \
    "        CAST(sum(charged_tokens_high) AS bigint) AS charged_tokens_high," \
    "        CAST(sum(charged_tokens_low) AS bigint) AS charged_tokens_low," \
    "        CAST(sum(charged_cost_high) AS bigint) AS charged_cost_high," \
    "        CAST(sum(charged_cost_low) AS bigint) AS charged_cost_low " \
    "    FROM (SELECT w.segment_id, w.number, w.window_kind, w.start_ms, s.tenant, s.team, s.key, s.bucket_mask," \
    "            s.rows_cnt, s.held_invocations, s.held_tokens_high, s.held_tokens_low, s.held_cost_high," \
    "            s.held_cost_low, s.charged_invocations, s.charged_tokens_high, s.charged_tokens_low," \
    "            s.charged_cost_high, s.charged_cost_low " \
    "        FROM rollup_window w JOIN rollup_sum s ON s.segment_id = w.segment_id AND s.number = w.base" \
    "            AND s.window_kind = w.window_kind AND s.start_ms = w.start_ms " \
    "        WHERE w.segment_id = $1 AND w.number = $2 " \
    "        UNION ALL " \
    "        SELECT w.segment_id, w.number, w.window_kind, w.start_ms, r.tenant, r.team, r.key," \
    "            r.bucket_mask & w.mask AS bucket_mask, 1 AS rows_cnt, r.held_invocations, r.held_tokens_high," \
    "            r.held_tokens_low, r.held_cost_high, r.held_cost_low, r.charged_invocations," \
    "            r.charged_tokens_high, r.charged_tokens_low, r.charged_cost_high, r.charged_cost_low " \
    "        FROM sum_row r JOIN rollup_window w ON w.segment_id = r.segment_id AND w.start_ms <= r.window_ms" \
    "            AND w.end_ms > r.window_ms AND (r.bucket_mask & w.mask) <> 0 " \
    "        WHERE r.segment_id = $1 AND w.number = $2 AND r.seq >= $3 AND r.seq < $4) AS part " \
    "    GROUP BY segment_id, number, window_kind, start_ms, tenant, team, key, bucket_mask) AS added"

#define HF_ROLLUP_METERS \
    "SELECT $1, $2, tenant, capability, model, CAST(sum(requests) AS bigint), CAST(sum(failures) AS bigint)," \
    "    CAST(sum(degraded) AS bigint), CAST(sum(reserved_micros) AS bigint), CAST(sum(settled_micros) AS bigint) " \
    "FROM (SELECT tenant, coalesce(capability, '') AS capability, coalesce(model, '') AS model, requests, failures," \
    "        degraded, reserved_micros, settled_micros FROM meter_row WHERE segment_id = $1 AND seq >= $3 AND seq < $4 " \
    "    UNION ALL" \
    "    SELECT tenant, capability, model, requests, failures, degraded, reserved_micros, settled_micros" \
    "    FROM rollup_meter WHERE segment_id = $1 AND number = $5) AS part " \
    "GROUP BY tenant, capability, model"

/* What is open: its rows hold one invocation in sum. */
#define HF_ROLLUP_OPEN \
    "SELECT $1, $2, reservation_seq " \
    "FROM (SELECT reservation_seq, held_invocations FROM every_receipt" \
    "    WHERE segment_id = $1 AND seq >= $3 AND seq < $4 AND reservation_seq IS NOT NULL " \
    "    UNION ALL" \
    "    SELECT reservation_seq, 1 AS held_invocations FROM rollup_open WHERE segment_id = $1 AND number = $5) AS part " \
    "GROUP BY reservation_seq HAVING sum(held_invocations) > 0"
/* clang-format on */

#endif
