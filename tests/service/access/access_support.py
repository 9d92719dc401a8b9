"""
Tokens, tenants and balances on real databases, in both colours, with a clock that a test moves.

On SQLite the clock is the environment's. A server's clock cannot be moved, so on PostgreSQL every instant is moved into
the past instead, by a hand that reaches past the driver.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from colours import Awaited
from onceward.service.access import Access, AsyncAccess
from onceward.stores import open_store
from onceward.testing.clock import StillEnvironment
from servers import postgres

PEPPER = "pepper-canary-" + "0123456789abcdef" * 3
DATABASE = "access"
INSTANTS = {
    "onceward_tenants": ("created_at", "erasing_at"),
    "onceward_tokens": ("created_at", "last_used_at", "expires_at", "revoked_at"),
    "onceward_reservations": ("opened_at", "lapses_at", "ended_at"),
    "onceward_topups": ("created_at",),
    "onceward_erasures": ("started_at", "finished_at"),
}


class World:
    """One place to keep tokens, and its time."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.environment = StillEnvironment()
        if kind == "sqlite":
            self.url = f"sqlite:///{folder}/agent.db"
        else:
            self.url = postgres.running().url(DATABASE)
            clear()
        store = open_store(self.url)
        store.load(bytes(32))  # The records' own tables.
        store.close()

    def pass_time(self, seconds: float) -> None:
        """Let so much time pass for everything that is kept, and for every process."""
        self.environment.advance(seconds)
        if self.kind == "postgres":
            micros = round(seconds * 1_000_000)
            for table, columns in INSTANTS.items():
                moved = ", ".join(f"{column} = {column} - {micros}" for column in columns)
                admin().execute(f"UPDATE {table} SET {moved}".encode())
            counted = "name IN ('counted_at', 'counted_since')"
            admin().execute(f"UPDATE onceward_access SET value = value - {micros} WHERE {counted}".encode())

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """What is really there."""
        if self.kind == "postgres":
            cursor = admin().execute(sql.encode())
            return cursor.fetchall() if cursor.description else []
        import sqlite3

        name = "agent.db" if "onceward_records" in sql or "onceward_meta" in sql else "agent.access.db"
        connection = sqlite3.connect(self.folder / name)
        try:
            found = connection.execute(sql).fetchall()
            connection.commit()
            return found
        finally:
            connection.close()

    def open(self, colour: str = "blocking", **options: Any) -> Any:
        """A shell of that colour; its methods block either way."""
        options = {"create": True, "environment": self.environment, **options}
        if colour == "awaiting":
            return Awaited(AsyncAccess.open(self.url, **options))
        return Access.open(self.url, **options)


@cache
def admin() -> psycopg.Connection[Any]:
    """A superuser's connection to a database of our own."""
    server = postgres.running()
    server.execute(f"CREATE DATABASE {DATABASE}")
    return psycopg.connect(server.url(DATABASE), autocommit=True)


def clear() -> None:
    """Empty every table that is there."""
    there = admin().execute("SELECT to_regclass('onceward_access') IS NOT NULL").fetchone()
    if there == (True,):
        admin().execute(f"TRUNCATE {', '.join(INSTANTS)}".encode())
        admin().execute("UPDATE onceward_access SET value = 0 WHERE name <> 'schema_version'")
    there = admin().execute("SELECT to_regclass('onceward_records') IS NOT NULL").fetchone()
    if there == (True,):
        admin().execute("DELETE FROM onceward_records")
