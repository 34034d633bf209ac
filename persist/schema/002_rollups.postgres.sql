-- Rollups in PostgreSQL: sums of receipts, so that coming back does not read the whole history. Version 2.
-- Run by `holdfast store init`, in one transaction. persist/README.md explains tables and columns.

-- One rollup: which receipts it covers beyond the one before, where the chain of batches stood, and the digest of it all.
CREATE TABLE holdfast.rollup (
    segment_id bigint NOT NULL,
    number bigint NOT NULL,
    epoch bigint NOT NULL,
    first_seq bigint NOT NULL,
    next_seq bigint NOT NULL,
    end_ms bigint NOT NULL,
    batch_number bigint NOT NULL,
    batch_digest bytea NOT NULL,
    parts_cnt bigint NOT NULL,
    before bytea NOT NULL,
    digest bytea NOT NULL,
    PRIMARY KEY (segment_id, number)
);

-- The windows that a rollup lists, each in whole; `base` is the rollup that listed it last.
CREATE TABLE holdfast.rollup_window (
    segment_id bigint NOT NULL,
    number bigint NOT NULL,
    window_kind text COLLATE "C" NOT NULL,
    start_ms bigint NOT NULL,
    end_ms bigint NOT NULL,
    mask bigint NOT NULL,
    base bigint,
    PRIMARY KEY (segment_id, window_kind, start_ms, number)
);

-- The sums of a window, per path and set of buckets; amounts in two halves: high * 2^32 + low. No key: ''.
CREATE TABLE holdfast.rollup_sum (
    segment_id bigint NOT NULL,
    number bigint NOT NULL,
    window_kind text COLLATE "C" NOT NULL,
    start_ms bigint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    team text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    bucket_mask bigint NOT NULL,
    rows_cnt bigint NOT NULL,
    held_invocations bigint NOT NULL,
    held_tokens_high bigint NOT NULL,
    held_tokens_low bigint NOT NULL,
    held_cost_high bigint NOT NULL,
    held_cost_low bigint NOT NULL,
    charged_invocations bigint NOT NULL,
    charged_tokens_high bigint NOT NULL,
    charged_tokens_low bigint NOT NULL,
    charged_cost_high bigint NOT NULL,
    charged_cost_low bigint NOT NULL,
    PRIMARY KEY (segment_id, number, window_kind, start_ms, tenant, team, key, bucket_mask)
);

-- The meters up to a rollup's end. No model: ''.
CREATE TABLE holdfast.rollup_meter (
    segment_id bigint NOT NULL,
    number bigint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    capability text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    requests bigint NOT NULL,
    failures bigint NOT NULL,
    degraded bigint NOT NULL,
    reserved_micros bigint NOT NULL,
    settled_micros bigint NOT NULL,
    PRIMARY KEY (segment_id, number, tenant, capability, model)
);

-- The reservations that were open at a rollup's end.
CREATE TABLE holdfast.rollup_open (
    segment_id bigint NOT NULL,
    number bigint NOT NULL,
    reservation_seq bigint NOT NULL,
    PRIMARY KEY (segment_id, number, reservation_seq)
);

-- What each receipt adds to the sums: amounts in two halves, so that no sum of 64 bits overflows.
CREATE VIEW holdfast.sum_row AS
SELECT
    segment_id, seq, window_ms, tenant, coalesce(team, '') AS team, coalesce(key, '') AS key, bucket_mask,
    held_invocations,
    held_tokens >> 32 AS held_tokens_high, held_tokens & 4294967295 AS held_tokens_low,
    held_cost_micros >> 32 AS held_cost_high, held_cost_micros & 4294967295 AS held_cost_low,
    charged_invocations,
    charged_tokens >> 32 AS charged_tokens_high, charged_tokens & 4294967295 AS charged_tokens_low,
    charged_cost_micros >> 32 AS charged_cost_high, charged_cost_micros & 4294967295 AS charged_cost_low
FROM holdfast.every_receipt
WHERE bucket_mask IS NOT NULL;

GRANT SELECT ON holdfast.rollup, holdfast.rollup_window, holdfast.rollup_sum, holdfast.rollup_meter, holdfast.rollup_open,
    holdfast.sum_row TO holdfast_runtime, holdfast_reader;
GRANT INSERT ON holdfast.rollup, holdfast.rollup_window, holdfast.rollup_sum, holdfast.rollup_meter, holdfast.rollup_open
    TO holdfast_runtime;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.rollup
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();
ALTER TABLE holdfast.rollup ENABLE ALWAYS TRIGGER append_only; -- also under session_replication_role = replica
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.rollup_window
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();
ALTER TABLE holdfast.rollup_window ENABLE ALWAYS TRIGGER append_only; -- also under session_replication_role = replica
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.rollup_sum
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();
ALTER TABLE holdfast.rollup_sum ENABLE ALWAYS TRIGGER append_only; -- also under session_replication_role = replica
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.rollup_meter
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();
ALTER TABLE holdfast.rollup_meter ENABLE ALWAYS TRIGGER append_only; -- also under session_replication_role = replica
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.rollup_open
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();
ALTER TABLE holdfast.rollup_open ENABLE ALWAYS TRIGGER append_only; -- also under session_replication_role = replica
