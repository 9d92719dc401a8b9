-- Rows in the order in which they came, and the ids in an index of their own. In the order of their ids, which are hashes,
-- every write touched a page of whole rows somewhere else, and split it again and again.
--
-- Names of tables in views are left as they are: they are meant for the table that takes its place.
PRAGMA legacy_alter_table = ON;

CREATE TABLE onceward_records_3 (
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
    error BLOB,
    holder BLOB
) STRICT;

INSERT INTO onceward_records_3 (
    id, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token, fence, attempt,
    first_at, settled_at, lease_until, replay_until, forget_at, codec, result, error, holder
)
SELECT
    id, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token, fence, attempt,
    first_at, settled_at, lease_until, replay_until, forget_at, codec, result, error, holder
FROM onceward_records ORDER BY first_at;

DROP TABLE onceward_records;

ALTER TABLE onceward_records_3 RENAME TO onceward_records;

-- As before (0001).
CREATE INDEX onceward_due ON onceward_records (
    min(
        coalesce(CASE WHEN codec IS NOT NULL OR error IS NOT NULL THEN replay_until END, forget_at),
        coalesce(forget_at, 9223372036854775807)
    )
) WHERE replay_until IS NOT NULL OR forget_at IS NOT NULL;

CREATE INDEX onceward_family ON onceward_records (family) WHERE family IS NOT NULL;

PRAGMA legacy_alter_table = OFF;
