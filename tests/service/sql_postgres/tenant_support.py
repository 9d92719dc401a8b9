"""A tenant on PostgreSQL, in few words."""

from __future__ import annotations

from typing import Any

from onceward.service.sql.postgres import PostgresEngine
from onceward.service.sql.postgres.preparation import ROLE
from onceward.service.sql.requests import Keyed, SqlBatchResult, SqlResult, Step

NAMESPACE, DATABASE = "live-acme", "shop"
SCOPE = "live:acme:db:shop"

TAKEN = """
INSERT INTO t (a, b) VALUES ($1, now()) ON CONFLICT (a) DO UPDATE SET b = EXCLUDED.b RETURNING a, xmax
SELECT a::int[], count(*) FILTER (WHERE b) OVER w FROM t, generate_series(1, 2) AS g WINDOW w AS (PARTITION BY a)
CREATE TABLE x (id serial PRIMARY KEY, n numeric(10, 2) NOT NULL CHECK (n > 0)) PARTITION BY RANGE (id)
CREATE TABLE x1 PARTITION OF x FOR VALUES FROM (1) TO (MAXVALUE)
SELECT GREATEST(1, 2), a COLLATE "C", json_object('a': 1), a LIKE 'b', a BETWEEN 1 AND 2, extract(year FROM now())
SELECT array[1, 2], row(1, 2), exists(SELECT 1), a @> b, a OPERATOR(pg_catalog.+) b, current_date, localtimestamp(3)
SELECT (address).street, (jsonb_each(j)).key FROM t
WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r
CREATE UNIQUE INDEX IF NOT EXISTS i ON t USING btree (lower(a) text_pattern_ops DESC) WHERE a IS NOT NULL
ALTER TABLE t ADD COLUMN IF NOT EXISTS k text, ALTER COLUMN b SET DEFAULT 5, DROP CONSTRAINT IF EXISTS q, ADD UNIQUE (a)
ALTER TABLE t RENAME COLUMN a TO b
CREATE TYPE mood AS ENUM ('a', 'b')
CREATE MATERIALIZED VIEW v AS SELECT * FROM t
DROP TABLE IF EXISTS t, v CASCADE
CREATE SEQUENCE s START 10 INCREMENT BY 2 OWNED BY t.a
TRUNCATE t RESTART IDENTITY
EXPLAIN (ANALYZE, FORMAT JSON) SELECT 1
SELECT table_name FROM information_schema.tables
SELECT t.version, t.name FROM t
UPDATE t SET (a, b) = (SELECT 1, 2) WHERE id = $1
DELETE FROM t USING u WHERE t.a = u.a RETURNING *
MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = 1 WHEN NOT MATCHED THEN INSERT VALUES (1)
SELECT cast($1 AS timestamptz) AT TIME ZONE 'UTC', trim(both FROM a), substring(a FROM 1 FOR 2), position('a' IN b)
CREATE TABLE e (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), m mood, x int GENERATED ALWAYS AS IDENTITY (START 5))
CREATE DOMAIN d AS text CHECK (value <> '')
COMMENT ON COLUMN t.a IS 'x'
SELECT a FROM t FOR UPDATE SKIP LOCKED
VALUES (1), (2)
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t GROUP BY GROUPING SETS ((a), ()), rollup(b)
ALTER SEQUENCE s RESTART WITH 5
"""
"""What tenants may write: one statement in a line."""


def administrator(url: str) -> str:
    """The same database, for a superuser."""
    return url.replace(f"{ROLE}@", "postgres@")


class Tenant:
    """What one tenant asks an engine, in its one database."""

    def __init__(self, engine: PostgresEngine) -> None:
        self.engine = engine

    async def ask(self, sql: str, *params: Any, key: str | None = None, **options: Any) -> SqlResult:
        """Run one statement."""
        identity = None if key is None else Keyed(SCOPE, key)
        return await self.engine.query(NAMESPACE, DATABASE, sql, list(params), identity=identity, **options)

    async def named(self, sql: str, params: dict[str, Any]) -> SqlResult:
        """Run one statement with named parameters."""
        return await self.engine.query(NAMESPACE, DATABASE, sql, params)

    async def batch(self, *statements: str, key: str | None = None, **options: Any) -> SqlBatchResult:
        """Run statements together."""
        identity = None if key is None else Keyed(SCOPE, key)
        return await self.engine.batch(NAMESPACE, DATABASE, list(statements), identity=identity, **options)

    async def step(self, plan: str, step: str, sql: str, *params: Any) -> SqlResult:
        """Run a step of a plan."""
        return await self.engine.query(NAMESPACE, DATABASE, sql, list(params), identity=Step(SCOPE, plan, step))

    async def count(self, table: str = "events") -> int:
        """How many rows there are."""
        return int((await self.ask(f"SELECT count(*) FROM {table}")).rows[0][0])  # type: ignore[arg-type]
