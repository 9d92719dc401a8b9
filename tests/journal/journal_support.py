"""Journals on real databases, in both colours, from one text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from colours import Awaited
from onceward.journal import AsyncJournal, Journal
from servers import postgres

DATABASE = "journal"
TABLES = ("onceward_journal_calls", "onceward_journal_turns", "onceward_journal_runs")
WORKER = "reconciler-v1"
SCOPE = "test:acme"


def url_of(kind: str, folder: Path) -> str:
    """An empty place for a journal."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/agent.db"
    server = database()
    there = server.execute("SELECT to_regclass('onceward_journal')", DATABASE)
    if there and there[0][0] is not None:
        server.execute(f"TRUNCATE {', '.join(TABLES)}", DATABASE)
    return server.url(DATABASE)


@cache
def database() -> Any:
    """This worker's server, with a database of our own."""
    server = postgres.running()
    server.execute(f"CREATE DATABASE {DATABASE}")
    return server


def opened(colour: str, url: str, **options: Any) -> Any:
    """A journal of that colour; its methods block either way."""
    options = {"scope": SCOPE, "worker": WORKER, **options}
    return Awaited(AsyncJournal(url, **options)) if colour == "awaiting" else Journal(url, **options)
