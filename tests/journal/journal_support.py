"""Journals on real databases, in both colours, from one text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from onceward.journal import AsyncJournal, Journal
from servers import postgres

DATABASE = "journal"
TABLES = ("onceward_journal_calls", "onceward_journal_turns", "onceward_journal_runs")
WORKER = "reconciler-v1"
SCOPE = "test:acme"


def kinds() -> tuple[str, ...]:
    """SQLite, and PostgreSQL unless STORES leaves it out."""
    return ("sqlite", "postgres") if postgres.wanted() else ("sqlite",)


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


class Awaited:
    """An `AsyncJournal`, used by a test that does not await: what is a `with` block here is `async with` there."""

    def __init__(self, url: str, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.journal = AsyncJournal(url, **options)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.journal, name)
        return self._turned(found) if callable(found) else found

    def close(self) -> None:
        """Close it, and its loop."""
        self.loop.run_until_complete(self.journal.close())
        self.loop.close()

    def _turned(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            made = method(*given, **named)
            if hasattr(made, "__aenter__"):
                return self._block(made)
            return self.loop.run_until_complete(made) if asyncio.iscoroutine(made) else made

        return call

    @contextmanager
    def _block(self, manager: Any) -> Iterator[Any]:
        entered = self.loop.run_until_complete(manager.__aenter__())
        try:
            yield _Inside(self, entered)
        except BaseException as error:
            if not self.loop.run_until_complete(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self.loop.run_until_complete(manager.__aexit__(None, None, None))


class _Inside:
    """A run, a turn or an attempt of an `AsyncJournal`."""

    def __init__(self, outer: Awaited, inner: Any) -> None:
        self._outer, self._inner = outer, inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._outer._turned(found) if callable(found) else found


def opened(colour: str, url: str, **options: Any) -> Any:
    """A journal of that colour; its methods block either way."""
    options = {"scope": SCOPE, "worker": WORKER, **options}
    return Awaited(url, **options) if colour == "awaiting" else Journal(url, **options)
