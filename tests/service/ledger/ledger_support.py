"""
Ledgers on real databases, with a clock that a test moves where the database's is the host's.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from colours import Awaited
from onceward.service.ledger import AsyncLedger, Ledger, LedgerScope, LedgerTerms, wire
from onceward.service.ledger.ledger_audit import AuditReport, audit
from onceward.testing.clock import StillEnvironment
from servers import postgres

DATABASE = "ledger"
TABLES = ("onceward_ledger_entries", "onceward_ledger_checkpoints", "onceward_ledger_customers")
LIVE, TEST = LedgerScope.of("live", "acme"), LedgerScope.of("test", "acme")


class World:
    """One place for a ledger."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.environment = StillEnvironment(wall_us=1_794_000_000_000_000)  # 2026-11-06
        # However busy the machine is, those who wait for each other's rows get their turn.
        patient = "onceward_lock_timeout=120"
        self.url = (
            f"sqlite:///{folder}/agent.db?busy=120"
            if kind == "sqlite"
            else postgres.running().url(DATABASE, options=patient)
        )
        if kind == "postgres":
            clear()

    def open(self, colour: str = "blocking", **terms: Any) -> Any:
        """A ledger; its `run` blocks, whatever the colour."""
        kind = AsyncLedger if colour == "awaiting" else Ledger
        opened = kind.open(self.url, LedgerTerms(**terms), create=True, environment=self.environment)
        return Awaited(opened) if colour == "awaiting" else opened

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """By hand, past everything that guards: what is really there, or what somebody makes of it."""
        if self.kind == "postgres":
            cursor = admin().execute(sql.replace("?", "%s").encode(), values)
            return cursor.fetchall() if cursor.description else []
        connection = sqlite3.connect(self.folder / "agent.ledger.db")
        try:
            found = connection.execute(sql, values).fetchall()
            connection.commit()
            return found
        finally:
            connection.close()

    def count(self, table: str = "onceward_ledger_entries") -> int:
        """How many rows there are."""
        return int(self.execute(f"SELECT count(*) FROM {table}")[0][0])

    def wait_for_a_waiter(self) -> None:
        """Until somebody waits for another's row. On SQLite the second waits for the file, and nobody sees it."""
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        while self.kind == "postgres" and self.execute(asked) == [(0,)]:
            threading.Event().wait(0.01)

    def records(self) -> int:
        """How many records of keys there are."""
        return self.count("onceward_records")


def sent(delta: Any = -1, customer: str = "cus_1", **more: Any) -> wire.DeltaRequest:
    """A delta as it is sent."""
    return wire.DeltaRequest(customer_id=customer, delta=delta, reason=more.pop("reason", "api call"), **more)


def emit(ledger: Any, delta: Any = -1, *, key: str | None = None, place: LedgerScope = LIVE, **more: Any) -> Any:
    """Book a delta; what is answered."""
    return json.loads(ledger.run(ledger.flows.emit(place, sent(delta, **more), key)).text)


def balance(ledger: Any, customer: str = "cus_1", place: LedgerScope = LIVE, period: str | None = None) -> Any:
    """What is derived."""
    return ledger.run(ledger.flows.derive(place, customer, period))


def audited(ledger: Any) -> AuditReport:
    """What a walk comes to."""
    found: AuditReport = ledger.run(audit())
    return found


@cache
def admin() -> psycopg.Connection[Any]:
    """A superuser's connection to a database of our own, which no foreign key stops."""
    server = postgres.running()
    server.execute(f"CREATE DATABASE {DATABASE}")
    connection = psycopg.connect(server.url(DATABASE), autocommit=True)
    connection.execute("SET session_replication_role = replica")
    return connection


def clear() -> None:
    """Empty every table that is there."""
    for table in (*TABLES, "onceward_records"):
        if admin().execute(f"SELECT to_regclass('{table}') IS NOT NULL".encode()).fetchone() == (True,):
            admin().execute(f"DELETE FROM {table}".encode())
