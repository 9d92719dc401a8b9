"""
A gate of either colour on a real store, and a hand that changes its rows behind its back: the attacker's.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from onceward import AsyncGate, Gate, OncewardError
from onceward._core.keys import record_id
from onceward.stores import open_async_store, open_store
from onceward.stores._redis_packed_rows import unpack_row
from onceward.testing.clock import StillEnvironment
from servers import postgres, redis
from servers.redis_rows import changed

KINDS = ("sqlite", "postgres", "redis")
COLOURS = ("blocking", "awaiting")
MOVABLE = ("codec", "result", "error")
"""The columns of a row that hold a value."""

_numbers = count()


def wanted() -> tuple[str, ...]:
    """All three, unless STORES leaves some out."""
    named = os.environ.get("STORES", ",".join(KINDS)).replace(" ", "").split(",")
    return tuple(kind for kind in KINDS if kind in named)


class Bench:
    """Gates on one store, and its rows as somebody with a client of the database sees them."""

    def __init__(self, kind: str, colour: str, folder: Path) -> None:
        self.kind, self.colour, self.folder = kind, colour, folder
        self.scope = f"test:seal-{os.getpid()}-{next(_numbers)}"
        self.env = StillEnvironment(seed=f"{kind}/{colour}")
        self.url = {
            "sqlite": lambda: f"sqlite:///{folder}/seal.db",
            "postgres": lambda: postgres.running().url("onceward"),
            "redis": lambda: redis.running().url(),
        }[kind]()
        self._loop = asyncio.new_event_loop()
        self._gates: list[Any] = []

    def gate(self, seal: Any = None, *, scope: str | None = None, **options: Any) -> Any:
        """A gate on the same records, as another process would open it."""
        store = (open_async_store if self.colour == "awaiting" else open_store)(self.url)
        made = (AsyncGate if self.colour == "awaiting" else Gate)(
            store, scope=scope or self.scope, environment=self.env, seal=seal, **options
        )
        self._gates.append(made)
        return made

    def do(self, made: Any) -> Any:
        """The value of what a method of either colour gave back."""
        return self._loop.run_until_complete(_finish(made)) if inspect.isawaitable(made) else made

    def run(self, gate: Any, key: str, value: Any = None, **options: Any) -> Any:
        """Run an operation that gives this value, or raises it."""

        def work() -> Any:
            if isinstance(value, BaseException):
                raise value
            return value

        return self.do(gate.run(key, work, **options))

    def refused(self, gate: Any, key: str, **options: Any) -> tuple[str, str]:
        """What a caller hears who is refused: the error's code and message; that it ran, or what it was told."""
        try:
            return "answered", str(self.do(gate.run(key, lambda: "it ran", **options)))
        except OncewardError as error:
            return error.code, str(error)

    def id(self, key: str, scope: str | None = None) -> bytes:
        """The id of a key's record."""
        return record_id("key", scope or self.scope, f"test:{key}")

    def row(self, key: str, scope: str | None = None) -> dict[str, Any]:
        """The columns of a row that hold a value, and its fence, as they are stored."""
        with self._hand() as hand:
            return hand.read(self.id(key, scope))

    def change(self, key: str, scope: str | None = None, **columns: Any) -> None:
        """Write over columns of a row, by hand."""
        with self._hand() as hand:
            hand.write(self.id(key, scope), columns)

    def swap(self, one: str, other: str, columns: tuple[str, ...] = MOVABLE) -> None:
        """Exchange columns of two rows, by hand."""
        first, second = self.row(one), self.row(other)
        self.change(one, **{name: second[name] for name in columns})
        self.change(other, **{name: first[name] for name in columns})

    @contextmanager
    def _hand(self) -> Iterator[Any]:
        made = {"sqlite": SqliteHand, "postgres": PostgresHand, "redis": RedisHand}[self.kind](self)
        with closing(made):
            yield made

    def close(self) -> None:
        try:
            for gate in self._gates:
                self.do(gate.close())
        finally:
            self._loop.close()


COLUMNS = (*MOVABLE, "fence", "fingerprint", "token", "scope")


class SqliteHand:
    """The file, opened with sqlite3."""

    mark = "?"

    def __init__(self, bench: Bench) -> None:
        self.connection: Any = sqlite3.connect(bench.folder / "seal.db", timeout=60)

    def read(self, id: bytes) -> dict[str, Any]:
        sql = f"SELECT {', '.join(COLUMNS)} FROM onceward_records WHERE id = {self.mark}"
        found = self.connection.execute(sql, (id,)).fetchone()
        return {
            name: bytes(value) if isinstance(value, bytes | bytearray | memoryview) else value
            for name, value in zip(COLUMNS, found, strict=True)
        }

    def write(self, id: bytes, columns: dict[str, Any]) -> None:
        sql = f"UPDATE onceward_records SET {', '.join(f'{name} = {self.mark}' for name in columns)}"
        done = self.connection.execute(f"{sql} WHERE id = {self.mark}", (*columns.values(), id))
        assert done.rowcount == 1
        self.connection.commit()

    def close(self) -> None:
        self.connection.close()


class PostgresHand(SqliteHand):
    """The database, with psycopg."""

    mark = "%s"

    def __init__(self, bench: Bench) -> None:
        import psycopg

        self.connection = psycopg.connect(bench.url)


class RedisHand:
    """The server, with its client."""

    def __init__(self, bench: Bench) -> None:
        import redis as client

        self.client = client.Redis(host="127.0.0.1", port=redis.running().port)

    def read(self, id: bytes) -> dict[str, Any]:
        found = unpack_row(id, 0, self.client.get(self._name(id)))
        return {column: getattr(found, column) for column in COLUMNS}

    def write(self, id: bytes, columns: dict[str, Any]) -> None:
        name = self._name(id)
        self.client.set(name, changed(id, self.client.get(name), **columns), xx=True, keepttl=True)

    def _name(self, id: bytes) -> bytes:
        (name,) = [one for one in self.client.scan_iter(count=10_000) if one.endswith(b"}:" + id)]
        return bytes(name)

    def close(self) -> None:
        self.client.close()


async def _finish(made: Any) -> Any:
    return await made
