"""
The limits on PostgreSQL: the driver and nothing else.

A claim is one statement that inserts the key or finds what is stored under it; a settle is an UPDATE, each a durable
transaction of its own. A replay is such a claim, and `json.loads`: nobody knows beforehand that it is one. What it does
not do is the same as in `raw.py`.

Blocking callers have a psycopg connection per thread, in autocommit; awaiting callers share an asyncpg pool, whose
connections are not reset between two callers (nothing is left behind on them, and a reset is a trip of its own).
`RawPostgresBatched` is the limit of a crowd: claims and settles of all tasks in one statement at a time.
"""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import asyncpg
import psycopg

from bench.adapters.batching import FLIGHTS, Asked, BatchedTasks, read_stored
from bench.adapters.raw import identity
from bench.work import Request, Result, Work

POOL = 20
TABLE = (
    "CREATE TABLE IF NOT EXISTS operations "
    "(id bytea PRIMARY KEY, claimed_at timestamptz NOT NULL DEFAULT now(), result text)"
)
CLAIM_OR_GET = (
    "WITH claimed AS (INSERT INTO operations (id) VALUES ({0}) ON CONFLICT DO NOTHING RETURNING id) "
    "SELECT result FROM operations WHERE id = {0}"
)
"""A statement sees what was there before it: no row, and the key is ours."""
SETTLE = "UPDATE operations SET result = {} WHERE id = {}"
BLOCKING = (CLAIM_OR_GET.format("%(id)s"), SETTLE.format("%s", "%s"))
AWAITING = (CLAIM_OR_GET.format("$1"), SETTLE.format("$1", "$2"))
BATCH = (
    "WITH settled AS (UPDATE operations AS o SET result = s.result "
    "FROM unnest($2::bytea[], $3::text[]) AS s (id, result) WHERE o.id = s.id), "
    "claimed AS (INSERT INTO operations (id) SELECT unnest($1::bytea[]) ON CONFLICT DO NOTHING) "
    "SELECT id, result FROM operations WHERE id = ANY($1::bytea[])"
)


class RawPostgres:
    """Two durable statements for a fresh operation, the first of them for a replay."""

    def __init__(self, folder: Path, work: Work, url: str) -> None:
        self._work, self._url = work, url
        self._local = threading.local()
        self._pool: Any = None
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLE)

    def fresh(self, key: str, request: Request) -> Result:
        """Claim, run, settle; or find."""
        stored, connection = identity(key, request), self._connection()
        found = connection.execute(BLOCKING[0], {"id": stored}).fetchone()
        if found is not None:
            return read_stored(found[0])
        result = self._work.effect()
        connection.execute(BLOCKING[1], (json.dumps(result), stored))
        return result

    replay = fresh

    async def afresh(self, key: str, request: Request) -> Result:
        """Claim, run, settle; or find. The connection is not held while the effect runs."""
        stored, pool = identity(key, request), await self._opened()
        found = await pool.fetchrow(AWAITING[0], stored)
        if found is not None:
            return read_stored(found[0])
        result = self._work.effect()
        await pool.execute(AWAITING[1], json.dumps(result), stored)
        return result

    areplay = afresh

    def close(self) -> None:
        """Connections go with the process."""

    def _connection(self) -> Any:
        try:
            return self._local.connection
        except AttributeError:
            self._local.connection = psycopg.connect(self._url, autocommit=True)
            return self._local.connection

    async def _opened(self) -> Any:
        if self._pool is None:  # Checked before anything is timed, by one caller: nobody races here.
            self._pool = await asyncpg.create_pool(self._url, min_size=POOL, max_size=POOL, reset=_left_as_it_is)
        return self._pool


class RawPostgresBatched(BatchedTasks, RawPostgres):
    """The same for tasks, in batches; blocking callers as above."""

    def __init__(self, folder: Path, work: Work, url: str) -> None:
        super().__init__(folder, work, url)
        self._connections: list[Any] = []
        self._opening = asyncio.Lock()

    async def _send(self, number: int, batch: list[Asked]) -> list[str | None]:
        async with self._opening:
            while len(self._connections) < FLIGHTS:
                self._connections.append(await asyncpg.connect(self._url))
        claims = [one.id for one in batch if one.result is None]
        settles = [one for one in batch if one.result is not None]
        rows = await self._connections[number].fetch(
            BATCH, claims, [one.id for one in settles], [one.result for one in settles]
        )
        found = {row[0]: row[1] or "" for row in rows}
        return [found.get(one.id) if one.result is None else None for one in batch]


async def _left_as_it_is(connection: Any) -> None:
    """Instead of the pool's own reset."""
