"""
PostgreSQL: applies the migration without keeping others out for longer than an instant.

The table is locked for moments only: columns without a default, a check that is NOT VALID until a VALIDATE that lets
others write, a SET NOT NULL that finds the check and reads nothing, and a constraint made of an index that was built
CONCURRENTLY. The backfill commits after each batch. What is done is read from the schema, so a run after a kill goes on
where the last one ended.
"""

# ruff: noqa: S608 - names come from `quote`, and values are bound

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from onceward._core.errors import StoreUnavailable
from onceward.migrate import statements
from onceward.migrate.database import PASSES, UNFINISHED_MAX, Application, Migrator
from onceward.migrate.hashing import LABEL, Hash, historical_key, postgres_expression
from onceward.migrate.postgres_look import look, standing_of
from onceward.migrate.reporting import Backfill, Say
from onceward.migrate.table import (
    KEY,
    WORKER,
    Dialect,
    MigrationRefused,
    MigrationStep,
    Progress,
    Table,
    literal,
    quote,
)
from onceward.runtime.environment import REAL
from onceward.stores._postgres_url import parse

_CHECKS_CLIENTS = 140_000
_TRIES = 5
_UNFINISHED = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT IN ('pg_catalog', 'information_schema')
    AND c.relname NOT LIKE 'onceward\\_%%' AND pg_has_role(c.relowner, 'USAGE')
    AND (SELECT count(*) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attname = ANY (%(names)s::text[]) AND NOT a.attisdropped) = 2
    AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid
        AND i.indpred IS NULL AND %(names)s::text[] = ARRAY(SELECT a.attname::text FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey) ORDER BY a.attname::text COLLATE "C"))
