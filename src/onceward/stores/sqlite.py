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
from pathlib import Path
from typing import Self, TypeVar
from urllib.parse import quote

from onceward._core.capabilities import Capabilities, OwnTables
from onceward._core.errors import OncewardError
from onceward._core.record import Glance, Record, Standing, Write
from onceward._core.register import Purged, Selection
from onceward.drive import Unstoppable
from onceward.environment import REAL, Environment
from onceward.stores import _sqlite_rows as rows
from onceward.stores import _sqlite_schema as schema
from onceward.stores._commit import Entry
from onceward.stores._kinds import StoreKind
from onceward.stores._sqlite_database import Database
from onceward.stores._sqlite_file import (
    BUSY_SECONDS,
    DRIVER_ERRORS,
    Options,
    connect,
    meaning_of,
    mode_of,
    parse,
    prepare,
)
from onceward.stores._sqlite_rows import put_on
from onceward.stores._upkeep import Check, Upkeep

__all__ = ["KIND", "AsyncSqliteStore", "Check", "SqliteStore", "check", "init", "migrate", "put_on", "schema_version"]

T = TypeVar("T")


class _Opened:
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
        database: Database | None = None,
    ) -> None:
        options = Options(synchronous, settle, busy_seconds, read_first)
        self._database = database if database is not None else Database(Path(path), options, environment)
        self.path = self._database.path
        self.environment = self._database.environment
        self._wall_us = self._database.environment.wall_us

    @classmethod
    def from_url(cls, url: str, *, environment: Environment = REAL) -> Self:
        """Open the file that a URL names, and create it if it is not there."""
        path, options = parse(url)
        return cls(path, database=Database(path, options, environment))

    @property
    def capabilities(self) -> Capabilities:
        """See `onceward.stores.Capabilities`."""
        options = self._database.options
        return Capabilities(
            awaits=self._awaits,
            relaxes=options.settle == "relaxed",
            glance=self.glance if options.read_first else None,
            joins=OwnTables(self),
            tables=f"sqlite:///{quote(str(self.path))}",
        )

    def glance(self, id: bytes) -> Glance | None:
        """
        A quick look at what a replay needs; None if there is nothing, or looking is not quick.

        Microseconds: an awaiting caller looks on the event loop's own thread.
        """
        return self._database.glance(id)


class SqliteStore(_Opened):
    """Records in a SQLite file."""

    def put(self, write: Write, expect: bytes | None) -> Standing:
        """See `onceward.stores.Store.put`."""
        standing: Standing = self._database.commits.run(Entry(write, expect))
        return standing

    def put_back(self, write: Write, marks: Sequence[bytes]) -> Standing:
        """See `onceward.stores.Store.put_back`."""
        return self._run(lambda cursor, now: rows.put_back_in(cursor, write, marks, now))

    def erase(self, ids: Sequence[bytes]) -> int:
        """See `onceward.stores.Store.erase`."""
        return self._run(lambda cursor, _: rows.erase(cursor, ids))

    def load(self, id: bytes) -> Record | None:
        """See `onceward.stores.Store.load`."""
        return self._database.connections.find(id)

    def extend(self, family: bytes, replay: int, forget: int) -> int:
        """See `onceward.stores.Store.extend`."""
        return self._run(lambda cursor, now: rows.extend(cursor, family, replay, forget, now))

    def scan(self, after: bytes, limit: int, selection: Selection) -> list[Record]:
        """See `onceward.stores.Store.scan`."""
        return self._database.connections.read(
            lambda cursor: rows.scan(cursor, after, limit, selection, self._wall_us())
        )

    def purge(self, limit: int) -> Purged:
        """See `onceward.stores.Store.purge`."""
        version = self._database.environment.random(16)
        return Purged(*self._run(lambda cursor, now: rows.purge(cursor, limit, version, now)))

    def close(self) -> None:
        """See `onceward.stores.Store.close`."""
        self._database.close()

    def _run(self, action: Callable[[sqlite3.Cursor, int], T]) -> T:
        answer: T = self._database.commits.run(Entry(None, job=self._database.transaction(action)))
        return answer


