-- MERGE, and looks that decide.
MERGE INTO customers c USING incoming i ON c.email = i.email -- HAZARD OW210
WHEN MATCHED THEN UPDATE SET name = i.name
WHEN NOT MATCHED THEN INSERT (email, name) VALUES (i.email, i.name);
-- ====
merge into only billing.keys as k using (values ($1)) as v (idempotency_key) -- HAZARD OW210
on k.idempotency_key = v.idempotency_key when not matched then insert values (v.idempotency_key);
-- ====
INSERT INTO charges (reference) SELECT $1 WHERE NOT EXISTS (SELECT FROM charges c WHERE c.reference = $1); -- HAZARD OW211
INSERT INTO charges (reference) SELECT r FROM wanted WHERE r NOT IN (SELECT reference FROM charges); -- HAZARD OW211
INSERT INTO charges (reference) -- HAZARD OW211
SELECT w.reference FROM wanted w LEFT JOIN charges c USING (reference) WHERE c.reference IS NULL;
INSERT INTO charges (reference) SELECT reference FROM wanted EXCEPT SELECT reference FROM charges; -- HAZARD OW211
INSERT INTO charges (reference) SELECT $1 WHERE (SELECT count(*) FROM charges WHERE reference = $1) = 0; -- HAZARD OW211
INSERT INTO charges (reference) SELECT $1 WHERE (SELECT 1 FROM charges WHERE reference = $1) IS NULL; -- HAZARD OW211
WITH known AS (SELECT 1 FROM charges WHERE reference = $1)
INSERT INTO charges (reference) SELECT $1 WHERE NOT EXISTS (SELECT 1 FROM known); -- HAZARD OW211
WITH changed AS (UPDATE charges SET amount = $2 WHERE reference = $1 RETURNING 1)
INSERT INTO charges (reference, amount) SELECT $1, $2 WHERE NOT EXISTS (SELECT 1 FROM changed); -- HAZARD OW211
INSERT INTO charges (reference) SELECT $1 WHERE $1 <> ALL (SELECT reference FROM charges); -- HAZARD OW211
-- ====
CREATE OR REPLACE FUNCTION charge_once(k text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM charges WHERE reference = k) THEN
        INSERT INTO charges (reference) VALUES (k); -- HAZARD OW211
    END IF;
END $$;
-- ====
CREATE FUNCTION charge_once(k text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE found_id int;
BEGIN
    SELECT id INTO found_id FROM charges WHERE reference = k FOR UPDATE;
    IF found_id IS NOT NULL THEN
        RETURN found_id;
    END IF;
    INSERT INTO charges (reference) VALUES (k) RETURNING id INTO found_id; -- HAZARD OW211
    RETURN found_id;
END $$;
-- ====
CREATE FUNCTION put(k text, v text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE settings SET value = v WHERE name = k;
    IF NOT FOUND THEN
        INSERT INTO settings (name, value) VALUES (k, v); -- HAZARD OW211
    END IF;
END $$;
-- ====
CREATE FUNCTION charge_once(k text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE seen int;
BEGIN
    seen := (SELECT count(*) FROM charges WHERE reference = k);
    IF seen = 0 THEN
        INSERT INTO charges (reference) VALUES (k); -- HAZARD OW211
    END IF;
END $$;
-- ====
DO $$
BEGIN
    PERFORM 1 FROM charges WHERE reference = 'r-1';
    IF NOT FOUND THEN
        INSERT INTO charges (reference) VALUES ('r-1'); -- HAZARD OW211
    END IF;
END $$;
-- ====
BEGIN;
SELECT id FROM charges WHERE reference = $1 FOR UPDATE;
INSERT INTO charges (reference) VALUES ($1); -- HAZARD OW211
COMMIT;
-- ====
CREATE TABLE charges (reference text NOT NULL UNIQUE, idempotency_key text NOT NULL UNIQUE);
CREATE FUNCTION charge(r text, k text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    BEGIN -- HAZARD OW212
        INSERT INTO charges (reference, idempotency_key) VALUES (r, k);
    EXCEPTION WHEN unique_violation THEN
        NULL;
    END;
END $$;
-- ====
CREATE TABLE charges (idempotency_key text NOT NULL UNIQUE);
CREATE FUNCTION charge(k text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN -- HAZARD OW212
    INSERT INTO charges (idempotency_key) VALUES (k);
    RETURN 'created';
EXCEPTION WHEN OTHERS THEN
    RETURN 'done before';
END $$;
-- ====
CREATE TABLE keys (idempotency_key text NOT NULL UNIQUE);
CREATE PROCEDURE charge(k text, a numeric) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO keys (idempotency_key) VALUES (k) ON CONFLICT (idempotency_key) DO NOTHING; -- HAZARD OW214
    COMMIT;
    UPDATE balances SET amount = amount - a;
END $$;
-- ====
CREATE TABLE keys (idempotency_key text NOT NULL UNIQUE);
CREATE TABLE charges (reference text PRIMARY KEY);
BEGIN;
INSERT INTO charges (reference) VALUES ($1) ON CONFLICT (reference) DO NOTHING;
COMMIT;
INSERT INTO keys (idempotency_key) VALUES ($2) ON CONFLICT (idempotency_key) DO NOTHING; -- HAZARD OW214