ORDER BY n.nspname, c.relname LIMIT %(limit)s
"""
"""Tables with both columns, and no index that keeps them from being there twice."""
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


@contextmanager
def open_postgres(url: str, lock_seconds: float) -> Iterator[PostgresMigrator]:
    """The database that a URL names."""
    target = parse(url)
    try:
        with psycopg.connect(**target.parameters, autocommit=True) as connection:
            # The address may ask for what suits our own tables, and not those of others.
            connection.execute("SET enable_seqscan = on")
            connection.execute("SET plan_cache_mode = auto")
            connection.execute("SET statement_timeout = 0")
            if connection.info.server_version >= _CHECKS_CLIENTS:
                # If this process is killed, its statement ends soon, and the next run need not wait for it.
                connection.execute("SET client_connection_check_interval = '1s'")
            connection.execute(f"SET lock_timeout = {max(1, round(1000 * lock_seconds))}")
            yield PostgresMigrator(connection, lock_seconds)
    except psycopg.errors.InsufficientPrivilege as error:
        raise MigrationRefused(
            f"{target.name}: this role may not do that ({error.diag.message_primary}). Connect as the table's owner; "
            "what is done stays done"
        ) from error
    except psycopg.Error as error:
        raise StoreUnavailable(
            f"{target.name} became unreachable, or refused a statement ({str(error).strip()}). What is done stays "
            "done, and no step is half-done: run the same command again, and it continues from there",
            retry_after_seconds=1.0,
        ) from error


class PostgresMigrator:
    """One connection."""

    dialect: Dialect = "postgresql"

    def __init__(self, connection: psycopg.Connection[Any], lock_seconds: float) -> None:
        self._connection = connection
        self._lock_seconds = lock_seconds

    def look(self, name: str, schema: str, how: Hash) -> Table:
        """The table, if it can be migrated; nothing is changed."""
        return look(self._connection, name, schema, how)

    def progress_of(self, table: Table) -> Progress:
        """How far the table has come."""
        standing = standing_of(self._connection, table)
        added = len(standing.columns) == 2
        return Progress(added, added and not self._is_missing(table), standing.not_null, standing.constraint)

    def unfinished(self) -> list[tuple[str, str]]:
        """Tables whose migration has not come to its end."""
        rows = self._connection.execute(_UNFINISHED, {"names": sorted((WORKER, KEY)), "limit": UNFINISHED_MAX})
        return [(schema, name) for schema, name in rows]

    def apply(self, table: Table, wanted: Application, say: Say) -> int:
        """Do what is left; the number of rows that got a key."""
        if wanted.how == "pgcrypto" and not table.digest_schema:
            raise MigrationRefused(
                "pgcrypto is not enabled in this database. Ask an administrator to run CREATE EXTENSION pgcrypto, or "
                "choose --hash builtin or --hash application: the keys are the same"
            )
        with self._alone(table):
            standing = standing_of(self._connection, table)
            if len(standing.columns) < 2:
                say("add: two nullable columns")
                listed = ", ".join(f"ADD COLUMN IF NOT EXISTS {quote(one)} text" for one in (WORKER, KEY))
                self._patiently(f"ALTER TABLE {table.quoted} {listed}", say)
            if wanted.until is MigrationStep.ADD:
                return 0
            rows = self._backfill(table, wanted, say)
            if wanted.until is MigrationStep.BACKFILL:
                return rows.rows
            if not standing.not_null:
                self._tighten(table, wanted, say, rows)
            if wanted.until is MigrationStep.CONSTRAIN:
                self._constrain(table, say)
            return rows.rows

    @contextmanager
    def _alone(self, table: Table) -> Iterator[None]:
        """One at a time; the lock is the session's, and ends with it."""
        place = ["onceward migrate", table.quoted]
        lock = "hashtext(%s), hashtext(%s)"
        give_up = REAL.monotonic() + self._lock_seconds
        while self._connection.execute(f"SELECT pg_try_advisory_lock({lock})", place).fetchone() != (True,):
            # Trying, not waiting: one who waits in a statement keeps an index from being built concurrently.
            if REAL.monotonic() < give_up:
                REAL.sleep(0.1)
                continue
            raise StoreUnavailable(
                f"another `onceward migrate apply` is running on {table.quoted}. Wait for it to end, then run this "
                "again",
                retry_after_seconds=10.0,
            )
        try:
            yield
        finally:
            if not self._connection.broken:
                self._connection.execute(f"SELECT pg_advisory_unlock({lock})", place)

    def _backfill(self, table: Table, wanted: Application, say: Say) -> Backfill:
        found = self._connection.execute(f"SELECT count(*) FROM {table.quoted} WHERE {statements.MISSING}".encode())
        (missing,) = found.fetchone() or (0,)
        say(f"backfill: {missing:,} rows without a key")
        rows = Backfill(say, missing)
        for _ in range(PASSES):
            if self._walk(table, wanted, say, rows) < wanted.batch_rows:
                break
        return rows

    def _walk(self, table: Table, wanted: Application, say: Say, rows: Backfill) -> int:
        """Walk through the ids that are there now, once; the number of rows that got a key."""
        last, before = None, rows.rows
        # Not a bare name: in ORDER BY that would be the text that is selected, where '9' comes after '10'.
        highest = self._run(f"SELECT t.{table.id}::text FROM {table.quoted} AS t ORDER BY t.{table.id} DESC LIMIT 1")
        if not highest:
            return 0
        while True:
            selected, end, filled = self._patient(
                lambda last=last: self._batch(table, wanted, highest[0][0], last), say
            )
            if not selected:
                return rows.rows - before
            rows.add(filled)
            last = end

    def _batch(self, table: Table, wanted: Application, highest: str, last: str | None) -> tuple[int, str, int]:
        """One transaction: rows selected, the last of their ids, rows filled in."""
        id, type = table.id, table.id_type
        after = f"{id} <= $1::{type} AND" + ("" if last is None else f" {id} > $2::{type} AND")
        select = (
            f"SELECT {id} AS id FROM {table.quoted} WHERE {after} ({statements.MISSING}) "
            f"ORDER BY {id} LIMIT {wanted.batch_rows} FOR UPDATE"
        )
        values = [highest] if last is None else [highest, last]
        change = f"UPDATE {table.quoted} AS t SET {quote(WORKER)} = '{LABEL}', {quote(KEY)} ="
        with self._connection.transaction(), psycopg.RawCursor(self._connection) as cursor:
            if wanted.how != "application":
                value = postgres_expression(f"t.{id}", wanted.how, table.digest_schema)
                cursor.execute(
                    f"WITH batch AS ({select}), done AS "
                    f"({change} {value} FROM batch WHERE t.{id} = batch.id RETURNING 1) "
                    "SELECT (SELECT count(*) FROM batch), (SELECT id::text FROM batch ORDER BY batch.id DESC LIMIT 1), "
                    "(SELECT count(*) FROM done)".encode(),
                    values,
                )
                return cursor.fetchone() or (0, "", 0)
            cursor.execute(f"SELECT id::text FROM ({select}) AS batch ORDER BY batch.id".encode(), values)
            ids = [text for (text,) in cursor.fetchall()]
            if not ids:
                return 0, "", 0
            cursor.execute(
                f"{change} v.key FROM unnest($1::text[], $2::text[]) AS v(id, key) "
                f"WHERE t.{id} = v.id::{type}".encode(),
                [ids, [historical_key(text) for text in ids]],
            )
            return len(ids), ids[-1], cursor.rowcount

    def _tighten(self, table: Table, wanted: Application, say: Say, rows: Backfill) -> None:
        name, change = quote(table.presence), f"ALTER TABLE {table.quoted}"
        say("tighten: no row without a key from now on")
        if not standing_of(self._connection, table).check:
            self._patiently(f"{change} ADD CONSTRAINT {name} CHECK (NOT ({statements.MISSING})) NOT VALID", say)
        # Nobody can add a row without a key now, so this ends.
        while self._is_missing(table):
            if not self._walk(table, wanted, say, rows):
                raise MigrationRefused(
                    f"some rows of {table.quoted} still have no key: a trigger or a policy prevents the change. Let "
                    "this role change every row, then run this again"
                )
        self._patiently(f"{change} VALIDATE CONSTRAINT {name}", say)
        (not_null,) = statements.up(table, MigrationStep.TIGHTEN, wanted.how)
        self._patiently(not_null, say)

    def _constrain(self, table: Table, say: Say) -> None:
        standing = standing_of(self._connection, table)
        if standing.constraint:
            return
        name = quote(table.constraint)
        say(f"constrain: {table.constraint}")
        if standing.unique_index != "valid":
            self._check_doubles(table)
            (waits,) = self._connection.execute("SHOW lock_timeout").fetchone() or ("0",)
            # It waits for older transactions, and keeps nobody out meanwhile.
            self._connection.execute("SET lock_timeout = 0")
            if standing.unique_index == "broken":
                self._run(f"REINDEX INDEX CONCURRENTLY {quote(table.schema)}.{name}")
            else:
                columns = f"{quote(WORKER)}, {quote(KEY)}"
                self._run(f"CREATE UNIQUE INDEX CONCURRENTLY {name} ON {table.quoted} ({columns})")
            self._connection.execute(f"SET lock_timeout = '{waits}'")
        self._patiently(f"ALTER TABLE {table.quoted} ADD CONSTRAINT {name} UNIQUE USING INDEX {name}", say)

    def _check_doubles(self, table: Table) -> None:
        columns = f"{quote(WORKER)}, {quote(KEY)}"
        doubles = self._run(f"SELECT {columns} FROM {table.quoted} GROUP BY {columns} HAVING count(*) > 1 LIMIT 1")
        if doubles:
            raise MigrationRefused(
                f"two rows have the worker {doubles[0][0]!r} and the key {doubles[0][1]!r}, so a unique "
                "constraint is not possible. Decide which row stays, then run this again: what is done stays done"
            )

    def _is_missing(self, table: Table) -> bool:
        return bool(self._run(f"SELECT 1 FROM {table.quoted} WHERE {statements.MISSING} LIMIT 1"))

    def execute(self, statements: list[str]) -> None:
        """Run statements in one transaction."""
        with self._connection.transaction():
            for statement in statements:
                self._run(statement)

    def describe(self, table: Table) -> list[str]:
        """The table's columns, constraints, indexes and rows as lines, to be compared."""
        (oid,) = self._run(f"SELECT to_regclass({literal(table.quoted)})::oid")[0]
        columns = self._run(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute "
            f"WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        lines = [f"column {name} {type}{' NOT NULL' if strict else ''}" for name, type, strict in columns]
        made = self._run(
            "SELECT 'constraint ' || conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint "
            f"WHERE conrelid = {oid} AND contype <> 'n' UNION ALL SELECT 'index ' || c.relname FROM pg_index i "
            f"JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = {oid} ORDER BY 1"
        )
        lines += [line for (line,) in made]
        for title, names in (
            ("content", [name for name, *_ in columns if name not in (WORKER, KEY)]),
            ("keys", [name for name, *_ in columns if name in (WORKER, KEY)]),
        ):
            if names:
                row = f"ROW({', '.join(map(quote, names))})::text"
                each = f"SELECT sha256(convert_to({row}, 'UTF8')) AS one FROM {table.quoted}"
                ((rows, digest),) = self._run(
                    "SELECT count(*), left(encode(sha256(string_agg(one, ''::bytea ORDER BY one)), 'hex'), 16) "
                    f"FROM ({each}) AS all_rows"
                )
                lines.append(f"{title} of {rows} rows, sha256 {digest}")
        return lines

    @contextmanager
    def copy(self, table: Table, bytes_max: int) -> Iterator[tuple[Migrator, Table]]:
        """The table in a schema of its own, with defaults, checks and indexes; without triggers and foreign keys."""
        ((size,),) = self._run(f"SELECT pg_total_relation_size(to_regclass({literal(table.quoted)}))")
        if size > bytes_max:
            raise MigrationRefused(
                f"{table.quoted} has {size:,} bytes, and a rehearsal copies at most {bytes_max:,}. Rehearse on a "
                "smaller copy of your own, or allow more with --copy-max"
            )
        schema = f"onceward_rehearsal_{REAL.random(6).hex()}"
        copied = table._replace(schema=schema)
        self._run(f"CREATE SCHEMA {quote(schema)}")
        try:
            alike = f"LIKE {table.quoted} INCLUDING ALL EXCLUDING GENERATED EXCLUDING IDENTITY"
            self._run(f"CREATE TABLE {copied.quoted} ({alike})")
            self._run(f"INSERT INTO {copied.quoted} SELECT * FROM {table.quoted}")
            yield self, copied
        finally:
            if not self._connection.broken:
                self._run(f"DROP SCHEMA {quote(schema)} CASCADE")

    def _patiently(self, statement: str, say: Say) -> None:
        self._patient(lambda: self._run(statement), say)

    def _patient(self, act: Any, say: Say) -> Any:
        """Try again when others hold what is needed: a statement that waits keeps everybody behind it waiting."""
        left = _TRIES
        while True:
            left -= 1
            try:
                return act()
            except _BUSY as error:
                if not left:
                    raise StoreUnavailable(
                        f"other sessions held the table for longer than the lock timeout, {_TRIES} times "
                        f"({error.diag.message_primary}). What is done stays done: run the same command again when "
                        "the table is less busy, or with a longer --lock-timeout",
                        retry_after_seconds=10.0,
                    ) from error
                say(f"the table is busy; trying again ({left} tries left)")
                REAL.sleep(1.0 + REAL.chance())

    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
