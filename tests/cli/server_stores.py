"""
Stores on real servers for the tests of the command line: empty ones, and records that were written long ago.

A server's clock cannot be set back for a test, so a record is written now and then moved into the past, with all its
instants, by a hand that reaches past the store.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import psycopg

from onceward._core.record import NOW, PutResult, Write
from onceward.stores import Store, open_store
from servers import postgres, redis
from servers.redis_rows import changed

ON_SERVERS = ("postgres", "redis")
DATABASE = "commands"
MICROS = 1_000_000


def wanted() -> tuple[str, ...]:
    """SQLite, and the servers that STORES does not leave out."""
    servers = (("postgres", postgres.wanted), ("redis", redis.wanted))
    return ("sqlite", *(kind for kind, is_wanted in servers if is_wanted()))


def empty(kind: str) -> str:
    """The URL of an empty store."""
    if kind == "redis":
        return redis.running().url()
    # What the test before left (letters, messages, decisions) is in tables that are made again when they are needed.
    for (table,) in admin().execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'onceward\\_%'").fetchall():
        if table == "onceward_records":
            admin().execute("DELETE FROM onceward_records")
        elif table != "onceward_meta":
            admin().execute(f"DROP TABLE IF EXISTS {table} CASCADE".encode())
    admin().execute("DROP FUNCTION IF EXISTS onceward_audit_append_only")  # The table's trigger is gone; this is not.
    return postgres.running().url(DATABASE)


@cache
def admin() -> psycopg.Connection[Any]:
    """A superuser's connection to our database: a purge sees every row of the table, so it is nobody else's."""
    server = postgres.running()
    server.execute(f"CREATE DATABASE {DATABASE}")
    return psycopg.connect(server.url(DATABASE), autocommit=True)


def aged(kind: str, url: str, seconds: float) -> Store:
    """A store whose writes were made some seconds ago."""
    store = open_store(url)
    return Aged(kind, store, round(seconds * MICROS)) if seconds else store


class Aged:
    """A store whose writes are moved into the past as soon as they have landed."""

    def __init__(self, kind: str, store: Any, micros: int) -> None:
        self._store = store
        self._move = _move_postgres if kind == "postgres" else _move_redis
        self._micros = micros

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Put, and move."""
        standing: PutResult = self._store.put(write, expect)
        assert standing.landed
        fresh = [
            "first_at",  # Its gate was told the time as it was: every write brings that along.
            *(["settled_at"] if write.settled_at == NOW else []),
            *(["lease_until"] if write.lease is not None else []),
            *(["replay_until"] if write.replay is not None else []),
            *(["forget_at"] if write.forget is not None else []),
        ]
        self._move(self._store, write, fresh, self._micros)
        return standing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _move_postgres(_: Any, write: Write, columns: list[str], micros: int) -> None:
    changes = ", ".join(f"{column} = {column} - {micros}" for column in columns)
    admin().execute(f"UPDATE onceward_records SET {changes} WHERE id = %s".encode(), (write.id,))


def _move_redis(store: Any, write: Write, fields: list[str], micros: int) -> None:
    client, shard = _client(), store._server.rows.shard_of(write.id)
    tag = f"{{{store._server.prefix}:{shard:x}}}:".encode()
    row = client.get(tag + write.id)
    # Without an expiry: otherwise the server would drop at once what is to be forgotten.
    client.set(tag + write.id, changed(write.id, row, aged=micros, settled_too="settled_at" in fields))
    for index, member in ((b"forget", write.id + (write.family or b"")), (b"replay", write.id)):
        if client.zscore(tag + index, member) is not None:
            client.zincrby(tag + index, -micros, member)


@cache
def _client() -> Any:
    import redis as driver

    return driver.Redis(host="127.0.0.1", port=redis.running().port)
