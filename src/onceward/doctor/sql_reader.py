"""
Reads the SQL files of a project, and the tables of a live database, through the linter.

Reading SQL needs the extra `lint`; without it, SQL files that are there cannot be judged, and that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from onceward.doctor.box import CodePlace
from onceward.lint.file_search import find_files
from onceward.lint.findings import CANNOT_PARSE, CANNOT_READ, TOO_LARGE, Finding
from onceward.lint.sql.key_names import KeyNames
from onceward.runtime.progress import Progress, silent

if TYPE_CHECKING:
    from onceward.doctor.code_reader import ChosenFiles
    from onceward.lint.sql.schema import SqlSchema

_UNREAD: Final = (CANNOT_PARSE, CANNOT_READ, TOO_LARGE)
_OURS: Final = "onceward_"


@dataclass(frozen=True, slots=True)
class LiveTable:
    """A table with a key, in a database that is there."""

    name: str
    column: str
    is_unique: bool
    is_required: bool


@dataclass
class SqlFacts:
    """What the SQL files show."""

    files: int = 0
    is_readable: bool = True
    """False: there are files, and nothing that could parse them."""
    unread: list[CodePlace] = field(default_factory=list)
    findings: dict[str, list[CodePlace]] = field(default_factory=dict)
    inserts: list[tuple[CodePlace, str]] = field(default_factory=list)
    """Each with its class: A, B or C."""
    right: list[tuple[CodePlace, str]] = field(default_factory=list)

    def found(self, *codes: str) -> list[CodePlace]:
        """Where the linter found any of these."""
        return [place for code in codes for place in self.findings.get(code, ())]


def read_sql(
    paths: Sequence[Path], settings: ChosenFiles, progress: Progress = silent, *, tests: bool = False
) -> SqlFacts:
    """What the .sql files below some paths show: INSERTs by class, and migrations by their order."""
    facts = SqlFacts()
    files = [one for one in find_files(paths, (".sql",), settings.is_excluded, tests=tests) if one.suffix == ".sql"]
    facts.files = len(files)
    if not files:
        return facts
    if find_spec("sqlglot") is None or find_spec("pgparse") is None:
        facts.is_readable = False
        return facts
    from onceward.lint.sql.schema import SqlSchema
    from onceward.lint.sql.sql_lint import SqlOptions, lint_migration, lint_sql

    options = SqlOptions()
    found = lint_sql(files, settings, options, SqlSchema(options.dialect), tests=True, progress=progress)
    _add(facts, found.report.findings)
    folders = [one for one in files if "migrat" in one.as_posix().lower()]
    if folders:
        _add(facts, lint_migration(folders, settings, options, SqlSchema(options.dialect), progress).findings)
    facts.inserts = [(CodePlace(one.path, one.line), one.judged.kind.value) for one in found.inserts]
    facts.right = [(CodePlace(path, line), words) for path, line, words in found.right]
    return facts


def live_tables(schema: SqlSchema) -> list[LiveTable]:
    """The tables of a database that have a key column, without ours."""
    names, found = KeyNames(), []
    for table in schema.tables.values():
        if table.name.rpartition(".")[2].startswith(_OURS) or table.kind != "table":
            continue
        for column in names.keys_of(table.columns):
            unique = any(column in one.columns for one in table.uniques)
            found.append(LiveTable(table.name, column, unique, table.columns[column].not_null))
    return found


def _add(facts: SqlFacts, findings: Iterable[Finding]) -> None:
    for one in findings:
        place = CodePlace(one.path, one.line)
        places = facts.findings.setdefault(one.code, [])
        if place not in places:
            places.append(place)
        if one.code in _UNREAD and place not in facts.unread:
            facts.unread.append(place)
