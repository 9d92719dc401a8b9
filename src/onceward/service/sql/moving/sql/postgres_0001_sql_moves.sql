-- The schema's version.
CREATE TABLE onceward_sql_moves (
    name text NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO onceward_sql_moves (name, value) VALUES ('schema_version', 1);

-- Databases that are being imported, and those that were. Nobody finds the schema by a name before it is published.
CREATE TABLE onceward_moves (
    namespace text COLLATE "C" NOT NULL,
    database text COLLATE "C" NOT NULL,
    schema_name text NOT NULL UNIQUE,
    file_digest text NOT NULL,
    choices text NOT NULL,
    position bigint NOT NULL,
    stage text NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, database)
);
