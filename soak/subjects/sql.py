"""SQL over HTTP: keyed statements, batches and plans' steps, by the client that users have."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter

from onceward import Retry
from onceward.client import AsyncClient
from soak.processes import Victim
from soak.subject import Attempt, World

DATABASES = 4
"""Over both writers of the service."""
SHARED_BY = 10
"""Clients that share one object with its connections, as tasks of one program do; making one takes a while."""
TENANT = "demo"
CREATE = "CREATE TABLE effects (operation TEXT NOT NULL, part INTEGER NOT NULL)"
"""No constraint: a second row would be taken."""
INSERT = "INSERT INTO effects VALUES (?, ?)"
PARTS = 3
"""Rows of a batch: all of them are there as often as the batch was run, or the batch was torn."""


class SqlWrites:
    """See `soak.subject.Subject`."""

    name = "sql"

    def __init__(self, world: World, clients: int) -> None:
        self._world = world
        # Its own retries are short: what they do not get through is sent again by the soak, as an agent would.
        retry = Retry(attempts=3, elapsed=20, timeout=10)
        service = world.service
        many = -(-clients // SHARED_BY)
        self._clients = [AsyncClient(service.address, token=service.token, retry=retry) for _ in range(many)]

    def victims(self) -> list[Victim]:
        """None of its own: the service is everybody's."""
        return []

    async def prepare(self) -> None:
        """The databases."""
        for number in range(DATABASES):
            db = self._clients[0].db(TENANT, f"soak{number}")
            await db.create()
            await db.query(CREATE, plan_key="soak", plan_step="create")

    async def send(self, client: int, attempt: Attempt) -> str:
        """A statement, a batch or a step, in turn."""
        db = self._clients[client // SHARED_BY].db(TENANT, f"soak{attempt.number % DATABASES}")
        operation, key = attempt.operation, attempt.key
        match attempt.number % 3:
            case 0:
                one = await db.query(INSERT, [operation, 0], idempotency_key=key)
                return f"{one.rows_written} {one.last_insert_rowid}"
            case 1:
                plan = {"plan_key": "soak", "plan_step": key} if key is not None else {}
                step = await db.query(INSERT, [operation, 0], **plan)
                return f"{step.rows_written} {step.last_insert_rowid}"
            case _:
                rows = [(INSERT, [operation, part]) for part in range(PARTS)]
                many = await db.batch(rows, idempotency_key=key)
                return f"{many.rows_written} {[one.last_insert_rowid for one in many.results]}"

    async def settle(self) -> None:
        """Nothing goes on by itself."""

    def effects(self, *, settled: bool) -> Counter[str]:
        """Rows by operation, from the files. A batch that is there in part counts as two, for it is not right."""
        found: Counter[str] = Counter()
        for file in sorted((self._world.folder / "databases" / f"test-{TENANT}").glob("*.db")):
            with contextlib.closing(sqlite3.connect(file)) as connection:
                rows = connection.execute(
                    "SELECT operation, count(*), count(DISTINCT part), max(part) FROM effects GROUP BY operation"
                )
                for operation, many, parts, last in rows:
                    whole = parts == (PARTS if last else 1) and many % parts == 0
                    found[operation] += many // parts if whole else 2
        return found

    async def close(self) -> None:
        """Connections."""
        for client in self._clients:
            await client.close()
