-- The schema's version.
CREATE TABLE onceward_sql_tenants (
    name text NOT NULL PRIMARY KEY,
    value bigint NOT NULL
);

INSERT INTO onceward_sql_tenants (name, value) VALUES ('schema_version', 1);

-- Tenants' databases: each is a schema and the role that owns it. Their name is random, so that an error about another
-- one tells nothing, and a database that is made again after it was dropped is another one.
CREATE TABLE onceward_databases (
    namespace text COLLATE "C" NOT NULL,
    database text COLLATE "C" NOT NULL,
    schema_name text NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, database)
);

-- The records of one database, among those of all the others: to be listed, and deleted when it is dropped. Their scopes
-- end with a digest of the database's schema.
CREATE INDEX onceward_database_records ON onceward_records (right(scope, 12), id) WHERE strpos(scope, ':db:') > 0;
