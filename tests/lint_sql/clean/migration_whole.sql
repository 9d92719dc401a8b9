ALTER TABLE expenses ADD COLUMN worker_id text, ADD COLUMN idempotency_key text;
UPDATE expenses SET worker_id = 'historical-backfill', idempotency_key = md5('historical-backfill:' || id::text)
WHERE idempotency_key IS NULL OR worker_id IS NULL;
ALTER TABLE expenses ALTER COLUMN worker_id SET NOT NULL, ALTER COLUMN idempotency_key SET NOT NULL;
ALTER TABLE expenses ADD CONSTRAINT expenses_worker_idem_key UNIQUE (worker_id, idempotency_key);
-- ====
-- A new table has no rows to fill.
CREATE TABLE confirmation_emails (run_id text NOT NULL, expense_id bigint NOT NULL, idempotency_key text NOT NULL,
    UNIQUE (run_id, expense_id), CONSTRAINT mails_idem_key UNIQUE (idempotency_key));
-- ====
-- The index first, without a lock on writers, and the constraint of it last.
ALTER TABLE expenses ADD COLUMN IF NOT EXISTS idempotency_key text;
DO $$
BEGIN
    UPDATE expenses SET idempotency_key = md5(id::text) WHERE idempotency_key IS NULL;
END $$;
ALTER TABLE expenses ALTER COLUMN idempotency_key SET NOT NULL;
CREATE UNIQUE INDEX CONCURRENTLY expenses_idem_idx ON expenses (idempotency_key);
ALTER TABLE expenses ADD CONSTRAINT expenses_idem_key UNIQUE USING INDEX expenses_idem_idx;
-- ====
-- migrate:up
ALTER TABLE expenses ADD COLUMN idempotency_key text;
UPDATE expenses SET idempotency_key = md5(id::text) WHERE idempotency_key IS NULL;
ALTER TABLE expenses ALTER COLUMN idempotency_key SET NOT NULL;
ALTER TABLE expenses ADD CONSTRAINT expenses_idem_key UNIQUE (idempotency_key);
-- migrate:down
ALTER TABLE expenses DROP CONSTRAINT expenses_idem_key;
ALTER TABLE expenses DROP COLUMN idempotency_key;
-- ====
-- Not about keys.
DROP TABLE old_reports;
ALTER TABLE users DROP COLUMN fax;
-- ====
-- onceward: dialect sqlite
-- SQLite's own way to change a table.
CREATE TABLE expenses_new (id INTEGER PRIMARY KEY, idempotency_key TEXT NOT NULL UNIQUE);
INSERT INTO expenses_new (id, idempotency_key) SELECT id, 'old:' || id FROM expenses;
DROP TABLE expenses;
ALTER TABLE expenses_new RENAME TO expenses;
