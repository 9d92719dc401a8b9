-- Rows in the order in which they came, and the ids in an index of their own. In the order of their ids, which are hashes,
-- every write touched a page of whole rows somewhere else, and split it again and again.
--
-- Names of tables in views are left as they are: they are meant for the table that takes its place.
PRAGMA legacy_alter_table = ON;

CREATE TABLE onceward_records_4 (
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

INSERT INTO onceward_records_4 (
    id, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token, fence, attempt,
    first_at, settled_at, lease_until, replay_until, forget_at, codec, result, error, holder
)
SELECT
    id, kind, scope, key, operation, family, state, guarantee, doubt, fingerprint, version, token, fence, attempt,
    first_at, settled_at, lease_until, replay_until, forget_at, codec, result, error, holder
FROM onceward_records ORDER BY first_at;

DROP TABLE onceward_records;

ALTER TABLE onceward_records_4 RENAME TO onceward_records;

CREATE INDEX onceward_family ON onceward_records (family) WHERE family IS NOT NULL;

-- Of every 128 rows, in the order in which they came (`rowid`): when the first of them is due. An index of all rows would
-- be one more page in every settle; this is written once for 128 of them, by a purge. The youngest are not in it yet.
CREATE TABLE onceward_blocks (
    block INTEGER PRIMARY KEY,
    due INTEGER NOT NULL
) STRICT;

CREATE INDEX onceward_blocks_due ON onceward_blocks (due);

-- What is there already: a row's time as in the index of before (0001). What is in flight or in doubt is looked at soon.
INSERT INTO onceward_blocks (block, due)
SELECT
    rowid / 128,
    ifnull(min(CASE WHEN state IN ('settled', 'released') THEN min(
        coalesce(CASE WHEN codec IS NOT NULL OR error IS NOT NULL THEN replay_until END, forget_at),
        coalesce(forget_at, 9223372036854775807)
    ) ELSE first_at END), 9223372036854775807)
FROM onceward_records WHERE rowid < (SELECT max(rowid) + 1 FROM onceward_records) / 128 * 128 GROUP BY rowid / 128;

-- A row that had ended is claimed once more, or ends anew without a claim: its block is looked through when the lease is
-- over, or when it is due, or soon. (What ends a claim names no fence, and runs no trigger.)
CREATE TRIGGER onceward_due_earlier AFTER UPDATE OF fence ON onceward_records BEGIN
    UPDATE onceward_blocks
    SET due = min(due, coalesce(
        new.lease_until, min(ifnull(new.replay_until, new.forget_at), ifnull(new.forget_at, new.replay_until)), 0
    ))
    WHERE block = new.rowid / 128;
END;

-- SQLite gives the next row the number after the greatest one: a block in which rows come again is not in here.
CREATE TRIGGER onceward_numbers_again AFTER DELETE ON onceward_records BEGIN
    DELETE FROM onceward_blocks WHERE block >= (SELECT ifnull(max(rowid), 0) + 1 FROM onceward_records) / 128;
END;

PRAGMA legacy_alter_table = OFF;
