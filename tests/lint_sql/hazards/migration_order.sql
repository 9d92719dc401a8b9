-- Each part is a migration of a table that has rows.
ALTER TABLE expenses ADD COLUMN idempotency_key text; -- HAZARD OW221
UPDATE expenses SET idempotency_key = md5(id::text) WHERE idempotency_key IS NULL;
ALTER TABLE expenses ALTER COLUMN idempotency_key SET NOT NULL;
-- ====
ALTER TABLE expenses ADD COLUMN idempotency_key text NOT NULL DEFAULT ''; -- HAZARD OW220
ALTER TABLE expenses ADD CONSTRAINT expenses_idem_key UNIQUE (idempotency_key);
-- ====
ALTER TABLE expenses ADD COLUMN idempotency_key text NOT NULL; -- HAZARD OW225
ALTER TABLE expenses ADD CONSTRAINT expenses_idem_key UNIQUE (idempotency_key);
-- ====
ALTER TABLE expenses ADD idempotency_key text;
ALTER TABLE expenses ALTER idempotency_key SET NOT NULL; -- HAZARD OW225
UPDATE expenses SET idempotency_key = encode(sha256(id::text::bytea), 'hex');
CREATE UNIQUE INDEX CONCURRENTLY expenses_idem_key ON expenses (idempotency_key);
-- ====
ALTER TABLE expenses ADD COLUMN idempotency_key text UNIQUE; -- HAZARD OW222
UPDATE expenses SET idempotency_key = md5(id::text);
ALTER TABLE expenses ALTER COLUMN idempotency_key SET NOT NULL;
-- ====
BEGIN;
ALTER TABLE expenses ADD COLUMN tenant_id text, ADD COLUMN idempotency_key text;
CREATE UNIQUE INDEX expenses_tenant_idem_key ON expenses (tenant_id, idempotency_key); -- HAZARD OW222
UPDATE expenses SET tenant_id = 'old', idempotency_key = md5(id::text) WHERE idempotency_key IS NULL;
ALTER TABLE expenses ALTER COLUMN tenant_id SET NOT NULL, ALTER COLUMN idempotency_key SET NOT NULL;
COMMIT;
-- ====
ALTER TABLE expenses ADD COLUMN idempotency_key text; -- HAZARD OW205
ALTER TABLE expenses ADD CONSTRAINT expenses_idem_key UNIQUE (idempotency_key);
-- ====
ALTER TABLE expenses ADD COLUMN idempotency_key text;
UPDATE expenses SET idempotency_key = gen_random_uuid()::text; -- HAZARD OW226
ALTER TABLE expenses ALTER COLUMN idempotency_key SET NOT NULL, ADD UNIQUE (idempotency_key);
-- ====
ALTER TABLE expenses ADD COLUMN idempotency_key text;
UPDATE expenses SET idempotency_key = 'legacy'; -- HAZARD OW226
ALTER TABLE expenses ALTER COLUMN idempotency_key SET NOT NULL, ADD UNIQUE (idempotency_key);
-- ====
ALTER TABLE expenses ADD COLUMN worker_id text, ADD COLUMN idempotency_key text;
UPDATE expenses SET worker_id = 'old', idempotency_key = md5(id::text) WHERE idempotency_key IS NULL;
ALTER TABLE expenses ALTER COLUMN worker_id SET NOT NULL, ALTER COLUMN idempotency_key SET NOT NULL;
ALTER TABLE expenses ADD CONSTRAINT expenses_idem_key UNIQUE (idempotency_key); -- HAZARD OW224
-- ====
CREATE TABLE keys (idempotency_key text PRIMARY KEY, result jsonb);
DROP TABLE IF EXISTS old_keys; -- HAZARD OW223
-- ====
ALTER TABLE expenses ADD COLUMN idempotency_key text;
UPDATE expenses SET idempotency_key = md5(id::text) WHERE idempotency_key IS NULL;
ALTER TABLE expenses ALTER COLUMN idempotency_key SET NOT NULL, ADD UNIQUE (idempotency_key);
ALTER TABLE expenses DROP COLUMN reference; -- HAZARD OW223
-- ====
TRUNCATE expenses; -- HAZARD OW223
ALTER TABLE expenses ADD COLUMN idempotency_key text;
ALTER TABLE expenses ADD CONSTRAINT k UNIQUE NULLS NOT DISTINCT (idempotency_key);
-- ====
CREATE TABLE keys (idempotency_key text NOT NULL CONSTRAINT keys_idem_key UNIQUE);
ALTER TABLE keys DROP CONSTRAINT keys_idem_key; -- HAZARD OW223
ALTER TABLE keys ADD CONSTRAINT keys_idem_key_2 UNIQUE (idempotency_key);
-- ====
CREATE TABLE keys (idempotency_key text NOT NULL UNIQUE);
ALTER TABLE keys ALTER COLUMN idempotency_key DROP NOT NULL; -- HAZARD OW205
-- ====
-- onceward: dialect sqlite
ALTER TABLE expenses ADD COLUMN idempotency_key TEXT NOT NULL DEFAULT ''; -- HAZARD OW220
CREATE UNIQUE INDEX expenses_idem_key ON expenses (idempotency_key);
-- ====
-- onceward: dialect sqlite
ALTER TABLE expenses ADD COLUMN idempotency_key TEXT;
CREATE UNIQUE INDEX expenses_idem_key ON expenses (idempotency_key); -- HAZARD OW222
UPDATE expenses SET idempotency_key = 'old:' || id WHERE idempotency_key IS NULL;
-- ====
-- onceward: dialect sqlite
ALTER TABLE expenses ADD COLUMN idempotency_key TEXT;
UPDATE expenses SET idempotency_key = hex(randomblob(16)); -- HAZARD OW226
CREATE UNIQUE INDEX expenses_idem_key ON expenses (idempotency_key);
DROP TABLE drafts; -- HAZARD OW223
