-- onceward: dialect sqlite
CREATE TABLE orders (id INTEGER PRIMARY KEY, idempotency_key TEXT NOT NULL UNIQUE, note TEXT);
INSERT INTO orders (idempotency_key, note) VALUES (?, ?) ON CONFLICT (idempotency_key) DO NOTHING;
INSERT INTO orders (idempotency_key, note) VALUES (:key, :note)
ON CONFLICT (idempotency_key) DO UPDATE SET note = excluded.note;
INSERT OR IGNORE INTO orders (idempotency_key, note) VALUES (?, ?);
INSERT INTO orders (id, note) VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET note = excluded.note;
-- ====
-- onceward: dialect sqlite
CREATE TABLE seen (idempotency_key TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID;
INSERT INTO seen VALUES (?, ?) ON CONFLICT (idempotency_key) DO NOTHING;
CREATE TABLE once (idempotency_key TEXT NOT NULL UNIQUE ON CONFLICT IGNORE);
INSERT INTO once VALUES (?);
CREATE TABLE log (what TEXT);
CREATE TRIGGER logged AFTER INSERT ON seen BEGIN
    INSERT INTO log VALUES (new.idempotency_key);
    SELECT CASE WHEN new.n > 1 THEN 2 ELSE 3 END;
END;
