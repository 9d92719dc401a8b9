-- What is right, in varied styles: no alarm in any of it.
CREATE TABLE expenses (
    id bigserial PRIMARY KEY,
    worker_id text NOT NULL,
    amount numeric NOT NULL,
    attempts int NOT NULL DEFAULT 1,
    updated_at timestamptz,
    idempotency_key text NOT NULL,
    CONSTRAINT expenses_worker_idem_key UNIQUE (worker_id, idempotency_key)
);
INSERT INTO expenses (worker_id, amount, idempotency_key) VALUES ($1, $2, $3)
ON CONFLICT (worker_id, idempotency_key) DO NOTHING;
insert into expenses (worker_id, amount, idempotency_key) values (:worker, :amount, :key)
on conflict on constraint expenses_worker_idem_key do nothing returning id;
INSERT INTO public.expenses (worker_id, amount, idempotency_key) SELECT w, a, k FROM staging
ON CONFLICT (idempotency_key, worker_id) DO UPDATE SET amount = EXCLUDED.amount, updated_at = now();
INSERT INTO expenses AS e (worker_id, amount, idempotency_key) VALUES (%s, %s, %s)
ON CONFLICT (worker_id, idempotency_key) DO UPDATE SET attempts = e.attempts + 1;
WITH added AS (
    INSERT INTO expenses (worker_id, amount, idempotency_key) VALUES ($1, $2, $3)
    ON CONFLICT (worker_id, idempotency_key) DO NOTHING RETURNING id
)
SELECT id FROM added UNION ALL SELECT id FROM expenses WHERE worker_id = $1 AND idempotency_key = $3 LIMIT 1;
-- The look is a fast path, and the clause decides.
INSERT INTO expenses (worker_id, amount, idempotency_key)
SELECT $1, $2, $3 WHERE NOT EXISTS (SELECT 1 FROM expenses WHERE worker_id = $1 AND idempotency_key = $3)
ON CONFLICT (worker_id, idempotency_key) DO NOTHING;
-- A row that comes back as it is.
INSERT INTO expenses (worker_id, amount, idempotency_key) VALUES ($1, $2, $3)
ON CONFLICT (worker_id, idempotency_key) DO UPDATE SET idempotency_key = EXCLUDED.idempotency_key RETURNING id;
-- ====
CREATE TABLE countries (code text PRIMARY KEY, name text NOT NULL);
INSERT INTO countries (code, name) VALUES ('DE', 'Germany'), ('FR', 'France');
INSERT INTO countries VALUES ($1, $2) ON CONFLICT DO NOTHING;
CREATE TEMP TABLE work (n int);
INSERT INTO work SELECT generate_series(1, 10);
-- ====
-- Optional keys, on purpose; and NULLs that are not distinct.
CREATE TABLE a (idempotency_key text, amount numeric);
CREATE UNIQUE INDEX a_idem_key ON a (idempotency_key) WHERE idempotency_key IS NOT NULL;
INSERT INTO a (idempotency_key, amount) VALUES ($1, $2)
ON CONFLICT (idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING;
CREATE TABLE b (idempotency_key text, UNIQUE NULLS NOT DISTINCT (idempotency_key));
INSERT INTO b VALUES ($1) ON CONFLICT (idempotency_key) DO NOTHING;
CREATE TABLE c (LIKE b INCLUDING ALL);
INSERT INTO c VALUES ($1) ON CONFLICT (idempotency_key) DO NOTHING;
CREATE TABLE d (email text NOT NULL);
CREATE UNIQUE INDEX d_email ON d (lower(email));
INSERT INTO d VALUES ($1) ON CONFLICT (lower(email)) DO NOTHING;
-- ====
CREATE TABLE keys (idempotency_key text PRIMARY KEY, result jsonb NOT NULL, created_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE charges (id bigserial PRIMARY KEY, amount numeric NOT NULL);
-- Fast path, key and effect in one, the constraint decides, and another violation surfaces.
CREATE FUNCTION charge(k text, a numeric) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE known jsonb; broken text;
BEGIN
    SELECT result INTO known FROM keys WHERE idempotency_key = k;
    IF FOUND THEN
        RETURN known;
    END IF;
    INSERT INTO charges (amount) VALUES (a);
    INSERT INTO keys (idempotency_key, result) VALUES (k, '{"status": "created"}');
    RETURN '{"status": "created"}'::jsonb;
EXCEPTION WHEN unique_violation THEN
    GET STACKED DIAGNOSTICS broken = CONSTRAINT_NAME;
    IF broken <> 'keys_pkey' THEN
        RAISE;
    END IF;
    SELECT result INTO known FROM keys WHERE idempotency_key = k;
    RETURN known;
END $$;
-- The key first, and the effect only if it was new.
CREATE FUNCTION charge_new(k text, a numeric) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO keys (idempotency_key, result) VALUES (k, '{}') ON CONFLICT (idempotency_key) DO NOTHING;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO charges (amount) VALUES (a);
END $$;
-- ====
-- What a trigger writes, it writes as often as it is fired.
CREATE TABLE log (id bigserial PRIMARY KEY, what text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO log (what) VALUES (TG_OP);
    RETURN NEW;
END $$;
-- ====
-- A lock that everybody takes.
CREATE FUNCTION next_seat(k text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext(k));
    IF NOT EXISTS (SELECT 1 FROM seats WHERE holder = k) THEN
        INSERT INTO seats (holder) VALUES (k);
    END IF;
END $$;
-- ====
-- The constraint comes behind the data, as in a dump.
CREATE TABLE public.orders (id integer NOT NULL, sku text);
COPY public.orders (id, sku) FROM stdin;
1	it's "quoted" $$ and ; odd
\.
INSERT INTO public.orders (id, sku) VALUES (2, 'x');
ALTER TABLE ONLY public.orders ADD CONSTRAINT orders_pkey PRIMARY KEY (id);
-- ====
-- A log may have doubles, and somebody looked.
INSERT INTO page_views (path) VALUES ($1); -- onceward: ignore[OW201] doubles are counted once per visitor later
SELECT * FROM orders WHERE meta ? 'gift' AND id = ?;
-- ====
-- Keys are kept in a table of their own; a column elsewhere refers to it, and others are only named for keys.
CREATE TABLE idempotency_keys (tenant_id uuid NOT NULL, key text NOT NULL, UNIQUE (tenant_id, key));
CREATE TABLE runs (id uuid PRIMARY KEY, tenant_id uuid NOT NULL, idempotency_key text);
CREATE TABLE workflows (id uuid PRIMARY KEY, idempotency_key_expression text, "idempotencyKeyTtlMs" bigint);
-- ====
-- An EXCLUDE constraint refuses, and may be named. What is deferrable here is the reference, and not the primary key.
CREATE TABLE bookings (room int NOT NULL, during tsrange NOT NULL, CONSTRAINT one_at_a_time EXCLUDE USING gist (room WITH =, during WITH &&));
INSERT INTO bookings VALUES ($1, $2) ON CONFLICT ON CONSTRAINT one_at_a_time DO NOTHING;
CREATE TABLE last_seen (user_id int PRIMARY KEY REFERENCES users (id) DEFERRABLE INITIALLY DEFERRED, seen_by text);
INSERT INTO last_seen VALUES ($1, $2) ON CONFLICT (user_id) DO UPDATE SET seen_by = EXCLUDED.seen_by;
-- ====
-- A trigger runs with the statement that fires it, so what it adds is added as often.
CREATE TABLE totals (name text PRIMARY KEY, total int NOT NULL);
CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO totals VALUES ('rows', 1) ON CONFLICT (name) DO UPDATE SET total = totals.total + 1;
    RETURN NULL;
END $$;
-- ====
-- Commands to psql, at the end of a line and on one of their own.
CREATE TABLE sent (idempotency_key text PRIMARY KEY);
SELECT 1 AS one \gset
\set worker 'w-1'
INSERT INTO sent VALUES (:'worker') ON CONFLICT (idempotency_key) DO NOTHING \g
-- ====
-- The index is read before its table.
CREATE UNIQUE INDEX message_id ON messages (id);
CREATE TABLE messages (position bigserial PRIMARY KEY, id uuid NOT NULL, body text);
INSERT INTO messages (id, body) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING;
-- ====
-- Onceward's own functions claim the key: what is written after that is written once.
CREATE TABLE charges (id bigserial PRIMARY KEY, amount numeric NOT NULL, receipt text UNIQUE);
CREATE FUNCTION charge(k text, amount numeric) RETURNS json LANGUAGE plpgsql AS $$
DECLARE
    claimed record;
BEGIN
    SELECT * INTO claimed FROM onceward_claim('live:acme', k, onceward_fingerprint(onceward_fields('amount', amount::text)));
    IF claimed.verdict <> 'fresh' THEN
        RETURN claimed.value;
    END IF;
    INSERT INTO charges (amount) VALUES (amount);
    RETURN onceward_settle(claimed.claim, '{"status": "created"}');
END $$;
