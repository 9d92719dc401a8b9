"""
The process of one adapter of the sql-postgres group: inserts by psycopg alone, by hand as the engine does, and by it.

Both have the same driver, event loop and row. The bare one has a connection for each caller, a prepared statement and
autocommit; the engine has its own pool, and the callers are eight tenants.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import uvloop

from bench.sql_postgres_hand import ByHand
from bench.worker import Broken
from onceward.service.sql.postgres import PostgresEngine
from onceward.service.sql.requests import Keyed

CALLERS = {"one": 1, "many": 32}
TENANTS = 8
NAMES = [f"live-tenant{number}" for number in range(TENANTS)]
SETTLED = 200
CREATE = "CREATE TABLE rows (id text PRIMARY KEY, body text NOT NULL)"
BODY = "x" * 100


class Bare:
    """What is compared with: one INSERT that commits by itself, with no key, no tenant and no check."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._open: list[psycopg.AsyncConnection[Any]] = []

    async def prepare(self) -> None:
        """A connection for each caller."""
        for _ in range(max(CALLERS.values())):
            self._open.append(await psycopg.AsyncConnection.connect(self._url, autocommit=True))
        await self._open[0].execute(CREATE)

    async def insert(self, caller: int, key: str, body: str = BODY) -> bool:
        """One durable row."""
        await self._open[caller].execute("INSERT INTO rows (id, body) VALUES (%s, %s)", [key, body], prepare=True)
        return False

    async def rows(self) -> int:
        """How many there are."""
        cursor = await self._open[0].execute("SELECT count(*) FROM rows")
        return int((await cursor.fetchall())[0][0])

    async def close(self) -> None:
        """Let go."""
        for one in self._open:
            await one.close()


class Through:
    """The engine; with keys or without."""

    def __init__(self, url: str, *, keyed: bool) -> None:
        self._url = url
        self._keyed = keyed
        self._names = NAMES

    async def prepare(self) -> None:
        """A database for each tenant."""
        self._engine = PostgresEngine(self._url)
        for name in self._names:
            await self._engine.create(name, "bench")
            await self._engine.query(name, "bench", CREATE)

    async def insert(self, caller: int, key: str, body: str = BODY) -> bool:
        """One durable row; whether it was a replay."""
        name = self._names[caller % TENANTS]
        identity = Keyed(f"live:{name}:db:bench", key) if self._keyed else None
        sql = "INSERT INTO rows (id, body) VALUES ($1, $2)"
        return (await self._engine.query(name, "bench", sql, [key, body], identity=identity)).replayed

    async def rows(self) -> int:
        """How many there are, of all tenants."""
        answers = [await self._engine.query(name, "bench", "SELECT count(*) FROM rows") for name in self._names]
        return sum(int(str(one.rows[0][0])) for one in answers)

    async def close(self) -> None:
        """Let go."""
        await self._engine.close()


ADAPTERS: dict[str, Callable[[str], Any]] = {
    "bare": Bare,
    "ours": lambda url: Through(url, keyed=True),
    "ours-plain": lambda url: Through(url, keyed=False),
    "hand": lambda url: ByHand(url, NAMES, CREATE),
}


class SqlPostgres:
    """One adapter, under one caller or many: `write_one`, `write_many`, `replay_one`, `replay_many`."""

    def __init__(self, folder: Path, name: str, url: str) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._keyed = name == "ours"
        self._adapter = ADAPTERS[name](url)
        self._numbers, self._turns = count(), count()

    def check(self) -> None:
        """One row per key, however often it is sent; and the keys that are replayed."""
        self._run(self._adapter.prepare())
        if self._keyed:
            replays = [self._run(self._adapter.insert(0, "same")) for _ in range(3)]
            if (replays, self._run(self._adapter.rows())) != ([False, True, True], 1):
                raise Broken(f"{replays} and {self._run(self._adapter.rows())} rows for one key sent three times")
            self._run(self._settle())
        self._run(self._calls("write", max(CALLERS.values()), time.perf_counter() + 0.5))  # Connections, plans.

    async def _settle(self) -> None:
        for number in range(SETTLED):
            for tenant in range(TENANTS):
                await self._adapter.insert(tenant, f"settled-{number}")

    def slice(self, case: str, seconds: float) -> dict[str, Any]:
        """Write for so long, and count the rows."""
        kind, _, crowd = case.partition("_")
        before = self._run(self._adapter.rows())
        began, cpu = time.perf_counter(), time.process_time()
        done = self._run(self._calls(kind, CALLERS[crowd], began + seconds))
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        replays = self._keyed and kind == "replay"
        if self._run(self._adapter.rows()) - before != (0 if replays else done):
            raise Broken(f"{done} writes were answered, and the rows do not add up")
        return {"operations": done, "seconds": took, "cpu": cpu}

    def count(self, case: str, operations: int) -> dict[str, Any]:
        """Not asked for here."""
        raise Broken(f"nothing is counted in {case} ({operations})")

    def close(self) -> None:
        """Clean up."""
        self._run(self._adapter.close())
        self._runner.close()

    async def _calls(self, kind: str, callers: int, until: float) -> int:
        done = 0
        replays = self._keyed and kind == "replay"

        async def caller(number: int) -> None:
            nonlocal done
            while True:
                key = f"settled-{next(self._turns) % SETTLED}" if replays else f"key-{next(self._numbers):09d}"
                if await self._adapter.insert(number, key, BODY) != replays:
                    raise Broken(f"{key} was {'not ' if replays else ''}replayed")
                done += 1
                if time.perf_counter() >= until:
                    return

        await asyncio.gather(*(caller(number) for number in range(callers)))
        return done

    def _run(self, asked: Any) -> Any:
        async def run() -> Any:
            return await asked

        return self._runner.run(run())
