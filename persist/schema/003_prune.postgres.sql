-- Retention in PostgreSQL: which receipts are gone by rule. Run by `holdfast store init`, in one transaction.
-- persist/README.md explains tables and columns.

-- One range of receipts [first_seq, next_seq) that `holdfast store prune` took away: it ends with a batch, and a rollup covers it.
CREATE TABLE holdfast.prune (
    segment_id bigint NOT NULL,
    number bigint NOT NULL,
    made_ms bigint NOT NULL,
    made_by text COLLATE "C" NOT NULL,
    first_seq bigint NOT NULL,
    next_seq bigint NOT NULL,
    rows_cnt bigint NOT NULL,
    kept_cnt bigint NOT NULL,
    batch_number bigint NOT NULL,
    batch_digest bytea NOT NULL,
    rollup_number bigint NOT NULL,
    rollup_digest bytea NOT NULL,
    before bytea NOT NULL,
    digest bytea NOT NULL,
    PRIMARY KEY (segment_id, number)
);

-- The owner alone writes it.
GRANT SELECT ON holdfast.prune TO holdfast_runtime, holdfast_reader;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.prune
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();
ALTER TABLE holdfast.prune ENABLE ALWAYS TRIGGER append_only; -- also under session_replication_role = replica
