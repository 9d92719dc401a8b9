"""Helpers for the tests of the SQL linter: texts in, findings and classes out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from onceward._core.sql_lexer import Dialect
from onceward.lint.findings import Finding
from onceward.lint.ignores import DASHES
from onceward.lint.lint_run import LintReport, select_findings
from onceward.lint.settings import LintSettings
from onceward.lint.source_file import SourceFile
from onceward.lint.sql.insert_judge import Judgement
from onceward.lint.sql.key_names import KeyNames
from onceward.lint.sql.schema import SqlSchema
from onceward.lint.sql.sql_lint import CODES, SqlOptions, SqlReport, SqlText, check_sql, flattened, lint_migration

HERE = Path(__file__).parent


class Looked(NamedTuple):
    """What came of looking at a text."""

    findings: list[Finding]
    judged: list[Judgement]
    right: list[str]

    @property
    def codes(self) -> list[str]:
        """The codes, in order of the text."""
        return [one.code for one in sorted(self.findings, key=lambda one: (one.line, one.code))]

    @property
    def classes(self) -> str:
        """The letter of each INSERT."""
        return "".join(one.kind.value for one in self.judged)


def look(
    text: str,
    *,
    schema: str | SqlSchema = "",
    dialect: Dialect = Dialect.POSTGRES,
    names: KeyNames | None = None,
    intent: bool = False,
) -> Looked:
    """Look at a text, against a schema that is another text."""
    options = SqlOptions(dialect, names or KeyNames(), intent)
    base = schema if isinstance(schema, SqlSchema) else schema_of(schema, dialect)
    found = SqlReport(LintReport((), 0, {}))
    source = SourceFile("x.sql", text)
    findings = select_findings(source, check_sql(SqlText(source, options), base, found), LintSettings(), CODES, DASHES)
    return Looked(findings, [one.judged for one in found.inserts], [words for _, _, words in found.right])


def schema_of(text: str, dialect: Dialect = Dialect.POSTGRES) -> SqlSchema:
    """The schema that a text makes."""
    schema = SqlSchema(dialect, source="a text" if text else "")
    for one in flattened(SqlText(SourceFile("schema.sql", text), SqlOptions(dialect)).statements):
        schema.apply(one)
    return schema


def migrate(tmp_path: Path, *texts: str, before: str = "", dialect: Dialect = Dialect.POSTGRES) -> list[Finding]:
    """Look at migrations, one file for each text."""
    files = []
    for number, text in enumerate(texts):
        file = tmp_path / f"{number:04}_migration.sql"
        file.write_text(text)
        files.append(file)
    report = lint_migration(files, LintSettings(), SqlOptions(dialect), schema_of(before, dialect))
    return list(report.findings)


class Part(NamedTuple):
    """A part of a file of planted hazards."""

    file: str
    number: int
    text: str
    wanted: frozenset[tuple[int, str]]
    """Line and code."""


def parts(folder: str) -> Iterator[Part]:
    """The parts of all files in a folder, which `-- ====` divides, with what is marked in them."""
    for file in sorted((HERE / folder).glob("*.sql")):
        for number, text in enumerate(file.read_text().split("-- ====\n")):
            wanted = frozenset(
                (line, code)
                for line, words in enumerate(text.split("\n"), start=1)
                if "-- HAZARD" in words
                for code in re.findall(r"OW\d{3}", words.partition("-- HAZARD")[2])
            )
            yield Part(file.name, number, text, wanted)
