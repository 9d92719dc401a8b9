-- The keys that tenants' values are sealed under, each sealed itself under a key that is in no database (`master` is its
-- id). Deleting a tenant's keys erases whatever they sealed, wherever copies of it are.
CREATE TABLE onceward_seal_keys (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    master TEXT NOT NULL,
    wrapped BLOB NOT NULL,
    -- Microseconds since 1970 on the host's clock.
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE onceward_seal (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT;

INSERT INTO onceward_seal (name, value) VALUES ('schema_version', 1);
