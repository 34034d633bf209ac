-- The fence as an index in PostgreSQL: an id gets into a partition of receipts but once, conflicts apart. Run by `holdfast store init`,
-- in one transaction, which reads every partition once; daemons wait meanwhile. persist/README.md explains it.

-- Everything at once and first: a daemon that has looked ids up and waits for the first index would keep the old one from being
-- dropped. In the order of ensure_partition.
SELECT pg_advisory_xact_lock(hashtextextended('holdfast partitions', 0));
LOCK TABLE holdfast.receipt IN ACCESS EXCLUSIVE MODE;

-- Which reservations of a segment are conflicts: few, and costs the others nothing.
CREATE INDEX receipt_conflict ON holdfast.receipt (segment_id, seq) WHERE conflict AND kind = 'reservation';

-- The index of ids of one partition: unique, unless ids came twice in it before there was this index; then the daemon asks for each
-- id, as it did before. Not of the whole table: that would have to contain seq, which is in no id twice. The id comes first, and then
-- the newest conflict: looked for by id alone, the planner has no other index to take.
CREATE FUNCTION holdfast.index_ids(child text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    columns text := '(id, (CASE WHEN conflict THEN seq ELSE 0 END), segment_id) WHERE kind = ''reservation''';
BEGIN
    EXECUTE format('CREATE UNIQUE INDEX %I ON holdfast.%I ', child || '_once', child) || columns;
EXCEPTION
    WHEN unique_violation THEN
        EXECUTE format('CREATE INDEX %I ON holdfast.%I ', child || '_ids', child) || columns;
END
$$;
REVOKE ALL ON FUNCTION holdfast.index_ids(text) FROM PUBLIC;

SELECT holdfast.index_ids(name) FROM holdfast.partition;
DROP INDEX holdfast.receipt_id;

-- As before, and the index of ids.
CREATE OR REPLACE FUNCTION holdfast.ensure_partition(seq bigint, OUT first bigint, OUT next bigint) LANGUAGE plpgsql
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
    PERFORM holdfast.index_ids(child);
    EXECUTE format('REVOKE ALL ON holdfast.%I FROM PUBLIC', child);
    EXECUTE format('CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.%I '
                   'FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change()', child);
    EXECUTE format('ALTER TABLE holdfast.%I ENABLE ALWAYS TRIGGER append_only', child);
    EXECUTE format('ALTER TABLE holdfast.receipt ATTACH PARTITION holdfast.%I FOR VALUES FROM (%s) TO (%s)', child, first, next);
END
$$;
