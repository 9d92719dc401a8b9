"""What the tests of the functions share: a caller without Python's gate, and a database with the functions in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import namedtuple_row

from onceward._core.fingerprint import fingerprint_canonical
from onceward.runtime.environment import REAL
from onceward.stores import _postgres_function_installer as installer
from onceward.stores import open_store

if TYPE_CHECKING:  # The racers are processes of their own, and need no server's programs.
    from servers.postgres import PostgresServer

SCOPE = "test:functions"
REQUEST = b"customer=7&amount=12.5000"
FINGERPRINT = fingerprint_canonical(REQUEST)
CREATED = {"status": "created"}
CLAIM = "SELECT * FROM onceward_claim(%s, %s, %s, %s)"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"

Connection = psycopg.Connection[Any]


def claim(
    connection: Connection,
    key: str | None,
    *,
    scope: str | None = SCOPE,
    fingerprint: bytes | None = FINGERPRINT,
    operation: str | None = "charge",
) -> Any:
    """Claim as SQL does; the answer by the names of its columns."""
    cursor = connection.cursor(row_factory=namedtuple_row)
    return cursor.execute(CLAIM, (scope, key, fingerprint, operation)).fetchone()


def settle(connection: Connection, claimed: Any, value: Any = CREATED, **options: str) -> Any:
    """Settle as SQL does; what it gives back."""
    more = "".join(f", {name} => '{text}'" for name, text in options.items())
    sql = f"SELECT onceward_settle(%s, %s::json{more})"
    [answer] = connection.execute(sql.encode(), (claimed.claim, json.dumps(value))).fetchone() or ()
    return answer


def charge(connection: Connection, key: str, who: str = "SQL") -> str:
    """A whole operation in SQL, in the open transaction: the answer, and one row if it ran."""
    claimed = claim(connection, key)
    if claimed.verdict == "fresh":
        connection.execute("INSERT INTO charges (key, who) VALUES (%s, %s)", (key, who))
        return str(settle(connection, claimed, who))
    return str(claimed.value) if claimed.verdict == "replay" else str(claimed.verdict)


def rows(url: str, sql: str) -> list[Any]:
    """The rows of a statement."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


@contextmanager
def database_with_functions(server: PostgresServer, name: str = "") -> Iterator[str]:
    """The URL of a database of its own, with the tables, the functions, and a table of charges."""
    name = name or f"functions_{REAL.random(4).hex()}"
    server.execute(f"CREATE DATABASE {name}")
    url = server.url(name)
    make_tables(url)
    installer.install(url)
    rows(url, "CREATE TABLE charges (key text NOT NULL, who text NOT NULL)")
    yield url
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def make_tables(url: str) -> None:
    """The store's own tables."""
    store = open_store(url)
    store.load(bytes(32))
    store.close()
