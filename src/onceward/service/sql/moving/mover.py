"""
Export and import of a tenant's database.

    export    (close) | snapshot | schema, rows, records --> a file beside its name | its name
    import    the file is whole | schema and values are rehearsed, nothing is written | hidden tables | rows and
              records in batches, each with its position | indexes, numbers | compared with the file | published

Killed anywhere, type the command again: an export begins anew, an import goes on where it was. Until the last step no
name leads to what is imported.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from onceward.runtime.environment import REAL, Environment
from onceward.service.sql.moving.dialects import in_postgres, in_sqlite
from onceward.service.sql.moving.export_file import ExportFile, ExportHeader, ExportTotals, ExportWriter, TableRow
from onceward.service.sql.moving.import_steps import ROWS
from onceward.service.sql.moving.moved_records import MovedRecord
from onceward.service.sql.moving.moved_schema import POSTGRESQL, MovedColumn, MovedTable, Obstacle
from onceward.service.sql.moving.moved_values import MovedRow, RowDigest, json_line, to_plain
from onceward.service.sql.moving.places import DatabasePlace, close_database, open_source, open_target
from onceward.service.sql.moving.target_plan import MoveChoices, PlannedTable, TargetPlan, make_plan

if TYPE_CHECKING:
    from onceward.service.sql.moving.postgres_target import PostgresMoveTarget
    from onceward.service.sql.moving.sqlite_target import SqliteMoveTarget

    Target: TypeAlias = SqliteMoveTarget | PostgresMoveTarget

BATCH_ROWS: Final = 500
BATCH_BYTES: Final = 1_000_000
"""Of one transaction, about."""
SHOWN: Final = 10
"""Differences that are shown of each table."""

MoveProgress: TypeAlias = Callable[[str, int, int], None]
"""Is told what is done, how many rows and records of it so far, and of how many, about."""


def untold(what: str, done: int, total: int) -> None:
    """Tell nobody."""


class ExportReport(NamedTuple):
    """What an export came to."""

    tables: list[str]
    totals: ExportTotals
    closed: bool


class ImportOptions(NamedTuple):
    """How to import."""

    choices: MoveChoices = MoveChoices()
    dry_run: bool = False
    """Only look whether it would fit."""
    restart: bool = False
    """Throw away what an earlier import has begun."""


class ComparedTable(NamedTuple):
    """A table, or the records, after it was read again."""

    name: str
    rows: int
    digest: str
    differences: list[str]


class ImportReport(NamedTuple):
    """What an import came to."""

    header: ExportHeader
    obstacles: list[Obstacle]
    """If there are any, nothing was written."""
    compared: list[ComparedTable]
    already: bool = False
    """Whether it was imported before, and nothing was done now."""

    @property
    def differs(self) -> bool:
        """Whether something did not arrive as it was; it is not published then."""
        return any(one.differences for one in self.compared)


def export_database(
    place: DatabasePlace,
    path: Path,
    *,
    close: bool = False,
    progress: MoveProgress = untold,
    environment: Environment = REAL,
) -> ExportReport:
    """Write a database into a file, in one snapshot. With `close`, it takes no more writes before that, and after."""
    if close:
        close_database(place, environment)
    with open_source(place) as (source, closed):
        header = ExportHeader(
            place.tenant, place.environment, place.database, closed, source.fence_floor, source.schema
        )
        done, total = 0, source.size()
        with ExportWriter(path, header) as writer:
            for number, table in enumerate(source.schema.tables):
                for row in source.rows(table):
                    writer.row(number, row)
                    done += 1
                    progress(f"exporting {table.name}", done, total)
            for record in source.records():
                writer.record(record)
                done += 1
                progress("exporting records of keys", done, total)
            return ExportReport([one.name for one in source.schema.tables], writer.finish(), closed)


def import_database(
    path: Path,
    where: str,
    options: ImportOptions = ImportOptions(),  # noqa: B008 - it cannot be changed
    *,
    progress: MoveProgress = untold,
    environment: Environment = REAL,
) -> ImportReport:
    """Bring a file's database to a folder or to PostgreSQL, under the tenant, environment and name that it had."""
    file = ExportFile(path)
    header = file.header
    place = DatabasePlace(where, header.tenant, header.environment, header.database)
    with open_target(place) as target:
        plan = make_plan(header.schema, target.dialect, options.choices)
        if target.published(file.digest):
            return ImportReport(header, [], [], already=True)
        if options.restart and not options.dry_run:
            target.discard()
        obstacles = [*plan.obstacles, *target.rehearse(plan)]
        obstacles += _misfits(file, plan, target, {one.what for one in obstacles}, progress)
        if obstacles or options.dry_run:
            return ImportReport(header, _once_each(obstacles), [])
        choices = json.dumps([dict(sorted(options.choices.column_types.items())), sorted(options.choices.without)])
        stage, position = target.begin(plan, file.digest, choices)
        if stage == ROWS:
            _fill(file, plan, target, position, progress)
            target.complete(plan, header.fence_floor)
        compared = _compare(file, plan, target, environment.wall_us(), progress)
        report = ImportReport(header, [], compared)
        if not report.differs:
            target.publish()
        return report


def _fill(file: ExportFile, plan: TargetPlan, target: Target, position: int, progress: MoveProgress) -> None:
    """Add what is not there yet, batch by batch."""
    for batch in _batches(file.items(skip=position)):
        if isinstance(batch[0], MovedRecord):
            target.add_records(batch, position)
            what = "records of keys"
        else:
            table = plan.tables[batch[0].table]
            if table is None:
                target.skip(len(batch), position)
            else:
                target.add_rows(table, [one.values for one in batch], position)
            what = "" if table is None else table.name
        position += len(batch)
        progress(f"importing {what}", position, file.size)


