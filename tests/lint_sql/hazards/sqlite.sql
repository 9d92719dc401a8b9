-- onceward: dialect sqlite
CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT);
INSERT INTO notes (body) VALUES (?); -- HAZARD OW201
INSERT INTO notes (body) VALUES (:body), (@other); -- HAZARD OW201
insert into Notes(Body) select body from drafts; -- HAZARD OW201
-- ====
-- onceward: dialect sqlite
CREATE TABLE orders (idempotency_key TEXT NOT NULL UNIQUE, sku TEXT NOT NULL, note TEXT);
INSERT INTO orders VALUES (?1, ?2, ?3); -- HAZARD OW202
INSERT OR IGNORE INTO orders (idempotency_key, sku) VALUES (?, ?); -- HAZARD OW203
INSERT OR REPLACE INTO orders (idempotency_key, sku) VALUES (?, ?); -- HAZARD OW208
REPLACE INTO orders (idempotency_key, sku) VALUES (?, ?); -- HAZARD OW208
INSERT INTO orders (idempotency_key, sku) VALUES (hex(randomblob(16)), ?) ON CONFLICT (idempotency_key) DO NOTHING; -- HAZARD OW206
INSERT INTO orders (idempotency_key, sku) VALUES (datetime('now'), ?) ON CONFLICT (idempotency_key) DO NOTHING; -- HAZARD OW206
INSERT INTO orders (idempotency_key, sku) VALUES (?, ?) ON CONFLICT (sku) DO NOTHING; -- HAZARD OW204
-- ====
-- onceward: dialect sqlite
CREATE TABLE counts (name TEXT PRIMARY KEY NOT NULL, n INTEGER NOT NULL DEFAULT 0);
INSERT INTO counts (name, n) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET n = n + excluded.n; -- HAZARD OW209
-- ====
-- onceward: dialect sqlite
-- In SQLite a primary key that is not a number takes NULLs.
CREATE TABLE seen (idempotency_key TEXT PRIMARY KEY, at TEXT);
INSERT INTO seen (idempotency_key) VALUES (?) ON CONFLICT (idempotency_key) DO NOTHING; -- HAZARD OW205
-- ====
-- onceward: dialect sqlite
CREATE TABLE seen (idempotency_key TEXT NOT NULL UNIQUE ON CONFLICT REPLACE, at TEXT);
INSERT INTO seen (idempotency_key) VALUES (?); -- HAZARD OW208
-- ====
-- onceward: dialect sqlite
INSERT INTO seen (k) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM seen WHERE k = ?1); -- HAZARD OW211
INSERT OR IGNORE INTO seen (k) VALUES (?); -- HAZARD OW203
-- ====
-- onceward: dialect sqlite
CREATE TABLE a (idempotency_key TEXT NOT NULL DEFAULT '', UNIQUE (idempotency_key)); -- HAZARD OW220
CREATE TABLE b (id INTEGER PRIMARY KEY, idempotency_key TEXT NOT NULL); -- HAZARD OW221
CREATE TABLE c (tenant TEXT NOT NULL, idempotency_key TEXT NOT NULL UNIQUE); -- HAZARD OW224
CREATE TABLE d (idempotency_key TEXT NOT NULL, state TEXT);
CREATE UNIQUE INDEX d_key ON d (idempotency_key) WHERE state = 'open'; -- HAZARD OW215
