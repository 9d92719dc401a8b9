"""
The SQLite store: one file, many threads, many processes, both colours.

    sqlite:///agent.db                        relative path
    sqlite:////var/lib/agent.db               absolute path
    sqlite:///agent.db?busy=2&settle=relaxed  with options

Options:

- `synchronous=full` (default): every answer is on the disk before it is given. `synchronous=normal`: no write waits
  for the disk. A killed process loses nothing; a power cut or a crash of the operating system loses the last
  writes, **acknowledged ones included**, so that a claim may be forgotten and its operation run twice.
- `settle=durable` (default). `settle=relaxed`: claims wait for the disk, settles that ask for it do not. A power cut
  may lose such a settle, never its claim: the operation is then in doubt (or sent again under the same key, if it
  is keyed), and never forgotten.
- `busy=5`: how many seconds a call waits for other processes before it raises `StoreUnavailable`.
- `read_first=1`: look before writing, so that a replay takes no write lock. 0 leaves everything to the constraint.

The file is created for its owner alone (0600). It must be on a local disk: the log is shared memory. To back it up,
use `sqlite3 agent.db ".backup copy.db"` or `VACUUM INTO`; copying the file alone leaves out what is in the log.

The store keeps to tables called `onceward_…`, so that your own may live in the same file.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import quote

from onceward._core.capabilities import Capabilities, OwnTables
from onceward._core.errors import OncewardError
from onceward._core.record import PeekResult, PutResult, Record, Write
from onceward._core.store_protocols import PurgeResult, Selection
from onceward.runtime.environment import REAL, Environment
from onceward.runtime.flow_driver import UncancellableFuture
from onceward.stores import _sqlite_rows as rows
from onceward.stores import _sqlite_schema as schema
from onceward.stores._event_loop_looks import EventLoopLooks
from onceward.stores._group_commit import QueueEntry
from onceward.stores._sqlite_database import SqliteDatabase
from onceward.stores._sqlite_file import (
    BUSY_SECONDS,
    DRIVER_ERRORS,
    SqliteOptions,
    connect,
    mode_of,
    parse,
    prepare_file,
    translate_error,
)
from onceward.stores._sqlite_purge import PurgeLoop
from onceward.stores._sqlite_rows import put_on
from onceward.stores._store_kinds import StoreKind
from onceward.stores._upkeep import StoreCheck, Upkeep

__all__ = [
    "KIND",
    "AsyncSqliteStore",
    "SqliteStore",
    "StoreCheck",
    "check",
    "init",
    "migrate",
    "put_on",
    "schema_version",
]

T = TypeVar("T")


class _SqliteStoreBase:
    """What both colours share: how a file is opened, and the quick look."""

    _awaits = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "full",
        settle: str = "durable",
        busy_seconds: float = BUSY_SECONDS,
        read_first: bool = True,
        environment: Environment = REAL,
        database: SqliteDatabase | None = None,
    ) -> None:
        options = SqliteOptions(synchronous, settle, busy_seconds, read_first)
        self._database = database if database is not None else SqliteDatabase(Path(path), options, environment)
        self.path = self._database.path
        self.environment = self._database.environment
        self._wall_us = self._database.environment.wall_us

    @classmethod
    def from_url(cls, url: str, *, environment: Environment = REAL) -> Self:
        """Open the file that a URL names, and create it if it is not there."""
        path, options = parse(url)
        return cls(path, database=SqliteDatabase(path, options, environment))

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do besides keeping records."""
        options = self._database.options
        return Capabilities(
            awaits=self._awaits,
            relaxes=options.settle == "relaxed",
            peek=self._database.peek if options.read_first else None,
            joins=OwnTables(self),
            tables=f"sqlite:///{quote(str(self.path))}",
        )

    def peek(self, id: bytes) -> PeekResult | None:
        """
        A quick look at what a replay needs; None if there is nothing, or looking is not quick.

        Microseconds: an awaiting caller looks on the event loop's own thread.
        """
        return self._database.peek(id)


