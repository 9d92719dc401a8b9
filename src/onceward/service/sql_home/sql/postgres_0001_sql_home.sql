-- Where the databases of this store's tenants are: one row, or none yet. `kind` is folder or postgresql; `id` is what
-- the folder or the database says that it is; `label` is for people. Instants are microseconds since 1970 on the
-- server's clock.
CREATE TABLE onceward_sql_homes (
    one bigint NOT NULL PRIMARY KEY CHECK (one = 1),
    kind text NOT NULL,
    id text NOT NULL,
    label text NOT NULL,
    since bigint NOT NULL
);

-- The services that have them open, and at which place: a copy of a folder is another place.
CREATE TABLE onceward_sql_holders (
    id text NOT NULL PRIMARY KEY,
    place text NOT NULL,
    label text NOT NULL,
    renewed_at bigint NOT NULL
);

CREATE TABLE onceward_sql_home (
    name text NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO onceward_sql_home (name, value) VALUES ('schema_version', 1);
