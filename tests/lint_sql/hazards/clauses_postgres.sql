-- Clauses that skip too much, or that match nothing.
INSERT INTO users (email, idempotency_key) VALUES ($1, $2) ON CONFLICT DO NOTHING; -- HAZARD OW203
-- ====
CREATE TABLE users (email text NOT NULL UNIQUE, idempotency_key text NOT NULL UNIQUE);
INSERT INTO users (email, idempotency_key) VALUES ($1, $2) -- HAZARD OW203
ON CONFLICT DO NOTHING RETURNING email;
-- ====
CREATE TABLE seats (row_no int, seat_no int, booking text NOT NULL UNIQUE, PRIMARY KEY (row_no, seat_no));
INSERT INTO seats SELECT * FROM wanted ON CONFLICT DO NOTHING; -- HAZARD OW203
-- ====
CREATE TABLE jobs (worker_id text NOT NULL, idempotency_key text NOT NULL, UNIQUE (worker_id, idempotency_key));
INSERT INTO jobs (worker_id, idempotency_key) VALUES ($1, $2) ON CONFLICT (idempotency_key) DO NOTHING; -- HAZARD OW204
insert into jobs values ($1, $2) on conflict on constraint jobs_idem_key do nothing; -- HAZARD OW204
INSERT INTO jobs VALUES ($1, $2) ON CONFLICT (worker_id, idempotency_key, run_id) DO NOTHING; -- HAZARD OW204
-- ====
CREATE TABLE jobs (tenant_id int NOT NULL, request_key text NOT NULL); -- HAZARD OW221
INSERT INTO jobs (tenant_id, request_key) VALUES ($1, $2) ON CONFLICT (tenant_id, request_key) DO NOTHING; -- HAZARD OW204
-- ====
CREATE TABLE jobs (idempotency_key text NOT NULL);
CREATE UNIQUE INDEX jobs_open ON jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;
INSERT INTO jobs (idempotency_key) VALUES ($1) ON CONFLICT (idempotency_key) DO NOTHING; -- HAZARD OW204
-- ====
CREATE TABLE accounts (email text NOT NULL);
CREATE UNIQUE INDEX accounts_email ON accounts (lower(email));
INSERT INTO accounts (email) VALUES ($1) ON CONFLICT (email) DO NOTHING; -- HAZARD OW204
-- ====
CREATE TABLE jobs (idempotency_key text NOT NULL UNIQUE DEFERRABLE INITIALLY DEFERRED);
INSERT INTO jobs (idempotency_key) VALUES ($1) ON CONFLICT (idempotency_key) DO NOTHING; -- HAZARD OW204
-- ====
-- NULLs are distinct.
CREATE TABLE jobs (tenant_id int, idempotency_key text, payload text, UNIQUE (tenant_id, idempotency_key));
INSERT INTO jobs (tenant_id, idempotency_key) VALUES ($1, $2) -- HAZARD OW205
ON CONFLICT (tenant_id, idempotency_key) DO NOTHING;
INSERT INTO jobs (idempotency_key, payload) VALUES ('k-1', 'x') -- HAZARD OW205
ON CONFLICT (tenant_id, idempotency_key) DO NOTHING;
INSERT INTO jobs (tenant_id, idempotency_key) VALUES (7, NULL) ON CONFLICT DO NOTHING; -- HAZARD OW205
INSERT INTO jobs (tenant_id, payload) VALUES (7, 'y'); -- HAZARD OW205
-- ====
CREATE TABLE jobs (idempotency_key text CONSTRAINT jobs_idem_key UNIQUE);
INSERT INTO jobs SELECT key FROM incoming ON CONFLICT ON CONSTRAINT jobs_idem_key DO NOTHING; -- HAZARD OW205
-- ====
-- Keys that are made anew.
CREATE TABLE jobs (idempotency_key text NOT NULL UNIQUE, created_at timestamptz NOT NULL DEFAULT now());
INSERT INTO jobs (idempotency_key) VALUES (gen_random_uuid()) ON CONFLICT (idempotency_key) DO NOTHING; -- HAZARD OW206
INSERT INTO jobs (idempotency_key) VALUES ('job-' || extract(epoch FROM clock_timestamp())) -- HAZARD OW206
ON CONFLICT (idempotency_key) DO NOTHING;
INSERT INTO jobs (idempotency_key) SELECT md5(random()::text) ON CONFLICT (idempotency_key) DO NOTHING; -- HAZARD OW206
INSERT INTO jobs (idempotency_key) VALUES (CURRENT_TIMESTAMP::text); -- HAZARD OW206
INSERT INTO jobs (idempotency_key) VALUES ($1), (nextval('job_keys')::text) ON CONFLICT (idempotency_key) DO NOTHING; -- HAZARD OW206
-- ====
CREATE TABLE jobs (idempotency_key uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(), payload text); -- HAZARD OW206
-- ====
-- A partitioned table: the time is in the key, so the key is another at each attempt.
CREATE TABLE hits (idempotency_key text NOT NULL, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (idempotency_key, at))
    PARTITION BY RANGE (at);
INSERT INTO hits (idempotency_key) VALUES ($1) ON CONFLICT (idempotency_key, at) DO NOTHING; -- HAZARD OW206
-- ====
-- onceward: intent no-double-send
CREATE TABLE mails (run_id text NOT NULL, expense_id int NOT NULL, body text, UNIQUE (run_id, expense_id));
INSERT INTO mails VALUES ($1, $2, $3) -- HAZARD OW207
ON CONFLICT (run_id, expense_id) DO UPDATE SET body = EXCLUDED.body;
INSERT INTO mails VALUES ($1, $2, $3) ON CONFLICT (expense_id, run_id) -- HAZARD OW207
DO UPDATE SET run_id = EXCLUDED.run_id RETURNING *;
-- ====
CREATE TABLE stock (sku text PRIMARY KEY, quantity int NOT NULL, names text);
INSERT INTO stock (sku, quantity) VALUES ($1, $2) -- HAZARD OW209
ON CONFLICT (sku) DO UPDATE SET quantity = stock.quantity + EXCLUDED.quantity;
INSERT INTO stock AS s (sku, quantity) VALUES ($1, $2) -- HAZARD OW209
ON CONFLICT (sku) DO UPDATE SET quantity = s.quantity - 1;
INSERT INTO stock (sku, quantity, names) VALUES ($1, 1, $2) -- HAZARD OW209
ON CONFLICT (sku) DO UPDATE SET names = coalesce(stock.names, '') || EXCLUDED.names;
-- ====
CREATE TABLE leases (idempotency_key text NOT NULL, released_at timestamptz);
CREATE UNIQUE INDEX leases_held ON leases (idempotency_key) WHERE released_at IS NULL; -- HAZARD OW215
INSERT INTO leases (idempotency_key) VALUES ($1) ON CONFLICT (idempotency_key) WHERE released_at IS NULL DO NOTHING; -- HAZARD OW215
INSERT INTO leases (idempotency_key) VALUES ($1); -- HAZARD OW215
