"""
An outbox on a real database, with a clock that a test moves, and endpoints that do as they are told.

On SQLite the clock is the environment's. A server's clock cannot be moved, so on PostgreSQL every instant is moved into
the past instead.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from colours import Awaited
from onceward import AsyncGate, Gate
from onceward.messaging.outbox import Delivered, DeliveryOutcome, Message
from onceward.messaging.outbox.relay import Relay
from onceward.stores import open_async_store, open_store
from onceward.testing.clock import StillEnvironment
from servers import postgres

DATABASE = "outbox"
TABLES = ("onceward_outbox_messages", "onceward_outbox_disabled")
INSTANTS = {"onceward_outbox_messages": ("due_at", "ended_at"), "onceward_outbox_disabled": ("disabled_at",)}


class Receiver:
    """An endpoint that answers as it is told, and remembers what it was given."""

    seconds_max = 10.0

    def __init__(self, answer: Callable[[Message], DeliveryOutcome] | None = None) -> None:
        self.got: list[Message] = []
        self.answer = answer or (lambda _: Delivered("thanks"))

    def deliver(self, message: Message) -> DeliveryOutcome:
        """Take a message."""
        self.got.append(message)
        return self.answer(message)

    @property
    def payloads(self) -> list[str]:
        """What came, in the order in which it came."""
        return [message.payload.decode() for message in self.got]


class World:
    """One database with an outbox, and its time."""

    def __init__(self, kind: str, folder: Path, colour: str = "blocking") -> None:
        self.kind = kind
        self.awaits = colour == "awaiting"
        self.environment = StillEnvironment()
        self.path = folder / "app.db"
        self.url = f"sqlite:///{self.path}" if kind == "sqlite" else postgres.running().url(DATABASE)
        if kind == "postgres":
            admin()
        self.gate = self.opened()
        self.relays: list[Relay] = []
        self.relay({}).close()  # Makes the tables.
        for table in TABLES:
            self.rows(f"DELETE FROM {table}")

    def opened(self, url: str | None = None) -> Any:
        """A gate of this world's colour; its methods block either way."""
        options: dict[str, Any] = {"scope": "live:acme", "environment": self.environment}
        if self.awaits:
            return Awaited(AsyncGate(open_async_store(url or self.url, environment=self.environment), **options))
        return Gate(open_store(url or self.url, environment=self.environment), **options)

    def close(self) -> None:
        """Let go of everything."""
        for relay in self.relays:
            relay.close()
        self.gate.close()

    def relay(self, endpoints: dict[str, Any], **options: Any) -> Relay:
        """A relay of this world's time."""
        made = Relay(self.url, endpoints, environment=self.environment, **options)
        self.relays.append(made)
        return made

    def connect(self, **options: Any) -> Any:
        """A caller's own connection, whose methods block whatever the colour is. SQLite has one colour."""
        if self.kind == "sqlite":
            return sqlite3.connect(self.path, **options)
        if self.awaits:
            return self.gate.also(psycopg.AsyncConnection.connect(self.url, **options))
        return psycopg.connect(self.url, **options)

    def outbox(self, connection: Any, gate: Any = None) -> Any:
        """The outbox of a connection."""
        gate = gate or self.gate
        made = gate.outbox(getattr(connection, "inner", connection))
        return gate.also(made) if self.awaits else made

    @contextmanager
    def caller(self) -> Iterator[Any]:
        """A caller's own connection, in a transaction that commits at the end."""
        connection = self.connect()
        try:
            yield connection
            connection.commit()
        finally:
            connection.close()

    def add(self, *payloads: Any, to: str = "billing", aggregate: str | None = None, **options: Any) -> list[str]:
        """Add messages, in one transaction; their ids."""
        with self.caller() as connection:
            outbox = self.outbox(connection)
            return [outbox.add(to, payload, topic="thing.done", aggregate=aggregate, **options) for payload in payloads]

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass, for what is kept and for every relay."""
        self.environment.advance(seconds)
        if self.kind == "postgres":
            micros = round(seconds * 1_000_000)
            for table, columns in INSTANTS.items():
                moved = ", ".join(f"{column} = {column} - {micros}" for column in columns)
                self.rows(f"UPDATE {table} SET {moved}")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What is really there."""
        if self.kind == "postgres":
            cursor = admin().execute(sql.encode())
            return cursor.fetchall() if cursor.description else []
        connection = sqlite3.connect(self.path)
        try:
            found = connection.execute(sql).fetchall()
            connection.commit()
            return found
        finally:
            connection.close()

    def wait_seconds(self) -> float:
        """How long the only message still waits."""
        now = self.environment.wall_us()
        if self.kind == "postgres":
            [(now,)] = self.rows("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        [(due,)] = self.rows("SELECT due_at FROM onceward_outbox_messages")
        return float(due - now) / 1e6

    def states(self) -> dict[str, int]:
        """How many messages are in which state."""
        return dict(self.rows("SELECT state, count(*) FROM onceward_outbox_messages GROUP BY state"))  # type: ignore[arg-type]


@cache
def admin() -> psycopg.Connection[Any]:
    """A superuser's connection to a database of our own."""
    server = postgres.running()
    server.execute(f"CREATE DATABASE {DATABASE}")
    return psycopg.connect(server.url(DATABASE), autocommit=True)
