-- Rollups in SQLite: sums of receipts, so that coming back does not read the whole history. Version 2.
-- Run by `holdfast store init`, in one transaction. persist/README.md explains tables and columns.

-- One rollup: which receipts it covers beyond the one before, where the chain of batches stood, and the digest of it all.
CREATE TABLE rollup (
    segment_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    next_seq INTEGER NOT NULL,
    end_ms INTEGER NOT NULL,
    batch_number INTEGER NOT NULL,
    batch_digest BLOB NOT NULL,
    parts_cnt INTEGER NOT NULL,
    before BLOB NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (segment_id, number)
) STRICT;

-- The windows that a rollup lists, each in whole; `base` is the rollup that listed it last.
CREATE TABLE rollup_window (
    segment_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    window_kind TEXT NOT NULL,
    start_ms INTEGER NOT NULL,
    end_ms INTEGER NOT NULL,
    mask INTEGER NOT NULL,
    base INTEGER,
    PRIMARY KEY (segment_id, window_kind, start_ms, number)
) STRICT;

-- The sums of a window, per path and set of buckets; amounts in two halves: high * 2^32 + low. No key: ''.
CREATE TABLE rollup_sum (
    segment_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    window_kind TEXT NOT NULL,
    start_ms INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    team TEXT NOT NULL,
    key TEXT NOT NULL,
    bucket_mask INTEGER NOT NULL,
    rows_cnt INTEGER NOT NULL,
    held_invocations INTEGER NOT NULL,
    held_tokens_high INTEGER NOT NULL,
    held_tokens_low INTEGER NOT NULL,
    held_cost_high INTEGER NOT NULL,
    held_cost_low INTEGER NOT NULL,
    charged_invocations INTEGER NOT NULL,
    charged_tokens_high INTEGER NOT NULL,
    charged_tokens_low INTEGER NOT NULL,
    charged_cost_high INTEGER NOT NULL,
    charged_cost_low INTEGER NOT NULL,
    PRIMARY KEY (segment_id, number, window_kind, start_ms, tenant, team, key, bucket_mask)
) STRICT;

-- The meters up to a rollup's end. No model: ''.
CREATE TABLE rollup_meter (
    segment_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    capability TEXT NOT NULL,
    model TEXT NOT NULL,
    requests INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    degraded INTEGER NOT NULL,
    reserved_micros INTEGER NOT NULL,
    settled_micros INTEGER NOT NULL,
    PRIMARY KEY (segment_id, number, tenant, capability, model)
) STRICT;

-- The reservations that were open at a rollup's end.
CREATE TABLE rollup_open (
    segment_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    reservation_seq INTEGER NOT NULL,
    PRIMARY KEY (segment_id, number, reservation_seq)
) STRICT;

-- What each receipt adds to the sums: amounts in two halves, so that no sum of 64 bits overflows.
CREATE VIEW sum_row AS
SELECT
    segment_id, seq, window_ms, tenant, coalesce(team, '') AS team, coalesce(key, '') AS key, bucket_mask,
    held_invocations,
    held_tokens >> 32 AS held_tokens_high, held_tokens & 4294967295 AS held_tokens_low,
    held_cost_micros >> 32 AS held_cost_high, held_cost_micros & 4294967295 AS held_cost_low,
    charged_invocations,
    charged_tokens >> 32 AS charged_tokens_high, charged_tokens & 4294967295 AS charged_tokens_low,
    charged_cost_micros >> 32 AS charged_cost_high, charged_cost_micros & 4294967295 AS charged_cost_low
FROM every_receipt
WHERE bucket_mask IS NOT NULL;

CREATE TRIGGER rollup_no_update BEFORE UPDATE ON rollup
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: UPDATE of rollup is refused');
END;
CREATE TRIGGER rollup_no_delete BEFORE DELETE ON rollup
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: DELETE of rollup is refused');
END;
CREATE TRIGGER rollup_window_no_update BEFORE UPDATE ON rollup_window
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: UPDATE of rollup_window is refused');
END;
CREATE TRIGGER rollup_window_no_delete BEFORE DELETE ON rollup_window
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: DELETE of rollup_window is refused');
END;
CREATE TRIGGER rollup_sum_no_update BEFORE UPDATE ON rollup_sum
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: UPDATE of rollup_sum is refused');
END;
CREATE TRIGGER rollup_sum_no_delete BEFORE DELETE ON rollup_sum
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: DELETE of rollup_sum is refused');
END;
CREATE TRIGGER rollup_meter_no_update BEFORE UPDATE ON rollup_meter
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: UPDATE of rollup_meter is refused');
END;
CREATE TRIGGER rollup_meter_no_delete BEFORE DELETE ON rollup_meter
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: DELETE of rollup_meter is refused');
END;
CREATE TRIGGER rollup_open_no_update BEFORE UPDATE ON rollup_open
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: UPDATE of rollup_open is refused');
END;
CREATE TRIGGER rollup_open_no_delete BEFORE DELETE ON rollup_open
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: DELETE of rollup_open is refused');
END;