def _misfits(
    file: ExportFile, plan: TargetPlan, target: Target, refused: set[str], progress: MoveProgress
) -> Iterator[Obstacle]:
    """Values that the target would change, by column: the first, and how many; not of tables that are refused."""
    seen: Counter[tuple[int, int]] = Counter()
    first: dict[tuple[int, int], str] = {}
    numbers: Counter[int] = Counter()
    done = 0
    for batch in _batches(file.items()):
        done += len(batch)
        progress("looking whether it fits", done, file.size)
        if isinstance(batch[0], MovedRecord):
            break
        at = batch[0].table
        table = None if f"table:{file.header.schema.tables[at].name}" in refused else plan.tables[at]
        for one in () if table is None else target.misfits(table, [row.values for row in batch]):
            place = (at, one.column)
            seen[place] += 1
            first.setdefault(place, f"row {numbers[at] + one.row + 1} {one.why}")
        numbers[at] += len(batch)
    for (at, column), count in seen.items():
        found = file.header.schema.tables[at]
        more = f"; {count - 1:,} more" if count > 1 else ""
        yield Obstacle(f"column:{found.name}.{found.columns[column].name}", first[at, column] + more)


def _batches(items: Iterator[TableRow | MovedRecord]) -> Iterator[list[Any]]:
    """Rows of one table, or records, that are added together."""
    batch: list[Any] = []
    size, kind = 0, None
    for item in items:
        here = item.table if isinstance(item, TableRow) else None
        if batch and (here != kind or len(batch) >= BATCH_ROWS or size >= BATCH_BYTES):
            yield batch
            batch, size = [], 0
        kind = here
        batch.append(item)
        values = item.values if isinstance(item, TableRow) else (item.result, item.error)
        size += sum(len(one) for one in values if isinstance(one, str | bytes))
    if batch:
        yield batch


# The comparison.


def _compare(
    file: ExportFile, plan: TargetPlan, target: Target, now: int, progress: MoveProgress
) -> list[ComparedTable]:
    """Read both again: the file, which its checksum vouches for, and what has been imported."""
    ours = _digests(file, plan, target.dialect, now)
    compared, done = [], 0
    with target.source() as source:
        for number, table in enumerate(plan.tables):
            if table is None:
                continue
            theirs = RowDigest()
            for row in source.rows(_as_moved(table)):
                theirs.add(_compared(row, table, target.dialect))
                done += 1
                progress("comparing", done, file.size)
            differences = []
            if buckets := ours[number].differing(theirs):
                here = (_compared(row.values, table, target.dialect) for row in _rows_of(file, number))
                there = (_compared(row, table, target.dialect) for row in source.rows(_as_moved(table)))
                differences = _differences(buckets, here, there)
            compared.append(ComparedTable(table.name, theirs.count, theirs.hexdigest(), differences))
        theirs = RowDigest()
        for shown in _comparable(source.records(), now):
            theirs.add(shown)
        differences = []
        if buckets := ours[-1].differing(theirs):
            kept = _comparable((one for one in file.items() if isinstance(one, MovedRecord)), now)
            differences = _differences(buckets, kept, _comparable(source.records(), now))
        compared.append(ComparedTable("records of keys", theirs.count, theirs.hexdigest(), differences))
    return compared


def _digests(file: ExportFile, plan: TargetPlan, dialect: str, now: int) -> list[RowDigest]:
    """Of each table in the file, and last of its records."""
    made = [RowDigest() for _ in (*plan.tables, None)]
    for item in file.items():
        if isinstance(item, MovedRecord):
            shown = item.comparable(now)
            if shown is not None:
                made[-1].add(shown)
        else:
            table = plan.tables[item.table]
            if table is not None:
                made[item.table].add(_compared(item.values, table, dialect))
    return made


def _compared(row: MovedRow, table: PlannedTable, dialect: str) -> list[Any]:
    """A row in the one form that both sides are compared in."""
    if dialect == POSTGRESQL:
        return [to_plain(in_postgres(value, type)) for value, type in zip(row, table.types, strict=True)]
    return [to_plain(in_sqlite(value)) for value in row]


def _rows_of(file: ExportFile, number: int) -> Iterator[TableRow]:
    return (one for one in file.items() if isinstance(one, TableRow) and one.table == number)


def _comparable(records: Iterator[MovedRecord], now: int) -> Iterator[list[Any]]:
    return (shown for one in records if (shown := one.comparable(now)) is not None)


def _differences(buckets: set[int], here: Iterator[list[Any]], there: Iterator[list[Any]]) -> list[str]:
    """A few of the rows that are on one side only, or more often on one."""
    digest, counted = RowDigest(), Counter[bytes]()
    for sign, rows in ((1, here), (-1, there)):
        for row in rows:
            if digest.add(row) in buckets:
                counted[json_line(row).rstrip()[:200]] += sign
    lacking = (f"not imported: {row.decode('utf-8', 'replace')}" for row, count in counted.items() if count > 0)
    extra = (f"not in the file: {row.decode('utf-8', 'replace')}" for row, count in counted.items() if count < 0)
    return [*islice(lacking, SHOWN), *islice(extra, SHOWN)] or ["rows differ"]


def _as_moved(table: PlannedTable) -> MovedTable:
    columns = [MovedColumn(name, type) for name, type in zip(table.columns, table.types, strict=True)]
    return MovedTable(table.name, columns, [], [], [], [], [], [])


def _once_each(obstacles: Sequence[Obstacle]) -> list[Obstacle]:
    """The first word about each thing."""
    return list({one.what: one for one in reversed(obstacles)}.values())[::-1]
