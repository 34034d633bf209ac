-- Retention in SQLite: which receipts are gone by rule. Run by `holdfast store init`, in one transaction.
-- persist/README.md explains tables and columns.

-- One range of receipts [first_seq, next_seq) that `holdfast store prune` took away: it ends with a batch, and a rollup covers it.
CREATE TABLE prune (
    segment_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    made_ms INTEGER NOT NULL,
    made_by TEXT NOT NULL,
    first_seq INTEGER NOT NULL,
    next_seq INTEGER NOT NULL,
    rows_cnt INTEGER NOT NULL,
    kept_cnt INTEGER NOT NULL,
    batch_number INTEGER NOT NULL,
    batch_digest BLOB NOT NULL,
    rollup_number INTEGER NOT NULL,
    rollup_digest BLOB NOT NULL,
    before BLOB NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (segment_id, number)
) STRICT;

CREATE TRIGGER prune_no_update BEFORE UPDATE ON prune
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: UPDATE of prune is refused');
END;
CREATE TRIGGER prune_no_delete BEFORE DELETE ON prune
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: DELETE of prune is refused');
END;
CREATE TRIGGER prune_no_replace BEFORE INSERT ON prune
WHEN EXISTS (SELECT 1 FROM prune WHERE segment_id = NEW.segment_id AND number = NEW.number)
    OR (NEW.rowid > 0 AND EXISTS (SELECT 1 FROM prune WHERE rowid = NEW.rowid))
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: to replace a row of prune is refused');
END;
CREATE TRIGGER kept_no_replace BEFORE INSERT ON kept
WHEN EXISTS (SELECT 1 FROM kept WHERE segment_id = NEW.segment_id AND seq = NEW.seq)
    OR (NEW.rowid > 0 AND EXISTS (SELECT 1 FROM kept WHERE rowid = NEW.rowid))
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: to replace a row of kept is refused');
END;