class SqliteStore(_SqliteStoreBase):
    """Records in a SQLite file."""

    def put(self, write: Write, expect: bytes | None) -> PutResult:
        """Write a record if its current version is `expect`; whether it landed, and what is there now."""
        return self._database.put(write, expect)

    def put_back(self, write: Write, marks: Sequence[bytes]) -> PutResult:
        """Write a record that the store has lost, unless it is back or one of `marks` is there."""
        return self._run(lambda cursor, now: rows.put_back_in(cursor, write, marks, now))

    def erase(self, ids: Sequence[bytes]) -> int:
        """Delete these records, whatever their state; how many there were."""
        return self._run(lambda cursor, _: rows.erase(cursor, ids))

    def load(self, id: bytes) -> Record | None:
        """Read one record; None if there is none."""
        return self._database.connections.find(id)

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """Let the settled records of a family replay for longer; how many there were."""
        return self._run(lambda cursor, now: rows.extend(cursor, family, replay, forget, now))

    def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        """One page of records in order of id, beginning after an id."""
        return self._database.connections.read(
            lambda cursor: rows.scan(cursor, after, limit, selection, self._wall_us())
        )

    def purge(self, limit: int) -> PurgeResult:
        """Delete forgotten records and shrink expired ones to tombstones, at most `limit` of either."""
        purge, version = PurgeLoop(limit), self._database.environment.random(16)
        while not purge.is_done:
            job = self._database.purge_job(purge.left, version)
            purge.add(self._database.commits.run(QueueEntry(None, job=job)))
        return purge.result()

    def close(self) -> None:
        """Close files and connections. Closing twice is fine."""
        self._database.close()

    def _run(self, action: Callable[[sqlite3.Cursor, int], T]) -> T:
        answer: T = self._database.commits.run(QueueEntry(None, job=self._database.transaction(action)))
        return answer


