"""Messages: a row and its message in one transaction, a relay that delivers, an inbox that takes each once."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from onceward import Gate
from soak.processes import Managed, Victim
from soak.receiving import EVENTS, FILE
from soak.relaying import ENDPOINT
from soak.subject import Attempt, Keys, World

T = TypeVar("T")

AGGREGATES = 20
BACKLOG_MAX = 300
"""Messages that wait for the relay: clients hold back while there are more, so that the end is not all waiting."""
LOOK_SECONDS = 0.5
THREADS = 8
ORDERS = "CREATE TABLE IF NOT EXISTS orders (operation TEXT NOT NULL)"
SENT = """SELECT operation, count(*), (SELECT count(*) FROM onceward_outbox_messages
    WHERE json_extract(payload, '$.operation') = operation) FROM orders GROUP BY operation"""
WAITING = "SELECT count(*) FROM onceward_outbox_messages WHERE state = 'waiting'"
UNHANDLED = "SELECT count(*) FROM onceward_inbox_events WHERE state = 'waiting'"


class Messages:
    """See `soak.subject.Subject`."""

    name = "messages"

    def __init__(self, world: World, clients: int) -> None:
        self._world = world
        self._file = world.folder / "shop.db"
        self._url = f"sqlite:///{self._file}"
        self._gate = Gate(self._url, scope="soak")
        self._threads = ThreadPoolExecutor(min(clients, THREADS), thread_name_prefix="soak")
        self._looked_at, self._waiting = 0.0, 0
        folder = str(world.folder)
        self._receiver = receiver = Managed(
            "receiver", lambda: ["-m", "soak.receiving", "--folder", folder], world.folder
        )
        self._relay = Managed(
            "relay", lambda: ["-m", "soak.relaying", "--url", self._url, "--to", receiver.address], world.folder
        )

    def victims(self) -> list[Victim]:
        """The receiver first: the relay is told where it is."""
        return [Victim(self._receiver), Victim(self._relay)]

    async def prepare(self) -> None:
        """The tables."""
        await self._run(self._prepare)

    def _prepare(self) -> None:
        self._gate.records.get("ready")
        with contextlib.closing(sqlite3.connect(self._file)) as connection:
            connection.execute(ORDERS)
            self._gate.outbox(connection)  # Makes its tables.

    async def send(self, client: int, attempt: Attempt) -> str:
        """An order and its message."""
        await self._wait_for(BACKLOG_MAX)
        return str(await self._run(lambda: self._order(attempt)))

    def _order(self, attempt: Attempt) -> str:
        operation, key = attempt.operation, attempt.key
        with contextlib.closing(sqlite3.connect(self._file, timeout=30)) as connection:

            def work() -> str:
                connection.execute("INSERT INTO orders VALUES (?)", (operation,))
                aggregate = f"customer:{attempt.number % AGGREGATES}" if attempt.number % 2 else None
                outbox = self._gate.outbox(connection)
                return outbox.add(ENDPOINT, {"operation": operation}, topic="order", aggregate=aggregate, id=key)

            if attempt.keys is Keys.KEPT:
                return str(self._gate.atomic(connection, operation, work))
            with connection:
                return work()

    def _backlog(self) -> int:
        """How many messages wait to be delivered or handled, as of a moment ago."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            files = ((self._file, WAITING), (self._world.folder / EVENTS, UNHANDLED))
            self._waiting = sum(_count(file, sql) for file, sql in files)
        return self._waiting

    async def settle(self) -> None:
        """Until every message is delivered and handled."""
        await self._wait_for(0)

    async def _wait_for(self, waiting: int) -> None:
        while await self._run(self._backlog) > waiting:  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(LOOK_SECONDS)

    def effects(self, *, settled: bool) -> Counter[str]:
        """Effects at the receiver; before all is delivered, orders that have their message."""
        found: Counter[str] = Counter()
        if not settled:
            with contextlib.closing(sqlite3.connect(self._file)) as connection:
                for operation, orders, messages in connection.execute(SENT):
                    found[operation] = orders if orders == messages else 2  # One without the other is not right.
        with contextlib.closing(sqlite3.connect(self._world.folder / FILE)) as connection:
            for operation, many in connection.execute("SELECT operation, count(*) FROM effects GROUP BY operation"):
                found[operation] = max(found[operation], many)
        return found

    async def close(self) -> None:
        """Threads and the file."""
        self._threads.shutdown()
        self._gate.close()

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _count(file: Path, sql: str) -> int:
    with contextlib.closing(sqlite3.connect(file, timeout=30)) as connection:
        return int(connection.execute(sql).fetchone()[0])
