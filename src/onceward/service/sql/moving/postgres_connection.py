"""
A connection for moving a tenant's database on PostgreSQL: everything in text, as tenants' own sessions have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import psycopg

from onceward._core.errors import ConfigurationError, StoreUnavailable
from onceward.runtime.environment import REAL
from onceward.service.sql.postgres.tenant_schemas import SCHEMA as TENANTS
from onceward.service.sql.postgres.tenant_schemas import stored_scope
from onceward.stores._postgres_url import parse
from onceward.stores.postgres import PostgresStore
from onceward.stores.tables import Schema, open_tables

MOVES: Final = Schema("sql_moves", "onceward.service.sql.moving", 1, "`onceward db import` makes them")
_SETTINGS: Final = (
    "SET TimeZone = 'UTC'",
    "SET DateStyle = 'ISO, YMD'",
    "SET IntervalStyle = 'postgres'",
    "SET bytea_output = 'hex'",
    "SET extra_float_digits = 1",
    "SET standard_conforming_strings = on",
    "SET enable_seqscan = on",
    "SET plan_cache_mode = auto",
)
_PLACE: Final = "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('onceward_records')"


class MovingConnection:
    """A connection of the service's role. Use it in a `with` block."""

    def __init__(self, url: str, *, create: bool) -> None:
        target = parse(url)
        self.name = target.name
        if create:
            with closing(PostgresStore(url)) as store:
                store.load(bytes(32))  # Makes its tables where there are none.
            for schema in (TENANTS, MOVES):
                open_tables(url, schema, REAL, create=True).close()
        try:
            self._line = psycopg.connect(**target.parameters, autocommit=True, cursor_factory=psycopg.RawCursor)
        except psycopg.Error as error:
            raise StoreUnavailable(f"{target.name} cannot be reached: {_first_line(error)}") from error
        for one in _SETTINGS:
            self._line.execute(one)
        [found] = self.ask(_PLACE) or [(None,)]
        if found[0] is None:
            self.close()
            raise ConfigurationError(f"{target.name} has no databases of tenants; `onceward serve` makes its tables")
        self.tables = str(found[0])
        """The schema of our own tables, quoted where that is needed."""

    @property
    def server_version(self) -> int:
        """The server's version: 180000 for PostgreSQL 18."""
        return self._line.info.server_version

    def ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement; its rows."""
        cursor = self._line.execute(sql.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def stream(self, sql: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Run a query, and read its rows a thousand at a time. Inside a transaction."""
        with psycopg.RawServerCursor(self._line, "moving") as cursor:
            cursor.itersize = 1_000
            cursor.execute(sql.encode(), values or None)
            yield from cursor

    @contextmanager
    def transaction(self, how: str = "") -> Iterator[None]:
        """A transaction."""
        self.ask(f"BEGIN {how}")
        try:
            yield
        except BaseException:
            if not self._line.closed:
                self.ask("ROLLBACK")
            raise
        self.ask("COMMIT")

    @contextmanager
    def as_tenant(self, role: str, schema: str) -> Iterator[None]:
        """Do something as the owner of a schema, inside a transaction; what the owner may not do is refused."""
        self.ask(f"SET LOCAL ROLE {role}")
        self.ask(f"SET LOCAL search_path = {schema}")
        yield
        self.ask("SET CONSTRAINTS ALL IMMEDIATE")  # Nothing of the tenant's may run later, as the service.
        self.leave()

    def leave(self) -> None:
        """Be the service again."""
        self.ask("SET LOCAL ROLE NONE")
        self.ask("SET LOCAL search_path = pg_catalog")

    def close(self) -> None:
        """Let go of it."""
        self._line.close()


@contextmanager
def told_plainly(name: str) -> Iterator[None]:
    """Errors of PostgreSQL's in a few words."""
    try:
        yield
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"{name} does not answer: {_first_line(error)}") from error
    except psycopg.Error as error:
        raise ConfigurationError(f"PostgreSQL refused it: {_first_line(error)}") from error


def scope_suffix(schema: str) -> str:
    """What the engine puts behind the scopes of a database."""
    return stored_scope("", schema)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]