class AsyncSqliteStore(_SqliteStoreBase):
    """Records in a SQLite file, for awaiting callers. Reads are done at once; a worker commits writes together."""

    _awaits = True
    _here: tuple[asyncio.AbstractEventLoop | None, EventLoopLooks | None] = (None, None)
    """The loop that looked last, and its looks: most stores are used in one."""

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do besides keeping records."""
        can = super().capabilities
        return can if can.peek is None else replace(can, look=self.look)

    def look(self, id: bytes) -> asyncio.Future[PeekResult | None] | None:
        """
        A look at what a replay needs, together with others of this round of the event loop. None if there are no
        others, or if a look is not quick: `peek` decides.
        """
        if self._database.connections.stale:
            return None
        loop = asyncio.get_running_loop()
        here, looks = self._here
        if here is not loop or looks is None:
            looks = EventLoopLooks(self._database.peek_many)
            self._here = (loop, looks)  # What another loop has under way is known to that loop.
        return looks.look(id, loop) if looks.has_company() else None

    def put(self, write: Write, expect: bytes | None) -> asyncio.Future[PutResult]:
        """
        Write a record if its current version is `expect`; whether it landed, and what is there now.

        It is under way when this returns, awaited or not.
        """
        future: asyncio.Future[PutResult] = UncancellableFuture(loop=asyncio.get_running_loop())
        try:
            self._database.commits.submit(QueueEntry(write, expect, future=future))
        except OncewardError as error:
            future.set_exception(error)
        return future

    def put_back(self, write: Write, marks: Sequence[bytes]) -> asyncio.Future[PutResult]:
        """Write a record that the store has lost, unless it is back or one of `marks` is there."""
        work = self._database.transaction(lambda cursor, now: rows.put_back_in(cursor, write, marks, now))
        return self._submit(work)

    def erase(self, ids: Sequence[bytes]) -> asyncio.Future[int]:
        """Delete these records, whatever their state; how many there were."""
        return self._submit(self._database.transaction(lambda cursor, _: rows.erase(cursor, ids)))

    def load(self, id: bytes) -> asyncio.Future[Record | None]:
        """Read one record; None if there is none."""
        return self._read(lambda cursor: rows.find(cursor, id, self._wall_us()))

    def extend(self, family: bytes, replay: int, forget: int) -> asyncio.Future[int]:
        """Let the settled records of a family replay for longer; how many there were."""
        return self._submit(
            self._database.transaction(lambda cursor, now: rows.extend(cursor, family, replay, forget, now))
        )

    def scan(self, after: bytes, limit: int, selection: Selection) -> asyncio.Future[list[Record]]:
        """One page of records in order of id, beginning after an id."""
        return self._submit(lambda cursor: rows.scan(cursor, after, limit, selection, self._wall_us()))

    async def purge(self, limit: int) -> PurgeResult:
        """Delete forgotten records and shrink expired ones to tombstones, at most `limit` of either."""
        purge, version = PurgeLoop(limit), self._database.environment.random(16)
        while not purge.is_done:
            purge.add(await self._submit(self._database.purge_job(purge.left, version)))
        return purge.result()

    async def close(self) -> None:
        """Close files and connections. Closing twice is fine."""
        await asyncio.get_running_loop().run_in_executor(None, self._database.close)

    def _read(self, action: Callable[[sqlite3.Cursor], T]) -> asyncio.Future[T]:
        """Do a short read at once, or on the worker if the file is busy."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self._database.connections.read(action, patient=False))
        except sqlite3.Error:
            return self._submit(action)
        except OncewardError as error:
            future.set_exception(error)
        return future

    def _submit(self, job: Callable[[sqlite3.Cursor], T]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = UncancellableFuture(loop=asyncio.get_running_loop())
        self._database.commits.submit(QueueEntry(None, job=job, future=future))
        return future


# For the command line.


def init(url: str, *, environment: Environment = REAL) -> Path:
    """Create the file and its schema if they are not there; the file's real path."""
    path, options = parse(url)
    database = SqliteDatabase(path, options, environment)
    database.close()
    return database.path


def migrate(url: str, *, environment: Environment = REAL) -> tuple[int, int]:
    """Bring an existing file's schema up to date, also where that copies its table; its versions before and after."""
    before = schema_version(url)
    path, options = parse(url)
    database = SqliteDatabase(path, options, environment, create=False)
    try:
        _, after = database.commits.run(QueueEntry(None, job=_migrate))
    finally:
        database.close()
    return before, after


def _migrate(cursor: sqlite3.Cursor) -> tuple[int, int]:
    versions = schema.bring_up_to_date(cursor, copies=True)
    # What was copied is in the log, which would keep that size. Whoever reads meanwhile may keep it longer.
    cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return versions


def check(url: str, *, environment: Environment = REAL) -> list[StoreCheck]:
    """Look an existing file over: damage, schema, settings, permissions and what it holds. Nothing is changed."""
    path, options = parse(url)
    real = prepare_file(path, create=False)
    try:
        connection = connect(real, read_only=True)
        try:
            return _findings(connection.cursor(), real, options)
        finally:
            connection.close()
    except DRIVER_ERRORS as error:
        raise translate_error(error, real) from error


def schema_version(url: str) -> int:
    """The version of the schema in an existing file; 0 if Onceward has no tables there. Nothing is changed."""
    real = prepare_file(parse(url)[0], create=False)
    try:
        connection = connect(real, read_only=True)
        try:
            return schema.version_of(connection.cursor())
        finally:
            connection.close()
    except DRIVER_ERRORS as error:
        raise translate_error(error, real) from error


def _findings(cursor: sqlite3.Cursor, path: Path, options: SqliteOptions) -> list[StoreCheck]:
    damage = [row[0] for row in cursor.execute("PRAGMA quick_check(10)")]
    version = schema.version_of(cursor)
    journal = cursor.execute("PRAGMA journal_mode").fetchone()[0]
    mode = mode_of(path)
    counted = "SELECT state, count(*) FROM onceward_records GROUP BY state ORDER BY state"
    counts = dict(cursor.execute(counted)) if version else {}
    return [
        StoreCheck("damage", damage == ["ok"], "; ".join(damage)),
        StoreCheck("schema", schema.AT_OPENING <= version <= schema.LATEST, _schema_detail(version)),
        StoreCheck("journal", journal == "wal", journal),
        StoreCheck("synchronous", options.synchronous == "full", f"{options.synchronous}, settle {options.settle}"),
        StoreCheck("mode", mode & 0o077 == 0, f"{mode:04o}"),
        StoreCheck("records", True, ", ".join(f"{count} {state}" for state, count in counts.items()) or "none"),
    ]


def _schema_detail(version: int) -> str:
    if not version:
        return "no Onceward tables"
    slower = f"; `onceward store migrate` copies the table to version {schema.LATEST}, which writes less"
    return f"version {version}" + slower * (version < schema.LATEST)


def _upkeep() -> Upkeep:
    from onceward.stores import _sqlite_upkeep

    return _sqlite_upkeep


KIND = StoreKind(
    open=SqliteStore.from_url, open_async=AsyncSqliteStore.from_url, local=True, tables=str, upkeep=_upkeep
)
"""What `sqlite://` opens. Other tables are in files beside it, or in it."""
