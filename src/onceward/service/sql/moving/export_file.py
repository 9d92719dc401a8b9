"""
The file that a database is moved in: JSON Lines, with a checksum over everything in its last line.

    {"onceward": "database/1", "schema": {...}, ...}       what it is, and the schema
    [0, 17, "text", null]                                  a row: the number of its table, and its values
    {"record": {...}}                                      the record of a key
    {"end": {"lines": 4, "sha256": "...", ...}}            how many there were, and the checksum

It is written beside its name and renamed when it is whole, so that a file under that name is always a whole one.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple, Self

from onceward._core.errors import ConfigurationError
from onceward.runtime import failpoints
from onceward.service.sql.moving.moved_records import MovedRecord
from onceward.service.sql.moving.moved_schema import MovedSchema
from onceward.service.sql.moving.moved_values import MovedRow, RowDigest, from_plain, json_line, to_plain

FORMAT: Final = "database/1"
WRITTEN = failpoints.declare("sql.export.written", "an export is written whole, beside its name | it gets its name")
NAMED = failpoints.declare("sql.export.named", "an export has its name | the caller is told")


class ExportHeader(NamedTuple):
    """What a file says about itself in its first line."""

    tenant: str
    environment: str
    database: str
    closed: bool
    """Whether the source takes no more writes: nothing can have been written there since."""
    fence_floor: int
    schema: MovedSchema


class TableRow(NamedTuple):
    """A row, and the number of its table."""

    table: int
    values: MovedRow


class ExportTotals(NamedTuple):
    """What a file holds, as its last line has it."""

    rows: list[int]
    """Of each table."""
    digests: list[str]
    """Of each table's rows, in any order."""
    records: int
    records_digest: str


class ExportWriter:
    """Writes a file. Use it in a `with` block: without `finish`, nothing stays."""

    def __init__(self, path: Path, header: ExportHeader) -> None:
        self._path = path
        self._beside = path.with_name(f".{path.name}.part")
        self._hash = sha256()
        self._lines = 0
        self._rows = [RowDigest() for _ in header.schema.tables]
        self._records = RowDigest()
        self._file: BinaryIO = _created(self._beside)
        document = header._asdict() | {"schema": header.schema.document()}
        self._write({"onceward": FORMAT, **document})

    def row(self, table: int, values: MovedRow) -> None:
        """Add a row."""
        plain = [to_plain(one) for one in values]
        self._rows[table].add(plain)
        self._write([table, *plain])

    def record(self, record: MovedRecord) -> None:
        """Add the record of a key."""
        document = record.document()
        self._records.add(list(document.values()))
        self._write({"record": document})

    def finish(self) -> ExportTotals:
        """Write the end, and give the file its name."""
        totals = ExportTotals(
            [one.count for one in self._rows],
            [one.hexdigest() for one in self._rows],
            self._records.count,
            self._records.hexdigest(),
        )
        end = {"lines": self._lines, "sha256": self._hash.hexdigest(), **totals._asdict()}
        self._file.write(json_line({"end": end}))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        failpoints.hit(WRITTEN)
        self._beside.replace(self._path)
        sync_folder(self._path.parent)
        failpoints.hit(NAMED)
        return totals

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._beside.unlink(missing_ok=True)

    def _write(self, document: Any) -> None:
        line = json_line(document)
        self._hash.update(line)
        self._file.write(line)
        self._lines += 1


class ExportFile:
    """A file that was written whole: it is read through once to see that, and again for each use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.header, self.totals, self.digest = self._checked()
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, UnicodeError) as error:
            raise _damaged(path) from error

    @property
    def size(self) -> int:
        """How many rows and records there are."""
        return sum(self.totals.rows) + self.totals.records

    def items(self, skip: int = 0) -> Iterator[TableRow | MovedRecord]:
        """The rows and records in order, without the first so many."""
        with self.path.open("rb") as file:
            file.readline()
            for number, line in enumerate(file):
                if number < skip:
                    continue
                document = json.loads(line)
                if isinstance(document, list):
                    yield TableRow(document[0], [from_plain(one) for one in document[1:]])
                elif "record" in document:
                    yield MovedRecord.from_document(document["record"])

    def _checked(self) -> tuple[ExportHeader, ExportTotals, str]:
        hasher, lines, last = sha256(), 0, b""
        with self.path.open("rb") as file:
            first = last = file.readline()
            for line in file:
                hasher.update(last)
                lines += 1
                last = line
        head = json.loads(first)
        if not isinstance(head, dict) or "onceward" not in head:
            raise ConfigurationError(f"{self.path} is not an export of a database; `onceward db export` makes one")
        if head.pop("onceward") != FORMAT:
            raise ConfigurationError(f"{self.path} was written by another version of onceward; upgrade this one")
        end = json.loads(last)["end"]
        if (end.pop("lines"), end["sha256"]) != (lines, hasher.hexdigest()):
            raise _damaged(self.path)
        digest = end.pop("sha256")
        schema = MovedSchema.from_document(head.pop("schema"))
        return ExportHeader(**head, schema=schema), ExportTotals(**end), digest


def _created(path: Path) -> BinaryIO:
    """A file for its owner alone. What a killed export left there goes; another that still writes keeps it."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ConfigurationError(f"another export is writing {path}; wait for it, or name another file") from None
    os.ftruncate(handle, 0)
    return os.fdopen(handle, "wb")


def sync_folder(folder: Path) -> None:
    """Let a new name in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _damaged(path: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is damaged or incomplete: its checksum does not match. Copy it again, or export again. Nothing was "
        f"done"
    )
