-- INSERT OR REPLACE removes the row in its way without any trigger of DELETE (unless the connection says PRAGMA recursive_triggers),
-- so a row that is there is kept from the insert itself. The key is asked for, and the number of the row, which can be given too.
-- Run by `holdfast store init`, in one transaction.

CREATE TRIGGER migration_no_replace BEFORE INSERT ON migration
WHEN EXISTS (SELECT 1 FROM migration WHERE version = NEW.version)
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: to replace a migration is refused');
END;
CREATE TRIGGER segment_no_replace BEFORE INSERT ON segment
WHEN EXISTS (SELECT 1 FROM segment WHERE name = NEW.name)
    OR (NEW.segment_id > 0 AND EXISTS (SELECT 1 FROM segment WHERE segment_id = NEW.segment_id))
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: to replace a segment is refused');
END;
CREATE TRIGGER batch_no_replace BEFORE INSERT ON batch
WHEN EXISTS (SELECT 1 FROM batch WHERE segment_id = NEW.segment_id AND number = NEW.number)
    OR (NEW.rowid > 0 AND EXISTS (SELECT 1 FROM batch WHERE rowid = NEW.rowid))
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: to replace a batch is refused');
END;
CREATE TRIGGER receipt_no_replace BEFORE INSERT ON receipt
WHEN EXISTS (SELECT 1 FROM receipt WHERE segment_id = NEW.segment_id AND seq = NEW.seq)
    OR (NEW.rowid > 0 AND EXISTS (SELECT 1 FROM receipt WHERE rowid = NEW.rowid))
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: to replace a receipt is refused');
END;
CREATE TRIGGER conflict_no_replace BEFORE INSERT ON conflict
WHEN EXISTS (SELECT 1 FROM conflict
             WHERE segment_id = NEW.segment_id AND seq = NEW.seq AND batch_number = NEW.batch_number)
    OR (NEW.rowid > 0 AND EXISTS (SELECT 1 FROM conflict WHERE rowid = NEW.rowid))
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: to replace a row put aside is refused');
END;
CREATE TRIGGER rollup_no_replace BEFORE INSERT ON rollup
WHEN EXISTS (SELECT 1 FROM rollup WHERE segment_id = NEW.segment_id AND number = NEW.number)
    OR (NEW.rowid > 0 AND EXISTS (SELECT 1 FROM rollup WHERE rowid = NEW.rowid))
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: to replace a row of rollup is refused');
END;
CREATE TRIGGER rollup_window_no_replace BEFORE INSERT ON rollup_window
WHEN EXISTS (SELECT 1 FROM rollup_window WHERE segment_id = NEW.segment_id AND window_kind = NEW.window_kind
             AND start_ms = NEW.start_ms AND number = NEW.number)
    OR (NEW.rowid > 0 AND EXISTS (SELECT 1 FROM rollup_window WHERE rowid = NEW.rowid))
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: to replace a row of rollup_window is refused');
END;
CREATE TRIGGER rollup_sum_no_replace BEFORE INSERT ON rollup_sum
WHEN EXISTS (SELECT 1 FROM rollup_sum WHERE segment_id = NEW.segment_id AND number = NEW.number AND window_kind = NEW.window_kind AND start_ms = NEW.start_ms
             AND tenant = NEW.tenant AND team = NEW.team AND key = NEW.key AND bucket_mask = NEW.bucket_mask)
    OR (NEW.rowid > 0 AND EXISTS (SELECT 1 FROM rollup_sum WHERE rowid = NEW.rowid))
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: to replace a row of rollup_sum is refused');
END;
CREATE TRIGGER rollup_meter_no_replace BEFORE INSERT ON rollup_meter
WHEN EXISTS (SELECT 1 FROM rollup_meter WHERE segment_id = NEW.segment_id AND number = NEW.number
             AND tenant = NEW.tenant AND capability = NEW.capability AND model = NEW.model)
    OR (NEW.rowid > 0 AND EXISTS (SELECT 1 FROM rollup_meter WHERE rowid = NEW.rowid))
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: to replace a row of rollup_meter is refused');
END;
CREATE TRIGGER rollup_open_no_replace BEFORE INSERT ON rollup_open
WHEN EXISTS (SELECT 1 FROM rollup_open WHERE segment_id = NEW.segment_id
             AND number = NEW.number AND reservation_seq = NEW.reservation_seq)
    OR (NEW.rowid > 0 AND EXISTS (SELECT 1 FROM rollup_open WHERE rowid = NEW.rowid))
BEGIN
    SELECT RAISE(ABORT, 'holdfast only ever inserts: to replace a row of rollup_open is refused');
END;
