-- The schema of holdfast in PostgreSQL, version 1. Run by `holdfast store init`, in one transaction, by its owner to be.
-- Never changed once released: what comes later is a file of its own. persist/README.md explains tables and columns.

CREATE SCHEMA holdfast;

-- ---- roles: the owner is whoever runs this; PUBLIC has nothing ----------------------------------------------------

DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['holdfast_runtime', 'holdfast_reader'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            END IF;
        EXCEPTION
            -- Somebody else made it in this very moment, for another database of this server.
            WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END LOOP;
END
$$;

-- So that the owner can run the daemon too, with no more than the runtime's rights (SET ROLE).
DO $$
BEGIN
    IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        GRANT holdfast_runtime, holdfast_reader TO CURRENT_USER;
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN NULL;
END
$$;

REVOKE ALL ON SCHEMA holdfast FROM PUBLIC;
GRANT USAGE ON SCHEMA holdfast TO holdfast_runtime, holdfast_reader;

-- ---- tables -------------------------------------------------------------------------------------------------------

CREATE TABLE holdfast.migration (
    version bigint PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    checksum text COLLATE "C" NOT NULL, -- SHA-256 of the schema file, in hexadecimal
    applied_ms bigint NOT NULL
);

-- Segment names: rows refer to them by number.
CREATE TABLE holdfast.segment (
    segment_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE holdfast.batch (
    segment_id bigint NOT NULL,
    number bigint NOT NULL,
    epoch bigint NOT NULL,
    first_seq bigint NOT NULL,
    rows_cnt bigint NOT NULL,
    committed_ms bigint NOT NULL,
    before bytea NOT NULL,
    digest bytea NOT NULL,
    PRIMARY KEY (segment_id, number)
);
-- From an instant to the first row that can be of it: rows need no index on time.
CREATE INDEX batch_committed ON holdfast.batch (segment_id, committed_ms);

-- In partitions, so that retention drops a table instead of deleting rows; ensure_partition makes them.
CREATE TABLE holdfast.receipt (
    segment_id bigint NOT NULL,
    version bigint NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    made_ms bigint NOT NULL,
    window_ms bigint,
    expires_at_ms bigint,
    reservation_seq bigint,
    held_invocations bigint NOT NULL,
    held_tokens bigint NOT NULL,
    held_cost_micros bigint NOT NULL,
    charged_invocations bigint NOT NULL,
    charged_tokens bigint NOT NULL,
    charged_cost_micros bigint NOT NULL,
    bucket_mask bigint,
    hold_tokens bigint,
    hold_cost_micros bigint,
    extend_calls bigint,
    input_tokens bigint,
    max_output_tokens bigint,
    requested_tokens bigint,
    requested_cost_micros bigint,
    economy_tokens bigint,
    economy_cost_micros bigint,
    requested_ttl_ms bigint,
    input_micros_per_mtok bigint,
    output_micros_per_mtok bigint,
    cached_input_micros_per_mtok bigint,
    cache_write_input_micros_per_mtok bigint,
    model_max_output_tokens bigint,
    usage_input_tokens bigint,
    usage_output_tokens bigint,
    usage_cached_input_tokens bigint,
    usage_cache_write_input_tokens bigint,
    usage_cost_micros bigint,
    actual_tokens bigint,
    actual_cost_micros bigint,
    released_tokens bigint,
    released_cost_micros bigint,
    overage_tokens bigint,
    overage_cost_micros bigint,
    policy_revision bigint,
    credit_micros bigint,
    credit_before_micros bigint,
    credit_after_micros bigint,
    gap_from_ms bigint,
    gap_until_ms bigint,
    conflict boolean NOT NULL,
    dispatched boolean,
    usage_known boolean,
    quota_exceeded boolean,
    late boolean,
    kind text COLLATE "C" NOT NULL,
    admission text COLLATE "C",
    form text COLLATE "C",
    on_expiry text COLLATE "C",
    on_overage text COLLATE "C",
    basis text COLLATE "C",
    cost_source text COLLATE "C",
    outcome text COLLATE "C",
    credit_window text COLLATE "C",
    id text COLLATE "C",
    tenant text COLLATE "C",
    team text COLLATE "C",
    key text COLLATE "C",
    capability text COLLATE "C",
    model text COLLATE "C",
    model_asked text COLLATE "C",
    economy_model text COLLATE "C",
    price_revision text COLLATE "C",
    currency text COLLATE "C",
    ref text COLLATE "C",
    made_by text COLLATE "C",
    reason text COLLATE "C",
    details text COLLATE "C",
    buckets text COLLATE "C",
    reservation_digest bytea,
    digest bytea NOT NULL,
    PRIMARY KEY (segment_id, seq)
) PARTITION BY RANGE (seq);
-- The fence (is this id in the store already?) and the lookup by id.
CREATE INDEX receipt_id ON holdfast.receipt (segment_id, id, seq) WHERE kind = 'reservation';
-- From a reservation to what refers to it; fills from the right like the primary key.
CREATE INDEX receipt_reservation ON holdfast.receipt (segment_id, reservation_seq) WHERE kind <> 'reservation';
-- The few rows that are of no reservation; costs the many nothing.
CREATE INDEX receipt_rare ON holdfast.receipt (segment_id, kind, seq) WHERE kind IN ('epoch', 'policy', 'credit');

-- Rows that the table of receipts refused, whole, with the reason.
CREATE TABLE holdfast.conflict (
    segment_id bigint NOT NULL,
    version bigint NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    made_ms bigint NOT NULL,
    window_ms bigint,
    expires_at_ms bigint,
    reservation_seq bigint,
    held_invocations bigint NOT NULL,
    held_tokens bigint NOT NULL,
    held_cost_micros bigint NOT NULL,
    charged_invocations bigint NOT NULL,
    charged_tokens bigint NOT NULL,
    charged_cost_micros bigint NOT NULL,
    bucket_mask bigint,
    hold_tokens bigint,
    hold_cost_micros bigint,
    extend_calls bigint,
    input_tokens bigint,
    max_output_tokens bigint,
    requested_tokens bigint,
    requested_cost_micros bigint,
    economy_tokens bigint,
    economy_cost_micros bigint,
    requested_ttl_ms bigint,
    input_micros_per_mtok bigint,
    output_micros_per_mtok bigint,
    cached_input_micros_per_mtok bigint,
    cache_write_input_micros_per_mtok bigint,
    model_max_output_tokens bigint,
    usage_input_tokens bigint,
    usage_output_tokens bigint,
    usage_cached_input_tokens bigint,
    usage_cache_write_input_tokens bigint,
    usage_cost_micros bigint,
    actual_tokens bigint,
    actual_cost_micros bigint,
    released_tokens bigint,
    released_cost_micros bigint,
    overage_tokens bigint,
    overage_cost_micros bigint,
    policy_revision bigint,
    credit_micros bigint,
    credit_before_micros bigint,
    credit_after_micros bigint,
    gap_from_ms bigint,
    gap_until_ms bigint,
    conflict boolean NOT NULL,
    dispatched boolean,
    usage_known boolean,
    quota_exceeded boolean,
    late boolean,
    kind text COLLATE "C" NOT NULL,
    admission text COLLATE "C",
    form text COLLATE "C",
    on_expiry text COLLATE "C",
    on_overage text COLLATE "C",
    basis text COLLATE "C",
    cost_source text COLLATE "C",
    outcome text COLLATE "C",
    credit_window text COLLATE "C",
    id text COLLATE "C",
    tenant text COLLATE "C",
    team text COLLATE "C",
    key text COLLATE "C",
    capability text COLLATE "C",
    model text COLLATE "C",
    model_asked text COLLATE "C",
    economy_model text COLLATE "C",
    price_revision text COLLATE "C",
    currency text COLLATE "C",
    ref text COLLATE "C",
    made_by text COLLATE "C",
    reason text COLLATE "C",
    details text COLLATE "C",
    buckets text COLLATE "C",
    reservation_digest bytea,
    digest bytea NOT NULL,
    batch_number bigint NOT NULL,
    refusal text COLLATE "C" NOT NULL,
    PRIMARY KEY (segment_id, seq, batch_number)
);
CREATE INDEX conflict_id ON holdfast.conflict (segment_id, id, seq) WHERE kind = 'reservation';

-- Of pruned receipts: epochs, policies and credits, and those whose batch has receipts that stay. Only retention adds to it.
CREATE TABLE holdfast.kept (LIKE holdfast.receipt);
ALTER TABLE holdfast.kept ADD PRIMARY KEY (segment_id, seq);
CREATE INDEX kept_id ON holdfast.kept (segment_id, id, seq) WHERE kind = 'reservation';
CREATE INDEX kept_reservation ON holdfast.kept (segment_id, reservation_seq) WHERE kind <> 'reservation';
CREATE INDEX kept_rare ON holdfast.kept (segment_id, kind, seq) WHERE kind IN ('epoch', 'policy', 'credit');

-- ---- views: the columns of both tables have the same names --------------------------------------------------------

CREATE VIEW holdfast.every_receipt AS
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
    false AS aside
FROM holdfast.receipt
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
    true AS aside
FROM holdfast.conflict
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
    false AS aside
FROM holdfast.kept;

-- Which partitions of receipts there are, and the sequence numbers [first, next) of each.
CREATE VIEW holdfast.partition AS
SELECT
    c.relname AS name,
    CAST(substring(pg_get_expr(c.relpartbound, c.oid) FROM 'FROM \(''(\d+)''\)') AS bigint) AS first,
    CAST(substring(pg_get_expr(c.relpartbound, c.oid) FROM 'TO \(''(\d+)''\)') AS bigint) AS next
FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = CAST('holdfast.receipt' AS regclass);

-- What each receipt adds to the meters of semantics.md; a conflicting reservation and all that refers to it is in none.
CREATE VIEW holdfast.meter_row AS
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
FROM holdfast.every_receipt
WHERE NOT conflict AND bucket_mask IS NOT NULL;

-- The meters.
CREATE VIEW holdfast.meter AS
SELECT
    segment_id, tenant, capability, model,
    CAST(sum(requests) AS bigint) AS requests,
    CAST(sum(failures) AS bigint) AS failures,
    CAST(sum(degraded) AS bigint) AS degraded,
    CAST(sum(reserved_micros) AS bigint) AS reserved_micros,
    CAST(sum(settled_micros) AS bigint) AS settled_micros
FROM holdfast.meter_row
GROUP BY segment_id, tenant, capability, model;

-- ---- rights -------------------------------------------------------------------------------------------------------

REVOKE ALL ON ALL TABLES IN SCHEMA holdfast FROM PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO holdfast_runtime, holdfast_reader;
GRANT INSERT ON holdfast.segment, holdfast.batch, holdfast.receipt, holdfast.conflict TO holdfast_runtime;

-- ---- append only, for the owner too -------------------------------------------------------------------------------

CREATE FUNCTION holdfast.refuse_change() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('holdfast.retention', true) = 'on' THEN
        RETURN NULL; -- of a statement's trigger: go on
    END IF;
    RAISE EXCEPTION 'holdfast only ever inserts: % of %.% is refused', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege',
              HINT = 'Retention, by the owner alone: SET LOCAL holdfast.retention = ''on'' in the same transaction.';
END
$$;
REVOKE ALL ON FUNCTION holdfast.refuse_change() FROM PUBLIC;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.migration
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();
ALTER TABLE holdfast.migration ENABLE ALWAYS TRIGGER append_only; -- also under session_replication_role = replica
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.segment
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();
ALTER TABLE holdfast.segment ENABLE ALWAYS TRIGGER append_only; -- also under session_replication_role = replica
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.batch
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();
ALTER TABLE holdfast.batch ENABLE ALWAYS TRIGGER append_only; -- also under session_replication_role = replica
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.receipt
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();
ALTER TABLE holdfast.receipt ENABLE ALWAYS TRIGGER append_only; -- also under session_replication_role = replica
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.conflict
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();
ALTER TABLE holdfast.conflict ENABLE ALWAYS TRIGGER append_only; -- also under session_replication_role = replica
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.kept
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();
ALTER TABLE holdfast.kept ENABLE ALWAYS TRIGGER append_only; -- also under session_replication_role = replica

-- ---- partitions of receipts: receipt_p<first>, shared by all segments ----------------------------------------------

-- How many sequence numbers the partitions made from now on have. The owner may replace it: few partitions keep the lookup of an id
-- cheap, which asks each one; small ones let retention go closer.
CREATE FUNCTION holdfast.partition_rows() RETURNS bigint LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS 'SELECT 16777216::bigint';
REVOKE ALL ON FUNCTION holdfast.partition_rows() FROM PUBLIC;

-- Makes the partition that takes a sequence number, unless it is there, and tells which numbers [first, next) it takes. Locks out who
-- drops partitions until the transaction ends. Nobody who writes at that moment waits for it.
CREATE FUNCTION holdfast.ensure_partition(seq bigint, OUT first bigint, OUT next bigint) LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    rows_cnt bigint := holdfast.partition_rows();
    below bigint;
    above bigint;
    child text;
BEGIN
    IF seq IS NULL OR seq < 1 OR rows_cnt < 1 THEN
        RAISE EXCEPTION 'no partition takes receipt %', seq USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- The next batch of some segment, and nothing beyond: who may call this may not fill the schema with tables.
    IF seq > 4194304 + (
        SELECT coalesce(max(e.next), 1) FROM holdfast.segment s, LATERAL (
            SELECT b.first_seq + b.rows_cnt AS next FROM holdfast.batch b
            WHERE b.segment_id = s.segment_id ORDER BY b.number DESC LIMIT 1) e)
    THEN
        RAISE EXCEPTION 'receipt % is not the next one of any segment', seq USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('holdfast partitions', 0));
    SELECT p.first, p.next INTO first, next FROM holdfast.partition p WHERE p.first <= seq AND p.next > seq;
    IF first IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT max(p.next) FILTER (WHERE p.next <= seq), min(p.first) FILTER (WHERE p.first > seq) INTO below, above
    FROM holdfast.partition p;
    first := coalesce(below, 1);
    IF (seq - first) / rows_cnt > 0 THEN
        first := first + (seq - first) / rows_cnt * rows_cnt;
    END IF;
    next := least(first + rows_cnt, above);
    child := 'receipt_p' || first;
    EXECUTE format('CREATE TABLE holdfast.%I (LIKE holdfast.receipt INCLUDING ALL)', child);
    EXECUTE format('REVOKE ALL ON holdfast.%I FROM PUBLIC', child);
    EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.%I '
                   'FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change()', child);
    EXECUTE format('ALTER TABLE holdfast.%I ENABLE ALWAYS TRIGGER append_only', child);
    EXECUTE format('ALTER TABLE holdfast.receipt ATTACH PARTITION holdfast.%I FOR VALUES FROM (%s) TO (%s)', child, first, next);
END
$$;
REVOKE ALL ON FUNCTION holdfast.ensure_partition(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION holdfast.ensure_partition(bigint) TO holdfast_runtime;

SELECT holdfast.ensure_partition(1);
