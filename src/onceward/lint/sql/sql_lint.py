"""
From SQL files to findings, with each INSERT classified: what `lint sql` and `lint migration` run.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onceward._core.sql_lexer import Dialect
from onceward.lint.file_search import find_files
from onceward.lint.findings import CANNOT_PARSE, TOO_LARGE, Finding
from onceward.lint.ignores import DASHES
from onceward.lint.lint_run import FINDINGS_MAX, LintReport, select_findings
from onceward.lint.settings import LintSettings
from onceward.lint.source_file import SourceFile
from onceward.lint.sql.insert_judge import Judge, Judgement
from onceward.lint.sql.key_names import KeyNames
from onceward.lint.sql.migration_checks import check_migration
from onceward.lint.sql.parsing import parse_sql
from onceward.lint.sql.routine_checks import check_alone, check_routine, merge_hazards, transactions_as_routines
from onceward.lint.sql.rules import RULES
from onceward.lint.sql.schema import SqlSchema
from onceward.lint.sql.schema_files import is_downward, ordered_files, read_migration
from onceward.lint.sql.statements import Insert, Merge, Problem, Routine, Statement
from onceward.lint.sql.table_checks import check_tables
from onceward.runtime.progress import Progress, part_of, silent

CODES: Final = frozenset(rule.code for rule in RULES)
SUFFIXES: Final = (".sql",)

_HEADER: Final = re.compile(
    r"^--[ \t]*onceward:[ \t]*(?P<what>dialect|intent)[ \t]+(?P<value>[\w-]+)[ \t]*$", re.MULTILINE
)
_OTHERS: Final = (
    (
        re.compile(
            r"\b(?:TABLE|INTO|FROM|UPDATE)\s+`|\bAUTO_INCREMENT\b|\bENGINE\s*=|ON\s+DUPLICATE\s+KEY", re.IGNORECASE
        ),
        "MySQL, which is not supported",
    ),
    (re.compile(r"\[dbo\]|\bNVARCHAR\b|^\s*GO\s*$|@@\w+", re.IGNORECASE | re.MULTILINE), "T-SQL: add --dialect tsql"),
    (
        re.compile(r"\bINSERT\s+OR\s+\w|\bAUTOINCREMENT\b|^\s*PRAGMA\b", re.IGNORECASE | re.MULTILINE),
        "SQLite: add --dialect sqlite",
    ),
    (re.compile(r"\bVARCHAR2\b|\bFROM\s+DUAL\b", re.IGNORECASE), "Oracle's SQL, which is not supported"),
    (re.compile(r"::\w+|\bBIGSERIAL\b|\$\$", re.IGNORECASE), "PostgreSQL: add --dialect postgres"),
)


@dataclass(frozen=True)
class SqlOptions:
    """What is looked for, and how the text is read."""

    dialect: Dialect = Dialect.POSTGRES
    names: KeyNames = field(default_factory=KeyNames)
    no_double_send: bool = False


@dataclass(frozen=True, slots=True)
class ClassifiedInsert:
    """One INSERT with its place."""

    path: str
    line: int
    column: int
    judged: Judgement


@dataclass
class SqlReport:
    """What came of a run: findings, the class of each INSERT, and what is right."""

    report: LintReport
    inserts: list[ClassifiedInsert] = field(default_factory=list)
    right: list[tuple[str, int, str]] = field(default_factory=list)
    """Path, line and sentence."""


class SqlText:
    """A source with its statements, and lines and columns for their places."""

    def __init__(self, source: SourceFile, options: SqlOptions) -> None:
        self.source = source
        self.options = _with_headers(source.text, options)
        self._starts = [0, *(one.end() for one in re.finditer(r"\r\n|\r|\n", source.text))]
        self.statements = list(parse_sql(source.text, self.options.dialect))

    def place(self, at: int) -> tuple[int, int]:
        """Line and column of a place."""
        line = bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1

    def finding(self, code: str, at: int, end: int, message: str) -> Finding:
        """A finding at a place. One that goes over several lines is shown on its first."""
        line, column = self.place(at)
        room = len(self.source.line(line)) + 1
        return self.source.finding(code, line, column, min(column + max(1, end - at), max(room, column + 1)), message)

    def problems(self) -> Iterator[Finding]:
        """What could not be parsed."""
        hint, told = "", False
        for one in self.statements:
            if isinstance(one, Problem) and one.kind == "syntax":
                hint = hint or self._hint()
                if not told or not hint:  # In another dialect nearly every statement is a problem: one is enough.
                    message = f"cannot be parsed as {self.options.dialect.value}: {one.message}{hint}"
                    yield self.finding(CANNOT_PARSE, one.at, one.end, message)
                told = True
            elif isinstance(one, Problem):
                yield self.finding(TOO_LARGE, one.at, one.end, one.message)

    def _hint(self) -> str:
        for pattern, words in _OTHERS:
            if not words.endswith(self.options.dialect.value) and pattern.search(self.source.text):
                return f". It looks like {words}"
        return ""


def _with_headers(text: str, options: SqlOptions) -> SqlOptions:
    """The options with what the file says of itself: `-- onceward: dialect sqlite`, `... intent no-double-send`."""
    said = {one["what"]: one["value"] for one in _HEADER.finditer(text)}
    dialect = options.dialect
    if said.get("dialect") in {one.value for one in Dialect}:
        dialect = Dialect(said["dialect"])
    return SqlOptions(dialect, options.names, options.no_double_send or said.get("intent") == "no-double-send")


def flattened(statements: Iterable[Statement]) -> Iterator[Statement]:
    """The statements that are run when the text is: those in an anonymous block too, those in a function not."""
    for one in statements:
        if isinstance(one, Routine) and not one.name:
            yield from (step.statement for step in one.steps)
        elif not isinstance(one, Routine | Problem):
            yield one


def read_schema(paths: Iterable[Path], options: SqlOptions) -> tuple[SqlSchema, list[tuple[SqlText | None, Finding]]]:
    """The schema after all files, in their order; and what could not be read of them."""
    schema = SqlSchema(options.dialect, source="files")
    troubles: list[tuple[SqlText | None, Finding]] = []
    files = ordered_files(paths, needed=True)
    schema.files = frozenset(map(os.path.realpath, files))
    for path in files:
        source = read_migration(path)
        if isinstance(source, Finding):
            troubles.append((None, source))
            continue
        text = SqlText(source, options)
        troubles += [(text, one) for one in text.problems()]
        for statement in flattened(text.statements):
            schema.apply(statement)
        schema.routines |= {one.name: os.path.realpath(path) for one in text.statements if isinstance(one, Routine)}
    return schema, troubles


def check_sql(text: SqlText, base: SqlSchema, found: SqlReport) -> list[Finding]:
    """
    What is wrong in one file; its INSERTs and what is right are added to the report.

    Of a migration that the schema is made of, only routines are judged, and only if none after it defines them anew:
    what it inserts itself is inserted once, and into the tables of that time.
    """
    schema = base.copy()
    schema.dialect = text.options.dialect
    running = list(flattened(text.statements))
    for one in running:
        schema.apply(one)
    judge = Judge(schema, text.options.names, text.options.no_double_send)
    findings = list(text.problems())
    told: list[tuple[str, int, int, str]] = list(check_tables(running, schema, text.options.names))
    judgements: list[Judgement] = []
    plain = [one for one in text.statements if not isinstance(one, Routine | Problem)]
    routines = [one for one in text.statements if isinstance(one, Routine)]
    path = os.path.realpath(text.source.path)
    if path in base.files:
        plain, routines = [], [one for one in routines if one.name and base.routines.get(one.name) == path]
    scripts = list(transactions_as_routines(plain))
    for routine in (*scripts, *routines):
        seen = check_routine(routine, judge)
        judgements += seen.judgements
        told += seen.hazards
        found.right += [(text.source.path, text.place(at)[0], words) for at, words in seen.right]
    for statement in plain if not scripts else ():
        if isinstance(statement, Insert):
            judged = judge.judge(statement)
            check_alone(judged)
            judgements.append(judged)
        elif isinstance(statement, Merge):
            told += merge_hazards(statement)
    for judged in sorted(judgements, key=lambda one: one.insert.at):
        told += [(code, judged.insert.at, judged.insert.end, message) for code, message in judged.hazards]
        found.inserts.append(ClassifiedInsert(text.source.path, *text.place(judged.insert.at), judged))
    return findings + [text.finding(*one) for one in told]


def lint_sql(
    paths: Iterable[Path],
    settings: LintSettings,
    options: SqlOptions,
    schema: SqlSchema,
    *,
    tests: bool = True,
    progress: Progress = silent,
) -> SqlReport:
    """Look at every file, each by itself against the schema. What takes a migration back is left out."""
    told: list[Finding] = []
    sources: dict[str, SourceFile] = {}
    found = SqlReport(LintReport((), 0, sources))
    files = 0
    chosen = [one for one in find_files(paths, SUFFIXES, settings.is_excluded, tests=tests) if not is_downward(one)]
    for path in chosen:
        part_of(progress, files, len(chosen), "files")
        files += 1
        source = read_migration(path)
        if isinstance(source, Finding):
            told += [source] if settings.tells(source.code, path) else []
            continue
        text = SqlText(source, options)
        own = select_findings(source, check_sql(text, schema, found), settings, CODES, DASHES)
        if own:
            sources[source.path] = source
        told += own
        if len(told) > FINDINGS_MAX:
            break
    found.report = LintReport(tuple(told[:FINDINGS_MAX]), files, sources, cut=len(told) > FINDINGS_MAX)
    return found


def lint_migration(
    paths: Iterable[Path],
    settings: LintSettings,
    options: SqlOptions,
    schema: SqlSchema,
    progress: Progress = silent,
) -> LintReport:
    """Look at migration files as one sequence, on top of the schema that was there before."""
    told: list[Finding] = []
    sources: dict[str, SourceFile] = {}
    texts: list[SqlText] = []
    files = [path for path in ordered_files(paths) if not settings.is_excluded(path)]
    for number, path in enumerate(files):
        part_of(progress, number, len(files), "files")
        source = read_migration(path)
        if isinstance(source, Finding):
            told += [source] if settings.tells(source.code, path) else []
        else:
            texts.append(SqlText(source, options))
    for text, findings in zip(texts, _check_migrations(texts, schema, options), strict=True):
        own = select_findings(text.source, findings, settings, CODES, DASHES)
        if own:
            sources[text.source.path] = text.source
        told += own
    return LintReport(tuple(told[:FINDINGS_MAX]), len(files), sources, cut=len(told) > FINDINGS_MAX)


def _check_migrations(texts: list[SqlText], before: SqlSchema, options: SqlOptions) -> list[list[Finding]]:
    """By file, what is wrong."""
    after = before.copy()
    if texts:
        before.dialect = after.dialect = texts[0].options.dialect
    steps = [(number, one) for number, text in enumerate(texts) for one in flattened(text.statements)]
    for _, one in steps:
        after.apply(one)
    findings = [list(text.problems()) for text in texts]
    for number, text in enumerate(texts):
        own = [one for file, one in steps if file == number]
        findings[number] += [text.finding(*one) for one in check_tables(own, after, options.names)]
    for number, code, at, end, message in check_migration(steps, before, after, options.names):
        findings[number].append(texts[number].finding(code, at, end, message))
    return findings
