"""
The limits on PostgreSQL: the driver and nothing else.

Blocking callers have a psycopg connection per thread, in autocommit; awaiting callers share an asyncpg pool of ten,
whose connections are not reset between two callers (nothing is left behind on them, and a reset is a trip of its own).

A claim is an INSERT ... ON CONFLICT DO NOTHING, a settle an UPDATE, each a durable transaction of its own; a replay is
a SELECT by key and `json.loads`. What it does not do is the same as in `raw.py`.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import asyncpg
import psycopg

from bench.adapters.raw import identity
from bench.work import Request, Result, Work

POOL = 10
TABLE = (
    "CREATE TABLE IF NOT EXISTS operations "
    "(id bytea PRIMARY KEY, claimed_at timestamptz NOT NULL DEFAULT now(), result text)"
)
CLAIM = "INSERT INTO operations (id) VALUES ({}) ON CONFLICT DO NOTHING"
SETTLE = "UPDATE operations SET result = {} WHERE id = {}"
FIND = "SELECT result FROM operations WHERE id = {}"
BLOCKING = tuple(sql.format("%s", "%s") for sql in (CLAIM, SETTLE, FIND))
AWAITING = tuple(sql.format("$1", "$2") for sql in (CLAIM, SETTLE, FIND))


class RawPostgres:
    """Two durable statements for a fresh operation, one SELECT for a replay."""

    def __init__(self, folder: Path, work: Work, url: str) -> None:
        self._work, self._url = work, url
        self._local = threading.local()
        self._pool: Any = None
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(TABLE)

    def fresh(self, key: str, request: Request) -> Result:
        """Claim, run, settle."""
        claim, settle, _ = BLOCKING
        stored, connection = identity(key, request), self._connection()
        if connection.execute(claim, (stored,)).rowcount != 1:
            raise RuntimeError("the key is taken")
        result = self._work.effect()
        connection.execute(settle, (json.dumps(result), stored))
        return result

    def replay(self, key: str, request: Request) -> Result:
        """Find."""
        row = self._connection().execute(BLOCKING[2], (identity(key, request),)).fetchone()
        result: Result = json.loads(row[0])
        return result

    async def afresh(self, key: str, request: Request) -> Result:
        """Same as `fresh`, but awaits. The connection is not held while the effect runs."""
        claim, settle, _ = AWAITING
        stored, pool = identity(key, request), await self._opened()
        if await pool.execute(claim, stored) != "INSERT 0 1":
            raise RuntimeError("the key is taken")
        result = self._work.effect()
        await pool.execute(settle, json.dumps(result), stored)
        return result

    async def areplay(self, key: str, request: Request) -> Result:
        """Same as `replay`, but awaits."""
        pool = await self._opened()
        result: Result = json.loads(await pool.fetchval(AWAITING[2], identity(key, request)))
        return result

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


async def _left_as_it_is(connection: Any) -> None:
    """Instead of the pool's own reset."""
