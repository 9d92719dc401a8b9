-- One row per (kind, scope, key). Columns stand in the order of `Record`.
-- Instants are microseconds since 1970 on the server's clock: integers, so that durations are exact and rows are the same
-- in every store. Versions and tokens are bytea and not uuid: the record holds bytes, and nothing has to be converted.
CREATE TABLE onceward_records (
    id bytea NOT NULL CONSTRAINT onceward_records_pkey PRIMARY KEY,
    kind text NOT NULL,
    scope text NOT NULL,
    key text NOT NULL,
    operation text NOT NULL,
    family bytea,
    state text NOT NULL,
    guarantee text NOT NULL,
    doubt smallint NOT NULL,
    fingerprint bytea NOT NULL,
    version bytea NOT NULL,
    token bytea NOT NULL,
    fence bigint NOT NULL,
    attempt bigint NOT NULL,
    first_at bigint NOT NULL,
    settled_at bigint,
    lease_until bigint,
    replay_until bigint,
    forget_at bigint,
    codec text,
    result bytea,
    error bytea
);

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
    name text NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO onceward_meta (name, value) VALUES ('schema_version', 1), ('fence_floor', 0);
