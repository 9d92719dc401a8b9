-- One row per (kind, scope, key). Columns stand in the order of `Record`, so that a row becomes one without a name looked up.
-- Instants are microseconds since 1970 on the store's clock.
CREATE TABLE onceward_records (
    id BLOB NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    operation TEXT NOT NULL,
    family BLOB,
    state TEXT NOT NULL,
    guarantee TEXT NOT NULL,
    doubt INTEGER NOT NULL,
    fingerprint BLOB NOT NULL,
    version BLOB NOT NULL,
    token BLOB NOT NULL,
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    settled_at INTEGER,
    lease_until INTEGER,
    replay_until INTEGER,
    forget_at INTEGER,
    codec TEXT,
    result BLOB,
    error BLOB
) STRICT, WITHOUT ROWID;

-- What purge deletes.
CREATE INDEX onceward_forget ON onceward_records (forget_at) WHERE forget_at IS NOT NULL;

-- What purge shrinks: only rows that still have something to drop.
CREATE INDEX onceward_shrink ON onceward_records (replay_until)
    WHERE replay_until IS NOT NULL AND state = 'settled' AND (codec IS NOT NULL OR error IS NOT NULL);

-- What an operator looks for. It holds the work in flight and nothing else, so it stays small.
CREATE INDEX onceward_unsettled ON onceward_records (id) WHERE state IN ('claimed', 'in_doubt');

-- The steps of one plan, which live and expire together.
CREATE INDEX onceward_family ON onceward_records (family) WHERE family IS NOT NULL;

-- schema_version, and fence_floor: the greatest fence ever deleted.
CREATE TABLE onceward_meta (
    name TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO onceward_meta (name, value) VALUES ('schema_version', 1), ('fence_floor', 0);
