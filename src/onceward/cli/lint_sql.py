"""
`onceward lint sql` and `onceward lint migration`: INSERTs by class, and migrations by their order. Nothing is run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onceward._core.sql_lexer import Dialect
from onceward.cli import exit_codes
from onceward.cli.command_table import Argument, Command
from onceward.cli.lint_report import FINDING_ARGUMENTS, settings_of, show_report
from onceward.cli.output import print_json, print_note, print_text
from onceward.cli.progress import progress_of
from onceward.cli.text_tables import escape_invisible
from onceward.lint.output import as_document
from onceward.lint.sql.key_names import KeyNames

if TYPE_CHECKING:
    from onceward.lint.findings import Finding
    from onceward.lint.lint_run import LintReport
    from onceward.lint.settings import LintSettings
    from onceward.lint.sql.schema import SqlSchema
    from onceward.lint.sql.sql_lint import ClassifiedInsert, SqlOptions, SqlReport, SqlText

NO_DOUBLE_SEND = "no-double-send"


def _sql(args: argparse.Namespace) -> int:
    from onceward.lint.sql.sql_lint import lint_sql

    settings, options = settings_of(args), _options(args)
    schema, troubles = _schema(args, options)
    with progress_of("reading") as progress:
        found = lint_sql(args.paths, settings, options, schema, tests=args.tests, progress=progress)
    found.report = _with_troubles(found.report, troubles, settings)
    if not found.report.files:
        print_note("onceward: there are no .sql files there")
    elif not schema.source and not all(one.judged.is_known for one in found.inserts):
        print_note("onceward: no schema was given, so constraints are unknown. Add --schema FOLDER or --database URL")
    return _show(args, found, schema)


def _migration(args: argparse.Namespace) -> int:
    from onceward.lint.sql.sql_lint import lint_migration

    settings, options = settings_of(args), _options(args)
    schema, troubles = _schema(args, options)
    with progress_of("reading") as progress:
        report = lint_migration(args.paths, settings, options, schema, progress)
    if not report.files:
        print_note("onceward: there are no .sql files there")
    return show_report(args, _with_troubles(report, troubles, settings))


def _options(args: argparse.Namespace) -> SqlOptions:
    from onceward.lint.sql.schema_database import dialect_of
    from onceward.lint.sql.sql_lint import SqlOptions

    chosen = Dialect(args.dialect) if args.dialect else None
    if args.database:
        if args.schema:
            raise exit_codes.UsageError("--schema and --database serve the same purpose: choose one of them")
        found = dialect_of(args.database)
        if chosen not in (None, found):
            raise exit_codes.UsageError(f"--dialect {args.dialect} does not match the database, which is {found.value}")
        chosen = found
    names = KeyNames(frozenset(map(str.lower, args.key)), frozenset(map(str.lower, args.scope)))
    return SqlOptions(chosen or Dialect.POSTGRES, names, getattr(args, "intent", None) == NO_DOUBLE_SEND)


def _schema(args: argparse.Namespace, options: SqlOptions) -> tuple[SqlSchema, list[tuple[SqlText | None, Finding]]]:
    from onceward.lint.sql.schema import SqlSchema
    from onceward.lint.sql.schema_database import read_database
    from onceward.lint.sql.sql_lint import read_schema

    if args.database:
        return read_database(args.database), []
    return read_schema(args.schema, options) if args.schema else (SqlSchema(options.dialect), [])


def _with_troubles(
    report: LintReport, troubles: list[tuple[SqlText | None, Finding]], settings: LintSettings
) -> LintReport:
    """The report with what could not be read of the schema: a judgement by half a schema is none."""
    from dataclasses import replace

    told = [(text, one) for text, one in troubles if settings.tells(one.code, Path(one.path))]
    sources = {text.source.path: text.source for text, _ in told if text is not None}
    known = {(one.code, one.path, one.line, one.column) for one in report.findings}
    fresh = [one for _, one in told if (one.code, one.path, one.line, one.column) not in known]
    return replace(report, findings=(*fresh, *report.findings), sources=sources | report.sources)


def _show(args: argparse.Namespace, found: SqlReport, schema: SqlSchema) -> int:
    """The findings, and besides them each INSERT with its class and what is right."""
    style = args.format or ("json" if args.json else "text")
    if style == "json":
        print_json(
            as_document(found.report)
            | {
                "schema": schema.source or None,
                "inserts": [_insert_document(one) for one in found.inserts],
                "right": [{"path": path, "line": line, "message": words} for path, line, words in found.right],
            }
        )
        return exit_codes.NO if found.report.findings else exit_codes.FINE
    if style == "text" and (found.inserts or found.right):
        lines = [_insert_text(one) for one in found.inserts]
        lines += [escape_invisible(f"{path}:{line}: right: {words}") for path, line, words in found.right]
        print_text("\n".join(lines) + "\n")
    return show_report(args, found.report)


def _insert_text(one: ClassifiedInsert) -> str:
    judged = one.judged
    clause = f" {judged.clause}" if judged.clause else ""
    place = f"{one.path}:{one.line}:{one.column}"
    head = f"{place}: {judged.kind.value} {judged.kind.words}: INSERT INTO {judged.insert.table}{clause}"
    by = f"\n    by {escape_invisible(judged.constraint)}" if judged.constraint else ""
    return f"{escape_invisible(head)}{by}\n    {escape_invisible(judged.failure)}"


def _insert_document(one: ClassifiedInsert) -> dict[str, Any]:
    judged = one.judged
    clause = judged.insert.conflict
    return {
        "path": one.path,
        "line": one.line,
        "column": one.column,
        "table": judged.insert.table,
        "class": judged.kind.value,
        "kind": judged.kind.words,
        "constraint": judged.constraint or None,
        "clause": judged.clause or None,
        "target": list(clause.target) if clause and clause.target else None,
        "failure": judged.failure,
        "judgedBySchema": judged.is_known,
    }


_PATHS = Argument("paths", "files, and folders with .sql files", nargs="+", type=Path, metavar="PATH")
_SCHEMA_ARGUMENTS = (
    Argument(
        "--schema",
        "migration files or a folder of them, applied in order; may be repeated",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
    ),
    Argument("--database", "a live database, which is only read: postgresql://... or sqlite:///app.db", metavar="URL"),
    Argument(
        "--dialect",
        "how the text is read (default: postgres, or what the database is)",
        choices=tuple(one.value for one in Dialect),
    ),
    Argument("--key", "another column that holds keys; may be repeated", action="append", default=[], metavar="COLUMN"),
    Argument(
        "--scope",
        "another column that says whose key it is, such as a tenant; may be repeated",
        action="append",
        default=[],
        metavar="COLUMN",
    ),
)

SQL_COMMANDS = (
    Command(
        name="lint sql",
        summary="classify each INSERT as safe skip (A), duplicate factory (B) or overwriting upsert (C)",
        run=_sql,
        arguments=(
            _PATHS,
            *_SCHEMA_ARGUMENTS,
            Argument("--tests", "look at tests below folders, too", action="store_true"),
            Argument("--intent", "what must not happen twice: DO UPDATE is then a finding", choices=(NO_DOUBLE_SEND,)),
            *FINDING_ARGUMENTS,
        ),
        examples=(
            "onceward lint sql .",
            "onceward lint sql . --intent no-double-send --format github",
        ),
        exit_codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.STORE),
        no="there are findings",
        more=(
            "Goes by the constraints of the schema: from migration files in their order, from a live\n"
            "database, and from the file itself. Without a schema it says so. A file may\n"
            "declare `-- onceward: dialect sqlite` and `-- onceward: intent no-double-send`; a line that\n"
            "may stay has `-- onceward: ignore[OW201] the reason`. Needs pip install 'onceward[lint]'."
        ),
    ),
    Command(
        name="lint migration",
        summary="check a migration that adds a key: its order, its constraint, no DROP",
        run=_migration,
        arguments=(_PATHS, *_SCHEMA_ARGUMENTS, *FINDING_ARGUMENTS),
        examples=("onceward lint migration .", "onceward lint migration . --key request_id --scope customer_id"),
        exit_codes=(exit_codes.FINE, exit_codes.NO, exit_codes.USAGE, exit_codes.STORE),
        no="there are findings",
        more=(
            "All files are one sequence, in the order of the numbers in their names. What takes a migration\n"
            "back is left out: *.down.sql, and what stands below `-- +goose Down` or `-- migrate:down`.\n"
            "--schema and --database say what was there before. Needs pip install 'onceward[lint]'."
        ),
    ),
)
