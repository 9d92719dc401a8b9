"""
Inboxes on real databases, in both colours, with events as their senders sign them.

Signatures are judged by the environment's clock. On PostgreSQL the table has the server's clock, so there every instant
is moved into the past instead, by a hand that reaches past the driver.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from colours import Awaited
from onceward.messaging.inbox import AsyncInbox, Inbox, Source
from onceward.messaging.webhooks import PacSpace, Secret
from onceward.testing.clock import StillEnvironment
from servers import postgres

DATABASE = "inbox"
SCOPE = "live:acme"
TEXT = "canarysecret0123456789abcdef0123"
SECRET = Secret.plain(TEXT)
OTHER_TEXT = "canary-other-secret-0123456789"
OTHER = Secret.plain(OTHER_TEXT)
TABLES = ("events", "marks", "gaps", "sources")


class World:
    """One database, and its time."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.environment = StillEnvironment()
        if kind == "sqlite":
            self.url = f"sqlite:///{folder}/agent.db"
        else:
            self.url = postgres.running().url(DATABASE)
            clear()

    def open(self, colour: str = "blocking", **options: Any) -> Any:
        """An inbox of that colour; its methods block either way."""
        options = {"scope": SCOPE, "environment": self.environment, **options}
        return Awaited(AsyncInbox(self.url, **options)) if colour == "awaiting" else Inbox(self.url, **options)

    def signed(
        self, id: str, body: Any = None, *, secrets: tuple[Secret, ...] = (SECRET,)
    ) -> tuple[dict[str, str], bytes]:
        """An event as PacSpace delivers it, right now."""
        raw = body if isinstance(body, bytes) else json.dumps({"event": id} if body is None else body).encode()
        return PacSpace().sign(id, raw, secrets, now=self.environment.wall_us() / 1e6), raw

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass."""
        self.environment.advance(seconds)
        if self.kind == "postgres":
            micros = round(seconds * 1_000_000)
            columns = ("received_at", "due_at", "done_at", "forget_at")
            moved = ", ".join(f"{column} = {column} - {micros}" for column in columns)
            admin().execute(f"UPDATE onceward_inbox_events SET {moved}".encode())

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What is really there."""
        if self.kind == "postgres":
            return admin().execute(sql.encode()).fetchall()
        connection = sqlite3.connect(self.folder / ("agent.db" if "onceward_records" in sql else "agent.inbox.db"))
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def change(self, sql: str, *values: Any) -> None:
        """Change the inbox's tables by hand; `{}` stands for a value."""
        if self.kind == "postgres":
            admin().execute(sql.format(*["%s"] * len(values)).encode(), values)
            return
        with closing(sqlite3.connect(self.folder / "agent.inbox.db", timeout=60)) as connection:
            connection.execute(sql.format(*["?"] * len(values)), values)
            connection.commit()

    def count(self) -> int:
        """Rows in all of the inbox's tables."""
        return sum(int(self.rows(f"SELECT count(*) FROM onceward_inbox_{table}")[0][0]) for table in TABLES)

    def state(self, id: str) -> tuple[str, int, int]:
        """State, attempts and deliveries of an event."""
        [found] = self.rows(f"SELECT state, attempts, deliveries FROM onceward_inbox_events WHERE id = '{id}'")
        return str(found[0]), int(found[1]), int(found[2])


def ignored(event: Any) -> None:
    """A handler that does nothing."""


def pacspace(handler: Callable[..., Any] | str = ignored, name: str = "pac", **options: Any) -> Source:
    """A source that signs as PacSpace does."""
    return Source(name, PacSpace(), [SECRET], handler, **options)


@cache
def admin() -> psycopg.Connection[Any]:
    """A superuser's connection to a database of our own."""
    server = postgres.running()
    server.execute(f"CREATE DATABASE {DATABASE}")
    return psycopg.connect(server.url(DATABASE), autocommit=True)


def clear() -> None:
    """Empty every table that is there."""
    if admin().execute("SELECT to_regclass('onceward_inbox') IS NOT NULL").fetchone() == (True,):
        admin().execute(f"TRUNCATE {', '.join(f'onceward_inbox_{table}' for table in (*TABLES, 'messages'))}".encode())
    if admin().execute("SELECT to_regclass('onceward_records') IS NOT NULL").fetchone() == (True,):
        admin().execute("DELETE FROM onceward_records")
