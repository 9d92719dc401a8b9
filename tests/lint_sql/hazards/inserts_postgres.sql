-- Plain inserts into tables whose constraints a retry never meets.
create table payments (id serial primary key, amount numeric not null);
insert into payments (amount) values (12.50); -- HAZARD OW201
INSERT INTO payments VALUES (DEFAULT, 3); -- HAZARD OW201
INSERT INTO public.payments (amount) SELECT amount FROM staging; -- HAZARD OW201
insert into "payments" ("amount") values (:amount); -- HAZARD OW201
INSERT INTO payments (amount) VALUES (%s), (%s) RETURNING id; -- HAZARD OW201
INSERT INTO payments (amount) VALUES (%(amount)s); -- HAZARD OW201
WITH moved AS (DELETE FROM staging RETURNING amount)
INSERT INTO payments (amount) SELECT amount FROM moved; -- HAZARD OW201
WITH added AS (
    INSERT INTO payments (amount) VALUES ($1) RETURNING id -- HAZARD OW201
)
SELECT id FROM added;
-- ====
-- No schema at all.
INSERT INTO wallet_entries (wallet, delta) VALUES ($1, $2); -- HAZARD OW201
insert into ledger.entries default values; -- HAZARD OW201
-- ====
CREATE TABLE audit (at timestamptz PRIMARY KEY DEFAULT now(), what text);
INSERT INTO audit (what) VALUES ($1); -- HAZARD OW201
-- ====
CREATE TABLE events (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), body jsonb);
INSERT INTO events (body) VALUES ($1::jsonb); -- HAZARD OW201
-- ====
-- The table was made without its constraint, and an index that is not unique changes nothing.
CREATE TABLE refunds (order_id bigint NOT NULL, amount numeric);
CREATE INDEX refunds_order ON refunds (order_id);
INSERT INTO refunds (order_id, amount) VALUES ($1, $2); -- HAZARD OW201
-- ====
-- The constraint was there once.
CREATE TABLE payouts (reference text NOT NULL, CONSTRAINT payouts_reference UNIQUE (reference));
ALTER TABLE payouts DROP CONSTRAINT payouts_reference;
INSERT INTO payouts (reference) VALUES ($1); -- HAZARD OW201
-- ====
CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, sku text);
CREATE FUNCTION place(sku text) RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO orders (sku) VALUES ($1) RETURNING id; -- HAZARD OW201
$$;
-- ====
CREATE TABLE orders (id bigserial PRIMARY KEY, sku text);
CREATE PROCEDURE place(wanted text) LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO orders (sku) VALUES (wanted); -- HAZARD OW201
END
$body$;
-- ====
CREATE TABLE orders (id bigserial PRIMARY KEY, sku text);
DO $$
BEGIN
    FOR i IN 1..3 LOOP
        INSERT INTO orders (sku) VALUES ('sku-' || i); -- HAZARD OW201
    END LOOP;
END $$;
-- ====
-- A retry is refused, and nobody reads the refusal.
CREATE TABLE expenses (
    worker_id text NOT NULL,
    idempotency_key text NOT NULL,
    amount numeric,
    PRIMARY KEY (worker_id, idempotency_key)
);
INSERT INTO expenses VALUES ($1, $2, $3); -- HAZARD OW202
insert into expenses (worker_id, idempotency_key, amount) select w, k, a from staging; -- HAZARD OW202
-- ====
CREATE TABLE mails (dedup_key varchar(80) NOT NULL);
CREATE UNIQUE INDEX CONCURRENTLY mails_dedup ON mails (dedup_key);
INSERT INTO mails (dedup_key) VALUES ($1); -- HAZARD OW202
