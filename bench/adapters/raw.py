"""
The limits: Python's `sqlite3` and nothing else.

What it does: WAL, synchronous FULL, one STRICT WITHOUT ROWID table with a 32-byte key; the key is SHA-256 over the
key and the request as JSON, as one would write it by hand; a claim is an INSERT, a settle an UPDATE, each a durable
transaction of its own; a replay is a SELECT by key and `json.loads`.

What it does not do: no lease, no fence, no owner, no look before the claim, no answer to a claim without a result
(a crashed holder blocks its key for ever), no retention, no purge, no telling apart of two requests under one key.

Threads share one writing connection under a lock (a connection per thread is slower: SQLite's busy handler sleeps),
and have a reading connection each.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sqlite3
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.work import Request, Result, Work

CLAIM = "INSERT INTO operations (id, claimed_at, result) VALUES (?, unixepoch(), NULL)"
SETTLE = "UPDATE operations SET result = ? WHERE id = ?"
FIND = "SELECT result FROM operations WHERE id = ?"
BATCH_MAX = 256


def connect(path: Path) -> sqlite3.Connection:
    """A connection in autocommit, durable."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def identity(key: str, request: Request) -> bytes:
    """The key as it is stored."""
    return sha256(json.dumps([key, request], sort_keys=True).encode()).digest()


class Raw:
    """Two durable statements for a fresh operation, one SELECT for a replay."""

    def __init__(self, folder: Path, work: Work) -> None:
        self._work = work
        self._path = folder / "raw.db"
        self._writer = connect(self._path)
        self._writer.execute(
            "CREATE TABLE operations (id BLOB PRIMARY KEY, claimed_at INTEGER NOT NULL, result TEXT) "
            "STRICT, WITHOUT ROWID"
        )
        self._lock = threading.Lock()
        self._local = threading.local()

    def fresh(self, key: str, request: Request) -> Result:
        """Claim, run, settle."""
        stored = identity(key, request)
        with self._lock:
            self._writer.execute(CLAIM, (stored,))
        result = self._work.effect()
        with self._lock:
            self._writer.execute(SETTLE, (json.dumps(result), stored))
        return result

    def replay(self, key: str, request: Request) -> Result:
        """Find."""
        row = self._reader().execute(FIND, (identity(key, request),)).fetchone()
        result: Result = json.loads(row[0])
        return result

    async def afresh(self, key: str, request: Request) -> Result:
        """The blocking one: what an async caller pays is measured against it."""
        return self.fresh(key, request)

    async def areplay(self, key: str, request: Request) -> Result:
        """Likewise."""
        return self.replay(key, request)

    def close(self) -> None:
        """Close the writer; readers go with their threads."""
        self._writer.close()

    def _reader(self) -> sqlite3.Connection:
        try:
            reader: sqlite3.Connection = self._local.reader
        except AttributeError:
            reader = self._local.reader = connect(self._path)
        return reader


class RawGroup(Raw):
    """The same statements, sent to one thread that commits whatever is queued in one transaction."""

    def __init__(self, folder: Path, work: Work) -> None:
        super().__init__(folder, work)
        self._queue: queue.SimpleQueue[tuple[str, tuple[Any, ...], Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def fresh(self, key: str, request: Request) -> Result:
        """Claim, run, settle; each waits for its batch."""
        stored = identity(key, request)
        self._wait(CLAIM, (stored,))
        result = self._work.effect()
        self._wait(SETTLE, (json.dumps(result), stored))
        return result

    async def afresh(self, key: str, request: Request) -> Result:
        """Same as `fresh`, but awaits."""
        stored = identity(key, request)
        await self._written(CLAIM, (stored,))
        result = self._work.effect()
        await self._written(SETTLE, (json.dumps(result), stored))
        return result

    async def claim(self, id: bytes) -> str | None:
        """None: the key is ours. Otherwise what is stored under it."""
        row = self._reader().execute(FIND, (id,)).fetchone()
        if row is None:
            await self._written(CLAIM, (id,))
            return None
        stored: str = row[0]
        return stored

    async def settle(self, id: bytes, result: str) -> None:
        """Keep it."""
        await self._written(SETTLE, (result, id))

    def close(self) -> None:
        """Stop the thread."""
        self._queue.put(None)
        self._thread.join()
        super().close()

    def _written(self, sql: str, values: tuple[Any, ...]) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put((sql, values, done))
        return done

    def _wait(self, sql: str, values: tuple[Any, ...]) -> None:
        lock = threading.Lock()
        lock.acquire()
        self._queue.put((sql, values, lock))
        lock.acquire()

    def _write(self) -> None:
        writer, pending = self._writer, self._queue
        while (item := pending.get()) is not None:
            batch = [item]
            while len(batch) < BATCH_MAX:
                try:
                    more = pending.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    pending.put(None)
                    break
                batch.append(more)
            try:
                writer.execute("BEGIN IMMEDIATE")
                for sql, values, _ in batch:
                    writer.execute(sql, values)
                writer.execute("COMMIT")
            except sqlite3.Error:
                os.abort()  # A bug in the benchmark: better no process than callers who wait for ever.
            _answer([waiter for _, _, waiter in batch])


def _answer(waiters: list[Any]) -> None:
    """Threads by their locks; tasks by one call into their loop."""
    futures = [waiter for waiter in waiters if isinstance(waiter, asyncio.Future)]
    for waiter in waiters:
        if not isinstance(waiter, asyncio.Future):
            waiter.release()
    if futures:
        futures[0].get_loop().call_soon_threadsafe(_deliver, futures)


def _deliver(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)
