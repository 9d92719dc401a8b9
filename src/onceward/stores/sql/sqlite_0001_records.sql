-- One row per (kind, scope, key). Columns stand in the order of `Record`, so that a row becomes one without a name looked up.
-- Instants are microseconds since 1970 on the store's clock.
CREATE TABLE onceward_records (
    id BLOB NOT NULL CONSTRAINT onceward_records_pkey PRIMARY KEY,
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

-- When purge has to see to a row next: to shrink it while it has something to drop, then to delete it. One index for
-- both, and none on rows in flight: every index page that a write touches is one more page to sync.
CREATE INDEX onceward_due ON onceward_records (
    min(
        coalesce(CASE WHEN codec IS NOT NULL OR error IS NOT NULL THEN replay_until END, forget_at),
        coalesce(forget_at, 9223372036854775807)
    )
) WHERE replay_until IS NOT NULL OR forget_at IS NOT NULL;

-- The steps of one plan, which live and expire together.
CREATE INDEX onceward_family ON onceward_records (family) WHERE family IS NOT NULL;

-- schema_version, and fence_floor: the greatest fence ever deleted.
CREATE TABLE onceward_meta (
    name TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO onceward_meta (name, value) VALUES ('schema_version', 1), ('fence_floor', 0);
