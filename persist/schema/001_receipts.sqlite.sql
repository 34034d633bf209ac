-- The schema of holdfast in SQLite, version 1. Run by `holdfast store init`, in one transaction.
-- Never changed once released: what comes later is a file of its own. persist/README.md explains tables and columns.

CREATE TABLE migration (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    checksum TEXT NOT NULL, -- SHA-256 of the schema file, in hexadecimal
    applied_ms INTEGER NOT NULL
) STRICT;

-- Segment names: rows refer to them by number.
CREATE TABLE segment (
    segment_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE batch (
    segment_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    rows_cnt INTEGER NOT NULL,
    committed_ms INTEGER NOT NULL,
    before BLOB NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (segment_id, number)
) STRICT;
-- From an instant to the first row that can be of it: rows need no index on time.
CREATE INDEX batch_committed ON batch (segment_id, committed_ms);

CREATE TABLE receipt (
    segment_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    made_ms INTEGER NOT NULL,
    window_ms INTEGER,
    expires_at_ms INTEGER,
    reservation_seq INTEGER,
    held_invocations INTEGER NOT NULL,
    held_tokens INTEGER NOT NULL,
    held_cost_micros INTEGER NOT NULL,
    charged_invocations INTEGER NOT NULL,
    charged_tokens INTEGER NOT NULL,
    charged_cost_micros INTEGER NOT NULL,
    bucket_mask INTEGER,
    hold_tokens INTEGER,
    hold_cost_micros INTEGER,
    extend_calls INTEGER,
    input_tokens INTEGER,
    max_output_tokens INTEGER,
    requested_tokens INTEGER,
    requested_cost_micros INTEGER,
    economy_tokens INTEGER,
    economy_cost_micros INTEGER,
    requested_ttl_ms INTEGER,
    input_micros_per_mtok INTEGER,
    output_micros_per_mtok INTEGER,
    cached_input_micros_per_mtok INTEGER,
    cache_write_input_micros_per_mtok INTEGER,
    model_max_output_tokens INTEGER,
    usage_input_tokens INTEGER,
    usage_output_tokens INTEGER,
    usage_cached_input_tokens INTEGER,
    usage_cache_write_input_tokens INTEGER,
    usage_cost_micros INTEGER,
    actual_tokens INTEGER,
    actual_cost_micros INTEGER,
    released_tokens INTEGER,
    released_cost_micros INTEGER,
    overage_tokens INTEGER,
    overage_cost_micros INTEGER,
    policy_revision INTEGER,
    credit_micros INTEGER,
    credit_before_micros INTEGER,
    credit_after_micros INTEGER,
    gap_from_ms INTEGER,
    gap_until_ms INTEGER,
    conflict INTEGER NOT NULL,
    dispatched INTEGER,
    usage_known INTEGER,
    quota_exceeded INTEGER,
    late INTEGER,
    admission TEXT,
    form TEXT,
    on_expiry TEXT,
    on_overage TEXT,
    basis TEXT,
    cost_source TEXT,
    outcome TEXT,
    credit_window TEXT,
    id TEXT,
    tenant TEXT,
    team TEXT,
    key TEXT,
    capability TEXT,
    model TEXT,
    model_asked TEXT,
    economy_model TEXT,
    price_revision TEXT,
    currency TEXT,
    ref TEXT,
    made_by TEXT,
    reason TEXT,
    details TEXT,
    buckets TEXT,
    reservation_digest BLOB,
    digest BLOB NOT NULL,
    PRIMARY KEY (segment_id, seq)
) STRICT;
-- The fence (is this id in the store already?) and the lookup by id.
CREATE INDEX receipt_id ON receipt (segment_id, id, seq) WHERE kind = 'reservation';
-- From a reservation to what refers to it; fills from the right like the primary key.
CREATE INDEX receipt_reservation ON receipt (segment_id, reservation_seq) WHERE kind <> 'reservation';
-- The few rows that are of no reservation; costs the many nothing.
CREATE INDEX receipt_rare ON receipt (segment_id, kind, seq) WHERE kind IN ('epoch', 'policy', 'credit');

-- Rows that the table of receipts refused, whole, with the reason.
CREATE TABLE conflict (
    segment_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    made_ms INTEGER NOT NULL,
    window_ms INTEGER,
    expires_at_ms INTEGER,
    reservation_seq INTEGER,
    held_invocations INTEGER NOT NULL,
    held_tokens INTEGER NOT NULL,
    held_cost_micros INTEGER NOT NULL,
    charged_invocations INTEGER NOT NULL,
    charged_tokens INTEGER NOT NULL,
    charged_cost_micros INTEGER NOT NULL,
    bucket_mask INTEGER,
    hold_tokens INTEGER,
    hold_cost_micros INTEGER,
    extend_calls INTEGER,
    input_tokens INTEGER,
    max_output_tokens INTEGER,
    requested_tokens INTEGER,
    requested_cost_micros INTEGER,
    economy_tokens INTEGER,
    economy_cost_micros INTEGER,
    requested_ttl_ms INTEGER,
    input_micros_per_mtok INTEGER,
    output_micros_per_mtok INTEGER,
    cached_input_micros_per_mtok INTEGER,
    cache_write_input_micros_per_mtok INTEGER,
    model_max_output_tokens INTEGER,
    usage_input_tokens INTEGER,
    usage_output_tokens INTEGER,
    usage_cached_input_tokens INTEGER,
    usage_cache_write_input_tokens INTEGER,
    usage_cost_micros INTEGER,
    actual_tokens INTEGER,
    actual_cost_micros INTEGER,
    released_tokens INTEGER,
    released_cost_micros INTEGER,
    overage_tokens INTEGER,
    overage_cost_micros INTEGER,
    policy_revision INTEGER,
    credit_micros INTEGER,
    credit_before_micros INTEGER,
    credit_after_micros INTEGER,
    gap_from_ms INTEGER,
    gap_until_ms INTEGER,
    conflict INTEGER NOT NULL,
    dispatched INTEGER,
    usage_known INTEGER,
    quota_exceeded INTEGER,
    late INTEGER,
    admission TEXT,
    form TEXT,
    on_expiry TEXT,
    on_overage TEXT,
    basis TEXT,
    cost_source TEXT,
    outcome TEXT,
    credit_window TEXT,
    id TEXT,
    tenant TEXT,
    team TEXT,
    key TEXT,
    capability TEXT,
    model TEXT,
    model_asked TEXT,
    economy_model TEXT,
    price_revision TEXT,
    currency TEXT,
    ref TEXT,
    made_by TEXT,
    reason TEXT,
    details TEXT,
    buckets TEXT,
    reservation_digest BLOB,
    digest BLOB NOT NULL,
    batch_number INTEGER NOT NULL,
    refusal TEXT NOT NULL,
    PRIMARY KEY (segment_id, seq, batch_number)
) STRICT;
CREATE INDEX conflict_id ON conflict (segment_id, id, seq) WHERE kind = 'reservation';

-- Of pruned receipts: epochs, policies and credits, and those whose batch has receipts that stay. Only retention adds to it.
CREATE TABLE kept (
    segment_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    made_ms INTEGER NOT NULL,
    window_ms INTEGER,
    expires_at_ms INTEGER,
    reservation_seq INTEGER,
    held_invocations INTEGER NOT NULL,
    held_tokens INTEGER NOT NULL,
    held_cost_micros INTEGER NOT NULL,
    charged_invocations INTEGER NOT NULL,
    charged_tokens INTEGER NOT NULL,
    charged_cost_micros INTEGER NOT NULL,
    bucket_mask INTEGER,
    hold_tokens INTEGER,
    hold_cost_micros INTEGER,
    extend_calls INTEGER,
    input_tokens INTEGER,
    max_output_tokens INTEGER,
    requested_tokens INTEGER,
    requested_cost_micros INTEGER,
    economy_tokens INTEGER,
    economy_cost_micros INTEGER,
    requested_ttl_ms INTEGER,
    input_micros_per_mtok INTEGER,
    output_micros_per_mtok INTEGER,
    cached_input_micros_per_mtok INTEGER,
    cache_write_input_micros_per_mtok INTEGER,
    model_max_output_tokens INTEGER,
    usage_input_tokens INTEGER,
    usage_output_tokens INTEGER,
    usage_cached_input_tokens INTEGER,
    usage_cache_write_input_tokens INTEGER,
    usage_cost_micros INTEGER,
    actual_tokens INTEGER,
    actual_cost_micros INTEGER,
    released_tokens INTEGER,
    released_cost_micros INTEGER,
    overage_tokens INTEGER,
    overage_cost_micros INTEGER,
    policy_revision INTEGER,
    credit_micros INTEGER,
    credit_before_micros INTEGER,
    credit_after_micros INTEGER,
    gap_from_ms INTEGER,
    gap_until_ms INTEGER,
    conflict INTEGER NOT NULL,
    dispatched INTEGER,
    usage_known INTEGER,
    quota_exceeded INTEGER,
    late INTEGER,
    admission TEXT,
    form TEXT,
    on_expiry TEXT,
    on_overage TEXT,
    basis TEXT,
    cost_source TEXT,
    outcome TEXT,
    credit_window TEXT,
    id TEXT,
    tenant TEXT,
    team TEXT,
    key TEXT,
    capability TEXT,
    model TEXT,
    model_asked TEXT,
    economy_model TEXT,
    price_revision TEXT,
    currency TEXT,
    ref TEXT,
    made_by TEXT,
    reason TEXT,
    details TEXT,
    buckets TEXT,
    reservation_digest BLOB,
    digest BLOB NOT NULL,
    PRIMARY KEY (segment_id, seq)
) STRICT;
CREATE INDEX kept_id ON kept (segment_id, id, seq) WHERE kind = 'reservation';
CREATE INDEX kept_reservation ON kept (segment_id, reservation_seq) WHERE kind <> 'reservation';
CREATE INDEX kept_rare ON kept (segment_id, kind, seq) WHERE kind IN ('epoch', 'policy', 'credit');

-- ---- views: the columns of both tables have the same names --------------------------------------------------------

CREATE VIEW every_receipt AS
SELECT
    segment_id, kind, version, epoch, seq, made_ms, window_ms, expires_at_ms, reservation_seq, held_invocations,
    held_tokens, held_cost_micros, charged_invocations, charged_tokens, charged_cost_micros, bucket_mask, hold_tokens,
    hold_cost_micros, extend_calls, input_tokens, max_output_tokens, requested_tokens, requested_cost_micros,
    economy_tokens, economy_cost_micros, requested_ttl_ms, input_micros_per_mtok, output_micros_per_mtok,
    cached_input_micros_per_mtok, cache_write_input_micros_per_mtok, model_max_output_tokens, usage_input_tokens,
    usage_output_tokens, usage_cached_input_tokens, usage_cache_write_input_tokens, usage_cost_micros, actual_tokens,
    actual_cost_micros, released_tokens, released_cost_micros, overage_tokens, overage_cost_micros, policy_revision,
    credit_micros, credit_before_micros, credit_after_micros, gap_from_ms, gap_until_ms, conflict, dispatched,
    usage_known, quota_exceeded, late, admission, form, on_expiry, on_overage, basis, cost_source, outcome,
    credit_window, id, tenant, team, key, capability, model, model_asked, economy_model, price_revision, currency,
    ref, made_by, reason, details, buckets, reservation_digest, digest,
    0 AS aside
FROM receipt
UNION ALL
SELECT
    segment_id, kind, version, epoch, seq, made_ms, window_ms, expires_at_ms, reservation_seq, held_invocations,
    held_tokens, held_cost_micros, charged_invocations, charged_tokens, charged_cost_micros, bucket_mask, hold_tokens,
    hold_cost_micros, extend_calls, input_tokens, max_output_tokens, requested_tokens, requested_cost_micros,
    economy_tokens, economy_cost_micros, requested_ttl_ms, input_micros_per_mtok, output_micros_per_mtok,
    cached_input_micros_per_mtok, cache_write_input_micros_per_mtok, model_max_output_tokens, usage_input_tokens,
    usage_output_tokens, usage_cached_input_tokens, usage_cache_write_input_tokens, usage_cost_micros, actual_tokens,
    actual_cost_micros, released_tokens, released_cost_micros, overage_tokens, overage_cost_micros, policy_revision,
    credit_micros, credit_before_micros, credit_after_micros, gap_from_ms, gap_until_ms, conflict, dispatched,
    usage_known, quota_exceeded, late, admission, form, on_expiry, on_overage, basis, cost_source, outcome,
    credit_window, id, tenant, team, key, capability, model, model_asked, economy_model, price_revision, currency,
    ref, made_by, reason, details, buckets, reservation_digest, digest,
    1 AS aside
FROM conflict
UNION ALL
SELECT
    segment_id, kind, version, epoch, seq, made_ms, window_ms, expires_at_ms, reservation_seq, held_invocations,
    held_tokens, held_cost_micros, charged_invocations, charged_tokens, charged_cost_micros, bucket_mask, hold_tokens,
    hold_cost_micros, extend_calls, input_tokens, max_output_tokens, requested_tokens, requested_cost_micros,
    economy_tokens, economy_cost_micros, requested_ttl_ms, input_micros_per_mtok, output_micros_per_mtok,
    cached_input_micros_per_mtok, cache_write_input_micros_per_mtok, model_max_output_tokens, usage_input_tokens,
    usage_output_tokens, usage_cached_input_tokens, usage_cache_write_input_tokens, usage_cost_micros, actual_tokens,
    actual_cost_micros, released_tokens, released_cost_micros, overage_tokens, overage_cost_micros, policy_revision,
    credit_micros, credit_before_micros, credit_after_micros, gap_from_ms, gap_until_ms, conflict, dispatched,
    usage_known, quota_exceeded, late, admission, form, on_expiry, on_overage, basis, cost_source, outcome,
    credit_window, id, tenant, team, key, capability, model, model_asked, economy_model, price_revision, currency,
    ref, made_by, reason, details, buckets, reservation_digest, digest,
    0 AS aside
FROM kept;

-- What each receipt adds to the meters of semantics.md; a conflicting reservation and all that refers to it is in none.
CREATE VIEW meter_row AS
SELECT
    segment_id, seq, tenant, capability, model,
    CASE kind WHEN 'reservation' THEN 1 WHEN 'release' THEN -1 ELSE 0 END AS requests,
    CASE WHEN kind IN ('expiry', 'retention') THEN 1
         WHEN kind = 'settlement' AND outcome = 'failure' THEN 1
         WHEN kind = 'late_settlement' AND outcome = 'success' THEN -1
         ELSE 0 END AS failures,
    CASE WHEN admission = 'degrade' AND kind = 'reservation' THEN 1
         WHEN admission = 'degrade' AND kind = 'release' THEN -1
         ELSE 0 END AS degraded,
    CASE WHEN kind IN ('reservation', 'extension', 'release', 'expiry', 'retention') THEN held_cost_micros
         ELSE 0 END AS reserved_micros,
    CASE WHEN kind IN ('settlement', 'late_settlement', 'resolution')
         THEN coalesce(actual_cost_micros, hold_cost_micros, 0)
         ELSE 0 END AS settled_micros
FROM every_receipt
WHERE NOT conflict AND bucket_mask IS NOT NULL;

-- The meters.
CREATE VIEW meter AS
SELECT
    segment_id, tenant, capability, model,
    CAST(sum(requests) AS bigint) AS requests,
    CAST(sum(failures) AS bigint) AS failures,
    CAST(sum(degraded) AS bigint) AS degraded,
    CAST(sum(reserved_micros) AS bigint) AS reserved_micros,
    CAST(sum(settled_micros) AS bigint) AS settled_micros
FROM meter_row
GROUP BY segment_id, tenant, capability, model;

-- ---- append only --------------------------------------------------------------------------------------------------

CREATE TRIGGER migration_no_update BEFORE UPDATE ON migration
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: UPDATE of migration is refused');
END;
CREATE TRIGGER migration_no_delete BEFORE DELETE ON migration
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: DELETE of migration is refused');
END;
CREATE TRIGGER segment_no_update BEFORE UPDATE ON segment
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: UPDATE of segment is refused');
END;
CREATE TRIGGER segment_no_delete BEFORE DELETE ON segment
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: DELETE of segment is refused');
END;
CREATE TRIGGER batch_no_update BEFORE UPDATE ON batch
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: UPDATE of batch is refused');
END;
CREATE TRIGGER batch_no_delete BEFORE DELETE ON batch
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: DELETE of batch is refused');
END;
CREATE TRIGGER receipt_no_update BEFORE UPDATE ON receipt
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: UPDATE of receipt is refused');
END;
CREATE TRIGGER receipt_no_delete BEFORE DELETE ON receipt
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: DELETE of receipt is refused');
END;
CREATE TRIGGER conflict_no_update BEFORE UPDATE ON conflict
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: UPDATE of conflict is refused');
END;
CREATE TRIGGER conflict_no_delete BEFORE DELETE ON conflict
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: DELETE of conflict is refused');
END;
CREATE TRIGGER kept_no_update BEFORE UPDATE ON kept
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: UPDATE of kept is refused');
END;
CREATE TRIGGER kept_no_delete BEFORE DELETE ON kept
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: DELETE of kept is refused');
END;
