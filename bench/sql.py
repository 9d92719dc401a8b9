"""The process of one adapter of the sql group: writes to a SQLite file by hand, locally, and through the SQL engine."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

from bench.service_hand import DatabaseProcess, make_database
from bench.worker import Broken
from onceward.service.sql import Keyed, LocalDatabase, SqliteEngine

CALLERS = {"one": 1, "fifty": 50}
CREATE = "CREATE TABLE rows (id INTEGER PRIMARY KEY, key TEXT, body TEXT)"
INSERT = "INSERT INTO rows (key, body) VALUES (?, ?)"
BODY = "x" * 100
SCOPE = "test:bench"


class Hand:
    """What is compared with: BEGIN IMMEDIATE; INSERT; COMMIT, on one connection, with no key and no record."""

    def __init__(self, folder: Path) -> None:
        self._connection = sqlite3.connect(folder / "hand.db", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(CREATE)

    async def insert(self, key: str) -> bool:
        """One durable write."""
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(INSERT, (key, BODY))
        self._connection.execute("COMMIT")
        return False

    async def rows(self) -> int:
        """How many there are."""
        found: int = self._connection.execute("SELECT count(*) FROM rows").fetchone()[0]
        return found

    async def close(self) -> None:
        """Let go of it."""
        self._connection.close()


class HandProcess:
    """
    Limits of the engine: key, answer and row in one commit in a process of its own, by hand; or by the engine's own
    code, `LocalDatabase`, with nothing between it and the caller.
    """

    def __init__(self, folder: Path, role: str) -> None:
        self._file = folder / "process.db"
        make_database(self._file)
        self._process = DatabaseProcess(self._file, role)

    async def insert(self, key: str) -> bool:
        """One durable write under a key; whether it was a replay."""
        _, replayed = await self._process.ask(key, [key, BODY])
        return bool(replayed)

    async def rows(self) -> int:
        """How many there are."""
        with closing(sqlite3.connect(self._file)) as connection:
            found: int = connection.execute("SELECT count(*) FROM charges").fetchone()[0]
        return found

    async def close(self) -> None:
        """End its process."""
        self._process.close()


class Local:
    """The engine's code in this process, with keys."""

    def __init__(self, folder: Path) -> None:
        self._database = LocalDatabase(folder / "local.db")
        self._database.query(CREATE)

    async def insert(self, key: str) -> bool:
        """One durable write under a key; whether it was a replay."""
        return self._database.query(INSERT, [key, BODY], identity=Keyed(SCOPE, key)).replayed

    async def rows(self) -> int:
        """How many there are."""
        return int(str(self._database.query("SELECT count(*) FROM rows").rows[0][0]))

    async def close(self) -> None:
        """Let go of it."""
        self._database.close()


class Through:
    """The engine with its processes; `keyed` or not."""

    def __init__(self, folder: Path, *, keyed: bool) -> None:
        self._engine = SqliteEngine(folder / "databases")
        self._keyed = keyed
        self._ready = False

    async def insert(self, key: str) -> bool:
        """One durable write; whether it was a replay."""
        if not self._ready:
            self._ready = True
            await self._engine.create("bench", "bench")
            await self._engine.query("bench", "bench", CREATE)
        identity = Keyed(SCOPE, key) if self._keyed else None
        return (await self._engine.query("bench", "bench", INSERT, [key, BODY], identity=identity)).replayed

    async def rows(self) -> int:
        """How many there are."""
        answer = await self._engine.query("bench", "bench", "SELECT count(*) FROM rows")
        return int(str(answer.rows[0][0]))

    async def close(self) -> None:
        """End its processes."""
        await self._engine.close()


ADAPTERS: dict[str, Callable[[Path], Any]] = {
    "hand": Hand,
    "hand-process": lambda folder: HandProcess(folder, "write"),
    "rules-process": lambda folder: HandProcess(folder, "rules"),
    "ours-local": Local,
    "ours": lambda folder: Through(folder, keyed=True),
    "ours-plain": lambda folder: Through(folder, keyed=False),
}


class Sql:
    """One adapter, under one caller or fifty."""

    def __init__(self, folder: Path, name: str) -> None:
        self._runner = asyncio.Runner()
        self._name = name
        self._adapter = ADAPTERS[name](folder)
        self._keys = count()

    def check(self) -> None:
        """One row per key, however often it is sent; without a key a row each time."""
        replays = [self._run(self._adapter.insert("same")) for _ in range(3)]
        keyed = self._name in ("ours", "ours-local", "hand-process", "rules-process")
        if (replays, self._run(self._adapter.rows())) != (([False, True, True], 1) if keyed else ([False] * 3, 3)):
            raise Broken(f"{replays} and {self._run(self._adapter.rows())} rows for one key sent three times")

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """Write for so long, and count the rows."""
        before = self._run(self._adapter.rows())
        began, cpu = time.perf_counter(), time.process_time()
        done = self._run(self._write(CALLERS[case.partition("_")[0]], began + seconds))
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        if self._run(self._adapter.rows()) - before != done:
            raise Broken(f"{done} writes were answered, and the rows do not add up")
        return {"operations": done, "seconds": took, "cpu": cpu}

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """Not asked for here."""
        raise Broken(f"nothing is counted in {case} ({operations})")

    def close(self) -> None:
        """Clean up."""
        self._run(self._adapter.close())
        self._runner.close()

    async def _write(self, callers: int, until: float) -> int:
        done = 0

        async def caller() -> None:
            nonlocal done
            while True:
                await self._adapter.insert(f"key-{next(self._keys):09d}")
                done += 1
                if time.perf_counter() >= until:
                    return

        await asyncio.gather(*(caller() for _ in range(callers)))
        return done

    def _run(self, asked: Awaitable[Any]) -> Any:
        async def run() -> Any:
            return await asked

        return self._runner.run(run())
