-- Where the databases of this store's tenants are: one row, or none yet. `kind` is folder or postgresql; `id` is what
-- the folder or the database says that it is; `label` is for people. Instants are microseconds since 1970 on the
-- host's clock.
CREATE TABLE onceward_sql_homes (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    label TEXT NOT NULL,
    since INTEGER NOT NULL
) STRICT;

-- The services that have them open, and at which place: a copy of a folder is another place.
CREATE TABLE onceward_sql_holders (
    id TEXT NOT NULL PRIMARY KEY,
    place TEXT NOT NULL,
    label TEXT NOT NULL,
    renewed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE onceward_sql_home (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT;

INSERT INTO onceward_sql_home (name, value) VALUES ('schema_version', 1);
