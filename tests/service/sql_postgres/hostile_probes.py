"""
What a tenant must not be able to do on PostgreSQL: one statement in a line, by what it is after.

`{other}` is the schema of another tenant, which has a table `secret` and a sequence `numbers`; `{records}` is the
service's own schema. A probe that is answered at all got through.
"""

from __future__ import annotations

from typing import NamedTuple

OTHERS = """
SELECT * FROM {other}.secret
SELECT t.* FROM {other}.secret AS t
INSERT INTO {other}.secret VALUES ('x')
UPDATE {other}.secret SET text = 'x'
DELETE FROM {other}.secret
TRUNCATE {other}.secret
DROP TABLE {other}.secret
DROP SCHEMA {other} CASCADE
ALTER TABLE {other}.secret ADD COLUMN x int
CREATE TABLE {other}.mine (a int)
CREATE INDEX ON {other}.secret (text)
CREATE VIEW peek AS SELECT * FROM {other}.secret
CREATE TABLE copy AS SELECT * FROM {other}.secret
CREATE TABLE child () INHERITS ({other}.secret)
CREATE TABLE like_it (LIKE {other}.secret)
CREATE TABLE points (a text REFERENCES {other}.secret (text))
ALTER TABLE own RENAME TO "{other}.secret"; SELECT 1
ALTER TABLE own SET SCHEMA {other}
SELECT nextval('{other}.numbers')
SELECT setval('{other}.numbers', 5)
SELECT NULL::{other}.secret
SELECT ({other}.secret).text FROM own
SELECT * FROM ONLY {other}.secret
WITH x AS (SELECT * FROM {other}.secret) SELECT * FROM x
SELECT (SELECT text FROM {other}.secret)
COMMENT ON TABLE {other}.secret IS 'x'
SELECT query_to_xml('SELECT * FROM {other}.secret', true, false, '')
SELECT table_to_xml('{other}.secret', true, false, '')
SELECT schema_to_xml('{other}', true, false, '')
SELECT ts_stat('SELECT to_tsvector(text) FROM {other}.secret')
SELECT ts_rewrite('a'::tsquery, 'SELECT ''a''::tsquery, ''b''::tsquery FROM {other}.secret')
SELECT cursor_to_xml('c', 1, true, false, '')
"""
SERVICE = """
SELECT * FROM {records}.onceward_records
INSERT INTO {records}.onceward_records SELECT * FROM {records}.onceward_records
DELETE FROM {records}.onceward_records
SELECT * FROM onceward_records
CREATE TABLE onceward_records (id bytea)
SELECT * FROM {records}.onceward_databases
SELECT schema_name FROM information_schema.schemata
SELECT * FROM information_schema.role_table_grants
SELECT * FROM information_schema.enabled_roles
SELECT * FROM information_schema.applicable_roles
"""
ROLES = """
SET ROLE {other}
SET LOCAL ROLE {other}
SET SESSION AUTHORIZATION {other}
SET SESSION AUTHORIZATION DEFAULT
RESET ROLE
RESET ALL
RESET SESSION AUTHORIZATION
SELECT set_config('role', '{other}', true)
SELECT set_config('role', 'none', false)
SELECT pg_catalog.set_config('role', '{other}', true)
SELECT ('role'::text).set_config
SELECT current_user
SELECT session_user
SELECT user
SELECT current_role
SELECT current_schema
SELECT current_catalog
SELECT current_schemas(true)
SELECT current_setting('role')
SELECT ('search_path'::text).current_setting
SELECT getpgusername()
SELECT has_schema_privilege('{other}', 'usage')
SELECT pg_has_role('{other}', 'member')
GRANT {other} TO CURRENT_USER
GRANT SELECT ON own TO PUBLIC
REVOKE ALL ON own FROM CURRENT_USER
CREATE ROLE evil SUPERUSER
ALTER ROLE CURRENT_USER CREATEROLE
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC
REASSIGN OWNED BY CURRENT_USER TO {other}
ALTER TABLE own OWNER TO {other}
ALTER TABLE own ENABLE ROW LEVEL SECURITY
CREATE POLICY p ON own USING (true)
"""
CATALOGS = """
SELECT * FROM pg_class
SELECT * FROM pg_catalog.pg_class
SELECT rolname FROM pg_roles
SELECT rolname, rolpassword FROM pg_authid
SELECT * FROM pg_shadow
SELECT nspname FROM pg_namespace
SELECT query FROM pg_stat_activity
SELECT * FROM pg_settings
SELECT * FROM pg_stats
SELECT * FROM pg_locks
SELECT * FROM pg_prepared_statements
SELECT * FROM pg_cursors
SELECT * FROM pg_database
SELECT * FROM pg_proc
SELECT 'pg_authid'::regclass
SELECT '{other}.secret'::regclass::oid
SELECT 'int4'::regtype
SELECT ('pg_authid'::text).regclass
SELECT to_regclass('{other}.secret')
SELECT tableoid::regclass FROM own
SELECT CAST('pg_authid' AS regclass)
SELECT NULL::pg_authid
SELECT pg_get_viewdef('peek')
SELECT pg_relation_size('own')
SELECT pg_database_size('postgres')
SELECT obj_description(1, 'pg_class')
SELECT version()
SELECT inet_server_addr()
SELECT pg_postmaster_start_time()
SELECT txid_current()
SELECT pg_current_wal_lsn()
SELECT row_security_active('own')
"""
SERVER = """
SELECT pg_sleep(0)
SELECT pg_catalog.pg_sleep(0)
SELECT (0.0::float8).pg_sleep
SELECT (x).pg_sleep FROM (SELECT 0.0::float8 AS x) AS t
SELECT pg_read_file('PG_VERSION')
SELECT ('PG_VERSION'::text).pg_read_file
SELECT pg_read_binary_file('PG_VERSION')
SELECT pg_ls_dir('.')
SELECT pg_stat_file('PG_VERSION')
SELECT lo_import('/etc/passwd')
SELECT lo_export(1, '/tmp/x')
SELECT lo_create(0)
SELECT lo_from_bytea(0, 'x')
SELECT pg_reload_conf()
SELECT pg_rotate_logfile()
SELECT pg_cancel_backend(1)
SELECT pg_terminate_backend(1)
SELECT pg_switch_wal()
SELECT pg_create_restore_point('x')
SELECT pg_logical_emit_message(true, 'onceward', 'x')
SELECT pg_notify('c', 'x')
COPY own TO STDOUT
COPY own FROM STDIN
COPY own TO PROGRAM 'true'
COPY own TO '/tmp/x'
COPY (SELECT 1) TO STDOUT
LOAD 'plpgsql'
CREATE EXTENSION dblink
CREATE SERVER s FOREIGN DATA WRAPPER w
CREATE TABLESPACE t LOCATION '/tmp'
CREATE DATABASE evil
ALTER SYSTEM SET log_statement = 'all'
ALTER DATABASE postgres SET work_mem = '1GB'
CHECKPOINT
VACUUM own
ANALYZE own
CLUSTER own
REINDEX TABLE own
CREATE PUBLICATION p FOR TABLE own
CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p
CREATE EVENT TRIGGER e ON ddl_command_start EXECUTE FUNCTION f()
SECURITY LABEL ON TABLE own IS 'x'
"""
CODE = """
DO $$ BEGIN PERFORM 1; END $$
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'
CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END'
CREATE FUNCTION f() RETURNS int RETURN 1
CREATE PROCEDURE p() LANGUAGE sql AS 'SELECT 1'
CALL p()
CREATE TRIGGER g AFTER INSERT ON own EXECUTE FUNCTION f()
CREATE CONSTRAINT TRIGGER g AFTER INSERT ON own DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION f()
CREATE RULE r AS ON INSERT TO own DO ALSO SELECT 1
CREATE AGGREGATE a (int) (sfunc = int4pl, stype = int)
CREATE OPERATOR === (leftarg = int, rightarg = int, function = int4eq)
CREATE CAST (text AS int) WITHOUT FUNCTION
CREATE TYPE t
CREATE TYPE t (INPUT = int4in, OUTPUT = int4out)
CREATE LANGUAGE evil
CREATE TRANSFORM FOR int LANGUAGE sql (FROM SQL WITH FUNCTION f(internal))
CREATE STATISTICS s ON id, text FROM own
CREATE COLLATION c (locale = 'C')
CREATE CONVERSION c FOR 'UTF8' TO 'LATIN1' FROM utf8_to_iso8859_1
CREATE TEXT SEARCH CONFIGURATION c (COPY = english)
CREATE ACCESS METHOD m TYPE INDEX HANDLER bthandler
CREATE SCHEMA mine
"""
SESSIONS = """
BEGIN
COMMIT
ROLLBACK
SAVEPOINT s
PREPARE TRANSACTION 'x'
SET work_mem = '1GB'
SET LOCAL statement_timeout = 0
SET statement_timeout = 0
SET search_path = {other}
SET CONSTRAINTS ALL DEFERRED
SET TRANSACTION READ WRITE
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE
SHOW ALL
SHOW search_path
CREATE TEMP TABLE t (a int)
CREATE TEMP VIEW v AS SELECT 1
CREATE UNLOGGED TABLE t (a int)
SELECT 1 INTO TEMP t
DECLARE c CURSOR WITH HOLD FOR SELECT 1
FETCH ALL FROM c
CLOSE ALL
PREPARE p AS SELECT 1
EXECUTE p
DEALLOCATE ALL
DISCARD ALL
LISTEN c
UNLISTEN *
NOTIFY c
LOCK TABLE own
SELECT pg_advisory_lock(1)
SELECT pg_try_advisory_lock(1)
SELECT (1::bigint).pg_advisory_lock
SELECT pg_advisory_xact_lock(1)
SELECT setseed(0.5)
SELECT lastval()
SELECT currval('numbers')
SELECT pg_export_snapshot()
SELECT 1; SELECT 2
SELECT 1;; COMMIT
"""
STORAGE = """
CREATE TABLE t (a int) TABLESPACE pg_default
CREATE TABLE t (a int) WITH (fillfactor = 10)
CREATE TABLE t WITH (fillfactor = 10) AS SELECT 1
CREATE TABLE t (a int) USING heap
CREATE INDEX i ON own (text) WITH (fillfactor = 10)
CREATE INDEX CONCURRENTLY i ON own (text)
ALTER TABLE own SET (autovacuum_enabled = false)
ALTER TABLE own SET TABLESPACE pg_default
ALTER TABLE own SET UNLOGGED
ALTER TABLE own CLUSTER ON own_pkey
ALTER TABLE own REPLICA IDENTITY FULL
ALTER TABLE own DISABLE TRIGGER ALL
ALTER INDEX own_pkey SET (fillfactor = 10)
REFRESH MATERIALIZED VIEW v
"""
ODDITIES = """
SELECT xmlparse(document '<a/>')
SELECT xpath('/a', '<a/>'::xml)
SELECT * FROM xmltable('/a' PASSING '<a/>' COLUMNS b int)
SELECT * FROM own TABLESAMPLE SYSTEM (1)
SELECT 1 OPERATOR({other}.+) 2
SELECT text COLLATE {other}."x" FROM own
EXPLAIN (SETTINGS) SELECT 1
EXPLAIN EXECUTE p
SELECT own.pg_column_size FROM own
SELECT pg_column_size(own) FROM own
SELECT binary_upgrade_set_record_init_privs(true)
IMPORT FOREIGN SCHEMA x FROM SERVER y INTO z
ALTER TABLE own INHERIT {other}.secret
ALTER TYPE mood OWNER TO {other}
ALTER VIEW peek SET (security_barrier = false)
DROP ROLE {other}
DROP OWNED BY {other}
ALTER FUNCTION now() OWNER TO {other}
"""
BOMBS = """
SELECT count(*) FROM generate_series(1, 10000000000)
WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r
SELECT repeat('x', 1000000000)
SELECT count(*) FROM own a, own b, own c, own d, own e, own f
SELECT string_agg(repeat('x', 1000), '') FROM generate_series(1, 10000000)
SELECT * FROM generate_series(1, 10000000)
SELECT array_agg(n) FROM generate_series(1, 10000000000) AS n
SELECT lpad('', 900000000)
"""


class Probe(NamedTuple):
    """One attack."""

    after: str
    """What it is after."""
    sql: str


PROBES = [
    Probe(after, sql)
    for after, listed in {
        "others": OTHERS,
        "service": SERVICE,
        "roles": ROLES,
        "catalogs": CATALOGS,
        "server": SERVER,
        "code": CODE,
        "sessions": SESSIONS,
        "storage": STORAGE,
        "oddities": ODDITIES,
        "bombs": BOMBS,
    }.items()
    for sql in listed.strip().splitlines()
]
"""All of them."""