class AsyncSqliteStore(_Opened):
    """Same as `SqliteStore`, but awaits. Reads are done at once; writes go to a worker that commits them together."""

    _awaits = True

    def put(self, write: Write, expect: bytes | None) -> asyncio.Future[Standing]:
        """Same as `SqliteStore.put`, but awaits. It is under way when this returns, awaited or not."""
        future: asyncio.Future[Standing] = Unstoppable(loop=asyncio.get_running_loop())
        try:
            self._database.commits.submit(Entry(write, expect, future=future))
        except OncewardError as error:
            future.set_exception(error)
        return future

    def put_back(self, write: Write, marks: Sequence[bytes]) -> asyncio.Future[Standing]:
        """Same as `SqliteStore.put_back`, but awaits."""
        work = self._database.transaction(lambda cursor, now: rows.put_back_in(cursor, write, marks, now))
        return self._submit(work)

    def erase(self, ids: Sequence[bytes]) -> asyncio.Future[int]:
        """Same as `SqliteStore.erase`, but awaits."""
        return self._submit(self._database.transaction(lambda cursor, _: rows.erase(cursor, ids)))

    def load(self, id: bytes) -> asyncio.Future[Record | None]:
        """Same as `SqliteStore.load`, but awaits."""
        return self._read(lambda cursor: rows.find(cursor, id, self._wall_us()))

    def extend(self, family: bytes, replay: int, forget: int) -> asyncio.Future[int]:
        """Same as `SqliteStore.extend`, but awaits."""
        return self._submit(
            self._database.transaction(lambda cursor, now: rows.extend(cursor, family, replay, forget, now))
        )

    def scan(self, after: bytes, limit: int, selection: Selection) -> asyncio.Future[list[Record]]:
        """Same as `SqliteStore.scan`, but awaits."""
        return self._submit(lambda cursor: rows.scan(cursor, after, limit, selection, self._wall_us()))

    def purge(self, limit: int) -> asyncio.Future[Purged]:
        """Same as `SqliteStore.purge`, but awaits."""
        version = self._database.environment.random(16)
        return self._submit(
            self._database.transaction(lambda cursor, now: Purged(*rows.purge(cursor, limit, version, now)))
        )

    async def close(self) -> None:
        """Same as `SqliteStore.close`, but awaits."""
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
        future: asyncio.Future[T] = Unstoppable(loop=asyncio.get_running_loop())
        self._database.commits.submit(Entry(None, job=job, future=future))
        return future


# For the command line.


def init(url: str, *, environment: Environment = REAL) -> Path:
    """Create the file and its schema if they are not there; the file's real path."""
    path, options = parse(url)
    database = Database(path, options, environment)
    database.close()
    return database.path


def migrate(url: str, *, environment: Environment = REAL) -> tuple[int, int]:
    """Bring an existing file's schema up to date; its versions before and after."""
    path, options = parse(url)
    database = Database(path, options, environment, create=False)
    database.close()
    return database.connections.migrated or (schema.LATEST, schema.LATEST)


def check(url: str, *, environment: Environment = REAL) -> list[Check]:
    """Look an existing file over: damage, schema, settings, permissions and what it holds. Nothing is changed."""
    path, options = parse(url)
    real = prepare(path, create=False)
    try:
        connection = connect(real, read_only=True)
        try:
            return _findings(connection.cursor(), real, options)
        finally:
            connection.close()
    except DRIVER_ERRORS as error:
        raise meaning_of(error, real) from error


def schema_version(url: str) -> int:
    """The version of the schema in an existing file; 0 if Onceward has no tables there. Nothing is changed."""
    real = prepare(parse(url)[0], create=False)
    try:
        connection = connect(real, read_only=True)
        try:
            return schema.version_of(connection.cursor())
        finally:
            connection.close()
    except DRIVER_ERRORS as error:
        raise meaning_of(error, real) from error


def _findings(cursor: sqlite3.Cursor, path: Path, options: Options) -> list[Check]:
    damage = [row[0] for row in cursor.execute("PRAGMA quick_check(10)")]
    version = schema.version_of(cursor)
    journal = cursor.execute("PRAGMA journal_mode").fetchone()[0]
    mode = mode_of(path)
    counted = "SELECT state, count(*) FROM onceward_records GROUP BY state ORDER BY state"
    counts = dict(cursor.execute(counted)) if version else {}
    return [
        Check("damage", damage == ["ok"], "; ".join(damage)),
        Check("schema", version == schema.LATEST, f"version {version}" if version else "no Onceward tables"),
        Check("journal", journal == "wal", journal),
        Check("synchronous", options.synchronous == "full", f"{options.synchronous}, settle {options.settle}"),
        Check("mode", mode & 0o077 == 0, f"{mode:04o}"),
        Check("records", True, ", ".join(f"{count} {state}" for state, count in counts.items()) or "none"),
    ]


def _upkeep() -> Upkeep:
    from onceward.stores import _sqlite_upkeep

    return _sqlite_upkeep


KIND = StoreKind(
    open=SqliteStore.from_url, open_async=AsyncSqliteStore.from_url, local=True, tables=str, upkeep=_upkeep
)
"""What `sqlite://` opens. Other tables are in files beside it, or in it."""
