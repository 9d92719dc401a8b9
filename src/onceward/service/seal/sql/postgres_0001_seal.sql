-- The keys that tenants' values are sealed under, each sealed itself under a key that is in no database (`master` is its
-- id). Deleting a tenant's keys erases whatever they sealed, wherever copies of it are.
CREATE TABLE onceward_seal_keys (
    tenant text NOT NULL,
    id text NOT NULL,
    master text NOT NULL,
    wrapped bytea NOT NULL,
    -- Microseconds since 1970 on the host's clock.
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE onceward_seal (
    name text NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO onceward_seal (name, value) VALUES ('schema_version', 1);
