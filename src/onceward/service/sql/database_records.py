"""
The records of keyed SQL, for whoever looks after them: they are in the tenants' own files, and are read from there.

Nothing of a tenant's is run: a file is opened for reading only, and all that is asked of it is our own table, which no
SQL of a tenant's can touch. The service may run meanwhile, and writes go on.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from onceward._core.errors import ConfigurationError, RequestInvalid, StoreUnavailable
from onceward._core.record import Record
from onceward._core.store_protocols import Selection
from onceward.gate.operator_actions import CANDIDATES_MAX, scan_start_of
from onceward.runtime.environment import REAL, Environment
from onceward.service.sql.database_files import SUFFIX, DatabaseFolder, DatabaseName, file_identity, namespace_of
from onceward.service.sql.sqlite_errors import DRIVER_ERRORS
from onceward.stores import _sqlite_rows as rows
from onceward.stores import _sqlite_schema as schema

FILES_MAX = 100
"""Files that are looked into for one page. A page then ends early, and says where the next one begins."""
READ_SECONDS = 5.0
"""How long one file may take, with all that is read of it. An old file has no index for its records' age."""
_BUSY_SECONDS = 1.0
_STEPS = 10_000
_TABLE = "SELECT type, sql FROM sqlite_schema WHERE name = 'onceward_records'"
_PLACE = re.compile(r"([a-z0-9_-]{1,63})/([a-z0-9_-]{1,63}):([0-9a-f]{64}|)")
_AGE = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")

T = TypeVar("T")


class DatabaseRecord(NamedTuple):
    """A record, and the database whose write it is about."""

    name: DatabaseName
    record: Record


class RecordPage(NamedTuple):
    """Some records, and where the next page begins; None at the end."""

    found: list[DatabaseRecord]
    after: str | None


