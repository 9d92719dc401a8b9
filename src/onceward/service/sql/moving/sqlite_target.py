"""
A database of a service's folder that is being imported: a file under a hidden name until it is whole.

    folder/databases/live-acme/.shop.db.importing    rows, records, and how far it is, in the same transactions
    folder/databases/live-acme/shop.db               the same file, once it was compared: the service finds it now
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from onceward._core.errors import ConfigurationError
from onceward.runtime import failpoints
from onceward.runtime.environment import REAL
from onceward.service.sql.authorizer import AuthorizerMode, SqlAuthorizer
from onceward.service.sql.database_files import create_file, file_identity
from onceward.service.sql.limits import DEFAULT_LIMITS
from onceward.service.sql.moving.dialects import in_sqlite, quoted, spelled_for_sqlite
from onceward.service.sql.moving.export_file import sync_folder
from onceward.service.sql.moving.import_steps import (
    ADDED,
    COMPARED,
    COMPLETE,
    LINKED,
    MADE,
    PUBLISHED,
    ROWS,
    WHOLE,
    Misfit,
    another_is_at_it,
    begun_otherwise,
    exists_already,
)
from onceward.service.sql.moving.moved_records import COLUMNS, MovedRecord, stored_row
from onceward.service.sql.moving.moved_schema import SQLITE, Obstacle
from onceward.service.sql.moving.moved_values import MovedRow, MovedValue
from onceward.service.sql.moving.sqlite_source import SqliteSource
from onceward.service.sql.moving.target_plan import PlannedStatement, PlannedTable, TargetPlan
from onceward.service.sql.session import connect
from onceward.service.sql.sqlite_errors import DRIVER_ERRORS
from onceward.stores.sqlite import SqliteStore

_BESIDES: Final = ("-wal", "-shm", "-journal")
_NO_LIMIT: Final = 1 << 46
"""Bytes of a database: what an operator imports is not held to what a tenant may grow to."""
_SET: Final = (
    "INSERT INTO onceward_meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
)
_GET: Final = "SELECT value FROM onceward_meta WHERE name = ?"
_FILE, _CHOICES, _POSITION, _STAGE = "move_file", "move_choices", "move_position", "move_stage"


class SqliteMoveTarget:
    """One import into a folder."""

    dialect = SQLITE

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hidden = path.with_name(f".{path.name}.importing")
        self._connection: sqlite3.Connection | None = None

    # What can be known before anything is written.

    def rehearse(self, plan: TargetPlan) -> list[Obstacle]:
        """Make everything in memory; what SQLite refuses."""
        found = []
        with closing(_scratch()) as scratch:
            guard = SqlAuthorizer()
            scratch.set_authorizer(guard.authorize)
            for one in (*plan.before, *plan.after):
                try:
                    _run_as_tenant(scratch, guard, one)
                except DRIVER_ERRORS as error:
                    found.append(Obstacle(one.what, str(guard.refusal or error)[:200]))
        return found

    def misfits(self, table: PlannedTable, rows: Sequence[MovedRow]) -> Iterator[Misfit]:
        """Values that a table would not give back as they are."""
        columns = ", ".join(f"c{n} {spelled_for_sqlite(type)}" for n, type in enumerate(table.types))
        places = ", ".join("?" for _ in table.types)
        with closing(_scratch()) as scratch:
            scratch.execute(f"CREATE TABLE scratch ({columns}){' STRICT' if table.strict else ''}")
            for number, row in enumerate(rows):
                try:
                    scratch.execute(f"INSERT INTO scratch VALUES ({places})", row)  # noqa: S608 - marks only
                    back = scratch.execute("SELECT * FROM scratch").fetchone()
                    scratch.execute("DELETE FROM scratch")
                except DRIVER_ERRORS as error:
                    yield Misfit(number, _largest(row), f"is refused: {str(error)[:120]}")
                    continue
                for place, (value, found) in enumerate(zip(row, back, strict=True)):
                    why = _why_not(in_sqlite(value), found, needed=table.needed[place])
                    if why:
                        yield Misfit(number, place, why)

    # What is written.

    def published(self, digest: str) -> bool:
        """Whether this very file was imported before. If there is another database of that name, it is refused."""
        if file_identity(self._path) is None:
            return False
        with closing(connect(self._path, DEFAULT_LIMITS, readonly=True)) as connection:
            found = None
            with suppress(sqlite3.Error):
                found = connection.execute(_GET, (_FILE,)).fetchone()
        if found is None or found[0] != digest:
            raise exists_already(self._path.stem)
        self._unhide()
        return True

    def begin(self, plan: TargetPlan, digest: str, choices: str) -> tuple[str, int]:
        """Make the tables, or find them made: the stage that it is in, and how many rows and records are in."""
        self._make_folder()
        if file_identity(self._hidden) is None:  # A link is refused: it might lead anywhere.
            self._make(plan, digest, choices)
        self._connection = self._open()
        found = {name: self._meta(name) for name in (_FILE, _CHOICES, _POSITION, _STAGE)}
        if found[_STAGE] is None:  # Killed before anything was committed.
            self.discard()
            return self.begin(plan, digest, choices)
        if (found[_FILE], found[_CHOICES]) != (digest, choices):
            raise begun_otherwise()
        return found[_STAGE], found[_POSITION]

    def add_rows(self, table: PlannedTable, rows: Sequence[MovedRow], position: int) -> None:
        """Add rows that stand at a position in the file."""
        names = ", ".join(quoted(one) for one in table.columns)
        places = ", ".join("?" for _ in table.columns)
        sql = f"INSERT INTO {quoted(table.name)} ({names}) VALUES ({places})"  # noqa: S608 - quoted
        self._add(sql, [list(map(in_sqlite, row)) for row in rows], position)

    def add_records(self, records: Sequence[MovedRecord], position: int) -> None:
        """Add records that stand at a position in the file."""
        places = ", ".join("?" for _ in COLUMNS)
        sql = f"INSERT INTO onceward_records ({', '.join(COLUMNS)}) VALUES ({places})"  # noqa: S608 - our names
        self._add(sql, [stored_row(one, "") for one in records], position)

    def skip(self, count: int, position: int) -> None:
        """Go past rows of a table that is left out."""
        self._add("", [()] * count, position)

    def complete(self, plan: TargetPlan, fence_floor: int) -> None:
        """Indexes, views, numbers, and the fences that no key may get again."""
        line = self._line
        guard = SqlAuthorizer()
        line.set_authorizer(guard.authorize)
        try:
            line.execute("BEGIN IMMEDIATE")
            for one in plan.after:
                _run_as_tenant(line, guard, one)
            for table, last in plan.last.items():
                self._number(table, last)
            line.execute("UPDATE onceward_meta SET value = max(value, ?) WHERE name = 'fence_floor'", (fence_floor,))
            broken = line.execute("PRAGMA foreign_key_check").fetchone()
            if broken is not None:
                raise ConfigurationError(f"a row of {broken[0]} points to a row of {broken[2]} that is not there")
            line.execute(_SET, (_STAGE, WHOLE))
            line.execute("COMMIT")
        except DRIVER_ERRORS as error:
            raise ConfigurationError(f"SQLite refused it: {error}") from error
        finally:
            line.set_authorizer(None)
            if line.in_transaction:
                line.rollback()
        failpoints.hit(COMPLETE)

    def source(self) -> SqliteSource:
        """What has been imported, to be read again."""
        self.close()
        return SqliteSource(self._hidden)

    def publish(self) -> None:
        """Give the file the name that the service looks for."""
        failpoints.hit(COMPARED)
        with closing(self._open()) as line:
            line.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for suffix in _BESIDES:
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        owner = self._path.parent.stat()
        if os.geteuid() == 0:
            os.chown(self._hidden, owner.st_uid, owner.st_gid, follow_symlinks=False)
        try:
            os.link(self._hidden, self._path)
        except FileExistsError:
            raise exists_already(self._path.stem) from None
        sync_folder(self._path.parent)
        failpoints.hit(LINKED)
        self._unhide()
        failpoints.hit(PUBLISHED)

    def discard(self) -> None:
        """Throw away what was begun."""
        self.close()
        for path in (*(Path(f"{self._hidden}{suffix}") for suffix in _BESIDES), self._hidden):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _line(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        line = connect(self._hidden, replace(DEFAULT_LIMITS, database_bytes=_NO_LIMIT))
        line.execute("PRAGMA foreign_keys = OFF")  # Rows come in the order of tables; they are checked at the end.
        return line

    def _meta(self, name: str) -> Any:
        try:
            row = self._line.execute(_GET, (name,)).fetchone()
        except sqlite3.OperationalError:  # Killed before even our own tables were there.
            return None
        return None if row is None else row[0]

    def _make_folder(self) -> None:
        folder = self._path.parent
        if not folder.exists():
            owner = folder.parent.stat()
            folder.mkdir(mode=0o700)
            if os.geteuid() == 0:
                os.chown(folder, owner.st_uid, owner.st_gid)

    def _make(self, plan: TargetPlan, digest: str, choices: str) -> None:
        create_file(self._hidden)
        SqliteStore(self._hidden, environment=REAL).close()
        guard = SqlAuthorizer()
        with closing(self._open()) as line:
            line.set_authorizer(guard.authorize)
            line.execute("BEGIN IMMEDIATE")
            for one in plan.before:
                _run_as_tenant(line, guard, one)
            for name, value in ((_FILE, digest), (_CHOICES, choices), (_POSITION, 0), (_STAGE, ROWS)):
                line.execute(_SET, (name, value))
            line.execute("COMMIT")
        failpoints.hit(MADE)

    def _add(self, sql: str, rows: Sequence[Sequence[Any]], position: int) -> None:
        line = self._line
        try:
            line.execute("BEGIN IMMEDIATE")
            moved = line.execute(
                "UPDATE onceward_meta SET value = ? WHERE name = ? AND value = ?",
                (position + len(rows), _POSITION, position),
            )
            if moved.rowcount != 1:
                raise another_is_at_it()
            if sql:
                line.executemany(sql, rows)
            line.execute("COMMIT")
        except DRIVER_ERRORS as error:
            raise ConfigurationError(
                f"SQLite refused a row: {error}. Nothing can be found under the name yet"
            ) from error
        finally:
            if line.in_transaction:
                line.rollback()
        failpoints.hit(ADDED)

    def _number(self, table: str, last: int) -> None:
        """The numbers that AUTOINCREMENT has handed out."""
        line = self._line
        with suppress(sqlite3.OperationalError):  # No table of this database has AUTOINCREMENT.
            line.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            line.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))

    def _unhide(self) -> None:
        """The hidden name goes, if it is the same file."""
        if self._hidden.exists() and file_identity(self._hidden) == file_identity(self._path):
            self._hidden.unlink()
            sync_folder(self._path.parent)


def _largest(row: MovedRow) -> int:
    """The number of the longest value: of a row that is refused as a whole, most likely the reason."""
    sizes = [len(one) if isinstance(one, str | bytes) else 0 for one in row]
    return sizes.index(max(sizes))


def _scratch() -> sqlite3.Connection:
    """A database in memory with the limits of a tenant's."""
    scratch = sqlite3.connect(":memory:", isolation_level=None)
    for limit, value in DEFAULT_LIMITS.of_sqlite().items():
        scratch.setlimit(limit, value)
    return scratch


def _run_as_tenant(line: sqlite3.Connection, guard: SqlAuthorizer, statement: PlannedStatement) -> None:
    """Run a statement with a tenant's rights, and no others."""
    with guard.tenant(AuthorizerMode.WRITE, statement.sql.split(" ", 1)[0]):
        line.execute(guard.marked(statement.sql))


def _why_not(value: MovedValue, found: Any, *, needed: bool) -> str:
    """Why a value does not fit; empty if it does."""
    if value is None:
        return "is NULL, and the column does not allow that" if needed else ""
    if type(value) is type(found) and value == found:
        return ""
    return f"would become {type(found).__name__} {str(found)[:40]!r}" if found is not None else "would become NULL"
