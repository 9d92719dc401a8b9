"""Decision logs on real databases, and a hand that reaches past everything that guards them."""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from onceward.audit import CLI, Decision, DecisionLog, Operator
from onceward.testing.clock import StillEnvironment
from servers import postgres

DATABASE = "decisions"
TABLES = ("entries", "texts", "tenants")
ALICE = Operator("alice (root@db1)", CLI, "the provider shows no charge")


class World:
    """One place for a decision log."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.folder = folder
        self.environment = StillEnvironment(wall_us=1_794_000_000_000_000)  # 2026-11-06
        # However busy the machine is, those who wait for the head get their turn.
        self.url = (
            f"sqlite:///{folder}/agent.db?busy=120"
            if kind == "sqlite"
            else postgres.running().url(DATABASE, options="onceward_lock_timeout=120")
        )
        if kind == "postgres":
            for table in ("entries", "texts", "tenants", "head"):
                admin().execute(f"DROP TABLE IF EXISTS onceward_audit_{table}".encode())
            admin().execute(b"DROP TABLE IF EXISTS onceward_audit")
            admin().execute(b"DROP FUNCTION IF EXISTS onceward_audit_append_only")

    def open(self) -> DecisionLog:
        """The log."""
        return DecisionLog.open(self.url, environment=self.environment)

    def guarded(self, sql: str) -> None:
        """A statement of somebody who has not taken the guard off."""
        if self.kind == "postgres":
            with psycopg.connect(postgres.running().url(DATABASE)) as connection:
                connection.execute(sql.encode())
            return
        connection_ = sqlite3.connect(self.folder / "agent.audit.db")
        try:
            connection_.execute(sql)
        finally:
            connection_.close()

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """By hand, past the guard: what is really there, or what somebody makes of it."""
        if self.kind == "postgres":
            cursor = admin().execute(sql.replace("?", "%s").encode(), values)
            return cursor.fetchall() if cursor.description else []
        connection = sqlite3.connect(self.folder / "agent.audit.db")
        try:
            for trigger in ("update", "delete"):
                connection.execute(f"DROP TRIGGER IF EXISTS onceward_audit_no_{trigger}")
            found = connection.execute(sql, values).fetchall()
            connection.commit()
            return found
        finally:
            connection.close()

    def everything(self) -> str:
        """All that stands in the log, as one text."""
        return "\n".join(
            repr(row) for table in (*TABLES, "head") for row in self.execute(f"SELECT * FROM onceward_audit_{table}")
        )


@cache
def admin() -> psycopg.Connection[Any]:
    """A superuser's connection to a database of our own, whose triggers do not fire."""
    server = postgres.running()
    server.execute(f"CREATE DATABASE {DATABASE}")
    connection = psycopg.connect(server.url(DATABASE), autocommit=True)
    connection.execute("SET session_replication_role = replica")
    return connection


def decide(
    log: DecisionLog,
    action: str = "record.release",
    subject: str = "e9bb26a3a693",
    operator: Operator = ALICE,
    **about: Any,
) -> None:
    """Decide something, and carry it out."""
    with log.deciding(Decision(action, subject, operator, before={"state": "in_doubt"}, **about)) as made:
        made.after = {"state": "released"}