class DatabaseRecords:
    """The records in the databases of a service's folder."""

    def __init__(
        self, root: Path, environment: Environment = REAL, *, opened: Callable[[Record], Record] | None = None
    ) -> None:
        self._root = root
        self._environment = environment
        self._opened = opened
        """Opens what is sealed at rest; None: nothing is."""

    def databases(self, environment: str, tenant: str) -> list[DatabaseName]:
        """A tenant's databases in one environment, by name."""
        namespace = namespace_of(environment, tenant)
        return [DatabaseName(namespace, name) for name in DatabaseFolder.within(self._root / namespace)]

    def everybody(self) -> list[DatabaseName]:
        """All databases, of all tenants. For operators."""
        if not self._root.is_dir():
            raise ConfigurationError(f"there is no folder {self._root}; name the folder of a service")
        return DatabaseFolder(self._root).databases()

    def page(self, names: Sequence[DatabaseName], limit: int, after: str = "", scope: str | None = None) -> RecordPage:
        """Records database by database, in each of them in order of id."""
        name, start = parse_place(after)
        left = [one for one in names if one >= name]
        found: list[DatabaseRecord] = []
        selection = Selection(scope=scope)
        for one in left[:FILES_MAX]:
            begin = start if one == name else b""
            some = self._read(one, partial(_scan, begin, limit - len(found), selection))
            found += [self._found(one, record) for record in some or ()]
            if len(found) == limit:
                return RecordPage(found, format_place(one, found[-1].record.id))
        return RecordPage(found, format_place(left[FILES_MAX], b"") if len(left) > FILES_MAX else None)

    def oldest(
        self,
        names: Sequence[DatabaseName],
        limit: int,
        after: str = "",
        *,
        older_than: float = 0.0,
        scope: str | None = None,
    ) -> RecordPage:
        """Records of all these databases, the oldest first; only those whose first request is older than so many s."""
        if len(names) > FILES_MAX:
            raise RequestInvalid(
                f"{len(names)} databases are too many to sort at once (at most {FILES_MAX}): name one of them"
            )
        first = parse_age(after)
        before = self._environment.wall_us() - round(older_than * 1_000_000)
        selection = Selection(scope=scope)

        def read(name: DatabaseName) -> list[DatabaseRecord]:
            found = self._read(
                name, lambda cursor, now: rows.scan_by_age(cursor, first, before, limit + 1, selection, now)
            )
            return [self._found(name, record) for record in found or ()]

        merged = merge(*map(read, names), key=lambda one: (one.record.first_at, one.record.id))
        taken = list(islice(merged, limit + 1))
        page = taken[:limit]
        last = page[-1].record if len(taken) > limit else None
        return RecordPage(page, None if last is None else f"{last.first_at}:{last.id.hex()}")

    def stored_scope(self, name: DatabaseName, scope: str) -> str:
        """The scope of a record as it is stored in a database: in a file, as callers know it."""
        return scope

    def load(self, names: Sequence[DatabaseName], id_in: Callable[[DatabaseName], bytes]) -> list[DatabaseRecord]:
        """The records with these ids, one for each database at most."""
        found = []
        for name in names:
            record = self._read(name, partial(_find, id_in(name)))
            if record is not None:
                found.append(self._found(name, record))
        return found

    def begin_with(self, names: Sequence[DatabaseName], digits: str) -> list[DatabaseRecord]:
        """The records whose ids begin with these hex digits; enough of them to see that there are several."""
        start, found = scan_start_of(digits), list[DatabaseRecord]()
        for name in names:
            some = self._read(name, partial(_scan, start, CANDIDATES_MAX, Selection()))
            found += [self._found(name, one) for one in some or () if one.id.hex().startswith(digits)]
        return found

    def _found(self, name: DatabaseName, record: Record) -> DatabaseRecord:
        return DatabaseRecord(name, record if self._opened is None else self._opened(record))

    def _read(self, name: DatabaseName, ask: Callable[[sqlite3.Cursor, int], T]) -> T | None:
        """What a file says; None if it is gone, or has no records yet."""
        path = self._root / name.namespace / f"{name.database}{SUFFIX}"
        if file_identity(path) is None:
            return None
        try:
            with self._open(path) as cursor:
                table = cursor.execute(_TABLE).fetchone()
                if table is None:
                    return None
                if table[0] != "table" or table[1].upper().startswith("CREATE VIRTUAL"):
                    raise StoreUnavailable(f"{path.name} has something else where its records should be")
                if schema.checked_version(schema.version_of(cursor)) < schema.AT_OPENING:
                    _show_as_latest(cursor)
                return ask(cursor, self._environment.wall_us())
        except DRIVER_ERRORS as error:
            if file_identity(path) is None:
                return None  # Just dropped.
            raise StoreUnavailable(f"{path.name} could not be read: {error}") from error

    @contextmanager
    def _open(self, path: Path) -> Iterator[sqlite3.Cursor]:
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
        )
        until = self._environment.monotonic() + READ_SECONDS
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.set_progress_handler(lambda: self._environment.monotonic() > until, _STEPS)
            yield connection.cursor()
        finally:
            connection.close()


def _scan(after: bytes, limit: int, selection: Selection, cursor: sqlite3.Cursor, now: int) -> list[Record]:
    return rows.scan(cursor, after, limit, selection, now)


def _find(id: bytes, cursor: sqlite3.Cursor, now: int) -> Record | None:
    return rows.find(cursor, id, now)


def _show_as_latest(cursor: sqlite3.Cursor) -> None:
    """Let a file of schema 1 look like one of schema 2. It stays as it is: its next write brings it up to date."""
    cursor.execute("CREATE TEMP VIEW onceward_records AS SELECT *, NULL AS holder FROM main.onceward_records")


def parse_place(after: str) -> tuple[DatabaseName, bytes]:
    """Where a page by database begins: a database, and an id in it."""
    if not after:
        return DatabaseName("", ""), b""
    found = _PLACE.fullmatch(after)
    if found is None:
        raise RequestInvalid("after is not valid: send what the previous page ended with")
    return DatabaseName(found[1], found[2]), bytes.fromhex(found[3])


def format_place(name: DatabaseName, id: bytes) -> str:
    """The place after a record, for whoever asks for the next page."""
    return f"{name.namespace}/{name.database}:{id.hex()}"


def parse_age(after: str) -> tuple[int, bytes]:
    """Where a page by age begins: an instant, and an id."""
    if not after:
        return -1, b""
    found = _AGE.fullmatch(after)
    if found is None:
        raise RequestInvalid("after is not valid: send what the previous page ended with")
    return int(found[1]), bytes.fromhex(found[2])
