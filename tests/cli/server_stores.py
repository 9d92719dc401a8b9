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
from onceward.stores._redis_rows import keys_of, shard_of
from servers import postgres, redis

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
    if admin().execute("SELECT to_regclass('onceward_records') IS NOT NULL").fetchone() == (True,):
        admin().execute("DELETE FROM onceward_records")
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
    client = _client()
    keys = keys_of(store._server.prefix, shard_of(write.id))
    for field in fields:
        client.hincrby(keys.tag + write.id.hex(), field, -micros)
    client.persist(keys.tag + write.id.hex())  # Otherwise the server would drop at once what is to be forgotten.
    for index, member in ((keys.due, write.id + (write.family or b"")), (keys.stale, write.id)):
        if client.zscore(index, member) is not None:
            client.zincrby(index, -micros, member)


@cache
def _client() -> Any:
    import redis as driver

    return driver.Redis(host="127.0.0.1", port=redis.running().port)
