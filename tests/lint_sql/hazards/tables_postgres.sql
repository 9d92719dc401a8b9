CREATE TABLE a (idempotency_key text NOT NULL DEFAULT '' UNIQUE); -- HAZARD OW220
CREATE TABLE b (
    tenant_id int NOT NULL,
    "idempotencyKey" varchar(64) NOT NULL DEFAULT 'none', -- HAZARD OW220
    UNIQUE (tenant_id, "idempotencyKey")
);
-- ====
CREATE TABLE c (idempotency_key text NOT NULL UNIQUE);
ALTER TABLE c ALTER COLUMN idempotency_key SET DEFAULT ''; -- HAZARD OW220
-- ====
CREATE TABLE d (id bigserial PRIMARY KEY, idempotency_key text NOT NULL); -- HAZARD OW221
CREATE TABLE billing.e (
    id uuid PRIMARY KEY,
    dedupe_key text NOT NULL, -- HAZARD OW221
    amount numeric
);
CREATE INDEX e_dedupe ON billing.e (dedupe_key);
ALTER TABLE f ADD COLUMN IF NOT EXISTS request_key text; -- HAZARD OW221
-- ====
CREATE TABLE g (worker_id text NOT NULL, idempotency_key text PRIMARY KEY); -- HAZARD OW224
CREATE TABLE h (
    tenant_id uuid NOT NULL,
    idempotency_key text NOT NULL,
    CONSTRAINT h_idem_key UNIQUE (idempotency_key) -- HAZARD OW224
);
CREATE TABLE i (org_id int NOT NULL, idempotency_key text NOT NULL);
CREATE UNIQUE INDEX i_key ON i (lower(idempotency_key)); -- HAZARD OW224
-- ====
CREATE TABLE j (idempotency_key character(40) NOT NULL UNIQUE); -- HAZARD OW213
CREATE TABLE k (idempotency_key char NOT NULL UNIQUE); -- HAZARD OW213
CREATE TABLE l (idempotency_key text NOT NULL UNIQUE);
ALTER TABLE l ALTER COLUMN idempotency_key TYPE char(36); -- HAZARD OW213
